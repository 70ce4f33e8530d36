//! Two connections and a path between them, in virtual time.

mod ends;
mod hostile;
mod linux;
mod losses;
mod mtu;
mod tuning;
mod urgent;
mod words;

use super::input::Arrival;
use super::tcb::{Connection, Settings, State};
use crate::random::Random;
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

/// What a path does to packets.
#[derive(Clone, Copy, Debug)]
struct Path {
    delay: Duration,
    /// Added to some, so that they are overtaken.
    jitter: Duration,
    /// Of 1000 packets so many.
    loss: u32,
    twice: u32,
    /// Octets a second; 0: no bound.
    rate: u64,
    /// Octets that wait for their turn at most.
    queue: u64,
    /// Nothing arrives before that.
    hold: Instant,
    /// Packets are marked instead of lost when half of the queue is full.
    marks: bool,
    /// Octets of payload and options of a packet that gets through; nobody is told of others.
    longest: usize,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            delay: Duration::from_millis(10),
            jitter: Duration::ZERO,
            loss: 0,
            twice: 0,
            rate: 0,
            queue: u64::MAX,
            marks: false,
            hold: Instant::ZERO,
            longest: usize::MAX,
        }
    }
}

/// A segment under way.
#[derive(Clone, Debug)]
struct Packet {
    header: TcpHeader,
    payload: Vec<u8>,
    ect: bool,
    marked: bool,
}

struct Pair {
    now: Instant,
    /// The side that calls, and the other one once it was called.
    ends: [Option<Connection>; 2],
    settings: [Settings; 2],
    paths: [Path; 2],
    /// To each side, by time and number.
    under_way: [BTreeMap<(Instant, u64), Packet>; 2],
    /// When a path has sent what waits for it.
    busy: [Instant; 2],
    random: Random,
    count: u64,
    /// The largest piece that is sent at once.
    most: usize,
    /// Everything that was sent, by side.
    log: Vec<(usize, Instant, TcpHeader, usize)>,
    /// Numbers of packets that are lost, by side: counted from 0.
    doomed: [Vec<u64>; 2],
    counts: [u64; 2],
    /// Octets of payload that were lost on the way.
    lost: usize,
    /// Windows were made smaller than what was promised.
    resized: bool,
    /// Octets that windows may grow.
    spare: usize,
}

const ISS: [SeqNumber; 2] = [SeqNumber(u32::MAX - 20_000), SeqNumber(1000)];

impl Pair {
    fn new(settings: Settings, path: Path, seed: u8) -> Pair {
        let now = Instant::from_nanos(5_000_000_000);
        Pair {
            now,
            ends: [Some(Connection::connect(now, settings, ISS[0], 77)), None],
            settings: [settings; 2],
            paths: [path; 2],
            under_way: Default::default(),
            busy: [now; 2],
            random: Random::new([seed; 32]),
            count: 0,
            most: 1460,
            log: Vec::new(),
            doomed: Default::default(),
            counts: [0; 2],
            lost: 0,
            resized: false,
            spare: usize::MAX,
        }
    }

    /// With the handshake done.
    fn open(settings: Settings, path: Path, seed: u8) -> Pair {
        let mut pair = Pair::new(settings, path, seed);
        let until = pair.now + Duration::from_secs(200);
        pair.until(until, |p| p.is(0, State::Established) && p.is(1, State::Established));
        pair
    }

    fn end(&mut self, side: usize) -> &mut Connection {
        self.ends[side].as_mut().expect("it was called")
    }

    fn is(&self, side: usize, state: State) -> bool {
        self.ends[side].as_ref().is_some_and(|end| end.state() == state)
    }

    fn chance(&mut self, of_1000: u32) -> bool {
        of_1000 > 0 && self.random.below(1000) < of_1000
    }

