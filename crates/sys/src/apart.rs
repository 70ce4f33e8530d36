//! Calls by a thread that has a descriptor table of its own, in which stands nothing but what it is told to have: what comes from others gets no number in the
//! program's table before it is known what it is, and what is closed there waits for nobody.
//!
//! The thread shares the table until its first call leaves that (close_range with CLOSE_RANGE_UNSHARE, Linux 5.9), so nothing is copied, and takes what it is
//! to have by pidfd_getfd (5.6; a filter may forbid it). The kernel gives the lowest free numbers: which ones these are is known.

use crate::mem::Zeroes;
use crate::syscall::check;
use crate::{Errno, Result, clock, futex, process, thread};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

/// How many calls one makes, and how often it waits, at most.
const CALLS: usize = 18;
const WAITS: usize = 2;
/// Where its own process stands in its table. What it takes follows, in its order.
const PROCESS: usize = 0;
/// No call: it ends.
const OVER: u64 = u64::MAX;
/// CLOSE_RANGE_UNSHARE (linux/close_range.h).
const UNSHARE: usize = 2;
/// PIDFD_THREAD (linux/pidfd.h).
const THREAD: usize = libc::O_EXCL as usize;

/// Whether there are to be none any more, and how many leave the table just now.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);
static LEAVING: AtomicU32 = AtomicU32::new(0);
/// How long they are waited for (ns): the close of a file takes as long as its file system likes.
const LONGEST_LEAVING: u64 = 100_000_000;

/// From now on there is none: the kernel gives one that leaves the table copies of its lowest 64 numbers, and what closes a message queue in this process
/// (mq_notify(3)) takes back what the process has asked to be told of it. Until then none of them has such a copy.
pub fn forbid() {
    FORBIDDEN.store(true, SeqCst);
    let until = clock::monotonic_ns() + LONGEST_LEAVING;
    while LEAVING.load(SeqCst) != 0 && clock::monotonic_ns() < until {
        thread::yield_now();
    }
}

/// In a forked child: those that leave are its parent's.
pub fn enter_child() {
    if LEAVING.load(Relaxed) != 0 {
        LEAVING.store(0, Relaxed);
    }
}

pub(crate) fn is_forbidden() -> bool {
    FORBIDDEN.load(SeqCst)
}

/// How long the thread waits at most: who sent it tells it in any case, but a process that is stopped may take its time.
static PATIENCE: libc::timespec = libc::timespec { tv_sec: 3600, tv_nsec: 0 };

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Call {
    /// Number and arguments.
    words: [u64; 7],
    /// Where the result goes.
    result: *const AtomicU64,
    /// Whether the thread ends if it fails.
    must: u64,
}

/// What a thread is to do. It stays where it is from the first call on until it is [over](Errand::is_over).
#[derive(Debug)]
pub(crate) struct Errand {
    /// Of each wait: 1 has it go on.
    go: [AtomicU32; WAITS],
    /// 0 once it needs this memory no more.
    runs: AtomicU32,
    /// Not 0 once all calls before it were made.
    arrived: [AtomicU64; WAITS],
    /// Results that nobody wants.
    any: AtomicU64,
    calls: [Call; CALLS],
    count: usize,
    /// How many descriptors it has.
    has: usize,
    /// The call behind it.
    next: [usize; WAITS],
    waits: usize,
}

// SAFETY: integers, and addresses that are written before they are read.
unsafe impl Zeroes for Errand {}

impl Errand {
    /// The first of all: its table is its own from now on. Not where a [filter](process::has_filter) may kill for these calls.
    pub(crate) fn begin(&mut self) {
        (*self.runs.get_mut(), self.has) = (1, 1);
        self.must(libc::SYS_close_range, [0, u32::MAX as usize, UNSHARE, 0, 0, 0]);
        // The first thread of the process may have ended. Its other ones have pidfds since those have numbers of their own (Linux 6.9).
        let (whose, kind) = match process::number_by_pidfd() {
            Some(_) => (thread::tid(), THREAD),
            None => (process::pid(), 0),
        };
        self.must(libc::SYS_pidfd_open, [whose as usize, kind, 0, 0, 0, 0]);
    }

