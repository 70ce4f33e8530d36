//! What applications call: sockets of the stack by the kernel's names, numbers and errors.

use super::flow::octet;
use super::host::Host;
use super::script::{Call, Nanos, Value};
use bypath_stack::Tcp;
use bypath_stack::socket::{BindError, SocketError, SocketId};
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::error::{AcceptError, ConnectError, ListenError, ReadError, WriteError};
use bypath_stack::tcp::{Failure, Keepalive, Settings, State, UrgentError};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The port that listeners have, and that is called, if the script names none.
const PORT: u16 = 8080;

/// What one answers: a number, or an error.
pub type Answer = Result<i64, &'static str>;

/// A socket as an application has it.
struct Descriptor {
    id: SocketId,
    blocking: bool,
    /// Octets written.
    wrote: u32,
    cork: bool,
    /// The last write said that more comes.
    more: bool,
    keepalive: bool,
    probes: Keepalive,
    failed: Option<Failure>,
    /// A listener has somebody to be accepted.
    called: Vec<SocketId>,
    listens: bool,
    /// SHUT_RD.
    deaf: bool,
}

/// A call that has not answered yet.
pub struct Pending {
    pub line: usize,
    pub call: Call,
    pub began: Nanos,
    /// When it has to.
    pub until: Option<Nanos>,
    /// Octets that it has written.
    progress: usize,
    started: bool,
}

impl Pending {
    pub fn new(line: usize, call: &Call, began: Nanos, until: Option<Nanos>) -> Pending {
        Pending { line, call: call.clone(), began, until, progress: 0, started: false }
    }
}

/// All sockets of a script.
pub struct Sockets {
    all: BTreeMap<i64, Descriptor>,
    /// What new ones begin with.
    pub settings: Settings,
    /// A connection was asked for, or a listener made: the next SYN is another connection's.
    pub anew: bool,
}

type Tried = Result<Option<Answer>, String>;

impl Sockets {
    pub fn new(settings: Settings) -> Sockets {
        Sockets { all: BTreeMap::new(), settings, anew: true }
    }

    fn descriptor(&mut self, call: &Call) -> Result<&mut Descriptor, String> {
        let fd = number(&call.arguments, 0)?;
        self.all.get_mut(&fd).ok_or_else(|| format!("there is no descriptor {fd}"))
    }

    /// The socket of a number; `None`: the last one that has a connection.
    pub fn socket(&self, host: &mut Host, fd: Option<i64>) -> Option<SocketId> {
        match fd {
            Some(fd) => self.all.get(&fd).map(|d| d.id),
            None => {
                let mut ids = self.all.values().rev().map(|d| d.id);
                ids.find(|id| host.stack.tcp(*id).is_some_and(|mut tcp| tcp.state().is_some()))
            }
        }
    }

    /// Tries; `None`: it would block.
    pub fn attempt(&mut self, host: &mut Host, pending: &mut Pending) -> Tried {
        let call = pending.call.clone();
        let first = !std::mem::replace(&mut pending.started, true);
        match call.name.as_str() {
            "socket" => self.open(host, &call),
            "bind" => self.bind(host, &call),
            "listen" => self.listen(host, &call),
            "accept" | "accept4" => self.accept(host, &call),
            "connect" => self.connect(host, &call, first),
            "read" | "recv" | "recvfrom" => self.read(host, &call),
            "write" | "send" | "sendto" | "writev" | "sendmsg" => self.write(host, &call, pending),
            "close" => {
                let d = self.descriptor(&call)?;
                let ids: Vec<SocketId> = d.called.drain(..).chain([d.id]).collect();
                ids.into_iter().for_each(|id| {
                    host.stack.close(id);
                });
                self.all.remove(&number(&call.arguments, 0)?);
                Ok(Some(Ok(0)))
            }
            "shutdown" => self.shutdown(host, &call),
            "fcntl" => self.fcntl(&call),
            "ioctl" => self.ioctl(host, &call),
            "setsockopt" => self.set_option(host, &call),
            "getsockopt" => self.option(host, &call),
            "poll" => self.poll(host, &call, pending.began),
            other => Err(format!("the call {other} is not understood")),
        }
    }

