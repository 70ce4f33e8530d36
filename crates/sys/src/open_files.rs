//! What descriptors refer to, as `/proc/PID/fd` tells: those of this process, and those of others.

use crate::process::{self, proc_path};
use crate::syscall::{check, syscall};
use crate::turn::{self, Turn};
use crate::{Errno, Result, clock, fd, memfd};
use std::ffi::CStr;
#[cfg(feature = "link")]
use std::os::fd::{FromRawFd, OwnedFd};

/// Of a `struct linux_dirent64`: where its length and its name stand.
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Whether some descriptor of this process, other than those that `skip` names, refers to what `/proc` calls `link`
/// (`anon_inode:[io_uring]`). No allocation; one descriptor is open meanwhile, at or above `floor`.
///
/// # Errors
/// As open(2) and getdents64(2): EACCES and EPERM where the process may not look at itself (it has changed its user),
/// ENOENT without `/proc`, EMFILE.
pub fn any(link: &[u8], floor: i32, mut skip: impl FnMut(i32) -> bool) -> Result<bool> {
    let dir = turn::high(floor, || open_directory(c"/proc/self/fd"))?;
    let found = find_entry_in(dir, |dir, number, name| !skip(number) && reads(dir, name, link));
    fd::close(dir);
    found
}

/// Opens anew, for reading and writing, the memory (memfds) that descriptors of process `pid` refer to and `/proc` calls `link`,
/// one after the other, until `found` says true of one, or it is later than `until` (monotonic, in ns: a process has as many descriptors
/// as it likes); whether it did. It is closed when `found` returns. What is no memory is not opened, whatever it is called.
///
/// # Errors
/// As [`any`], for a process that may not be looked at.
pub fn of_process(pid: u32, link: &[u8], until: u64, mut found: impl FnMut(i32) -> bool) -> Result<bool> {
    find_in_time(pid, until, |dir, name| {
        if !reads(dir, name, link) {
            return false;
        }
        let Ok(opened) = open_memory(dir, name, libc::O_RDWR) else { return false };
        let answer = found(opened);
        fd::close(opened);
        answer
    })
}

