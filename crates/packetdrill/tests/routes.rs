//! What routes of the network namespace say of the way is so for the sockets, also when it changes.

use bypath_packetdrill::flags::{Flags, Time};
use bypath_packetdrill::host::Host;
use bypath_sys::netlink::Netlink;
use bypath_sys::netns;
use bypath_sys::route::{self, Metrics};
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::{TcpOption, TcpOptions};
use bypath_wire::{Headers, IpProtocol, Ipv4Header, Network, Transport};
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

const LOCAL: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A segment of the other side.
fn segment(seq: u32, ack: u32, flags: TcpFlags, options: TcpOptions) -> Vec<u8> {
    let mut header = TcpHeader::new(50_000, 8080);
    (header.seq.0, header.ack.0, header.flags, header.window, header.options) =
        (seq, ack, flags, 50_000, options);
    let network = Network::V4(Ipv4Header::new(REMOTE, LOCAL, IpProtocol::TCP));
    let mut octets = vec![0; 200];
    let headers = Headers { link: None, network, transport: Transport::Tcp(header) };
    let len = headers.emit(&mut octets, &[]).expect("room");
    octets.truncate(len);
    octets
}

/// Runs in a namespace of its own: the test below starts it.
fn inside() {
    netns::set_up("lo", true).expect("lo");
    let netlink = Netlink::open().expect("a socket");
    let metrics = |mtu, advmss| Metrics { mtu: Some(mtu), advmss: Some(advmss), initcwnd: Some(4) };
    route::put(&netlink, REMOTE.into(), "lo", metrics(640, 600)).expect("a route");
    assert_eq!(route::metrics(&netlink, REMOTE.into()), Ok(metrics(640, 600)));
    let flags = Flags::parse("local=192.168.0.1/16,remote=192.0.2.1/24,sysctl=on").expect("flags");
    let host =
        Host::new(Flags { time: Time::Virtual, patience: Duration::from_secs(5), ..flags }).expect("a host");
    let fd = host.socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket");
    let mut address = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    address.extend(8080u16.to_be_bytes());
    address.extend([0; 12]);
    host.bind(fd, &address).expect("bound");
    host.listen(fd, 5).expect("it listens");
    let mut options = TcpOptions::new();
    assert!(options.push(&TcpOption::MaxSegmentSize(1460)));
    host.netdev_send(&segment(0, 0, TcpFlags::SYN, options));
    let (answer, _) = host.netdev_receive().expect("an answer");
    assert_eq!(
        answer[40..44],
        [2, 4, 600u16.to_be_bytes()[0], 600u16.to_be_bytes()[1]],
        "the MSS of the route"
    );
    let iss = u32::from_be_bytes(answer[24..28].try_into().expect("four octets"));
    host.netdev_send(&segment(1, iss.wrapping_add(1), TcpFlags::ACK, TcpOptions::new()));
    let (called, _) = host.accept(fd).expect("a caller");
    assert_eq!(host.send(called, &[1; 10_000], 0, None), Ok(10_000));
    let lengths = || {
        let mut all = Vec::new();
        while let Ok((packet, _)) = host.netdev_receive() {
            all.push(packet.len());
            if all.len() == 4 {
                break;
            }
        }
        all
    };
    // Four segments are the first window.
    assert_eq!(lengths(), [640; 4]);
    route::put(&netlink, REMOTE.into(), "lo", metrics(1500, 1460)).expect("a route");
    host.netdev_send(&segment(1, iss.wrapping_add(2401), TcpFlags::ACK, TcpOptions::new()));
    assert_eq!(lengths()[..3], [1500; 3]);
}

#[test]
fn what_routes_say_is_so_for_sockets() {
    const INSIDE: &str = "BYPATH_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let own = std::env::current_exe().expect("a path");
    let mut command = Command::new(own);
    command.args(["what_routes_say_is_so_for_sockets", "--exact"]).env(INSIDE, "1");
    let output = netns::isolated(&mut command).output().expect("a namespace");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
