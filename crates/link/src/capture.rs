//! A link whose frames are also written into a capture file (pcapng): received and sent ones, with their direction, the
//! time in nanoseconds, and what was lost.
//!
//! What was lost is told with the first frame after it where frames tell of it, and otherwise with the first one after the
//! link was next found empty ([`Losses`]).
//!
//! A tag that travels beside a frame is written where it stands on the wire. Frames that leave their checksum or
//! segmentation to the link are written as they were given.

use crate::losses::Losses;
use crate::pcapng::writer::{Frame, Interface};
use crate::pcapng::{Counts, Direction, RAW_IP, Reception, Writer};
use crate::{Capabilities, Each, Error, Link, Medium, Next, Result, Statistics};
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
    losses: Losses,
}

struct File<W> {
    writer: Writer<W>,
    interface: u32,
    frames: u64,
    /// A frame was made ready and not written.
    ready: bool,
    failed: Option<io::Error>,
}

impl<W: Write> File<W> {
    /// Makes a frame ready; the one before is written.
    fn prepare(&mut self, frame: &Frame<'_>) {
        self.commit();
        if self.failed.is_none() {
            match self.writer.prepare(frame) {
                Ok(()) => self.ready = true,
                Err(e) => self.failed = Some(e),
            }
        }
    }

