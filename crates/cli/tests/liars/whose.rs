//! Whose a view is: what one user says is not taken for another one's, whoever has it open.

use crate::bells::{address, cookie};
use crate::common::{BYPATH, TempDir, bypath, preload_library, stderr, stdout, workspace};
use crate::crowds::often;
use crate::lab::{LONG, Running, Talk, has, skip, status, until};
use crate::liar::{Liar, copy, within};
use bypath_shm::family::{wish, wpath};
use bypath_shm::reason::Reason;
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

pub const STRANGER: u32 = 12345;
pub const NEIGHBOUR: u32 = 12346;

/// Whether this process may be several users; if not, says that the test is left out.
pub fn may_be_others(name: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(name, "only root has other users' processes");
    }
    is_root
}

pub fn connections_of(pid: u32) -> Vec<Value> {
    let output = within(LONG, bypath(["ss", "--json", "--pid", &pid.to_string()]));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {}", stderr(&output)))
}

/// As a program that takes descriptors from anybody.
#[test]
fn a_region_that_somebody_else_made_is_not_its_holders() {
    if !may_be_others("whose::a_region_that_somebody_else_made_is_not_its_holders") {
        return;
    }
    let liar = Liar::new();
    liar.has_end(0, 77, 78);
    assert_eq!(connections_of(std::process::id()).len(), 1);
    fchown(copy(&liar), Some(STRANGER), None).expect("root gives away");
    assert_eq!(connections_of(std::process::id()), [] as [Value; 0]);
    let text = stdout(&within(LONG, bypath(["metrics"])));
    assert!(!text.contains("command=\"liar\""), "{text}");
}

/// As by su, which waits for a password.
#[test]
fn who_runs_a_program_of_roots_has_no_label_of_roots() {
    let name = "whose::who_runs_a_program_of_roots_has_no_label_of_roots";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let liar = Liar::new();
    fchown(copy(&liar), Some(STRANGER), None).expect("root gives away");
    let mut other = Command::new("setpriv");
    other.args(["--ruid", &STRANGER.to_string(), "sleep", "1000"]).stdout(copy(&liar));
    let other = Running(other.spawn().expect("setpriv starts"));
    until("another user runs it", || status(other.0.id(), "Uid").starts_with("12345\t0\t"));
    liar.has_member(1, other.0.id());
    let text = stdout(&within(LONG, bypath(["metrics"])));
    assert!(text.contains("bypath_processes{user=\"12345\",command=\"liar\"} 1\n"), "{text}");
    assert!(!text.contains("user=\"0\",command=\"liar\""), "{text}");
}

/// Does something as this user.
fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
    command
}

/// A process of this user's that has a region open, at place 1 of its table.
pub fn holder(liar: &Liar, user: u32) -> Running {
    let mut other = as_user(user);
    let other = Running(other.args(["sleep", "1000"]).stdout(copy(liar)).spawn().expect("setpriv starts"));
    until("it is another user's", || status(other.0.id(), "Uid").starts_with(&format!("{user}\t{user}\t")));
    liar.has_member(1, other.0.id());
    other
}

/// An end that the process at place 1 holds, of a connection whose directions both go by rings.
pub fn has_ring(liar: &Liar, number: usize, cookies: [u64; 2]) {
    liar.has_end(number, cookies[0], cookies[1]);
    let end = &liar.family.ends[number];
    end.holders.store(2, Relaxed);
    end.ring_size.store(65_536, Relaxed);
    end.w.path.store(wpath::RING, Relaxed);
    end.rx_reason.store(Reason::Ring as u16, Relaxed);
}

#[test]
fn who_names_another_users_sockets_does_not_change_what_is_told_of_them() {
    let name = "whose::who_names_another_users_sockets_does_not_change_what_is_told_of_them";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let liar = Liar::new();
    let _other = holder(&liar, STRANGER);
    has_ring(&liar, 0, [77, 78]);
    has_ring(&liar, 1, [78, 77]);
    let honest = liar.and_another();
    let victim = holder(&honest, NEIGHBOUR);
    has_ring(&honest, 0, [77, 78]);
    has_ring(&honest, 1, [78, 77]);
    honest.family.ends[0].w.ring_bytes.store(100, Relaxed);
    honest.family.ends[1].r.ring_bytes.store(70, Relaxed);
    // Of this one the other end is known from the liar alone, who has not that socket.
    has_ring(&honest, 2, [80, 81]);
    honest.family.ends[2].w.ring_bytes.store(100, Relaxed);
    has_ring(&liar, 2, [81, 80]);
    let fills: Vec<_> = connections_of(victim.0.id()).iter().map(|c| c["ring_fill"]["tx"].clone()).collect();
    assert_eq!(fills, [30.into(), 0.into(), Value::Null]);
}

