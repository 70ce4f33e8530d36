//! What is told: tables, the page, the targets.

use super::SIZES;
use super::send::Subject;
use crate::bench::machine::Machine;
use crate::bench::raw::tables::Sheet;
use crate::bench::record::{Figure, Record, Status};
use crate::bench::section::Section;
use crate::bench::table::{Check, Find, human, ratio};

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let find = Find(records);
    let ns = |subject: &str, mode: Option<&str>, size: usize| {
        find.median("send", subject, "ns_per_packet", |f| f.size == Some(size as u64) && f.mode == mode)
    };
    let mut checks = Vec::new();
    for subject in [Subject::Assemble, Subject::Writev] {
        for size in SIZES {
            let (ours, bare) = (ns(subject.name(), None, size), ns(subject.name(), Some("c"), size));
            let quotient = ratio(ours, bare);
            let text = quotient.zip(ours).map(|(q, ns)| format!("{q:.2} x ({})", human(ns, "ns")));
            let what = format!("send, {}, {size} B", subject.name());
            checks.push(Check::at_most(&what, "<= 1.1 x bare C", quotient, 1.1).saying(text));
        }
    }
    let (together, naive) = (ns("super", None, 1024), ns("naive-write", None, 1024));
    checks.push(Check::at_least("send, super, 1024 B", ">= 25 x naive-write", ratio(naive, together), 25.0));
    let text = together.map(|ns| human(ns, "ns"));
    checks.push(Check::at_most("send, super, 1024 B", "<= 70 ns per packet", together, 70.0).saying(text));
    checks
}

fn sizes(records: &[Record]) -> Vec<u64> {
    let mut all: Vec<u64> = records.iter().filter_map(|r| r.figure.size).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn of(records: &[Record], wanted: impl Fn(&Figure) -> bool) -> Option<&Record> {
    records.iter().find(|r| wanted(&r.figure))
}

/// One line for each subject of a case, one column for each size.
fn sheet(
    records: &[Record],
    title: &str,
    note: &'static str,
    metric: &str,
    rows: &[(&'static str, &'static str, Option<&'static str>, &'static str)],
    text: impl Fn(f64) -> String,
) -> Option<Sheet> {
    let sizes = sizes(records);
    let heading =
        std::iter::once("SUBJECT".to_owned()).chain(sizes.iter().map(|s| format!("{s} B"))).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|&(case, subject, mode, name)| {
            let cell = |size: &u64| {
                let record = of(records, |f| {
                    f.case == case
                        && f.subject == subject
                        && f.mode == mode
                        && f.metric == metric
                        && f.size == Some(*size)
                });
                record.map(|r| match (r.status, r.median) {
                    (Status::Ok, Some(median)) => text(median),
                    (Status::Skipped, _) => "skipped".to_owned(),
                    _ => "failed".to_owned(),
                })
            };
            let cells: Vec<Option<String>> = sizes.iter().map(cell).collect();
            cells.iter().any(Option::is_some).then(|| {
                let cells = cells.into_iter().map(|c| c.unwrap_or_else(|| "-".to_owned()));
                std::iter::once(name.to_owned()).chain(cells).collect()
            })
        })
        .collect();
    (!rows.is_empty()).then(|| Sheet { title: title.to_owned(), heading, texts: 1, rows, note })
}

