//! The settings of a run: one table of names, values and parsers, used by the preload library (from the
//! environment) and by `bypath run` (from flags and the environment).
//!
//! Each flag `--some-name` of `bypath run` has its variable `BYPATH_SOME_NAME`; the flag wins.

use std::fmt;

/// When connections are moved to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// After some traffic (default): short connections pay nothing.
    Lazy,
    /// At the first call that moves bytes.
    Eager,
    /// Never.
    Off,
}

/// What happens to io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoUring {
    /// `io_uring_setup` answers ENOSYS (default): programs fall back to calls that can be followed.
    Avoid,
    /// io_uring works; a process that uses it keeps its connections on the kernel.
    Allow,
}

/// How long waiting threads spin before they sleep; the numbers are in [`Profile::spin_cap_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Lowest latency, burns CPU.
    Latency,
    /// Adaptive (default).
    Balanced,
    /// Never spins.
    Frugal,
}

impl Profile {
    /// Upper bound of one spin in nanoseconds.
    pub const fn spin_cap_ns(self) -> u64 {
        match self {
            Profile::Latency => 1_000_000,
            Profile::Balanced => 50_000,
            Profile::Frugal => 0,
        }
    }
}

/// What the library does when it meets something that it cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnsupported {
    /// Stay on the kernel quietly (default).
    Fallback,
    /// Stay on the kernel and log a warning.
    Warn,
    /// Stay on the kernel and log an error; `bypath run` refuses to start a program that cannot be served.
    Error,
    /// As `Error`, and a running program ends by SIGABRT.
    Abort,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Errors.
    Error,
    /// And warnings (default).
    Warn,
    /// And one line per upgrade and recall.
    Info,
    /// And refusals.
    Debug,
}

/// Other users whose programs may share memory with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedUids {
    /// Any user.
    pub any: bool,
    uids: [u32; AllowedUids::MAX],
    len: usize,
}

impl AllowedUids {
    /// At most this many users can be named.
    pub const MAX: usize = 16;

    /// Nobody but the own user.
    pub const fn none() -> Self {
        AllowedUids { any: false, uids: [0; Self::MAX], len: 0 }
    }

    /// Whether `uid` is named (or any is).
    pub fn contains(&self, uid: u32) -> bool {
        self.any || self.uids[..self.len].contains(&uid)
    }
}

/// Smallest and largest ring, bytes of one direction.
pub const RING_SIZES: std::ops::RangeInclusive<u32> = 16 * 1024..=1024 * 1024;

/// All settings. `Copy`: the library holds no pointer into the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `--upgrade`.
    pub upgrade: Upgrade,
    /// `--io-uring`.
    pub io_uring: IoUring,
    /// `--profile`.
    pub profile: Profile,
    /// `--on-unsupported`.
    pub on_unsupported: OnUnsupported,
    /// `--allow-uid`.
    pub allow_uid: AllowedUids,
    /// `--log`.
    pub log: LogLevel,
    /// `--ring-size`: bytes of one direction, a power of two in [`RING_SIZES`].
    pub ring_size: u32,
    /// `--memory-limit`: ceiling of ring memory of one process in bytes.
    pub memory_limit: u64,
    /// `--stats`: path of the statistics file, NUL terminated; empty = none.
    pub stats: PathBuf256,
}

/// A path kept inline (no allocation): at most 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PathBuf256 {
    bytes: [u8; 256],
    len: usize,
}

impl PathBuf256 {
    /// The path, empty if none was given.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for PathBuf256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            upgrade: Upgrade::Lazy,
            io_uring: IoUring::Avoid,
            profile: Profile::Balanced,
            on_unsupported: OnUnsupported::Fallback,
            allow_uid: AllowedUids::none(),
            log: LogLevel::Warn,
            ring_size: 256 * 1024,
            memory_limit: 256 * 1024 * 1024,
            stats: PathBuf256 { bytes: [0; 256], len: 0 },
        }
    }
}

/// One setting, for help texts, man page and the environment.
#[derive(Debug)]
pub struct Setting {
    /// Long flag without dashes: `upgrade`.
    pub flag: &'static str,
    /// Environment variable: `BYPATH_UPGRADE`.
    pub variable: &'static str,
    /// Accepted words, empty when the value is free-form.
    pub words: &'static [&'static str],
    /// Shape of the value for help: `lazy|eager|off`.
    pub value: &'static str,
    /// One sentence for help.
    pub help: &'static str,
}

