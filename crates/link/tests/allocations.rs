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
