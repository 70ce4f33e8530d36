//! The way out.

use super::{HEADER, PacketLink, STUCK_NS, Sender, State, meta};
use crate::refusal::{Refusal, examine};
use crate::{Error, Next, Result};
use bypath_sys::packet::frame::HEADROOM;
use bypath_sys::{Errno, clock};
use std::os::fd::AsFd;

impl PacketLink {
    pub(super) fn give(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        if self.state == State::Gone {
            return Err(Error::Gone { interface: self.interface.name.clone() });
        }
        // What was pending goes first.
        if self.push()? > 0 && !self.has_room() {
            return Ok(0);
        }
        let mut given = 0;
        loop {
            let (accepted, refusal, more) = self.accept(most - given, next);
            given += accepted;
            let left = self.push();
            if let Some(refusal) = refusal {
                left?;
                return Err(self.refuse(refusal));
            }
            // Without room there is no going on, and with nothing accepted nothing to be gained.
            if left? > 0 && !self.has_room() || !more || accepted == 0 || given >= most {
                return Ok(given);
            }
        }
    }

    /// Lets `next` fill what room there is. Returns how many frames it wrote, what was wrong with the last one, and
    /// whether it may have more.
    fn accept(&mut self, most: usize, next: &mut Next<'_>) -> (usize, Option<Refusal>, bool) {
        let mut accepted = 0;
        let mut refusal = None;
        while accepted < most {
            let (mtu, longest, offload, timed) =
                (self.mtu, self.longest, self.obtained.offload, self.obtained.send_time);
            let loopback = self.interface.loopback;
            let mut asked = false;
            let mut fill = |slot: &mut [u8]| {
                asked = true;
                let slot = &mut slot[..longest];
                let (len, meta) = next(slot)?;
                refusal = examine(&slot[..len.min(longest)], len, &meta, mtu, loopback, offload).err();
                refusal.is_none().then(|| (len, meta::to_send(&meta, timed)))
            };
            let len = match &mut self.sender {
                Sender::Plain { pending: Some(_), .. } => break,
                Sender::Plain { buffer, pending } => fill(&mut buffer[HEADROOM..]).map(|(len, how)| {
                    *pending = Some((len, how));
                    len
                }),
                Sender::Batch(batch) => {
                    let filled = batch.slot().and_then(fill);
                    filled.filter(|(len, how)| batch.add(*len, how)).map(|(len, _)| len)
                }
                Sender::Ring => self.device.as_mut().and_then(|d| match d {
                    super::Device::Ring(ring) => ring.put(&mut fill),
                    super::Device::Plain(_) => None,
                }),
            };
            let Some(len) = len else {
                // Asked and nothing: it has no more. Not asked: there is no room.
                return (accepted, refusal, !asked);
            };
            accepted += 1;
            self.statistics.sent += 1;
            self.statistics.sent_octets += len as u64;
        }
        (accepted, refusal, true)
    }

    fn refuse(&mut self, refusal: Refusal) -> Error {
        self.statistics.sent += 1;
        self.statistics.refused += 1;
        if matches!(refusal, Refusal::TooLong { .. }) {
            self.refresh_mtu();
        }
        let offload =
            "the frame leaves its checksum or segmentation to the link, which was opened without offload";
        refusal.error(&self.interface, self.mtu, self.longest, offload)
    }

    fn has_room(&mut self) -> bool {
        match &mut self.sender {
            Sender::Plain { pending, .. } => pending.is_none(),
            Sender::Batch(batch) => batch.slot().is_some(),
            Sender::Ring => self.ring().is_some_and(|r| r.has_room()),
        }
    }

