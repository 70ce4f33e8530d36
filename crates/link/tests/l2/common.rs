//! Namespaces, sockets and frames for the tests.

use bypath_link::l2::{Builder, Error, MacAddr, Mode, Socket};
use bypath_link::packet::{Receive, Send};
use bypath_sys::{clock, netns};
use std::time::Duration;

#[path = "../common/namespace.rs"]
mod namespace;
pub use namespace::{in_namespace, skip};

/// An EtherType that nobody else on a test's network uses.
pub const TYPE: u16 = 0x88b5;
/// What no test should need.
pub const LONG: Duration = Duration::from_secs(20);

/// Every mode, and mixtures.
pub const MODES: [(&str, Mode); 7] = [
    ("plain", Mode::PLAIN),
    ("mmsg", Mode::MMSG),
    ("ring", Mode::RING),
    ("latency", Mode::LATENCY),
    ("ring and sendmmsg", Mode { receive: Receive::Ring, send: Send::Mmsg }),
    ("recv and send ring", Mode { receive: Receive::Plain, send: Send::Ring }),
    ("slots and send ring", Mode { receive: Receive::LatencyRing, send: Send::Ring }),
];

/// A test that runs in a user and network namespace of its own.
macro_rules! isolated {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$meta])*
        fn $name() {
            $crate::common::in_namespace(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}

/// Two interfaces, `left` and `right`, that are connected and up.
pub fn veth() {
    netns::veth("left", "right", None).expect("a veth pair");
    for name in ["left", "right"] {
        netns::set_up(name, true).expect("an interface that is up");
    }
    settled();
}

/// Waits until both interfaces carry frames: a while after they are up the kernel still throws away what they send.
pub fn settled() {
    until("interfaces that run", || {
        let all = bypath_link::interface::list().expect("the interfaces");
        all.iter().filter(|i| !i.loopback).all(|i| i.flags & libc::IFF_RUNNING as u32 != 0)
    });
}

/// A veth pair for frames of `mtu` octets of payload.
pub fn veth_with_mtu(mtu: u32) {
    veth();
    for name in ["left", "right"] {
        netns::set_mtu(name, mtu).expect("an MTU");
    }
}

/// Waits for something that no event tells, for [`LONG`] at most.
pub fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = clock::monotonic_ns() + LONG.as_nanos() as u64;
    while !there() {
        assert!(clock::monotonic_ns() < end, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// The usual socket of a test.
pub fn builder(interface: &str, mode: Mode) -> Builder {
    Socket::builder(interface).ethertype(TYPE).mode(mode).timeout(LONG)
}

/// Opens both ends of the veth pair, and checks that the mode was obtained.
pub fn both(mode: Mode, with: impl Fn(Builder) -> Builder) -> (Socket, Socket) {
    let open = |name: &str| {
        let socket = with(builder(name, mode)).open().expect("a socket");
        assert_eq!(socket.obtained().mode, mode, "{:?}", socket.obtained().notes);
        socket
    };
    (open("left"), open("right"))
}

/// A payload that no other number or length has.
pub fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(number) << 20 ^ len as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(len + 8);
    bytes.extend_from_slice(&number.to_be_bytes());
    while bytes.len() < len {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Sends these payloads as the receiver takes them, and checks each that arrives: order, length, every octet, addresses.
pub fn exchange(from: &mut Socket, to: &mut Socket, what: &str, lengths: impl IntoIterator<Item = usize>) {
    let payloads: Vec<_> = lengths.into_iter().enumerate().map(|(n, len)| payload(n as u32, len)).collect();
    let (source, destination) = (from.mac(), to.mac());
    // As much at a time as queues of the default length hold.
    for part in payloads.chunks(16) {
        let sent = from.send_batch(destination, part.iter().map(Vec::as_slice));
        assert_eq!(sent, Ok(part.len()), "{what}");
        let mut next = part.iter();
        while next.len() > 0 {
            let got = to.receive_batch(next.len(), |frame| {
                let expected = next.next().expect("no more than was asked for");
                assert!(frame.payload == expected, "{what}: {} octets: wrong payload", expected.len());
                assert_eq!((frame.source, frame.destination, frame.ethertype), (source, destination, TYPE));
            });
            got.unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    }
}

/// Nothing (more) arrives: what was sent before on the same way is there already.
pub fn nothing_arrives(socket: &mut Socket) {
    socket.set_timeout(Some(Duration::from_millis(20)));
    let mut seen = Vec::new();
    let outcome = socket.receive_batch(100, |f| seen.push((f.ethertype, f.vlan, f.destination)));
    assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?} {seen:?}");
    socket.set_timeout(Some(LONG));
}

/// A group address that nobody joins on his own.
pub const GROUP: MacAddr = MacAddr([0x03, 0, 0, 0, 0x12, 0x34]);
