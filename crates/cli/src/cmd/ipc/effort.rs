//! What moving messages costs: `--stats`.

use crate::output;
use crate::raw::values;
use bypath_sys::clock;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// What has been spent since the first message.
#[derive(Default)]
pub struct Effort {
    begun: Option<(u64, u64)>,
    /// System calls that moved messages, or waited for one: all but those on standard input and output.
    pub calls: u64,
}

/// Nanoseconds of the processors that this process used.
fn processors() -> u64 {
    let spent = getrusage(UsageWho::RUSAGE_SELF);
    spent.map_or(0, |s| (s.user_time() + s.system_time()).num_nanoseconds().cast_unsigned())
}

impl Effort {
    /// A message is there: time begins with the first one.
    pub fn begin(&mut self) {
        if self.begun.is_none() {
            self.begun = Some((clock::monotonic_ns(), processors()));
            self.calls = 0;
        }
    }

    /// Says what it was.
    pub fn tell(&self, via: &str, messages: u64, octets: u64) {
        let Some((begun, used)) = self.begun.filter(|_| messages > 0) else { return };
        let (time, used) = (clock::monotonic_ns() - begun, processors().saturating_sub(used));
        output::message(format_args!(
            "via {via}: {} for {messages} messages of {} octets: {} each, {} of a processor each, {:.1} MiB/s; {} system calls \
             moved them, {:.4} each",
            values::ns(time),
            octets / messages,
            values::ns(time / messages),
            values::ns(used / messages),
            octets as f64 / (1 << 20) as f64 / (time.max(1) as f64 / 1e9),
            self.calls,
            self.calls as f64 / messages as f64
        ));
    }
}
