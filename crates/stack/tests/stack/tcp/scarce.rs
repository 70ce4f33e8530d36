//! Where there is no memory for octets: each connection gets on all the same.

use super::{exchange, pair};
use crate::world::World;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;

#[test]
fn segments_longer_than_what_every_buffer_may_have_come_in_parts() {
    let mut config = Config::default();
    config.tcp.octets = 20_000;
    for (mtu, remote) in [(9000, "10.0.0.2:80"), (1500, "10.0.0.2:80"), (65_535, "[fd00::2]:80")] {
        let mut world = World::with(2, 1, &config, Offload::default(), mtu);
        world.millis(3000);
        let (client, accepted) = pair(&mut world, remote);
        // What both write fills all memory before anything has come.
        exchange(&mut world, [(0, client), (1, accepted)], 60_000, 2000);
        assert!(world.count(0, "tcp_drop_memory") + world.count(1, "tcp_drop_memory") > 0, "{mtu}");
    }
}
