//! `bypath netstack addr add`, `route add`, `neigh flush` and their like: changes of a service, said as to ip(8).

use super::found;
use super::others::On;
use super::queries::{self, List};
use super::serve;
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use bypath_netstack::service::{Change, Client};
use bypath_stack::prefix::Prefix;
use clap::Subcommand;
use serde_json::json;
use std::net::IpAddr;
use std::process::ExitCode;

const WHO: &str = "For root, and the user who runs the service. What a file of --config says is read again with SIGHUP; changes that were \
    made here stay until the service ends.\n\nExit status: 0, 1 if the service does not do it, or is not running, 2 for wrong usage.";

/// Of which service, and what is printed.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The service
    #[arg(long, value_name = "NAME", default_value = found::DEFAULT_NAME, value_parser = serve::name)]
    name: String,

    #[command(flatten)]
    json: Json,
}

/// Arguments of `bypath netstack addr`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AddressArgs {
    #[command(subcommand)]
    change: Option<AddressChange>,

    #[command(flatten)]
    list: queries::Args,
}

#[derive(Debug, Subcommand)]
enum AddressChange {
    /// Give the stack one more address
    #[command(after_help = WHO)]
    Add {
        /// The address with its network's prefix, such as 10.9.0.3/24
        #[arg(value_name = "ADDRESS/PREFIX", value_parser = super::attach::own)]
        address: Prefix,

        /// `dev NAME`: of this link, where the service has several
        #[arg(value_name = "dev NAME")]
        words: Vec<String>,

        /// Add it at once. Otherwise others on the link are asked first whether it is theirs, as at the start of a service: 4 to 7 seconds,
        /// of IPv6 one or two
        #[arg(long)]
        no_check: bool,

        #[command(flatten)]
        of: Of,
    },
    /// Take an address away; connections from it end
    #[command(after_help = WHO)]
    Del {
        /// The address, with or without its prefix
        #[arg(value_name = "ADDRESS", value_parser = bare)]
        address: IpAddr,

        /// `dev NAME`: of this link, where the service has several
        #[arg(value_name = "dev NAME")]
        words: Vec<String>,

        #[command(flatten)]
        of: Of,
    },
}

/// Arguments of `bypath netstack route`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct RouteArgs {
    #[command(subcommand)]
    change: Option<RouteChange>,

    #[command(flatten)]
    list: queries::Args,
}

#[derive(Debug, Subcommand)]
enum RouteChange {
    /// Add a route
    #[command(after_help = WHO)]
    Add {
        /// A network, such as 198.51.100.0/24, or `default`
        #[arg(value_name = "NETWORK")]
        to: String,

        /// `via ROUTER`, `dev NAME`, `metric N`
        #[arg(value_name = "via ROUTER ...")]
        words: Vec<String>,

        #[command(flatten)]
        of: Of,
    },
    /// Take a route away: those that are as is said
    #[command(after_help = WHO)]
    Del {
        /// A network, or `default`
        #[arg(value_name = "NETWORK")]
        to: String,

        /// `via ROUTER`, `dev NAME`
        #[arg(value_name = "via ROUTER ...")]
        words: Vec<String>,

        #[command(flatten)]
        of: Of,
    },
}

/// Arguments of `bypath netstack neigh`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NeighborArgs {
    #[command(subcommand)]
    change: Option<NeighborChange>,

    #[command(flatten)]
    list: queries::Args,
}

#[derive(Debug, Subcommand)]
enum NeighborChange {
    /// Forget hardware addresses: they are asked for again
    #[command(after_help = WHO)]
    Flush {
        /// `to ADDRESS`: this neighbour alone; `dev NAME`: those of this link
        #[arg(value_name = "to ADDRESS ...")]
        words: Vec<String>,

        #[command(flatten)]
        of: Of,
    },
}

/// An address, whose prefix says nothing.
fn bare(text: &str) -> Result<IpAddr, String> {
    let ip = text.split_once('/').map_or(text, |(ip, _)| ip);
    ip.parse().map_err(|_| "expected an address, such as 10.9.0.3".to_owned())
}

/// What follows a word of ip's.
struct Words<'a> {
    all: &'a [String],
    known: &'a [&'a str],
}

