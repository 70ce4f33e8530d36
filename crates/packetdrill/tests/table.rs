//! The call table, without packetdrill: two machines whose packets the test carries.

use bypath_packetdrill::flags::{Flags, Time};
use bypath_packetdrill::host::Host;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SERVER: &str = "local=192.168.0.1/16,remote=192.0.2.0/24";
const CLIENT: &str = "local=192.0.2.1/24,remote=192.168.0.0/16";

fn host(flags: &str, time: Time) -> Host {
    let flags = Flags::parse(flags).expect("flags");
    // In real time it is only how often a carrier looks whether it is over.
    let patience = Duration::from_millis(if time == Time::Real { 200 } else { 5000 });
    Host::new(Flags { time, patience, ..flags }).expect("a host")
}

/// `struct sockaddr_in`.
fn address(ip: [u8; 4], port: u16) -> Vec<u8> {
    let mut octets = (libc::AF_INET as u16).to_ne_bytes().to_vec();
    octets.extend(port.to_be_bytes());
    octets.extend(ip);
    octets.resize(16, 0);
    octets
}

fn server() -> Vec<u8> {
    address([192, 168, 0, 1], 8080)
}

/// One that listens.
fn listener(host: &Host) -> i32 {
    let fd = host.socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket");
    host.bind(fd, &server()).expect("bound");
    host.listen(fd, 5).expect("it listens");
    fd
}

/// One packet goes from one machine to the other.
fn carry(from: &Host, to: &Host) {
    let (packet, _) = from.netdev_receive().expect("a packet");
    to.netdev_send(&packet);
}

/// Two machines in virtual time, and the descriptors of a connection between them.
fn connected() -> (Host, i32, Host, i32) {
    let (a, b) = (host(SERVER, Time::Virtual), host(CLIENT, Time::Virtual));
    let listener = listener(&a);
    let fd = b.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).expect("a socket");
    assert_eq!(b.connect(fd, &server()), Err(libc::EINPROGRESS));
    assert_eq!(b.connect(fd, &server()), Err(libc::EALREADY));
    carry(&b, &a);
    carry(&a, &b);
    carry(&b, &a);
    assert_eq!((b.connect(fd, &server()), b.connect(fd, &server())), (Ok(()), Err(libc::EISCONN)));
    let (called, from) = a.accept(listener).expect("a connection");
    assert_eq!(from[4..8], [192, 0, 2, 1]);
    (a, called, b, fd)
}

#[test]
fn octets_go_both_ways_and_end() {
    let (a, called, b, fd) = connected();
    assert_eq!(b.send(fd, b"question", 0, None), Ok(8));
    carry(&b, &a);
    assert_eq!(a.receive(called, 100, libc::MSG_PEEK).expect("octets").octets, b"question");
    assert_eq!(a.receive(called, 100, 0).expect("octets").octets, b"question");
    assert_eq!(a.receive(called, 100, libc::MSG_DONTWAIT).map(|r| r.len), Err(libc::EAGAIN));
    carry(&a, &b);
    assert_eq!(a.send(called, b"answer", 0, None), Ok(6));
    carry(&a, &b);
    assert_eq!(b.receive(fd, 3, 0).expect("octets").octets, b"ans");
    carry(&b, &a);
    a.shutdown(called, libc::SHUT_WR).expect("shut");
    assert_eq!(a.send(called, b"more", 0, None), Err(libc::EPIPE));
    carry(&a, &b);
    assert_eq!(b.receive(fd, 100, 0).expect("octets").octets, b"wer");
    assert_eq!(b.receive(fd, 100, 0).expect("the end").octets, b"");
    carry(&b, &a);
    b.close(fd).expect("closed");
    carry(&b, &a);
    carry(&a, &b);
    assert_eq!(a.receive(called, 100, 0).expect("the end").octets, b"");
    a.close(called).expect("closed");
    assert_eq!(
        (a.close(called), a.receive(called, 1, 0).map(|r| r.len)),
        (Err(libc::EBADF), Err(libc::EBADF))
    );
}

