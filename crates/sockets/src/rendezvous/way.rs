//! Where the other end of a connection is looked for: by the abstract name that its cookie makes, or in a folder.

use super::{abroad, errno_reason};
use crate::state;
use crate::table::Sock;
use bypath_shm::reason::Reason;
use bypath_sys::sockdiag::Found;
use bypath_sys::{Errno, mem, process, strangers, unix};
use std::sync::atomic::Ordering::Relaxed;

/// Where the other end is looked for.
pub enum Way {
    /// In this network namespace, where the kernel shows it.
    Here(Found),
    /// In another one.
    Abroad(abroad::Way),
}

impl Way {
    /// 0 = not known yet.
    pub fn peer_cookie(&self) -> u64 {
        if let Way::Here(found) = self { found.cookie } else { 0 }
    }

    pub fn listen(&self, cookie: u64) -> Result<(i32, u64), Reason> {
        if let Way::Abroad(way) = self {
            return way.listen();
        }
        let (own, len) = name(cookie);
        match unix::listen(&own[..len], state::floor()) {
            Ok(listener) => Ok((listener, 0)),
            Err(Errno::ADDRINUSE) => Err(Reason::Squatter),
            Err(e) => Err(errno_reason(e)),
        }
    }

    /// `None`: nobody is there.
    pub fn dial(&self) -> Result<Option<i32>, Reason> {
        let found = match self {
            Way::Here(found) => found,
            Way::Abroad(way) => return way.dial(),
        };
        let (theirs, len) = name(found.cookie);
        match unix::dial(&theirs[..len], state::floor()) {
            Ok(dialled) => match credentials_fit(dialled, found.uid) {
                Ok(()) => {
                    unix::take_descriptors(dialled, true);
                    Ok(Some(dialled))
                }
                Err(reason) => {
                    strangers::close_stranger(dialled);
                    Err(reason)
                }
            },
            Err(Errno::CONNREFUSED | Errno::AGAIN) => Ok(None),
            Err(e) => Err(errno_reason(e)),
        }
    }
}

fn name(cookie: u64) -> ([u8; 26], usize) {
    let mut n = *b"bypath/1/0000000000000000\0";
    for (i, digit) in n[9..25].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(cookie >> (60 - 4 * i)) as usize & 15];
    }
    (n, 25)
}

/// The process behind a rendezvous socket must belong to the user of the peer's socket.
///
/// # Errors
/// [`Reason::Squatter`].
pub fn credentials_fit(s: i32, uid: u32) -> Result<(), Reason> {
    let c = unix::peer_credentials(s).map_err(|_| Reason::Squatter)?;
    if c.uid == uid { Ok(()) } else { Err(Reason::Squatter) }
}

/// Whether memory may be shared with programs of this user.
///
/// # Errors
/// [`Reason::PolicyUid`]; [`Reason::NoOvercommit`] of an allowed one.
pub fn check_uid(uid: u32) -> Result<(), Reason> {
    use crate::config::OVERFLOW_UID;
    let own = process::euid();
    let allowed = uid == own || state::config().is_some_and(|c| c.allow_uid.contains(uid));
    // Everybody may be 65534 where the own user namespace does not know all.
    let is_known = uid != OVERFLOW_UID || own == OVERFLOW_UID && process::knows_all_users();
    match allowed && is_known {
        false => Err(Reason::PolicyUid),
        true if uid != own && mem::may_be_missed() => Err(Reason::NoOvercommit),
        true => Ok(()),
    }
}

/// Whether who calls may: before anything of him is received.
///
/// # Errors
/// `PolicyUid`, `NoOvercommit`, `Squatter`.
pub fn may_call(s: &Sock, caller: i32) -> Result<(), Reason> {
    if s.abroad.load(Relaxed) != 0 {
        return abroad::is_own_user(caller);
    }
    check_uid(unix::peer_credentials(caller).map_err(|_| Reason::Squatter)?.uid)
}
