//! One queue of a device, as a link.

use super::builder::Builder;
use crate::refusal::{self, Refusal};
use crate::{
    Apart, Capabilities, Each, Error, FrameMeta, Link, MacAddr, Medium, Next, Result, Source, Statistics,
    Timestamps, vnet,
};
use bypath_sys::packet::frame::{Departure, HEADROOM, Tag, VnetHeader};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::tun::Tun;
use bypath_sys::{Errno, clock, netif, netns};
use bypath_wire::meta::{Addressed, ChecksumState};
use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Octets of an Ethernet header.
const HEADER: usize = 14;
const TAG: usize = 4;
/// Octets of the longest packet; the length field of an IP header has no room for more.
const LONGEST: usize = 65_535;
/// Octets of the longest frame of either kind.
const ROOM: usize = LONGEST + HEADER + 2 * TAG;

/// What a device carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IP packets.
    Tun,
    /// Ethernet frames.
    Tap,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Tun => "tun",
            Kind::Tap => "tap",
        })
    }
}

/// What one side of a device may leave to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Transport checksums.
    pub checksum: bool,
    /// Cutting TCP super-packets, over IPv4 and IPv6 (TSO4, TSO6). Needs `checksum`.
    pub tcp: bool,
    /// Cutting super-packets of UDP datagrams, over IPv4 and IPv6 (USO4, USO6). Needs `checksum`, and Linux 6.2.
    pub udp: bool,
}

impl Offloads {
    /// Nothing.
    pub const NONE: Offloads = Offloads { checksum: false, tcp: false, udp: false };
    /// Everything.
    pub const ALL: Offloads = Offloads { checksum: true, tcp: true, udp: true };
}

/// What was obtained of what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obtained {
    /// What the kernel granted.
    pub offloads: Offloads,
    /// Queues that were opened.
    pub queues: usize,
    /// The device can have several.
    pub multi_queue: bool,
    /// It did not exist before.
    pub created: bool,
    /// It stays when it is closed.
    pub persistent: bool,
    /// What was not to be had, in words.
    pub notes: Vec<String>,
}

/// One queue of a TUN or TAP device. Closed when dropped; a device that does not persist goes with its last queue.
pub struct Device {
    file: Tun,
    kind: Kind,
    name: String,
    index: u32,
    mac: MacAddr,
    mtu: usize,
    obtained: Obtained,
    incoming: Box<[u8]>,
    outgoing: Box<[u8]>,
    /// A frame in `outgoing` that the kernel had no room for.
    pending: Option<(usize, Departure)>,
    statistics: Statistics,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Device");
        shown.field("name", &self.name).field("kind", &self.kind).field("mtu", &self.mtu);
        shown.field("obtained", &self.obtained).finish_non_exhaustive()
    }
}

impl Device {
    /// Begins to say what TUN device is wanted: `%d` in its name stands for the first number that is free.
    pub fn tun(name: &str) -> Builder {
        Builder::new(Kind::Tun, name)
    }

    /// The same for a TAP device.
    pub fn tap(name: &str) -> Builder {
        Builder::new(Kind::Tap, name)
    }

    pub(super) fn new(
        file: Tun,
        kind: Kind,
        name: String,
        found: &netif::Interface,
        mac: MacAddr,
        obtained: Obtained,
    ) -> Device {
        Device {
            file,
            kind,
            name,
            index: found.index,
            mac,
            mtu: found.mtu as usize,
            obtained,
            incoming: vec![0; HEADROOM + ROOM].into(),
            outgoing: vec![0; HEADROOM + ROOM].into(),
            pending: None,
            statistics: Statistics::default(),
        }
    }

    /// The interface's name when it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interface's number.
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// What it carries.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// What was obtained of what was asked.
    pub const fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// Octets of the largest packet, as last heard of.
    pub const fn mtu(&self) -> usize {
        self.mtu
    }

