//! What memory the process's cgroups allow, of either version.

use crate::fd;
use std::ffi::CStr;

/// Bytes of the longest path that is looked at.
const LONGEST: usize = 1024;

/// The least that the process's memory cgroup or one above it allows; `None`: none is to be seen, or all of them allow
/// everything.
pub fn memory_limit() -> Option<u64> {
    let mut text = [0; 4096];
    let len = fd::read_file(c"/proc/self/cgroup", &mut text).ok()?;
    let lines = text[..len].split(|octet| *octet == b'\n');
    lines.filter_map(|line| limit_of(line, |path, text| fd::read_file(path, text).ok())).min()
}

/// Of a line `ID:CONTROLLERS:PATH`, by who reads files.
fn limit_of(line: &[u8], read: impl Fn(&CStr, &mut [u8]) -> Option<usize>) -> Option<u64> {
    let mut words = line.splitn(3, |octet| *octet == b':');
    let (_, controllers, path) = (words.next()?, words.next()?, words.next()?);
    let (top, file): (&[u8], &[u8]) = if controllers.is_empty() {
        (b"/sys/fs/cgroup", b"memory.max")
    } else if controllers.split(|octet| *octet == b',').any(|one| one == b"memory") {
        (b"/sys/fs/cgroup/memory", b"memory.limit_in_bytes")
    } else {
        return None;
    };
    let mut least = None;
    let mut path = path;
    // In a container the path may be the host's: what is mounted there is the own one, and stands at the top.
    loop {
        let own = if path == b"/" { b"" } else { path };
        let mut name = [0; LONGEST];
        if let Some(name) = joined(&mut name, &[top, own, b"/", file]) {
            let mut text = [0; 32];
            let limit = read(name, &mut text).and_then(|len| number(&text[..len]));
            least = least.into_iter().chain(limit).min();
        }
        let Some(parent) = own.iter().rposition(|octet| *octet == b'/') else { return least };
        path = &own[..parent];
    }
}

fn joined<'a>(room: &'a mut [u8; LONGEST], pieces: &[&[u8]]) -> Option<&'a CStr> {
    let mut at = 0;
    for piece in pieces {
        room.get_mut(at..at + piece.len())?.copy_from_slice(piece);
        at += piece.len();
    }
    CStr::from_bytes_until_nul(room).ok()
}

/// `max` and anything else that is no number is no limit.
fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit by files that say these.
    fn limit(line: &str, files: &[(&str, &str)]) -> Option<u64> {
        limit_of(line.as_bytes(), |path, text| {
            let (_, says) = files.iter().find(|(name, _)| name.as_bytes() == path.to_bytes())?;
            text[..says.len()].copy_from_slice(says.as_bytes());
            Some(says.len())
        })
    }

    #[test]
    fn the_least_of_a_group_and_those_above_it_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/memory.max", "5000\n"),
        ];
        assert_eq!(limit("0::/a/b", &files), Some(1000));
        assert_eq!(limit("0::/", &files), Some(5000));
        assert_eq!(limit("0::/not/shown/here", &files), Some(5000));
        assert_eq!(limit("0::/a/b", &files[..1]), None);
        assert_eq!(limit("0::/a/b", &[]), None);
    }

    #[test]
    fn the_first_version_is_known_by_its_controller() {
        let files = [("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4096\n")];
        assert_eq!(limit("4:cpu,memory:/x/y", &files), Some(4096));
        assert_eq!(limit("4:cpu:/x", &files), None);
        for odd in ["", "4", "4:memory", "::", "0::"] {
            assert_eq!(limit(odd, &files), None, "{odd:?}");
        }
        assert_eq!(limit(&format!("0::/{}", "x".repeat(2 * LONGEST)), &files), None);
    }
}
