//! Opening XDP links: sockets first, then the program that feeds them.

use super::config::{Config, Obtained, Place, Refused, Rule, Transfer, Vlan};
use super::{Device, LEAD, State, XdpLink};
use crate::{Error, Interface, Result, Statistics, reaper};
use bypath_sys::bpf::{Attachment, Program, SocketMap};
use bypath_sys::packet::{self, Membership};
use bypath_sys::xdp::{Binding, HEADROOM, Socket, Wish, program};
use bypath_sys::{Errno, clock};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// The largest buffer; a page of the smallest machines.
const LARGE: usize = 4096;
const SMALL: usize = 2048;
/// Octets of the buffers that wait to be sent: fewer frames of a very large MTU.
const MOST_TO_SEND: usize = 8 << 20;
/// Between two attempts to get what is in use. Nothing tells when the kernel has cleared up.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn open(config: &Config, queues: &[u32]) -> Result<Vec<XdpLink>> {
    check(config, queues)?;
    let interface = Interface::named(&config.interface)?;
    if !interface.ethernet {
        return Err(Error::NotEthernet { interface: interface.name });
    }
    if !interface.up && !config.may_be_down {
        return Err(Error::Down { interface: interface.name });
    }
    reaper::prepare();
    let sockets =
        queues.iter().map(|&queue| socket(config, &interface, queue)).collect::<Result<Vec<_>>>()?;
    let entries = queues.iter().max().map_or(1, |&q| q + 1);
    let map = SocketMap::new(entries).map_err(|e| not_loaded(e, String::new()))?;
    for ((socket, _), &queue) in sockets.iter().zip(queues) {
        map.set(queue, socket.as_fd()).map_err(|e| Error::system("put the socket into its map", e))?;
    }
    let fragments = sockets.iter().any(|(_, got)| got.multi_buffer);
    let instructions = program::redirect(&config.rules, map.descriptor())
        .map_err(|e| Error::system("make the program", e))?;
    let program = Program::load(&instructions, fragments).map_err(|r| not_loaded(r.errno, r.log))?;
    let (attachment, place, note) = attach(&program, config, &interface)?;
    // The attachment holds the program, and the program the map.
    let attachment = Arc::new(attachment);
    let members = members(config, &interface)?.map(Arc::new);
    let link = |(socket, mut got): (Socket, Obtained)| {
        got.place = place;
        got.notes.extend(note.clone());
        XdpLink {
            device: Some(Device { _attachment: Arc::clone(&attachment), members: members.clone(), socket }),
            mtu: interface.mtu as usize,
            longest: super::longest(interface.mtu as usize),
            state: if interface.up { State::Up } else { State::Down },
            interface: interface.clone(),
            statistics: Statistics::default(),
            empty: 0,
            spin: config.spin,
            looked: clock::monotonic_ns(),
            seen: clock::monotonic_ns(),
            obtained: got,
        }
    };
    Ok(sockets.into_iter().map(link).collect())
}

/// Lets the device receive more than what is to itself and to everybody: a packet socket that receives nothing asks for it,
/// and its end takes it back.
fn members(config: &Config, interface: &Interface) -> Result<Option<packet::Socket>> {
    if config.groups.is_empty() && !config.all_groups && !config.promiscuous {
        return Ok(None);
    }
    let socket = no_receiver()?;
    let all = [(config.all_groups, Membership::AllMulticast), (config.promiscuous, Membership::Promiscuous)];
    let all = all.into_iter().filter_map(|(asked, membership)| asked.then_some(membership));
    let groups = config.groups.iter().map(|group| Membership::Multicast(group.0));
    for membership in groups.chain(all) {
        socket.member(interface.index, membership, true).map_err(|e| Error::system("join", e))?;
    }
    Ok(Some(socket))
}

/// A packet socket that receives nothing.
pub(super) fn no_receiver() -> Result<packet::Socket> {
    packet::Socket::open().map_err(|e| Error::system("open a packet socket", e))
}

