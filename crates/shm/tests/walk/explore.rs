//! Breadth first over all states, then backwards from the ends: no fault anywhere, no state from which the end
//! cannot be reached by steps that are sure to come.

use crate::Config;
use crate::state::{Fault, Kind, Life, Next, Path, State};
use std::hash::{Hash, Hasher};

/// What a complete walk saw.
#[derive(Debug)]
pub struct Seen {
    pub states: usize,
    pub steps: usize,
}

/// A fault and the states that lead to it.
pub struct Broken {
    pub fault: Fault,
    pub trace: Vec<State>,
}

impl std::fmt::Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, s) in self.trace.iter().enumerate() {
            writeln!(f, "{i:3} {}", s.line())?;
        }
        write!(f, "{}", self.fault)
    }
}

/// A multiplicative hash: the states are few bytes and not hostile.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, v: u8) {
        self.write_u64(v.into());
    }

    fn write_isize(&mut self, v: isize) {
        self.write_u64(v as u64);
    }

    fn write_usize(&mut self, v: usize) {
        self.write_u64(v as u64);
    }

    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0.rotate_left(5) ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// All states seen, each once, in the order of their finding.
struct States {
    all: Vec<State>,
    /// Open addressing: number + 1 of a state, 0 = free.
    slots: Vec<u32>,
}

impl States {
    fn new() -> States {
        States { all: Vec::new(), slots: vec![0; 1 << 16] }
    }

    fn slot(&self, s: &State) -> usize {
        let mut h = Mix::default();
        s.hash(&mut h);
        let mut at = (h.finish() >> 7) as usize & (self.slots.len() - 1);
        while self.slots[at] != 0 && self.all[self.slots[at] as usize - 1] != *s {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// The state's number, and whether it is new.
    fn number(&mut self, s: &State) -> (u32, bool) {
        let at = self.slot(s);
        if self.slots[at] != 0 {
            return (self.slots[at] - 1, false);
        }
        self.all.push(*s);
        self.slots[at] = self.all.len() as u32;
        if self.all.len() * 2 > self.slots.len() {
            self.slots = vec![0; self.slots.len() * 2];
            for i in 0..self.all.len() {
                let at = self.slot(&self.all[i]);
                self.slots[at] = i as u32 + 1;
            }
        }
        (self.all.len() as u32 - 1, true)
    }
}

/// I2: who may change the path.
fn check_author(from: &State, next: &Next) -> Result<(), Fault> {
    let ok = match (from.head.path, next.state.head.path) {
        (a, b) if a == b => true,
        (Path::Drain, Path::Ring) => !next.by_writer,
        (Path::Kernel, Path::Ring) if !next.by_writer => from.w_life == Life::Killed,
        _ => next.by_writer,
    };
    if ok { Ok(()) } else { Err("I2: the path was changed by the wrong side") }
}

/// Walks everything that `config` allows.
pub fn walk(config: &Config) -> Result<Seen, Broken> {
    let mut states = States::new();
    let mut parents: Vec<u32> = vec![0];
    // Steps that are sure to come or may be started, as (from, to).
    let mut sure: Vec<(u32, u32)> = Vec::new();
    let mut steps = 0;
    let mut out = Vec::new();
    states.number(&State::first());
    let mut at = 0;
    while at < states.all.len() {
        let s = states.all[at];
        let broken = |fault, last: Option<State>, states: &States, parents: &[u32]| Broken {
            fault,
            trace: trace(states, parents, at as u32, last),
        };
        out.clear();
        s.check()
            .and_then(|()| s.successors(config, &mut out))
            .map_err(|fault| broken(fault, None, &states, &parents))?;
        let goes_on = out.iter().any(|n| n.kind == Kind::Goes);
        if !goes_on {
            s.check_quiet().map_err(|fault| broken(fault, None, &states, &parents))?;
        }
        steps += out.len();
        for next in &out {
            check_author(&s, next).map_err(|fault| broken(fault, Some(next.state), &states, &parents))?;
            let (to, new) = states.number(&next.state);
            if new {
                parents.push(at as u32);
            }
            if next.kind != Kind::Accident {
                sure.push((at as u32, to));
            }
        }
        at += 1;
        assert!(states.all.len() < 60_000_000, "the walk does not end");
    }
    if let Some(stuck) = cannot_end(&states.all, &mut sure) {
        let fault = "stuck: the end cannot be reached";
        return Err(Broken { fault, trace: trace(&states, &parents, stuck, None) });
    }
    Ok(Seen { states: states.all.len(), steps })
}

fn trace(states: &States, parents: &[u32], mut at: u32, last: Option<State>) -> Vec<State> {
    let mut path: Vec<State> = last.into_iter().collect();
    loop {
        path.push(states.all[at as usize]);
        if at == 0 {
            break;
        }
        at = parents[at as usize];
    }
    path.reverse();
    path
}

/// A state from which no sure steps lead to an end.
fn cannot_end(all: &[State], sure: &mut [(u32, u32)]) -> Option<u32> {
    sure.sort_unstable_by_key(|(_, to)| *to);
    let mut reaches: Vec<bool> = all.iter().map(State::is_terminal).collect();
    let mut work: Vec<u32> = (0..all.len() as u32).filter(|i| reaches[*i as usize]).collect();
    while let Some(to) = work.pop() {
        let first = sure.partition_point(|(_, t)| *t < to);
        for (from, _) in sure[first..].iter().take_while(|(_, t)| *t == to) {
            if !std::mem::replace(&mut reaches[*from as usize], true) {
                work.push(*from);
            }
        }
    }
    reaches.iter().position(|r| !r).map(|i| i as u32)
}
