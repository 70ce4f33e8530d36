//! One link of an engine: what the stack has to send there, and whether its interface is there, and up.

use crate::leasing::Leasing;
use crate::tap::{Passing, Tap};
use bypath_link::{Apart, Capabilities, Link, Source};
use bypath_stack::Stack;
use bypath_stack::iface::IfaceId;
use bypath_stack::time::Instant;
use bypath_sys::{Errno, netif};

/// How often an interface that is down is asked whether it is up again.
pub const UP_NS: u64 = 500_000_000;

/// What a stack has to send on a link.
pub struct Frames<'a> {
    pub stack: &'a mut Stack,
    pub taps: &'a mut [(u64, Tap)],
    pub iface: IfaceId,
    pub now: Instant,
    /// There may be more.
    pub more: bool,
}

impl Source for Frames<'_> {
    fn next(&mut self, room: &mut [u8]) -> Option<Apart<'_>> {
        let next = self.stack.poll_transmit_apart(self.now, self.iface, room);
        self.more = next.is_some();
        if let Some(frame) = &next
            && !self.taps.is_empty()
        {
            // What is longer than its room is refused by the link.
            let head = room.get(..frame.len).unwrap_or_default();
            let passing =
                Passing { iface: self.iface, ingress: false, head, behind: frame.behind, meta: &frame.meta };
            self.taps.iter_mut().for_each(|(_, tap)| tap.see(&passing));
        }
        next
    }
}

/// A link, and what is known of it.
pub struct Port {
    pub iface: IfaceId,
    pub name: String,
    pub link: Box<dyn Link + Send>,
    pub capabilities: Capabilities,
    /// The link takes no more for now.
    pub full: bool,
    /// The frames that came last were long.
    pub long: bool,
    /// The link is gone, and that was told.
    pub gone: bool,
    /// Its interface is down, and that was told.
    pub down: bool,
    /// When it is asked next whether it is up again (ns).
    pub looks: u64,
    /// Frames were moved since it was down.
    pub moves: bool,
    pub leasing: Option<Leasing>,
}

impl Port {
    /// Frames were moved: the interface may be up again, unless they are of the time before it was down.
    pub const fn moved(&mut self, frames: usize) {
        if self.down && frames > 0 {
            self.looks = 0;
            self.moves = true;
        }
    }

    /// Whether its interface, which was down, is up again: asked once in a while, as nothing tells it.
    pub fn is_up_again(&mut self, now: u64) -> bool {
        if !self.down || self.gone || now < self.looks {
            return false;
        }
        self.looks = now + UP_NS;
        let asked = netif::by_name(&self.name).map(|interface| interface.is_up());
        self.down = !seems_up(asked, self.moves);
        !self.down
    }
}

/// Whether an interface that was down is up: as the kernel says. Where it does not know one of that name frames tell it, and where it does not answer it is
/// asked again later.
pub fn seems_up(asked: bypath_sys::Result<bool>, moves: bool) -> bool {
    match asked {
        Ok(up) => up,
        Err(Errno::NODEV) => moves,
        Err(_) => false,
    }
}
