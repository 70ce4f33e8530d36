//! What may wait for as long as a user likes is done by a thread of its own, and nothing is done for that user until it is over: the close of a file
//! of his own file system (FUSE), which is asked at each close, and options of a socket that he holds, whose lock he can keep.

use bypath_sys::pair;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

/// Threads at once. Beyond that nothing is heard of users whom the service is not for.
const MOST: usize = 64;
/// What may be left to do of one user, while he goes on.
const AHEAD: usize = 64;
/// Octets of a thread's stack: it makes system calls alone.
const STACK: usize = 64 << 10;

/// Something that may wait.
#[derive(Debug)]
pub enum Job {
    /// Files that came along with a message, and are none of the kernel's.
    Close(Vec<OwnedFd>),
    /// SO_SNDBUF of a socket, which is closed then.
    Widen(OwnedFd, i32),
}

impl Job {
    /// It is not begun before others are over.
    const fn weight(&self) -> usize {
        match self {
            Job::Close(_) => AHEAD,
            Job::Widen(..) => 1,
        }
    }

    pub fn run(self) {
        match self {
            Job::Close(files) => drop(files),
            Job::Widen(socket, octets) => {
                let _ = pair::set_send_buffer(socket.as_fd(), octets);
            }
        }
    }
}

/// One user's thread.
#[derive(Debug)]
struct Deputy {
    jobs: Sender<Job>,
    left: Arc<AtomicUsize>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Deputies(HashMap<u32, Deputy>);

impl Deputies {
    /// Does something for this user, soon.
    pub fn give(&mut self, uid: u32, job: Job) {
        // Threads of those for whom nothing is left to do end when another one comes.
        if !self.0.contains_key(&uid) {
            self.0.retain(|_, deputy| deputy.left.load(Acquire) > 0);
        }
        let deputy = match self.0.get(&uid) {
            Some(deputy) => deputy,
            None => match begin() {
                Some(deputy) => self.0.entry(uid).or_insert(deputy),
                // There is no thread to be had: it is left as it is.
                None => return std::mem::forget(job),
            },
        };
        deputy.left.fetch_add(job.weight(), AcqRel);
        if let Err(lost) = deputy.jobs.send(job) {
            std::mem::forget(lost);
        }
    }

    /// Whether this user has to wait until something is over.
    pub fn hold(&self, uid: u32) -> bool {
        self.0.get(&uid).is_some_and(|deputy| deputy.left.load(Acquire) >= AHEAD)
    }

    /// Whether as many as may be at once have something to do.
    pub fn are_all_busy(&self) -> bool {
        self.0.len() >= MOST && self.0.values().filter(|deputy| deputy.left.load(Acquire) > 0).count() >= MOST
    }
}

fn begin() -> Option<Deputy> {
    let (jobs, wanted): (_, Receiver<Job>) = channel();
    let left = Arc::new(AtomicUsize::new(0));
    let over = Arc::clone(&left);
    let works = move || {
        for job in wanted {
            let weight = job.weight();
            job.run();
            over.fetch_sub(weight, AcqRel);
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
    fn a_user_waits_for_his_closes_and_for_many_other_jobs() {
        let mut deputies = Deputies::default();
        let (ours, other) = pair::new().expect("a pair");
        deputies.give(7, Job::Close(vec![other]));
        until(|| !deputies.hold(7));
        assert_eq!(pair::receive(ours.as_fd(), &mut [0]), Ok(0), "it is closed");
        let (program, _end) = pair::new().expect("a pair");
        deputies.give(7, Job::Widen(program.try_clone().expect("a descriptor"), 100_000));
        until(|| pair::send_buffer(program.as_fd()) == Ok(200_000));
        // One that does not come to its end.
        let left = &deputies.0[&7].left;
        until(|| left.load(Acquire) == 0);
        left.store(AHEAD - 1, Release);
        assert!(!deputies.hold(7));
        left.store(AHEAD, Release);
        assert!(deputies.hold(7) && !deputies.hold(8) && !deputies.are_all_busy());
        deputies.give(8, Job::Close(Vec::new()));
        assert!(deputies.0.contains_key(&7), "it is not over");
    }
}
