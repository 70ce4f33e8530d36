//! RoCEv2 without an adapter: queue pairs that send, write, read and count atomically, over any link. docs/roce.md has
//! the state machines.
//!
//! A [`Device`] is fed with IP packets, asked for packets, told the time, and asked for events; it makes no system call
//! and knows no clock. [`carry`](fn@carry) moves packets between a device and a [`Link`](crate::Link).
//!
//! ```
//! use bypath_link::roce::{Access, Beside, Config, Device, Local, Receive, Request, What};
//! use bypath_wire::roce::{Envelope, Psn, Qpn};
//! use bypath_wire::{IpProtocol, Ipv4Header, Network};
//!
//! let way = |from: [u8; 4], to: [u8; 4]| {
//!     Envelope::new(Network::V4(Ipv4Header::new(from.into(), to.into(), IpProtocol::UDP)), 0xc000)
//! };
//! let (one, two) = (Qpn::new(0x11), Qpn::new(0x22));
//! let (mut here, mut there) = (Device::new(), Device::new());
//! here.connect(one, two, way([10, 0, 0, 1], [10, 0, 0, 2]), Config::DEFAULT, Psn::new(5), Psn::new(9))?;
//! there.connect(two, one, way([10, 0, 0, 2], [10, 0, 0, 1]), Config::DEFAULT, Psn::new(9), Psn::new(5))?;
//!
//! here.memory.register(1, b"hello".to_vec(), 0, Access::LOCAL).expect("a free key");
//! there.memory.register(2, vec![0; 100], 0, Access::LOCAL).expect("a free key");
//! there.receive(two, Receive { id: 7, to: Local { key: 2, address: 0, len: 100 } })?;
//! here.post(one, 1, Request::Send { from: Local { key: 1, address: 0, len: 5 }, beside: Beside::Nothing })?;
//!
//! let mut buffer = [0; 1500];
//! let len = here.poll_transmit(0, &mut buffer).expect("a packet");
//! there.handle(0, &buffer[..len]);
//! let event = there.poll_event().expect("an event");
//! assert!(matches!(event.what, What::Received(message) if message.id == 7 && message.len == 5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod carry;
mod counters;
mod device;
mod inbound;
mod memory;
mod outgoing;
mod requester;
mod responder;
mod work;

pub use carry::{Carried, carry};
pub use counters::Counters;
pub use device::{Device, NotMade, To};
pub use memory::{Access, Denied, Local, Memory, Remote};
pub use work::{
    Beside, Config, Done, Event, Failure, Mtu, NotPosted, Receive, Received, Request, Source, What,
};

use bypath_wire::roce::Extended;

/// The headers that say what goes beside a SEND.
const fn extended_of(beside: Beside) -> Extended {
    match beside {
        Beside::Nothing => Extended::None,
        Beside::Immediate(data) => Extended::Immediate(data),
        Beside::Invalidate(key) => Extended::Invalidate(key),
    }
}

#[cfg(test)]
mod tests;
