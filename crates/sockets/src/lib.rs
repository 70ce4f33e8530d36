//! BSD socket semantics over rings: which path a byte takes, and the switch between paths.
//!
//! `hook` is the face towards the interposed calls. `stream` moves bytes, `poll`, `epoll` and `ready` tell readiness,
//! `switch` changes paths, `carrier` knows the kernel connection under a ring, `rendezvous` and `peer` find and hold
//! the other end, `life` follows descriptors and processes, `heir` from one program image to the next, `table` maps
//! descriptors to sockets, `rules` and `limit` say which may be upgraded, `wish` does what was asked for from outside
//! (`request`: `bypath recall`, `bypath upgrade`; `taken`: a process that took a descriptor), `guard`
//! takes back what the kernel does faster. `service` makes sockets those of a netstack service, `udp` is
//! datagrams between programs of one host.

mod budget;
mod carrier;
pub mod config;
mod connects;
mod cut;
mod epoll;
pub mod fault;
mod flush;
mod foreign;
mod fork;
mod guard;
mod heir;
mod home;
pub mod hook;
mod kept;
mod later;
mod leaving;
mod life;
mod limit;
mod lock;
mod log;
mod meant;
mod memory;
mod moved;
mod numbers;
mod options;
mod others;
mod over;
mod parts;
mod peer;
mod poll;
mod promised;
mod raised;
mod ready;
mod rendezvous;
pub mod request;
pub mod rules;
mod sealed;
pub mod service;
mod siblings;
mod signals;
mod state;
mod stay;
mod stream;
mod switch;
mod table;
mod taken;
mod thread;
mod udp;
mod unsupported;
mod unwoken;
mod uring;
mod verdict;
mod wait;
mod whose;
mod wish;
mod wlock;
mod worth;

pub use udp::seen;
