//! Closing what somebody else made, who may mean harm.
//!
//! The last close of a socket with SO_LINGER waits for its octets, for as long as its maker said, and so does the close of an
//! AF_UNIX socket in whose queue such a one is. The kernel spares a thread that ends (inet_release asks for PF_EXITING), so such
//! descriptors are closed last by one that does nothing but end. It has a table of its own (`apart`), in which nothing else stands: what the program closes
//! meanwhile is closed, however long that end takes. It spares nobody a file of a file system that a user serves himself (FUSE), which
//! is asked at each close: who can, asks [`Kernels`] first.

use crate::apart::{self, Errand};
use crate::mem::InPages;
use crate::signal::Blocked;
use crate::{Errno, clock, fd, futex, memfd, open_files, process, thread, unix};
#[cfg(feature = "link")]
use crate::{Result, eventfd, pair};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// How long it is asked at most whether the other thread has ended, in ns. A yield takes a time slice where processors are busy.
const LONGEST_LOOK: u64 = 100_000;
/// Memory that a close frees at once, in octets: 4 MiB take some 0.8 ms.
const LITTLE: u64 = 4 << 20;

/// How `/proc` calls an eventfd.
pub(crate) const EVENTFD: &[u8] = b"anon_inode:[eventfd]";

/// What the other thread waits for at most.
#[cfg(target_arch = "x86_64")]
static PATIENCE: libc::timespec = libc::timespec { tv_sec: 2, tv_nsec: 0 };

/// How many descriptors one thread holds.
pub const AT_ONCE: usize = 8;

/// Threads whose end takes long, by their numbers; 0: a free place.
static LATE: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];

/// Whether so many threads of [`close`] wait for what they close that nothing more is to be taken from anybody: each descriptor might hold another one.
#[inline]
pub fn is_busy() -> bool {
    LATE.iter().all(is_late)
}

fn is_late(place: &AtomicU32) -> bool {
    let tid = place.load(Relaxed);
    if tid != 0 && !thread::is_alive(tid) {
        // Another one may have taken the place meanwhile.
        return place.compare_exchange(tid, 0, Relaxed, Relaxed).is_err();
    }
    tid != 0
}

/// What the two have in common: 1 tells the other thread to end, and it is 0 when that needs this memory no more.
#[derive(Debug)]
struct Words {
    over: AtomicU32,
    runs: AtomicU32,
}

impl Words {
    const fn new() -> Words {
        Words { over: AtomicU32::new(0), runs: AtomicU32::new(1) }
    }
}

/// Has a thread of its own table (`apart`) hold these; `None`: it cannot be made, or may not.
fn hold(errand: &mut Errand, files: &[i32]) -> Option<u32> {
    if process::has_filter() != Some(false) {
        return None;
    }
    errand.begin();
    files.iter().for_each(|file| {
        errand.takes(*file);
    });
    errand.waits();
    errand.sent().ok()?
}

/// As long as it lives no close of these descriptors is the last one. Then they are over, and nobody has waited. Keeps
/// signals back meanwhile, and costs some 50 us, more with many descriptors: for what strangers sent. Where no thread may be made (a filter, a limit, a pid namespace
/// for children) it does nothing. It allocates: [`close`] does not.
#[derive(Debug)]
pub struct Others {
    errand: Option<InPages<Errand>>,
    words: Box<Words>,
    apart: Option<u32>,
    beside: Option<u32>,
    _blocked: Blocked,
}

impl Others {
    /// Of all that are open.
    pub fn new() -> Others {
        Others::of(&[])
    }

    fn of(files: &[i32]) -> Others {
        let mut errand = if files.is_empty() { None } else { InPages::new() };
        let (words, _blocked) = (Box::new(Words::new()), Blocked::all());
        let apart = errand.as_mut().and_then(|errand| hold(errand.get(), files));
        let beside = if apart.is_none() { holder(&words) } else { None };
        Others { errand, words, apart, beside, _blocked }
    }

    /// If one of these, [`AT_ONCE`] at most, may make its close wait.
    pub fn among<'a>(fds: impl IntoIterator<Item = &'a OwnedFd>) -> Option<Others> {
        let files: Vec<_> = fds.into_iter().map(AsRawFd::as_raw_fd).take(AT_ONCE).collect();
        (!files.iter().all(|file| is_harmless(*file))).then(|| Others::of(&files))
    }
}

