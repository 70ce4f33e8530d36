//! What can be typed. Help, completions and man pages are generated from these definitions.

use crate::cmd;
use bypath_sockets::config::{Config, SETTINGS, Setting};
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{
    Arg, ArgAction, ArgMatches, Args as _, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    ValueHint,
};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Same-host TCP and UDP through shared memory, for unmodified programs
///
/// Programs started with `bypath run` exchange the bytes of their TCP connections, and their UDP datagrams, through shared
/// memory when both ends are on this host and under Bypath. The kernel's connection stays: everything else works as
/// before, and a connection that cannot be accelerated is a plain one.
#[derive(Debug, Parser)]
#[command(
    name = "bypath",
    bin_name = "bypath",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
        bypath run -- redis-server          start a program under Bypath\n  \
        bypath run -- redis-cli ping        and the program that talks to it\n  \
        bypath ss                           which path each connection takes\n  \
        bypath why 1234                     and why it takes it"
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was typed; a mistake or a call for help ends the process here.
    pub fn of_this_process() -> Cli {
        match run_alone(std::env::args_os()) {
            Some(args) => Cli { command: Command::Run(args) },
            None => Cli::try_parse().unwrap_or_else(|e| with_what_is_unknown(e, std::env::args()).exit()),
        }
    }
}

/// Where options go with no subcommand, any further word counts as one that does not go with them: what is none is called so, and what is one
/// has its options behind it.
fn with_what_is_unknown(e: clap::Error, typed: impl Iterator<Item = String>) -> clap::Error {
    let Some(ContextValue::String(word)) = e.get(ContextKind::InvalidSubcommand) else { return e };
    let mut command = Cli::command();
    if e.kind() == ErrorKind::ArgumentConflict
        && let Some(line) = in_order(&command, word, typed)
    {
        return command
            .error(ErrorKind::ArgumentConflict, format!("the options of '{word}' come behind it: {line}"));
    }
    let known = command.get_subcommands().any(|command| command.find_subcommand(word).is_some());
    if e.kind() != ErrorKind::ArgumentConflict || known {
        return e;
    }
    let text = format!(
        "unexpected argument '{word}': it is no subcommand, and the option before it has its value already"
    );
    command.error(ErrorKind::UnknownArgument, text)
}

/// What was typed, with all subcommands, of which `last` is the last one, in front of all else; `None` where they would not take all of that.
fn in_order(all: &clap::Command, last: &str, typed: impl Iterator<Item = String>) -> Option<String> {
    let (mut at, mut path, mut rest) = (all, vec!["bypath".to_owned()], Vec::new());
    for word in typed.skip(1) {
        match at.find_subcommand(&word).filter(|_| path.last().is_none_or(|l| l != last)) {
            Some(next) => {
                at = next;
                path.push(word);
            }
            None => rest.push(word),
        }
    }
    let takes = |option: &str| {
        let name = option.split('=').next();
        at.get_arguments().any(|known| known.get_long() == name)
    };
    let fits = rest.iter().filter_map(|word| word.strip_prefix("--")).all(takes);
    let is_whole = path.last().is_some_and(|l| l == last);
    (fits && is_whole).then(|| [path, rest].concat().join(" "))
}

/// Parses `bypath run ...` by the definitions of `run` alone: putting together those of every subcommand would be a good
/// part of what the start of a program costs. `None` for anything else, for mistakes, and for calls for help, which
/// the whole of the definitions answers.
fn run_alone(mut words: impl Iterator<Item = OsString>) -> Option<cmd::run::Args> {
    let _bypath = words.next();
    let run = words.next().filter(|word| word == "run")?;
    let command = cmd::run::Args::augment_args(clap::Command::new("run")).disable_help_flag(true);
    let matches = command.try_get_matches_from([run].into_iter().chain(words)).ok()?;
    cmd::run::Args::from_arg_matches(&matches).ok()
}

