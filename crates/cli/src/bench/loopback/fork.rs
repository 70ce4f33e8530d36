//! What a forked child costs a program, and one that executes another program: without a connection, and with one
//! that carries bytes.

use super::subject::Subject;
use crate::bench::args::{Case, SubjectName};
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::peer::PeerResult;
use crate::bench::proof::Proof;
use crate::bench::record::{Figure, Sample};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program: in C, as it is small and calls nothing but `fork`.
pub const SOURCE: &str = include_str!("../fork.c");
/// From before the fork to after the wait.
pub const METRICS: [&str; 2] = ["fork_ns", "fork_exec_ns"];

/// Length of the run that proves that the connection is upgraded.
const PROOF_SECONDS: f64 = 0.005;

/// One subject. `kernel-tcp` is the plain program.
pub struct Fork {
    subject: Subject,
    connections: u64,
    program: Result<PathBuf, String>,
}

impl Fork {
    pub fn new(subject: Subject, connections: u64, program: Result<PathBuf, String>) -> Fork {
        Fork { subject, connections, program }
    }

    fn start(
        &self,
        context: &Context,
        core: usize,
        stats: Option<&Path>,
        program: &Path,
        args: &[&str],
    ) -> Result<Child, Trouble> {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "peer", "--talk", "launch"]);
        if let Some(core) = context.core(core) {
            command.args(["--cpu", &core.to_string()]);
        }
        command.arg("--");
        if self.subject.name == SubjectName::Bypath {
            let run = context.under_bypath(stats);
            command.arg(run.get_program()).args(run.get_args());
        }
        command.arg(program).args(args);
        Ok(Child::spawn(command, &format!("{} {}", self.subject.name.name(), args[0]))?)
    }

    /// One run of the program, with another at the end of its connection.
    fn drive(&self, context: &Context, seconds: f64, stats: Option<&Path>) -> Result<PeerResult, Trouble> {
        let program = self.program.as_ref().map_err(|why| Trouble::Skipped(why.clone()))?;
        let deadline = context.deadline(2.0 * seconds);
        let mut server = match self.connections {
            0 => None,
            _ => Some(self.start(context, 0, stats, program, &["serve"])?),
        };
        let port = server.as_mut().map_or(Ok("0".into()), |s| s.ready(deadline))?;
        let args = ["drive", &port, &seconds.to_string()];
        let driver = self.start(context, 1, stats, program, &args)?.result(deadline)?;
        let received = server.map_or(Ok(0), |mut s| s.result(deadline).map(|r| r.received))?;
        if received != driver.sent {
            return Err(format!("{} messages were sent, {received} arrived", driver.sent).into());
        }
        Ok(driver)
    }
}

impl Job for Fork {
    fn title(&self) -> String {
        format!("fork, {} connections, {}", self.connections, self.subject.title())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |m: &'static str| Figure {
            burst: Some(self.connections),
            cc: None,
            ..self.subject.figure(context, Case::Fork, m)
        };
        METRICS.into_iter().map(figure).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // Enough for a few hundred children.
        let mut driver = self.drive(context, context.seconds.clamp(0.1, 0.5), None)?;
        let mut note = None;
        if self.connections > 0 && self.subject.name == SubjectName::Bypath {
            // In a run of its own: each counted child would have to write its counters.
            let stats = context.scratch.fresh("stats");
            self.drive(context, PROOF_SECONDS, Some(&stats))?;
            note = Proof::read(&stats).note();
        }
        let mut figures = Vec::new();
        for figure in self.figures(context) {
            let samples = driver.series.remove(figure.metric);
            let samples = samples.ok_or_else(|| format!("no samples of {}", figure.metric))?;
            figures.push((figure, Sample::spread(samples, 1.0)));
        }
        Ok(Outcome { figures, note })
    }
}
