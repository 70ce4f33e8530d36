//! One connection's worth of malice: the handshake, some honest octets, then anything at all, and an end.

use crate::dice::Dice;
use crate::peer::{self, Line, Mapped};
use bypath_shm::direction::{Direction, Head, Path, ask, writer_flag};
use bypath_shm::inbox::BELLS;
use bypath_sys::eventfd;
use rustix::process::{Pid, Signal, kill_process};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

/// How far attacks came.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reached {
    pub mapped: u64,
    pub ring_out: u64,
    pub ring_in: u64,
}

pub struct Attack {
    dice: Dice,
    line: Line,
    mapped: Option<Mapped>,
    victim: Pid,
    /// Bells of the victim.
    bells: Vec<OwnedFd>,
    given: u64,
    tail: u64,
    pub reached: Reached,
}

impl Attack {
    pub fn new(port: u16, victim: Pid, seed: u64) -> Attack {
        let line = Line::to(port);
        let reached = Reached::default();
        Attack { dice: Dice(seed), line, mapped: None, victim, bells: vec![], given: 0, tail: 0, reached }
    }

    /// The whole of it. What is left then is the victim's business: to notice that its connection is over.
    pub fn run(mut self) -> Reached {
        self.mapped = if self.dice.below(2) == 0 {
            peer::accept(&self.line, &mut self.dice)
        } else {
            peer::call(&self.line, &mut self.dice)
        };
        if self.mapped.is_some() {
            self.reached.mapped = 1;
            self.settle();
        }
        for _ in 0..8 + self.dice.below(64) {
            self.step();
        }
        self.end()
    }

    fn say(&mut self, octets: &[u8]) {
        self.given += self.line.say(octets) as u64;
    }

