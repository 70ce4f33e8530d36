//! Connections that wait for a neighbour's address: all of those that wait for one go on at once, and one that is over goes alone.

use crate::iface::IfaceId;
use alloc::vec::Vec;
use core::net::IpAddr;
use foldhash::quality::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

type Neighbor = (IfaceId, IpAddr);

/// All of them, by their places in the table.
#[derive(Debug)]
pub(crate) struct Parked {
    /// A list that is empty is one of a neighbour that is asked for all the same.
    lists: HashMap<Neighbor, Vec<u32>, FixedState>,
    /// In which list each stands, and where.
    at: HashMap<u32, (Neighbor, usize), FixedState>,
}

impl Parked {
    pub fn new(hash: FixedState) -> Parked {
        Parked { lists: HashMap::with_hasher(hash.clone()), at: HashMap::with_hasher(hash) }
    }

    /// It waits from now on. True: nobody has waited for this neighbour since it was last asked for.
    pub fn add(&mut self, index: u32, iface: IfaceId, address: IpAddr) -> bool {
        let neighbor = (iface, address);
        let (list, is_first) = match self.lists.entry(neighbor) {
            Entry::Occupied(list) => (list.into_mut(), false),
            Entry::Vacant(none) => (none.insert(Vec::new()), true),
        };
        self.at.insert(index, (neighbor, list.len()));
        list.push(index);
        is_first
    }

    /// It does not wait any more.
    pub fn remove(&mut self, index: u32) {
        let Some((neighbor, place)) = self.at.remove(&index) else { return };
        let Some(list) = self.lists.get_mut(&neighbor) else { return };
        list.swap_remove(place);
        // The last one has its place now.
        if let Some(at) = list.get(place).and_then(|moved| self.at.get_mut(moved)) {
            at.1 = place;
        }
    }

    /// Nobody waits for this neighbour any more: who did.
    pub fn take(&mut self, iface: IfaceId, address: IpAddr) -> Vec<u32> {
        let list = self.lists.remove(&(iface, address)).unwrap_or_default();
        list.iter().for_each(|index| {
            self.at.remove(index);
        });
        if self.at.is_empty() {
            self.at.shrink_to(0);
        }
        list
    }

    /// How many wait; `None`: a list and what is known of those in it differ.
    pub fn count(&self) -> Option<usize> {
        let stands = |(index, (neighbor, place)): (&u32, &(Neighbor, usize))| {
            self.lists.get(neighbor).and_then(|list| list.get(*place)) == Some(index)
        };
        let listed: usize = self.lists.values().map(Vec::len).sum();
        (listed == self.at.len() && self.at.iter().all(stands)).then_some(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn one_goes_and_the_others_wait_on() {
        let mut parked = Parked::new(FixedState::with_seed(7));
        let [a, b] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let add = |parked: &mut Parked, index: u32, to: IpAddr| parked.add(index, IfaceId::LOOPBACK, to);
        assert!(add(&mut parked, 1, a) && !add(&mut parked, 2, a) && !add(&mut parked, 3, a));
        assert!(add(&mut parked, 4, b));
        parked.remove(1);
        parked.remove(1);
        assert_eq!(parked.count(), Some(3));
        parked.remove(3);
        // Its place is somebody else's, who waits for another neighbour.
        assert!(!add(&mut parked, 3, b));
        parked.remove(2);
        assert!(!add(&mut parked, 5, a), "it is asked for already");
        assert_eq!((parked.take(IfaceId::LOOPBACK, a), parked.count()), (alloc::vec![5], Some(2)));
        assert_eq!((parked.take(IfaceId::LOOPBACK, b), parked.count()), (alloc::vec![4, 3], Some(0)));
        assert!(add(&mut parked, 1, a));
    }
}
