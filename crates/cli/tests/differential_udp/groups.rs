//! Groups and broadcasts, which the kernel brings, beside datagrams to the receiver's own address, which a ring does: one sender's come in its order.
//! Each script has a group of its own: a socket that is bound to every address hears those that any other of the host has joined.

use crate::hand::scripts;

scripts! {
    a_group_and_the_own_address_of_a_member, "broadcast and multicast", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s member 3 239.255.77.1 in
        c socket inet dgram|cloexec
        c group_by_loopback 3
        pings 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        c sendto 3 11 1 0 239.255.77.1:%port:s:3
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        c sendto 3 13 1 0 239.255.77.1:%port:s:3
        c sendto 3 14 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        s member 3 239.255.77.1 out
        c sendto 3 15 1 0 239.255.77.1:%port:s:3
        c sendto 3 16 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s recv 3 10 dontwait
    ";
    a_group_between_datagrams_of_one_sender, "broadcast and multicast", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        c socket inet dgram|cloexec
        c group_by_loopback 3
        pings 127.0.0.1:%port:s:3
        s member 3 239.255.77.6 in
        s go all collect 3 1 3000 10 mixed
        c number 3 127.0.0.1:%port:s:3 1 3000 14,64,1000 10 also=239.255.77.6:%port:s:3
        s join all 15000
        s go all collect 3 1 3000 10 spin
        c number 3 127.0.0.1:%port:s:3 1 3000 14 10 also=239.255.77.6:%port:s:3
        s join all 15000
        s go all collect 3 1 0 0 mixed
        c number 3 127.0.0.1:%port:s:3 1 20000 14,64 0 also=239.255.77.6:%port:s:3
        s join all 15000
    ";
    a_group_that_another_socket_has_joined, "broadcast and multicast", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s socket inet dgram|cloexec
        s member 4 239.255.77.2 in
        c socket inet dgram|cloexec
        c group_by_loopback 3
        pings 127.0.0.1:%port:s:3
        s go all collect 3 1 3000 10 mixed
        c number 3 127.0.0.1:%port:s:3 1 3000 14,64,1000 10 also=239.255.77.2:%port:s:3
        s join all 15000
        s recv 3 10 dontwait
    ";
    several_members_of_a_group_at_one_port, "broadcast and multicast", Either: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseaddr 1
        s bind 3 0.0.0.0:0
        s member 3 239.255.77.3 in
        s socket inet dgram|cloexec
        s setsockopt 4 reuseaddr 1
        s bind 4 0.0.0.0:%port:s:3
        s member 4 239.255.77.3 in
        c socket inet dgram|cloexec
        c group_by_loopback 3
        s go echoes echo_from 4 100
        c ping_to 3 100 64 127.0.0.1:%port:s:4
        s join echoes
        s recv 4 10 dontwait
        c sendto 3 10 1 0 127.0.0.1:%port:s:4
        c sendto 3 11 1 0 239.255.77.3:%port:s:4
        c sendto 3 12 1 0 127.0.0.1:%port:s:4
        s receive 4 100
        s receive 4 100
        s receive 4 100
        s receive 3 100
        s recv 3 10 dontwait
        s recv 4 10 dontwait
    ";
    a_sender_that_gets_its_own_group, "broadcast and multicast", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s member 3 239.255.77.4 in
        c socket inet dgram|cloexec
        c bind 3 127.0.0.1:0
        s group_by_loopback 3
        pings 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        s sendto 3 10 1 0 239.255.77.4:%port:s:3
        s receive 3 100
        c sendto 3 11 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s recv 3 10 dontwait
        pings 127.0.0.1:%port:s:3
    ";
    a_broadcast_and_the_own_address, "broadcast and multicast", Ring: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        c socket inet dgram|cloexec
        c setsockopt 3 broadcast 1
        pings 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        c sendto 3 11 1 0 127.255.255.255:%port:s:3
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        s go all collect 3 1 3000 10 mixed
        c number 3 127.0.0.1:%port:s:3 1 3000 14,64,1000 10 also=127.255.255.255:%port:s:3
        s join all 15000
        s go all collect 3 1 0 0 mixed
        c number 3 127.0.0.1:%port:s:3 1 20000 14,64 0 also=127.255.255.255:%port:s:3
        s join all 15000
    ";
    a_broadcast_comes_to_all_at_the_port, "broadcast and multicast", Either: "
        s socket inet dgram|cloexec
        s setsockopt 3 reuseaddr 1
        s bind 3 0.0.0.0:0
        s socket inet dgram|cloexec
        s setsockopt 4 reuseaddr 1
        s bind 4 0.0.0.0:%port:s:3
        c socket inet dgram|cloexec
        c bind 3 127.0.0.1:0
        c setsockopt 3 broadcast 1
        s go echoes echo_from 4 100
        c ping_to 3 100 64 127.255.255.255:%port:s:4
        s join echoes
        s count 3
        s recv 4 10 dontwait
        c sendto 3 10 1 0 127.255.255.255:%port:s:4
        c sendto 3 11 1 0 127.255.255.255:%port:s:4
        s receive 4 100
        s receive 4 100
        s receive 3 100
        s receive 3 100
        c connect 3 127.255.255.255:%port:s:4
        c send 3 12 1
        s receive 4 100
        s receive 3 100
        c setsockopt 3 broadcast 0
        c sendto 3 13 1 0 127.255.255.255:%port:s:4
        s count 3 4
    ";
    a_receiver_that_is_connected_hears_a_group_of_its_partner, "broadcast and multicast", Either: "
        s socket inet dgram|cloexec
        s bind 3 0.0.0.0:0
        s member 3 239.255.77.5 in
        c socket inet dgram|cloexec
        c bind 3 127.0.0.1:0
        c group_by_loopback 3
        pings 127.0.0.1:%port:s:3
        s connect 3 127.0.0.1:%port:c:3
        pings 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        c sendto 3 11 1 0 239.255.77.5:%port:s:3
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s recv 3 100 dontwait
        s recv 3 100 dontwait
        s recv 3 100 dontwait
        s recv 3 100 dontwait
    ";
}
