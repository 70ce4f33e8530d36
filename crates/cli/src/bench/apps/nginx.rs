//! nginx, one process, with wrk: a file of 1 KiB again and again over connections that are kept.

use super::server::{Place, ReadyWhen, Server, servers};
use super::{Group, figure};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::fs;
use std::rc::Rc;

const CLIENT: (&str, &str) = ("wrk", "wrk");
const SIZE: usize = 1024;

struct Nginx {
    server: Rc<Server>,
    clients: u64,
}

/// Kernel TCP and Bypath, with one connection and with thirty-two.
pub fn plan(context: &Context, chosen: &dyn Fn(SubjectName) -> bool) -> Vec<Group> {
    let server = |subject| Server::new(subject, ("nginx", "nginx"), ReadyWhen::Accepts, arguments);
    let servers = servers(&[SubjectName::KernelTcp, SubjectName::Bypath], chosen, server);
    let job =
        |server: &Rc<Server>, clients| Box::new(Nginx { server: Rc::clone(server), clients }) as Box<dyn Job>;
    let counts: &[u64] = if context.quick { &[1] } else { &[1, 32] };
    counts.iter().map(|clients| servers.iter().map(|s| job(s, *clients)).collect()).collect()
}

/// Makes the directory that nginx serves, and its configuration. What goes wrong here nginx reports.
fn arguments(place: &Place) -> Vec<String> {
    let dir = &place.socket;
    let root = dir.join("www");
    let _ = fs::create_dir_all(&root);
    let _ = fs::write(root.join("file"), "x".repeat(SIZE));
    let (at, port) = (dir.display(), place.port);
    // A single process, whose processor time is the server's. A user line only where it has an effect.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "daemon off; master_process off; {user} pid {at}/pid; error_log stderr crit;
         events {{ worker_connections 256; }}
         http {{
           access_log off; sendfile on; keepalive_timeout 60; keepalive_requests 100000000;
           client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;
           uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
           server {{ listen 127.0.0.1:{port}; root {at}/www; }}
         }}"
    );
    let file = dir.join("nginx.conf");
    let _ = fs::write(&file, config);
    ["-e", "stderr", "-p", &at.to_string(), "-c", &file.display().to_string()].map(Into::into).into()
}

impl Job for Nginx {
    fn title(&self) -> String {
        format!("nginx -c{} {}", self.clients, self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let case = format!("nginx wrk -c{}", self.clients);
        ["requests_per_s", "cpu_ns_per_request"]
            .map(|m| Figure {
                size: Some(SIZE as u64),
                burst: Some(1),
                ..figure(context, &case, self.server.subject(), m)
            })
            .into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // wrk counts in whole seconds.
        let seconds = context.seconds.ceil().max(1.0);
        let served = self.server.serve(context, CLIENT, seconds, |place| {
            let (clients, seconds) = (self.clients.to_string(), format!("{seconds}s"));
            let url = format!("http://127.0.0.1:{}/file", place.port);
            ["-t", "1", "-c", &clients, "-d", &seconds, &url].map(Into::into).into()
        })?;
        if let Some(trouble) = served.output.iter().find(|l| l.contains("errors") || l.contains("Non-2xx")) {
            return Err(format!("wrk: {}", trouble.trim()).into());
        }
        let first = |has: &str| -> Option<f64> {
            let line = served.output.iter().find(|l| l.contains(has))?;
            line.split_whitespace().find_map(|word| word.parse().ok())
        };
        let (Some(requests), Some(rate)) = (first(" requests in "), first("Requests/sec:")) else {
            return Err(format!("wrk printed no totals: {:?}", served.output).into());
        };
        if requests < 1.0 {
            return Err("no request was answered".to_owned().into());
        }
        let values = [rate, served.cpu_ns as f64 / requests];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
