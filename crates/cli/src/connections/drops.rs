//! What the kernel has dropped at UDP sockets, as `/proc/net/udp` tells: of each socket, by its inode.

use crate::foreign;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// Network namespaces whose tables are read: anybody may make some.
const MOST: usize = 64;

/// Tables that were read, one of each network namespace.
#[derive(Debug, Default)]
pub struct Drops(HashMap<PathBuf, HashMap<u64, u64>>);

impl Drops {
    /// Datagrams that the kernel has dropped at the socket behind a descriptor, most of them as its queue was full; `None`: that cannot be told.
    pub fn at(&mut self, pid: u32, fd: i32) -> Option<u64> {
        let target = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        if self.0.len() >= MOST && !self.0.contains_key(&namespace) {
            return None;
        }
        let table = self.0.entry(namespace).or_insert_with(|| table(pid));
        table.get(&inode).copied()
    }
}

fn table(pid: u32) -> HashMap<u64, u64> {
    let texts = ["udp", "udp6"].map(|name| foreign::table(pid, name).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.split(|octet| *octet == b'\n'));
    lines.filter_map(|line| row(str::from_utf8(line).ok()?)).collect()
}

/// Inode and drops; `None`: the headings.
fn row(line: &str) -> Option<(u64, u64)> {
    const INODE: usize = 9;
    let words: Vec<_> = line.split_whitespace().collect();
    Some((words.get(INODE)?.parse().ok()?, words.last()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_full_queue_has_dropped_is_known() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = UdpSocket::bind(address).unwrap();
            let at = || Drops::default().at(std::process::id(), receiver.as_raw_fd());
            assert_eq!(at(), Some(0), "{address}");
            let sender = UdpSocket::bind(address).unwrap();
            let sent = 2000;
            for _ in 0..sent {
                sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            }
            receiver.set_nonblocking(true).unwrap();
            let mut got = 0;
            while receiver.recv(&mut [0; 1000]).is_ok() {
                got += 1;
            }
            assert_eq!(at(), Some(sent - got), "{address}");
            assert!(got < sent, "the queue was never full");
        }
        assert_eq!(Drops::default().at(std::process::id(), i32::MAX), None);
    }
}
