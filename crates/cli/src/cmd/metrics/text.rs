//! What Prometheus reads: values by name and labels.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;

/// A number, or a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Whole(u64),
    Real(f64),
}

impl Value {
    fn encode(self, metric: MetricEncoder<'_>, counter: bool) -> fmt::Result {
        match (self, counter) {
            (Value::Whole(n), true) => ConstCounter::new(n).encode(metric),
            (Value::Real(n), true) => ConstCounter::new(n).encode(metric),
            (Value::Whole(n), false) => ConstGauge::new(i64::try_from(n).unwrap_or(i64::MAX)).encode(metric),
            (Value::Real(n), false) => ConstGauge::new(n).encode(metric),
        }
    }
}

/// All values of one name.
#[derive(Debug)]
pub struct Group {
    pub name: &'static str,
    help: &'static str,
    counter: bool,
    pub values: Vec<(Vec<(&'static str, String)>, Value)>,
}

impl Group {
    /// That goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Group {
        Group { name, help, counter: false, values: Vec::new() }
    }

    /// That goes up.
    pub const fn counter(name: &'static str, help: &'static str) -> Group {
        Group { name, help, counter: true, values: Vec::new() }
    }

    /// One value more.
    pub fn with<const N: usize>(mut self, labels: [(&'static str, String); N], value: Value) -> Group {
        self.values.push((labels.into(), value));
        self
    }
}

#[derive(Debug)]
struct Groups(Vec<Group>);

impl Collector for Groups {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for group in self.0.iter().filter(|g| !g.values.is_empty()) {
            let kind = if group.counter { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(group.name, group.help, None, kind)?;
            for (labels, value) in &group.values {
                if labels.is_empty() {
                    // The only one of its name.
                    value.encode(metric, group.counter)?;
                    break;
                }
                value.encode(metric.encode_family(labels)?, group.counter)?;
            }
        }
        Ok(())
    }
}

/// The older text format: what is written for OpenMetrics, but that a counter is named in full in its type, and no end.
pub fn text_of(groups: Vec<Group>) -> Result<String, fmt::Error> {
    let counters: Vec<String> =
        groups.iter().filter(|g| g.counter).map(|g| format!("bypath_{}", g.name)).collect();
    let mut registry = Registry::with_prefix("bypath");
    registry.register_collector(Box::new(Groups(groups)));
    let mut open = String::new();
    text::encode(&mut open, &registry)?;
    let mut plain = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.iter().any(|c| c == name) => {
                plain += &format!("# {what} {name}_total {rest}\n");
            }
            _ => plain += &format!("{line}\n"),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_and_labels_are_those_of_the_older_text() {
        let groups = vec![
            Group::counter("bytes", "Bytes").with([("command", "a\"b\\".to_owned())], Value::Whole(7)),
            Group::counter("never", "Nothing"),
            Group::gauge("sockets", "Sockets").with([], Value::Whole(2)),
        ];
        let text = text_of(groups).unwrap();
        let expected = "# HELP bypath_bytes_total Bytes\n# TYPE bypath_bytes_total counter\n\
            bypath_bytes_total{command=\"a\\\"b\\\\\"} 7\n\
            # HELP bypath_sockets Sockets\n# TYPE bypath_sockets gauge\nbypath_sockets 2\n";
        assert_eq!(text, expected);
    }
}
