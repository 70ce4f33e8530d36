//! sockperf, TCP ping-pong: round trips per second, blocking and spinning.

use super::server::{ReadyWhen, Server, servers};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::rc::Rc;

const PROGRAM: (&str, &str) = ("sockperf", "sockperf");
const SIZE: u64 = 14;

struct Sockperf {
    server: Rc<Server>,
}

/// Kernel TCP and Bypath.
pub fn plan(chosen: &dyn Fn(SubjectName) -> bool) -> Group {
    let server = |subject| {
        Server::new(subject, PROGRAM, ReadyWhen::Accepts, |place| {
            ["server", "--tcp", "-i", "127.0.0.1", "-p", &place.port.to_string()].map(Into::into).into()
        })
    };
    servers(&[SubjectName::KernelTcp, SubjectName::Bypath], chosen, server)
        .into_iter()
        .map(|server| Box::new(Sockperf { server }) as Box<dyn Job>)
        .collect()
}

impl Job for Sockperf {
    fn title(&self) -> String {
        format!("sockperf {}", self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |m| Figure {
            mode: Some("block"),
            size: Some(SIZE),
            burst: Some(1),
            ..figure(context, "sockperf ping-pong", self.server.subject(), m)
        };
        ["requests_per_s", "cpu_ns_per_request"].map(figure).into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let seconds = context.seconds.ceil().max(1.0);
        let served = self.server.serve(context, PROGRAM, seconds, |place| {
            let (port, size, seconds) = (place.port.to_string(), SIZE.to_string(), seconds.to_string());
            // More round trips than its own guess of a maximum end it with an error.
            [
                "ping-pong",
                "--tcp",
                "--mps",
                "5000000",
                "-i",
                "127.0.0.1",
                "-p",
                &port,
                "-m",
                &size,
                "-t",
                &seconds,
            ]
            .map(Into::into)
            .into()
        })?;
        let number = |line: &str, name: &str| -> Option<f64> {
            let rest = line.split_once(name)?.1;
            rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
        };
        // The whole run for the processor time, the part after the warm-up for the rate.
        let of = |title: &str| {
            let line = served.output.iter().find(|l| l.contains(title))?;
            Some((number(line, "ReceivedMessages=")?, number(line, "RunTime=")?))
        };
        let (Some((all, _)), Some((valid, time))) = (of("[Total Run]"), of("[Valid Duration]")) else {
            return Err(format!("sockperf printed no totals: {:?}", served.output).into());
        };
        let values = [valid / time, served.cpu_ns as f64 / all.max(1.0)];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
