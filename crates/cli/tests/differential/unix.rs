//! The same scripts over AF_UNIX streams: the switch on a carrier that is not TCP. The kernel's AF_UNIX is the
//! specification here.

use crate::hand::{Script, check, scripts};
use crate::run::Over;

/// Scripts that have no equivalent on AF_UNIX streams, and why.
const TCP_ONLY: &[(&str, &str)] = &[
    ("low_water_mark_above_a_ring", "poll does not look at SO_RCVLOWAT"),
    ("low_water_mark_that_is_lowered_is_an_edge", "poll does not look at SO_RCVLOWAT"),
    ("low_water_mark_that_is_lowered_wakes_a_wait", "poll does not look at SO_RCVLOWAT"),
    ("sendto_ignores_the_address_of_a_connected_socket", "an address is refused: EISCONN"),
    ("who_is_connected_cannot_connect_by_sending", "MSG_FASTOPEN means nothing"),
    ("trunc_discards_without_a_copy", "MSG_TRUNC discards on TCP only"),
    ("waitall_with_peek", "MSG_PEEK does not wait for MSG_WAITALL"),
    ("waitall_with_peek_ends_in_time", "as above"),
    ("urgent_data_ends_a_peek_of_all", "as above"),
    ("urgent_data_in_line_ends_a_peek_of_all", "as above"),
    ("waitall_with_peek_waits_behind_the_kernels_bytes", "as above"),
    ("queue_sizes_are_told", "SIOCOUTQ counts memory, not bytes"),
    ("other_kinds_of_sockets_are_left_alone", "is about sockets of other kinds"),
    (
        "data_comes_before_the_end",
        "sends more than the queue takes before anybody reads; here: data_before_the_end",
    ),
    ("data_comes_before_the_end_of_a_process", "as above; here: data_before_the_end_of_a_process"),
    ("half_close_serves_a_request_sent_before_it", "as above; here: half_close_serves_a_request"),
    ("half_close_the_other_way", "as above; here: half_close_of_the_reader"),
    ("a_full_ring_goes_back_to_the_kernel", "as above; here: a_full_ring"),
    ("a_full_ring_in_non_blocking_mode", "as above; here: a_full_ring_without_waiting"),
    ("a_peer_that_computes_reads_later", "as above; here: a_peer_that_computes"),
    ("a_thread_blocked_in_recv_while_the_other_direction_switches", "as above; here: a_blocked_reader"),
    ("both_ends_write_megabytes_before_either_reads", "as above; here: megabytes_both_ways"),
    ("one_process_holds_both_ends", "as above; here: both_ends_in_one_process"),
    ("data_to_a_closed_peer_resets", "a closed peer is EPIPE at once; here: a_closed_peer"),
    ("pending_error_is_reported_once", "as above; here: a_closed_peer_that_had_unread_data"),
    ("data_sent_unawares_to_a_closed_peer_resets", "as above; here: a_closed_peer"),
    ("half_closed_and_killed_when_it_has_read_all", "as above"),
    ("half_closed_and_killed_while_nobody_looks", "as above"),
    ("connect_errors_are_reported", "a refused connect changes nothing; here: a_refused_connect"),
    ("shutdown_of_reading_ends_reads", "a writer learns of it: EPIPE; here: shutdown_of_reading"),
    (
        "what_found_no_room_goes_on_while_its_writer_reads",
        "SO_RCVBUF means nothing: the room is the writer's own",
    ),
    ("what_found_no_room_goes_on_while_its_writer_polls", "as above"),
    ("what_found_no_room_goes_on_while_its_writer_waits_in_epoll", "as above"),
    ("what_found_no_room_goes_on_while_its_writer_reads_elsewhere", "as above"),
    ("what_found_no_room_is_whole_after_a_while", "as above"),
    ("a_close_of_what_finds_no_room_loses_nothing", "as above"),
    ("a_shutdown_of_what_finds_no_room_loses_nothing", "as above"),
    ("an_exit_with_what_finds_no_room_loses_nothing", "as above"),
    ("an_exec_of_the_writer_with_what_finds_no_room_loses_nothing", "as above"),
    ("a_heir_writes_behind_what_found_no_room", "as above"),
    ("the_end_comes_behind_a_ring_that_was_just_begun", "a splice is for good where nothing is counted"),
    ("a_reset_comes_behind_a_ring_that_was_just_begun", "as above"),
    ("peek_shows_what_stands_in_a_ring_behind_the_kernels_bytes", "as above"),
    ("a_send_to_a_killed_peer_begins_no_ring", "as above"),
    ("epoll_edge_reports_what_is_ready_on_either_path", "as above"),
    ("epoll_edge_of_bytes_that_were_read_tells_of_room", "as above"),
    ("bytes_received_by_an_option", "there is no TCP_ZEROCOPY_RECEIVE"),
    ("unread_data_in_a_ring_that_was_just_begun_resets", "as above"),
    ("a_plain_heir_writes_in_turns_with_its_parent", "as above"),
    ("a_plain_heir_reads_what_its_parent_leaves", "as above"),
    ("a_plain_heir_reads_what_its_parent_was_ready_for", "as above"),
    ("a_send_behind_what_found_no_room_comes_after_it", "as above"),
    ("shutdown_twice_and_in_the_other_order", "as above; here: shutdown_twice"),
    (
        "shutdown_of_both_directions_keeps_what_is_there",
        "a writer learns of it: EPIPE; here: shutdown_keeps_what_is_there",
    ),
    ("shutdown_of_both_directions_beside_a_stopped_writer", "as above"),
    ("shutdown_of_one_direction_after_the_other", "as above"),
    ("shutdown_of_both_directions_keeps_much", "as above"),
    ("shutdown_of_both_directions_and_a_close", "there is no reset"),
    ("a_reset_is_told_before_the_data_by_recvmmsg", "as above"),
    ("a_shutdown_leaves_the_rest_to_the_reader", "is about a buffer that stays narrow"),
    ("a_shutdown_of_both_directions_leaves_the_rest_to_the_reader", "as above"),
    ("a_second_shutdown_leaves_the_rest_to_the_reader", "as above"),
    ("a_close_behind_a_shutdown_leaves_the_rest_to_the_reader", "as above"),
    ("an_exit_behind_a_shutdown_leaves_the_rest_to_the_reader", "as above"),
    ("a_close_leaves_the_rest_to_the_reader", "as above"),
    ("memory_that_is_wanted_elsewhere_is_not_the_readers", "as above"),
    ("what_is_left_is_told_when_asked_for_late", "there is no TCP_INQ"),
    ("what_is_left_is_told_when_asked_for_first", "as above"),
    ("what_is_left_is_told_when_the_listener_was_asked", "as above"),
    ("times_of_what_was_sent_are_told_apart", "no times are taken"),
];

