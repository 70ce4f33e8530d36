//! Which socket a datagram is for.
//!
//! The one that is connected to its sender, else the one that is bound to its destination, else the one that is bound to its
//! port on all addresses (ip(7), udp(7)): three looks into hash tables, however many sockets there are.

use crate::iface::IfaceId;
use crate::share::Whom;
use crate::socket::BindError;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::hash::BuildHasher as _;
use core::net::{IpAddr, SocketAddr};
use foldhash::quality::FixedState;
use hashbrown::HashMap;

/// Where a socket is bound and connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Its own address and port. The unspecified address stands for all: of IPv4; of IPv6 for those of IPv4 as well, unless
    /// [`only_v6`](Binding::only_v6).
    pub local: SocketAddr,
    /// Its only partner.
    pub remote: Option<SocketAddr>,
    /// The address that it has again when it has no partner any more, where that is another one: no other user comes to have it meanwhile.
    pub claim: Option<IpAddr>,
    /// Only what comes through this interface.
    pub iface: Option<IfaceId>,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// A socket of IPv6 ([`Options::of_v6`](crate::socket::Options::of_v6)), also where its address is one of IPv4.
    pub of_v6: bool,
    /// SO_REUSEADDR: others who say so, too, may have the same address; the last one gets what comes.
    pub reuse_address: bool,
    /// SO_REUSEPORT: others of the same user who say so, too, may have the same address; they share what comes, by sender.
    pub reuse_port: bool,
    /// Whose it is: the place of a user; 0: nobody's in particular.
    pub whom: u32,
}

impl Binding {
    /// Bound, and nothing else.
    pub const fn new(local: SocketAddr) -> Binding {
        Binding {
            local,
            remote: None,
            claim: None,
            iface: None,
            only_v6: false,
            of_v6: local.is_ipv6(),
            reuse_address: false,
            reuse_port: false,
            whom: 0,
        }
    }

    /// Under which address it is found: a socket of IPv6 among those of its kind, whose order counts.
    fn spot(&self) -> SocketAddr {
        let is_any_of_v6 = self.of_v6 && self.local.ip().is_unspecified();
        SocketAddr::new(if is_any_of_v6 { V6 } else { self.local.ip() }, self.local.port())
    }

    /// Whether a datagram to this address may be for it.
    fn hears(&self, to: IpAddr, through: IfaceId) -> bool {
        let own = self.local.ip();
        let kind = own.is_ipv4() == to.is_ipv4() || own.is_ipv6() && !self.only_v6;
        let address = if own.is_unspecified() { kind } else { own == to };
        address && self.iface.is_none_or(|iface| iface == through)
    }

    /// Whether some datagram could be for both.
    pub(crate) fn overlaps(&self, other: &Binding) -> bool {
        // What the stack's own application has, beside users, is nobody's on another interface either: who is bound there may send through this one (IP_PKTINFO).
        let is_one_own = (self.whom == 0) != (other.whom == 0);
        let ifaces = match (self.iface, other.iface) {
            (Some(a), Some(b)) => a == b || is_one_own,
            _ => true,
        };
        let (a, b) = (self.local.ip(), other.local.ip());
        let covers = |any: &Binding, one: IpAddr| {
            let all = any.local.ip();
            all.is_unspecified() && (all.is_ipv4() == one.is_ipv4() || all.is_ipv6() && !any.only_v6)
        };
        ifaces && self.local.port() == other.local.port() && (a == b || covers(self, b) || covers(other, a))
    }

    /// Whether it is another user's, and may come to overlap.
    fn claims(&self, other: &Binding) -> bool {
        self.whom != other.whom
            && self.claim.is_some_and(|ip| {
                let local = SocketAddr::new(ip, self.local.port());
                Binding { local, ..*self }.overlaps(other)
            })
    }

    /// Whether both may be bound though they overlap. As Linux has it: SO_REUSEPORT is among the sockets of one user, SO_REUSEADDR among all.
    const fn shares(&self, other: &Binding) -> bool {
        self.reuse_address && other.reuse_address
            || self.reuse_port && other.reuse_port && self.whom == other.whom
    }

