//! One-way bytes under Bypath, with nobody who looks on and with somebody: what seeing costs those who are seen.

use super::pair::{Options, converse};
use super::subject::Subject;
use crate::bench::args::Case;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

const SIZE: usize = 65_536;
/// From one look to the next.
const EVERY: Duration = Duration::from_millis(100);

/// Who looks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// Nobody.
    Nobody,
    /// `bypath top --once -d 0.1`, again and again.
    Top,
    /// `bypath metrics --listen`, asked every 100 ms.
    Metrics,
    /// `bypath dump` of all octets, to /dev/null.
    Dump,
}

impl Watcher {
    pub const ALL: [Watcher; 4] = [Watcher::Nobody, Watcher::Top, Watcher::Metrics, Watcher::Dump];

    fn name(self) -> &'static str {
        match self {
            Watcher::Nobody => "nobody",
            Watcher::Top => "top",
            Watcher::Metrics => "metrics",
            Watcher::Dump => "dump",
        }
    }

    fn start(self, exe: &Path) -> std::io::Result<Watching> {
        let quiet = |words: &[&str]| {
            let mut command = Command::new(exe);
            command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut watching = Watching::default();
        match self {
            Watcher::Nobody => {}
            Watcher::Dump => watching.child = Some(quiet(&["dump", "-w", "/dev/null"]).spawn()?),
            Watcher::Top => {
                let exe: PathBuf = exe.to_owned();
                watching.look_again(move || {
                    let mut top = Command::new(&exe);
                    top.args(["top", "--once", "-d", "0.1"]).stdin(Stdio::null());
                    top.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
                });
            }
            Watcher::Metrics => {
                let mut child = quiet(&["metrics", "--listen", "0"]).stdout(Stdio::piped()).spawn()?;
                let mut line = String::new();
                if let Some(output) = child.stdout.take() {
                    BufReader::new(output).read_line(&mut line)?;
                }
                watching.child = Some(child);
                let place = line.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
                watching.look_again(move || {
                    std::thread::sleep(EVERY);
                    scrape(&place).is_ok()
                });
            }
        }
        Ok(watching)
    }
}

fn scrape(place: &str) -> std::io::Result<usize> {
    let mut page = TcpStream::connect(place)?;
    page.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    page.read_to_end(&mut Vec::new())
}

/// Somebody looks on until this goes.
#[derive(Default)]
struct Watching {
    child: Option<Child>,
    looks: Option<JoinHandle<()>>,
    is_over: Arc<AtomicBool>,
}

impl Watching {
    /// `look` until it is over, or fails.
    fn look_again(&mut self, mut look: impl FnMut() -> bool + Send + 'static) {
        let is_over = self.is_over.clone();
        self.looks = Some(std::thread::spawn(move || while !is_over.load(Relaxed) && look() {}));
    }

    /// Whether somebody still does; otherwise the figure is one with nobody.
    fn goes_on(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| matches!(child.try_wait(), Ok(None)))
            && self.looks.as_ref().is_none_or(|looks| !looks.is_finished())
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(looks) = self.looks.take() {
            let _ = looks.join();
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// One of them.
pub struct Watched {
    subject: Subject,
    watcher: Watcher,
}

impl Watched {
    pub fn new(subject: Subject, watcher: Watcher) -> Watched {
        Watched { subject, watcher }
    }

    fn figure(&self, context: &Context, metric: &'static str) -> Figure {
        Figure {
            link: Some(self.watcher.name().into()),
            mode: Some("block"),
            size: Some(SIZE as u64),
            ..self.subject.figure(context, Case::Watched, metric)
        }
    }
}

impl Job for Watched {
    fn title(&self) -> String {
        format!("watched by {}", self.watcher.name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        ["bytes_per_s", "cpu_ns_per_op"].map(|m| self.figure(context, m)).into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let options = Options {
            talk: "stream",
            size: SIZE,
            seconds: context.seconds.max(0.3),
            connections: 1,
            ..Options::default()
        };
        let mut watching =
            self.watcher.start(&context.exe).map_err(|e| format!("{}: {e}", self.watcher.name()))?;
        let both = converse(context, &self.subject, &options)?;
        if !watching.goes_on() {
            return Err(format!("{} has ended", self.watcher.name()).into());
        }
        let (server, driver) = (&both.server, &both.driver);
        let cpu = (server.cpu_ns + driver.cpu_ns) as f64 / driver.sent.max(1) as f64;
        let values = [server.bytes as f64 * 1e9 / server.elapsed_ns as f64, cpu];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: both.proof.note() })
    }
}
