//! From words to tests.
//!
//! `not` binds closest. tcpdump reads `a or b and c` from the left, ss and most languages take `and` first: who mixes them says
//! by parentheses which is meant. Tests that stand side by side must all hold, as in ss. A value without a keyword has the
//! last one, as in tcpdump.

use super::{Hosts, Protocol, Side, Test};
use bypath_shm::reason::Reason;
use bypath_sockets::rules::{Network, NetworkError, Pattern};

/// Parentheses and negations within each other at most.
const DEEPEST: usize = 64;

/// What can stand before a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An address, with or without a port: `src 127.0.0.1:80`.
    Place(Side),
    Host(Side),
    Net(Side),
    Port(Side),
    PortRange(Side),
    Pid,
    Name,
    Path,
    Reason,
}

const KEYWORDS: [&str; 20] = [
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "sport",
    "dport",
    "pid",
    "comm",
    "name",
    "path",
    "reason",
    "tcp",
    "udp",
    "ip",
    "ip6",
    "and",
    "or",
    "not",
];

/// Reads a filter.
pub fn read(text: &str) -> Result<Test, String> {
    let mut reader = Reader { words: words(text), at: 0, last: None, depth: 0 };
    let test = reader.either()?;
    match reader.peek() {
        None => Ok(test),
        Some(word) => Err(format!("there is no '(' that '{word}' closes")),
    }
}

/// Words, parentheses and operators.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        // In the middle of a word it is one of its characters, as in [!a-z].
        let part = open && c == '!' && rest.peek() != Some(&'=');
        match c {
            c if c.is_whitespace() => open = false,
            '(' | ')' => {
                words.push(c.to_string());
                open = false;
            }
            '&' | '|' | '=' | '!' | '<' | '>' if !part => {
                let mut word = c.to_string();
                // && || == != <= >=
                let second = if matches!(c, '&' | '|') { c } else { '=' };
                word.extend(rest.next_if_eq(&second));
                words.push(word);
                open = false;
            }
            c => {
                match words.last_mut().filter(|_| open) {
                    Some(word) => word.push(c),
                    None => words.push(c.to_string()),
                }
                open = true;
            }
        }
    }
    words
}

struct Reader {
    words: Vec<String>,
    at: usize,
    last: Option<Kind>,
    depth: usize,
}

fn is_and(word: &str) -> bool {
    matches!(word, "and" | "&&" | "&")
}

fn is_or(word: &str) -> bool {
    matches!(word, "or" | "||" | "|")
}

