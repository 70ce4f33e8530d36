//! Errors of the network one by one, for sockets that ask for them (IP_RECVERR, MSG_ERRQUEUE).

use super::Socket;
use crate::service::slab::Key;
use crate::service::socket::{Hub, outward};
use bypath_shm::datagram::{Failure, Header};
use bypath_shm::service::Address;
use bypath_stack::Stack;
use bypath_stack::linux::errno::{self, Result};
use bypath_stack::report::Report;
use bypath_stack::socket::SocketError;
use std::net::SocketAddr;

/// linux/errqueue.h: SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6.
const ORIGINS: [u8; 2] = [2, 3];

impl Hub {
    /// The oldest error of a socket that was not asked for. What its next call is told is the next one.
    ///
    /// # Errors
    /// EAGAIN: there is none.
    pub fn next_error(&mut self, stack: &mut Stack, key: Key) -> Result<Vec<u8>> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let mut udp = stack.udp(socket.id).ok_or(libc::EAGAIN)?;
        let report = udp.take_report().ok_or(libc::EAGAIN)?;
        let next = udp.take_error();
        socket.errno = next.map_or(0, errno::network);
        if let Some(of) = socket.datagrams() {
            of.owes = next.is_some();
        }
        let told = [&socket.failure(&report).encode()[..], &report.octets].concat();
        self.activate(key);
        Ok(told)
    }
}

impl Socket {
    fn failure(&mut self, report: &Report) -> Failure {
        let tells = self.datagrams().map_or(0, |of| of.tells);
        let shown = |address: SocketAddr| Address(Some(outward(self.v6, address)));
        let header = Header {
            tells,
            peer: shown(report.to),
            local: shown(SocketAddr::new(report.own, 0)),
            interface: report.iface.scope(),
            hops: report.hop_limit.into(),
            class: report.class.0.into(),
            stamp: bypath_sys::clock::realtime_ns(),
            ..Header::error()
        };
        Failure {
            header,
            errno: errno::network(report.error) as u32,
            info: if let SocketError::TooBig { mtu } = report.error { mtu } else { 0 },
            origin: ORIGINS[usize::from(report.from.is_ipv6())],
            kind: report.kind,
            code: report.code,
            from: shown(SocketAddr::new(report.from, 0)),
        }
    }
}
