//! The hot list of a set: warm ends that whoever waits looks at. What is quiet is armed and taken off.

use super::{ALWAYS, ET, IN, KNOWN, LOCK, ONESHOT, OUT, Reg, Set, disarm, reg, silence};
use crate::fault;
use crate::hook::EpollEvent;
use crate::peer::{Conn, EPOLL_BELL};
use crate::ready;
use crate::table::{self, Sock};
use crate::thread::Call;
use crate::{unwoken, wait};
use bypath_shm::direction::wait as words;
use bypath_shm::reason::Reason;
use std::sync::atomic::Ordering::*;

pub(super) fn make_hot(number: u32, r: &Reg, s: &Set) {
    if !r.is_hot.swap(true, Relaxed) {
        r.next_hot.store(s.hot.load(Relaxed), Relaxed);
        s.hot.store(number + 1, Release);
        s.hot_count.fetch_add(1, Relaxed);
    }
}

pub(super) fn unlink_hot(number: u32, r: &Reg, s: &Set) {
    if !r.is_hot.swap(false, Relaxed) {
        return;
    }
    let mut place = &s.hot;
    while let Some(n) = place.load(Relaxed).checked_sub(1) {
        let Some(here) = reg(n) else { return };
        if n == number {
            place.store(here.next_hot.load(Relaxed), Relaxed);
            s.hot_count.fetch_sub(1, Relaxed);
            return;
        }
        place = &here.next_hot;
    }
}

/// Ready ends of the hot list into `out`. Level-triggered ones stay hot; others too, until they are armed.
pub(super) fn collect(s: &'static Set, out: &mut [EpollEvent]) -> usize {
    if s.hot.load(Acquire) == 0 {
        return 0;
    }
    collect_into(s, out, 0)
}

/// As [`collect`], behind `n` events of the kernel: an end that is among them gets its bits added.
pub(super) fn collect_into(s: &'static Set, out: &mut [EpollEvent], n: usize) -> usize {
    let Some(_held) = LOCK.lock(table::tid()) else { return n };
    let kernel = n;
    let mut n = n;
    let mut next = s.hot.load(Relaxed);
    while let Some(number) = next.checked_sub(1) {
        let Some(r) = reg(number) else { break };
        next = r.next_hot.load(Relaxed);
        let Some(sock) = table::by_number(r.sock.load(Relaxed)) else { continue };
        let Some(conn) = sock.conn.get() else { continue };
        let events = report(sock, conn, r);
        if events == 0 {
            continue;
        }
        let data = r.data.load(Relaxed);
        if let Some(same) = out[..kernel].iter_mut().find(|e| { e.data } == data) {
            same.events |= events;
        } else if n < out.len() {
            out[n] = EpollEvent { events, data };
            n += 1;
        } else {
            // No room: first in line next time.
            r.reported_tail.store(0, Relaxed);
            r.reported_room.store(false, Relaxed);
            begin_with(number, s);
            break;
        }
        if r.events.load(Relaxed) & ONESHOT != 0 {
            silence(s, r);
        }
    }
    n
}

/// The hot list begins with its member `number`; those before it come last. Under the lock.
fn begin_with(number: u32, s: &Set) {
    let first = s.hot.load(Relaxed);
    if first == number + 1 {
        return;
    }
    let mut last = number;
    while let Some(next) = reg(last).and_then(|r| r.next_hot.load(Relaxed).checked_sub(1)) {
        last = next;
    }
    let mut before = first.wrapping_sub(1);
    while let Some(next) =
        reg(before).map(|r| r.next_hot.load(Relaxed)).filter(|&n| n != number + 1 && n != 0)
    {
        before = next - 1;
    }
    if let (Some(before), Some(last)) = (reg(before), reg(last)) {
        last.next_hot.store(first, Relaxed);
        before.next_hot.store(0, Relaxed);
        s.hot.store(number + 1, Release);
    }
}

/// What to report of one registration now.
fn report(sock: &'static Sock, conn: &'static Conn, r: &Reg) -> u32 {
    if r.disarmed.load(Relaxed) {
        return 0;
    }
    let wanted = r.events.load(Relaxed);
    // Before the look at what is ready: bytes that arrive after it are an edge of their own.
    let tail = conn.inc().t.tail.load(Acquire).wrapping_add(1);
    fault::between("edge-looked");
    let events = ready::ring_events(sock, conn, wanted);
    if wanted & ET != 0 {
        let mut edge = 0;
        // Any arrival is an edge, also of bytes that were read meanwhile.
        if r.reported_tail.load(Relaxed) != tail {
            edge |= IN;
        }
        if events & OUT != 0 {
            if !r.reported_room.swap(true, Relaxed) {
                edge |= OUT;
            }
        } else if wanted & OUT != 0 {
            r.reported_room.store(false, Relaxed);
        }
        if edge == 0 {
            return 0;
        }
    } else if events == 0 {
        return 0;
    }
    if wanted & ONESHOT != 0 && events == 0 {
        // What the carrier alone has the kernel tells, and only one needs to.
        return 0;
    }
    // As the kernel: a report says everything that is ready, on whichever path.
    let mut asked = ready::on_carrier(sock, conn, wanted);
    if wanted & ONESHOT != 0 {
        // It is the only one: what the kernel would have told of a carrier in the background is given up for it.
        asked = ready::carrier_events(sock, wanted) & KNOWN;
    }
    let told = if asked == 0 { events } else { events | carrier_now(sock, asked | ALWAYS) };
    // Of too few bytes for the low-water mark nothing was told: they are part of the edge that will be.
    if told != 0 {
        r.reported_tail.store(tail, Relaxed);
    }
    told
}

