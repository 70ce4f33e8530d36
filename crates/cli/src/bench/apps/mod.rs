//! `bypath bench apps`: installed real programs, unmodified, with and without Bypath.

mod iperf3;
mod launch;
mod memcached;
mod nginx;
mod postgres;
mod redis;
mod server;
mod sockperf;
mod sshd;
mod targets;
mod transfer;

pub use launch::find;

use super::args::{App, AppsArgs, SubjectName};
use super::child::interrupted;
use super::context::{Context, Job};
use super::record::Figure;
use super::{output, table};
use crate::output::{Failure, Outcome};

type Group = Vec<Box<dyn Job>>;

/// Measures and prints.
pub fn run(args: &AppsArgs) -> Outcome {
    let context = Context::new(&args.common).map_err(|e| Failure::new(1, e))?;
    let wanted = |app: App| args.cases.is_empty() || args.cases.contains(&app);
    let chosen = |s: SubjectName| args.subjects.is_empty() || args.subjects.contains(&s);
    let mut groups: Vec<Group> = Vec::new();
    if wanted(App::Redis) {
        groups.extend(redis::plan(&context, &chosen));
    }
    if wanted(App::Iperf3) {
        groups.push(iperf3::plan(&context, &chosen));
    }
    if wanted(App::Sockperf) {
        groups.push(sockperf::plan(&chosen));
    }
    if wanted(App::Memcached) {
        groups.extend(memcached::plan(&context, &chosen));
    }
    if wanted(App::Nginx) {
        groups.extend(nginx::plan(&context, &chosen));
    }
    groups.extend(transfer::plan(&context, &wanted, &chosen));
    if wanted(App::Postgres) {
        groups.push(postgres::plan(&chosen));
    }
    groups.retain(|g| !g.is_empty());
    let records = context.measure(&groups).records();
    let whole = !interrupted();
    // Ends the servers before anything is printed.
    drop(groups);
    let mut text = table::figures(&context.machine, &records);
    let everything = args.cases.is_empty() && args.subjects.is_empty();
    if whole {
        text += &table::targets(&targets::check(&records), everything);
    }
    output::write(&args.common, &context.machine, &records, &text, whole)
}

/// A figure of a program.
fn figure(context: &Context, case: &str, subject: SubjectName, metric: &'static str) -> Figure {
    let tcp = subject != SubjectName::Unix;
    Figure {
        bench: "apps",
        case: case.into(),
        subject: subject.name(),
        link: tcp.then(|| "lo".into()),
        mode: None,
        size: None,
        burst: None,
        profile: (subject == SubjectName::Bypath).then(|| context.profile.clone()),
        cc: if tcp { context.machine.default_cc.clone() } else { None },
        metric,
    }
}
