//! Waiting on a set: hot ends first, the kernel's set beside them, then a spin, then a sleep.

use super::hot::{self, arm_hot, collect, collect_into, unstick_all, would_report};
use super::{
    ALWAYS, BELL_DATA, DISARMED_DATA, KNOWN, LOCK, ONESHOT, Set, gone, nested, other, reg, ring_own, set,
    silence, waits, watched, with_word,
};
use crate::fault;
use crate::flush;
use crate::hook::{EpollEvent, Verdict};
use crate::peer::Conn;
use crate::raised::{self, Counter};
use crate::ready;
use crate::state;
use crate::switch;
use crate::table::{self, Entry};
use crate::thread::Call;
use crate::udp::wait as mailbox;
use crate::wait::{self as waiting, STALL_NS};
use bypath_sys::epoll::{self as sys, Event};
use bypath_sys::{Errno, clock, thread as cpu};
use std::sync::atomic::Ordering::*;

/// While rings have events, the kernel is asked at least at every such call,
const KERNEL_EVERY: u32 = 16;
/// at every such one when it had filled its part of the array the last time,
const KERNEL_OFTEN: u32 = 2;
/// and at one after so many microseconds: who works for long on each event is not to find the kernel's late.
const KERNEL_EVERY_US: u64 = 20;
/// Hot ends that a spinning waiter polls directly; more are armed and found through the inbox.
const HOT_POLLED: usize = 64;

/// A wait begins that the overlay does not serve: the set has no warm end yet.
pub fn blind_wait_begins(number: u32) {
    if let Some(s) = set(number) {
        s.blind_waits.fetch_add(1, SeqCst);
    }
}

/// Such a wait has ended.
pub fn blind_wait_ended(number: u32) {
    if let Some(s) = set(number) {
        // A set that was closed meanwhile, and its number used again, counts from 0.
        let _ = s.blind_waits.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }
}

/// epoll_wait, epoll_pwait, epoll_pwait2.
pub fn wait(epfd: i32, out: &mut [EpollEvent], timeout_ns: Option<u64>, sigmask: usize) -> Verdict {
    let Some(Entry::Epoll(number)) = table::entry(epfd) else { return Verdict::NotOurs };
    let Some(s) = set(number) else { return Verdict::NotOurs };
    if out.is_empty() {
        return Verdict::NotOurs;
    }
    waits();
    nested::settle();
    if s.warm.load(SeqCst) == 0 && !s.has_bell.load(Relaxed) && s.datagrams.load(SeqCst) == 0 {
        if let Some(thread) = crate::thread::mine() {
            thread.gone.store(gone::number(), Relaxed);
        }
        if timeout_ns != Some(0) {
            mailbox::look_after_routes(number);
        }
        if cpu::is_the_only_one() {
            // Nobody else can upgrade anything meanwhile.
            return Verdict::NotOurs;
        }
        let frame = cpu::stack_address();
        raised::lower_dead(frame);
        let raised = raised::raise(Counter::Blind(number), frame);
        if s.warm.load(SeqCst) == 0 && s.datagrams.load(SeqCst) == 0 {
            return Verdict::Kernel(crate::hook::Cold::blind(raised));
        }
        raised.lower();
    }
    let Some(call) = Call::enter() else { return Verdict::NotOurs };
    let told = wait_overlay(&call, (number, s), epfd, out, timeout_ns, sigmask);
    nested::waited(number, s);
    Verdict::done(told)
}

