//! Who gets what is for others: for proxies and tunnels.

use crate::Stack;
use crate::socket::SocketId;
use bypath_wire::IpProtocol;

impl Stack {
    /// The UDP socket that gets what is addressed to any host and port that are not ours, on every interface, and answers from
    /// there: for proxies and tunnels. `None`: such packets are dropped.
    pub fn set_udp_forwarder(&mut self, socket: Option<SocketId>) {
        self.forwarder = socket.filter(|id| self.sockets.get(*id).is_some());
    }

    /// The TCP listener that gets connections to any host and port that are not ours, on every interface: they are answered from
    /// there. `None`: such packets are dropped, but those of connections that are open.
    pub fn set_tcp_forwarder(&mut self, listener: Option<SocketId>) {
        self.tcp.forwarder = listener.filter(|id| self.tcp.index(*id).is_some());
    }

    /// The listener that gets connections to others, if it is open.
    pub fn tcp_forwarder(&self) -> Option<SocketId> {
        self.tcp.forwarder.filter(|id| self.tcp.index(*id).is_some())
    }

    /// Whether somebody takes what is for others.
    #[inline]
    pub(crate) fn forwards(&self, protocol: IpProtocol) -> bool {
        match protocol {
            IpProtocol::UDP => self.forwarder.is_some(),
            IpProtocol::TCP => self.tcp.forwarder.is_some() || self.tcp.foreign > 0,
            _ => false,
        }
    }

    /// The socket that gets what is for others, if it is open.
    pub fn udp_forwarder(&self) -> Option<SocketId> {
        self.forwarder.filter(|id| self.sockets.get(*id).is_some())
    }
}