impl Default for Others {
    fn default() -> Others {
        Others::new()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        if let (Some(tid), Some(errand)) = (self.apart, &mut self.errand) {
            dismiss_apart(errand.get(), tid);
        }
        if let Some(tid) = self.beside {
            dismiss(&self.words, tid);
        }
    }
}

/// The file systems of sockets, of memory and of eventfds and their like, by their devices: nothing of a user's is asked when a file of theirs is closed.
#[cfg(feature = "link")]
#[derive(Debug)]
pub struct Kernels([(u32, u32); 3]);

#[cfg(feature = "link")]
impl Kernels {
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM; ENOSYS: no statx(2).
    pub fn new() -> Result<Kernels> {
        let socket = pair::new()?;
        let event = eventfd::create(3)?;
        let device = memfd::device_of(event);
        fd::close(event);
        Ok(Kernels([memfd::device_of(socket.0.as_raw_fd())?, memfd::anonymous_device()?, device?]))
    }

    /// Whether it is of one of them. Of what has no name in any file system only an eventfd is: the last close of a userfaultfd, for one, waits for a
    /// lock of its maker's.
    pub fn have(&self, file: i32) -> bool {
        memfd::device_of(file).is_ok_and(|device| match self.0.iter().position(|own| *own == device) {
            Some(0 | 1) => true,
            Some(_) => open_files::is(file, EVENTFD),
            None => false,
        })
    }
}

/// Sealed memory, if it is little, or an eventfd: closes of them never wait.
fn is_harmless(file: i32) -> bool {
    let is_little = || fd::allocated(file).is_ok_and(|octets| octets <= LITTLE);
    // By its name: others without a kind take their time with what they watch (epoll, inotify), and no file system is asked.
    memfd::sealed_size(file).is_ok() && is_little() || open_files::is(file, EVENTFD)
}

/// Closes descriptors without ever waiting for what a last close waits for.
pub fn close(fds: &[i32]) {
    fds.chunks(AT_ONCE).for_each(close_some);
}

/// The same of [`AT_ONCE`] at most. By itself, as it takes much of a small stack.
#[cold]
#[inline(never)]
fn close_some(some: &[i32]) {
    let (mut errand, words, _blocked) = (InPages::new(), Words::new(), Blocked::all());
    let apart = errand.as_mut().and_then(|errand| hold(errand.get(), some));
    let beside = if apart.is_none() { holder(&words) } else { None };
    some.iter().for_each(|file| fd::close(*file));
    if let (Some(tid), Some(errand)) = (apart, &mut errand) {
        dismiss_apart(errand.get(), tid);
    }
    if let Some(tid) = beside {
        dismiss(&words, tid);
    }
}

/// Ends a connection of AF_UNIX of which somebody else has the other end, whoever that is, for all who hold this one. What he has sent there, and nobody has received, makes
/// nobody wait.
pub fn close_caller(caller: i32) {
    // First: what is unread then is all that ever will be.
    unix::refuse(caller);
    if unix::has_unread(caller) {
        close(&[caller]);
    } else {
        fd::close(caller);
    }
}

/// The same of one whom nobody has [let send descriptors](unix::take_descriptors), or who was let to for good. Since Linux 6.16 the former has sent octets alone, of which no close
/// waits: that takes no thread, for which a filter may kill.
pub fn close_stranger(caller: i32) {
    if unix::takes_descriptors(caller) {
        return close_caller(caller);
    }
    unix::refuse(caller);
    fd::close(caller);
}

/// [`close_caller`] of many.
pub fn close_callers(callers: &mut [i32]) {
    callers.iter().for_each(|caller| unix::refuse(*caller));
    let mut unread = 0;
    for at in 0..callers.len() {
        let caller = callers[at];
        if unix::has_unread(caller) {
            callers[unread] = caller;
            unread += 1;
        } else {
            fd::close(caller);
        }
    }
    close(&callers[..unread]);
}

/// Closes what came along with a message.
pub fn close_received(received: &unix::Received) {
    close_files(&received.fds[..received.fd_count]);
}

/// The same of numbers.
pub fn close_files(files: &[i32]) {
    if files.iter().all(|file| is_harmless(*file)) {
        files.iter().for_each(|file| fd::close(*file));
    } else {
        close(files);
    }
}

