//! Bells that belong to somebody else: an eventfd is rung by the kernel itself, which waits for nothing.
//!
//! write(2) waits where the counter is full and the description, which its owner shares, is a blocking one; at something else than an
//! eventfd it may wait for ever. A read of nothing by io_submit(2) that tells its end by IOCB_FLAG_RESFD does neither: the kernel takes
//! eventfds only (EINVAL), and a full counter stays full.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, memfd};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// IOCB_CMD_PREAD and IOCB_FLAG_RESFD of `linux/aio_abi.h`.
const PREAD: u16 = 0;
const RESFD: u32 = 1;
/// Ends that are not taken in; the kernel has room for so many.
const ROOM: u32 = 64;

/// `struct iocb` where numbers are little-endian; of the two that change places elsewhere neither is used.
#[repr(C)]
#[derive(Default)]
struct Question {
    data: u64,
    key: u32,
    flags: u32,
    op: u16,
    priority: i16,
    file: u32,
    room: u64,
    octets: u64,
    offset: i64,
    pad: u64,
    tells: u32,
    bell: u32,
}

/// Who rings them.
#[derive(Debug)]
pub struct Ringer {
    context: usize,
    /// A file without octets: a read of it ends at once. A bare number: the library's own close(2) is not that of the program.
    empty: i32,
    /// Ends that were not taken in.
    ends: AtomicU32,
}

impl Ringer {
    /// One that has rung nothing.
    ///
    /// # Errors
    /// ENOSYS: this kernel has no such calls; EAGAIN: `fs.aio-max-nr` is reached; EMFILE, ENOMEM.
    pub fn new() -> Result<Ringer> {
        Self::above(3)
    }

    /// The same, whose descriptor is at or above `floor`.
    ///
    /// # Errors
    /// As [`Ringer::new`].
    pub fn above(floor: i32) -> Result<Ringer> {
        let empty = memfd::create(c"bypath-nothing", 0, floor)?;
        let mut context = 0usize;
        let room = (2 * ROOM) as usize;
        // SAFETY: the kernel writes one word to a local.
        check(unsafe { syscall(libc::SYS_io_setup, [room, &raw mut context as usize, 0, 0, 0, 0]) })
            .inspect_err(|_| fd::close(empty))?;
        Ok(Ringer { context, empty, ends: AtomicU32::new(0) })
    }

    /// Adds one to the counter of `bell`, if there is room for it. Never waits.
    ///
    /// # Errors
    /// EINVAL: it is no eventfd; EAGAIN, ENOMEM: the kernel has no memory.
    pub fn ring(&self, bell: BorrowedFd<'_>) -> Result<()> {
        self.ring_number(bell.as_raw_fd())
    }

    /// The same by the number of a descriptor.
    ///
    /// # Errors
    /// As [`Ringer::ring`]; EBADF.
    pub fn ring_number(&self, bell: i32) -> Result<()> {
        if self.ends.fetch_add(1, Relaxed) >= ROOM - 1 {
            self.take_ends();
        }
        let mut octet = 0u8;
        let question = Question {
            op: PREAD,
            file: self.empty as u32,
            room: (&raw mut octet).expose_provenance() as u64,
            octets: 1,
            tells: RESFD,
            bell: bell as u32,
            ..Question::default()
        };
        let all = [&raw const question];
        // SAFETY: the kernel reads one question, which outlives the call; the read of a file without octets has ended when it returns,
        // and writes nothing.
        let taken = check(unsafe {
            syscall(libc::SYS_io_submit, [self.context, 1, all.as_ptr() as usize, 0, 0, 0])
        })?;
        if taken == 1 { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// The descriptor that it keeps.
    pub const fn number(&self) -> i32 {
        self.empty
    }

    /// In a forked child, which has the descriptor and no such context: lets go of that.
    pub fn forget(&self) {
        fd::close(self.empty);
    }

    fn take_ends(&self) {
        /// Words of `struct io_event`.
        const WORDS: usize = 4;
        let mut ends = [0u64; WORDS * ROOM as usize];
        let none = [0i64; 2];
        let args = [self.context, 0, ROOM as usize, ends.as_mut_ptr() as usize, none.as_ptr() as usize, 0];
        // SAFETY: there is room for as many as are asked for, and the time is a local.
        let taken = check(unsafe { syscall(libc::SYS_io_getevents, args) });
        self.ends.fetch_sub(taken.unwrap_or(0) as u32, Relaxed);
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        // SAFETY: nothing is under way.
        let _ = check(unsafe { syscall(libc::SYS_io_destroy, [self.context, 0, 0, 0, 0, 0]) });
        fd::close(self.empty);
    }
}

const _: () = assert!(size_of::<Question>() == 64);

#[cfg(all(test, feature = "link"))]
mod tests {
    use super::*;
    use crate::eventfd::Bell;
    use crate::pair;
    use std::os::fd::AsFd;

    fn counter(bell: &Bell) -> u64 {
        let mut count = 0u64;
        // SAFETY: read writes eight octets to a local.
        let read = unsafe {
            syscall(libc::SYS_read, [bell.as_fd().as_raw_fd() as usize, &raw mut count as usize, 8, 0, 0, 0])
        };
        if check(read).is_ok() { count } else { 0 }
    }

    #[test]
    fn a_bell_that_is_full_and_waits_is_not_waited_for() {
        let (ringer, bell) = (Ringer::new().unwrap(), Bell::new().unwrap());
        for n in 1..=3 * u64::from(ROOM) {
            ringer.ring(bell.as_fd()).unwrap();
            if n.is_multiple_of(50) {
                assert_eq!(counter(&bell), 50);
            }
        }
        counter(&bell);
        let (raw, most) = (bell.as_fd().as_raw_fd() as usize, u64::MAX - 1);
        // SAFETY: write reads eight octets of a local.
        check(unsafe { syscall(libc::SYS_write, [raw, &raw const most as usize, 8, 0, 0, 0]) }).unwrap();
        // Its owner has made it one that waits.
        // SAFETY: integers only.
        check(unsafe { syscall(libc::SYS_fcntl, [raw, libc::F_SETFL as usize, 0, 0, 0, 0]) }).unwrap();
        for _ in 0..3 * ROOM {
            ringer.ring(bell.as_fd()).unwrap();
        }
        assert!(counter(&bell) >= most);
    }

    #[test]
    fn what_is_no_bell_is_not_written_to() {
        let ringer = Ringer::new().unwrap();
        let (near, far) = pair::new().unwrap();
        for _ in 0..3 * ROOM {
            assert_eq!(ringer.ring(near.as_fd()), Err(Errno::INVAL));
        }
        assert_eq!(pair::receive(far.as_fd(), &mut [0; 8]), Err(Errno::AGAIN));
        let bell = Bell::new().unwrap();
        ringer.ring(bell.as_fd()).unwrap();
        assert_eq!(counter(&bell), 1);
    }
}
