//! UDP sockets of a host, with calls that block.

use crate::Host;
use crate::descriptor::Side;
use crate::host::Inner;
use crate::socket::{Socket, Way, nothing};
use bypath_stack::group::NoGroup;
use bypath_stack::iface::IfaceId;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::{BindError, Options, ReceiveError, Received, SendError, SocketError, SocketId};
use bypath_stack::{SendTo, Udp};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A UDP socket of a [`Host`], with the calls and errors of [`std::net::UdpSocket`]. Several threads may use it at the same time.
pub struct UdpSocket {
    pub(crate) socket: Socket,
}

impl UdpSocket {
    /// A socket that is bound to this address of the host; 0.0.0.0 and :: stand for all, port 0 for one that is free.
    ///
    /// # Errors
    /// AddrInUse, AddrNotAvailable; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn bind(host: &Host, local: SocketAddr) -> io::Result<UdpSocket> {
        UdpSocket::bind_with(host, local, |_| {})
    }

    /// The same with what it wants of the stack: what is shared with others is looked at when a socket is bound.
    ///
    /// # Errors
    /// Those of [`bind`](UdpSocket::bind).
    pub fn bind_with(
        host: &Host,
        local: SocketAddr,
        change: impl FnOnce(&mut Options),
    ) -> io::Result<UdpSocket> {
        let shared = Arc::clone(host.shared());
        let mut inner = shared.lock();
        let stack = inner.running()?.stack();
        let id = stack.open_udp().map_err(|e| io::Error::new(ErrorKind::OutOfMemory, e))?;
        let mut udp = udp(&mut inner, id)?;
        let mut options = udp.options();
        change(&mut options);
        udp.set_options(options);
        if let Err(e) = udp.bind(local) {
            inner.engine()?.stack().close(id);
            return Err(bind_error(e));
        }
        Ok(UdpSocket { socket: Socket::register(Arc::clone(&shared), &mut inner, id) })
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub const fn id(&self) -> SocketId {
        self.socket.id
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        udp(&mut self.socket.shared.lock(), self.socket.id)?
            .local()
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// To whom it is connected.
    ///
    /// # Errors
    /// NotConnected; BrokenPipe: the host has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        udp(&mut self.socket.shared.lock(), self.socket.id)?
            .remote()
            .ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Sends to this partner, and hears of it alone.
    ///
    /// # Errors
    /// NetworkUnreachable, HostUnreachable.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        udp(&mut self.socket.shared.lock(), self.socket.id)?.connect(to).map_err(send_error)
    }

    /// Has no partner any more.
    ///
    /// # Errors
    /// The host has ended.
    pub fn disconnect(&self) -> io::Result<()> {
        udp(&mut self.socket.shared.lock(), self.socket.id)?.disconnect().map_err(bind_error)
    }

    /// Longest wait of a call, for room or for a datagram; `None`: it waits as long as it takes; zero: it does not wait, and
    /// answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// A descriptor for poll(2) and its like: it is readable while a call that receives would not wait, be it that it fails.
    /// Nothing but that is to be done with it.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn readable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.descriptor(Side::Readable)
    }

    /// Another one, which is readable (not writable) while half of the room for what is to be sent is free.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn writable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.descriptor(Side::Writable)
    }

    /// Wants something of the stack: see [`Options`].
    ///
    /// # Errors
    /// The host has ended.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) -> io::Result<()> {
        let mut inner = self.socket.shared.lock();
        let mut udp = udp(&mut inner, self.socket.id)?;
        let mut options = udp.options();
        change(&mut options);
        udp.set_options(options);
        Ok(())
    }

    /// Octets that wait to be read at most, 64 more counted for each datagram: what comes while it is full is lost.
    ///
    /// # Errors
    /// The host has ended.
    pub fn set_receive_octets(&self, octets: usize) -> io::Result<()> {
        udp(&mut self.socket.shared.lock(), self.socket.id)?.set_receive_octets(octets);
        Ok(())
    }

    /// Hears a group on an interface.
    ///
    /// # Errors
    /// InvalidInput: that is no group, or the socket is in it; OutOfMemory: the interface has as many groups as it may.
    pub fn join(&self, iface: IfaceId, group: IpAddr) -> io::Result<()> {
        let mut inner = self.socket.shared.lock();
        let joined = udp(&mut inner, self.socket.id)?.join(crate::Engine::now(), iface, group);
        self.socket.shared.push(&mut inner);
        joined.map_err(|e| {
            let full = matches!(e, NoGroup::Full { .. });
            io::Error::new(if full { ErrorKind::OutOfMemory } else { ErrorKind::InvalidInput }, e)
        })
    }

    /// Hears it no more; false: it did not.
    ///
    /// # Errors
    /// The host has ended.
    pub fn leave(&self, iface: IfaceId, group: IpAddr) -> io::Result<bool> {
        let mut inner = self.socket.shared.lock();
        let left = udp(&mut inner, self.socket.id)?.leave(iface, group);
        self.socket.shared.push(&mut inner);
        Ok(left)
    }

    /// Sends a datagram to whom the socket is connected.
    ///
    /// # Errors
    /// Those of [`send_with`](UdpSocket::send_with).
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.send_with(octets, &SendTo::default())
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Those of [`send_with`](UdpSocket::send_with).
    pub fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_with(octets, &SendTo { to: Some(to), ..SendTo::default() })
    }

    /// Sends a datagram, or several: see [`SendTo`]. Waits for room.
    ///
    /// # Errors
    /// ConnectionRefused, HostUnreachable and their like: what the network said of an earlier datagram. InvalidInput: it is too
    /// long. NotConnected: it has no destination. TimedOut, WouldBlock. BrokenPipe: the host has ended.
    pub fn send_with(&self, octets: &[u8], how: &SendTo) -> io::Result<usize> {
        self.socket.wait(Way::Write, |inner| self.try_send(inner, octets, how))
    }

    /// Waits for a datagram: its length, as far as it fits, and who sent it. What does not fit is lost.
    ///
    /// # Errors
    /// As [`send_with`](UdpSocket::send_with).
    pub fn recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.receive(room)?;
        Ok((received.len.min(room.len()), received.datagram.from))
    }

    /// As [`recv_from`](UdpSocket::recv_from), without the sender.
    ///
    /// # Errors
    /// The same.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.recv_from(room).map(|(len, _)| len)
    }

    /// As [`recv_from`](UdpSocket::recv_from), with all that is known of the datagram, its whole length too.
    ///
    /// # Errors
    /// The same.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        self.socket.wait(Way::Read, |inner| self.try_receive(inner, room))
    }

    /// `None`: there is no room.
    pub(crate) fn try_send(
        &self,
        inner: &mut Inner,
        octets: &[u8],
        how: &SendTo,
    ) -> io::Result<Option<usize>> {
        let plain = *how == SendTo { to: how.to, ..SendTo::default() };
        let engine = inner.running()?;
        let sent = match plain {
            true => engine.send(self.socket.id, octets, how.to),
            false => udp(inner, self.socket.id)?.send_with(octets, how),
        };
        let done = match sent {
            Ok(()) => {
                self.socket.shared.push(inner);
                Ok(Some(octets.len()))
            }
            Err(SendError::Full) => Ok(None),
            Err(e) => Err(send_error(e)),
        };
        self.socket.show(inner);
        done
    }

    /// `None`: there is no datagram.
    pub(crate) fn try_receive(&self, inner: &mut Inner, room: &mut [u8]) -> io::Result<Option<Received>> {
        let received = udp(inner, self.socket.id)?.receive(room);
        self.socket.show(inner);
        match received {
            Ok(received) => Ok(Some(received)),
            // What had come is still there when the host has ended.
            Err(ReceiveError::Empty) => nothing(inner),
            Err(ReceiveError::Network(e)) => Err(network_error(e)),
            Err(e) => Err(io::Error::other(e)),
        }
    }
}

