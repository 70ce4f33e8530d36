//! `bypath top`: connections and what they do, live.
//!
//! Everything is read from outside, as by `bypath ss`: programs do nothing for it, and may be stopped or dead.

mod model;
mod screen;

use crate::args::Json;
use crate::cmd::ss;
use crate::ending;
use crate::filter::Filter;
use crate::output::{self, Failure, Outcome};
use model::{Row, Sampler, Sort, matches};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Screen, time};
use std::io::{IsTerminal as _, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Arguments of `bypath top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath top\n  \
    bypath top --sort spin --filter redis\n  \
    bypath top port 6379 and not comm redis-cli\n  \
    bypath top --once --json | jq '.[0]'\n\n\
    Keys: q leave, p pause, s sort, r reverse, / filter, ? help, arrows. A connection stands once for each process that\n\
    holds it. WAIT is an estimate: bytes in the ring, by those sent in a second. SPIN is that of the whole process.\n\
    DROPS are datagrams that were lost for want of room; streams lose nothing. FILTER is that of bypath ss and dump.\n\n\
    Exit status: 0; 1 if there is no terminal (use --once), or processes cannot be listed; 2 for wrong usage.")]
pub struct Args {
    /// Time between two looks, in seconds
    #[arg(long, short = 'd', value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// By what is sorted at first
    #[arg(long, value_enum, default_value = "rate")]
    sort: Sort,

    /// Only connections in which every one of these words stands: pid, name, address, path, reason
    #[arg(long, value_name = "WORDS", default_value = "")]
    filter: String,

    /// Look twice, print, and end
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    json: Json,

    /// Only what this lets through, such as: port 80 and not host 10.0.0.1
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    only: Vec<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|s: &f64| (0.1..=3600.0).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected 0.1 to 3600 seconds".to_owned())
}

fn unlisted(e: std::io::Error) -> Failure {
    Failure::new(1, format_args!("cannot list processes in /proc: {e}"))
}

/// Prints once, or shows until the user leaves.
pub fn run(args: Args) -> Outcome {
    let only = Filter::read(&args.only).map_err(|e| Failure::new(2, format_args!("the filter: {e}")))?;
    let mut sampler = Sampler::of(only);
    if args.once || args.json.target().is_some() {
        return once(&args, &mut sampler);
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        return Err(Failure::new(
            1,
            "there is no terminal to show it on; print it once with: bypath top --once",
        ));
    }
    let asked = Arc::new(AtomicBool::new(false));
    ending::watch(&asked).map_err(|e| Failure::new(1, e))?;
    let mut terminal = ratatui::try_init().map_err(|e| Failure::new(1, format_args!("the terminal: {e}")))?;
    let result = live(&mut terminal, &args, &mut sampler, &asked);
    ratatui::restore();
    result.map_err(|e| Failure::new(1, format_args!("the terminal: {e}")))?;
    Ok(ExitCode::SUCCESS)
}

fn once(args: &Args, sampler: &mut Sampler) -> Outcome {
    ss::scan()?;
    let begun = Instant::now();
    sampler.look(begun.elapsed()).map_err(unlisted)?;
    std::thread::sleep(args.interval);
    let mut rows = sampler.look(begun.elapsed()).map_err(unlisted)?;
    rows.retain(|row| matches(row, &args.filter));
    args.sort.sort(&mut rows, false);
    match args.json.target() {
        Some(target) => output::json(&target, &rows)?,
        None => output::print(&text(&rows))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn live(
    terminal: &mut ratatui::DefaultTerminal,
    args: &Args,
    sampler: &mut Sampler,
    asked: &AtomicBool,
) -> std::io::Result<()> {
    let begun = Instant::now();
    let mut screen = Screen::new(args.sort, args.filter.clone());
    let mut next = Duration::ZERO;
    while !asked.load(Relaxed) {
        let now = begun.elapsed();
        if now >= next && !screen.paused {
            match sampler.look(now) {
                Ok(rows) => screen.show(rows),
                Err(e) => screen.fail(format!("cannot list processes in /proc: {e}")),
            }
        }
        if now >= next {
            next = now + args.interval;
        }
        terminal.draw(|frame| screen.draw(frame))?;
        // A signal is seen soon, whatever the interval.
        let wait = next.saturating_sub(begun.elapsed()).min(Duration::from_millis(250));
        let ready = match event::poll(wait) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            ready => ready?,
        };
        if ready
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && screen.key(key)
        {
            break;
        }
    }
    Ok(())
}

fn text(rows: &[Row]) -> String {
    const HEADING: [&str; 13] = [
        "PID", "COMMAND", "PROTO", "FD", "LOCAL", "REMOTE", "PATH", "REASON", "TX/S", "RX/S", "WAIT", "SPIN",
        "DROPS",
    ];
    let mut table = output::table(&HEADING, &["PID", "FD", "TX/S", "RX/S", "WAIT", "SPIN", "DROPS"]);
    let address = |a: &Option<String>| a.clone().unwrap_or_else(|| "-".to_owned());
    for row in rows {
        table.add_row([
            format!("{}{}", row.pid, if row.stopped { " T" } else { "" }),
            output::printable(&row.command),
            row.protocol.to_owned(),
            row.fd.to_string(),
            address(&row.local),
            address(&row.remote),
            row.path.clone(),
            row.reason.clone(),
            output::bytes(row.tx_rate),
            output::bytes(row.rx_rate),
            row.wait_ns.map_or("-".to_owned(), time),
            row.spin_percent.map_or("-".to_owned(), |p| format!("{p:.0}%")),
            row.drops.to_string(),
        ]);
    }
    output::lines(&table)
}
