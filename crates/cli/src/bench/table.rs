//! The results as text: a table with ratios, then the targets.

use super::machine::Machine;
use super::record::{Figure, Record, Status};
use crate::output;
use comfy_table::Cell;
use std::fmt::Write as _;

/// A target and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// The demand, as text.
    pub target: String,
    /// The figure, as text; `None` if it was not measured.
    pub measured: Option<String>,
    /// Whether the target is met.
    pub met: bool,
}

impl Check {
    /// `ratio` must be at most `limit`.
    pub fn at_most(what: &str, target: &str, ratio: Option<f64>, limit: f64) -> Check {
        let measured = ratio.map(|r| format!("{r:.2} x"));
        Check { what: what.into(), target: target.into(), measured, met: ratio.is_some_and(|r| r <= limit) }
    }

    /// `ratio` must be at least `limit`.
    pub fn at_least(what: &str, target: &str, ratio: Option<f64>, limit: f64) -> Check {
        let met = ratio.is_some_and(|r| r >= limit);
        Check { met, ..Check::at_most(what, target, ratio, limit) }
    }

    /// The same with the measured text given.
    pub fn saying(self, text: Option<String>) -> Check {
        Check { measured: text, ..self }
    }
}

/// Records, to be searched.
#[derive(Clone, Copy)]
pub struct Find<'a>(pub &'a [Record]);

impl Find<'_> {
    /// Median of the first measured figure that fits. The main row of a subject comes first.
    pub fn median(
        &self,
        case: &str,
        subject: &str,
        metric: &str,
        fits: impl Fn(&Figure) -> bool,
    ) -> Option<f64> {
        let mut records = self.0.iter().filter(|r| {
            let f = &r.figure;
            f.case == case && f.subject == subject && f.metric == metric && fits(f)
        });
        records.next()?.median
    }
}

/// `a / b`, if both were measured.
pub fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b.filter(|b| *b != 0.0)?)
}

const HEADING: [&str; 14] = [
    "CASE",
    "MODE",
    "SIZE",
    "N",
    "SUBJECT",
    "FIGURE",
    "MEDIAN",
    "RUNS FROM",
    "TO",
    "P99",
    "x KERNEL",
    "x FLOOR",
    "CPU/OP",
    "CPU x KERNEL",
];
/// The columns of numbers, but for sizes.
const NUMBERS: std::ops::RangeFrom<usize> = 6..;

/// Processor time of both sides: for a message, a request, a gigabyte.
const CPU: [&str; 3] = ["cpu_ns_per_op", "cpu_ns_per_request", "cpu_s_per_gb"];

/// The table of all figures.
pub fn figures(machine: &Machine, records: &[Record]) -> String {
    let mut out = format!("{}\n", machine.summary());
    if let Some(ns) = machine.bare_ring_ns {
        let _ = writeln!(out, "bare ring, 14 bytes, one way: {}", human(ns, "ns"));
    }
    let mut table = output::table(&HEADING, &HEADING[NUMBERS]);
    let mut before: Option<&Figure> = None;
    // Processor time stands in a column; what follows from another figure stands in the JSON only.
    let shown = |r: &&Record| {
        let f = &r.figure;
        !CPU.contains(&f.metric) && (f.case != "stream" || f.metric != "bytes_per_s")
    };
    for record in records.iter().filter(shown) {
        let f = &record.figure;
        if before
            .is_some_and(|b| (&b.case, b.mode, b.size) != (&f.case, f.mode, f.size) && f.subject != "floor")
        {
            table.add_row([""; HEADING.len()]);
        }
        before = Some(f);
        table.add_row(row(record, records));
    }
    let _ = write!(out, "\n{}", output::lines(&table));
    out += "x KERNEL: how many times better than kernel TCP, or UDP (2.0 = half the time or twice the rate).\n\
            x FLOOR: this figure divided by the bare ring's.\n\
            CPU/OP: processor time of both sides for a message or request, or (s/GB) for 10^9 bytes; CPU x KERNEL: \
            how many times less.\n";
    notes(records, &mut out);
    out
}

fn row(record: &Record, records: &[Record]) -> Vec<Cell> {
    let f = &record.figure;
    let optional = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
    let mut cells = vec![
        f.case.clone(),
        f.mode.unwrap_or_default().into(),
        optional(f.size),
        optional(f.burst),
        subject(f),
        f.metric.into(),
    ];
    if record.status != Status::Ok {
        cells.push(format!("{:?}", record.status).to_lowercase());
    } else {
        let unit = if f.metric == "loss_ratio" { "%" } else { f.unit() };
        let show_in = |v: Option<f64>, unit| v.map_or_else(String::new, |v| human(v, unit));
        let show = |v: Option<f64>| show_in(v, unit);
        let (low, high) = record
            .run_medians
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
        cells.extend([show(record.median), show(Some(low)), show(Some(high)), show(record.p99)]);
        let better = versus(record, records, kernel(f))
            .map(|r| if f.more_is_better() { r } else { 1.0 / r })
            .filter(|r| r.is_finite());
        cells.push(better.map_or_else(String::new, ratio_text));
        cells.push(versus(record, records, "floor").map_or_else(String::new, ratio_text));
        let same = |r: &&Record| {
            CPU.contains(&r.figure.metric) && Figure { metric: f.metric, ..r.figure.clone() } == *f
        };
        if let Some(cpu) = records.iter().find(same) {
            cells.push(show_in(cpu.median, cpu.figure.unit()));
            let less = versus(cpu, records, kernel(f)).map(|r| 1.0 / r).filter(|r| r.is_finite());
            cells.push(less.map_or_else(String::new, ratio_text));
        }
    }
    cells.into_iter().map(Cell::new).collect()
}

