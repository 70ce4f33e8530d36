//! What is followed: connections that are found, wanted, looked at, and lost again.

use super::Out;
use super::authors::{self, Author};
use super::effort::Effort;
use super::memory::{self, Arena, Life, Place};
use super::posts::Posts;
use super::tap::{Known, Over, Tap};
use super::turns::{Turn, Turns};
use super::within;
use crate::cmd::ss::tell_unseen;
use crate::connections::{self, Connection, Ends, Member, Scan, Word, is_trusted};
use crate::filter::{Facts, Filter, Protocol};
use crate::output::{self, Failure};
use bypath_shm::arena::Geometry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Connections of one other user, and mailboxes, that are followed at a time.
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
    fn directions(&self, ends: &Ends, addresses: [Option<SocketAddr>; 2]) -> [bool; 2] {
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
fn addresses(ends: &Ends) -> [Option<SocketAddr>; 2] {
    let ends = ends.map(|end| end.map(|(_, end)| end));
    if let Some(end) = ends[0].filter(|end| end.service.is_some()) {
        return [end.local, end.remote];
    }
    [0, 1].map(|which: usize| {
        ends[which].and_then(|end| end.local).or_else(|| ends[1 - which].and_then(|end| end.remote))
    })
}

/// What is followed.
pub struct Taps {
    wanted: Wanted,
    open: Vec<Tap>,
    /// How far connections were known that are followed no longer in the memory of one process: perhaps in that of another.
    known: HashMap<Named, (Life, Known)>,
    /// Whether connections were looked for before: what is found later has begun since.
    begun: bool,
    posts: Posts,
    turns: Turns,
    /// Netstack services of which it was said what is not shown.
    told: HashSet<String>,
    /// Their processes, as far as they were asked for since the look before.
    services: HashMap<String, Option<u32>>,
    /// Users of whom it was said that some of what they have is left out.
    late: BTreeSet<u32>,
}

/// The slots in use that processes map, by the sockets they are of; put together when it is needed.
#[derive(Default)]
struct Slots {
    arenas: HashMap<u32, Vec<Arena>>,
    all: HashMap<(u32, u32), HashMap<[u64; 2], Place>>,
    effort: Effort,
    /// Users for whom there was too little time.
    late: BTreeSet<u32>,
}

impl Slots {
    /// Where the connection of these sockets is in a process, and in which order it names them.
    fn find(
        &mut self,
        process: &Member,
        ring: u32,
        ends: [u64; 2],
    ) -> Result<Option<(Place, [u64; 2])>, Failure> {
        if !(Geometry { slots: 1, ring }).is_valid() {
            return Ok(None);
        }
        let (pid, user) = (process.pid, process.user);
        if !self.all.contains_key(&(pid, ring)) {
            let all = self.read(pid, user, ring)?;
            self.all.insert((pid, ring), all);
        }
        let all = &self.all[&(pid, ring)];
        let orders = [ends, [ends[1], ends[0]]];
        Ok(orders.into_iter().find_map(|cookies| Some((*all.get(&cookies)?, cookies))))
    }

    fn read(&mut self, pid: u32, user: u32, ring: u32) -> Result<HashMap<[u64; 2], Place>, Failure> {
        let Slots { arenas, effort, late, .. } = self;
        let mut all: HashMap<[u64; 2], Place> = HashMap::new();
        if effort.is_over(user) {
            late.insert(user);
            return Ok(all);
        }
        // A process that has gone, or goes, has none.
        let left = effort.left(user);
        let its = || effort.on(user, || memory::arenas(pid, left).unwrap_or_default());
        let arenas = arenas.entry(pid).or_insert_with(its);
        for arena in arenas.iter() {
            if effort.is_over(user) {
                break;
            }
            match effort.on(user, || memory::slots(pid, *arena, ring)) {
                Ok(slots) => slots.into_iter().for_each(|(cookies, place): ([u64; 2], Place)| {
                    let best = all.entry(cookies).or_insert(place);
                    if place.whole {
                        *best = place;
                    }
                }),
                Err(nix::Error::EPERM) => return Err(forbidden(pid)),
                Err(_) => {}
            }
        }
        if effort.is_over(user) {
            late.insert(user);
        }
        Ok(all)
    }
}

impl Taps {
    /// Nothing yet.
    pub fn new(wanted: Wanted) -> Taps {
        Taps {
            wanted,
            open: Vec::new(),
            known: HashMap::new(),
            begun: false,
            posts: Posts::default(),
            turns: Turns::default(),
            told: HashSet::new(),
            services: HashMap::new(),
            late: BTreeSet::new(),
        }
    }

    /// Looks for connections on rings that are not followed yet, or until it is `asked` to end.
    ///
    /// # Errors
    /// Processes cannot be listed, or one may not be read.
    pub fn discover(&mut self, asked: &AtomicBool) -> Result<(), Failure> {
        let scan = connections::scan()
            .map_err(|e| Failure::new(1, format_args!("cannot list processes in /proc: {e}")))?;
        if !self.begun && self.wanted.pid.is_none() {
            tell_unseen(&scan);
        }
        let sockets = scan.sockets();
        let of_family = |f| {
            let family: &connections::Family = f;
            family.members.iter().map(|member| (member.pid, family.word()))
        };
        let words: HashMap<u32, Word> = scan.families.iter().rev().flat_map(of_family).collect();
        for tap in &mut self.open {
            tap.word = words.get(&tap.pid).copied().unwrap_or(tap.word);
            let ends = sockets.ends(tap.word, tap.cookies);
            tap.asks(self.wanted.directions(&ends, tap.addresses.map(Some)));
        }
        self.services.clear();
        // The sockets of one that a side has left may have other rings already.
        let (left, whole): (Vec<_>, Vec<_>) = self.open.iter().partition(|tap| tap.left);
        let left: HashMap<_, _> = left.iter().map(|tap| (tap.named(), tap.place.life)).collect();
        let mut followed: HashSet<_> = whole.iter().map(|tap| tap.named()).collect();
        let mut lives: HashMap<Life, Word> = self.open.iter().map(|tap| (tap.place.life, tap.word)).collect();
        let mut slots = Slots::default();
        let mut of_user: HashMap<u32, usize> = HashMap::new();
        self.open.iter().for_each(|tap| *of_user.entry(tap.user).or_default() += 1);
        let mut connections = scan.connections();
        connections.sort_by_key(|c| !is_trusted(c.process.user));
        for c in connections {
            if asked.load(Relaxed) {
                break;
            }
            let other = if c.end.service.is_some() { c.end.cookie } else { c.end.peer_cookie };
            let (Some(own), Some(other), Some(ring)) = (c.end.cookie, other, c.end.ring_size) else {
                continue;
            };
            let (word, cookies) = (c.family.word(), [own, other]);
            let ends = sockets.ends(word, cookies);
            let wanted = self.wanted.directions(&ends, addresses(&ends));
            if followed.contains(&named(cookies, word)) || wanted == [false; 2] {
                continue;
            }
            let count = of_user.entry(c.process.user).or_default();
            if *count >= OF_USER && !is_trusted(c.process.user) {
                continue;
            }
            // Two users have the same memory only where their programs share it: it is one connection.
            if let Some((place, cookies)) = slots.find(c.process, ring, cookies)?
                && left.get(&named(cookies, word)).is_none_or(|life| *life != place.life && place.whole)
                && lives.get(&place.life).is_none_or(|whose| *whose == word)
                && let Some(tap) = self.tap(&sockets.ends(word, cookies), &c, place, cookies)
            {
                followed.insert(tap.named());
                lives.insert(place.life, word);
                self.open.retain(|old| old.named() != tap.named());
                self.open.push(tap);
                *count += 1;
            }
        }
        self.tell_of_late(slots.late);
        within::share(&mut self.open, &sockets);
        self.posts.discover(&scan, &self.wanted, self.begun)?;
        self.tell_of_services(&scan);
        self.begun = true;
        // Of connections that are no more nothing need be known.
        self.known.retain(|(cookies, _), _| cookies.iter().any(|cookie| sockets.has(*cookie)));
        Ok(())
    }

    /// Says, once of each user, that some of what he has may be left out.
    fn tell_of_late(&mut self, users: BTreeSet<u32>) {
        for user in users {
            if self.late.len() < 64 && self.late.insert(user) {
                output::message(format_args!(
                    "note: processes of user {user} map more than is looked at in the time that he is given: some of what they have is left out"
                ));
            }
        }
    }

    /// Says, once of each service, where what its sockets send and receive is seen.
    fn tell_of_services(&mut self, scan: &Scan) {
        let connections = scan.connections();
        let streams =
            connections.iter().map(|c| (Protocol::Tcp, c.process, c.end.local, c.end.remote, &c.end.service));
        let udp = scan.datagrams();
        let datagrams = udp.iter().map(|u| {
            let s = u.socket;
            (Protocol::Udp, u.process, s.local, s.remote, &s.service)
        });
        for (protocol, process, source, destination, service) in streams.chain(datagrams) {
            let Some(name) = service.as_ref().filter(|name| !self.told.contains(*name)) else { continue };
            let processes = [(process.pid, process.command.as_str())];
            let facts = Facts {
                protocol,
                source,
                destination,
                processes: &processes,
                path: "netstack:ring",
                reason: "ring",
            };
            if self.told.len() < 64 && self.wanted.wants(&facts) {
                output::message(format_args!(
                    "note: of sockets of the netstack service {name} what goes by the rings of connections is shown; the rest, and what TCP \
                     does with it, is in frames: bypath netstack capture --name {name} -w FILE"
                ));
                self.told.insert(name.clone());
            }
        }
    }

    fn tap(&mut self, ends: &Ends, c: &Connection, place: Place, cookies: [u64; 2]) -> Option<Tap> {
        let [Some(dialler), Some(accepter)] = addresses(ends) else { return None };
        let word = c.family.word();
        let left = self.open.iter().find(|tap| tap.named() == named(cookies, word));
        let earlier = left.map(|tap| (tap.cookies, tap.place.life, tap.known)).or_else(|| {
            let orders = [cookies, [cookies[1], cookies[0]]];
            orders
                .into_iter()
                .find_map(|order| self.known.get(&(order, word)).map(|(life, known)| (order, *life, *known)))
        });
        let known = match earlier {
            Some((_, life, known)) if life == place.life => known,
            // The other one may have dialled this time.
            Some((order, _, known)) => known.anew(order != cookies),
            None if self.begun => Known::default().anew(false),
            None => Known::default(),
        };
        let mut writers =
            ends.map(|end| end.and_then(|(family, end)| family.writer(end).ok()).map(Author::Programs));
        if let Some(name) = &c.end.service {
            let known = self.services.entry(name.clone()).or_insert_with(|| authors::service(name));
            writers[1] = known.filter(|pid| authors::has(*pid, &place.life)).map(Author::Service);
        }
        let wanted = self.wanted.directions(ends, [Some(dialler), Some(accepter)]);
        Some(Tap {
            pid: c.process.pid,
            service: c.end.service.clone(),
            user: c.process.user,
            word,
            turn: Turn::of(c.process.user),
            place,
            cookies,
            addresses: [dialler, accepter],
            wanted,
            stays: wanted,
            // Until it is known whether the other end's program is followed, too.
            elsewhere: [c.end.service.is_some(); 2],
            writers,
            known,
            busy: [None; 2],
            left: false,
            last: 1,
        })
    }

    /// Looks at every ring once, or at as many as there is time for; whether there was anything, or is something left.
    ///
    /// # Errors
    /// What was found cannot be written, or a process may not be read.
    pub fn look(&mut self, out: &mut Out, room: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut any = self.posts.look(&self.wanted, out, room)?;
        let mut gone = Vec::new();
        for at in self.turns.begin(self.open.iter().map(|tap| tap.turn)) {
            let tap = &mut self.open[at];
            if self.turns.is_left(tap.turn) {
                any = true;
                continue;
            }
            let mut turn = tap.turn;
            let over = self.turns.on(&mut turn, || look(tap, out, room, &mut any))?;
            tap.turn = turn;
            match over {
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
            let tap = self.open.swap_remove(at);
            self.known.insert((tap.cookies, tap.word), (tap.place.life, tap.known));
        }
        Ok(any)
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
pub type Named = ([u64; 2], Word);

/// Whichever of its sockets is named first.
pub fn named(cookies: [u64; 2], word: Word) -> Named {
    ([cookies[0].min(cookies[1]), cookies[0].max(cookies[1])], word)
}

pub fn forbidden(pid: u32) -> Failure {
    Failure::new(
        1,
        format_args!(
            "process {pid} may not be looked into: run this as root, or see: bypath doctor (ptrace)"
        ),
    )
}
