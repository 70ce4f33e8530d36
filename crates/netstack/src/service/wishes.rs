//! What a socket wants and the stack does not keep: numbers as they were set, to be told again.

use bypath_stack::tcp::Keepalive as Probes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Options by level and name.
type Kept = BTreeMap<(i32, i32), Vec<u8>>;

/// SO_KEEPALIVE and its times, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    pub on: bool,
    pub idle: u32,
    pub interval: u32,
    pub probes: u32,
}

impl Default for Keepalive {
    /// Linux's net.ipv4.tcp_keepalive_*.
    fn default() -> Keepalive {
        Keepalive { on: false, idle: 7200, interval: 75, probes: 9 }
    }
}

impl Keepalive {
    /// What the stack is told.
    pub fn settings(&self) -> Option<Probes> {
        let time = |seconds: u32| Duration::from_secs(seconds.into());
        let probes = Probes { idle: time(self.idle), interval: time(self.interval), probes: self.probes };
        self.on.then_some(probes)
    }
}

/// Connections have those of their listener.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub keepalive: Keepalive,
    /// SO_SNDBUF and SO_RCVBUF as they were set; 0: they were not.
    pub buffers: (u32, u32),
    /// Of SO_LINGER, in seconds.
    pub linger: u32,
    /// 0: it was not set.
    pub maxseg: u16,
    /// SO_BINDTODEVICE.
    pub device: Vec<u8>,
    kept: Option<Box<Kept>>,
}

impl Wishes {
    pub fn keep(&mut self, option: (i32, i32), value: Vec<u8>) {
        self.kept.get_or_insert_default().insert(option, value);
    }

    pub fn kept(&self, option: (i32, i32)) -> Option<Vec<u8>> {
        self.kept.as_ref()?.get(&option).cloned()
    }
}
