//! Processes: identity, namespaces, membarrier.

use crate::syscall::{check, syscall};
use crate::turn::Turn;
use crate::{Errno, Result, fd, open_files, poll, thread, unix};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The user whom the kernel shows for all that a user namespace does not know (as /proc/sys/kernel/overflowuid is where nobody has changed it): whoever
/// that is, nothing shows that it is the same one.
pub const OVERFLOW_UID: u32 = 65534;

/// Whether the own user namespace knows all users, as the first one does: 65534 is a user there like others.
pub fn knows_all_users() -> bool {
    let mut map = [0; 128];
    fd::read_file(c"/proc/self/uid_map", &mut map).is_ok_and(|len| maps_all(&map[..len]))
}

/// The same of the text of a uid_map (user_namespaces(7)): one range, of every user as himself.
fn maps_all(map: &[u8]) -> bool {
    let words = map.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.eq([b"0".as_slice(), b"0", b"4294967295"])
}

/// Whether a filter of system calls (seccomp(2)) is there, or was when somebody asked: it may kill for calls of which whoever wrote it knew nothing, and cannot be asked.
/// Where `/proc` does not tell, there may be one; `None`: it cannot be asked now (no descriptor, or memory, is left).
pub(crate) fn has_filter() -> Option<bool> {
    static SEEN: AtomicBool = AtomicBool::new(false);
    if SEEN.load(Relaxed) {
        return Some(true);
    }
    // One may be installed at any time past the library, which does not see it.
    match fd::is_in_file(c"/proc/thread-self/status", b"\nSeccomp:\t0\n") {
        Ok(is_none) => {
            SEEN.store(!is_none, Relaxed);
            Some(!is_none)
        }
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => None,
        Err(_) => Some(true),
    }
}

/// This process's id, from the kernel (a vfork child or a clone sees its own).
pub fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u32 }
}

/// Effective user id.
pub fn euid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// The user in whose name a process, or a thread, of several users is to ask others: root, if it is one of them, as nobody else may trace such a process
/// (ptrace(2)); otherwise the real one.
pub fn principal() -> u32 {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = ids.each_mut().map(|id| std::ptr::from_mut(id) as usize);
    // SAFETY: the kernel writes three numbers of ours.
    unsafe { syscall(libc::SYS_getresuid, [real, effective, saved, 0, 0, 0]) };
    if ids.contains(&0) { 0 } else { ids[0] }
}

/// Real group id.
pub fn real_gid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getgid, [0; 6]) as u32 }
}

/// Whether the effective user and group are the real ones. Where they are not, the kernel has the next program's loader leave out what is to be preloaded.
pub fn is_one_user() -> bool {
    // SAFETY: no arguments.
    let [user, group, effective_group] = [libc::SYS_getuid, libc::SYS_getgid, libc::SYS_getegid]
        .map(|number| unsafe { syscall(number, [0; 6]) as u32 });
    user == euid() && group == effective_group
}

/// Real, effective and saved user id.
fn own_users() -> [u32; 3] {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: the kernel writes to locals.
    unsafe {
        syscall(
            libc::SYS_getresuid,
            [&raw mut *real as usize, &raw mut *effective as usize, &raw mut *saved as usize, 0, 0, 0],
        )
    };
    ids
}

/// Whether this process is that user and no other, nor was one that it can be again.
pub fn is_wholly(user: u32) -> bool {
    own_users() == [user; 3]
}

/// Whether this process, or one forked from it, can become another user: it has the right to, or is several users already.
pub fn may_become_another_user() -> bool {
    const SETUID: u32 = 7;
    let ids = own_users();
    // linux/capability.h: version 3, this process; then effective, permitted and inheritable ones, the low words first.
    let (header, mut sets) = ([0x2008_0522u32, 0], [0u32; 6]);
    // SAFETY: the kernel reads one local and writes to the other.
    let asked = check(unsafe {
        syscall(libc::SYS_capget, [&raw const header as usize, &raw mut sets as usize, 0, 0, 0, 0])
    });
    ids[0] != ids[1] || ids[1] != ids[2] || asked.is_err() || sets[1] & 1 << SETUID != 0
}

