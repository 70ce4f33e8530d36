//! Whether a wait looks or sleeps, by where the two ends run.

use super::common::skip;
use crate::LONG;
use bypath_channel::{Channel, Remote};
use std::io::{Read, Write};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

const TRIPS: u64 = 2000;

/// The processors that this process may use.
fn allowed() -> Vec<usize> {
    // SAFETY: a set of bits, for which all zeroes are a value; the kernel writes as many as it has.
    let set: libc::cpu_set_t = unsafe {
        let mut set = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set), 0);
        set
    };
    // SAFETY: within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// This thread stays on one.
fn pin(cpu: usize) {
    // SAFETY: a set of bits, for which all zeroes are a value; the number is one of `allowed`.
    let failed = unsafe {
        let mut set = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(failed, 0);
}

/// How often this thread went to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// Round trips between two threads on these processors; how often the two slept.
fn sleeps_of(here: usize, there: usize, spin: Option<Duration>) -> u64 {
    let ready = &Barrier::new(2);
    let (gives, takes) = mpsc::channel::<Remote>();
    thread::scope(|s| {
        let answered = s.spawn(move || {
            pin(there);
            // Opened, as it is made, where a thread may use one processor alone.
            let mut answers = takes.recv().unwrap().open().unwrap();
            answers.set_timeout(LONG);
            spin.into_iter().for_each(|spin| answers.set_spin(spin));
            ready.wait();
            let before = sleeps();
            let mut word = [0; 8];
            for _ in 0..TRIPS {
                answers.read_exact(&mut word).unwrap();
                answers.write_all(&word).unwrap();
            }
            sleeps() - before
        });
        let asked = s.spawn(move || {
            pin(here);
            let (mut asks, remote) = Channel::pair(Channel::RING).unwrap();
            gives.send(remote).unwrap();
            asks.set_timeout(LONG);
            spin.into_iter().for_each(|spin| asks.set_spin(spin));
            ready.wait();
            let before = sleeps();
            for n in 0..TRIPS {
                asks.write_all(&n.to_ne_bytes()).unwrap();
                let mut word = [0; 8];
                asks.read_exact(&mut word).unwrap();
                assert_eq!(u64::from_ne_bytes(word), n);
            }
            sleeps() - before
        });
        asked.join().unwrap() + answered.join().unwrap()
    })
}

#[test]
fn an_end_that_is_pinned_looks_where_the_other_one_has_another_processor() {
    let cpus = allowed();
    let [a, b, ..] = cpus[..] else {
        return skip(
            "processors::an_end_that_is_pinned_looks_where_the_other_one_has_another_processor",
            "there is one processor",
        );
    };
    let slept = sleeps_of(a, b, None);
    assert!(slept < TRIPS / 2, "{slept} sleeps in {TRIPS} round trips");
}

#[test]
fn an_end_sleeps_at_once_where_the_other_one_needs_its_processor() {
    bypath_sys::thread::init();
    if bypath_sys::thread::cpu() == u32::MAX {
        return skip(
            "processors::an_end_sleeps_at_once_where_the_other_one_needs_its_processor",
            "this glibc does not tell the processor",
        );
    }
    let one = allowed()[0];
    let slept = sleeps_of(one, one, Some(Duration::MAX));
    // One of the two: a sleeper that is woken may take the processor from the other one.
    assert!(slept > TRIPS / 2, "{slept} sleeps in {TRIPS} round trips");
}
