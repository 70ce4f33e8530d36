//! Processor time of other processes: of children that have ended, and of a running server with all its workers.

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often processes that come and go may disturb a look at all of them.
const LOOKS: u32 = 50;

/// Processor time of all children that this process has waited for, with all that those have waited for.
pub fn of_ended_children() -> u64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return 0 };
    [usage.user_time(), usage.system_time()]
        .map(|t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1000)
        .iter()
        .sum()
}

/// A process and all its descendants.
#[derive(Clone, Copy, Debug)]
pub struct Tree(pub u32);

/// What stands in `/proc/PID/stat`.
struct Stat {
    parent: u32,
    /// User and system time of children that it has waited for, with theirs, in ticks.
    ended_children: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command, in parentheses, may hold anything. Field 4 follows it as number 1, 16 and 17 as 13 and 14.
        let (_, after) = stat.rsplit_once(')')?;
        let field = |n: usize| after.split_whitespace().nth(n)?.parse::<u64>().ok();
        Some(Stat { parent: field(1)? as u32, ended_children: field(13)? + field(14)? })
    }
}

impl Tree {
    /// The processes, each with the ticks of its ended children; the root also if it is gone.
    fn look(self) -> BTreeMap<u32, u64> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        let all: BTreeMap<u32, Stat> = pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
        let mut found = BTreeMap::from([(self.0, all.get(&self.0).map_or(0, |s| s.ended_children))]);
        loop {
            let children =
                all.iter().filter(|(pid, s)| !found.contains_key(*pid) && found.contains_key(&s.parent));
            let children: Vec<(u32, u64)> = children.map(|(pid, s)| (*pid, s.ended_children)).collect();
            if children.is_empty() {
                return found;
            }
            found.extend(children);
        }
    }

    /// Process ids.
    pub fn processes(self) -> Vec<u32> {
        self.look().into_keys().collect()
    }

    /// Processor time so far: of each process that lives, exactly; of those that have ended and were waited for
    /// within the tree, in ticks (10 ms).
    pub fn cpu_ns(self) -> u64 {
        let mut before = self.look();
        for _ in 0..LOOKS {
            let living: u64 = before.keys().map(|pid| of_process(*pid)).sum();
            let after = self.look();
            // Who ended in between might have been counted twice or not at all.
            if before == after {
                return living + after.values().sum::<u64>() * tick_ns();
            }
            before = after;
        }
        before.iter().map(|(pid, ticks)| of_process(*pid) + ticks * tick_ns()).sum()
    }

    /// Waits until every process that is not among `known` has ended, at most until `deadline`: what a server
    /// does after its client's end belongs to the run.
    pub fn settle(self, known: &[u32], deadline: Instant) {
        for pid in self.processes().into_iter().filter(|pid| !known.contains(pid)) {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("not 0");
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let left: Duration = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref())
                == Err(rustix::io::Errno::INTR)
            {}
        }
    }
}

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second()
}

/// Processor time of one process, all threads, also ended ones; 0 if there is no such process.
pub fn of_process(pid: u32) -> u64 {
    let clock = clock_getcpuclockid(Pid::from_raw(pid as i32));
    let Ok(time) = clock.and_then(clock_gettime) else { return 0 };
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    /// A shell function that uses some processor time.
    const BUSY: &str = "busy() { i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; }";

    #[test]
    fn a_tree_counts_living_and_ended_children() {
        let script =
            format!("{BUSY}; busy & busy & wait; echo ended; (busy; echo living; exec sleep 100) & wait");
        let mut root = Command::new("sh").arg("-c").arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let tree = Tree(root.id());
        let mut lines = BufReader::new(root.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ended");
        let two = tree.cpu_ns();
        assert_eq!(lines.next().unwrap().unwrap(), "living");
        let three = tree.cpu_ns();
        let sleeper = tree.processes();
        assert_eq!(sleeper.len(), 2, "{sleeper:?}");
        root.kill().unwrap();
        root.wait().unwrap();
        let orphan = sleeper.into_iter().find(|pid| *pid != tree.0).unwrap();
        let _ = nix::sys::signal::kill(Pid::from_raw(orphan as i32), nix::sys::signal::Signal::SIGKILL);
        assert!(two > 20_000_000, "two busy children took {two} ns");
        assert!(three > two + two / 5, "a third took nothing: {two} ns, then {three} ns");
    }

    #[test]
    fn waiting_ends_with_the_new_processes() {
        let script = "sleep 0.2 & echo started; exec sleep 100";
        let mut root = Command::new("sh").arg("-c").arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let tree = Tree(root.id());
        let mut line = String::new();
        BufReader::new(root.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let before = Instant::now();
        tree.settle(&[tree.0], before + Duration::from_secs(60));
        assert!(before.elapsed() < Duration::from_secs(50), "the end of a child was not seen");
        root.kill().unwrap();
        root.wait().unwrap();
    }

    #[test]
    fn what_ended_children_took_is_counted() {
        let before = of_ended_children();
        let script = format!("{BUSY}; (busy)");
        assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
        assert!(of_ended_children() > before + 10_000_000);
    }
}
