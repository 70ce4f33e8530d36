//! What is AF_XDP's alone.

use crate::boundary::Outcome;
use crate::options::{BYPATH_ALWAYS_WAKE, bypath_l2_options, unknown};
use bypath_link::l2::{Builder, BusyPoll, Place, Transfer};

/// Nobody copies frames where the driver can do without, elsewhere the kernel does.
pub const BYPATH_TRANSFER_BEST: u32 = 0;
/// The kernel copies frames between the device and our memory.
pub const BYPATH_TRANSFER_COPY: u32 = 1;
/// Nobody copies: the device reads and writes our memory. Opening fails where the driver cannot do that.
pub const BYPATH_TRANSFER_ZERO_COPY: u32 = 2;

/// Frames are looked at in the driver where it can do that, behind it elsewhere.
pub const BYPATH_PLACE_BEST: u32 = 0;
/// In the driver ("native"). Opening fails where it cannot do that.
pub const BYPATH_PLACE_DRIVER: u32 = 1;
/// Behind it: works with every interface, costs more ("generic").
pub const BYPATH_PLACE_GENERIC: u32 = 2;

/// Frames of one poll of the device unless another number is asked for.
const USUAL_BUDGET: u32 = 64;

/// Puts in what was asked for.
pub fn asked(o: &bypath_l2_options, mut builder: Builder) -> Outcome<Builder> {
    if o.queue != 0 {
        builder = builder.queue(o.queue);
    }
    builder = match o.transfer {
        BYPATH_TRANSFER_BEST => builder,
        BYPATH_TRANSFER_COPY => builder.transfer(Transfer::Copy),
        BYPATH_TRANSFER_ZERO_COPY => builder.transfer(Transfer::ZeroCopy),
        other => return Err(unknown("transfer", other)),
    };
    builder = match o.place {
        BYPATH_PLACE_BEST => builder,
        BYPATH_PLACE_DRIVER => builder.place(Place::Driver),
        BYPATH_PLACE_GENERIC => builder.place(Place::Generic),
        other => return Err(unknown("place", other)),
    };
    if o.flags & BYPATH_ALWAYS_WAKE != 0 {
        builder = builder.need_wakeup(false);
    }
    if o.busy_poll_us != 0 {
        let budget = if o.busy_poll_budget == 0 { USUAL_BUDGET } else { o.busy_poll_budget };
        builder = builder.busy_poll(BusyPoll { microseconds: o.busy_poll_us, budget });
    }
    Ok(builder)
}
