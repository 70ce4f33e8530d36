//! Scripts of connections as they begin, over a link: calls that nobody takes, listeners, names, options; and datagrams.

use crate::hand::scripts;

scripts! {
    a_call_that_nobody_takes, "refused", Either: "
        c socket inet
        c connect 3 127.0.0.1:9
        c getsockopt 3 error
        c poll 0 3:in|out|rdhup
        c connect 3 127.0.0.1:9
        c send 3 10 1 nosignal
        c recv 3 10
        c shutdown 3 wr
        c getpeername 3
        c socket inet6
        c connect 4 [::1]:9
        c recv 4 10
        c close 3
        c close 4
    ";
    a_call_over_ipv6_that_nobody_takes, "refused", Either: "
        c socket inet6
        c connect 3 [::1]:9
        c getsockopt 3 error
        c recv 3 10
    ";
    a_call_that_nobody_takes_and_nobody_waits_for, "refused", Either: "
        c socket inet stream|nonblock
        c connect 3 127.0.0.1:9
        c wait_ev 3 err|hup
        c poll 0 3:in|out|rdhup
        c connect 3 127.0.0.1:9
        c poll 0 3:in|out|rdhup
        c getsockopt 3 error
        c socket inet stream|nonblock
        c connect 4 127.0.0.1:9
        c wait_ev 4 err|hup
        c getsockopt 4 error
        c getsockopt 4 error
        c recv 4 10
        c send 4 10 1 nosignal
        c socket inet stream|nonblock
        c connect 5 127.0.0.1:9
        c wait_ev 5 err|hup
        c recv 5 10
        c recv 5 10
        c send 5 10 1 nosignal
    ";
    a_call_that_is_not_waited_for, "connect", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet stream|nonblock
        c connect 3 127.0.0.1:%port:s:3
        c wait_ev 3 out
        c poll 0 3:in|out|rdhup
        c getsockopt 3 error
        c connect 3 127.0.0.1:%port:s:3
        c connect 3 127.0.0.1:%port:s:3
        c getpeername 3
        s accept 3
        c recv 3 10
        s send 4 10 1
        c wait_in 3 10
        c recv 3 20
        c fcntl 3 getfl
        s fcntl 4 getfl
    ";
    a_called_socket_that_waits_in_epoll, "connect", Either: "
        s socket inet stream|nonblock
        s bind 3 127.0.0.1:0
        s listen 3
        s epoll_create1 0
        s epoll_ctl 4 add 3 in 3
        s epoll_wait 4 4 0
        s go e epoll_wait 4 4 5000
        s blocked e
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s join e
        s accept 3
        s accept 3
        s epoll_wait 4 4 0
        s epoll_ctl 4 add 5 in|out|rdhup|et 5
        s epoll_edges 4 4 0
        c send 3 100 1
        s wait_in 5 100
        s recv 5 100
        c close 3
        s wait_ev 5 rdhup
        s recv 5 10
    ";
    who_is_not_connected, "every call on a new socket", Either: "
        c socket inet
        c getsockname 3
        c getpeername 3
        c recv 3 10
        c recv 3 10 peek
        c send 3 10 1 nosignal
        c shutdown 3 rd
        c shutdown 3 wr
        c accept 3
        c getsockopt 3 error
        c poll 0 3:in|out|rdhup
        c poll 0 3:rdhup
        c bind 3 127.0.0.1:0
        c recv 3 10
        c shutdown 3 rdwr
        c accept 3
        c listen 3 5
        c listen 3 1
        c recv 3 10
        c send 3 10 1 nosignal
        c poll 0 3:in|out|rdhup
        c connect 3 127.0.0.1:9
        c fionread 3
        c getpeername 3
        c close 3
    ";
    names_that_cannot_be, "bind and connect", Either: "
        s socket inet
        s bind 3 192.0.2.1:0
        s bind 3 [::1]:0
        s connect 3 [::1]:9
        s bind 3 127.0.0.1:0
        s bind 3 127.0.0.1:0
        s listen 3
        s socket inet
        s bind 4 127.0.0.1:%port:s:3
        s bind 4 0.0.0.0:%port:s:3
        s bind 4 127.0.0.2:%port:s:3
        s listen 4
        s socket inet
        s setsockopt 5 reuseaddr 1
        s bind 5 127.0.0.1:%port:s:3
        s bind 5 0.0.0.0:%port:s:3
        s socket inet6
        s bind 6 127.0.0.1:0
        s connect 6 127.0.0.1:9
        s bind 6 [::1]:%port:s:3
        s listen 6
        s getsockname 6
        s bind 77 127.0.0.1:0
        s listen 77
        c socket inet
        c connect 3 127.0.0.2:%port:s:4
        s accept 4
        s getsockname 7
    ";
    who_calls_without_a_name_is_given_one, "bind and connect", Either: "
        s socket inet
        s listen 3
        s socket inet6
        s bind 4 [::]:0
        s listen 4
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        s getsockname 5
        s getpeername 5
        c getsockname 3
        c socket inet6
        c connect 4 [::1]:%port:s:4
        s accept 4
        s getsockname 6
        s getpeername 6
        c getsockname 4
        c socket inet
        c connect 5 127.0.0.3:%port:s:4
        s accept 4
        s getsockname 7
        s getpeername 7
    ";
    an_end_before_it_is_accepted, "accept", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c send 3 100 1
        c close 3
        s accept 3
        s wait_in 4 100
        s wait_ev 4 rdhup
        s fionread 4
        s recv 4 60
        s recv 4 60
        s recv 4 60
        s getpeername 4
        s poll 0 4:in|out|rdhup
        s close 4
    ";
    a_reset_before_it_is_accepted, "accept", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s wait_ev 3 in
        c setsockopt 3 linger 1 0
        c close 3
        s accept 3 null
        s wait_ev 4 err|hup
        s recv 4 10
        s recv 4 10
        s getpeername 4
    ";
    a_listener_that_goes_takes_its_callers_along, "accept", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s accept 3
        s wait_ev 3 in
        s close 3
        c wait_ev 4 err|hup
        c getsockopt 4 error
        c recv 4 10
        c send 3 10 1
        s wait_in 4 10
        s recv 4 20
    ";
    a_listener_that_is_shut, "accept", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        s go a accept 3
        s blocked a
        s shutdown 3 wr
        s blocked a
        s shutdown 3 rd
        s join a
        s accept 3
        s getsockopt 3 acceptconn
        s poll 0 3:in|out|rdhup
        s shutdown 3 rd
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s listen 3
        s getsockopt 3 acceptconn
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
    ";
    options_of_a_new_socket, "getsockopt and setsockopt", Either: "
        c socket inet
        c getsockopt 3 type
        c getsockopt 3 domain
        c getsockopt 3 acceptconn
        c getsockopt 3 error
        c getsockopt 3 keepalive
        c getsockopt 3 linger
        c getsockopt 3 reuseaddr
        c getsockopt 3 rcvlowat
        c getsockopt 3 rcvtimeo
        c getsockopt 3 sndtimeo
        c getsockopt 3 sndbuf
        c getsockopt 3 rcvbuf
        c getsockopt 3 nodelay
        c getsockopt 3 cork
        c getsockopt 3 maxseg
        c setsockopt 3 keepalive 7
        c getsockopt 3 keepalive
        c setsockopt 3 reuseaddr 1
        c getsockopt 3 reuseaddr
        c setsockopt 3 nodelay 5
        c getsockopt 3 nodelay
        c setsockopt 3 cork 1
        c getsockopt 3 cork
        c setsockopt 3 linger 1 7
        c getsockopt 3 linger
        c setsockopt 3 linger 0 7
        c getsockopt 3 linger
        c setsockopt 3 rcvtimeo 2500
        c getsockopt 3 rcvtimeo
        c setsockopt 3 sndtimeo 1500
        c getsockopt 3 sndtimeo
        c setsockopt 3 sndbuf 50000
        c getsockopt 3 sndbuf
        c setsockopt 3 sndbuf 1
        c getsockopt 3 sndbuf
        c setsockopt 3 rcvbuf 50000
        c getsockopt 3 rcvbuf
        c setsockopt 3 rcvbuf 1
        c getsockopt 3 rcvbuf
        c setsockopt 3 rcvlowat 100
        c getsockopt 3 rcvlowat
        c setsockopt 3 rcvlowat 0
        c getsockopt 3 rcvlowat
        c setsockopt 3 maxseg 1000
        c getsockopt 3 maxseg
        c setsockopt 3 maxseg 87
        c setsockopt 3 type 1
        c setsockopt 3 error 1
        c socket inet6
        c getsockopt 4 v6only
        c setsockopt 4 v6only 1
        c getsockopt 4 v6only
        c getsockopt 4 domain
        c getsockopt 77 error
        c setsockopt 77 nodelay 1
    ";
    options_go_from_a_listener_to_who_is_accepted, "getsockopt and setsockopt", Either: "
        s socket inet
        s setsockopt 3 nodelay 1
        s setsockopt 3 keepalive 1
        s setsockopt 3 linger 1 3
        s setsockopt 3 rcvtimeo 3000
        s setsockopt 3 rcvlowat 7
        s setsockopt 3 reuseaddr 1
        s setsockopt 3 rcvbuf 60000
        s bind 3 127.0.0.1:0
        s listen 3
        s getsockopt 3 acceptconn
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        s getsockopt 4 acceptconn
        s getsockopt 4 nodelay
        s getsockopt 4 keepalive
        s getsockopt 4 linger
        s getsockopt 4 rcvtimeo
        s getsockopt 4 rcvlowat
        s getsockopt 4 reuseaddr
        s getsockopt 4 rcvbuf
        s getsockopt 4 type
        s getsockopt 4 maxseg
        c getsockopt 3 maxseg
        c getsockopt 3 nodelay
    ";
    what_is_followed_by_more_comes_with_it, "MSG_MORE, TCP_CORK", Either: "
        pair
        c send 3 10 1 more
        c send 3 10 2
        s wait_in 4 20
        s recv 4 100
        c setsockopt 3 cork 1
        c send 3 10 3
        c send 3 2000 4
        c setsockopt 3 cork 0
        s recvall 4 2010
        c send 3 10 5 more
        c setsockopt 3 nodelay 1
        s recvall 4 10
        c send 3 10 6 more
        c shutdown 3 wr
        s recvall 4 10
        s recv 4 10
    ";
    streams_of_megabytes_both_ways, "full duplex", Either: "
        pair [::1]
        s go w sendall 4 3000000 3 30000
        c go w sendall 3 3000000 4 50000
        s go r recvall 4 3000000
        c go r recvall 3 3000000
        s join w 20000
        c join w 20000
        s join r 20000
        c join r 20000
        c shutdown 3 wr
        s recv 4 10
        s close 4
        c recv 3 10
    ";
    who_closes_while_it_lingers, "SO_LINGER", Either: "
        pair
        c setsockopt 3 linger 1 5
        c send 3 1000 1
        c timed 0 2000 close 3
        s recvall 4 1000
        s recv 4 10
        s send 4 10 1
        s close 4
    ";
    both_close_at_once, "close", Either: "
        pair
        c send 3 10 1
        s send 4 10 2
        c wait_in 3 10
        s wait_in 4 10
        c recv 3 10
        s recv 4 10
        c shutdown 3 wr
        s shutdown 4 wr
        c recv 3 10
        s recv 4 10
        c poll 0 3:in|out|rdhup
        s poll 0 4:in|out|rdhup
        c close 3
        s close 4
    ";
    datagrams, "UDP", Either: "
        s socket inet dgram
        s bind 3 127.0.0.1:0
        s getsockname 3
        c socket inet dgram
        c poll 0 3:in|out
        c recv 3 10 dontwait
        c getpeername 3
        c sendto 3 100 1 0 127.0.0.1:%port:s:3
        s wait_in 3 100
        s poll 0 3:in|out
        s recvfrom 3 50 peek
        s recvfrom 3 50
        c connect 3 127.0.0.1:%port:s:3
        c getpeername 3
        c send 3 200 2
        c write 3 300 3
        s wait_in 3 200
        s fionread 3
        s recvmsg 3 100,50
        s wait_in 3 300
        s recv 3 100 trunc
        s recv 3 10 dontwait
        s go r recv 3 5000
        s blocked r
        c send 3 5000 4
        s join r
        c send 3 70000 5
        c accept 3
        c listen 3
        c close 3
    ";
    a_datagram_that_nobody_takes, "UDP", Either: "
        c socket inet dgram
        c connect 3 127.0.0.1:9
        c send 3 10 1
        c wait_ev 3 err
        c recv 3 10 dontwait
        c recv 3 10 dontwait
        c send 3 10 1
        c wait_ev 3 err
        c getsockopt 3 error
    ";
}
