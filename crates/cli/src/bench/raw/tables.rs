//! The results as tables: for a terminal, and for the report.

use super::order::Carrier;
use super::targets;
use crate::bench::machine::Machine;
use crate::bench::record::{Figure, Record, Status};
use crate::bench::table::{Find, human, ratio};
use crate::output;

const MIB: f64 = 1024.0 * 1024.0;
/// Links, in the order of the tables.
pub const LINKS: [&str; 3] = ["lo", "veth", "peer"];

/// A table with its title and what is to be said below it. An empty row separates.
pub struct Sheet {
    /// Above it.
    pub title: String,
    /// Names of the columns.
    pub heading: Vec<String>,
    /// Columns of text; the others are numbers.
    pub texts: usize,
    /// Cells.
    pub rows: Vec<Vec<String>>,
    /// Below it.
    pub note: &'static str,
}

impl Sheet {
    /// For a terminal.
    pub fn text(&self) -> String {
        let heading: Vec<&str> = self.heading.iter().map(String::as_str).collect();
        let mut table = output::table(&heading, &heading[self.texts..]);
        for row in &self.rows {
            match row.is_empty() {
                true => table.add_row(vec![""; heading.len()]),
                false => table.add_row(row),
            };
        }
        let note: String = fold(self.note).iter().map(|l| format!("{l}\n")).collect();
        format!("\n{}\n\n{}{note}", self.title, output::lines(&table))
    }
}

/// Lines of at most 120 characters.
fn fold(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 120 => *line += &format!(" {word}"),
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// All of them.
pub fn sheets(records: &[Record]) -> Vec<Sheet> {
    let mut sheets: Vec<Option<Sheet>> = vec![throughput(records), sender_only(records)];
    for link in LINKS {
        sheets.extend(["block", "spin"].map(|mode| round_trips(records, link, mode)));
    }
    sheets.extend([open_close(records), prototype(records)]);
    sheets.into_iter().flatten().collect()
}

/// Everything, for a terminal.
pub fn all(machine: &Machine, records: &[Record]) -> String {
    let tables: String = sheets(records).iter().map(Sheet::text).collect();
    let notes: String = note_lines(records).iter().map(|l| format!("{l}\n")).collect();
    format!("{}\n{tables}{notes}", machine.summary())
}

/// Records of a case, grouped by figure apart from the metric, in their order.
fn rows<'a>(records: &'a [Record], case: &str) -> Vec<&'a Record> {
    let mut rows: Vec<&Record> = Vec::new();
    for record in records.iter().filter(|r| r.figure.case == case) {
        let same = |r: &&Record| Figure { metric: record.figure.metric, ..r.figure.clone() } == record.figure;
        if !rows.iter().any(same) {
            rows.push(record);
        }
    }
    rows
}

fn metric<'a>(records: &'a [Record], row: &Record, metric: &'static str) -> Option<&'a Record> {
    let wanted = Figure { metric, ..row.figure.clone() };
    records.iter().find(|r| r.figure == wanted)
}

fn median(records: &[Record], row: &Record, name: &'static str) -> Option<f64> {
    metric(records, row, name)?.median
}

fn text(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(String::new, show)
}

/// Lowest and highest of the runs.
fn spread(record: Option<&Record>) -> Option<(f64, f64)> {
    let runs = &record?.run_medians;
    let low = runs.iter().copied().reduce(f64::min)?;
    Some((low, runs.iter().copied().reduce(f64::max)?))
}

/// A number of MiB/s.
pub fn mib(bytes: f64) -> String {
    let v = bytes / MIB;
    if v < 100.0 { format!("{v:.1}") } else { format!("{v:.0}") }
}

fn percent(share: f64) -> String {
    if share == 0.0 { "0 %".into() } else { format!("{:.3} %", share * 100.0) }
}

fn state(record: &Record) -> &'static str {
    match record.status {
        Status::Ok => "",
        Status::Lossy => "LOSSY",
        Status::Corrupt => "CORRUPT",
        Status::Skipped => "skipped",
        Status::Failed => "FAILED",
    }
}

