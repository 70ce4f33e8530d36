//! `bypath metrics`: the counters of all programs under Bypath that can be read, as text for Prometheus.
//!
//! They are read from outside, as by `bypath ss`: no program does anything for it.

mod names;
mod text;

use crate::connections::{self, Connection, Member, Scan};
use crate::output::{self, Failure, Outcome};
use crate::scrape::{self, Format};
use bypath_shm::arena::Geometry;
use bypath_shm::reason::Reason;
use bypath_shm::stats::{Bytes, StatsSnapshot};
use bypath_shm::view::{self, DatagramCounts};
use names::{Label, Names};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Instant;
use text::{Group, Value, text_of};

/// Arguments of `bypath metrics`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath metrics                      print them once\n  \
    bypath metrics --listen 9105        serve them at http://127.0.0.1:9105/metrics\n  \
    bypath metrics | promtool check metrics\n\n\
    Counters are sums over processes that run; with --listen also over those that have ended since (but for what they\n\
    did after they were last looked at). Processes whose counters are in a file (bypath run --stats) are counted as\n\
    bypath_uncounted_processes, and missing in the sums. Labels: the user's number, so that what his programs say is in no\n\
    number of others; and the first 64 names of programs of root and the own user, 16 of each other one (1024 of all of these),\n\
    then \"other\". Other users who run nothing any more are forgotten, those who went first before others: their\n\
    counters begin anew. What sockets of a netstack service do not move by rings has path=\"netstack:pair\": their descriptors, pairs of AF_UNIX sockets.\n\n\
    Exit status: 0; 1 if the address is not to be had; 2 for wrong usage.")]
pub struct Args {
    /// Serve them by HTTP at /metrics: a port, on 127.0.0.1, or ADDRESS:PORT; port 0 is any
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = scrape::place)]
    listen: Option<SocketAddr>,
}

/// UDP sockets of each other user, and of all of them together, that a look did not show and that are not taken for closed: those of a
/// process that lives.
const UNSEEN_OF_USER: usize = 1 << 14;
const UNSEEN_OF_USERS: usize = 1 << 16;
/// The path of what sockets of netstack services do not move by rings.
const PAIR: &str = "netstack:pair";

/// Prints or serves.
pub fn run(args: Args) -> Outcome {
    let mut ledger = Ledger::default();
    let Some(at) = args.listen else {
        let text = ledger.collect().map_err(|why| Failure::new(1, why))?;
        output::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let refused = |e| Failure::new(1, format_args!("--listen {at}: {e}; give another port, or 0 for any"));
    let listener = TcpListener::bind(at).map_err(refused)?;
    let at = listener.local_addr().map_err(refused)?;
    output::print(&format!("http://{at}/metrics\n"))?;
    scrape::serve(&listener, Format::Plain, || ledger.collect())
}

/// What a process counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    connections: u64,
    upgraded: u64,
    bytes: Bytes,
    spun_ticks: u64,
    recalled: Vec<u64>,
    not_upgraded: Vec<u64>,
    /// UDP.
    datagrams: Datagrams,
}

/// What UDP sockets count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Datagrams {
    tx: DatagramCounts,
    rx: DatagramCounts,
    /// Datagrams and bytes that went by the pairs that sockets of netstack services are, sent and received.
    by_pair: [(u64, u64); 2],
}

impl Datagrams {
    /// Of a socket; `pair`: it is a netstack service's.
    fn of(tx: DatagramCounts, rx: DatagramCounts, pair: bool) -> Datagrams {
        if !pair {
            return Datagrams { tx, rx, by_pair: Default::default() };
        }
        let by_pair = [tx, rx].map(|way| (way.kernel, way.kernel_bytes));
        let [tx, rx] = [tx, rx].map(|way| DatagramCounts { kernel: 0, kernel_bytes: 0, ..way });
        Datagrams { tx, rx, by_pair }
    }

