//! Sockets of a [`Host`] for tasks of tokio, with the calls and errors of those in `tokio::net`.
//!
//! ```
//! use bypath_netstack::tokio::UdpSocket;
//! # use bypath_netstack::{Engine, Host};
//! # use bypath_stack::config::Config;
//! use std::time::Duration;
//! use tokio::time::timeout;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! # let mut engine = Engine::new(Config::default());
//! let host = Host::run(engine)?;
//! let server = UdpSocket::bind(&host, "127.0.0.1:7".parse()?)?;
//! let client = UdpSocket::bind(&host, "127.0.0.1:0".parse()?)?;
//! client.send_to(b"hello", "127.0.0.1:7".parse()?).await?;
//!
//! let mut buffer = [0; 100];
//! let (len, from) = timeout(Duration::from_secs(5), server.recv_from(&mut buffer)).await??;
//! assert_eq!((&buffer[..len], from), (&b"hello"[..], client.local_addr()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Frames are moved by the host's own thread, whichever runtime the tasks are on. A call that can be done at once holds the stack
//! for as long as a datagram is copied, and may wait for the thread to give it back, tens of microseconds as a rule; nothing is
//! waited for beyond that without giving the processor back. Making a host starts a thread, and dropping one waits for its end.
//!
//! Every future may be dropped before it is done: a datagram was then neither sent nor taken, nor were octets of a stream. Any number
//! of tasks may use one socket; they are all woken for news of it.

mod forwarder;
mod split;
mod tcp;

pub use forwarder::{TcpCall, TcpForwarder};
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use tcp::{TcpListener, TcpStream};

use crate::host::{Inner, Shared};
use crate::{Host, udp};
use ::tokio::task::coop;
use bypath_stack::SendTo;
use bypath_stack::iface::IfaceId;
use bypath_stack::socket::{Options, Received, SocketId};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, ready};

/// A UDP socket whose calls wait without a thread.
pub struct UdpSocket {
    socket: udp::UdpSocket,
}

impl From<udp::UdpSocket> for UdpSocket {
    /// Its time-out means nothing any more: `tokio::time::timeout` bounds a wait.
    fn from(socket: udp::UdpSocket) -> UdpSocket {
        UdpSocket { socket }
    }
}

impl From<UdpSocket> for udp::UdpSocket {
    fn from(socket: UdpSocket) -> udp::UdpSocket {
        socket.socket
    }
}

impl UdpSocket {
    /// A socket that is bound to this address of the host; 0.0.0.0 and :: stand for all, port 0 for one that is free.
    ///
    /// # Errors
    /// AddrInUse, AddrNotAvailable; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn bind(host: &Host, local: SocketAddr) -> io::Result<UdpSocket> {
        udp::UdpSocket::bind(host, local).map(UdpSocket::from)
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub const fn id(&self) -> SocketId {
        self.socket.id()
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// To whom it is connected.
    ///
    /// # Errors
    /// NotConnected; BrokenPipe: the host has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Sends to this partner, and hears of it alone. It waits for nothing.
    ///
    /// # Errors
    /// NetworkUnreachable, HostUnreachable.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.socket.connect(to)
    }

    /// Has no partner any more.
    ///
    /// # Errors
    /// The host has ended.
    pub fn disconnect(&self) -> io::Result<()> {
        self.socket.disconnect()
    }

