//! The connections of all programs under Bypath, read from outside: every family keeps its region open as a
//! memfd, which shows in /proc/PID/fd.
//!
//! What is read was written by other programs and changes while it is read. A process counts as a member of a
//! family only while it has the region open and is the one (pid and start time) in the region's table. How much is looked at of
//! what other users show is bounded (`regions`).

mod addresses;
pub mod descriptors;
mod drops;
mod owners;
mod regions;
mod sockets;

use crate::aside;
use crate::effort::Effort;
use crate::filter::{Facts, Filter, Protocol};
use bypath_shm::family::{DATAGRAM_ENDS, End as EndRecord, WriterLine, end_state};
use bypath_shm::reason::Reason;
use bypath_shm::stats::{Bytes, RECORD_SIZE, StatsSnapshot};
use bypath_shm::view::{
    self, DATAGRAMS_SIZE, Datagrams, END_SIZE, End, HEADER_SIZE, Header, NotAView, Path as DataPath,
};
use descriptors::Process;
use regions::{Budget, Region, Status};
pub use regions::{Notes, is_trusted};
pub use sockets::{Ends, Sockets, Word};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A process that is alive and a member of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process id as this program sees it.
    pub pid: u32,
    /// Command name.
    pub command: String,
    /// Its user: of its real and its effective one, and of those who may write what it says of itself, the one who is trusted least.
    pub user: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// Bit number in [`End::holders`].
    slot: usize,
}

impl Member {
    /// The process.
    pub fn process(&self) -> Process {
        Process { pid: self.pid, user: self.user }
    }

    /// One that holds nothing.
    #[cfg(test)]
    pub fn new(pid: u32, user: u32, command: &str) -> Member {
        Member { pid, command: command.to_owned(), user, start_time: 1, slot: 0 }
    }
}

/// A family region that could be read.
#[derive(Debug)]
pub struct Family {
    /// The processes alive.
    pub members: Vec<Member>,
    ends: Vec<End>,
    datagrams: Vec<Datagrams>,
    /// Of each member.
    counters: Vec<Option<StatsSnapshot>>,
    region: Region,
}

/// One connection as one process holds it.
#[derive(Clone, Copy, Debug)]
pub struct Connection<'a> {
    /// The family of its holders.
    pub family: &'a Family,
    /// The holder.
    pub process: &'a Member,
    /// The socket.
    pub end: &'a End,
    /// How many live processes hold it.
    pub holders: usize,
    /// Bytes waiting in the outgoing ring, if there is one and the other end was found.
    pub outgoing_fill: Option<u64>,
    /// The same of the incoming ring.
    pub incoming_fill: Option<u64>,
}

/// One UDP socket.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a> {
    /// The holder.
    pub process: &'a Member,
    /// The socket.
    pub socket: &'a Datagrams,
    /// Datagrams that the kernel has dropped there, before or after others went by the ring, as far as that is known.
    pub dropped: u64,
}

impl Udp<'_> {
    /// As [`Connection::passes`].
    pub fn passes(&self, filter: &Filter) -> bool {
        let (path, reason) = (self.path_code(), self.reason_code());
        filter.passes(&Facts {
            protocol: Protocol::Udp,
            source: self.socket.local,
            destination: self.socket.remote,
            processes: &[(self.process.pid, &self.process.command)],
            path: &path,
            reason: &reason,
        })
    }

    /// As [`Connection::path_code`].
    pub fn path_code(&self) -> String {
        path_code(self.socket.service.as_deref(), [self.socket.outgoing, self.socket.incoming])
    }

    /// Whether it has sent anything, or would by a mailbox; who has done nothing yet may do both.
    pub fn sends(&self) -> bool {
        let (tx, rx) = (&self.socket.tx, &self.socket.rx);
        self.socket.routes > 0 || tx.ring > 0 || tx.kernel > 0 || rx.ring == 0 && rx.kernel == 0
    }

    /// The same of receiving.
    pub fn receives(&self) -> bool {
        let (tx, rx) = (&self.socket.tx, &self.socket.rx);
        rx.ring > 0 || rx.kernel > 0 || rx.lost > 0 || tx.ring == 0 && tx.kernel == 0
    }

    /// Whether any direction uses shared memory.
    pub fn on_ring(&self) -> bool {
        [self.socket.outgoing, self.socket.incoming].iter().any(|d| d.path == DataPath::Ring)
    }

    /// What was lost for want of room: at mailboxes, and in the kernel's queue.
    pub fn lost(&self) -> u64 {
        self.socket.tx.lost.saturating_add(self.socket.rx.lost).saturating_add(self.dropped)
    }

    /// As [`Connection::reason_code`].
    pub fn reason_code(&self) -> String {
        two_words(reason_code(self.socket.outgoing), reason_code(self.socket.incoming))
    }
}

