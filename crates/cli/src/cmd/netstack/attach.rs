//! A stack on a link, as it is typed: which link, which addresses and routers, or DHCP.

use crate::cmd::tun::{beside, network};
use crate::output::{self, Failure};
use crate::raw;
use crate::raw::wait::Stop;
use bypath::link::packet::{self, Mode, PacketLink};
use bypath::link::{Link, xdp};
use bypath::tun::Device;
use bypath::wire::EtherType;
use bypath_netstack::{Engine, News, dhcp};
use bypath_stack::event::Event;
use bypath_stack::iface::{AddressState, IfaceId};
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_stack::{Stack, config::Config};
use bypath_sys::clock;
use std::net::IpAddr;
use std::time::Duration;

/// EtherTypes of a host.
const OWN: [EtherType; 3] = [EtherType::IPV4, EtherType::IPV6, EtherType::ARP];

/// What the stack stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Tap,
    Tun,
    Packet,
    Xdp,
}

/// A link as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Where {
    kind: Kind,
    name: String,
}

fn link(text: &str) -> Result<Where, String> {
    const EXPECTED: &str = "expected tap:NAME or tun:NAME (a device that is made), packet:IFACE or xdp:IFACE";
    let (kind, name) = text.split_once(':').ok_or(EXPECTED)?;
    let kind = match kind {
        "tap" => Kind::Tap,
        "tun" => Kind::Tun,
        "packet" => Kind::Packet,
        "xdp" => Kind::Xdp,
        _ => return Err(EXPECTED.into()),
    };
    if name.is_empty() { Err(EXPECTED.into()) } else { Ok(Where { kind, name: name.to_owned() }) }
}

fn own(text: &str) -> Result<Prefix, String> {
    let expected =
        || "expected an address with its network's prefix, such as 10.9.0.2/24 or fd09::2/64".to_owned();
    text.contains('/').then(|| text.parse().ok()).flatten().ok_or_else(expected)
}

/// The link and the addresses.
#[derive(Clone, Debug, clap::Args)]
pub struct Attach {
    /// What the stack stands on: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end;
    /// `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of one by AF_XDP (all IP that comes there
    /// is the stack's then)
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: Where,

    /// The device of tap: or tun: exists, and persists (ip tuntap add NAME mode tap user $USER)
    #[arg(long)]
    attach: bool,

    /// The kernel's end of the device of tap: or tun:, with the length of the network's prefix
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    net: Vec<(IpAddr, u8)>,

    /// An address of the stack, with the length of its network's prefix. Best one that the kernel does not have [default: those
    /// beside --net]
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = own)]
    addr: Vec<Prefix>,

    /// The router for all other networks
    #[arg(long, value_name = "IP")]
    gateway: Vec<IpAddr>,

    /// Get an IPv4 address from a DHCP server
    #[arg(long, conflicts_with = "net")]
    dhcp: bool,

    /// MTU of the device of tap: or tun: [default: 1500, or what an existing one has]
    #[arg(long, value_name = "OCTETS")]
    mtu: Option<u32>,
}

/// Longest wait for a DHCP server.
const LONGEST: Duration = Duration::from_secs(30);

/// Longest wait at the end until everything is sent.
const LAST_WORDS: Duration = Duration::from_millis(200);

impl Attach {
    fn is_device(&self) -> bool {
        matches!(self.link.kind, Kind::Tap | Kind::Tun)
    }

    fn check(&self) -> Result<(), Failure> {
        let wrong = |text: &str| Err(Failure::new(2, text));
        if !self.is_device() && (self.attach || !self.net.is_empty() || self.mtu.is_some()) {
            return wrong("--attach, --net and --mtu are for a device of tap: or tun:");
        }
        if self.addr.is_empty() && self.net.is_empty() && !self.dhcp {
            return wrong(
                "the stack has no address; give one: --addr 10.9.0.2/24 (or --dhcp; or --net 10.9.0.1/24, the kernel's end of a device)",
            );
        }
        if self.dhcp && self.link.kind == Kind::Tun {
            return wrong("a TUN device has no hardware addresses, which DHCP needs; use tap:, or --addr");
        }
        Ok(())
    }

    fn open(&self) -> Result<(String, Box<dyn Link + Send>), Failure> {
        let name = &self.link.name;
        if !self.is_device() {
            let ethertypes: Vec<u16> = OWN.iter().map(|e| e.0).collect();
            let link: Box<dyn Link + Send> = if self.link.kind == Kind::Packet {
                let config = packet::Config {
                    mode: Mode::MMSG,
                    offload: true,
                    ethertypes,
                    ..packet::Config::new(name)
                };
                Box::new(PacketLink::open(&config).map_err(raw::failed)?)
            } else {
                let rules: Vec<xdp::Rule> = ethertypes
                    .into_iter()
                    .map(|ethertype| xdp::Rule::EtherType { ethertype, vlan: None })
                    .collect();
                Box::new(xdp::XdpLink::open(&xdp::Config::new(name, &rules)).map_err(raw::failed)?)
            };
            return Ok((name.clone(), link));
        }
        let mut builder = if self.link.kind == Kind::Tap { Device::tap(name) } else { Device::tun(name) };
        for (address, prefix) in &self.net {
            builder = builder.address(*address, *prefix);
        }
        if let Some(mtu) = self.mtu {
            builder = builder.mtu(mtu);
        }
        if self.attach {
            builder = builder.attach();
        }
        let device = builder.open().map_err(raw::failed)?;
        Ok((device.name().to_owned(), Box::new(device)))
    }

