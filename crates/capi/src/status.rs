//! What goes wrong, as numbers and as text.

use bypath_link::Error;
use bypath_link::tun;
use bypath_link::xdp::Refused;
use std::borrow::Cow;
use std::ffi::{c_char, c_int};

/// What a function answers: `BYPATH_OK`, or one of the negative codes `BYPATH_E_...`.
pub type bypath_status = i32;

/// It worked.
pub const BYPATH_OK: i32 = 0;
/// There is no such interface. The text names those there are.
pub const BYPATH_E_UNKNOWN: i32 = -1;
/// No interface can have such a long name.
pub const BYPATH_E_NAME: i32 = -2;
/// The interface carries no Ethernet frames.
pub const BYPATH_E_NOT_ETHERNET: i32 = -3;
/// The interface is switched off.
pub const BYPATH_E_DOWN: i32 = -4;
/// The interface was removed, the netstack of a socket was closed, or a channel's other end reads no more: close it.
pub const BYPATH_E_GONE: i32 = -5;
/// A capability is missing, CAP_NET_RAW most often. The text names it.
pub const BYPATH_E_NOT_ALLOWED: i32 = -6;
/// The payload is longer than the interface's MTU; or a datagram of a channel than there can be, or than the buffer.
pub const BYPATH_E_TOO_LONG: i32 = -7;
/// The frame is shorter than a header.
pub const BYPATH_E_TOO_SHORT: i32 = -8;
/// Nothing happened in time.
pub const BYPATH_E_TIMED_OUT: i32 = -9;
/// It would have to wait, and the socket does not.
pub const BYPATH_E_WOULD_BLOCK: i32 = -10;
/// A signal came while waiting.
pub const BYPATH_E_INTERRUPTED: i32 = -11;
/// The device's queue is full.
pub const BYPATH_E_QUEUE_FULL: i32 = -12;
/// An argument cannot be used: NULL, out of range, contradictory. The text says which.
pub const BYPATH_E_INVALID: i32 = -13;
/// Another thread is inside a call with this socket, or this file.
pub const BYPATH_E_BUSY: i32 = -14;
/// The system answered something else: see `system` of the error.
pub const BYPATH_E_SYSTEM: i32 = -15;
/// A mistake of this library's own. A socket that it happened to can only be closed.
pub const BYPATH_E_INTERNAL: i32 = -16;
/// The kernel, or the interface's driver, cannot do it. The text says what can be done instead.
pub const BYPATH_E_UNSUPPORTED: i32 = -17;
/// Another program has it: the device queue, or the interface's place for a program.
pub const BYPATH_E_IN_USE: i32 = -18;
/// The file is not what its format allows, or ends in the middle. The text says where.
pub const BYPATH_E_FORMAT: i32 = -19;
/// The file has been read to its end; or all datagrams of a channel, whose other end sends no more.
pub const BYPATH_E_END: i32 = -20;
/// A host answered that nobody takes datagrams at that address and port.
pub const BYPATH_E_UNREACHABLE: i32 = -21;
/// There is no way to that address: no route leads there, or who should know says so.
pub const BYPATH_E_NO_ROUTE: i32 = -22;
/// Nobody listens at that address and port, or who does is not to be spoken with.
pub const BYPATH_E_REFUSED: i32 = -23;
/// The other side has ended the connection at once.
pub const BYPATH_E_RESET: i32 = -24;
/// Nothing can be written any more: that was finished, or the connection is over.
pub const BYPATH_E_CLOSED: i32 = -25;

/// Octets of an error's text, terminating zero included.
pub const BYPATH_ERROR_TEXT: usize = 512;

/// What went wrong, and what to do about it. It belongs to the caller; functions write it only when they fail.
#[repr(C)]
pub struct bypath_error {
    /// `BYPATH_E_...`
    pub status: i32,
    /// The errno that stands for it.
    pub system: i32,
    /// One or two sentences of UTF-8 with the remedy, terminated by a zero; cut if they are too long.
    pub message: [c_char; BYPATH_ERROR_TEXT],
}

