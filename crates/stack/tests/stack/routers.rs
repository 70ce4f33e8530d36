//! What routers advertise, and what is made of it.

use crate::neighbors::ndp_frame;
use crate::world::World;
use bypath_stack::iface::AddressState;
use bypath_wire::ndp::{NdpOption, PrefixInformation, RouterPreference};
use bypath_wire::{FrameMeta, MacAddr, NdpMessage};
use std::net::{IpAddr, Ipv6Addr};

const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x99]);

fn advertisement(lifetime: u16, preference: RouterPreference) -> NdpMessage {
    NdpMessage::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        preference,
        lifetime,
        reachable_ms: 0,
        retransmit_ms: 0,
    }
}

fn network(prefix: &str, valid_s: u32, preferred_s: u32) -> NdpOption<'static> {
    let prefix = prefix.parse().unwrap();
    NdpOption::Prefix(PrefixInformation {
        len: 64,
        on_link: true,
        autonomous: true,
        valid_s,
        preferred_s,
        prefix,
    })
}

fn advertise(world: &mut World, from: &str, hops: u8, message: &NdpMessage, options: &[NdpOption<'_>]) {
    let all = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    world.hand(0, &ndp_frame(all, from, "ff02::1", hops, message, options), &FrameMeta::default());
}

/// Addresses of the first host within 2001:db8::/32.
fn made(world: &World) -> Vec<(Ipv6Addr, AddressState)> {
    let host = &world.hosts[0];
    let all = host.stack.addresses(host.iface).iter().filter_map(|a| match a.ip() {
        IpAddr::V6(ip) if ip.segments()[0] == 0x2001 => Some((ip, a.state)),
        _ => None,
    });
    all.collect()
}

fn next_hop(world: &World, to: &str) -> Option<String> {
    let path = world.hosts[0].stack.path(to.parse().unwrap(), None, None);
    path.ok().map(|path| path.next_hop.to_string())
}

fn autoconfigured() -> World {
    let mut world = World::new(1, 1);
    let (iface, now) = (world.hosts[0].iface, world.now());
    assert!(world.hosts[0].stack.autoconfigure(now, iface));
    assert!(!world.hosts[0].stack.autoconfigure(now, iface));
    world
}

#[test]
fn routers_are_asked_for_until_one_answers() {
    let asked = |world: &World| world.trace.iter().filter(|(_, f)| f[54] == 133).count();
    let mut world = autoconfigured();
    world.secs(60);
    assert_eq!(asked(&world), 3);
    let mut world = autoconfigured();
    world.secs(2);
    advertise(&mut world, "fe80::99", 255, &advertisement(1800, RouterPreference::Medium), &[]);
    world.secs(60);
    assert_eq!(asked(&world), 1);
}

#[test]
fn addresses_and_routes_follow_from_what_is_advertised_and_end_with_it() {
    let mut world = autoconfigured();
    assert_eq!(next_hop(&world, "2001:db8:9::1"), None);
    let message = advertisement(1800, RouterPreference::Medium);
    let options =
        [NdpOption::SourceLinkLayer(ROUTER), network("2001:db8:1::", 10_000, 5000), NdpOption::Mtu(1400)];
    advertise(&mut world, "fe80::99", 255, &message, &options);
    world.secs(3);
    let [(address, AddressState::Preferred)] = made(&world)[..] else { panic!("{:?}", made(&world)) };
    assert!(address.segments()[..4] == [0x2001, 0xdb8, 1, 0] && address.octets()[8..] != [0; 8]);
    // The same seed makes the same address, in another network another one.
    advertise(&mut world, "fe80::99", 255, &message, &[network("2001:db8:2::", 10_000, 5000)]);
    world.secs(3);
    assert_ne!(made(&world)[1].0.octets()[8..], address.octets()[8..]);
    let mut again = autoconfigured();
    advertise(&mut again, "fe80::99", 255, &message, &options);
    assert_eq!(made(&again)[0].0, address);

    assert_eq!(next_hop(&world, "2001:db8:9::1").as_deref(), Some("fe80::99"));
    assert_eq!(next_hop(&world, "2001:db8:1::5").as_deref(), Some("2001:db8:1::5"));
    let path = world.hosts[0].stack.path("2001:db8:1::5".parse().unwrap(), None, None).unwrap();
    assert_eq!((path.source, path.mtu), (address.into(), 1400));

    // The router goes first, then the addresses are deprecated, then they are gone.
    world.secs(1800);
    assert_eq!(next_hop(&world, "2001:db8:9::1"), None);
    world.secs(3300);
    assert!(made(&world).iter().all(|(_, state)| *state == AddressState::Deprecated));
    world.secs(5000);
    assert_eq!((made(&world), next_hop(&world, "2001:db8:1::5")), (vec![], None));
    // Nothing of it is left behind.
    assert_eq!(world.hosts[0].stack.usage().timers, 0);
}

#[test]
fn nobody_takes_an_address_away_by_a_word() {
    let mut world = autoconfigured();
    let message = advertisement(1800, RouterPreference::Medium);
    advertise(&mut world, "fe80::99", 255, &message, &[network("2001:db8:1::", 100_000, 50_000)]);
    world.secs(3);
    advertise(&mut world, "fe80::98", 255, &message, &[network("2001:db8:1::", 0, 0)]);
    world.secs(7000);
    assert_eq!(made(&world).len(), 1);
    // RFC 4862, 5.5.3 e: in two hours.
    world.secs(300);
    assert_eq!(made(&world).len(), 0);
}

#[test]
fn a_network_that_is_still_on_the_link_stays_so_when_the_address_in_it_ends() {
    let mut world = autoconfigured();
    let message = advertisement(1800, RouterPreference::Medium);
    advertise(&mut world, "fe80::99", 255, &message, &[network("2001:db8:1::", 1000, 500)]);
    let prefix = "2001:db8:1::".parse().unwrap();
    let on_link = PrefixInformation {
        len: 64,
        on_link: true,
        autonomous: false,
        valid_s: 100_000,
        preferred_s: 50_000,
        prefix,
    };
    advertise(
        &mut world,
        "fe80::99",
        255,
        &advertisement(9000, RouterPreference::Medium),
        &[NdpOption::Prefix(on_link)],
    );
    world.secs(1100);
    assert_eq!(made(&world), []);
    assert_eq!(next_hop(&world, "2001:db8:1::5").as_deref(), Some("2001:db8:1::5"));
}

#[test]
fn advertisements_that_cannot_be_are_not_believed_and_there_are_not_too_many() {
    let mut world = autoconfigured();
    let message = advertisement(1800, RouterPreference::Medium);
    for (from, hops) in [("fd00::99", 255), ("fe80::99", 254)] {
        advertise(&mut world, from, hops, &message, &[network("2001:db8:1::", 1000, 500)]);
    }
    assert_eq!((made(&world).len(), world.count(0, "ndp_drop_malformed")), (0, 2));
    let option = |len, prefix: &str, valid_s, preferred_s| {
        let prefix = prefix.parse().unwrap();
        NdpOption::Prefix(PrefixInformation {
            len,
            on_link: true,
            autonomous: true,
            valid_s,
            preferred_s,
            prefix,
        })
    };
    for option in [
        option(64, "2001:db8:1::", 100, 500),
        option(63, "2001:db8:1::", 1000, 500),
        option(64, "fe80::", 1000, 500),
        option(64, "ff02::", 1000, 500),
        option(0, "::", 1000, 500),
    ] {
        advertise(&mut world, "fe80::99", 255, &message, &[option]);
    }
    assert_eq!(made(&world).len(), 0);
    // A flood of networks and routers.
    for n in 0..1000 {
        let from = format!("fe80::{:x}", n + 0x1000);
        let net = format!("2001:db8:{n:x}::");
        advertise(&mut world, &from, 255, &message, &[network(&net, 100_000, 50_000)]);
    }
    assert!(made(&world).len() <= 16 && world.hosts[0].stack.routes().count() < 64);
    // Nothing is left out without a word: 15 routers and 14 networks of them found room, and one network was known.
    assert_eq!(world.count(0, "ndp_drop_full"), 985 + 985);
    world.secs(200_000);
    assert_eq!(made(&world).len(), 0);
    // An interface that was not told to hears nothing.
    let mut world = World::new(1, 1);
    advertise(&mut world, "fe80::99", 255, &message, &[network("2001:db8:1::", 1000, 500)]);
    assert_eq!((made(&world).len(), next_hop(&world, "2001:db8:9::1")), (0, None));
}

#[test]
fn a_preferred_router_goes_first() {
    let mut world = autoconfigured();
    let net = [network("2001:db8:1::", 100_000, 50_000)];
    advertise(&mut world, "fe80::97", 255, &advertisement(1800, RouterPreference::Low), &net);
    assert_eq!(world.hosts[0].stack.routes().filter(|r| r.via.is_some()).count(), 1);
    advertise(&mut world, "fe80::98", 255, &advertisement(1800, RouterPreference::Medium), &[]);
    advertise(&mut world, "fe80::99", 255, &advertisement(900, RouterPreference::High), &[]);
    world.secs(3);
    assert_eq!(next_hop(&world, "2001:db8:9::1").as_deref(), Some("fe80::99"));
    world.secs(900);
    assert_eq!(next_hop(&world, "2001:db8:9::1").as_deref(), Some("fe80::98"));
    // One that says so is none any more.
    advertise(&mut world, "fe80::98", 255, &advertisement(0, RouterPreference::Medium), &[]);
    assert_eq!(next_hop(&world, "2001:db8:9::1").as_deref(), Some("fe80::97"));
}
