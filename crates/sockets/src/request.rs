//! Asking the processes that hold a connection to do something with it, from outside: the wish goes into the family
//! region, the end is marked in the inboxes of its holders, and who sleeps there is woken. They do it in `wish`.
//!
//! Regions and inboxes belong to other programs, which may have filled them with anything: they are opened only if they are
//! memory, and mapped only if their size is sealed. Bells are rung by the kernel, which takes eventfds alone and waits for no
//! counter; nothing that a process could have put in their place is written to, or closed.

use crate::state;
use bypath_shm::family::{Family, VIEW_MAGIC, VIEW_NAME, bell, wish};
use bypath_shm::inbox::INBOX_NAME;
use bypath_shm::region;
use bypath_sys::aio::Ringer;
use bypath_sys::{Result, clock, fd, open_files, process};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// How `/proc` calls a bell.
const BELL: &[u8] = b"anon_inode:[eventfd]";
/// Descriptors that are left open at most, in the life of a process.
const MOST_LEFT: u32 = 16;
/// How many are.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Its processes run, or were woken.
    Woken,
    /// A process sleeps and may not be woken by us (that takes the right to trace it): it finds the wish when it wakes.
    Asleep,
}

/// What `/proc` calls a memfd of this name.
fn link(buffer: &mut [u8; 64], name: &CStr) -> usize {
    let mut at = 0;
    for part in [b"/memfd:", name.to_bytes(), b" (deleted)"] {
        buffer[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}

/// A family region of another process, as it is while it is looked at.
#[derive(Clone, Copy)]
pub struct Region<'a> {
    /// What stands in it.
    pub family: &'a Family,
    /// Which file it is: device and inode.
    file: (u64, u64),
}

impl Region<'_> {
    /// Whether process `pid` has it open, as far as that is found before it is later than `until`: what stands in it about others anybody may have written there.
    pub fn is_open_in(&self, pid: u32, until: u64) -> bool {
        let mut text = [0; 64];
        let length = link(&mut text, VIEW_NAME);
        open_files::of_process(pid, &text[..length], until, |opened| fd::identity(opened) == Ok(self.file))
            == Ok(true)
    }
}

/// The family regions that process `pid` has open, until `found` says true of one, or it is later than `until`; whether it did.
///
/// # Errors
/// As open(2): the process may not be looked at.
pub fn regions_of(pid: u32, until: u64, mut found: impl FnMut(Region<'_>) -> bool) -> Result<bool> {
    let mut text = [0; 64];
    let length = link(&mut text, VIEW_NAME);
    open_files::of_process(pid, &text[..length], until, |opened| {
        let Ok(file) = fd::identity(opened) else { return false };
        let read = region::with_family(opened, |family| {
            family.header.magic.load(Acquire) == VIEW_MAGIC && found(Region { family, file })
        });
        read.unwrap_or(false)
    })
}

/// Leaves `wish` (one of [`wish`]) at end `number` of a region, if that is still of this `generation`, and tells
/// `holders`, until it is `until` (monotonic, in ns): there may be as many sleepers as a hostile process says. A wish of the kind
/// that is never taken back stays.
///
/// # Errors
/// A holder cannot be looked at.
pub fn leave(
    family: &Family,
    number: usize,
    generation: u32,
    wish: u32,
    holders: impl Iterator<Item = u32>,
    until: u64,
) -> Result<Delivery> {
    let Some(end) = family.ends.get(number) else { return Ok(Delivery::Woken) };
    let other = |now: u32| (now != wish::TAKEN).then_some(wish);
    let _ = end.wish.fetch_update(SeqCst, Relaxed, other);
    if end.generation.load(Acquire) != generation {
        // Another connection stands there by now.
        let _ = end.wish.compare_exchange(wish, wish::NONE, AcqRel, Acquire);
        return Ok(Delivery::Woken);
    }
    let mut delivery = Delivery::Woken;
    let mut bells = Bells { until, ringer: None };
    for pid in holders {
        if bells.is_late() || !wake(pid, family, number, &mut bells)? {
            delivery = Delivery::Asleep;
        }
    }
    Ok(delivery)
}

/// Marks the end in the process's inbox and rings whoever sleeps; false if somebody sleeps on.
fn wake(pid: u32, family: &Family, end: usize, bells: &mut Bells) -> Result<bool> {
    let mut text = [0; 64];
    let length = link(&mut text, INBOX_NAME);
    let mut woken = true;
    open_files::of_process(pid, &text[..length], bells.until, |inbox| {
        let _ = region::with_inbox(inbox, |inbox| {
            inbox.mark(u32::try_from(end).unwrap_or(u32::MAX));
            for (asleep, bell) in inbox.asleep.iter().zip(&family.bells) {
                let descriptor = bell::descriptor(bell.load(Acquire));
                if asleep.load(SeqCst) != 0 && descriptor >= 0 {
                    woken &= bells.ring(pid, descriptor);
                }
                if !woken && bells.is_late() {
                    break;
                }
            }
        });
        bells.is_late()
    })?;
    // Of what was not looked at somebody may sleep.
    Ok(woken && !bells.is_late())
}

/// Rings bells of other processes.
struct Bells {
    /// How long.
    until: u64,
    /// Who does, once there is one to be rung; `Some(None)`: nobody is to be had.
    ringer: Option<Option<Ringer>>,
}

impl Bells {
    fn is_late(&self) -> bool {
        clock::monotonic_ns() > self.until
    }

    /// Rings one; false if that descriptor is no bell, or cannot be had, or it is too late.
    fn ring(&mut self, pid: u32, descriptor: i32) -> bool {
        if self.is_late()
            || LEFT.load(Relaxed) >= MOST_LEFT
            || open_files::refers(pid, descriptor, BELL) != Ok(true)
        {
            return false;
        }
        let Ok(bell) = process::descriptor_of(pid, descriptor) else { return false };
        if !open_files::is(bell, BELL) {
            // Exchanged since it was looked at: to close that may wait for as long as its owner likes (SO_LINGER, FUSE).
            LEFT.fetch_add(1, Relaxed);
            return false;
        }
        let ringer = self.ringer.get_or_insert_with(|| Ringer::above(state::floor()).ok());
        let is_rung = ringer.as_ref().is_some_and(|ringer| ringer.ring_number(bell).is_ok());
        fd::close(bell);
        is_rung
    }
}
