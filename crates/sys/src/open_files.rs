//! What descriptors refer to, as `/proc/PID/fd` tells: those of this process, and those of others.

use crate::process::proc_path;
use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd};
use std::ffi::CStr;

/// Of a `struct linux_dirent64`: where its length and its name stand.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Whether some descriptor of this process, other than those that `skip` names, refers to what `/proc` calls `link`
/// (`anon_inode:[io_uring]`). No allocation; one descriptor is open meanwhile.
///
/// # Errors
/// As open(2) and getdents64(2): EACCES and EPERM where the process may not look at itself (it has changed its user),
/// ENOENT without `/proc`, EMFILE.
pub fn any(link: &[u8], mut skip: impl FnMut(i32) -> bool) -> Result<bool> {
    find_entry(c"/proc/self/fd", |dir, number, name| !skip(number) && reads(dir, name, link))
}

/// Opens anew, for reading and writing, what descriptors of process `pid` refer to and `/proc` calls `link`, one after
/// the other, until `found` says true of one; whether it did. It is closed when `found` returns.
///
/// # Errors
/// As [`any`], for a process that may not be looked at.
pub fn of_process(pid: u32, link: &[u8], mut found: impl FnMut(i32) -> bool) -> Result<bool> {
    let mut path = [0u8; 32];
    let path = proc_path(&mut path, pid, b"/fd\0").ok_or(Errno::INVAL)?;
    find_entry(path, |dir, _, name| {
        if !reads(dir, name, link) {
            return false;
        }
        // Anybody can give a file this name: never block on what it is.
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let Ok(opened) = open_at(dir, name, flags) else { return false };
        let answer = found(opened);
        fd::close(opened);
        answer
    })
}

/// Every process that `/proc` shows, until `found` says true of one; whether it did.
///
/// # Errors
/// As [`any`].
pub fn processes(mut found: impl FnMut(u32) -> bool) -> Result<bool> {
    find_entry(c"/proc", |_, pid, _| found(pid.cast_unsigned()))
}

/// Whether descriptor `number` of this process refers to what `/proc` calls `link`.
pub fn is(number: i32, link: &[u8]) -> bool {
    let mut path = [0u8; 32];
    let path = proc_path(&mut path, number.cast_unsigned(), b"\0");
    let digits =
        path.and_then(|p| CStr::from_bytes_with_nul(p.to_bytes_with_nul().get(b"/proc/".len()..)?).ok());
    let Ok(dir) = open_directory(c"/proc/self/fd") else { return false };
    let answer = digits.is_some_and(|name| reads(dir, name, link));
    fd::close(dir);
    answer
}

/// Calls `f` with the directory, and number and name of each entry that is named by a number, until it says true.
fn find_entry(path: &CStr, mut f: impl FnMut(i32, i32, &CStr) -> bool) -> Result<bool> {
    let dir = open_directory(path)?;
    // Not more of a stack that may be small: each entry takes a call of its own anyway.
    let mut entries = [0u8; 1024];
    let found = loop {
        // SAFETY: getdents64 writes at most as many bytes as the array has.
        let got = check(unsafe {
            syscall(
                libc::SYS_getdents64,
                [dir as usize, entries.as_mut_ptr() as usize, entries.len(), 0, 0, 0],
            )
        });
        match got {
            Ok(0) => break Ok(false),
            Ok(n) => {
                if numbers(&entries[..n]).any(|(number, name)| f(dir, number, name)) {
                    break Ok(true);
                }
            }
            Err(e) => break Err(e),
        }
    };
    fd::close(dir);
    found
}

/// The entries whose names are numbers.
fn numbers(entries: &[u8]) -> impl Iterator<Item = (i32, &CStr)> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        loop {
            let length = u16::from_ne_bytes([*rest.get(LENGTH_AT)?, *rest.get(LENGTH_AT + 1)?]) as usize;
            let entry = rest.get(..length).filter(|e| e.len() > NAME_AT)?;
            rest = &rest[length..];
            let name = CStr::from_bytes_until_nul(&entry[NAME_AT..]).ok()?;
            if let Some(number) = name.to_str().ok().and_then(|n| n.parse().ok()) {
                return Some((number, name));
            }
        }
    })
}

/// Whether the link `name` in `dir` reads `wanted`.
fn reads(dir: i32, name: &CStr, wanted: &[u8]) -> bool {
    let mut text = [0u8; 64];
    // SAFETY: readlinkat reads a NUL-terminated name and writes at most as many bytes as the array has.
    let got = check(unsafe {
        syscall(
            libc::SYS_readlinkat,
            [dir as usize, name.as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0],
        )
    });
    got.is_ok_and(|n| &text[..n] == wanted)
}

fn open_directory(path: &CStr) -> Result<i32> {
    open_at(libc::AT_FDCWD, path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)
}

fn open_at(dir: i32, path: &CStr, flags: i32) -> Result<i32> {
    // SAFETY: the path is NUL terminated.
    check(unsafe {
        syscall(libc::SYS_openat, [dir as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
    })
    .map(|n| n as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_open_and_nothing_else() {
        const EVENT: &[u8] = b"anon_inode:[eventfd]";
        // Other tests of this process have eventfds of their own: only these numbers are looked at.
        let (low, high) = (700, 720);
        let outside = |n: i32| !(low..high).contains(&n);
        assert_eq!(any(EVENT, outside), Ok(false));
        let bell = crate::eventfd::create(low).unwrap();
        assert!((low..high).contains(&bell), "{bell}");
        assert_eq!(any(EVENT, outside), Ok(true));
        assert_eq!(any(EVENT, |n| outside(n) || n == bell), Ok(false));
        assert_eq!(any(b"anon_inode:[event", outside), Ok(false));
        fd::close(bell);
        assert_eq!(any(EVENT, outside), Ok(false));
    }

    #[test]
    fn a_process_is_found_with_its_files() {
        let me = crate::process::pid();
        assert_eq!(processes(|pid| pid == me), Ok(true));
        assert_eq!(processes(|_| false), Ok(false));
        let memory = crate::mem::memfd(c"bypath-open-files", 4096, 3).unwrap();
        let link = b"/memfd:bypath-open-files (deleted)";
        let known = fd::identity(memory);
        assert!(is(memory, link) && !is(memory, b"/memfd:bypath-open"));
        let mut seen = 0;
        let same = of_process(me, link, |opened| {
            seen += 1;
            assert_ne!(opened, memory);
            fd::identity(opened) == known
        });
        assert_eq!((same, seen), (Ok(true), 1));
        fd::close(memory);
        assert_eq!(of_process(me, link, |_| true), Ok(false));
        assert!(!is(memory, link) && of_process(u32::MAX, link, |_| true).is_err());
    }

    #[test]
    fn many_descriptors_come_in_several_portions() {
        let all: Vec<_> = (0..300).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let mut seen = 0;
        any(b"/dev/nothing", |_| {
            seen += 1;
            false
        })
        .unwrap();
        assert!(seen >= all.len(), "{seen}");
    }
}
