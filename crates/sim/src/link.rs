//! Links: Ethernet segments that several hosts are on, as a switch joins them, and what goes wrong on them.

use crate::NodeId;
use crate::dice::Dice;
use bypath_wire::{EthernetHeader, MacAddr};
use std::ops::Range;
use std::time::Duration;

/// What happens to frames by chance. Probabilities are per frame and receiver, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// That it is lost.
    pub loss: f64,
    /// That it comes twice.
    pub duplication: f64,
    /// That one bit of its IP packet is cleared. One that only ever clears cannot fool the Internet checksum with a second one
    /// that sets. ARP has no checksum: what is wrong there, the check sequence of Ethernet finds.
    pub corruption: f64,
    /// That it comes late, by up to [`late`](Faults::late).
    pub reordering: f64,
    /// How late at most.
    pub late: Duration,
    /// Every frame takes up to so much longer.
    pub jitter: Duration,
    /// That a packet is marked whose sender lets routers do that (RFC 3168, 5).
    pub marks: f64,
}

/// Something that is otherwise for a while.
#[derive(Clone, Debug)]
pub enum Change {
    /// Other faults than the link's own.
    Faults(Faults),
    /// Nothing passes.
    Down,
    /// Nothing passes between these nodes and the others.
    Cut(Vec<NodeId>),
}

/// How a link is.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// One way.
    pub delay: Duration,
    /// Bits in a second that each port takes; `None`: any number.
    pub bandwidth: Option<u64>,
    /// Octets that wait at a port at most; what comes beyond is lost.
    pub queue: usize,
    /// Octets of a packet at most.
    pub mtu: usize,
    /// What goes wrong, unless a [`Change`] says otherwise.
    pub faults: Faults,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            delay: Duration::from_micros(50),
            bandwidth: None,
            queue: 256 << 10,
            mtu: 1500,
            faults: Faults::default(),
        }
    }
}

/// What happened on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Frames that nodes put on it.
    pub sent: u64,
    /// Frames that it gave to nodes, copies included.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Lost because it was down, or cut between two nodes.
    pub cut: u64,
    /// Lost because the port's queue was full.
    pub overflowed: u64,
    /// Copies made by chance.
    pub duplicated: u64,
    /// Frames with a wrong bit.
    pub corrupted: u64,
}

/// A node's end of a link.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub node: NodeId,
    /// Which of the node's ports.
    pub port: usize,
    pub mac: MacAddr,
    /// The last octet that waits is on the wire then.
    busy: u64,
}

/// A frame on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub at: u64,
    pub to: (NodeId, usize),
    pub frame: Vec<u8>,
    pub corrupted: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub config: LinkConfig,
    pub ends: Vec<End>,
    pub counters: LinkCounters,
    changes: Vec<(Range<u64>, Change)>,
    dice: Dice,
}

impl Link {
    pub fn new(config: LinkConfig, dice: Dice) -> Link {
        Link { config, ends: Vec::new(), counters: LinkCounters::default(), changes: Vec::new(), dice }
    }

    pub fn attach(&mut self, node: NodeId, port: usize, mac: MacAddr) {
        self.ends.push(End { node, port, mac, busy: 0 });
    }

    pub fn change(&mut self, during: Range<u64>, change: Change) {
        self.changes.push((during, change));
    }

