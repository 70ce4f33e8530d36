//! The kernel is the specification: the same script of socket calls runs on the kernel alone and with the
//! library on both ends, on one, with its defaults, eagerly, and with upgrades and recalls forced at random;
//! results, errno, bytes and readiness must be equal.

#[path = "agent/programs.rs"]
mod programs;

#[path = "differential/hand.rs"]
mod hand;
#[allow(dead_code, reason = "for scripts over our TCP/IP stack")]
#[path = "differential/link.rs"]
mod link;
#[path = "differential/process.rs"]
mod process;
#[allow(dead_code, reason = "for scripts over our TCP/IP stack")]
#[path = "differential/run.rs"]
mod run;
#[path = "differential/script.rs"]
mod script;

#[path = "differential/data.rs"]
mod data;
#[path = "differential/ends.rs"]
mod ends;
#[path = "differential/epoll.rs"]
mod epoll;
#[path = "differential/inherited.rs"]
mod inherited;
#[path = "differential/itself.rs"]
mod itself;
#[path = "differential/model.rs"]
mod model;
#[path = "differential/narrow.rs"]
mod narrow;
#[path = "differential/pressure.rs"]
mod pressure;
#[path = "differential/random.rs"]
mod random;
#[path = "differential/readiness.rs"]
mod readiness;
#[path = "differential/recall.rs"]
mod recall;
#[path = "differential/sockets.rs"]
mod sockets;
#[path = "differential/told.rs"]
mod told;
#[path = "differential/unix.rs"]
mod unix;
#[path = "differential/waiting.rs"]
mod waiting;
