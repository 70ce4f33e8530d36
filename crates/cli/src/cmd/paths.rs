//! `bypath recall` and `bypath upgrade`: another path for connections that live.

use super::ss;
use crate::args::Json;
use crate::aside;
use crate::connections::{self, Connection, Scan, Sockets, Word, is_trusted};
use crate::output::{self, Failure, Outcome};
use crate::subject::{Subject, out_of_reach};
use bypath::clock::monotonic_ns;
use bypath_shm::family::wish;
use bypath_shm::region;
use bypath_shm::view::{End, Path};
use bypath_sockets::request::{self, Delivery};
use bypath_sys::process::shown_thread;
use serde::Serialize;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// PID is not under Bypath, or holds no such connection.
const NOT_FOLLOWED: u8 = 1;
/// The process cannot be reached: there is none, or it belongs to another user.
const CANNOT_ASK: u8 = 3;
/// It was asked, and has not done it yet.
const NOT_YET: u8 = 4;

/// For so long (ns) connections are asked, and who sleeps is woken: a process says itself how many they are.
const ASKING_NS: u64 = 2_000_000_000;

/// Results of what is not done.
const ASKED: &str = "asked";
const NOT_ASKED: &str = "not asked";

/// Arguments of `bypath recall`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath recall 1234        all connections that process 1234 has now\n  \
    bypath recall 1234:7      the one on descriptor 7\n\n\
    The program notices nothing: bytes in shared memory are sent through the kernel. The connections stay there until\n\
    `bypath upgrade`; new ones are not concerned (--upgrade=off and rules are for these). UDP sockets stay as they are.\n\n\
    Exit status: 0 if it is done, 1 if the process holds no such connection under Bypath, 2 for wrong usage, 3 if the\n\
    process cannot be reached, 4 if it was asked and has not done it yet, or there was no time to ask.")]
pub struct RecallArgs {
    #[command(flatten)]
    common: Common,
}

/// Arguments of `bypath upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath upgrade 1234       all connections that process 1234 has now\n  \
    bypath upgrade 1234:7     the one on descriptor 7\n\n\
    The next bytes make an attempt, however few the connection has carried and whatever earlier attempts came to. What\n\
    rules, limits or the program's own calls forbid stays forbidden: see `bypath why`. Both ends are asked if both are\n\
    seen. A connection that carries nothing stays as it is.\n\n\
    Exit status: 0 if the connections are in shared memory, 1 if the process holds no such connection under Bypath, 2\n\
    for wrong usage, 3 if the process cannot be reached, 4 if it was asked and they are not in shared memory yet, or there\n\
    was no time to ask.")]
pub struct UpgradeArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// A process, or one of its descriptors
    #[arg(value_name = "PID[:FD]")]
    subject: Subject,

    /// Seconds to wait until it is done
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    wait: f64,

    #[command(flatten)]
    json: Json,
}

fn seconds(text: &str) -> Result<f64, &'static str> {
    text.parse().ok().filter(|s| (0.0..=3600.0).contains(s)).ok_or("expected seconds, 0 to 3600")
}

/// Brings connections back.
pub fn recall(args: &RecallArgs) -> Outcome {
    change(&args.common, wish::RECALL, |end| {
        end.wish == wish::NONE && end.outgoing.path == Path::Kernel && end.incoming.path == Path::Kernel
    })
}

/// Has connections tried again.
pub fn upgrade(args: &UpgradeArgs) -> Outcome {
    change(&args.common, wish::UPGRADE, |end| {
        end.outgoing.path == Path::Ring && end.incoming.path == Path::Ring
    })
}

/// A connection in the answer.
#[derive(Serialize)]
struct Record {
    pid: u32,
    command: String,
    fd: i32,
    local: Option<String>,
    remote: Option<String>,
    before: String,
    path: String,
    reason: String,
    /// `done`, `asked`, `not asked`, `closed`.
    result: &'static str,
}

