//! `--metrics`: the counters as text for Prometheus, by HTTP, on a socket of the kernel's.
//!
//! One caller at a time, on a thread of its own, which asks the service as anybody does. There is no TLS, and nobody is asked who he is: so
//! it listens on loopback unless another address is given.

use crate::cmd::netstack::queries::{Figure, OF_FIGURES, ask};
use crate::output::Failure;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest a caller may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets of a request at most.
const LONGEST: usize = 8 << 10;
/// Fields of a request at most.
const FIELDS: usize = 64;
/// What the answer is, as Prometheus wants to know.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A port on loopback, or an address with a port.
///
/// # Errors
/// It is neither.
pub fn place(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.or_else(|_| text.parse())
        .map_err(|_| "expected a port, which is on 127.0.0.1, or ADDRESS:PORT".to_owned())
}

/// The socket.
///
/// # Errors
/// The address is not to be had.
pub fn listen(at: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(at)
        .map_err(|e| Failure::new(1, format_args!("--metrics {at}: {e}; give another port, or 0 for any")))
}

/// Answers callers from now on, until the process ends.
///
/// # Errors
/// No thread.
pub fn serve(listener: &TcpListener, service: &Path) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::new(1, format_args!("--metrics: {e}"));
    let (listener, service) = (listener.try_clone().map_err(failed)?, service.to_owned());
    let run = move || {
        for stream in listener.incoming() {
            match stream {
                // A caller that goes away is no trouble of ours.
                Ok(stream) => drop(answer(stream, &service)),
                // No descriptors, most likely: they come back.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    let started = std::thread::Builder::new().name("metrics".into()).spawn(run);
    started.map(drop).map_err(failed)
}

fn answer(mut stream: TcpStream, service: &Path) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, kind, body, head) = match request(&mut stream)? {
        Request::Metrics { head } => match collect(service) {
            Ok(body) => ("200 OK", OPEN_METRICS, body, head),
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

fn collect(service: &Path) -> Result<String, String> {
    let mut rows = Vec::new();
    for what in OF_FIGURES {
        rows.extend(ask(service, what).map_err(|e| e.to_string())?);
    }
    text_of(Figure::all(&rows)).map_err(|e| e.to_string())
}

fn text_of(figures: Vec<Figure>) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("bypath_netstack");
    let mut named: BTreeMap<String, Vec<Figure>> = BTreeMap::new();
    for figure in figures {
        // Frames of the stack and of a link have one name each, and two meanings.
        let name = if figure.of.is_some() {
            format!("device_{}", figure.name.trim_start_matches("link_"))
        } else {
            figure.name.clone()
        };
        named.entry(name).or_default().push(figure);
    }
    registry.register_collector(Box::new(Figures(named)));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// Figures by name, for each link one.
#[derive(Debug)]
struct Figures(BTreeMap<String, Vec<Figure>>);

impl Figure {
    fn encode(&self, metric: MetricEncoder<'_>, is_now: bool) -> Result<(), std::fmt::Error> {
        if is_now {
            ConstGauge::new(i64::try_from(self.value).unwrap_or(i64::MAX)).encode(metric)
        } else {
            ConstCounter::new(self.value).encode(metric)
        }
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        for (name, figures) in &self.0 {
            let is_now = figures.iter().any(|figure| figure.is_now);
            let kind = if is_now { MetricType::Gauge } else { MetricType::Counter };
            let mut metric = encoder.encode_descriptor(name, &name.replace('_', " "), None, kind)?;
            for figure in figures {
                match &figure.of {
                    Some(of) => {
                        figure.encode(metric.encode_family(&[("interface", of.as_str())])?, is_now)?
                    }
                    // The only one of its name.
                    None => {
                        figure.encode(metric, is_now)?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_text_with_types_and_labels() {
        let figure = |name: &str, of: Option<&str>, value, is_now| Figure {
            name: name.to_owned(),
            of: of.map(str::to_owned),
            value,
            is_now,
        };
        let out = text_of(vec![
            figure("tcp_opened", None, 3, false),
            figure("udp_drop_checksum", None, 0, false),
            figure("link_received", None, 5, false),
            figure("link_received", Some("bp\"0"), 7, false),
            figure("link_received", Some("bp1"), 8, false),
            figure("connections", None, 2, true),
        ])
        .unwrap();
        for line in [
            "# TYPE bypath_netstack_tcp_opened counter",
            "bypath_netstack_tcp_opened_total 3",
            "bypath_netstack_udp_drop_checksum_total 0",
            "bypath_netstack_link_received_total 5",
            "bypath_netstack_device_received_total{interface=\"bp\\\"0\"} 7",
            "bypath_netstack_device_received_total{interface=\"bp1\"} 8",
            "# TYPE bypath_netstack_connections gauge",
            "bypath_netstack_connections 2",
            "# EOF",
        ] {
            assert!(out.lines().any(|l| l == line), "{line}: {out}");
        }
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(place("9100"), Ok("127.0.0.1:9100".parse().unwrap()));
        assert_eq!(place("[::]:1"), Ok("[::]:1".parse().unwrap()));
        assert!(place("eth0").is_err() && place("70000").is_err());
    }
}
