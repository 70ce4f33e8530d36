//! The bare ring: our own memory layout between two processes, without sockets, sleeping or recall.
//!
//! It is the floor of the figures: what shared memory can do here and now. Each counter has one writer, so a
//! plain store publishes it; the other side's counter is looked at only when the last look no longer suffices.

use super::channel::Channel;
use super::transport::Conversation;
use super::{Line, PeerArgs, Role};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::{Direction, writer_flag};
use bypath_shm::region::Arena;
use bypath_shm::ring::Ring;
use std::io;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering::{Acquire, Release};

const GEOMETRY: Geometry = Geometry { slots: 1, ring: 256 * 1024 };
/// Lowest number for the memory's descriptor.
const FLOOR: i32 = 100;

pub fn open<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    let failed = |e| io::Error::other(format!("shared memory: {e:?}"));
    let (arena, own) = match args.role {
        Role::Serve => {
            let (arena, fd) = Arena::new(GEOMETRY, FLOOR).map_err(failed)?;
            // The zeroed page is an empty ring already; both sides start at position 0.
            Line::Ready(format!("/proc/{}/fd/{fd}", std::process::id())).print();
            (arena, 1)
        }
        Role::Drive => {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&args.addr)?;
            (Arena::map(file.as_raw_fd(), GEOMETRY).map_err(failed)?, 0)
        }
    };
    let control = arena.control(0).map_err(failed)?;
    let side = |d: usize| -> io::Result<Side> {
        let ring = arena.ring(0, d).map_err(failed)?;
        ring.back(0, ring.size()).map_err(failed)?;
        Ok(Side { ring, direction: &control.direction[d], own: 0, other: 0 })
    };
    talk.over(Bare { tx: side(own)?, rx: side(1 - own)?, pace: 0 })
}

/// Most pauses between two looks, and how many bytes a look should find.
const SLOWEST: u32 = 64;
const ENOUGH: u64 = 2048;

struct Side {
    ring: Ring,
    direction: &'static Direction,
    /// Our counter of this direction: tail when we write, head when we read.
    own: u64,
    /// The other counter as last seen.
    other: u64,
}

struct Bare {
    tx: Side,
    rx: Side,
    /// Pauses before the next look for more: a side that only receives lets the other fill more than one message,
    /// as each look takes the counter's cache line away from it.
    pace: u32,
}

impl Channel for Bare {
    #[inline]
    fn send(&mut self, mut buf: &[u8]) -> io::Result<()> {
        let tx = &mut self.tx;
        // Who sends waits for an answer, and looks at once.
        self.pace = 0;
        while !buf.is_empty() {
            let room = tx.ring.size() - (tx.own - tx.other);
            if room == 0 {
                // Acquire pairs with the Release in `recv`: the bytes have been copied out.
                tx.other = tx.direction.h.head.load(Acquire);
                continue;
            }
            let n = buf.len().min(room as usize);
            tx.ring.copy_from_slice(tx.own, &buf[..n]);
            tx.own += n as u64;
            tx.direction.t.tail.store(tx.own, Release);
            buf = &buf[n..];
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, mut buf: &mut [u8]) -> io::Result<()> {
        let rx = &mut self.rx;
        while !buf.is_empty() {
            let ready = rx.other - rx.own;
            if ready == 0 {
                for _ in 0..self.pace {
                    std::hint::spin_loop();
                }
                // Acquire pairs with the Release in `send`: the bytes are there.
                rx.other = rx.direction.t.tail.load(Acquire);
                match rx.other - rx.own {
                    0 => self.pace /= 2,
                    n if n < ENOUGH => self.pace = (self.pace * 2).clamp(1, SLOWEST),
                    _ => self.pace -= self.pace.min(1),
                }
                continue;
            }
            let n = buf.len().min(ready as usize);
            rx.ring.copy_to_slice(rx.own, &mut buf[..n]);
            rx.own += n as u64;
            rx.direction.h.head.store(rx.own, Release);
            buf = &mut buf[n..];
        }
        Ok(())
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.tx.direction.wa.flags.store(writer_flag::SHUT, Release);
        Ok(())
    }

    fn expect_end(&mut self) -> io::Result<()> {
        while self.rx.direction.wa.flags.load(Acquire) & writer_flag::SHUT == 0 {
            std::hint::spin_loop();
        }
        if self.rx.direction.t.tail.load(Acquire) != self.rx.own {
            return Err(super::messages::wrong("more bytes than were sent".into()));
        }
        Ok(())
    }
}
