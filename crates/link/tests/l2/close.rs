//! Closing takes microseconds where the kernel takes milliseconds, and nothing is left behind.

use crate::common::{MODES, both, builder, exchange, until, veth};
use bypath_link::l2::Mode;
use bypath_sys::clock;
use bypath_sys::packet;

fn elapsed(f: impl FnOnce()) -> u64 {
    let before = clock::monotonic_ns();
    f();
    clock::monotonic_ns() - before
}

fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Descriptors of packet sockets that this process has.
fn packet_sockets() -> usize {
    let table = std::fs::read_to_string("/proc/net/packet").unwrap();
    table.lines().count() - 1
}

isolated! {
    fn closing_is_far_quicker_than_the_kernels_close() {
        veth();
        let index = bypath_link::Interface::named("left").unwrap().index;
        for (what, mode) in MODES {
            let (mut kernels, mut ours) = (Vec::new(), Vec::new());
            // In turns, so that both see the same machine.
            for _ in 0..9 {
                let plain = packet::Socket::open().unwrap();
                plain.bind(index, true).unwrap();
                kernels.push(elapsed(|| drop(plain)));
                let socket = builder("left", mode).open().unwrap();
                ours.push(elapsed(|| socket.close()));
            }
            let (kernels, ours) = (median(kernels), median(ours));
            println!("{what}: close {ours} ns, the kernel's {kernels} ns");
            assert!(ours * 10 < kernels, "{what}: {ours} ns against {kernels} ns");
        }
    }
}

isolated! {
    fn the_same_interface_and_ethertype_can_be_opened_again_at_once() {
        veth();
        for (what, mode) in MODES {
            for _ in 0..10 {
                let (mut left, mut right) = both(mode, |b| b);
                exchange(&mut left, &mut right, what, [100, 1500]);
            }
        }
    }
}

isolated! {
    fn every_socket_is_closed_in_the_end_however_many_there_were() {
        veth();
        let sockets: Vec<_> = (0..300).map(|_| builder("left", Mode::PLAIN).open().unwrap()).collect();
        assert_eq!(packet_sockets(), 300);
        drop(sockets);
        until("sockets that are closed", || packet_sockets() == 0);
        // And those with rings, whose memory goes too.
        drop((0..20).map(|_| builder("left", Mode::RING).open().unwrap()).collect::<Vec<_>>());
        until("sockets that are closed", || packet_sockets() == 0);
    }
}

isolated! {
    fn sockets_that_are_being_closed_disturb_no_other() {
        veth();
        let mut left = builder("left", Mode::PLAIN).open().unwrap();
        let mut right = builder("right", Mode::PLAIN).open().unwrap();
        for _ in 0..50 {
            drop(builder("right", Mode::RING).open().unwrap());
            exchange(&mut left, &mut right, "after a close", [100]);
        }
    }
}
