//! Copies of a socket, heirs, programs that end, in order or not.

use crate::hand::scripts;

scripts! {
    copies_of_a_descriptor, "dup'ed descriptors", Ring: "
        dgrams 127.0.0.1
        s dup 3
        pings
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        s receive 4 100
        s close 3
        c sendto 3 12 1 0 127.0.0.1:%port:s:4
        s receive 4 100
        s dup2 4 3
        s close 4
        pings 127.0.0.1:%port:s:3
        c dup2 3 9
        c close 3
        c sendto 9 13 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        s sendto 3 14 1 0 127.0.0.1:%port:c:9
        c receive 9 100
        s socketpair
        s dup2 4 3
        c sendto 9 15 1 0 127.0.0.1:9
        s send 5 10 1
        s recv 3 10
    ";
    a_number_is_used_again, "close and bind anew", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 10 1 0 @s:3
        s close 3
        s socketpair
        s send 4 12 1
        s recv 3 100
        s recv 3 100 dontwait
        c close 3
        c socket inet dgram|cloexec
        s socket inet dgram|cloexec
        s bind 5 127.0.0.1:0
        c sendto 3 13 1 0 127.0.0.1:%port:s:5
        s receive 5 100
    ";
    a_child_receives, "fork", Ring: "
        dgrams 127.0.0.1
        pings
        s fork heir
        c sendto 3 10 1 0 @s:3
        heir receive 3 100
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        c sendto 3 12 1 0 @s:3
        heir poll 0 3:in
        s poll 0 3:in
        s receive 3 100
        heir receive 3 100 dontwait
        s close 3
        c sendto 3 13 1 0 127.0.0.1:%port:heir:3
        heir receive 3 100
        heir go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:3
        heir join echoes
        heir exit 0
        s wait heir
    ";
    a_child_inherits_what_is_queued, "fork", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        s fork heir
        c sendto 3 12 1 0 @s:3
        s receive 3 100
        s receive 3 100
        heir receive 3 100
        heir receive 3 100 dontwait
        s receive 3 100 dontwait
        heir exit 0
        s wait heir
        pings
        c sendto 3 13 1 0 @s:3
        s receive 3 100
    ";
    a_child_sends, "fork", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c fork heir
        heir send 3 10 1
        c send 3 11 2
        heir send 3 12 3
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s sendto 3 13 4 0 @c:3
        heir receive 3 100
        c close 3
        heir send 3 14 5
        s receive 3 100
        heir exit 0
        c wait heir
    ";
    a_parent_that_goes_on, "fork", Ring: "
        dgrams 127.0.0.1
        pings
        s fork heir
        heir close 3
        heir exit 0
        s wait heir
        s go all collect 3 1 1000 10 mixed
        c number 3 @s:3 1 1000 14,1400 10
        s join all
    ";
    a_child_has_ended, "fork", Ring: "
        dgrams 127.0.0.1
        s fork heir
        heir exit 0
        s wait heir
        pings
        c sendto 3 10 1 0 @s:3
        s receive 3 100
    ";
    a_child_has_closed_it, "fork", Ring: "
        dgrams 127.0.0.1
        s fork heir
        c fork other
        heir close 3
        other close 3
        pings
        c sendto 3 10 1 0 @s:3
        s receive 3 100
        heir fork more
        more exit 0
        heir wait more
        heir exit 0
        s wait heir
        other exit 0
        c wait other
        pings
    ";
    a_child_has_it_alone, "fork", Ring: "
        dgrams 127.0.0.1
        s fork heir
        c sendto 3 10 1 0 @s:3
        s close 3
        heir receive 3 100
        heir go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:3
        heir join echoes
        heir receive 3 100 dontwait
        c sendto 3 11 1 0 127.0.0.1:%port:heir:3
        heir recv 3 100
        heir fork child
        child close 3
        heir go more echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:3
        heir join more
        child exit 0
        heir wait child
        heir exit 0
        s wait heir
    ";
    a_childs_child_has_it, "fork", Either: "
        dgrams 127.0.0.1
        s fork heir
        heir fork child
        heir exit 0
        s wait heir
        s go echoes echo_from 3 50
        c ping_to 3 50 64 @s:3
        s join echoes
        c sendto 3 10 1 0 @s:3
        child receive 3 100
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        child go more echo_from 3 50
        c ping_to 3 50 64 @s:3
        child join more
        child exit 0
        pings
        c sendto 3 12 1 0 @s:3
        s receive 3 100
    ";
    a_child_becomes_a_program_without_it, "fork", Ring: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        s fork heir
        s go echoes echo_from 3 50
        c ping_to 3 50 64 127.0.0.1:%port:s:3
        s join echoes
        heir exec plain
        heir recv 3 10
        s go more echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join more
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        heir exit 0
        s wait heir
    ";
    a_child_becomes_a_program_with_it, "fork", Either: "
        dgrams inherited 127.0.0.1
        s fork heir
        heir exec same
        pings
        c sendto 3 10 1 0 @s:3
        heir receive 3 100
        heir fork child
        heir exit 0
        s wait heir
        pings
        c sendto 3 11 1 0 @s:3
        child receive 3 100
        child exit 0
        pings
    ";
    a_child_begins_anew, "fork", Ring: "
        dgrams 127.0.0.1
        pings
        s fork heir
        heir socket inet dgram|cloexec
        heir bind 4 127.0.0.1:0
        heir go echoes echo_from 4 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:4
        heir join echoes
        heir close 3
        pings
        heir go more echo_from 4 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:4
        heir join more
        heir exit 0
        s wait heir
    ";
    a_fork_while_another_thread_sleeps, "fork", Ring: "
        dgrams 127.0.0.1
        s go waits recv 3 10
        s blocked waits
        s fork heir
        c sendto 3 10 1 0 @s:3
        s join waits
        s close 3
        heir go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:3
        heir join echoes
        heir exit 0
        s wait heir
    ";
    programs_come_and_go, "fork", Ring: "
        s socket inet dgram|cloexec
        s bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        s system
        c popen
        s go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join echoes
        s spawn other plain
        s system
        c sendto 3 10 1 0 127.0.0.1:%port:s:3
        s receive 3 100
        other exit 0
        s wait other
        s go more echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:s:3
        s join more
    ";
    a_program_is_executed, "exec", Either: "
        dgrams inherited 127.0.0.1
        pings
        c sendto 3 10 1 0 @s:3
        s receive 3 100
        s exec same
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        pings
        c sendto 3 12 1 0 @s:3
        s receive 3 100
        c exec same
        c sendto 3 13 1 0 @s:3
        s receive 3 100
        pings
    ";
    a_plain_program_is_executed, "exec", Either: "
        dgrams inherited 127.0.0.1
        pings
        s exec plain
        c sendto 3 10 1 0 @s:3
        s receive 3 100
        pings
        c exec plain
        c sendto 3 11 1 0 @s:3
        s receive 3 100
        s receive 3 100 dontwait
    ";
    a_plain_child_writes, "exec", Either: "
        dgrams inherited 127.0.0.1
        c connect 3 @s:3
        pings -
        c vfork_exec 3 10 1
        s receive 3 100
        c send 3 11 2
        s receive 3 100
        pings -
        s spawn other plain
        c send 3 12 2
        other receive 3 100
        other exit 0
        s wait other
        s receive 3 100 dontwait
        c send 3 13 2
        s receive 3 100
    ";
    a_socket_is_sent_to_another, "SCM_RIGHTS", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s socketpair
        s fork heir
        heir close 3
        s scm_send 4 3
        s close 3
        c send 3 10 1
        heir scm_recv 5
        c send 3 11 2
        heir receive 3 100
        heir receive 3 100
        heir receive 3 100 dontwait
        heir go echoes echo_from 3 100
        c ping_to 3 100 64 -
        heir join echoes
        heir exit 0
        s wait heir
    ";
    a_receiver_is_killed, "kill -9", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c send 3 10 1
        s kill9
        c until_refused 3
        c send 3 10 1
        c recv 3 10
        c close 3
    ";
    a_receiver_is_killed_under_load, "kill -9", Ring: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        c connect 3 @s:3
        pings -
        s go all gulp 3 20000
        c go flood flood 4 @s:3 50000 64
        c flood 3 - 1000 64
        s kill9
        c flood 3 - 1000 64
        c join flood 15000
        c until_refused 3
    ";
    a_sender_that_sleeps_hears_that_nobody_is_there, "ECONNREFUSED", Ring: "
        c fork heir
        heir socket inet dgram|cloexec
        heir bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:heir:3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c strike heir 3 epoll
        c recv 3 10 dontwait
        c wait heir
    ";
    a_sender_that_polls_hears_that_nobody_is_there, "ECONNREFUSED", Ring: "
        c fork heir
        heir socket inet dgram|cloexec
        heir bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        c connect 3 127.0.0.1:%port:heir:3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c flood 3 - 30 64
        heir count 3
        c strike heir 3 poll
        c recv 3 10 dontwait
        c wait heir
    ";
    who_has_lost_his_partner_hears_of_it_wherever_he_sends, "ECONNREFUSED", Ring: "
        dgrams 127.0.0.1
        s socket inet dgram|cloexec
        s bind 4 127.0.0.1:0
        c connect 3 127.0.0.1:%port:s:4
        s close 4
        c flood 3 @s:3 30 64
        s count 3
        c flood 3 @s:3 30 64
        s count 3
        c flood 3 @s:3 30 64
        s count 3
        c flood 3 @s:3 30 64
        s count 3
        c flood 3 @s:3 30 64
        s count 3
        c send 3 10 1
        c poll 5000 3:in
        c sendto 3 11 2 0 @s:3
        c sendto 3 12 3 0 @s:3
        s receive 3 100
        s receive 3 100 dontwait
        c sendto 3 13 4 0 @s:3
        c vfork_write 3 10 1
        c poll 5000 3:in
        c send_msg 3 14 5 0 @s:3
        s receive 3 100
        s receive 3 100 dontwait
        c send 3 10 1
        c poll 5000 3:in
        c getsockopt 3 error
        c sendto 3 15 6 0 @s:3
        s receive 3 100
    ";
    what_was_sent_before_the_end_is_lost, "ECONNREFUSED", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        s close 3
        c poll 50 3:in
        c recv 3 10 dontwait
        c epoll_create1 0
        c epoll_ctl 4 add 3 in
        c epoll_wait 4 8 50
        c send 3 10 1
        c epoll_wait 4 8 5000
        c recv 3 10 dontwait
        c send 3 10 1
        c poll 5000 3:in
        c send 3 10 1
    ";
    a_receiver_is_killed_asleep, "kill -9", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s go waits recv 3 10
        s blocked waits
        s kill9
        c send 3 10 1
        c recv 3 10
    ";
    a_sender_is_killed, "kill -9", Ring: "
        dgrams 127.0.0.1
        s socket inet dgram|cloexec
        pings
        c sendto 3 10 1 0 @s:3
        c kill9
        s receive 3 100
        s recv 3 100 dontwait
        s go all collect 3 1 1000 10 mixed
        s number 4 @s:3 1 1000 14 10
        s join all
    ";
    a_sender_is_killed_under_load, "kill -9", Ring: "
        dgrams 127.0.0.1
        s socket inet dgram|cloexec
        pings
        s go all gulp 3 300
        c fork heir
        c go one flood 3 @s:3 10000000 64
        heir go one flood 3 @s:3 10000000 1400
        heir kill9
        c kill9
        s join all
        s count 3
        s go all collect 3 1 1000 10 mixed
        s number 4 @s:3 1 1000 14 10
        s join all
    ";
    programs_end_in_order, "close and bind anew", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        c send 3 10 1
        s exit 0
        c send 3 10 1
        c until_refused 3
    ";
}
