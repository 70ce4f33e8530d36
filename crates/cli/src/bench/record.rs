//! Figures, and what is said about each: one record per figure, the same fields in every benchmark.

use super::histogram::Histogram;
use serde::Serialize;

/// How a figure came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Measured.
    Ok,
    /// Measured, but more was lost than at a rate that the link carries: no figure to compare with others.
    Lossy,
    /// Measured, but frames arrived that are not those that were sent: no figure to compare with others.
    Corrupt,
    /// Not measured here, for the reason given.
    Skipped,
    /// Tried; went wrong for the reason given.
    Failed,
}

/// What was measured. Two figures are the same figure if all of this is equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// `loopback`, `apps`, `raw`, `tun`, `roce`, `stack` or `netstack`.
    pub bench: &'static str,
    /// The case; for `apps` the program with its arguments.
    pub case: String,
    /// What carried the bytes.
    pub subject: &'static str,
    /// `lo` for TCP; `shm` and `shm-c` for the two bare rings; for `foreign-call` the call; of `watched` who looks on; of `raw` `lo`, `veth`, `peer`.
    pub link: Option<String>,
    /// `spin` or `block`; of the case `prototype` `library` or `c`; of `tun` `c` for plain C,
    /// and for `cpu_share` whose: `sender` or `receiver`; of `netstack` also whose processor time: `program`, `service`, `peer`.
    pub mode: Option<&'static str>,
    /// Bytes in a message.
    pub size: Option<u64>,
    /// What is in flight or held at once: pipelined requests, pairs, idle connections.
    pub burst: Option<u64>,
    /// Profile of the programs under Bypath.
    pub profile: Option<String>,
    /// Congestion control of the TCP connections.
    pub cc: Option<String>,
    /// What the number is.
    pub metric: &'static str,
}

impl Figure {
    /// Unit of the metric.
    pub fn unit(&self) -> &'static str {
        match self.metric {
            "messages_per_s" | "connections_per_s" | "requests_per_s" => "1/s",
            "received_frames_per_s" | "sent_frames_per_s" => "1/s",
            "bytes_per_s" | "received_bytes_per_s" | "sent_bytes_per_s" => "B/s",
            "loss_ratio" | "allocs_per_op" => "1",
            "bytes_per_op" => "B",
            "corrupt_frames" => "frames",
            "bits_per_s" => "bit/s",
            "idle_cpu_share" | "cpu_share" => "cores",
            "total_us" => "us",
            "resident_bytes_per_connection" | "bytes_per_connection" => "B",
            "cpu_s_per_gb" => "s/GB",
            _ => "ns",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(&self) -> bool {
        self.metric.ends_with("_per_s")
    }
}

/// What one run yields for a figure.
#[derive(Clone, Debug)]
pub enum Sample {
    /// One number.
    Value(f64),
    /// Several single numbers; the run's figure is their median.
    Values(Vec<f64>),
    /// Many samples, each to be multiplied by the factor; the run's figure is their median.
    Spread(Histogram, f64),
}

impl Sample {
    /// From (nanoseconds, count) pairs as the measured programs report them.
    pub fn spread(pairs: impl IntoIterator<Item = (u64, u64)>, factor: f64) -> Sample {
        let mut histogram = Histogram::new();
        pairs.into_iter().for_each(|(ns, n)| histogram.record_n(ns, n));
        Sample::Spread(histogram, factor)
    }

    fn median(&self) -> Option<f64> {
        match self {
            Sample::Value(v) => Some(*v),
            Sample::Values(v) => quantile(&sorted(v), 0.5),
            Sample::Spread(h, factor) => Some(h.quantile(0.5)? * factor),
        }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// Linear interpolation between the neighbours.
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// A figure with the numbers of all its runs. Fields and their order are the format.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    #[serde(skip)]
    pub figure: Figure,
    pub n: Option<u64>,
    pub mean: Option<f64>,
    pub p25: Option<f64>,
    pub p50: Option<f64>,
    pub p75: Option<f64>,
    pub p90: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub p9999: Option<f64>,
    pub p99999: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub runs: u64,
    pub run_medians: Vec<f64>,
    pub median: Option<f64>,
    pub status: Status,
    pub reason: Option<String>,
}

impl Record {
    /// Sums up the runs of a figure.
    pub fn new(figure: Figure, runs: &[Sample], note: Option<String>) -> Record {
        let mut record = Record::without_numbers(figure, Status::Ok, note);
        record.run_medians = runs.iter().filter_map(Sample::median).collect();
        record.runs = record.run_medians.len() as u64;
        record.median = quantile(&sorted(&record.run_medians), 0.5);
        if runs.iter().any(|r| matches!(r, Sample::Spread(..))) {
            record.set_from_histograms(runs);
        } else {
            let values: Vec<f64> = runs
                .iter()
                .flat_map(|r| match r {
                    Sample::Value(v) => std::slice::from_ref(v),
                    Sample::Values(v) => v,
                    Sample::Spread(..) => &[],
                })
                .copied()
                .collect();
            record.set_from_values(&sorted(&values));
        }
        record
    }

    /// A figure that was not measured.
    pub fn without_numbers(figure: Figure, status: Status, reason: Option<String>) -> Record {
        Record {
            figure,
            n: None,
            mean: None,
            p25: None,
            p50: None,
            p75: None,
            p90: None,
            p99: None,
            p999: None,
            p9999: None,
            p99999: None,
            min: None,
            max: None,
            runs: 0,
            run_medians: Vec::new(),
            median: None,
            status,
            reason,
        }
    }

