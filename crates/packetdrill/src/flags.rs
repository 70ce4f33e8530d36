//! What `--so_flags` says: `local=192.168.0.1/16,remote=192.0.2.0/24,mtu=1500`.

use bypath_stack::prefix::Prefix;
use bypath_stack::tcp::congestion::Algorithm;
use std::time::Duration;

/// Whose clock it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The machine's; a thread does what is due.
    #[default]
    Real,
    /// The caller's: it passes while somebody sleeps, waits for a packet, or asks what time it is (a microsecond); and in calls of
    /// the thread that made the host that wait. Those of others wait until time has passed. Everything is done at the very moment when it is due, however busy the machine is.
    Virtual,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Its addresses.
    pub local: Vec<Prefix>,
    /// Networks that its link leads to, beside those of its addresses.
    pub remote: Vec<Prefix>,
    /// Octets of a packet.
    pub mtu: usize,
    /// Congestion control of its sockets.
    pub algorithm: Algorithm,
    /// See there.
    pub time: Time,
    /// Octets of payload that a packet takes which the link would cut into segments; 0: it cuts nothing.
    pub gso: usize,
    /// Those are cut here: segments leave, as where the kernel has to cut for its device.
    pub cut: bool,
    /// How long after a timer is due that is noticed, as where a clock ticks.
    pub late: Duration,
    /// New sockets are set up as net.ipv4.tcp_* of the network namespace say.
    pub sysctl: bool,
    /// How long a packet is waited for.
    pub patience: Duration,
}

impl Default for Flags {
    fn default() -> Flags {
        Flags {
            local: Vec::new(),
            remote: Vec::new(),
            mtu: 1500,
            algorithm: Algorithm::Cubic,
            time: Time::Real,
            gso: 0,
            cut: false,
            late: Duration::ZERO,
            sysctl: false,
            patience: Duration::from_secs(30),
        }
    }
}

impl Flags {
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Flags, String> {
        let mut flags = Flags::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair}: not KEY=VALUE"))?;
            let wrong = |what: &str| format!("{key}={value}: {what}");
            match key {
                "local" | "remote" => {
                    let prefix =
                        value.parse().map_err(|_| wrong("an address and the length of its network"))?;
                    if key == "local" { flags.local.push(prefix) } else { flags.remote.push(prefix) }
                }
                "mtu" => flags.mtu = value.parse().map_err(|_| wrong("a number of octets"))?,
                "gso" => flags.gso = value.parse().map_err(|_| wrong("a number of octets"))?,
                "patience" => {
                    flags.patience =
                        Duration::from_secs(value.parse().map_err(|_| wrong("a number of seconds"))?);
                }
                "cc" => flags.algorithm = algorithm(value).ok_or_else(|| wrong("cubic or reno"))?,
                "time" => {
                    flags.time = match value {
                        "real" => Time::Real,
                        "virtual" => Time::Virtual,
                        _ => return Err(wrong("real or virtual")),
                    }
                }
                "sysctl" => flags.sysctl = is_on(value).ok_or_else(|| wrong("on or off"))?,
                "cut" => flags.cut = is_on(value).ok_or_else(|| wrong("on or off"))?,
                "late" => {
                    let most = |ms: &u64| *ms <= 1000;
                    let ms =
                        value.parse().ok().filter(most).ok_or_else(|| wrong("milliseconds, up to 1000"))?;
                    flags.late = Duration::from_millis(ms);
                }
                _ => {
                    return Err(format!(
                        "{key}: none of local remote mtu cc time gso cut late sysctl patience"
                    ));
                }
            }
        }
        Ok(flags)
    }
}

fn is_on(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// The algorithm that Linux calls so.
pub(crate) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::Reno),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_what_is_wrong_is_told() {
        let flags = Flags::parse(
            "local=192.168.0.1/16,remote=192.0.2.0/24,mtu=1400,cc=reno,time=virtual,gso=2999,cut=on",
        );
        let flags = flags.expect("flags");
        assert_eq!((flags.local.len(), flags.remote.len(), flags.mtu), (1, 1, 1400));
        let all = (flags.algorithm, flags.time, flags.gso, flags.cut);
        assert_eq!(all, (Algorithm::Reno, Time::Virtual, 2999, true));
        for wrong in [
            "local",
            "local=nowhere",
            "mtu=x",
            "cc=vegas",
            "time=late",
            "colour=red",
            "sysctl=1",
            "cut=yes",
            "late=x",
        ] {
            assert!(Flags::parse(wrong).is_err(), "{wrong}");
        }
    }
}