/// One word where both are the same.
fn two_words(out: &str, incoming: &str) -> String {
    if out == incoming { out.to_owned() } else { format!("{out}/{incoming}") }
}

/// How long views are read: 250 ms for those of one other user, who says how much stands in them, 750 ms for all of them.
type Reads = Effort<250, 750>;

/// Everything found.
#[derive(Debug, Default)]
pub struct Scan {
    /// The families.
    pub families: Vec<Family>,
    /// Processes that may not be looked into.
    pub unreadable: usize,
    /// What was found but could not be understood, for people.
    pub notes: Vec<String>,
}

/// Looks at every process.
///
/// # Errors
/// /proc cannot be listed.
pub fn scan() -> io::Result<Scan> {
    let found = regions::find()?;
    let (mut notes, mut budget) = (found.notes, Budget::default());
    let mut families = Vec::new();
    let mut all = Vec::new();
    let (mut reads, mut late) = ([(); 2].map(|()| Reads::default()), BTreeSet::new());
    for region in found.regions {
        let (pid, (user, is_ours)) = (region.places[0].0.pid, region.payer());
        let reads = &mut reads[usize::from(is_ours)];
        if reads.is_over(user) {
            late.insert(user);
            continue;
        }
        match reads.on(user, || Opened::new(region)) {
            Ok(opened) => all.push(opened),
            Err(ReadError::Io(e)) if gone(&e) => {}
            Err(ReadError::NotAView(NotAView::NotReady)) => {}
            Err(e) => notes.add(format!("process {pid}: its view cannot be read: {e}")),
        }
    }
    // None was kept open: there may be more of them than descriptors.
    all.sort_by_key(|opened| (opened.region.rank(), opened.size()));
    for opened in all {
        let (user, is_ours) = opened.region.payer();
        let reads = &mut reads[usize::from(is_ours)];
        if reads.is_over(user) {
            late.insert(user);
            continue;
        }
        // It may be gone.
        let read = || {
            let file = opened.region.open(false).ok()?;
            Some(opened.read(&file, &mut budget, &mut notes))
        };
        families.extend(reads.on(user, read));
    }
    for user in late {
        notes.add(format!(
            "user {user} has views that take longer to be read than he is given: some are left out"
        ));
    }
    families.sort_by_key(|f| (!is_trusted(f.region.user), f.members.first().map(|m| m.pid)));
    let late = addresses::fill(&mut families);
    if late > 0 {
        notes.add(format!(
            "the addresses of {late} connections are not known, and no filter finds them by these: the kernel's table of sockets is too long to be read in time"
        ));
    }
    Ok(Scan { families, unreadable: found.unreadable, notes: notes.all() })
}

fn gone(e: &io::Error) -> bool {
    // ESRCH has no kind of its own.
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Whether this is a thread of the kernel.
pub fn is_kernel_thread(pid: u32) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    stat_field(pid, 9).is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Whether a process is the one that started then (0: not known). One of which that cannot be told soon, as it executes a program, is, and so is one of
/// another time namespace.
pub fn is(pid: u32, start_time: u64) -> bool {
    let process = Process::of(pid);
    match process.and_then(Process::start_time) {
        Some(known) => {
            known == start_time || start_time == 0 || process.is_some_and(Process::counts_otherwise)
        }
        None => exists(pid),
    }
}

/// When the process that has this number now started, in clock ticks since boot. `None`: as of [`Process::start_time`].
pub fn started(pid: u32) -> Option<u64> {
    Process::of(pid).and_then(Process::start_time)
}

/// Whether there is such a process. This waits for nobody.
pub fn exists(pid: u32) -> bool {
    state(pid).is_some()
}

impl Process {
    /// In clock ticks since boot; `None` if it has ended, or that cannot be told soon.
    pub fn start_time(self) -> Option<u64> {
        aside::of(self, move |_| stat_field(self.pid, 22))?
    }

    /// Whether it is in another time namespace, where start times are others.
    fn counts_otherwise(self) -> bool {
        aside::of(self, move |_| bypath_sys::process::counts_otherwise(self.pid)).unwrap_or(false)
    }
}

/// Whether a process is stopped, by a signal or a debugger.
pub fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some(b'T' | b't'))
}

