//! Counters for Prometheus by HTTP at `/metrics`.
//!
//! One caller at a time, who has a few seconds and a few kilobytes. There is no TLS, and nobody is asked who he is: so it
//! is on loopback unless another address is given.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Longest a caller may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets of a request at most.
const LONGEST: usize = 8 << 10;
/// Fields of a request at most.
const FIELDS: usize = 64;

/// What the answer is, as Prometheus wants to know.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// Names of counters without `_total` in their type, and an end.
    OpenMetrics,
    /// The older text, which `promtool check metrics` reads.
    Plain,
}

impl Format {
    const fn kind(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A port on loopback, or an address with a port.
///
/// # Errors
/// It is neither.
pub fn place(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.or_else(|_| text.parse())
        .map_err(|_| "expected a port, which is on 127.0.0.1, or ADDRESS:PORT".to_owned())
}

/// Answers callers for as long as the process lives, each with what `collect` says then; an error is answered as 503.
pub fn serve(
    listener: &TcpListener,
    format: Format,
    mut collect: impl FnMut() -> Result<String, String>,
) -> ! {
    loop {
        match listener.accept() {
            // A caller that goes away is no trouble of ours.
            Ok((stream, _)) => drop(answer(stream, format, &mut collect)),
            // No descriptors, most likely: they come back.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn answer(
    mut stream: TcpStream,
    format: Format,
    collect: &mut impl FnMut() -> Result<String, String>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, kind, body, head) = match request(&mut stream)? {
        Request::Metrics { head } => match collect() {
            Ok(body) => ("200 OK", format.kind(), body, head),
            Err(why) => ("503 Service Unavailable", "text/plain; charset=utf-8", why + "\n", head),
        },
        Request::Elsewhere => {
            ("404 Not Found", "text/plain; charset=utf-8", "see /metrics\n".to_owned(), false)
        }
        Request::Bad => ("400 Bad Request", "text/plain; charset=utf-8", "GET /metrics\n".to_owned(), false),
    };
    let length = body.len();
    let start = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(start.as_bytes())?;
    if head { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

enum Request {
    Metrics { head: bool },
    Elsewhere,
    Bad,
}

fn request(stream: &mut TcpStream) -> io::Result<Request> {
    let end = Instant::now() + PATIENCE;
    let mut octets = Vec::with_capacity(1024);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || octets.len() >= LONGEST {
            return Ok(Request::Bad);
        }
        stream.set_read_timeout(Some(left))?;
        let mut room = [0; 1024];
        let len = stream.read(&mut room)?;
        if len == 0 {
            return Ok(Request::Bad);
        }
        octets.extend_from_slice(&room[..len]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(&octets) {
            Ok(httparse::Status::Partial) => {}
            Err(_) => return Ok(Request::Bad),
            Ok(httparse::Status::Complete(_)) => {
                let path = parsed.path.unwrap_or("").split('?').next().unwrap_or("");
                return Ok(match (parsed.method, path) {
                    (Some("GET"), "/metrics") => Request::Metrics { head: false },
                    (Some("HEAD"), "/metrics") => Request::Metrics { head: true },
                    (Some("GET" | "HEAD"), _) => Request::Elsewhere,
                    _ => Request::Bad,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(place("9100"), Ok("127.0.0.1:9100".parse().unwrap()));
        assert_eq!(place("[::]:1"), Ok("[::]:1".parse().unwrap()));
        assert!(place("eth0").is_err() && place("70000").is_err());
    }
}
