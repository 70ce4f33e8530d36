//! Two programs of the bench that talk: one at our end, one of the kernel's at the peer's.

use super::stage::{Made, Stage};
use super::{Case, Subject, Who, figure};
use crate::bench::child::Child;
use crate::bench::context::{CUBIC, Context, Job, Outcome, Trouble};
use crate::bench::peer::{BESIDE, PeerResult};
use crate::bench::record::{Figure, Sample};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Octets of a write of a stream.
const BULK: usize = 64 << 10;
/// What rests is looked at for so long, as the service may do something each second.
const REST: f64 = 2.0;
const QUICK_REST: f64 = 0.3;

/// What they say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Pingpong { spin: bool },
    BulkSend,
    BulkReceive,
    Churn,
    Idle { connections: u32 },
}

/// One subject in one of these.
pub struct Pair {
    stage: Rc<Stage>,
    kind: Kind,
}

/// What both programs report.
struct Both {
    program: PeerResult,
    peer: PeerResult,
}

impl Kind {
    const fn case(self) -> Case {
        match self {
            Kind::Pingpong { .. } => Case::Pingpong,
            Kind::BulkSend => Case::BulkSend,
            Kind::BulkReceive => Case::BulkReceive,
            Kind::Churn => Case::Churn,
            Kind::Idle { .. } => Case::Idle,
        }
    }

    /// Of what rests, only the service is of interest.
    pub const fn makes_sense(self, subject: Subject) -> bool {
        !matches!(self, Kind::Idle { .. }) || subject.is_served()
    }

    const fn spins(self) -> Option<bool> {
        match self {
            Kind::Pingpong { spin } => Some(spin),
            _ => None,
        }
    }

    fn talk(self) -> &'static str {
        match self {
            Kind::Pingpong { .. } => "pingpong",
            Kind::BulkSend | Kind::BulkReceive => "stream",
            Kind::Churn => "churn",
            Kind::Idle { .. } => "idle",
        }
    }

    const fn size(self) -> usize {
        match self {
            Kind::BulkSend | Kind::BulkReceive => BULK,
            _ => 1,
        }
    }

    /// The main figure, and that of processors.
    const fn metrics(self) -> (&'static str, Option<&'static str>) {
        match self {
            Kind::Pingpong { .. } => ("round_trip_ns", Some("cpu_ns_per_request")),
            Kind::BulkSend | Kind::BulkReceive => ("bits_per_s", Some("cpu_ns_per_byte")),
            Kind::Churn => ("connections_per_s", Some("cpu_ns_per_request")),
            Kind::Idle { .. } => ("idle_cpu_share", None),
        }
    }

    fn seconds(self, context: &Context) -> f64 {
        match self {
            Kind::Idle { .. } if context.quick => QUICK_REST,
            Kind::Idle { .. } => REST,
            _ => context.seconds,
        }
    }

    /// As arguments of a measured program.
    fn args(self, context: &Context, role: &str, address: &str, service: Option<u32>) -> Vec<String> {
        let mut args: Vec<String> =
            ["--role", role, "--talk", self.talk(), "--addr", address].map(Into::into).into();
        let seconds = self.seconds(context);
        args.extend(["--size".into(), self.size().to_string(), "--seconds".into(), seconds.to_string()]);
        if let Kind::Idle { connections } = self {
            args.extend(["--connections".into(), connections.to_string()]);
        }
        args.extend((self.spins() == Some(true)).then(|| "--spin".into()));
        // Streams are measured as the kernel does them best: with Nagle's algorithm.
        args.extend((self.talk() != "stream").then(|| "--nodelay".into()));
        args.extend(service.into_iter().flat_map(|pid| ["--beside".into(), pid.to_string()]));
        args
    }

    /// What counts is what arrived: nothing is lost, nothing doubled.
    fn check(self, both: &Both) -> Result<(), String> {
        let Both { program, peer } = both;
        let in_all = |r: &PeerResult| r.figures.get("messages_in_all").map_or(0, |n| *n as u64);
        let (sent, arrived) = match self {
            Kind::BulkSend => (program.sent, in_all(peer)),
            Kind::BulkReceive => (peer.sent, in_all(program)),
            Kind::Pingpong { .. } if program.sent != program.received => (program.sent, program.received),
            Kind::Pingpong { .. } | Kind::Churn => (program.sent, peer.received),
            Kind::Idle { connections } => (connections.into(), peer.received),
        };
        if sent == arrived { Ok(()) } else { Err(format!("{sent} were sent, {arrived} arrived")) }
    }

    fn main_sample(self, both: &Both) -> Sample {
        let Both { program, peer } = both;
        let per_second = |n: u64, r: &PeerResult| n as f64 * 1e9 / r.elapsed_ns.max(1) as f64;
        match self {
            Kind::Pingpong { .. } => Sample::spread(program.samples.iter().copied(), 1.0),
            Kind::BulkSend => Sample::Value(per_second(peer.bytes * 8, peer)),
            Kind::BulkReceive => Sample::Value(per_second(program.bytes * 8, program)),
            Kind::Churn => Sample::Value(per_second(peer.received, peer)),
            Kind::Idle { .. } => Sample::Value(self.service_ns(both) / program.elapsed_ns.max(1) as f64),
        }
    }

    /// The service's time of the processors, as it was told by who knows when it began: who receives a stream, who calls.
    fn service_ns(self, both: &Both) -> f64 {
        let who = if self == Kind::BulkSend { &both.peer } else { &both.program };
        who.figures.get(BESIDE).copied().unwrap_or(f64::NAN)
    }

    fn cpu(self, who: Who, both: &Both) -> f64 {
        let Both { program, peer } = both;
        let ns = match who {
            Who::Program => program.cpu_ns as f64,
            Who::Service => self.service_ns(both),
            Who::Peer => peer.cpu_ns as f64,
        };
        let done = match self {
            Kind::BulkSend => peer.bytes,
            Kind::BulkReceive => program.bytes,
            _ => peer.received,
        };
        ns / done.max(1) as f64
    }
}

