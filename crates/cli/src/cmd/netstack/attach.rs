//! A stack on a link, as it is typed: which link, which addresses and routers, or DHCP.

use super::others::On;
use crate::cmd::tun::{beside, network};
use crate::output::{self, Failure};
use crate::raw::wait::Stop;
use bypath::l2::Interface;
use bypath::link as links;
use bypath::link::fault::Switch;
use bypath::link::tun::Refused;
use bypath_netstack::{Engine, LinkName, News, NoLinkName, Opened, Setup, SetupError, Way, dhcp};
use bypath_stack::Stack;
use bypath_stack::event::Event;
use bypath_stack::iface::IfaceId;
use bypath_stack::prefix::Prefix;
use bypath_stack::socket::SocketId;
use bypath_sys::clock;
use bypath_sys::poll::PollFd;
use std::net::IpAddr;
use std::time::Duration;

/// An address with the length of its network's prefix.
pub fn own(text: &str) -> Result<Prefix, String> {
    let expected =
        || "expected an address with its network's prefix, such as 10.9.0.2/24 or fd09::2/64".to_owned();
    text.contains('/').then(|| text.parse().ok()).flatten().ok_or_else(expected)
}

/// What a stack can stand on, by a name that an interface can have.
pub fn link(text: &str) -> Result<LinkName, String> {
    let link: LinkName = text.parse().map_err(|e: NoLinkName| e.to_string())?;
    let possible = match &link {
        // %d stands for a number.
        LinkName::Tap(name) | LinkName::Tun(name) => Interface::is_name(&name.replacen("%d", "0", 1)),
        LinkName::Packet(name) | LinkName::Xdp(name) => Interface::is_name(name),
        _ => true,
    };
    let expected = "no interface can have such a name: 1 to 15 octets, without slash, colon, space";
    possible.then_some(link).ok_or_else(|| expected.to_owned())
}

/// The link and the addresses.
#[derive(Clone, Debug, clap::Args)]
pub struct Attach {
    /// What the stack stands on: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end;
    /// `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of one by AF_XDP (all IP that comes there
    /// is the stack's then)
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: LinkName,

    #[command(flatten)]
    wishes: Wishes,
}

/// A stack of the command's own, or a service's.
#[derive(Clone, Debug, clap::Args)]
pub struct Source {
    /// A stack of the command's own stands on this: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end;
    /// `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of one by AF_XDP [default: the service's stack]
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: Option<LinkName>,

    /// The service whose stack it is [default: default]
    #[arg(long, value_name = "NAME", value_parser = super::serve::name, conflicts_with = "link")]
    name: Option<String>,

    #[command(flatten)]
    wishes: Wishes,
}

/// Whose stack it is.
pub enum Stacks {
    /// The command's own.
    Own(Attach),
    /// The service's of this name.
    Service(String),
}

impl Source {
    /// Which one is meant.
    ///
    /// # Errors
    /// Addresses without a link.
    pub fn stack(&self) -> Result<Stacks, Failure> {
        match &self.link {
            Some(link) => Ok(Stacks::Own(Attach { link: link.clone(), wishes: self.wishes.clone() })),
            None if self.wishes != Wishes::default() => {
                let text = "--addr, --net and their like are for a stack of the command's own: say what it stands on, --link LINK";
                Err(Failure::new(2, text))
            }
            None => Ok(Stacks::Service(
                self.name.clone().unwrap_or_else(|| super::found::DEFAULT_NAME.to_owned()),
            )),
        }
    }
}

/// Every address that the kernel has in this namespace, and on which interface.
pub fn kernels() -> Vec<(IpAddr, String)> {
    let own = nix::ifaddrs::getifaddrs().into_iter().flatten();
    own.filter_map(|i| {
        let address = i.address?;
        let v4 = address.as_sockaddr_in().map(|a| a.ip().into());
        let v6 = address.as_sockaddr_in6().map(|a| a.ip().into());
        Some((v4.or(v6)?, i.interface_name))
    })
    .collect()
}

