//! setsockopt(2) and getsockopt(2): which option is whose, and what is done with it. docs/netstack-service.md has the table.

use super::wishes;
pub use super::wishes::Wishes;
use crate::Engine;
use bypath_stack::linux::errno::Result;
use bypath_stack::linux::info;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Options, Settings, State};
use bypath_wire::TrafficClass;
use std::time::Duration;

/// What an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It acts; the functions below say how.
    Acts,
    /// It is told and cannot be set.
    Told,
    /// It is kept and told again, and has no effect. A number at first.
    Kept(i32),
    /// The same, of any length that is no longer than [`wishes::LONGEST`]; so many octets of 0 at first.
    KeptOctets(usize),
    /// Neither set nor told: this errno.
    Refused(i32),
}
use What::{Acts, Kept as Keep, KeptOctets, Refused, Told};

const SOL: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;

/// Every option that is known. Others are ENOPROTOOPT.
#[rustfmt::skip]
pub const TABLE: &[(i32, i32, &str, What)] = &[
    (SOL, libc::SO_REUSEADDR, "SO_REUSEADDR", Acts),
    (SOL, libc::SO_REUSEPORT, "SO_REUSEPORT", Acts),
    (SOL, libc::SO_KEEPALIVE, "SO_KEEPALIVE", Acts),
    (SOL, libc::SO_LINGER, "SO_LINGER", Acts),
    (SOL, libc::SO_SNDBUF, "SO_SNDBUF", Acts),
    (SOL, libc::SO_RCVBUF, "SO_RCVBUF", Acts),
    (SOL, libc::SO_BINDTODEVICE, "SO_BINDTODEVICE", Acts),
    (SOL, libc::SO_TYPE, "SO_TYPE", Told),
    (SOL, libc::SO_DOMAIN, "SO_DOMAIN", Told),
    (SOL, libc::SO_PROTOCOL, "SO_PROTOCOL", Told),
    (SOL, libc::SO_ACCEPTCONN, "SO_ACCEPTCONN", Told),
    (SOL, libc::SO_ERROR, "SO_ERROR", Told),
    (SOL, libc::SO_DEBUG, "SO_DEBUG", Keep(0)),
    (SOL, libc::SO_DONTROUTE, "SO_DONTROUTE", Keep(0)),
    (SOL, libc::SO_BROADCAST, "SO_BROADCAST", Keep(0)),
    (SOL, libc::SO_OOBINLINE, "SO_OOBINLINE", Keep(0)),
    (SOL, libc::SO_NO_CHECK, "SO_NO_CHECK", Keep(0)),
    (SOL, libc::SO_PRIORITY, "SO_PRIORITY", Keep(0)),
    (SOL, libc::SO_MARK, "SO_MARK", Keep(0)),
    (SOL, libc::SO_TIMESTAMP, "SO_TIMESTAMP", Keep(0)),
    (SOL, libc::SO_BUSY_POLL, "SO_BUSY_POLL", Keep(0)),
    (SOL, libc::SO_INCOMING_CPU, "SO_INCOMING_CPU", Keep(-1)),
    (SOL, libc::SO_RCVLOWAT, "SO_RCVLOWAT", Keep(1)),
    (SOL, libc::SO_RCVTIMEO, "SO_RCVTIMEO", KeptOctets(16)),
    (SOL, libc::SO_SNDTIMEO, "SO_SNDTIMEO", KeptOctets(16)),
    (SOL, libc::SO_MAX_PACING_RATE, "SO_MAX_PACING_RATE", KeptOctets(8)),
    (SOL, libc::SO_SNDBUFFORCE, "SO_SNDBUFFORCE", Refused(libc::EPERM)),
    (SOL, libc::SO_RCVBUFFORCE, "SO_RCVBUFFORCE", Refused(libc::EPERM)),
    (TCP, libc::TCP_NODELAY, "TCP_NODELAY", Acts),
    (TCP, libc::TCP_CORK, "TCP_CORK", Acts),
    (TCP, libc::TCP_MAXSEG, "TCP_MAXSEG", Acts),
    (TCP, libc::TCP_KEEPIDLE, "TCP_KEEPIDLE", Acts),
    (TCP, libc::TCP_KEEPINTVL, "TCP_KEEPINTVL", Acts),
    (TCP, libc::TCP_KEEPCNT, "TCP_KEEPCNT", Acts),
    (TCP, libc::TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT", Acts),
    (TCP, libc::TCP_CONGESTION, "TCP_CONGESTION", Acts),
    (TCP, libc::TCP_INFO, "TCP_INFO", Told),
    (TCP, libc::TCP_SYNCNT, "TCP_SYNCNT", Keep(6)),
    (TCP, libc::TCP_LINGER2, "TCP_LINGER2", Keep(60)),
    (TCP, libc::TCP_DEFER_ACCEPT, "TCP_DEFER_ACCEPT", Keep(0)),
    (TCP, libc::TCP_WINDOW_CLAMP, "TCP_WINDOW_CLAMP", Keep(0)),
    (TCP, libc::TCP_QUICKACK, "TCP_QUICKACK", Keep(1)),
    (TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, "TCP_THIN_LINEAR_TIMEOUTS", Keep(0)),
    (TCP, libc::TCP_FASTOPEN, "TCP_FASTOPEN", Keep(0)),
    (TCP, libc::TCP_NOTSENT_LOWAT, "TCP_NOTSENT_LOWAT", Keep(-1)),
    (TCP, libc::TCP_FASTOPEN_CONNECT, "TCP_FASTOPEN_CONNECT", Refused(libc::EOPNOTSUPP)),
    (TCP, libc::TCP_ULP, "TCP_ULP", Refused(libc::ENOENT)),
    (IP, libc::IP_TOS, "IP_TOS", Acts),
    (IP, libc::IP_TTL, "IP_TTL", Acts),
    (IP, libc::IP_RECVERR, "IP_RECVERR", Keep(0)),
    (IP, libc::IP_PKTINFO, "IP_PKTINFO", Keep(0)),
    (IP, libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER", Keep(1)),
    (IP, libc::IP_FREEBIND, "IP_FREEBIND", Keep(0)),
    (IP, libc::IP_BIND_ADDRESS_NO_PORT, "IP_BIND_ADDRESS_NO_PORT", Keep(0)),
    (IP, libc::IP_TRANSPARENT, "IP_TRANSPARENT", Refused(libc::EPERM)),
    (IPV6, libc::IPV6_V6ONLY, "IPV6_V6ONLY", Acts),
    (IPV6, libc::IPV6_TCLASS, "IPV6_TCLASS", Acts),
    (IPV6, libc::IPV6_UNICAST_HOPS, "IPV6_UNICAST_HOPS", Acts),
    (IPV6, libc::IPV6_RECVERR, "IPV6_RECVERR", Keep(0)),
    (IPV6, libc::IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO", Keep(0)),
    (IPV6, libc::IPV6_RECVTCLASS, "IPV6_RECVTCLASS", Keep(0)),
    (IPV6, libc::IPV6_MTU_DISCOVER, "IPV6_MTU_DISCOVER", Keep(1)),
];

/// Octets of payload that SO_SNDBUF and SO_RCVBUF cannot go below: half of Linux's SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
const LEAST: (u32, u32) = (2304, 1152);
/// Of SO_SNDBUF and SO_RCVBUF at most: Linux's net.core.wmem_max and rmem_max.
const MOST: u32 = 4 << 20;
/// What SO_SNDBUF and SO_RCVBUF tell when nothing was set: Linux's net.ipv4.tcp_wmem and tcp_rmem.
const USUAL: (i32, i32) = (16_384, 131_072);
/// TCP_MAXSEG of a socket that is not connected: Linux's TCP_MSS_DEFAULT.
const USUAL_MSS: i32 = 536;
/// TCP_CA_NAME_MAX.
const LONGEST_ALGORITHM: usize = 16;

fn find(level: i32, name: i32) -> Result<What> {
    TABLE.iter().find(|row| (row.0, row.1) == (level, name)).map(|row| row.3).ok_or(libc::ENOPROTOOPT)
}

/// The number of a value. Those of IP may have one octet.
fn int(level: i32, value: &[u8]) -> Result<i32> {
    match (value.first_chunk(), value) {
        (Some(four), _) => Ok(i32::from_ne_bytes(*four)),
        (None, [one, ..]) if matches!(level, IP | IPV6) => Ok(i32::from(*one)),
        _ => Err(libc::EINVAL),
    }
}

fn seconds(value: i32, most: i32) -> Result<u32> {
    if (1..=most).contains(&value) { Ok(value as u32) } else { Err(libc::EINVAL) }
}

/// A socket of the stack, and what it wants beside.
pub struct Of<'a> {
    pub engine: &'a mut Engine,
    pub id: SocketId,
    pub v6: bool,
    pub wishes: &'a mut Wishes,
}

impl Of<'_> {
    fn settings(&mut self, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let mut tcp = self.engine.stack().tcp(self.id).ok_or(libc::EINVAL)?;
        let mut settings = tcp.settings();
        change(&mut settings);
        tcp.set_settings(Engine::now(), settings);
        Ok(())
    }

    fn options(&mut self, change: impl FnOnce(&mut Options)) -> Result<()> {
        let mut tcp = self.engine.stack().tcp(self.id).ok_or(libc::EINVAL)?;
        let mut options = tcp.options();
        change(&mut options);
        tcp.set_options(options);
        Ok(())
    }

    /// # Errors
    /// As setsockopt(2).
    pub fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        if level == IPV6 && !self.v6 {
            return Err(libc::ENOPROTOOPT);
        }
        match find(level, name)? {
            Told => Err(libc::ENOPROTOOPT),
            Refused(errno) => Err(errno),
            Keep(_) => {
                let n = int(level, value)?;
                self.wishes.keep((level, name), n.to_ne_bytes().to_vec());
                Ok(())
            }
            KeptOctets(least) => {
                if value.len() < least.min(4) || value.len() > wishes::LONGEST {
                    return Err(libc::EINVAL);
                }
                self.wishes.keep((level, name), value.to_vec());
                Ok(())
            }
            Acts if level == SOL => self.set_socket(name, value),
            Acts if level == TCP => self.set_tcp(name, value),
            Acts => self.set_ip(level, name, int(level, value)?),
        }
    }

    fn set_socket(&mut self, name: i32, value: &[u8]) -> Result<()> {
        if name == libc::SO_BINDTODEVICE {
            return self.set_device(value);
        }
        let n = int(SOL, value)?;
        match name {
            libc::SO_REUSEADDR => self.options(|options| options.reuse_address = n != 0),
            libc::SO_REUSEPORT => self.options(|options| options.reuse_port = n != 0),
            libc::SO_LINGER => {
                let time = value.get(4..8).ok_or(libc::EINVAL).and_then(|time| int(SOL, time))?;
                let time = time.max(0) as u32;
                if n != 0 {
                    self.wishes.linger = time;
                }
                let linger = (n != 0).then(|| Duration::from_secs(time.into()));
                self.options(|options| options.linger = linger)
            }
            libc::SO_SNDBUF => {
                // It is doubled, and nearly all of that is payload.
                let octets = u32::try_from(n).unwrap_or(MOST).clamp(LEAST.0, MOST);
                self.wishes.buffers.0 = octets;
                self.settings(|settings| settings.send_octets = 2 * octets as usize)
            }
            libc::SO_RCVBUF => {
                let octets = u32::try_from(n).unwrap_or(MOST).clamp(LEAST.1, MOST);
                self.wishes.buffers.1 = octets;
                self.settings(|settings| settings.receive_octets = octets as usize)
            }
            _ => {
                self.wishes.keepalive.on = n != 0;
                self.keepalive()
            }
        }
    }

    fn set_device(&mut self, value: &[u8]) -> Result<()> {
        let name = value.split(|octet| *octet == 0).next().unwrap_or_default();
        let iface = match name {
            b"" => None,
            name => {
                let found = self.engine.links().find(|(_, link)| link.as_bytes() == name);
                Some(found.ok_or(libc::ENODEV)?.0)
            }
        };
        self.wishes.device = name.to_vec();
        self.options(|options| options.iface = iface)
    }

    fn keepalive(&mut self) -> Result<()> {
        let keepalive = self.wishes.keepalive.settings();
        self.settings(|settings| settings.keepalive = keepalive)
    }

    fn set_tcp(&mut self, name: i32, value: &[u8]) -> Result<()> {
        if name == libc::TCP_CONGESTION {
            let text = value.split(|octet| *octet == 0).next().unwrap_or_default();
            let algorithm = match text {
                b"cubic" => Algorithm::Cubic,
                b"reno" => Algorithm::Reno,
                _ => return Err(libc::ENOENT),
            };
            return self.settings(|settings| settings.algorithm = algorithm);
        }
        let n = int(TCP, value)?;
        match name {
            libc::TCP_NODELAY => {
                self.settings(|settings| settings.nodelay = n != 0)?;
                if n != 0
                    && let Some(mut tcp) = self.engine.stack().tcp(self.id)
                {
                    tcp.push(Engine::now());
                }
                Ok(())
            }
            libc::TCP_CORK => self.settings(|settings| settings.cork = n != 0),
            libc::TCP_MAXSEG => {
                if n != 0 && !(88..=32_767).contains(&n) {
                    return Err(libc::EINVAL);
                }
                self.wishes.maxseg = n as u16;
                self.settings(|settings| settings.mss = if n == 0 { u16::MAX } else { n as u16 })
            }
            libc::TCP_USER_TIMEOUT => {
                let timeout = u64::try_from(n).map_err(|_| libc::EINVAL)?;
                let timeout = (timeout > 0).then_some(Duration::from_millis(timeout));
                self.settings(|settings| settings.user_timeout = timeout)
            }
            _ => {
                let keepalive = &mut self.wishes.keepalive;
                match name {
                    libc::TCP_KEEPIDLE => keepalive.idle = seconds(n, 32_767)?,
                    libc::TCP_KEEPINTVL => keepalive.interval = seconds(n, 32_767)?,
                    _ => keepalive.probes = seconds(n, 127)?,
                }
                self.keepalive()
            }
        }
    }

    fn set_ip(&mut self, level: i32, name: i32, n: i32) -> Result<()> {
        let connected = self.engine.stack().tcp(self.id).is_some_and(|mut tcp| tcp.local().is_some());
        match (level, name) {
            (IP, libc::IP_TOS) => self.options(|options| options.class = TrafficClass(n as u8)),
            (IPV6, libc::IPV6_TCLASS) if !(-1..=255).contains(&n) => Err(libc::EINVAL),
            (IPV6, libc::IPV6_TCLASS) => self.options(|options| options.class = TrafficClass(n.max(0) as u8)),
            (IP, libc::IP_TTL) if n != -1 && !(1..=255).contains(&n) => Err(libc::EINVAL),
            (IPV6, libc::IPV6_UNICAST_HOPS) if !(-1..=255).contains(&n) => Err(libc::EINVAL),
            (IPV6, libc::IPV6_V6ONLY) if connected => Err(libc::EINVAL),
            (IPV6, libc::IPV6_V6ONLY) => self.options(|options| options.only_v6 = n != 0),
            _ => self.options(|options| options.hop_limit = u8::try_from(n).ok().filter(|n| *n > 0)),
        }
    }

    /// # Errors
    /// As getsockopt(2). SO_ERROR is not the stack's.
    pub fn get(&mut self, level: i32, name: i32) -> Result<Vec<u8>> {
        // As Linux has it, of IPv4 alone.
        if !self.v6 && !matches!(level, SOL | TCP | IP) {
            return Err(libc::EOPNOTSUPP);
        }
        if let Some(value) = kept(self.wishes, level, name)? {
            return Ok(value);
        }
        let (wishes, v6) = (&*self.wishes, self.v6);
        let device = wishes.device.clone();
        let Some(mut tcp) = self.engine.stack().tcp(self.id) else { return Err(libc::EINVAL) };
        let (options, settings) = (tcp.options(), tcp.settings());
        let told = |half: u32, usual: i32| if half == 0 { usual } else { (half * 2) as i32 };
        let n = match (level, name) {
            (SOL, libc::SO_REUSEADDR) => options.reuse_address.into(),
            (SOL, libc::SO_REUSEPORT) => options.reuse_port.into(),
            (SOL, libc::SO_KEEPALIVE) => wishes.keepalive.on.into(),
            (SOL, libc::SO_SNDBUF) => told(wishes.buffers.0, USUAL.0),
            (SOL, libc::SO_RCVBUF) => told(wishes.buffers.1, USUAL.1),
            (SOL, libc::SO_TYPE) => libc::SOCK_STREAM,
            (SOL, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (SOL, libc::SO_DOMAIN) => family(v6),
            (SOL, libc::SO_ACCEPTCONN) => tcp.is_listening().into(),
            (SOL, libc::SO_LINGER) => {
                let on = i32::from(options.linger.is_some());
                return Ok([on.to_ne_bytes(), wishes.linger.to_ne_bytes()].concat());
            }
            (SOL, libc::SO_BINDTODEVICE) => return Ok(device),
            (TCP, libc::TCP_NODELAY) => settings.nodelay.into(),
            (TCP, libc::TCP_CORK) => settings.cork.into(),
            (TCP, libc::TCP_KEEPIDLE) => wishes.keepalive.idle as i32,
            (TCP, libc::TCP_KEEPINTVL) => wishes.keepalive.interval as i32,
            (TCP, libc::TCP_KEEPCNT) => wishes.keepalive.probes as i32,
            (TCP, libc::TCP_USER_TIMEOUT) => {
                settings.user_timeout.map_or(0, |timeout| timeout.as_millis() as i32)
            }
            (TCP, libc::TCP_MAXSEG) => match tcp.statistics().filter(|s| s.state != State::Closed) {
                Some(s) => s.mss as i32 - if s.timestamps { 12 } else { 0 },
                None if wishes.maxseg > 0 => wishes.maxseg.into(),
                None => USUAL_MSS,
            },
            (TCP, libc::TCP_CONGESTION) => {
                let mut text = match settings.algorithm {
                    Algorithm::Reno => b"reno".to_vec(),
                    Algorithm::Cubic => b"cubic".to_vec(),
                };
                text.resize(LONGEST_ALGORITHM, 0);
                return Ok(text);
            }
            (TCP, libc::TCP_INFO) => {
                let mut octets = info::info(tcp.statistics().as_ref());
                if tcp.is_listening() {
                    octets[0] = info::LISTEN;
                }
                return Ok(octets);
            }
            (IP, libc::IP_TOS) | (IPV6, libc::IPV6_TCLASS) => options.class.0.into(),
            (IP, libc::IP_TTL) | (IPV6, libc::IPV6_UNICAST_HOPS) => options.hop_limit.unwrap_or(64).into(),
            (IPV6, libc::IPV6_V6ONLY) => options.only_v6.into(),
            _ => return Err(libc::ENOPROTOOPT),
        };
        Ok(n.to_ne_bytes().to_vec())
    }
}

const fn family(v6: bool) -> i32 {
    if v6 { libc::AF_INET6 } else { libc::AF_INET }
}

/// Of an option that is kept.
fn kept(wishes: &Wishes, level: i32, name: i32) -> Result<Option<Vec<u8>>> {
    Ok(match find(level, name)? {
        Refused(errno) => return Err(errno),
        Keep(first) => Some(wishes.kept((level, name)).unwrap_or_else(|| first.to_ne_bytes().to_vec())),
        KeptOctets(len) => Some(wishes.kept((level, name)).unwrap_or_else(|| vec![0; len])),
        _ => None,
    })
}

/// getsockopt(2) of a socket that the stack has no more.
///
/// # Errors
/// As getsockopt(2).
pub fn of_remains(wishes: &Wishes, v6: bool, level: i32, name: i32) -> Result<Vec<u8>> {
    if let Some(value) = kept(wishes, level, name)?.or_else(|| wishes.kept((level, name))) {
        return Ok(value);
    }
    let n: i32 = match (level, name) {
        (SOL, libc::SO_TYPE) => libc::SOCK_STREAM,
        (SOL, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (SOL, libc::SO_DOMAIN) => family(v6),
        (SOL, libc::SO_ACCEPTCONN) => 0,
        (SOL, libc::SO_KEEPALIVE) => wishes.keepalive.on.into(),
        (TCP, libc::TCP_INFO) => return Ok(info::info(None)),
        _ => return Err(libc::EINVAL),
    };
    Ok(n.to_ne_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_done_with_each_option() {
        let text = include_str!("../../../../docs/netstack-service.md");
        let row = |head: &str| {
            let row = text.lines().find(|line| line.starts_with(&format!("| {head} |")));
            row.unwrap_or_else(|| panic!("no row {head}"))
        };
        for (_, _, name, what) in TABLE {
            let head = match what {
                Acts => "act",
                Told => "are told",
                Keep(_) | KeptOctets(_) => "are kept, told again, and have no effect",
                Refused(_) => "are refused",
            };
            assert!(row(head).contains(&format!("`{name}`")), "{name} is not in the row: {head}");
        }
        let named: usize = ["act", "are told", "are kept, told again, and have no effect", "are refused"]
            .iter()
            .map(|head| row(head).matches('`').count() / 2)
            .sum();
        assert_eq!(named, TABLE.len());
    }

    #[test]
    fn no_option_stands_there_twice() {
        for (n, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..n].iter().all(|other| (other.0, other.1) != (row.0, row.1)), "{}", row.2);
        }
    }
}
