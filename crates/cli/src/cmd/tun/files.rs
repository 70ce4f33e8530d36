//! Files to be sent, and files that arrive.

use super::stream::{LONGEST_NAME, Sink};
use crate::output::Failure;
use crate::raw::wait::WRITE;
use bypath_sys::poll::{PollFd, ppoll};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

/// A file to be sent.
pub struct Entry {
    /// What the receiver is told: the path below the directory that was named, or the file's own name.
    pub name: String,
    pub path: PathBuf,
    /// Octets, as the system said when it was found; 0 for standard input.
    pub len: u64,
}

/// Octets that a pipe which has room takes in any case: PIPE_BUF, see pipe(7).
const ROOM: usize = 4096;
/// Standard input.
pub const STDIN: &str = "-";

/// The files that `path` stands for, by name. Every one of them can be opened.
///
/// # Errors
/// One that cannot be read; none at all.
pub fn find(path: &Path) -> Result<Vec<Entry>, Failure> {
    if path == Path::new(STDIN) {
        return Ok(vec![Entry { name: STDIN.to_owned(), path: path.to_owned(), len: 0 }]);
    }
    let mut all = Vec::new();
    let meta = fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if meta.is_dir() {
        walk(path, path, &mut all)?;
        if all.is_empty() {
            return Err(Failure::new(
                1,
                format_args!("{}: there is no file in this directory", path.display()),
            ));
        }
    } else {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_str();
        all.push(entry(path, name, &meta)?);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn unreadable(path: &Path, e: &io::Error) -> Failure {
    Failure::new(1, format_args!("cannot read {}: {e}; nothing was sent", path.display()))
}

fn entry(path: &Path, name: Option<&str>, meta: &fs::Metadata) -> Result<Entry, Failure> {
    let name = name.filter(|n| n.len() <= LONGEST_NAME).ok_or_else(|| {
        let text = format!("{}: its name is no UTF-8, or too long to be sent; rename it", path.display());
        Failure::new(1, text)
    })?;
    // It may have been there to be listed and not to be read.
    File::open(path).map_err(|e| unreadable(path, &e))?;
    Ok(Entry { name: name.to_owned(), path: path.to_owned(), len: meta.len() })
}

fn walk(root: &Path, directory: &Path, all: &mut Vec<Entry>) -> Result<(), Failure> {
    for found in fs::read_dir(directory).map_err(|e| unreadable(directory, &e))? {
        let path = found.map_err(|e| unreadable(directory, &e))?.path();
        let kind = fs::symlink_metadata(&path).map_err(|e| unreadable(&path, &e))?;
        if kind.is_dir() {
            walk(root, &path, all)?;
        } else if kind.is_file() {
            let name = path.strip_prefix(root).ok().and_then(Path::to_str);
            all.push(entry(&path, name, &kind)?);
        } else {
            let what = "not a file, and not sent";
            crate::output::message(format_args!("{}: {what}", path.display()));
        }
    }
    Ok(())
}

/// Where files that arrive go.
pub struct Place {
    /// A directory; `None`: standard output.
    directory: Option<PathBuf>,
    overwrite: bool,
    open: Option<Open>,
    files: u64,
    /// What goes to standard output, as soon as there is room.
    waiting: Vec<u8>,
}

/// A file that is not whole yet.
struct Open {
    out: BufWriter<File>,
    /// Where it is written, and where it belongs.
    now: PathBuf,
    then: PathBuf,
}

impl Place {
    pub const fn new(directory: Option<PathBuf>, overwrite: bool) -> Place {
        Place { directory, overwrite, open: None, files: 0, waiting: Vec::new() }
    }

    /// Writes to standard output what it takes without being waited for. True: nothing is left.
    ///
    /// # Errors
    /// As the sender is told.
    pub fn drain(&mut self) -> Result<bool, String> {
        let out = io::stdout();
        let mut done = 0;
        while done < self.waiting.len() {
            let mut room = [PollFd { fd: out.as_raw_fd(), events: WRITE, revents: 0 }];
            if matches!(ppoll(&mut room, Some(0), 0), Ok(0)) {
                break;
            }
            let part = &self.waiting[done..];
            match rustix::io::write(&out, &part[..part.len().min(ROOM)]) {
                Ok(len) => done += len,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                Err(e) => return Err(format!("the receiver's standard output: {e}")),
            }
        }
        self.waiting.drain(..done);
        Ok(self.waiting.is_empty())
    }
}

/// The name of a stranger's file as a path below a directory; `None` if it would lead elsewhere.
fn below(name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = !name.is_empty()
        && !name.ends_with('/')
        && !name.contains('\0')
        && path.components().all(|c| matches!(c, Component::Normal(_)));
    plain.then(|| path.to_owned())
}

/// Whether what there is of a path below a directory is elsewhere.
fn leads_out(directory: &Path, path: &Path) -> io::Result<bool> {
    let there = path.ancestors().find(|part| fs::symlink_metadata(part).is_ok()).unwrap_or(directory);
    Ok(!there.canonicalize()?.starts_with(directory.canonicalize()?))
}

impl Sink for Place {
    fn begin(&mut self, name: &str) -> Result<(), String> {
        let Some(directory) = &self.directory else {
            if self.files > 0 {
                return Err(
                    "several files come, and go to standard output: give the receiver --out DIRECTORY".into(),
                );
            }
            return Ok(());
        };
        let name = if name == STDIN { "stdin" } else { name };
        let relative = below(name).ok_or_else(|| format!("{name:?}: the name of no file in a directory"))?;
        let then = directory.join(&relative);
        let failed = |what: &Path, e: io::Error| format!("the receiver cannot write {}: {e}", what.display());
        let parent = then.parent().unwrap_or(directory);
        if leads_out(directory, parent).map_err(|e| failed(parent, e))? {
            let shown = parent.display();
            return Err(format!("{shown} leads out of the receiver's directory, through a symbolic link"));
        }
        fs::create_dir_all(parent).map_err(|e| failed(parent, e))?;
        if !self.overwrite && fs::symlink_metadata(&then).is_ok() {
            return Err(format!(
                "{} is there already; give the receiver --overwrite, or another --out",
                then.display()
            ));
        }
        // Not longer than any name may be, however long the file's is.
        let now = parent.join(format!("bypath.{}.part", std::process::id()));
        let file = File::create_new(&now).map_err(|e| failed(&now, e))?;
        self.open = Some(Open { out: BufWriter::with_capacity(1 << 18, file), now, then });
        Ok(())
    }

    fn octets(&mut self, octets: &[u8]) -> Result<(), String> {
        match &mut self.open {
            Some(open) => open
                .out
                .write_all(octets)
                .map_err(|e| format!("the receiver cannot write {}: {e}", open.then.display())),
            None => {
                self.waiting.extend_from_slice(octets);
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.files += 1;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let done = open.out.flush().and_then(|()| fs::rename(&open.now, &open.then));
        done.map_err(|e| {
            let _ = fs::remove_file(&open.now);
            format!("the receiver cannot write {}: {e}", open.then.display())
        })
    }
}

impl Drop for Place {
    /// What is not whole does not stay.
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            drop(open.out);
            let _ = fs::remove_file(open.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_out_of_the_directory_are_not_followed_and_long_names_are_kept() {
        let root = std::env::temp_dir().join(format!("bypath-place-{}", std::process::id()));
        let (out, outside) = (root.join("out"), root.join("outside"));
        fs::create_dir_all(out.join("real")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, out.join("away")).unwrap();
        std::os::unix::fs::symlink("real", out.join("within")).unwrap();
        let mut place = Place::new(Some(out.clone()), false);
        for name in ["away/x", "away/deeper/x"] {
            assert!(place.begin(name).unwrap_err().contains("leads out"), "{name}");
        }
        let long = "n".repeat(255);
        for name in ["within/x", "new/deeper/x", &long] {
            place.begin(name).and_then(|()| place.octets(b"x")).and_then(|()| place.end()).unwrap();
        }
        assert!(out.join("real/x").exists() && out.join("new/deeper/x").exists() && out.join(&long).exists());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn names_of_strangers_stay_in_the_directory() {
        for good in ["a", "a/b", "a/.b/c d", "stdin", "..a"] {
            assert_eq!(below(good), Some(PathBuf::from(good)));
        }
        for bad in ["", "/a", "../a", "a/../../b", "a/", "..", "./a", "a\0b", "a/.."] {
            assert_eq!(below(bad), None, "{bad:?}");
        }
    }
}
