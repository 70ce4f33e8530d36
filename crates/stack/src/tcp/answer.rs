//! Segments of no connection: resets, cookies, and acknowledgements of connections that were. They go through the queue of the
//! interface, as other answers of the stack do.

use super::ends::Ends;
use super::input::Arrival;
use super::table::{Options, Way};
use super::time_wait::Waiting;
use crate::Stack;
use crate::egress::{Fragmentation, Kind, Outgoing};
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::path::{Reach, Unreachable};
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::{TcpOption, TcpOptions};
use bypath_wire::{IpProtocol, ipv4, ipv6, tcp};

/// A header without ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    pub flags: TcpFlags,
    pub window: u16,
    pub options: TcpOptions,
}

/// Octets of payload that a segment has at most, without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// By the interface, or the route: what the other side is told (RFC 9293, 3.7.1).
    pub link: u16,
    /// By what is known of the path.
    pub path: u16,
    /// Segments of the first window, if the route says so.
    pub initial_window: Option<u16>,
}

impl Stack {
    /// The way between two ends, and the sizes of segments there.
    ///
    /// # Errors
    /// [`Unreachable`]: also where our end is not ours any more.
    pub(crate) fn tcp_way(
        &self,
        ends: &Ends,
        options: &Options,
        foreign: bool,
    ) -> Result<(Way, Sizes), Unreachable> {
        let (from, to) = (ends.addresses.source(), ends.addresses.destination());
        // What we send to ourselves is on no link.
        let iface = options.iface.or(ends.iface()).filter(|iface| *iface != IfaceId::LOOPBACK);
        if !foreign && !self.is_local(from, iface) {
            return Err(Unreachable::NotOurs);
        }
        let path = self.path(to, iface, Some(from))?;
        if !matches!(path.reach, Reach::Host | Reach::Own) {
            return Err(Unreachable::Route);
        }
        // A loopback address is on no link (RFC 1122, 3.2.1.3 g; RFC 4291, 2.5.3).
        if from.is_loopback() && path.iface != IfaceId::LOOPBACK {
            return Err(Unreachable::Source);
        }
        let hop = self.hop_to(&path, to);
        let way = Way { generation: self.generation, iface: path.iface, hop, lost: false };
        let link = size(self.ifaces[path.iface.at()].mtu(to.is_ipv6()), to.is_ipv6());
        let metrics = self.routes.metrics(to);
        let sizes = Sizes {
            link: metrics.mss.map_or(link, |mss| mss.min(link)),
            path: size(self.segment_mtu(&path, to), to.is_ipv6()).min(link),
            initial_window: metrics.initial_window.filter(|segments| *segments > 0),
        };
        Ok((way, sizes))
    }

    /// Sends a segment of no connection.
    pub(super) fn answer(&mut self, ends: &Ends, options: &Options, foreign: bool, header: &Header) {
        let Ok((way, _)) = self.tcp_way(ends, options, foreign) else {
            self.counters.tcp_drop_unreachable += 1;
            return;
        };
        let mut whole = TcpHeader::new(ends.local_port, ends.remote_port);
        (whole.seq, whole.ack, whole.flags) = (header.seq, header.ack, header.flags);
        (whole.window, whole.options) = (header.window, header.options);
        let outgoing = Outgoing {
            iface: way.iface,
            hop: way.hop,
            addresses: ends.addresses,
            hops: options.hop_limit.unwrap_or(self.config.hop_limit).max(1),
            class: options.class,
            fragmentation: Fragmentation::Here,
            mtu: u32::MAX,
            kind: Kind::Ip { protocol: IpProtocol::TCP, router_alert: false },
            owner: None,
            whom: 0,
        };
        let sent = self.enqueue(outgoing, whole.len(), |room| {
            let _fits = whole.emit_with(room, &ends.addresses, &[]);
        });
        self.counters.tcp_sent += u64::from(sent);
    }

    /// A segment to nobody is answered with a reset (RFC 9293, 3.10.7.1).
    pub(super) fn refuse(&mut self, packet: &Packet<'_>, ends: &Ends, arrival: &Arrival<'_>) {
        let header = arrival.header;
        // "An incoming segment containing a RST is discarded."
        if header.flags.has(TcpFlags::RST) {
            return;
        }
        // "If the ACK bit is off, sequence number zero is used, <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the ACK bit is
        // on, <SEQ=SEG.ACK><CTL=RST>."
        let (seq, ack, flags) = if header.flags.has(TcpFlags::ACK) {
            (header.ack, SeqNumber(0), TcpFlags::RST)
        } else {
            let end = header.seq + header.sequence_len(arrival.payload.len());
            (SeqNumber(0), end, TcpFlags::RST | TcpFlags::ACK)
        };
        let reset = Header { seq, ack, flags, window: 0, options: TcpOptions::new() };
        self.answer(ends, &Options::default(), packet.foreign, &reset);
        self.counters.tcp_resets_sent += 1;
    }

    /// Acknowledges once more what a connection got that was.
    pub(super) fn acknowledge_again(&mut self, now: Instant, foreign: bool, waiting: &Waiting) {
        let mut options = TcpOptions::new();
        if let Some(ts) = waiting.timestamps {
            let value = super::tcb::milliseconds(now).wrapping_add(waiting.ts_offset);
            let _fits = options.push(&TcpOption::Nop)
                && options.push(&TcpOption::Nop)
                && options.push(&TcpOption::Timestamps { value, echo: ts.recent });
        }
        let Waiting { snd_nxt, rcv_nxt, window, .. } = *waiting;
        let header = Header { seq: snd_nxt, ack: rcv_nxt, flags: TcpFlags::ACK, window, options };
        self.answer(&waiting.ends, &Options::default(), foreign, &header);
    }
}

/// Octets of payload of a segment in packets of that many: 65,535 octets, in IPv4 with its header, in IPv6 without.
fn size(mtu: u32, v6: bool) -> u16 {
    let ip = if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN } as u32;
    let longest = if v6 { 65_535 + ip } else { 65_535 };
    mtu.min(longest).saturating_sub(ip + tcp::HEADER_LEN as u32).max(1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_packets_have_beside_their_headers() {
        for (mtu, v4, v6) in
            [(1500, 1460, 1440), (65_575, 65_495, 65_515), (65_535, 65_495, 65_475), (68, 28, 8)]
        {
            assert_eq!((size(mtu, false), size(mtu, true)), (v4, v6), "{mtu}");
        }
    }
}
