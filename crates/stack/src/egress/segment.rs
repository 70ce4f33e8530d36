//! TCP segments written: out of a connection's buffer into the caller's, in one pass that copies and sums.

use super::Outgoing;
use super::write::{Frame, ip_header, link_header};
use crate::iface::Shape;
use crate::tcp::output::Segment;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::tcp::{CHECKSUM_OFFSET, HEADER_LEN, TcpFlags};
use bypath_wire::{Addresses, IpProtocol, MacAddr};

/// A segment, and what it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segmented<'a> {
    /// Ours and theirs.
    pub ports: (u16, u16),
    pub segment: &'a Segment,
    /// In two pieces.
    pub octets: (&'a [u8], &'a [u8]),
}

/// The header of a segment with these options, of which `room` has exactly the length; the checksum is zero.
#[inline(always)]
pub(super) fn header(room: &mut [u8], ports: (u16, u16), segment: &Segment, options: &[u8]) {
    let offset = (room.len() as u16 / 4) << 12;
    let Some((fixed, behind)) = room.split_first_chunk_mut::<HEADER_LEN>() else { return };
    let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
    let words = [
        pair(ports.0, ports.1),
        segment.seq.0,
        segment.ack.0,
        pair(offset | segment.flags.bits(), segment.window),
        pair(0, segment.urgent),
    ];
    for (octets, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *octets = word.to_be_bytes();
    }
    behind.copy_from_slice(options);
}

/// Writes a frame with a segment; `apart`: without the payload, to a link that computes checksums. `None`: there is no room for it, or
/// the link takes no packet as long.
#[inline]
pub(crate) fn write_segment(
    shape: &Shape,
    outgoing: &Outgoing,
    mac: MacAddr,
    what: &Segmented<'_>,
    apart: bool,
    room: &mut [u8],
) -> Option<Frame> {
    let Segmented { ports, segment, octets: (first, second) } = *what;
    let options = segment.options.padded();
    let own = HEADER_LEN + options.len();
    let len = own + first.len() + second.len();
    let link = link_header(shape, outgoing, mac, room).ok()?;
    let packet = &mut room[link..];
    let ip = ip_header(outgoing, IpProtocol::TCP, len, 0, false, packet).ok()?;
    let cut = segment.len > segment.cut;
    if !cut && ip + len > shape.mtu {
        return None;
    }
    let written = if apart { own } else { len };
    let whole = packet.get_mut(ip..ip + written)?;
    header(whole.split_at_mut(own).0, ports, segment, options);
    let pseudo = outgoing.addresses.pseudo_header(IpProtocol::TCP, len);
    let (head, behind) = whole.split_at_mut(own);
    let (one, two) = behind.split_at_mut(if apart { 0 } else { first.len() });
    let (mut checksum, mut gso) = (ChecksumState::Unknown, None);
    let sum = if shape.offload.checksum {
        if !apart {
            one.copy_from_slice(first);
            two.copy_from_slice(second);
        }
        checksum = ChecksumState::Partial { start: (link + ip) as u16, offset: CHECKSUM_OFFSET };
        if cut {
            let kind = match outgoing.addresses {
                Addresses::V4 { .. } => GsoKind::Tcp4,
                Addresses::V6 { .. } => GsoKind::Tcp6,
            };
            let header_len = (link + ip + own) as u16;
            let ecn = segment.flags.has(TcpFlags::CWR);
            gso = Some(Gso { kind, size: segment.cut as u16, header_len, ecn });
        }
        pseudo.folded()
    } else {
        // Acknowledgements have timestamps, as a rule, and nothing else.
        let sum = match <&[u8; 32]>::try_from(&*head) {
            Ok(head) => pseudo.array(head),
            Err(_) => pseudo.bytes(head),
        };
        let sum = if one.is_empty() { sum } else { sum.copy(one, first) };
        let sum = if two.is_empty() { sum } else { sum.copy(two, second) };
        sum.finish()
    };
    let field = usize::from(CHECKSUM_OFFSET);
    head[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    Some(Frame { len: link + ip + written, checksum, gso, iface: outgoing.iface })
}
