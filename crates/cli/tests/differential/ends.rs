//! How connections end: shutdown, close, exit, kill, reset.

use crate::hand::scripts;

scripts! {
    shutdown_of_writing_is_end_of_file_after_the_data, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        c shutdown 3 wr
        c send 3 1 1 nosignal
        c poll 0 3:in|out|rdhup
        s wait_ev 4 rdhup
        s recvall 4 5000
        s recv 4 10
        s recv 4 10
        s poll 0 4:in|out|rdhup
        s send 4 100 2
        c wait_in 3 100
        c recv 3 1000
        s shutdown 4 wr
        c wait_ev 3 hup
        c recv 3 10
        c poll 0 3:in|out|rdhup
        s wait_ev 4 hup
        s poll 0 4:in|out|rdhup
        s close 4
        c close 3
    ";
    shutdown_of_reading_ends_reads, "shutdown in all its orders", Ring: "
        pair
        warm
        s shutdown 4 rd
        s recv 4 10
        s poll 0 4:in|out|rdhup
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        s recv 4 100
        s send 4 10 1
        c wait_in 3 10
        c recv 3 100
    ";
    shutdown_of_reading_keeps_what_is_there, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s shutdown 4 rd
        s recv 4 600
        s recv 4 600
        s recv 4 600
        c send 3 10 1
    ";
    shutdown_of_reading_ends_nothing_that_is_sent, "shutdown in all its orders", Ring: "
        pair
        warm
        s shutdown 4 rd
        s send 4 100 1
        s recv 4 10
        s send 4 100 2
        s getsockopt 4 error
        c wait_in 3 200
        c recv 3 1000
    ";
    shutdown_of_reading_beside_a_stopped_writer, "shutdown in all its orders", Ring: "
        pair
        warm
        stop c
        s shutdown 4 rd
        s send 4 100 1
        s recv 4 10
        s send 4 100 2
        s getsockopt 4 error
        cont c
        c wait_in 3 200
        c recv 3 1000
    ";
    shutdown_of_both_directions, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 300 1
        c shutdown 3 rdwr
        c recv 3 10
        c send 3 1 1 nosignal
        s wait_ev 4 rdhup
        s recvall 4 300
        s recv 4 10
        s shutdown 4 rdwr
        c wait_ev 3 hup
        c shutdown 3 wr
        s shutdown 4 rd
        c close 3
        s close 4
    ";
    shutdown_of_both_directions_keeps_what_is_there, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        s wait_in 4 5000
        s recv 4 191
        s send 4 700 2
        s shutdown 4 rdwr
        s poll 0 4:in|out|rdhup
        s fionread 4
        s recv 4 100 peek
        s recv 4 600
        c send 3 300 3
        c wait_ev 3 hup
        c send 3 300 3 nosignal
        c recv 3 1000
        c recv 3 1000
        s recv 4 1000
        s recv 4 9000 waitall
        s recv 4 10
        c close 3
        s close 4
    ";
    shutdown_of_both_directions_beside_a_stopped_writer, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        s wait_in 4 5000
        stop c
        s shutdown 4 rdwr
        s recv 4 1000 dontwait
        s shutdown 4 rdwr
        cont c
        c send 3 300 3
        c wait_ev 3 hup
        s recv 4 9000
        s getsockopt 4 error
        s recv 4 10
    ";
    shutdown_of_one_direction_after_the_other, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        s wait_in 4 5000
        s shutdown 4 wr
        c wait_ev 3 rdhup
        c send 3 500 6
        s wait_in 4 5500
        s shutdown 4 rd
        s recv 4 1000
        c recv 3 10
        c send 3 10 7
        c wait_ev 3 hup
        s recv 4 4500 waitall
    ";
    shutdown_of_both_directions_keeps_much, "shutdown in all its orders", Ring: "
        pair
        warm
        c sendall 3 100000 1 10000
        s wait_in 4 100000
        s shutdown 4 rdwr
        c wait_ev 3 rdhup
        c send 3 10 7
        c wait_ev 3 hup
        s recvall 4 100000
    ";
    shutdown_of_both_directions_and_a_close, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        s wait_in 4 5000
        s shutdown 4 rdwr
        c wait_ev 3 rdhup
        c recv 3 10
        s recv 4 1000
        s close 4
        c wait_ev 3 hup
        c getsockopt 3 error
        c send 3 10 1 nosignal
    ";
    shutdown_twice_and_in_the_other_order, "shutdown in all its orders", Ring: "
        pair
        warm
        c shutdown 3 rd
        c shutdown 3 rd
        c shutdown 3 wr
        c shutdown 3 wr
        s recv 4 10
        s send 4 10 1
        s close 4
        c shutdown 3 0x7
        c shutdown 99 wr
        s shutdown 3 wr
    ";
    shutdown_wakes_a_thread_that_reads, "shutdown in all its orders", Ring: "
        pair
        warm
        s go r recv 4 10
        s blocked r
        s shutdown 4 rd
        s join r
        c go r recv 3 10
        c blocked r
        s shutdown 4 wr
        c join r
    ";
    shutdown_wakes_a_thread_that_writes, "shutdown in all its orders", Ring: "
        pair
        warm
        c sigaction pipe ignore
        c fillup 3 1
        c go w write 3 6000000 1
        c blocked w
        c shutdown 3 wr
        c join_any w
        s drain_any 4
    ";
    shutdown_wakes_poll_and_epoll, "shutdown in all its orders", Ring: "
        pair
        warm
        s go p poll 5000 4:in|rdhup
        s blocked p
        c epoll_create1 0
        c epoll_ctl 4 add 3 in|rdhup
        c go e epoll_wait 4 4 5000
        c blocked e
        c shutdown 3 wr
        s join p
        s shutdown 4 wr
        c join e
    ";
    half_close_serves_a_request_sent_before_it, "half close", Ring: "
        pair
        warm
        c sendall 3 400000 1 10000
        c shutdown 3 wr
        s drain 4
        s sendall 4 700000 2 30000
        s close 4
        c drain 3
        c close 3
    ";
    half_close_the_other_way, "half close", Ring: "
        pair
        warm
        s send 4 100 1
        s shutdown 4 wr
        c wait_ev 3 rdhup
        c recv 3 1000
        c recv 3 1000
        c sendall 3 200000 3 7000
        c close 3
        s drain 4
        s close 4
    ";
    half_closed_and_killed_when_it_has_read_all, "peer killed with data in flight", Ring: "
        pair
        warm
        s send 4 1000 1
        c wait_in 3 1000
        c recv 3 1000
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s recv 4 10
        s send 4 1000 2
        c wait_in 3 1000
        c recv 3 1000
        c kill9
        s poll 0 4:out|rdhup
        s send 4 100 3
        s wait_ev 4 err|hup
        s getsockopt 4 error
        s send 4 10 1 nosignal
    ";
    half_closed_and_killed_with_octets_unread, "peer killed with data in flight", Ring: "
        pair
        warm
        s send 4 1000 1
        c wait_in 3 1000
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s send 4 1000 2
        c wait_in 3 2000
        c kill9
        s wait_ev 4 err|hup
        s getsockopt 4 error
        s recv 4 10
        s send 4 10 1 nosignal
    ";
    half_closed_and_killed_while_nobody_looks, "peer killed with data in flight", Ring: "
        pair
        warm
        s send 4 1000 1
        c wait_in 3 1000
        c recv 3 1000
        c shutdown 3 wr
        c kill9
        s send 4 100 3
        s wait_ev 4 err|hup
        s getsockopt 4 error
        s send 4 10 1 nosignal
    ";
    half_closed_and_killed_beside_a_writer, "peer killed with data in flight", Ring: "
        pair
        warm
        s sigaction pipe ignore
        c shutdown 3 wr
        s fillup 4 1
        s go w write 4 6000000 1
        s blocked w
        c kill9
        s join_any w
        s send 4 10 1 nosignal
    ";
    unread_data_at_close_resets, "unread data at close (RST)", Ring: "
        pair
        warm
        c send 3 1000 1
        s send 4 500 2
        s wait_in 4 1000
        c wait_in 3 500
        s recv 4 10
        s close 4
        c wait_ev 3 hup|err
        c poll 0 3:in|out|rdhup
        c recv 3 1000
        c recv 3 1000
        c recv 3 1000
        c send 3 10 1 nosignal
        c getsockopt 3 error
    ";
    unread_data_at_close_resets_a_reader, "unread data at close (RST)", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        c go r recv 3 10
        c blocked r
        s close 4
        c join r
        c recv 3 10
        c send 3 10 1 nosignal
    ";
    data_to_a_closed_peer_resets, "unread data at close (RST)", Ring: "
        pair
        warm
        s close 4
        c wait_ev 3 rdhup
        c send 3 10 1
        c wait_ev 3 err|hup
        c getsockopt 3 error
        c getsockopt 3 error
        c recv 3 10
        c send 3 10 1 nosignal
    ";
    data_sent_unawares_to_a_closed_peer_resets, "unread data at close (RST)", Ring: "
        pair
        warm
        s close 4
        c send 3 10 1
        c wait_ev 3 err|hup
        c getsockopt 3 error
        c getsockopt 3 error
        c recv 3 10
        c send 3 10 1 nosignal
    ";
    pending_error_is_reported_once, "SO_ERROR", Ring: "
        pair
        warm
        s close 4
        c wait_ev 3 rdhup
        c getsockopt 3 error
        c send 3 10 1
        c wait_ev 3 err|hup
        c recv 3 10
        c recv 3 10
        c getsockopt 3 error
        c send 3 10 1 nosignal
        c getsockopt 3 error
    ";
    connect_errors_are_reported, "SO_ERROR", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 error
        c send 3 10 1 nosignal
        c recv 3 10
        c socket inet stream|nonblock
        c connect 4 127.0.0.1:%port:s:3
        c wait_ev 4 err|hup
        c getsockopt 4 error
        c getsockopt 4 error
        c poll 0 4:in|out 3:in|out
        c socket inet stream|nonblock
        c connect 5 127.0.0.1:%port:s:3
        c wait_ev 5 err|hup
        c recv 5 10
        c connect 5 127.0.0.1:%port:s:3
    ";
    linger_of_zero_resets, "SO_LINGER", Ring: "
        pair
        warm
        c setsockopt 3 linger 1 0
        c getsockopt 3 linger
        c send 3 100 1
        s wait_in 4 100
        c close 3
        s wait_ev 4 hup|err
        s recv 4 1000
        s recv 4 1000
        s recv 4 1000
        s send 4 10 1 nosignal
    ";
    a_reset_is_told_before_the_data_by_recvmmsg, "SO_LINGER", Ring: "
        pair
        warm
        c setsockopt 3 linger 1 0
        c send 3 30 1
        s wait_in 4 30
        c close 3
        s wait_ev 4 hup|err
        s recvmmsg 4 10,10
        s recvmmsg 4 10,10
        s recvmmsg 4 5,20,20
        s recv 4 1000
    ";
    linger_waits_for_the_data, "SO_LINGER", Ring: "
        pair
        warm
        c setsockopt 3 linger 1 2
        c send 3 5000 1
        c timed 0 500 close 3
        s drain 4
    ";
    data_comes_before_the_end, "data before EOF", Ring: "
        pair
        warm
        c sendall 3 300000 1 70000
        c close 3
        s drain 4
        s poll 0 4:in|out|rdhup
        s close 4
    ";
    data_comes_before_the_end_of_a_process, "data before EOF", Ring: "
        pair
        warm
        c sendall 3 300000 1 70000
        c _exit 3
        s drain 4
    ";
    exit_delivers_everything, "recall: exit", Ring: "
        pair
        warm
        c sendall 3 200000 1 70000
        c exit 4
        s drain 4
    ";
    quick_exit_delivers_everything, "recall: exit", Ring: "
        pair
        warm
        c sendall 3 60000 1
        c quick_exit 5
        s drain 4
    ";
    exit_with_unread_data_resets, "recall: exit", Ring: "
        pair
        warm
        c send 3 100 1
        s send 4 300 2
        c wait_in 3 300
        c _exit 0
        s wait_ev 4 err|hup
        s recv 4 1000
        s recv 4 1000
        s recv 4 1000
    ";
    abort_delivers_what_was_sent, "peer killed with data in flight", Ring: "
        pair
        warm
        c sendall 3 60000 1
        c abort
        s drain 4
    ";
    killed_peer_with_data_in_flight, "peer killed with data in flight", Ring: "
        pair
        warm
        c sendall 3 60000 1
        c kill9
        s drain 4
        s send 4 10 1 nosignal
    ";
    killed_peer_wakes_a_reader, "peer killed with data in flight", Ring: "
        pair
        warm
        s go r recv 4 10
        s blocked r
        c kill9
        s join r
        s recv 4 10
    ";
    killed_peer_wakes_epoll_and_poll, "peer killed with data in flight", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|rdhup
        s go e epoll_wait 5 4 5000
        s go p poll 5000 4:in
        s blocked e
        s blocked p
        c kill9
        s join e
        s join p
    ";
    killed_peer_stops_a_writer, "peer killed with data in flight", Ring: "
        pair
        warm
        c sigaction pipe ignore
        c fillup 3 1
        c go w sendall 3 6000000 1
        c blocked w
        s kill9
        c join_any w
        c wait_ev 3 hup
        c send 3 1 1 nosignal
    ";
    killed_peer_that_had_unread_data, "peer killed with data in flight", Ring: "
        pair
        warm
        c send 3 1000 1
        s send 4 200 2
        s wait_in 4 1000
        c wait_in 3 200
        s kill9
        c wait_ev 3 err|hup
        c recv 3 1000
        c recv 3 1000
        c recv 3 1000
    ";
    a_reset_comes_behind_a_ring_that_was_just_begun, "peer killed with data in flight", Ring: "
        pair
        warm
        c listens
        s listens
        s pipe
        c send 3 100 1
        s wait_in 4 100
        s splice 4 6 100
        s read 5 100
        c pipe
        s send 4 100 1
        c wait_in 3 100
        c splice 3 5 100
        c sendall 3 66000 2
        s recvall 4 66000
        c send 3 200 3
        s send 4 1000 4
        c wait_in 3 1000
        c kill9
        s wait_ev 4 err|hup
        s recv 4 1000
        s recv 4 1000
        s recv 4 1000
    ";
    unread_data_in_a_ring_that_was_just_begun_resets, "unread data at close (RST)", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 100 1
        s splice 4 6 100
        c sendall 3 66000 2
        s recvall 4 66000
        c computes
        c send 3 200 3
        s close 4
        c wait_ev 3 err|hup
        c getsockopt 3 error
        c recv 3 10
    ";
    a_send_to_a_killed_peer_begins_no_ring, "peer killed with data in flight", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 100 1
        s splice 4 6 100
        c sendall 3 66000 2
        s recvall 4 66000
        c computes
        s kill9
        c send 3 10 3
        c wait_ev 3 err|hup
        c getsockopt 3 error
        c send 3 10 1 nosignal
        c recv 3 10
    ";
    the_error_of_a_killed_peer_is_told_once, "SO_ERROR", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s kill9
        c wait_ev 3 err|hup
        c getsockopt 3 error
        c getsockopt 3 error
        c recv 3 10
    ";
    close_of_one_of_two_descriptors_ends_nothing, "recall: close", Ring: "
        pair
        warm
        c dup 3
        c close 3
        c send 4 100 1
        s wait_in 4 100
        s recv 4 1000
        s recv 4 10 dontwait
        s poll 0 4:in|rdhup
        c close 4
        s wait_ev 4 rdhup
        s recv 4 10
    ";
    close_while_a_thread_reads, "recall: close", Ring: "
        pair
        warm
        s dup 4
        s go r recv 5 10
        s blocked r
        s close 4
        s blocked r
        c send 3 10 1
        s join r
    ";
    closed_descriptors_are_ebadf, "recall: close", Ring: "
        pair
        warm
        c close 3
        c close 3
        c send 3 10 1
        c recv 3 10
        c poll 0 3:in
        c shutdown 3 wr
        c fionread 3
        c getsockname 3
        c dup 3
        c fcntl 3 getfl
        c select 0 r:3
        c getsockopt 3 error
        c fds
        c socket inet
        s recv 4 10
    ";
    a_new_connection_on_an_old_number_starts_afresh, "recall: close", Ring: "
        pair
        warm
        c send 3 100 1
        c close 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        c send 3 50 2
        s wait_in 5 50
        s recv 5 100
        s drain 4
        warm 3 5
        c send 3 70 3
        s wait_in 5 70
        s recv 5 100
        s close 4
        s close 5
        c recv 3 10
    ";
    a_reset_connection_can_be_used_no_more, "unread data at close (RST)", Ring: "
        pair
        warm
        s setsockopt 4 linger 1 0
        s close 4
        c wait_ev 3 hup|err
        c shutdown 3 wr
        c getpeername 3
        c recv 3 10
        c recv 3 10
        c poll 0 3:in|out|rdhup
    ";
    what_came_between_a_look_and_the_end_is_there, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 50 1
        s wait_in 4 50
        s recv 4 10
        c send 3 1000 2
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s recv 4 10
        s recv 4 20
        s recvall 4 1010
        s recv 4 10
    ";
    what_came_between_a_look_and_a_kill_is_there, "peer killed with data in flight", Ring: "
        pair
        warm
        c send 3 50 1
        s wait_in 4 50
        s recv 4 10
        c send 3 1000 2
        c wait_sent 3
        c kill9
        s wait_ev 4 rdhup
        s recv 4 10
        s recv 4 20
        s recvall 4 1010
        s recv 4 10
    ";
}
