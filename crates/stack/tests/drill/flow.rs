//! One connection as the script sees it: which numbers of the script stand for which on the wire.

use super::host::Came;
use super::script::{Segment, TcpOption};
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::{self, TcpOptions};
use std::collections::HashMap;

/// The other side's numbers are so much ahead of the script's: they go around early.
const AHEAD: u32 = 0xffff_f000;

/// Letters of flags.
const LETTERS: [(TcpFlags, char); 9] = [
    (TcpFlags::FIN, 'F'),
    (TcpFlags::SYN, 'S'),
    (TcpFlags::RST, 'R'),
    (TcpFlags::PSH, 'P'),
    (TcpFlags::ACK, '.'),
    (TcpFlags::URG, 'U'),
    (TcpFlags::ECE, 'E'),
    (TcpFlags::CWR, 'W'),
    (TcpFlags::AE, 'A'),
];

#[derive(Default)]
pub struct Flow {
    pub local_port: u16,
    pub remote_port: u16,
    /// What the stack's numbers are ahead of the script's; `None`: no SYN of it was compared yet.
    ahead: Option<u32>,
    /// The same of its timestamps, and what stands for what where scripts take them as they come.
    clock_ahead: Option<u32>,
    stamps: HashMap<u32, u32>,
    /// The script's numbers of both SYNs: octets of the stream begin behind.
    pub first: u32,
    pub other_first: u32,
}

/// The octet at a place of a stream.
pub fn octet(at: u32) -> u8 {
    let at = at as usize;
    (at * 7 + at / 251) as u8
}

impl Flow {
    pub fn new(local_port: u16, remote_port: u16) -> Flow {
        Flow { local_port, remote_port, ..Flow::default() }
    }

    /// The segment that the script lets the other side send.
    pub fn inbound(&self, segment: &Segment) -> Result<(TcpHeader, Vec<u8>), String> {
        let mut header = TcpHeader::new(self.remote_port, self.local_port);
        header.flags = flags(&segment.flags);
        header.seq = SeqNumber(segment.seq.wrapping_add(AHEAD));
        header.ack = SeqNumber(segment.ack.map_or(0, |ack| ack.wrapping_add(self.ahead.unwrap_or(0))));
        (header.window, header.urgent) = (segment.window.unwrap_or(0), segment.urgent);
        let options = segment.options.as_deref().unwrap_or_default();
        let bytes = octets(options, self.ahead.unwrap_or(0), &|value, echo| {
            let echoed = match (self.stamps.get(&echo), self.clock_ahead) {
                (Some(live), _) => *live,
                (None, Some(ahead)) => echo.wrapping_add(ahead),
                (None, None) => echo,
            };
            (value, echoed)
        });
        header.options =
            TcpOptions::from_bytes(&bytes).ok_or_else(|| "options of more than 40 octets".to_string())?;
        let from = segment.seq.wrapping_sub(self.other_first).wrapping_sub(1);
        let from = if header.flags.has(TcpFlags::SYN) { from.wrapping_add(1) } else { from };
        Ok((header, (0..segment.len).map(|n| octet(from.wrapping_add(n))).collect()))
    }

    /// A header of ours with this number, as ICMP quotes it.
    pub fn quoted(&self, seq: u32) -> TcpHeader {
        let mut header = TcpHeader::new(self.local_port, self.remote_port);
        header.seq = SeqNumber(seq.wrapping_add(self.ahead.unwrap_or(0)));
        header
    }

    /// What came, in the script's words.
    pub fn outbound(&self, came: &Came) -> Segment {
        let header = &came.header;
        let letters = LETTERS.iter().filter(|(flag, _)| header.flags.has(*flag)).map(|(_, letter)| letter);
        let ahead = self.ahead.unwrap_or(header.seq.0);
        Segment {
            inbound: false,
            ports: None,
            ecn: Some(came.ecn),
            capable: false,
            flags: letters.collect(),
            seq: header.seq.0.wrapping_sub(ahead),
            len: came.payload.len() as u32,
            ack: header.flags.has(TcpFlags::ACK).then(|| header.ack.0.wrapping_sub(AHEAD)),
            window: Some(header.window),
            urgent: header.urgent,
            options: Some(self.read_options(header)),
        }
    }

    fn read_options(&self, header: &TcpHeader) -> Vec<TcpOption> {
        let clock_ahead = |value: u32| self.clock_ahead.unwrap_or(value);
        let mut all = Vec::new();
        for option in header.options.iter().flatten() {
            all.push(match option {
                tcp_options::TcpOption::Nop => TcpOption::Nop,
                tcp_options::TcpOption::MaxSegmentSize(size) => TcpOption::Mss(size),
                tcp_options::TcpOption::WindowScale(shift) => TcpOption::WindowScale(shift),
                tcp_options::TcpOption::SackPermitted => TcpOption::SackOk,
                tcp_options::TcpOption::Sack(blocks) => TcpOption::Sack(
                    blocks
                        .as_slice()
                        .iter()
                        .map(|b| (b.left.0.wrapping_sub(AHEAD), b.right.0.wrapping_sub(AHEAD)))
                        .collect(),
                ),
                tcp_options::TcpOption::Timestamps { value, echo } => {
                    TcpOption::Timestamps(value.wrapping_sub(clock_ahead(value)), echo)
                }
                tcp_options::TcpOption::Other { kind, data } => {
                    let mut octets = vec![kind, data.len() as u8 + 2];
                    octets.extend_from_slice(data);
                    TcpOption::Octets(octets)
                }
            });
        }
        all
    }

