//! One mailbox's worth of malice, from either end of it: the handshake, some honest datagrams, then anything at all.

use crate::dice::Dice;
use crate::mail::{self, Shared};
use crate::peer;
use bypath_shm::dgram::{MARK, Octets, Record, span};
use bypath_shm::mailbox::{Mailbox, Pushed, Reader, Writer, phase};
use bypath_shm::ring::Ring;
use rustix::process::{Pid, Signal, kill_process};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

/// How far attacks came.
#[derive(Debug, Default, Clone, Copy)]
pub struct Reached {
    pub mapped: u64,
    /// Datagrams went through the ring in good order before.
    pub ring: u64,
}

/// Which end is hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has the mailbox of the victim's socket at this port.
    Sender(u16),
    /// The victim has its mailbox.
    Receiver,
}

pub struct Fake {
    dice: Dice,
    pub socket: UdpSocket,
    end: End,
    victim: Pid,
    shared: Option<Shared>,
    left: AtomicU64,
    pub reached: Reached,
}

impl Fake {
    /// As far as honest ends come.
    pub fn new(end: End, socket: UdpSocket, victim: Pid, seed: u64) -> Fake {
        let mut dice = Dice(seed);
        let shared = match end {
            // Who is refused asks again, as honest ones do.
            End::Sender(to) => {
                let shared = (0..3).find_map(|_| mail::ask(&socket, to, &mut dice));
                if let (Some(shared), Some(mut own)) = (&shared, peer::second(&dice)) {
                    mail::scribbled(&shared.map, &mut own, || {
                        drop(socket.send_to(b"look", ("127.0.0.1", to)));
                    });
                }
                shared
            }
            End::Receiver => mail::answer(&socket, &mut dice),
        };
        let reached = Reached { mapped: shared.is_some().into(), ring: 0 };
        Fake { dice, socket, end, victim, shared, left: AtomicU64::new(0), reached }
    }

    /// Then anything. What is left is the victim's business.
    pub fn run(&mut self) {
        self.settle();
        for _ in 0..8 + self.dice.below(64) {
            self.step();
        }
    }

    fn settle(&mut self) {
        let until = Instant::now() + Duration::from_millis(if self.dice.below(4) == 0 { 0 } else { 50 });
        while self.shared.is_some() && self.reached.ring == 0 && Instant::now() < until {
            if self.end != End::Receiver {
                // What wakes it lets it look at the ring for a while.
                self.by_kernel();
            }
            let burst = Instant::now() + Duration::from_micros(300);
            while self.reached.ring == 0 && Instant::now() < burst {
                self.reached.ring = self.honest(0).into();
            }
        }
    }

    fn by_kernel(&mut self) {
        let octets = self.dice.octets(3000);
        match self.end {
            End::Sender(to) => drop(self.socket.send_to(&octets, ("127.0.0.1", to))),
            End::Receiver => while self.socket.recv(&mut [0; 64]).is_ok() {},
        }
    }

    /// A datagram by the rules; whether one went through the ring.
    fn honest(&mut self, head: usize) -> bool {
        let Some(Shared { map, head: own, .. }) = &self.shared else { return false };
        match self.end {
            End::Sender(_) => {
                let writer = Writer::new(map.mailbox(), map.ring(), std::process::id());
                let octets = self.dice.octets(2000);
                let head = &own[..[24, 48, 0, 23, 47][head]];
                writer.push(&self.left, head, &octets, u64::MAX) == Pushed::Sent
            }
            End::Receiver => {
                let reader = Reader::new(map.mailbox(), map.ring());
                if self.reached.ring == 0 {
                    // Who has sent by the kernel while it was open waits for it to be opened again.
                    reader.close();
                }
                let epoch = reader.open_begin();
                while self.socket.recv(&mut [0; 64]).is_ok() {}
                let _ = epoch.is_some_and(|epoch| reader.open_finish(epoch));
                let peeked = reader.peek().ok().flatten();
                peeked.is_some_and(|peeked| reader.release(&peeked))
            }
        }
    }

