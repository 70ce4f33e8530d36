use super::message::option;
use super::*;
use proptest::prelude::*;
use smoltcp::wire::{DhcpMessageType, DhcpOpCode, DhcpPacket, EthernetAddress};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 42);

fn seconds(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000_000)
}

fn settings() -> Settings {
    Settings { hardware: MAC, identifier: None, host_name: Some("box".into()), address: None }
}

/// What a client sent, as a server reads it.
#[derive(Clone, Debug)]
struct Sent {
    kind: DhcpMessageType,
    transaction: u32,
    seconds: u16,
    broadcast: bool,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    current: Ipv4Addr,
    options: Vec<(u8, Vec<u8>)>,
}

impl Sent {
    fn option(&self, code: u8) -> Option<&[u8]> {
        self.options.iter().find(|(k, _)| *k == code).map(|(_, d)| &d[..])
    }
}

fn sent(client: &mut Client, now: Instant) -> Option<Sent> {
    let out = client.poll_transmit(now)?;
    assert!(out.payload.len() >= 300, "{out:?}");
    let packet = DhcpPacket::new_checked(out.payload).expect("a message");
    assert_eq!(packet.opcode(), DhcpOpCode::Request);
    assert_eq!(packet.client_hardware_address(), EthernetAddress(MAC));
    let options: Vec<_> = packet.options().map(|o| (o.kind, o.data.to_vec())).collect();
    Some(Sent {
        kind: DhcpMessageType::from(options[0].1[0]),
        transaction: packet.transaction_id(),
        seconds: packet.secs(),
        broadcast: !packet.flags().is_empty(),
        source: out.source,
        destination: out.destination,
        current: packet.client_ip(),
        options,
    })
}

/// A server's message: fixed fields by hand, so that it does not lean on what it tests.
pub(crate) fn reply(transaction: u32, kind: u8, address: Ipv4Addr, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut m = vec![0; 240];
    (m[0], m[1], m[2]) = (2, 1, 6);
    m[4..8].copy_from_slice(&transaction.to_be_bytes());
    m[16..20].copy_from_slice(&address.octets());
    m[28..34].copy_from_slice(&MAC);
    m[236..240].copy_from_slice(&[99, 130, 83, 99]);
    m.extend_from_slice(&[option::KIND, 1, kind]);
    for (code, data) in options {
        m.extend_from_slice(&[*code, data.len() as u8]);
        m.extend_from_slice(data);
    }
    m.push(255);
    m
}

pub(crate) const OFFER: u8 = 2;
pub(crate) const ACK: u8 = 5;
pub(crate) const NAK: u8 = 6;

fn usual(lease: u32) -> Vec<(u8, Vec<u8>)> {
    vec![
        (option::SERVER, SERVER.octets().to_vec()),
        (option::LEASE_TIME, lease.to_be_bytes().to_vec()),
        (option::SUBNET_MASK, vec![255, 255, 255, 0]),
        (option::ROUTER, vec![10, 0, 0, 254]),
        (option::NAME_SERVER, vec![10, 0, 0, 2, 10, 0, 0, 3]),
    ]
}

fn granted(transaction: u32, kind: u8, options: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let options: Vec<_> = options.iter().map(|(k, d)| (*k, &d[..])).collect();
    reply(transaction, kind, ADDRESS, &options)
}

/// A client with a lease of so many seconds, from the tenth second on.
fn bound(options: &[(u8, Vec<u8>)]) -> Client {
    let mut client = Client::new(seconds(10), settings(), 1);
    let discover = sent(&mut client, seconds(10)).expect("a first message");
    client.handle(seconds(10), &granted(discover.transaction, OFFER, options));
    let request = sent(&mut client, seconds(10)).expect("a request");
    client.handle(seconds(12), &granted(request.transaction, ACK, options));
    client
}

