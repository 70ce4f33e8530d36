//! Neighbours of connections.

use super::*;

#[test]
fn who_acknowledges_need_not_be_asked_whether_he_is_there() {
    for (remote, own, counter) in
        [("10.0.0.2:80", "10.0.0.1", "arp_sent"), ("[fd00::2]:80", "fd00::1", "icmp_sent")]
    {
        let mut world = World::new(2, 1);
        let (mac, iface) = (world.hosts[0].mac, world.hosts[1].iface);
        // The other side only ever hears, and would have to ask.
        assert!(world.hosts[1].stack.set_neighbor(iface, own.parse().unwrap(), mac));
        let (client, accepted) = pair(&mut world, remote);
        let before = world.count(0, counter);
        for n in 0..100 {
            assert_eq!(tcp(&mut world, 0, client).write(b"x"), Ok(1));
            world.millis(2000);
            assert_eq!(read(&mut world, 1, accepted).0, b"x", "{n}");
        }
        assert_eq!(world.count(0, counter) - before, 0, "{counter}");
        // Who says nothing for long is asked.
        world.secs(60);
        assert_eq!(tcp(&mut world, 0, client).write(b"x"), Ok(1));
        world.secs(10);
        assert!(world.count(0, counter) - before <= 1);
    }
}
