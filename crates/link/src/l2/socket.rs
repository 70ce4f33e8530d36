//! The socket.

use super::builder::Builder;
use super::frame::{Frame, Header, Received};
use super::link::AnyLink;
use crate::packet::Obtained;
use crate::{Capabilities, Error, Interface, Link, MacAddr, Next, Result, Statistics};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{Errno, clock};
use bypath_wire::meta::VlanTag;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// How a socket waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It sleeps.
    #[default]
    Sleep,
    /// It looks without a pause.
    Spin,
    /// It does not wait.
    Never,
}

/// What a socket does on its own, over any link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// EtherType of sent frames.
    pub ethertype: Option<u16>,
    /// Tag of sent frames.
    pub tag: Option<VlanTag>,
    /// Short frames are padded.
    pub pad: bool,
    /// How it waits.
    pub wait: Wait,
    /// How long at most; `None`: for ever.
    pub timeout: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { ethertype: None, tag: None, pad: true, wait: Wait::Sleep, timeout: None }
    }
}

/// A raw Ethernet socket: see the [module](super).
///
/// Dropping it takes microseconds; the kernel's own wait is left to a thread. The same interface and EtherType can be opened
/// anew at once.
pub struct Socket<L = AnyLink> {
    link: L,
    settings: Settings,
    mac: MacAddr,
    /// The interface was down when it was last heard of.
    down: bool,
    /// The kernel wakes a sleeper when the interface goes down, or away.
    woken: bool,
}

/// How long a sleep is at most where the kernel does not tell when the interface is removed: while it is down, and with AF_XDP.
const LONGEST_SLEEP: u64 = 100_000_000;
/// A sleep where the kernel says that there is room and the link has none: half a send ring is always kept back.
const SHORT_SLEEP: u64 = 50_000;

/// What is waited for, and since when.
struct Waiting {
    started: Option<u64>,
    looks: u32,
}

impl Socket<AnyLink> {
    /// Begins to say what socket is wanted on this interface.
    pub fn builder(interface: &str) -> Builder {
        Builder::new(interface)
    }

    /// What was obtained of what was asked.
    pub fn obtained(&self) -> &Obtained {
        self.link.obtained()
    }

    /// The interface as it was when the socket was opened.
    pub fn interface(&self) -> &Interface {
        self.link.interface()
    }

    /// Begins to receive frames to a group.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is no group's; [`Error::Gone`].
    pub fn join(&mut self, group: MacAddr) -> Result<()> {
        self.link.join(group)
    }

    /// Ends [`join`](Socket::join).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a group that was not joined; [`Error::Gone`].
    pub fn leave(&mut self, group: MacAddr) -> Result<()> {
        self.link.leave(group)
    }
}

impl<L: Link> Socket<L> {
    /// A socket over a link of any kind.
    pub fn over(link: L, settings: Settings) -> Socket<L> {
        let Capabilities { mac, wakes_at_end: woken, .. } = link.capabilities();
        Socket { link, settings, mac, down: false, woken }
    }

    /// The link.
    pub const fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// The link alone: the socket ends.
    pub fn into_link(self) -> L {
        self.link
    }

    /// Says that the interface is down from the beginning.
    pub(super) const fn begin_down(mut self) -> Socket<L> {
        self.down = true;
        self
    }

    /// This end's hardware address.
    pub const fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Octets of the longest payload that [`send`](Socket::send) sends. On loopback, where a tag counts, they are 4 less for a
    /// socket with a tag; a second tag ([`Header::inner_vlan`]) takes 4 everywhere.
    pub fn mtu(&self) -> usize {
        let can = self.link.capabilities();
        if self.settings.tag.is_some() { can.tagged_mtu } else { can.mtu }
    }

    /// What has passed.
    pub fn statistics(&mut self) -> Statistics {
        self.link.statistics()
    }

    /// Changes the longest wait.
    pub const fn set_timeout(&mut self, longest: Option<Duration>) {
        self.settings.timeout = longest;
    }

