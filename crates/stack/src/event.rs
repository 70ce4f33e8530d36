//! News: what a stack has to tell, polled.

use crate::Stack;
use crate::iface::IfaceId;
use crate::socket::SocketId;
use core::net::IpAddr;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A socket became what it was not when it was last told of.
    Socket {
        /// Which.
        id: SocketId,
        /// What it became.
        ready: Ready,
    },
    /// Nobody else has an address that was asked for: it may be used.
    AddressReady {
        /// Where.
        iface: IfaceId,
        /// Which.
        address: IpAddr,
    },
    /// Somebody else has one of our addresses. One that was tentative is not used (RFC 4862, 5.4.5); one of IPv4 is defended, or
    /// given up if it is [leased](Stack::claim_leased_address): its [state](crate::iface::Address::state) says which (RFC 5227, 2.4).
    /// Of an address that is in use it is told once in ten seconds at most.
    AddressConflict {
        /// Where.
        iface: IfaceId,
        /// Which.
        address: IpAddr,
    },
    /// A router of a way does not answer when its hardware address is asked for: nothing that goes by it arrives.
    RouterSilent {
        /// Where.
        iface: IfaceId,
        /// Which.
        address: IpAddr,
    },
    /// It was heard of again.
    RouterBack {
        /// Where.
        iface: IfaceId,
        /// Which.
        address: IpAddr,
    },
}

/// What a socket became. A socket that was told of is told of again when the next datagram or the next octets come, or room that it
/// asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A datagram came; octets, their end, or a connection to be accepted.
    pub readable: bool,
    /// There is room again after a send that found none; a connection has become open.
    pub writable: bool,
    /// There is an error to be fetched.
    pub error: bool,
    /// An urgent octet of TCP was announced (SIGURG), or has come (POLLPRI): [`Tcp::has_urgent`](crate::Tcp::has_urgent).
    pub urgent: bool,
}

/// Events beside those of sockets that wait to be fetched at most.
const MOST: usize = 1024;

impl Stack {
    /// The next news. A socket is told of once, however much happened to it.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.poll_news().or_else(|| self.poll_ready())
    }

    /// The next news that is no socket's.
    pub fn poll_news(&mut self) -> Option<Event> {
        self.news.pop_front()
    }

    /// The next socket that has something to tell.
    pub fn poll_ready(&mut self) -> Option<Event> {
        while let Some(id) = self.ready.pop_front() {
            let ready = match self.sockets.get_mut(id) {
                Some(socket) => Some(&mut socket.ready),
                None => self.tcp.ready_mut(id),
            };
            if let Some(ready) = ready {
                let ready = core::mem::take(ready);
                return Some(Event::Socket { id, ready });
            }
        }
        None
    }

    pub(crate) fn tell(&mut self, event: Event) {
        if self.news.len() < MOST {
            self.news.push_back(event);
        } else {
            self.counters.events_lost += 1;
        }
    }
}
