//! What programs under `bypath run` need of the host: a kernel that is new enough, descriptors, processors, a road between
//! processes, and eyes for who looks on.

use super::host::count;
use super::{Finding, Root};

/// The oldest kernel that rings work on.
const OLDEST: (u32, u32) = (4, 19);
/// The first one on which nothing is done another way.
const BEST: (u32, u32) = (5, 14);
/// Descriptors with which a server with rings is content: sockets, one bell for each thread, one socket for each other process.
const DESCRIPTORS: u64 = 4096;

/// What was found.
pub fn findings(root: &Root) -> Vec<Finding> {
    vec![
        kernel(root),
        descriptors(root),
        allowed(root),
        idle_driver(root),
        filter(root),
        namespace(root, "network-namespace", "net", 0),
        namespace(root, "pid-namespace", "pid", 0xeffffffc),
        namespace(root, "user-namespace", "user", 0xeffffffd),
        namespace(root, "mount-namespace", "mnt", 0),
        quota(root),
        memory_limit(root),
        file_size(root),
        address_space(root),
        datagram_queue(root),
        rendezvous(root),
        congestion(root),
        tracing(root),
    ]
}

fn status(root: &Root, field: &str) -> Option<String> {
    let status = root.text("/proc/self/status")?;
    status.lines().find_map(|l| Some(l.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
}

fn kernel(root: &Root) -> Finding {
    const CHECK: &str = "kernel";
    let Some(release) = root.text("/proc/sys/kernel/osrelease") else {
        return Finding::unknown(CHECK, "the kernel does not tell");
    };
    let mut numbers = release.split(['.', '-', '+']).map_while(|n| n.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= BEST => Finding::good(CHECK, release),
        (Some(major), Some(minor)) if (major, minor) >= OLDEST => Finding::note(CHECK, release)
            .why("before 5.14 memory cannot be reserved beforehand: a program whose ring finds none left gets SIGBUS"),
        (Some(_), Some(_)) => Finding::hurts(CHECK, release)
            .why("Bypath needs 4.19 or later")
            .remedy("install a newer kernel of your distribution"),
        _ => Finding::unknown(CHECK, release),
    }
}

fn descriptors(root: &Root) -> Finding {
    const CHECK: &str = "descriptors";
    let limits = root.text("/proc/self/limits").unwrap_or_default();
    let soft = limits.lines().find_map(|l| l.strip_prefix("Max open files")?.split_whitespace().next());
    match soft.map(|soft| (soft, soft.parse::<u64>())) {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some((soft, Ok(n))) if n < DESCRIPTORS => Finding::note(CHECK, format!("{soft} for a process"))
            .why("rings take a few beside the sockets; where none is left connections stay on the kernel (no-descriptors)")
            .remedy(format!("ulimit -n {DESCRIPTORS}, or LimitNOFILE= in the unit")),
        Some((soft, _)) => Finding::good(CHECK, format!("{soft} for a process")),
    }
}

/// The processors that this shell, and what it starts, may use.
fn allowed(root: &Root) -> Finding {
    const CHECK: &str = "allowed-processors";
    match status(root, "Cpus_allowed_list") {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some(list) if count(&list) < 2 => Finding::hurts(CHECK, list)
            .why("both ends of a connection share it: each must sleep before the other can answer, on rings, too")
            .remedy("taskset -pc 0-N $$, or a larger CPUQuota= and AllowedCPUs= in the unit"),
        Some(list) => Finding::good(CHECK, list),
    }
}

fn idle_driver(root: &Root) -> Finding {
    const CHECK: &str = "idle-driver";
    let file = |name: &str| root.text(format!("/sys/devices/system/cpu/cpuidle/{name}"));
    let virtual_machine = super::host::is_virtual(root);
    let governor = file("current_governor").or_else(|| file("current_governor_ro")).unwrap_or_default();
    match (file("current_driver").filter(|d| d != "none" && !d.is_empty()), virtual_machine) {
        (Some(driver), _) if driver == "haltpoll" || governor == "haltpoll" => Finding::good(
            CHECK,
            format!("{driver}, {governor}: an idle processor polls for a while before it halts"),
        ),
        (Some(driver), _) => Finding::good(CHECK, format!("{driver}, {governor}")),
        (None, Some(true)) => Finding::note(CHECK, "none, in a virtual machine")
            .why("an idle processor halts at once, and every sleep and wake goes through the hypervisor")
            .remedy("modprobe cpuidle_haltpoll"),
        (None, Some(false)) => Finding::good(CHECK, "none is needed: idle processors are the kernel's own"),
        (None, None) => Finding::unknown(CHECK, "the kernel does not tell"),
    }
}

fn filter(root: &Root) -> Finding {
    const CHECK: &str = "seccomp";
    match status(root, "Seccomp").as_deref() {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some("0") => Finding::good(CHECK, "no filter"),
        Some(_) => Finding::note(CHECK, "this shell is under a filter, and so is what it starts")
            .why("calls that rings need may be forbidden (forbidden-call in bypath ss): pidfd_getfd, memfd_create, netlink")
            .remedy("run the container with a filter that allows them, as --security-opt seccomp=FILE"),
    }
}

/// Whether this shell is in the namespace of the host's first process; `first` is the number of the kernel's first one, if that is
/// always the same (include/linux/proc_ns.h): within a pid namespace process 1 is that namespace's own.
fn namespace(root: &Root, check: &'static str, kind: &str, first: u32) -> Finding {
    let links = (root.link(format!("/proc/self/ns/{kind}")), root.link(format!("/proc/1/ns/{kind}")));
    let own = |ours: String| {
        let why = match kind {
            "net" => {
                "only programs in the same network namespace meet on rings, but for those with one folder for it"
            }
            _ => {
                "only programs of the same pid, user and mount namespaces share memory, but for those with one folder for it"
            }
        };
        Finding::note(check, format!("one of its own, {ours}")).why(why).remedy(
            "bypath run --rendezvous FOLDER -- PROGRAM at both ends, FOLDER being mounted in both containers",
        )
    };
    match links {
        (Some(ours), _) if first != 0 && ours == format!("{kind}:[{first}]") => {
            Finding::good(check, "the host's")
        }
        (Some(ours), _) if first != 0 => own(ours),
        (Some(ours), Some(one)) if ours == one => Finding::good(check, "that of process 1"),
        (Some(ours), Some(_)) => own(ours),
        (Some(_), None) => {
            Finding::unknown(check, "process 1 may not be looked at (another user's, or no CAP_SYS_PTRACE)")
        }
        _ => Finding::unknown(check, "the kernel does not tell"),
    }
}

/// What a file of the control groups (version 2) says that this shell is in, from the innermost one on that says anything but `max`.
/// `None`: they cannot be read.
fn control_group(root: &Root, file: &str) -> Option<Option<String>> {
    const MOUNTED: &str = "/sys/fs/cgroup";
    root.text(format!("{MOUNTED}/cgroup.controllers"))?;
    let groups = root.text("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let levels = std::path::Path::new(path).ancestors();
    let texts = levels.filter_map(|level| root.text(std::path::Path::new(MOUNTED).join(level).join(file)));
    Some(texts.into_iter().find(|text| !text.starts_with("max")))
}

/// Processor time that a control group may use.
fn quota(root: &Root) -> Finding {
    const CHECK: &str = "processor-quota";
    let Some(text) = control_group(root, "cpu.max") else {
        return Finding::unknown(CHECK, "no control groups of version 2 are shown");
    };
    let Some(text) = text else { return Finding::good(CHECK, "none") };
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse::<f64>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(quota), Some(period)) if period > 0.0 => {
            let processors = quota / period;
            let found = format!("time of {processors:.2} processors");
            if processors >= 2.0 {
                return Finding::note(CHECK, found)
                    .why("who spins uses it up as well; where it is used up all threads stand still for the rest of the period");
            }
            Finding::hurts(CHECK, found)
                .why("both ends of a connection that spin use it up, and stand still for the rest of the period (100 ms)")
                .remedy("bypath run --profile frugal, or a larger CPUQuota= (docker: --cpus)")
        }
        _ => Finding::unknown(CHECK, text),
    }
}

/// Memory of rings counts in the control group of who writes.
fn memory_limit(root: &Root) -> Finding {
    const CHECK: &str = "memory-limit";
    /// Twice what a process may use for rings at most, if nothing else is said.
    const ENOUGH: u64 = 512 << 20;
    match control_group(root, "memory.max") {
        None => Finding::unknown(CHECK, "no control groups of version 2 are shown"),
        Some(None) => Finding::good(CHECK, "none"),
        Some(Some(text)) => match text.parse::<u64>() {
            Ok(n) if n < ENOUGH => Finding::note(CHECK, format!("{} MiB for this control group", n >> 20))
                .why("rings count there, up to 256 MiB for each process that writes without being read: the kernel ends programs beyond it")
                .remedy("bypath run --memory-limit 32M, or a larger MemoryMax= (docker: --memory)"),
            Ok(n) => Finding::good(CHECK, format!("{} MiB for this control group", n >> 20)),
            Err(_) => Finding::unknown(CHECK, text),
        },
    }
}

/// The soft limit with this name, `None` inside = unlimited.
fn soft_limit(root: &Root, name: &str) -> Option<Option<u64>> {
    let limits = root.text("/proc/self/limits")?;
    let soft = limits.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next())?;
    Some(soft.parse().ok())
}

