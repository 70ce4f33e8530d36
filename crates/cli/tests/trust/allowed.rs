//! What a program of another user, who is allowed, can do with what it has in common with its victim beside their own connection: bells and
//! the inbox.

use crate::known::{port, ring_from_victim, until};
use crate::peer::{self, Line, Mapped};
use crate::programs;
use crate::victim::{Process, Victim, program};
use bypath_shm::arena::{Geometry, slot_use};
use bypath_shm::inbox::BELL;
use rustix::process::geteuid;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

const SMALL: Geometry = Geometry { slots: 1, ring: 4096 };
/// Who is attacked; the tests are root.
pub const ANNE: u32 = 65001;

/// Program and library where every user can use them.
pub struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bypath-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        };
        open(&path);
        for (from, to) in [(program().as_path(), "trust"), (programs::library(), "library.so")] {
            // Another process writes it: what is open for writing here a program may inherit that another test starts (ETXTBSY).
            let copied = Command::new("cp").arg(from).arg(path.join(to)).status().expect("cp");
            assert!(copied.success());
            open(&path.join(to));
        }
        Folder(path)
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(self.0.join("trust"));
        command.uid(ANNE).gid(ANNE).current_dir(&self.0);
        command.env("LD_PRELOAD", self.0.join("library.so")).env("BYPATH_ALLOW_UID", "0");
        command.env("BYPATH_SPIN_BUDGET", "0");
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const REASON: &str = "needs root, to start programs of another user";

pub fn folder(test: &str) -> Option<Folder> {
    if geteuid().is_root() {
        return Some(Folder::new(test));
    }
    skip(test, REASON);
    None
}