    /// Has it take a descriptor of the process. Its number there.
    pub(crate) fn takes(&mut self, file: i32) -> usize {
        self.must(libc::SYS_pidfd_getfd, [PROCESS, file as usize, 0, 0, 0, 0]);
        self.has += 1;
        self.has - 1
    }

    /// Has it make a call without which there is no sense in the others.
    pub(crate) fn must(&mut self, number: i64, arguments: [usize; 6]) {
        let any = &raw const self.any;
        self.add(number, arguments, any, true);
    }

    /// Has it make a call, whose result goes there.
    pub(crate) fn calls(&mut self, number: i64, arguments: [usize; 6], result: &AtomicU64) {
        self.add(number, arguments, result, false);
    }

    fn add(&mut self, number: i64, arguments: [usize; 6], result: *const AtomicU64, must: bool) {
        let mut words = [number as u64; 7];
        words[1..].iter_mut().zip(arguments).for_each(|(word, argument)| *word = argument as u64);
        self.calls[self.count] = Call { words, result, must: must.into() };
        self.count += 1;
    }

    /// Has it wait until it is told to [go on](Errand::goes_on).
    pub(crate) fn waits(&mut self) {
        let at = self.waits;
        let (arrived, any) = (&raw const self.arrived[at], &raw const self.any);
        self.add(libc::SYS_gettid, [0; 6], arrived, false);
        self.add(libc::SYS_futex, [arrived as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0], any, false);
        let patience = &raw const PATIENCE as usize;
        let go = [self.go[at].as_ptr() as usize, libc::FUTEX_WAIT as usize, 0, patience, 0, 0];
        self.add(libc::SYS_futex, go, any, false);
        (self.next[at], self.waits) = (self.count, at + 1);
    }

    /// Sends it, and waits until it [waits](Errand::waits) for the first time. The number of the thread; `None`: it came to nothing.
    ///
    /// # Errors
    /// As clone(2): EAGAIN and ENOMEM where there is none now, EINVAL where this thread has set its children apart (CLONE_NEWPID, CLONE_NEWTIME), others where there can
    /// be none; EAGAIN, too, where there [may be none](forbid).
    pub(crate) fn sent(&mut self) -> Result<Option<u32>> {
        self.calls[self.count].words[0] = OVER;
        LEAVING.fetch_add(1, SeqCst);
        let sent = if is_forbidden() { Err(Errno::AGAIN) } else { spawn(self) };
        let has_arrived = sent.is_ok() && self.has_arrived(0);
        LEAVING.fetch_sub(1, SeqCst);
        if sent.is_ok() && !has_arrived {
            self.is_over();
        }
        sent.map(|tid| has_arrived.then_some(tid))
    }

    /// Waits until it [waits](Errand::waits) for the `at`th time. False: it came to nothing.
    pub(crate) fn has_arrived(&self, at: usize) -> bool {
        let arrived = &self.arrived[at];
        while arrived.load(Acquire) == 0 {
            if self.runs.load(Acquire) == 0 {
                return arrived.load(Acquire) != 0;
            }
            // SAFETY: the word is aligned, lives as long as this, and both halves are plain integers. Its thread wakes the lower one.
            let half = unsafe { AtomicU32::from_ptr(arrived.as_ptr().cast()) };
            futex::wait(half, 0, 1_000_000);
        }
        true
    }

    /// Has it go on where it waits.
    pub(crate) fn goes_on(&self, at: usize) {
        self.go[at].store(1, Release);
        futex::wake(&self.go[at], 1);
    }

    /// Has it end where it waits.
    pub(crate) fn ends(&mut self) {
        for at in 0..self.waits {
            let next = &raw mut self.calls[self.next[at]].words[0];
            // SAFETY: a word of this, which the thread reads behind the one that is written next.
            unsafe { next.write_volatile(OVER) };
        }
        (0..self.waits).for_each(|at| self.goes_on(at));
    }