fn throughput(records: &[Record]) -> Option<Sheet> {
    const HEADING: [&str; 12] = [
        "LINK",
        "SIZE",
        "SUBJECT",
        "MiB/s",
        "RUNS FROM",
        "TO",
        "FRAMES/s",
        "LOSS",
        "CORRUPT",
        "CPU TX",
        "CPU RX",
        "x UDP",
    ];
    let rows = rows(records, "throughput");
    let rows: Vec<_> = rows.into_iter().filter(|r| !is_sender_only(r)).collect();
    let mut sheet = sheet("Throughput: what arrived, each octet of it checked".into(), &HEADING, 3);
    let mut before: Option<&Figure> = None;
    for row in rows {
        let f = &row.figure;
        if before.is_some_and(|b| (&b.link, b.size) != (&f.link, f.size)) {
            sheet.rows.push(Vec::new());
        }
        before = Some(f);
        let of = |name| median(records, row, name);
        let bytes = metric(records, row, "received_bytes_per_s");
        let runs = spread(bytes);
        let value = of("received_bytes_per_s");
        // What lost too much is no rate, and what one without loss is compared with neither.
        let link = f.link.as_deref().unwrap_or_default();
        let times = f
            .size
            .filter(|_| row.status == Status::Ok)
            .and_then(|size| ratio(value, targets::received(Find(records), link, Carrier::UdpSendto, size)));
        sheet.rows.push(vec![
            f.link.clone().unwrap_or_default(),
            text(f.size.map(|s| s as f64), |s| format!("{s}")),
            f.subject.into(),
            value.map_or_else(|| state(row).into(), mib),
            text(runs.map(|r| r.0), mib),
            text(runs.map(|r| r.1), mib),
            text(of("received_frames_per_s"), |v| human(v, "1/s")),
            text(of("loss_ratio"), |v| format!("{} {}", percent(v), state(row)).trim_end().to_owned()),
            text(of("corrupt_frames"), |v| format!("{v}")),
            text(of("cpu_ns_per_frame_tx"), |v| human(v, "ns")),
            text(of("cpu_ns_per_frame_rx"), |v| human(v, "ns")),
            text(times, |r| format!("{r:.2}")),
        ]);
    }
    sheet.note = "LOSSY: more than 0.1 % was lost, even at a slower pace: no rate that the link carries, and not compared. \
             CPU TX, CPU RX: processor time of the sender and the receiver per frame. On lo and veth the sender's processor \
             also carries the frame to the receiver's socket, and the receiver's includes looking at each octet. \
             x UDP: MiB/s divided by udp-sendto's.";
    finished(sheet)
}

fn is_sender_only(record: &Record) -> bool {
    record.figure.subject.ends_with("-sender-only")
}

fn sender_only(records: &[Record]) -> Option<Sheet> {
    const HEADING: [&str; 7] = [
        "LINK",
        "SIZE",
        "UDP SENT MiB/s",
        "RAW SENT MiB/s",
        "SENT RAW/UDP",
        "RECEIVED raw-plain/UDP",
        "BEST RAW/UDP",
    ];
    let rows = rows(records, "throughput");
    let rows: Vec<_> = rows.into_iter().filter(|r| r.figure.subject == "raw-sender-only").collect();
    let title =
        "Sender only: NOT throughput. What a benchmark prints that counts what it sends and receives nothing";
    let mut sheet = sheet(title.into(), &HEADING, 1);
    let find = Find(records);
    for row in rows {
        let f = &row.figure;
        let (link, size) = (f.link.clone().unwrap_or_default(), f.size.unwrap_or(0));
        let sent = |subject| {
            find.median("throughput", subject, "sent_bytes_per_s", |o| (&o.link, o.size) == (&f.link, f.size))
        };
        let (udp, raw) = (sent("udp-sender-only"), sent("raw-sender-only"));
        let received = |carrier| targets::received(find, &link, carrier, size);
        let honest = ratio(received(Carrier::RawPlain), received(Carrier::UdpSendto));
        sheet.rows.push(vec![
            link.clone(),
            size.to_string(),
            text(udp, mib),
            text(raw, mib),
            text(ratio(raw, udp), |r| format!("{r:.2}")),
            text(honest, |r| format!("{r:.2}")),
            over_udp(find, &link, size).unwrap_or_default(),
        ]);
    }
    sheet.note = "Such a benchmark sends raw frames for a socket that it never reads: once its queue is full the kernel drops them, \
             which is cheap. It sends datagrams to a port without a listener: each is answered by an ICMP error, which is \
             dear. Both errors favour raw frames; the two columns on the right are what is left when both are received.";
    finished(sheet)
}

