//! What the kernel says to a value of an option that has no effect here: a socket of its own is asked, which nobody else has and which
//! goes at once. So programs see what this machine's kernel takes and tells, whichever it is.

use bypath_stack::linux::errno::Result;
use bypath_sys::sock;
use std::os::fd::{AsRawFd, OwnedFd};

/// Octets of a value at most.
pub const LONGEST: usize = 64;

/// What the socket is that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub v6: bool,
    /// Not of streams.
    pub datagrams: bool,
}

/// A new socket of the kernel's.
struct Model(OwnedFd);

impl Model {
    fn new(kind: Kind) -> Result<Model> {
        let family = if kind.v6 { libc::AF_INET6 } else { libc::AF_INET };
        let new = if kind.datagrams { sock::own_datagrams(family) } else { sock::own_stream(family) };
        new.map(Model).map_err(|_| libc::ENOBUFS)
    }

    fn told(&self, (level, name): (i32, i32), room: usize) -> Result<Vec<u8>> {
        let mut value = vec![0; room];
        let len = sock::option_bytes(self.0.as_raw_fd(), level, name, &mut value);
        value.truncate(len.map_err(|e| e.raw_os_error())?);
        Ok(value)
    }

    fn set(&self, (level, name): (i32, i32), value: &[u8]) -> Result<()> {
        sock::set_option(self.0.as_raw_fd(), level, name, value).map_err(|e| e.raw_os_error())
    }
}

/// What a new socket tells of an option.
///
/// # Errors
/// As getsockopt(2); ENOBUFS where there is no socket.
pub fn first(kind: Kind, option: (i32, i32), room: usize) -> Result<Vec<u8>> {
    Model::new(kind)?.told(option, room.min(LONGEST))
}

/// What is told after this was set, if anything is.
///
/// # Errors
/// As setsockopt(2); ENOBUFS where there is no socket.
pub fn after(kind: Kind, option: (i32, i32), value: &[u8]) -> Result<Option<Vec<u8>>> {
    let model = Model::new(kind)?;
    model.set(option, value)?;
    Ok(model.told(option, LONGEST).ok())
}

/// Whether this is what an option is anyway.
///
/// # Errors
/// As setsockopt(2); ENOBUFS where there is no socket.
pub fn is_same(kind: Kind, option: (i32, i32), value: &[u8]) -> Result<bool> {
    let model = Model::new(kind)?;
    let first = model.told(option, LONGEST);
    model.set(option, value)?;
    Ok(first.is_ok() && first == model.told(option, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNCNT: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_SYNCNT);
    const V4: Kind = Kind { v6: false, datagrams: false };
    const V6: Kind = Kind { v6: true, ..V4 };

    #[test]
    fn a_value_is_judged_by_the_kernel_and_leaves_nothing_behind() {
        let number = |n: i32| n.to_ne_bytes().to_vec();
        let usual = first(V4, SYNCNT, 64).expect("a number");
        assert_eq!(after(V4, SYNCNT, &number(3)), Ok(Some(number(3))));
        assert_eq!(after(V4, SYNCNT, &number(-1)), Err(libc::EINVAL));
        assert_eq!(first(V4, SYNCNT, 64), Ok(usual.clone()));
        assert_eq!(is_same(V6, SYNCNT, &usual), Ok(true));
        assert_eq!(is_same(V6, SYNCNT, &number(3)), Ok(false));
        assert_eq!(first(V4, SYNCNT, 2), Ok(usual[..2].to_vec()));
        assert_eq!(first(Kind { datagrams: true, ..V4 }, SYNCNT, 64), Err(libc::EOPNOTSUPP));
    }
}
