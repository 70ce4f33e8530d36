//! What the kernel says to a value of an option that has no effect here: a socket of its own is asked, which nobody else has and which
//! goes at once. So programs see what this machine's kernel takes and tells, whichever it is.

use bypath_stack::linux::errno::Result;
use bypath_sys::sock;
use std::os::fd::{AsRawFd, OwnedFd};

/// Octets of a value at most.
pub const LONGEST: usize = 64;

/// A new socket of the kernel's.
struct Model(OwnedFd);

impl Model {
    fn new(v6: bool) -> Result<Model> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        sock::own_stream(family).map(Model).map_err(|_| libc::ENOBUFS)
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
pub fn first(v6: bool, option: (i32, i32), room: usize) -> Result<Vec<u8>> {
    Model::new(v6)?.told(option, room.min(LONGEST))
}

/// What is told after this was set, if anything is.
///
/// # Errors
/// As setsockopt(2); ENOBUFS where there is no socket.
pub fn after(v6: bool, option: (i32, i32), value: &[u8]) -> Result<Option<Vec<u8>>> {
    let model = Model::new(v6)?;
    model.set(option, value)?;
    Ok(model.told(option, LONGEST).ok())
}

/// Whether this is what an option is anyway.
///
/// # Errors
/// As setsockopt(2); ENOBUFS where there is no socket.
pub fn is_same(v6: bool, option: (i32, i32), value: &[u8]) -> Result<bool> {
    let model = Model::new(v6)?;
    let first = model.told(option, LONGEST);
    model.set(option, value)?;
    Ok(first.is_ok() && first == model.told(option, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNCNT: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_SYNCNT);

    #[test]
    fn a_value_is_judged_by_the_kernel_and_leaves_nothing_behind() {
        let number = |n: i32| n.to_ne_bytes().to_vec();
        let usual = first(false, SYNCNT, 64).expect("a number");
        assert_eq!(after(false, SYNCNT, &number(3)), Ok(Some(number(3))));
        assert_eq!(after(false, SYNCNT, &number(-1)), Err(libc::EINVAL));
        assert_eq!(first(false, SYNCNT, 64), Ok(usual.clone()));
        assert_eq!(is_same(true, SYNCNT, &usual), Ok(true));
        assert_eq!(is_same(true, SYNCNT, &number(3)), Ok(false));
        assert_eq!(first(false, SYNCNT, 2), Ok(usual[..2].to_vec()));
    }
}
