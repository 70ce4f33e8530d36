//! A stack on its links: moves frames, time and news, and tells what to wait for.
//!
//! It has no thread. Whoever runs it calls [`Engine::turn`] again and again, and waits in between:
//!
//! ```no_run
//! # use bypath_netstack::Engine;
//! # use bypath_stack::config::Config;
//! use bypath_link::tun::Device;
//!
//! let mut engine = Engine::new(Config::default());
//! let device = Device::tap("tap0").address("10.9.0.1".parse().unwrap(), 24).open()?;
//! let eth = engine.add_link("tap0", Box::new(device))?;
//! engine.stack().add_address(Engine::now(), eth, "10.9.0.2/24".parse().unwrap())?;
//! loop {
//!     // Sockets are those of `engine.stack()`.
//!     if !engine.turn()? {
//!         engine.wait(None);
//!     }
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod port;

use self::port::{Frames, Port, UP_NS};
use crate::dhcp;
use crate::leasing::{Leasing, NoLease};
use crate::tap::{Filter, Passing, Tap};
use bypath_link::{Capabilities, Link, Medium};
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::event::Event;
use bypath_stack::iface::{self, IfaceConfig, IfaceId, NoIface, Offload};
use bypath_stack::socket::{SendError, SocketId, TooMany};
use bypath_stack::tcp::direct::{Direct, Readers};
use bypath_stack::time::Instant;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, process};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Frames that one turn takes from a link, and gives to it, at most: the others have their turn.
const BATCH: usize = 64;
/// Octets after which a turn takes no further frames from a link: what has come is read while it is in the processor's caches.
const ROUND: usize = 256 << 10;
/// Frames of a link with long ones that are taken before these octets are counted; frames are long from so many octets on.
const FEW: usize = 4;
const LONG: usize = 16 << 10;
/// poll(2): readable, writable.
const READ: i16 = 1;
const WRITE: i16 = 4;
/// How often a link is looked at that does not wake who sleeps when its interface goes (ns).
const LOOK_NS: u64 = 100_000_000;
/// How often a link is asked that has nothing to wait for.
const ASK_NS: u64 = 1_000_000;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// The stack has something to tell.
    Stack(Event),
    /// A lease: its address and routes are those of the interface now, or are not any more.
    Lease {
        /// Where.
        iface: IfaceId,
        /// What became of it.
        event: dhcp::Event,
    },
    /// A link's interface is down: told once, until it was up again. Its frames come again then.
    Down(IfaceId),
    /// It is up again.
    Up(IfaceId),
    /// Of a service: a user has as many sockets as he may, and was refused another one. Told once, until he has half as many.
    Crowded {
        /// The user.
        uid: u32,
        /// How many one may have.
        sockets: usize,
    },
}

/// A link that cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The link says why.
    #[error("{}", named(name, source))]
    Link {
        /// The link's name.
        name: String,
        /// Why.
        source: bypath_link::Error,
    },
    /// The stack does not take it.
    #[error("{name}: {source}")]
    Iface {
        /// The link's name.
        name: String,
        /// Why.
        source: NoIface,
    },
    /// DHCP is for links with hardware addresses.
    #[error("{name}: an address can be asked for on Ethernet only; give one by hand")]
    NotEthernet {
        /// The link's name.
        name: String,
    },
    /// A socket has the port of DHCP clients.
    #[error("{name}: port 68, where a DHCP client listens, is another socket's; close that one first")]
    ClientPort {
        /// The link's name.
        name: String,
    },
    /// The interface is none of a link: the loopback interface, or one of a VLAN.
    #[error("interface {} of the stack stands on no link of its own", iface.scope())]
    NotALink {
        /// Which.
        iface: IfaceId,
    },
    /// The stack has no more sockets.
    #[error(transparent)]
    Sockets(#[from] TooMany),
}

