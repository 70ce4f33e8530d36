//! What is told: rows, what follows from them, the targets.

use super::kernel_peer::{Direction, Subject};
use super::{idle, receive, write};
use crate::bench::machine::Machine;
use crate::bench::raw::tables::Sheet;
use crate::bench::record::{Figure, Record, Status};
use crate::bench::section::Section;
use crate::bench::table::{Check, Find, human, ratio};

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let find = Find(records);
    let mut checks = Vec::new();
    for (subject, size, limit) in
        [("checksum", 2048, 100.0), ("offload", 2048, 60.0), ("checksum", 1, 50.0), ("offload", 1, 50.0)]
    {
        let ns = find.median("device-write", subject, "ns_per_op", |f| f.size == Some(size));
        let what = format!("device-write, {subject}, {size} B");
        checks.push(
            Check::at_most(&what, &format!("<= {limit} ns"), ns, limit).saying(ns.map(|ns| human(ns, "ns"))),
        );
    }
    for (metric, unit) in [("allocs_per_op", "allocs/op"), ("bytes_per_op", "B/op")] {
        let most = most(records, metric);
        let check = Check::at_most("device-write, all sizes", &format!("0 {unit}"), most, 0.0);
        checks.push(check.saying(most.map(|n| format!("{n} {unit}"))));
    }
    let ns = |subject| find.median("receive-udp", subject, "ns_per_op", |_| true);
    let quotient = ratio(ns("idle-100000"), ns("idle-1"));
    checks.push(Check::at_most("receive-udp, 100,000 idle sockets", "<= 1.3 x 1 idle socket", quotient, 1.3));
    for (subject, gigabits) in [("mtu-1500", 30.0), ("mtu-65535", 60.0), ("mtu-65535-nosum", 100.0)] {
        let bits = find.median("pair-stream", subject, "bits_per_s", |_| true);
        let (what, target) = (format!("pair-stream, {subject}"), format!(">= {gigabits} Gb/s"));
        let check = Check::at_least(&what, &target, bits, gigabits * 1e9);
        checks.push(check.saying(bits.map(|bits| human(bits, "bit/s"))));
    }
    let ns = find.median("pair-pingpong", "mtu-1500", "round_trip_ns", |_| true);
    let check = Check::at_most("pair-pingpong, 1 B", "<= 1 us", ns, 1000.0);
    checks.push(check.saying(ns.map(|ns| human(ns, "ns"))));
    let rate = find.median("pair-churn", "mtu-1500", "connections_per_s", |_| true);
    let check = Check::at_least("pair-churn", ">= 500 k/s", rate, 500e3);
    checks.push(check.saying(rate.map(|rate| human(rate, "1/s"))));
    for (direction, gigabits) in [(Direction::Send, 18.0), (Direction::Receive, 15.0)] {
        for subject in Subject::ALL.into_iter().filter(|s| *s != Subject::KernelVeth) {
            let bits = find.median(direction.case(), subject.name(), "bits_per_s", |_| true);
            let (what, target) =
                (format!("{}, {}", direction.case(), subject.name()), format!(">= {gigabits} Gb/s"));
            let check = Check::at_least(&what, &target, bits, gigabits * 1e9);
            checks.push(check.saying(bits.map(|bits| human(bits, "bit/s"))));
        }
    }
    let ns = |subject| find.median("receive-tcp", subject, "ns_per_op", |_| true);
    for (subject, many) in [("idle-10000", "10,000"), ("idle-100000", "100,000")] {
        let what = format!("receive-tcp, {many} idle connections");
        let quotient = ratio(ns(subject), ns("idle-1"));
        checks.push(Check::at_most(&what, "<= 1.3 x 1 idle connection", quotient, 1.3));
    }
    let octets = find.median("memory", "idle", "bytes_per_connection", |_| true);
    let check = Check::at_most("memory of an idle connection", "<= 1 KiB", octets, 1024.0);
    checks.push(check.saying(octets.map(|octets| human(octets, "B"))));
    checks
}

/// The greatest figure of a metric; `None` if one was not measured.
fn most(records: &[Record], metric: &str) -> Option<f64> {
    let of = records.iter().filter(|r| r.figure.metric == metric);
    of.map(|r| r.median)
        .try_fold(None, |most: Option<f64>, n| n.map(|n| Some(most.map_or(n, |m| m.max(n)))))?
}