    /// Waits until this memory is the caller's alone.
    pub(crate) fn is_over(&self) {
        while self.runs.load(Acquire) != 0 {
            futex::wait(&self.runs, 1, u64::from(u32::MAX));
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn spawn(errand: &mut Errand) -> Result<u32> {
    const FLAGS: i32 = libc::CLONE_VM
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_CHILD_CLEARTID;
    const CALL: usize = size_of::<Call>();
    let made: isize;
    // SAFETY: the new thread shares this memory, and until it ends neither uses the stack (all that it needs is in registers) nor, as all signals are blocked,
    // runs a handler. It reads the calls, writes results where they say, and the kernel clears `runs` when it has left this memory, for which the caller
    // waits. For the calling thread this is a system call.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "3:",
            "mov rax, qword ptr [{call}]",
            "cmp rax, -1",
            "je 4f",
            "mov rdi, qword ptr [{call} + 8]",
            "mov rsi, qword ptr [{call} + 16]",
            "mov rdx, qword ptr [{call} + 24]",
            "mov r10, qword ptr [{call} + 32]",
            "mov r8, qword ptr [{call} + 40]",
            "mov r9, qword ptr [{call} + 48]",
            "syscall",
            "mov rdx, qword ptr [{call} + 56]",
            "mov qword ptr [rdx], rax",
            "mov rdx, qword ptr [{call} + 64]",
            "add {call}, {size}",
            "test rax, rax",
            "jns 3b",
            "test rdx, rdx",
            "jz 3b",
            "4:",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            size = const CALL,
            exit = const libc::SYS_exit,
            // It is the new thread's own, and moves there.
            call = in(reg) errand.calls.as_mut_ptr(),
            inlateout("rax") libc::SYS_clone as isize => made,
            inlateout("rdi") FLAGS as usize => _,
            inlateout("rsi") 0usize => _,
            inlateout("rdx") 0usize => _,
            inlateout("r10") errand.runs.as_ptr() => _,
            inlateout("r8") 0usize => _,
            // Not late: what follows the first call reads its inputs.
            out("r9") _, out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    check(made).map(|made| made as u32)
}

#[cfg(not(target_arch = "x86_64"))]
fn spawn(_: &mut Errand) -> Result<u32> {
    Err(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::InPages;
    use crate::signal::Blocked;
    use crate::{fd, thread};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn it_has_what_it_is_told_to_have_and_nothing_else() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"octets").unwrap();
        let mut room = [0u8; 8];
        let [read, other, beside] = [const { AtomicU64::new(77) }; 3];
        let mut memory = InPages::<Errand>::new().unwrap();
        let errand = memory.get();
        errand.begin();
        let own = errand.takes(reader.as_raw_fd());
        assert_eq!(own, 1);
        errand.calls(libc::SYS_read, [own, room.as_mut_ptr() as usize, room.len(), 0, 0, 0], &read);
        errand.calls(libc::SYS_fcntl, [2, libc::F_GETFD as usize, 0, 0, 0, 0], &other);
        errand.waits();
        errand.calls(libc::SYS_fcntl, [1, libc::F_GETFD as usize, 0, 0, 0, 0], &beside);
        let _blocked = Blocked::all();
        let tid = errand.sent().unwrap().expect("it arrives");
        assert_eq!((read.load(Acquire), &room[..6]), (6, &b"octets"[..]));
        assert_eq!(other.load(Acquire) as i64, -i64::from(libc::EBADF));
        errand.ends();
        errand.is_over();
        assert_eq!(beside.load(Acquire), 77, "it made a call behind its end");
        while thread::is_alive(tid) {
            thread::yield_now();
        }
        assert!(fd::identity(reader.as_raw_fd()).is_ok());
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn it_ends_where_a_call_fails_that_it_must_make() {
        let mut memory = InPages::<Errand>::new().unwrap();
        let errand = memory.get();
        errand.begin();
        errand.takes(-1);
        errand.waits();
        let _blocked = Blocked::all();
        assert_eq!(errand.sent(), Ok(None));
    }
}
