//! What strangers must not guess: initial sequence numbers (RFC 6528), the beginnings of timestamps (RFC 7323, 5.4), and the
//! numbers of cookies. Each is a keyed hash (SipHash-2-4) of the two ends, with a key of its own.

use super::ends::Ends;
use crate::random::Random;
use crate::time::Instant;
use bypath_wire::Addresses;
use bypath_wire::seq::SeqNumber;
use core::hash::Hasher as _;
use siphasher::sip::SipHasher24;

/// A key of 128 bits.
type Key = (u64, u64);

/// The keys of a stack.
#[derive(Debug)]
pub(crate) struct Secret {
    numbers: Key,
    timestamps: Key,
    cookies: Key,
}

impl Secret {
    pub fn new(random: &mut Random) -> Secret {
        let mut key = || (random.next_u64(), random.next_u64());
        Secret { numbers: key(), timestamps: key(), cookies: key() }
    }

    /// RFC 6528, 3: `ISN = M + F(localip, localport, remoteip, remoteport, secretkey)`, where M counts 4 microseconds.
    pub fn iss(&self, now: Instant, ends: &Ends) -> SeqNumber {
        let ticks = (now.as_nanos() / 4000) as u32;
        SeqNumber(ticks.wrapping_add(hash(self.numbers, ends, (0, 0)) as u32))
    }

    /// How much timestamps between two hosts are ahead of the clock: the same for all ports, so that each connection's are later
    /// than those of the one before (RFC 6191, 2).
    pub fn ts_offset(&self, addresses: &Addresses) -> u32 {
        hash(self.timestamps, &Ends::new(*addresses, 0, 0, crate::iface::IfaceId::LOOPBACK), (0, 0)) as u32
    }

    /// A part of a cookie for a SYN with this number.
    pub fn cookie(&self, ends: &Ends, count: u32, irs: SeqNumber) -> u32 {
        hash(self.cookies, ends, (count, irs.0)) as u32
    }
}

fn hash((k0, k1): Key, ends: &Ends, more: (u32, u32)) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(k0, k1);
    let ports = u32::from(ends.local_port) << 16 | u32::from(ends.remote_port);
    let mut rest = [0; 12];
    for (octets, word) in rest.as_chunks_mut::<4>().0.iter_mut().zip([ports, more.0, more.1]) {
        *octets = word.to_be_bytes();
    }
    // Each kind has a length of its own, which is part of the hash: none can be taken for the other one.
    match ends.addresses {
        Addresses::V4 { source, destination } => {
            let mut octets = [0; 8 + 12];
            octets[..4].copy_from_slice(&source.octets());
            octets[4..8].copy_from_slice(&destination.octets());
            octets[8..].copy_from_slice(&rest);
            hasher.write(&octets);
        }
        Addresses::V6 { source, destination } => {
            let mut octets = [0; 32 + 12];
            octets[..16].copy_from_slice(&source.octets());
            octets[16..32].copy_from_slice(&destination.octets());
            octets[32..].copy_from_slice(&rest);
            hasher.write(&octets);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iface::IfaceId;

    fn ends(local: &str, remote: &str) -> Ends {
        Ends::between(local.parse().unwrap(), remote.parse().unwrap(), IfaceId::LOOPBACK).unwrap()
    }

    #[test]
    fn initial_numbers_grow_with_the_clock_and_differ_between_connections() {
        let secret = Secret::new(&mut Random::new([1; 32]));
        let other = Secret::new(&mut Random::new([2; 32]));
        let one = ends("10.0.0.1:5", "10.0.0.2:6");
        let at = |micros: u64| Instant::from_nanos(micros * 1000);
        let first = secret.iss(at(0), &one);
        assert_eq!(secret.iss(at(4000), &one).since(first), 1000);
        for differs in
            [ends("10.0.0.1:5", "10.0.0.2:7"), ends("10.0.0.1:6", "10.0.0.2:6"), ends("[::1]:5", "[::2]:6")]
        {
            assert_ne!(secret.iss(at(0), &differs), first);
        }
        assert_ne!(other.iss(at(0), &one), first);
    }

    #[test]
    fn timestamps_between_two_hosts_begin_at_one_place() {
        let secret = Secret::new(&mut Random::new([1; 32]));
        let offset = |local, remote| secret.ts_offset(&ends(local, remote).addresses);
        assert_eq!(offset("10.0.0.1:5", "10.0.0.2:6"), offset("10.0.0.1:7", "10.0.0.2:8"));
        assert_ne!(offset("10.0.0.1:5", "10.0.0.2:6"), offset("10.0.0.1:5", "10.0.0.3:6"));
    }
}
