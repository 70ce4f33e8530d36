//! An interface without carrier: the kernel takes what is sent, and throws it away without an error.

use crate::output;
use bypath::l2::Interface;
use bypath_sys::clock;

/// Between two looks at the interface.
const EVERY: u64 = 250_000_000;

/// Whether an interface has a carrier, told once when it has not.
pub struct Carrier {
    interface: String,
    look_at: u64,
    told: bool,
}

impl Carrier {
    /// Looks for the first time.
    pub fn new(interface: &str) -> Carrier {
        let mut carrier = Carrier { interface: interface.to_owned(), look_at: 0, told: false };
        carrier.look(clock::monotonic_ns());
        carrier
    }

    /// Whether a look is due at this time of the monotonic clock.
    pub const fn is_due(&self, now: u64) -> bool {
        !self.told && now >= self.look_at
    }

    /// Looks, whenever the last look was, unless it was told already.
    pub fn look(&mut self, now: u64) {
        self.look_at = now.saturating_add(EVERY);
        // One that is gone, or down, is an error of what is done with it.
        let lost = Interface::named(&self.interface).is_ok_and(|i| i.carrier == Some(false));
        if lost && !self.told {
            self.told = true;
            output::message(format_args!(
                "{0}: no carrier: what is sent is thrown away, without an error; plug the cable in, or switch the other \
                 end on (of a veth pair: ip link set dev PEER up); bypath doctor {0} tells more",
                self.interface
            ));
        }
    }
}
