//! Values as they are typed: EtherTypes, times, octets in hexadecimal.

use std::time::Duration;

/// Longest time that is taken.
const LONGEST: f64 = 1e6;

/// An EtherType: `0x88b5`, or a decimal number, from 0x600 on.
///
/// # Errors
/// What is expected.
pub fn ethertype(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let value = match digits {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match value {
        Ok(0x8100 | 0x88a8) => {
            Err("this stands for a VLAN tag; ask for the tag by --vlan, and for the EtherType behind it here"
                .into())
        }
        Ok(value) if value >= 0x600 && !text.contains('+') => Ok(value),
        _ => Err("expected an EtherType from 0x0600 to 0xffff, such as 0x88b5".into()),
    }
}

/// A time: a number with `ns`, `us`, `ms`, `s` or `min` behind it.
///
/// # Errors
/// What is expected.
pub fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with a unit: 250us, 1ms, 1.5s, 2min".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(expected)?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| expected())?;
    let unit = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(expected()),
    };
    let seconds = number * unit;
    if seconds > LONGEST {
        return Err(format!("at most {LONGEST} s"));
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// A time above zero.
///
/// # Errors
/// What is expected.
pub fn period(text: &str) -> Result<Duration, String> {
    match time(text)? {
        Duration::ZERO => Err("expected more than nothing".into()),
        other => Ok(other),
    }
}

/// Octets as pairs of hexadecimal digits; blanks, `:` and `-` between the pairs are left out.
///
/// # Errors
/// What is expected.
pub fn octets(text: &str) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    for part in text.split([' ', ':', '-', '\n', '\t']) {
        let digits = part.as_bytes();
        if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(format!(
                "`{part}`: expected pairs of hexadecimal digits, such as 00ff10 or `00 ff 10`"
            ));
        }
        for pair in digits.chunks(2) {
            let digit = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
            octets.push(digit(pair[0]) << 4 | digit(pair[1]));
        }
    }
    Ok(octets)
}

/// Octets as hexadecimal digits.
pub fn hex(octets: &[u8]) -> String {
    use std::fmt::Write as _;
    octets.iter().fold(String::with_capacity(2 * octets.len()), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// Nanoseconds for people: `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub fn ns(value: u64) -> String {
    let v = value as f64;
    match value {
        0..1_000 => format!("{value} ns"),
        1_000..1_000_000 => format!("{:.1} us", v / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", v / 1e6),
        _ => format!("{:.2} s", v / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethertypes_are_what_can_stand_in_a_frame() {
        assert_eq!((ethertype("0x88B5"), ethertype("2048")), (Ok(0x88b5), Ok(0x800)));
        for wrong in ["", "0x", "0x5ff", "70000", "88b5", "-1", "+34997", "0x8100"] {
            assert!(ethertype(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(time("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("0ms"), Ok(Duration::ZERO));
        for wrong in ["", "1", "ms", "1..2s", "1 s", "-1s", "1h", "1e9min", "99999999min"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert!(period("0s").is_err());
    }

    #[test]
    fn octets_are_read_as_they_are_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(octets(&hex(&all)), Ok(all));
        assert_eq!(octets("de ad:BE-ef"), Ok(vec![0xde, 0xad, 0xbe, 0xef]));
        assert_eq!(octets(""), Ok(vec![]));
        for wrong in ["1", "0x10", "d e", "zz", "é1"] {
            assert!(octets(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nanoseconds_have_a_fitting_unit() {
        let seen: Vec<_> = [999, 1_500, 2_000_000, 3_000_000_000].into_iter().map(ns).collect();
        assert_eq!(seen, ["999 ns", "1.5 us", "2.00 ms", "3.00 s"]);
    }
}
