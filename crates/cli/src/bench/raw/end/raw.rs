//! Raw Ethernet sockets: packet links in two modes, and AF_XDP links.

use super::frame::{Content, Numbers};
use super::{Control, Trouble};
use crate::bench::raw::order::Carrier;
use bypath::l2::{Error, MacAddr, Mode};
use bypath::link::packet::{Config, Groups, PacketLink, Receive, Send};
use bypath::link::xdp::{self, Rule, XdpLink};
use bypath::link::{Link, Result};
use bypath_sys::poll::{PollFd, ppoll};
use std::os::fd::AsRawFd as _;

/// EtherTypes for experiments (IEEE 802): one for each direction, so that on loopback nobody gets its own frames.
const TO_FAR: u16 = 0x88b5;
const TO_NEAR: u16 = 0x88b6;
/// Octets of an Ethernet header.
pub const HEADER: usize = 14;
/// Octets of the receive ring where one frame at a time is on its way: what is used again soon stays in the processor's cache.
const SMALL_RING: usize = 256 << 10;
/// Octets of the receive ring where many are, and of a block of it: about what the cache of a core holds, as a fast reader is
/// never far behind; and a reader that sleeps is woken for each block.
const RING: (usize, usize) = (2 << 20, 512 << 10);
/// Octets of a ring that holds what comes while the receiver is without a processor, as UDP's queues do.
pub const DEEP: usize = 64 << 20;
/// Frames of one call.
pub const BATCH: usize = 64;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Sending only.
    Send,
    /// Receiving many.
    Receive,
    /// The same, without a processor now and then.
    ReceiveLater,
    /// One at a time, both ways.
    Talk,
}

/// EtherType of frames from this end, or to it.
pub const fn ethertype(control: &Control, outgoing: bool) -> u16 {
    if control.far == outgoing { TO_NEAR } else { TO_FAR }
}

/// A packet socket's configuration.
pub fn config(control: &Control, carrier: Carrier, what: Use) -> Config {
    let mut config = Config::new(&control.iface);
    config.ethertypes = vec![ethertype(control, false)];
    config.groups = Groups::Only(Vec::new());
    config.receive_queue = super::udp::QUEUE;
    config.batch = BATCH;
    config.mode = match (carrier, what) {
        (Carrier::RawRing, Use::Talk) => Mode::LATENCY,
        (Carrier::RawRing, Use::Send) => Mode { receive: Receive::Plain, send: Send::Ring },
        (Carrier::RawRing, Use::Receive | Use::ReceiveLater) => {
            Mode { receive: Receive::Ring, send: Send::Plain }
        }
        // An AF_XDP socket cannot share loopback's one queue with another one: a batch sends to it.
        (Carrier::Xdp, _) => Mode::MMSG,
        _ => Mode::PLAIN,
    };
    // The only receiver of these frames has a receive ring.
    config.ring_on_loopback = true;
    config.send_only = what == Use::Send;
    if carrier == Carrier::RawRing && what != Use::Talk {
        (config.receive_ring, config.block) = RING;
        config.send_ring = BATCH;
    }
    if what == Use::ReceiveLater {
        config.receive_ring = DEEP;
    }
    if what == Use::Talk {
        config.receive_ring = SMALL_RING;
        // One frame at a time has no need of it.
        config.qdisc_bypass = carrier == Carrier::RawRing;
    }
    config
}

/// A packet link, and what was not obtained of what was asked.
pub fn packet(
    control: &Control,
    carrier: Carrier,
    what: Use,
) -> std::result::Result<(PacketLink, Vec<String>), Trouble> {
    let config = config(control, carrier, what);
    let link = PacketLink::open(&config).map_err(|e| trouble(&e))?;
    let got = link.obtained();
    if got.mode != got.asked && !(what == Use::Send && got.mode.send == got.asked.send) {
        return Err(Trouble::Impossible(format!("not in this mode: {}", got.notes.join("; "))));
    }
    let notes = got.notes.clone();
    Ok((link, notes))
}

