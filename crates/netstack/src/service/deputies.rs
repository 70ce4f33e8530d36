//! What may wait for as long as a user likes is done by threads of its own, and nothing is done for that user until it is over: closes of files
//! of his own file system (FUSE), which is asked at each close, and options of a socket that he holds, whose lock he can keep.
//!
//! A close takes its file from the process's table first and waits then. Each has a thread, so that none stays there: a thread with a table of its
//! own, which closes what may linger (`bypath_sys::strangers`), would have to close it, too.

use super::limits::{Account, Counted, Unwanted};
use bypath_sys::{clock, fd, pair, thread};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// Users whose closes wait at once. Beyond that nothing is heard of users whom the service is not for.
const MOST: usize = 64;
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
    /// Whose closes were begun. There is a thread for each: of how many files that may be is said where they are received (`limits.rs`).
    closing: HashMap<u32, Arc<Account>>,
    /// There was no thread to be had for these.
    files: Vec<Unwanted>,
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
    pub fn close(&mut self, uid: u32, files: Vec<Unwanted>) {
        self.closing.retain(|_, account| account.is_closing());
        let numbers: Vec<i32> = files.iter().map(|file| file.file().as_raw_fd()).collect();
        if let Some(file) = files.first() {
            self.closing.insert(uid, Arc::clone(file.account()));
        }
        let mut files = files.into_iter();
        let mut begun = 0;
        for file in files.by_ref() {
            if let Err(file) = close(file) {
                self.files.push(file);
                break;
            }
            begun += 1;
        }
        self.files.extend(files);
        let until = clock::monotonic_ns() + LEAVES;
        let is_there = |file: &i32| fd::is_cloexec(*file).is_ok();
        while numbers[..begun].iter().any(is_there) && clock::monotonic_ns() < until {
            thread::yield_now();
        }
    }

    /// Tries again where there was no thread; whether this user has to wait.
    pub fn looks(&mut self, uid: u32) -> bool {
        while let Some(file) = self.files.pop() {
            if let Err(file) = close(file) {
                self.files.push(file);
                break;
            }
        }
        self.hold(uid)
    }

    /// Whether this user has to wait until something is over.
    pub fn hold(&self, uid: u32) -> bool {
        self.closing.get(&uid).is_some_and(|account| account.is_closing())
            || self.options.get(&uid).is_some_and(|deputy| deputy.left.load(Acquire) >= AHEAD)
    }

    /// Whether closes of as many users as may be at once are not over.
    pub fn are_too_many(&self) -> bool {
        !self.files.is_empty()
            || self.closing.len() >= MOST
                && self.closing.values().filter(|account| account.is_closing()).count() >= MOST
    }
}

/// Closes a file on a thread of its own.
///
/// # Errors
/// There is none; the file is as it was.
fn close(file: Unwanted) -> Result<(), Unwanted> {
    // Handed over once there is a thread.
    let (gives, takes) = channel::<Unwanted>();
    let closes = move || drop(takes.recv());
    match Builder::new().name("close".to_owned()).stack_size(STACK).spawn(closes) {
        Ok(_) => gives.send(file).map_err(|lost| lost.0),
        Err(_) => Err(file),
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
        let mut users = super::super::limits::Users::new(1, 1);
        deputies.close(7, users.unwanted(7, vec![other]));
        until(|| !deputies.hold(7));
        assert_eq!(pair::receive(ours.as_fd(), &mut [0]), Ok(0), "it is closed");
        let (program, _end) = pair::new().expect("a pair");
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
        // One that has not come to its end, and one for which there was no thread.
        let waits = users.unwanted(9, vec![program]).pop().expect("it");
        deputies.closing.insert(9, users.account(9));
        deputies.close(8, Vec::new());
        assert!(deputies.hold(9) && !deputies.hold(8) && !deputies.are_too_many());
        deputies.files.push(waits);
        assert!(deputies.hold(9) && deputies.are_too_many());
        deputies.looks(8);
        until(|| !deputies.hold(9));
        assert!(deputies.files.is_empty() && !deputies.are_too_many());
        assert_eq!((users.has(9), users.may_send(9)), ((0, 0), true), "it is closed");
    }
}
