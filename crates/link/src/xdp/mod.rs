//! An interface of this machine, through an AF_XDP socket: chosen frames leave the kernel's path before it makes a packet
//! of each; all others stay on it. The program that chooses is taken away when the link is dropped, and when the process
//! dies.
//!
//! What differs from a packet link:
//! - Tags stay in the bytes, both ways ([`FrameMeta::vlan`] is put into them on the way out). Where a device takes tags
//!   out of received frames the program cannot see them: `ethtool -K eth0 rxvlan off`; of a veth pair the sender's side
//!   keeps them beside the frame: `ethtool -K veth0 txvlan off`.
//! - A link serves one queue. A device that spreads frames over several needs [`XdpLink::open_queues`], or one queue:
//!   `ethtool -L eth0 combined 1`.
//! - Transport checksums are final: a veth peer's kernel leaves them out (`ethtool -K veth0 tx off`).
//! - Frames to others are given out where the device delivers them, as veth and loopback do; [`FrameMeta::addressed`] tells.
//! - Received frames have no timestamp.
//! - What was sent cannot be taken back: frames that an interface did not take because it was down go when it is up again.

mod config;
mod open;

pub use config::{BusyPoll, Config, Obtained, Place, Refused, Rule, Transfer, Vlan};
pub(crate) use open::buffer;

use crate::refusal::{self, Refusal, examine};
use crate::{
    Capabilities, Each, Error, Interface, Link, MacAddr, Medium, Next, Result, Statistics, Timestamps, reaper,
};
use bypath_sys::bpf::Attachment;
use bypath_sys::packet::{self, Membership};
use bypath_sys::xdp::Socket;
use bypath_sys::{Errno, clock, netif};
use bypath_wire::FrameMeta;
use bypath_wire::meta::Addressed;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

const HEADER: usize = 14;
const ADDRESSES: usize = 12;
const TAG: usize = 4;
/// Octets in front of a frame to be sent: a tag that is put in moves the addresses there.
const LEAD: usize = 64;
/// A sender learns this late that the MTU was changed.
const MTU_NS: u64 = 1_000_000_000;
/// A receiver learns this late that the interface was removed, or is down: the kernel wakes nobody who polls.
const STATE_NS: u64 = 50_000_000;
/// A receiver that spins asks the kernel how the interface is after so many calls that found nothing.
const EMPTY: u32 = 64;
/// It reads the clock after so many.
const CLOCK: u32 = 8;

/// Octets of the longest frame: a header, two tags, the MTU.
const fn longest(mtu: usize) -> usize {
    HEADER + 2 * TAG + mtu
}

/// One queue of an interface as a link.
pub struct XdpLink {
    /// `None` only while it is dropped.
    device: Option<Device>,
    interface: Interface,
    mtu: usize,
    longest: usize,
    state: State,
    statistics: Statistics,
    /// Calls in a row that found nothing.
    empty: u32,
    /// Whether they follow each other without a sleep.
    spin: bool,
    /// When the MTU was asked for.
    looked: u64,
    /// When a receiver that found nothing looked at the interface.
    seen: u64,
    obtained: Obtained,
}

/// What holds the interface. The program is taken away before the socket goes.
struct Device {
    _attachment: Arc<Attachment>,
    /// Receives nothing: it holds the device's memberships.
    members: Option<Arc<packet::Socket>>,
    socket: Socket,
}

/// What is known of the interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// It was reported to be down.
    Down,
    /// It was removed, for ever.
    Gone,
}

impl XdpLink {
    /// Opens one queue, [`Config::queue`].
    ///
    /// # Errors
    /// [`Error::Xdp`] with the reason; [`Error::Unknown`], [`Error::NameTooLong`], [`Error::NotEthernet`],
    /// [`Error::Down`]; [`Error::Invalid`] for a configuration that makes no sense; others of the system.
    pub fn open(config: &Config) -> Result<XdpLink> {
        let mut links = open::open(config, &[config.queue])?;
        links.pop().ok_or_else(|| Error::Invalid("no queue".to_owned()))
    }

    /// Opens several queues, a link each, that one program feeds. It is taken away with the last of them; frames of a
    /// queue whose link was dropped stay with the kernel.
    ///
    /// # Errors
    /// As [`open`](XdpLink::open).
    pub fn open_queues(config: &Config, queues: &[u32]) -> Result<Vec<XdpLink>> {
        open::open(config, queues)
    }

