//! Sockets by AF_XDP: what a builder says, as an XDP link has it, and of what the link gives, what a packet socket would.
//!
//! The program in the kernel takes the EtherTypes and the VLAN that were asked for, and leaves everything else to the
//! kernel. What it takes goes to nobody else, whomever it is addressed to: frames to others, and to groups that were not
//! joined, are left out here.

use super::builder::Asked;
use crate::packet::{self, Groups, Mode, Obtained, Vlan};
use crate::xdp::{Config, Rule, XdpLink};
use crate::{Capabilities, Each, Error, Interface, Link, MacAddr, Next, Result, Statistics, Timestamps};
use bypath_sys::ethtool::Device;
use bypath_wire::meta::Addressed;
use std::os::fd::BorrowedFd;

/// Batches of which nothing is for us that one call takes.
const MOST_LOOKS: u32 = 256;

/// An XDP link of which only what was asked for is given out.
pub struct Chosen {
    link: XdpLink,
    groups: Groups,
    foreign: bool,
    obtained: Obtained,
    /// Frames that were left out, and their octets.
    left_out: (u64, u64),
}

/// Opens the link that a builder asks for.
pub(super) fn open(wanted: &packet::Config, asked: &Asked, spin: bool) -> Result<Chosen> {
    let config = Config { spin, ..config(wanted, asked)? };
    // Who does not tell takes no tags out, and has one queue.
    let device = Device::open(&wanted.interface).ok();
    let tags = stripped(&wanted.interface, wanted.vlan, &device.as_ref().and_then(strips))?;
    let queues = device.and_then(|d| d.receive_queues().ok()).filter(|&queues| queues > 1);
    let others = queues.map(|queues| {
        format!(
            "{name} has {queues} receive queues, and frames that come through another one than {queue} stay with the kernel: \
             ethtool -L {name} combined 1",
            name = wanted.interface,
            queue = config.queue
        )
    });
    let mut link = XdpLink::open(&config)?;
    let xdp = link.obtained().clone();
    let groups = if wanted.promiscuous { Groups::All } else { wanted.groups.clone() };
    if let Groups::Only(groups) = &groups {
        groups.iter().try_for_each(|&group| link.join(group))?;
    }
    let obtained = Obtained {
        asked: wanted.mode,
        mode: Mode::XDP,
        timestamps_asked: Timestamps::None,
        timestamps: Timestamps::None,
        // There is none on the way.
        qdisc_bypass: true,
        offload: false,
        send_time: false,
        receive_queue: 0,
        receive_ring: xdp.receive as usize * xdp.buffer,
        send_ring: xdp.send as usize,
        notes: xdp.notes.iter().cloned().chain(tags).chain(others).collect(),
        xdp: Some(xdp),
    };
    let foreign = wanted.foreign || wanted.promiscuous;
    Ok(Chosen { link, groups, foreign, obtained, left_out: (0, 0) })
}

fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Invalid(text.into()))
}

/// The XDP link that is asked for.
fn config(wanted: &packet::Config, asked: &Asked) -> Result<Config> {
    packet::choice(wanted)?;
    if wanted.mode != Mode::XDP {
        return wrong("AF_XDP goes both ways: ask for it in and out");
    }
    if wanted.ethertypes.is_empty() {
        return wrong(
            "AF_XDP takes frames away from the kernel: say which EtherTypes are meant; every frame, this host's own \
             traffic included, is taken by an XDP link with Rule::Everything",
        );
    }
    let stamped = asked.timestamps.is_some_and(|who| who != Timestamps::None);
    let cannot = [
        (
            wanted.fanout.is_some(),
            "fanout",
            "a device queue has one AF_XDP socket: spread frames by the device's queues and \
             XdpLink::open_queues, or ask for mode RING",
        ),
        (stamped, "timestamps", "ask for none, or for mode RING, where the kernel takes them"),
        (
            wanted.outgoing,
            "looking at frames that this host sends",
            "open another socket for that, in mode RING",
        ),
        (
            wanted.send_only,
            "only sending",
            "the socket takes its queue for both ways: do not ask for it, or ask for mode RING",
        ),
        (
            wanted.send_time.is_some(),
            "a time of sending",
            "ask for mode PLAIN, and the queueing discipline fq",
        ),
        (
            asked.receive_queue.is_some(),
            "a length of the receive queue",
            "what waits lies in the receive ring: give the length of that",
        ),
    ];
    if let Some((_, what, remedy)) = cannot.iter().find(|(asked, ..)| *asked) {
        return wrong(format!("{what} is not to be had with AF_XDP: {remedy}"));
    }
    let rules: Vec<_> =
        wanted.ethertypes.iter().map(|&ethertype| Rule::Outer { ethertype, vlan: wanted.vlan }).collect();
    let usual = Config::new(&wanted.interface, &rules);
    let interface = Interface::named(&wanted.interface)?;
    let buffer = crate::xdp::buffer(interface.mtu as usize);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Ok(Config {
        queue: asked.queue.unwrap_or(usual.queue),
        transfer: asked.transfer,
        place: asked.place,
        need_wakeup: asked.need_wakeup.unwrap_or(usual.need_wakeup),
        busy_poll: asked.busy_poll,
        receive: asked.receive_ring.map_or(usual.receive, |octets| count(octets.div_ceil(buffer))),
        send: asked.send_ring.map_or(usual.send, count),
        all_groups: wanted.groups == Groups::All,
        promiscuous: wanted.promiscuous,
        may_be_down: wanted.may_be_down,
        ..usual
    })
}

