//! Connections that another program or process holds next: exec, spawn, descriptors sent, fork.

use crate::hand::scripts;

scripts! {
    exec_keeps_the_connection_for_a_plain_heir, "recall: exec", Ring: "
        pair
        warm
        c listens
        c send 3 1000 1
        s wait_in 4 1000
        s recv 4 100
        s send 4 500 2
        s exec plain
        s preloaded
        s recv 4 2000
        s recv 4 10 dontwait
        c send 3 100 3
        s wait_in 4 100
        s read 4 1000
        s send 4 77 4
        c recvall 3 577
        c shutdown 3 wr
        s recv 4 10
        s close 4
        c recv 3 10
    ";
    exec_takes_back_what_a_waiting_peer_wrote, "recall: exec", Ring: "
        pair
        warm
        c send 3 1000 1
        c go r recv 3 1
        c blocked r
        s wait_in 4 1000
        s recv 4 100
        s exec plain
        s wait_in 4 900
        s recv 4 2000
        s send 4 1 2
        c join r
    ";
    exec_takes_back_what_a_second_thread_waits_beside, "recall: exec", Ring: "
        pair
        warm
        c poll 20 3:in
        c send 3 1000 1
        c go p poll 9000 3:in
        c blocked p
        s poll 900 3:in    # until nothing else wakes it
        s wait_in 4 1000
        s recv 4 100
        s exec plain
        s wait_in 4 900
        s recv 4 2000
        s send 4 1 2
        c join p
    ";
    exec_takes_back_what_a_computing_peer_wrote, "recall: exec", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s recv 4 100
        s exec plain
        s preloaded
        c send 3 10 2
        s wait_in 4 910
        s recv 4 2000
    ";
    a_descriptor_sent_takes_back_what_a_waiting_peer_wrote, "recall: SCM_RIGHTS", Ring: "
        pair
        warm
        s socketpair
        c send 3 300 1
        c epoll_create1 0
        c epoll_ctl 4 add 3 in
        c go e epoll_wait 4 4 5000
        c blocked e
        s poll 900 3:in    # until nothing else wakes it
        s wait_in 4 300
        s recv 4 100
        s scm_send 5 4
        s scm_recv 6
        s wait_in 7 200
        s recv 7 1000
        s send 7 1 2
        c join e
    ";
    posix_spawn_takes_back_what_a_waiting_peer_wrote, "recall: posix_spawn", Ring: "
        pair
        warm
        c send 3 1000 1
        c go p poll 5000 3:in
        c blocked p
        s poll 900 3:in    # until nothing else wakes it
        s spawn heir plain
        heir wait_in 4 1000
        heir recv 4 2000
        heir send 4 1 2
        c join p
        heir _exit 0
        s wait heir
    ";
    exec_keeps_the_connection_for_a_preloaded_heir, "recall: exec", Ring: "
        pair
        warm
        c listens
        c send 3 1000 1
        s wait_in 4 1000
        s exec same
        s recvall 4 1000
        warm
        s exec same execvp
        c send 3 100 3
        s wait_in 4 100
        s read 4 1000
        s exec same execl
        s exec same fexecve
        s send 4 77 4
        c recvall 3 77
        s close 4
        c recv 3 10
    ";
    exec_of_the_writer_delivers_its_bytes, "recall: exec", Ring: "
        pair
        warm
        c sendall 3 200000 1
        c exec plain
        c send 3 100 2
        s recvall 4 200000
        s wait_in 4 100
        s recv 4 200
        c close 3
        s recv 4 10
    ";
    exec_closes_what_is_cloexec, "recall: exec", Ring: "
        pair
        warm
        c fcntl 3 setfd cloexec
        c sendall 3 200000 1
        c exec plain
        c fds
        s drain 4
    ";
    an_exec_that_fails_changes_nothing, "recall: exec", Ring: "
        pair
        warm
        c fcntl 3 setfd cloexec
        c exec same missing
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        c fcntl 3 setfd 0
        c exec same missing
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
        warm
    ";
    exec_with_a_stopped_peer, "recall: exec", Ring: "
        pair
        warm
        s listens
        c send 3 1000 1
        s send 4 2000 2
        c wait_in 3 2000
        stop s
        c exec plain
        cont s
        c recvall 3 2000
        s recvall 4 1000
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
    ";
    exec_with_both_ends_writing, "recall: exec", Ring: "
        pair
        warm
        c go w sendall 3 3000000 1 30000
        s recvall 4 1000000
        s exec plain
        s recvall 4 2000000
        c join w
    ";
    posix_spawn_hands_on_the_connection, "recall: posix_spawn", Ring: "
        pair
        warm
        c listens
        c send 3 1000 1
        s wait_in 4 1000
        s spawn heir plain
        heir preloaded
        heir recv 4 400
        s recv 4 1000
        heir send 4 100 2
        s send 4 50 3
        c recvall 3 150
        s close 4
        c send 3 10 1
        heir wait_in 4 10
        heir recv 4 100
        heir _exit 7
        s wait heir
        c recv 3 10
    ";
    posix_spawn_of_a_preloaded_heir, "recall: posix_spawn", Ring: "
        pair
        warm
        s spawn heir same
        s close 4
        c send 3 1000 1
        heir wait_in 4 1000
        heir recv 4 2000
        heir go w echo 4 64 100
        c ping 3 64 100
        heir join w
        heir close 4
        c recv 3 10
        heir exit 0
        s wait heir
    ";
    posix_spawn_does_not_see_cloexec, "recall: posix_spawn", Ring: "
        pair
        warm
        s fcntl 4 setfd cloexec
        s spawn heir plain
        heir fds
        heir _exit 0
        s wait heir
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
    ";
    vfork_and_exec_hand_on_the_connection, "recall: exec", Ring: "
        pair
        warm
        s send 4 50 1
        s vfork_exec 4 70 2
        s send 4 30 3
        c wait_in 3 150
        c recv 3 1000
        c send 3 10 1
        s wait_in 4 10
        s recv 4 100
    ";
    what_a_vfork_child_sets_holds, "recall: exec", Ring: "
        pair
        warm
        s vfork_set 4 fionbio 1
        s recv 4 10
        s vfork_set 4 fionbio 0
        s go waits recv 4 10
        s blocked waits
        c send 3 10 1
        s join waits
        s vfork_set 4 rcvlowat 100
        c send 3 50 1
        s go waits recv 4 200
        s blocked waits
        c send 3 60 2
        s join waits
        s vfork_set 4 rcvlowat 1
        s vfork_set 4 rcvtimeo 60
        s timed 50 400 recv 4 10
        c send 3 10 3
        s recv 4 10
        s vfork_set 4 sndtimeo 60
        s fillup 4 1
        s timed 50 400 send 4 1 1
    ";
    system_hands_on_the_connection, "recall: system", Ring: "
        pair
        warm
        s send 4 50 1
        s system write 4 70 2
        s send 4 30 3
        c wait_in 3 150
        c recv 3 1000
        c send 3 20 1
        s wait_in 4 20
        s system recv 4 7
        s recv 4 100
        s system recv 4 7 dontwait
    ";
    popen_hands_on_the_connection, "recall: popen", Ring: "
        pair
        warm
        c listens
        c send 3 200 1
        s wait_in 4 200
        s popen recv 4 77
        s recv 4 300
        s popen send 4 70 2
        c wait_in 3 70
        c recv 3 100
    ";
    a_descriptor_sent_to_another_process, "recall: SCM_RIGHTS", Ring: "
        s socketpair
        s fork kid
        kid fds
        s socket inet
        s bind 5 127.0.0.1:0
        s listen 5
        c socket inet
        c connect 3 127.0.0.1:%port:s:5
        s accept 5
        warm 3 6
        c listens
        c send 3 300 1
        s wait_in 6 300
        s recv 6 100
        s scm_send 3 6
        kid scm_recv 4
        kid recv 5 1000
        kid send 5 100 2
        c wait_in 3 100
        c recv 3 1000
        s close 6
        c send 3 10 1
        kid wait_in 5 10
        kid recv 5 100
        kid close 5
        c recv 3 10
        kid _exit 0
        s wait kid
    ";
    a_descriptor_in_flight_keeps_the_connection, "recall: SCM_RIGHTS", Ring: "
        pair
        warm
        s socketpair
        c send 3 300 1
        s wait_in 4 300
        s scm_send 5 4
        s close 4
        c send 3 200 2
        s scm_recv 6
        s wait_in 4 500
        s recv 4 1000
        s send 4 10 1
        c wait_in 3 10
        c recv 3 100
        s close 4
        c recv 3 10
    ";
    a_close_beside_another_holder_resets_nothing, "recall: close", Ring: "
        pair
        warm
        c send 3 300 1
        s wait_in 4 300
        s fork kid
        s close 4
        kid recv 4 1000
        kid send 4 10 1
        c wait_in 3 10
        c recv 3 100
        kid close 4
        c wait_ev 3 rdhup
        c recv 3 10
    ";
    a_close_beside_a_descriptor_in_flight_resets_nothing, "recall: SCM_RIGHTS", Ring: "
        pair
        warm
        s socketpair
        c send 3 300 1
        s wait_in 4 300
        stop c
        s scm_send 5 4
        s close 4
        s scm_recv 6
        cont c
        c send 3 200 2
        s wait_in 4 500
        s recv 4 1000
        s send 4 10 1
        c wait_in 3 10
        c recv 3 100
        s close 4
        c wait_ev 3 rdhup
        c recv 3 10
    ";
    a_descriptor_sent_stays_on_the_kernel, "recall: SCM_RIGHTS", Ring: "
        s socketpair
        s fork kid
        s socket inet
        s bind 5 127.0.0.1:0
        s listen 5
        c socket inet
        c connect 3 127.0.0.1:%port:s:5
        s accept 5
        warm 3 6
        c listens
        s scm_send 3 6
        kid scm_recv 4
        c computes
        c sendall 3 70000 1
        s recvall 6 70000
        kid go r recv 5 100
        kid blocked r
        c send 3 100 2
        kid join r
        s sendall 6 70000 1
        c recvall 3 70000
        s send 6 100 2
        kid send 5 100 3
        s send 6 100 4
        c recvall 3 300
    ";
    a_plain_heir_writes_in_turns_with_its_parent, "fork", Ring: "
        pair
        warm
        s listens
        c pipe
        s send 4 100 1
        c wait_in 3 100
        c splice 3 5 100
        s fork kid
        kid exec plain raw
        kid preloaded
        s sendall 4 70000 1
        c recvall 3 70000
        s send 4 100 2
        kid send 4 100 3
        s send 4 100 4
        c recvall 3 300
    ";
    a_plain_heir_reads_what_its_parent_leaves, "fork", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 100 1
        s splice 4 6 100
        c computes
        s fork kid
        kid exec plain raw
        kid preloaded
        c sendall 3 70000 1
        s recvall 4 70000
        kid go r recv 4 100
        kid blocked r
        c send 3 100 2
        kid join r
    ";
    a_plain_heir_reads_what_its_parent_was_ready_for, "fork", Ring: "
        pair
        warm
        c listens
        s pipe
        c send 3 100 1
        s splice 4 6 100
        c computes
        c sendall 3 70000 1
        s recvall 4 70000
        s fork kid
        kid exec plain raw
        kid preloaded
        kid go r recv 4 100
        kid blocked r
        c send 3 100 2
        kid join r
    ";
    a_child_that_waits_is_asked_for_what_it_wrote, "fork", Ring: "
        pair
        warm
        s fork kid
        s close 4
        kid send 4 1000 1
        c recv 3 100
        kid go p poll 9000 4:in
        kid blocked p
        s poll 900 3:in    # until nothing else wakes it
        c exec plain
        c wait_in 3 900
        c recv 3 2000
        c send 3 1 2
        kid join p
    ";
    a_child_that_waits_in_epoll_is_asked_for_what_it_wrote, "fork", Ring: "
        pair
        warm
        s fork kid
        s close 4
        kid epoll_create1 0
        kid epoll_ctl 5 add 4 in 7
        kid send 4 1000 1
        c recv 3 100
        kid go p epoll_wait 5 4 9000
        kid blocked p
        s poll 900 3:in    # until nothing else wakes it
        c exec plain
        c wait_in 3 900
        c recv 3 2000
        c send 3 1 2
        kid join p
    ";
    a_bell_that_a_child_was_told_of_is_not_its_parents, "fork", Ring: "
        pair
        warm
        c poll 900 3:in    # until nothing else wakes it
        s fork kid
        c go r recv 3 10
        c blocked r
        kid send 4 10 1
        c join r
        c go r recv 3 10
        c blocked r
        s send 4 10 2
        c join r
        kid _exit 0
        s wait kid
    ";
    parent_and_child_use_one_connection, "fork", Ring: "
        pair
        warm
        c send 3 100 1
        s wait_in 4 100
        s fork kid
        kid recv 4 30
        s recv 4 30
        kid recv 4 100
        kid send 4 10 1
        s send 4 10 2
        kid send 4 10 3
        c wait_in 3 30
        c recv 3 100
        s close 4
        c poll 0 3:in|rdhup
        kid go w echo 4 64 100
        c ping 3 64 100
        kid join w
        kid close 4
        c recv 3 10
        kid exit 5
        s wait kid
    ";
    a_child_serves_what_its_parent_accepted, "fork", Ring: "
        pair
        s fork kid
        s close 4
        kid go w echo 4 64 100
        c ping 3 64 100
        kid join w
        c sendall 3 100000 1
        kid recvall 4 100000
        kid shutdown 4 wr
        c recv 3 10
        c close 3
        kid recv 4 10
        kid exit 0
        s wait kid
    ";
    a_child_that_exits_takes_nothing_along, "fork", Ring: "
        pair
        warm
        c send 3 100 1
        s fork kid
        kid _exit 0
        s wait kid
        s wait_in 4 100
        s recv 4 200
        s fork kid2
        kid2 exit 0
        s wait kid2
        s fork kid3
        kid3 kill9
        s wait kid3
        c send 3 100 1
        s wait_in 4 100
        s recv 4 200
        s send 4 100 1
        c wait_in 3 100
        c recv 3 200
        c poll 0 3:in|rdhup
        warm
    ";
    a_child_reads_while_its_parent_sleeps_in_recv, "fork", Ring: "
        pair
        warm
        s fork kid
        s go r recv 4 10
        s blocked r
        kid go r recv 4 10
        kid blocked r
        c send 3 10 1
        c send 3 10 1
        s join r
        kid join r
        kid _exit 0
        s wait kid
    ";
    a_child_waits_on_an_inherited_epoll, "fork", Ring: "
        pair
        warm
        s epoll_create1 0
        s epoll_ctl 5 add 4 in 7
        s fork kid
        kid epoll_wait 5 4 0
        c send 3 10 1
        kid wait_in 4 10
        kid epoll_wait 5 4 0
        s epoll_wait 5 4 0
        kid recv 4 100
        s epoll_wait 5 4 0
        kid _exit 0
        s wait kid
        s go e epoll_wait 5 4 5000
        s blocked e
        c send 3 10 1
        s join e
    ";
    a_killed_parent_leaves_the_child_the_connection, "fork", Ring: "
        pair
        warm
        s fork kid
        c send 3 100 1
        s kill9
        kid wait_in 4 100
        kid recv 4 200
        kid send 4 100 1
        c wait_in 3 100
        c recv 3 200
        kid close 4
        c recv 3 10
    ";
}
