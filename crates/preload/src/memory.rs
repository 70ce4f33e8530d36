//! Arguments in the program's memory. The kernel answers EFAULT for an address that cannot be accessed; code in the
//! same process would crash, so nothing is touched here before the kernel was asked whether it can be.

use bypath_sockets::hook;
use bypath_sys::page::{Access, Pages};
use bypath_sys::user::{IoVec, in_user_space};
use libc::{c_int, msghdr, timespec};

thread_local! {
    /// Pages where arguments of this thread were lately: its stack, a few arrays.
    static SEEN: Pages<16> = const { Pages::new() };
}

/// Most elements of a scatter/gather list (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

#[inline]
fn accessible<T>(p: *const T, count: usize, access: Access) -> bool {
    usable(p, count, access) == count
}

/// How many of `count` values at `p`, from the first on, can be accessed.
#[inline]
pub(crate) fn usable<T>(p: *const T, count: usize, access: Access) -> usize {
    let Some(len) = count.checked_mul(size_of::<T>()) else { return 0 };
    let start = p as usize;
    if !in_user_space(start, len) {
        return 0;
    }
    match SEEN
        .with(|seen| if seen.is_known(start, len, access) { len } else { asked(seen, start, len, access) })
    {
        all if all == len => count,
        part => part / size_of::<T>().max(1),
    }
}

/// Who seals waits for who asks the kernel: afterwards a filter may forbid it.
#[cold]
fn asked(seen: &Pages<16>, start: usize, len: usize, access: Access) -> usize {
    let _busy = hook::asks();
    seen.reach(start, len, access)
}

/// Whether `count` values at `p` can be read.
#[inline]
pub(crate) fn readable<T>(p: *const T, count: usize) -> bool {
    accessible(p, count, Access::Read)
}

/// Whether `count` values can be stored at `p`.
#[inline]
pub(crate) fn writable<T>(p: *const T, count: usize) -> bool {
    accessible(p, count, Access::Write)
}

/// A copy of the value at `p`, `None` for an address that cannot be read (also NULL).
#[inline]
pub(crate) fn read<T: Copy>(p: *const T) -> Option<T> {
    // SAFETY: the program passed `p` to a call that reads a T there.
    readable(p, 1).then(|| unsafe { p.read_unaligned() })
}

/// Stores `value` at `p`; false if nothing can be stored there.
#[inline]
pub(crate) fn write<T: Copy>(p: *mut T, value: T) -> bool {
    let ok = writable(p, 1);
    if ok {
        // SAFETY: the program passed `p` to a call that stores a T there.
        unsafe { p.write_unaligned(value) };
    }
    ok
}

/// As [`read`], where the C library, too, reads what it is given: once the kernel is asked nothing more, this does so.
pub(crate) fn trusted_read<T: Copy>(p: *const T) -> Option<T> {
    // SAFETY: the contract of the C function that the program has called.
    if hook::is_sealed() && !p.is_null() { Some(unsafe { p.read_unaligned() }) } else { read(p) }
}

/// As [`write`], where the C library writes.
pub(crate) fn trusted_write<T: Copy>(p: *mut T, value: T) {
    if hook::is_sealed() && !p.is_null() {
        // SAFETY: the contract of the C function that the program has called.
        unsafe { p.write_unaligned(value) };
    } else {
        write(p, value);
    }
}

/// The program's array of `count` values as a slice; `None` if it cannot be one (then the kernel must answer).
#[inline]
pub(crate) fn slice<'a, T>(p: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    if !readable(p, count) || !p.is_aligned() {
        return None;
    }
    // SAFETY: aligned, and the program vouches for `count` values until the call returns.
    Some(unsafe { std::slice::from_raw_parts(p, count) })
}

/// As [`slice`], for an array that the call fills.
#[inline]
pub(crate) fn slice_mut<'a, T>(p: *mut T, count: usize) -> Option<&'a mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    if !writable(p, count) || !p.is_aligned() {
        return None;
    }
    // SAFETY: aligned, and the program leaves `count` values to the call until it returns.
    Some(unsafe { std::slice::from_raw_parts_mut(p, count) })
}

/// Whether an array may be good for the kernel though it cannot be a slice. One that is [`slice`]d to `None` and is
/// not misaligned is refused by the kernel before any byte moves.
#[inline]
pub(crate) fn misaligned<T>(p: *const T) -> bool {
    !p.is_aligned()
}

/// A scatter/gather list; `None` if only the kernel can judge it (bad address, count out of range).
#[inline]
pub(crate) fn iovecs<'a>(p: *const libc::iovec, count: usize) -> Option<&'a [IoVec]> {
    // `IoVec` is laid out as `struct iovec`.
    if count > MAX_IOV { None } else { slice(p.cast::<IoVec>(), count) }
}

/// The list of a message header.
#[inline]
pub(crate) fn message<'a>(p: *const msghdr) -> Option<(msghdr, &'a [IoVec])> {
    let m = read(p)?;
    Some((m, iovecs(m.msg_iov, m.msg_iovlen)?))
}

/// A `struct timespec` in nanoseconds. `Ok(None)`: NULL, wait for ever. `Err`: the kernel must judge.
#[inline]
pub(crate) fn nanoseconds(p: *const timespec) -> Result<Option<u64>, ()> {
    if p.is_null() {
        return Ok(None);
    }
    let t = read(p).ok_or(())?;
    if t.tv_sec < 0 || !(0..1_000_000_000).contains(&t.tv_nsec) {
        return Err(());
    }
    Ok(Some((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)))
}

/// Nanoseconds as a `struct timespec`.
#[inline]
pub(crate) fn timespec(ns: u64) -> timespec {
    timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Milliseconds as poll and epoll_wait take them: negative waits for ever.
#[inline]
pub(crate) fn milliseconds(ms: c_int) -> Option<u64> {
    u64::try_from(ms).ok().map(|ms| ms * 1_000_000)
}
