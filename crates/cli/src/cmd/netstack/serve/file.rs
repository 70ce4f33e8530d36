//! The service's own configuration file: the flags by their names, routes, limits. Every mistake is told, with its line.

use super::super::attach::{Wishes, link, own};
use super::metrics;
use crate::args::user;
use crate::cmd::tun::network;
use crate::config::{Problem, Text, nearest, scalar};
use bypath::link::fault::Faults;
use bypath_netstack::{LinkName, Way};
use bypath_shm::service;
use bypath_stack::prefix::Prefix;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What stands in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    pub name: Option<String>,
    pub link: Option<LinkName>,
    pub wishes: Wishes,
    /// With line and column.
    pub routes: Vec<(Way, (u32, u32))>,
    pub capture: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    /// Microseconds.
    pub busy_poll: Option<u32>,
    pub limits: Limits,
    /// What harms frames on purpose, each way.
    pub faults: Option<Faults>,
}

/// What users of the service may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub sockets_per_user: Option<usize>,
    pub octets_per_user: Option<usize>,
    /// 0: none.
    pub ring_octets: Option<u32>,
    /// Who may use ports below 1024, beside root.
    pub low_ports: Vec<u32>,
    /// Who may use the service, beside root and its own user.
    pub users: Users,
}

/// Users whom the service is for, beside root and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    Some(Vec<u32>),
    /// `all`.
    All,
}

impl Default for Users {
    fn default() -> Users {
        Users::Some(Vec::new())
    }
}

/// Of `--users`: names and numbers between commas, or `all`.
pub fn users(text: &str) -> Result<Users, String> {
    if text == "all" {
        return Ok(Users::All);
    }
    text.split(',').map(user).collect::<Result<_, _>>().map(Users::Some)
}

const KEYS: &[&str] = &[
    "name",
    "link",
    "attach",
    "net",
    "addr",
    "gateway",
    "dhcp",
    "slaac",
    "mtu",
    "capture",
    "metrics",
    "busy-poll",
    "routes",
    "limits",
    "faults",
];
const OF_ROUTES: &[&str] = &["to", "via", "metric"];
const OF_FAULTS: &[&str] = &["loss", "duplication", "corruption", "reordering", "delay-ms", "jitter-ms"];
const OF_LIMITS: &[&str] = &["sockets-per-user", "octets-per-user", "ring-octets", "low-ports", "users"];

/// Reads a file, and checks it.
///
/// # Errors
/// It cannot be read; what is wrong in it is listed.
pub fn read(path: &Path) -> std::io::Result<(File, Vec<Problem>)> {
    Ok(parse(&std::fs::read_to_string(path)?))
}

fn parse(source: &str) -> (File, Vec<Problem>) {
    let (root, errors) = DeTable::parse_recoverable(source);
    let reader = Reader(Text::new(source));
    let mut file = File::default();
    for (key, value) in root.get_ref() {
        let name: &str = key.get_ref();
        let wishes = &mut file.wishes;
        match name {
            "name" => file.name = reader.one(name, value, named),
            "link" => file.link = reader.one(name, value, link),
            "attach" => wishes.attach = reader.switch(name, value),
            "dhcp" => wishes.dhcp = reader.switch(name, value),
            "slaac" => wishes.slaac = reader.switch(name, value),
            "net" => wishes.net = reader.several(name, value, network),
            "addr" => wishes.addr = reader.several(name, value, own),
            "gateway" => wishes.gateway = reader.several(name, value, address),
            "mtu" => wishes.mtu = reader.one(name, value, number),
            "capture" => file.capture = reader.one(name, value, |text| Ok(text.into())),
            "metrics" => file.metrics = reader.one(name, value, metrics::place),
            "busy-poll" => file.busy_poll = reader.one(name, value, microseconds),
            "routes" => file.routes = reader.routes(value),
            "limits" => match value.get_ref() {
                DeValue::Table(table) => file.limits = reader.limits(table),
                other => reader.0.wrong_type(&value.span(), name, "a table", other),
            },
            "faults" => match value.get_ref() {
                DeValue::Table(table) => file.faults = Some(reader.faults(table)),
                other => reader.0.wrong_type(&value.span(), name, "a table", other),
            },
            _ => reader.unknown(&key.span(), name, KEYS),
        }
    }
    reader.0.syntax(&errors);
    (file, reader.0.into_problems())
}

