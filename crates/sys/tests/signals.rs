//! Who gets what is sent to the process. A program of its own: its first thread sleeps, and nothing else is sent to it.

use bypath_sys::signal::Blocked;
use bypath_sys::{process, thread};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

static GOT: AtomicU32 = AtomicU32::new(0);

extern "C" fn gets(_: libc::c_int) {
    GOT.store(thread::tid(), SeqCst);
}

/// The kernel has chosen the first thread, which sleeps, and comes to a processor later.
#[test]
fn who_blocks_signals_for_a_moment_does_not_get_those_that_are_on_their_way_to_another_thread() {
    const ROUNDS: usize = 50;
    let first = process::pid();
    assert_ne!(thread::tid(), first, "the harness has a thread for each test");
    // SAFETY: plain structures and integers. Both threads on one processor, where the first one waits for its turn.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (gets as *const () as usize, libc::SA_RESTART);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
        let mut own: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut own);
        for tid in [first as i32, 0] {
            assert_eq!(libc::sched_setaffinity(tid, size_of_val(&own), &raw const own), 0);
        }
        let least = libc::sched_param { sched_priority: 0 };
        assert_eq!(libc::sched_setscheduler(first as i32, libc::SCHED_BATCH, &raw const least), 0);
    }
    let mut by_first = 0;
    for _ in 0..ROUNDS {
        GOT.store(0, SeqCst);
        let blocked = Blocked::new();
        // SAFETY: it has a handler.
        assert_eq!(unsafe { libc::kill(first as i32, libc::SIGUSR1) }, 0);
        drop(blocked);
        let began = Instant::now();
        while GOT.load(SeqCst) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "nobody got it");
            std::thread::sleep(Duration::from_micros(50));
        }
        by_first += usize::from(GOT.load(SeqCst) == first);
    }
    // It is not waited for for ever, and others use this processor.
    assert!(by_first > ROUNDS / 10 * 9, "the first thread got {by_first} of {ROUNDS}");
    println!("the first thread got {by_first} of {ROUNDS}");
    // What is sent to a thread is nobody else's, and waits for nobody.
    let (own, began) = (thread::tid(), Instant::now());
    for _ in 0..ROUNDS {
        GOT.store(0, SeqCst);
        let blocked = Blocked::new();
        // SAFETY: as before.
        assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR1) }, 0);
        drop(blocked);
        assert_eq!(GOT.load(SeqCst), own);
    }
    assert!(began.elapsed() < Duration::from_secs(ROUNDS as u64 / 2), "{:?}", began.elapsed());
}
