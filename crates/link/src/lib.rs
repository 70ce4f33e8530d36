//! Frames in and out: one trait, and what implements it.
//!
//! [`packet`] is an interface of this machine through a packet socket, [`xdp`] one queue of it through an AF_XDP socket,
//! [`tun`] the other end of an
//! interface that is made for it, [`pair`] two ends in memory. [`fault`] and [`capture`] go around any link: losses and delays by seed, files for
//! Wireshark ([`pcapng`]). [`l2`] is the socket that people use. Links do not know what frames carry, and the stack does
//! not know what carries them.

#![forbid(unsafe_code)]

pub mod capture;
mod error;
pub mod fault;
pub mod interface;
pub mod l2;
pub mod losses;
pub mod packet;
pub mod pair;
pub mod pcap;
pub mod pcapng;
mod reaper;
mod refusal;
pub mod roce;
pub mod tun;
mod vnet;
pub mod xdp;

pub use bypath_wire::{Apart, FrameMeta, MacAddr};
pub use error::Error;
pub use interface::Interface;

use std::os::fd::BorrowedFd;

/// Result of an operation on a link.
pub type Result<T> = std::result::Result<T, Error>;

/// Takes a received frame and its facts.
pub type Each<'a> = dyn FnMut(&[u8], &FrameMeta) + 'a;
/// Writes a frame into the place that it gets, and returns its length and facts; `None`: there is none.
pub type Next<'a> = dyn FnMut(&mut [u8]) -> Option<(usize, FrameMeta)> + 'a;

/// Has frames whose long payloads lie in memory of its own.
pub trait Source {
    /// Writes a frame, or its beginning, into the place that it gets; `None`: there is none. The place has room for the whole frame.
    fn next(&mut self, room: &mut [u8]) -> Option<Apart<'_>>;
}

/// Something that frames go into and come out of.
///
/// No function waits. A caller that has nothing to do waits for [`descriptor`](Link::descriptor) to be readable, or, while
/// frames are pending, writable. A link without one is asked again.
///
/// Frames are Ethernet frames without the frame check sequence, or IP packets where [`Capabilities::medium`] says so. They are given and taken by closures, so that each link
/// hands out its own memory: nothing is copied on the way that the kernel does not copy, and nothing is allocated.
pub trait Link {
    /// What it can do. Asked for once; all but the MTUs stay as they are.
    fn capabilities(&self) -> Capabilities;

    /// To be waited for; `None`: nothing can be.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Gives up to `most` frames that have arrived to `each`, in order, and returns how many.
    ///
    /// A frame is never longer than it was sent: one that was cut is counted in [`Statistics::cut`] and left out.
    ///
    /// # Errors
    /// [`Error::Down`] once when the interface goes down, [`Error::Gone`] from when it is removed; others of the system.
    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize>;

    /// Lets `next` write up to `most` frames, and sends them; returns how many it took.
    ///
    /// `next` gets room for [`Capabilities::longest`] octets and returns the frame's length and facts, or `None` when it
    /// has no more. It is called only when its frame will be accepted: accepted frames are sent in order, or stay pending
    /// until a later `send` or [`flush`](Link::flush). A return of less than `most` although `next` had more means: full,
    /// wait until the descriptor is writable.
    ///
    /// # Errors
    /// [`Error::TooLong`] for a frame beyond the MTU, which is dropped and counted; [`Error::Down`], [`Error::Gone`], with
    /// what is pending dropped and counted; others of the system. Frames that `next` wrote in the failing call were
    /// accepted, or dropped and counted in [`Statistics::refused`].
    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize>;

    /// As [`send`](Link::send), of frames that may lie in pieces: a link that can gives them to the kernel as they lie, others copy.
    ///
    /// # Errors
    /// Those of [`send`](Link::send).
    fn send_apart(&mut self, most: usize, source: &mut dyn Source) -> Result<usize> {
        self.send(most, &mut |room| {
            let frame = source.next(room)?;
            frame.join(room).then(|| (frame.whole(), frame.meta))
        })
    }

    /// Sends what is pending, as far as that is possible now; returns how many frames still are.
    ///
    /// # Errors
    /// Those of [`send`](Link::send).
    fn flush(&mut self) -> Result<usize>;

    /// Drops what is pending, as far as that is still possible, and counts it in [`Statistics::refused`]; returns how many
    /// frames that were.
    fn forget(&mut self) -> usize;

    /// What has passed since the link was made.
    fn statistics(&mut self) -> Statistics;
}

/// A link whose kind is not known, such as one that others stand around.
impl<L: Link + ?Sized> Link for Box<L> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        (**self).receive(most, each)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        (**self).send(most, next)
    }

    fn send_apart(&mut self, most: usize, source: &mut dyn Source) -> Result<usize> {
        (**self).send_apart(most, source)
    }

    fn flush(&mut self) -> Result<usize> {
        (**self).flush()
    }

    fn forget(&mut self) -> usize {
        (**self).forget()
    }

    fn statistics(&mut self) -> Statistics {
        (**self).statistics()
    }
}

/// What a link can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What frames begin with.
    pub medium: Medium,
    /// The link's own address; zeroes where there are none.
    pub mac: MacAddr,
    /// Largest payload of a frame in octets: what follows the EtherType; where there is none, the whole packet.
    pub mtu: usize,
    /// The same of a frame with one VLAN tag: as much, but 4 octets less on loopback, where a tag counts. A second tag is
    /// payload everywhere.
    pub tagged_mtu: usize,
    /// Octets of the longest frame that [`Link::send`] has room for: headers and one tag, and a whole super-frame where
    /// there is segmentation.
    pub longest: usize,
    /// Frames may leave transport checksums to the link, and received ones may (`FrameMeta::checksum`).
    pub checksum: bool,
    /// Frames longer than the MTU may be given to the link, and received from it (`FrameMeta::gso`).
    pub segmentation: bool,
    /// Received frames tell when they came.
    pub timestamps: Timestamps,
    /// The timestamp of a frame to be sent says when it is to be sent.
    pub send_time: bool,
    /// Frames that one call moves at best.
    pub batch: usize,
    /// Who sleeps until the descriptor is readable is woken when the interface goes down or is removed. Elsewhere
    /// [`Link::receive`] tells, and is to be called now and then.
    pub wakes_at_end: bool,
}

/// What frames begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Medium {
    /// An Ethernet header.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header: there are no addresses beside it, and nobody asks for any.
    Ip,
}

/// Who takes the time of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timestamps {
    /// Nobody.
    #[default]
    None,
    /// The kernel.
    Software,
    /// The device.
    Hardware,
}

/// What has passed through a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames given out.
    pub received: u64,
    /// Octets of these frames.
    pub received_octets: u64,
    /// Frames that the link dropped because they were not taken in time.
    pub dropped: u64,
    /// Received frames left out because they were longer than any buffer: a raised MTU is no cause, but for a ring of small
    /// blocks ([`packet::Config::block`]), and AF_XDP.
    pub cut: u64,
    /// Frames accepted for sending.
    pub sent: u64,
    /// Octets of these frames.
    pub sent_octets: u64,
    /// Accepted frames that were not sent after all: beyond the MTU, dropped by the device's queue, or the interface went
    /// down.
    pub refused: u64,
}