    fn open(&mut self, host: &mut Host, call: &Call) -> Tried {
        let Value::Number(fd) = call.answer else { return Err("a socket has a number".to_string()) };
        let id = host.stack.open_tcp().map_err(|e| e.to_string())?;
        let now = host.clock();
        if let Some(mut tcp) = host.stack.tcp(id) {
            tcp.set_settings(now, self.settings);
        }
        let mut descriptor = Descriptor::new(id);
        descriptor.blocking = !call.arguments.iter().any(|a| has(a, "SOCK_NONBLOCK"));
        self.all.insert(fd, descriptor);
        Ok(Some(Ok(fd)))
    }

    fn bind(&mut self, host: &mut Host, call: &Call) -> Tried {
        let unspecified: IpAddr =
            if host.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let to = SocketAddr::new(unspecified, port(call.arguments.get(1)));
        let bound = self.descriptor(call)?.tcp(host)?.bind(to);
        Ok(Some(bound.map(|_| 0).map_err(|error| bind_errno(&error))))
    }

    fn listen(&mut self, host: &mut Host, call: &Call) -> Tried {
        let backlog = number(&call.arguments, 1)?.max(0) as usize;
        let d = self.descriptor(call)?;
        let listens = d.tcp(host)?.listen(backlog);
        d.listens = listens.is_ok();
        self.anew = true;
        Ok(Some(listens.map(|()| 0).map_err(|error| match error {
            ListenError::Bind(error) => bind_errno(&error),
            _ => "EINVAL",
        })))
    }

    fn accept(&mut self, host: &mut Host, call: &Call) -> Tried {
        let nonblocking = call.arguments.iter().any(|a| has(a, "SOCK_NONBLOCK"));
        let d = self.descriptor(call)?;
        let accepted = match d.called.pop() {
            Some(id) => Ok(id),
            None => d.tcp(host)?.accept(),
        };
        let id = match accepted {
            Ok(id) => id,
            Err(AcceptError::Empty) if d.blocking => return Ok(None),
            Err(AcceptError::Empty) => return Ok(Some(Err("EAGAIN"))),
            Err(_) => return Ok(Some(Err("EINVAL"))),
        };
        let Value::Number(fd) = call.answer else { return Err("a socket has a number".to_string()) };
        let mut descriptor = Descriptor::new(id);
        descriptor.blocking = !nonblocking;
        self.all.insert(fd, descriptor);
        Ok(Some(Ok(fd)))
    }

    fn connect(&mut self, host: &mut Host, call: &Call, first: bool) -> Tried {
        let (now, remote) = (host.clock(), SocketAddr::new(host.remote(), port(call.arguments.get(1))));
        let d = self.descriptor(call)?;
        let blocking = d.blocking;
        let asked = if first { d.tcp(host)?.connect(now, remote) } else { Err(ConnectError::Connected) };
        match asked {
            Ok(()) => {
                self.anew = true;
                Ok(if blocking { None } else { Some(Err("EINPROGRESS")) })
            }
            Err(ConnectError::Connected) => {
                if let Some(failure) = d.failure(host)? {
                    return Ok(Some(Err(errno(failure))));
                }
                Ok(match d.tcp(host)?.state() {
                    Some(State::SynSent | State::SynReceived) if blocking => None,
                    Some(State::SynSent | State::SynReceived) => Some(Err("EALREADY")),
                    Some(State::Closed) => Some(Err("ECONNABORTED")),
                    _ if first => Some(Err("EISCONN")),
                    _ => Some(Ok(0)),
                })
            }
            Err(ConnectError::Listening) => Ok(Some(Err("EISCONN"))),
            Err(ConnectError::InUse) => Ok(Some(Err("EADDRNOTAVAIL"))),
            Err(error) => Err(error.to_string()),
        }
    }

