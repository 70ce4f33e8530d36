//! The host: processors that halt or change their speed, real-time limits, rights, queues.

use super::{Finding, Root};

/// A processor that wakes within this time loses nothing against an interrupt's own way. Microseconds.
const QUICK_WAKE_US: u64 = 10;
/// A receive queue for a burst of 1,000 frames of 1,500 octets, with the kernel's bookkeeping.
const BURST_QUEUE: u64 = 4 << 20;
/// Bit of CAP_NET_RAW in the masks of capabilities(7).
const NET_RAW: u64 = 1 << 13;

const CPUS: &str = "/sys/devices/system/cpu";

/// What was found about the host.
pub fn findings(root: &Root) -> Vec<Finding> {
    vec![
        processors(root),
        halting(root),
        governor(root),
        rt_throttling(root),
        limit(root, "rt-priority", "Max realtime priority", "rtprio"),
        limit(root, "locked-memory", "Max locked memory", "memlock"),
        packet_sockets(root),
        receive_queue(root),
    ]
}

/// Numbers in a list as `0-3,8`.
pub(super) fn count(list: &str) -> usize {
    list.split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((from, to)) => {
                Some(to.trim().parse::<usize>().ok()?.checked_sub(from.trim().parse().ok()?)? + 1)
            }
            None => part.trim().parse::<usize>().ok().map(|_| 1),
        })
        .sum()
}

fn processors(root: &Root) -> Finding {
    let Some(online) = root.text(format!("{CPUS}/online")) else {
        return Finding::unknown("processors", "the kernel does not tell");
    };
    let isolated = root.text(format!("{CPUS}/isolated")).filter(|list| !list.is_empty());
    match (count(&online), isolated) {
        (0 | 1, _) => Finding::hurts("processors", "one")
            .why("two ends that spin take the only processor from each other; let them sleep"),
        (n, Some(isolated)) => Finding::good("processors", format!("{n}, isolated: {isolated}")),
        (n, None) => Finding::note("processors", format!("{n}, none isolated"))
            .why(
                "whoever else runs there delays a cyclic sender; isolate one for it, and pin it with taskset",
            )
            .remedy("add isolcpus=managed_irq,domain,N nohz_full=N to the kernel's command line"),
    }
}

fn halting(root: &Root) -> Finding {
    let states = format!("{CPUS}/cpu0/cpuidle");
    let mut slow = Vec::new();
    let mut seen = 0;
    for name in root.names(&states).iter().filter(|n| n.starts_with("state")) {
        let file = |file: &str| format!("{states}/{name}/{file}");
        let Some(latency) = root.number::<u64>(file("latency")) else { continue };
        seen += 1;
        if latency > QUICK_WAKE_US && root.text(file("disable")).as_deref() != Some("1") {
            slow.push(format!("{} {latency} us", root.text(file("name")).unwrap_or_else(|| name.clone())));
        }
    }
    let virtual_machine = is_virtual(root) == Some(true);
    match (seen, slow.as_slice()) {
        (0, _) if virtual_machine => Finding::note("halting", "a virtual machine whose idle processor halts")
            .why("waking a halted virtual processor takes the hypervisor tens of microseconds: who spins is spared that"),
        (0, _) => Finding::unknown("halting", "no idle states are shown"),
        (_, []) => Finding::good("halting", format!("idle processors wake within {QUICK_WAKE_US} us")),
        (_, slow) => Finding::hurts("halting", format!("idle states that take long to leave: {}", slow.join(", ")))
            .why("a frame that meets a sleeping processor waits for it to wake")
            .remedy(format!("cpupower idle-set --disable-by-latency {}", QUICK_WAKE_US + 1)),
    }
}

/// Whether this is a virtual machine; `None`: the kernel does not tell.
pub(super) fn is_virtual(root: &Root) -> Option<bool> {
    let text = root.text("/proc/cpuinfo")?;
    Some(text.lines().any(|l| l.starts_with("flags") && l.split(' ').any(|flag| flag == "hypervisor")))
}

fn governor(root: &Root) -> Finding {
    let governors = root
        .names(CPUS)
        .into_iter()
        .filter_map(|cpu| root.text(format!("{CPUS}/{cpu}/cpufreq/scaling_governor")))
        .collect::<std::collections::BTreeSet<_>>();
    let list = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match list.as_str() {
        "" => Finding::unknown("governor", "the kernel does not control the frequency"),
        "performance" => Finding::good("governor", list),
        _ => Finding::hurts("governor", list)
            .why("a processor that has slowed down needs milliseconds to be quick again")
            .remedy("cpupower frequency-set --governor performance"),
    }
}