fn file_size(root: &Root) -> Finding {
    const CHECK: &str = "file-size";
    /// Size of a family's region, which is a file to the kernel.
    const NEEDED: u64 = 40_000 << 10;
    match soft_limit(root, "Max file size") {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some(None) => Finding::good(CHECK, "no limit"),
        Some(Some(n)) if n < NEEDED => Finding::hurts(CHECK, format!("{} KiB for a file", n >> 10))
            .why("shared memory counts as a file: every connection stays on the kernel")
            .remedy("ulimit -f unlimited, or LimitFSIZE=infinity in the unit"),
        Some(Some(n)) => Finding::good(CHECK, format!("{} KiB for a file", n >> 10)),
    }
}

/// As much as a UDP socket that asks for nothing has waiting, in the kernel or in a mailbox.
fn datagram_queue(root: &Root) -> Finding {
    const CHECK: &str = "datagram-queue";
    const FILE: &str = "/proc/sys/net/core/rmem_default";
    /// What Linux has without being told.
    const USUAL: u64 = 212_992;
    match root.number::<u64>(FILE) {
        None => Finding::unknown(CHECK, "net.core.rmem_default cannot be read"),
        Some(n) if n >= USUAL => {
            Finding::good(CHECK, format!("{} KiB for a UDP socket (net.core.rmem_default)", n / 1024))
        }
        Some(n) => Finding::note(CHECK, format!("{} KiB for a UDP socket (net.core.rmem_default)", n / 1024))
            .why("what comes while that much waits is lost, by the ring as by the kernel")
            .remedy(format!("sysctl -w net.core.rmem_default={USUAL}")),
    }
}

