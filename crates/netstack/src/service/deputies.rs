//! What may wait for as long as a user likes is done by threads of its own, and nothing is done for that user until it is over: closes of files
//! of his own file system (FUSE), which is asked at each close, and options of a socket that he holds, whose lock he can keep.
//!
//! A close takes its file from the process's table first and waits then. Each has a thread, so that none stays there: a thread with a table of its
//! own, which closes what may linger (`bypath_sys::strangers`), would have to close it, too.

use super::limits::Counted;
use bypath_sys::{clock, fd, pair, thread};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// Users whose closes wait at once. Beyond that nothing is heard of users whom the service is not for.
const MOST: usize = 64;
/// Closes that wait at once, of all users. What is beyond that is closed when others are over.
const THREADS: usize = 1024;
/// Options that may be left to set of one user, while he goes on.
const AHEAD: usize = 1024;
/// Octets of a thread's stack: it makes system calls alone.
const STACK: usize = 32 << 10;
/// So long it is waited for files to leave the table (ns).
const LEAVES: u64 = 2_000_000;

/// One user's thread for options.
#[derive(Debug)]
struct Deputy {
    jobs: Sender<(Counted, i32)>,
    left: Arc<AtomicUsize>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Deputies {
    options: HashMap<u32, Deputy>,
    /// How many closes are not over.
    closing: HashMap<u32, Arc<AtomicUsize>>,
    /// Of all of them.
    running: Arc<AtomicUsize>,
    /// There was no thread to be had for these.
    files: Vec<(u32, OwnedFd)>,
}

impl Deputies {
    /// Gives the program's end of a socket room, soon.
    pub fn widen(&mut self, uid: u32, program: Counted, octets: i32) {
        // Threads of those for whom nothing is left to do end when another one comes.
        if !self.options.contains_key(&uid) {
            self.options.retain(|_, deputy| deputy.left.load(Acquire) > 0);
        }
        let deputy = match self.options.get(&uid) {
            Some(deputy) => deputy,
            None => match begin() {
                Some(deputy) => self.options.entry(uid).or_insert(deputy),
                // The library does it, too.
                None => return,
            },
        };
        deputy.left.fetch_add(1, AcqRel);
        // It lives as long as this end of the channel.
        let _ = deputy.jobs.send((program, octets));
    }

    /// Closes files that came from this user.
    pub fn close(&mut self, uid: u32, files: Vec<OwnedFd>) {
        self.closing.retain(|_, closing| closing.load(Acquire) > 0);
        let numbers: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        let closing = Arc::clone(self.closing.entry(uid).or_default());
        let mut files = files.into_iter();
        let mut begun = 0;
        for file in files.by_ref() {
            if let Err(file) = close(file, [&closing, &self.running]) {
                self.files.push((uid, file));
                break;
            }
            begun += 1;
        }
        self.files.extend(files.map(|file| (uid, file)));
        let until = clock::monotonic_ns() + LEAVES;
        let is_there = |file: &i32| fd::is_cloexec(*file).is_ok();
        while numbers[..begun].iter().any(is_there) && clock::monotonic_ns() < until {
            thread::yield_now();
        }
    }

    /// Tries again where there was no thread; whether this user has to wait.
    pub fn looks(&mut self, uid: u32) -> bool {
        while let Some((of, file)) = self.files.pop() {
            let closing = Arc::clone(self.closing.entry(of).or_default());
            if let Err(file) = close(file, [&closing, &self.running]) {
                self.files.push((of, file));
                break;
            }
        }
        self.hold(uid)
    }

    /// Whether this user has to wait until something is over.
    pub fn hold(&self, uid: u32) -> bool {
        let closes = self.closing.get(&uid).is_some_and(|closing| closing.load(Acquire) > 0);
        closes
            || self.files.iter().any(|(of, _)| *of == uid)
            || self.options.get(&uid).is_some_and(|deputy| deputy.left.load(Acquire) >= AHEAD)
    }

    /// Whether closes of as many users as may be at once are not over.
    pub fn are_too_many(&self) -> bool {
        let are_many = !self.files.is_empty() || self.running.load(Acquire) >= THREADS / 2;
        are_many
            || self.closing.len() >= MOST
                && self.closing.values().filter(|closing| closing.load(Acquire) > 0).count() >= MOST
    }
}

/// Closes a file on a thread of its own.
///
/// # Errors
/// There is none; the file is as it was.
fn close(file: OwnedFd, counts: [&Arc<AtomicUsize>; 2]) -> Result<(), OwnedFd> {
    if counts[1].load(Acquire) >= THREADS {
        return Err(file);
    }
    let counts = counts.map(Arc::clone);
    counts.iter().for_each(|count| {
        count.fetch_add(1, AcqRel);
    });
    let over = counts.clone();
    // Handed over once there is a thread.
    let (gives, takes) = channel::<OwnedFd>();
    let closes = move || {
        drop(takes.recv());
        over.iter().for_each(|count| {
            count.fetch_sub(1, AcqRel);
        });
    };
    match Builder::new().name("close".to_owned()).stack_size(STACK).spawn(closes) {
        Ok(_) => gives.send(file).map_err(|lost| lost.0),
        Err(_) => {
            counts.iter().for_each(|count| {
                count.fetch_sub(1, AcqRel);
            });
            Err(file)
        }
    }
}

fn begin() -> Option<Deputy> {
    let (jobs, wanted): (_, Receiver<(Counted, i32)>) = channel();
    let left = Arc::new(AtomicUsize::new(0));
    let over = Arc::clone(&left);
    let works = move || {
        for (program, octets) in wanted {
            let _ = pair::set_send_buffer(program.as_fd(), octets);
            drop(program);
            over.fetch_sub(1, AcqRel);
        }
    };
    Builder::new().name("deputy".to_owned()).stack_size(STACK).spawn(works).ok()?;
    Some(Deputy { jobs, left })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn until(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_user_waits_for_his_closes_and_for_very_many_options() {
        let mut deputies = Deputies::default();
        let (ours, other) = pair::new().expect("a pair");
        deputies.close(7, vec![other]);
        until(|| !deputies.hold(7));
        assert_eq!(pair::receive(ours.as_fd(), &mut [0]), Ok(0), "it is closed");
        let (program, _end) = pair::new().expect("a pair");
        let mut users = super::super::limits::Users::new(1, 1);
        let counted = users.counted(7, program.try_clone().expect("a descriptor"));
        deputies.widen(7, counted, 100_000);
        until(|| pair::send_buffer(program.as_fd()) == Ok(200_000));
        // One that does not come to its end.
        let left = &deputies.options[&7].left;
        until(|| left.load(Acquire) == 0);
        assert_eq!(users.has(7), (0, 0), "it is closed");
        left.store(AHEAD - 1, Release);
        assert!(!deputies.hold(7));
        left.store(AHEAD, Release);
        assert!(deputies.hold(7) && !deputies.hold(8) && !deputies.are_too_many());
        deputies.closing.entry(9).or_default().store(1, Release);
        deputies.close(8, Vec::new());
        assert!(deputies.hold(9) && !deputies.hold(8), "it is not over");
        deputies.files.push((8, ours));
        assert!(deputies.hold(8) && deputies.are_too_many(), "there was no thread");
        deputies.running.store(THREADS, Release);
        assert!(deputies.looks(8) && deputies.files.len() == 1, "there are as many as may be");
        deputies.running.store(0, Release);
        deputies.looks(8);
        until(|| !deputies.hold(8));
        assert!(deputies.files.is_empty() && !deputies.are_too_many());
    }
}
