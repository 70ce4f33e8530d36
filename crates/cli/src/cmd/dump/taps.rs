//! What is followed: connections that are found, wanted, looked at, and lost again.

use super::Out;
use super::find::{Followed, New, find};
use super::meanwhile::meanwhile;
use super::memory::Life;
use super::newest::Newest;
use super::posts::Posts;
use super::tap::{Known, Over, Tap, UNSEEN};
use super::whose::{Whose, leaves_out, sockets_of};
use super::within;
use crate::cmd::ss::tell_unseen;
use crate::connections::{self, Ends, Scan, is_trusted};
use crate::filter::{Facts, Filter, Protocol};
use crate::output::{self, Failure};
use bypath::clock::monotonic_ns;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Connections, and mailboxes, of another user's programs that are followed at a time.
pub const OF_USER: usize = 1024;

/// Which connections are asked for.
pub struct Wanted {
    /// One that this process holds an end of.
    pub pid: Option<u32>,
    /// One from or to this port.
    pub port: Option<u16>,
    /// What this lets through.
    pub filter: Option<Filter>,
}

impl Wanted {
    /// Which directions of a connection are: from its first socket to the second one, and back.
    pub fn directions(&self, ends: &Ends, addresses: [Option<SocketAddr>; 2]) -> [bool; 2] {
        let members = ends.iter().flatten().flat_map(|(family, end)| family.holders(end));
        let processes: Vec<_> = members.map(|m| (m.pid, m.command.as_str())).collect();
        let of_pid = self.pid.is_none_or(|pid| processes.iter().any(|(p, _)| *p == pid));
        let of_port = self.port.is_none_or(|port| addresses.iter().flatten().any(|a| a.port() == port));
        let service = ends[0].and_then(|(_, end)| end.service.as_deref());
        [0, 1].map(|d| {
            let sends = match service {
                // Both are the program's.
                Some(_) if d == 1 => ends[0].map(|(_, end)| end.incoming),
                _ => ends[d].map(|(_, end)| end.outgoing).or(ends[1 - d].map(|(_, end)| end.incoming)),
            };
            let path = sends.map(|d| connections::path_code(service, [d; 2])).unwrap_or_default();
            let facts = Facts {
                protocol: Protocol::Tcp,
                source: addresses[d],
                destination: addresses[1 - d],
                processes: &processes,
                path: &path,
                reason: sends.map_or("", connections::reason_code),
            };
            of_pid && of_port && self.filter.as_ref().is_none_or(|filter| filter.passes(&facts))
        })
    }

    /// Whether that is.
    pub fn wants(&self, facts: &Facts) -> bool {
        let ports = [facts.source, facts.destination];
        self.pid.is_none_or(|pid| facts.processes.iter().any(|(p, _)| *p == pid))
            && self.port.is_none_or(|port| ports.iter().flatten().any(|a| a.port() == port))
            && self.filter.as_ref().is_none_or(|filter| filter.passes(facts))
    }

    /// Whether something that comes to this UDP socket is asked for, as far as it is known without a look.
    pub fn may_be(&self, pid: u32, command: &str, local: SocketAddr) -> bool {
        self.wants(&Facts {
            protocol: Protocol::Udp,
            source: None,
            destination: Some(local),
            processes: &[(pid, command)],
            path: "ring",
            reason: "ring",
        })
    }
}

/// The addresses of both sockets, each as it or the other one knows it.
pub fn addresses(ends: &Ends) -> [Option<SocketAddr>; 2] {
    let ends = ends.map(|end| end.map(|(_, end)| end));
    if let Some(end) = ends[0].filter(|end| end.service.is_some()) {
        return [end.local, end.remote];
    }
    [0, 1].map(|which: usize| {
        ends[which].and_then(|end| end.local).or_else(|| ends[1 - which].and_then(|end| end.remote))
    })
}

