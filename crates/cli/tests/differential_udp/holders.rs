//! Others get a socket, or have it, too: what waits there, what several processes do with one, who goes on.
//!
//! `recv ... dontwait` that finds nothing leaves a mailbox open: what is sent next could lie there.

use crate::hand::scripts;
use crate::programs;
use crate::run::{Combination, Over, Pair, Under};
use crate::script::parse;
use std::time::{Duration, Instant};

scripts! {
    a_server_that_only_waits_gives_the_first_request_away, "what waits when another gets the socket", Either: "
        dgrams inherited 127.0.0.1
        s poll 0 3:in
        c sendto 3 10 1 0 @s:3
        s poll 5000 3:in
        s fork worker
        worker exec plain
        worker receive 3 100
        worker sendto 3 20 2 0 127.0.0.1:%port:c:3
        c receive 3 100
        worker exit 0
        s wait worker
        s poll 0 3:in
        c sendto 3 11 1 0 @s:3
        s poll 5000 3:in
        s fork next
        next exec same
        next receive 3 100
        next receive 3 100 dontwait
        next exit 0
        s wait next
        s poll 0 3:in
    ";
    a_server_gives_away_what_it_has_not_read, "what waits when another gets the socket", Either: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        c sendto 3 0 1 0 @s:3
        s fork worker
        worker exec plain
        c sendto 3 12 1 0 @s:3
        worker receive 3 100
        worker receive 3 100
        worker receive 3 100
        worker receive 3 100
        worker receive 3 100 dontwait
        s recv 3 10 dontwait
        worker exit 0
        s wait worker
        pings
        s recv 3 10 dontwait
        c sendto 3 13 1 0 @s:3
        s spawn other plain
        other receive 3 100
        s recv 3 10 dontwait
        other exit 0
        s wait other
        pings
    ";
    a_program_goes_on_as_another_with_what_waits, "what waits when another gets the socket", Either: "
        dgrams inherited 127.0.0.1
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        s exec same
        c sendto 3 12 1 0 @s:3
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
        pings
        s recv 3 10 dontwait
        c sendto 3 13 1 0 @s:3
        s exec plain
        s receive 3 100
        s recv 3 10 dontwait
        pings
    ";
    a_program_lets_the_next_one_have_it, "what waits when another gets the socket", Ring: "
        dgrams 127.0.0.1
        pings
        s fcntl 3 setfd 0
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        s exec plain
        s receive 3 100
        pings
    ";
    a_copy_can_be_inherited, "what waits when another gets the socket", Ring: "
        dgrams 127.0.0.1
        pings
        s dup 3
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        s exec plain
        s receive 4 100
    ";
    what_waits_is_passed_on, "what waits when another gets the socket", Either: "
        dgrams inherited 127.0.0.1
        s socketpair
        s fork heir
        heir close 3
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        c sendto 3 11 1 0 @s:3
        s scm_send 4 3
        heir scm_recv 5
        heir receive 3 100
        s close 3
        heir receive 3 100
        heir go echoes echo_from 3 100
        c ping_to 3 100 64 127.0.0.1:%port:heir:3
        heir join echoes
        heir exit 0
        s wait heir
    ";
    programs_are_started_now_and_then, "several processes on one socket", Either: "
        dgrams inherited 127.0.0.1
        pings
        s system
        pings
        c popen
        pings
        s recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        s system
        s receive 3 100
        pings
        c connect 3 @s:3
        pings -
        c vfork_exec 3 10 1
        c send 3 11 2
        s receive 3 100
        s receive 3 100
        pings -
        s recv 3 10 dontwait
        c vfork_exec 3 12 1
        c send 3 13 2
        c vfork_exec 3 14 1
        c send 3 15 2
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s recv 3 10 dontwait
    ";
    workers_answer_from_one_socket, "several processes on one socket", Either: "
        dgrams 127.0.0.1
        s fork one
        s fork two
        one go echoes echo_from 3 300
        two go echoes echo_from 3 300
        c ping_to 3 600 64 @s:3
        one join echoes
        two join echoes
        one recv 3 10 dontwait
        c sendto 3 10 1 0 @s:3
        two receive 3 100
        two recv 3 10 dontwait
        one go waits recv 3 100
        one blocked waits
        c sendto 3 11 1 0 @s:3
        one join waits
        c sendto 3 12 1 0 @s:3
        s receive 3 100
        one exit 0
        s wait one
        two recv 3 10 dontwait
        two kill9
        s wait two
        c sendto 3 13 1 0 @s:3
        s receive 3 100
        pings
    ";
    a_mode_that_another_process_has_set, "several processes on one socket", Ring: "
        dgrams 127.0.0.1
        pings
        s fcntl 3 setfl nonblock
        s recv 3 10
        s fork heir
        heir fcntl 3 setfl 0
        heir exit 0
        s wait heir
        pings
        pings
        s recv 3 10 dontwait
        s go waits recv 3 100
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        s vfork_set 3 fionbio 1
        s recv 3 10
        s vfork_set 3 fionbio 0
        s go waits recv 3 100
        s blocked waits
        c sendto 3 11 1 0 @s:3
        s join waits
        s vfork_set 3 rcvtimeo 60
        s timed 50 400 recv 3 10
    ";
    what_waits_is_a_vfork_childs_to_read, "what waits when another gets the socket", Ring: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        pings -
        s recv 3 10 dontwait
        c send 3 10 1
        c send 3 11 1
        s vfork_recv 3 100
        c send 3 12 1
        s receive 3 100
        s receive 3 100
        s receive 3 100 dontwait
        s vfork_recv 3 100
        pings -
        s recv 3 10 dontwait
        c send 3 13 1
        s receive 3 100
    ";
    a_mode_that_another_holder_sets, "several processes on one socket", Either: "
        dgrams 127.0.0.1
        s fork heir
        pings
        s fcntl 3 setfl nonblock
        heir fcntl 3 setfl 0
        s recv 3 10 dontwait
        s go waits recv 3 100
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        heir fcntl 3 setfl nonblock
        s recv 3 10
        heir exit 0
        s wait heir
    ";
    a_mode_that_a_plain_program_sets, "several processes on one socket", Either: "
        dgrams inherited 127.0.0.1
        pings
        s spawn other plain
        pings
        s fcntl 3 setfl nonblock
        other fcntl 3 setfl 0
        s recv 3 10 dontwait
        s go waits recv 3 100
        s blocked waits
        c sendto 3 10 1 0 @s:3
        s join waits
        other exit 0
        s wait other
    ";
    what_two_processes_send_comes_in_order, "several processes on one socket", Either: "
        dgrams 127.0.0.1
        c connect 3 @s:3
        c fork heir
        pings -
        heir go more echo_from 3 0
        heir join more
        s recv 3 10 dontwait
        heir send 3 10 1
        c send 3 11 2
        heir send 3 12 3
        c send 3 13 4
        c send 3 14 5
        heir send 3 15 6
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        s receive 3 100
        heir exit 0
        c wait heir
        pings -
    ";
    another_process_sets_an_option, "several processes on one socket", Either: "
        dgrams 127.0.0.1
        s fork heir
        pings
        heir setsockopt 3 recvttl 1
        c sendto 3 10 1 0 @s:3
        s receive 3 100
        pings
        heir exit 0
        s wait heir
        s receive 3 100 dontwait
        pings
    ";
    another_process_connects_it, "several processes on one socket", Either: "
        dgrams 127.0.0.1
        c socket inet dgram|cloexec
        c bind 4 127.0.0.1:0
        s fork heir
        pings
        s recv 3 10 dontwait
        heir connect 3 127.0.0.1:%port:c:4
        c sendto 3 10 1 0 @s:3
        c sendto 4 11 1 0 @s:3
        s receive 3 100
        s recv 3 10 dontwait
        s send 3 12 1
        c receive 4 100
        heir exit 0
        s wait heir
    ";
}

