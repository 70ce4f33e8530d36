//! What the figures were measured on.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket, sockopt};
use serde::Serialize;
use std::fs::read_to_string;

/// The machine, as far as it matters for the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// The cores that the two programs are pinned to.
    pub pinned: Option<[usize; 2]>,
    /// Kernel release.
    pub kernel: String,
    /// Frequency governor, where there is one.
    pub governor: Option<String>,
    /// Congestion control that a TCP socket gets by default.
    pub default_cc: Option<String>,
    /// Whether this is a virtual machine.
    pub virtualised: bool,
    /// One way through the bare ring with 14 bytes: how near the two cores are now.
    pub bare_ring_ns: Option<f64>,
    /// Cost of reading the clock, taken off every sample.
    pub clock_ns: u64,
    /// Load average of the last minute when the bench began.
    pub load: Option<f64>,
}

impl Machine {
    /// Looks.
    pub fn look() -> Machine {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let cpus = allowed_cpus();
        let line = |path: &str| Some(read_to_string(path).ok()?.trim().to_owned());
        Machine {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: cpus.len(),
            pinned: if let [a, b, ..] = cpus[..] { Some([a, b]) } else { None },
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            default_cc: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            virtualised: field("flags").is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")),
            bare_ring_ns: None,
            clock_ns: super::peer::clock_cost_ns(),
            load: line("/proc/loadavg").and_then(|l| l.split(' ').next()?.parse().ok()),
        }
    }

    /// In a line.
    pub fn summary(&self) -> String {
        let mut text = format!("{}, {} cores, Linux {}", self.cpu, self.cores, self.kernel);
        if self.virtualised {
            text += ", virtual";
        }
        if let Some(g) = &self.governor {
            text += &format!(", governor {g}");
        }
        if let Some(cc) = &self.default_cc {
            text += &format!(", default congestion control {cc}");
        }
        match self.pinned {
            Some([a, b]) => text += &format!(", programs pinned to cores {a} and {b}"),
            None => text += ", programs not pinned",
        }
        if let Some(load) = self.load.filter(|l| *l > 0.3) {
            text += &format!(", BUSY: load {load} at the start");
        }
        text
    }
}

/// The cores that this process may use, rising.
fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)) else { return vec![0] };
    (0..nix::sched::CpuSet::count()).filter(|c| set.is_set(*c) == Ok(true)).collect()
}

/// Whether a TCP socket may use this congestion control here.
pub fn may_use_cc(name: &str) -> bool {
    socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .is_ok_and(|s| setsockopt(&s, sockopt::TcpCongestion, &name.into()).is_ok())
}
