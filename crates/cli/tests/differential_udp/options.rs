//! Options and ancillary data: what is told beside a datagram, what is dropped, and what keeps a socket with the kernel.

use crate::hand::scripts;

scripts! {
    where_it_came_in, "packet information", Either: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s setsockopt 3 pktinfo 1
        s getsockopt 3 pktinfo
        c socket inet dgram|cloexec
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        c sendto 3 11 1 0 127.0.0.7:%port:s:3
        s receive_msg 3 100 0 200
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 5 peek 200
        s receive_msg 3 100 0 0
        c sendto 3 13 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 20
        c sendto 3 14 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s setsockopt 3 pktinfo 0
        c sendto 3 15 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
    ";
    where_it_came_in_by_ipv6, "packet information", Either: "
        s socket inet6 dgram|cloexec
        s bind 3 [::]:0
        s setsockopt 3 pktinfo6 1
        c socket inet6 dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 [::1]:%port:s:3
        s join echoes
        c sendto 3 10 1 0 [::1]:%port:s:3
        s receive_msg 3 100 0 200
        c socket inet dgram|cloexec
        c sendto 4 11 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        s setsockopt 3 pktinfo 1
        c sendto 4 12 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        c sendto 3 13 1 0 [::1]:%port:s:3
        s receive_msg 3 100 0 30
    ";
    where_many_came_in_and_when, "packet information", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s setsockopt 3 pktinfo 1
        s setsockopt 3 timestampns_new 1
        c socket inet dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        c send_many 3 10,0,14 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 60
        s receive_msg 3 100 0 59
        c send_many 3 10,20,30 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 peek 48
        s receive_msg 3 100 0 40
        s receive_many 3 70,70,70 dontwait
        s receive_msg 3 100 dontwait 200
        c sendto 3 11 1 0 127.0.0.1:%port:s:3
        s setsockopt 3 timestamp_new 1
        s receive_msg 3 100 0 200
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s setsockopt 3 timestamp_new 0
        s receive_msg 3 100 0 200
    ";
    where_many_came_in_and_when_by_ipv6, "packet information", Ring: "
        s socket inet6 dgram|cloexec
        s bind 3 [::]:0
        s setsockopt 3 pktinfo6 1
        s setsockopt 3 timestampns_new 1
        c socket inet6 dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 [::1]:%port:s:3
        s join echoes
        c send_many 3 10,0,14 1 0 [::1]:%port:s:3
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 60
        s receive_msg 3 100 0 59
        c send_many 3 10,20,30 1 0 [::1]:%port:s:3
        s receive_msg 3 100 peek 48
        s receive_msg 3 100 0 40
        s receive_many 3 70,70,70 dontwait
        s receive_msg 3 100 dontwait 200
        c sendto 3 11 1 0 [::1]:%port:s:3
        s setsockopt 3 timestamp_new 1
        s receive_msg 3 100 0 200
        c sendto 3 12 1 0 [::1]:%port:s:3
        s setsockopt 3 timestamp_new 0
        s receive_msg 3 100 0 200
    ";
    who_begins_to_ask_is_told_of_what_waits, "packet information", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        c socket inet dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        c sendto 3 10 1 0 127.0.0.5:%port:s:3
        c sendto 3 11 1 0 127.0.0.1:%port:s:3
        s setsockopt 3 pktinfo 1
        s setsockopt 3 timestamp 1
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 200
        s setsockopt 3 pktinfo 0
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        c sendto 3 13 1 0 127.0.0.1:%port:s:3
        s setsockopt 3 timestamp 0
        s setsockopt 3 pktinfo 1
        s receive_msg 3 100 0 200
        c sendto 3 14 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
    ";
    who_begins_to_ask_by_ipv6, "packet information", Ring: "
        s socket inet6 dgram|cloexec
        s bind 3 [::]:0
        c socket inet6 dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 [::1]:%port:s:3
        s join echoes
        c sendto 3 10 1 0 [::1]:%port:s:3
        s setsockopt 3 pktinfo6 1
        s setsockopt 3 timestampns 1
        s setsockopt 3 pktinfo 1
        c sendto 3 11 1 0 [::1]:%port:s:3
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 200
        c socket inet dgram|cloexec
        s go more echo_from 3 100
        c ping_to 4 100 64 127.0.0.1:%port:s:3
        s join more
        c sendto 4 12 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 200
        c sendto 4 13 1 0 127.0.0.1:%port:s:3
        s receive_msg 3 100 0 70
    ";
    a_source_by_packet_information, "packet information", Either: "
        dgrams 127.0.0.1
        c bind 3 0.0.0.0:0
        pings
        c send_msg 3 10 1 0 @s:3 src=127.0.0.5:0
        s receive 3 100
        c send_msg 3 11 1 0 @s:3
        s receive 3 100
        c sendto 3 12 1 0 @s:3
        s receive 3 100
        pings
        c send_msg 3 13 1 0 @s:3 src=203.0.113.1:0
        s receive 3 100 dontwait
    ";
    sends_that_say_from_where, "packet information", Ring: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c bind 3 0.0.0.0:0
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3 src=127.0.0.1:0
        s join echoes
        c send_msg 3 10 1 0 127.0.0.1:%port:s:3 src=127.0.0.1:0
        s receive 3 100
        c send_msg 3 11 1 0 127.0.0.1:%port:s:3 src=127.0.0.5:0
        s receive 3 100
        c send_msg 3 12 1 0 127.0.0.1:%port:s:3 src=203.0.113.1:0
        c send_msg 3 13 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s receive 3 100 dontwait
    ";
    sends_that_say_how_far, "ancillary data and the error queue", Ring: "
        dgrams 127.0.0.1
        s go echoes echo_from 3 100
        c ping_to 3 100 64 @s:3 ttl=9
        s join echoes
        s go more echo_from 3 100
        c ping_to 3 100 64 @s:3 tos=16
        s join more
        c send_msg 3 10 1 0 @s:3 ttl=0
        c send_msg 3 11 1 0 @s:3 ttl=256
        c send_msg 3 12 1 0 @s:3 tos=255
        s receive 3 100
        s setsockopt 3 recvttl 1
        c send_msg 3 13 1 0 @s:3 ttl=77
        s receive_msg 3 100 0 200
        s receive 3 100 dontwait
    ";
    when_it_came, "timestamps", Either: "
        dgrams 127.0.0.1
        s setsockopt 3 timestamp 1
        pings
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        c sendto 3 11 1 0 @s:3
        s receive_msg 3 5 peek 200
        s receive_msg 3 100 0 200
        c sendto 3 11 1 0 @s:3
        s receive_msg 3 100 0 10
        s setsockopt 3 timestampns 1
        c sendto 3 12 1 0 @s:3
        s receive_msg 3 100 0 200
        pings
        c sendto 3 13 1 0 @s:3
        s setsockopt 3 timestampns 0
        s receive_msg 3 100 0 200
        c sendto 3 13 1 0 @s:3
        s setsockopt 3 timestamp 1
        s setsockopt 3 pktinfo 1
        s receive_msg 3 100 0 200
        c sendto 3 14 1 0 @s:3
        s receive_msg 3 100 0 200
    ";
    timestamps_of_other_kinds, "timestamps", Either: "
        dgrams 127.0.0.1
        pings
        s setsockopt 3 timestamp_new 1
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        s setsockopt 3 timestampns_new 1
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        pings
        c sendto 3 10 1 0 @s:3
        s setsockopt 3 pktinfo 1
        s receive_msg 3 100 0 200
    ";
    what_is_told_beside, "ancillary data and the error queue", Either: "
        dgrams 127.0.0.1
        pings
        s setsockopt 3 recvttl 1
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        c send_msg 3 10 1 0 @s:3 ttl=7
        s receive_msg 3 100 0 200
        pings
        c send_msg 3 10 1 0 @s:3 ttl=8
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        s receive_msg 3 100 0 200
        s setsockopt 3 recvttl 0
        c send_msg 3 10 1 0 @s:3 tos=16
        s receive_msg 3 100 0 200
        pings
        s setsockopt 3 rxq_ovfl 1
        c sendto 3 10 1 0 @s:3
        s receive_msg 3 100 0 200
        c send_msg 3 10 1 0 @s:3 ttl=900
        s receive 3 100 dontwait
    ";
    errors_in_a_queue, "ancillary data and the error queue", Either: "
        dgrams 127.0.0.1
        c setsockopt 3 recverr 1
        pings
        c sendto 3 10 1 0 @s:3
        s receive 3 100
        c connect 3 @s:3
        s close 3
        c send 3 10 1
        c send 3 10 1
        c poll 0 3:in|out
        c recvmsg 3 100 errqueue
        c recv 3 10 errqueue
        c recv 3 10 dontwait
        c socket inet dgram|cloexec
        c recv 4 10 errqueue
    ";
    options_of_a_socket, "socket options", Ring: "
        dgrams 127.0.0.1
        pings
        s getsockopt 3 rcvbuf
        s getsockopt 3 sndbuf
        s getsockopt 3 rcvlowat
        s setsockopt 3 rcvbuf 5000
        s getsockopt 3 rcvbuf
        s setsockopt 3 rcvlowat 100
        s getsockopt 3 rcvlowat
        c sendto 3 10 1 0 @s:3
        s poll 0 3:in
        s recv 3 100
        s setsockopt 3 sndbuf 4000
        s sendto 3 30000 1 0 @c:3
        s sendto 3 1000 1 0 @c:3
        c receive 3 40000
        s getsockopt 3 keepalive
        s setsockopt 3 keepalive 1
        s setsockopt 3 linger 1 5
        s setsockopt 3 reuseaddr 1
        s getsockopt 3 reuseaddr
        s setsockopt 3 nodelay 1
        s getsockopt 3 error
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        s close 3
    ";
    a_queue_has_an_end, "SO_RCVBUF and what is dropped", Ring: "
        dgrams 127.0.0.1
        pings
        c flood 3 @s:3 1000 14
        s near 3
        c flood 3 @s:3 1000 1400
        s near 3
        c flood 3 @s:3 100 9000
        s near 3
        c flood 3 @s:3 20 60000
        s near 3
        pings
        c flood 3 @s:3 1000 0
        s near 3
        s near 3
        pings
    ";
    a_small_queue_has_an_end, "SO_RCVBUF and what is dropped", Ring: "
        dgrams 127.0.0.1
        s setsockopt 3 rcvbuf 8192
        pings
        c flood 3 @s:3 200 14
        s near 3
        c flood 3 @s:3 200 1400
        s near 3
        s setsockopt 3 rcvbuf 100000
        c flood 3 @s:3 1000 64
        s near 3
        s setsockopt 3 rcvbuf 1
        c flood 3 @s:3 100 64
        s near 3
        pings
        c sendto 3 9000 1 0 @s:3
        c sendto 3 9000 1 0 @s:3
        s near 3
        s setsockopt 3 rcvbuf 200000
        pings
        c flood 3 @s:3 1000 64
        s near 3
    ";
    a_queue_of_two_senders, "SO_RCVBUF and what is dropped", Ring: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 4 100 64 @s:3
        s join echoes
        pings
        c flood 3 @s:3 100 64
        c flood 4 @s:3 100 64
        c flood 3 @s:3 100 64
        s near 3
        c flood 4 @s:3 300 1400
        c flood 3 @s:3 10 10
        s near 3
    ";
    several_sockets_at_one_port, "SO_REUSEPORT", Either: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s bind 3 127.0.0.1:0
        s socket inet dgram|cloexec
        s setsockopt 4 reuseport 1
        s bind 4 127.0.0.1:%port:s:3
        c socket inet dgram|cloexec
        c flood 3 127.0.0.1:%port:s:3 50 64
        s count 3 4
        c flood 3 127.0.0.1:%port:s:3 100 64
        s count 3 4
        s close 3
        c flood 3 127.0.0.1:%port:s:4 100 64
        s count 4
    ";
    one_of_a_group_gets_all_of_a_source, "SO_REUSEPORT", Ring: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s bind 3 127.0.0.1:0
        s socket inet dgram|cloexec
        s setsockopt 4 reuseport 1
        s bind 4 127.0.0.1:%port:s:3
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:s:3
        s go echoes echo_group 100 3 4
        c ping_to 3 100 64 -
        s join echoes
        c socket inet dgram|cloexec
        c connect 4 127.0.0.1:%port:s:3
        s go more echo_group 100 3 4
        c ping_to 4 100 64 -
        s join more
        c send 3 10 1
        c raw_write 3 10 2
        c send 3 10 3
        s count 3 4
        s socket inet dgram|cloexec
        s setsockopt 5 reuseport 1
        s bind 5 127.0.0.1:%port:s:3
        c send 3 10 1
        c raw_write 3 10 2
        s count 3 4 5
        c send 4 10 1
        c raw_write 4 10 2
        s count 3 4 5
        s go again echo_group 100 3 4 5
        c ping_to 3 100 64 -
        s join again
        s close 3
        c send 3 10 1
        c raw_write 3 10 2
        s count 4 5
        c send 4 10 1
        c raw_write 4 10 2
        s count 4 5
    ";
    another_program_joins_a_group, "SO_REUSEPORT", Ring: "
        s spawn other same
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:s:3
        pings -
        other socket inet dgram|cloexec
        other setsockopt 3 reuseport 1
        other bind 3 127.0.0.1:%port:s:3
        c send 3 10 1
        c raw_write 3 10 2
        s pairs 3
        other pairs 3
        other connect 3 127.0.0.1:9
        c send 3 10 3
        c raw_write 3 10 4
        s count 3
        other exit 0
        s wait other
        c send 3 10 5
        c raw_write 3 10 6
        s count 3
    ";
    a_group_that_the_program_steers, "SO_REUSEPORT", Ring: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s bind 3 127.0.0.1:0
        s socket inet dgram|cloexec
        s setsockopt 4 reuseport 1
        s bind 4 127.0.0.1:%port:s:3
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:s:3
        s go echoes echo_group 100 3 4
        c ping_to 3 100 64 -
        s join echoes
        s steer 3 1
        c send 3 10 1
        s receive 4 10
        s recv 3 10 dontwait
        s go more echo_from 4 100
        c ping_to 3 100 64 -
        s join more
        c send 3 10 2
        s steer 4 0
        c send 3 10 3
        s receive 3 10
        s receive 4 10
        s recv 4 10 dontwait
    ";
    a_member_of_one_processor, "SO_REUSEPORT", Either: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s setsockopt 3 incoming_cpu 0
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:s:3
        pings -
        c send 3 10 1
        s receive 3 10
    ";
    a_second_socket_joins_the_first, "SO_REUSEPORT", Ring: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseport 1
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        pings 127.0.0.1:%port:s:3
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s socket inet dgram|cloexec
        s setsockopt 4 reuseport 1
        s bind 4 127.0.0.1:%port:s:3
        c flood 3 127.0.0.1:%port:s:3 100 64
        s count 3 4
        c flood 3 127.0.0.1:%port:s:3 100 64
        s count 3 4
    ";
    the_later_of_two_takes_it, "SO_REUSEPORT", Ring: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseaddr 1
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        pings 127.0.0.1:%port:s:3
        s socket inet dgram|cloexec
        s setsockopt 4 reuseaddr 1
        s bind 4 127.0.0.1:%port:s:3
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s count 3
        s count 4
        s close 4
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s count 3
    ";
    a_port_is_lent_afterwards, "SO_REUSEPORT", Ring: "
        dgrams 127.0.0.1
        pings
        s setsockopt 3 reuseaddr 1
        s socket inet dgram|cloexec
        s setsockopt 4 reuseaddr 1
        s bind 4 127.0.0.1:%port:s:3
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s count 3
        s count 4
    ";
    a_narrower_name_takes_it, "SO_REUSEPORT", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        c socket inet dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        s setsockopt 3 reuseaddr 1
        s socket inet dgram|cloexec
        s setsockopt 4 reuseaddr 1
        s bind 4 127.0.0.1:%port:s:3
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        c sendto 3 11 1 0 127.0.0.2:%port:s:3
        s receive 4 100
        s receive 3 100
        s receive 3 100 dontwait
        s receive 4 100 dontwait
    ";
    to_everybody, "broadcast and multicast", Either: "
        dgrams 127.0.0.1
        pings
        c sendto 3 10 1 0 127.255.255.255:%port:s:3
        c setsockopt 3 broadcast 1
        c sendto 3 10 1 0 127.255.255.255:%port:s:3
        s recv 3 10 dontwait
        s socket inet dgram|cloexec
        s bind 4 0.0.0.0:0
        c sendto 3 11 1 0 127.255.255.255:%port:s:4
        s receive 4 100 dontwait
        c sendto 3 12 1 0 127.0.0.1:%port:s:4
        s receive 4 100
        c sendto 3 13 1 0 @s:3
        s receive 3 100
    ";
    many_datagrams_in_one, "GSO, GRO, corking", Either: "
        dgrams 127.0.0.1
        pings
        c send_msg 3 1000 1 0 @s:3 segment=300
        s receive_many 3 500,500,500,500,500 dontwait
        c setsockopt 3 udp_segment 200
        c sendto 3 500 2 0 @s:3
        s receive_many 3 500,500,500,500 dontwait
        c setsockopt 3 udp_segment 0
        c sendto 3 500 3 0 @s:3
        s receive 3 600
        pings
        s setsockopt 3 udp_gro 1
        c send_msg 3 1000 4 0 @s:3 segment=300
        s receive_msg 3 2000 0 100
        c sendto 3 10 5 0 @s:3
        s receive_msg 3 2000 0 100
        s receive 3 100 dontwait
    ";
    as_many_datagrams_in_one_as_every_kernel_takes, "GSO, GRO, corking", Either: "
        dgrams 127.0.0.1
        pings
        c send_msg 3 640 1 0 @s:3 segment=10
        s receive 3 100
        s receive 3 100
        c setsockopt 3 udp_segment 1
        c sendto 3 64 2 0 @s:3
    ";
    pieces_of_one_datagram, "GSO, GRO, corking", Either: "
        dgrams 127.0.0.1
        pings
        c connect 3 @s:3
        c send 3 10 1 more
        c send 3 20 2
        s receive 3 100
        s receive 3 100 dontwait
        c setsockopt 3 udp_cork 1
        c send 3 10 3
        c send 3 10 4
        s receive 3 100 dontwait
        c setsockopt 3 udp_cork 0
        s receive 3 100
        c send 3 10 5
        s receive 3 100
        pings -
        c send 3 10 1 more
        s receive 3 100 dontwait
        c write 3 20 2
        s receive 3 100
    ";
}
