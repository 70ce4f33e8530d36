//! iperf3, one stream; what its receiver counted.

use super::server::{ReadyWhen, Server};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{CUBIC, Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::rc::Rc;

const PROGRAM: (&str, &str) = ("iperf3", "iperf3");

struct Iperf3 {
    server: Rc<Server>,
    /// Congestion control to ask for; `None` = the system's.
    cc: Option<&'static str>,
}

/// Kernel TCP with cubic and with the system's congestion control, and Bypath.
pub fn plan(context: &Context, chosen: &dyn Fn(SubjectName) -> bool) -> Group {
    let mut group: Group = Vec::new();
    for subject in [SubjectName::KernelTcp, SubjectName::Bypath] {
        if !chosen(subject) {
            continue;
        }
        let server = Server::new(subject, PROGRAM, ReadyWhen::Says("Server listening"), |place| {
            let port = place.port.to_string();
            ["-s", "-B", "127.0.0.1", "-p", &port, "--forceflush"].map(Into::into).into()
        });
        let server = Rc::new(server);
        group.push(Box::new(Iperf3 { server: Rc::clone(&server), cc: context.cc }));
        let other_default = context.cc.is_some() && context.machine.default_cc.as_deref() != Some(CUBIC);
        if subject == SubjectName::KernelTcp && other_default {
            group.push(Box::new(Iperf3 { server, cc: None }));
        }
    }
    group
}

impl Job for Iperf3 {
    fn title(&self) -> String {
        format!("iperf3 {} {}", self.server.subject().name(), self.cc.unwrap_or("default"))
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let figure = |m| {
            let figure = figure(context, "iperf3", self.server.subject(), m);
            Figure { cc: self.cc.map(str::to_owned).or(figure.cc.clone()), ..figure }
        };
        ["bits_per_s", "cpu_s_per_gb"].map(figure).into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // iperf3 counts in whole seconds.
        let seconds = if context.quick { 1 } else { context.seconds.ceil().max(2.0) as u64 };
        let served = self.server.serve(context, PROGRAM, seconds as f64, |place| {
            let (port, seconds) = (place.port.to_string(), seconds.to_string());
            let mut args: Vec<String> =
                ["-c", "127.0.0.1", "-p", &port, "-t", &seconds, "-J"].map(Into::into).into();
            args.extend(self.cc.iter().flat_map(|cc| ["-C".to_owned(), (*cc).to_owned()]));
            args
        })?;
        let report: serde_json::Value =
            serde_json::from_str(&served.output.join("\n")).map_err(|e| format!("iperf3's JSON: {e}"))?;
        if let Some(error) = report["error"].as_str() {
            return Err(format!("iperf3: {error}").into());
        }
        let received = &report["end"]["sum_received"];
        let (Some(rate), Some(bytes)) =
            (received["bits_per_second"].as_f64(), received["bytes"].as_f64().filter(|b| *b > 0.0))
        else {
            return Err("iperf3 printed no rate".to_owned().into());
        };
        // Nanoseconds for a byte are seconds for a gigabyte.
        let values = [rate, served.cpu_ns as f64 / bytes];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
