//! Who is bound to a port: one socket as a rule, which takes no memory of its own.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Places of sockets; never none.
#[derive(Debug)]
pub(crate) enum Holders {
    One(u32),
    #[expect(clippy::box_collection, reason = "a port has one, and room for no more")]
    Many(Box<Vec<u32>>),
}

impl Holders {
    /// All of them.
    pub fn all(&self) -> &[u32] {
        match self {
            Holders::One(index) => core::slice::from_ref(index),
            Holders::Many(all) => all,
        }
    }

    /// One more.
    pub fn add(&mut self, index: u32) {
        match self {
            Holders::One(first) => *self = Holders::Many(Box::new(vec![*first, index])),
            Holders::Many(all) => all.push(index),
        }
    }

    /// One less. False: it was the last one.
    pub fn remove(&mut self, index: u32) -> bool {
        match self {
            Holders::One(only) => return *only != index,
            Holders::Many(all) => {
                all.retain(|other| *other != index);
                if let [only] = all[..] {
                    *self = Holders::One(only);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_who_was_added_and_not_removed() {
        let mut holders = Holders::One(3);
        holders.add(5);
        holders.add(4);
        assert_eq!(holders.all(), [3, 5, 4]);
        assert!(holders.remove(5) && holders.remove(9) && holders.remove(3));
        assert_eq!(holders.all(), [4]);
        assert!(holders.remove(3) && !holders.remove(4));
    }
}
