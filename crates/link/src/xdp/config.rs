//! What is asked of an XDP link, and what was obtained.

use crate::MacAddr;
pub use bypath_sys::bpf::Place;
pub use bypath_sys::packet::filter::Vlan;
pub use bypath_sys::xdp::Transfer;
pub use bypath_sys::xdp::program::Rule;
use std::time::Duration;

/// Receiving by polling the device instead of waiting for its interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Microseconds that a call polls at most.
    pub microseconds: u32,
    /// Frames of one poll, to 65535.
    pub budget: u32,
}

/// What is asked of an XDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the interface.
    pub interface: String,
    /// The device queue, from 0. Others are served by the kernel, or by links of their own: see
    /// [`super::XdpLink::open_queues`].
    pub queue: u32,
    /// What is taken from the kernel. Frames that no rule matches stay with it.
    pub rules: Vec<Rule>,
    /// Who copies; `None`: nobody where the driver can, the kernel elsewhere.
    pub transfer: Option<Transfer>,
    /// Where frames are looked at; `None`: in the driver where it can, behind it elsewhere.
    pub place: Option<Place>,
    /// The kernel tells when it must be woken.
    pub need_wakeup: bool,
    /// Poll the device.
    pub busy_poll: Option<BusyPoll>,
    /// Who receives looks again and again without sleeping: only every eighth look that finds nothing reads the clock, which
    /// says when the interface is to be looked at.
    pub spin: bool,
    /// Buffers to receive into; a jumbo frame takes several.
    pub receive: u32,
    /// Frames on their way out at once.
    pub send: u32,
    /// Groups whose frames the device is to let in. It is not looked at again which group a frame is to.
    pub groups: Vec<MacAddr>,
    /// The device is to let in frames to any group.
    pub all_groups: bool,
    /// The device is to let in everything.
    pub promiscuous: bool,
    /// Opening an interface that is down is no error.
    pub may_be_down: bool,
    /// How long to wait for a queue, or an interface's place for a program, that is in use: the kernel needs some dozen
    /// milliseconds to clear up behind a link that was closed.
    pub patience: Duration,
}

impl Config {
    /// What `rules` match on queue 0 of this interface.
    pub fn new(interface: &str, rules: &[Rule]) -> Config {
        Config {
            interface: interface.to_owned(),
            queue: 0,
            rules: rules.to_vec(),
            transfer: None,
            place: None,
            need_wakeup: true,
            busy_poll: None,
            spin: false,
            receive: 2048,
            send: 512,
            groups: Vec::new(),
            all_groups: false,
            promiscuous: false,
            may_be_down: false,
            patience: Duration::from_secs(1),
        }
    }
}

/// What an XDP link obtained of what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// The device queue.
    pub queue: u32,
    /// Who was to copy.
    pub transfer_asked: Option<Transfer>,
    /// Who copies.
    pub transfer: Transfer,
    /// Where frames were to be looked at.
    pub place_asked: Option<Place>,
    /// Where they are looked at.
    pub place: Place,
    /// Whether the kernel was to tell when it must be woken.
    pub need_wakeup_asked: bool,
    /// Whether it tells.
    pub need_wakeup: bool,
    /// How the device was to be polled.
    pub busy_poll_asked: Option<BusyPoll>,
    /// Whether it is polled.
    pub busy_poll: bool,
    /// Whether the MTU asks for frames that lie in several buffers.
    pub multi_buffer_asked: bool,
    /// Whether they may.
    pub multi_buffer: bool,
    /// Octets of the longest frame that can be received.
    pub longest_received: usize,
    /// Octets of a buffer.
    pub buffer: usize,
    /// Buffers to receive into.
    pub receive: u32,
    /// Frames on their way out at once.
    pub send: u32,
    /// Octets of all buffers.
    pub memory: usize,
    /// Why something asked was not obtained, one sentence each.
    pub notes: Vec<String>,
}

/// Why there is no XDP link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The kernel has no AF_XDP sockets.
    #[error(
        "this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS, Linux 5.4 or newer); use a packet link (mode RING moves the most): it works everywhere"
    )]
    Unsupported,
    /// AF_XDP sockets are not allowed.
    #[error(
        "AF_XDP sockets need the capability CAP_NET_RAW: run as root, or once \
         `sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`"
    )]
    Socket,
    /// Programs for received frames are not allowed.
    #[error(
        "programs for received frames need the capabilities CAP_BPF and CAP_NET_ADMIN of the whole machine, which no user \
         namespace gives: run as root, or once `sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep PROGRAM`; \
         a packet link (mode RING moves the most) needs neither"
    )]
    Program,
    /// The memory may not be locked.
    #[error(
        "{octets} octets of memory cannot be locked: raise the limit (ulimit -l {kib}), run with the capability \
         CAP_IPC_LOCK, or ask for fewer buffers",
        kib = octets.div_ceil(1024)
    )]
    Memory {
        /// Octets asked for.
        octets: usize,
    },
    /// Another socket has the queue.
    #[error(
        "{interface}: queue {queue} has an AF_XDP socket already; close the other program (`ss --xdp -p` names it), \
         or use another queue"
    )]
    QueueBusy {
        /// The interface's name.
        interface: String,
        /// The queue's number.
        queue: u32,
    },
    /// Another program is attached.
    #[error(
        "{interface}: another XDP program is attached; end the program that uses it (`ip -details link show dev \
         {interface}` tells its id), or take it away: ip link set dev {interface} xdp off; several queues of one \
         interface are opened together (XdpLink::open_queues)"
    )]
    ProgramBusy {
        /// The interface's name.
        interface: String,
    },
    /// There is no such queue, or it cannot be had in this way.
    #[error(
        "{interface}: queue {queue} cannot be used: queues count from 0, and `ethtool -l {interface}` shows how many \
         there are; or the kernel is too old for what was asked"
    )]
    Queue {
        /// The interface's name.
        interface: String,
        /// The queue's number.
        queue: u32,
    },
    /// The driver cannot do what was asked for.
    #[error("{interface}: its driver cannot {what}; leave it open, and see what is obtained")]
    Driver {
        /// The interface's name.
        interface: String,
        /// What was asked for.
        what: &'static str,
    },
    /// The kernel did not take the program.
    #[error(
        "the kernel did not take the program that chooses frames: {}{}{log}",
        std::io::Error::from_raw_os_error(*code),
        if log.is_empty() { "" } else { "\n" }
    )]
    Verifier {
        /// errno.
        code: i32,
        /// What its verifier said.
        log: String,
    },
}

impl Refused {
    /// The errno that stands for it.
    pub const fn code(&self) -> i32 {
        use bypath_sys::Errno as E;
        match self {
            Refused::Unsupported => E::AFNOSUPPORT,
            Refused::Socket | Refused::Program => E::PERM,
            Refused::Memory { .. } => E::NOBUFS,
            Refused::QueueBusy { .. } | Refused::ProgramBusy { .. } => E::BUSY,
            Refused::Queue { .. } => E::INVAL,
            Refused::Driver { .. } => E::OPNOTSUPP,
            Refused::Verifier { code, .. } => return *code,
        }
        .raw_os_error()
    }
}
