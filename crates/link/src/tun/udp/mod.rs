//! UDP over a TUN device: headers made here, packets handed to the kernel in one piece, in pieces, or many at a time.
//!
//! | mode | one datagram | many |
//! |---|---|---|
//! | [`Mode::Assemble`] | copied behind its headers, `write` | one by one |
//! | [`Mode::Pieces`] | headers and payload stay where they are, `writev` | one by one |
//! | [`Mode::Super`] | as pieces | datagrams of one size in one `writev`, up to [`MOST_SEGMENTS`] |
//!
//! Nothing is allocated per packet. A datagram that does not fit into the MTU is cut into IP fragments, unless that is
//! forbidden; fragments that arrive are put together again.

mod fragment;
mod header;
mod reassembly;
mod receive;
mod send;

use super::device::{Device, Kind};
use super::refused::Refused;
use crate::{Error, Link, Result, Statistics};
use bypath_sys::clock;
use bypath_wire::{Ecn, TrafficClass};
use reassembly::Reassembly;
use receive::Held;
use std::net::SocketAddr;
use std::time::Duration;

/// The most datagrams of a super-packet. Linux took as many from a socket before 6.7, and puts as many together.
pub const MOST_SEGMENTS: usize = 64;

/// How packets are handed to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Headers and payload are copied together and written.
    Assemble,
    /// Headers and payload are written from where they are.
    #[default]
    Pieces,
    /// As pieces, and many datagrams at a time where many are given.
    Super,
}

/// Who computes the checksum of sent datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The kernel, if anybody must: a receiver on this host takes the datagram without.
    Kernel,
    /// We do.
    Own,
    /// Nobody: the field says so (IPv4 only).
    Omitted,
}

/// What is asked of a [`Udp`]: see [`Udp::over`].
#[derive(Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct Builder {
    device: Device,
    local: SocketAddr,
    mode: Mode,
    checksum: Option<Checksum>,
    ttl: u8,
    dscp: u8,
    ecn: Ecn,
    whole: bool,
    mtu: Option<usize>,
    timeout: Option<Duration>,
}

impl Builder {
    /// How packets are handed to the kernel; in pieces unless asked.
    pub const fn mode(mut self, mode: Mode) -> Builder {
        self.mode = mode;
        self
    }

    /// Who computes the checksum: unless asked the kernel, where it offers to, and we elsewhere.
    pub const fn checksum(mut self, who: Checksum) -> Builder {
        self.checksum = Some(who);
        self
    }

    /// Routers that a packet may pass (TTL, hop limit), from 1; 64 unless asked.
    pub const fn ttl(mut self, routers: u8) -> Builder {
        self.ttl = routers;
        self
    }

    /// The differentiated services code point, 0 to 63; 0 unless asked.
    pub const fn dscp(mut self, code: u8) -> Builder {
        self.dscp = code;
        self
    }

    /// Congestion notification; not capable unless asked.
    pub const fn ecn(mut self, ecn: Ecn) -> Builder {
        self.ecn = ecn;
        self
    }

    /// Datagrams must not be cut, not here and, over IPv4, by no router either (DF). They may be unless asked.
    pub const fn dont_fragment(mut self, on: bool) -> Builder {
        self.whole = on;
        self
    }

    /// The MTU of the path, where it is smaller than the device's.
    pub const fn path_mtu(mut self, octets: usize) -> Builder {
        self.mtu = Some(octets);
        self
    }

    /// How long a call that receives waits; for ever unless asked, and not at all with zero.
    pub const fn timeout(mut self, longest: Duration) -> Builder {
        self.timeout = Some(longest);
        self
    }

    /// Begins.
    ///
    /// # Errors
    /// [`Error::Invalid`] for values that cannot be; [`Refused::NoSuperPackets`]; [`Refused::MtuTooSmall`].
    pub fn open(self) -> Result<Udp> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if self.device.kind() == Kind::Tap {
            return invalid(
                "UDP goes over a TUN device: a TAP device's frames need addresses that nobody tells"
                    .to_owned(),
            );
        }
        if self.local.port() == 0 || self.local.ip().is_unspecified() || self.local.ip().is_multicast() {
            return invalid(format!(
                "{}: the own address is one host's, with a port from 1 to 65535",
                self.local
            ));
        }
        if self.ttl == 0 || self.dscp > 63 {
            return invalid(format!(
                "TTL {} and DSCP {}: a TTL is a number from 1 to 255, a DSCP one from 0 to 63",
                self.ttl, self.dscp
            ));
        }
        let offloads = self.device.obtained().offloads;
        if self.mode == Mode::Super && !offloads.udp {
            return Err(Refused::NoSuperPackets { interface: self.device.name().to_owned() }.into());
        }
        let checksum =
            self.checksum.unwrap_or(if offloads.checksum { Checksum::Kernel } else { Checksum::Own });
        match checksum {
            Checksum::Kernel if !offloads.checksum => {
                return invalid("the kernel does not compute checksums for this device: leave the choice, or ask for own ones".to_owned());
            }
            Checksum::Omitted if self.local.is_ipv6() => {
                return invalid("IPv6 has no datagrams without a checksum (RFC 8200, 8.1)".to_owned());
            }
            Checksum::Own | Checksum::Omitted if self.mode == Mode::Super => {
                return invalid(
                    "who cuts super-packets computes their checksums: leave them to the kernel".to_owned(),
                );
            }
            _ => {}
        }
        let (what, least) = if self.local.is_ipv4() { ("IPv4", 68) } else { ("IPv6", 1280) };
        let mtu = self.mtu.unwrap_or(usize::MAX).min(self.device.mtu());
        if mtu < least {
            return Err(
                Refused::MtuTooSmall { interface: self.device.name().to_owned(), mtu, what, least }.into()
            );
        }
        Ok(Udp {
            device: self.device,
            local: self.local,
            mode: self.mode,
            checksum,
            ttl: self.ttl,
            class: TrafficClass::new(self.dscp, self.ecn),
            whole: self.whole,
            path_mtu: self.mtu.unwrap_or(usize::MAX),
            timeout: self.timeout,
            template: None,
            // A sender before this one, of the same address, may have fragments on their way.
            identification: clock::monotonic_ns() as u32,
            assembled: vec![0; header::MOST + 65_535].into(),
            held: None,
            unreachable: None,
            reassembly: Reassembly::default(),
            counts: Counts::default(),
        })
    }
}