    fn add(&mut self, more: &Datagrams) {
        for (a, b) in [(&mut self.tx, more.tx), (&mut self.rx, more.rx)] {
            for (a, b) in [
                (&mut a.ring, b.ring),
                (&mut a.ring_bytes, b.ring_bytes),
                (&mut a.kernel, b.kernel),
                (&mut a.kernel_bytes, b.kernel_bytes),
                (&mut a.lost, b.lost),
            ] {
                *a = a.saturating_add(b);
            }
        }
        for (a, b) in self.by_pair.iter_mut().zip(more.by_pair) {
            *a = (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        }
    }
}

impl Counts {
    fn of(s: StatsSnapshot) -> Counts {
        let StatsSnapshot { connections, upgraded, bytes, spun_ticks, recalled, not_upgraded, .. } = s;
        let datagrams = Datagrams::default();
        Counts { connections, upgraded, bytes, spun_ticks, recalled, not_upgraded, datagrams }
    }

    fn add(&mut self, more: &Counts) {
        let add = |a: &mut u64, b: u64| *a = a.saturating_add(b);
        add(&mut self.connections, more.connections);
        add(&mut self.upgraded, more.upgraded);
        add(&mut self.spun_ticks, more.spun_ticks);
        add(&mut self.bytes.ring_tx, more.bytes.ring_tx);
        add(&mut self.bytes.ring_rx, more.bytes.ring_rx);
        add(&mut self.bytes.kernel_tx, more.bytes.kernel_tx);
        add(&mut self.bytes.kernel_rx, more.bytes.kernel_rx);
        add(&mut self.bytes.pair_tx, more.bytes.pair_tx);
        add(&mut self.bytes.pair_rx, more.bytes.pair_rx);
        self.datagrams.add(&more.datagrams);
        let lists = [(&mut self.recalled, &more.recalled), (&mut self.not_upgraded, &more.not_upgraded)];
        for (list, more) in lists {
            list.resize(list.len().max(more.len()), 0);
            list.iter_mut().zip(more).for_each(|(a, b)| add(a, *b));
        }
    }

    /// Whether these cannot be later ones of the same program image: another one has begun to count.
    fn is_behind(&self, before: &Counts) -> bool {
        self.connections < before.connections || self.bytes.sent() < before.bytes.sent()
    }
}

/// A number for each user.
type OfUsers = BTreeMap<u32, u64>;
/// A process: its id and start time.
type Id = (u32, u64);
/// A UDP socket: its process, its place there, and the kernel's number.
type Socket = (Id, usize, u64);

/// What was counted so far, also by processes that have ended: so that no sum goes back.
#[derive(Debug, Default)]
struct Ledger {
    alive: HashMap<Id, (Label, Counts)>,
    /// Open UDP sockets.
    open: HashMap<Socket, (Label, Datagrams)>,
    gone: BTreeMap<Label, Counts>,
    names: Names,
    ticks_per_us: u64,
}

fn is_alive(&(pid, start_time): &Id) -> bool {
    connections::is(pid, start_time)
}

impl Ledger {
    /// Looks at every process and writes the text.
    fn collect(&mut self) -> Result<String, String> {
        let began = Instant::now();
        let scan = connections::scan().map_err(|e| format!("cannot list processes in /proc: {e}"))?;
        let mut uncounted = BTreeMap::new();
        let mut seen = Vec::new();
        let mut shown = HashMap::new();
        for (family, member) in scan.families.iter().flat_map(|f| f.members.iter().map(move |m| (f, m))) {
            let (id, label) = ((member.pid, member.start_time), self.label(member));
            match family.counters(member) {
                Some(s) => seen.push((id, label.clone(), Counts::of(s.clone()))),
                None => *uncounted.entry(label.user).or_default() += 1,
            }
            shown.insert(member.pid, (id, label));
        }
        self.take(seen, is_alive);
        let udp = scan.udp();
        let mut udp_sockets = BTreeMap::new();
        for user in udp.iter().filter_map(|u| Some(shown.get(&u.process.pid)?.1.user)) {
            *udp_sockets.entry(user).or_default() += 1;
        }
        let sockets = udp.iter().filter_map(|u| {
            let (s, (id, label)) = (u.socket, shown.get(&u.process.pid)?);
            let socket = (*id, s.number, s.cookie.unwrap_or(0));
            let rx = DatagramCounts { lost: s.rx.lost.saturating_add(u.dropped), ..s.rx };
            Some((socket, label.clone(), Datagrams::of(s.tx, rx, s.service.is_some())))
        });
        let looked_at: HashSet<Id> = shown.values().map(|(id, _)| *id).collect();
        self.take_datagrams(sockets, |id| is_alive(id) && !looked_at.contains(id));
        self.forget_who_is_gone();
        if self.ticks_per_us == 0 {
            self.ticks_per_us = bypath_sys::clock::ticks_per_us();
        }
        let mut groups = self.counters();
        groups.extend(self.gauges(&scan, udp_sockets, uncounted));
        let took = Value::Real(began.elapsed().as_secs_f64());
        groups.push(
            Group::gauge("scan_duration_seconds", "How long it took to look at every process").with([], took),
        );
        text_of(groups).map_err(|e| e.to_string())
    }

