//! What all users of a service have together: one of them takes no more of it than he leaves.

use crate::datagrams::{Dgram, kernels};
use crate::program::Program;
use crate::rings::{Process, until};
use crate::{LONGEST, Running, SILENT, at, isolated, kernels as streams, users};
use bypath_netstack::service::Settings;
use bypath_shm::datagram::{Header, Kind};
use bypath_shm::service::{Address, ERROR_QUEUE, LEVEL, Op, VERSION};
use bypath_stack::config::Config;
use bypath_stack::udp::demux::SHARERS;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// A user whom the service is for.
const HOG: u32 = 65_005;

fn for_hog(settings: &mut Settings) {
    settings.users = Some(vec![HOG]);
}

/// Says that all is over, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// IP_ADD_MEMBERSHIP of a group on any interface, or IPV6_ADD_MEMBERSHIP; what it answers.
fn join(socket: &Dgram<'_>, v6: bool, n: u16) -> i32 {
    let [high, low] = n.to_be_bytes();
    if v6 {
        let group = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, n);
        return socket.set(
            libc::IPPROTO_IPV6,
            libc::IPV6_ADD_MEMBERSHIP,
            &[&group.octets()[..], &[0; 4]].concat(),
        );
    }
    let group = Ipv4Addr::new(239, 9, high, low);
    socket.set(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &[group.octets(), [0; 4]].concat())
}

users! {
    fn a_user_who_joins_all_groups_leaves_others_some() {
        for (v6, errno) in [(false, libc::ENOBUFS), (true, libc::ENOMEM)] {
            let running = Running::with(for_hog, Config { groups: 32, ..Config::default() });
            let (hog, other) = (Program::of(&running.path, HOG), running.program());
            let sockets: Vec<_> = (0..4).map(|_| Dgram::new(&hog, v6)).collect();
            let answers: Vec<_> = (0..40).map(|n| join(&sockets[usize::from(n) % 4], v6, n)).collect();
            let joined = answers.iter().take_while(|answer| **answer == 0).count();
            assert!((12..=16).contains(&joined), "{joined}");
            assert!(answers[joined..].iter().all(|answer| *answer == errno), "{answers:?}");
            let honest = Dgram::new(&other, v6);
            assert_eq!([100, 101, 102].map(|n| join(&honest, v6, n)), [0; 3]);
        }
    }
}

users! {
    fn a_user_who_shares_a_port_with_himself_has_so_many_sockets_there_and_leaves_others_some() {
        const SHARED: &str = "0.0.0.0:5353";
        let running = Running::with(for_hog, Config::default());
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        let lends = |program| {
            let socket = Dgram::new(program, false);
            assert_eq!(socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()), 0);
            socket
        };
        let hogs: Vec<_> = (0..400).map(|_| lends(&hog)).collect();
        let answers: Vec<_> = hogs.iter().map(|socket| socket.bind(SHARED).map_or_else(|errno| errno, |_| 0)).collect();
        let bound = answers.iter().take_while(|answer| **answer == 0).count();
        assert_eq!(bound, SHARERS / 2);
        assert!(answers[bound..].iter().all(|answer| *answer == libc::EADDRINUSE), "{answers:?}");
        // Who has a partner has left room for another one, and finds none when he has no partner any more.
        assert_eq!(hogs[0].connect(at("10.9.0.1:7")), 0);
        assert!(hogs[bound].bind(SHARED).is_ok());
        assert_eq!(hogs[0].ask(Op::Connect, &Address(None).encode()).errno, libc::EADDRINUSE);
        assert_eq!(hogs[0].names().1, Some(at("10.9.0.1:7")));
        // What everybody is told all of them hear, and so does who comes later.
        let honest = lends(&other);
        honest.bind(SHARED).expect("a port");
        assert_eq!(join(&honest, false, 1), 0);
        let (kernel, _) = kernels("10.9.0.1:0");
        kernel.send_to(b"all", at("239.9.0.1:5353")).expect("sent");
        for socket in [&hogs[1], &hogs[bound], &honest] {
            assert_eq!(socket.headed_or_naked().1, b"all");
        }
    }
}

/// Octets that wait for this user, as the service tells them.
fn waiting(running: &Running, uid: u32) -> usize {
    let service = running.query("service").remove(0);
    let users = service["users"].as_array().expect("users");
    let row = users.iter().find(|row| row["uid"] == uid).expect("the user");
    row["octets"].as_u64().expect("a number") as usize
}

