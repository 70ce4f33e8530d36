//! What a user may have, and whose sockets are whose.

use crate::datagrams::Dgram;
use crate::fuse::Slow;
use crate::program::{Program, become_user, ready};
use crate::rings::{Process, until};
use crate::{LONGEST, Running, at, isolated, kernels, on_one_processor, patient, users};
use bypath_netstack::service::Settings;
use bypath_shm::service::{HEADER, Header, Op, VERSION};
use bypath_stack::config::Config;
use nix::poll::PollFlags;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A user whom the service is for.
const ASKER: u32 = 65_003;

isolated! {
    fn a_user_has_so_many_sockets_and_callers_wait_for_one() {
        let running = Running::with(|settings| settings.sockets_per_user = 3, Config::default());
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let first = program.open(false).expect("a socket");
        let second = program.open(false).expect("a socket");
        assert_eq!(program.open(false).err(), Some(libc::EMFILE));
        let mut kernel = patient(TcpStream::connect(to).expect("a connection"));
        assert_eq!(listener.ready(PollFlags::POLLIN, 200), PollFlags::empty());
        drop(first);
        assert_eq!(listener.ready(PollFlags::POLLIN, LONGEST.as_millis() as u16), PollFlags::POLLIN);
        let (own, _) = listener.accept();
        (&own.stream).write_all(b"x").expect("written");
        kernel.read_exact(&mut [0; 1]).expect("an octet");
        drop(second);
    }
}

isolated! {
    fn a_user_who_has_too_many_octets_waits_and_goes_on() {
        let running = Running::with(|settings| settings.octets_per_user = 100_000, Config::default());
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let pairs: Vec<_> = (0..4).map(|_| {
            let own = program.connect(to);
            let kernel = listener.accept().expect("a connection").0;
            own.stream.set_nonblocking(true).expect("a socket");
            (own, patient(kernel))
        }).collect();
        // The kernel does not read: what is taken is bounded.
        let piece = vec![5; 65_536];
        let mut written = [0; 4];
        for _ in 0..50 {
            for (n, (own, _)) in pairs.iter().enumerate() {
                while let Ok(more) = (&own.stream).write(&piece) {
                    written[n] += more;
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let service = running.query("service").remove(0);
        let octets = service["users"][0]["octets"].as_u64().expect("a number");
        // Two turns beyond it at most.
        assert!(octets < 100_000 + 2 * (256 << 10), "{octets}");
        for (n, (own, kernel)) in pairs.iter().enumerate() {
            own.stream.shutdown(std::net::Shutdown::Write).expect("an end");
            let mut got = Vec::new();
            { kernel }.read_to_end(&mut got).expect("an end");
            assert_eq!(got.len(), written[n]);
        }
    }
}

users! {
    fn a_user_whose_questions_take_long_does_not_keep_others_from_theirs() {
        const ASKERS: usize = 200;
        /// Answers that fit where nobody reads them.
        const EACH: usize = 150;
        let message = |op, body: &[u8]| [&Header { op, serial: 1, socket: 0, errno: 0 }.encode()[..], body].concat();
        // What is answered, and what is not: here it is about no socket.
        let quick = [libc::IPPROTO_TCP, libc::TCP_QUICKACK, 1].map(i32::to_ne_bytes).concat();
        let hello = VERSION.to_ne_bytes().to_vec();
        for (op, body, count) in [(Op::Hello, hello, "asked_hello"), (Op::Say, quick, "asked_say")] {
            let users = |settings: &mut Settings| settings.users = Some(vec![ASKER]);
            let (_running, (other, _crowd)) = Running::asked(users, Config::default(), |path| {
                let crowd: Vec<_> = (0..ASKERS).map(|_| Program::of(path, ASKER)).collect();
                for asker in &crowd {
                    (0..EACH).for_each(|_| asker.say(&message(op, &body)).expect("room"));
                }
                let other = Program::new(path);
                other.say(&message(Op::Query, br#"{"what":"stats"}"#)).expect("room");
                (other, crowd)
            });
            let row = |(answer, _): (Vec<u8>, _)| serde_json::from_slice::<Value>(&answer[HEADER..]).expect("JSON");
            let found = std::iter::from_fn(|| other.hear()).map(row).find(|row| row["name"] == count);
            let asked = found.expect("a count")["value"].as_u64().expect("a number");
            // Who came last is told how many had been asked by then.
            assert!(asked > 0 && asked < (ASKERS * EACH / 4) as u64, "{count}: {asked}");
        }
    }
}

/// So many epoll watches on one socket: a message to it takes some milliseconds.
fn watches(of: BorrowedFd<'_>, rows: usize, columns: usize) -> (Vec<OwnedFd>, Vec<Epoll>) {
    let doubles: Vec<OwnedFd> = (0..rows).map(|_| of.try_clone_to_owned().expect("a descriptor")).collect();
    let set = || {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("a set");
        let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
        doubles.iter().for_each(|double| set.add(double, event).expect("a watch"));
        set
    };
    let sets = (0..columns).map(|_| set()).collect();
    (doubles, sets)
}

fn hello(program: &Program) {
    assert_eq!(program.ask(Op::Hello, 0, &VERSION.to_ne_bytes()).errno, 0);
}

/// How long questions of root's take in a second, as multiples of what a message to a thread of this process and back takes in the same second: what else runs on
/// the machine makes both longer.
fn answers_in_a_second(program: &Program) -> f64 {
    let (here, there) = UnixDatagram::pair().expect("two ends");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; HEADER];
            while there.recv(&mut room).is_ok_and(|len| len > 0) {
                there.send(&room).expect("who waits for it");
            }
        });
        let mut took = [Duration::ZERO; 2];
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            let begun = Instant::now();
            hello(program);
            let answered = Instant::now();
            here.send(&[0; HEADER]).expect("sent");
            here.recv(&mut [0; HEADER]).expect("an echo");
            took[0] += answered - begun;
            took[1] += answered.elapsed();
        }
        here.send(&[]).expect("the end");
        took[0].div_duration_f64(took[1])
    })
}

