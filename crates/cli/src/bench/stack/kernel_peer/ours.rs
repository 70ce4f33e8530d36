//! The end that is our stack's: one thread turns the stack and is the application.

use super::flow::{CHUNK, Cpu, Flow, Told};
use super::place::TO;
use super::{Args, Direction};
use crate::bench::context::Trouble;
use bypath_netstack::{Engine, Setup, SetupError};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::Settings;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_sys::clock::monotonic_ns;

/// Nothing is waited for longer than that (ns).
const PATIENCE: u64 = 100_000_000;
/// Without any progress for so long it has stopped.
const STALLED: u64 = 5_000_000_000;

/// One connection of an engine.
struct End<'a> {
    engine: Engine,
    id: SocketId,
    flow: &'a Flow,
    cpu: Cpu<'a>,
    /// When octets moved last.
    progress: u64,
}

/// Runs it until enough has been received.
///
/// # Errors
/// The link cannot be had; what went wrong.
pub fn run(setup: Setup, flow: &Flow, args: &Args) -> Result<Told, Trouble> {
    let opened = setup.open().map_err(|e| match e {
        SetupError::Link(e) => Trouble::Skipped(e.to_string()),
        e => Trouble::Failed(e.to_string()),
    })?;
    let mut engine = opened.engine;
    let id = engine.stack().open_tcp().map_err(|e| e.to_string())?;
    let mut tcp = engine.stack().tcp(id).ok_or("no socket".to_owned())?;
    if let Some(send_octets) = args.send_octets {
        let settings = tcp.settings();
        tcp.set_settings(Engine::now(), Settings { send_octets, ..settings });
    }
    tcp.connect(Engine::now(), TO).map_err(|e| e.to_string())?;
    let mut end = End { engine, id, flow, cpu: flow.cpu(), progress: monotonic_ns() };
    Ok(match args.direction {
        Direction::Send => end.send()?,
        Direction::Receive => end.receive()?,
    })
}

impl End<'_> {
    /// Frames move both ways; if none do and the application has nothing to do either, it waits. News of sockets are not looked
    /// at: the one that there is is asked.
    fn turn(&mut self, idle: bool) -> Result<(), String> {
        let moved = self.engine.turn().map_err(|e| e.to_string())?;
        while self.engine.poll_event().is_some() {}
        self.cpu.look();
        if !idle {
            self.progress = 0;
        } else if !moved {
            let now = monotonic_ns();
            if self.progress == 0 {
                self.progress = now;
            }
            if now - self.progress > STALLED {
                return Err("nothing moves for 5 s".into());
            }
            self.engine.wait(Some(now + PATIENCE));
        }
        Ok(())
    }

    fn send(&mut self) -> Result<Told, String> {
        let mut written = 0;
        while !self.flow.is_over() {
            let mut tcp = self.engine.stack().tcp(self.id).ok_or("no socket")?;
            let n = match tcp.write(self.flow.from(written)) {
                Ok(n) => n,
                // Not open yet, or as much as it may hold.
                Err(WriteError::Full) => 0,
                Err(_) if self.flow.is_over() => break,
                Err(e) => return Err(format!("cannot send: {e}")),
            };
            written += n as u64;
            self.turn(n == 0)?;
        }
        Ok(Told { cpu_ns: self.cpu.spent(), ..Told::default() })
    }

    fn receive(&mut self) -> Result<Told, String> {
        let mut meter = self.flow.meter();
        let mut room = vec![0; CHUNK];
        loop {
            let mut idle = true;
            loop {
                let mut tcp = self.engine.stack().tcp(self.id).ok_or("no socket")?;
                match tcp.read(&mut room) {
                    Ok(0) => return Err("the stream has ended".into()),
                    Ok(n) => {
                        idle = false;
                        if !meter.took(&room[..n])? {
                            let cpu_ns = self.cpu.spent();
                            return Ok(Told { stretches: Some(meter.end()), cpu_ns, note: None });
                        }
                    }
                    Err(ReadError::Empty) => break,
                    Err(e) => return Err(format!("cannot receive: {e}")),
                }
            }
            if self.flow.is_over() {
                return Err("the sender has ended".into());
            }
            self.turn(idle)?;
        }
    }
}
