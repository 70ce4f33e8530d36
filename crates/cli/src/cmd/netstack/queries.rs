//! `bypath netstack ls`, `sockets`, `stats`, `addr`, `route` and `neigh`: what a service says of itself.

use super::found::{self, DEFAULT_NAME};
use super::look::Look;
use super::rows::{self, Object, Refused, Room, Unread};
use super::serve;
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use bypath_netstack::service::{Patience, QueryError, Reached};
use bypath_sockets::service::place::Named;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `bypath netstack ls`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "STATE: running; starting: its addresses are not known to be free yet (`bypath run --netstack` waits for it); not for this user: its\n\
    settings name who may use it; of another user: it is not asked, as its folder is for this user's and root's alone; left behind: it has ended without a word; no answer: is its process stopped?;\n    not asked: other services of its user's, or of other users, have taken the time that there is for them\n\n\
    Exit status: 0, 1 if none answers."
)]
pub struct LsArgs {
    #[command(flatten)]
    json: Json,
}

/// Arguments of the others.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0, 1 if no service of this name is running, 2 for wrong usage.")]
pub struct Args {
    /// The service
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME, value_parser = serve::name)]
    name: String,

    #[command(flatten)]
    json: Json,
}

/// Arguments of `bypath netstack stats`.
#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    #[command(flatten)]
    args: Args,

    /// Counters that are zero, too
    #[arg(long)]
    all: bool,
}

/// How long the answer of a service that was named may take: 100000 rows of one on a busy machine.
pub const LONGEST: Duration = Duration::from_secs(60);

/// So long nobody is told that a list is long.
const LONG: Duration = Duration::from_secs(1);

/// All that a service answers to a question, where those are few rows.
///
/// # Errors
/// It does not answer, or not in a way that is understood.
pub fn ask(path: &Path, what: &str) -> Result<Vec<Object>, Failure> {
    let rows = rows::kept(&mut Room::few(), path, |each| query(path, what, each));
    rows.map_err(|e| Failure::new(1, e))
}

fn query(path: &Path, what: &str, each: impl FnMut(&str) -> bool) -> Result<(), QueryError> {
    let patience = Patience { row: found::PATIENCE, whole: LONGEST };
    Reached::at(path)?.query(&json!({ "what": what }).to_string(), patience, each)
}

/// A list: what is asked, and its columns by heading, key, and whether it is a number.
pub struct List {
    what: &'static str,
    columns: &'static [(&'static str, &'static str, bool)],
    /// What to say if it is empty.
    none: &'static str,
}

/// As `ss -tua`.
pub const SOCKETS: List = List {
    what: "sockets",
    columns: &[
        ("PROTOCOL", "protocol", false),
        ("STATE", "state", false),
        ("UNREAD", "unread", true),
        ("UNACKED", "unacknowledged", true),
        ("UNSENT", "unsent", true),
        ("LOCAL", "local", false),
        ("REMOTE", "remote", false),
        ("UID", "uid", true),
        ("COOKIE", "cookie", false),
    ],
    none: "no sockets",
};

/// As `ip addr`.
pub const ADDRESSES: List = List {
    what: "addresses",
    columns: &[("LINK", "interface", false), ("ADDRESS", "address", false), ("STATE", "state", false)],
    none: "no addresses",
};

/// As `ip route`.
pub const ROUTES: List = List {
    what: "routes",
    columns: &[
        ("TO", "destination", false),
        ("VIA", "via", false),
        ("LINK", "interface", false),
        ("METRIC", "metric", true),
    ],
    none: "no routes",
};

/// As `ip neigh`.
pub const NEIGHBORS: List = List {
    what: "neighbors",
    columns: &[
        ("ADDRESS", "address", false),
        ("MAC", "mac", false),
        ("STATE", "state", false),
        ("LINK", "interface", false),
    ],
    none: "no neighbours",
};

