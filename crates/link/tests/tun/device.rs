//! Devices: made, attached to, kept, with queues and settings, reported as they are.

use crate::common::{LONG, device, ip, kernel, ours, over, payload};
use bypath_link::tun::{Device, Kind, Mode, Offloads, Udp};
use bypath_link::{Interface, Link, Medium};
use std::collections::HashSet;

fn names() -> Vec<String> {
    bypath_link::interface::list().unwrap().into_iter().map(|i| i.name).collect()
}

isolated! {
    fn a_pattern_takes_the_first_free_number_and_what_is_closed_is_gone() {
        let first = Device::tun("here%d").open().unwrap();
        let second = Device::tap("here%d").open().unwrap();
        assert_eq!((first.name(), second.name()), ("here0", "here1"));
        assert_eq!((first.kind(), second.kind()), (Kind::Tun, Kind::Tap));
        assert_eq!(first.index(), Interface::named("here0").unwrap().index);
        drop(first);
        assert_eq!(names(), ["lo", "here1"]);
        assert_eq!(Device::tun("here%d").open().unwrap().name(), "here0");
        drop(second);
        assert_eq!(names(), ["lo"]);
    }
}

isolated! {
    fn settings_are_made_and_told() {
        let made = Device::tun("set").mtu(9000).address(ip("10.1.2.3"), 24).address(ip("fd01::5"), 64).open().unwrap();
        let found = Interface::named("set").unwrap();
        assert!(found.up && !found.ethernet);
        assert_eq!((found.mtu, made.mtu()), (9000, 9000));
        assert_eq!(made.obtained().offloads, Offloads::ALL, "{:?}", made.obtained());
        assert!(made.obtained().created && !made.obtained().persistent && made.obtained().notes.is_empty());
        // The kernel has the addresses.
        for address in ["10.1.2.3", "fd01::5"] {
            std::net::UdpSocket::bind((ip(address), 0)).unwrap();
        }
        made.set_up(false).unwrap();
        assert!(!Interface::named("set").unwrap().up);
        let down = Device::tun("down").up(false).open().unwrap();
        assert!(!Interface::named("down").unwrap().up);
        let capabilities = down.capabilities();
        assert_eq!((capabilities.medium, capabilities.mtu), (Medium::Ip, 1500));
        assert!(capabilities.checksum && capabilities.segmentation);
        let plain = Device::tun("plain").offloads(Offloads::NONE).open().unwrap();
        assert!(!plain.capabilities().checksum && !plain.capabilities().segmentation);
    }
}

isolated! {
    fn one_that_persists_is_there_until_it_is_removed() {
        let made = Device::tun("kept").persistent(true).owner(0).group(0).mtu(4000).open().unwrap();
        assert!(made.obtained().persistent);
        drop(made);
        assert_eq!(names(), ["lo", "kept"]);
        let again = Device::tun("kept").attach().address(ip("10.1.1.1"), 24).open().unwrap();
        assert!(again.obtained().persistent && !again.obtained().created);
        assert_eq!(again.mtu(), 4000);
        drop(again);
        // The same address again is no error.
        let mut again = Device::tun("kept").attach().address(ip("10.1.1.1"), 24).open().unwrap();
        again.set_persistent(false).unwrap();
        drop(again);
        assert_eq!(names(), ["lo"]);
        // One that `ip` made, with several queues.
        let made = std::process::Command::new("ip").args(["tuntap", "add", "many", "mode", "tap", "multi_queue"]).status();
        assert!(made.expect("ip").success());
        let both = Device::tap("many").attach().open_queues(2).unwrap();
        assert!(both[0].obtained().multi_queue && both[0].obtained().queues == 2);
        drop(both);
        let one = Device::tap("many").attach().open().unwrap();
        assert!(one.obtained().multi_queue && one.obtained().queues == 1);
    }
}

isolated! {
    fn queues_share_the_flows() {
        let queues = device(1500).open_queues(4).unwrap();
        assert!(queues.iter().all(|q| q.name() == "tun0" && q.obtained().queues == 4));
        let mut queues: Vec<_> = queues.into_iter().map(|q| over(q, 0, |b| b)).collect();
        // Each queue sends.
        let to = kernel(0);
        for (n, queue) in queues.iter_mut().enumerate() {
            queue.send(to.local_addr().unwrap(), &payload(n as u32, 100)).unwrap();
            let mut buffer = [0; 200];
            let len = to.recv(&mut buffer).unwrap();
            assert!(buffer[..len] == payload(n as u32, 100)[..]);
            queue.set_timeout(Some(std::time::Duration::ZERO));
        }
        // What the kernel sends goes to some queue by its flow, and to one only.
        let senders: Vec<_> = (0..64).map(|_| kernel(0)).collect();
        for sender in &senders {
            sender.send_to(b"hello", ours(0)).unwrap();
        }
        let mut seen = HashSet::new();
        let mut used = 0;
        for queue in &mut queues {
            let before = seen.len();
            while let Ok(1) = queue.receive_batch(1, |d| assert!(seen.insert(d.source))) {}
            used += usize::from(seen.len() > before);
        }
        assert_eq!(seen.len(), 64);
        assert!(used > 1, "one queue got everything");
    }
}

isolated! {
    fn a_sender_can_change_how_it_sends() {
        let mut udp = over(device(9000).open().unwrap(), 0, |b| b);
        let to = kernel(0);
        for mode in [Mode::Assemble, Mode::Pieces, Mode::Super] {
            udp.set_mode(mode).unwrap();
            assert_eq!(udp.mode(), mode);
            assert_eq!(udp.send_batch(to.local_addr().unwrap(), [&[1; 10][..], &[2; 10]]), Ok(2));
            for n in [1, 2] {
                let mut buffer = [0; 20];
                assert_eq!((to.recv(&mut buffer).unwrap(), buffer[0]), (10, n));
            }
        }
        let device = udp.into_device();
        let again = Udp::over(device, ours(0)).timeout(LONG).open().unwrap();
        assert_eq!(again.local(), ours(0));
    }
}
