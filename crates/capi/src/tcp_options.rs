//! What connections of a netstack want, and how they do.

use crate::boundary::{Outcome, guarded, read, write};
use crate::options::{timeout, unknown};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::types::BYPATH_FOREVER;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Config, Keepalive, MtuProbing, Options, Settings, State, Statistics};
use std::time::Duration;

/// Flag: short segments are sent at once, and not collected while something is not acknowledged (TCP_NODELAY).
pub const BYPATH_TCP_NODELAY: u32 = 0x1;
/// Flag: short segments are not sent before this is taken back (TCP_CORK).
pub const BYPATH_TCP_CORK: u32 = 0x2;
/// Flag: no selective acknowledgements are agreed on. For opening.
pub const BYPATH_TCP_NO_SACK: u32 = 0x4;
/// Flag: no timestamps are agreed on. For opening.
pub const BYPATH_TCP_NO_TIMESTAMPS: u32 = 0x8;
/// Flag: no windows above 65,535 octets are agreed on. For opening.
pub const BYPATH_TCP_NO_WINDOW_SCALE: u32 = 0x10;
/// Flag: explicit congestion notification is agreed on, where the other side wants it, too. For opening.
pub const BYPATH_TCP_ECN: u32 = 0x20;
/// Flag: bound to `::`, it has nothing to do with IPv4. For opening.
pub const BYPATH_TCP_ONLY_V6: u32 = 0x40;
/// Flag: other listeners that have it, too, may have the same address and port: they share who calls (SO_REUSEPORT). For opening.
pub const BYPATH_TCP_REUSE_PORT: u32 = 0x80;
/// Flag: segments find out what the path takes by longer ones that arrive or do not (RFC 4821); else, what routers say is all that is
/// known of it, and where they say nothing a connection may stand still.
pub const BYPATH_TCP_PROBE_MTU: u32 = 0x100;
/// Flag: the same, after several time-outs in a row and no earlier.
pub const BYPATH_TCP_PROBE_MTU_AFTER_TIMEOUTS: u32 = 0x200;
/// Every flag there is.
const ALL_FLAGS: u32 = 0x3ff;

/// Congestion control: CUBIC (RFC 9438), the usual one.
pub const BYPATH_TCP_CUBIC: u32 = 0;
/// Congestion control: Reno (RFC 5681).
pub const BYPATH_TCP_RENO: u32 = 1;

/// Calls that wait to be accepted, if nobody says how many.
const USUAL_BACKLOG: usize = 128;

/// What a connection, or a listener and its connections, want. Fill it by `bypath_tcp_options_init`, or
/// `bypath_tcp_read_options` for those of a connection, then change what should differ.
#[repr(C)]
pub struct bypath_tcp_options {
    /// Octets of this structure: set by what fills it, by which the library knows what it was given.
    pub size: usize,
    /// Octets that may be written and not acknowledged.
    pub send_octets: usize,
    /// Octets that may have come and not been read: the largest window.
    pub receive_octets: usize,
    /// Of a listener: connections that wait to be accepted at most.
    pub backlog: usize,
    /// The longest wait of calls, in ns, `bypath_tcp_connect` included; `BYPATH_FOREVER` unless changed; 0: they do not wait. For
    /// opening: later on it is `bypath_tcp_set_timeouts`.
    pub timeout_ns: u64,
    /// Silence before the other side is asked whether it is still there, in ns; 0, as it is unless changed: it is not asked.
    pub keepalive_idle_ns: u64,
    /// Between such questions, in ns.
    pub keepalive_interval_ns: u64,
    /// How long what was written is still sent after the connection was closed, in ns: beyond, it is given up with a reset; 0: at
    /// once. `BYPATH_FOREVER`, as it is unless changed: as long as the other side answers. Closing does not wait.
    pub linger_ns: u64,
    /// Octets that are not acknowledged for so long end the connection, in ns (RFC 5482). `BYPATH_FOREVER`, as it is unless
    /// changed: when they were sent again often enough.
    pub user_timeout_ns: u64,
    /// Questions without an answer that end the connection.
    pub keepalive_probes: u32,
    /// Congestion control: `BYPATH_TCP_CUBIC`, `BYPATH_TCP_RENO`.
    pub congestion: u32,
    /// `BYPATH_TCP_NODELAY` and the other flags, joined by `|`.
    pub flags: u32,
    /// Routers that packets may pass; 0: the usual 64.
    pub ttl: u8,
    /// Type of service, traffic class of packets: DSCP in the upper six bits; ECN is the netstack's.
    pub class_octet: u8,
    /// Octets of payload of the short segments that `BYPATH_TCP_PROBE_MTU` begins with; 1024 unless changed, 48 at least.
    pub base_mss: u16,
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(BYPATH_FOREVER)
}

