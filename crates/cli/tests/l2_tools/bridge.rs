//! A bad network between `left` and `right`: frames are carried from one veth pair to another, and some are not.

use crate::network::veths;
use bypath::link::fault::{FaultInjector, Faults};
use bypath::link::packet::{Config, PacketLink};
use bypath::link::{FrameMeta, Link};
use bypath_sys::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Carries frames until it is ended.
pub struct Bridge {
    stop: Arc<AtomicBool>,
    carrier: Option<JoinHandle<u64>>,
}

type Faulty = FaultInjector<PacketLink, fn() -> u64>;

impl Bridge {
    /// Makes `left` and `right`, with these faults on both ways.
    pub fn new(faults: Faults, seed: u64) -> Bridge {
        veths(&[("left", "bridge-left"), ("right", "bridge-right")]);
        let open = |name, seed| -> Faulty {
            let config = Config { promiscuous: true, ..Config::new(name) };
            let link = PacketLink::open(&config).expect("a link");
            FaultInjector::new(link, Faults::NONE, faults, seed, clock::monotonic_ns as fn() -> u64)
                .expect("faults")
        };
        let mut links = [open("bridge-left", seed), open("bridge-right", seed ^ 1)];
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let carrier = std::thread::spawn(move || {
            while !asked.load(SeqCst) {
                let [a, b] = &mut links;
                if carry(a, b) + carry(b, a) == 0 {
                    std::thread::yield_now();
                }
            }
            links.iter().map(|l| l.egress().lost).sum()
        });
        Bridge { stop, carrier: Some(carrier) }
    }

    /// Ends it. Frames that it lost.
    pub fn end(mut self) -> u64 {
        self.stop.store(true, SeqCst);
        self.carrier.take().expect("not ended").join().expect("the carrier")
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
    }
}

fn carry(from: &mut Faulty, to: &mut Faulty) -> usize {
    let mut frames: Vec<(Vec<u8>, FrameMeta)> = Vec::new();
    let mut each = |octets: &[u8], meta: &FrameMeta| {
        frames.push((octets.to_vec(), FrameMeta { vlan: meta.vlan, ..FrameMeta::default() }));
    };
    from.receive(64, &mut each).expect("frames");
    let mut next = frames.iter();
    let given = to.send(frames.len(), &mut |slot| {
        let (octets, meta) = next.next()?;
        slot[..octets.len()].copy_from_slice(octets);
        Some((octets.len(), *meta))
    });
    // What does not go on is lost: so are networks.
    let _ = given;
    let _ = to.flush();
    frames.len()
}
