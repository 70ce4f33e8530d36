//! The way in.

use super::{Device, PacketLink, Receiver, State, meta};
use crate::{Each, Error, Result, Statistics, Timestamps};
use bypath_sys::Errno;
use bypath_sys::packet::frame::{Arrival, HEADROOM};
use bypath_wire::FrameMeta;
use std::os::fd::AsFd;

/// Frames of one call at most, where the kernel could go on for ever: a sender may be faster than who takes them.
const BURST: usize = 1024;

/// Gives out one frame, or counts it where octets are missing.
fn deliver(
    statistics: &mut Statistics,
    lost: &mut Option<u64>,
    stamped: bool,
    frame: &[u8],
    a: &Arrival,
    each: &mut Each<'_>,
) -> usize {
    if let (Some(all), Some(now)) = (lost.as_mut(), a.dropped) {
        // The kernel counts with 32 bits.
        *all += u64::from(now.wrapping_sub(*all as u32));
    }
    if a.is_cut() {
        statistics.cut += 1;
        return 0;
    }
    statistics.received += 1;
    statistics.received_octets += frame.len() as u64;
    each(frame, &FrameMeta { dropped: *lost, ..meta::received(frame, a, stamped) });
    1
}

impl PacketLink {
    pub(super) fn take(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        if self.state == State::Gone {
            return Err(Error::Gone { interface: self.interface.name.clone() });
        }
        if let Some(e) = self.noted.take() {
            return Err(self.failed("receive", e));
        }
        let given = match &self.receiver {
            Receiver::Plain(_) => self.take_singly(most.min(BURST), each),
            Receiver::Batch(_) => self.take_batches(most.min(BURST), each),
            Receiver::Ring => Ok(self.take_from_ring(most, each)),
        };
        match given {
            Ok(0) if most > 0 => self.silent().map(|()| 0),
            Ok(n) => {
                self.empty = 0;
                self.state = State::Up;
                Ok(n)
            }
            Err(e) => Err(self.failed("receive", e)),
        }
    }

    fn take_singly(&mut self, most: usize, each: &mut Each<'_>) -> std::result::Result<usize, Errno> {
        let (stamped, vnet) = (self.obtained.timestamps != Timestamps::None, self.obtained.offload);
        let (Some(device), Receiver::Plain(buffer)) = (&self.device, &mut self.receiver) else {
            return Ok(0);
        };
        let mut given = 0;
        while given < most {
            match device.socket().receive(buffer, vnet) {
                Ok(a) => {
                    let frame = &buffer[HEADROOM..HEADROOM + a.len];
                    given += deliver(&mut self.statistics, &mut self.lost, stamped, frame, &a, each);
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) if given == 0 => return Err(e),
                Err(e) => {
                    // This call has frames to report; the next one reports the error.
                    self.noted = Some(e);
                    break;
                }
            }
        }
        Ok(given)
    }

    fn take_batches(&mut self, most: usize, each: &mut Each<'_>) -> std::result::Result<usize, Errno> {
        let stamped = self.obtained.timestamps != Timestamps::None;
        let (Some(device), Receiver::Batch(batch)) = (&self.device, &mut self.receiver) else { return Ok(0) };
        let mut given = 0;
        while given < most {
            let asked = batch.count().min(most - given);
            match batch.receive(device.socket().as_fd(), asked) {
                Ok(got) => {
                    for (frame, a) in batch.frames() {
                        given += deliver(&mut self.statistics, &mut self.lost, stamped, frame, a, each);
                    }
                    if got < asked {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(e) if given == 0 => return Err(e),
                Err(e) => {
                    // This call has frames to report; the next one reports the error.
                    self.noted = Some(e);
                    break;
                }
            }
        }
        Ok(given)
    }

    fn take_from_ring(&mut self, most: usize, each: &mut Each<'_>) -> usize {
        let stamped = self.obtained.timestamps != Timestamps::None;
        let (statistics, lost) = (&mut self.statistics, &mut self.lost);
        let Some(Device::Ring(ring)) = &mut self.device else { return 0 };
        let mut given = 0;
        loop {
            let mut seen = 0;
            ring.receive(most - given, &mut |frame, a| {
                seen += 1;
                given += deliver(statistics, lost, stamped, frame, a, each);
            });
            // Where all frames were left out there may be others: nothing given means that there is nothing.
            if seen == 0 || given > 0 {
                return given;
            }
        }
    }
}