/// The effective user id as it is outside of this process's user namespace; the one that it has where that is not told.
pub fn euid_outside() -> u32 {
    let mut map = [0; 4096];
    let len = fd::read_file(c"/proc/self/uid_map", &mut map).unwrap_or(0);
    let uid = euid();
    outside(&map[..len], uid).unwrap_or(uid)
}

/// By lines of uid_map (user_namespaces(7)): the first one inside, the first one outside, and how many.
fn outside(map: &[u8], uid: u32) -> Option<u32> {
    let text = std::str::from_utf8(map).ok()?;
    text.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let [Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))] = std::array::from_fn(|_| numbers.next())
        else {
            return None;
        };
        let at = uid.checked_sub(inside).filter(|at| *at < count)?;
        outside.checked_add(at)
    })
}

/// Start time of process `pid` in clock ticks since boot, as the own time namespace counts them; `None` if it is gone or a zombie, or cannot be seen.
pub fn start_time(pid: u32) -> Option<u64> {
    stat(pid).filter(|s| s.runs).map(|s| s.started)
}

/// Whether process `pid` that started at `started` ([`start_time`], 0 = not known) lives. Where `/proc` does not show
/// processes (another root, hidepid) the kernel is asked in another way, which does not know when they started.
pub fn lives(pid: u32, started: u64) -> bool {
    // A parent lives, and its number was not used again: who adopts orphans is an ancestor, older than they are.
    if pid == parent() {
        return true;
    }
    // Cheaper than the files of /proc.
    if !exists(pid) {
        return false;
    }
    match stat(pid) {
        Some(s) => s.runs && (s.started == started || started == 0),
        None => lives_unseen(pid),
    }
}

/// The process that this one was forked from, or that has adopted it; 0 if it is not seen from here.
pub fn parent() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getppid, [0; 6]) as u32 }
}

/// [`lives`] without `/proc`. An end that waits to be reaped counts as dead, but where a filter may kill for pidfd_open(2).
#[cold]
fn lives_unseen(pid: u32) -> bool {
    if has_filter() == Some(true) {
        return exists(pid);
    }
    let _turn = Turn::to_make();
    match open_pidfd(pid) {
        Ok(pidfd) => {
            let ended = poll::now(pidfd, libc::POLLIN) & libc::POLLIN != 0;
            fd::close(pidfd);
            !ended
        }
        // No room for a descriptor, or an old kernel.
        Err(_) => exists(pid),
    }
}

/// Whether process `pid` is stopped, by a signal or a tracer, as far as `/proc` shows it. Nothing that it does is waited for.
pub fn is_stopped(pid: u32) -> bool {
    status(pid).is_some_and(|s| s.is_stopped)
}

/// Real and effective user of process `pid`, as this user namespace knows them ([`OVERFLOW_UID`]: not at all); `None` if it is gone, or cannot be
/// seen. Nothing that it does is waited for.
pub fn users(pid: u32) -> Option<[u32; 2]> {
    status(pid).map(|s| s.users)
}

/// Whether `tid` is a thread of process `pid` that runs, or wants to, waits for a disk, or is stopped, and not one that sleeps; `None` if it is gone, or cannot
/// be seen. Nothing that it does is waited for.
pub fn is_at_work(pid: u32, tid: u32) -> Option<bool> {
    // A thread has such a file, too, though no listing shows it.
    status(tid).map(|s| s.process == pid && s.is_at_work)
}

/// Whether thread `tid` of the calling process waits for what no signal ends: a disk, or a page of shared memory that somebody takes out just then. False where
/// `/proc` does not tell.
pub fn is_held(tid: u32) -> bool {
    status(tid).is_some_and(|s| s.process == pid() && s.is_held)
}

/// Of /proc/PID/status: what does not wait for a process that executes a program. Whoever asks for its other files does, until its old memory is
/// freed and its close-on-exec files are closed, which take as long as it likes.
struct Status {
    is_stopped: bool,
    is_at_work: bool,
    /// It waits, and no signal ends that.
    is_held: bool,
    /// The thread has ended. Others of its process may go on.
    is_over: bool,
    process: u32,
    users: [u32; 2],
}

fn status(pid: u32) -> Option<Status> {
    let mut path = [0u8; 32];
    let path = proc_path(&mut path, pid, b"/status\0")?;
    // All lines are among the first ten, and the name, which has no line of its own in it, has 64 octets at most.
    let mut buf = [0u8; 512];
    let len = fd::read_file(path, &mut buf).ok()?;
    Status::parse(&buf[..len])
}

