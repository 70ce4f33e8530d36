use super::*;
use std::vec::Vec;

const A: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 199);

fn packet(header: &Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut packet = std::vec![0xee; header.len() + payload.len()];
    let len = header.emit(&mut packet, payload.len()).unwrap();
    packet[len..].copy_from_slice(payload);
    packet
}

/// A header whose checksum field is right whatever its other fields say.
fn summed(mut packet: Vec<u8>) -> Vec<u8> {
    let len = (packet[0] & 15) as usize * 4;
    packet[10..12].fill(0);
    let check = checksum(&packet[..len]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet
}

#[test]
fn a_header_is_written_as_rfc_791_draws_it() {
    let header = Ipv4Header {
        class: TrafficClass(0),
        identification: 0,
        dont_fragment: true,
        ..Ipv4Header::new(A, B, IpProtocol::UDP)
    };
    // The example that explains the checksum in many textbooks: b861.
    let bytes = packet(&header, &[0; 95]);
    let expected =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0, 199];
    assert_eq!(bytes[..20], expected);
    assert_eq!(Ipv4Header::parse(&bytes), Ok((header, &[0; 95][..])));
}

#[test]
fn padding_of_the_link_is_not_payload() {
    let header = Ipv4Header::new(A, B, IpProtocol::TCP);
    let mut bytes = packet(&header, b"abc");
    bytes.resize(46, 0);
    assert_eq!(Ipv4Header::parse(&bytes), Ok((header, &b"abc"[..])));
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let good = packet(&Ipv4Header::new(A, B, IpProtocol::TCP), b"abc");
    let with = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        Ipv4Header::parse(&summed(bad)).map(|_| ()).unwrap_err()
    };
    let length = |found, least| ParseError::Length { part: Part::Ipv4, found, least };
    let truncated = |need, have| ParseError::Truncated { part: Part::Ipv4, need, have };
    assert_eq!(with(0, 0x44), length(16, 20));
    assert_eq!(with(3, 19), length(19, 20));
    assert_eq!(with(3, 24), truncated(24, 23));
    assert_eq!(with(0, 0x65), ParseError::Version { part: Part::Ipv4, found: 6 });
    let mut long = good.clone();
    (long[0], long[3]) = (0x4f, 60);
    assert_eq!(Ipv4Header::parse(&long).unwrap_err(), truncated(60, 23));
    for len in 0..20 {
        assert_eq!(Ipv4Header::parse(&good[..len]).unwrap_err(), truncated(20, len));
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_found() {
    let good = packet(&Ipv4Header::new(A, B, IpProtocol::TCP), &[7; 40]);
    for bit in 0..160 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Ipv4Header::parse(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_quoted_packet_has_a_header_without_its_end() {
    let header = Ipv4Header::new(A, B, IpProtocol::UDP);
    let bytes = packet(&header, &[1; 100]);
    let extent = Ipv4Extent { header_len: 20, total_len: 120, checksum_fits: true };
    assert_eq!(Ipv4Header::parse_header(&bytes[..28]), Ok((header, extent)));
}

#[test]
fn fragments_keep_flags_and_offsets_apart() {
    let header = Ipv4Header {
        dont_fragment: false,
        more_fragments: true,
        fragment_offset: 65528,
        ..Ipv4Header::new(A, B, IpProtocol::UDP)
    };
    let bytes = packet(&header, &[]);
    assert_eq!(bytes[6..8], [0x3f, 0xff]);
    assert_eq!(Ipv4Header::parse(&bytes).unwrap().0, header);
    assert!(header.is_fragment() && !Ipv4Header::new(A, B, IpProtocol::UDP).is_fragment());
    let odd = Ipv4Header { fragment_offset: 4, ..header };
    assert!(matches!(odd.emit(&mut [0; 64], 0), Err(EmitError::Field { field: "fragment offset", .. })));
}

#[test]
fn options_are_kept_and_padded() {
    let mut header = Ipv4Header::new(A, B, IpProtocol::IGMP);
    assert!(header.options.push(&Ipv4Option::RouterAlert(0)));
    assert!(header.options.push(&Ipv4Option::Other { kind: 7, data: &[4, 0, 0, 0, 0] }));
    let bytes = packet(&header, b"x");
    assert_eq!(bytes[20..32], [148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0]);
    let (read, payload) = Ipv4Header::parse(&bytes).unwrap();
    assert_eq!((read, payload), (header, &b"x"[..]));
    assert_eq!(
        read.options.iter().collect::<Vec<_>>(),
        [Ok(Ipv4Option::RouterAlert(0)), Ok(Ipv4Option::Other { kind: 7, data: &[4, 0, 0, 0, 0] })]
    );
    assert!(!header.options.push(&Ipv4Option::Other { kind: 9, data: &[0; 40] }));
    assert_eq!(header.options.as_bytes().len(), 11);
}

#[test]
fn an_option_that_leads_beyond_its_header_ends_the_list() {
    for (bytes, at) in [(&[1, 7, 1, 0][..], 1), (&[7, 5, 0, 0], 0), (&[1, 1, 1, 7], 3), (&[7, 0, 0, 0], 0)] {
        let options = Ipv4Options::from_bytes(bytes).unwrap();
        let last = options.iter().last();
        assert_eq!(last, Some(Err(ParseError::Option { part: Part::Ipv4, kind: 7, at })));
    }
    let ended = Ipv4Options::from_bytes(&[0, 7, 1, 0]).unwrap();
    assert_eq!(ended.iter().count(), 0);
    assert_eq!(Ipv4Options::from_bytes(&[1; 41]), None);
}

#[test]
fn a_longer_packet_than_the_field_can_say_is_refused() {
    let header = Ipv4Header::new(A, B, IpProtocol::UDP);
    assert_eq!(header.emit(&mut [0; 20], 65515), Ok(20));
    let too_long = EmitError::TooLong { part: Part::Ipv4, found: 65516, most: 65515 };
    assert_eq!(header.emit(&mut [0; 20], 65516), Err(too_long));
    let room = EmitError::Room { part: Part::Ipv4, need: 20, have: 19 };
    assert_eq!(header.emit(&mut [0; 19], 0), Err(room));
}

#[test]
fn changes_in_place_mend_the_checksum() {
    let mut bytes = packet(&Ipv4Header { ttl: 2, ..Ipv4Header::new(A, B, IpProtocol::TCP) }, &[0; 40]);
    assert_eq!(decrement_ttl(&mut bytes), Some(1));
    assert_eq!(Ipv4Header::parse(&bytes).unwrap().0.ttl, 1);
    assert_eq!(decrement_ttl(&mut bytes), Some(0));
    assert_eq!(decrement_ttl(&mut bytes), None);
    assert!(set_total_len(&mut bytes, 30));
    assert_eq!(Ipv4Header::parse(&bytes).unwrap().1.len(), 10);
    assert!(!set_total_len(&mut bytes[..19], 30));
}
