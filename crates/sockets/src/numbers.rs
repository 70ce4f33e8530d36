//! Who may take which end number of the family.
//!
//! A number whose record says FREE is anybody's: who makes it CLAIMED has it, until the last bit of its holders goes; who
//! clears that bit makes it FREE. Holders that died are struck off by whoever looks for a number. So a family uses no
//! more numbers than it ever has sockets at a time, whichever of its processes close them, or end. See
//! docs/shm-format.md, "Who may use an end".

use crate::state::{self, State};
use crate::table::{self, Sock, flag};
use bypath_shm::family::{ENDS, End, Family, PROCESSES, end_state};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Numbers that this process has freed, the last one first, plus one; linked through [`Sock::next_free`]. Others may have
/// taken them since.
static FREED: AtomicU32 = AtomicU32::new(0);
/// New numbers that are taken before used ones are looked for again.
static PATIENCE: AtomicU32 = AtomicU32::new(0);

/// A family of few sockets does not look for used numbers. Less than what a fork goes through (`State::bury`).
const FEW: usize = 256;
/// Records that are looked at for one number.
const LOOKS: usize = 16;
/// Nothing was found: that many new numbers come first.
const PAUSE: u32 = 16;

/// Numbers that are tried, if what the region says of them cannot be.
const LIES: usize = 64;

/// A number that is nobody else's from now on. Called under [`crate::state::LIFE`].
pub fn take(state: &State) -> Option<&'static Sock> {
    // A relative may say that it is free which this process uses; two sockets would have one place then. What was claimed so is lost.
    // Others may have freed what a thread of this one still has in hand; that is lost, too.
    let is_taken = |sock: &Sock| sock.is_in_use() || sock.is_held_back.load(Relaxed);
    (0..LIES).map_while(|_| free_one(state)).find(|sock| !is_taken(sock))
}

/// A number that is free by what the region says.
fn free_one(state: &State) -> Option<&'static Sock> {
    let family = state.family;
    while let Some(sock) = pop() {
        if claim(&family.ends[sock.number.load(Relaxed) as usize % ENDS]) {
            return Some(sock);
        }
    }
    let used = || family.header.ends_used.load(Acquire) as usize;
    if used() >= FEW {
        let patience = PATIENCE.load(Relaxed);
        if patience > 0 && used() < ENDS {
            PATIENCE.store(patience - 1, Relaxed);
        } else if let Some(number) = find(family, state.bit(), |place| is_dead(family, place)) {
            return at(number);
        } else {
            PATIENCE.store(PAUSE, Relaxed);
        }
    }
    loop {
        let next = |used: u32| ((used as usize) < ENDS).then(|| used + 1);
        let number = family.header.ends_used.fetch_update(AcqRel, Relaxed, next).ok()?;
        // Somebody who looks for a used one may have been faster.
        if claim(&family.ends[number as usize]) {
            return at(number);
        }
    }
}

fn at(number: u32) -> Option<&'static Sock> {
    let sock = table::ensure(number)?;
    sock.number.store(number, Relaxed);
    Some(sock)
}

fn pop() -> Option<&'static Sock> {
    let sock = table::by_number(FREED.load(Relaxed).checked_sub(1)?)?;
    FREED.store(sock.next_free.load(Relaxed), Relaxed);
    sock.listed.store(false, Relaxed);
    Some(sock)
}

/// No process of the family holds the socket any more, as was seen by this one. Called under [`crate::state::LIFE`].
pub fn give_back(sock: &'static Sock) {
    free(sock.end());
    // It may stand there from an earlier time: others have had it meanwhile.
    if !sock.listed.swap(true, Relaxed) {
        sock.next_free.store(FREED.load(Relaxed), Relaxed);
        FREED.store(sock.number.load(Relaxed) + 1, Relaxed);
    }
}

/// For who has cleared the last bit of an end's holders, and nobody else.
pub fn free(end: &End) {
    if end.flags.load(Acquire) & flag::CROWDED == 0 {
        end.state.store(end_state::FREE, Release);
    }
}

fn claim(end: &End) -> bool {
    end.state.load(Relaxed) == end_state::FREE
        && end.state.compare_exchange(end_state::FREE, end_state::CLAIMED, AcqRel, Relaxed).is_ok()
}

