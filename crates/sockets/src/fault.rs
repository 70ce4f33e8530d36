//! Crash points, forced random switching, counters that are old at birth, and the carrier of tests. Without the feature `faults` all of it is empty.

/// A place where a test can have something happen: `BYPATH_TEST_RAISE=NAME[:COUNT]` raises SIGUSR2 for a handler of
/// the program's own, then `BYPATH_TEST_KILL=NAME[:COUNT[:child]]` kills the process (COUNT: at which pass, 0 = at each;
/// `child`: only in forked processes, whose own passes count). `BYPATH_TEST_STOP=NAME[:COUNT]` stops it there, until SIGCONT.
#[inline(always)]
pub fn point(name: &str) {
    #[cfg(feature = "faults")]
    imp::point(name);
    #[cfg(not(feature = "faults"))]
    let _ = name;
}

/// A place between two looks of one call, where another thread or process may do anything: `BYPATH_TEST_RAISE` has it
/// done by a signal handler of the test's. Nothing is half done here, so nobody is killed.
#[inline(always)]
pub fn between(name: &str) {
    #[cfg(feature = "faults")]
    imp::between(name);
    #[cfg(not(feature = "faults"))]
    let _ = name;
}

/// Whether a test wants a random change of path here (`BYPATH_TEST_FLIP=SEED`), once in `one_in` calls.
#[inline(always)]
pub fn flip(one_in: u64) -> bool {
    #[cfg(feature = "faults")]
    return imp::flip(one_in);
    #[cfg(not(feature = "faults"))]
    {
        let _ = one_in;
        false
    }
}

/// Whether signals wait for the end of a call. A test may want their handlers inside (`BYPATH_TEST_DEFER=0`), where those
/// run that the library does not know.
#[inline(always)]
pub fn defers() -> bool {
    #[cfg(feature = "faults")]
    return imp::defers();
    #[cfg(not(feature = "faults"))]
    true
}

/// Whether a test wants AF_UNIX streams to be followed as TCP connections are (`BYPATH_TEST_UNIX=1`).
#[inline(always)]
pub fn follows_unix() -> bool {
    #[cfg(feature = "faults")]
    return imp::follows_unix();
    #[cfg(not(feature = "faults"))]
    false
}

/// Slows a receive down, if a test wants that (`BYPATH_TEST_SLOW=MICROSECONDS[:COUNT[:KERNEL]]`: those from a ring, the first
/// COUNT of them; after these, those from the kernel by KERNEL microseconds).
#[inline(always)]
pub fn slow(by_ring: bool) {
    #[cfg(feature = "faults")]
    imp::slow(by_ring);
    #[cfg(not(feature = "faults"))]
    let _ = by_ring;
}

/// Whether carriers stay as narrow as they are (`BYPATH_TEST_NARROW=1`), as where the system allows only small buffers.
#[inline(always)]
pub fn is_narrow() -> bool {
    #[cfg(feature = "faults")]
    return imp::is_narrow();
    #[cfg(not(feature = "faults"))]
    false
}

/// Where positions in a ring begin. A test may want them so many bytes before their wrap (`BYPATH_TEST_WRAP=BYTES`),
/// and all other counters that wrap with few steps left.
#[inline(always)]
pub fn first_position() -> u64 {
    #[cfg(feature = "faults")]
    return imp::first_position();
    #[cfg(not(feature = "faults"))]
    0
}

/// The ticket of a sleeper's first sleep.
#[inline(always)]
pub fn first_ticket() -> u32 {
    #[cfg(feature = "faults")]
    return imp::first_ticket();
    #[cfg(not(feature = "faults"))]
    1
}

/// A family's counters, before anybody uses it: generations of ends, births, execs, the place of the next look.
#[inline(always)]
pub fn age(family: &bypath_shm::family::Family) {
    #[cfg(feature = "faults")]
    imp::age(family);
    #[cfg(not(feature = "faults"))]
    let _ = family;
}