impl List {
    /// Prints it.
    pub fn run(&self, args: &Args) -> Outcome {
        let path = found::running(&args.name, 1)?;
        let all = self.ask(&args.name, &path)?;
        match args.json.target() {
            Some(target) => output::json(&target, &all)?,
            None if all.is_empty() => output::message(self.none),
            None => self.print(&all, |row| self.cells(&row.object()), output::print)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The rows, as far as there is room for them. Who has to wait is told.
    fn ask(&self, name: &str, path: &Path) -> Result<Vec<Unread>, Failure> {
        let (mut room, mut all, mut refused) = (Room::many(), Vec::new(), None);
        let (begun, mut is_told) = (Instant::now(), false);
        query(path, self.what, |text| {
            if !is_told && begun.elapsed() >= LONG {
                is_told = true;
                let seconds = LONGEST.as_secs();
                output::message(format_args!(
                    "the netstack service {name} has a long answer: waiting for its end, {seconds} s at most"
                ));
            }
            match room.read(text) {
                Ok(_) => all.push(Unread::new(text)),
                Err(why) => refused = Some(why),
            }
            refused.is_none()
        })
        .map_err(|e| Failure::new(1, e))?;
        match refused {
            Some(Refused::Malformed) => return Err(Failure::new(1, Refused::Malformed.of(path))),
            Some(Refused::Full) => output::message(format_args!(
                "note: the answer of the netstack service {name} is too long: what comes after {} rows is left out",
                all.len()
            )),
            None => {}
        }
        Ok(all)
    }

    fn cells(&self, object: &Object) -> Vec<String> {
        self.columns.iter().map(|(_, key, _)| cell(object.get(*key))).collect()
    }

    fn print<R>(
        &self,
        all: &[R],
        cells: impl Fn(&R) -> Vec<String>,
        print: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let headings: Vec<&str> = self.columns.iter().map(|(heading, ..)| *heading).collect();
        let numbers: Vec<&str> = self.columns.iter().filter(|c| c.2).map(|(heading, ..)| *heading).collect();
        output::long_table(&headings, &numbers, all, cells, print)
    }
}

/// Characters of a value at most: more than an address has.
const LONGEST_CELL: usize = 100;

/// A value for people.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => clipped(output::printable(text)),
        Some(Value::Array(all)) => {
            let all: Vec<String> = all.iter().map(|one| cell(Some(one))).collect();
            if all.is_empty() { "-".to_owned() } else { clipped(all.join(", ")) }
        }
        Some(other) => clipped(output::printable(&other.to_string())),
    }
}

/// A long value makes its whole column as wide.
fn clipped(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(LONGEST_CELL) {
        text.truncate(at);
        text.push_str("...");
    }
    text
}

/// What a service says of itself; `None`: it was not asked.
type Answer = Option<Result<Vec<Object>, QueryError>>;

/// Every service, and what it says; and what was left out. Who does not answer at once is waited for when all others were asked: all of them
/// together for as long as one may take, and it is told.
fn asked_all() -> (Vec<(Named, Answer)>, Vec<String>) {
    let (mut look, services) = Look::new();
    let ask = |service: Named| {
        let answer = look.rows(&service, "service", found::SOON);
        (service, answer)
    };
    let mut all: Vec<_> = services.into_iter().map(ask).collect();
    let is_silent = |answer: &Answer| matches!(answer, Some(Err(e)) if found::is_slow(e));
    let silent: Vec<(&str, Option<u32>)> = all
        .iter()
        .filter(|(_, answer)| is_silent(answer))
        .map(|(service, answer)| {
            let pid = answer.as_ref().and_then(|answer| answer.as_ref().err().and_then(found::pid_of));
            (service.name.as_str(), pid)
        })
        .collect();
    if !silent.is_empty() {
        output::message(found::waits(&silent));
        let end = Instant::now() + found::PATIENCE;
        for (service, answer) in all.iter_mut().filter(|(_, answer)| is_silent(answer)) {
            let left = end.saturating_duration_since(Instant::now()).max(found::LOOK);
            *answer = look.rows(service, "service", left).or(answer.take());
        }
    }
    (all, look.notes())
}

/// Prints which services there are.
pub fn list(args: &LsArgs) -> Outcome {
    let mut services = Vec::new();
    let mut answers = false;
    let (starting, names_left_out) = found::all_starting();
    let (all, mut notes) = asked_all();
    if names_left_out > 0 {
        notes.push(format!(
            "services of other users that are starting are too many: {names_left_out} are left out"
        ));
    }
    for note in notes {
        output::message(format_args!("note: {note}"));
    }
    for (Named { name, path, .. }, answer) in all {
        let mut object = match answer {
            None => Object::from_iter([("state".to_owned(), json!("not asked"))]),
            Some(Ok(all)) => {
                answers = true;
                all.into_iter().flatten().collect()
            }
            Some(Err(e)) => {
                let state = match &e {
                    QueryError::NotThere { .. } => "left behind",
                    QueryError::NotAdmitted { .. } => {
                        output::message(format_args!("note: {e}"));
                        "not for this user"
                    }
                    QueryError::OfAnother { .. } => {
                        output::message(format_args!("note: {e}"));
                        "of another user"
                    }
                    _ => "no answer",
                };
                let mut object = Object::from_iter([("state".to_owned(), json!(state))]);
                if let Some(pid) = found::pid_of(&e) {
                    object.insert("pid".to_owned(), json!(pid));
                }
                object
            }
        };
        object.entry("state").or_insert_with(|| json!("running"));
        object.insert("name".to_owned(), json!(name));
        object.insert("socket".to_owned(), json!(path.display().to_string()));
        services.push(object);
    }
    for Named { name, path, .. } in starting {
        services.retain(|object: &Object| object["name"] != *name || object["state"] == "running");
        if services.iter().all(|object| object["name"] != *name) {
            let row = json!({ "name": name, "state": "starting", "socket": path.with_file_name(&name).display().to_string() });
            services.extend(row.as_object().cloned());
        }
    }
    services.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let table = List {
        what: "service",
        columns: &[
            ("NAME", "name", false),
            ("STATE", "state", false),
            ("PID", "pid", true),
            ("SOCKETS", "sockets", true),
            ("SOCKET", "socket", false),
        ],
        none: "",
    };
    match args.json.target() {
        Some(target) => output::json(&target, &services)?,
        None if services.is_empty() => output::message(format_args!(
            "no netstack service is running for this user; start one: {}",
            found::how_to_start(DEFAULT_NAME)
        )),
        None => table.print(&services, |row| table.cells(row), output::print)?,
    }
    Ok(ExitCode::from(u8::from(!answers)))
}

