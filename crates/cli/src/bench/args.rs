//! What can be typed after `bypath bench`.

use super::netstack::NetstackArgs;
use super::peer::PeerArgs;
use super::raw::{EndArgs, RawArgs, ServeArgs};
use super::roce::RoceArgs;
use super::stack::{AllocationsArgs, ConnectionsArgs, KernelPeerArgs, ProfiledArgs, StackArgs};
use super::tun::TunArgs;
use crate::args::Json;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};

/// Arguments of `bypath bench`.
#[derive(ClapArgs, Clone, Debug)]
pub struct Args {
    /// Which benchmark.
    #[command(subcommand)]
    pub what: What,
}

/// The benchmarks.
#[derive(Subcommand, Clone, Debug)]
pub enum What {
    /// Programs on this host: kernel TCP, AF_UNIX, pipes and Bypath side by side
    Loopback(LoopbackArgs),
    /// Installed real programs (redis, nginx, PostgreSQL, rsync and others) with and without Bypath
    Apps(AppsArgs),
    /// Raw Ethernet beside UDP: loopback, a veth pair, or another host
    Raw(Box<RawArgs>),
    /// UDP through a TUN device: the classic ways, their naive versions, super-packets
    Tun(TunArgs),
    /// RoCEv2: packets built with their ICRC, RDMA WRITE between two processes
    Roce(RoceArgs),
    /// The TCP/IP stack: a UDP write to a device sink, receiving beside idle sockets, TCP between two stacks
    Stack(StackArgs),
    /// Programs on the netstack service beside the kernel's own TCP: round trips, streams, connections, redis
    Netstack(NetstackArgs),
    /// The far end of `bench raw --peer` on another host
    Serve(ServeArgs),
    /// What writes of `bench stack` allocate (started by the bench itself)
    #[command(hide = true)]
    Allocations(AllocationsArgs),
    /// What idle connections of `bench stack` hold (started by the bench itself)
    #[command(hide = true)]
    Connections(ConnectionsArgs),
    /// A stream of `bench stack` between our stack and the kernel (started by the bench itself)
    #[command(hide = true)]
    KernelPeer(KernelPeerArgs),
    /// Writes of `bench stack --profile` (started by the bench itself)
    #[command(hide = true)]
    Profiled(ProfiledArgs),
    /// One end of `bench raw` (started by the bench itself)
    #[command(hide = true)]
    End(EndArgs),
    /// A measured program (started by the bench itself)
    #[command(hide = true)]
    Peer(Box<PeerArgs>),
}

/// What both benchmarks take.
#[derive(ClapArgs, Clone, Debug)]
pub struct Common {
    /// End within 30 seconds: fewer sizes, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Rounds; in each, every subject has one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a run in seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,
    /// Profile of the programs under Bypath
    #[arg(long, value_name = "PROFILE", value_parser = ["latency", "balanced", "frugal"], default_value = "balanced")]
    pub profile: String,
    /// Where the records go (a file beside the table, standard output instead of it).
    #[command(flatten)]
    pub json: Json,
}

/// Arguments of `bypath bench loopback`.
#[derive(ClapArgs, Clone, Debug)]
pub struct LoopbackArgs {
    /// What both take.
    #[command(flatten)]
    pub common: Common,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Only this subject (may be given several times)
    #[arg(long = "subject", value_name = "SUBJECT", value_enum)]
    pub subjects: Vec<SubjectName>,
    /// Bytes in a message, for pingpong, stream, bulk, udp-pingpong and udp-stream (may be given several times)
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(9..=1 << 24))]
    pub sizes: Vec<u32>,
    /// Idle connections
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub connections: Option<u32>,
}

/// Arguments of `bypath bench apps`.
#[derive(ClapArgs, Clone, Debug)]
pub struct AppsArgs {
    /// What both take.
    #[command(flatten)]
    pub common: Common,
    /// Only this program (may be given several times)
    #[arg(long = "case", value_name = "PROGRAM", value_enum)]
    pub cases: Vec<App>,
    /// Only this subject (may be given several times)
    #[arg(long = "subject", value_name = "SUBJECT", value_enum)]
    pub subjects: Vec<SubjectName>,
}

/// Cases of `bypath bench loopback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A message there and back, spinning and blocking
    Pingpong,
    /// As pingpong, both sides asleep for 1 ms before each message
    Sleep,
    /// 64-byte messages one way
    Stream,
    /// 64 KB writes one way
    Bulk,
    /// As pingpong, a datagram there and back
    UdpPingpong,
    /// 64-byte datagrams one way
    UdpStream,
    /// Connect, request, reply, close
    Churn,
    /// Four busy pairs, on two cores if there are
    Oversubscribed,
    /// 64 KB writes one way under Bypath while somebody looks on
    Watched,
    /// Many idle connections
    Idle,
    /// A system call on a descriptor that is none of Bypath's business
    ForeignCall,
    /// What `bypath run` adds to starting a program
    Exec,
    /// fork and exec in a running program, with and without a connection
    Fork,
}

impl Case {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Case::Pingpong => "pingpong",
            Case::Sleep => "sleep",
            Case::Stream => "stream",
            Case::Bulk => "bulk",
            Case::UdpPingpong => "udp-pingpong",
            Case::UdpStream => "udp-stream",
            Case::Churn => "churn",
            Case::Oversubscribed => "oversubscribed",
            Case::Watched => "watched",
            Case::Idle => "idle",
            Case::ForeignCall => "foreign-call",
            Case::Exec => "exec",
            Case::Fork => "fork",
        }
    }
}

/// Programs of `bypath bench apps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum App {
    /// redis-server with redis-benchmark
    Redis,
    /// iperf3, one stream
    Iperf3,
    /// sockperf, TCP ping-pong
    Sockperf,
    /// memcached, driven by memaslap
    Memcached,
    /// nginx with wrk, 1 KiB over kept connections
    Nginx,
    /// PostgreSQL with pgbench, SELECTs of one client
    Postgres,
    /// scp of a large file from a private sshd
    Scp,
    /// rsync of a large file from its daemon
    Rsync,
    /// rsync of a large file from a private sshd
    RsyncSsh,
}

/// Subjects: what carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SubjectName {
    /// TCP over 127.0.0.1
    KernelTcp,
    /// UDP over 127.0.0.1
    KernelUdp,
    /// AF_UNIX stream sockets
    Unix,
    /// A pair of pipes
    Pipe,
    /// TCP, or UDP, under `bypath run`
    Bypath,
    /// A channel, for programs that are written for it
    Channel,
    /// The bare ring in shared memory
    Floor,
}

impl SubjectName {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            SubjectName::KernelTcp => "kernel-tcp",
            SubjectName::KernelUdp => "kernel-udp",
            SubjectName::Unix => "unix",
            SubjectName::Pipe => "pipe",
            SubjectName::Bypath => "bypath",
            SubjectName::Channel => "channel",
            SubjectName::Floor => "floor",
        }
    }
}

/// Seconds of a run.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.01..=3600.0).contains(&s) => Ok(s),
        _ => Err("expected seconds, 0.01 to 3600".into()),
    }
}
