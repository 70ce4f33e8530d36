//! What a writer leaves in a ring where the carrier has no room for it, and none can be made: the system allows only small
//! send buffers (`net.core.wmem_max`).

use crate::hand::scripts;

scripts! {
    over Narrow;
    a_shutdown_leaves_the_rest_to_the_reader, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        c poll 0 3:out
        c send 3 10 2 nosignal
        cont s
        s recvall 4 60000
        s recv 4 10
        s send 4 100 3
        c recvall 3 100
        s close 4
        c recv 3 10
    ";
    a_shutdown_of_both_directions_leaves_the_rest_to_the_reader, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 rdwr
        c send 3 10 2 nosignal
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    a_second_shutdown_leaves_the_rest_to_the_reader, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        c shutdown 3 rd
        c shutdown 3 wr
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    a_close_behind_a_shutdown_leaves_the_rest_to_the_reader, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        c close 3
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    an_exit_behind_a_shutdown_leaves_the_rest_to_the_reader, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        c exit 0
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
    a_close_leaves_the_rest_to_the_reader, "recall: close", Ring: "
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
    memory_that_is_wanted_elsewhere_is_not_the_readers, "shutdown in all its orders", Ring: "
        pair with rcvbuf 10000
        warm
        c sendall 3 60000 1
        c raw_sndbuf 3 4608
        stop s
        c shutdown 3 wr
        c poll 1500 3:in
        c poll 1500 3:in
        cont s
        s recvall 4 60000
        s recv 4 10
    ";
}
