//! Moving bytes: sends and receives of every spelling, flags, sizes and pointers.

use crate::hand::scripts;

scripts! {
    every_spelling_of_send_and_receive_moves_the_bytes, "every libc entry", Ring: "
        pair
        warm
        c write 3 100 1
        s wait_in 4 100
        s read 4 200
        c writev 3 10,0,30,7 2
        s wait_in 4 47
        s readv 4 5,0,40,100
        c send 3 300 3
        s wait_in 4 300
        s recv 4 300
        c sendto 3 50 4 0
        s wait_in 4 50
        s recvfrom 4 60
        c sendmsg 3 11,22,33 5
        s wait_in 4 66
        s recvmsg 4 1,2,3,100
        c sendmmsg 3 10,20,30 6
        s wait_in 4 60
        s recvmmsg 4 15,15,15 waitforone
        s recv 4 100
        s send 4 77 7
        c wait_in 3 77
        c preadv2 3 20,100
    ";
    sendto_ignores_the_address_of_a_connected_socket, "every libc entry", Ring: "
        pair
        warm
        c sendto 3 20 1 0 127.0.0.1:9
        s wait_in 4 20
        s recvfrom 4 100
    ";
    a_receive_returns_what_is_there, "partial reads and writes", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 30
        s recv 4 30
        s fionread 4
        s recv 4 1000
        s recv 4 10 dontwait
        c send 3 10 2
        c send 3 20 3
        s wait_in 4 30
        s recv 4 25
        s recv 4 25
    ";
    a_full_path_takes_a_part_and_then_says_eagain, "partial reads and writes", Ring: "
        pair
        warm
        c fcntl 3 setfl nonblock
        c fillup 3 5
        c poll 0 3:out
        s go read verify 4 5
        c wait_ev 3 out
        c shutdown 3 wr
        s join read
    ";
    a_non_blocking_send_larger_than_any_buffer_is_partial, "partial reads and writes", Ring: "
        pair
        warm
        s go read verify 4 5
        c fcntl 3 setfl nonblock
        c sendall 3 12000000 5 12000000
        c shutdown 3 wr
        s join read
    ";
    a_peek_before_the_upgrade_counts_nothing, "MSG_PEEK", Ring: "
        pair
        c send 3 10 1
        s wait_in 4 10
        s recv 4 10 peek
        s recv 4 100
        warm
        c send 3 100 2
        s recvall 4 100
    ";
    peek_leaves_the_bytes, "MSG_PEEK", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 50 peek
        s recv 4 50 peek
        s recvmsg 4 20,20 peek
        s recvfrom 4 1000 peek
        s fionread 4
        s recv 4 100
        s recv 4 10 peek|dontwait
        s go r recv 4 10 peek
        s blocked r
        c send 3 5 2
        s join r
        s recv 4 10
        c shutdown 3 wr
        s recv 4 10 peek
        s recv 4 10
    ";
    peek_shows_what_stands_in_a_ring_behind_the_kernels_bytes, "MSG_PEEK", Ring: "
        pair
        warm
        s pipe
        c send 3 100 1
        s wait_in 4 100
        c listens
        s splice 4 6 100
        s read 5 100
        c sendall 3 66000 2
        s recvall 4 65900
        c send 3 1000 3
        s wait_in 4 1100
        s recv 4 2000 peek
        s recv 4 500 peek
        s recvall 4 1100
        s recv 4 10 peek|dontwait
    ";
    waitall_waits_for_all_of_it, "MSG_WAITALL", Ring: "
        pair
        warm
        c send 3 10 1
        s go r recv 4 30 waitall
        s blocked r
        c send 3 10 2
        s blocked r
        c send 3 15 3
        s join r
        s recv 4 100
        c send 3 7 4
        s go r recv 4 30 waitall
        s blocked r
        c shutdown 3 wr
        s join r
        s recv 4 30 waitall
    ";
    waitall_of_more_than_a_ring_holds, "MSG_WAITALL", Ring: "
        pair
        warm
        s go r recv 4 3000000 waitall
        c sendall 3 3000000 9 50000
        s join r
        s go r readv 4 100,200
        s blocked r
        c send 3 250 1
        s join r
    ";
    waitall_with_peek, "MSG_WAITALL", Ring: "
        pair
        warm
        c send 3 40 1
        s wait_in 4 40
        s go r recv 4 80 waitall|peek
        s blocked r
        c send 3 40 2
        s join r
        s recv 4 100
    ";
    waitall_with_peek_waits_behind_the_kernels_bytes, "MSG_WAITALL", Ring: "
        pair
        warm
        s pipe
        c send 3 100 1
        s wait_in 4 100
        c listens
        s splice 4 6 100
        s read 5 100
        c send 3 40 2
        s wait_in 4 40
        s go r recv 4 80 waitall|peek
        s blocked r
        c send 3 40 3
        s join r
        s setsockopt 4 rcvtimeo 60
        s timed 50 1500 recv 4 200 waitall|peek
        s setsockopt 4 rcvtimeo 0
        s go r recv 4 200 waitall|peek
        s blocked r
        c shutdown 3 wr
        s join r
        s recvall 4 80
        s recv 4 10
    ";
    waitall_with_peek_ends_in_time, "MSG_WAITALL", Ring: "
        pair
        warm
        s setsockopt 4 rcvtimeo 60
        c send 3 40 1
        s wait_in 4 40
        s timed 50 1500 recv 4 80 waitall|peek
        s timed 50 1500 recv 4 80 waitall|peek
        s recv 4 100
        s timed 50 1500 recv 4 80 waitall|peek
        c send 3 80 2
        s wait_in 4 80
        s recv 4 80 waitall|peek
        s setsockopt 4 rcvtimeo 0
        s go r recv 4 200 waitall|peek
        s blocked r
        c shutdown 3 wr
        s join r
        s recv 4 100
        s recv 4 100
    ";
    waitall_does_not_wait_when_told_not_to, "MSG_WAITALL", Ring: "
        pair
        warm
        c send 3 10 1
        s wait_in 4 10
        s recv 4 30 waitall|dontwait
        s recv 4 30 waitall|dontwait
    ";
    dontwait_does_not_wait, "MSG_DONTWAIT", Ring: "
        pair
        warm
        s recv 4 10 dontwait
        s recvmsg 4 10 dontwait
        s recvmmsg 4 10,10 dontwait
        s fcntl 4 getfl
        c send 3 10 1 dontwait
        s wait_in 4 10
        s recv 4 10 dontwait
        s recv 4 10 dontwait
    ";
    trunc_discards_without_a_copy, "MSG_TRUNC", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 40 trunc
        s recv 4 30@null trunc
        s recv 4 1000
        s recv 4 10 trunc|dontwait
        c send 3 50 2
        s wait_in 4 50
        s recv 4 20 trunc|peek
        s recv 4 100
    ";
    sigpipe_is_raised_or_not_as_asked, "MSG_NOSIGNAL and SIGPIPE", Ring: "
        pair
        warm
        c sigaction pipe count
        s close 4
        c wait_ev 3 rdhup
        c send 3 10 1 nosignal
        c wait_ev 3 err|hup
        c send 3 10 1 nosignal
        c signals pipe
        c send 3 10 1
        c signals pipe
        c write 3 10 1
        c signals pipe
        c sendmsg 3 10,10 1 nosignal
        c signals pipe
        c writev 3 10,10 1
        c signals pipe
    ";
    sigpipe_kills_by_default, "MSG_NOSIGNAL and SIGPIPE", Ring: "
        pair
        warm
        c shutdown 3 wr
        c send 3 1 1 nosignal
        c fork kid
        kid send 3 10 1
        c wait kid
    ";
    sigpipe_after_own_shutdown, "MSG_NOSIGNAL and SIGPIPE", Ring: "
        pair
        warm
        c sigaction pipe count
        c shutdown 3 wr
        c send 3 10 1
        c signals pipe
        c send 3 0 1
        c write 3 0 1
        c signals pipe
        s recv 4 10
    ";
    vectors_scatter_and_gather, "scatter/gather", Ring: "
        pair
        warm
        c writev 3 1,2,3,4,5,6,7,8,9,10,0,0,50000 1
        s wait_in 4 50055
        s readv 4 10,9,8,7,0,5,4,3,2,1,50
        s readv 4 1
        s recvall 4 49955
        c iov_count writev 3 1024
        s wait_in 4 1024
        s iov_count readv 4 1024
        c iov_count writev 3 1025
        s iov_count readv 4 1025
        c iov_count writev 3 -1
        c iov_count writev 3 0
        s iov_count readv 4 0
        c iov_huge 3
        s fionread 4
    ";
    who_is_connected_cannot_connect_by_sending, "every libc entry", Ring: "
        pair
        warm
        c send 3 5 1
        c send 3 7 2 fastopen
        c sendto 3 7 2 fastopen
        s wait_in 4 5
        s recv 4 100
        c send 3 5 3
        s recv 4 5
    ";
    zero_length_calls_do_nothing, "zero length", Ring: "
        pair
        warm
        c send 3 0 1
        c write 3 0 1
        c writev 3 0,0 1
        c sendmsg 3 0 1
        s recv 4 10 dontwait
        s read 4 0
        s readv 4 0,0
        s preadv2 4 0,0
        s recv 4 0 dontwait
        s go r recv 4 0
        s blocked r
        c send 3 5 1
        s join r
        s wait_in 4 5
        s recv 4 0
        s read 4 0
        s recv 4 0 peek
        s recvmsg 4 0
        s read 4 0@null
        s recv 4 10
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s recv 4 0
        s read 4 0
        s recv 4 10
    ";
    bad_pointers_to_data_are_efault, "bad pointers (EFAULT)", Ring: "
        pair
        warm
        c send 3 10@null 1
        c send 3 10@one 1
        c send 3 10@kernel 1
        c send 3 10@noncanonical 1
        c send 3 10@none 1
        c send 3 10@unmapped 1
        c write 3 100@none 1
        c writev 3 10@none,10 1
        c sendmsg 3 10@unmapped 1
        s recv 4 10 dontwait
        c send 3 100 1
        s wait_in 4 100
        s recv 4 10@null
        s recv 4 10@one
        s recv 4 10@kernel
        s recv 4 10@noncanonical
        s recv 4 10@none
        s recv 4 10@unmapped
        s recv 4 10@readonly
        s read 4 10@none
        s readv 4 10@none
        s recvmsg 4 10@unmapped
        s recv 4 10@null peek
        s fionread 4
        s recv 4 200
        s recv 4 10@none dontwait
    ";
    a_buffer_that_ends_in_the_void_is_efault_or_partial, "bad pointers (EFAULT)", Ring: "
        pair
        warm
        c send 3 20@edge 1
        s recv 4 10 dontwait
        c send 3 100 1
        s wait_in 4 100
        s recv 4 60@edge
        s recv 4 200
    ";
    bad_pointers_to_structures_are_efault, "bad pointers (EFAULT)", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        c send 3 10 1
        s wait_in 4 10
        s bad_poll null
        s bad_poll none
        s bad_poll kernel
        s bad_poll unmapped
        s bad_select none
        s bad_select kernel
        s bad_sendmsg 4 null
        s bad_sendmsg 4 none
        s bad_recvmsg 4 kernel
        s bad_recvmsg 4 unmapped
        s bad_recvmsg 4 null
        s bad_iov 4 none
        s bad_iov 4 null
        s bad_readv 4 unmapped
        s bad_readv 4 null
        s bad_writev 4 kernel
        s bad_writev 4 none
        s bad_epoll_wait 5 none
        s bad_epoll_wait 5 unmapped
        s bad_epoll_ctl 5 4 none
        s bad_epoll_ctl 5 4 null
        s bad_fionread 4 null
        s bad_fionread 4 none
        s bad_fionbio 4 unmapped
        s bad_getsockopt 4 none
        s bad_getsockopt 4 null
        s bad_setsockopt 4 none
        s bad_getsockname 4 unmapped
        s bad_connect 4 null
        s recv 4 100
    ";
    non_blocking_descriptors_do_not_wait, "O_NONBLOCK and SOCK_NONBLOCK", Ring: "
        s socket inet stream|nonblock
        s bind 3 127.0.0.1:0
        s listen 3
        s accept 3
        c socket inet stream|nonblock|cloexec
        c connect 3 127.0.0.1:%port:s:3
        c wait_ev 3 out
        c getsockopt 3 error
        s accept4 3 nonblock
        c fcntl 3 setfl 0
        s fcntl 4 setfl 0
        warm
        s fcntl 4 setfl nonblock
        s recv 4 10
        s read 4 10
        s fcntl 4 getfl
        s fcntl 4 setfl 0
        s go r recv 4 10
        s blocked r
        c send 3 10 1
        s join r
        s fionbio 4 1
        s recv 4 10
        s fcntl 4 getfl
        s fionbio 4 0
        s go r read 4 10
        s blocked r
        c send 3 10 1
        s join r
    ";
    a_thread_that_waits_is_not_touched_by_nonblock, "O_NONBLOCK and SOCK_NONBLOCK", Ring: "
        pair
        warm
        s go r recv 4 10
        s blocked r
        s fcntl 4 setfl nonblock
        s blocked r
        c send 3 10 1
        s join r
        s recv 4 10
    ";
    receive_timeouts_end_in_time, "SO_RCVTIMEO/SNDTIMEO", Ring: "
        pair
        warm
        s setsockopt 4 rcvtimeo 60
        s getsockopt 4 rcvtimeo
        s timed 50 1000 recv 4 10
        s timed 50 1000 read 4 10
        s timed 50 1000 recvmsg 4 10
        c send 3 5 1
        s timed 0 50 recv 4 10
        c send 3 5 1
        s wait_in 4 5
        s timed 50 1000 recv 4 10 waitall
        s timed 0 50 recv 4 10 dontwait
        s setsockopt 4 rcvtimeo 0
        s go r recv 4 10
        s blocked r
        c send 3 5 1
        s join r
    ";
    send_timeouts_end_in_time, "SO_RCVTIMEO/SNDTIMEO", Ring: "
        pair
        warm
        c setsockopt 3 sndtimeo 60
        c fillup 3 1
        c timed 50 2000 send 3 100000 1
        c setsockopt 3 sndtimeo 0
        c go w send 3 100000 1
        c blocked w
        s go r drain_any 4
        c join w
        c shutdown 3 wr
        s join r
    ";
    low_water_mark_delays_readiness, "SO_RCVLOWAT", Ring: "
        pair
        warm
        s setsockopt 4 rcvlowat 100
        s getsockopt 4 rcvlowat
        c send 3 40 1
        s wait_in 4 40
        s poll 0 4:in
        s select 0 r:4
        s recv 4 1000 dontwait
        s go r recv 4 1000
        s blocked r
        c send 3 60 2
        s blocked r
        c send 3 40 2
        s join r
        c send 3 99 1
        s wait_in 4 99
        s poll 0 4:in
        c send 3 1 1
        s wait_in 4 100
        s poll 1000 4:in
        s setsockopt 4 rcvlowat 1
        s recv 4 10
        s poll 0 4:in
        s recv 4 1000
        s poll 0 4:in
        s setsockopt 4 rcvlowat 0
        s getsockopt 4 rcvlowat
        s setsockopt 4 rcvlowat -1
        s getsockopt 4 rcvlowat
    ";
    low_water_mark_that_is_lowered_wakes_a_wait, "SO_RCVLOWAT", Ring: "
        pair
        s epoll_create1 0
        s epoll_ctl 5 add 4 in
        s epoll_wait 5 4 0
        warm
        s setsockopt 4 rcvlowat 1000
        c send 3 500 1
        s wait_in 4 500
        s epoll_wait 5 4 0
        s go w epoll_wait 5 4 5000
        s blocked w
        s setsockopt 4 rcvlowat 1
        s join w
        s recv 4 1000
    ";
    low_water_mark_that_is_lowered_is_an_edge, "SO_RCVLOWAT", Ring: "
        pair
        s epoll_create1 0
        s epoll_ctl 5 add 4 in|et
        s epoll_wait 5 4 0
        warm
        s epoll_wait 5 4 0
        s setsockopt 4 rcvlowat 1000
        c send 3 500 1
        s wait_in 4 500
        s epoll_wait 5 4 0
        s setsockopt 4 rcvlowat 1
        s epoll_wait 5 4 1000
        s epoll_wait 5 4 0
        s setsockopt 4 rcvlowat 2
        s epoll_wait 5 4 1000
        s recv 4 1000
        s setsockopt 4 rcvlowat 1
        s epoll_wait 5 4 0
    ";
    low_water_mark_above_a_ring, "SO_RCVLOWAT", Ring: "
        pair
        warm
        s setsockopt 4 rcvlowat 300000
        s go r poll 5000 4:in
        c sendall 3 20000 1 20000
        s blocked r
        c sendall 3 380000 2 20000
        s join r
        s setsockopt 4 rcvlowat 1
        s recvall 4 400000
    ";
    writes_of_any_size_arrive, "writes of any size", Ring: "
        pair
        warm
        s go r recvall 4 11403037
        c sendall 3 3000 1 1
        c sendall 3 400000 2 37
        c sendall 3 1000000 3 65537
        c write 3 10000000 4
        c send 3 37 5
        s join r 20000
    ";
}