/// Declares a test for each script that runs over AF_UNIX, and the list of them.
macro_rules! over_unix {
    ($($file:ident: $($name:ident)*;)*) => {
        const HERE: &[&str] = &[$($(stringify!($name),)*)*];
        $(mod $file {
            $(#[test]
            fn $name() {
                super::run(crate::$file::SCRIPTS, stringify!($name));
            })*
        })*
    };
}

#[test]
fn every_script_runs_here_or_has_a_reason_not_to() {
    for script in crate::itself::all() {
        let runs = HERE.contains(&script.name);
        let excluded = TCP_ONLY.iter().any(|(name, _)| *name == script.name);
        assert!(runs != excluded, "{}: runs here: {runs}, has a reason not to: {excluded}", script.name);
    }
    for (name, reason) in TCP_ONLY {
        assert!(crate::itself::all().any(|s| s.name == *name), "no script is called {name}");
        let replaced = reason.split_once("here: ").map(|(_, own)| own);
        assert!(replaced.is_none_or(|own| SCRIPTS.iter().any(|s| s.name == own)), "{name}: {reason}");
    }
}

fn run(scripts: &[Script], name: &str) {
    let script = scripts.iter().find(|s| s.name == name).expect("a script of this name");
    check(script, Over::Unix);
}

over_unix! {
    pressure:
        a_killed_holder_keeps_no_bytes_back
        who_never_waits_hears_of_a_killed_peer
        bytes_that_wait_long_are_whole
        what_waits_while_a_vfork_child_has_something_else_there
        a_ring_begins_again_behind_what_the_kernel_moved
    ;
    data:
        every_spelling_of_send_and_receive_moves_the_bytes
        a_receive_returns_what_is_there
        a_full_path_takes_a_part_and_then_says_eagain
        a_non_blocking_send_larger_than_any_buffer_is_partial
        peek_leaves_the_bytes
        a_peek_before_the_upgrade_counts_nothing
        waitall_waits_for_all_of_it
        waitall_of_more_than_a_ring_holds
        waitall_does_not_wait_when_told_not_to
        dontwait_does_not_wait
        sigpipe_is_raised_or_not_as_asked
        sigpipe_kills_by_default
        sigpipe_after_own_shutdown
        vectors_scatter_and_gather
        zero_length_calls_do_nothing
        bad_pointers_to_data_are_efault
        a_buffer_that_ends_in_the_void_is_efault_or_partial
        bad_pointers_to_structures_are_efault
        non_blocking_descriptors_do_not_wait
        a_thread_that_waits_is_not_touched_by_nonblock
        receive_timeouts_end_in_time
        send_timeouts_end_in_time
        low_water_mark_delays_readiness
        writes_of_any_size_arrive
    ;
    ends:
        what_came_between_a_look_and_the_end_is_there
        what_came_between_a_look_and_a_kill_is_there
        shutdown_of_writing_is_end_of_file_after_the_data
        shutdown_of_reading_keeps_what_is_there
        shutdown_of_reading_ends_nothing_that_is_sent
        shutdown_of_reading_beside_a_stopped_writer
        shutdown_of_both_directions
        shutdown_wakes_a_thread_that_reads
        shutdown_wakes_a_thread_that_writes
        shutdown_wakes_poll_and_epoll
        unread_data_at_close_resets
        unread_data_at_close_resets_a_reader
        linger_of_zero_resets
        linger_waits_for_the_data
        exit_delivers_everything
        quick_exit_delivers_everything
        exit_with_unread_data_resets
        abort_delivers_what_was_sent
        killed_peer_with_data_in_flight
        killed_peer_wakes_a_reader
        killed_peer_wakes_epoll_and_poll
        killed_peer_stops_a_writer
        half_closed_and_killed_with_octets_unread
        half_closed_and_killed_beside_a_writer
        killed_peer_that_had_unread_data
        the_error_of_a_killed_peer_is_told_once
        close_of_one_of_two_descriptors_ends_nothing
        close_while_a_thread_reads
        closed_descriptors_are_ebadf
        a_new_connection_on_an_old_number_starts_afresh
        a_reset_connection_can_be_used_no_more
    ;
    readiness:
        poll_reports_what_is_so
        poll_waits_for_several_connections
        poll_mixes_with_ordinary_descriptors
        select_reports_what_is_so
        a_descriptor_that_is_closed_under_a_select_is_ready
        every_name_of_an_event_is_known_to_epoll
        writability_comes_back_when_the_peer_reads
        duplicated_descriptors_share_the_connection
        dup2_over_a_connection_closes_it
        dup2_of_a_connection_over_another
    ;
    epoll:
        epoll_tells_both_paths_in_one_report
        epoll_tells_both_paths_in_one_report_the_other_way_round
        epoll_oneshot_tells_of_the_end_with_the_bytes
        epoll_oneshot_stays_disarmed_over_an_upgrade
        epoll_level_reports_again
        epoll_edge_reports_news_once
        epoll_edge_reports_what_is_there_after_a_shutdown
        epoll_edge_for_writing_comes_with_space
        epoll_edge_for_room_that_came_before_the_wait
        epoll_edge_asked_for_again_waits_for_room
        epoll_oneshot_reports_once_until_rearmed
        epoll_exclusive_wakes_at_least_one
        epoll_in_epoll
        epoll_in_epoll_after_a_set_that_was_rung
        epoll_in_epoll_after_more_than_a_ring_holds
        epoll_edges_that_found_no_room_come_next
        a_connection_that_joins_a_set_in_use_is_served
        two_threads_wait_for_what_comes_one_by_one
        one_descriptor_in_several_epolls
        registered_before_connect
        registered_before_the_upgrade
        an_epoll_set_shared_by_threads_wakes_one_for_each_connection
        closing_the_descriptor_leaves_the_epoll
        many_connections_in_one_epoll
    ;
    recall:
        a_filter_of_the_kernel_looks_at_all_that_comes
        what_came_before_a_filter_is_there
        bytes_that_nobody_saw_sent_wake_a_reader
        a_writer_that_reads_elsewhere_gives_back_what_nobody_reads
        a_stream_over_the_descriptor
        a_stream_reads_what_is_already_there
        urgent_data_is_the_kernels
        urgent_data_in_line
        urgent_data_ends_a_read_of_all
        urgent_data_before_any_upgrade
        a_protocol_of_the_kernel_takes_over
        what_is_in_a_ring_is_there_after_a_smaller_buffer
        other_options_work_as_ever
        corked_bytes_arrive_when_uncorked
        sendfile_moves_a_file
        splice_moves_between_pipes_and_sockets
        sockets_have_no_position
        system_calls_that_nobody_sees
    ;
    told:
        nothing_is_told_that_nobody_asked_for
        times_are_told_when_asked_for_late
        times_are_told_when_asked_for_first
        new_times_are_told_when_asked_for_late
        new_times_are_told_when_asked_for_first
        times_in_nanoseconds_are_told_when_asked_for_late
        times_in_nanoseconds_are_told_when_asked_for_first
        new_times_in_nanoseconds_are_told_when_asked_for_late
        new_times_in_nanoseconds_are_told_when_asked_for_first
        times_of_a_kind_are_told_when_asked_for_late
        times_of_a_kind_are_told_when_asked_for_first
        new_times_of_a_kind_are_told_when_asked_for_late
        new_times_of_a_kind_are_told_when_asked_for_first
    ;
    inherited:
        exec_keeps_the_connection_for_a_plain_heir
        exec_takes_back_what_a_waiting_peer_wrote
        exec_takes_back_what_a_computing_peer_wrote
        exec_takes_back_what_a_second_thread_waits_beside
        a_bell_that_a_child_was_told_of_is_not_its_parents
        a_child_that_waits_is_asked_for_what_it_wrote
        a_child_that_waits_in_epoll_is_asked_for_what_it_wrote
        a_descriptor_sent_takes_back_what_a_waiting_peer_wrote
        posix_spawn_takes_back_what_a_waiting_peer_wrote
        exec_keeps_the_connection_for_a_preloaded_heir
        exec_of_the_writer_delivers_its_bytes
        exec_closes_what_is_cloexec
        an_exec_that_fails_changes_nothing
        exec_with_a_stopped_peer
        exec_with_both_ends_writing
        posix_spawn_hands_on_the_connection
        posix_spawn_of_a_preloaded_heir
        posix_spawn_does_not_see_cloexec
        vfork_and_exec_hand_on_the_connection
        what_a_vfork_child_sets_holds
        system_hands_on_the_connection
        popen_hands_on_the_connection
        a_descriptor_sent_to_another_process
        a_descriptor_sent_stays_on_the_kernel
        a_descriptor_in_flight_keeps_the_connection
        a_close_beside_a_descriptor_in_flight_resets_nothing
        a_close_beside_another_holder_resets_nothing
        parent_and_child_use_one_connection
        a_child_serves_what_its_parent_accepted
        a_child_that_exits_takes_nothing_along
        a_child_reads_while_its_parent_sleeps_in_recv
        a_child_waits_on_an_inherited_epoll
        a_killed_parent_leaves_the_child_the_connection
    ;
    sockets:
        ipv4_loopback
        any_address_of_the_host
        a_listener_on_the_wildcard_address
        ipv6_loopback
        ipv4_mapped_on_both_ends
        ipv4_client_of_an_ipv6_listener
        a_client_that_binds_first
        accept_in_all_its_spellings
        data_sent_before_accept
        connect_of_a_connected_socket_fails
        descriptors_0_1_and_2_stay_on_the_kernel
        a_connection_copied_to_standard_input
        close_range_closes_connections
        close_range_with_unread_bytes_resets
        what_was_sent_before_a_close_range_is_the_kernels
        closefrom_closes_connections
        the_limit_of_descriptors_is_the_programs
        descriptor_numbers_are_the_kernels
        a_number_that_was_closed_unseen_is_another_connections
    ;
    waiting:
        full_duplex_streams_do_not_disturb_each_other
        back_pressure_of_a_stopped_peer_stops_the_writer
        a_blocking_writer_waits_for_a_stopped_peer_and_goes_on
        threads_share_a_receiving_descriptor
        five_threads_wait_for_one_connection
        five_threads_poll_one_connection
        five_epoll_sets_wait_for_one_connection
        an_epoll_set_waits_beside_four_threads
        threads_share_a_sending_descriptor
        a_thread_blocked_in_recv_survives_the_switch
        a_thread_blocked_in_poll_survives_the_switch
        signals_interrupt_or_restart_a_blocked_call
        waitall_interrupted_returns_what_it_has
        an_interval_timer_interrupts
    ;
}

