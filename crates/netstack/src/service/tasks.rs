//! What a query has done beside telling rows: changes at once, and what takes its time, echo requests and captures. Only root, and the user
//! whose the service is, may ask for it.

use super::query::{Progress, interfaces, name_of};
use super::rows::{Change, Question};
use super::slab::Key;
use super::watch::{Token, Watch};
use crate::ping::{PingEvent, Pinger};
use crate::setup::another_hosts;
use crate::tap::TapCounts;
use crate::{Engine, Way};
use bypath_link::Medium;
use bypath_stack::iface::{Address, AddressState, IfaceId, NoAddress};
use bypath_stack::linux::errno::Errno;
use bypath_stack::prefix::Prefix;
use bypath_sys::{clock, netif, process, unix};
use serde_json::json;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Calls that hand on frames of a capture in one turn.
const CALLS: usize = 16;

/// Why something is not done.
pub type Refusal = (Errno, String);

/// What a query does.
pub enum Doing {
    /// It tells rows.
    Rows(Progress),
    /// It did something, and tells what came of it.
    Done(Option<String>),
    /// It asks others whether an address is theirs.
    Claim(Claiming),
    /// It asks others for answers.
    Ping(Box<Pinging>),
    /// It writes frames.
    Capture(Box<Capturing>),
}

/// What comes of a query next.
pub enum Next {
    /// A row; empty: that was all.
    Row(String),
    /// It is not done after all: the only answer.
    Refused(Refusal),
    /// Nothing yet.
    Later,
}

/// Who asks.
pub struct Who<'a> {
    pub uid: u32,
    pub key: Key,
    pub watch: &'a Watch,
    /// How many have others waiting for them.
    pub tasks: usize,
}

/// Those that take their time, at once, at most.
const MOST_TASKS: usize = 64;

/// Begins what a question asks for. `None`: it makes no sense.
pub fn begin(
    body: &[u8],
    fds: Vec<OwnedFd>,
    engine: &mut Engine,
    who: &Who<'_>,
) -> Option<Result<Doing, Refusal>> {
    if let Some(progress) = Progress::of(body) {
        return Some(Ok(Doing::Rows(progress)));
    }
    let question: Question = serde_json::from_slice(body).ok()?;
    if who.uid != 0 && who.uid != process::euid() {
        let text = "only root, and the user who runs the service, may ask for this".to_owned();
        return Some(Err((libc::EPERM, text)));
    }
    let is_brief = match &question {
        Question::Change(Change::AddAddress { claim, .. }) => !claim,
        Question::Change(_) => true,
        _ => false,
    };
    if who.tasks >= MOST_TASKS && !is_brief {
        let text = format!("{MOST_TASKS} captures, pings and claims of addresses are under way already");
        return Some(Err((libc::EBUSY, text)));
    }
    Some(match question {
        Question::Change(Change::AddAddress { address, interface, claim }) => {
            add_address(engine, &address, interface.as_deref(), claim)
        }
        Question::Change(change) => apply(&change, engine).map(done),
        Question::Ping(ping) => match ping.wrong() {
            Some(wrong) => Err((libc::EINVAL, wrong.to_owned())),
            None => {
                let on = engine.links().next().map_or(IfaceId::LOOPBACK, |(iface, _)| iface);
                let begun = Pinger::begin(engine.stack(), ping, process::random_u64(), clock::monotonic_ns());
                let pinging = |pinger| {
                    Doing::Ping(Box::new(Pinging { pinger: Some(pinger), on, due: Some(0), again: None }))
                };
                begun.map(pinging).map_err(|e| (libc::ENFILE, e.to_string()))
            }
        },
        Question::Capture { interface, count, snap, filter } => {
            let out = fds.into_iter().next().filter(|fd| unix::peer_credentials(fd.as_raw_fd()).is_ok());
            let Some(out) = out.map(UnixStream::from).filter(|out| out.set_nonblocking(true).is_ok()) else {
                return Some(Err((
                    libc::ENOTSOCK,
                    "an AF_UNIX socket is to come along, for the frames".to_owned(),
                )));
            };
            capture(engine, interface.as_deref(), (count, snap), filter, out, who)
        }
    })
}

