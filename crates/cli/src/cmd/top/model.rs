//! What is shown: connections with what they did since the look before.

use crate::connections::{self, Connection, Scan, Udp};
use crate::filter::Filter;
use bypath_shm::view::Path;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// One connection as one process holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The holder.
    pub pid: u32,
    /// Its program.
    pub command: String,
    /// Whether it is stopped.
    pub stopped: bool,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The descriptor.
    pub fd: i32,
    /// Local address.
    pub local: Option<String>,
    /// Remote address.
    pub remote: Option<String>,
    /// `ring`, `kernel`, or both: sending first; of a netstack service `netstack:ring` and its like.
    pub path: String,
    /// Why.
    pub reason: String,
    /// The netstack service whose socket it is.
    pub service: Option<String>,
    /// Bytes sent in a second, on both paths.
    pub tx_rate: u64,
    /// Bytes received in a second.
    pub rx_rate: u64,
    /// Bytes sent so far.
    pub tx: u64,
    /// Bytes received so far.
    pub rx: u64,
    /// Bytes in the outgoing ring.
    pub waiting: Option<u64>,
    /// How long a byte waits there until it is read, in nanoseconds: what waits, by what is sent in that time.
    pub wait_ns: Option<u64>,
    /// What the process spends spinning, in percent of one processor.
    pub spin_percent: Option<f64>,
    /// Datagrams that were lost for want of room. Streams lose nothing.
    pub drops: u64,
}

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Bytes in a second, both ways.
    #[default]
    Rate,
    /// Bytes so far, both ways.
    Bytes,
    /// Time that bytes wait.
    Wait,
    /// Time spent spinning.
    Spin,
    /// Datagrams lost.
    Drops,
    /// Process and descriptor.
    Pid,
    /// Path and reason.
    Path,
}

impl Sort {
    /// All of them, in the order in which a key goes through them.
    pub const ALL: [Sort; 7] =
        [Sort::Rate, Sort::Bytes, Sort::Wait, Sort::Spin, Sort::Drops, Sort::Pid, Sort::Path];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Bytes => "bytes",
            Sort::Wait => "wait",
            Sort::Spin => "spin",
            Sort::Drops => "drops",
            Sort::Pid => "pid",
            Sort::Path => "path",
        }
    }

    /// The next one.
    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|s| *s == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    /// Sorts: the most first, but numbers of processes and words from the least.
    pub fn sort(self, rows: &mut [Row], reverse: bool) {
        rows.sort_by(|a, b| {
            let order = match self {
                Sort::Rate => b.tx_rate.saturating_add(b.rx_rate).cmp(&a.tx_rate.saturating_add(a.rx_rate)),
                Sort::Bytes => b.tx.saturating_add(b.rx).cmp(&a.tx.saturating_add(a.rx)),
                Sort::Wait => b.wait_ns.cmp(&a.wait_ns),
                Sort::Spin => b.spin_percent.unwrap_or(-1.0).total_cmp(&a.spin_percent.unwrap_or(-1.0)),
                Sort::Drops => b.drops.cmp(&a.drops),
                Sort::Pid => std::cmp::Ordering::Equal,
                Sort::Path => (&a.path, &a.reason).cmp(&(&b.path, &b.reason)),
            };
            let order = order.then_with(|| (a.pid, a.fd).cmp(&(b.pid, b.fd)));
            if reverse { order.reverse() } else { order }
        });
    }
}

/// Whether a word of the filter stands in what a row says; each must.
pub fn matches(row: &Row, filter: &str) -> bool {
    let none = String::new();
    let (local, remote) = (row.local.as_ref().unwrap_or(&none), row.remote.as_ref().unwrap_or(&none));
    let service = row.service.as_ref().unwrap_or(&none);
    let Row { pid, command, protocol, path, reason, .. } = row;
    let text =
        format!("{pid} {command} {protocol} {local} {remote} {path} {service} {reason}").to_lowercase();
    filter.split_whitespace().all(|word| text.contains(&word.to_lowercase()))
}

/// A socket as one process holds it: process, cookie, place, and how often the place was taken, which of UDP sockets is not counted.
type Id = (u32, u64, usize, Option<u32>);

