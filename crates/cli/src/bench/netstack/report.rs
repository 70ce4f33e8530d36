//! What is told: rows, what follows from them, the targets.

use super::{Case, Subject, Who};
use crate::bench::machine::Machine;
use crate::bench::raw::tables::Sheet;
use crate::bench::record::{Record, Status};
use crate::bench::section::Section;
use crate::bench::table::{Check, human};

/// The rows that subjects are compared by: a case, its mode, its main metric.
const ROWS: [(Case, Option<&str>, &str); 7] = [
    (Case::Pingpong, Some("spin"), "round_trip_ns"),
    (Case::Pingpong, Some("block"), "round_trip_ns"),
    (Case::BulkSend, None, "bits_per_s"),
    (Case::BulkReceive, None, "bits_per_s"),
    (Case::Churn, None, "connections_per_s"),
    (Case::Redis, None, "requests_per_s"),
    (Case::Idle, None, "idle_cpu_share"),
];
/// Of a service that rests less than this is seen of a core: what rounds to 0.00 %.
const RESTING: f64 = 0.000_05;

fn find<'a>(
    records: &'a [Record],
    case: Case,
    subject: Subject,
    mode: Option<&str>,
    metric: &str,
) -> Option<&'a Record> {
    records.iter().find(|r| {
        let f = &r.figure;
        f.case == case.name() && f.subject == subject.name() && f.mode == mode && f.metric == metric
    })
}

/// What a subject's figure is of the kernel's in the same round: the median of the rounds, the lowest and the highest.
fn ratios(
    records: &[Record],
    case: Case,
    subject: Subject,
    mode: Option<&str>,
    metric: &str,
) -> Option<[f64; 3]> {
    let runs = |subject| Some(&find(records, case, subject, mode, metric)?.run_medians);
    let (own, kernels) = (runs(subject)?, runs(Subject::KernelVeth)?);
    // Where one was given up rounds do not go together.
    if own.len() != kernels.len() {
        return None;
    }
    let mut ratios: Vec<f64> = own.iter().zip(kernels).map(|(own, kernels)| own / kernels).collect();
    ratios.sort_by(f64::total_cmp);
    let (&low, &high) = (ratios.first()?, ratios.last()?);
    let middle = ratios.len() / 2;
    let median = if ratios.len() % 2 == 1 {
        ratios[middle]
    } else {
        f64::midpoint(ratios[middle - 1], ratios[middle])
    };
    Some([median, low, high])
}

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let ratio = |case, subject, mode, metric| Some(ratios(records, case, subject, mode, metric)?[0]);
    let spin = Some("spin");
    let packet = Subject::Packet;
    let mut checks = vec![Check::at_most(
        "pingpong, spin, packet",
        "<= 1.0 x kernel-veth",
        ratio(Case::Pingpong, packet, spin, "round_trip_ns"),
        1.0,
    )];
    for case in [Case::BulkSend, Case::BulkReceive] {
        let what = format!("{}, packet", case.name());
        checks.push(Check::at_least(
            &what,
            ">= 0.5 x kernel-veth",
            ratio(case, packet, None, "bits_per_s"),
            0.5,
        ));
    }
    let redis = ratio(Case::Redis, packet, None, "requests_per_s");
    checks.push(Check::at_least("redis -c50, packet", ">= 0.8 x kernel-veth", redis, 0.8));
    checks.push(Check::at_most(
        "pingpong, spin, in-process",
        "<= 0.7 x kernel-veth",
        ratio(Case::Pingpong, Subject::InProcess, spin, "round_trip_ns"),
        0.7,
    ));
    let idle = find(records, Case::Idle, packet, None, "idle_cpu_share").and_then(|r| r.median);
    let check = Check::at_most("idle, packet", "0 % of a core", idle, RESTING);
    checks.push(check.saying(idle.map(|share| human(share, "cores"))));
    checks
}

/// A figure with its unit, or why there is none.
fn cell(record: Option<&Record>, text: impl Fn(f64) -> String) -> String {
    match record.map(|r| (r.status, r.median)) {
        Some((Status::Ok, Some(median))) => text(median),
        Some((Status::Skipped, _)) => "skipped".to_owned(),
        Some(_) => "failed".to_owned(),
        None => String::new(),
    }
}

