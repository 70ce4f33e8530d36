//! The interfaces that a program sees all of whose sockets are a service's: the stack's, in place of the kernel's other than loopback.

use super::control::{self, Message};
use crate::state;
pub use bypath_shm::interface::Interface;
use bypath_shm::interface::{HELD_AT_ONCE, Held};
use bypath_shm::service::Op;
use bypath_sys::{Errno, Result};
use std::net::SocketAddr;

/// Interfaces that are asked for at most.
const MOST: u32 = 64;
/// Addresses of one that are.
const MOST_HELD: u32 = 256;

/// An address, and the length of its prefix.
pub type Address = (SocketAddr, u32);

/// Calls `f` with each interface of the stack, and with each of its addresses, until it says that this was enough.
///
/// # Errors
/// The program is not one of those, or its service does not answer.
pub fn each(mut f: impl FnMut(&Interface, Option<Address>) -> bool) -> Result<()> {
    let name = state::config().and_then(|config| config.netstack).ok_or(Errno::NODEV)?;
    let service = control::number(name).ok_or(Errno::NETDOWN)?;
    for n in 0..MOST {
        let mut from = 0;
        loop {
            let mut question = Message::new(Op::Interfaces, 0).number(n as i32).number(from as i32);
            let mut body = match question.ask(service) {
                Ok(answer) => answer.body,
                Err(Errno::NODEV) => return Ok(()),
                Err(e) => return Err(e),
            };
            let interface = Interface::decode(&mut body).ok_or(Errno::PROTO)?;
            if from == 0 && f(&interface, None) {
                return Ok(());
            }
            let mut told = 0;
            while let Some(held) = Held::decode(&mut body) {
                told += 1;
                let address = held.address.0.map(|address| (address, held.prefix.min(128)));
                if address.is_some() && f(&interface, address) {
                    return Ok(());
                }
            }
            from += told;
            if (told as usize) < HELD_AT_ONCE || from >= MOST_HELD {
                break;
            }
        }
    }
    Ok(())
}
