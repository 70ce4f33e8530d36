//! What can go wrong, and what to do about it.

use bypath_sys::Errno;
use std::time::Duration;

/// What is wrong with a name that no interface has.
fn unknown(interface: &str) -> String {
    match interface {
        "" => "the interface's name is empty; name one".to_owned(),
        name => format!("{name}: no such interface"),
    }
}

/// Why an operation on a link failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such interface.
    #[error("{}; there are: {}", unknown(interface), known.join(", "))]
    Unknown {
        /// The name asked for.
        interface: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// No interface can have such a name.
    #[error("{interface}: no interface has such a name; names have at most 15 octets")]
    NameTooLong {
        /// The name asked for.
        interface: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "{interface}: this interface does not carry Ethernet frames; use one that does, or the kernel's sockets"
    )]
    NotEthernet {
        /// Its name.
        interface: String,
    },
    /// The interface is switched off.
    #[error("{interface}: the interface is down; switch it on: ip link set dev {interface} up")]
    Down {
        /// Its name.
        interface: String,
    },
    /// The interface was removed while it was open.
    #[error("{interface}: the interface was removed; open it anew when it is back")]
    Gone {
        /// Its name.
        interface: String,
    },
    /// Packet sockets are not allowed.
    #[error(
        "packet sockets need the capability CAP_NET_RAW: run as root, or once \
         `sudo setcap cap_net_raw+ep PROGRAM`, or try it in a network of your own: \
         `unshare --user --net --map-root-user PROGRAM`"
    )]
    NotAllowed,
    /// A frame is longer than the interface carries.
    #[error(
        "a payload of {payload} octets is too long: {interface} carries {mtu} in a frame; \
         send less, or raise it on both ends: ip link set dev {interface} mtu {payload}"
    )]
    TooLong {
        /// The interface's name.
        interface: String,
        /// Octets that follow the EtherType.
        payload: usize,
        /// The interface's MTU.
        mtu: usize,
    },
    /// A frame is longer than the buffers made when the link was opened.
    #[error(
        "a payload of {payload} octets is longer than {interface} carried when this socket was opened ({room}); \
         close it and open it anew"
    )]
    Grown {
        /// The interface's name.
        interface: String,
        /// Octets that follow the EtherType.
        payload: usize,
        /// Octets that there is room for.
        room: usize,
    },
    /// A frame is shorter than its header.
    #[error("a frame of {len} octets has no room for an Ethernet header of 14")]
    TooShort {
        /// Octets of the frame.
        len: usize,
    },
    /// Nothing arrived, or could be sent, in time.
    #[error("nothing happened for {waited:?}")]
    TimedOut {
        /// How long was waited.
        waited: Duration,
    },
    /// Nothing is there, or can be sent, at this moment.
    #[error("this would have to wait, and the socket does not")]
    WouldBlock,
    /// A signal came while waiting.
    #[error("a signal came while waiting; call again to go on")]
    Interrupted,
    /// The device threw a frame away (ENOBUFS). The kernel does not tell why: a full queue, or, of a pair of virtual
    /// interfaces, an other end that takes no frame so long.
    #[error(
        "{interface}: the device threw away a frame with a payload of {payload} octets, and does not tell why: if its \
         queue is full, send more slowly, or lengthen it: ip link set dev {interface} txqueuelen 10000; if the other end \
         takes no frame so long, give both the same MTU: ip link shows it"
    )]
    QueueFull {
        /// The interface's name.
        interface: String,
        /// Octets that follow the EtherType.
        payload: usize,
    },
    /// There is no XDP link.
    #[error(transparent)]
    Xdp(#[from] crate::xdp::Refused),
    /// Something about TUN and TAP devices.
    #[error(transparent)]
    Tun(#[from] crate::tun::Refused),
    /// A value that cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// Something else that the system answered.
    #[error("could not {doing}: {}", std::io::Error::from_raw_os_error(*code))]
    System {
        /// What was tried.
        doing: &'static str,
        /// errno.
        code: i32,
    },
}

impl Error {
    pub(crate) const fn system(doing: &'static str, e: Errno) -> Error {
        Error::System { doing, code: e.raw_os_error() }
    }

    /// The errno that stands for it.
    pub fn code(&self) -> i32 {
        use bypath_sys::Errno as E;
        let errno = match self {
            Error::Unknown { .. } | Error::NotEthernet { .. } => E::NODEV,
            Error::NameTooLong { .. } => E::NAMETOOLONG,
            Error::Down { .. } => E::NETDOWN,
            Error::Gone { .. } => E::NXIO,
            Error::NotAllowed => E::PERM,
            Error::TooLong { .. } | Error::Grown { .. } => E::MSGSIZE,
            Error::TooShort { .. } | Error::Invalid(_) => E::INVAL,
            Error::TimedOut { .. } => E::TIMEDOUT,
            Error::WouldBlock => E::AGAIN,
            Error::Interrupted => E::INTR,
            Error::QueueFull { .. } => E::NOBUFS,
            Error::System { code, .. } => return *code,
            Error::Xdp(refused) => return refused.code(),
            Error::Tun(refused) => return refused.code(),
        };
        errno.raw_os_error()
    }
}