fn capture(
    engine: &mut Engine,
    interface: Option<&str>,
    (count, snap): (Option<u64>, Option<usize>),
    filter: crate::Filter,
    out: UnixStream,
    who: &Who<'_>,
) -> Result<Doing, Refusal> {
    let on = interface.map(|name| by_name(engine, Some(name))).transpose()?;
    let snap = snap.filter(|snap| *snap > 0).unwrap_or(usize::MAX);
    let tap = engine.begin_tap(on, filter, count, snap).map_err(|e| (libc::ENODEV, e.to_string()))?;
    let token = Token::Control(who.key);
    if who.watch.edge(out.as_fd(), token).is_err() {
        engine.end_tap(tap);
        return Err((libc::ENOMEM, "the service has no memory to wait for the reader".to_owned()));
    }
    who.watch.room(out.as_fd(), token, true);
    let state = State::Runs;
    Ok(Doing::Capture(Box::new(Capturing { tap, out, blocked: false, state, again: None })))
}

impl Doing {
    /// Its next row, if that is no row of [`Progress`].
    pub fn next(&mut self, engine: &mut Engine) -> Next {
        match self {
            Doing::Rows(_) => Next::Later,
            Doing::Done(text) => Next::Row(text.take().unwrap_or_default()),
            Doing::Claim(claiming) => claiming.next(engine),
            Doing::Ping(pinging) => pinging.again.take().map_or_else(|| pinging.next(engine), Next::Row),
            Doing::Capture(capturing) => {
                capturing.again.take().map_or_else(|| capturing.next(engine), Next::Row)
            }
        }
    }

    /// A row was taken.
    pub const fn told(&mut self) {
        if let Doing::Rows(progress) = self {
            progress.next();
        }
    }

    /// A row was not taken: it comes once more.
    pub fn again(&mut self, text: String) {
        match self {
            // It is made anew.
            Doing::Rows(_) => {}
            Doing::Done(row) => *row = Some(text).filter(|text| !text.is_empty()),
            Doing::Claim(claiming) => claiming.again = Some(text).filter(|text| !text.is_empty()),
            Doing::Ping(pinging) => pinging.again = Some(text),
            Doing::Capture(capturing) => capturing.again = Some(text),
        }
    }

    /// When it has something to do, whatever comes (ns).
    pub fn due(&self, engine: &mut Engine) -> Option<u64> {
        match self {
            // The stack says when it knows.
            Doing::Rows(_) | Doing::Done(_) | Doing::Claim(_) => None,
            // Who does not read his answers is told of room; nothing is due before.
            Doing::Ping(pinging) if pinging.again.is_some() => None,
            Doing::Ping(pinging) => pinging.due,
            Doing::Capture(c) if c.blocked || c.again.is_some() => None,
            Doing::Capture(c) => engine.tap(c.tap).is_some_and(|tap| !tap.is_empty()).then_some(0),
        }
    }

    /// Others wait for it, and it for them.
    pub const fn is_task(&self) -> bool {
        matches!(self, Doing::Claim(_) | Doing::Ping(_) | Doing::Capture(_))
    }

    /// Who asked has heard enough: it tells what has come of it, and ends.
    pub fn stop(&mut self) {
        match self {
            Doing::Rows(_) | Doing::Done(_) => {}
            Doing::Claim(claiming) => claiming.stopped = true,
            Doing::Ping(pinging) => pinging.due = None,
            Doing::Capture(c) => {
                if matches!(c.state, State::Runs) {
                    c.state = State::Ends;
                }
            }
        }
    }

