//! Who waits for what: calls for what they want, real time for itself, virtual time for the calls.

use crate::machine::Machine;
use bypath_stack::linux::errno::Result;
use bypath_stack::time::Instant;
use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

thread_local! {
    /// When the call of this thread that waited last was over, in virtual time, which may have gone on since.
    pub static OVER: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// For how long virtual time passes at most for a call of the thread that lets it pass.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// The machine and its lock.
pub struct Shared {
    pub machine: Mutex<Machine>,
    pub changed: Condvar,
    pub maker: ThreadId,
}

pub type Guard<'a> = MutexGuard<'a, Machine>;

impl Shared {
    pub fn lock(&self) -> Guard<'_> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait<'a>(&self, machine: Guard<'a>, most: Option<Duration>) -> Guard<'a> {
        match most {
            Some(most) => self.changed.wait_timeout(machine, most).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(machine).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Something happened: calls that wait look at it. In virtual time they have done so when this returns.
    pub fn tell<'a>(&self, mut machine: Guard<'a>) -> Guard<'a> {
        machine.run();
        if machine.sleepers > 0 && machine.clock.is_virtual() {
            machine.epoch += 1;
            machine.owed = machine.sleepers;
            self.changed.notify_all();
            while machine.owed > 0 {
                machine = self.wait(machine, None);
            }
            machine.run();
        } else {
            self.changed.notify_all();
        }
        machine
    }

    /// Virtual time passes; everything is done when it is due.
    pub fn pass<'a>(&self, mut machine: Guard<'a>, until: Instant) -> Guard<'a> {
        while let Some(next) = machine.next().filter(|next| *next <= until) {
            machine.clock.advance(next);
            machine.alarms.retain(|alarm| *alarm > next);
            machine = self.tell(machine);
        }
        machine.clock.advance(until);
        machine
    }

    /// Tries until it is done, or would wait and may not; EAGAIN then, and when the deadline has come.
    pub fn until<T>(
        &self,
        mut machine: Guard<'_>,
        waits: bool,
        most: Option<Duration>,
        mut attempt: impl FnMut(&mut Machine) -> Result<T>,
    ) -> Result<T> {
        let deadline = most.map(|most| machine.now() + most);
        let mut owes = false;
        let mut waited = false;
        let done = loop {
            let done = attempt(&mut machine);
            let late = deadline.is_some_and(|deadline| machine.now() >= deadline);
            if !matches!(done, Err(libc::EAGAIN)) || !waits || late || machine.over {
                break done;
            }
            let busy = machine.run();
            if !machine.clock.is_virtual() {
                if busy || !waited {
                    self.changed.notify_all();
                }
                waited = true;
                let most = deadline.map(|deadline| deadline.since(machine.now()));
                machine = self.wait(machine, most);
                machine.run();
            } else if thread::current().id() == self.maker {
                let end = deadline.unwrap_or_else(|| machine.now() + FOR_EVER);
                let Some(next) = machine.next().map(|next| next.min(end)).or(deadline) else { break done };
                machine = self.pass(machine, next);
            } else {
                machine.owed -= usize::from(std::mem::replace(&mut owes, true));
                machine.sleepers += 1;
                machine.alarms.extend(deadline);
                self.changed.notify_all();
                let epoch = machine.epoch;
                while machine.epoch == epoch && !machine.over {
                    machine = self.wait(machine, None);
                }
                machine.sleepers -= 1;
                waited = true;
            }
        };
        machine.run();
        if owes {
            machine.owed = machine.owed.saturating_sub(1);
            machine.returned |= waited;
            OVER.set(Some(machine.now()));
        }
        self.changed.notify_all();
        done
    }

    /// Does what is due, in real time.
    pub fn keep_time(&self) {
        let mut machine = self.lock();
        while !machine.over {
            if machine.run() {
                self.changed.notify_all();
            }
            let now = machine.now();
            let most = machine.stack.poll_timeout().map(|next| next.since(now));
            machine = self.wait(machine, most);
        }
    }
}
