//! A kernel's socket receives what we write, and we read what it sends: every mode, both families, byte for byte.

use crate::common::{FAMILIES, LONG, device, kernel, ours, over, payload, sysctl};
use bypath_link::Error;
use bypath_link::tun::{Checksum, Mode, Offloads, Refused};
use std::net::UdpSocket;
use std::time::Duration;

const MODES: [Mode; 3] = [Mode::Assemble, Mode::Pieces, Mode::Super];

/// Lengths around everything that a length may do to a packet.
fn lengths(most: usize) -> Vec<usize> {
    let mut all = vec![0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 511, 1024, 1231, 1232, 1233, 1451, 1452, 1453];
    all.extend([1471, 1472, 1473, 2000, 2959, 2960, 2961, 4096, 8192, 9000, 16_384, 32_768, 65_000]);
    all.extend([most - 1, most]);
    all
}

fn receives(socket: &UdpSocket, expected: &[u8], what: &str) {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(buffer[..len] == *expected, "{what}: {len} octets for {}", expected.len());
}

isolated! {
    fn a_kernel_socket_receives_every_mode_and_length() {
        // In one packet, and in fragments.
        for mtu in [65_535, 1500] {
            for family in 0..FAMILIES.len() {
                for mode in MODES {
                    for checksum in [Checksum::Kernel, Checksum::Own, Checksum::Omitted] {
                        if family == 1 && checksum == Checksum::Omitted || mode == Mode::Super && checksum != Checksum::Kernel {
                            continue;
                        }
                        let opened = device(mtu).open().unwrap();
                        let to = kernel(family);
                        let address = to.local_addr().unwrap();
                        let what = format!("MTU {mtu}, {address}, {mode:?}, {checksum:?}");
                        let mut udp = over(opened, family, |b| b.mode(mode).checksum(checksum));
                        for (n, len) in lengths(udp.most_payload()).into_iter().enumerate() {
                            let sent = payload(n as u32, len);
                            udp.send(address, &sent).unwrap_or_else(|e| panic!("{what}: {e}"));
                            receives(&to, &sent, &what);
                        }
                    }
                }
            }
        }
    }
}

isolated! {
    fn super_packets_arrive_as_the_datagrams_they_hold() {
        for family in 0..FAMILIES.len() {
            let mut udp = over(device(65_535).open().unwrap(), family, |b| b.mode(Mode::Super));
            assert_eq!(udp.device().obtained().offloads, Offloads::ALL);
            let to = kernel(family);
            let address = to.local_addr().unwrap();
            for (count, size) in [(1, 100), (2, 1), (64, 1), (64, 7), (65, 200), (30, 1000), (15, 4096), (7, 8192), (3, 16_384), (2, 32_768)] {
                let what = format!("{count} of {size} to {address}");
                let before = udp.statistics().sent;
                let all: Vec<_> = (0..count).map(|n| payload(n, size)).collect();
                assert_eq!(udp.send_batch(address, all.iter().map(Vec::as_slice)), Ok(all.len()), "{what}");
                let packets = udp.statistics().sent - before;
                let per_packet = (udp.most_payload() / size).min(64);
                assert_eq!(packets, (count as usize).div_ceil(per_packet) as u64, "{what}");
                all.iter().for_each(|one| receives(&to, one, &what));
                // The same octets, not taken apart before.
                let whole = all.concat();
                assert_eq!(udp.send_cut(address, &whole, size), Ok(all.len()), "{what}");
                all.iter().for_each(|one| receives(&to, one, &what));
                // A shorter one at the end.
                assert_eq!(udp.send_cut(address, &whole[..whole.len() - size / 2], size), Ok(all.len()), "{what}");
                let (last, others) = all.split_last().unwrap();
                others.iter().for_each(|one| receives(&to, one, &what));
                receives(&to, &last[..size - size / 2], &what);
            }
        }
    }
}

isolated! {
    fn a_batch_of_any_sizes_arrives_in_order() {
        for mode in MODES {
            for mtu in [1500, 65_535] {
                let mut udp = over(device(mtu).open().unwrap(), 0, |b| b.mode(mode));
                let to = kernel(0);
                let address = to.local_addr().unwrap();
                let sizes = [5, 5, 5, 3, 5, 0, 0, 9, 9, 10, 1472, 1472, 1472, 100, 4000, 4000, 20_000, 1, 1];
                let all: Vec<_> = sizes.iter().enumerate().map(|(n, &len)| payload(n as u32, len)).collect();
                assert_eq!(udp.send_batch(address, all.iter().map(Vec::as_slice)), Ok(all.len()));
                all.iter().for_each(|one| receives(&to, one, &format!("{mode:?}, {mtu}, {} octets", one.len())));
            }
        }
    }
}

