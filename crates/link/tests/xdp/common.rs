//! Namespaces, links and frames for the tests.

use bypath_link::xdp::{Config, Rule, XdpLink};
use bypath_link::{Interface, Link, MacAddr};
use bypath_sys::netlink::{Netlink, Request, attributes};
use bypath_sys::netns::{self, Namespace};
use bypath_sys::{bpf, clock, poll};
use bypath_wire::FrameMeta;
use std::io::Write;
use std::os::fd::AsRawFd;

/// An EtherType that nobody else on a test's network uses.
pub const TYPE: u16 = 0x88b5;
pub const RULE: Rule = Rule::EtherType { ethertype: TYPE, vlan: None };
/// What no test should need.
const LONG_NS: u64 = 20_000_000_000;

/// A test in a network namespace of its own, with a veth pair `left` and `right` in it.
macro_rules! apart {
    ($(#[$meta:meta])* fn $name:ident() $body:block) => {
        #[test]
        $(#[$meta])*
        fn $name() {
            $crate::common::in_namespace(concat!(module_path!(), "::", stringify!($name)), || $body);
        }
    };
}

/// Runs `body` on a thread in a new namespace; without the right to attach programs the test is skipped.
pub fn in_namespace(path: &str, body: impl FnOnce() + Send + 'static) {
    let name = path.split_once("::").map_or(path, |(_, name)| name).to_owned();
    if let Err(e) = bpf::SocketMap::new(1) {
        return skip(&name, &format!("no programs for received frames ({e}): needs root of the machine"));
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(e) => return skip(&name, &format!("no network namespaces: {e}")),
    };
    let inside = std::thread::Builder::new().name(name).spawn(move || {
        namespace.enter().expect("inside the namespace");
        body();
    });
    if let Err(panic) = inside.expect("a thread").join() {
        std::panic::resume_unwind(panic);
    }
}

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        // One write of one line: tests append at the same time.
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Two interfaces, `left` and `right`, that are connected and up.
pub fn veth(mtu: u32) {
    netns::veth("left", "right", None).expect("a veth pair");
    for name in ["left", "right"] {
        netns::set_mtu(name, mtu).expect("an MTU");
        netns::set_up(name, true).expect("an interface that is up");
    }
    settled();
}

/// Waits until all interfaces carry frames: a while after they are up the kernel still throws away what they send.
pub fn settled() {
    until("interfaces that run", || {
        let all = bypath_link::interface::list().expect("the interfaces");
        all.iter().filter(|i| !i.loopback).all(|i| i.flags & libc::IFF_RUNNING as u32 != 0)
    });
}

/// Waits for something that no event tells, for a bounded time.
pub fn until(what: &str, mut there: impl FnMut() -> bool) {
    let end = clock::monotonic_ns() + LONG_NS;
    while !there() {
        assert!(clock::monotonic_ns() < end, "waited too long for {what}");
        std::thread::yield_now();
    }
}

/// The usual link of a test.
pub fn open(interface: &str, with: impl FnOnce(&mut Config)) -> XdpLink {
    let mut config = Config::new(interface, &[RULE]);
    with(&mut config);
    let link = XdpLink::open(&config).unwrap_or_else(|e| panic!("{interface}: {e}"));
    settled();
    link
}

pub fn mac(interface: &str) -> MacAddr {
    Interface::named(interface).expect("the interface").mac
}

/// A frame whose payload no other number or length has.
pub fn frame(to: MacAddr, from: MacAddr, number: u32, payload: usize) -> Vec<u8> {
    let mut bytes = [&to.0[..], &from.0, &TYPE.to_be_bytes()].concat();
    let mut state = u64::from(number) << 20 ^ payload as u64 ^ 0x9e37_79b9_7f4a_7c15;
    while bytes.len() < 14 + payload {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(14 + payload);
    bytes
}

/// Sends these frames, waiting for room.
pub fn send(link: &mut dyn Link, frames: &[Vec<u8>]) {
    let mut at = 0;
    until("room to send", || {
        let mut next = |slot: &mut [u8]| {
            let frame = frames.get(at)?;
            at += 1;
            slot[..frame.len()].copy_from_slice(frame);
            Some((frame.len(), FrameMeta::default()))
        };
        link.send(frames.len(), &mut next).expect("sent");
        at == frames.len()
    });
    until("frames that are sent", || link.flush().expect("flushed") == 0);
}

/// Receives `count` frames, sleeping until there are some.
pub fn receive(link: &mut dyn Link, count: usize) -> Vec<(Vec<u8>, FrameMeta)> {
    let mut got = Vec::new();
    let end = clock::monotonic_ns() + LONG_NS;
    while got.len() < count {
        let most = count - got.len();
        let n = link.receive(most, &mut |f, m| got.push((f.to_vec(), *m))).expect("received");
        if n == 0 {
            wait(link, end.saturating_sub(clock::monotonic_ns()));
        }
    }
    got
}

/// Waits until the link is readable.
fn wait(link: &dyn Link, ns: u64) {
    let fd = link.descriptor().expect("a descriptor").as_raw_fd();
    let mut fds = [poll::PollFd { fd, events: libc::POLLIN, revents: 0 }];
    let ready = poll::ppoll(&mut fds, Some(ns), 0).expect("polled");
    assert!(ready > 0, "nothing arrived");
}

/// Sends frames of these payloads a few at a time, and checks every octet of what arrives, in order.
pub fn exchange(
    from: &mut dyn Link,
    to: &mut dyn Link,
    what: &str,
    payloads: impl IntoIterator<Item = usize>,
) {
    let (source, destination) = (from.capabilities().mac, to.capabilities().mac);
    let frames: Vec<_> =
        payloads.into_iter().enumerate().map(|(n, len)| frame(destination, source, n as u32, len)).collect();
    for part in frames.chunks(16) {
        send(from, part);
        for ((got, _), expected) in receive(to, part.len()).iter().zip(part) {
            assert!(got == expected, "{what}: {} octets, got {}", expected.len(), got.len());
        }
    }
}

/// Nothing (more) arrives: what was sent before on the same way is there already.
pub fn nothing_arrives(link: &mut dyn Link) {
    let mut seen = Vec::new();
    link.receive(100, &mut |f, _| seen.push(f.to_vec())).expect("received");
    assert!(seen.is_empty(), "{seen:02x?}");
}

/// Whether a program for received frames is attached (IFLA_XDP_ATTACHED).
pub fn program_attached(interface: &str) -> bool {
    const IFLA_XDP: u16 = 43;
    const IFLA_XDP_ATTACHED: u16 = 2;
    let xdp = attribute(interface, IFLA_XDP);
    let attached = attributes(&xdp).find(|a| a.0 == IFLA_XDP_ATTACHED).map(|a| a.1[0]);
    attached.expect("what is attached") != 0
}

/// How many ask this device for everything (IFLA_PROMISCUITY).
pub fn promiscuity(interface: &str) -> u32 {
    const IFLA_PROMISCUITY: u16 = 30;
    u32::from_ne_bytes(attribute(interface, IFLA_PROMISCUITY).try_into().expect("a word"))
}

/// What the kernel tells about an interface under this number.
fn attribute(interface: &str, kind: u16) -> Vec<u8> {
    let mut fixed = [0; 16];
    let index = Interface::named(interface).expect("the interface").index;
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut found = None;
    let mut each = |_, body: &[u8]| {
        found = attributes(&body[16..]).find(|a| a.0 == kind).map(|a| a.1.to_vec());
    };
    let request = Request::new(libc::RTM_GETLINK, 0, &fixed);
    Netlink::open().expect("netlink").ask(request, &mut each).expect("the interface");
    found.expect("the attribute")
}
