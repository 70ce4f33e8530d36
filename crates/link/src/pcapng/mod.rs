//! Capture files in the format pcapng (draft-ietf-opsawg-pcapng): written as Wireshark, tshark and tcpdump read them, and
//! read strictly, for tests and tools.

pub mod reader;
pub mod writer;

pub use reader::Reader;
pub use writer::Writer;

// Block types (section 11.1 of the draft, and 4.1 to 4.6).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

/// Written by the machine that wrote the file, in its byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

// Options of each block (3.5, 4.1 to 4.6).
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_MAC: u16 = 6;
const INTERFACE_RESOLUTION: u16 = 9;
const INTERFACE_OFFSET: u16 = 14;
const PACKET_FLAGS: u16 = 2;
const PACKET_DROPS: u16 = 4;
const STATISTICS_START: u16 = 2;
const STATISTICS_END: u16 = 3;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;

/// Link type of Ethernet frames (LINKTYPE_ETHERNET).
pub const ETHERNET: u16 = 1;
/// Link type of packets that begin with an IPv4 or IPv6 header (LINKTYPE_RAW).
pub const RAW_IP: u16 = 101;

/// Which way a frame went (section 4.3.1, bits 0 and 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Not told.
    #[default]
    Unknown,
    /// Received.
    In,
    /// Sent.
    Out,
}

/// How a frame was received (section 4.3.1, bits 2 to 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reception {
    /// Not told.
    #[default]
    Unknown,
    /// To the device itself.
    Unicast,
    /// To a group.
    Multicast,
    /// To everybody.
    Broadcast,
    /// To another one.
    Promiscuous,
}

/// Counters of an interface (section 4.6). `None`: not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// When counting began, in ns since 1970.
    pub start: Option<u64>,
    /// When it ended.
    pub end: Option<u64>,
    /// Frames received by the interface.
    pub received: Option<u64>,
    /// Frames dropped by the interface for lack of room.
    pub dropped: Option<u64>,
}