    /// Whether a datagram that both hear goes to it and not to one that was bound before it. As Linux has it: one interface goes before all, a
    /// socket of IPv4 before one of IPv6, and of two of one kind the last one; but of IPv6 one with SO_REUSEPORT goes before none.
    fn goes_before(&self, former: &Binding) -> bool {
        let rank = |binding: &Binding| (binding.iface.is_some(), !binding.of_v6);
        match rank(self).cmp(&rank(former)) {
            Ordering::Greater => true,
            Ordering::Equal => !self.of_v6 || !self.reuse_port,
            Ordering::Less => false,
        }
    }

    /// Whether they share what comes, where they have one address. Of two users none gets what is for the other one.
    fn is_grouped_with(&self, other: &Binding) -> bool {
        // Of a single address it makes no difference.
        let kind = self.only_v6 == other.only_v6 || !self.local.ip().is_unspecified();
        self.reuse_port
            && other.reuse_port
            && self.whom == other.whom
            && self.iface == other.iface
            && self.of_v6 == other.of_v6
            && self.local == other.local
            && kind
    }
}

/// A datagram, as far as its socket depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Where it came from.
    pub through: IfaceId,
}

/// The address is another socket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address and port are another socket's; choose another port, or set SO_REUSEPORT on both")]
pub struct InUse;

/// Sockets that may hear one datagram at most, or be called by one segment: each one is looked at, and to a group each one gets it. Of these a user
/// has no more than he leaves, half of them if he is alone; who is nobody in particular has as many as he likes.
pub const SHARERS: usize = 512;

/// As many sockets as may have the address and port already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many sockets share the address and port as may; choose another port, or connect some of them")]
pub struct Crowded;

/// Whether a user may have one more among those that share an address, of whom these are.
pub(crate) fn may_share(whom: Whom, sharers: impl Iterator<Item = Whom>) -> bool {
    if whom == 0 {
        return true;
    }
    let (mut own, mut all) = (0, 0);
    for other in sharers {
        own += usize::from(other == whom);
        all += 1;
    }
    own + all < SHARERS
}

/// A socket, by its place in the table of sockets.
type Id = u32;

/// All addresses.
const V4: IpAddr = IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED);
const V6: IpAddr = IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED);

/// All bindings.
#[derive(Debug)]
pub struct Demux {
    /// By the socket's place.
    bindings: Vec<Option<Binding>>,
    /// Of these, those that there are.
    count: usize,
    /// By the pair of ends.
    connected: HashMap<(SocketAddr, SocketAddr), Vec<Id>, FixedState>,
    /// By the address, where there is no partner.
    bound: HashMap<SocketAddr, Vec<Id>, FixedState>,
    /// By the port: all of them.
    ports: HashMap<u16, Vec<Id>, FixedState>,
    hash: FixedState,
}

impl Demux {
    /// `seed`: a secret, of the tables and of who gets what among sockets that share a port.
    pub fn new(seed: u64) -> Demux {
        let hash = || FixedState::with_seed(seed);
        Demux {
            bindings: Vec::new(),
            count: 0,
            connected: HashMap::with_hasher(hash()),
            bound: HashMap::with_hasher(hash()),
            ports: HashMap::with_hasher(hash()),
            hash: hash(),
        }
    }

    /// Whether a socket that is not in the table could be bound like this.
    pub fn is_free(&self, binding: &Binding) -> bool {
        let same_port = self.ports.get(&binding.local.port()).into_iter().flatten();
        same_port
            .filter_map(|id| self.binding(*id))
            .all(|other| other.shares(binding) || !other.overlaps(binding) && !other.claims(binding))
    }

    /// Whether there is room for it among those with which it would share datagrams: its partner's, or those of everybody.
    fn has_room(&self, binding: &Binding) -> bool {
        let with = |id: &Id| self.binding(*id);
        match binding.remote {
            Some(remote) => {
                let same_pair = self.connected.get(&(binding.local, remote)).into_iter().flatten();
                may_share(binding.whom, same_pair.filter_map(with).map(|other| other.whom))
            }
            None => {
                let same_port = self.ports.get(&binding.local.port()).into_iter().flatten().filter_map(with);
                let sharers = same_port.filter(|other| other.remote.is_none() && other.overlaps(binding));
                may_share(binding.whom, sharers.map(|other| other.whom))
            }
        }
    }

