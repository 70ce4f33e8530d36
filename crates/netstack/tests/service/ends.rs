//! How connections end: what each side sees, as of the kernel's sockets.

use crate::program::Sock;
use crate::{LONGEST, Program, Running, at, isolated, kernels, patient};
use bypath_shm::service::{Body, LEVEL, LOOK, Op, TAKE, UNREAD};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

const CLOSE: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };

/// An end of a connection: a program's of the service, or the kernel's.
enum End<'a> {
    Service(Sock<'a>),
    Kernel(TcpStream),
}

impl End<'_> {
    fn write(&self, octets: &[u8]) -> String {
        let written = match self {
            End::Service(own) => (&own.stream).write(octets),
            End::Kernel(kernel) => { kernel }.write(octets),
        };
        match (written, self) {
            (Ok(_), _) => "written".to_owned(),
            (Err(e), End::Service(own)) => told(e.kind(), own),
            (Err(e), _) => format!("{:?}", e.kind()),
        }
    }

    /// Reads until an end or an error.
    fn read(&self) -> String {
        let mut got = 0;
        let mut room = [0; 4096];
        loop {
            let n = match self {
                End::Service(own) => (&own.stream).read(&mut room),
                End::Kernel(kernel) => { kernel }.read(&mut room),
            };
            match (n, self) {
                // Where the descriptor says end, the service knows whether it was one.
                (Ok(0), End::Service(own)) => return format!("{got} {}", told(ErrorKind::Other, own)),
                (Ok(0), _) => return format!("{got} end"),
                (Ok(n), _) => got += n,
                (Err(e), _) => return format!("{got} {:?}", e.kind()),
            }
        }
    }

    fn shut(&self) {
        match self {
            End::Service(own) => own.stream.shutdown(Shutdown::Write),
            End::Kernel(kernel) => kernel.shutdown(Shutdown::Write),
        }
        .expect("an end");
    }

    /// SO_LINGER with no time.
    fn linger(&self) {
        match self {
            End::Service(own) => {
                let value = [1i32, 0].map(i32::to_ne_bytes).concat();
                assert_eq!(own.set(libc::SOL_SOCKET, libc::SO_LINGER, &value), 0);
            }
            End::Kernel(kernel) => setsockopt(kernel, sockopt::Linger, &CLOSE).expect("an option"),
        }
    }

    /// Waits until so many octets can be read.
    fn has(&self, octets: usize) {
        let mut room = vec![0; octets];
        loop {
            let n = match self {
                End::Service(own) => peek(&own.stream, &mut room),
                End::Kernel(kernel) => kernel.peek(&mut room).expect("octets"),
            };
            if n == octets {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn peek(stream: &UnixStream, room: &mut [u8]) -> usize {
    use std::os::fd::AsRawFd;
    nix::sys::socket::recv(stream.as_raw_fd(), room, nix::sys::socket::MsgFlags::MSG_PEEK).expect("octets")
}

/// What an end or a broken pipe is, as ERROR says.
fn told(otherwise: ErrorKind, own: &Sock<'_>) -> String {
    match own.error() {
        0 if otherwise == ErrorKind::Other => "end".to_owned(),
        0 => format!("{otherwise:?}"),
        errno => format!("{:?}", std::io::Error::from_raw_os_error(errno).kind()),
    }
}

/// What two ends do, and what they see.
type Story = fn(End<'_>, End<'_>) -> Vec<String>;

const STORIES: [(&str, Story); 9] = [
    ("one closes, the other reads and writes", |a, b| {
        let written = a.write(b"hello");
        drop(a);
        vec![written, b.read(), b.write(b"x")]
    }),
    ("one finishes, the other answers and closes", |a, b| {
        let first = a.write(b"question");
        a.shut();
        let read = b.read();
        let second = b.write(b"an answer");
        drop(b);
        vec![first, read, second, a.read()]
    }),
    ("both finish", |a, b| {
        a.shut();
        let seen = b.read();
        b.shut();
        vec![seen, a.read(), b.read()]
    }),
    ("one finishes and writes", |a, b| {
        a.shut();
        vec![a.write(b"x"), b.read()]
    }),
    ("one closes with octets unread", |a, b| {
        let written = b.write(b"unread");
        a.has(6);
        drop(a);
        vec![written, b.read()]
    }),
    ("one closes with no time to linger", |a, b| {
        a.linger();
        drop(a);
        vec![b.read(), b.write(b"x")]
    }),
    ("one resets behind octets that were read", |a, b| {
        let written = a.write(b"before");
        b.has(6);
        let mut room = [0; 6];
        match &b {
            End::Service(own) => (&own.stream).read_exact(&mut room),
            End::Kernel(kernel) => { kernel }.read_exact(&mut room),
        }
        .expect("octets");
        a.linger();
        drop(a);
        vec![written, b.read()]
    }),
    ("the other has finished when one resets", |a, b| {
        b.shut();
        let seen = a.read();
        a.linger();
        drop(a);
        vec![seen, b.read()]
    }),
    ("the other closes while one has much to say", |a, b| {
        let octets = vec![7; 100_000];
        let written = a.write(&octets[..50_000]);
        drop(a);
        vec![written, b.read()]
    }),
];

fn kernel_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(at("127.0.0.1:0")).expect("a listener");
    let a = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    (patient(a), patient(listener.accept().expect("a connection").0))
}

fn service_pair(program: &Program, calls: bool) -> (Sock<'_>, TcpStream) {
    if calls {
        let (listener, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        (own, patient(listener.accept().expect("a connection").0))
    } else {
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let kernel = patient(TcpStream::connect(to).expect("a connection"));
        (listener.accept().0, kernel)
    }
}

isolated! {
    fn who_is_shut_both_ways_is_seen_when_it_is_closed() {
        let running = Running::new();
        let program = running.program();
        for unread in [false, true] {
            let (listener, to) = kernels("10.9.0.1:0");
            let own = program.connect(to);
            let kernel = patient(listener.accept().expect("a connection").0);
            let body = libc::SHUT_RDWR.to_ne_bytes();
            // With the socket's own descriptor only.
            let (other, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let wrong = program.ask_with(Op::Shutdown, own.cookie, &body, Some(other.as_fd()));
            assert_eq!((wrong.errno, own.ask(Op::Shutdown, &body).errno), (libc::EBADF, libc::EBADF));
            let take = |octets: u32| own.get_of(LEVEL, TAKE, octets);
            assert_eq!(take(10), Err(libc::ENOTCONN));
            assert_eq!(program.ask_with(Op::Shutdown, own.cookie, &body, Some(own.stream.as_fd())).errno, 0);
            (&kernel).write_all(b"later").expect("written");
            let end = Instant::now() + LONGEST;
            while own.get_of(LEVEL, UNREAD, 4) != Ok(5u32.to_ne_bytes().to_vec()) {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
            own.stream.shutdown(Shutdown::Both).expect("a shutdown");
            (&kernel).read_to_end(&mut Vec::new()).expect("an end");
            if !unread {
                assert_eq!(own.get_of(LEVEL, LOOK, 3), Ok(b"lat".to_vec()));
                assert_eq!((take(2), take(100), take(100)), (Ok(b"la".to_vec()), Ok(b"ter".to_vec()), Ok(vec![])));
            }
            // FIN-WAIT-2.
            let end = Instant::now() + LONGEST;
            while own.names().2 != 5 {
                assert!(Instant::now() < end, "{:?}", own.names());
                std::thread::yield_now();
            }
            assert_eq!(own.names().1, Some(to));
            // Another descriptor of the same end keeps it.
            let second = own.stream.try_clone().expect("a descriptor");
            let cookie = own.cookie;
            drop(own);
            let names = program.ask(Op::Names, cookie, &[]);
            assert_eq!(Body(&names.body[64..]).u32(), Some(5));
            drop(second);
            if unread {
                let gone = loop {
                    match (&kernel).write(b"x") {
                        Ok(n) => assert_eq!(n, 1),
                        Err(e) => break e.kind(),
                    }
                };
                assert!(matches!(gone, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{gone}");
            }
            drop(kernel);
            running.has_sockets(0);
        }
    }
}

isolated! {
    fn both_sides_see_what_they_see_of_the_kernel() {
        let running = Running::new();
        let program = running.program();
        for (name, story) in STORIES {
            let (a, b) = kernel_pair();
            let expected = story(End::Kernel(a), End::Kernel(b));
            for calls in [true, false] {
                let (own, kernel) = service_pair(&program, calls);
                let seen = story(End::Service(own), End::Kernel(kernel));
                assert_eq!(seen, expected, "{name}: the program is one, calls: {calls}");
                let (own, kernel) = service_pair(&program, calls);
                let seen = story(End::Kernel(kernel), End::Service(own));
                assert_eq!(seen, expected, "{name}: the program is the other, calls: {calls}");
            }
        }
        running.has_sockets(0);
    }
}

isolated! {
    fn what_was_written_before_a_close_arrives_however_much_it_is() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = service_pair(&program, true);
        let all = crate::octets(6_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let own = own;
                (&own.stream).write_all(&all).expect("written");
            });
            let mut got = Vec::new();
            { &kernel }.read_to_end(&mut got).expect("an end");
            assert!(got == all, "{} of {}", got.len(), all.len());
        });
        drop(kernel);
        running.has_sockets(0);
    }
}

isolated! {
    fn a_reset_wakes_a_writer_at_once_and_what_came_can_be_read() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = service_pair(&program, false);
        { &kernel }.write_all(b"before").expect("written");
        End::Service(Sock { program: own.program, stream: own.stream.try_clone().expect("one"), cookie: own.cookie }).has(6);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let octets = vec![1; 1 << 20];
                loop {
                    if let Err(e) = (&own.stream).write(&octets) {
                        return e.kind();
                    }
                }
            });
            setsockopt(&kernel, sockopt::Linger, &CLOSE).expect("an option");
            drop(kernel);
            assert_eq!(writer.join().expect("no panic"), ErrorKind::BrokenPipe);
        });
        let mut room = [0; 16];
        assert_eq!((&own.stream).read(&mut room).expect("octets"), 6);
        assert_eq!((own.error(), own.error()), (libc::ECONNRESET, 0));
        running.has_sockets(0);
    }
}