impl Status {
    fn parse(text: &[u8]) -> Option<Status> {
        let line = |name: &[u8]| text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(name));
        let state = line(b"State:\t")?.first()?;
        let mut users = std::str::from_utf8(line(b"Uid:\t")?).ok()?.split_ascii_whitespace();
        let mut user = || users.next()?.parse().ok();
        let process = std::str::from_utf8(line(b"Tgid:\t")?).ok()?.trim().parse().ok()?;
        let is_stopped = matches!(state, b'T' | b't');
        let is_at_work = is_stopped || matches!(state, b'R' | b'D');
        let is_held = *state == b'D';
        let is_over = matches!(state, b'Z' | b'X');
        Some(Status { is_stopped, is_at_work, is_held, is_over, process, users: [user()?, user()?] })
    }
}

/// Of /proc/PID/stat: whether any thread still runs, and the start time (field 22).
struct Stat {
    runs: bool,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let mut path = [0u8; 32];
    let path = proc_path(&mut path, pid, b"/stat\0")?;
    let mut buf = [0u8; 1024];
    let len = fd::read_file(path, &mut buf).ok()?;
    let text = &buf[..len];
    // The command may contain blanks and parentheses: fields start after the last ')'.
    let rest = &text[text.iter().rposition(|&b| b == b')')? + 2..];
    let mut fields = rest.split(|&b| b == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let state = fields.next()?;
    let over = matches!(state, b"Z" | b"X");
    // The first thread may have ended before the others.
    let threads = number(fields.nth(16)?)?;
    Some(Stat { runs: !over || threads > 1, started: number(fields.nth(1)?)? })
}

/// The thread of process `pid` of whose descriptors, memory and namespaces `/proc` tells, as `/proc/THREAD` does though no listing shows it: the first one,
/// whose number is the process's, or a living one where that has ended. Nothing that it does is waited for.
pub fn shown_thread(pid: u32) -> u32 {
    if status(pid).is_none_or(|s| !s.is_over) {
        return pid;
    }
    let mut path = [0u8; 32];
    let tasks = proc_path(&mut path, pid, b"/task\0");
    let living = |tid: u32| status(tid).is_some_and(|s| s.process == pid && !s.is_over);
    tasks.and_then(|tasks| open_files::find_number(tasks, living)).unwrap_or(pid)
}

/// Threads of this process; `None` where `/proc` does not tell.
pub fn threads() -> Option<u64> {
    // A directory for each, beside `.` and the name that it has itself.
    fd::links(c"/proc/self/task").ok()?.checked_sub(2)
}

/// Whether more threads of the system want to run than this thread has processors to choose from. False where `/proc`
/// does not tell.
pub fn processors_are_short() -> bool {
    let mut text = [0u8; 64];
    let Ok(length) = fd::read_file(c"/proc/loadavg", &mut text) else { return false };
    // The fourth field: those that run or wait for a processor, and all there are (proc_loadavg(5)).
    let field = text[..length].split(|&b| b == b' ').nth(3);
    let wanting =
        field.and_then(|f| std::str::from_utf8(f.split(|&b| b == b'/').next()?).ok()?.parse::<u32>().ok());
    wanting.is_some_and(|n| n > thread::processors())
}

/// Now, in the unit of [`start_time`]. A process that was forked between two equal readings started then: the kernel
/// takes the time from this clock (`copy_process`) and reports hundredths of a second, rounded down.
pub fn start_time_now() -> u64 {
    crate::clock::boot_hundredths()
}

/// Command name of the process, which is that of its first thread, NUL padded; of the calling thread where /proc does not tell it.
pub fn command() -> [u8; 16] {
    let mut name = [0u8; 16];
    if crate::thread::tid() != pid()
        && let Ok(len) = crate::fd::read_file(c"/proc/self/comm", &mut name)
    {
        name[len.saturating_sub(1)..].fill(0);
        return name;
    }
    // SAFETY: PR_GET_NAME writes at most 16 bytes.
    unsafe { syscall(libc::SYS_prctl, [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Path of the file that this process executes, empty if it is not to be had. A file that was removed since ends in
/// ` (deleted)`.
pub fn executable() -> Vec<u8> {
    let mut path = vec![0u8; 4096];
    let link = c"/proc/self/exe";
    // SAFETY: readlinkat reads a NUL-terminated path and writes at most as many bytes as the vector has.
    let r = unsafe {
        syscall(
            libc::SYS_readlinkat,
            [libc::AT_FDCWD as usize, link.as_ptr() as usize, path.as_mut_ptr() as usize, path.len(), 0, 0],
        )
    };
    path.truncate(usize::try_from(r).unwrap_or(0));
    path
}

/// `/proc/` with a number and `tail` (NUL at its end) behind it.
pub(crate) fn proc_path<'a>(buf: &'a mut [u8; 32], pid: u32, tail: &[u8]) -> Option<&'a std::ffi::CStr> {
    let mut digits = [0u8; 10];
    let mut n = pid;
    let mut i = digits.len();
    loop {
        i -= 1;
        digits[i] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    let mut at = 0;
    for part in [b"/proc/".as_slice(), &digits[i..], tail] {
        buf.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    std::ffi::CStr::from_bytes_with_nul(&buf[..at]).ok()
}

fn open_pidfd(pid: u32) -> Result<i32> {
    pidfd_of(pid, 0)
}

fn pidfd_of(pid: u32, flags: usize) -> Result<i32> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_pidfd_open, [pid as usize, flags, 0, 0, 0, 0]) })
        .map(|pidfd| pidfd as i32)
}

/// The number of a pidfd's process that no other one ever has: its inode; `None` where there is none such (before Linux 6.9).
pub(crate) fn pidfd_number(pidfd: i32) -> Option<u64> {
    // linux/magic.h.
    const PID_FS_MAGIC: u64 = 0x5049_4446;
    let (_, inode) = fd::identity(pidfd).ok()?;
    (fd::file_system(pidfd) == Ok(PID_FS_MAGIC)).then_some(inode)
}

/// That of this process.
pub(crate) fn number() -> Option<u64> {
    if has_filter() == Some(false) { number_by_pidfd() } else { number_as_maker() }
}

/// The same by pidfd_open(2), for which a filter may kill.
pub(crate) fn number_by_pidfd() -> Option<u64> {
    let _turn = Turn::to_make();
    let pidfd = open_pidfd(pid()).ok()?;
    let number = pidfd_number(pidfd);
    fd::close(pidfd);
    number
}

/// The same without it: who has made a socket is told as well.
fn number_as_maker() -> Option<u64> {
    let _turn = Turn::to_make();
    let [own, other] = unix::pair().ok()?;
    let number = unix::peer_process(own);
    [own, other].into_iter().for_each(fd::close);
    number
}

/// The process that a pidfd stands for, as this process's `/proc` numbers it; `None` if it has ended, is not seen from
/// here, or `pidfd` is none.
pub fn behind(pidfd: i32) -> Option<u32> {
    let mut path = *b"/proc/self/fdinfo/\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 32];
    let number = proc_path(&mut digits, u32::try_from(pidfd).ok()?, b"\0")?.to_bytes();
    let number = &number[b"/proc/".len()..];
    path[b"/proc/self/fdinfo/".len()..][..number.len()].copy_from_slice(number);
    let mut text = [0u8; 512];
    let length = fd::read_file(std::ffi::CStr::from_bytes_until_nul(&path).ok()?, &mut text).ok()?;
    let line = text[..length].split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"Pid:"))?;
    let pid: i32 = std::str::from_utf8(line).ok()?.trim().parse().ok()?;
    u32::try_from(pid).ok().filter(|pid| *pid > 0)
}