    /// A position near something.
    fn position(&mut self, mailbox: &Mailbox, size: u64) -> u64 {
        let base = if self.dice.below(2) == 0 { &mailbox.head } else { &mailbox.tail }.0.load(Relaxed);
        let near = self.dice.below(5) as u64 * if self.dice.below(3) == 0 { 1 } else { 8 };
        match self.dice.below(6) {
            0 => base.wrapping_add(near),
            1 => base.wrapping_sub(near),
            2 => base.wrapping_add(size).wrapping_add(near),
            3 => base.wrapping_sub(size).wrapping_sub(near),
            4 => base.wrapping_add((self.dice.next() % size) & !7),
            _ => self.dice.number(),
        }
    }

    /// A record's word where a reader may look for one.
    fn record(&mut self, ring: &Ring, mailbox: &Mailbox) {
        let heads = [24, 48, 0, 256, 257, self.dice.next() as u16];
        let lengths = [0, 8, 100, ring.size() as u32, 65_527, 65_528, u32::MAX, self.dice.number() as u32];
        let record = Record {
            octets: lengths[self.dice.below(lengths.len())],
            head: heads[self.dice.below(heads.len())],
            mark: if self.dice.below(8) == 0 { self.dice.next() as u16 } else { MARK },
        };
        let at = if self.dice.below(2) == 0 { &mailbox.head } else { &mailbox.tail };
        ring.put(at.0.load(Relaxed), &record.encode());
    }

    fn step(&mut self) {
        if self.dice.below(4) == 0 {
            self.by_kernel();
        }
        let Some(Shared { channel, map, .. }) = &self.shared else { return };
        let (mailbox, ring) = (map.mailbox(), map.ring());
        let size = ring.size();
        match self.dice.below(22) {
            0..4 => drop(self.honest(0)),
            4 => {
                let head = self.dice.below(5);
                self.honest(head);
            }
            5 => {
                let epoch = self.dice.number() << 2;
                let word = [phase::CLOSED, phase::OPENING, phase::OPEN, phase::OPEN][self.dice.below(4)];
                mailbox.gate.0.store(epoch | word, Relaxed);
            }
            6 => mailbox.gate.0.store(self.dice.number(), Relaxed),
            7 | 8 => {
                let position = self.position(mailbox, size);
                mailbox.head.0.store(position, Relaxed);
            }
            9 | 10 => {
                let position = self.position(mailbox, size);
                let word = [&mailbox.tail.0, &mailbox.writers.tail][self.dice.below(2)];
                word.store(position, Relaxed);
            }
            11 => {
                let own = std::process::id();
                let owner = [0, 1, own, self.victim.as_raw_nonzero().get() as u32, !0][self.dice.below(5)];
                mailbox.writers.lock.store(owner, Relaxed);
            }
            12 => {
                let position = self.position(mailbox, size);
                mailbox.writers.head.store(position, Relaxed);
                mailbox.writers.lost.store(self.dice.number(), Relaxed);
            }
            13 | 14 => self.record(&ring, mailbox),
            15 => {
                let octets = self.dice.octets(size.min(65_536) as usize);
                ring.copy_from_slice(self.dice.number(), &octets);
            }
            16 => self.storm(),
            17 => self.flood(),
            18 => {
                let _ = kill_process(self.victim, Signal::STOP);
                for _ in 0..4 {
                    let (at, position) = (self.dice.below(2), self.position(mailbox, size));
                    [&mailbox.head, &mailbox.tail][at].0.store(position, Relaxed);
                }
                kill_process(self.victim, Signal::CONT).expect("SIGCONT");
            }
            19 => {
                let (octets, odd) = (self.dice.octets(200), peer::odd(&mut self.dice));
                let len = self.dice.below(2) * octets.len();
                peer::send(channel, &octets[..len], &[&odd, &odd]);
            }
            20 if self.dice.below(8) == 0 => mailbox.reset(),
            20 => self.elsewhere(),
            _ => std::thread::sleep(Duration::from_micros(self.dice.below(500) as u64)),
        }
    }

