//! Once warm, links move frames without allocating.

use bypath_link::Link;
use bypath_link::capture::Capture;
use bypath_link::fault::{FaultInjector, Faults};
use bypath_link::pair::pair;
use bypath_link::xdp::{Config, Rule, XdpLink};
use bypath_sys::netns::{self, Namespace};
use bypath_sys::{bpf, clock};
use bypath_wire::FrameMeta;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

/// The system's allocator, counting what this thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _counted = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread allocates while `f` runs.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    f();
    TAKEN.get() - before
}

fn send(link: &mut dyn Link, count: usize) {
    let mut left = count;
    let sent = link.send(count, &mut |slot| {
        left = left.checked_sub(1)?;
        slot[..100].fill(0xff);
        slot[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());
        Some((100, FrameMeta::default()))
    });
    sent.expect("sent");
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| {}), 0);
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
}

#[test]
fn faults_and_captures_take_no_memory_per_frame() {
    let faults =
        Faults { loss: 0.1, duplication: 0.2, corruption: 0.1, reordering: 0.1, delay: 3, ..Faults::NONE };
    let (a, mut b) = pair(1500, 256);
    let mut now = 0;
    let clock = move || {
        now += 1;
        now
    };
    let a = Capture::new(a, "a", std::io::sink(), usize::MAX, || 7).expect("a capture");
    let mut a = FaultInjector::new(a, faults, faults, 1, clock).expect("faults");
    let mut round = || {
        send(&mut a, 16);
        send(&mut b, 16);
        let mut got = 0;
        a.receive(64, &mut |_, _| got += 1).expect("received");
        b.receive(64, &mut |_, _| got += 1).expect("received");
        got
    };
    for _ in 0..200 {
        round();
    }
    let mut got = 0;
    let taken = allocations(|| {
        for _ in 0..500 {
            got += round();
        }
    });
    assert!(got > 10_000, "{got}");
    // A queue may once be longer than ever before, and grow.
    assert!(taken <= 8, "{taken} allocations for {got} frames");
}

#[test]
fn an_xdp_link_takes_no_memory_per_frame() {
    const NAME: &str = "an_xdp_link_takes_no_memory_per_frame";
    let namespace = bpf::SocketMap::new(1).and_then(|_| Namespace::new());
    let namespace = match namespace {
        Ok(namespace) => namespace,
        Err(e) => {
            println!("skipped: {NAME}: {e}");
            if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
                let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
                let reason = format!("no programs for received frames ({e}): needs root of the machine");
                let line = format!("{NAME}\t{reason}\n");
                file.expect("the list of skips").write_all(line.as_bytes()).expect("the list of skips");
            }
            return;
        }
    };
    namespace.enter().expect("inside the namespace");
    netns::veth("left", "right", None).expect("a veth pair");
    for name in ["left", "right"] {
        netns::set_mtu(name, 9000).expect("an MTU");
        netns::set_up(name, true).expect("an interface that is up");
    }
    let open = |name: &str| {
        XdpLink::open(&Config::new(name, &[Rule::EtherType { ethertype: 0x88b5, vlan: None }]))
            .expect("a link")
    };
    let (mut left, mut right) = (open("left"), open("right"));
    let mut round = || {
        let mut got = 0;
        let end = clock::monotonic_ns() + 20_000_000_000;
        send(&mut left, 16);
        while got < 16 {
            assert!(clock::monotonic_ns() < end, "{got} of 16 arrived");
            right.receive(64, &mut |_, _| got += 1).expect("received");
            if got == 0 {
                // Before the interfaces carry frames they lose some.
                send(&mut left, 1);
            }
        }
    };
    for _ in 0..100 {
        round();
    }
    let taken = allocations(|| (0..500).for_each(|_| round()));
    // Once a second the MTU is asked for.
    assert!(taken < 500, "{taken} allocations for 8000 frames");
}

#[test]
fn queue_pairs_take_no_memory_per_packet() {
    use bypath_link::roce::{Access, Config, Device, Local, Remote, Request, What, carry};
    use bypath_wire::roce::{Envelope, Psn, Qpn};
    use bypath_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, MacAddr, Network};

    let (mut a, mut b) = pair(1500, 512);
    let way = |from: u8, to: u8| {
        let network = Ipv4Header::new([10, 0, 0, from].into(), [10, 0, 0, to].into(), IpProtocol::UDP);
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let link = EthernetHeader::new(mac(to), mac(from), EtherType::IPV4);
        Envelope { link: Some(link), ..Envelope::new(Network::V4(network), 0xc000) }
    };
    let (mut here, mut there) = (Device::new(), Device::new());
    let (one, two, psn) = (Qpn::new(1), Qpn::new(2), Psn::new(0));
    here.connect(one, two, way(1, 2), Config::DEFAULT, psn, psn).expect("a queue pair");
    there.connect(two, one, way(2, 1), Config::DEFAULT, psn, psn).expect("a queue pair");
    here.memory.register(1, vec![7; 100_000], 0, Access::LOCAL).expect("a free key");
    there.memory.register(2, vec![0; 100_000], 0, Access::ALL).expect("a free key");
    let mut round = || {
        let (local, remote) = (Local { key: 1, address: 0, len: 100_000 }, Remote { key: 2, address: 0 });
        here.post(one, 1, Request::Write { from: local, to: remote, immediate: None }).expect("a place");
        here.post(one, 2, Request::Read { from: remote, to: local }).expect("a place");
        here.post(one, 3, Request::FetchAdd { at: remote, add: 1 }).expect("a place");
        let mut over = 0;
        while over < 3 {
            carry(&mut here, &mut a, 0, 64).expect("carried");
            carry(&mut there, &mut b, 0, 64).expect("carried");
            while let Some(event) = here.poll_event() {
                assert!(matches!(event.what, What::Over { result: Ok(_), .. }), "{event:?}");
                over += 1;
            }
        }
    };
    // As many atomic operations as results of them are kept.
    (0..20).for_each(|_| round());
    assert_eq!(allocations(|| (0..10).for_each(|_| round())), 0);
}
