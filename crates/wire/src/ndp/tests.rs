use super::*;
use std::vec::Vec;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);
const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
const PREFIX: PrefixInformation = PrefixInformation {
    len: 64,
    on_link: true,
    autonomous: true,
    valid_s: 86400,
    preferred_s: u32::MAX,
    prefix: Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0),
};
const OPTIONS: [NdpOption; 7] = [
    NdpOption::SourceLinkLayer(MAC),
    NdpOption::TargetLinkLayer(MacAddr::BROADCAST),
    NdpOption::Prefix(PREFIX),
    NdpOption::RedirectedHeader(&[0x60; 48]),
    NdpOption::Mtu(9000),
    NdpOption::DnsServers { lifetime: 600, addresses: &[[0x20; 16], [0x30; 16]] },
    NdpOption::Other { kind: 31, data: &[0; 14] },
];

#[test]
fn messages_are_written_and_read() {
    let messages = [
        NdpMessage::RouterSolicitation,
        NdpMessage::RouterAdvertisement {
            hop_limit: 64,
            managed: false,
            other: true,
            preference: RouterPreference::Low,
            lifetime: 1800,
            reachable_ms: 30000,
            retransmit_ms: 1000,
        },
        NdpMessage::NeighborSolicitation { target: TARGET },
        NdpMessage::NeighborAdvertisement { router: true, solicited: false, replace: true, target: TARGET },
        NdpMessage::Redirect { target: TARGET, destination: Ipv6Addr::LOCALHOST },
    ];
    for message in messages {
        for options in [&[][..], &OPTIONS] {
            let mut bytes = [0xee; 512];
            let len = message.emit(&mut bytes, options).unwrap();
            let (read, found) = NdpMessage::parse(&bytes[..len]).unwrap();
            assert_eq!(read, message);
            assert_eq!(found.iter().collect::<Vec<_>>(), options);
            for cut in 0..message.len() {
                assert!(NdpMessage::parse(&bytes[..cut]).is_err(), "{message:?} cut to {cut}");
            }
        }
    }
}

#[test]
fn a_solicitation_is_written_as_rfc_4861_draws_it() {
    let mut bytes = [0xee; 64];
    let options = [NdpOption::SourceLinkLayer(MAC)];
    let len = NdpMessage::NeighborSolicitation { target: TARGET }.emit(&mut bytes, &options).unwrap();
    assert_eq!(len, 32);
    assert_eq!(bytes[..8], [135, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[8..24], TARGET.octets());
    assert_eq!(bytes[24..32], [1, 1, 2, 0, 0, 0, 0, 0xa]);
    let (_, found) = NdpMessage::parse(&bytes[..32]).unwrap();
    assert_eq!((found.source_link_layer(), found.target_link_layer()), (Some(MAC), None));
}

#[test]
fn an_option_of_no_length_spoils_the_message() {
    let mut bytes = [0; 64];
    let options = [NdpOption::Mtu(1500), NdpOption::SourceLinkLayer(MAC)];
    let len = NdpMessage::RouterSolicitation.emit(&mut bytes, &options).unwrap();
    assert!(NdpMessage::parse(&bytes[..len]).is_ok());
    let wrong = |at| Err(ParseError::Option { part: Part::Ndp, kind: 1, at });
    assert_eq!(NdpMessage::parse(&bytes[..len - 1]), wrong(8));
    assert_eq!(NdpMessage::parse(&bytes[..len - 7]), wrong(8));
    for units in [0, 2] {
        bytes[17] = units;
        assert_eq!(NdpMessage::parse(&bytes[..len]), wrong(8));
    }
}

#[test]
fn known_options_of_other_lengths_are_kept_as_unknown() {
    let mut bytes = [0; 64];
    let odd = [NdpOption::Other { kind: 1, data: &[7; 14] }, NdpOption::Other { kind: 3, data: &[129; 30] }];
    let len = NdpMessage::RouterSolicitation.emit(&mut bytes, &odd).unwrap();
    let (_, found) = NdpMessage::parse(&bytes[..len]).unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), odd);
}

#[test]
fn what_does_not_fit_is_refused() {
    let odd = NdpOption::Other { kind: 9, data: &[0; 7] };
    assert!(matches!(odd.emit(&mut [0; 64]), Err(EmitError::Field { field: "option length", .. })));
    let long = NdpOption::RedirectedHeader(&[0; 2040]);
    assert!(matches!(long.emit(&mut [0; 4096]), Err(EmitError::TooLong { found: 2048, .. })));
    let wide = NdpOption::Prefix(PrefixInformation { len: 129, ..PREFIX });
    assert!(matches!(wide.emit(&mut [0; 64]), Err(EmitError::Field { field: "prefix length", .. })));
    let message = NdpMessage::NeighborSolicitation { target: TARGET };
    assert!(matches!(message.emit(&mut [0; 31], &OPTIONS), Err(EmitError::Room { need: 8, have: 7, .. })));
    assert_eq!(
        NdpMessage::parse(&[128, 0, 0, 0, 0, 0, 0, 0]),
        Err(ParseError::Field { part: Part::Ndp, field: "type", found: 128 })
    );
}