/// What is followed, and how more is found.
pub struct Taps {
    wanted: Wanted,
    whose: Whose,
    rings: Rings,
    posts: Posts,
    /// Whether connections were looked for before: what is found later has begun since.
    begun: bool,
    /// Netstack services of which it was said what is not shown.
    told: HashSet<String>,
    /// Users of whom it was said that some of what they have is left out.
    late: BTreeSet<u32>,
    /// Whether it was said that what others show is left out.
    left_out: bool,
    /// Whether the process that is asked for has ended.
    ended: bool,
    /// Connections whose rings were not found, and in how many looks one after the other.
    hidden: HashMap<Named, u32>,
}

/// In so many looks rings are not found that somebody hides: those of a connection that comes, or goes, may not be in one.
const HIDDEN: u32 = 5;

/// The connections that are followed.
#[derive(Default)]
struct Rings {
    open: Vec<Tap>,
    /// How far connections were known that are followed no longer in the memory of one process: perhaps in that of another.
    known: Newest<Named, (Life, [u64; 2], Known)>,
    /// Which one is read first.
    next: usize,
}

/// A look at rings, or into mailboxes, takes no longer, whatever stands there: who looks is to end when he is told to.
pub const LONGEST: Duration = Duration::from_millis(20);

/// In which order so many are read, from this one on.
pub fn turn(next: usize, count: usize) -> impl Iterator<Item = usize> {
    let first = if next < count { next } else { 0 };
    (first..count).chain(0..first)
}

impl Taps {
    /// Nothing yet.
    pub fn new(wanted: Wanted, whose: Whose) -> Taps {
        Taps {
            wanted,
            whose,
            rings: Rings::default(),
            posts: Posts::default(),
            begun: false,
            told: HashSet::new(),
            late: BTreeSet::new(),
            left_out: false,
            ended: false,
            hidden: HashMap::new(),
        }
    }

    /// Looks for connections on rings that are not followed yet, or until it is `asked` to end. How long that takes is up to others: what is
    /// followed is read meanwhile.
    ///
    /// # Errors
    /// Processes cannot be listed, or one may not be read; as [`Taps::look`].
    pub fn discover(&mut self, asked: &AtomicBool, out: &mut Out, room: &mut Vec<u8>) -> Result<(), Failure> {
        let Taps { wanted, whose, rings, posts, begun, told, .. } = self;
        let look = || Ok(!out.is_done() && posts.look(wanted, out, room)? | rings.look(out, room)?);
        let mut scan = meanwhile(look, connections::scan)?
            .map_err(|e| Failure::new(1, format_args!("cannot list processes in /proc: {e}")))?;
        if !*begun && wanted.pid.is_none() {
            tell_unseen(&scan);
        }
        let Some(others) = whose.choose(&mut scan) else {
            self.tell_of_end();
            return Ok(());
        };
        if let (false, Whose::User(user)) = (*begun, &*whose)
            && scan.families.is_empty()
            && scan.unreadable > 0
            && !is_trusted(*user)
            && !rustix::process::geteuid().is_root()
        {
            return Err(Failure::new(
                1,
                format_args!("programs of user {user} may not be looked into: run this as root"),
            ));
        }
        let open = rings.open.iter().map(Followed::of).collect();
        let look = || Ok(!out.is_done() && posts.look(wanted, out, room)? | rings.look(out, room)?);
        let (sockets, found, left_out) = meanwhile(look, || {
            let sockets = scan.sockets();
            let found = find(&scan, &sockets, open, wanted, &sockets_of(&others), asked);
            let left_out = matches!(whose, Whose::Lookers) && leaves_out(&others, &sockets, wanted);
            found.map(|found| (sockets, found, left_out))
        })??;
        for at in (0..rings.open.len()).rev() {
            match found.followed.get(&rings.open[at].named()) {
                Some(directions) => rings.open[at].asks(*directions),
                None => rings.lose(at),
            }
        }
        found.new.into_iter().for_each(|new| rings.follow(new, *begun));
        within::share(&mut rings.open, &sockets, scan.word());
        // Of connections that are no more nothing need be known.
        rings.known.retain(|cookies| cookies.iter().any(|cookie| sockets.has(*cookie)));
        meanwhile(
            || Ok(!out.is_done() && rings.look(out, room)?),
            || {
                posts.discover(&scan, wanted, *begun)?;
                tell_of_services(told, wanted, &scan);
                Ok(())
            },
        )??;
        self.begun = true;
        let late = found.late.into_iter().chain(std::mem::take(&mut self.posts.late));
        self.tell_of_late(late);
        if left_out && !self.left_out {
            self.left_out = true;
            output::message(
                "note: connections of other users' programs are left out; --user NAME shows those of one",
            );
        }
        self.tell_of_hidden(found.hidden);
        Ok(())
    }

