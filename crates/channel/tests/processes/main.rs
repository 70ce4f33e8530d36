//! Two processes: killed ones, names, descriptors that travel, and a peer that lies.
//!
//! The other process is this program again, with one test that does what a variable says.

#[path = "../common/mod.rs"]
mod common;
mod cycles;
mod datagrams;
mod octets;
mod pauses;

use bypath_channel::{Channel, Listener, Remote};
use bypath_shm::dgram::Record;
use bypath_shm::region::OwnSlot;
use bypath_sys::seqpacket;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

const ROLE: &str = "BYPATH_CHANNEL_TEST";
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// The other process: talks to the channel at a name as its role says.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (what, name) = role.split_once(' ').expect("a role and a name");
    if let Some(what) = what.strip_prefix("datagrams-") {
        return datagrams::other(what, name);
    }
    if what == "cycles" {
        return cycles::other();
    }
    let channel = match what {
        "listen" => {
            // It has the name until it is killed, which leaves it.
            let listener = Box::leak(Box::new(Listener::bind(name).expect("a name")));
            println!("\nready");
            listener.accept().expect("a caller")
        }
        "inherits" => inherited(name).open().expect("an end"),
        "refused" => {
            let e = Channel::connect(name, LONG).expect_err("another user's");
            println!("\nerror {}", e.raw_os_error().expect("an errno"));
            return;
        }
        "takes" => {
            let e = Listener::bind(name).expect_err("nobody's folder");
            println!("\nerror {}", e.raw_os_error().expect("an errno"));
            return;
        }
        "led" => {
            // Both say the same.
            let [bound, connected] = [
                Listener::bind(name).expect_err("another user's session"),
                Channel::connect(name, LONG).expect_err("another user's session"),
            ]
            .map(|e| format!("{:?} {e}", e.kind()));
            println!("\nerror {bound}");
            return assert_eq!(bound, connected);
        }
        "uninvited" => {
            let socket = seqpacket::connect(Path::new(name)).expect("a mode that lets in");
            let e = Remote::receive(&socket, LONG).expect_err("no channel");
            println!("\nerror {}", e.raw_os_error().expect("an errno"));
            return;
        }
        _ => Channel::connect(name, LONG).expect("a listener"),
    };
    octets::other(what, channel);
}

/// The end of a list of descriptors that this process has from its parent.
fn inherited(list: &str) -> Remote {
    let mut fds = list.split(' ').map(|fd| {
        // SAFETY: inherited, and nobody else's.
        unsafe { OwnedFd::from_raw_fd(fd.parse().expect("a number")) }
    });
    Remote::from_fds(std::array::from_fn(|_| fds.next().expect("three")))
}

/// Starts one in such a role that inherits an end, and nobody else does.
fn heir(role: &str, remote: Remote) -> Other {
    let fds = remote.into_fds();
    let list = fds.each_ref().map(|fd| fd.as_raw_fd().to_string()).join(" ");
    Other::start(&format!("{role} {list}"), |command| {
        let inherit = move || {
            let kept = fds.iter().try_for_each(|fd| bypath_sys::fd::set_cloexec(fd.as_raw_fd(), false));
            kept.map_err(|e| std::io::Error::from_raw_os_error(e.raw_os_error()))
        };
        // SAFETY: system calls alone.
        unsafe { command.pre_exec(inherit) };
    })
}

fn octet(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn errno<T>(result: std::io::Result<T>) -> i32 {
    result.err().expect("an error").raw_os_error().expect("an errno")
}

struct Other(Child);

impl Other {
    fn start(role: &str, with: impl FnOnce(&mut Command)) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process", "--nocapture"]).env(ROLE, role).stdout(Stdio::piped());
        with(&mut command);
        Other(command.spawn().unwrap())
    }

    /// Its next line that begins so.
    fn line(&mut self, begins: &str) -> String {
        let lines = BufReader::new(self.0.stdout.as_mut().expect("piped")).lines();
        lines.map(Result::unwrap).find(|line| line.starts_with(begins)).expect("the line")
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn ends_well(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Long and random (`make soak`).
fn is_soak() -> bool {
    std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1")
}

/// Those who lie, by number.
fn liars() -> std::ops::RangeInclusive<u64> {
    1..=if is_soak() { 2_000 } else { 20 }
}

/// A folder of its own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bypath-channel-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Folder(path)
    }

    fn name(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Somebody who has the memory writes anything anywhere, all the time, and rings and clears without reason.
fn lie(fds: &[OwnedFd; 3], mut word: u64, stop: &AtomicBool) {
    let slot = OwnSlot::map(fds[0].as_raw_fd()).unwrap();
    while !stop.load(Relaxed) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        let which = (word >> 60) as usize % 2;
        let direction = &slot.control().direction[which];
        let near = |of: &AtomicU64| of.load(Relaxed).wrapping_add(word % 5000);
        let waits = direction.ra.wait.iter().chain(&direction.wa.wait);
        let record = Record::plain(word as usize % 5000).encode();
        match word >> 8 & 15 {
            0 => direction.t.tail.store(word, Relaxed),
            1 => direction.h.head.store(word, Relaxed),
            2 => direction.t.tail.store(near(&direction.t.tail), Relaxed),
            3 => direction.h.head.store(near(&direction.t.tail), Relaxed),
            4 => waits.for_each(|w| w.store(word, Relaxed)),
            5 => waits.for_each(|w| w.store(0, Relaxed)),
            6 => drop(bypath_sys::pair::send(fds[1 + word as usize % 2].as_fd(), &[0; 64])),
            7 => direction.t.tail.store(direction.h.head.load(Relaxed), Relaxed),
            8 => slot.copy_in(which, near(&direction.h.head), &word.to_ne_bytes()),
            9 => slot.copy_in(which, near(&direction.h.head) & !7, &record),
            10 => slot.copy_in(which, direction.h.head.load(Relaxed), &record),
            11 => direction.t.tail.store(near(&direction.h.head) & !7, Relaxed),
            12 => direction.t.cpu.store(word as u32, Relaxed),
            13 => direction.h.cpu.store(word as u32, Relaxed),
            _ => {}
        }
    }
}
