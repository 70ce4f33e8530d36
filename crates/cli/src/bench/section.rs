//! A small bench: what it is asked, and what it tells of itself: text for a terminal, a section of the page that benches
//! share, a table of records.

use super::args::Common;
use super::child::interrupted;
use super::context::{Context, Job};
use super::machine::Machine;
use super::raw::report as page;
use super::raw::tables::{Sheet, note_lines};
use super::record::{Record, Status};
use super::table::Check;
use super::{output, raw};
use crate::args::Json;
use crate::output::{Failure, Outcome};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How often and how long it is measured, and where it goes.
#[derive(clap::Args, Clone, Debug)]
pub struct Runs {
    /// End within 30 seconds: one round, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Rounds; in each, every subject has one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a run in seconds; a run over a file is as long as that
    #[arg(long, value_name = "S", value_parser = super::args::seconds)]
    pub seconds: Option<f64>,
    /// Write tables and an HTML page into this directory; a section is added to a page of another bench that is there
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub report: Option<PathBuf>,
    /// Where the records go (a file beside the tables, standard output instead of them).
    #[command(flatten)]
    pub json: Json,
    /// This is the bench in its own namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// What is usual where neither is asked for.
#[derive(Clone, Copy)]
pub struct Usual {
    pub rounds: u32,
    pub seconds: f64,
}

/// Measures what `plan` makes, in namespaces of its own, and tells what came of it: see [`here`].
///
/// # Errors
/// What is missing, or cannot be written.
pub fn run(
    runs: &Runs,
    usual: Usual,
    everything: bool,
    plan: impl FnOnce(&Context) -> Result<Vec<Vec<Box<dyn Job>>>, String>,
    check: fn(&[Record]) -> Vec<Check>,
    section: for<'a> fn(&'a Machine, &'a [Record]) -> Section<'a>,
) -> Outcome {
    if !runs.inside {
        return raw::inside_namespaces().map_err(|e| Failure::new(1, e));
    }
    // A bench without the program that the user started is of no use.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
    here(runs, usual, everything, plan, check, section)
}

/// Measures what `plan` makes in this process, and tells what came of it. `everything`: nothing was left out, so that all
/// targets must be met.
///
/// # Errors
/// What is missing, or cannot be written.
pub fn here(
    runs: &Runs,
    usual: Usual,
    everything: bool,
    plan: impl FnOnce(&Context) -> Result<Vec<Vec<Box<dyn Job>>>, String>,
    check: fn(&[Record]) -> Vec<Check>,
    section: for<'a> fn(&'a Machine, &'a [Record]) -> Section<'a>,
) -> Outcome {
    let fail = |e: String| Failure::new(1, e);
    let common = Common {
        quick: runs.quick,
        rounds: runs.rounds.or(Some(if runs.quick { 1 } else { usual.rounds })),
        seconds: runs.seconds.or(Some(if runs.quick { 0.1 } else { usual.seconds })),
        profile: String::new(),
        json: runs.json.clone(),
    };
    let context = Context::new(&common).map_err(fail)?;
    let records = context.measure(&plan(&context).map_err(fail)?).records();
    let whole = !interrupted();
    // Figures of a part of the runs are no ground for a verdict.
    let checks = if whole { check(&records) } else { Vec::new() };
    let section = section(&context.machine, &records);
    let mut text = section.text();
    text += &super::table::targets(&checks, everything);
    if let Some(folder) = &runs.report {
        let document = output::document(&context.machine, &records);
        section.write(folder, &checks, &document).map_err(fail)?;
        text += &format!("\nreport: {}\n", folder.join("report.html").display());
    }
    output::write(&common, &context.machine, &records, &text, whole)
}

/// A bench's figures, and what is said about them.
pub struct Section<'a> {
    /// As on the command line: `tun`. Files and marks are named after it.
    pub name: &'static str,
    /// The heading.
    pub title: &'static str,
    /// What is measured, as HTML; may be empty.
    pub about: &'static str,
    pub machine: &'a Machine,
    pub records: &'a [Record],
    pub sheets: Vec<Sheet>,
    /// What follows from the figures, a paragraph each.
    pub conclusions: Vec<String>,
}