/// A copy of descriptor `number` of process `pid`, close-on-exec.
///
/// # Errors
/// As pidfd_open(2) and pidfd_getfd(2): EPERM without the right to trace the process; EINVAL before Linux 6.9 if its first thread has ended.
pub fn descriptor_of(pid: u32, number: i32) -> Result<i32> {
    // linux/pidfd.h.
    const PIDFD_THREAD: usize = libc::O_EXCL as usize;
    let thread = shown_thread(pid);
    let pidfd = pidfd_of(thread, if thread == pid { 0 } else { PIDFD_THREAD })?;
    // SAFETY: integers only.
    let copy =
        check(unsafe { syscall(libc::SYS_pidfd_getfd, [pidfd as usize, number as usize, 0, 0, 0, 0]) });
    fd::close(pidfd);
    copy.map(|n| n as i32)
}

/// Inode numbers of the pid, user and mount namespaces: equal numbers, same namespaces.
pub fn namespaces() -> [u64; 3] {
    [c"/proc/self/ns/pid", c"/proc/self/ns/user", c"/proc/self/ns/mnt"].map(|p| fd::inode(p).unwrap_or(0))
}

/// Inode numbers of the time namespaces of this process, and of what it starts: its children, and its next program (time_namespaces(7)). What is told of
/// start times is told in those of the namespace of who asks. 0 where that is not known.
pub fn time_namespaces() -> [u64; 2] {
    // The first thread may have ended.
    [c"/proc/thread-self/ns/time", c"/proc/thread-self/ns/time_for_children"]
        .map(|p| fd::inode(p).unwrap_or(0))
}

