//! Echo requests (ICMP) of a stack, and who answers: without a thread and without a clock of its own.
//!
//! What errors say of a request is told where the packet that they quote is one of ours.

use bypath_stack::Stack;
use bypath_stack::iface::IfaceId;
use bypath_stack::socket::{Options, SendError, SocketId, TooMany};
use bypath_wire::{Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Octets of headers beside those that are asked to be sent: ICMP's.
const HEADER: usize = 8;
/// Octets of an answer at most.
const LONGEST: usize = 65_536;

/// What is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Whom.
    pub destination: IpAddr,
    /// How often, 65535 times at most.
    pub count: u16,
    /// Time from one request to the next (ns).
    pub interval_ns: u64,
    /// Longest wait for an answer (ns).
    pub timeout_ns: u64,
    /// Octets behind the ICMP header, 8 to 65400.
    pub octets: u32,
    /// Routers that a request may pass, 1 at least.
    pub hop_limit: u8,
}

impl Ping {
    /// Four requests of 56 octets, one each second, each of which has two for its answer.
    pub const fn to(destination: IpAddr) -> Ping {
        let second = Duration::from_secs(1).as_nanos() as u64;
        Ping { destination, count: 4, interval_ns: second, timeout_ns: 2 * second, octets: 56, hop_limit: 64 }
    }

    /// What is out of range; `None`: nothing is.
    pub fn wrong(&self) -> Option<&'static str> {
        if self.count == 0 {
            return Some("count: 1 to 65535 requests");
        }
        if !(8..=65_400).contains(&self.octets) {
            return Some("octets: 8 to 65400");
        }
        if self.hop_limit == 0 {
            return Some("hop_limit: 1 at least");
        }
        None
    }
}

/// What has come of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PingEvent {
    /// It was answered in time.
    Answered {
        /// Who did.
        from: IpAddr,
        /// Its number, from 0 on.
        number: u16,
        /// How long it took (ns).
        round_trip_ns: u64,
    },
    /// A router, or the host, says why it was not.
    Refused {
        /// Who.
        from: IpAddr,
        /// Why.
        why: String,
    },
    /// Who would get the requests next does not answer when its hardware address is asked for: they never leave. Told once.
    Silent {
        /// A router on the way, or the host itself.
        neighbor: IpAddr,
    },
    /// Every request was answered, or is lost.
    Ended(PingCounts),
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PingCounts {
    /// Requests.
    pub sent: u32,
    /// Answered in time.
    pub received: u32,
    /// Not answered in time.
    pub lost: u32,
    /// Answers to what was answered already.
    pub duplicate: u32,
    /// Answers with other octets than the request's.
    pub corrupt: u32,
    /// Errors that routers or the host sent.
    pub refused: u32,
}