impl Section<'_> {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.machine.summary());
        for sheet in &self.sheets {
            text += &sheet.text();
        }
        for line in &self.conclusions {
            text += &format!("\n{line}\n");
        }
        let notes = note_lines(self.records);
        for note in &notes {
            text += &format!("\n{note}");
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Writes `document` (JSON) and the table of records to a directory, and the section into its page.
    ///
    /// # Errors
    /// What cannot be written.
    pub fn write(&self, folder: &Path, checks: &[Check], document: &[u8]) -> Result<(), String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        put(&format!("{}.json", self.name), document)?;
        put(&format!("{}.csv", self.name), csv(self.records).as_bytes())?;
        let page = std::fs::read_to_string(folder.join("report.html")).ok();
        put("report.html", placed(page, self.name, self.title, &self.html(checks)).as_bytes())
    }

    fn html(&self, checks: &[Check]) -> String {
        let Section { name, title, about, machine, .. } = self;
        let mut html = format!(
            "<h1 id=\"{name}\">{title}</h1>\n<p class=\"where\">Measured by <code>bypath bench {name}</code>, version {}, on \
             {}.</p>\n{about}",
            env!("CARGO_PKG_VERSION"),
            page::escaped(&machine.summary()),
        );
        if let Some(load) = machine.load.filter(|l| *l > 0.3) {
            let _ = writeln!(
                html,
                "<p class=\"busy\">Other programs were running (load {load} when it began): these figures are provisional.</p>"
            );
        }
        html += &page::targets(checks);
        for line in &self.conclusions {
            let _ = writeln!(html, "<p>{}</p>", page::escaped(line));
        }
        for sheet in &self.sheets {
            html += &page::table(sheet);
        }
        let _ = writeln!(
            html,
            "<p class=\"where\">Beside this file: <a href=\"{name}.json\">{name}.json</a>, <a href=\"{name}.csv\">{name}.csv</a>.</p>"
        );
        html
    }
}

/// A page with a section between marks: in place of an older one, or at the end; a page of this title if there is none.
fn placed(page: Option<String>, name: &str, title: &str, section: &str) -> String {
    let page = page.filter(|p| p.contains("</body>")).unwrap_or_else(|| {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{}</style></head><body>\n</body></html>\n",
            page::STYLE
        )
    });
    let [begins, ends] = [format!("<!-- bench {name} -->\n"), format!("<!-- end of bench {name} -->\n")];
    let marked = format!("{begins}{section}{ends}");
    match (page.find(&begins), page.find(&ends)) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}{marked}{}", &page[..begin], &page[end + ends.len()..])
        }
        _ => page.replacen("</body>", &format!("{marked}</body>"), 1),
    }
}

fn csv(records: &[Record]) -> String {
    let mut csv = String::from("case,subject,mode,octets,metric,median,unit,status\n");
    for r in records {
        let f = &r.figure;
        let status = match r.status {
            Status::Ok => "ok",
            Status::Lossy => "lossy",
            Status::Corrupt => "corrupt",
            Status::Skipped => "skipped",
            Status::Failed => "failed",
        };
        let median = r.median.map_or_else(String::new, |v| format!("{v:.6}"));
        let (mode, size) = (f.mode.unwrap_or_default(), f.size.unwrap_or(0));
        let _ = writeln!(
            csv,
            "{},{},{mode},{size},{},{median},{},{status}",
            f.case,
            f.subject,
            f.metric,
            f.unit()
        );
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_once_and_replaced() {
        let with = |page, section| placed(page, "tun", "TUN packets", section);
        let alone = with(None, "one\n");
        assert!(alone.starts_with("<!doctype html>") && alone.contains("one\n"));
        let raw = "<html><body>\n<p>raw</p>\n</body></html>\n".to_owned();
        let both = with(Some(raw), "one\n");
        assert!(both.contains("<p>raw</p>") && both.contains("one\n"));
        let again = with(Some(both.clone()), "two\n");
        assert!(again.contains("<p>raw</p>") && again.contains("two\n") && !again.contains("one\n"));
        assert_eq!(again.matches("<!-- bench tun -->").count(), 1);
        let third = placed(Some(again), "roce", "RoCEv2", "three\n");
        assert!(third.contains("two\n") && third.contains("three\n"));
    }
}
