//! What streams on rings survive, beside ends that are killed (`crash`) and peers that mean harm (`trust`): counters that wrap.

#[path = "agent/programs.rs"]
mod programs;

#[path = "crash/program.rs"]
#[expect(dead_code, reason = "for tests that kill")]
mod program;

#[path = "survival/conversation.rs"]
mod conversation;
#[path = "survival/wraps.rs"]
mod wraps;
