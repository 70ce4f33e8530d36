//! Capture files (pcapng): what writing and reading them have in common.

use crate::types::{
    BYPATH_TO_BROADCAST, BYPATH_TO_GROUP, BYPATH_TO_HOST, BYPATH_TO_OTHER_HOST, BYPATH_TO_UNKNOWN,
};
use bypath_link::pcapng::{self, Direction, Reception};

/// Frames begin with an Ethernet header. The numbers of other kinds: <https://www.tcpdump.org/linktypes.html>.
pub const BYPATH_LINK_TYPE_ETHERNET: u16 = 1;

/// The header shows a number; the library's own is meant.
const _: () = assert!(BYPATH_LINK_TYPE_ETHERNET == pcapng::ETHERNET);

/// It is not told which way a frame went.
pub const BYPATH_DIRECTION_UNKNOWN: u32 = 0;
/// It was received.
pub const BYPATH_DIRECTION_IN: u32 = 1;
/// It was sent.
pub const BYPATH_DIRECTION_OUT: u32 = 2;

/// What a capture file says about a frame. One of zeroes says nothing but that it was captured in 1970.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_capture_frame {
    /// Nanoseconds since 1970 (UTC).
    pub ns: u64,
    /// Frames that were lost between the one before and this one, as far as that is told.
    pub lost: u64,
    /// Octets in the buffer that it was read into. Not looked at by functions that write.
    pub len: usize,
    /// Octets in the file: more than `len` if the buffer was too short. Not looked at by functions that write.
    pub kept: usize,
    /// Octets that the frame had: more than `kept` if only its beginning was written. For functions that write, 0: as many
    /// as they are given.
    pub whole: usize,
    /// The number of its interface in the file, from 0. Not looked at by functions that write.
    pub interface: u32,
    /// Which way it went: `BYPATH_DIRECTION_...`
    pub direction: u32,
    /// Whom it was addressed to: `BYPATH_TO_...`; files do not tell `BYPATH_TO_OUTGOING`.
    pub addressed: u32,
}

pub const fn to_direction(direction: u32) -> Option<Direction> {
    match direction {
        BYPATH_DIRECTION_UNKNOWN => Some(Direction::Unknown),
        BYPATH_DIRECTION_IN => Some(Direction::In),
        BYPATH_DIRECTION_OUT => Some(Direction::Out),
        _ => None,
    }
}

pub const fn of_direction(direction: Direction) -> u32 {
    match direction {
        Direction::Unknown => BYPATH_DIRECTION_UNKNOWN,
        Direction::In => BYPATH_DIRECTION_IN,
        Direction::Out => BYPATH_DIRECTION_OUT,
    }
}

pub const fn to_reception(addressed: u32) -> Option<Reception> {
    match addressed {
        BYPATH_TO_UNKNOWN => Some(Reception::Unknown),
        BYPATH_TO_HOST => Some(Reception::Unicast),
        BYPATH_TO_BROADCAST => Some(Reception::Broadcast),
        BYPATH_TO_GROUP => Some(Reception::Multicast),
        BYPATH_TO_OTHER_HOST => Some(Reception::Promiscuous),
        _ => None,
    }
}

pub const fn of_reception(reception: Reception) -> u32 {
    match reception {
        Reception::Unknown => BYPATH_TO_UNKNOWN,
        Reception::Unicast => BYPATH_TO_HOST,
        Reception::Broadcast => BYPATH_TO_BROADCAST,
        Reception::Multicast => BYPATH_TO_GROUP,
        Reception::Promiscuous => BYPATH_TO_OTHER_HOST,
    }
}
