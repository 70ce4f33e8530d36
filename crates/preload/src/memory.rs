//! Arguments in the program's memory. The kernel answers EFAULT for an address that is not mapped; code in the
//! same process would crash, so addresses that cannot be mapped are never touched here.

use bypath_sys::user::IoVec;
use libc::{c_int, msghdr, timespec};

/// Lowest address that can be mapped, and the end of user space.
const START: usize = 4096;
const END: usize = 0x7fff_ffff_f000;

/// Most elements of a scatter/gather list (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

/// Whether `count` values at `p` can be mapped memory.
#[inline]
pub(crate) fn plausible<T>(p: *const T, count: usize) -> bool {
    let Some(len) = count.checked_mul(size_of::<T>()) else { return false };
    let start = p as usize;
    start >= START && start.checked_add(len).is_some_and(|end| end <= END)
}

/// A copy of the value at `p`, `None` for an address that cannot be mapped (also NULL).
#[inline]
pub(crate) fn read<T: Copy>(p: *const T) -> Option<T> {
    // SAFETY: the program passed `p` to a call that reads a T there.
    plausible(p, 1).then(|| unsafe { p.read_unaligned() })
}

/// Stores `value` at `p` unless the address cannot be mapped.
#[inline]
pub(crate) fn write<T: Copy>(p: *mut T, value: T) -> bool {
    let ok = plausible(p, 1);
    if ok {
        // SAFETY: the program passed `p` to a call that stores a T there.
        unsafe { p.write_unaligned(value) };
    }
    ok
}

/// The program's array of `count` values as a slice; `None` if it cannot be one (then the kernel must answer).
#[inline]
pub(crate) fn slice<'a, T>(p: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    if !plausible(p, count) || !p.is_aligned() {
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
    if !plausible(p, count) || !p.is_aligned() {
        return None;
    }
    // SAFETY: aligned, and the program leaves `count` values to the call until it returns.
    Some(unsafe { std::slice::from_raw_parts_mut(p, count) })
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
