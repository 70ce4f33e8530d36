//! The netstack service: a program of the test's own that speaks its protocol, and the kernel at the other end of a TAP device.

#[path = "../../../link/tests/common/namespace.rs"]
mod namespace;

mod again;
mod askers;
mod bodies;
mod bounds;
mod connecting;
mod datagrams;
mod ends;
mod fuse;
mod garbage;
mod hold;
mod hostile;
mod listening;
mod lives;
mod mail;
mod names;
mod options;
mod others;
mod pings;
mod program;
mod queries;
mod rings;
mod shares;
mod streams;
mod tasks;
mod unclosed;
mod unread;
mod urgent;
mod waiting;

use bypath_link::tun::Device;
use bypath_netstack::Engine;
use bypath_netstack::service::{Service, ServiceError, Settings, Stopper, query};
use bypath_stack::config::Config;
use bypath_wire::MacAddr;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use program::Program;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for what must come.
const LONGEST: Duration = Duration::from_secs(20);

/// Nobody answers there, not even that nobody is there.
const SILENT: &str = "10.9.0.66:80";

/// A test that runs in a user and network namespace of its own, if devices can be made there.
macro_rules! isolated {
    (fn $name:ident() $body:block) => {
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            $crate::namespace::in_namespace(path, || {
                if let Err(e) = bypath_link::tun::Device::tap("probe%d").open() {
                    return $crate::namespace::skip(path, &format!("no TAP devices: {e}"));
                }
                bypath_sys::netns::set_up("lo", true).expect("loopback");
                // Where there is no such setting addresses are waited for.
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
                $body
            });
        }
    };
}
use isolated;

/// A test with several users.
macro_rules! users {
    (fn $name:ident() $body:block) => {
        #[test]
        fn $name() {
            let path = concat!(module_path!(), "::", stringify!($name));
            if !nix::unistd::geteuid().is_root() {
                return $crate::namespace::skip(
                    $crate::namespace::name_of(path),
                    "needs root: it is about several users",
                );
            }
            $crate::namespace::apart(path, || {
                if let Err(e) = bypath_link::tun::Device::tap("probe%d").open() {
                    return $crate::namespace::skip(
                        $crate::namespace::name_of(path),
                        &format!("no TAP devices: {e}"),
                    );
                }
                bypath_sys::netns::set_up("lo", true).expect("loopback");
                let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
                $body
            });
        }
    };
}
use users;

/// A service on a thread: 10.9.0.2 and fd09::2; the kernel is 10.9.0.1 and fd09::1.
struct Running {
    path: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), ServiceError>>>,
}

impl Running {
    fn new() -> Running {
        Running::with(|_| {}, Config::default())
    }

    fn with(change: impl FnOnce(&mut Settings), config: Config) -> Running {
        Running::asked(change, config, |_| {}).0
    }

    /// One that was called, and asked, before it began to run.
    fn asked<T>(
        change: impl FnOnce(&mut Settings),
        config: Config,
        before: impl FnOnce(&Path) -> T,
    ) -> (Running, T) {
        let mut settings = Settings { name: "lab".to_owned(), folder: folder(), ..Settings::default() };
        change(&mut settings);
        let path = settings.folder.join(&settings.name);
        let mut service = Service::open(engine(config), settings).expect("a service");
        let stopper = service.stopper();
        let asked = before(&path);
        let thread = std::thread::Builder::new().name("service".to_owned()).spawn(move || {
            let ended = service.run();
            service.finish(Duration::from_secs(5));
            ended
        });
        let thread = thread.expect("a thread");
        (Running { path, stopper, thread: Some(thread) }, asked)
    }

    /// A program of root's.
    fn program(&self) -> Program {
        Program::new(&self.path)
    }

    /// What it answers.
    fn query(&self, what: &str) -> Vec<Value> {
        let mut rows = Vec::new();
        let question = serde_json::json!({ "what": what }).to_string();
        query(&self.path, &question, |row| rows.push(serde_json::from_str(row).expect("JSON")))
            .expect("an answer");
        rows
    }

    /// Waits until so many sockets are open, and nothing else is left in the stack.
    #[track_caller]
    fn has_sockets(&self, sockets: u64) {
        let end = Instant::now() + LONGEST;
        loop {
            let service = self.query("service").remove(0);
            let stats = self.query("stats");
            let connections = stats.iter().find(|row| row["name"] == "connections").expect("a count");
            if service["sockets"] == sockets && connections["value"] == sockets {
                return;
            }
            assert!(Instant::now() < end, "{service} {connections} {:?}", self.query("sockets"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(&mut self) -> Result<(), ServiceError> {
        self.stopper.stop();
        self.thread.take().expect("once").join().expect("no panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("no panic").expect("it was stopped");
            }
        }
        if let Some(folder) = self.path.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

/// A folder of a test's own.
fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("bypath-service-{}-{n}", std::process::id()));
        match std::fs::create_dir(&folder) {
            // A process that had this number was killed.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => {
                made.expect("a folder");
                return folder;
            }
        }
    }
}

fn engine(config: Config) -> Engine {
    let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
    let device = Device::tap("mine").address(ip("10.9.0.1"), 24).address(ip("fd09::1"), 64);
    let mut engine = Engine::new(Config { dad_transmits: 0, ..config });
    let link = Box::new(device.open().expect("a device"));
    let iface = engine.add_link("mine", link).expect("an interface");
    for address in ["10.9.0.2/24", "fd09::2/64"] {
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
    }
    // Frames to there are for a station that there is not.
    engine.stack().set_neighbor(iface, at(SILENT).ip(), MacAddr([2, 0, 0, 0, 0, 99]));
    engine
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// A listener of the kernel's, and its address.
fn kernels(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(at(address)).expect("a listener of the kernel");
    let local = listener.local_addr().expect("an address");
    (listener, local)
}

/// Keeps this thread, and those that it starts, on the first processor that it may have.
fn on_one_processor() {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).expect("processors");
    let first = (0..CpuSet::count()).find(|n| allowed.is_set(*n) == Ok(true)).expect("a processor");
    let mut one = CpuSet::new();
    one.set(first).expect("its number");
    sched_setaffinity(this, &one).expect("a processor");
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LONGEST)).expect("a time-out");
    stream.set_write_timeout(Some(LONGEST)).expect("a time-out");
    stream
}

/// Octets that tell a position.
fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n ^ ((n >> 8) * 31)) as u8).collect()
}
