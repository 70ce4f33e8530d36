//! What others want of a connection (`bypath recall`, `bypath upgrade`, who took a descriptor of it): they write it into
//! the family region, mark the end in the process's inbox and ring who sleeps. The process does it at its next look: here.

use crate::config::LogLevel;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{flush, heir, log, over, rendezvous, switch};
use bypath_shm::direction::ask;
use bypath_shm::family::wish;
use bypath_shm::reason::Reason;
use std::sync::atomic::Ordering::*;

/// Does what is wanted of `s`, if anything. One load when nothing is.
#[inline]
pub fn serve(s: &'static Sock) {
    if s.end().wish.load(Relaxed) != wish::NONE {
        serve_wish(s);
    }
}

#[cold]
fn serve_wish(s: &'static Sock) {
    match s.end().wish.swap(wish::NONE, AcqRel) {
        wish::RECALL => recall(s),
        wish::UPGRADE => upgrade(s),
        wish::TAKEN => taken(s),
        // Written by somebody who knows more, or by mistake.
        _ => {}
    }
}

/// Both directions go back, and stay: the outgoing one now, the incoming one before the other end's next byte. A
/// rendezvous under way goes on, as the other end may have mapped the rings already.
fn recall(s: &'static Sock) {
    let Some(call) = Call::enter() else { return };
    if s.has(flag::STAYS) {
        return;
    }
    s.keep_on_kernel(Reason::RecalledCommand);
    let Some(conn) = s.conn.get() else { return };
    flush::recall_outgoing(s, conn, Reason::RecalledCommand, &call);
    conn.inc().withdraw_consent();
    switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledCommand);
    s.end().rx_reason.store(Reason::RecalledCommand as u16, Relaxed);
}

/// As [`recall`], where another process reads from the carrier and writes to it next. It has set the flags itself, so that
/// nothing comes up before this is done.
fn taken(s: &'static Sock) {
    let Some(call) = Call::enter() else { return };
    s.keep_on_kernel(Reason::RecalledTaken);
    heir::spread(s);
    let Some(conn) = s.conn.get() else { return };
    flush::empty_ring_for_others(s, conn, Reason::RecalledTaken, &call);
    conn.inc().withdraw_consent();
    switch::ask_recall(s, conn, ask::RECALL, Reason::RecalledTaken);
    over::seal(s, conn, false);
    s.end().rx_reason.store(Reason::RecalledTaken as u16, Relaxed);
}

/// Whatever kept the connection on the kernel and may have passed is forgotten, and so is what earlier recalls cost.
fn upgrade(s: &'static Sock) {
    let reason = s.end().reason();
    if s.has(flag::HANDED_OVER | flag::STANDARD | flag::SPREAD | flag::SEALED | flag::EMPTIED) {
        return;
    }
    if s.has(flag::FOR_GOOD) {
        if reason != Reason::RecalledCommand && !rendezvous::is_passing(reason) {
            return;
        }
        s.clear(flag::FOR_GOOD);
        s.set_reason(Reason::BelowThreshold);
        s.end().rx_reason.store(Reason::BelowThreshold as u16, Relaxed);
    }
    let w = &s.end().w;
    w.claims.store(0, Relaxed);
    w.not_before.store(0, Relaxed);
    rendezvous::attempt_soon(s);
    log::line(LogLevel::Debug, format_args!("fd {}: an upgrade is wanted", s.carrier()));
    if let Some(conn) = s.conn.get() {
        switch::consent(s, conn);
    }
}