    /// Asks the kernel for the MTU of now.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn refresh_mtu(&mut self) -> Result<usize> {
        let found = netif::by_index(self.index).map_err(|e| self.failed("ask for the interface", e))?;
        self.mtu = found.mtu as usize;
        Ok(self.mtu)
    }

    /// Switches the interface on or off.
    ///
    /// # Errors
    /// Those of the system: EPERM without CAP_NET_ADMIN.
    pub fn set_up(&self, up: bool) -> Result<()> {
        netns::set_up(&self.name, up).map_err(|e| self.failed("switch the interface", e))
    }

    /// Sets the MTU.
    ///
    /// # Errors
    /// Those of the system: EPERM without CAP_NET_ADMIN, EINVAL for a value that cannot be.
    pub fn set_mtu(&mut self, mtu: u32) -> Result<()> {
        netns::set_mtu(&self.name, mtu).map_err(|e| self.failed("set the MTU", e))?;
        self.refresh_mtu().map(|_| ())
    }

    /// Makes it stay when it is closed, or go.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_persistent(&mut self, on: bool) -> Result<()> {
        self.file.set_persistent(on).map_err(|e| self.failed("keep the interface", e))?;
        self.obtained.persistent = on;
        Ok(())
    }

    /// Waits until there is something to read, `longest` at most (`None`: for ever). False: there is not.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Gone`].
    pub fn wait(&self, longest: Option<Duration>) -> Result<bool> {
        const POLLIN: i16 = 1;
        let mut fds = [PollFd { fd: self.file.as_fd().as_raw_fd(), events: POLLIN, revents: 0 }];
        let longest = longest.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        match ppoll(&mut fds, longest, 0) {
            Ok(0) => Ok(false),
            Ok(_) if fds[0].revents & POLLIN == 0 => Err(self.failed("wait for packets", Errno::BADFD)),
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(e) => Err(Error::system("wait for packets", e)),
        }
    }

    /// Reads a frame into the own buffer: its length, for [`frame`](Device::frame), and facts. `None`: there is none.
    pub(super) fn read(&mut self) -> Result<Option<(usize, FrameMeta)>> {
        const FRONT: usize = HEADROOM - VnetHeader::SIZE;
        loop {
            match self.file.read(&mut self.incoming[FRONT..]) {
                Ok(got) if got > VnetHeader::SIZE => {
                    let len = got - VnetHeader::SIZE;
                    let header = self.incoming[FRONT..HEADROOM].try_into().unwrap_or([0; VnetHeader::SIZE]);
                    let (checksum, gso) = vnet::told(&VnetHeader::decode(&header));
                    self.statistics.received += 1;
                    self.statistics.received_octets += len as u64;
                    let addressed = self.addressed(len);
                    return Ok(Some((len, FrameMeta { checksum, gso, addressed, ..FrameMeta::default() })));
                }
                Ok(_) => self.statistics.cut += 1,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.failed("receive", e)),
            }
        }
    }

    /// The frame that was read last.
    pub(super) fn frame(&self, len: usize) -> &[u8] {
        &self.incoming[HEADROOM..HEADROOM + len]
    }

    fn addressed(&self, len: usize) -> Addressed {
        match (self.kind, self.frame(len)) {
            (Kind::Tun, _) => Addressed::Host,
            (Kind::Tap, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, ..]) => Addressed::Broadcast,
            (Kind::Tap, [first, ..]) if first & 1 != 0 => Addressed::Multicast,
            (Kind::Tap, frame) if frame.starts_with(&self.mac.0) => Addressed::Host,
            (Kind::Tap, _) => Addressed::OtherHost,
        }
    }

    /// Writes one packet, the virtio-net header first. Not counted.
    #[inline]
    pub(super) fn write(&self, packet: &[u8]) -> bypath_sys::Result<usize> {
        self.file.write(packet)
    }

    /// Writes one packet that lies in pieces, the virtio-net header first. Not counted.
    #[inline]
    pub(super) fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> bypath_sys::Result<usize> {
        self.file.write_pieces(pieces)
    }

    pub(super) const fn count_sent(&mut self, octets: usize) {
        self.statistics.sent += 1;
        self.statistics.sent_octets += octets as u64;
    }

    pub(super) const fn count_refused(&mut self) {
        self.statistics.refused += 1;
    }

    /// What the system's answer means.
    pub(super) fn failed(&self, doing: &'static str, e: Errno) -> Error {
        let interface = || self.name.clone();
        match e {
            // The kernel says the same of one that was removed.
            Errno::IO if netif::by_index(self.index) == Err(Errno::NODEV) => {
                Error::Gone { interface: interface() }
            }
            Errno::IO => Error::Down { interface: interface() },
            Errno::BADFD | Errno::NODEV | Errno::NXIO => Error::Gone { interface: interface() },
            e => Error::system(doing, e),
        }
    }

    /// What keeps a frame from being sent.
    fn examine(&self, len: usize, meta: &FrameMeta) -> std::result::Result<(), Refusal> {
        let room = &self.outgoing[HEADROOM..];
        let offloads = self.obtained.offloads;
        let able = match meta.gso {
            None => offloads.checksum || !matches!(meta.checksum, ChecksumState::Partial { .. }),
            Some(gso) if gso.kind == bypath_wire::meta::GsoKind::Udp => offloads.udp,
            Some(_) => offloads.tcp,
        };
        if !able {
            return Err(Refusal::Offload);
        }
        match self.kind {
            Kind::Tap => refusal::examine(&room[..len.min(room.len())], len, meta, self.mtu, false, true),
            Kind::Tun if len == 0 => Err(Refusal::TooShort(len)),
            Kind::Tun if len > room.len() || len > self.mtu && meta.gso.is_none() => {
                Err(Refusal::TooLong { payload: len, limit: self.mtu })
            }
            Kind::Tun => Ok(()),
        }
    }

    /// Accepts a frame of so many octets that was just written: how it is to be sent.
    fn accept(&mut self, len: usize, meta: &FrameMeta) -> Result<Departure> {
        if meta.vlan.is_some() && self.kind == Kind::Tun {
            self.statistics.sent += 1;
            self.statistics.refused += 1;
            return Err(Error::Invalid(
                "a packet has no VLAN tag; a TAP device carries frames, which have".to_owned(),
            ));
        }
        if let Err(refusal) = self.examine(len, meta) {
            if matches!(refusal, Refusal::TooLong { .. }) {
                // It may have been raised: then the next one passes.
                let _ = self.refresh_mtu();
            }
            return Err(self.refuse(&refusal));
        }
        let tag = meta.vlan.map(|t| Tag { tpid: t.tpid, tci: t.tci() });
        self.count_sent(len);
        Ok(Departure { tag, vnet: vnet::asked(meta), at: None })
    }

    /// Gives the kernel a frame as it lies. One that it has no room for is pending, in one piece.
    fn pass(&mut self, frame: &Apart<'_>) -> Result<()> {
        let how = self.accept(frame.whole(), &frame.meta)?;
        if frame.whole() > frame.len {
            loop {
                match self.file.send_apart(&mut self.outgoing, frame.len, frame.behind, &how) {
                    Ok(_) => return Ok(()),
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(e) => {
                        self.statistics.refused += 1;
                        return Err(self.failed("send", e));
                    }
                }
            }
            // It has room: it is no longer than what was examined.
            frame.join(&mut self.outgoing[HEADROOM..]);
        }
        self.pending = Some((frame.whole(), how));
        Ok(())
    }

    fn refuse(&mut self, refusal: &Refusal) -> Error {
        self.statistics.sent += 1;
        self.statistics.refused += 1;
        match *refusal {
            Refusal::TooShort(len) => Error::TooShort { len },
            Refusal::TooLong { payload, limit } => {
                Error::TooLong { interface: self.name.clone(), payload, mtu: limit }
            }
            Refusal::Offload => {
                let text = "the frame leaves its checksum or segmentation to the device, which was opened without, or on a \
                            kernel without (`Obtained::offloads` tells)";
                Error::Invalid(text.to_owned())
            }
        }
    }

    /// Gives the kernel the frame that is pending. False: it has no room for it.
    fn push(&mut self) -> Result<bool> {
        let Some((len, how)) = self.pending else { return Ok(true) };
        loop {
            match self.file.send(&mut self.outgoing, len, &how, true) {
                Ok(_) => {
                    self.pending = None;
                    return Ok(true);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.pending = None;
                    self.statistics.refused += 1;
                    return Err(self.failed("send", e));
                }
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Link for Device {
    fn capabilities(&self) -> Capabilities {
        let offloads = self.obtained.offloads;
        Capabilities {
            medium: match self.kind {
                Kind::Tun => Medium::Ip,
                Kind::Tap => Medium::Ethernet,
            },
            mac: self.mac,
            mtu: self.mtu,
            tagged_mtu: self.mtu,
            longest: match self.kind {
                Kind::Tun => LONGEST,
                Kind::Tap => ROOM,
            },
            checksum: offloads.checksum,
            segmentation: offloads.tcp || offloads.udp,
            timestamps: Timestamps::None,
            send_time: false,
            batch: 1,
            wakes_at_end: true,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        for given in 0..most {
            match self.read() {
                Ok(Some((len, meta))) => each(self.frame(len), &meta),
                Ok(None) => return Ok(given),
                // What was given counts; the kernel answers the same again.
                Err(_) if given > 0 => return Ok(given),
                Err(e) => return Err(e),
            }
        }
        Ok(most)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        for given in 0..most {
            if !self.push()? {
                return Ok(given);
            }
            let Some((len, meta)) = next(&mut self.outgoing[HEADROOM..]) else { return Ok(given) };
            let how = self.accept(len, &meta)?;
            self.pending = Some((len, how));
        }
        self.push()?;
        Ok(most)
    }

    fn send_apart(&mut self, most: usize, source: &mut dyn Source) -> Result<usize> {
        for given in 0..most {
            if !self.push()? {
                return Ok(given);
            }
            let Some(frame) = source.next(&mut self.outgoing[HEADROOM..]) else { return Ok(given) };
            self.pass(&frame)?;
        }
        self.push()?;
        Ok(most)
    }

    fn flush(&mut self) -> Result<usize> {
        Ok(usize::from(!self.push()?))
    }

    fn forget(&mut self) -> usize {
        let forgotten = usize::from(self.pending.take().is_some());
        self.statistics.refused += forgotten as u64;
        forgotten
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }
}

/// What is left of a time to wait.
pub(super) struct Patience {
    longest: Option<Duration>,
    started: Option<u64>,
}

impl Patience {
    pub(super) const fn new(longest: Option<Duration>) -> Patience {
        Patience { longest, started: None }
    }

    /// # Errors
    /// [`Error::TimedOut`] when nothing is left.
    pub(super) fn left(&mut self) -> Result<Option<Duration>> {
        let Some(longest) = self.longest else { return Ok(None) };
        let now = clock::monotonic_ns();
        let passed = Duration::from_nanos(now - *self.started.get_or_insert(now));
        match longest.checked_sub(passed) {
            None | Some(Duration::ZERO) => Err(Error::TimedOut { waited: longest }),
            left => Ok(left),
        }
    }
}
