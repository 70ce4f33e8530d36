//! What the walk knows at one moment: the shared words of one direction, the carrier, and where each process is.

use crate::{Config, reader::R, writer::W};

/// Bytes of the ring.
pub const SIZE: u8 = 2;
/// Places for sleepers of one side: a frame and a signal handler on top of it.
pub const PLACES: usize = 2;
/// Bits of the ask word, as `direction::ask`.
pub const CONSENT: u8 = 1;
/// See [`CONSENT`].
pub const RECALL: u8 = 2;
const NOTHING: u8 = 15;

/// Path bits of the head word, as `direction::Path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    Ring,
    Drain,
    Kernel,
}

/// The writer's own path, as `family::wpath`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WPath {
    Kernel,
    Ring,
    Flush,
}

/// The head word: changed by one compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    pub at: u8,
    pub path: Path,
}

/// Kernel truth. Byte values are stream positions, so that order can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Carrier {
    unread: [u8; 4],
    len: u8,
    /// How many of the unread bytes have arrived at R's socket.
    arrived: u8,
    /// TCP_INFO.bytes_received, FIN not counted.
    received: u8,
    pub fin: Fin,
}

/// The end of the stream on the carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fin {
    None,
    Sent,
    Arrived,
}

/// What a non-blocking recv on the carrier gives.
pub enum Received {
    Byte(u8),
    Nothing,
    End,
}

/// Where one frame of a process stands, and its local values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame<P> {
    pub at: P,
    /// Head as this frame last saw it.
    pub head: Head,
    /// The frame's current value: a byte, a count, a ticket seen.
    pub value: u8,
    /// Place it looks at.
    pub place: u8,
    /// Own ticket while armed, 0 = not armed.
    pub ticket: u8,
    /// W: what the current work is for. R: 1 = it has seen the carrier's end.
    pub purpose: u8,
    /// It has silenced the bell that all frames of the thread share.
    pub silenced: bool,
}

/// A process that is not a running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Runs,
    Ended,
    Killed,
}

/// One state of the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    // Direction
    pub head: Head,
    pub tail: u8,
    pub r_wait: [u8; PLACES],
    pub w_wait: [u8; PLACES],
    pub ask: u8,
    pub switch_k: u8,
    /// `writer_flag::FLUSHING`.
    pub flushing: bool,
    pub ring: [u8; SIZE as usize],
    // W's family
    pub locked_by: u8,
    pub w_tail: u8,
    pub w_path: WPath,
    pub flush: u8,
    /// Bytes that a signal handler left to the frame that owns the lock.
    pub queued: u8,
    // W's inbox, bells
    pub inbox: bool,
    pub asleep: bool,
    pub w_bell: bool,
    pub r_bell: bool,
    pub carrier: Carrier,
    // Program level
    pub started: u8,
    pub accepted: u8,
    pub delivered: u8,
    pub plain: bool,
    pub asked: bool,
    pub signalled: bool,
    pub w_life: Life,
    pub r_life: Life,
    pub w: [Frame<W>; 2],
    pub r: [Frame<R>; 2],
}

/// Who makes a step, and whether anything may rely on its being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The next access of a call under way, or the kernel moving bytes: it comes, sooner or later.
    Goes,
    /// The program starts something: it may never do so, but may.
    Starts,
    /// Kills, signals, spurious wakes: nothing may wait for them.
    Accident,
}

/// A successor.
pub struct Next {
    pub state: State,
    pub kind: Kind,
    /// W moved (else R or the carrier).
    pub by_writer: bool,
}

/// A broken invariant.
pub type Fault = &'static str;

impl<P> Frame<P> {
    pub const fn new(at: P) -> Self {
        let head = Head { at: 0, path: Path::Kernel };
        Frame { at, head, value: 0, place: 0, ticket: 0, purpose: 0, silenced: false }
    }
}

impl Carrier {
    /// Bytes that R took.
    pub fn taken(&self) -> u8 {
        self.received - self.arrived
    }

    /// Bytes ever written, as W's kernel counts them.
    pub fn written(&self) -> u8 {
        self.received + self.len - self.arrived
    }

    /// TCP_INFO.bytes_received: the FIN counts as one.
    pub fn bytes_received(&self) -> u8 {
        self.received + u8::from(self.fin == Fin::Arrived)
    }

    /// SIOCINQ.
    pub fn queue(&self) -> u8 {
        self.arrived
    }

    /// POLLIN or POLLRDHUP.
    pub fn readable(&self) -> bool {
        self.arrived > 0 || self.fin == Fin::Arrived
    }

    /// Whether something is under way.
    pub fn moves(&self) -> bool {
        self.arrived < self.len || self.fin == Fin::Sent
    }