/// The state of a process, more exactly of its first thread, as proc(5) has it: `S` sleeps. `None`: there is no such process.
/// This waits for nobody.
pub fn state(pid: u32) -> Option<u8> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    let state = text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"State:"))?;
    state.trim_ascii_start().first().copied()
}

/// A numeric field of /proc/PID/stat, counted from 1 as in proc(5).
fn stat_field(pid: u32, number: usize) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text, number)
}

fn parse_stat(text: &[u8], number: usize) -> Option<u64> {
    // The name, field 2, stands in brackets and may itself contain brackets and blanks.
    let after_name = text.iter().rposition(|&b| b == b')')? + 1;
    std::str::from_utf8(&text[after_name..]).ok()?.split_whitespace().nth(number - 3)?.parse().ok()
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    NotAView(#[from] NotAView),
}

/// A region whose header was read.
struct Opened {
    region: Region,
    members: Vec<Member>,
    ends_used: usize,
}

impl Opened {
    fn new(region: Region) -> Result<Opened, ReadError> {
        let file = region.open(false)?;
        let header = Header::decode(&read_up_to(&file, 0, HEADER_SIZE)?)?;
        let mut members = members_of(&region, &header.processes);
        members.sort_by_key(|m| m.pid);
        // Records behind the end of the file are promised alone.
        let there = file.metadata()?.len().saturating_sub(view::end_offset(0)) as usize / END_SIZE;
        Ok(Opened { region, members, ends_used: header.ends_used.min(there + 1) })
    }

    /// How much there is to be looked at.
    fn size(&self) -> usize {
        self.ends_used * self.members.len().max(1)
    }

    /// Reads what there is, as far as the budget goes.
    fn read(self, file: &File, budget: &mut Budget, notes: &mut Notes) -> Family {
        let Opened { region, members, ends_used } = self;
        let left = budget.left(region.payer());
        let held = |end: &End| holders_of(&members, end).count();
        let (mut ends, mut count) = (Vec::new(), 0usize);
        let is_whole = read_ends(file, ends_used, |end| {
            count += held(&end).max(1);
            let fits = count <= left;
            if fits {
                ends.push(end);
            }
            fits
        });
        let mut datagrams = read_datagrams(file).unwrap_or_default();
        let fit = left.saturating_sub(count);
        if !is_whole.unwrap_or(true) || datagrams.len() > fit {
            let (user, _) = region.payer();
            let pid = region.places[0].0.pid;
            notes.add(if is_trusted(user) {
                format!("process {pid} shows more sockets than are looked at: some are left out")
            } else {
                format!("user {user} shows more sockets than are looked at of one user: some are left out")
            });
        }
        datagrams.truncate(fit);
        budget.take(region.payer(), count.saturating_add(datagrams.len()).saturating_add(1));
        let counters = |member: &Member| {
            StatsSnapshot::decode(&read_up_to(file, view::stats_offset(member.slot), RECORD_SIZE).ok()?)
        };
        let counters = members.iter().map(counters).collect();
        Family { members, ends, datagrams, counters, region }
    }
}

impl Family {
    /// The end at a place as it is now; `None` if it is not in use any more, or its processes had ended when this was asked for.
    pub fn ends_now(&self) -> impl Fn(usize) -> Option<End> + use<> {
        let region = self.region.open(false);
        move |number| {
            let region = region.as_ref().ok()?;
            End::decode(number, &read_up_to(region, view::end_offset(number), END_SIZE).ok()?)
        }
    }

    /// Whose word it is.
    pub fn word(&self) -> Word {
        match &self.region {
            region if is_trusted(region.user) => Word::Trusted,
            region if region.mixed => Word::Region(region.id),
            region => Word::User(region.user),
        }
    }

    /// Whose it is: of the users of its processes the one who is trusted least.
    pub fn user(&self) -> u32 {
        self.region.user
    }

    /// Whether only programs of this user, and root's or the own user's, have it.
    pub fn is_of(&self, user: u32) -> bool {
        self.region.user == user && !self.region.mixed
    }

    /// The sockets of connections.
    pub fn ends(&self) -> &[End] {
        &self.ends
    }

    /// The UDP sockets.
    pub fn datagrams(&self) -> &[Datagrams] {
        &self.datagrams
    }

    /// The members that hold `end`.
    pub fn holders<'a>(&'a self, end: &End) -> impl Iterator<Item = &'a Member> + use<'a> {
        holders_of(&self.members, end)
    }

    /// The region, to be written to.
    ///
    /// # Errors
    /// As open(2): the process may have ended, or belong to another user.
    pub fn open(&self) -> io::Result<File> {
        self.region.open(true)
    }

    /// The line of the record of `end` that its writers use, to be read again and again.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn writer(&self, end: &End) -> io::Result<Writer> {
        let (record, generation) = (view::end_offset(end.number), end.generation);
        Ok(Writer { region: self.region.kept()?, record, generation })
    }

    /// The counters of a member when it was looked at, unless they live in a statistics file.
    pub fn counters(&self, member: &Member) -> Option<&StatsSnapshot> {
        let at = self.members.iter().position(|m| m.pid == member.pid)?;
        self.counters[at].as_ref()
    }
}