pub fn udp(inner: &mut Inner, id: SocketId) -> io::Result<Udp<'_>> {
    inner.engine()?.stack().udp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
}

pub fn bind_error(e: BindError) -> io::Error {
    let kind = match e {
        BindError::NotOurs => ErrorKind::AddrNotAvailable,
        BindError::Bound => ErrorKind::InvalidInput,
        _ => ErrorKind::AddrInUse,
    };
    io::Error::new(kind, e)
}

fn send_error(e: SendError) -> io::Error {
    let kind = match e {
        SendError::Full => ErrorKind::WouldBlock,
        SendError::Unreachable(Unreachable::Route | Unreachable::Scope) => ErrorKind::NetworkUnreachable,
        SendError::Unreachable(_) => ErrorKind::AddrNotAvailable,
        SendError::Broadcast => ErrorKind::PermissionDenied,
        SendError::Bind(e) => return bind_error(e),
        SendError::Network(e) => return network_error(e),
        SendError::NoDestination => ErrorKind::NotConnected,
        SendError::Closed => ErrorKind::BrokenPipe,
        _ => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, e)
}

pub fn network_error(e: SocketError) -> io::Error {
    let kind = match e {
        SocketError::PortUnreachable => ErrorKind::ConnectionRefused,
        SocketError::HostUnreachable => ErrorKind::HostUnreachable,
        SocketError::NetUnreachable => ErrorKind::NetworkUnreachable,
        SocketError::Prohibited => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use bypath_link::pair::pair;
    use bypath_link::{Capabilities, Each, FrameMeta, Link, Medium, Next, Statistics};
    use bypath_stack::config::Config;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixDatagram;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    /// Two hosts with a cable between them.
    fn hosts() -> [Host; 2] {
        let (a, b) = pair(1500, 256);
        let with = |link, address: &str, seed| {
            let mut engine = Engine::with_seed(Config::default(), [seed; 32]);
            let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
            let prefix = address.parse().expect("an address");
            engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
            Host::run(engine).expect("a thread")
        };
        [with(a, "10.0.0.1/24", 1), with(b, "10.0.0.2/24", 2)]
    }

    fn socket(host: &Host, address: &str) -> UdpSocket {
        let socket = UdpSocket::bind(host, address.parse().expect("an address")).expect("a socket");
        socket.set_timeout(Some(Duration::from_secs(20)));
        socket
    }

    #[test]
    fn threads_exchange_datagrams_of_every_length() {
        let [a, b] = hosts();
        let server = socket(&b, "0.0.0.0:7");
        let echo = std::thread::spawn(move || {
            let mut room = vec![0; 65_535];
            loop {
                let (len, from) = server.recv_from(&mut room).expect("a datagram");
                if len == 0 {
                    return;
                }
                server.send_to(&room[..len], from).expect("sent");
            }
        });
        let client = socket(&a, "0.0.0.0:0");
        client.connect("10.0.0.2:7".parse().expect("an address")).expect("a way");
        assert_eq!(client.local_addr().expect("an address").ip(), std::net::IpAddr::from([10, 0, 0, 1]));
        let mut room = vec![0; 65_535];
        for len in (1..200).chain([1400, 1472, 1473, 9000, 65_507]) {
            let sent: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
            assert_eq!(client.send(&sent).expect("sent"), len);
            assert_eq!(client.recv(&mut room).expect("an answer"), len);
            assert!(room[..len] == sent, "{len}");
        }
        client.send(&[]).expect("sent");
        echo.join().expect("the other thread");
    }

    #[test]
    fn calls_tell_what_the_kernels_would() {
        let [a, b] = hosts();
        let client = socket(&a, "0.0.0.0:0");
        client.set_timeout(Some(Duration::from_millis(20)));
        assert_eq!(client.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
        assert_eq!(client.send(b"x").map_err(|e| e.kind()), Err(ErrorKind::NotConnected));
        let elsewhere = "192.0.2.1:7".parse().expect("an address");
        assert_eq!(client.send_to(b"x", elsewhere).map_err(|e| e.kind()), Err(ErrorKind::NetworkUnreachable));
        let everybody = "255.255.255.255:7".parse().expect("an address");
        assert_eq!(client.send_to(b"x", everybody).map_err(|e| e.kind()), Err(ErrorKind::PermissionDenied));
        let taken = client.local_addr().expect("an address");
        assert_eq!(UdpSocket::bind(&a, taken).map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::AddrInUse));
        let others = "10.0.0.2:99".parse().expect("an address");
        assert_eq!(
            UdpSocket::bind(&a, others).map(|_| ()).map_err(|e| e.kind()),
            Err(ErrorKind::AddrNotAvailable)
        );

        client.set_timeout(Some(Duration::from_secs(20)));
        client.connect("10.0.0.2:8".parse().expect("an address")).expect("a way");
        client.send(b"anybody?").expect("sent");
        assert_eq!(client.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        drop(b);
    }

    #[test]
    fn who_waits_learns_that_the_host_has_ended() {
        let [a, b] = hosts();
        let waits = socket(&a, "0.0.0.0:9");
        waits.set_timeout(None);
        let thread = std::thread::spawn(move || waits.recv(&mut [0; 9]).map_err(|e| e.kind()));
        drop(a);
        assert_eq!(thread.join().expect("the thread"), Err(ErrorKind::BrokenPipe));
        drop(b);
    }

    /// A link of which frames never cease to come, and one that ends in the middle of a call.
    #[derive(Default)]
    struct Flood {
        panics: bool,
        asked: Arc<AtomicUsize>,
    }

    impl Link for Flood {
        fn capabilities(&self) -> Capabilities {
            pair(1500, 1).0.capabilities()
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, most: usize, each: &mut Each<'_>) -> bypath_link::Result<usize> {
            assert!(!self.panics, "a link that panics, for the test");
            self.asked.fetch_add(1, Ordering::Relaxed);
            (0..most).for_each(|_| each(&[0; 60], &FrameMeta::default()));
            Ok(most)
        }

        fn send(&mut self, _: usize, _: &mut Next<'_>) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn flush(&mut self) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn forget(&mut self) -> usize {
            0
        }

        fn statistics(&mut self) -> Statistics {
            Statistics::default()
        }
    }

    #[test]
    fn calls_have_their_turn_while_frames_never_cease_to_come() {
        let mut engine = Engine::with_seed(Config::default(), [3; 32]);
        let asked = Arc::new(AtomicUsize::new(0));
        let flood = Flood { asked: Arc::clone(&asked), ..Flood::default() };
        engine.add_link("flood", Box::new(flood)).expect("an interface");
        let host = Host::run(engine).expect("a thread");
        let own = socket(&host, "127.0.0.1:9");
        let mut turns: Vec<usize> = (0..1000)
            .map(|_| {
                let before = asked.load(Ordering::Relaxed);
                own.send_to(b"x", "127.0.0.1:9".parse().expect("an address")).expect("sent");
                own.recv(&mut [0; 9]).expect("a datagram");
                asked.load(Ordering::Relaxed) - before
            })
            .collect();
        // A send, a look, a sleep and another look. Whoever is kept from running by others waits longer, now and then.
        turns.sort_unstable();
        assert!(turns[990] < 1000, "{:?}", &turns[900..]);
    }

    #[test]
    fn who_waits_learns_that_the_thread_has_panicked() {
        let mut engine = Engine::with_seed(Config::default(), [3; 32]);
        engine
            .add_link("panics", Box::new(Flood { panics: true, ..Flood::default() }))
            .expect("an interface");
        let host = Host::run(engine).expect("a thread");
        let waits = UdpSocket::bind(&host, "127.0.0.1:9".parse().expect("an address")).expect("a socket");
        waits.set_timeout(Some(Duration::from_secs(20)));
        assert_eq!(waits.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
    }

    #[test]
    fn no_signal_comes_to_the_thread_of_a_host() {
        let host = Host::run(Engine::with_seed(Config::default(), [3; 32])).expect("a thread");
        // It has a name as soon as it runs.
        host.with(|_| {});
        let masks = || -> Vec<u64> {
            let tasks = std::fs::read_dir("/proc/self/task").expect("the threads").flatten();
            let status = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("status")).ok());
            let ours = status.filter(|s| s.starts_with("Name:\tnetstack\n"));
            let mask = |s: String| {
                u64::from_str_radix(s.lines().find_map(|l| l.strip_prefix("SigBlk:\t"))?, 16).ok()
            };
            ours.filter_map(mask).collect()
        };
        let end = Instant::now() + Duration::from_secs(20);
        while masks().is_empty() {
            assert!(Instant::now() < end, "no thread");
            std::thread::yield_now();
        }
        let (int, term) = (1 << (2 - 1), 1 << (15 - 1));
        assert!(masks().iter().all(|mask| mask & (int | term) == int | term), "{:x?}", masks());
        // The caller has what he had.
        let own = std::fs::read_to_string("/proc/thread-self/status").expect("the own thread");
        assert!(own.contains("SigBlk:\t0000000000000000\n"), "{own}");
    }

    /// A link through a socket pair of the kernel, which takes some frames and then waits for its reader.
    struct Narrow {
        socket: UnixDatagram,
        /// What did not fit.
        pending: Option<Vec<u8>>,
    }

    impl Link for Narrow {
        fn capabilities(&self) -> Capabilities {
            Capabilities { medium: Medium::Ip, wakes_at_end: true, ..pair(1500, 1).0.capabilities() }
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.socket.as_fd())
        }

        fn receive(&mut self, _: usize, _: &mut Each<'_>) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn send(&mut self, most: usize, next: &mut Next<'_>) -> bypath_link::Result<usize> {
            let mut room = [0; 2000];
            for sent in 0..most {
                if self.flush()? > 0 {
                    return Ok(sent);
                }
                let Some((len, _)) = next(&mut room) else { return Ok(sent) };
                self.pending = Some(room[..len].to_vec());
            }
            self.flush()?;
            Ok(most)
        }

        fn flush(&mut self) -> bypath_link::Result<usize> {
            if let Some(frame) = &self.pending
                && self.socket.send(frame).is_ok()
            {
                self.pending = None;
            }
            Ok(self.pending.iter().count())
        }

        fn forget(&mut self) -> usize {
            self.pending.take().iter().count()
        }

        fn statistics(&mut self) -> Statistics {
            Statistics::default()
        }
    }

    #[test]
    fn what_a_full_link_did_not_take_goes_when_it_has_room() {
        let (near, far) = UnixDatagram::pair().expect("a pair of sockets");
        near.set_nonblocking(true).expect("a socket that does not wait");
        far.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
        let mut engine = Engine::with_seed(Config::default(), [3; 32]);
        let iface = engine
            .add_link("narrow", Box::new(Narrow { socket: near, pending: None }))
            .expect("an interface");
        let prefix = "10.0.0.1/24".parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        let host = Host::run(engine).expect("a thread");
        let from = socket(&host, "10.0.0.1:9");
        // The thread sleeps, and waits for nothing but frames.
        while host.shared().lock().sleeps_until != Some(u64::MAX) {
            std::thread::yield_now();
        }
        for n in 0..100u32 {
            from.send_to(&[&n.to_be_bytes()[..], &[0; 1000]].concat(), to).expect("sent");
        }
        for n in 0..100u32 {
            let mut frame = [0; 2000];
            far.recv(&mut frame).expect("a frame in time");
            assert_eq!(frame[28..32], n.to_be_bytes());
        }
    }

    #[test]
    fn a_host_that_has_ended_sends_nothing_and_leaves_its_link() {
        let [a, b] = hosts();
        let (from, to) = (socket(&a, "0.0.0.0:9"), socket(&b, "0.0.0.0:9"));
        let at: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        from.send_to(b"one", at).expect("sent");
        to.recv(&mut [0; 9]).expect("a datagram");
        drop(a);
        assert_eq!(from.send_to(b"two", at).map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
        to.set_timeout(Some(Duration::from_millis(50)));
        assert!(to.recv(&mut [0; 9]).is_err());
    }
    /// A link that is gone for who sends, and quiet for who receives.
    struct Gone(bypath_link::pair::End);

    impl Link for Gone {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, _: usize, _: &mut Each<'_>) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn send(&mut self, _: usize, next: &mut Next<'_>) -> bypath_link::Result<usize> {
            match next(&mut [0; 2000]) {
                // The announcement of the address.
                Some((len, _)) if len < 60 => Ok(1),
                Some(_) => Err(bypath_link::Error::Gone { interface: "cable".into() }),
                None => Ok(0),
            }
        }

        fn flush(&mut self) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn forget(&mut self) -> usize {
            0
        }

        fn statistics(&mut self) -> Statistics {
            Statistics::default()
        }
    }

    #[test]
    fn who_waits_learns_of_a_link_that_went_while_somebody_sent() {
        for warm in [false, true] {
            let mut engine = Engine::with_seed(Config::default(), [1; 32]);
            let iface = engine.add_link("cable", Box::new(Gone(pair(1500, 4).0))).expect("an interface");
            let own = "10.0.0.1/24".parse().expect("an address");
            engine.stack().add_address(Engine::now(), iface, own).expect("an address");
            let there: SocketAddr = "10.0.0.2:7".parse().expect("an address");
            engine.stack().set_neighbor(iface, there.ip(), bypath_link::MacAddr([2; 6]));
            let host = Host::run(engine).expect("a thread");
            let (waits, sends) = (socket(&host, "0.0.0.0:9"), socket(&host, "0.0.0.0:0"));
            waits.set_timeout(Some(Duration::from_secs(10)));
            let thread = std::thread::spawn(move || waits.recv(&mut [0; 9]).map_err(|e| e.kind()));
            if warm {
                // Short enough to pass: the next one goes straight.
                sends.send_to(b"", there).expect("sent");
            }
            sends.send_to(&[1; 100], there).expect("accepted");
            assert_eq!(thread.join().expect("the thread"), Err(ErrorKind::BrokenPipe));
            assert_eq!(sends.send_to(&[1; 100], there).map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
        }
    }
}
