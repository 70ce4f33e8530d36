//! setsockopt(2) and getsockopt(2): which option is whose, and what is done with it. docs/netstack-service.md has the table.

use super::model::{self, Kind};
use super::remains::Remains;
use super::table::{What, find};
pub use super::wishes::Wishes;
use crate::Engine;
use bypath_stack::linux::errno::Result;
use bypath_stack::linux::info;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Options, Settings, State};
use bypath_wire::TrafficClass;
use std::time::Duration;

const SOL: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;

/// asm-generic/socket.h.
const SO_BINDTOIFINDEX: i32 = 62;
/// linux/in.h. Of a TCP socket Linux tells its port.
const IP_PROTOCOL: i32 = 52;
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

/// The number of a value.
fn int(value: &[u8]) -> Result<i32> {
    value.first_chunk().map(|four| i32::from_ne_bytes(*four)).ok_or(libc::EINVAL)
}

/// So much of a value as a room of this size gets: a number of IP that fits is told as one octet where there is no room for four.
pub fn cut(level: i32, mut value: Vec<u8>, room: usize) -> Vec<u8> {
    if level == IP && value.len() == 4 && (1..4).contains(&room) && matches!(int(&value), Ok(0..=255)) {
        return vec![int(&value).unwrap_or_default() as u8];
    }
    value.truncate(room);
    value
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
    const fn kind(&self) -> Kind {
        Kind { v6: self.v6, datagrams: false }
    }

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
        let value = value.get(..model::LONGEST).unwrap_or(value);
        const TEXTS: [(i32, i32); 3] =
            [(SOL, libc::SO_BINDTODEVICE), (TCP, libc::TCP_CONGESTION), (TCP, libc::TCP_ULP)];
        if matches!(level, SOL | TCP) && value.len() < 4 && !TEXTS.contains(&(level, name)) {
            return Err(libc::EINVAL);
        }
        match find(level, name).ok_or(libc::ENOPROTOOPT)? {
            What::Refused(_, errno) => Err(errno),
            What::Told(errno) => {
                model::is_same(self.kind(), (level, name), value)?.then_some(()).ok_or(errno)
            }
            What::Kept => {
                if let Some(told) = model::after(self.kind(), (level, name), value)? {
                    self.wishes.keep((level, name), told);
                }
                Ok(())
            }
            What::KeptHere(_) => {
                let n = int(value)?;
                self.wishes.keep((level, name), n.to_ne_bytes().to_vec());
                Ok(())
            }
            What::Acts if level == SOL => self.set_socket(name, value),
            What::Acts if level == TCP => self.set_tcp(name, value),
            What::Acts => {
                // Which octets it may have, and what becomes of them, is the kernel's to say.
                let told = model::after(self.kind(), (level, name), value)?.ok_or(libc::EINVAL)?;
                self.set_ip(level, name, int(&told)?)
            }
        }
    }

    fn set_socket(&mut self, name: i32, value: &[u8]) -> Result<()> {
        if name == libc::SO_BINDTODEVICE {
            return self.set_device(value);
        }
        let n = int(value)?;
        match name {
            libc::SO_REUSEADDR => self.options(|options| options.reuse_address = n != 0),
            libc::SO_REUSEPORT => self.options(|options| options.reuse_port = n != 0),
            libc::SO_LINGER => {
                let time = value.get(4..8).ok_or(libc::EINVAL).and_then(int)?;
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
            SO_BINDTOIFINDEX => {
                let found = self.engine.links().find(|(iface, _)| n > 0 && iface.scope() == n as u32);
                let (iface, link) = match (n, found) {
                    (0, _) => (None, Vec::new()),
                    (1.., Some((iface, link))) => (Some(iface), link.as_bytes().to_vec()),
                    (1.., None) => return Err(libc::ENODEV),
                    _ => return Err(libc::EINVAL),
                };
                self.wishes.device = link;
                self.options(|options| options.iface = iface)
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
            if value.is_empty() {
                return Err(libc::EINVAL);
            }
            let text = value.split(|octet| *octet == 0).next().unwrap_or_default();
            let algorithm = match text {
                b"cubic" => Algorithm::Cubic,
                b"reno" => Algorithm::Reno,
                _ => return Err(libc::ENOENT),
            };
            return self.settings(|settings| settings.algorithm = algorithm);
        }
        let n = int(value)?;
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
        let named = self.engine.stack().tcp(self.id).is_some_and(|mut tcp| tcp.local().is_some());
        match (level, name) {
            (IP, libc::IP_TOS) | (IPV6, libc::IPV6_TCLASS) => {
                self.options(|options| options.class = TrafficClass(n as u8))
            }
            (IPV6, libc::IPV6_V6ONLY) if named => Err(libc::EINVAL),
            (IPV6, libc::IPV6_V6ONLY) => self.options(|options| options.only_v6 = n != 0),
            _ => self.options(|options| options.hop_limit = u8::try_from(n).ok().filter(|n| *n > 0)),
        }
    }

    /// # Errors
    /// As getsockopt(2). SO_ERROR is not the stack's.
    pub fn get(&mut self, level: i32, name: i32, room: usize) -> Result<Vec<u8>> {
        // As Linux has it, of IPv4 alone.
        if !self.v6 && !matches!(level, SOL | TCP | IP) {
            return Err(libc::EOPNOTSUPP);
        }
        if let Some(value) = kept(self.wishes, level, name)? {
            return Ok(cut(level, value, room));
        }
        match self.own(level, name)? {
            Some(value) => Ok(cut(level, value, room)),
            None => model::first(self.kind(), (level, name), room),
        }
    }

    /// What the stack knows of it; `None`: nothing.
    fn own(&mut self, level: i32, name: i32) -> Result<Option<Vec<u8>>> {
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
                return Ok(Some([on.to_ne_bytes(), wishes.linger.to_ne_bytes()].concat()));
            }
            (SOL, libc::SO_BINDTODEVICE) => return Ok(Some(device)),
            (SOL, SO_BINDTOIFINDEX) => options.iface.map_or(0, |iface| iface.scope() as i32),
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
                return Ok(Some(text));
            }
            (TCP, libc::TCP_INFO) => {
                let mut octets = info::info(tcp.statistics().as_ref());
                if tcp.is_listening() {
                    octets[0] = info::LISTEN;
                }
                return Ok(Some(octets));
            }
            (IP, libc::IP_TOS) | (IPV6, libc::IPV6_TCLASS) => options.class.0.into(),
            (IP, libc::IP_TTL) | (IPV6, libc::IPV6_UNICAST_HOPS) => options.hop_limit.unwrap_or(64).into(),
            (IPV6, libc::IPV6_V6ONLY) => options.only_v6.into(),
            (IP, libc::IP_MTU) | (IPV6, libc::IPV6_MTU) => match (tcp.remote(), tcp.statistics()) {
                (Some(remote), Some(s)) => s.mss as i32 + if remote.is_ipv4() { 40 } else { 60 },
                _ => return Err(libc::ENOTCONN),
            },
            (IP, IP_PROTOCOL) => tcp.local().map_or(0, |local| local.port().into()),
            (TCP, libc::TCP_CC_INFO) => return Ok(Some(Vec::new())),
            _ => return Ok(None),
        };
        Ok(Some(n.to_ne_bytes().to_vec()))
    }
}

