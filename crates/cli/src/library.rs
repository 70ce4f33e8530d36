//! Where the preload library is, and whether it can be named in LD_PRELOAD.

use crate::program::{self, Elf};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// File name of the library.
pub const FILE_NAME: &str = "libbypath_preload.so";
/// Variable of the flag `--library`.
pub const VARIABLE: &str = "BYPATH_LIBRARY";

/// Why there is no library to preload.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// None of the usual places has it.
    #[error(
        "the library {FILE_NAME} is missing; looked at:\n{}\nInstall it (make install), build it \
         (cargo build --release -p bypath-preload), or name it with --library FILE or {VARIABLE}",
        list(.0)
    )]
    NotFound(Vec<PathBuf>),
    /// The file that was named cannot be opened.
    #[error("cannot use the library {path}, which {source_name} names: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// `--library` or the variable.
        source_name: &'static str,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The file is something else.
    #[error("{0} is not a shared library: name the file {FILE_NAME} with --library")]
    NotALibrary(String),
    /// The file is a shared library, but another one.
    #[error("{0} is not Bypath's library: name the file {FILE_NAME} with --library")]
    NotOurs(String),
    /// The dynamic loader would split or expand the name.
    #[error(
        "the path of the library, {0}, contains a blank, ':' or '$', which the dynamic loader's LD_PRELOAD \
         cannot hold: move the library, or make a symbolic link without such characters and name it with --library"
    )]
    Unnameable(String),
}

fn list(places: &[PathBuf]) -> String {
    places.iter().map(|p| format!("  {}", p.display())).collect::<Vec<_>>().join("\n")
}

/// A library that can be preloaded.
#[derive(Debug)]
pub struct Library {
    /// Absolute path.
    pub path: PathBuf,
    /// For which machine it was built.
    pub elf: Elf,
}

impl Library {
    /// Finds the library: `flag`, else `variable` (empty = unset), else the usual places around `executable`.
    ///
    /// # Errors
    /// There is none, it is no shared library, or its name does not fit into LD_PRELOAD.
    pub fn find(
        flag: Option<&Path>,
        variable: Option<&OsStr>,
        executable: &Path,
    ) -> Result<Library, LibraryError> {
        let named = flag
            .map(|p| (p.to_owned(), "--library"))
            .or_else(|| variable.filter(|v| !v.is_empty()).map(|v| (PathBuf::from(v), VARIABLE)));
        if let Some((path, source_name)) = named {
            return Library::open_named(&path).map_err(|e| match e {
                OpenError::Io(error) => {
                    LibraryError::Unreadable { path: path.display().to_string(), source_name, error }
                }
                OpenError::Other(e) => e,
            });
        }
        let places = usual_places(executable);
        match places.iter().find(|p| p.is_file()) {
            None => Err(LibraryError::NotFound(places)),
            Some(path) => Library::open(path).map_err(|e| match e {
                OpenError::Io(error) => LibraryError::Unreadable {
                    path: path.display().to_string(),
                    source_name: "its place beside bypath",
                    error,
                },
                OpenError::Other(e) => e,
            }),
        }
    }

    /// A file that somebody named: it may be anything.
    fn open_named(path: &Path) -> Result<Library, OpenError> {
        /// A symbol that the library exports.
        const MARKER: &[u8] = b"\0bypath_preload_instance\0";
        let library = Library::open(path)?;
        let bytes = std::fs::read(path).map_err(OpenError::Io)?;
        if !bytes.windows(MARKER.len()).any(|w| w == MARKER) {
            return Err(OpenError::Other(LibraryError::NotOurs(path.display().to_string())));
        }
        Ok(library)
    }

    fn open(path: &Path) -> Result<Library, OpenError> {
        let path = std::path::absolute(path).map_err(OpenError::Io)?;
        let name = path.display().to_string();
        let elf = match program::elf_of(&path).map_err(OpenError::Io)? {
            Some(elf) if elf.shared => elf,
            _ => return Err(OpenError::Other(LibraryError::NotALibrary(name))),
        };
        if path.as_os_str().as_bytes().iter().any(|b| b.is_ascii_whitespace() || matches!(b, b':' | b'$')) {
            return Err(OpenError::Other(LibraryError::Unnameable(name)));
        }
        Ok(Library { path, elf })
    }
}

enum OpenError {
    Io(std::io::Error),
    Other(LibraryError),
}

/// Beside the executable (a build directory), then where `make install` puts it.
fn usual_places(executable: &Path) -> Vec<PathBuf> {
    let beside = executable.parent().unwrap_or(Path::new("/"));
    let mut places = vec![beside.join(FILE_NAME)];
    if let Some(prefix) = beside.parent() {
        places.push(prefix.join("lib/bypath").join(FILE_NAME));
        places.push(prefix.join("lib").join(FILE_NAME));
    }
    places
}

/// LD_PRELOAD with `library` first; an entry of the same name further back is left out.
pub fn preload_list(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let entries = existing.map(OsStr::as_bytes).unwrap_or_default().split(|b| matches!(b, b':' | b' '));
    for entry in entries.filter(|e| !e.is_empty() && *e != library.as_os_str().as_bytes()) {
        list.push(":");
        list.push(OsStr::from_bytes(entry));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_goes_first_and_once() {
        let lib = Path::new("/x/l.so");
        assert_eq!(preload_list(lib, None), "/x/l.so");
        assert_eq!(preload_list(lib, Some(OsStr::new(""))), "/x/l.so");
        assert_eq!(preload_list(lib, Some(OsStr::new("/a.so:/x/l.so b.so::"))), "/x/l.so:/a.so:b.so");
        let odd = OsStr::from_bytes(b"/\xff.so");
        assert_eq!(preload_list(lib, Some(odd)).as_bytes(), b"/x/l.so:/\xff.so");
    }

    #[test]
    fn message_names_all_places_and_a_remedy() {
        let e = Library::find(None, Some(OsStr::new("")), Path::new("/nowhere/bin/bypath")).unwrap_err();
        let text = e.to_string();
        for part in [
            "/nowhere/bin/libbypath_preload.so",
            "/nowhere/lib/bypath/libbypath_preload.so",
            "/nowhere/lib/libbypath_preload.so",
            "--library",
            "make install",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn flag_beats_variable_and_is_named() {
        let find =
            |flag, variable| Library::find(flag, variable, Path::new("/b/bypath")).unwrap_err().to_string();
        let text = find(Some(Path::new("/no/flag.so")), Some(OsStr::new("/no/variable.so")));
        assert!(text.contains("/no/flag.so") && text.contains("--library"), "{text}");
        let text = find(None, Some(OsStr::new("/no/variable.so")));
        assert!(text.contains("/no/variable.so") && text.contains(VARIABLE), "{text}");
        let text = find(Some(Path::new("/etc/passwd")), None);
        assert!(text.contains("not a shared library"), "{text}");
    }
}
