//! IPv4 (RFC 791) and IPv6 (RFC 8200).

mod input_v4;
mod input_v6;
pub mod reassembly;
pub mod source;

use crate::Stack;
use crate::icmp::Fault;
use crate::iface::IfaceId;
use crate::ingress::Packet;
use crate::time::Instant;
use bypath_wire::IpProtocol;
use bypath_wire::meta::ChecksumState;
use core::net::IpAddr;
use reassembly::{Fragment, Key, Outcome, Reason};

impl Stack {
    /// Adds a fragment, and goes on with the datagram if that is whole now. `Some`: why it was dropped.
    fn add_fragment(&mut self, packet: &Packet<'_>, key: Key, fragment: &Fragment<'_>) -> Option<Reason> {
        self.counters.fragments_received += 1;
        let outcome = self.reassembly.add(packet.now, key, fragment);
        match outcome {
            Outcome::Missing => {}
            Outcome::Repeated => self.counters.fragments_repeated += 1,
            Outcome::Whole => {
                self.counters.fragments_whole += 1;
                let (mut octets, mut first) = core::mem::take(&mut self.whole);
                if let Some(protocol) = self.reassembly.take_whole(&mut octets, &mut first) {
                    // Each fragment's own facts do not hold for the whole.
                    let checksum = match packet.checksum {
                        ChecksumState::Verified if packet.through == IfaceId::LOOPBACK => {
                            ChecksumState::Verified
                        }
                        _ => ChecksumState::Unknown,
                    };
                    let whole = Packet { checksum, gso: None, quote: &first, ..*packet };
                    match key.source {
                        IpAddr::V4(_) => self.upper_v4(&whole, protocol, &octets),
                        IpAddr::V6(_) => self.upper_v6(&whole, protocol, &octets, true),
                    }
                }
                self.whole = (octets, first);
            }
            Outcome::Dropped(reason) => {
                let counters = &mut self.counters;
                *match reason {
                    Reason::Overlap => &mut counters.fragments_drop_overlap,
                    Reason::Length => &mut counters.fragments_drop_length,
                    Reason::TooLong => &mut counters.fragments_drop_too_long,
                    Reason::Pieces => &mut counters.fragments_drop_pieces,
                    Reason::Memory => &mut counters.fragments_drop_memory,
                } += 1;
                return Some(reason);
            }
        }
        self.give_up_fragments(packet.now);
        None
    }

    /// Gives up datagrams whose time is over, or that are too many, and tells the senders of the former.
    pub(crate) fn give_up_fragments(&mut self, now: Instant) {
        let mut quote = core::mem::take(&mut self.whole.1);
        while let Some(gone) = self.reassembly.give_up(now) {
            quote.clear();
            // RFC 1122, 3.3.2; RFC 4443, 3.3: who sent no first fragment is not told, nor is who made others give way.
            if gone.late {
                quote.extend_from_slice(gone.first);
            }
            self.counters.fragments_drop_given_up += 1;
            if !quote.is_empty() {
                self.icmp_error(now, None, false, &quote, Fault::Reassembly);
            }
        }
        self.whole.1 = quote;
    }

    /// Gives a packet to whoever takes its protocol; nobody: `fault` is told to the sender.
    fn upper(&mut self, packet: &Packet<'_>, protocol: IpProtocol, payload: &[u8], fault: Fault) {
        if packet.foreign {
            return match protocol {
                IpProtocol::TCP => self.input_tcp(packet, payload),
                _ => self.input_udp(packet, payload),
            };
        }
        let raw = self.input_raw(packet, protocol, payload);
        let v4 = packet.addresses.source().is_ipv4();
        match protocol {
            IpProtocol::UDP => self.input_udp(packet, payload),
            IpProtocol::TCP => self.input_tcp(packet, payload),
            IpProtocol::ICMP if v4 => self.input_icmpv4(packet, payload),
            IpProtocol::ICMPV6 if !v4 => self.input_icmpv6(packet, payload),
            IpProtocol::IGMP if v4 => self.input_igmp(packet, payload),
            _ if raw => {}
            // RFC 8200, 4.7: no error, and nothing to be done.
            IpProtocol::NO_NEXT if !v4 => self.counters.ipv6_drop_protocol += 1,
            _ => {
                if v4 {
                    self.counters.ipv4_drop_protocol += 1;
                } else {
                    self.counters.ipv6_drop_protocol += 1;
                }
                self.icmp_error(packet.now, Some(packet.through), packet.link_group, packet.quote, fault);
            }
        }
    }
}
