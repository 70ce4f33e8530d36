//! Two ends in memory: what one sends, the other receives, in order and without loss but for a full queue. No thread, no
//! clock and no chance are involved, so the same calls have the same effect every time.

use crate::{Capabilities, Each, Error, Link, MacAddr, Medium, Next, Result, Statistics, Timestamps};
use bypath_wire::FrameMeta;
use bypath_wire::meta::Addressed;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets of headers beside the MTU: an Ethernet header and two tags.
const HEADERS: usize = 22;
const ETHERNET: usize = 14;

/// Makes two ends. `mtu`: octets of payload; `queue`: frames that wait for either end at most.
///
/// Their addresses are 02:00:00:00:00:01 and 02:00:00:00:00:02.
pub fn pair(mtu: usize, queue: usize) -> (End, End) {
    let shared = Arc::new(Mutex::new([Queue::new(mtu, queue), Queue::new(mtu, queue)]));
    let end = |side: usize| End {
        side,
        mtu,
        shared: Arc::clone(&shared),
        scratch: vec![0; mtu + HEADERS],
        statistics: Statistics::default(),
    };
    (end(0), end(1))
}

/// One of two ends.
pub struct End {
    side: usize,
    mtu: usize,
    shared: Arc<Mutex<[Queue; 2]>>,
    /// The frame that is given out, so that no lock is held meanwhile.
    scratch: Vec<u8>,
    statistics: Statistics,
}

/// Frames on their way to one end.
struct Queue {
    waiting: VecDeque<(Vec<u8>, FrameMeta)>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    most: usize,
}

impl Queue {
    fn new(mtu: usize, most: usize) -> Queue {
        let spare = (0..most).map(|_| Vec::with_capacity(mtu + HEADERS)).collect();
        Queue { waiting: VecDeque::with_capacity(most), spare, most }
    }
}

impl End {
    /// This end's address.
    pub const fn mac(&self) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, self.side as u8 + 1])
    }

    /// Frames that wait for this end.
    pub fn waiting(&self) -> usize {
        self.queues()[self.side].waiting.len()
    }

    fn queues(&self) -> MutexGuard<'_, [Queue; 2]> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addressed(&self, frame: &[u8]) -> Addressed {
        match frame.get(..6) {
            Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Addressed::Broadcast,
            Some(mac) if mac[0] & 1 != 0 => Addressed::Multicast,
            Some(mac) if mac == self.mac().0 => Addressed::Host,
            _ => Addressed::OtherHost,
        }
    }
}

