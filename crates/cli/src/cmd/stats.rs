//! `bypath stats`.

use super::ss::{self, BytesRecord};
use crate::args::Json;
use crate::connections;
use crate::output::{self, Failure, Outcome};
use bypath_shm::reason::Reason;
use bypath_shm::stats::{Bytes, RECORD_SIZE, STATS_MAGIC, StatsSnapshot};
use clap::ValueHint;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;

/// Arguments of `bypath stats`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath run --stats counters -- redis-server; bypath stats counters\n  \
    bypath stats counters --json=counters.json\n\n\
    The file holds a record per process image; it can be read at any time, also after kill -9.\n\n\
    Exit status: 0, 1 if the file cannot be read, 2 for wrong usage.")]
pub struct Args {
    /// The file named by `bypath run --stats FILE`
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    #[command(flatten)]
    json: Json,
}

/// Why a file cannot be shown.
#[derive(Debug, Error)]
enum StatsError {
    #[error(
        "cannot read {0}: {1}; it is written by programs started with: bypath run --stats {0} -- PROGRAM"
    )]
    Io(String, io::Error),
    #[error(
        "{0} is empty: no process has written a record; was the program started with `bypath run --stats {0}`, \
         and can it be preloaded? (bypath run --on-unsupported=warn tells)"
    )]
    Empty(String),
    #[error("{0} is no regular file; name the file given to `bypath run --stats`")]
    NoFile(String),
    #[error("{0} is not a statistics file of Bypath; name the file given to `bypath run --stats`")]
    Foreign(String),
    #[error("{0}: record {1} is not one; the file was overwritten by something else")]
    Corrupt(String, usize),
    #[error("{0} was written by another version of Bypath; read it with the `bypath stats` of that version")]
    OtherVersion(String),
    #[error(
        "{file} ends inside record {record}: it was cut off, or the disk was full; its whole records can be \
         read after: head -c {whole} {file} > COPY"
    )]
    Truncated { file: String, record: usize, whole: usize },
}

/// Records without a magic number, of which each is a process that was killed as it started.
const MOST_UNFINISHED: usize = 65_536;

