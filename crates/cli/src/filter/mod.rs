//! Filters as users of tcpdump and ss type them: `port 6379 and not pid 42`, `src 127.0.0.1:80 or dport = :443`.
//!
//! What is asked about is one direction of a connection; names of hosts and of services are not looked up.

mod read;

use bypath_sockets::rules::{Network, Pattern};
use std::net::{IpAddr, SocketAddr};

/// What goes through a connection one way.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// How it is carried.
    pub protocol: Protocol,
    /// The sender's address.
    pub source: Option<SocketAddr>,
    /// The receiver's.
    pub destination: Option<SocketAddr>,
    /// Processes that it is about, and their names.
    pub processes: &'a [(u32, &'a str)],
    /// `ring`, `kernel`, or two of these; of a netstack service `netstack:` and `ring`, `pair`, or two of these.
    pub path: &'a str,
    /// The code of its reason, or two.
    pub reason: &'a str,
}

/// The protocols there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

/// A filter.
#[derive(Clone, Debug)]
pub struct Filter(Test);

/// Which of the two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
    Both,
}

/// Hosts.
#[derive(Clone, Debug)]
enum Hosts {
    Net(Network),
    /// `localhost`, of either version.
    Loopback,
}

#[derive(Clone, Debug)]
enum Test {
    All(Vec<Test>),
    Any(Vec<Test>),
    Not(Box<Test>),
    Host(Side, Hosts),
    /// A port from one number to another.
    Port(Side, u16, u16),
    Pid(u32),
    Name(Pattern),
    Path(String),
    Reason(String),
    Carried(Protocol),
    /// IPv4 or IPv6.
    Version(u8),
}

impl Filter {
    /// Reads the words of a filter; `None` if there are none.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn read(words: &[String]) -> Result<Option<Filter>, String> {
        if words.iter().all(|w| w.trim().is_empty()) {
            return Ok(None);
        }
        if let Some(error) = option_among(words) {
            return Err(error);
        }
        read::read(&words.join(" ")).map(|test| Some(Filter(test)))
    }

    /// Whether it lets this through.
    pub fn passes(&self, facts: &Facts) -> bool {
        self.0.holds(facts)
    }
}

/// What to say of an option that stands behind the first word of a filter, where all is the filter.
fn option_among(words: &[String]) -> Option<String> {
    let words = || words.iter().flat_map(|w| w.split_whitespace());
    let is_option = |word: &&str| word.len() > 1 && word.starts_with('-');
    let option = words().find(is_option)?;
    let ordered: Vec<_> = words().filter(is_option).chain(words().filter(|w| !is_option(w))).collect();
    Some(format!("'{option}' is an option, and these stand before the filter: {}", ordered.join(" ")))
}

impl Side {
    fn holds(self, facts: &Facts, f: impl Fn(SocketAddr) -> bool) -> bool {
        let (source, destination) = (facts.source.is_some_and(&f), facts.destination.is_some_and(&f));
        match self {
            Side::Source => source,
            Side::Destination => destination,
            Side::Either => source || destination,
            Side::Both => source && destination,
        }
    }
}

impl Hosts {
    fn contain(&self, ip: IpAddr) -> bool {
        match self {
            Hosts::Net(net) => net.contains(ip),
            Hosts::Loopback => ip.to_canonical().is_loopback(),
        }
    }
}

/// Whether a code is this word, or one of the two of it.
fn has_word(code: &str, word: &str) -> bool {
    code == word || code.split('/').any(|part| part == word)
}

