//! What waits: bytes that nobody reads for a while, and bytes that were taken back and find no room in the carrier,
//! while their writer sleeps in each kind of wait.

use crate::hand::scripts;

scripts! {
    bytes_that_wait_long_are_whole, "memory of rings", Ring: "
        pair
        warm
        c send 3 1000 1
        c poll 900 3:in
        s recvall 4 1000
        s send 4 10 2
        c recvall 3 10
    ";
    what_found_no_room_goes_on_while_its_writer_reads, "recall: ring full", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go r recv 3 1
        c blocked r
        s setsockopt 4 zerocopy 1
        s recvall 4 60000
        s send 4 1 2
        c join r
    ";
    what_found_no_room_goes_on_while_its_writer_polls, "recall: ring full", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go p poll 9000 3:in
        c blocked p
        s setsockopt 4 zerocopy 1
        s recvall 4 60000
        s send 4 1 2
        c join p
    ";
    what_found_no_room_goes_on_while_its_writer_waits_in_epoll, "recall: ring full", Ring: "
        pair with rcvbuf 10000
        warm
        c epoll_create1 0
        c epoll_ctl 4 add 3 in 7
        c epoll_wait 4 4 0
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go e epoll_wait 4 4 9000
        c blocked e
        s setsockopt 4 zerocopy 1
        s recvall 4 60000
        s send 4 1 2
        c join e
    ";
    what_found_no_room_goes_on_while_its_writer_reads_elsewhere, "recall: exec", Ring: "
        pair with rcvbuf 10000
        warm
        c pipe
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go r read 4 1
        c blocked r
        s exec plain
        s recvall 4 60000
        c write 5 1 2
        c join r
    ";
    what_found_no_room_is_whole_after_a_while, "memory of rings", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go p poll 9000 3:in
        c blocked p
        s exec plain
        s poll 900 3:in
        s recvall 4 60000
        s send 4 1 2
        c join p
    ";
    a_close_of_what_finds_no_room_loses_nothing, "recall: close", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c close 3
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    a_shutdown_of_what_finds_no_room_loses_nothing, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    an_exit_with_what_finds_no_room_loses_nothing, "recall: exit", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c exit 0
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    an_exec_of_the_writer_with_what_finds_no_room_loses_nothing, "recall: exec", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c exec plain
        c getsockopt 3 sndbuf
        cont s
        s recvall 4 60000
    ";
    a_heir_writes_behind_what_found_no_room, "recall: posix_spawn", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c spawn heir plain
        heir send 3 100 2 dontwait
        cont s
        s recvall 4 60000
        heir send 3 100 2
        s recvall 4 100
        heir _exit 0
        c wait heir
    ";
    a_send_behind_what_found_no_room_comes_after_it, "recall: exec", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        c go p poll 9000 3:in
        c blocked p
        s exec plain
        c go w sendall 3 30000 2
        s recvall 4 90000
        s send 4 1 3
        c join p
        c join w
    ";
    what_waits_while_a_vfork_child_has_something_else_there, "recall: exec", Ring: "
        pair
        warm
        c send 3 1000 1
        c vfork_over 3
        s recvall 4 1000
        s send 4 10 2
        c recvall 3 10
    ";
    a_ring_begins_again_behind_what_the_kernel_moved, "sendfile/splice/pread/pwrite", Ring: "
        pair
        warm
        c pipe
        c write 5 300 1
        c splice 4 3 300
        s recvall 4 300
        c go w sendall 3 1500000 2 30000
        s recvall 4 1500000
        c join w
        c sendall 3 1000 3
        s recvall 4 1000
    ";
    a_killed_holder_keeps_no_bytes_back, "recall: close", Ring: "
        pair
        warm
        c fork kid
        kid kill9
        c wait kid
        c send 3 1000 1
        c close 3
        s exec plain
        s recvall 4 1000
        s recv 4 10
    ";
    who_never_waits_hears_of_a_killed_peer, "recall: exit", Ring: "
        pair
        warm
        c send 3 10 1
        s recvall 4 10
        c kill9
        s recv 4 10 dontwait
    ";
    the_end_comes_behind_a_ring_that_was_just_begun, "recall: exit", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 100 1
        s wait_in 4 100
        s splice 4 6 100
        s read 5 100
        c sendall 3 65000 2
        c sendall 3 600 2
        s recvall 4 65600
        c send 3 1000 3
        c kill9
        s recv 4 1000
        s recv 4 10
    ";
}
