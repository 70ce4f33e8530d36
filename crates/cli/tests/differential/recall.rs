//! What takes a connection back to the kernel, and what other processes do with it afterwards.

use crate::hand::scripts;

scripts! {
    a_stream_over_the_descriptor, "recall: fdopen/stdio", Ring: "
        pair
        warm
        s fdopen 4 r+
        c write 3 40 1
        c dprintf 3 hello-world
        s wait_in 4 52
        s recv 4 40
        s fgets 0
        s fputs 0 answer
        c wait_in 3 7
        c recv 3 100
        c shutdown 3 wr
        s fgets 0
        s fclose 0
        s fds
        c recv 3 10
    ";
    a_stream_reads_what_is_already_there, "recall: fdopen/stdio", Ring: "
        pair
        warm
        c dprintf 3 first
        c dprintf 3 second
        s wait_in 4 13
        s fdopen 4 r
        s fgets 0
        s fgets 0
        c dprintf 3 third
        s fgets 0
        c close 3
        s fgets 0
        s fclose 0
    ";
    urgent_data_is_the_kernels, "recall: MSG_OOB", Ring: "
        pair
        warm
        c send 3 10 1
        c send 3 1 2 oob
        s wait_ev 4 pri
        s poll 0 4:in|pri
        s select 0 r:4 e:4
        s atmark 4
        s recv 4 100
        s atmark 4
        s recv 4 1 oob
        s recv 4 1 oob
        c send 3 5 1
        s wait_ev 4 in
        s recv 4 100
        c send 3 5 1 oob
        s wait_ev 4 pri
        s recv 4 100
        s recv 4 1 oob
    ";
    urgent_data_in_line, "recall: MSG_OOB", Ring: "
        pair
        warm
        s setsockopt 4 oobinline 1
        c send 3 10 1
        c send 3 1 2 oob
        c send 3 10 3
        s wait_in 4 10
        s recvall 4 21
        s recv 4 1 oob
    ";
    urgent_data_ends_a_read_of_all, "recall: MSG_OOB", Ring: "
        pair
        warm
        c send 3 10 1
        c send 3 1 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s recv 4 30 waitall
        s recv 4 10 waitall
        c send 3 7 1
        c send 3 1 2 oob
        s wait_ev 4 pri
        c send 3 5 3
        s recv 4 12 waitall
        s recv 4 1 oob
        s recv 4 5 waitall
    ";
    urgent_data_ends_a_peek_of_all, "recall: MSG_OOB", Ring: "
        pair
        warm
        c send 3 10 1
        c send 3 1 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s recv 4 30 waitall|peek
        s recv 4 30 waitall|peek|trunc
        s recv 4 10
        s recv 4 10 waitall|peek
        s go r recv 4 20 waitall|peek
        s blocked r
        c send 3 10 4
        s join r
        s recv 4 20
        c send 3 10 1
        c send 3 1 2 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        c send 3 10 3
        s recv 4 30 waitall|peek
        s recv 4 30
        s recv 4 10 waitall|peek
    ";
    urgent_data_in_line_ends_a_peek_of_all, "recall: MSG_OOB", Ring: "
        pair
        warm
        s setsockopt 4 oobinline 1
        c send 3 10 1
        c send 3 1 2 oob
        c send 3 10 3
        s wait_ev 4 pri
        s wait_in 4 21
        s recv 4 30 waitall|peek
        s recv 4 30 waitall
        s recv 4 11 waitall|peek
        s recv 4 11 waitall
    ";
    urgent_data_before_any_upgrade, "recall: MSG_OOB", Either: "
        pair
        c send 3 1 2 oob
        s wait_ev 4 pri
        s recv 4 1 oob
        c send 3 10 1
        s wait_ev 4 in
        s recv 4 100
    ";
    a_full_ring_goes_back_to_the_kernel, "recall: ring full", Ring: "
        pair
        warm
        c sendall 3 1000000 1 1000
        s recvall 4 1000000
        warm
        c send 3 1000000 2
        s send 4 1000000 3
        s recvall 4 1000000
        c recvall 3 1000000
        warm
    ";
    a_full_ring_in_non_blocking_mode, "recall: ring full", Ring: "
        pair
        warm
        c fcntl 3 setfl nonblock
        c sendall 3 1000000 1 1000
        s fcntl 4 setfl nonblock
        s recvall 4 1000000
    ";
    a_protocol_of_the_kernel_takes_over, "recall: TCP_ULP", Ring: "
        pair
        warm
        c send 3 100 1
        c setsockopt 3 ulp nonexistent
        c send 3 100 2
        s wait_in 4 200
        s recv 4 1000
        warm
    ";
    a_filter_of_the_kernel_looks_at_all_that_comes, "socket options", Ring: "
        pair
        warm
        s setsockopt 4 filter 0
        c send 3 100 1
        s recv 4 100 dontwait
    ";
    what_came_before_a_filter_is_there, "socket options", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s setsockopt 4 filter 0
        s recv 4 1000
        s recv 4 100 dontwait
    ";
    what_is_in_a_ring_is_there_after_a_smaller_buffer, "socket options", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c setsockopt 3 sndbuf 4608
        c getsockopt 3 sndbuf
        s recvall 4 60000
        c sendall 3 1000 2
        s recvall 4 1000
        s send 4 100 3
        c recvall 3 100
    ";
    other_options_work_as_ever, "socket options", Ring: "
        pair
        warm
        c setsockopt 3 nodelay 1
        c getsockopt 3 nodelay
        c setsockopt 3 keepalive 1
        c getsockopt 3 type
        c getsockopt 3 domain
        c getsockopt 3 acceptconn
        s getsockopt 3 acceptconn
        c setsockopt 3 sndbuf 50000
        c getsockopt 3 sndbuf
        s setsockopt 4 rcvbuf 50000
        s getsockopt 4 rcvbuf
        c send 3 1000 1
        s wait_in 4 1000
        s recv 4 2000
        s go r recvall 4 1000000
        c sendall 3 1000000 1
        s join r
        c wait_sent 3
        c outq 3
    ";
    corked_bytes_arrive_when_uncorked, "socket options", Ring: "
        pair
        warm
        c setsockopt 3 cork 1
        c send 3 100 1
        c send 3 100 2
        c setsockopt 3 cork 0
        s wait_in 4 200
        s recv 4 1000
        c send 3 100 1 more
        c send 3 100 2
        s wait_in 4 200
        s recv 4 1000
    ";
    sendfile_moves_a_file, "sendfile/splice/pread/pwrite", Ring: "
        pair
        warm
        c file 100000 3
        c send 3 100 1
        c sendfile 3 4 60000
        c send 3 100 2
        c sendfile 3 4 60000
        c sendfile 3 4 10
        s recvall 4 100200
        s recv 4 10 dontwait
        s send 4 100 1
        c sendfile 4 3 10
    ";
    splice_moves_between_pipes_and_sockets, "sendfile/splice/pread/pwrite", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 1000 1
        s wait_in 4 1000
        s recv 4 100
        s splice 4 6 500
        s read 5 1000
        s recv 4 1000
        s fcntl 4 setfl nonblock
        s splice 4 6 10
        s fcntl 4 setfl 0
        s write 6 300 2
        s splice 5 4 300
        s send 4 10 3
        c wait_in 3 310
        c recv 3 1000
    ";
    sockets_have_no_position, "sendfile/splice/pread/pwrite", Ring: "
        pair
        warm
        c send 3 10 1
        s wait_in 4 10
        s pread 4 10
        s pwrite 4 10 1
        s lseek 4
        s recv 4 100
        c recv 3 10 dontwait
    ";
    system_calls_that_nobody_sees, "recall: un-hooked calls", Either: "
        pair
        c raw_write 3 100 1
        s wait_in 4 100
        s raw_read 4 200
        c send 3 100 2
        s wait_in 4 100
        s raw_read 4 50
        s recv 4 200
        c raw_write 3 10 1
        c send 3 10 2
        s wait_in 4 20
        s recv 4 100
    ";
    bytes_that_nobody_saw_sent_wake_a_reader, "recall: un-hooked calls", Ring: "
        pair
        warm
        s go r recv 4 100
        s blocked r
        c raw_write 3 100 1
        s join r
        c send 3 100 2
        s wait_in 4 100
        s recv 4 200
    ";
    a_writer_that_reads_elsewhere_gives_back_what_nobody_reads, "recall: un-hooked calls", Ring: "
        pair
        warm
        c listens
        c send 3 1000 1
        s exec plain raw
        s wait_in 4 1000
        s recv 4 2000
    ";
}
