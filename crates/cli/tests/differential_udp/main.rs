//! The kernel is the specification of datagrams on one host, too: the same script of calls on UDP sockets runs on the kernel alone
//! and with the library on both ends or on one; results, errno, octets, names, ancillary data, order and readiness are equal.

#[path = "../agent/programs.rs"]
mod programs;

#[allow(dead_code, reason = "for scripts over our TCP/IP stack")]
#[path = "../differential/link.rs"]
mod link;
#[allow(dead_code, reason = "it starts agents elsewhere, too")]
#[path = "../differential/process.rs"]
mod process;
#[allow(dead_code, reason = "it runs scripts over streams, too")]
#[path = "../differential/run.rs"]
mod run;
#[path = "../differential/script.rs"]
mod script;

mod hand;

mod calls;
mod ends;
mod groups;
mod holders;
mod names;
mod options;
mod order;
mod recalls;
mod waiting;

mod model;
mod random;
