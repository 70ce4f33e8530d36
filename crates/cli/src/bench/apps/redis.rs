//! redis-server with redis-benchmark: SET and GET, one client, fifty, fifty with sixteen requests in flight.

use super::server::{Place, ReadyWhen, Server, servers};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::cell::Cell;
use std::rc::Rc;

const CLIENT: (&str, &str) = ("redis-benchmark", "redis-tools");
/// Requests of the first, uncounted run, which tells how many a counted run needs: a tenth of a second's or so.
const PROBE: u64 = 2000;
/// Shorter runs end before redis-benchmark has any resolution.
const SHORTEST: f64 = 0.25;

struct Redis {
    server: Rc<Server>,
    test: &'static str,
    clients: u64,
    pipeline: u64,
    /// Requests per second, as known so far.
    rate: Cell<Option<f64>>,
}

/// One group for each of the six, or of the two that `--quick` has time for.
pub fn plan(context: &Context, chosen: &dyn Fn(SubjectName) -> bool) -> Vec<Group> {
    let subjects = [SubjectName::KernelTcp, SubjectName::Unix, SubjectName::Bypath];
    let server = |subject| {
        Server::new(
            subject,
            ("redis-server", "redis-server"),
            ReadyWhen::Says("eady to accept connections"),
            |place| {
                let mut args: Vec<String> =
                    ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"].map(Into::into).into();
                args.extend(["--port".into(), if place.unix { "0".into() } else { place.port.to_string() }]);
                if place.unix {
                    args.extend(["--unixsocket".into(), place.socket.to_string_lossy().into()]);
                }
                args
            },
        )
    };
    let servers = servers(&subjects, chosen, server);
    let mut groups = Vec::new();
    let loads: &[(u64, u64)] = if context.quick { &[(1, 1), (50, 1)] } else { &[(1, 1), (50, 1), (50, 16)] };
    let tests: &[&'static str] = if context.quick { &["GET"] } else { &["SET", "GET"] };
    for (clients, pipeline) in loads.iter().copied() {
        for test in tests.iter().copied() {
            let job = |server: &Rc<Server>| {
                let rate = Cell::new(None);
                Box::new(Redis { server: Rc::clone(server), test, clients, pipeline, rate }) as Box<dyn Job>
            };
            groups.push(servers.iter().map(job).collect());
        }
    }
    groups
}

impl Redis {
    /// Requests per second, and what else is known of the run.
    fn requests(
        &self,
        context: &Context,
        seconds: f64,
        n: u64,
    ) -> Result<(f64, super::server::Served), Trouble> {
        let n = n.max(self.clients * self.pipeline);
        let args = |place: &Place| {
            let mut args: Vec<String> = if place.unix {
                vec!["-s".into(), place.socket.to_string_lossy().into()]
            } else {
                vec!["-h".into(), "127.0.0.1".into(), "-p".into(), place.port.to_string()]
            };
            args.extend(
                ["-t", &self.test.to_lowercase(), "--csv", "-c", &self.clients.to_string()].map(Into::into),
            );
            args.extend(["-P", &self.pipeline.to_string(), "-n", &n.to_string()].map(Into::into));
            args
        };
        let served = self.server.serve(context, CLIENT, seconds, args)?;
        let line = served.output.iter().find(|l| l.starts_with(&format!("\"{}", self.test)));
        let rate = line.and_then(|l| l.split(',').nth(1)?.trim_matches('"').parse::<f64>().ok());
        match rate {
            Some(rate) if rate.is_finite() && rate > 0.0 => Ok((rate, served)),
            _ => Err(format!("redis-benchmark printed no rate: {:?}", served.output).into()),
        }
    }
}

impl Job for Redis {
    fn title(&self) -> String {
        let Redis { test, clients, pipeline, .. } = self;
        format!("redis-benchmark {test} -c{clients} -P{pipeline} {}", self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let pipeline = if self.pipeline > 1 { format!(" -P{}", self.pipeline) } else { String::new() };
        let case = format!("redis-benchmark {} -c{}{pipeline}", self.test, self.clients);
        ["requests_per_s", "cpu_ns_per_request"]
            .map(|m| Figure {
                // What redis-benchmark stores unless told otherwise.
                size: Some(3),
                burst: Some(self.pipeline),
                ..figure(context, &case, self.server.subject(), m)
            })
            .into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let seconds = context.seconds.max(SHORTEST);
        let known = match self.rate.get() {
            Some(rate) => rate,
            None => self.requests(context, seconds, PROBE * self.clients.min(5) * self.pipeline)?.0,
        };
        let n = (known * seconds) as u64;
        let (rate, served) = self.requests(context, seconds, n)?;
        self.rate.set(Some(rate));
        let values = [rate, served.cpu_ns as f64 / n.max(1) as f64];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
