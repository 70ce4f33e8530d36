//! `bypath config`: check the file, show what holds, print it as variables.

use crate::args::{Json, Settings};
use crate::config::{self, Effective, Origin, Place, SettingsError, Source, Value, conditions};
use crate::output::{self, Failure, Outcome};
use crate::program;
use bypath_sockets::rules::{Action, Protocol, Rule};
use clap::{Subcommand, ValueHint};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The file has mistakes, or cannot be read.
const BAD: u8 = 1;

/// Arguments of `bypath config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do with it.
    #[command(subcommand)]
    action: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find every mistake in the configuration file
    Check(Check),
    /// Show which settings and rules hold, and where each comes from
    Show(Show),
    /// Print settings and rules as variables, for programs started with plain LD_PRELOAD
    Export(Export),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit status: 0 if there is nothing to complain about but warnings, 1 if the file has mistakes or cannot\n\
    be read, 2 for wrong usage."
)]
struct Check {
    /// The file; by default the one that `bypath run` would read
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath config show                              what is set somewhere\n  \
    bypath config show --effective                  every setting\n  \
    bypath config show --effective -- redis-server  and which rules are about redis-server")]
struct Show {
    /// Every setting, also those that nobody has set
    #[arg(long)]
    effective: bool,

    #[command(flatten)]
    json: Json,

    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    settings: Settings,

    /// A program: which rules are about it
    #[arg(num_args = 0.., trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"], value_hint = ValueHint::CommandWithArguments)]
    program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    eval \"$(bypath config export --profile latency)\"\n  \
    LD_PRELOAD=/usr/local/lib/bypath/libbypath_preload.so ./server")]
struct Export {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    settings: Settings,
}

/// Does it.
pub fn run(args: Args) -> Outcome {
    match args.action {
        Verb::Check(args) => check(&args),
        Verb::Show(args) => show(&args),
        Verb::Export(args) => export(&args),
    }
}

fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn failure(error: SettingsError) -> Failure {
    Failure::new(2, error)
}

fn check(args: &Check) -> Outcome {
    let place = match &args.file {
        Some(path) => Place::Named(path.clone()),
        None => config::locate(&Source::default(), environment).map_err(failure)?,
    };
    let found = config::read(&place).map_err(|e| {
        Failure::new(
            BAD,
            format_args!("cannot read {}: {e}", place.path().unwrap_or(Path::new("")).display()),
        )
    })?;
    let Some((file, problems)) = found else {
        output::print(&about_place(&place))?;
        return Ok(ExitCode::SUCCESS);
    };
    let path = &file.path;
    output::print(&config::report(path, &problems))?;
    let mut errors = problems.iter().filter(|p| !p.warning).count();
    let name = path.display();
    if errors == 0 {
        // What only shows when everything is put together.
        let whole = config::resolve(place.clone(), Some(file.clone()), &Settings::default(), |_| None);
        if let Err(e) = whole.and_then(|effective| effective.variables()) {
            output::print(&format!("{name}: {e}\n"))?;
            errors = 1;
        }
    }
    if errors > 0 {
        let noun = if errors == 1 { "error" } else { "errors" };
        output::print(&format!("{name}: {errors} {noun}\n"))?;
        return Ok(ExitCode::from(BAD));
    }
    let counts =
        [(file.settings.len(), "setting"), (file.profiles.len(), "profile"), (file.rules.len(), "rule")];
    let counts = counts.map(|(n, noun)| format!("{n} {noun}{}", if n == 1 { "" } else { "s" }));
    output::print(&format!("{name}: no errors; {}\n", counts.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

fn export(args: &Export) -> Outcome {
    let effective = config::effective(&args.source, &args.settings, environment).map_err(failure)?;
    let mut out = String::new();
    for (name, value) in effective.variables().map_err(failure)? {
        // For programs that read no file: which one it was is of no use to them.
        if name == config::VARIABLE {
            continue;
        }
        let _ = match value.map(OsString::into_string) {
            Some(Ok(value)) => writeln!(out, "export {name}='{}'", value.replace('\'', r"'\''")),
            Some(Err(_)) => return Err(failure(SettingsError::NotUtf8(name))),
            None if environment(name).is_some() => writeln!(out, "unset {name}"),
            None => Ok(()),
        };
    }
    output::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// What is shown, as JSON prints it.
#[derive(Serialize)]
struct Document<'a> {
    /// The file that was read, if any.
    file: Option<&'a Path>,
    settings: Vec<SettingDocument<'a>>,
    rules: Vec<RuleDocument<'a>>,
    /// What happens to connections that no rule is about.
    otherwise: String,
    program: Option<ProgramDocument<'a>>,
}

#[derive(Serialize)]
struct SettingDocument<'a> {
    name: &'static str,
    value: Option<&'a str>,
    /// `flag`, `environment`, `file` or `default`.
    from: &'static str,
    variable: &'static str,
    line: Option<u32>,
    profile: Option<&'a str>,
}

#[derive(Serialize)]
struct RuleDocument<'a> {
    number: u16,
    name: Option<&'a str>,
    line: u32,
    action: String,
    protocol: Option<&'static str>,
    program: Vec<&'a str>,
    user: &'a [u32],
    local: Vec<String>,
    local_port: Vec<String>,
    remote: Vec<String>,
    remote_port: Vec<String>,
    /// With a program: `all`, `matching`, `other-program`, `other-user` or `never`.
    applies: Option<&'static str>,
}

#[derive(Serialize)]
struct ProgramDocument<'a> {
    file: &'a str,
    invoked: &'a str,
    uid: u32,
}