fn address_space(root: &Root) -> Finding {
    const CHECK: &str = "address-space";
    /// Room for some 80 processes at the other ends.
    const ENOUGH: u64 = 1 << 30;
    match soft_limit(root, "Max address space") {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some(None) => Finding::good(CHECK, "no limit"),
        Some(Some(n)) if n < ENOUGH => Finding::note(CHECK, format!("{} MiB for a process", n >> 20))
            .why("each process at another end takes 12 to 16 MiB of it; beyond it connections stay on the kernel (no-memory)")
            .remedy("ulimit -v unlimited, or LimitAS=infinity in the unit"),
        Some(Some(n)) => Finding::good(CHECK, format!("{} MiB for a process", n >> 20)),
    }
}

/// What `--rendezvous` needs beside a folder. The kernel numbers network namespaces since 5.14, and shows users of AF_UNIX sockets
/// where it has unix_diag.
fn rendezvous(root: &Root) -> Finding {
    const CHECK: &str = "rendezvous";
    let Some(release) = root.text("/proc/sys/kernel/osrelease") else {
        return Finding::unknown(CHECK, "the kernel does not tell");
    };
    let mut numbers = release.split(['.', '-', '+']).map_while(|n| n.parse::<u32>().ok());
    let is_new =
        matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) >= BEST);
    if !is_new {
        return Finding::note(CHECK, "not on this kernel")
            .why("before 5.14 nothing tells network namespaces apart: with --rendezvous connections between them stay on the kernel");
    }
    if status(root, "Uid").is_some_and(|uids| uids.split_whitespace().nth(1) == Some("65534")) {
        return Finding::note(CHECK, "this user is nobody (65534)")
            .why("with --rendezvous only programs of one user meet, and nobody is everybody whom a container does not know")
            .remedy("run the programs of both containers as one user");
    }
    Finding::good(CHECK, "containers of one user may meet in a folder (bypath run --rendezvous)")
}

fn congestion(root: &Root) -> Finding {
    const CHECK: &str = "congestion-control";
    match root.text("/proc/sys/net/ipv4/tcp_congestion_control") {
        None => Finding::unknown(CHECK, "the kernel does not tell"),
        Some(name) if name.starts_with("bbr") => Finding::note(CHECK, name)
            .why("it paces what is sent, on this host's own addresses, too: rings are not slowed by it, connections that stay on the kernel are"),
        Some(name) => Finding::good(CHECK, name),
    }
}

