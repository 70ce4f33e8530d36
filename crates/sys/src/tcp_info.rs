//! What the kernel tells of a TCP connection (struct tcp_info), and whether two such accounts are of its two ends.

use crate::sock::option_bytes;
use crate::{Errno, Result};

/// Octets of struct tcp_info that are looked at; kernels before 4.19 tell less.
pub const SIZE: usize = 216;
/// The SYN and the FIN are counted where octets are acknowledged, the FIN where they are received.
const SIGNS: u64 = 2;

/// What both ends of a connection know of it, each from its own side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Its state: 1 is established.
    state: u8,
    /// Options that the handshake agreed on: time stamps, SACK, window scale (lowest bits of tcpi_options).
    options: u8,
    /// Octets came, or went, with the SYN (TCP Fast Open).
    is_fast_open: bool,
    /// Window scales: that of the other end, and the own one.
    scales: [u8; 2],
    /// Octets given to the kernel for the other end, acknowledged by it, and received from it.
    written: u64,
    acknowledged: u64,
    received: u64,
    /// How long ago octets were sent and received last, in ms.
    since: [u32; 2],
    /// Smoothed round-trip time in ms.
    round_trip: u32,
}

/// TCPI_OPT_SYN_DATA of linux/tcp.h.
const SYN_DATA: u8 = 32;