    /// The kernel moves one byte, or the FIN after all bytes.
    pub fn advance(&mut self) {
        if self.arrived < self.len {
            self.arrived += 1;
            self.received += 1;
        } else {
            self.fin = Fin::Arrived;
        }
    }

    pub fn send(&mut self, byte: u8) -> Result<(), Fault> {
        if self.fin != Fin::None {
            // EPIPE: the byte is lost.
            return Ok(());
        }
        if self.len == 4 {
            return Err("bytes sent twice");
        }
        self.unread[self.len as usize] = byte;
        self.len += 1;
        Ok(())
    }

    pub fn recv(&mut self) -> Received {
        if self.arrived > 0 {
            let byte = self.unread[0];
            self.unread.rotate_left(1);
            self.unread[3] = NOTHING;
            self.len -= 1;
            self.arrived -= 1;
            return Received::Byte(byte);
        }
        if self.fin == Fin::Arrived { Received::End } else { Received::Nothing }
    }

    fn holds(&self, from: u8, to: u8) -> bool {
        from <= to
            && self.len == to - from
            && self.unread.iter().take(self.len as usize).copied().eq(from..to)
    }

    /// What a process leaves behind that nobody will read.
    pub fn drop_unread(&mut self) {
        *self = Carrier { unread: [NOTHING; 4], len: 0, arrived: 0, ..*self };
    }
}

impl State {
    pub fn first() -> State {
        State {
            head: Head { at: 0, path: Path::Kernel },
            tail: 0,
            r_wait: [0; PLACES],
            w_wait: [0; PLACES],
            ask: 0,
            switch_k: 0,
            flushing: false,
            ring: [NOTHING; SIZE as usize],
            locked_by: 0,
            w_tail: 0,
            w_path: WPath::Kernel,
            flush: 0,
            queued: 0,
            inbox: false,
            asleep: false,
            w_bell: false,
            r_bell: false,
            carrier: Carrier { unread: [NOTHING; 4], len: 0, arrived: 0, received: 0, fin: Fin::None },
            started: 0,
            accepted: 0,
            delivered: 0,
            plain: false,
            asked: false,
            signalled: false,
            w_life: Life::Runs,
            r_life: Life::Runs,
            w: [Frame::new(W::Idle), Frame::new(W::None)],
            r: [Frame::new(R::Idle), Frame::new(R::None)],
        }
    }

    /// The state in one line, for traces.
    pub fn line(&self) -> String {
        let (w, r) = (&self.w, &self.r);
        format!(
            "W {:?}/{:?} R {:?}/{:?} | head {}{:?} tail {} ring {:?} k {} ask {} | {:?} tail {} flush {}/{} lock {} queued {} | carrier {:?}+{}/{} {:?} | r_wait {:?} bell {} w_wait {:?} bell {} | accepted {} delivered {} plain {} {:?} {:?}",
            w[0].at,
            w[1].at,
            r[0].at,
            r[1].at,
            self.head.at,
            self.head.path,
            self.tail,
            self.ring,
            self.switch_k,
            self.ask,
            self.w_path,
            self.w_tail,
            self.flush,
            self.flushing,
            self.locked_by,
            self.queued,
            &self.carrier.unread[..self.carrier.len as usize],
            self.carrier.arrived,
            self.carrier.received,
            self.carrier.fin,
            self.r_wait,
            self.r_bell,
            self.w_wait,
            self.w_bell,
            self.accepted,
            self.delivered,
            self.plain,
            self.w_life,
            self.r_life
        )
    }

    /// Hands a byte to the reading program.
    pub fn deliver(&mut self, byte: u8) -> Result<(), Fault> {
        if byte != self.delivered {
            return Err("byte out of order");
        }
        self.delivered += 1;
        Ok(())
    }

    pub fn is_terminal(&self) -> bool {
        self.w_life != Life::Runs && self.r_life != Life::Runs
    }

    /// A ticket for a new sleep: any that is neither entered nor held by a waker. Real tickets are 32 bits wide;
    /// only whether two are equal matters.
    pub fn fresh_ticket(places: &[u8], held: impl Iterator<Item = u8> + Clone) -> u8 {
        (1..).find(|t| !places.contains(t) && !held.clone().any(|h| h == *t)).expect("few are held")
    }

