//! A DHCPv4 client (RFC 2131) without IO: messages go in and come out, time is an argument, news is polled.
//!
//! It asks at once when it is made; a client that many others start together with passes a later time. Whether an address
//! is in use already is found by who has the link ([`Client::decline`]).

mod lease;
mod message;

pub use lease::{Lease, Route};
pub use message::{CLIENT_PORT, SERVER_PORT};

use bypath_stack::time::Instant;
use message::{Kind, Reply, Request};
use std::net::Ipv4Addr;
use std::time::Duration;

/// RFC 2131 section 4.1: four seconds, then twice as long each time, up to 64, each a second more or less.
const FIRST_WAIT: Duration = Duration::from_secs(4);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
/// Requests for an offer before another one is looked for: a minute in all.
const REQUESTS: u32 = 4;
/// RFC 2131 section 4.4.5: a lease is asked for again after half of what is left, but not more often than each minute.
const SHORTEST_RENEWAL: Duration = Duration::from_secs(60);
/// RFC 2131 section 3.1, step 5: the least time after a declined address.
const AFTER_DECLINE: Duration = Duration::from_secs(10);

/// After a refusal, twice as long after each that follows, up to [`LONGEST_WAIT`]. RFC 2131 has none: a server that offers and
/// refuses would be asked as fast as it answers.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Who the client is, and what it asks for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the interface.
    pub hardware: [u8; 6],
    /// Another identity than the interface's address (RFC 2132 section 9.14): 2 to 255 octets, the first a type.
    pub identifier: Option<Vec<u8>>,
    /// Name of the host, up to 255 octets.
    pub host_name: Option<String>,
    /// An address that it had before: it asks for that one first.
    pub address: Option<Ipv4Addr>,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is an address; or the server gave another one, or other parameters, than before.
    Bound(Lease),
    /// The same as before, for longer.
    Renewed(Lease),
    /// The address must not be used any more: the lease has expired, or the server took it back. Another one is looked
    /// for.
    Lost,
}

/// A message to be sent in UDP, from [`CLIENT_PORT`] to [`SERVER_PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// 0.0.0.0 while there is no address.
    pub source: Ipv4Addr,
    /// 255.255.255.255, or a server's.
    pub destination: Ipv4Addr,
    /// The message.
    pub payload: &'a [u8],
}

/// What RFC 2131 figure 5 calls a state, with what it waits for.
#[derive(Clone, Debug)]
enum State {
    /// Asks again from the beginning at its time.
    Init,
    Selecting,
    Requesting {
        offered: Lease,
        tries: u32,
    },
    /// With an address of before (INIT-REBOOT).
    Rebooting {
        address: Ipv4Addr,
        tries: u32,
    },
    Bound(Lease),
    Renewing(Lease),
    Rebinding(Lease),
    Released,
}

/// A client for one interface.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    state: State,
    /// When something is to be sent or done next.
    due: Option<Instant>,
    /// When it began to look for an address, for `secs`.
    began: Instant,
    /// When it first sent the request that is to be answered: a lease counts from then (RFC 2131 section 4.4.1).
    asked: Instant,
    wait: Duration,
    /// How long it waits when it is refused.
    pause: Duration,
    /// `None`: nothing was asked yet.
    transaction: Option<u32>,
    random: u64,
    event: Option<Event>,
    /// To be sent at once, whatever the state: what is declined or released, and by whom it was given.
    last_word: Option<(Kind, Ipv4Addr, Ipv4Addr)>,
    buffer: Vec<u8>,
}

impl Client {
    /// A client that begins at `begin`. `seed` should not be the same as another client's.
    pub fn new(begin: Instant, settings: Settings, seed: u64) -> Client {
        let state = first_state(&settings);
        Client {
            settings,
            state,
            due: Some(begin),
            began: begin,
            asked: begin,
            wait: FIRST_WAIT,
            pause: FIRST_PAUSE,
            transaction: None,
            random: seed,
            event: None,
            last_word: None,
            buffer: Vec::new(),
        }
    }