/// The best raw subject's throughput as a multiple of udp-sendto's.
pub fn over_udp(find: Find<'_>, link: &str, size: u64) -> Option<String> {
    let (carrier, raw) = targets::best(find, link, size)?;
    let r = ratio(Some(raw), targets::received(find, link, Carrier::UdpSendto, size))?;
    Some(format!("{r:.2} ({})", carrier.name()))
}

/// Round trips of one link and mode: (size, record of each carrier).
pub type TripRows<'a> = Vec<(u64, Vec<Option<&'a Record>>)>;

/// The carriers and rows of a round-trip table.
pub fn trip_rows<'a>(records: &'a [Record], link: &str, mode: &str) -> (Vec<Carrier>, TripRows<'a>) {
    let of: Vec<&Record> = records
        .iter()
        .filter(|r| {
            let f = &r.figure;
            f.case == "round-trip" && f.link.as_deref() == Some(link) && f.mode == Some(mode)
        })
        .filter(|r| r.median.is_some())
        .collect();
    let carriers: Vec<Carrier> =
        Carrier::ALL.into_iter().filter(|c| of.iter().any(|r| r.figure.subject == c.name())).collect();
    let mut sizes: Vec<u64> = of.iter().filter_map(|r| r.figure.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let find = |size: u64, carrier: Carrier| {
        of.iter().find(|r| r.figure.size == Some(size) && r.figure.subject == carrier.name()).copied()
    };
    let rows = sizes.into_iter().map(|s| (s, carriers.iter().map(|c| find(s, *c)).collect())).collect();
    (carriers, rows)
}

fn round_trips(records: &[Record], link: &str, mode: &str) -> Option<Sheet> {
    let (carriers, rows) = trip_rows(records, link, mode);
    let what = if mode == "spin" { "both ends spin" } else { "both ends sleep" };
    let n = rows.iter().flat_map(|(_, r)| r.iter().flatten()).filter_map(|r| r.n).min().unwrap_or(0);
    let title = format!("Round trip in us on {link}, {what}; {n} round trips each");
    let mut heading = vec!["SIZE".to_owned()];
    for c in &carriers {
        heading.extend([format!("{} MEAN", c.name()), "p50".into(), "p99".into()]);
    }
    let udp = carriers.iter().position(|c| c.is_udp());
    let raw = carriers.iter().position(|c| !c.is_udp());
    if udp.is_some() && raw.is_some() {
        heading.push("BEST RAW/UDP".into());
    }
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut sheet = sheet(title, &heading, 0);
    for (size, row) in rows {
        let mut cells = vec![size.to_string()];
        for record in &row {
            let us = |v: Option<f64>| text(v, |v| format!("{:.2}", v / 1e3));
            cells.extend([
                us(record.and_then(|r| r.mean)),
                us(record.and_then(|r| r.p50)),
                us(record.and_then(|r| r.p99)),
            ]);
        }
        let least = |is_udp: bool| {
            let of = carriers.iter().zip(&row).filter(|(c, _)| c.is_udp() == is_udp);
            of.filter_map(|(_, r)| r.and_then(|r| r.p50)).reduce(f64::min)
        };
        if udp.is_some() && raw.is_some() {
            cells.push(text(ratio(least(false), least(true)), |r| format!("{r:.2}")));
        }
        sheet.rows.push(cells);
    }
    finished(sheet)
}

fn open_close(records: &[Record]) -> Option<Sheet> {
    const HEADING: [&str; 6] = ["LINK", "SUBJECT", "OPEN", "p90", "CLOSE", "p90"];
    let rows = rows(records, "open-close");
    let mut sheet = sheet("Opening and closing a socket, as the caller sees it".into(), &HEADING, 2);
    for row in rows {
        let ns = |v: Option<f64>| text(v, |v| human(v, "ns"));
        let (open, close) = (metric(records, row, "open_ns"), metric(records, row, "close_ns"));
        let link = row.figure.link.clone().unwrap_or_default();
        let open_text = match row.status {
            Status::Ok => ns(open.and_then(|r| r.median)),
            _ => state(row).into(),
        };
        sheet.rows.push(vec![
            link,
            row.figure.subject.into(),
            open_text,
            ns(open.and_then(|r| r.p90)),
            ns(close.and_then(|r| r.median)),
            ns(close.and_then(|r| r.p90)),
        ]);
    }
    finished(sheet)
}

fn prototype(records: &[Record]) -> Option<Sheet> {
    const HEADING: [&str; 8] =
        ["LINK", "SIZE", "SUBJECT", "PROGRAM", "CPU BOTH", "RUNS FROM", "CPU TX", "CPU RX"];
    let rows = rows(records, "prototype");
    let title = "Processor time per frame of the library and of a bare C program; numbers are checked, contents are not";
    let mut sheet = sheet(title.into(), &HEADING, 4);
    for row in rows {
        let f = &row.figure;
        let ns = |name| text(median(records, row, name), |v| human(v, "ns"));
        let both = metric(records, row, "cpu_ns_per_frame");
        let both_text = match row.status {
            Status::Ok => ns("cpu_ns_per_frame"),
            _ => state(row).into(),
        };
        let range = spread(both)
            .map_or_else(String::new, |(low, high)| format!("{} to {}", human(low, "ns"), human(high, "ns")));
        sheet.rows.push(vec![
            f.link.clone().unwrap_or_default(),
            f.size.unwrap_or(0).to_string(),
            f.subject.into(),
            f.mode.unwrap_or_default().into(),
            both_text,
            range,
            ns("cpu_ns_per_frame_tx"),
            ns("cpu_ns_per_frame_rx"),
        ]);
    }
    finished(sheet)
}

fn sheet(title: String, heading: &[&str], texts: usize) -> Sheet {
    let heading = heading.iter().map(|h| (*h).to_owned()).collect();
    Sheet { title, heading, texts, rows: Vec::new(), note: "" }
}

/// Nothing where nothing was measured.
fn finished(sheet: Sheet) -> Option<Sheet> {
    (!sheet.rows.is_empty()).then_some(sheet)
}

/// What a reader should know about figures, each sentence once.
pub fn note_lines(records: &[Record]) -> Vec<String> {
    // (what happened, why, on what)
    let mut said: Vec<(&'static str, &str, Vec<String>)> = Vec::new();
    for record in records.iter().filter(|r| !is_sender_only(r)) {
        let Some(reason) = &record.reason else { continue };
        let f = &record.figure;
        let what = match record.status {
            Status::Ok => "note",
            Status::Lossy => "lossy",
            Status::Corrupt => "CORRUPT",
            Status::Skipped => "skipped",
            Status::Failed => "FAILED",
        };
        let on = format!("{} {}, {}", f.case, f.link.as_deref().unwrap_or_default(), f.subject);
        match said.iter_mut().find(|(w, r, _)| (*w, *r) == (what, reason)) {
            Some((_, _, places)) if places.contains(&on) => {}
            Some((_, _, places)) => places.push(on),
            None => said.push((what, reason, vec![on])),
        }
    }
    said.into_iter()
        .map(|(what, reason, places)| format!("{what}: {}: {reason}", places.join("; ")))
        .collect()
}
