//! What streams and datagrams on rings survive, beside ends that are killed (`crash`) and peers that mean harm (`trust`): counters that wrap,
//! ends that are stopped, connections and processes that come and go, crowds.

mod common;

#[path = "agent/programs.rs"]
mod programs;

#[path = "crash/mailbox.rs"]
#[expect(dead_code, reason = "for tests of recalls")]
mod mailbox;
#[path = "crash/program.rs"]
#[expect(dead_code, reason = "for tests that kill")]
mod program;

#[path = "survival/conversation.rs"]
mod conversation;
#[path = "survival/crowd.rs"]
mod crowd;
#[path = "survival/cycles.rs"]
mod cycles;
#[path = "survival/stopped.rs"]
mod stopped;
#[path = "survival/wraps.rs"]
mod wraps;