impl bypath_tcp_options {
    fn of(options: &Options, settings: &Settings, timeout_ns: u64) -> bypath_tcp_options {
        let usual = Keepalive {
            // net.ipv4.tcp_keepalive_intvl and tcp_keepalive_probes of Linux.
            interval: Duration::from_secs(75),
            probes: 9,
            idle: Duration::ZERO,
        };
        let keepalive = settings.keepalive.unwrap_or(usual);
        let flags = [
            (settings.nodelay, BYPATH_TCP_NODELAY),
            (settings.cork, BYPATH_TCP_CORK),
            (!settings.sack, BYPATH_TCP_NO_SACK),
            (!settings.timestamps, BYPATH_TCP_NO_TIMESTAMPS),
            (!settings.window_scale, BYPATH_TCP_NO_WINDOW_SCALE),
            (settings.ecn, BYPATH_TCP_ECN),
            (options.only_v6, BYPATH_TCP_ONLY_V6),
            (options.reuse_port, BYPATH_TCP_REUSE_PORT),
            (settings.mtu_probing == MtuProbing::Always, BYPATH_TCP_PROBE_MTU),
            (settings.mtu_probing == MtuProbing::AfterTimeouts, BYPATH_TCP_PROBE_MTU_AFTER_TIMEOUTS),
        ];
        bypath_tcp_options {
            size: size_of::<bypath_tcp_options>(),
            send_octets: settings.send_octets,
            receive_octets: settings.receive_octets,
            backlog: USUAL_BACKLOG,
            timeout_ns,
            keepalive_idle_ns: ns(keepalive.idle),
            keepalive_interval_ns: ns(keepalive.interval),
            linger_ns: options.linger.map_or(BYPATH_FOREVER, ns),
            user_timeout_ns: settings.user_timeout.map_or(BYPATH_FOREVER, ns),
            keepalive_probes: keepalive.probes,
            congestion: match settings.algorithm {
                Algorithm::Cubic => BYPATH_TCP_CUBIC,
                Algorithm::Reno => BYPATH_TCP_RENO,
            },
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            ttl: options.hop_limit.unwrap_or(0),
            class_octet: options.class.0,
            base_mss: settings.base_mss,
        }
    }

    fn usual() -> bypath_tcp_options {
        bypath_tcp_options::of(&Options::default(), &Config::default().settings, BYPATH_FOREVER)
    }

    /// As the library has it.
    pub fn checked(&self) -> Outcome<Wanted> {
        if self.size != size_of::<bypath_tcp_options>() {
            return Err(Failure::invalid(format!(
                "these options have a size of {}, this library's have {}: fill them by bypath_tcp_options_init, and \
                 compile against the header of the library that runs",
                self.size,
                size_of::<bypath_tcp_options>()
            )));
        }
        if self.flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", self.flags & !ALL_FLAGS));
        }
        if self.send_octets == 0 || self.receive_octets == 0 {
            return Err(Failure::invalid("`send_octets` and `receive_octets` cannot be 0"));
        }
        if self.base_mss < 48 {
            return Err(Failure::invalid("`base_mss` cannot be less than 48"));
        }
        let probes = self.keepalive_idle_ns != 0;
        if probes && (self.keepalive_interval_ns == 0 || self.keepalive_probes == 0) {
            return Err(Failure::invalid(
                "`keepalive_interval_ns` and `keepalive_probes` cannot be 0 where `keepalive_idle_ns` is not",
            ));
        }
        let keepalive = probes.then(|| Keepalive {
            idle: Duration::from_nanos(self.keepalive_idle_ns),
            interval: Duration::from_nanos(self.keepalive_interval_ns),
            probes: self.keepalive_probes,
        });
        let algorithm = match self.congestion {
            BYPATH_TCP_CUBIC => Algorithm::Cubic,
            BYPATH_TCP_RENO => Algorithm::Reno,
            other => return Err(unknown("congestion", other)),
        };
        Ok(Wanted {
            flags: self.flags,
            send_octets: self.send_octets,
            receive_octets: self.receive_octets,
            backlog: self.backlog,
            timeout: timeout(self.timeout_ns),
            keepalive,
            algorithm,
            linger: timeout(self.linger_ns),
            user_timeout: timeout(self.user_timeout_ns),
            hop_limit: (self.ttl != 0).then_some(self.ttl),
            class: self.class_octet,
            base_mss: self.base_mss,
        })
    }
}

