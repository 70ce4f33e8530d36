//! What runs on hosts: programs that are told what happens, and do something.

use crate::dice::Dice;
use bypath_stack::Stack;
use bypath_stack::event::Event;
use bypath_stack::iface::IfaceId;
use bypath_stack::time::Instant;

/// What a program can reach while it is told something.
#[derive(Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Instant,
    /// The host's stack.
    pub stack: &'a mut Stack,
    /// Interfaces of the host, in the order in which they were attached.
    pub ifaces: &'a [IfaceId],
    /// Chance of this program's own.
    pub dice: &'a mut Dice,
    pub(crate) wakes: Vec<Instant>,
}

impl Context<'_> {
    /// The program is woken then; at once, if that has passed.
    pub fn wake_at(&mut self, at: Instant) {
        self.wakes.push(at);
    }
}

/// A program on a host. Any `FnMut(&mut Context, Option<&Event>)` is one: `None` says that it was woken.
pub trait App {
    /// It is started, or a time has come that it asked for.
    fn wake(&mut self, context: &mut Context<'_>);

    /// Something happened to the host: all its programs are told of everything.
    fn event(&mut self, context: &mut Context<'_>, event: &Event);
}

impl<F: FnMut(&mut Context<'_>, Option<&Event>)> App for F {
    fn wake(&mut self, context: &mut Context<'_>) {
        self(context, None);
    }

    fn event(&mut self, context: &mut Context<'_>, event: &Event) {
        self(context, Some(event));
    }
}
