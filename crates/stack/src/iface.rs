//! Interfaces: where frames come from and go to.

/// An interface of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub(crate) u32);
