//! PostgreSQL with pgbench: SELECTs by primary key, one client; each connection has a server process of its own.

use super::launch::{Launcher, Program, find};
use super::server::{Place, ReadyWhen, Server, servers};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use rustix::process::Signal;
use std::cell::Cell;
use std::rc::Rc;

const SERVER: Program = ("postgres", "postgresql");
const CLIENT: Program = ("pgbench", "postgresql");
const USER: &str = "bench";

struct Postgres {
    server: Rc<Server>,
    /// Whether the table is there.
    filled: Cell<bool>,
}

/// Kernel TCP and Bypath, each with a cluster of its own.
pub fn plan(chosen: &dyn Fn(SubjectName) -> bool) -> Group {
    let server = |subject| {
        Server::new(subject, SERVER, ReadyWhen::Logs("ready to accept connections"), arguments)
            .prepared(make_cluster)
            .refusing_root()
            // Killed, it would leave shared memory behind.
            .stopped_by(Signal::INT)
    };
    servers(&[SubjectName::KernelTcp, SubjectName::Bypath], chosen, server)
        .into_iter()
        .map(|server| Box::new(Postgres { server, filled: Cell::new(false) }) as Box<dyn Job>)
        .collect()
}

fn make_cluster(context: &Context, launcher: &Launcher, place: &Place) -> Result<(), Trouble> {
    let data = place.socket.display().to_string();
    let args = ["-D", &data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"];
    launcher.prepare(context, &find(("initdb", SERVER.1))?, &args.map(Into::into)).map(drop)
}

fn arguments(place: &Place) -> Vec<String> {
    let (data, port) = (place.socket.display().to_string(), place.port.to_string());
    let mut args: Vec<String> = ["-D", &data, "-p", &port].map(Into::into).into();
    // Nothing but the queries: no disk, no housekeeping in the background.
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "autovacuum=off",
        "logging_collector=off",
    ] {
        args.extend(["-c".into(), setting.into()]);
    }
    args
}

/// The arguments that lead pgbench to the server.
fn to(place: &Place, what: &[&str]) -> Vec<String> {
    let port = place.port.to_string();
    let connection = ["-h", "127.0.0.1", "-p", &port, "-U", USER, "postgres"];
    what.iter().chain(&connection).map(|word| (*word).to_owned()).collect()
}

impl Job for Postgres {
    fn title(&self) -> String {
        format!("pgbench {}", self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |m| Figure {
            burst: Some(1),
            ..figure(context, "postgres pgbench -S -c1", self.server.subject(), m)
        };
        ["requests_per_s", "cpu_ns_per_request"].map(figure).into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // pgbench counts in whole seconds.
        let seconds = context.seconds.ceil().max(1.0);
        if !self.filled.replace(true) {
            // 100,000 rows, made by the server.
            self.server.serve(context, CLIENT, 10.0, |place| to(place, &["-i", "-q", "-I", "dtGp"]))?;
        }
        let length = seconds.to_string();
        let run = ["-S", "-n", "-c", "1", "-j", "1", "-T", &length];
        let served = self.server.serve(context, CLIENT, seconds, |place| to(place, &run))?;
        let number = |start: &str| -> Option<f64> {
            let line = served.output.iter().find_map(|l| l.strip_prefix(start))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let (Some(requests), Some(rate)) =
            (number("number of transactions actually processed:"), number("tps ="))
        else {
            return Err(format!("pgbench printed no totals: {:?}", served.output).into());
        };
        if requests < 1.0 || number("number of failed transactions:").is_some_and(|n| n > 0.0) {
            return Err(format!("transactions failed: {:?}", served.output).into());
        }
        let values = [rate, served.cpu_ns as f64 / requests];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