/// One variant per subcommand; `main` calls its `run`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a program under Bypath
    Run(cmd::run::Args),
    /// List the connections of programs under Bypath and the path of each
    Ss(cmd::ss::Args),
    /// Explain in sentences why connections of a process take the path they take
    Why(cmd::why::Args),
    /// Bring connections back to the kernel, where they stay until `bypath upgrade`
    Recall(cmd::paths::RecallArgs),
    /// Have connections tried again that stayed on the kernel, or were brought back
    Upgrade(cmd::paths::UpgradeArgs),
    /// Print the counters that `bypath run --stats FILE` collected
    Stats(cmd::stats::Args),
    /// Show connections live: rates, paths, how long bytes wait, what spinning costs
    Top(cmd::top::Args),
    /// Capture what goes through rings, as packets for Wireshark or as lines
    Dump(cmd::dump::Args),
    /// Print the counters of all programs under Bypath as text for Prometheus, or serve them
    Metrics(cmd::metrics::Args),
    /// Check the configuration file, show which settings and rules hold, print them as variables
    Config(cmd::config::Args),
    /// Look for what slows this host or a network interface down, and name the command that mends it
    Doctor(cmd::doctor::Args),
    /// Raw Ethernet: list interfaces, send, receive and measure frames
    L2(cmd::l2::Args),
    /// Talk to another host: typed lines, or files, as raw Ethernet frames
    Chat(cmd::chat::Args),
    /// Messages between programs on this host, as frames on the loopback interface
    Ipc(cmd::ipc::Args),
    /// Files as datagrams with headers of our own, through a TUN device, or through a socket
    Tun(cmd::tun::Args),
    /// RDMA (RoCEv2) without an adapter: send, write, read and count in another host's memory; explain captures
    Roce(cmd::roce::Args),
    /// Our own TCP/IP stack on a link: a service for programs, or for one task
    Netstack(Box<cmd::netstack::Args>),
    /// Measure what Bypath gains, beside the kernel's paths and the bare ring
    Bench(crate::bench::Args),
    /// Print a completion script for a shell
    Completions(cmd::completions::Args),
    /// Print the man page, or write all of them to a directory
    Man(cmd::man::Args),
}

impl Command {
    /// Whether it has a thread for each user whose processes it looks at.
    pub fn looks_at_others(&self) -> bool {
        use Command::{Dump, Metrics, Recall, Ss, Stats, Top, Upgrade, Why};
        matches!(self, Ss(_) | Why(_) | Recall(_) | Upgrade(_) | Stats(_) | Top(_) | Dump(_) | Metrics(_))
    }
}

/// Where JSON goes, if it was asked for.
#[derive(Clone, Debug, clap::Args)]
pub struct Json {
    /// Print JSON, to standard output or to FILE
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath
    )]
    json: Option<PathBuf>,
}

/// Where a document is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, replaced.
    File(PathBuf),
}

impl Json {
    /// The target, `None` if text was asked for.
    pub fn target(&self) -> Option<Target> {
        self.json.as_ref().map(|path| match path.to_str() {
            Some("-") => Target::Stdout,
            _ => Target::File(path.clone()),
        })
    }
}

/// The settings of [`SETTINGS`] that were given as flags: checked, in the order of the table.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(&'static Setting, String)>);

impl Settings {
    /// The value given for `setting`, if any.
    pub fn value(&self, setting: &Setting) -> Option<&str> {
        self.0.iter().find(|(s, _)| s.flag == setting.flag).map(|(_, value)| value.as_str())
    }
}

/// The parser of a setting's value: words get clap's suggestions, the rest is what [`Config::set`] accepts.
fn value_parser(setting: &'static Setting) -> ValueParser {
    if setting.words.is_empty() {
        let check = move |value: &str| {
            Config::default()
                .set(setting.flag, value)
                .map(|()| value.to_owned())
                .map_err(|e| format!("expected {}", e.expected))
        };
        ValueParser::new(check)
    } else if setting.flag == "profile" {
        // The configuration file may define more, and is not read yet.
        ValueParser::new(OpenWords(setting.words))
    } else {
        PossibleValuesParser::new(setting.words).into()
    }
}

/// Any text; completions offer these words.
#[derive(Clone)]
struct OpenWords(&'static [&'static str]);