/// Closes a listener of AF_UNIX, and whoever has called there meanwhile.
pub fn close_listener(listener: i32) {
    unix::refuse(listener);
    loop {
        match unix::accept(listener, 0) {
            Ok(Some(caller)) => close_stranger(caller),
            // Nobody is left, and nobody can come any more.
            Ok(None) | Err(Errno::INVAL) => return fd::close(listener),
            // There may be some that cannot be accepted.
            Err(_) if !unix::takes_descriptors(listener) => return fd::close(listener),
            Err(_) => return close(&[listener]),
        }
    }
}

/// A thread with a copy of the descriptor table, where there can be none [apart], that ends once `over` is 1, or this process does; `None` if there can be none.
#[cfg(target_arch = "x86_64")]
fn holder(words: &Words) -> Option<u32> {
    const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_CHILD_CLEARTID;
    if apart::is_forbidden() {
        return None;
    }
    let made: isize;
    // SAFETY: the new thread shares this memory, and until it ends neither uses the stack (all that it needs is in registers) nor,
    // as all signals are blocked, runs a handler. It reads the word and the time-out, and the kernel clears `runs` when it has left this memory, for
    // which `dismiss` waits. For the calling thread this is a system call.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            // futex(over, FUTEX_WAIT, 0, patience), exit(0)
            "mov eax, {futex}",
            "mov rdi, {over}",
            "xor esi, esi",
            "xor edx, edx",
            "mov r10, {patience}",
            "syscall",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            futex = const libc::SYS_futex,
            exit = const libc::SYS_exit,
            over = in(reg) words.over.as_ptr(),
            patience = in(reg) &raw const PATIENCE,
            inlateout("rax") libc::SYS_clone as isize => made,
            inlateout("rdi") FLAGS as usize => _,
            inlateout("rsi") 0usize => _,
            inlateout("rdx") 0usize => _,
            inlateout("r10") words.runs.as_ptr() => _,
            inlateout("r8") 0usize => _,
            // Not late: what follows the first call reads its inputs.
            out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    (made > 0).then_some(made as u32)
}

#[cfg(not(target_arch = "x86_64"))]
fn holder(_: &Words) -> Option<u32> {
    None
}

/// Has a thread [apart] end.
fn dismiss_apart(errand: &Errand, tid: u32) {
    errand.goes_on(0);
    errand.is_over();
    leave(tid);
}

/// Has the other thread end; its closes are over when this returns, or later if one of them takes its time.
fn dismiss(words: &Words, tid: u32) {
    words.over.store(1, Release);
    futex::wake(&words.over, 1);
    while words.runs.load(Acquire) != 0 {
        futex::wait(&words.runs, 1, u64::from(u32::MAX));
    }
    leave(tid);
}