/// What a rule means for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applies {
    /// It decides about every connection that is left.
    All,
    /// It decides about those that fit.
    Matching,
    OtherProgram,
    OtherUser,
    /// An earlier one has decided about every connection.
    Never,
}

impl Applies {
    const fn code(self) -> &'static str {
        match self {
            Applies::All => "all",
            Applies::Matching => "matching",
            Applies::OtherProgram => "other-program",
            Applies::OtherUser => "other-user",
            Applies::Never => "never",
        }
    }
}

/// What each rule means for a program of this user.
fn apply(rules: &[Rule], names: &bypath_sockets::rules::ProgramNames, uid: u32) -> Vec<Applies> {
    let mut decided = false;
    rules
        .iter()
        .map(|rule| {
            if !rule.is_about_program(names) {
                Applies::OtherProgram
            } else if !rule.is_about_user(uid) {
                Applies::OtherUser
            } else if decided {
                Applies::Never
            } else if rule.is_about_all() {
                decided = true;
                Applies::All
            } else {
                Applies::Matching
            }
        })
        .collect()
}

fn show(args: &Show) -> Outcome {
    let effective = config::effective(&args.source, &args.settings, environment).map_err(failure)?;
    let uid = rustix::process::geteuid().as_raw();
    let names = match args.program.first() {
        None => None,
        Some(name) => {
            let path = environment("PATH");
            let file = program::find(name, path.as_deref()).map_err(|e| Failure::new(e.exit_code(), e))?;
            Some(program::names(&file))
        }
    };
    let rules = effective.file.as_ref().map_or(&[][..], |f| &f.rules);
    let applied = names.as_ref().map(|names| apply(rules, names, uid));
    let values: Vec<&Value> =
        effective.values.iter().filter(|v| args.effective || v.origin != Origin::Default).collect();
    if let Some(target) = args.json.target() {
        let document = Document {
            file: effective.place.path(),
            settings: values.iter().map(|v| setting_document(v)).collect(),
            rules: rules
                .iter()
                .enumerate()
                .map(|(i, rule)| rule_document(rule, applied.as_ref().map(|a| a[i].code())))
                .collect(),
            otherwise: otherwise(&effective).to_string(),
            program: names.as_ref().map(|n| ProgramDocument { file: &n.file, invoked: &n.invoked, uid }),
        };
        output::json(&target, &document)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = about_place(&effective.place);
    text += &settings_table(&effective, &values);
    if !rules.is_empty() {
        text += "\n";
        text += &rules_table(rules, applied.as_deref());
    }
    if let (Some(names), Some(applied)) = (&names, &applied) {
        let name = output::printable(&names.file);
        let _ = write!(text, "\n{name} as user {uid}: ");
        text += &verdict(rules, applied, otherwise(&effective));
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What happens to connections that no rule is about; loopback has a ring with a service, too.
fn otherwise(effective: &Effective) -> Action {
    effective.config.netstack.map_or(Action::Ring, |name| Action::Netstack(Some(name)))
}

/// What happens to the connections of a program, in a sentence.
fn verdict(rules: &[Rule], applied: &[Applies], otherwise: Action) -> String {
    let name = |rule: &Rule| format!("{} (rule {})", rule.action, rule.number);
    let mut parts: Vec<String> = Vec::new();
    let mut rest = format!("{otherwise} (no rule)");
    for (rule, applies) in rules.iter().zip(applied) {
        match applies {
            Applies::Matching => {
                let ends = Rule { programs: Vec::new(), users: Vec::new(), ..rule.clone() };
                parts.push(format!("{}: {}", conditions(&ends), name(rule)));
            }
            Applies::All => rest = name(rule),
            _ => {}
        }
    }
    let all = if parts.is_empty() { "all connections" } else { "all others" };
    parts.push(format!("{all}: {rest}"));
    parts.join("; ") + ".\n"
}

fn about_place(place: &Place) -> String {
    match place {
        Place::Named(path) | Place::Found(path) => format!("Configuration file: {}\n", path.display()),
        Place::Off => "Configuration file: none (switched off)\n".to_owned(),
        Place::Nowhere(places) => {
            let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
            format!("Configuration file: none (looked for {})\n", places.join(", "))
        }
    }
}

/// Where a value comes from, for people.
fn origin(effective: &Effective, value: &Value) -> String {
    let line = |line: u32| match effective.place.path() {
        Some(path) => format!("{}:{line}", path.display()),
        None => format!("line {line}"),
    };
    // A profile's value: where the profile was chosen.
    let setting = match value.profile {
        Some(_) => effective.value("profile").setting,
        None => value.setting,
    };
    let place = match value.origin {
        Origin::Flag => format!("flag --{}", setting.flag),
        Origin::Environment => format!("environment {}", setting.variable),
        Origin::File(at) => line(at),
        Origin::Default => "default".to_owned(),
    };
    match &value.profile {
        None => place,
        Some((name, None)) => format!("profile {name}, by {place}"),
        Some((name, Some(at))) => format!("profile {name} ({}), by {place}", line(*at)),
    }
}

fn settings_table(effective: &Effective, values: &[&Value]) -> String {
    if values.is_empty() {
        return "Every setting has its default (--effective shows them).\n".to_owned();
    }
    let mut table = output::table(&["SETTING", "VALUE", "FROM"], &[]);
    for value in values {
        let text = if value.text.is_empty() { "-".to_owned() } else { output::printable(&value.text) };
        table.add_row([value.setting.flag.to_owned(), text, origin(effective, value)]);
    }
    format!("\n{}", output::lines(&table))
}

fn rules_table(rules: &[Rule], applied: Option<&[Applies]>) -> String {
    let mut heading = vec!["RULE", "LINE", "ACTION", "NAME", "MATCHES"];
    if applied.is_some() {
        heading.insert(3, "APPLIES");
    }
    let mut table = output::table(&heading, &["RULE", "LINE"]);
    for (i, rule) in rules.iter().enumerate() {
        let matches = conditions(rule);
        let or = |text: &str, empty: &str| if text.is_empty() { empty.to_owned() } else { text.to_owned() };
        let mut row = vec![
            rule.number.to_string(),
            rule.line.to_string(),
            rule.action.to_string(),
            or(&rule.name, "-"),
            or(&matches, "everything"),
        ];
        if let Some(applied) = applied {
            row.insert(3, applied[i].code().to_owned());
        }
        table.add_row(row);
    }
    output::lines(&table)
}

fn setting_document(value: &Value) -> SettingDocument<'_> {
    let (from, line) = match value.origin {
        Origin::Flag => ("flag", None),
        Origin::Environment => ("environment", None),
        Origin::File(line) => ("file", Some(line)),
        Origin::Default => ("default", None),
    };
    SettingDocument {
        name: value.setting.flag,
        value: Some(value.text.as_str()).filter(|t| !t.is_empty()),
        from,
        variable: value.setting.variable,
        // Of a profile's own value the line where it stands says more.
        line: value.profile.as_ref().and_then(|(_, line)| *line).or(line),
        profile: value.profile.as_ref().map(|(name, _)| name.as_str()),
    }
}

fn rule_document<'a>(rule: &'a Rule, applies: Option<&'static str>) -> RuleDocument<'a> {
    RuleDocument {
        number: rule.number,
        name: Some(rule.name.as_str()).filter(|n| !n.is_empty()),
        line: rule.line,
        action: rule.action.to_string(),
        protocol: rule.protocol.map(Protocol::word),
        program: rule.programs.iter().map(|p| p.as_str()).collect(),
        user: &rule.users,
        local: rule.local.iter().map(|n| n.to_string()).collect(),
        local_port: rule.local_ports.iter().map(|p| p.to_string()).collect(),
        remote: rule.remote.iter().map(|n| n.to_string()).collect(),
        remote_port: rule.remote_ports.iter().map(|p| p.to_string()).collect(),
        applies,
    }
}
