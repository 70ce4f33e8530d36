//! What a netstack service tells of an interface: a part of the messages of `service`, whose page has them.

use crate::service::{ADDRESS, Address, Body};

/// Octets of an interface.
pub const INTERFACE: usize = 40;
/// Octets of one of its addresses.
pub const HELD: usize = 40;
/// Addresses that one answer has at most; one with fewer is the last.
pub const HELD_AT_ONCE: usize = 12;

/// An interface of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number, which is the scope of link-local addresses.
    pub index: u32,
    /// IFF_ flags.
    pub flags: u32,
    /// In octets.
    pub mtu: u32,
    /// ARPHRD_ number: Ethernet, or none.
    pub kind: u16,
    /// Hardware address; zeroes where there is none.
    pub mac: [u8; 6],
    /// Name, with zeroes behind it: one at least.
    pub name: [u8; 16],
}

impl Interface {
    /// Its octets.
    pub fn encode(&self) -> [u8; INTERFACE] {
        let mut out = [0; INTERFACE];
        out[..4].copy_from_slice(&self.index.to_ne_bytes());
        out[4..8].copy_from_slice(&self.flags.to_ne_bytes());
        out[8..12].copy_from_slice(&self.mtu.to_ne_bytes());
        out[12..14].copy_from_slice(&self.kind.to_ne_bytes());
        out[16..22].copy_from_slice(&self.mac);
        out[24..].copy_from_slice(&self.name);
        out[INTERFACE - 1] = 0;
        out
    }

    /// What the next octets of a body say; `None`: there are too few.
    pub fn decode(body: &mut Body<'_>) -> Option<Interface> {
        let (index, flags, mtu) = (body.u32()?, body.u32()?, body.u32()?);
        let kind = u16::from_ne_bytes(body.take()?);
        let _: [u8; 2] = body.take()?;
        let mac = body.take()?;
        let _: [u8; 2] = body.take()?;
        let mut name: [u8; 16] = body.take()?;
        name[15] = 0;
        Some(Interface { index, flags, mtu, kind, mac, name })
    }

    /// Its name without the zeroes.
    pub fn name(&self) -> &[u8] {
        self.name.split(|octet| *octet == 0).next().unwrap_or_default()
    }
}

/// An address that an interface has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The address; link-local ones with their scope.
    pub address: Address,
    /// Length of its network's prefix.
    pub prefix: u32,
}

impl Held {
    /// Its octets.
    pub fn encode(&self) -> [u8; HELD] {
        let mut out = [0; HELD];
        out[..ADDRESS].copy_from_slice(&self.address.encode());
        out[ADDRESS..ADDRESS + 4].copy_from_slice(&self.prefix.to_ne_bytes());
        out
    }

    /// What the next octets of a body say; `None`: there are too few.
    pub fn decode(body: &mut Body<'_>) -> Option<Held> {
        let (address, prefix) = (body.address()?, body.u32()?);
        let _: [u8; 4] = body.take()?;
        Some(Held { address, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_and_their_addresses_come_back_and_stand_where_the_page_says() {
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"mine");
        let interface = Interface {
            index: 0x0101_0101,
            flags: 0x0202_0202,
            mtu: 0x0303_0303,
            kind: 0x0404,
            mac: [5; 6],
            name,
        };
        let held = Held { address: Address(Some("[fe80::1%3]:0".parse().unwrap())), prefix: 0x4040_4040 };
        let octets = [&interface.encode()[..], &held.encode()].concat();
        let mut body = Body(&octets);
        assert_eq!((Interface::decode(&mut body), Held::decode(&mut body)), (Some(interface), Some(held)));
        assert_eq!(
            (Interface::decode(&mut body), body.rest().len(), interface.name()),
            (None, 0, &b"mine"[..])
        );
        let text = include_str!("../../../docs/netstack-service.md");
        let place = |name: &str| {
            let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("no row for {name}"));
            let mut cells = row.split('|').skip(2).map(|cell| cell.trim().parse::<usize>());
            let [from, len] = std::array::from_fn(|_| cells.next().unwrap().unwrap());
            octets[from..from + len].to_vec()
        };
        assert_eq!(place("Interface.index"), [1; 4]);
        assert_eq!(place("Interface.flags"), [2; 4]);
        assert_eq!(place("Interface.mtu"), [3; 4]);
        assert_eq!(place("Interface.kind"), [4; 2]);
        assert_eq!(place("Interface.mac"), [5; 6]);
        assert_eq!(place("Interface.name"), name);
        assert_eq!(place("Held.address"), held.address.encode());
        assert_eq!(place("Held.prefix"), [0x40; 4]);
    }
}