#[test]
fn an_address_is_found_in_four_messages() {
    let mut client = Client::new(seconds(10), settings(), 1);
    assert!(sent(&mut client, seconds(9)).is_none());
    assert_eq!(client.poll_timeout(), Some(seconds(10)));
    let discover = sent(&mut client, seconds(10)).expect("a first message");
    assert_eq!(discover.kind, DhcpMessageType::Discover);
    assert!(discover.broadcast);
    assert_eq!((discover.source, discover.destination), (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST));
    assert_eq!(discover.option(option::HOST_NAME), Some(&b"box"[..]));
    assert!(discover.option(option::PARAMETERS).is_some_and(|p| p.contains(&option::ROUTER)));
    assert!(sent(&mut client, seconds(10)).is_none());

    client.handle(seconds(11), &granted(discover.transaction, OFFER, &usual(100)));
    let request = sent(&mut client, seconds(11)).expect("a request");
    assert_eq!((request.kind, request.transaction), (DhcpMessageType::Request, discover.transaction));
    assert_eq!(request.option(option::REQUESTED_ADDRESS), Some(&ADDRESS.octets()[..]));
    assert_eq!(request.option(option::SERVER), Some(&SERVER.octets()[..]));
    assert_eq!((request.current, request.seconds), (Ipv4Addr::UNSPECIFIED, 1));
    assert!(client.lease().is_none());

    client.handle(seconds(12), &granted(request.transaction, ACK, &usual(100)));
    let Some(Event::Bound(lease)) = client.poll_event() else { panic!("no lease") };
    assert_eq!((lease.address, lease.prefix_len, lease.server), (ADDRESS, 24, SERVER));
    let default =
        Route { network: Ipv4Addr::UNSPECIFIED, prefix_len: 0, router: Ipv4Addr::new(10, 0, 0, 254) };
    assert_eq!(lease.routes, [default]);
    assert_eq!(lease.name_servers, [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)]);
    // Counted from when it was asked for.
    let half = Duration::from_millis(500);
    assert_eq!(
        (lease.renews, lease.rebinds, lease.expires),
        (Some(seconds(61)), Some(seconds(98) + half), Some(seconds(111)))
    );
    assert_eq!(client.poll_timeout(), lease.renews);
    assert_eq!(client.poll_event(), None);
}

#[test]
fn who_is_not_answered_asks_more_and_more_seldom() {
    let mut client = Client::new(seconds(0), settings(), 7);
    let (mut now, mut waits, mut transactions) = (seconds(0), Vec::new(), Vec::new());
    for _ in 0..8 {
        let discover = sent(&mut client, now).expect("another message");
        assert_eq!(u64::from(discover.seconds), now.as_nanos() / 1_000_000_000);
        transactions.push(discover.transaction);
        let next = client.poll_timeout().expect("a time");
        assert!(sent(&mut client, Instant::from_nanos(next.as_nanos() - 1)).is_none());
        waits.push(next.since(now).as_millis() as i64);
        now = next;
    }
    for (wait, about) in waits.iter().zip([4000, 8000, 16000, 32000, 64000, 64000, 64000, 64000]) {
        assert!((wait - about).abs() <= 1000, "{waits:?}");
    }
    assert!(waits.iter().any(|w| w % 1000 != 0), "no jitter: {waits:?}");
    assert!(transactions.iter().all(|t| *t == transactions[0]));
}

#[test]
fn an_offer_that_is_not_kept_is_given_up_after_four_requests() {
    let mut client = Client::new(seconds(0), settings(), 3);
    let discover = sent(&mut client, seconds(0)).expect("a first message");
    client.handle(seconds(1), &granted(discover.transaction, OFFER, &usual(100)));
    let mut now = seconds(1);
    for _ in 0..4 {
        assert_eq!(sent(&mut client, now).expect("a request").kind, DhcpMessageType::Request);
        now = client.poll_timeout().expect("a time");
    }
    assert!((56..=64).contains(&now.since(seconds(1)).as_secs()), "{now:?}");
    let again = sent(&mut client, now).expect("from the beginning");
    assert_eq!((again.kind, again.seconds), (DhcpMessageType::Discover, 0));
    assert_ne!(again.transaction, discover.transaction);
}

#[test]
fn a_lease_is_renewed_with_its_server_then_with_any_and_ends() {
    let mut client = bound(&usual(1000));
    let Some(Event::Bound(lease)) = client.poll_event() else { panic!("no lease") };
    let mut now = client.poll_timeout().expect("a time");
    assert_eq!(Some(now), lease.renews);
    let (mut of_server, mut of_any) = (Vec::new(), Vec::new());
    while Some(now) < lease.expires {
        let request = sent(&mut client, now).expect("a request");
        assert_eq!(
            (request.kind, request.current, request.source),
            (DhcpMessageType::Request, ADDRESS, ADDRESS)
        );
        assert!(!request.broadcast);
        assert_eq!((request.option(option::REQUESTED_ADDRESS), request.option(option::SERVER)), (None, None));
        if request.destination == SERVER { &mut of_server } else { &mut of_any }.push(now);
        now = client.poll_timeout().expect("a time");
        assert_eq!(client.poll_event(), None);
    }
    // T1 at 500, T2 at 875: half of what is left each time, a minute at least.
    let after =
        |times: &[Instant]| times.iter().map(|t| t.since(seconds(10)).as_millis()).collect::<Vec<_>>();
    assert_eq!(after(&of_server), [500_000, 687_500, 781_250, 841_250]);
    assert_eq!(after(&of_any), [875_000, 937_500, 997_500]);
    assert_eq!(Some(now), lease.expires);
    let discover = sent(&mut client, now).expect("from the beginning");
    assert_eq!(discover.kind, DhcpMessageType::Discover);
    assert_eq!((client.poll_event(), client.lease()), (Some(Event::Lost), None));
}

