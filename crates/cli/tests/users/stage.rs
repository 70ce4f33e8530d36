//! An echo server and a client, each started as any user, through any wrapper, with any options.

use crate::support::{
    Process, Program, Scene, Totals, Way, bypath, find_program, launcher, preload_library, ring_required,
};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A scene whose files other users can use: copies of the command, the library and the scripts.
pub struct Stage {
    pub scene: Scene,
}

/// How one side is started.
#[derive(Default)]
pub struct Side<'a> {
    /// The user it runs as; `None` = ours.
    pub uid: Option<u32>,
    /// Flags of `bypath run` without dashes, and their values.
    pub options: &'a [(&'a str, &'a str)],
    /// Another library than that of the stage.
    pub library: Option<PathBuf>,
    /// Program and arguments put in front of `bypath run`.
    pub before: Vec<OsString>,
}

impl Side<'_> {
    /// Under another user, default options.
    pub fn user(uid: u32) -> Side<'static> {
        Side { uid: Some(uid), ..Side::default() }
    }
}

/// Starts a server under `Side`, then the client, and returns the counters of both.
impl Stage {
    /// A fresh stage. It is on disk: memory file systems may forbid running programs.
    pub fn new() -> Stage {
        let scene = Scene::new_in(Way::Both, &std::env::temp_dir());
        open_to_all(&scene.path(""), 0o777);
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts");
        let copies = [
            (bypath().to_owned(), "bypath"),
            (preload_library().to_owned(), "libbypath_preload.so"),
            (scripts.join("echo_server.py"), "echo_server.py"),
            (scripts.join("ping.py"), "ping.py"),
            (scripts.join("descriptors.py"), "descriptors.py"),
            (scripts.join("seccomp.py"), "seccomp.py"),
            (scripts.join("forbid.py"), "forbid.py"),
            (scripts.join("filtered_later.py"), "filtered_later.py"),
            (scripts.join("container.py"), "container.py"),
            (scripts.join("bare.py"), "bare.py"),
            (scripts.join("udp_echo.py"), "udp_echo.py"),
            (scripts.join("letters.py"), "letters.py"),
            (scripts.join("stranger.py"), "stranger.py"),
            (scripts.join("lender.py"), "lender.py"),
            (scripts.join("unrung.py"), "unrung.py"),
            (scripts.join("one_way.py"), "one_way.py"),
        ];
        for (from, name) in copies {
            let to = scene.path(name);
            // Another process writes it: were it open for writing here, a program that another test starts at this moment would inherit that,
            // and the kernel would not execute the file (ETXTBSY).
            let copied = Command::new("cp").arg(&from).arg(&to).status().expect("cp");
            assert!(copied.success(), "{}", from.display());
            open_to_all(&to, 0o755);
        }
        Stage { scene }
    }

    /// A program under Bypath as `side` says, counting into `stats`.
    pub fn program(&self, side: &Side, stats: &str, program: &Path) -> Program<'_> {
        let library = side.library.clone().unwrap_or_else(|| self.scene.path("libbypath_preload.so"));
        let bypath = self.scene.path("bypath");
        self.started(side, launcher((&bypath, &library), &self.scene.path(stats), side.options), program)
    }

    /// A program as it is, of this user.
    pub fn plain(&self, uid: u32, program: &Path) -> Program<'_> {
        self.started(&Side::user(uid), Vec::new(), program)
    }

    fn started(&self, side: &Side, launcher: Vec<OsString>, program: &Path) -> Program<'_> {
        let mut words = Vec::new();
        if let Some(uid) = side.uid {
            words.push(installed("setpriv").into_os_string());
            words.extend([format!("--reuid={uid}"), format!("--regid={uid}")].map(OsString::from));
            words.extend(["--clear-groups", "--"].map(OsString::from));
        }
        words.extend(side.before.iter().cloned());
        words.extend(launcher);
        words.push(program.into());
        let first = words.remove(0);
        self.scene.plain(first.to_str().expect("a plain path")).words(words)
    }

    /// An echo server under Bypath and its port.
    pub fn echo_server(&self, side: &Side) -> (Process, u16) {
        let server = self.program(side, "server.stats", &installed("python3"));
        let mut server = server.arg(self.scene.path("echo_server.py")).arg("selectors").start();
        let port = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
        (server, port)
    }

    /// Echo server and client exchange checked messages; the counters of the server and of the client.
    pub fn ping(&self, server: &Side, client: &Side) -> Counted {
        let (server, port) = self.echo_server(server);
        let client = self.program(client, "client.stats", &installed("python3"));
        let report = client.arg(self.scene.path("ping.py")).arg(port.to_string()).finish();
        server.stop(Signal::TERM);
        Counted { payload: report.number("payload "), ..self.counted() }
    }

    /// The same with datagrams, between two that are always awake.
    pub fn ping_datagrams(&self, server: &Side, client: &Side) -> Counted {
        let of = |side: &Side, stats: &str, role: &str| {
            let python = self.program(side, stats, &installed("python3"));
            python.arg(self.scene.path("udp_echo.py")).arg(role).arg("spinning")
        };
        let mut server = of(server, "server.stats", "server").start();
        let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
        let report = of(client, "client.stats", "client").arg(port.to_string()).arg("8").finish();
        server.stop(Signal::TERM);
        Counted { payload: report.number("payload "), ..self.counted() }
    }

    /// The counters so far; empty where the paths are not checked.
    pub fn counted(&self) -> Counted {
        self.counted_in("")
    }

    /// The same from files in a folder of the stage.
    pub fn counted_in(&self, folder: &str) -> Counted {
        let read = |name: &str| {
            let file = self.scene.path(folder).join(name);
            // `bypath run` makes the file; a program that is not preloaded leaves it empty.
            let written = fs::metadata(&file).is_ok_and(|m| m.len() > 0);
            if ring_required() && written { Totals::read(&file) } else { Totals::default() }
        };
        Counted { server: read("server.stats"), client: read("client.stats"), payload: 0 }
    }
}

/// What both sides counted.
#[derive(Debug)]
pub struct Counted {
    pub server: Totals,
    pub client: Totals,
    pub payload: u64,
}

impl Counted {
    /// 95 % of the bytes went through the ring.
    #[track_caller]
    pub fn assert_ring(&self) {
        if ring_required() {
            let mut sum = self.server.clone();
            sum.add(&self.client);
            sum.assert_ring(self.payload);
        }
    }

    /// No byte went through the ring, and these sides name these reasons.
    #[track_caller]
    pub fn assert_kernel(&self, server: Option<&str>, client: Option<&str>) {
        if !ring_required() {
            return;
        }
        for (side, counted, reason) in [("server", &self.server, server), ("client", &self.client, client)] {
            let on_ring = (counted.upgraded, counted.ring_tx, counted.ring_rx);
            assert_eq!(on_ring, (0, 0, 0), "the {side} used the ring: {self:#?}");
            if let Some(reason) = reason {
                assert!(counted.refused_for(reason) >= 1, "the {side} does not say {reason}: {self:#?}");
            }
        }
    }
}

/// The path of a program that the test's needs name.
pub fn installed(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| panic!("{name} is missing but not in the test's needs"))
}

pub fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
