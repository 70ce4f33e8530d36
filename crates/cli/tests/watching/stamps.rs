//! Time stamps of datagrams that came through a ring: when each was sent, by the clock that the program itself reads.

use crate::lab::has;
use crate::words::{program, socket};
use serde_json::Value;

/// Sends by itself to itself, between two looks of the receiver, so that all but the first few go by the ring. `OPTION` and what it tells come first.
const CODE: &str = r#"
import struct, time
TURNS = 1000
now = lambda: time.clock_gettime_ns(time.CLOCK_REALTIME)
def look(s):
    try:
        return s.recvmsg(100, 200)
    except BlockingIOError:
        return None
def take(s):
    got = look(s)
    while got is None:
        got = look(s)
    octets, [(level, kind, stamp)], flags, source = got
    assert (level, kind, len(stamp)) == (socket.SOL_SOCKET, OPTION, 16), got
    seconds, part = struct.unpack("qq", stamp)
    assert 0 <= part < PARTS, stamp
    return octets, seconds * 10**9 + part * (10**9 // PARTS)
a, b = udp(), udp()
b.setsockopt(socket.SOL_SOCKET, OPTION, 1)
b.setblocking(False)
while look(b) is not None:
    pass
step = 10**9 // PARTS
last, backwards, outside, tight = 0, 0, 0, 0
for turn in range(TURNS):
    # One at a time, or three that wait for each other.
    sent = []
    for part in range(1 + turn % 2 * 2):
        before = now()
        a.sendto(b"%d %d" % (turn, part), b.getsockname())
        sent.append((before, now()))
    for part, (before, after) in enumerate(sent):
        octets, stamp = take(b)
        assert octets == b"%d %d" % (turn, part), octets
        outside += not before - step < stamp <= now()
        tight += before - step < stamp <= after
        backwards += stamp < last
        last = stamp
    assert look(b) is None
said = [b.fileno(), outside, backwards, tight, 2 * TURNS]
"#;

fn stamps(name: &str, option: u32, parts: u32) {
    if !has(&format!("stamps::{name}"), &["python3"]) {
        return;
    }
    let code = format!("OPTION, PARTS = {option}, {parts}\n{CODE}");
    let (child, said) = program(&["--upgrade=eager", "--profile=latency"], &code);
    let number = |value: &Value| value.as_u64().expect("a number");
    let seen = socket(child.0.id(), &said[0]);
    let by_ring = number(&seen["datagrams"]["ring_rx"]);
    assert_eq!(
        (number(&said[1]), number(&said[2])),
        (0, 0),
        "outside of their bracket, or backwards: {said}"
    );
    // The kernel may take some time to stamp what it brings; who writes into a ring does so in the middle of the send.
    assert!(number(&said[3]) >= by_ring, "{said} {seen}");
    assert!(by_ring > number(&said[4]) / 2, "{said} {seen}");
}

#[test]
fn microseconds_are_between_the_clocks_before_and_after() {
    stamps("microseconds_are_between_the_clocks_before_and_after", 29, 1_000_000);
}

#[test]
fn nanoseconds_are_between_the_clocks_before_and_after() {
    stamps("nanoseconds_are_between_the_clocks_before_and_after", 35, 1_000_000_000);
}

#[test]
fn stamps_of_the_new_options_are_between_the_clocks_before_and_after() {
    stamps("stamps_of_the_new_options_are_between_the_clocks_before_and_after", 63, 1_000_000);
    stamps("stamps_of_the_new_options_are_between_the_clocks_before_and_after", 64, 1_000_000_000);
}
