//! Two hosts on a cable: here a service at 10.0.0.1, there the kernel at 10.0.0.2.

use crate::common::{TempDir, bypath, run, workspace};
use crate::network::{Ended, LONG, Tool, address, skip, they_run};
use bypath_sys::netns::{self, Namespace};
use rustix::process::Signal;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Who runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The stack, here.
    Stack,
    /// The kernel, there.
    Kernel,
}

impl Side {
    pub const fn address(self) -> &'static str {
        match self {
            Side::Stack => "10.0.0.1",
            Side::Kernel => "10.0.0.2",
        }
    }

    pub fn at(self, port: u16) -> String {
        format!("{}:{port}", self.address())
    }
}

/// Server and client.
pub const ROLES: [(Side, Side); 2] = [(Side::Stack, Side::Kernel), (Side::Kernel, Side::Stack)];

/// Whether all of these programs are there; says which test is skipped where one is not.
pub fn have(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(["/usr/sbin".into()]).collect();
    let missing = programs.iter().find(|program| !folders.iter().any(|dir| dir.join(program).exists()));
    if let Some(missing) = missing {
        skip(test, &format!("{missing} is not installed"));
    }
    missing.is_none()
}

/// A script of this target, or of the tests of programs.
pub fn script(name: &str) -> String {
    let tests = workspace().join("crates/cli/tests");
    let own = tests.join("netstack_programs").join(name);
    let path = if own.exists() { own } else { tests.join("programs/scripts").join(name) };
    path.display().to_string()
}

/// `bypath netstack` that finds and makes services in this folder.
pub fn netstack(folder: &Path, args: &[&str]) -> Command {
    let mut command = bypath([&["netstack"], args].concat());
    command.env("BYPATH_NETSTACK_DIR", folder);
    command
}

/// A program on the stack of the service in this folder.
pub fn on_stack(folder: &Path, line: &[&str]) -> Command {
    let mut command = run([&["--netstack", "--"], line].concat());
    command.env("BYPATH_NETSTACK_DIR", folder).current_dir(folder);
    command
}

/// The two hosts, and a service.
pub struct Lab {
    pub folder: TempDir,
    pub there: Namespace,
    service: Option<Tool>,
}

impl Lab {
    /// With settings of the service in a file, if there are any.
    pub fn new(settings: &str) -> Lab {
        let mut lab = Lab::cable();
        let all = format!("link = \"packet:left\"\naddr = \"10.0.0.1/24\"\n{settings}");
        std::fs::write(lab.folder.join("lab.toml"), all).expect("a file");
        lab.begin();
        lab
    }

    /// Starts the service.
    pub fn begin(&mut self) {
        let config = format!("--config={}", self.folder.join("lab.toml").display());
        self.service = Some(Tool::of(netstack(self.folder.path(), &[&config])).hears("next"));
    }

    /// Kills it.
    pub fn kill(&mut self) {
        let service = self.service.take().expect("a service");
        service.signal(Signal::KILL);
        service.end();
    }

    /// Without a service yet.
    pub fn cable() -> Lab {
        let there = Namespace::new().expect("a namespace");
        netns::veth("left", "right", Some(&there)).expect("a veth pair");
        let up = |names: [&str; 2]| names.map(|name| netns::set_up(name, true).expect("an interface"));
        up(["left", "lo"]);
        let prepare = || {
            // What the kernel learns of a link with its own queues and losses is not to be the measure (BBR); in a namespace this is the
            // other one that may be chosen.
            let _ = std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
            up(["right", "lo"]);
            address("right", "10.0.0.2");
            they_run();
        };
        there.run(prepare).expect("the other host");
        they_run();
        Lab { folder: TempDir::new(), there, service: None }
    }

    pub const fn service(&self) -> &Tool {
        self.service.as_ref().expect("a service")
    }

    /// Starts a program.
    pub fn start(&self, side: Side, line: &[&str]) -> Tool {
        match side {
            Side::Stack => Tool::of(on_stack(self.folder.path(), line)),
            Side::Kernel => {
                let mut command = Command::new(line[0]);
                command.args(&line[1..]).current_dir(self.folder.path());
                self.there.run(|| Tool::of(command)).expect("a program on the other host")
            }
        }
    }

    /// Runs a program that ends well.
    #[track_caller]
    pub fn done(&self, side: Side, line: &[&str]) -> Ended {
        self.start(side, line).quiet().end().expect(0)
    }

    /// Waits until somebody listens there. The other host's kernel asks.
    #[track_caller]
    pub fn listening(&self, at: &str) {
        let at: SocketAddr = at.parse().expect("an address");
        let end = Instant::now() + LONG;
        let asks = || TcpStream::connect_timeout(&at, Duration::from_secs(5)).is_err();
        while self.there.run(asks).expect("the other host") {
            assert!(Instant::now() < end, "nobody listens at {at}");
            std::thread::yield_now();
        }
    }

    /// What the service says of itself.
    pub fn told(&self, what: &[&str]) -> Vec<Value> {
        told(self.folder.path(), what)
    }

    /// Waits until no program has a socket of the service.
    #[track_caller]
    pub fn is_empty(&self) {
        self.has_sockets(0);
    }

    /// Waits until programs have so many.
    #[track_caller]
    pub fn has_sockets(&self, count: usize) {
        let end = Instant::now() + LONG;
        loop {
            let sockets = self.told(&["sockets"]);
            if sockets.len() == count {
                return;
            }
            assert!(Instant::now() < end, "not {count} sockets: {sockets:#?}");
        }
    }

    /// Descriptors of the service, once there are no more than so many.
    #[track_caller]
    pub fn has_descriptors(&self, most: usize) {
        let end = Instant::now() + LONG;
        loop {
            let now = self.descriptors();
            if now <= most {
                return;
            }
            assert!(Instant::now() < end, "{now} descriptors, {most} at first");
            std::thread::yield_now();
        }
    }

    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.service().id())).expect("a process").count()
    }

    /// KiB of the service's memory that are in use.
    pub fn memory(&self) -> u64 {
        memory(self.service().id())
    }

    /// Mappings of the service that it shares with programs.
    pub fn maps(&self) -> usize {
        maps(self.service().id())
    }

    /// Octets of rings that all users have together.
    pub fn rings(&self) -> u64 {
        let services = self.told(&["ls"]);
        let users = services.iter().filter_map(|service| service["users"].as_array()).flatten();
        users.map(|user| user["rings"].as_u64().expect("a number")).sum()
    }

    /// Waits until the service shares memory with nobody.
    #[track_caller]
    pub fn shares_nothing(&self) {
        let end = Instant::now() + LONG;
        loop {
            let now = (self.maps(), self.rings());
            if now == (0, 0) {
                return;
            }
            assert!(Instant::now() < end, "mappings, and octets of rings: {now:?}");
        }
    }

    /// Ends the service as systemd does.
    #[track_caller]
    pub fn end(mut self) {
        let service = self.service.take().expect("a service");
        service.signal(Signal::TERM);
        service.end().expect(0);
    }
}

/// Mappings of a process that it shares with others for rings.
pub fn maps(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a process");
    maps.lines().filter(|line| line.contains("/memfd:bypath-")).count()
}

/// KiB of a process's memory that are in use.
pub fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).expect("a number")
}

/// What the service in this folder says of itself.
pub fn told(folder: &Path, what: &[&str]) -> Vec<Value> {
    let ended = Tool::of(netstack(folder, &[what, &["--json"]].concat())).end().expect(0);
    serde_json::from_slice(&ended.stdout).expect("JSON")
}