    /// The stack, once its addresses can be used. `None`: Ctrl-C came first.
    ///
    /// # Errors
    /// The link cannot be used, an address is somebody else's, or no DHCP server answers.
    pub fn begin(&self, stop: &Stop) -> Result<Option<Host>, Failure> {
        self.check()?;
        let (name, link) = self.open()?;
        let mut engine = Engine::new(Config::default());
        let iface = engine.add_link(&name, link).map_err(|e| Failure::new(1, e))?;
        let beside: Vec<Prefix> = if self.addr.is_empty() {
            self.net.iter().filter_map(|net| Prefix::new(beside(*net), net.1)).collect()
        } else {
            self.addr.clone()
        };
        for prefix in beside {
            let added = engine.stack().add_address(Engine::now(), iface, prefix);
            added.map_err(|e| Failure::new(2, format_args!("--addr {prefix}: {e}")))?;
        }
        for router in &self.gateway {
            let prefix = if router.is_ipv4() { Prefix::ALL_V4 } else { Prefix::ALL_V6 };
            let route = Route { prefix, iface, via: Some(*router), metric: 0, source: None };
            engine
                .stack()
                .add_route(route)
                .map_err(|e| Failure::new(2, format_args!("--gateway {router}: {e}")))?;
        }
        if self.dhcp {
            engine.lease(iface, host_name()).map_err(|e| Failure::new(1, e))?;
        }
        let mut host = Host { engine, iface, name, waits: Vec::new() };
        host.settle(stop, self.dhcp).map(|settled| settled.then_some(host))
    }
}

/// What DHCP servers show in their lists.
fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

/// A stack with its link.
pub struct Host {
    pub engine: Engine,
    pub iface: IfaceId,
    pub name: String,
    waits: Vec<bypath_sys::poll::PollFd>,
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
        if self.engine.turn().map_err(|e| Failure::new(1, e))? {
            return Ok(());
        }
        let until = self.engine.poll_timeout().map_or(until, |at| at.min(until));
        self.waits.clear();
        self.engine.descriptors(&mut self.waits);
        stop.wait_any(&mut self.waits, Some(until));
        Ok(())
    }

    /// What happened and concerns the user: told on standard error.
    ///
    /// # Errors
    /// The last address is lost.
    pub fn hear(&mut self) -> Result<(), Failure> {
        while let Some(news) = self.engine.poll_event() {
            match news {
                News::Stack(Event::AddressConflict { address, .. }) => {
                    output::message(format_args!("{address} is another host's, too; on {}", self.name));
                }
                News::Lease { event: dhcp::Event::Bound(lease), .. } => output::message(format_args!(
                    "{}/{} from the DHCP server {}, router {}",
                    lease.address,
                    lease.prefix_len,
                    lease.server,
                    lease.routes.first().map_or("none".to_owned(), |r| r.router.to_string())
                )),
                News::Lease { event: dhcp::Event::Lost, .. } => {
                    output::message("the DHCP server does not renew the address; asking for another one");
                }
                News::Down(_) => {
                    output::message(format_args!("{} is down: ip link set {} up", self.name, self.name))
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits until every address can be used. False: Ctrl-C.
    fn settle(&mut self, stop: &Stop, dhcp: bool) -> Result<bool, Failure> {
        let end = clock::monotonic_ns() + LONGEST.as_nanos() as u64;
        loop {
            let iface = self.iface;
            let addresses = self.stack().addresses(iface);
            if let Some(taken) = addresses.iter().find(|a| a.state == AddressState::Duplicate) {
                let text = format!(
                    "{} is another host's on {}; give the stack one of its own",
                    taken.ip(),
                    self.name
                );
                return Err(Failure::new(1, text));
            }
            let leased = !dhcp || addresses.iter().any(|a| a.ip().is_ipv4());
            if leased && addresses.iter().all(|a| a.is_usable()) {
                self.hear()?;
                return Ok(true);
            }
            if stop.asked() {
                return Ok(false);
            }
            if clock::monotonic_ns() >= end {
                let text = format!(
                    "no DHCP server answers on {} within {} s; give an address: --addr",
                    self.name,
                    LONGEST.as_secs()
                );
                return Err(Failure::new(1, text));
            }
            self.turn(stop, end)?;
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
