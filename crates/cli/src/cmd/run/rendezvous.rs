//! The folder of `--rendezvous`: whether it can be used, and names in it that nobody took away.

use bypath_sys::folder::Folder;
use bypath_sys::process;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A name is there for 10 s at most, unless its process was killed, or has not called since.
const LEFT: Duration = Duration::from_secs(60);

/// Names that are looked at: where others may make some, they may make millions.
const LOOKS: usize = 1024;

/// Looks whether the folder can be used by this user, and removes what is left in it of this user's.
///
/// # Errors
/// A sentence about what is wrong, and what mends it.
pub fn prepare(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    let path = CString::new(folder.as_os_str().as_bytes()).map_err(|e| format!("{shown}: {e}"))?;
    let opened = Folder::open(&path, 3).map_err(|e| {
        let e = std::io::Error::from(e);
        format!("{shown}: {e}; make it where all of these programs see it: mkdir -m 700 {shown}")
    })?;
    if !opened.is_safe(process::euid()) {
        return Err(format!(
            "{shown}: others may take names away in it, or it is another user's: chown it to the user of these programs, and chmod 700 {shown}"
        ));
    }
    sweep(&opened, SystemTime::now());
    Ok(())
}

fn sweep(folder: &Folder, now: SystemTime) {
    let entries = fs::read_dir(folder.by_number()).into_iter().flatten().flatten().take(LOOKS);
    for entry in entries.filter(|e| e.file_name().as_bytes().starts_with(b"bypath-1-")) {
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|then| now.duration_since(then).ok());
        if metadata.file_type().is_socket()
            && metadata.uid() == process::euid()
            && age.is_some_and(|age| age > LEFT)
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[test]
    fn names_that_were_left_behind_go_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("bypath-sweep-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let listeners =
            ["bypath-1-0000000000000000", "other"].map(|name| UnixListener::bind(folder.join(name)));
        fs::write(folder.join("bypath-1-file"), "").unwrap();
        let names = || fs::read_dir(&folder).unwrap().count();
        prepare(&folder).unwrap();
        assert_eq!(names(), 3);
        let opened = Folder::open(&CString::new(folder.as_os_str().as_bytes()).unwrap(), 3).unwrap();
        // Whatever is exchanged for it meanwhile.
        let elsewhere = folder.with_extension("elsewhere");
        fs::rename(&folder, &elsewhere).unwrap();
        fs::create_dir(&folder).unwrap();
        let another = UnixListener::bind(folder.join("bypath-1-0000000000000000"));
        sweep(&opened, SystemTime::now() + LEFT + Duration::from_secs(5));
        assert_eq!(names(), 1);
        fs::remove_dir_all(&folder).unwrap();
        fs::rename(&elsewhere, &folder).unwrap();
        drop(another);
        assert_eq!(names(), 2);
        assert!(folder.join("other").exists() && folder.join("bypath-1-file").exists());
        drop(listeners);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_refused_with_what_mends_it() {
        let folder = std::env::temp_dir().join(format!("bypath-refused-{}", std::process::id()));
        assert!(prepare(&folder).unwrap_err().contains("mkdir -m 700"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(&folder).unwrap_err().contains("chmod 700"));
        fs::remove_dir_all(folder).unwrap();
    }
}