/// What is wanted of a link, and the addresses on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct Wishes {
    /// The device of tap: or tun: exists, and persists (ip tuntap add NAME mode tap user $USER)
    #[arg(long)]
    pub attach: bool,

    /// The kernel's end of the device of tap: or tun:, with the length of the network's prefix
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    pub net: Vec<(IpAddr, u8)>,

    /// An address of the stack, with the length of its network's prefix. Best one that the kernel does not have [default: those
    /// beside --net]
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = own)]
    pub addr: Vec<Prefix>,

    /// The router for all other networks
    #[arg(long, value_name = "IP")]
    pub gateway: Vec<IpAddr>,

    /// Get an IPv4 address from a DHCP server
    #[arg(long, conflicts_with = "net")]
    pub dhcp: bool,

    /// Get IPv6 addresses and routes from what routers advertise
    #[arg(long)]
    pub slaac: bool,

    /// MTU of the device of tap: or tun: [default: 1500, or what an existing one has]
    #[arg(long, value_name = "OCTETS")]
    pub mtu: Option<u32>,
}

/// Octets that an MTU may be: from what IPv4 (RFC 791, 3.2) and IPv6 (RFC 8200, 5) take, to what TUN does, and TAP, whose frames have a
/// header.
const LEAST_MTU: u32 = 68;
const LEAST_MTU_V6: u32 = 1280;
const MOST_TUN: u32 = 65_535;
const MOST_TAP: u32 = 65_521;

/// Longest wait for a DHCP server, or a router.
const LONGEST: Duration = Duration::from_secs(30);