pub(super) fn carrier_now(sock: &Sock, wanted: u32) -> u32 {
    bypath_sys::poll::now(sock.carrier(), wanted as i16) as u32 & wanted
}

/// Arms what is hot and not ready, and takes it off the list. Returns (something is ready, a full ring is waited
/// for).
pub(super) fn arm_hot(s: &'static Set) -> (bool, bool) {
    let Some(_held) = LOCK.lock(table::tid()) else { return (true, false) };
    let (mut ready, mut stall) = (false, false);
    let mut next = s.hot.load(Relaxed);
    while let Some(number) = next.checked_sub(1) {
        let Some(r) = reg(number) else { break };
        next = r.next_hot.load(Relaxed);
        let sock = table::by_number(r.sock.load(Relaxed));
        let Some((sock, conn)) = sock.and_then(|k| Some((k, k.conn.get()?))) else {
            unlink_hot(number, r, s);
            continue;
        };
        if r.disarmed.load(Relaxed) {
            unlink_hot(number, r, s);
            continue;
        }
        let wanted = r.events.load(Relaxed);
        let (incoming, outgoing) = ready::needs_words(sock, wanted);
        let bell = s.bell.load(Relaxed);
        if !conn.tell_bell(bell, s.bell_fd.load(Relaxed)) {
            unwoken::ask(sock, conn, Reason::RecalledNoBell);
        }
        let ticket = wait::fresh_ticket(&s.ticket);
        // The other end knows the inbox of the process that mapped the connection. For a forked one it rings without a look
        // there, and marks nothing there: the end stays on the list.
        let inherited = sock.is_inherited();
        let word = words::word(if inherited { bell } else { bell | EPOLL_BELL }, ticket);
        let unseen = incoming && ready::fills_unseen(sock, conn);
        // An old word may be about to be cleared by a waker that rang already: it never counts as armed.
        disarm(r, conn);
        if incoming {
            r.word_in.store(word, Relaxed);
            if !words::arm(&conn.inc().ra.wait, word) {
                unwoken::ask(sock, conn, Reason::RecalledWaiters);
            }
        }
        if outgoing {
            stall = true;
            r.word_out.store(word, Relaxed);
            words::arm(&conn.out().wa.wait, word);
        }
        std::sync::atomic::fence(SeqCst);
        if would_report(sock, conn, r) {
            ready = true;
        } else if unseen {
            stall = true;
        } else if !outgoing && !inherited {
            // A full ring that is waited for stays on the list: it may have to be taken back.
            unlink_hot(number, r, s);
        }
    }
    (ready, stall)
}

/// Whether [`report`] would say something, without saying it.
pub(super) fn would_report(sock: &'static Sock, conn: &'static Conn, r: &Reg) -> bool {
    let wanted = r.events.load(Relaxed);
    let events = ready::ring_events(sock, conn, wanted);
    if wanted & ET == 0 || r.disarmed.load(Relaxed) {
        return events != 0 && !r.disarmed.load(Relaxed);
    }
    events != 0 && r.reported_tail.load(Relaxed) != conn.inc().t.tail.load(Acquire).wrapping_add(1)
        || events & OUT != 0 && !r.reported_room.load(Relaxed)
}

/// Looks after full rings that a wait was for. `silent`: nobody rang.
pub(super) fn unstick_all(s: &'static Set, call: &Call, silent: bool) {
    let mut stuck = [None; 16];
    if let Some(_held) = LOCK.lock(table::tid()) {
        let mut next = s.hot.load(Relaxed);
        for place in &mut stuck {
            let Some(r) = next.checked_sub(1).and_then(reg) else { break };
            next = r.next_hot.load(Relaxed);
            if r.events.load(Relaxed) & OUT != 0 {
                *place = table::by_number(r.sock.load(Relaxed));
            }
        }
    }
    for sock in stuck.iter().flatten() {
        if let Some(conn) = sock.conn.get() {
            if silent && ready::ring_writable(sock, conn) {
                conn.tell_again(s.bell.load(Relaxed));
            }
            crate::stream::unstick(sock, conn, call);
        }
    }
}
