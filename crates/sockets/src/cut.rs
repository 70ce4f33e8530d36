//! A stream whose last bytes cannot be passed on: its writer was killed, or had shut its side down before it could send them all
//! again, and what is left lies in a ring, which nobody has who gets the socket from this process, nor the kernel, where it reads by itself (splice, AIO,
//! io_uring).
//!
//! The kernel would show him the end of the stream, and he would take what he has for all. So the connection is dissolved: he is told an
//! error at each read. Whoever has the ring reads what is left there, and then the end. See docs/switch-protocol.md, "Endings".

use crate::peer::Conn;
use crate::table::{Sock, flag};
use crate::thread::Call;
use crate::{carrier, kept, state, switch, wait};
use bypath_shm::direction::{Path, Readable, writer_flag};
use bypath_sys::sock;
use std::sync::atomic::Ordering::*;

/// Before somebody gets the socket who has no ring, and after the incoming direction was taken back as far as that went.
pub fn off(s: &'static Sock, conn: &'static Conn, call: &Call) {
    let is_cut = s.served().is_none() && wait::peer_end(s) == (true, false) && is_left_behind(s, conn, call);
    if is_cut {
        s.set(flag::PEER_GONE);
        // Whoever sees the error knows whose it is.
        conn.inc().wa.flags.fetch_or(writer_flag::CUT, AcqRel);
        if !carrier::of(s).dissolve(s) {
            conn.inc().wa.flags.fetch_and(!writer_flag::CUT, AcqRel);
        }
    }
}

/// The same before the kernel is to read by a call that nobody sees.
pub fn off_unseen(s: &'static Sock) {
    if let (Some(conn), Some(call)) = (s.conn.get(), Call::enter()) {
        off(s, conn, &call);
    }
}

/// The same before a call that reads what the kernel has, once it has nothing.
pub fn off_when_read(s: &'static Sock) {
    if sock::inq(s.carrier()) == Ok(0) {
        off_unseen(s);
    }
}

/// Whether bytes are left for those alone who have the ring, and none in the carrier, which is lost with the connection.
fn is_left_behind(s: &'static Sock, conn: &'static Conn, call: &Call) -> bool {
    let waits = || sock::inq(s.carrier()) != Ok(0);
    if waits() && state::get().is_some_and(|state| s.is_sole_holder(state)) {
        s.set(flag::ASIDE);
        kept::put_aside(s, conn, call);
    }
    match conn.inc().readable(conn.rx.size()) {
        Ok(Readable::Drain(head)) => {
            switch::try_drained(s, conn, head);
        }
        Ok(Readable::Kernel) => {
            switch::inherit(s, conn);
        }
        _ => {}
    }
    let rest = if conn.inc().path() == Path::Ring { switch::unread(conn) } else { 0 };
    rest + kept::len(s) > 0 && !waits()
}

/// Whether an error of the carrier is what [`off`] has left there: to who has the ring it is the stream's end.
pub fn is_off(conn: &Conn) -> bool {
    conn.inc().wa.flags.load(Acquire) & writer_flag::CUT != 0
}