fn sheets(records: &[Record]) -> Vec<Sheet> {
    let ns = |v: f64| format!("{v:.0}");
    let share = |v: f64| format!("{v:.2}");
    let send = [
        ("send", "naive-write", None, "naive-write"),
        ("send", "naive-writev", None, "naive-writev"),
        ("send", "assemble-write", Some("c"), "assemble-write, bare C"),
        ("send", "assemble-write", None, "assemble-write"),
        ("send", "writev", Some("c"), "writev, bare C"),
        ("send", "writev", None, "writev"),
        ("send", "super", None, "super"),
    ];
    let receive = [("receive", "single", None, "single"), ("receive", "super", None, "super")];
    let mut cpu = Vec::new();
    for (case, subject) in Subject::ALL
        .map(|s| ("send", s.name()))
        .into_iter()
        .chain([("receive", "single"), ("receive", "super")])
    {
        for mode in ["sender", "receiver"] {
            let name: &'static str = match (case, mode) {
                ("send", "sender") => "writing",
                ("send", _) => "the socket",
                (_, "sender") => "the socket",
                _ => "reading",
            };
            cpu.push((case, subject, Some(mode), name));
        }
    }
    let burst = Subject::ALL.map(|s| ("burst-20", s.name(), None, s.name()));
    [
        sheet(
            records,
            "TUN: sending, ns per packet",
            "Time inside the sending calls, the kernel's way to the receiving socket included, for datagrams that a kernel's \
             socket received. Naive: buffers of 64 KB zeroed for each packet, one copy more, the checksum word by word. At 32 \
             KB a datagram fills a packet, and super is an ordinary one.",
            "ns_per_packet",
            &send,
            ns,
        ),
        sheet(
            records,
            "TUN: receiving, ns per packet",
            "Time inside the receiving calls for datagrams that a kernel's socket sent: one read for each, or for a super-packet.",
            "ns_per_packet",
            &receive,
            ns,
        ),
        sheet(
            records,
            "TUN: twenty packets, us together",
            "The classic shape: the time of twenty datagrams of one size. The median of all such rounds.",
            "total_us",
            &burst,
            |v| format!("{v:.1}"),
        ),
        cpu_sheet(records, &cpu, share),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cpu_sheet(
    records: &[Record],
    rows: &[(&'static str, &'static str, Option<&'static str>, &'static str)],
    share: impl Fn(f64) -> String,
) -> Option<Sheet> {
    let note = "Share of a processor that the side used while it was measured: 1.00 is all of it, less means that the machine was \
                busy with others; a little more is the reading of the clocks.";
    let mut sheet = sheet(records, "TUN: processor share of both sides", note, "cpu_share", rows, share)?;
    // The name of a row is that of the side; the subject goes before it.
    let there = rows.iter().filter(|&&(case, subject, mode, _)| {
        of(records, |f| f.case == case && f.subject == subject && f.mode == mode && f.metric == "cpu_share")
            .is_some()
    });
    for (row, &(case, subject, _, _)) in sheet.rows.iter_mut().zip(there) {
        row[0] = format!("{case} {subject}: {}", row[0]);
    }
    Some(sheet)
}

/// Why it is as it is, with the figures of this run.
fn explanation(records: &[Record]) -> Vec<String> {
    let find = Find(records);
    let ns = |subject: &str, size: u64| {
        find.median("send", subject, "ns_per_packet", |f| f.size == Some(size) && f.mode.is_none())
    };
    let mut all = Vec::new();
    let Some(size) = sizes(records).first().copied() else { return all };
    if let (Some(assemble), Some(writev), Some(naive), Some(naive_v)) =
        (ns("assemble-write", size), ns("writev", size), ns("naive-write", size), ns("naive-writev", size))
    {
        all.push(format!(
            "writev hardly matters: it spares one copy of the payload, {size} octets in the nearest cache, and adds the \
             kernel's walk over a list. Beside a write of {}, of which nearly all is the kernel's network stack, that is {:+.0} \
             ns. The naive programs differ by {:+.0} ns, and by {:.0} ns from the same calls without their zeroed buffers and \
             word-by-word checksums: what they seem to show about writev is that.",
            human(assemble, "ns"),
            writev - assemble,
            naive_v - naive,
            naive - assemble
        ));
    }
    if let (Some(writev), Some(together)) = (ns("writev", size), ns("super", size)) {
        all.push(format!(
            "What matters is how often the stack is gone through, and who sums. A super-packet goes through it once with up to \
             64 datagrams: {} a packet instead of {}, {:.0} times less. A checksum that is left to the kernel is never \
             computed where the receiver is on this host.",
            human(together, "ns"),
            human(writev, "ns"),
            writev / together
        ));
    }
    all
}

/// All of it.
pub fn section<'a>(machine: &'a Machine, records: &'a [Record]) -> Section<'a> {
    Section {
        name: "tun",
        title: "TUN packets",
        about: "<p>UDP written into a TUN device by hand, and received by an ordinary socket of the kernel, where each datagram \
                is counted and looked at. Beside the library: the same system calls in plain C, and the two classic ways as \
                programs often have them.</p>\n",
        machine,
        records,
        sheets: sheets(records),
        conclusions: explanation(records),
    }
}