    fn set_from_values(&mut self, sorted: &[f64]) {
        let n = sorted.len() as u64;
        if n > 0 {
            self.n = Some(n);
            self.mean = Some(sorted.iter().sum::<f64>() / n as f64);
            (self.min, self.max) = (sorted.first().copied(), sorted.last().copied());
            self.set_quantiles(n, |q| quantile(sorted, q));
        }
    }

    fn set_from_histograms(&mut self, runs: &[Sample]) {
        let mut all = Histogram::new();
        let mut factor = 1.0;
        for run in runs {
            if let Sample::Spread(h, f) = run {
                all.add(h);
                factor = *f;
            }
        }
        if all.len() == 0 {
            return;
        }
        let at = |q| Some(all.quantile(q)? * factor);
        self.n = Some(all.len());
        self.mean = all.mean().map(|m| m * factor);
        (self.min, self.max) = (at(0.0), at(1.0));
        self.set_quantiles(all.len(), at);
    }

    /// A quantile is given only if at least one sample is expected beyond it.
    fn set_quantiles(&mut self, n: u64, at: impl Fn(f64) -> Option<f64>) {
        let given = |least: u64, q: f64| if n >= least { at(q) } else { None };
        self.p25 = given(1, 0.25);
        self.p50 = given(1, 0.5);
        self.p75 = given(1, 0.75);
        self.p90 = given(10, 0.9);
        self.p99 = given(100, 0.99);
        self.p999 = given(1_000, 0.999);
        self.p9999 = given(10_000, 0.9999);
        self.p99999 = given(100_000, 0.99999);
    }

    /// As it is written to JSON: the figure's fields first, the unit after the metric.
    pub fn document(&self) -> impl Serialize {
        Document { figure: &self.figure, unit: self.figure.unit(), numbers: self }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    figure: &'a Figure,
    unit: &'static str,
    #[serde(flatten)]
    numbers: &'a Record,
}

/// Collects the runs of all figures, in the order in which they first appear.
#[derive(Default)]
pub struct Results {
    entries: Vec<Entry>,
}

struct Entry {
    figure: Figure,
    runs: Vec<Sample>,
    trouble: Option<(Status, String)>,
    note: Option<String>,
}

impl Results {
    fn entry(&mut self, figure: Figure) -> &mut Entry {
        let at = self.entries.iter().position(|e| e.figure == figure).unwrap_or_else(|| {
            self.entries.push(Entry { figure, runs: Vec::new(), trouble: None, note: None });
            self.entries.len() - 1
        });
        &mut self.entries[at]
    }

    /// Adds a run, with something to know about it.
    pub fn add(&mut self, figure: Figure, sample: Sample, note: Option<String>) {
        let entry = self.entry(figure);
        entry.runs.push(sample);
        entry.note = note.or(entry.note.take());
    }

    /// Notes that a figure was skipped or failed. Failing outweighs everything, also earlier runs.
    pub fn trouble(&mut self, figure: Figure, status: Status, reason: &str) {
        let entry = self.entry(figure);
        if entry.trouble.as_ref().is_none_or(|(s, _)| *s == Status::Skipped) {
            entry.trouble = Some((status, reason.to_owned()));
        }
    }

    /// All records.
    pub fn records(&self) -> Vec<Record> {
        self.entries
            .iter()
            .map(|e| match &e.trouble {
                Some((status, reason)) if *status == Status::Failed || e.runs.is_empty() => {
                    Record::without_numbers(e.figure.clone(), *status, Some(reason.clone()))
                }
                _ => Record::new(e.figure.clone(), &e.runs, e.note.clone()),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        Figure {
            bench: "loopback",
            case: "pingpong".into(),
            subject: "bypath",
            link: Some("lo".into()),
            mode: Some("spin"),
            size: Some(14),
            burst: None,
            profile: None,
            cc: None,
            metric: "one_way_ns",
        }
    }

    #[test]
    fn a_record_has_exactly_the_agreed_fields() {
        let record = Record::new(figure(), &[Sample::Value(1.0)], None);
        let record = serde_json::to_value(record.document()).unwrap();
        let mut names: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let mut agreed: Vec<&str> =
            "bench case subject link mode size burst profile cc metric unit n mean p25 p50 p75 \
            p90 p99 p999 p9999 p99999 min max runs run_medians median status reason"
                .split_whitespace()
                .collect();
        agreed.sort_unstable();
        assert_eq!(names, agreed);
        assert!(record["p90"].is_null(), "one run says nothing about a tail");
    }

    #[test]
    fn the_median_is_that_of_the_runs() {
        let run = |values: &[u64]| Sample::spread(values.iter().map(|v| (*v, 1)), 0.5);
        let record = Record::new(figure(), &[run(&[10, 10, 90]), run(&[20, 20, 20]), run(&[30])], None);
        assert_eq!(record.run_medians, [5.0, 10.0, 15.0]);
        assert_eq!((record.median, record.n, record.runs), (Some(10.0), Some(7), 3));
        assert_eq!((record.min, record.max), (Some(5.0), Some(45.0)));
    }

    #[test]
    fn a_failure_outweighs_earlier_runs() {
        let mut results = Results::default();
        results.add(figure(), Sample::Value(1.0), None);
        results.trouble(figure(), Status::Skipped, "no time");
        assert_eq!(results.records()[0].status, Status::Ok);
        results.trouble(figure(), Status::Failed, "wrong byte");
        assert_eq!(results.records()[0].status, Status::Failed);
        assert_eq!(results.records()[0].median, None);
    }
}
