//! What is found in one look: what is known now of connections that are followed, and which others there are.
//!
//! All of this is asked of what processes say of themselves, and takes the longer the more that is. Nothing is followed here.

use super::authors::{self, Author};
use super::effort::Effort;
use super::memory::{self, Arena, Life, Place};
use super::tap::Tap;
use super::taps::{Named, OF_USER, Wanted, addresses, forbidden, named};
use crate::connections::descriptors::Process;
use crate::connections::{self, Connection, Member, Scan, Sockets, Word, is_trusted};
use crate::output::Failure;
use bypath_shm::arena::Geometry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A connection that is followed, as it was before the look.
pub struct Followed {
    name: Named,
    pid: u32,
    user: u32,
    word: Word,
    cookies: [u64; 2],
    addresses: [SocketAddr; 2],
    life: Life,
    is_service: bool,
    left: bool,
}

impl Followed {
    /// This one.
    pub fn of(tap: &Tap) -> Followed {
        let Tap { pid, user, word, cookies, addresses, left, .. } = *tap;
        let (name, life, is_service) = (tap.named(), tap.place.life, tap.service.is_some());
        Followed { name, pid, user, word, cookies, addresses, life, is_service, left }
    }
}

/// What is found.
pub struct Found<'a> {
    /// Of what is followed: whose word it is, and which directions are asked for.
    pub followed: HashMap<Named, (Word, [bool; 2])>,
    /// What is not followed yet, or has other rings.
    pub new: Vec<New<'a>>,
    /// Users for whom there was too little time.
    pub late: BTreeSet<u32>,
    /// Of what is followed: other users' connections by whose sockets or addresses one of root's or of the own user goes now.
    pub over: HashSet<Named>,
    /// Other users of whom connections are left out, as their addresses or sockets are somebody else's.
    pub refused: BTreeSet<u32>,
    /// Of root and of the own user: what goes by rings that are not there, as whose memory they are in says, or it is not mapped yet.
    pub hidden: HashMap<Named, (u32, i32)>,
}

/// A connection that is to be followed.
pub struct New<'a> {
    /// As one of its processes says it is.
    pub connection: Connection<'a>,
    /// Where it is in that process.
    pub place: Place,
    /// Its sockets, as it names them there.
    pub cookies: [u64; 2],
    /// Their addresses.
    pub addresses: [SocketAddr; 2],
    /// Which directions are asked for.
    pub wanted: [bool; 2],
    /// Who writes.
    pub writers: [Option<Author>; 2],
}

impl New<'_> {
    /// Which connection it is.
    pub fn named(&self) -> Named {
        named(self.cookies, self.connection.family.word())
    }
}