    /// Looks at every ring once, or at as many as there is time for; whether there was anything, or is something left.
    ///
    /// # Errors
    /// What was found cannot be written, or a process may not be read.
    pub fn look(&mut self, out: &mut Out, room: &mut Vec<u8>) -> Result<bool, Failure> {
        Ok(self.posts.look(&self.wanted, out, room)? | self.rings.look(out, room)?)
    }

    /// Says, once of each connection, that what goes by its rings is not shown: whoever shares that memory can make it look like another one's.
    fn tell_of_hidden(&mut self, hidden: HashMap<Named, (u32, i32)>) {
        let before = std::mem::take(&mut self.hidden);
        for (name, (pid, fd)) in hidden {
            let looks = before.get(&name).map_or(1, |looks| looks.saturating_add(1));
            if looks == HIDDEN {
                output::message(format_args!(
                    "note: the rings of descriptor {fd} of process {pid} are not found: its other end hides them, and nothing that goes by them is shown"
                ));
            }
            self.hidden.insert(name, looks);
        }
    }

    /// Whether the process that is asked for has ended: nothing more will come.
    pub fn is_over(&self) -> bool {
        self.ended
    }

    fn tell_of_end(&mut self) {
        if let (false, Whose::Process(one)) = (self.ended, &self.whose) {
            output::message(format_args!("process {} has ended", one.pid()));
        }
        self.ended = true;
    }

    /// Says, once of each user, that some of what he has may be left out.
    fn tell_of_late(&mut self, users: impl Iterator<Item = u32>) {
        for user in users {
            if self.late.len() < 64 && self.late.insert(user) {
                output::message(format_args!(
                    "note: processes of user {user} map more than is looked at in the time that he is given, or have more than {OF_USER} connections: some of what they have is left out"
                ));
            }
        }
    }
}

impl Rings {
    /// Follows one that was found. `begun`: it was not there before.
    fn follow(&mut self, new: New, begun: bool) {
        let name = new.named();
        let New { connection: c, place, cookies, addresses, wanted, writers } = new;
        let left = self.open.iter().find(|tap| tap.named() == name);
        let earlier = left
            .map(|tap| (tap.cookies, tap.place.life, tap.known))
            .or_else(|| self.known.of(&name).map(|(life, order, known)| (*order, *life, *known)));
        let known = match earlier {
            Some((_, life, known)) if life == place.life => known,
            // The other one may have dialled this time.
            Some((order, _, known)) => known.anew(order != cookies),
            None if begun => Known::default().anew(false),
            None => Known::default(),
        };
        self.open.retain(|old| old.named() != name);
        self.open.push(Tap {
            pid: c.process.pid,
            service: c.end.service.clone(),
            user: c.process.user,
            started: c.process.start_time,
            place,
            cookies,
            addresses,
            wanted,
            stays: wanted,
            // Until it is known whether the other end's program is followed, too.
            elsewhere: [c.end.service.is_some(); 2],
            writers,
            known,
            busy: [None; 2],
            left: false,
            last: 1,
            until: [monotonic_ns().saturating_sub(UNSEEN); 2],
        });
    }

