//! Rules: which connections of which programs may leave the kernel. The first rule that matches decides; without
//! one a connection may.
//!
//! `bypath run` reads and checks the configuration file. What arrives here is its checked, compact form ([`text`]),
//! from the environment. A rule is asked once per connection, when it is about to be upgraded. See docs/rules.md.

mod address;
mod pattern;
pub mod text;

pub use address::{Network, NetworkError, Ports};
pub use pattern::{Pattern, ProgramNames};

use crate::config::{Config, ConfigError};
use crate::service::ServiceName;
use crate::table::Sock;
use bypath_shm::reason::Reason;
use bypath_sys::process;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// What a rule does with the connections that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// They may be upgraded.
    Ring,
    /// They stay on the kernel.
    Kernel,
    /// Sockets of theirs that are bound or connected become those of a netstack service: of this one, or of the one that the
    /// settings name.
    Netstack(Option<ServiceName>),
}

impl Action {
    /// The words of the actions. The last one may have a name behind it: `netstack:NAME`.
    pub const WORDS: &[&str] = &["ring", "kernel", "netstack"];

    /// The word that stands for it, without the name.
    pub const fn word(self) -> &'static str {
        match self {
            Action::Ring => "ring",
            Action::Kernel => "kernel",
            Action::Netstack(_) => "netstack",
        }
    }

    /// The action that a word stands for.
    pub fn from_word(word: &str) -> Option<Action> {
        match word {
            "ring" => Some(Action::Ring),
            "kernel" => Some(Action::Kernel),
            "netstack" => Some(Action::Netstack(None)),
            _ => ServiceName::new(word.strip_prefix("netstack:")?).map(|name| Action::Netstack(Some(name))),
        }
    }
}

/// What [`Action::from_word`] reads.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Netstack(Some(name)) => write!(f, "netstack:{name}"),
            other => f.write_str(other.word()),
        }
    }
}

/// What carries what a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// The words of the protocols.
    pub const WORDS: &[&str] = &["tcp", "udp"];

    /// The word that stands for it.
    pub const fn word(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    /// The protocol that a word stands for.
    pub fn from_word(word: &str) -> Option<Protocol> {
        [Protocol::Tcp, Protocol::Udp].into_iter().find(|protocol| protocol.word() == word)
    }
}

/// What [`Protocol::from_word`] reads.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One rule. An empty list asks nothing; of a list that asks, one element must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its place in the file, from 1.
    pub number: u16,
    /// Its name, may be empty.
    pub name: String,
    /// The line of the file where it begins, 0 = not known.
    pub line: u32,
    /// What it does.
    pub action: Action,
    /// What its sockets are of; `None`: anything.
    pub protocol: Option<Protocol>,
    /// Programs.
    pub programs: Vec<Pattern>,
    /// Effective user ids.
    pub users: Vec<u32>,
    /// Addresses of this end.
    pub local: Vec<Network>,
    /// Ports of this end.
    pub local_ports: Vec<Ports>,
    /// Addresses of the other end.
    pub remote: Vec<Network>,
    /// Ports of the other end.
    pub remote_ports: Vec<Ports>,
}

/// Address and port of one end; `None` = it has none of these kinds.
pub type Name = Option<(IpAddr, u16)>;

impl Rule {
    /// A rule that matches everything.
    pub fn new(number: u16, action: Action) -> Rule {
        Rule {
            number,
            name: String::new(),
            line: 0,
            action,
            protocol: None,
            programs: Vec::new(),
            users: Vec::new(),
            local: Vec::new(),
            local_ports: Vec::new(),
            remote: Vec::new(),
            remote_ports: Vec::new(),
        }
    }

    /// Whether it is about programs with these names.
    pub fn is_about_program(&self, names: &ProgramNames) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|p| names.fit(p))
    }

    /// Whether it is about this user.
    pub fn is_about_user(&self, uid: u32) -> bool {
        self.users.is_empty() || self.users.contains(&uid)
    }

    /// Whether it is about sockets of this protocol, `None` = another one than rules know.
    pub fn is_about_protocol(&self, protocol: Option<Protocol>) -> bool {
        self.protocol.is_none() || self.protocol == protocol
    }

    /// Whether it is about connections between these ends.
    pub fn is_about_ends(&self, local: Name, remote: Name) -> bool {
        end_fits(local, &self.local, &self.local_ports) && end_fits(remote, &self.remote, &self.remote_ports)
    }

    /// Whether it asks about neither end, nor for a protocol: it is then about all connections of a program.
    pub fn is_about_all(&self) -> bool {
        self.protocol.is_none()
            && self.local.is_empty()
            && self.local_ports.is_empty()
            && self.remote.is_empty()
            && self.remote_ports.is_empty()
    }

    /// Whether it names addresses of either end. Without them it is not about loopback where it sends sockets to a
    /// netstack service.
    pub fn names_addresses(&self) -> bool {
        !self.local.is_empty() || !self.remote.is_empty()
    }
}

