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
//! A call that sends moves the frame to the link itself; what arrives is moved by the thread. Whoever needs microseconds has
//! no thread at all ([`Host::in_process`]), or runs the [`Engine`] in his own loop.

use crate::descriptor::Shown;
use crate::engine::{Engine, News};
use crate::signal::Signal;
use crate::tasks::Tasks;
use bypath_stack::event::{Event, Ready};
use bypath_stack::socket::SocketId;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::signal::Blocked;
use bypath_sys::{clock, eventfd, fd};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::Duration;

/// poll(2): readable.
const READ: i16 = 1;
/// Turns that the thread takes before others may have the stack.
const TURNS: usize = 16;

pub struct Inner {
    /// `None`: the host was dropped.
    engine: Option<Engine>,
    /// Who waits for which socket.
    pub waiters: HashMap<SocketId, Waiters>,
    /// Why the thread has ended.
    ended: Option<String>,
    stops: bool,
    /// The thread sleeps, until this time of CLOCK_MONOTONIC at most.
    pub sleeps_until: Option<u64>,
    /// It waits until a link that was full has room, too.
    sleeps_for_room: bool,
    /// Nobody sleeps for news: calls look for themselves ([`Host::in_process`]).
    pub polled: bool,
    /// Tasks that the thread wakes when it has given the stack back: what that runs may use it.
    woken: Vec<Waker>,
}

impl Inner {
    /// The engine, as long as there is one.
    ///
    /// # Errors
    /// BrokenPipe.
    pub fn engine(&mut self) -> io::Result<&mut Engine> {
        match &mut self.engine {
            Some(engine) => Ok(engine),
            None => Err(broken(self.ended.as_deref())),
        }
    }

    /// The engine, as long as frames move.
    ///
    /// # Errors
    /// BrokenPipe.
    pub fn running(&mut self) -> io::Result<&mut Engine> {
        if self.ended.is_some() {
            return Err(broken(self.ended.as_deref()));
        }
        self.engine()
    }

    fn wake(&mut self, id: SocketId) {
        if let Some(waiters) = self.waiters.get_mut(&id) {
            if !self.polled {
                waiters.threads.raise();
            }
            waiters.tasks.wake(&mut self.woken);
            if waiters.shown.is_some() {
                self.show(id);
            }
        }
    }

    /// Shows what a socket is, where descriptors of it are polled.
    pub fn show(&mut self, id: SocketId) {
        let Some(shown) = self.waiters.get_mut(&id).and_then(|w| w.shown.as_deref_mut()) else { return };
        shown.set(match &mut self.engine {
            Some(engine) if self.ended.is_none() => engine.stack().readiness(id),
            // Every call says that it is over, once what had come was read.
            _ => Ready { readable: true, writable: true, error: true, ..Ready::default() },
        });
    }

    /// Nothing comes any more.
    fn end(&mut self, why: &str) {
        self.ended.get_or_insert_with(|| why.into());
        let all: Vec<SocketId> = self.waiters.keys().copied().collect();
        all.into_iter().for_each(|id| self.wake(id));
    }
}

fn broken(why: Option<&str>) -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, why.unwrap_or("the host has ended").to_owned())
}

/// Who waits for a socket.
#[derive(Default)]
pub struct Waiters {
    pub threads: Arc<Signal>,
    pub tasks: Tasks,
    /// Descriptors of it are polled.
    pub shown: Option<Box<Shown>>,
}

pub struct Shared {
    /// Held while `inner` is waited for: who had it last does not get it again before him. A thread that gives a lock back and
    /// takes it at once would have it for ever otherwise.
    next: Mutex<()>,
    inner: Mutex<Inner>,
    /// eventfd: wakes the thread. `None`: there is none.
    bell: Option<i32>,
    /// Something happened that is no socket's.
    changed: Signal,
}

