//! Runs a script: each line at its time.

use super::calls::{Pending, Sockets};
use super::flow::Flow;
use super::host::{Came, Host};
use super::script::*;
use bypath_stack::config::Config;
use bypath_stack::tcp::{MtuProbing, Settings, Statistics};

const MILLISECOND: Nanos = 1_000_000;
/// Segments to listeners come from this port on, each connection's from one more.
const FIRST_PORT: u16 = 50_000;
/// Virtual time that a script takes at most.
const LONGEST: Nanos = 100_000 * 1_000_000_000;

pub struct Runner<'a> {
    script: &'a Script,
    host: Host,
    sockets: Sockets,
    flows: Vec<Flow>,
    current: Option<usize>,
    pending: Vec<Pending>,
    tolerance: Nanos,
    /// The time of the line before.
    base: Nanos,
    /// A script of somebody else: timestamps are taken as they come, and what comes behind its last line is nobody's business.
    loose: bool,
    /// A SYN came, or is to go, whose answer may have other numbers than before.
    called: bool,
    line: usize,
}

/// Runs it. What differs is told with its line, as it should be and as it is.
pub fn run(script: &Script, loose: bool) -> Result<(), String> {
    let mut runner = Runner::new(script, loose).map_err(|why| format!("{}: {why}", script.name))?;
    for line in &script.lines {
        runner.line = line.number;
        if let Err(why) = runner.step(line) {
            let at = runner.host.now as f64 / 1e9;
            return Err(format!("{}:{}: at {at:.6} s: {why}", script.name, runner.line));
        }
    }
    runner.finish().map_err(|why| format!("{}:{}: {why}", script.name, runner.line))
}

