//! Calls that take a connection back first and are the kernel's own afterwards.
//!
//! The other end can hold a thread up in the first part: by memory that it makes slow, or as it does not answer. Another thread may close a number of the
//! call meanwhile, and something else be opened by it, which the kernel's call is not for. So which file it is is asked before and
//! behind it, of numbers that are not followed as well: a file that goes into a connection, the socket that a descriptor is passed on.

use crate::fault;
use crate::table::{self, Sock};
use bypath_sys::{Errno, Result, fd};
use std::sync::atomic::Ordering::*;

/// Which file a number is.
#[derive(Debug)]
struct File {
    number: i32,
    identity: Result<(u64, u64)>,
    sock: Option<&'static Sock>,
}

impl File {
    fn of(number: i32) -> File {
        File { number, identity: fd::identity(number), sock: table::sock(number) }
    }

    fn gone(&self) -> Option<Errno> {
        if fd::identity(self.number) == self.identity {
            return None;
        }
        match self.sock {
            // There was no moment at which the number meant nothing, so the call is for what has it now; but not if it is under way for long.
            Some(s) if s.replaced.load(Acquire) == self.number + 1 => {
                s.is_late.load(Acquire).then_some(Errno::INTR)
            }
            _ => Some(Errno::BADF),
        }
    }
}

/// What the numbers of a call meant when it began.
#[derive(Debug)]
pub struct Meant<const N: usize>(Option<[File; N]>);

impl<const N: usize> Meant<N> {
    /// Nothing is asked, and nothing is found out, where no other end can hold the thread up.
    #[inline]
    pub fn begin(numbers: [i32; N]) -> Meant<N> {
        Meant(numbers.iter().any(|number| is_warm(*number)).then(|| numbers.map(File::of)))
    }

    /// Of what dup2 makes `replaced`, whose other end can hold the thread up.
    pub fn beside(numbers: [i32; N], replaced: i32) -> Meant<N> {
        Meant(is_warm(replaced).then(|| numbers.map(File::of)))
    }

    /// Behind what takes them back: the error of a call one of whose numbers is another file's.
    pub fn gone(&self) -> Option<Errno> {
        let files = self.0.as_ref()?;
        fault::between("taken-back");
        files.iter().find_map(File::gone)
    }
}

/// The same of a list of numbers, of any length.
#[derive(Debug)]
pub struct MeantAll(Option<u64>);

impl MeantAll {
    /// Of those that `each` names.
    pub fn begin(each: impl Fn(&mut dyn FnMut(i32))) -> MeantAll {
        let mut warm = false;
        each(&mut |number| warm |= is_warm(number));
        MeantAll(warm.then(|| digest(each)))
    }

    /// As [`Meant::gone`].
    pub fn gone(&self, each: impl Fn(&mut dyn FnMut(i32))) -> Option<Errno> {
        let before = self.0?;
        fault::between("taken-back");
        (digest(each) != before).then_some(Errno::BADF)
    }
}

#[inline]
fn is_warm(number: i32) -> bool {
    table::sock(number).is_some_and(Sock::is_warm)
}

/// What tells one list of files from another one.
fn digest(each: impl Fn(&mut dyn FnMut(i32))) -> u64 {
    /// 2^64 divided by the golden ratio, made odd.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut digest = 0u64;
    each(&mut |number| {
        let (device, inode) = fd::identity(number).unwrap_or_default();
        for word in [device, inode] {
            digest = (digest.rotate_left(23) ^ word).wrapping_mul(SPREAD);
        }
    });
    digest
}