/// Who may look into a process of the same user.
fn tracing(root: &Root) -> Finding {
    const CHECK: &str = "ptrace";
    match root.number::<u32>("/proc/sys/kernel/yama/ptrace_scope") {
        None if root.names("/proc/sys/kernel").is_empty() => Finding::unknown(CHECK, "/proc cannot be read"),
        None | Some(0) => Finding::good(CHECK, "processes of the same user may be looked into"),
        Some(scope) => Finding::note(CHECK, format!("restricted (yama, scope {scope})"))
            .why("what goes through the rings of a running program can be looked at by root alone")
            .remedy("sysctl -w kernel.yama.ptrace_scope=0, or sudo"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State::*;
    use super::super::tests::{Tree, verdict};
    use super::*;

    const LIMITS: &str = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      524288    files\n\
        Max file size  1048576  unlimited  bytes\nMax address space  409600000  unlimited  bytes\n";

    #[test]
    fn a_host_that_tells_nothing_is_unknown_and_not_good() {
        let found = findings(&Tree::new("rings-nothing", &[]).root());
        assert!(found.iter().all(|f| f.state == Unknown), "{found:?}");
    }

    #[test]
    fn what_is_in_the_way_is_named_with_what_mends_it() {
        let files = [
            ("proc/sys/kernel/osrelease", "4.18.0-553-x\n"),
            ("proc/self/limits", LIMITS),
            ("proc/self/status", "Seccomp:\t2\nCpus_allowed_list:\t3\n"),
            ("proc/cpuinfo", "flags\t\t: fpu hypervisor avx2"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr"),
            ("proc/sys/kernel/yama/ptrace_scope", "1"),
            ("proc/self/cgroup", "0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory"),
            ("sys/fs/cgroup/a.slice/b.service/cpu.max", "max 100000"),
            ("sys/fs/cgroup/a.slice/cpu.max", "150000 100000"),
            ("sys/fs/cgroup/a.slice/b.service/memory.max", "134217728"),
        ];
        let tree = Tree::new("rings-bad", &files);
        let found = findings(&tree.root());
        for (check, state) in [
            ("kernel", Hurts),
            ("descriptors", Note),
            ("allowed-processors", Hurts),
            ("idle-driver", Note),
            ("seccomp", Note),
            ("ptrace", Note),
            ("processor-quota", Hurts),
            ("memory-limit", Note),
            ("file-size", Hurts),
            ("address-space", Note),
        ] {
            let (seen, remedy) = verdict(&found, check);
            assert_eq!((seen, remedy.is_some()), (state, true), "{check}");
        }
        assert_eq!(verdict(&found, "congestion-control").0, Note);
    }

    #[test]
    fn an_ordinary_host_is_good() {
        let files = [
            ("proc/sys/kernel/osrelease", "6.1.0-18-amd64"),
            (
                "proc/self/limits",
                "Max open files            1048576   1048576   files\nMax file size   unlimited  unlimited  bytes\nMax address space   unlimited unlimited bytes\n",
            ),
            ("proc/self/status", "Seccomp:\t0\nCpus_allowed_list:\t0-7\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "haltpoll"),
            ("sys/devices/system/cpu/cpuidle/current_governor", "haltpoll"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
            ("proc/sys/net/core/rmem_default", "212992"),
            ("proc/sys/kernel/yama/ptrace_scope", "0"),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory"),
        ];
        let tree = Tree::new("rings-good", &files);
        for (kind, number) in [("net", 1), ("mnt", 2), ("pid", 0xeffffffcu32), ("user", 0xeffffffd)] {
            tree.link(&format!("proc/self/ns/{kind}"), &format!("{kind}:[{number}]"));
            tree.link(&format!("proc/1/ns/{kind}"), &format!("{kind}:[{number}]"));
        }
        let found = findings(&tree.root());
        assert!(found.iter().all(|f| f.state == Good), "{found:?}");
    }

    #[test]
    fn namespaces_of_a_container_are_told_also_where_process_1_is_its_own() {
        let tree = Tree::new("rings-namespaces", &[]);
        for (kind, ours, first) in [("net", 5, 1), ("mnt", 6, 6), ("pid", 7, 7), ("user", 8, 8)] {
            tree.link(&format!("proc/self/ns/{kind}"), &format!("{kind}:[{ours}]"));
            tree.link(&format!("proc/1/ns/{kind}"), &format!("{kind}:[{first}]"));
        }
        let found = findings(&tree.root());
        let state = |check: &str| verdict(&found, check).0;
        assert_eq!((state("network-namespace"), state("mount-namespace")), (Note, Good));
        assert_eq!((state("pid-namespace"), state("user-namespace")), (Note, Note));
    }

    #[test]
    fn releases_of_all_kinds_are_read() {
        for (release, state) in [
            ("5.14.0", Good),
            ("5.13.19", Note),
            ("4.19", Note),
            ("4.9.1", Hurts),
            ("6.12-rc3+", Good),
            ("10.0", Good),
            ("x", Unknown),
        ] {
            let tree = Tree::new(&format!("release-{release}"), &[("proc/sys/kernel/osrelease", release)]);
            assert_eq!(verdict(&findings(&tree.root()), "kernel").0, state, "{release}");
        }
    }
}
