//! A host within a program: an engine on a thread of its own, and sockets that block, for programs that want no loop.
//!
//! ```no_run
//! use bypath_netstack::{Engine, Host, UdpSocket};
//! use bypath_link::tun::Device;
//! use bypath_stack::config::Config;
//!
//! let mut engine = Engine::new(Config::default());
//! let device = Device::tap("tap0").address("10.9.0.1".parse().unwrap(), 24).open()?;
//! let eth = engine.add_link("tap0", Box::new(device))?;
//! engine.stack().add_address(Engine::now(), eth, "10.9.0.2/24".parse().unwrap())?;
//!
//! let host = Host::run(engine)?;
//! let socket = UdpSocket::bind(&host, "10.9.0.2:7".parse().unwrap())?;
//! let mut buffer = [0; 65_535];
//! loop {
//!     let (len, from) = socket.recv_from(&mut buffer)?;
//!     socket.send_to(&buffer[..len], from)?;
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A call that sends moves the frame to the link itself; what arrives is moved by the thread. Whoever needs microseconds runs
//! the [`Engine`] in his own loop.

use crate::engine::{Engine, News};
use bypath_stack::event::Event;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::{BindError, Options, ReceiveError, Received, SendError, SocketError, SocketId};
use bypath_stack::{SendTo, Udp};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, eventfd, fd};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// poll(2): readable.
const READ: i16 = 1;
/// Turns that the thread takes before others may have the stack.
const TURNS: usize = 16;

struct Inner {
    engine: Engine,
    /// Who waits for which socket.
    waiters: HashMap<SocketId, Arc<Condvar>>,
    /// Why the thread has ended.
    ended: Option<String>,
    stops: bool,
    /// The thread sleeps, until this time of CLOCK_MONOTONIC at most.
    sleeps_until: Option<u64>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// eventfd: wakes the thread.
    bell: i32,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a call: frames go out, and the thread learns of times that are sooner than those that it knows.
    fn push(&self, inner: &mut Inner) {
        if let Err(e) = inner.engine.flush() {
            inner.ended.get_or_insert(e.to_string());
            eventfd::ring(self.bell);
        }
        if let (Some(next), Some(until)) = (inner.engine.poll_timeout(), inner.sleeps_until)
            && next < until
        {
            eventfd::ring(self.bell);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        fd::close(self.bell);
    }
}

/// An engine that runs. It ends when this is dropped; sockets tell of it.
pub struct Host {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Runs an engine on a thread of its own.
    ///
    /// # Errors
    /// No thread, or no descriptor is to be had.
    pub fn run(engine: Engine) -> io::Result<Host> {
        let bell = eventfd::create(3).map_err(|e| io::Error::from_raw_os_error(e.raw_os_error()))?;
        let inner = Inner { engine, waiters: HashMap::new(), ended: None, stops: false, sleeps_until: None };
        let shared = Arc::new(Shared { inner: Mutex::new(inner), bell });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("netstack".into()).spawn(move || run(&own))?;
        Ok(Host { shared, thread: Some(thread) })
    }