    /// Takes note of what processes count now. Who was not seen and is still there has not ended: this look did not show him.
    fn take(&mut self, seen: Vec<(Id, Label, Counts)>, is_there: impl Fn(&Id) -> bool) {
        let mut before = std::mem::take(&mut self.alive);
        for (id, label, counts) in seen {
            if let Some((label, earlier)) = before.remove(&id)
                && counts.is_behind(&earlier)
            {
                self.gone.entry(label).or_default().add(&earlier);
            }
            self.alive.insert(id, (label, counts));
        }
        for (id, (label, counts)) in before {
            if is_there(&id) {
                self.alive.insert(id, (label, counts));
            } else {
                self.gone.entry(label).or_default().add(&counts);
            }
        }
    }

    /// Takes note of what open UDP sockets count now; what others counted that are closed stays. `is_unseen`: this look did not show
    /// the process, which is still there. It is asked once of each.
    fn take_datagrams(
        &mut self,
        seen: impl Iterator<Item = (Socket, Label, Datagrams)>,
        is_unseen: impl Fn(&Id) -> bool,
    ) {
        let mut before = std::mem::take(&mut self.open);
        for (socket, label, mut counts) in seen {
            // What the kernel has dropped is not known at every look.
            let earlier = before.remove(&socket).map_or(0, |(_, earlier)| earlier.rx.lost);
            counts.rx.lost = counts.rx.lost.max(earlier);
            self.open.insert(socket, (label, counts));
        }
        let mut unseen: HashMap<Id, bool> = HashMap::new();
        let (mut of_user, mut of_users) = (HashMap::<u32, usize>::new(), 0);
        for (socket, (label, counts)) in before {
            let is_other = !connections::is_trusted(label.user);
            let of_user = of_user.entry(label.user).or_default();
            let fits = !is_other || *of_user < UNSEEN_OF_USER && of_users < UNSEEN_OF_USERS;
            if fits && *unseen.entry(socket.0).or_insert_with(|| is_unseen(&socket.0)) {
                *of_user += 1;
                of_users += usize::from(is_other);
                self.open.insert(socket, (label, counts));
            } else {
                self.gone.entry(label).or_default().datagrams.add(&counts);
            }
        }
    }

    /// The label of a program.
    fn label(&mut self, member: &Member) -> Label {
        let before = self.alive.get(&(member.pid, member.start_time)).map(|(label, _)| label);
        self.names.label(member.user, output::printable(&member.command), before)
    }

    /// Other users of whom nothing is there any more are remembered in bounds; what is counted of them later begins anew.
    fn forget_who_is_gone(&mut self) {
        let there = self.alive.values().map(|(label, _)| label.user);
        let there = there.chain(self.open.values().map(|(label, _)| label.user));
        let forgotten = self.names.end_look(there);
        self.gone.retain(|label, _| !forgotten.contains(&label.user));
    }

