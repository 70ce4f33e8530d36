//! What stays with the kernel, and what is left behind: nothing.

use crate::common::{
    RULE, TYPE, exchange, frame, in_namespace, mac, nothing_arrives, open, program_attached, promiscuity,
    receive, send, settled, until, veth,
};
use bypath_link::MacAddr;
use bypath_link::l2::{Mode, Socket};
use bypath_link::packet::{self, PacketLink};
use bypath_link::xdp::{Config, Place, Rule, XdpLink};
use bypath_sys::netns::{self, Namespace};
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const LONG: Option<Duration> = Some(Duration::from_secs(20));

/// `left` with 10.9.0.1 here, and `right` with 10.9.0.2 in the namespace that is returned.
pub fn two_hosts() -> Namespace {
    let there = Namespace::new().unwrap();
    netns::veth("left", "right", Some(&there)).unwrap();
    netns::add_address("left", "10.9.0.1".parse().unwrap(), 24).unwrap();
    netns::set_up("left", true).unwrap();
    let up = there.run(|| {
        netns::add_address("right", "10.9.0.2".parse().unwrap(), 24).unwrap();
        netns::set_up("right", true).unwrap();
    });
    up.unwrap();
    settled();
    there
}

/// Asks the kernel of the other host over UDP, and gets the answer.
pub fn kernel_answers(there: &Namespace, port: u16) {
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let answered = there.run(|| {
                let socket = UdpSocket::bind(("10.9.0.2", port)).unwrap();
                socket.set_read_timeout(LONG).unwrap();
                ready.send(()).unwrap();
                let mut question = [0; 100];
                let (len, from) = socket.recv_from(&mut question).unwrap();
                socket.send_to(&question[..len], from).unwrap();
            });
            answered.unwrap();
        });
        is_ready.recv().unwrap();
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.set_read_timeout(LONG).unwrap();
        socket.send_to(b"are you there?", ("10.9.0.2", port)).unwrap();
        let mut answer = [0; 100];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(&answer[..len], b"are you there?");
    });
}

apart! {
    fn everything_else_passes_to_the_kernel() {
        let there = two_hosts();
        for place in [Place::Driver, Place::Generic] {
            let mut left = open("left", |c| c.place = Some(place));
            let mut right = there.run(|| open("right", |c| c.place = Some(place))).unwrap();
            settled();
            for n in 0..5 {
                exchange(&mut left, &mut right, "beside the kernel", [50, 1400]);
                kernel_answers(&there, 7000 + n);
            }
            nothing_arrives(&mut left);
            nothing_arrives(&mut right);
        }
    }
}

apart! {
    fn a_port_is_taken_from_the_kernel_and_its_neighbours_are_not() {
        let there = two_hosts();
        let rule = Rule::Port { protocol: 17, port: 9000 };
        let mut right = there.run(|| open("right", |c| c.rules = vec![rule])).unwrap();
        settled();
        kernel_answers(&there, 9001);
        let socket = UdpSocket::bind("10.9.0.1:4321").unwrap();
        socket.send_to(b"to the link", "10.9.0.2:9000").unwrap();
        socket.send_to(b"to nobody", "10.9.0.2:9002").unwrap();
        let (got, _) = receive(&mut right, 1).remove(0);
        assert_eq!(got[12..14], [8, 0]);
        assert_eq!(got[14 + 16..14 + 20], [10, 9, 0, 2]);
        assert_eq!(got[34..38], [4321u16.to_be_bytes(), 9000u16.to_be_bytes()].concat());
        assert_eq!(&got[42..], b"to the link");
        nothing_arrives(&mut right);
    }
}

apart! {
    fn a_vlan_and_a_type_choose_among_tagged_frames() {
        veth(1500);
        let mut left = open("left", |_| {});
        let rule = Rule::EtherType { ethertype: TYPE, vlan: Some(10) };
        let mut right = open("right", |c| c.rules = vec![rule]);
        let config = packet::Config { ethertypes: vec![TYPE], ..packet::Config::new("right") };
        let mut kernel = PacketLink::open(&config).unwrap();
        let plain = frame(mac("right"), mac("left"), 1, 60);
        let tagged = |tags: &[u8]| [&plain[..12], tags, &plain[12..]].concat();
        let wanted = [tagged(&[0x81, 0, 0xe0, 10]), tagged(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 10])];
        let others = [plain.clone(), tagged(&[0x81, 0, 0, 11]), tagged(&[0x88, 0xa8, 0, 10, 0x81, 0, 0, 5])];
        send(&mut left, &[&wanted[..], &others[..]].concat());
        let got: Vec<_> = receive(&mut right, 2).into_iter().map(|(frame, _)| frame).collect();
        assert_eq!(got, wanted);
        assert_eq!(receive(&mut kernel, 3).len(), 3);
        nothing_arrives(&mut right);
        nothing_arrives(&mut kernel);
    }
}