/// By which start time a place of the table names a process, beside its id.
#[derive(Clone, Copy)]
enum Naming {
    Started,
    /// The family could not tell.
    Unknown,
    /// Any: the process is in another time namespace than who looks, where it has another one.
    Otherwise,
}

/// The processes of a region's table that have the region open. Of those that could stand at one place one alone does: of pid namespaces
/// each has a process 1, and where there was no /proc no start time tells them apart.
fn members_of(region: &Region, table: &[view::Process]) -> Vec<Member> {
    let mut processes: Vec<_> = region
        .places
        .iter()
        .filter_map(|&(process, _)| Some((process.pid, Status::of(process.pid)?, process.start_time()?)))
        .collect();
    // In a pid namespace of its own a process can have any number.
    processes.sort_by_key(|(pid, status, _)| (!is_trusted(status.least_trusted()), *pid));
    let mut taken = 0u64;
    let mut members = Vec::new();
    // Whom his start time names goes first.
    for by in [Naming::Started, Naming::Unknown, Naming::Otherwise] {
        processes.retain(|&(pid, status, start_time)| {
            let is_named = |said: u64| match by {
                Naming::Started => said == start_time,
                Naming::Unknown => said == 0,
                Naming::Otherwise => Process { pid, user: status.least_trusted() }.counts_otherwise(),
            };
            let is_it = |p: &&view::Process| {
                p.pid == status.inner_pid && taken >> p.slot & 1 == 0 && is_named(p.start_time)
            };
            let Some(process) = table.iter().find(is_it) else { return true };
            taken |= 1 << process.slot;
            let own = status.least_trusted();
            let user = if is_trusted(own) { region.user } else { own };
            members.push(Member {
                pid,
                command: process.command.clone(),
                user,
                start_time,
                slot: process.slot,
            });
            false
        });
    }
    members
}

fn holders_of<'a>(members: &'a [Member], end: &End) -> impl Iterator<Item = &'a Member> + use<'a> {
    let holders = end.holders;
    members.iter().filter(move |m| holders >> m.slot & 1 == 1)
}

/// The writers' line of an end's record.
#[derive(Debug)]
pub struct Writer {
    region: Arc<File>,
    record: u64,
    generation: u32,
}

/// What those who may write to a ring do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// None of them writes at this moment.
    Paused,
    /// One of them does, or has died or was stopped while it did.
    Busy,
    /// They have all closed the socket.
    Nobody,
}

impl Writer {
    /// One whose record, the first of this file, is as it stands there.
    #[cfg(test)]
    pub fn at_start_of(region: File, generation: u32) -> Writer {
        Writer { region: Arc::new(region), record: 0, generation }
    }

    /// What they do now.
    pub fn look(&self) -> Writing {
        const LINE: usize = offset_of!(EndRecord, w) + offset_of!(WriterLine, lock);
        let Ok(raw) = read_up_to(&self.region, self.record, LINE + 8) else { return Writing::Busy };
        let half = |at: usize| {
            raw.get(at..at + 4).map(|half| u32::from_ne_bytes(half.try_into().expect("four bytes")))
        };
        let in_use = half(offset_of!(EndRecord, state)).is_some_and(|state| state != end_state::FREE);
        if !in_use || half(offset_of!(EndRecord, generation)) != Some(self.generation) {
            return Writing::Nobody;
        }
        if raw.get(LINE..).is_some_and(|lock| *lock == [0; 8]) { Writing::Paused } else { Writing::Busy }
    }
}

