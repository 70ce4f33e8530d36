//! What the two ends of a transfer say to each other before and after it: JSON, in datagrams of RoCEv2 (UD) until they are
//! connected, then in a message (RC SEND). A stranger's words are read like anything hostile: bounded, and checked.

use bypath::roce::{Config, Mtu};
use bypath::wire::roce::{Psn, Qpn};
use bypath_sys::process;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The queue pair that listens for [`Message::Hello`].
pub const LISTENER: Qpn = Qpn::new(0x42_5950);
/// Its Q_Key.
pub const QKEY: u32 = 0x4259_5031;
/// Octets of a message at most.
pub const LONGEST: u32 = 900;
/// Octets of a SEND or WRITE of a transfer.
pub const PIECE: u32 = 1 << 20;

/// After so long without a packet the other end is taken for dead, in ns.
pub const SILENCE: u64 = 10_000_000_000;
/// Repetitions without progress. Those after 50, 100, 200, 400 and then every 800 ms outlast [`SILENCE`].
const RETRIES: u32 = 16;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Messages into the receiver's buffers (RC SEND)
    Send,
    /// Into the receiver's memory (RDMA WRITE), the last piece with immediate data
    Write,
    /// The receiver reads the sender's memory (RDMA READ)
    Read,
    /// Counts in the receiver's memory (fetch and add, compare and swap)
    Atomic,
}

/// One end of a connection to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its queue pair.
    pub qpn: u32,
    /// Its first PSN.
    pub psn: u32,
    /// The largest path MTU that it can use.
    pub mtu: u32,
    /// Memory that it gives: the key,
    pub key: u32,
    /// and the first address.
    pub address: u64,
}

impl End {
    /// With numbers drawn by chance.
    pub fn draw(mtu: Mtu) -> End {
        let (a, b) = (process::random_u64(), process::random_u64());
        // Above those that are well known, and the listener's is not drawn.
        let qpn = (a as u32 & 0x3f_ffff) | 0x80_0000;
        End { qpn, psn: (a >> 32) as u32 & 0xff_ffff, mtu: mtu.octets(), key: b as u32 | 1, address: 1 << 32 }
    }

    /// Its queue pair.
    pub const fn pair(&self) -> Qpn {
        Qpn::new(self.qpn)
    }

    /// Its first PSN.
    pub const fn first(&self) -> Psn {
        Psn::new(self.psn)
    }

    /// How both ends behave; none if the other end said what cannot be.
    pub fn agreed(&self, other: &End, window: u32) -> Option<Config> {
        let mtu = Mtu::new(self.mtu.min(other.mtu))?;
        Some(Config {
            mtu,
            window,
            ack_every: (window / 4).clamp(1, 16),
            retries: RETRIES,
            ..Config::DEFAULT
        })
    }
}

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Drawn by chance: the same when it is said again.
    pub session: u64,
    /// How.
    pub op: Op,
    /// Octets.
    pub size: u64,
    /// The file's name.
    pub name: String,
    /// SHA-256 of the octets, in hexadecimal digits.
    pub sha256: String,
    /// The sender's end.
    pub end: End,
}

/// A message in a datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// Here is something.
    Hello(Offer),
    /// Come.
    Welcome {
        /// Of this offer.
        session: u64,
        /// The receiver's end.
        end: End,
    },
    /// No.
    Refused {
        /// Of this offer.
        session: u64,
        /// Why, and what helps.
        why: String,
    },
}

/// What the receiver says when it is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether everything is there and has the hash that was told.
    pub ok: bool,
    /// The hash of what is there.
    pub sha256: String,
    /// The counter, of atomic operations.
    pub value: Option<u64>,
    /// What went wrong.
    pub why: Option<String>,
}

/// As it is sent. None if it is too long.
pub fn written(message: &impl Serialize) -> Option<Vec<u8>> {
    serde_json::to_vec(message).ok().filter(|octets| octets.len() <= LONGEST as usize)
}

