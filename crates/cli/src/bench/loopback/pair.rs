//! Cases in which one server and one driver talk: ping-pong, sleep, stream, bulk, churn, datagrams.

use super::plain_ring;
use super::subject::Subject;
use crate::bench::args::{Case, SubjectName};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::peer::PeerResult;
use crate::bench::proof::Proof;
use crate::bench::record::{Figure, Sample};

/// One subject in one of these cases.
pub struct PairJob {
    case: Case,
    subject: Subject,
    spin: bool,
    size: usize,
}

/// What both programs report.
pub struct Both {
    pub server: PeerResult,
    pub driver: PeerResult,
    /// What Bypath counted, under Bypath.
    pub proof: Proof,
}

/// The options of a run that both programs get.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub talk: &'static str,
    pub spin: bool,
    pub nodelay: bool,
    pub size: usize,
    pub seconds: f64,
    pub connections: usize,
    /// Both programs may use both cores, instead of one each.
    pub share_cores: bool,
}

impl Options {
    /// As arguments of a measured program; `which`: 0 = server, 1 = driver.
    pub fn args(&self, context: &Context, which: usize, address: &str) -> Vec<String> {
        let role = ["serve", "drive"][which];
        let mut args: Vec<String> =
            ["--role", role, "--talk", self.talk, "--addr", address].map(Into::into).into();
        args.extend(["--size".into(), self.size.to_string(), "--seconds".into(), self.seconds.to_string()]);
        args.extend(["--connections".into(), self.connections.to_string()]);
        args.extend(self.spin.then(|| "--spin".into()));
        args.extend(self.nodelay.then(|| "--nodelay".into()));
        match context.machine.pinned {
            Some([a, b]) if self.share_cores => args.extend(["--cpu".into(), format!("{a},{b}")]),
            Some(cores) => args.extend(["--cpu".into(), cores[which].to_string()]),
            None => {}
        }
        args
    }
}

impl PairJob {
    pub fn new(case: Case, subject: Subject, spin: bool, size: usize) -> PairJob {
        let spin = spin || subject.name == SubjectName::Floor;
        PairJob { case, subject, spin, size }
    }

    fn figure(&self, context: &Context, metric: &'static str) -> Figure {
        Figure {
            mode: Some(if self.spin { "spin" } else { "block" }),
            size: Some(self.size as u64),
            ..self.subject.figure(context, self.case, metric)
        }
    }

    fn metrics(&self) -> &'static [&'static str] {
        match self.case {
            Case::Sleep => &["one_way_ns", "cpu_ns_per_op"],
            Case::Stream => &["messages_per_s", "bytes_per_s", "cpu_ns_per_op"],
            Case::Bulk => &["bytes_per_s", "cpu_ns_per_op"],
            Case::Churn => &["connections_per_s", "cpu_ns_per_op"],
            Case::UdpStream => &["messages_per_s", "loss_ratio", "cpu_ns_per_op"],
            _ => &["one_way_ns", "cpu_ns_per_op"],
        }
    }

    fn options(&self, context: &Context) -> Options {
        let (talk, seconds) = match self.case {
            // The tail of 1 ms gaps needs more messages than a short run has.
            Case::Sleep => ("sleep", context.seconds.max(0.2)),
            Case::Stream | Case::Bulk => ("stream", context.seconds.max(0.05)),
            Case::Churn => ("churn", context.seconds.max(0.1)),
            // The bare ring is a stream; a channel loses nothing.
            Case::UdpStream if matches!(self.subject.name, SubjectName::Floor | SubjectName::Channel) => {
                ("stream", context.seconds.max(0.05))
            }
            Case::UdpStream => ("udp-stream", context.seconds.max(0.05)),
            _ => ("pingpong", context.seconds),
        };
        // One-way traffic is measured as the kernel does it best: with Nagle's algorithm.
        let nodelay = matches!(self.case, Case::Pingpong | Case::Sleep);
        Options {
            talk,
            spin: self.spin,
            nodelay,
            size: self.size,
            seconds,
            connections: 1,
            share_cores: false,
        }
    }

    /// The number for a metric.
    fn sample(&self, metric: &str, both: &Both) -> Sample {
        let (server, driver) = (&both.server, &both.driver);
        let seconds = server.elapsed_ns as f64 / 1e9;
        let cpu = (server.cpu_ns + driver.cpu_ns) as f64;
        match (self.case, metric) {
            (Case::Sleep, "one_way_ns") => {
                Sample::spread(server.samples.iter().chain(&driver.samples).copied(), 1.0)
            }
            (Case::Sleep, _) => Sample::Value(cpu / (server.received + driver.received).max(1) as f64),
            // Half of a round trip.
            (_, "one_way_ns") => Sample::spread(driver.samples.iter().copied(), 0.5),
            (Case::Pingpong | Case::UdpPingpong, _) => {
                Sample::Value(cpu / (server.received + driver.received).max(1) as f64)
            }
            (_, "messages_per_s" | "connections_per_s") => Sample::Value(server.received as f64 / seconds),
            (_, "loss_ratio") => Sample::Value(1.0 - arrived(server) as f64 / driver.sent.max(1) as f64),
            (Case::UdpStream, "cpu_ns_per_op") => Sample::Value(cpu / arrived(server).max(1) as f64),
            (_, "bytes_per_s") => Sample::Value(server.bytes as f64 / seconds),
            _ => Sample::Value(cpu / driver.sent.max(1) as f64),
        }
    }

    /// Nothing lost, nothing doubled.
    fn check_counts(&self, both: &Both) -> Result<(), String> {
        let (server, driver) = (&both.server, &both.driver);
        let in_all = |r: &PeerResult| r.figures.get("messages_in_all").map(|n| *n as u64);
        if self.case == Case::UdpStream {
            let (sent, arrived) = (driver.sent, arrived(server));
            let is_right = arrived > 0 && arrived <= sent;
            return is_right.then_some(()).ok_or(format!("{sent} datagrams were sent, {arrived} arrived"));
        }
        let pairs = match self.case {
            _ if self.subject.plain_ring.is_some() => [(Some(driver.sent), in_all(server)); 2],
            Case::Stream | Case::Bulk => [(Some(driver.sent), in_all(server)); 2],
            Case::Churn => [(Some(driver.sent), Some(server.received)); 2],
            _ => [(Some(driver.sent), Some(server.received)), (Some(server.sent), Some(driver.received))],
        };
        for (sent, arrived) in pairs {
            if sent != arrived {
                return Err(format!("{sent:?} messages were sent, {arrived:?} arrived"));
            }
        }
        Ok(())
    }
}

