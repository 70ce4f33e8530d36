//! An interface of this machine, through a packet socket (AF_PACKET).
//!
//! The socket is bound for every EtherType and a filter in the kernel chooses, because only so the kernel tells the VLAN
//! tag that it took out of a frame. Dropping a link takes microseconds: the kernel's wait is left to a thread.

mod config;
mod meta;
mod open;
mod receive;
mod send;

pub use config::{Clock, Config, Fanout, Groups, Mode, Obtained, Receive, Send, Vlan};
pub(crate) use open::choice;

use crate::{
    Capabilities, Each, Error, Interface, Link, MacAddr, Medium, Next, Result, Statistics, reaper, refusal,
};
use bypath_sys::packet::batch::{ReceiveBatch, SendBatch};
use bypath_sys::packet::frame::Departure;
use bypath_sys::packet::ring::Ring;
use bypath_sys::packet::{Membership, Socket, filter};
use bypath_sys::{Errno, clock, netif};
use std::os::fd::{AsFd, BorrowedFd};

/// Octets of an Ethernet header.
pub const HEADER: usize = 14;
/// Octets of a VLAN tag.
pub const TAG: usize = 4;
/// A super-frame's payload fits into the length field of an IP header.
const LONGEST_SUPER: usize = 65_536 + HEADER;

/// Octets of the longest frame that buffers are made for: a header, two tags, the MTU, or a super-frame.
fn longest(mtu: usize, offload: bool) -> usize {
    (mtu + HEADER).max(if offload { LONGEST_SUPER } else { 0 }) + 2 * TAG
}

/// An interface as a link.
pub struct PacketLink {
    /// `None` only while it is dropped.
    device: Option<Device>,
    receiver: Receiver,
    sender: Sender,
    config: Config,
    groups: Groups,
    interface: Interface,
    mtu: usize,
    longest: usize,
    state: State,
    statistics: Statistics,
    /// Calls in a row that found nothing.
    empty: u32,
    /// An error that came after frames: the next call reports it.
    noted: Option<Errno>,
    /// What the socket had dropped when the last frame was queued; `None`: frames do not tell.
    lost: Option<u64>,
    /// When a silent interface was looked after.
    looked: u64,
    /// Since when the kernel throws a send ring's first frame away and offers it again.
    stuck: Option<u64>,
    obtained: Obtained,
}

enum Device {
    Plain(Socket),
    Ring(Ring),
}

impl Device {
    fn socket(&self) -> &Socket {
        match self {
            Device::Plain(socket) => socket,
            Device::Ring(ring) => ring.socket(),
        }
    }
}

enum Receiver {
    Plain(Vec<u8>),
    Batch(ReceiveBatch),
    Ring,
}

enum Sender {
    Plain { buffer: Vec<u8>, pending: Option<(usize, Departure)> },
    Batch(SendBatch),
    Ring,
}

/// What is known of the interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// It was reported to be down; when it comes up, frames come again.
    Down,
    /// It was removed, for ever: another one of its name is another interface.
    Gone,
}

/// A ring that is empty so many times in a row is asked for an error: a system call, which would often be in the way of a
/// frame if it came while an answer is awaited.
const EMPTY: u32 = 1024;
/// How long a send ring's frame is offered again. A queue that is full has sent a frame in the meantime.
const STUCK_NS: u64 = 2_000_000_000;
/// How long a look at a silent interface that is down is good for.
const LOOK_NS: u64 = 10_000_000;

impl PacketLink {
    /// Opens one.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NameTooLong`], [`Error::NotEthernet`], [`Error::Down`], [`Error::NotAllowed`];
    /// [`Error::Invalid`] for a configuration that makes no sense; others of the system.
    pub fn open(config: &Config) -> Result<PacketLink> {
        open::open(config)
    }

    /// What was obtained of what was asked.
    pub const fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// The interface as it was when it was opened.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Begins to receive frames to a group.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is no group's, or too many groups; [`Error::Gone`].
    pub fn join(&mut self, group: MacAddr) -> Result<()> {
        if !group.is_multicast() {
            let text = format!("{group} is no group address: the first octet of one is odd");
            return Err(Error::Invalid(text));
        }
        self.member(group, true)?;
        let Groups::Only(groups) = &mut self.groups else { return Ok(()) };
        if !groups.contains(&group) {
            if groups.len() >= filter::MOST {
                self.member(group, false)?;
                return Err(Error::Invalid(format!("more than {} groups", filter::MOST)));
            }
            groups.push(group);
        }
        open::attach_filter(self.device().socket(), &self.config, &self.groups)
    }

