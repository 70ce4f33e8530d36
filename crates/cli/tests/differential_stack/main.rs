//! The scripts of socket calls that the preloaded library is compared with, over our TCP/IP stack: two hosts with a link, on
//! which the kernel, or the stack behind the plug-in's table of functions, carries the connections. The kernel at both ends is
//! the specification.

#[allow(dead_code, reason = "it builds the preload library, too")]
#[path = "../agent/programs.rs"]
mod programs;

#[path = "../differential/link.rs"]
mod link;
#[allow(dead_code, reason = "it runs scripts over rings, too")]
#[path = "../differential/process.rs"]
mod process;
#[allow(dead_code, reason = "it runs scripts over rings, too")]
#[path = "../differential/run.rs"]
mod run;
#[path = "../differential/script.rs"]
mod script;

#[path = "../differential/model.rs"]
mod model;

mod calls;
mod hand;
mod left_out;
mod random;
mod seats;
mod urgent;

#[path = "../differential/data.rs"]
mod data;
#[path = "../differential/ends.rs"]
mod ends;
#[path = "../differential/epoll.rs"]
mod epoll;
#[path = "../differential/inherited.rs"]
mod inherited;
#[path = "../differential/narrow.rs"]
mod narrow;
#[path = "../differential/pressure.rs"]
mod pressure;
#[path = "../differential/readiness.rs"]
mod readiness;
#[path = "../differential/recall.rs"]
mod recall;
#[path = "../differential/sockets.rs"]
mod sockets;
#[path = "../differential/told.rs"]
mod told;
#[path = "../differential/waiting.rs"]
mod waiting;