impl Job for PairJob {
    fn title(&self) -> String {
        format!("{} {} B {}", self.case.name(), self.size, self.subject.title())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        self.metrics().iter().map(|m| self.figure(context, m)).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        if self.spin && context.machine.cores < 2 {
            return Err(Trouble::Skipped("two spinning programs need two cores".into()));
        }
        let options = self.options(context);
        let both = match &self.subject.plain_ring {
            Some(Ok(program)) => plain_ring::converse(context, program, &options)?,
            Some(Err(why)) => return Err(Trouble::Skipped(why.clone())),
            None => converse(context, &self.subject, &options)?,
        };
        self.check_counts(&both)?;
        // The C ring does not measure its processor time.
        let skip = |m: &str| m == "cpu_ns_per_op" && self.subject.plain_ring.is_some();
        let metrics = self.metrics().iter().filter(|m| !skip(m));
        let figures = metrics.map(|m| (self.figure(context, m), self.sample(m, &both))).collect();
        // Short connections stay on the kernel by design.
        let proof = self.subject.name == SubjectName::Bypath && self.case != Case::Churn;
        Ok(Outcome { figures, note: proof.then(|| both.proof.note()).flatten() })
    }
}

/// Messages that came, with the first one, which starts the clock of a stream.
fn arrived(server: &PeerResult) -> u64 {
    server.figures.get("messages_in_all").map_or(server.received, |n| *n as u64)
}

/// Starts a server and a driver and has them talk.
pub fn converse(context: &Context, subject: &Subject, options: &Options) -> Result<Both, Trouble> {
    let deadline = context.deadline(options.seconds);
    let stats = context.scratch.fresh("stats");
    let start = |which: usize, address: &str| {
        let name = format!("{} {}", subject.name.name(), ["server", "client"][which]);
        subject.start(context, Some(&stats), &name, &options.args(context, which, address))
    };
    let listen_at = match options.talk {
        // This one goes round the loopback addresses.
        "churn" if subject.address(context)?.starts_with("127.") => "0.0.0.0:0".into(),
        _ => subject.address(context)?,
    };
    let mut server = start(0, &listen_at)?;
    let address = server.ready(deadline)?;
    let mut driver = start(1, &address)?;
    // If the server fails, its reason says more than the driver's.
    let both = match driver.result(deadline) {
        Ok(driver) => Both { server: server.result(deadline)?, driver, proof: Proof::read(&stats) },
        Err(drivers_reason) => {
            drop(driver);
            let soon = std::time::Instant::now() + std::time::Duration::from_secs(1);
            return Err(match server.result(soon) {
                Err(servers_reason) => format!("{drivers_reason}; {servers_reason}"),
                Ok(_) => drivers_reason,
            }
            .into());
        }
    };
    // Best effort: the folder goes at the end anyway.
    let _ = std::fs::remove_file(&stats);
    let _ = std::fs::remove_file(&listen_at);
    Ok(both)
}

/// One way through the bare ring with 14 bytes, now.
pub fn bare_ring_ns(context: &Context) -> Option<f64> {
    if context.machine.cores < 2 {
        return None;
    }
    let subject = Subject::all(SubjectName::Floor, context, &Err(String::new())).swap_remove(0);
    let job = PairJob::new(Case::Pingpong, subject, true, 14);
    let outcome = job.run(context).ok()?;
    let (figure, sample) = outcome.figures.into_iter().next()?;
    crate::bench::record::Record::new(figure, &[sample], None).median
}
