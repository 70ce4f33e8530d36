//! Opening a packet link: every step asks for something, and notes what came of it.

use super::config::{Config, Groups, Mode, Obtained, Receive, Send};
use super::{Device, PacketLink, Receiver, Sender, State, longest};
use crate::{Error, Interface, MacAddr, Result, Statistics, Timestamps, reaper};
use bypath_sys::packet::batch::{ReceiveBatch, SendBatch};
use bypath_sys::packet::frame::LONGEST;
use bypath_sys::packet::ring::{Layout, Ring, Wish};
use bypath_sys::packet::{Membership, Socket, Switch, filter};
use bypath_sys::{Errno, netif};
use std::os::fd::AsFd;

pub(super) fn open(config: &Config) -> Result<PacketLink> {
    check(config)?;
    let interface = Interface::named(&config.interface)?;
    if !interface.ethernet {
        return Err(Error::NotEthernet { interface: interface.name });
    }
    if !interface.up && !config.may_be_down {
        return Err(Error::Down { interface: interface.name });
    }
    let socket = Socket::open().map_err(|e| match e {
        Errno::PERM | Errno::ACCESS => Error::NotAllowed,
        e => Error::system("open a packet socket", e),
    })?;
    reaper::prepare();

    let mut got = Obtained {
        asked: config.mode,
        mode: config.mode,
        timestamps_asked: config.timestamps,
        timestamps: Timestamps::None,
        qdisc_bypass: false,
        offload: false,
        send_time: false,
        receive_queue: 0,
        receive_ring: 0,
        send_ring: 0,
        xdp: None,
        notes: Vec::new(),
    };
    settle_mode(config, &interface, &mut got);
    switches(&socket, config, &interface, &mut got)?;
    timestamps(&socket, config, &interface, &mut got)?;
    attach_filter(&socket, config, &groups(config))?;
    let longest = longest(interface.mtu as usize, got.offload);
    let device = rings(socket, config, longest, &mut got);
    let socket = device.socket();
    let bound = socket.bind(interface.index, !config.send_only);
    bound.map_err(|e| match e {
        Errno::NODEV => Error::Gone { interface: interface.name.clone() },
        e => Error::system("bind the packet socket", e),
    })?;
    if let Some((id, mode)) = config.fanout {
        // A member that is still being closed would keep its share of the group's frames, and the group its mode.
        reaper::settle();
        socket.fanout(id, mode).map_err(|e| Error::system("join the fanout group", e))?;
    }
    memberships(socket, config, interface.index)?;
    // An interface that may be down has said so with the binding.
    let down = socket.take_error().is_some();

    let receiver = match got.mode.receive {
        // Whatever the MTU becomes, and every super-frame, fits.
        Receive::Plain => Receiver::Plain(vec![0; Socket::buffer_for(LONGEST)]),
        Receive::Mmsg => Receiver::Batch(ReceiveBatch::new(config.batch, got.offload)),
        Receive::Ring | Receive::LatencyRing | Receive::Xdp => Receiver::Ring,
    };
    let lost = if matches!(receiver, Receiver::Ring) { None } else { Some(0) };
    let sender = match got.mode.send {
        Send::Plain => Sender::Plain { buffer: vec![0; Socket::buffer_for(longest)], pending: None },
        Send::Mmsg => Sender::Batch(SendBatch::new(config.batch, longest, got.offload)),
        Send::Ring | Send::Xdp => Sender::Ring,
    };
    Ok(PacketLink {
        device: Some(device),
        receiver,
        sender,
        groups: groups(config),
        config: config.clone(),
        mtu: interface.mtu as usize,
        longest,
        state: if down { State::Down } else { State::Up },
        interface,
        statistics: Statistics::default(),
        empty: 0,
        noted: None,
        lost,
        looked: 0,
        stuck: None,
        obtained: got,
    })
}

fn check(config: &Config) -> Result<()> {
    if config.mode.any_xdp() {
        return Err(Error::Invalid(
            "a packet link does not go by AF_XDP: ask for a link of xdp, or for a socket of l2".to_owned(),
        ));
    }
    choice(config)
}

