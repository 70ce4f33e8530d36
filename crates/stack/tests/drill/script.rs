//! What a script says: lines with a time each, in the syntax of packetdrill.

use std::fmt;

/// Nanoseconds since the script began.
pub type Nanos = u64;

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    At(Nanos),
    /// So long after the line before.
    After(Nanos),
    Between(Nanos, Nanos),
    AfterBetween(Nanos, Nanos),
    /// Whenever.
    Any,
}

#[derive(Clone, Debug)]
pub struct Line {
    /// In the file, from 1 on.
    pub number: usize,
    pub when: When,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Segment(Segment),
    Icmp(Icmp),
    Call(Call),
    Check(Check),
    /// Of a shell: settings of Linux are understood, anything else does nothing.
    Command(String),
    /// `%{ }%`.
    Code,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TcpOption {
    Mss(u16),
    Nop,
    Eol,
    WindowScale(u8),
    SackOk,
    Sack(Vec<(u32, u32)>),
    Timestamps(u32, u32),
    /// Octets as they stand there: our own addition.
    Octets(Vec<u8>),
}

#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub inbound: bool,
    /// Source and destination.
    pub ports: Option<(u16, u16)>,
    /// The two bits of ECN.
    pub ecn: Option<u8>,
    /// `[ect01]`: either of both.
    pub capable: bool,
    pub flags: String,
    pub seq: u32,
    pub len: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub urgent: u16,
    /// `None`: `<...>`, whatever they are.
    pub options: Option<Vec<TcpOption>>,
}

#[derive(Clone, Debug)]
pub struct Icmp {
    pub kind: String,
    pub code: String,
    pub mtu: Option<u32>,
    /// The segment that it quotes: its first number, and its octets.
    pub quoted: Option<(u32, u32)>,
}

/// An argument of a call, or what it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `...`
    Dots,
    Number(i64),
    Word(String),
    Text(String),
    List(Vec<Value>),
    Fields(Vec<(String, Value)>),
    Or(Vec<Value>),
}

#[derive(Clone, Debug)]
pub struct Call {
    /// It may block until then: so long after the script began, or after its own beginning's base.
    pub until: Option<Nanos>,
    pub name: String,
    pub arguments: Vec<Value>,
    pub answer: Value,
    pub errno: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    Differs,
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub fd: Option<i64>,
    pub all: Vec<(String, Relation, Value)>,
}

#[derive(Clone, Debug, Default)]
pub struct Script {
    pub name: String,
    /// `--name=value`
    pub settings: Vec<(String, String)>,
    pub lines: Vec<Line>,
}

impl fmt::Display for TcpOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TcpOption::Mss(size) => write!(f, "mss {size}"),
            TcpOption::Nop => f.write_str("nop"),
            TcpOption::Eol => f.write_str("eol"),
            TcpOption::WindowScale(shift) => write!(f, "wscale {shift}"),
            TcpOption::SackOk => f.write_str("sackOK"),
            TcpOption::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(left, right)| write!(f, " {left}:{right}"))
            }
            TcpOption::Timestamps(value, echo) => write!(f, "TS val {value} ecr {echo}"),
            TcpOption::Octets(octets) => {
                f.write_str("hex ")?;
                octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.inbound { "< " } else { "> " })?;
        match (self.capable, self.ecn) {
            (true, _) => f.write_str("[ect01] ")?,
            (_, Some(bits)) => write!(f, "[{}] ", ["noecn", "ect1", "ect0", "ce"][usize::from(bits & 3)])?,
            _ => {}
        }
        if let Some((source, destination)) = self.ports {
            write!(f, "{source}>{destination} ")?;
        }
        let flags = if self.flags.is_empty() { "-" } else { &self.flags };
        write!(f, "{flags} {}:{}({})", self.seq, self.seq.wrapping_add(self.len), self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if let Some(window) = self.window {
            write!(f, " win {window}")?;
        }
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        match &self.options {
            None => f.write_str(" <...>"),
            Some(options) if options.is_empty() => Ok(()),
            Some(options) => {
                let all: Vec<String> = options.iter().map(TcpOption::to_string).collect();
                write!(f, " <{}>", all.join(","))
            }
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Dots => f.write_str("..."),
            Value::Number(n) => write!(f, "{n}"),
            Value::Word(word) => f.write_str(word),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::List(all) => write!(f, "[{}]", joined(all, ", ")),
            Value::Or(all) => f.write_str(&joined(all, "|")),
            Value::Fields(all) => {
                let all: Vec<String> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "{{{}}}", all.join(", "))
            }
        }
    }
}

fn joined(all: &[Value], by: &str) -> String {
    all.iter().map(Value::to_string).collect::<Vec<_>>().join(by)
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Relation::Equal => "==",
            Relation::Differs => "!=",
            Relation::Less => "<",
            Relation::AtMost => "<=",
            Relation::More => ">",
            Relation::AtLeast => ">=",
        })
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Segment(segment) => segment.fmt(f),
            What::Icmp(icmp) => write!(f, "< icmp {} {}", icmp.kind, icmp.code),
            What::Call(call) => {
                write!(f, "{}({}) = {}", call.name, joined(&call.arguments, ", "), call.answer)?;
                call.errno.iter().try_for_each(|errno| write!(f, " {errno}"))
            }
            What::Check(check) => {
                let all: Vec<String> = check.all.iter().map(|(n, r, v)| format!("{n} {r} {v}")).collect();
                write!(f, "assert({})", all.join(", "))
            }
            What::Command(command) => write!(f, "`{command}`"),
            What::Code => f.write_str("%{ }%"),
        }
    }
}