    /// What was obtained of what was asked.
    pub const fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// The interface as it was when it was opened.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Lets the device receive frames to a group. Frames to others are given out where the device delivers them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is no group's; [`Error::Gone`]; others of the system.
    pub fn join(&mut self, group: MacAddr) -> Result<()> {
        if !group.is_multicast() {
            let text = format!("{group} is no group address: the first octet of one is odd");
            return Err(Error::Invalid(text));
        }
        let device = self.device.as_mut().expect("only drop takes it");
        if device.members.is_none() {
            device.members = Some(Arc::new(open::no_receiver()?));
        }
        self.member(group, true)
    }

    /// Ends [`join`](XdpLink::join).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group that was not joined; [`Error::Gone`].
    pub fn leave(&mut self, group: MacAddr) -> Result<()> {
        self.member(group, false)
    }

    fn member(&mut self, group: MacAddr, join: bool) -> Result<()> {
        let members = self.device.as_ref().and_then(|d| d.members.as_ref());
        let membership = Membership::Multicast(group.0);
        let done =
            members.map_or(Err(Errno::ADDRNOTAVAIL), |m| m.member(self.interface.index, membership, join));
        done.map_err(|e| match e {
            Errno::ADDRNOTAVAIL => Error::Invalid(format!("{group} was not joined")),
            e => self.failed(if join { "join the group" } else { "leave the group" }, e),
        })
    }

    fn socket(&self) -> &Socket {
        &self.device.as_ref().expect("only drop takes it").socket
    }

    fn socket_mut(&mut self) -> &mut Socket {
        &mut self.device.as_mut().expect("only drop takes it").socket
    }

    fn gone(&self) -> Error {
        Error::Gone { interface: self.interface.name.clone() }
    }

    /// The error for what the kernel said.
    fn failed(&mut self, doing: &'static str, e: Errno) -> Error {
        match e {
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => {
                if netif::by_index(self.interface.index) == Err(Errno::NODEV) {
                    self.state = State::Gone;
                    let left = self.socket_mut().pending().unwrap_or(0);
                    self.statistics.refused += left as u64;
                    return self.gone();
                }
                self.state = State::Down;
                Error::Down { interface: self.interface.name.clone() }
            }
            e => Error::system(doing, e),
        }
    }

    fn refresh_mtu(&mut self) {
        self.looked = clock::monotonic_ns();
        if let Ok(now) = netif::by_index(self.interface.index) {
            self.mtu = now.mtu as usize;
        }
    }

    /// Whether the interface is there and up, looked at now and then.
    fn look(&mut self) -> Result<()> {
        if self.spin && !self.empty.is_multiple_of(CLOCK) {
            return Ok(());
        }
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.seen) < STATE_NS {
            return Ok(());
        }
        self.seen = now;
        match netif::by_index(self.interface.index) {
            Err(Errno::NODEV) => Err(self.failed("receive", Errno::NODEV)),
            Ok(found) if found.is_up() => {
                self.state = State::Up;
                Ok(())
            }
            Ok(_) if self.state == State::Up => Err(self.failed("receive", Errno::NETDOWN)),
            _ => Ok(()),
        }
    }

    /// Nothing arrived: must the kernel be woken, has something happened to the interface?
    fn silent(&mut self) -> Result<()> {
        self.look()?;
        let first = self.empty.is_multiple_of(EMPTY);
        self.empty = self.empty.wrapping_add(1);
        let socket = self.socket();
        if !(first || self.obtained.busy_poll || socket.receive_needs_wakeup()) {
            return Ok(());
        }
        match socket.wake_receive() {
            Ok(()) => {
                self.state = State::Up;
                Ok(())
            }
            // Reported once; frames come again when it is up.
            Err(Errno::NETDOWN) if self.state == State::Down => Ok(()),
            Err(e) => Err(self.failed("receive", e)),
        }
    }

    /// Lets `next` fill what room there is. Returns how many frames it wrote, what was wrong with the last one, and whether
    /// it may have more.
    fn accept(&mut self, most: usize, next: &mut Next<'_>) -> Result<(usize, Option<Refusal>, bool)> {
        let (mtu, longest, loopback) = (self.mtu, self.longest, self.interface.loopback);
        let socket = &mut self.device.as_mut().expect("only drop takes it").socket;
        let mut refusal = None;
        for accepted in 0..most {
            let mut asked = false;
            let mut fill = |room: &mut [u8]| {
                asked = true;
                let (len, meta) = next(&mut room[LEAD..LEAD + longest])?;
                let frame = &room[LEAD..LEAD + len.min(longest)];
                refusal = examine(frame, len, &meta, mtu, loopback, false).err();
                if refusal.is_some() {
                    return None;
                }
                let Some(tag) = meta.vlan else { return Some((LEAD, len)) };
                let start = LEAD - TAG;
                room.copy_within(LEAD..LEAD + ADDRESSES, start);
                room[start + ADDRESSES..][..2].copy_from_slice(&tag.tpid.to_be_bytes());
                room[start + ADDRESSES + 2..][..2].copy_from_slice(&tag.tci().to_be_bytes());
                Some((start, len + TAG))
            };
            let put = socket.put(&mut fill).map_err(|e| Error::system("send", e))?;
            // Asked and nothing: it has no more. Not asked: there is no room.
            let Some(len) = put else { return Ok((accepted, refusal, !asked)) };
            self.statistics.sent += 1;
            self.statistics.sent_octets += len as u64;
        }
        Ok((most, refusal, true))
    }

    fn refuse(&mut self, refusal: Refusal) -> Error {
        self.statistics.sent += 1;
        self.statistics.refused += 1;
        if matches!(refusal, Refusal::TooLong { .. }) {
            self.refresh_mtu();
        }
        let offload =
            "the frame leaves its checksum or segmentation to the link, and an XDP link does neither";
        refusal.error(&self.interface, self.mtu, self.longest, offload)
    }

    fn push(&mut self) -> Result<()> {
        if self.state == State::Gone {
            return Err(self.gone());
        }
        match self.socket_mut().kick() {
            Ok(()) => Ok(()),
            Err(e) => Err(self.failed("send", e)),
        }
    }
}