impl TcpInfo {
    /// `None`: the kernel tells too little.
    pub fn parse(raw: &[u8]) -> Option<TcpInfo> {
        // Offsets in struct tcp_info of linux/tcp.h.
        let half = |at: usize| Some(u32::from_ne_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let word = |at: usize| Some(u64::from_ne_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        let (sent, again, unsent) = (word(200)?, word(208)?, half(144)?);
        Some(TcpInfo {
            state: *raw.first()?,
            options: raw.get(5)? & 7,
            is_fast_open: raw.get(5)? & SYN_DATA != 0,
            scales: [raw.get(6)? & 15, raw.get(6)? >> 4],
            written: sent.wrapping_sub(again).wrapping_add(u64::from(unsent)),
            acknowledged: word(120)?,
            received: word(128)?,
            since: [half(44)?, half(52)?],
            round_trip: half(68)? / 1000,
        })
    }

    /// Of an own socket.
    ///
    /// # Errors
    /// As getsockopt(2); EINVAL where the kernel is too old (before 4.19).
    pub fn of(fd: i32) -> Result<TcpInfo> {
        let mut raw = [0; SIZE];
        let len = option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut raw)?;
        TcpInfo::parse(&raw[..len]).ok_or(Errno::INVAL)
    }

    /// Whether `there`, asked before and after this was, may be the other end of the same connection. Addresses are not enough:
    /// two networks of one host may use the same ones. What both ends have agreed on must agree; no end has more than the other
    /// one gave; and where all has arrived, the last octets came when they were sent.
    pub fn is_mirrored(&self, there: [&TcpInfo; 2]) -> bool {
        // Two ticks of a slow clock, and some time to be late.
        const SLACK: u32 = 50;
        let [before, after] = there;
        let rests = (before.written, before.received) == (after.written, after.received)
            && (self.written, self.received) == (before.received, before.written);
        let slack = SLACK.saturating_add(self.round_trip).saturating_add(before.round_trip);
        let together = |octets: u64, a: u32, b: u32| octets == 0 || a.abs_diff(b) <= slack;
        self.agrees_up_to(0, there)
            && (!rests
                || together(self.written, self.since[0], before.since[1])
                    && together(self.received, self.since[1], before.since[0]))
    }

    /// The same without a look at the time, which always holds of the two ends of a connection, one that is half closed among them.
    pub fn agrees(&self, there: [&TcpInfo; 2]) -> bool {
        self.agrees_up_to(SIGNS, there)
    }

    /// Whether both directions are open with `there`, which [agrees](TcpInfo::agrees), and no octets came with its SYN.
    pub fn is_open_with(&self, there: &TcpInfo) -> bool {
        const ESTABLISHED: u8 = 1;
        self.state == ESTABLISHED && there.state == ESTABLISHED && !there.is_fast_open
    }

    /// Octets that the other end has acknowledged; the own SYN may count one.
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// `ends`: signs that were received beside octets.
    fn agrees_up_to(&self, ends: u64, [before, after]: [&TcpInfo; 2]) -> bool {
        self.options == before.options
            && self.scales == [before.scales[1], before.scales[0]]
            && before.acknowledged <= self.received.saturating_add(SIGNS)
            && self.received <= after.written.saturating_add(ends)
            && before.received <= self.written.saturating_add(ends)
            && self.acknowledged <= after.received.saturating_add(SIGNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn exchange(client: &mut TcpStream, server: &mut TcpStream, octets: usize) {
        let mut room = vec![0; octets];
        for _ in 0..2 {
            client.write_all(&room).unwrap();
            server.read_exact(&mut room).unwrap();
            server.write_all(&room).unwrap();
            client.read_exact(&mut room).unwrap();
        }
    }

    fn of(stream: &TcpStream) -> TcpInfo {
        TcpInfo::of(stream.as_raw_fd()).unwrap()
    }

    #[test]
    fn the_ends_of_a_connection_mirror_each_other() {
        let (mut client, mut server) = pair();
        for octets in [1, 100, 20_000] {
            exchange(&mut client, &mut server, octets);
            let (here, there) = (of(&client), of(&server));
            assert!(here.is_mirrored([&there; 2]), "{here:?} {there:?}");
            assert!(there.is_mirrored([&here; 2]), "{here:?} {there:?}");
        }
        // Octets that nobody has read yet, and octets that one of the accounts does not know of yet.
        let early = of(&server);
        client.write_all(&[0; 3000]).unwrap();
        let (here, late) = (of(&client), of(&server));
        assert!(here.is_mirrored([&early, &late]), "{here:?} {early:?} {late:?}");
        assert!(early.is_mirrored([&here; 2]) || early.written == here.received, "{here:?} {early:?}");
        // A client that has finished sending.
        server.read_exact(&mut [0; 3000]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
        let (here, there) = (of(&client), of(&server));
        assert!(here.agrees([&there; 2]) && there.agrees([&here; 2]), "{here:?} {there:?}");
        assert!(!here.is_open_with(&there) && !there.is_open_with(&here), "one is going");
    }

    #[test]
    fn ends_of_two_connections_do_not() {
        let (mut client, mut server) = pair();
        let (mut other, mut others) = pair();
        exchange(&mut client, &mut server, 100);
        exchange(&mut other, &mut others, 101);
        assert!(!of(&client).is_mirrored([&of(&others); 2]));
        assert!(!of(&server).is_mirrored([&of(&other); 2]));
        exchange(&mut other, &mut others, 10);
        assert!(!of(&client).agrees([&of(&others); 2]) && !of(&server).agrees([&of(&other); 2]));
        assert!(of(&client).is_open_with(&of(&server)) && of(&server).is_open_with(&of(&client)));
        let mut early = of(&server);
        early.is_fast_open = true;
        assert!(!of(&client).is_open_with(&early));
        let fresh = pair();
        assert!(!of(&client).agrees([&of(&fresh.1); 2]), "it has received nothing");
        // As many octets, at another time: accounts of the same moment differ.
        let (here, there) = (of(&client), of(&server));
        let mut stale = there;
        stale.since = there.since.map(|ms| ms + 1000);
        assert!(!here.is_mirrored([&stale; 2]), "{here:?} {stale:?}");
        let mut plain = there;
        plain.options ^= 1;
        assert!(!here.is_mirrored([&plain; 2]));
        let mut scaled = there;
        scaled.scales[0] ^= 1;
        assert!(!here.is_mirrored([&scaled; 2]));
        assert_eq!(TcpInfo::parse(&[0; SIZE - 1]), None);
    }
}