#[test]
fn urgent_octets_are_apart_or_in_line() {
    const SIOCATMARK: u64 = 0x8905;
    let (a, called, b, fd) = connected();
    let oob = |flags| libc::MSG_OOB | flags;
    let octets = |most, flags| a.receive(called, most, flags).map(|received| received.octets);
    let is = |events: i16| {
        let mut polled = [libc::pollfd { fd: called, events, revents: 0 }];
        a.poll(&mut polled, 0).expect("polled");
        polled[0].revents
    };
    let (read, urgent) = (libc::POLLIN, libc::POLLPRI);
    assert_eq!((octets(1, oob(0)), is(read | urgent)), (Err(libc::EINVAL), 0));
    assert_eq!(b.send(fd, b"abc!", oob(0), None), Ok(4));
    carry(&b, &a);
    assert_eq!(b.send(fd, b"def", 0, None), Ok(3));
    carry(&b, &a);
    assert_eq!(is(read | urgent), read | urgent);
    assert_eq!((a.ioctl(called, libc::FIONREAD), a.ioctl(called, SIOCATMARK)), (Ok(3), Ok(0)));
    assert_eq!(octets(2, 0).as_deref(), Ok(&b"ab"[..]));
    assert_eq!(octets(9, libc::MSG_WAITALL).as_deref(), Ok(&b"c"[..]), "nobody waits behind a mark");
    assert_eq!((a.ioctl(called, libc::FIONREAD), a.ioctl(called, SIOCATMARK)), (Ok(0), Ok(1)));
    let (_out, into) = a.pipe().expect("a pipe");
    assert_eq!(a.splice(called, into, 9, 0), Ok(0));
    assert_eq!(octets(9, oob(libc::MSG_PEEK)).as_deref(), Ok(&b"!"[..]));
    assert_eq!(octets(9, oob(0)).as_deref(), Ok(&b"!"[..]));
    assert_eq!((octets(1, oob(0)), is(read | urgent)), (Err(libc::EINVAL), read));
    assert_eq!(octets(2, 0).as_deref(), Ok(&b"de"[..]));
    assert_eq!(a.splice(called, into, 9, 0), Ok(1));
    let on = 1i32.to_ne_bytes();
    a.set_option(called, libc::SOL_SOCKET, libc::SO_OOBINLINE, &on).expect("an option");
    assert_eq!(a.option(called, libc::SOL_SOCKET, libc::SO_OOBINLINE).as_deref(), Ok(&on[..]));
    carry(&a, &b);
    assert_eq!(b.send(fd, b"gh!", oob(0), None), Ok(3));
    carry(&b, &a);
    assert_eq!((is(read | urgent), octets(1, oob(0))), (read | urgent, Err(libc::EINVAL)));
    assert_eq!((octets(9, 0).as_deref(), octets(9, 0).as_deref()), (Ok(&b"gh"[..]), Ok(&b"!"[..])));
}

#[test]
fn what_goes_wrong_is_what_linux_says() {
    let a = host(SERVER, Time::Virtual);
    assert_eq!(a.socket(99, libc::SOCK_STREAM, 0), Err(libc::EAFNOSUPPORT));
    assert_eq!(a.socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_UDP), Err(libc::EPROTONOSUPPORT));
    let fd = a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket");
    assert_eq!(a.receive(fd, 1, 0).map(|r| r.len), Err(libc::ENOTCONN));
    assert_eq!(a.send(fd, b"x", 0, None), Err(libc::EPIPE));
    assert_eq!(a.accept(fd), Err(libc::EINVAL));
    assert_eq!(a.name(fd, true), Err(libc::ENOTCONN));
    assert_eq!(a.shutdown(fd, libc::SHUT_RD), Err(libc::ENOTCONN));
    assert_eq!(a.bind(fd, &address([192, 168, 0, 2], 80)), Err(libc::EADDRNOTAVAIL));
    a.bind(fd, &server()).expect("bound");
    assert_eq!(a.bind(fd, &server()), Err(libc::EINVAL));
    let other = a.socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket");
    assert_eq!(a.bind(other, &server()), Err(libc::EADDRINUSE));
    // Nobody listens there.
    let b = host(CLIENT, Time::Virtual);
    let caller = b.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).expect("a socket");
    assert_eq!(b.connect(caller, &server()), Err(libc::EINPROGRESS));
    carry(&b, &a);
    carry(&a, &b);
    let mut polled = [libc::pollfd { fd: caller, events: libc::POLLOUT, revents: 0 }];
    assert_eq!(b.poll(&mut polled, 0), Ok(1));
    assert_eq!(polled[0].revents, libc::POLLOUT | libc::POLLERR | libc::POLLHUP);
    assert_eq!(b.connect(caller, &server()), Err(libc::ECONNREFUSED));
}

#[test]
fn virtual_time_is_exact() {
    let b = host(CLIENT, Time::Virtual);
    let fd = b.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).expect("a socket");
    assert_eq!(b.connect(fd, &server()), Err(libc::EINPROGRESS));
    let at = [(); 3].map(|()| b.netdev_receive().expect("a SYN").1);
    assert_eq!((at[1] - at[0], at[2] - at[1]), (1_000_000, 2_000_000));
    b.usleep(Duration::from_secs(1));
    let now = b.wall();
    assert!((1_000_000..1_000_010).contains(&(now - at[2])), "{now} {at:?}");
    // Nothing leaves within the 5 s that are waited.
    b.close(fd).expect("closed");
    assert_eq!(b.netdev_receive().map(|(_, at)| at), Err(libc::EAGAIN));
    assert!((5_000_000..5_000_010).contains(&(b.wall() - now)));
}