/// Reads the ends in blocks of about a megabyte (a region full of ends has 40), until `f` has had enough; whether these were all.
fn read_ends(region: &File, used: usize, mut f: impl FnMut(End) -> bool) -> io::Result<bool> {
    const BLOCK: usize = 2048;
    for first in (0..used).step_by(BLOCK) {
        let count = BLOCK.min(used - first);
        let raw = read_up_to(region, view::end_offset(first), count * END_SIZE)?;
        let mut numbered = raw.chunks_exact(END_SIZE).enumerate();
        if !numbered.by_ref().filter_map(|(i, raw)| End::decode(first + i, raw)).all(&mut f) {
            return Ok(false);
        }
        if raw.len() < count * END_SIZE {
            break;
        }
    }
    Ok(true)
}

/// Reads the UDP sockets, at once: a region full of them has a quarter of a megabyte.
fn read_datagrams(region: &File) -> io::Result<Vec<Datagrams>> {
    let raw = read_up_to(region, view::datagrams_offset(0), DATAGRAM_ENDS * DATAGRAMS_SIZE)?;
    let numbered = raw.chunks_exact(DATAGRAMS_SIZE).enumerate();
    Ok(numbered.filter_map(|(i, raw)| Datagrams::decode(i, raw)).collect())
}

/// Reads `length` bytes, fewer at the end of the file.
fn read_up_to(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl Scan {
    /// The family that a process belongs to.
    pub fn family_of(&self, pid: u32) -> Option<(&Family, &Member)> {
        self.families.iter().find_map(|f| Some((f, f.members.iter().find(|m| m.pid == pid)?)))
    }

    /// Whose word all of its families are, where they are those of one.
    pub fn word(&self) -> Word {
        self.families.first().map_or(Word::Trusted, Family::word)
    }

    /// The sockets by their numbers.
    pub fn sockets(&self) -> Sockets<'_> {
        Sockets::of(self)
    }

    /// Every UDP socket that was used, ordered by process and descriptor, and what the kernel has dropped there.
    pub fn udp(&self) -> Vec<Udp<'_>> {
        let mut drops = drops::Drops::default();
        let mut all = self.datagrams();
        // In turn, but for what root and the own user have: that comes first.
        let mut ordered: Vec<_> = all.iter_mut().filter(|udp| udp.socket.service.is_none()).collect();
        ordered.sort_by_key(|udp| !is_trusted(udp.process.user));
        for udp in ordered {
            udp.dropped = drops.at(udp.process.process(), udp.socket.fd).unwrap_or(0);
        }
        all
    }

    /// The same, without what the kernel has dropped.
    pub fn datagrams(&self) -> Vec<Udp<'_>> {
        let of = |family| {
            let family: &Family = family;
            family.datagrams.iter().filter_map(|socket| {
                let process = family.members.iter().find(|m| m.slot == socket.slot)?;
                Some(Udp { process, socket, dropped: 0 })
            })
        };
        let mut all: Vec<_> = self.families.iter().flat_map(of).collect();
        all.sort_by_key(|udp| (udp.process.pid, udp.socket.fd));
        all
    }

    /// Every connection, once for each live process that holds it, ordered by process and descriptor.
    pub fn connections(&self) -> Vec<Connection<'_>> {
        let sockets = self.sockets();
        let mut all = Vec::new();
        for family in &self.families {
            for end in family.ends.iter().filter(|end| is_connection(end)) {
                let other = end.peer_cookie.and_then(|cookie| sockets.believed(family.word(), cookie));
                let other = other.map(|(_, end)| end);
                let holders: Vec<_> = family.holders(end).collect();
                all.extend(holders.iter().map(|process| Connection {
                    family,
                    process,
                    end,
                    holders: holders.len(),
                    outgoing_fill: other.and_then(|other| end.outgoing_fill(other)),
                    incoming_fill: other.and_then(|other| other.outgoing_fill(end)),
                }));
            }
        }
        all.sort_by_key(|c| (c.process.pid, c.end.fd));
        all
    }
}

/// Whether the socket is one of a connection that was used: not one that listens or was only opened.
fn is_connection(end: &End) -> bool {
    end.remote.is_some() || end.warm || end.bytes.sent() > 0 || end.bytes.received() > 0
}

