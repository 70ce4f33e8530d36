//! redis-server at our end, asked by redis-benchmark at the peer's with fifty connections.

use super::stage::Stage;
use super::{Case, Who, figure};
use crate::bench::apps::find;
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::cpu::Tree;
use crate::bench::record::{Figure, Sample};
use std::cell::Cell;
use std::rc::Rc;

const SERVER: (&str, &str) = ("redis-server", "redis-server");
const CLIENT: (&str, &str) = ("redis-benchmark", "redis-tools");
const PORT: &str = "6379";
const CLIENTS: u64 = 50;
/// Requests of the first, uncounted run, which tells how many a counted run needs.
const PROBE: u64 = 10_000;
/// Shorter runs end before redis-benchmark has any resolution.
const SHORTEST: f64 = 0.25;

/// One subject.
pub struct Redis {
    stage: Rc<Stage>,
    /// Requests a second, as known so far.
    rate: Cell<Option<f64>>,
}

/// What a run of redis-benchmark yields.
struct Run {
    rate: f64,
    /// Of program, service, peer.
    cpu_ns: [u64; 3],
}

impl Redis {
    pub fn new(stage: &Rc<Stage>) -> Redis {
        Redis { stage: Rc::clone(stage), rate: Cell::new(None) }
    }

    fn whose(&self) -> impl Iterator<Item = Who> {
        let served = self.stage.subject.is_served();
        Who::ALL.into_iter().filter(move |who| served || *who != Who::Service)
    }

    fn ask(&self, context: &Context, server: &Child, requests: u64) -> Result<Run, Trouble> {
        let made = self.stage.ready()?;
        let (address, clients, requests) =
            (made.own().to_string(), CLIENTS.to_string(), requests.to_string());
        let args = ["-h", &address, "-p", PORT, "-t", "get", "--csv", "-c", &clients, "-n", &requests];
        let command = made.peer_installed(context, &find(CLIENT)?, &args.map(str::to_owned))?;
        let cpu = || [Some(server.pid()), made.service()].map(|pid| pid.map_or(0, |pid| Tree(pid).cpu_ns()));
        let before = cpu();
        let deadline = context.deadline(context.seconds.max(SHORTEST));
        let ended = Child::spawn(command, CLIENT.0)?.finish(deadline)?;
        let after = cpu();
        let line = ended.output.iter().find(|line| line.starts_with("\"GET"));
        let rate = line.and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
        match rate {
            Some(rate) if rate.is_finite() && rate > 0.0 => Ok(Run {
                rate,
                cpu_ns: [
                    after[0].saturating_sub(before[0]),
                    after[1].saturating_sub(before[1]),
                    ended.cpu_ns,
                ],
            }),
            _ => Err(format!("redis-benchmark printed no rate: {:?}", ended.output).into()),
        }
    }
}

impl Job for Redis {
    fn title(&self) -> String {
        format!("redis-benchmark -c{CLIENTS} {}", self.stage.subject.name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let of = |metric, mode| Figure {
            mode,
            // What redis-benchmark stores unless told otherwise.
            size: Some(3),
            burst: Some(CLIENTS),
            ..figure(context, Case::Redis, self.stage.subject, metric)
        };
        let cpu = self.whose().map(|who| of("cpu_ns_per_request", Some(who.mode(None))));
        std::iter::once(of("requests_per_s", None)).chain(cpu).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        find(CLIENT)?;
        let program = find(SERVER)?;
        let made = self.stage.ready()?;
        let address = made.own().to_string();
        let args = [
            "--save",
            "",
            "--appendonly",
            "no",
            "--bind",
            &address,
            "--port",
            PORT,
            "--protected-mode",
            "no",
        ];
        let mut server = Child::spawn(made.installed(context, &program, &args.map(str::to_owned)), SERVER.0)?;
        let deadline = context.deadline(0.0);
        while !server.line(deadline)?.contains("eady to accept connections") {}
        let known = match self.rate.get() {
            Some(rate) => rate,
            None => self.ask(context, &server, PROBE)?.rate,
        };
        let requests = (known * context.seconds.max(SHORTEST)) as u64;
        let run = self.ask(context, &server, requests)?;
        self.rate.set(Some(run.rate));
        let cpu =
            self.whose().map(|who| Sample::Value(run.cpu_ns[who as usize] as f64 / requests.max(1) as f64));
        let samples = std::iter::once(Sample::Value(run.rate)).chain(cpu);
        Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note: made.note() })
    }
}
