//! What the two ends say on their connection: a kind, the length of what follows, most significant octet first.

use bypath::l2::MacAddr;

/// What a conversation begins with.
const MAGIC: [u8; 4] = *b"BYPC";
/// The only version there is.
pub const VERSION: u16 = 1;
/// Octets in front of a body.
const HEAD: usize = 3;
/// Octets of a body at most.
const LONGEST: usize = 1024;
/// Octets of a text at most.
const LONGEST_TEXT: usize = 300;
/// Ranges of one report at most.
pub const RANGES: usize = 32;
/// No VLAN, where one is told.
const NO_VLAN: u16 = 0xffff;

/// Who an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of this protocol.
    pub version: u16,
    /// The conversation: the server chooses it, the client says 0.
    pub session: u64,
    /// Where its frames come from, and are to be sent to.
    pub mac: MacAddr,
    /// EtherType of its frames.
    pub ethertype: u16,
    /// Their VLAN, if they have one.
    pub vlan: Option<u16>,
    /// Their priority, for information.
    pub priority: u8,
    /// Longest payload of a frame to it.
    pub mtu: u32,
    /// Octets that may be sent to it before its first report.
    pub window: u32,
}

/// What an end has, and what it wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything before this position is there.
    pub next: u64,
    /// Nothing from this position on may be sent yet.
    pub limit: u64,
    /// What is to be sent again.
    pub wanted: Vec<(u64, u64)>,
}

/// One message on the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The first one.
    Hello(Hello),
    /// No conversation, and why.
    Refuse(String),
    /// What is there, and what is missing.
    Report(Report),
    /// Everything before this position was sent.
    Sent(u64),
    /// To be answered; and the longest payload of a frame to this end, now.
    Ping(u64, u32),
    /// The answer.
    Pong(u64),
    /// The stream ends at this position.
    End(u64),
    /// Everything up to the end was given to the user.
    Done,
    /// This end gives up, and why.
    Quit(String),
}

/// What is not of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There is no such kind.
    #[error("a message of kind {0}")]
    Kind(u8),
    /// Longer than any is.
    #[error("a message of {0} octets")]
    Long(usize),
    /// Too short, or with values that cannot be.
    #[error("a message of kind {0} with a body that is none")]
    Body(u8),
    /// Another protocol.
    #[error("a beginning that is not bypath's")]
    Magic,
}

const HELLO: u8 = 1;
const REFUSE: u8 = 2;
const REPORT: u8 = 3;
const SENT: u8 = 4;
const PING: u8 = 5;
const PONG: u8 = 6;
const END: u8 = 7;
const DONE: u8 = 8;
const QUIT: u8 = 9;

impl Control {
    /// Appends it to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&[0; HEAD]);
        out[at] = match self {
            Control::Hello(h) => {
                out.extend_from_slice(&MAGIC);
                out.extend_from_slice(&h.version.to_be_bytes());
                out.extend_from_slice(&h.session.to_be_bytes());
                out.extend_from_slice(&h.mac.0);
                out.extend_from_slice(&h.ethertype.to_be_bytes());
                out.extend_from_slice(&h.vlan.unwrap_or(NO_VLAN).to_be_bytes());
                out.push(h.priority);
                out.extend_from_slice(&h.mtu.to_be_bytes());
                out.extend_from_slice(&h.window.to_be_bytes());
                HELLO
            }
            Control::Refuse(text) => {
                out.extend_from_slice(cut(text).as_bytes());
                REFUSE
            }
            Control::Report(r) => {
                out.extend_from_slice(&r.next.to_be_bytes());
                out.extend_from_slice(&r.limit.to_be_bytes());
                for (from, to) in r.wanted.iter().take(RANGES) {
                    out.extend_from_slice(&from.to_be_bytes());
                    out.extend_from_slice(&to.to_be_bytes());
                }
                REPORT
            }
            Control::Sent(position) => {
                out.extend_from_slice(&position.to_be_bytes());
                SENT
            }
            Control::Ping(token, mtu) => {
                out.extend_from_slice(&token.to_be_bytes());
                out.extend_from_slice(&mtu.to_be_bytes());
                PING
            }
            Control::Pong(token) => {
                out.extend_from_slice(&token.to_be_bytes());
                PONG
            }
            Control::End(total) => {
                out.extend_from_slice(&total.to_be_bytes());
                END
            }
            Control::Done => DONE,
            Control::Quit(text) => {
                out.extend_from_slice(cut(text).as_bytes());
                QUIT
            }
        };
        let len = (out.len() - at - HEAD) as u16;
        out[at + 1..at + HEAD].copy_from_slice(&len.to_be_bytes());
    }

    fn parse(kind: u8, body: &[u8]) -> Result<Control, Malformed> {
        let mut fields = Fields(body);
        let text = || String::from_utf8_lossy(body).into_owned();
        let read = match kind {
            HELLO => {
                if fields.octets() != Some(MAGIC) {
                    return Err(Malformed::Magic);
                }
                fields.hello().map(Control::Hello)
            }
            REFUSE if body.len() <= LONGEST_TEXT => Some(Control::Refuse(text())),
            REPORT => fields.report().map(Control::Report),
            SENT => fields.number().map(Control::Sent),
            PING => fields.number().and_then(|token| Some(Control::Ping(token, fields.word()?))),
            PONG => fields.number().map(Control::Pong),
            END => fields.number().map(Control::End),
            DONE => Some(Control::Done),
            QUIT if body.len() <= LONGEST_TEXT => Some(Control::Quit(text())),
            REFUSE | QUIT => None,
            other => return Err(Malformed::Kind(other)),
        };
        read.ok_or(Malformed::Body(kind))
    }
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

