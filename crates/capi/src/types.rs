//! Values that several functions take or give.

use crate::mac::bypath_mac;
use crate::status::Failure;
use bypath_link::l2::{self, Addressed, Frame, Timestamp, TimestampSource, VlanTag};

/// EtherType of the hybrid protocol's data frames: IEEE 802, local experimental EtherType 1.
pub const BYPATH_ETHERTYPE_HYBRID: u16 = 0x88b5;
/// EtherType of messages between programs on one host.
pub const BYPATH_ETHERTYPE_IPC: u16 = 0xaaaa;
/// Tag protocol identifier of a VLAN tag (IEEE 802.1Q).
pub const BYPATH_TPID_VLAN: u16 = 0x8100;
/// Tag protocol identifier of a service tag, the outer one of two (IEEE 802.1ad).
pub const BYPATH_TPID_SERVICE: u16 = 0x88a8;
/// VLAN of the hybrid protocol unless another is asked for.
pub const BYPATH_DEFAULT_VLAN: u16 = 10;
/// Priority of the hybrid protocol unless another is asked for: the highest.
pub const BYPATH_DEFAULT_PRIORITY: u8 = 7;
/// Octets of a header without a tag.
pub const BYPATH_HEADER: usize = 14;
/// Least octets of payload in a padded frame.
pub const BYPATH_SHORTEST_PAYLOAD: usize = 46;

/// The header shows numbers; the library's own are meant.
const _: () = assert!(
    BYPATH_ETHERTYPE_HYBRID == l2::ETHERTYPE_HYBRID
        && BYPATH_ETHERTYPE_IPC == l2::ETHERTYPE_IPC
        && BYPATH_TPID_VLAN == l2::TPID_VLAN
        && BYPATH_TPID_SERVICE == l2::TPID_SERVICE
        && BYPATH_DEFAULT_VLAN == l2::DEFAULT_VLAN
        && BYPATH_DEFAULT_PRIORITY == l2::DEFAULT_PRIORITY
        && BYPATH_HEADER == l2::HEADER
        && BYPATH_SHORTEST_PAYLOAD == l2::SHORTEST_PAYLOAD
);

/// A time-out that never comes.
pub const BYPATH_FOREVER: u64 = 0xffff_ffff_ffff_ffff;

/// A VLAN tag. One with `tpid` 0 is no tag.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_vlan_tag {
    /// `BYPATH_TPID_VLAN`, `BYPATH_TPID_SERVICE`; 0: no tag.
    pub tpid: u16,
    /// VLAN, 0 to 4094; 0: a priority only.
    pub vlan: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Drop eligible: 0 or 1.
    pub drop_eligible: u8,
}

impl bypath_vlan_tag {
    pub const fn none() -> bypath_vlan_tag {
        bypath_vlan_tag { tpid: 0, vlan: 0, priority: 0, drop_eligible: 0 }
    }

    /// As the library has it.
    pub fn checked(self) -> Result<Option<VlanTag>, Failure> {
        let bypath_vlan_tag { tpid, vlan, priority, drop_eligible } = self;
        match tpid {
            0 => return Ok(None),
            BYPATH_TPID_VLAN | BYPATH_TPID_SERVICE => {}
            other => {
                let text = format!("{other:#06x} is no tag protocol identifier: 0x8100 and 0x88a8 are");
                return Err(Failure::invalid(text));
            }
        }
        if vlan > 4094 || priority > 7 || drop_eligible > 1 {
            return Err(Failure::invalid(format!(
                "VLAN {vlan} with priority {priority}, drop eligible {drop_eligible}: a VLAN is a number from 0 to 4094, \
                 a priority one from 0 to 7, drop eligible 0 or 1"
            )));
        }
        Ok(Some(VlanTag { tpid, pcp: priority, dei: drop_eligible == 1, vid: vlan }))
    }
}

/// The tag of a VLAN (0 to 4094; 0: a priority only) with a priority (0 to 7), by IEEE 802.1Q and not drop eligible. That
/// the numbers can be is checked where the tag is used.
#[unsafe(no_mangle)]
pub extern "C" fn bypath_vlan(vlan: u16, priority: u8) -> bypath_vlan_tag {
    bypath_vlan_tag { tpid: BYPATH_TPID_VLAN, vlan, priority, drop_eligible: 0 }
}

