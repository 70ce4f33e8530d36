//! Four busy ping-pong pairs that share the cores: does waiting get out of the way of work?

use super::pair::Options;
use super::subject::Subject;
use crate::bench::args::{Case, SubjectName};
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::peer::PeerResult;
use crate::bench::proof::Proof;
use crate::bench::record::{Figure, Sample};

const PAIRS: u64 = 4;
const SIZE: usize = 64;
/// Time for all pairs to be connected and checked before the clock starts.
const HEAD_START_NS: u64 = 200_000_000;

/// One subject.
pub struct FourPairs {
    subject: Subject,
}

impl FourPairs {
    pub fn new(subject: Subject) -> FourPairs {
        FourPairs { subject }
    }

    fn figure(&self, context: &Context, metric: &'static str) -> Figure {
        Figure {
            mode: Some("block"),
            size: Some(SIZE as u64),
            burst: Some(PAIRS),
            ..self.subject.figure(context, Case::Oversubscribed, metric)
        }
    }
}

impl Job for FourPairs {
    fn title(&self) -> String {
        format!("oversubscribed {}", self.subject.title())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        ["messages_per_s", "cpu_ns_per_op"].map(|m| self.figure(context, m)).into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let seconds = context.seconds.max(0.15);
        let deadline = context.deadline(seconds + HEAD_START_NS as f64 / 1e9);
        let stats = context.scratch.fresh("stats");
        // Eight processes on two cores, as the scheduler likes.
        let options = Options {
            talk: "pingpong",
            nodelay: true,
            size: SIZE,
            seconds,
            connections: 1,
            share_cores: true,
            spin: false,
        };
        let start = |which: usize, address: &str, more: &[String]| {
            let mut args = options.args(context, which, address);
            args.extend_from_slice(more);
            let name = format!("{} {}", self.subject.name.name(), ["server", "client"][which]);
            self.subject.start(context, Some(&stats), &name, &args)
        };
        let mut servers: Vec<Child> = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..PAIRS {
            let mut server = start(0, &self.subject.address(context)?, &[])?;
            addresses.push(server.ready(deadline)?);
            servers.push(server);
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let start_at = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + HEAD_START_NS;
        let more = ["--start-at".to_owned(), start_at.to_string()];
        let mut drivers: Vec<Child> =
            addresses.iter().map(|a| start(1, a, &more)).collect::<Result<_, _>>()?;

        let results = |children: &mut [Child]| -> Result<Vec<PeerResult>, String> {
            children.iter_mut().map(|c| c.result(deadline)).collect()
        };
        let (drivers, servers) = (results(&mut drivers)?, results(&mut servers)?);
        let (mut rate, mut cpu, mut messages) = (0.0, 0, 0);
        for (driver, server) in drivers.iter().zip(&servers) {
            if driver.sent != server.received || server.sent != driver.received {
                return Err("messages were lost or doubled".to_owned().into());
            }
            let both_ways = driver.received + server.received;
            rate += both_ways as f64 * 1e9 / driver.elapsed_ns as f64;
            cpu += driver.cpu_ns + server.cpu_ns;
            messages += both_ways;
        }
        let values = [rate, cpu as f64 / messages.max(1) as f64];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        let proof = self.subject.name == SubjectName::Bypath;
        Ok(Outcome { figures, note: proof.then(|| Proof::read(&stats).note()).flatten() })
    }
}
