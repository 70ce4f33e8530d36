//! ICMP messages that came: echo is answered, errors are believed if they are about what we sent (RFC 5927).

use super::quoted::Quoted;
use crate::Stack;
use crate::destination::Narrows;
use crate::egress::{Fragmentation, IpPacket};
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::path::{Reach, is_link_scoped};
use crate::report::Report;
use crate::socket::SocketError;
use crate::udp::demux::Arrival;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{Addresses, Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4, icmpv6, udp};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What packets are cut to by routers that do not say it (RFC 1191, 7).
const PLATEAUS: [u32; 10] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// Who has sent what an error is about.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// A UDP socket that is told.
    Udp(u32),
    /// A connection, which waits for it to be acknowledged.
    Tcp(u32),
    /// Somebody who is not told.
    Other,
}

impl Stack {
    pub(crate) fn input_icmpv4(&mut self, packet: &Packet<'_>, message: &[u8]) {
        self.counters.icmp_received += 1;
        let Ok((header, rest)) = Icmpv4Message::parse(message) else {
            self.counters.icmp_drop_malformed += 1;
            return;
        };
        if packet.checksum != ChecksumState::Verified && !icmpv4::is_intact(message) {
            self.counters.icmp_drop_checksum += 1;
            return;
        }
        match header {
            Icmpv4Message::EchoRequest { identifier, sequence } => {
                // RFC 1122, 3.2.2.6: to groups and everybody it need not be answered, and better is not ("smurf").
                if packet.reach != Reach::Host {
                    self.counters.icmp_drop_broadcast_echo += 1;
                    return;
                }
                let reply = Icmpv4Message::EchoReply { identifier, sequence };
                self.echo(packet, rest.len(), |room, _| {
                    let _fits = reply.emit_with(room, rest);
                });
            }
            // For raw sockets, which have it already.
            Icmpv4Message::EchoReply { .. } => {}
            Icmpv4Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu } => {
                self.too_big(packet, (message, rest), mtu.into());
            }
            Icmpv4Message::Unreachable { code, .. } => {
                // RFC 1122, 3.2.2.1; the codes as Linux translates them, which has a word of its own for 5, 7 and 8.
                let (error, passes) = match code {
                    icmpv4::unreachable::PORT => (SocketError::PortUnreachable, false),
                    icmpv4::unreachable::PROTOCOL => (SocketError::ProtocolUnreachable, false),
                    icmpv4::unreachable::NET | 11 => (SocketError::NetUnreachable, true),
                    6 | 9 => (SocketError::NetUnreachable, false),
                    icmpv4::unreachable::HOST | 5 | 12 => (SocketError::HostUnreachable, true),
                    7 | 8 | 10 | icmpv4::unreachable::PROHIBITED | 14 | 15 => {
                        (SocketError::HostUnreachable, false)
                    }
                    16.. => {
                        self.counters.icmp_drop_kind += 1;
                        return;
                    }
                    _ => return,
                };
                self.failed(packet, (message, rest), error, passes);
            }
            // Fragments that did not come say nothing of the way (as Linux has it).
            Icmpv4Message::TimeExceeded { code: 1 } => {}
            Icmpv4Message::TimeExceeded { .. } => {
                self.failed(packet, (message, rest), SocketError::HostUnreachable, true);
            }
            Icmpv4Message::ParameterProblem { .. } => {
                self.failed(packet, (message, rest), SocketError::Parameter, false)
            }
            Icmpv4Message::Redirect { gateway, .. } => self.redirected(packet, rest, gateway),
            // Source quench too (RFC 6633, 3).
            Icmpv4Message::Other { .. } => self.counters.icmp_drop_kind += 1,
        }
    }

    pub(crate) fn input_icmpv6(&mut self, packet: &Packet<'_>, message: &[u8]) {
        self.counters.icmp_received += 1;
        let Ok((header, rest)) = Icmpv6Message::parse(message) else {
            self.counters.icmp_drop_malformed += 1;
            return;
        };
        if packet.checksum != ChecksumState::Verified && !icmpv6::verify(&packet.addresses, message) {
            self.counters.icmp_drop_checksum += 1;
            return;
        }
        match header {
            Icmpv6Message::EchoRequest { identifier, sequence } => {
                let reply = Icmpv6Message::EchoReply { identifier, sequence };
                self.echo(packet, rest.len(), |room, addresses| {
                    let _fits = reply.emit_with(room, addresses, rest);
                });
            }
            Icmpv6Message::EchoReply { .. } => {}
            Icmpv6Message::PacketTooBig { mtu } => self.too_big(packet, (message, rest), mtu),
            Icmpv6Message::Unreachable { code } => {
                let (error, passes) = match code {
                    icmpv6::unreachable::PORT => (SocketError::PortUnreachable, false),
                    icmpv6::unreachable::NO_ROUTE => (SocketError::NetUnreachable, true),
                    icmpv6::unreachable::PROHIBITED | 5 | 6 => (SocketError::Prohibited, false),
                    2 | 3 => (SocketError::HostUnreachable, true),
                    _ => (SocketError::Parameter, false),
                };
                self.failed(packet, (message, rest), error, passes);
            }
            Icmpv6Message::TimeExceeded { .. } => {
                self.failed(packet, (message, rest), SocketError::HostUnreachable, true);
            }
            Icmpv6Message::ParameterProblem { .. } => {
                self.failed(packet, (message, rest), SocketError::Parameter, false)
            }
            Icmpv6Message::Other { kind: 133..=137, .. } => self.input_ndp(packet, message),
            Icmpv6Message::Other { kind: 130..=132 | 143, .. } => self.input_mld(packet, message),
            Icmpv6Message::Other { .. } => self.counters.icmp_drop_kind += 1,
        }
    }

    /// Answers a request: from the address that was asked, if it is one host's (RFC 1122, 3.2.2.6; RFC 4443, 4.2).
    fn echo(&mut self, packet: &Packet<'_>, len: usize, fill: impl FnOnce(&mut [u8], &Addresses)) {
        let asker = packet.addresses.source();
        let own = Some(packet.addresses.destination()).filter(|_| packet.reach == Reach::Host);
        let scope = Some(packet.through).filter(|_| is_link_scoped(asker));
        let Ok(path) = self.path(asker, scope, own) else { return };
        let addresses = match (path.source, asker) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            _ => return,
        };
        let protocol = if asker.is_ipv4() { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let header = IpPacket {
            addresses,
            protocol,
            hops: self.config.hop_limit,
            class: packet.class,
            router_alert: false,
        };
        let sent = self.enqueue_ip(&path, header, icmpv4::HEADER_LEN + len, |room| fill(room, &addresses));
        self.counters.icmp_sent += u64::from(sent);
    }

    /// The packet that an error is about, if a socket of ours can have sent it (RFC 5927, 4), and who has.
    fn related<'a>(&mut self, packet: &Packet<'_>, quote: &'a [u8]) -> Option<(Quoted<'a>, Sender)> {
        let found = Quoted::parse(quote).and_then(|quoted| {
            let (from, to) = (quoted.addresses.source(), quoted.addresses.destination());
            let ours = self.is_local(from, None) || self.forwards(quoted.protocol);
            if !ours || quoted.is_error {
                return None;
            }
            // What is in the middle of a packet does not tell whose that is.
            if quoted.offset != 0 {
                return None;
            }
            if quoted.protocol == IpProtocol::TCP
                && let Some(index) = self.sender_of(&quoted, packet.through)
            {
                return Some((quoted, Sender::Tcp(index)));
            }
            if quoted.protocol != IpProtocol::UDP {
                return self.raw.has_sent(&quoted).then_some((quoted, Sender::Other));
            }
            let (from_port, to_port) = quoted.ports()?;
            let (local, remote) = (SocketAddr::new(from, from_port), SocketAddr::new(to, to_port));
            let (socket, told) = self.sender_of_datagram(local, remote, packet.through)?;
            Some((quoted, if told { Sender::Udp(socket) } else { Sender::Other }))
        });
        if found.is_none() {
            self.counters.icmp_drop_unrelated += 1;
        }
        found
    }

    /// A packet did not get there: a socket that has that one partner is told. `passes`: another packet may get there.
    fn failed(
        &mut self,
        packet: &Packet<'_>,
        (message, quote): (&[u8], &[u8]),
        error: SocketError,
        passes: bool,
    ) {
        match self.related(packet, quote) {
            Some((quoted, Sender::Udp(socket))) => {
                self.reported(packet, message, &quoted, socket, error);
                self.socket_failed(socket, error, passes);
            }
            Some((_, Sender::Tcp(connection))) => self.segment_failed(packet.now, connection, error),
            Some((_, Sender::Other)) | None => {}
        }
    }

    /// A socket that wants each error by itself has this one.
    fn reported(
        &mut self,
        packet: &Packet<'_>,
        message: &[u8],
        quoted: &Quoted<'_>,
        socket: u32,
        error: SocketError,
    ) {
        let (Some((_, port)), [kind, code, ..]) = (quoted.ports(), message) else { return };
        let to = SocketAddr::new(quoted.addresses.destination(), port);
        let octets = quoted.payload.get(udp::HEADER_LEN..).unwrap_or_default();
        self.report(socket, || Report::of(packet, error, (*kind, *code), to, octets));
    }

    /// The socket that can have sent a datagram, and whether it is told what became of it: of one to its partner, or of any if it
    /// wants to know all.
    fn sender_of_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        through: IfaceId,
    ) -> Option<(u32, bool)> {
        let socket = self.demux.lookup(&Arrival { from: to, to: from, through })?;
        Some((socket, self.is_told(socket, to)))
    }

    /// Whether a socket is told what became of a datagram of its own to `to`.
    pub(crate) fn is_told(&mut self, socket: u32, to: SocketAddr) -> bool {
        let connected = self.demux.binding(socket).is_some_and(|b| b.remote == Some(to));
        connected || self.sockets.at_mut(socket).1.options.all_errors
    }

    /// A packet was too long for a link on its way (RFC 1191; RFC 8201).
    fn too_big(&mut self, packet: &Packet<'_>, (message, quote): (&[u8], &[u8]), mtu: u32) {
        let Some((quoted, sender)) = self.related(packet, quote) else { return };
        let len = quoted.len as u32;
        let mtu = match mtu {
            // RFC 1191, 5: an old router, which does not say it.
            0 => PLATEAUS.into_iter().find(|plateau| *plateau < len).unwrap_or(68),
            mtu => mtu,
        };
        // RFC 5927, 7.2: one that would have passed was not the reason.
        if mtu >= len {
            self.counters.icmp_drop_unrelated += 1;
            return;
        }
        let to = quoted.addresses.destination();
        // Ports and identifiers are soon guessed, sequence numbers are not: connections believe what is about connections.
        let whose = if matches!(sender, Sender::Tcp(_)) { Narrows::All } else { Narrows::Datagrams };
        if self.destinations.narrow(packet.now, to, mtu, whose) {
            self.counters.icmp_path_mtus += 1;
            self.generation += 1;
        }
        self.counters.destination_replaced += self.destinations.take_replaced();
        if let Sender::Tcp(index) = sender {
            self.segment_too_big(packet.now, index);
        }
        if let Sender::Udp(index) = sender
            && self.sockets.at_mut(index).1.options.fragmentation == Fragmentation::Never
        {
            let mtu = self.destinations.get(to).and_then(|d| d.mtu).unwrap_or(mtu);
            self.reported(packet, message, &quoted, index, SocketError::TooBig { mtu });
            self.socket_failed(index, SocketError::TooBig { mtu }, false);
        }
    }

    /// A router knows a better one (RFC 1122, 3.2.2.2): believed if it is the one in use, the other one is on its link, and a
    /// connection waits for what was redirected to be acknowledged.
    ///
    /// DEVIATION RFC 1122 3.2.2.2: what is about a datagram is not believed. Everybody's packets to that destination would
    /// follow, and who is not on the way can make it up. They go by the first router, which passes them on.
    fn redirected(&mut self, packet: &Packet<'_>, quote: &[u8], gateway: Ipv4Addr) {
        let Some((quoted, sender)) = self.related(packet, quote) else { return };
        let proven = matches!(sender, Sender::Tcp(_));
        let to = quoted.addresses.destination();
        let gateway = IpAddr::V4(gateway);
        let in_use = self.path(to, None, None).is_ok_and(|path| {
            path.iface == packet.through && path.next_hop == packet.addresses.source() && path.next_hop != to
        });
        let on_link = self.ifaces[packet.through.at()].is_on_link(gateway);
        let host = !gateway.is_multicast() && !gateway.is_unspecified() && !self.is_local(gateway, None);
        if !proven || !in_use || !on_link || !host {
            self.counters.icmp_drop_redirect += 1;
            return;
        }
        self.destinations.redirect(packet.now, to, packet.through, gateway);
        self.counters.destination_replaced += self.destinations.take_replaced();
        self.generation += 1;
    }
}
