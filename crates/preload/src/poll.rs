//! poll and ppoll.

use crate::memory;
use crate::real::{cancellable, hook};
use bypath_sockets::hook::{self, PollFd, Verdict, datagrams};
use libc::{c_int, nfds_t, pollfd, sigset_t, size_t, timespec};

hook! {
    /// `poll()`.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int, raw Some(libc::SYS_poll); aka __poll;
    only any_followed(fds, count); {
        wait(fds, count, memory::milliseconds(timeout), 0, || real(fds, count, timeout))
    }

    /// `poll()` with the array's size known to the compiler.
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int, raw None;
    only any_followed(fds, count); {
        if size / size_of::<pollfd>() < count as usize {
            return real(fds, count, timeout, size);
        }
        wait(fds, count, memory::milliseconds(timeout), 0, || real(fds, count, timeout, size))
    }

    /// `ppoll()`.
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int, raw None;
    only any_followed(fds, count); {
        let Ok(limit) = memory::nanoseconds(timeout) else { return real(fds, count, timeout, mask) };
        wait(fds, count, limit, mask as usize, || real(fds, count, timeout, mask))
    }

    /// `ppoll()` with the array's size known to the compiler.
    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, size: size_t) -> c_int, raw None;
    only any_followed(fds, count); {
        if size / size_of::<pollfd>() < count as usize {
            return real(fds, count, timeout, mask, size);
        }
        let Ok(limit) = memory::nanoseconds(timeout) else { return real(fds, count, timeout, mask, size) };
        wait(fds, count, limit, mask as usize, || real(fds, count, timeout, mask, size))
    }
}

/// More descriptors than a process can have: the kernel refuses.
const MAX_FDS: nfds_t = 1 << 20;

/// Before a wait: sockets of a service that came from elsewhere are asked about.
#[inline]
pub(crate) fn ask_first() {
    if hook::are_unasked() {
        crate::errno::kept(hook::ask_about_all);
    }
}

/// Whether the engine has a say in the wait; what is not a set of descriptors is the kernel's to refuse.
#[inline]
fn any_followed(fds: *const pollfd, count: nfds_t) -> bool {
    ask_first();
    count <= MAX_FDS
        && (hook::mail::have_rings()
            || datagrams::are_errors_asked()
            || memory::slice(fds, count as usize)
                .is_some_and(|set| set.iter().any(|p| hook::is_overlaid(p.fd))))
}

#[inline]
fn wait(
    fds: *mut pollfd,
    count: nfds_t,
    limit: Option<u64>,
    mask: usize,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if count == 0 || count > MAX_FDS {
        return real();
    }
    let _waiting = crate::errno::kept(hook::mail::rest);
    // `PollFd` is laid out as `struct pollfd`.
    let Some(set) = memory::slice_mut(fds.cast::<PollFd>(), count as usize) else {
        if memory::slice(fds, count as usize).is_some() {
            // No answer can be stored: the kernel says so at the end of the wait.
            return crate::errno::fail(libc::EFAULT);
        }
        return real();
    };
    let ready = settle(hook::poll(set, limit, mask), real);
    if ready > 0 && datagrams::are_errors_asked() {
        tell_errors(fds, count);
    }
    ready
}

/// An error of a service's socket of datagrams is a record of its pair, which makes that readable: it is told as the kernel tells it.
#[cold]
fn tell_errors(fds: *mut pollfd, count: nfds_t) {
    let Some(set) = memory::slice_mut(fds, count as usize) else { return };
    for p in set.iter_mut().filter(|p| p.revents & libc::POLLIN != 0) {
        if crate::errno::kept(|| datagrams::has_error(p.fd)) {
            p.revents = p.revents & !(libc::POLLIN | libc::POLLRDNORM) | libc::POLLERR;
        }
    }
}

/// Carries out the engine's verdict on a call that waits.
#[inline]
pub(crate) fn settle(verdict: Verdict, real: impl FnOnce() -> c_int) -> c_int {
    match verdict {
        Verdict::NotOurs | Verdict::Served => real(),
        Verdict::Kernel(cold) | Verdict::ServedKernel(cold) => {
            let ret = real();
            cold.finish(ret as isize);
            ret
        }
        Verdict::Done(moved) => crate::errno::answer(moved.result()),
    }
}

/// The C library's ppoll.
///
/// # Safety
/// That of ppoll.
pub(crate) unsafe fn real_ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let address = crate::real::load::<{ crate::real::index("ppoll") }>();
    if address == 0 {
        return crate::errno::fail(libc::ENOSYS);
    }
    // SAFETY: the next definition of ppoll, hence of this type; the rest is the caller's contract.
    unsafe {
        let f =
            cancellable!(pointer! address, (*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int);
        f(fds, count, timeout, mask)
    }
}
