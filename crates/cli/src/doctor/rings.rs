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
        namespace(root),
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

/// Whether this shell is in the network namespace of the host's first process.
fn namespace(root: &Root) -> Finding {
    const CHECK: &str = "network-namespace";
    match (root.link("/proc/self/ns/net"), root.link("/proc/1/ns/net")) {
        (Some(ours), Some(first)) if ours == first => Finding::good(CHECK, "that of process 1"),
        (Some(ours), Some(_)) => Finding::note(CHECK, format!("one of its own, {ours}"))
            .why("only programs in the same network namespace meet on rings, but for those with one folder for it")
            .remedy("bypath run --rendezvous FOLDER -- PROGRAM at both ends, FOLDER being mounted in both containers"),
        _ => Finding::unknown(CHECK, "process 1 belongs to another user"),
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

    const LIMITS: &str =
        "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      524288    files\n";

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
            ("proc/self/limits", "Max open files            1048576   1048576   files\n"),
            ("proc/self/status", "Seccomp:\t0\nCpus_allowed_list:\t0-7\n"),
            ("sys/devices/system/cpu/cpuidle/current_driver", "haltpoll"),
            ("sys/devices/system/cpu/cpuidle/current_governor", "haltpoll"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
            ("proc/sys/kernel/yama/ptrace_scope", "0"),
        ];
        let found = findings(&Tree::new("rings-good", &files).root());
        // Its namespaces are links, which the tree has none of.
        assert!(found.iter().all(|f| f.state == Good || f.check == "network-namespace"), "{found:?}");
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