/// Whether process `pid` is seen to be in another time namespace than this one, which shows other start times.
pub fn counts_otherwise(pid: u32) -> bool {
    let mut path = [0u8; 32];
    let other = proc_path(&mut path, shown_thread(pid), b"/ns/time\0").and_then(|path| fd::inode(path).ok());
    other.is_some_and(|other| other != time_namespaces()[0])
}

/// A random number that names this process image.
pub fn random_u64() -> u64 {
    let mut n = 0u64;
    // SAFETY: getrandom writes eight bytes to a local.
    let r = unsafe { syscall(libc::SYS_getrandom, [&raw mut n as usize, 8, 0, 0, 0, 0]) };
    if r == 8 { n } else { crate::clock::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

const MEMBARRIER_PRIVATE_EXPEDITED: usize = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// Registers for [`membarrier`]; once per process image.
///
/// # Errors
/// ENOSYS or EPERM where it is not to be had.
pub fn membarrier_register() -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_membarrier, [MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) })
        .map(|_| ())
}

/// A full memory barrier in every running thread of this process.
///
/// # Errors
/// EPERM if not registered.
pub fn membarrier() -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_membarrier, [MEMBARRIER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) }).map(|_| ())
}

/// Whether process `pid` exists.
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only checks.
    let r = unsafe { syscall(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) };
    r != -(libc::ESRCH as isize)
}

/// Kills this process with SIGKILL: crash tests.
pub fn kill_self() {
    // SAFETY: integers only.
    unsafe { syscall(libc::SYS_kill, [pid() as usize, libc::SIGKILL as usize, 0, 0, 0, 0]) };
}

/// Sends `signal` to the calling thread; its handler, if any, has run when this returns.
pub fn raise(signal: i32) {
    let tid = crate::thread::tid() as usize;
    // SAFETY: integers only.
    unsafe { syscall(libc::SYS_tgkill, [pid() as usize, tid, signal as usize, 0, 0, 0]) };
}

