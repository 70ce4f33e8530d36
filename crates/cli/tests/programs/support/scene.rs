//! One test: its directory, its port, its way and its deadline.

use super::library::{bypath, preload_library};
use super::process::{Outcome, Process};
use super::skip::{find_program, missing, skip};
use super::stats::Totals;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long one test may take, on a machine that is busy with other things; `BYPATH_TEST_SECONDS` shortens it
/// while something hangs and is looked for.
fn test_time() -> Duration {
    let seconds = std::env::var("BYPATH_TEST_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(240))
}

/// Which side of the connection runs under Bypath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Client and server.
    Both,
    /// The client is plain.
    OnlyServer,
    /// The server is plain.
    OnlyClient,
}

/// A test in progress.
pub struct Scene {
    way: Way,
    dir: PathBuf,
    deadline: Instant,
    /// Whom its programs run as, if not as us; see [`Scene::unprivileged`].
    user: Option<u32>,
    /// Where it is played once more if too little went through rings: what it says then.
    too_little: Option<Arc<Mutex<Option<String>>>>,
}

/// The user of programs that refuse to run as root: nobody.
const UNPRIVILEGED: u32 = 65534;

impl Scene {
    /// Runs `body` unless one of the programs it needs is missing. Where everything is right but for the share that went through
    /// rings, it runs again, twice at most: what comes before the switch is the kernel's, and when the switch comes depends
    /// on when both programs get a processor.
    pub fn play(test: &str, way: Way, needs: &[&str], body: impl Fn(&Scene)) {
        const TIMES: usize = 3;
        if let Some(reason) = missing(needs) {
            return skip(test, &reason);
        }
        let mut said = String::new();
        for _ in 0..TIMES {
            let too_little: Arc<Mutex<Option<String>>> = Arc::default();
            let mut scene = Scene::new(way);
            scene.too_little = Some(Arc::clone(&too_little));
            body(&scene);
            match too_little.lock().expect("no test panics with it").take() {
                Some(share) => said = share,
                None => return,
            }
            println!("{said}");
        }
        panic!("{TIMES} times: {said}");
    }

    /// A scene with an empty directory of its own, in memory if there is room.
    pub fn new(way: Way) -> Scene {
        Scene::new_in(way, &roomy())
    }