/// What a link says, which may begin with its name already.
fn named(name: &str, source: &bypath_link::Error) -> String {
    let text = source.to_string();
    let is_named = text.strip_prefix(name).is_some_and(|rest| rest.starts_with(": "));
    if is_named { text } else { format!("{name}: {text}") }
}

/// A stack and its links.
pub struct Engine {
    stack: Stack,
    ports: Vec<Port>,
    news: VecDeque<News>,
    waits: Vec<PollFd>,
    /// A link is gone, as [`Engine::send`] found: for the next turn to tell.
    trouble: Option<Error>,
    /// Who looks on, each by a number of his own.
    taps: Vec<(u64, Tap)>,
    next_tap: u64,
}

/// News that wait to be fetched, at most.
const MOST_NEWS: usize = 1024;

impl Engine {
    /// A stack with its loopback interface. Its secret is drawn from the system's random numbers.
    pub fn new(config: Config) -> Engine {
        let mut seed = [0; 32];
        for part in seed.as_chunks_mut::<8>().0 {
            *part = process::random_u64().to_ne_bytes();
        }
        Engine::with_seed(config, seed)
    }

    /// The same with a secret of the caller's.
    pub fn with_seed(config: Config, seed: [u8; 32]) -> Engine {
        Engine {
            stack: Stack::new(config, seed),
            ports: Vec::new(),
            news: VecDeque::new(),
            waits: Vec::new(),
            trouble: None,
            taps: Vec::new(),
            next_tap: 0,
        }
    }

    /// The time that the engine gives to the stack: CLOCK_MONOTONIC.
    pub fn now() -> Instant {
        Instant::from_nanos(clock::monotonic_ns())
    }

    /// The stack: addresses, routes, sockets, counters.
    pub const fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    /// Puts the stack on a link, whose name is for messages. Checksums and segmentation are left to the link as far as it
    /// takes them.
    ///
    /// # Errors
    /// [`Error::Iface`].
    pub fn add_link(&mut self, name: &str, link: Box<dyn Link + Send>) -> Result<IfaceId, Error> {
        let capabilities = link.capabilities();
        let medium = match capabilities.medium {
            Medium::Ethernet => iface::Medium::Ethernet(capabilities.mac),
            Medium::Ip => iface::Medium::Ip,
        };
        let offload = Offload { checksum: capabilities.checksum, segmentation: capabilities.segmentation };
        let config = IfaceConfig { medium, mtu: capabilities.mtu.min(65_535), offload };
        let iface =
            self.stack.add_iface(config).map_err(|source| Error::Iface { name: name.to_owned(), source })?;
        self.ports.push(Port {
            iface,
            name: name.to_owned(),
            link,
            capabilities,
            full: false,
            long: false,
            gone: false,
            down: false,
            looks: 0,
            moves: false,
            leasing: None,
        });
        Ok(iface)
    }

    /// Has a DHCP server give the interface an address, routes with it. [`News::Lease`] tells when.
    ///
    /// # Errors
    /// [`Error::NotALink`], [`Error::NotEthernet`], [`Error::ClientPort`], [`Error::Sockets`].
    pub fn lease(&mut self, iface: IfaceId, host_name: Option<String>) -> Result<(), Error> {
        let Some(port) = self.ports.iter_mut().find(|p| p.iface == iface) else {
            return Err(Error::NotALink { iface });
        };
        if port.capabilities.medium != Medium::Ethernet {
            return Err(Error::NotEthernet { name: port.name.clone() });
        }
        let settings =
            dhcp::Settings { hardware: port.capabilities.mac.0, identifier: None, host_name, address: None };
        if let Some(before) = port.leasing.take() {
            before.end(&mut self.stack);
        }
        match Leasing::begin(&mut self.stack, iface, settings, Engine::now()) {
            Ok(leasing) => port.leasing = Some(leasing),
            Err(NoLease::Sockets(none)) => return Err(none.into()),
            Err(NoLease::Port) => return Err(Error::ClientPort { name: port.name.clone() }),
        }
        Ok(())
    }