    /// Puts a frame on the link. What becomes of it, and a remark if that is not what the sender wants.
    pub fn send(
        &mut self,
        now: u64,
        from: (NodeId, usize),
        frame: &[u8],
        flights: &mut Vec<Flight>,
    ) -> String {
        self.counters.sent += 1;
        let mut remark = String::new();
        let Some(end) = self.ends.iter_mut().find(|end| (end.node, end.port) == from) else { return remark };
        // Preamble, check sequence and gap are left out.
        let wire = self.config.bandwidth.map_or(0, |rate| frame.len() as u64 * 8_000_000_000 / rate.max(1));
        let begin = end.busy.max(now);
        let waits = self
            .config
            .bandwidth
            .map_or(0, |rate| (u128::from(begin - now) * u128::from(rate) / 8_000_000_000) as usize);
        if waits > self.config.queue {
            self.counters.overflowed += 1;
            return String::from("lost: the queue was full");
        }
        end.busy = begin + wire;
        let gone = end.busy;
        let target =
            EthernetHeader::parse(frame).map_or(MacAddr::BROADCAST, |(header, _)| header.destination);
        let known = self.ends.iter().any(|end| end.mac == target);
        for at in 0..self.ends.len() {
            let end = &self.ends[at];
            let to = (end.node, end.port);
            if to == from || known && end.mac != target {
                continue;
            }
            self.pass(now, gone, from.0, to, frame, flights, &mut remark);
        }
        remark
    }

    #[expect(clippy::too_many_arguments, reason = "one receiver's part of `send`")]
    fn pass(
        &mut self,
        now: u64,
        gone: u64,
        from: NodeId,
        to: (NodeId, usize),
        frame: &[u8],
        flights: &mut Vec<Flight>,
        remark: &mut String,
    ) {
        let mut note = |what: &str| {
            if !remark.is_empty() {
                remark.push_str("; ");
            }
            *remark += &format!("{what} (node {})", to.0.0);
        };
        let mut faults = self.config.faults;
        for (during, change) in &self.changes {
            if !during.contains(&now) {
                continue;
            }
            let cut = match change {
                Change::Faults(other) => {
                    faults = *other;
                    false
                }
                Change::Down => true,
                Change::Cut(apart) => apart.contains(&from) != apart.contains(&to.0),
            };
            if cut {
                self.counters.cut += 1;
                note("lost: the link is cut");
                return;
            }
        }
        // Always as many draws: one fault more leaves the others' decisions as they were.
        let (lost, twice) = (self.dice.chance(faults.loss), self.dice.chance(faults.duplication));
        if lost {
            self.counters.lost += 1;
            note("lost");
        }
        for copy in 0..2 {
            let (wrong, late) = (self.dice.chance(faults.corruption), self.dice.chance(faults.reordering));
            let [place, late_by, jitter] = [(); 3].map(|()| self.dice.roll());
            if lost || copy == 1 && !twice {
                continue;
            }
            if copy == 1 {
                self.counters.duplicated += 1;
                note("comes twice");
            }
            let part = |most: Duration, draw: u64| {
                ((u128::from(draw) * (u128::from(most.as_nanos() as u64) + 1)) >> 64) as u64
            };
            let mut at = gone + self.config.delay.as_nanos() as u64 + part(faults.jitter, jitter);
            if late {
                at += part(faults.late, late_by);
                note("comes late");
            }
            let mut frame = frame.to_vec();
            // No draw where nothing is marked.
            if faults.marks > 0.0 && self.dice.chance(faults.marks) {
                mark(&mut frame);
            }
            let corrupted = wrong && clear_a_bit(&mut frame, place);
            if corrupted {
                self.counters.corrupted += 1;
                note("a bit is wrong");
            }
            self.counters.delivered += 1;
            flights.push(Flight { at, to, frame, corrupted });
        }
    }
}

