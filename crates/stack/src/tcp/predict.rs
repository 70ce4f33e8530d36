//! Segments that are for the connection that the one before was for, and that are what is expected of it (header prediction, after
//! Van Jacobson): what was looked at in the headers before is only compared.
//!
//! Nothing is decided here that is not decided elsewhere: what is not as expected in any way goes the ordinary way.

use super::direct::Direct;
use super::input::{Arrival, Says};
use super::settle::Before;
use super::table::{NEVER, Owner, tell};
use super::tcb::{Connection, State};
use crate::Stack;
use crate::iface::{IfaceId, Medium};
use crate::time::Instant;
use bypath_wire::checksum::Sum;
use bypath_wire::meta::ChecksumState;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{self, TcpFlags, TcpHeader};
use bypath_wire::{EtherType, FrameMeta, IpProtocol, ethernet, ipv4, ipv6};

/// NOP, NOP, timestamps, of ten octets: how RFC 7323, appendix A, wants it.
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
/// Octets of a header with these.
const WITH_TIMESTAMPS: usize = tcp::HEADER_LEN + 12;

/// The headers of a frame whose segment was a connection's.
#[derive(Debug)]
pub(crate) struct Known {
    /// Of the stack when it came; 0: there is none.
    pub generation: u64,
    through: IfaceId,
    index: u32,
    v6: bool,
    /// `None`: links without a header.
    link: Option<[u8; ethernet::HEADER_LEN]>,
    /// Addresses and ports: 12 octets of IPv4, 36 of IPv6.
    ends: [u8; 36],
    /// Of the pseudo header, without a length.
    pseudo: Sum,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            generation: 0,
            through: IfaceId::LOOPBACK,
            index: 0,
            v6: false,
            link: None,
            ends: [0; 36],
            pseudo: Sum::new(),
        }
    }
}

/// What stands in a segment.
#[derive(Clone, Copy, Debug)]
struct Fields {
    seq: SeqNumber,
    ack: SeqNumber,
    window: u16,
    /// TSval and TSecr.
    timestamps: Option<(u32, u32)>,
}

/// An IP packet with nothing before its segment but a header without options: octets of the header, and of header and segment.
/// `None`: it is another one, or one that has to be looked at.
#[inline(always)]
fn plain(packet: &[u8], v6: bool) -> Option<(usize, usize)> {
    if v6 {
        let head: &[u8; ipv6::HEADER_LEN] = packet.first_chunk()?;
        let class = u16::from_be_bytes([head[0], head[1]]);
        let len = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
        // Version 6, and not marked.
        let fits = class >> 12 == 6 && class & 0x30 != 0x30 && head[6] == IpProtocol::TCP.0;
        return (fits && len <= packet.len()).then_some((ipv6::HEADER_LEN, len));
    }
    let head: &[u8; ipv4::HEADER_LEN] = packet.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    // Version 4, no options; not marked; no fragment.
    let fits = head[0] == 0x45
        && head[1] & 3 != 3
        && head[6] & 0xbf == 0
        && head[7] == 0
        && head[9] == IpProtocol::TCP.0;
    let whole = (ipv4::HEADER_LEN..=packet.len()).contains(&len);
    (fits && whole && Sum::new().array(head).is_valid()).then_some((ipv4::HEADER_LEN, len))
}

/// Addresses and ports.
#[inline(always)]
fn ends(packet: &[u8], v6: bool) -> Option<&[u8]> {
    if v6 { packet.get(8..44) } else { packet.get(12..24) }
}

impl Stack {
    /// Remembers the headers of a frame whose segment was just given to the connection at this place.
    pub(crate) fn learn(&mut self, through: IfaceId, frame: &[u8], meta: &FrameMeta, index: u32) {
        self.tcp.known.generation = 0;
        let link = match self.ifaces[through.at()].shape.medium {
            Medium::Ip => None,
            Medium::Ethernet(_) => frame.first_chunk::<{ ethernet::HEADER_LEN }>(),
        };
        let packet = if link.is_some() { &frame[ethernet::HEADER_LEN..] } else { frame };
        let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        // Neither a tag, nor extension headers or options; no fragment, either.
        let untagged = meta.vlan.is_none() && link.is_none_or(|link| link[12..] == ethertype.0.to_be_bytes());
        if !untagged || plain(packet, v6).is_none() {
            return;
        }
        let (Some(found), Some(entry)) =
            (ends(packet, v6), self.tcp.entry(index).filter(|entry| entry.entered))
        else {
            return;
        };
        let mut known = Known {
            generation: self.generation,
            through,
            index,
            v6,
            link: link.copied(),
            ends: [0; 36],
            pseudo: entry.ends.addresses.pseudo_header(IpProtocol::TCP, 0),
        };
        known.ends[..found.len()].copy_from_slice(found);
        self.tcp.known = known;
    }

