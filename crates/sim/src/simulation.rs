//! The simulation: nodes, links, and time.

use crate::app::{App, Context};
use crate::check;
use crate::dice::Dice;
use crate::link::{Change, Flight, Link, LinkConfig, LinkCounters};
use crate::record::{Record, Sent};
use crate::router::{Router, RouterCounters};
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::counters::Counters;
use bypath_stack::event::Event;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_stack::time::Instant;
use bypath_wire::ndp::PrefixInformation;
use bypath_wire::{FrameMeta, MacAddr};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

/// A host or a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) usize);

/// Octets of the longest frame.
const ROOM: usize = 65_553;
/// Frames of a run that are kept.
const RECORDED: usize = 100_000;
/// Steps at one time: beyond, time does not go on.
const AT_ONCE: usize = 100_000;
/// Calls of `handle_timeout` at one time after which a timer is stuck; what a host sends to itself takes one for each 256.
const TIMEOUTS: usize = 10_000;

/// A port of a host.
#[derive(Debug)]
struct Port {
    iface: IfaceId,
    link: LinkId,
    /// The link takes nothing: frames stay in the stack.
    stalled: bool,
}

struct Program {
    app: Box<dyn App>,
    dice: Dice,
}

struct Host {
    stack: Stack,
    config: Config,
    ports: Vec<Port>,
    ifaces: Vec<IfaceId>,
    programs: Vec<Program>,
    /// News, if nobody is there to be told.
    events: Vec<Event>,
    before: Counters,
}

enum Node {
    Host(Box<Host>),
    Router(Box<Router>, Vec<LinkId>),
}

#[derive(Debug)]
enum What {
    Frame { node: NodeId, port: usize, frame: Vec<u8> },
    Wake { node: NodeId, program: usize },
}