fn sheet(records: &[Record]) -> Option<Sheet> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (case, mode, metric) in ROWS {
        let mut group = Vec::new();
        for subject in Subject::ALL {
            let Some(record) = find(records, case, subject, mode, metric) else { continue };
            let say = |v: f64| human(v, record.figure.unit());
            let of = |pick: fn(f64, f64) -> f64| {
                record.run_medians.iter().copied().reduce(pick).map_or_else(String::new, say)
            };
            let compared = subject != Subject::KernelVeth;
            let ratios = compared.then(|| ratios(records, case, subject, mode, metric)).flatten();
            let ratio = |n: usize| ratios.map_or_else(String::new, |r| format!("{:.2}", r[n]));
            let spin = mode.map(|mode| mode == "spin");
            let cpu = |who: Who| {
                let of = |metric| find(records, case, subject, Some(who.mode(spin)), metric);
                // Of a stream for 1,000 octets: fractions of a nanosecond are no reading.
                match of("cpu_ns_per_byte") {
                    Some(bytes) => cell(Some(bytes), |v| format!("{}/kB", human(v * 1000.0, "ns"))),
                    None => cell(of("cpu_ns_per_request"), |v| human(v, "ns")),
                }
            };
            let name = mode.map_or_else(|| case.name().to_owned(), |mode| format!("{} {mode}", case.name()));
            let mut row = vec![name, subject.name().to_owned(), cell(Some(record), say)];
            row.extend([of(f64::min), of(f64::max), ratio(0), ratio(1), ratio(2)]);
            row.extend(Who::ALL.map(cpu));
            group.push(row);
        }
        if !rows.is_empty() && !group.is_empty() {
            rows.push(Vec::new());
        }
        rows.append(&mut group);
    }
    let heading = [
        "CASE",
        "SUBJECT",
        "FIGURE",
        "RUNS FROM",
        "TO",
        "x KERNEL",
        "FROM",
        "TO",
        "CPU PROGRAM",
        "SERVICE",
        "PEER",
    ];
    (!rows.is_empty()).then(|| Sheet {
        title: "Netstack: programs on the service, beside the kernel's TCP".to_owned(),
        heading: heading.map(str::to_owned).into(),
        texts: 2,
        rows,
        note: "Medians of the rounds. x KERNEL: of kernel-veth's figure in the same round, the median, the lowest and the highest; of \
               round trips less is better, of all else more. CPU is for a round trip, 1,000 octets, a connection, a request. MTU \
               1500, super-packets allowed where the link takes them, cubic at the kernel's ends; what counts is what arrived.",
    })
}

fn conclusions(machine: &Machine) -> Vec<String> {
    let Some([a, b]) = machine.pinned else { return Vec::new() };
    vec![format!(
        "The program has core {a}, the peer core {b}, and the service may use both: three processes on two cores."
    )]
}

/// All of it.
pub fn section<'a>(machine: &'a Machine, records: &'a [Record]) -> Section<'a> {
    Section {
        name: "netstack",
        title: "The netstack service",
        about: "<p>Unmodified programs on our own TCP/IP, which a service runs for them, to a program of the kernel's in another \
                network namespace; beside it the same programs on the kernel's TCP.</p>\n",
        machine,
        records,
        sheets: sheet(records).into_iter().collect(),
        conclusions: conclusions(machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::{Figure, Sample};

    fn record(subject: &'static str, runs: &[f64]) -> Record {
        let figure = Figure {
            bench: "netstack",
            case: "bulk-send".into(),
            subject,
            link: None,
            mode: None,
            size: None,
            burst: None,
            profile: None,
            cc: None,
            metric: "bits_per_s",
        };
        Record::new(figure, &runs.iter().map(|v| Sample::Value(*v)).collect::<Vec<_>>(), None)
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let of = |own: &[f64]| {
            let records = [record("kernel-veth", &[10.0, 100.0, 20.0]), record("packet", own)];
            ratios(&records, Case::BulkSend, Subject::Packet, None, "bits_per_s")
        };
        assert_eq!(of(&[5.0, 80.0, 12.0]), Some([0.6, 0.5, 0.8]));
        assert_eq!(of(&[5.0, 80.0]), None);
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert!(check(&[]).iter().all(|check| check.measured.is_none() && !check.met));
        let met = check(&[record("kernel-veth", &[10.0]), record("packet", &[5.0])]);
        assert_eq!(met.iter().filter(|check| check.met).count(), 1);
    }
}