impl Test {
    fn holds(&self, facts: &Facts) -> bool {
        match self {
            Test::All(tests) => tests.iter().all(|t| t.holds(facts)),
            Test::Any(tests) => tests.iter().any(|t| t.holds(facts)),
            Test::Not(test) => !test.holds(facts),
            Test::Host(side, hosts) => side.holds(facts, |a| hosts.contain(a.ip())),
            Test::Port(side, from, to) => side.holds(facts, |a| (*from..=*to).contains(&a.port())),
            Test::Pid(pid) => facts.processes.iter().any(|(p, _)| p == pid),
            Test::Name(name) => facts.processes.iter().any(|(_, n)| name.matches(n)),
            Test::Path(path) => {
                let (carrier, words) = facts.path.split_once(':').unwrap_or(("", facts.path));
                path == facts.path || path == carrier || has_word(words, path)
            }
            Test::Reason(reason) => has_word(facts.reason, reason),
            Test::Carried(protocol) => facts.protocol == *protocol,
            Test::Version(version) => {
                Side::Either.holds(facts, |a| a.ip().to_canonical().is_ipv4() == (*version == 4))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(filter: &str) -> bool {
        let words: Vec<String> = filter.split(' ').map(str::to_owned).collect();
        let filter = Filter::read(&words).unwrap_or_else(|e| panic!("{filter}: {e}")).expect("a filter");
        filter.passes(&Facts {
            protocol: Protocol::Tcp,
            source: Some("127.0.0.1:40000".parse().unwrap()),
            destination: Some("[::ffff:10.1.2.3]:6379".parse().unwrap()),
            processes: &[(12, "redis-server"), (13, "nginx")],
            path: "ring/kernel",
            reason: "ring/peer-plain",
        })
    }

    #[test]
    fn what_tcpdump_and_ss_know_is_understood() {
        for filter in [
            "port 6379",
            "tcp port 6379",
            "dst port 6379 and src port 40000",
            "src or dst port 40000",
            "host 127.0.0.1",
            "src host 127.0.0.1",
            "src 127.0.0.1",
            "src 127.0.0.1:40000",
            "dst 10.1.2.3",
            "dst :6379",
            "src localhost",
            "net 10.0.0.0/8",
            "dst net 10.1.2.3/32",
            "portrange 6000-7000",
            "sport = :40000",
            "sport == 40000",
            "dport != :80",
            "dport >= :6379 and dport < 6380",
            "( sport = :40000 or sport = :2 )",
            "port 80 or 6379",
            "port (80 or 6379)",
            "not port 80",
            "!port 80",
            "not (port 80 or port 81) && host 127.0.0.1",
            "port 6379 host 127.0.0.1",
            "pid 12",
            "pid 1 or 12",
            "comm nginx and name redis-*",
            "path ring and path kernel and path ring/kernel",
            "reason peer-plain",
            "ip and tcp and not udp and not ip6",
            "tcp",
            "src and dst portrange 6000-50000",
        ] {
            assert!(passes(filter), "{filter}");
        }
        for filter in [
            "port 80",
            "src port 6379",
            "src and dst port 6379",
            "dst 127.0.0.1",
            "udp port 6379",
            "host ::1",
            "ip6",
            "pid 14",
            "comm redis",
            "not comm nginx",
            "dport < 6379",
            "sport ne 40000",
            "port 6379 and port 80",
            "reason none",
            "not not port 80",
        ] {
            assert!(!passes(filter), "{filter}");
        }
    }

    #[test]
    fn paths_of_a_netstack_service_are_known() {
        for (filter, passes) in [
            ("path netstack", true),
            ("path ring and path pair", true),
            ("path netstack:ring/pair and path ring/pair", true),
            ("path kernel", false),
            ("path netstack:ring", false),
        ] {
            let filter = Filter::read(&[filter.to_owned()]).expect(filter).expect("a filter");
            let facts = Facts {
                protocol: Protocol::Tcp,
                source: None,
                destination: None,
                processes: &[],
                path: "netstack:ring/pair",
                reason: "ring/below-threshold",
            };
            assert_eq!(filter.passes(&facts), passes, "{filter:?}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (filter, part) in [
            ("prot 80", "'prot'"),
            ("port 80 --json", "stand before the filter: --json port 80"),
            ("port", "a port number after 'port'"),
            ("port 0x50", "'0x50'"),
            ("port 70000", "'70000'"),
            ("port http", "a port number"),
            ("portrange 9-3", "'9-3'"),
            ("80", "port 80"),
            ("host example.org", "not looked up"),
            ("net 10.1.2.3/8", "10.0.0.0/8"),
            ("pid 0", "'0'"),
            ("path rings", "ring or kernel"),
            ("reason peer-plane", "peer-plain"),
            ("(port 80", "')'"),
            ("port 80)", "')'"),
            ("port 80 and", "after 'and'"),
            ("and port 80", "'and'"),
            ("not", "after 'not'"),
            ("port 80 or port 81 and host ::1", "parentheses"),
            ("sport 80 81", "'81'"),
            ("sport ~ 80", "'~'"),
        ] {
            let error = Filter::read(&[filter.to_owned()]).expect_err(filter);
            assert!(error.contains(part), "{filter}: {error}");
        }
        assert!(Filter::read(&[]).expect("no filter").is_none());
        let deep = "(".repeat(100_000);
        assert!(Filter::read(&[deep]).expect_err("too deep").contains("deep"));
        assert!(Filter::read(&["not ".repeat(100_000)]).expect_err("too deep").contains("deep"));
    }
}
