//! Both ends in one process: what the halves do.

#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod octets;
mod processors;

use bypath_sys::poll;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

const SMALL: u32 = 4096;
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().expect("an errno")
}

fn is_readable(end: impl AsFd) -> bool {
    poll::now(end.as_fd().as_raw_fd(), libc::POLLIN) & libc::POLLIN != 0
}

/// Octets and lengths by a seed.
struct Seed(u64);

impl Seed {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