    /// All in good order, but for where that is.
    fn elsewhere(&mut self) {
        let number = self.dice.number() & !7;
        let Some(Shared { map, head, .. }) = &self.shared else { return };
        let (mailbox, ring) = (map.mailbox(), map.ring());
        let octets = self.dice.below(2000);
        ring.put(number, &Record { octets: octets as u32, head: 24, mark: MARK }.encode());
        ring.put(number.wrapping_add(8), &head[..24]);
        let tail = number.wrapping_add(span(24, octets));
        mailbox.writers.tail.store(tail, Relaxed);
        mailbox.tail.0.store(tail, Relaxed);
        mailbox.head.0.store(number, Relaxed);
    }

    /// Words that change all the time, most of them to what could be.
    fn storm(&mut self) {
        let Some(Shared { map, .. }) = &self.shared else { return };
        let (mailbox, ring) = (map.mailbox(), map.ring());
        let head = mailbox.head.0.load(Relaxed);
        let until = Instant::now() + Duration::from_millis(1 + self.dice.below(10) as u64);
        let kind = self.dice.below(5);
        while Instant::now() < until {
            for i in 0..512 {
                let position = head.wrapping_add((self.dice.next() % (2 * ring.size())) & !7);
                match kind {
                    0 => mailbox.head.0.store(position, Relaxed),
                    1 => mailbox.tail.0.store(position, Relaxed),
                    2 => mailbox.gate.0.store(self.dice.next() & !3 | i & 3, Relaxed),
                    3 => {
                        let octets = (self.dice.next() % 3000) as u32;
                        let record = Record { octets, head: [24, 48][i as usize & 1], mark: MARK };
                        ring.put(mailbox.head.0.load(Relaxed), &record.encode());
                    }
                    _ => {
                        mailbox.writers.head.store(position, Relaxed);
                        mailbox.writers.tail.store(position, Relaxed);
                        mailbox.writers.lock.store(i as u32 & 1, Relaxed);
                    }
                }
            }
        }
    }

    /// As many records as the ring holds, again and again, whatever the gate says.
    fn flood(&mut self) {
        let Some(Shared { map, head, .. }) = &self.shared else { return };
        fill(&map.ring(), head);
        let until = Instant::now() + Duration::from_millis(1 + self.dice.below(10) as u64);
        while Instant::now() < until {
            keep_full(map.mailbox(), map.ring().size());
        }
    }

    /// Takes its hands off; the socket is the caller's again.
    pub fn end(mut self) -> (UdpSocket, Reached) {
        if let Some(Shared { channel, map, .. }) = self.shared.take() {
            match self.dice.below(3) {
                0 => map.let_go(),
                1 => {
                    // All is well, it says, and nobody is there.
                    map.mailbox().reset();
                    map.mailbox().gate.0.store((1 << 61) | phase::OPEN, SeqCst);
                }
                _ => {}
            }
            drop(channel);
            map.let_go();
        }
        (self.socket, self.reached)
    }
}

/// Records without octets at all places of the ring, of as many octets each as divide its size.
pub fn fill(ring: &Ring, head: &[u8; 48]) {
    let each = span(24, 0);
    for at in (0..ring.size()).step_by(each as usize) {
        ring.put(at, &Record { octets: 0, head: 24, mark: MARK }.encode());
        ring.put(at + 8, &head[..24]);
    }
}

/// Says that there is as much to read as there can be.
pub fn keep_full(mailbox: &Mailbox, size: u64) {
    for _ in 0..64 {
        let head = mailbox.head.0.load(Relaxed) & !31;
        mailbox.tail.0.store(head.wrapping_add(size), Relaxed);
    }
}
