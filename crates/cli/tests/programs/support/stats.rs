//! The counters of a run, as `bypath stats FILE --json` prints them.

use super::library::bypath;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Sums over all records of a statistics file.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub records: usize,
    pub connections: u64,
    pub upgraded: u64,
    pub ring_tx: u64,
    pub ring_rx: u64,
    pub kernel_tx: u64,
    pub kernel_rx: u64,
    pub recalled: BTreeMap<String, u64>,
    pub not_upgraded: BTreeMap<String, u64>,
}

impl Totals {
    /// Reads the statistics in `file`.
    #[track_caller]
    pub fn read(file: &Path) -> Totals {
        let mut command = Command::new(bypath());
        let output = command.arg("stats").arg(file).arg("--json").stdin(Stdio::null()).output();
        let output = output.expect("bypath stats runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "bypath stats: {}\n{text}{errors}", output.status);
        Totals::parse(&text).unwrap_or_else(|what| panic!("bypath stats: {what} in\n{text}"))
    }

    fn parse(text: &str) -> Result<Totals, String> {
        let records: Vec<Value> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let mut sum = Totals::default();
        for record in &records {
            // A missing number is an error, not a zero: a check on it could not fail.
            let number = |value: &Value, name: &str| {
                value[name].as_u64().ok_or_else(|| format!("no number {name:?} in a record"))
            };
            sum.records += 1;
            sum.connections += number(record, "connections")?;
            sum.upgraded += number(record, "upgraded")?;
            let bytes = &record["bytes"];
            sum.ring_tx += number(bytes, "ring_tx")?;
            sum.ring_rx += number(bytes, "ring_rx")?;
            sum.kernel_tx += number(bytes, "kernel_tx")?;
            sum.kernel_rx += number(bytes, "kernel_rx")?;
            for (name, into) in [("recalled", &mut sum.recalled), ("not_upgraded", &mut sum.not_upgraded)] {
                let reasons = record[name].as_object().ok_or_else(|| format!("no object {name:?}"))?;
                for (reason, count) in reasons {
                    let count = count.as_u64().ok_or_else(|| format!("{name}: {reason} has no count"))?;
                    *into.entry(reason.clone()).or_default() += count;
                }
            }
        }
        Ok(sum)
    }

    /// Adds the counters of another file.
    pub fn add(&mut self, other: &Totals) {
        self.records += other.records;
        self.connections += other.connections;
        self.upgraded += other.upgraded;
        self.ring_tx += other.ring_tx;
        self.ring_rx += other.ring_rx;
        self.kernel_tx += other.kernel_tx;
        self.kernel_rx += other.kernel_rx;
        for (theirs, into) in
            [(&other.recalled, &mut self.recalled), (&other.not_upgraded, &mut self.not_upgraded)]
        {
            for (reason, count) in theirs {
                *into.entry(reason.clone()).or_default() += count;
            }
        }
    }

    /// What came since these of the same files, as far as a share asks for it.
    pub fn since(&self, before: &Totals) -> Totals {
        let mut new = self.clone();
        new.records -= before.records;
        new.connections -= before.connections;
        new.upgraded -= before.upgraded;
        for (now, then) in [
            (&mut new.ring_tx, before.ring_tx),
            (&mut new.ring_rx, before.ring_rx),
            (&mut new.kernel_tx, before.kernel_tx),
            (&mut new.kernel_rx, before.kernel_rx),
        ] {
            *now -= then;
        }
        new
    }

    /// How much of what was sent went through rings, in percent; 0 if nothing was.
    pub fn share(&self) -> f64 {
        100.0 * self.ring_tx as f64 / self.sent().max(1) as f64
    }

    /// Bytes sent, on either path.
    pub fn sent(&self) -> u64 {
        self.ring_tx + self.kernel_tx
    }

    /// Bytes sent or received, on either path.
    pub fn moved(&self) -> u64 {
        self.sent() + self.ring_rx + self.kernel_rx
    }

    /// Connections that were never upgraded for this reason.
    pub fn refused_for(&self, reason: &str) -> u64 {
        self.not_upgraded.get(reason).copied().unwrap_or(0)
    }

    /// At least `payload` bytes were sent, and 95 % of what was sent went through rings.
    #[track_caller]
    pub fn assert_ring(&self, payload: u64) {
        self.assert_share(payload, 95);
    }

    /// At least `payload` bytes were sent, and so many percent of what was sent went through rings.
    #[track_caller]
    pub fn assert_share(&self, payload: u64, percent: u64) {
        assert!(self.sent() >= payload, "{payload} bytes of payload, but {} counted: {self:#?}", self.sent());
        let share = self.share();
        assert!(share >= percent as f64, "{share:.1} % of the bytes went through the ring: {self:#?}");
    }

    /// The program was followed (so the counters mean something), and nothing left the kernel path.
    #[track_caller]
    pub fn assert_kernel_only(&self, payload: u64) {
        assert!(self.connections > 0, "no connection was counted: {self:#?}");
        assert!(
            self.moved() >= payload,
            "{payload} bytes of payload, but {} counted: {self:#?}",
            self.moved()
        );
        let on_ring = (self.upgraded, self.ring_tx, self.ring_rx);
        assert_eq!(on_ring, (0, 0, 0), "the other side is plain: {self:#?}");
    }
}