    /// Everything that a side has to send goes.
    fn transmit(&mut self, side: usize) {
        let (now, most) = (self.now, self.most);
        while let Some(end) = &mut self.ends[side]
            && let Some(segment) = end.poll_transmit(now, most)
        {
            let (a, b) = end.octets(&segment);
            let octets = [a, b].concat();
            assert_eq!(octets.len(), segment.len, "{segment:?}");
            // What one long segment is cut into.
            let cut = segment.cut.max(1);
            let pieces: Vec<&[u8]> =
                if octets.is_empty() { std::vec![&[]] } else { octets.chunks(cut).collect() };
            for (n, piece) in pieces.iter().enumerate() {
                let last = n + 1 == pieces.len();
                let mut flags = segment.flags;
                if !last {
                    flags = flags.without(TcpFlags::FIN | TcpFlags::PSH);
                }
                let mut header = TcpHeader::new(1, 2);
                (header.seq, header.ack) = (segment.seq + (n * cut) as u32, segment.ack);
                (header.flags, header.window, header.options) = (flags, segment.window, segment.options);
                header.urgent = segment.urgent;
                assert!(piece.len() + header.options.padded().len() <= 1460, "{header:?}");
                self.send(side, Packet { header, payload: piece.to_vec(), ect: segment.ect, marked: false });
            }
            self.check(side);
        }
        self.check_timers(side);
    }

    fn send(&mut self, side: usize, mut packet: Packet) {
        self.log.push((side, self.now, packet.header, packet.payload.len()));
        let number = self.counts[side];
        self.counts[side] += 1;
        let path = self.paths[side];
        let len = packet.payload.len() + packet.header.options.padded().len();
        let too_long = len > path.longest && !packet.payload.is_empty();
        if too_long || self.doomed[side].contains(&number) || self.chance(path.loss) {
            self.lost += packet.payload.len();
            return;
        }
        let mut at = self.now;
        if path.rate > 0 {
            let octets = packet.payload.len() as u64 + 54;
            let waiting = self.busy[side].since(at);
            let queued = waiting.as_nanos() as u64 * path.rate / 1_000_000_000;
            if queued + octets > path.queue {
                self.lost += packet.payload.len();
                return;
            }
            packet.marked = path.marks && packet.ect && queued > path.queue / 2;
            at = self.busy[side].max(at) + Duration::from_nanos(octets * 1_000_000_000 / path.rate);
            self.busy[side] = at;
        }
        // What was held comes one after the other.
        at = (at + path.delay).max(path.hold + Duration::from_micros(10 * number));
        if !path.jitter.is_zero() && self.random.below(4) == 0 {
            let jitter = path.jitter.as_micros() as u32;
            at = at + Duration::from_micros(self.random.below(jitter).into());
        }
        let copies = 1 + u32::from(self.chance(path.twice));
        for _ in 0..copies {
            self.count += 1;
            self.under_way[1 - side].insert((at, self.count), packet.clone());
        }
    }

    fn arrive(&mut self, side: usize, packet: &Packet) {
        let options = packet.header.options.known();
        let arrival = Arrival {
            header: &packet.header,
            options: &options,
            payload: &packet.payload,
            marked: packet.marked,
            segments: 1,
        };
        match &mut self.ends[side] {
            Some(end) => end.handle_segment(self.now, &arrival),
            // A listener hears nothing else.
            None if !packet.header.flags.has(TcpFlags::SYN)
                || packet.header.flags.has_any(TcpFlags::RST | TcpFlags::ACK) => {}
            None => {
                self.ends[side] =
                    Some(Connection::accept(self.now, self.settings[side], ISS[side], 990, &arrival));
            }
        }
        self.check(side);
    }

    /// What is always true of a connection.
    fn check(&self, side: usize) {
        let Some(c) = &self.ends[side] else { return };
        assert_eq!(c.urgent_contradiction(), None, "{c:?}");
        if c.state == State::Closed {
            return;
        }
        assert!(c.snd.una.at_or_before(c.snd.nxt), "{c:?}");
        assert_eq!(c.sent.octets(), c.snd.nxt.since(c.snd.una), "{c:?}");
        assert!(c.tx.len() <= c.settings.send_octets && c.rx.len() <= c.settings.receive_octets, "{c:?}");
        let rooms = (c.snd.room as usize, c.rcv.room as usize);
        assert!(rooms.0 <= c.settings.send_octets && rooms.1 <= c.settings.receive_octets, "{c:?}");
        // Whatever is in the window was promised, and there is room for it.
        let promised = c.rx.len() + c.rcv.edge.distance(c.rcv.nxt).max(0) as usize;
        assert!(self.resized || promised <= rooms.1 + 1, "{promised} octets in {rooms:?}: {c:?}");
    }

