//! The report: one HTML page that needs nothing else, the charts as files, tables for other programs.

use super::charts::{self, Chart};
use super::tables::{self, Sheet};
use crate::bench::machine::Machine;
use crate::bench::record::{Record, Status};
use crate::bench::table::Check;
use std::fmt::Write as _;
use std::path::Path;

/// Writes it to a directory, which is made if it is not there.
///
/// # Errors
/// What cannot be written, or drawn.
pub fn write(
    folder: &Path,
    machine: &Machine,
    records: &[Record],
    checks: &[Check],
    document: &[u8],
) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    let charts = charts::all(records)?;
    for chart in &charts {
        put(&format!("{}.svg", chart.file), chart.svg.as_bytes())?;
    }
    put("results.json", document)?;
    put("round-trip.csv", round_trips(records).as_bytes())?;
    put("throughput.csv", throughput(records).as_bytes())?;
    put("report.html", page(machine, records, checks, &charts).as_bytes())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |v| format!("{v:.3}"))
}

/// A line for each size, link, mode and subject; microseconds.
fn round_trips(records: &[Record]) -> String {
    let mut csv = String::from("link,mode,subject,octets,round_trips,mean_us,p50_us,p99_us,status\n");
    for r in records.iter().filter(|r| r.figure.case == "round-trip") {
        let f = &r.figure;
        let us = |v: Option<f64>| number(v.map(|v| v / 1e3));
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{},{},{},{}",
            f.link.as_deref().unwrap_or_default(),
            f.mode.unwrap_or_default(),
            f.subject,
            f.size.unwrap_or(0),
            r.n.unwrap_or(0),
            us(r.mean),
            us(r.p50),
            us(r.p99),
            status(r),
        );
    }
    csv
}

/// A line for each size, link and subject.
fn throughput(records: &[Record]) -> String {
    let names = super::throughput::METRICS;
    let mut csv = format!("link,subject,octets,{},sent_bytes_per_s,status\n", names.join(","));
    let first = |r: &&Record| {
        r.figure.case == "throughput" && [names[0], "sent_bytes_per_s"].contains(&r.figure.metric)
            // Of those that only send the figures begin with what they sent.
            && (r.figure.metric == "sent_bytes_per_s") == r.figure.subject.ends_with("-sender-only")
    };
    for row in records.iter().filter(first) {
        let f = &row.figure;
        let of = |metric: &str| {
            let fits = |r: &&Record| {
                let o = &r.figure;
                o.metric == metric
                    && o.case == f.case
                    && (&o.link, o.subject, o.size) == (&f.link, f.subject, f.size)
            };
            number(records.iter().find(fits).and_then(|r| match metric {
                "loss_ratio" => r.median.map(|v| (v * 1e9).round() / 1e9),
                _ => r.median,
            }))
        };
        let cells: Vec<String> = names.iter().map(|m| of(m)).collect();
        let _ = writeln!(
            csv,
            "{},{},{},{},{},{}",
            f.link.as_deref().unwrap_or_default(),
            f.subject,
            f.size.unwrap_or(0),
            cells.join(","),
            of("sent_bytes_per_s"),
            status(row),
        );
    }
    csv
}

fn status(record: &Record) -> &'static str {
    match record.status {
        Status::Ok => "ok",
        Status::Lossy => "lossy",
        Status::Corrupt => "corrupt",
        Status::Skipped => "skipped",
        Status::Failed => "failed",
    }
}

