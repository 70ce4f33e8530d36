//! What is read of a process that may be anybody's: no more than there is of it in an honest one, and nothing is opened whose name it chose.

use crate::program::{self, Elf, Identity, Obstacle};
use bypath_sys::process::shown_thread;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Octets of an environment: the kernel takes no more with a program than three quarters of 8 MiB (execve(2), "Limits on size of arguments").
/// A process can say later that it is elsewhere, and longer (PR_SET_MM_MAP).
const ENVIRONMENT: u64 = 6 << 20;
/// Octets of the list of mappings: 65,530 of them (vm.max_map_count) with names of a usual length.
const MAPPINGS: u64 = 16 << 20;

/// Octets of a table of sockets: 400,000 of them.
const TABLE: usize = 64 << 20;

/// The first octets of a process's environment; empty if it cannot be read.
pub fn environment(pid: u32) -> Vec<u8> {
    first(&format!("/proc/{}/environ", shown_thread(pid)), ENVIRONMENT).unwrap_or_default()
}

/// The first octets of the list of a process's mappings.
///
/// # Errors
/// It may not be looked into, or has ended.
pub fn mappings(pid: u32) -> io::Result<Vec<u8>> {
    first(&format!("/proc/{}/maps", shown_thread(pid)), MAPPINGS)
}

/// The first lines of a table of sockets (`tcp`, `udp6`) of a process's network namespace, and whether these are all: what is not there
/// in this time is not waited for. The kernel counts through `udp` from its beginning for each piece.
pub fn table(pid: u32, name: &str, most: Duration) -> Option<(Vec<u8>, bool)> {
    let until = Instant::now() + most;
    let mut file = File::open(format!("/proc/{}/net/{name}", shown_thread(pid))).ok()?;
    let (mut text, mut piece) = (Vec::new(), [0; 1 << 14]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Some((text, true)),
            Ok(n) => text.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if text.len() >= TABLE || Instant::now() >= until {
            let lines = text.iter().rposition(|octet| *octet == b'\n').map_or(0, |end| end + 1);
            text.truncate(lines);
            return Some((text, false));
        }
    }
}

fn first(path: &str, most: u64) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut all)?;
    Ok(all)
}

/// What keeps a library built as `library` out of the program that process `pid` runs, as far as its file says. What runs is no script, so
/// no other file is looked at.
///
/// # Errors
/// It may not be looked into, or has ended.
pub fn obstacle(pid: u32, library: &Elf) -> io::Result<Option<Obstacle>> {
    use rustix::fs::{FileType, Mode, OFlags};
    let link = format!("/proc/{}/exe", shown_thread(pid));
    let name = fs::read_link(&link)?;
    // A process may have put any file there (PR_SET_MM_MAP): one of which nobody knows what it is is not opened.
    let looked: OwnedFd = rustix::fs::open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&looked)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let at = PathBuf::from(format!("/proc/self/fd/{}", looked.as_raw_fd()));
    let identity = Identity::of(&pid.to_string())?;
    Ok(program::obstacle_of_running(&at, Path::new(&name), library, identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_no_foreign_one() {
        let me = std::process::id();
        assert!(!environment(me).is_empty() && !mappings(me).expect("mappings").is_empty());
        let own = program::elf_of(Path::new("/proc/self/exe")).expect("a file").expect("a program");
        assert_eq!(obstacle(me, &own).expect("a process"), None);
        assert!(obstacle(u32::MAX, &own).is_err());
    }

    #[test]
    fn a_table_is_not_read_after_its_time() {
        let held: Vec<_> =
            (0..300).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
        let me = std::process::id();
        let (all, is_whole) = table(me, "udp", Duration::from_secs(60)).expect("a table");
        assert!(is_whole && all.split(|octet| *octet == b'\n').count() > held.len());
        let (some, is_whole) = table(me, "udp", Duration::ZERO).expect("a table");
        assert!(!is_whole && some.len() < all.len() && some.ends_with(b"\n"));
    }

    #[test]
    fn no_more_is_read_than_wanted() {
        assert_eq!(first("/dev/zero", 5).expect("zeroes"), [0; 5]);
    }
}