    fn read(&mut self, host: &mut Host, call: &Call) -> Tried {
        let most = number(&call.arguments, 2)?.max(0) as usize;
        let flags = call.arguments.get(3).cloned().unwrap_or(Value::Number(0));
        let d = self.descriptor(call)?;
        if let Some(failure) = d.failed.take() {
            return Ok(Some(Err(errno(failure))));
        }
        let mut room = vec![0; most];
        let peeks = has(&flags, "MSG_PEEK");
        let mut tcp = d.tcp(host)?;
        if has(&flags, "MSG_OOB") {
            return urgent(&mut tcp, most, peeks);
        }
        let skips = peeks && tcp.mark() == Some(0) && !tcp.settings().urgent_inline;
        let got = if peeks { tcp.peek(&mut room) } else { tcp.read(&mut room) };
        match got {
            Ok(n) => {
                // Behind an urgent octet that was left out.
                let back = if peeks { 0 } else { n as u32 };
                let at = next(&mut tcp).wrapping_sub(back).wrapping_add(skips.into());
                if (0..n).any(|k| room[k] != octet(at.wrapping_add(k as u32))) {
                    return Err(format!("the octets from {at} on are others than those that were sent"));
                }
                Ok(Some(Ok(n as i64)))
            }
            Err(ReadError::Empty) if d.deaf => Ok(Some(Ok(0))),
            Err(ReadError::Empty) if d.blocking && !has(&flags, "MSG_DONTWAIT") => Ok(None),
            Err(ReadError::Empty) => Ok(Some(Err("EAGAIN"))),
            Err(ReadError::Failed(failure)) => Ok(Some(Err(errno(failure)))),
            Err(_) => Ok(Some(Err("ENOTCONN"))),
        }
    }

    fn write(&mut self, host: &mut Host, call: &Call, pending: &mut Pending) -> Tried {
        let now = host.clock();
        let len = match call.arguments.get(1) {
            Some(Value::List(pieces)) => pieces.iter().map(piece).sum::<Result<i64, String>>()?,
            Some(Value::Fields(message)) => message
                .iter()
                .filter(|(name, _)| name == "msg_iov")
                .flat_map(|(_, pieces)| if let Value::List(pieces) = pieces { &pieces[..] } else { &[] })
                .map(piece)
                .sum::<Result<i64, String>>()?,
            _ => number(&call.arguments, 2)?,
        };
        let flags = call.arguments.get(if call.name == "sendmsg" { 2 } else { 3 });
        let flags = flags.cloned().unwrap_or(Value::Number(0));
        let d = self.descriptor(call)?;
        if let Some(failure) = d.failed.take() {
            return Ok(Some(Err(errno(failure))));
        }
        let more = has(&flags, "MSG_MORE");
        let waits = d.blocking && !has(&flags, "MSG_DONTWAIT");
        d.more = more;
        let cork = d.cork || more;
        let mut tcp = d.tcp(host)?;
        if more {
            let settings = tcp.settings();
            tcp.set_settings(now, Settings { cork, ..settings });
        }
        let at = d.wrote;
        let octets: Vec<u8> = (pending.progress as u32..len.max(0) as u32)
            .map(|n| octet((at + n) - pending.progress as u32))
            .collect();
        let wrote = match has(&flags, "MSG_OOB") {
            true => d.tcp(host)?.write_urgent(&octets, more),
            false => d.tcp(host)?.write(&octets),
        };
        let answer = match wrote {
            Ok(n) => {
                d.wrote += n as u32;
                pending.progress += n;
                if pending.progress < len as usize && waits {
                    None
                } else {
                    Some(Ok(pending.progress as i64))
                }
            }
            Err(WriteError::Full) if waits => None,
            Err(WriteError::Full) if pending.progress > 0 => Some(Ok(pending.progress as i64)),
            Err(WriteError::Full) => Some(Err("EAGAIN")),
            Err(WriteError::Failed(failure)) => Some(Err(errno(failure))),
            Err(WriteError::Finished) => Some(Err("EPIPE")),
            Err(_) => Some(Err("ENOTCONN")),
        };
        // What is written without MSG_MORE takes along what waited.
        let mut tcp = d.tcp(host)?;
        let settings = tcp.settings();
        if settings.cork != cork {
            tcp.set_settings(now, Settings { cork, ..settings });
        }
        Ok(answer)
    }

