//! What the network says of segments that were sent (RFC 5927): believed if what it quotes is on its way.

use super::ends::Ends;
use super::settle::Before;
use super::table::Whose;
use crate::Stack;
use crate::icmp::quoted::Quoted;
use crate::iface::IfaceId;
use crate::socket::SocketError;
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;

impl Stack {
    /// The connection that has sent what is quoted, if that is on its way (RFC 5927, 4.1: `SND.UNA =< SEG.SEQ < SND.NXT`).
    pub(crate) fn sender_of(&self, quoted: &Quoted<'_>, through: IfaceId) -> Option<u32> {
        let (local, remote) = quoted.ports()?;
        let [a, b, c, d] = *quoted.payload.get(4..)?.first_chunk()?;
        let ends = Ends::new(quoted.addresses, local, remote, through);
        let Some(Whose::Connection(index)) = self.tcp.find(&ends) else { return None };
        let seq = SeqNumber(u32::from_be_bytes([a, b, c, d]));
        self.tcp.entry(index).filter(|entry| entry.connection.is_on_its_way(seq)).map(|_| index)
    }

    /// A segment did not get there. DEVIATION RFC 1122 4.2.3.9: a network or a host that cannot be reached ends a connection that
    /// is not open yet, as in Linux (RFC 5461, 4.1); one that is open goes on trying.
    pub(crate) fn segment_failed(&mut self, now: Instant, index: u32, error: SocketError) {
        let Some(entry) = self.tcp.entry_mut(index) else { return };
        let before = Before::of(entry);
        if !entry.connection.network_failed(error) {
            entry.said = Some(error);
        }
        self.settle(now, index, &before);
    }

    /// A segment was too long for a link on its way, which is known of its destination by now.
    pub(crate) fn segment_too_big(&mut self, now: Instant, index: u32) {
        let Some(entry) = self.tcp.entry(index) else { return };
        let before = Before::of(entry);
        self.find_way(now, index);
        self.settle(now, index, &before);
    }
}