    fn counters(&self) -> Vec<Group> {
        let mut sums = self.gone.clone();
        for (name, counts) in self.alive.values() {
            sums.entry(name.clone()).or_default().add(counts);
        }
        for (name, counts) in self.open.values() {
            sums.entry(name.clone()).or_default().datagrams.add(counts);
        }
        let mut datagrams =
            Group::counter("datagrams", "UDP datagrams that programs sent (tx) and received (rx), by path");
        let mut datagram_bytes = Group::counter("datagram_bytes", "Bytes of these");
        let mut lost = Group::counter(
            "datagrams_lost",
            "UDP datagrams dropped for want of room: at mailboxes of receivers (tx), at the program's own and in its sockets' queues in the kernel (rx)",
        );
        let mut opened = Group::counter("connections", "TCP connections that were used for data");
        let mut upgraded =
            Group::counter("connections_upgraded", "Of these, those that used shared memory at some time");
        let mut bytes = Group::counter("bytes", "Bytes that programs sent (tx) and received (rx), by path");
        let mut spun =
            Group::counter("spin_seconds", "Processor time spent spinning for the other end of a ring");
        let mut all: BTreeMap<u32, Counts> = BTreeMap::new();
        for (label, c) in &sums {
            let (user, command) = (|| label.user(), || label.command());
            opened = opened.with([user(), command()], Value::Whole(c.connections));
            upgraded = upgraded.with([user(), command()], Value::Whole(c.upgraded));
            let b = c.bytes;
            for (path, direction, n) in [
                ("ring", "tx", b.ring_tx),
                ("ring", "rx", b.ring_rx),
                ("kernel", "tx", b.kernel_tx),
                ("kernel", "rx", b.kernel_rx),
                (PAIR, "tx", b.pair_tx),
                (PAIR, "rx", b.pair_rx),
            ] {
                let labels =
                    [user(), command(), ("path", path.to_owned()), ("direction", direction.to_owned())];
                bytes = bytes.with(labels, Value::Whole(n));
            }
            let [by_pair_tx, by_pair_rx] = c.datagrams.by_pair;
            for (direction, d, by_pair) in
                [("tx", c.datagrams.tx, by_pair_tx), ("rx", c.datagrams.rx, by_pair_rx)]
            {
                let of = |path: &str| {
                    [user(), command(), ("path", path.to_owned()), ("direction", direction.to_owned())]
                };
                datagrams = datagrams.with(of("ring"), Value::Whole(d.ring));
                datagrams = datagrams.with(of("kernel"), Value::Whole(d.kernel));
                datagram_bytes = datagram_bytes.with(of("ring"), Value::Whole(d.ring_bytes));
                datagram_bytes = datagram_bytes.with(of("kernel"), Value::Whole(d.kernel_bytes));
                datagrams = datagrams.with(of(PAIR), Value::Whole(by_pair.0));
                datagram_bytes = datagram_bytes.with(of(PAIR), Value::Whole(by_pair.1));
                lost =
                    lost.with([user(), command(), ("direction", direction.to_owned())], Value::Whole(d.lost));
            }
            let seconds = c.spun_ticks as f64 / self.ticks_per_us.max(1) as f64 / 1e6;
            spun = spun.with([user(), command()], Value::Real(seconds));
            all.entry(label.user).or_default().add(c);
        }
        let mut groups = vec![opened, upgraded, bytes, spun, datagrams, datagram_bytes, lost];
        type List = fn(&Counts) -> &Vec<u64>;
        let lists: [(_, _, List); 2] = [
            ("recalls", "Connections that were taken back to the kernel, by reason", |c| &c.recalled),
            (
                "connections_not_upgraded",
                "Connections that ended without ever using shared memory, by reason",
                |c| &c.not_upgraded,
            ),
        ];
        for (name, help, list) in lists {
            let mut group = Group::counter(name, help);
            for (user, counts) in &all {
                for (code, n) in super::stats::by_reason(list(counts)) {
                    let labels = [("user", user.to_string()), ("reason", code.to_owned())];
                    group = group.with(labels, Value::Whole(n));
                }
            }
            groups.push(group);
        }
        groups
    }