    /// Looks at every ring once, or at as many as there is time for; whether there was anything, or is something left.
    fn look(&mut self, out: &mut Out, room: &mut Vec<u8>) -> Result<bool, Failure> {
        let (mut any, begun) = (false, Instant::now());
        let mut gone = Vec::new();
        for at in turn(self.next, self.open.len()) {
            self.next = at;
            if begun.elapsed() > LONGEST {
                any = true;
                break;
            }
            let tap = &mut self.open[at];
            match look(tap, out, room, &mut any)? {
                None => {}
                Some(Over::Forbidden) => return Err(forbidden(tap.pid)),
                Some(over) => {
                    out.cut += u64::from(over == Over::Replaced);
                    gone.push(at);
                }
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.lose(at);
        }
        Ok(any)
    }

    /// Follows one no longer.
    fn lose(&mut self, at: usize) {
        let tap = self.open.swap_remove(at);
        self.known.insert(tap.named(), (tap.place.life, tap.cookies, tap.known));
    }
}

/// Says, once of each service, where what its sockets send and receive is seen.
fn tell_of_services(told: &mut HashSet<String>, wanted: &Wanted, scan: &Scan) {
    let connections = scan.connections();
    let streams =
        connections.iter().map(|c| (Protocol::Tcp, c.process, c.end.local, c.end.remote, &c.end.service));
    let udp = scan.datagrams();
    let datagrams = udp.iter().map(|u| {
        let s = u.socket;
        (Protocol::Udp, u.process, s.local, s.remote, &s.service)
    });
    for (protocol, process, source, destination, service) in streams.chain(datagrams) {
        let Some(name) = service.as_ref().filter(|name| !told.contains(*name)) else { continue };
        let processes = [(process.pid, process.command.as_str())];
        let facts = Facts {
            protocol,
            source,
            destination,
            processes: &processes,
            path: "netstack:ring",
            reason: "ring",
        };
        if told.len() < 64 && wanted.wants(&facts) {
            output::message(format_args!(
                "note: of sockets of the netstack service {name} what goes by the rings of connections is shown; the rest, and what TCP \
                 does with it, is in frames: bypath netstack capture --name {name} -w FILE"
            ));
            told.insert(name.clone());
        }
    }
}

/// Looks at the rings of one connection; whether that is over.
fn look(tap: &mut Tap, out: &mut Out, room: &mut Vec<u8>, any: &mut bool) -> Result<Option<Over>, Failure> {
    let words = match tap.words() {
        Ok(words) => words,
        Err(over) => return Ok(Some(over)),
    };
    tap.left = !words.whole;
    for d in tap.order() {
        let (addresses, wanted) = ([tap.addresses[d], tap.addresses[1 - d]], tap.shows(d));
        let news = if !wanted {
            tap.pass_over(&words, d);
            Ok(None)
        } else if words.used {
            tap.read(&words, d, room)
        } else {
            Ok(tap.unread(&words, d))
        };
        match news {
            // There is something whose writer is about to finish.
            Ok(None) => *any |= tap.busy[d].is_some(),
            Ok(Some(news)) => {
                *any = true;
                // What is shown at the other program's rings is seen there perhaps later: it is not acknowledged before.
                let answered = if tap.elsewhere[1 - d] { 0 } else { tap.known.position(1 - d) };
                out.news(addresses, answered, &news)?;
            }
            // What was missed thereby is told at the next look.
            Err(Over::Closed) => return Ok(None),
            Err(over) => return Ok(Some(over)),
        }
    }
    tap.is_read();
    Ok((!words.used).then_some(Over::Closed))
}

/// A connection, as somebody says it is.
pub type Named = [u64; 2];

/// Whichever of its sockets is named first.
pub fn named(cookies: [u64; 2]) -> Named {
    [cookies[0].min(cookies[1]), cookies[0].max(cookies[1])]
}

pub fn forbidden(pid: u32) -> Failure {
    Failure::new(
        1,
        format_args!(
            "process {pid} may not be looked into: run this as root, or see: bypath doctor (ptrace)"
        ),
    )
}
