//! Whether the kernel has something beside the mailbox. To ask is a system call, which takes longer than a datagram by the ring takes
//! to come and to be answered: who looks again and again asks now and then only.

use crate::thread::Call;
use crate::{state, wait};
use bypath_sys::{clock, poll};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// A thread that calls nothing else between its receives is told that there is nothing as the kernel was at most so long ago (microseconds).
const AGAIN_US: u64 = 2;
/// A spin asks as often (microseconds).
const SPIN_US: u64 = 4;

/// What is known of the kernel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It has something to read, or an error to tell.
    News,
    /// It has nothing.
    Nothing,
    /// It had nothing a moment ago, and the thread does nothing but ask.
    StillNothing,
}

/// When the kernel was asked.
#[derive(Debug, Default)]
pub struct News {
    /// When it last was, and had nothing (ticks).
    asked: AtomicU64,
    /// The last call of a chain of calls of one thread on this socket, between which that made no other.
    by: AtomicU64,
}

impl News {
    pub(super) fn reset(&self) {
        self.asked.store(0, Relaxed);
        self.by.store(0, Relaxed);
    }

    /// Whether the kernel has something to read, or an error to tell.
    pub fn ask(&self, fd: i32) -> bool {
        self.ask_at(clock::ticks(), fd)
    }

    fn ask_at(&self, now: u64, fd: i32) -> bool {
        let news = poll::now(fd, libc::POLLIN) != 0;
        if !news {
            self.asked.store(now, Relaxed);
        }
        news
    }

    #[inline]
    fn was_asked(&self, now: u64, us: u64) -> bool {
        now.wrapping_sub(self.asked.load(Relaxed)) < us * state::ticks_per_us()
    }

    /// The same for a receive at `now` (ticks) that would not block. Of a thread that only receives here, again and again, it may answer as the
    /// kernel did a moment ago, as if it had been made then. A call in between that the library sees, and that is none on this
    /// socket's ring, may tell the thread of something: then the kernel is asked.
    #[inline]
    pub fn ask_again(&self, call: &Call, now: u64, fd: i32) -> Known {
        match self.stands(call, now, wait::last_told()) {
            true => Known::StillNothing,
            false if self.ask_at(now, fd) => Known::News,
            false => Known::Nothing,
        }
    }

    /// Whether the kernel's last answer still does. `told`: when it has told the program of a descriptor (ticks).
    #[inline]
    fn stands(&self, call: &Call, now: u64, told: u64) -> bool {
        let own = call.number();
        let follows = self.by.load(Relaxed).wrapping_add(1) == own;
        self.by.store(own, Relaxed);
        follows && self.was_asked(now, AGAIN_US) && told < self.asked.load(Relaxed)
    }

    /// A call used the ring, which says nothing of the kernel.
    #[inline]
    pub fn goes_on(&self, call: &Call) {
        let own = call.number();
        if self.by.load(Relaxed).wrapping_add(1) == own {
            self.by.store(own, Relaxed);
        }
    }

    /// The same for a spin at `now` (ticks).
    #[inline]
    pub fn ask_now_and_then(&self, now: u64, fd: i32) -> bool {
        !self.was_asked(now, SPIN_US) && self.ask_at(now, fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    /// Of which the kernel was asked in vain at `now`, by the call before.
    struct Socket {
        news: News,
        now: u64,
    }

    impl Socket {
        fn asked() -> Socket {
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            let socket = Socket { news: News::default(), now: clock::ticks() };
            assert!(!socket.stands(0, 0), "nobody has asked");
            assert!(!socket.news.ask_at(socket.now, receiver.as_raw_fd()));
            socket
        }

        /// Whether that stands for a receive `us` later.
        fn stands(&self, us: u64, told: u64) -> bool {
            let call = Call::enter().unwrap();
            self.news.stands(&call, self.now + us * state::ticks_per_us(), told)
        }
    }

    #[test]
    fn a_loop_of_receives_asks_now_and_then() {
        let socket = Socket::asked();
        assert!(socket.stands(AGAIN_US - 1, 0));
        assert!(!socket.stands(AGAIN_US, 0));
    }

    #[test]
    fn calls_on_the_ring_do_not_count_and_others_do() {
        let socket = Socket::asked();
        socket.news.goes_on(&Call::enter().unwrap());
        assert!(socket.stands(1, 0));
        drop(Call::enter());
        assert!(!socket.stands(1, 0), "another call may have told of it");
        drop(Call::enter());
        socket.news.goes_on(&Call::enter().unwrap());
        assert!(!socket.stands(1, 0), "and a call on the ring does not change that");
    }

    #[test]
    fn another_thread_asks_by_itself() {
        let socket = Socket::asked();
        assert!(!std::thread::scope(|scope| scope.spawn(|| socket.stands(1, 0)).join().unwrap()));
    }

    #[test]
    fn what_the_kernel_tells_in_another_way_is_looked_for() {
        let socket = Socket::asked();
        assert!(socket.stands(1, socket.now - 1));
        assert!(!socket.stands(1, socket.now));
        wait::kernel_told(libc::POLLIN as u32);
        assert!(wait::last_told() >= socket.now);
    }

    #[test]
    fn a_spin_asks_now_and_then() {
        let socket = Socket::asked();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.send_to(b"news", receiver.local_addr().unwrap()).unwrap();
        let spin = |us: u64| {
            socket.news.ask_now_and_then(socket.now + us * state::ticks_per_us(), receiver.as_raw_fd())
        };
        assert!(!spin(SPIN_US - 1));
        assert!(spin(SPIN_US));
    }
}
