//! Scripts of what is a service's affair: which calls make a socket the stack's, who holds it, and what it says of itself.

use crate::hand::scripts;

scripts! {
    every_address_is_this_host, "connect", Either: "
        c socket inet
        c connect 3 0.0.0.0:9
        c getsockopt 3 error
        c socket inet6
        c connect 4 [::]:9
        c recv 4 10
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 5 127.0.0.1:%port:s:3
        s accept 3
        c send 5 10 1
        s wait_in 4 10
        s recv 4 20
    ";
    a_listener_and_what_it_is_asked, "listen", Either: "
        s socket inet stream|nonblock
        s bind 3 127.0.0.1:0
        s listen 3 5
        s accept 3
        s fionread 3
        s recv 3 10
        s send 3 10 1 nosignal
        s connect 3 127.0.0.1:9
        s getpeername 3
        s getsockopt 3 type
        s getsockopt 3 error
        s poll 0 3:in|rdhup
        s poll 0 3:in|out
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s fionread 3
        s recv 3 10
        s accept4 3 nonblock|cloexec
        s fcntl 4 getfd
        s accept 3
        s close 3
        c send 3 10 1
        s wait_in 4 10
        s recv 4 20
    ";
    what_is_refused_can_be_tried_again, "connect", Either: "
        c socket inet
        c setsockopt 3 nodelay 1
        c connect 3 127.0.0.1:9
        c connect 3 127.0.0.1:9
        c recv 3 10
        c send 3 10 1 nosignal
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        c getsockopt 3 nodelay
        c send 3 10 1
        s wait_in 4 10
        s recv 4 20
        c shutdown 3 wr
        s recv 4 20
        c shutdown 3 wr
        s shutdown 4 wr
        c recv 3 10
        c shutdown 3 wr
        s shutdown 4 rd
    ";
    what_is_refused_keeps_its_address, "connect", Either: "
        c socket inet
        c bind 3 127.0.0.2:0
        c connect 3 127.0.0.1:9
        c getsockname 3
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c connect 3 127.0.0.1:%port:s:3
        c getsockname 3
        s accept 3
        s getpeername 4
    ";
    what_is_refused_can_be_bound_and_asked_for_options, "connect", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:9
        c setsockopt 3 nodelay 1
        c getsockopt 3 nodelay
        c setsockopt 3 reuseaddr 1
        c bind 3 127.0.0.1:4997
        c getsockname 3
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 nodelay
        s accept 3
        s getpeername 4
        c setsockopt 3 linger 1 0
        c close 3
        c socket inet
        c bind 3 127.0.0.1:4996
        c connect 3 127.0.0.1:9
        c bind 3 127.0.0.1:4995
        c setsockopt 3 keepalive 1
        c getsockopt 3 keepalive
        c getsockname 3
    ";
    a_connection_that_is_dissolved, "connect", Either: "
        pair
        c setsockopt 3 nodelay 1
        s socket inet
        s bind 5 127.0.0.1:0
        s listen 5
        c disconnect 3
        s wait_ev 4 hup
        s recv 4 10
        c getpeername 3
        c recv 3 10
        c recv 3 10
        c send 3 10 1 nosignal
        c getsockopt 3 error
        c disconnect 3
        c getsockopt 3 nodelay
        c connect 3 127.0.0.1:%port:s:5
        s accept 5
        c getpeername 3
        c send 3 10 1
        s wait_in 6 10
        s recv 6 20
        s send 6 10 2
        c wait_in 3 10
        c recv 3 20
        c disconnect 3
        s wait_ev 6 hup
        c getsockopt 3 error
        c getsockopt 3 error
        c connect 3 127.0.0.1:%port:s:5
        s accept 5
        s close 7
        c wait_ev 3 rdhup
        c recv 3 10
    ";
    a_connection_that_carried_much_is_dissolved, "connect", Either: "
        pair
        warm
        c dup 3
        c disconnect 3
        s wait_ev 4 hup
        s recv 4 10
        c send 4 10 1 nosignal
        c recv 3 10
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        c send 3 10 1
        s wait_in 5 10
        s recv 5 20
        warm 4 5
        s close 5
        c wait_ev 3 rdhup
        c recv 3 10
    ";
    what_is_dissolved_keeps_the_address_that_was_asked_for, "connect", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c bind 3 127.0.0.1:4999
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        c disconnect 3
        c getsockname 3
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        s getpeername 5
        c disconnect 3
        s wait_ev 5 hup
        c setsockopt 3 reuseaddr 1
        c bind 3 127.0.0.1:0
    ";
    what_is_dissolved_has_no_port_and_may_listen, "connect", Either: "
        pair
        c disconnect 3
        c getsockname 3
        c listen 3
    ";
    a_listener_that_is_dissolved, "connect", Either: "
        s socket inet
        s setsockopt 3 reuseaddr 1
        s bind 3 127.0.0.1:4998
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:4998
        s wait_ev 3 in
        s disconnect 3
        c wait_ev 3 hup
        c recv 3 10
        s getsockopt 3 error
        s accept 3
        s getsockopt 3 acceptconn
        c socket inet
        c connect 4 127.0.0.1:4998
        s listen 3
        c connect 4 127.0.0.1:4998
        s accept 3
        c send 4 10 1
        s wait_in 4 10
        s recv 4 20
    ";
    a_connection_that_is_not_there_yet_is_dissolved, "connect", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3 0
        s socket inet
        s bind 4 127.0.0.1:0
        s listen 4
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c socket inet stream|nonblock
        c connect 4 127.0.0.1:%port:s:3
        c disconnect 4
        c getsockopt 4 error
        c getsockopt 4 error
        c connect 4 127.0.0.1:%port:s:4
        c wait_ev 4 out
        s accept 4
        c send 4 10 1
        s wait_in 5 10
        s recv 5 20
        s accept 3
        c disconnect 3
        s wait_ev 6 hup
    ";
    what_has_no_connection_is_dissolved, "connect", Either: "
        c socket inet
        c disconnect 3
        c bind 3 127.0.0.1:0
        c disconnect 3
        c connect 3 127.0.0.1:9
        c disconnect 3
        c getsockopt 3 error
        c setsockopt 3 nodelay 1
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 nodelay
        s accept 3
        s shutdown 4 wr
        c wait_ev 3 rdhup
        c shutdown 3 wr
        s recv 4 10
        c disconnect 3
        c recv 3 10
        c getsockopt 3 nodelay
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 nodelay
    ";
    a_connection_that_went_through_another_socket, "SCM_RIGHTS", Either: "
        pair
        c socketpair
        c scm_send 4 3
        c scm_recv 5
        c close 3
        s send 4 10 1
        c wait_in 6 10
        c recvmsg 6 20
        c recvfrom 6 20 dontwait
        c getpeername 6
        c getsockopt 6 domain
        c getsockopt 6 error
        s close 4
        c wait_ev 6 rdhup
        c recvmsg 6 20
        c send 6 10 1 nosignal
        c wait_ev 6 hup
        c recv 6 10
        c send 6 10 1 nosignal
    ";
    what_comes_after_a_shutdown_can_be_read, "shutdown", Either: "
        pair
        c send 3 3000 1
        s wait_in 4 3000
        s shutdown 4 rd
        s recv 4 1000
        c send 3 9000 2
        s wait_in 4 11000
        s fionread 4
        s recv 4 3000 peek
        s recv 4 2000
        s recv 4 100 peek
        s recvmsg 4 100,4000
        s recv 4 5000 waitall
        s fionread 4
        s recv 4 10
        c send 3 10 3
        s wait_in 4 10
        s recv 4 10
        c shutdown 3 wr
        s recv 4 10
        s send 4 10 1
        c wait_in 3 10
        c recv 3 20
        s close 4
        c wait_ev 3 rdhup
        c recv 3 20
    ";
    what_came_after_a_shutdown_and_a_reset, "shutdown", Either: "
        pair
        s shutdown 4 rd
        c send 3 1000 1
        s wait_in 4 1000
        c setsockopt 3 linger 1 0
        c close 3
        s wait_ev 4 hup
        s recv 4 400
        s close 4
    ";
    who_is_shut_both_ways_is_connected, "shutdown", Either: "
        pair
        s shutdown 4 rdwr
        c wait_ev 3 rdhup
        s getpeername 4
        s getsockopt 4 error
        s shutdown 4 rdwr
        s shutdown 4 rd
        s send 4 10 1 nosignal
        s recv 4 10
        s dup 4
        s close 4
        s getpeername 5
        c recv 3 10
        c getsockopt 3 error
        s close 5
        c shutdown 3 wr
        c wait_ev 3 hup
        c getsockopt 3 error
    ";
    octets_that_nobody_wants_to_see, "MSG_TRUNC", Either: "
        pair
        c send 3 3000 1
        s wait_in 4 3000
        s recv 4 1000 trunc|peek
        s recv 4 1000 trunc
        s recvfrom 4 500 trunc
        s recvmsg 4 100,400 trunc
        s recv 4 2000
        c send 3 60000 2
        s wait_in 4 60000
        s recv 4 60000 trunc
        s recv 4 10 trunc|dontwait
        c close 3
        s recv 4 10 trunc
    ";
    who_has_no_number_left_loses_no_connection, "accept, EMFILE", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s nofile 4
        s accept 3
        s accept4 3 nonblock
        s poll 0 3:in
        s nofile 100
        s accept 3
        c send 3 10 1
        s wait_in 4 10
        s recv 4 20
    ";
    options_that_are_set_while_octets_go_by_rings, "TCP_CORK, TCP_NODELAY", Either: "
        pair
        c getsockopt 3 cork
        c getsockopt 3 nodelay
        warm
        c getsockopt 3 cork
        c setsockopt 3 cork 1
        c getsockopt 3 cork
        c getsockopt 3 nodelay
        c send 3 10 1
        c send 3 2000 2
        c setsockopt 3 nodelay 1
        c getsockopt 3 nodelay
        s recvall 4 2010
        c setsockopt 3 cork 0
        c getsockopt 3 cork
        c setsockopt 3 nodelay 0
        c setsockopt 3 cork 1
        c send 3 10 3
        c setsockopt 3 cork 0
        s recvall 4 10
        c setsockopt 3 cork 7
        c getsockopt 3 cork
        c setsockopt 3 nodelay -1
        c getsockopt 3 nodelay
        c send 3 10 4
        c shutdown 3 wr
        c setsockopt 3 cork 0
        c getsockopt 3 cork
        s recvall 4 10
        s recv 4 10
        c setsockopt 3 nodelay 0
        c getsockopt 3 nodelay
        s setsockopt 4 cork 1
        s send 4 10 5
        s close 4
        c recv 3 10
        c recv 3 10
    ";
    options_that_a_child_sets_while_octets_go_by_rings, "TCP_CORK, TCP_NODELAY", Either: "
        pair
        warm
        s setsockopt 4 cork 1
        s fork kid
        kid getsockopt 4 cork
        kid send 4 10 1
        s send 4 10 2
        kid setsockopt 4 cork 0
        c wait_in 3 20
        c recv 3 100
        s getsockopt 4 cork
        kid setsockopt 4 nodelay 1
        s getsockopt 4 nodelay
        kid exit 0
        s wait kid
        s getsockopt 4 nodelay
        s setsockopt 4 nodelay 0
        warm
    ";
    an_heir_has_the_options_that_were_set_before, "recall: exec", Either: "
        pair
        warm
        s setsockopt 4 cork 1
        s setsockopt 4 nodelay 1
        s send 4 10 1
        s exec same
        s getsockopt 4 cork
        s getsockopt 4 nodelay
        s setsockopt 4 cork 0
        s send 4 10 2
        s getsockopt 4 cork
        c wait_in 3 20
        c recv 3 100
    ";
    urgent_octets_wake_who_waits, "POLLPRI, epoll, select", Either: "
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
        s fionread 4
        s poll 0 4:in|pri
        s epoll_create1 0
        s epoll_ctl 5 add 4 pri 4
        s epoll_wait 5 4 0
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 3 3 oob
        s join e
        s select 0 r:4 e:4
        s recv 4 1 oob
        s epoll_wait 5 4 0
        s recv 4 10
        s go r recv 4 10
        s blocked r
        c send 3 3 4
        s join r
    ";
    who_asks_for_urgent_octets_first_has_them_in_line, "SO_OOBINLINE before connect", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c setsockopt 3 oobinline 1
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 oobinline
        s accept 3
        s send 4 5 1 oob
        s send 4 5 2
        c wait_ev 3 pri
        c wait_in 3 10
        c fionread 3
        c recv 3 10
        c atmark 3
        c recv 3 10
        c atmark 3
        c recv 3 1 oob
    ";
    urgent_octets_of_those_who_have_rings, "MSG_OOB", Either: "
        pair
        s go warm echo 4 64 200
        c ping 3 64 200
        s join warm
        c send 3 10 1
        c send 3 5 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s recv 4 100
        s recv 4 1 oob
        s recv 4 100
        s send 4 5 2 oob
        c wait_ev 3 pri
        c recv 3 100
        c recv 3 1 oob
        s go warm echo 4 64 200
        c ping 3 64 200
        s join warm
        c send 3 7 6 oob
        s wait_ev 4 pri
        s recv 4 100
        s recv 4 1 oob
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s recv 4 100
    ";
    port_0_refuses, "connect", Either: "
        c socket inet
        c connect 3 127.0.0.1:0
        c getsockopt 3 error
        c socket inet stream|nonblock
        c connect 4 127.0.0.1:0
        c wait_ev 4 hup
        c getsockopt 4 error
        c getpeername 4
        c socket inet6
        c connect 5 [::1]:0
    ";
    options_that_are_told_without_waiting, "TCP_CORK, TCP_NODELAY", Either: "
        pair
        s setsockopt 4 cork 1
        s getsockopt 4 cork
        s send 4 10 1
        s setsockopt 4 nodelay 1
        c recvall 3 10
        s getsockopt 4 nodelay
        s setsockopt 4 cork 0
        s getsockopt 4 cork
        s setsockopt 4 cork 1
        s send 4 10 2
        s setsockopt 4 cork 0
        s setsockopt 4 cork 1
        c recvall 3 10
        s fork kid
        kid getsockopt 4 nodelay
        kid getsockopt 4 cork
        kid setsockopt 4 cork 0
        s getsockopt 4 cork
        kid setsockopt 4 cork 1
        kid send 4 10 3
        s send 4 10 4
        s setsockopt 4 cork 0
        c recvall 3 20
        kid exit 0
        s wait kid
        c setsockopt 3 nodelay 1
        c getsockopt 3 nodelay
        c close 3
        s recv 4 10
        s setsockopt 4 nodelay 0
        s setsockopt 4 cork 1
        s close 4
    ";
    options_of_what_a_child_accepts, "TCP_CORK, TCP_NODELAY", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        s fork kid
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        kid accept 3
        kid setsockopt 4 cork 1
        kid send 4 10 1
        kid setsockopt 4 keepalive 1
        kid getsockopt 4 keepalive
        kid setsockopt 4 cork 0
        c recvall 3 10
        kid getsockopt 4 cork
        kid exit 0
        s wait kid
        c recv 3 10
    ";
}
