//! epoll: the kernel's instance stays the program's; the engine lays the rings' readiness over it.

use crate::child::borrowed_memory;
use crate::errno::{self, kept};
use crate::memory;
use crate::poll::settle;
use crate::real::hook;
use bypath_sockets::hook::{self, EpollEvent, Verdict};
use bypath_sys::clock;
use bypath_sys::page::Access;
use bypath_sys::user::in_user_space;
use libc::{c_int, epoll_event, sigset_t, timespec};

hook! {
    /// `epoll_create()`.
    fn epoll_create(size: c_int) -> c_int, raw Some(libc::SYS_epoll_create); {
        created(real(size))
    }

    /// `epoll_create1()`.
    fn epoll_create1(flags: c_int) -> c_int, raw Some(libc::SYS_epoll_create1); {
        created(real(flags))
    }

    /// `epoll_ctl()`.
    fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int, raw Some(libc::SYS_epoll_ctl);
    only hook::is_followed(fd) || hook::is_followed(epfd); {
        if borrowed_memory() {
            return real(epfd, op, fd, event);
        }
        // `EpollEvent` is laid out as `struct epoll_event`.
        let copy = memory::read(event.cast::<EpollEvent>());
        if copy.is_none() && op != libc::EPOLL_CTL_DEL {
            return real(epfd, op, fd, event);
        }
        settle(hook::epoll_ctl(epfd, op, fd, copy), || real(epfd, op, fd, event))
    }

    /// `epoll_wait()`.
    fn epoll_wait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int, raw Some(libc::SYS_epoll_wait);
    only hook::is_followed(epfd) || hook::is_sealed(); {
        wait(epfd, events, count, memory::milliseconds(timeout), 0, || real(epfd, events, count, timeout))
    }

    /// `epoll_pwait()`.
    fn epoll_pwait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int, raw None;
    only hook::is_followed(epfd) || hook::is_sealed(); {
        wait(epfd, events, count, memory::milliseconds(timeout), mask as usize, || real(epfd, events, count, timeout, mask))
    }

    /// `epoll_pwait2()`.
    fn epoll_pwait2(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int, raw None;
    only hook::is_followed(epfd) || hook::is_sealed(); {
        if hook::is_sealed() {
            return sealed_wait(events, timeout.is_null(), || real(epfd, events, count, timeout, mask));
        }
        let Ok(limit) = memory::nanoseconds(timeout) else { return real(epfd, events, count, timeout, mask) };
        wait(epfd, events, count, limit, mask as usize, || real(epfd, events, count, timeout, mask))
    }
}

#[inline]
fn created(epfd: c_int) -> c_int {
    if epfd >= 0 && !borrowed_memory() {
        kept(|| hook::epoll_created(epfd));
    }
    epfd
}

#[inline]
fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    limit: Option<u64>,
    mask: usize,
    real: impl Fn() -> c_int,
) -> c_int {
    /// EP_MAX_EVENTS: more is EINVAL.
    const MAX: usize = i32::MAX as usize / size_of::<epoll_event>();
    /// Most events of one answer here: the rest of a large array is neither looked at nor needed.
    const AT_ONCE: usize = 512;
    if hook::is_sealed() {
        return sealed_wait(events, limit.is_none(), real);
    }
    let _waiting = kept(hook::mail::rest);
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || count > MAX || !hook::is_followed(epfd) {
        return real();
    }
    let events = events.cast::<EpollEvent>();
    // The array may be shorter than the program says, as long as no event comes that far.
    let usable = memory::usable(events, count.min(AT_ONCE), Access::Write);
    match memory::slice_mut(events, usable) {
        Some(out) if !out.is_empty() => serve(epfd, (events, usable), limit, mask, real),
        _ if in_user_space(events as usize, count * size_of::<EpollEvent>()) => {
            // The kernel finds out when there is an event to store.
            let mut nowhere = [EpollEvent { events: 0, data: 0 }];
            match hook::epoll_wait(epfd, &mut nowhere, limit, mask) {
                Verdict::Done(moved) if moved.is_some() => errno::fail(libc::EFAULT),
                verdict => settle(verdict, real),
            }
        }
        _ => real(),
    }
}

/// The engine's wait, or the kernel's until the engine has news: its bell is in the kernel's set. The first `usable`
/// values at `events` can be written.
#[inline]
fn serve(
    epfd: c_int,
    (events, usable): (*mut EpollEvent, usize),
    limit: Option<u64>,
    mask: usize,
    real: impl Fn() -> c_int,
) -> c_int {
    let mut left = limit;
    loop {
        let Some(out) = memory::slice_mut(events, usable) else { return real() };
        let cold = match hook::epoll_wait(epfd, out, left, mask) {
            Verdict::Done(moved) => return errno::answer(moved.result()),
            Verdict::Kernel(cold) | Verdict::ServedKernel(cold) => Some(cold),
            Verdict::NotOurs | Verdict::Served => None,
        };
        let began = left.filter(|ns| *ns > 0).map(|_| clock::monotonic_ns());
        let ret = real();
        if let Some(cold) = cold {
            cold.finish(ret as isize);
        }
        // The program's array may be longer than what was offered to the engine.
        let stored = usize::try_from(ret).unwrap_or(0);
        let own =
            match if hook::is_sealed() { told(events, stored) } else { memory::slice_mut(events, stored) } {
                Some(stored) if !stored.is_empty() => kept(|| hook::epoll_done(epfd, stored)),
                _ => return ret,
            };
        if own > 0 {
            return own as c_int;
        }
        if let (Some(left), Some(began)) = (&mut left, began) {
            *left = left.saturating_sub(clock::monotonic_ns().saturating_sub(began));
        }
    }
}

/// What the kernel has just stored.
fn told<'a>(events: *mut EpollEvent, count: usize) -> Option<&'a mut [EpollEvent]> {
    // SAFETY: the kernel has written these values there, and the program leaves them to the call until it returns.
    (count > 0 && events.is_aligned()).then(|| unsafe { std::slice::from_raw_parts_mut(events, count) })
}

/// A wait of a process that is not followed any more: bells that are still in the kernel's set are not told of. One that waits no longer than the program has
/// said may end early by one; for how long it has waited nobody is asked, as that may be a system call.
#[cold]
pub(crate) fn sealed_wait(events: *mut epoll_event, is_endless: bool, real: impl Fn() -> c_int) -> c_int {
    loop {
        let ret = real();
        let stored = usize::try_from(ret).unwrap_or(0);
        let Some(stored) = told(events.cast::<EpollEvent>(), stored) else { return ret };
        let own = hook::epoll_without_bells(stored);
        if own > 0 || !is_endless {
            return own as c_int;
        }
    }
}