    /// Changes how it waits.
    pub const fn set_wait(&mut self, wait: Wait) {
        self.settings.wait = wait;
    }

    /// Closes it. Dropping it does the same.
    pub fn close(self) {}

    /// The header of frames that [`send`](Socket::send) sends; `ethertype` 0 if none was asked for.
    pub fn header(&self, to: MacAddr) -> Header {
        Header {
            destination: to,
            source: self.mac,
            vlan: self.settings.tag,
            inner_vlan: None,
            ethertype: self.settings.ethertype.unwrap_or(0),
            at: None,
        }
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// [`Error::TooLong`] beyond the MTU; [`Error::TimedOut`] and [`Error::WouldBlock`] without room; [`Error::QueueFull`];
    /// [`Error::Down`], [`Error::Gone`]; [`Error::Invalid`] without an EtherType. After an error it was not sent.
    pub fn send(&mut self, to: MacAddr, payload: &[u8]) -> Result<()> {
        let header = self.own_header(to)?;
        self.send_with(&header, payload)
    }

    /// Sends one frame with a header of your own.
    ///
    /// # Errors
    /// Those of [`send`](Socket::send).
    pub fn send_with(&mut self, header: &Header, payload: &[u8]) -> Result<()> {
        let (meta, pad) = (header.meta(), self.settings.pad);
        self.send_all(1, &mut |slot| Some((header.write(slot, payload, pad), meta))).map(|_| ())
    }

    /// Sends whole frames, header included, as they are: no tag and no padding is added.
    ///
    /// # Errors
    /// Those of [`send`](Socket::send); [`Error::TooShort`] for less than a header.
    pub fn send_octets(&mut self, frame: &[u8]) -> Result<()> {
        self.send_all(1, &mut |slot| {
            if let Some(slot) = slot.get_mut(..frame.len()) {
                slot.copy_from_slice(frame);
            }
            Some((frame.len(), bypath_wire::FrameMeta::default()))
        })
        .map(|_| ())
    }

    /// Sends many frames, with as few system calls as the mode needs. Returns how many were sent: fewer if the time was over,
    /// or something went wrong after the first ones.
    ///
    /// # Errors
    /// Those of [`send`](Socket::send) if none was sent.
    pub fn send_batch<'p>(
        &mut self,
        to: MacAddr,
        payloads: impl IntoIterator<Item = &'p [u8]>,
    ) -> Result<usize> {
        let header = self.own_header(to)?;
        let (meta, pad) = (header.meta(), self.settings.pad);
        let mut payloads = payloads.into_iter();
        self.send_all(usize::MAX, &mut |slot| Some((header.write(slot, payloads.next()?, pad), meta)))
    }

    fn own_header(&self, to: MacAddr) -> Result<Header> {
        let none =
            || Error::Invalid("frames need an EtherType: ask the builder for one, or use send_with".into());
        self.settings.ethertype.ok_or_else(none)?;
        Ok(self.header(to))
    }

    /// Sends what `next` writes until it has no more or `most` are sent.
    fn send_all(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        let gone = |s: Statistics| s.sent.saturating_sub(s.refused);
        let before = if most > 1 { gone(self.link.statistics()) } else { 0 };
        let mut waiting = Waiting::new();
        let mut more = true;
        let mut accepted = 0;
        let outcome = loop {
            if more && accepted < most {
                let sent = self.link.send(most - accepted, &mut |slot| {
                    let written = next(slot);
                    more = written.is_some();
                    written
                });
                match sent {
                    Ok(n) => accepted += n,
                    Err(e) => break Err(e),
                }
            }
            match self.link.flush() {
                Ok(0) if !more || accepted >= most => break Ok(()),
                Ok(_) => {}
                Err(e) => break Err(e),
            }
            if let Err(e) = self.wait(&mut waiting, POLLOUT) {
                break Err(e);
            }
        };
        let Err(error) = outcome else { return Ok(accepted) };
        self.down |= matches!(error, Error::Down { .. });
        // What the kernel has not taken is not sent later.
        self.link.forget();
        let sent = if most > 1 { gone(self.link.statistics()).saturating_sub(before) } else { 0 };
        if sent == 0 { Err(error) } else { Ok(sent as usize) }
    }