impl<'a> Runner<'a> {
    fn new(script: &'a Script, loose: bool) -> Result<Runner<'a>, String> {
        let mut config = Config { dad_transmits: 0, ..Config::default() };
        let (mut v6, mut mtu, mut tolerance) =
            (false, 1500, if loose { 4 * MILLISECOND } else { MILLISECOND });
        let settings = &mut config.tcp.settings;
        for (name, value) in &script.settings {
            let number = || value.parse::<usize>().map_err(|_| format!("--{name}={value}: no number"));
            let on = || Ok::<bool, String>(number()? != 0);
            match name.as_str() {
                "ip_version" => v6 = value == "ipv6",
                "mtu" => mtu = number()?,
                "tolerance_usecs" => tolerance = number()? as u64 * 1000,
                "timestamps" => settings.timestamps = on()?,
                "sack" => settings.sack = on()?,
                "window_scale" => settings.window_scale = on()?,
                "ecn" => settings.ecn = on()?,
                "rcvbuf" => (settings.receive_octets, settings.tune_receive) = (number()?, false),
                "sndbuf" => (settings.send_octets, settings.tune_send) = (number()?, false),
                "congestion" => settings.algorithm = super::calls::algorithm(&Value::Word(value.clone()))?,
                "mtu_probing" => settings.mtu_probing = mtu_probing(value)?,
                "base_mss" => settings.base_mss = number()? as u16,
                "half_open" => config.tcp.half_open = number()?,
                "time_wait" => config.tcp.time_wait = number()?,
                "orphans" => config.tcp.orphans = number()?,
                _ if loose => {}
                _ => return Err(format!("--{name} is not understood")),
            }
        }
        let settings = config.tcp.settings;
        Ok(Runner {
            script,
            host: Host::new(config, v6, mtu),
            sockets: Sockets::new(settings),
            flows: Vec::new(),
            current: None,
            pending: Vec::new(),
            tolerance,
            base: 0,
            loose,
            called: false,
            line: 0,
        })
    }

    fn step(&mut self, line: &Line) -> Result<(), String> {
        let (from, to) = match line.when {
            When::At(at) => (at, at),
            When::After(after) => (self.base + after, self.base + after),
            When::Between(from, to) => (from, to),
            When::AfterBetween(from, to) => (self.base + from, self.base + to),
            When::Any => (0, LONGEST),
        };
        if let What::Segment(segment) = &line.what
            && !segment.inbound
        {
            let at = self.expect(segment, from, to)?;
            self.base = if from == to { from } else { at };
            return Ok(());
        }
        self.advance(from)?;
        let base = std::mem::replace(&mut self.base, from.max(if from == to { 0 } else { self.host.now }));
        match &line.what {
            What::Segment(segment) => self.inject(segment)?,
            What::Icmp(icmp) => self.inject_error(icmp)?,
            What::Check(check) => self.check(check)?,
            What::Command(command) => self.command(command)?,
            What::Code => return Err("%{ }% is not understood here: say assert(...)".to_string()),
            What::Call(call) => {
                let relative = matches!(line.when, When::After(_) | When::AfterBetween(..));
                let until = call.until.map(|until| if relative { base + until } else { until });
                self.pending.push(Pending::new(line.number, call, self.host.now, until));
            }
        }
        self.settle()?;
        // A call that is not told to block is waited for.
        while let Some(blocked) = self.pending.iter().find(|pending| pending.until.is_none()) {
            let due = self.host.due().into_iter().chain(Sockets::deadline(blocked)).min();
            match due {
                Some(due) if due <= from + self.tolerance => self.advance(due)?,
                _ => return Err(format!("it blocks: {}", line.what)),
            }
        }
        Ok(())
    }

    /// Everything that happens at once.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            self.host.settle()?;
            self.meet();
            let before = self.pending.len();
            for mut pending in std::mem::take(&mut self.pending) {
                match self.sockets.attempt(&mut self.host, &mut pending) {
                    Ok(Some(answer)) => self.answered(&pending, answer)?,
                    Ok(None) => self.pending.push(pending),
                    Err(why) => {
                        self.line = pending.line;
                        return Err(why);
                    }
                }
            }
            if self.pending.len() == before {
                return self.host.settle().map(|()| self.meet());
            }
        }
    }

    /// A call has answered.
    fn answered(&mut self, pending: &Pending, answer: Result<i64, &'static str>) -> Result<(), String> {
        self.line = pending.line;
        let call = &pending.call;
        let found = match answer {
            Ok(n) => format!("{n}"),
            Err(errno) => format!("-1 {errno}"),
        };
        let expected = match (&call.answer, &call.errno) {
            (answer, Some(errno)) => format!("{answer} {errno}"),
            (answer, None) => format!("{answer}"),
        };
        // An error without a name is any.
        let any = call.answer == Value::Number(-1) && call.errno.is_none() && answer.is_err();
        if found != expected && !any && call.answer != Value::Dots {
            return Err(format!(
                "{} answers something else\n  expected: {expected}\n  answer:   {found}",
                call.name
            ));
        }
        match pending.until {
            Some(until) if self.host.now.abs_diff(until) > self.tolerance => Err(format!(
                "{} answers at another time\n  expected: {:.6} s\n  answer:   {:.6} s",
                call.name,
                until as f64 / 1e9,
                self.host.now as f64 / 1e9
            )),
            _ => Ok(()),
        }
    }

    fn advance(&mut self, to: Nanos) -> Result<(), String> {
        loop {
            let patience = self.pending.iter().filter_map(Sockets::deadline).min();
            let due = self.host.due().into_iter().chain(patience).min();
            match due {
                Some(due) if due <= to && due > self.host.now => self.host.now = due,
                // Something is due that had to wait for what just happened.
                Some(due) if due <= to && due == self.host.now && self.host.due() == Some(due) => {
                    let before = self.host.due();
                    self.settle()?;
                    if self.host.due() == before {
                        return Err("time does not go on".to_string());
                    }
                    continue;
                }
                _ => {
                    self.host.now = self.host.now.max(to.min(LONGEST));
                    return self.settle();
                }
            }
            self.settle()?;
        }
    }

    /// The flow of a segment that came, which may be a new one.
    fn flow_of(&self, came: &Came) -> Option<usize> {
        let (local, remote) = (came.header.source_port, came.header.destination_port);
        self.flows.iter().position(|flow| flow.local_port == local && flow.remote_port == remote)
    }

    /// Learns of connections that the stack has asked for.
    fn meet(&mut self) {
        let ports: Vec<(u16, u16)> =
            self.host.came.iter().map(|c| (c.header.source_port, c.header.destination_port)).collect();
        for (local, remote) in ports {
            let known = self.flows.iter().any(|f| f.local_port == local && f.remote_port == remote);
            if !known {
                self.flows.push(Flow::new(local, remote));
                (self.current, self.sockets.anew) = (Some(self.flows.len() - 1), false);
                self.called = true;
            }
        }
    }

    /// The flow that a line is about: that of the ports which it names, or the last one.
    fn flow_for(&mut self, segment: &Segment) -> Result<usize, String> {
        let ports = segment.ports.map(|(a, b)| if segment.inbound { (b, a) } else { (a, b) });
        if let Some((local, remote)) = ports {
            let found = self.flows.iter().position(|f| f.local_port == local && f.remote_port == remote);
            let at = found.unwrap_or_else(|| {
                self.flows.push(Flow::new(local, remote));
                self.flows.len() - 1
            });
            return Ok(at);
        }
        let calls = segment.inbound && segment.flags.contains('S') && !segment.flags.contains('.');
        if self.current.is_none() || self.sockets.anew && calls {
            let taken = self.flows.iter().filter(|flow| flow.remote_port >= FIRST_PORT).count() as u16;
            self.flows.push(Flow::new(8080, FIRST_PORT + taken));
            (self.current, self.sockets.anew) = (Some(self.flows.len() - 1), false);
        }
        self.current.ok_or_else(|| "there is no connection".to_string())
    }

    fn inject(&mut self, segment: &Segment) -> Result<(), String> {
        let at = self.flow_for(segment)?;
        self.current = Some(at);
        let flow = &mut self.flows[at];
        if segment.flags.contains('S') {
            flow.other_first = segment.seq;
            self.called = !segment.flags.contains('.');
        }
        let (header, payload) = flow.inbound(segment)?;
        self.host.hand(&header, &payload, segment.ecn.unwrap_or(0));
        Ok(())
    }

    fn inject_error(&mut self, icmp: &Icmp) -> Result<(), String> {
        let flow = self.current.map(|at| &self.flows[at]).ok_or("there is no connection")?;
        let (seq, len) = icmp.quoted.unwrap_or((flow.first, 0));
        let about = flow.quoted(seq);
        self.host.hand_error(&icmp.kind, &icmp.code, icmp.mtu, &about, len as usize)
    }

    /// Waits for a segment; when it came. Several that follow each other count as one, if the script has them as one.
    fn expect(&mut self, expected: &Segment, from: Nanos, to: Nanos) -> Result<Nanos, String> {
        let mut next = expected.clone();
        loop {
            while self.host.came.is_empty() {
                let late = to.saturating_add(self.tolerance);
                let due = self
                    .host
                    .due()
                    .into_iter()
                    .chain(self.pending.iter().filter_map(Sockets::deadline))
                    .min();
                match due {
                    Some(due) if due <= late => self.advance(due)?,
                    _ => return Err(format!("nothing came\n  expected: {expected}")),
                }
            }
            let Some(came) = self.host.came.pop_front() else { continue };
            let at = self.flow_of(&came).ok_or("a segment of no connection")?;
            let flow = &mut self.flows[at];
            let anew = self.called;
            flow.learn(&next, &came, anew);
            if came.header.flags.has(bypath_wire::tcp::TcpFlags::SYN) {
                self.called = false;
            }
            let flow = &self.flows[at];
            let live = flow.outbound(&came);
            let words =
                |why: &str| format!("what came differs: {why}\n  expected: {next}\n  came:     {live}");
            if expected.ports.is_some_and(|ports| ports != (flow.local_port, flow.remote_port)) {
                return Err(words("ports"));
            }
            if expected.ports.is_none() && self.current != Some(at) {
                return Err(words("connection"));
            }
            if came.at + self.tolerance < from || came.at > to.saturating_add(self.tolerance) {
                let (at, from, to) = (came.at as f64 / 1e9, from as f64 / 1e9, to as f64 / 1e9);
                let why = if from == to {
                    format!("it came at {at:.6} s, not at {from:.6} s")
                } else {
                    format!("it came at {at:.6} s, not from {from:.6} s to {to:.6} s")
                };
                return Err(words(&why));
            }
            // A part of it: the others follow at once.
            let part = live.len > 0 && live.len < next.len;
            let mut this = next.clone();
            if part {
                this.len = live.len;
                this.flags = this.flags.replace(['F', 'P'], "");
                if live.flags.contains('P') {
                    this.flags.push('P');
                }
            }
            if self.loose {
                // What is cut where, and so where PSH stands, is each system's own.
                this.flags = this.flags.replace('P', "") + if live.flags.contains('P') { "P" } else { "" };
            }
            flow.compare(&this, &came, self.loose).map_err(words)?;
            if !flow.carries_the_stream(live.seq, &came) {
                return Err(words("octets"));
            }
            if !part {
                return Ok(came.at);
            }
            next.seq = next.seq.wrapping_add(live.len);
            next.len -= live.len;
            next.flags = next.flags.replace('W', "");
        }
    }

    fn check(&mut self, check: &Check) -> Result<(), String> {
        for (name, relation, expected) in &check.all {
            let found = self.value(check.fd, name)?;
            let holds = match (&found, expected) {
                (Value::Number(found), Value::Number(expected)) => match relation {
                    Relation::Equal => found == expected,
                    Relation::Differs => found != expected,
                    Relation::Less => found < expected,
                    Relation::AtMost => found <= expected,
                    Relation::More => found > expected,
                    Relation::AtLeast => found >= expected,
                },
                _ => (&found == expected) == (*relation == Relation::Equal),
            };
            if !holds {
                return Err(format!(
                    "{name} is something else\n  expected: {relation} {expected}\n  it is:    {found}"
                ));
            }
        }
        Ok(())
    }

    fn value(&mut self, fd: Option<i64>, name: &str) -> Result<Value, String> {
        if let Some(counter) = name.strip_prefix("count.") {
            let mut all = self.host.stack.counters().iter();
            let found = all.find(|(other, _)| *other == counter).map(|(_, n)| Value::Number(n as i64));
            return found.ok_or_else(|| format!("no counter {counter}"));
        }
        let usage = self.host.stack.usage();
        let found = match name {
            "usage.connections" => Some(usage.connections),
            "usage.half_open" => Some(usage.half_open),
            "usage.orphans" => Some(usage.orphans),
            "usage.time_wait" => Some(usage.time_wait),
            _ => None,
        };
        if let Some(found) = found {
            return Ok(Value::Number(found as i64));
        }
        let id = self.sockets.socket(&mut self.host, fd).ok_or("no socket has a connection")?;
        let statistics = self.host.stack.tcp(id).and_then(|mut tcp| tcp.statistics());
        let s = statistics.ok_or("the socket is not connected")?;
        statistic(&s, name).ok_or_else(|| format!("{name} is not known of a connection"))
    }

    /// Settings of Linux that sockets which are opened from now on have.
    fn command(&mut self, command: &str) -> Result<(), String> {
        if !self.loose {
            return Err("commands are nobody's here: say --name=value".to_string());
        }
        let settings = &mut self.sockets.settings;
        if command.contains("defaults.sh") {
            *settings = Settings { receive_octets: 15 << 20, send_octets: 256 << 10, ..*settings };
        }
        let mut words = command.split(|c: char| c.is_whitespace() || "=\"'/".contains(c));
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("net.ipv4.").or(word.strip_prefix("tcp_").map(|_| word))
            else {
                continue;
            };
            let value = words.clone().find(|word| !word.is_empty()).unwrap_or("");
            match name {
                "tcp_timestamps" => settings.timestamps = value != "0",
                "tcp_sack" => settings.sack = value != "0",
                "tcp_window_scaling" => settings.window_scale = value != "0",
                "tcp_ecn" => settings.ecn = value == "1",
                "tcp_mtu_probing" => settings.mtu_probing = mtu_probing(value)?,
                "tcp_base_mss" => settings.base_mss = value.parse().unwrap_or(settings.base_mss),
                "tcp_congestion_control" => {
                    settings.algorithm = super::calls::algorithm(&Value::Word(value.to_string()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Behind the last line: calls answer in time, and nothing came that no line expects.
    fn finish(&mut self) -> Result<(), String> {
        while let Some(until) = self.pending.iter().filter_map(|pending| pending.until).max() {
            self.advance(until + self.tolerance)?;
            if let Some(pending) = self.pending.iter().find(|p| p.until <= Some(self.host.now)) {
                self.line = pending.line;
                return Err(format!("it still blocks: {}", pending.call.name));
            }
        }
        if self.loose {
            return Ok(());
        }
        let Some(came) = self.host.came.pop_front() else { return Ok(()) };
        let live = self.flow_of(&came).map(|at| self.flows[at].outbound(&came).to_string());
        Err(format!(
            "something came that no line of {} expects\n  came: {}",
            self.script.name,
            live.unwrap_or_default()
        ))
    }
}

/// As Linux numbers it, too.
fn mtu_probing(word: &str) -> Result<MtuProbing, String> {
    match word {
        "off" | "0" => Ok(MtuProbing::Off),
        "after_timeouts" | "1" => Ok(MtuProbing::AfterTimeouts),
        "always" | "2" => Ok(MtuProbing::Always),
        _ => Err(format!("{word}: none of off after_timeouts always")),
    }
}

fn statistic(s: &Statistics, name: &str) -> Option<Value> {
    let micros = |time: std::time::Duration| time.as_micros() as i64;
    Some(Value::Number(match name {
        "state" => return Some(Value::Word(format!("{:?}", s.state))),
        "srtt_us" => s.srtt.map_or(-1, micros),
        "rto_us" => micros(s.rto),
        "cwnd" => s.cwnd.into(),
        "ssthresh" => s.ssthresh.into(),
        "mss" => s.mss.into(),
        "rcv_mss" => s.rcv_mss.into(),
        "snd_wnd" => s.snd_wnd.into(),
        "rcv_wnd" => s.rcv_wnd.into(),
        "unacked" => s.unacknowledged as i64,
        "unsent" => s.unsent as i64,
        "in_flight" => s.in_flight.into(),
        "lost" => s.lost.into(),
        "sacked" => s.sacked.into(),
        "unread" => s.unread as i64,
        "acked" => s.octets_acknowledged as i64,
        "received" => s.octets_received as i64,
        "again" => s.octets_again as i64,
        "sack" => s.sack.into(),
        "timestamps" => s.timestamps.into(),
        "ecn" => s.ecn.into(),
        "their_shift" => s.shifts.0.into(),
        "our_shift" => s.shifts.1.into(),
        _ => return None,
    }))
}