fn end_fits(name: Name, networks: &[Network], ports: &[Ports]) -> bool {
    (networks.is_empty() || name.is_some_and(|(address, _)| networks.iter().any(|n| n.contains(address))))
        && (ports.is_empty() || name.is_some_and(|(_, port)| ports.iter().any(|p| p.contains(port))))
}

/// The rules that can match in this process: those of other programs are left out.
static RULES: OnceLock<Vec<Rule>> = OnceLock::new();

/// Reads what the environment says, settings and rules, and keeps the rules that are about this program. `lookup` is
/// a `getenv`, `invoked` the path by which the program was started. What cannot be read is passed to `report`, and
/// counts for nothing.
pub fn configure<'a>(
    lookup: impl Fn(&str) -> Option<&'a str>,
    invoked: impl FnOnce() -> String,
    mut report: impl FnMut(ConfigError),
) -> Config {
    let mut config = Config::default();
    if let Some(text) = lookup(text::VARIABLE) {
        let read = text::Document::decode(text).and_then(|d| d.configure(&mut config).map(|()| d));
        match read {
            Ok(document) if document.rules.is_empty() => {}
            Ok(document) => {
                let file = process::executable();
                let file = file.strip_suffix(b" (deleted)").unwrap_or(&file);
                let file = String::from_utf8_lossy(file).into_owned();
                config.apply_env(&lookup, |_| {});
                install(
                    document.rules,
                    &ProgramNames { file, invoked: invoked() },
                    config.netstack.is_some(),
                );
            }
            Err(text::TextError(item)) => report(ConfigError {
                flag: text::VARIABLE,
                value: item,
                expected: "what `bypath config export` prints".to_owned(),
                suggestion: None,
            }),
        }
    }
    config.apply_env(lookup, report);
    config
}

/// Keeps the rules that are about this program; the first call wins.
fn install(rules: Vec<Rule>, names: &ProgramNames, otherwise_served: bool) {
    let mut ours: Vec<Rule> = rules.into_iter().filter(|r| r.is_about_program(names)).collect();
    // Rules at the end that allow what is allowed anyway are not worth a question.
    while !otherwise_served && ours.pop_if(|r| r.action == Action::Ring).is_some() {}
    if !ours.is_empty() {
        let _ = RULES.set(ours);
    }
}

/// Asks the rules about a connection whose names are known; which rule decided is kept for the view.
///
/// # Errors
/// [`Reason::Rule`]: it stays on the kernel.
pub fn admit(s: &Sock) -> Result<(), Reason> {
    let Some(rules) = RULES.get() else { return Ok(()) };
    let end = s.end();
    let (uid, local, remote) = (process::euid(), end.local.name(), end.remote.name());
    let Some(rule) = first(rules, uid, Some(Protocol::Tcp), local, remote) else { return Ok(()) };
    match rule.action {
        // What was sent to a service is not asked about; what was not, though a rule says so, is as any other.
        Action::Ring | Action::Netstack(_) => Ok(()),
        Action::Kernel => {
            end.rule.store(rule.number.into(), Relaxed);
            Err(Reason::Rule)
        }
    }
}

/// The rule that decides.
fn first(rules: &[Rule], uid: u32, protocol: Option<Protocol>, local: Name, remote: Name) -> Option<&Rule> {
    let mut of_user = rules.iter().filter(|r| r.is_about_protocol(protocol) && r.is_about_user(uid));
    of_user.find(|r| r.is_about_ends(local, remote))
}

/// The number of the rule that keeps datagrams between these ends on the kernel, if one does.
pub fn keeps(local: Name, remote: Name) -> Option<u16> {
    let rule = first(RULES.get()?, process::euid(), Some(Protocol::Udp), local, remote)?;
    (rule.action == Action::Kernel).then_some(rule.number)
}

/// Whether some rule sends sockets of this process to a netstack service.
pub fn names_services() -> bool {
    RULES.get().is_some_and(|rules| rules.iter().any(|r| matches!(r.action, Action::Netstack(_))))
}

/// Netstack services that rules send sockets of this process to by their names.
pub fn services() -> impl Iterator<Item = ServiceName> {
    let named = |rule: &Rule| if let Action::Netstack(name) = rule.action { name } else { None };
    RULES.get().into_iter().flatten().filter_map(named)
}

/// The netstack service that a socket of this protocol becomes one of when it is bound to `local`, or connected to `remote`; `None`: it
/// is the kernel's. `otherwise` is that of the settings.
pub fn service(
    protocol: Option<Protocol>,
    local: Name,
    remote: Name,
    otherwise: Option<ServiceName>,
) -> Option<ServiceName> {
    let rules = RULES.get().map_or(&[][..], Vec::as_slice);
    choose(first(rules, process::euid(), protocol, local, remote), local, remote, otherwise)
}

