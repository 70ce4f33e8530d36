//! Long packets cut into segments, as the kernel does it for a device that does not.

use bypath_wire::checksum;
use bypath_wire::meta::Gso;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// The segments of a packet of TCP. As with whole ones that a link is to cut, their checksums of TCP are the link's to compute.
pub fn cut(packet: &[u8], gso: &Gso) -> Vec<Vec<u8>> {
    let (headers, payload) = packet.split_at(usize::from(gso.header_len).min(packet.len()));
    let last = payload.chunks(usize::from(gso.size).max(1)).len().saturating_sub(1);
    let segments = payload.chunks(usize::from(gso.size).max(1)).enumerate();
    segments.map(|(n, octets)| segment(headers, octets, n, usize::from(gso.size), n == last)).collect()
}

fn segment(headers: &[u8], octets: &[u8], n: usize, size: usize, is_last: bool) -> Vec<u8> {
    let mut packet = [headers, octets].concat();
    let len = packet.len();
    let ip = match packet[0] >> 4 {
        4 => {
            let ip = usize::from(packet[0] & 0xf) * 4;
            let identification = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(n as u16);
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[4..6].copy_from_slice(&identification.to_be_bytes());
            packet[10..12].fill(0);
            let sum = checksum::checksum(&packet[..ip]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            ip
        }
        _ => {
            packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
            40
        }
    };
    let tcp = &mut packet[ip..];
    let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add((n * size) as u32);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    if !is_last {
        tcp[13] &= !(FIN | PSH);
    }
    if n > 0 {
        tcp[13] &= !CWR;
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_wire::meta::GsoKind;

    #[test]
    fn the_last_segment_ends_and_the_first_one_tells() {
        for (ip, kind) in [(20, GsoKind::Tcp4), (40, GsoKind::Tcp6)] {
            let mut packet = vec![0; ip + 20];
            packet[0] = if ip == 20 { 0x45 } else { 0x60 };
            packet[4..6].copy_from_slice(&[0xff; 2]);
            packet[ip + 4..ip + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
            packet[ip + 13] = 0x10 | FIN | PSH | CWR;
            packet.extend(0..250u8);
            let gso = Gso { kind, size: 100, header_len: (ip + 20) as u16, ecn: true };
            let segments = cut(&packet, &gso);
            let expected = [(0xffff_fffe, 0x10 | CWR, 100), (98, 0x10, 100), (198, 0x10 | FIN | PSH, 50)];
            assert_eq!(segments.len(), expected.len());
            for (n, (segment, (seq, flags, len))) in segments.iter().zip(expected).enumerate() {
                let tcp = &segment[ip..];
                let found = u32::from_be_bytes(tcp[4..8].try_into().expect("four octets"));
                assert_eq!((found, tcp[13], tcp.len()), (seq, flags, 20 + len), "{n}");
                assert_eq!(tcp[20..], packet[ip + 20 + n * 100..][..len]);
                let told = |at: usize| usize::from(u16::from_be_bytes([segment[at], segment[at + 1]]));
                if ip == 20 {
                    assert_eq!((told(2), told(4)), (segment.len(), (0xffff + n) % 0x1_0000));
                    assert!(checksum::is_valid(&segment[..ip]));
                } else {
                    assert_eq!(told(4), segment.len() - 40);
                }
            }
        }
    }
}
