//! `bypath ipc --via ring`: the same messages through shared memory. One receiver listens on a name; each sender gets a
//! ring of its own from it, in memory that the receiver made, over an AF_UNIX socket, which stays: it tells who died, and
//! wakes who sleeps. The other end's words in the memory are numbers to be checked, never to be trusted.

pub mod recv;
pub mod send;

use crate::output::Failure;
use bypath_shm::arena::{Control, Geometry};
use bypath_shm::direction::{Direction, wait};
use bypath_shm::region::Arena;
use bypath_shm::ring::Ring;
use bypath_sys::{Errno, fd, process, unix};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst, fence};

/// The memory: one connection with one ring in use.
const GEOMETRY: Geometry = Geometry { slots: 1, ring: 1 << 20 };
/// What the receiver's first message begins with, version included.
const GREETING: [u8; 4] = *b"BYR\x01";
/// What wakes who sleeps.
const WAKE: [u8; 1] = [0];
/// Octets of the longest message on the socket.
const LONGEST_WORD: usize = 64;
/// Before it sleeps, an end looks for so long.
const SPIN: u64 = 20_000;
/// Descriptors are made above this one.
const FLOOR: i32 = 3;

/// A channel's name, as it is typed.
pub fn channel(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&text.len()) && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("expected 1 to 64 letters, digits, `-`, `_` or `.`".into())
    }
}

/// The name in the abstract namespace, which each network namespace has one of.
fn socket_name(channel: &str) -> Vec<u8> {
    format!("bypath-ipc-{}-{channel}", process::euid()).into_bytes()
}

/// A descriptor that is closed in the end.
struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        fd::close(self.0);
    }
}

/// What came on the socket.
enum Word {
    /// Nothing.
    Nothing,
    /// Only a wake, or what is not known.
    Woken,
    /// Octets that are not one.
    Said(Vec<u8>),
    /// The other end is gone.
    Gone,
}

impl Socket {
    /// Takes one message. Descriptors in it are closed.
    fn hear(&self) -> Word {
        let mut octets = [0; LONGEST_WORD];
        match unix::recv(self.0, &mut octets, FLOOR) {
            Ok(None) => Word::Nothing,
            Ok(Some(got)) => {
                got.fds[..got.fd_count].iter().for_each(|&f| fd::close(f));
                match got.len {
                    0 => Word::Gone,
                    1 => Word::Woken,
                    len => Word::Said(octets[..len].to_vec()),
                }
            }
            // More descriptors than there is room for: nobody asked for any.
            Err(Errno::MFILE) => Word::Woken,
            // It hung up and had not read all: what it said before is behind this.
            Err(Errno::CONNRESET) => Word::Woken,
            Err(_) => Word::Gone,
        }
    }

    /// Whether the other end runs for the same user.
    fn is_own(&self) -> Result<(), u32> {
        let uid = unix::peer_credentials(self.0).map_or(u32::MAX, |c| c.uid);
        if uid == process::euid() { Ok(()) } else { Err(uid) }
    }
}

/// One ring and the words around it.
struct Shared {
    arena: Arena,
    control: &'static Control,
    ring: Ring,
}

impl Shared {
    fn of(arena: Arena) -> Result<Shared, Errno> {
        let (control, ring) = (arena.control(0)?, arena.ring(0, 0)?);
        // Memory that is not there would end the process when it is touched.
        ring.back(0, ring.size())?;
        Ok(Shared { arena, control, ring })
    }

    fn direction(&self) -> &'static Direction {
        &self.control.direction[0]
    }

    /// Wakes who sleeps in one of these places; what was published before is seen by it. System calls made.
    fn wake(places: &[AtomicU64], socket: &Socket) -> u64 {
        // Pairs with the fence of `wait::arm`: either the sleeper is seen here, or it sees what was published.
        fence(SeqCst);
        let mut calls = 0;
        if wait::any(places) {
            wait::wake(places, |_| {
                calls += 1;
                // A queue that is full wakes as well; an end that is gone is told by reading.
                let _ = unix::send(socket.0, &WAKE, &[]);
            });
        }
        calls
    }
}

fn out_of_memory(e: Errno) -> Failure {
    Failure::new(
        1,
        format_args!("cannot make shared memory of 2 MiB: {e}; close other programs, or raise the limit"),
    )
}