/// Congestion is experienced: a packet says so if its sender knows what that means.
fn mark(frame: &mut [u8]) {
    match frame.get(12..14) {
        Some([0x08, 0x00]) if frame.len() >= 34 && frame[15] & 3 != 0 => {
            frame[15] |= 3;
            let header = 14 + usize::from(frame[14] & 15) * 4;
            if let Some(octets) = frame.get_mut(14..header) {
                octets[10..12].fill(0);
                let sum = bypath_wire::checksum::checksum(octets);
                octets[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some([0x86, 0xdd]) if frame.len() >= 54 && frame[15] & 0x30 != 0 => frame[15] |= 0x30,
        _ => {}
    }
}

/// Clears a bit of an IP packet that is set, at a place that follows from `draw`. False: none is.
fn clear_a_bit(frame: &mut [u8], draw: u64) -> bool {
    let is_ip = matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd]));
    let Some(octets) = frame.get_mut(14..).filter(|octets| is_ip && !octets.is_empty()) else { return false };
    let begin = (draw >> 8) as usize % octets.len();
    let found = (0..octets.len()).map(|n| (begin + n) % octets.len()).find(|at| octets[*at] != 0);
    let Some(at) = found else { return false };
    let set: Vec<u8> = (0..8).filter(|bit| octets[at] >> bit & 1 == 1).collect();
    octets[at] &= !(1 << set[(draw & 0xff) as usize % set.len()]);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(config: LinkConfig) -> Link {
        let mut link = Link::new(config, Dice::new(1));
        for n in 0..3u8 {
            link.attach(NodeId(n.into()), 0, MacAddr([2, 0, 0, 0, 0, n]));
        }
        link
    }

    fn frame(to: u8, len: usize) -> Vec<u8> {
        let mut frame = vec![0xff; len];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 0, 8, 0]);
        frame
    }

    #[test]
    fn a_frame_goes_to_its_station_and_to_all_if_nobody_knows_it() {
        let mut link = link(LinkConfig::default());
        let mut flights = Vec::new();
        for (to, receivers) in [(1, vec![1]), (0xff, vec![1, 2])] {
            assert_eq!(link.send(0, (NodeId(0), 0), &frame(to, 60), &mut flights), "");
            let got: Vec<_> = flights.drain(..).map(|flight| flight.to.0.0).collect();
            assert_eq!(got, receivers);
        }
        assert_eq!((link.counters.sent, link.counters.delivered), (2, 3));
    }

    #[test]
    fn a_narrow_link_takes_its_time_and_drops_beyond_its_queue() {
        let mut link = link(LinkConfig { bandwidth: Some(8_000_000), queue: 3000, ..LinkConfig::default() });
        let mut flights = Vec::new();
        for _ in 0..10 {
            link.send(0, (NodeId(0), 0), &frame(1, 1000), &mut flights);
        }
        // A millisecond each, and 50 microseconds to get there.
        let at: Vec<_> = flights.iter().map(|flight| flight.at).collect();
        assert_eq!(at, [1_050_000, 2_050_000, 3_050_000, 4_050_000]);
        assert_eq!(link.counters.overflowed, 6);
    }

    #[test]
    fn faults_are_what_their_probabilities_say_and_change_with_time() {
        let faults = Faults { loss: 0.2, duplication: 0.1, corruption: 0.3, ..Faults::default() };
        let mut link = link(LinkConfig { faults, ..LinkConfig::default() });
        link.change(100..200, Change::Down);
        link.change(200..300, Change::Cut(vec![NodeId(0)]));
        link.change(300..400, Change::Faults(Faults::default()));
        let mut flights = Vec::new();
        for _ in 0..10_000 {
            link.send(0, (NodeId(0), 0), &frame(1, 100), &mut flights);
        }
        let LinkCounters { lost, duplicated, corrupted, .. } = link.counters;
        assert!((1800..2200).contains(&lost) && (650..950).contains(&duplicated), "{:?}", link.counters);
        assert!((2300..2900).contains(&corrupted));
        let wrong = flights.iter().filter(|flight| flight.frame != frame(1, 100)).count() as u64;
        assert_eq!(wrong, corrupted);
        flights.clear();
        for now in [100, 199, 200, 299] {
            link.send(now, (NodeId(0), 0), &frame(1, 100), &mut flights);
        }
        assert!(flights.is_empty() && link.counters.cut == 4);
        for _ in 0..100 {
            link.send(250, (NodeId(1), 0), &frame(2, 100), &mut flights);
            link.send(399, (NodeId(0), 0), &frame(2, 100), &mut flights);
        }
        // Others go on; and no fault where none is to be.
        assert!(flights.iter().filter(|f| f.at > 50_300 && f.frame == frame(2, 100)).count() >= 100);
    }
}