    /// Nothing is left of it.
    pub fn end(self, engine: &mut Engine, watch: &Watch) {
        match self {
            Doing::Rows(_) | Doing::Done(_) => {}
            Doing::Claim(claiming) => claiming.end(engine),
            Doing::Ping(mut pinging) => {
                if let Some(pinger) = pinging.pinger.take() {
                    pinger.end(engine.stack());
                }
            }
            Doing::Capture(c) => {
                engine.end_tap(c.tap);
                watch.forget(c.out.as_fd());
            }
        }
    }
}

/// An address whose others are asked.
pub struct Claiming {
    iface: IfaceId,
    own: Prefix,
    /// Of all that the stack ever had.
    serial: u64,
    /// It is known to be free.
    is_ours: bool,
    /// Who asked does not wait any longer.
    stopped: bool,
    /// A row for which there was no room.
    again: Option<String>,
}

impl Claiming {
    fn next(&mut self, engine: &mut Engine) -> Next {
        if let Some(text) = self.again.take() {
            return Next::Row(text);
        }
        if self.is_ours {
            return Next::Row(String::new());
        }
        let ip = self.own.address();
        let Some(address) = self.address(engine) else {
            return Next::Refused((libc::EADDRNOTAVAIL, format!("{ip} was removed meanwhile")));
        };
        match address.state {
            AddressState::Duplicate => {
                let name = name_of(engine, self.iface);
                let text = another_hosts(ip, &name, address.holder);
                Next::Refused((libc::EADDRINUSE, format!("{text}; give the stack one of its own")))
            }
            AddressState::Tentative { .. } if self.stopped => {
                Next::Refused((libc::EINTR, format!("whether {ip} is free is not known: not added")))
            }
            AddressState::Tentative { .. } => Next::Later,
            AddressState::Preferred | AddressState::Deprecated => {
                self.is_ours = true;
                Next::Row(added(self.own))
            }
        }
    }

    /// The address, if it is there yet: another one may have its place by now.
    fn address(&self, engine: &mut Engine) -> Option<Address> {
        let own = |a: &&Address| a.ip() == self.own.address() && a.serial == self.serial;
        engine.stack().addresses(self.iface).iter().find(own).copied()
    }

    /// What is not known to be free is not kept.
    fn end(self, engine: &mut Engine) {
        if !self.is_ours && self.address(engine).is_some() {
            engine.stack().remove_address(self.iface, self.own.address());
        }
    }
}

/// Echo requests.
pub struct Pinging {
    /// `None`: how it went was told.
    pinger: Option<Pinger>,
    on: IfaceId,
    /// `None`: it is to end.
    due: Option<u64>,
    /// A row for which there was no room.
    again: Option<String>,
}

impl Pinging {
    fn next(&mut self, engine: &mut Engine) -> Next {
        let Some(pinger) = &mut self.pinger else { return Next::Row(String::new()) };
        let now = clock::monotonic_ns();
        if let Some(event) = pinger.event(engine.stack(), now) {
            return Next::Row(json!(event).to_string());
        }
        if self.due.is_some() {
            match pinger.turn(engine.stack(), now, self.on) {
                Ok(due) => self.due = due,
                Err(e) => {
                    self.finish(engine);
                    return Next::Row(json!({ "event": "failed", "error": e.to_string() }).to_string());
                }
            }
        }
        if self.due.is_some() {
            return Next::Later;
        }
        // What it has to say of the whole.
        if let Some(event) = pinger.event(engine.stack(), now) {
            return Next::Row(json!(event).to_string());
        }
        Next::Row(json!(PingEvent::Ended(self.finish(engine))).to_string())
    }

    fn finish(&mut self, engine: &mut Engine) -> crate::PingCounts {
        self.pinger.take().map(|pinger| pinger.end(engine.stack())).unwrap_or_default()
    }
}

/// Frames on their way to who captures.
pub struct Capturing {
    tap: u64,
    out: UnixStream,
    /// The reader had no room when it was last asked.
    blocked: bool,
    state: State,
    /// A row for which there was no room.
    again: Option<String>,
}

