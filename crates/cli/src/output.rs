//! How things are printed: standard output that may be closed at any time, JSON, tables, numbers for people.
//!
//! There is no colour here; clap's own messages respect NO_COLOR.

use crate::args::Target;
use crate::written;
pub use bypath_netstack::text::{printable, steers};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
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
        Target::File(path) => written::create(path, written::USUAL, || false)
            .and_then(|mut file| file.write_all(bytes))
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
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Plain(PrettyFormatter::new()));
    document
        .serialize(&mut serializer)
        .map_err(|e| Failure::new(1, format_args!("cannot make JSON of this: {e}")))?;
    bytes.push(b'\n');
    write_to(target, &bytes)
}

/// Indented JSON in which characters that would steer a terminal are written as numbers: what is read of it is the same.
struct Plain(PrettyFormatter<'static>);

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| steers(*c)) {
            self.0.write_string_fragment(writer, &rest[..at])?;
            for half in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{half:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        self.0.write_string_fragment(writer, rest)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
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

/// Rows of a long table that are made at once: cells take many times as much memory as their text.
const ROWS: usize = 1000;

/// A table of any length, as [`table`] and [`lines`] make it: `print` gets one part of it after the other.
///
/// # Errors
/// Those of `print`.
pub fn long_table<R>(
    heading: &[&str],
    numbers: &[&str],
    rows: &[R],
    cells: impl Fn(&R) -> Vec<String>,
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let part = |rows: &[R]| {
        let mut part = table(heading, numbers);
        part.add_rows(rows.iter().map(&cells));
        part
    };
    let mut widths = part(&[]).column_max_content_widths();
    for rows in rows.chunks(ROWS) {
        for (width, its) in widths.iter_mut().zip(part(rows).column_max_content_widths()) {
            *width = its.max(*width);
        }
    }
    for (n, rows) in rows.chunks(ROWS).enumerate() {
        let mut part = part(rows);
        for (column, width) in part.column_iter_mut().zip(&widths) {
            let padding = column.padding_width();
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width + padding)));
        }
        let text = lines(&part);
        // The heading is the first part's alone.
        let own = if n == 0 { 0 } else { text.find('\n').map_or(0, |end| end + 1) };
        print(&text[own..])?;
    }
    Ok(())
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
    fn a_long_table_is_the_same_in_one_part_and_in_many() {
        let heading = ["NAME", "N", "LAST"];
        let rows: Vec<usize> = (0..3 * ROWS + 7).collect();
        let cells = |n: &usize| vec!["ä".repeat(n % 17), (n * n * n).to_string(), format!("x{n}")];
        let mut long = String::new();
        let add = |more: &str| {
            long += more;
            Ok(())
        };
        long_table(&heading, &["N"], &rows, cells, add).expect("nothing fails");
        let mut short = table(&heading, &["N"]);
        short.add_rows(rows.iter().map(cells));
        assert_eq!(long, lines(&short));
    }

    #[test]
    fn share_of_nothing_is_no_number() {
        assert_eq!((share(0, 0), share(1, 3)), ("-".to_owned(), "33.3 %".to_owned()));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a?[2Jb?");
        // The second half of them, and what turns text round, hides it, or ends a line in other ways.
        assert_eq!(printable("\u{9b}31m\u{7f}"), "?31m?");
        assert_eq!(printable("\u{202e}a\u{2066}\u{200b}\u{2028}\u{feff}\u{e0041}"), "?a?????");
        // What is not seen: a name that looks like another one.
        assert_eq!(
            printable("a\u{2800}\u{34f}\u{115f}\u{17b4}\u{180b}\u{3164}\u{fe0f}\u{ffa0}\u{fff0}"),
            "a?????????"
        );
        assert_eq!(printable("größe 日本 \u{301}🦀"), "größe 日本 \u{301}🦀");
    }

    #[test]
    fn json_has_them_as_numbers_and_is_read_as_it_was() {
        let text = "a\"\\\n\u{9b}31m\u{202e}ö\u{e0041}z";
        let document = serde_json::json!([{ "name": text, "n": [1, 2.5, null], "none": [], "no": {} }]);
        let dir = std::env::temp_dir().join(format!("bypath-json-{}", std::process::id()));
        json(&Target::File(dir.clone()), &document).expect("a file");
        let written = std::fs::read_to_string(&dir).expect("the file");
        std::fs::remove_file(&dir).expect("it is there");
        assert!(written.contains("\\u009b31m\\u202eö\\udb40\\udc41z"), "{written}");
        assert!(!written.chars().any(|c| steers(c) && c != '\n'), "{written}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written).expect("JSON"), document);
        let plain = serde_json::json!({ "a": [1, { "b": [] }], "c": "d" });
        json(&Target::File(dir.clone()), &plain).expect("a file");
        let written = std::fs::read_to_string(&dir).expect("the file");
        std::fs::remove_file(&dir).expect("it is there");
        assert_eq!(written, serde_json::to_string_pretty(&plain).expect("JSON") + "\n");
    }

    #[test]
    fn json_is_written_over_nothing_of_another_users() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give files away; `written.rs` says that it is left out.
        }
        let file = std::env::temp_dir().join(format!("bypath-json-theirs-{}", std::process::id()));
        std::fs::write(&file, "theirs").expect("a file");
        std::os::unix::fs::chown(&file, Some(12345), None).expect("a file");
        let failure = json(&Target::File(file.clone()), &[1]).expect_err("it is another user's").to_string();
        let kept = std::fs::read(&file).expect("the file");
        std::fs::remove_file(&file).expect("it is there");
        assert!(failure.contains("another user's") && kept == b"theirs", "{failure}");
    }

    #[test]
    fn table_lines_end_without_blanks() {
        let mut t = table(&["NAME", "N"], &["N"]);
        t.add_row(["x", "1"]);
        t.add_row(["", "100"]);
        assert_eq!(lines(&t), "NAME    N\nx       1\n      100\n");
    }
}
