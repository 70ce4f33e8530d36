//! Others get a socket whose mailbox has something in it: that is recalled, whatever its senders do meanwhile.
//!
//! `recv ... dontwait` that finds nothing leaves a mailbox open: what is sent next lies there.

use crate::hand::scripts;

scripts! {
    its_sender_is_stopped, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        c sendto 3 0 1 0 @s:3
        stop c
        s exec same
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        cont c
        pings
        s sendto 3 20 2 0 @c:3
        c receive 3 100
    ";
    its_sender_is_dead, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 65000 1 0 @s:3
        c kill9
        s exec plain
        s receive 3 100
        s receive 3 65507
        s recv 3 10 dontwait
    ";
    its_sender_has_ended, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c close 3
        s exec plain
        s receive 3 100
        s recv 3 10 dontwait
    ";
    its_sender_is_connected, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        c send 3 11 1
        stop c
        s exec plain
        s receive 3 100
        s receive 3 100
        cont c
        pings -
    ";
    both_are_of_ipv6, "a recall", Ring: "
        dgrams inherited [::1]
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        stop c
        s exec plain
        s receive 3 100
        cont c
        c close 3
        c socket inet6 dgram|cloexec
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 11 1
        s spawn other plain
        other receive 3 100
        other exit 0
        s wait other
    ";
    it_has_every_address, "a recall", Ring: "
        s socket inet6 dgram
        s bind 3 [::]:0
        c socket inet6 dgram|cloexec
        c socket inet dgram|cloexec
        pings [::ffff:127.0.0.1]:%port:s:3
        s go echoes echo_from 3 100
        c ping_to 4 100 64 127.0.0.1:%port:s:3
        s join echoes
        s recv 3 10 dontwait
        c sendto 3 10 1 0 [::ffff:127.0.0.1]:%port:s:3
        c sendto 4 11 1 0 127.0.0.1:%port:s:3
        c sendto 3 12 1 0 [::ffff:127.0.0.1]:%port:s:3
        stop c
        s exec plain
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        cont c
    ";
    several_have_sent, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:0
        pings
        s go echoes echo_from 3 100
        c ping_to 4 100 64 @s:3
        s join echoes
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 4 11 1 0 @s:3
        c sendto 3 12 1 0 @s:3
        c sendto 4 13 1 0 @s:3
        s exec plain
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
    ";
    its_copy_is_passed_on_under_load, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        s socketpair
        s fork heir
        heir close 3
        pings
        s go all collect 3 1 4000 10 mixed
        c go numbers number 3 @s:3 1 4000 14,300 10
        s scm_send 4 3
        heir scm_recv 5
        c join numbers 15000
        s join all 15000
        heir exit 0
        s wait heir
    ";
    it_forks_under_load, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s go all collect 3 1 4000 10 mixed
        c go numbers number 3 @s:3 1 4000 14,300 10
        s fork one
        s fork two
        one exit 0
        two exit 0
        c join numbers 15000
        s join all 15000
    ";
    it_goes_on_as_another_under_load, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        c go numbers number 3 @s:3 1 500 14,1400 10
        s poll 5000 3:in
        s exec same
        s go all collect 3 1 500 10 mixed
        c join numbers 15000
        s join all 15000
        pings
    ";
    it_becomes_inheritable, "a recall", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        c send 3 11 1
        s fcntl 3 setfd 0
        s exec plain
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
    ";
    its_queue_is_made_shorter, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c flood 3 @s:3 100 64
        s setsockopt 3 rcvbuf 2048
        s exec plain
        s near 3
    ";
    its_queue_is_made_shorter_before_a_fork, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c flood 3 @s:3 100 64
        s setsockopt 3 rcvbuf 2048
        s fork heir
        heir exec plain
        heir near 3
        s recv 3 10 dontwait
        heir exit 0
        s wait heir
    ";
    it_gets_a_partner, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:0
        pings
        s go echoes echo_from 3 100
        c ping_to 4 100 64 @s:3
        s join echoes
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 4 11 1 0 @s:3
        c sendto 3 12 1 0 @s:3
        s connect 3 @c:3
        c sendto 4 13 1 0 @s:3
        c sendto 3 14 1 0 @s:3
        s exec plain
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
    ";
    it_lets_in_nothing_any_more, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        s let_in 3 0
        c sendto 3 12 1 0 @s:3
        s exec plain
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
    ";
    another_one_comes_to_its_port, "a recall", Ring: "
        s socket inet dgram
        s setsockopt 3 reuseaddr 1
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        pings 127.0.0.1:%port:s:3
        s recv 3 10 dontwait
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        c sendto 3 11 1 0 127.0.0.1:%port:s:3
        s socket inet dgram
        s setsockopt 4 reuseaddr 1
        s bind 4 127.0.0.1:%port:s:3
        c sendto 3 12 1 0 127.0.0.1:%port:s:3
        s exec plain
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        s receive 4 100
    ";
    who_gives_it_away_closes_it_while_the_kernel_has_something, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        s socketpair
        s fork heir
        heir close 3
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        c send 3 10 1
        c raw_write 3 10 1
        s scm_send 4 3
        heir scm_recv 5
        s close 3
        heir receive 3 100
        heir receive 3 100
        heir receive 3 100
        heir recv 3 10 dontwait
        heir exit 0
        s wait heir
    ";
    who_gives_it_away_keeps_it_while_the_kernel_has_something, "a recall", Ring: "
        dgrams inherited 127.0.0.1
        s socketpair
        s fork heir
        heir close 3
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        c send 3 10 1
        c raw_write 3 10 1
        s scm_send 4 3
        heir scm_recv 5
        heir recv 3 100 dontwait
        heir recv 3 100 dontwait
        heir recv 3 100 dontwait
        heir recv 3 10 dontwait
        s recv 3 10 dontwait
        heir exit 0
        s wait heir
    ";
    a_port_is_free_when_its_socket_is_closed, "close and bind anew", Ring: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c socket inet dgram|cloexec
        c fork heir
        heir socket inet dgram|cloexec
        heir bind 5 127.0.0.1:%port:c:3
        heir close 3
        c close 3
        heir exit 0
        c wait heir
        s receive 3 100
    ";
}