impl Reader {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self) -> Option<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word
    }

    fn take_if(&mut self, is: impl Fn(&str) -> bool) -> Option<String> {
        if self.peek().is_some_and(is) { self.take() } else { None }
    }

    /// Tests with `and`, or with `or`, between them.
    fn either(&mut self) -> Result<Test, String> {
        let first = self.single("")?;
        let (mut tests, mut ors) = (vec![first], None);
        while let Some(word) = self.peek().map(str::to_owned) {
            if word == ")" {
                break;
            }
            let or = is_or(&word);
            if ors.replace(or).is_some_and(|before| before != or) {
                return Err("'and' and 'or' side by side: say by parentheses which is meant, as in: port 80 and (pid 1 or pid 2)"
                    .to_owned());
            }
            let joined = or || is_and(&word);
            self.at += usize::from(joined);
            tests.push(self.single(if joined { &word } else { "" })?);
        }
        Ok(match ors {
            None => tests.remove(0),
            Some(true) => Test::Any(tests),
            Some(false) => Test::All(tests),
        })
    }

    /// One test, or what is in parentheses; `after` which word.
    fn single(&mut self, after: &str) -> Result<Test, String> {
        let Some(word) = self.take() else {
            return Err(match after {
                "" => "a test is missing; one is, for example: port 80".to_owned(),
                word => format!("a test is missing after '{word}'"),
            });
        };
        match word.as_str() {
            "(" => self.deeper(|reader| {
                let test = reader.either()?;
                reader.take_if(|w| w == ")").ok_or("a ')' is missing")?;
                Ok(test)
            }),
            "not" | "!" => self.deeper(|reader| Ok(Test::Not(Box::new(reader.single(&word)?)))),
            "tcp" | "udp" => Ok(Test::Carried(if word == "tcp" { Protocol::Tcp } else { Protocol::Udp })),
            "ip" => Ok(Test::Version(4)),
            "ip6" => Ok(Test::Version(6)),
            "sport" => self.compared(Side::Source, &word),
            "dport" => self.compared(Side::Destination, &word),
            "src" | "dst" => {
                let side = self.side(&word);
                let kind = match self.peek() {
                    Some("host") => Kind::Host(side),
                    Some("net") => Kind::Net(side),
                    Some("port") => Kind::Port(side),
                    Some("portrange") => Kind::PortRange(side),
                    _ => return self.values(Kind::Place(side), &word),
                };
                let word = self.take().unwrap_or_default();
                self.values(kind, &word)
            }
            "host" => self.values(Kind::Host(Side::Either), &word),
            "net" => self.values(Kind::Net(Side::Either), &word),
            "port" => self.values(Kind::Port(Side::Either), &word),
            "portrange" => self.values(Kind::PortRange(Side::Either), &word),
            "pid" => self.values(Kind::Pid, &word),
            "comm" | "name" => self.values(Kind::Name, &word),
            "path" => self.values(Kind::Path, &word),
            "reason" => self.values(Kind::Reason, &word),
            other => match self.last {
                // As in `port 80 or 81`.
                Some(kind) if !after.is_empty() => self.value(kind, other),
                _ => Err(unknown(other)),
            },
        }
    }

    /// Goes into parentheses, or behind `not`.
    fn deeper(&mut self, f: impl FnOnce(&mut Reader) -> Result<Test, String>) -> Result<Test, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("'(' and 'not' go more than {DEEPEST} deep"));
        }
        let test = f(self);
        self.depth -= 1;
        test
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn side(&mut self, first: &str) -> Side {
        let one = if first == "src" { Side::Source } else { Side::Destination };
        let other = if first == "src" { "dst" } else { "src" };
        let joined = self.words.get(self.at..self.at + 2).filter(|two| two[1] == other);
        let side = match joined {
            Some([word, _]) if is_or(word) => Side::Either,
            Some([word, _]) if is_and(word) => Side::Both,
            _ => return one,
        };
        self.at += 2;
        side
    }

    /// What follows a keyword: a value, or several in parentheses.
    fn values(&mut self, kind: Kind, keyword: &str) -> Result<Test, String> {
        self.last = Some(kind);
        if self.take_if(|w| w == "(").is_none() {
            let value = self
                .take_if(|w| w != ")")
                .ok_or_else(|| format!("expected {} after '{keyword}'", expected(kind)))?;
            return self.value(kind, &value);
        }
        let mut tests = Vec::new();
        loop {
            let value = self.take().ok_or("a ')' is missing")?;
            tests.push(self.value(kind, &value)?);
            match self.take().as_deref() {
                Some(")") => return Ok(Test::Any(tests)),
                Some(word) if is_or(word) => {}
                _ => return Err(format!("expected 'or' or ')' after '{value}'")),
            }
        }
    }

    fn value(&mut self, kind: Kind, text: &str) -> Result<Test, String> {
        let wrong = || format!("expected {}, not '{text}'", expected(kind));
        Ok(match kind {
            Kind::Place(side) => return place(side, text),
            Kind::Host(side) | Kind::Net(side) => Test::Host(side, hosts(text)?),
            Kind::Port(side) => {
                let port = port(text).ok_or_else(wrong)?;
                Test::Port(side, port, port)
            }
            Kind::PortRange(side) => {
                let (from, to) = text.split_once('-').ok_or_else(wrong)?;
                match (port(from), port(to)) {
                    (Some(from), Some(to)) if from <= to => Test::Port(side, from, to),
                    _ => return Err(wrong()),
                }
            }
            Kind::Pid => Test::Pid(text.parse().ok().filter(|pid| *pid != 0).ok_or_else(wrong)?),
            Kind::Name => {
                Test::Name(Pattern::parse(text).map_err(|e| format!("expected {e}, not '{text}'"))?)
            }
            Kind::Path => {
                let known = text
                    .split(['/', ':'])
                    .all(|part| matches!(part, "ring" | "kernel" | "pair" | "netstack"));
                Test::Path(if known { text.to_owned() } else { return Err(wrong()) })
            }
            Kind::Reason => {
                let codes = || Reason::ALL.iter().map(|r| r.code());
                let meant = codes()
                    .max_by(|a, b| strsim::jaro_winkler(a, text).total_cmp(&strsim::jaro_winkler(b, text)));
                match text.split('/').all(|part| codes().any(|code| code == part)) {
                    true => Test::Reason(text.to_owned()),
                    false => return Err(format!("{} (is {} meant?)", wrong(), meant.unwrap_or("none"))),
                }
            }
        })
    }

    /// `sport = :80`, `dport >= 1024`.
    fn compared(&mut self, side: Side, keyword: &str) -> Result<Test, String> {
        self.last = Some(Kind::Port(side));
        let is_operator = |w: &str| {
            matches!(w, "=" | "==" | "eq" | "!=" | "ne" | "<" | "lt" | ">" | "gt" | "<=" | "le" | ">=" | "ge")
        };
        let operator = self.take_if(is_operator).unwrap_or_else(|| "=".to_owned());
        let text = self.take().ok_or_else(|| format!("expected a port number after '{keyword}'"))?;
        let number = port(&text).ok_or_else(|| format!("expected a port number, not '{text}'"))?;
        let range = |from, to| Test::Port(side, from, to);
        let none = || Test::Any(Vec::new());
        Ok(match operator.as_str() {
            "!=" | "ne" => Test::Not(Box::new(range(number, number))),
            "<" | "lt" => number.checked_sub(1).map_or_else(none, |to| range(0, to)),
            ">" | "gt" => number.checked_add(1).map_or_else(none, |from| range(from, u16::MAX)),
            "<=" | "le" => range(0, number),
            ">=" | "ge" => range(number, u16::MAX),
            _ => range(number, number),
        })
    }
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Place(_) => "an address, a port as :80, or both as 127.0.0.1:80",
        Kind::Host(_) | Kind::Net(_) => "an address, or a network as 10.0.0.0/8",
        Kind::Port(_) => "a port number",
        Kind::PortRange(_) => "two port numbers, the lower one first, as 8000-8999",
        Kind::Pid => "the number of a process",
        Kind::Name => "the name of a program",
        Kind::Path => "ring or kernel, or of a netstack service: netstack, ring, pair",
        Kind::Reason => "the code of a reason",
    }
}