impl From<Option<VlanTag>> for bypath_vlan_tag {
    fn from(tag: Option<VlanTag>) -> bypath_vlan_tag {
        tag.map_or(bypath_vlan_tag::none(), |t| bypath_vlan_tag {
            tpid: t.tpid,
            vlan: t.vid,
            priority: t.pcp,
            drop_eligible: t.dei.into(),
        })
    }
}

/// Nobody takes the time of received frames.
pub const BYPATH_TIMESTAMP_NONE: u32 = 0;
/// The kernel does: ns since 1970 (UTC).
pub const BYPATH_TIMESTAMP_SOFTWARE: u32 = 1;
/// The device does: ns of its own clock.
pub const BYPATH_TIMESTAMP_HARDWARE: u32 = 2;
/// For options only: the kernel does, and with `BYPATH_MODE_XDP` nobody.
pub const BYPATH_TIMESTAMP_USUAL: u32 = 3;

/// It is not known to whom a frame was addressed.
pub const BYPATH_TO_UNKNOWN: u32 = 0;
/// To this interface.
pub const BYPATH_TO_HOST: u32 = 1;
/// To everybody.
pub const BYPATH_TO_BROADCAST: u32 = 2;
/// To a group.
pub const BYPATH_TO_GROUP: u32 = 3;
/// To another host.
pub const BYPATH_TO_OTHER_HOST: u32 = 4;
/// Sent by this host.
pub const BYPATH_TO_OUTGOING: u32 = 5;

/// What is known of a received frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_l2_frame {
    /// Octets of payload in the buffer.
    pub len: usize,
    /// Octets of payload that the frame had, padding included: more than `len` if the buffer was too short.
    pub whole: usize,
    /// When it arrived, in ns; of which clock, `timestamp_source` says.
    pub timestamp_ns: u64,
    /// Who took the time: `BYPATH_TIMESTAMP_...`; with `BYPATH_TIMESTAMP_NONE` there is none.
    pub timestamp_source: u32,
    /// Whom it was addressed to: `BYPATH_TO_...`
    pub addressed: u32,
    /// To whom.
    pub destination: bypath_mac,
    /// From whom.
    pub source: bypath_mac,
    /// The outermost VLAN tag.
    pub vlan: bypath_vlan_tag,
    /// The second tag of two.
    pub inner_vlan: bypath_vlan_tag,
    /// What the payload is; below 0x0600 the payload's length (IEEE 802.3).
    pub ethertype: u16,
}

impl bypath_l2_frame {
    /// What is known of `frame`, whose first `len` octets of payload the caller gets.
    pub fn of(frame: &Frame<'_>, len: usize) -> bypath_l2_frame {
        let (timestamp_ns, timestamp_source) = match frame.timestamp {
            None => (0, BYPATH_TIMESTAMP_NONE),
            Some(Timestamp { ns, source: TimestampSource::Software }) => (ns, BYPATH_TIMESTAMP_SOFTWARE),
            Some(Timestamp { ns, source: TimestampSource::Hardware }) => (ns, BYPATH_TIMESTAMP_HARDWARE),
        };
        bypath_l2_frame {
            len,
            whole: frame.payload.len(),
            timestamp_ns,
            timestamp_source,
            addressed: match frame.addressed {
                Addressed::Unknown => BYPATH_TO_UNKNOWN,
                Addressed::Host => BYPATH_TO_HOST,
                Addressed::Broadcast => BYPATH_TO_BROADCAST,
                Addressed::Multicast => BYPATH_TO_GROUP,
                Addressed::OtherHost => BYPATH_TO_OTHER_HOST,
                Addressed::Outgoing => BYPATH_TO_OUTGOING,
            },
            destination: frame.destination.into(),
            source: frame.source.into(),
            vlan: frame.vlan.into(),
            inner_vlan: frame.inner_vlan.into(),
            ethertype: frame.ethertype,
        }
    }
}

/// Copies text into a fixed place of a structure.
pub fn fixed<const N: usize>(text: &str) -> [std::ffi::c_char; N] {
    let mut place = [0; N];
    crate::status::put_text(&mut place, text);
    place
}