fn check(config: &Config, queues: &[u32]) -> Result<()> {
    let wrong = |text: &str| Err(Error::Invalid(text.to_owned()));
    if config.rules.is_empty() {
        return wrong("no rule says which frames are wanted; all of them: Rule::Everything");
    }
    if config.rules.len() > 256 {
        return wrong("more than 256 rules: take everything, and choose among it");
    }
    for rule in &config.rules {
        match *rule {
            Rule::EtherType { ethertype, .. } | Rule::Outer { ethertype, .. } if ethertype < 0x600 => {
                return wrong(&format!(
                    "{ethertype:#06x} is no EtherType: below 0x0600 the field is a length"
                ));
            }
            Rule::EtherType { vlan: Some(id), .. } | Rule::Outer { vlan: Vlan::Id(id), .. } if id > 4094 => {
                return wrong("a VLAN is a number from 0 to 4094");
            }
            _ => {}
        }
    }
    if !(64..=1 << 16).contains(&config.receive) || !(1..=1 << 14).contains(&config.send) {
        return wrong(
            "from 64 to 65536 buffers to receive into, and from 1 to 16384 to send from, are possible",
        );
    }
    if let Some(mac) = config.groups.iter().find(|g| !g.is_multicast()) {
        return wrong(&format!("{mac} is no group address: the first octet of one is odd"));
    }
    if queues.is_empty() || queues.iter().any(|&q| q > 4095) {
        return wrong("at least one queue, from 0 to 4095");
    }
    if (1..queues.len()).any(|n| queues[..n].contains(&queues[n])) {
        return wrong("a queue is named twice");
    }
    Ok(())
}