impl Pair {
    pub fn new(stage: &Rc<Stage>, kind: Kind) -> Pair {
        Pair { stage: Rc::clone(stage), kind }
    }

    fn whose(&self) -> impl Iterator<Item = Who> {
        let served = self.stage.subject.is_served();
        Who::ALL.into_iter().filter(move |who| served || *who != Who::Service)
    }

    fn converse(&self, context: &Context, made: &Made) -> Result<Both, Trouble> {
        let (kind, deadline) = (self.kind, context.deadline(self.kind.seconds(context)));
        let args = |role: &str, address: &str| kind.args(context, role, address, made.service());
        let at = |line: String, address: std::net::IpAddr| {
            let port = line.rsplit(':').next().unwrap_or_default();
            format!("{address}:{port}")
        };
        let name = |what: &str| format!("{} {what}", self.stage.subject.name());
        let (mut server, mut driver);
        if kind == Kind::BulkReceive {
            let listen = format!("{}:0", made.own());
            server = Child::spawn(made.program(context, &args("serve", &listen)), &name("program"))?;
            let to = at(server.ready(deadline)?, made.own());
            driver = Child::spawn(made.peer_program(context, &args("drive", &to))?, &name("peer"))?;
        } else {
            let peer = made.peer_program(context, &args("serve", "0.0.0.0:0"))?;
            server = Child::spawn(peer, &name("peer"))?;
            let whom = if kind == Kind::Churn { made.before_peers() } else { made.peer() };
            let to = at(server.ready(deadline)?, whom);
            driver = Child::spawn(made.program(context, &args("drive", &to)), &name("program"))?;
        }
        let driven = driver.result(deadline).map_err(|drivers_reason| {
            drop(driver);
            // If the server fails, its reason says more than the driver's.
            match server.result(Instant::now() + Duration::from_secs(1)) {
                Err(servers_reason) => format!("{drivers_reason}; {servers_reason}"),
                Ok(_) => drivers_reason,
            }
        })?;
        let served = server.result(deadline)?;
        Ok(match kind {
            Kind::BulkReceive => Both { program: served, peer: driven },
            _ => Both { program: driven, peer: served },
        })
    }
}

impl Job for Pair {
    fn title(&self) -> String {
        let spins = self.kind.spins().map_or("", |spin| if spin { " spin" } else { " block" });
        format!("{}{spins} {}", self.kind.case().name(), self.stage.subject.name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let (kind, (main, cpu)) = (self.kind, self.kind.metrics());
        let of = |metric, mode| Figure {
            mode,
            size: Some(kind.size() as u64),
            burst: if let Kind::Idle { connections } = kind { Some(connections.into()) } else { None },
            ..figure(context, kind.case(), self.stage.subject, metric)
        };
        let mode = kind.spins().map(|spin| if spin { "spin" } else { "block" });
        let mut figures = vec![of(main, mode)];
        if let Some(cpu) = cpu {
            figures.extend(self.whose().map(|who| of(cpu, Some(who.mode(kind.spins())))));
        }
        figures
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        if self.kind.spins() == Some(true) && context.machine.cores < 2 {
            return Err(Trouble::Skipped("two spinning programs need two cores".into()));
        }
        let made = self.stage.ready()?;
        let both = self.converse(context, made)?;
        self.kind.check(&both)?;
        let cpu = self.whose().map(|who| Sample::Value(self.kind.cpu(who, &both)));
        let samples = std::iter::once(self.kind.main_sample(&both)).chain(cpu);
        let figures = self.figures(context).into_iter().zip(samples).collect();
        let cc = both.peer.cc.filter(|cc| cc != CUBIC);
        let note = cc.map(|cc| format!("the peer's congestion control is {cc}: there is no {CUBIC} here"));
        Ok(Outcome { figures, note: note.or_else(|| made.note()) })
    }
}