/// Longest wait at the end until everything is sent.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Wishes {
    /// Looks for what does not go together, or is not there.
    ///
    /// # Errors
    /// What that is.
    pub fn check(&self, link: &LinkName) -> Result<(), Failure> {
        let wrong = |text: &str| Err(Failure::new(2, text));
        if !link.is_device() && (self.attach || !self.net.is_empty() || self.mtu.is_some()) {
            return wrong(
                "--attach, --net and --mtu are for a device of tap: or tun:; an interface has addresses of the stack by --addr, --dhcp or --slaac",
            );
        }
        // Whoever names an interface that is not there is not to look for its address first.
        if let LinkName::Packet(name) | LinkName::Xdp(name) = link
            && Interface::named(name).map_err(|e| Failure::new(1, e))?.loopback
        {
            return wrong(&format!(
                "{link}: on loopback there is nobody but this host's kernel, which has it to itself; take an interface to a network, \
                 or a device with the kernel at its other end: --link tap:bp0 --net 10.9.0.1/24"
            ));
        }
        if self.addr.is_empty() && self.net.is_empty() && !self.dhcp && !self.slaac {
            return wrong(
                "the stack has no address; give one: --addr 10.9.0.2/24 (or --dhcp, --slaac; or --net 10.9.0.1/24, the kernel's end \
                 of a device)",
            );
        }
        self.check_networks(link)?;
        if self.attach
            && let LinkName::Tap(name) | LinkName::Tun(name) = link
            && let Err(e) = Interface::named(name)
        {
            let (kind, _) = link.kind();
            return Err(Failure::new(
                1,
                format_args!(
                    "{e}; --attach is for a device that is there: make it with `ip tuntap add {name} mode {kind} user $USER`, or leave \
                     --attach out, and it is made as long as this runs"
                ),
            ));
        }
        if self.dhcp && !self.net.is_empty() {
            return wrong(
                "--dhcp asks a server at the device's other end, --net puts the kernel there: give one of them",
            );
        }
        if let Some(mtu) = self.mtu {
            let six = self.net.iter().any(|(ip, _)| ip.is_ipv6())
                || self.addr.iter().any(|own| own.address().is_ipv6());
            let least = if six { LEAST_MTU_V6 } else { LEAST_MTU };
            let most = if matches!(link, LinkName::Tun(_)) { MOST_TUN } else { MOST_TAP };
            if !(least..=most).contains(&mtu) {
                let what = if six { " with IPv6" } else { "" };
                return wrong(&format!("--mtu {mtu}: {link} takes {least} to {most} octets{what}"));
            }
        }
        let learns = if self.dhcp { Some("DHCP") } else { self.slaac.then_some("SLAAC") };
        match (learns, link) {
            (Some(how), LinkName::Tun(_)) => {
                let text =
                    format!("a TUN device has no hardware addresses, which {how} needs; use tap:, or --addr");
                Err(Failure::new(2, text))
            }
            _ => Ok(()),
        }
    }

    /// Looks for networks that cannot be, or do not meet.
    fn check_networks(&self, link: &LinkName) -> Result<(), Failure> {
        let wrong = |text: String| Err(Failure::new(2, text));
        for (n, (ip, len)) in self.net.iter().enumerate() {
            if ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() {
                let example = if ip.is_ipv4() { "10.9.0.1/24" } else { "fd09::1/64" };
                return wrong(format!(
                    "--net {ip}/{len}: that is no network between two hosts, as the kernel keeps it to itself; take one that nobody uses \
                     here, such as {example}"
                ));
            }
            if self.net[..n].iter().any(|(other, _)| other == ip) {
                return wrong(format!(
                    "--net {ip}/{len}: that address is given twice; once for each network of {link} is right"
                ));
            }
        }
        for (n, own) in self.addr.iter().enumerate() {
            if self.addr[..n].iter().any(|other| other.address() == own.address()) {
                return wrong(format!("--addr {own}: that address is given twice; leave one out"));
            }
        }
        let nets = || self.net.iter().filter_map(|(ip, len)| Prefix::new(*ip, *len));
        for v4 in [true, false] {
            let of_kind = |prefix: &Prefix| prefix.address().is_ipv4() == v4;
            let own: Vec<_> = self.addr.iter().copied().filter(of_kind).collect();
            let Some(net) = nets().find(of_kind).filter(|_| !own.is_empty()) else { continue };
            let meet =
                |own: &Prefix| nets().any(|net| net.contains(own.address()) && own.contains(net.address()));
            if !own.iter().any(meet) {
                let (addr, beside) = (own[0], beside((net.address(), net.len())));
                return wrong(format!(
                    "--net {net} and --addr {addr} are in different networks, so that the kernel and the stack would not reach each \
                     other; give the stack one of the kernel's network, such as --addr {beside}/{}",
                    net.len()
                ));
            }
        }
        Ok(())
    }

    /// The stack's addresses, as far as they are given.
    pub fn addresses(&self) -> Vec<Prefix> {
        match &self.addr[..] {
            [] => self.net.iter().filter_map(|net| Prefix::new(beside(*net), net.1)).collect(),
            given => given.to_vec(),
        }
    }

    /// All of it for the library.
    pub fn setup(&self, link: LinkName) -> Setup {
        let mut setup = Setup::on(link);
        for (address, prefix) in &self.net {
            setup = setup.kernel(*address, *prefix);
        }
        setup = self.addresses().into_iter().fold(setup, Setup::address);
        setup = self.gateway.iter().copied().fold(setup, Setup::router);
        if let Some(mtu) = self.mtu {
            setup = setup.mtu(mtu);
        }
        if self.attach {
            setup = setup.attach();
        }
        if self.slaac {
            setup = setup.slaac();
        }
        if self.dhcp { setup.dhcp(host_name()) } else { setup }
    }
}

impl Attach {
    /// The stack, once its addresses can be used. `None`: Ctrl-C came first.
    ///
    /// # Errors
    /// The link cannot be used, an address is somebody else's, or no DHCP server answers.
    pub fn begin(&self, stop: &Stop) -> Result<Option<Host>, Failure> {
        self.wishes.check(&self.link)?;
        let addresses: Vec<IpAddr> = self.wishes.addresses().iter().map(|own| own.address()).collect();
        taken_by_a_service(&self.link, &addresses, "")?;
        let host = open(self.wishes.setup(self.link.clone()), &self.wishes, &[])?;
        host.settle(stop)
    }
}