    /// A scene with an empty directory of its own in `parent`.
    pub fn new_in(way: Way, parent: &Path) -> Scene {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("bypath-test-{}-{number}", std::process::id()));
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        // Built before the clock starts.
        preload_library();
        Scene { way, dir, deadline: Instant::now() + test_time(), user: None, too_little: None }
    }

    /// A scene of the same way and deadline for programs that refuse to run as root: if we are root, its programs
    /// run as nobody, with copies of what they need. Its directory is on disk, as memory file systems may forbid
    /// running programs.
    pub fn unprivileged(&self) -> Scene {
        let mut scene = Scene::new_in(self.way, &std::env::temp_dir());
        scene.too_little.clone_from(&self.too_little);
        if !rustix::process::geteuid().is_root() {
            return scene;
        }
        open_to_all(&scene.dir);
        let scripts = scripts();
        let mut files = vec![bypath().to_owned(), preload_library().to_owned()];
        let entries = fs::read_dir(&scripts).expect("the scripts of the tests");
        files.extend(entries.map(|e| e.expect("the scripts of the tests").path()));
        for from in files {
            let to = scene.dir.join(from.file_name().expect("a file"));
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
            open_to_all(&to);
        }
        scene.user = Some(UNPRIVILEGED);
        scene
    }

    /// A path in the scene's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The way it is run.
    pub fn way(&self) -> Way {
        self.way
    }

    /// A port that nobody uses, below the range from which the kernel takes ports for outgoing connections:
    /// it stays free until the server binds it.
    pub fn port(&self) -> u16 {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let start = std::process::id().wrapping_mul(97);
        for _ in 0..10_000 {
            let n = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 11_000;
            let port = 20_000 + u16::try_from(n).expect("below 11000");
            let is_free =
                |ip: &str| TcpListener::bind((ip, port)).is_ok() && UdpSocket::bind((ip, port)).is_ok();
            if is_free("0.0.0.0") && is_free("127.0.0.1") {
                return port;
            }
        }
        panic!("no free port between 20000 and 31000");
    }

    /// The server program, under Bypath if this way has it so.
    pub fn server(&self, program: &str) -> Program<'_> {
        self.program(program, (self.way != Way::OnlyClient).then_some("server.stats"))
    }

    /// A client program, under Bypath if this way has it so.
    pub fn client(&self, program: &str) -> Program<'_> {
        self.program(program, (self.way != Way::OnlyServer).then_some("client.stats"))
    }

    /// A helper that never runs under Bypath.
    pub fn plain(&self, program: &str) -> Program<'_> {
        self.program(program, None)
    }

    fn program(&self, program: &str, stats: Option<&str>) -> Program<'_> {
        let path = if program.contains('/') {
            PathBuf::from(program)
        } else {
            find_program(program)
                .unwrap_or_else(|| panic!("{program} is missing but not in the test's needs"))
        };
        let mut words = Vec::new();
        if let Some(user) = self.user {
            words.push(find_program("setpriv").expect("setpriv is in the test's needs").into_os_string());
            words.extend([format!("--reuid={user}"), format!("--regid={user}")].map(OsString::from));
            words.extend(["--clear-groups", "--"].map(OsString::from));
        }
        if let Some(stats) = stats {
            let tools = [bypath(), preload_library()].map(|tool| self.copy_of(tool));
            words.extend(launcher((&tools[0], &tools[1]), &self.path(stats), &[]));
        }
        words.push(path.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        clean(&mut command);
        command.current_dir(&self.dir).stdin(Stdio::null());
        Program { scene: self, name: program.to_owned(), command, own_stdout: false }
    }

    /// A file of ours, or the copy of it that the scene's user can read.
    fn copy_of(&self, file: &Path) -> PathBuf {
        match (self.user, file.file_name()) {
            (Some(_), Some(name)) => self.dir.join(name),
            _ => file.to_owned(),
        }
    }

    /// The counters of all processes that ran under Bypath.
    #[track_caller]
    pub fn totals(&self) -> Totals {
        self.sum(|_| true)
    }

    /// As `totals`, where a side may be a program that cannot be preloaded and writes no record.
    #[track_caller]
    pub fn totals_of_the_preloaded(&self) -> Totals {
        self.sum(|file| fs::metadata(file).is_ok_and(|m| m.len() > 0))
    }

    #[track_caller]
    fn sum(&self, counts: impl Fn(&Path) -> bool) -> Totals {
        let mut sum = Totals::default();
        for name in ["server.stats", "client.stats"] {
            let file = self.path(name);
            if file.exists() && counts(&file) {
                sum.add(&Totals::read(&file));
            }
        }
        sum
    }

    /// The proof, when all programs have ended: with both sides under Bypath the bytes went through the
    /// ring, with one side they did not; `payload` bytes were sent at least.
    #[track_caller]
    pub fn prove(&self, payload: u64) {
        self.prove_share(payload, 95);
    }

    /// As `prove` where, with both sides under Bypath, only so many percent can go through the ring.
    #[track_caller]
    pub fn prove_share(&self, payload: u64, percent: u64) {
        match self.way {
            _ if !ring_required() => {}
            Way::Both => self.prove_share_of(&self.totals(), payload, percent),
            Way::OnlyServer | Way::OnlyClient => self.totals().assert_kernel_only(payload),
        }
    }

    /// At least `payload` bytes were sent, and so many percent through rings, or the scene is played once more.
    #[track_caller]
    pub fn prove_share_of(&self, totals: &Totals, payload: u64, percent: u64) {
        match &self.too_little {
            Some(said) if totals.sent() >= payload && totals.share() < percent as f64 => {
                let said = &mut *said.lock().expect("no test panics with it");
                *said =
                    Some(format!("{:.1} % of the bytes went through the ring: {totals:#?}", totals.share()));
            }
            _ => totals.assert_share(payload, percent),
        }
    }

    /// As `prove` for datagrams between programs of which nobody sleeps: with both sides under Bypath `percent` of the octets that
    /// were sent went through shared memory, else none.
    #[track_caller]
    pub fn prove_datagrams(&self, payload: u64, percent: u64) {
        let totals = self.totals();
        match self.way {
            _ if !ring_required() => {}
            Way::Both => totals.assert_share(payload, percent),
            Way::OnlyServer | Way::OnlyClient => {
                assert!(totals.moved() >= payload, "{payload} octets, but not so many counted: {totals:#?}");
                assert_eq!((totals.ring_tx, totals.ring_rx), (0, 0), "the other side is plain: {totals:#?}");
            }
        }
    }

    /// Runs it, up to three times more if the machine, which others use, had put one of two programs to sleep that otherwise look: with both sides under
    /// Bypath `percent` of the octets that were sent in one of them went through shared memory, else none ever.
    #[track_caller]
    pub fn prove_awake(&self, percent: u64, run: impl Fn()) {
        const MORE: usize = 3;
        run();
        let mut all = self.totals();
        let mut last = all.share();
        for left in (0..MORE).rev() {
            if self.way != Way::Both || !ring_required() || last >= percent as f64 {
                break;
            }
            run();
            let one = self.totals().since(&all);
            (all, last) = (self.totals(), one.share());
            if left == 0 {
                one.assert_share(1, percent);
            }
        }
        self.prove_kernel_if_alone();
    }

    /// With one side under Bypath nothing went through shared memory.
    #[track_caller]
    pub fn prove_kernel_if_alone(&self) {
        let totals = self.totals();
        println!("{:?}: {:.1} % of {} octets by rings", self.way, totals.share(), totals.sent());
        if self.way != Way::Both && ring_required() {
            assert!(totals.records > 0, "nothing was under Bypath");
            assert_eq!((totals.ring_tx, totals.ring_rx), (0, 0), "the other side is plain: {totals:#?}");
        }
    }

    /// As `prove` for programs that leave the sending to the kernel (sendfile): with both sides under Bypath
    /// nothing is demanded of the path.
    #[track_caller]
    pub fn prove_plain_peer(&self) {
        if self.way != Way::Both && ring_required() {
            self.totals().assert_kernel_only(0);
        }
    }
}

