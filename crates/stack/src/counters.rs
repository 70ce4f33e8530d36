//! What happened, counted: every drop has its name.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a stack since it was made. They go around at 2^64.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values, layer by layer.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Frames handed in.
    link_received,
    /// Frames given out.
    link_sent,
    /// Shorter than an Ethernet header.
    link_drop_short,
    /// To another station.
    link_drop_other_station,
    /// From our own station: the link gave it back.
    link_drop_own,
    /// With the tag of a VLAN that has no interface.
    link_drop_vlan,
    /// Neither IPv4, IPv6 nor ARP.
    link_drop_protocol,
    /// The queue of frames to be sent was full.
    link_drop_queue_full,
    /// The caller's buffer was too small for a frame.
    link_drop_no_room,

    /// ARP packets received.
    arp_received,
    /// ARP packets sent.
    arp_sent,
    /// Cut off, not for Ethernet and IPv4, or from an address that is no host's.
    arp_drop_malformed,
    /// Somebody else claims one of our addresses.
    arp_conflicts,
    /// Messages of neighbour discovery received.
    ndp_received,
    /// Not as RFC 4861 wants them: hop limit, code, addresses, options.
    ndp_drop_malformed,
    /// Redirects that do not come from the router in use, or lead off the link.
    ndp_drop_redirect,
    /// Routers and networks that were advertised beyond those that there is room for.
    ndp_drop_full,
    /// Somebody else has one of our addresses.
    ndp_conflicts,
    /// Nobody answered for a neighbour's address.
    neighbor_failed,
    /// Neighbours that made room for others.
    neighbor_replaced,
    /// Packets for a neighbour who did not answer.
    neighbor_drop_unreachable,
    /// Packets for a neighbour who had too many waiting, or all had.
    neighbor_drop_queue_full,

    /// IPv4 packets received.
    ipv4_received,
    /// IPv4 packets sent, fragments included.
    ipv4_sent,
    /// Cut off, or lengths that contradict each other.
    ipv4_drop_malformed,
    /// The header's checksum is wrong.
    ipv4_drop_checksum,
    /// From an address that no host has.
    ipv4_drop_source,
    /// To an address that is not ours.
    ipv4_drop_not_local,
    /// An option with an impossible length.
    ipv4_drop_option,
    /// A source route.
    ipv4_drop_source_route,
    /// A protocol that nobody takes.
    ipv4_drop_protocol,

    /// IPv6 packets received.
    ipv6_received,
    /// IPv6 packets sent, fragments included.
    ipv6_sent,
    /// Cut off, or lengths that contradict each other.
    ipv6_drop_malformed,
    /// From an address that no host has.
    ipv6_drop_source,
    /// To an address that is not ours.
    ipv6_drop_not_local,
    /// Too many extension headers, or one of impossible length or at a wrong place.
    ipv6_drop_extension,
    /// An option that is not known and must be, or of impossible length.
    ipv6_drop_option,
    /// A way to go through us.
    ipv6_drop_routing,
    /// A protocol that nobody takes, or nothing at all behind the headers.
    ipv6_drop_protocol,

    /// Fragments received.
    fragments_received,
    /// Datagrams made of fragments.
    fragments_whole,
    /// Fragments that had come before.
    fragments_repeated,
    /// Datagrams whose fragments overlap or contradict each other.
    fragments_drop_overlap,
    /// Fragments of impossible length.
    fragments_drop_length,
    /// Datagrams longer than any can be.
    fragments_drop_too_long,
    /// Datagrams in too many pieces.
    fragments_drop_pieces,
    /// Datagrams beyond the memory for them.
    fragments_drop_memory,
    /// Datagrams that were not whole in time, or made room for others.
    fragments_drop_given_up,
    /// First fragments without all headers.
    fragments_drop_headers,
    /// Datagrams that were cut to be sent.
    fragments_cut,

    /// ICMP messages received, of either kind.
    icmp_received,
    /// ICMP messages sent.
    icmp_sent,
    /// Cut off.
    icmp_drop_malformed,
    /// The checksum is wrong.
    icmp_drop_checksum,
    /// Echo requests to groups and to everybody (RFC 1122, 3.2.2.6).
    icmp_drop_broadcast_echo,
    /// Errors about packets that no socket of ours can have sent (RFC 5927, 4).
    icmp_drop_unrelated,
    /// Kinds that mean nothing here.
    icmp_drop_kind,
    /// Redirects that do not come from the router in use, or lead off the link.
    icmp_drop_redirect,
    /// Errors that were not sent because there had been too many.
    icmp_drop_rate,
    /// Path MTUs that were learnt.
    icmp_path_mtus,
    /// Destinations of which a router said something, and which made room for others.
    destination_replaced,

    /// UDP datagrams delivered to sockets.
    udp_delivered,
    /// UDP datagrams that sockets sent.
    udp_sent,
    /// Cut off, or a length that contradicts the packet's.
    udp_drop_malformed,
    /// The checksum is wrong, or there is none under IPv6.
    udp_drop_checksum,
    /// To a port that no socket is bound to.
    udp_drop_no_socket,
    /// The socket's queue was full.
    udp_drop_queue_full,
    /// Errors that a socket would have had one by one, for which there was no room. The next call is told of each.
    udp_drop_reports,

    /// TCP segments received, as frames have them.
    tcp_received,
    /// TCP segments sent, as links cut them.
    tcp_sent,
    /// Segments to nobody that were answered with a reset.
    tcp_resets_sent,
    /// Segments that no honest peer sends to the connection that they are for, and that were answered with what is expected (RFC 5961).
    tcp_challenges_sent,
    /// Connections that were asked for of listeners.
    tcp_accepted,
    /// Connections that sockets asked for.
    tcp_connected,
    /// Calls that were answered with a cookie.
    tcp_cookies_sent,
    /// Connections that became open by a cookie.
    tcp_cookies_returned,
    /// Connections that began anew between ends that were in TIME-WAIT.
    tcp_time_wait_reused,
    /// Connections in TIME-WAIT that made room for others.
    tcp_time_wait_replaced,
    /// Connections that were reset when their sockets were closed, as there were too many such.
    tcp_orphans_reset,
    /// Cut off, or a length that contradicts the segment's.
    tcp_drop_malformed,
    /// The checksum is wrong.
    tcp_drop_checksum,
    /// To a group or everybody, from nobody, or a port 0.
    tcp_drop_address,
    /// To nobody.
    tcp_drop_no_socket,
    /// A call with flags that no call has.
    tcp_drop_flags,
    /// A listener has as many connections to be accepted as it may.
    tcp_drop_accept_full,
    /// An answer to a cookie that was never sent.
    tcp_drop_cookie,
    /// Octets that there is no memory for.
    tcp_drop_memory,
    /// Segments that were not sent, as no way leads there any more.
    tcp_drop_unreachable,

    /// Packets delivered to raw sockets.
    raw_delivered,
    /// The raw socket's queue was full.
    raw_drop_queue_full,

    /// Messages of group management received.
    group_received,
    /// Messages of group management sent.
    group_sent,
    /// Messages of group management that cannot be.
    group_drop_malformed,
    /// Events that nobody fetched, beside those of sockets.
    events_lost,
}