    fn gauges(&mut self, scan: &Scan, udp: OfUsers, uncounted: OfUsers) -> Vec<Group> {
        let mut processes: BTreeMap<Label, u64> = BTreeMap::new();
        for member in scan.families.iter().flat_map(|f| &f.members) {
            *processes.entry(self.label(member)).or_default() += 1;
        }
        let mut directions: BTreeMap<(u32, &str, String, &str), u64> = BTreeMap::new();
        let [mut open, mut rings, mut waiting] = [const { OfUsers::new() }; 3];
        // A socket that several processes hold is one socket.
        for c in scan.connections().iter().filter(|c| first_of_holders(c)) {
            let user = self.label(c.process).user;
            *open.entry(user).or_default() += 1;
            for (direction, d) in [("tx", c.end.outgoing), ("rx", c.end.incoming)] {
                let reason = d.reason.map_or("unknown", Reason::code);
                let service = c.end.service.as_deref();
                let word = connections::path_word(service, d.path);
                let path = if service.is_some() { format!("netstack:{word}") } else { word.to_owned() };
                *directions.entry((user, direction, path, reason)).or_default() += 1;
            }
            let most = u64::from(Geometry::MAX_RING);
            let ring = if c.end.outgoing.path == view::Path::Ring { c.end.ring_size } else { None };
            for (sums, n) in [(&mut rings, ring.map(u64::from)), (&mut waiting, c.outgoing_fill)] {
                let sum = sums.entry(user).or_default();
                *sum = sum.saturating_add(n.unwrap_or(0).min(most));
            }
        }
        let mut by_command = Group::gauge("processes", "Processes that run under Bypath");
        for (label, n) in processes {
            by_command = by_command.with([label.user(), label.command()], Value::Whole(n));
        }
        let mut by_path =
            Group::gauge("socket_directions", "Directions of open sockets, by path and its reason");
        for ((user, direction, path, reason), n) in directions {
            let user = user.to_string();
            let labels = [("user", &*user), ("direction", direction), ("path", &path), ("reason", reason)];
            by_path = by_path.with(labels.map(|(k, v)| (k, v.to_owned())), Value::Whole(n));
        }
        let each = |name, help, mut sums: OfUsers| {
            // Who has none is told so, not nothing.
            sums.entry(bypath_sys::process::euid()).or_default();
            sums.into_iter().fold(Group::gauge(name, help), |group, (user, n)| {
                group.with([("user", user.to_string())], Value::Whole(n))
            })
        };
        let unreadable = "Processes of other users, which cannot be looked at";
        vec![
            by_command,
            by_path,
            each("sockets", "Open sockets of TCP connections that Bypath follows", open),
            each("udp_sockets", "Open UDP sockets that were used", udp),
            each("ring_capacity_bytes", "Size of the rings in use", rings),
            each("ring_waiting_bytes", "Bytes in rings that were not read yet", waiting),
            each("uncounted_processes", "Processes whose counters are in a file, and not here", uncounted),
            Group::gauge("unreadable_processes", unreadable).with([], Value::Whole(scan.unreadable as u64)),
        ]
    }
}

/// Whether `c` stands for its socket: of the processes that hold it the one with the lowest number.
fn first_of_holders(c: &Connection) -> bool {
    c.family.holders(c.end).map(|m| m.pid).min() == Some(c.process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(connections: u64, sent: u64) -> Counts {
        let bytes = Bytes { ring_tx: sent, ..Bytes::default() };
        Counts { connections, bytes, recalled: vec![0, 0, 0, 1], ..Counts::default() }
    }

    fn label(command: &str) -> Label {
        Label { user: 0, command: command.to_owned() }
    }

    fn member(user: u32, command: &str) -> Member {
        Member::new(1, user, command)
    }

    fn sum(ledger: &Ledger) -> String {
        text_of(ledger.counters()).unwrap()
    }

    #[test]
    fn sums_do_not_go_back_when_a_process_ends_or_becomes_another_program() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let connections = |ledger: &Ledger| {
            let text = sum(ledger);
            text.lines()
                .filter_map(|l| {
                    l.strip_prefix("bypath_connections_total{")?.rsplit(' ').next()?.parse::<u64>().ok()
                })
                .sum::<u64>()
        };
        ledger
            .take(vec![((1, 5), label("a"), counts(10, 100)), ((2, 5), label("b"), counts(1, 1))], |_| false);
        assert_eq!(connections(&ledger), 11);
        // Counted on; ended.
        ledger.take(vec![((1, 5), label("a"), counts(12, 100))], |_| false);
        assert_eq!(connections(&ledger), 13);
        // Executed another program; the number of the other came to be used again.
        let now = vec![((1, 5), label("c"), counts(1, 0)), ((2, 9), label("b"), counts(3, 0))];
        ledger.take(now, |_| false);
        assert_eq!(connections(&ledger), 17);
        // A look that shows nobody ends nobody: who is seen again is not counted twice.
        ledger.take(vec![], |_| true);
        assert_eq!(connections(&ledger), 17);
        let now = vec![((1, 5), label("c"), counts(1, 0)), ((2, 9), label("b"), counts(3, 0))];
        ledger.take(now, |_| true);
        assert_eq!(connections(&ledger), 17);
        ledger.take(vec![], |_| false);
        assert_eq!((connections(&ledger), ledger.alive.len()), (17, 0));
    }

    #[test]
    fn datagrams_of_sockets_that_were_closed_are_not_forgotten() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let sent = |ring: u64| {
            let tx = DatagramCounts { ring, lost: 1, ..DatagramCounts::default() };
            Datagrams { tx, ..Datagrams::default() }
        };
        let all = |ledger: &Ledger| {
            let groups = ledger.counters();
            let values = groups.iter().filter(|g| g.name.starts_with("datagrams")).flat_map(|g| &g.values);
            values.map(|(_, value)| if let Value::Whole(n) = value { *n } else { 0 }).sum::<u64>()
        };
        let id = (1, 5);
        let two = [((id, 0, 7), label("a"), sent(5)), ((id, 1, 8), label("a"), sent(10))];
        ledger.take_datagrams(two.into_iter(), |_| false);
        assert_eq!(all(&ledger), 17);
        // One is closed, and its place is another one's.
        let two = || [((id, 0, 9), label("a"), sent(1)), ((id, 1, 8), label("a"), sent(11))].into_iter();
        ledger.take_datagrams(two(), |_| false);
        assert_eq!(all(&ledger), 20);
        ledger.take_datagrams([].into_iter(), |_| true);
        ledger.take_datagrams(two(), |_| true);
        assert_eq!(all(&ledger), 20);
        let dropped = |lost: u64| {
            let rx = DatagramCounts { lost, ..DatagramCounts::default() };
            [((id, 1, 8), label("a"), Datagrams { rx, ..sent(11) }), ((id, 0, 9), label("a"), sent(1))]
        };
        ledger.take_datagrams(dropped(7).into_iter(), |_| false);
        ledger.take_datagrams(dropped(0).into_iter(), |_| false);
        assert_eq!(all(&ledger), 27);
        ledger.take_datagrams([].into_iter(), |_| false);
        assert_eq!((all(&ledger), ledger.open.len()), (27, 0));
    }

