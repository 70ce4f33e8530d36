//! Scripts: text, one step a line, `END COMMAND ARGUMENTS`. The ends are `c` (client) and `s` (server) and the
//! children that `fork NAME` and `spawn NAME` start. Shorthands stand for several steps:
//!
//! * `pair ADDRESS` - a listener (descriptor 3 of `s`) and a connection to it (4 of `s`, 3 of `c`);
//!   `pair with OPTION VALUE` - one whose listener has that option;
//! * `warm [FD_OF_C FD_OF_S]` - enough traffic there and back for an upgrade.
//!
//! * `dgrams ADDRESS` - two sockets of datagrams, descriptors 3 of both ends, of which that of `s` has this address; `dgrams inherited ADDRESS` - ones
//!   that are not close-on-exec;
//! * `pings [ADDRESS|-]` - datagrams there and back between them, enough to go by shared memory; `-`: they are connected.
//!
//! `%port:END:FD` stands for the local port of a descriptor, `%peer:END:FD` for its other end's, `%pid:END` for a process id;
//! a word `@END:FD` for the address of the last `dgrams` with the port of a descriptor.
//! `stop END` and `cont END` send SIGSTOP and SIGCONT from outside.

use std::fmt;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Who: `c`, `s` or a child's name; empty for the driver itself.
    pub end: String,
    /// What.
    pub command: String,
}

impl Step {
    /// A step from its parts.
    pub fn new(end: &str, command: impl Into<String>) -> Step {
        Step { end: end.to_owned(), command: command.into() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.end.is_empty() {
            f.write_str(&self.command)
        } else {
            write!(f, "{} {}", self.end, self.command)
        }
    }
}

/// Parses a script and expands its shorthands.
pub fn parse(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut address = "127.0.0.1";
    for line in text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty()) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        match first {
            "pair" => match rest.strip_prefix("with ") {
                None => pair(if rest.is_empty() { "127.0.0.1" } else { rest }, None, &mut steps),
                option => pair("127.0.0.1", option, &mut steps),
            },
            "warm" => {
                let mut fds = rest.split(' ').filter(|w| !w.is_empty());
                warm(fds.next().unwrap_or("3"), fds.next().unwrap_or("4"), &mut steps);
            }
            "dgrams" => {
                let inherited = rest.strip_prefix("inherited ");
                address = inherited.unwrap_or(rest);
                dgrams(address, if inherited.is_some() { "dgram" } else { "dgram|cloexec" }, &mut steps);
            }
            "pings" => pings(if rest.is_empty() { "@s:3" } else { rest }, address, &mut steps),
            "stop" | "cont" => steps.push(Step::new("", line)),
            _ => steps.push(Step::new(first, rest.replace(" @", &format!(" {address}:%port:")))),
        }
    }
    steps
}

fn pair(address: &str, option: Option<&str>, steps: &mut Vec<Step>) {
    let family = if address.starts_with('[') { "inet6" } else { "inet" };
    steps.push(Step::new("s", format!("socket {family}")));
    steps.extend(option.map(|option| Step::new("s", format!("setsockopt 3 {option}"))));
    steps.push(Step::new("s", format!("bind 3 {address}:0")));
    steps.push(Step::new("s", "listen 3"));
    steps.push(Step::new("c", format!("socket {family}")));
    steps.push(Step::new("c", format!("connect 3 {address}:%port:s:3")));
    steps.push(Step::new("s", "accept 3"));
}

fn warm(client: &str, server: &str, steps: &mut Vec<Step>) {
    steps.push(Step::new("s", format!("go warm echo {server} 64 100")));
    steps.push(Step::new("c", format!("ping {client} 64 100")));
    steps.push(Step::new("s", "join warm"));
}

fn dgrams(address: &str, kind: &str, steps: &mut Vec<Step>) {
    let family = if address.starts_with('[') { "inet6" } else { "inet" };
    steps.push(Step::new("s", format!("socket {family} {kind}")));
    steps.push(Step::new("s", format!("bind 3 {address}:0")));
    steps.push(Step::new("c", format!("socket {family} {kind}")));
}

fn pings(to: &str, address: &str, steps: &mut Vec<Step>) {
    let to = to.replace('@', &format!("{address}:%port:"));
    steps.push(Step::new("s", "go echoes echo_from 3 100"));
    steps.push(Step::new("c", format!("ping_to 3 100 64 {to}")));
    steps.push(Step::new("s", "join echoes"));
}

/// Replaces what differs between equal runs: port numbers by `p0`, `p1`, ... in order of appearance, process
/// ids and amounts that the kernel does not promise by nothing.
#[derive(Debug, Default)]
pub struct Names {
    ports: Vec<String>,
}

impl Names {
    /// The line with the names in place of the numbers.
    pub fn normalise(&mut self, line: &str) -> String {
        let words = line.split(' ').map(|word| {
            if word.starts_with("pid=") || word.starts_with("total=") {
                return word.split('=').next().unwrap_or("").to_owned();
            }
            match (word.strip_prefix("addr="), word.rsplit_once(':')) {
                (Some(_), Some((host, port))) if port != "0" => {
                    let known = self.ports.iter().position(|p| p == port);
                    let index = known.unwrap_or_else(|| {
                        self.ports.push(port.to_owned());
                        self.ports.len() - 1
                    });
                    format!("{host}:p{index}")
                }
                _ => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}