/// Calls `f` until it does not say EBUSY, or `patience` is over. What this process is closing itself, which may be what is
/// in the way, is waited for first.
fn patiently<T>(
    patience: Duration,
    mut f: impl FnMut() -> std::result::Result<T, Errno>,
) -> std::result::Result<T, Errno> {
    let mut end = None;
    loop {
        match f() {
            Err(Errno::BUSY | Errno::EXIST) => {}
            other => return other,
        }
        let end = *end.get_or_insert_with(|| {
            reaper::settle();
            clock::monotonic_ns().saturating_add(patience.as_nanos() as u64)
        });
        if clock::monotonic_ns() > end {
            return Err(Errno::BUSY);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Octets of the buffers for frames of this MTU.
pub fn buffer(mtu: usize) -> usize {
    if super::longest(mtu) <= SMALL - HEADROOM { SMALL } else { LARGE }
}

fn socket(config: &Config, interface: &Interface, queue: u32) -> Result<(Socket, Obtained)> {
    let longest = super::longest(interface.mtu as usize);
    let buffer = buffer(interface.mtu as usize);
    let several = longest > buffer - HEADROOM;
    let wish = Wish {
        chunk: buffer,
        receive: config.receive,
        send: config.send.min((MOST_TO_SEND / (longest + LEAD)).max(16) as u32),
        longest,
        spare: LEAD,
    };
    let mut socket = Socket::open(&wish).map_err(|e| match e {
        Errno::AFNOSUPPORT => Refused::Unsupported.into(),
        Errno::PERM | Errno::ACCESS => Refused::Socket.into(),
        // Whoever may not lock memory may often not attach programs either: that is told first.
        Errno::NOBUFS if SocketMap::new(1).is_err_and(|e| e == Errno::PERM) => Refused::Program.into(),
        Errno::NOBUFS => {
            let chunks = wish.receive.next_power_of_two() as usize
                + wish.send as usize * (wish.longest + wish.spare).div_ceil(buffer);
            Refused::Memory { octets: buffer * chunks }.into()
        }
        e => Error::system("open an AF_XDP socket", e),
    })?;
    let mut got = Obtained {
        queue,
        transfer_asked: config.transfer,
        transfer: Transfer::Copy,
        place_asked: config.place,
        place: Place::Generic,
        need_wakeup_asked: config.need_wakeup,
        need_wakeup: config.need_wakeup,
        busy_poll_asked: config.busy_poll,
        busy_poll: false,
        multi_buffer_asked: several,
        multi_buffer: several,
        longest_received: if several { longest } else { buffer - HEADROOM },
        buffer,
        receive: wish.receive.next_power_of_two(),
        send: wish.send,
        memory: socket.memory(),
        notes: Vec::new(),
    };
    let mut binding = Binding {
        index: interface.index,
        queue,
        transfer: config.transfer,
        need_wakeup: config.need_wakeup,
        multi_buffer: several,
    };
    let mut bound = patiently(config.patience, || socket.bind(&binding));
    if bound == Err(Errno::INVAL) && several {
        // A kernel before 6.6, or no such queue: that is found out here.
        binding.multi_buffer = false;
        bound = patiently(config.patience, || socket.bind(&binding));
        if bound.is_ok() {
            got.multi_buffer = false;
            got.longest_received = buffer - HEADROOM;
            got.notes.push(format!(
                "frames beyond {} octets are not received: this kernel knows no frames in several buffers (Linux 6.6)",
                buffer - HEADROOM
            ));
        }
    }
    let name = interface.name.clone();
    got.transfer = bound.map_err(|e| match e {
        Errno::BUSY => Refused::QueueBusy { interface: name, queue }.into(),
        Errno::INVAL => Refused::Queue { interface: name, queue }.into(),
        Errno::OPNOTSUPP | Errno::PROTONOSUPPORT => {
            Refused::Driver { interface: name, what: "read and write our memory (zero-copy)" }.into()
        }
        Errno::NODEV => Error::Gone { interface: name },
        Errno::NETDOWN => Error::Down { interface: name },
        e => Error::system("bind the AF_XDP socket", e),
    })?;
    if let Some(poll) = config.busy_poll {
        match socket.busy_poll(poll.microseconds, poll.budget) {
            Ok(()) => got.busy_poll = true,
            Err(e) => got.notes.push(format!("the device is not polled: SO_PREFER_BUSY_POLL: {e}")),
        }
    }
    Ok((socket, got))
}

fn not_loaded(errno: Errno, log: String) -> Error {
    match errno {
        Errno::PERM | Errno::ACCESS if log.is_empty() => Refused::Program.into(),
        Errno::NOSYS => Refused::Unsupported.into(),
        e => Refused::Verifier { code: e.raw_os_error(), log }.into(),
    }
}

/// Attaches the program; also says where, and why not in the driver.
fn attach(
    program: &Program,
    config: &Config,
    interface: &Interface,
) -> Result<(Attachment, Place, Option<String>)> {
    let attempt = |place| patiently(config.patience, || program.attach(interface.index, place));
    let first = config.place.unwrap_or(Place::Driver);
    let (result, place, note) = match attempt(first) {
        Ok(attachment) => return Ok((attachment, first, None)),
        Err(e @ (Errno::BUSY | Errno::EXIST | Errno::PERM | Errno::NODEV)) => (Err(e), first, None),
        Err(e) if config.place.is_some() => (Err(e), first, None),
        Err(e) => {
            let note = format!(
                "frames are looked at behind the driver of {}, which cannot do it: {e}",
                interface.name
            );
            (attempt(Place::Generic), Place::Generic, Some(note))
        }
    };
    let name = interface.name.clone();
    match result {
        Ok(attachment) => Ok((attachment, place, note)),
        Err(Errno::BUSY | Errno::EXIST) => Err(Refused::ProgramBusy { interface: name }.into()),
        Err(Errno::PERM) => Err(Refused::Program.into()),
        Err(Errno::NODEV) => Err(Error::Gone { interface: name }),
        Err(_) if config.place == Some(Place::Driver) => Err(Refused::Driver {
            interface: name,
            what: "look at frames itself (native XDP) as it is set up",
        }
        .into()),
        Err(e) => Err(Error::system("attach the program that chooses frames", e)),
    }
}