/// Where the tests' own scripts are.
fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts")
}

fn open_to_all(path: &Path) {
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(path, all).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

impl Drop for Scene {
    fn drop(&mut self) {
        let keep = std::thread::panicking() && std::env::var_os("BYPATH_TEST_KEEP").is_some();
        if !keep {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Where the files of a test go: a memory file system with 2 GiB free, else the temporary directory. The
/// tests write gigabytes, and on a slow disk a single fsync (Redis ends a snapshot with one) waits for all.
fn roomy() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |s| s.f_bavail * s.f_frsize);
    let writable = rustix::fs::access(memory, rustix::fs::Access::WRITE_OK).is_ok();
    if free >= 2 << 30 && writable { memory.to_owned() } else { std::env::temp_dir() }
}

/// Whether the paths are checked: always, unless `BYPATH_TEST_REQUIRE_RING=0` asks for the data only.
pub fn ring_required() -> bool {
    std::env::var_os("BYPATH_TEST_REQUIRE_RING").is_none_or(|v| v != "0")
}

/// The words that go before a program and its arguments: `bypath run --stats FILE OPTIONS --`, or with
/// `BYPATH_TEST_LAUNCH=preload` `env` with the same settings as variables. `tools` are the command and the
/// library, `options` flags without dashes and their values.
pub fn launcher(tools: (&Path, &Path), stats: &Path, options: &[(&str, &str)]) -> Vec<OsString> {
    let (bypath, library) = tools;
    if std::env::var_os("BYPATH_TEST_LAUNCH").is_some_and(|v| v == "preload") {
        let set = |name: &str, value: &OsStr| {
            let mut word = OsString::from(name);
            word.push("=");
            word.push(value);
            word
        };
        let mut words = vec!["/usr/bin/env".into()];
        words.push(set("LD_PRELOAD", library.as_os_str()));
        words.push(set("BYPATH_STATS", stats.as_os_str()));
        for (flag, value) in options {
            let variable = format!("BYPATH_{}", flag.replace('-', "_").to_uppercase());
            words.push(set(&variable, OsStr::new(value)));
        }
        return words;
    }
    let mut words = vec![bypath.into(), "run".into(), "--library".into(), library.into()];
    words.extend(["--stats".into(), stats.into()]);
    for (flag, value) in options {
        words.extend([format!("--{flag}").into(), value.into()]);
    }
    words.push("--".into());
    words
}

/// Takes out what the caller's environment could change in a run.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_lowercase();
        let proxy = text.ends_with("_proxy");
        let ours = text.starts_with("bypath_") && !text.starts_with("bypath_test_");
        let loader = text.starts_with("ld_");
        if (proxy || ours || loader) && !command.get_envs().any(|(set, _)| set == name) {
            command.env_remove(&name);
        }
    }
    // The tester's own configuration file is none of the tests' business.
    command.env("LC_ALL", "C").env("BYPATH_CONFIG", "none");
}

/// A program about to be started.
pub struct Program<'a> {
    scene: &'a Scene,
    name: String,
    command: Command,
    own_stdout: bool,
}

impl Program<'_> {
    /// Several arguments as they are.
    pub fn words<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.command.args(words);
        self
    }

    /// One argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Several arguments, split at spaces.
    pub fn args(mut self, args: &str) -> Self {
        self.command.args(args.split_whitespace());
        self
    }

    /// The test's own script `name` as argument.
    pub fn script(self, name: &str) -> Self {
        let script = self.scene.copy_of(&scripts().join(name));
        self.arg(script)
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// The working directory, otherwise the scene's own.
    pub fn directory(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// Standard input from a file.
    pub fn stdin_from(mut self, path: &Path) -> Self {
        self.command.stdin(File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        self
    }

    /// Standard output into a file.
    pub fn stdout_to(mut self, path: &Path) -> Self {
        self.command.stdout(File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        self.own_stdout = true;
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn start(self) -> Process {
        Process::start(&self.name, self.command, self.own_stdout, self.scene.deadline)
    }

    /// Starts it and waits for its end, which must be a success.
    #[track_caller]
    pub fn finish(self) -> Outcome {
        self.start().wait().ok()
    }
}
