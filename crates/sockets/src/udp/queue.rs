//! What the kernel's queue of a socket would hold where a mailbox stands in its place: how full it is.

use super::receive::HEAD;
use bypath_shm::dgram::{self, ALIGN, MARK, Octets, Place, Record, WORD, span};
use bypath_shm::region::MailboxMap;
use std::sync::atomic::Ordering::Acquire;

/// Memory that the kernel counts for a datagram of `len` octets on the loopback (measured, Linux 6.18: a small head, or the power of two
/// that holds datagram and skb_shared_info; beyond that pages).
pub fn true_size(len: usize, is_v4: bool) -> u64 {
    match if is_v4 { len } else { len + 13 } {
        0..=197 => 832,
        198..=645 => 1280,
        646..=1669 => 2304,
        1670..=3717 => 4352,
        3718..=7813 => 8448,
        7814..=16_005 => 16_640,
        more => more as u64 + 832,
    }
}

/// That of all datagrams that a ring of so many octets can hold, at most: of empty ones.
pub fn most_in(size: u64) -> u64 {
    size / span(HEAD, 0) * true_size(0, true)
}

/// What honest senders leave in a ring at most, counted like that, where the kernel's queue would hold `room`: whoever writes more lies.
///
/// Of a length that counts c for s octets of the ring records fit as long as they end within room * s / c octets behind the head. So one that ends u octets behind it
/// counts room * s / u at most, and never more than 26 s (832 for 32 octets, of an empty one). Ever longer ones come nearest to that, where u ends at 0.988 room (c / s of
/// the longest is 1.012): these sum up to room * (1 + ln(26 / 1.012)) = 4.246 room. Before them there may be one of any length, for which an empty ring always has room.
pub fn most_left(room: u64) -> u64 {
    room * 17 / 4 + true_size(dgram::LONGEST, true)
}

/// Memory that the kernel would count for what is in the ring; `None`: that changes too fast to tell, or makes no sense.
#[cold]
pub fn of(map: &MailboxMap, is_v4: bool) -> Option<u64> {
    let (mailbox, ring) = (map.mailbox(), map.ring());
    let mut at = mailbox.head.0.load(Acquire);
    let end = mailbox.tail.0.load(Acquire);
    let mut sum = 0;
    // More than there can be: each takes 832 at least, of a buffer that is shorter than 2^32.
    for _ in 0..1 << 15 {
        if at == end {
            return Some(sum);
        }
        let mut word = [0; WORD as usize];
        ring.get(at, &mut word);
        let record = Record::decode(word);
        let (head, octets) = (usize::from(record.head), record.octets as usize);
        if record.mark != MARK || octets > dgram::LONGEST || end.wrapping_sub(at) > ring.size() {
            return None;
        }
        sum += true_size(octets, is_v4);
        at = at.wrapping_add(span(head, octets));
    }
    None
}

/// The first datagram in the ring whose head begins like that. It stays there, and is read by nobody meanwhile.
#[cold]
pub fn first_of<const N: usize>(map: &MailboxMap, source: [u8; N]) -> Option<Place> {
    let (mailbox, ring) = (map.mailbox(), map.ring());
    let mut at = mailbox.head.0.load(Acquire);
    let end = mailbox.tail.0.load(Acquire);
    let mut head = [0; N];
    // As many as there is room for, if somebody lies.
    for _ in 0..ring.size() / ALIGN {
        // At the end, where there is none.
        let place = Place::find(&ring, at, end.wrapping_sub(at)).ok()?;
        if place.copy_head(&ring, &mut head) == N && head == source {
            return Some(place);
        }
        at = place.end();
    }
    None
}

/// Whether all datagrams in the ring are such. They stay there.
#[cold]
pub fn all(map: &MailboxMap, mut is_such: impl FnMut(&Place) -> bool) -> bool {
    let (mailbox, ring) = (map.mailbox(), map.ring());
    let mut at = mailbox.head.0.load(Acquire);
    let end = mailbox.tail.0.load(Acquire);
    for _ in 0..ring.size() / ALIGN {
        if at == end {
            return true;
        }
        match Place::find(&ring, at, end.wrapping_sub(at)) {
            Ok(place) if is_such(&place) => at = place.end(),
            _ => return false,
        }
    }
    at == end
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_shm::mailbox::{Pushed, Reader, Writer};
    use bypath_sys::sock;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn ever_longer_datagrams_are_no_lie() {
        let (memory, room) = (MailboxMap::memory(1 << 18, 3).unwrap(), 212_992);
        let map = MailboxMap::map(memory).unwrap();
        let reader = Reader::new(map.mailbox(), map.ring());
        let epoch = reader.open_begin().unwrap();
        assert!(reader.open_finish(epoch));
        let (writer, left) = (Writer::new(map.mailbox(), map.ring(), 1), AtomicU64::new(0));
        let octets = vec![0; dgram::LONGEST];
        for len in 0..=65_507 {
            let limit = room / true_size(len, true) * span(HEAD, len);
            while writer.push(&left, &[0; HEAD], &octets[..len], limit) == Pushed::Sent {}
        }
        let left = of(&map, true).unwrap();
        assert!(left > 4 * room && left < room * 17 / 4, "{left}");
        assert!(left <= most_left(room));
        bypath_sys::fd::close(memory);
    }

    #[test]
    fn each_sender_finds_its_own_first_and_leaves_the_others() {
        let memory = MailboxMap::memory(8192, 3).unwrap();
        let map = MailboxMap::map(memory).unwrap();
        let (reader, left) = (Reader::new(map.mailbox(), map.ring()), AtomicU64::new(0));
        let epoch = reader.open_begin().unwrap();
        assert!(reader.open_finish(epoch));
        let writer = Writer::new(map.mailbox(), map.ring(), 1);
        for (source, octets) in [("one, a", "1"), ("two, b", "22"), ("one, c", "333"), ("two, d", "4444")] {
            assert_eq!(writer.push(&left, source.as_bytes(), octets.as_bytes(), 8192), Pushed::Sent);
        }
        let before = map.mailbox().unread();
        let len = |place: Option<Place>| place.map(|place| place.len());
        let found = [*b"two", *b"one", *b"two", *b"she"].map(|source| len(first_of(&map, source)));
        assert_eq!(found, [Some(2), Some(1), Some(2), None]);
        assert_eq!(len(first_of(&map, *b"one, along")), None);
        assert_eq!(map.mailbox().unread(), before);
        bypath_sys::fd::close(memory);
        map.let_go();
    }

    #[test]
    fn memory_of_a_datagram_is_what_the_kernel_counts() {
        use std::net::UdpSocket;
        use std::os::fd::AsRawFd;
        for (bind, is_v4) in [("127.0.0.1:0", true), ("[::1]:0", false)] {
            for len in [0, 64, 184, 300, 1400, 3000, 7000, 9000, 16_000, 32_000, 65_507] {
                let receiver = UdpSocket::bind(bind).unwrap();
                let to = receiver.local_addr().unwrap();
                let size =
                    sock::option(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap() as u64;
                let sender = UdpSocket::bind(bind).unwrap();
                for _ in 0..2 * size / 832 {
                    sender.send_to(&vec![0; len], to).unwrap();
                }
                receiver.set_nonblocking(true).unwrap();
                let mut room = vec![0; 65_536];
                let mut got = 0;
                while receiver.recv(&mut room).is_ok() {
                    got += 1;
                }
                assert_eq!(got, size / true_size(len, is_v4), "{len} octets, {bind}");
            }
        }
    }
}
