//! Sockets of datagrams: one record of the pair is one datagram.

use crate::program::{Answer, Program, ready};
use crate::{LONGEST, Running, at, isolated, octets};
use bypath_shm::datagram::{HEADER, Header, Kind, MAGIC, RECORD, tell};
use bypath_shm::service::{Address, Body, Op};
use bypath_stack::config::Config;
use nix::poll::PollFlags;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;

/// A socket of datagrams of the service's.
pub struct Dgram<'a> {
    pub program: &'a Program,
    pub end: UnixDatagram,
    pub cookie: u64,
}

impl<'a> Dgram<'a> {
    pub fn of(program: &'a Program, v6: bool, protocol: i32) -> Result<Dgram<'a>, i32> {
        let domain = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let answer =
            program.ask(Op::Open, 0, &[domain, libc::SOCK_DGRAM, protocol].map(i32::to_ne_bytes).concat());
        if answer.errno != 0 {
            return Err(answer.errno);
        }
        let end = UnixDatagram::from(answer.with.expect("a descriptor"));
        end.set_read_timeout(Some(LONGEST)).expect("a time-out");
        end.set_write_timeout(Some(LONGEST)).expect("a time-out");
        Ok(Dgram { program, end, cookie: answer.socket })
    }

    pub fn new(program: &'a Program, v6: bool) -> Dgram<'a> {
        Dgram::of(program, v6, 0).expect("a socket")
    }

    pub fn ask(&self, op: Op, body: &[u8]) -> Answer {
        self.program.ask(op, self.cookie, body)
    }

    pub fn bind(&self, to: &str) -> Result<SocketAddr, i32> {
        let answer = self.ask(Op::Bind, &Address(Some(at(to))).encode());
        if answer.errno != 0 {
            return Err(answer.errno);
        }
        Ok(Body(&answer.body).address().expect("one").0.expect("of a family"))
    }

    pub fn connect(&self, to: SocketAddr) -> i32 {
        self.ask(Op::Connect, &Address(Some(to)).encode()).errno
    }

    fn error(&self) -> i32 {
        Body(&self.ask(Op::Error, &[]).body).i32().expect("a number")
    }

    pub fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let answer = self.ask(Op::Names, &[]);
        let mut body = Body(&answer.body);
        (body.address().expect("one").0, body.address().expect("one").0)
    }

    pub fn set(&self, level: i32, name: i32, value: &[u8]) -> i32 {
        self.ask(Op::Set, &[&level.to_ne_bytes()[..], &name.to_ne_bytes(), value].concat()).errno
    }

    fn on(&self, level: i32, name: i32) {
        assert_eq!(self.set(level, name, &1i32.to_ne_bytes()), 0, "{level} {name}");
    }

    fn get(&self, level: i32, name: i32) -> Result<i32, i32> {
        let answer = self.ask(Op::Get, &[level, name, 128].map(i32::to_ne_bytes).concat());
        if answer.errno == 0 { Ok(Body(&answer.body).i32().expect("a number")) } else { Err(answer.errno) }
    }

    pub fn say(&self, header: &Header, octets: &[u8]) {
        self.end.send(&[&header.encode()[..], octets].concat()).expect("sent");
    }

    fn send_to(&self, to: SocketAddr, octets: &[u8]) {
        self.say(&Header::datagram(Address(Some(to))), octets);
    }

    /// The next record.
    pub fn record(&self) -> Vec<u8> {
        let mut room = vec![0; RECORD];
        let len = self.end.recv(&mut room).expect("a record");
        room.truncate(len);
        room
    }

    /// The next record, which is headed.
    pub fn headed(&self) -> (Header, Vec<u8>) {
        let record = self.record();
        let header = record.first_chunk::<HEADER>().and_then(Header::decode).expect("a header");
        (header, record[HEADER..].to_vec())
    }

    /// The next record: its header, if it has one, and the datagram.
    pub fn headed_or_naked(&self) -> (Option<Header>, Vec<u8>) {
        let record = self.record();
        match record.first_chunk::<HEADER>().and_then(Header::decode) {
            Some(header) => (Some(header), record[HEADER..].to_vec()),
            None => (None, record),
        }
    }

    pub fn is_readable(&self, ms: u16) -> bool {
        ready(self.end.as_fd(), PollFlags::POLLIN, ms).contains(PollFlags::POLLIN)
    }
}

/// A socket of the kernel's, and its address.
pub fn kernels(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(at(address)).expect("a socket of the kernel");
    socket.set_read_timeout(Some(LONGEST)).expect("a time-out");
    let local = socket.local_addr().expect("an address");
    (socket, local)
}

pub fn heard(kernel: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut room = vec![0; 70_000];
    let (len, from) = kernel.recv_from(&mut room).expect("a datagram");
    room.truncate(len);
    (room, from)
}

isolated! {
    fn datagrams_go_both_ways_with_their_addresses() {
        let running = Running::new();
        let program = running.program();
        for (own, kernel) in [("10.9.0.2:0", "10.9.0.1:0"), ("[fd09::2]:0", "[fd09::1]:0"), ("[::]:0", "10.9.0.1:0")] {
            let (kernel, there) = kernels(kernel);
            let socket = Dgram::new(&program, own.starts_with('['));
            let local = socket.bind(own).expect("a port");
            let mapped = own == "[::]:0";
            let peer = match there.ip() {
                IpAddr::V4(v4) if mapped => SocketAddr::new(v4.to_ipv6_mapped().into(), there.port()),
                _ => there,
            };
            let here = if mapped { at(&format!("10.9.0.2:{}", local.port())) } else { local };
            for len in [0, 1, 1472, 1473, 9000, 65_507] {
                let sent = octets(len);
                socket.send_to(peer, &sent);
                assert_eq!(heard(&kernel), (sent.clone(), here), "{len} octets from {own}");
                kernel.send_to(&sent, here).expect("sent");
                let (header, came) = socket.headed();
                assert_eq!((header.kind, header.peer.0, came == sent), (Kind::Datagram, Some(peer), true), "{len}");
            }
        }
    }
}

isolated! {
    fn who_is_connected_needs_no_headers() {
        let running = Running::new();
        let program = running.program();
        let (kernel, there) = kernels("10.9.0.1:0");
        let (other, _) = kernels("10.9.0.1:0");
        let socket = Dgram::new(&program, false);
        assert_eq!(socket.connect(there), 0);
        let (local, remote) = socket.names();
        let local = local.expect("an address");
        assert_eq!((local.ip(), remote), (at("10.9.0.2:0").ip(), Some(there)));
        socket.end.send(b"naked").expect("sent");
        assert_eq!(heard(&kernel), (b"naked".to_vec(), local));
        other.send_to(b"of a stranger", local).expect("sent");
        kernel.send_to(b"answer", local).expect("sent");
        assert_eq!(socket.record(), b"answer");
        // What would be taken for something else is headed, and an empty record of who knows nothing is a datagram.
        for octets in [&b""[..], &MAGIC, b"BYPADGR1 and more"] {
            kernel.send_to(octets, local).expect("sent");
            let (header, came) = socket.headed();
            assert_eq!((header.peer.0, came), (Some(there), octets.to_vec()));
        }
        socket.end.send(b"").expect("sent");
        assert_eq!(heard(&kernel).0, b"");
        // Elsewhere, though it is connected.
        let (third, elsewhere) = kernels("10.9.0.1:0");
        socket.send_to(elsewhere, b"elsewhere");
        assert_eq!(heard(&third).0, b"elsewhere");
        // Nobody any more: the port was nobody's choice, and is given back.
        assert_eq!(socket.ask(Op::Connect, &Address(None).encode()).errno, 0);
        assert_eq!(socket.names(), (None, None));
        assert_eq!(socket.bind("0.0.0.0:777"), Ok(at("0.0.0.0:777")));
        assert_eq!(socket.connect(there), 0);
        assert_eq!(socket.names().0, Some(at("10.9.0.2:777")));
        assert_eq!(socket.ask(Op::Connect, &Address(None).encode()).errno, 0);
        assert_eq!(socket.names(), (Some(at("0.0.0.0:777")), None));
        other.send_to(b"now", at("10.9.0.2:777")).expect("sent");
        assert_eq!(socket.headed().1, b"now");
    }
}

isolated! {
    fn what_the_network_says_is_told_once() {
        let running = Running::new();
        let program = running.program();
        let (closed, there) = kernels("10.9.0.1:0");
        drop(closed);
        let socket = Dgram::new(&program, false);
        assert_eq!(socket.connect(there), 0);
        for _ in 0..2 {
            socket.end.send(b"is there somebody?").expect("sent");
            assert_eq!(socket.headed().0.kind, Kind::Error);
            assert_eq!([socket.error(), socket.error()], [libc::ECONNREFUSED, 0]);
        }
        // What is too long is told in the same way.
        socket.end.send(&vec![1; 65_508]).expect("sent");
        assert_eq!((socket.headed().0.kind, socket.error()), (Kind::Error, libc::EMSGSIZE));
        assert_eq!(socket.set(IP, libc::IP_MTU_DISCOVER, &2i32.to_ne_bytes()), 0);
        socket.end.send(&[1; 1473]).expect("sent");
        assert_eq!((socket.headed().0.kind, socket.error()), (Kind::Error, libc::EMSGSIZE));
        assert_eq!(socket.get(IP, 14), Ok(1500));
        // Who is connected to nobody hears of nothing.
        let free = Dgram::new(&program, false);
        free.send_to(there, b"is there somebody?");
        free.end.send(b"to nobody").expect("sent");
        assert!(!free.is_readable(50) && free.error() == 0);
        let reach = |to: &str| free.ask(Op::Reach, &Address(Some(at(to))).encode()).errno;
        assert_eq!([reach("10.9.0.1:5"), reach("192.0.2.1:5"), reach("10.9.0.255:5"), reach("10.9.0.1:0"), reach("[fd09::1]:5")],
            [0, libc::ENETUNREACH, libc::EACCES, libc::EINVAL, libc::EAFNOSUPPORT]);
        free.on(libc::SOL_SOCKET, libc::SO_BROADCAST);
        assert_eq!(reach("10.9.0.255:5"), 0);
    }
}

isolated! {
    fn what_a_socket_wants_to_know_is_told_and_what_it_says_is_done() {
        let running = Running::new();
        let program = running.program();
        let (kernel, there) = kernels("0.0.0.0:0");
        let there = SocketAddr::new(at("10.9.0.1:0").ip(), there.port());
        kernel.set_ttl(17).expect("a TTL");
        let socket = Dgram::new(&program, false);
        let local = socket.bind("0.0.0.0:0").expect("a port");
        let here = SocketAddr::new(at("10.9.0.2:0").ip(), local.port());
        assert_eq!(socket.connect(there), 0);
        socket.on(IP, libc::IP_PKTINFO);
        socket.on(IP, libc::IP_RECVTTL);
        socket.on(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        kernel.send_to(b"x", here).expect("sent");
        let (header, _) = socket.headed();
        assert_eq!(header.tells, tell::INFO | tell::HOPS | tell::STAMP_NS);
        assert_eq!((header.local.0, header.hops, header.peer.0), (Some(here), 17, Some(there)));
        assert!(header.interface == 2 && header.stamp > 1_700_000_000_000_000_000, "{header:?}");
        assert_eq!(socket.set(IP, libc::IP_TTL, &33i32.to_ne_bytes()), 0);
        let on = 1i32;
        // SAFETY: the kernel reads a local.
        unsafe { libc::setsockopt(kernel.as_raw_fd(), IP, libc::IP_RECVTTL, (&raw const on).cast(), 4) };
        for (said, hops) in [(0, 33), (5, 5)] {
            let tells = if said > 0 { tell::HOPS } else { 0 };
            socket.say(&Header { tells, hops: said, ..Header::datagram(Address(None)) }, b"hops");
            assert_eq!(hops_of(&kernel), hops);
        }
        // From an address that is not ours.
        let header = Header { tells: tell::INFO, local: Address(Some(at("10.9.0.7:0"))), ..Header::datagram(Address(None)) };
        socket.say(&header, b"x");
        assert_eq!((socket.headed().0.kind, socket.error()), (Kind::Error, libc::EADDRNOTAVAIL));
        // Several with one call.
        socket.say(&Header { tells: tell::SEGMENT, segment: 100, ..Header::datagram(Address(None)) }, &octets(250));
        let lens: Vec<_> = (0..3).map(|_| heard(&kernel).0.len()).collect();
        assert_eq!(lens, [100, 100, 50]);
    }
}

/// The TTL of the next datagram.
fn hops_of(kernel: &UdpSocket) -> i32 {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut room = [0; 64];
    let mut space = nix::cmsg_space!(i32);
    let mut parts = [std::io::IoSliceMut::new(&mut room)];
    let got =
        recvmsg::<()>(kernel.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).expect("one");
    let mut all = got.cmsgs().expect("control messages");
    all.find_map(|message| match message {
        ControlMessageOwned::Ipv4Ttl(hops) => Some(hops),
        _ => None,
    })
    .expect("a TTL")
}

isolated! {
    fn groups_and_everybody() {
        let running = Running::new();
        let program = running.program();
        let (kernel, _) = kernels("10.9.0.1:0");
        kernel.set_multicast_ttl_v4(3).expect("a TTL");
        kernel.set_broadcast(true).expect("the right");
        let socket = Dgram::new(&program, false);
        let port = socket.bind("0.0.0.0:0").expect("a port").port();
        let group = Ipv4Addr::new(239, 1, 2, 3);
        let request = [&group.octets()[..], &[0; 4]].concat();
        assert_eq!(socket.set(IP, libc::IP_ADD_MEMBERSHIP, &request), 0);
        assert_eq!(socket.set(IP, libc::IP_ADD_MEMBERSHIP, &request), libc::EADDRINUSE);
        socket.on(IP, libc::IP_PKTINFO);
        for to in [IpAddr::V4(group), at("10.9.0.255:0").ip()] {
            kernel.send_to(b"all", (to, port)).expect("sent");
            let (header, came) = socket.headed();
            assert_eq!((header.local.0.map(|a| a.ip()), came), (Some(to), b"all".to_vec()));
        }
        let (hears, _) = kernels("0.0.0.0:0");
        hears.join_multicast_v4(&group, &Ipv4Addr::new(10, 9, 0, 1)).expect("a group");
        let to = SocketAddr::new(group.into(), hears.local_addr().expect("an address").port());
        socket.send_to(to, b"to all");
        assert_eq!(heard(&hears).0, b"to all");
        assert_eq!(socket.set(IP, libc::IP_DROP_MEMBERSHIP, &request), 0);
        assert_eq!(socket.set(IP, libc::IP_DROP_MEMBERSHIP, &request), libc::EADDRNOTAVAIL);
        let six = Dgram::new(&program, true);
        let port = six.bind("[::]:0").expect("a port").port();
        let group: std::net::Ipv6Addr = "ff15::7".parse().expect("a group");
        let request = [&group.octets()[..], &[0; 4]].concat();
        assert_eq!(six.set(IPV6, libc::IPV6_ADD_MEMBERSHIP, &request), 0);
        let (kernel, _) = kernels("[fd09::1]:0");
        let index = nix::net::if_::if_nametoindex("mine").expect("an interface");
        kernel.send_to(b"six", std::net::SocketAddrV6::new(group, port, 0, index)).expect("sent");
        assert_eq!(six.headed().1, b"six");
    }
}

isolated! {
    fn who_does_not_read_loses_and_nobody_else() {
        let running = Running::with(|settings| settings.octets_per_user = 300_000, Config::default());
        let program = running.program();
        let (kernel, _) = kernels("10.9.0.1:0");
        let sockets: Vec<_> = (0..8).map(|_| {
            let socket = Dgram::new(&program, false);
            let local = socket.bind("10.9.0.2:0").expect("a port");
            (socket, local)
        }).collect();
        // A device that is not read fast enough loses some, too: so many are sent that each socket has lost some.
        let begun = Instant::now();
        loop {
            for _ in 0..100 {
                for (_, local) in &sockets {
                    kernel.send_to(&[7; 1000], local).expect("sent");
                }
            }
            let rows = running.query("sockets");
            assert_eq!(rows.len(), 8);
            if rows.iter().all(|row| row["protocol"] == "udp" && row["dropped"].as_u64() > Some(100)) {
                break;
            }
            assert!(begun.elapsed() < LONGEST, "{rows:?}");
        }
        let service = running.query("service").remove(0);
        let octets = service["users"][0]["octets"].as_u64().expect("a number");
        assert!(octets < 300_000 + 8 * 66_000, "{octets}");
        // They read again, and hear again.
        for (socket, local) in &sockets {
            while socket.is_readable(20) {
                assert_eq!(socket.headed().1, [7; 1000]);
            }
            kernel.send_to(b"new", local).expect("sent");
            assert_eq!(socket.headed().1, b"new");
        }
    }
}

isolated! {
    fn what_was_sent_before_a_connect_goes_to_the_old_partner() {
        let running = Running::new();
        let program = running.program();
        let ((first, to_first), (second, to_second)) = (kernels("10.9.0.1:0"), kernels("10.9.0.1:0"));
        let socket = Dgram::new(&program, false);
        for turn in 0..200u8 {
            assert_eq!(socket.connect(to_first), 0);
            for n in 0..10u8 {
                if n % 2 == 0 {
                    socket.end.send(&[1, turn, n]).expect("sent");
                } else {
                    socket.say(&Header::datagram(Address(None)), &[1, turn, n]);
                }
            }
            assert_eq!(socket.connect(to_second), 0);
            socket.end.send(&[2, turn]).expect("sent");
            for n in 0..10u8 {
                assert_eq!(heard(&first).0, [1, turn, n]);
            }
            assert_eq!(heard(&second).0, [2, turn]);
        }
    }
}

isolated! {
    fn what_was_sent_before_the_close_is_sent_and_the_port_is_free_after_it() {
        let running = Running::new();
        let program = running.program();
        let (kernel, there) = kernels("10.9.0.1:0");
        for _ in 0..20 {
            let socket = Dgram::new(&program, false);
            assert_eq!(socket.bind("10.9.0.2:700"), Ok(at("10.9.0.2:700")));
            kernel.send_to(b"unread", at("10.9.0.2:700")).expect("sent");
            assert!(socket.is_readable(20_000));
            for n in 0..5u8 {
                socket.send_to(there, &[n]);
            }
            drop(socket);
            for n in 0..5u8 {
                assert_eq!(heard(&kernel).0, [n]);
            }
        }
        // Two share a port if both say so.
        let (one, two) = (Dgram::new(&program, false), Dgram::new(&program, false));
        assert_eq!(one.bind("10.9.0.2:701"), Ok(at("10.9.0.2:701")));
        assert_eq!(two.bind("10.9.0.2:701"), Err(libc::EADDRINUSE));
        assert_eq!(two.bind("10.9.0.3:701"), Err(libc::EADDRNOTAVAIL));
        let (one, two) = (Dgram::new(&program, false), Dgram::new(&program, false));
        for socket in [&one, &two] {
            socket.on(libc::SOL_SOCKET, libc::SO_REUSEPORT);
            assert_eq!(socket.bind("10.9.0.2:702"), Ok(at("10.9.0.2:702")));
        }
    }
}

isolated! {
    fn records_of_nonsense_harm_nobody() {
        let running = Running::new();
        let program = running.program();
        let (kernel, there) = kernels("10.9.0.1:0");
        let socket = Dgram::new(&program, false);
        assert_eq!(socket.connect(there), 0);
        let good = Header::datagram(Address(None)).encode();
        let mut state = 1u64;
        for n in 0..2000usize {
            let mut record = good.to_vec();
            record.truncate(8 + n % (HEADER - 8));
            record.resize(n % 300 + 8, 0);
            for octet in record.iter_mut().skip(8) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *octet = if state >> 62 == 0 { (state >> 32) as u8 } else { *octet };
            }
            socket.end.send(&record).expect("sent");
            // Somebody has to take the errors.
            socket.end.set_nonblocking(true).expect("a socket");
            while socket.end.recv(&mut [0; 200]).is_ok() {}
            socket.end.set_nonblocking(false).expect("a socket");
            // And what arrives: the kernel's buffer must have room for the last one.
            kernel.set_nonblocking(true).expect("a socket");
            while kernel.recv(&mut [0; 400]).is_ok() {}
            kernel.set_nonblocking(false).expect("a socket");
        }
        socket.say(&Header::error(), b"");
        // As often as what came before fills the kernel's buffer.
        kernel.set_read_timeout(Some(std::time::Duration::from_secs(1))).expect("a time-out");
        let end = std::time::Instant::now() + LONGEST;
        let mut room = [0; 400];
        while {
            socket.say(&Header::datagram(Address(None)), b"the last");
            !matches!(kernel.recv(&mut room), Ok(len) if &room[..len] == b"the last")
        } {
            assert!(std::time::Instant::now() < end, "the last one did not arrive");
        }
        let other = running.program();
        assert_eq!(Dgram::of(&other, false, libc::IPPROTO_TCP).err(), Some(libc::EPROTONOSUPPORT));
        assert_eq!(Dgram::new(&other, false).bind("10.9.0.2:0").map(|a| a.ip()), Ok(at("10.9.0.2:0").ip()));
    }
}