/// Looks at a few records, each time at others, for one that nobody holds any more, and claims it. `own`: the bit of this
/// process, which lives; `is_dead`: whether the process at a place does not.
fn find(family: &Family, own: u64, is_dead: impl Fn(u32) -> bool) -> Option<u32> {
    let header = &family.header;
    let used = (header.ends_used.load(Acquire) as usize).clamp(1, ENDS);
    // Whose place is given to another is dead no longer. SeqCst: read before anybody's life is asked.
    let births = header.births.load(SeqCst);
    let (mut living, mut dead) = (own, 0u64);
    for _ in 0..LOOKS.min(used) {
        let number = header.next_look.fetch_add(1, Relaxed) as usize % used;
        let end = &family.ends[number];
        if end.state.load(Acquire) != end_state::FREE {
            let holders = end.holders.load(Acquire);
            // Without a holder it is about to be freed, or to be somebody's.
            if holders == 0 || end.flags.load(Acquire) & flag::CROWDED != 0 {
                continue;
            }
            let mut unknown = holders & !dead;
            while unknown & living == 0 && unknown != 0 {
                let place = unknown.trailing_zeros();
                unknown &= unknown - 1;
                let set = if is_dead(place) { &mut dead } else { &mut living };
                *set |= 1 << place;
            }
            // Only a living holder adds holders, and nobody was born since: when the last one was seen dead, there was none.
            if holders & living != 0
                || header.births.load(SeqCst) != births
                || end.holders.compare_exchange(holders, 0, AcqRel, Relaxed).is_err()
            {
                continue;
            }
            free(end);
        }
        if claim(end) {
            return Some(number as u32);
        }
    }
    None
}

/// Whether the process at a place of the table is one that has ended. Asks the kernel.
fn is_dead(family: &Family, place: u32) -> bool {
    let p = &family.header.processes[place as usize % PROCESSES];
    p.ready.load(Acquire) != 0 && !state::lives(p, p.pid.load(Relaxed))
}

/// Whether the socket that had this number is over. `asks`: holders that have died are struck off first, which the kernel is asked about.
/// Called under [`crate::state::LIFE`].
pub fn is_over(family: &Family, number: u32, generation: u32, asks: bool) -> bool {
    let end = &family.ends[number as usize % ENDS];
    if end.state.load(Acquire) == end_state::FREE || end.generation.load(Acquire) != generation {
        return true;
    }
    // As in `find`.
    let births = family.header.births.load(SeqCst);
    let holders = end.holders.load(Acquire);
    let mut living =
        (0..PROCESSES as u32).filter(|place| holders & 1 << place != 0 && !is_dead(family, *place));
    if !asks
        || holders == 0
        || end.flags.load(Acquire) & flag::CROWDED != 0
        || living.next().is_some()
        || family.header.births.load(SeqCst) != births
        || end.holders.compare_exchange(holders, 0, AcqRel, Relaxed).is_err()
    {
        return false;
    }
    free(end);
    true
}

