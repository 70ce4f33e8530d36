//! How things are printed: standard output that may be closed at any time, JSON, tables, numbers for people.
//!
//! There is no colour here; clap's own messages respect NO_COLOR.

use crate::args::Target;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why a command stopped: a message for standard error and the exit status.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: u8,
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// What a subcommand returns.
pub type Outcome = Result<ExitCode, Failure>;

impl Failure {
    /// A failure with its exit status.
    pub fn new(code: u8, message: impl Display) -> Failure {
        Failure { message: message.to_string(), code }
    }

    /// Prints the message and yields the exit status.
    pub fn report(self) -> ExitCode {
        message(format_args!("error: {}", self.message));
        ExitCode::from(self.code)
    }
}

/// One message on standard error, which may be closed.
pub fn message(text: impl Display) {
    // In one piece: other programs may write there, too.
    let _ = io::stderr().write_all(format!("bypath: {text}\n").as_bytes());
}

/// Writes `bytes` to `target`. A reader that has gone away (`bypath ss | head -1`) is not an error.
///
/// # Errors
/// The file cannot be created, or nothing more can be written (a full disk).
pub fn write_to(target: &Target, bytes: &[u8]) -> Result<(), Failure> {
    match target {
        Target::Stdout => {
            let mut out = io::stdout().lock();
            match out.write_all(bytes).and_then(|()| out.flush()) {
                Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                    Err(Failure::new(1, format_args!("cannot write to standard output: {e}")))
                }
                _ => Ok(()),
            }
        }
        Target::File(path) => std::fs::write(path, bytes)
            .map_err(|e| Failure::new(1, format_args!("cannot write {}: {e}", path.display()))),
    }
}

/// Writes text to standard output.
///
/// # Errors
/// As [`write_to`].
pub fn print(text: &str) -> Result<(), Failure> {
    write_to(&Target::Stdout, text.as_bytes())
}

/// Writes a JSON document, indented, with a newline at its end.
///
/// # Errors
/// As [`write_to`].
pub fn json(target: &Target, document: &impl Serialize) -> Result<(), Failure> {
    let mut bytes = serde_json::to_vec_pretty(document)
        .map_err(|e| Failure::new(1, format_args!("cannot make JSON of this: {e}")))?;
    bytes.push(b'\n');
    write_to(target, &bytes)
}

/// A plain table: no borders, a heading, columns whose heading is in `numbers` to the right.
pub fn table(heading: &[&str], numbers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heading);
    for (column, name) in table.column_iter_mut().zip(heading) {
        column.set_padding((0, 2));
        if numbers.contains(name) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The lines of a table without blanks at their ends.
pub fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// A byte count for people: `0`, `999`, `1.0K`, `12.3M` (binary multiples).
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if n < 1024 {
        return n.to_string();
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1}{}", UNITS[unit])
}

/// `part` of `whole` in percent; `-` of nothing.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

/// Text that a program chose (a command name) without characters that would steer a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_have_at_most_four_digits() {
        let seen: Vec<_> =
            [0, 1023, 1024, 1536, 1_048_570, 1 << 20, 5 << 30, u64::MAX].into_iter().map(bytes).collect();
        assert_eq!(seen, ["0", "1023", "1.0K", "1.5K", "1.0M", "1.0M", "5.0G", "16.0E"]);
    }

    #[test]
    fn share_of_nothing_is_no_number() {
        assert_eq!((share(0, 0), share(1, 3)), ("-".to_owned(), "33.3 %".to_owned()));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a?[2Jb?");
    }

    #[test]
    fn table_lines_end_without_blanks() {
        let mut t = table(&["NAME", "N"], &["N"]);
        t.add_row(["x", "1"]);
        t.add_row(["", "100"]);
        assert_eq!(lines(&t), "NAME    N\nx       1\n      100\n");
    }
}
