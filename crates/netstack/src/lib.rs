//! Runs the stack: carries frames between it and a link, and gets it an address.

pub mod dhcp;