/// Opens anew the memory that descriptor `number` of process `pid` refers to.
///
/// # Errors
/// EINVAL if it is something else, whatever it is called, which then is not opened; as open(2).
#[cfg(feature = "link")]
pub fn memory(pid: u32, number: i32, writable: bool) -> Result<OwnedFd> {
    let access = if writable { libc::O_RDWR } else { libc::O_RDONLY };
    let opened = at(pid, number, |dir, name| open_memory(dir, name, access))??;
    // SAFETY: the kernel made it for us just now.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Whether descriptor `number` of process `pid` refers to what `/proc` calls `link`. Of what has no name in any file system
/// (`socket:[7]`, `anon_inode:[eventfd]`) the kernel alone can say so: all other texts begin with a slash, or a bracket.
///
/// # Errors
/// As [`any`], for a process that may not be looked at; EBADF if it has no such descriptor.
pub fn refers(pid: u32, number: i32, link: &[u8]) -> Result<bool> {
    at(pid, number, |dir, name| link_of(dir, name, |text| text == link))?.map_err(|_| Errno::BADF)
}

/// Whether some descriptor of process `pid` does, of the first `most` that `/proc` shows, and of those that are looked at before it is later
/// than `until` (as of [`of_process`]).
///
/// # Errors
/// As [`any`], for a process that may not be looked at.
pub fn any_refers(pid: u32, link: &[u8], most: usize, until: u64) -> Result<bool> {
    let (mut seen, mut refers) = (0, false);
    find_in_time(pid, until, |dir, name| {
        refers = seen < most && reads(dir, name, link);
        seen += 1;
        refers || seen >= most
    })?;
    Ok(refers)
}

/// Every process that `/proc` shows, until `found` says true of one; whether it did.
///
/// # Errors
/// As [`any`].
pub fn processes(mut found: impl FnMut(u32) -> bool) -> Result<bool> {
    find_entry(c"/proc", |_, pid, _| found(pid.cast_unsigned()))
}

/// The first number that names an entry of this folder and of which `f` says true.
pub(crate) fn find_number(path: &CStr, f: impl Fn(u32) -> bool) -> Option<u32> {
    let mut number = None;
    let found = find_entry(path, |_, entry, _| {
        number = u32::try_from(entry).ok();
        number.is_some_and(&f)
    });
    number.filter(|_| found == Ok(true))
}

/// Whether descriptor `number` of this process refers to what `/proc` calls `link`.
pub fn is(number: i32, link: &[u8]) -> bool {
    let _turn = Turn::to_make();
    at_in(c"/proc/self/fd", number, |dir, name| reads(dir, name, link)).unwrap_or(false)
}

/// The same of a thread of this process that has a descriptor table of its own.
pub(crate) fn is_of_thread(tid: u32, number: i32, link: &[u8]) -> bool {
    let _turn = Turn::to_make();
    at(tid, number, |dir, name| reads(dir, name, link)).unwrap_or(false)
}

/// Calls `f` with the directory of a process's descriptors and the name of one of them.
fn at<R>(pid: u32, number: i32, f: impl FnOnce(i32, &CStr) -> R) -> Result<R> {
    let mut path = [0u8; 32];
    at_in(proc_path(&mut path, process::shown_thread(pid), b"/fd\0").ok_or(Errno::INVAL)?, number, f)
}

fn at_in<R>(path: &CStr, number: i32, f: impl FnOnce(i32, &CStr) -> R) -> Result<R> {
    let mut digits = [0u8; 32];
    let number = u32::try_from(number).map_err(|_| Errno::BADF)?;
    let name = proc_path(&mut digits, number, b"\0")
        .and_then(|p| CStr::from_bytes_with_nul(p.to_bytes_with_nul().get(b"/proc/".len()..)?).ok());
    let name = name.ok_or(Errno::INVAL)?;
    let dir = open_directory(path)?;
    let answer = f(dir, name);
    fd::close(dir);
    Ok(answer)
}

/// Opens the memory that the link `name` in `dir` leads to. Anybody can give such a name to anything, also to a device or a log of the
/// kernel's, which do something when they are opened: it is looked at by a descriptor that opens nothing, and what was looked at is opened.
fn open_memory(dir: i32, name: &CStr, access: i32) -> Result<i32> {
    let place = open_at(dir, name, libc::O_PATH | libc::O_CLOEXEC)?;
    let opened = if memfd::is_anonymous(place) {
        // A lease of somebody's is not waited for.
        let flags = access | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        open_own(place, flags)
    } else {
        Err(Errno::INVAL)
    };
    fd::close(place);
    opened
}

/// Opens anew what descriptor `number` of this process leads to.
pub(crate) fn open_own(number: i32, flags: i32) -> Result<i32> {
    at_in(c"/proc/self/fd", number, |own, name| open_at(own, name, flags)).and_then(|opened| opened)
}

/// Calls `f` with the directory and the name of each descriptor of a process, until it says true, or it is too late; whether it did.
fn find_in_time(pid: u32, until: u64, mut f: impl FnMut(i32, &CStr) -> bool) -> Result<bool> {
    let mut path = [0u8; 32];
    let path = proc_path(&mut path, process::shown_thread(pid), b"/fd\0").ok_or(Errno::INVAL)?;
    let mut found = false;
    find_entry(path, |dir, _, name| {
        let is_late = clock::monotonic_ns() > until;
        found = !is_late && f(dir, name);
        found || is_late
    })?;
    Ok(found)
}

/// Calls `f` with the directory, and number and name of each entry that is named by a number, until it says true.
fn find_entry(path: &CStr, f: impl FnMut(i32, i32, &CStr) -> bool) -> Result<bool> {
    let dir = open_directory(path)?;
    let found = find_entry_in(dir, f);
    fd::close(dir);
    found
}

fn find_entry_in(dir: i32, mut f: impl FnMut(i32, i32, &CStr) -> bool) -> Result<bool> {
    // Not more of a stack that may be small: each entry takes a call of its own anyway.
    let mut entries = [0u8; 1024];
    loop {
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
    }
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
    link_of(dir, name, |text| text == wanted).unwrap_or(false)
}

/// What `f` says of the text of the link `name` in `dir`, or of as much of it as is looked at.
fn link_of<R>(dir: i32, name: &CStr, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let mut text = [0u8; 64];
    // SAFETY: readlinkat reads a NUL-terminated name and writes at most as many bytes as the array has.
    let got = check(unsafe {
        syscall(
            libc::SYS_readlinkat,
            [dir as usize, name.as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0, 0],
        )
    });
    got.map(|n| f(&text[..n]))
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
        assert_eq!(any(EVENT, 3, outside), Ok(false));
        let bell = crate::eventfd::create(low).unwrap();
        assert!((low..high).contains(&bell), "{bell}");
        assert_eq!(any(EVENT, 3, outside), Ok(true));
        assert_eq!(any(EVENT, 3, |n| outside(n) || n == bell), Ok(false));
        assert_eq!(any(b"anon_inode:[event", 3, outside), Ok(false));
        fd::close(bell);
        assert_eq!(any(EVENT, 3, outside), Ok(false));
    }

    #[test]
    fn a_process_is_found_with_its_files() {
        let me = crate::process::pid();
        assert_eq!(processes(|pid| pid == me), Ok(true));
        assert_eq!(processes(|_| false), Ok(false));
        let memory = crate::memfd::create(c"bypath-open-files", 4096, 3).unwrap();
        let link = b"/memfd:bypath-open-files (deleted)";
        let known = fd::identity(memory);
        assert!(is(memory, link) && !is(memory, b"/memfd:bypath-open"));
        let mut seen = 0;
        let same = of_process(me, link, u64::MAX, |opened| {
            seen += 1;
            assert_ne!(opened, memory);
            fd::identity(opened) == known
        });
        assert_eq!((same, seen), (Ok(true), 1));
        fd::close(memory);
        assert_eq!(of_process(me, link, u64::MAX, |_| true), Ok(false));
        assert!(!is(memory, link) && of_process(u32::MAX, link, u64::MAX, |_| true).is_err());
    }

    #[test]
    fn a_process_is_not_looked_at_after_its_time() {
        let me = crate::process::pid();
        let memory = crate::memfd::create(c"bypath-in-time", 4096, 3).unwrap();
        let link = b"/memfd:bypath-in-time (deleted)";
        let now = clock::monotonic_ns();
        assert_eq!(of_process(me, link, now - 1, |_| panic!("it was opened")), Ok(false));
        assert_eq!(any_refers(me, link, usize::MAX, now - 1), Ok(false));
        // Of what is there twice one is seen at most, if that takes up the time.
        let second = fd::dup_high(memory, 3).unwrap();
        let (until, mut seen) = (now + 50_000_000, 0);
        let slow = |_| {
            seen += 1;
            while clock::monotonic_ns() <= until {
                std::hint::spin_loop();
            }
            false
        };
        assert_eq!(of_process(me, link, until, slow), Ok(false));
        assert!(seen <= 1, "{seen}");
        assert_eq!(of_process(me, link, u64::MAX, |_| true), Ok(true));
        assert_eq!(any_refers(me, link, usize::MAX, u64::MAX), Ok(true));
        [memory, second].into_iter().for_each(fd::close);
    }

    #[test]
    fn what_is_no_memory_is_not_opened_whatever_it_is_called() {
        let me = crate::process::pid();
        let folder = std::env::temp_dir().join(format!("bypath-open-files-{me}"));
        std::fs::create_dir(&folder).unwrap();
        // As it is called in a root of one's own: here the folder's name is in front.
        let path = folder.join("memfd:bypath-named (deleted)");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let link = path.to_str().unwrap().as_bytes();
        assert!(is(std::os::fd::AsRawFd::as_raw_fd(&file), link), "{path:?} is too long for this test");
        assert_eq!(of_process(me, link, u64::MAX, |_| true), Ok(false));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_number_of_a_process_refers_to_is_told() {
        let me = crate::process::pid();
        let bell = crate::eventfd::create(3).unwrap();
        assert_eq!(refers(me, bell, b"anon_inode:[eventfd]"), Ok(true));
        assert_eq!(refers(me, bell, b"anon_inode:[eventpoll]"), Ok(false));
        assert_eq!(any_refers(me, b"anon_inode:[eventfd]", usize::MAX, u64::MAX), Ok(true));
        assert_eq!(any_refers(me, b"anon_inode:[eventfd]", 0, u64::MAX), Ok(false));
        assert_eq!(any_refers(me, b"anon_inode:[nothing]", usize::MAX, u64::MAX), Ok(false));
        fd::close(bell);
        assert_eq!(refers(me, 999_999, b"anon_inode:[eventfd]"), Err(Errno::BADF));
        assert_eq!(refers(me, -1, b"anon_inode:[eventfd]"), Err(Errno::BADF));
        assert!(refers(u32::MAX, 0, b"x").is_err());
    }

    #[test]
    fn many_descriptors_come_in_several_portions() {
        let all: Vec<_> = (0..300).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let mut seen = 0;
        any(b"/dev/nothing", 3, |_| {
            seen += 1;
            false
        })
        .unwrap();
        assert!(seen >= all.len(), "{seen}");
    }
}
