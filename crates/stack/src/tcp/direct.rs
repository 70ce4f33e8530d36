//! Octets that go to the application as they come, without a stay in the buffer of their connection.

use crate::socket::SocketId;

/// Applications that take octets straight out of frames. Only the next octets of a connection are offered, of which nothing waits to be
/// read and nothing came out of order: what was taken has been read, and the window does not shrink by it.
pub trait Direct {
    /// Octets that the application of this socket takes at once now; 0: it reads what comes later.
    fn room(&mut self, socket: SocketId) -> usize;

    /// Takes the next octets, all of them: as many as there was [room](Direct::room) for, or fewer.
    fn take(&mut self, socket: SocketId, octets: &[u8]);
}

/// Applications that read.
#[derive(Clone, Copy, Debug)]
pub struct Readers;

impl Direct for Readers {
    fn room(&mut self, _: SocketId) -> usize {
        0
    }

    fn take(&mut self, _: SocketId, _: &[u8]) {}
}
