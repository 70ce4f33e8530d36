//! Channels without number in one process: nothing of them is left.

use crate::{Other, is_soak};
use bypath_channel::{Channel, Datagrams, Remote};
use std::io::{Read, Write};

/// In a soak as many as connections in theirs.
fn count() -> usize {
    if is_soak() { 100_000 } else { 5_000 }
}

/// Descriptors, mappings, and memory in KiB.
fn standing() -> [usize; 3] {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).expect("it");
    let status = read("status");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let fds = std::fs::read_dir("/proc/self/fd").expect("it").count();
    [fds, read("maps").lines().count(), kib.expect("VmRSS").parse().expect("a number")]
}

fn once() {
    let (mut here, remote): (Channel, Remote) = Channel::pair(4096).expect("a channel");
    let mut there = remote.open().expect("an end");
    here.write_all(b"octets").expect("room");
    there.read_exact(&mut [0; 6]).expect("octets");
    let (here, remote) = Datagrams::pair(4096).expect("a channel");
    let there = remote.open_datagrams().expect("an end");
    let ((mut sender, _), (_, mut receiver)) = (here.split(), there.split());
    sender.send(b"datagram").expect("room");
    assert_eq!(receiver.receive(&mut [0; 16]).expect("a datagram"), Some(8));
}

/// What the other process does.
pub fn other() {
    (0..100).for_each(|_| once());
    let before = standing();
    (0..count()).for_each(|_| once());
    let more: Vec<_> = standing().iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect();
    println!("\nmore {more:?}");
}

#[test]
fn channels_that_come_and_go_leave_nothing() {
    let mut other = Other::start("cycles -", |_| {});
    let line = other.line("more");
    let more: Vec<usize> = numbers(&line);
    let [fds, maps, kib] = more[..] else { panic!("{line}") };
    assert!(fds <= 2 && maps <= 4 && kib <= 512, "{line}");
    other.ends_well();
}

/// The numbers of a line.
fn numbers(line: &str) -> Vec<usize> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}