/// Prints the counters, one a line; with JSON as the service gives them.
pub fn statistics(args: &StatsArgs) -> Outcome {
    let path = found::running(&args.args.name, 1)?;
    let mut all = Vec::new();
    for what in OF_FIGURES {
        all.extend(ask(&path, what)?);
    }
    if let Some(target) = args.args.json.target() {
        output::json(&target, &all)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(&["COUNTER", "VALUE"], &["VALUE"]);
    for figure in Figure::all(&all) {
        if args.all || figure.value != 0 {
            let of = figure.of.map_or(String::new(), |of| format!(" of {of}"));
            table.add_row([output::printable(&(figure.name + &of)), figure.value.to_string()]);
        }
    }
    output::print(&output::lines(&table))?;
    Ok(ExitCode::SUCCESS)
}

/// What is asked for all figures: those of the service, of the stack, and of links.
pub const OF_FIGURES: [&str; 3] = ["service", "stats", "links"];

/// A number that a service tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    pub name: String,
    /// Of which link.
    pub of: Option<String>,
    pub value: u64,
    /// It goes up and down, and is no count of what has happened.
    pub is_now: bool,
}

impl Figure {
    /// Those in rows of the service.
    pub fn all(rows: &[Object]) -> Vec<Figure> {
        rows.iter().flat_map(Figure::of_row).collect()
    }

    fn of_row(row: &Object) -> Vec<Figure> {
        let text = |key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
        if let (Some(name), Some(value)) = (text("name"), row.get("value").and_then(Value::as_u64)) {
            let is_now = text("kind").is_some_and(|kind| kind == "now");
            return vec![Figure { name, of: None, value, is_now }];
        }
        let of = text("interface");
        let (kind, no_figures): (_, &[&str]) =
            if of.is_some() { ("link", &["index"]) } else { ("service", &["pid", "version"]) };
        let numbers = row.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_u64()?)));
        let figure = |(name, value): (&str, u64)| Figure {
            name: format!("{kind}_{name}"),
            of: of.clone(),
            value,
            is_now: of.is_none() || name == "mtu",
        };
        numbers.filter(|(name, _)| !no_figures.contains(name)).map(figure).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rows_have_what_was_said_and_a_dash_for_what_was_not() {
        let all = [
            object(r#"{"destination":"default","via":"10.9.0.1","interface":"bp0","metric":0}"#),
            object(r#"{"destination":"10.9.0.0/24","via":null,"interface":"b\u001b[2Jp"}"#),
        ];
        let mut text = String::new();
        let add = |more: &str| {
            text += more;
            Ok(())
        };
        ROUTES.print(&all, |row| ROUTES.cells(row), add).expect("nothing fails");
        assert_eq!(
            text,
            "TO           VIA       LINK    METRIC\ndefault      10.9.0.1  bp0          0\n10.9.0.0/24  -         b?[2Jp       -\n"
        );
        assert_eq!(cell(Some(&json!(["a", 1]))), "a, 1");
        assert_eq!(cell(Some(&json!("ä".repeat(4000)))), "ä".repeat(100) + "...");
    }

    #[test]
    fn figures_are_those_of_the_service_the_stack_and_links() {
        let rows = [
            object(r#"{"name":"tcp_opened","value":3,"kind":"total"}"#),
            object(r#"{"name":"connections","value":2,"kind":"now"}"#),
            object(r#"{"interface":"bp0","index":2,"gone":false,"sent":7}"#),
            object(r#"{"name":"lab","pid":7,"sockets":9,"users":[]}"#),
        ];
        let all: Vec<_> = Figure::all(&rows).into_iter().map(|f| (f.name, f.of, f.value, f.is_now)).collect();
        assert_eq!(
            all,
            [
                ("tcp_opened".to_owned(), None, 3, false),
                ("connections".to_owned(), None, 2, true),
                ("link_sent".to_owned(), Some("bp0".to_owned()), 7, false),
                ("service_sockets".to_owned(), None, 9, true),
            ]
        );
    }
}
