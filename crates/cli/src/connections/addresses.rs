//! Addresses of connections that have none in their record yet, as they have not tried to come up: what the socket itself says, where a copy of it is to be
//! had from root or the own user, and else what `/proc/net/tcp` tells of the socket behind the descriptor.

use super::descriptors::Process;
use super::{Family, Member, is_trusted};
use crate::aside;
use crate::effort::Effort;
use crate::foreign;
use bypath_shm::view::End;
use rustix::net::{getpeername, getsockname};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How long the tables of a network namespace, one of each family, are read for root and the own user. Anybody may have others there.
const MOST: Duration = Duration::from_millis(200);

/// Local and remote.
type Names = [SocketAddr; 2];

/// By inode, and whether the tables were read to their ends.
#[derive(Debug)]
struct Table {
    names: HashMap<u64, Names>,
    is_whole: bool,
}

type Tables = HashMap<(PathBuf, u32), Table>;

/// What came of a look.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Names(Names),
    /// There are none.
    Nothing,
    /// There may be some: there was no time to read so far.
    Late,
}

/// Fills them in. Of how many connections there was no time for that?
pub fn fill(families: &mut [Family]) -> usize {
    let mut tables = Tables::new();
    let mut late = 0;
    // 50 ms for another user, 100 ms for all of them.
    let mut effort = Effort::<50, 100>::default();
    for family in families {
        let user = family.region.user;
        let mut ends = std::mem::take(&mut family.ends);
        for end in ends.iter_mut().filter(|end| is_unnamed(end)) {
            let Some(process) = family.holders(end).next().map(Member::process) else { continue };
            let most = effort.left(user).unwrap_or(MOST);
            let found = match most.is_zero() {
                true => Found::Late,
                false => effort.on(user, || look(&mut tables, process, user, end.fd, most)),
            };
            match found {
                Found::Names([local, remote]) => (end.local, end.remote) = (Some(local), Some(remote)),
                Found::Nothing => {}
                Found::Late => late += 1,
            }
        }
        family.ends = ends;
    }
    late
}

/// A socket without a partner has none.
fn is_unnamed(end: &End) -> bool {
    end.local.is_none() && end.service.is_none() && super::is_connection(end)
}

fn look(tables: &mut Tables, process: Process, user: u32, fd: i32, most: Duration) -> Found {
    let asked = aside::of(process, move |_| {
        let (inode, namespace) = process.socket_here(fd)?;
        Some((inode, namespace, ask(process, fd, inode)))
    });
    let Some((inode, namespace, names)) = asked.flatten() else { return Found::Nothing };
    if let Some(names) = names {
        return Found::Names(names);
    }
    let table = tables.entry((namespace, user)).or_insert_with(|| read(process.pid, most));
    match table.names.get(&inode) {
        Some(names) => Found::Names(*names),
        None if table.is_whole => Found::Nothing,
        None => Found::Late,
    }
}

/// What a copy of the socket says. However many others there are, it takes no longer. Of other users none is taken: to close a copy may wait for as long as its
/// owner likes (SO_LINGER), where he has closed his own meanwhile; so may one of what was root's a moment ago.
fn ask(process: Process, fd: i32, inode: u64) -> Option<Names> {
    if !is_trusted(process.user) {
        return None;
    }
    let pid = Pid::from_raw(process.pid.try_into().ok()?)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    if !Process::of(process.pid).is_some_and(|now| is_trusted(now.user)) {
        return None;
    }
    let copy = pidfd_getfd(&pidfd, fd, PidfdGetfdFlags::empty()).ok()?;
    // It may be another one by now.
    if rustix::fs::fstat(&copy).ok()?.st_ino != inode {
        return None;
    }
    // As the table has them: without the scope of an address.
    let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
    let local = SocketAddr::try_from(getsockname(&copy).ok()?).ok()?;
    let remote = SocketAddr::try_from(getpeername(&copy).ok()??).ok()?;
    Some([plain(local), plain(remote)])
}

fn read(pid: u32, most: Duration) -> Table {
    let mut all = Table { names: HashMap::new(), is_whole: true };
    for name in ["tcp", "tcp6"] {
        // Without IPv6 there is none of it.
        let Some((text, is_whole)) = foreign::table(pid, name, most / 2) else { continue };
        let lines = text.split(|octet| *octet == b'\n');
        all.names.extend(lines.filter_map(|line| row(str::from_utf8(line).ok()?)));
        all.is_whole &= is_whole;
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

    const LONG: Duration = Duration::from_secs(10);

    fn pair(address: &str) -> (TcpStream, TcpStream, Names) {
        let listener = TcpListener::bind(address).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let names = [stream.local_addr().unwrap(), stream.peer_addr().unwrap()];
        (stream, listener.accept().unwrap().0, names)
    }

    /// This process, as root's and as somebody else's.
    fn me() -> [Process; 2] {
        let stranger = bypath_sys::process::euid() + 1000;
        [0, stranger].map(|user| Process { pid: std::process::id(), user })
    }

    #[test]
    fn both_names_of_a_connection_are_found_by_its_descriptor() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (stream, _other, names) = pair(address);
            for process in me() {
                let find = |fd| look(&mut Tables::new(), process, process.user, fd, LONG);
                assert_eq!(find(stream.as_raw_fd()), Found::Names(names));
                assert_eq!(find(i32::MAX), Found::Nothing);
            }
        }
    }

    #[test]
    fn sockets_without_number_hide_no_connection_of_who_is_trusted() {
        // Who listens stands before all connections.
        let _crowd: Vec<_> = (0..400).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let (stream, _other, names) = pair("127.0.0.1:0");
        let found = me().map(|process| {
            look(&mut Tables::new(), process, process.user, stream.as_raw_fd(), Duration::ZERO)
        });
        assert_eq!(found, [Found::Names(names), Found::Late]);
    }

    #[test]
    fn a_socket_that_is_no_connections_has_no_names() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for process in me() {
            assert_eq!(
                look(&mut Tables::new(), process, process.user, socket.as_raw_fd(), LONG),
                Found::Nothing
            );
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
