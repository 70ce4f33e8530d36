//! Servers and clients of real programs: started pinned, on a free port, ended with the bench.

use crate::bench::args::SubjectName;
use crate::bench::child::{Child, Ended, cpu_ns};
use crate::bench::context::{Context, Trouble};
use crate::bench::proof::Proof;
use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How it shows that a server is ready.
#[derive(Clone, Copy, Debug)]
pub enum ReadyWhen {
    /// It says so in a line that contains this.
    Says(&'static str),
    /// Its port accepts connections.
    Accepts,
}

/// A server that is started when first needed and then serves all jobs of its subject.
pub struct Server {
    subject: SubjectName,
    program: &'static str,
    package: &'static str,
    ready: ReadyWhen,
    args: fn(&Place) -> Vec<String>,
    running: RefCell<Option<Running>>,
    /// Why an earlier run failed.
    trouble: RefCell<Option<String>>,
}

/// Where it serves.
#[derive(Clone, Debug)]
pub struct Place {
    /// A port on 127.0.0.1 that was free.
    pub port: u16,
    /// A path for an AF_UNIX socket.
    pub socket: PathBuf,
    /// Whether clients use the path.
    pub unix: bool,
}

struct Running {
    child: Child,
    place: Place,
    stats: Option<PathBuf>,
}

/// A run of a client against a server.
pub struct Served {
    /// What the client printed.
    pub output: Vec<String>,
    /// Processor time of both.
    pub cpu_ns: u64,
    /// What a reader should know.
    pub note: Option<String>,
}

impl Server {
    /// Describes it; nothing is started yet.
    pub fn new(
        subject: SubjectName,
        (program, package): (&'static str, &'static str),
        ready: ReadyWhen,
        args: fn(&Place) -> Vec<String>,
    ) -> Rc<Server> {
        Rc::new(Server {
            subject,
            program,
            package,
            ready,
            args,
            running: RefCell::new(None),
            trouble: RefCell::new(None),
        })
    }

    /// Its subject.
    pub fn subject(&self) -> SubjectName {
        self.subject
    }

    /// Runs a client to its end; starts the server if it is not running.
    pub fn serve(
        &self,
        context: &Context,
        (client, package): (&str, &str),
        seconds: f64,
        args: impl Fn(&Place) -> Vec<String>,
    ) -> Result<Served, Trouble> {
        installed(self.program, self.package)?;
        installed(client, package)?;
        if let Some(why) = self.trouble.borrow().as_ref().filter(|_| context.quick) {
            return Err(Trouble::Skipped(format!(
                "--quick does not wait again for what failed before: {why}"
            )));
        }
        let deadline = context.deadline(seconds);
        let mut slot = self.running.borrow_mut();
        if slot.is_none() {
            *slot = Some(self.start(context, deadline)?);
        }
        let running = slot.as_ref().expect("started just now");
        let command = command(context, 1, running.stats.as_deref(), client, &args(&running.place));
        let before = cpu_ns(running.child.pid());
        let ended = Child::spawn(command, client).and_then(|mut c| c.finish(deadline));
        let Ended { output, cpu_ns: client_cpu } = match ended {
            Ok(ended) => ended,
            Err(e) => {
                // The server may be in any state now: the next run gets a new one.
                *slot = None;
                *self.trouble.borrow_mut() = Some(e.clone());
                return Err(Trouble::Failed(e));
            }
        };
        Ok(Served {
            output,
            cpu_ns: client_cpu + cpu_ns(running.child.pid()).saturating_sub(before),
            note: running.stats.as_deref().and_then(|s| Proof::read(s).note()),
        })
    }

    fn start(&self, context: &Context, deadline: Instant) -> Result<Running, Trouble> {
        let place = Place {
            port: free_port()?,
            socket: context.scratch.fresh("app"),
            unix: self.subject == SubjectName::Unix,
        };
        let stats = (self.subject == SubjectName::Bypath).then(|| context.scratch.fresh("stats"));
        let command = command(context, 0, stats.as_deref(), self.program, &(self.args)(&place));
        let mut child = Child::spawn(command, self.program)?;
        match self.ready {
            ReadyWhen::Says(words) => while !child.line(deadline)?.contains(words) {},
            ReadyWhen::Accepts => {
                while let Err(e) = TcpStream::connect(("127.0.0.1", place.port)) {
                    if Instant::now() >= deadline {
                        return Err(format!("{}: does not accept: {e}", self.program).into());
                    }
                    // Nothing tells when a program starts to listen; its end does come as an event.
                    match child.line(Instant::now() + Duration::from_millis(5)) {
                        Err(e) if e.contains("exit status") => return Err(e.into()),
                        _ => {}
                    }
                }
            }
        }
        Ok(Running { child, place, stats })
    }
}

/// The program, pinned and bound to the life of the bench, under `bypath run` if there is a counter file.
fn command(context: &Context, core: usize, stats: Option<&Path>, program: &str, args: &[String]) -> Command {
    let mut command = Command::new(&context.exe);
    command.args(["bench", "peer", "--talk", "launch"]);
    if let Some(core) = context.core(core) {
        command.args(["--cpu", &core.to_string()]);
    }
    command.arg("--");
    if let Some(stats) = stats {
        let run = context.under_bypath(Some(stats));
        command.arg(run.get_program()).args(run.get_args());
    }
    command.arg(program).args(args);
    command
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port: {e}"))?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// Skips unless the program is in PATH.
fn installed(program: &str, package: &str) -> Result<(), Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Trouble::Skipped(format!("{program} is not installed; Debian package: {package}")))
}
