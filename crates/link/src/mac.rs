//! Hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A hardware address (IEEE 802), in the order in which it is sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// To everybody.
    pub const BROADCAST: Mac = Mac([0xff; 6]);
    /// No address; that of the loopback interface.
    pub const ZERO: Mac = Mac([0; 6]);

    /// Whether it is a group's, or the broadcast address.
    pub const fn is_group(&self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for Mac {
    fn from(octets: [u8; 6]) -> Mac {
        Mac(octets)
    }
}

/// A text that is no hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no hardware address; one looks like 02:00:5e:10:00:01")]
pub struct MacSyntax(String);

impl FromStr for Mac {
    type Err = MacSyntax;

    /// Six pairs of hexadecimal digits with `:` or `-` between them.
    fn from_str(text: &str) -> Result<Mac, MacSyntax> {
        let wrong = || MacSyntax(text.to_owned());
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut octets = [0; 6];
        let mut parts = text.split(separator);
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *octet = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Mac(octets)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let mac = Mac([2, 0, 0x5e, 0x10, 0xff, 1]);
        assert_eq!(mac.to_string(), "02:00:5e:10:ff:01");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("02-00-5E-10-FF-01".parse(), Ok(mac));
        for wrong in [
            "",
            "02:00:5e:10:ff",
            "02:00:5e:10:ff:01:02",
            "2:0:5e:10:ff:1",
            "02:00-5e:10:ff:01",
            "+2:00:5e:10:ff:01",
        ] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
