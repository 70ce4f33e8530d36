//! The harness itself: it must see a wrong answer, and no promise may be without a script.

use crate::hand::Script;
use crate::run::{Combination, Pair};
use crate::script::parse;

/// What is promised about TCP sockets under the library; each needs a script.
const PROMISES: &[&str] = &[
    "IPv4",
    "IPv6",
    "IPv4-mapped",
    "any host address",
    "client bound or not",
    "descriptors 0, 1 and 2",
    "descriptor numbers",
    "close_range/closefrom",
    "ioctl (FIONREAD, FIONBIO, SIOCOUTQ)",
    "every libc entry",
    "socket options",
    "partial reads and writes",
    "MSG_PEEK",
    "MSG_WAITALL",
    "MSG_DONTWAIT",
    "MSG_TRUNC",
    "MSG_NOSIGNAL and SIGPIPE",
    "scatter/gather",
    "zero length",
    "bad pointers (EFAULT)",
    "O_NONBLOCK and SOCK_NONBLOCK",
    "SO_RCVTIMEO/SNDTIMEO",
    "SO_RCVLOWAT",
    "SO_LINGER",
    "SO_ERROR",
    "shutdown in all its orders",
    "half close",
    "unread data at close (RST)",
    "data before EOF",
    "peer killed with data in flight",
    "back-pressure of a stopped peer",
    "both ends writing megabytes before either reads",
    "writes of any size",
    "full duplex",
    "threads",
    "signals",
    "a thread blocked in the kernel when the switch happens",
    "poll",
    "select",
    "epoll level",
    "epoll edge",
    "epoll one-shot",
    "epoll exclusive",
    "nested epoll",
    "one descriptor in several epolls",
    "registered before connect",
    "registered before the upgrade",
    "mixed with ordinary descriptors",
    "epoll shared by threads",
    "dup'ed descriptors",
    "memory of rings",
    "O(ready)",
    "fork",
    "recall: close",
    "recall: exit",
    "recall: exec",
    "recall: posix_spawn",
    "recall: system",
    "recall: popen",
    "recall: SCM_RIGHTS",
    "recall: fdopen/stdio",
    "recall: MSG_OOB",
    "recall: ring full",
    "recall: TCP_ULP",
    "recall: un-hooked calls",
    "control messages",
    "sendfile/splice/pread/pwrite",
];

pub fn all() -> impl Iterator<Item = &'static Script> {
    let files = [
        crate::data::SCRIPTS,
        crate::ends::SCRIPTS,
        crate::pressure::SCRIPTS,
        crate::epoll::SCRIPTS,
        crate::inherited::SCRIPTS,
        crate::narrow::SCRIPTS,
        crate::readiness::SCRIPTS,
        crate::recall::SCRIPTS,
        crate::sockets::SCRIPTS,
        crate::told::SCRIPTS,
        crate::waiting::SCRIPTS,
    ];
    files.into_iter().flatten()
}

#[test]
fn every_promise_has_a_script() {
    for promise in PROMISES {
        assert!(all().any(|s| s.covers == *promise), "no script covers: {promise}");
    }
    for script in all() {
        assert!(
            PROMISES.contains(&script.covers),
            "{} covers something unknown: {}",
            script.name,
            script.covers
        );
    }
}

/// Every kind of answer, falsified in turn, is found, and at the step where it is wrong.
#[test]
fn a_wrong_answer_is_found_at_its_step() {
    let steps = parse(
        "pair
         warm
         c send 3 1000 1
         s wait_in 4 1000
         s poll 0 4:in|out
         s epoll_create1 0
         s epoll_ctl 5 add 4 in|out|et 4
         s epoll_edges 5 8 0
         s recv 4 600
         s fionread 4
         s recv 4 600
         s recv 4 1 dontwait
         c shutdown 3 wr
         s drain 4
         s fds",
    );
    let mut pair = Pair::start(Combination::KERNEL);
    let truth = pair.record(&steps);
    pair.finish().expect("ends in order");
    let falsify: &[(&str, &str, &str)] = &[
        ("connect", "0 -", "-1 ECONNREFUSED"),
        ("accept", "4 -", "5 -"),
        ("send", "1000", "999"),
        ("poll", "in|out", "in"),
        ("epoll_edges", "in|out", "in|out|rdhup"),
        ("recv", "head=", "head=ff"),
        ("recv", "n=600", "n=601"),
        ("fionread", " 400", " 399"),
        ("drain", "0 -", "-1 ECONNRESET"),
        ("fds", " 5", ""),
    ];
    for (command, from, to) in falsify {
        let index = steps
            .iter()
            .zip(&truth)
            .position(|(s, t)| s.command.starts_with(command) && t.contains(from))
            .unwrap_or_else(|| panic!("no answer of {command} with {from}: {truth:?}"));
        let mut lie = truth.clone();
        lie[index] = lie[index].replace(from, to);
        let mut pair = Pair::start(Combination::KERNEL);
        match pair.compare(&steps, &lie) {
            Err(difference) => assert_eq!(difference.step, index, "{command}: {difference:?}"),
            Ok(()) => panic!("{command}: {} passed for {}", lie[index], truth[index]),
        }
    }
}
