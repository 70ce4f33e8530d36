//! Whole sessions, in which chance decides what becomes of each segment: see [`session`].

use crate::traffic::{cases, seeds};
use bypath_sim::dice::Dice;
use bypath_sim::fuzz::{any_session, session};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn sessions_are_whole_or_told_of_and_who_calls_afterwards_is_served(seed in seeds()) {
        session(&any_session(&mut Dice::new(seed)));
    }
}