/// A new mailbox's counters, before anybody hears of it: so many bytes before positions have more than 32 bits, or before there are no more of them
/// (`BYPATH_TEST_WRAP=BYTES:end`), and epochs likewise.
#[inline(always)]
pub fn age_mailbox(mailbox: &bypath_shm::mailbox::Mailbox) {
    #[cfg(feature = "faults")]
    imp::age_mailbox(mailbox);
    #[cfg(not(feature = "faults"))]
    let _ = mailbox;
}

/// Reads the variables.
pub fn init() {
    #[cfg(feature = "faults")]
    imp::init();
}

#[cfg(feature = "faults")]
mod imp {
    use bypath_shm::dgram::ALIGN;
    use bypath_shm::direction::position;
    use bypath_shm::family::Family;
    use bypath_shm::mailbox::{Mailbox, phase};
    use bypath_sys::process;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    /// What one of the variables names.
    struct Event {
        point: &'static str,
        /// Passes up to the one that counts, 0 = each does.
        count: u64,
        passed: AtomicU64,
        /// The process that does not count, 0 = every process does.
        spared: u32,
    }

    static KILL: OnceLock<Event> = OnceLock::new();
    static STOP: OnceLock<Event> = OnceLock::new();
    /// Several, separated by commas.
    static RAISE: OnceLock<Vec<Event>> = OnceLock::new();
    static RANDOM: AtomicU64 = AtomicU64::new(0);
    static UNIX: AtomicBool = AtomicBool::new(false);
    static NARROW: AtomicBool = AtomicBool::new(false);
    static AT_ONCE: AtomicBool = AtomicBool::new(false);
    /// Bytes before the wrap at which positions begin, 0 = none do.
    static WRAP: AtomicU64 = AtomicU64::new(0);
    /// Mailboxes begin before the last position that there is.
    static AT_END: AtomicBool = AtomicBool::new(false);
    static SLOW_US: AtomicU64 = AtomicU64::new(0);
    static SLOW_LEFT: AtomicU64 = AtomicU64::new(0);
    static SLOW_KERNEL_US: AtomicU64 = AtomicU64::new(0);

    impl Event {
        fn parse(value: &str) -> Event {
            let mut words = value.split(':');
            let point = words.next().unwrap_or("").to_owned();
            let count = words.next().and_then(|count| count.parse().ok()).unwrap_or(1);
            let spared = if words.next() == Some("child") { process::pid() } else { 0 };
            Event { point: Box::leak(point.into_boxed_str()), count, passed: AtomicU64::new(0), spared }
        }

        /// Whether it is to happen at this pass.
        fn is_due(&self, name: &str) -> bool {
            self.point == name
                && (self.spared == 0 || self.spared != process::pid())
                && (self.count == 0 || self.passed.fetch_add(1, Relaxed) + 1 == self.count)
        }
    }

    pub fn init() {
        let lookup = |name: &str| std::env::var(name).ok();
        if let Some(value) = lookup("BYPATH_TEST_KILL") {
            let _ = KILL.set(Event::parse(&value));
        }
        if let Some(value) = lookup("BYPATH_TEST_STOP") {
            let _ = STOP.set(Event::parse(&value));
        }
        if let Some(value) = lookup("BYPATH_TEST_RAISE") {
            let _ = RAISE.set(value.split(',').map(Event::parse).collect());
        }
        if let Some(seed) = lookup("BYPATH_TEST_FLIP") {
            RANDOM.store(seed.parse::<u64>().unwrap_or(1).wrapping_mul(2).wrapping_add(1), Relaxed);
        }
        if let Some(value) = lookup("BYPATH_TEST_WRAP") {
            let (bytes, place) = value.split_once(':').unwrap_or((&value, ""));
            WRAP.store(bytes.parse().unwrap_or(0), Relaxed);
            AT_END.store(place == "end", Relaxed);
        }
        UNIX.store(lookup("BYPATH_TEST_UNIX").as_deref() == Some("1"), Relaxed);
        NARROW.store(lookup("BYPATH_TEST_NARROW").as_deref() == Some("1"), Relaxed);
        if let Some(value) = lookup("BYPATH_TEST_SLOW") {
            let mut numbers = value.split(':').map(|number| number.parse().ok());
            let mut next = |default| numbers.next().flatten().unwrap_or(default);
            SLOW_US.store(next(0), Relaxed);
            SLOW_LEFT.store(next(u64::MAX), Relaxed);
            SLOW_KERNEL_US.store(next(0), Relaxed);
        }
        AT_ONCE.store(lookup("BYPATH_TEST_DEFER").as_deref() == Some("0"), Relaxed);
    }

