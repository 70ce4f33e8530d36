//! Where it happens: for each subject a link of its own whose other end is in a namespace of the peer's, and the service that it needs.
//! Everything ends with this process.

use super::{Subject, Who};
use crate::bench::child::Child;
use crate::bench::context::{CUBIC, Context, Trouble};
use bypath_sockets::service::place;
use bypath_sys::{Errno, ethtool, netns};
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Of all links: as Ethernet has it.
const MTU: u32 = 1500;
const PREFIX: u8 = 24;
/// Addresses of the peer beside its own: connections that are opened and closed go round them.
const OTHERS: std::ops::RangeInclusive<u8> = 17..=32;
/// Before the first of those.
const BEFORE_OTHERS: u8 = 16;
/// A service looks for others with its address before it begins (RFC 5227), which takes seven seconds at most.
const BEGINS: Duration = Duration::from_secs(20);
/// A service's report ends with that.
const LAST_LINE: &str = "next";

/// A link, the namespace of its other end, and perhaps a service.
pub struct Stage {
    pub subject: Subject,
    made: Result<Made, Trouble>,
}

/// What could be made of it.
pub struct Made {
    subject: Subject,
    far: netns::Namespace,
    /// Services are here.
    folder: PathBuf,
    service: Option<RefCell<Service>>,
    /// For so many microseconds services look for work before they sleep.
    busy_poll: u32,
}

struct Service {
    child: Child,
    pid: u32,
    /// It has begun; or why not.
    begun: Option<Result<(), Trouble>>,
}

/// This namespace, in which programs are, before any link is in it.
pub fn prepare() -> Result<(), String> {
    let here = netns::set_up("lo", true).map_err(|e| format!("cannot switch lo on: {e}"));
    settle_namespace();
    here
}

/// The kernel's TCP as it is to be, and no messages of IPv6's own. Where a setting cannot be made figures are less steady, which is
/// said; the congestion control is told with them. A kernel without IPv6 has no such setting.
fn settle_namespace() {
    for (file, value) in [("ipv4/tcp_congestion_control", CUBIC), ("ipv6/conf/default/disable_ipv6", "1")] {
        match std::fs::write(Path::new("/proc/sys/net").join(file), value) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                eprintln!(
                    "bypath: /proc/sys/net/{file}: cannot be set to {value}: {e}; figures may be less steady"
                );
            }
            _ => {}
        }
    }
}

fn fail(what: &str, e: Errno) -> Trouble {
    match e {
        Errno::PERM | Errno::OPNOTSUPP => Trouble::Skipped(format!("cannot {what}: {e}")),
        e => Trouble::Failed(format!("cannot {what}: {e}")),
    }
}

impl Stage {
    /// Makes it; a service is begun, and not waited for.
    pub fn new(context: &Context, subject: Subject, busy_poll: u32) -> Stage {
        Stage { subject, made: Made::new(context, subject, busy_poll) }
    }

    /// With its service.
    ///
    /// # Errors
    /// What is missing, or went wrong.
    pub fn ready(&self) -> Result<&Made, Trouble> {
        let made = self.made.as_ref().map_err(Clone::clone)?;
        made.wait()?;
        Ok(made)
    }
}

impl Made {
    fn new(context: &Context, subject: Subject, busy_poll: u32) -> Result<Made, Trouble> {
        let far = netns::Namespace::new().map_err(|e| fail("make a network namespace", e))?;
        let inside = far.run(|| {
            settle_namespace();
            netns::set_up("lo", true)
        });
        inside.and_then(|done| done).map_err(|e| fail("prepare a network namespace", e))?;
        let mut made =
            Made { subject, far, folder: context.scratch.path().to_owned(), service: None, busy_poll };
        if subject != Subject::Tap {
            made.pair().map_err(|e| fail("make a veth pair", e))?;
        }
        if subject.is_served() {
            made.service = Some(RefCell::new(made.serve(context)?));
        }
        Ok(made)
    }

    /// A veth pair with the peer's end in its namespace.
    fn pair(&self) -> bypath_sys::Result<()> {
        let [own, peer] = [self.interface(), "peer".to_owned()];
        netns::veth(&own, &peer, Some(&self.far))?;
        let (addresses, xdp) = (self.peers(), self.subject == Subject::Xdp);
        let there = self.far.run(|| {
            netns::set_mtu(&peer, MTU)?;
            if xdp {
                // AF_XDP does not tell of sums that are left out.
                ethtool::Device::open(&peer)?.set_transmit_checksums(false)?;
            }
            netns::set_up(&peer, true)?;
            addresses.into_iter().try_for_each(|address| netns::add_address(&peer, address, PREFIX))
        });
        netns::set_mtu(&own, MTU)?;
        netns::set_up(&own, true)?;
        if self.subject == Subject::KernelVeth {
            // Where a stack of ours is the kernel has no address.
            netns::add_address(&own, self.own(), PREFIX)?;
        }
        there?
    }

    /// A service, pinned, which dies with the bench.
    fn serve(&self, context: &Context) -> Result<Service, Trouble> {
        let interface = self.interface();
        let mut args: Vec<String> = ["netstack", "--name"].map(Into::into).into();
        args.extend([self.name(), "--addr".into(), format!("{}/{PREFIX}", self.own())]);
        let kind = self.subject.name();
        args.extend(["--link".into(), format!("{kind}:{interface}")]);
        args.extend(["--busy-poll".into(), self.busy_poll.to_string()]);
        let mut command = self.launch(context, Who::Service, &context.exe, &args);
        if self.subject == Subject::Tap {
            // The kernel's end of the device is the peer's.
            for address in self.peers() {
                command.args(["--net", &format!("{address}/{PREFIX}")]);
            }
            self.far.start(&mut command).map_err(|e| fail("start a service", e))?;
        }
        let child = Child::spawn(command, &format!("service on {kind}"))?;
        Ok(Service { pid: child.pid(), child, begun: None })
    }