    /// Gives the kernel what is pending; returns how many frames still are.
    pub(super) fn push(&mut self) -> Result<usize> {
        loop {
            let Some(device) = self.device.as_mut() else { return Ok(0) };
            let (before, result) = match (&mut self.sender, device) {
                (Sender::Plain { pending: None, .. }, _) => return Ok(0),
                (Sender::Plain { buffer, pending: Some((len, how)) }, device) => {
                    let sent = device.socket().send(buffer, *len, how, self.obtained.offload);
                    (1, sent)
                }
                (Sender::Batch(batch), device) => match batch.pending() {
                    0 => return Ok(0),
                    n => (n, batch.send(device.socket().as_fd()).map(|_| ())),
                },
                (Sender::Ring, super::Device::Ring(ring)) => match ring.pending() {
                    0 => return Ok(0),
                    n => (n, ring.kick()),
                },
                (Sender::Ring, super::Device::Plain(_)) => return Ok(0),
            };
            match result {
                Ok(()) => {
                    self.stuck = None;
                    if let Sender::Plain { pending, .. } = &mut self.sender {
                        *pending = None;
                    }
                    let left = self.pending();
                    if left == 0 || left >= before {
                        return Ok(left);
                    }
                }
                Err(Errno::AGAIN) => return Ok(self.pending()),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) if matches!(self.sender, Sender::Ring) => {
                    let left = self.pending();
                    if left < before {
                        self.stuck = None;
                    } else if self.is_stuck() {
                        return Err(self.give_up_first());
                    }
                    return Ok(left);
                }
                Err(e) => return Err(self.not_sent(e)),
            }
        }
    }

    /// The kernel threw the first frame of the send ring away once more: for how long has it?
    fn is_stuck(&mut self) -> bool {
        let now = clock::monotonic_ns();
        now.saturating_sub(*self.stuck.get_or_insert(now)) >= STUCK_NS
    }

    /// Takes the first frame out of the send ring: others may go where it does not.
    fn give_up_first(&mut self) -> Error {
        self.stuck = None;
        let len = self.ring().map_or(0, |r| r.take_out_first());
        self.statistics.refused += 1;
        Error::QueueFull { interface: self.interface.name.clone(), payload: len.saturating_sub(HEADER) }
    }

    fn pending(&mut self) -> usize {
        match &mut self.sender {
            Sender::Plain { pending, .. } => usize::from(pending.is_some()),
            Sender::Batch(batch) => batch.pending(),
            Sender::Ring => self.ring().map_or(0, |r| r.pending()),
        }
    }

    /// Drops the first pending frame, which the kernel refused; a ring has done so already.
    fn skip(&mut self) {
        match &mut self.sender {
            Sender::Plain { pending, .. } => *pending = None,
            Sender::Batch(batch) => batch.skip(1),
            Sender::Ring => {}
        }
        self.statistics.refused += 1;
    }

    /// Octets of payload of the frame that the kernel refused.
    fn refused_payload(&mut self) -> usize {
        let len = match &mut self.sender {
            Sender::Plain { pending, .. } => pending.map_or(0, |(len, _)| len),
            Sender::Batch(batch) => batch.first_len(),
            Sender::Ring => self.ring().map_or(0, |r| r.refused_len()),
        };
        len.saturating_sub(HEADER)
    }

    fn not_sent(&mut self, e: Errno) -> Error {
        let interface = self.interface.name.clone();
        match e {
            Errno::MSGSIZE => {
                // The MTU was lowered.
                let payload = self.refused_payload();
                self.skip();
                self.refresh_mtu();
                Error::TooLong { interface, payload, mtu: self.mtu }
            }
            Errno::NOBUFS => {
                let payload = self.refused_payload();
                self.skip();
                Error::QueueFull { interface, payload }
            }
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => {
                self.forget_pending();
                self.lost()
            }
            e => {
                self.skip();
                Error::system("send", e)
            }
        }
    }

    pub(super) fn forget_pending(&mut self) -> usize {
        let count = self.pending();
        match &mut self.sender {
            Sender::Plain { pending, .. } => *pending = None,
            Sender::Batch(batch) => batch.skip(count),
            Sender::Ring => {
                if let Some(ring) = self.ring() {
                    ring.forget_pending();
                }
            }
        }
        self.statistics.refused += count as u64;
        count
    }
}