impl Connection<'_> {
    /// Whether the two are the ends of one connection, as far as is known.
    pub fn is_other_end_of(&self, other: &Connection) -> bool {
        let (a, b) = (self.end, other.end);
        let known = |c: Option<u64>| c.is_some();
        known(a.peer_cookie) && a.peer_cookie == b.cookie
            || known(b.peer_cookie) && b.peer_cookie == a.cookie
            || a.local.is_some() && a.local == b.remote && a.remote == b.local
    }

    /// `ring`, `kernel`, or `ring/kernel` (outgoing first) if the directions differ; of a netstack service `netstack:ring` and its like.
    pub fn path_code(&self) -> String {
        path_code(self.end.service.as_deref(), [self.end.outgoing, self.end.incoming])
    }

    /// The reason code, or two (outgoing first) if the directions differ.
    pub fn reason_code(&self) -> String {
        two_words(reason_code(self.end.outgoing), reason_code(self.end.incoming))
    }

    /// Whether a filter lets it through, which takes this end for the source.
    pub fn passes(&self, filter: &Filter) -> bool {
        let (path, reason) = (self.path_code(), self.reason_code());
        filter.passes(&Facts {
            protocol: Protocol::Tcp,
            source: self.end.local,
            destination: self.end.remote,
            processes: &[(self.process.pid, &self.process.command)],
            path: &path,
            reason: &reason,
        })
    }

    /// Bytes moved.
    pub fn bytes(&self) -> Bytes {
        self.end.bytes
    }

    /// Whether any direction uses shared memory.
    pub fn on_ring(&self) -> bool {
        self.end.outgoing.path == DataPath::Ring || self.end.incoming.path == DataPath::Ring
    }
}

/// The code of a path, or two (outgoing first) if the directions differ.
pub fn path_code(service: Option<&str>, directions: [view::Direction; 2]) -> String {
    let [out, incoming] = directions.map(|d| path_word(service, d.path));
    let words = two_words(out, incoming);
    if service.is_some() { format!("netstack:{words}") } else { words }
}

/// The word for a path: what does not go by the ring goes by the kernel's TCP or UDP, or the pair that is the descriptor of a netstack service's socket.
pub fn path_word(service: Option<&str>, path: DataPath) -> &'static str {
    match path {
        DataPath::Kernel if service.is_some() => "pair",
        path => path.code(),
    }
}

/// A reason in one sentence for people; some mean something else where the other end is a netstack service.
pub fn reason_text(service: Option<&str>, reason: Reason) -> &'static str {
    match reason {
        reason if service.is_none() => reason.text(),
        Reason::PeerPlain | Reason::Refused => {
            "the service has given it no ring so far: it has none to give, or has not answered in time"
        }
        Reason::PolicyUid => {
            "the service gives rings to this user no more (he made it wait too often), or cannot (vm.overcommit_memory is 2, or there is \
             no AIO to be had)"
        }
        Reason::MemoryLimit => {
            "rings of this user have as many octets as he may (octets-per-user), or those of this process (--memory-limit)"
        }
        Reason::SmallBuffer => {
            "the service's settings have no rings (ring-octets = 0), or the descriptor's send buffer is too small"
        }
        Reason::RecalledPeer => "the service took its direction back or asked for it",
        reason => reason.text(),
    }
}

/// The stable code of a direction's reason.
pub fn reason_code(direction: view::Direction) -> &'static str {
    direction.reason.map_or("unknown", |r| r.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_shift_fields() {
        let text = b"42 (a) R 1) S 1 2 3 4 5 2097152 0 0 0 0 0 0 0 0 20 0 1 0 777 0\n";
        assert_eq!(parse_stat(text, 22), Some(777));
        assert_eq!(parse_stat(text, 9), Some(2_097_152));
        assert_eq!(parse_stat(b"", 22), None);
        assert_eq!(parse_stat(b"1 (x) S", 22), None);
    }

    #[test]
    fn own_process_is_known() {
        let pid = std::process::id();
        let started = Process::of(pid).and_then(Process::start_time).expect("it lives");
        assert!(is(pid, started) && !is(pid, started + 1) && !is(u32::MAX, 0) && !is_kernel_thread(pid));
        assert!(exists(pid) && !exists(u32::MAX) && Process::of(u32::MAX).is_none());
        assert!(matches!(state(pid), Some(b'R' | b'S' | b'D')));
    }
}
