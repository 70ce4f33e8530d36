//! kill -9 at each crash point of the switch protocol (docs/switch-protocol.md, "Crash points"): what the other end
//! sees is what the kernel would have shown, and what a sibling takes over is whole. And at those of datagrams (docs/udp.md, "Crash points"),
//! and floods while others come to have a socket, or of senders on a ring and without the library at once.

#[path = "agent/programs.rs"]
mod programs;

#[path = "crash/cut.rs"]
mod cut;
#[path = "crash/floods.rs"]
mod floods;
#[path = "crash/heirs.rs"]
mod heirs;
#[path = "crash/list.rs"]
mod list;
#[path = "crash/mailbox.rs"]
mod mailbox;
#[path = "crash/meetings.rs"]
mod meetings;
#[path = "crash/mixed.rs"]
mod mixed;
#[path = "crash/pairs.rs"]
mod pairs;
#[path = "crash/program.rs"]
mod program;
#[path = "crash/recalls.rs"]
mod recalls;