    /// Works with the engine while its thread waits: addresses, routes, counters.
    pub fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        let mut inner = self.shared.lock();
        let result = work(&mut inner.engine);
        self.shared.push(&mut inner);
        eventfd::ring(self.shared.bell);
        result
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        eventfd::ring(self.shared.bell);
        if let Some(thread) = self.thread.take() {
            // It has panicked, then: that was told.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut waits: Vec<PollFd> = Vec::new();
    loop {
        let mut inner = shared.lock();
        inner.sleeps_until = None;
        let mut busy = true;
        for _ in 0..TURNS {
            match inner.engine.turn() {
                Ok(moved) => busy = moved,
                Err(e) => inner.ended = Some(e.to_string()),
            }
            if !busy || inner.ended.is_some() {
                break;
            }
        }
        tell(&mut inner);
        if inner.stops {
            inner.ended.get_or_insert_with(|| "the host was stopped".into());
        }
        if inner.ended.is_some() {
            inner.waiters.values().for_each(|w| w.notify_all());
            return;
        }
        if busy {
            continue;
        }
        waits.clear();
        inner.engine.descriptors(&mut waits);
        waits.push(PollFd { fd: shared.bell, events: READ, revents: 0 });
        let next = inner.engine.poll_timeout();
        inner.sleeps_until = Some(next.unwrap_or(u64::MAX));
        drop(inner);
        let left = next.map(|at| at.saturating_sub(clock::monotonic_ns()));
        // An error is a signal.
        let _ = ppoll(&mut waits, left, 0);
        if waits.last().is_some_and(|bell| bell.revents != 0) {
            eventfd::silence(shared.bell);
        }
    }
}

/// Wakes who waits for a socket of which there is news.
fn tell(inner: &mut Inner) {
    while let Some(news) = inner.engine.poll_event() {
        if let News::Stack(Event::Socket { id, .. }) = news
            && let Some(waiter) = inner.waiters.get(&id)
        {
            waiter.notify_all();
        }
    }
}

/// A UDP socket of a [`Host`], with the calls and errors of [`std::net::UdpSocket`].
pub struct UdpSocket {
    shared: Arc<Shared>,
    id: SocketId,
    waiter: Arc<Condvar>,
    timeout: Mutex<Option<Duration>>,
}

impl UdpSocket {
    /// A socket that is bound to this address of the host; 0.0.0.0 and :: stand for all, port 0 for one that is free.
    ///
    /// # Errors
    /// AddrInUse, AddrNotAvailable; OutOfMemory: the stack has as many sockets as it may.
    pub fn bind(host: &Host, local: SocketAddr) -> io::Result<UdpSocket> {
        let shared = Arc::clone(&host.shared);
        let mut inner = shared.lock();
        let id = inner.engine.stack().open_udp().map_err(|e| io::Error::new(ErrorKind::OutOfMemory, e))?;
        if let Err(e) = udp(&mut inner, id)?.bind(local) {
            inner.engine.stack().close(id);
            return Err(bind_error(e));
        }
        let waiter = Arc::new(Condvar::new());
        inner.waiters.insert(id, Arc::clone(&waiter));
        drop(inner);
        Ok(UdpSocket { shared, id, waiter, timeout: Mutex::new(None) })
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub const fn id(&self) -> SocketId {
        self.id
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        udp(&mut self.shared.lock(), self.id)?.local().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Sends to this partner, and hears of it alone.
    ///
    /// # Errors
    /// NetworkUnreachable, HostUnreachable.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        udp(&mut self.shared.lock(), self.id)?.connect(to).map_err(send_error)
    }

    /// Longest wait of a call, for room or for a datagram; `None`: it waits as long as it takes.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Wants something of the stack: see [`Options`].
    ///
    /// # Errors
    /// The host has ended.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) -> io::Result<()> {
        let mut inner = self.shared.lock();
        let mut udp = udp(&mut inner, self.id)?;
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
        udp(&mut self.shared.lock(), self.id)?.set_receive_octets(octets);
        Ok(())
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
    /// long, or has no destination. TimedOut. BrokenPipe: the host has ended.
    pub fn send_with(&self, octets: &[u8], how: &SendTo) -> io::Result<usize> {
        let plain = *how == SendTo { to: how.to, ..SendTo::default() };
        self.wait(|inner| {
            if let Some(why) = &inner.ended {
                return Err(io::Error::new(ErrorKind::BrokenPipe, why.clone()));
            }
            let sent = match plain {
                true => inner.engine.send(self.id, octets, how.to),
                false => udp(inner, self.id)?.send_with(octets, how),
            };
            match sent {
                Ok(()) => Ok(Some(octets.len())),
                Err(SendError::Full) => Ok(None),
                Err(e) => Err(send_error(e)),
            }
        })
    }

    /// Waits for a datagram: its length, as far as it fits, and who sent it. What does not fit is lost.
    ///
    /// # Errors
    /// As [`send_with`](UdpSocket::send_with).
    pub fn recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.receive(room).map(|received| (received.len.min(room.len()), received.datagram.from))
    }

    /// As [`recv_from`](UdpSocket::recv_from), with all that is known of the datagram: to which of our addresses, through which
    /// interface, its length even if it did not fit.
    ///
    /// # Errors
    /// The same.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        self.wait(|inner| match udp(inner, self.id)?.receive(room) {
            Ok(received) => Ok(Some(received)),
            Err(ReceiveError::Empty) => Ok(None),
            Err(ReceiveError::Network(e)) => Err(network_error(e)),
            Err(e) => Err(io::Error::other(e)),
        })
    }

    /// As [`recv_from`](UdpSocket::recv_from), without the sender.
    ///
    /// # Errors
    /// The same.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.recv_from(room).map(|(len, _)| len)
    }

    /// Tries, and waits while there is nothing.
    fn wait<T>(&self, mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>) -> io::Result<T> {
        let timeout = *self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut inner = self.shared.lock();
        loop {
            if let Some(done) = attempt(&mut inner)? {
                self.shared.push(&mut inner);
                return Ok(done);
            }
            if let Some(why) = &inner.ended {
                return Err(io::Error::new(ErrorKind::BrokenPipe, why.clone()));
            }
            inner = match end {
                None => self.waiter.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.waiter.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.waiters.remove(&self.id);
        inner.engine.stack().close(self.id);
        self.shared.push(&mut inner);
    }
}

fn udp(inner: &mut Inner, id: SocketId) -> io::Result<Udp<'_>> {
    inner.engine.stack().udp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
}

fn bind_error(e: BindError) -> io::Error {
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

fn network_error(e: SocketError) -> io::Error {
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
    use bypath_link::pair::pair;
    use bypath_stack::config::Config;

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

    /// A link that is gone for who sends, and quiet for who receives.
    struct Gone(bypath_link::pair::End);

    impl bypath_link::Link for Gone {
        fn capabilities(&self) -> bypath_link::Capabilities {
            self.0.capabilities()
        }

        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, _: usize, _: &mut bypath_link::Each<'_>) -> bypath_link::Result<usize> {
            Ok(0)
        }

        fn send(&mut self, _: usize, next: &mut bypath_link::Next<'_>) -> bypath_link::Result<usize> {
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

        fn statistics(&mut self) -> bypath_link::Statistics {
            bypath_link::Statistics::default()
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
