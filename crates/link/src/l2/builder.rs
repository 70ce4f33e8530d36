//! Says what socket is wanted.

use super::link::AnyLink;
use super::socket::{Settings, Socket, Wait};
use super::{TPID_SERVICE, TPID_VLAN, xdp};
use crate::packet::{Clock, Config, Fanout, Groups, Mode, PacketLink, Vlan};
use crate::xdp::{BusyPoll, Place, Transfer};
use crate::{Error, MacAddr, Result, Timestamps};
use bypath_wire::meta::VlanTag;
use std::time::Duration;

/// A socket to be opened: see [`Socket::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is opened before `open`"]
pub struct Builder {
    config: Config,
    settings: Settings,
    vlans: Option<Vlan>,
    asked: Asked,
}

/// What was asked for, where that differs from leaving it as it is usual.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub timestamps: Option<Timestamps>,
    pub receive_queue: Option<usize>,
    pub receive_ring: Option<usize>,
    pub send_ring: Option<usize>,
    pub queue: Option<u32>,
    pub transfer: Option<Transfer>,
    pub place: Option<Place>,
    pub need_wakeup: Option<bool>,
    pub busy_poll: Option<BusyPoll>,
}

impl Asked {
    /// What only AF_XDP has.
    const fn xdp(&self) -> bool {
        self.queue.is_some()
            || self.transfer.is_some()
            || self.place.is_some()
            || self.need_wakeup.is_some()
            || self.busy_poll.is_some()
    }
}

impl Builder {
    pub(super) fn new(interface: &str) -> Builder {
        let mut config = Config::new(interface);
        config.groups = Groups::Only(Vec::new());
        config.timestamps = Timestamps::Software;
        Builder { config, settings: Settings::default(), vlans: None, asked: Asked::default() }
    }

    /// What sent frames carry, and which frames are received. Called again, it adds one that is received. Without it,
    /// frames of every EtherType are received, and a frame is sent by [`Socket::send_with`] only.
    pub fn ethertype(mut self, ethertype: u16) -> Builder {
        self.settings.ethertype = self.settings.ethertype.or(Some(ethertype));
        if !self.config.ethertypes.contains(&ethertype) {
            self.config.ethertypes.push(ethertype);
        }
        self
    }

    /// Sent frames get this VLAN (0 to 4094; 0: a priority only) and priority (0 to 7), and frames of this VLAN are
    /// received, of whatever priority.
    pub fn vlan(self, id: u16, priority: u8) -> Builder {
        self.tag(VlanTag { tpid: TPID_VLAN, pcp: priority, dei: false, vid: id })
    }

    /// [`vlan`](Builder::vlan) with every field of the tag.
    pub fn tag(mut self, tag: VlanTag) -> Builder {
        self.settings.tag = Some(tag);
        self
    }

    /// Which VLANs' frames are received, in place of the one that frames are sent to.
    pub fn receive_vlan(mut self, vlan: Vlan) -> Builder {
        self.vlans = Some(vlan);
        self
    }

    /// Frames to this group are received.
    pub fn group(mut self, group: MacAddr) -> Builder {
        match &mut self.config.groups {
            Groups::Only(groups) => groups.push(group),
            Groups::All => {}
        }
        self
    }

    /// Frames to any group are received.
    pub fn all_groups(mut self) -> Builder {
        self.config.groups = Groups::All;
        self
    }

    /// Frames to other hosts are received if the device gives them to us, as loopback and veth do.
    pub fn foreign(mut self) -> Builder {
        self.config.foreign = true;
        self
    }

    /// The device is to give us everything, and everything is received.
    pub fn promiscuous(mut self) -> Builder {
        self.config.promiscuous = true;
        self
    }

    /// Frames that this host sends are received, too: for looking on.
    pub fn outgoing(mut self) -> Builder {
        self.config.outgoing = true;
        self
    }

    /// How frames move between the kernel and us; [`Mode::PLAIN`] unless asked.
    ///
    /// [`Mode::XDP`] needs EtherTypes, and takes their frames away from the kernel and everybody else: see the
    /// [module](super#af_xdp).
    pub fn mode(mut self, mode: Mode) -> Builder {
        self.config.mode = mode;
        self
    }

    /// The device queue, from 0, with [`Mode::XDP`]; 0 unless asked.
    pub fn queue(mut self, queue: u32) -> Builder {
        self.asked.queue = Some(queue);
        self
    }

    /// Who copies frames between the device and our memory, with [`Mode::XDP`]. Unless asked nobody where the driver can,
    /// the kernel elsewhere.
    pub fn transfer(mut self, transfer: Transfer) -> Builder {
        self.asked.transfer = Some(transfer);
        self
    }

    /// Where the program that chooses frames runs, with [`Mode::XDP`]. Unless asked in the driver where that can, behind
    /// it elsewhere.
    pub fn place(mut self, place: Place) -> Builder {
        self.asked.place = Some(place);
        self
    }

    /// Whether the kernel tells when it must be woken, with [`Mode::XDP`]; it does unless asked. Otherwise it is woken for
    /// every batch.
    pub fn need_wakeup(mut self, on: bool) -> Builder {
        self.asked.need_wakeup = Some(on);
        self
    }

    /// Receiving calls work in the device's queue themselves, with [`Mode::XDP`].
    pub fn busy_poll(mut self, poll: BusyPoll) -> Builder {
        self.asked.busy_poll = Some(poll);
        self
    }