/// Whether another service than `but` has one of these addresses on the interface that a stack is to stand on. A device is one stack's alone.
///
/// # Errors
/// One has.
pub fn taken_by_a_service(link: &LinkName, addresses: &[IpAddr], but: &str) -> Result<(), Failure> {
    let (LinkName::Packet(interface) | LinkName::Xdp(interface)) = link else { return Ok(()) };
    match On::here(interface).taken(addresses, but) {
        Some(text) => Err(Failure::new(1, text)),
        None => Ok(()),
    }
}

/// Opens the link, and puts the stack on it, of which `wishes` are the flags. `routes`: those of the setup that no flag named, and where they stand.
///
/// # Errors
/// The link cannot be used, or the stack does not take an address or router.
pub fn open(setup: Setup, wishes: &Wishes, routes: &[Placed]) -> Result<Settling, Failure> {
    // How a router was named.
    let by = |router: IpAddr| match routes.iter().find(|route| route.way.via == Some(router)) {
        Some(Placed { way, place }) => format!("{place}route to {} via {router}", way.to),
        None => format!("--gateway {router}"),
    };
    let opened = setup.open().map_err(|e| match e {
        SetupError::Address { prefix, source } if wishes.addr.is_empty() => Failure::new(
            2,
            format_args!("--net: the address of the stack beside it would be {prefix}: {source}; name one with --addr, or take another network"),
        ),
        SetupError::Address { prefix, source } => Failure::new(2, format_args!("--addr {prefix}: {source}")),
        SetupError::Router { router, source } => Failure::new(2, format_args!("{}: {source}", by(router))),
        SetupError::Far { router } => Failure::new(
            2,
            format_args!(
                "{}: it is in no network of the stack's addresses; give one that is on the link",
                by(router)
            ),
        ),
        SetupError::Own { router } => Failure::new(
            2,
            format_args!("{}: that is the stack's own address; give the router's", by(router)),
        ),
        e @ SetupError::Contradiction(_) => Failure::new(2, e),
        e @ SetupError::Link(links::Error::Tun(Refused::Taken { .. } | Refused::NotAllowed { .. }))
            if !wishes.attach =>
        {
            Failure::new(1, format_args!("{e}: --attach"))
        }
        e => Failure::new(1, e),
    })?;
    Ok(Settling { opened, waits: Vec::new() })
}

/// A way, and where it is named: a file and its line, with a colon and a space behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub way: Way,
    pub place: String,
}

/// What DHCP servers show in their lists.
fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// A stack whose addresses cannot be used yet.
pub struct Settling {
    opened: Opened,
    waits: Vec<PollFd>,
}

impl Settling {
    /// Changes what harms its frames, if that was asked for.
    pub fn faults(&self) -> Option<Switch> {
        self.opened.faults.clone()
    }

    /// Waits until they can. `None`: Ctrl-C came first.
    ///
    /// # Errors
    /// One of them is another host's, no DHCP server answers, no router advertises itself, or the link is gone.
    pub fn settle(mut self, stop: &Stop) -> Result<Option<Host>, Failure> {
        let end = clock::monotonic_ns() + LONGEST.as_nanos() as u64;
        if !self.opened.is_ready().map_err(|e| Failure::new(1, e))?
            && let Some(what) = self.opened.waits_for(LONGEST)
        {
            output::message(what);
        }
        while !self.opened.is_ready().map_err(|e| Failure::new(1, e))? {
            if stop.asked() {
                return Ok(None);
            }
            if clock::monotonic_ns() >= end {
                let text = match self.opened.too_late(LONGEST) {
                    e @ (SetupError::NoServer { .. } | SetupError::NoRouter { .. }) => format!("{e}: --addr"),
                    e => e.to_string(),
                };
                return Err(Failure::new(1, text));
            }
            turn(&mut self.opened.engine, &mut self.waits, stop, end)?;
        }
        let Opened { engine, iface, name, .. } = self.opened;
        let mut host = Host { engine, iface, name, waits: self.waits };
        host.hear()?;
        Ok(Some(host))
    }
}