    #[test]
    fn sockets_of_others_that_are_not_seen_are_kept_in_bounds() {
        const PROCESSES: u32 = 100;
        const SOCKETS: u32 = 2000;
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let stranger = bypath_sys::process::euid() + 1000;
        let seen = |user: u32, look: u32, n: u32| {
            let socket = ((look * PROCESSES + n % PROCESSES + 1, 1), (n / PROCESSES) as usize, n.into());
            let tx = DatagramCounts { ring: 1, ..DatagramCounts::default() };
            let label = Label { user, command: "talker".to_owned() };
            (socket, label, Datagrams { tx, ..Datagrams::default() })
        };
        ledger.take_datagrams((0..SOCKETS * 10).map(|n| seen(0, 1000, n)), |_| true);
        for look in 0..10 {
            let asked = std::cell::Cell::new(0);
            let ask = |_: &Id| asked.replace(asked.get() + 1) < u32::MAX;
            ledger.take_datagrams((0..SOCKETS * 10).map(|n| seen(stranger, look, n)), ask);
            // Of each process once.
            assert!(asked.get() <= (look + 1) * PROCESSES, "{}", asked.get());
        }
        let count = |ledger: &Ledger, user| ledger.open.values().filter(|(l, _)| l.user == user).count();
        ledger.take_datagrams([].into_iter(), |_| true);
        assert_eq!(count(&ledger, stranger), UNSEEN_OF_USER);
        // What root has is kept, and nothing is forgotten of what anybody had.
        assert_eq!(count(&ledger, 0), SOCKETS as usize * 10);
        let of = |user| {
            format!(
                "bypath_datagrams_total{{user=\"{user}\",command=\"talker\",path=\"ring\",direction=\"tx\"}}"
            )
        };
        let text = sum(&ledger);
        assert!(text.contains(&format!("{} {}\n", of(stranger), SOCKETS * 100)), "{text}");
        assert!(text.contains(&format!("{} {}\n", of(0), SOCKETS * 10)), "{text}");
        // Many users share what is kept of all of them.
        for n in 0..8 {
            ledger.take_datagrams((0..SOCKETS * 10).map(|of| seen(stranger + 1 + n, 20 + n, of)), |_| true);
        }
        ledger.take_datagrams([].into_iter(), |_| true);
        assert_eq!(ledger.open.len(), SOCKETS as usize * 10 + UNSEEN_OF_USERS);
    }