#[test]
fn a_renewal_tells_what_changed() {
    let mut client = bound(&usual(1000));
    client.poll_event();
    let request = sent(&mut client, seconds(600)).expect("a request");
    client.handle(seconds(601), &granted(request.transaction, ACK, &usual(2000)));
    let Some(Event::Renewed(lease)) = client.poll_event() else { panic!("not renewed") };
    assert_eq!((lease.renews, lease.expires), (Some(seconds(1600)), Some(seconds(2600))));
    let request = sent(&mut client, seconds(1600)).expect("a request");
    let mut others = usual(2000);
    others[3].1 = vec![10, 0, 0, 253];
    client.handle(seconds(1601), &granted(request.transaction, ACK, &others));
    assert!(matches!(client.poll_event(), Some(Event::Bound(l)) if l.routes[0].router.octets()[3] == 253));
}

#[test]
fn a_server_that_refuses_is_heard() {
    let nak = |t| reply(t, NAK, Ipv4Addr::UNSPECIFIED, &[(option::SERVER, &SERVER.octets())]);
    let mut client = bound(&usual(1000));
    client.poll_event();
    let request = sent(&mut client, seconds(600)).expect("a request");
    client.handle(seconds(601), &nak(request.transaction));
    assert_eq!(client.poll_event(), Some(Event::Lost));
    assert!(sent(&mut client, seconds(601)).is_none());
    assert_eq!(sent(&mut client, seconds(602)).expect("a second later").kind, DhcpMessageType::Discover);

    // The one that was chosen, not another one that answers too.
    let mut client = Client::new(seconds(0), settings(), 3);
    let discover = sent(&mut client, seconds(0)).expect("a first message");
    client.handle(seconds(1), &granted(discover.transaction, OFFER, &usual(100)));
    sent(&mut client, seconds(1)).expect("a request");
    let other = reply(discover.transaction, NAK, Ipv4Addr::UNSPECIFIED, &[(option::SERVER, &[10, 0, 0, 9])]);
    client.handle(seconds(1), &other);
    client.handle(seconds(1), &granted(discover.transaction, ACK, &usual(100)));
    assert!(matches!(client.poll_event(), Some(Event::Bound(_))));
}

#[test]
fn the_address_of_before_is_asked_for_first() {
    let before = Settings { address: Some(ADDRESS), ..settings() };
    let mut client = Client::new(seconds(0), before.clone(), 3);
    let request = sent(&mut client, seconds(0)).expect("a request");
    assert_eq!((request.kind, request.current), (DhcpMessageType::Request, Ipv4Addr::UNSPECIFIED));
    assert_eq!(request.option(option::REQUESTED_ADDRESS), Some(&ADDRESS.octets()[..]));
    assert_eq!(request.option(option::SERVER), None);
    client.handle(seconds(0), &granted(request.transaction, ACK, &usual(100)));
    assert!(matches!(client.poll_event(), Some(Event::Bound(_))));

    let mut client = Client::new(seconds(0), before, 3);
    let request = sent(&mut client, seconds(0)).expect("a request");
    let nak = reply(request.transaction, NAK, Ipv4Addr::UNSPECIFIED, &[(option::SERVER, &SERVER.octets())]);
    client.handle(seconds(0), &nak);
    assert!(sent(&mut client, seconds(0)).is_none());
    assert_eq!(sent(&mut client, seconds(1)).expect("a second later").kind, DhcpMessageType::Discover);
    assert_eq!(client.poll_event(), None);
}

