//! What goes wrong, and what is said about it.

use crate::devices;
use crate::network::{LONG, Tool, address, tool, veth, without};
use bypath_sys::netns;
use rustix::thread::CapabilitySet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Runs a ping, which must fail with this status and these words.
#[track_caller]
fn fails(code: i32, args: &[&str], words: &[&str]) {
    let ended =
        tool(&[&["netstack", "ping", "--count=2", "--interval=10ms", "--timeout=100ms"], args].concat())
            .expect(code);
    for word in words {
        let said = ended.stderr.clone() + &ended.text();
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

isolated! {
    fn wrong_usage_says_what_is_right() {
        fails(2, &["--link=eth0", "10.9.0.1"], &["tap:NAME", "packet:IFACE"]);
        fails(2, &["--link=tap:", "10.9.0.1"], &["tap:NAME"]);
        fails(2, &["--link=tap:mine", "10.9.0.1"], &["the stack has no address", "--addr 10.9.0.2/24"]);
        fails(2, &["--link=tap:mine", "--addr=10.9.0.2", "10.9.0.1"], &["10.9.0.2/24"]);
        fails(2, &["--link=tun:mine", "--dhcp", "10.9.0.1"], &["DHCP needs", "tap:"]);
        fails(2, &["--link=packet:lo", "--net=10.9.0.1/24", "10.9.0.1"], &["--net", "tap:"]);
        for link in ["tap:a/b", "tun:.", "tap:averyveryverylongname", "packet:averyveryverylongname", "xdp:a b", "packet:a:b"] {
            fails(2, &["--link", link, "--addr=10.9.0.2/24", "10.9.0.1"], &[link, "no interface can have such a name: 1 to 15 octets"]);
        }
        for (link, mtu, words) in [
            ("tap:mine", "0", "takes 68 to 65521 octets"),
            ("tap:mine", "67", "takes 68 to 65521 octets"),
            ("tap:mine", "65522", "takes 68 to 65521 octets"),
            ("tun:mine", "60000000", "takes 68 to 65535 octets"),
        ] {
            fails(2, &["--link", link, "--net=10.9.0.1/24", "--mtu", mtu, "10.9.0.1"], &[&format!("--mtu {mtu}: {link} {words}")]);
        }
        for own in ["--net=fd09::1/64", "--addr=fd09::2/64"] {
            fails(2, &["--link=tap:mine", own, "--mtu=1279", "fd09::1"], &["--mtu 1279: tap:mine takes 1280 to 65521 octets with IPv6"]);
        }
        let own = "that is the stack's own address; give the router's";
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=10.9.0.2", "10.9.0.1"], &["--gateway 10.9.0.2", own]);
        fails(2, &["--link=tun:mine", "--addr=fd09::2/64", "--gateway=fd09::2", "fd09::1"], &["--gateway fd09::2", own]);
        for addr in [&["--addr=10.9.0.2/24"][..], &[]] {
            let all = [&["--link=packet:nobody"], addr, &["10.9.0.1"]].concat();
            fails(1, &all, &["nobody: no such interface; there are: lo"]);
        }
        if !devices("trouble::wrong_usage_says_what_is_right") {
            return;
        }
        fails(2, &["--link=tap:mine", "--addr=10.9.0.255/24", "10.9.0.1"], &["10.9.0.255/24", "not the address of a single host"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=224.0.0.1", "10.9.0.1"], &["--gateway 224.0.0.1"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=10.8.0.1", "10.9.0.1"], &["--gateway 10.8.0.1", "on the link"]);
        fails(1, &["--link=tap:mine", "--net=10.9.0.1/24", "10.8.0.1"], &["cannot send to 10.8.0.1: no route leads to that address"]);
        fails(1, &["--link=tap:mine", "--net=10.9.0.1/24", "fd09::1"], &["cannot send to fd09::1: no route"]);
        for (link, mtu) in [("tap:mine", "68"), ("tap:mine", "65521"), ("tun:mine", "65535")] {
            fails(3, &["--link", link, "--net=10.9.0.1/24", "--mtu", mtu, "10.9.0.77"], &["2 lost"]);
        }
    }
}

isolated! {
    fn nobody_there_is_a_loss() {
        if !devices("trouble::nobody_there_is_a_loss") {
            return;
        }
        fails(3, &["--link=tap:mine", "--net=10.9.0.1/24", "10.9.0.77"], &["2 sent, 0 answered, 2 lost (100.0 %)", "no neighbour answers for 10.9.0.77: is that host there"]);
        let by_router = ["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=10.9.0.88", "192.0.2.1"];
        fails(3, &by_router, &["the router 10.9.0.88, by which 192.0.2.1 is reached, does not answer"]);
        fails(3, &["--link=tap:mine", "--net=fd09::1/64", "fd09::77"], &["2 sent, 0 answered, 2 lost (100.0 %)"]);
    }
}

isolated! {
    fn an_address_of_somebody_else_is_not_used() {
        veth();
        let echo = Tool::start(&["netstack", "udp-echo", "--link=packet:right", "--addr=fd01::2/64"]).says("answering on right");
        fails(1, &["--link=packet:left", "--addr=fd01::2/64", "fd01::2"], &["fd01::2 is another host's on left"]);
        echo.signal(rustix::process::Signal::INT);
        echo.end().expect(0);
    }
}

isolated! {
    fn a_link_that_is_down_is_told_of_once_each_time() {
        veth();
        address("left", "10.0.0.1");
        let mut echo = Tool::start(&["netstack", "udp-echo", "--link=packet:right", "--addr=10.0.0.2/24"]).says("answering on right");
        let socket = UdpSocket::bind("10.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
        let answered = || {
            let begin = Instant::now();
            // What is sent before the link runs is lost.
            while socket.send_to(b"hello", "10.0.0.2:7").is_err() || socket.recv(&mut [0; 8]).is_err() {
                assert!(begin.elapsed() < LONG, "no answer");
            }
        };
        answered();
        for _ in 0..2 {
            netns::set_up("right", false).expect("an interface that is down");
            echo = echo.says("right is down: ip link set right up");
            netns::set_up("right", true).expect("an interface that is up");
            answered();
            echo = echo.says("right is up again");
        }
        echo.signal(rustix::process::Signal::INT);
        let said = echo.end().expect(0).stderr;
        assert_eq!((said.matches("right is down").count(), said.matches("right is up again").count()), (2, 2), "{said}");
    }
}

isolated! {
    fn without_the_right_the_remedy_is_named() {
        veth();
        without(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW, || {
            fails(1, &["--link=tap:mine", "--net=10.9.0.1/24", "10.9.0.1"], &["CAP_NET_ADMIN"]);
            fails(1, &["--link=packet:left", "--addr=10.9.0.2/24", "10.9.0.1"], &["CAP_NET_RAW"]);
        });
    }
}

isolated! {
    fn a_device_that_is_removed_ends_the_tool_and_what_was_counted_is_told() {
        if !devices("trouble::a_device_that_is_removed_ends_the_tool_and_what_was_counted_is_told") {
            return;
        }
        let echo = Tool::start(&["netstack", "udp-echo", "--link=tap:mine", "--net=10.9.0.1/24"]).says("answering on mine");
        let socket = UdpSocket::bind("10.9.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(LONG)).expect("a time");
        socket.send_to(b"hello", "10.9.0.2:7").expect("sent");
        assert_eq!(socket.recv(&mut [0; 8]).expect("an answer"), 5);
        bypath_sys::netns::remove("mine").expect("the device");
        let ended = echo.end().expect(1);
        assert!(ended.stderr.contains("bypath: 1 datagrams, 5 octets, 0 not answered\n"), "{}", ended.stderr);
        // The name once.
        assert!(ended.stderr.contains("bypath: error: mine: the interface was removed"), "{}", ended.stderr);
    }
}
