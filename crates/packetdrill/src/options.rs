//! Socket options, fcntl(2) and ioctl(2).

use crate::file::{Kind, Socket};
use crate::flags;
use crate::machine::Machine;
use crate::sysctl;
use bypath_stack::linux::errno::{self as errors, Result};
use bypath_stack::linux::info;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Keepalive, Settings, State};
use bypath_wire::TrafficClass;
use std::time::Duration;

/// Octets of payload that SO_SNDBUF and SO_RCVBUF cannot go below: half of Linux's SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
const LEAST: (u32, u32) = (2304, 1152);
/// What SO_SNDBUF and SO_RCVBUF tell when nothing was set: Linux's net.ipv4.tcp_wmem and tcp_rmem.
const USUAL: (i32, i32) = (16_384, 131_072);
/// TCP_MAXSEG of a socket that is not connected: Linux's TCP_MSS_DEFAULT.
const USUAL_MSS: i32 = 536;
/// What surely fits a receive buffer that is tuned.
const SMALL: usize = 65_536;
const TCP_INQ: i32 = 36;
const TCP_NOTSENT_LOWAT: i32 = 25;

fn int(value: &[u8]) -> Result<i32> {
    value.first_chunk().map(|four| i32::from_ne_bytes(*four)).ok_or(libc::EINVAL)
}

/// A `struct timeval`; none at all: for ever.
fn time(value: &[u8]) -> Result<Option<Duration>> {
    let (Some(seconds), Some(micros)) = (value.first_chunk(), value.get(8..).and_then(|v| v.first_chunk()))
    else {
        return Err(libc::EINVAL);
    };
    let (seconds, micros) = (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*micros));
    if !(0..1_000_000).contains(&micros) {
        return Err(libc::EDOM);
    }
    let time = Duration::from_secs(seconds.max(0) as u64) + Duration::from_micros(micros as u64);
    Ok((time > Duration::ZERO).then_some(time))
}

fn seconds(value: i32, most: i32) -> Result<u32> {
    if (1..=most).contains(&value) { Ok(value as u32) } else { Err(libc::EINVAL) }
}

impl Socket {
    fn keepalive(&self) -> Option<Keepalive> {
        let (idle, interval, probes, on) = self.keepalive;
        let seconds = |n: u32| Duration::from_secs(n.into());
        on.then_some(Keepalive { idle: seconds(idle), interval: seconds(interval), probes })
    }
}

impl Machine {
    fn change(
        &mut self,
        id: bypath_stack::socket::SocketId,
        change: impl FnOnce(&mut Settings),
    ) -> Result<()> {
        let now = self.now();
        let mut tcp = self.stack.tcp(id).ok_or(libc::ENOPROTOOPT)?;
        let mut settings = tcp.settings();
        change(&mut settings);
        tcp.set_settings(now, settings);
        Ok(())
    }

