//! The settings of a run: one table of names, values and parsers, used by the preload library (from the
//! environment) and by `bypath run` (from flags and the environment).
//!
//! Each flag `--some-name` of `bypath run` has its variable `BYPATH_SOME_NAME`; the flag wins. Both win over the
//! configuration file, which only `bypath run` reads (see [`crate::rules`]).

mod nearest;

use crate::service::ServiceName;
pub use nearest::closest;
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
    /// io_uring is not there (ENOSYS): programs fall back to calls that can be followed. A process that has an instance
    /// all the same is treated as by `Recall`.
    Avoid,
    /// io_uring works (default); from its first instance on a process keeps its connections on the kernel.
    Recall,
    /// io_uring works and is not looked at: the user vouches that it is not used on connections.
    Allow,
}

/// How waiting threads trade processor time for latency; a profile sets the spin budget, too: see
/// [`Profile::spin_budget_ns`].
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
    /// Upper bound of one spin in nanoseconds, unless `--spin-budget` sets another.
    pub const fn spin_budget_ns(self) -> u64 {
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

/// Longest spin budget: a thread that spins does nothing else.
pub const LONGEST_SPIN_NS: u64 = 100_000_000;

/// Below this many descriptors (RLIMIT_NOFILE) the library takes none of its own, and upgrades nothing.
pub const SMALLEST_DESCRIPTOR_LIMIT: u64 = 256;

/// [`Config::connection_limit`] where there is none.
pub const NO_LIMIT: u32 = u32::MAX;

/// All settings. `Copy`: the library holds no pointer into the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `--upgrade`.
    pub upgrade: Upgrade,
    /// `--io-uring`.
    pub io_uring: IoUring,
    /// `--guard`: whether a connection goes back on which the ring is slower than the kernel.
    pub guard: bool,
    /// `--profile`.
    pub profile: Profile,
    /// `--spin-budget`, else that of the profile: upper bound of one spin in nanoseconds.
    pub spin_budget_ns: u64,
    /// `--upgrade-calls`: a lazy upgrade is tried after this many calls on a connection, both directions,
    pub upgrade_calls: u64,
    /// `--upgrade-bytes`: or after this many bytes, whichever comes first.
    pub upgrade_bytes: u64,
    /// `--connection-limit`: connections of one process that may be upgraded at a time; [`NO_LIMIT`] = any number.
    pub connection_limit: u32,
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
    /// `--rendezvous`: path of the folder where ends of other network namespaces are met, NUL terminated; empty = none.
    pub rendezvous: PathBuf256,
    /// `--netstack`: the service whose sockets the program gets for addresses that are not loopback; `None` = none.
    pub netstack: Option<ServiceName>,
}

/// A path kept inline (no allocation): at most 255 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PathBuf256 {
    bytes: [u8; 256],
    len: usize,
}

impl PathBuf256 {
    const EMPTY: PathBuf256 = PathBuf256 { bytes: [0; 256], len: 0 };

    /// `None`: it is empty, or too long.
    fn new(path: &str) -> Option<PathBuf256> {
        let mut new = PathBuf256 { len: path.len(), ..Self::EMPTY };
        new.bytes
            .get_mut(..path.len())
            .filter(|_| (1..256).contains(&path.len()))?
            .copy_from_slice(path.as_bytes());
        Some(new)
    }

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
            io_uring: IoUring::Recall,
            guard: false,
            profile: Profile::Balanced,
            spin_budget_ns: Profile::Balanced.spin_budget_ns(),
            upgrade_calls: 16,
            upgrade_bytes: 64 * 1024,
            connection_limit: NO_LIMIT,
            on_unsupported: OnUnsupported::Fallback,
            allow_uid: AllowedUids::none(),
            log: LogLevel::Warn,
            ring_size: 256 * 1024,
            memory_limit: 256 * 1024 * 1024,
            stats: PathBuf256::EMPTY,
            rendezvous: PathBuf256::EMPTY,
            netstack: None,
        }
    }
}

/// One setting, for help texts, man page and the environment.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Long flag without dashes: `upgrade`.
    pub flag: &'static str,
    /// Environment variable: `BYPATH_UPGRADE`.
    pub variable: &'static str,
    /// Accepted words, empty when the value is free-form.
    pub words: &'static [&'static str],
    /// Shape of the value for help: `lazy|eager|off`.
    pub value: &'static str,
    /// The default as a value, empty = not set.
    pub default: &'static str,
    /// One sentence for help.
    pub help: &'static str,
}

