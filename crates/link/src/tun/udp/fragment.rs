//! Datagrams that do not fit into the MTU: cut into IP fragments (RFC 791, 3.2; RFC 8200, 4.5).

use super::header::{self, CHECKSUM_AT, Piece, transmitted};
use super::{Checksum, Udp};
use crate::Result;
use bypath_sys::packet::frame::VnetHeader;
use bypath_wire::{Addresses, IpProtocol};
use std::io::IoSlice;
use std::net::SocketAddr;

const UDP: usize = bypath_wire::udp::HEADER_LEN;

impl Udp {
    /// Sends a datagram in fragments. Its checksum is ours: who completes checksums sees one packet at a time.
    pub(super) fn send_fragments(
        &mut self,
        addresses: &Addresses,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<()> {
        let len = UDP + payload.len();
        let mut udp = [0; UDP];
        self.udp_header(&mut udp, to, payload.len())?;
        if self.checksum != Checksum::Omitted {
            let sum = addresses.pseudo_header(IpProtocol::UDP, len).bytes(&udp).bytes(payload);
            udp[CHECKSUM_AT..].copy_from_slice(&transmitted(sum));
        }
        // What stands before the datagram's part in each packet.
        let headers = match addresses {
            Addresses::V4 { .. } => 20,
            Addresses::V6 { .. } => 40 + bypath_wire::ipv6_ext::FRAGMENT_LEN,
        };
        // All parts but the last are multiples of 8. The least MTUs leave room for some.
        let room = self.mtu().saturating_sub(headers).max(8) & !7;
        // All fragments of a datagram have one identification.
        let identification = self.identification;
        let mut offset = 0;
        while offset < len {
            let end = len.min(offset + room);
            self.identification = identification;
            let mut head = [0; header::MOST];
            let piece = Piece { offset, more: end < len };
            let vnet = VnetHeader::default();
            let at = self.network_header(&mut head, addresses, end - offset, &vnet, Some(piece))?;
            // The UDP header is the datagram's first eight octets, and so within the first fragment.
            let (first, rest) = if offset == 0 { (&udp[..], 0) } else { (&[][..], offset - UDP) };
            let pieces =
                [IoSlice::new(&head[..at]), IoSlice::new(first), IoSlice::new(&payload[rest..end - UDP])];
            self.written(at + end - offset, self.device.write_pieces(&pieces))?;
            offset = end;
        }
        Ok(())
    }
}
