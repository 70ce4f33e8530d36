//! What is asked for: the head of a request (RFC 9112), as far as a server of files needs it.

use super::Status;
use super::conditions::Conditions;

/// Octets of a head at most.
pub const LONGEST: usize = 16 << 10;
/// Fields of a head at most.
const FIELDS: usize = 64;

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The head of the answer alone is wanted.
    pub head: bool,
    /// What is wanted.
    pub path: Path,
    /// The part of it that is wanted.
    pub range: Option<Range>,
    /// Only if these hold.
    pub conditions: Conditions,
    /// Another one may follow.
    pub keep: bool,
}

/// The parts of a path, from the folder that is served on. None of them is empty, `.`, `..`, or has a slash or a zero in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub parts: Vec<Vec<u8>>,
    /// A slash is at its end: it is a folder.
    pub folder: bool,
}

/// One range of octets (RFC 9110, 14.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The first and the last one; to the end.
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

impl Range {
    /// Of so many octets: where it begins, and how long it is. `None`: it has nothing of them.
    pub fn of(self, len: u64) -> Option<(u64, u64)> {
        let (from, octets) = match self {
            Range::From(first, last) if first < len => {
                (first, last.map_or(len - first, |last| last.min(len - 1) - first + 1))
            }
            Range::Last(most) if most > 0 => (len - most.min(len), most.min(len)),
            _ => return None,
        };
        (octets > 0).then_some((from, octets))
    }

    /// `None`: it is no range, or several, and not looked at (RFC 9110, 14.2).
    fn parse(text: &[u8]) -> Option<Range> {
        let text = std::str::from_utf8(text).ok()?.trim();
        // RFC 9110, 14.1: names of units know no case.
        let (_, range) = text.split_once('=').filter(|(unit, _)| unit.eq_ignore_ascii_case("bytes"))?;
        let (first, last) = range.split_once('-')?;
        let number = |text: &str| match text.bytes().all(|c| c.is_ascii_digit()) {
            true => text.parse().ok(),
            false => None,
        };
        match (first, last) {
            ("", last) => Some(Range::Last(number(last)?)),
            (first, "") => Some(Range::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Range::From(first, Some(last)))
            }
        }
    }
}

/// The request that octets begin with, and its length. `None`: more of it has to come.
///
/// # Errors
/// What is to be answered, and nothing more is read.
pub fn parse(octets: &[u8]) -> Result<Option<(Request, usize)>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let len = match head.parse(octets) {
        Ok(httparse::Status::Complete(len)) if len <= LONGEST => len,
        Ok(httparse::Status::Partial) if octets.len() < LONGEST => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Status::TOO_LONG),
        Err(httparse::Error::Version) => return Err(Status::VERSION),
        Err(_) => return Err(Status::BAD),
    };
    let newer = head.version == Some(1);
    let mut request = Request { keep: newer, ..Request::default() };
    let mut hosts = 0;
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            hosts += 1;
        } else if is("connection") {
            for word in field.value.split(|c| *c == b',').map(<[u8]>::trim_ascii) {
                if word.eq_ignore_ascii_case(b"close") {
                    request.keep = false;
                    break;
                } else if word.eq_ignore_ascii_case(b"keep-alive") && !newer {
                    request.keep = true;
                }
            }
        } else if is("range") {
            request.range = Range::parse(field.value);
        } else {
            request.conditions.add(field.name, field.value);
        }
    }
    // RFC 9112, 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks a Host
    // header field and to any request message that contains more than one Host header field line".
    if hosts > 1 || newer && hosts == 0 {
        return Err(Status::BAD);
    }
    // What follows would have to be told from the next request: nothing that is answered here has content.
    let content = head.headers.iter().any(|field| {
        field.name.eq_ignore_ascii_case("transfer-encoding")
            || field.name.eq_ignore_ascii_case("content-length") && field.value.trim_ascii() != b"0"
    });
    match head.method {
        Some("GET") => {}
        Some("HEAD") => request.head = true,
        _ => return Err(Status::METHOD),
    }
    request.keep &= !content;
    if request.head {
        request.range = None;
    }
    request.path = head.path.and_then(Path::parse).ok_or(Status::BAD)?;
    Ok(Some((request, len)))
}

impl Path {
    /// Of a target, in origin or absolute form (RFC 9112, 3.2), percent-decoded, without its query. `..` goes no further up than the
    /// beginning.
    fn parse(target: &str) -> Option<Path> {
        let absolute = target.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://"));
        let target = match absolute {
            true => target[7..].find('/').map_or("/", |at| &target[7 + at..]),
            false => target,
        };
        let target = target.split(['?', '#']).next().filter(|target| target.starts_with('/'))?;
        let octets = decoded(target.as_bytes())?;
        if octets.contains(&0) {
            return None;
        }
        let mut path = Path { parts: Vec::new(), folder: false };
        for part in octets.split(|c| *c == b'/') {
            path.folder = matches!(part, b"" | b"." | b"..");
            match part {
                b"" | b"." => {}
                b".." => drop(path.parts.pop()),
                part => path.parts.push(part.to_vec()),
            }
        }
        Some(path)
    }

    /// As it is asked for.
    pub fn encoded(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            text.push('/');
            text += &encoded(part);
        }
        if self.folder || text.is_empty() {
            text.push('/');
        }
        text
    }
}

fn decoded(octets: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(octets.len());
    let mut rest = octets.iter();
    while let Some(octet) = rest.next() {
        let digit = |octet: Option<&u8>| (*octet? as char).to_digit(16);
        decoded.push(match octet {
            b'%' => (digit(rest.next())? * 16 + digit(rest.next())?) as u8,
            octet => *octet,
        });
    }
    Some(decoded)
}

