//! Looks at processes that may keep whoever looks waiting, made by threads that are left behind then.
//!
//! While a process executes a program the kernel has everybody wait who asks for what its descriptors refer to, its memory, its mappings or its
//! start time (`exec_update_lock`), until its old memory is freed and its files are closed; one can make that last for minutes, or, by a file of a file
//! system of its own, without end. Nothing but the end of who waits ends such a call sooner. Root's processes are looked at so, too: one of these may
//! be another user's a moment later, as a login is. Only what this process asks about itself is asked at once.

use crate::connections::descriptors::Process;
use crate::connections::is_trusted;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that look at one other user's processes at a time: one that executes a program hides no other one of that user's.
const OF_USER: usize = 4;
/// Threads that are left behind at a time at processes of other users; with so many nobody else of other users is looked at.
const LEFT_BEHIND: usize = 64;
/// Threads for other users that wait for something to do.
const IDLE: usize = 16;
/// Octets of a thread's stack: where addresses are limited those of all of them are to leave enough for what is found.
const STACK: usize = 256 << 10;

/// Who keeps a look waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeper {
    /// Another user's process.
    Other,
    /// One that was root's or the own user's, and is no longer.
    Turned,
    /// One of root or of the own user.
    Trusted,
}

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
    left: Left,
}

/// Set when nobody waits for it any more: by whom it is kept, and by which process.
type Left = Arc<OnceLock<(Keeper, u32)>>;

/// All of them.
#[derive(Default)]
struct Lookers {
    of_user: HashMap<u32, User>,
    /// Of other users.
    idle: usize,
    /// How many are left behind, by [`Keeper`].
    left: [usize; 3],
    /// Processes at which one is left behind: no other one follows it.
    stuck: HashSet<u32>,
}

#[derive(Default)]
struct User {
    idle: Vec<Looker>,
    threads: usize,
}

static LOOKERS: LazyLock<Mutex<Lookers>> = LazyLock::new(Mutex::default);

fn lookers() -> MutexGuard<'static, Lookers> {
    held(&LOOKERS)
}

/// What `f` finds at a process; `None`: it is kept waiting, or as many others are as may be.
pub fn of<R: Send + 'static>(process: Process, f: impl FnOnce(&Pulse) -> R + Send + 'static) -> Option<R> {
    if process.pid == std::process::id() && is_trusted(process.user) {
        return Some(f(&Pulse::default()));
    }
    by_thread(process, is_trusted_now, f)
}

fn by_thread<R: Send + 'static>(
    process: Process,
    is_trusted_now: impl Fn(u32) -> bool,
    f: impl FnOnce(&Pulse) -> R + Send + 'static,
) -> Option<R> {
    let (mut f, mut found) = (Some(f), None);
    let once = move |_, pulse: &Pulse| f.take().map(|f| f(pulse));
    follow(&[process], is_trusted_now, once, &mut |_, its| found = its.flatten());
    found
}

/// The same of each of these processes of root and of the own user, one after the other: one thread looks at all of them, as long as it is not kept.
pub fn of_each<R: Send + 'static>(
    processes: &[Process],
    f: impl FnMut(Process, &Pulse) -> R + Clone + Send + 'static,
    mut took: impl FnMut(Process, Option<R>),
) {
    let mut rest = processes;
    while !rest.is_empty() {
        rest = &rest[follow(rest, is_trusted_now, f.clone(), &mut took)..];
    }
}

fn is_trusted_now(pid: u32) -> bool {
    Process::of(pid).is_some_and(|now| is_trusted(now.user))
}