impl<'a> Words<'a> {
    fn of(all: &'a [String], known: &'a [&'a str]) -> Result<Words<'a>, Failure> {
        let wrong = |text: String| Err(Failure::new(2, text));
        for two in all.chunks(2) {
            match two {
                [word, _] if known.contains(&word.as_str()) => {}
                [word] if known.contains(&word.as_str()) => {
                    return wrong(format!("{word}: what is to follow?"));
                }
                _ => return wrong(format!("{}: expected {}", two[0], known.join(" ..., ") + " ...")),
            }
        }
        Ok(Words { all, known })
    }

    fn text(&self, word: &str) -> Option<&'a str> {
        debug_assert!(self.known.contains(&word));
        self.all.chunks(2).find(|two| two[0] == word).map(|two| two[1].as_str())
    }

    fn device(&self) -> Option<String> {
        self.text("dev").map(str::to_owned)
    }

    fn value<T: std::str::FromStr>(&self, word: &str, what: &str) -> Result<Option<T>, Failure> {
        let wrong = |text| Failure::new(2, format_args!("{word} {text}: expected {what}"));
        self.text(word).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }
}

fn change(of: &Of, change: Change) -> Outcome {
    let path = found::running(&of.name, 1)?;
    let done = Client::at(&path).change(change).map_err(|e| Failure::new(1, e))?;
    match of.json.target() {
        Some(target) => output::json(&target, &json!({ "done": done }))?,
        None => output::message(output::printable(&done)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds one, once it is known to be free if it is to be checked.
fn add_address(of: &Of, address: Prefix, interface: Option<String>, claim: bool) -> Outcome {
    let path = found::running(&of.name, 1)?;
    if let Some((on, ethernet)) = On::of_service(&path, interface.as_deref())? {
        if let Some(text) = on.taken(&[address.address()], &of.name) {
            return Err(Failure::new(1, text));
        }
        // Where there are no hardware addresses nobody is asked.
        if claim && ethernet {
            let long = if address.address().is_ipv4() { "4 to 7 s" } else { "1 to 2 s" };
            let (name, ip) = (output::printable(&on.interface), address.address());
            output::message(format_args!("asking others on {name} whether {ip} is free: {long}"));
        }
    }
    change(of, Change::AddAddress { address: address.to_string(), interface, claim })
}

/// Lists addresses, or changes them.
pub fn addresses(args: &AddressArgs, list: &List) -> Outcome {
    match &args.change {
        None => list.run(&args.list),
        Some(AddressChange::Add { address, words, no_check, of }) => {
            add_address(of, *address, Words::of(words, &["dev"])?.device(), !no_check)
        }
        Some(AddressChange::Del { address, words, of }) => {
            let interface = Words::of(words, &["dev"])?.device();
            change(of, Change::RemoveAddress { address: *address, interface })
        }
    }
}

/// Lists routes, or changes them.
pub fn routes(args: &RouteArgs, list: &List) -> Outcome {
    const ROUTER: &str = "the address of a router";
    match &args.change {
        None => list.run(&args.list),
        Some(RouteChange::Add { to, words, of }) => {
            let words = Words::of(words, &["via", "dev", "metric"])?;
            let (via, metric) =
                (words.value("via", ROUTER)?, words.value("metric", "a number")?.unwrap_or(0));
            change(of, Change::AddRoute { to: to.clone(), via, interface: words.device(), metric })
        }
        Some(RouteChange::Del { to, words, of }) => {
            let words = Words::of(words, &["via", "dev"])?;
            let via = words.value("via", ROUTER)?;
            change(of, Change::RemoveRoute { to: to.clone(), via, interface: words.device() })
        }
    }
}

/// Lists neighbours, or forgets them.
pub fn neighbors(args: &NeighborArgs, list: &List) -> Outcome {
    match &args.change {
        None => list.run(&args.list),
        Some(NeighborChange::Flush { words, of }) => {
            let words = Words::of(words, &["to", "dev"])?;
            let address = words.value("to", "an address")?;
            change(of, Change::FlushNeighbors { address, interface: words.device() })
        }
    }
}
