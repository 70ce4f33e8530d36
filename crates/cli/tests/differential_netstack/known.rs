//! What differs from the kernel and is known to. docs/netstack-service.md has a row for each, by the same name, that says why.

use crate::script::Step;
use crate::udp_model;

/// One of them.
struct Known {
    /// As the row is called.
    row: &'static str,
    /// Whether an answer is it: the command, what the kernel answered, and what came.
    is: fn(&str, &str, &str) -> bool,
    /// Scripts that are about it and nothing else.
    scripts: &'static [&'static str],
    /// Words of commands without which there is nothing to compare.
    words: &'static [&'static str],
}

const NONE: Known = Known { row: "", is: |_, _, _| false, scripts: &[], words: &[] };

const KNOWN: &[Known] = &[
    Known { row: "POLLHUP and what is beside it", is: is_beside_hup, ..NONE },
    Known {
        row: "shutdown(SHUT_WR) of a full socket",
        scripts: &["a_shutdown_leaves_the_rest_to_the_reader"],
        ..NONE
    },
    Known { row: "listen(2) after shutdown(2)", scripts: &["a_listener_that_is_shut"], ..NONE },
    Known { row: "shutdown(2) before bind and connect", scripts: &["who_is_not_connected"], ..NONE },
    Known {
        row: "How much nobody reads",
        scripts: &[
            "half_close_serves_a_request_sent_before_it",
            "one_process_holds_both_ends",
            "a_full_ring_goes_back_to_the_kernel",
            "a_full_ring_in_non_blocking_mode",
            "a_peer_that_computes_reads_later",
            "both_ends_write_megabytes_before_either_reads",
            "epoll_edge_asked_for_again_waits_for_room",
        ],
        ..NONE
    },
    Known {
        row: "MSG_PEEK with MSG_WAITALL",
        scripts: &[
            "waitall_with_peek",
            "waitall_with_peek_ends_in_time",
            "waitall_with_peek_waits_behind_the_kernels_bytes",
            "who_waits_for_all_does_not_wait_behind_a_mark",
            "urgent_data_ends_a_peek_of_all",
        ],
        ..NONE
    },
    Known {
        row: "recvmmsg(2) and a reset",
        scripts: &["a_reset_is_told_before_the_data_by_recvmmsg"],
        ..NONE
    },
    Known {
        row: "Every address and loopback",
        // To everybody at the loopback.
        scripts: &["a_listener_on_the_wildcard_address", "to_everybody"],
        ..NONE
    },
    Known {
        row: "An urgent octet alone",
        is: is_beside_urgent,
        scripts: &[
            // Nothing is spliced where nothing but a mark is.
            "splices_end_at_a_mark",
            "urgent_octets_are_waited_for",
            "an_urgent_octet_and_a_reset",
            "who_closes_before_an_urgent_octet_was_passed_resets",
        ],
        ..NONE
    },
    Known {
        row: "SO_RCVLOWAT",
        scripts: &[
            "low_water_mark_delays_readiness",
            "low_water_mark_that_is_lowered_wakes_a_wait",
            "low_water_mark_that_is_lowered_is_an_edge",
            "low_water_mark_above_a_ring",
            "a_bound_counts_octets_behind_a_mark",
        ],
        ..NONE
    },
    Known { row: "Zero copy", words: &["copied", "zerocopy"], ..NONE },
    Known { row: "Filters", words: &["filter"], ..NONE },
    Known { row: "An error of datagrams", scripts: &["a_datagram_that_nobody_takes"], ..NONE },
    Known { row: "Datagrams and calls of streams", scripts: &["what_can_be_asked_of_a_socket"], ..NONE },
    Known { row: "SO_PEEK_OFF of datagrams", scripts: &["peeking_walks_on"], ..NONE },
    Known { row: "Datagrams after shutdown(SHUT_RD)", scripts: &["reading_or_writing_is_shut"], ..NONE },
    Known {
        row: "A stream that is dissolved (AF_UNSPEC)",
        scripts: &["what_is_dissolved_has_no_port_and_may_listen"],
        ..NONE
    },
    Known {
        row: "AF_UNSPEC of an address with port 0",
        scripts: &["who_is_connected_hears_one_only"],
        ..NONE
    },
    Known { row: "A send that fails before the first one", scripts: &["errors_of_names"], ..NONE },
    Known {
        row: "What came before it was asked for",
        scripts: &[
            "who_begins_to_ask_is_told_of_what_waits",
            "who_begins_to_ask_by_ipv6",
            "where_many_came_in_and_when",
            "where_many_came_in_and_when_by_ipv6",
            "when_it_came",
            "timestamps_of_other_kinds",
        ],
        ..NONE
    },
    Known { row: "MSG_MORE of datagrams", scripts: &["pieces_of_one_datagram"], ..NONE },
    Known { row: "A full send buffer of datagrams", scripts: &["options_of_a_socket"], ..NONE },
    Known { row: "Programs that steer a group", scripts: &["a_group_that_the_program_steers"], ..NONE },
    Known {
        row: "A writer that nobody sees",
        scripts: &[
            "a_plain_heir_writes_in_turns_with_its_parent",
            "an_exec_of_the_writer_with_what_finds_no_room_loses_nothing",
        ],
        ..NONE
    },
    // Of users, of whom scripts have one.
    Known { row: "A call from where another user listens", ..NONE },
    Known { row: "Another user beside a connected socket of every address", ..NONE },
    Known {
        row: "The environment of an heir",
        is: |command, expected, got| command == "preloaded" && (expected, got) == ("plain", "preloaded"),
        ..NONE
    },
];