/// Runs something of another user's meanwhile, until it is told to stop; how long others' questions took before, and in its third second.
/// All of it belongs on [one processor](on_one_processor): to wake another one takes longer than an answer, and whether that is needed is chance.
fn beside(running: &Running, does: impl FnOnce(&AtomicBool, &AtomicBool) + Send) -> [f64; 2] {
    let (other, over, begun) = (running.program(), AtomicBool::new(false), AtomicBool::new(false));
    let alone = answers_in_a_second(&other);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            become_user(ASKER);
            does(&begun, &over);
        });
        while !begun.load(Relaxed) && !one.is_finished() {
            std::thread::yield_now();
        }
        // The first call of all is not held against anybody.
        answers_in_a_second(&other);
        let beside = answers_in_a_second(&other);
        over.store(true, Relaxed);
        [alone, beside]
    })
}

users! {
    fn who_makes_answers_slow_waits_and_others_do_not() {
        on_one_processor();
        let running = Running::with(|settings| settings.users = Some(vec![ASKER]), Config::default());
        let [alone, beside] = beside(&running, |begun, over| {
            // Each of them has a question that waits all the time.
            let asks = || {
                let program = Program::new(&running.path);
                let _watches = watches(program.own().as_fd(), 300, 300);
                begun.store(true, Relaxed);
                std::iter::from_fn(|| (!over.load(Relaxed)).then(|| hello(&program))).count()
            };
            std::thread::scope(|scope| {
                let askers: Vec<_> = (0..3).map(|_| scope.spawn(asks)).collect();
                assert!(askers.into_iter().any(|asker| asker.join().expect("he goes on") > 0));
            });
        });
        assert!(beside < alone * 4.0, "{beside} after {alone}");
    }
}

