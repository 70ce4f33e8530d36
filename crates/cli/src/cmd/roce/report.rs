//! How far a transfer is, and what it took.

use crate::output;
use bypath::roce::Counters;
use bypath_sys::clock;
use serde::Serialize;
use std::fmt;

/// From so much on it is told how far a transfer is, this often.
const OFTEN: u64 = 1_000_000_000;

/// How far a transfer is.
pub struct Progress {
    size: u64,
    done: u64,
    begun: u64,
    /// When `done` was reached.
    reached: u64,
    told: u64,
}

impl Progress {
    /// Of so many octets, beginning now.
    pub fn new(size: u64) -> Progress {
        let now = clock::monotonic_ns();
        Progress { size, done: 0, begun: now, reached: now, told: now }
    }

    /// So many more octets are there.
    pub fn add(&mut self, octets: u64) {
        self.reach(self.done.saturating_add(octets));
    }

    /// So many octets are there.
    pub fn reach(&mut self, octets: u64) {
        self.done = octets;
        self.reached = clock::monotonic_ns();
    }

    /// Says it on standard error, once a second.
    pub fn tell(&mut self) {
        let now = clock::monotonic_ns();
        if now.saturating_sub(self.told) < OFTEN || self.size == 0 {
            return;
        }
        self.told = now;
        let rate = self.done as f64 / ((now - self.begun) as f64 / 1e9);
        output::message(format_args!(
            "{} of {}, {}/s",
            output::share(self.done, self.size),
            output::bytes(self.size),
            output::bytes(rate as u64)
        ));
    }

    fn seconds(&self) -> f64 {
        (self.reached - self.begun) as f64 / 1e9
    }
}

/// What a transfer took.
#[derive(Serialize)]
pub struct Measured {
    octets: u64,
    seconds: f64,
    octets_per_s: f64,
    packets_sent: u64,
    packets_received: u64,
    repeated: u64,
    timeouts: u64,
    duplicates: u64,
    /// Packets ahead of a lost one.
    ahead: u64,
    wrong_icrc: u64,
    malformed: u64,
    not_ready: u64,
    congestion_notifications: u64,
}

impl Measured {
    /// From the counters before and after.
    pub fn new(progress: &Progress, before: &Counters, after: &Counters) -> Measured {
        let seconds = progress.seconds();
        Measured {
            octets: progress.done,
            seconds,
            octets_per_s: if seconds > 0.0 { progress.done as f64 / seconds } else { 0.0 },
            packets_sent: after.sent - before.sent,
            packets_received: after.received - before.received,
            repeated: after.repeated - before.repeated,
            timeouts: after.timeouts - before.timeouts,
            duplicates: after.duplicates - before.duplicates,
            ahead: after.ahead - before.ahead,
            wrong_icrc: after.wrong_icrc - before.wrong_icrc,
            malformed: after.malformed - before.malformed,
            not_ready: after.not_ready_sent + after.not_ready_received
                - before.not_ready_sent
                - before.not_ready_received,
            congestion_notifications: after.notifications_sent + after.notifications_received
                - before.notifications_sent
                - before.notifications_received,
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} octets in {:.3} s, {}/s; {} packets sent, {} received",
            self.octets,
            self.seconds,
            output::bytes(self.octets_per_s as u64),
            self.packets_sent,
            self.packets_received
        )?;
        for (count, what) in [
            (self.repeated, "sent again"),
            (self.timeouts, "timeouts"),
            (self.duplicates, "came again"),
            (self.ahead, "ahead of a lost one"),
            (self.wrong_icrc, "with a wrong ICRC"),
            (self.malformed, "malformed"),
            (self.not_ready, "times not ready"),
            (self.congestion_notifications, "congestion notifications"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        Ok(())
    }
}
