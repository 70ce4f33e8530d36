//! A host on a link of this machine, said in words: which link, which addresses and routers, or DHCP.
//!
//! ```no_run
//! use bypath_netstack::{Setup, UdpSocket};
//! use std::time::Duration;
//!
//! // Makes a TAP device; the kernel is 10.9.0.1, the stack 10.9.0.2.
//! let setup = Setup::on("tap:bp0".parse()?).kernel("10.9.0.1".parse()?, 24).address("10.9.0.2/24".parse()?);
//! let host = setup.open()?.run(Duration::from_secs(30))?;
//! let socket = UdpSocket::bind(&host, "0.0.0.0:7".parse()?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Engine, Host};
use bypath_link::capture::Capture;
use bypath_link::fault::{FaultInjector, Faults, Switch};
use bypath_link::packet::{self, Mode, PacketLink};
use bypath_link::tun::Device;
use bypath_link::{Link, xdp};
use bypath_stack::config::Config;
use bypath_stack::iface::{Address, AddressState, IfaceId, NoAddress};
use bypath_stack::prefix::Prefix;
use bypath_stack::route::{NoRoute, Route};
use bypath_sys::clock;
use bypath_wire::{EtherType, MacAddr};
use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// EtherTypes of a host.
const OWN: [EtherType; 3] = [EtherType::IPV4, EtherType::IPV6, EtherType::ARP];

/// Octets of the ring of a link that is looked at all the time. A frame has a slot for the longest one, 64 KiB.
const SPUN_RING: usize = 32 << 20;

/// What a stack can stand on, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkName {
    /// `tap:NAME`: a TAP device that is made, with the kernel at its other end.
    Tap(String),
    /// `tun:NAME`: a TUN device that is made. It has no hardware addresses, and so no DHCP.
    Tun(String),
    /// `packet:IFACE`: an interface, by packet sockets.
    Packet(String),
    /// `xdp:IFACE`: the first queue of an interface, by AF_XDP. All IP that comes there is the stack's then.
    Xdp(String),
}

/// A text that names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected tap:NAME or tun:NAME (a device that is made), packet:IFACE or xdp:IFACE")]
pub struct NoLinkName;

impl FromStr for LinkName {
    type Err = NoLinkName;

    fn from_str(text: &str) -> Result<LinkName, NoLinkName> {
        let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or(NoLinkName)?;
        let kind = match kind {
            "tap" => LinkName::Tap,
            "tun" => LinkName::Tun,
            "packet" => LinkName::Packet,
            "xdp" => LinkName::Xdp,
            _ => return Err(NoLinkName),
        };
        Ok(kind(name.to_owned()))
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.kind();
        write!(f, "{kind}:{name}")
    }
}

impl LinkName {
    /// The word for its kind, such as `tap`, and its name.
    pub fn kind(&self) -> (&'static str, &str) {
        match self {
            LinkName::Tap(name) => ("tap", name),
            LinkName::Tun(name) => ("tun", name),
            LinkName::Packet(name) => ("packet", name),
            LinkName::Xdp(name) => ("xdp", name),
        }
    }

    /// Whether it is a device that has its other end in the kernel.
    pub const fn is_device(&self) -> bool {
        matches!(self, LinkName::Tap(_) | LinkName::Tun(_))
    }
}