    pub fn first_position() -> u64 {
        position::back(0, WRAP.load(Relaxed))
    }

    pub fn first_ticket() -> u32 {
        if WRAP.load(Relaxed) == 0 { 1 } else { u32::MAX - 2 }
    }

    pub fn age(family: &Family) {
        /// Ends that a test uses at most, at a time.
        const ENDS: usize = 1024;
        if WRAP.load(Relaxed) == 0 {
            return;
        }
        let header = &family.header;
        header.births.store(u32::MAX, Relaxed);
        header.next_look.store(u32::MAX - 3, Relaxed);
        header.execs.iter().for_each(|execs| execs.store(u32::MAX - 1, Relaxed));
        family.ends.iter().take(ENDS).for_each(|end| end.generation.store(u32::MAX - 1, Relaxed));
    }

    pub fn age_mailbox(mailbox: &Mailbox) {
        let before = WRAP.load(Relaxed).next_multiple_of(ALIGN);
        if before == 0 {
            return;
        }
        // A gate has its phase below the epoch.
        let (end, epoch) = if AT_END.load(Relaxed) { (1 << 62, 1 << 32) } else { (1 << 32, 1 << 30) };
        let position: u64 = end - before;
        for word in [&mailbox.head.0, &mailbox.tail.0, &mailbox.writers.head, &mailbox.writers.tail] {
            word.store(position, Relaxed);
        }
        mailbox.gate.0.store((epoch - 3) << 2 | phase::CLOSED, Relaxed);
    }

    pub fn slow(by_ring: bool) {
        let left = SLOW_LEFT.load(Relaxed);
        let us = match (by_ring, left > 0) {
            (true, true) => SLOW_US.load(Relaxed),
            (false, false) => SLOW_KERNEL_US.load(Relaxed),
            _ => 0,
        };
        if us > 0 {
            SLOW_LEFT.store(left - u64::from(by_ring), Relaxed);
            let until = bypath_sys::clock::monotonic_ns() + us * 1000;
            while bypath_sys::clock::monotonic_ns() < until {
                std::hint::spin_loop();
            }
        }
    }

    pub fn defers() -> bool {
        !AT_ONCE.load(Relaxed)
    }

    pub fn is_narrow() -> bool {
        NARROW.load(Relaxed)
    }

    pub fn follows_unix() -> bool {
        UNIX.load(Relaxed)
    }

    pub fn point(name: &str) {
        // Counted before the handler runs: a process that it forks is past this pass.
        let dies = KILL.get().is_some_and(|event| event.is_due(name));
        between(name);
        if STOP.get().is_some_and(|event| event.is_due(name)) {
            process::raise(libc::SIGSTOP);
        }
        if dies {
            process::kill_self();
        }
    }

    pub fn between(name: &str) {
        if RAISE.get().is_some_and(|events| events.iter().any(|event| event.is_due(name))) {
            process::raise(libc::SIGUSR2);
        }
    }

    pub fn flip(one_in: u64) -> bool {
        let state = RANDOM.load(Relaxed);
        if state == 0 {
            return false;
        }
        // splitmix64 over a shared counter.
        let mut z = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).is_multiple_of(one_in)
    }
}
