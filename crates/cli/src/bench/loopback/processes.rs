//! What being under `bypath run` costs where it cannot help: other system calls, and starting a program.

use super::subject::Subject;
use crate::bench::args::Case;
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::process::Command;
use std::time::Instant;

/// The calls, as the measured program names them.
const CALLS: [&str; 4] = ["write-devnull", "read-empty-pipe", "recv-empty-unix", "fcntl-getfl"];

/// System calls on descriptors that are not TCP sockets. Subject `kernel-tcp` is the plain program.
pub struct ForeignCall {
    subject: Subject,
}

impl ForeignCall {
    pub fn new(subject: Subject) -> ForeignCall {
        ForeignCall { subject }
    }
}

impl Job for ForeignCall {
    fn title(&self) -> String {
        format!("foreign-call {}", self.subject.title())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |call: &str| Figure {
            link: Some(call.into()),
            cc: None,
            ..self.subject.figure(context, Case::ForeignCall, "ns_per_call")
        };
        CALLS.iter().map(|call| figure(call)).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let seconds = context.seconds.clamp(0.1, 0.5);
        let mut args = vec!["--talk".into(), "calls".into(), "--seconds".into(), seconds.to_string()];
        if let Some(core) = context.core(1) {
            args.extend(["--cpu".into(), core.to_string()]);
        }
        let name = format!("{} program", self.subject.name.name());
        let result = self.subject.start(context, None, &name, &args)?.result(context.deadline(seconds))?;
        let mut figures = Vec::new();
        for (figure, call) in self.figures(context).into_iter().zip(CALLS) {
            let ns = result.figures.get(call).ok_or_else(|| format!("{name}: no figure for {call}"))?;
            figures.push((figure, Sample::Value(*ns)));
        }
        Ok(Outcome { figures, note: None })
    }
}

/// `bypath run -- /bin/true` against `/bin/true`, in turn.
pub struct Exec;

impl Job for Exec {
    fn title(&self) -> String {
        "exec".into()
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        vec![Figure {
            bench: "loopback",
            case: Case::Exec.name().into(),
            subject: "bypath",
            link: None,
            mode: None,
            size: None,
            burst: None,
            profile: Some(context.profile.clone()),
            cc: None,
            metric: "exec_added_ns",
        }]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut added = Vec::new();
        for _ in 0..if context.quick { 20 } else { 60 } {
            let plain = time(context, Command::new("/bin/true"))?;
            let mut command = context.under_bypath(None);
            command.arg("/bin/true");
            added.push(time(context, command)? - plain);
        }
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(added.clone()))).collect();
        Ok(Outcome { figures, note: None })
    }
}

/// From before the start to after the end, in nanoseconds.
fn time(context: &Context, command: Command) -> Result<f64, Trouble> {
    let before = Instant::now();
    let mut child = Child::spawn(command, "true")?;
    child.finish(context.deadline(0.0))?;
    Ok(before.elapsed().as_nanos() as f64)
}
