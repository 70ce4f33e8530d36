//! What a program says of octets that fill no segment, on a connection of a netstack service: TCP_CORK and TCP_NODELAY, in a word beside
//! the ring of the octets that they are about (docs/netstack-service.md, "Options that nobody waits for").
//!
//! The word tells the last change. Of changes before it, it tells how many there were, which is enough: who sees more than one knows that
//! of two changes of one option the first or the second let go what was held.

/// Bits of a position that the word has room for: a ring is shorter by far.
const AT: u64 = (1 << 40) - 1;
const CORK_KNOWN: u64 = 1 << 40;
const CORK: u64 = 1 << 41;
const NODELAY_KNOWN: u64 = 1 << 42;
const NODELAY: u64 = 1 << 43;
const PUSHES: u64 = 1 << 44;
const CHANGES: u32 = 48;

/// One of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// TCP_CORK.
    Cork,
    /// TCP_NODELAY.
    NoDelay,
}

/// What the word says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Octets ever written when it was last changed, modulo 2^40.
    pub at: u64,
    /// How often it was changed, modulo 2^16.
    pub changes: u16,
    /// TCP_CORK; `None`: it was set otherwise, or never.
    pub cork: Option<bool>,
    /// TCP_NODELAY, likewise.
    pub nodelay: Option<bool>,
    /// The last change was TCP_NODELAY: what was written before goes, corked or not.
    pub pushes: bool,
}

impl Hold {
    /// Reads the word: any number is one.
    pub const fn from_raw(word: u64) -> Hold {
        const fn option(word: u64, known: u64, on: u64) -> Option<bool> {
            if word & known != 0 { Some(word & on != 0) } else { None }
        }
        Hold {
            at: word & AT,
            changes: (word >> CHANGES) as u16,
            cork: option(word, CORK_KNOWN, CORK),
            nodelay: option(word, NODELAY_KNOWN, NODELAY),
            pushes: word & PUSHES != 0,
        }
    }

    /// The word itself.
    pub const fn raw(self) -> u64 {
        const fn bits(option: Option<bool>, known: u64, on: u64) -> u64 {
            match option {
                None => 0,
                Some(false) => known,
                Some(true) => known | on,
            }
        }
        let pushes = if self.pushes { PUSHES } else { 0 };
        let options = bits(self.cork, CORK_KNOWN, CORK) | bits(self.nodelay, NODELAY_KNOWN, NODELAY);
        self.at & AT | options | pushes | (self.changes as u64) << CHANGES
    }

    /// What was said of an option.
    pub const fn of(self, wish: Wish) -> Option<bool> {
        match wish {
            Wish::Cork => self.cork,
            Wish::NoDelay => self.nodelay,
        }
    }

    /// Says it, behind so many octets. `None`: that changes nothing.
    pub fn with(self, wish: Wish, on: bool, at: u64) -> Option<Hold> {
        let pushes = wish == Wish::NoDelay && on;
        // With TCP_NODELAY what is corked goes each time that it is set.
        let may_hold = pushes && self.cork != Some(false);
        if self.of(wish) == Some(on) && !may_hold {
            return None;
        }
        let said = Hold { at: at & AT, changes: self.changes.wrapping_add(1), pushes, ..self };
        Some(match wish {
            Wish::Cork => Hold { cork: Some(on), ..said },
            Wish::NoDelay => Hold { nodelay: Some(on), ..said },
        })
    }

    /// The option is set otherwise: nothing is said of it.
    pub const fn without(self, wish: Wish) -> Hold {
        match wish {
            Wish::Cork => Hold { cork: None, ..self },
            Wish::NoDelay => Hold { nodelay: None, ..self },
        }
    }

    /// Octets from a position to where it was last changed; many, if that is behind already.
    pub const fn distance(self, from: u64) -> u64 {
        self.at.wrapping_sub(from) & AT
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use Wish::*;

    #[test]
    fn every_word_says_something_and_comes_back() {
        for word in [0, u64::MAX, 1, AT, 0x1234_5678_9abc_def0, CORK, NODELAY | PUSHES] {
            let said = Hold::from_raw(word);
            assert_eq!(Hold::from_raw(said.raw()), said);
        }
        let said = Hold { at: AT, changes: u16::MAX, cork: Some(true), nodelay: Some(false), pushes: true };
        assert_eq!(Hold::from_raw(said.raw()), said);
        assert_eq!(Hold::from_raw(0), Hold::default());
    }

    #[test]
    fn what_changes_nothing_is_not_said() {
        let corked = Hold::default().with(Cork, true, 5).unwrap();
        assert_eq!((corked.cork, corked.nodelay, corked.at, corked.changes), (Some(true), None, 5, 1));
        assert_eq!(corked.with(Cork, true, 9), None);
        let open = corked.with(Cork, false, 9).unwrap();
        let quick = open.with(NoDelay, true, 9).unwrap();
        assert_eq!((quick.pushes, quick.changes), (true, 3));
        assert_eq!(quick.with(NoDelay, true, 20), None);
        // What is corked goes.
        let again = quick.with(Cork, true, 20).unwrap();
        assert!(!again.pushes);
        assert!(again.with(NoDelay, true, 30).unwrap().pushes);
        assert_eq!(again.without(Cork).cork, None);
        assert_eq!(again.without(Cork).changes, again.changes);
    }

    #[test]
    fn positions_go_on_from_their_wrap() {
        let said = Hold::default().with(Cork, true, (7 << 40) + 3).unwrap();
        assert_eq!(said.distance((7 << 40) - 2), 5);
        assert_eq!(said.distance((7 << 40) + 3), 0);
        assert!(said.distance((7 << 40) + 4) > 1 << 39);
    }
}