/// A host that cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// What is asked for does not go together.
    #[error("{0}")]
    Contradiction(&'static str),
    /// The link cannot be opened.
    #[error(transparent)]
    Link(#[from] bypath_link::Error),
    /// The stack does not take the link.
    #[error(transparent)]
    Engine(#[from] crate::Error),
    /// The stack does not take the address.
    #[error("{prefix}: {source}")]
    Address {
        /// Which.
        prefix: Prefix,
        /// Why.
        source: NoAddress,
    },
    /// The stack does not take the router.
    #[error("router {router}: {source}")]
    Router {
        /// Which.
        router: IpAddr,
        /// Why.
        source: NoRoute,
    },
    /// The router is not on the link.
    #[error("router {router} is in no network of the stack's addresses; give one that is on the link")]
    Far {
        /// Which.
        router: IpAddr,
    },
    /// The router is the stack itself.
    #[error("router {router} is the stack's own address; give the one of the router")]
    Own {
        /// Which.
        router: IpAddr,
    },
    /// Another host has an address.
    #[error("{}; give the stack one of its own", another_hosts(*address, name, *holder))]
    Taken {
        /// Which.
        address: IpAddr,
        /// Of which link.
        name: String,
        /// The hardware address of the other one, as far as it was told.
        holder: Option<MacAddr>,
    },
    /// No DHCP server answers.
    #[error("no DHCP server answers on {name} within {} s; give an address", longest.as_secs())]
    NoServer {
        /// Of which link.
        name: String,
        /// How long it was waited for.
        longest: Duration,
    },
    /// It is not known yet whether others have the addresses.
    #[error("whether the addresses on {name} are free was not to be found out within {} s", longest.as_secs())]
    NotReady {
        /// Of which link.
        name: String,
        /// How long it was waited for.
        longest: Duration,
    },
    /// No router advertises itself.
    #[error("no router advertises itself on {name} within {} s; give an address", longest.as_secs())]
    NoRouter {
        /// Of which link.
        name: String,
        /// How long it was waited for.
        longest: Duration,
    },
    /// The capture file cannot be written.
    #[error("the capture file cannot be written: {0}")]
    Capture(std::io::Error),
    /// The link went meanwhile.
    #[error("{0}")]
    Ended(String),
    /// There is no thread, or no descriptor, to be had.
    #[error(transparent)]
    Thread(#[from] std::io::Error),
}

/// That somebody else has an address of ours.
pub(crate) fn another_hosts(address: IpAddr, name: &str, holder: Option<MacAddr>) -> String {
    let holder = holder.map_or(String::new(), |mac| format!(" ({mac})"));
    format!("{address} is another host's on {name}{holder}")
}

/// What host is wanted.
#[derive(Clone, Debug)]
pub struct Setup {
    link: LinkName,
    attach: bool,
    kernel: Vec<(IpAddr, u8)>,
    addresses: Vec<Prefix>,
    routers: Vec<IpAddr>,
    routes: Vec<Way>,
    dhcp: Option<Option<String>>,
    slaac: bool,
    claims: bool,
    mtu: Option<u32>,
    spins: bool,
    capture: Option<Arc<File>>,
    faults: Option<Faults>,
    config: Config,
}

/// A way to a network that is not on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it leads.
    pub to: Prefix,
    /// By this router; `None`: the receivers are on the link.
    pub via: Option<IpAddr>,
    /// Of several ways to one network the smallest is taken.
    pub metric: u32,
}

impl Way {
    /// To all networks of a router's kind.
    pub const fn default_by(router: IpAddr) -> Way {
        let to = if router.is_ipv4() { Prefix::ALL_V4 } else { Prefix::ALL_V6 };
        Way { to, via: Some(router), metric: 0 }
    }

    /// The same as a route of an interface.
    pub const fn route(self, iface: IfaceId) -> Route {
        Route { prefix: self.to, iface, via: self.via, metric: self.metric, source: None }
    }
}

impl Setup {
    /// A host on this link, without an address yet.
    pub fn on(link: LinkName) -> Setup {
        Setup {
            link,
            attach: false,
            kernel: Vec::new(),
            addresses: Vec::new(),
            routers: Vec::new(),
            routes: Vec::new(),
            dhcp: None,
            slaac: false,
            claims: false,
            mtu: None,
            spins: false,
            capture: None,
            faults: None,
            config: Config::default(),
        }
    }

    /// The device exists, and persists.
    #[must_use]
    pub const fn attach(mut self) -> Setup {
        self.attach = true;
        self
    }

    /// The kernel's address at its end of a device, with the length of the network's prefix. Again: one more.
    #[must_use]
    pub fn kernel(mut self, address: IpAddr, prefix: u8) -> Setup {
        self.kernel.push((address, prefix));
        self
    }

    /// The stack's own address, with its network. Best one that the kernel does not have. Again: one more.
    #[must_use]
    pub fn address(mut self, prefix: Prefix) -> Setup {
        self.addresses.push(prefix);
        self
    }

    /// The router for all other networks. Again: one more, such as one of IPv6.
    #[must_use]
    pub fn router(mut self, router: IpAddr) -> Setup {
        self.routers.push(router);
        self
    }

    /// An IPv4 address and routes come from a DHCP server, which is told this name.
    #[must_use]
    pub fn dhcp(mut self, host_name: Option<String>) -> Setup {
        self.dhcp = Some(host_name);
        self
    }

    /// A way to another network. Again: one more.
    #[must_use]
    pub fn route(mut self, way: Way) -> Setup {
        self.routes.push(way);
        self
    }

    /// IPv6 addresses and routes come from what routers advertise.
    #[must_use]
    pub const fn slaac(mut self) -> Setup {
        self.slaac = true;
        self
    }

    /// Others on the link are asked first whether an IPv4 address is theirs, too (RFC 5227), which takes 4 to 7 seconds. Of IPv6
    /// addresses they always are. What is ours then is kept, whatever others say.
    #[must_use]
    pub const fn claim(mut self) -> Setup {
        self.claims = true;
        self
    }

    /// Every frame is also written to this file (pcapng), which is begun anew: with one call of the system for each, so that
    /// nothing is missing in it whenever it is read.
    #[must_use]
    pub fn capture(mut self, file: File) -> Setup {
        self.capture = Some(Arc::new(file));
        self
    }

    /// Frames are harmed on purpose, each way, to see what programs make of it; [`Opened::faults`] changes that later. The file of frames has
    /// those that come to the stack, and those that it sends.
    #[must_use]
    pub const fn faults(mut self, faults: Faults) -> Setup {
        self.faults = Some(faults);
        self
    }

    /// MTU of a device; 1500 unless it is said, or what an existing one has.
    #[must_use]
    pub const fn mtu(mut self, octets: u32) -> Setup {
        self.mtu = Some(octets);
        self
    }

    /// Somebody looks at the link all the time, as calls of [`Opened::in_process`] do: of `packet:`, frames are seen where the kernel puts
    /// them, and pass no queueing discipline on their way out, so that captures on this host do not see those. It takes 32 MiB, and is no gain
    /// for who sleeps.
    #[must_use]
    pub const fn spin(mut self) -> Setup {
        self.spins = true;
        self
    }

    /// Bounds of the stack.
    #[must_use]
    pub fn config(mut self, config: Config) -> Setup {
        self.config = config;
        self
    }

    fn check(&self) -> Result<(), SetupError> {
        let wrong = |text| Err(SetupError::Contradiction(text));
        if !self.link.is_device() && (self.attach || !self.kernel.is_empty() || self.mtu.is_some()) {
            return wrong(
                "attaching, an address of the kernel and an MTU are for the devices of tap: and tun:",
            );
        }
        if self.addresses.is_empty() && self.dhcp.is_none() && !self.slaac {
            return wrong(
                "the stack has no address: give one, such as 10.9.0.2/24, or ask for DHCP or SLAAC",
            );
        }
        if self.dhcp.is_some() && matches!(self.link, LinkName::Tun(_)) {
            return wrong(
                "a TUN device has no hardware addresses, which DHCP needs: use tap:, or give an address",
            );
        }
        if self.slaac && matches!(self.link, LinkName::Tun(_)) {
            return wrong(
                "a TUN device has no hardware addresses, which SLAAC needs: use tap:, or give an address",
            );
        }
        if [true, false].iter().any(|v4| self.routers.iter().filter(|r| r.is_ipv4() == *v4).count() > 1) {
            return wrong("two routers for all other networks: give one of IPv4 and one of IPv6 at most");
        }
        let routers = self.routers.iter().copied().chain(self.routes.iter().filter_map(|way| way.via));
        let is_own = |router: &IpAddr| self.addresses.iter().any(|own| own.address() == *router);
        if let Some(router) = routers.clone().find(is_own) {
            return Err(SetupError::Own { router });
        }
        match routers.into_iter().find(|router| !self.reaches(*router)) {
            Some(router) => Err(SetupError::Far { router }),
            None => Ok(()),
        }
    }

    /// Whether a router is on the link, as far as it is known. A TUN device has two ends only, and addresses that DHCP gives are
    /// not known yet.
    fn reaches(&self, router: IpAddr) -> bool {
        let near = |prefix: &Prefix| match router {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => prefix.address().is_ipv6(),
            _ => prefix.contains(router),
        };
        let same_kind = |prefix: &Prefix| prefix.address().is_ipv4() == router.is_ipv4();
        match self.link {
            LinkName::Tun(_) => self.addresses.iter().any(same_kind),
            _ => {
                let learned = if router.is_ipv4() { self.dhcp.is_some() } else { self.slaac };
                learned || self.addresses.iter().any(near)
            }
        }
    }

    fn link(&self) -> Result<(String, Box<dyn Link + Send>), SetupError> {
        let builder = match &self.link {
            LinkName::Tap(name) => Device::tap(name),
            LinkName::Tun(name) => Device::tun(name),
            LinkName::Packet(name) => {
                let ethertypes = OWN.iter().map(|e| e.0).collect();
                let config = packet::Config { offload: true, ethertypes, ..packet::Config::new(name) };
                let config = match self.spins {
                    false => packet::Config { mode: Mode::MMSG, ..config },
                    true => packet::Config {
                        mode: Mode::LATENCY,
                        qdisc_bypass: true,
                        receive_ring: SPUN_RING,
                        ..config
                    },
                };
                return Ok((name.clone(), Box::new(PacketLink::open(&config)?)));
            }
            LinkName::Xdp(name) => {
                let rules = OWN.map(|e| xdp::Rule::EtherType { ethertype: e.0, vlan: None });
                return Ok((name.clone(), Box::new(xdp::XdpLink::open(&xdp::Config::new(name, &rules))?)));
            }
        };
        let mut builder =
            self.kernel.iter().fold(builder, |builder, (address, prefix)| builder.address(*address, *prefix));
        if let Some(mtu) = self.mtu {
            builder = builder.mtu(mtu);
        }
        if self.attach {
            builder = builder.attach();
        }
        let device = builder.open()?;
        Ok((device.name().to_owned(), Box::new(device)))
    }

    /// Opens the link, and puts a stack with these addresses and routes on it. Nothing is sent yet.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn open(self) -> Result<Opened, SetupError> {
        self.check()?;
        let (name, mut link) = self.link()?;
        let given = self.addresses.len();
        let mut switch = None;
        if let Some(faults) = self.faults {
            let seed = clock::monotonic_ns();
            let mut harmed =
                FaultInjector::new(link, faults, faults, seed, clock::monotonic_ns as fn() -> u64)?;
            switch = Some(harmed.switch());
            link = Box::new(harmed);
        }
        if let Some(file) = self.capture {
            let snap = link.capabilities().longest;
            let capture = Capture::new(link, &name, file, snap, clock::realtime_ns);
            link = Box::new(capture.map_err(SetupError::Capture)?);
        }
        let mut engine = Engine::new(self.config);
        let iface = engine.add_link(&name, link)?;
        for prefix in self.addresses {
            let (now, stack) = (Engine::now(), engine.stack());
            let added = match self.claims {
                true => stack.claim_address(now, iface, prefix),
                false => stack.add_address(now, iface, prefix),
            };
            added.map_err(|source| SetupError::Address { prefix, source })?;
        }
        for way in self.routers.into_iter().map(Way::default_by).chain(self.routes) {
            let router = way.via.unwrap_or(way.to.address());
            let added = engine.stack().add_route(way.route(iface));
            added.map_err(|source| SetupError::Router { router, source })?;
        }
        if self.slaac {
            engine.stack().autoconfigure(Engine::now(), iface);
        }
        let wants = match (&self.dhcp, self.slaac && given == 0) {
            (Some(_), _) => Wants::Lease,
            (None, true) => Wants::Router,
            (None, false) => Wants::Nothing,
        };
        if let Some(host_name) = self.dhcp {
            engine.lease(iface, host_name)?;
        }
        Ok(Opened { engine, iface, name, faults: switch, wants })
    }
}

/// Whose word is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    Nothing,
    /// A DHCP server's.
    Lease,
    /// A router's.
    Router,
}