/// The driver of a device that takes VLAN tags out of received frames.
fn strips(device: &Device) -> Option<String> {
    device.offloads().ok().filter(|o| o.rx_vlan).and_then(|_| device.driver().ok())
}

/// What follows from a device, of this driver, that takes VLAN tags out of received frames: the program sees frames without
/// tags. What is noted, if tags do not matter.
fn stripped(interface: &str, vlan: Vlan, driver: &Option<String>) -> Result<Option<String>> {
    // veth says so, and passes frames on as the other end sent them.
    if driver.as_deref().is_none_or(|driver| driver == "veth") {
        return Ok(None);
    }
    let trouble = format!(
        "{interface} takes VLAN tags out of received frames, and AF_XDP does not see them: ethtool -K {interface} rxvlan off"
    );
    match vlan {
        Vlan::Any => Ok(Some(trouble)),
        Vlan::None | Vlan::Id(_) => wrong(trouble + ", or ask for mode RING"),
    }
}

/// Whether a frame is for this socket.
fn wanted(groups: &Groups, foreign: bool, addressed: Addressed, frame: &[u8]) -> bool {
    match (addressed, groups) {
        (Addressed::OtherHost, _) => foreign,
        (Addressed::Multicast, Groups::Only(groups)) => {
            groups.iter().any(|group| frame.starts_with(&group.0))
        }
        _ => true,
    }
}

impl Chosen {
    pub(super) const fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    pub(super) const fn interface(&self) -> &Interface {
        self.link.interface()
    }

    pub(super) fn join(&mut self, group: MacAddr) -> Result<()> {
        self.link.join(group)?;
        if let Groups::Only(groups) = &mut self.groups {
            if groups.contains(&group) {
                // One membership is enough.
                return self.link.leave(group);
            }
            groups.push(group);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, group: MacAddr) -> Result<()> {
        self.link.leave(group)?;
        if let Groups::Only(groups) = &mut self.groups {
            groups.retain(|&g| g != group);
        }
        Ok(())
    }
}

impl Link for Chosen {
    fn capabilities(&self) -> Capabilities {
        self.link.capabilities()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link.descriptor()
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        let Chosen { link, groups, foreign, left_out, .. } = self;
        // Bounded, so that a flood of frames to others cannot keep us here.
        for _ in 0..MOST_LOOKS {
            let mut given = 0;
            let taken = link.receive(most, &mut |frame, meta| {
                if wanted(groups, *foreign, meta.addressed, frame) {
                    given += 1;
                    each(frame, meta);
                } else {
                    left_out.0 += 1;
                    left_out.1 += frame.len() as u64;
                }
            })?;
            // Where all were left out there may be others: nothing given means that there is nothing.
            if taken == 0 || given > 0 {
                return Ok(given);
            }
        }
        Ok(0)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        self.link.send(most, next)
    }

    fn flush(&mut self) -> Result<usize> {
        self.link.flush()
    }

    fn forget(&mut self) -> usize {
        self.link.forget()
    }

    fn statistics(&mut self) -> Statistics {
        let all = self.link.statistics();
        Statistics {
            received: all.received - self.left_out.0,
            received_octets: all.received_octets - self.left_out.1,
            ..all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_takes_tags_out_is_refused_where_they_matter() {
        let driver = Some("e1000e".to_owned());
        for vlan in [Vlan::Id(10), Vlan::None] {
            let refused = stripped("eth7", vlan, &driver).unwrap_err().to_string();
            assert!(refused.contains("ethtool -K eth7 rxvlan off, or ask for mode RING"), "{refused}");
        }
        let note = stripped("eth7", Vlan::Any, &driver).unwrap();
        assert!(note.is_some_and(|n| n.ends_with("ethtool -K eth7 rxvlan off")));
        for driver in [None, Some("veth".to_owned())] {
            for vlan in [Vlan::Id(10), Vlan::None, Vlan::Any] {
                assert_eq!(stripped("eth7", vlan, &driver), Ok(None));
            }
        }
    }

    #[test]
    fn frames_are_for_us_as_they_are_for_a_packet_socket() {
        let joined = MacAddr([3, 0, 0, 0, 0, 1]);
        let only = Groups::Only(vec![joined]);
        let to = |mac: [u8; 6]| [&mac[..], &[0; 8]].concat();
        for (groups, foreign, addressed, mac, expected) in [
            (&only, false, Addressed::Host, [2; 6], true),
            (&only, false, Addressed::Broadcast, [0xff; 6], true),
            (&only, false, Addressed::Multicast, joined.0, true),
            (&only, false, Addressed::Multicast, [3, 0, 0, 0, 0, 2], false),
            (&Groups::All, false, Addressed::Multicast, [3, 0, 0, 0, 0, 2], true),
            (&Groups::All, false, Addressed::OtherHost, [2; 6], false),
            (&only, true, Addressed::OtherHost, [2; 6], true),
            (&only, true, Addressed::Multicast, [3, 0, 0, 0, 0, 2], false),
        ] {
            assert_eq!(wanted(groups, foreign, addressed, &to(mac)), expected, "{addressed:?} {mac:?}");
        }
    }
}
