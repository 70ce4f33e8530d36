//! Pipes, for splice(2).

use std::collections::VecDeque;

/// Octets in a pipe at most: Linux's default.
const MOST: usize = 65_536;

#[derive(Debug)]
pub struct Pipe {
    octets: VecDeque<u8>,
    /// Ends that are open: the one that is read, the one that is written.
    pub open: (bool, bool),
}

impl Pipe {
    pub fn new() -> Pipe {
        Pipe { octets: VecDeque::new(), open: (true, true) }
    }

    /// # Errors
    /// EPIPE, EAGAIN.
    pub fn write(&mut self, octets: &[u8]) -> Result<usize, i32> {
        if !self.open.0 {
            return Err(libc::EPIPE);
        }
        let n = octets.len().min(self.room());
        if n == 0 && !octets.is_empty() {
            return Err(libc::EAGAIN);
        }
        self.octets.extend(&octets[..n]);
        Ok(n)
    }

    /// # Errors
    /// EAGAIN.
    pub fn read(&mut self, most: usize) -> Result<Vec<u8>, i32> {
        if self.octets.is_empty() && self.open.1 {
            return Err(libc::EAGAIN);
        }
        let n = most.min(self.octets.len());
        Ok(self.octets.drain(..n).collect())
    }

    pub fn room(&self) -> usize {
        MOST - self.octets.len()
    }

    /// Octets that can be read.
    pub fn len(&self) -> usize {
        self.octets.len()
    }

    /// Octets that were read are to be read once more, first.
    pub fn give_back(&mut self, octets: &[u8]) {
        octets.iter().rev().for_each(|octet| self.octets.push_front(*octet));
    }
}
