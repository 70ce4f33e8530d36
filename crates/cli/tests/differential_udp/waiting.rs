//! Readiness, and who sleeps: poll, select, epoll in its modes, threads asleep in the kernel.

use crate::hand::scripts;

scripts! {
    poll_tells_what_is_there, "poll", Ring: "
        dgrams 127.0.0.1
        s poll 0 3:in|out
        c sendto 3 10 1 0 @s:3
        s poll 0 3:in|out
        s recv 3 10
        pings
        s poll 0 3:in|out
        c sendto 3 10 1 0 @s:3
        s poll 0 3:in|out
        s poll 0 3:in|rdnorm|out|wrnorm|pri|rdhup
        s ppoll 1000 3:in
        s recv 3 10 peek
        s poll 0 3:in
        s recv 3 10
        s poll 0 3:in
        s timed 20 300 poll 30 3:in
        s go waits poll 5000 3:in
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10 dontwait
        s go waits ppoll -1 3:in
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10 dontwait
        s pipe
        c sendto 3 10 1 0 @s:3
        s poll 100 4:in 3:in 5:out
        s recv 3 10
        s poll 0 4:in 3:in 5:out
    ";
    select_tells_what_is_there, "select", Ring: "
        dgrams 127.0.0.1
        pings
        s select 0 r:3 w:3
        c sendto 3 10 1 0 @s:3
        s select 1000 r:3
        s pselect 0 r:3 w:3 e:3
        s recv 3 10
        s select 0 r:3
        s go waits select 5000 r:3
        s blocked waits
        c sendto 3 0 1 0 @s:3
        s join waits
        s recv 3 10
        s go waits pselect -1 r:3
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
    ";
    epoll_tells_what_is_there, "epoll level", Ring: "
        dgrams 127.0.0.1
        s epoll_create1 0
        s epoll_ctl 4 add 3 in
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 0
        s epoll_wait 4 8 0
        s recv 3 10
        pings
        s epoll_wait 4 8 0
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 1000
        s epoll_wait 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        s epoll_ctl 4 mod 3 in|out
        s epoll_pwait 4 8 0
        c sendto 3 10 1 0 @s:3
        c sendto 3 10 2 0 @s:3
        s epoll_pwait2 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        s epoll_ctl 4 mod 3 in
        s go waits epoll_wait 4 8 5000
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
        s epoll_ctl 4 del 3
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 0
        s epoll_ctl 4 add 3 in 77
        s epoll_wait 4 8 0
        s recv 3 10
        s timed 20 300 epoll_wait 4 8 30
    ";
    registered_afterwards, "epoll level", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 10 1 0 @s:3
        s epoll_create1 0
        s epoll_ctl 4 add 3 in
        s epoll_wait 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        s epoll_wait 5 8 0
        c sendto 3 10 1 0 @s:3
        s epoll_wait 5 8 0
        s poll 0 4:in 5:in
        s recv 3 10
        s go waits epoll_wait 5 8 5000
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
    ";
    edges_are_told_once, "epoll edge", Ring: "
        dgrams 127.0.0.1
        s epoll_create1 0
        s epoll_ctl 4 add 3 in|et
        pings
        s epoll_edges 4 8 0
        s epoll_wait 4 8 0
        c sendto 3 10 1 0 @s:3
        s epoll_edges 4 8 1000
        s epoll_wait 4 8 0
        c sendto 3 10 2 0 @s:3
        s epoll_edges 4 8 1000
        s epoll_wait 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        c sendto 3 10 3 0 @s:3
        s epoll_edges 4 8 1000
        s recv 3 10
        s recv 3 10
        s recv 3 10 dontwait
        s go waits epoll_wait 4 8 5000
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
        s recv 3 10 dontwait
        c sendto 3 10 4 0 @s:3
        s epoll_ctl 4 mod 3 in|et
        s epoll_edges 4 8 1000
        s recv 3 10
    ";
    an_edge_loop_loses_nothing, "epoll edge", Ring: "
        dgrams 127.0.0.1
        pings
        s epoll_create1 0
        s epoll_ctl 4 add 3 in|et 3
        s go loop epoll_loop 4 5000 3
        c flood 3 @s:3 100 10
        s blocked loop
        c flood 3 @s:3 100 10
        c flood 3 @s:3 100 10
        s blocked loop
        c flood 3 @s:3 200 10
        s join loop 10000
    ";
    sets_of_which_one_is_woken, "epoll level", Ring: "
        dgrams 127.0.0.1
        s epoll_create1 0
        s epoll_ctl 4 add 3 in|exclusive
        pings
        s epoll_wait 4 8 0
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 1000
        s epoll_wait 4 8 0
        s recv 3 10
        s epoll_wait 4 8 0
        s epoll_ctl 4 mod 3 in
        s go waits epoll_wait 4 8 5000
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
        s epoll_create1 0
        s epoll_ctl 5 add 3 in|exclusive|et
        c sendto 3 10 1 0 @s:3
        s epoll_wait 5 8 1000
        s recv 3 10
        s recv 3 10 dontwait
    ";
    one_shot_is_one_shot, "epoll one-shot", Ring: "
        dgrams 127.0.0.1
        s epoll_create1 0
        s epoll_ctl 4 add 3 in|oneshot
        pings
        s epoll_ctl 4 mod 3 in|oneshot
        s epoll_wait 4 8 0
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 1000
        c sendto 3 10 2 0 @s:3
        s epoll_wait 4 8 0
        s epoll_ctl 4 mod 3 in|oneshot
        s epoll_wait 4 8 0
        s recv 3 10
        s recv 3 10
        s epoll_ctl 4 mod 3 in|oneshot
        s epoll_wait 4 8 0
        s go waits epoll_wait 4 8 5000
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
        s epoll_ctl 4 del 3
        s epoll_ctl 4 add 3 in|exclusive
        c sendto 3 10 1 0 @s:3
        s epoll_wait 4 8 0
        s recv 3 10
    ";
    a_sleeper_is_woken, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        pings
        s go waits receive 3 100
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        pings
        s go waits receive_msg 3 100 0 50
        s blocked waits
        c sendto 3 0 1 0 @s:3
        s join waits
        s go waits read 3 100
        s blocked waits
        c sendto 3 65507 1 0 @s:3
        s join waits
        s go waits receive 3 100 peek
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s receive 3 100
        s recv 3 100 dontwait
    ";
    a_sleeper_of_before, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        s go waits receive 3 100
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s go waits poll 5000 3:in
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 10
        pings
        s recv 3 100 dontwait
    ";
    one_sleeps_and_one_looks, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        pings
        s go waits receive 3 100
        s blocked waits
        s poll 0 3:in
        s recv 3 100 dontwait
        c sendto 3 10 1 0 @s:3
        s join waits
        s recv 3 100 dontwait
        s epoll_create1 0
        s epoll_ctl 4 add 3 in
        s go waits epoll_wait 4 8 5000
        s blocked waits
        s recv 3 100 dontwait
        s recv 3 100 dontwait
        c sendto 3 10 1 0 @s:3
        s join waits
        s receive 3 100 dontwait
    ";
    two_sleepers_and_two_datagrams, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        pings
        s go one recv 3 100
        s go two recv 3 100
        s blocked one
        s blocked two
        c sendto 3 10 1 0 @s:3
        c sendto 3 10 1 0 @s:3
        s join one
        s join two
        s recv 3 100 dontwait
    ";
    a_sleeper_is_interrupted, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        pings
        s sigaction usr1 count
        s go waits recv 3 100
        s blocked waits
        s tkill waits 10
        s join waits
        s recv 3 100 dontwait
        c sendto 3 10 1 0 @s:3
        s recv 3 100 dontwait
    ";
    a_sleeper_waits_beside_others, "asleep in the kernel", Ring: "
        dgrams 127.0.0.1
        s socket inet dgram|cloexec
        s bind 4 127.0.0.1:0
        c socket inet dgram|cloexec
        pings
        s go echoes echo_from 4 50
        c ping_to 4 50 64 127.0.0.1:%port:s:4
        s join echoes
        s go waits poll 5000 3:in 4:in
        s blocked waits
        c sendto 4 10 1 0 127.0.0.1:%port:s:4
        s join waits
        c sendto 3 10 1 0 @s:3
        s poll 0 3:in 4:in
        s recv 4 10
        s poll 0 3:in 4:in
        s recv 3 10
        s go waits recv 3 10
        s blocked waits
        c sendto 4 10 1 0 127.0.0.1:%port:s:4
        s recv 4 10 dontwait
        c sendto 3 10 1 0 @s:3
        s join waits
    ";
}
