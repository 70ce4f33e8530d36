//! Scripts of urgent octets over a link: apart from the stream and in it, marks, and what waits for them.

use crate::hand::scripts;

scripts! {
    there_is_nothing_urgent, "MSG_OOB", Either: "
        pair
        s recv 4 1 oob
        s atmark 4
        s poll 0 4:in|pri|rdhup
        s getsockopt 4 oobinline
        c send 3 10 1
        s wait_in 4 10
        s recv 4 1 oob
        s recv 4 0 oob
        s atmark 4
        s recv 4 10
        c socket inet
        c recv 4 1 oob
        c send 4 1 1 oob|nosignal
        c atmark 4
        s recv 3 1 oob
        s atmark 3
        c socket inet dgram
        c sendto 5 10 1 oob 127.0.0.1:9
        c send 3 0 1 oob
        c send 3 10 2
        s wait_in 4 10
        s poll 0 4:in|pri
        s recv 4 10
    ";
    an_urgent_octet_among_others, "MSG_OOB, SIOCATMARK", Either: "
        pair
        c send 3 10 1
        c send 3 5 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s fionread 4
        s recv 4 30 peek
        s recv 4 1 oob|peek
        s poll 0 4:in|pri
        s recv 4 12
        s atmark 4
        s fionread 4
        s recv 4 30
        s atmark 4
        s fionread 4
        s wait_ev 4 in
        s poll 0 4:in|pri
        s recv 4 4 peek
        s recv 4 1 oob
        s poll 0 4:in|pri
        s recv 4 1 oob
        s recv 4 4
        s atmark 4
        s fionread 4
        s recv 4 30
        s recv 4 1 oob
    ";
    an_urgent_octet_that_is_passed, "MSG_OOB", Either: "
        pair
        c send 3 1 1 oob
        s wait_ev 4 pri
        s poll 0 4:in|pri
        s fionread 4
        s atmark 4
        s recv 4 10 peek|dontwait
        s atmark 4
        s recv 4 10 dontwait
        s atmark 4
        s recv 4 1 oob
        s poll 0 4:in|pri
        c send 3 10 2
        s wait_in 4 10
        s recv 4 30
        c send 3 1 3 oob
        s wait_ev 4 pri
        s go r recv 4 10
        s blocked r
        c send 3 10 4
        s join r
        s recv 4 1 oob
        s read 4 0
    ";
    urgent_octets_in_a_row, "MSG_OOB", Either: "
        pair
        c send 3 2 1
        c send 3 1 2 oob
        s wait_ev 4 pri
        s fionread 4
        c send 3 1 3 oob
        s wait_in 4 3
        s wait_ev 4 pri
        s recv 4 10
        s recv 4 1 oob
        s recv 4 10 dontwait
        c send 3 1 4 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        c send 3 1 5 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        s atmark 4
        s recv 4 10 dontwait
        c send 3 10 6
        s wait_in 4 10
        s recv 4 10
    ";
    an_urgent_octet_in_line, "SO_OOBINLINE", Either: "
        pair
        s setsockopt 4 oobinline 1
        s getsockopt 4 oobinline
        c send 3 10 1
        c send 3 1 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s wait_in 4 21
        s poll 0 4:in|pri
        s recv 4 1 oob
        s atmark 4
        s recv 4 30 peek
        s recv 4 30
        s atmark 4
        s recv 4 30 peek
        s recv 4 5
        s atmark 4
        s poll 0 4:in|pri
        s recv 4 30
        c send 3 1 4 oob
        s wait_ev 4 pri
        s setsockopt 4 oobinline 0
        s poll 0 4:in|pri
        s recv 4 1 oob
        s recv 4 10 dontwait
    ";
    a_listener_gives_on_that_urgent_octets_stay_in_line, "SO_OOBINLINE", Either: "
        s socket inet
        s setsockopt 3 oobinline 5
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c send 3 3 1 oob
        s accept 3
        s getsockopt 4 oobinline
        s wait_ev 4 pri
        s recv 4 10
        s recv 4 10
    ";
    an_urgent_octet_and_the_end, "MSG_OOB", Either: "
        pair
        c send 3 2 1 oob
        s wait_ev 4 pri
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s poll 0 4:in|pri|rdhup
        s fionread 4
        s recv 4 10
        s atmark 4
        s recv 4 10 peek
        s recv 4 1 oob
        s recv 4 1 oob
        s recv 4 10
        s atmark 4
        s recv 4 1 oob
        s poll 0 4:in|pri|rdhup
    ";
    an_urgent_octet_and_a_reset, "MSG_OOB", Either: "
        pair
        c send 3 2 1 oob
        s wait_ev 4 pri
        c setsockopt 3 linger 1 0
        c close 3
        s wait_ev 4 err|hup
        s recv 4 1 oob
        s poll 0 4:in|pri|rdhup
        s recv 4 10
        s atmark 4
        s recv 4 10
        s recv 4 10
        s recv 4 1 oob
    ";
    who_has_shut_reading_reads_an_urgent_octet, "MSG_OOB", Either: "
        pair
        c send 3 2 1 oob
        s wait_ev 4 pri
        s shutdown 4 rd
        s recv 4 1 oob
        s recv 4 1 oob
        s recv 4 10
        s atmark 4
        s recv 4 10
        s atmark 4
    ";
    who_closes_before_an_urgent_octet_was_passed_resets, "close", Either: "
        pair
        c send 3 2 1 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        s recv 4 1
        s close 4
        c wait_ev 3 err|hup
        c recv 3 10
    ";
    messages_tell_that_they_are_urgent, "recvmsg", Either: "
        pair
        c send 3 3 1 oob
        s wait_ev 4 pri
        s recvmsg 4 10 oob|peek
        s recvmsg 4 10
        s recvmsg 4 10 oob
        s recvmsg 4 10 oob
        s recv 4 10 dontwait
        c send 3 3 1 oob
        s wait_ev 4 pri
        s recv 4 5 oob|trunc
        s recv 4 10 trunc
        s recv 4 10 dontwait
        c send 3 3 1 oob
        s wait_ev 4 pri
        s recv 4 0 oob
        s recv 4 1 oob
        s recv 4 10
    ";
    who_waits_for_all_does_not_wait_behind_a_mark, "MSG_WAITALL", Either: "
        pair
        s go r recv 4 30 waitall
        s blocked r
        c send 3 10 1
        s blocked r
        c send 3 1 2 oob
        s join r
        s atmark 4
        s recv 4 1 oob
        s go r recv 4 10 waitall
        s blocked r
        c send 3 5 3
        s blocked r
        c send 3 5 4
        s join r
        s go r recv 4 30 waitall|peek
        s blocked r
        c send 3 10 5
        c send 3 1 6 oob
        s join r
        s recv 4 30
        s recv 4 1 oob
    ";
    a_bound_counts_octets_behind_a_mark, "SO_RCVLOWAT", Either: "
        pair
        s setsockopt 4 rcvlowat 3
        c send 3 3 1 oob
        s wait_ev 4 in|pri
        s fionread 4
        s recv 4 2
        s poll 0 4:in|pri
        c send 3 3 2
        s wait_ev 4 in
        s recv 4 10
    ";
    urgent_octets_are_waited_for, "POLLPRI, epoll", Either: "
        pair
        s go p poll 5000 4:pri
        s blocked p
        c send 3 10 1
        s wait_in 4 10
        s blocked p
        c send 3 1 2 oob
        s join p
        s recv 4 10
        s recv 4 1 oob
        s recv 4 10 dontwait
        s epoll_create1 0
        s epoll_ctl 5 add 4 pri 4
        s epoll_wait 5 4 0
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 3 3 oob
        s join e
        s epoll_wait 5 4 0
        s recv 4 1 oob
        s epoll_wait 5 4 0
        s recv 4 10
        s select 0 r:4 e:4
        c send 3 3 4 oob
        s wait_ev 4 pri
        s select 0 r:4 e:4
    ";
    an_urgent_octet_is_an_edge, "epoll", Either: "
        pair
        s epoll_create1 0
        s epoll_ctl 5 add 4 pri|et 4
        s epoll_wait 5 4 0
        c send 3 3 1 oob
        s epoll_wait 5 4 5000
        s epoll_wait 5 4 0
        c send 3 3 2
        s wait_ev 4 in
        s recv 4 2
        s atmark 4
        s wait_ev 4 in
        s epoll_edges 5 4 0
        s recv 4 1 oob
        s epoll_wait 5 4 0
        c send 3 3 3 oob
        s epoll_wait 5 4 5000
    ";
    splices_end_at_a_mark, "splice", Either: "
        pair
        s pipe
        c send 3 3 1 oob
        s wait_ev 4 pri
        s splice 4 6 100
        s splice 4 6 100
        s splice 4 6 100 nonblock
        s recv 4 1 oob
        s splice 4 6 100
        c send 3 5 2
        s wait_ev 4 in
        s splice 4 6 100
        s recv 4 2
        s splice 4 6 100
        s read 5 100
        s setsockopt 4 oobinline 1
        c send 3 3 3 oob
        s wait_ev 4 pri
        s splice 4 6 100
        s splice 4 6 100
        s fcntl 4 setfl nonblock
        s splice 4 6 100
        s recv 4 10
        s splice 4 6 100
        c send 3 1 4 oob
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s splice 4 6 100
        s read 5 100
    ";
    urgent_octets_go_though_others_wait, "TCP_CORK, MSG_MORE", Either: "
        pair
        c setsockopt 3 cork 1
        c send 3 10 1
        c send 3 1 2 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        s recv 4 100
        c setsockopt 3 cork 0
        c send 3 2 3 oob|more
        s wait_ev 4 pri
        s wait_ev 4 in
        s recv 4 1 oob
        s recv 4 10
    ";
    a_long_piece_with_an_urgent_octet, "MSG_OOB", Either: "
        pair [::1]
        c setsockopt 3 sndbuf 200000
        c go w send 3 60000 1 oob
        s recvall 4 59999
        c join w
        s wait_ev 4 pri
        s atmark 4
        s recv 4 1 oob
        c send 3 10 2
        s wait_ev 4 in
        s recv 4 10
    ";
    both_sides_are_urgent, "MSG_OOB", Either: "
        pair
        c send 3 5 1 oob
        s send 4 7 2 oob
        c wait_ev 3 pri
        s wait_ev 4 pri
        c recv 3 10
        s recv 4 10
        c recv 3 1 oob
        s recv 4 1 oob
        c send 3 5 3
        s send 4 7 4
        c wait_ev 3 in
        s wait_ev 4 in
        c recv 3 10
        s recv 4 10
    ";
}
