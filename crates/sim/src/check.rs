//! What must always hold of a stack, whatever happens to it: as far as its bounds, its counters and its frames tell.

use bypath_stack::config::Config;
use bypath_stack::counters::Counters;
use bypath_stack::{Stack, Usage};
use bypath_wire::meta::ChecksumState;
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, icmpv4, icmpv6, tcp, udp,
};

/// Octets of the longest datagram: an empty queue takes it, whatever its bound.
const LONGEST: usize = 65_535 + 64;
/// Octets of the largest buffer of a connection: one that grows may go beyond the bound of all.
const LARGEST_BUFFER: usize = 8 << 20;
/// Octets that each buffer may have whatever the others do.
const LEAST_BUFFER: usize = 2048;
/// Events beside those of sockets that a stack keeps.
const NEWS: usize = 1024;

/// No table and no queue holds more than `config` says. `ifaces`: interfaces of the stack, the loopback one included.
///
/// # Errors
/// What does.
pub fn bounds(usage: &Usage, config: &Config, ifaces: usize) -> Result<(), String> {
    let timers = ifaces * (config.addresses + config.groups + 2);
    let bounds = [
        ("transmit_octets", usage.transmit_octets, ifaces * config.transmit_octets.max(LONGEST)),
        ("waiting_octets", usage.waiting_octets, config.waiting_octets),
        ("fragment_octets", usage.fragment_octets, config.reassembly.octets),
        ("fragmented", usage.fragmented, config.reassembly.most),
        ("neighbors", usage.neighbors, ifaces * config.neighbors.most),
        ("destinations", usage.destinations, config.destinations),
        ("sockets", usage.sockets, config.sockets),
        ("timers", usage.timers, timers),
        ("connections", usage.connections, config.tcp.connections),
        ("half_open", usage.half_open, config.tcp.half_open.min(usage.connections)),
        ("orphans", usage.orphans, usage.connections),
        ("time_wait", usage.time_wait, config.tcp.time_wait),
        (
            "connection_octets",
            usage.connection_octets,
            config.tcp.octets + LARGEST_BUFFER + usage.connections * 2 * LEAST_BUFFER,
        ),
        ("ready", usage.ready, usage.sockets + usage.connections + NEWS),
    ];
    match bounds.into_iter().find(|(_, used, most)| used > most) {
        Some((name, used, most)) => Err(format!("{name}: {used}, more than {most}: {usage:?}")),
        None => Ok(()),
    }
}

/// No counter goes back.
///
/// # Errors
/// Which one does.
pub fn forward(before: &Counters, now: &Counters) -> Result<(), String> {
    let back = before.iter().zip(now.iter()).find(|((_, before), (_, now))| now < before);
    match back {
        Some(((name, before), (_, now))) => Err(format!("{name} went from {before} to {now}")),
        None => Ok(()),
    }
}