/// A stack on its link, that nobody runs yet.
pub struct Opened {
    /// The stack and the link.
    pub engine: Engine,
    /// The interface on the link.
    pub iface: IfaceId,
    /// The link's name: that of the device or interface.
    pub name: String,
    /// Changes what harms frames, if [`Setup::faults`] asked for that.
    pub faults: Option<Switch>,
    wants: Wants,
}

impl Opened {
    /// Whether every address can be used, and one was leased, or learned of a router, if that was asked for.
    ///
    /// # Errors
    /// [`SetupError::Taken`].
    pub fn is_ready(&mut self) -> Result<bool, SetupError> {
        is_ready(&mut self.engine, self.iface, &self.name, self.wants)
    }

    /// What is waited for while it is not ready, and for how long, `longest` at most: a sentence for people. `None`: it is a matter of two seconds.
    pub fn waits_for(&mut self, longest: Duration) -> Option<String> {
        let (name, most) = (&self.name, longest.as_secs());
        match self.wants {
            Wants::Lease => {
                return Some(format!("asking a DHCP server on {name} for an address: {most} s at most"));
            }
            Wants::Router => {
                return Some(format!("waiting for what a router on {name} advertises: {most} s at most"));
            }
            Wants::Nothing => {}
        }
        // IPv6 takes a second (RFC 4862, section 5.4), IPv4 up to seven (RFC 5227, section 2.1.1).
        let addresses = self.engine.stack().addresses(self.iface);
        let claimed = addresses.iter().filter(|a| a.ip().is_ipv4() && !a.is_usable());
        let names: Vec<_> = claimed.map(|a| a.ip().to_string()).collect();
        let are = if names.len() == 1 { "is" } else { "are" };
        (!names.is_empty())
            .then(|| format!("asking others on {name} whether {} {are} free: 4 to 7 s", names.join(", ")))
    }

