//! What the tests of one section of `bypath bench` need: a run, and its report in a page that is there.

use crate::common::TempDir;
use crate::network::{self, Ended, tool};
use serde_json::Value;

/// Runs a bench; `None` where there are no namespaces or no devices, which is said.
pub fn run(section: &str, test: &str, args: &[&str]) -> Option<Ended> {
    let ended = tool(&[&["bench", section, "--seconds", "0.03"], args].concat());
    let missing = ["no private network namespaces", "/dev/net/tun: "];
    if ended.code() == Some(1) && missing.iter().any(|m| ended.stderr.contains(m)) {
        network::skip(&format!("bench_{section}::{test}"), &ended.stderr);
        return None;
    }
    Some(ended)
}

/// The records of a run with `--json`.
pub fn records(ended: Ended) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&ended.expect(0).stdout).expect("JSON");
    document["results"].as_array().expect("an array").clone()
}

/// Reports twice into a folder whose page says something already: all of `words` are in the output, `title` is on the page,
/// once, and a line of the table begins with `row`.
pub fn joins_a_page(section: &str, args: &[&str], words: &[&str], title: &str, row: &str) {
    let folder = TempDir::new();
    let place = folder.path().to_str().expect("UTF-8").to_owned();
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    std::fs::write(folder.join("report.html"), "<html><body>\n<p>before</p>\n</body></html>\n")
        .expect("a page");
    for _ in 0..2 {
        let Some(ended) = run(section, "report", &[args, &["--report", &place]].concat()) else { return };
        let text = ended.expect(0).text();
        for words in words.iter().chain(&["report.html"]) {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    let page = read("report.html");
    assert!(page.contains("<p>before</p>") && page.contains(title), "{page}");
    assert_eq!(page.matches(&format!("<h1 id=\"{section}\">")).count(), 1);
    assert!(read(&format!("{section}.csv")).lines().any(|l| l.starts_with(row)));
    let document: Value = serde_json::from_str(&read(&format!("{section}.json"))).expect("JSON");
    assert_eq!(document["schema"], 1);
}
