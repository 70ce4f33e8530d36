//! A link whose frames are also written into a capture file (pcapng): received and sent ones, with their direction, the
//! time in nanoseconds, and what was lost.
//!
//! A tag that travels beside a frame is written where it stands on the wire. Frames that leave their checksum or
//! segmentation to the link are written as they were given.

use crate::pcapng::writer::Frame;
use crate::pcapng::{Counts, Direction, Reception, Writer};
use crate::{Capabilities, Each, Link, Next, Result, Statistics, Timestamps};
use bypath_wire::FrameMeta;
use bypath_wire::meta::{Addressed, TimestampSource};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

const ADDRESSES: usize = 12;

/// A link that is looked at.
///
/// Frames pass even where they cannot be written: the first error ends the capture, and is told by
/// [`error`](Capture::error) and [`finish`](Capture::finish).
pub struct Capture<L, W, C> {
    link: L,
    file: File<W>,
    clock: C,
    start: u64,
    /// Frames that the link had dropped when the last received one was written.
    dropped: u64,
}

struct File<W> {
    writer: Writer<W>,
    interface: u32,
    frames: u64,
    failed: Option<io::Error>,
}

impl<W: Write> File<W> {
    fn write(&mut self, frame: &Frame<'_>) {
        if self.failed.is_none() {
            match self.writer.frame(frame) {
                Ok(()) => self.frames += 1,
                Err(e) => self.failed = Some(e),
            }
        }
    }

    fn put(&mut self, bytes: &[u8], meta: &FrameMeta, ns: u64, direction: Direction, lost: Option<u64>) {
        let mut tag = [0; 4];
        let pieces = match meta.vlan {
            Some(vlan) if bytes.len() >= ADDRESSES => {
                tag[..2].copy_from_slice(&vlan.tpid.to_be_bytes());
                tag[2..].copy_from_slice(&vlan.tci().to_be_bytes());
                [&bytes[..ADDRESSES], &tag, &bytes[ADDRESSES..]]
            }
            _ => [bytes, &[], &[]],
        };
        let reception = match meta.addressed {
            Addressed::Host => Reception::Unicast,
            Addressed::Broadcast => Reception::Broadcast,
            Addressed::Multicast => Reception::Multicast,
            Addressed::OtherHost => Reception::Promiscuous,
            Addressed::Unknown | Addressed::Outgoing => Reception::Unknown,
        };
        let interface = self.interface;
        self.write(&Frame { interface, ns, pieces, direction, reception, lost, comment: None });
    }
}

impl<L: Link, W: Write, C: FnMut() -> u64> Capture<L, W, C> {
    /// Around `link`, which the file calls `name`; `clock` tells nanoseconds since 1970
    /// ([`bypath_sys::clock::realtime_ns`]) for frames that bring no time of the kernel's. Of each frame `snap` octets are
    /// written at most. Blocks are written one by one: give a `BufWriter` for many frames.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(link: L, name: &str, out: W, snap: usize, mut clock: C) -> io::Result<Capture<L, W, C>> {
        let mut writer = Writer::new(out, concat!("bypath ", env!("CARGO_PKG_VERSION")), snap)?;
        let interface = writer.interface(name, Some(link.capabilities().mac))?;
        let start = clock();
        let file = File { writer, interface, frames: 0, failed: None };
        Ok(Capture { link, file, clock, start, dropped: 0 })
    }

    /// Frames that were written.
    pub const fn frames(&self) -> u64 {
        self.file.frames
    }

    /// Why nothing is written any more.
    pub const fn error(&self) -> Option<&io::Error> {
        self.file.failed.as_ref()
    }

    /// The link inside.
    pub const fn inner(&mut self) -> &mut L {
        &mut self.link
    }

    /// Ends the file with the link's counters, and gives back the link and the writer.
    ///
    /// # Errors
    /// The error that ended the capture before, or those of the writer.
    pub fn finish(mut self) -> io::Result<(L, W)> {
        if let Some(e) = self.file.failed.take() {
            return Err(e);
        }
        let end = (self.clock)();
        let statistics = self.link.statistics();
        let counts = Counts {
            start: Some(self.start),
            end: Some(end),
            received: Some(statistics.received + statistics.dropped),
            dropped: Some(statistics.dropped),
        };
        self.file.writer.statistics(self.file.interface, end, &counts)?;
        self.file.writer.flush()?;
        Ok((self.link, self.file.writer.into_inner()))
    }
}

impl<L: Link, W: Write, C: FnMut() -> u64> Link for Capture<L, W, C> {
    fn capabilities(&self) -> Capabilities {
        self.link.capabilities()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        // One time for all of a call, unless the kernel took each frame's.
        let now = (self.clock)();
        // The counters cost a system call: looked at once for each call that brings frames, before they are given out.
        let (file, dropped) = (&mut self.file, self.dropped);
        let mut seen = None;
        let given = self.link.receive(most, &mut |bytes, meta| {
            let ns = match meta.timestamp {
                // A device's clock may begin anywhere.
                Some(t) if t.source == TimestampSource::Software => t.ns,
                _ => now,
            };
            let lost = if seen.is_none() { Some(dropped).filter(|&n| n > 0) } else { None };
            seen = Some(ns);
            file.put(bytes, meta, ns, Direction::In, lost);
            each(bytes, meta);
        });
        if seen.is_some() {
            self.dropped = 0;
        }
        given
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        let now = (self.clock)();
        let file = &mut self.file;
        self.link.send(most, &mut |slot| {
            let (len, meta) = next(slot)?;
            if let Some(bytes) = slot.get(..len) {
                file.put(bytes, &meta, now, Direction::Out, None);
            }
            Some((len, meta))
        })
    }

    fn flush(&mut self) -> Result<usize> {
        self.link.flush()
    }

    fn forget(&mut self) -> usize {
        self.link.forget()
    }

    fn statistics(&mut self) -> Statistics {
        self.link.statistics()
    }
}
