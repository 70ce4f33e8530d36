//! What a connection wants, one by one, with the names that the standard library and socket2 have for it.

use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::{Keepalive, MtuProbing};
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Gives a kind of streams the calls for what they want of the stack. It has `set` and `settings`.
macro_rules! wishes {
    ($stream:ty) => {
        /// What it wants of the stack, one by one. All of them fail with BrokenPipe if the host has ended.
        impl $stream {
            /// Short segments are sent at once, or collected while something is not acknowledged (RFC 9293, 3.7.4): TCP_NODELAY.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
                self.set(|_, settings| settings.nodelay = nodelay)
            }

            /// See [`set_nodelay`](Self::set_nodelay).
            ///
            /// # Errors
            /// The host has ended.
            pub fn nodelay(&self) -> io::Result<bool> {
                Ok(self.settings()?.1.nodelay)
            }

            /// Short segments are not sent before this is taken back: TCP_CORK.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_cork(&self, cork: bool) -> io::Result<()> {
                self.set(|_, settings| settings.cork = cork)
            }

            /// See [`set_cork`](Self::set_cork).
            ///
            /// # Errors
            /// The host has ended.
            pub fn cork(&self) -> io::Result<bool> {
                Ok(self.settings()?.1.cork)
            }

            /// Urgent octets are read in their place, as every octet: SO_OOBINLINE. So it is, unless this says otherwise: the last one
            /// is kept apart then, and who does not fetch it never gets it.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_out_of_band_inline(&self, inline: bool) -> io::Result<()> {
                self.set(|_, settings| settings.urgent_inline = inline)
            }

            /// See [`set_out_of_band_inline`](Self::set_out_of_band_inline).
            ///
            /// # Errors
            /// The host has ended.
            pub fn out_of_band_inline(&self) -> io::Result<bool> {
                Ok(self.settings()?.1.urgent_inline)
            }

            /// Probes when nothing happens; `None`: none: SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
            ///
            /// # Errors
            /// InvalidInput: without a pause, or no probe; BrokenPipe: the host has ended.
            pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
                let keepalive = probes(keepalive)?;
                self.set(|_, settings| settings.keepalive = keepalive)
            }

            /// See [`set_keepalive`](Self::set_keepalive).
            ///
            /// # Errors
            /// The host has ended.
            pub fn keepalive(&self) -> io::Result<Option<Keepalive>> {
                Ok(self.settings()?.1.keepalive)
            }

            /// How long what was written is still sent once it is closed: beyond, it is given up with a reset; with no time at
            /// all at once. `None`: as long as the other side answers. Closing does not wait: SO_LINGER.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
                self.set(|options, _| options.linger = linger)
            }

            /// See [`set_linger`](Self::set_linger).
            ///
            /// # Errors
            /// The host has ended.
            pub fn linger(&self) -> io::Result<Option<Duration>> {
                Ok(self.settings()?.0.linger)
            }

            /// Octets that are not acknowledged for so long end the connection (RFC 5482); `None`: when they were sent again
            /// often enough: TCP_USER_TIMEOUT.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set(|_, settings| settings.user_timeout = timeout)
            }

            /// See [`set_user_timeout`](Self::set_user_timeout).
            ///
            /// # Errors
            /// The host has ended.
            pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.settings()?.1.user_timeout)
            }

            /// Whether segments find out what the path takes, by longer ones that arrive or do not, as routers may say nothing of it
            /// (RFC 4821): net.ipv4.tcp_mtu_probing.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_mtu_probing(&self, probing: MtuProbing) -> io::Result<()> {
                self.set(|_, settings| settings.mtu_probing = probing)
            }

            /// See [`set_mtu_probing`](Self::set_mtu_probing).
            ///
            /// # Errors
            /// The host has ended.
            pub fn mtu_probing(&self) -> io::Result<MtuProbing> {
                Ok(self.settings()?.1.mtu_probing)
            }

            /// Octets of payload that a packet of any path takes, as far as is known: where probing begins. net.ipv4.tcp_base_mss.
            ///
            /// # Errors
            /// InvalidInput: fewer than 48; BrokenPipe: the host has ended.
            pub fn set_base_mss(&self, octets: u16) -> io::Result<()> {
                if octets < 48 {
                    return Err(io::Error::new(ErrorKind::InvalidInput, "segments of less than 48 octets"));
                }
                self.set(|_, settings| settings.base_mss = octets)
            }

            /// See [`set_base_mss`](Self::set_base_mss).
            ///
            /// # Errors
            /// The host has ended.
            pub fn base_mss(&self) -> io::Result<u16> {
                Ok(self.settings()?.1.base_mss)
            }

            /// Which congestion control: TCP_CONGESTION.
            ///
            /// # Errors
            /// The host has ended.
            pub fn set_congestion_control(&self, algorithm: Algorithm) -> io::Result<()> {
                self.set(|_, settings| settings.algorithm = algorithm)
            }

            /// See [`set_congestion_control`](Self::set_congestion_control).
            ///
            /// # Errors
            /// The host has ended.
            pub fn congestion_control(&self) -> io::Result<Algorithm> {
                Ok(self.settings()?.1.algorithm)
            }

            /// Octets that may be written and not acknowledged: SO_SNDBUF, without the kernel's doubling.
            ///
            /// # Errors
            /// InvalidInput: none; BrokenPipe: the host has ended.
            pub fn set_send_buffer_size(&self, octets: usize) -> io::Result<()> {
                let octets = room(octets)?;
                self.set(|_, settings| settings.send_octets = octets)
            }

            /// See [`set_send_buffer_size`](Self::set_send_buffer_size).
            ///
            /// # Errors
            /// The host has ended.
            pub fn send_buffer_size(&self) -> io::Result<usize> {
                Ok(self.settings()?.1.send_octets)
            }

            /// Octets that may have come and not been read: the largest window, as far as the scale reaches that was agreed on
            /// when the connection was opened. SO_RCVBUF.
            ///
            /// # Errors
            /// InvalidInput: none; BrokenPipe: the host has ended.
            pub fn set_recv_buffer_size(&self, octets: usize) -> io::Result<()> {
                let octets = room(octets)?;
                self.set(|_, settings| settings.receive_octets = octets)
            }

            /// See [`set_recv_buffer_size`](Self::set_recv_buffer_size).
            ///
            /// # Errors
            /// The host has ended.
            pub fn recv_buffer_size(&self) -> io::Result<usize> {
                Ok(self.settings()?.1.receive_octets)
            }

            /// Routers that its packets may pass; `None`: as many as the stack usually has: IP_TTL.
            ///
            /// # Errors
            /// InvalidInput: none; BrokenPipe: the host has ended.
            pub fn set_hop_limit(&self, most: Option<u8>) -> io::Result<()> {
                if most == Some(0) {
                    return Err(io::Error::new(ErrorKind::InvalidInput, "a packet that may pass no router"));
                }
                self.set(|options, _| options.hop_limit = most)
            }

            /// See [`set_hop_limit`](Self::set_hop_limit).
            ///
            /// # Errors
            /// The host has ended.
            pub fn hop_limit(&self) -> io::Result<Option<u8>> {
                Ok(self.settings()?.0.hop_limit)
            }
        }
    };
}

wishes!(super::TcpStream);
#[cfg(feature = "tokio")]
wishes!(crate::tokio::TcpStream);

fn probes(keepalive: Option<Keepalive>) -> io::Result<Option<Keepalive>> {
    match keepalive {
        Some(Keepalive { idle, interval, probes }) if idle.is_zero() || interval.is_zero() || probes == 0 => {
            Err(io::Error::new(ErrorKind::InvalidInput, "probes without a pause, or none of them"))
        }
        keepalive => Ok(keepalive),
    }
}

fn room(octets: usize) -> io::Result<usize> {
    if octets == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "a buffer without room"));
    }
    Ok(octets)
}