/// As of two programs with --allow-uid.
#[test]
fn who_has_a_socket_is_believed_by_another_user() {
    let name = "whose::who_has_a_socket_is_believed_by_another_user";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let own = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (peer, _) = listener.accept().expect("a connection");
    let addresses = [own.local_addr(), own.peer_addr()].map(|at| at.expect("an address").into());
    let cookies = [cookie(&addresses[0], &addresses[1]), cookie(&addresses[1], &addresses[0])];
    let side = |liar: &Liar, user: u32, socket: TcpStream, which: usize| {
        let mut other = as_user(user);
        other.args(["sleep", "1000"]).stdin(OwnedFd::from(socket)).stdout(copy(liar));
        let other = Running(other.spawn().expect("setpriv starts"));
        until("it is another user's", || {
            status(other.0.id(), "Uid").starts_with(&format!("{user}\t{user}\t"))
        });
        liar.has_member(1, other.0.id());
        has_ring(liar, 0, [cookies[which], cookies[1 - which]]);
        let end = &liar.family.ends[0];
        end.fd.store(0, Relaxed);
        for (to, at) in [(&end.local, which), (&end.remote, 1 - which)] {
            to.set(addresses[at].family, addresses[at].port, addresses[at].bytes);
        }
        other
    };
    let anne = Liar::new();
    let (bert, liar) = (anne.and_another(), anne.and_another());
    // Who lies names another socket, of the same addresses and numbers.
    let stranger = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let _liar = side(&liar, STRANGER + 2, stranger, 1);
    let client = side(&anne, STRANGER, own, 0);
    let _server = side(&bert, NEIGHBOUR, peer, 1);
    anne.family.ends[0].w.ring_bytes.store(100, Relaxed);
    liar.family.ends[0].r.ring_bytes.store(1, Relaxed);
    bert.family.ends[0].r.ring_bytes.store(70, Relaxed);
    assert_eq!(connections_of(client.0.id())[0]["ring_fill"]["tx"], 30);
    // And asked for what the client is asked for.
    for side in [&anne, &bert, &liar] {
        side.family.ends[0].w.path.store(wpath::KERNEL, Relaxed);
    }
    let output = within(LONG, bypath(["upgrade", "--wait", "0", &client.0.id().to_string()]));
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let wishes = [&anne, &bert, &liar].map(|side| side.family.ends[0].wish.load(Relaxed));
    assert_eq!(wishes, [wish::UPGRADE, wish::UPGRADE, wish::NONE]);
}

#[test]
fn who_says_he_has_the_other_ends_keeps_nobody_from_being_asked() {
    let name = "whose::who_says_he_has_the_other_ends_keeps_nobody_from_being_asked";
    if !has(name, &["python3"]) || !may_be_others(name) {
        return;
    }
    const CONNECTIONS: usize = 4;
    const LIES: usize = 50_000;
    let connects = |liar: &Liar, number: usize, from: u16, to: u16| {
        let end = &liar.family.ends[number];
        end.local.set(2, from, [127; 16]);
        end.remote.set(2, to, [127; 16]);
    };
    let honest = Liar::new();
    for number in 0..CONNECTIONS {
        honest.has_end(number, 100 + number as u64, 0);
        connects(&honest, number, 1000 + number as u16, 80);
    }
    // Each time that he is asked he is looked through.
    let liar = honest.and_another();
    let crowd = often(&liar, STRANGER, 1000, 1);
    for number in 0..LIES {
        liar.has_end(number, 1000 + number as u64, 0);
        liar.family.ends[number].holders.store(2, Relaxed);
        connects(&liar, number, 80, 1000);
    }
    let output = within(LONG, bypath(["upgrade", "--wait", "0", &std::process::id().to_string()]));
    let said = format!("{}{}", stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(4), "{said}");
    let is_asked = |number: usize| honest.family.ends[number].wish.load(Relaxed) == wish::UPGRADE;
    assert!((0..CONNECTIONS).all(is_asked), "{said}");
    assert!(said.contains("asked; connections move") && !said.contains("not asked"), "{said}");
    // Of his own there are more than there is time for, and that is told.
    let output = within(2 * LONG, bypath(["upgrade", "--wait", "0", &crowd.0.id().to_string()]));
    assert!(stderr(&output).contains("no time to ask all"), "{}", stderr(&output));
    assert!(stdout(&output).contains("not asked"));
}

/// Two honest programs of another user.
pub fn neighbours(folder: &TempDir) -> Talk {
    // The other user need not be let into this tree.
    let talk_py = workspace().join("crates/cli/tests/watching/talk.py");
    let mut copies = Command::new("cp");
    copies.arg(BYPATH).args([preload_library(), &talk_py]).arg(folder.path());
    assert!(copies.status().expect("cp").success());
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("our folder");
    let program = |args: &[&str]| {
        let mut command = as_user(NEIGHBOUR);
        command.arg(folder.join("bypath")).args(["run", "--upgrade=eager", "--", "python3"]);
        command.arg(folder.join("talk.py")).args(args).env("BYPATH_CONFIG", "none");
        command.env("BYPATH_LIBRARY", folder.join(preload_library().file_name().expect("a name")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    Talk::of(program, "127.0.0.1")
}

#[test]
fn who_names_another_users_sockets_does_not_hide_them_from_dump() {
    let name = "whose::who_names_another_users_sockets_does_not_hide_them_from_dump";
    if !has(name, &["setpriv", "sleep", "python3"]) || !may_be_others(name) {
        return;
    }
    let liar = Liar::new();
    let _other = holder(&liar, STRANGER);
    let folder = TempDir::new();
    let mut talk = neighbours(&folder);
    let own = &connections_of(talk.caller_pid())[0];
    let (local, remote) = (address(&own["local"]), address(&own["remote"]));
    let cookies = [cookie(&local, &remote), cookie(&remote, &local)];
    has_ring(&liar, 0, cookies);
    has_ring(&liar, 1, [cookies[1], cookies[0]]);
    let shown_at = folder.join("shown");
    let mut dump = bypath(["dump", "--seconds", "1", "--user", &NEIGHBOUR.to_string()]);
    dump.stdout(std::fs::File::create(&shown_at).expect("a file"));
    let mut dump = Running(dump.spawn().expect("bypath starts"));
    until("it has ended", || {
        talk.does("echo 1");
        dump.0.try_wait().expect("a child").is_some()
    });
    let text = std::fs::read_to_string(shown_at).expect("text");
    let shown =
        format!("{} > {}", own["local"].as_str().expect("text"), own["remote"].as_str().expect("text"));
    assert!(text.contains(&shown) && text.contains("ECHO"), "{shown}: {text}");
}