/// Looks for connections on rings, until it is `asked` to end.
///
/// # Errors
/// A process may not be read.
pub fn find<'a>(
    scan: &'a Scan,
    sockets: &Sockets<'a>,
    mut open: Vec<Followed>,
    wanted: &Wanted,
    asked: &AtomicBool,
) -> Result<Found<'a>, Failure> {
    let mut found = Found {
        followed: HashMap::new(),
        new: Vec::new(),
        late: BTreeSet::new(),
        over: HashSet::new(),
        refused: BTreeSet::new(),
        hidden: HashMap::new(),
    };
    let mut connections = scan.connections();
    connections.sort_by_key(|c| !is_trusted(c.process.user));
    let trusted = Trusted::of(&connections);
    let of_family = |f: &'a connections::Family| f.members.iter().map(|member| (member.pid, f.word()));
    let words: HashMap<u32, Word> = scan.families.iter().rev().flat_map(of_family).collect();
    for tap in &mut open {
        tap.word = words.get(&tap.pid).copied().unwrap_or(tap.word);
        let ends = sockets.ends(tap.word, tap.cookies);
        if tap.word != Word::Trusted {
            let its = ends.iter().flatten().filter(|(family, _)| family.word() == Word::Trusted);
            let rings: Vec<_> = its.map(|(_, end)| end.rings).collect();
            // What was found in the memory of one end before the other end showed anything stays: it is theirs.
            let is_theirs = rings.iter().flatten().any(|(arena, slot)| tap.life.is_of(*arena, *slot));
            let is_named = trusted.have(tap.addresses, tap.is_service);
            if !is_theirs && (is_named || !rings.is_empty()) {
                found.over.insert(tap.name);
                continue;
            }
        }
        let directions = wanted.directions(&ends, tap.addresses.map(Some));
        found.followed.insert(tap.name, (tap.word, directions));
    }
    open.retain(|tap| !found.over.contains(&tap.name));
    // The sockets of one that a side has left may have other rings already.
    let (left, whole): (Vec<_>, Vec<_>) = open.iter().partition(|tap| tap.left);
    let name = |tap: &Followed| named(tap.cookies, tap.word);
    let left: HashMap<_, _> = left.into_iter().map(|tap| (name(tap), tap.life)).collect();
    let mut followed: HashSet<_> = whole.into_iter().map(name).collect();
    let mut lives: HashMap<Life, Word> = open.iter().map(|tap| (tap.life, tap.word)).collect();
    let mut slots = Slots::default();
    // The processes of netstack services.
    let mut services: HashMap<String, Option<Process>> = HashMap::new();
    let mut of_user: HashMap<u32, usize> = HashMap::new();
    open.iter().for_each(|tap| *of_user.entry(tap.user).or_default() += 1);
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
        if followed.contains(&named(cookies, word))
            || wanted.directions(&ends, addresses(&ends)) == [false; 2]
        {
            continue;
        }
        let count = of_user.entry(c.process.user).or_default();
        if *count >= OF_USER && !is_trusted(c.process.user) {
            continue;
        }
        if word != Word::Trusted {
            // Where one end is root's or the own user's, only what that one's record names is shown.
            if ends.iter().flatten().any(|(family, _)| family.word() == Word::Trusted) {
                continue;
            }
            let (said, user) = (c.end.local.zip(c.end.remote), c.process.user);
            let is_service = c.end.service.is_some();
            let is_named = said.is_none_or(|(local, remote)| trusted.have([local, remote], is_service));
            // The kernel is asked last.
            match if is_named { Some(false) } else { sockets.may_have(c.family, c.process, c.end) } {
                Some(true) => {}
                Some(false) => {
                    found.refused.insert(user);
                    continue;
                }
                None => {
                    slots.late.insert(user);
                    continue;
                }
            }
        }
        let Some((place, cookies)) = slots.find(c.process, ring, c.end.rings, cookies)? else {
            if is_trusted(c.process.user) && c.on_ring() {
                found.hidden.insert(named(cookies, word), (c.process.pid, c.end.fd));
            }
            continue;
        };
        let ends = sockets.ends(word, cookies);
        let [Some(dialler), Some(accepter)] = addresses(&ends) else { continue };
        // Two users have the same memory only where their programs share it: it is one connection.
        if left.get(&named(cookies, word)).is_none_or(|life| *life != place.life && place.whole)
            && lives.get(&place.life).is_none_or(|whose| *whose == word)
        {
            followed.insert(named(cookies, word));
            lives.insert(place.life, word);
            *count += 1;
            let mut writers =
                ends.map(|end| end.and_then(|(family, end)| family.writer(end).ok()).map(Author::Programs));
            if let Some(name) = &c.end.service {
                let known = services.entry(name.clone()).or_insert_with(|| authors::service(name));
                writers[1] =
                    known.filter(|its| authors::has(*its, &place.life)).map(|its| Author::Service(its.pid));
            }
            let wanted = wanted.directions(&ends, [Some(dialler), Some(accepter)]);
            let addresses = [dialler, accepter];
            found.new.push(New { connection: c, place, cookies, addresses, wanted, writers });
        }
    }
    found.late = slots.late;
    Ok(found)
}

/// The addresses of connections that root's and the own user's programs show: nothing that others show goes by these, as nobody could tell it
/// from what is theirs. The value: whether it has rings.
#[derive(Debug, Default)]
struct Trusted(HashMap<[(IpAddr, u16); 2], bool>);

