//! Looks at processes of other users that may keep whoever looks waiting, made by threads that are left behind then.
//!
//! While a process executes a program the kernel has everybody wait who asks for what its descriptors refer to, its memory, its mappings or its
//! start time (`exec_update_lock`), until its old memory is freed and its files are closed; one can make that last for minutes, or, by a file of a file
//! system of its own, without end. Nothing but the end of who waits ends such a call sooner. Of root and of the own user nobody does so.

use crate::connections::is_trusted;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that look at one user's processes at a time: one that executes a program hides no other one of that user's.
const OF_USER: usize = 4;
/// Threads that are left behind at a time; with so many nobody else of other users is looked at.
const LEFT_BEHIND: usize = 64;
/// Threads that wait for something to do.
const IDLE: usize = 16;

/// A look that takes long says that it goes on.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// It goes on.
    pub fn beat(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Who looks.
struct Looker {
    jobs: Sender<Job>,
    /// Nobody waits for it any more.
    is_left: Arc<AtomicBool>,
}

/// All of them.
#[derive(Default)]
struct Lookers {
    of_user: HashMap<u32, User>,
    idle: usize,
    left_behind: usize,
}

#[derive(Default)]
struct User {
    idle: Vec<Looker>,
    threads: usize,
}

static LOOKERS: LazyLock<Mutex<Lookers>> = LazyLock::new(Mutex::default);

fn lookers() -> MutexGuard<'static, Lookers> {
    LOOKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `f` finds at a process of this user; `None`: it is kept waiting, or as many others are as may be.
pub fn of<R: Send + 'static>(user: u32, f: impl FnOnce(&Pulse) -> R + Send + 'static) -> Option<R> {
    let pulse = Pulse::default();
    if is_trusted(user) {
        return Some(f(&pulse));
    }
    let (looker, patience) = looker(user)?;
    let (done, result) = sync_channel(1);
    let its = pulse.clone();
    let job = move || {
        // Who asked may have gone on.
        let _ = done.send(f(&its));
    };
    let sent = looker.jobs.send(Box::new(job));
    let mut beats = 0;
    while sent.is_ok() {
        match result.recv_timeout(patience) {
            Ok(found) => {
                lookers().has_time(user, looker);
                return Some(found);
            }
            Err(RecvTimeoutError::Timeout) => {
                let before = std::mem::replace(&mut beats, pulse.0.load(Relaxed));
                if before == beats {
                    lookers().leave(looker);
                    return None;
                }
            }
            // It panicked.
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// One that has nothing to do, and how long it is waited for when nothing goes on: the more are left behind, the shorter.
fn looker(user: u32) -> Option<(Looker, Duration)> {
    let mut all = lookers();
    let patience = Duration::from_millis((200 >> (all.left_behind / 2).min(6)).max(5));
    let is_full = all.left_behind >= LEFT_BEHIND;
    let its = all.of_user.entry(user).or_default();
    if let Some(looker) = its.idle.pop() {
        all.idle -= 1;
        return Some((looker, patience));
    }
    if is_full || its.threads >= OF_USER {
        all.forget_if_unused(user);
        return None;
    }
    let (jobs, given) = channel::<Job>();
    let is_left = Arc::new(AtomicBool::new(false));
    let looker = Looker { jobs, is_left: Arc::clone(&is_left) };
    let work = move || {
        let _ended = Ended { user, is_left };
        given.iter().for_each(|job| job());
    };
    its.threads += 1;
    // Where no thread is to be had it is not looked at.
    if thread::Builder::new().name("looks".into()).spawn(work).is_err() {
        its.threads -= 1;
        all.forget_if_unused(user);
        return None;
    }
    Some((looker, patience))
}

/// A thread ends, also by a panic.
struct Ended {
    user: u32,
    is_left: Arc<AtomicBool>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut all = lookers();
        all.left_behind -= usize::from(self.is_left.load(Relaxed));
        if let Some(its) = all.of_user.get_mut(&self.user) {
            its.threads -= 1;
        }
        all.forget_if_unused(self.user);
    }
}

impl Lookers {
    /// It has nothing to do now.
    fn has_time(&mut self, user: u32, looker: Looker) {
        if self.idle < IDLE
            && let Some(its) = self.of_user.get_mut(&user)
        {
            its.idle.push(looker);
            self.idle += 1;
        }
    }

    /// It ends when it has done what it does.
    fn leave(&mut self, looker: Looker) {
        looker.is_left.store(true, Relaxed);
        self.left_behind += 1;
    }

    fn forget_if_unused(&mut self, user: u32) {
        if self.of_user.get(&user).is_some_and(|its| its.threads == 0) {
            self.of_user.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Users that no other test has.
    fn stranger(n: u32) -> u32 {
        bypath_sys::process::euid() + 70_000 + n
    }

    #[test]
    fn what_is_found_at_once_is_told_whosever_it_is() {
        let me = thread::current().id();
        assert_eq!(of(bypath_sys::process::euid(), |_| thread::current().id()), Some(me));
        let there = of(stranger(0), |_| thread::current().id()).expect("it is told");
        assert_ne!(there, me);
        // The same one goes on.
        assert_eq!(of(stranger(0), |_| thread::current().id()), Some(there));
    }

    #[test]
    fn who_keeps_a_look_waiting_is_left_and_others_are_looked_at() {
        let (end, ended) = channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let stuck = |user| {
            let ended = Arc::clone(&ended);
            of(user, move |_| ended.lock().map(|ended| ended.recv().is_ok()).unwrap_or_default())
        };
        let begun = Instant::now();
        for _ in 0..OF_USER {
            assert_eq!(stuck(stranger(1)), None);
            assert_eq!(of(stranger(2), |_| 7), Some(7));
        }
        // There is none left for this user until one comes back.
        assert_eq!(of(stranger(1), |_| 7), None);
        assert!(begun.elapsed() >= Duration::from_millis(5));
        drop(end);
        let begun = Instant::now();
        while of(stranger(1), |_| 7).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "none came back");
            thread::yield_now();
        }
    }

    #[test]
    fn a_look_that_goes_on_is_waited_for() {
        let long = |pulse: &Pulse| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(300) {
                pulse.beat();
                thread::yield_now();
            }
            7
        };
        assert_eq!(of(stranger(3), long), Some(7));
    }

    #[test]
    fn a_look_that_fails_is_none() {
        assert_eq!(of(stranger(4), |_| -> u32 { panic!("as a test wants it") }), None);
        assert_eq!(of(stranger(4), |_| 7), Some(7));
    }
}
