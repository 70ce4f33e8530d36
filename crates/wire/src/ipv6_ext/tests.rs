use super::*;
use std::vec::Vec;

fn walk(
    next: IpProtocol,
    bytes: &[u8],
) -> (Vec<ExtensionHeader<'_>>, Option<ParseError>, (IpProtocol, usize)) {
    let mut walk = ExtensionWalk::new(next, bytes);
    let (mut headers, mut error) = (Vec::new(), None);
    for item in &mut walk {
        match item {
            Ok(header) => headers.push(header),
            Err(e) => error = Some(e),
        }
    }
    let (next, at, rest) = walk.rest();
    assert_eq!(rest.len(), bytes.len() - at);
    (headers, error, (next, at))
}

#[test]
fn a_chain_is_walked_to_the_payload() {
    let mut bytes = Vec::new();
    let mut buffer = [0xee; 64];
    let alert = [5, 2, 0, 0];
    let len = emit_options(&mut buffer, IpProtocol::ROUTING, &alert).unwrap();
    assert_eq!(buffer[..len], [43, 0, 5, 2, 0, 0, 1, 0]);
    bytes.extend(&buffer[..len]);
    let len = emit_routing(&mut buffer, IpProtocol::FRAGMENT, 4, 1, &[9; 20]).unwrap();
    bytes.extend(&buffer[..len]);
    let fragment = FragmentHeader { offset: 0, more: true, identification: 0xdead_beef };
    let len = fragment.emit(&mut buffer, IpProtocol::DESTINATION_OPTIONS).unwrap();
    assert_eq!(buffer[..len], [60, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef]);
    bytes.extend(&buffer[..len]);
    let len = emit_options(&mut buffer, IpProtocol::UDP, &[]).unwrap();
    assert_eq!(buffer[..len], [17, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend(&buffer[..len]);
    bytes.extend(b"udp");

    let (headers, error, rest) = walk(IpProtocol::HOP_BY_HOP, &bytes);
    assert_eq!((error, rest), (None, (IpProtocol::UDP, 48)));
    let places: Vec<_> = headers.iter().map(|h| (h.at, h.len, h.next_header)).collect();
    assert_eq!(
        places,
        [
            (0, 8, IpProtocol::ROUTING),
            (8, 24, IpProtocol::FRAGMENT),
            (32, 8, IpProtocol::DESTINATION_OPTIONS),
            (40, 8, IpProtocol::UDP)
        ]
    );
    let Extension::HopByHop(options) = headers[0].extension else { panic!("{headers:?}") };
    let options: Vec<_> = options.iter().map(|o| o.map(|o| (o.kind, o.at))).collect();
    assert_eq!(options, [Ok((Ipv6OptionKind::RouterAlert(0), 2)), Ok((Ipv6OptionKind::PadN(0), 6))]);
    assert_eq!(headers[1].extension, Extension::Routing { kind: 4, segments_left: 1, data: &[9; 20] });
    assert_eq!(headers[2].extension, Extension::Fragment(fragment));
}

#[test]
fn a_later_fragment_is_not_walked_into() {
    let mut bytes = [0; 24];
    let fragment = FragmentHeader { offset: 1232, more: false, identification: 1 };
    fragment.emit(&mut bytes, IpProtocol::DESTINATION_OPTIONS).unwrap();
    bytes[8] = 0;
    let (headers, error, rest) = walk(IpProtocol::FRAGMENT, &bytes);
    assert_eq!((headers.len(), error, rest), (1, None, (IpProtocol::DESTINATION_OPTIONS, 8)));
    assert!(!fragment.is_atomic());
    assert!(FragmentHeader { offset: 0, more: false, identification: 1 }.is_atomic());
}

#[test]
fn a_chain_without_end_is_left() {
    // Each header is followed by one more of its kind.
    let bytes = [60, 0, 1, 4, 0, 0, 0, 0].repeat(100);
    let (headers, error, _) = walk(IpProtocol::DESTINATION_OPTIONS, &bytes);
    assert_eq!((headers.len(), error), (MOST_HEADERS, Some(ParseError::TooManyExtensions)));
    let enough =
        [&[60, 0, 1, 4, 0, 0, 0, 0].repeat(MOST_HEADERS - 1)[..], &[6, 0, 1, 4, 0, 0, 0, 0]].concat();
    let (headers, error, rest) = walk(IpProtocol::DESTINATION_OPTIONS, &enough);
    assert_eq!((headers.len(), error, rest), (MOST_HEADERS, None, (IpProtocol::TCP, 64)));
}

#[test]
fn hop_by_hop_options_stand_first_or_nowhere() {
    let bytes = [&[0, 0, 1, 4, 0, 0, 0, 0][..], &[6, 0, 1, 4, 0, 0, 0, 0]].concat();
    let (headers, error, rest) = walk(IpProtocol::DESTINATION_OPTIONS, &bytes);
    assert_eq!((headers.len(), error), (1, Some(ParseError::ExtensionOrder { at: 8 })));
    assert_eq!(rest, (IpProtocol::HOP_BY_HOP, 8));
}

#[test]
fn a_cut_header_is_told() {
    let truncated = |need, have| Some(ParseError::Truncated { part: Part::Extension, need, have });
    for next in
        [IpProtocol::HOP_BY_HOP, IpProtocol::ROUTING, IpProtocol::FRAGMENT, IpProtocol::AUTHENTICATION]
    {
        assert_eq!(walk(next, &[6, 0, 0]).1, truncated(8, 3), "{next}");
    }
    assert_eq!(walk(IpProtocol::HOP_BY_HOP, &[6, 1, 1, 12, 0, 0, 0, 0]).1, truncated(16, 8));
    assert_eq!(walk(IpProtocol::AUTHENTICATION, &[6, 4, 0, 0, 0, 0, 0, 0]).1, truncated(24, 8));
    assert_eq!(walk(IpProtocol::AUTHENTICATION, &[6, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).0[0].len, 12);
}

#[test]
fn every_unknown_option_says_what_to_do() {
    let bytes = [0x1e, 1, 7, 0x5e, 0, 0x9e, 0, 0xde, 0, 0, 0xc2, 4, 0, 1, 0, 0];
    let options: Vec<_> = Ipv6Options(&bytes).iter().map(|o| o.map(|o| (o.at, o.action()))).collect();
    assert_eq!(
        options,
        [
            Ok((2, UnknownAction::Skip)),
            Ok((5, UnknownAction::Discard)),
            Ok((7, UnknownAction::DiscardAndTell)),
            Ok((9, UnknownAction::DiscardAndTellUnlessGroup)),
            Ok((11, UnknownAction::Skip)),
            Ok((12, UnknownAction::DiscardAndTellUnlessGroup)),
        ]
    );
    let cut: Vec<_> = Ipv6Options(&[0, 0x1e, 2, 7]).iter().collect();
    assert_eq!(cut[1], Err(ParseError::Option { part: Part::Extension, kind: 0x1e, at: 1 }));
    assert_eq!(cut.len(), 2);
    assert!(Ipv6Options(&[0x1e]).iter().all(|o| o.is_err()));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut buffer = [0; 4096];
    assert_eq!(emit_options(&mut buffer, IpProtocol::TCP, &[0; 2046]), Ok(2048));
    assert!(matches!(
        emit_options(&mut buffer, IpProtocol::TCP, &[0; 2047]),
        Err(EmitError::TooLong { found: 2056, most: 2048, .. })
    ));
    assert!(matches!(
        emit_options(&mut buffer[..7], IpProtocol::TCP, &[]),
        Err(EmitError::Room { need: 8, have: 7, .. })
    ));
    assert!(matches!(
        emit_routing(&mut buffer, IpProtocol::TCP, 4, 0, &[0; 5]),
        Err(EmitError::Field { field: "routing data length", .. })
    ));
    let odd = FragmentHeader { offset: 3, more: false, identification: 0 };
    assert!(matches!(odd.emit(&mut buffer, IpProtocol::TCP), Err(EmitError::Field { .. })));
}