/// Whether these frames can be chosen.
pub fn choice(config: &Config) -> Result<()> {
    let wrong = |text: String| Err(Error::Invalid(text));
    if let Some(tag) = config.ethertypes.iter().find(|&&t| t == 0x8100 || t == 0x88a8) {
        return wrong(format!(
            "{tag:#06x} is a VLAN tag and no EtherType of a payload: choose frames by VLAN"
        ));
    }
    if let Some(length) = config.ethertypes.iter().find(|&&t| t < 0x600) {
        return wrong(format!("{length:#06x} is no EtherType: below 0x0600 the field is a length"));
    }
    if config.ethertypes.len() > filter::MOST {
        return wrong(format!("more than {} EtherTypes: receive all, and choose among them", filter::MOST));
    }
    if let Groups::Only(groups) = &config.groups {
        if groups.len() > filter::MOST {
            return wrong(format!("more than {} groups: receive all, and choose among them", filter::MOST));
        }
        if let Some(mac) = groups.iter().find(|g| !g.is_multicast()) {
            return wrong(format!("{mac} is no group address: the first octet of one is odd"));
        }
    }
    if matches!(config.vlan, filter::Vlan::Id(id) if id > 4094) {
        return wrong("a VLAN is a number from 0 to 4094".to_owned());
    }
    if !(1..=1024).contains(&config.batch) {
        return wrong(format!("a batch of {} frames: from 1 to 1024 are possible", config.batch));
    }
    Ok(())
}

fn groups(config: &Config) -> Groups {
    if config.promiscuous { Groups::All } else { config.groups.clone() }
}

/// Replaces ways out that are not to be had here.
fn settle_mode(config: &Config, interface: &Interface, got: &mut Obtained) {
    if got.mode.send == Send::Ring && interface.loopback && !config.ring_on_loopback {
        got.mode.send = Send::Mmsg;
        got.notes.push(
            "no send ring: on loopback the kernel gives a slot back before every receiver has read it; sending by sendmmsg"
                .to_owned(),
        );
    }
    if got.mode.send == Send::Ring && config.send_time.is_some() {
        got.mode.send = Send::Mmsg;
        got.notes.push("no send ring: its frames cannot carry a time; sending by sendmmsg".to_owned());
    }
}

fn switches(socket: &Socket, config: &Config, interface: &Interface, got: &mut Obtained) -> Result<()> {
    let must = |what, doing| socket.switch(what, true).map_err(|e| Error::system(doing, e));
    must(Switch::AuxData, "ask for VLAN tags")?;
    socket.tell_drops().map_err(|e| Error::system("ask for the count of lost frames", e))?;
    if !config.outgoing {
        must(Switch::IgnoreOutgoing, "leave out frames of this host (this takes Linux 4.20)")?;
    }
    if config.qdisc_bypass {
        must(Switch::QdiscBypass, "bypass the queueing discipline")?;
        got.qdisc_bypass = true;
    }
    if config.offload {
        match socket.switch(Switch::VnetHeader, true) {
            Ok(()) => got.offload = true,
            Err(e) => got.notes.push(format!("no offload: {e}")),
        }
    }
    if let Some(clock) = config.send_time {
        match socket.tx_time(clock as i32) {
            Ok(()) if ["fq", "etf", "taprio"].contains(&interface.queueing.as_str()) => got.send_time = true,
            Ok(()) => got.notes.push(format!(
                "frames are sent at once: the queueing discipline of {name} is `{}`, which knows no times; \
                 tc qdisc replace dev {name} root fq",
                interface.queueing,
                name = interface.name,
            )),
            Err(e) => got.notes.push(format!("frames are sent at once: SO_TXTIME: {e}")),
        }
    }
    got.receive_queue = socket
        .receive_queue(config.receive_queue / 2)
        .map_err(|e| Error::system("set the receive queue's length", e))?;
    if got.receive_queue < config.receive_queue {
        got.notes.push(format!(
            "a receive queue of {} octets instead of {}: sysctl -w net.core.rmem_max={}",
            got.receive_queue,
            config.receive_queue,
            config.receive_queue / 2
        ));
    }
    if config.send_queue > 0 {
        socket
            .send_queue(config.send_queue / 2)
            .map_err(|e| Error::system("set the send queue's length", e))?;
    }
    Ok(())
}

