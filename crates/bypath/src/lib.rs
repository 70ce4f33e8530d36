//! Bypath for programs: what is meant to be used from outside.
//!
//! [`l2`] sends and receives Ethernet frames: addresses, VLAN tags and priorities, EtherTypes, timestamps, jumbo frames.
//! [`link`] is one level below: many frames with few calls, and what a link obtained of what was asked.

#![forbid(unsafe_code)]

pub use bypath_link as link;
pub use bypath_link::l2;