enum State {
    Runs,
    /// What waits is handed on, and then it is told how much it was.
    Ends,
    Told,
}

impl Capturing {
    fn next(&mut self, engine: &mut Engine) -> Next {
        let Some(tap) = engine.tap(self.tap) else { return Next::Row(String::new()) };
        if matches!(self.state, State::Runs) && tap.is_complete() {
            self.state = State::Ends;
        }
        if matches!(self.state, State::Ends) {
            tap.end();
        }
        self.blocked = false;
        for _ in 0..CALLS {
            if tap.is_empty() {
                break;
            }
            match tap.hand_on(&self.out) {
                Ok(n) if n > 0 => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // Nobody reads any more.
                _ => return self.tell(tap.counts()),
            }
        }
        match self.state {
            State::Runs => Next::Later,
            State::Ends if tap.is_empty() => self.tell(tap.counts()),
            State::Ends => Next::Later,
            State::Told => Next::Row(String::new()),
        }
    }

    fn tell(&mut self, counts: TapCounts) -> Next {
        match std::mem::replace(&mut self.state, State::Told) {
            State::Told => Next::Row(String::new()),
            _ => Next::Row(json!(counts).to_string()),
        }
    }
}

/// The interface of this name; without a name the first link.
fn by_name(engine: &Engine, name: Option<&str>) -> Result<IfaceId, Refusal> {
    let Some(name) = name else {
        return engine
            .links()
            .next()
            .map(|(iface, _)| iface)
            .ok_or((libc::ENODEV, "there is no link".to_owned()));
    };
    let all = interfaces(engine);
    let found = all.iter().find(|(_, other)| other == name).map(|(iface, _)| *iface);
    let names = || all.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| {
        (libc::ENODEV, format!("{name}: no such interface of the service; there are: {}", names()))
    })
}

fn prefix(text: &str) -> Result<Prefix, Refusal> {
    let expected = || {
        (libc::EINVAL, format!("{text}: expected an address with its network's prefix, such as 10.9.0.3/24"))
    };
    text.contains('/').then(|| text.parse().ok()).flatten().ok_or_else(expected)
}

/// A network: `default` is all of the router's kind, or of IPv4.
fn network(text: &str, via: Option<IpAddr>) -> Result<Prefix, Refusal> {
    match text {
        "default" if via.is_some_and(|via| via.is_ipv6()) => Ok(Prefix::ALL_V6),
        "default" => Ok(Prefix::ALL_V4),
        text => prefix(text).map(Prefix::network),
    }
}

fn done(text: String) -> Doing {
    Doing::Done(Some(json!({ "done": text }).to_string()))
}

/// The row that says that an address is there.
fn added(own: Prefix) -> String {
    json!({ "done": format!("{own} added") }).to_string()
}

/// Adds an address that nobody else on this host has; with `claim` it is there once nobody else on the link is known to have it, and
/// otherwise at once, as far as the stack does not ask by itself.
fn add_address(
    engine: &mut Engine,
    address: &str,
    interface: Option<&str>,
    claim: bool,
) -> Result<Doing, Refusal> {
    let (iface, own, now) = (by_name(engine, interface)?, prefix(address)?, Engine::now());
    // The kernel would hear neither our questions nor our answers.
    if let Ok(Some(holder)) = netif::holder(own.address()) {
        let text = format!("{own}: the kernel has that address on {holder}; give the stack one of its own");
        return Err((libc::EADDRINUSE, text));
    }
    let stack = engine.stack();
    let taken = if claim { stack.claim_address(now, iface, own) } else { stack.add_address(now, iface, own) };
    taken.map_err(|e| match e {
        NoAddress::Exists => (libc::EEXIST, format!("{own}: {e}")),
        NoAddress::Full { .. } | NoAddress::Routes { .. } => (libc::ENOSPC, format!("{own}: {e}")),
        _ => (libc::EINVAL, format!("{own}: {e}")),
    })?;
    if !claim {
        return Ok(Doing::Done(Some(added(own))));
    }
    let added = engine.stack().addresses(iface).iter().find(|a| a.ip() == own.address());
    let serial = added.map_or(0, |added| added.serial);
    Ok(Doing::Claim(Claiming { iface, own, serial, is_ours: false, stopped: false, again: None }))
}