fn rt_throttling(root: &Root) -> Finding {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    match root.number::<i64>(FILE) {
        None => Finding::unknown("rt-throttling", format!("{FILE} cannot be read")),
        Some(-1) => Finding::good("rt-throttling", "off"),
        Some(us) => {
            let period = root.number("/proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000);
            let found = format!("real-time threads get {us} of {period} us");
            // Nobody but who has such a thread minds, and without it that one can stop a host.
            Finding::note("rt-throttling", found)
                .why("a SCHED_FIFO thread that spins is stopped for the rest of each period")
                .remedy("sysctl -w kernel.sched_rt_runtime_us=-1")
        }
    }
}

/// A soft limit that is 0 or small keeps an ordinary user from SCHED_FIFO or mlockall.
fn limit(root: &Root, check: &'static str, line: &str, name: &str) -> Finding {
    let limits = root.text("/proc/self/limits").unwrap_or_default();
    let Some(soft) =
        limits.lines().find_map(|l| l.strip_prefix(line)).and_then(|l| l.split_whitespace().next())
    else {
        return Finding::unknown(check, "the kernel does not tell");
    };
    // In a user namespace of one's own these capabilities lift no limit.
    let everybody =
        root.text("/proc/self/uid_map").is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    let may =
        everybody && effective(root).is_some_and(|mask| mask & (SYS_NICE | IPC_LOCK) == SYS_NICE | IPC_LOCK);
    if may || soft == "unlimited" || check == "rt-priority" && soft != "0" {
        let rights = if may { "no limit for this user" } else { soft };
        return Finding::good(check, rights);
    }
    Finding::hurts(check, format!("{soft} for this user"))
        .why(if check == "rt-priority" {
            "without SCHED_FIFO any other thread may delay a cyclic sender"
        } else {
            "without mlockall a page that was taken away delays whoever touches it"
        })
        .remedy(format!("add '@users - {name} unlimited' to /etc/security/limits.conf and log in again"))
}

const IPC_LOCK: u64 = 1 << 14;
const SYS_NICE: u64 = 1 << 23;

fn effective(root: &Root) -> Option<u64> {
    let status = root.text("/proc/self/status")?;
    let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn packet_sockets(root: &Root) -> Finding {
    match effective(root) {
        None => Finding::unknown("packet-sockets", "/proc/self/status cannot be read"),
        Some(mask) if mask & NET_RAW != 0 => Finding::good("packet-sockets", "allowed (CAP_NET_RAW)"),
        Some(_) => Finding::hurts("packet-sockets", "not allowed: CAP_NET_RAW is missing")
            .why("raw Ethernet needs it; in a network namespace of one's own (unshare -Urn) everybody has it")
            .remedy("setcap cap_net_raw+ep \"$(command -v bypath)\""),
    }
}

fn receive_queue(root: &Root) -> Finding {
    match root.number::<u64>("/proc/sys/net/core/rmem_max") {
        None => Finding::unknown("receive-queue", "net.core.rmem_max cannot be read"),
        Some(most) if most >= BURST_QUEUE => Finding::good(
            "receive-queue",
            format!("sockets may ask for {} KiB (net.core.rmem_max)", most / 1024),
        ),
        Some(most) => Finding::hurts(
            "receive-queue",
            format!("sockets get {} KiB at most (net.core.rmem_max)", most / 1024),
        )
        .why("a burst that comes while the reader is away is lost beyond it")
        .remedy(format!("sysctl -w net.core.rmem_max={BURST_QUEUE}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State::{self, *};
    use super::super::tests::{Tree, verdict};
    use super::*;

    fn states(name: &str, files: &[(&str, &str)]) -> Vec<(&'static str, State)> {
        findings(&Tree::new(name, files).root()).iter().map(|f| (f.check, f.state)).collect()
    }

    #[test]
    fn a_host_that_tells_nothing_is_unknown_and_not_good() {
        assert!(states("nothing", &[]).iter().all(|(_, state)| *state == Unknown));
    }

    #[test]
    fn what_hurts_comes_with_its_remedy() {
        let files = [
            ("sys/devices/system/cpu/online", "0-3"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
            ("proc/sys/net/core/rmem_max", "212992"),
            ("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n"),
            ("proc/self/limits", "Max locked memory 8388608 8388608 bytes\nMax realtime priority 0 0\n"),
        ];
        let tree = Tree::new("hurts", &files);
        let found = findings(&tree.root());
        let idle = found.iter().find(|f| f.check == "halting").unwrap();
        assert!(idle.found.contains("C6 133 us"), "{idle:?}");
        for check in
            ["halting", "governor", "rt-priority", "locked-memory", "packet-sockets", "receive-queue"]
        {
            let (state, remedy) = verdict(&found, check);
            assert_eq!((state, remedy.is_some()), (Hurts, true), "{check}");
        }
        assert_eq!(verdict(&found, "processors").0, Note);
        let (state, remedy) = verdict(&found, "rt-throttling");
        assert_eq!((state, remedy.is_some()), (Note, true));
    }

    #[test]
    fn a_host_made_ready_is_good() {
        let files = [
            ("sys/devices/system/cpu/online", "0-3"),
            ("sys/devices/system/cpu/isolated", "3"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "1"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("proc/sys/kernel/sched_rt_runtime_us", "-1"),
            ("proc/sys/net/core/rmem_max", "33554432"),
            ("proc/self/status", "CapEff:\t000001ffffffffff"),
            ("proc/self/limits", "Max locked memory 1 1 bytes\nMax realtime priority 0 0"),
        ];
        let found = states("ready", &files);
        assert!(found.iter().all(|(_, state)| *state == Good), "{found:?}");
    }

    #[test]
    fn a_virtual_machine_halts_though_it_shows_no_states() {
        let files = [("proc/cpuinfo", "flags\t\t: fpu hypervisor avx2")];
        assert_eq!(verdict(&findings(&Tree::new("vm", &files).root()), "halting").0, Note);
    }

    #[test]
    fn lists_of_processors() {
        assert_eq!([count("0"), count("0-3"), count("0-1,4,6-7"), count(""), count("3-1")], [1, 4, 5, 0, 0]);
    }
}
