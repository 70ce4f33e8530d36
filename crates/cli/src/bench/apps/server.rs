//! Servers of real programs, and runs of their clients: on a free port, ended with the bench.

use super::launch::{Launcher, Program, find};
use crate::bench::args::SubjectName;
use crate::bench::child::{Child, Ended};
use crate::bench::context::{Context, Trouble};
use crate::bench::cpu::Tree;
use crate::bench::proof::Proof;
use rustix::process::Signal;
use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How it shows that a server is ready.
#[derive(Clone, Copy, Debug)]
pub enum ReadyWhen {
    /// It says so in a line that contains this.
    Says(&'static str),
    /// It says so on its standard error.
    Logs(&'static str),
    /// Its port accepts connections.
    Accepts,
}

/// How long workers may go on after their client's end, and a server after being asked to end.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Between two looks at a server that is starting.
const LOOK: Duration = Duration::from_millis(5);

type Args = Box<dyn Fn(&Place) -> Vec<String>>;
type Preparation = Box<dyn Fn(&Context, &Launcher, &Place) -> Result<(), Trouble>>;

/// A server that is started when first needed and then serves all jobs of its subject.
pub struct Server {
    subject: SubjectName,
    program: Program,
    ready: ReadyWhen,
    args: Args,
    preparation: Option<Preparation>,
    refuses_root: bool,
    stop: Option<Signal>,
    running: RefCell<Option<Running>>,
    /// Why an earlier run failed.
    trouble: RefCell<Option<String>>,
}

/// Where it serves.
#[derive(Clone, Debug)]
pub struct Place {
    /// A port on 127.0.0.1 that was free.
    pub port: u16,
    /// A path for an AF_UNIX socket, or a folder.
    pub socket: PathBuf,
    /// Whether clients use the path.
    pub unix: bool,
}

struct Running {
    child: Child,
    place: Place,
    launcher: Launcher,
    stop: Option<Signal>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(signal) = self.stop {
            self.child.stop(signal, Instant::now() + AFTERMATH);
        }
    }
}

/// A run of a client against a server.
pub struct Served {
    /// What the client printed.
    pub output: Vec<String>,
    /// From the client's start to its end.
    pub time: Duration,
    /// Processor time of both, with all their processes.
    pub cpu_ns: u64,
    /// What a reader should know.
    pub note: Option<String>,
}

impl Server {
    /// Describes it; nothing is started yet.
    pub fn new(
        subject: SubjectName,
        program: Program,
        ready: ReadyWhen,
        args: impl Fn(&Place) -> Vec<String> + 'static,
    ) -> Server {
        Server {
            subject,
            program,
            ready,
            args: Box::new(args),
            preparation: None,
            refuses_root: false,
            stop: None,
            running: RefCell::new(None),
            trouble: RefCell::new(None),
        }
    }

    /// What is done before it starts.
    pub fn prepared(
        self,
        by: impl Fn(&Context, &Launcher, &Place) -> Result<(), Trouble> + 'static,
    ) -> Server {
        Server { preparation: Some(Box::new(by)), ..self }
    }

    /// It and its clients must not run as root.
    pub fn refusing_root(self) -> Server {
        Server { refuses_root: true, ..self }
    }

    /// It is asked to end, and killed only if it does not.
    pub fn stopped_by(self, signal: Signal) -> Server {
        Server { stop: Some(signal), ..self }
    }

    /// Its subject.
    pub fn subject(&self) -> SubjectName {
        self.subject
    }

    /// Runs a client to its end; starts the server if it is not running.
    pub fn serve(
        &self,
        context: &Context,
        client: Program,
        seconds: f64,
        args: impl Fn(&Place) -> Vec<String>,
    ) -> Result<Served, Trouble> {
        let program = find(self.program)?;
        let client_path = find(client)?;
        if let Some(why) = self.trouble.borrow().as_ref().filter(|_| context.quick) {
            return Err(Trouble::Skipped(format!(
                "--quick does not wait again for what failed before: {why}"
            )));
        }
        let mut slot = self.running.borrow_mut();
        if slot.is_none() {
            *slot = Some(self.start(context, &program, seconds)?);
        }
        let deadline = context.deadline(seconds);
        let running = slot.as_ref().expect("started just now");
        let command = running.launcher.command(context, 1, &client_path, &args(&running.place));
        let tree = Tree(running.child.pid());
        let (workers, before) = (tree.processes(), tree.cpu_ns());
        let begin = Instant::now();
        let ended = Child::spawn(command, client.0).and_then(|mut c| c.finish(deadline));
        let Ended { output, cpu_ns: client_cpu, at } = match ended {
            Ok(ended) => ended,
            Err(e) => {
                // The server may be in any state now: the next run gets a new one.
                *slot = None;
                *self.trouble.borrow_mut() = Some(e.clone());
                return Err(Trouble::Failed(e));
            }
        };
        tree.settle(&workers, Instant::now() + AFTERMATH);
        Ok(Served {
            output,
            time: at - begin,
            cpu_ns: client_cpu + tree.cpu_ns().saturating_sub(before),
            note: running.launcher.stats().and_then(|s| Proof::read(s).note()),
        })
    }

    fn start(&self, context: &Context, program: &std::path::Path, seconds: f64) -> Result<Running, Trouble> {
        let name = self.program.0;
        let launcher = Launcher::new(context, self.subject == SubjectName::Bypath, self.refuses_root)?;
        let place = Place {
            port: free_port()?,
            socket: launcher.fresh(context, "app"),
            unix: self.subject == SubjectName::Unix,
        };
        if let Some(prepare) = &self.preparation {
            prepare(context, &launcher, &place)?;
        }
        let deadline = context.deadline(seconds);
        let command = launcher.command(context, 0, program, &(self.args)(&place));
        let child = Child::spawn(command, name)?;
        let mut running = Running { child, place, launcher, stop: self.stop };
        loop {
            let why = match self.ready {
                ReadyWhen::Says(words) => {
                    while !running.child.line(deadline)?.contains(words) {}
                    return Ok(running);
                }
                ReadyWhen::Logs(words) if running.child.has_complained(words) => return Ok(running),
                ReadyWhen::Logs(words) => format!("does not say {words:?}"),
                ReadyWhen::Accepts => match TcpStream::connect(("127.0.0.1", running.place.port)) {
                    Ok(_) => return Ok(running),
                    Err(e) => format!("does not accept: {e}"),
                },
            };
            if Instant::now() >= deadline {
                return Err(format!("{name}: {why}").into());
            }
            // Nothing tells when a program starts to listen; its end does come as an event.
            match running.child.line(Instant::now() + LOOK) {
                Err(e) if e.contains("exit status") => return Err(e.into()),
                _ => {}
            }
        }
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port: {e}"))?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// The servers of the chosen subjects.
pub fn servers(
    subjects: &[SubjectName],
    chosen: &dyn Fn(SubjectName) -> bool,
    server: impl Fn(SubjectName) -> Server,
) -> Vec<Rc<Server>> {
    subjects.iter().filter(|s| chosen(**s)).map(|s| Rc::new(server(*s))).collect()
}
