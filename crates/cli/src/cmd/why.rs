//! `bypath why`.

mod remedy;

use super::{ss, stats};
use crate::config::conditions;
use crate::connections::{self, Connection, Family, Member, Udp};
use crate::foreign;
use crate::library;
use crate::listening::{self, Listening};
use crate::output::{self, Failure, Outcome};
use crate::program;
use crate::subject::{Subject, out_of_reach};
use bypath_shm::reason::Reason;
use bypath_shm::service::of_end_name;
use bypath_shm::view::{Direction, Path as DataPath};
use bypath_sockets::config::SMALLEST_DESCRIPTOR_LIMIT;
use bypath_sockets::rules::text;
use bypath_sockets::service::place;
use bypath_sys::process::shown_thread;
use bypath_sys::{fd, process, sockdiag, unix};
use std::cell::OnceCell;
use std::fmt::Write;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// PID is not under Bypath, or the descriptor is not followed.
const NOT_FOLLOWED: u8 = 1;
/// It cannot be told: no such process, or it may not be looked into.
const CANNOT_TELL: u8 = 3;

/// Sockets that are told of.
const TOLD: usize = 1000;
/// Characters of a name, a path, or the conditions of a rule.
const LINE: usize = 200;

/// How long one table of sockets is read.
const TABLE: Duration = Duration::from_secs(1);