/// A failure on its way out.
#[derive(Clone)]
pub struct Failure {
    pub status: bypath_status,
    pub system: i32,
    pub text: Cow<'static, str>,
}

// asm-generic/errno-base.h
const EIO: c_int = 5;
const EBUSY: c_int = 16;
const EINVAL: c_int = 22;

impl Failure {
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status: BYPATH_E_INVALID, system: EINVAL, text: text.into() }
    }

    pub fn busy() -> Failure {
        let text = "another thread is inside a call with this socket, or this file: one thread at a time may use it; \
                    open a second socket for the other direction";
        Failure { status: BYPATH_E_BUSY, system: EBUSY, text: text.into() }
    }

    pub fn internal(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status: BYPATH_E_INTERNAL, system: EIO, text: text.into() }
    }

    /// Writes it into the caller's memory.
    pub fn tell(&self, error: &mut bypath_error) {
        error.status = self.status;
        error.system = self.system;
        put_text(&mut error.message, &self.text);
    }
}

/// Writes as many whole characters as there is room for, and a zero.
pub fn put_text(place: &mut [c_char], text: &str) {
    let Some(room) = place.len().checked_sub(1) else { return };
    let mut len = text.len().min(room);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    for (to, from) in place.iter_mut().zip(&text.as_bytes()[..len]) {
        *to = *from as c_char;
    }
    place[len] = 0;
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        let status = match e {
            Error::Unknown { .. } => BYPATH_E_UNKNOWN,
            Error::NameTooLong { .. } => BYPATH_E_NAME,
            Error::NotEthernet { .. } => BYPATH_E_NOT_ETHERNET,
            Error::Down { .. } => BYPATH_E_DOWN,
            Error::Gone { .. } => BYPATH_E_GONE,
            Error::NotAllowed => BYPATH_E_NOT_ALLOWED,
            Error::TooLong { .. } | Error::Grown { .. } => BYPATH_E_TOO_LONG,
            Error::TooShort { .. } => BYPATH_E_TOO_SHORT,
            Error::TimedOut { .. } => BYPATH_E_TIMED_OUT,
            Error::WouldBlock => BYPATH_E_WOULD_BLOCK,
            Error::Interrupted => BYPATH_E_INTERRUPTED,
            Error::QueueFull { .. } => BYPATH_E_QUEUE_FULL,
            Error::Invalid(_) | Error::Xdp(Refused::Queue { .. }) => BYPATH_E_INVALID,
            Error::Xdp(Refused::Socket | Refused::Program) => BYPATH_E_NOT_ALLOWED,
            Error::Xdp(Refused::Unsupported | Refused::Driver { .. }) => BYPATH_E_UNSUPPORTED,
            Error::Xdp(Refused::QueueBusy { .. } | Refused::ProgramBusy { .. }) => BYPATH_E_IN_USE,
            Error::Tun(ref refused) => of_tun(refused),
            _ => BYPATH_E_SYSTEM,
        };
        Failure { status, system: e.code(), text: e.to_string().into() }
    }
}

fn of_tun(refused: &tun::Refused) -> bypath_status {
    use tun::Refused;
    match refused {
        Refused::Missing { .. } | Refused::NotTun { .. } | Refused::NoSuperPackets { .. } => {
            BYPATH_E_UNSUPPORTED
        }
        Refused::Forbidden { .. } | Refused::NotAllowed { .. } => BYPATH_E_NOT_ALLOWED,
        Refused::Taken { .. } | Refused::Busy { .. } => BYPATH_E_IN_USE,
        Refused::Name { .. } => BYPATH_E_NAME,
        Refused::OtherKind { .. } | Refused::Queues { .. } | Refused::MtuTooSmall { .. } => BYPATH_E_INVALID,
        Refused::DatagramTooLong { .. } | Refused::TooLong { .. } => BYPATH_E_TOO_LONG,
        Refused::Unreachable { .. } => BYPATH_E_UNREACHABLE,
        _ => BYPATH_E_SYSTEM,
    }
}