/// Nothing vanishes: what came in was handed on, or ended with a reason, layer by layer.
///
/// # Errors
/// Which layer's counters contradict each other.
pub fn balance(c: &Counters) -> Result<(), String> {
    let says = |what: &str, left: u64, right: u64| Err(format!("{what}: {left} and {right}\n{c:?}"));
    // What it sent to itself, no link has.
    let looped = (c.ipv4_sent + c.ipv6_sent + c.arp_sent).saturating_sub(c.link_sent);
    let frames = c.link_received + looped;
    let link_drops = c.link_drop_short
        + c.link_drop_other_station
        + c.link_drop_own
        + c.link_drop_vlan
        + c.link_drop_protocol;
    let packets = c.ipv4_received + c.ipv6_received;
    if frames != link_drops + c.arp_received + packets {
        return says("frames, and what became of them", frames, link_drops + c.arp_received + packets);
    }
    // Packets, and datagrams of fragments, which are looked at once more.
    let ip_drops = c.ipv4_drop_malformed
        + c.ipv4_drop_checksum
        + c.ipv4_drop_source
        + c.ipv4_drop_not_local
        + c.ipv4_drop_option
        + c.ipv4_drop_source_route
        + c.ipv6_drop_malformed
        + c.ipv6_drop_source
        + c.ipv6_drop_not_local
        + c.ipv6_drop_extension
        + c.ipv6_drop_option
        + c.ipv6_drop_routing
        + c.fragments_drop_headers;
    let ended = ip_drops + c.fragments_received;
    let Some(upper) = (packets + c.fragments_whole).checked_sub(ended) else {
        return says("packets, and those that ended", packets + c.fragments_whole, ended);
    };
    // A datagram to a group may be delivered more than once; a raw socket gets what others get, too.
    let protocols = c.ipv4_drop_protocol + c.ipv6_drop_protocol;
    let udp_drops = c.udp_drop_malformed + c.udp_drop_checksum + c.udp_drop_no_socket;
    let least = udp_drops + c.icmp_received + c.tcp_received + protocols;
    let raw = c.raw_delivered + c.raw_drop_queue_full;
    let most = least + c.udp_delivered + c.udp_drop_queue_full + c.group_received + raw;
    if !(least..=most).contains(&upper) {
        return Err(format!(
            "{upper} packets for the layers above, of which {least} to {most} are known\n{c:?}"
        ));
    }
    let fragments = c.fragments_repeated
        + c.fragments_whole
        + c.fragments_drop_overlap
        + c.fragments_drop_length
        + c.fragments_drop_too_long
        + c.fragments_drop_pieces
        + c.fragments_drop_memory;
    let icmp = c.icmp_drop_malformed
        + c.icmp_drop_checksum
        + c.icmp_drop_broadcast_echo
        + c.icmp_drop_unrelated
        + c.icmp_drop_kind
        + c.icmp_drop_redirect
        + c.ndp_received;
    let tcp = c.tcp_drop_malformed
        + c.tcp_drop_checksum
        + c.tcp_drop_address
        + c.tcp_drop_no_socket
        + c.tcp_drop_flags
        + c.tcp_drop_memory;
    for (what, part, whole) in [
        ("fragments", fragments, c.fragments_received),
        ("datagrams of fragments", c.fragments_whole + c.fragments_drop_given_up, c.fragments_received),
        ("ICMP messages", icmp, c.icmp_received),
        ("TCP segments", tcp, c.tcp_received),
        ("messages of neighbour discovery", c.ndp_drop_malformed + c.ndp_drop_redirect, c.ndp_received),
        ("messages of groups", c.group_drop_malformed, c.group_received),
        ("ARP packets", c.arp_drop_malformed + c.arp_conflicts, c.arp_received),
        ("frames sent", c.link_sent, c.ipv4_sent + c.ipv6_sent + c.arp_sent),
    ] {
        if part > whole {
            return says(what, part, whole);
        }
    }
    Ok(())
}

/// All of it.
///
/// # Errors
/// What does not hold.
pub fn stack(stack: &Stack, config: &Config, ifaces: usize, before: &Counters) -> Result<(), String> {
    bounds(&stack.usage(), config, ifaces)?;
    forward(before, stack.counters())?;
    balance(stack.counters())?;
    // That looks at all connections: of many, now and then.
    let often = stack.usage().connections <= 100 || stack.counters().tcp_received.is_multiple_of(256);
    match often.then(|| stack.contradiction()).flatten() {
        Some(wrong) => Err(wrong),
        None => Ok(()),
    }
}

/// Lengths and checksums of a frame that was sent fit, and it is no longer than the link takes.
///
/// # Errors
/// What is wrong with it.
pub fn frame(frame: &[u8], meta: &FrameMeta, mtu: usize) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("a frame was sent with {what}: {frame:02x?}"));
    let Ok((link, packet)) = EthernetHeader::parse(frame) else { return wrong("no Ethernet header") };
    if packet.len() > mtu && meta.gso.is_none() {
        return wrong("more octets than the link takes");
    }
    let (addresses, protocol, fragment, payload) = match link.ethertype {
        EtherType::ARP => return Ok(()),
        EtherType::IPV4 => {
            let Ok((header, extent)) = Ipv4Header::parse_header(packet) else {
                return wrong("no IPv4 header");
            };
            if !extent.checksum_fits || extent.total_len != packet.len() || header.ttl == 0 {
                return wrong("a wrong IPv4 header");
            }
            let payload = &packet[extent.header_len..];
            (header.addresses(), header.protocol, header.is_fragment(), payload)
        }
        EtherType::IPV6 => {
            let Ok((header, payload)) = Ipv6Header::parse(packet) else { return wrong("no IPv6 header") };
            if 40 + payload.len() != packet.len() || header.hop_limit == 0 {
                return wrong("a wrong IPv6 header");
            }
            (header.addresses(), header.next_header, false, payload)
        }
        _ => return wrong("an unknown EtherType"),
    };
    if fragment || meta.checksum != ChecksumState::Unknown {
        return Ok(());
    }
    let fits = match protocol {
        IpProtocol::UDP => udp::verify(&addresses, payload) == udp::UdpChecksum::Fits,
        IpProtocol::TCP => tcp::verify(&addresses, payload),
        IpProtocol::ICMP => icmpv4::is_intact(payload),
        IpProtocol::ICMPV6 => icmpv6::verify(&addresses, payload),
        _ => true,
    };
    if fits { Ok(()) } else { wrong("a wrong checksum") }
}
