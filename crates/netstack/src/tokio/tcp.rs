//! TCP for tasks.

use super::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use super::{Place, poll};
use crate::host::Inner;
use crate::socket::Socket;
use crate::{Host, tcp};
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use bypath_stack::event::Ready;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::{Options, Settings, Statistics};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Tries, and waits while there is nothing.
pub(super) async fn wait<T>(
    socket: &Socket,
    mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>,
) -> io::Result<T> {
    let mut place = Place { shared: &socket.shared, id: socket.id, number: None };
    poll_fn(|context| place.poll(context, &mut attempt)).await
}

/// Connections to a [`Host`], whose calls wait without a thread. Several tasks may accept from it at the same time.
#[derive(Debug)]
pub struct TcpListener {
    listener: tcp::TcpListener,
}

impl From<tcp::TcpListener> for TcpListener {
    /// Its time-out means nothing any more: `tokio::time::timeout` bounds a wait.
    fn from(listener: tcp::TcpListener) -> TcpListener {
        TcpListener { listener }
    }
}

impl From<TcpListener> for tcp::TcpListener {
    fn from(listener: TcpListener) -> tcp::TcpListener {
        listener.listener
    }
}

impl TcpListener {
    /// Listens to an address of the host; 0.0.0.0 and :: stand for all, port 0 for one that is free. It waits for nothing.
    ///
    /// # Errors
    /// AddrInUse, AddrNotAvailable; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn bind(host: &Host, local: SocketAddr) -> io::Result<TcpListener> {
        tcp::TcpListener::bind(host, local).map(TcpListener::from)
    }

    /// The same with what it, and its connections, want of the stack; `backlog`: connections that wait to be accepted.
    ///
    /// # Errors
    /// Those of [`bind`](TcpListener::bind).
    pub fn bind_with(
        host: &Host,
        local: SocketAddr,
        backlog: usize,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpListener> {
        tcp::TcpListener::bind_with(host, local, backlog, change).map(TcpListener::from)
    }

    /// The next connection, and who has called. A future that is given up takes none.
    ///
    /// # Errors
    /// BrokenPipe: the host has ended.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, from) = wait(&self.listener.socket, |inner| self.listener.try_accept(inner)).await?;
        Ok((stream.into(), from))
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub fn id(&self) -> SocketId {
        self.listener.id()
    }
}

/// A connection of a [`Host`], whose calls wait without a thread: it is read by [`AsyncRead`], written by [`AsyncWrite`], and
/// [`split`](TcpStream::split) and [`into_split`](TcpStream::into_split) make two halves of it. Shutting it down finishes writing, as
/// FIN says it; nothing is kept back until a flush.
///
/// When it is dropped, what was written is still sent.
///
/// ```
/// # use bypath_netstack::{Engine, Host};
/// # use bypath_stack::config::Config;
/// use bypath_netstack::tokio::{TcpListener, TcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// # let host = Host::run(Engine::new(Config::default()))?;
/// let listener = TcpListener::bind(&host, "127.0.0.1:7".parse()?)?;
/// let mut client = TcpStream::connect(&host, "127.0.0.1:7".parse()?).await?;
/// let echo = tokio::spawn(async move {
///     let (mut stream, _) = listener.accept().await?;
///     let (mut reader, mut writer) = stream.split();
///     copy(&mut reader, &mut writer).await?;
///     writer.shutdown().await
/// });
/// client.write_all(b"hello").await?;
/// client.shutdown().await?;
/// let mut text = String::new();
/// client.read_to_string(&mut text).await?;
/// assert_eq!(text, "hello");
/// echo.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpStream {
    pub(super) stream: tcp::TcpStream,
    /// Behind the stream, so that this is not the last one to have the socket without need.
    places: Places,
}

/// The places of the task that reads and of the one that writes.
struct Places {
    socket: Arc<Socket>,
    reader: Option<u64>,
    writer: Option<u64>,
}