/// Options that can be.
pub struct Wanted {
    flags: u32,
    send_octets: usize,
    receive_octets: usize,
    pub backlog: usize,
    pub timeout: Option<Duration>,
    keepalive: Option<Keepalive>,
    algorithm: Algorithm,
    linger: Option<Duration>,
    user_timeout: Option<Duration>,
    hop_limit: Option<u8>,
    class: u8,
    base_mss: u16,
}

impl Wanted {
    /// What the caller wants, or what is usual for NULL.
    pub fn by(options: *const bypath_tcp_options) -> Outcome<Wanted> {
        if options.is_null() {
            return bypath_tcp_options::usual().checked();
        }
        read(options, "options")?.checked()
    }

    /// Tells it to a socket.
    pub fn put(&self, options: &mut Options, settings: &mut Settings) {
        let has = |flag: u32| self.flags & flag != 0;
        settings.nodelay = has(BYPATH_TCP_NODELAY);
        settings.cork = has(BYPATH_TCP_CORK);
        settings.sack = !has(BYPATH_TCP_NO_SACK);
        settings.timestamps = !has(BYPATH_TCP_NO_TIMESTAMPS);
        settings.window_scale = !has(BYPATH_TCP_NO_WINDOW_SCALE);
        settings.ecn = has(BYPATH_TCP_ECN);
        options.only_v6 = has(BYPATH_TCP_ONLY_V6);
        options.reuse_port = has(BYPATH_TCP_REUSE_PORT);
        settings.send_octets = self.send_octets;
        settings.receive_octets = self.receive_octets;
        settings.keepalive = self.keepalive;
        settings.algorithm = self.algorithm;
        settings.user_timeout = self.user_timeout;
        settings.mtu_probing = match (has(BYPATH_TCP_PROBE_MTU), has(BYPATH_TCP_PROBE_MTU_AFTER_TIMEOUTS)) {
            (true, _) => MtuProbing::Always,
            (false, true) => MtuProbing::AfterTimeouts,
            (false, false) => MtuProbing::Off,
        };
        settings.base_mss = self.base_mss;
        options.linger = self.linger;
        options.hop_limit = self.hop_limit;
        options.class.0 = self.class;
    }
}

/// Options of a connection for the caller.
pub fn told(options: &Options, settings: &Settings, timeout: Option<Duration>) -> bypath_tcp_options {
    bypath_tcp_options::of(options, settings, timeout.map_or(BYPATH_FOREVER, ns))
}

/// Fills options with what is usual.
///
/// Fails with `BYPATH_E_INVALID` if `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_options_init(
    options: *mut bypath_tcp_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(options, "options", bypath_tcp_options::usual()))
}

/// State of a connection, with the kernel's number: it is open.
pub const BYPATH_TCP_ESTABLISHED: u8 = 1;
/// State: a SYN was sent.
pub const BYPATH_TCP_SYN_SENT: u8 = 2;
/// State: a SYN came, and was answered.
pub const BYPATH_TCP_SYN_RECV: u8 = 3;
/// State: this side has finished.
pub const BYPATH_TCP_FIN_WAIT1: u8 = 4;
/// State: this side has finished, and the other side knows.
pub const BYPATH_TCP_FIN_WAIT2: u8 = 5;
/// State: both have finished and know it.
pub const BYPATH_TCP_TIME_WAIT: u8 = 6;
/// State: it is over.
pub const BYPATH_TCP_CLOSE: u8 = 7;
/// State: the other side has finished.
pub const BYPATH_TCP_CLOSE_WAIT: u8 = 8;
/// State: both have finished, the other side first, and it does not know of this side.
pub const BYPATH_TCP_LAST_ACK: u8 = 9;
/// State: both have finished, and the other side does not know of this side.
pub const BYPATH_TCP_CLOSING: u8 = 11;

/// Agreed on: selective acknowledgements.
pub const BYPATH_TCP_AGREED_SACK: u8 = 0x1;
/// Agreed on: timestamps.
pub const BYPATH_TCP_AGREED_TIMESTAMPS: u8 = 0x2;
/// Agreed on: explicit congestion notification.
pub const BYPATH_TCP_AGREED_ECN: u8 = 0x4;

