//! poll and ppoll over followed and other descriptors.

use crate::flush;
use crate::hook::{PollFd, Verdict};
use crate::others;
use crate::peer::Conn;
use crate::raised::{self, Counter, Several};
use crate::ready;
use crate::state;
use crate::switch;
use crate::table::{self, Entry, Sock};
use crate::thread::{self as threads, Call, Use};
use crate::wait::{STALL_NS, SpinHistory};
use crate::{epoll, fault, siblings, udp, unwoken};
use bypath_shm::direction::wait as words;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd as Kernel, ppoll};
use bypath_sys::{Errno, clock, thread};
use std::sync::atomic::Ordering::*;

/// Sets up to this size find room on the stack: more of it than this needs may not be there.
const SMALL: usize = 8;
/// Sockets of a set, the first ones, for which it is remembered that the thread may be blocked on them.
const REMEMBERED: usize = 63;

/// How spinning in poll went, all sets of the process together.
static SPINS: SpinHistory = SpinHistory::new();

/// Whether any entry is a followed socket, or an epoll set that holds one.
pub fn concerns(fds: &[PollFd]) -> bool {
    fds.iter().any(|p| p.fd >= 0 && table::is_overlaid(p.fd))
}

/// poll, ppoll, and select in their clothes.
pub fn poll(fds: &mut [PollFd], timeout_ns: Option<u64>, sigmask: usize) -> Verdict {
    if !concerns(fds) {
        return Verdict::NotOurs;
    }
    epoll::waits();
    let Some(call) = Call::enter() else { return Verdict::NotOurs };
    for p in fds.iter() {
        // An epoll set inside another set is looked at by the kernel alone: its sockets stay there.
        if let Some(Entry::Epoll(set)) = table::entry(p.fd) {
            epoll::keep_on_kernel(set);
        }
    }
    let n = fds.len();
    if n <= SMALL {
        let (mut view, mut words) = ([Kernel::default(); SMALL + 1], [0; SMALL]);
        return Verdict::done(wait(&call, fds, &mut view[..n + 1], &mut words[..n], timeout_ns, sigmask));
    }
    let remembered = n.min(REMEMBERED);
    let len = (n + 1) * size_of::<Kernel>() + remembered * size_of::<u64>();
    let Some(mut scratch) = threads::scratch(Use::Wait, len, thread::stack_address()) else {
        return Verdict::done(Err(Errno::NOMEM));
    };
    let (view, words) = scratch.two::<Kernel, u64>(n + 1, remembered);
    Verdict::done(wait(&call, fds, view, words, timeout_ns, sigmask))
}

fn warm(fd: i32) -> Option<(&'static Sock, &'static Conn)> {
    let s = table::sock(fd)?;
    Some((s, s.conn.get()?))
}

/// Fills the kernel's view of the set; returns the number of entries that are ready by their rings.
fn evaluate(fds: &mut [PollFd], scratch: &mut [Kernel]) -> usize {
    let mut ready = 0;
    for (p, k) in fds.iter_mut().zip(scratch.iter_mut()) {
        *k = Kernel { fd: p.fd, events: p.events, revents: 0 };
        p.revents = 0;
        if let Some((s, conn)) = warm(p.fd) {
            let wanted = p.events as u16 as u32;
            p.revents = ready::ring_events(s, conn, wanted) as i16;
            k.events = ready::carrier_events(s, wanted) as i16;
            if ready::watches_end(s, conn) {
                k.events |= libc::POLLRDHUP;
            }
            ready += usize::from(p.revents != 0);
        } else {
            p.revents = udp::wait::ready(p);
            ready += usize::from(p.revents != 0);
        }
    }
    ready
}