    /// Binds a socket, or binds it anew.
    ///
    /// # Errors
    /// [`BindError::InUse`], [`BindError::Crowded`]; it stays bound as it was.
    pub fn bind(&mut self, id: Id, binding: Binding) -> Result<(), BindError> {
        let before = self.remove(id);
        let found = if !self.is_free(&binding) {
            Err(InUse.into())
        } else if !self.has_room(&binding) {
            Err(Crowded.into())
        } else {
            Ok(())
        };
        if let Some(binding) = found.map_or(before, |()| Some(binding)) {
            self.insert(id, binding);
        }
        found
    }

    /// Gives a bound socket a partner, or takes it away; and the address that it has from now on, and [again](Binding::claim) without. Who is
    /// connected does not stand in the way of others of his user (as Linux has it).
    ///
    /// # Errors
    /// [`Crowded`]; it stays as it was.
    pub fn connect(
        &mut self,
        id: Id,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        claim: Option<IpAddr>,
    ) -> Result<(), Crowded> {
        let Some(before) = self.remove(id) else { return Ok(()) };
        let binding = Binding { local, remote, claim: claim.filter(|ip| *ip != local.ip()), ..before };
        let has_room = self.has_room(&binding);
        self.insert(id, if has_room { binding } else { before });
        if has_room { Ok(()) } else { Err(Crowded) }
    }

    /// A bound socket says something else of whom it shares its address with: it counts for whoever comes next (as Linux has it).
    pub fn share(&mut self, id: Id, reuse_address: bool, reuse_port: bool) {
        if let Some(Some(binding)) = self.bindings.get_mut(id as usize) {
            (binding.reuse_address, binding.reuse_port) = (reuse_address, reuse_port);
        }
    }

    /// How a socket is bound.
    pub fn binding(&self, id: Id) -> Option<&Binding> {
        self.bindings.get(id as usize)?.as_ref()
    }

    /// Forgets a socket.
    pub fn remove(&mut self, id: Id) -> Option<Binding> {
        let binding = self.bindings.get_mut(id as usize)?.take()?;
        self.count -= 1;
        match binding.remote {
            Some(remote) => strike(&mut self.connected, &(binding.local, remote), id),
            None => strike(&mut self.bound, &binding.spot(), id),
        }
        strike(&mut self.ports, &binding.local.port(), id);
        Some(binding)
    }

    fn insert(&mut self, id: Id, binding: Binding) {
        match binding.remote {
            Some(remote) => enter(&mut self.connected, (binding.local, remote), id),
            None => enter(&mut self.bound, binding.spot(), id),
        }
        enter(&mut self.ports, binding.local.port(), id);
        let place = id as usize;
        if self.bindings.len() <= place {
            self.bindings.resize(place + 1, None);
        }
        self.bindings[place] = Some(binding);
        self.count += 1;
    }

    /// The socket that a datagram to one of our addresses is for.
    #[inline]
    pub fn lookup(&self, arrival: &Arrival) -> Option<Id> {
        let &Arrival { from, to, .. } = arrival;
        if !self.connected.is_empty()
            && let Some(ids) = self.connected.get(&(to, from))
            && let Some(id) = self.choose([ids, &[]], arrival)
        {
            return Some(id);
        }
        if let Some(id) = self.bound.get(&to).and_then(|ids| self.choose([ids, &[]], arrival)) {
            return Some(id);
        }
        let any = |address: IpAddr| {
            self.bound.get(&SocketAddr::new(address, to.port())).map_or(&[][..], Vec::as_slice)
        };
        self.choose([if to.is_ipv4() { any(V4) } else { &[] }, any(V6)], arrival)
    }

    /// Of several with one address: who [goes before](Binding::goes_before) the others; of those that share the port with him one by the
    /// sender's hash.
    fn choose(&self, ids: [&[Id]; 2], arrival: &Arrival) -> Option<Id> {
        let heard = |id: &Id| self.binding(*id).filter(|b| b.hears(arrival.to.ip(), arrival.through));
        if let [[one], []] | [[], [one]] = ids {
            return heard(one).map(|_| *one);
        }
        let all = || ids.into_iter().flatten();
        let mut first: Option<(Id, &Binding)> = None;
        for id in all() {
            if let Some(binding) = heard(id)
                && first.is_none_or(|(_, former)| binding.goes_before(former))
            {
                first = Some((*id, binding));
            }
        }
        let (first, binding) = first?;
        if !binding.reuse_port {
            return Some(first);
        }
        let group = || all().filter(|id| heard(id).is_some_and(|other| other.is_grouped_with(binding)));
        let which = self.hash.hash_one((arrival.from, arrival.to)) % group().count() as u64;
        group().nth(which as usize).copied()
    }

