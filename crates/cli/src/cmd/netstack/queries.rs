//! `bypath netstack ls`, `sockets`, `stats`, `addr`, `route` and `neigh`: what a service says of itself.

use super::found::{self, DEFAULT_NAME};
use super::serve;
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use bypath_netstack::service::{QueryError, query_whom};
use bypath_sockets::service::place;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Arguments of `bypath netstack ls`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "STATE: running; starting: its addresses are not known to be free yet (`bypath run --netstack` waits for it); not for this user: its\n\
    settings name who may use it; of another user: it is not asked, as its folder is for this user's and root's alone; left behind: it has ended without a word; no answer: is its process stopped?\n\n\
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

/// A row that a service tells.
pub type Object = Map<String, Value>;

/// All that a service answers to a question.
///
/// # Errors
/// It does not answer, or not in a way that is understood.
pub fn ask(path: &Path, what: &str) -> Result<Vec<Object>, Failure> {
    ask_within(path, what, found::PATIENCE).map_err(|e| Failure::new(1, e))
}

/// The same, with another patience.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_within(path: &Path, what: &str, longest: Duration) -> Result<Vec<Object>, QueryError> {
    ask_whom(path, what, longest).map(|(all, _)| all)
}

/// The same, and whose service has answered.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_whom(path: &Path, what: &str, longest: Duration) -> Result<(Vec<Object>, u32), QueryError> {
    let mut all = Vec::new();
    let mut broken = false;
    let whose = query_whom(path, &json!({ "what": what }).to_string(), longest, |text| {
        match serde_json::from_str(text) {
            Ok(object) => all.push(object),
            Err(_) => broken = true,
        }
    })?;
    if broken { Err(QueryError::Malformed { path: path.to_owned() }) } else { Ok((all, whose)) }
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
        let all = ask(&path, self.what)?;
        match args.json.target() {
            Some(target) => output::json(&target, &all)?,
            None if all.is_empty() => output::message(self.none),
            None => output::print(&self.text(&all))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn text(&self, all: &[Object]) -> String {
        let headings: Vec<&str> = self.columns.iter().map(|(heading, ..)| *heading).collect();
        let numbers: Vec<&str> = self.columns.iter().filter(|c| c.2).map(|(heading, ..)| *heading).collect();
        let mut table = output::table(&headings, &numbers);
        for object in all {
            table.add_row(self.columns.iter().map(|(_, key, _)| cell(object.get(*key))));
        }
        output::lines(&table)
    }
}

/// A value for people.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => output::printable(text),
        Some(Value::Array(all)) => {
            let all: Vec<String> = all.iter().map(|one| cell(Some(one))).collect();
            if all.is_empty() { "-".to_owned() } else { all.join(", ") }
        }
        Some(other) => output::printable(&other.to_string()),
    }
}

/// What a service says of itself.
type Answer = Result<Vec<Object>, QueryError>;

/// Every service, and what it says. Who does not answer at once is waited for when all others were asked: all of them together for as long as
/// one may take, and it is told.
fn asked_all() -> Vec<(String, PathBuf, Answer)> {
    let ask = |(name, path): (String, PathBuf)| {
        let answer = ask_within(&path, "service", found::SOON);
        (name, path, answer)
    };
    let mut all: Vec<_> = place::all().into_iter().map(ask).collect();
    let silent: Vec<(&str, Option<u32>)> = all
        .iter()
        .filter_map(|(name, _, answer)| match answer {
            Err(QueryError::Silent { pid, .. }) => Some((name.as_str(), *pid)),
            _ => None,
        })
        .collect();
    if silent.is_empty() {
        return all;
    }
    output::message(found::waits(&silent));
    let end = Instant::now() + found::PATIENCE;
    for (_, path, answer) in &mut all {
        if matches!(answer, Err(QueryError::Silent { .. })) {
            let left = end.saturating_duration_since(Instant::now()).max(found::LOOK);
            *answer = ask_within(path, "service", left);
        }
    }
    all
}

/// Prints which services there are.
pub fn list(args: &LsArgs) -> Outcome {
    let mut services = Vec::new();
    let mut answers = false;
    let starting = found::all_starting();
    for (name, path, answer) in asked_all() {
        let mut object = match answer {
            Ok(all) => {
                answers = true;
                all.into_iter().flatten().collect()
            }
            Err(e) => {
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
                if let QueryError::Silent { pid: Some(pid), .. } = e {
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
    for (name, path) in starting {
        services.retain(|object: &Object| object["name"] != *name || object["state"] == "running");
        if services.iter().all(|object| object["name"] != *name) {
            let row = json!({ "name": name, "state": "starting", "socket": path.with_file_name(&name).display().to_string() });
            services.extend(row.as_object().cloned());
        }
    }
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
        None => output::print(&table.text(&services))?,
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
        let text = ROUTES.text(&all);
        assert_eq!(
            text,
            "TO           VIA       LINK    METRIC\ndefault      10.9.0.1  bp0          0\n10.9.0.0/24  -         b?[2Jp       -\n"
        );
        assert_eq!(cell(Some(&json!(["a", 1]))), "a, 1");
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
