//! One large file, fetched again and again: by scp, by rsync from its daemon, by rsync over ssh. Every copy is compared
//! with the file.

use super::launch::Program;
use super::server::{Place, ReadyWhen, Server, servers};
use super::{Group, figure, sshd};
use crate::bench::args::{App, SubjectName};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use crate::bench::scratch::Scratch;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SCP: Program = ("scp", "openssh-client");
const RSYNC: Program = ("rsync", "rsync");
/// Bytes of the file for each second that a run may take.
const BYTES_PER_SECOND: f64 = (512 << 20) as f64;
const SMALLEST: u64 = 16 << 20;
/// Starting and ending a transfer may take this long.
const OVERHEAD: f64 = 5.0;

/// The file, and where its copies go.
pub struct Files {
    folder: Scratch,
    size: u64,
}

impl Files {
    fn new(context: &Context) -> Result<Files, String> {
        let size = ((context.seconds * BYTES_PER_SECOND) as u64).max(SMALLEST).next_multiple_of(1 << 20);
        // In memory where there is room: disks are not measured.
        let memory = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
        let in_memory = (free >= 4 * size).then(|| Scratch::with_mode(memory, 0o700));
        let folder = match in_memory {
            Some(Ok(folder)) => folder,
            _ => Scratch::new().map_err(|e| format!("cannot create a folder for files: {e}"))?,
        };
        let files = Files { folder, size };
        files.write().map_err(|e| format!("{}: {e}", files.source().display()))?;
        Ok(files)
    }

    fn write(&self) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(self.source())?);
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..self.size / 8 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            file.write_all(&x.to_le_bytes())?;
        }
        file.flush()
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("file")
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    /// Compares the copy with the file and removes it.
    fn take_copy(&self) -> Result<(), String> {
        let fail = |e: io::Error| format!("{}: {e}", self.copy().display());
        let mut ends = [File::open(self.source()).map_err(fail)?, File::open(self.copy()).map_err(fail)?];
        let mut blocks = [vec![0; 1 << 20], vec![0; 1 << 20]];
        for at in (0..self.size).step_by(1 << 20) {
            for (file, block) in ends.iter_mut().zip(&mut blocks) {
                file.read_exact(block).map_err(fail)?;
            }
            if blocks[0] != blocks[1] {
                return Err(format!("the copy differs within 1 MiB from byte {at}"));
            }
        }
        if ends[1].read(&mut blocks[1]).map_err(fail)? != 0 {
            return Err("the copy is longer than the file".into());
        }
        fs::remove_file(self.copy()).map_err(fail)
    }
}

struct Transfer {
    app: App,
    server: Rc<Server>,
    files: Rc<Result<Files, String>>,
}

/// The wanted ones, each over kernel TCP and Bypath.
pub fn plan(
    context: &Context,
    wanted: &dyn Fn(App) -> bool,
    chosen: &dyn Fn(SubjectName) -> bool,
) -> Vec<Group> {
    const APPS: [App; 3] = [App::Scp, App::Rsync, App::RsyncSsh];
    if !APPS.into_iter().any(wanted) {
        return Vec::new();
    }
    let files = Rc::new(Files::new(context));
    let subjects = [SubjectName::KernelTcp, SubjectName::Bypath];
    let ssh = servers(&subjects, chosen, sshd::server);
    let daemons = servers(&subjects, chosen, |subject| rsync_daemon(subject, Rc::clone(&files)));
    let group = |app: App| {
        let servers = if app == App::Rsync { &daemons } else { &ssh };
        let job = |server: &Rc<Server>| {
            Box::new(Transfer { app, server: Rc::clone(server), files: Rc::clone(&files) }) as Box<dyn Job>
        };
        servers.iter().map(job).collect()
    };
    APPS.into_iter().filter(|app| wanted(*app)).map(group).collect()
}

fn rsync_daemon(subject: SubjectName, files: Rc<Result<Files, String>>) -> Server {
    Server::new(subject, RSYNC, ReadyWhen::Accepts, |place| {
        let config = format!("--config={}", place.socket.display());
        let port = format!("--port={}", place.port);
        ["--daemon", "--no-detach", "--address=127.0.0.1", &port, &config].map(Into::into).into()
    })
    .prepared(move |_, _, place| {
        let folder = files.as_ref().as_ref().map_err(Clone::clone)?.folder.path().display();
        // Started by root, it would serve as nobody.
        let user = if rustix::process::geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" };
        let config = format!("use chroot = no\n{user}[files]\npath = {folder}\nread only = yes\n");
        fs::write(&place.socket, config).map_err(|e| format!("{}: {e}", place.socket.display()).into())
    })
}

impl Transfer {
    fn case(&self) -> &'static str {
        match self.app {
            App::Scp => "scp",
            App::RsyncSsh => "rsync over ssh",
            _ => "rsync from its daemon",
        }
    }

    fn arguments(&self, place: &Place, files: &Files) -> Vec<String> {
        let (source, copy) = (files.source().display().to_string(), files.copy().display().to_string());
        let remote = || format!("{}@127.0.0.1:{source}", sshd::user());
        // A copy that ends up under its own name at once, without being compared to an old one.
        let whole = || ["--whole-file", "--inplace"].map(String::from);
        match self.app {
            App::Scp => {
                let mut args = vec!["-q".into(), "-P".into(), place.port.to_string()];
                args.extend(sshd::client_options(place));
                args.extend([remote(), copy]);
                args
            }
            App::RsyncSsh => {
                let mut ssh = vec!["ssh".into(), "-p".into(), place.port.to_string()];
                ssh.extend(sshd::client_options(place));
                whole().into_iter().chain(["-e".into(), ssh.join(" "), remote(), copy]).collect()
            }
            _ => {
                let from = format!("rsync://127.0.0.1:{}/files/file", place.port);
                whole().into_iter().chain([from, copy]).collect()
            }
        }
    }
}

impl Job for Transfer {
    fn title(&self) -> String {
        format!("{} {}", self.case(), self.server.subject().name())
    }

    fn figures(&self, context: &Context) -> Vec<Figure> {
        let size = self.files.as_ref().as_ref().ok().map(|f| f.size);
        ["bytes_per_s", "cpu_s_per_gb"]
            .map(|m| Figure { size, ..figure(context, self.case(), self.server.subject(), m) })
            .into()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let files = self.files.as_ref().as_ref().map_err(Clone::clone)?;
        let client = if self.app == App::Scp { SCP } else { RSYNC };
        if self.app == App::RsyncSsh {
            super::launch::find(("ssh", SCP.1))?;
        }
        let seconds = context.seconds + OVERHEAD;
        let served = self.server.serve(context, client, seconds, |place| self.arguments(place, files))?;
        files.take_copy()?;
        let size = files.size as f64;
        // Nanoseconds for a byte are seconds for a gigabyte.
        let values = [size / served.time.as_secs_f64(), served.cpu_ns as f64 / size];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: served.note })
    }
}