    /// Writes the frame that is ready.
    fn commit(&mut self) {
        if std::mem::take(&mut self.ready) {
            match self.writer.commit() {
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
        self.prepare(&Frame { interface, ns, pieces, direction, reception, lost, ..Frame::default() });
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
        let can = link.capabilities();
        let interface = match can.medium {
            Medium::Ethernet => writer.interface(name, Some(can.mac))?,
            Medium::Ip => {
                writer.describe(&Interface { name, link_type: RAW_IP, mac: None, comment: None })?
            }
        };
        let start = clock();
        let file = File { writer, interface, frames: 0, ready: false, failed: None };
        Ok(Capture { link, file, clock, start, losses: Losses::default() })
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
        let (file, losses) = (&mut self.file, &mut self.losses);
        let mut any = false;
        let given = self.link.receive(most, &mut |bytes, meta| {
            let ns = match meta.timestamp {
                // A device's clock may begin anywhere.
                Some(t) if t.source == TimestampSource::Software => t.ns,
                _ => now,
            };
            any = true;
            file.put(bytes, meta, ns, Direction::In, losses.before(meta.dropped));
            each(bytes, meta);
        });
        self.file.commit();
        if any {
            self.losses.counted(self.link.statistics().dropped);
        } else if given == Ok(0) && most > 0 {
            self.losses.empty();
        }
        given
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        let now = (self.clock)();
        let file = &mut self.file;
        let sent = self.link.send(most, &mut |slot| {
            let (len, meta) = next(slot)?;
            if let Some(bytes) = slot.get(..len) {
                file.put(bytes, &meta, now, Direction::Out, None);
            }
            Some((len, meta))
        });
        match sent {
            // The last one was refused.
            Err(Error::TooLong { .. } | Error::Grown { .. } | Error::TooShort { .. } | Error::Invalid(_)) => {
                self.file.ready = false;
            }
            _ => self.file.commit(),
        }
        sent
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::pair;
    use crate::pcapng::Reader;
    use crate::pcapng::reader::{Block, Frame as Read};
    use bypath_wire::meta::{Timestamp, VlanTag};

    const WHEN: u64 = 1_800_000_000_123_456_789;

    fn frames(file: &[u8]) -> Vec<Read> {
        let blocks = Reader::new(file).all().unwrap();
        blocks.into_iter().filter_map(|b| if let Block::Frame(f) = b { Some(f) } else { None }).collect()
    }

    fn put(link: &mut dyn Link, frames: &[(Vec<u8>, FrameMeta)]) -> Result<usize> {
        let mut rest = frames.iter();
        link.send(usize::MAX, &mut |slot| {
            let (frame, meta) = rest.next()?;
            let room = frame.len().min(slot.len());
            slot[..room].copy_from_slice(&frame[..room]);
            Some((frame.len(), *meta))
        })
    }

    fn frame(to: [u8; 6], len: usize) -> Vec<u8> {
        let mut bytes = to.to_vec();
        bytes.extend((6..len).map(|n| n as u8));
        bytes
    }

    #[test]
    fn both_directions_are_written_with_time_and_kind() {
        let (a, mut b) = pair(1500, 100);
        let mut now = WHEN;
        let clock = || {
            now += 1;
            now
        };
        let mut capture = Capture::new(a, "a", Vec::new(), usize::MAX, clock).unwrap();
        let vlan = Some(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 });
        let tagged = FrameMeta { vlan, ..FrameMeta::default() };
        let sent = [(frame([2, 0, 0, 0, 0, 2], 60), FrameMeta::default()), (frame([0xff; 6], 61), tagged)];
        assert_eq!(put(&mut capture, &sent), Ok(2));
        let back = [[2, 0, 0, 0, 0, 1], [3, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 9]];
        put(&mut b, &back.map(|to| (frame(to, 99), FrameMeta::default()))).unwrap();
        let mut got = 0;
        assert_eq!(capture.receive(9, &mut |_, _| got += 1), Ok(3));
        assert_eq!((got, capture.frames()), (3, 5));
        let (_, file) = capture.finish().unwrap();
        let written = frames(&file);
        let facts: Vec<_> = written.iter().map(|f| (f.ns - WHEN, f.direction, f.reception)).collect();
        assert_eq!(
            facts,
            [
                (2, Direction::Out, Reception::Unknown),
                (2, Direction::Out, Reception::Unknown),
                (3, Direction::In, Reception::Unicast),
                (3, Direction::In, Reception::Multicast),
                (3, Direction::In, Reception::Promiscuous),
            ]
        );
        assert_eq!(written[0].bytes, sent[0].0);
        assert_eq!(written[1].bytes, [&sent[1].0[..12], &[0x81, 0, 0xe0, 10], &sent[1].0[12..]].concat());
        let blocks = Reader::new(&file[..]).all().unwrap();
        let counts =
            Counts { start: Some(WHEN + 1), end: Some(WHEN + 4), received: Some(3), dropped: Some(0) };
        assert_eq!(blocks.last(), Some(&Block::Statistics { interface: 0, ns: WHEN + 4, counts }));
    }

    #[test]
    fn a_frame_that_the_link_refuses_is_not_in_the_file() {
        let (a, _b) = pair(100, 100);
        let mut capture = Capture::new(a, "a", Vec::new(), usize::MAX, || WHEN).unwrap();
        let good = (frame([2; 6], 60), FrameMeta::default());
        for len in [13, 115] {
            let bad = (frame([2; 6], len), FrameMeta::default());
            assert!(put(&mut capture, &[good.clone(), bad]).is_err());
        }
        let (_, file) = capture.finish().unwrap();
        assert_eq!(frames(&file).into_iter().map(|f| f.bytes).collect::<Vec<_>>(), [good.0.clone(), good.0]);
    }

    /// A link that gives out one frame in every second call, with these facts, and has lost seven after each.
    struct Lossy {
        dropped: u64,
        meta: FrameMeta,
        empty: bool,
    }

    impl Link for Lossy {
        fn capabilities(&self) -> Capabilities {
            pair(1500, 1).0.capabilities()
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn receive(&mut self, _: usize, each: &mut Each<'_>) -> Result<usize> {
            if std::mem::replace(&mut self.empty, false) {
                return Ok(0);
            }
            each(&[1; 60], &self.meta);
            self.dropped += 7;
            self.empty = true;
            Ok(1)
        }

        fn send(&mut self, _: usize, _: &mut Next<'_>) -> Result<usize> {
            Ok(0)
        }

        fn flush(&mut self) -> Result<usize> {
            Ok(0)
        }

        fn forget(&mut self) -> usize {
            0
        }

        fn statistics(&mut self) -> Statistics {
            Statistics { received: self.dropped / 7, dropped: self.dropped, ..Statistics::default() }
        }
    }

    #[test]
    fn losses_and_the_kernels_times_are_written() {
        let stamp =
            |ns, source| FrameMeta { timestamp: Some(Timestamp { ns, source }), ..FrameMeta::default() };
        let meta = stamp(WHEN - 5, TimestampSource::Software);
        let lossy = Lossy { dropped: 0, meta, empty: false };
        let mut capture = Capture::new(lossy, "x", Vec::new(), 32, || WHEN).unwrap();
        for given in [1, 0, 1] {
            assert_eq!(capture.receive(1, &mut |_, _| {}), Ok(given));
        }
        // It is not found empty: whether the frame was there before the loss nobody knows.
        capture.inner().empty = false;
        capture.inner().meta = stamp(12, TimestampSource::Hardware);
        for given in [1, 0, 1, 0] {
            assert_eq!(capture.receive(1, &mut |_, _| {}), Ok(given));
        }
        // A frame that tells is believed.
        capture.inner().meta.dropped = Some(25);
        capture.receive(1, &mut |_, _| {}).unwrap();
        let (_, file) = capture.finish().unwrap();
        let facts: Vec<_> = frames(&file).iter().map(|f| (f.ns, f.lost, f.bytes.len(), f.original)).collect();
        let (early, now) = (WHEN - 5, WHEN);
        let lost = [None, Some(7), None, Some(14), Some(4)];
        let times = [early, early, now, now, now];
        let expected: Vec<_> = times.into_iter().zip(lost).map(|(ns, lost)| (ns, lost, 32, 60)).collect();
        assert_eq!(facts, expected);
        let blocks = Reader::new(&file[..]).all().unwrap();
        let Some(Block::Statistics { counts, .. }) = blocks.last() else { panic!("{blocks:?}") };
        assert_eq!((counts.received, counts.dropped), (Some(5 + 35), Some(35)));
    }

    /// A disk with room for so many octets.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn frames_pass_when_the_disk_is_full_and_the_error_is_told() {
        let (a, mut b) = pair(1500, 100);
        let mut capture = Capture::new(a, "a", Disk(500), usize::MAX, || WHEN).unwrap();
        for _ in 0..20 {
            assert_eq!(put(&mut capture, &[(frame([2; 6], 60), FrameMeta::default())]), Ok(1));
        }
        assert_eq!(b.receive(99, &mut |_, _| {}), Ok(20));
        assert!(capture.frames() < 5);
        assert_eq!(capture.error().map(io::Error::kind), Some(io::ErrorKind::StorageFull));
        assert_eq!(capture.finish().err().map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
    }
}
