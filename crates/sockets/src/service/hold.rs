//! TCP_CORK and TCP_NODELAY of a connection whose octets go by a ring: said in a word beside it, and asked of nobody.

use crate::switch;
use crate::table;
use crate::thread::Call;
use crate::wlock::WriteLock;
use bypath_shm::family::wpath;
use bypath_shm::hold::{Hold, Wish};
use std::sync::atomic::Ordering::*;

/// Which of them an option is.
const fn wish(level: i32, name: i32) -> Option<Wish> {
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_CORK) => Some(Wish::Cork),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => Some(Wish::NoDelay),
        _ => None,
    }
}

/// Sets it. False: the service is to be asked.
pub fn set(fd: i32, level: i32, name: i32, value: &[u8]) -> bool {
    let (Some(wish), Some(value)) = (wish(level, name), value.first_chunk()) else { return false };
    let on = i32::from_ne_bytes(*value) != 0;
    let Some((s, conn)) = table::sock(fd).and_then(|s| Some((s, s.conn.get()?))) else { return false };
    let Some(call) = Call::enter() else { return false };
    // Who interrupted a send on this socket cannot wait for it.
    let Some(lock) = WriteLock::take(s, &call) else { return false };
    let (w, word) = (&s.end().w, &conn.out().wa.hold);
    let said = Hold::from_raw(word.load(Relaxed));
    if w.path.load(Relaxed) != wpath::RING {
        word.store(said.without(wish).raw(), Release);
        lock.unlock();
        return false;
    }
    let Some(next) = said.with(wish, on, w.tail.load(Relaxed)) else {
        lock.unlock();
        return true;
    };
    // Before the octets that follow: who sees those sees this.
    word.store(next.raw(), Release);
    lock.unlock();
    let lets_go = on == (wish == Wish::NoDelay);
    if lets_go {
        // What is held is to go now. Whatever holds more can wait for octets.
        switch::look_fence();
        switch::wake_readers(s, conn);
    }
    true
}

/// What it is set to. `None`: the service is to be asked.
pub fn of(fd: i32, level: i32, name: i32) -> Option<i32> {
    let wish = wish(level, name)?;
    let s = table::sock(fd)?;
    let conn = s.conn.get()?;
    let is_said = s.end().w.path.load(Relaxed) == wpath::RING;
    let said = is_said.then(|| Hold::from_raw(conn.out().wa.hold.load(Relaxed)))?;
    said.of(wish).map(i32::from)
}
