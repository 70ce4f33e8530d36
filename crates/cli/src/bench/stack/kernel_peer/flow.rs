//! What flows: octets that follow from their place in the stream, and who counts them when they have been read.

use super::super::stream;
use bypath_sys::clock::monotonic_ns;
use nix::sys::time::TimeValLike as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Octets of a write, and of a read at most: several super-packets.
pub const CHUNK: usize = 256 << 10;
/// Octets, all of them looked at, before anything is timed.
const WARM: u64 = 32 << 20;
/// Octets of a stretch, at least.
const STRETCH: u64 = 16 << 20;
/// Octets at the beginning of a read that are looked at while it is timed.
const GLANCE: usize = 16;

/// What both ends share.
pub struct Flow {
    /// From any place within the period on, as much as a write has.
    octets: Vec<u8>,
    seconds: f64,
    whole: bool,
    /// The timed part has begun; it is over; how many octets were read in it.
    begun: AtomicBool,
    over: AtomicBool,
    read: AtomicU64,
}

/// What an end has to tell.
#[derive(Default)]
pub struct Told {
    /// Bits a second of each stretch, from who received.
    pub stretches: Option<Vec<f64>>,
    /// Nanoseconds of its processor in the timed part.
    pub cpu_ns: u64,
    /// What a reader of the figures should know.
    pub note: Option<String>,
}

impl Flow {
    pub fn new(seconds: f64, whole: bool) -> Flow {
        Flow {
            octets: stream::pattern(CHUNK),
            seconds,
            whole,
            begun: AtomicBool::new(false),
            over: AtomicBool::new(false),
            read: AtomicU64::new(0),
        }
    }

    /// What is to be written when so many octets have been.
    pub fn from(&self, written: u64) -> &[u8] {
        let at = stream::place(written);
        &self.octets[at..at + CHUNK]
    }

    /// Nothing more is to be done.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn stop(&self) {
        self.over.store(true, Relaxed);
    }

    pub fn timed_octets(&self) -> u64 {
        self.read.load(Relaxed).max(1)
    }

    /// For the end that receives.
    pub fn meter(&self) -> Meter<'_> {
        Meter { flow: self, read: 0, before: 0, since: 0, begun: 0, stretches: Vec::new() }
    }

    /// For either end: the time of its processor in the timed part.
    pub const fn cpu(&self) -> Cpu<'_> {
        Cpu { flow: self, begun: None }
    }
}

/// Counts what was read.
pub struct Meter<'a> {
    flow: &'a Flow,
    read: u64,
    /// Octets and time when this stretch began, and when the first did.
    before: u64,
    since: u64,
    begun: u64,
    stretches: Vec<f64>,
}

impl Meter<'_> {
    /// The next octets have been read. False: it is enough.
    ///
    /// # Errors
    /// They are not those that were sent.
    pub fn took(&mut self, octets: &[u8]) -> Result<bool, String> {
        let flow = self.flow;
        let all = flow.whole || self.read < WARM;
        let len = if all { octets.len() } else { octets.len().min(GLANCE) };
        if octets[..len] != flow.from(self.read)[..len] {
            return Err(format!("wrong octets, {} of the stream", self.read));
        }
        self.read += octets.len() as u64;
        if self.read < WARM {
            return Ok(true);
        }
        let now = monotonic_ns();
        if self.since == 0 {
            (self.before, self.since, self.begun) = (self.read, now, now);
            flow.begun.store(true, Relaxed);
            return Ok(true);
        }
        let octets = self.read - self.before;
        if octets < STRETCH {
            return Ok(true);
        }
        self.stretches.push(octets as f64 * 8e9 / (now - self.since) as f64);
        (self.before, self.since) = (self.read, now);
        flow.read.fetch_add(octets, Relaxed);
        if now - self.begun < (flow.seconds * 1e9) as u64 {
            return Ok(true);
        }
        flow.stop();
        Ok(false)
    }

    /// What was measured.
    pub fn end(self) -> Vec<f64> {
        self.stretches
    }
}

/// The time of a thread's processor in the timed part.
pub struct Cpu<'a> {
    flow: &'a Flow,
    begun: Option<u64>,
}

impl Cpu<'_> {
    /// To be called often.
    #[inline]
    pub fn look(&mut self) {
        if self.begun.is_none() && self.flow.begun.load(Relaxed) {
            self.begun = Some(thread_ns());
        }
    }

    pub fn spent(&self) -> u64 {
        self.begun.map_or(0, |begun| thread_ns() - begun)
    }
}

fn thread_ns() -> u64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |t| t.num_nanoseconds() as u64)
}

/// Keeps the calling thread on a core.
pub fn pin(core: Option<usize>) {
    let mut set = nix::sched::CpuSet::new();
    if core.is_some_and(|core| set.set(core).is_ok()) {
        // Where it is not allowed figures are less steady, not wrong.
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}