impl Setting {
    /// The value that its flag has when it is given without one; `None`: it needs one.
    pub fn bare(&self) -> Option<&'static str> {
        (self.flag == "netstack").then_some(ServiceName::DEFAULT)
    }
}

/// Every setting, in the order of the help text.
pub const SETTINGS: &[Setting] = &[
    Setting {
        flag: "upgrade",
        variable: "BYPATH_UPGRADE",
        words: &["lazy", "eager", "off"],
        value: "lazy|eager|off",
        default: "lazy",
        help: "When connections move to shared memory: after some traffic, at the first byte, or never",
    },
    Setting {
        flag: "profile",
        variable: "BYPATH_PROFILE",
        words: &["latency", "balanced", "frugal"],
        value: "latency|balanced|frugal|NAME",
        default: "balanced",
        help: "How long waiting threads spin before they sleep: up to 1 ms, up to 50 us (adaptive), never; or a profile of the configuration file",
    },
    Setting {
        flag: "spin-budget",
        variable: "BYPATH_SPIN_BUDGET",
        words: &[],
        value: "TIME",
        default: "50us",
        help: "Longest spin of one wait, such as 20us or 1ms, 0 = never; by default that of the profile",
    },
    Setting {
        flag: "upgrade-calls",
        variable: "BYPATH_UPGRADE_CALLS",
        words: &[],
        value: "NUMBER",
        default: "16",
        help: "With --upgrade=lazy: a connection moves after this many calls",
    },
    Setting {
        flag: "upgrade-bytes",
        variable: "BYPATH_UPGRADE_BYTES",
        words: &[],
        value: "BYTES",
        default: "64K",
        help: "With --upgrade=lazy: or after this many bytes, whichever comes first",
    },
    Setting {
        flag: "connection-limit",
        variable: "BYPATH_CONNECTION_LIMIT",
        words: &[],
        value: "NUMBER|none",
        default: "none",
        help: "How many connections of one process may use shared memory at a time; beyond it they stay on the kernel",
    },
    Setting {
        flag: "ring-size",
        variable: "BYPATH_RING_SIZE",
        words: &[],
        value: "BYTES",
        default: "256K",
        help: "Bytes of one ring (each direction of a connection): a power of two from 16K to 1M",
    },
    Setting {
        flag: "memory-limit",
        variable: "BYPATH_MEMORY_LIMIT",
        words: &[],
        value: "BYTES",
        default: "256M",
        help: "Ceiling of ring memory of one process; beyond it connections stay on the kernel",
    },
    Setting {
        flag: "guard",
        variable: "BYPATH_GUARD",
        words: &["on", "off"],
        value: "on|off",
        default: "off",
        help: "Whether a connection goes back to the kernel on which shared memory turns out slower",
    },
    Setting {
        flag: "io-uring",
        variable: "BYPATH_IO_URING",
        words: &["avoid", "recall", "allow"],
        value: "avoid|recall|allow",
        default: "recall",
        help: "io_uring, whose operations cannot be followed: the program is told that there is none, or its connections stay on the kernel once it uses it, or it uses it for other things than connections",
    },
    Setting {
        flag: "allow-uid",
        variable: "BYPATH_ALLOW_UID",
        words: &[],
        value: "UID[,UID...]|any",
        default: "",
        help: "Other users whose programs may share memory with this one; both sides must allow each other",
    },
    Setting {
        flag: "rendezvous",
        variable: "BYPATH_RENDEZVOUS",
        words: &[],
        value: "FOLDER|off",
        default: "off",
        help: "Folder that this program shares with programs of other network namespaces or containers, started with it too: TCP connections between them, without address translation, may use shared memory",
    },
    Setting {
        flag: "on-unsupported",
        variable: "BYPATH_ON_UNSUPPORTED",
        words: &["fallback", "warn", "error", "abort"],
        value: "fallback|warn|error|abort",
        default: "fallback",
        help: "What happens when a program or connection cannot be served: it stays on the kernel quietly, with a warning, with an error (the program is not started), or a running program is aborted",
    },
    Setting {
        flag: "log",
        variable: "BYPATH_LOG",
        words: &["off", "error", "warn", "info", "debug"],
        value: "off|error|warn|info|debug",
        default: "warn",
        help: "What is logged to standard error as it was at start-up",
    },
    Setting {
        flag: "stats",
        variable: "BYPATH_STATS",
        words: &[],
        value: "FILE",
        default: "",
        help: "File of counters, one record per process; read it with `bypath stats FILE`",
    },
    Setting {
        flag: "netstack",
        variable: "BYPATH_NETSTACK",
        words: &[],
        value: "NAME|off",
        default: "off",
        help: "TCP, UDP and ping sockets that are bound or connected to addresses other than loopback, or send there, are those of the netstack service NAME (without one: `default`); `bypath netstack` runs it",
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
    pub suggestion: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value '{}' for {}: expected {}", self.value, self.flag, self.expected)?;
        if let Some(s) = &self.suggestion {
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
                suggestion: closest(flag, SETTINGS.iter().map(|s| s.flag)).map(str::to_owned),
            });
        };
        let bad = |expected: &str| ConfigError {
            flag: s.flag,
            value: value.to_owned(),
            expected: expected.to_owned(),
            suggestion: closest(value, s.words.iter().copied()).map(str::to_owned),
        };
        match s.flag {
            "upgrade" => self.upgrade = pick(value, &[Upgrade::Lazy, Upgrade::Eager, Upgrade::Off], s, bad)?,
            "profile" => {
                self.profile = pick(value, &[Profile::Latency, Profile::Balanced, Profile::Frugal], s, bad)?;
                self.spin_budget_ns = self.profile.spin_budget_ns();
            }
            "spin-budget" => {
                self.spin_budget_ns = parse_time(value)
                    .filter(|ns| *ns <= LONGEST_SPIN_NS)
                    .ok_or_else(|| bad("a time from 0 to 100ms, such as 20us or 1ms"))?
            }
            "upgrade-calls" => {
                self.upgrade_calls = parse_count(value)
                    .filter(|n| *n > 0)
                    .ok_or_else(|| bad("a number from 1 to 4294967295"))?
            }
            "upgrade-bytes" => {
                self.upgrade_bytes =
                    parse_size(value).filter(|n| *n > 0).ok_or_else(|| bad("a size such as 64K or 1M"))?
            }
            "connection-limit" => {
                self.connection_limit = match value {
                    "none" => NO_LIMIT,
                    _ => parse_count(value)
                        .and_then(|n| u32::try_from(n).ok())
                        .filter(|n| *n != NO_LIMIT)
                        .ok_or_else(|| bad("a number, or 'none'"))?,
                }
            }
            "guard" => self.guard = pick(value, &[true, false], s, bad)?,
            "io-uring" => {
                self.io_uring = pick(value, &[IoUring::Avoid, IoUring::Recall, IoUring::Allow], s, bad)?
            }
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
            "allow-uid" => self.allow_uid = parse_uids(value).map_err(bad)?,
            "stats" => {
                self.stats = PathBuf256::new(value).ok_or_else(|| bad("a path of 1 to 255 bytes"))?;
            }
            "rendezvous" => {
                self.rendezvous = match value {
                    "off" => PathBuf256::EMPTY,
                    _ => PathBuf256::new(value)
                        .filter(|_| value.starts_with('/'))
                        .ok_or_else(|| bad("an absolute path of at most 255 bytes, or 'off'"))?,
                }
            }
            "netstack" => {
                self.netstack = match value {
                    "off" => None,
                    _ => Some(ServiceName::new(value).ok_or_else(|| {
                        bad("a service's name (1 to 32 letters, digits, '-', '_' or '.', no '.' in front), or 'off'")
                    })?),
                }
            }
            other => unreachable!("setting {other} has no parser"),
        }
        Ok(())
    }

    /// Applies every `BYPATH_*` setting that `lookup` (a `getenv`) finds; bad values are passed to `report` and
    /// change nothing.
    pub fn apply_env<'a>(
        &mut self,
        lookup: impl Fn(&str) -> Option<&'a str>,
        mut report: impl FnMut(ConfigError),
    ) {
        for s in SETTINGS {
            if let Some(value) = lookup(s.variable)
                && let Err(e) = self.set(s.flag, value)
            {
                report(ConfigError { flag: s.variable, ..e });
            }
        }
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

/// `0`, `500ns`, `20us`, `1ms`: nanoseconds.
fn parse_time(s: &str) -> Option<u64> {
    let digits = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &s[digits.len()..] {
        "" if digits == "0" => 1,
        "ns" => 1,
        "us" => 1000,
        "ms" => 1_000_000,
        _ => return None,
    };
    parse_count(digits)?.checked_mul(unit)
}

/// A number of at most 32 bits, digits only.
fn parse_count(s: &str) -> Option<u64> {
    let digits = s.bytes().all(|b| b.is_ascii_digit());
    s.parse::<u32>().ok().filter(|_| digits).map(u64::from)
}

pub use bypath_sys::process::OVERFLOW_UID;

fn parse_uids(s: &str) -> Result<AllowedUids, &'static str> {
    let mut allowed = AllowedUids::none();
    for word in s.split(',') {
        if word == "any" {
            allowed.any = true;
            continue;
        }
        let uid = word.parse::<u32>().map_err(|_| "user ids or 'any'")?;
        if uid == OVERFLOW_UID {
            return Err(
                "other user ids: 65534 stands for users of other namespaces, too, and is never allowed",
            );
        }
        *allowed.uids.get_mut(allowed.len).ok_or("at most 16 user ids, or 'any'")? = uid;
        allowed.len += 1;
    }
    Ok(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_word_gets_a_suggestion() {
        let e = Config::default().set("upgrade", "eagre").unwrap_err();
        assert_eq!(e.suggestion.as_deref(), Some("eager"));
        let e = Config::default().set("profil", "x").unwrap_err();
        assert_eq!(e.suggestion.as_deref(), Some("profile"));
    }

    #[test]
    fn environment_errors_leave_the_default() {
        let mut seen = Vec::new();
        let mut c = Config::default();
        c.apply_env(
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
                "ring-size" | "upgrade-bytes" => "64K",
                "memory-limit" => "1M",
                "spin-budget" => "20us",
                "upgrade-calls" | "connection-limit" => "7",
                "allow-uid" => "1000,any",
                "stats" | "rendezvous" => "/tmp/x",
                "netstack" => "lab",
                _ => s.words[0],
            };
            Config::default().set(s.flag, value).unwrap();
        }
    }

    #[test]
    fn stated_defaults_are_the_defaults() {
        let mut config = Config::default();
        for s in SETTINGS.iter().filter(|s| !s.default.is_empty()) {
            config.set(s.flag, s.default).unwrap();
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn a_profile_sets_the_spin_budget_and_the_budget_alone_no_profile() {
        let mut c = Config::default();
        c.set("profile", "latency").unwrap();
        assert_eq!(c.spin_budget_ns, 1_000_000);
        c.set("spin-budget", "7us").unwrap();
        assert_eq!((c.profile, c.spin_budget_ns), (Profile::Latency, 7000));
    }

    #[test]
    fn bad_numbers_and_times() {
        for (flag, bad) in [
            ("spin-budget", "5"),
            ("spin-budget", "1s"),
            ("spin-budget", "101ms"),
            ("spin-budget", "ms"),
            ("spin-budget", "+1us"),
            ("upgrade-calls", "0"),
            ("upgrade-calls", "+1"),
            ("upgrade-calls", "4294967296"),
            ("upgrade-bytes", "0"),
            ("connection-limit", "-1"),
            ("connection-limit", "4294967295"),
            ("connection-limit", "nones"),
        ] {
            assert!(Config::default().set(flag, bad).is_err(), "{flag}={bad}");
        }
        let mut c = Config::default();
        c.set("connection-limit", "0").unwrap();
        assert_eq!(c.connection_limit, 0);
    }

    #[test]
    fn a_netstack_has_a_name_or_is_off() {
        let mut c = Config::default();
        for bad in ["", ".x", "a/b", "a b", &"x".repeat(33)] {
            assert!(c.set("netstack", bad).is_err(), "{bad}");
        }
        c.set("netstack", "lab-1.x").unwrap();
        assert_eq!(c.netstack.unwrap().as_str(), "lab-1.x");
        c.set("netstack", "off").unwrap();
        assert_eq!(c.netstack, None);
        let bare = SETTINGS.iter().filter_map(|s| Some((s.flag, s.bare()?)));
        assert_eq!(bare.collect::<Vec<_>>(), [("netstack", "default")]);
    }

    #[test]
    fn a_rendezvous_is_an_absolute_path_or_off() {
        let mut c = Config::default();
        for bad in ["", "x", "./x", &format!("/{}", "x".repeat(255))] {
            assert!(c.set("rendezvous", bad).is_err(), "{bad}");
        }
        c.set("rendezvous", "/run/x").unwrap();
        assert_eq!(c.rendezvous.as_bytes(), b"/run/x");
        c.set("rendezvous", "off").unwrap();
        assert_eq!(c, Config::default());
    }

    #[test]
    fn ring_size_bounds() {
        for bad in ["0", "1", "15K", "48K", "2M", "x", "99999999999999999999"] {
            assert!(Config::default().set("ring-size", bad).is_err(), "{bad}");
        }
    }
}
