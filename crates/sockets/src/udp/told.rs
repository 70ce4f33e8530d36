//! What a receiving socket wants to be told beside a datagram: to which address it went, where that came in, and when.
//!
//! Who is given the mailbox is told what stands in a record's head for it. A program that changes its mind gets another mailbox: of what waits in the
//! old one is told what the kernel would tell of what came before the change.

use super::address::Name;
use super::{Record, receive};
use bypath_sys::sock;
use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// What is wanted, and what a record's head has.
pub mod want {
    /// IP_PKTINFO.
    pub const INFO: u32 = 1;
    /// IPV6_RECVPKTINFO.
    pub const INFO_V6: u32 = 2;
    /// A time stamp, in microseconds.
    pub const STAMP: u32 = 4;
    /// In nanoseconds.
    pub const STAMP_NS: u32 = 8;
    /// By the option's new name.
    pub const STAMP_NEW: u32 = 16;
    /// The socket has no address of its own: which one it was is the sender's to say.
    pub const ADDRESS: u32 = 32;
    /// In a record's head alone, also in a short one: it comes behind what the kernel has.
    pub const BEHIND: u32 = 1 << 31;
}

/// The names of SO_TIMESTAMP and SO_TIMESTAMPNS since there are times of 64 bits (asm-generic/socket.h).
pub const TIMESTAMP_NEW: i32 = 63;
/// The same of the other one.
pub const TIMESTAMPNS_NEW: i32 = 64;
/// The interface of 127.0.0.1 and ::1 in every network namespace (LOOPBACK_IFINDEX).
pub(super) const LOOPBACK: u32 = 1;
/// Own addresses whose interface is known.
const PLACES: usize = 4;
/// An entry that is being written.
const BUSY: u32 = u32::MAX;

/// Which interfaces own addresses are at, as the kernel told the program.
#[derive(Debug, Default)]
pub struct Places([Place; PLACES]);

#[derive(Debug, Default)]
struct Place {
    /// 0: nobody's.
    interface: AtomicU32,
    ip: [AtomicU64; 2],
}

impl Places {
    pub(super) fn reset(&self) {
        for place in &self.0 {
            place.interface.store(0, Relaxed);
        }
    }

    fn of(&self, ip: [u64; 2]) -> Option<(&Place, u32)> {
        self.0.iter().find_map(|place| {
            let interface = place.interface.load(Acquire);
            let is_it = !matches!(interface, 0 | BUSY)
                && place.ip[0].load(Relaxed) == ip[0]
                && place.ip[1].load(Relaxed) == ip[1];
            is_it.then_some((place, interface))
        })
    }

    fn learn(&self, ip: [u64; 2], interface: u32) {
        if matches!(interface, 0 | BUSY) {
            return;
        }
        if let Some((place, known)) = self.of(ip) {
            if known != interface {
                place.interface.store(interface, Release);
            }
            return;
        }
        let is_taken = |place: &&Place| place.interface.compare_exchange(0, BUSY, Acquire, Relaxed).is_ok();
        if let Some(place) = self.0.iter().find(is_taken) {
            place.ip[0].store(ip[0], Relaxed);
            place.ip[1].store(ip[1], Relaxed);
            place.interface.store(interface, Release);
        }
    }
}

/// What the options of `fd` say.
fn wanted(fd: i32, family: i32) -> u32 {
    let is_on = |level: i32, name: i32| sock::option(fd, level, name).is_ok_and(|on| on & 255 != 0);
    let mut wants = 0;
    for (level, name, bits) in [
        (IPPROTO_IP, libc::IP_PKTINFO, want::INFO),
        (SOL_SOCKET, libc::SO_TIMESTAMP, want::STAMP),
        (SOL_SOCKET, libc::SO_TIMESTAMPNS, want::STAMP | want::STAMP_NS),
        (SOL_SOCKET, TIMESTAMP_NEW, want::STAMP | want::STAMP_NEW),
        (SOL_SOCKET, TIMESTAMPNS_NEW, want::STAMP | want::STAMP_NS | want::STAMP_NEW),
    ] {
        if is_on(level, name) {
            wants |= bits;
        }
    }
    if family == libc::AF_INET6 && is_on(IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) {
        wants |= want::INFO_V6;
    }
    wants
}

impl Record {
    /// What the program wants to be told (`want`).
    #[inline]
    pub fn wants(&self) -> u32 {
        self.wants.load(Relaxed)
    }

    /// An option changed that is about that. Whether anything else is wanted now.
    pub(super) fn look_at_wants(&self, fd: i32) -> bool {
        let wants = wanted(fd, self.family());
        self.wants.swap(wants, Relaxed) != wants
    }

    /// Whether packet information is wanted.
    pub fn wants_info(&self) -> bool {
        self.wants() & (want::INFO | want::INFO_V6) != 0
    }

