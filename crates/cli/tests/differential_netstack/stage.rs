//! Hosts and agents for each combination. Hosts are made once; agents run one script after the other.

use crate::hosts::{Host, Hosts, Wire};
use crate::process::Agent;
use crate::run::{Combination, Difference, Over, Pair, Under, agent_program};
use crate::script::Step;
use crate::{known, programs};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Client, server, and what is between them; the first one is the specification.
const COMBINATIONS: [(Under, Under, Wire); 7] = [
    (Under::Plain, Under::Plain, Wire::Veth),
    (Under::Netstack, Under::Plain, Wire::Veth),
    (Under::Plain, Under::Netstack, Wire::Veth),
    (Under::Netstack, Under::Netstack, Wire::Veth),
    (Under::Netstack, Under::Plain, Wire::Tap),
    (Under::Plain, Under::Netstack, Wire::Tap),
    (Under::Netstack, Under::Netstack, Wire::Tap),
];
/// Of these, the ones over a veth pair.
const OVER_VETH: usize = 4;

/// One combination.
struct Place {
    which: (Under, Under, Wire),
    /// Agents that nobody uses just now; they go before their hosts.
    free: Mutex<Vec<Pair>>,
    hosts: Hosts,
}

/// All of them.
pub struct Stage(Vec<Place>);

/// Whether a command changes what an agent keeps of itself: its children, and what signals do.
fn leaves_something(command: &str) -> bool {
    const VERBS: [&str; 9] =
        ["fork", "spawn", "exec", "vfork_exec", "vfork_over", "system", "popen", "sigaction", "setitimer"];
    command.split(' ').any(|word| VERBS.contains(&word))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// With the hosts that have a TAP device, or without.
    pub fn new(taps: bool) -> Stage {
        let many = if taps { COMBINATIONS.len() } else { OVER_VETH };
        // Addresses of IPv6 take their time.
        Stage(std::thread::scope(|scope| {
            let made: Vec<_> =
                COMBINATIONS[..many].iter().map(|which| scope.spawn(|| Place::new(*which))).collect();
            made.into_iter().map(|place| place.join().expect("hosts")).collect()
        }))
    }

    /// What the kernel answers.
    ///
    /// # Errors
    /// It cannot do that over a link.
    pub fn record(&self, steps: &[Step]) -> Result<Vec<String>, String> {
        let answers = self.0[0].record(steps);
        let is_wrong =
            |answer: &String| ["!", "HANGS", "late", "only "].iter().any(|wrong| answer.starts_with(wrong));
        match answers.iter().position(is_wrong) {
            Some(at) => Err(format!("{} => {}", steps[at], answers[at])),
            None => Ok(answers),
        }
    }

    /// The first difference of each combination, the kernel's from itself first. They run side by side: most of a run is waiting.
    pub fn compare(&self, steps: &[Step], expected: &[String], over_tap: bool) -> Vec<Option<String>> {
        let many = if over_tap { self.0.len() } else { OVER_VETH };
        std::thread::scope(|scope| {
            let runs: Vec<_> = self.0[..many]
                .iter()
                .map(|place| scope.spawn(move || place.compare(steps, expected).err()))
                .collect();
            runs.into_iter().map(|run| run.join().expect("a run")).collect()
        })
    }

    /// Whether the kernel gives the same answers again.
    pub fn is_decided(&self, steps: &[Step], expected: &[String]) -> bool {
        (0..2).all(|_| self.0[0].compare(steps, expected).is_ok())
    }

    /// Ends everything in good order.
    pub fn end(self) {
        for Place { free, hosts, which } in self.0 {
            drop(free);
            hosts.end().unwrap_or_else(|why| panic!("{which:?}: {why}"));
        }
    }
}

impl Place {
    fn new(which: (Under, Under, Wire)) -> Place {
        let (client, server, wire) = which;
        Place { which, free: Mutex::default(), hosts: Hosts::new(client, server, wire) }
    }

    fn start(&self, end: &str, dir: &Path) -> Agent {
        let host: &Host = if end == "c" { &self.hosts.client } else { &self.hosts.server };
        let program = agent_program(false);
        let command = host.command(program, programs::library());
        host.run(|| Agent::of(command, program, &dir.join(format!("{end}.stderr"))))
    }

    fn take(&self) -> Pair {
        let free = lock(&self.free).pop();
        let (client, server, _) = self.which;
        let combination = Combination { client, server, over: Over::Hosts };
        free.unwrap_or_else(|| Pair::with(combination, |end, _, dir| self.start(end, dir)))
    }

    /// Back to the start; a pair that cannot is thrown away.
    fn give_back(&self, mut pair: Pair, steps: &[Step]) {
        if !steps.iter().any(|step| leaves_something(&step.command)) && pair.reset().is_ok() {
            lock(&self.free).push(pair);
        }
    }

    fn record(&self, steps: &[Step]) -> Vec<String> {
        let mut pair = self.take();
        let answers = pair.record(steps);
        if answers.len() == steps.len() {
            self.give_back(pair, steps);
        }
        answers
    }

    fn compare(&self, steps: &[Step], expected: &[String]) -> Result<(), String> {
        let mut pair = self.take();
        let is_kernels = self.which.0 == Under::Plain && self.which.1 == Under::Plain;
        let is_known = |command: &str, expected: &str, got: &str| {
            !is_kernels && known::difference(command, expected, got).is_some()
        };
        match pair.compare_but(steps, expected, is_known) {
            Ok(()) => {
                self.give_back(pair, steps);
                Ok(())
            }
            Err(difference) => Err(self.report(steps, expected, &difference, &pair)),
        }
    }

    /// The script with the kernel's answers, as far as it went and beyond.
    fn report(&self, steps: &[Step], expected: &[String], difference: &Difference, pair: &Pair) -> String {
        let mut lines: Vec<String> =
            steps.iter().zip(expected).map(|(step, answer)| format!("    {step}  =>  {answer}\n")).collect();
        lines[difference.step] = format!(
            "--> {}\n    kernel: {}\n    here:   {}\n",
            steps[difference.step], difference.expected, difference.got
        );
        format!("differs with {:?}\n{}{}", self.which, lines.concat(), pair.complaints())
    }
}