/// Has a thread look at processes of one trust until one of them keeps it; tells how many those were, with that one. `is_trusted_now`: whether one is root's
/// or the own user's still.
fn follow<R: Send + 'static>(
    processes: &[Process],
    is_trusted_now: impl Fn(u32) -> bool,
    mut f: impl FnMut(Process, &Pulse) -> R + Send + 'static,
    took: &mut impl FnMut(Process, Option<R>),
) -> usize {
    let (looker, patience, count) = match looker(processes) {
        Ok(looker) => looker,
        Err(refused) => {
            let may_wait = refused == Refused::Thread && is_trusted(processes[0].user);
            took(processes[0], may_wait.then(|| f(processes[0], &Pulse::default())));
            return 1;
        }
    };
    let pulse = Pulse::default();
    // What is found, as long as anybody waits for it; the channel ends with the job.
    let found = Arc::new(Mutex::new(Some(Vec::new())));
    let (done, is_done) = channel::<()>();
    let (its, to, all) = (pulse.clone(), Arc::clone(&found), processes[..count].to_vec());
    let job = move || {
        let _done = done;
        for process in all {
            let one = f(process, &its);
            let Some(found) = &mut *held(&to) else { break };
            found.push(one);
        }
    };
    let sent = looker.jobs.send(Box::new(job));
    let (mut before, mut quiet) = ((0, 0), Duration::ZERO);
    while sent.is_ok() && is_done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        let at = held(&found).as_ref().map_or(0, Vec::len);
        let Some(&Process { pid, user }) = processes[..count].get(at) else { continue };
        let now = (at, pulse.0.load(Relaxed));
        quiet = if now == before { quiet + patience } else { Duration::ZERO };
        before = now;
        let (keeper, is_over) = match is_trusted(user) {
            false => (Keeper::Other, !quiet.is_zero()),
            // Whoever it is now says how much there is to be looked at.
            true if !is_trusted_now(pid) => (Keeper::Turned, true),
            true => (Keeper::Trusted, quiet >= lookers().patience(Keeper::Trusted)),
        };
        let taken = held(&found).take_if(|all| is_over && all.len() == at);
        if let Some(all) = taken {
            lookers().leave(looker, keeper, pid);
            return hand_over(processes, all, took);
        }
    }
    let all = held(&found).take().unwrap_or_default();
    if all.len() == count {
        lookers().has_time(processes[0].user, looker);
        processes.iter().zip(all).for_each(|(process, one)| took(*process, Some(one)));
        return count;
    }
    // It panicked.
    hand_over(processes, all, took)
}

/// What was found, and at one more process nothing.
fn hand_over<R>(processes: &[Process], all: Vec<R>, took: &mut impl FnMut(Process, Option<R>)) -> usize {
    let count = all.len() + 1;
    processes
        .iter()
        .zip(all.into_iter().map(Some).chain([None]))
        .for_each(|(process, one)| took(*process, one));
    count
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why nobody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// As many are kept as may be.
    Many,
    /// No thread is to be had (a limit of processes): who is trusted is looked at all the same.
    Thread,
}

/// One that has nothing to do, how long it is waited for when nothing goes on, and how many of these processes it may look at.
fn looker(processes: &[Process]) -> Result<(Looker, Duration, usize), Refused> {
    let mut all = lookers();
    let user = processes[0].user;
    let is_other = !is_trusted(user);
    let count = processes.iter().position(|process| all.stuck.contains(&process.pid));
    let count = count.unwrap_or(processes.len());
    if count == 0 {
        return Err(Refused::Many);
    }
    let patience = all.patience(if is_other { Keeper::Other } else { Keeper::Turned });
    let is_full = all.left[Keeper::Other as usize] >= LEFT_BEHIND;
    let its = all.of_user.entry(user).or_default();
    if let Some(looker) = its.idle.pop() {
        all.idle -= usize::from(is_other);
        return Ok((looker, patience, count));
    }
    if is_other && (is_full || its.threads >= OF_USER) {
        all.forget_if_unused(user);
        return Err(Refused::Many);
    }
    let (jobs, given) = channel::<Job>();
    let left = Left::default();
    let looker = Looker { jobs, left: Arc::clone(&left) };
    let work = move || {
        let _ended = Ended { user, left };
        given.iter().for_each(|job| job());
    };
    its.threads += 1;
    if thread::Builder::new().name("looks".into()).stack_size(STACK).spawn(work).is_err() {
        its.threads -= 1;
        all.forget_if_unused(user);
        return Err(Refused::Thread);
    }
    Ok((looker, patience, count))
}

/// A thread ends, also by a panic.
struct Ended {
    user: u32,
    left: Left,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let mut all = lookers();
        if let Some(&(keeper, pid)) = self.left.get() {
            all.left[keeper as usize] -= 1;
            all.stuck.remove(&pid);
        }
        if let Some(its) = all.of_user.get_mut(&self.user) {
            its.threads -= 1;
        }
        all.forget_if_unused(self.user);
    }
}

impl Lookers {
    /// How long one that is kept so is waited for when nothing goes on: the more are left behind so, the shorter. Nobody shortens it for others.
    fn patience(&self, keeper: Keeper) -> Duration {
        let most: u64 = if keeper == Keeper::Trusted { 3000 } else { 200 };
        Duration::from_millis((most >> (self.left[keeper as usize] / 2).min(6)).max(5))
    }