    /// Wants something of the stack: see [`Options`].
    ///
    /// # Errors
    /// The host has ended.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) -> io::Result<()> {
        self.socket.set_options(change)
    }

    /// Hears a group on an interface.
    ///
    /// # Errors
    /// InvalidInput: that is no group, or the socket is in it; OutOfMemory: the interface has as many groups as it may.
    pub fn join(&self, iface: IfaceId, group: IpAddr) -> io::Result<()> {
        self.socket.join(iface, group)
    }

    /// Hears it no more; false: it did not.
    ///
    /// # Errors
    /// The host has ended.
    pub fn leave(&self, iface: IfaceId, group: IpAddr) -> io::Result<bool> {
        self.socket.leave(iface, group)
    }

    /// Sends a datagram to whom the socket is connected.
    ///
    /// # Errors
    /// Those of [`send_with`](UdpSocket::send_with).
    pub async fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.send_with(octets, &SendTo::default()).await
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// Those of [`send_with`](UdpSocket::send_with).
    pub async fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.send_with(octets, &SendTo { to: Some(to), ..SendTo::default() }).await
    }

    /// Sends a datagram, or several: see [`SendTo`]. Waits for room.
    ///
    /// # Errors
    /// ConnectionRefused, HostUnreachable and their like: what the network said of an earlier datagram. InvalidInput: it is too
    /// long. NotConnected: it has no destination. BrokenPipe: the host has ended.
    pub async fn send_with(&self, octets: &[u8], how: &SendTo) -> io::Result<usize> {
        self.wait(|inner| self.socket.try_send(inner, octets, how)).await
    }

    /// Waits for a datagram: its length, as far as it fits, and who sent it. What does not fit is lost.
    ///
    /// # Errors
    /// ConnectionRefused, HostUnreachable and their like: what the network said of an earlier datagram. BrokenPipe: the host has
    /// ended.
    pub async fn recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let most = room.len();
        let received = self.receive(room).await?;
        Ok((received.len.min(most), received.datagram.from))
    }

    /// As [`recv_from`](UdpSocket::recv_from), without the sender.
    ///
    /// # Errors
    /// The same.
    pub async fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.recv_from(room).await.map(|(len, _)| len)
    }

    /// As [`recv_from`](UdpSocket::recv_from), with all that is known of the datagram, its whole length too.
    ///
    /// # Errors
    /// The same.
    pub async fn receive(&self, room: &mut [u8]) -> io::Result<Received> {
        self.wait(|inner| self.socket.try_receive(inner, room)).await
    }

    /// Sends a datagram if there is room now.
    ///
    /// # Errors
    /// WouldBlock; those of [`send_with`](UdpSocket::send_with).
    pub fn try_send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<usize> {
        let how = SendTo { to: Some(to), ..SendTo::default() };
        self.now(|inner| self.socket.try_send(inner, octets, &how))
    }

    /// Takes a datagram if one has come.
    ///
    /// # Errors
    /// WouldBlock; those of [`recv_from`](UdpSocket::recv_from).
    pub fn try_recv_from(&self, room: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let received = self.now(|inner| self.socket.try_receive(inner, room))?;
        Ok((received.len.min(room.len()), received.datagram.from))
    }

    fn now<T>(&self, attempt: impl FnOnce(&mut Inner) -> io::Result<Option<T>>) -> io::Result<T> {
        attempt(&mut self.socket.socket.shared.lock())?.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    /// Tries, and waits while there is nothing.
    async fn wait<T>(&self, mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>) -> io::Result<T> {
        let mut place = Place { shared: &self.socket.socket.shared, id: self.socket.socket.id, number: None };
        poll_fn(|context| place.poll(context, &mut attempt)).await
    }
}

/// A task's place among those that wait for a socket; given back when it waits no more.
struct Place<'a> {
    shared: &'a Shared,
    id: SocketId,
    number: Option<u64>,
}

impl Place<'_> {
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(&mut Inner) -> io::Result<Option<T>>,
    ) -> Poll<io::Result<T>> {
        poll(self.shared, self.id, &mut self.number, context, attempt)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut inner = self.shared.lock();
        let forgotten = inner.waiters.get_mut(&self.id).and_then(|w| w.tasks.forget(number));
        drop(inner);
        drop(forgotten);
    }
}