/// The code's name, such as `BYPATH_E_TIMED_OUT`: a constant text. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn bypath_status_name(status: i32) -> *const c_char {
    let name = match status {
        BYPATH_OK => c"BYPATH_OK",
        BYPATH_E_UNKNOWN => c"BYPATH_E_UNKNOWN",
        BYPATH_E_NAME => c"BYPATH_E_NAME",
        BYPATH_E_NOT_ETHERNET => c"BYPATH_E_NOT_ETHERNET",
        BYPATH_E_DOWN => c"BYPATH_E_DOWN",
        BYPATH_E_GONE => c"BYPATH_E_GONE",
        BYPATH_E_NOT_ALLOWED => c"BYPATH_E_NOT_ALLOWED",
        BYPATH_E_TOO_LONG => c"BYPATH_E_TOO_LONG",
        BYPATH_E_TOO_SHORT => c"BYPATH_E_TOO_SHORT",
        BYPATH_E_TIMED_OUT => c"BYPATH_E_TIMED_OUT",
        BYPATH_E_WOULD_BLOCK => c"BYPATH_E_WOULD_BLOCK",
        BYPATH_E_INTERRUPTED => c"BYPATH_E_INTERRUPTED",
        BYPATH_E_QUEUE_FULL => c"BYPATH_E_QUEUE_FULL",
        BYPATH_E_INVALID => c"BYPATH_E_INVALID",
        BYPATH_E_BUSY => c"BYPATH_E_BUSY",
        BYPATH_E_SYSTEM => c"BYPATH_E_SYSTEM",
        BYPATH_E_INTERNAL => c"BYPATH_E_INTERNAL",
        BYPATH_E_UNSUPPORTED => c"BYPATH_E_UNSUPPORTED",
        BYPATH_E_IN_USE => c"BYPATH_E_IN_USE",
        BYPATH_E_FORMAT => c"BYPATH_E_FORMAT",
        BYPATH_E_END => c"BYPATH_E_END",
        BYPATH_E_UNREACHABLE => c"BYPATH_E_UNREACHABLE",
        BYPATH_E_NO_ROUTE => c"BYPATH_E_NO_ROUTE",
        BYPATH_E_REFUSED => c"BYPATH_E_REFUSED",
        BYPATH_E_RESET => c"BYPATH_E_RESET",
        BYPATH_E_CLOSED => c"BYPATH_E_CLOSED",
        _ => c"(no status of bypath)",
    };
    name.as_ptr()
}

/// The version of this header, to be compared with that of the library that runs: its first number.
pub const BYPATH_VERSION_MAJOR: u32 = 0;
/// Its second number.
pub const BYPATH_VERSION_MINOR: u32 = 1;
/// Its third number.
pub const BYPATH_VERSION_PATCH: u32 = 0;

/// The header shows numbers; the crate's own version is meant.
const _: () = {
    const fn number(text: &str) -> u32 {
        match u32::from_str_radix(text, 10) {
            Ok(number) => number,
            Err(_) => panic!("a version of three numbers"),
        }
    }
    assert!(
        BYPATH_VERSION_MAJOR == number(env!("CARGO_PKG_VERSION_MAJOR"))
            && BYPATH_VERSION_MINOR == number(env!("CARGO_PKG_VERSION_MINOR"))
            && BYPATH_VERSION_PATCH == number(env!("CARGO_PKG_VERSION_PATCH"))
    );
};

/// The version of the library that runs, such as `0.1.0`: a constant text. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn bypath_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_name() {
        // SAFETY: a constant text with a zero at its end.
        let name = |status| unsafe { std::ffi::CStr::from_ptr(bypath_status_name(status)) };
        let mut names: Vec<_> = (BYPATH_E_CLOSED..=BYPATH_OK).map(|s| name(s).to_owned()).collect();
        assert!(names.iter().all(|n| n.to_bytes().starts_with(b"BYPATH_")), "{names:?}");
        names.dedup();
        assert_eq!(names.len(), (BYPATH_OK - BYPATH_E_CLOSED + 1) as usize);
        assert!(name(BYPATH_E_CLOSED - 1) == name(1) && name(1).to_bytes().starts_with(b"("));
    }
}