/// Clears the bits of those who died, or have left, from the holders of `end`, one of whom is `own`. Whether nobody else
/// holds it then.
pub fn is_left_to(family: &Family, end: &End, own: u64, has_left: impl Fn(u32) -> bool) -> bool {
    /// Forks of others that come between, one after the other.
    const TRIES: u32 = 8;
    let mut alone = false;
    for _ in 0..TRIES {
        let births = family.header.births.load(SeqCst);
        let others = end.holders.load(Acquire) & !own;
        let (mut left, mut gone) = (others, 0u64);
        let is_gone = |place| has_left(place) || is_dead(family, place);
        while left != 0 && is_gone(left.trailing_zeros()) {
            gone |= left & left.wrapping_neg();
            left &= left - 1;
        }
        alone = left == 0;
        // A place may be another's by now.
        if family.header.births.load(SeqCst) != births {
            continue;
        }
        end.holders.fetch_and(!gone, AcqRel);
        if family.header.births.load(SeqCst) == births {
            return alone;
        }
        // Rather one holder too many.
        end.holders.fetch_or(gone, AcqRel);
    }
    alone
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_shm::region;

    /// A family that has used `count` ends, all of them in `state` and held by `holders`.
    fn family(count: usize, state: u32, holders: u64) -> &'static Family {
        let family = region::hidden_family().unwrap();
        family.header.ends_used.store(count as u32, Relaxed);
        for end in &family.ends[..count] {
            end.state.store(state, Relaxed);
            end.holders.store(holders, Relaxed);
        }
        family
    }

    #[test]
    fn what_is_free_is_found_and_what_is_held_is_not() {
        let family = family(100, end_state::COLD, 0b100);
        family.ends[77].state.store(end_state::FREE, Relaxed);
        let found: Vec<u32> = (0..100).filter_map(|_| find(family, 1, |_| false)).collect();
        assert_eq!(found, [77]);
        assert_eq!(family.ends[77].state.load(Relaxed), end_state::CLAIMED);
        assert!(family.ends[..77].iter().all(|e| e.holders.load(Relaxed) == 0b100));
    }

    #[test]
    fn ends_of_the_dead_are_found_and_those_that_one_living_process_holds_are_not() {
        let family = family(64, end_state::WARM, 0);
        for (i, end) in family.ends[..64].iter().enumerate() {
            end.holders.store(i as u64, Relaxed);
        }
        // Only the process at place 1 has ended. Place 0 is our own.
        let found: Vec<u32> = (0..64).filter_map(|_| find(family, 1, |place| place == 1)).collect();
        assert_eq!(found, [2]);
    }

    #[test]
    fn an_end_that_a_process_without_a_place_holds_is_never_found() {
        let family = family(16, end_state::WARM, 0b10);
        for end in &family.ends[..16] {
            end.flags.store(flag::CROWDED, Relaxed);
        }
        assert_eq!(find(family, 1, |_| true), None);
        free(&family.ends[3]);
        assert_eq!(family.ends[3].state.load(Relaxed), end_state::WARM);
    }

    #[test]
    fn while_somebody_is_born_nobodys_death_counts() {
        let family = family(16, end_state::COLD, 0b10);
        let found = find(family, 1, |_| {
            family.header.births.fetch_add(1, SeqCst);
            true
        });
        assert_eq!(found, None);
        assert!(family.ends[..16].iter().all(|e| e.holders.load(Relaxed) == 0b10));
        assert!(find(family, 1, |_| true).is_some());
    }

    #[test]
    fn a_holder_that_was_added_meanwhile_keeps_the_end() {
        let family = family(1, end_state::COLD, 0b10);
        let found = find(family, 1, |_| {
            family.ends[0].holders.fetch_or(0b100, Relaxed);
            true
        });
        assert_eq!((found, family.ends[0].holders.load(Relaxed)), (None, 0b110));
    }

    #[test]
    fn no_number_has_two_owners() {
        const ENDS_HERE: usize = 64;
        const OWNERS: u64 = 4;
        let family = family(ENDS_HERE, end_state::FREE, 0);
        let owners: [AtomicU32; ENDS_HERE] = [const { AtomicU32::new(0) }; ENDS_HERE];
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for me in 0..OWNERS {
                let (owners, taken) = (&owners, &taken);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for round in 0..20_000u64 {
                        // Places 8 and up are those of processes that have died.
                        if let Some(number) = find(family, 1 << me, |place| place >= 8) {
                            let end = &family.ends[number as usize];
                            end.holders.store(1 << me, Relaxed);
                            assert_eq!(owners[number as usize].swap(me as u32 + 1, SeqCst), 0);
                            end.state.store(end_state::COLD, Release);
                            taken.fetch_add(1, Relaxed);
                            mine.push(number);
                        }
                        if mine.len() > 12 || round % 3 == 0 {
                            let Some(number) = mine.pop() else { continue };
                            let end = &family.ends[number as usize];
                            assert_eq!(owners[number as usize].swap(0, SeqCst), me as u32 + 1);
                            // As a close; as a death; as a death beside another's.
                            match round % 4 {
                                0 | 1 => {
                                    if end.holders.fetch_and(!(1 << me), AcqRel) == 1 << me {
                                        free(end);
                                    }
                                }
                                2 => end.holders.store(1 << (8 + me), Release),
                                _ => {
                                    end.holders.store(0b11 << (8 + me), Release);
                                    // `State::bury` comes at the same time.
                                    for place in 8 + me..10 + me {
                                        if end.holders.fetch_and(!(1 << place), AcqRel) == 1 << place {
                                            free(end);
                                        }
                                    }
                                }
                            }
                        }
                    }
                });
            }
        });
        assert!(taken.load(Relaxed) > 10_000, "{}", taken.load(Relaxed));
    }
}
