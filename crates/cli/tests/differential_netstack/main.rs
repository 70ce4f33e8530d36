//! The scripts of socket calls that the preloaded library is compared with, on our TCP/IP stack: two hosts and a link between
//! them, on which programs run that know nothing of it. At one end or at both a netstack service has the link, over a veth pair or
//! a TAP device. The kernel at both ends of a veth pair is the specification; `known` has what differs from it. So run the scripts of datagrams, as far
//! as they are not about one host.

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "other tests need rings")]
#[path = "../agent/programs.rs"]
mod programs;
#[allow(dead_code, unused_macros, reason = "the tools for raw Ethernet need more of it")]
#[macro_use]
#[path = "../l2_tools/network.rs"]
mod network;

#[allow(dead_code, reason = "it stands in for calls of a plug-in, too")]
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
#[path = "../differential_udp/model.rs"]
mod udp_model;

mod hand;
mod hosts;
mod known;
mod own;
mod random;
mod stage;

#[path = "../differential_stack/calls.rs"]
mod calls;
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
#[path = "../differential_stack/urgent.rs"]
mod urgent;
#[path = "../differential/waiting.rs"]
mod waiting;

#[path = "../differential_udp/calls.rs"]
mod udp_calls;
#[path = "../differential_udp/names.rs"]
mod udp_names;
#[path = "../differential_udp/options.rs"]
mod udp_options;
#[path = "../differential_udp/order.rs"]
mod udp_order;
#[path = "../differential_udp/waiting.rs"]
mod udp_waiting;
