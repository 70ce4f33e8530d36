//! The programs that are measured: ordinary client and server programs, run as children of `bypath bench`.
//!
//! They know nothing of Bypath. The same program runs over kernel TCP, AF_UNIX, pipes and (started by
//! `bypath run`) over Bypath; only the transport argument differs. They talk to the bench by JSON lines on
//! standard output: `{"ready": ADDRESS}` once, then `{"result": {...}}` or `{"error": "..."}`.

mod calls;
mod channel;
mod churn;
mod clock;
mod idle;
mod in_process;
mod launch;
mod messages;
mod pingpong;
mod ring;
mod shared;
mod sleep;
mod stream;
mod transport;
mod udp;

pub use clock::{BESIDE, clock_cost_ns, cpu_ns, now_ns};
pub use udp::LARGEST as LARGEST_DATAGRAM;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::process::ExitCode;

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Waits for a connection and answers.
    Serve,
    /// Connects and drives the measurement.
    Drive,
}

/// Which conversation the two programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Talk {
    /// A message there, a message back, at once.
    Pingpong,
    /// As `pingpong`, but each side rests before it answers, so that the receiver is asleep.
    Sleep,
    /// Messages one way, as fast as they go.
    Stream,
    /// Datagrams one way, as fast as they go: some are lost.
    UdpStream,
    /// Connect, request, reply, close.
    Churn,
    /// Many idle connections and a busy one.
    Idle,
    /// System calls on descriptors that are not TCP sockets (no peer).
    Calls,
    /// Becomes another program, pinned, which dies with the bench.
    Launch,
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// TCP over 127.0.0.1.
    Tcp,
    /// UDP over 127.0.0.1.
    Udp,
    /// An AF_UNIX stream socket.
    Unix,
    /// Two pipes.
    Pipe,
    /// The bare ring in shared memory, without any socket.
    Ring,
    /// A channel of `bypath::channel`.
    Channel,
    /// The same, of datagrams.
    ChannelDatagrams,
    /// TCP of a stack in the program itself.
    InProcess,
}

/// Arguments of a measured program.
#[derive(Args, Clone, Debug)]
pub struct PeerArgs {
    /// What this program does.
    #[arg(long, value_enum, default_value = "drive")]
    pub role: Role,
    /// The conversation.
    #[arg(long, value_enum)]
    pub talk: Talk,
    /// What carries the bytes.
    #[arg(long, value_enum, default_value = "tcp")]
    pub transport: Transport,
    /// The interface that the stack stands on (in-process).
    #[arg(long, default_value = "")]
    pub iface: String,
    /// The stack's address with its prefix (in-process).
    #[arg(long, default_value = "")]
    pub own: String,
    /// A process whose processor time within the timed phase is told, too.
    #[arg(long)]
    pub beside: Option<u32>,
    /// Where: an address (tcp, udp), a path (unix, ring, channel) or a folder with two pipes.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub addr: String,
    /// Non-blocking descriptors, polled in a loop.
    #[arg(long)]
    pub spin: bool,
    /// Bytes in a message.
    #[arg(long, default_value_t = 64)]
    pub size: usize,
    /// Seconds of the timed phase.
    #[arg(long, default_value_t = 0.1)]
    pub seconds: f64,
    /// Cores to stay on.
    #[arg(long, value_delimiter = ',')]
    pub cpu: Vec<usize>,
    /// Congestion control to ask for.
    #[arg(long)]
    pub cc: Option<String>,
    /// Sets TCP_NODELAY.
    #[arg(long)]
    pub nodelay: bool,
    /// Connections held (idle).
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
    /// CLOCK_MONOTONIC nanoseconds at which the timed phase starts.
    #[arg(long)]
    pub start_at: Option<u64>,
    /// The program to become (launch).
    #[arg(last = true)]
    pub program: Vec<String>,
}

/// What a program measured. Fields that a conversation does not measure stay empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct PeerResult {
    /// Length of the timed phase, by this side's clock.
    pub elapsed_ns: u64,
    /// Processor time of this process within the timed phase.
    pub cpu_ns: u64,
    /// Messages (or connections, or calls) that arrived here in the timed phase.
    pub received: u64,
    /// Messages sent from here in the timed phase.
    pub sent: u64,
    /// Bytes that arrived here in the timed phase.
    pub bytes: u64,
    /// Samples as (nanoseconds, count); what they time depends on the conversation.
    pub samples: Vec<(u64, u64)>,
    /// Congestion control in force.
    pub cc: Option<String>,
    /// Further figures by name.
    pub figures: std::collections::BTreeMap<String, f64>,
    /// Further samples by name, as in `samples`.
    pub series: std::collections::BTreeMap<String, Vec<(u64, u64)>>,
}

/// One line on a measured program's standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// The server waits at this address; the driver has done a step.
    Ready(String),
    /// The measurement ended well.
    Result(Box<PeerResult>),
    /// It did not.
    Error(String),
}

impl Line {
    /// Prints the line at once.
    pub fn print(&self) {
        let text = serde_json::to_string(self).expect("plain data");
        let mut out = std::io::stdout().lock();
        // A bench that has gone away is no reason to panic: the program ends by itself.
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }
}

/// Runs a measured program.
pub fn run(args: &PeerArgs) -> ExitCode {
    // A program without its bench is of no use; this also ends it when the bench is killed.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let outcome = pin(&args.cpu).and_then(|()| match args.talk {
        Talk::Pingpong => pingpong::run(args),
        Talk::Sleep => sleep::run(args),
        Talk::Stream => stream::run(args),
        Talk::UdpStream => udp::run(args),
        Talk::Churn => churn::run(args),
        Talk::Idle => idle::run(args),
        Talk::Calls => calls::run(args),
        Talk::Launch => launch::run(args),
    });
    match outcome {
        Ok(result) => {
            Line::Result(Box::new(result)).print();
            ExitCode::SUCCESS
        }
        Err(e) => {
            Line::Error(e.to_string()).print();
            ExitCode::FAILURE
        }
    }
}

fn pin(cores: &[usize]) -> std::io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = nix::sched::CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}
