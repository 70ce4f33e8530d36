//! One sender's datagrams come in its order, none twice, whatever goes by the kernel and whatever does not, and whoever sleeps.

use crate::hand::scripts;

scripts! {
    in_order_to_a_reader_that_sleeps, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 3000 20 recv
        c number 3 @s:3 1 3000 14,64,1000 20
        s join all 15000
        s recv 3 10 dontwait
    ";
    in_order_to_a_reader_that_polls, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 3000 20 poll
        c number 3 @s:3 1 3000 14,64,1000 20
        s join all 15000
        s recv 3 10 dontwait
    ";
    in_order_to_an_epoll_loop, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 3000 20 epoll
        c number 3 @s:3 1 3000 14,64,1000 20
        s join all 15000
        s recv 3 10 dontwait
    ";
    in_order_to_a_reader_that_spins, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 3000 20 spin
        c number 3 @s:3 1 3000 14,64,1000 20
        s join all 15000
        s recv 3 10 dontwait
    ";
    in_order_to_a_reader_of_all_kinds, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 4000 10 mixed
        c number 3 @s:3 1 4000 14,64,1000 10
        s join all 15000
        s recv 3 10 dontwait
    ";
    small_and_large_in_turn, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 1200 4 mixed
        c number 3 @s:3 1 1200 14,50000,64,1400 4
        s join all 15000
        s go all collect 3 1 300 2 recv
        c number 3 @s:3 1 300 65507,14 2
        s join all 15000
    ";
    with_and_without_what_only_the_kernel_does, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 3000 15 mixed
        c number 3 @s:3 1 3000 14,64,1400 15 ttl
        s join all 15000
        s go all collect 3 1 3000 15 spin
        c number 3 @s:3 1 3000 14,64,1400 15 ttl
        s join all 15000
    ";
    behind_what_a_child_in_the_same_memory_sends, "order over the switch", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings
        s recv 3 100 dontwait
        c vfork_write 3 10 1
        c write 3 11 2
        s receive 3 100
        s receive 3 100
        s recv 3 100 dontwait
        c write 3 12 3
        c vfork_write 3 13 4
        c write 3 14 5
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 100 dontwait
    ";
    from_the_first_datagram_on, "order over the switch", Either: "
        dgrams 127.0.0.1
        s go all collect 3 1 2000 8 mixed
        c number 3 @s:3 1 2000 14 8
        s join all 15000
        c close 3
        c socket inet dgram|cloexec
        c connect 3 @s:3
        s go all collect 3 1 2000 8 recv
        c number 3 - 1 2000 14 8
        s join all 15000
    ";
    as_fast_as_they_go_to_a_reader_that_sleeps, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 0 0 recv
        c number 3 @s:3 1 20000 14,64 0
        s join all 15000
    ";
    as_fast_as_they_go_to_a_reader_that_naps, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 0 0 naps
        c number 3 @s:3 1 20000 14,1400,64 0 ttl
        s join all 15000
    ";
    as_fast_as_they_go_to_a_reader_of_all_kinds, "order over the switch", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 0 0 mixed
        c number 3 @s:3 1 20000 14,1400,64,20000 0
        s join all 15000
    ";
    many_senders_to_one_receiver, "many senders", Ring: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        c socket inet dgram|cloexec
        c connect 5 @s:3
        s socket inet dgram|cloexec
        pings
        s go all collect 3 4 1000 10 mixed
        c go one number 3 @s:3 1 1000 14,64 10
        c go two number 4 @s:3 2 1000 1400,14 10
        c go three number 5 - 3 1000 64 10 ttl
        s number 4 @s:3 4 1000 100,9000 10
        s join all 20000
        c join one 15000
        c join two 15000
        c join three 15000
    ";
    many_senders_as_fast_as_they_go, "many senders", Ring: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        c socket inet dgram|cloexec
        pings
        s go all collect 3 3 0 0 mixed
        c go one number 3 @s:3 1 5000 14,64 0
        c go two number 4 @s:3 2 5000 1400,14 0
        c number 5 @s:3 3 5000 64 0
        c join one 15000
        c join two 15000
        s join all 20000
    ";
    one_sender_of_two_threads, "threads", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 2 0 0 mixed
        c go one number 3 @s:3 1 5000 14,64 0
        c number 3 @s:3 2 5000 1400,14 0
        c join one 15000
        s join all 20000
    ";
    several_threads_receive, "threads", Ring: "
        dgrams 127.0.0.1
        pings
        s go all crowd 3 3 4000 16
        c number 3 @s:3 1 4000 14,64,1400 16
        s join all 15000
        s go all crowd 3 4 2000 1
        c number 3 @s:3 1 2000 14 1
        s join all 15000
        s receive 3 10 dontwait
    ";
    both_directions_at_once, "threads", Ring: "
        dgrams 127.0.0.1
        c bind 3 127.0.0.1:0
        c socket inet dgram|cloexec
        s socket inet dgram|cloexec
        pings
        s go to collect 3 1 2000 10 mixed
        c go fro collect 3 1 2000 10 mixed
        s go fro number 4 @c:3 1 2000 14,64 10
        c number 4 @s:3 2 2000 14,1400 10
        s join to 15000
        s join fro 15000
        c join fro 15000
    ";
    a_receiver_that_is_stopped, "SIGSTOP", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        stop s
        c flood 3 - 2000 64
        cont s
        s near 3
        pings -
        stop s
        c send 3 10 1
        cont s
        s receive 3 100
    ";
    a_receiver_that_is_stopped_asleep, "SIGSTOP", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s go waits receive 3 100
        s blocked waits
        stop s
        c send 3 10 1
        c send 3 11 1
        cont s
        s join waits
        s receive 3 100
    ";
    a_sender_that_is_stopped, "SIGSTOP", Ring: "
        dgrams 127.0.0.1
        pings
        s go all collect 3 1 8000 10 mixed
        c go numbers number 3 @s:3 1 8000 14 10
        stop c
        cont c
        stop c
        cont c
        c join numbers 15000
        s join all 15000
    ";
    a_plain_sender_beside_one_on_the_ring, "plain senders beside ones on the ring", Ring: "
        c spawn third plain
        dgrams 127.0.0.1
        third socket inet dgram|cloexec
        pings
        s go all collect 3 2 3000 10 mixed
        third go two number 3 @s:3 2 3000 1400,14 10
        c number 3 @s:3 1 3000 14,64 10
        third join two 15000
        s join all 20000
        s recv 3 10 dontwait
        pings
        s go all collect 3 2 0 0 mixed
        third go two number 3 @s:3 2 5000 1400,14 0
        c number 3 @s:3 1 5000 14,64 0
        third join two 15000
        s join all 20000
        third exit 0
        c wait third
    ";
    a_receiver_that_is_connected_to_one_of_them, "plain senders beside ones on the ring", Ring: "
        c spawn third plain
        dgrams 127.0.0.1
        c bind 3 127.0.0.1:0
        third socket inet dgram|cloexec
        third bind 3 127.0.0.1:0
        pings
        s connect 3 127.0.0.1:%port:c:3
        third flood 3 @s:3 100 64
        s recv 3 10 dontwait
        s go all collect 3 1 2000 10 mixed
        third go beside flood 3 @s:3 5000 64
        c number 3 @s:3 1 2000 14,64 10
        third join beside 15000
        s join all 15000
        s recv 3 10 dontwait
        s connect 3 127.0.0.1:%port:third:3
        c flood 3 @s:3 100 64
        s recv 3 10 dontwait
        s go rest collect 3 1 2000 10 mixed
        c go beside flood 3 @s:3 5000 64
        third number 3 @s:3 1 2000 14,64 10
        c join beside 15000
        s join rest 15000
        s recv 3 10 dontwait
        third exit 0
        c wait third
    ";
}
