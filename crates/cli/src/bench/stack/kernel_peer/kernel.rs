//! Ends that are sockets of the kernel.

use super::Direction;
use super::flow::{CHUNK, Flow, Told, pin};
use super::place::{Place, TO};
use crate::bench::context::{CUBIC, Trouble};
use bypath_sys::clock::monotonic_ns;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// A call that waits looks after so long whether it is over.
const PATIENCE: Duration = Duration::from_millis(100);
/// Without any progress for so long it has stopped.
const STALLED: u64 = 5_000_000_000;

/// The kernel's end: a thread that waits for a connection.
pub struct Peer(JoinHandle<Result<Told, Trouble>>);

impl Peer {
    /// It listens when this returns.
    ///
    /// # Errors
    /// It cannot.
    pub fn start(
        place: &Place,
        flow: &Arc<Flow>,
        direction: Direction,
        core: Option<usize>,
    ) -> Result<Peer, Trouble> {
        let listen = || -> Result<TcpListener, String> {
            let listener =
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, TO.port())).map_err(|e| e.to_string())?;
            listener.set_nonblocking(true).map_err(|e| e.to_string())?;
            Ok(listener)
        };
        // A socket belongs to the namespace that it was made in.
        let listener = match &place.far {
            Some(far) => far.run(listen).map_err(|e| format!("cannot enter the peer's namespace: {e}"))?,
            None => listen(),
        }?;
        let flow = Arc::clone(flow);
        let (say, ready) = mpsc::channel();
        let run = move || {
            pin(core);
            let _ = say.send(());
            let told = accept(&listener, &flow).and_then(|stream| {
                let note = cubic(&stream);
                let told = match direction {
                    Direction::Send => receive(stream, &flow),
                    Direction::Receive => send(stream, &flow),
                };
                told.map(|told| Told { note, ..told })
            });
            flow.stop();
            told.map_err(Trouble::Failed)
        };
        let thread = std::thread::Builder::new().name("peer".into()).spawn(run).map_err(|e| e.to_string())?;
        // An error means that it has ended, which its end tells.
        let _ = ready.recv();
        Ok(Peer(thread))
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// What went wrong.
    pub fn end(self) -> Result<Told, Trouble> {
        self.0.join().unwrap_or_else(|_| Err(Trouble::Failed("a mistake in the bench ended the peer".into())))
    }
}

/// Our end, where that is the kernel's as well.
///
/// # Errors
/// What went wrong.
pub fn near(flow: &Flow, direction: Direction) -> Result<Told, Trouble> {
    let stream = TcpStream::connect(TO).map_err(|e| format!("cannot connect: {e}"))?;
    let note = cubic(&stream);
    let told = match direction {
        Direction::Send => send(stream, flow),
        Direction::Receive => receive(stream, flow),
    };
    Ok(Told { note, ..told? })
}

/// Has it use cubic; why not.
fn cubic(stream: &TcpStream) -> Option<String> {
    setsockopt(stream, sockopt::TcpCongestion, &CUBIC.into())
        .err()
        .map(|e| format!("the kernel's congestion control is its default: no {CUBIC}: {}", e.desc()))
}

fn accept(listener: &TcpListener, flow: &Flow) -> Result<TcpStream, String> {
    let end = monotonic_ns() + STALLED;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(|e| e.to_string())?;
                return Ok(stream);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.to_string()),
        }
        if flow.is_over() {
            return Err("nobody has called".into());
        }
        if monotonic_ns() > end {
            return Err("nobody has called within 5 s".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn receive(mut stream: TcpStream, flow: &Flow) -> Result<Told, String> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let (mut meter, mut cpu) = (flow.meter(), flow.cpu());
    let mut room = vec![0; CHUNK];
    let mut progress = monotonic_ns();
    loop {
        match stream.read(&mut room) {
            Ok(0) => return Err("the stream has ended".into()),
            Ok(n) => {
                if !meter.took(&room[..n])? {
                    return Ok(Told { stretches: Some(meter.end()), cpu_ns: cpu.spent(), note: None });
                }
                cpu.look();
                progress = 0;
            }
            Err(e) if waits(e.kind()) => {
                if flow.is_over() {
                    return Err("the sender has ended".into());
                }
                stalls(&mut progress)?;
            }
            Err(e) => return Err(format!("cannot receive: {e}")),
        }
    }
}

fn send(mut stream: TcpStream, flow: &Flow) -> Result<Told, String> {
    stream.set_write_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let mut cpu = flow.cpu();
    let (mut written, mut progress) = (0, monotonic_ns());
    while !flow.is_over() {
        match stream.write(flow.from(written)) {
            Ok(n) => {
                written += n as u64;
                cpu.look();
                progress = 0;
            }
            Err(e) if waits(e.kind()) => stalls(&mut progress)?,
            // Who has received enough hangs up.
            Err(_) if flow.is_over() => {}
            Err(e) => return Err(format!("cannot send: {e}")),
        }
    }
    Ok(Told { cpu_ns: cpu.spent(), ..Told::default() })
}

fn waits(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// `progress`: when waiting began; 0: it has not.
fn stalls(progress: &mut u64) -> Result<(), String> {
    let now = monotonic_ns();
    if *progress == 0 {
        *progress = now;
    }
    if now - *progress > STALLED { Err("nothing moves for 5 s".into()) } else { Ok(()) }
}
