//! Addresses, descriptor numbers, names, limits.

use crate::hand::scripts;

scripts! {
    ipv4_loopback, "IPv4", Ring: "
        pair 127.0.0.1
        c getsockname 3
        c getpeername 3
        s getsockname 4
        s getpeername 4
        s getsockname 3
        s getpeername 3
        warm
        c getsockname 3
        c getpeername 3
        s getpeername 4
        c send 3 10 1
        s wait_in 4 10
        s recvfrom 4 100
    ";
    any_address_of_the_host, "any host address", Ring: "
        pair 127.0.0.2
        warm
        s getsockname 4
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
    ";
    a_listener_on_the_wildcard_address, "any host address", Ring: "
        s socket inet
        s bind 3 0.0.0.0:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.3:%port:s:3
        s accept 3
        s getsockname 4
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
        c socket inet
        c connect 4 0.0.0.0:%port:s:3
        s accept 3
        warm 4 5
        c getpeername 4
    ";
    ipv6_loopback, "IPv6", Ring: "
        pair [::1]
        warm
        c getsockname 3
        s getpeername 4
        c send 3 100 1
        s wait_in 4 100
        s recvfrom 4 200
        s close 4
        c recv 3 10
    ";
    ipv4_mapped_on_both_ends, "IPv4-mapped", Ring: "
        pair [::ffff:127.0.0.1]
        warm
        c getsockname 3
        s getpeername 4
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
    ";
    ipv4_client_of_an_ipv6_listener, "IPv4-mapped", Ring: "
        s socket inet6
        s bind 3 [::]:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        s getsockname 4
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
        c socket inet6
        c connect 4 [::1]:%port:s:3
        s accept 3
        warm 4 5
        c socket inet6
        c connect 5 [::ffff:127.0.0.2]:%port:s:3
        s accept 3
        warm 5 6
    ";
    a_client_that_binds_first, "client bound or not", Ring: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c bind 3 127.0.0.5:0
        c connect 3 127.0.0.1:%port:s:3
        s accept 3
        c getsockname 3
        warm
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
        c socket inet
        c bind 4 0.0.0.0:0
        c connect 4 127.0.0.1:%port:s:3
        s accept4 3 nonblock|cloexec
        s fcntl 5 getfd
        s fcntl 5 getfl
        s fcntl 5 setfl 0
        warm 4 5
    ";
    accept_in_all_its_spellings, "every libc entry", Ring: "
        s socket inet stream|nonblock
        s bind 3 127.0.0.1:0
        s listen 3
        s accept 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s accept 3 null
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s accept4 3 cloexec
        c socket inet
        c connect 5 127.0.0.1:%port:s:3
        s wait_ev 3 in
        s accept4 3 0x40000000
        s accept4 3 0
        s fcntl 3 setfl 0
        s go a accept 3
        s blocked a
        c socket inet
        c connect 6 127.0.0.1:%port:s:3
        s join a
        warm 3 4
        warm 4 5
        warm 5 6
        warm 6 7
        s accept 4
        s accept 99
    ";
    data_sent_before_accept, "client bound or not", Ring: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c sendall 3 30000 1 1000
        c send 3 10 2
        s accept 3
        s recvall 4 30010
        warm
        warm
        warm
    ";
    connect_of_a_connected_socket_fails, "every libc entry", Ring: "
        pair
        warm
        c connect 3 127.0.0.1:%port:s:3
        c connect 3 127.0.0.1:9
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        c listen 3
        c accept 3
        c bind 3 127.0.0.1:0
    ";
    descriptors_0_1_and_2_stay_on_the_kernel, "descriptors 0, 1 and 2", Either: "
        s close 0
        s socket inet
        s bind 0 127.0.0.1:0
        s listen 0
        c socket inet
        c connect 3 127.0.0.1:%port:s:0
        s close 1
        s accept 0
        s go w echo 1 64 100
        c ping 3 64 100
        s join w
        s dup2 1 2
        c send 3 10 1
        s wait_in 2 10
        s recv 2 100
        s dup2 1 4
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        s close 1
        s close 2
        s close 4
        c recv 3 10
        s close 0
    ";
    a_connection_copied_to_standard_input, "descriptors 0, 1 and 2", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s dup2 4 0
        s read 0 50
        s recv 4 100
        s dup2 4 1
        s write 1 10 1
        c wait_in 3 10
        c recv 3 100
        s close 4
        c send 3 10 1
        s wait_in 0 10
        s read 0 50
        s close 0
        s close 1
        c recv 3 10
    ";
    close_range_closes_connections, "close_range/closefrom", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s send 4 100 1
        s close_range 4 4
        c recvall 3 100
        c recv 3 10
        s send 5 100 1
        s close_range 3 199
        c recvall 4 100
        c recv 4 10
        s fds
        s close_range 9 3
        s socket inet
    ";
    close_range_with_unread_bytes_resets, "close_range/closefrom", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s close_range 4 4
        c wait_ev 3 err|hup
        c recv 3 10
    ";
    what_was_sent_before_a_close_range_is_the_kernels, "close_range/closefrom", Ring: "
        pair
        warm
        s send 4 1000 1
        s close_range 4 4
        c exec plain
        c recvall 3 1000
        c recv 3 10
    ";
    closefrom_closes_connections, "close_range/closefrom", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 3 4
        warm 4 5
        s sendall 4 100000 1
        s closefrom 5
        c recv 4 10
        s fds
        c recvall 3 100000
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        s send 4 100 1
        s closefrom 3
        c recvall 3 100
        c recv 3 10
        s fds
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        c connect 4 127.0.0.1:%port:s:3
        c close 4
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        s accept 3
        warm 4 4
    ";
    the_limit_of_descriptors_is_the_programs, "descriptor numbers", Ring: "
        pair
        warm
        s nofile
        s nofile 8
        s dup 4
        s dup 4
        s dup 4
        s dup 4
        s socket inet
        s accept 3
        s dup2 4 8
        s fcntl 4 dupfd 8
        s epoll_create1 0
        c send 3 10 1
        s wait_in 4 10
        s recv 7 100
        s poll 0 4:in 5:in
        s nofile 100
        s dup2 4 99
        s dup2 4 100
        s fds
    ";
    descriptor_numbers_are_the_kernels, "descriptor numbers", Ring: "
        pair
        warm
        s dup 4
        s close 4
        s socket inet
        s pipe
        s close 5
        s epoll_create1 0
        s fds
        c fds
        c socket unix
        c socket inet dgram
        c socketpair
        c fds
    ";
    a_number_that_was_closed_unseen_is_another_connections, "descriptor numbers", Ring: "
        pair
        c socket inet
        c connect 4 127.0.0.1:%port:s:3
        warm
        s send 4 500 1
        s raw_close 4
        s accept 3
        c close 3
        warm 4 4
        s send 4 10 2
        c wait_in 4 10
        c recv 4 1000
        s recv 4 10 dontwait
    ";
    queue_sizes_are_told, "ioctl (FIONREAD, FIONBIO, SIOCOUTQ)", Ring: "
        pair
        warm
        s fionread 4
        c send 3 100 1
        s wait_in 4 100
        s fionread 4
        s recv 4 30
        s fionread 4
        s recv 4 30 peek
        s fionread 4
        c wait_sent 3
        c outq 3
        s fionread 3
        s recv 4 100
        c shutdown 3 wr
        s wait_ev 4 rdhup
        s fionread 4
        s outq 4
    ";
    other_kinds_of_sockets_are_left_alone, "every libc entry", Either: "
        c socketpair
        c send 3 100 1
        c recv 4 100
        c writev 4 10,20 1
        c recvmsg 3 100
        c poll 0 3:in|out 4:in|out
        c shutdown 3 wr
        c recv 4 10
        c close 3
        c sigaction pipe ignore
        c send 4 10 1
        c pipe
        c write 5 10 1
        c read 3 100
        c send 3 10 1
        c recv 5 10
        c sendmsg 5 10 1
        c socket inet dgram
        c bind 6 127.0.0.1:0
        c connect 6 127.0.0.1:%port:c:6
        c send 6 100 1
        c recv 6 50
        c recvmmsg 6 10,10 dontwait
    ";
}
