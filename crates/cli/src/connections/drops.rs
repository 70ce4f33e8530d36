//! What the kernel has dropped at UDP sockets, as `/proc/net/udp` tells: of each socket, by its inode.

use super::descriptors::Process;
use crate::effort::Effort;
use crate::foreign;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long the tables of a network namespace, one of each family, are read for root and the own user: some 15,000 sockets of each family. Anybody
/// may have others there.
const MOST: Duration = Duration::from_millis(500);

/// Tables that were read, one of each network namespace.
#[derive(Debug, Default)]
pub struct Drops {
    tables: HashMap<PathBuf, Table>,
    /// 100 ms for the sockets of another user, some 7000 of each family in one namespace, 300 ms for all of them.
    effort: Effort<100, 300>,
}

#[derive(Debug)]
struct Table {
    /// By inode.
    drops: HashMap<u64, u64>,
    is_whole: bool,
    /// For whom it was read: another one may have more time.
    user: u32,
}

impl Drops {
    /// Datagrams that the kernel has dropped at the socket behind a descriptor of a process of this user, most of them as its queue was full;
    /// `None`: that cannot be told, or not in time.
    pub fn at(&mut self, process: Process, fd: i32) -> Option<u64> {
        let Drops { tables, effort } = self;
        let Process { pid, user } = process;
        let most = effort.left(user).unwrap_or(MOST);
        if most.is_zero() {
            return None;
        }
        effort.on(user, || {
            let (inode, namespace) = process.socket(fd)?;
            let known = tables.get(&namespace).filter(|table| table.is_whole || table.user == user);
            if known.is_none() {
                tables.insert(namespace.clone(), Table::read(pid, user, most));
            }
            tables[&namespace].drops.get(&inode).copied()
        })
    }
}

impl Table {
    fn read(pid: u32, user: u32, most: Duration) -> Table {
        let mut table = Table { drops: HashMap::new(), is_whole: true, user };
        for name in ["udp", "udp6"] {
            let (text, is_whole) = foreign::table(pid, name, most / 2).unwrap_or((Vec::new(), true));
            table.is_whole &= is_whole;
            let lines = text.split(|octet| *octet == b'\n');
            table.drops.extend(lines.filter_map(|line| row(str::from_utf8(line).ok()?)));
        }
        table
    }
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

    /// This one, as if it were that user's.
    fn process(user: u32) -> Process {
        Process { pid: std::process::id(), user }
    }

    #[test]
    fn sockets_of_another_user_are_looked_for_no_longer_than_he_is_given() {
        let stranger = bypath_sys::process::euid() + 1000;
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = |drops: &mut Drops, user| drops.at(process(user), socket.as_raw_fd());
        let mut drops = Drops::default();
        assert_eq!(at(&mut drops, stranger), Some(0));
        drops.effort.on(stranger, || std::thread::sleep(Duration::from_millis(100)));
        assert_eq!(at(&mut drops, stranger), None);
        assert_eq!(at(&mut drops, stranger + 1), Some(0));
    }

    /// What one user had no time for is read for the next one.
    #[test]
    fn a_table_that_was_read_in_part_is_read_again_for_another_user() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let me = bypath_sys::process::euid();
        let mut drops = Drops::default();
        let namespace = std::fs::read_link("/proc/self/ns/net").unwrap();
        let part = Table { drops: HashMap::new(), is_whole: false, user: me + 1000 };
        drops.tables.insert(namespace, part);
        assert_eq!(drops.at(process(me + 1000), socket.as_raw_fd()), None);
        assert_eq!(drops.at(process(me), socket.as_raw_fd()), Some(0));
    }

    #[test]
    fn what_a_full_queue_has_dropped_is_known() {
        let me = bypath_sys::process::euid();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = UdpSocket::bind(address).unwrap();
            let at = || Drops::default().at(process(me), receiver.as_raw_fd());
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
        assert_eq!(Drops::default().at(process(me), i32::MAX), None);
    }
}