/// Looks again and again.
#[derive(Debug, Default)]
pub struct Sampler {
    before: HashMap<Id, (u64, u64)>,
    spun: HashMap<(u32, u64), u64>,
    at: Option<Duration>,
    ticks_per_us: u64,
    only: Option<Filter>,
}

impl Sampler {
    /// One of the connections that a filter lets through.
    pub fn of(only: Option<Filter>) -> Sampler {
        Sampler { only, ..Sampler::default() }
    }

    /// Looks now, which is `now` on any clock that does not go back.
    ///
    /// # Errors
    /// /proc cannot be listed.
    pub fn look(&mut self, now: Duration) -> std::io::Result<Vec<Row>> {
        let scan = connections::scan()?;
        if self.ticks_per_us == 0 {
            self.ticks_per_us = bypath_sys::clock::ticks_per_us();
        }
        Ok(self.rows(&scan, now))
    }

    fn rows(&mut self, scan: &Scan, now: Duration) -> Vec<Row> {
        let passed = self.at.replace(now).map(|at| now.saturating_sub(at)).filter(|t| !t.is_zero());
        let spins = self.spins(scan, passed);
        let mut seen = HashMap::new();
        let all = scan.connections();
        let shown = all.iter().filter(|c| self.only.as_ref().is_none_or(|filter| c.passes(filter)));
        let mut rows: Vec<_> = shown.map(|c| self.row(c, passed, &spins, &mut seen)).collect();
        let udp = scan.udp();
        let shown = udp.iter().filter(|u| self.only.as_ref().is_none_or(|filter| u.passes(filter)));
        rows.extend(shown.map(|u| self.datagrams(u, passed, &spins, &mut seen)));
        self.before = seen;
        rows
    }

    /// What each process spent spinning, in percent.
    fn spins(&mut self, scan: &Scan, passed: Option<Duration>) -> HashMap<u32, f64> {
        let mut percent = HashMap::new();
        let mut seen = HashMap::new();
        for family in &scan.families {
            for member in &family.members {
                let Some(counters) = family.counters(member) else { continue };
                let id = (member.pid, counters.start_time);
                if let (Some(before), Some(passed)) = (self.spun.get(&id), passed) {
                    let us =
                        counters.spun_ticks.saturating_sub(*before) as f64 / self.ticks_per_us.max(1) as f64;
                    percent.insert(member.pid, us / passed.as_micros().max(1) as f64 * 100.0);
                }
                seen.insert(id, counters.spun_ticks);
            }
        }
        self.spun = seen;
        percent
    }

    /// Bytes in a second since the look before.
    fn rates(&self, id: Id, (tx, rx): (u64, u64), passed: Option<Duration>) -> (u64, u64) {
        let (Some(passed), Some((tx_before, rx_before))) = (passed, self.before.get(&id)) else {
            return (0, 0);
        };
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / passed.as_secs_f64()) as u64;
        (rate(tx, *tx_before), rate(rx, *rx_before))
    }

    fn datagrams(
        &self,
        u: &Udp,
        passed: Option<Duration>,
        spins: &HashMap<u32, f64>,
        seen: &mut HashMap<Id, (u64, u64)>,
    ) -> Row {
        let s = u.socket;
        let tx = s.tx.ring_bytes.saturating_add(s.tx.kernel_bytes);
        let rx = s.rx.ring_bytes.saturating_add(s.rx.kernel_bytes);
        let id = (u.process.pid, s.cookie.unwrap_or(0), s.number, None);
        seen.insert(id, (tx, rx));
        let (tx_rate, rx_rate) = self.rates(id, (tx, rx), passed);
        Row {
            pid: u.process.pid,
            command: u.process.command.clone(),
            stopped: connections::is_stopped(u.process.pid),
            protocol: "udp",
            fd: s.fd,
            local: s.local.map(|a| a.to_string()),
            remote: s.remote.map(|a| a.to_string()),
            path: u.path_code(),
            reason: u.reason_code(),
            service: s.service.clone(),
            tx_rate,
            rx_rate,
            tx,
            rx,
            waiting: None,
            wait_ns: None,
            spin_percent: spins.get(&u.process.pid).copied(),
            drops: u.lost(),
        }
    }

    fn row(
        &self,
        c: &Connection,
        passed: Option<Duration>,
        spins: &HashMap<u32, f64>,
        seen: &mut HashMap<Id, (u64, u64)>,
    ) -> Row {
        let b = c.bytes();
        let (tx, rx) = (b.sent(), b.received());
        let id = (c.process.pid, c.end.cookie.unwrap_or(0), c.end.number, Some(c.end.generation));
        seen.insert(id, (tx, rx));
        let (tx_rate, rx_rate) = self.rates(id, (tx, rx), passed);
        Row {
            pid: c.process.pid,
            command: c.process.command.clone(),
            stopped: connections::is_stopped(c.process.pid),
            protocol: "tcp",
            fd: c.end.fd,
            local: c.end.local.map(|a| a.to_string()),
            remote: c.end.remote.map(|a| a.to_string()),
            path: c.path_code(),
            reason: c.reason_code(),
            service: c.end.service.clone(),
            tx_rate,
            rx_rate,
            tx,
            rx,
            waiting: c.outgoing_fill,
            wait_ns: wait_ns(c.outgoing_fill, c.end.outgoing.path, tx_rate),
            spin_percent: spins.get(&c.process.pid).copied(),
            drops: 0,
        }
    }
}

