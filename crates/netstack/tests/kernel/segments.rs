//! Many datagrams in one frame, both ways: UDP_SEGMENT and UDP_GRO of either side.

use crate::{Config, Offloads, at, host, isolated, kernels, octets, ours};
use bypath_stack::SendTo;
use bypath_stack::socket::ReceiveError;
use nix::sys::socket::{setsockopt, sockopt};

const SEGMENT: usize = 1000;
const COUNT: usize = 40;

isolated! {
    fn datagrams_of_one_call_arrive_one_by_one_in_order() {
        for offloads in [Offloads::ALL, Offloads::NONE] {
            let (host, iface) = host(Config::default(), offloads);
            for (own, kernel) in [("10.9.0.2:7", "10.9.0.1:9"), ("[fd09::2]:7", "[fd09::1]:9")] {
                let (stacks, kernels) = (ours(&host, own), kernels(kernel));
                let content = octets(SEGMENT * COUNT - 10);
                let mut room = vec![0; 65_535];
                // From the stack.
                let before = host.with(|engine| engine.statistics(iface).expect("a link").sent);
                let how = SendTo { to: Some(at(kernel)), segment: Some(SEGMENT as u16), ..SendTo::default() };
                stacks.send_with(&content, &how).expect("sent");
                for part in content.chunks(SEGMENT) {
                    let len = kernels.recv(&mut room).expect("a datagram");
                    assert!(room[..len] == *part, "{len} octets");
                }
                let frames = host.with(|engine| engine.statistics(iface).expect("a link").sent) - before;
                // One frame, and what neighbours ask each other; or one for each.
                let most = if offloads == Offloads::ALL { 6 } else { COUNT as u64 + 6 };
                assert!(frames <= most && (offloads == Offloads::ALL || frames >= COUNT as u64), "{frames} frames");
                // From the kernel, cut again by the stack.
                setsockopt(&kernels, sockopt::UdpGsoSegment, &(SEGMENT as i32)).expect("an option");
                kernels.send_to(&content, at(own)).expect("sent");
                for part in content.chunks(SEGMENT) {
                    let (len, from) = stacks.recv_from(&mut room).expect("a datagram");
                    assert!(room[..len] == *part && from == at(kernel), "{len} octets of {from}");
                }
                // In one piece, for who asks for that.
                stacks.set_options(|o| o.gro = true).expect("an option");
                kernels.send_to(&content, at(own)).expect("sent");
                let mut at_once = Vec::new();
                while at_once.iter().map(|(len, _)| len).sum::<usize>() < content.len() {
                    let got = host.with(|engine| engine.stack().udp(stacks.id()).expect("a socket").receive(&mut room));
                    match got {
                        Ok(received) => at_once.push((received.len, received.datagram.segment)),
                        Err(ReceiveError::Empty) => std::thread::yield_now(),
                        Err(e) => panic!("{e}"),
                    }
                }
                if offloads == Offloads::ALL {
                    assert_eq!(at_once, [(content.len(), Some(SEGMENT as u16))]);
                }
                stacks.set_options(|o| o.gro = false).expect("an option");
            }
            drop(host);
        }
    }
}

// Older devices refuse a frame of more than 64 datagrams; of a send 128 are the most.
isolated! {
    fn more_datagrams_than_a_frame_may_have_arrive() {
        let (host, _) = host(Config::default(), Offloads::ALL);
        for (own, kernel) in [("10.9.0.2:7", "10.9.0.1:9"), ("[fd09::2]:7", "[fd09::1]:9")] {
            let (stacks, kernels) = (ours(&host, own), kernels(kernel));
            let content = octets(12_705);
            let how = SendTo { to: Some(at(kernel)), segment: Some(100), ..SendTo::default() };
            stacks.send_with(&content, &how).expect("sent");
            let mut room = [0; 100];
            for part in content.chunks(100) {
                let len = kernels.recv(&mut room).expect("a datagram");
                assert!(room[..len] == *part, "{len} octets");
            }
        }
    }
}