impl Shared {
    /// `bell`: of a thread; without one calls move frames.
    pub fn new(engine: Engine, bell: Option<i32>) -> Shared {
        let inner = Inner {
            engine: Some(engine),
            waiters: HashMap::new(),
            ended: None,
            stops: false,
            sleeps_until: None,
            sleeps_for_room: false,
            polled: bell.is_none(),
            woken: Vec::new(),
        };
        Shared { next: Mutex::new(()), inner: Mutex::new(inner), bell, changed: Signal::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        let _next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a call: frames go out, and the thread learns of times that are sooner than those that it knows, and of links that are
    /// full since it sleeps.
    pub fn push(&self, inner: &mut Inner) {
        let Ok(engine) = inner.running() else { return };
        if let Err(e) = engine.flush() {
            // The thread tells those who wait.
            inner.ended.get_or_insert(e.to_string());
            return self.ring();
        }
        if self.bell.is_none() {
            return;
        }
        let Some(engine) = &inner.engine else { return };
        let (next, full) = (engine.poll_timeout(), engine.is_full());
        let sooner = |until| next.is_some_and(|next| next < until) || full && !inner.sleeps_for_room;
        if inner.sleeps_until.is_some_and(sooner) {
            self.ring();
        }
    }

    /// Whether calls move frames, and no thread does.
    pub const fn is_polled(&self) -> bool {
        self.bell.is_none()
    }

    /// One turn of the engine, and its news. True: there was something to do.
    pub fn turn(&self, inner: &mut Inner) -> bool {
        let Ok(engine) = inner.running() else { return false };
        let moved = match engine.turn() {
            Ok(moved) => moved,
            Err(e) => {
                inner.end(&e.to_string());
                true
            }
        };
        tell(self, inner);
        moved
    }

    fn ring(&self) {
        if let Some(bell) = self.bell {
            eventfd::ring(bell);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(bell) = self.bell {
            fd::close(bell);
        }
    }
}

/// An engine that runs. It ends when this is dropped, and its links are closed; sockets tell of it.
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    /// `None`: calls move frames ([`Host::in_process`]).
    pub(crate) thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Runs an engine on a thread of its own.
    ///
    /// # Errors
    /// No thread, or no descriptor is to be had.
    pub fn run(engine: Engine) -> io::Result<Host> {
        let bell = eventfd::create(3).map_err(|e| io::Error::from_raw_os_error(e.raw_os_error()))?;
        let shared = Arc::new(Shared::new(engine, Some(bell)));
        let own = Arc::clone(&shared);
        // The thread inherits that no signal comes to it: those are for the program's own threads, which may wait for them.
        let _blocked = Blocked::new();
        let thread = std::thread::Builder::new().name("netstack".into()).spawn(move || run(&own))?;
        Ok(Host { shared, thread: Some(thread) })
    }

    /// Works with the engine while its thread waits: addresses, routes, counters. The thread waits long for work that takes long:
    /// what arrives meanwhile may be lost.
    ///
    /// # Panics
    /// Where `work` does. Calls of sockets in it would wait for ever.
    pub fn with<T>(&self, work: impl FnOnce(&mut Engine) -> T) -> T {
        let mut inner = self.shared.lock();
        let result = work(inner.engine.as_mut().expect("the host has it until it is dropped"));
        self.shared.push(&mut inner);
        self.shared.ring();
        result
    }

    /// Why frames do not move any more; `None`: they do.
    pub fn ended(&self) -> Option<String> {
        self.shared.lock().ended.clone()
    }

    /// How much has changed that is no socket's: addresses, leases, links.
    pub(crate) fn changes(&self) -> u64 {
        self.shared.changed.count()
    }

    /// Waits until more has changed than `seen`; false: `until` came first.
    pub(crate) fn wait_change(&self, seen: u64, until: Option<std::time::Instant>) -> bool {
        self.shared.changed.wait(seen, until)
    }

    /// Ends it, gives leases back, and sends what is still to be sent, within this time.
    pub fn finish(mut self, longest: Duration) {
        if let Some(mut engine) = self.stop() {
            engine.finish(longest);
        }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn stop(&mut self) -> Option<Engine> {
        self.shared.lock().stops = true;
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // It has panicked, then: that was told.
            let _ = thread.join();
        }
        let mut inner = self.shared.lock();
        inner.end("the host was stopped");
        let engine = inner.engine.take();
        release(inner, &mut Vec::new());
        engine
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Tells that the thread has ended, however it did.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.end("a mistake in bypath itself ended the thread of the host; please report it");
        self.0.changed.raise();
        release(inner, &mut Vec::new());
    }
}

fn run(shared: &Shared) {
    let _ends = Ends(shared);
    let mut waits: Vec<PollFd> = Vec::new();
    let mut woken = Vec::new();
    loop {
        let mut inner = shared.lock();
        inner.sleeps_until = None;
        let mut busy = true;
        for _ in 0..TURNS {
            // Only who stops it takes it away.
            let Ok(engine) = inner.running() else { return };
            match engine.turn() {
                Ok(moved) => busy = moved,
                Err(e) => inner.end(&e.to_string()),
            }
            if !busy || inner.ended.is_some() {
                break;
            }
        }
        tell(shared, &mut inner);
        if inner.stops {
            inner.end("the host was stopped");
        }
        let Ok(engine) = inner.running() else { return release(inner, &mut woken) };
        if busy {
            release(inner, &mut woken);
            continue;
        }
        waits.clear();
        engine.descriptors(&mut waits);
        waits.extend(shared.bell.map(|fd| PollFd { fd, events: READ, revents: 0 }));
        let (next, full) = (engine.poll_timeout(), engine.is_full());
        inner.sleeps_for_room = full;
        inner.sleeps_until = Some(next.unwrap_or(u64::MAX));
        release(inner, &mut woken);
        let left = next.map(|at| at.saturating_sub(clock::monotonic_ns()));
        // An error is a signal.
        let _ = ppoll(&mut waits, left, 0);
        if let Some(bell) = waits.last().filter(|last| Some(last.fd) == shared.bell && last.revents != 0) {
            eventfd::silence(bell.fd);
        }
    }
}

/// Gives the stack back, and then wakes the tasks of which there is news.
pub fn release(mut inner: MutexGuard<'_, Inner>, woken: &mut Vec<Waker>) {
    // Two lists, so that neither is allocated again.
    std::mem::swap(&mut inner.woken, woken);
    drop(inner);
    woken.drain(..).for_each(Waker::wake);
}

/// Wakes who waits for a socket of which there is news.
fn tell(shared: &Shared, inner: &mut Inner) {
    while let Some(news) = inner.engine.as_mut().and_then(Engine::poll_event) {
        match news {
            News::Stack(Event::Socket { id, .. }) => inner.wake(id),
            _ => shared.changed.raise(),
        }
    }
}