/// What came back.
enum Answer {
    /// The reply to the request with this number.
    Reply { number: u16, right: bool },
    /// The request was not delivered.
    Refused(&'static str),
}

/// Requests on their way.
#[derive(Debug)]
pub struct Pinger {
    ping: Ping,
    socket: SocketId,
    identifier: u16,
    payload: Vec<u8>,
    room: Vec<u8>,
    began: u64,
    /// When each was sent (ns); 0: it was answered.
    sent: Vec<u64>,
    /// When the last one was.
    asked: u64,
    counts: PingCounts,
    /// Nothing more is waited for.
    over: bool,
    /// It was told that a neighbour is silent.
    told: bool,
}

impl Pinger {
    /// Opens a socket for it; the first request is due. `seed`: any number, which tells its answers from others'.
    ///
    /// # Errors
    /// The stack has as many sockets as it may.
    pub fn begin(stack: &mut Stack, ping: Ping, seed: u64, now: u64) -> Result<Pinger, TooMany> {
        let protocol = if ping.destination.is_ipv4() { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let socket = stack.open_raw(protocol)?;
        if let Some(mut raw) = stack.raw(socket) {
            let hops = ping.hop_limit;
            let usual = raw.options();
            let options = Options { hop_limit: Some(hops), group_hop_limit: hops, broadcast: true, ..usual };
            raw.set_options(options);
        }
        Ok(Pinger {
            ping,
            socket,
            identifier: seed as u16,
            payload: (0..ping.octets).map(|n| (u64::from(n) ^ seed) as u8).collect(),
            room: vec![0; LONGEST],
            began: now,
            sent: Vec::new(),
            asked: now,
            counts: PingCounts::default(),
            over: false,
            told: false,
        })
    }

    /// Asks, if it is time; when it is to be called again (ns), sooner if something has come. `None`: it is over, but for what
    /// [`event`](Pinger::event) still has to say. `on`: the interface for addresses that are of one link only.
    ///
    /// # Errors
    /// There is no way there.
    pub fn turn(&mut self, stack: &mut Stack, now: u64, on: IfaceId) -> Result<Option<u64>, SendError> {
        if self.sent.len() < usize::from(self.ping.count) {
            if now >= self.due() {
                self.ask(stack, on)?;
                self.sent.push(now);
                self.asked = now;
                self.counts.sent += 1;
            }
            if self.sent.len() < usize::from(self.ping.count) {
                return Ok(Some(self.due()));
            }
        }
        let end = self.asked.saturating_add(self.ping.timeout_ns);
        let waits = now < end && self.sent.iter().any(|at| *at != 0);
        self.over = !waits;
        Ok(waits.then_some(end))
    }

    /// When the next request is.
    fn due(&self) -> u64 {
        self.began.saturating_add((self.sent.len() as u64).saturating_mul(self.ping.interval_ns))
    }

    fn ask(&mut self, stack: &mut Stack, on: IfaceId) -> Result<(), SendError> {
        let (identifier, sequence) = (self.identifier, self.sent.len() as u16);
        let len = HEADER + self.payload.len();
        let emitted = match self.ping.destination {
            IpAddr::V4(_) => {
                Icmpv4Message::EchoRequest { identifier, sequence }.emit_with(&mut self.room, &self.payload)
            }
            IpAddr::V6(_) => {
                self.room[HEADER..len].copy_from_slice(&self.payload);
                Icmpv6Message::EchoRequest { identifier, sequence }.emit(&mut self.room)
            }
        };
        emitted.map_err(|_| SendError::TooLong { len, most: LONGEST })?;
        let to = self.ping.destination;
        let on = is_of_one_link(to).then_some(on);
        stack.raw(self.socket).map_or(Err(SendError::Closed), |mut raw| raw.send(&self.room[..len], to, on))
    }

    /// What has come since.
    pub fn event(&mut self, stack: &mut Stack, now: u64) -> Option<PingEvent> {
        while let Some((answer, from)) = self.answer(stack) {
            match answer {
                Answer::Reply { number, right } => match self.sent.get_mut(usize::from(number)) {
                    Some(_) if !right => self.counts.corrupt += 1,
                    Some(0) => self.counts.duplicate += 1,
                    Some(at) => {
                        let round_trip_ns = now.saturating_sub(std::mem::take(at));
                        // Too late is lost.
                        if round_trip_ns <= self.ping.timeout_ns {
                            self.counts.received += 1;
                            return Some(PingEvent::Answered { from, number, round_trip_ns });
                        }
                    }
                    None => {}
                },
                Answer::Refused(why) => {
                    self.counts.refused += 1;
                    return Some(PingEvent::Refused { from, why: why.to_owned() });
                }
            }
        }
        self.silent(stack)
    }

    /// Whether the neighbour by whom requests go does not answer. One that is still being asked may do so later, unless it is over.
    fn silent(&mut self, stack: &mut Stack) -> Option<PingEvent> {
        let to = self.ping.destination;
        if self.told || self.counts.sent == self.counts.received || is_of_one_link(to) {
            return None;
        }
        let (_, neighbor) = stack.silent_towards(to, None, self.over)?;
        self.told = true;
        Some(PingEvent::Silent { neighbor })
    }

    /// How it went so far.
    pub const fn counts(&self) -> PingCounts {
        PingCounts { lost: self.counts.sent - self.counts.received, ..self.counts }
    }

    /// Closes its socket; how it went.
    pub fn end(self, stack: &mut Stack) -> PingCounts {
        stack.close(self.socket);
        self.counts()
    }

    /// The next answer to one of ours, and who sent it.
    fn answer(&mut self, stack: &mut Stack) -> Option<(Answer, IpAddr)> {
        while let Some(mut raw) = stack.raw(self.socket) {
            let Ok(received) = raw.receive(&mut self.room) else { break };
            let octets = &self.room[..received.len.min(self.room.len())];
            let from = received.datagram.from.ip();
            let found = match from {
                IpAddr::V4(_) => self.read_v4(octets),
                IpAddr::V6(_) => self.read_v6(octets),
            };
            if let Some(answer) = found {
                return Some((answer, from));
            }
        }
        None
    }

    fn reply(&self, identifier: u16, number: u16, payload: &[u8]) -> Option<Answer> {
        (identifier == self.identifier).then(|| Answer::Reply { number, right: payload == self.payload })
    }

    fn read_v4(&self, octets: &[u8]) -> Option<Answer> {
        let (message, rest) = Icmpv4Message::parse(octets).ok().filter(|_| icmpv4::is_intact(octets))?;
        let why = match message {
            Icmpv4Message::EchoReply { identifier, sequence } => {
                return self.reply(identifier, sequence, rest);
            }
            Icmpv4Message::Unreachable { .. } => "the destination cannot be reached",
            Icmpv4Message::TimeExceeded { .. } => {
                "the request passed too many routers, or fragments were lost"
            }
            Icmpv4Message::ParameterProblem { .. } => "the request's header is not understood",
            _ => return None,
        };
        // What it quotes begins with the IP header of the request.
        let header = usize::from(rest.first()? & 0xf) * 4;
        self.is_own(rest.get(header..)?, 8).then_some(Answer::Refused(why))
    }

    fn read_v6(&self, octets: &[u8]) -> Option<Answer> {
        let (message, rest) = Icmpv6Message::parse(octets).ok()?;
        let why = match message {
            Icmpv6Message::EchoReply { identifier, sequence } => {
                return self.reply(identifier, sequence, rest);
            }
            Icmpv6Message::Unreachable { .. } => "the destination cannot be reached",
            Icmpv6Message::PacketTooBig { .. } => "the request is too big for a link on the way",
            Icmpv6Message::TimeExceeded { .. } => {
                "the request passed too many routers, or fragments were lost"
            }
            Icmpv6Message::ParameterProblem { .. } => "the request's header is not understood",
            _ => return None,
        };
        self.is_own(rest.get(40..)?, 128).then_some(Answer::Refused(why))
    }

    /// Whether the quoted ICMP message is a request of ours.
    fn is_own(&self, quoted: &[u8], kind: u8) -> bool {
        quoted.first() == Some(&kind) && quoted.get(4..6) == Some(&self.identifier.to_be_bytes())
    }
}

const fn is_of_one_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
    }
}