struct Reader<'a>(Text<'a>);

impl Reader<'_> {
    fn unknown(&self, at: &Range<usize>, name: &str, known: &[&str]) {
        // The long form of what is short here: addresses.
        let short = || known.iter().find(|key| key.len() > 3 && name.starts_with(**key));
        let meant = nearest(name, known.iter().copied()).or_else(|| short().map(|key| (*key).to_owned()));
        self.0.error(at, format!("unknown key '{name}'"), meant);
    }

    /// A string or a number.
    fn one<T>(
        &self,
        name: &str,
        value: &Spanned<DeValue>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let Some(text) = scalar(value.get_ref()) else {
            self.0.wrong_type(&value.span(), name, "a string or a number", value.get_ref());
            return None;
        };
        match parse(&text) {
            Ok(parsed) => Some(parsed),
            Err(why) => {
                self.0.error(&value.span(), format!("invalid value '{text}' for {name}: {why}"), None);
                None
            }
        }
    }

    /// One, or a list.
    fn several<T>(
        &self,
        name: &str,
        value: &Spanned<DeValue>,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        match value.get_ref() {
            DeValue::Array(all) => all.iter().filter_map(|one| self.one(name, one, &parse)).collect(),
            _ => self.one(name, value, &parse).into_iter().collect(),
        }
    }

    fn switch(&self, name: &str, value: &Spanned<DeValue>) -> bool {
        match value.get_ref() {
            DeValue::Boolean(on) => *on,
            other => {
                self.0.wrong_type(&value.span(), name, "true or false", other);
                false
            }
        }
    }

    fn routes(&self, value: &Spanned<DeValue>) -> Vec<(Way, (u32, u32))> {
        let DeValue::Array(all) = value.get_ref() else {
            self.0.wrong_type(&value.span(), "routes", "[[routes]] tables", value.get_ref());
            return Vec::new();
        };
        let mut ways = Vec::new();
        for one in all.iter() {
            match one.get_ref() {
                DeValue::Table(table) => ways.extend(self.route(&one.span(), table)),
                other => self.0.wrong_type(&one.span(), "routes", "[[routes]] tables", other),
            }
        }
        ways
    }

    fn route(&self, at: &Range<usize>, table: &DeTable) -> Option<(Way, (u32, u32))> {
        let (mut to, mut via, mut metric, mut tried) = (None, None, 0, false);
        let mut place = at.clone();
        for (key, value) in table {
            match &**key.get_ref() {
                "to" => {
                    to = self.one("to", value, own);
                    tried = true;
                }
                "via" => {
                    via = self.one("via", value, address);
                    place = value.span();
                }
                "metric" => metric = self.one("metric", value, number).unwrap_or(0),
                name => self.unknown(&key.span(), name, OF_ROUTES),
            }
        }
        if !tried {
            self.0.error(at, "a route needs 'to', such as \"10.1.0.0/16\"".to_owned(), None);
        }
        let to: Prefix = to?;
        Some((Way { to: to.network(), via, metric }, self.0.position(place.start)))
    }

    fn faults(&self, table: &DeTable) -> Faults {
        let mut faults = Faults::NONE;
        for (key, value) in table {
            let ms =
                |name: &str| self.one(name, value, number::<u32>).map_or(0, |ms| u64::from(ms) * 1_000_000);
            let part = |name: &str| self.probability(name, value).unwrap_or(0.0);
            match &**key.get_ref() {
                name @ "loss" => faults.loss = part(name),
                name @ "duplication" => faults.duplication = part(name),
                name @ "corruption" => faults.corruption = part(name),
                name @ "reordering" => faults.reordering = part(name),
                name @ "delay-ms" => faults.delay = ms(name),
                name @ "jitter-ms" => faults.jitter = ms(name),
                name => self.unknown(&key.span(), name, OF_FAULTS),
            }
        }
        faults
    }

    /// Of a fault, for each frame.
    fn probability(&self, name: &str, value: &Spanned<DeValue>) -> Option<f64> {
        let text = match value.get_ref() {
            DeValue::Float(float) => Some(float.as_str().to_owned()),
            other => scalar(other),
        };
        let parsed = text.as_ref().and_then(|text| text.parse().ok()).filter(|p| (0.0..=1.0).contains(p));
        if parsed.is_none() {
            let shown = text.unwrap_or_else(|| "this".to_owned());
            let text = format!(
                "invalid value '{shown}' for {name}: expected a probability from 0 to 1, such as 0.01"
            );
            self.0.error(&value.span(), text, None);
        }
        parsed
    }

    fn limits(&self, table: &DeTable) -> Limits {
        let mut limits = Limits::default();
        for (key, value) in table {
            match &**key.get_ref() {
                name @ "sockets-per-user" => limits.sockets_per_user = self.one(name, value, sockets),
                name @ "octets-per-user" => limits.octets_per_user = self.one(name, value, some_octets),
                name @ "ring-octets" => limits.ring_octets = self.one(name, value, ring),
                name @ "low-ports" => limits.low_ports = self.several(name, value, user),
                "users" if value.get_ref().as_str() == Some("all") => limits.users = Users::All,
                name @ "users" => limits.users = Users::Some(self.several(name, value, user)),
                name => self.unknown(&key.span(), name, OF_LIMITS),
            }
        }
        limits
    }
}

