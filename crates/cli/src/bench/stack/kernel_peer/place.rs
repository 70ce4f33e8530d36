//! Where it happens: a device whose other end is the kernel's, or a veth pair with each end in a namespace of its own.

use super::Subject;
use crate::bench::context::Trouble;
use bypath_netstack::{LinkName, Setup};
use bypath_stack::prefix::Prefix;
use bypath_sys::{Errno, netns};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The kernel's end, and ours (RFC 2544: networks for benchmarks).
pub const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1));
pub const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 0, 2));
const PREFIX: u8 = 24;
/// Where the kernel's end listens.
pub const TO: SocketAddr = SocketAddr::new(KERNEL, 7000);
const MTU: u32 = 1500;
/// Ends of the veth pair.
const VETH: [&str; 2] = ["own", "peer"];
const DEVICE: &str = "bench0";

/// Namespaces and links of one run.
pub struct Place {
    /// That of the kernel's end; `None`: the one of this process.
    pub far: Option<netns::Namespace>,
}

fn fail(what: &str, e: Errno) -> Trouble {
    match e {
        Errno::PERM | Errno::OPNOTSUPP => Trouble::Skipped(format!("cannot {what}: {e}")),
        e => Trouble::Failed(format!("cannot {what}: {e}")),
    }
}

impl Place {
    /// Makes it, in a process that has namespaces of its own.
    ///
    /// # Errors
    /// What is missing.
    pub fn make(subject: Subject) -> Result<Place, Trouble> {
        if matches!(subject, Subject::Tap | Subject::Tun) {
            return Ok(Place { far: None });
        }
        let far = netns::Namespace::new().map_err(|e| fail("make a second network namespace", e))?;
        netns::veth(VETH[0], VETH[1], Some(&far)).map_err(|e| fail("make a veth pair", e))?;
        let there = far.run(|| {
            netns::set_mtu(VETH[1], MTU)?;
            netns::set_up(VETH[1], true)?;
            netns::add_address(VETH[1], KERNEL, PREFIX)
        });
        let here = || {
            netns::set_mtu(VETH[0], MTU)?;
            netns::set_up(VETH[0], true)?;
            // Where our stack is the kernel has no address.
            if subject == Subject::KernelVeth { netns::add_address(VETH[0], OWN, PREFIX) } else { Ok(()) }
        };
        here().and(there.and_then(|done| done)).map_err(|e| fail("set up the veth pair", e))?;
        Ok(Place { far: Some(far) })
    }

    /// How our stack gets there; `None`: our end is the kernel's, too.
    pub fn setup(&self, subject: Subject) -> Option<Setup> {
        let device = |link| Setup::on(link).kernel(KERNEL, PREFIX).mtu(MTU);
        let setup = match subject {
            Subject::Tap => device(LinkName::Tap(DEVICE.into())),
            Subject::Tun => device(LinkName::Tun(DEVICE.into())),
            Subject::Packet => Setup::on(LinkName::Packet(VETH[0].into())),
            Subject::KernelVeth => return None,
        };
        Some(setup.address(Prefix::new(OWN, PREFIX).expect("a prefix")))
    }
}
