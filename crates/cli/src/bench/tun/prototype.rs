//! The same system calls in plain C: what the library adds to them.

use super::send::Subject;
use super::stage::{self, figure};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::tun::Device;
use std::path::PathBuf;
use std::process::Command;

/// The program.
pub const SOURCE: &str = include_str!("../tun.c");

/// The C program in one mode, at one size.
pub struct Bare {
    pub subject: Subject,
    pub size: usize,
    pub program: Result<PathBuf, String>,
}

/// What it prints.
#[derive(serde::Deserialize)]
struct Printed {
    #[serde(default)]
    sent: u64,
    #[serde(default)]
    received: u64,
    #[serde(default)]
    elapsed_ns: u64,
    #[serde(default)]
    cpu_ns: u64,
    #[serde(default)]
    median_ns: f64,
    error: Option<String>,
}

impl Job for Bare {
    fn title(&self) -> String {
        format!("send {} B C {}", self.size, self.subject.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        let of = |metric| figure("send", self.subject.name(), Some("c"), self.size, metric);
        vec![of("ns_per_packet"), of("cpu_share"), of("loss_ratio")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let program = self.program.as_ref().map_err(|e| Trouble::Skipped(e.clone()))?;
        let made = Device::tun("benchc%d").mtu(stage::MTU).address(stage::KERNEL, 24).persistent(true).open();
        let name = made.map_err(|e| e.to_string())?.name().to_owned();
        // It is closed, so that the program has its queue; removed when this ends.
        let _removed = Removed(&name);
        let mut command = Command::new(program);
        command.arg(if self.subject == Subject::Assemble { "assemble" } else { "writev" }).arg(&name);
        command.args([stage::KERNEL.to_string(), stage::TO.port().to_string(), self.size.to_string()]);
        command.arg(context.seconds.to_string()).arg(context.core(1).map_or("-1".into(), |c| c.to_string()));
        let out = command.output().map_err(|e| format!("cannot start the C program: {e}"))?;
        let printed: Printed = serde_json::from_slice(&out.stdout)
            .map_err(|_| format!("the C program: {} {}", out.status, String::from_utf8_lossy(&out.stdout)))?;
        if let Some(error) = printed.error {
            return Err(Trouble::Failed(format!("the C program: {error}")));
        }
        let loss = 1.0 - printed.received as f64 / printed.sent.max(1) as f64;
        if printed.sent == 0 || loss > super::send::LOSS_LIMIT {
            return Err(Trouble::Failed(format!(
                "the C program: {} of {} datagrams arrived",
                printed.received, printed.sent
            )));
        }
        let samples = [
            Sample::Value(printed.median_ns),
            Sample::Value(printed.cpu_ns as f64 / printed.elapsed_ns.max(1) as f64),
            Sample::Value(loss),
        ];
        Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note: None })
    }
}

/// Removes an interface in the end.
struct Removed<'a>(&'a str);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _ = bypath_sys::netns::remove(self.0);
    }
}