    /// Why it is still not ready after such a time.
    pub fn too_late(&mut self, longest: Duration) -> SetupError {
        too_late(&mut self.engine, self.iface, &self.name, self.wants, longest)
    }

    /// Runs it on a thread of its own, and returns when its addresses can be used.
    ///
    /// # Errors
    /// [`SetupError`]: an address is taken, no server answers within `longest`, the link has gone, or there is no thread.
    pub fn run(self, longest: Duration) -> Result<Host, SetupError> {
        let Opened { engine, iface, name, wants, .. } = self;
        let end = Instant::now().checked_add(longest);
        let host = Host::run(engine)?;
        loop {
            let seen = host.changes();
            if host.with(|engine| is_ready(engine, iface, &name, wants))? {
                return Ok(host);
            }
            if let Some(why) = host.ended() {
                return Err(SetupError::Ended(why));
            }
            if !host.wait_change(seen, end) {
                return Err(host.with(|engine| too_late(engine, iface, &name, wants, longest)));
            }
        }
    }
}

impl Opened {
    /// Has calls of its sockets move frames ([`Host::in_process`]), and returns when its addresses can be used, which is slept for.
    ///
    /// # Errors
    /// [`SetupError`]: an address is taken, no server answers within `longest`, or the link has gone.
    pub fn in_process(self, longest: Duration) -> Result<Host, SetupError> {
        let Opened { mut engine, iface, name, wants, .. } = self;
        let end = clock::monotonic_ns().saturating_add(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
        while !is_ready(&mut engine, iface, &name, wants)? {
            if clock::monotonic_ns() >= end {
                return Err(too_late(&mut engine, iface, &name, wants, longest));
            }
            if !engine.turn()? {
                engine.wait(Some(end));
            }
        }
        Ok(Host::in_process(engine))
    }
}

fn is_ready(engine: &mut Engine, iface: IfaceId, name: &str, wants: Wants) -> Result<bool, SetupError> {
    let addresses = engine.stack().addresses(iface);
    if let Some(taken) = addresses.iter().find(|a| a.state == AddressState::Duplicate) {
        return Err(SetupError::Taken { address: taken.ip(), name: name.to_owned(), holder: taken.holder });
    }
    let learned = match wants {
        Wants::Nothing => true,
        Wants::Lease => engine.is_leased(iface),
        Wants::Router => addresses.iter().any(is_global),
    };
    Ok(learned && engine.stack().addresses(iface).iter().all(Address::is_usable))
}

fn too_late(engine: &mut Engine, iface: IfaceId, name: &str, wants: Wants, longest: Duration) -> SetupError {
    let name = name.to_owned();
    let addresses = engine.stack().addresses(iface);
    match wants {
        Wants::Lease if !addresses.iter().any(|a| a.ip().is_ipv4()) => SetupError::NoServer { name, longest },
        Wants::Router if !addresses.iter().any(is_global) => SetupError::NoRouter { name, longest },
        _ => SetupError::NotReady { name, longest },
    }
}

/// One that packets of other links reach.
fn is_global(address: &Address) -> bool {
    matches!(address.ip(), IpAddr::V6(v6) if !v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_named_as_they_are_typed() {
        for text in ["tap:bp0", "tun:t%d", "packet:eth0", "xdp:eth0.7"] {
            assert_eq!(text.parse::<LinkName>().expect("a link").to_string(), text);
        }
        for wrong in ["", "tap", "tap:", "eth0", "TAP:x", "pcap:eth0"] {
            assert_eq!(wrong.parse::<LinkName>(), Err(NoLinkName), "{wrong}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_told_before_anything_is_made() {
        let on = |text: &str| Setup::on(text.parse().expect("a link"));
        let address: Prefix = "10.9.0.2/24".parse().expect("an address");
        let router = |text: &str| text.parse::<IpAddr>().expect("an address");
        for setup in [
            on("tap:bp0"),
            on("tun:bp0").dhcp(None),
            on("tun:bp0").slaac(),
            on("packet:eth0").address(address).mtu(9000),
            on("packet:eth0").address(address).attach(),
            on("xdp:eth0").address(address).kernel(address.address(), 24),
            on("tap:bp0").address(address).router(router("10.9.0.1")).router(router("10.9.0.3")),
        ] {
            assert!(matches!(setup.clone().open(), Err(SetupError::Contradiction(_))), "{setup:?}");
        }
        for setup in [
            on("tap:bp0").address(address).router(router("10.8.0.1")),
            on("tap:bp0").address(address).router(router("fe80::1")),
            on("tun:bp0").address(address).router(router("fd00::1")),
            on("tap:bp0").address(address).route(Way {
                to: "10.1.0.0/16".parse().expect("a network"),
                via: Some(router("10.8.0.1")),
                metric: 0,
            }),
        ] {
            assert!(matches!(setup.clone().open(), Err(SetupError::Far { .. })), "{setup:?}");
        }
        for (link, own) in [("tap:bp0", "10.9.0.2/24"), ("tun:bp0", "10.9.0.2/24"), ("tap:bp0", "fd09::2/64")]
        {
            let own: Prefix = own.parse().expect("an address");
            let error = on(link).address(own).router(own.address()).open().err().expect("a failure");
            assert!(matches!(error, SetupError::Own { router } if router == own.address()), "{link} {error}");
        }
    }
}