scripts! { over Unix;
    data_before_the_end, "data before EOF", Ring: "
        pair
        warm
        c sendall 3 120000 1 60000
        c close 3
        s drain 4
        s poll 0 4:in|out|rdhup
        s close 4
    ";
    data_before_the_end_of_a_process, "data before EOF", Ring: "
        pair
        warm
        c sendall 3 120000 1 60000
        c _exit 3
        s drain 4
    ";
    half_close_serves_a_request, "half close", Ring: "
        pair
        warm
        c sendall 3 90000 1 30000
        c shutdown 3 wr
        s drain 4
        s go w sendall 4 700000 2 30000
        c recvall 3 700000
        s join w
        s close 4
        c drain 3
        c close 3
    ";
    half_close_of_the_reader, "half close", Ring: "
        pair
        warm
        s send 4 100 1
        s shutdown 4 wr
        c wait_ev 3 rdhup
        c recv 3 1000
        c recv 3 1000
        c sendall 3 90000 3 30000
        c close 3
        s drain 4
        s close 4
    ";
    a_full_ring, "recall: ring full", Ring: "
        pair
        warm
        c go w sendall 3 1000000 1 1000
        c blocked w
        s recvall 4 1000000
        c join w
        c send 3 10 2
        s wait_in 4 10
        s recv 4 10
    ";
    a_full_ring_without_waiting, "recall: ring full", Ring: "
        pair
        warm
        c fcntl 3 setfl nonblock
        c fillup 3 1
        c send 3 200000 1
        c poll 0 3:in|out
        c shutdown 3 wr
        s drain_any 4
        c poll 0 3:in|out|rdhup
    ";
    a_peer_that_computes, "both ends writing megabytes before either reads", Ring: "
        pair
        warm
        s go compute spin 400
        c go w sendall 3 1500000 5 100000
        s join compute
        s recvall 4 1500000
        c join w
    ";
    a_blocked_reader, "a thread blocked in the kernel when the switch happens", Either: "
        pair
        s go r recv 4 100
        s blocked r
        s sendall 4 60000 1 30000
        c recvall 3 60000
        c send 3 50 1
        s join r
    ";
    megabytes_both_ways, "full duplex", Ring: "
        pair
        warm
        s go w sendall 4 1500000 3 50000
        c go w sendall 3 1500000 5 70000
        s go r recvall 4 1500000
        c recvall 3 1500000
        s join r
        s join w
        c join w
    ";
    both_ends_in_one_process, "full duplex", Either: "
        s socket inet
        s bind 3 127.0.0.1:0
        s listen 3
        s socket inet
        s connect 4 127.0.0.1:%port:s:3
        s accept 3
        s go w echo 5 64 100
        s ping 4 64 100
        s join w
        s sendall 4 60000 1 30000
        s sendall 5 60000 2 30000
        s recvall 4 60000
        s recvall 5 60000
        s send 4 10 1
        s wait_in 5 10
        s recv 5 100
        s close 4
        s recv 5 100
    ";
    a_closed_peer, "MSG_NOSIGNAL and SIGPIPE", Ring: "
        pair
        warm
        s close 4
        c wait_ev 3 rdhup
        c getsockopt 3 error
        c send 3 10 1 nosignal
        c wait_ev 3 hup
        c poll 0 3:in|out|rdhup
        c recv 3 10
        c getsockopt 3 error
        c send 3 10 1
    ";
    a_closed_peer_that_had_unread_data, "unread data at close (RST)", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s close 4
        c wait_ev 3 hup
        c send 3 10 1 nosignal
        c getsockopt 3 error
        c recv 3 10
        c send 3 10 1 nosignal
    ";
    a_refused_connect, "SO_ERROR", Ring: "
        s socket inet
        s bind 3 127.0.0.1:0
        c socket inet
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 error
        c send 3 10 1 nosignal
        c recv 3 10
        s listen 3
        c connect 3 127.0.0.1:%port:s:3
        c getsockopt 3 error
        s accept 3
        warm
        c connect 3 127.0.0.1:%port:s:3
    ";
    shutdown_keeps_what_is_there, "shutdown in all its orders", Ring: "
        pair
        warm
        c send 3 5000 1
        s wait_in 4 5000
        stop c
        s shutdown 4 rdwr
        s recv 4 1000 dontwait
        cont c
        s recv 4 4000 waitall
        s recv 4 10
        c send 3 10 2 nosignal
        c recv 3 10
    ";
    shutdown_of_reading, "shutdown in all its orders", Ring: "
        pair
        warm
        c sigaction pipe ignore
        s shutdown 4 rd
        s recv 4 10
        s poll 0 4:in|out|rdhup
        c send 3 10 1
        c send 3 10 1 nosignal
        c poll 0 3:in|out|rdhup
        s send 4 10 1
        c wait_in 3 10
        c recv 3 100
    ";
    shutdown_twice, "shutdown in all its orders", Ring: "
        pair
        warm
        s sigaction pipe ignore
        c shutdown 3 rd
        c shutdown 3 rd
        c shutdown 3 wr
        c shutdown 3 wr
        s recv 4 10
        s send 4 10 1
        s close 4
        c shutdown 3 0x7
        c shutdown 99 wr
    ";
}
