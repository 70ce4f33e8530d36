//! What is told: tables, the page, the targets.

use super::SIZES;
use crate::bench::machine::Machine;
use crate::bench::raw::tables::Sheet;
use crate::bench::record::{Record, Status};
use crate::bench::section::Section;
use crate::bench::table::{Check, Find, human};

/// Octets in a second: 10 GB/s.
const BUILD: f64 = 10e9;
/// 5 Gb/s.
const WRITE: f64 = 5e9 / 8.0;

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let at = |case: &str, subject: &str| {
        Find(records).median(case, subject, "bytes_per_s", |f| f.size == Some(4096))
    };
    let (built, written) = (at("build", "ipv4"), at("rdma-write", "raw"));
    let gigabits = written.map(|v| format!("{:.1} Gb/s", v * 8.0 / 1e9));
    vec![
        Check::at_least("build with ICRC, 4096 B", ">= 10 GB/s on one core", built, BUILD)
            .saying(built.map(|v| human(v, "B/s"))),
        Check::at_least("RDMA WRITE over veth, PMTU 4096", ">= 5 Gb/s", written, WRITE).saying(gigabits),
    ]
}

fn sheets(records: &[Record]) -> Vec<Sheet> {
    let rows: Vec<Vec<String>> = [
        ("build", "ipv4", "build, IPv4, GB/s"),
        ("build", "ipv6", "build, IPv6, GB/s"),
        ("rdma-write", "raw", "RDMA WRITE over veth, GB/s"),
    ]
    .iter()
    .filter_map(|(case, subject, name)| {
        let cells = SIZES.map(|size| {
            let fits = |r: &&Record| {
                r.figure.case == *case && r.figure.subject == *subject && r.figure.size == Some(size.into())
            };
            records.iter().find(fits).map(|r| match (r.status, r.median) {
                (Status::Ok, Some(median)) => format!("{:.2}", median / 1e9),
                (Status::Skipped, _) => "skipped".to_owned(),
                _ => "failed".to_owned(),
            })
        });
        cells.iter().any(Option::is_some).then(|| {
            let cells = cells.into_iter().map(|c| c.unwrap_or_else(|| "-".to_owned()));
            std::iter::once((*name).to_owned()).chain(cells).collect()
        })
    })
    .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let heading =
        std::iter::once("SUBJECT".to_owned()).chain(SIZES.iter().map(|s| format!("{s} B"))).collect();
    let note = "Payload in a second, by octets of payload in a packet. Building: headers, a copy of the payload, the ICRC (under \
                IPv6 UDP's checksum as well), in warm memory on one core. RDMA WRITE: between two processes, counted where it \
                arrived and compared by SHA-256; hashing is not in the time.";
    vec![Sheet { title: "RoCEv2: GB/s of payload".to_owned(), heading, texts: 1, rows, note }]
}

/// All of it.
pub fn section<'a>(machine: &'a Machine, records: &'a [Record]) -> Section<'a> {
    Section {
        name: "roce",
        title: "RoCEv2",
        about: "",
        machine,
        records,
        sheets: sheets(records),
        conclusions: Vec::new(),
    }
}
