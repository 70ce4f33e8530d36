//! What came of a call of data.

use bypath_sys::Errno;

/// Octets, or an errno, in one register, as a system call returns it. A `Result<usize, Errno>` is written in pieces and copied as a whole, which each time waits
/// until the pieces are in the cache: a dozen cycles, several times in a call that has a hundred.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Moved(isize);

impl Moved {
    /// Nothing, for want of this.
    #[inline]
    pub const fn failed(errno: Errno) -> Moved {
        Moved(-(errno.raw_os_error() as isize))
    }

    /// So many octets.
    #[inline]
    pub const fn octets(n: usize) -> Moved {
        Moved(n as isize)
    }

    /// Whether it is this error.
    #[inline]
    pub fn is(self, errno: Errno) -> bool {
        self == Moved::failed(errno)
    }

    /// Whether there were any octets.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 > 0
    }

    /// As it is usual.
    ///
    /// # Errors
    /// The one that there was.
    #[inline]
    pub const fn result(self) -> Result<usize, Errno> {
        if self.0 < 0 { Err(Errno::from_raw_os_error(-self.0 as i32)) } else { Ok(self.0 as usize) }
    }
}

impl From<Result<usize, Errno>> for Moved {
    #[inline]
    fn from(result: Result<usize, Errno>) -> Moved {
        match result {
            Ok(n) => Moved::octets(n),
            Err(errno) => Moved::failed(errno),
        }
    }
}

impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.result().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_comes_back() {
        for result in
            [Ok(0), Ok(1), Ok(isize::MAX as usize), Err(Errno::AGAIN), Err(Errno::from_raw_os_error(4095))]
        {
            let moved = Moved::from(result);
            assert_eq!(moved.result(), result);
            assert_eq!(moved.is(Errno::AGAIN), result == Err(Errno::AGAIN));
            assert_eq!(moved.is_some(), matches!(result, Ok(1..)));
        }
    }
}