    /// Who takes the time of received frames; unless asked the kernel, and with [`Mode::XDP`] nobody.
    pub fn timestamps(mut self, who: Timestamps) -> Builder {
        self.config.timestamps = who;
        self.asked.timestamps = Some(who);
        self
    }

    /// Whether short frames are padded; they are unless asked.
    pub fn padding(mut self, on: bool) -> Builder {
        self.settings.pad = on;
        self
    }

    /// The longest wait, to the nanosecond; for ever unless asked.
    pub fn timeout(mut self, longest: Duration) -> Builder {
        self.settings.timeout = Some(longest);
        self
    }

    /// Never waits: what would have to wait is [`Error::WouldBlock`].
    pub fn nonblocking(mut self) -> Builder {
        self.settings.wait = Wait::Never;
        self
    }

    /// Looks without a pause instead of sleeping.
    pub fn spin(mut self) -> Builder {
        self.settings.wait = Wait::Spin;
        self
    }

    /// Sent frames do not pass the queueing discipline. Captures on this host do not see them either.
    pub fn qdisc_bypass(mut self) -> Builder {
        self.config.qdisc_bypass = true;
        self
    }

    /// The interface's frames are shared with the other sockets of this group. When one of them is closed, what is on its way
    /// to it at that moment is lost: as with any way of closing, and for the moment until a thread of ours comes to it.
    pub fn fanout(mut self, group: u16, mode: Fanout) -> Builder {
        self.config.fanout = Some((group, mode));
        self
    }

    /// Frames may carry the time at which they are to be sent ([`super::Header::at`]).
    pub fn send_time(mut self, clock: Clock) -> Builder {
        self.config.send_time = Some(clock);
        self
    }

    /// Octets of the receive queue, by the kernel's count: 4 MiB unless asked.
    pub fn receive_queue(mut self, octets: usize) -> Builder {
        self.config.receive_queue = octets;
        self.asked.receive_queue = Some(octets);
        self
    }

    /// Octets of a block of the receive ring, where it has blocks: 128 KiB unless asked ([`Config::block`]).
    pub fn block(mut self, octets: usize) -> Builder {
        self.config.block = octets;
        self
    }

    /// Octets of the receive ring, where the mode has one: 8 MiB unless asked ([`Config::receive_ring`]); with
    /// [`Mode::XDP`] of the buffers to receive into: as many as 2048 frames of an ordinary MTU take.
    pub fn receive_ring(mut self, octets: usize) -> Builder {
        self.config.receive_ring = octets;
        self.asked.receive_ring = Some(octets);
        self
    }

    /// Frames of the send ring, where the mode has one: 256 unless asked, 512 with [`Mode::XDP`].
    pub fn send_ring(mut self, frames: usize) -> Builder {
        self.config.send_ring = frames;
        self.asked.send_ring = Some(frames);
        self
    }

    /// A send ring on loopback, too: for when every receiver there has a receive ring
    /// ([`Config::ring_on_loopback`]).
    pub fn ring_on_loopback(mut self) -> Builder {
        self.config.ring_on_loopback = true;
        self
    }

    /// Frames of one call where many are moved: 64 unless asked.
    pub fn batch(mut self, frames: usize) -> Builder {
        self.config.batch = frames;
        self
    }

    /// Nothing is received.
    pub fn send_only(mut self) -> Builder {
        self.config.send_only = true;
        self
    }

    /// The interface may be down; frames come when it is up.
    pub fn may_be_down(mut self) -> Builder {
        self.config.may_be_down = true;
        self
    }

    /// Opens the socket.
    ///
    /// # Errors
    /// [`Error::Unknown`], [`Error::NameTooLong`], [`Error::NotEthernet`], [`Error::Down`], [`Error::NotAllowed`];
    /// [`Error::Invalid`] for values that cannot be, and for what the mode cannot do; [`Error::Xdp`] with the reason why
    /// there is no AF_XDP socket; others of the system.
    pub fn open(mut self) -> Result<Socket> {
        if let Some(tag) = self.settings.tag {
            if tag.vid > 4094 || tag.pcp > 7 {
                let text = format!(
                    "VLAN {} with priority {}: a VLAN is a number from 0 to 4094, a priority one from 0 to 7",
                    tag.vid, tag.pcp
                );
                return Err(Error::Invalid(text));
            }
            if tag.tpid != TPID_VLAN && tag.tpid != TPID_SERVICE {
                let text = format!("{:#06x} is no tag protocol identifier: 0x8100 and 0x88a8 are", tag.tpid);
                return Err(Error::Invalid(text));
            }
        }
        let own = match self.settings.tag {
            None => Vlan::Any,
            Some(VlanTag { vid: 0, .. }) => Vlan::None,
            Some(tag) => Vlan::Id(tag.vid),
        };
        self.config.vlan = self.vlans.unwrap_or(own);
        let link = if self.config.mode.any_xdp() {
            AnyLink::xdp(xdp::open(&self.config, &self.asked, self.settings.wait == Wait::Spin)?)
        } else if self.asked.xdp() {
            let text = "a queue, a transfer, a place for the program, need-wakeup and busy-poll are AF_XDP's: ask for mode XDP";
            return Err(Error::Invalid(text.to_owned()));
        } else {
            AnyLink::packet(PacketLink::open(&self.config)?)
        };
        let up = link.interface().up;
        let socket = Socket::over(link, self.settings);
        Ok(if up { socket } else { socket.begin_down() })
    }
}