/// Arguments of `bypath why`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath why 1234        all connections of process 1234\n  \
    bypath why 1234:7      the one on descriptor 7\n\n\
    Exit status: 0 if the process is under Bypath (and the descriptor is followed), 1 if not, 2 for wrong\n\
    usage, 3 if it cannot be told (no such process, or another user's).")]
pub struct Args {
    /// A process, or one of its descriptors
    #[arg(value_name = "PID[:FD]")]
    subject: Subject,
}

/// Explains.
pub fn run(args: Args) -> Outcome {
    let Subject { pid, fd } = args.subject;
    if !connections::exists(pid) {
        return Err(Failure::new(CANNOT_TELL, format_args!("there is no process {pid}")));
    }
    fs::read_dir(format!("/proc/{}/fd", shown_thread(pid))).map_err(|e| not_readable(pid, &e))?;
    let scan = ss::scan()?;
    let mut listening = listening::of_trusted();
    listening.retain(|l| l.pid == Some(pid) && (fd.is_none() || l.fd == fd));
    if fd.is_some() && !listening.is_empty() {
        output::print(about_listening(&listening).trim_start())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some((family, member)) = scan.family_of(pid) else {
        let Some(reason) = is_plain(pid).map_err(|e| not_readable(pid, &e))? else {
            let name = name_of(pid);
            output::print(&format!(
                "Process {pid} ({name}) is under Bypath and has opened no socket yet.\n"
            ))?;
            return Ok(ExitCode::SUCCESS);
        };
        if !listening.is_empty() {
            let about = about_listening(&listening);
            output::print(&format!(
                "Process {pid} ({}) is under Bypath and has no connection.\n{about}",
                name_of(pid)
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        if is_switched_off(pid) {
            output::print(&format!(
                "Process {pid} ({}) is under Bypath, and was started with --upgrade=off: all its sockets are the kernel's (disabled).\n  {}\n",
                name_of(pid),
                remedy::usual(Reason::Disabled).unwrap_or_default()
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        output::print(&format!("Process {pid} ({}) is not under Bypath: {reason}\n", name_of(pid)))?;
        return Ok(ExitCode::from(NOT_FOLLOWED));
    };
    let all = scan.connections();
    let mine: Vec<_> = all.iter().filter(|c| c.process.pid == pid).collect();
    let udp = scan.udp();
    let datagrams: Vec<_> = udp.iter().filter(|u| u.process.pid == pid).collect();
    let rules = Rules::of(pid);
    let Some(fd) = fd else {
        let about = about_process(family, member, &mine, &datagrams, &rules);
        output::print(&(about + &about_listening(&listening)))?;
        return Ok(ExitCode::SUCCESS);
    };
    match (mine.iter().find(|c| c.end.fd == fd), datagrams.iter().find(|u| u.socket.fd == fd)) {
        (Some(connection), _) => {
            output::print(&about_connection(connection, &rules))?;
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(socket)) => {
            output::print(&about_datagrams(socket, &rules))?;
            Ok(ExitCode::SUCCESS)
        }
        (None, None) => {
            output::print(&format!(
                "Descriptor {fd} of process {pid} ({}) {}\n",
                name_of(pid),
                about_descriptor(pid, fd)
            ))?;
            Ok(ExitCode::from(NOT_FOLLOWED))
        }
    }
}

/// Name of a process, for people.
pub fn name_of(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    output::printable(String::from_utf8_lossy(&name).trim_end())
}

fn not_readable(pid: u32, error: &io::Error) -> Failure {
    Failure::new(
        CANNOT_TELL,
        format_args!("process {pid} cannot be looked into: {error} ({})", out_of_reach()),
    )
}

fn names_library(bytes: &[u8]) -> bool {
    let name = library::FILE_NAME.as_bytes();
    bytes.windows(name.len()).any(|w| w == name)
}

fn is_loaded(pid: u32) -> io::Result<bool> {
    Ok(names_library(&foreign::mappings(pid)?))
}

/// Whether the library is loaded and there is nothing to show: its view comes with the program's first socket.
fn is_idle(pid: u32) -> io::Result<bool> {
    if !is_loaded(pid)? {
        return Ok(false);
    }
    let links = fs::read_dir(format!("/proc/{}/fd", shown_thread(pid)))?
        .filter_map(|e| fs::read_link(e.ok()?.path()).ok());
    Ok(!links.into_iter().any(|to| to.to_string_lossy().starts_with("socket:")))
}

/// Why a process that keeps no view is not under Bypath; `None`: it is, and has opened no socket yet.
///
/// # Errors
/// It may not be looked into.
pub fn is_plain(pid: u32) -> io::Result<Option<String>> {
    if is_idle(pid)? { Ok(None) } else { absence(pid).map(Some) }
}

/// Whether the library is there and was told to do nothing.
fn is_switched_off(pid: u32) -> bool {
    let environment = foreign::environment(pid);
    is_loaded(pid).unwrap_or(false) && environment.split(|b| *b == 0).any(|v| v == b"BYPATH_UPGRADE=off")
}

/// How many descriptors a process may have, if that can be told.
fn descriptor_limit(pid: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find_map(|l| l.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

/// Why a process has no view.
///
/// # Errors
/// It may not be looked into.
fn absence(pid: u32) -> io::Result<String> {
    if connections::is_kernel_thread(pid) {
        return Ok("it is a thread of the kernel.".to_owned());
    }
    if is_loaded(pid)? {
        if let Some(limit) = descriptor_limit(pid).filter(|limit| *limit < SMALLEST_DESCRIPTOR_LIMIT) {
            return Ok(format!(
                "the library is loaded but keeps no view (no-descriptors): the process may have {limit} descriptors \
                 (RLIMIT_NOFILE), and the library leaves them all to a program that may have fewer than \
                 {SMALLEST_DESCRIPTOR_LIMIT}. Start it with a higher limit: ulimit -n 1024"
            ));
        }
        return Ok("the library is loaded but keeps no view: its sockets have carried next to nothing so far (the first \
                   datagrams of a process are not counted), no descriptor or memory was to be had, or another version of Bypath \
                   wrote it."
            .to_owned());
    }
    let own = program::elf_of(Path::new("/proc/self/exe")).ok().flatten();
    if let Some(own) = own
        && let Some(obstacle) = foreign::obstacle(pid, &own)?
    {
        return Ok(format!("{obstacle}. Its connections are plain kernel ones."));
    }
    let environment = foreign::environment(pid);
    if environment.split(|b| *b == 0).any(|v| v.starts_with(b"LD_PRELOAD=") && names_library(v)) {
        return Ok("LD_PRELOAD names the library, but the dynamic loader did not load it: the file may be missing or \
                   unreadable where the program runs (another root directory or container), or the program was \
                   started with changed privileges."
            .to_owned());
    }
    Ok("the library is not loaded. Start the program with: bypath run -- PROGRAM".to_owned())
}

fn about_process(
    family: &Family,
    member: &Member,
    mine: &[&Connection],
    datagrams: &[&Udp],
    rules: &Rules,
) -> String {
    let mut text = format!("Process {} ({}) is under Bypath", member.pid, output::printable(&member.command));
    let rings = mine.iter().filter(|c| c.on_ring()).count();
    let counted = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let posts = datagrams.iter().filter(|u| u.on_ring()).count();
    match (mine.len(), datagrams.len()) {
        (0, 0) => text += " and has no connection at the moment.\n",
        (0, n) => {
            let _ = writeln!(text, ": {}, {posts} through shared memory.", counted(n, "UDP socket"));
        }
        (n, 0) => {
            let _ = writeln!(text, ": {}, {rings} through shared memory.", counted(n, "connection"));
        }
        (n, udp) => {
            let _ = writeln!(
                text,
                ": {}, {rings} through shared memory; {}, {posts} through shared memory.",
                counted(n, "connection"),
                counted(udp, "UDP socket")
            );
        }
    }
    text += &about_each(mine, |connection| format!("\n{}", about_connection(connection, rules)));
    text += &about_each(datagrams, |socket| format!("\n{}", about_datagrams(socket, rules)));
    // Where all it has had is datagrams there is nothing to be said of connections.
    let counters = family.counters(member).filter(|c| c.connections > 0 || datagrams.is_empty());
    if let Some(counters) = counters {
        let noun = if counters.connections == 1 { "connection" } else { "connections" };
        let _ = write!(
            text,
            "\nSo far: {} {noun}, {} of them upgraded at some time.",
            counters.connections, counters.upgraded
        );
        for (what, counts) in [("Not upgraded", &counters.not_upgraded), ("Recalled", &counters.recalled)] {
            let parts: Vec<_> =
                stats::by_reason(counts).iter().map(|(code, n)| format!("{code} {n}")).collect();
            if !parts.is_empty() {
                let _ = write!(text, " {what}: {}.", parts.join(", "));
            }
        }
        text += "\n";
    }
    text
}

/// What is told of each socket, but for those beyond the most.
fn about_each<T>(all: &[T], about: impl Fn(&T) -> String) -> String {
    let mut text: String = all.iter().take(TOLD).map(about).collect();
    if all.len() > TOLD {
        let _ = writeln!(
            text,
            "\nAnd {} more. `bypath ss` shows all; `bypath why PID:FD` tells of one.",
            all.len() - TOLD
        );
    }
    text
}

/// Sockets that listen on a netstack service. What they accept is told of each connection.
fn about_listening(all: &[Listening]) -> String {
    about_each(all, |l| {
        let fd = l.fd.map_or("of another process".to_owned(), |fd| fd.to_string());
        let at = l.local.map_or("an unknown address".to_owned(), |a| a.to_string());
        format!(
            "\nDescriptor {fd}: listens at {at}, on the netstack service {}\n  What it accepts has rings as other connections of the service \
             have. More of it: bypath netstack sockets --name {} --json (this one: {})\n",
            l.service, l.service, l.cookie
        )
    })
}

fn about_connection(c: &Connection, rules: &Rules) -> String {
    let address = |a: Option<SocketAddr>| a.map_or("an unknown address".to_owned(), |a| a.to_string());
    let service = c.end.service.as_deref();
    let on = service.map_or(String::new(), |name| format!(", on the netstack service {name}"));
    let mut text =
        format!("Descriptor {}: {} to {}{on}\n", c.end.fd, address(c.end.local), address(c.end.remote));
    let (out, incoming) = (c.end.outgoing, c.end.incoming);
    let bytes = c.bytes();
    let by_carrier =
        [bytes.kernel_tx.saturating_add(bytes.pair_tx), bytes.kernel_rx.saturating_add(bytes.pair_rx)];
    if out == incoming {
        let _ = writeln!(text, "  Both directions: {}", sentence(service, out));
    } else {
        let _ = writeln!(text, "  Sending: {}", sentence(service, out));
        let _ = writeln!(text, "  Receiving: {}", sentence(service, incoming));
    }
    let _ = writeln!(
        text,
        "  Sent {} through shared memory and {} through {}, received {} and {}.",
        output::bytes(bytes.ring_tx),
        output::bytes(by_carrier[0]),
        carrier(service),
        output::bytes(bytes.ring_rx),
        output::bytes(by_carrier[1])
    );
    if let (Some(fill), Some(size)) = (c.outgoing_fill, c.end.ring_size) {
        let _ = writeln!(
            text,
            "  {} of {} in the outgoing ring wait to be read.",
            output::bytes(fill),
            output::bytes(size.into())
        );
    }
    if let (Some(number), true) = (c.end.rule, out.reason == Some(Reason::Rule)) {
        let _ = writeln!(text, "  {}", rules.about(number));
    }
    if c.holders > 1 {
        let _ = writeln!(text, "  {} processes hold this connection.", c.holders);
    }
    text += &remedies(service, [out, incoming]);
    text += &further(service, c.end.cookie);
    text
}

/// What bytes go through that do not go by a ring.
fn carrier(service: Option<&str>) -> &'static str {
    if service.is_some() { "the descriptor, a pair of AF_UNIX sockets" } else { "the kernel" }
}

fn remedies(service: Option<&str>, directions: [Direction; 2]) -> String {
    let mut reasons: Vec<_> = directions.iter().filter_map(|d| d.reason).collect();
    reasons.dedup();
    let remedy = if service.is_some() { remedy::on_service } else { remedy::usual };
    reasons.into_iter().filter_map(remedy).map(|remedy| format!("  {remedy}\n")).collect()
}

/// Who knows more of a socket of a service.
fn further(service: Option<&str>, cookie: Option<u64>) -> String {
    let Some(name) = service else { return String::new() };
    let which = cookie.map_or(String::new(), |cookie| format!(" (this one: {cookie:016x})"));
    format!(
        "  Its network side, from the state to round trips and what was sent again: bypath netstack sockets --name {name} --json{which}\n"
    )
}

fn about_datagrams(u: &Udp, rules: &Rules) -> String {
    let address = |a: Option<SocketAddr>| a.map_or("no address yet".to_owned(), |a| a.to_string());
    let s = u.socket;
    let service = s.service.as_deref();
    let mut text = format!("Descriptor {}: UDP, {}", s.fd, address(s.local));
    text += &s.remote.map_or(String::new(), |remote| format!(" to {remote}"));
    text += &service.map_or(String::new(), |name| format!(", on the netstack service {name}"));
    let mailboxes = match s.routes {
        0 | 1 => String::new(),
        n => format!(" ({n} receivers)"),
    };
    text += "\n";
    // Who only receives is told nothing of sending, nor the other way round.
    let (sends, receives) = (u.sends(), u.receives());
    if sends {
        let sentence = sentence(service, s.outgoing);
        let _ = writeln!(text, "  Sending: {}{mailboxes}.", sentence.trim_end_matches('.'));
    }
    if receives {
        let _ = writeln!(text, "  Receiving: {}", sentence(service, s.incoming));
    }
    let _ = writeln!(
        text,
        "  Sent {} datagrams through shared memory and {} through {}, received {} and {}.",
        s.tx.ring,
        s.tx.kernel,
        carrier(service),
        s.rx.ring,
        s.rx.kernel
    );
    if s.outgoing.path == DataPath::Ring || s.incoming.path == DataPath::Ring {
        let otherwise = if service.is_some() { "by the descriptor" } else { "from the kernel" };
        let _ = writeln!(
            text,
            "  Datagrams go through shared memory while the receiver is awake; who sleeps gets them {otherwise}."
        );
    }
    let queue = (u.dropped, "its queue in the kernel");
    for (lost, whose) in [(s.rx.lost, "its own mailbox"), queue, (s.tx.lost, "a receiver's mailbox")] {
        if lost > 0 {
            let _ = writeln!(text, "  {lost} were dropped, as {whose} was full.");
        }
    }
    let ruled = [s.outgoing, s.incoming].iter().any(|d| d.reason == Some(Reason::Rule));
    if let (Some(number), true) = (s.rule, ruled) {
        let _ = writeln!(text, "  {}", rules.about(number));
    }
    text += &remedies(
        service,
        [if sends { s.outgoing } else { s.incoming }, if receives { s.incoming } else { s.outgoing }],
    );
    text += &further(service, s.cookie);
    text
}

/// The rules that a process was started with. What they say stands in its environment, which the process may have overwritten (with its
/// title, for one).
struct Rules {
    pid: u32,
    /// Read when it is asked for.
    document: OnceCell<Option<text::Document>>,
}

impl Rules {
    fn of(pid: u32) -> Rules {
        Rules { pid, document: OnceCell::new() }
    }

    fn document(&self) -> Option<&text::Document> {
        let read = || {
            let environment = foreign::environment(self.pid);
            let text = environment.split(|b| *b == 0).find_map(|v| {
                let value = v.strip_prefix(text::VARIABLE.as_bytes())?.strip_prefix(b"=")?;
                std::str::from_utf8(value).ok()
            })?;
            text::Document::decode(text).ok()
        };
        self.document.get_or_init(read).as_ref()
    }

    /// The rule that decided: its number is in the view.
    fn about(&self, number: u32) -> String {
        let named = self.document().and_then(|document| {
            let rule = document.rules.iter().find(|rule| u32::from(rule.number) == number)?;
            Some((document, rule))
        });
        let Some((document, rule)) = named else {
            return format!(
                "It is rule {number} of the configuration file that the program was started with."
            );
        };
        let name = if rule.name.is_empty() { String::new() } else { format!(" '{}'", short(&rule.name)) };
        let matches = match conditions(rule) {
            all if all.is_empty() => "everything".to_owned(),
            conditions => short(&conditions),
        };
        let file = short(&document.file);
        format!("It is rule {number}{name} ({file}:{}): {matches} -> {}.", rule.line, rule.action)
    }
}

/// What a program says of itself, as far as it stands in a line.
fn short(text: &str) -> String {
    let end = text.char_indices().nth(LINE).map_or(text.len(), |(end, _)| end);
    let more = if end < text.len() { "..." } else { "" };
    format!("{}{more}", output::printable(&text[..end]))
}

fn sentence(service: Option<&str>, d: Direction) -> String {
    let code = connections::reason_code(d);
    match (d.path, d.reason) {
        (DataPath::Ring, _) if service.is_some() => "a ring that the program shares with the service.".to_owned(),
        (DataPath::Kernel, Some(Reason::Ring)) if service.is_some() => {
            "changing between the ring that it shares with the service and the descriptor.".to_owned()
        }
        (DataPath::Kernel, Some(reason)) if service.is_some() => {
            format!("the descriptor, because: {} ({code}).", connections::reason_text(service, reason))
        }
        (DataPath::Ring, _) => "shared memory.".to_owned(),
        (DataPath::Kernel, Some(Reason::Ring)) => "changing between shared memory and the kernel.".to_owned(),
        (DataPath::Kernel, Some(reason)) => format!("the kernel, because: {} ({code}).", reason.text()),
        (DataPath::Kernel, None) => {
            "the kernel, for a reason that this version does not know (read it with the version that the program runs)."
                .to_owned()
        }
    }
}

/// What a descriptor is that Bypath does not follow.
fn about_descriptor(pid: u32, fd: i32) -> String {
    match fs::read_link(format!("/proc/{}/fd/{fd}", shown_thread(pid))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => "is not open.".to_owned(),
        Err(e) => format!("cannot be looked at: {e}."),
        Ok(target) => match target.to_str().and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']')) {
            None => format!("is no socket but {}.", output::printable(&target.to_string_lossy())),
            Some(inode) if let Some((name, cookie)) = service_of(pid, fd, inode) => format!(
                "is a socket of the netstack service {name} that Bypath does not follow: it came from another program or \
                 process. Its octets go by the descriptor. More of it: bypath netstack sockets --name {name} --json (this one: \
                 {cookie:016x})"
            ),
            Some(inode) => match socket_kind(pid, inode) {
                Some("TCP") => "is a TCP socket that Bypath does not follow: it listens, is not connected, was \
                                inherited from a program that is not under Bypath, or the table of sockets was full."
                    .to_owned(),
                Some("UDP") => "is a UDP socket that nothing was sent or received by, or that Bypath does not follow.".to_owned(),
                Some(kind) => format!("is a {kind} socket; Bypath moves TCP and UDP only."),
                None => format!(
                    "is a socket of another kind than TCP and UDP, or was made in another network namespace: one of a netstack service, \
                     for instance, is of the namespace of its service. `bypath netstack ls --json` tells the pid of each service; ask \
                     in its namespace: nsenter --net=/proc/THAT_PID/ns/net bypath why {pid}:{fd}"
                ),
            },
        },
    }
}

/// The netstack service whose socket this is, and its cookie: it stands in the name of the other end, which anybody can give to his end of a pair. So the process
/// that has made the pair is to be the one that listens where this user looks for that service.
fn service_of(pid: u32, number: i32, inode: &str) -> Option<(String, u64)> {
    let netlink = sockdiag::open(3).ok()?;
    let peer = inode.parse().ok().and_then(|inode| sockdiag::named_peer(netlink, inode).ok().flatten());
    fd::close(netlink);
    // The kernel has told of a socket of this network namespace, which the process need not be in.
    let peer = peer?;
    let (name, cookie) =
        of_end_name(peer.abstract_name()?).filter(|(_, cookie)| *cookie == peer.own_cookie)?;
    let copy = process::descriptor_of(pid, number).ok()?;
    let is_its = match place::find(name) {
        Some(path) => place::has_made(place::connect(&path), copy) == Some(true),
        // The program looks in another folder than this user.
        None => is_made_by_a_service(copy),
    };
    fd::close(copy);
    is_its.then(|| (name.to_owned(), cookie))
}

/// Whether a process of root's or the own user's that runs this very command has made the pair that a socket is of.
fn is_made_by_a_service(socket: i32) -> bool {
    let file = |of: &str| fs::metadata(format!("/proc/{of}/exe")).map(|m| (m.dev(), m.ino()));
    unix::peer_credentials(socket).is_ok_and(|maker| {
        let itself = file("self");
        connections::is_trusted(maker.uid)
            && itself.is_ok_and(|itself| file(&maker.pid.to_string()).ok() == Some(itself))
    })
}

/// The kind of the socket with this inode, from the tables in /proc/PID/net. Names that somebody chooses stand in that of AF_UNIX, lines and all: there the kernel is
/// asked otherwise.
fn socket_kind(pid: u32, inode: &str) -> Option<&'static str> {
    const TABLES: [(&str, &str, usize); 5] = [
        ("tcp", "TCP", 9),
        ("tcp6", "TCP", 9),
        ("udp", "UDP", 9),
        ("udp6", "UDP", 9),
        ("netlink", "netlink", 9),
    ];
    let found = TABLES.into_iter().find_map(|(table, kind, column)| {
        let (text, _) = foreign::table(pid, table, TABLE)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().any(|l| l.split_whitespace().nth(column) == Some(inode)).then_some(kind)
    });
    found.or_else(|| is_unix(inode).then_some("AF_UNIX"))
}

/// Whether this network namespace has an AF_UNIX socket with this inode.
fn is_unix(inode: &str) -> bool {
    let Ok(netlink) = sockdiag::open(3) else { return false };
    let found = inode.parse().ok().and_then(|inode| sockdiag::unix_owner(netlink, inode).ok().flatten());
    fd::close(netlink);
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn subjects() {
        let parse = |s: &str| s.parse::<Subject>().ok().map(|s| (s.pid, s.fd));
        assert_eq!(parse("12"), Some((12, None)));
        assert_eq!(parse("12:0"), Some((12, Some(0))));
        for bad in ["", ":", "0", "-1", "12:", "12:-1", "12:x", "99999999999", "1:2:3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn other_descriptors_are_described() {
        let pid = std::process::id();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(about_descriptor(pid, tcp.as_raw_fd()).contains("is a TCP socket"));
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        assert!(about_descriptor(pid, udp.as_raw_fd()).contains("UDP"));
        let unix = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert!(about_descriptor(pid, unix.as_raw_fd()).contains("AF_UNIX"));
        let file = fs::File::open("/dev/null").unwrap();
        assert!(about_descriptor(pid, file.as_raw_fd()).contains("/dev/null"));
        assert!(about_descriptor(pid, i32::MAX).contains("not open"));
    }

    #[test]
    fn a_socket_that_may_be_a_services_elsewhere_is_to_be_asked_about_there() {
        if bypath_sys::process::euid() != 0 {
            // Another network namespace is root's to make.
            return;
        }
        let there = bypath_sys::netns::Namespace::new().unwrap();
        let (own, _theirs) = there.run(std::os::unix::net::UnixStream::pair).unwrap().unwrap();
        let (pid, fd) = (std::process::id(), own.as_raw_fd());
        let said = about_descriptor(pid, fd);
        assert!(said.contains("netstack ls") && said.contains(&format!("bypath why {pid}:{fd}")), "{said}");
    }

    #[test]
    fn a_rule_whose_text_is_gone_is_named_by_its_number() {
        // This process was started without rules.
        assert!(Rules::of(std::process::id()).about(7).starts_with("It is rule 7 of the configuration file"));
    }

    #[test]
    fn many_sockets_are_not_all_told_of() {
        let all = vec![(); TOLD + 7];
        let told = about_each(&all, |()| "one\n".to_owned());
        assert_eq!(told.matches("one\n").count(), TOLD);
        assert!(told.contains("And 7 more."), "{told}");
        assert_eq!(about_each(&all[..2], |()| "one\n".to_owned()), "one\none\n");
    }

    #[test]
    fn what_does_not_stand_in_a_line_is_cut() {
        assert_eq!(short("a\x1bb"), "a?b");
        assert_eq!(short(&"ä".repeat(LINE)), "ä".repeat(LINE));
        assert_eq!(short(&"ä".repeat(LINE + 1)), "ä".repeat(LINE) + "...");
    }

    #[test]
    fn sentences_name_code_and_meaning() {
        let d = Direction { path: DataPath::Kernel, reason: Some(Reason::PeerPlain) };
        assert!(
            sentence(None, d).contains("peer-plain") && sentence(None, d).contains(Reason::PeerPlain.text())
        );
        assert!(remedy::usual(Reason::PolicyUid).unwrap().contains("both"));
        assert_eq!(remedy::usual(Reason::Ring), None);
        // Where the other end is a service nobody is to start a program there.
        let of_service = sentence(Some("lab"), d);
        assert!(
            of_service.contains("the service has given it no ring") && !of_service.contains("kernel"),
            "{of_service}"
        );
        assert_eq!(remedies(Some("lab"), [d, d]), "");
    }
}