    /// Waits for a frame and copies its payload.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::WouldBlock`]; [`Error::Interrupted`]; [`Error::Down`] once when the interface goes down,
    /// [`Error::Gone`] from when it is removed.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<Received> {
        let mut received = None;
        self.receive_batch(1, |frame| received = Some(Received::copy(&frame, buffer)))?;
        // `receive_batch` returns after a frame, or with an error.
        received.ok_or(Error::WouldBlock)
    }

    /// Waits for a frame, and gives it and those that are there already, up to `most`, to `each`. Returns how many.
    /// Payloads are not copied.
    ///
    /// # Errors
    /// Those of [`receive`](Socket::receive).
    pub fn receive_batch(&mut self, most: usize, mut each: impl FnMut(Frame<'_>)) -> Result<usize> {
        let mut waiting = Waiting::new();
        loop {
            let mut given = 0;
            let taken = self.link.receive(most, &mut |octets, meta| {
                // The kernel gives out nothing shorter than a header, but a link of another kind might.
                if let Some(frame) = Frame::parse(octets, meta) {
                    given += 1;
                    each(frame);
                }
            });
            if let Err(e) = taken {
                self.down |= matches!(e, Error::Down { .. });
                return Err(e);
            }
            if given > 0 || most == 0 {
                self.down = false;
                return Ok(given);
            }
            self.wait(&mut waiting, POLLIN)?;
        }
    }

    fn wait(&self, waiting: &mut Waiting, events: i16) -> Result<()> {
        waiting.looks = waiting.looks.wrapping_add(1);
        match self.settings.wait {
            Wait::Never => return Err(Error::WouldBlock),
            Wait::Spin => {
                std::hint::spin_loop();
                // The clock is not cheap: every eighth look.
                if !waiting.looks.is_multiple_of(8) || self.settings.timeout.is_none() {
                    return Ok(());
                }
            }
            Wait::Sleep => {}
        }
        let left = waiting.left(self.settings.timeout)?;
        if self.settings.wait == Wait::Spin {
            return Ok(());
        }
        let Some(descriptor) = self.link.descriptor() else { return Err(Error::WouldBlock) };
        let mut fds = [PollFd { fd: descriptor.as_raw_fd(), events, revents: 0 }];
        let sleep = match if self.down || !self.woken { left.min(LONGEST_SLEEP) } else { left } {
            u64::MAX => None,
            ns => Some(ns),
        };
        match ppoll(&mut fds, sleep, 0) {
            Ok(_) if fds[0].revents & POLLOUT != 0 && waiting.looks > 1 => {
                match ppoll(&mut [], Some(left.min(SHORT_SLEEP)), 0) {
                    Err(Errno::INTR) => Err(Error::Interrupted),
                    _ => Ok(()),
                }
            }
            Ok(_) => Ok(()),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(e) => Err(Error::system("wait for the socket", e)),
        }
    }
}

const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;

impl Waiting {
    const fn new() -> Waiting {
        Waiting { started: None, looks: 0 }
    }

    /// Nanoseconds that may still be waited.
    fn left(&mut self, timeout: Option<Duration>) -> Result<u64> {
        let Some(longest) = timeout else { return Ok(u64::MAX) };
        let now = clock::monotonic_ns();
        let started = *self.started.get_or_insert(now);
        let longest_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        match longest_ns.checked_sub(now - started) {
            None | Some(0) => Err(Error::TimedOut { waited: longest }),
            Some(left) => Ok(left),
        }
    }
}

impl<L: Link> AsFd for Socket<L> {
    /// # Panics
    /// Over a link without a descriptor.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.descriptor().expect("a link with a descriptor")
    }
}
