//! memcached, driven by memaslap (libmemcached): nine GET to one SET of 1 KB objects, as the tool likes it.

use super::server::{ReadyWhen, Server, servers};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::rc::Rc;

const CLIENT: (&str, &str) = ("memcaslap", "libmemcached-tools");

struct Memcached {
    server: Rc<Server>,
    clients: u64,
}

/// Kernel TCP and Bypath, with one client connection and with sixteen.
pub fn plan(context: &Context, chosen: &dyn Fn(SubjectName) -> bool) -> Vec<Group> {
    let server = |subject| {
        Server::new(subject, ("memcached", "memcached"), ReadyWhen::Accepts, |place| {
            let port = place.port.to_string();
            let mut args: Vec<String> =
                ["-l", "127.0.0.1", "-U", "0", "-t", "1", "-p", &port].map(Into::into).into();
            if rustix::process::geteuid().is_root() {
                // It insists on being told.
                args.extend(["-u".into(), "root".into()]);
            }
            args
        })
    };
    let servers = servers(&[SubjectName::KernelTcp, SubjectName::Bypath], chosen, server);
    let job = |server: &Rc<Server>, clients| {
        Box::new(Memcached { server: Rc::clone(server), clients }) as Box<dyn Job>
    };
    let counts: &[u64] = if context.quick { &[16] } else { &[1, 16] };
    counts.iter().map(|clients| servers.iter().map(|s| job(s, *clients)).collect()).collect()
}

impl Job for Memcached {
    fn title(&self) -> String {
        format!("memcached -c{} {}", self.clients, self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let case = format!("memcached memaslap -c{}", self.clients);
        ["requests_per_s", "cpu_ns_per_request"]
            .map(|m| Figure {
                size: Some(1024),
                burst: Some(1),
                ..figure(context, &case, self.server.subject(), m)
            })
            .into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // memaslap counts in whole seconds.
        let seconds = context.seconds.ceil().max(1.0);
        let served = self.server.serve(context, CLIENT, seconds, |place| {
            let (server, clients) = (format!("127.0.0.1:{}", place.port), self.clients.to_string());
            let seconds = format!("{seconds}s");
            ["-s", &server, "-T", "1", "-c", &clients, "-t", &seconds].map(Into::into).into()
        })?;
        let number = |name: &str| -> Option<f64> {
            let line = served.output.iter().find(|l| l.starts_with("Run time:"))?;
            line.split_once(name)?.1.split_whitespace().next()?.parse().ok()
        };
        let (Some(requests), Some(rate)) = (number("Ops:"), number("TPS:")) else {
            return Err(format!("memaslap printed no totals: {:?}", served.output).into());
        };
        if requests < 1.0 {
            return Err("no request was answered".to_owned().into());
        }
        let values = [rate, served.cpu_ns as f64 / requests];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