    fn shutdown(&mut self, host: &mut Host, call: &Call) -> Tried {
        let how = call.arguments.get(1).cloned().unwrap_or(Value::Dots);
        let d = self.descriptor(call)?;
        d.deaf |= has(&how, "SHUT_RD") || has(&how, "SHUT_RDWR");
        if has(&how, "SHUT_RD") {
            return Ok(Some(Ok(0)));
        }
        Ok(Some(d.tcp(host)?.finish().map(|()| 0).map_err(|_| "ENOTCONN")))
    }

    fn fcntl(&mut self, call: &Call) -> Tried {
        let what = call.arguments.get(1).cloned().unwrap_or(Value::Dots);
        let flags = call.arguments.get(2).cloned().unwrap_or(Value::Dots);
        let answer = call.answer.clone();
        let d = self.descriptor(call)?;
        if has(&what, "F_SETFL") {
            d.blocking = !has(&flags, "O_NONBLOCK");
            return Ok(Some(Ok(0)));
        }
        match answer {
            // F_GETFL: 0x2 of a socket that blocks, 0x802 of one that does not.
            Value::Number(_) => Ok(Some(Ok(if d.blocking { 2 } else { 0x802 }))),
            _ => Err("fcntl with this command is not understood".to_string()),
        }
    }

    fn ioctl(&mut self, host: &mut Host, call: &Call) -> Tried {
        let what = call.arguments.get(1).cloned().unwrap_or(Value::Dots);
        let d = self.descriptor(call)?;
        let mut tcp = d.tcp(host)?;
        let statistics = tcp.statistics().ok_or("not connected")?;
        let (mark, inline) = (tcp.mark(), tcp.settings().urgent_inline);
        let apart = mark.filter(|mark| !inline && *mark < statistics.unread);
        let found = match &what {
            Value::Word(word) if word == "SIOCINQ" || word == "FIONREAD" => {
                apart.unwrap_or(statistics.unread)
            }
            Value::Word(word) if word == "SIOCATMARK" => usize::from(mark == Some(0)),
            Value::Word(word) if word == "SIOCOUTQ" => statistics.unacknowledged,
            Value::Word(word) if word == "SIOCOUTQNSD" => statistics.unsent,
            other => return Err(format!("ioctl {other} is not understood")),
        };
        told(call.arguments.get(2), &Value::Number(found as i64))
    }

