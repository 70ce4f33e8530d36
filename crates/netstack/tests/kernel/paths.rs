//! Paths with a narrow link behind a router, which is the kernel.

use crate::{Config, Offloads, at, host, isolated, octets, ours};
use bypath_stack::Fragmentation;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_sys::netns;
use std::net::IpAddr;
use std::time::Duration;

isolated! {
    fn what_routers_say_of_a_narrow_link_is_learnt() {
        let (host, iface) = host(Config::default(), Offloads::NONE);
        // The kernel routes to another namespace by a link of 1300 octets.
        let there = netns::Namespace::new().expect("a namespace");
        netns::veth("left", "right", Some(&there)).expect("a veth pair");
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let up = |name: &str, v4: &str, v6: &str| {
            netns::set_mtu(name, 1300).expect("an MTU");
            netns::set_up(name, true).expect("up");
            netns::add_address(name, ip(v4), 24).expect("an address");
            netns::add_address(name, ip(v6), 64).expect("an address");
        };
        there.run(|| up("right", "10.8.0.2", "fd08::2")).expect("the other host");
        up("left", "10.8.0.1", "fd08::1");
        for path in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/{path}"), "1").expect("a setting of this namespace");
        }
        host.with(|engine| {
            for (prefix, via) in [(Prefix::ALL_V4, "10.9.0.1"), (Prefix::ALL_V6, "fd09::1")] {
                let route = Route { prefix, iface, via: Some(ip(via)), metric: 0, source: None };
                engine.stack().add_route(route).expect("a route");
            }
        });
        for (own, to, listen) in [("10.9.0.2:0", "10.8.0.2:9", "0.0.0.0:9"), ("[fd09::2]:0", "[fd08::2]:9", "[::]:9")] {
            let receiver = there.run(|| std::net::UdpSocket::bind(listen)).expect("the other host").expect("a socket");
            receiver.set_read_timeout(Some(Duration::from_millis(300))).expect("a time-out");
            let sender = ours(&host, own);
            sender.set_options(|o| o.fragmentation = Fragmentation::Never).expect("an option");
            sender.connect(at(to)).expect("a way");
            // Too long for the link behind the router, which says so; the socket is told.
            let content = octets(1400);
            let mut refused = None;
            for _ in 0..100 {
                match sender.send(&content) {
                    Ok(_) => _ = receiver.recv(&mut [0; 1]),
                    Err(e) => {
                        refused = Some(e.to_string());
                        break;
                    }
                }
            }
            let refused = refused.unwrap_or_else(|| panic!("{to}: nothing was said"));
            assert!(refused.contains("1300"), "{refused}");
            // From now on it is known.
            let refused = sender.send(&content).expect_err("too long").to_string();
            let most = 1300 - if own.starts_with('[') { 48 } else { 28 };
            assert!(refused.contains(&most.to_string()), "{refused}");
            // And another socket, which may, cuts here what it sends: it arrives at once.
            let cutter = ours(&host, own);
            receiver.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
            cutter.send_to(&content, at(to)).expect("sent");
            let mut room = vec![0; 2000];
            let len = receiver.recv(&mut room).expect("a datagram");
            assert!(room[..len] == content, "{len} octets");
        }
    }
}