fn change(args: &Common, wish: u32, is_done: impl Fn(&End) -> bool) -> Outcome {
    let Subject { pid, fd } = args.subject;
    if !connections::exists(pid) {
        return Err(Failure::new(CANNOT_ASK, format_args!("there is no process {pid}")));
    }
    if let Err(e) = std::fs::read_dir(format!("/proc/{}/fd", shown_thread(pid))) {
        return Err(cannot_ask(pid, &e));
    }
    let scan = ss::scan()?;
    let all = scan.connections();
    let chosen: Vec<_> =
        all.iter().filter(|c| c.process.pid == pid && fd.is_none_or(|fd| fd == c.end.fd)).collect();
    if chosen.is_empty() {
        return Err(none_found(&scan, args.subject));
    }
    let late = monotonic_ns() + ASKING_NS;
    let mut asked = Vec::new();
    for c in &chosen {
        asked.push(ask(c, wish, late)?);
    }
    if wish == wish::UPGRADE {
        ask_other_ends(&scan.sockets(), &chosen, &all, late);
    }
    let until = Instant::now() + Duration::from_secs_f64(args.wait);
    let records = loop {
        let records = look_again(&chosen, &asked, &is_done);
        if Instant::now() >= until || records.iter().all(|r| r.result != ASKED) {
            break records;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    match args.json.target() {
        Some(target) => output::json(&target, &records)?,
        None => output::print(&text(&records))?,
    }
    let are = |result| records.iter().any(|r| r.result == result);
    if are(ASKED) {
        let asleep = asked.contains(&Some(Delivery::Asleep));
        output::message(match (wish, asleep) {
            (wish::RECALL, true) => {
                "asked; the process sleeps and may not be woken by this user, and does it before it sends or receives again"
            }
            (wish::RECALL, false) => "asked; a direction comes back before its next byte",
            _ => "asked; connections move with their next bytes, if both ends agree (see: bypath why)",
        });
    }
    if are(NOT_ASKED) {
        output::message(
            "there was no time to ask all connections: ask again, or those that matter by PID:FD",
        );
    }
    Ok(if are(ASKED) || are(NOT_ASKED) { ExitCode::from(NOT_YET) } else { ExitCode::SUCCESS })
}

/// Asks the other ends of those chosen, too, as far as there is time. What they are, their own processes say: who says it of a connection
/// of another user's is asked only if he has that socket, and of one that cannot be asked nothing depends.
fn ask_other_ends(sockets: &Sockets, chosen: &[&Connection], all: &[Connection], late: u64) {
    for c in chosen {
        let word = c.family.word();
        for other in all.iter().filter(|other| c.is_other_end_of(other)) {
            let is_believed = [Word::Trusted, word].contains(&other.family.word())
                || other.end.cookie.and_then(|cookie| sockets.believed(word, cookie)).is_some_and(
                    |(family, end)| std::ptr::eq(family, other.family) && std::ptr::eq(end, other.end),
                );
            if is_believed {
                let _ = ask(other, wish::UPGRADE, late);
            }
        }
        if monotonic_ns() > late {
            break;
        }
    }
}

fn cannot_ask(pid: u32, error: &std::io::Error) -> Failure {
    Failure::new(CANNOT_ASK, format_args!("process {pid} cannot be asked: {error} ({})", out_of_reach()))
}

fn none_found(scan: &Scan, Subject { pid, fd }: Subject) -> Failure {
    let message = match (scan.family_of(pid), fd) {
        (None, _) => {
            format!("process {pid} is not under Bypath, or has opened no socket yet; see: bypath why {pid}")
        }
        (Some(_), None) => format!("process {pid} has no connection at the moment"),
        (Some(_), Some(fd)) => {
            format!(
                "descriptor {fd} of process {pid} is no connection that Bypath follows; see: bypath why {pid}:{fd}"
            )
        }
    };
    Failure::new(NOT_FOLLOWED, format!("{message}{}", of_datagrams(scan, pid, fd)))
}

/// What to say where UDP sockets are all that is there.
fn of_datagrams(scan: &Scan, pid: u32, fd: Option<i32>) -> &'static str {
    let is_one = |u: &connections::Udp<'_>| u.process.pid == pid && fd.is_none_or(|fd| u.socket.fd == fd);
    if !scan.datagrams().iter().any(is_one) {
        return "";
    }
    ". Its UDP sockets have no connection to be moved, and stay as they are: each datagram finds its way by itself. To keep them on the \
     kernel start the program with --upgrade=off, or under a rule (protocol = \"udp\", action = \"kernel\")"
}

/// `None`: it was too late to ask.
fn ask(c: &Connection, wish: u32, late: u64) -> Result<Option<Delivery>, Failure> {
    if monotonic_ns() > late {
        return Ok(None);
    }
    let mut holders: Vec<_> = c.family.holders(c.end).collect();
    holders.sort_by_key(|member| !is_trusted(member.user));
    let last = holders.last().map_or(c.process.process(), |member| member.process());
    let holders: Vec<_> = holders.into_iter().map(|member| member.pid).collect();
    let (number, generation) = (c.end.number, c.end.generation);
    let leave = move |region: File| {
        let left = region::with_family(region.as_raw_fd(), |family| {
            request::leave(family, number, generation, wish, holders.into_iter(), late)
        });
        std::io::Result::Ok(left??)
    };
    // Of who cannot be woken soon nobody knows whether he sleeps.
    let asked = c
        .family
        .open()
        .and_then(|region| aside::of(last, move |_| leave(region)).unwrap_or(Ok(Delivery::Asleep)));
    asked.map(Some).map_err(|e| cannot_ask(c.process.pid, &e))
}

/// What became of each. They are one process's: its region is opened once, and not for each of its connections, which are as many as it likes.
fn look_again(
    chosen: &[&Connection],
    asked: &[Option<Delivery>],
    is_done: &impl Fn(&End) -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    let mut asked = asked.iter().map(Option::is_some);
    for of_family in chosen.chunk_by(|a, b| std::ptr::eq(a.family, b.family)) {
        let now = of_family[0].family.ends_now();
        let outcome = |(c, asked): (&&Connection, bool)| outcome(c, now(c.end.number), asked, is_done);
        records.extend(of_family.iter().zip(asked.by_ref()).map(outcome));
    }
    records
}

fn outcome(c: &Connection, now: Option<End>, asked: bool, is_done: &impl Fn(&End) -> bool) -> Record {
    let now = now.filter(|now| now.generation == c.end.generation);
    let result = match &now {
        None => "closed",
        Some(end) if is_done(end) => "done",
        Some(_) if asked => ASKED,
        Some(_) => NOT_ASKED,
    };
    let now = Connection { end: now.as_ref().unwrap_or(c.end), ..*c };
    Record {
        pid: c.process.pid,
        command: c.process.command.clone(),
        fd: c.end.fd,
        local: c.end.local.map(|a| a.to_string()),
        remote: c.end.remote.map(|a| a.to_string()),
        before: c.path_code(),
        path: now.path_code(),
        reason: now.reason_code(),
        result,
    }
}

fn text(records: &[Record]) -> String {
    let heading = ["PID", "COMMAND", "FD", "LOCAL", "REMOTE", "BEFORE", "NOW", "REASON", "RESULT"];
    let mut table = output::table(&heading, &["PID", "FD"]);
    let dash = |a: &Option<String>| a.clone().unwrap_or_else(|| "-".to_owned());
    for r in records {
        table.add_row([
            r.pid.to_string(),
            output::printable(&r.command),
            r.fd.to_string(),
            dash(&r.local),
            dash(&r.remote),
            r.before.clone(),
            r.path.clone(),
            r.reason.clone(),
            r.result.to_owned(),
        ]);
    }
    output::lines(&table)
}