    /// The links: their interfaces and names, in the order in which they were added.
    pub fn links(&self) -> impl Iterator<Item = (IfaceId, &str)> {
        self.ports.iter().map(|p| (p.iface, p.name.as_str()))
    }

    /// From now on frames of a link, or of all, are also written to a [`Tap`], which goes by the number that is returned: `count` of them at
    /// most, and `snap` octets of each. It costs time for each frame; who has no tap pays nothing.
    ///
    /// # Errors
    /// [`Error::NotALink`]: there is no such link.
    pub fn begin_tap(
        &mut self,
        on: Option<IfaceId>,
        filter: Filter,
        count: Option<u64>,
        snap: usize,
    ) -> Result<u64, Error> {
        let wanted = self.ports.iter().filter(|p| on.is_none_or(|iface| p.iface == iface));
        let links = wanted.map(|p| (p.iface, p.name.as_str(), p.capabilities));
        let iface = on.unwrap_or(IfaceId::LOOPBACK);
        let none = |_| Error::NotALink { iface };
        let tap = Tap::new(links, filter, count, snap).map_err(none)?.ok_or(Error::NotALink { iface })?;
        self.next_tap += 1;
        self.taps.push((self.next_tap, tap));
        Ok(self.next_tap)
    }

    /// A tap, as long as it was not taken away.
    pub fn tap(&mut self, number: u64) -> Option<&mut Tap> {
        self.taps.iter_mut().find(|(other, _)| *other == number).map(|(_, tap)| tap)
    }

    /// Takes a tap away.
    pub fn end_tap(&mut self, number: u64) -> Option<Tap> {
        let at = self.taps.iter().position(|(other, _)| *other == number)?;
        Some(self.taps.remove(at).1)
    }

    /// Whether a link is gone, as a turn has told.
    pub fn is_gone(&self, iface: IfaceId) -> bool {
        self.ports.iter().any(|p| p.iface == iface && p.gone)
    }

    /// Octets of the largest packet of a link.
    pub fn mtu(&self, iface: IfaceId) -> Option<usize> {
        self.ports.iter().find(|p| p.iface == iface).map(|p| p.capabilities.mtu)
    }

    /// What a link can do.
    pub fn capabilities(&self, iface: IfaceId) -> Option<Capabilities> {
        self.ports.iter().find(|p| p.iface == iface).map(|p| p.capabilities)
    }

    /// Whether the interface has an address that a DHCP server gave.
    pub fn is_leased(&self, iface: IfaceId) -> bool {
        let port = self.ports.iter().find(|p| p.iface == iface);
        port.and_then(|p| p.leasing.as_ref()).is_some_and(Leasing::has_lease)
    }

    /// Gives leases back. The messages that say so go out with the next turns; the addresses go two seconds later. A lease whose
    /// address is still asked for ends without a word.
    pub fn release(&mut self) {
        let now = Engine::now();
        for port in &mut self.ports {
            if let Some(leasing) = &mut port.leasing {
                leasing.release(now);
            }
        }
    }