impl TypedValueParser for OpenWords {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

impl clap::Args for Settings {
    fn augment_args(command: clap::Command) -> clap::Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let arg = Arg::new(setting.flag)
                .long(setting.flag)
                .value_name(setting.value)
                .value_parser(value_parser(setting))
                .hide_possible_values(true)
                .value_hint(if setting.value == "FILE" { ValueHint::FilePath } else { ValueHint::Other })
                .help(setting.help)
                .long_help(format!("{}\n\n[environment: {}]", setting.help, setting.variable));
            let arg = match setting.bare() {
                Some(bare) => arg.num_args(0..=1).require_equals(true).default_missing_value(bare),
                None => arg,
            };
            // A list may be given piece by piece; of other settings the last one counts.
            command.arg(if is_list(setting) {
                arg.action(ArgAction::Append)
            } else {
                arg.overrides_with(setting.flag)
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn is_list(setting: &Setting) -> bool {
    setting.value.contains("...")
}

impl clap::FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut settings = Settings::default();
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = SETTINGS
            .iter()
            .filter_map(|s| {
                let values: Vec<&str> = matches.get_many::<String>(s.flag)?.map(String::as_str).collect();
                Some((s, values.join(",")))
            })
            .collect();
        Ok(())
    }
}

/// A user by number or name.
///
/// # Errors
/// There is none of this name.
pub fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        _ => Err("there is no such user; give a name or a number".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run_args(args: &[&str]) -> Result<cmd::run::Args, clap::Error> {
        let all = ["bypath", "run"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Run(args) => Ok(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn run_alone_reads_what_the_whole_reads() {
        let lines: [&[&str]; 9] = [
            &["bypath", "run", "prog"],
            &["bypath", "run", "prog", "--help"],
            &[
                "bypath",
                "run",
                "--library",
                "/l.so",
                "--log=info",
                "--allow-uid=1",
                "--",
                "prog",
                "run",
                "--",
                "-x",
            ],
            &["bypath", "run", "--help"],
            &["bypath", "run", "-h"],
            &["bypath", "run", "--version"],
            &["bypath", "run", "--upgrade=eagre", "--", "prog"],
            &["bypath", "run"],
            &["bypath", "run", "--no-such-flag", "prog"],
        ];
        for line in lines {
            let whole = match Cli::try_parse_from(line) {
                Ok(Cli { command: Command::Run(args) }) => Some(args),
                _ => None,
            };
            let alone = run_alone(line.iter().map(OsString::from));
            assert_eq!(format!("{alone:?}"), format!("{whole:?}"), "{line:?}");
        }
        assert!(run_alone(["bypath", "ss"].iter().map(OsString::from)).is_none());
        assert!(run_alone(["bypath"].iter().map(OsString::from)).is_none());
    }

    #[test]
    fn options_in_front_of_a_subcommand_are_told_where_they_go() {
        let told = |line: &str| {
            let e = Cli::try_parse_from(line.split(' ')).unwrap_err();
            with_what_is_unknown(e, line.split(' ').map(str::to_owned)).to_string()
        };
        for (typed, meant) in [
            ("bypath netstack --name sc sockets", "bypath netstack sockets --name sc\n"),
            ("bypath netstack --name=sc stats --json", "bypath netstack stats --name=sc --json\n"),
            (
                "bypath netstack addr --name sc add 10.0.0.1/24",
                "bypath netstack addr add --name sc 10.0.0.1/24\n",
            ),
        ] {
            let text = told(typed);
            assert!(text.contains(meant), "{typed}: {text}");
        }
        let text = told("bypath netstack --link tap:x sockets");
        assert!(!text.contains("come behind it"), "{text}");
        let text = told("bypath netstack --name sc sokets");
        assert!(text.contains("'sokets': it is no subcommand"), "{text}");
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag_of_run() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").unwrap();
        for setting in SETTINGS {
            let arg = run.get_arguments().find(|a| a.get_long() == Some(setting.flag)).unwrap();
            assert!(arg.get_long_help().unwrap().to_string().contains(setting.variable));
        }
    }

    #[test]
    fn last_flag_counts_and_lists_add_up() {
        let args = run_args(&[
            "--upgrade=off",
            "--allow-uid=1",
            "--upgrade=eager",
            "--allow-uid=2,any",
            "--",
            "prog",
            "--upgrade=lazy",
        ])
        .unwrap();
        let value = |flag| args.settings.value(SETTINGS.iter().find(|s| s.flag == flag).unwrap());
        assert_eq!(value("upgrade"), Some("eager"));
        assert_eq!(value("allow-uid"), Some("1,2,any"));
        assert_eq!(value("profile"), None);
        assert_eq!(args.program, ["prog", "--upgrade=lazy"]);
    }

    #[test]
    fn a_netstack_need_not_be_named() {
        let netstack = SETTINGS.iter().find(|s| s.flag == "netstack").unwrap();
        let value = |args: &[&str]| run_args(args).unwrap().settings.value(netstack).map(str::to_owned);
        assert_eq!(value(&["--netstack", "--", "prog"]).as_deref(), Some("default"));
        assert_eq!(value(&["--netstack", "prog"]).as_deref(), Some("default"));
        assert_eq!(value(&["--netstack=lab", "prog"]).as_deref(), Some("lab"));
        assert_eq!(value(&["prog"]), None);
        assert!(run_args(&["--netstack=a/b", "prog"]).is_err());
    }

    #[test]
    fn typos_are_errors_with_a_suggestion() {
        for (given, suggested) in
            [("--upgrade=eagre", "eager"), ("--profil=latency", "--profile"), ("--logg=info", "--log")]
        {
            let text = run_args(&[given, "--", "prog"]).unwrap_err().to_string();
            assert!(text.contains(suggested), "{text}");
        }
        let text = run_args(&["--ring-size=48K", "--", "prog"]).unwrap_err().to_string();
        assert!(text.contains("power of two"), "{text}");
    }
}