    /// Ends [`join`](PacketLink::join).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group that was not joined; [`Error::Gone`].
    pub fn leave(&mut self, group: MacAddr) -> Result<()> {
        if matches!(&self.groups, Groups::Only(groups) if !groups.contains(&group)) {
            return Err(Error::Invalid(format!("{group} was not joined")));
        }
        self.member(group, false)?;
        if let Groups::Only(groups) = &mut self.groups {
            groups.retain(|&g| g != group);
        }
        open::attach_filter(self.device().socket(), &self.config, &self.groups)
    }

    fn member(&mut self, group: MacAddr, join: bool) -> Result<()> {
        let done = self.device().socket().member(self.interface.index, Membership::Multicast(group.0), join);
        done.map_err(|e| match e {
            Errno::NODEV => self.lost(),
            e => Error::system(if join { "join the group" } else { "leave the group" }, e),
        })
    }

    fn device(&self) -> &Device {
        self.device.as_ref().expect("only drop takes it")
    }

    fn ring(&mut self) -> Option<&mut Ring> {
        match self.device.as_mut() {
            Some(Device::Ring(ring)) => Some(ring),
            _ => None,
        }
    }

    /// The MTU now.
    fn refresh_mtu(&mut self) {
        if let Ok(now) = netif::by_index(self.interface.index) {
            self.mtu = now.mtu as usize;
        }
    }

    /// The kernel said that the interface is down or gone: which of them?
    fn lost(&mut self) -> Error {
        let interface = self.interface.name.clone();
        if netif::by_index(self.interface.index) == Err(Errno::NODEV) {
            self.state = State::Gone;
            Error::Gone { interface }
        } else {
            self.state = State::Down;
            Error::Down { interface }
        }
    }

    /// Nothing arrived: has something happened that no call reports?
    fn silent(&mut self) -> Result<()> {
        self.empty = self.empty.wrapping_add(1);
        if matches!(self.receiver, Receiver::Ring) && self.empty.is_multiple_of(EMPTY) {
            // A ring is read without system calls, which would have told.
            if let Some(e) = self.device().socket().take_error() {
                return Err(self.failed("receive", e));
            }
        }
        if self.state == State::Down {
            let now = clock::monotonic_ns();
            if now.saturating_sub(self.looked) > LOOK_NS {
                self.looked = now;
                // The removal of an interface that was down already is not reported.
                match netif::by_index(self.interface.index) {
                    Err(Errno::NODEV) => return Err(self.lost()),
                    Ok(now) if now.is_up() => self.state = State::Up,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn failed(&mut self, doing: &'static str, e: Errno) -> Error {
        match e {
            Errno::NETDOWN | Errno::NXIO | Errno::NODEV => self.lost(),
            e => Error::system(doing, e),
        }
    }
}

impl Link for PacketLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            medium: Medium::Ethernet,
            mac: self.interface.mac,
            mtu: self.mtu,
            tagged_mtu: refusal::tagged(self.mtu, self.interface.loopback),
            longest: self.longest,
            checksum: self.obtained.offload,
            segmentation: self.obtained.offload,
            timestamps: self.obtained.timestamps,
            send_time: self.obtained.send_time,
            batch: match self.obtained.mode.receive {
                Receive::Plain => 1,
                Receive::Mmsg => self.config.batch,
                Receive::Ring | Receive::LatencyRing | Receive::Xdp => usize::MAX,
            },
            wakes_at_end: true,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device().socket().as_fd())
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        self.take(most, each)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        self.give(most, next)
    }

    fn flush(&mut self) -> Result<usize> {
        self.push()
    }

    fn forget(&mut self) -> usize {
        self.forget_pending()
    }

    fn statistics(&mut self) -> Statistics {
        if let Ok(counts) = self.device().socket().counts() {
            self.statistics.dropped += u64::from(counts.drops);
        }
        self.statistics
    }
}

impl Drop for PacketLink {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            // Until it is closed it would still be given frames.
            let _ = device.socket().filter(&filter::nothing());
            reaper::reap(Box::new(device));
        }
    }
}