/// A part of a path: all but the unreserved characters (RFC 3986, 2.3) in hexadecimal.
pub fn encoded(part: &[u8]) -> String {
    let mut text = String::with_capacity(part.len());
    for octet in part {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(*octet as char),
            octet => text += &format!("%{octet:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(target: &str) -> Option<String> {
        Path::parse(target).map(|path| path.encoded())
    }

    fn asked(lines: &str) -> Result<Option<(Request, usize)>, Status> {
        parse(lines.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn paths_go_no_further_up_than_the_folder() {
        for (target, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a//b", "/a/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("/%2e%2e/%2E%2E%2fetc%2fpasswd", "/etc/passwd"),
            ("/a%20b?c=/../d", "/a%20b"),
            ("/a#/b", "/a"),
            ("http://there:80/a", "/a"),
            ("HTTP://there", "/"),
            ("/...", "/..."),
            ("/\u{e9}", "/%C3%A9"),
        ] {
            assert_eq!(path(target).as_deref(), Some(expected), "{target}");
        }
        for target in ["", "a", "*", "/%", "/%4", "/%4g", "/%+1", "/a%00", "ftp://there/a"] {
            assert_eq!(path(target), None, "{target}");
        }
    }

    #[test]
    fn heads_say_what_is_wanted() {
        let (request, len) = asked("GET /a HTTP/1.1\nHost: b\n\nrest").expect("good").expect("whole");
        assert_eq!((request.head, request.keep, len), (false, true, 28));
        assert_eq!(request.path.encoded(), "/a");
        let one = |lines: &str| asked(&format!("{lines}\n\n")).expect("good").expect("whole").0;
        assert!(one("HEAD / HTTP/1.1\nhost: b").head);
        assert!(!one("GET / HTTP/1.1\nhost: b\nConnection: te, Close").keep);
        assert!(!one("GET / HTTP/1.0").keep);
        assert!(one("GET / HTTP/1.0\nconnection: keep-alive").keep);
        assert!(!one("GET / HTTP/1.1\nhost: b\ncontent-length: 3").keep);
        assert!(!one("GET / HTTP/1.1\nhost: b\ntransfer-encoding: chunked").keep);
        assert_eq!(one("GET / HTTP/1.1\nhost: b\nrange: bytes=1-2").range, Some(Range::From(1, Some(2))));
        assert_eq!(one("HEAD / HTTP/1.1\nhost: b\nrange: bytes=1-2").range, None);
        let mut conditions = Conditions::default();
        conditions.add("if-match", b"\"x\"");
        assert_eq!(one("GET / HTTP/1.1\nhost: b\nIf-Match: \"x\"").conditions, conditions);
    }

    #[test]
    fn heads_that_are_none_are_refused() {
        for (lines, status) in [
            ("GET / HTTP/1.1\n\n", Status::BAD),
            ("GET / HTTP/1.1\nhost: a\nhost: a\n\n", Status::BAD),
            ("GET a HTTP/1.1\nhost: a\n\n", Status::BAD),
            ("GET / HTTP/1.1\nhost a\n\n", Status::BAD),
            ("GET / HTTP/2.0\n\n", Status::VERSION),
            ("POST / HTTP/1.1\nhost: a\n\n", Status::METHOD),
            ("\u{1}\u{2}", Status::BAD),
        ] {
            assert_eq!(asked(lines), Err(status), "{lines}");
        }
        assert_eq!(asked("GET / HTTP/1.1\nhost: a\n"), Ok(None));
        let many = "a: b\n".repeat(FIELDS + 1);
        assert_eq!(asked(&format!("GET / HTTP/1.1\n{many}\n")), Err(Status::TOO_LONG));
        let long = "a".repeat(LONGEST);
        assert_eq!(asked(&format!("GET /{long}")), Err(Status::TOO_LONG));
    }

    #[test]
    fn ranges_are_within_what_there_is() {
        let range = |text: &str, len| Range::parse(text.as_bytes()).map(|range| range.of(len));
        for (text, len, expected) in [
            ("bytes=0-0", 10, Some(Some((0, 1)))),
            ("bytes=2-5", 10, Some(Some((2, 4)))),
            ("BYTES=2-5", 10, Some(Some((2, 4)))),
            ("Bytes=-3", 10, Some(Some((7, 3)))),
            ("bytes=2-50", 10, Some(Some((2, 8)))),
            ("bytes=9-", 10, Some(Some((9, 1)))),
            ("bytes=10-", 10, Some(None)),
            ("bytes=-3", 10, Some(Some((7, 3)))),
            ("bytes=-30", 10, Some(Some((0, 10)))),
            ("bytes=-0", 10, Some(None)),
            ("bytes=0-", 0, Some(None)),
            ("bytes=-1", 0, Some(None)),
            ("bytes=0-18446744073709551615", 10, Some(Some((0, 10)))),
            ("bytes=5-2", 10, None),
            ("bytes=-", 10, None),
            ("bytes=1-2,4-5", 10, None),
            ("bytes=+1-2", 10, None),
            ("lines=1-2", 10, None),
            ("bytes 1-2", 10, None),
        ] {
            assert_eq!(range(text, len), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_octets_are_too_odd(octets in prop::collection::vec(any::<u8>(), 0..400), target in "[ -~]{0,80}") {
            let _ = parse(&octets);
            let line = format!("GET {target} HTTP/1.1\r\nhost: a\r\nrange: {target}\r\n\r\n");
            let _ = parse(line.as_bytes());
            if let Some(path) = Path::parse(&format!("/{target}")) {
                prop_assert!(path.parts.iter().all(|part| !part.is_empty() && part != b".." && part != b"." && !part.contains(&b'/')));
                prop_assert_eq!(Path::parse(&path.encoded()), Some(path));
            }
        }
    }
}