    /// Takes a frame with the headers of the one before. False: it is another one, and nothing has happened.
    #[inline]
    pub(crate) fn predicted(
        &mut self,
        now: Instant,
        through: IfaceId,
        frame: &[u8],
        meta: &FrameMeta,
        direct: &mut dyn Direct,
    ) -> bool {
        let known = &self.tcp.known;
        if known.generation != self.generation
            || known.through != through
            || meta.vlan.is_some()
            || !self.raw.is_empty()
        {
            return false;
        }
        let (index, v6, pseudo) = (known.index, known.v6, known.pseudo);
        let packet = match &known.link {
            None => frame,
            Some(link) => match frame.split_first_chunk() {
                Some((found, packet)) if found == link => packet,
                _ => return false,
            },
        };
        let same = match ends(packet, v6) {
            Some(found) if v6 => *found == known.ends,
            Some(found) => *found == known.ends[..12],
            None => false,
        };
        let Some((ip, len)) = plain(packet, v6).filter(|_| same) else { return false };
        let segment = &packet[ip..len];
        let summed = meta.checksum == ChecksumState::Unknown;
        let pseudo = pseudo.word(segment.len() as u16);
        let segments = super::arrive::segments(meta.gso.as_ref(), segment);
        if !self.take_expected(now, index, segment, segments, summed.then_some(pseudo), direct) {
            // Not what was expected, but of this connection.
            let Ok((header, payload)) = TcpHeader::parse(segment) else { return false };
            if summed && !pseudo.bytes(segment).is_valid() {
                return false;
            }
            self.tcp.clock = now;
            let options = header.options.known();
            let arrival = Arrival { header: &header, options: &options, payload, marked: false, segments };
            self.segment(now, index, &arrival);
        }
        let counters = &mut self.counters;
        counters.link_received += 1;
        counters.tcp_received += 1;
        *(if v6 { &mut counters.ipv6_received } else { &mut counters.ipv4_received }) += 1;
        true
    }

    /// Takes a segment that carries the next octets, or acknowledges some, or both, and says nothing else; `sum`: of the pseudo header,
    /// if the checksum is to be looked at. False: it is another one, and nothing has happened.
    #[inline(always)]
    fn take_expected(
        &mut self,
        now: Instant,
        index: u32,
        segment: &[u8],
        segments: u32,
        sum: Option<Sum>,
        direct: &mut dyn Direct,
    ) -> bool {
        let id = self.tcp.id(index);
        let Some(entry) = self.tcp.entry_mut(index) else { return false };
        let Some((header, fields, payload)) = fields(segment, entry.connection.timestamps.is_some()) else {
            return false;
        };
        let expected = match entry.connection.expects(&fields, payload.len()) {
            Some(expected) if entry.owner == Owner::Application => expected,
            _ => return false,
        };
        let len = payload.len();
        let taken = entry.connection.rx.is_empty() && len > 0 && direct.room(id) >= len;
        if !taken && !entry.connection.rx.has_memory(len) {
            return false;
        }
        match sum {
            // Looked at before anybody has it.
            Some(sum) if taken && !header_sum(sum, header).bytes(payload).is_valid() => return false,
            _ if taken => direct.take(id, payload),
            None => entry.connection.rx.write_ahead(0, payload),
            Some(sum) => {
                let sum = header_sum(sum, header);
                // Memory ahead of the queue is nobody's: what was copied there in vain was not copied.
                let sum =
                    if payload.is_empty() { sum } else { entry.connection.rx.write_summed(payload, sum) };
                if !sum.is_valid() {
                    return false;
                }
            }
        }
        entry.segments_in += u64::from(segments);
        if expected == Expected::Answer {
            let before = Before::of(entry);
            entry.connection.take_answer(now, &fields, len as u32, segments, taken);
            let confirms = entry.confirms <= now || entry.confirms == NEVER;
            if taken && entry.connection.tunes() {
                self.tune(now, index, len);
            }
            self.tcp.clock = now;
            if confirms {
                self.confirm(now, index);
            }
            self.settle(now, index, &before);
            return true;
        }
        entry.connection.take_expected(now, &fields, len as u32, segments, taken);
        let entry = if taken && entry.connection.tunes() {
            self.tune(now, index, len);
            let Some(entry) = self.tcp.entry_mut(index) else { return true };
            entry
        } else {
            entry
        };
        let due = entry.connection.deadlines.ack.is_some_and(|due| due < entry.due);
        let speaks = entry.connection.wanted.ack && !entry.listed;
        if !entry.ready.readable
            && !taken
            && let Some(entry) = self.tcp.entry_mut(index)
        {
            tell(&mut entry.ready, id, &mut self.ready, |news| news.readable = true);
        }
        self.tcp.clock = now;
        if due {
            self.rearm(index);
        }
        if speaks {
            self.list(index);
        }
        true
    }
}

