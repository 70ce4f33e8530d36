//! One end of a measurement: a program of its own on a core of its own, which does what it is ordered on its standard input
//! and answers on its standard output. It ends when the input does.

mod echo; //   frames back to where they came from
mod flood; //  one way: sending, receiving
mod frame; //  what stands in frames
mod lifes; //  opening and closing
mod raw; //    raw Ethernet and AF_XDP sockets
mod trip; //   round trips
mod udp; //    UDP sockets

pub use raw::DEEP;

use super::order::{Answer, Order, Place};
use clap::Args;
use std::io::{BufRead as _, Write as _};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, TryRecvError};

/// Arguments of an end.
#[derive(Args, Clone, Debug)]
pub struct EndArgs {
    /// The interface.
    #[arg(long)]
    pub iface: String,
    /// The own address on it.
    #[arg(long)]
    pub ip: IpAddr,
    /// Core to stay on.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Which of the two ends: the far one answers.
    #[arg(long)]
    pub far: bool,
}

/// Why an order was not carried out.
#[derive(Debug)]
pub enum Trouble {
    /// Not possible here.
    Impossible(String),
    /// It went wrong.
    Failed(String),
}

impl From<std::io::Error> for Trouble {
    fn from(e: std::io::Error) -> Trouble {
        Trouble::Failed(e.to_string())
    }
}

impl From<nix::Error> for Trouble {
    fn from(e: nix::Error) -> Trouble {
        Trouble::Failed(e.desc().to_owned())
    }
}

/// The orders, and who this end is.
pub struct Control {
    orders: Receiver<Order>,
    /// The interface.
    pub iface: String,
    /// The own UDP address.
    pub ip: IpAddr,
    /// The own hardware address.
    pub mac: [u8; 6],
    /// The far end.
    pub far: bool,
}

impl Control {
    /// Whether what goes on is to end, and how many frames were sent.
    pub fn finish(&self) -> Option<u64> {
        match self.orders.try_recv() {
            Ok(Order::Finish(frames)) => Some(frames),
            // An order in the middle of another: there is no going on.
            Ok(_) | Err(TryRecvError::Disconnected) => std::process::exit(1),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// Waits for the order to end.
    fn until_finish(&self) {
        if !matches!(self.orders.recv(), Ok(Order::Finish(_))) {
            std::process::exit(1);
        }
    }

    /// Where this end is; `port` of UDP.
    pub const fn place(&self, port: u16) -> Place {
        Place { mac: self.mac, ip: self.ip, port }
    }

    /// Says that what was ordered has begun.
    pub fn ready(&self, port: u16, notes: &[String]) {
        answer(&Answer::Ready { place: self.place(port), notes: notes.to_vec() });
    }
}

fn answer(answer: &Answer) {
    let text = serde_json::to_string(answer).expect("plain data");
    let mut out = std::io::stdout().lock();
    // Whoever ordered may have gone away: then the input ends, too.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Reads orders in a thread of its own. Where they end this process does, whatever it does.
fn listen() -> Receiver<Order> {
    let (send, orders) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else { break };
            if send.send(order).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    orders
}

/// Runs an end.
pub fn run(args: &EndArgs) -> ExitCode {
    let interface = match bypath::link::Interface::named(&args.iface) {
        Ok(interface) => interface,
        Err(e) => {
            answer(&Answer::Error(e.to_string()));
            return ExitCode::FAILURE;
        }
    };
    if let Some(core) = args.cpu
        && let Err(e) = pin(core)
    {
        answer(&Answer::Error(format!("cannot stay on core {core}: {e}")));
        return ExitCode::FAILURE;
    }
    let (iface, ip, far, mac) = (args.iface.clone(), args.ip, args.far, interface.mac.0);
    let control = Control { orders: listen(), iface, ip, mac, far };
    while let Ok(order) = control.orders.recv() {
        match obey(&control, order) {
            Ok(done) => answer(&done),
            Err(Trouble::Impossible(why)) => answer(&Answer::Impossible(why)),
            Err(Trouble::Failed(why)) => answer(&Answer::Error(why)),
        }
    }
    ExitCode::SUCCESS
}

fn obey(control: &Control, order: Order) -> Result<Answer, Trouble> {
    match order {
        Order::Where => Ok(Answer::Ready { place: control.place(0), notes: Vec::new() }),
        Order::Receive(run) => flood::receive(control, run).map(Answer::Received),
        Order::Ignore(run) => flood::ignore(control, run).map(|()| Answer::Done),
        Order::Send { run, to, seconds, pace, flaws, greet } => {
            flood::send(control, run, to, &flood::Flood { seconds, pace, flaws, greet }).map(Answer::Sent)
        }
        Order::Echo(run) => echo::run(control, run).map(|()| Answer::Done),
        Order::Trip { run, to, count } => trip::run(control, run, to, count).map(Answer::Trips),
        Order::OpenClose { carrier, count } => {
            lifes::run(control, carrier, count).map(|(open, close)| Answer::Opened { open, close })
        }
        // Of an order that has failed.
        Order::Finish(_) => Ok(Answer::Done),
    }
}

fn pin(core: usize) -> std::io::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(core)?;
    Ok(nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}
