//! Two hosts and a link between them: the kernel's, or a netstack service's beside programs in a namespace where the kernel has
//! no address, so that no call of theirs can come to it unseen.

use crate::common::{TempDir, bypath};
use crate::network::{LONG, Tool, they_run};
use crate::run::Under;
use bypath_sys::netns::{self, Namespace};
use rustix::process::Signal;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What the stack's link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// One end of a veth pair, by packet sockets.
    Veth,
    /// A TAP device of its own.
    Tap,
}

/// Addresses of IPv4 that a host has.
const ADDRESSES: u8 = 5;
/// Longest wait for addresses of IPv6 (ns).
const PATIENCE: u64 = 10_000_000_000;

/// The end `c` has number 1, `s` number 2; as `link::addresses` has them.
fn addresses(number: u8) -> impl Iterator<Item = (IpAddr, u8)> {
    let four = (1..=ADDRESSES).map(move |last| (IpAddr::from([10, 77, number, last]), 16));
    four.chain([(IpAddr::from([0xfd77, 0, u16::from(number), 0, 0, 0, 0, 1]), 32)])
}

/// A host.
pub struct Host {
    namespace: Namespace,
    service: Option<(Mutex<Tool>, TempDir)>,
}

impl Host {
    fn new() -> Host {
        let namespace = Namespace::new().expect("a namespace");
        namespace.run(|| netns::set_up("lo", true).expect("loopback")).expect("a thread");
        Host { namespace, service: None }
    }

    /// The kernel has these addresses.
    fn is_kernel(&self, interface: &str, number: u8) {
        let give = || {
            for (address, prefix) in addresses(number) {
                netns::add_address(interface, address, prefix).expect("an address");
            }
            netns::settle_addresses(interface, PATIENCE).expect("addresses");
        };
        self.namespace.run(give).expect("a thread");
    }

    /// A service has them, beside these settings, with its link in `at`.
    fn serve(&mut self, at: &Namespace, number: u8, settings: &[&str]) {
        let folder = TempDir::new();
        let mut command = bypath(["netstack"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path()).args(settings);
        for (address, prefix) in addresses(number) {
            command.arg(format!("--addr={address}/{prefix}"));
        }
        let service = at.run(|| Tool::of(command).quiet()).expect("a thread");
        self.service = Some((Mutex::new(service), folder));
    }

    /// The service, if there is one, has its addresses: that nobody else has them takes seconds to find out.
    fn begun(mut self) -> Host {
        self.service = self.service.map(|(service, folder)| {
            let service = service.into_inner().unwrap_or_else(PoisonError::into_inner);
            (Mutex::new(service.hears("next")), folder)
        });
        self
    }

    /// Runs `f` there.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.namespace.run(f).expect("a thread")
    }

    /// A command that becomes `program`, on the service if there is one; to be started by `run`.
    pub fn command(&self, program: &Path, library: &Path) -> Command {
        match &self.service {
            None => {
                let mut command = Command::new(program);
                for (name, _) in std::env::vars_os() {
                    if name.to_string_lossy().starts_with("BYPATH_") || name == "LD_PRELOAD" {
                        command.env_remove(name);
                    }
                }
                command
            }
            Some((_, folder)) => {
                let mut command = bypath(["run", "--netstack", "--library"]);
                command.arg(library).arg("--").arg(program).env("BYPATH_NETSTACK_DIR", folder.path());
                command
            }
        }
    }

    /// The service ends in good order, and programs that are gone have left nothing in it.
    ///
    /// # Errors
    /// What is wrong.
    fn end(&mut self) -> Result<(), String> {
        let Some((service, folder)) = self.service.take() else { return Ok(()) };
        let until = Instant::now() + LONG;
        loop {
            let mut command = bypath(["netstack", "sockets"]);
            let left = command.env("BYPATH_NETSTACK_DIR", folder.path()).output().expect("bypath");
            let said = String::from_utf8_lossy(&left.stderr).into_owned();
            if said.contains("no sockets") {
                break;
            }
            if Instant::now() > until || !left.status.success() {
                return Err(format!("sockets are left: {}{said}", String::from_utf8_lossy(&left.stdout)));
            }
            std::thread::yield_now();
        }
        let service = service.into_inner().unwrap_or_else(PoisonError::into_inner);
        service.signal(Signal::TERM);
        let ended = service.end();
        (ended.code() == Some(0)).then_some(()).ok_or(format!("the service ended: {}", ended.stderr))
    }
}

/// Two hosts.
pub struct Hosts {
    pub client: Host,
    pub server: Host,
}

impl Hosts {
    /// What the ends are, and what links them.
    pub fn new(client: Under, server: Under, wire: Wire) -> Hosts {
        let [client, server] = match wire {
            Wire::Veth => veth([client, server]),
            Wire::Tap => tap([client, server]),
        };
        Hosts { client, server }
    }

    /// Ends both in good order.
    ///
    /// # Errors
    /// What is wrong.
    pub fn end(mut self) -> Result<(), String> {
        self.client.end()?;
        self.server.end()
    }
}

/// Both at once.
fn begun(hosts: [Host; 2]) -> [Host; 2] {
    std::thread::scope(|scope| {
        hosts.map(|host| scope.spawn(|| host.begun())).map(|host| host.join().expect("a service"))
    })
}

fn up(name: &str) {
    netns::set_up(name, true).expect("an interface that is up");
}

fn veth(ends: [Under; 2]) -> [Host; 2] {
    let mut hosts = [Host::new(), Host::new()];
    let names = ["left", "right"];
    let there = &hosts[1].namespace;
    hosts[0].run(|| netns::veth(names[0], names[1], Some(there)).expect("a veth pair"));
    hosts.iter().zip(names).for_each(|(host, name)| host.run(|| up(name)));
    hosts.iter().for_each(|host| host.run(they_run));
    for ((host, name), (end, number)) in hosts.iter_mut().zip(names).zip(ends.into_iter().zip(1..)) {
        if end == Under::Netstack {
            let at = host.run(|| Namespace::current().expect("a namespace"));
            host.serve(&at, number, &[&format!("--link=packet:{name}")]);
        } else {
            host.is_kernel(name, number);
        }
    }
    begun(hosts)
}

/// Devices are where the kernel's end is, or a bridge between two of them.
fn tap(ends: [Under; 2]) -> [Host; 2] {
    let mut hosts = [Host::new(), Host::new()];
    let names = ["left", "right"];
    let kernel = ends.iter().position(|end| *end != Under::Netstack);
    let between = match kernel {
        Some(kernel) => hosts[kernel].run(|| Namespace::current().expect("a namespace")),
        None => Namespace::new().expect("a namespace"),
    };
    for ((host, name), (end, number)) in hosts.iter_mut().zip(names).zip(ends.into_iter().zip(1..)) {
        if end == Under::Netstack {
            host.serve(&between, number, &[&format!("--link=tap:{name}")]);
        }
    }
    let hosts = begun(hosts);
    for (name, _) in names.iter().zip(ends).filter(|(_, end)| *end == Under::Netstack) {
        between.run(|| up(name)).expect("a thread");
    }
    match kernel {
        Some(kernel) => hosts[kernel].is_kernel(names[1 - kernel], kernel as u8 + 1),
        None => between.run(|| netns::bridge("between", &names).expect("a bridge")).expect("a thread"),
    }
    hosts
}