/// A body that is read field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn octets<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u64> {
        self.octets().map(u64::from_be_bytes)
    }

    fn word(&mut self) -> Option<u32> {
        self.octets().map(u32::from_be_bytes)
    }

    fn half(&mut self) -> Option<u16> {
        self.octets().map(u16::from_be_bytes)
    }

    fn hello(&mut self) -> Option<Hello> {
        Some(Hello {
            version: self.half()?,
            session: self.number()?,
            mac: MacAddr(self.octets()?),
            ethertype: self.half()?,
            vlan: Some(self.half()?).filter(|v| *v != NO_VLAN),
            priority: u8::from_be_bytes(self.octets()?),
            mtu: self.word()?,
            window: self.word()?,
        })
    }

    fn report(&mut self) -> Option<Report> {
        let (next, limit) = (self.number()?, self.number()?);
        let mut wanted = Vec::new();
        while !self.0.is_empty() && wanted.len() < RANGES {
            wanted.push((self.number()?, self.number()?));
        }
        self.0.is_empty().then_some(Report { next, limit, wanted })
    }
}

/// Octets of the connection become messages.
#[derive(Debug, Default)]
pub struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// Takes octets. Everything must be taken out by [`next`](Decoder::next) before more are given: so no more are held than
    /// those of one message and one call.
    pub fn push(&mut self, octets: &[u8]) {
        self.held.extend_from_slice(octets);
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    /// What is there is none.
    pub fn next(&mut self) -> Result<Option<Control>, Malformed> {
        let Some((&[kind, high, low], rest)) = self.held.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !(HELLO..=QUIT).contains(&kind) {
            return Err(Malformed::Kind(kind));
        }
        if len > LONGEST {
            return Err(Malformed::Long(len));
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let read = Control::parse(kind, body);
        self.held.drain(..HEAD + len);
        read.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        Hello {
            version: 1,
            session: 7,
            mac,
            ethertype: 0x88b5,
            vlan: Some(10),
            priority: 7,
            mtu: 1500,
            window: 9,
        }
    }

    fn all() -> Vec<Control> {
        vec![
            Control::Hello(hello()),
            Control::Hello(Hello { vlan: None, ..hello() }),
            Control::Refuse("busy".into()),
            Control::Report(Report { next: 1, limit: 2, wanted: vec![(3, 4), (5, u64::MAX)] }),
            Control::Report(Report { wanted: vec![(1, 2); RANGES], ..Report::default() }),
            Control::Sent(3),
            Control::Ping(4, 1500),
            Control::Pong(4),
            Control::End(5),
            Control::Done,
            Control::Quit("enough".into()),
        ]
    }

    #[test]
    fn messages_are_read_as_written_however_they_are_cut() {
        let mut octets = Vec::new();
        all().iter().for_each(|m| m.write(&mut octets));
        for size in [1, 2, 7, 1000, octets.len()] {
            let (mut decoder, mut read) = (Decoder::default(), Vec::new());
            for part in octets.chunks(size) {
                decoder.push(part);
                while let Some(message) = decoder.next().unwrap() {
                    read.push(message);
                }
            }
            assert_eq!(read, all(), "{size}");
        }
    }

    #[test]
    fn octets_stand_where_the_documentation_says() {
        let mut octets = Vec::new();
        Control::Hello(hello()).write(&mut octets);
        let expected = [
            &[1, 0, 33][..],
            b"BYPC",
            &[0, 1],
            &[0, 0, 0, 0, 0, 0, 0, 7],
            &[2, 0, 0, 0, 0, 1],
            &[0x88, 0xb5, 0, 10, 7],
            &[0, 0, 5, 0xdc, 0, 0, 0, 9],
        ];
        assert_eq!(octets, expected.concat());
        octets.clear();
        Control::Report(Report { next: 1, limit: 2, wanted: vec![(3, 4)] }).write(&mut octets);
        assert_eq!((octets.len(), &octets[..3], octets[10], octets[34]), (35, &[3, 0, 32][..], 1, 4));
    }

    #[test]
    fn what_is_not_of_this_protocol_is_told() {
        let wrong = |octets: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(octets);
            decoder.next()
        };
        assert_eq!(wrong(b"GET / HTTP/1.0\r\n"), Err(Malformed::Kind(b'G')));
        assert_eq!(wrong(&[1, 0, 4, b'X', b'Y', b'P', b'C']), Err(Malformed::Magic));
        assert_eq!(wrong(&[3, 0xff, 0xff]), Err(Malformed::Long(0xffff)));
        assert_eq!(wrong(&[3, 0, 17]), Ok(None));
        assert_eq!(wrong(&[[3, 0, 17].as_slice(), &[0; 17]].concat()), Err(Malformed::Body(3)));
        assert_eq!(wrong(&[[9, 2, 0].as_slice(), &[0; 512]].concat()), Err(Malformed::Body(9)));
        assert_eq!(wrong(&[[3, 2, 32].as_slice(), &[0; 544]].concat()), Err(Malformed::Body(3)));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut octets = Vec::new();
        Control::Quit("é".repeat(200)).write(&mut octets);
        let mut decoder = Decoder::default();
        decoder.push(&octets);
        assert_eq!(decoder.next(), Ok(Some(Control::Quit("é".repeat(150)))));
    }

    proptest! {
        #[test]
        fn octets_whatever_are_read_without_harm(octets in prop::collection::vec(any::<u8>(), 0..400), kind in 0u8..12) {
            let mut decoder = Decoder::default();
            decoder.push(&[kind, 0, 40]);
            decoder.push(&octets);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }
}