/// A service's name.
pub fn named(text: &str) -> Result<String, String> {
    if service::is_name(text) {
        return Ok(text.to_owned());
    }
    let most = service::LONGEST_NAME;
    Err(format!("expected 1 to {most} letters, digits, '-', '_' or '.', the first one no '.'"))
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "expected an IP address".to_owned())
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// Of `busy-poll`.
pub fn microseconds(text: &str) -> Result<u32, String> {
    let most = super::MOST_BUSY;
    let number = text.parse().ok().filter(|n| i64::from(*n) <= most);
    number.ok_or_else(|| format!("expected microseconds, {most} at most"))
}

/// A number of sockets. Who is to have none is not among `users`.
fn sockets(text: &str) -> Result<usize, String> {
    let least = |n: &usize| *n > 0;
    let number = number(text)?;
    Some(number).filter(least).ok_or_else(|| {
        "with none nobody could open a socket; expected 1 or more (who may use the service: users)".to_owned()
    })
}

/// Octets that somebody may have, who has none at all otherwise.
fn some_octets(text: &str) -> Result<usize, String> {
    let octets = octets(text)?;
    if octets > 0 {
        Ok(octets)
    } else {
        Err("with none nothing could be sent; expected a number such as 64M".to_owned())
    }
}

/// A number of octets, with K, M or G behind it, or not.
fn octets(text: &str) -> Result<usize, String> {
    let expected = || "expected a number of octets such as 64M".to_owned();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count: usize = digits.parse().map_err(|_| expected())?;
    count.checked_mul(1 << shift).ok_or_else(expected)
}