    /// All sockets that a datagram to a group, or to everybody, is for (RFC 1122, 4.1.3.5; ip(7)): those of its port that are
    /// bound to the group or to all addresses, and connected to nobody else. Who joined which group is the caller's to know.
    pub fn each(&self, arrival: &Arrival) -> impl Iterator<Item = Id> {
        let &Arrival { from, to, .. } = arrival;
        let locals = [to.ip(), V4, V6].map(|ip| SocketAddr::new(ip, to.port()));
        let with = move |local| [self.bound.get(&local), self.connected.get(&(local, from))];
        let ids = locals.into_iter().flat_map(with).flatten().flatten().copied();
        ids.filter(move |id| self.is_for(arrival, *id))
    }

    fn is_for(&self, arrival: &Arrival, id: Id) -> bool {
        self.binding(id).is_some_and(|binding| {
            binding.hears(arrival.to.ip(), arrival.through)
                && binding.remote.is_none_or(|r| r == arrival.from)
        })
    }

    /// Sockets.
    pub fn len(&self) -> usize {
        self.count
    }

    /// None is bound.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

fn enter<K: Eq + core::hash::Hash>(table: &mut HashMap<K, Vec<Id>, FixedState>, key: K, id: Id) {
    table.entry(key).or_default().push(id);
}

fn strike<K: Eq + core::hash::Hash>(table: &mut HashMap<K, Vec<Id>, FixedState>, key: &K, id: Id) {
    if let Some(ids) = table.get_mut(key) {
        ids.retain(|other| *other != id);
        if ids.is_empty() {
            table.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    const ETH: IfaceId = IfaceId(0);
    const WLAN: IfaceId = IfaceId(1);

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn bound(text: &str) -> Binding {
        Binding::new(addr(text))
    }

    fn arrival(from: &str, to: &str) -> Arrival {
        Arrival { from: addr(from), to: addr(to), through: ETH }
    }

    fn demux(bindings: &[Binding]) -> Demux {
        let mut demux = Demux::new(5);
        for (id, binding) in (0..).zip(bindings) {
            // Bound first, and connected then.
            demux.bind(id, Binding { remote: None, ..*binding }).unwrap_or_else(|e| panic!("{id}: {e}"));
            demux.connect(id, binding.local, binding.remote, None).unwrap();
        }
        demux
    }

    #[test]
    fn who_lends_its_address_later_lends_it() {
        let mut d = demux(&[bound("10.0.0.1:7")]);
        let next = Binding { reuse_address: true, ..bound("10.0.0.1:7") };
        assert!(!d.is_free(&next));
        d.share(0, true, false);
        assert!(d.is_free(&next));
        d.share(0, false, true);
        assert!(!d.is_free(&next));
        // Of one that is not bound there is nothing to be said.
        d.share(9, true, true);
    }

    #[test]
    fn the_partner_goes_before_the_address_and_the_address_before_the_port() {
        let shared = |binding: Binding| Binding { reuse_address: true, ..binding };
        let d = demux(&[
            shared(bound("0.0.0.0:7")),
            shared(bound("10.0.0.1:7")),
            shared(Binding { remote: Some(addr("10.0.0.9:99")), ..bound("10.0.0.1:7") }),
        ]);
        assert_eq!(d.lookup(&arrival("10.0.0.9:99", "10.0.0.1:7")), Some(2));
        assert_eq!(d.lookup(&arrival("10.0.0.9:98", "10.0.0.1:7")), Some(1));
        assert_eq!(d.lookup(&arrival("10.0.0.9:99", "10.0.0.2:7")), Some(0));
        assert_eq!(d.lookup(&arrival("10.0.0.9:99", "10.0.0.1:8")), None);
        assert_eq!(d.lookup(&arrival("[::2]:99", "[::1]:7")), None);
    }

    #[test]
    fn a_socket_of_all_ipv6_addresses_hears_ipv4_unless_it_does_not_want_to() {
        let d = demux(&[bound("[::]:7")]);
        assert_eq!(d.lookup(&arrival("10.0.0.9:1", "10.0.0.1:7")), Some(0));
        assert!(!d.is_free(&bound("0.0.0.0:7")) && !d.is_free(&bound("10.0.0.1:7")));
        let d = demux(&[Binding { only_v6: true, ..bound("[::]:7") }, bound("0.0.0.0:7")]);
        assert_eq!(d.lookup(&arrival("10.0.0.9:1", "10.0.0.1:7")), Some(1));
        assert_eq!(d.lookup(&arrival("[::9]:1", "[::1]:7")), Some(0));
    }

    #[test]
    fn who_listens_to_one_interface_goes_before_who_listens_to_all() {
        let one = |iface| Binding { iface: Some(iface), reuse_address: true, ..bound("0.0.0.0:7") };
        let all = Binding { reuse_address: true, ..bound("0.0.0.0:7") };
        let d = demux(&[one(ETH), one(WLAN), all]);
        let through = |iface| d.lookup(&Arrival { through: iface, ..arrival("10.0.0.9:1", "10.0.0.1:7") });
        assert_eq!([through(ETH), through(WLAN), through(IfaceId(2))], [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn an_address_is_one_sockets_unless_both_say_otherwise() {
        let mut d = demux(&[bound("10.0.0.1:7"), Binding { reuse_port: true, ..bound("10.0.0.1:8") }]);
        let address = |text| Binding { reuse_address: true, ..bound(text) };
        let port = |text| Binding { reuse_port: true, ..bound(text) };
        for (binding, free) in [
            (bound("10.0.0.1:7"), false),
            (bound("0.0.0.0:7"), false),
            (bound("[::]:7"), false),
            (bound("10.0.0.2:7"), true),
            (bound("10.0.0.1:9"), true),
            (address("10.0.0.1:7"), false),
            (address("10.0.0.1:8"), false),
            (port("10.0.0.1:8"), true),
        ] {
            assert_eq!(d.is_free(&binding), free, "{binding:?}");
        }
        // Who cannot be bound anew stays as it was, and stands in nobody's way when it is gone.
        assert_eq!(d.bind(1, bound("0.0.0.0:7")), Err(InUse.into()));
        assert_eq!(d.lookup(&arrival("10.0.0.9:1", "10.0.0.1:8")), Some(1));
        assert!(d.remove(0).is_some() && d.remove(0).is_none());
        assert_eq!((d.bind(1, bound("0.0.0.0:7")), d.len()), (Ok(()), 1));
    }

    #[test]
    fn no_other_user_comes_to_what_a_socket_has_again_without_its_partner() {
        let of = |whom, text: &str| Binding { whom, ..bound(text) };
        let mut d = demux(&[of(1, "[::]:7")]);
        let claim = Some(addr("[::]:7").ip());
        d.connect(0, addr("10.0.0.1:7"), Some(addr("10.0.0.9:1")), claim).unwrap();
        let v6 = |whom| Binding { only_v6: true, ..of(whom, "[::]:7") };
        for other in [v6(2), of(2, "[fd00::1]:7"), of(2, "10.0.0.2:7")] {
            assert!(!d.is_free(&other), "{other:?}");
        }
        // As Linux has it among those of one user, and of other ports.
        for other in [v6(1), of(1, "10.0.0.2:7"), of(2, "[::]:8")] {
            assert!(d.is_free(&other), "{other:?}");
        }
        d.connect(0, addr("10.0.0.1:7"), Some(addr("10.0.0.9:1")), None).unwrap();
        assert!(d.is_free(&v6(2)), "it has nothing without its partner");
    }

    #[test]
    fn sockets_that_share_a_port_share_its_senders() {
        let one = Binding { reuse_port: true, ..bound("0.0.0.0:7") };
        let d = demux(&[one; 4]);
        let mut counts = [0; 4];
        for sender in 1..=4000 {
            let from = SocketAddr::new("10.0.0.9".parse().unwrap(), sender);
            let arrival = Arrival { from, ..arrival("0.0.0.0:0", "10.0.0.1:7") };
            let id = d.lookup(&arrival).unwrap();
            // One sender's datagrams stay together.
            assert_eq!(d.lookup(&arrival), Some(id));
            counts[id as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_user_shares_no_senders_with_another_one() {
        let of = |whom, text| Binding { reuse_address: true, reuse_port: true, whom, ..bound(text) };
        let heard = |d: &Demux, to: &str| {
            let from = |port| {
                SocketAddr::new(
                    addr(if to.starts_with('[') { "[fd00::9]:1" } else { "10.0.0.9:1" }).ip(),
                    port,
                )
            };
            let mut ids: Vec<_> = (1..200)
                .map(|port| d.lookup(&Arrival { from: from(port), ..arrival("0.0.0.0:0", to) }).unwrap())
                .collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        for whoms in [[1, 2, 2], [2, 1, 2]] {
            let d = demux(&whoms.map(|whom| of(whom, "10.0.0.1:7")));
            let last: Vec<Id> = (0..3).filter(|id| whoms[*id as usize] == 2).collect();
            assert_eq!(heard(&d, "10.0.0.1:7"), last);
        }
        let d = demux(&[1, 2, 1].map(|whom| of(whom, "[fd00::1]:7")));
        assert_eq!(heard(&d, "[fd00::1]:7"), [0, 2], "of IPv6 the first ones, as Linux has it");
        // SO_REUSEPORT alone is among those of one user.
        let mut d = demux(&[Binding { reuse_address: false, ..of(1, "10.0.0.1:7") }]);
        assert!(d.is_free(&of(1, "10.0.0.1:7")) && !d.is_free(&of(2, "10.0.0.1:7")));
        assert!(d.is_free(&of(2, "10.0.0.2:7")) && d.is_free(&of(2, "[fd00::1]:7")));
        let v6 = Binding { only_v6: true, ..of(1, "[::]:7") };
        d.remove(0);
        d.bind(0, v6).unwrap();
        d.share(0, false, true);
        assert!(d.is_free(&of(2, "0.0.0.0:7")) && !d.is_free(&of(2, "[fd00::1]:7")));
    }

    #[test]
    fn a_datagram_to_a_group_is_for_all_who_listen() {
        let shared = |text| Binding { reuse_address: true, ..bound(text) };
        let d = demux(&[
            shared("0.0.0.0:5353"),
            shared("224.0.0.251:5353"),
            shared("10.0.0.1:5353"),
            Binding { remote: Some(addr("10.0.0.9:5353")), ..shared("0.0.0.0:5353") },
            Binding { remote: Some(addr("10.0.0.8:5353")), ..shared("0.0.0.0:5353") },
            Binding { iface: Some(WLAN), ..shared("0.0.0.0:5353") },
        ]);
        let mut heard: Vec<_> = d.each(&arrival("10.0.0.9:5353", "224.0.0.251:5353")).collect();
        heard.sort_unstable();
        assert_eq!(heard, [0, 1, 3]);
    }

    #[test]
    fn a_user_shares_an_address_with_no_more_sockets_than_he_leaves() {
        let mut d = Demux::new(5);
        let of = |whom, text: &str| Binding { reuse_address: true, reuse_port: true, whom, ..bound(text) };
        let mut next = 0;
        let mut fill = |d: &mut Demux, whom, locals: &[&str]| {
            let binds = |local: &&&str| {
                next += 1;
                d.bind(next, of(whom, local)).is_ok()
            };
            locals.iter().cycle().take(4 * SHARERS).filter(binds).count()
        };
        // All of them hear the same group.
        let half = fill(&mut d, 1, &["0.0.0.0:7", "224.0.0.251:7", "[::]:7"]);
        assert_eq!(half, SHARERS / 2);
        assert_eq!([2, 3].map(|whom| fill(&mut d, whom, &["0.0.0.0:7"])), [SHARERS / 4, SHARERS / 8]);
        let group = arrival("10.0.0.9:1", "224.0.0.251:7");
        assert_eq!(d.each(&group).count(), SHARERS / 2 + SHARERS / 4 + SHARERS / 8);
        // Others hear other datagrams, and who is nobody in particular is bounded by nothing.
        assert_eq!(fill(&mut d, 1, &["0.0.0.0:8"]), SHARERS / 2);
        assert_eq!(fill(&mut d, 0, &["0.0.0.0:9"]), 4 * SHARERS);
        // Who has a partner shares with those who have the same one.
        let (free, pair) = (SHARERS as u32 * 100, Some(addr("10.0.0.9:1")));
        let connect = |d: &mut Demux, n: u32, remote| {
            d.bind(free + n, of(1, "0.0.0.0:10")).unwrap();
            d.connect(free + n, addr("10.0.0.1:10"), remote, None)
        };
        let many = (0..SHARERS as u32).take_while(|n| connect(&mut d, *n, pair).is_ok());
        assert_eq!(many.count(), SHARERS / 2);
        for port in 1000..3000 {
            let partner = SocketAddr::new("10.0.0.9".parse().unwrap(), port);
            assert_eq!(connect(&mut d, u32::from(port), Some(partner)), Ok(()));
        }
        // Who finds no room keeps its partner.
        let back =
            (1000..3000).take_while(|n| d.connect(free + n, addr("0.0.0.0:10"), None, None).is_ok()).count();
        assert_eq!(back, SHARERS / 2 - 1, "one has no partner yet");
        let kept = d.binding(free + 1000 + back as u32).unwrap().remote;
        assert_eq!(kept, Some(addr(&std::format!("10.0.0.9:{}", 1000 + back))));
    }

    fn binding() -> impl Strategy<Value = Binding> {
        let local = prop::sample::select(vec![
            "0.0.0.0:7",
            "[::]:7",
            "10.0.0.1:7",
            "10.0.0.2:7",
            "[fd00::1]:7",
            "0.0.0.0:8",
        ]);
        let iface = prop::sample::select(vec![None, None, Some(ETH), Some(WLAN)]);
        (local, iface, 0..2u32, any::<[bool; 5]>()).prop_map(
            |(local, iface, whom, [only_v6, mapped, reuse_address, reuse_port, connected])| {
                let local = addr(local);
                let remote = if local.is_ipv4() { "10.0.0.9:1" } else { "[fd00::9]:1" };
                let remote = (connected && !local.ip().is_unspecified()).then(|| addr(remote));
                let of_v6 = mapped || local.is_ipv6();
                Binding { local, remote, claim: None, iface, only_v6, of_v6, reuse_address, reuse_port, whom }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

        /// A datagram goes to a socket that may have it, and to none that another one goes before.
        #[test]
        fn no_other_socket_fits_better(
            bindings in prop::collection::vec(binding(), 1..12),
            v6 in any::<bool>(), host in 1..3u8, partner in any::<bool>(), through in prop::sample::select(vec![ETH, WLAN]),
        ) {
            let mut d = Demux::new(9);
            for (id, binding) in (0..).zip(&bindings) {
                if d.bind(id, Binding { remote: None, ..*binding }).is_ok() {
                    d.connect(id, binding.local, binding.remote, None).unwrap();
                }
            }
            let (from, to) = if v6 {
                (addr(if partner { "[fd00::9]:1" } else { "[fd00::9]:2" }), addr("[fd00::1]:7"))
            } else {
                let to = SocketAddr::new(IpAddr::from([10, 0, 0, host]), 7);
                (addr(if partner { "10.0.0.9:1" } else { "10.0.0.9:2" }), to)
            };
            let arrival = Arrival { from, to, through };
            let score = |id: u32| {
                let b = d.binding(id)?;
                let remote = match b.remote {
                    Some(remote) if remote != from => return None,
                    remote => remote.is_some(),
                };
                let fits = b.local.port() == 7 && b.hears(to.ip(), through);
                fits.then(|| (remote, !b.local.ip().is_unspecified(), b.iface.is_some(), !b.of_v6))
            };
            let ids = || 0..bindings.len() as u32;
            let best = ids().filter_map(score).max();
            let found = d.lookup(&arrival);
            prop_assert_eq!(found.and_then(score), best);
            // Of those that are as good the last one has it, or who shares with him; of IPv6 with SO_REUSEPORT the first one.
            let mut good = ids().filter(|id| best.is_some() && score(*id) == best);
            let of = |id: u32| *d.binding(id).unwrap();
            let chosen = match best {
                Some((_, _, _, false)) => {
                    let last = good.clone().rfind(|id| !of(*id).reuse_port);
                    last.or_else(|| good.next())
                }
                _ => good.next_back(),
            };
            if let (Some(found), Some(chosen)) = (found, chosen) {
                let (found, chosen) = (of(found), of(chosen));
                prop_assert!(found == chosen || chosen.reuse_port && found.reuse_port && found.whom == chosen.whom);
            }
            for id in 0..bindings.len() as u32 {
                d.remove(id);
            }
            prop_assert!(d.is_empty() && d.connected.is_empty() && d.bound.is_empty() && d.ports.is_empty());
        }
    }
}
