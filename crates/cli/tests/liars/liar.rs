//! A process that lies: this one, with a region and an inbox that say what a test wants.

use bypath_shm::family::{Family, bell, end_state};
use bypath_shm::inbox::Inbox;
use bypath_shm::region;
use bypath_sys::process::start_time;
use rustix::event::EventfdFlags;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Of this process there is one, and each test has it say something else.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// It has a region, open as long as this lives.
pub struct Liar {
    pub family: &'static Family,
    pub region: i32,
    inbox: Option<i32>,
    _lock: Option<MutexGuard<'static, ()>>,
}

impl Liar {
    /// One whose region has this process at place 0, and nothing else.
    pub fn new() -> Liar {
        Liar::with(Some(one_at_a_time()))
    }

    /// One more of this process.
    pub fn and_another(&self) -> Liar {
        Liar::with(None)
    }

    fn with(lock: Option<MutexGuard<'static, ()>>) -> Liar {
        let (family, region) = region::new_family(3).expect("a region");
        let liar = Liar { family, region, inbox: None, _lock: lock };
        liar.has_member(0, std::process::id());
        liar
    }

    /// A process stands at a place of the table.
    pub fn has_member(&self, place: usize, pid: u32) {
        let member = &self.family.header.processes[place];
        member.pid.store(pid, Relaxed);
        member.start_time.store(start_time(pid).expect("it runs"), Relaxed);
        member.command[0].store(u64::from_ne_bytes(*b"liar\0\0\0\0"), Relaxed);
        member.ready.store(1, Relaxed);
    }

    /// The first end is a connection of this socket to that one, held by the process at place 0.
    pub fn has_end(&self, number: usize, cookie: u64, peer: u64) {
        let end = &self.family.ends[number];
        end.fd.store(5, Relaxed);
        end.holders.store(1, Relaxed);
        end.cookie.store(cookie, Relaxed);
        end.peer_cookie.store(peer, Relaxed);
        end.state.store(end_state::WARM, Relaxed);
        self.family.header.ends_used.fetch_max(number as u32 + 1, Relaxed);
    }

    /// Somebody sleeps for `bell`.
    pub fn sleeps_for(&mut self, bell: &OwnedFd) -> &'static Inbox {
        let (inbox, fd) = region::new_inbox(3).expect("an inbox");
        self.inbox = Some(fd);
        self.family.bells[0].store(bell::pack(bell.as_raw_fd(), 0), Relaxed);
        inbox.asleep[0].store(1, Relaxed);
        inbox
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        bypath_sys::fd::close(self.region);
        self.inbox.into_iter().for_each(bypath_sys::fd::close);
    }
}

/// The liar's region, for a process that is to have it open.
pub fn copy(liar: &Liar) -> File {
    let path = format!("/proc/self/fd/{}", liar.region);
    File::options().read(true).write(true).open(path).expect("the region")
}

/// A bell that makes who writes to it wait: its counter is full.
pub fn full_bell() -> OwnedFd {
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("room");
    bell
}

/// What a command comes to, if it ends within this time; else it is killed, which the test takes for a failure.
#[track_caller]
pub fn within(most: Duration, mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Who dumps says as much as other programs on this machine send: nobody waits for us to read it.
    let (out, error) = (read(child.stdout.take()), read(child.stderr.take()));
    let begun = Instant::now();
    while begun.elapsed() < most {
        if let Some(status) = child.try_wait().expect("a child") {
            let [stdout, stderr] = [out, error].map(|said| said.join().expect("a pipe"));
            return Output { status, stdout, stderr };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill(&mut child).expect("it can be killed");
    panic!("{command:?} has not ended after {most:?}");
}

fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        pipe.expect("a pipe").read_to_end(&mut said).expect("its end");
        said
    })
}

fn kill(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(|_| ())
}