apart! {
    fn everything_can_be_taken() {
        veth(1500);
        let mut left = open("left", |_| {});
        let mut right = open("right", |c| c.rules = vec![Rule::Everything]);
        let mut sent = frame(mac("right"), mac("left"), 1, 60);
        sent[12..14].copy_from_slice(&[0x12, 0x34]);
        send(&mut left, std::slice::from_ref(&sent));
        // The kernel's own neighbour discovery may come in between.
        until("the frame", || receive(&mut right, 1)[0].0 == sent);
    }
}

apart! {
    fn groups_and_everything_are_asked_of_the_device_for_as_long_as_the_link_lives() {
        veth(1500);
        let known = || std::fs::read_to_string("/proc/thread-self/net/dev_mcast").unwrap().contains("030000001234");
        let promiscuous = || promiscuity("right") > 0;
        let group = MacAddr([3, 0, 0, 0, 0x12, 0x34]);
        let right = open("right", |c| c.groups = vec![group]);
        assert!(known() && !promiscuous());
        drop(right);
        until("an interface without the group", || !known());
        let right = open("right", |c| c.promiscuous = true);
        assert!(promiscuous() && !known());
        drop(right);
        until("an interface that is left alone", || !promiscuous());
    }
}

apart! {
    fn the_program_goes_with_the_link() {
        veth(1500);
        for place in [Place::Driver, Place::Generic] {
            assert!(!program_attached("right"));
            let right = open("right", |c| c.place = Some(place));
            assert!(program_attached("right"));
            drop(right);
            until("an interface without a program", || !program_attached("right"));
        }
    }
}

/// Run as a process of its own by the test below: opens a link, or a socket, says so, and waits to be killed.
fn holder(what: &str) {
    let _link = (what == "link").then(|| open("right", |_| {}));
    let _socket = (what == "socket")
        .then(|| Socket::builder("right").ethertype(TYPE).mode(Mode::XDP).open().expect("a socket"));
    println!("open");
    std::io::stdin().read_line(&mut String::new()).expect("never");
}

#[test]
fn the_program_goes_with_a_process_that_is_killed() {
    const INSIDE: &str = "BYPATH_TEST_XDP_HOLDER";
    if let Ok(what) = std::env::var(INSIDE) {
        return holder(&what);
    }
    let name = concat!(module_path!(), "::the_program_goes_with_a_process_that_is_killed");
    in_namespace(name, move || {
        veth(1500);
        let name = name.split_once("::").expect("a path").1;
        for what in ["link", "socket"] {
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", "--nocapture", "--test-threads=1"])
                .env(INSIDE, what)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(process.stdout.take().unwrap()).lines();
            assert!(
                lines.map_while(Result::ok).any(|l| l.ends_with("open")),
                "the process did not open the link"
            );
            assert!(program_attached("right"));
            process.kill().unwrap();
            process.wait().unwrap();
            until("an interface without a program", || !program_attached("right"));
            // And its queue is free again.
            let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
            exchange(&mut left, &mut right, "afterwards", [1, 1500]);
            drop((left, right));
            until("interfaces without programs", || !program_attached("left") && !program_attached("right"));
        }
    });
}

apart! {
    fn several_queues_are_fed_by_one_program() {
        let end = ["numrxqueues", "2", "numtxqueues", "2"];
        let made = Command::new("ip")
            .args(["link", "add", "left"])
            .args(end)
            .args(["type", "veth", "peer", "name", "right"])
            .args(end)
            .status();
        if !made.is_ok_and(|s| s.success()) {
            let test = "apart::several_queues_are_fed_by_one_program";
            return crate::common::skip(test, "ip is not installed (Debian package iproute2)");
        }
        for name in ["left", "right"] {
            netns::set_up(name, true).unwrap();
        }
        settled();
        let both = |name: &str| XdpLink::open_queues(&Config::new(name, &[RULE]), &[0, 1]).unwrap();
        let (mut left, mut right) = (both("left"), both("right"));
        settled();
        // veth: what one end sends on a queue arrives at the same queue of the other end.
        for queue in [0, 1, 1, 0] {
            exchange(&mut left[queue], &mut right[queue], "its queue", [1, 100, 1500]);
            nothing_arrives(&mut right[1 - queue]);
        }
        // A queue without a link stays with the kernel; the other one goes on.
        right.truncate(1);
        let config = packet::Config { ethertypes: vec![TYPE], ..packet::Config::new("right") };
        let mut kernel = PacketLink::open(&config).unwrap();
        until("a frame for the kernel", || {
            exchange(&mut left[0], &mut right[0], "the queue that is left", [77]);
            send(&mut left[1], &[frame(mac("right"), mac("left"), 5, 60)]);
            bypath_link::Link::receive(&mut kernel, 1, &mut |f, _| assert_eq!(f.len(), 74)).unwrap() > 0
        });
    }
}