const fn family(v6: bool) -> i32 {
    if v6 { libc::AF_INET6 } else { libc::AF_INET }
}

/// Of an option that was set and is kept, or is so much as a number at first.
fn kept(wishes: &Wishes, level: i32, name: i32) -> Result<Option<Vec<u8>>> {
    Ok(match find(level, name).ok_or(libc::ENOPROTOOPT)? {
        What::Refused(errno, _) => return Err(errno),
        What::Kept => wishes.kept((level, name)),
        What::KeptHere(first) => {
            Some(wishes.kept((level, name)).unwrap_or_else(|| first.to_ne_bytes().to_vec()))
        }
        What::Acts | What::Told(_) => None,
    })
}

/// getsockopt(2) of a socket that the stack has no more.
///
/// # Errors
/// As getsockopt(2).
pub fn of_remains(of: &Remains, (level, name): (i32, i32), room: usize) -> Result<Vec<u8>> {
    let (wishes, v6) = (&of.wishes, of.v6);
    if let Some(value) = kept(wishes, level, name)?.or_else(|| wishes.kept((level, name))) {
        return Ok(cut(level, value, room));
    }
    let n: i32 = match (level, name) {
        (SOL, libc::SO_TYPE) => libc::SOCK_STREAM,
        (SOL, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (SOL, libc::SO_DOMAIN) => family(v6),
        (SOL, libc::SO_ACCEPTCONN) => 0,
        (SOL, libc::SO_KEEPALIVE) => wishes.keepalive.on.into(),
        (TCP, libc::TCP_INFO) if of.info.is_empty() => return Ok(cut(level, info::info(None), room)),
        (TCP, libc::TCP_INFO) => return Ok(cut(level, of.info.clone(), room)),
        _ if find(level, name) == Some(What::Acts) => return Err(libc::EINVAL),
        _ => return model::first(Kind { v6, datagrams: false }, (level, name), room),
    };
    Ok(cut(level, n.to_ne_bytes().to_vec(), room))
}