/// Text in HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The look of the page.
pub const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1000px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em; margin-bottom: .2em } h2 { font-size: 1.2em; margin-top: 2.2em }
.where { color: #555 } .busy { color: #a40000; font-weight: 600 }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: .2em .7em; text-align: right; white-space: nowrap; border-bottom: 1px solid #e4e4e4 }
th { border-bottom: 2px solid #888; font-weight: 600 } .t { text-align: left } tr.gap td { border: 0; height: .6em }
.met { color: #00703c; font-weight: 600 } .missed { color: #a40000; font-weight: 600 }
figure { margin: 1.5em 0 } svg { width: 100%; height: auto } .note { color: #444 } li { margin: .3em 0 }
";

fn page(machine: &Machine, records: &[Record], checks: &[Check], charts: &[Chart]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Raw Ethernet and UDP</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>Raw Ethernet and UDP</h1>\n<p class=\"where\">Measured by <code>bypath bench raw</code>, version {}, on {}.</p>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(&machine.summary()),
    );
    if let Some(load) = machine.load.filter(|l| *l > 0.3) {
        let _ = writeln!(
            html,
            "<p class=\"busy\">Other programs were running (load {load} when it began): these figures are provisional.</p>"
        );
    }
    html += "<p>Two programs, each on a core of its own, one at each end of a link. What counts is what arrived: every \
             octet of every frame is compared with what was sent. In each round every subject has one run; a figure is the \
             median of its runs.</p>\n";
    html += &targets(checks);
    for chart in charts {
        let _ = writeln!(html, "<figure id=\"{}\">{}</figure>", chart.file, inline(&chart.svg, &chart.title));
    }
    for sheet in tables::sheets(records) {
        html += &table(&sheet);
    }
    let notes = tables::note_lines(records);
    if !notes.is_empty() {
        html += "<h2>Notes</h2>\n<ul>\n";
        for note in notes {
            let _ = writeln!(html, "<li>{}</li>", escaped(&note));
        }
        html += "</ul>\n";
    }
    html += "<p class=\"where\">Beside this file: <a href=\"results.json\">results.json</a>, \
             <a href=\"round-trip.csv\">round-trip.csv</a>, <a href=\"throughput.csv\">throughput.csv</a>, and the charts as SVG.</p>\n\
             </body></html>\n";
    html
}

/// A drawing inside the page: of any width, with a name for who does not see it.
fn inline(svg: &str, title: &str) -> String {
    let sized = "width=\"960\" height=\"460\"";
    svg.replacen(sized, &format!("role=\"img\" aria-label=\"{}\"", escaped(title)), 1)
}

/// The targets that were measured.
pub fn targets(checks: &[Check]) -> String {
    let measured: Vec<&Check> = checks.iter().filter(|c| c.measured.is_some()).collect();
    if measured.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>Targets</h2>\n<div class=\"wide\"><table><tr><th class=\"t\">What</th><th class=\"t\">Target</th>\
         <th class=\"t\">Measured</th><th></th></tr>\n",
    );
    for check in measured {
        let (class, verdict) = if check.met { ("met", "met") } else { ("missed", "missed") };
        let _ = writeln!(
            html,
            "<tr><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"t\">{}</td><td class=\"{class}\">{verdict}</td></tr>",
            escaped(&check.what),
            escaped(&check.target),
            escaped(check.measured.as_deref().unwrap_or_default()),
        );
    }
    html + "</table></div>\n"
}

/// A table with its title and note.
pub fn table(sheet: &Sheet) -> String {
    let cell = |tag: &str, at: usize, text: &str| {
        let class = if at < sheet.texts { " class=\"t\"" } else { "" };
        format!("<{tag}{class}>{}</{tag}>", escaped(text))
    };
    let heading: String = sheet.heading.iter().enumerate().map(|(at, h)| cell("th", at, h)).collect();
    let mut html =
        format!("<h2>{}</h2>\n<div class=\"wide\"><table><tr>{heading}</tr>\n", escaped(&sheet.title));
    for row in &sheet.rows {
        let cells: String = row.iter().enumerate().map(|(at, text)| cell("td", at, text)).collect();
        let _ = match row.is_empty() {
            true => writeln!(html, "<tr class=\"gap\"><td colspan=\"{}\"></td></tr>", sheet.heading.len()),
            false => writeln!(html, "<tr>{cells}</tr>"),
        };
    }
    let _ = writeln!(html, "</table></div>\n<p class=\"note\">{}</p>", escaped(sheet.note));
    html
}