    /// No recall is forgotten, and invariants I1, I3 and I6 of docs/switch-protocol.md, in every state in which W runs.
    pub fn check(&self) -> Result<(), Fault> {
        if self.plain && self.ask & RECALL == 0 && self.r_life == Life::Runs {
            return Err("a recall was lost");
        }
        if self.w_life == Life::Killed || self.r_life != Life::Runs || self.carrier.fin != Fin::None {
            return Ok(());
        }
        let on_carrier_up_to = match self.head.path {
            Path::Drain | Path::Ring => self.head.at,
            Path::Kernel if self.w_path == WPath::Flush => self.flush,
            Path::Kernel => self.w_tail,
        };
        if !self.carrier.holds(self.delivered, on_carrier_up_to) {
            return Err("I1: the carrier does not hold exactly the bytes that are not in the ring");
        }
        if self.head.path != Path::Kernel {
            for p in self.head.at..self.tail {
                if self.ring[(p % SIZE) as usize] != p {
                    return Err("I1: a ring byte was overwritten");
                }
            }
            if self.carrier.written() != self.switch_k {
                return Err("I3: carrier bytes beyond switch_k");
            }
        }
        Ok(())
    }

    /// I4 and the ends, in a state where nothing goes on by itself: nobody may sleep over work.
    pub fn check_quiet(&self) -> Result<(), Fault> {
        let in_ring = self.head.path != Path::Kernel && self.tail > self.head.at;
        let reader_sleeps = self.r.iter().any(|f| f.at == R::Sleep);
        let writer_sleeps = self.w.iter().any(|f| f.at == W::Sleep);
        if self.carrier.moves() && self.r_life == Life::Runs {
            return Err("the carrier stands still");
        }
        if self.r_life == Life::Runs && reader_sleeps && in_ring {
            return Err("I4: R sleeps over ring bytes");
        }
        if self.r_life == Life::Runs
            && self.carrier.readable()
            && (reader_sleeps || self.r[0].at == R::PlainRecv)
        {
            return Err("R sleeps over carrier bytes");
        }
        if self.w_life == Life::Runs && writer_sleeps {
            if self.r_life != Life::Runs {
                return Err("W sleeps for a reader that is gone");
            }
            if self.head.path == Path::Kernel || self.w_tail - self.head.at < SIZE {
                return Err("I4: W sleeps over free space");
            }
            if self.ask & RECALL != 0 {
                return Err("I4: W sleeps over a recall");
            }
        }
        if self.w_life == Life::Runs && self.queued > 0 && self.w[0].at == W::Idle {
            return Err("a byte accepted in a signal handler stays behind");
        }
        Ok(())
    }

    /// The end of the stream reached the reading program. Of a killed writer everything arrives that its calls
    /// reported, unless R reads by plain calls (residual risk 1).
    pub fn check_end(&self) -> Result<(), Fault> {
        let complete = match self.w_life {
            Life::Killed => self.plain || self.delivered >= self.accepted,
            _ => self.delivered == self.accepted,
        };
        if complete { Ok(()) } else { Err("end of stream before the data") }
    }

    /// Everything that can happen next.
    pub fn successors(&self, config: &Config, out: &mut Vec<Next>) -> Result<(), Fault> {
        if self.carrier.moves() && self.r_life == Life::Runs {
            let mut state = *self;
            state.carrier.advance();
            out.push(Next { state, kind: Kind::Goes, by_writer: false });
        }
        if self.w_life == Life::Runs {
            crate::writer::successors(self, config, out)?;
            if config.kills {
                out.push(Next { state: self.kill_writer(), kind: Kind::Accident, by_writer: true });
            }
        }
        if self.r_life == Life::Runs {
            crate::reader::successors(self, config, out)?;
            if config.kills {
                out.push(Next { state: self.kill_reader(), kind: Kind::Accident, by_writer: false });
            }
        }
        Ok(())
    }

    /// kill -9 of W: the kernel ends the stream after what was sent; shared memory stays as it is.
    fn kill_writer(&self) -> State {
        let mut s = *self;
        s.w_life = Life::Killed;
        // What a signal handler left to the frame below it was in W's own memory.
        s.accepted -= s.queued;
        s.writer_gone();
        s
    }

    /// The state that nobody can see any more is forgotten, and the carrier ends.
    pub fn writer_gone(&mut self) {
        self.w = [Frame::new(W::None); 2];
        (self.locked_by, self.w_tail, self.flush, self.queued) = (0, 0, 0, 0);
        self.w_path = WPath::Kernel;
        (self.inbox, self.asleep, self.w_bell) = (false, false, false);
        if self.carrier.fin == Fin::None {
            self.carrier.fin = Fin::Sent;
        }
    }

    /// kill -9 of R: W's kernel learns of it.
    fn kill_reader(&self) -> State {
        let mut s = *self;
        s.r_life = Life::Killed;
        s.reader_gone();
        s
    }

    /// As [`State::writer_gone`].
    pub fn reader_gone(&mut self) {
        self.r = [Frame::new(R::None); 2];
        self.r_bell = false;
        self.carrier.drop_unread();
    }
}