/// A sender and receiver of datagrams: see the [module](self).
#[derive(Debug)]
pub struct Udp {
    device: Device,
    local: SocketAddr,
    mode: Mode,
    checksum: Checksum,
    ttl: u8,
    class: TrafficClass,
    whole: bool,
    path_mtu: usize,
    timeout: Option<Duration>,
    /// Headers of the last receiver's datagrams.
    template: Option<header::Template>,
    identification: u32,
    assembled: Box<[u8]>,
    /// What of a received packet was not given out yet.
    held: Option<Held>,
    /// Somebody who takes no datagrams, to be told by the next call.
    unreachable: Option<SocketAddr>,
    reassembly: Reassembly,
    counts: Counts,
}

/// Packets that were read and not given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that are no datagrams to this address and port: the kernel's own, others' (ICMP, multicast).
    pub others: u64,
    /// Packets that are not what they say.
    pub malformed: u64,
    /// Datagrams, and messages of ICMP, whose checksum does not fit.
    pub corrupt: u64,
    /// Fragments that were read.
    pub fragments: u64,
    /// Datagrams of which a fragment never came, or came twice.
    pub incomplete: u64,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What it carries.
    pub payload: &'a [u8],
    /// From whom.
    pub source: SocketAddr,
    /// Type of service, traffic class.
    pub class: TrafficClass,
    /// Routers that it might still have passed.
    pub ttl: u8,
}

/// A datagram that was copied out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Octets of payload in the buffer.
    pub len: usize,
    /// Octets that the payload had.
    pub whole: usize,
    /// From whom.
    pub source: SocketAddr,
    /// Type of service, traffic class.
    pub class: TrafficClass,
    /// Routers that it might still have passed.
    pub ttl: u8,
}

impl Udp {
    /// Begins to say what is wanted over this device. `local` is the own end: an address that the kernel reaches through the
    /// device and does not have itself.
    pub const fn over(device: Device, local: SocketAddr) -> Builder {
        Builder {
            device,
            local,
            mode: Mode::Pieces,
            checksum: None,
            ttl: 64,
            dscp: 0,
            ecn: Ecn::NotCapable,
            whole: false,
            mtu: None,
            timeout: None,
        }
    }

    /// The own address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The device.
    pub const fn device(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The device alone.
    pub fn into_device(self) -> Device {
        self.device
    }

    /// How packets are handed to the kernel.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Hands them over in another way from now on.
    ///
    /// # Errors
    /// [`Refused::NoSuperPackets`]; [`Error::Invalid`] for super-packets with own checksums.
    pub fn set_mode(&mut self, mode: Mode) -> Result<()> {
        if mode == Mode::Super {
            if !self.device.obtained().offloads.udp {
                return Err(Refused::NoSuperPackets { interface: self.device.name().to_owned() }.into());
            }
            if self.checksum != Checksum::Kernel {
                let text = "who cuts super-packets computes their checksums: leave them to the kernel";
                return Err(Error::Invalid(text.to_owned()));
            }
        }
        self.mode = mode;
        Ok(())
    }

    /// How long a call that receives waits from now on: `None` for ever, zero not at all.
    pub const fn set_timeout(&mut self, longest: Option<Duration>) {
        self.timeout = longest;
    }

    /// Octets of the largest packet that is sent in one piece.
    pub fn mtu(&self) -> usize {
        self.device.mtu().min(self.path_mtu)
    }

    /// Octets of the largest datagram.
    pub const fn most_payload(&self) -> usize {
        match self.local {
            SocketAddr::V4(_) => 65_535 - 28,
            SocketAddr::V6(_) => 65_535 - 8,
        }
    }

    /// Octets of the largest datagram that is sent without being cut.
    pub fn most_uncut(&self) -> usize {
        self.mtu().saturating_sub(self.headers()).min(self.most_payload())
    }

    /// Octets of IP and UDP header.
    const fn headers(&self) -> usize {
        match self.local {
            SocketAddr::V4(_) => 28,
            SocketAddr::V6(_) => 48,
        }
    }

    /// Packets that passed the device; what was sent and received in them counts as one each.
    pub fn statistics(&mut self) -> Statistics {
        self.device.statistics()
    }

    /// Packets that were read and not given out.
    pub fn counts(&self) -> Counts {
        Counts { incomplete: self.reassembly.incomplete, ..self.counts }
    }
}