/// What the kernel stored for a wait that the overlay did not serve: our bell is taken out, the number of what is left
/// returned. With nothing left the overlay has news, and serves the wait from now on.
pub fn told_by_kernel(epfd: i32, out: &mut [EpollEvent]) -> usize {
    let Some(Entry::Epoll(number)) = table::entry(epfd) else {
        return if state::is_sealed() { without_bells(out) } else { out.len() };
    };
    let Some(s) = set(number) else { return out.len() };
    let since = crate::thread::mine().map_or_else(gone::number, |thread| thread.gone.load(Relaxed));
    let mut n = 0;
    for i in 0..out.len() {
        let EpollEvent { mut events, data } = out[i];
        if data == BELL_DATA || data == DISARMED_DATA {
            continue;
        }
        crate::wait::kernel_told(events);
        if s.oneshots.load(SeqCst) {
            match oneshot_fired(s, data, events, since) {
                Some(e) => events = e,
                None => continue,
            }
        }
        out[n] = EpollEvent { events, data };
        n += 1;
    }
    if n < out.len() {
        // The bell wakes one sleeper, and may have meant another: that one passes it on.
        ring_own(s);
    }
    n
}

/// Takes bells out of what the kernel told where nothing is followed any more: one that is being taken away, and that of a parent, which this process cannot
/// take out of a set that both have. How many events are left.
pub fn without_bells(out: &mut [EpollEvent]) -> usize {
    let mut n = 0;
    for i in 0..out.len() {
        let EpollEvent { events, data } = out[i];
        if data != BELL_DATA && data != DISARMED_DATA {
            out[n] = EpollEvent { events, data };
            n += 1;
        }
    }
    n
}

/// Events for fewer than so many: there is no part for each kind of them.
const FEW: usize = 4;

/// Who was told of last, where there is room for few.
mod told_last {
    /// What the kernel has; else it may be first again.
    pub const KERNEL: u32 = 1;
    /// Mailboxes, behind which rings come first then.
    pub const MAILBOX: u32 = 2;
}