struct Due {
    at: u64,
    order: u64,
    what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Nodes on links, in virtual time.
///
/// # Panics
/// All its functions do when something does not hold that always must, and for ids of another simulation: it is for tests.
/// While a test fails, dropping it says how to repeat it.
pub struct Simulation {
    name: String,
    seed: u64,
    now: u64,
    order: u64,
    names: Vec<String>,
    nodes: Vec<Node>,
    link_names: Vec<String>,
    links: Vec<Link>,
    due: BinaryHeap<Reverse<Due>>,
    dice: Dice,
    record: Record,
    room: Vec<u8>,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("name", &self.name)
            .field("seed", &self.seed)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl Simulation {
    /// Nothing, at the beginning of time. `name`: of the test, so that it can be repeated; all chance follows from `seed`.
    pub fn new(name: &str, seed: u64) -> Simulation {
        Simulation {
            name: name.to_owned(),
            seed,
            now: 0,
            order: 0,
            names: Vec::new(),
            nodes: Vec::new(),
            link_names: Vec::new(),
            links: Vec::new(),
            due: BinaryHeap::new(),
            dice: Dice::new(seed),
            record: Record::new(RECORDED),
            room: vec![0; ROOM],
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its seed.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The time.
    pub const fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Chance for who drives the simulation.
    pub const fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    // Building.

    /// A new link.
    pub fn link(&mut self, name: &str, config: LinkConfig) -> LinkId {
        let dice = self.dice.fork(1 << 32 | self.links.len() as u64);
        self.links.push(Link::new(config, dice));
        self.link_names.push(name.to_owned());
        LinkId(self.links.len() - 1)
    }

    /// A new host.
    pub fn host(&mut self, name: &str) -> NodeId {
        self.host_with(name, Config::default())
    }

    /// A new host with bounds of its own.
    pub fn host_with(&mut self, name: &str, config: Config) -> NodeId {
        let secret = self.dice.fork(2 << 32 | self.nodes.len() as u64).secret();
        let stack = Stack::new(config.clone(), secret);
        let (ports, ifaces, programs, events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let before = Counters::default();
        self.node(name, Node::Host(Box::new(Host { stack, config, ports, ifaces, programs, events, before })))
    }

    /// A new router.
    pub fn router(&mut self, name: &str) -> NodeId {
        self.node(name, Node::Router(Box::default(), Vec::new()))
    }

    fn node(&mut self, name: &str, node: Node) -> NodeId {
        self.nodes.push(node);
        self.names.push(name.to_owned());
        NodeId(self.nodes.len() - 1)
    }

    /// The hardware address of a node's port: `02:00:00:00:` node, port.
    pub fn mac(&self, node: NodeId, port: usize) -> MacAddr {
        MacAddr([2, 0, 0, 0, node.0 as u8, port as u8])
    }

    /// Puts a node on a link, with these addresses and lengths of networks (`10.0.0.1/24`). Its interface, of a host; ports are
    /// numbered from 0 on.
    pub fn attach(&mut self, node: NodeId, link: LinkId, addresses: &[&str]) -> IfaceId {
        let prefixes = addresses.iter().map(|text| parsed::<Prefix>(text)).collect();
        let mtu = self.links[link.0].config.mtu;
        self.attach_with(node, link, prefixes, mtu, Offload::default())
    }

    /// The same, with an MTU other than the link's, and a link that does part of the work.
    pub fn attach_with(
        &mut self,
        node: NodeId,
        link: LinkId,
        addresses: Vec<Prefix>,
        mtu: usize,
        offload: Offload,
    ) -> IfaceId {
        let now = self.now();
        let port = match &self.nodes[node.0] {
            Node::Host(host) => host.ports.len(),
            Node::Router(router, _) => router.ports.len(),
        };
        let mac = self.mac(node, port);
        self.links[link.0].attach(node, port, mac);
        match &mut self.nodes[node.0] {
            Node::Host(host) => {
                let shape = IfaceConfig { medium: Medium::Ethernet(mac), mtu, offload };
                let iface = host.stack.add_iface(shape).expect("room for an interface");
                for prefix in addresses {
                    host.stack.add_address(now, iface, prefix).expect("an address that can be");
                }
                host.ports.push(Port { iface, link, stalled: false });
                host.ifaces.push(iface);
                iface
            }
            Node::Router(router, links) => {
                router.attach(mac, mtu, addresses);
                links.push(link);
                IfaceId::LOOPBACK
            }
        }
    }

    /// A route: of a host through its first interface, of a router by the port whose network `via` is in.
    pub fn route(&mut self, node: NodeId, to: &str, via: &str) {
        let (prefix, via) = (parsed::<Prefix>(to), parsed::<IpAddr>(via));
        match &mut self.nodes[node.0] {
            Node::Host(host) => {
                let route = Route { prefix, iface: host.ifaces[0], via: Some(via), metric: 0, source: None };
                host.stack.add_route(route).expect("a route that can be");
            }
            Node::Router(router, _) => {
                let on = |port: &crate::router::Port| port.addresses.iter().any(|own| own.contains(via));
                let port = router.ports.iter().position(on).expect("a port on the next router's link");
                router.routes.push((prefix, port, Some(via)));
            }
        }
    }

    /// Hosts on a router's port that ask are told of a network.
    pub fn advertise(&mut self, router: NodeId, port: usize, network: PrefixInformation) {
        if let Node::Router(router, _) = &mut self.nodes[router.0] {
            router.ports[port].advertised.push(network);
            router.advertise(port);
        }
    }

    /// A router's port takes packets of that many octets from now on.
    pub fn set_mtu(&mut self, router: NodeId, port: usize, mtu: usize) {
        if let Node::Router(router, _) = &mut self.nodes[router.0] {
            router.ports[port].mtu = mtu;
        }
    }

    /// A router says nothing of what it drops, or does again.
    pub fn silence(&mut self, router: NodeId, silent: bool) {
        if let Node::Router(router, _) = &mut self.nodes[router.0] {
            router.silent = silent;
        }
    }

    /// Starts a program on a host: it is woken at once.
    pub fn run_program(&mut self, node: NodeId, app: impl App + 'static) {
        let dice = self.dice.fork(3 << 32 | (node.0 as u64) << 16 | self.order);
        let host = self.host_mut(node);
        host.programs.push(Program { app: Box::new(app), dice });
        let program = host.programs.len() - 1;
        self.push(self.now, What::Wake { node, program });
    }

    // Faults.

    /// A link is otherwise for a while, in time since the beginning. Of several changes of its faults the last one counts.
    pub fn change(&mut self, link: LinkId, during: Range<Duration>, change: Change) {
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.links[link.0].change(nanos(during.start)..nanos(during.end), change);
    }

    /// The link of a host's port takes nothing: frames stay in the stack. Or it does again.
    pub fn stall(&mut self, host: NodeId, port: usize, stalled: bool) {
        self.host_mut(host).ports[port].stalled = stalled;
    }

    // Looking.

    /// A host's stack.
    pub fn stack(&mut self, host: NodeId) -> &mut Stack {
        &mut self.host_mut(host).stack
    }

    /// Interfaces of a host, in the order in which they were attached.
    pub fn ifaces(&self, host: NodeId) -> &[IfaceId] {
        match &self.nodes[host.0] {
            Node::Host(host) => &host.ifaces,
            Node::Router(..) => &[],
        }
    }

    /// What a host was told of and no program fetched; they are forgotten.
    pub fn events(&mut self, host: NodeId) -> Vec<Event> {
        std::mem::take(&mut self.host_mut(host).events)
    }

    /// A counter of a host's stack.
    pub fn count(&self, host: NodeId, name: &str) -> u64 {
        let Node::Host(found) = &self.nodes[host.0] else { panic!("{host:?} is a router") };
        let mut all = found.stack.counters().iter();
        all.find(|(other, _)| *other == name).unwrap_or_else(|| panic!("no counter {name}")).1
    }

    /// Counters of a router.
    pub fn router_counters(&self, router: NodeId) -> RouterCounters {
        match &self.nodes[router.0] {
            Node::Router(router, _) => router.counters,
            Node::Host(_) => panic!("{router:?} is a host"),
        }
    }

    /// Counters of a link.
    pub fn link_counters(&self, link: LinkId) -> LinkCounters {
        self.links[link.0].counters
    }

    /// Octets of a packet that a link takes at most.
    pub fn link_mtu(&self, link: LinkId) -> usize {
        self.links[link.0].config.mtu
    }

    /// Names of the links, in the order of their numbers.
    pub fn link_names(&self) -> impl Iterator<Item = &str> {
        self.link_names.iter().map(String::as_str)
    }

    /// The frames of the run.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// Keeps no more than the last `most` frames.
    pub fn keep(&mut self, most: usize) {
        self.record.keep(most);
    }

    /// Forgets the frames so far.
    pub fn forget_frames(&mut self) {
        self.record.clear();
    }

    // Running.

    /// Hands a host a frame, as if its link had: an attacker's.
    pub fn hand(&mut self, host: NodeId, port: usize, frame: &[u8], meta: &FrameMeta) {
        let (now, link) = (self.now(), self.host_mut(host).ports[port].link);
        self.record.push(Sent { at: now, link, frame: frame.to_vec(), remark: String::from("handed in") });
        let found = self.host_mut(host);
        found.stack.handle_frame(now, found.ports[port].iface, frame, meta);
        self.check(host);
    }

    /// Lets time go on, and everything happen in it.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time.as_nanos() as u64;
        let mut at_once = 0;
        loop {
            self.settle();
            let hosts = self.nodes.iter().filter_map(|node| match node {
                Node::Host(host) => host.stack.poll_timeout().map(Instant::as_nanos),
                Node::Router(..) => None,
            });
            let next = hosts.chain(self.due.peek().map(|Reverse(due)| due.at)).min();
            let Some(next) = next.map(|next| next.max(self.now)).filter(|next| *next <= end) else { break };
            at_once = if next == self.now { at_once + 1 } else { 0 };
            assert!(at_once < AT_ONCE, "{:?}: time does not go on", self.now());
            self.now = next;
            while self.due.peek().is_some_and(|Reverse(due)| due.at <= self.now) {
                let Some(Reverse(due)) = self.due.pop() else { break };
                self.happen(due.what);
            }
        }
        self.now = end;
    }

    fn push(&mut self, at: u64, what: What) {
        let order = self.order;
        self.order += 1;
        self.due.push(Reverse(Due { at: at.max(self.now), order, what }));
    }

    fn happen(&mut self, what: What) {
        let now = self.now();
        match what {
            What::Wake { node, program } => self.tell(node, program, None),
            What::Frame { node, port, frame } => match &mut self.nodes[node.0] {
                Node::Router(router, _) => router.handle(port, &frame),
                Node::Host(host) => {
                    // What the link completes for its senders, it has completed.
                    host.stack.handle_frame(now, host.ports[port].iface, &frame, &FrameMeta::default());
                    self.check(node);
                }
            },
        }
    }

    /// Tells a program something.
    fn tell(&mut self, node: NodeId, program: usize, event: Option<&Event>) {
        let now = self.now();
        let host = self.host_mut(node);
        let Program { app, dice } = &mut host.programs[program];
        let mut context =
            Context { now, stack: &mut host.stack, ifaces: &host.ifaces, dice, wakes: Vec::new() };
        match event {
            Some(event) => app.event(&mut context, event),
            None => app.wake(&mut context),
        }
        let wakes = context.wakes;
        for at in wakes {
            self.push(at.as_nanos(), What::Wake { node, program });
        }
        self.check(node);
    }

    /// Due timers, news, and frames that are to be sent, of all nodes.
    fn settle(&mut self) {
        for n in 0..self.nodes.len() {
            let node = NodeId(n);
            match &mut self.nodes[n] {
                Node::Router(router, links) => {
                    let (out, links) = (std::mem::take(&mut router.out), links.clone());
                    for (port, frame) in out {
                        self.send(node, port, links[port], frame);
                    }
                }
                Node::Host(_) => self.settle_host(node),
            }
        }
    }

    fn settle_host(&mut self, node: NodeId) {
        let now = self.now();
        for _ in 0..TIMEOUTS {
            let host = self.host_mut(node);
            let mut busy = false;
            if host.stack.poll_timeout().is_some_and(|due| due <= now) {
                let before = (*host.stack.counters(), host.stack.usage());
                host.stack.handle_timeout(now);
                let after = (*host.stack.counters(), host.stack.usage());
                let still = host.stack.poll_timeout().is_some_and(|due| due <= now);
                assert!(!still || before != after, "{now:?} {}: a timer is stuck", self.names[node.0]);
                self.check(node);
                busy = true;
            }
            while let Some(event) = self.host_mut(node).stack.poll_event() {
                busy = true;
                let programs = self.host_mut(node).programs.len();
                if programs == 0 {
                    self.host_mut(node).events.push(event);
                }
                for program in 0..programs {
                    self.tell(node, program, Some(&event));
                }
            }
            for port in 0..self.host_mut(node).ports.len() {
                busy |= self.transmit(node, port);
            }
            if !busy {
                return;
            }
        }
        panic!("{now:?} {}: it is never done", self.names[node.0]);
    }

    /// Sends what a host has for a link. False: nothing.
    fn transmit(&mut self, node: NodeId, port: usize) -> bool {
        let now = self.now();
        let mut room = std::mem::take(&mut self.room);
        let mut any = false;
        loop {
            let host = self.host_mut(node);
            let Port { iface, link, stalled } = host.ports[port];
            if stalled {
                break;
            }
            let Some((len, meta)) = host.stack.poll_transmit(now, iface, &mut room) else { break };
            any = true;
            self.check(node);
            let mtu = self.links[link.0].config.mtu;
            let wrong = check::frame(&room[..len], &meta, mtu);
            wrong.unwrap_or_else(|wrong| panic!("{now:?} {}: {wrong}", self.names[node.0]));
            for frame in offloaded(&room[..len], &meta) {
                self.send(node, port, link, frame);
            }
        }
        self.room = room;
        any
    }

    /// Puts a frame on a link.
    fn send(&mut self, node: NodeId, port: usize, link: LinkId, frame: Vec<u8>) {
        let at = self.now();
        let mut flights = Vec::new();
        let remark = self.links[link.0].send(self.now, (node, port), &frame, &mut flights);
        self.record.push(Sent { at, link, frame, remark });
        for Flight { at: then, to: (node, port), frame, corrupted } in flights {
            if corrupted {
                let remark = format!("as {} gets it", self.names[node.0]);
                self.record.push(Sent { at, link, frame: frame.clone(), remark });
            }
            self.push(then, What::Frame { node, port, frame });
        }
    }

    fn check(&mut self, node: NodeId) {
        let (now, Node::Host(host)) = (self.now(), &mut self.nodes[node.0]) else { return };
        let ifaces = host.ports.len() + 1;
        let held = check::stack(&host.stack, &host.config, ifaces, &host.before);
        held.unwrap_or_else(|wrong| panic!("{now:?} {}: {wrong}", self.names[node.0]));
        host.before = *host.stack.counters();
    }

    fn host_mut(&mut self, host: NodeId) -> &mut Host {
        match &mut self.nodes[host.0] {
            Node::Host(host) => host,
            Node::Router(..) => panic!("{} is a router", self.names[host.0]),
        }
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        #[cfg(feature = "pcapng")]
        if std::thread::panicking() {
            self.tell_how_to_repeat();
        }
    }
}

fn parsed<T: std::str::FromStr<Err: fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// What a device makes of a frame that was left to it.
fn offloaded(frame: &[u8], meta: &FrameMeta) -> Vec<Vec<u8>> {
    assert!(meta.gso.is_none(), "links of the simulation cut nothing");
    let mut frame = frame.to_vec();
    if let bypath_wire::meta::ChecksumState::Partial { start, offset } = meta.checksum {
        let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
        let sum = bypath_wire::checksum::checksum(&frame[start..]);
        // RFC 768: a checksum of zero is sent as all ones.
        let sum = if sum == 0 { 0xffff } else { sum };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    vec![frame]
}
