//! Opens what a path leads to, but by no link of `/proc` (`/proc/PID/root`, `/proc/PID/fd/N`, ...): what it leads to in another process's mount
//! namespace has whatever owner that process's user likes. A path that is longer, or has more links, than here is room for is not opened either.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// linux/openat2.h
const RESOLVE_NO_MAGICLINKS: u64 = 2;
/// linux/magic.h
const PROC_SUPER_MAGIC: u64 = 0x9fa0;
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// Links on the way, and octets of each, where the kernel cannot be asked.
const LINKS: u32 = 8;
const LINK: usize = 1024;

/// As openat(2), close-on-exec; a path without a leading slash begins in `folder`.
///
/// # Errors
/// ELOOP: a link of `/proc`; others as open(2).
pub(crate) fn open_at(folder: i32, path: &CStr, flags: i32) -> Result<i32> {
    let how: [u64; 3] = [(flags | libc::O_CLOEXEC) as u64, 0, RESOLVE_NO_MAGICLINKS];
    // SAFETY: a NUL-terminated path, and an open_how of the size that is said.
    let opened = check(unsafe {
        syscall(
            libc::SYS_openat2,
            [folder as usize, path.as_ptr() as usize, how.as_ptr() as usize, size_of_val(&how), 0, 0],
        )
    });
    match opened {
        // Before Linux 5.6, or under a filter that does not know it.
        Err(Errno::NOSYS | Errno::PERM) => walk(folder, path.to_bytes(), flags, &mut LINKS.clone()),
        opened => opened.map(|fd| fd as i32),
    }
}

/// The same of paths, from the working directory, or in an open folder.
///
/// # Errors
/// Of kind `FilesystemLoop`: a link of `/proc`; others as open(2).
pub fn open(folder: Option<&File>, path: &Path, flags: i32) -> io::Result<File> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let fd = open_at(folder.map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd), &path, flags)
        .map_err(|e| io::Error::from_raw_os_error(e.raw_os_error()))?;
    // SAFETY: it was opened just now and is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Whether the text of a file is the kernel's, and may be what another user has told it (`/proc/PID/cmdline`), whoever owns it.
pub fn is_of_kernel(file: &File) -> bool {
    !fd::file_system(file.as_raw_fd()).is_ok_and(|kind| ![PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&kind))
}

fn plain_open(folder: i32, name: &[u8], flags: i32) -> Result<i32> {
    let mut room = [0; 256];
    room.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    let name = CStr::from_bytes_until_nul(&room).map_err(|_| Errno::NAMETOOLONG)?;
    let args = [folder as usize, name.as_ptr() as usize, (flags | libc::O_CLOEXEC) as usize, 0, 0, 0];
    // SAFETY: a NUL-terminated name.
    check(unsafe { syscall(libc::SYS_openat, args) }).map(|fd| fd as i32)
}

/// Name by name. Without memory of the heap, as the library asks in calls of its program.
fn walk(folder: i32, path: &[u8], flags: i32, links: &mut u32) -> Result<i32> {
    let begin = if path.first() == Some(&b'/') { (libc::AT_FDCWD, &b"/"[..]) } else { (folder, &b"."[..]) };
    let mut at = plain_open(begin.0, begin.1, libc::O_PATH | libc::O_DIRECTORY)?;
    let mut names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let how = if names.peek().is_some() { libc::O_PATH | libc::O_DIRECTORY } else { flags };
        let next = step(at, name, how, links);
        fd::close(at);
        at = next?;
    }
    Ok(at)
}

fn step(at: i32, name: &[u8], flags: i32, links: &mut u32) -> Result<i32> {
    let seen = plain_open(at, name, libc::O_PATH | libc::O_NOFOLLOW)?;
    let kind = fd::status_of(seen).map_or(0, |status| status.st_mode & libc::S_IFMT);
    if kind == libc::S_IFLNK && flags & libc::O_NOFOLLOW == 0 {
        let mut room = [0; LINK];
        let text = text_of_link(seen, &mut room);
        fd::close(seen);
        *links = links.checked_sub(1).ok_or(Errno::LOOP)?;
        return walk(at, text?, flags, links);
    }
    if flags & libc::O_PATH != 0 {
        if flags & libc::O_DIRECTORY != 0 && kind != libc::S_IFDIR {
            fd::close(seen);
            return Err(Errno::NOTDIR);
        }
        return Ok(seen);
    }
    fd::close(seen);
    plain_open(at, name, flags | libc::O_NOFOLLOW)
}

