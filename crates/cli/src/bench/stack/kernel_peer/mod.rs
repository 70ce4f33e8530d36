//! One TCP stream between our stack and a socket of the kernel, over links that take super-packets; beside it the same between two
//! sockets of the kernel.
//!
//! Each run is a process in namespaces of its own. What counts are the octets that the receiving application has read.

mod flow; //   what is sent, and how it is looked at and timed
mod kernel; // ends that are sockets of the kernel
mod ours; //   the end that is our stack's
mod place; //  namespaces and links

use super::figure;
use super::stream::CHUNK;
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath_sys::{Errno, netns};
use clap::ValueEnum;
use flow::Flow;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Who is at our end, and how it is joined to the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// Our stack on a TAP device
    Tap,
    /// Our stack on a TUN device
    Tun,
    /// Our stack on packet sockets, on one end of a veth pair
    Packet,
    /// A socket of the kernel on one end of a veth pair
    KernelVeth,
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Direction {
    /// Our end
    Send,
    /// The kernel's end
    Receive,
}

impl Subject {
    pub const ALL: [Subject; 4] = [Subject::Tap, Subject::Tun, Subject::Packet, Subject::KernelVeth];

    pub const fn name(self) -> &'static str {
        match self {
            Subject::Tap => "tap",
            Subject::Tun => "tun",
            Subject::Packet => "packet",
            Subject::KernelVeth => "kernel-veth",
        }
    }
}

impl Direction {
    pub const fn case(self) -> &'static str {
        match self {
            Direction::Send => "kernel-peer-send",
            Direction::Receive => "kernel-peer-receive",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Receive => "receive",
        }
    }
}

/// Arguments of the process that has both ends.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which link
    #[arg(long, value_enum)]
    pub subject: Subject,
    /// Who sends
    #[arg(long, value_enum)]
    pub direction: Direction,
    /// Length of the part that is timed
    #[arg(long)]
    pub seconds: f64,
    /// Core of our end
    #[arg(long)]
    pub own_cpu: Option<usize>,
    /// Core of the kernel's end
    #[arg(long)]
    pub peer_cpu: Option<usize>,
    /// Octets of our stack's send buffer
    #[arg(long)]
    pub send_octets: Option<usize>,
    /// Look at every octet
    #[arg(long)]
    pub whole: bool,
}

/// What it prints.
#[derive(serde::Serialize, serde::Deserialize)]
enum Printed {
    /// Bits a second of each stretch; seconds of processor of our end and of the kernel's for 10^9 octets.
    Measured { stretches: Vec<f64>, cpu_s_per_gb: [f64; 2], note: Option<String> },
    /// What is missing here.
    Missing(String),
    /// What went wrong.
    Failed(String),
}

/// The process that has both ends.
pub fn run(args: &Args) -> ExitCode {
    let printed = measured(args).unwrap_or_else(|trouble| match trouble {
        Trouble::Skipped(why) => Printed::Missing(why),
        Trouble::Failed(why) => Printed::Failed(why),
    });
    println!("{}", serde_json::to_string(&printed).expect("plain data"));
    ExitCode::SUCCESS
}

fn measured(args: &Args) -> Result<Printed, Trouble> {
    // Without the bench that started it, it is of no use.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let place = place::Place::make(args.subject)?;
    let flow = Arc::new(Flow::new(args.seconds, args.whole));
    let far = kernel::Peer::start(&place, &flow, args.direction, args.peer_cpu)?;
    flow::pin(args.own_cpu);
    let own = match place.setup(args.subject) {
        Some(setup) => ours::run(setup, &flow, args),
        None => kernel::near(&flow, args.direction),
    };
    if own.is_err() {
        flow.stop();
    }
    let peer = far.end();
    // Who receives knows what came, and of trouble of his the other's follows.
    let (own, peer) = match args.direction {
        Direction::Send => {
            let peer = peer?;
            (own?, peer)
        }
        Direction::Receive => (own?, peer?),
    };
    let octets = flow.timed_octets();
    let each = |cpu: u64| cpu as f64 / octets as f64;
    let note = own.note.or(peer.note);
    let stretches = own.stretches.or(peer.stretches).ok_or("nobody has received".to_owned())?;
    Ok(Printed::Measured { stretches, cpu_s_per_gb: [each(own.cpu_ns), each(peer.cpu_ns)], note })
}

/// A stream one way over one link.
pub struct KernelPeer {
    pub subject: Subject,
    pub direction: Direction,
}

impl KernelPeer {
    fn command(&self, context: &Context, seconds: f64, whole: bool) -> Command {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "kernel-peer", "--subject", self.subject.name()]);
        command.args(["--direction", self.direction.name(), "--seconds", &seconds.to_string()]);
        for (name, which) in [("--own-cpu", 1), ("--peer-cpu", 0)] {
            if let Some(core) = context.core(which) {
                command.args([name, &core.to_string()]);
            }
        }
        if whole {
            command.arg("--whole");
        }
        command
    }
}

impl Job for KernelPeer {
    fn title(&self) -> String {
        format!("{} {}", self.direction.case(), self.subject.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        let of = |metric| figure(self.direction.case(), self.subject.name(), CHUNK as u32, None, metric);
        let cc = Some(crate::bench::context::CUBIC.to_owned());
        let cpu = |mode| Figure { mode: Some(mode), cc: cc.clone(), ..of("cpu_s_per_gb") };
        vec![Figure { cc: cc.clone(), ..of("bits_per_s") }, cpu("own"), cpu("peer")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let deadline = context.deadline(context.seconds);
        let mut command = self.command(context, context.seconds, false);
        netns::apart(&mut command);
        let mut child = Child::spawn(command, &self.title()).map_err(|e| {
            let refused =
                [Errno::PERM, Errno::NOSPC, Errno::INVAL].map(|e| format!("os error {}", e.raw_os_error()));
            if refused.iter().any(|code| e.contains(code)) {
                Trouble::Skipped(format!(
                    "no private network namespaces (run as root, or let users make them): {e}"
                ))
            } else {
                Trouble::Failed(e)
            }
        })?;
        let line = child.line(deadline)?;
        child.finish(deadline)?;
        let printed: Printed =
            serde_json::from_str(&line).map_err(|e| format!("unexpected {line:?}: {e}"))?;
        match printed {
            Printed::Measured { stretches, cpu_s_per_gb: [own, peer], note } => {
                let samples = [Sample::Values(stretches), Sample::Value(own), Sample::Value(peer)];
                Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note })
            }
            Printed::Missing(why) => Err(Trouble::Skipped(why)),
            Printed::Failed(why) => Err(Trouble::Failed(why)),
        }
    }
}