users! {
    fn a_socket_of_roots_that_another_one_makes_slow_waits_alone() {
        on_one_processor();
        let running = Running::with(|settings| settings.users = Some(vec![ASKER]), Config::default());
        let (program, (listener, to)) = (running.program(), kernels("10.9.0.1:0"));
        // As a worker has what its master has accepted.
        let own = program.connect(to);
        let mut kernel = listener.accept().expect("a connection").0;
        let [alone, beside] = beside(&running, |begun, over| {
            let _watches = watches(own.stream.as_fd(), 300, 300);
            begun.store(true, Relaxed);
            while !over.load(Relaxed) {
                kernel.write_all(b"x").expect("written");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(beside < alone * 4.0, "{beside} after {alone}");
    }
}

users! {
    fn who_makes_his_octets_and_datagrams_slow_waits_and_others_do_not() {
        on_one_processor();
        let running = Running::with(|settings| settings.users = Some(vec![ASKER]), Config::default());
        let (listener, to) = kernels("10.9.0.1:0");
        let [alone, beside] = beside(&running, |begun, over| {
            let program = Program::new(&running.path);
            let own = program.connect(to);
            let mut kernel = listener.accept().expect("a connection").0;
            let datagrams = Dgram::new(&program, false);
            let hears = datagrams.bind("10.9.0.2:7777").expect("a port");
            let sender = UdpSocket::bind("10.9.0.1:0").expect("a port");
            let _watches = [own.stream.as_fd(), datagrams.end.as_fd()].map(|end| watches(end, 300, 300));
            begun.store(true, Relaxed);
            while !over.load(Relaxed) {
                kernel.write_all(b"x").expect("written");
                sender.send_to(b"x", hears).expect("sent");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        assert!(beside < alone * 4.0, "{beside} after {alone}");
    }
}

users! {
    fn who_sends_a_file_whose_close_waits_waits_alone() {
        const STRANGER: u32 = 65_004;
        let running = Running::with(|settings| settings.users = Some(vec![ASKER]), Config::default());
        // Behind it: closes are answered before the service is waited for.
        let slow = match Slow::new() {
            Ok(slow) => slow,
            Err(e) => {
                let name = "who_sends_a_file_whose_close_waits_waits_alone";
                return crate::namespace::skip(name, &format!("no FUSE: {e}"));
            }
        };
        let other = running.program();
        // One who may have sockets and shared memory, and one whom the service is not for.
        let askers = [ASKER, STRANGER].map(|uid| Program::of(&running.path, uid));
        let (listener, to) = kernels("10.9.0.1:0");
        let own = askers[0].connect(to);
        let _kernel = listener.accept().expect("a connection");
        let mut process = Process::new(1);
        process.meet_of(&askers[0], own.cookie, 4096).expect("rings");
        let say = |program: &Program, op| {
            let message = [&Header { op, serial: 1, socket: 0, errno: 0 }.encode()[..], &[0; 8]].concat();
            program.say_with_numbers(&message, &[slow.file().as_raw_fd()]);
        };
        // Among bells first; nothing else of his is heard then.
        process.say(&[slow.file().as_raw_fd()]);
        until(|| (slow.closes() > 0).then_some(()));
        hello(&other);
        let waits = Program::of(&running.path, ASKER);
        say(&waits, Op::Hello);
        assert_eq!(ready(waits.own().as_fd(), PollFlags::POLLIN, 300), PollFlags::empty());
        say(&askers[1], Op::Bind);
        until(|| (slow.closes() > 1).then_some(()));
        hello(&other);
        assert_eq!(ready(waits.own().as_fd(), PollFlags::POLLIN, 300), PollFlags::empty());
        // With nothing, and more of them than make sense: of others, as these are held already.
        for (n, (len, count)) in [(0, 1), (HEADER, 5), (HEADER, 200)].into_iter().enumerate() {
            let (before, one) = (slow.closes(), Program::of(&running.path, STRANGER + 1 + n as u32));
            one.say_with_numbers(&[0; HEADER][..len], &vec![slow.file().as_raw_fd(); count]);
            until(|| (slow.closes() >= before + count).then_some(()));
            hello(&other);
        }
        slow.answer();
        assert!(waits.hear().is_none() && askers[1].hear().is_none(), "it made no sense");
        hello(&askers[0]);
        hello(&Program::of(&running.path, STRANGER));
    }
}

isolated! {
    fn ports_of_root_are_roots() {
        let running = Running::new();
        let program = running.program();
        assert_eq!(program.open(false).expect("a socket").bind(at("10.9.0.2:80")), Ok(at("10.9.0.2:80")));
        assert_eq!(program.open(false).expect("a socket").bind(at("10.9.0.3:80")), Err(libc::EADDRNOTAVAIL));
        let other = u64::MAX;
        assert_eq!(program.ask(bypath_shm::service::Op::Names, other, &[]).errno, libc::EBADF);
    }
}