isolated! {
    fn what_the_kernel_sends_is_received_in_one_packet_or_in_fragments() {
        for mtu in [65_535, 9000, 1500, 1280] {
            for family in 0..FAMILIES.len() {
                for offloads in [Offloads::ALL, Offloads::NONE] {
                    let mut udp = over(device(mtu).offloads(offloads).open().unwrap(), family, |b| b);
                    let from = kernel(family);
                    let what = format!("MTU {mtu}, {}, {offloads:?}", ours(family));
                    let mut buffer = vec![0; 65_536];
                    // The kernel puts 65535 octets of packet at most into fragments, too.
                    for (n, len) in lengths(65_507).into_iter().enumerate() {
                        let sent = payload(n as u32, len);
                        from.send_to(&sent, ours(family)).unwrap_or_else(|e| panic!("{what}, {len}: {e}"));
                        let got = udp.receive(&mut buffer).unwrap_or_else(|e| panic!("{what}, {len}: {e}"));
                        assert!(buffer[..got.len] == sent[..], "{what}: {} for {len}", got.len);
                        assert_eq!((got.whole, got.source), (len, from.local_addr().unwrap()));
                    }
                    let counts = udp.counts();
                    assert_eq!((counts.malformed, counts.corrupt, counts.incomplete), (0, 0, 0), "{what}: {counts:?}");
                    // The longest datagram and an IPv6 header are longer than any MTU.
                    assert_eq!(counts.fragments > 0, mtu < 65_535 || family == 1, "{what}: {counts:?}");
                }
            }
        }
    }
}

isolated! {
    fn super_packets_of_the_kernel_are_received_with_one_read() {
        const UDP_SEGMENT: libc::c_int = 103;
        for family in 0..FAMILIES.len() {
            for (offloads, packets) in [(Offloads::ALL, 1), (Offloads { udp: false, ..Offloads::ALL }, 41)] {
                let mut udp = over(device(1500).offloads(offloads).open().unwrap(), family, |b| b);
                let from = kernel(family);
                let size: libc::c_int = 1000;
                let socket = std::os::fd::AsRawFd::as_raw_fd(&from);
                // SAFETY: the kernel reads four octets of a local.
                let set = unsafe { libc::setsockopt(socket, libc::SOL_UDP, UDP_SEGMENT, (&raw const size).cast(), 4) };
                assert_eq!(set, 0);
                let sent = payload(3, 40_500);
                from.send_to(&sent, ours(family)).unwrap();
                let mut parts = Vec::new();
                while parts.len() < 41 {
                    // Not all at once: what is left is kept.
                    udp.receive_batch(7, |d| parts.push(d.payload.to_vec())).unwrap();
                }
                assert!(parts.concat() == sent);
                assert!(parts[..40].iter().all(|p| p.len() == 1000) && parts[40].len() == 500);
                let others = udp.counts().others;
                assert_eq!(udp.statistics().received - others, packets, "{offloads:?}");
            }
        }
    }
}

isolated! {
    fn ttl_dscp_and_df_are_as_asked() {
        // Two of us, and the kernel in between as a router.
        for (family, peer) in [(0, "10.8.0.2:9000"), (1, "[fd08::2]:9000")] {
            sysctl("net/ipv4/ip_forward", "1");
            sysctl("net/ipv6/conf/all/forwarding", "1");
            let there = bypath_link::tun::Device::tun("there").address("10.8.0.1".parse().unwrap(), 24);
            let there = there.address("fd08::1".parse().unwrap(), 64).open().unwrap();
            let mut there = bypath_link::tun::Udp::over(there, peer.parse().unwrap()).timeout(LONG).open().unwrap();
            let ecn = bypath_wire::Ecn::Capable0;
            let mut here = over(device(1500).open().unwrap(), family, |b| b.ttl(9).dscp(46).ecn(ecn));
            here.send(peer.parse().unwrap(), b"once").unwrap();
            let mut buffer = [0; 100];
            let got = there.receive(&mut buffer).unwrap();
            assert_eq!((&buffer[..got.len], got.ttl, got.class.dscp(), got.class.ecn()), (&b"once"[..], 8, 46, ecn));
            assert_eq!(got.source, ours(family));
        }
    }
}