impl Drop for Places {
    fn drop(&mut self) {
        let numbers = [self.reader.take(), self.writer.take()];
        // With the socket they go by themselves.
        if numbers == [None, None] || Arc::strong_count(&self.socket) == 1 {
            return;
        }
        let mut inner = self.socket.shared.lock();
        let forgotten = inner
            .waiters
            .get_mut(&self.socket.id)
            .map(|waiters| numbers.map(|number| number.and_then(|number| waiters.tasks.forget(number))));
        drop(inner);
        drop(forgotten);
    }
}

impl From<tcp::TcpStream> for TcpStream {
    /// Its time-out means nothing any more: `tokio::time::timeout` bounds a wait.
    fn from(stream: tcp::TcpStream) -> TcpStream {
        let places = Places { socket: Arc::clone(&stream.socket), reader: None, writer: None };
        TcpStream { stream, places }
    }
}

impl From<TcpStream> for tcp::TcpStream {
    fn from(stream: TcpStream) -> tcp::TcpStream {
        stream.stream
    }
}

impl TcpStream {
    /// Calls, and waits until the connection is open. A future that is given up gives the call up, and it does not borrow the host.
    ///
    /// # Errors
    /// ConnectionRefused, ConnectionReset, TimedOut, HostUnreachable, NetworkUnreachable; AddrNotAvailable: no port is free;
    /// OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn connect(
        host: &Host,
        to: SocketAddr,
    ) -> impl Future<Output = io::Result<TcpStream>> + Send + use<> {
        TcpStream::connect_with(host, to, None, |_, _| {})
    }

    /// A half that reads and one that writes, which borrow it: for two futures of one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        super::split::borrowed(self)
    }

    /// A half that reads and one that writes, for two tasks. Dropping the one that writes finishes writing.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        super::split::owned(self)
    }

    /// The same from an address, with what it wants of the stack.
    ///
    /// # Errors
    /// Those of [`connect`](TcpStream::connect), and AddrInUse.
    pub fn connect_with<C: FnOnce(&mut Options, &mut Settings) + Send>(
        host: &Host,
        to: SocketAddr,
        from: Option<SocketAddr>,
        change: C,
    ) -> impl Future<Output = io::Result<TcpStream>> + Send + use<C> {
        let shared = Arc::clone(host.shared());
        async move {
            let socket = Socket::call(&shared, to, from, change)?;
            wait(&socket, |inner| socket.try_open(inner)).await?;
            Ok(tcp::TcpStream::of(socket).into())
        }
    }

    /// Whom it is connected with.
    ///
    /// # Errors
    /// The host has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Its own end.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Waits for octets, which stay to be read, as many as there are and fit; 0: the other side has finished.
    ///
    /// # Errors
    /// ConnectionReset and its like; BrokenPipe: the host has ended.
    pub async fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        wait(&self.stream.socket, |inner| self.stream.try_peek(inner, room)).await
    }

    /// Waits until a call that reads would not wait. Another task may be quicker.
    ///
    /// # Errors
    /// None: what goes wrong is told by that call.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(|ready| ready.readable).await
    }

    /// Waits until a call that writes would not wait. Another task may be quicker.
    ///
    /// # Errors
    /// None: what goes wrong is told by that call.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(|ready| ready.writable).await
    }

    async fn ready(&self, is: impl Fn(Ready) -> bool) -> io::Result<()> {
        let socket = &self.stream.socket;
        wait(socket, |inner| {
            let now = inner.running().map(|engine| is(engine.stack().readiness(socket.id)));
            // Where the host has ended, calls say so.
            Ok(now.unwrap_or(true).then_some(()))
        })
        .await
    }

    /// Takes octets if some have come; 0: the other side has finished.
    ///
    /// # Errors
    /// WouldBlock; ConnectionReset and its like; BrokenPipe: the host has ended.
    pub fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        self.now(|inner| self.stream.try_recv(inner, room))
    }

    /// Queues octets to be sent, as many as there is room for now; how many.
    ///
    /// # Errors
    /// WouldBlock; BrokenPipe: the connection is over, was shut down, or the host has ended; ConnectionReset and its like.
    pub fn try_write(&self, octets: &[u8]) -> io::Result<usize> {
        self.now(|inner| self.stream.try_send(inner, octets))
    }

    fn now<T>(&self, attempt: impl FnOnce(&mut Inner) -> io::Result<Option<T>>) -> io::Result<T> {
        attempt(&mut self.stream.socket.shared.lock())?.ok_or_else(|| ErrorKind::WouldBlock.into())
    }

    /// Wants something of the stack: see [`Options`] and [`Settings`].
    ///
    /// # Errors
    /// The host has ended.
    pub fn set(&self, change: impl FnOnce(&mut Options, &mut Settings)) -> io::Result<()> {
        self.stream.set(change)
    }

    /// What it wants of the stack.
    ///
    /// # Errors
    /// The host has ended.
    pub fn settings(&self) -> io::Result<(Options, Settings)> {
        self.stream.settings()
    }

    /// How it does, in the manner of TCP_INFO.
    ///
    /// # Errors
    /// The host has ended.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.stream.statistics()
    }

    /// Why it is over; it is forgotten.
    ///
    /// # Errors
    /// The host has ended.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.stream.take_error()
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub fn id(&self) -> SocketId {
        self.stream.id()
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        let (stream, socket) = (&own.stream, &own.stream.socket);
        poll(&socket.shared, socket.id, &mut own.places.reader, context, |inner| {
            let read = stream.try_recv(inner, room.initialize_unfilled())?;
            Ok(read.map(|n| room.advance(n)))
        })
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let (stream, socket) = (&own.stream, &own.stream.socket);
        poll(&socket.shared, socket.id, &mut own.places.writer, context, |inner| {
            stream.try_send(inner, octets)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let own = self.get_mut();
        let (stream, socket) = (&own.stream, &own.stream.socket);
        poll(&socket.shared, socket.id, &mut own.places.writer, context, |inner| {
            stream.try_send_pieces(inner, pieces)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// What was written is on its way.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stream.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use ::tokio::io::{AsyncReadExt, AsyncWriteExt};
    use ::tokio::time::timeout;
    use bypath_stack::config::Config;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const LONGEST: Duration = Duration::from_secs(20);

    fn host() -> Host {
        Host::run(Engine::with_seed(Config::default(), [1; 32])).expect("a thread")
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    async fn in_time<T>(what: impl Future<Output = T>) -> T {
        timeout(LONGEST, what).await.expect("in time")
    }

    async fn pair(host: &Host) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(host, at("127.0.0.1:80")).expect("a listener");
        let calls = TcpStream::connect(host, at("127.0.0.1:80"));
        let (called, accepted) = in_time(async { ::tokio::join!(calls, listener.accept()) }).await;
        (called.expect("a connection"), accepted.expect("a connection").0)
    }

    fn waiting(socket: &Socket) -> usize {
        let mut inner = socket.shared.lock();
        inner.waiters.get_mut(&socket.id).map_or(0, |w| w.tasks.len())
    }

    /// Polls it once; it is not done.
    async fn begin(future: Pin<&mut impl Future>) {
        let mut future = future;
        poll_fn(|context| {
            assert!(future.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn an_accept_that_is_given_up_leaves_no_place_and_the_connection_to_others() {
        let host = host();
        let listener = TcpListener::bind(&host, at("127.0.0.1:80")).expect("a listener");
        for _ in 0..100 {
            let mut first = Box::pin(listener.accept());
            begin(first.as_mut()).await;
            assert_eq!(waiting(&listener.listener.socket), 1);
            let called = in_time(TcpStream::connect(&host, at("127.0.0.1:80"))).await.expect("a connection");
            // It may have been woken already.
            drop(first);
            assert_eq!(waiting(&listener.listener.socket), 0);
            let (_, from) = in_time(listener.accept()).await.expect("a connection");
            assert_eq!(from, called.local_addr().expect("an address"));
        }
    }

    #[tokio::test]
    async fn reads_and_peeks_that_are_given_up_take_nothing() {
        let host = host();
        let (mut a, mut b) = pair(&host).await;
        let mut room = [0; 4];
        for sent in 0..300u32 {
            if sent % 2 == 0 {
                let mut read = Box::pin(b.read(&mut room));
                begin(read.as_mut()).await;
                in_time(a.write_all(&sent.to_be_bytes())).await.expect("written");
                drop(read);
            } else {
                let mut peek = Box::pin(b.peek(&mut room));
                begin(peek.as_mut()).await;
                in_time(a.write_all(&sent.to_be_bytes())).await.expect("written");
                drop(peek);
            }
            in_time(b.read_exact(&mut room)).await.expect("octets");
            assert_eq!(u32::from_be_bytes(room), sent);
            // However many futures there were, the stream has two places at most.
            assert!(waiting(&b.stream.socket) <= 2);
        }
    }

    #[tokio::test]
    async fn a_write_waits_for_room_and_one_that_is_given_up_writes_nothing() {
        let host = host();
        let (mut a, mut b) = pair(&host).await;
        let (mut written, mut given_up) = (0, 0);
        // Nobody reads. A probe of the window that finds some makes a little room.
        while given_up < 3 {
            match timeout(Duration::from_millis(200), a.write(&[9; 100_000])).await {
                Ok(n) => written += n.expect("written"),
                Err(_) => given_up += 1,
            }
        }
        let last = ::tokio::spawn(async move {
            a.write_all(b"last").await.expect("written");
            a.shutdown().await.expect("a connection");
        });
        let mut octets = Vec::new();
        in_time(b.read_to_end(&mut octets)).await.expect("octets");
        in_time(last).await.expect("a task");
        assert_eq!(octets.len(), written + 4);
        assert!(written >= 100_000 && octets[..written].iter().all(|octet| *octet == 9));
        assert!(octets.ends_with(b"last"));
    }

    #[tokio::test]
    async fn a_task_that_waits_is_not_asked_meanwhile() {
        let host = host();
        let ((_a, mut b), (mut c, mut d)) = (pair(&host).await, pair(&host).await);
        let mut room = [0; 8];
        let mut asked = 0;
        let mut read = pin!(b.read(&mut room));
        let counted = poll_fn(|context| {
            asked += 1;
            read.as_mut().poll(context)
        });
        // What others do is nothing to it.
        let others = ::tokio::spawn(async move {
            for _ in 0..100 {
                c.write_all(b"x").await.expect("written");
                d.read_exact(&mut [0]).await.expect("an octet");
            }
        });
        assert!(timeout(Duration::from_millis(300), counted).await.is_err());
        in_time(others).await.expect("a task");
        // By the time that came as well, and by news from when it was opened.
        assert!(asked <= 3, "{asked}");
    }

    #[tokio::test]
    async fn a_task_that_always_finds_octets_lets_others_run() {
        let host = host();
        let (mut a, mut b) = pair(&host).await;
        in_time(a.write_all(&[1; 1000])).await.expect("written");
        // All of them have come.
        while b.statistics().expect("a connection").unread < 1000 {
            ::tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ran = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ran);
        ::tokio::spawn(async move { own.store(true, Ordering::Relaxed) });
        for taken in 0..1000 {
            b.read_exact(&mut [0]).await.expect("an octet");
            if ran.load(Ordering::Relaxed) {
                assert!(taken > 0);
                return;
            }
        }
        panic!("a thousand octets, and nobody else ran");
    }
}