#[test]
fn a_call_that_waits_in_another_thread_is_over_when_what_it_waits_for_is_there() {
    let (a, b) = (host(SERVER, Time::Virtual), host(CLIENT, Time::Virtual));
    let listener = listener(&a);
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let a = &a;
        scope.spawn(move || {
            let called = a.accept(listener).expect("a connection").0;
            tell.send((called, a.wall())).expect("the test waits");
        });
        let fd = b.socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).expect("a socket");
        assert_eq!(b.connect(fd, &server()), Err(libc::EINPROGRESS));
        a.usleep(Duration::from_secs(1));
        carry(&b, a);
        carry(a, &b);
        assert!(told.try_recv().is_err());
        a.usleep(Duration::from_millis(100));
        let before = a.wall();
        carry(&b, a);
        a.usleep(Duration::from_secs(7));
        let (called, at) = told.recv().expect("it was accepted");
        // Unless that thread came too late to wait.
        assert!(at == before || at >= before + 7_000_000, "{at} {before}");
        assert!(a.close(called).is_ok());
    });
}

#[test]
fn an_edge_is_told_once_and_a_level_as_long_as_it_lasts() {
    let (a, called, b, fd) = connected();
    let (edge, level) = a.epolls();
    a.watch(edge, called, libc::EPOLLIN as u32 | libc::EPOLLET as u32);
    a.watch(level, called, libc::EPOLLIN as u32);
    assert_eq!(a.epoll_wait(edge, 9, 0), Ok(vec![]));
    assert_eq!(b.send(fd, b"x", 0, None), Ok(1));
    carry(&b, &a);
    let told = vec![(libc::EPOLLIN as u32, called as u64)];
    assert_eq!((a.epoll_wait(edge, 9, -1), a.epoll_wait(edge, 9, 0)), (Ok(told.clone()), Ok(vec![])));
    assert_eq!((a.epoll_wait(level, 9, 0), a.epoll_wait(level, 9, 0)), (Ok(told.clone()), Ok(told)));
}

#[test]
fn a_bound_of_what_is_not_sent_is_passed_by_a_whole_buffer() {
    const TCP_NOTSENT_LOWAT: i32 = 25;
    const SIOCOUTQNSD: u64 = 0x894B;
    let (_a, _called, b, fd) = connected();
    b.set_option(fd, libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT, &4000i32.to_ne_bytes()).expect("set");
    let written = b.send(fd, &[7; 200_000], 0, None).expect("octets") as i32;
    // Half of the window of 65,535 octets, in segments of 1448: sent as far as it went, and filled up again.
    assert_eq!(b.ioctl(fd, SIOCOUTQNSD), Ok(22 * 1448));
    assert!(written >= 32 * 1448, "{written} octets");
    assert_eq!(b.send(fd, &[7; 200_000], 0, None), Err(libc::EAGAIN));
    let mut polled = [libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }];
    assert_eq!(b.poll(&mut polled, 0), Ok(0));
}