users! {
    fn one_datagram_for_many_sockets_is_no_more_for_all_of_them_than_their_user_may_have() {
        const OCTETS: usize = 1 << 20;
        let change = |settings: &mut Settings| {
            for_hog(settings);
            settings.octets_per_user = OCTETS;
        };
        let running = Running::with(change, Config::default());
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        let listens = |program| {
            let socket = Dgram::new(program, false);
            assert_eq!(socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()), 0);
            socket.bind("0.0.0.0:5000").expect("a port");
            assert_eq!(join(&socket, false, 1), 0);
            socket
        };
        let hogs: Vec<_> = (0..200).map(|_| listens(&hog)).collect();
        let honest = listens(&other);
        // What he sends comes back to all of them at once, until it is more than fits into their pairs.
        let sender = Dgram::new(&hog, false);
        let sends = || {
            let group = Header::datagram(Address(Some(at("239.9.0.1:5000"))));
            (0..50).for_each(|_| sender.say(&group, &[7; 1000]));
            waiting(&running, HOG)
        };
        until(|| (sends() > OCTETS / 4).then_some(()));
        let most = (0..10).map(|_| sends()).max().expect("ten");
        // Small ones, for sockets that have none, come beside it.
        assert!(most < OCTETS + OCTETS / 4, "{most}");
        // What another one's hears comes all the same, and who reads hears again.
        let (kernel, _) = kernels("10.9.0.1:0");
        for socket in [&honest].into_iter().chain(&hogs) {
            until(|| {
                kernel.send_to(b"new", at("239.9.0.1:5000")).expect("sent");
                let records = std::iter::from_fn(|| socket.is_readable(5).then(|| socket.headed_or_naked().1));
                records.take(1000).any(|octets| octets == b"new").then_some(())
            });
        }
    }
}

users! {
    fn what_a_long_receive_buffer_holds_counts_for_its_user() {
        const LEN: usize = 1000;
        const COUNT: u32 = 800;
        let running = Running::with(for_hog, Config::default());
        let hog = Program::of(&running.path, HOG);
        let socket = Dgram::new(&hog, false);
        assert_eq!(socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &(1i32 << 20).to_ne_bytes()), 0);
        let to = socket.bind("10.9.0.2:0").expect("a port");
        let (kernel, _) = kernels("10.9.0.1:0");
        // As many as SO_RCVBUF has room for; each is there before the next one comes.
        let came = || {
            let rows = running.query("stats");
            let row = rows.into_iter().find(|row| row["name"] == "udp_delivered");
            row.expect("a count")["value"].as_u64().expect("a number")
        };
        for n in 0..COUNT {
            kernel.send_to(&[&n.to_ne_bytes()[..], &vec![0; LEN - 4]].concat(), to).expect("sent");
            until(|| (came() > u64::from(n)).then_some(()));
        }
        let waits = waiting(&running, HOG);
        // The pair holds no more than that of one who set nothing.
        assert!(waits > COUNT as usize * LEN - 212_992, "{waits}");
        for n in 0..COUNT {
            assert_eq!(socket.headed_or_naked().1[..4], n.to_ne_bytes());
        }
    }
}

users! {
    fn errors_that_a_program_does_not_ask_for_count_for_its_user() {
        let running = Running::with(for_hog, Config::default());
        let hog = Program::of(&running.path, HOG);
        let socket = Dgram::new(&hog, false);
        assert_eq!(socket.set(libc::IPPROTO_IP, libc::IP_RECVERR, &1i32.to_ne_bytes()), 0);
        // To the port of nobody; each of them is told with its octets.
        let nobodys = Header::datagram(Address(Some(at("10.9.0.1:7"))));
        let waits = until(|| {
            socket.say(&nobodys, &[7; 500]);
            Some(waiting(&running, HOG)).filter(|octets| *octets > 4000)
        });
        assert!(waits < 64 << 10, "{waits}");
        let next = [LEVEL, ERROR_QUEUE, 1 << 10].map(i32::to_ne_bytes).concat();
        until(|| {
            while socket.ask(Op::Get, &next).errno == 0 {}
            (waiting(&running, HOG) == 0).then_some(())
        });
    }
}

users! {
    fn a_user_who_takes_all_descriptors_of_the_service_leaves_others_some() {
        setrlimit(Resource::RLIMIT_NOFILE, 600, 600).expect("a limit");
        let running = Running::with(for_hog, Config::default());
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        // Both ends of each socket are this process's.
        let hogs: Vec<_> = (0..600).map(|_| hog.open(false)).take_while(Result::is_ok).collect();
        assert!((100..=210).contains(&hogs.len()), "{}", hogs.len());
        assert_eq!(hog.open(false).err(), Some(libc::EMFILE));
        // He has had his, whatever it is for.
        assert!(Dgram::of(&hog, false, 0).is_err());
        let others: Vec<_> = (0..50).map(|_| other.open(false)).collect();
        assert!(others.iter().all(Result::is_ok));
        drop(hogs);
        running.has_sockets(50);
        assert!(hog.open(false).is_ok());
    }
}

