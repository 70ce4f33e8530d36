//! Readiness by epoll: levels, edges, one shot, sets in sets, sets of several threads.

use crate::hand::scripts;

scripts! {
    epoll_level_reports_again, "epoll level", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|out|rdhup 77
        s epoll_wait 5 4 0
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s recv 4 5
        s epoll_wait 5 4 0
        s recv 4 5
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in 78
        s epoll_wait 5 4 0
        s timed 40 1000 epoll_wait 5 4 50
        s timed 40 1000 epoll_pwait 5 4 50
        s timed 40 1000 epoll_pwait2 5 4 50
        s go e epoll_wait 5 4 -1
        s blocked e
        c send 3 10 1
        s join e
        s epoll_pwait 5 4 0
        s epoll_pwait2 5 4 0
        s epoll_ctl 5 del 4
        s epoll_wait 5 4 0
        s epoll_ctl 5 add 4 in 79
        s epoll_wait 5 4 0
        s recv 4 100
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|out|rdhup 80
        s epoll_wait 5 4 0
        s shutdown 4 wr
        s wait_ev 4 hup
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 0 81
        s epoll_wait 5 4 0
    ";
    epoll_edge_reports_what_is_there_after_a_shutdown, "epoll edge", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|rdhup|et
        c send 3 100 1
        s wait_in 4 100
        s epoll_wait 5 4 1000
        s epoll_wait 5 4 0
        s shutdown 4 wr
        s epoll_wait 5 4 1000
        s epoll_wait 5 4 0
        s recv 4 100
    ";
    epoll_edge_reports_news_once, "epoll edge", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|et 7
        s epoll_wait 5 4 0
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        c send 3 10 2
        s wait_in 4 20
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s recv 4 5
        s epoll_wait 5 4 0
        s recv 4 100
        s recv 4 10 dontwait
        s epoll_wait 5 4 0
        c send 3 10 3
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|et 8
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s recv 4 100
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 3
        s join e
        s recv 4 100
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s recv 4 100
    ";
    epoll_edge_for_writing_comes_with_space, "epoll edge", Ring: "
        pair
        warm
        c epoll_create1 0
        c epoll_ctl 4 add 3 in|out|rdhup|et 7
        c epoll_wait 4 4 0
        c epoll_wait 4 4 0
        c fillup 3 1
        c go e epoll_wait 4 4 5000
        c blocked e
        s go r drain_any 4
        c join e
        c wait_sent 3
        c shutdown 3 wr
        s join r
    ";
    epoll_edge_for_room_that_came_before_the_wait, "epoll edge", Ring: "
        pair
        warm
        c epoll_create1 0
        c epoll_ctl 4 add 3 in|out|rdhup|et 7
        c epoll_wait 4 4 0
        c epoll_wait 4 4 0
        c overfill 3 1
        s go r drain_any 4
        c wait_ev 3 out
        c epoll_wait 4 4 5000
        c wait_sent 3
        c shutdown 3 wr
        s join r
    ";
    epoll_edge_asked_for_again_waits_for_room, "epoll edge", Ring: "
        pair
        warm
        c epoll_create1 0
        c epoll_ctl 4 add 3 in|out|et 7
        c epoll_wait 4 4 0
        c overfill 3 1
        c epoll_ctl 4 mod 3 in|out|et 8
        c epoll_wait 4 4 0
        c epoll_ctl 4 mod 3 in|out|et 9
        c epoll_wait 4 4 0
        s go r drain_any 4
        c wait_ev 3 out
        c epoll_wait 4 4 5000
        c wait_sent 3
        c shutdown 3 wr
        s join r
    ";
    epoll_oneshot_reports_once_until_rearmed, "epoll one-shot", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|oneshot 7
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        c send 3 10 1
        s wait_in 4 20
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|oneshot 8
        s epoll_wait 5 4 0
        s recv 4 100
        s epoll_ctl 5 mod 4 in|et|oneshot 9
        s epoll_wait 5 4 0
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 1
        s join e
        c send 3 10 1
        s wait_in 4 20
        s epoll_wait 5 4 0
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|rdhup|oneshot 10
        s epoll_wait 5 4 0
    ";
    epoll_tells_both_paths_in_one_report, "epoll level", Ring: "
        pair
        warm
        s pipe
        s write 6 5 1
        s splice 5 4 5
        c recv 3 100
        c send 3 3000 1
        s wait_in 4 3000
        s epoll_create1 0
        s epoll_ctl 7 add 4 in|out 1
        s epoll_wait 7 4 1000
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out 2
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out|et 3
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out|oneshot 4
        s epoll_wait 7 4 0
        s epoll_wait 7 4 0
        s epoll_ctl 7 mod 4 in|out|et|oneshot 5
        s epoll_wait 7 4 0
        s epoll_wait 7 4 0
        s epoll_ctl 7 mod 4 out|oneshot 6
        s epoll_wait 7 4 1000
    ";
    epoll_tells_both_paths_in_one_report_the_other_way_round, "epoll level", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 5 1
        s wait_in 4 5
        s splice 4 6 5
        c send 3 3000 1
        s wait_in 4 3000
        s epoll_create1 0
        s epoll_ctl 7 add 4 in|out 1
        s epoll_wait 7 4 1000
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out 2
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out|et 3
        s epoll_wait 7 4 1000
        s epoll_ctl 7 mod 4 in|out|oneshot 4
        s epoll_wait 7 4 0
        s epoll_wait 7 4 0
        s epoll_ctl 7 mod 4 in|out|et|oneshot 5
        s epoll_wait 7 4 0
        s epoll_wait 7 4 0
        s recv 4 4000
        s epoll_ctl 7 mod 4 in|oneshot 6
        s go e epoll_wait 7 4 5000
        s blocked e
        c send 3 10 1
        s join e
        s epoll_wait 7 4 0
    ";
    epoll_edge_of_bytes_that_were_read_tells_of_room, "epoll edge", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 5 1
        s wait_in 4 5
        s splice 4 6 5
        s epoll_create1 0
        s epoll_ctl 7 add 4 in|out|et 1
        s epoll_edges 7 4 0
        c send 3 3000 1
        s wait_in 4 3000
        s epoll_edges 7 4 0
        c send 3 3000 1
        s wait_in 4 6000
        s recv 4 6000
        s epoll_edges 7 4 0
        c send 3 3000 1
        s wait_in 4 3000
        s recv 4 3000
        s epoll_edges 7 4 0
    ";
    epoll_oneshot_tells_of_the_end_with_the_bytes, "epoll one-shot", Ring: "
        pair
        warm
        s epoll_create1 0
        c send 3 10 1
        c shutdown 3 wr
        s wait_in 4 10
        s wait_ev 4 rdhup
        s epoll_ctl 5 add 4 in|rdhup|et|oneshot 1
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|rdhup|oneshot 2
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|out|rdhup|et|oneshot 3
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|out|rdhup|oneshot 4
        s epoll_wait 5 4 0
        s recv 4 100
        s recv 4 100
        s epoll_ctl 5 mod 4 in|rdhup|et|oneshot 5
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 rdhup|et|oneshot 6
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|out|rdhup|et|oneshot 7
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
        s shutdown 4 wr
        s wait_ev 4 hup
        s epoll_ctl 5 mod 4 in|out|rdhup|et|oneshot 8
        s epoll_wait 5 4 0
        s epoll_ctl 5 mod 4 in|et|oneshot 9
        s epoll_wait 5 4 0
        c close 3
        s epoll_ctl 5 mod 4 in|rdhup|et|oneshot 10
        s epoll_wait 5 4 0
    ";
    epoll_oneshot_stays_disarmed_over_an_upgrade, "epoll one-shot", Ring: "
        pair
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|oneshot 1
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 1000
        s recv 4 100
        warm
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s timed 40 1000 epoll_wait 5 4 50
        s epoll_ctl 5 mod 4 in|oneshot 2
        s epoll_wait 5 4 0
        s epoll_wait 5 4 0
    ";
    epoll_exclusive_wakes_at_least_one, "epoll exclusive", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|exclusive 7
        s epoll_ctl 6 add 4 in|exclusive 8
        s epoll_ctl 5 mod 4 in 9
        s epoll_ctl 5 add 4 in|exclusive|oneshot 9
        s epoll_ctl 5 add 4 in|exclusive|rdhup 9
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
        s epoll_wait 6 4 0
        s recv 4 100
        s epoll_wait 5 4 0
        s epoll_wait 6 4 0
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 1
        s join e
        s epoll_ctl 5 del 4
        s epoll_ctl 6 del 4
    ";
    epoll_in_epoll, "nested epoll", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_create1 0
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 7
        s epoll_ctl 6 add 5 in 8
        s epoll_ctl 7 add 6 in 9
        s epoll_wait 7 4 0
        s poll 0 5:in 6:in 7:in
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 7 4 0
        s epoll_wait 6 4 0
        s epoll_wait 5 4 0
        s poll 0 5:in 6:in 7:in
        s select 0 r:5
        s recv 4 100
        s epoll_wait 7 4 0
        s poll 0 5:in 6:in 7:in
        s go e epoll_wait 7 4 5000
        s go p poll 5000 5:in
        s blocked e
        s blocked p
        c send 3 10 1
        s join e
        s join p
        s recv 4 100
        s poll 0 5:in 6:in 7:in
        s epoll_ctl 5 add 7 in 1
        s epoll_ctl 5 add 5 in 1
    ";
    epoll_in_epoll_after_a_set_that_was_rung, "nested epoll", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 7
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 1
        s join e
        s recv 4 100
        s close 5
        s epoll_create1 0
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 7
        s epoll_ctl 6 add 5 in 8
        s epoll_wait 6 4 0
        s poll 0 5:in 6:in
        s go e epoll_wait 6 4 5000
        s blocked e
        c send 3 10 1
        s join e
    ";
    epoll_in_epoll_after_more_than_a_ring_holds, "nested epoll", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 7
        s epoll_wait 5 4 0
        s epoll_create1 0
        s epoll_ctl 6 add 5 in 8
        c sendall 3 70000 1
        s recvall 4 70000
        c send 3 100 2
        s recvall 4 100
        s go e epoll_wait 6 4 5000
        s blocked e
        c send 3 10 1
        s join e
        s recv 4 100
    ";
    epoll_edges_that_found_no_room_come_next, "epoll edge", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s epoll_create1 0
        s epoll_ctl 6 add 4 in|et 7
        s epoll_ctl 6 add 5 in|et 7
        s epoll_wait 6 4 0
        c send 3 10 1
        c send 4 10 1
        s wait_in 4 10
        s wait_in 5 10
        s epoll_wait 6 1 0
        s epoll_wait 6 1 0
        s epoll_wait 6 1 0
    ";
    epoll_edge_reports_what_is_ready_on_either_path, "epoll edge", Ring: "
        pair
        warm
        s listens
        c pipe
        s send 4 100 1
        c wait_in 3 100
        c splice 3 5 100
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|out|et 7
        s epoll_wait 5 4 0
        c send 3 10 1
        s epoll_wait 5 4 1000
    ";
    a_connection_that_joins_a_set_in_use_is_served, "epoll level", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s epoll_create1 0
        s epoll_ctl 6 add 4 in 7
        s epoll_wait 6 4 0
        s go e epoll_wait 6 4 9000
        s blocked e
        c poll 900 3:in    # until nothing else wakes it
        s epoll_ctl 6 add 5 in 8
        c send 4 10 1
        s join e
    ";
    two_threads_wait_for_what_comes_one_by_one, "threads", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s epoll_create1 0
        s epoll_ctl 6 add 4 in|oneshot 7
        s epoll_ctl 6 add 5 in|oneshot 8
        s epoll_wait 6 4 0
        s go a epoll_wait 6 4 9000
        s go b epoll_wait 6 4 9000
        s blocked a
        s blocked b
        c poll 900 3:in    # until nothing else wakes them
        c send 3 10 1
        c poll 100 3:in
        c send 4 10 1
        s join_any a
        s join_any b
    ";
    one_descriptor_in_several_epolls, "one descriptor in several epolls", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_create 1
        s epoll_create1 cloexec
        s epoll_ctl 5 add 4 in 7
        s epoll_ctl 6 add 4 in|et 8
        s epoll_ctl 7 add 4 out 9
        s epoll_ctl 5 add 4 in 7
        s epoll_ctl 6 mod 3 in 1
        s epoll_ctl 6 del 3
        s epoll_wait 5 4 0
        s epoll_wait 6 4 0
        s epoll_wait 7 4 0
        s go a epoll_wait 5 4 5000
        s go b epoll_wait 6 4 5000
        s blocked a
        s blocked b
        c send 3 10 1
        s join a
        s join b
        s epoll_wait 5 4 0
        s epoll_wait 6 4 0
        s recv 4 100
        s epoll_wait 5 4 0
        s close 6
        c send 3 10 1
        s wait_in 4 10
        s epoll_wait 5 4 0
    ";
    registered_before_connect, "registered before connect", Ring: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet stream|nonblock
        c epoll_create1 0
        c epoll_ctl 4 add 3 in|out|et|rdhup 7
        c epoll_wait 4 4 0
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        c wait_ev 3 out
        c epoll_wait 4 4 0
        c epoll_wait 4 4 0
        c fcntl 3 setfl 0
        warm
        c recv 3 10 dontwait
        c epoll_ctl 4 mod 3 in|rdhup 8
        c epoll_wait 4 4 0
        c go e epoll_wait 4 4 5000
        c blocked e
        s send 4 10 1
        c join e
        c recv 3 100
        s close 4
        c wait_ev 3 rdhup
        c epoll_wait 4 4 0
    ";
    registered_before_the_upgrade, "registered before the upgrade", Ring: "
        pair
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 4
        c epoll_create1 0
        c epoll_ctl 4 add 3 in 8
        s go e epoll_loop 5 6400
        s blocked e
        c sendall 3 6400 1 100
        s join e
        warm
        s epoll_wait 5 4 0
        s go e epoll_loop 5 300000
        c sendall 3 300000 1 3000
        s join e
        c epoll_wait 4 4 0
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 1
        s join e
        s recv 4 100
        c go e epoll_wait 4 4 5000
        c blocked e
        s send 4 10 1
        c join e
        c recv 3 100
    ";
    an_epoll_set_shared_by_threads_wakes_one_for_each_connection, "epoll shared by threads", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s epoll_create1 0
        s epoll_ctl 6 add 4 in|et 4
        s epoll_ctl 6 add 5 in|et 5
        s go a epoll_loop 6 300000
        s go b epoll_loop 6 0
        s join b
        c go x sendall 3 150000 1 1000
        c sendall 4 150000 1 1000
        c join x
        s join a
        s go a epoll_wait 6 1 5000
        s blocked a
        s go b epoll_wait 6 1 5000
        s blocked b
        c send 3 10 1
        c send 4 10 1
        s join_any a
        s join_any b
        s recv 4 100
        s recv 5 100
    ";
    closing_the_descriptor_leaves_the_epoll, "one descriptor in several epolls", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|out 7
        s epoll_wait 5 4 0
        s close 4
        s epoll_wait 5 4 0
        s epoll_ctl 5 del 4
        s epoll_ctl 5 mod 4 in
        s epoll_wait 5 0 0
        s epoll_wait 5 -1 0
        s epoll_wait 3 4 0
        s epoll_wait 99 4 0
        c recv 3 10
    ";
    many_connections_in_one_epoll, "O(ready)", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        c socket inet
        c connect 5 127.0.0.1:%port:s:3
        s accept 3
        c socket inet
        c connect 6 127.0.0.1:%port:s:3
        s accept 3
        s epoll_create1 0
        s epoll_ctl 8 add 3 in 3
        s epoll_ctl 8 add 4 in 4
        s epoll_ctl 8 add 5 in 5
        s epoll_ctl 8 add 6 in 6
        s epoll_ctl 8 add 7 in 7
        warm 3 4
        warm 4 5
        warm 5 6
        warm 6 7
        s epoll_wait 8 8 0
        c send 4 10 1
        s epoll_wait 8 8 1000
        c send 6 10 1
        s wait_in 7 10
        s epoll_wait 8 8 0
        s epoll_wait 8 8 0
        s recv 5 100
        s epoll_wait 8 8 0
        c close 3
        s wait_ev 4 in
        s epoll_wait 8 8 0
        s recv 4 10
        s close 4
        s recv 7 100
        s epoll_wait 8 8 0
    ";
}
