//! Control messages: what the kernel tells beside the bytes comes with them, whenever it was asked for.

use crate::hand::scripts;

scripts! {
    bytes_received_by_an_option, "socket options", Ring: "
        pair
        warm
        c listens
        c send 3 300 1
        s wait_in 4 300
        s copied 4 4096
        c send 3 50 2
        s wait_in 4 50
        s recv 4 20
        s copied 4 4096
        s copied 4 4096
        c send 3 10 3
        s wait_in 4 10
        s recv 4 10
    ";
    what_is_left_is_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s setsockopt 4 inq 1
        s getsockopt 4 inq
        s told 4 1
        s told 4 1 peek
        s told 4 1 0 24
        s told 4 1 0 22
        s told 4 1 0 20
        s told 4 1 0 18
        s told 4 1 0 16
        s told 4 1 0 12
        s told 4 1 0 0
        s told 4 1 0 64@unmapped
        s told_each 4 1 2
        c send 3 30 2
        s wait_in 4 39
        s told 4 10 peek
        s told 4 10 dontwait
        s told 4 2 0 24
        s told 4 2 0 22
        s told 4 2 0 18
        s told 4 2 0 12
        s told 4 2 0 0
        s told 4 2 0 64@unmapped
        s told_each 4 4 2 dontwait
        s recv 4 2 dontwait
        s told 4 10 dontwait
        warm
        s go r told 4 300 waitall
        s blocked r
        c send 3 100 1
        c send 3 200 2
        s join r
        s go r told 4 10
        s blocked r
        c send 3 30 1
        s join r
        s told 4 100
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s told 4 10
    ";
    what_is_left_is_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 inq 1
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
        s told 4 10 dontwait
        s send 4 30 1
        c wait_in 3 30
        c told 3 30
    ";
    what_is_left_is_told_when_the_listener_was_asked, "control messages", Either: "
        pair with inq 1
        s getsockopt 4 inq
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 20
    ";
    nothing_is_told_that_nobody_asked_for, "control messages", Ring: "
        pair
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
        s setsockopt 4 peek_off -1
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    times_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestamp 1
        s getsockopt 4 timestamp
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestamp 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    times_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestamp 1
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    new_times_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestamp_new 1
        s getsockopt 4 timestamp_new
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestamp_new 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    new_times_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestamp_new 1
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    times_in_nanoseconds_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestampns 1
        s getsockopt 4 timestampns
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestampns 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    times_in_nanoseconds_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestampns 1
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    new_times_in_nanoseconds_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestampns_new 1
        s getsockopt 4 timestampns_new
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestampns_new 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    new_times_in_nanoseconds_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestampns_new 1
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    times_of_a_kind_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestamping 24
        s getsockopt 4 timestamping
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestamping 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    times_of_a_kind_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestamping 24
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    new_times_of_a_kind_are_told_when_asked_for_late, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestamping_new 24
        s getsockopt 4 timestamping_new
        s times
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 5 peek
        s told 4 5 dontwait
        s told 4 5 0 0
        s told_each 4 5 2
        s told 4 5 dontwait
        s go r told 4 20 waitall
        s blocked r
        c send 3 20 1
        s join r
        warm
        s setsockopt 4 timestamping_new 0
        c send 3 30 1
        s wait_in 4 30
        s told 4 30
    ";
    new_times_of_a_kind_are_told_when_asked_for_first, "control messages", Either: "
        pair
        s setsockopt 4 timestamping_new 24
        s times
        warm
        c send 3 30 1
        s wait_in 4 30
        s told 4 10
        s told 4 10 0 0
        s told_each 4 5 2
    ";
    times_of_what_was_sent_are_told_apart, "control messages", Ring: "
        pair
        warm
        s setsockopt 4 timestamping 2074
        s times
        s send 4 10 1
        s wait_ev 4 err
        s told 4 10 errqueue|dontwait
        s told 4 10 errqueue|dontwait
        s told 4 10 dontwait
        c wait_in 3 10
        c told 3 10
        c send 3 10 1
        s wait_in 4 10
        s told 4 10
        s send 4 10 1
        s wait_ev 4 err
        c send 3 10 1
        s wait_in 4 10
        s told 4 10
        s told 4 10 errqueue|dontwait
        s send 4 10 2
        c recvall 3 20
        c close 3
        s told 4 10
    ";
}
