//! Hosts, routers, links and what goes wrong on them, simulated in virtual time: for proving the stack.
//!
//! Hosts are [`Stack`](bypath_stack::Stack)s, so what is proved is what runs. Nothing here has a clock, and all chance follows
//! from one seed: the same seed gives the same run, frame by frame. After each event everything is [checked](check) that must
//! always hold. `docs/simulator.md` says how to write a scenario, and how to repeat one that failed.
//!
//! ```
//! use bypath_sim::link::LinkConfig;
//! use bypath_sim::Simulation;
//! use std::time::Duration;
//!
//! let mut sim = Simulation::new("doc", 1);
//! let lan = sim.link("lan", LinkConfig::default());
//! let [a, b] = [("a", "10.0.0.1/24"), ("b", "10.0.0.2/24")].map(|(name, address)| {
//!     let host = sim.host(name);
//!     sim.attach(host, lan, &[address]);
//!     host
//! });
//! let server = sim.stack(b).open_udp()?;
//! sim.stack(b).udp(server).unwrap().bind("0.0.0.0:7".parse()?)?;
//! let client = sim.stack(a).open_udp()?;
//! sim.stack(a).udp(client).unwrap().send(b"hello", Some("10.0.0.2:7".parse()?))?;
//! sim.run(Duration::from_millis(1));
//!
//! let mut room = [0; 100];
//! let received = sim.stack(b).udp(server).unwrap().receive(&mut room)?;
//! assert_eq!(&room[..received.len], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What it does not have: links of another kind than Ethernet, and routers that are more than [`router`] says.

#![forbid(unsafe_code)]

pub mod app;
pub mod attack;
#[cfg(feature = "pcapng")]
mod capture;
pub mod check;
pub mod dice;
pub mod fuzz;
pub mod link;
pub mod record;
pub mod router;
mod simulation;

pub use simulation::{LinkId, NodeId, Simulation};
