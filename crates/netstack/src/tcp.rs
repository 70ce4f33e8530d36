//! TCP of a host, with calls that block: what listeners and streams have in common.

mod forwarder;
mod listener;
mod settings;
mod stream;

pub use forwarder::{TcpCall, TcpForwarder};
pub use listener::{Incoming, TcpListener};
pub use stream::TcpStream;

use crate::descriptor::{Descriptors, Side};
use crate::host::{Inner, Shared, Waiters};
use crate::signal::Signal;
use crate::udp::{bind_error, network_error};
use bypath_stack::Tcp;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{ConnectError, WriteError};
use bypath_stack::tcp::{Failure, Options, Settings, State};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections that wait to be accepted, if nobody says how many: as the standard library has it.
const BACKLOG: usize = 128;

/// A socket of the stack, and who waits for it. Dropping it closes the socket.
pub struct Socket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SocketId,
    news: Arc<Signal>,
    timeouts: Mutex<Timeouts>,
    /// Nothing more is read.
    deaf: AtomicBool,
    descriptors: Descriptors,
}

/// Longest waits of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Timeouts {
    read: Option<Duration>,
    write: Option<Duration>,
    /// They do not wait at all.
    nonblocking: bool,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
enum Way {
    Read,
    Write,
}

impl Socket {
    /// The socket, from now on one that can be waited for.
    fn register(shared: Arc<Shared>, inner: &mut Inner, id: SocketId) -> Socket {
        let waiters = Waiters::default();
        let news = Arc::clone(&waiters.threads);
        inner.waiters.insert(id, waiters);
        Socket {
            shared,
            id,
            news,
            timeouts: Mutex::default(),
            deaf: AtomicBool::new(false),
            descriptors: Descriptors::default(),
        }
    }

    /// A new one.
    fn open(shared: &Arc<Shared>, change: impl FnOnce(&mut Options, &mut Settings)) -> io::Result<Socket> {
        let mut inner = shared.lock();
        let stack = inner.running()?.stack();
        let id = stack.open_tcp().map_err(|e| io::Error::new(ErrorKind::OutOfMemory, e))?;
        let mut tcp = tcp(&mut inner, id)?;
        let (mut options, mut settings) = (tcp.options(), tcp.settings());
        change(&mut options, &mut settings);
        tcp.set_options(options);
        tcp.set_settings(crate::Engine::now(), settings);
        Ok(Socket::register(Arc::clone(shared), &mut inner, id))
    }

    /// One that calls.
    pub(crate) fn call(
        shared: &Arc<Shared>,
        to: SocketAddr,
        from: Option<SocketAddr>,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<Socket> {
        let socket = Socket::open(shared, change)?;
        if let Some(from) = from {
            socket.with(|tcp| tcp.bind(from).map_err(bind_error))??;
        }
        socket.with(|tcp| tcp.connect(crate::Engine::now(), to).map_err(connect_error))??;
        Ok(socket)
    }

    /// `None`: it is not open yet.
    pub(crate) fn try_open(&self, inner: &mut Inner) -> io::Result<Option<()>> {
        let mut tcp = tcp(inner, self.id)?;
        if let Some(failure) = tcp.take_error() {
            return Err(failed(failure));
        }
        match tcp.state() {
            Some(State::SynSent | State::SynReceived) => nothing(inner),
            Some(State::Closed) | None => {
                Err(io::Error::new(ErrorKind::NotConnected, WriteError::NotConnected))
            }
            _ => Ok(Some(())),
        }
    }

    fn timeouts(&self) -> MutexGuard<'_, Timeouts> {
        self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_timeout(&self, timeout: Option<Duration>) {
        let mut timeouts = self.timeouts();
        (timeouts.read, timeouts.write) = (timeout, timeout);
    }

    fn descriptor(&self, side: Side) -> io::Result<BorrowedFd<'_>> {
        self.descriptors.of(&self.shared, self.id, side, || self.deaf.load(Ordering::Relaxed))
    }

    /// Reads no more, and says so to who waits.
    fn deafen(&self) {
        let mut inner = self.shared.lock();
        self.deaf.store(true, Ordering::Relaxed);
        let mut woken = Vec::new();
        if let Some(waiters) = inner.waiters.get_mut(&self.id) {
            waiters.threads.raise();
            waiters.tasks.wake(&mut woken);
            if let Some(shown) = &mut waiters.shown {
                shown.deaf = true;
            }
        }
        inner.show(self.id);
        drop(inner);
        // What they run may use the stack.
        woken.into_iter().for_each(std::task::Waker::wake);
    }

    /// Calls the socket; frames that follow from it go out.
    fn with<T>(&self, call: impl FnOnce(&mut Tcp<'_>) -> T) -> io::Result<T> {
        let mut inner = self.shared.lock();
        let result = call(&mut tcp(&mut inner, self.id)?);
        self.shared.push(&mut inner);
        self.descriptors.show(&mut inner, self.id);
        Ok(result)
    }

    /// Tries, and waits while there is nothing.
    fn wait<T>(
        &self,
        way: Way,
        mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let timeouts = *self.timeouts();
        let timeout = match way {
            _ if timeouts.nonblocking => Some(Duration::ZERO),
            Way::Read => timeouts.read,
            Way::Write => timeouts.write,
        };
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let mut inner = self.shared.lock();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            let seen = self.news.count();
            drop(inner);
            if timeout.is_some_and(|t| t.is_zero()) {
                return Err(ErrorKind::WouldBlock.into());
            }
            if !self.news.wait(seen, end) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let waiters = inner.waiters.remove(&self.id);
        if let Ok(engine) = inner.engine() {
            engine.stack().close(self.id);
        }
        self.shared.push(&mut inner);
        drop(inner);
        drop(waiters);
    }
}

/// Not yet.
///
/// # Errors
/// BrokenPipe: nothing comes any more. What was there could be read after the end.
fn nothing<T>(inner: &mut Inner) -> io::Result<Option<T>> {
    inner.running().map(|_| None)
}

fn tcp(inner: &mut Inner, id: SocketId) -> io::Result<Tcp<'_>> {
    inner.engine()?.stack().tcp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
}

fn failed(failure: Failure) -> io::Error {
    let kind = match failure {
        Failure::Refused => ErrorKind::ConnectionRefused,
        Failure::Reset => ErrorKind::ConnectionReset,
        Failure::TimedOut => ErrorKind::TimedOut,
        Failure::Network(e) => return network_error(e),
    };
    io::Error::new(kind, failure)
}

fn connect_error(e: ConnectError) -> io::Error {
    let kind = match e {
        ConnectError::Unreachable(Unreachable::Route | Unreachable::Scope) | ConnectError::NotAHost => {
            ErrorKind::NetworkUnreachable
        }
        ConnectError::Unreachable(_) | ConnectError::InUse => ErrorKind::AddrNotAvailable,
        _ => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, e)
}
