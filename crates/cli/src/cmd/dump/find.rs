//! What is found in one look: what is known now of connections that are followed, and which others there are.
//!
//! All of this is asked of what processes say of themselves, and takes the longer the more that is. Nothing is followed here.

use super::authors::{self, Author};
use super::effort::Effort;
use super::memory::{self, Arena, Life, Place};
use super::tap::Tap;
use super::taps::{Named, OF_USER, Wanted, addresses, forbidden, named};
use crate::connections::descriptors::Process;
use crate::connections::{Connection, Member, Scan, Sockets, is_trusted, started};
use crate::output::Failure;
use bypath_shm::arena::Geometry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A connection that is followed, as it was before the look.
pub struct Followed {
    name: Named,
    pid: u32,
    started: u64,
    cookies: [u64; 2],
    addresses: [SocketAddr; 2],
    life: Life,
    left: bool,
}

impl Followed {
    /// This one.
    pub fn of(tap: &Tap) -> Followed {
        let Tap { pid, started, cookies, addresses, left, .. } = *tap;
        Followed { name: tap.named(), pid, started, cookies, addresses, life: tap.place.life, left }
    }
}

/// What is found.
pub struct Found<'a> {
    /// Of what is followed: which directions are asked for.
    pub followed: HashMap<Named, [bool; 2]>,
    /// What is not followed yet, or has other rings.
    pub new: Vec<New<'a>>,
    /// Users of whom some is left out.
    pub late: BTreeSet<u32>,
    /// What goes by rings that are not there, as whose memory they are in says, or it is not mapped yet.
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
        named(self.cookies)
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
    others: &HashSet<u64>,
    asked: &AtomicBool,
) -> Result<Found<'a>, Failure> {
    let mut found =
        Found { followed: HashMap::new(), new: Vec::new(), late: BTreeSet::new(), hidden: HashMap::new() };
    let word = scan.word();
    // Another process may have the number by now.
    let mut now = HashMap::new();
    let mut is = |pid, then| *now.entry(pid).or_insert_with(|| started(pid)) == Some(then);
    open.retain(|tap| is(tap.pid, tap.started));
    for tap in &open {
        let ends = sockets.ends(word, tap.cookies);
        found.followed.insert(tap.name, wanted.directions(&ends, tap.addresses.map(Some)));
    }
    // The sockets of one that a side has left may have other rings already.
    let (left, whole): (Vec<_>, Vec<_>) = open.iter().partition(|tap| tap.left);
    let left: HashMap<_, _> = left.into_iter().map(|tap| (tap.name, tap.life)).collect();
    let mut followed: HashSet<_> = whole.into_iter().map(|tap| tap.name).collect();
    let mut slots = Slots::default();
    // The processes of netstack services.
    let mut services: HashMap<String, Option<Process>> = HashMap::new();
    for c in scan.connections() {
        if asked.load(Relaxed) {
            break;
        }
        let other = if c.end.service.is_some() { c.end.cookie } else { c.end.peer_cookie };
        let (Some(own), Some(other), Some(ring)) = (c.end.cookie, other, c.end.ring_size) else {
            continue;
        };
        let cookies = [own, other];
        let ends = sockets.ends(word, cookies);
        if followed.contains(&named(cookies)) || wanted.directions(&ends, addresses(&ends)) == [false; 2] {
            continue;
        }
        if open.len() + found.new.len() >= OF_USER && !is_trusted(c.process.user) {
            slots.late.insert(c.process.user);
            break;
        }
        let Some((place, cookies)) = slots.find(c.process, ring, c.end.rings, cookies)? else {
            if is_trusted(c.process.user) && c.on_ring() {
                found.hidden.insert(named(cookies), (c.process.pid, c.end.fd));
            }
            continue;
        };
        if started(c.process.pid) != Some(c.process.start_time) {
            continue;
        }
        let ends = sockets.ends(word, cookies);
        let [Some(dialler), Some(accepter)] = addresses(&ends) else { continue };
        if left.get(&named(cookies)).is_none_or(|life| *life != place.life && place.whole) {
            followed.insert(named(cookies));
            let mut writers =
                ends.map(|end| end.and_then(|(family, end)| family.writer(end).ok()).map(Author::Programs));
            for (writer, cookie) in writers.iter_mut().zip(cookies) {
                if writer.is_none() && others.contains(&cookie) {
                    *writer = Some(Author::Stranger);
                }
            }
            if let Some(name) = &c.end.service {
                let known = services.entry(name.clone()).or_insert_with(|| authors::service(name));
                let known = known.filter(|its| is_trusted(its.user) || its.user == c.process.user);
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
