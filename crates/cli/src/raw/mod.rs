//! What the tools for raw Ethernet share: values that are typed, sockets, waiting, Ctrl-C, their protocol.

pub mod carrier; // an interface whose cable is out
pub mod header; // the header in front of everything that the tools say to each other
pub mod input; //  lines, or a whole file, as messages
pub mod values; // EtherTypes, times, octets in hexadecimal
pub mod wait; //   waiting for several things, and for Ctrl-C

use crate::output::Failure;
use bypath::l2::{self, Builder, Error, MacAddr, Socket, VlanTag};
use nix::errno::Errno;
use std::time::Duration;

/// Exit status where something was lost, or did not come in time.
pub const LOST: u8 = 3;

/// A failure of the library, with its remedy, as the command reports it.
pub fn failed(e: Error) -> Failure {
    Failure::new(1, e)
}

/// Errors of a socket that pass: no room, a firewall that throws some away, a way that comes back. What they hit is lost, as on
/// any network.
pub const fn passes(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOBUFS
            | Errno::ENOMEM
            | Errno::EPERM
            | Errno::EACCES
            | Errno::ENETUNREACH
            | Errno::EHOSTUNREACH
            | Errno::ENETDOWN
            | Errno::EHOSTDOWN
    )
}

/// The last one of them, as the end of a sentence; nothing if there was none.
pub fn trouble(last: Option<Errno>) -> String {
    let Some(errno) = last else { return String::new() };
    let hint = match errno {
        Errno::EPERM | Errno::EACCES => "; a firewall of this host refuses it: `nft list ruleset` shows it",
        Errno::ENETUNREACH | Errno::EHOSTUNREACH => "; `ip route` shows the ways there are",
        Errno::ENOBUFS | Errno::ENOMEM => "; the interface takes no more at a time",
        _ => "; `ip link` shows the interfaces",
    };
    format!(" (the last error of this host's: {}{hint})", errno.desc())
}

/// The tag of sent frames.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Tag {
    /// Send with a VLAN tag (802.1Q) of this VLAN, 0 to 4094; 0: only a priority
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,

    /// Priority in the tag, 0 to 7; without --vlan the tag is one of VLAN 0 [default: 0]
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: Option<u8>,

    /// Set the tag's drop eligible indicator: a congested switch throws such frames away first
    #[arg(long)]
    drop_eligible: bool,
}

impl Tag {
    /// The tag, `None` if none was asked for.
    pub fn tag(self) -> Option<VlanTag> {
        if self.vlan.is_none() && self.priority.is_none() && !self.drop_eligible {
            return None;
        }
        let (vid, pcp) = (self.vlan.unwrap_or(0), self.priority.unwrap_or(0));
        Some(VlanTag { tpid: l2::TPID_VLAN, pcp, dei: self.drop_eligible, vid })
    }

    /// A builder whose socket sends, and receives, with this tag.
    pub fn apply(self, builder: Builder) -> Builder {
        match self.tag() {
            Some(tag) => builder.tag(tag),
            None => builder,
        }
    }
}

/// Opens a socket that never waits on its own: [`wait::Stop::wait`] does.
///
/// # Errors
/// Those of [`Builder::open`], as the command reports them.
pub fn open(builder: Builder) -> Result<Socket, Failure> {
    builder.nonblocking().open().map_err(failed)
}

/// Sends a frame, waiting for room. A device whose queue is full is given time for a while, as often as needed.
///
/// # Errors
/// Those of [`Socket::send_with`], but for a lack of room.
pub fn send(socket: &mut Socket, header: &l2::Header, payload: &[u8]) -> Result<(), Error> {
    const PAUSE: Duration = Duration::from_micros(50);
    const PAUSES: u32 = 20_000;
    for _ in 0..PAUSES {
        match socket.send_with(header, payload) {
            Err(
                Error::WouldBlock | Error::TimedOut { .. } | Error::QueueFull { .. } | Error::Interrupted,
            ) => {
                // Nobody tells when a queueing discipline has room.
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
    socket.send_with(header, payload)
}

/// That a payload of so many octets fits into a frame of this socket.
///
/// # Errors
/// The interface carries less.
pub fn fits(socket: &Socket, payload: u32) -> Result<(), Failure> {
    let (payload, mtu) = (payload as usize, socket.mtu());
    if payload <= mtu {
        return Ok(());
    }
    Err(failed(Error::TooLong { interface: socket.interface().name.clone(), payload, mtu }))
}

/// A hardware address of one interface, as it is typed.
pub fn unicast(text: &str) -> Result<MacAddr, String> {
    const ONE: &str = "one interface answers: give its hardware address, which `bypath l2 list` shows there";
    match text.parse::<MacAddr>() {
        Ok(mac) if !mac.is_multicast() => Ok(mac),
        Ok(_) => Err(format!("this is the address of a group; {ONE}")),
        Err(_) if text == "broadcast" => Err(ONE.into()),
        Err(e) => Err(e.to_string()),
    }
}

/// A hardware address as it is typed.
pub fn mac(text: &str) -> Result<MacAddr, String> {
    if text == "broadcast" {
        return Ok(MacAddr::BROADCAST);
    }
    text.parse().map_err(|e| format!("{e}, or write `broadcast`"))
}