/// Waits a moment for the end of a thread that closes what it has, and notes it where that takes its time.
pub(crate) fn leave(tid: u32) {
    let until = clock::monotonic_ns() + LONGEST_LOOK;
    while thread::is_alive(tid) {
        if clock::monotonic_ns() >= until {
            let takes = |place: &&AtomicU32| {
                !is_late(place) && place.compare_exchange(0, tid, Relaxed, Relaxed).is_ok()
            };
            let _ = LATE.iter().find(takes);
            return;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll;
    use std::io::Write;
    use std::os::fd::{FromRawFd, IntoRawFd};
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    const LINGER: Duration = Duration::from_secs(40);

    /// A descriptor whose last close waits, and the other end, which does not read.
    fn lingering() -> (i32, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 65_536]).is_ok() {}
        let linger = [1i32.to_ne_bytes(), (LINGER.as_secs() as i32).to_ne_bytes()].concat();
        crate::sock::set_option(sender.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
        (sender.into_raw_fd(), reader)
    }

    fn is_quick(what: impl FnOnce()) {
        let began = Instant::now();
        what();
        assert!(began.elapsed() < LINGER / 2, "{:?}", began.elapsed());
    }

    /// Names tell of no other process of this one's tests.
    fn name(of: &str) -> Vec<u8> {
        format!("bypath-test/{of}/{}", std::process::id()).into_bytes()
    }

    #[test]
    fn what_lingers_is_closed_at_once() {
        let (lingers, _reader) = lingering();
        let was = fd::identity(lingers).unwrap();
        is_quick(|| close(&[lingers]));
        // Another test may have the number by now.
        assert_ne!(fd::identity(lingers), Ok(was), "it is closed");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_is_closed_meanwhile_is_closed() {
        use std::io::Read;
        let [(mut held, holds), (mut other, lets_go)] = [(); 2].map(|()| std::io::pipe().unwrap());
        let (mut memory, _blocked) = (InPages::new().unwrap(), Blocked::all());
        let errand = memory.get();
        let tid = hold(errand, &[holds.as_raw_fd()]).unwrap();
        drop(lets_go);
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "it has what it was not told to have");
        drop(holds);
        assert_eq!(
            poll::now(held.as_raw_fd(), libc::POLLIN) & libc::POLLHUP,
            0,
            "it does not hold what it was told to"
        );
        dismiss_apart(errand, tid);
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn late_threads_are_counted_until_they_have_ended() {
        let (words, _blocked) = (Words::new(), Blocked::all());
        let (tid, place) = (holder(&words).unwrap(), AtomicU32::new(0));
        assert!(!is_late(&place));
        place.store(tid, Relaxed);
        assert!(is_late(&place));
        dismiss(&words, tid);
        while thread::is_alive(tid) {
            thread::yield_now();
        }
        assert!(!is_late(&place) && place.load(Relaxed) == 0);
    }

    #[test]
    fn only_what_may_wait_is_closed_with_care() {
        let harmless = [memfd::create(c"test", 4096, 3).unwrap(), crate::eventfd::create(3).unwrap()];
        // SAFETY: both were made just now and are nobody else's.
        let harmless = harmless.map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        assert!(Others::among(&harmless).is_none());
        // SAFETY: it was made just now, and is nobody else's.
        let set = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        assert!(Others::among([&set]).is_some());
        // SAFETY: as above.
        let filled = unsafe { OwnedFd::from_raw_fd(memfd::create(c"test", 2 * LITTLE as usize, 3).unwrap()) };
        assert!(Others::among([&filled]).is_none(), "nothing of it is there");
        let file = std::fs::File::from(filled.try_clone().unwrap());
        for page in (0..2 * LITTLE).step_by(4096) {
            file.write_all_at(&[1], page).unwrap();
        }
        assert!(Others::among([&filled]).is_some(), "to free that takes its time");
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Others::among(&[a.into(), b.into()]).is_some());
    }

    #[cfg(feature = "link")]
    #[test]
    fn files_of_file_systems_are_told_from_what_is_the_kernels() {
        let kernels = Kernels::new().unwrap();
        let (pipe, _) = std::io::pipe().unwrap();
        let other = ["/dev/null", "/proc/self/maps"].map(|path| std::fs::File::open(path).unwrap());
        assert!(!other.iter().any(|file| kernels.have(file.as_raw_fd())));
        assert!(!kernels.have(pipe.as_raw_fd()) && !kernels.have(-1));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: it was made just now, and is nobody else's.
        let set = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        assert!(!kernels.have(set.as_raw_fd()));
        let own = [memfd::create(c"test", 4096, 3).unwrap(), eventfd::create(3).unwrap()];
        assert!(own.iter().chain([&tcp.as_raw_fd()]).all(|file| kernels.have(*file)));
        own.iter().for_each(|file| fd::close(*file));
    }

    #[test]
    fn a_connection_is_closed_at_once_whatever_was_sent_there() {
        for said in [&b"unread"[..], b""] {
            let ends: [i32; 2] = crate::unix::tests::pair();
            let (lingers, _reader) = lingering();
            // Whoever looks at the first message alone, or at octets alone, finds nothing of it.
            for fds in [&[][..], &[lingers]] {
                unix::send(ends[1], said, fds).unwrap();
            }
            fd::close(lingers);
            is_quick(|| close_caller(ends[0]));
            fd::close(ends[1]);
        }
    }

    #[test]
    fn a_listener_is_closed_at_once_whatever_was_sent_to_it() {
        let listener = unix::listen(&name("listener"), 0).unwrap();
        // As before Linux 6.16.
        unix::take_descriptors(listener, true);
        let caller = unix::connect(&name("listener"), 0).unwrap();
        let (lingers, _reader) = lingering();
        unix::send(caller, b"unread", &[lingers]).unwrap();
        fd::close(lingers);
        is_quick(|| close_listener(listener));
        assert_eq!(unix::connect(&name("listener"), 0), Err(crate::Errno::CONNREFUSED));
        fd::close(caller);
    }
}