    fn set_option(&mut self, host: &mut Host, call: &Call) -> Tried {
        let name = call.arguments.get(2).map(Value::to_string).unwrap_or_default();
        let value = call.arguments.get(3).cloned().unwrap_or(Value::Dots);
        let n = match &value {
            Value::List(all) => match all.first() {
                Some(Value::Number(n)) => *n,
                _ => 0,
            },
            _ => 0,
        };
        let now = host.clock();
        let d = self.descriptor(call)?;
        let mut tcp = d.tcp(host)?;
        let (mut settings, mut options) = (tcp.settings(), tcp.options());
        let seconds = Duration::from_secs(n.max(0) as u64);
        match name.as_str() {
            "SO_REUSEADDR" => options.reuse_address = n != 0,
            "SO_REUSEPORT" => options.reuse_port = n != 0,
            "SO_LINGER" => {
                let Value::Fields(fields) = &value else {
                    return Err("{onoff=, linger=} is missing".to_string());
                };
                let field =
                    |name: &str| fields.iter().find(|(found, _)| found == name).map(|(_, v)| v.clone());
                let on = field("onoff") == Some(Value::Number(1));
                let time = match field("linger") {
                    Some(Value::Number(seconds)) => Duration::from_secs(seconds.max(0) as u64),
                    _ => Duration::ZERO,
                };
                options.linger = on.then_some(time);
            }
            "SO_RCVBUF" | "SO_RCVBUFFORCE" => {
                (settings.receive_octets, settings.tune_receive) = (n.max(0) as usize, false);
            }
            "SO_SNDBUF" | "SO_SNDBUFFORCE" => {
                (settings.send_octets, settings.tune_send) = (n.max(0) as usize, false);
            }
            "TCP_NODELAY" => settings.nodelay = n != 0,
            "TCP_CORK" => {
                settings.cork = n != 0;
                d.cork = n != 0;
            }
            "TCP_MAXSEG" => settings.mss = n as u16,
            "TCP_USER_TIMEOUT" => settings.user_timeout = (n > 0).then(|| Duration::from_millis(n as u64)),
            "TCP_CONGESTION" => settings.algorithm = algorithm(&value)?,
            "SO_KEEPALIVE" => d.keepalive = n != 0,
            "SO_OOBINLINE" => settings.urgent_inline = n != 0,
            "TCP_KEEPIDLE" => d.probes.idle = seconds,
            "TCP_KEEPINTVL" => d.probes.interval = seconds,
            "TCP_KEEPCNT" => d.probes.probes = n.max(0) as u32,
            // What the stack has no say in.
            "TCP_QUICKACK" | "SO_ZEROCOPY" | "SO_PRIORITY" | "TCP_NOTSENT_LOWAT" => {}
            other => return Err(format!("the option {other} is not understood")),
        }
        settings.keepalive = d.keepalive.then_some(d.probes);
        let mut tcp = d.tcp(host)?;
        tcp.set_options(options);
        tcp.set_settings(now, settings);
        Ok(Some(Ok(0)))
    }

    fn option(&mut self, host: &mut Host, call: &Call) -> Tried {
        let name = call.arguments.get(2).map(Value::to_string).unwrap_or_default();
        let d = self.descriptor(call)?;
        if name == "SO_ERROR" {
            let failure = d.failure(host)?;
            let found = Value::Word(failure.map_or("0".to_string(), |failure| errno(failure).to_string()));
            let found = if failure.is_none() { Value::Number(0) } else { found };
            return told(call.arguments.get(3), &found);
        }
        let mut tcp = d.tcp(host)?;
        let (settings, options, statistics) = (tcp.settings(), tcp.options(), tcp.statistics());
        let found = match name.as_str() {
            "SO_REUSEADDR" => i64::from(options.reuse_address),
            "SO_RCVBUF" => settings.receive_octets as i64,
            "SO_SNDBUF" => settings.send_octets as i64,
            "TCP_NODELAY" => i64::from(settings.nodelay),
            "TCP_CORK" => i64::from(settings.cork),
            "SO_OOBINLINE" => i64::from(settings.urgent_inline),
            "TCP_MAXSEG" => {
                let options = statistics.is_some_and(|s| s.timestamps);
                statistics.map_or(536, |s| i64::from(s.mss) - if options { 12 } else { 0 })
            }
            other => return Err(format!("the option {other} is not understood")),
        };
        told(call.arguments.get(3), &Value::Number(found))
    }

