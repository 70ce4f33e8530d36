//! `--profile`: a flame graph of writes, of all sizes alike, with the checksum in software.
//!
//! Samples are taken in a process of its own, by a small C library that is loaded before libc, as
//! [`allocations`](mod@super::allocations) are counted; `addr2line` of the binutils tells what stands at an address, functions
//! that were made part of others included. The crates that do this are larger than this program's other dependencies together, or
//! not under licences that may be part of it; the drawing is rectangles.

use super::write::{Subject, Writer};
use crate::bench::c_program;
use crate::bench::context::Context;
use crate::bench::raw::report::escaped;
use bypath_sys::clock::monotonic_ns;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const SOURCE: &str = include_str!("../samples.c");
/// Where the library leaves its samples.
const SAMPLES: &str = "BYPATH_BENCH_SAMPLES";
/// What is outside of this function is not the stack's.
const ROOT: &str = "Writer::stretch";

/// Arguments of the process that is looked at.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Octets of payload (may be given several times)
    #[arg(long = "size")]
    pub sizes: Vec<u32>,
    /// For how long
    #[arg(long)]
    pub seconds: f64,
}

/// The process that is looked at: it writes.
pub fn run(args: &Args) -> ExitCode {
    let write = || -> Result<(), String> {
        let of = |size: &u32| Writer::new(Subject::Checksum, *size);
        let mut writers = args.sizes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let end = monotonic_ns() + (args.seconds * 1e9) as u64;
        while monotonic_ns() < end {
            for writer in &mut writers {
                writer.stretch()?;
            }
        }
        Ok(())
    };
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            crate::output::message(format_args!("bench: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// Takes samples of writes of these sizes, and draws them into a file.
///
/// # Errors
/// What is missing, or cannot be written.
pub fn draw(context: &Context, sizes: &[u32], to: &Path) -> Result<(), String> {
    let library = c_program::compile_with(context, "samples.so", SOURCE, &["-shared", "-fPIC"])?;
    let samples = context.scratch.fresh("samples");
    let mut command = Command::new(&context.exe);
    command.args(["bench", "profiled", "--seconds", if context.quick { "0.5" } else { "4" }]);
    for size in sizes {
        command.args(["--size", &size.to_string()]);
    }
    command.env("LD_PRELOAD", library).env(SAMPLES, &samples).stdin(Stdio::null());
    let out = command.output().map_err(|e| format!("cannot start {}: {e}", context.exe.display()))?;
    if !out.status.success() {
        return Err(format!("{} {}", out.status, String::from_utf8_lossy(&out.stderr).trim()));
    }
    let samples = std::fs::read_to_string(&samples).map_err(|e| format!("no samples were taken: {e}"))?;
    let names = names(&context.exe, &samples)?;
    let mut root = Node::default();
    for sample in samples.lines() {
        root.add(&stack(sample, &names));
    }
    if root.samples == 0 {
        return Err("no samples were taken in writes".into());
    }
    std::fs::write(to, root.svg()).map_err(|e| format!("cannot write {}: {e}", to.display()))
}

/// What stands at each address, the innermost function first.
type Names = BTreeMap<String, Vec<String>>;

fn names(exe: &Path, samples: &str) -> Result<Names, String> {
    let missing = |e: std::io::Error| format!("no program `addr2line` ({e}); Debian package: binutils");
    let mut command = Command::new("addr2line");
    command.args(["-a", "-i", "-f", "-C", "-e"]).arg(exe).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(missing)?;
    let mut all: Vec<&str> = samples.split_whitespace().filter(|word| word.starts_with("0x")).collect();
    all.sort_unstable();
    all.dedup();
    let mut stdin = child.stdin.take().ok_or("addr2line has no input")?;
    let text = all.join("\n") + "\n";
    // Beside the reading: its output does not wait for the end of its input.
    let writing = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let out = child.wait_with_output().map_err(missing)?;
    writing.join().map_err(|_| "addr2line: its input ended")?.map_err(missing)?;
    Ok(parsed(&String::from_utf8_lossy(&out.stdout)))
}

/// An address, then two lines for each function: its name, and where it stands.
fn parsed(text: &str) -> Names {
    let mut names = Names::new();
    let mut functions: Option<&mut Vec<String>> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(digits) = line.strip_prefix("0x") {
            let key = format!("0x{}", digits.trim_start_matches('0'));
            functions = Some(names.entry(key).or_default());
        } else {
            let _place = lines.next();
            if let Some(functions) = &mut functions {
                functions.push(short(line));
            }
        }
    }
    for functions in names.values_mut() {
        // Scopes without a name get that of the function that they became part of.
        if let Some(whole) = functions.pop() {
            functions.retain(|name| *name != whole);
            functions.push(whole);
        }
    }
    names
}

/// Without the hash at the end of a name of older mangling.
fn short(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((front, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            front.into()
        }
        _ => name.to_owned(),
    }
}

/// A sample, the outermost function first; nothing if it is not one of a write.
fn stack(sample: &str, names: &Names) -> Vec<String> {
    let mut inside_out: Vec<String> = Vec::new();
    for word in sample.split_whitespace() {
        match names.get(word) {
            Some(functions) => inside_out.extend(functions.iter().cloned()),
            None => inside_out.push(word.to_owned()),
        }
    }
    let root = inside_out.iter().rposition(|name| name.contains(ROOT));
    inside_out.truncate(root.map_or(0, |at| at + 1));
    inside_out.reverse();
    inside_out
}

/// Samples in a function and in what it calls.
#[derive(Default)]
struct Node {
    samples: u64,
    calls: BTreeMap<String, Node>,
}

/// Of the picture, in pixels.
const WIDTH: f64 = 1400.0;
const ROW: f64 = 18.0;
const LETTER: f64 = 6.6;
const HEAD: f64 = 44.0;

impl Node {
    fn add(&mut self, stack: &[String]) {
        if let [outermost, ..] = stack {
            self.samples += 1;
            let mut node = self.calls.entry(outermost.clone()).or_default();
            node.samples += 1;
            for name in &stack[1..] {
                node = node.calls.entry(name.clone()).or_default();
                node.samples += 1;
            }
        }
    }

    fn depth(&self) -> usize {
        self.calls.values().map(|n| n.depth() + 1).max().unwrap_or(0)
    }

    fn svg(&self) -> String {
        let height = HEAD + self.depth() as f64 * ROW + 10.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"10\" y=\"26\" font-size=\"15\">bypath bench stack, device-write: {} samples. Width is time; what a \
             function calls lies above it. Point at one for its name.</text>\n",
            self.samples
        );
        self.boxes(0.0, height - 10.0 - ROW, WIDTH / self.samples as f64, self.samples, &mut svg);
        svg + "</svg>\n"
    }

    /// What this calls, from `left` on, with its lower edge on `top` + a row.
    fn boxes(&self, mut left: f64, top: f64, scale: f64, all: u64, svg: &mut String) {
        for (name, node) in &self.calls {
            let width = node.samples as f64 * scale;
            // Narrower than that is not seen.
            if width >= 0.3 {
                let share = node.samples as f64 * 100.0 / all as f64;
                let hue = name.bytes().fold(7u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into())) % 50;
                let _ = write!(
                    svg,
                    "<g><title>{} ({} samples, {share:.1} %)</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                     height=\"{:.1}\" fill=\"hsl({hue},85%,65%)\"/>",
                    escaped(name),
                    node.samples,
                    (width - 0.3).max(0.3),
                    ROW - 1.0
                );
                let letters = ((width - 6.0) / LETTER) as usize;
                if letters >= 3 {
                    // The end of a path says more than its beginning.
                    let skipped = name.chars().count().saturating_sub(letters);
                    let shown: String = name.chars().skip(skipped).collect();
                    let _ = write!(
                        svg,
                        "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                        left + 3.0,
                        top + 13.0,
                        escaped(&shown)
                    );
                }
                svg.push_str("</g>\n");
                node.boxes(left, top - ROW, scale, all, svg);
            }
            left += width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_become_rectangles() {
        let text = "0x0000000000000010\ncopy<u8>::h0123456789abcdef\n??:0\nbench::Writer::stretch\n??:0\nbench::Writer::stretch\nwrite.rs:7\n\
                    0x0000000000000020\nmain\n??:0\n";
        let names = parsed(text);
        let found = stack("memcpy 0x10 0x20 __libc_start_main", &names);
        assert_eq!(found, ["bench::Writer::stretch", "copy<u8>", "memcpy"]);
        assert!(stack("0x20", &names).is_empty());
        let mut root = Node::default();
        root.add(&found);
        root.add(&found[..2]);
        let svg = root.svg();
        assert!(svg.contains("2 samples") && svg.contains("copy&lt;u8&gt; (2 samples, 100.0 %)"), "{svg}");
        assert!(svg.contains("memcpy (1 samples, 50.0 %)") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
