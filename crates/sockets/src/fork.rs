//! Fork: the child gets its place in the process table before it is there, and finds everything as its parent left it.

use crate::lock::{Away, Held};
use crate::state::{self, Birth};
use crate::table::{self, Entry, flag};
use crate::thread::{self, Busy, Record};
use crate::{
    epoll, heir, kept, later, leaving, life, peer, rendezvous, sealed, service, siblings, switch, udp,
};
use bypath_shm::reason::Reason;
use bypath_sys::turn::Replacing;
use bypath_sys::{fd, mem};
use std::sync::atomic::Ordering::*;

/// A fork in progress.
#[derive(Debug)]
pub struct Forking {
    life: Option<Away<'static>>,
    /// The forking thread's record: the child need not look for it.
    thread: Option<&'static Record>,
    /// `None` if nothing is followed.
    birth: Option<Birth>,
    /// Nothing of this library's stands at a low number for a moment, which the child would keep.
    replacing: Option<Replacing>,
}

/// Before fork: the child gets its place in the process table, and every open end the child's bit, so that nobody
/// upgrades or forgets it meanwhile. `named`: the parent will be told which process it is.
pub fn begin(named: bool) -> Forking {
    let none = Forking { life: None, thread: None, birth: None, replacing: None };
    // The C library waits for locks of its own, which other threads may have that open or close a descriptor.
    let goes = |life: Option<Held<'static>>, birth| Forking {
        life: life.map(Held::goes_away),
        thread: thread::existing(),
        birth,
        replacing: Some(Replacing::begin()),
    };
    if state::is_sealed() {
        if state::get().is_some() {
            heir::spread_everything();
        }
        return none;
    }
    if state::is_borrowed() {
        return none;
    }
    // UDP sockets are followed before there is any state.
    let state = state::get().or_else(udp::holders::begin);
    // Held to the end of the fork: what other threads had come up meanwhile would be shared by the child, and nobody would know.
    let life = state::LIFE.lock_past(table::tid());
    let Some(state) = state.or_else(state::get) else {
        udp::holders::forking(None);
        return goes(life, None);
    };
    // Where this process has no place itself nobody could tell that it holds what the child does.
    let is_placeless = !named || state::are_children_elsewhere() || state.bit() == 0;
    let place = if is_placeless { None } else { state.reserve_place() };
    let birth = place.map(|place| Birth { place, since: state::start_time_now() });
    let place = place.map(|place| place.index);
    // No socket is made from here to the fork.
    udp::holders::forking(place.map(|place| (state, place)));
    service::datagram::mail::forking();
    table::forking();
    siblings::forking();
    heir::forking();
    peer::forking();
    kept::forking();
    match place {
        Some(place) => table::each_sock(|s| {
            let end = s.end();
            end.holders.fetch_or(1 << place, AcqRel);
            // What an earlier process of that place was about to do.
            if end.r.leaving.load(Relaxed) & 1 << place != 0 {
                end.r.leaving.fetch_and(!(1 << place), AcqRel);
            }
            if let Some(conn) = s.conn.get() {
                conn.inc().withdraw_consent();
            }
        }),
        // The family is too large to follow who holds what, or the child cannot follow it: shared sockets stay on the
        // kernel.
        None => {
            table::each_sock(|s| {
                if let Some(conn) = s.conn.get() {
                    switch::ask_back(s, conn, Reason::RecalledFork);
                }
            });
            let patience = switch::Patience::default();
            table::each_sock(|s| {
                switch::recall_both_within(s, Reason::RecalledFork, true, &patience);
                if s.is_warm() {
                    s.set(flag::CROWDED);
                }
            });
        }
    }
    goes(life, birth)
}

/// A fork that is over.
#[derive(Debug)]
pub struct Forked {
    birth: Option<Birth>,
    /// Who has forked. What it forks before it is told goes on with a copy of this.
    parent: u32,
}