    fn wait(&self) -> Result<(), Trouble> {
        let Some(service) = &self.service else { return Ok(()) };
        let Service { child, begun, .. } = &mut *service.borrow_mut();
        let begun = begun.get_or_insert_with(|| {
            let deadline = Instant::now() + BEGINS;
            loop {
                match child.line(deadline) {
                    Ok(line) if line.starts_with(LAST_LINE) => return Ok(()),
                    Ok(_) => {}
                    // Devices and AF_XDP are not to be had everywhere, packet sockets are where a veth pair is.
                    Err(why) if self.subject != Subject::Packet => return Err(Trouble::Skipped(why)),
                    Err(why) => return Err(Trouble::Failed(why)),
                }
            }
        });
        begun.clone()
    }

    /// What a reader of the figures should know.
    pub fn note(&self) -> Option<String> {
        let polls = self.service.is_some() && self.busy_poll > 0;
        polls.then(|| format!("the service looks for work for {} us before it sleeps", self.busy_poll))
    }

    /// The service's process.
    pub fn service(&self) -> Option<u32> {
        self.service.as_ref().map(|service| service.borrow().pid)
    }

    fn name(&self) -> String {
        format!("bench-{}", self.subject.name())
    }

    fn interface(&self) -> String {
        format!("own{}", self.subject as u8)
    }

    /// Each subject has a network of its own (RFC 2544: for benchmarks): all but the peers' ends are in one namespace.
    fn address(&self, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(198, 18, self.subject as u8, host))
    }

    /// The peer's.
    pub fn peer(&self) -> IpAddr {
        self.address(1)
    }

    /// Where connections are that are opened and closed: the addresses after this one are the peer's.
    pub fn before_peers(&self) -> IpAddr {
        self.address(BEFORE_OTHERS)
    }

    fn peers(&self) -> Vec<IpAddr> {
        std::iter::once(1).chain(OTHERS).map(|host| self.address(host)).collect()
    }

    /// The program's.
    pub fn own(&self) -> IpAddr {
        self.address(2)
    }

    /// A measured program of the bench at our end.
    pub fn program(&self, context: &Context, args: &[String]) -> Command {
        let mut command = match self.subject.is_served() {
            true => self.under_service(context),
            false => Command::new(&context.exe),
        };
        if self.subject.is_served() {
            command.arg(&context.exe);
        }
        command.args(["bench", "peer"]).args(args).args(cores(context, Who::Program));
        if self.subject == Subject::InProcess {
            let own = format!("{}/{PREFIX}", self.own());
            command.args(["--transport", "in-process", "--iface", &self.interface(), "--own", &own]);
        } else if let Some(cc) = context.cc {
            command.args(["--cc", cc]);
        }
        command
    }

    /// A measured program of the bench at the peer's end.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn peer_program(&self, context: &Context, args: &[String]) -> Result<Command, Trouble> {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "peer"]).args(args).args(cores(context, Who::Peer));
        command.args(context.cc.iter().flat_map(|cc| ["--cc", cc]));
        self.far.start(&mut command).map_err(|e| fail("start a peer", e))?;
        Ok(command)
    }

    /// An installed program at our end.
    pub fn installed(&self, context: &Context, program: &Path, args: &[String]) -> Command {
        if !self.subject.is_served() {
            return self.launch(context, Who::Program, program, args);
        }
        let run = self.under_service(context);
        let mut all: Vec<String> = run.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        all.push(program.to_string_lossy().into_owned());
        all.extend_from_slice(args);
        self.launch(context, Who::Program, &context.exe, &all)
    }

    /// An installed program at the peer's end.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn peer_installed(
        &self,
        context: &Context,
        program: &Path,
        args: &[String],
    ) -> Result<Command, Trouble> {
        let mut command = self.launch(context, Who::Peer, program, args);
        self.far.start(&mut command).map_err(|e| fail("start a peer", e))?;
        Ok(command)
    }

    /// `bypath run` on the service; the program is to be added.
    fn under_service(&self, context: &Context) -> Command {
        let mut command = Command::new(&context.exe);
        command.args(["run", "--config", "none", &format!("--netstack={}", self.name()), "--"]);
        command.env(place::VARIABLE, &self.folder);
        command
    }

    /// A program that is pinned, and dies with the bench.
    fn launch(&self, context: &Context, who: Who, program: &Path, args: &[String]) -> Command {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "peer", "--talk", "launch"]).args(cores(context, who)).arg("--");
        command.arg(program).args(args).env(place::VARIABLE, &self.folder);
        command
    }
}

/// Program and peer have a core each, and the service may use both: there are no others for it.
fn cores(context: &Context, who: Who) -> Vec<String> {
    let Some([a, b]) = context.machine.pinned else { return Vec::new() };
    let cores = match who {
        Who::Program => a.to_string(),
        Who::Peer => b.to_string(),
        Who::Service => format!("{a},{b}"),
    };
    vec!["--cpu".into(), cores]
}