impl Link for End {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            medium: Medium::Ethernet,
            mac: self.mac(),
            mtu: self.mtu,
            tagged_mtu: self.mtu,
            longest: self.mtu + HEADERS,
            checksum: false,
            segmentation: false,
            timestamps: Timestamps::None,
            send_time: false,
            batch: usize::MAX,
            wakes_at_end: true,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        let mut given = 0;
        // What arrives meanwhile is for the next call.
        let most = most.min(self.waiting());
        while given < most {
            let mut scratch = std::mem::take(&mut self.scratch);
            let taken = {
                let mut queues = self.queues();
                let queue = &mut queues[self.side];
                queue.waiting.pop_front().map(|(frame, meta)| {
                    scratch.clear();
                    scratch.extend_from_slice(&frame);
                    queue.spare.push(frame);
                    meta
                })
            };
            if let Some(meta) = taken {
                let meta = FrameMeta { addressed: self.addressed(&scratch), ..meta };
                self.statistics.received += 1;
                self.statistics.received_octets += scratch.len() as u64;
                each(&scratch, &meta);
                given += 1;
            }
            self.scratch = scratch;
            if taken.is_none() {
                break;
            }
        }
        Ok(given)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        let longest = self.mtu + HEADERS;
        let other = 1 - self.side;
        let mut given = 0;
        while given < most {
            let buffer = {
                let mut queues = self.queues();
                let queue = &mut queues[other];
                if queue.waiting.len() < queue.most { queue.spare.pop() } else { None }
            };
            let Some(mut buffer) = buffer else { break };
            buffer.resize(longest, 0);
            let written = next(&mut buffer);
            let mut queues = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            let queue = &mut queues[other];
            let Some((len, meta)) = written else {
                queue.spare.push(buffer);
                break;
            };
            let tagged = matches!(buffer.get(12..ETHERNET), Some([0x81, 0] | [0x88, 0xa8]));
            let payload = len.saturating_sub(ETHERNET + if tagged { 4 } else { 0 });
            if len < ETHERNET || payload > self.mtu || len > longest {
                queue.spare.push(buffer);
                self.statistics.sent += 1;
                self.statistics.refused += 1;
                if len < ETHERNET {
                    return Err(Error::TooShort { len });
                }
                return Err(Error::TooLong { interface: "the pair".to_owned(), payload, mtu: self.mtu });
            }
            buffer.truncate(len);
            let meta = FrameMeta { vlan: meta.vlan, ..FrameMeta::default() };
            queue.waiting.push_back((buffer, meta));
            drop(queues);
            self.statistics.sent += 1;
            self.statistics.sent_octets += len as u64;
            given += 1;
        }
        Ok(given)
    }

    fn flush(&mut self) -> Result<usize> {
        Ok(0)
    }

    fn forget(&mut self) -> usize {
        0
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_wire::meta::VlanTag;

    fn put(end: &mut End, frames: &[Vec<u8>]) -> Result<usize> {
        let mut rest = frames.iter();
        end.send(frames.len(), &mut |slot| {
            let frame = rest.next()?;
            slot[..frame.len()].copy_from_slice(frame);
            Some((frame.len(), FrameMeta::default()))
        })
    }

    fn frame(to: MacAddr, len: usize, fill: u8) -> Vec<u8> {
        let mut bytes = to.0.to_vec();
        bytes.resize(len, fill);
        bytes
    }

    #[test]
    fn what_one_end_sends_the_other_receives_in_order_and_the_queue_is_bounded() {
        let (mut a, mut b) = pair(1500, 4);
        let frames: Vec<_> = (0..6).map(|n| frame(b.mac(), 100 + n, n as u8)).collect();
        assert_eq!(put(&mut a, &frames), Ok(4));
        let mut got = Vec::new();
        assert_eq!(b.receive(3, &mut |f, m| got.push((f.to_vec(), m.addressed))), Ok(3));
        assert_eq!(put(&mut a, &frames[4..]), Ok(2));
        assert_eq!(b.receive(9, &mut |f, m| got.push((f.to_vec(), m.addressed))), Ok(3));
        assert_eq!(b.receive(9, &mut |_, _| unreachable!()), Ok(0));
        assert_eq!(got, frames.into_iter().map(|f| (f, Addressed::Host)).collect::<Vec<_>>());
        assert_eq!(a.statistics().sent, 6);
        assert_eq!(b.statistics().received, 6);
    }

    #[test]
    fn frames_beyond_the_mtu_are_refused_and_a_tag_travels_beside() {
        let (mut a, mut b) = pair(100, 4);
        assert_eq!(put(&mut a, &[frame(b.mac(), 114, 1)]), Ok(1));
        let long = put(&mut a, &[frame(b.mac(), 115, 1)]);
        assert_eq!(long, Err(Error::TooLong { interface: "the pair".to_owned(), payload: 101, mtu: 100 }));
        assert_eq!(put(&mut a, &[vec![1; 13]]), Err(Error::TooShort { len: 13 }));
        assert_eq!(a.statistics().refused, 2);
        let vlan = Some(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 });
        let mut once = Some((60, FrameMeta { vlan, ..FrameMeta::default() }));
        assert_eq!(a.send(2, &mut |_| once.take()), Ok(1));
        let mut tags = Vec::new();
        assert_eq!(b.receive(9, &mut |_, m| tags.push(m.vlan)), Ok(2));
        assert_eq!(tags, [None, vlan]);
    }
}
