//! Who writes what is looked at, and whether he is in the middle of it.

use super::memory::{self, Life};
use crate::connections::descriptors::Process;
use crate::connections::{self, Writer, Writing};
use bypath_sockets::service::place;
use bypath_sys::seqpacket;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long the mappings of a service are looked at: it has three for each connection.
const LONGEST: Duration = Duration::from_millis(50);

/// Whoever writes one direction.
#[derive(Debug)]
pub enum Author {
    /// Programs, by their record.
    Programs(Writer),
    /// A program whose record is not looked at, as it is of a user whose word does not count.
    Stranger,
    /// A netstack service, by its process: one thread does all of its work, and does not sleep in the middle of writing.
    Service(u32),
}

impl Author {
    /// What they do now.
    pub fn look(&self) -> Writing {
        match self {
            Author::Programs(writer) => writer.look(),
            Author::Stranger => Writing::Busy,
            Author::Service(pid) => match connections::state(*pid) {
                None => Writing::Nobody,
                Some(b'S') => Writing::Paused,
                // It runs, or was stopped, or waits for memory: anywhere.
                Some(_) => Writing::Busy,
            },
        }
    }
}

/// The process of the service of this name, as far as this one finds it.
pub fn service(name: &str) -> Option<Process> {
    let path = place::find(name)?;
    let end = seqpacket::connect(&path).ok()?;
    place::is_believed(&path, end.as_fd()).ok()?;
    Process::of(getsockopt(&end, PeerCredentials).ok()?.pid().try_into().ok()?)
}

/// Whether that process has the memory that is looked at: a service of the same name may be another one.
pub fn has(service: Process, life: &Life) -> bool {
    memory::arenas(service, Some(LONGEST)).is_ok_and(|all| all.iter().any(|arena| life.is_in(arena)))
}