/// Every setting, in the order of the help text.
pub const SETTINGS: &[Setting] = &[
    Setting {
        flag: "upgrade",
        variable: "BYPATH_UPGRADE",
        words: &["lazy", "eager", "off"],
        value: "lazy|eager|off",
        help: "When connections move to shared memory: after some traffic, at the first byte, or never",
    },
    Setting {
        flag: "profile",
        variable: "BYPATH_PROFILE",
        words: &["latency", "balanced", "frugal"],
        value: "latency|balanced|frugal",
        help: "How long waiting threads spin before they sleep: up to 1 ms, up to 50 us (adaptive), never",
    },
    Setting {
        flag: "ring-size",
        variable: "BYPATH_RING_SIZE",
        words: &[],
        value: "BYTES",
        help: "Bytes of one ring (each direction of a connection): a power of two from 16K to 1M",
    },
    Setting {
        flag: "memory-limit",
        variable: "BYPATH_MEMORY_LIMIT",
        words: &[],
        value: "BYTES",
        help: "Ceiling of ring memory of one process; beyond it connections stay on the kernel",
    },
    Setting {
        flag: "io-uring",
        variable: "BYPATH_IO_URING",
        words: &["avoid", "allow"],
        value: "avoid|allow",
        help: "Whether the program may use io_uring (its operations cannot be followed)",
    },
    Setting {
        flag: "allow-uid",
        variable: "BYPATH_ALLOW_UID",
        words: &[],
        value: "UID[,UID...]|any",
        help: "Other users whose programs may share memory with this one; both sides must allow each other",
    },
    Setting {
        flag: "on-unsupported",
        variable: "BYPATH_ON_UNSUPPORTED",
        words: &["fallback", "warn", "error", "abort"],
        value: "fallback|warn|error|abort",
        help: "What happens when a program or connection cannot be served: it stays on the kernel quietly, with a warning, with an error (the program is not started), or a running program is aborted",
    },
    Setting {
        flag: "log",
        variable: "BYPATH_LOG",
        words: &["off", "error", "warn", "info", "debug"],
        value: "off|error|warn|info|debug",
        help: "What is logged to standard error as it was at start-up",
    },
    Setting {
        flag: "stats",
        variable: "BYPATH_STATS",
        words: &[],
        value: "FILE",
        help: "File of counters, one record per process; read it with `bypath stats FILE`",
    },
];

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The setting.
    pub flag: &'static str,
    /// The value as given.
    pub value: String,
    /// What is accepted.
    pub expected: String,
    /// The closest accepted word, if one is close.
    pub suggestion: Option<&'static str>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value '{}' for {}: expected {}", self.value, self.flag, self.expected)?;
        if let Some(s) = self.suggestion {
            write!(f, " (did you mean '{s}'?)")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Applies one setting.
    ///
    /// # Errors
    /// The value is not one that the setting accepts, or no setting is called `flag`.
    pub fn set(&mut self, flag: &str, value: &str) -> Result<(), ConfigError> {
        let Some(s) = SETTINGS.iter().find(|s| s.flag == flag) else {
            return Err(ConfigError {
                flag: "option",
                value: flag.to_owned(),
                expected: "a known setting".to_owned(),
                suggestion: closest(flag, SETTINGS.iter().map(|s| s.flag)),
            });
        };
        let bad = |expected: &str| ConfigError {
            flag: s.flag,
            value: value.to_owned(),
            expected: expected.to_owned(),
            suggestion: closest(value, s.words.iter().copied()),
        };
        match s.flag {
            "upgrade" => self.upgrade = pick(value, &[Upgrade::Lazy, Upgrade::Eager, Upgrade::Off], s, bad)?,
            "profile" => {
                self.profile = pick(value, &[Profile::Latency, Profile::Balanced, Profile::Frugal], s, bad)?
            }
            "io-uring" => self.io_uring = pick(value, &[IoUring::Avoid, IoUring::Allow], s, bad)?,
            "on-unsupported" => {
                use OnUnsupported::*;
                self.on_unsupported = pick(value, &[Fallback, Warn, Error, Abort], s, bad)?
            }
            "log" => {
                use LogLevel::*;
                self.log = pick(value, &[Off, Error, Warn, Info, Debug], s, bad)?
            }
            "ring-size" => {
                let n = parse_size(value).ok_or_else(|| bad("a size such as 64K or 1M"))?;
                let n = u32::try_from(n).unwrap_or(0);
                if !n.is_power_of_two() || !RING_SIZES.contains(&n) {
                    return Err(bad("a power of two from 16K to 1M"));
                }
                self.ring_size = n;
            }
            "memory-limit" => {
                self.memory_limit = parse_size(value).ok_or_else(|| bad("a size such as 256M"))?
            }
            "allow-uid" => self.allow_uid = parse_uids(value).ok_or_else(|| bad("user ids or 'any'"))?,
            "stats" => {
                if value.is_empty() || value.len() > 255 {
                    return Err(bad("a path of 1 to 255 bytes"));
                }
                self.stats.len = value.len();
                self.stats.bytes[..value.len()].copy_from_slice(value.as_bytes());
            }
            other => unreachable!("setting {other} has no parser"),
        }
        Ok(())
    }

    /// Reads every `BYPATH_*` setting through `lookup` (a `getenv`); bad values are passed to `report` and
    /// leave the default in place.
    pub fn from_env<'a>(
        lookup: impl Fn(&str) -> Option<&'a str>,
        mut report: impl FnMut(ConfigError),
    ) -> Config {
        let mut config = Config::default();
        for s in SETTINGS {
            if let Some(value) = lookup(s.variable)
                && let Err(e) = config.set(s.flag, value)
            {
                report(ConfigError { flag: s.variable, ..e });
            }
        }
        config
    }
}

