//! The head of a mailbox's record as whoever looks on from outside reads it.

use super::address::Name;
use super::receive::{HEAD, HEAD_LONG};
use super::told::{Told, want};
use std::net::{IpAddr, SocketAddr};

/// What a head tells of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who sent it.
    pub source: SocketAddr,
    /// The address that it was sent to, where the receiver has none of its own.
    pub to: Option<IpAddr>,
    /// When that was, as its sender says (ns since 1970), where the receiver wants to be told.
    pub sent: Option<u64>,
}

/// Reads a head; `None`: it is none.
pub fn head(raw: &[u8]) -> Option<Seen> {
    let mut head = [0; HEAD_LONG];
    if !matches!(raw.len(), HEAD | HEAD_LONG) {
        return None;
    }
    head[..raw.len()].copy_from_slice(raw);
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[..16]);
    let source = Name::new(octets, u16::from_ne_bytes([head[16], head[17]]));
    let told = (raw.len() == HEAD_LONG).then(|| Told::decode(&head));
    let to = told
        .filter(|told| told.wants & want::ADDRESS != 0)
        .map(|told| Name { ip: told.to, port: 0 }.address());
    let sent = told.filter(|told| told.wants & want::STAMP != 0).map(|told| told.stamp);
    Some(Seen { source: SocketAddr::new(source.address(), source.port), to, sent })
}

#[cfg(test)]
mod tests {
    use super::super::receive::head_of;
    use super::*;

    #[test]
    fn a_head_tells_who_sent_it_and_where_to() {
        let name = |text: &str| {
            let ip: IpAddr = text.parse().unwrap();
            let octets = match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            };
            Name::new(octets, 7000)
        };
        let short = head_of(&name("10.0.0.1"));
        let source = "10.0.0.1:7000".parse().unwrap();
        assert_eq!(head(&short), Some(Seen { source, to: None, sent: None }));
        let mut long = [0; HEAD_LONG];
        long[..HEAD].copy_from_slice(&short);
        let to = name("fd00::5");
        Told { wants: want::ADDRESS, to: to.ip, stamp: 9 }.encode(&mut long);
        let to_it = Some("fd00::5".parse().unwrap());
        assert_eq!(head(&long), Some(Seen { source, to: to_it, sent: None }));
        let wants = want::STAMP | want::STAMP_NS;
        Told { wants, to: [0; 2], stamp: 9 }.encode(&mut long);
        assert_eq!(head(&long), Some(Seen { source, to: None, sent: Some(9) }));
        assert_eq!(head(&long[..30]), None);
        assert_eq!(head(&[]), None);
    }
}
