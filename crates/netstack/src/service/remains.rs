//! What is still known of sockets whose end the service has closed, while programs may yet have theirs: a bounded number for each user.

use super::options::Wishes;
use bypath_shm::service::Address;
use std::collections::{HashMap, VecDeque};

/// Of one user.
const MOST: usize = 1024;

/// Of one socket.
#[derive(Clone, Debug)]
pub struct Remains {
    pub uid: u32,
    pub v6: bool,
    pub local: Address,
    pub remote: Address,
    /// What the next call is to say; 0: nothing.
    pub errno: i32,
    pub wishes: Wishes,
}

#[derive(Debug, Default)]
pub struct Graves {
    all: HashMap<u64, Remains>,
    order: HashMap<u32, VecDeque<u64>>,
}

impl Graves {
    pub fn add(&mut self, cookie: u64, remains: Remains) {
        let order = self.order.entry(remains.uid).or_default();
        if order.len() >= MOST
            && let Some(oldest) = order.pop_front()
        {
            self.all.remove(&oldest);
        }
        order.push_back(cookie);
        self.all.insert(cookie, remains);
    }

    pub fn get_mut(&mut self, cookie: u64) -> Option<&mut Remains> {
        self.all.get_mut(&cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_user_makes_room_for_his_next() {
        let mut graves = Graves::default();
        let of = |uid| Remains {
            uid,
            v6: false,
            local: Address(None),
            remote: Address(None),
            errno: 0,
            wishes: Wishes::default(),
        };
        graves.add(9_999, of(2));
        for cookie in 0..=MOST as u64 {
            graves.add(cookie, of(1));
        }
        assert!(
            graves.get_mut(0).is_none() && graves.get_mut(1).is_some() && graves.get_mut(9_999).is_some()
        );
        assert_eq!(graves.all.len(), MOST + 1);
    }
}