fn merge(fds: &mut [PollFd], scratch: &[Kernel]) -> usize {
    let mut ready = 0;
    for (p, k) in fds.iter_mut().zip(scratch) {
        let mut seen = k.revents;
        crate::wait::kernel_told(seen as u16 as u32);
        if seen & libc::POLLRDHUP != 0
            && let Some((s, conn)) = warm(p.fd)
            && let Some(call) = Call::enter()
            && ready::watches_end(s, conn)
        {
            // What the kernel saw may be of another connection that had the number: this one is asked.
            let now = bypath_sys::poll::now(s.carrier(), p.events | libc::POLLRDHUP);
            if now & libc::POLLRDHUP != 0 {
                switch::peer_ended(s, conn, now & (libc::POLLHUP | libc::POLLERR) != 0, &call);
                seen |= bypath_sys::poll::now(p.fd, p.events);
            }
        }
        p.revents |= seen & (p.events | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
        ready += usize::from(p.revents != 0);
    }
    ready
}

fn wait(
    call: &Call,
    fds: &mut [PollFd],
    scratch: &mut [Kernel],
    words: &mut [u64],
    timeout_ns: Option<u64>,
    sigmask: usize,
) -> Result<usize, Errno> {
    let deadline = timeout_ns.map(|ns| clock::monotonic_ns().saturating_add(ns));
    let n = fds.len();
    let mut first = true;
    let _nest = call.thread.sleeping();
    loop {
        if state::is_sealed() {
            return Err(Errno::BADF);
        }
        switch::attend();
        siblings::look_if_due(call);
        if evaluate(fds, scratch) > 0 || timeout_ns == Some(0) {
            ppoll(&mut scratch[..n], Some(0), 0)?;
            return Ok(merge(fds, scratch));
        }
        if first && spin(call, fds) {
            first = false;
            continue;
        }
        first = false;

        // Threads blocked in the kernel on cold ends hold back their upgrade.
        let cold = |p: &PollFd| table::sock(p.fd).filter(|s| !s.is_warm());
        let frame = thread::stack_address();
        raised::lower_dead(frame);
        let mut entered = Several::new(words, frame);
        let mut refused = false;
        for (i, p) in fds.iter().enumerate() {
            if let Some(s) = cold(p) {
                if !entered.raise(i, || Counter::Polling(s)) {
                    // Nothing is remembered of it: such a socket stays cold for good.
                    s.keep_on_kernel(Reason::InKernelCall);
                }
                refused |= s.is_warm();
            } else if let Some(r) = udp::wait::sleeps_on(p)
                && !entered.raise(i, || Counter::Datagrams(r))
            {
                r.keep(Reason::InKernelCall);
            }
        }
        fault::between("to-poll");
        // After those sleeps were announced.
        udp::wait::close(fds);
        let mut armed = Armed::default();
        let mut bound = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        for p in fds.iter() {
            if let Some((s, conn)) = warm(p.fd) {
                let (incoming, outgoing) = ready::needs_words(s, p.events as u16 as u32);
                if (incoming || outgoing)
                    && let Some(pause) = armed.arm(call, s, conn, incoming, outgoing)
                {
                    bound = Some(bound.unwrap_or(u64::MAX).min(pause));
                }
                if outgoing || incoming && ready::fills_unseen(s, conn) {
                    bound = Some(bound.unwrap_or(u64::MAX).min(STALL_NS));
                }
            }
        }
        let flushing = flush::flushes_pending();
        if flushing {
            bound = Some(bound.unwrap_or(u64::MAX).min(flush::FLUSH_PERIOD_NS));
        }
        let asked = crate::wait::before_sleep(call, bound);
        let result = if refused || evaluate(fds, scratch) > 0 {
            Ok(0)
        } else {
            let mut len = n;
            // Who cancels the thread rings its bell, even if no end of a ring does.
            if let Some(bell_fd) = armed.bell_fd.or_else(|| call.thread.silenced_bell()) {
                scratch[n] = Kernel { fd: bell_fd, events: libc::POLLIN, revents: 0 };
                len = n + 1;
            }
            fault::between("poll-enters");
            let result = call.parked(|| ppoll(&mut scratch[..len], asked, sigmask));
            if len > n && scratch[n].revents != 0 {
                call.thread.rung.store(true, Relaxed);
            }
            result
        };
        armed.withdraw(call, fds);
        if flushing {
            flush::drive_flushes(call);
        }
        entered.lower();
        let silent = result? == 0;
        fault::between("polled");
        if merge(fds, scratch) > 0 {
            // Rings may have become ready as well: report all of it.
            for p in fds.iter_mut() {
                if let Some((s, conn)) = warm(p.fd) {
                    p.revents |= ready::ring_events(s, conn, p.events as u16 as u32) as i16;
                } else {
                    p.revents |= udp::wait::ready(p);
                }
            }
            return Ok(fds.iter().filter(|p| p.revents != 0).count());
        }
        for p in fds.iter() {
            if let Some((s, conn)) = warm(p.fd)
                && p.events & libc::POLLOUT != 0
            {
                if silent && armed.word.is_some() && ready::ring_writable(s, conn) {
                    conn.tell_again(call.thread.bell.load(Relaxed));
                }
                crate::stream::unstick(s, conn, call);
            }
        }
        if let Some(d) = deadline
            && clock::monotonic_ns() >= d
        {
            let ready = evaluate(fds, scratch);
            return Ok(ready);
        }
    }
}

/// Spins while nothing but rings of the set is looked at, and the carriers are not.
fn spin(call: &Call, fds: &[PollFd]) -> bool {
    let mut peer_cpu = None;
    for p in fds {
        if let Some((s, conn)) = warm(p.fd)
            && ready::needs_words(s, p.events as u16 as u32).0
        {
            peer_cpu = Some(conn.inc().t.cpu.load(Relaxed));
        }
    }
    let datagrams = udp::wait::any(fds);
    if peer_cpu.is_none() && !datagrams {
        return false;
    }
    let peer_cpu = peer_cpu.unwrap_or(u32::MAX);
    let Some(config) = state::config() else { return false };
    if fds.len() > 8 || config.spin_budget_ns == 0 {
        return false;
    }
    if datagrams && !udp::wait::open(fds) {
        return true;
    }
    let others = fds.iter().any(|p| p.fd >= 0 && warm(p.fd).is_none());
    let mut looks = 0u32;
    crate::wait::spin(call, &SPINS, peer_cpu, 0, || {
        looks += 1;
        let ring = fds
            .iter()
            .any(|p| warm(p.fd).is_some_and(|(s, c)| ready::ring_events(s, c, p.events as u16 as u32) != 0));
        // Other descriptors of the set get their look too: every few microseconds.
        ring || datagrams && fds.iter().any(|p| udp::wait::ready(p) != 0)
            || others
                && looks.is_multiple_of(64)
                && fds
                    .iter()
                    .any(|p| p.fd >= 0 && warm(p.fd).is_none() && bypath_sys::poll::now(p.fd, p.events) != 0)
    })
}

/// The wait words that one poll entered: all with the same ticket.
#[derive(Default)]
struct Armed {
    word: Option<u64>,
    bell_fd: Option<i32>,
}

impl Armed {
    /// How long to sleep without, if a word could not be entered.
    fn arm(
        &mut self,
        call: &Call,
        s: &'static Sock,
        conn: &'static Conn,
        incoming: bool,
        outgoing: bool,
    ) -> Option<u64> {
        let Some((bell, bell_fd)) = conn.bell_for(call.thread) else {
            return Some(unwoken::ask(s, conn, Reason::RecalledNoBell));
        };
        let word = *self.word.get_or_insert_with(|| words::word(bell, call.thread.next_ticket()));
        if self.bell_fd.is_none() {
            // Silenced before any word is entered: a ring after that is for this sleep.
            if call.thread.rung.swap(false, Relaxed) {
                others::silence(bell_fd);
            }
            self.bell_fd = Some(bell_fd);
            crate::wait::announce(bell, word as u32);
        }
        let mut pause = None;
        if incoming && !words::arm(&conn.inc().ra.wait, word) {
            pause = Some(unwoken::ask(s, conn, Reason::RecalledWaiters));
        }
        if outgoing && !words::arm(&conn.out().wa.wait, word) {
            pause = Some(unwoken::FIRST_NS);
        }
        pause
    }

    fn withdraw(&self, call: &Call, fds: &[PollFd]) {
        let Some(word) = self.word else { return };
        let mut rung = false;
        for p in fds {
            if let Some((_, conn)) = warm(p.fd) {
                words::disarm(&conn.inc().ra.wait, word);
                words::disarm(&conn.out().wa.wait, word);
                rung = true;
            }
        }
        crate::wait::retract(words::bell(word), call.thread);
        // Whether a waker was faster is not known for each word: silence the bell before the next sleep.
        if rung {
            call.thread.rung.store(true, Relaxed);
        }
    }
}
