//! Datagrams one by one: every call, every size, what is cut, what stays.

use crate::hand::scripts;

scripts! {
    datagrams_there_and_back, "IPv4", Ring: "
        dgrams 127.0.0.1
        c sendto 3 14 1 0 @s:3
        s receive 3 100
        s receive 3 100 dontwait
        pings
        c sendto 3 14 2 0 @s:3
        c sendto 3 15 3 0 @s:3
        s receive 3 100
        s receive 3 100
        s receive 3 100 dontwait
        s sendto 3 16 4 0 @c:3
        c receive 3 100
        c receive 3 100 dontwait
        c close 3
        s close 3
    ";
    both_ends_are_connected, "connected or not", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        s connect 3 @c:3
        pings -
        c send 3 14 2
        s recv 3 100
        s send 3 15 3
        c receive 3 100
        c getpeername 3
        s getpeername 3
        c sendto 3 16 4 0 @s:3
        s receive 3 100
        c recv 3 100 dontwait
    ";
    whole_datagrams_of_any_size, "any size", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 1 1 0 @s:3
        s receive 3 70000
        c sendto 3 1400 2 0 @s:3
        s receive 3 70000
        c sendto 3 9000 3 0 @s:3
        s receive 3 70000
        c sendto 3 32768 4 0 @s:3
        s receive 3 70000
        c sendto 3 65507 5 0 @s:3
        s fionread 3
        s receive 3 70000
        c sendto 3 65508 6 0 @s:3
        c sendto 3 100000 6 0 @s:3
        s receive 3 70000 dontwait
        c sendto 3 60000 7 0 @s:3
        c sendto 3 60000 8 0 @s:3
        c sendto 3 20 9 0 @s:3
        s receive 3 70000
        s receive 3 70000
        s receive 3 70000
        pings
    ";
    empty_datagrams, "zero length", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 0 1 0 @s:3
        s poll 0 3:in
        s fionread 3
        s receive 3 100
        s poll 0 3:in
        c sendto 3 0 1 0 @s:3
        c sendto 3 0 1 0 @s:3
        c sendto 3 5 1 0 @s:3
        s read 3 100
        s receive_msg 3 10 0 64
        s fionread 3
        s recv 3 0
        s recv 3 10 dontwait
        c connect 3 @s:3
        c send 3 0 1
        c write 3 0 1
        c writev 3 0 1
        s receive 3 10 dontwait
        s receive 3 10 dontwait
        s receive 3 10 dontwait
        s receive 3 10 dontwait
    ";
    what_does_not_fit_is_cut, "MSG_TRUNC", Ring: "
        dgrams 127.0.0.1
        pings
        c sendto 3 1000 1 0 @s:3
        c sendto 3 1000 2 0 @s:3
        c sendto 3 1000 3 0 @s:3
        c sendto 3 1000 4 0 @s:3
        c sendto 3 1000 5 0 @s:3
        c sendto 3 50000 6 0 @s:3
        s receive 3 100
        s recv 3 100 trunc
        s receive_msg 3 100,200
        s receive_msg 3 100,200 trunc
        s receive_msg 3 0
        s receive 3 60000 trunc
        s receive 3 100 dontwait
        c sendto 3 1000 7 0 @s:3
        c sendto 3 1000 8 0 @s:3
        s receive_many 3 10,2000 0
    ";
    peeked_datagrams_stay, "MSG_PEEK", Ring: "
        dgrams 127.0.0.1
        pings
        s receive 3 10 peek|dontwait
        c sendto 3 100 1 0 @s:3
        c sendto 3 200 2 0 @s:3
        s receive 3 1000 peek
        s receive 3 10 peek|trunc
        s receive_msg 3 10,20 peek 64
        s fionread 3
        s receive_many 3 300,300 peek|dontwait
        s receive 3 1000
        s receive 3 1000 peek|dontwait
        c sendto 3 300 3 0 @s:3
        s receive 3 1000 peek
        s receive 3 1000
        s receive 3 1000
        s receive 3 1000 peek|dontwait
        c sendto 3 0 3 0 @s:3
        s receive 3 1000 peek
        s receive 3 1000
        s receive 3 1000 dontwait
    ";
    peeking_walks_on, "MSG_PEEK", Either: "
        dgrams 127.0.0.1
        pings
        s setsockopt 3 peek_off 0
        c sendto 3 100 1 0 @s:3
        c sendto 3 100 2 0 @s:3
        s receive 3 40 peek
        s receive 3 40 peek
        s receive 3 40 peek
        s receive 3 100
        s receive 3 100 peek
        s receive 3 100
        s receive 3 100 peek|dontwait
    ";
    every_call_sends, "every libc entry", Ring: "
        dgrams 127.0.0.1
        pings
        c connect 3 @s:3
        c send 3 10 1
        c sendto 3 11 2 0
        c write 3 12 3
        c writev 3 5,6,2 4
        c sendmsg 3 6,8 5
        c sendmmsg 3 15,16 6
        c send_msg 3 17 7 0 -
        c send_msg 3 18 8 0 @s:3
        c send_many 3 19,20,0,21 9 0 -
        c send_many 3 22,23 10 0 @s:3
        s read 3 100
        s recv 3 100
        s recvfrom 3 100
        s readv 3 5,100
        s recvmsg 3 100
        s recvmmsg 3 100,100 dontwait
        s receive 3 100
        s receive_msg 3 50,50 0 0
        s receive_many 3 100,100,100 dontwait
        s receive_many 3 100,100,100,100,100 dontwait
        s read 3 0
        s receive_many 3 100,100 dontwait
        s fcntl 3 setfl nonblock
        s read 3 100
        s readv 3 5,100
        s receive_many 3 100 0
    ";
    many_in_one_call, "every libc entry", Ring: "
        dgrams 127.0.0.1
        pings
        c send_many 3 10,20,30 1 0 @s:3
        s receive_many 3 100,100 0
        s receive_many 3 100,100 waitforone
        c send_many 3 10,20,30 1 0 @s:3
        s receive_many 3 100,100,100,100 waitforone
        c send_many 3 10,65508,30 1 0 @s:3
        s receive_many 3 100,100,100,100 dontwait
        c send_many 3 65508,30 1 0 @s:3
        s receive_many 3 100,100,100,100 dontwait
        s go many receive_many 3 100,100,100 0
        s blocked many
        c send_many 3 10,20,30 1 0 @s:3
        s join many
        c sendto 3 10 1 0 @s:3
        s timed 0 900 receive_many 3 100,100 waitforone
    ";
    scattered_and_gathered, "scatter/gather", Ring: "
        dgrams 127.0.0.1
        pings
        c send_msg 3 1,0,1000,3,400 1 0 @s:3
        c send_msg 3 0,0 1 0 @s:3
        c send_msg 3 1000,1000,1000 1 0 @s:3
        s receive_msg 3 700,0,1,2000
        s receive_msg 3 10,10
        s receive_msg 3 0,1,2,3
        c send_msg 3 30000,30000,5507 1 0 @s:3
        c send_msg 3 30000,30000,5508 1 0 @s:3
        s receive_msg 3 1,65535,10
        s receive_msg 3 1,65535 dontwait
    ";
    bad_pointers_change_nothing, "every libc entry", Either: "
        dgrams 127.0.0.1
        pings
        c connect 3 @s:3
        c send 3 10@none 1
        c send 3 10@unmapped 1
        c write 3 10@null 1
        c send 3 100@edge 1
        c send 3 10 1
        s recv 3 10@none dontwait
        s recv 3 10@none dontwait
        c send 3 20 1
        s recv 3 20@readonly peek
        s recv 3 20
        s recv 3 20 dontwait
    ";
    nobody_waits_for_what_is_not_there, "non-blocking", Ring: "
        dgrams 127.0.0.1
        pings
        s recv 3 10 dontwait
        s fcntl 3 setfl nonblock
        s recv 3 10
        s receive_msg 3 10
        c sendto 3 10 1 0 @s:3
        s recv 3 10
        s recv 3 10
        s fionbio 3 0
        c sendto 3 10 2 0 @s:3
        s recv 3 10
        s recv 3 10 dontwait
        s socket inet dgram|nonblock|cloexec
        s bind 4 127.0.0.1:0
        s recv 4 10
        c sendto 3 10 3 0 127.0.0.1:%port:s:4
        s recv 4 10
        s recv 4 10
    ";
    a_wait_ends_in_time, "SO_RCVTIMEO", Ring: "
        dgrams 127.0.0.1
        pings
        s setsockopt 3 rcvtimeo 60
        s getsockopt 3 rcvtimeo
        s timed 50 400 recv 3 10
        s timed 50 400 receive_many 3 10,10 0
        c sendto 3 10 1 0 @s:3
        s timed 0 40 recv 3 10
        s timed 50 400 receive_msg 3 10
        s setsockopt 3 rcvtimeo 0
        s go waits recv 3 10
        s blocked waits
        c sendto 3 10 2 0 @s:3
        s join waits
    ";
    what_can_be_asked_of_a_socket, "ioctl", Ring: "
        dgrams 127.0.0.1
        pings
        s fionread 3
        c sendto 3 10 1 0 @s:3
        c sendto 3 20 1 0 @s:3
        s fionread 3
        s recv 3 5
        s fionread 3
        s recv 3 5
        s fionread 3
        s outq 3
        c outq 3
        c atmark 3
        c getsockopt 3 type
        c getsockopt 3 domain
        c getsockopt 3 error
        c getsockopt 3 acceptconn
        c listen 3
        c accept 3
        c sendto 3 10 1 oob @s:3
        s recv 3 10 oob|dontwait
        s recv 3 10 waitall|dontwait
        c sendto 3 10 1 nosignal @s:3
        s recv 3 100 waitall
    ";
    nothing_is_urgent, "every libc entry", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 20 2 0 @s:3
        c send 3 10 1 oob
        c send_msg 3 10 1 oob -
        c send_many 3 10,20 1 oob -
        s recv 3 100 oob|dontwait
        s receive 3 100 oob
        s recv 3 100 oob|dontwait
        c send 3 30 3
        s recv 3 100 oob
        c send 3 40 4
        s receive_msg 3 100 oob
        c send 3 50 5
        s receive_many 3 100 oob
        s go waits recv 3 100 oob
        s blocked waits
        c send 3 60 6
        s join waits
        s recv 3 100 dontwait
        pings -
    ";
    calls_that_nobody_sees, "un-hooked calls", Either: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        c send 3 10 1
        s raw_read 3 100
        c raw_write 3 20 2
        s recv 3 100
        c raw_write 3 30 3
        s raw_read 3 100
        pings -
        c raw_write 3 40 4
        s recv 3 100
        s sendto 3 10 5 0 @c:3
        c recv 3 100
        s raw_close 3
        c send 3 10 1
        c recv 3 10 dontwait
    ";
}
