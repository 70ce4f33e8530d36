//! Datagrams between sockets of the kernel and the stack.

use crate::devices;
use crate::network::{Tool, octets};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

fn socket(address: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    socket.connect(to).expect("an address");
    socket
}

isolated! {
    fn every_size_comes_back_as_it_was_sent() {
        if !devices("udp::every_size_comes_back_as_it_was_sent") {
            return;
        }
        for (link, mtu) in [("tap:mine", "1500"), ("tun:mine", "1500"), ("tap:mine", "9000")] {
            let args = ["netstack", "udp-echo", "--net=10.9.0.1/24", "--net=fd09::1/64", "--mtu", mtu, "--link", link];
            let echo = Tool::start(&args).says("answering on mine, 10.9.0.2/24, fd09::2/64, UDP port 7");
            for (own, to, most) in [("10.9.0.1:0", "10.9.0.2:7", 65_507), ("[fd09::1]:0", "[fd09::2]:7", 65_527)] {
                let socket = socket(own, to.parse().expect("an address"));
                let mut room = vec![0; 65_536];
                for len in (0..64).chain((1400..1500).step_by(7)).chain([1471, 1472, 1473, 2953, 8973, 30_000, most - 1, most]) {
                    let content = octets(len);
                    socket.send(&content).expect("sent");
                    let n = socket.recv(&mut room).unwrap_or_else(|e| panic!("{link}: {len} octets to {to}: {e}"));
                    assert!(room[..n] == content, "{link}: {len} octets to {to}: {n} came back");
                }
            }
            echo.signal(rustix::process::Signal::INT);
            let ended = echo.end().expect(0);
            assert!(ended.stderr.contains(", 0 not answered"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn a_port_that_nobody_has_is_told_to_the_kernel() {
        if !devices("udp::a_port_that_nobody_has_is_told_to_the_kernel") {
            return;
        }
        let args = ["netstack", "udp-echo", "--net=10.9.0.1/24", "--net=fd09::1/64", "--link=tap:mine"];
        let echo = Tool::start(&args).says("answering on mine");
        for (own, to) in [("10.9.0.1:0", "10.9.0.2:8"), ("[fd09::1]:0", "[fd09::2]:8")] {
            let socket = socket(own, to.parse().expect("an address"));
            socket.send(b"anybody?").expect("sent");
            assert_eq!(socket.recv(&mut [0; 8]).map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        }
        echo.signal(rustix::process::Signal::INT);
        echo.end().expect(0);
    }
}

isolated! {
    fn who_answers_whatever_comes_is_not_answered() {
        if !devices("udp::who_answers_whatever_comes_is_not_answered") {
            return;
        }
        let args = ["netstack", "udp-echo", "--net=10.9.0.1/24", "--link=tap:mine", "--port=7000"];
        let echo = Tool::start(&args).says("answering on mine");
        let to = "10.9.0.2:7000".parse().expect("an address");
        let services = ["10.9.0.1:7", "10.9.0.1:19", "10.9.0.1:7000"].map(|own| socket(own, to));
        for service in &services {
            service.send(b"echo").expect("sent");
        }
        // Behind them, in order: what comes back to it tells that the others were looked at.
        let asks = socket("10.9.0.1:0", to);
        asks.send(b"one").expect("sent");
        assert_eq!(asks.recv(&mut [0; 8]).expect("an answer"), 3);
        for service in &services {
            service.set_nonblocking(true).expect("an option");
            assert_eq!(service.recv(&mut [0; 8]).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
        }
        echo.signal(rustix::process::Signal::INT);
        let ended = echo.end().expect(0);
        assert!(ended.stderr.contains("4 datagrams, 15 octets, 3 not answered"), "{}", ended.stderr);
    }
}
