//! Frames whose end stays where it is: long payloads of connections need not be copied behind their headers for links that take a
//! frame in pieces.

use crate::Stack;
use crate::iface::IfaceId;
use crate::time::Instant;
use bypath_wire::Apart;
use bypath_wire::seq::SeqNumber;

/// Octets in a connection's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// Whose they are, as far as that can be told without a look: its place, and its initial sequence number.
    pub index: u32,
    pub iss: SeqNumber,
    pub seq: SeqNumber,
    pub len: u32,
}

impl Stack {
    /// As [`poll_transmit`](Stack::poll_transmit), but long payloads of TCP are told instead of written, where the link computes
    /// checksums. `room` has place for the whole frame all the same.
    pub fn poll_transmit_apart(&mut self, now: Instant, link: IfaceId, room: &mut [u8]) -> Option<Apart<'_>> {
        self.behind = None;
        let (len, meta) = self.transmit(now, link, true, room)?.facts();
        self.counters.link_sent += 1;
        let behind = match self.behind.take() {
            None => (&[][..], &[][..]),
            Some(Behind { index, iss, seq, len }) => {
                let entry = self.tcp.entry(index).filter(|entry| entry.connection.first_number() == iss);
                // They are there until they are acknowledged.
                entry.and_then(|entry| entry.connection.octets_at(seq, len))?
            }
        };
        Some(Apart { len, behind, meta })
    }
}