    /// Whoever waits for something has a timer, once everything was sent that can be.
    fn check_timers(&self, side: usize) {
        let Some(c) = self.ends[side].as_ref().filter(|c| c.state != State::Closed) else { return };
        let unsent = c.last_octet().after(c.snd.nxt) || c.finished && c.snd.fin.is_none();
        let waits = !c.sent.is_empty() || unsent && c.is_synchronized() && c.state != State::TimeWait;
        assert!(!waits || c.poll_timeout().is_some(), "nothing would ever happen: {c:?}");
    }

    /// The next thing happens; false: nothing ever does.
    fn step(&mut self) -> bool {
        self.transmit(0);
        self.transmit(1);
        let arrivals = self.under_way.iter().filter_map(|packets| packets.keys().next().map(|(at, _)| *at));
        let timers = self.ends.iter().flatten().filter_map(Connection::poll_timeout);
        let Some(next) = arrivals.chain(timers).min() else { return false };
        assert!(next >= self.now || next <= self.now, "time");
        self.now = self.now.max(next);
        for side in 0..2 {
            while let Some(entry) = self.under_way[side].first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let packet = entry.remove();
                self.arrive(side, &packet);
            }
            let now = self.now;
            if let Some(end) = &mut self.ends[side]
                && end.poll_timeout().is_some_and(|at| at <= now)
            {
                end.handle_timeout(now);
                assert!(end.poll_timeout().is_none_or(|at| at > now), "it is due for ever: {end:?}");
                self.check(side);
            }
        }
        true
    }

    /// Until something is true, or that time has come; whether it is true.
    fn until(&mut self, time: Instant, done: impl Fn(&Pair) -> bool) -> bool {
        while !done(self) && self.now < time {
            if !self.step() {
                break;
            }
        }
        self.transmit(0);
        self.transmit(1);
        done(self)
    }

    /// Time passes.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.transmit(0);
            self.transmit(1);
            let arrivals =
                self.under_way.iter().filter_map(|packets| packets.keys().next().map(|(at, _)| *at));
            let timers = self.ends.iter().flatten().filter_map(Connection::poll_timeout);
            match arrivals.chain(timers).min() {
                Some(next) if next <= until => assert!(self.step()),
                _ => break,
            }
        }
        self.now = until;
    }

    /// Sends octets from one side to the other while it reads; how long it took.
    fn transfer(&mut self, from: usize, octets: usize, patience: Duration) -> Duration {
        let begin = self.now;
        let until = begin + patience;
        let (mut written, mut read) = (0, 0);
        let pattern = |at: usize| (at * 7 + at / 251) as u8;
        let mut room = std::vec![0; 65_536];
        while read < octets {
            while written < octets {
                let piece: Vec<u8> = (written..octets.min(written + 16_384)).map(pattern).collect();
                let n = self.end(from).write(&piece);
                written += n;
                if n == 0 {
                    break;
                }
            }
            loop {
                let (now, spare) = (self.now, self.spare);
                let reader = self.end(1 - from);
                let n = reader.read(&mut room);
                if n == 0 {
                    break;
                }
                reader.tune_receive(now, n, spare);
                assert!(
                    room[..n].iter().enumerate().all(|(k, octet)| *octet == pattern(read + k)),
                    "wrong octets at {read}"
                );
                read += n;
            }
            if read < octets {
                assert!(self.step(), "stuck at {read} of {octets}: {:?} {:?}", self.ends[0], self.ends[1]);
                assert!(
                    self.now < until,
                    "{read} of {octets} after {patience:?}: {:?} {:?}",
                    self.ends[from],
                    self.ends[1 - from]
                );
            }
        }
        self.now.since(begin)
    }

    /// Segments that a side sent, as text, from a number on.
    fn said(&self, from: usize) -> Vec<std::string::String> {
        self.log[from..]
            .iter()
            .map(|(side, _, h, len)| {
                let ack = if h.flags.has(TcpFlags::ACK) { h.ack.since(ISS[1 - side]) } else { 0 };
                std::format!("{side} {} {}+{len} ack {ack}", h.flags, h.seq.since(ISS[*side]))
            })
            .collect()
    }
}