/// How a connection does, in the manner of TCP_INFO (tcp(7)).
#[repr(C)]
pub struct bypath_tcp_statistics {
    /// Smoothed round trip in ns; 0: not measured yet.
    pub srtt_ns: u64,
    /// Its variance in ns.
    pub rttvar_ns: u64,
    /// The shortest round trip of the last minutes in ns; 0: not measured yet.
    pub min_rtt_ns: u64,
    /// How long an acknowledgement is waited for, in ns.
    pub rto_ns: u64,
    /// Octets that were acknowledged, in all.
    pub octets_acknowledged: u64,
    /// Octets that came in their order, in all.
    pub octets_received: u64,
    /// Octets that were sent again, in all.
    pub octets_again: u64,
    /// Segments that came.
    pub segments_in: u64,
    /// Segments that were sent.
    pub segments_out: u64,
    /// Octets that were written and are not acknowledged.
    pub unacknowledged: u64,
    /// Of those, octets that were not sent yet.
    pub unsent: u64,
    /// Octets that came and were not read.
    pub unread: u64,
    /// Octets that may be on their way.
    pub cwnd: u32,
    /// The largest `cwnd` until something was lost.
    pub ssthresh: u32,
    /// Octets of payload of a segment that is sent.
    pub mss: u32,
    /// The largest that came, as far as is known.
    pub receive_mss: u32,
    /// Octets that the other side takes.
    pub send_window: u32,
    /// Octets that the other side was told it may send.
    pub receive_window: u32,
    /// Octets on their way.
    pub in_flight: u32,
    /// Octets that are lost and were not sent again yet.
    pub lost: u32,
    /// Octets that arrived beyond gaps.
    pub sacked: u32,
    /// Congestion control: `BYPATH_TCP_CUBIC`, `BYPATH_TCP_RENO`.
    pub congestion: u32,
    /// `BYPATH_TCP_ESTABLISHED` or another state.
    pub state: u8,
    /// `BYPATH_TCP_AGREED_...`, joined by `|`.
    pub agreed: u8,
    /// How far the other side's windows are shifted.
    pub send_shift: u8,
    /// How far this side's are.
    pub receive_shift: u8,
    /// Not used.
    pub reserved: [u8; 4],
}

impl From<Statistics> for bypath_tcp_statistics {
    fn from(s: Statistics) -> bypath_tcp_statistics {
        let agreed = [
            (s.sack, BYPATH_TCP_AGREED_SACK),
            (s.timestamps, BYPATH_TCP_AGREED_TIMESTAMPS),
            (s.ecn, BYPATH_TCP_AGREED_ECN),
        ];
        bypath_tcp_statistics {
            srtt_ns: s.srtt.map_or(0, ns),
            rttvar_ns: ns(s.rttvar),
            min_rtt_ns: s.min_rtt.map_or(0, ns),
            rto_ns: ns(s.rto),
            octets_acknowledged: s.octets_acknowledged,
            octets_received: s.octets_received,
            octets_again: s.octets_again,
            segments_in: s.segments_in,
            segments_out: s.segments_out,
            unacknowledged: s.unacknowledged as u64,
            unsent: s.unsent as u64,
            unread: s.unread as u64,
            cwnd: s.cwnd,
            ssthresh: s.ssthresh,
            mss: s.mss,
            receive_mss: s.rcv_mss,
            send_window: s.snd_wnd,
            receive_window: s.rcv_wnd,
            in_flight: s.in_flight,
            lost: s.lost,
            sacked: s.sacked,
            congestion: match s.algorithm {
                Algorithm::Cubic => BYPATH_TCP_CUBIC,
                Algorithm::Reno => BYPATH_TCP_RENO,
            },
            state: match s.state {
                State::Established => BYPATH_TCP_ESTABLISHED,
                State::SynSent => BYPATH_TCP_SYN_SENT,
                State::SynReceived => BYPATH_TCP_SYN_RECV,
                State::FinWait1 => BYPATH_TCP_FIN_WAIT1,
                State::FinWait2 => BYPATH_TCP_FIN_WAIT2,
                State::TimeWait => BYPATH_TCP_TIME_WAIT,
                State::Closed => BYPATH_TCP_CLOSE,
                State::CloseWait => BYPATH_TCP_CLOSE_WAIT,
                State::LastAck => BYPATH_TCP_LAST_ACK,
                State::Closing => BYPATH_TCP_CLOSING,
            },
            agreed: agreed.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
            send_shift: s.shifts.0,
            receive_shift: s.shifts.1,
            reserved: [0; 4],
        }
    }
}