/// A figure with its unit, or why there is none.
fn cell(record: Option<&Record>, text: impl Fn(f64) -> String) -> String {
    match record.map(|r| (r.status, r.median)) {
        Some((Status::Ok, Some(median))) => text(median),
        Some((Status::Skipped, _)) => "skipped".to_owned(),
        Some(_) => "failed".to_owned(),
        None => "-".to_owned(),
    }
}

/// A row in the classic format: name, iterations, ns/op; then the extremes of the runs.
fn row(name: String, time: &Record, stretch: u32) -> Vec<String> {
    let of = |pick: fn(f64, f64) -> f64| time.run_medians.iter().copied().reduce(pick);
    let ns = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.1}"));
    let iterations = time.n.unwrap_or(0) * u64::from(stretch);
    let figure = cell(Some(time), |v| format!("{v:.1} ns/op"));
    vec![name, iterations.to_string(), figure, ns(of(f64::min)), ns(of(f64::max))]
}

fn sheets(records: &[Record]) -> Vec<Sheet> {
    let times = |case: &'static str| {
        records.iter().filter(move |r| r.figure.case == case && r.figure.metric == "ns_per_op")
    };
    let mut rows = Vec::new();
    for subject in write::Subject::ALL.map(write::Subject::name) {
        if !rows.is_empty() {
            rows.push(Vec::new());
        }
        for time in times("device-write").filter(|r| r.figure.subject == subject) {
            let size = time.figure.size.unwrap_or(0);
            let mut cells = row(format!("WritePacket/{subject}/{size}"), time, write::STRETCH);
            let other = |metric| {
                let wanted = Figure { metric, ..time.figure.clone() };
                records.iter().find(|r| r.figure == wanted)
            };
            cells.insert(3, cell(other("bytes_per_op"), |v| format!("{v} B/op")));
            cells.insert(4, cell(other("allocs_per_op"), |v| format!("{v} allocs/op")));
            rows.push(cells);
        }
    }
    let heading = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let mut sheets = Vec::new();
    if !rows.is_empty() {
        sheets.push(Sheet {
            title: "Stack: a UDP write to a device".to_owned(),
            heading: heading(&["NAME", "ITERATIONS", "TIME", "MEMORY", "ALLOCATIONS", "RUNS FROM", "TO"]),
            texts: 1,
            rows,
            note: "Socket, route, neighbour, IPv4, Ethernet header, into a buffer; the last part of the name is the payload in \
                   octets. Time is the median of the runs, each the median of its stretches of 1,000 writes.",
        });
    }
    let rows: Vec<Vec<String>> = times("receive-udp")
        .map(|time| row(format!("ReceiveUDP/{}", time.figure.subject), time, receive::STRETCH))
        .collect();
    if !rows.is_empty() {
        sheets.push(Sheet {
            title: "Stack: a UDP datagram received beside idle sockets".to_owned(),
            heading: heading(&["NAME", "ITERATIONS", "TIME", "RUNS FROM", "TO"]),
            texts: 1,
            rows,
            note: "A frame with 64 octets of payload is handed in, the stack tells which socket became readable, the socket is \
                   read, and every octet compared; so many other sockets are bound.",
        });
    }
    sheets.extend(tcp_sheets(records));
    sheets
}