/// How long what waits in a ring takes to be read, at the rate at which octets are sent; `None`: it does not wait there, or nothing is sent.
fn wait_ns(fill: Option<u64>, path: Path, rate: u64) -> Option<u64> {
    let fill = fill.filter(|_| path == Path::Ring && rate > 0)?;
    Some((fill as f64 / rate as f64 * 1e9) as u64)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn what_waits_is_read_at_the_rate_at_which_it_is_sent() {
        assert_eq!(wait_ns(Some(1000), Path::Ring, 1_000_000), Some(1_000_000));
        assert_eq!(wait_ns(Some(0), Path::Ring, 5), Some(0));
        for (fill, path, rate) in
            [(Some(1000), Path::Ring, 0), (Some(1000), Path::Kernel, 5), (None, Path::Ring, 5)]
        {
            assert_eq!(wait_ns(fill, path, rate), None);
        }
    }

    pub fn row(pid: u32, command: &str, rate: u64, path: &str) -> Row {
        Row {
            pid,
            command: command.to_owned(),
            protocol: "tcp",
            fd: 7,
            local: Some("127.0.0.1:6379".to_owned()),
            remote: Some(format!("127.0.0.1:{}", 40000 + pid)),
            path: path.to_owned(),
            reason: path.to_owned(),
            tx_rate: rate,
            tx: 10 * u64::from(pid),
            ..Row::default()
        }
    }

    fn order(sort: Sort, reverse: bool) -> Vec<u32> {
        let mut rows = vec![row(1, "a", 5, "ring"), row(2, "b", 50, "kernel"), row(3, "c", 0, "ring")];
        rows[2].wait_ns = Some(9);
        rows[0].spin_percent = Some(30.0);
        rows[1].drops = 3;
        sort.sort(&mut rows, reverse);
        rows.iter().map(|r| r.pid).collect()
    }

    #[test]
    fn each_order_puts_first_what_it_is_named_for() {
        assert_eq!(order(Sort::Rate, false), [2, 1, 3]);
        assert_eq!(order(Sort::Rate, true), [3, 1, 2]);
        assert_eq!(order(Sort::Bytes, false), [3, 2, 1]);
        assert_eq!(order(Sort::Wait, false), [3, 1, 2]);
        assert_eq!(order(Sort::Spin, false), [1, 2, 3]);
        assert_eq!(order(Sort::Drops, false), [2, 1, 3]);
        assert_eq!(order(Sort::Pid, false), [1, 2, 3]);
        assert_eq!(order(Sort::Path, false), [2, 1, 3]);
        assert_eq!(Sort::ALL.iter().fold(Sort::Rate, |s, _| s.next()), Sort::Rate);
    }

    #[test]
    fn every_word_of_a_filter_must_be_there() {
        let row = row(12, "redis-server", 0, "ring");
        assert!(matches(&row, "") && matches(&row, "REDIS :6379") && matches(&row, "12 ring"));
        assert!(!matches(&row, "redis kernel"));
    }
}