/// Ends this process with SIGABRT.
pub fn abort() -> ! {
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_number_is_the_same_however_it_is_asked_for() {
        assert_eq!(number_as_maker(), number_by_pidfd());
    }

    #[test]
    fn a_namespace_knows_all_users_or_not() {
        assert!(maps_all(b"         0          0 4294967295\n"));
        let others: [&[u8]; 5] =
            [b"", b"0 1000 1\n", b"0 100000 65536\n", b"0 0 4294967295\n0 0 1\n", b"1 0 4294967295\n"];
        assert!(others.into_iter().all(|map| !maps_all(map)));
    }

    #[test]
    fn who_one_is_outside_of_a_user_namespace() {
        let all = b"         0          0 4294967295\n";
        assert_eq!((outside(all, 0), outside(all, 7)), (Some(0), Some(7)));
        let few = b"0 1000 1\n1 100000 65536\n";
        assert_eq!(
            (outside(few, 0), outside(few, 1), outside(few, 65536)),
            (Some(1000), Some(100_000), Some(165_535))
        );
        assert_eq!((outside(few, 65537), outside(b"0 x 1\n", 0), outside(b"", 0)), (None, None, None));
        assert_eq!(outside(b"0 4294967295 2\n", 1), None);
    }

    #[test]
    fn whose_a_process_is_and_whether_it_is_stopped() {
        let said =
            |text: &[u8]| Status::parse(text).map(|s| (s.process, s.is_stopped, s.is_at_work, s.users));
        let text = b"Name:\tUid: 7\\n\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t8\nPid:\t9\nUid:\t10\t11\t12\t13\nGid:\t1\t1\t1\t1\n";
        assert_eq!(said(text), Some((8, true, true, [10, 11])));
        assert_eq!(
            said(b"State:\tR (running)\nTgid:\t7\nUid:\t0\t4294967294\t0\t0\n"),
            Some((7, false, true, [0, 4_294_967_294]))
        );
        let at_work = |state: &str| said(format!("State:\t{state}\nTgid:\t7\nUid:\t0\t0\n").as_bytes());
        for (state, works) in [("S", false), ("D", true), ("t", true), ("I", false), ("Z", false)] {
            assert_eq!(at_work(state).map(|s| s.2), Some(works), "{state}");
        }
        for (state, held) in [("R (running)", false), ("S", false), ("D (disk sleep)", true), ("t", false)] {
            let text = format!("State:\t{state}\nTgid:\t7\nUid:\t0\t0\n");
            assert_eq!(Status::parse(text.as_bytes()).map(|s| s.is_held), Some(held), "{state}");
        }
        assert!(!is_held(crate::thread::tid()), "it runs");
        for other in [
            &b""[..],
            b"State:\t",
            b"State:\tS\n",
            b"State:\tS\nUid:\t1",
            b"Uid:\t1\t1\n",
            b"State:\tS\nTgid:\t7\nUid:\t-1\t1\n",
            b"State:\tS\nUid:\t1\t1\n",
        ] {
            assert_eq!(said(other), None);
        }
        assert_eq!(users(pid()).unwrap()[1], euid());
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!is_stopped(child.id()) && users(child.id()) == users(pid()));
        // SAFETY: integers only.
        unsafe { syscall(libc::SYS_kill, [child.id() as usize, libc::SIGSTOP as usize, 0, 0, 0, 0]) };
        while !is_stopped(child.id()) {
            std::thread::yield_now();
        }
        assert_eq!(is_at_work(child.id(), child.id()), Some(true));
        let own = crate::thread::tid();
        assert_eq!([pid(), child.id()].map(|of| is_at_work(of, own)), [Some(true), Some(false)]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((users(child.id()), is_stopped(child.id())), (None, false));
        assert_eq!(is_at_work(child.id(), child.id()), None);
    }

    #[test]
    fn the_living_live_in_sight_and_out_of_it() {
        let started = start_time(pid()).unwrap();
        assert!(lives(pid(), started) && lives(pid(), 0) && lives_unseen(pid()));
        assert!(!lives(pid(), started + 1));
    }

    #[test]
    fn a_pidfd_names_its_process() {
        let me = pid();
        // SAFETY: integers only.
        let own = unsafe { syscall(libc::SYS_pidfd_open, [me as usize, 0, 0, 0, 0, 0]) } as i32;
        assert_eq!(behind(own), Some(me));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        // SAFETY: integers only.
        let other = unsafe { syscall(libc::SYS_pidfd_open, [child.id() as usize, 0, 0, 0, 0, 0]) } as i32;
        assert_eq!(behind(other), Some(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((behind(other), behind(-1)), (None, None));
        let copy = descriptor_of(me, own).unwrap();
        assert_eq!(fd::is_cloexec(copy), Ok(true));
        for open in [own, other, copy] {
            fd::close(open);
        }
        assert!(descriptor_of(me, copy).is_err());
    }

    #[test]
    fn processors_are_short_when_more_threads_want_to_run() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        assert_eq!(thread::processors() as usize, std::thread::available_parallelism().unwrap().get());
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=thread::processors() {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            let mut short = false;
            while !short && std::time::Instant::now() < until {
                short = processors_are_short();
                std::thread::yield_now();
            }
            over.store(true, Relaxed);
            assert!(short);
        });
    }

    #[test]
    fn the_dead_are_dead_before_they_are_reaped() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(lives(child.id(), started) && lives_unseen(child.id()));
        drop(child.stdin.take());
        // Its output is ours, so its end shows in its state only.
        while lives(child.id(), started) {
            std::thread::yield_now();
        }
        assert!(!lives_unseen(child.id()));
        assert_eq!(start_time(child.id()), None);
        child.wait().unwrap();
        assert!(!lives(child.id(), started) && !lives_unseen(child.id()));
    }
}