/// Says that a test, or a part of it, did not run, and why.
pub fn skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("SKIP trust::{test}: {reason}\n").as_bytes());
    if let Some(list) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut list = std::fs::OpenOptions::new().append(true).create(true).open(list).expect("the list");
        list.write_all(format!("trust::{test}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Says something, and hears an answer.
#[track_caller]
fn is_answered(line: &Line, m: &Mapped, what: &str) {
    let before = m.inc().t.tail.load(SeqCst);
    line.say(b"octets");
    until(what, || {
        let answered = m.inc().t.tail.load(SeqCst) != before || line.hear() > 0;
        m.listen(line);
        answered
    });
}

fn flags(fd: &OwnedFd, flags: rustix::fs::OFlags) {
    rustix::fs::fcntl_setfl(fd, flags).expect("its flags");
}

#[test]
fn an_allowed_user_cannot_keep_in_its_call_who_rings_his_bell() {
    let Some(folder) = folder("an_allowed_user_cannot_keep_in_its_call_who_rings_his_bell") else { return };
    let mut victim = Victim::of(|| folder.command(), "threads");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
    let bell = peer::bare_eventfd(0, libc::EFD_NONBLOCK);
    assert!(peer::send(&m.channel, &peer::octets(&peer::bell(9)), &[&bell]));
    let sleep = |ticket| m.inc().ra.wait[0].store(9u64 << 32 | ticket, SeqCst);
    sleep(1);
    is_answered(&line, &m, "no answer");
    until("the bell is not rung", || rustix::io::read(&bell, &mut [0; 8]).is_ok());
    // It is full now, and whoever writes there waits.
    rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("eight octets");
    flags(&bell, rustix::fs::OFlags::empty());
    for ticket in 2..10 {
        sleep(ticket);
        is_answered(&line, &m, "who rang does not come back");
    }
    victim.serves("after a bell that waits");
}

/// The bell by which the victim is woken, as it told.
pub fn own_bell(line: &Line, m: &Mapped) -> OwnedFd {
    // It sleeps, and has told by then, after each answer: whoever finds more at once does not.
    for _ in 0..1000 {
        is_answered(line, m, "the victim does not answer");
        if let Some((message, fds)) = peer::receive(&m.channel)
            && message[0] == BELL
        {
            return fds.into_iter().next().expect("a bell");
        }
    }
    panic!("the victim tells no bell");
}

#[test]
fn an_allowed_user_cannot_keep_in_its_call_who_silences_its_own_bell() {
    let Some(folder) = folder("an_allowed_user_cannot_keep_in_its_call_who_silences_its_own_bell") else {
        return;
    };
    let mut victim = Victim::of(|| folder.command(), "threads");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    let bell = own_bell(&line, &m);
    // It is not rung, whoever reads it waits, and by the words it was.
    while rustix::io::read(&bell, &mut [0; 8]).is_ok() {}
    flags(&bell, rustix::fs::OFlags::empty());
    for _ in 0..20 {
        m.out().ra.wait.iter().for_each(|word| word.store(0, SeqCst));
        m.inbox.get().asleep.iter().for_each(|word| word.store(0, SeqCst));
        is_answered(&line, &m, "who silences its bell does not come back");
    }
    victim.serves("after a bell that waits");
    drop(line);
    victim.server.expect("end", "after a bell that waits");
}

/// An exec closes the channel, and what is left in it.
#[test]
fn an_allowed_user_cannot_hold_up_an_exec_by_what_lingers() {
    let Some(folder) = folder("an_allowed_user_cannot_hold_up_an_exec_by_what_lingers") else { return };
    let mut server = Process::by(folder.command(), &["exec"]);
    let line = Line::to(port(&mut server));
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
    let (lingers, _kept) = peer::lingering();
    assert!((0..4).all(|n| peer::send(&m.channel, &peer::octets(&peer::bell(n)), &[&lingers])));
    drop(lingers);
    line.say(&[0x7f]);
    server.expect("anew", "after an exec");
}

/// What does not fit into the table of descriptors the kernel closes within the call.
#[test]
fn an_allowed_user_cannot_hold_up_who_has_few_descriptors() {
    let Some(folder) = folder("an_allowed_user_cannot_hold_up_who_has_few_descriptors") else { return };
    let limited = || {
        let command = folder.command();
        let mut limited = Command::new("prlimit");
        limited.arg("--nofile=256").arg(command.get_program()).uid(ANNE).gid(ANNE);
        for (name, value) in command.get_envs() {
            limited.env(name, value.expect("set"));
        }
        limited
    };
    let mut victim = Victim::of(limited, "threads");
    let line = Line::to(victim.port);
    let channel = peer::dial(&line).expect("the victim has a name");
    let said = peer::octets(&peer::hello(&line, line.cookie, 65536));
    let (lingers, _kept) = peer::lingering();
    let harmless: Vec<_> = (0..252).map(|_| peer::bare_eventfd(0, 0)).collect();
    // Not before the victim has seen who calls.
    until("the victim takes nothing", || {
        line.say(b"look");
        line.hear();
        peer::send_many(&channel, &said, harmless.iter().chain([&lingers]))
    });
    drop(lingers);
    for _ in 0..100 {
        line.say(b"look");
        line.hear();
    }
    victim.serves("after more descriptors than there is room for");
    // Its thread is at the next receive.
    until("the victim is still in its call", || {
        line.say(b"look");
        line.hear() > 0
    });
}

/// Giving it back takes the lock of the file: who has a descriptor of it, and writes there without end, would keep the victim in its close.
#[test]
fn memory_that_an_allowed_user_has_is_not_given_back_in_a_call() {
    let Some(folder) = folder("memory_that_an_allowed_user_has_is_not_given_back_in_a_call") else { return };
    let mut victim = Victim::of(|| folder.command(), "threads");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
    let before = m.inc().t.tail.load(SeqCst);
    until("no answer by the ring", || {
        line.say(b"octets");
        m.listen(&line);
        m.inc().t.tail.load(SeqCst) != before
    });
    let written: [u8; 6] = m.written();
    assert_ne!(written, [0; 6]);
    // Its close is the last one.
    m.control.in_use.fetch_and(!slot_use::ACCEPTER, SeqCst);
    drop(line);
    until("the victim does not leave", || m.control.in_use.load(SeqCst) == 0);
    victim.serves("after its close");
    drop(victim);
    assert_eq!(m.written(), written);
}

#[test]
fn an_allowed_user_cannot_hide_others_news() {
    let Some(folder) = folder("an_allowed_user_cannot_hide_others_news") else { return };
    let mut victim = Victim::of(|| folder.command(), "epoll");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    let mut honest = Process::by(folder.command(), &["steps", &victim.port.to_string()]);
    let goes_on = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let wipes = || {
            while goes_on.load(Relaxed) {
                m.inbox.get().asleep.iter().for_each(|word| word.store(0, SeqCst));
                m.inbox.get().drain(|_| {});
                std::thread::yield_now();
            }
        };
        scope.spawn(wipes);
        let heard: Vec<String> = (0..20).map_while(|_| honest.next_line(Duration::from_secs(10))).collect();
        goes_on.store(false, Relaxed);
        assert_eq!(heard, ["step"; 20], "news stay hidden: {}", victim.server.describe());
    });
    victim.serves("after news were hidden");
}