    /// Gives leases back and sends what is still to be sent, as far as that is possible within this time; what connections have
    /// written is to be acknowledged.
    pub fn finish(&mut self, longest: Duration) {
        self.release();
        let end = clock::monotonic_ns().saturating_add(longest.as_nanos() as u64);
        while clock::monotonic_ns() < end {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => {
                    let left = self.stack.usage();
                    if left.transmit_octets + left.waiting_octets == 0 && !self.stack.owes_octets() {
                        return;
                    }
                    self.wait(Some(end));
                }
                Err(_) => return,
            }
        }
    }

    /// What a link has counted.
    pub fn statistics(&mut self, iface: IfaceId) -> Option<bypath_link::Statistics> {
        self.ports.iter_mut().find(|p| p.iface == iface).map(|p| p.link.statistics())
    }

    /// Takes what has come, does what is due, sends what there is to be sent. Returns whether there was anything to do: if not,
    /// it is time to wait.
    ///
    /// # Errors
    /// [`Error::Link`]: a link is gone. That is told once; the others go on with the next turn.
    pub fn turn(&mut self) -> Result<bool, Error> {
        let now = Engine::now();
        let mut moved = self.take_at(now, &mut Readers)?;
        for n in 0..self.ports.len() {
            moved += self.send_of(n, now)?;
        }
        Ok(moved > 0)
    }

    /// Takes what has come and does what is due. What there is to be sent waits for [`flush`](Engine::flush): who writes and reads
    /// first has his octets in the frames that acknowledge what came, and his reading acknowledged with it.
    ///
    /// # Errors
    /// Those of [`turn`](Engine::turn).
    pub fn take(&mut self) -> Result<bool, Error> {
        self.take_for(&mut Readers)
    }

    /// The same, where applications take octets of connections as they come.
    ///
    /// # Errors
    /// Those of [`turn`](Engine::turn).
    pub fn take_for(&mut self, direct: &mut dyn Direct) -> Result<bool, Error> {
        Ok(self.take_at(Engine::now(), direct)? > 0)
    }

    fn take_at(&mut self, now: Instant, direct: &mut dyn Direct) -> Result<usize, Error> {
        if let Some(e) = self.trouble.take() {
            return Err(e);
        }
        let mut moved = 0;
        for port in &mut self.ports {
            if port.is_up_again(now.as_nanos()) {
                tell(&mut self.news, News::Up(port.iface));
            }
        }
        for n in 0..self.ports.len() {
            moved += self.receive(n, now, direct)?;
        }
        if self.stack.poll_timeout().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
            moved += 1;
        }
        self.hear_of_stack(now);
        for port in &mut self.ports {
            if let Some(leasing) = &mut port.leasing {
                while let Some(event) = leasing.turn(now, &mut self.stack) {
                    tell(&mut self.news, News::Lease { iface: port.iface, event });
                }
            }
        }
        Ok(moved)
    }

    /// Sends a datagram of a UDP socket to `to`, or to whom it is connected: straight into the link's memory if nothing goes
    /// first, else through the queue. What [`Udp::send`](bypath_stack::Udp::send) and [`flush`](Engine::flush) do, with one
    /// copy fewer. A link that is gone is told by the next turn.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent.
    pub fn send(&mut self, socket: SocketId, octets: &[u8], to: Option<SocketAddr>) -> Result<(), SendError> {
        let now = Engine::now();
        let stack = &mut self.stack;
        let straight = stack.udp(socket).ok_or(SendError::Closed)?.straight(to);
        let at = straight.and_then(|link| self.ports.iter().position(|p| p.iface == link));
        let mut outcome = None;
        if let Some(n) = at
            && let port = &mut self.ports[n]
            && !port.full
            && !port.gone
        {
            let (iface, taps) = (port.iface, &mut self.taps);
            let sent = port.link.send(1, &mut |room| {
                if outcome.is_some() {
                    return None;
                }
                let sent = stack.udp(socket)?.send_through(now, octets, to, iface, room);
                if let Ok(Some((len, meta))) = &sent
                    && !taps.is_empty()
                {
                    let head = room.get(..*len).unwrap_or_default();
                    let passing = Passing { iface, ingress: false, head, behind: (&[], &[]), meta };
                    taps.iter_mut().for_each(|(_, tap)| tap.see(&passing));
                }
                // What did not go straight was queued.
                outcome = Some(sent.map(|frame| frame.is_some()));
                sent.ok().flatten()
            });
            let sent = sent.and_then(|sent| Ok((sent, port.link.flush()?)));
            match sent {
                Ok((sent, pending)) => {
                    port.moved(sent);
                    port.full = pending > 0;
                }
                Err(e) => {
                    port.full = true;
                    if let Err(e) = self.pass_over(n, e) {
                        self.trouble.get_or_insert(e);
                    }
                }
            }
        }
        match outcome {
            Some(Ok(true)) => return Ok(()),
            Some(Err(e)) => return Err(e),
            Some(Ok(false)) => {}
            None => self.stack.udp(socket).ok_or(SendError::Closed)?.send(octets, to)?,
        }
        if let Err(e) = self.send_queued(now) {
            self.trouble.get_or_insert(e);
        }
        Ok(())
    }

    fn send_queued(&mut self, now: Instant) -> Result<(), Error> {
        for n in 0..self.ports.len() {
            self.send_of(n, now)?;
        }
        Ok(())
    }

    /// Sends what there is to be sent, and nothing else.
    ///
    /// # Errors
    /// [`Error::Link`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if let Some(e) = self.trouble.take() {
            return Err(e);
        }
        self.send_queued(Engine::now())
    }

    /// The same; what goes wrong is told by the next one that may fail.
    pub fn flush_now(&mut self) {
        if let Err(e) = self.send_queued(Engine::now()) {
            self.trouble.get_or_insert(e);
        }
    }

    /// The next news.
    pub fn poll_event(&mut self) -> Option<News> {
        if let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        // Of sockets none is lost: the stack keeps what is not fetched.
        loop {
            let event = self.stack.poll_ready()?;
            let own = |id| self.ports.iter().any(|p| p.leasing.as_ref().is_some_and(|l| l.is_own(id)));
            match event {
                Event::Socket { id, .. } if own(id) => {}
                event => return Some(News::Stack(event)),
            }
        }
    }

    /// When the next turn has something to do, whatever comes: nanoseconds of CLOCK_MONOTONIC; a time that has passed: now.
    pub fn poll_timeout(&self) -> Option<u64> {
        let leases = self.ports.iter().filter_map(|p| p.leasing.as_ref()?.poll_timeout());
        let next = leases.chain(self.stack.poll_timeout()).min().map(Instant::as_nanos);
        // Who sends wakes no descriptor.
        let ports = || self.ports.iter().filter(|p| !p.gone);
        let waits = ports().any(|p| self.stack.wants_transmit(p.iface) && !p.full);
        let look = |p: &Port| match p.link.descriptor() {
            None => Some(ASK_NS),
            Some(_) => (!p.capabilities.wakes_at_end).then_some(LOOK_NS),
        };
        let look = ports().filter_map(look).min().map(|ns| clock::monotonic_ns() + ns);
        let up = ports().filter(|p| p.down).map(|p| p.looks).min();
        if waits || self.trouble.is_some() { Some(0) } else { next.into_iter().chain(look).chain(up).min() }
    }

    /// Whether a link has no room for what is to be sent: [`descriptors`](Engine::descriptors) are waited for until it has.
    pub fn is_full(&self) -> bool {
        self.ports.iter().any(|p| p.full && !p.gone)
    }

    /// Adds what is to be waited for to a list for poll(2).
    pub fn descriptors(&self, waits: &mut Vec<PollFd>) {
        for port in self.ports.iter().filter(|p| !p.gone) {
            if let Some(fd) = port.link.descriptor() {
                let events = if port.full { READ | WRITE } else { READ };
                waits.push(PollFd { fd: fd.as_raw_fd(), events, revents: 0 });
            }
        }
    }

    /// Waits until there is something to do, at most until `until` (nanoseconds of CLOCK_MONOTONIC), or a signal.
    pub fn wait(&mut self, until: Option<u64>) {
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        self.descriptors(&mut waits);
        let until = self.poll_timeout().into_iter().chain(until).min();
        let left = until.map(|at| at.saturating_sub(clock::monotonic_ns()));
        // An error is a signal.
        let _ = ppoll(&mut waits, left, 0);
        self.waits = waits;
    }

    fn receive(&mut self, n: usize, now: Instant, direct: &mut dyn Direct) -> Result<usize, Error> {
        let (port, stack) = (&mut self.ports[n], &mut self.stack);
        if port.gone {
            return Ok(0);
        }
        let iface = port.iface;
        let (mut frames, mut octets) = (0, 0);
        while frames < BATCH && octets < ROUND {
            let most = if port.long { FEW } else { BATCH - frames };
            let before = octets;
            let taps = &mut self.taps;
            let got = port.link.receive(most, &mut |frame, meta| {
                octets += frame.len();
                if !taps.is_empty() {
                    let passing = Passing { iface, ingress: true, head: frame, behind: (&[], &[]), meta };
                    taps.iter_mut().for_each(|(_, tap)| tap.see(&passing));
                }
                stack.handle_frame_for(now, iface, frame, meta, direct);
            });
            match got {
                Ok(got) => {
                    frames += got;
                    port.moved(got);
                    port.long = octets - before > got * LONG;
                    if got < most {
                        break;
                    }
                }
                // What has come counts; the link says the same again.
                Err(_) if frames > 0 => break,
                Err(e) => return self.pass_over(n, e),
            }
        }
        Ok(frames)
    }

    fn send_of(&mut self, n: usize, now: Instant) -> Result<usize, Error> {
        let (port, stack) = (&mut self.ports[n], &mut self.stack);
        if port.gone || !port.full && !stack.wants_transmit(port.iface) {
            return Ok(0);
        }
        let (iface, taps) = (port.iface, &mut self.taps[..]);
        let mut frames = Frames { stack, taps, iface, now, more: true };
        let sent = port.link.send_apart(BATCH, &mut frames);
        let more = frames.more;
        let sent = sent.and_then(|sent| Ok((sent, port.link.flush()?)));
        match sent {
            Ok((sent, pending)) => {
                port.moved(sent);
                port.full = pending > 0 || more && sent < BATCH;
                Ok(sent)
            }
            Err(e) => {
                port.full = true;
                self.pass_over(n, e)
            }
        }
    }

    /// What goes by itself is passed over; an interface that is gone is not.
    fn pass_over(&mut self, n: usize, e: bypath_link::Error) -> Result<usize, Error> {
        use bypath_link::Error::{Down, Interrupted, QueueFull, TooLong, WouldBlock};
        let port = &mut self.ports[n];
        match e {
            WouldBlock | Interrupted | QueueFull { .. } | TooLong { .. } => Ok(0),
            Down { .. } => {
                port.full = false;
                if !std::mem::replace(&mut port.down, true) {
                    port.looks = clock::monotonic_ns() + UP_NS;
                    port.moves = false;
                    tell(&mut self.news, News::Down(port.iface));
                }
                Ok(0)
            }
            source => {
                port.gone = true;
                Err(Error::Link { name: port.name.clone(), source })
            }
        }
    }

    /// Takes the stack's news, and looks whether a lease's address is somebody else's.
    fn hear_of_stack(&mut self, now: Instant) {
        while let Some(event) = self.stack.poll_news() {
            if let Event::AddressConflict { iface, address } = event {
                let port = self.ports.iter_mut().find(|p| p.iface == iface);
                // One that was defended is still in use.
                let addresses = self.stack.addresses(iface);
                let lost = !addresses.iter().any(|a| a.ip() == address && a.is_usable());
                if let Some(leasing) = port.and_then(|p| p.leasing.as_mut()).filter(|_| lost) {
                    leasing.conflict(now, address);
                }
            }
            tell(&mut self.news, News::Stack(event));
        }
    }
}

/// Nobody may fetch them: the oldest go.
fn tell(news: &mut VecDeque<News>, one: News) {
    if news.len() >= MOST_NEWS {
        news.pop_front();
    }
    news.push_back(one);
}

impl Drop for Engine {
    /// Who is connected hears that nobody will answer any more, as far as links take that at once.
    fn drop(&mut self) {
        let now = Engine::now();
        self.stack.reset_connections(now);
        for n in 0..self.ports.len() {
            while matches!(self.send_of(n, now), Ok(sent) if sent > 0) {}
        }
    }
}

#[cfg(test)]
mod tests;