#[test]
fn who_is_refused_again_and_again_asks_more_and_more_seldom() {
    let nak = |t| reply(t, NAK, Ipv4Addr::UNSPECIFIED, &[(option::SERVER, &SERVER.octets())]);
    let mut client = Client::new(seconds(0), settings(), 3);
    let mut now = seconds(0);
    let mut refuse = |client: &mut Client| {
        let discover = sent(client, now).expect("a message");
        assert_eq!(discover.kind, DhcpMessageType::Discover);
        client.handle(now, &granted(discover.transaction, OFFER, &usual(100)));
        let request = sent(client, now).expect("a request");
        // However often it is told so.
        for _ in 0..3 {
            client.handle(now, &nak(request.transaction));
            client.handle(now, &granted(request.transaction, OFFER, &usual(100)));
        }
        let next = client.poll_timeout().expect("a time");
        let wait = next.since(now).as_secs();
        now = next;
        wait
    };
    let waits: Vec<_> = (0..9).map(|_| refuse(&mut client)).collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);

    // Once there was a lease it begins with a second again.
    let discover = sent(&mut client, now).expect("a message");
    client.handle(now, &granted(discover.transaction, OFFER, &usual(100)));
    let request = sent(&mut client, now).expect("a request");
    client.handle(now, &granted(request.transaction, ACK, &usual(100)));
    now = client.poll_timeout().expect("a time");
    let renewal = sent(&mut client, now).expect("a request");
    client.handle(now, &nak(renewal.transaction));
    assert_eq!(client.poll_timeout().map(|next| next.since(now).as_secs()), Some(1));
}

#[test]
fn an_address_in_use_is_declined_and_another_one_asked_for_later() {
    let mut client = bound(&usual(1000));
    client.decline(seconds(20));
    assert_eq!(client.poll_timeout(), Some(Instant::ZERO));
    let decline = sent(&mut client, seconds(20)).expect("a message");
    assert_eq!((decline.kind, decline.destination), (DhcpMessageType::Decline, Ipv4Addr::BROADCAST));
    assert_eq!(decline.option(option::REQUESTED_ADDRESS), Some(&ADDRESS.octets()[..]));
    assert_eq!(decline.option(option::SERVER), Some(&SERVER.octets()[..]));
    assert_eq!((decline.current, decline.option(option::PARAMETERS)), (Ipv4Addr::UNSPECIFIED, None));
    assert_eq!(client.poll_event(), Some(Event::Lost));
    assert!(sent(&mut client, seconds(29)).is_none());
    assert_eq!(sent(&mut client, seconds(30)).expect("again").kind, DhcpMessageType::Discover);
}

#[test]
fn a_lease_is_given_back() {
    let mut client = bound(&usual(1000));
    client.release();
    let release = sent(&mut client, seconds(20)).expect("a message");
    assert_eq!((release.kind, release.current), (DhcpMessageType::Release, ADDRESS));
    assert_eq!((release.source, release.destination), (ADDRESS, SERVER));
    assert_eq!(release.option(option::SERVER), Some(&SERVER.octets()[..]));
    assert_eq!(release.option(option::REQUESTED_ADDRESS), None);
    assert_eq!(client.poll_event(), None);
    assert_eq!((client.poll_timeout(), client.lease()), (None, None));
    assert!(sent(&mut client, seconds(5000)).is_none());
}

#[test]
fn messages_for_others_are_passed_over() {
    let mut client = Client::new(seconds(0), settings(), 3);
    client.handle(seconds(0), &granted(0, OFFER, &usual(100)));
    let discover = sent(&mut client, seconds(0)).expect("a first message");
    let offer = granted(discover.transaction, OFFER, &usual(100));
    let spoilt = |at: usize, to: u8| {
        let mut m = offer.clone();
        m[at] = to;
        m
    };
    let wrong = [
        // A request, other hardware, another cookie, a message of a client, one cut short.
        spoilt(0, 1),
        spoilt(33, 8),
        spoilt(236, 0),
        spoilt(242, 1),
        offer[..239].to_vec(),
        granted(discover.transaction ^ 1, OFFER, &usual(100)),
        granted(discover.transaction, ACK, &usual(100)),
        // No server, no lease, no time at all.
        granted(discover.transaction, OFFER, &usual(100)[1..]),
        granted(discover.transaction, OFFER, &usual(100)[..1]),
        granted(discover.transaction, OFFER, &usual(0)),
    ];
    for message in wrong {
        client.handle(seconds(1), &message);
        assert!(sent(&mut client, seconds(1)).is_none(), "{message:?}");
    }
    // An address that is none, or a mask.
    for address in
        [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255], [10, 0, 0, 0], [10, 0, 0, 255]]
    {
        let options = usual(100);
        let options: Vec<_> = options.iter().map(|(k, d)| (*k, &d[..])).collect();
        client.handle(seconds(1), &reply(discover.transaction, OFFER, address.into(), &options));
        assert!(sent(&mut client, seconds(1)).is_none(), "{address:?}");
    }
    let mut holes = usual(100);
    holes[2].1 = vec![255, 0, 255, 0];
    client.handle(seconds(1), &granted(discover.transaction, OFFER, &holes));
    assert!(sent(&mut client, seconds(1)).is_none());
    client.handle(seconds(1), &offer);
    assert!(sent(&mut client, seconds(1)).is_some());
}