fn wait_overlay(
    call: &Call,
    (number, s): (u32, &'static Set),
    epfd: i32,
    out: &mut [EpollEvent],
    timeout_ns: Option<u64>,
    sigmask: usize,
) -> Result<usize, Errno> {
    let deadline = timeout_ns.map(|ns| clock::monotonic_ns().saturating_add(ns));
    let mut spun = false;
    let generation = s.generation.load(Relaxed);
    // Closed while this thread slept, and number and record may be another set's.
    let is_closed = || {
        let is_it = matches!(table::entry(epfd), Some(Entry::Epoll(now)) if now == number);
        !is_it || s.generation.load(Relaxed) != generation
    };
    loop {
        if state::is_sealed() || is_closed() {
            return Err(Errno::BADF);
        }
        switch::attend();
        // Who does not wait wants to know all there is; who waits gets the rest with a later call.
        let wants_all = timeout_ns == Some(0);
        let datagrams = s.datagrams.load(Relaxed) != 0;
        // Rings that are always ready leave room for mailboxes and the kernel's events, and those for rings. Where there is too little for a part each, who was told
        // of last comes last.
        let few = out.len() < FEW;
        let told = if few { s.told.load(Relaxed) } else { 0 };
        let may_be_first = |s: &Set| told & told_last::KERNEL == 0 && kernel_is_due(s);
        let mut asked = false;
        if s.hot.load(Acquire) != 0 {
            asked = may_be_first(s);
            let half = out.len().div_ceil(2);
            let k = if asked { kernel_events(s, epfd, &mut out[..half], 0, Some(0), 0)? } else { 0 };
            if asked && s.had_more.load(Relaxed) != (k == half) {
                s.had_more.store(k == half, Relaxed);
            }
            let tells = datagrams && mailbox::is_ready(number);
            let first = if tells && few && told & told_last::MAILBOX == 0 {
                mailbox::collect(number, out, k)
            } else {
                k
            };
            let most = if tells && !few { out.len() - out.len() / 4 } else { out.len() };
            let rings = collect_into(s, &mut out[..most], first);
            let n = if tells { mailbox::collect(number, out, rings) } else { rings };
            if n > 0 {
                if few {
                    let mailbox = if first + n > k + rings { told_last::MAILBOX } else { 0 };
                    let kept = if n > k { mailbox } else { told & told_last::MAILBOX };
                    s.told.store(if k > 0 { told_last::KERNEL } else { 0 } | kept, Relaxed);
                }
                let room = wants_all && n < out.len() && (!asked || k == half);
                let more = if room { kernel_events(s, epfd, out, n, Some(0), 0)? } else { 0 };
                return Ok(n + more);
            }
        }
        if datagrams && !asked && mailbox::is_ready(number) {
            let half = out.len().div_ceil(2);
            let k =
                if may_be_first(s) { kernel_events(s, epfd, &mut out[..half], 0, Some(0), 0)? } else { 0 };
            let n = mailbox::collect(number, out, k);
            if n > 0 {
                if few {
                    s.told.store(if k > 0 { told_last::KERNEL } else { 0 }, Relaxed);
                }
                let more =
                    if wants_all && n < out.len() { kernel_events(s, epfd, out, n, Some(0), 0)? } else { 0 };
                return Ok(n + more);
            }
        }
        let k = if asked { 0 } else { kernel_events(s, epfd, out, 0, Some(0), 0)? };
        let k = if datagrams { mailbox::collect(number, out, k) } else { k };
        if k > 0 || wants_all {
            return Ok(k);
        }
        if !spun {
            spun = true;
            if spin(call, (number, s), epfd) {
                continue;
            }
        }
        fault::between("to-epoll");
        // Sleep: announce, arm what is hot, fence, look again.
        let ticket = fresh_ticket(s);
        s.sleepers.fetch_add(1, SeqCst);
        set_asleep(s, ticket);
        let (rings, stall) = arm_hot(s);
        std::sync::atomic::fence(SeqCst);
        let rings = mailbox::close_set(number) || rings;
        let marked = state::get().and_then(|st| st.inbox_if_any()).is_some_and(|i| i.is_marked());
        let left = deadline.map(|d| d.saturating_sub(clock::monotonic_ns()));
        let mut bound = left;
        if stall {
            bound = Some(bound.unwrap_or(u64::MAX).min(STALL_NS));
        }
        let flushing = flush::flushes_pending();
        if flushing {
            bound = Some(bound.unwrap_or(u64::MAX).min(flush::FLUSH_PERIOD_NS));
        }
        if s.foreign.load(Relaxed) && s.warm.load(Relaxed) != 0 {
            bound = Some(bound.unwrap_or(u64::MAX).min(nested::LONGEST_SLEEP_NS));
        }
        bound = crate::wait::before_sleep(call, bound);
        let k = if marked || rings {
            Ok(0)
        } else {
            call.thread.waits_on.store(number + 1, Release);
            let k = call.parked(|| kernel_events(s, epfd, out, 0, bound, sigmask));
            call.thread.waits_on.store(0, Relaxed);
            k
        };
        if is_closed() {
            if s.generation.load(Relaxed) == generation {
                s.sleepers.fetch_sub(1, SeqCst);
            }
            return k.and_then(|k| if k > 0 { Ok(k) } else { Err(Errno::BADF) });
        }
        let silent = k == Ok(0) && is_asleep(s, ticket);
        let others = s.sleepers.fetch_sub(1, SeqCst) - 1;
        if others > 0 {
            // The baton: somebody still sleeps; the next news must ring again. Who has just rung clears its ticket late.
            set_asleep(s, fresh_ticket(s));
            if state::get().and_then(|st| st.inbox_if_any()).is_some_and(|i| i.is_marked()) {
                ring_own(s);
            }
        } else {
            set_asleep(s, 0);
        }
        if stall {
            unstick_all(s, call, silent);
        }
        if flushing {
            flush::drive_flushes(call);
        }
        let k = k?;
        if k > 0 {
            switch::attend();
            let n = collect_into(s, out, k);
            return Ok(mailbox::collect(number, out, n));
        }
        if deadline.is_some_and(|d| clock::monotonic_ns() >= d) {
            switch::attend();
            let n = collect(s, out);
            return Ok(mailbox::collect(number, out, n));
        }
    }
}

/// Whether a wait must ask the kernel, whatever rings have.
fn kernel_is_due(s: &Set) -> bool {
    let now = clock::ticks();
    let rests = now.wrapping_sub(s.asked_at.load(Relaxed)) > KERNEL_EVERY_US * state::ticks_per_us();
    let every = if s.had_more.load(Relaxed) { KERNEL_OFTEN } else { KERNEL_EVERY };
    let due = s.calls.fetch_add(1, Relaxed).is_multiple_of(every) || rests;
    if due {
        s.asked_at.store(now, Relaxed);
    }
    due
}

fn fresh_ticket(s: &Set) -> u32 {
    waiting::fresh_ticket(&s.ticket)
}

/// Whether nobody rang for the sleep with this ticket.
fn is_asleep(s: &Set, ticket: u32) -> bool {
    let inbox = state::get().and_then(|st| st.inbox_if_any());
    inbox.and_then(|i| i.asleep.get(s.bell.load(Relaxed) as usize)).is_some_and(|a| a.load(Relaxed) == ticket)
}

fn set_asleep(s: &Set, ticket: u32) {
    if let Some(inbox) = state::get().and_then(|st| st.inbox_if_any())
        && let Some(a) = inbox.asleep.get(s.bell.load(Relaxed) as usize)
    {
        a.store(ticket, SeqCst);
    }
}

/// The kernel's events into `out[from..]`, without our bell and without ends that are there already.
fn kernel_events(
    s: &'static Set,
    epfd: i32,
    out: &mut [EpollEvent],
    from: usize,
    timeout_ns: Option<u64>,
    sigmask: usize,
) -> Result<usize, Errno> {
    let mut room = [Event::default(); 64];
    let (_, tail) = out.split_at(from);
    // Large arrays go to the kernel in portions: the rest stays ready and comes with the next call.
    let len = tail.len().min(room.len());
    let since = gone::number();
    let got = sys::wait(epfd, &mut room[..len], timeout_ns, sigmask)?;
    let mut n = from;
    for e in &room[..got] {
        let (mut events, data) = (e.events, e.data);
        if data == BELL_DATA || data == DISARMED_DATA {
            continue;
        }
        crate::wait::kernel_told(events);
        if s.oneshots.load(SeqCst) {
            match oneshot_fired(s, data, events, since) {
                Some(e) => events = e,
                None => continue,
            }
        }
        if let Some(same) = out[..from].iter_mut().find(|o| { o.data } == data) {
            same.events |= events;
            continue;
        }
        out[n] = EpollEvent { events, data };
        n += 1;
    }
    Ok(n - from)
}

/// The kernel reported `events` of `data`; if that is a one-shot registration it has disarmed it, and so does the overlay.
/// Returns what to tell, with what the ring adds; `None`: another thread got its report from the overlay meanwhile, and may
/// have armed it again, or closed the descriptor. `since`: how many registrations had gone when the wait began.
fn oneshot_fired(s: &'static Set, data: u64, events: u32, since: u32) -> Option<u32> {
    let Some(_held) = LOCK.lock(table::tid()) else { return Some(events) };
    // With the same word it may be of any of them. The program does not know either, and has to look at all: it is told
    // whatever the kernel told.
    let shared = with_word(s, data).nth(1).is_some() || other::may_have(s, data);
    let (mut told, mut found) = (if shared { events } else { 0 }, false);
    for r in with_word(s, data).filter(|r| r.events.load(Relaxed) & ONESHOT != 0) {
        found = true;
        let Some(sock) = table::by_number(r.sock.load(Relaxed)) else { continue };
        let conn = sock.conn.get();
        if conn.is_none() && !gone::since(since, s, data) {
            // The kernel's alone.
            let wanted = r.events.load(Relaxed) & KNOWN | ALWAYS;
            if shared && hot::carrier_now(sock, wanted) & events == 0 {
                continue;
            }
            r.disarmed.store(true, Relaxed);
            told |= events;
            continue;
        }
        if r.disarmed.load(Relaxed) {
            continue;
        }
        // It may have been reported and armed again since, or be another one with the word of one that has gone: what is told
        // is what there is now.
        let wanted = r.events.load(Relaxed);
        let now = conn.map_or(0, |conn| ready::ring_events(sock, conn, wanted))
            | hot::carrier_now(sock, ready::carrier_events(sock, wanted) & KNOWN | ALWAYS);
        if now == 0 {
            let event = Event { events: watched(sock, wanted), data };
            let _ = sys::ctl(s.fd.load(Relaxed), libc::EPOLL_CTL_MOD, r.fd.load(Relaxed), event);
        } else {
            silence(s, r);
            told |= now;
        }
    }
    if !found && !gone::since(since, s, data) {
        return Some(events);
    }
    (told != 0).then_some(told)
}

/// Spins on few hot rings and the inbox, asking the kernel every few microseconds.
fn spin(call: &Call, (number, s): (u32, &'static Set), epfd: i32) -> bool {
    let Some(config) = state::config() else { return false };
    let cap = config.spin_budget_ns;
    if cap == 0 || !s.spins.should() {
        return false;
    }
    let mut hot = [None; HOT_POLLED];
    if s.hot_count.load(Relaxed) as usize > HOT_POLLED {
        let (ready, _) = arm_hot(s);
        if ready {
            return true;
        }
    } else if let Some(_held) = LOCK.lock(table::tid()) {
        let mut next = s.hot.load(Relaxed);
        for place in &mut hot {
            let Some(r) = next.checked_sub(1).and_then(reg) else { break };
            next = r.next_hot.load(Relaxed);
            *place = table::by_number(r.sock.load(Relaxed)).and_then(|k| Some((k, k.conn.get()?, r)));
        }
    }
    let here = cpu::cpu();
    let same_cpu = |c: &Conn| c.inc().t.cpu.load(Relaxed) == here && here != u32::MAX;
    if hot.iter().flatten().any(|(_, c, _)| same_cpu(c)) {
        return false;
    }
    let datagrams = s.datagrams.load(Relaxed) != 0;
    if datagrams && !mailbox::open_set(number) {
        return true;
    }
    let inbox = state::get().and_then(|st| st.inbox_if_any());
    let per_us = state::ticks_per_us();
    let start = clock::ticks();
    let mut next_kernel = start + 5 * per_us;
    loop {
        for _ in 0..8 {
            if inbox.is_some_and(|i| i.is_marked())
                || hot.iter().flatten().any(|(k, c, r)| would_report(k, c, r))
                || datagrams && mailbox::is_ready(number)
            {
                s.spins.record(true);
                return true;
            }
            std::hint::spin_loop();
        }
        if call.is_wanted() {
            return false;
        }
        let now = clock::ticks();
        if now.wrapping_sub(start) > cap * per_us / 1000 {
            s.spins.record(false);
            return false;
        }
        if now >= next_kernel {
            next_kernel = now + 10 * per_us;
            // Only asks: level-triggered events stay, edges would be lost, so look from outside.
            if bypath_sys::poll::now(epfd, libc::POLLIN) != 0 {
                s.spins.record(true);
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bells_are_taken_out_of_what_the_kernel_told() {
        let event = |data| EpollEvent { events: 1, data };
        let datas = |events: &[EpollEvent]| events.iter().map(|e| e.data).collect::<Vec<_>>();
        let mut told = [event(BELL_DATA), event(7), event(DISARMED_DATA), event(9), event(BELL_DATA)];
        let n = without_bells(&mut told);
        assert_eq!(datas(&told[..n]), [7, 9]);
        assert_eq!(without_bells(&mut [event(BELL_DATA)]), 0);
        assert_eq!(without_bells(&mut []), 0);
    }
}
