//! What is below a socket that the builder opened.

use super::xdp::Chosen;
use crate::packet::{Obtained, PacketLink};
use crate::{Capabilities, Each, Interface, Link, MacAddr, Next, Result, Statistics};
use std::os::fd::BorrowedFd;

/// A packet link, or with [`Mode::XDP`](super::Mode::XDP) an AF_XDP link.
pub struct AnyLink(Kind);

enum Kind {
    Packet(Box<PacketLink>),
    Xdp(Box<Chosen>),
}

impl AnyLink {
    pub(super) fn packet(link: PacketLink) -> AnyLink {
        AnyLink(Kind::Packet(Box::new(link)))
    }

    pub(super) fn xdp(link: Chosen) -> AnyLink {
        AnyLink(Kind::Xdp(Box::new(link)))
    }

    fn link(&self) -> &dyn Link {
        match &self.0 {
            Kind::Packet(link) => &**link,
            Kind::Xdp(link) => &**link,
        }
    }

    /// What was obtained of what was asked.
    pub fn obtained(&self) -> &Obtained {
        match &self.0 {
            Kind::Packet(link) => link.obtained(),
            Kind::Xdp(link) => link.obtained(),
        }
    }

    /// The interface as it was when it was opened.
    pub fn interface(&self) -> &Interface {
        match &self.0 {
            Kind::Packet(link) => link.interface(),
            Kind::Xdp(link) => link.interface(),
        }
    }

    /// Begins to receive frames to a group.
    ///
    /// # Errors
    /// As [`Socket::join`](super::Socket::join).
    pub fn join(&mut self, group: MacAddr) -> Result<()> {
        match &mut self.0 {
            Kind::Packet(link) => link.join(group),
            Kind::Xdp(link) => link.join(group),
        }
    }

    /// Ends [`join`](AnyLink::join).
    ///
    /// # Errors
    /// As [`Socket::leave`](super::Socket::leave).
    pub fn leave(&mut self, group: MacAddr) -> Result<()> {
        match &mut self.0 {
            Kind::Packet(link) => link.leave(group),
            Kind::Xdp(link) => link.leave(group),
        }
    }
}

impl Link for AnyLink {
    fn capabilities(&self) -> Capabilities {
        self.link().capabilities()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.link().descriptor()
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize> {
        match &mut self.0 {
            Kind::Packet(link) => link.receive(most, each),
            Kind::Xdp(link) => link.receive(most, each),
        }
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize> {
        match &mut self.0 {
            Kind::Packet(link) => link.send(most, next),
            Kind::Xdp(link) => link.send(most, next),
        }
    }

    fn flush(&mut self) -> Result<usize> {
        match &mut self.0 {
            Kind::Packet(link) => link.flush(),
            Kind::Xdp(link) => link.flush(),
        }
    }

    fn forget(&mut self) -> usize {
        match &mut self.0 {
            Kind::Packet(link) => link.forget(),
            Kind::Xdp(link) => link.forget(),
        }
    }

    fn statistics(&mut self) -> Statistics {
        match &mut self.0 {
            Kind::Packet(link) => link.statistics(),
            Kind::Xdp(link) => link.statistics(),
        }
    }
}