/// Whether a router is on the link of an interface: in the network of an address there, or of a route without a router. Behind a link
/// without hardware addresses everybody is.
fn is_near(engine: &mut Engine, iface: IfaceId, router: IpAddr) -> bool {
    let ip_alone = engine.capabilities(iface).is_some_and(|can| can.medium == Medium::Ip);
    let stack = engine.stack();
    let of_kind = |other: &Address| other.ip().is_ipv4() == router.is_ipv4();
    let own = stack.addresses(iface).iter().filter(|a| a.state != AddressState::Duplicate);
    let link_local = matches!(router, IpAddr::V6(v6) if v6.is_unicast_link_local());
    own.clone().any(|a| a.prefix.contains(router))
        || (ip_alone || link_local) && own.clone().any(of_kind)
        || stack.routes().any(|r| r.iface == iface && r.via.is_none() && r.prefix.contains(router))
}

/// Makes a change; what was done.
fn apply(change: &Change, engine: &mut Engine) -> Result<String, Refusal> {
    let exists = |e: String| (libc::EEXIST, e);
    match change {
        // It may take its time: `add_address`.
        Change::AddAddress { .. } => Err((libc::EINVAL, "an address is added otherwise".to_owned())),
        Change::RemoveAddress { address, interface } => {
            let iface = by_name(engine, interface.as_deref())?;
            let gone = engine.stack().remove_address(iface, *address);
            let none = || (libc::EADDRNOTAVAIL, format!("{address} is no address of the interface"));
            gone.then(|| format!("{address} removed")).ok_or_else(none)
        }
        Change::AddRoute { to, via, interface, metric } => {
            let (iface, to) = (by_name(engine, interface.as_deref())?, network(to, *via)?);
            let way = Way { to, via: *via, metric: *metric };
            if let Some(via) = via
                && engine.stack().addresses(iface).iter().any(|own| own.ip() == *via)
            {
                return Err((libc::EINVAL, format!("{via} is the stack's own address; give the router's")));
            }
            if let Some(via) = via.filter(|via| !is_near(engine, iface, *via)) {
                let name = name_of(engine, iface);
                let text = format!(
                    "route to {to} via {via}: that router is in no network of the stack's addresses on {name}; give one that is on the link"
                );
                return Err((libc::ENETUNREACH, text));
            }
            engine.stack().add_route(way.route(iface)).map_err(|e| exists(format!("{to}: {e}")))?;
            Ok(format!("route to {to} added"))
        }
        Change::RemoveRoute { to, via, interface } => {
            let to = network(to, *via)?;
            let on = interface.as_deref().map(|name| by_name(engine, Some(name))).transpose()?;
            let gone = engine.stack().remove_routes(|route| {
                route.prefix == to
                    && (via.is_none() || route.via == *via)
                    && on.is_none_or(|on| route.iface == on)
            });
            if gone == 0 {
                return Err((libc::ESRCH, format!("there is no such route to {to}")));
            }
            Ok(format!("{gone} route(s) to {to} removed"))
        }
        Change::FlushNeighbors { address, interface } => {
            let all: Vec<IfaceId> = match interface {
                Some(name) => vec![by_name(engine, Some(name))?],
                None => engine.links().map(|(iface, _)| iface).collect(),
            };
            let mut gone = 0;
            for iface in all {
                let stack = engine.stack();
                let known: Vec<_> = stack.all_neighbors(iface).map(|(ip, ..)| ip).collect();
                for ip in known.into_iter().filter(|ip| address.is_none_or(|wanted| wanted == *ip)) {
                    stack.remove_neighbor(iface, ip);
                    gone += 1;
                }
            }
            match (gone, address) {
                (0, Some(address)) => Err((libc::ESRCH, format!("{address} is no neighbour that is known"))),
                _ => Ok(format!("{gone} neighbour(s) forgotten")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_stack::config::Config;

    #[test]
    fn who_is_neither_root_nor_the_services_user_may_look_and_touch_nothing() {
        let mut engine = Engine::with_seed(Config::default(), [7; 32]);
        let watch = Watch::new().expect("a set");
        let own = process::euid();
        let mut asked = |question: &str, uid, tasks| {
            let who = Who { uid, key: Key { index: 0, generation: 0 }, watch: &watch, tasks };
            begin(question.as_bytes(), Vec::new(), &mut engine, &who)
                .map(|begun| begun.map_err(|(errno, _)| errno))
        };
        let ping = r#"{"what":"ping","destination":"127.0.0.1","count":1,"interval_ns":0,"timeout_ns":9,"octets":56,"hop_limit":64}"#;
        let change = r#"{"what":"change","change":"flush-neighbors"}"#;
        for question in [ping, change, r#"{"what":"capture"}"#] {
            assert!(matches!(asked(question, own + 1, 0), Some(Err(libc::EPERM))), "{question}");
        }
        assert!(matches!(asked(r#"{"what":"links"}"#, own + 1, 0), Some(Ok(Doing::Rows(_)))));
        assert!(matches!(asked(ping, own, 0), Some(Ok(Doing::Ping(_)))));
        assert!(matches!(asked(ping, own, MOST_TASKS), Some(Err(libc::EBUSY))));
        assert!(matches!(asked(change, 0, MOST_TASKS), Some(Ok(Doing::Done(Some(_))))));
        let claim = |claim| {
            format!(r#"{{"what":"change","change":"add-address","address":"10.9.0.3/24","claim":{claim}}}"#)
        };
        assert!(matches!(asked(&claim(true), 0, MOST_TASKS), Some(Err(libc::EBUSY))));
        assert!(matches!(asked(&claim(false), 0, MOST_TASKS), Some(Err(libc::ENODEV))));
        assert!(matches!(asked(r#"{"what":"capture"}"#, 0, 0), Some(Err(libc::ENOTSOCK))));
        for nonsense in [
            "",
            "{}",
            r#"{"what":"weather"}"#,
            r#"{"what":"change","change":"everything"}"#,
            r#"{"what":"ping"}"#,
        ] {
            assert!(asked(nonsense, 0, 0).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn a_claim_ends_with_its_own_address_and_leaves_the_one_that_stands_in_its_place() {
        let mut engine = Engine::with_seed(Config::default(), [7; 32]);
        let (link, _other) = bypath_link::pair::pair(1500, 64);
        let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
        let mut claimed = |again: bool| {
            let Ok(mut doing) = add_address(&mut engine, "10.9.0.3/24", None, true) else {
                panic!("a claim")
            };
            assert!(matches!(doing.next(&mut engine), Next::Later));
            let (ip, now) = ("10.9.0.3".parse().expect("an address"), Engine::now());
            if again {
                assert!(engine.stack().remove_address(iface, ip));
                engine
                    .stack()
                    .add_address(now, iface, "10.9.0.3/24".parse().expect("a prefix"))
                    .expect("room");
                assert!(matches!(doing.next(&mut engine), Next::Refused((libc::EADDRNOTAVAIL, _))));
            }
            doing.end(&mut engine, &Watch::new().expect("a set"));
            let left = engine.stack().addresses(iface).iter().any(|a| a.ip() == ip);
            engine.stack().remove_address(iface, ip);
            left
        };
        assert_eq!([claimed(false), claimed(true)], [false, true]);
    }
}