    /// # Errors
    /// As setsockopt(2).
    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let is_tcp = matches!(self.files.get(fd)?.kind, Kind::Tcp);
        let socket = self.files.socket(fd)?;
        let id = socket.id;
        match level {
            libc::SOL_SOCKET => self.set_socket_option(fd, name, value),
            libc::IPPROTO_TCP if is_tcp => self.set_tcp_option(fd, name, value),
            libc::IPPROTO_IP | libc::IPPROTO_IPV6 => {
                let n = match value.len() {
                    1 => i32::from(value[0]),
                    _ => int(value)?,
                };
                let Some(mut tcp) = self.stack.tcp(id) else {
                    self.files.socket(fd)?.kept.insert((level, name), n.to_ne_bytes().to_vec());
                    return Ok(());
                };
                let mut options = tcp.options();
                match (level, name) {
                    (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        options.class = TrafficClass(n as u8);
                    }
                    (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                        options.hop_limit = u8::try_from(n).ok().filter(|n| *n > 0);
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => options.only_v6 = n != 0,
                    _ => {}
                }
                tcp.set_options(options);
                self.files.socket(fd)?.kept.insert((level, name), n.to_ne_bytes().to_vec());
                Ok(())
            }
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    fn set_socket_option(&mut self, fd: i32, name: i32, value: &[u8]) -> Result<()> {
        let is_tcp = matches!(self.files.get(fd)?.kind, Kind::Tcp);
        let socket = self.files.socket(fd)?;
        let id = socket.id;
        match name {
            libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => {
                let time = time(value)?;
                if name == libc::SO_RCVTIMEO {
                    socket.patience.0 = time
                } else {
                    socket.patience.1 = time
                }
                Ok(())
            }
            libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_LINGER => {
                let on = int(value)? != 0;
                let linger = value.get(4..).map_or(Ok(0), int);
                let Some(mut tcp) = self.stack.tcp(id) else {
                    let mut udp = self.stack.udp(id).ok_or(libc::EBADF)?;
                    let mut options = udp.options();
                    match name {
                        libc::SO_REUSEADDR => options.reuse_address = on,
                        libc::SO_REUSEPORT => options.reuse_port = on,
                        _ => {}
                    }
                    udp.set_options(options);
                    return Ok(());
                };
                let mut options = tcp.options();
                match name {
                    libc::SO_REUSEADDR => options.reuse_address = on,
                    libc::SO_REUSEPORT => options.reuse_port = on,
                    _ if value.len() < 8 => return Err(libc::EINVAL),
                    _ => {
                        let seconds = linger?.max(0) as u32;
                        options.linger = on.then_some(Duration::from_secs(seconds.into()));
                        if on {
                            self.files.socket(fd)?.linger = seconds;
                        }
                    }
                }
                if let Some(mut tcp) = self.stack.tcp(id) {
                    tcp.set_options(options);
                }
                Ok(())
            }
            libc::SO_SNDBUF => {
                let octets = u32::try_from(int(value)?).unwrap_or(u32::MAX / 4).clamp(LEAST.0, 1 << 29);
                socket.buffers.0 = octets;
                // It is doubled, and nearly all of that is payload.
                self.change(id, |settings| settings.send_octets = 2 * octets as usize)
            }
            libc::SO_RCVBUF => {
                let octets = u32::try_from(int(value)?).unwrap_or(u32::MAX / 4).clamp(LEAST.1, 1 << 29);
                socket.buffers.1 = octets;
                self.change(id, |settings| settings.receive_octets = octets as usize)
            }
            libc::SO_RCVLOWAT => {
                let most =
                    if socket.buffers.1 > 0 { socket.buffers.1 } else { sysctl::most_least() } as usize;
                let wanted = int(value)?;
                // Less than 0 is as much as possible, and 0 is 1.
                let least = if wanted < 0 { most } else { (wanted.max(1) as usize).min(most) };
                socket.least = least;
                self.kick(fd, true, false);
                if is_tcp && least > SMALL {
                    // So much has to fit, whatever was read before.
                    self.change(id, |settings| settings.tune_receive = false)?;
                }
                Ok(())
            }
            libc::SO_KEEPALIVE => {
                socket.keepalive.3 = int(value)? != 0;
                let keepalive = socket.keepalive();
                self.change(id, |settings| settings.keepalive = keepalive)
            }
            libc::SO_TYPE | libc::SO_ERROR | libc::SO_ACCEPTCONN | libc::SO_DOMAIN | libc::SO_PROTOCOL => {
                Err(libc::ENOPROTOOPT)
            }
            libc::SO_TIMESTAMPING | libc::SO_ZEROCOPY => Err(libc::ENOPROTOOPT),
            _ => {
                socket.kept.insert((libc::SOL_SOCKET, name), value.to_vec());
                Ok(())
            }
        }
    }

    fn set_tcp_option(&mut self, fd: i32, name: i32, value: &[u8]) -> Result<()> {
        let socket = self.files.socket(fd)?;
        let id = socket.id;
        if name == libc::TCP_CONGESTION {
            let name = std::str::from_utf8(value).unwrap_or_default().trim_end_matches('\0');
            let algorithm = flags::algorithm(name).ok_or(libc::ENOENT)?;
            return self.change(id, |settings| settings.algorithm = algorithm);
        }
        let n = int(value)?;
        match name {
            libc::TCP_NODELAY => {
                self.change(id, |settings| settings.nodelay = n != 0)?;
                let now = self.now();
                if let (true, Some(mut tcp)) = (n != 0, self.stack.tcp(id)) {
                    tcp.push(now);
                }
                Ok(())
            }
            libc::TCP_CORK => self.change(id, |settings| settings.cork = n != 0),
            libc::TCP_MAXSEG => {
                if n != 0 && !(88..=32_767).contains(&n) {
                    return Err(libc::EINVAL);
                }
                socket.maxseg = n as u16;
                let mss = if n == 0 { u16::MAX } else { n as u16 };
                self.change(id, |settings| settings.mss = mss)
            }
            libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT => {
                match name {
                    libc::TCP_KEEPIDLE => socket.keepalive.0 = seconds(n, 32_767)?,
                    libc::TCP_KEEPINTVL => socket.keepalive.1 = seconds(n, 32_767)?,
                    _ => socket.keepalive.2 = seconds(n, 127)?,
                }
                let keepalive = socket.keepalive();
                self.change(id, |settings| settings.keepalive = keepalive)
            }
            libc::TCP_USER_TIMEOUT => {
                let timeout = u64::try_from(n).map_err(|_| libc::EINVAL)?;
                let timeout = (timeout > 0).then_some(Duration::from_millis(timeout));
                self.change(id, |settings| settings.user_timeout = timeout)
            }
            TCP_NOTSENT_LOWAT => {
                socket.own_lowat = n as u32;
                socket.notsent_lowat = (n != -1).then_some(n as u32).filter(|n| *n > 0);
                socket.waits_for_room = true;
                Ok(())
            }
            TCP_INQ => {
                if !(0..=1).contains(&n) {
                    return Err(libc::EINVAL);
                }
                socket.inq = n == 1;
                Ok(())
            }
            libc::TCP_SYNCNT
            | libc::TCP_LINGER2
            | libc::TCP_QUICKACK
            | libc::TCP_WINDOW_CLAMP
            | libc::TCP_DEFER_ACCEPT
            | libc::TCP_THIN_LINEAR_TIMEOUTS => {
                socket.kept.insert((libc::IPPROTO_TCP, name), value[..4].to_vec());
                Ok(())
            }
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    /// # Errors
    /// As getsockopt(2).
    pub fn option(&mut self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>> {
        let is_tcp = matches!(self.files.get(fd)?.kind, Kind::Tcp);
        let socket = self.files.socket(fd)?;
        let id = socket.id;
        if let Some(value) = socket.kept.get(&(level, name)) {
            return Ok(value.clone());
        }
        let (v6, buffers, keepalive) = (socket.v6, socket.buffers, socket.keepalive);
        let (maxseg, inq, lowat, patience) = (socket.maxseg, socket.inq, socket.own_lowat, socket.patience);
        let (least, linger) = (socket.least, socket.linger);
        let octets = |n: i32| Ok(n.to_ne_bytes().to_vec());
        let told = |half: u32, usual: i32| if half == 0 { usual } else { (half * 2) as i32 };
        if level == libc::SOL_SOCKET {
            let now = self.now();
            let tcp = self.stack.tcp(id);
            return match name {
                libc::SO_ERROR => {
                    let error = match tcp {
                        Some(mut tcp) => {
                            let half_closed = tcp.is_finished() && !tcp.is_shut();
                            tcp.take_error().map_or(0, |error| errors::of_connection(half_closed, error))
                        }
                        None => {
                            self.stack.udp(id).and_then(|mut u| u.take_error()).map_or(0, errors::network)
                        }
                    };
                    let _ = now;
                    octets(error)
                }
                libc::SO_TYPE => octets(if is_tcp { libc::SOCK_STREAM } else { libc::SOCK_DGRAM }),
                libc::SO_PROTOCOL => octets(if is_tcp { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP }),
                libc::SO_DOMAIN => octets(if v6 { libc::AF_INET6 } else { libc::AF_INET }),
                libc::SO_ACCEPTCONN => octets(tcp.is_some_and(|mut tcp| tcp.is_listening()).into()),
                libc::SO_SNDBUF => octets(told(buffers.0, USUAL.0)),
                libc::SO_RCVBUF => octets(told(buffers.1, USUAL.1)),
                libc::SO_KEEPALIVE => octets(keepalive.3.into()),
                libc::SO_REUSEADDR => octets(tcp.is_some_and(|mut t| t.options().reuse_address).into()),
                libc::SO_REUSEPORT => octets(tcp.is_some_and(|mut t| t.options().reuse_port).into()),
                libc::SO_LINGER => {
                    let on = tcp.is_some_and(|mut tcp| tcp.options().linger.is_some());
                    Ok([i32::from(on).to_ne_bytes(), (linger as i32).to_ne_bytes()].concat())
                }
                libc::SO_RCVTIMEO | libc::SO_SNDTIMEO => {
                    let time = if name == libc::SO_RCVTIMEO { patience.0 } else { patience.1 };
                    let time = time.unwrap_or_default();
                    let parts = [time.as_secs() as i64, time.subsec_micros().into()];
                    Ok(parts.map(i64::to_ne_bytes).concat())
                }
                libc::SO_RCVLOWAT => octets(least as i32),
                libc::SO_BROADCAST | libc::SO_OOBINLINE | libc::SO_DONTROUTE => octets(0),
                _ => Err(libc::ENOPROTOOPT),
            };
        }
        let Some(mut tcp) = self.stack.tcp(id) else { return Err(libc::ENOPROTOOPT) };
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                octets(tcp.options().class.0.into())
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                octets(tcp.options().hop_limit.unwrap_or(64).into())
            }
            (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => octets(tcp.options().only_v6.into()),
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => octets(tcp.settings().nodelay.into()),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => octets(tcp.settings().cork.into()),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let open = tcp.statistics().filter(|s| s.state != State::Closed);
                octets(match open {
                    Some(s) => s.mss as i32 - if s.timestamps { 12 } else { 0 },
                    None if maxseg > 0 => maxseg.into(),
                    None => USUAL_MSS,
                })
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => octets(keepalive.0 as i32),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => octets(keepalive.1 as i32),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => octets(keepalive.2 as i32),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                octets(tcp.settings().user_timeout.map_or(0, |timeout| timeout.as_millis() as i32))
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let name: &[u8] = match tcp.settings().algorithm {
                    Algorithm::Reno => b"reno",
                    _ => b"cubic",
                };
                let mut value = name.to_vec();
                value.resize(16, 0);
                Ok(value)
            }
            (libc::IPPROTO_TCP, TCP_NOTSENT_LOWAT) => octets(lowat as i32),
            (libc::IPPROTO_TCP, TCP_INQ) => octets(inq.into()),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => Ok(info::info(tcp.statistics().as_ref())),
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    /// # Errors
    /// EBADF, EINVAL.
    pub fn fcntl(&mut self, fd: i32, command: i32, value: i32) -> Result<i32> {
        let file = self.files.get(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if file.nonblock { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                file.nonblock = value & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD => Ok(i32::from(file.cloexec)),
            libc::F_SETFD => {
                file.cloexec = value & libc::FD_CLOEXEC != 0;
                Ok(0)
            }
            _ => Err(libc::EINVAL),
        }
    }

    /// One that tells a number: SIOCINQ, SIOCOUTQ, SIOCOUTQNSD.
    ///
    /// # Errors
    /// EBADF, EINVAL, ENOTTY.
    pub fn ioctl(&mut self, fd: i32, request: u64) -> Result<i32> {
        const SIOCOUTQNSD: u64 = 0x894B;
        let file = self.files.get(fd)?;
        if let Kind::Pipe(pipe, _) = file.kind {
            let len = self.files.pipes[pipe].len() as i32;
            return if request == libc::FIONREAD { Ok(len) } else { Err(libc::ENOTTY) };
        }
        let id = self.files.socket(fd)?.id;
        let Some(mut tcp) = self.stack.tcp(id) else {
            let mut udp = self.stack.udp(id).ok_or(libc::EBADF)?;
            return match request {
                libc::FIONREAD => Ok(udp.next_len().unwrap_or(0) as i32),
                libc::TIOCOUTQ => Ok(0),
                _ => Err(libc::ENOTTY),
            };
        };
        if tcp.is_listening() {
            return Err(libc::EINVAL);
        }
        let unread = tcp.unread() as i32;
        let Some(statistics) = tcp.statistics() else { return Ok(0) };
        match request {
            libc::FIONREAD => Ok(unread),
            libc::TIOCOUTQ => Ok(statistics.unacknowledged as i32),
            SIOCOUTQNSD => Ok(statistics.unsent as i32),
            _ => Err(libc::ENOTTY),
        }
    }
}
