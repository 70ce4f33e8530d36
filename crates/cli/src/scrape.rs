//! Counters for Prometheus by HTTP at `/metrics`.
//!
//! Each caller on a thread of his own; he has a few seconds and a few kilobytes. Of more callers than there is room for, who
//! has been there longest has to go: one that asks at once is answered, whoever says nothing. There is no TLS, and nobody is
//! asked who he is: so it is on loopback unless another address is given. There a page in a browser of this host is kept out, which has a name of its
//! own lead here (DNS rebinding): callers name this host.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Longest a caller may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Callers at a time.
const CALLERS: usize = 32;
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
    collect: impl FnMut() -> Result<String, String> + Send,
) -> ! {
    let (callers, collect) = (Callers::default(), Mutex::new(collect));
    thread::scope(|scope| -> () {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // No descriptors, most likely: they come back.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let Ok(caller) = callers.enter(&stream) else { continue };
            let answer = || {
                let _caller = caller;
                let mut collect = || lock(&collect)();
                // A caller that goes away is no trouble of ours.
                drop(answer(stream, format, &mut collect));
            };
            // Without a thread he is let go.
            drop(thread::Builder::new().name("scrape".into()).spawn_scoped(scope, answer));
        }
    });
    unreachable!("callers are waited for as long as the process lives")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Those who are being answered, the one who came first in front.
#[derive(Default)]
struct Callers {
    all: Mutex<(u64, VecDeque<(u64, TcpStream)>)>,
    left: Condvar,
}

/// One of them; he leaves with it.
struct Caller<'a> {
    callers: &'a Callers,
    number: u64,
}

impl Callers {
    /// One more, once there is room.
    fn enter(&self, stream: &TcpStream) -> io::Result<Caller<'_>> {
        let stream = stream.try_clone()?;
        let mut all = lock(&self.all);
        while all.1.len() >= CALLERS {
            // His thread finds that, and he leaves.
            let _ = all.1.front().map(|(_, oldest)| oldest.shutdown(Shutdown::Both));
            all = self.left.wait(all).unwrap_or_else(PoisonError::into_inner);
        }
        all.0 += 1;
        let number = all.0;
        all.1.push_back((number, stream));
        Ok(Caller { callers: self, number })
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        lock(&self.callers.all).1.retain(|(number, _)| *number != self.number);
        self.callers.left.notify_one();
    }
}

fn answer(
    mut stream: TcpStream,
    format: Format,
    collect: &mut impl FnMut() -> Result<String, String>,
) -> io::Result<()> {
    let (status, kind, body, head) = match request(&mut stream)? {
        Request::Metrics { head } => match collect() {
            Ok(body) => ("200 OK", format.kind(), body, head),
            Err(why) => ("503 Service Unavailable", "text/plain; charset=utf-8", why + "\n", head),
        },
        Request::Misled => (
            "403 Forbidden",
            "text/plain; charset=utf-8",
            "ask by an address, by localhost or by this host's name\n".to_owned(),
            false,
        ),
        Request::Elsewhere => {
            ("404 Not Found", "text/plain; charset=utf-8", "see /metrics\n".to_owned(), false)
        }
        Request::Bad => ("400 Bad Request", "text/plain; charset=utf-8", "GET /metrics\n".to_owned(), false),
    };
    let length = body.len();
    let start = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let body = if head { String::new() } else { body };
    let (whole, mut sent, end) = (start + &body, 0, Instant::now() + PATIENCE);
    while sent < whole.len() {
        // In all: who takes an octet from time to time has no more of it.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(&whole.as_bytes()[sent..])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => sent += n,
        }
    }
    Ok(())
}

enum Request {
    Metrics {
        head: bool,
    },
    Elsewhere,
    /// By a name that is not this host's.
    Misled,
    Bad,
}

/// Whether who asks on loopback means this host: an address can be nobody's name.
fn is_meant(host: &str) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
    let name = if port.bytes().all(|octet| octet.is_ascii_digit()) { name } else { host };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let own = rustix::system::uname();
    let own = own.nodename().to_str().unwrap_or("");
    let is = |other: &str| !other.is_empty() && name.eq_ignore_ascii_case(other);
    [host, address].iter().any(|text| text.parse::<IpAddr>().is_ok()) || is("localhost") || is(own)
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
                let host = parsed.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
                let host = host.map(|field| String::from_utf8_lossy(field.value).trim().to_owned());
                let on_loopback = stream.local_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback());
                if on_loopback && host.is_some_and(|host| !is_meant(&host)) {
                    return Ok(Request::Misled);
                }
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

    #[test]
    fn who_names_another_host_does_not_mean_this_one() {
        let own = rustix::system::uname().nodename().to_str().unwrap().to_owned();
        for host in ["127.0.0.1:9100", "127.0.0.1", "[::1]:9100", "::1", "localhost", "LOCALHOST:1", &own] {
            assert!(is_meant(host), "{host}");
        }
        for host in [
            "",
            ":",
            "evil.example",
            "evil.example:9100",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
        ] {
            assert!(!is_meant(host), "{host}");
        }
    }
}