fn unknown(word: &str) -> String {
    if port(word).is_some() {
        return format!("'{word}': of what? For example: port {word}, or pid {word}");
    }
    if word.parse::<std::net::IpAddr>().is_ok() {
        return format!("'{word}': as what? For example: host {word}");
    }
    if is_and(word) || is_or(word) || word == ")" {
        return format!("a test is missing before '{word}'");
    }
    let close = KEYWORDS.iter().max_by(|a, b| strsim::jaro(a, word).total_cmp(&strsim::jaro(b, word)));
    let meant = close
        .filter(|k| strsim::jaro(k, word) > 0.7)
        .map_or(String::new(), |k| format!(" (is '{k}' meant?)"));
    format!(
        "'{word}' is no test{meant}. There are: host, net, port, portrange, src, dst, sport, dport, pid, comm, path, reason, tcp, udp, ip, ip6"
    )
}

/// A port, with or without the colon that ss has before it.
fn port(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(':').unwrap_or(text);
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn hosts(text: &str) -> Result<Hosts, String> {
    if text == "localhost" {
        return Ok(Hosts::Loopback);
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    bare.parse().map(Hosts::Net).map_err(|e| match e {
        NetworkError::Shape => {
            format!("expected an address, not '{text}': names are not looked up")
        }
        NetworkError::Prefix(bits) => format!("'{text}': such an address has {bits} bits"),
        NetworkError::HostBits(meant) => format!("'{text}' has bits behind its length; is {meant} meant?"),
    })
}

/// An address, a port behind a colon, or both.
fn place(side: Side, text: &str) -> Result<Test, String> {
    if text == "localhost" || text.parse::<Network>().is_ok() {
        return Ok(Test::Host(side, hosts(text)?));
    }
    match text.rsplit_once(':') {
        Some((host, number)) if port(number).is_some() => {
            let number = port(number).unwrap_or(0);
            let of_port = Test::Port(side, number, number);
            match host {
                "" | "*" => Ok(of_port),
                host => Ok(Test::All(vec![Test::Host(side, hosts(host)?), of_port])),
            }
        }
        _ => hosts(text).map(|hosts| Test::Host(side, hosts)),
    }
}
