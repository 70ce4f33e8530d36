//! Sockets whose maker is another user than who holds them: a server that has given up root's rights has rings, and its port again when the
//! service was started anew; and nobody else has.

use crate::program::{Program, Sock};
use crate::rings::{Process, connected, until};
use crate::{Running, at, engine, kernels, users};
use bypath_netstack::service::Service;
use bypath_shm::service::{Address, Body, Claim, Header, Op, VERSION, Wanted};
use bypath_stack::config::Config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Who dropped root, and somebody else.
const WORKER: u32 = 65_533;
const OTHER: u32 = 65_532;
const WEB: &str = "10.9.0.2:80";

/// Octets of rings of each user.
fn rings(running: &Running) -> Vec<(u64, u64)> {
    let row = running.query("service").remove(0);
    let users = row["users"].as_array().expect("users");
    users.iter().map(|user| (user["uid"].as_u64().unwrap(), user["rings"].as_u64().unwrap())).collect()
}

users! {
    fn who_holds_a_connection_of_another_user_has_rings_of_his_own() {
        let running = Running::new();
        let program = running.program();
        let (theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut kernel = crate::patient(theirs.accept().expect("a connection").0);
        // The service is for root alone.
        let worker = Program::of(&running.path, WORKER);
        let mut process = Process::new(7);
        assert!(matches!(process.meet_of(&worker, own.cookie, 4096), Err(libc::EACCES)));
        let worker = Program::of(&running.path, WORKER);
        let other = program.connect(to);
        let shows_another = process.meet_with(&worker, own.cookie, other.stream.as_fd(), 4096);
        assert!(matches!(shows_another, Err(libc::EACCES)));

        let worker = Program::of(&running.path, WORKER);
        let mut met = process.meet_with(&worker, own.cookie, own.stream.as_fd(), 4096).expect("rings");
        met.begin(0);
        met.put(&process, b"by the ring");
        let mut got = [0; 11];
        kernel.read_exact(&mut got).expect("octets");
        assert_eq!(&got, b"by the ring");
        // All slots of his arena, as long as his process has it.
        assert!(rings(&running).contains(&(WORKER.into(), 4 * 8192)) && rings(&running).contains(&(0, 0)));
        drop((own, kernel, process));
        until(|| rings(&running).iter().all(|(_, rings)| *rings == 0).then_some(()));
    }
}

users! {
    fn a_stranger_who_marks_what_is_no_end_has_no_rings_any_more_and_others_go_on() {
        let running = Running::with(|settings| settings.users = Some(vec![WORKER]), Config::default());
        let (root, worker) = (running.program(), Program::of(&running.path, WORKER));
        let (mut own, mut theirs) = (Process::new(7), Process::new(8));
        let (_sock, mut kernel, mut rings) = connected(&root, &mut own);
        let (mut barred, mut reset, mut lost) = connected(&worker, &mut theirs);
        rings.begin(0);
        lost.begin(0);
        lost.put(&theirs, b"before");
        let mut got = [0; 6];
        reset.read_exact(&mut got).expect("octets");
        assert_eq!(&got, b"before");
        theirs.mark(1024);
        let told = reset.read(&mut got).expect_err("a reset");
        assert_eq!(told.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(barred.stream.read(&mut got).expect("an end"), 0);
        // He has the pair from now on.
        let (listener, to) = kernels("10.9.0.1:0");
        let mut sock = worker.connect(to);
        let mut peer = crate::patient(listener.accept().expect("a connection").0);
        assert!(matches!(theirs.meet_of(&worker, sock.cookie, 4096), Err(libc::EPERM)));
        sock.stream.write_all(b"a pair").expect("room");
        peer.read_exact(&mut got).expect("octets");
        assert_eq!(&got, b"a pair");
        rings.put(&own, b"others");
        kernel.read_exact(&mut got).expect("octets");
        assert_eq!(&got, b"others");
    }
}

fn claim_of(answer: &[u8]) -> Claim {
    Claim::decode(&mut Body(answer)).expect("a claim")
}

/// Root's listener there, and what is said of it.
fn listener<'a>(program: &'a Program, local: SocketAddr) -> (Sock<'a>, Claim) {
    let socket = program.socket(local);
    socket.bind(local).expect("root's right");
    let body = 128i32.to_ne_bytes();
    let answer = program.ask_with(Op::Listen, socket.cookie, &body, Some(socket.stream.as_fd()));
    assert_eq!(answer.errno, 0);
    (socket, claim_of(&answer.body))
}

const KIND: [i32; 3] = [libc::AF_INET, libc::SOCK_STREAM, 0];

fn wanted(local: SocketAddr, claim: Claim) -> Wanted {
    Wanted { kind: KIND, local: Address(Some(local)), claim }
}

/// Asks for a socket in place of another one; a program that may not is not heard any more.
fn again(
    program: &Program,
    cookie: u64,
    wanted: &Wanted,
    with: Option<BorrowedFd<'_>>,
) -> Result<(std::os::fd::OwnedFd, u64), i32> {
    let answer = program.ask_with(Op::Again, cookie, &wanted.encode(), with);
    if answer.errno == 0 {
        Ok((answer.with.expect("a descriptor"), answer.socket))
    } else {
        Err(answer.errno)
    }
}

fn bind(program: &Program, socket: &Sock<'_>, to: SocketAddr) -> i32 {
    let body = Address(Some(to)).encode();
    program.ask_with(Op::Bind, socket.cookie, &body, Some(socket.stream.as_fd())).errno
}

users! {
    fn a_port_comes_back_to_who_holds_what_is_left_and_to_nobody_else() {
        let mut first = Running::new();
        let folder = first.path.parent().expect("a folder").to_owned();
        let program = first.program();
        let local = at(WEB);
        let (socket, claim) = listener(&program, local);
        assert_eq!(claim.uid, 0);
        let worker = |running: &Running| Program::of(&running.path, WORKER);
        let end = Some(socket.stream.as_fd());
        // As long as it is there it is not made anew.
        assert_eq!(again(&worker(&first), socket.cookie, &wanted(local, claim), end).err(), Some(libc::EACCES));
        first.stop().expect("it was stopped");

        let second = Running::with(|settings| settings.folder = folder.clone(), Config::default());
        let refused = |running: &Running, cookie: u64, wanted: &Wanted, with: Option<BorrowedFd<'_>>| {
            let refused = again(&worker(running), cookie, wanted, with).err();
            assert_eq!(refused, Some(libc::EACCES), "{wanted:?}");
        };
        // Who only knows, who has something else, and who says something else.
        refused(&second, socket.cookie, &wanted(local, claim), None);
        let theirs = worker(&second);
        let (a, b) = std::os::unix::net::UnixStream::pair().expect("a pair");
        refused(&second, socket.cookie, &wanted(local, claim), Some(a.as_fd()));
        let own_cookie = bypath_sys::pair::cookie(b.as_fd()).expect("a cookie");
        refused(&second, own_cookie, &wanted(local, claim), Some(b.as_fd()));
        refused(&second, socket.cookie, &wanted(at("10.9.0.2:81"), claim), end);
        let lie = Claim { proof: [7; 16], ..claim };
        refused(&second, socket.cookie, &wanted(local, lie), end);
        let lie = Claim { uid: WORKER, ..claim };
        refused(&second, socket.cookie, &wanted(local, lie), end);
        let ping = Wanted { kind: [libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP], ..wanted(local, claim) };
        refused(&second, socket.cookie, &ping, end);

        let (fd, cookie) = again(&theirs, socket.cookie, &wanted(local, claim), end).expect("a socket");
        let mine = Sock::of(&theirs, fd, cookie);
        // It is there and does nothing but listen, or it does nothing.
        let shown = Some(mine.stream.as_fd());
        let listens = |program: &Program| program.ask_with(Op::Listen, cookie, &8i32.to_ne_bytes(), shown).errno;
        let connects = |program: &Program| {
            program.ask_with(Op::Connect, cookie, &Address(Some(at("10.9.0.1:9"))).encode(), shown).errno
        };
        assert_eq!((listens(&theirs), connects(&theirs)), (libc::EACCES, libc::EACCES));
        assert_eq!(bind(&theirs, &mine, at("10.9.0.2:81")), libc::EACCES);
        assert_eq!(bind(&theirs, &mine, at("10.9.0.2:8080")), libc::EACCES);
        assert_eq!(bind(&theirs, &mine, local), 0);
        assert_eq!(connects(&theirs), libc::EACCES);
        assert_eq!(listens(&theirs), 0);
        let rows = second.query("sockets");
        assert_eq!((rows.len(), rows[0]["uid"].as_u64(), rows[0]["state"].as_str()), (1, Some(0), Some("Listen")));
        let _caller = TcpStream::connect(local).expect("a connection");
        let (_taken, record) = mine.accept();
        assert_eq!(record.local.0, Some(local));

        // A new one is for root, or for nobody.
        let stranger = Program::of(&second.path, OTHER);
        assert_eq!(stranger.open(false).err(), Some(libc::EACCES));
    }
}