    /// The lease, while there is one.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Bound(lease) | State::Renewing(lease) | State::Rebinding(lease) => Some(lease),
            _ => None,
        }
    }

    /// When [`Client::poll_transmit`] will have something to do, at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.last_word.is_some() { Some(Instant::ZERO) } else { self.due }
    }

    /// What happened last and was not told yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// The message that is due, if any. To be called again until there is none.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Outgoing<'_>> {
        if let Some((kind, address, server)) = self.last_word.take() {
            let given_up = Request { requested: Some(address), server: Some(server), ..self.request(kind) };
            let released = Request { current: address, server: Some(server), ..self.request(kind) };
            return Some(if kind == Kind::Release {
                self.send(released, address, server)
            } else {
                self.send(given_up, Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)
            });
        }
        while self.due.is_some_and(|due| due <= now) {
            if let Some((request, source, destination)) = self.turn(now) {
                return Some(self.send(request, source, destination));
            }
        }
        None
    }

    /// A message that came to [`CLIENT_PORT`]. What is not an answer to this client is passed over.
    pub fn handle(&mut self, now: Instant, payload: &[u8]) {
        let Some(transaction) = self.transaction else { return };
        let Some(reply) = Reply::parse(payload, self.settings.hardware, transaction) else { return };
        let lease = || Lease::of(&reply, self.asked);
        match (&self.state, reply.kind) {
            (State::Selecting, Kind::Offer) => {
                // The first one: who sent it answers soonest, and another one is not better for being later.
                let Some(offered) = lease() else { return };
                self.state = State::Requesting { offered, tries: 0 };
                self.wait = FIRST_WAIT;
                self.due = Some(now);
            }
            (State::Requesting { offered, .. }, Kind::Ack | Kind::Nak) if offered.server != reply.server => {}
            (State::Requesting { .. } | State::Rebooting { .. }, Kind::Ack) => {
                if let Some(lease) = lease() {
                    self.bound(lease, Event::Bound);
                }
            }
            (State::Renewing(old) | State::Rebinding(old), Kind::Ack) => {
                if let Some(lease) = lease() {
                    let same = lease.is_like(old);
                    self.bound(lease, if same { Event::Renewed } else { Event::Bound });
                }
            }
            (State::Requesting { .. } | State::Rebooting { .. }, Kind::Nak) => self.refused(now),
            (State::Renewing(_) | State::Rebinding(_), Kind::Nak) => {
                self.event = Some(Event::Lost);
                self.refused(now);
            }
            _ => {}
        }
    }

    /// The address of the lease is in use by somebody else: the server is told, and another one looked for.
    pub fn decline(&mut self, now: Instant) {
        if let Some(lease) = self.lease() {
            self.last_word = Some((Kind::Decline, lease.address, lease.server));
            self.event = Some(Event::Lost);
            self.restart(now + AFTER_DECLINE);
        }
    }

    /// The address is not needed any more: the server is told, and nothing else is done by this client.
    pub fn release(&mut self) {
        if let Some(lease) = self.lease() {
            self.last_word = Some((Kind::Release, lease.address, lease.server));
        }
        self.state = State::Released;
        self.due = None;
        self.event = None;
    }

    fn bound(&mut self, lease: Lease, event: fn(Lease) -> Event) {
        self.due = lease.renews;
        self.pause = FIRST_PAUSE;
        self.event = Some(event(lease.clone()));
        self.state = State::Bound(lease);
    }

    fn refused(&mut self, now: Instant) {
        self.restart(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_WAIT);
    }

    fn restart(&mut self, at: Instant) {
        self.state = State::Init;
        self.settings.address = None;
        self.due = Some(at);
    }

    /// What is to be done in this state now: what to send, or nothing because the state has changed.
    fn turn(&mut self, now: Instant) -> Option<(Request<'static>, Ipv4Addr, Ipv4Addr)> {
        const ANY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
        const ALL: Ipv4Addr = Ipv4Addr::BROADCAST;
        match self.state.clone() {
            State::Init => {
                self.state = first_state(&self.settings);
                self.wait = FIRST_WAIT;
                self.began = now;
                None
            }
            State::Selecting => {
                if self.wait == FIRST_WAIT {
                    self.transaction = Some(self.draw() as u32);
                }
                self.due = Some(now + self.backoff());
                Some((self.request_at(now, Kind::Discover), ANY, ALL))
            }
            State::Requesting { tries: REQUESTS, .. } | State::Rebooting { tries: REQUESTS, .. } => {
                self.restart(now);
                None
            }
            State::Requesting { offered, tries } => {
                let (requested, server) = (Some(offered.address), Some(offered.server));
                if tries == 0 {
                    self.asked = now;
                }
                self.state = State::Requesting { offered, tries: tries + 1 };
                self.due = Some(now + self.backoff());
                Some((Request { requested, server, ..self.request_at(now, Kind::Request) }, ANY, ALL))
            }
            State::Rebooting { address, tries } => {
                if tries == 0 {
                    self.transaction = Some(self.draw() as u32);
                    self.asked = now;
                }
                self.state = State::Rebooting { address, tries: tries + 1 };
                self.due = Some(now + self.backoff());
                Some((Request { requested: Some(address), ..self.request_at(now, Kind::Request) }, ANY, ALL))
            }
            State::Bound(lease) => {
                self.transaction = Some(self.draw() as u32);
                (self.began, self.asked) = (now, now);
                self.state = State::Renewing(lease);
                None
            }
            State::Renewing(lease) => {
                let (address, server) = (lease.address, lease.server);
                if lease.rebinds.is_none_or(|at| now >= at) {
                    self.state = State::Rebinding(lease);
                    return None;
                }
                self.due = Some(half_way(now, lease.rebinds));
                Some((Request { current: address, ..self.request_at(now, Kind::Request) }, address, server))
            }
            State::Rebinding(lease) => {
                if lease.expires.is_none_or(|at| now >= at) {
                    self.event = Some(Event::Lost);
                    self.restart(now);
                    return None;
                }
                self.due = Some(half_way(now, lease.expires));
                Some((
                    Request { current: lease.address, ..self.request_at(now, Kind::Request) },
                    lease.address,
                    ALL,
                ))
            }
            State::Released => {
                self.due = None;
                None
            }
        }
    }

    fn request(&self, kind: Kind) -> Request<'static> {
        Request { kind, transaction: self.transaction.unwrap_or_default(), ..Request::default() }
    }

    fn request_at(&self, now: Instant, kind: Kind) -> Request<'static> {
        let seconds = u16::try_from(now.since(self.began).as_secs()).unwrap_or(u16::MAX);
        Request { seconds, ..self.request(kind) }
    }

    fn send(&mut self, request: Request<'_>, source: Ipv4Addr, destination: Ipv4Addr) -> Outgoing<'_> {
        let request = Request {
            hardware: self.settings.hardware,
            identifier: self.settings.identifier.as_deref(),
            host_name: self.settings.host_name.as_deref(),
            ..request
        };
        request.emit(&mut self.buffer);
        Outgoing { source, destination, payload: &self.buffer }
    }

    /// How long to wait for an answer this time.
    fn backoff(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        wait - Duration::from_secs(1) + Duration::from_nanos(self.draw() % 2_000_000_000)
    }

    /// SplitMix64: transactions and jitter, nothing that must be secret.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn first_state(settings: &Settings) -> State {
    match settings.address {
        Some(address) => State::Rebooting { address, tries: 0 },
        None => State::Selecting,
    }
}

/// Half of the time that is left until `end`, at least a minute, at most all of it.
fn half_way(now: Instant, end: Option<Instant>) -> Instant {
    let Some(end) = end else { return now + SHORTEST_RENEWAL };
    (now + (end.since(now) / 2).max(SHORTEST_RENEWAL)).min(end)
}

#[cfg(test)]
pub(crate) mod tests;
