//! Memory of whoever calls: copied by the kernel (process_vm_readv(2)), which says EFAULT where nothing is there, as it does for a
//! system call.

use bypath_stack::linux::errno::Result;
use libc::{c_void, iovec, sockaddr, socklen_t, ssize_t};
use std::mem::MaybeUninit;

/// Pieces that a call gathers or scatters at most: UIO_MAXIOV.
const MOST_PIECES: usize = 1024;
/// Octets that a call moves at most: Linux's MAX_RW_COUNT.
const MOST_OCTETS: usize = 0x7fff_f000;
/// Where a process can have anything.
const ADDRESSES: usize = 1 << 47;

/// Copies octets from where the caller says.
pub fn copy_in(from: *const c_void, len: usize) -> Result<Vec<u8>> {
    let mut octets = vec![0; len];
    if len > 0 {
        let own = iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: len };
        let other = iovec { iov_base: from.cast_mut(), iov_len: len };
        // SAFETY: the kernel writes to `octets`, as long as that is, and checks the other side.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &own, 1, &other, 1, 0) };
        if copied != len as ssize_t {
            return Err(libc::EFAULT);
        }
    }
    Ok(octets)
}

/// Copies octets to where the caller says.
pub fn copy_out(octets: &[u8], to: *mut c_void) -> Result<()> {
    if octets.is_empty() {
        return Ok(());
    }
    let own = iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    let other = iovec { iov_base: to, iov_len: octets.len() };
    // SAFETY: the kernel reads `octets`, as long as that is, and checks the other side.
    let copied = unsafe { libc::process_vm_writev(libc::getpid(), &own, 1, &other, 1, 0) };
    if copied == octets.len() as ssize_t { Ok(()) } else { Err(libc::EFAULT) }
}

/// Copies a structure of plain numbers and addresses from where the caller says.
pub fn value_in<T: Copy>(from: *const T) -> Result<T> {
    let octets = copy_in(from.cast(), size_of::<T>())?;
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: as many octets as it has; those of the C structures in use here mean something whatever they are.
    unsafe {
        std::ptr::copy_nonoverlapping(octets.as_ptr(), value.as_mut_ptr().cast(), octets.len());
        Ok(value.assume_init())
    }
}

/// Copies a value to where the caller says.
pub fn value_out<T: Copy>(value: &T, to: *mut T) -> Result<()> {
    // SAFETY: the octets of a value that is there; padding is given to nobody but its own process.
    let octets = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    copy_out(octets, to.cast())
}

/// An address that the caller has room for.
pub fn address_out(address: &[u8], to: *mut sockaddr, len: *mut socklen_t) -> Result<()> {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let room = value_in(len)? as usize;
    copy_out(&address[..address.len().min(room)], to.cast())?;
    value_out(&(address.len() as socklen_t), len)
}

pub fn pieces(of: *const iovec, count: usize) -> Result<Vec<iovec>> {
    if count > MOST_PIECES {
        return Err(libc::EINVAL);
    }
    let mut all: Vec<iovec> = (0..count).map(|n| value_in(of.wrapping_add(n))).collect::<Result<_>>()?;
    let mut left = MOST_OCTETS;
    for piece in &mut all {
        if isize::try_from(piece.iov_len).is_err() {
            return Err(libc::EINVAL);
        }
        if piece.iov_len > 0
            && (piece.iov_base as usize).checked_add(piece.iov_len).is_none_or(|end| end > ADDRESSES)
        {
            return Err(libc::EFAULT);
        }
        piece.iov_len = piece.iov_len.min(left);
        left -= piece.iov_len;
    }
    Ok(all)
}

pub fn gather(of: *const iovec, count: usize) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for piece in pieces(of, count)? {
        all.extend(copy_in(piece.iov_base, piece.iov_len)?);
    }
    Ok(all)
}

/// Copies octets to where they belong, behind so many others.
pub fn scatter(octets: &[u8], begin: usize, to: &[iovec]) -> Result<()> {
    let (mut rest, mut full) = (octets, begin);
    for piece in to {
        let used = full.min(piece.iov_len);
        full -= used;
        let (now, later) = rest.split_at((piece.iov_len - used).min(rest.len()));
        copy_out(now, piece.iov_base.wrapping_byte_add(used))?;
        rest = later;
    }
    Ok(())
}