/// Scripts whose answers depend on what comes first over a link.
const UNDECIDED: &[&str] = &[
    // The last octets, or the close.
    "unread_data_in_a_ring_that_was_just_begun_resets",
    "data_sent_unawares_to_a_closed_peer_resets",
    "a_send_to_a_killed_peer_begins_no_ring",
    // Who is woken, or a second octet.
    "two_threads_wait_for_what_comes_one_by_one",
    // A datagram, or the next call, which finds something else and does not wait for it.
    "poll_tells_what_is_there",
    "every_call_sends",
    "many_in_one_call",
    // Whether an error has come back by the next call.
    "who_comes_after_takes_the_port",
    "who_went_away_refuses",
    "errors_in_a_queue",
    // Which member of a group a source is for, and whether it has joined when a datagram comes.
    "one_of_a_group_gets_all_of_a_source",
    "another_program_joins_a_group",
    // The acknowledgement of a FIN, which is an edge.
    "epoll_edge_reports_what_is_there_after_a_shutdown",
];

/// Words of scripts of datagrams that are about one host, or about what is lost, and why.
const ONE_HOST: &[(&[&str], &str)] = &[
    (&["near", "flood", "gulp"], "what is lost depends on how much memory a datagram takes"),
    (&["third"], "the third program is on the kernel, which has no way there"),
    (&["until_refused"], "who is not there says so later, and not each time"),
    (&["raw_read"], "a program that nobody sees is shown headers"),
];

/// Whether what an operation of the model of datagrams does has one answer over a link: none meets a port of nobody's, whose answer is an error that
/// comes later, or not at all, and none takes several datagrams at once, of which the last may still be on its way.
pub const fn is_decided_over_a_link(op: &udp_model::Op) -> bool {
    let (closes, comes_apart) = (op.kind == 14, op.kind == 13 && op.variant.is_multiple_of(3));
    let takes_several = op.kind >= 5 && op.kind <= 8 && op.variant % 6 == 1;
    !closes && !comes_apart && !takes_several
}

/// Whether events differ only in what stands beside POLLHUP.
fn is_beside_hup(command: &str, expected: &str, got: &str) -> bool {
    agree(command, expected, got, |a, b| has_hung_up(a).is_some() && has_hung_up(a) == has_hung_up(b))
}