#[test]
fn descriptors_of_one_description_share_it_and_the_last_one_ends_it() {
    let (a, called, b, fd) = connected();
    let second = a.dup(called).expect("a descriptor");
    let third = a.fcntl(called, libc::F_DUPFD, second + 10).expect("a descriptor");
    assert_eq!(third, second + 10);
    assert_eq!(a.dup3(called, third + 1, libc::O_CLOEXEC), Ok(third + 1));
    // What a file is, it is for all; whether it is closed on exec is the descriptor's.
    a.fcntl(second, libc::F_SETFL, libc::O_NONBLOCK).expect("set");
    assert_eq!(a.fcntl(third, libc::F_GETFL, 0).map(|flags| flags & libc::O_NONBLOCK), Ok(libc::O_NONBLOCK));
    assert_eq!(a.receive(called, 1, 0).map(|r| r.len), Err(libc::EAGAIN));
    let cloexec = [called, second, third, third + 1].map(|fd| a.fcntl(fd, libc::F_GETFD, 0));
    assert_eq!(cloexec, [Ok(0), Ok(0), Ok(0), Ok(libc::FD_CLOEXEC)]);
    // One that is in a set stays there while there is another one, and cannot be taken out by its number.
    let set = a.epoll_create().expect("a set");
    a.watch(set, called, libc::EPOLLIN as u32);
    a.watch(set, second, libc::EPOLLIN as u32);
    a.close(called).expect("closed");
    assert_eq!(b.send(fd, b"x", 0, None), Ok(1));
    carry(&b, &a);
    let told = |fds: &[i32]| fds.iter().map(|fd| (libc::EPOLLIN as u32, *fd as u64)).collect::<Vec<_>>();
    assert_eq!(a.epoll_wait(set, 9, 0), Ok(told(&[called, second])));
    assert_eq!(a.epoll_ctl(set, libc::EPOLL_CTL_DEL, called, None), Err(libc::EBADF));
    assert_eq!(a.receive(third, 9, 0).expect("an octet").octets, b"x");
    // Another one over it.
    let other = a.socket(libc::AF_INET, libc::SOCK_DGRAM, 0).expect("a socket");
    assert_eq!(a.dup2(other, second), Ok(second));
    assert_eq!(a.receive(second, 9, libc::MSG_DONTWAIT).map(|r| r.len), Err(libc::EAGAIN));
    assert_eq!(a.name(second, true), Err(libc::ENOTCONN));
    a.close(third).expect("closed");
    a.usleep(Duration::from_millis(100));
    carry(&a, &b);
    assert_eq!(b.receive(fd, 9, libc::MSG_DONTWAIT).map(|r| r.len), Err(libc::EAGAIN), "it is no end");
    a.close(third + 1).expect("closed");
    carry(&a, &b);
    assert_eq!(b.receive(fd, 9, 0).expect("the end").octets, b"");
    assert_eq!(a.epoll_wait(set, 9, 0), Ok(vec![]));
    // An end of a pipe is open as long as one descriptor is.
    let (reads, writes) = a.pipe().expect("a pipe");
    let again = a.dup(writes).expect("a descriptor");
    a.close(writes).expect("closed");
    assert_eq!(a.receive(reads, 1, libc::MSG_DONTWAIT).map(|r| r.len), Err(libc::EAGAIN));
    a.close(again).expect("closed");
    assert_eq!(a.receive(reads, 1, libc::MSG_DONTWAIT).map(|r| r.len), Ok(0));
    assert_eq!(
        (a.dup(99), a.dup2(99, 99), a.dup2(99, fd), a.dup2(reads, reads), a.dup2(reads, -1)),
        (Err(libc::EBADF), Err(libc::EBADF), Err(libc::EBADF), Ok(reads), Err(libc::EBADF))
    );
    assert_eq!((a.dup3(reads, reads, 0), a.dup3(reads, 99, 1)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    assert_eq!(a.fcntl(reads, libc::F_DUPFD_CLOEXEC, -1), Err(libc::EINVAL));
}

/// What the tests of epoll need of the calls that only the table of functions has.
trait Watch {
    fn epolls(&self) -> (i32, i32);
    fn watch(&self, set: i32, fd: i32, events: u32);
}

impl Watch for Host {
    fn epolls(&self) -> (i32, i32) {
        (self.epoll_create().expect("a set"), self.epoll_create().expect("a set"))
    }

    fn watch(&self, set: i32, fd: i32, events: u32) {
        self.epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, Some((events, fd as u64))).expect("watched");
    }
}

#[test]
fn in_real_time_calls_wait_and_packets_are_carried_by_threads() {
    let (a, b) = (host(SERVER, Time::Real), host(CLIENT, Time::Real));
    let listener = listener(&a);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    if let Ok((packet, _)) = from.netdev_receive() {
                        to.netdev_send(&packet);
                    }
                }
            });
        }
        let (a, b) = (&a, &b);
        let serving = scope.spawn(move || {
            let called = a.accept(listener).expect("a connection").0;
            let mut all = Vec::new();
            loop {
                let octets = a.receive(called, 10_000, 0).expect("octets").octets;
                if octets.is_empty() {
                    break;
                }
                all.extend(octets);
            }
            assert_eq!(a.send(called, &all, 0, None), Ok(all.len()));
            a.close(called).expect("closed");
        });
        let fd = b.socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket");
        b.connect(fd, &server()).expect("connected");
        let octets: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        assert_eq!(b.send(fd, &octets, 0, None), Ok(octets.len()));
        b.shutdown(fd, libc::SHUT_WR).expect("shut");
        assert!(b.receive(fd, octets.len(), libc::MSG_WAITALL).expect("octets").octets == octets);
        assert_eq!(b.receive(fd, 1, 0).expect("the end").octets, b"");
        b.close(fd).expect("closed");
        serving.join().expect("it served");
        over.store(true, Relaxed);
    });
}