/// A reason that fits into a message, whatever is in it: without what steers a terminal, and cut.
pub fn short(why: &str) -> String {
    // JSON writes a quotation mark as two octets.
    const MOST: usize = 300;
    let mut text = crate::output::printable(why);
    text.truncate(text.floor_char_boundary(MOST));
    text
}

/// As it was received. None if it is something else.
pub fn read<'a, T: Deserialize<'a>>(octets: &'a [u8]) -> Option<T> {
    serde_json::from_slice(octets).ok()
}

/// SHA-256 in hexadecimal digits.
pub fn hash(octets: &[u8]) -> String {
    crate::raw::values::hex(&Sha256::digest(octets))
}

/// The name under which something is kept: the last part of what was offered, without what steers a terminal or a path.
pub fn file_name(offered: &str) -> Option<String> {
    let last = offered.rsplit('/').next()?;
    let fits = !last.is_empty()
        && last.len() <= 200
        && !last.starts_with('.')
        && !last.chars().any(char::is_control);
    fits.then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_fits_into_a_datagram() {
        let end = End { qpn: u32::MAX, psn: u32::MAX, mtu: 4096, key: u32::MAX, address: u64::MAX };
        let offer = Offer {
            session: u64::MAX,
            op: Op::Atomic,
            size: u64::MAX,
            name: "x".repeat(200),
            sha256: hash(b""),
            end,
        };
        for message in [
            Message::Hello(offer),
            Message::Welcome { session: u64::MAX, end },
            Message::Refused { session: 1, why: "because".into() },
        ] {
            let octets = written(&message).expect("it fits");
            assert_eq!(read::<Message>(&octets), Some(message));
        }
        assert_eq!(written(&Message::Refused { session: 1, why: "x".repeat(900) }), None);
        for other in [&b""[..], b"{}", b"{\"hello\":{}}", b"\xff", b"null"] {
            assert_eq!(read::<Message>(other), None);
        }
    }

    #[test]
    fn a_reason_is_always_short_enough() {
        for why in ["\"".repeat(5000), "\x1b".repeat(5000), "\u{10ffff}".repeat(5000), "ü".repeat(399) + "x"]
        {
            let why = short(&why);
            assert!(written(&Message::Refused { session: u64::MAX, why: why.clone() }).is_some(), "{why}");
            let (sha256, value) = (hash(b""), Some(u64::MAX));
            assert!(written(&Outcome { ok: false, sha256, value, why: Some(why) }).is_some());
        }
        assert_eq!(short("no room"), "no room");
    }

    #[test]
    fn names_lead_nowhere() {
        for (offered, kept) in [
            ("a.txt", Some("a.txt")),
            ("/etc/passwd", Some("passwd")),
            ("../../up", Some("up")),
            ("..", None),
            (".bashrc", None),
            ("a/", None),
            ("", None),
            ("a\nb", None),
            ("a\\b", Some("a\\b")),
        ] {
            assert_eq!(file_name(offered).as_deref(), kept, "{offered:?}");
        }
    }

    #[test]
    fn what_is_not_answered_is_repeated_for_as_long_as_a_silence_lasts() {
        let a = End::draw(Mtu::LARGEST);
        let config = a.agreed(&a, 32).expect("a path MTU");
        let patience: u64 = (0..=config.retries).map(|n| config.timeout << n.min(4)).sum();
        assert!((SILENCE + 500_000_000..SILENCE + 2_000_000_000).contains(&patience), "{patience}");
    }

    #[test]
    fn drawn_ends_are_usable_and_agree_on_the_smaller_mtu() {
        let (a, b) = (End::draw(Mtu::LARGEST), End::draw(Mtu::new(512).expect("one")));
        assert!(a.pair() != LISTENER && a.qpn < 1 << 24 && a.key != 0);
        assert_eq!(a.agreed(&b, 32).map(|c| c.mtu.octets()), Some(512));
        assert_eq!(a.agreed(&End { mtu: 1500, ..b }, 32), None);
    }
}
