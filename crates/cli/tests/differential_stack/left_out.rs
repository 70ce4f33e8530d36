//! Scripts that cannot run over a link, or not through the table of functions, and why.

use crate::script::Step;

/// Commands whose calls the table has, or that make none.
const COMMANDS: &str = "socket pipe bind listen connect accept accept4 getsockname getpeername close shutdown fcntl dup dup2 dup3 nofile fionread atmark \
    outq fionbio wait_in wait_sent setsockopt getsockopt fds read readv recv recvfrom recvmsg write writev send sendto \
    sendmsg sendmmsg recvmmsg preadv2 told_each select pselect bad_select sendall recvall drain fillup overfill verify ping echo splice drain_any sendsame poll ppoll wait_ev epoll_create \
    epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 epoll_loop epoll_edges told go blocked join join_any timed \
    listens computes preloaded iov_count iov_huge bad_iov bad_readv bad_writev bad_recvmsg bad_sendmsg bad_connect bad_poll \
    bad_epoll_ctl bad_epoll_wait bad_setsockopt bad_getsockopt bad_getsockname bad_fionread bad_fionbio spin";

/// Other words that leave a script out.
const WORDS: &[(&str, &str)] = &[
    ("fastopen", "no TCP Fast Open"),
    ("errqueue", "no queue of errors"),
    ("unix", "AF_UNIX is of one host"),
    ("async", "no SIGIO"),
    ("getown", "no SIGIO"),
    ("timestamp", "no time stamps of messages"),
    ("timestampns", "no time stamps of messages"),
    ("timestamping", "no time stamps of messages"),
    ("timestamp_new", "no time stamps of messages"),
    ("timestampns_new", "no time stamps of messages"),
    ("timestamping_new", "no time stamps of messages"),
    ("zerocopy", "no MSG_ZEROCOPY"),
    ("ulp", "no upper-layer protocols (kernel TLS)"),
    ("peek_off", "no SO_PEEK_OFF"),
    ("filter", "no filters of the kernel's"),
];

/// More than this is on its way over a link only if somebody reads, or buffers are wide.
const MOST_UNREAD: u32 = 50_000;
/// More than this not even then.
const MOST_UNREAD_IF_WIDE: u32 = 3_500_000;

/// Scripts whose answers depend on what comes first, or on how the kernel's buffers grow.
const NAMED: &[(&str, &str)] = &[
    (
        "unread_data_in_a_ring_that_was_just_begun_resets",
        "over a link the last octets may come before or after the close",
    ),
    (
        "shutdown_of_both_directions",
        "over a link the other side's FIN may come before or after a call that it changes",
    ),
    (
        "epoll_edge_reports_what_is_there_after_a_shutdown",
        "over a link the acknowledgement of a FIN, which is an edge, may come before or after a call",
    ),
    (
        "epoll_edge_asked_for_again_waits_for_room",
        "how much room there is depends on how a send buffer grows",
    ),
];

/// Why this script is left out, if it is.
pub fn reason(name: &str, steps: &[Step]) -> Option<String> {
    if let Some((_, why)) = NAMED.iter().find(|(named, _)| *named == name) {
        return Some((*why).to_owned());
    }
    steps.iter().find_map(|step| of_step(&step.end, &step.command))
}

/// Whether a script leaves more unread than a link usually holds.
pub fn is_wide(steps: &[Step]) -> bool {
    steps.iter().any(|step| match *step.command.split(' ').collect::<Vec<_>>() {
        ["sendall", _, octets, ..] => octets.parse().is_ok_and(|octets: u32| octets > MOST_UNREAD),
        _ => false,
    })
}

fn of_step(end: &str, command: &str) -> Option<String> {
    let words: Vec<&str> = command.split(' ').filter(|word| !word.is_empty()).collect();
    let verb = *words.first()?;
    if end.is_empty() {
        return Some(format!("{verb}: a process that stands still stops its stack"));
    }
    if !COMMANDS.split_whitespace().any(|known| known == verb) {
        return Some(match verb {
            "exec" | "spawn" | "fork" | "vfork_exec" | "vfork_over" | "system" | "popen" | "scm_send"
            | "scm_recv" | "exit" | "_exit" | "quick_exit" | "abort" | "kill9" => {
                format!("{verb}: a stack is of one process and ends with it")
            }
            "sigaction" | "signals" | "tkill" | "setitimer" => {
                format!("{verb}: signals interrupt system calls only")
            }
            _ => format!("{verb} is not in the table"),
        });
    }
    let octets = words.get(2).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    if verb == "sendall" && octets > MOST_UNREAD_IF_WIDE {
        return Some(format!("{octets} octets that nobody reads are more than a link's buffers"));
    }
    // What a thread runs, and what is timed.
    let inner = match verb {
        "go" => 2,
        "timed" => 3,
        _ => 0,
    };
    if inner > 0 {
        let command = words.get(inner..)?.join(" ");
        return if verb == "go" && command.starts_with("sendall ") { None } else { of_step(end, &command) };
    }
    let to_itself = matches!(verb, "connect" | "sendto")
        && words.iter().any(|word| word.starts_with("0.0.0.0:") || word.contains(&format!("%port:{end}:")));
    if to_itself {
        return Some("a connection of a host with itself".to_owned());
    }
    let parts = words[1..].iter().flat_map(|word| word.split('|'));
    parts
        .filter_map(|part| WORDS.iter().find(|(word, _)| *word == part))
        .map(|(_, why)| (*why).to_owned())
        .next()
}