    #[test]
    fn programs_beyond_the_most_share_a_label() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        for n in 0..1000 {
            let label = ledger.label(&member(0, &format!("program{n}")));
            ledger.take(vec![((n, 1), label, counts(1, 1))], |_| false);
        }
        let text = sum(&ledger);
        let lines: Vec<_> = text.lines().filter(|l| l.starts_with("bypath_connections_total{")).collect();
        assert_eq!(lines.len(), names::OF_TRUSTED + 1);
        assert!(lines.contains(&"bypath_connections_total{user=\"0\",command=\"other\"} 936"), "{text}");
    }

    #[test]
    fn names_of_others_neither_push_out_honest_ones_nor_count_as_them() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let stranger = bypath_sys::process::euid() + 1000;
        let seen = |ledger: &mut Ledger, n: u32, user: u32, command: &str, counts: Counts| {
            let label = ledger.label(&member(user, command));
            ledger.take(vec![((n, 1), label, counts)], |_| true);
        };
        for n in 0..5000 {
            seen(&mut ledger, n, stranger + n % 500, &format!("liar{n}"), counts(1, 1));
        }
        seen(&mut ledger, 9999, stranger, "server", counts(u64::MAX, u64::MAX));
        seen(&mut ledger, 10_000, 0, "server", counts(7, 1));
        let text = sum(&ledger);
        assert!(text.contains("bypath_connections_total{user=\"0\",command=\"server\"} 7\n"), "{text}");
        let lines = text.lines().filter(|l| l.starts_with("bypath_connections_total{")).count();
        assert!(lines <= names::OF_USERS + 500 + names::OF_TRUSTED, "{lines}");
    }

    /// Its connections, if it is told of.
    fn connections_of(ledger: &Ledger, user: u32, command: &str) -> Option<u64> {
        let label = Label { user, command: command.to_owned() };
        let alive = ledger.alive.values().filter(|(of, _)| *of == label).map(|(_, counts)| counts);
        alive.chain(ledger.gone.get(&label)).map(|counts| counts.connections).reduce(|a, b| a + b)
    }

    #[test]
    fn users_with_very_many_names_take_none_from_others() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let stranger = bypath_sys::process::euid() + 1000;
        let honest = stranger + 500;
        for n in 0..20 * 40 {
            let label = ledger.label(&member(stranger + n % 20, &format!("liar{n}")));
            ledger.take(vec![((n, 1), label, counts(1, 1))], |_| true);
        }
        let label = ledger.label(&member(honest, "server"));
        ledger.take(vec![((9999, 1), label, counts(7, 1))], |_| true);
        assert_eq!(connections_of(&ledger, honest, "server"), Some(7));
        // With more of them his programs are not told apart, but they are his.
        for n in 0..100 * 16 {
            let label = ledger.label(&member(stranger + 1000 + n % 100, &format!("liar{n}")));
            ledger.take(vec![((10_000 + n, 1), label, counts(1, 1))], |_| true);
        }
        let label = ledger.label(&member(honest + 1, "server"));
        ledger.take(vec![((9998, 1), label, counts(7, 1))], |_| true);
        assert_eq!(connections_of(&ledger, honest + 1, "other"), Some(7));
    }

    #[test]
    fn names_of_who_is_gone_are_given_back_and_who_is_there_loses_nothing() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let stranger = bypath_sys::process::euid() + 1000;
        let (honest, crowd) = (stranger + 500, stranger + 1000);
        let id = |pid: u32| (pid, 1);
        let look = |ledger: &mut Ledger, seen: &[(u32, u32, &str)]| {
            let mut all = Vec::new();
            for &(pid, user, command) in seen {
                let label = ledger.label(&Member::new(pid, user, command));
                all.push((id(pid), label, counts(1, 1)));
            }
            ledger.take(all, |_| false);
            ledger.forget_who_is_gone();
            let told = |user, command| connections_of(ledger, user, command);
            (told(honest, "server"), told(honest, "other"), told(honest + 1, "job"), ledger.gone.len())
        };
        assert_eq!(
            look(&mut ledger, &[(1, honest, "server"), (2, honest + 1, "job")]),
            (Some(1), None, Some(1), 0)
        );
        // Who is gone is remembered.
        assert_eq!(look(&mut ledger, &[(1, honest, "server")]), (Some(1), None, Some(1), 1));
        for n in 0..20 {
            let liars: Vec<_> = (0..16).map(|at| format!("liar{at}")).collect();
            let mut seen: Vec<_> =
                (0..160).map(|at| (100 + at, crowd + n * 10 + at % 10, &*liars[at as usize / 10])).collect();
            seen.push((1, honest, "server"));
            let (server, other, _, gone) = look(&mut ledger, &seen);
            assert_eq!((server, other), (Some(1), None));
            assert!(gone <= names::OF_USERS, "{gone}");
        }
        // What comes now has a name, and it goes on from nothing.
        let now = look(&mut ledger, &[(1, honest, "server"), (3, honest + 1, "job")]);
        assert_eq!((now.0, now.2), (Some(1), Some(1)));
        // Users without number are not remembered for ever.
        for n in 0..1000 {
            let (.., gone) = look(&mut ledger, &[(1, honest, "server"), (5, crowd + n, "once")]);
            assert!(gone <= names::OF_USERS, "{gone}");
        }
        assert!(
            ledger.gone.len() <= names::GONE
                && ledger.names.label(crowd, "new".into(), None).command == "new"
        );
    }

    #[test]
    fn what_was_counted_without_a_name_stays_so() {
        let mut ledger = Ledger { ticks_per_us: 1, ..Ledger::default() };
        let stranger = bypath_sys::process::euid() + 1000;
        for n in 0..16 {
            ledger.label(&member(stranger, &format!("program{n}")));
        }
        let mut late = Member::new(7, stranger, "late");
        for command in ["late", "program3"] {
            command.clone_into(&mut late.command);
            let label = ledger.label(&late);
            ledger.take(vec![((7, 1), label, counts(3, 1))], |_| false);
            assert_eq!(connections_of(&ledger, stranger, "other"), Some(3));
        }
    }
}