    /// It has nothing to do now.
    fn has_time(&mut self, user: u32, looker: Looker) {
        let is_other = !is_trusted(user);
        if (!is_other || self.idle < IDLE)
            && let Some(its) = self.of_user.get_mut(&user)
        {
            its.idle.push(looker);
            self.idle += usize::from(is_other);
        }
    }

    /// It ends when it has done what it does.
    fn leave(&mut self, looker: Looker, keeper: Keeper, pid: u32) {
        if looker.left.set((keeper, pid)).is_ok() {
            self.left[keeper as usize] += 1;
            self.stuck.insert(pid);
        }
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
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    /// A process of a user, neither of which another test has.
    fn stranger(n: u32) -> Process {
        Process { pid: u32::MAX - n, user: bypath_sys::process::euid() + 70_000 + n }
    }

    /// One of root's.
    fn roots(n: u32) -> Process {
        Process { user: 0, ..stranger(n) }
    }

    /// Looks that last until this is dropped.
    struct Stuck {
        _end: Sender<()>,
        ended: Arc<Mutex<Receiver<()>>>,
    }

    impl Stuck {
        fn new() -> Stuck {
            let (_end, ended) = channel();
            Stuck { _end, ended: Arc::new(Mutex::new(ended)) }
        }

        fn look(&self) -> impl FnOnce(&Pulse) -> bool + Send + use<> {
            let ended = Arc::clone(&self.ended);
            move |_| ended.lock().map(|ended| ended.recv().is_ok()).unwrap_or_default()
        }
    }

    fn comes_back(look: impl Fn() -> Option<u32>) {
        let begun = Instant::now();
        while look().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "none came back");
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_found_at_once_is_told_whosever_it_is() {
        let me = thread::current().id();
        let own = Process { pid: std::process::id(), user: bypath_sys::process::euid() };
        assert_eq!(of(own, |_| thread::current().id()), Some(me));
        assert_ne!(of(roots(0), |_| thread::current().id()), Some(me));
        let there = of(stranger(0), |_| thread::current().id()).expect("it is told");
        assert_ne!(there, me);
        // The same one goes on.
        assert_eq!(of(stranger(0), |_| thread::current().id()), Some(there));
    }

    #[test]
    fn who_keeps_a_look_waiting_is_left_and_others_are_looked_at() {
        let stuck = Stuck::new();
        let begun = Instant::now();
        let other = |n| Process { pid: 10_000_000 + n, ..stranger(1) };
        for n in 0..OF_USER as u32 {
            assert_eq!(of(other(n), stuck.look()), None);
            assert_eq!(of(stranger(2), |_| 7), Some(7));
        }
        // There is none left for this user until one comes back.
        assert_eq!(of(stranger(1), |_| 7), None);
        assert!(begun.elapsed() >= Duration::from_millis(5));
        drop(stuck);
        comes_back(|| of(stranger(1), |_| 7));
    }

    #[test]
    fn who_was_roots_when_it_was_found_and_keeps_a_look_waiting_is_left() {
        let stuck = Stuck::new();
        let begun = Instant::now();
        for n in 10..20 {
            assert_eq!(by_thread(roots(n), |_| false, stuck.look()), None);
            // Neither others nor what is root's still have less for that.
            assert_eq!(by_thread(roots(30), |_| true, |_| 7), Some(7));
            assert_eq!(of(stranger(31), |_| 7), Some(7));
        }
        // Not even what goes on without end is waited for.
        let (over, is_over) = channel::<()>();
        let endless = move |pulse: &Pulse| {
            while is_over.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                pulse.beat();
                thread::yield_now();
            }
        };
        assert_eq!(by_thread(roots(21), |_| false, endless), None);
        assert!(begun.elapsed() < Duration::from_secs(10));
        // Nobody follows the one that is there.
        assert_eq!(by_thread(roots(10), |_| true, |_| 7), None);
        drop((stuck, over));
        comes_back(|| by_thread(roots(10), |_| true, |_| 7));
    }

    #[test]
    fn what_is_roots_still_is_waited_for_longer_and_not_without_end() {
        let slow = |_: &Pulse| {
            // As a program that begins.
            thread::park_timeout(Duration::from_millis(500));
            7
        };
        assert_eq!(by_thread(roots(40), |_| true, slow), Some(7));
        let stuck = Stuck::new();
        assert_eq!(by_thread(roots(41), |_| true, stuck.look()), None);
        drop(stuck);
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
        // Its thread says so first, which may take long.
        comes_back(|| of(stranger(4), |_| 7));
    }
}