    fn poll(&mut self, host: &mut Host, call: &Call, began: Nanos) -> Tried {
        let Some(Value::List(all)) = call.arguments.first() else {
            return Err("[{fd=...}] is missing".to_string());
        };
        let patience = number(&call.arguments, 2)?;
        let mut ready = 0;
        let mut differs = None;
        for entry in all {
            let Value::Fields(fields) = entry else { return Err("{fd=...} is missing".to_string()) };
            let field = |name: &str| fields.iter().find(|(found, _)| found == name).map(|(_, v)| v);
            let Some(Value::Number(fd)) = field("fd") else { return Err("fd= is missing".to_string()) };
            let d = self.all.get_mut(fd).ok_or_else(|| format!("there is no descriptor {fd}"))?;
            let asked = field("events").cloned().unwrap_or(Value::Number(0));
            let found = d.events(host)?;
            let always = ["POLLERR", "POLLHUP"];
            let found: Vec<&str> =
                found.into_iter().filter(|e| always.contains(e) || has(&asked, e)).collect();
            ready += i64::from(!found.is_empty());
            let names: [&str; 6] = ["POLLIN", "POLLPRI", "POLLOUT", "POLLRDHUP", "POLLERR", "POLLHUP"];
            if let Some(expected) = field("revents")
                && names.iter().any(|name| has(expected, name) != found.contains(name))
            {
                differs = Some(format!("of descriptor {fd} is told {found:?}, not {expected}"));
            }
        }
        let over = patience >= 0 && host.now >= began + patience as u64 * 1_000_000;
        if ready == 0 && !over {
            return Ok(None);
        }
        match differs {
            Some(differs) => Err(differs),
            None => Ok(Some(Ok(ready))),
        }
    }

    /// When a call that waits for a while ends in any case.
    pub fn deadline(pending: &Pending) -> Option<Nanos> {
        let patience = number(&pending.call.arguments, 2).ok().filter(|ms| *ms >= 0)?;
        (pending.call.name == "poll").then(|| pending.began + patience as u64 * 1_000_000)
    }
}

impl Descriptor {
    fn new(id: SocketId) -> Descriptor {
        // Linux's defaults.
        let probes =
            Keepalive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 };
        Descriptor {
            id,
            blocking: true,
            wrote: 0,
            cork: false,
            more: false,
            keepalive: false,
            probes,
            failed: None,
            called: Vec::new(),
            listens: false,
            deaf: false,
        }
    }

    fn tcp<'a>(&self, host: &'a mut Host) -> Result<Tcp<'a>, String> {
        host.stack.tcp(self.id).ok_or_else(|| "the socket is gone".to_string())
    }

    fn failure(&mut self, host: &mut Host) -> Result<Option<Failure>, String> {
        let failure = self.tcp(host)?.take_error();
        Ok(self.failed.take().or(failure))
    }

    /// What poll tells of it.
    fn events(&mut self, host: &mut Host) -> Result<Vec<&'static str>, String> {
        if self.listens {
            if self.called.is_empty()
                && let Ok(id) = self.tcp(host)?.accept()
            {
                self.called.push(id);
            }
            return Ok(if self.called.is_empty() { Vec::new() } else { vec!["POLLIN"] });
        }
        let failure = self.tcp(host)?.take_error();
        self.failed = self.failed.or(failure);
        let failed = self.failed.is_some();
        let mut tcp = self.tcp(host)?;
        let state = tcp.state();
        let ended = state == Some(State::Closed);
        let readable = failed || tcp.peek(&mut [0]).is_ok();
        let at_end = readable && tcp.peek(&mut [0]) == Ok(0);
        let urgent = tcp.has_urgent();
        let room = tcp.settings().send_octets > tcp.statistics().map_or(0, |s| s.unacknowledged);
        let open = matches!(state, Some(State::Established | State::CloseWait));
        let mut all = Vec::new();
        let mut add = |is: bool, name| all.extend(is.then_some(name));
        add(readable, "POLLIN");
        add(urgent, "POLLPRI");
        add(open && room || ended || state.is_none(), "POLLOUT");
        add(at_end || ended, "POLLRDHUP");
        add(failed, "POLLERR");
        add(ended || state.is_none(), "POLLHUP");
        Ok(all)
    }
}