fn addressed(frame: &[u8], own: [u8; 6]) -> Addressed {
    match frame.get(..6) {
        None => Addressed::Unknown,
        Some(to) if to == own => Addressed::Host,
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Addressed::Broadcast,
        Some(to) if to[0] & 1 != 0 => Addressed::Multicast,
        Some(_) => Addressed::OtherHost,
    }
}

impl Link for XdpLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            medium: Medium::Ethernet,
            mac: self.interface.mac,
            mtu: self.mtu,
            tagged_mtu: refusal::tagged(self.mtu, self.interface.loopback),
            longest: self.longest,
            checksum: false,
            segmentation: false,
            timestamps: Timestamps::None,
            send_time: false,
            batch: self.obtained.send as usize,
            wakes_at_end: false,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket().as_fd())
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        if self.state == State::Gone {
            return Err(self.gone());
        }
        let own = self.interface.mac.0;
        let (mut received, mut octets) = (0, 0);
        let given = self.socket_mut().receive(most, &mut |frame| {
            received += 1;
            octets += frame.len() as u64;
            each(frame, &FrameMeta { addressed: addressed(frame, own), ..FrameMeta::default() });
        });
        self.statistics.received += received;
        self.statistics.received_octets += octets;
        match given {
            Ok(0) if most > 0 => self.silent().map(|()| 0),
            Ok(n) => {
                self.empty = 0;
                if self.socket().receive_needs_wakeup() {
                    // An error is reported by the next call: this one has frames to report.
                    let _later = self.socket().wake_receive();
                }
                Ok(n)
            }
            Err(e) => Err(Error::system("receive", e)),
        }
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        if self.state == State::Gone {
            return Err(self.gone());
        }
        if clock::monotonic_ns().saturating_sub(self.looked) > MTU_NS {
            self.refresh_mtu();
        }
        let mut given = 0;
        loop {
            let (accepted, refusal, more) = self.accept(most - given, next)?;
            given += accepted;
            let pushed = self.push();
            if let Some(refusal) = refusal {
                pushed?;
                return Err(self.refuse(refusal));
            }
            pushed?;
            // Without room there is no going on, and with nothing accepted nothing to be gained.
            let room = self.socket_mut().has_room().map_err(|e| Error::system("send", e))?;
            if !room || !more || given >= most {
                return Ok(given);
            }
        }
    }

    fn flush(&mut self) -> Result<usize> {
        self.push()?;
        self.socket_mut().pending().map_err(|e| Error::system("send", e))
    }

    /// What was given to the kernel's ring stays there: always 0.
    fn forget(&mut self) -> usize {
        0
    }

    fn statistics(&mut self) -> Statistics {
        let cut = self.socket().cut();
        // A frame that is too long for the buffers, no buffer, no reader.
        let dropped = self.socket().counts().map(|c| c.dropped + c.ring_full);
        Statistics { cut, dropped: dropped.unwrap_or(self.statistics.dropped), ..self.statistics }
    }
}

impl Drop for XdpLink {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            reaper::reap(Box::new(device));
        }
    }
}