isolated! {
    fn what_must_not_be_cut_is_refused_with_the_remedy_and_cut_elsewhere() {
        for (family, headers) in [(0, 28), (1, 48)] {
            for mode in MODES {
                let mut udp = over(device(1400).open().unwrap(), family, |b| b.mode(mode).dont_fragment(true));
                let to = kernel(family);
                let address = to.local_addr().unwrap();
                let fits = payload(1, 1400 - headers);
                assert_eq!(udp.most_uncut(), fits.len());
                udp.send(address, &fits).unwrap();
                receives(&to, &fits, "what fits");
                let long = payload(2, 1401 - headers);
                let refused = udp.send(address, &long).unwrap_err();
                assert!(matches!(refused, Error::Tun(Refused::TooLong { need: 1401, .. })), "{refused:?}");
                assert!(refused.to_string().contains("mtu 1401"), "{refused}");
                // It was raised meanwhile.
                udp.device().set_mtu(1401).unwrap();
                udp.send(address, &long).unwrap();
                receives(&to, &long, "what fits now");
                assert_eq!(udp.send_cut(address, &long.repeat(3), long.len()), Ok(3));
                (0..3).for_each(|_| receives(&to, &long, "what fits now"));
            }
        }
        // In fragments of the smallest MTU of IPv4.
        let mut udp = over(device(68).open().unwrap(), 0, |b| b);
        let to = kernel(0);
        // As long as the kernel's queue of fragments takes.
        let sent = payload(5, 3000);
        udp.send(to.local_addr().unwrap(), &sent).unwrap();
        receives(&to, &sent, "MTU 68");
        let longest = udp.most_payload();
        let refused = udp.send(to.local_addr().unwrap(), &payload(1, longest + 1)).unwrap_err();
        assert_eq!(refused, Refused::DatagramTooLong { len: longest + 1, most: longest }.into());
    }
}

isolated! {
    fn nobody_there_is_told_once() {
        for family in 0..FAMILIES.len() {
            let mut udp = over(device(1500).open().unwrap(), family, |b| b);
            let nobody = std::net::SocketAddr::new(kernel(family).local_addr().unwrap().ip(), 9);
            udp.send(nobody, b"hello").unwrap();
            let told = udp.receive(&mut [0; 100]);
            assert_eq!(told, Err(Refused::Unreachable { peer: nobody }.into()));
            udp.set_timeout(Some(Duration::from_millis(10)));
            assert!(matches!(udp.receive(&mut [0; 100]), Err(Error::TimedOut { .. })));
            udp.set_timeout(Some(Duration::ZERO));
            assert_eq!(udp.receive(&mut [0; 100]), Err(Error::WouldBlock));
        }
    }
}

isolated! {
    fn nobody_there_is_told_behind_the_datagrams_before_it() {
        for family in 0..FAMILIES.len() {
            let mut udp = over(device(1500).open().unwrap(), family, |b| b.timeout(Duration::ZERO));
            let socket = kernel(family);
            let nobody = std::net::SocketAddr::new(socket.local_addr().unwrap().ip(), 9);
            socket.send_to(b"first", ours(family)).unwrap();
            udp.send(nobody, b"hello").unwrap();
            assert_eq!(udp.receive_batch(10, |d| assert_eq!(d.payload, b"first")), Ok(1));
            assert_eq!(udp.receive(&mut [0; 100]), Err(Refused::Unreachable { peer: nobody }.into()));
            assert_eq!(udp.receive(&mut [0; 100]), Err(Error::WouldBlock));
        }
    }
}

isolated! {
    fn both_ways_with_one_socket_and_a_short_buffer() {
        let mut udp = over(device(1500).open().unwrap(), 0, |b| b);
        let socket = kernel(0);
        for n in 0..100 {
            let sent = payload(n, 200 + n as usize);
            udp.send(socket.local_addr().unwrap(), &sent).unwrap();
            let mut buffer = [0; 400];
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(from, ours(0));
            socket.send_to(&buffer[..len], from).unwrap();
            let got = udp.receive(&mut buffer[..150]).unwrap();
            assert_eq!((got.len, got.whole), (150, 200 + n as usize));
            assert!(buffer[..150] == sent[..150]);
        }
    }
}