/// What the service counts of this user.
fn count(running: &Running, uid: u32, what: &str) -> u64 {
    let users = running.query("service").remove(0)["users"].take();
    let rows = users.as_array().expect("users").iter();
    rows.filter(|row| row["uid"] == uid).map(|row| row[what].as_u64().expect("a number")).sum()
}

users! {
    fn a_user_whose_processes_share_memory_leaves_others_descriptors_of_the_service() {
        setrlimit(Resource::RLIMIT_NOFILE, 600, 600).expect("a limit");
        let running = Running::with(for_hog, Config::default());
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        let (listener, to) = streams("10.9.0.1:0");
        let (mut processes, mut arenas, mut refused) = (Vec::new(), 0, 0);
        // Processes that say of slots whose connections are over that they are in use.
        while refused < 2 && arenas < 400 {
            let mut process = Process::new(arenas + 1);
            let mut meets = || {
                let Ok(socket) = hog.open(false) else { return false };
                assert_eq!(socket.connect(to), 0);
                let _peer = listener.accept().expect("a connection");
                let Ok(rings) = process.meet_of(&hog, socket.cookie, 4096) else { return false };
                rings.keep_all();
                arenas += 1;
                true
            };
            refused += u32::from(!(0..32).all(|_| meets()));
            processes.push(process);
        }
        assert!((150..=290).contains(&arenas), "{arenas}");
        // As many bells as there is room for, for which he has a third more of what is left.
        let bell = bypath_sys::eventfd::Bell::new().expect("a bell");
        (3..600).for_each(|n| processes[0].bell(n, bell.as_fd()));
        let has = until(|| Some(count(&running, HOG, "descriptors")).filter(|has| *has > arenas + 20));
        assert!(has < 400, "{has}");
        let others: Vec<_> = (0..20).map(|_| other.open(false)).collect();
        assert!(others.iter().all(Result::is_ok));
        drop((others, processes));
        until(|| (count(&running, HOG, "descriptors") == 1).then_some(()));
    }
}

users! {
    fn what_a_user_connects_to_who_does_not_answer_leaves_others_descriptors_of_the_service() {
        setrlimit(Resource::RLIMIT_NOFILE, 600, 600).expect("a limit");
        let running = Running::with(for_hog, Config::default());
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        // The program's end is kept while it connects, and one is this process's: three for each.
        let begins = |_| {
            let socket = hog.open(false)?;
            let errno = socket.begin(at(SILENT));
            if errno == libc::EINPROGRESS { Ok(socket) } else { Err(errno) }
        };
        let begun: Vec<_> = (0..600).map(begins).take_while(Result::is_ok).collect();
        assert!((60..=120).contains(&begun.len()), "{}", begun.len());
        // Of the one that was refused, its end goes as the service learns that the program has closed it.
        until(|| (count(&running, HOG, "descriptors") == 2 * begun.len() as u64 + 1).then_some(()));
        assert!(matches!(begins(0).err(), Some(libc::EMFILE | libc::ENOBUFS)));
        assert!(other.open(false).is_ok());
        drop(begun);
        drop(hog);
        until(|| (count(&running, HOG, "descriptors") == 0).then_some(()));
    }
}

users! {
    fn what_tells_whether_an_end_that_is_shut_is_open_counts_for_its_user() {
        let running = Running::with(for_hog, Config::default());
        let hog = Program::of(&running.path, HOG);
        let (_listener, to) = streams("10.9.0.1:0");
        let socket = hog.connect(to);
        // Its end was kept while it connected.
        until(|| (count(&running, HOG, "descriptors") == 2).then_some(()));
        let shut = || {
            let how = libc::SHUT_RD.to_ne_bytes();
            hog.ask_with(Op::Shutdown, socket.cookie, &how, Some(socket.stream.as_fd())).errno
        };
        assert_eq!([shut(), shut()], [0; 2]);
        assert_eq!(count(&running, HOG, "descriptors"), 3);
        drop(socket);
        until(|| (count(&running, HOG, "descriptors") == 1).then_some(()));
    }
}