/// Octets of a ring.
fn ring(text: &str) -> Result<u32, String> {
    let octets = octets(text).ok().and_then(|octets| u32::try_from(octets).ok());
    let fits =
        |octets: &u32| *octets == 0 || octets.is_power_of_two() && (4 << 10..=1 << 20).contains(octets);
    octets.filter(fits).ok_or_else(|| "expected a power of two from 4K to 1M, or 0 for no rings".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_stand_in_a_file_is_read() {
        let (file, problems) = parse(
            "name = \"lab\"\nlink = \"tap:bp0\"\nattach = true\nnet = \"10.9.0.1/24\"\naddr = [\"10.9.0.2/24\", \"fd09::2/64\"]\n\
             gateway = [\"10.9.0.1\"]\nslaac = true\nmtu = 9000\ncapture = \"/tmp/x.pcapng\"\nmetrics = 9100\nbusy-poll = 50\n\
             [[routes]]\nto = \"10.1.2.3/16\"\nvia = \"10.9.0.7\"\nmetric = 3\n\
             [faults]\nloss = 0.5\ncorruption = 1\ndelay-ms = 3\n\
             [limits]\nsockets-per-user = 10\noctets-per-user = \"64M\"\nring-octets = \"64K\"\nlow-ports = [\"root\", 1000]\nusers = 7\n",
        );
        assert_eq!(problems, []);
        assert_eq!((file.name.as_deref(), file.link), (Some("lab"), Some(LinkName::Tap("bp0".to_owned()))));
        assert_eq!(file.wishes.net, [("10.9.0.1".parse().unwrap(), 24)]);
        assert_eq!((file.wishes.addr.len(), file.wishes.gateway.len(), file.wishes.mtu), (2, 1, Some(9000)));
        assert!(file.wishes.attach && file.wishes.slaac && !file.wishes.dhcp);
        assert_eq!(file.metrics, Some("127.0.0.1:9100".parse().unwrap()));
        assert_eq!(file.busy_poll, Some(50));
        let way =
            Way { to: "10.1.0.0/16".parse().unwrap(), via: Some("10.9.0.7".parse().unwrap()), metric: 3 };
        assert_eq!(file.routes, [(way, (14, 7))]);
        let limits = Limits {
            sockets_per_user: Some(10),
            octets_per_user: Some(64 << 20),
            ring_octets: Some(64 << 10),
            low_ports: vec![0, 1000],
            users: Users::Some(vec![7]),
        };
        assert_eq!(file.limits, limits);
        let faults = Faults { loss: 0.5, corruption: 1.0, delay: 3_000_000, ..Faults::NONE };
        assert_eq!(file.faults, Some(faults));
        assert_eq!(parse("").0, File::default());
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let told = |text: &str| {
            let problems = parse(text).1;
            problems.iter().map(|p| (p.line, p.message.clone(), p.suggestion.clone())).collect::<Vec<_>>()
        };
        for (text, line, words, meant) in [
            ("nam = \"x\"", 1, "unknown key 'nam'", Some("name")),
            ("addresses = \"10.9.0.2/24\"", 1, "unknown key 'addresses'", Some("addr")),
            ("\nlink = \"eth0\"", 2, "expected tap:NAME", None),
            ("dhcp = 1", 1, "expected true or false", None),
            ("addr = [\"10.9.0.2\"]", 1, "invalid value '10.9.0.2' for addr", None),
            ("[limits]\nsockets-per-usr = 1", 2, "unknown key", Some("sockets-per-user")),
            ("[limits]\noctets-per-user = \"1T\"", 2, "such as 64M", None),
            ("[limits]\noctets-per-user = 0", 2, "nothing could be sent", None),
            ("[limits]\nsockets-per-user = 0", 2, "nobody could open a socket; expected 1 or more", None),
            ("\nlink = tap:bp0", 2, "text must be quoted: link = \"tap:bp0\"", None),
            ("[limits]\nring-octets = \"5K\"", 2, "power of two", None),
            ("[limits]\nlow-ports = \"nobody-of-this-name\"", 2, "no such user", None),
            ("[[routes]]\nvia = \"10.9.0.1\"", 1, "needs 'to'", None),
            ("[faults]\nloss = 2", 2, "from 0 to 1", None),
            ("[faults]\nlos = 0.1", 2, "unknown key", Some("loss")),
            ("faults = 0.1", 1, "a table", None),
            ("routes = 1", 1, "[[routes]]", None),
            ("busy-poll = 1000001", 1, "microseconds", None),
            ("mtu = -1", 1, "expected a number", None),
            ("name = \"a/b\"", 1, "letters, digits", None),
            ("link = \"packet:averyveryverylongname\"", 1, "no interface can have such a name", None),
            ("link =", 1, "", None),
        ] {
            let told = told(text);
            assert_eq!(told.len(), 1, "{text}: {told:?}");
            assert_eq!((told[0].0, told[0].2.as_deref()), (line, meant), "{text}: {told:?}");
            assert!(told[0].1.contains(words), "{text}: {told:?}");
        }
    }
}