/// The kernel's subject in the same case.
fn kernel(f: &Figure) -> &'static str {
    if f.case.starts_with("udp-") { "kernel-udp" } else { "kernel-tcp" }
}

/// This figure divided by the same figure of another subject.
fn versus(record: &Record, records: &[Record], subject: &str) -> Option<f64> {
    let f = &record.figure;
    // The floor spins beside all modes.
    let fits = |o: &Figure| {
        (o.mode == f.mode || subject == "floor")
            && o.size == f.size
            && o.burst == f.burst
            && (f.case != "foreign-call" || o.link == f.link)
    };
    ratio(record.median, Find(records).median(&f.case, subject, f.metric, fits))
}

fn subject(f: &Figure) -> String {
    match (f.subject, f.link.as_deref()) {
        ("kernel-tcp", _) if f.cc.is_some() => {
            format!("kernel-tcp ({})", f.cc.as_deref().unwrap_or_default())
        }
        ("floor", Some("shm-c")) => "floor (plain C)".into(),
        (_, Some("nobody")) if f.case == "watched" => "nobody looks on".into(),
        (_, Some(link)) if f.case == "watched" => format!("{link} looks on"),
        (subject, Some(link)) if f.case == "foreign-call" => {
            format!("{} {link}", if subject == "bypath" { "bypath" } else { "plain" })
        }
        ("kernel-tcp", _) if f.case == "fork" => "plain".into(),
        (subject, _) => subject.into(),
    }
}

fn notes(records: &[Record], out: &mut String) {
    let mut said: Vec<String> = Vec::new();
    for record in records {
        if let Some(reason) = &record.reason {
            let f = &record.figure;
            let what = match record.status {
                Status::Ok => "note",
                Status::Lossy => "lossy",
                Status::Corrupt => "CORRUPT",
                Status::Skipped => "skipped",
                Status::Failed => "FAILED",
            };
            let size = f.size.map_or_else(String::new, |s| format!(" {s} B"));
            let mode = f.mode.map_or_else(String::new, |m| format!(" {m}"));
            let line = format!("{what}: {}{mode}{size}, {}: {reason}", f.case, subject(f));
            if !said.contains(&line) {
                said.push(line);
            }
        }
    }
    for line in said {
        let _ = writeln!(out, "{line}");
    }
}

/// The targets, each with what was measured; those that were not measured only if all should have been.
pub fn targets(checks: &[Check], everything: bool) -> String {
    let checks: Vec<&Check> = checks.iter().filter(|c| everything || c.measured.is_some()).collect();
    if checks.is_empty() {
        return String::new();
    }
    let mut table = output::table(&["", "TARGET", "MEASURED", ""], &[]);
    for check in &checks {
        let verdict = match (&check.measured, check.met) {
            (None, _) => "-",
            (Some(_), true) => "met",
            (Some(_), false) => "MISSED",
        };
        let measured = check.measured.as_deref().unwrap_or("not measured");
        table.add_row([check.what.as_str(), &check.target, measured, verdict]);
    }
    let count = |met: bool| checks.iter().filter(|c| c.measured.is_some() && c.met == met).count();
    format!("\n{}{} targets met, {} missed\n", output::lines(&table), count(true), count(false))
}

fn ratio_text(r: f64) -> String {
    match r {
        r if r >= 100.0 => format!("{r:.0}"),
        r if r >= 10.0 => format!("{r:.1}"),
        r => format!("{r:.2}"),
    }
}

/// A number with its unit, three digits.
pub fn human(value: f64, unit: &str) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (scale, name) =
            steps.iter().find(|(s, _)| value.abs() >= *s).or(steps.last()).expect("not empty");
        let v = value / scale;
        let digits = match v.abs() {
            a if a >= 100.0 => 0,
            a if a >= 10.0 => 1,
            _ => 2,
        };
        format!("{v:.digits$} {name}")
    };
    match unit {
        "ns" => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
        "1/s" => scaled(&[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")]),
        "B/s" => scaled(&[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]),
        "bit/s" => scaled(&[(1e9, "Gb/s"), (1e6, "Mb/s"), (1.0, "b/s")]),
        "B" => scaled(&[(1024.0 * 1024.0, "MiB"), (1024.0, "KiB"), (1.0, "B")]),
        "cores" | "%" => format!("{:.2} %", value * 100.0),
        _ => scaled(&[(1.0, unit)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(human(80.04, "ns"), "80.0 ns");
        assert_eq!(human(24_211.0, "ns"), "24.2 us");
        assert_eq!(human(15.4e6, "1/s"), "15.4 M/s");
        assert_eq!(human(0.0, "ns"), "0.00 ns");
        assert_eq!(human(-3.0, "ns"), "-3.00 ns");
    }

    #[test]
    fn a_target_that_was_not_measured_is_neither_met_nor_missed() {
        let check = Check::at_most("a", "<= 1 x", None, 1.0);
        assert!(targets(std::slice::from_ref(&check), true).contains("0 targets met, 0 missed"));
        assert_eq!(targets(&[check], false), "");
    }
}