/// Prints the records.
pub fn run(args: Args) -> Outcome {
    let name = args.file.display().to_string();
    let (records, unfinished) =
        open(&args.file).and_then(|file| read(&name, file)).map_err(|e| Failure::new(1, e))?;
    if unfinished > 0 {
        output::message(format_args!(
            "note: {unfinished} unfinished records left out (their processes are starting, or were killed while starting)"
        ));
    }
    match args.json.target() {
        Some(target) => output::json(&target, &records.iter().map(Record::from).collect::<Vec<_>>())?,
        None => output::print(&text(&args.file, &records))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a file that has an end: nobody is waited for who never writes.
fn open(path: &Path) -> Result<File, StatsError> {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed = |e: io::Error| StatsError::Io(path.display().to_string(), e);
    let not_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(not_waiting).open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    // Of a folder the read says so.
    if kind.is_file() || kind.is_dir() {
        Ok(file)
    } else {
        Err(StatsError::NoFile(path.display().to_string()))
    }
}

/// Reads all records, and counts those whose writer has not stored the magic number.
fn read(name: &str, mut file: impl Read) -> Result<(Vec<StatsSnapshot>, usize), StatsError> {
    let mut records = Vec::new();
    let mut unfinished = 0;
    for number in 1.. {
        let mut raw = Vec::with_capacity(RECORD_SIZE);
        file.by_ref()
            .take(RECORD_SIZE as u64)
            .read_to_end(&mut raw)
            .map_err(|e| StatsError::Io(name.to_owned(), e))?;
        if raw.is_empty() {
            break;
        }
        let ours = STATS_MAGIC.to_le_bytes();
        let magic = raw.get(..8).unwrap_or(&[0xff; 8]);
        let is_known = <[u8; 8]>::try_from(magic).is_ok_and(StatsSnapshot::is_magic);
        if !is_known && magic != [0; 8] {
            return Err(match number {
                _ if magic[..7] == ours[..7] => StatsError::OtherVersion(name.to_owned()),
                1 => StatsError::Foreign(name.to_owned()),
                _ => StatsError::Corrupt(name.to_owned(), number),
            });
        }
        if raw.len() < RECORD_SIZE {
            let whole = (number - 1) * RECORD_SIZE;
            return Err(StatsError::Truncated { file: name.to_owned(), record: number, whole });
        }
        match StatsSnapshot::decode(&raw) {
            Some(record) => records.push(record),
            // Without a magic number everything is still zero; a file of something else is not.
            None if number == 1 && raw[..64].iter().any(|b| *b != 0) => {
                return Err(StatsError::Foreign(name.to_owned()));
            }
            // Nobody has started so many: it is a file with a hole.
            None if unfinished == MOST_UNFINISHED => return Err(StatsError::Foreign(name.to_owned())),
            None => unfinished += 1,
        }
    }
    if records.is_empty() { Err(StatsError::Empty(name.to_owned())) } else { Ok((records, unfinished)) }
}

/// A record in JSON.
#[derive(Serialize)]
struct Record<'a> {
    pid: u32,
    command: &'a str,
    connections: u64,
    upgraded: u64,
    recalled: BTreeMap<&'static str, u64>,
    not_upgraded: BTreeMap<&'static str, u64>,
    bytes: BytesRecord,
}

impl<'a> From<&'a StatsSnapshot> for Record<'a> {
    fn from(s: &'a StatsSnapshot) -> Self {
        Record {
            pid: s.pid,
            command: &s.command,
            connections: s.connections,
            upgraded: s.upgraded,
            recalled: by_reason(&s.recalled),
            not_upgraded: by_reason(&s.not_upgraded),
            bytes: s.bytes.into(),
        }
    }
}

/// The counters that are not zero; those of reasons that this version does not know add up as `unknown`.
pub fn by_reason(counters: &[u64]) -> BTreeMap<&'static str, u64> {
    let mut map = BTreeMap::new();
    for (value, &n) in (0u16..).zip(counters).filter(|(_, n)| **n > 0) {
        let code = Reason::from_value(value).map_or("unknown", Reason::code);
        let sum: &mut u64 = map.entry(code).or_default();
        *sum = sum.saturating_add(n);
    }
    map
}

fn add(a: Bytes, b: Bytes) -> Bytes {
    Bytes {
        ring_tx: a.ring_tx.saturating_add(b.ring_tx),
        ring_rx: a.ring_rx.saturating_add(b.ring_rx),
        kernel_tx: a.kernel_tx.saturating_add(b.kernel_tx),
        kernel_rx: a.kernel_rx.saturating_add(b.kernel_rx),
        pair_tx: a.pair_tx.saturating_add(b.pair_tx),
        pair_rx: a.pair_rx.saturating_add(b.pair_rx),
    }
}

fn ring_share(b: Bytes) -> String {
    let ring = b.ring_tx.saturating_add(b.ring_rx);
    output::share(ring, b.sent().saturating_add(b.received()))
}

fn state(s: &StatsSnapshot) -> &'static str {
    match s.state {
        2 => "ended",
        1 if connections::is(s.pid, s.start_time) => "running",
        _ => "gone",
    }
}

