//! Asking a process under Bypath to do something with a connection: the wish goes into the family region, the end is
//! marked in the inboxes of the processes that hold it, and who sleeps there is woken.
//!
//! Regions and inboxes belong to other programs, which may have filled them with anything: they are mapped only if their
//! size is sealed, and nothing is written to a descriptor that is not an eventfd.

use crate::connections::Connection;
use bypath_shm::family::Family;
use bypath_shm::inbox::INBOX_NAME;
use bypath_shm::region;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Its processes run, or were woken.
    Woken,
    /// A process sleeps and may not be woken by us (that takes the right to trace it): it finds the wish when it wakes.
    Asleep,
}

/// Leaves `wish` (one of [`bypath_shm::family::wish`]) at the connection's end.
///
/// # Errors
/// The region cannot be opened for writing, or is not one.
pub fn leave(connection: &Connection, wish: u32) -> io::Result<Delivery> {
    let file = connection.family.open()?;
    let family = region::map_family(file.as_raw_fd())?;
    let end = family.ends.get(connection.end.number).ok_or(io::ErrorKind::InvalidData)?;
    end.wish.store(wish, Release);
    if end.generation.load(Acquire) != connection.end.generation {
        // Another connection stands there by now.
        let _ = end.wish.compare_exchange(wish, 0, AcqRel, Acquire);
        return Ok(Delivery::Woken);
    }
    let mut delivery = Delivery::Woken;
    for holder in connection.family.holders(connection.end) {
        if !wake(holder.pid, family, connection.end.number)? {
            delivery = Delivery::Asleep;
        }
    }
    Ok(delivery)
}

/// Marks the end in the process's inbox and rings whoever sleeps; false if somebody sleeps on.
fn wake(pid: u32, family: &Family, end: usize) -> io::Result<bool> {
    let name = format!("/memfd:{INBOX_NAME} (deleted)");
    let mut woken = true;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        if !fs::read_link(&path).is_ok_and(|target| target.as_os_str() == name.as_str()) {
            continue;
        }
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path)?;
        let inbox = region::map_inbox(file.as_raw_fd())?;
        inbox.mark(u32::try_from(end).unwrap_or(u32::MAX));
        for (asleep, bell) in inbox.asleep.iter().zip(&family.bells) {
            let descriptor = bell.load(Acquire) - 1;
            if asleep.load(Acquire) != 0 && descriptor >= 0 {
                woken &= ring(pid, descriptor);
            }
        }
    }
    Ok(woken)
}

/// Rings a bell of another process; false if that descriptor is no bell, or cannot be had.
fn ring(pid: u32, descriptor: i32) -> bool {
    let take = || -> io::Result<OwnedFd> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())?)
    };
    let Ok(bell) = take() else { return false };
    fs::read_link(format!("/proc/self/fd/{}", bell.as_raw_fd()))
        .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
        && rustix::io::write(&bell, &1u64.to_ne_bytes()).is_ok()
}
