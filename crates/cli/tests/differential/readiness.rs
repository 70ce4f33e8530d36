//! poll, select and epoll.

use crate::hand::scripts;

scripts! {
    poll_reports_what_is_so, "poll", Ring: "
        pair
        s poll 0 4:in|out
        warm
        s poll 0 4:in|out|pri|rdhup
        s poll 0 4:in
        s poll 0 4:0
        c send 3 10 1
        s poll 1000 4:in
        s poll 0 4:in|rdnorm|out|wrnorm
        s ppoll 0 4:in
        s poll 0 4:in 4:out 3:in -1:in 99:in
        s recv 4 4
        s poll 0 4:in
        s recv 4 100
        s poll 0 4:in
        s timed 40 1000 poll 50 4:in
        s timed 40 1000 ppoll 50 4:in
        s go p poll -1 4:in
        s blocked p
        c send 3 10 1
        s join p
        s recv 4 100
        s go p ppoll -1 3:in 4:in|rdhup
        s blocked p
        c shutdown 3 wr
        s join p
    ";
    poll_waits_for_several_connections, "poll", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s go p poll 5000 3:in 4:in 5:in
        s blocked p
        c send 4 10 1
        s join p
        s poll 0 3:in 4:in|out 5:in|out
        c send 3 10 1
        s wait_in 4 10
        s poll 0 3:in 4:in|out 5:in|out
        s recv 4 100
        s recv 5 100
        s poll 0 3:in 4:in 5:in
    ";
    poll_mixes_with_ordinary_descriptors, "mixed with ordinary descriptors", Ring: "
        pair
        warm
        s pipe
        s socketpair
        s go p poll 5000 4:in 5:in 7:in
        s blocked p
        s write 6 3 1
        s join p
        s read 5 10
        s go p poll 5000 4:in 5:in 7:in
        s blocked p
        c send 3 10 1
        s join p
        s recv 4 100
        s go p select 5000 r:4 r:5 r:7
        s blocked p
        s write 8 3 1
        s join p
        s read 7 10
        s epoll_create1 0
        s epoll_ctl 9 add 4 in
        s epoll_ctl 9 add 5 in
        s epoll_ctl 9 add 7 in
        s go p epoll_wait 9 8 5000
        s blocked p
        s write 6 3 1
        s join p
        s go p epoll_wait 9 8 5000
        s join p
        s read 5 10
        s go p epoll_wait 9 8 5000
        s blocked p
        c send 3 10 1
        s join p
        s recv 4 100
        s epoll_wait 9 8 0
    ";
    a_descriptor_that_is_closed_under_a_select_is_ready, "select", Ring: "
        pair
        warm
        s pipe
        s go p select 5000 r:4 r:5
        s blocked p
        s close 4
        s write 6 3 1
        s join p
        s select 0 r:4 r:5
    ";
    every_name_of_an_event_is_known_to_epoll, "epoll level", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 wrnorm
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 rdnorm|wrnorm
        s epoll_wait 5 4 0
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 et|rdnorm|wrnorm
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s recv 4 100
        s epoll_ctl 5 mod 4 oneshot|wrnorm
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 rdnorm|wrnorm
        s poll 2000 5:in
        s epoll_wait 5 4 0
    ";
    select_reports_what_is_so, "select", Ring: "
        pair
        warm
        s select 0 r:4 w:4 e:4
        s select 0 r:4
        c send 3 10 1
        s select 2000 r:4
        s select 0 r:3 r:4 w:4
        s pselect 0 r:4
        s recv 4 100
        s timed 40 1000 select 50 r:4
        s timed 40 1000 pselect 50 r:4
        s go p select -1 r:4 r:3
        s blocked p
        c send 3 10 1
        s join p
        s recv 4 100
        s go p pselect -1 r:4 e:4
        s blocked p
        c shutdown 3 wr
        s join p
        s select 0 r:4 w:4 e:4
        s select 0
        s timed 20 1000 select 30
        s select 0 r:77
    ";
    writability_comes_back_when_the_peer_reads, "poll", Ring: "
        pair
        warm
        c fillup 3 1
        c poll 0 3:out
        c select 0 w:3
        c epoll_create1 0
        c epoll_ctl 4 add 3 out
        c epoll_wait 4 4 0
        c go p poll 5000 3:out
        c go e epoll_wait 4 4 5000
        c go l select 5000 w:3
        c blocked p
        c blocked e
        c blocked l
        s go r drain_any 4
        c join p
        c join e
        c shutdown 3 wr
        s join r
        c join_any l
    ";
    duplicated_descriptors_share_the_connection, "dup'ed descriptors", Ring: "
        pair
        warm
        s dup 4
        s fcntl 4 dupfd 20
        s dup2 4 30
        s dup3 4 31 cloexec
        s dup3 4 4 0
        s dup2 4 4
        s fcntl 31 getfd
        s fcntl 4 dupfd_cloexec 5
        s dup2 4 1000000
        s dup 99
        c send 3 10 1
        s wait_in 5 10
        s poll 0 4:in 5:in 20:in 30:in 31:in
        s recv 20 4
        s recv 30 100
        s recv 31 10 dontwait
        s fcntl 5 setfl nonblock
        s recv 4 10
        s fcntl 4 setfl 0
        s epoll_create1 0
        s epoll_ctl 7 add 4 in 1
        s epoll_ctl 7 add 5 in 2
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 7 4 0
        s close 4
        s epoll_wait 7 4 0
        s recv 5 100
        s epoll_ctl 7 del 5
        s send 30 10 1
        c wait_in 3 10
        c recv 3 100
        s close 5
        s close 20
        s close 30
        s close 31
        s close 6
        c wait_ev 3 rdhup
        c recv 3 10
    ";
    dup2_over_a_connection_closes_it, "dup'ed descriptors", Ring: "
        pair
        warm
        s pipe
        s dup2 5 4
        c wait_ev 3 rdhup
        c recv 3 10
        s write 6 5 1
        s read 4 10
        s fionread 4
    ";
    dup2_of_a_connection_over_another, "dup'ed descriptors", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s dup2 4 5
        c recv 4 10
        c send 3 10 1
        s wait_in 5 10
        s recv 5 5
        s recv 4 5
        s close 4
        s send 5 10 1
        c wait_in 3 10
        c recv 3 100
    ";
}
