//! Ports for sockets that choose none: from a random one on the first that is free (RFC 6056, 3.3.1).

use super::demux::Binding;
use crate::Stack;
use core::net::SocketAddr;

impl Stack {
    /// The binding with a port that is free; `None`: there is none.
    pub(super) fn free_port(&mut self, binding: &Binding) -> Option<Binding> {
        let (first, last) = (*self.config.ephemeral.start(), *self.config.ephemeral.end());
        let count = u32::from(last.checked_sub(first)?) + 1;
        let start = self.random.below(count);
        let ports = (0..count).map(|n| first + ((start + n) % count) as u16).filter(|port| *port != 0);
        let with = |port| Binding {
            local: SocketAddr::new(binding.local.ip(), port),
            // Who has no wish for a port shares it with nobody.
            reuse_address: false,
            reuse_port: false,
            ..*binding
        };
        let free = ports.map(with).find(|binding| self.demux.is_free(binding))?;
        Some(Binding { reuse_address: binding.reuse_address, reuse_port: binding.reuse_port, ..free })
    }
}