/// Whether all words of two answers are equal, or `alike`, to a question about events.
fn agree(command: &str, expected: &str, got: &str, alike: impl Fn(&str, &str) -> bool) -> bool {
    let is_question = ["poll", "ppoll", "epoll_"].iter().any(|verb| command.starts_with(verb));
    let (expected, got): (Vec<_>, Vec<_>) = (expected.split(' ').collect(), got.split(' ').collect());
    let all = |(a, b): (&&str, &&str)| a == b || alike(a, b);
    is_question && expected.len() == got.len() && expected.iter().zip(&got).all(all)
}

/// Whether events differ only in that there is POLLIN beside POLLPRI.
fn is_beside_urgent(command: &str, expected: &str, got: &str) -> bool {
    agree(command, expected, got, |a, b| {
        a.split([':', '|']).any(|bit| bit == "pri") && a.replacen("pri", "in|pri", 1) == *b
    })
}

/// A descriptor that has hung up, and its other events.
fn has_hung_up(word: &str) -> Option<(&str, Vec<&str>)> {
    let (fd, bits) = word.split_once(':')?;
    let bits: Vec<_> = bits.split('|').filter(|bit| !["in", "err", "rdhup"].contains(bit)).collect();
    bits.contains(&"hup").then_some((fd, bits))
}

/// The row that this difference belongs to.
pub fn difference(command: &str, expected: &str, got: &str) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.is)(command, expected, got)).map(|known| known.row)
}

/// Why a script is not compared, if it is not.
pub fn reason(name: &str, steps: &[Step]) -> Option<String> {
    let words: Vec<&str> = steps
        .iter()
        .flat_map(|step| step.command.split([' ', '|']).filter(|word| !word.is_empty()))
        .collect();
    if words.contains(&"unix") {
        return Some("AF_UNIX is of one host".to_owned());
    }
    let of_datagrams = words.contains(&"dgram");
    if let Some((_, why)) =
        ONE_HOST.iter().find(|(of, _)| of_datagrams && of.iter().any(|word| words.contains(word)))
    {
        return Some((*why).to_owned());
    }
    if UNDECIDED.contains(&name) {
        return Some("over a link the kernel itself does not decide".to_owned());
    }
    let is =
        |known: &&Known| known.scripts.contains(&name) || known.words.iter().any(|word| words.contains(word));
    KNOWN.iter().find(is).map(|known| format!("what differs: {}", known.row))
}

/// The steps as they are run: who waits for POLLERR beside POLLHUP waits for POLLHUP.
pub fn adapted(steps: Vec<Step>) -> Vec<Step> {
    let counts = steps.iter().any(|step| step.command.starts_with("count "));
    let adapt = |step: Step| {
        let command = match step.command.strip_prefix("wait_ev ") {
            Some(rest) => format!("wait_ev {}", rest.replace("err|hup", "hup").replace("hup|err", "hup")),
            None => step.command,
        };
        Step { command, ..step }
    };
    // What was sent to a socket before it is connected is there by then.
    let before = |step: &Step| {
        let fd = step.command.strip_prefix("connect ").filter(|_| counts)?.split(' ').next()?;
        Some(Step::new(&step.end, format!("count {fd}")))
    };
    steps.into_iter().map(adapt).flat_map(|step| before(&step).into_iter().chain([step])).collect()
}

/// The page has a row for each, and no other.
#[test]
fn the_page_says_what_differs_from_the_kernel() {
    let text = std::fs::read_to_string(crate::common::workspace().join("docs/netstack-service.md"))
        .expect("the page");
    let section = text.split("## What differs from the kernel").nth(1).expect("its section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .filter(|name| *name != "what")
        .collect();
    let names: Vec<String> = KNOWN.iter().map(|known| known.row.to_owned()).collect();
    assert_eq!(rows, names);
}