/// Whether some went by a ring is the scheduler's affair where each has to be taken within microseconds: it is tried again, for as long.
const PATIENCE: Duration = Duration::from_secs(120);

fn until_some_go_by_the_ring(text: &str) {
    if !programs::REQUIRE_RING {
        return;
    }
    let combination = Combination { client: Under::Eager, server: Under::Eager, over: Over::Datagrams };
    let (steps, until) = (parse(text), Instant::now() + PATIENCE);
    loop {
        let mut pair = Pair::start(combination);
        let answers = pair.record(&steps);
        let bytes = pair.finish().expect("both end in order");
        if bytes.ring_tx > 0 && bytes.ring_rx > 0 {
            return;
        }
        assert!(Instant::now() < until, "nothing went through shared memory: {bytes:?}, {answers:?}");
    }
}

#[test]
fn who_can_be_inherited_is_on_the_ring() {
    until_some_go_by_the_ring("dgrams inherited 127.0.0.1\npings\npings\npings");
}

#[test]
fn who_has_started_a_program_is_on_the_ring() {
    until_some_go_by_the_ring("dgrams inherited 127.0.0.1\ns system\nc system\npings\npings\npings");
}

#[test]
fn who_has_a_child_with_it_as_its_input_is_on_the_ring() {
    until_some_go_by_the_ring(
        "dgrams 127.0.0.1
        s fork worker
        worker dup2 3 0
        pings
        pings
        pings
        worker exit 0
        s wait worker",
    );
}

#[test]
fn one_of_several_workers_is_on_the_ring() {
    until_some_go_by_the_ring(
        "dgrams 127.0.0.1
        s fork worker
        worker go echoes echo_from 3 150
        s go echoes echo_from 3 150
        c ping_to 3 300 64 @s:3
        worker join echoes
        s join echoes
        worker exit 0
        s wait worker",
    );
}