    /// The kernel told that what `source` has sent to the address `to` came in at that interface.
    pub fn came_in(&self, source: Option<&[u8]>, to: [u8; 16], interface: u32) {
        let source = source.and_then(|raw| Name::parse(raw, self.family()));
        // What others send comes in elsewhere.
        if self.stays().is_none() && source.is_some_and(|source| self.is_near(&source)) {
            self.inbound.places.learn(Name::new(to, 0).ip, interface);
        }
    }

    /// Where this host's own datagrams to `to` come in; 0: that is not known.
    pub fn interface(&self, to: &Name) -> u32 {
        match self.inbound.places.of(to.ip) {
            Some((_, interface)) => interface,
            None if to.address().is_loopback() => LOOPBACK,
            None => 0,
        }
    }

    /// What is to stand in the head of a record that goes to the socket, which has this address.
    pub(super) fn of_heads(&self, local: &Name) -> u32 {
        self.wants() | if local.is_unspecified() { want::ADDRESS } else { 0 }
    }
}

/// The second part of a record's head: what it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What of it is so, beside the address.
    pub wants: u32,
    /// The address it was sent to.
    pub to: [u64; 2],
    /// Nanoseconds since 1970.
    pub stamp: u64,
}

/// Where a head has what the program wants to be told, octet by octet.
const WANTS: std::ops::Range<usize> = 20..24;

/// Whether the record with this head comes behind what the kernel has.
#[inline]
pub(super) fn is_behind(head: &[u8; receive::HEAD_LONG]) -> bool {
    u32::from_ne_bytes(head[WANTS].try_into().unwrap_or_default()) & want::BEHIND != 0
}

/// That one of a head that is complete does.
#[inline]
pub(super) fn put_behind(head: &mut [u8]) {
    let wants = u32::from_ne_bytes(head[WANTS].try_into().unwrap_or_default());
    head[WANTS].copy_from_slice(&(wants | want::BEHIND).to_ne_bytes());
}

impl Told {
    /// Writes it behind the source.
    #[inline]
    pub(super) fn encode(&self, head: &mut [u8; receive::HEAD_LONG]) {
        head[WANTS].copy_from_slice(&self.wants.to_ne_bytes());
        for (to, word) in head[receive::HEAD..].chunks_exact_mut(8).zip([self.to[0], self.to[1], self.stamp])
        {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }

    /// Reads it.
    #[inline]
    pub(super) fn decode(head: &[u8; receive::HEAD_LONG]) -> Told {
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
        Told {
            wants: u32::from_ne_bytes(head[WANTS].try_into().unwrap_or_default()) & !want::BEHIND,
            to: [word(24), word(32)],
            stamp: word(40),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_head_tells_what_was_put_into_it() {
        let told = Told { wants: want::INFO | want::STAMP, to: [3, u64::MAX - 1], stamp: 1 << 60 };
        let mut head = [0xff; receive::HEAD_LONG];
        told.encode(&mut head);
        assert_eq!(Told::decode(&head), told);
        assert_eq!(head[..20], [0xff; 20]);
        assert!(!is_behind(&head));
        put_behind(&mut head);
        assert!(is_behind(&head));
        assert_eq!(Told::decode(&head), told);
    }

    #[test]
    fn the_last_option_of_a_stamp_says_which_kind() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = socket.as_raw_fd();
        let set = |name: i32, on: i32| -> u32 {
            sock::set_option(fd, SOL_SOCKET, name, &on.to_ne_bytes()).unwrap();
            wanted(fd, libc::AF_INET)
        };
        use want::*;
        assert_eq!(set(libc::SO_TIMESTAMP, 1), STAMP);
        assert_eq!(set(libc::SO_TIMESTAMPNS, 1), STAMP | STAMP_NS);
        assert_eq!(set(TIMESTAMP_NEW, 1), STAMP | STAMP_NEW);
        assert_eq!(set(TIMESTAMPNS_NEW, 1), STAMP | STAMP_NS | STAMP_NEW);
        assert_eq!(set(libc::SO_TIMESTAMP, 0), 0);
    }

    #[test]
    fn an_interface_is_that_which_the_kernel_told_last() {
        let places = Places::default();
        assert!(places.of([1, 2]).is_none());
        places.learn([1, 2], 0);
        assert!(places.of([1, 2]).is_none());
        places.learn([1, 2], 4);
        places.learn([1, 3], 5);
        places.learn([1, 2], 6);
        assert_eq!(places.of([1, 2]).unwrap().1, 6);
        assert_eq!(places.of([1, 3]).unwrap().1, 5);
        for more in 0..9 {
            places.learn([7, more], 8);
        }
        assert_eq!(places.of([1, 3]).unwrap().1, 5);
        places.reset();
        assert!(places.of([1, 2]).is_none());
    }
}