impl Forked {
    /// `child` is the pid, or -1 if there is none.
    pub fn is(self, child: i32) {
        let Some(birth) = self.birth else { return };
        let _busy = Busy::begin();
        let Some(state) = state::get() else { return };
        if state::is_sealed() {
            // The child may be followed: it began before that, and says the rest of itself.
            return if child > 0 {
                state.mark_place(birth.place, child as u32)
            } else {
                state.free_place(birth.place)
            };
        }
        if self.parent != state::own_pid() {
            return;
        }
        if child > 0 {
            return state.name_place(birth, child as u32, false);
        }
        let _life = state::LIFE.lock_past(table::tid());
        state.free_place(birth.place);
    }
}

impl Forking {
    /// In the parent. What comes up from here on the child does not have.
    pub fn parent(self) -> Forked {
        drop(self.replacing);
        let life = self.life.and_then(|life| life.comes_back(table::tid()));
        if life.is_some() {
            later::make_up();
        }
        Forked { birth: self.birth, parent: state::own_pid() }
    }

    /// In the child.
    pub fn child(self) {
        drop(self.replacing);
        state::others_are_gone();
        if state::is_sealed() {
            drop(self.life);
            return sealed::enter_child();
        }
        service::enter_child();
        udp::holders::enter_child();
        udp::user::enter_child();
        let is_gone_past = state::LIFE.is_gone_past();
        // This copy of the lock is the parent's. Signals are let in again below.
        let _life = self.life;
        state::LIFE.reset();
        let Some(state) = state::get() else {
            thread::enter_child(self.thread);
            state::own_copy();
            return later::make_up();
        };
        table::enter_child();
        life::enter_child();
        thread::enter_child(self.thread);
        epoll::enter_child();
        kept::enter_child();
        peer::enter_child();
        leaving::enter_child();
        if state::are_children_elsewhere() {
            state::hinder(Reason::PolicyNamespace);
        }
        state::own_copy();
        state.enter_child(self.birth);
        // Calls of threads that are the parent's.
        table::each_sock(|s| {
            if let Some(own) = s.stays.descriptor() {
                s.stays.reset();
                fd::close(own);
                life::lose(own);
            }
        });
        table::each_sock(rendezvous::leave_to_parent);
        if self.birth.is_none() {
            let_go();
        }
        if is_gone_past {
            // The kernel has copied descriptors before memory, and there may be more in this.
            table::each(|number, _| {
                if fd::is_cloexec(number).is_err() {
                    life::lose(number);
                }
            });
        }
        later::make_up();
    }
}

/// The process is about to become another user, or may: it has no mailboxes any more, its own or others'. One that was forked lets go of what it has of its
/// parent's connections, too, and does not hold itself.
#[cold]
pub fn user_changes() {
    let _busy = Busy::begin();
    udp::user::changes();
    if state::get().is_none() || state::is_sealed() {
        return;
    }
    if !state::is_borrowed()
        && let Some(_life) = state::LIFE.lock_past(table::tid())
    {
        user_has_changed();
    }
}

/// Called under [`state::LIFE`].
fn user_has_changed() {
    mem::insist(true);
    udp::user::let_go();
    mem::insist(false);
    let_go_of_parents();
}

/// What this process, if it was forked, has of its parent's connections, and does not hold itself, is not mapped any more, whatever limits it has. Called under
/// [`state::LIFE`].
pub fn let_go_of_parents() {
    let Some(state) = state::get().filter(|_| table::has_relatives()) else { return };
    mem::insist(true);
    peer::let_go_of_parents();
    state.let_go_of_elder_inbox();
    kept::let_go_of_parents();
    mem::insist(false);
}

/// In a child without a place: the others do not know that it holds what it inherited, so they use its number for another
/// socket one day. What was mapped may have bytes in rings yet and is followed on; its number is not used again.
#[cold]
fn let_go() {
    table::each(|fd, entry| {
        let Entry::Sock(s) = entry else { return };
        if !s.is_warm() {
            table::remove(fd);
            epoll::forget(s);
        }
    });
}
