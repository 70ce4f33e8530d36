//! A host without a thread: calls of its sockets move the frames, and spin where they would sleep. For programs that have a processor
//! to spare and no microsecond.
//!
//! ```
//! use bypath_netstack::{Engine, Host, UdpSocket};
//! use bypath_stack::config::Config;
//!
//! let host = Host::in_process(Engine::new(Config::default()));
//! let server = UdpSocket::bind(&host, "127.0.0.1:7".parse()?)?;
//! let client = UdpSocket::bind(&host, "127.0.0.1:0".parse()?)?;
//! client.send_to(b"hello", server.local_addr()?)?;
//! let mut room = [0; 100];
//! // It spins until the datagram is there, and nobody else has a part in it.
//! let (len, _) = server.recv_from(&mut room)?;
//! assert_eq!(&room[..len], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The lock of the stack is still taken, so that several threads may use its sockets; who is alone never waits for it.

use crate::host::{Inner, Shared, release};
use crate::{Engine, Host};
use bypath_sys::clock;
use bypath_sys::poll::ppoll;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Host {
    /// A host that nobody runs but calls: each that finds nothing takes what has come from the links, does what is due, and looks again,
    /// until there is something or its time is over. One that does not wait looks once. All sockets of the crate work on it.
    ///
    /// What nobody calls for does not happen: acknowledgements that are late, what was lost and has to be sent again, answers to those who
    /// ask for the host's address. A program that does something else for a while calls [`poll`](Host::poll) now and then, which is also
    /// what wakes tasks and sets [descriptors](crate::TcpStream::readable_fd). What came meanwhile waits in the link, as far as that has room.
    pub fn in_process(engine: Engine) -> Host {
        Host { shared: Arc::new(Shared::new(engine, None)), thread: None }
    }

    /// Moves what there is to be moved, and does what is due: one turn of the engine. False: there was nothing to do.
    ///
    /// # Errors
    /// BrokenPipe: a link has gone.
    pub fn poll(&self) -> io::Result<bool> {
        let mut inner = self.shared.lock();
        inner.running()?;
        let moved = self.shared.turn(&mut inner);
        let running = inner.running().map(|_| moved);
        release(inner, &mut Vec::new());
        running
    }

    /// Sleeps until [`poll`](Host::poll) would have something to do, or for as long as that: for programs that spin for a while only. Who
    /// sleeps is not woken by calls of other threads.
    ///
    /// # Errors
    /// BrokenPipe: a link has gone.
    pub fn wait(&self, longest: Option<Duration>) -> io::Result<()> {
        let mut waits = Vec::new();
        let mut inner = self.shared.lock();
        let engine = inner.running()?;
        engine.descriptors(&mut waits);
        let due = engine.poll_timeout();
        drop(inner);
        let left = due.map(|at| at.saturating_sub(clock::monotonic_ns()));
        let longest = longest.map(|longest| u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        // An error is a signal.
        let _ = ppoll(&mut waits, left.into_iter().chain(longest).min(), 0);
        Ok(())
    }
}

/// Turns that find nothing before others may have the stack, and the time is looked at: a few microseconds.
const TURNS: usize = 32;

/// Tries, and moves frames while there is nothing; `now`: once at most.
pub fn spin<T>(
    shared: &Shared,
    now: bool,
    end: Option<Instant>,
    mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>,
) -> io::Result<T> {
    let mut turned = false;
    loop {
        let mut inner = shared.lock();
        // Another thread may have taken it from the link.
        if let Some(done) = attempt(&mut inner)? {
            return Ok(done);
        }
        if now && turned {
            return Err(ErrorKind::WouldBlock.into());
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(ErrorKind::TimedOut.into());
        }
        turned = true;
        if now {
            if !shared.turn(&mut inner) {
                return Err(ErrorKind::WouldBlock.into());
            }
        } else {
            let _moved = (0..TURNS).any(|_| {
                std::hint::spin_loop();
                shared.turn(&mut inner)
            });
        }
        release(inner, &mut Vec::new());
    }
}
