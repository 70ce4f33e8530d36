//! The report's files.

use crate::common::TempDir;
use crate::run;
use std::path::Path;

/// Whether every element that begins also ends, in order; enough of a look at XML for drawings.
fn is_well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        if before.contains('>') {
            return Err(format!("a stray > in {before:?}"));
        }
        let (tag, behind) = after.split_once('>').ok_or("an unfinished tag")?;
        rest = behind;
        if tag.starts_with(['?', '!']) || tag.ends_with('/') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> ends nothing"));
            }
        } else {
            open.push(tag.split_whitespace().next().unwrap_or_default());
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("not ended: {open:?}")) }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn the_report_has_the_classic_charts_and_thirty_rows() {
    let folder = TempDir::new();
    let place = folder.join("out");
    let text = place.to_str().expect("UTF-8");
    let mut args = vec!["--link", "lo", "--trips", "5", "--report", text];
    args.extend(["--case", "round-trip", "--subject", "udp-sendto", "--subject", "raw-plain"]);
    let Some(ended) = run("report", &args) else { return };
    let ended = ended.expect(0);
    assert!(ended.text().contains("report.html"), "{}", ended.text());
    let page = read(&place, "report.html");
    for name in [
        "udp-by-link-spin",
        "raw-by-link-spin",
        "raw-against-udp-lo-spin",
        "udp-by-link-block",
        "raw-by-link-block",
        "raw-against-udp-lo-block",
    ] {
        let svg = read(&place, &format!("{name}.svg"));
        is_well_formed(&svg).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(svg.starts_with("<svg") && svg.contains("octets of payload"), "{name}");
        assert!(page.contains(&format!("<figure id=\"{name}\">")), "{name} is not in the page");
    }
    let body = page.split_once("<body>").expect("a body").1;
    is_well_formed(body.trim_end().strip_suffix("</body></html>").expect("an end")).expect("the page");
    let csv = read(&place, "round-trip.csv");
    let columns = csv.lines().next().expect("a heading").split(',').count();
    assert!(csv.lines().all(|l| l.split(',').count() == columns), "{csv}");
    for (mode, subject) in
        [("block", "udp-sendto"), ("block", "raw-plain"), ("spin", "udp-sendto"), ("spin", "raw-plain")]
    {
        let start = format!("lo,{mode},{subject},");
        let sizes: Vec<usize> =
            csv.lines().filter_map(|l| l.strip_prefix(&start)?.split(',').next()?.parse().ok()).collect();
        assert_eq!(sizes, (1..=30).map(|n| n * 50).collect::<Vec<_>>(), "{mode} {subject}");
    }
    let results: serde_json::Value = serde_json::from_str(&read(&place, "results.json")).expect("JSON");
    assert_eq!(results["results"].as_array().map(Vec::len), Some(120));
}

#[test]
fn throughput_is_drawn_and_listed() {
    let folder = TempDir::new();
    let place = folder.path();
    let text = place.to_str().expect("UTF-8");
    let mut args = vec!["--link", "lo", "--report", text, "--case", "throughput", "--size", "50"];
    args.extend(["--size", "1400"]);
    let Some(ended) = run("throughput_report", &args) else { return };
    let ended = ended.expect(0);
    assert!(ended.text().contains("NOT throughput"), "{}", ended.text());
    is_well_formed(&read(place, "throughput-lo.svg")).expect("the chart");
    let csv = read(place, "throughput.csv");
    for line in ["lo,raw-ring,1400,", "lo,udp-gso,50,", "lo,raw-sender-only,50,0.000,0.000,1.000,"] {
        assert!(csv.contains(line), "{line}: {csv}");
    }
    assert!(read(place, "report.html").contains("NOT throughput"));
}

#[test]
fn broken_drawings_are_found() {
    assert!(is_well_formed("<svg><a b=\"c\"/><t>x</t></svg>").is_ok());
    for broken in ["<svg><t></svg>", "<svg>", "</svg>", "<svg", "<a>></a>"] {
        assert!(is_well_formed(broken).is_err(), "{broken}");
    }
}

#[test]
fn drawing_costs_other_commands_no_library() {
    // A name of a library that is to be loaded stands in the file as it is.
    let file = std::fs::read(crate::common::BYPATH).expect("the command");
    let loads = |name: &[u8]| file.windows(name.len()).any(|w| w == name);
    assert!(loads(b"libc.so.6\0"), "names of libraries are not found in this way");
    assert!(!loads(b"libm.so.6\0"), "every `bypath run` would load the mathematics library");
}