impl Trusted {
    fn of(connections: &[Connection]) -> Trusted {
        let mut all = Trusted::default();
        for c in connections.iter().filter(|c| c.family.word() == Word::Trusted) {
            if let (Some(local), Some(remote)) = (c.end.local, c.end.remote) {
                *all.0.entry([local, remote].map(plain)).or_default() |= c.end.ring_size.is_some();
            }
        }
        all
    }

    /// Whether one of them has these, seen from either end. `is_service`: they are those of a netstack service's socket, to which a program of
    /// this host may speak by the kernel.
    fn have(&self, addresses: [SocketAddr; 2], is_service: bool) -> bool {
        let [local, remote] = addresses.map(plain);
        self.0.contains_key(&[local, remote])
            || self.0.get(&[remote, local]).is_some_and(|has_rings| *has_rings || !is_service)
    }
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// The slots in use that processes map, by the sockets they are of; put together when it is needed.
#[derive(Default)]
struct Slots {
    arenas: HashMap<u32, Vec<Arena>>,
    all: HashMap<(u32, u32), HashMap<[u64; 2], Vec<Place>>>,
    effort: Effort,
    /// Users for whom there was too little time.
    late: BTreeSet<u32>,
}

impl Slots {
    /// Where the connection of these sockets is in a process, and in which order it names them. `rings`: in which slot, as the process's own record
    /// says. What stands in the slot is no proof: whoever shares an arena with the process can write it, whichever connection it names.
    fn find(
        &mut self,
        process: &Member,
        ring: u32,
        rings: Option<(u64, u32)>,
        ends: [u64; 2],
    ) -> Result<Option<(Place, [u64; 2])>, Failure> {
        if !(Geometry { slots: 1, ring }).is_valid() {
            return Ok(None);
        }
        let pid = process.pid;
        if !self.all.contains_key(&(pid, ring)) {
            let all = self.read(process.process(), ring)?;
            self.all.insert((pid, ring), all);
        }
        let all = &self.all[&(pid, ring)];
        let orders = [ends, [ends[1], ends[0]]];
        let of = |order: [u64; 2]| all.get(&order).into_iter().flatten().map(move |place| (*place, order));
        Ok(choose(orders.into_iter().flat_map(of), rings))
    }

    fn read(&mut self, process: Process, ring: u32) -> Result<HashMap<[u64; 2], Vec<Place>>, Failure> {
        let Process { pid, user } = process;
        let Slots { arenas, effort, late, .. } = self;
        let mut all: HashMap<[u64; 2], Vec<Place>> = HashMap::new();
        if effort.is_over(user) {
            late.insert(user);
            return Ok(all);
        }
        // A process that has gone, or goes, has none.
        let left = effort.left(user);
        let its = || effort.on(user, || memory::arenas(process, left).unwrap_or_default());
        let arenas = arenas.entry(pid).or_insert_with(its);
        for arena in arenas.iter() {
            if effort.is_over(user) {
                break;
            }
            match effort.on(user, || memory::slots(process, *arena, ring)) {
                Ok(slots) => {
                    slots.into_iter().for_each(|(cookies, place)| all.entry(cookies).or_default().push(place))
                }
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

/// Of the slots that name the sockets the one that `rings` says. A program of an earlier version does not say: then the one that both sides have, or else
/// the first one; of several that both sides have all but one are forged, and nobody knows which.
fn choose(
    mut named: impl Iterator<Item = (Place, [u64; 2])>,
    rings: Option<(u64, u32)>,
) -> Option<(Place, [u64; 2])> {
    if let Some((arena, slot)) = rings {
        return named.find(|(place, _)| place.life.is_of(arena, slot));
    }
    let all: Vec<_> = named.collect();
    let mut whole = all.iter().filter(|(place, _)| place.whole);
    match (whole.next(), whole.next()) {
        (Some(_), Some(_)) => None,
        (one, _) => one.or(all.first()).copied(),
    }
}