/// The number of the octet that is read next.
fn next(tcp: &mut Tcp<'_>) -> u32 {
    tcp.statistics().map_or(0, |s| s.octets_received.wrapping_sub(s.unread as u64) as u32)
}

/// The urgent octet, which never waits.
fn urgent(tcp: &mut Tcp<'_>, most: usize, peeks: bool) -> Tried {
    let at = next(tcp).wrapping_add(tcp.mark().unwrap_or(0) as u32);
    let found = if peeks { tcp.peek_urgent() } else { tcp.read_urgent() };
    Ok(Some(match found {
        Ok(found) if found != octet(at) => return Err(format!("the urgent octet is not that of {at}")),
        Ok(_) => Ok(most.min(1) as i64),
        Err(UrgentError::Finished) => Ok(0),
        Err(UrgentError::Awaited) => Err("EAGAIN"),
        Err(UrgentError::NotConnected) => Err("ENOTCONN"),
        Err(_) => Err("EINVAL"),
    }))
}

/// Whether a word stands in a value.
fn has(value: &Value, word: &str) -> bool {
    match value {
        Value::Word(found) => found == word,
        Value::Or(all) => all.iter().any(|one| has(one, word)),
        _ => false,
    }
}

fn number(arguments: &[Value], at: usize) -> Result<i64, String> {
    match arguments.get(at) {
        Some(Value::Number(n)) => Ok(*n),
        other => Err(format!("argument {} is no number: {other:?}", at + 1)),
    }
}

/// `{..., 100}` of writev.
fn piece(piece: &Value) -> Result<i64, String> {
    match piece {
        Value::Fields(fields) => match fields.last() {
            Some((_, Value::Number(n))) => Ok(*n),
            _ => Err("{..., octets} is missing".to_string()),
        },
        _ => Err("{..., octets} is missing".to_string()),
    }
}

/// The port in an address.
fn port(address: Option<&Value>) -> u16 {
    let Some(Value::Fields(fields)) = address else { return PORT };
    match fields.iter().find(|(name, _)| name.ends_with("_port")) {
        Some((_, Value::Number(port))) => *port as u16,
        _ => PORT,
    }
}

/// What is told through a pointer: `[100]`.
fn told(expected: Option<&Value>, found: &Value) -> Tried {
    match expected {
        Some(Value::List(all)) if matches!(all.first(), Some(Value::Dots)) || all.first() == Some(found) => {
            Ok(Some(Ok(0)))
        }
        Some(Value::Dots) => Ok(Some(Ok(0))),
        Some(expected) => Err(format!("{expected} is expected, and [{found}] is told")),
        None => Err("an argument is missing".to_string()),
    }
}

pub fn algorithm(value: &Value) -> Result<Algorithm, String> {
    match value.to_string().trim_matches(['"', '[', ']']) {
        "reno" => Ok(Algorithm::Reno),
        "cubic" => Ok(Algorithm::Cubic),
        other => Err(format!("congestion control {other} is not there")),
    }
}

fn bind_errno(error: &BindError) -> &'static str {
    match error {
        BindError::InUse(_) | BindError::Crowded(_) | BindError::NoPort => "EADDRINUSE",
        BindError::NotOurs => "EADDRNOTAVAIL",
        _ => "EINVAL",
    }
}

fn errno(failure: Failure) -> &'static str {
    match failure {
        Failure::Refused => "ECONNREFUSED",
        Failure::Reset => "ECONNRESET",
        Failure::TimedOut => "ETIMEDOUT",
        Failure::Network(SocketError::HostUnreachable) => "EHOSTUNREACH",
        Failure::Network(SocketError::NetUnreachable) => "ENETUNREACH",
        Failure::Network(SocketError::ProtocolUnreachable) => "ENOPROTOOPT",
        Failure::Network(SocketError::Prohibited) => "EACCES",
        Failure::Network(SocketError::TooBig { .. }) => "EMSGSIZE",
        Failure::Network(_) => "ECONNREFUSED",
    }
}
