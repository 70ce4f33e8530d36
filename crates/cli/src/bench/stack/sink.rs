//! A link that ends in a buffer, for an engine: what is written into it is gone, but for a frame that somebody wants to see.

use super::write::MACS;
use bypath::link::{Capabilities, Each, Link, Medium, Next, Result, Statistics, Timestamps};
use bypath::wire::FrameMeta;
use std::hint::black_box;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What is known of the frames that went into it. One thread uses both ends.
pub struct Sink {
    longest: usize,
    /// Octets of the last frame.
    len: AtomicUsize,
    /// The next frame is kept.
    wanted: AtomicBool,
    kept: Mutex<(Vec<u8>, FrameMeta)>,
}

/// The end that an engine has.
pub struct End {
    sink: std::sync::Arc<Sink>,
    room: Vec<u8>,
    mtu: usize,
    offloads: bool,
}

impl Sink {
    /// For frames of so many octets at most.
    pub fn new(longest: usize) -> Sink {
        let kept = Mutex::new((vec![0; longest], FrameMeta::default()));
        Sink { longest, len: AtomicUsize::new(0), wanted: AtomicBool::new(false), kept }
    }

    /// The link to it.
    pub fn link(self: &std::sync::Arc<Sink>, mtu: usize, offloads: bool) -> End {
        End { sink: std::sync::Arc::clone(self), room: vec![0; self.longest], mtu, offloads }
    }

    /// Octets of the last frame.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// The next frame is to be kept.
    pub fn keep(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// The frame that was kept, and what belongs to it.
    pub fn take(&self, room: &mut [u8]) -> FrameMeta {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        room.copy_from_slice(&kept.0);
        kept.1
    }
}

impl Link for End {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            medium: Medium::Ethernet,
            mac: MACS[0],
            mtu: self.mtu,
            tagged_mtu: self.mtu,
            longest: self.room.len(),
            checksum: self.offloads,
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

    fn receive(&mut self, _: usize, _: &mut Each<'_>) -> Result<usize> {
        Ok(0)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        for n in 0..most {
            let Some((len, meta)) = next(&mut self.room) else { return Ok(n) };
            black_box(&self.room[..len]);
            self.sink.len.store(len, Relaxed);
            if self.sink.wanted.load(Relaxed) {
                self.sink.wanted.store(false, Relaxed);
                let mut kept = self.sink.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.0[..len].copy_from_slice(&self.room[..len]);
                kept.1 = meta;
            }
        }
        Ok(most)
    }

    fn flush(&mut self) -> Result<usize> {
        Ok(0)
    }

    fn forget(&mut self) -> usize {
        0
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }
}
