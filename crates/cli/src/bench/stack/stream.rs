//! One stream between two stacks: octets a second that its reader has.

use super::pair::{CLIENT, Cable, Pair, SERVER, now};
use super::{figure, timed};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath_stack::config::Config;
use bypath_stack::socket::SocketId;
use bypath_sys::clock::monotonic_ns;

/// Cables, and whether the reader has octets copied; else it looks at them where they lie.
pub const STREAMS: [PairStream; 6] = [
    PairStream { cable: Cable::ETHERNET, copied: false, subject: "mtu-1500" },
    PairStream { cable: LONG, copied: false, subject: "mtu-65535" },
    PairStream { cable: UNSUMMED, copied: false, subject: "mtu-65535-nosum" },
    PairStream { cable: Cable::ETHERNET, copied: true, subject: "mtu-1500-copied" },
    PairStream { cable: LONG, copied: true, subject: "mtu-65535-copied" },
    PairStream { cable: UNSUMMED, copied: true, subject: "mtu-65535-nosum-copied" },
];
const LONG: Cable = Cable { mtu: 65_535, checksums: true };
const UNSUMMED: Cable = Cable { checksums: false, ..LONG };
/// Octets of a write, and of a read at most.
pub const CHUNK: usize = 64 << 10;
/// Octets that are read between two looks at the clock, at least.
pub const STRETCH: u64 = 4 << 20;
/// Octets after which the stream repeats itself: a prime number, so that no segment and no buffer begins where another one did.
const PERIOD: usize = 4093;
/// Octets at the beginning of a read that are looked at while it is timed.
const GLANCE: usize = 16;
/// Octets, all of them looked at, before anything is timed.
const WARM: u64 = 16 << 20;
/// A stretch that takes longer has stopped.
const STALLED: u64 = 5_000_000_000;

/// A stream.
struct Stream {
    pair: Pair,
    ids: [SocketId; 2],
    /// What is written: from any place within the period on, as much as a write has.
    octets: Vec<u8>,
    room: Vec<u8>,
    copied: bool,
    written: u64,
    read: u64,
}

/// Where in the period an octet of the stream stands.
pub const fn place(at: u64) -> usize {
    (at % PERIOD as u64) as usize
}

/// What streams consist of: from any place within the period on, so many octets.
pub fn pattern(len: usize) -> Vec<u8> {
    // Anything that does not look like itself a little further on.
    let period: Vec<u8> = (0..PERIOD as u64).map(|n| (n * n * 31 + n * 7 + (n >> 8)) as u8).collect();
    period.iter().copied().cycle().take(PERIOD + len).collect()
}

impl Stream {
    fn new(cable: Cable, copied: bool) -> Result<Stream, String> {
        let mut pair = Pair::new(cable, &Config::default())?;
        let ids = pair.open(now(), None)?;
        Ok(Stream { pair, ids, octets: pattern(CHUNK), room: vec![0; CHUNK], copied, written: 0, read: 0 })
    }

    /// One write, what follows from it, and reads until nothing is left; `all`: each octet is looked at.
    #[inline]
    fn step(&mut self, all: bool) -> Result<(), String> {
        let at = place(self.written);
        self.written += self.pair.write(CLIENT, self.ids[CLIENT], &self.octets[at..at + CHUNK])? as u64;
        self.pair.carry(now(), CLIENT)?;
        self.pair.carry(now(), SERVER)?;
        while let Some(n) = self.take(all)? {
            self.read += n as u64;
        }
        Ok(())
    }

    /// Takes what there is, in one piece; `None`: nothing.
    #[inline]
    fn take(&mut self, all: bool) -> Result<Option<usize>, String> {
        let Stream { pair, ids, octets, room, .. } = self;
        let mut fits = true;
        let mut look = |got: &[u8]| {
            let n = if all { got.len() } else { got.len().min(GLANCE) };
            fits = got[..n] == octets[place(self.read)..][..n];
            got.len()
        };
        let taken = if self.copied {
            pair.read(SERVER, ids[SERVER], room)?.map(|n| look(&room[..n]))
        } else {
            pair.read_with(SERVER, ids[SERVER], CHUNK, look)?
        };
        match taken {
            _ if !fits => Err(format!("wrong octets, {} of the stream", self.read)),
            Some(0) => Err("the stream has ended".into()),
            taken => Ok(taken),
        }
    }

    /// Steps until so many octets more have been read; the nanoseconds, and how many octets they were.
    fn stretch(&mut self, least: u64, all: bool) -> Result<(u64, u64), String> {
        let (begun, before) = (monotonic_ns(), self.read);
        while self.read - before < least {
            self.step(all)?;
            if monotonic_ns() - begun > STALLED {
                return Err(format!("{} octets in 5 s", self.read - before));
            }
        }
        let elapsed = monotonic_ns() - begun;
        if self.read > self.written {
            return Err(format!("{} octets read of {} that were written", self.read, self.written));
        }
        Ok((elapsed, self.read - before))
    }
}

/// A stream over one cable.
#[derive(Clone, Copy, Debug)]
pub struct PairStream {
    cable: Cable,
    copied: bool,
    pub subject: &'static str,
}

impl Job for PairStream {
    fn title(&self) -> String {
        format!("pair-stream {}", self.subject)
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("pair-stream", self.subject, CHUNK as u32, None, "bits_per_s")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut stream = Stream::new(self.cable, self.copied)?;
        stream.stretch(WARM, true)?;
        let stretches = timed(context, || {
            let (ns, octets) = stream.stretch(STRETCH, false)?;
            Ok(octets as f64 * 8e9 / ns as f64)
        })?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}
