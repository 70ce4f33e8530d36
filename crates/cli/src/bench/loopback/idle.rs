//! Many connections that rest between two processes.

use super::pair::{Options, converse};
use super::subject::Subject;
use crate::bench::args::{Case, SubjectName};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};

/// One subject with some number of connections.
pub struct Idle {
    subject: Subject,
    connections: usize,
    /// What a resting process and a resting connection cost is measured with this many only.
    many: usize,
}

impl Idle {
    pub fn new(subject: Subject, connections: usize, many: usize) -> Idle {
        Idle { subject, connections, many }
    }

    fn metrics(&self) -> &'static [&'static str] {
        if self.connections == self.many {
            &["epoll_wait_ns", "idle_cpu_share", "resident_bytes_per_connection"]
        } else {
            &["epoll_wait_ns"]
        }
    }
}

impl Job for Idle {
    fn title(&self) -> String {
        format!("idle {} {}", self.connections, self.subject.title())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |m: &&'static str| Figure {
            mode: Some("block"),
            size: Some(1024),
            burst: Some(self.connections as u64),
            ..self.subject.figure(context, Case::Idle, m)
        };
        self.metrics().iter().map(figure).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let rests = self.connections == self.many;
        let seconds = if rests && !context.quick { 2.0 } else { 0.3 };
        let options = Options {
            talk: "idle",
            nodelay: true,
            size: 1024,
            seconds,
            connections: self.connections,
            share_cores: false,
            spin: false,
        };
        let both = converse(context, &self.subject, &options)?;
        let (server, driver) = (&both.server, &both.driver);
        if server.received != self.connections as u64 {
            return Err(format!("{} connections arrived", server.received).into());
        }
        let share = server.cpu_ns as f64 / server.elapsed_ns.max(1) as f64
            + driver.cpu_ns as f64 / driver.elapsed_ns.max(1) as f64;
        let grown =
            |r: &crate::bench::peer::PeerResult| r.figures.get("pss_bytes").copied().unwrap_or(f64::NAN);
        let resident = (grown(server) + grown(driver)) / self.connections as f64;
        let samples = [
            Sample::spread(server.samples.iter().copied(), 1.0),
            Sample::Value(share),
            Sample::Value(resident),
        ];
        let figures = self.figures(context).into_iter().zip(samples).collect();
        let proof = self.subject.name == SubjectName::Bypath;
        Ok(Outcome {
            figures,
            note: proof.then(|| both.proof.note_of_connections(self.connections as u64)).flatten(),
        })
    }
}
