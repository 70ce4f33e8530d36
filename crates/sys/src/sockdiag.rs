//! sock_diag: what the kernel knows about a TCP socket named by its addresses.

use crate::sock::Address;
use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd};

/// A TCP socket of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// SO_COOKIE of the socket.
    pub cookie: u64,
    /// User that created it, in our user namespace.
    pub uid: u32,
    /// Inode, 0 = no process holds it (not accepted yet, or orphaned).
    pub inode: u32,
    /// TCP state (1 = established).
    pub state: u8,
}

/// Opens a netlink socket for [`tcp`] above `floor`.
///
/// # Errors
/// EMFILE; EPROTONOSUPPORT without CONFIG_INET_DIAG; EPERM under a filter.
pub fn open(floor: i32) -> Result<i32> {
    const NETLINK_SOCK_DIAG: usize = 4;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: integers only.
    let low = check(unsafe {
        syscall(libc::SYS_socket, [libc::AF_NETLINK as usize, kind as usize, NETLINK_SOCK_DIAG, 0, 0, 0])
    })? as i32;
    fd::move_high(low, floor)
}

/// Looks up the TCP socket whose local address is `local` and whose remote address is `remote`.
/// `None` if this network namespace has none.
///
/// # Errors
/// Errors of the netlink socket.
pub fn tcp(netlink: i32, local: &Address, remote: &Address) -> Result<Option<Found>> {
    // struct nlmsghdr (16) + struct inet_diag_req_v2 (56).
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    let mut request = [0u8; 72];
    let put = |m: &mut [u8; 72], at: usize, bytes: &[u8]| m[at..at + bytes.len()].copy_from_slice(bytes);
    put(&mut request, 0, &72u32.to_ne_bytes());
    put(&mut request, 4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(&mut request, 6, &(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    put(&mut request, 8, &1u32.to_ne_bytes());
    request[16] = local.family as u8;
    request[17] = libc::IPPROTO_TCP as u8;
    put(&mut request, 20, &u32::MAX.to_ne_bytes()); // all states
    put(&mut request, 24, &local.port.to_be_bytes());
    put(&mut request, 26, &remote.port.to_be_bytes());
    put(&mut request, 28, &local.bytes);
    put(&mut request, 44, &remote.bytes);
    put(&mut request, 60, &local.scope.to_ne_bytes());
    put(&mut request, 64, &[0xff; 8]); // no cookie given

    // Answers of an earlier, interrupted query may still wait: throw them away.
    let mut answer = [0u8; 2048];
    while receive(netlink, &mut answer).is_ok() {}
    // SAFETY: the kernel reads the request.
    check(unsafe {
        syscall(libc::SYS_sendto, [netlink as usize, request.as_ptr() as usize, request.len(), 0, 0, 0])
    })?;
    let len = receive(netlink, &mut answer)?;
    if len < 16 {
        return Err(Errno::INVAL);
    }
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if kind == libc::NLMSG_ERROR as u16 {
        let code = -i32::from_ne_bytes(answer[16..20].try_into().unwrap_or([0; 4]));
        return if code == libc::ENOENT { Ok(None) } else { Err(Errno::from_raw_os_error(code)) };
    }
    // struct inet_diag_msg: family, state, timer, retrans, inet_diag_sockid (48), expires, rqueue, wqueue, uid, inode.
    if kind != SOCK_DIAG_BY_FAMILY || len < 16 + 72 {
        return Err(Errno::INVAL);
    }
    let half = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap_or([0; 4]));
    Ok(Some(Found {
        state: answer[17],
        cookie: u64::from(half(16 + 4 + 40)) | u64::from(half(16 + 4 + 44)) << 32,
        uid: half(16 + 64),
        inode: half(16 + 68),
    }))
}

/// The kernel answers a sock_diag query before sendto returns, so this does not wait.
fn receive(netlink: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes into the slice.
    check(unsafe {
        syscall(
            libc::SYS_recvfrom,
            [netlink as usize, buf.as_mut_ptr() as usize, buf.len(), libc::MSG_DONTWAIT as usize, 0, 0],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn finds_the_other_end_by_the_reversed_addresses() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(bind).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let local = crate::sock::local_address(client.as_raw_fd()).unwrap();
            let remote = crate::sock::remote_address(client.as_raw_fd()).unwrap();
            let netlink = open(3).unwrap();
            let found = tcp(netlink, &remote, &local).unwrap().expect("the accepted socket");
            let cookie =
                crate::sock::option_u64(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
            assert_eq!((found.cookie, found.state, found.uid), (cookie, 1, crate::process::euid()));
            assert_ne!(found.inode, 0);
            let nobody = Address { port: 1, ..remote };
            assert_eq!(tcp(netlink, &nobody, &local).unwrap(), None);
            fd::close(netlink);
        }
    }

    #[test]
    fn counters_tell_what_was_written_and_received() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 12345]).unwrap();
        let mut buf = [0; 12345];
        server.read_exact(&mut buf).unwrap();
        assert_eq!(crate::sock::tcp_counts(client.as_raw_fd()).unwrap().written, 12345);
        assert_eq!(crate::sock::tcp_counts(server.as_raw_fd()).unwrap().received, 12345);
    }
}