fn text(file: &Path, records: &[StatsSnapshot]) -> String {
    let pairs = records.iter().any(|s| s.bytes.pair_tx > 0 || s.bytes.pair_rx > 0);
    let mut headings = vec!["PID", "COMMAND", "STATE", "CONNECTIONS", "UPGRADED"];
    headings.extend(ss::columns(pairs));
    headings.push("ON RINGS");
    let numbers = [&headings[..1], &headings[3..]].concat();
    let mut table = output::table(&headings, &numbers);
    let mut row = |first: [String; 3], connections: u64, upgraded: u64, b: Bytes| {
        let mut cells = first.to_vec();
        cells.extend([connections.to_string(), upgraded.to_string()]);
        cells.extend(ss::cells(b, pairs).into_iter().map(output::bytes));
        cells.push(ring_share(b));
        table.add_row(cells);
    };
    let (mut connections, mut upgraded, mut bytes) = (0u64, 0u64, Bytes::default());
    for s in records {
        let first = [s.pid.to_string(), output::printable(&s.command), state(s).to_owned()];
        row(first, s.connections, s.upgraded, s.bytes);
        connections = connections.saturating_add(s.connections);
        upgraded = upgraded.saturating_add(s.upgraded);
        bytes = add(bytes, s.bytes);
    }
    if records.len() > 1 {
        row(["total".to_owned(), String::new(), String::new()], connections, upgraded, bytes);
    }
    let mut text = output::lines(&table);
    for s in records {
        for (what, counters) in [("not upgraded", &s.not_upgraded), ("recalled", &s.recalled)] {
            let parts: Vec<_> = by_reason(counters).iter().map(|(code, n)| format!("{code} {n}")).collect();
            if !parts.is_empty() {
                text +=
                    &format!("\n{} {}, {what}: {}", s.pid, output::printable(&s.command), parts.join(", "));
            }
        }
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let reasons = records.iter().flat_map(|s| [&s.recalled, &s.not_upgraded]).flat_map(|counters| {
        (0u16..).zip(counters).filter(|(_, n)| **n > 0).filter_map(|(value, _)| Reason::from_value(value))
    });
    text += &ss::legend(reasons.map(ss::Told::from));
    text +=
        &format!("\n{}: {} of all bytes went through shared memory.\n", file.display(), ring_share(bytes));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_shm::stats::StatsRecord;
    use std::mem::offset_of;

    fn record(pid: u32) -> Vec<u8> {
        let mut raw = vec![0; RECORD_SIZE];
        raw[..8].copy_from_slice(&STATS_MAGIC.to_le_bytes());
        raw[offset_of!(StatsRecord, pid)..][..4].copy_from_slice(&pid.to_ne_bytes());
        raw
    }

    fn error_of(raw: &[u8]) -> String {
        read("F", raw).unwrap_err().to_string()
    }

    #[test]
    fn records_are_read_and_unfinished_ones_counted() {
        let raw = [record(1), vec![0; RECORD_SIZE], record(2)].concat();
        let (records, unfinished) = read("F", &raw[..]).unwrap();
        assert_eq!((records.len(), records[1].pid, unfinished), (2, 2, 1));
    }

    #[test]
    fn each_bad_file_has_its_own_message() {
        assert!(error_of(b"").contains("is empty"));
        assert!(error_of(&[0; RECORD_SIZE]).contains("is empty"));
        assert!(error_of(b"short").contains("is not a statistics file"));
        assert!(error_of(&[b'x'; 3 * RECORD_SIZE]).contains("is not a statistics file"));
        let mut other = record(1);
        other[7] = b'3';
        assert!(error_of(&other).contains("another version"));
        let cut = [record(1), record(2)].concat();
        let text = error_of(&cut[..RECORD_SIZE + 100]);
        assert!(text.contains("inside record 2") && text.contains("head -c 8192"), "{text}");
        let bad = [record(1), vec![b'x'; RECORD_SIZE]].concat();
        assert!(error_of(&bad).contains("record 2 is not one"));
    }

    #[test]
    fn only_counters_above_zero_are_named_and_unknown_ones_add_up() {
        let mut counters = vec![0; 1002];
        counters[Reason::PeerPlain as usize] = 2;
        counters[1000] = 1;
        counters[1001] = u64::MAX;
        let map = by_reason(&counters);
        assert_eq!(map.into_iter().collect::<Vec<_>>(), [("peer-plain", 2), ("unknown", u64::MAX)]);
    }
}