users! {
    fn half_of_what_its_maker_may_have_is_left_to_him_and_what_he_may_not_have_nobody_has_for_him() {
        let mut first = Running::with(|settings| settings.sockets_per_user = 8, Config::default());
        let folder = first.path.parent().expect("a folder").to_owned();
        let program = first.program();
        let old: Vec<_> = (8080..8085)
            .map(|port| {
                let local = at(&format!("10.9.0.2:{port}"));
                (local, listener(&program, local))
            })
            .collect();
        let member = Program::of(&first.path, WORKER);
        assert_eq!(member.open(false).err(), Some(libc::EACCES));
        first.stop().expect("it was stopped");

        let mut second = Running::with(
            |settings| (settings.folder, settings.sockets_per_user) = (folder.clone(), 8),
            Config::default(),
        );
        let worker = Program::of(&second.path, WORKER);
        let asks = |(local, (socket, claim)): &(SocketAddr, (Sock<'_>, Claim))| {
            again(&worker, socket.cookie, &wanted(*local, *claim), Some(socket.stream.as_fd()))
        };
        let all: Vec<_> = old[..4].iter().map(|one| asks(one).expect("a socket")).collect();
        assert_eq!(asks(&old[4]).err(), Some(libc::EMFILE));
        // Who has one of them as well takes no other one.
        assert_eq!(asks(&old[0]).expect("the same").1, all[0].1);
        let root = second.program();
        let own: Vec<_> = (0..4).map(|_| root.open(false).expect("a socket")).collect();
        drop((all, own, old));
        second.stop().expect("it was stopped");

        // One that was a user's, who is not admitted any more.
        let mut third = Running::with(
            |settings| {
                settings.folder = folder.clone();
                settings.users = Some(vec![WORKER]);
                settings.low_ports = vec![WORKER];
            },
            Config::default(),
        );
        let member = Program::of(&third.path, WORKER);
        let (socket, claim) = listener(&member, at(WEB));
        assert_eq!(claim.uid, WORKER);
        third.stop().expect("it was stopped");
        let mut ended = Vec::new();
        for (users, low_ports) in [(None, Vec::new()), (Some(Vec::new()), vec![WORKER])] {
            let mut fourth = Running::with(
                |settings| {
                    (settings.folder, settings.users, settings.low_ports) = (folder.clone(), users, low_ports);
                },
                Config::default(),
            );
            let other = Program::of(&fourth.path, OTHER);
            let end = Some(socket.stream.as_fd());
            assert_eq!(again(&other, socket.cookie, &wanted(at(WEB), claim), end).err(), Some(libc::EACCES));
            fourth.stop().expect("it was stopped");
            ended.push(fourth);
        }
        // Without the key nothing that was said counts.
        std::fs::remove_file(folder.join(".lab.key")).expect("a key");
        let settings = bypath_netstack::service::Settings { name: "lab".into(), folder, ..Default::default() };
        drop(Service::open(engine(Config::default()), settings.clone()).expect("a service"));
        let fifth = Running::with(|other| *other = settings, Config::default());
        let root = fifth.program();
        let end = Some(socket.stream.as_fd());
        assert_eq!(again(&root, socket.cookie, &wanted(at(WEB), claim), end).err(), Some(libc::EACCES));
    }
}

/// Sockets of the service that listen.
fn listening(running: &Running) -> usize {
    running.query("sockets").iter().filter(|socket| socket["state"] == "Listen").count()
}

users! {
    fn who_held_a_socket_together_does_so_again_and_it_lasts_as_long_as_anybody_has_what_was_left() {
        let mut first = Running::new();
        let folder = first.path.parent().expect("a folder").to_owned();
        let program = first.program();
        let local = at(WEB);
        let (old, claim) = listener(&program, local);
        first.stop().expect("it was stopped");
        // Each of a line of services: what was left of the first one is what counts.
        let mut ended = Vec::new();
        for _ in 0..2 {
            let mut next = Running::with(|settings| settings.folder = folder.clone(), Config::default());
            let workers = [0; 2].map(|_| Program::of(&next.path, WORKER));
            let mut have: Vec<Sock<'_>> = Vec::new();
            for (n, worker) in workers.iter().enumerate() {
                let answer = worker.ask_with(
                    Op::Again,
                    old.cookie,
                    &wanted(local, claim).encode(),
                    Some(old.stream.as_fd()),
                );
                assert_eq!((answer.errno, Body(&answer.body).u32().unwrap_or(0)), (0, n as u32));
                let mine = Sock::of(worker, answer.with.expect("a descriptor"), answer.socket);
                assert_eq!(bind(worker, &mine, at("10.9.0.2:81")), libc::EACCES);
                assert_eq!(bind(worker, &mine, local), 0);
                assert_eq!(mine.listen(128), 0);
                have.push(mine);
            }
            assert!(have[0].cookie == have[1].cookie && listening(&next) == 1);
            // Those who had it end, those who come have it: who called meanwhile waits for them.
            drop(have);
            let caller = TcpStream::connect(local).expect("a connection");
            let late = Program::of(&next.path, WORKER);
            let (end, cookie) =
                again(&late, old.cookie, &wanted(local, claim), Some(old.stream.as_fd())).expect("the same");
            let mine = Sock::of(&late, end, cookie);
            let (_taken, record) = mine.accept();
            assert_eq!(record.remote.0, caller.local_addr().ok());
            drop(mine);
            assert_eq!(listening(&next), 1);
            next.stop().expect("it was stopped");
            drop((workers, late));
            ended.push(next);
        }
        // Nobody holds anything: the port is free at once, and nobody is let wait who calls.
        let third = Running::with(|settings| settings.folder = folder.clone(), Config::default());
        let worker = Program::of(&third.path, WORKER);
        let wanted = wanted(local, claim);
        let (end, cookie) = again(&worker, old.cookie, &wanted, Some(old.stream.as_fd())).expect("a socket");
        let mine = Sock::of(&worker, end, cookie);
        assert_eq!((bind(&worker, &mine, local), mine.listen(8)), (0, 0));
        drop((mine, old));
        let root = third.program();
        let (new, _) = listener(&root, local);
        let _caller = TcpStream::connect(local).expect("a connection");
        let _taken = new.accept();
    }
}

users! {
    fn datagrams_come_back_to_where_they_were_and_go_nowhere_before() {
        let mut first = Running::new();
        let folder = first.path.parent().expect("a folder").to_owned();
        let program = first.program();
        let local = at("10.9.0.2:53");
        let kind = [libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP];
        let answer = program.ask(Op::Open, 0, &kind.map(i32::to_ne_bytes).concat());
        let (old, cookie) = (answer.with.expect("a descriptor"), answer.socket);
        let answer = program.ask(Op::Bind, cookie, &Address(Some(local)).encode());
        assert_eq!(answer.errno, 0);
        let claim = claim_of(&answer.body[bypath_shm::service::ADDRESS..]);
        let named = program.ask(Op::Names, cookie, &[]).body;
        assert_eq!(claim_of(&named[2 * bypath_shm::service::ADDRESS + 4..]), claim);
        first.stop().expect("it was stopped");

        let second = Running::with(|settings| settings.folder = folder.clone(), Config::default());
        let worker = Program::of(&second.path, WORKER);
        let wanted = Wanted { kind, local: Address(Some(local)), claim };
        let before = cookie;
        let (end, cookie) = again(&worker, before, &wanted, Some(old.as_fd())).expect("a socket");
        let kernel = std::net::UdpSocket::bind("10.9.0.1:5353").expect("a socket of the kernel");
        kernel.set_read_timeout(Some(crate::LONGEST)).expect("a time-out");
        let to = kernel.local_addr().expect("an address");
        let send = |octets: &[u8]| {
            let header = bypath_shm::datagram::Header::datagram(Address(Some(to))).encode();
            let record = [&header[..], octets].concat();
            bypath_sys::seqpacket::send(end.as_fd(), &record, None).expect("room");
        };
        send(b"before");
        let answer = worker.ask_with(Op::Connect, cookie, &Address(Some(to)).encode(), Some(end.as_fd()));
        assert_eq!(answer.errno, libc::EACCES);
        let bound = |to: SocketAddr| {
            worker.ask_with(Op::Bind, cookie, &Address(Some(to)).encode(), Some(end.as_fd())).errno
        };
        // The service has taken what was sent before once it answers a later question.
        until(|| (bypath_sys::sock::outq(std::os::fd::AsRawFd::as_raw_fd(&end)) == Ok(0)).then_some(()));
        assert_eq!((bound(at("10.9.0.2:54")), bound(local)), (libc::EACCES, 0));
        send(b"behind");
        let mut room = [0; 16];
        let (len, from) = kernel.recv_from(&mut room).expect("a datagram");
        assert_eq!((&room[..len], from), (&b"behind"[..], local));
        // Another process that had it has the same one.
        let other = Program::of(&second.path, WORKER);
        let shown = Some(old.as_fd());
        let answer = other.ask_with(Op::Again, before, &wanted.encode(), shown);
        let same = answer.with.expect("a descriptor");
        assert_eq!((answer.socket, Body(&answer.body).u32()), (cookie, Some(1)));
        let body = Address(Some(local)).encode();
        assert_eq!(other.ask_with(Op::Bind, cookie, &body, Some(same.as_fd())).errno, 0);
        kernel.send_to(b"back", local).expect("a way");
        drop(end);
        until(|| bypath_sys::sock::inq(std::os::fd::AsRawFd::as_raw_fd(&same)).is_ok_and(|n| n > 0).then_some(()));
    }
}

users! {
    fn what_a_stranger_sends_along_holds_nobody_up() {
        // The service is for root alone.
        let running = Running::new();
        crate::hostile::callers_send_what_lingers(&running, true, || Program::of(&running.path, WORKER));
    }
}

users! {
    fn a_stranger_who_greets_with_descriptors_is_left() {
        let running = Running::new();
        let stranger = Program::of(&running.path, WORKER);
        assert_eq!(stranger.ask(Op::Hello, 0, &VERSION.to_ne_bytes()).errno, 0);
        let hello = Header { op: Op::Hello, serial: 2, socket: 0, errno: 0 }.encode();
        let null = std::fs::File::open("/dev/null").expect("a file");
        stranger.say_with_numbers(&[&hello[..], &VERSION.to_ne_bytes()].concat(), &[null.as_raw_fd()]);
        assert!(stranger.hear().is_none(), "it costs the service a thread, and is good for nothing");
    }
}

users! {
    fn who_shows_something_else_than_a_socket_of_the_service_is_refused() {
        let running = Running::new();
        let opens = [libc::AF_INET, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
        let (asks, shown) = (br#"{"what":"service"}"#, [0u32, 0].map(u32::to_ne_bytes).concat());
        let questions = [(Op::Open, &opens[..]), (Op::Query, &asks[..]), (Op::Interfaces, &shown[..])];
        let program = running.program();
        let (mut theirs, _) = program.listener(at("10.9.0.2:0"));
        for (op, body) in questions {
            // His connection to the service is an end that the service made, too.
            let stranger = Program::of(&running.path, WORKER);
            let own = stranger.own();
            let cookie = bypath_sys::pair::cookie(own.as_fd()).expect("a socket");
            let answer = stranger.ask_with(op, cookie, body, Some(own.as_fd()));
            assert_eq!((answer.errno, answer.body.len()), (libc::EACCES, 0), "{op:?}");
            assert!(answer.with.is_none() && stranger.hear().is_none(), "{op:?}");
            // Who holds one socket may ask about that one.
            let stranger = Program::of(&running.path, WORKER);
            let shown = Some(theirs.stream.as_fd());
            assert_eq!(stranger.ask_with(Op::Names, theirs.cookie, &[], shown).errno, 0);
            let answer = stranger.ask_with(op, theirs.cookie, body, shown);
            assert_eq!((answer.errno, answer.body.len()), (libc::EACCES, 0), "{op:?}");
            assert!(answer.with.is_none() && stranger.hear().is_none(), "{op:?}");
        }
        // Nor is there anything to be said of his connection as of a socket.
        for op in [Op::Names, Op::Error] {
            let stranger = Program::of(&running.path, WORKER);
            let own = stranger.own();
            let cookie = bypath_sys::pair::cookie(own.as_fd()).expect("a socket");
            assert_eq!(stranger.ask_with(op, cookie, &[], Some(own.as_fd())).errno, libc::EACCES, "{op:?}");
        }
        // Of one whose end the service has closed he who holds it is told what is left.
        theirs = program.socket(at("10.9.0.1:0"));
        assert_eq!(theirs.connect(at("10.9.0.1:9")), libc::ECONNREFUSED);
        let stranger = Program::of(&running.path, WORKER);
        assert_eq!(stranger.ask_with(Op::Names, theirs.cookie, &[], Some(theirs.stream.as_fd())).errno, 0);
    }
}
