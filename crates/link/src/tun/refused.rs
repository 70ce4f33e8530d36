//! What can go wrong with TUN and TAP devices, and what to do about it.

use super::Kind;
use bypath_sys::Errno;
use std::net::SocketAddr;

/// Why there is no device, or it does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The device node, or the driver behind it, is missing.
    #[error(
        "{path}: there is no TUN device here: load the driver (sudo modprobe tun); in a container, give it the device \
         (--device /dev/net/tun)"
    )]
    Missing {
        /// Where it was looked for.
        path: String,
    },
    /// The device node may not be opened.
    #[error(
        "{path}: this user may not open it: run as root, or have it opened to everybody, as is usual and harmless \
         (sudo chmod 0666 {path}); where there are CAP_NET_ADMIN and CAP_NET_RAW, as in a namespace of one's own, a veth pair does without it"
    )]
    Forbidden {
        /// Which one.
        path: String,
    },
    /// The path leads to something else.
    #[error("{path}: this is no TUN device; /dev/net/tun is one")]
    NotTun {
        /// Which one.
        path: String,
    },
    /// Interfaces may not be made.
    #[error(
        "{interface}: making an interface, or attaching to another user's, needs the capability CAP_NET_ADMIN: run as root, \
         or in a network of your own (unshare --user --net --map-root-user PROGRAM), or have one made for you once \
         (sudo ip tuntap add {interface} mode {kind} user $USER) and attach to it"
    )]
    NotAllowed {
        /// The name asked for.
        interface: String,
        /// What was to be made.
        kind: Kind,
    },
    /// There is such an interface already.
    #[error(
        "{interface}: there is an interface of this name already: choose another name (tun%d stands for the first that is \
         free), attach to it if it is a TUN or TAP device that persists, or remove it (ip link del {interface})"
    )]
    Taken {
        /// The name asked for.
        interface: String,
    },
    /// No interface can have such a name.
    #[error(
        "{interface:?}: no interface can have such a name: 1 to 15 octets, without slash, colon, space; %d once, for a number"
    )]
    Name {
        /// The name asked for.
        interface: String,
    },
    /// It is another kind of interface.
    #[error(
        "{interface}: this interface is no {kind} device; `ip -details link show {interface}` tells what it is"
    )]
    OtherKind {
        /// The name asked for.
        interface: String,
        /// What was asked for.
        kind: Kind,
    },
    /// Another program is attached to it.
    #[error(
        "{interface}: another program is attached to it, and it has one queue: end that program, or make another device"
    )]
    Busy {
        /// Its name.
        interface: String,
    },
    /// More queues than the driver has, or than the device was made for.
    #[error("{interface}: {asked} queues are not to be had: {why}")]
    Queues {
        /// Its name.
        interface: String,
        /// How many were asked for.
        asked: usize,
        /// What keeps it from having them.
        why: &'static str,
    },
    /// The interface cannot be set up.
    #[error("{interface}: {what} was refused: {}; {remedy}", std::io::Error::from_raw_os_error(*code))]
    Setting {
        /// Its name.
        interface: String,
        /// What was to be set.
        what: String,
        /// errno.
        code: i32,
        /// What to do.
        remedy: &'static str,
    },
    /// Super-packets cannot be sent.
    #[error(
        "{interface}: this kernel, or how the device was opened, has no super-packets of UDP (USO, Linux 6.2): send packets \
         singly (mode assemble or writev)"
    )]
    NoSuperPackets {
        /// Its name.
        interface: String,
    },
    /// A datagram is longer than any can be.
    #[error("{len} octets are too long for a datagram: one carries {most} at most; cut them into several")]
    DatagramTooLong {
        /// Octets of payload.
        len: usize,
        /// How many can be.
        most: usize,
    },
    /// A datagram does not fit into a packet, and must not be cut.
    #[error(
        "{len} octets are too long: {interface} carries {most} octets of a datagram in one packet, and it must not be cut; \
         allow fragments, send less, or raise the MTU: ip link set dev {interface} mtu {need}"
    )]
    TooLong {
        /// The interface's name.
        interface: String,
        /// Octets of payload.
        len: usize,
        /// How many fit.
        most: usize,
        /// The MTU that would do.
        need: usize,
    },
    /// The MTU leaves no room.
    #[error(
        "{interface}: an MTU of {mtu} is too small for {what}, which takes {least}: give it one of {least} or more (a device that is there: \
         ip link set dev {interface} mtu {least})"
    )]
    MtuTooSmall {
        /// The interface's name.
        interface: String,
        /// The MTU.
        mtu: usize,
        /// What it does not suffice for.
        what: &'static str,
        /// What would.
        least: usize,
    },
    /// The datagram came to a host where nobody takes it.
    #[error("{peer}: nobody takes datagrams there; start the receiver first, and check address and port")]
    Unreachable {
        /// To whom it was.
        peer: SocketAddr,
    },
}

impl Refused {
    /// The errno that stands for it.
    pub(crate) fn code(&self) -> i32 {
        use Errno as E;
        let errno = match self {
            Refused::Missing { .. } => E::NODEV,
            Refused::Forbidden { .. } => E::ACCESS,
            Refused::NotTun { .. } => E::NOTTY,
            Refused::NotAllowed { .. } => E::PERM,
            Refused::Taken { .. } => E::EXIST,
            Refused::Name { .. } | Refused::OtherKind { .. } | Refused::MtuTooSmall { .. } => E::INVAL,
            Refused::Busy { .. } => E::BUSY,
            Refused::Queues { .. } => E::TOOBIG,
            Refused::Setting { code, .. } => return *code,
            Refused::NoSuperPackets { .. } => E::OPNOTSUPP,
            Refused::DatagramTooLong { .. } | Refused::TooLong { .. } => E::MSGSIZE,
            Refused::Unreachable { .. } => E::CONNREFUSED,
        };
        errno.raw_os_error()
    }
}