    /// As an honest end would: both directions come to their rings, if the victim likes it.
    fn settle(&mut self) {
        let Some(m) = &self.mapped else { return };
        let (out, inc) = (m.out(), m.inc());
        inc.consent();
        self.given = bypath_sys::sock::tcp_counts(self.line.stream.as_raw_fd()).map_or(0, |c| c.written);
        let until = Instant::now() + Duration::from_millis(if self.dice.below(4) == 0 { 0 } else { 100 });
        while Instant::now() < until {
            if out.path() == Path::Kernel && !out.begin_ring(0, self.given) {
                self.say(b"more");
            } else {
                self.honest();
            }
            self.listen();
            self.line.hear();
            let has_begun = |d: &Direction| d.path() == Path::Ring;
            if has_begun(out) && has_begun(inc) {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.reached.ring_out = u64::from(out.path() == Path::Ring);
        self.reached.ring_in = u64::from(inc.path() != Path::Kernel);
    }

    /// Octets in the ring, where there is room by the rules.
    fn honest(&mut self) {
        let Some(m) = &self.mapped else { return };
        let size = m.ring.size();
        let Ok(space @ 1..) = m.out().space(self.tail, size) else { return };
        let octets = self.dice.octets(space.min(size) as usize);
        m.ring.copy_from_slice(self.tail, &octets);
        self.tail += octets.len() as u64;
        m.out().publish(self.tail);
        self.rouse();
    }

    fn listen(&self) {
        if let Some(m) = &self.mapped {
            m.listen(&self.line);
        }
    }

    /// Whoever sleeps there is woken.
    fn rouse(&mut self) {
        let Some(m) = &self.mapped else { return };
        while let Some((_, fds)) = peer::receive(&m.channel) {
            self.bells.extend(fds);
        }
        m.inbox.get().mark(m.control.ends[1 - m.role].load(Relaxed));
        self.bells.iter().for_each(|bell| eventfd::ring(bell.as_raw_fd()));
    }

    /// A position near something, on some path.
    fn position(&mut self, d: &Direction) -> u64 {
        let size = self.mapped.as_ref().map_or(4096, |m| m.ring.size());
        let path = [Path::Ring, Path::Drain, Path::Kernel, Path::Ring][self.dice.below(4)];
        let base = if self.dice.below(2) == 0 { d.h.head.load(Relaxed) } else { d.t.tail.load(Relaxed) };
        let near = self.dice.below(5) as u64;
        let position = match self.dice.below(6) {
            0 => base.wrapping_add(near),
            1 => base.wrapping_sub(near),
            2 => base.wrapping_add(size).wrapping_add(near),
            3 => base.wrapping_sub(size).wrapping_sub(near),
            4 => base.wrapping_add(self.dice.next() % size),
            _ => return self.dice.number(),
        };
        Head::new(position, path).raw()
    }

    fn step(&mut self) {
        if self.dice.below(8) == 0 {
            let octets = self.dice.octets(3000);
            self.say(&octets);
        }
        if self.dice.below(8) == 0 {
            self.line.hear();
        }
        let Some(m) = &self.mapped else { return };
        let (control, inbox) = (m.control, m.inbox.get());
        let d = &control.direction[self.dice.below(2)];
        match self.dice.below(26) {
            0..4 => self.honest(),
            4..7 => self.listen(),
            7 => d.t.tail.store(self.position(d), Relaxed),
            8 => d.h.head.store(self.position(d), Relaxed),
            9 => d.wa.switch_k.store(self.given.wrapping_add(self.dice.number()), Relaxed),
            10 => {
                let bits = [ask::CONSENT, ask::RECALL, ask::CLOSED, ask::LEFT, 0, !0][self.dice.below(6)];
                d.ra.ask.store(bits, Relaxed);
            }
            11 => {
                let bits = [writer_flag::SHUT, writer_flag::FLUSHING, 0, 3, !0][self.dice.below(5)];
                d.wa.flags.store(bits, Relaxed);
            }
            12 => {
                let places = if self.dice.below(2) == 0 { &d.ra.wait } else { &d.wa.wait };
                let word = self.dice.number() << 32 | self.dice.next() & 3;
                places[self.dice.below(4)].store(word, Relaxed);
            }
            13 => {
                control.ends[self.dice.below(2)].store(self.dice.number() as u32, Relaxed);
                control.in_use.store(self.dice.number() as u32, Relaxed);
                control.cookies[self.dice.below(2)].store(self.dice.number(), Relaxed);
            }
            14 => {
                d.t.cpu.store(self.dice.number() as u32, Relaxed);
                d.h.cpu.store(self.dice.number() as u32, Relaxed);
                d.h.carrier_read.store(self.dice.number(), Relaxed);
            }
            15 => {
                let octets = self.dice.octets(m.ring.size() as usize);
                m.ring.copy_from_slice(self.dice.number(), &octets);
            }
            16 => {
                let word = |dice: &mut Dice| dice.number();
                inbox.marks.top.fetch_or(word(&mut self.dice), Relaxed);
                inbox.marks.middle[self.dice.below(16)].fetch_or(word(&mut self.dice), Relaxed);
                inbox.marks.low[self.dice.below(1024)].fetch_or(word(&mut self.dice), Relaxed);
                self.rouse();
            }
            17 => {
                // Those of sleepers are left alone, and no mark is wiped: of the own user's peers that is not defended (docs/security-claims.md).
                let ticket = &inbox.asleep[64 + self.dice.below(BELLS - 64)];
                ticket.store(self.dice.number() as u32, Relaxed);
            }
            18 => {
                let odd = peer::odd(&mut self.dice);
                let number = [1, 2, 3, 0, 4096, u32::MAX][self.dice.below(6)];
                peer::send(&m.channel, &peer::octets(&peer::bell(number)), &[&odd]);
                let places = if self.dice.below(2) == 0 { &d.ra.wait } else { &d.wa.wait };
                places[self.dice.below(4)].store(u64::from(number) << 32 | 1, Relaxed);
            }
            19 => {
                let (octets, odd) = (self.dice.octets(200), peer::odd(&mut self.dice));
                let len = self.dice.below(2) * octets.len();
                peer::send(&m.channel, &octets[..len], &[&odd, &odd]);
            }
            20 => self.storm(),
            21 => {
                let _ = kill_process(self.victim, Signal::STOP);
                for _ in 0..4 {
                    let d = &control.direction[self.dice.below(2)];
                    d.t.tail.store(self.position(d), Relaxed);
                    d.h.head.store(self.position(d), Relaxed);
                }
                kill_process(self.victim, Signal::CONT).expect("SIGCONT");
            }
            22 if self.dice.below(8) == 0 => {
                let _ = self.line.stream.shutdown(Shutdown::Write);
            }
            23 => self.rouse(),
            24 => std::thread::sleep(Duration::from_micros(self.dice.below(500) as u64)),
            _ => {
                let octets = self.dice.octets(300);
                self.say(&octets);
            }
        }
    }

    /// Words that change all the time, most of them to what could be.
    fn storm(&mut self) {
        let Some(m) = &self.mapped else { return };
        let (d, size) = (&m.control.direction[self.dice.below(2)], m.ring.size());
        let head = Head::from_raw(d.h.head.load(Relaxed)).position();
        let until = Instant::now() + Duration::from_millis(1 + self.dice.below(10) as u64);
        let kind = self.dice.below(3);
        d.t.tail.store(head + size, Relaxed);
        while Instant::now() < until {
            for i in 0..size {
                match kind {
                    0 => d.h.head.store(Head::new(head + i, Path::Ring).raw(), Relaxed),
                    1 => d.h.head.store(self.dice.next(), Relaxed),
                    _ => d.t.tail.store(head + self.dice.next() % (2 * size), Relaxed),
                }
            }
        }
    }

    fn end(mut self) -> Reached {
        if self.dice.below(3) == 0 {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let value: [i32; 2] = [linger.l_onoff, linger.l_linger];
            let raw: Vec<u8> = value.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let _ = bypath_sys::sock::set_option(
                self.line.stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                &raw,
            );
        }
        let before = self.dice.below(3);
        if before == 0
            && let Some(m) = &self.mapped
        {
            m.let_go();
            self.mapped = None;
        }
        drop(self.line);
        if let Some(m) = &self.mapped {
            if before == 1 {
                let d = &m.control.direction[self.dice.below(2)];
                d.h.head.store(self.dice.number(), Relaxed);
                d.t.tail.store(self.dice.number(), Relaxed);
            }
            m.let_go();
        }
        self.reached
    }
}
