//! What the descriptors of this process refer to, as `/proc/self/fd` tells.

use crate::syscall::{check, syscall};
use crate::{Result, fd};
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
    let dir = open_directory(c"/proc/self/fd")?;
    let mut entries = [0u8; 4096];
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
                let here =
                    numbers(&entries[..n]).any(|(number, name)| !skip(number) && reads(dir, name, link));
                if here {
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
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is NUL terminated.
    check(unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0])
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
