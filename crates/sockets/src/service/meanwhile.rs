//! Options of a socket while its service is away ([`super::anew`]): as they were set. The kernel says what that is of a new socket of its own, on which
//! the same is set, and which goes at once.

use super::recipe::{Recipe, is_of_group};
use crate::state;
use bypath_sys::{Errno, Result, fd, sock};

/// IPPROTO_TCP: TCP_INFO's first octet of a socket that listens (include/net/tcp_states.h).
const LISTEN: u8 = 10;
/// asm-generic/socket.h.
const SO_BINDTOIFINDEX: i32 = 62;

/// What is known of it beside its options.
pub(super) struct Socket {
    pub family: i32,
    /// SOCK_STREAM, SOCK_DGRAM.
    pub kind: i32,
    pub protocol: i32,
    pub listens: bool,
    pub cookie: u64,
}

/// The kernel's socket that is asked.
struct Model(i32);

impl Drop for Model {
    fn drop(&mut self) {
        fd::close(self.0);
    }
}

impl Model {
    fn new(of: &Socket) -> Result<Model> {
        let floor = state::floor();
        let new = match of.kind {
            libc::SOCK_STREAM => sock::stream(of.family, floor),
            // Sockets of pings are not for everybody.
            _ => sock::datagrams(of.family, of.protocol, floor)
                .or_else(|_| sock::datagrams(of.family, 0, floor)),
        };
        new.map(Model)
    }

    fn set(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        sock::set_option(self.0, level, name, value)
    }
}

/// Whether an option names something that the stack has and the kernel has not.
fn is_of_stack(level: i32, name: i32) -> bool {
    is_of_group(level, name)
        || level == libc::SOL_SOCKET && matches!(name, libc::SO_BINDTODEVICE | SO_BINDTOIFINDEX)
}

/// getsockopt: octets in `room`.
///
/// # Errors
/// As getsockopt(2).
pub(super) fn told(of: &Socket, recipe: &Recipe, level: i32, name: i32, room: &mut [u8]) -> Result<usize> {
    let mut put = |value: &[u8]| {
        let len = value.len().min(room.len());
        room[..len].copy_from_slice(&value[..len]);
        len
    };
    let known = match name {
        libc::SO_TYPE => Some(of.kind),
        libc::SO_DOMAIN => Some(of.family),
        libc::SO_PROTOCOL => Some(of.protocol),
        libc::SO_ACCEPTCONN => Some(of.listens.into()),
        libc::SO_ERROR => Some(0),
        _ => None,
    };
    match known.filter(|_| level == libc::SOL_SOCKET) {
        Some(known) => return Ok(put(&known.to_ne_bytes())),
        None if (level, name) == (libc::SOL_SOCKET, libc::SO_COOKIE) => {
            return Ok(put(&of.cookie.to_ne_bytes()));
        }
        None => {}
    }
    let model = Model::new(of)?;
    // The value where the kernel's socket cannot have it.
    let mut as_set = None;
    recipe.options(|its_level, its_name, value, _| {
        let is_set = !is_of_stack(its_level, its_name) && model.set(its_level, its_name, value).is_ok();
        if (its_level, its_name) == (level, name) && !is_set {
            as_set = Some(put(value));
        }
    });
    if let Some(len) = as_set {
        return Ok(len);
    }
    let len = sock::option_bytes(model.0, level, name, room)?;
    if let (libc::IPPROTO_TCP, libc::TCP_INFO, true, Some(state)) =
        (level, name, of.listens, room.first_mut())
    {
        *state = LISTEN;
    }
    Ok(len)
}

/// Before a value is kept for the next socket.
///
/// # Errors
/// What the kernel says to a value that makes no sense.
pub(super) fn judge(of: &Socket, level: i32, name: i32, value: &[u8]) -> Result<()> {
    if is_of_stack(level, name) {
        return Ok(());
    }
    let set = Model::new(of).map(|model| model.set(level, name, value)).unwrap_or(Ok(()));
    let senseless = [Errno::INVAL, Errno::DOM, Errno::NOPROTOOPT, Errno::FAULT, Errno::OPNOTSUPP];
    set.or_else(|errno| if senseless.contains(&errno) { Err(errno) } else { Ok(()) })
}
