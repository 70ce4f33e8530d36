//! Crash points, forced random switching, and the carrier of tests. Without the feature `faults` all of it is empty.

/// Kills the process here if `BYPATH_TEST_KILL=NAME[:COUNT]` names this point (COUNT: at which pass).
#[inline(always)]
pub fn point(name: &str) {
    #[cfg(feature = "faults")]
    imp::point(name);
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

/// Whether a test wants AF_UNIX streams to be followed as TCP connections are (`BYPATH_TEST_UNIX=1`).
#[inline(always)]
pub fn follows_unix() -> bool {
    #[cfg(feature = "faults")]
    return imp::follows_unix();
    #[cfg(not(feature = "faults"))]
    false
}

/// Reads the variables.
pub fn init() {
    #[cfg(feature = "faults")]
    imp::init();
}

#[cfg(feature = "faults")]
mod imp {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    static KILL: OnceLock<(&'static str, AtomicU64)> = OnceLock::new();
    static RANDOM: AtomicU64 = AtomicU64::new(0);
    static UNIX: AtomicBool = AtomicBool::new(false);

    pub fn init() {
        let lookup = |name: &str| std::env::var(name).ok();
        if let Some(value) = lookup("BYPATH_TEST_KILL") {
            let (name, count) = value.split_once(':').unwrap_or((&value, "1"));
            let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
            let _ = KILL.set((name, AtomicU64::new(count.parse().unwrap_or(1))));
        }
        if let Some(seed) = lookup("BYPATH_TEST_FLIP") {
            RANDOM.store(seed.parse::<u64>().unwrap_or(1).wrapping_mul(2).wrapping_add(1), Relaxed);
        }
        UNIX.store(lookup("BYPATH_TEST_UNIX").as_deref() == Some("1"), Relaxed);
    }

    pub fn follows_unix() -> bool {
        UNIX.load(Relaxed)
    }

    pub fn point(name: &str) {
        if let Some((wanted, left)) = KILL.get()
            && *wanted == name
            && left.fetch_sub(1, Relaxed) == 1
        {
            bypath_sys::process::kill_self();
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