/// Adds a header that has timestamps and nothing else, or no options.
#[inline(always)]
fn header_sum(sum: Sum, header: &[u8]) -> Sum {
    match header.first_chunk::<WITH_TIMESTAMPS>() {
        Some(header) => sum.array(header),
        None => header.first_chunk::<{ tcp::HEADER_LEN }>().map_or(sum, |header| sum.array(header)),
    }
}

/// Header, what stands in it, and payload of a segment with an acknowledgement and perhaps octets, and nothing else; `timestamps`: it
/// has to have them, or must not.
#[inline(always)]
fn fields(segment: &[u8], timestamps: bool) -> Option<(&[u8], Fields, &[u8])> {
    let head: &[u8; tcp::HEADER_LEN] = segment.first_chunk()?;
    let long = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let bits = u16::from_be_bytes([head[12], head[13]]);
    let len = if timestamps { WITH_TIMESTAMPS } else { tcp::HEADER_LEN };
    let flags = TcpFlags::from_bits(bits).without(TcpFlags::PSH);
    if usize::from(bits >> 12) * 4 != len || flags != TcpFlags::ACK || segment.len() < len {
        return None;
    }
    let mut fields = Fields {
        seq: SeqNumber(long(4)),
        ack: SeqNumber(long(8)),
        window: u16::from_be_bytes([head[14], head[15]]),
        timestamps: None,
    };
    let (header, payload) = segment.split_at(len);
    if timestamps {
        let [kind, value, echo] = header[tcp::HEADER_LEN..].as_chunks::<4>().0 else { return None };
        if *kind != TIMESTAMPS {
            return None;
        }
        fields.timestamps = Some((u32::from_be_bytes(*value), u32::from_be_bytes(*echo)));
    }
    Some((header, fields, payload))
}

/// What a segment is that says nothing new but this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// It brings the next octets; nothing of ours waits for an acknowledgement.
    Octets,
    /// It acknowledges what was not, and may bring the next octets.
    Answer,
}

impl Connection {
    /// What a segment with these fields is that brings `len` octets. `None`: it is another one.
    #[inline(always)]
    fn expects(&self, fields: &Fields, len: usize) -> Option<Expected> {
        let newer = match (self.timestamps, fields.timestamps) {
            (Some(ts), Some((value, _))) => value.wrapping_sub(ts.recent) as i32 >= 0,
            (None, None) => true,
            _ => false,
        };
        let fits = self.state == State::Established
            && newer
            && fields.seq == self.rcv.nxt
            // Nothing is missing, nor to be told but that octets came.
            && !self.ahead.has_news()
            && !self.deaf
            && self.urgent.is_none()
            && self.rcv.fin.is_none()
            && len <= self.rcv.edge.distance(self.rcv.nxt).max(0) as usize;
        if !fits {
            return None;
        }
        if fields.ack.after(self.snd.una) {
            return fields.ack.at_or_before(self.snd.nxt).then_some(Expected::Answer);
        }
        // Nothing of ours waits to be acknowledged, or to be sent.
        let quiet = fields.ack == self.snd.una
            && len > 0
            && self.sent.is_empty()
            && self.tx.is_empty()
            && !self.finished
            && u32::from(fields.window) << self.snd.shift == self.snd.wnd;
        quiet.then_some(Expected::Octets)
    }

    /// What `input.rs` does with an answer; its octets lie ahead of the queue, or were taken.
    #[inline(always)]
    fn take_answer(&mut self, now: Instant, fields: &Fields, len: u32, segments: u32, taken: bool) {
        self.more.waits = false;
        let says = Says {
            seq: fields.seq,
            ack: fields.ack,
            window: fields.window,
            echo: fields.timestamps.map(|(_, echo)| echo),
            sack: &[],
            ece: false,
            fin: false,
            brings: len > 0,
        };
        self.acknowledge(now, &says);
        self.heard = now;
        self.note_timestamp(now, fields.seq, fields.timestamps.map(|(value, _)| value));
        self.next_came(now, len, segments, taken);
    }

    /// What `input.rs` does with such a segment; its octets lie ahead of the queue, or were taken.
    #[inline(always)]
    fn take_expected(&mut self, now: Instant, fields: &Fields, len: u32, segments: u32, taken: bool) {
        self.note_echo(now, fields.timestamps.map(|(_, echo)| echo.wrapping_sub(self.ts_offset)));
        (self.snd.wl1, self.snd.wl2) = (fields.seq, fields.ack);
        if self.snd.wnd > 0 {
            self.tries = 0;
        }
        self.more.waits = false;
        self.waiting = None;
        self.deadlines.resend = None;
        self.heard = now;
        self.note_timestamp(now, fields.seq, fields.timestamps.map(|(value, _)| value));
        self.next_came(now, len, segments, taken);
    }

    #[inline(always)]
    fn next_came(&mut self, now: Instant, len: u32, segments: u32, taken: bool) {
        if taken {
            self.came_and_went(now, len);
        } else if len > 0 {
            self.more_came(now, len, 0, false);
        }
        self.came_together(segments);
    }
}
