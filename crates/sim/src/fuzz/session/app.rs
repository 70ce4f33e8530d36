//! What applications do: each writes so many octets and finishes, reads until the other one has finished, and closes. They act when they
//! are told of something, and never otherwise.

use bypath_stack::socket::SocketId;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_stack::tcp::{Keepalive, MtuProbing, Settings, State};
use bypath_stack::{Stack, Tcp};
use std::time::Duration;

/// Octets of streams are less; forged ones are not.
pub(super) const FORGED: u8 = 0x80;

/// What may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// What was written, and all of it unless somebody is told.
    All,
    /// At each place what was written there, or what was forged.
    Places,
    /// Anything: numbers were forged.
    Nothing,
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub id: SocketId,
    /// The port of who called.
    pub key: u16,
    /// Which side it is on.
    pub side: usize,
    /// Octets that it writes.
    pub most: usize,
    pub written: usize,
    pub read: usize,
    pub at_end: bool,
    pub finished: bool,
    pub closed: bool,
    pub failed: bool,
    /// The fuzzer closed or aborted it.
    pub left: bool,
    /// Somebody forged has called.
    pub stray: bool,
}

/// The octet at a place of a stream.
const fn octet(at: usize, side: usize, key: u16) -> u8 {
    (at * 31 + at / 253 + side * 77 + key as usize * 5) as u8 & !FORGED
}

/// The place of the octet that is read next: urgent ones that were left out count as read.
fn place(tcp: &mut Tcp<'_>) -> usize {
    tcp.statistics().map_or(0, |s| s.octets_received as usize - s.unread)
}

impl End {
    pub fn new(id: SocketId, key: u16, side: usize, most: usize) -> End {
        End {
            id,
            key,
            side,
            most,
            written: 0,
            read: 0,
            at_end: false,
            finished: false,
            closed: false,
            failed: false,
            left: false,
            stray: false,
        }
    }

    /// Everything was written and read that is to be, and it has closed.
    pub fn is_done(&self, other: &End) -> bool {
        self.closed && self.at_end && self.finished && self.read == other.most && self.written == self.most
    }

    /// Reads and writes what can be; `lazy`: reads nothing.
    pub fn goes_on(&mut self, stack: &mut Stack, lazy: bool, trust: Trust) {
        if self.closed {
            return;
        }
        let Some(mut tcp) = stack.tcp(self.id) else { panic!("a socket that was not closed is gone") };
        if tcp.state() == Some(State::SynSent) {
            return;
        }
        let mut room = [0; 5000];
        while !self.at_end && !lazy {
            let read = tcp.read(&mut room);
            self.read = place(&mut tcp);
            match read {
                Ok(0) => self.at_end = true,
                Ok(n) => self.compare(self.read - n, &room[..n], trust),
                Err(ReadError::Empty) => break,
                Err(ReadError::Failed(_)) => return self.fails(stack),
                Err(error) => panic!("{error}"),
            }
        }
        while self.written < self.most {
            let end = self.most.min(self.written + 7000);
            let piece: Vec<u8> = (self.written..end).map(|at| octet(at, self.side, self.key)).collect();
            // Some speak urgently now and then.
            let urgently = self.key % 4 == 1 && self.written % 3 == 1;
            let written = if urgently { tcp.write_urgent(&piece, false) } else { tcp.write(&piece) };
            match written {
                Ok(n) => self.written += n,
                Err(WriteError::Full) => break,
                Err(WriteError::Failed(_) | WriteError::Finished) => return self.fails(stack),
                Err(error) => panic!("{error}"),
            }
        }
        if self.written == self.most && !self.finished {
            self.finished = tcp.finish().is_ok();
        }
        if self.at_end && self.finished {
            self.closes(stack);
        }
    }

    /// Octets of the place `from` and behind.
    fn compare(&self, from: usize, found: &[u8], trust: Trust) {
        if trust == Trust::Nothing || self.stray {
            return;
        }
        for (n, found) in found.iter().enumerate() {
            let right = octet(from + n, 1 - self.side, self.key);
            let may = *found == right || trust == Trust::Places && *found & FORGED != 0;
            assert!(may, "octet {} is {found:#x} and not {right:#x}: {self:?}", from + n);
        }
    }

    fn fails(&mut self, stack: &mut Stack) {
        self.failed = true;
        self.closes(stack);
    }

    pub fn closes(&mut self, stack: &mut Stack) {
        if !self.closed {
            self.closed = true;
            stack.close(self.id);
        }
    }
}

/// What an application wants, by two octets.
pub(super) fn settings(of: [u8; 2], settings: Settings) -> Settings {
    let [bits, sizes] = of;
    let is = |bit: u8| bits >> bit & 1 != 0;
    let size =
        |which: u8| [300_000, 1000, 3000, 20_000, 60_000, 300, 100_000, 65_536][usize::from(which & 7)];
    let keepalive = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(2), probes: 3 };
    Settings {
        sack: !is(0),
        timestamps: !is(1),
        ecn: is(2),
        nodelay: is(3),
        window_scale: !is(4),
        algorithm: if is(5) { Algorithm::Reno } else { Algorithm::Cubic },
        keepalive: is(6).then_some(keepalive),
        user_timeout: is(7).then_some(Duration::from_secs(20)),
        send_octets: size(sizes),
        receive_octets: size(sizes >> 3),
        cork: sizes >> 6 == 3,
        urgent_inline: sizes >> 6 == 2,
        mtu_probing: [MtuProbing::Off, MtuProbing::AfterTimeouts, MtuProbing::Always, MtuProbing::Off]
            [usize::from(sizes >> 6)],
        ..settings
    }
}

/// Whether connections with these settings may give up early.
pub(super) const fn is_impatient(bits: u8) -> bool {
    bits & 0xc0 != 0
}