isolated! {
    fn a_connection_on_which_nothing_is_acknowledged_ends_when_the_program_wants_it() {
        let running = Running::new();
        let program = running.program();
        let (own, _kernel) = service_pair(&program, true);
        assert_eq!(own.set(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &1000i32.to_ne_bytes()), 0);
        bypath_sys::netns::set_up("mine", false).expect("a device");
        (&own.stream).write_all(b"nobody hears").expect("written");
        assert_eq!((&own.stream).read(&mut [0; 1]).map_err(|e| e.kind()).unwrap_or(0), 0);
        assert_eq!(own.error(), libc::ETIMEDOUT);
        running.has_sockets(0);
    }
}

isolated! {
    fn who_lingers_no_time_does_not_wait_for_what_is_unsent() {
        let running = Running::new();
        let program = running.program();
        let (own, kernel) = service_pair(&program, true);
        own.stream.set_nonblocking(true).expect("a socket");
        // Until nothing more is taken: the pair is full, and so is the stack.
        let octets = vec![3; 1 << 20];
        let mut quiet = 0;
        while quiet < 20 {
            match (&own.stream).write(&octets) {
                Ok(1..) => quiet = 0,
                _ => {
                    quiet += 1;
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
        }
        End::Service(Sock { program: own.program, stream: own.stream.try_clone().expect("one"), cookie: own.cookie }).linger();
        drop(own);
        running.has_sockets(0);
        drop(kernel);
    }
}

isolated! {
    fn what_a_connection_was_is_told_after_its_end() {
        let running = Running::new();
        let program = running.program();
        let (theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let mut far = patient(theirs.accept().expect("a connection").0);
        (&own.stream).write_all(b"to be read").expect("written");
        far.read_exact(&mut [0; 10]).expect("octets");
        let info = |own: &Sock<'_>| own.get(libc::IPPROTO_TCP, libc::TCP_INFO).expect("a value");
        let number = |info: &[u8], at: usize| u32::from_ne_bytes(info[8 + 4 * at..][..4].try_into().expect("four octets"));
        let before = info(&own);
        // Unread octets make it a reset.
        (&own.stream).write_all(b"and not").expect("written");
        far.peek(&mut [0; 1]).expect("octets");
        drop(far);
        while own.names().2 != 7 {
            own.ready(nix::poll::PollFlags::POLLIN, 10);
        }
        let _ = (&own.stream).read(&mut [0; 10]);
        running.has_sockets(0);
        let after = info(&own);
        assert_eq!(after[0], 7, "TCP_CLOSE");
        // rto, snd_mss, rtt, snd_cwnd, advmss: as they were; nothing is unacknowledged any more.
        for at in [0, 2, 15, 18, 19] {
            assert!(number(&after, at) > 0 && number(&before, at) > 0, "{at}: {after:?}");
        }
        assert_eq!((number(&after, 2), number(&after, 4)), (number(&before, 2), 0));
    }
}
