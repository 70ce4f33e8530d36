//! Closing what somebody else made, who may mean harm.
//!
//! The last close of a socket with SO_LINGER waits for its octets, for as long as its maker said, and so does the close of an
//! AF_UNIX socket in whose queue such a one is. The kernel spares a task that ends (tcp_close asks for PF_EXITING), so such
//! descriptors are closed last by one that does nothing but end.

use crate::{eventfd, fd, mem, unix};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering::Release};

/// What the other task waits for at most, should this process die meanwhile.
#[cfg(target_arch = "x86_64")]
static PATIENCE: libc::timespec = libc::timespec { tv_sec: 2, tv_nsec: 0 };

/// As long as it lives no close of a descriptor that is open already is the last one. Then they are over, and nobody has waited. Keeps
/// signals back meanwhile, and costs some 50 us: for what strangers sent. Where no task may be made (a filter, a limit) it does nothing.
#[derive(Debug)]
pub struct Others {
    word: Box<AtomicU32>,
    holder: Option<u32>,
    _blocked: crate::signal::Blocked,
}

impl Others {
    /// Of all that are open.
    pub fn new() -> Others {
        let _blocked = crate::signal::Blocked::new();
        let word = Box::new(AtomicU32::new(0));
        Others { holder: holder(&word), word, _blocked }
    }

    /// If one of these is neither sealed memory nor an eventfd, whose closes never wait.
    pub fn among(fds: &[OwnedFd]) -> Option<Others> {
        let is_harmless =
            |file: &OwnedFd| mem::sealed_size(file.as_raw_fd()).is_ok() || eventfd::is_bell(file.as_raw_fd());
        (!fds.iter().all(is_harmless)).then(Others::new)
    }
}

impl Default for Others {
    fn default() -> Others {
        Others::new()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        if let Some(pid) = self.holder {
            self.word.store(1, Release);
            dismiss(&self.word, pid);
        }
    }
}

/// Closes descriptors without ever waiting for what a last close waits for.
pub fn close(fds: &[i32]) {
    let _others = Others::new();
    fds.iter().for_each(|file| fd::close(*file));
}

/// Closes a connection that was accepted, and has been neither read nor trusted.
pub fn close_caller(caller: i32, own_uid: u32) {
    if unix::peer_credentials(caller).is_ok_and(|who| who.uid == own_uid) {
        fd::close(caller);
    } else {
        close(&[caller]);
    }
}

/// Closes what came along with a message of this caller.
pub fn close_received(received: &unix::Received, caller: i32, own_uid: u32) {
    let files = &received.fds[..received.fd_count];
    if unix::peer_credentials(caller).is_ok_and(|who| who.uid == own_uid) {
        files.iter().for_each(|file| fd::close(*file));
    } else {
        close(files);
    }
}

/// Closes a listener of AF_UNIX, and whoever has called there meanwhile.
pub fn close_listener(listener: i32, own_uid: u32) {
    unix::refuse(listener);
    while let Ok(Some(caller)) = unix::accept(listener, 0) {
        close_caller(caller, own_uid);
    }
    fd::close(listener);
}

/// A task with the same memory and descriptors of its own that ends once the word is 1; `None` if there can be none.
#[cfg(target_arch = "x86_64")]
fn holder(word: &AtomicU32) -> Option<u32> {
    let made: isize;
    // SAFETY: the new task shares this memory, and until it ends uses neither the stack (all that it needs is in registers)
    // nor, as all signals are blocked, runs a handler. It reads the word and the time-out, and `dismiss` keeps both until it
    // has ended. For its parent this is a system call.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            // futex(word, FUTEX_WAIT, 0, patience), exit(0)
            "mov eax, {futex}",
            "mov rdi, {word}",
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
            word = in(reg) word.as_ptr(),
            patience = in(reg) &raw const PATIENCE,
            inlateout("rax") libc::SYS_clone as isize => made,
            inlateout("rdi") libc::CLONE_VM as usize => _,
            inlateout("rsi") 0usize => _,
            inlateout("rdx") 0usize => _,
            inlateout("r10") 0usize => _,
            inlateout("r8") 0usize => _,
            // Not late: what follows the first call reads its inputs.
            out("rcx") _, out("r11") _,
            options(nostack)
        );
    }
    (made > 0).then_some(made as u32)
}

#[cfg(not(target_arch = "x86_64"))]
fn holder(_: &AtomicU32) -> Option<u32> {
    None
}

/// Wakes the other task, and returns when it has ended.
fn dismiss(word: &AtomicU32, pid: u32) {
    crate::futex::wake(word, 1);
    // SAFETY: without places for a status or usage nothing is written. A program that waits for every kind of child may have
    // taken this one already.
    while crate::syscall::check(unsafe {
        crate::syscall::syscall(libc::SYS_wait4, [pid as usize, 0, libc::__WALL as usize, 0, 0, 0])
    }) == Err(crate::Errno::INTR)
    {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::IntoRawFd;
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
        is_quick(|| close(&[lingers]));
        assert!(fd::identity(lingers).is_err(), "it is closed");
    }

    #[test]
    fn only_what_may_wait_is_closed_with_care() {
        use std::os::fd::FromRawFd;
        let harmless = [mem::memfd(c"test", 4096, 3).unwrap(), eventfd::create(3).unwrap()];
        // SAFETY: both were made just now and are nobody else's.
        let harmless = harmless.map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        assert!(Others::among(&harmless).is_none());
        let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Others::among(&[a.into(), b.into()]).is_some());
    }

    #[test]
    fn a_listener_is_closed_at_once_whatever_was_sent_to_it() {
        let listener = unix::listen(&name("listener"), 0).unwrap();
        let caller = unix::connect(&name("listener"), 0).unwrap();
        let (lingers, _reader) = lingering();
        unix::send(caller, b"unread", &[lingers]).unwrap();
        fd::close(lingers);
        // The uid of nobody here.
        is_quick(|| close_listener(listener, u32::MAX));
        assert_eq!(unix::connect(&name("listener"), 0), Err(crate::Errno::CONNREFUSED));
        fd::close(caller);
    }
}