    /// Learns from the first segment that is expected, or from a SYN that begins anew.
    pub fn learn(&mut self, expected: &Segment, came: &Came, anew: bool) {
        let header = &came.header;
        let known = self.ahead.is_some() && !anew;
        if header.flags.has(TcpFlags::SYN) && expected.flags.contains('S') && !known {
            self.ahead = Some(header.seq.0.wrapping_sub(expected.seq));
            self.first = expected.seq;
        }
        let stamped = header.options.known().timestamps;
        let said = expected.options.iter().flatten().find_map(|option| match option {
            TcpOption::Timestamps(value, _) => Some(*value),
            _ => None,
        });
        if let (Some((live, _)), Some(said)) = (stamped, said) {
            self.clock_ahead.get_or_insert(live.wrapping_sub(said));
            self.stamps.insert(said, live);
        }
    }

    /// Whether what came is what the script expects; what differs. `loose`: timestamps are taken as they come.
    pub fn compare(&self, expected: &Segment, came: &Came, loose: bool) -> Result<(), &'static str> {
        let (header, found) = (&came.header, self.outbound(came));
        if sorted(&expected.flags) != sorted(&found.flags) {
            return Err("flags");
        }
        // A segment of nobody has no number that the script could know.
        let bare = header.flags.has(TcpFlags::RST) && (self.ahead.is_none() || header.seq.0 == 0);
        if expected.seq != found.seq && !(bare && expected.seq == header.seq.0) {
            return Err("sequence number");
        }
        if expected.len != found.len {
            return Err("length");
        }
        if expected.ack != found.ack {
            return Err("acknowledgement");
        }
        if expected.window.is_some_and(|window| window != header.window) {
            return Err("window");
        }
        if expected.urgent != header.urgent {
            return Err("urgent pointer");
        }
        let marked = came.ecn == 1 || came.ecn == 2;
        if expected.ecn.is_some_and(|ecn| ecn != came.ecn) || expected.capable && !marked {
            return Err("ECN");
        }
        let Some(options) = &expected.options else { return Ok(()) };
        let stamped = header.options.known().timestamps;
        let wanted = octets(options, AHEAD, &|value, echo| match (loose, stamped) {
            (true, Some((live, _))) => (live, echo),
            _ => (value.wrapping_add(self.clock_ahead.unwrap_or(0)), echo),
        });
        let mut padded = header.options.padded().to_vec();
        padded.resize(padded.len().max(wanted.len()), 0);
        if padded != wanted { Err("options") } else { Ok(()) }
    }

    /// Whether the octets are those that were written there.
    pub fn carries_the_stream(&self, seq: u32, came: &Came) -> bool {
        let from = seq.wrapping_sub(self.first).wrapping_sub(1);
        came.payload.iter().enumerate().all(|(n, found)| *found == octet(from.wrapping_add(n as u32)))
    }
}

fn sorted(flags: &str) -> Vec<char> {
    let mut all: Vec<char> = flags.chars().collect();
    all.sort_unstable();
    all
}

pub fn flags(letters: &str) -> TcpFlags {
    LETTERS
        .iter()
        .filter(|(_, letter)| letters.contains(*letter))
        .fold(TcpFlags::NONE, |all, (flag, _)| all | *flag)
}

/// Options as they stand in a header, with zeros up to a multiple of four. `ahead`: of the numbers in SACK blocks.
fn octets(options: &[TcpOption], ahead: u32, stamps: &dyn Fn(u32, u32) -> (u32, u32)) -> Vec<u8> {
    let mut all = Vec::new();
    for option in options {
        match option {
            TcpOption::Nop => all.push(1),
            TcpOption::Eol => all.push(0),
            TcpOption::Mss(size) => {
                all.extend([2, 4]);
                all.extend(size.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => all.extend([3, 3, *shift]),
            TcpOption::SackOk => all.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                all.extend([5, 2 + 8 * blocks.len() as u8]);
                for edge in blocks.iter().flat_map(|(left, right)| [left, right]) {
                    all.extend(edge.wrapping_add(ahead).to_be_bytes());
                }
            }
            TcpOption::Timestamps(value, echo) => {
                let (value, echo) = stamps(*value, *echo);
                all.extend([8, 10]);
                all.extend(value.to_be_bytes());
                all.extend(echo.to_be_bytes());
            }
            TcpOption::Octets(octets) => all.extend(octets),
        }
    }
    all.resize(all.len().next_multiple_of(4), 0);
    all
}