/// What is said of TCP.
fn tcp_sheets(records: &[Record]) -> Vec<Sheet> {
    let heading = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let mut sheets = Vec::new();
    let names = [
        ("pair-stream", "PairStream"),
        ("pair-pingpong", "PairPingpong"),
        ("pair-churn", "PairChurn"),
        ("memory", "Memory"),
    ];
    let mut rows = Vec::new();
    for (case, name) in names {
        for record in records.iter().filter(|r| r.figure.case == case) {
            let unit = record.figure.unit();
            let say = |v: f64| human(v, unit);
            let of = |pick: fn(f64, f64) -> f64| {
                record.run_medians.iter().copied().reduce(pick).map_or_else(String::new, say)
            };
            let name = format!("{name}/{}", record.figure.subject);
            rows.push(vec![name, cell(Some(record), say), of(f64::min), of(f64::max)]);
        }
    }
    if !rows.is_empty() {
        sheets.push(Sheet {
            title: "Stack: TCP between two stacks".to_owned(),
            heading: heading(&["NAME", "FIGURE", "RUNS FROM", "TO"]),
            texts: 1,
            rows,
            note: "Two stacks in one process, on one core. PairStream: octets that the reader has, \
                   where they lie or copied; PairPingpong: one octet, there and back; PairChurn: connections opened, one octet, closed; Memory: octets that an idle connection's end holds.",
        });
    }
    sheets.extend(kernel_sheet(records));
    let rows: Vec<Vec<String>> = records
        .iter()
        .filter(|r| r.figure.case == "receive-tcp")
        .map(|time| row(format!("ReceiveTCP/{}", time.figure.subject), time, idle::STRETCH))
        .collect();
    if !rows.is_empty() {
        sheets.push(Sheet {
            title: "Stack: a TCP segment received beside idle connections".to_owned(),
            heading: heading(&["NAME", "ITERATIONS", "TIME", "RUNS FROM", "TO"]),
            texts: 1,
            rows,
            note: "A frame with 64 octets of payload is handed in, the stack tells which socket became readable, the socket is \
                   read, every octet compared, and what the stack answers is fetched; so many other connections are open.",
        });
    }
    sheets
}

/// What is said of streams between our stack and the kernel.
fn kernel_sheet(records: &[Record]) -> Option<Sheet> {
    let mut rows = Vec::new();
    for (direction, name) in [(Direction::Send, "KernelPeerSend"), (Direction::Receive, "KernelPeerReceive")]
    {
        for subject in Subject::ALL.map(Subject::name) {
            let of = |metric, mode| {
                records.iter().find(|r| {
                    let f = &r.figure;
                    f.case == direction.case() && f.subject == subject && (f.metric, f.mode) == (metric, mode)
                })
            };
            let Some(bits) = of("bits_per_s", None) else { continue };
            let say = |v: f64| human(v, "bit/s");
            let end = |pick: fn(f64, f64) -> f64| {
                bits.run_medians.iter().copied().reduce(pick).map_or_else(String::new, say)
            };
            let cpu = |mode| cell(of("cpu_s_per_gb", Some(mode)), |v| format!("{v:.3} s/GB"));
            rows.push(vec![
                format!("{name}/{subject}"),
                cell(Some(bits), say),
                end(f64::min),
                end(f64::max),
                cpu("own"),
                cpu("peer"),
            ]);
        }
    }
    let heading = ["NAME", "FIGURE", "RUNS FROM", "TO", "CPU OWN", "CPU PEER"].map(str::to_owned);
    (!rows.is_empty()).then(|| Sheet {
        title: "Stack: TCP between the stack and the kernel".to_owned(),
        heading: heading.into(),
        texts: 1,
        rows,
        note: "One stream at MTU 1500, super-packets allowed, what the receiving application has read; our end (of kernel-veth a \
               socket of the kernel, too) and the kernel's have a core each. CPU is that of each end's thread, with what the \
               kernel does in its system calls.",
    })
}

/// What follows from the figures.
fn conclusions(records: &[Record]) -> Vec<String> {
    let ns = |subject| Find(records).median("receive-udp", subject, "ns_per_op", |_| true);
    let (Some(one), Some(many), Some(most)) = (ns("idle-1"), ns("idle-100000"), ns("idle-1000000")) else {
        return Vec::new();
    };
    vec![format!(
        "Receiving a datagram takes {:.2} times as long beside 100,000 idle sockets as beside one, {:.2} times beside 1,000,000.",
        many / one,
        most / one
    )]
}

/// All of it.
pub fn section<'a>(machine: &'a Machine, records: &'a [Record]) -> Section<'a> {
    Section {
        name: "stack",
        title: "The TCP/IP stack",
        about: "<p>A datagram on its way through the stack, in one process, on one core, without a device: what is measured is \
                the stack alone. And TCP between two such stacks.</p>\n",
        machine,
        records,
        sheets: sheets(records),
        conclusions: conclusions(records),
    }
}
