//! Addresses of connections that have none in their record yet, as they have not tried to come up: what `/proc/net/tcp` tells of the socket behind the descriptor.

use super::descriptors::Process;
use super::{Family, Member};
use crate::effort::Effort;
use crate::foreign;
use bypath_shm::view::End;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How long the tables of a network namespace, one of each family, are read for root and the own user. Anybody may have others there.
const MOST: Duration = Duration::from_millis(200);

/// Local and remote, by inode.
type Table = HashMap<u64, [SocketAddr; 2]>;

/// Fills them in.
pub fn fill(families: &mut [Family]) {
    let mut tables: HashMap<(PathBuf, u32), Table> = HashMap::new();
    // 50 ms for another user, 100 ms for all of them.
    let mut effort = Effort::<50, 100>::default();
    for family in families {
        let user = family.region.user;
        let mut ends = std::mem::take(&mut family.ends);
        for end in ends.iter_mut().filter(|end| is_unnamed(end)) {
            let most = effort.left(user).unwrap_or(MOST);
            let Some(process) = family.holders(end).next().map(Member::process).filter(|_| !most.is_zero())
            else {
                continue;
            };
            let found = effort.on(user, || look(&mut tables, process, user, end.fd, most));
            if let Some([local, remote]) = found {
                (end.local, end.remote) = (Some(local), Some(remote));
            }
        }
        family.ends = ends;
    }
}

/// A socket without a partner has none.
fn is_unnamed(end: &End) -> bool {
    end.local.is_none() && end.service.is_none() && super::is_connection(end)
}

fn look(
    tables: &mut HashMap<(PathBuf, u32), Table>,
    process: Process,
    user: u32,
    fd: i32,
    most: Duration,
) -> Option<[SocketAddr; 2]> {
    let (inode, namespace) = process.socket(fd)?;
    let table = tables.entry((namespace, user)).or_insert_with(|| read(process.pid, most));
    table.get(&inode).copied()
}

fn read(pid: u32, most: Duration) -> Table {
    let mut all = Table::new();
    for name in ["tcp", "tcp6"] {
        let (text, _) = foreign::table(pid, name, most / 2).unwrap_or_default();
        let lines = text.split(|octet| *octet == b'\n');
        all.extend(lines.filter_map(|line| row(str::from_utf8(line).ok()?)));
    }
    all
}

/// `None`: the headings, or a socket that is nobody's any more.
fn row(line: &str) -> Option<(u64, [SocketAddr; 2])> {
    const INODE: usize = 9;
    let words: Vec<_> = line.split_whitespace().collect();
    let inode = words.get(INODE)?.parse().ok().filter(|inode| *inode != 0)?;
    Some((inode, [address(words[1])?, address(words[2])?]))
}

/// Words of 32 bits as this machine has them in memory, and a port (proc(5), `/proc/net/tcp`).
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut octets = [0; 16];
            for (at, four) in octets.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn both_names_of_a_connection_are_found_by_its_descriptor() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (me, fd) = (Process { pid: std::process::id(), user: 0 }, stream.as_raw_fd());
            let found = look(&mut HashMap::new(), me, 0, fd, Duration::from_secs(10));
            assert_eq!(found, Some([stream.local_addr().unwrap(), stream.peer_addr().unwrap()]));
            assert_eq!(look(&mut HashMap::new(), me, 0, i32::MAX, Duration::from_secs(10)), None);
        }
    }

    #[test]
    fn what_is_no_row_is_none() {
        assert_eq!(
            row(
                "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
            ),
            None
        );
        for text in ["0100007F", "0100007F:", "0100007:1F90", "ZZ00007F:1F90", "\u{e9}100007F:1F90"] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