/// Tries; if there is nothing, the task waits for news of the socket, in the place with this number or a new one.
fn poll<T>(
    shared: &Shared,
    id: SocketId,
    number: &mut Option<u64>,
    context: &mut Context<'_>,
    attempt: impl FnOnce(&mut Inner) -> io::Result<Option<T>>,
) -> Poll<io::Result<T>> {
    // A task that always finds something keeps others of its thread waiting no longer than its budget lasts.
    let budget = ready!(coop::poll_proceed(context));
    let mut inner = shared.lock();
    let done = match attempt(&mut inner).transpose() {
        Some(done) => done,
        None => {
            // Under the lock of what was looked at: no news between is missed.
            let waiters = inner.waiters.get_mut(&id);
            let replaced = waiters.and_then(|w| w.tasks.wait(number, context.waker()));
            drop(inner);
            drop(replaced);
            return Poll::Pending;
        }
    };
    drop(inner);
    budget.made_progress();
    Poll::Ready(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use bypath_link::pair::{End, pair};
    use bypath_link::{FrameMeta, Link};
    use bypath_stack::config::Config;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    const LONGEST: Duration = Duration::from_secs(20);

    fn host(link: Option<End>) -> Host {
        let mut engine = Engine::with_seed(Config::default(), [1; 32]);
        if let Some(link) = link {
            let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
            let prefix = "10.0.0.1/24".parse().expect("an address");
            engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        }
        Host::run(engine).expect("a thread")
    }

    fn bound(host: &Host, at: &str) -> UdpSocket {
        UdpSocket::bind(host, at.parse().expect("an address")).expect("a socket")
    }

    fn waiting(socket: &UdpSocket) -> usize {
        let mut inner = socket.socket.socket.shared.lock();
        inner.waiters.get_mut(&socket.socket.socket.id).map_or(0, |w| w.tasks.len())
    }

    #[tokio::test]
    async fn a_receive_that_is_given_up_takes_nothing_and_leaves_no_place() {
        let host = host(None);
        let (from, to) = (bound(&host, "127.0.0.1:0"), bound(&host, "127.0.0.1:7"));
        let mut room = [0; 8];
        let mut taken = 0u64;
        for sent in 0..2000u64 {
            let mut receive = Box::pin(to.recv(&mut room));
            // Two of three are given up: having waited before the datagram comes, or asked after that.
            if sent % 3 == 0 {
                // Late news of earlier datagrams, or the end of the task's budget, have it asked once more.
                let waits = poll_fn(|context| {
                    let _ = receive.as_mut().poll(context).map(|_| panic!("nothing was sent"));
                    if waiting(&to) == 1 { Poll::Ready(()) } else { Poll::Pending }
                });
                timeout(LONGEST, waits).await.expect("a place to wait in");
            }
            from.send_to(&sent.to_be_bytes(), "127.0.0.1:7".parse().expect("an address"))
                .await
                .expect("sent");
            if sent % 3 < 2 {
                drop(receive);
            } else {
                while taken <= sent {
                    let len = timeout(LONGEST, receive).await.expect("in time").expect("a datagram");
                    assert_eq!((len, u64::from_be_bytes(room)), (8, taken));
                    taken += 1;
                    receive = Box::pin(to.recv(&mut room));
                }
            }
            assert_eq!(waiting(&to), 0);
        }
        while taken < 2000 {
            timeout(LONGEST, to.recv(&mut room)).await.expect("a datagram in time").expect("a datagram");
            assert_eq!(u64::from_be_bytes(room), taken);
            taken += 1;
        }
    }

    #[tokio::test]
    async fn a_task_that_waits_is_not_asked_meanwhile() {
        let host = host(None);
        let to = bound(&host, "127.0.0.1:7");
        let mut room = [0; 8];
        let mut asked = 0;
        let mut receive = pin!(to.recv(&mut room));
        let counted = poll_fn(|context| {
            asked += 1;
            receive.as_mut().poll(context)
        });
        assert!(timeout(Duration::from_millis(300), counted).await.is_err());
        // By the time that came as well.
        assert!(asked <= 2, "{asked}");
    }

    #[tokio::test]
    async fn whoever_is_left_gets_what_another_was_woken_for() {
        let host = host(None);
        let (from, to) = (bound(&host, "127.0.0.1:0"), Arc::new(bound(&host, "127.0.0.1:7")));
        for _ in 0..200 {
            let mut room = [0; 8];
            let mut first = Box::pin(to.recv(&mut room));
            let own = Arc::clone(&to);
            let second = tokio::spawn(async move { own.recv(&mut [0; 8]).await });
            poll_fn(|context| {
                assert!(first.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            yield_now().await;
            assert_eq!(waiting(&to), 2);
            from.send_to(b"x", "127.0.0.1:7".parse().expect("an address")).await.expect("sent");
            drop(first);
            let got = timeout(LONGEST, second).await.expect("in time").expect("a task");
            assert_eq!(got.expect("a datagram"), 1);
        }
    }

    #[tokio::test]
    async fn a_send_waits_for_room_and_one_that_is_given_up_sends_nothing() {
        // Nobody takes frames from the other end yet.
        let (near, mut far) = pair(1500, 4);
        let host = host(Some(near));
        let from = bound(&host, "10.0.0.1:9");
        let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        host.with(|engine| {
            let iface = bypath_stack::iface::IfaceId::from_scope(2).expect("the first one of a link");
            engine.stack().set_neighbor(iface, to.ip(), bypath_link::MacAddr([2, 0, 0, 0, 0, 9]));
        });
        let mut sent = 0u64;
        while from.try_send_to(&[&sent.to_be_bytes()[..], &[0; 1000]].concat(), to).is_ok() {
            sent += 1;
        }
        assert!(sent > 50, "{sent}");
        let given_up = timeout(Duration::from_millis(50), from.send_to(&[0xff; 1008], to)).await;
        assert!(given_up.is_err());
        let last = tokio::spawn(async move {
            let result = from.send_to(&[&sent.to_be_bytes()[..], &[0; 1000]].concat(), to).await;
            (from, result)
        });
        let mut seen = 0u64;
        let end = std::time::Instant::now() + LONGEST;
        while seen <= sent {
            assert!(std::time::Instant::now() < end, "{seen} of {sent}");
            far.receive(64, &mut |frame: &[u8], _: &FrameMeta| {
                // Ethernet, IPv4, UDP; ARP is shorter.
                if frame.len() > 1000 {
                    assert_eq!(frame[42..50], seen.to_be_bytes());
                    seen += 1;
                }
            })
            .ok();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (from, result) = timeout(LONGEST, last).await.expect("in time").expect("a task");
        assert_eq!(result.expect("sent"), 1008);
        assert_eq!(waiting(&from), 0);
    }

    #[tokio::test]
    async fn tasks_learn_that_the_host_has_ended() {
        let host = host(None);
        let to = bound(&host, "127.0.0.1:7");
        let waits = tokio::spawn(async move { to.recv(&mut [0; 8]).await.map_err(|e| e.kind()) });
        yield_now().await;
        drop(host);
        let result = timeout(LONGEST, waits).await.expect("in time").expect("a task");
        assert_eq!(result, Err(ErrorKind::BrokenPipe));
    }

    #[tokio::test]
    async fn a_task_that_always_finds_a_datagram_lets_others_run() {
        let host = host(None);
        let (from, to) = (bound(&host, "127.0.0.1:0"), bound(&host, "127.0.0.1:7"));
        for _ in 0..1000 {
            from.send_to(b"x", "127.0.0.1:7".parse().expect("an address")).await.expect("sent");
        }
        // All of them have come.
        let unread = || host.with(|e| e.stack().counters().udp_delivered);
        let end = std::time::Instant::now() + LONGEST;
        while unread() < 1000 {
            assert!(std::time::Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ran = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ran);
        tokio::spawn(async move { own.store(true, Ordering::Relaxed) });
        let mut room = [0; 8];
        for taken in 0..1000 {
            to.recv(&mut room).await.expect("a datagram");
            if ran.load(Ordering::Relaxed) {
                assert!(taken > 0);
                return;
            }
        }
        panic!("a thousand datagrams, and nobody else ran");
    }
}
