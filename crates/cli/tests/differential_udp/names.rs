//! Who sends to whom: families, wildcards, connections, binding anew, and what a name that nobody has is answered with.

use crate::hand::scripts;

scripts! {
    the_same_by_ipv6, "IPv6", Ring: "
        dgrams [::1]
        pings
        c sendto 3 14 1 0 @s:3
        s receive 3 100
        s sendto 3 15 2 0 @c:3
        c receive 3 100
        c connect 3 @s:3
        pings -
        c send 3 0 1
        s receive_msg 3 10 0 100
        c getsockname 3
        c getpeername 3
        s getsockname 3
    ";
    the_other_family_by_mapped_addresses, "IPv4-mapped", Ring: "
        s socket inet6 dgram|cloexec
        s bind 3 [::]:0
        c socket inet dgram|cloexec
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        c sendto 3 14 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s sendto 3 15 2 0 [::ffff:127.0.0.1]:%port:c:3
        c receive 3 100
        c socket inet6 dgram|cloexec
        c sendto 4 16 3 0 [::1]:%port:s:3
        s receive 3 100
        c socket inet6 dgram|cloexec
        c sendto 5 17 4 0 [::ffff:127.0.0.1]:%port:s:3
        s receive 3 100
        c connect 3 127.0.0.1:%port:s:3
        s connect 3 [::ffff:127.0.0.1]:%port:c:3
        s getpeername 3
        s getsockname 3
        s send 3 18 5
        c recv 3 100
        c sendto 5 19 6 0 [::ffff:127.0.0.1]:%port:s:3
        s recv 3 100 dontwait
    ";
    every_address_of_a_wildcard, "wildcard addresses", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        c socket inet dgram|cloexec
        s go echoes echo_from 3 50
        c ping_to 3 50 64 127.0.0.1:%port:s:3
        s join echoes
        s go echoes echo_from 3 50
        c ping_to 3 50 64 127.0.0.3:%port:s:3
        s join echoes
        c sendto 3 14 1 0 127.0.0.2:%port:s:3
        s receive 3 100
        c sendto 3 15 1 0 0.0.0.0:%port:s:3
        s receive 3 100
        c getsockname 3
        c socket inet dgram|cloexec
        c bind 4 127.0.0.4:0
        c sendto 4 16 1 0 127.0.0.5:%port:s:3
        s receive 3 100
        s sendto 3 17 1 0 127.0.0.4:%port:c:4
        c receive 4 100
        s getsockname 3
        c connect 4 127.0.0.9:%port:s:3
        c send 4 18 1
        s receive 3 100
        s sendto 3 19 1 0 127.0.0.4:%port:c:4
        c recv 4 100 dontwait
        c getsockname 4
    ";
    a_bound_address_takes_no_other, "wildcard addresses", Either: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.2:0
        c socket inet dgram|cloexec
        c sendto 3 14 1 0 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        c sendto 3 14 1 0 127.0.0.2:%port:s:3
        s receive 3 10
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:%port:s:3
        c bind 4 127.0.0.2:%port:s:3
        s socket inet dgram|cloexec
        s bind 4 127.0.0.2:%port:s:3
        s bind 4 0.0.0.0:%port:s:3
        c sendto 3 20 1 0 127.0.0.2:%port:s:3
        c sendto 3 21 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        c receive 4 100
        s recv 3 10 dontwait
        c recv 4 10 dontwait
    ";
    who_is_bound_to_a_group_and_connects_keeps_it, "connected or not", Either: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c bind 3 239.255.77.30:0
        c connect 3 127.0.0.1:%port:s:3
        c getsockname 3
        c getpeername 3
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:%port:c:3
        s sendto 3 14 1 0 127.0.0.1:%port:c:4
        c receive 4 100
        c receive 3 100 dontwait
        c send 3 15 1
        s receive 3 100
    ";
    who_is_connected_hears_one_only, "connected or not", Ring: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        pings
        c sendto 3 10 1 0 @s:3
        c sendto 4 11 1 0 @s:3
        s connect 3 @c:3
        c sendto 4 12 1 0 @s:3
        c sendto 3 13 1 0 @s:3
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100 dontwait
        c getsockopt 4 error
        s disconnect 3
        c sendto 4 14 1 0 127.0.0.1:%port:s:3
        s receive 3 100 dontwait
        s getsockname 3
        s getpeername 3
        s connect 3 127.0.0.1:%port:c:4
        c sendto 4 15 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        c sendto 3 16 1 0 127.0.0.1:%port:s:3
        s receive 3 100 dontwait
    ";
    who_sends_connects_and_comes_apart, "connected or not", Ring: "
        dgrams 127.0.0.1
        s socket inet dgram|cloexec
        s bind 4 127.0.0.1:0
        c connect 3 @s:3
        pings -
        c send 3 10 1
        c connect 3 127.0.0.1:%port:s:4
        c send 3 11 1
        c sendto 3 12 1 0 @s:3
        s receive 4 100
        s receive 3 100
        s receive 3 100
        s sendto 3 13 1 0 127.0.0.1:%port:c:3
        c recv 3 100 dontwait
        s sendto 4 14 1 0 127.0.0.1:%port:c:3
        c recv 3 100 dontwait
        c disconnect 3
        c send 3 15 1
        c sendto 3 16 1 0 @s:3
        s receive 3 100
        c connect 3 @s:3
        pings -
        c disconnect 3
        c getpeername 3
        s receive 4 10 dontwait
    ";
    errors_of_names, "names and their errors", Either: "
        dgrams 127.0.0.1
        c send 3 10 1
        c sendto 3 10 1 0
        c sendto 3 10 1 0 127.0.0.1:0
        c sendto 3 10 1 0 [::1]:9
        c sendto 3 10 1 0 255.255.255.255:9
        c sendto 3 10 1 0 127.255.255.255:9
        c bind 3 127.0.0.1:0
        c bind 3 127.0.0.1:0
        c bind 3 203.0.113.7:0
        c connect 3 127.0.0.1:0
        c getpeername 3
        c shutdown 3 wr
        c recv 3 0 dontwait
        c getsockopt 3 error
        c socket inet dgram|cloexec
        c getsockname 4
        c connect 4 @s:3
        c getpeername 4
        c bind 4 127.0.0.1:0
        c socket inet6 dgram|cloexec
        c sendto 5 10 1 0 127.0.0.1:9
        c setsockopt 5 v6only 1
        c sendto 5 10 1 0 [::ffff:127.0.0.1]:9
    ";
    an_unbound_sender_has_a_name_then, "names and their errors", Ring: "
        dgrams 127.0.0.1
        c getsockname 3
        s getsockname 3
        c sendto 3 10 1 0 @s:3
        c getsockname 3
        s receive 3 10
        pings
        c getsockname 3
        c connect 3 @s:3
        c getsockname 3
        c disconnect 3
        c getsockname 3
        pings
        s sendto 3 10 1 0 @c:3
        c receive 3 10
    ";
    nobody_at_the_other_end, "ECONNREFUSED", Either: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:s:3
        s close 3
        c send 3 10 1
        c send 3 10 1
        c send 3 10 1
        c recv 3 10 dontwait
        c recv 3 10 dontwait
        c send 3 10 1
        c poll 0 3:in|out
        c getsockopt 3 error
        c poll 0 3:in|out
        c send 3 10 1
        c recv 3 10
        c socket inet dgram|cloexec
        c sendto 4 10 1 0 127.0.0.1:%peer:c:3
        c sendto 4 10 1 0 127.0.0.1:%peer:c:3
        c recv 4 10 dontwait
        c getsockopt 4 error
    ";
    who_went_away_refuses, "ECONNREFUSED", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c send 3 10 1
        s recv 3 10
        s close 3
        c send 3 10 1
        c send 3 10 1
        c recv 3 10 dontwait
        c send 3 10 1
        c getsockopt 3 error
        c send 3 10 1
        c wait_ev 3 err
        c recv 3 10
        c send 3 10 1
        c recv 3 10
        c disconnect 3
        c recv 3 10 dontwait
    ";
    who_comes_after_takes_the_port, "close and bind anew", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c send 3 10 1
        s close 3
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:%peer:c:3
        s recv 3 10 dontwait
        c send 3 11 1
        s receive 3 100
        pings -
        c send 3 12 1
        s receive 3 100
        s close 3
        c send 3 13 1
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:%peer:c:3
        c send 3 14 1
        c send 3 15 1
        s receive 3 100
        s receive 3 100 dontwait
        pings -
    ";
    another_process_takes_the_port, "close and bind anew", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s close 3
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:%peer:c:3
        c send 3 10 1
        c receive 4 100
        c sendto 4 11 1 0 127.0.0.1:%port:c:3
        c receive 3 100
        s socket inet dgram|cloexec
        s connect 3 127.0.0.1:%port:c:4
        s send 3 12 1
        c receive 4 100
    ";
    a_socket_sends_to_itself, "many senders", Either: "
        c socket inet dgram|cloexec
        c bind 3 127.0.0.1:0
        c sendto 3 10 1 0 127.0.0.1:%port:c:3
        c receive 3 100
        c connect 3 127.0.0.1:%port:c:3
        c send 3 11 1
        c send 3 12 1
        c receive 3 100
        c receive 3 100
        c receive 3 100 dontwait
        c socket inet dgram|cloexec
        c sendto 4 13 1 0 127.0.0.1:%port:c:3
        c receive 3 100 dontwait
    ";
    two_sockets_of_one_process, "many senders", Either: "
        c socket inet dgram|cloexec
        c bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:0
        c go echoes echo_from 3 100
        c ping_to 4 100 64 127.0.0.1:%port:c:3
        c join echoes
        c sendto 4 13 1 0 127.0.0.1:%port:c:3
        c receive 3 100
        c sendto 3 14 1 0 127.0.0.1:%port:c:4
        c receive 4 100
    ";
    names_of_any_length, "names and their errors", Ring: "
        dgrams 127.0.0.1
        pings
        s recv 3 10 dontwait
        c named 3 to 16 @s:3
        c named 3 to 128 @s:3
        c named 3 to 129 @s:3
        c named 3 to -1 @s:3
        c named 3 to 15 @s:3
        c named 3 to 0 @s:3
        c named 3 msg 16 @s:3
        c named 3 msg 129 @s:3
        c named 3 msg 5000 @s:3
        c named 3 msg -5 @s:3
        c named 3 msg 15 @s:3
        c named 3 msg 0 @s:3
        c named 3 mmsg 16 @s:3
        c named 3 mmsg 129 @s:3
        c named 3 mmsg -5 @s:3
        c named 3 mmsg 15 @s:3
        s count 3
        pings
    ";
    reading_or_writing_is_shut, "shutdown", Either: "
        dgrams 127.0.0.1
        pings
        s shutdown 3 rd
        c connect 3 @s:3
        c send 3 10 1
        c shutdown 3 wr
        c send 3 11 1 nosignal
        c sendto 3 11 1 nosignal @s:3
        s receive 3 100 dontwait
        s sendto 3 12 1 0 @c:3
        c recv 3 100 dontwait
        c shutdown 3 rd
        c recv 3 100
        c poll 0 3:in|out|rdhup
        s sendto 3 13 1 0 @c:3
        c recv 3 100
        c recv 3 100
        c shutdown 3 rdwr
        c close 3
    ";
    a_reader_is_woken_by_a_shutdown, "shutdown", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c go waits recv 3 100
        c blocked waits
        c shutdown 3 rd
        c join waits
    ";
}
