//! `--metrics`: the counters as text for Prometheus, by HTTP, on a socket of the kernel's.
//!
//! By `scrape` on a thread of its own, which asks the service as anybody does.

use crate::cmd::netstack::queries::{Figure, OF_FIGURES, ask};
use crate::output::Failure;
pub use crate::scrape::place;
use crate::scrape::{self, Format};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

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
    let run = move || scrape::serve(&listener, Format::OpenMetrics, || collect(&service));
    let started = std::thread::Builder::new().name("metrics".into()).spawn(run);
    started.map(drop).map_err(failed)
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
}