/// An AF_XDP link for this end's frames; `spin`: without sleeping.
pub fn xdp(control: &Control, spin: bool) -> std::result::Result<(XdpLink, Vec<String>), Trouble> {
    let mut config = xdp::Config::new(
        &control.iface,
        &[Rule::EtherType { ethertype: ethertype(control, false), vlan: None }],
    );
    config.receive = 4096;
    config.spin = spin;
    let link = XdpLink::open(&config).map_err(|e| trouble(&e))?;
    let got = link.obtained();
    let mut notes = got.notes.clone();
    notes.push(format!("AF_XDP: {:?}, frames looked at in: {:?}", got.transfer, got.place).to_lowercase());
    Ok((link, notes))
}

/// What cannot be had here is no failure.
pub fn trouble(e: &Error) -> Trouble {
    match e {
        Error::Xdp(_) | Error::TooLong { .. } | Error::NotAllowed => Trouble::Impossible(e.to_string()),
        e => Trouble::Failed(e.to_string()),
    }
}

/// Sends numbered frames over any link.
pub struct Sender<L> {
    link: L,
    header: [u8; HEADER],
    content: Content,
}

impl<L: Link> Sender<L> {
    /// To this address.
    pub fn new(control: &Control, link: L, to: MacAddr, content: Content) -> Sender<L> {
        Sender { link, header: header(control, to), content }
    }

    /// Sends some.
    ///
    /// # Errors
    /// Those of the link.
    pub fn send(&mut self, numbers: &mut Numbers) -> Result<()> {
        let Sender { link, header, content } = self;
        let len = HEADER + content.size();
        let mut left = BATCH;
        while left > 0 {
            let sent = link.send(left, &mut |slot| {
                slot[..HEADER].copy_from_slice(header);
                numbers.write(content, &mut slot[HEADER..len]);
                Some((len, Default::default()))
            });
            match sent {
                Ok(n) => left -= n,
                // The device had no room for a frame, which it dropped: it was not sent.
                Err(Error::QueueFull { .. }) => numbers.take_back(),
                Err(e) => return Err(e),
            }
            if left > 0 {
                make_room(link)?;
            }
        }
        Ok(())
    }

    /// Waits until the kernel has taken everything, for a second at most.
    pub fn flush(&mut self) -> Result<()> {
        for _ in 0..20_000 {
            if self.link.flush()? == 0 {
                break;
            }
            make_room(&self.link)?;
        }
        Ok(())
    }
}

/// Waits a moment for room.
fn make_room(link: &impl Link) -> Result<()> {
    const OUT: i16 = 4;
    const MOMENT: u64 = 50_000;
    if let Some(descriptor) = link.descriptor() {
        let mut fds = [PollFd { fd: descriptor.as_raw_fd(), events: OUT, revents: 0 }];
        // An error is a signal: there will be another look.
        let _ = ppoll(&mut fds, Some(MOMENT), 0);
    }
    Ok(())
}

/// Header of this end's frames.
pub fn header(control: &Control, to: MacAddr) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..6].copy_from_slice(&to.0);
    header[6..12].copy_from_slice(&control.mac);
    header[12..].copy_from_slice(&ethertype(control, true).to_be_bytes());
    header
}

/// Gives what is there to `each`, and waits for it for [`super::udp::LOOK_EVERY`] if there is nothing. Returns how many.
///
/// # Errors
/// Those of the link.
pub fn receive(link: &mut impl Link, each: &mut dyn FnMut(&[u8])) -> Result<usize> {
    const IN: i16 = 1;
    let n = link.receive(1024, &mut |frame, _| each(frame.get(HEADER..).unwrap_or(&[])))?;
    if n == 0
        && let Some(descriptor) = link.descriptor()
    {
        let mut fds = [PollFd { fd: descriptor.as_raw_fd(), events: IN, revents: 0 }];
        let _ = ppoll(&mut fds, Some(super::udp::LOOK_EVERY.as_nanos() as u64), 0);
    }
    Ok(n)
}