fn pick<T: Copy>(
    value: &str,
    values: &[T],
    s: &Setting,
    bad: impl Fn(&str) -> ConfigError,
) -> Result<T, ConfigError> {
    s.words.iter().position(|w| *w == value).map(|i| values[i]).ok_or_else(|| bad(&s.words.join(", ")))
}

/// `64K`, `1M`, `65536`: bytes, binary multiples.
fn parse_size(s: &str) -> Option<u64> {
    let digits = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match s[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn parse_uids(s: &str) -> Option<AllowedUids> {
    let mut allowed = AllowedUids::none();
    for word in s.split(',') {
        if word == "any" {
            allowed.any = true;
        } else {
            let uid = word.parse::<u32>().ok()?;
            *allowed.uids.get_mut(allowed.len)? = uid;
            allowed.len += 1;
        }
    }
    Some(allowed)
}

/// The candidate within a third of edits of `word`, if any.
pub fn closest(word: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    candidates
        .map(|c| (edits(word, c), c))
        .filter(|(d, c)| *d * 3 <= c.len().max(3) + 1)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (j, cb) in b.iter().enumerate() {
            let above = row[j + 1];
            let cost = (diagonal + usize::from(ca != *cb)).min(above + 1).min(left + 1);
            diagonal = above;
            row[j] = left;
            left = cost;
        }
        row[b.len()] = left;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_word_gets_a_suggestion() {
        let e = Config::default().set("upgrade", "eagre").unwrap_err();
        assert_eq!(e.suggestion, Some("eager"));
        let e = Config::default().set("profil", "x").unwrap_err();
        assert_eq!(e.suggestion, Some("profile"));
    }

    #[test]
    fn environment_errors_leave_the_default() {
        let mut seen = Vec::new();
        let c = Config::from_env(
            |v| match v {
                "BYPATH_UPGRADE" => Some("no"),
                "BYPATH_RING_SIZE" => Some("64K"),
                _ => None,
            },
            |e| seen.push(e.flag),
        );
        assert_eq!((c.upgrade, c.ring_size, seen), (Upgrade::Lazy, 65536, vec!["BYPATH_UPGRADE"]));
    }

    #[test]
    fn every_setting_has_a_parser_and_its_variable() {
        for s in SETTINGS {
            assert_eq!(s.variable, format!("BYPATH_{}", s.flag.replace('-', "_").to_uppercase()));
            let value = match s.flag {
                "ring-size" => "64K",
                "memory-limit" => "1M",
                "allow-uid" => "1000,any",
                "stats" => "/tmp/x",
                _ => s.words[0],
            };
            Config::default().set(s.flag, value).unwrap();
        }
    }

    #[test]
    fn ring_size_bounds() {
        for bad in ["0", "1", "15K", "48K", "2M", "x", "99999999999999999999"] {
            assert!(Config::default().set("ring-size", bad).is_err(), "{bad}");
        }
    }
}