/// One turn, and a wait until `until` (ns of the monotonic clock) if there was nothing to do.
fn turn(engine: &mut Engine, waits: &mut Vec<PollFd>, stop: &Stop, until: u64) -> Result<(), Failure> {
    if engine.turn().map_err(|e| Failure::new(1, e))? {
        return Ok(());
    }
    let until = engine.poll_timeout().map_or(until, |at| at.min(until));
    waits.clear();
    engine.descriptors(waits);
    stop.wait_any(waits, Some(until));
    Ok(())
}

/// What happened on a link and concerns the user: told on standard error. Of which socket there is news, if it is that.
pub fn hear(news: News, name: &str) -> Option<SocketId> {
    if let News::Stack(Event::Socket { id, .. }) = news {
        return Some(id);
    }
    if let Some(text) = told(&news, name) {
        output::message(text);
    }
    None
}

/// The same in words. `None`: it concerns nobody.
pub fn told(news: &News, name: &str) -> Option<String> {
    Some(match news {
        News::Stack(Event::AddressConflict { address, .. }) => {
            format!("{address} is another host's, too; on {name}")
        }
        News::Lease { event: dhcp::Event::Bound(lease), .. } => format!(
            "{}/{} from the DHCP server {}, router {}{}",
            lease.address,
            lease.prefix_len,
            lease.server,
            lease.routes.first().map_or("none".to_owned(), |r| r.router.to_string()),
            lease.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"))
        ),
        News::Lease { event: dhcp::Event::Lost, .. } => {
            "the DHCP server does not renew the address; asking for another one".to_owned()
        }
        News::Stack(Event::RouterSilent { address, .. }) => format!(
            "the router {address} does not answer on {name}: no neighbour has that address; what goes by it does not arrive"
        ),
        News::Stack(Event::RouterBack { address, .. }) => {
            format!("the router {address} is there again on {name}")
        }
        News::Down(_) => format!("{name} is down: ip link set {name} up"),
        News::Up(_) => format!("{name} is up again"),
        News::Crowded { uid, sockets } => format!(
            "user {uid} has {sockets} sockets and gets no more, who calls him waits: sockets-per-user, under [limits] in the file of --config"
        ),
        _ => return None,
    })
}

/// A stack with its link.
pub struct Host {
    pub engine: Engine,
    pub iface: IfaceId,
    pub name: String,
    waits: Vec<PollFd>,
}

impl Host {
    pub fn stack(&mut self) -> &mut Stack {
        self.engine.stack()
    }

    /// One turn, and a wait until `until` (ns of the monotonic clock) if there was nothing to do. The news of it.
    ///
    /// # Errors
    /// The link is gone.
    pub fn turn(&mut self, stop: &Stop, until: u64) -> Result<(), Failure> {
        turn(&mut self.engine, &mut self.waits, stop, until)
    }

    /// What happened and concerns the user: told on standard error.
    ///
    /// # Errors
    /// The last address is lost.
    pub fn hear(&mut self) -> Result<(), Failure> {
        self.hear_of(|_| {});
        Ok(())
    }

    /// The same, and of which sockets there is news.
    pub fn hear_of(&mut self, mut socket: impl FnMut(SocketId)) {
        while let Some(news) = self.engine.poll_event() {
            if let Some(id) = hear(news, &self.name) {
                socket(id);
            }
        }
    }

    /// Gives the lease back, if there is one, and sends what is still to be sent, as far as that takes no time.
    pub fn end(mut self) {
        self.engine.finish(LAST_WORDS);
    }

    /// The addresses, for people.
    pub fn addresses(&mut self) -> String {
        let iface = self.iface;
        let all: Vec<String> = self.stack().addresses(iface).iter().map(|a| a.prefix.to_string()).collect();
        all.join(", ")
    }
}
