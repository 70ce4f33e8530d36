//! Threads, signals, full paths and peers that do not read.

use crate::hand::scripts;

scripts! {
    full_duplex_streams_do_not_disturb_each_other, "full duplex", Ring: "
        pair
        warm
        s go w sendall 4 5000000 3 30000
        c go w sendall 3 5000000 4 50000
        s go r recvall 4 5000000
        c go r recvall 3 5000000
        s join w 20000
        c join w 20000
        s join r 20000
        c join r 20000
    ";
    both_ends_write_megabytes_before_either_reads, "both ends writing megabytes before either reads", Ring: "
        pair
        warm
        s sendall 4 1500000 3 50000
        c sendall 3 1500000 4 50000
        s recvall 4 1500000
        c recvall 3 1500000
    ";
    one_process_holds_both_ends, "both ends writing megabytes before either reads", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        s socket inet
        s connect 4 127.0.0.1:%port:s:3
        s accept 3
        s go w echo 5 64 100
        s ping 4 64 100
        s join w
        s sendall 4 1000000 1 50000
        s sendall 5 1000000 2 50000
        s recvall 4 1000000
        s recvall 5 1000000
        s send 4 10 1
        s wait_in 5 10
        s recv 5 100
        s close 4
        s recv 5 100
    ";
    back_pressure_of_a_stopped_peer_stops_the_writer, "back-pressure of a stopped peer", Ring: "
        pair
        warm
        stop s
        c fcntl 3 setfl nonblock
        c fillup 3 5
        c poll 0 3:out|in
        c fcntl 3 setfl 0
        c go w write 3 6000000 1
        c blocked w
        cont s
        s go r drain_any 4
        c join w
        c shutdown 3 wr
        s join r
    ";
    a_blocking_writer_waits_for_a_stopped_peer_and_goes_on, "back-pressure of a stopped peer", Ring: "
        pair
        warm
        stop s
        c go w sendall 3 12000000 5 100000
        c blocked w
        cont s
        s recvall 4 12000000
        c join w
    ";
    a_peer_that_computes_reads_later, "back-pressure of a stopped peer", Ring: "
        pair
        warm
        s go compute spin 400
        c sendall 3 1500000 5 100000
        c send 3 10 1
        s join compute
        s recvall 4 1500000
        s recvall 4 10
    ";
    threads_share_a_receiving_descriptor, "threads", Ring: "
        pair
        warm
        s go a recv 4 10
        s blocked a
        s go b recv 4 10
        s blocked b
        c send 3 10 1
        c send 3 10 1
        s join a
        s join b
        s recv 4 10 dontwait
    ";
    threads_share_a_sending_descriptor, "threads", Ring: "
        pair
        warm
        c go a sendsame 3 300000 1
        c go b sendsame 3 300000 1
        c go d sendsame 3 300000 1
        s go r recvall 4 900000
        c join a
        c join b
        c join d
        s join r
        s recv 4 10 dontwait
    ";
    a_thread_blocked_in_recv_survives_the_switch, "a thread blocked in the kernel when the switch happens", Ring: "
        pair
        s go r recv 4 10
        s blocked r
        c go e ping 3 64 10
        c blocked e
        s join r
        s send 4 10 0
        s go w echo 4 63 10
        c join e
        s join w
        c send 3 10 1
        s recv 4 100
    ";
    a_thread_blocked_in_poll_survives_the_switch, "a thread blocked in the kernel when the switch happens", Ring: "
        pair
        c go r poll 5000 3:in|rdhup
        c blocked r
        c sendall 3 20000 1 100
        s recvall 4 20000
        s go e recvall 4 20000
        c sendall 3 20000 1 100
        s join e
        c blocked r
        s send 4 10 1
        c join r
        c recv 3 100
        warm
    ";
    a_thread_blocked_in_recv_while_the_other_direction_switches, "a thread blocked in the kernel when the switch happens", Ring: "
        pair
        s go r recv 4 100
        s blocked r
        s sendall 4 200000 1 1000
        c recvall 3 200000
        s blocked r
        c send 3 50 2
        s join r
        warm
        s go r recv 4 100
        s blocked r
        s sendall 4 200000 1 1000
        c recvall 3 200000
        c send 3 50 2
        s join r
    ";
    five_threads_wait_for_one_connection, "threads", Ring: "
        pair
        warm
        s go a recv 4 10
        s go b recv 4 10
        s go d recv 4 10
        s go e recv 4 10
        s blocked a
        s blocked b
        s blocked d
        s blocked e
        s go f recv 4 10
        s blocked f
        c sendall 3 50 1 10
        s join_any a
        s join_any b
        s join_any d
        s join_any e
        s join_any f
    ";
    five_threads_poll_one_connection, "threads", Ring: "
        pair
        warm
        s go a poll 9000 4:in
        s go b poll 9000 4:in
        s go d poll 9000 4:in
        s go e poll 9000 4:in
        s blocked a
        s blocked b
        s blocked d
        s blocked e
        s go f poll 9000 4:in
        s blocked f
        c poll 900 3:in    # until nothing else wakes them
        c send 3 10 1
        s join a
        s join b
        s join d
        s join e
        s join f
        s recv 4 100
    ";
    five_epoll_sets_wait_for_one_connection, "threads", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_create1 0
        s epoll_create1 0
        s epoll_create1 0
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        s epoll_ctl 6 add 4 in
        s epoll_ctl 7 add 4 in
        s epoll_ctl 8 add 4 in
        s epoll_ctl 9 add 4 in
        s go a epoll_wait 5 4 9000
        s go b epoll_wait 6 4 9000
        s go d epoll_wait 7 4 9000
        s go e epoll_wait 8 4 9000
        s blocked a
        s blocked b
        s blocked d
        s blocked e
        s go f epoll_wait 9 4 9000
        s blocked f
        c poll 900 3:in    # until nothing else wakes them
        c send 3 10 1
        s join a
        s join b
        s join d
        s join e
        s join f
        s recv 4 100
    ";
    an_epoll_set_waits_beside_four_threads, "threads", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        s go a poll 9000 4:in
        s go b poll 9000 4:in
        s go d poll 9000 4:in
        s go e poll 9000 4:in
        s blocked a
        s blocked b
        s blocked d
        s blocked e
        s go f epoll_wait 5 4 9000
        s blocked f
        c poll 900 3:in    # until nothing else wakes them
        c send 3 10 1
        s join a
        s join b
        s join d
        s join e
        s join f
        s recv 4 100
    ";
    signals_interrupt_or_restart_a_blocked_call, "signals", Ring: "
        pair
        warm
        s sigaction usr1 count
        s go r recv 4 10
        s blocked r
        s tkill r 10
        s join r
        s signals usr1
        s sigaction usr1 count restart
        s go r recv 4 10
        s blocked r
        s tkill r 10
        s wait_signal usr1
        s blocked r
        c send 3 10 1
        s join r
        s signals usr1
        s sigaction usr1 ignore
        s go r recv 4 10
        s blocked r
        s tkill r 10
        s blocked r
        c send 3 10 1
        s join r
        s sigaction usr1 count restart
        s setsockopt 4 rcvtimeo 3000
        s go r recv 4 10
        s blocked r
        s tkill r 10
        s join r
        s setsockopt 4 rcvtimeo 0
        s go r poll 3000 4:in
        s blocked r
        s tkill r 10
        s join r
        s go r select 3000 r:4
        s blocked r
        s tkill r 10
        s join r
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        s go r epoll_wait 5 4 3000
        s blocked r
        s tkill r 10
        s join r
    ";
    waitall_interrupted_returns_what_it_has, "signals", Ring: "
        pair
        warm
        s sigaction usr1 count
        c send 3 10 1
        s wait_in 4 10
        s go r recv 4 100 waitall
        s blocked r
        s tkill r 10
        s join r
    ";
    an_interval_timer_interrupts, "signals", Ring: "
        pair
        warm
        s sigaction alrm count
        s setitimer 40
        s timed 30 2000 recv 4 10
        s signals alrm
        c send 3 10 1
        s recv 4 100
    ";
}