fn text_of_link(link: i32, room: &mut [u8; LINK]) -> Result<&[u8]> {
    if fd::file_system(link)? == PROC_SUPER_MAGIC {
        return Err(Errno::LOOP);
    }
    let args = [link as usize, c"".as_ptr() as usize, room.as_mut_ptr() as usize, LINK, 0, 0];
    // SAFETY: a NUL-terminated name, and room that the kernel writes into.
    let len = check(unsafe { syscall(libc::SYS_readlinkat, args) })?;
    if len == LINK { Err(Errno::NAMETOOLONG) } else { Ok(&room[..len]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Both ways.
    fn opened(path: &Path, flags: i32) -> [Result<(u64, u64)>; 2] {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let ways = [
            open_at(libc::AT_FDCWD, &path, flags),
            walk(libc::AT_FDCWD, path.to_bytes(), flags, &mut LINKS.clone()),
        ];
        ways.map(|opened| {
            opened.and_then(|open| {
                let identity = fd::identity(open);
                fd::close(open);
                identity
            })
        })
    }

    #[test]
    fn links_of_the_kernel_lead_nowhere_and_those_of_users_as_always() {
        let top = std::env::temp_dir().join(format!("bypath-no-magic-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("a/b")).unwrap();
        let file = top.join("a/b/file");
        fs::write(&file, "text").unwrap();
        symlink("a/b", top.join("relative")).unwrap();
        symlink(top.join("relative/../b"), top.join("absolute")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        symlink(format!("/proc/{}/root", std::process::id()), top.join("root")).unwrap();
        let name = CString::new(file.as_os_str().as_bytes()).unwrap();
        let it = fd::file(&name).unwrap();
        for path in ["a/b/file", "relative/file", "absolute/file", "a//b/./../b/file"] {
            for flags in [libc::O_PATH, libc::O_RDONLY, libc::O_PATH | libc::O_NOFOLLOW] {
                assert_eq!(opened(&top.join(path), flags), [Ok(it); 2], "{path}");
            }
        }
        let folder = libc::O_PATH | libc::O_DIRECTORY;
        assert_eq!(opened(&top.join("absolute"), folder), opened(&top.join("a/b"), folder));
        assert_eq!(opened(&file, folder), [Err(Errno::NOTDIR); 2]);
        assert_eq!(opened(&top.join("none"), folder), [Err(Errno::NOENT); 2]);
        assert_eq!(opened(&top.join("loop"), libc::O_PATH), [Err(Errno::LOOP); 2]);
        assert_eq!(opened(&top.join("loop"), libc::O_RDONLY | libc::O_NOFOLLOW), [Err(Errno::LOOP); 2]);
        let inside = |front: &Path| front.join(top.strip_prefix("/").unwrap()).join("a/b/file");
        let pid = format!("/proc/{}/root", std::process::id());
        for front in [Path::new(&pid), Path::new("/proc/self/root"), &top.join("root")] {
            let led = inside(front);
            assert!(led.exists(), "{led:?}");
            assert_eq!(opened(&led, libc::O_PATH), [Err(Errno::LOOP); 2], "{led:?}");
        }
        assert_eq!(opened(Path::new("/"), folder).map(|o| o.is_ok()), [true; 2]);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_file_of_the_kernels_is_known() {
        let is = |path: &str| is_of_kernel(&open(None, Path::new(path), libc::O_RDONLY).unwrap());
        let pid = format!("/proc/{}/cmdline", std::process::id());
        assert!(is(&pid) && !is("/etc/passwd"));
    }
}