users! {
    fn rings_of_connections_that_are_over_count_as_long_as_their_process_has_them() {
        const MOST: usize = 8 << 20;
        let running = Running::with(|settings| (settings.octets_per_user, settings.users) = (MOST, Some(vec![HOG])), Config::default());
        let hog = Program::of(&running.path, HOG);
        let (listener, to) = streams("10.9.0.1:0");
        let (mut process, mut octets) = (Process::new(7), 0);
        let mut meets = || {
            let socket = hog.connect(to);
            let _peer = listener.accept().expect("a connection");
            process.meet_of(&hog, socket.cookie, 64 << 10).map(|rings| rings.keep_all())
        };
        let refused = (0..40).find_map(|_| meets().map(|more| octets += more).err());
        assert_eq!(refused, Some(libc::ENOBUFS));
        assert!((MOST / 2..=MOST).contains(&octets), "{octets}");
        running.has_sockets(0);
        assert_eq!((count(&running, HOG, "rings"), meets().err()), (octets as u64, Some(libc::ENOBUFS)));
        drop(process);
        until(|| (count(&running, HOG, "rings") == 0).then_some(()));
    }
}

isolated! {
    fn a_question_whose_descriptor_finds_no_place_is_answered_and_its_connection_goes_on() {
        let running = Running::new();
        let program = running.program();
        let (_listener, to) = streams("10.9.0.1:0");
        let socket = program.open(false).expect("a socket");
        // It has closed what it sent with its answer.
        assert_eq!(program.ask(Op::Hello, 0, &VERSION.to_ne_bytes()).errno, 0);
        let first = program.own().as_raw_fd() as u64;
        setrlimit(Resource::RLIMIT_NOFILE, first, getrlimit(Resource::RLIMIT_NOFILE).expect("a limit").1).expect("less");
        assert_eq!(socket.begin(to), libc::EMFILE);
        let hard = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit").1;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("more");
        assert_eq!(socket.connect(to), 0);
    }
}

users! {
    fn what_a_user_sends_to_who_is_not_there_leaves_room_for_what_others_send() {
        let dropped = |running: &Running| {
            let row = running.query("stats").into_iter().find(|row| row["name"] == "neighbor_drop_queue_full");
            row.expect("a count")["value"].as_u64().expect("a number")
        };
        for protocol in [libc::IPPROTO_UDP, libc::IPPROTO_ICMP] {
            let running = Running::with(for_hog, Config { waiting_octets: 10_000, ..Config::default() });
            let (hog, other) = (Program::of(&running.path, HOG), running.program());
            // Both are an echo request and a datagram to the port of nobody.
            let message = |len: usize| [&[8, 0, 0, 0, 0, 0, 0, 1][..], &vec![9; len - 8]].concat();
            let many = Dgram::of(&hog, false, protocol).expect("a socket");
            let begun = Instant::now();
            while dropped(&running) == 0 {
                (100..110).for_each(|host| many.say(&Header::datagram(Address(Some(at(&format!("10.9.0.{host}:7"))))), &message(1000)));
                assert!(begun.elapsed() < LONGEST);
            }
            let one = Dgram::of(&other, false, protocol).expect("a socket");
            assert_eq!(one.connect(at("10.9.0.1:7")), 0);
            one.say(&Header::datagram(Address(None)), &message(2000));
            // It got there: the reply to it, or that nobody has the port.
            if protocol == libc::IPPROTO_ICMP {
                assert_eq!(one.headed_or_naked().1.len(), 2000);
            } else {
                assert_eq!(one.headed_or_naked().0.map(|header| header.kind), Some(Kind::Error));
            }
        }
    }
}

users! {
    fn a_user_whose_datagrams_are_many_does_not_keep_others_from_their_questions() {
        const SOCKETS: usize = 2000;
        let running = Running::with(for_hog, Config::default());
        let hog = Program::of(&running.path, HOG);
        let sockets: Vec<_> = (0..SOCKETS)
            .map(|_| {
                let socket = Dgram::new(&hog, false);
                assert_eq!(socket.connect(at("10.9.0.1:7")), 0);
                socket.end.set_nonblocking(true).expect("a socket");
                socket
            })
            .collect();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // As much as goes in, again and again.
                while !ends.load(Relaxed) {
                    sockets.iter().for_each(|socket| while socket.end.send(b"x").is_ok() {});
                }
            });
            let sent = || {
                let rows = running.query("stats");
                let row = rows.into_iter().find(|row| row["name"] == "udp_sent");
                row.expect("a count")["value"].as_u64().expect("a number")
            };
            let _ends = Ends(&ends);
            let begun = Instant::now();
            let (mut last, mut between) = (sent(), Vec::new());
            while between.len() < 10 {
                let now = sent();
                // Not before the flood has come.
                if now > last {
                    between.push(now - last);
                }
                last = now;
                assert!(begun.elapsed() < LONGEST);
            }
            between.sort_unstable();
            // 64 of each socket are a turn of all.
            assert!(between[5] < (SOCKETS * 64 / 4) as u64, "{between:?}");
        });
    }
}