fn choose(
    decides: Option<&Rule>,
    local: Name,
    remote: Name,
    otherwise: Option<ServiceName>,
) -> Option<ServiceName> {
    let near = remote.or(local).is_some_and(|(address, _)| address.to_canonical().is_loopback());
    match decides {
        None => otherwise.filter(|_| !near),
        // Loopback is another one there: only who names addresses means it.
        Some(rule) if near && !rule.names_addresses() => None,
        Some(rule) => match rule.action {
            Action::Netstack(name) => Some(name.or(otherwise).unwrap_or_default()),
            Action::Ring | Action::Kernel => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_rule_everything_but_loopback_is_the_services() {
        let lab = ServiceName::new("lab");
        for near in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(choose(None, name(near, 80), None, lab), None, "{near}");
            assert_eq!(choose(None, None, name(near, 80), lab), None, "{near}");
        }
        for far in ["0.0.0.0", "::", "10.0.0.1", "fd00::1", "::ffff:10.0.0.1"] {
            assert_eq!(choose(None, name(far, 80), None, lab), lab, "{far}");
            assert_eq!(choose(None, None, name(far, 80), lab), lab, "{far}");
            assert_eq!(choose(None, None, name(far, 80), None), None, "{far}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_names_the_service() {
        let (lab, other) = (ServiceName::new("lab"), ServiceName::new("other"));
        let mut ssh = Rule::new(1, Action::Kernel);
        ssh.remote_ports = vec!["22".parse().unwrap()];
        let mut net = Rule::new(2, Action::Netstack(other));
        net.remote = vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.9".parse().unwrap()];
        let mine = Rule { users: vec![7], ..Rule::new(3, Action::Netstack(None)) };
        let rules = [ssh, net, mine];
        let asked = |uid, remote, otherwise| {
            choose(first(&rules, uid, Some(Protocol::Tcp), None, remote), None, remote, otherwise)
        };
        let to = |address, port| asked(7, name(address, port), None);
        assert_eq!(to("10.0.0.1", 22), None);
        assert_eq!(to("10.0.0.1", 80), other);
        assert_eq!(to("127.0.0.9", 80), other);
        assert_eq!(to("127.0.0.1", 80), None, "without an address it is not about loopback");
        assert_eq!(to("192.0.2.1", 80), ServiceName::new("default"));
        assert_eq!(asked(7, name("192.0.2.1", 80), lab), lab);
        assert_eq!(asked(8, name("192.0.2.1", 80), None), None);
    }

    fn name(address: &str, port: u16) -> Name {
        Some((address.parse().unwrap(), port))
    }

    #[test]
    fn every_condition_must_hold_and_one_of_each_list() {
        let mut rule = Rule::new(1, Action::Kernel);
        let (here, there) = (name("127.0.0.1", 40000), name("10.0.0.7", 5432));
        assert!(rule.is_about_ends(here, there) && rule.is_about_user(7) && rule.is_about_all());
        rule.remote_ports = vec!["80".parse().unwrap(), "5000-6000".parse().unwrap()];
        assert!(rule.is_about_ends(here, there) && !rule.is_about_ends(there, here) && !rule.is_about_all());
        rule.remote = vec!["192.168.0.0/16".parse().unwrap()];
        assert!(!rule.is_about_ends(here, there));
        rule.remote.push("10.0.0.0/8".parse().unwrap());
        assert!(rule.is_about_ends(here, there));
        rule.local = vec!["127.0.0.1".parse().unwrap()];
        rule.local_ports = vec!["1-100".parse().unwrap()];
        assert!(!rule.is_about_ends(here, there) && rule.is_about_ends(name("127.0.0.1", 100), there));
        rule.users = vec![1, 2];
        assert!(rule.is_about_user(2) && !rule.is_about_user(0));
    }

    #[test]
    fn a_rule_for_one_protocol_leaves_the_other_to_the_next() {
        let datagrams = Rule { protocol: Some(Protocol::Udp), ..Rule::new(1, Action::Kernel) };
        assert!(!datagrams.is_about_all());
        let rules = [datagrams, Rule::new(2, Action::Ring)];
        let decides = |protocol| first(&rules, 7, protocol, None, None).map(|rule| rule.number);
        assert_eq!(
            [Some(Protocol::Udp), Some(Protocol::Tcp), None].map(decides),
            [Some(1), Some(2), Some(2)]
        );
        for word in Protocol::WORDS {
            assert_eq!(Protocol::from_word(word).map(Protocol::word), Some(*word));
        }
        assert_eq!(Protocol::from_word("icmp"), None);
    }

    #[test]
    fn an_end_without_a_name_matches_no_address_and_no_port() {
        let mut rule = Rule::new(1, Action::Kernel);
        assert!(rule.is_about_ends(None, None));
        rule.local = vec!["0.0.0.0/0".parse().unwrap()];
        assert!(!rule.is_about_ends(None, None));
        rule.local.clear();
        rule.local_ports = vec!["1-65535".parse().unwrap()];
        assert!(!rule.is_about_ends(None, None));
    }

    #[test]
    fn words_of_actions() {
        for word in Action::WORDS {
            assert_eq!(Action::from_word(word).map(Action::word), Some(*word));
        }
        assert_eq!(Action::from_word("netstack:lab").unwrap().to_string(), "netstack:lab");
        for bad in ["rings", "netstack:", "netstack:.x", "netstacks", "kernel:lab"] {
            assert_eq!(Action::from_word(bad), None, "{bad}");
        }
    }
}
