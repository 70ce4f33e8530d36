//! What writes take from malloc: counted in a process of its own, whose malloc counts.
//!
//! A counting allocator in this program would be in every program that `bypath` ever starts or is, and would need unsafe code
//! in it. So the counting one comes from outside: a small C library, compiled when the bench begins, that is loaded before
//! libc into this same program. It writes its counts into a file; the process reads that, which takes no memory.

use super::figure;
use super::write::{STRETCH, Subject, Writer};
use crate::bench::c_program;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

const SOURCE: &str = include_str!("../allocations.c");
/// Where the library counts.
const COUNTS: &str = "BYPATH_BENCH_COUNTS";
/// Stretches of writes that are counted.
const STRETCHES: u32 = 10;
/// Octets that are taken to see whether it counts.
const KNOWN: usize = 12_345;

/// Arguments of the process that counts.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Who computes the checksum
    #[arg(long, value_enum)]
    pub subject: Subject,
    /// Octets of payload
    #[arg(long)]
    pub size: u32,
}

/// What it prints.
#[derive(serde::Serialize, serde::Deserialize)]
struct Printed {
    calls: u64,
    octets: u64,
    writes: u64,
}

/// The library, or why there is none.
pub fn library(context: &Context) -> Result<PathBuf, String> {
    c_program::compile_with(context, "allocations.so", SOURCE, &["-shared", "-fPIC"])
}

/// The process that counts.
pub fn run(args: &Args) -> ExitCode {
    match counted(args) {
        Ok(printed) => {
            println!("{}", serde_json::to_string(&printed).expect("plain data"));
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::output::message(format_args!("bench: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn counted(args: &Args) -> Result<Printed, String> {
    let path = std::env::var_os(COUNTS).ok_or("started by hand: it is part of `bypath bench stack`")?;
    let file = File::open(path).map_err(|e| e.to_string())?;
    let read = || -> Result<[u64; 2], String> {
        let mut octets = [0; 16];
        file.read_exact_at(&mut octets, 0).map_err(|e| e.to_string())?;
        let (calls, sum) = octets.split_at(8);
        Ok([calls, sum].map(|n| u64::from_ne_bytes(n.try_into().expect("8 octets"))))
    };
    let difference = |before: [u64; 2], after: [u64; 2]| [after[0] - before[0], after[1] - before[1]];
    let before = read()?;
    drop(black_box(vec![1u8; black_box(KNOWN)]));
    let known = difference(before, read()?);
    if known != [1, KNOWN as u64] {
        return Err(format!(
            "allocations cannot be counted here: of one of {KNOWN} octets, {known:?} was seen"
        ));
    }
    let mut writer = Writer::new(args.subject, args.size)?;
    writer.stretch()?;
    let before = read()?;
    for _ in 0..STRETCHES {
        writer.stretch()?;
    }
    let [calls, octets] = difference(before, read()?);
    Ok(Printed { calls, octets, writes: u64::from(STRETCHES * STRETCH) })
}

/// The same writes as in [`Write`](super::write::Write), counted.
pub struct Allocations {
    pub subject: Subject,
    pub size: u32,
    pub library: Result<PathBuf, String>,
}

impl Job for Allocations {
    fn title(&self) -> String {
        format!("allocations {} B {}", self.size, self.subject.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        let of = |metric| figure("device-write", self.subject.name(), self.size, None, metric);
        vec![of("allocs_per_op"), of("bytes_per_op")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let library = self.library.as_ref().map_err(|e| Trouble::Skipped(e.clone()))?;
        let counts = context.scratch.fresh("counts");
        std::fs::write(&counts, [0; 16]).map_err(|e| format!("{}: {e}", counts.display()))?;
        let mut command = Command::new(&context.exe);
        command.args(["bench", "allocations", "--subject", self.subject.name()]);
        command.args(["--size", &self.size.to_string()]).stdin(Stdio::null());
        command.env("LD_PRELOAD", library).env(COUNTS, &counts);
        let out = command.output().map_err(|e| format!("cannot start {}: {e}", context.exe.display()))?;
        let printed: Printed = serde_json::from_slice(&out.stdout)
            .map_err(|_| format!("{} {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))?;
        let each = |n: u64| Sample::Value(n as f64 / printed.writes as f64);
        let samples = [each(printed.calls), each(printed.octets)];
        Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note: None })
    }
}