#[test]
fn parameters_are_read_as_their_rfcs_say() {
    let lease_with = |extra: &[(u8, &[u8])]| {
        let mut options = usual(1000);
        options.extend(extra.iter().map(|(k, d)| (*k, d.to_vec())));
        bound(&options).lease().cloned().expect("a lease")
    };
    // RFC 3442's own example of lengths, and routers passed over. Split in two, as RFC 3396 has it.
    let classless = [24, 10, 17, 1, 10, 0, 0, 5, 0, 10, 0, 0, 6, 32, 10, 1, 2, 3, 0, 0, 0, 0];
    let (begin, end) = classless.split_at(9);
    let lease = lease_with(&[
        (option::CLASSLESS_ROUTES, begin),
        (option::MTU, &[5, 120]),
        (option::CLASSLESS_ROUTES, end),
    ]);
    let route = |network: [u8; 4], prefix_len, router: [u8; 4]| Route {
        network: network.into(),
        prefix_len,
        router: router.into(),
    };
    assert_eq!(
        lease.routes,
        [
            route([10, 17, 1, 0], 24, [10, 0, 0, 5]),
            route([0, 0, 0, 0], 0, [10, 0, 0, 6]),
            route([10, 1, 2, 3], 32, [0, 0, 0, 0])
        ]
    );
    assert_eq!(lease.mtu, Some(1400));
    // What makes no sense is as if it were not there.
    for bad in [&[33, 10, 0, 0, 0, 0, 10, 0, 0, 5][..], &[24, 10, 0], &[0, 10, 0, 0]] {
        let routes = lease_with(&[(option::CLASSLESS_ROUTES, bad)]).routes;
        assert_eq!(routes, [route([0, 0, 0, 0], 0, [10, 0, 0, 254])]);
    }
    assert_eq!(lease_with(&[(option::MTU, &[0, 68])]).mtu, None);
    assert_eq!(lease_with(&[(option::DOMAIN_NAME, b"lab.example\0")]).domain.as_deref(), Some("lab.example"));
    assert_eq!(lease_with(&[(option::DOMAIN_NAME, b"a\x1b[2Jb")]).domain, None);

    let for_ever = bound(&usual(u32::MAX));
    assert_eq!((for_ever.poll_timeout(), for_ever.lease().and_then(|l| l.expires)), (None, None));
    let given = lease_with(&[
        (option::RENEWAL_TIME, &100u32.to_be_bytes()),
        (option::REBINDING_TIME, &300u32.to_be_bytes()),
    ]);
    assert_eq!((given.renews, given.rebinds), (Some(seconds(110)), Some(seconds(310))));
    let senseless = lease_with(&[
        (option::RENEWAL_TIME, &5000u32.to_be_bytes()),
        (option::REBINDING_TIME, &1000u32.to_be_bytes()),
    ]);
    assert_eq!((senseless.renews, senseless.rebinds), (Some(seconds(510)), Some(seconds(885))));
}

proptest! {
    /// Whatever comes, at whatever state: it goes on, and the times of a lease are in order.
    #[test]
    fn any_message_is_survived(
        octets in proptest::collection::vec(any::<u8>(), 0..400),
        options in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..12),
        kind in 0u8..9,
        address in any::<u32>(),
        steps in 0usize..4,
    ) {
        let mut client = Client::new(seconds(0), settings(), 5);
        let mut now = seconds(0);
        for _ in 0..=steps {
            let transaction = sent(&mut client, now).map_or(0, |s| s.transaction);
            client.handle(now, &octets);
            let mut all = usual(100);
            all.extend(options.iter().filter(|(k, _)| ![option::KIND, 0, 255].contains(k)).cloned());
            let all: Vec<_> = all.iter().map(|(k, d)| (*k, &d[..])).collect();
            client.handle(now, &reply(transaction, kind, address.into(), &all));
            if let Some(lease) = client.lease() {
                prop_assert!(lease.renews <= lease.rebinds && lease.rebinds <= lease.expires);
                prop_assert!((1..=32).contains(&lease.prefix_len));
            }
            now = client.poll_timeout().unwrap_or(now).max(now);
        }
    }
}