fn timestamps(socket: &Socket, config: &Config, interface: &Interface, got: &mut Obtained) -> Result<()> {
    if config.timestamps == Timestamps::None {
        return Ok(());
    }
    let hardware = config.timestamps == Timestamps::Hardware;
    socket.timestamps(hardware).map_err(|e| Error::system("ask for timestamps", e))?;
    got.timestamps = Timestamps::Software;
    if hardware {
        // What the socket accepts says nothing: the device must be told, and able to.
        match netif::stamp_in_hardware(socket.as_fd(), &interface.name) {
            Ok(true) => got.timestamps = Timestamps::Hardware,
            Ok(false) => got.notes.push("timestamps by the kernel: the device takes none".to_owned()),
            Err(e) => got.notes.push(format!("timestamps by the kernel: the device takes none ({e})")),
        }
    }
    Ok(())
}

/// Attaches the filter that a configuration and these groups make.
pub(super) fn attach_filter(socket: &Socket, config: &Config, groups: &Groups) -> Result<()> {
    let octets: Vec<[u8; 6]> = match groups {
        Groups::All => Vec::new(),
        Groups::Only(groups) => groups.iter().map(|g| g.0).collect(),
    };
    let program = filter::compile(&filter::Choice {
        ethertypes: &config.ethertypes,
        vlan: config.vlan,
        foreign: config.foreign || config.promiscuous,
        groups: matches!(groups, Groups::Only(_)).then_some(octets.as_slice()),
    });
    socket.filter(&program).map_err(|e| Error::system("attach the filter", e))
}

fn memberships(socket: &Socket, config: &Config, index: u32) -> Result<()> {
    let join = |what| socket.member(index, what, true).map_err(|e| Error::system("join", e));
    if config.send_only {
        return Ok(());
    }
    if config.promiscuous {
        return join(Membership::Promiscuous);
    }
    match &config.groups {
        Groups::All => join(Membership::AllMulticast),
        Groups::Only(groups) => groups.iter().try_for_each(|&MacAddr(g)| join(Membership::Multicast(g))),
    }
}

/// Gives the socket the rings of its mode; without them, the next best.
fn rings(socket: Socket, config: &Config, longest: usize, got: &mut Obtained) -> Device {
    let Mode { receive, send } = got.mode;
    let receives = matches!(receive, Receive::Ring | Receive::LatencyRing) && !config.send_only;
    if !receives && matches!(receive, Receive::Ring | Receive::LatencyRing) {
        got.mode.receive = Receive::Plain;
    }
    if !receives && send != Send::Ring {
        return Device::Plain(socket);
    }
    let wish = Wish {
        layout: if receive == Receive::Ring {
            Layout::Blocks { retire_ms: config.block_ms, size: config.block }
        } else {
            Layout::Slots
        },
        receive: if receives { config.receive_ring.max(1) } else { 0 },
        send: if send == Send::Ring { config.send_ring.max(1) } else { 0 },
        longest,
        vnet: got.offload,
    };
    match Ring::new(socket, &wish) {
        Ok(ring) => {
            got.receive_ring = ring.receive_bytes();
            got.send_ring = ring.send_frames();
            Device::Ring(ring)
        }
        Err((socket, e)) => {
            if receives {
                got.mode.receive = Receive::Mmsg;
            }
            if send == Send::Ring {
                got.mode.send = Send::Mmsg;
            }
            got.notes.push(format!("no ring: {e}; moving frames by recvmmsg and sendmmsg"));
            Device::Plain(socket)
        }
    }
}
