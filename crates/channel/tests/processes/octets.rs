//! Channels of octets: killed processes, names, descriptors that travel, and a peer that lies.

use super::common::skip;
use crate::{Folder, LONG, Other, ROLE, errno, heir, liars, lie, octet};
use bypath_channel::{Channel, Listener, Remote};
use bypath_sys::{poll, seqpacket};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::Duration;

/// What the other process does with its end.
pub fn other(what: &str, mut channel: Channel) {
    let mut room = vec![0; 3000];
    if what == "flood" {
        let mut at = 0u64;
        while channel.write_all(&(at..at + 100).map(octet).collect::<Vec<u8>>()).is_ok() {
            at += 100;
        }
        return;
    }
    if what == "drain" {
        println!("\nready");
        while channel.read(&mut room).is_ok_and(|n| n > 0) {}
        return;
    }
    // An echo.
    loop {
        match channel.read(&mut room).expect("octets or the end") {
            0 => return,
            n => channel.write_all(&room[..n]).expect("room"),
        }
    }
}

/// In which this user has no number, as all others.
fn enter_a_user_namespace() -> std::io::Result<()> {
    // SAFETY: integers only.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn accept(listener: &Listener) -> Channel {
    let mut channel = listener.accept().unwrap();
    channel.set_timeout(LONG);
    channel
}

fn echoes(channel: &mut Channel) {
    for len in [1, 14, 1400, 2048] {
        let text: Vec<u8> = (0..len).map(octet).collect();
        channel.write_all(&text).unwrap();
        let mut back = vec![0; text.len()];
        channel.read_exact(&mut back).unwrap();
        assert_eq!(back, text);
    }
}

#[test]
fn two_processes_meet_at_a_name() {
    let folder = Folder::new("meet");
    let name = folder.name("echo");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_ring(4096);
    listener.set_timeout(LONG);
    let others: Vec<Other> = (0..3).map(|_| Other::start(&format!("echo {name}"), |_| {})).collect();
    let mut channels: Vec<Channel> = others.iter().map(|_| accept(&listener)).collect();
    channels.iter_mut().for_each(echoes);
    drop(channels);
    others.into_iter().for_each(Other::ends_well);
    drop(listener);
    assert!(!Path::new(&name).exists());
    // The other way round.
    let mut other = Other::start(&format!("listen {name}"), |_| {});
    other.line("ready");
    let mut channel = Channel::connect(&name, LONG).unwrap();
    channel.set_timeout(LONG);
    echoes(&mut channel);
    drop(channel);
    other.ends_well();
}

#[test]
fn a_plain_name_stands_in_the_users_folder() {
    let folder = Folder::new("plain");
    let with = |command: &mut Command| {
        command.env("XDG_RUNTIME_DIR", &folder.0);
    };
    let mut listener = Other::start("listen by-name", with);
    listener.line("ready");
    let made = folder.0.join("bypath/channel");
    assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(made.join("by-name")).unwrap().permissions().mode() & 0o777, 0o600);
    // The caller is killed once it is connected, which ends the listener's echo well.
    let mut caller = Other::start("drain by-name", with);
    caller.line("ready");
    caller.kill();
    listener.ends_well();
}

#[test]
fn a_session_in_which_others_exchange_names_is_not_used() {
    let folder = Folder::new("session");
    let told = |led: &str| {
        let with = |command: &mut Command| {
            command.env("XDG_RUNTIME_DIR", &folder.0);
        };
        let said = Other::start("led by-name", with).line("error");
        assert!(said.starts_with("error PermissionDenied XDG_RUNTIME_DIR=/"), "{said}");
        assert!(said.contains(led) && said.contains("env -u XDG_RUNTIME_DIR"), "{said}");
        // Nothing was begun there.
        assert!(!folder.0.join("bypath").exists());
    };
    fs::set_permissions(&folder.0, Permissions::from_mode(0o777)).unwrap();
    told("others may write to it");
    if bypath_sys::process::euid() != 0 {
        let name = "octets::a_session_in_which_others_exchange_names_is_not_used";
        return skip(name, "only root can give a folder to another user");
    }
    fs::set_permissions(&folder.0, Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&folder.0, Some(12345), None).unwrap();
    told("it is user 12345's, and this is user 0: log in as that one (sudo -i)");
}

#[test]
fn names_that_cannot_be_are_refused_and_those_that_are_left_are_taken_over() {
    let folder = Folder::new("names");
    for (name, why) in [
        ("".to_owned(), libc::EINVAL),
        (".hidden".into(), libc::EINVAL),
        (folder.name(&"x".repeat(81)), libc::ENAMETOOLONG),
        ("/tmp/bypath-channel-nobody-made-this/x".into(), libc::ENOENT),
    ] {
        assert_eq!(errno(Listener::bind(&name)), why, "{name}");
        assert_eq!(errno(Channel::connect(&name, LONG)), why, "{name}");
    }
    // A folder to which others may write.
    let open = folder.0.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let name = open.join("x").to_str().unwrap().to_owned();
    assert_eq!(errno(Listener::bind(&name)), libc::EACCES);
    assert_eq!(errno(Channel::connect(&name, LONG)), libc::EACCES);
    // A link to a good one is somebody's choice, too.
    let link = folder.0.join("link");
    std::os::unix::fs::symlink(&open, &link).unwrap();
    assert_eq!(errno(Listener::bind(link.join("x").to_str().unwrap())), libc::EACCES);
    // Nobody listens.
    let name = folder.name("x");
    assert_eq!(errno(Channel::connect(&name, LONG)), libc::ENOENT);
    fs::write(&name, "no socket").unwrap();
    assert_eq!(errno(Listener::bind(&name)), libc::EADDRINUSE);
    assert_eq!(errno(Channel::connect(&name, LONG)), libc::ECONNREFUSED);
    fs::remove_file(&name).unwrap();
    // Somebody does; then he is killed.
    let mut other = Other::start(&format!("listen {name}"), |_| {});
    other.line("ready");
    // He accepts one caller: who looks whether anybody listens calls, too.
    let channel = Channel::connect(&name, LONG).unwrap();
    assert_eq!(errno(Listener::bind(&name)), libc::EADDRINUSE);
    other.kill();
    drop(channel);
    assert!(Path::new(&name).exists());
    assert_eq!(errno(Channel::connect(&name, LONG)), libc::ECONNREFUSED);
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(Some(Duration::from_millis(5)));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(listener.try_accept().unwrap().is_none());
    assert_eq!(
        Channel::connect(&name, Some(Duration::from_millis(5))).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

#[test]
fn callers_that_went_away_hold_no_accept_up_and_hide_nobody() {
    let folder = Folder::new("gone");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_ring(4096);
    let goes = || drop(seqpacket::connect(Path::new(&name)).unwrap());
    let waiting = |listener: &Listener| poll::now(listener.as_fd().as_raw_fd(), libc::POLLIN) != 0;
    // As many as can wait, but for one.
    (0..128).for_each(|_| goes());
    let caller = seqpacket::connect(Path::new(&name)).unwrap();
    listener.set_timeout(Some(Duration::ZERO));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(waiting(&listener), "it went on without time");
    // One call finds the one behind them: of those that wait already an epoll set does not tell again where it was asked for edges.
    assert!(listener.try_accept().unwrap().is_some());
    goes();
    assert!(listener.try_accept().unwrap().is_none());
    assert!(!waiting(&listener));
    drop(caller);
}

#[test]
fn processes_of_other_users_get_none() {
    if bypath_sys::process::euid() != 0 {
        return skip("octets::processes_of_other_users_get_none", "only root can be another user");
    }
    let folder = Folder::new("users");
    let name = folder.name("own");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    let stranger = |role: &str| {
        let mut other = Other::start(&format!("{role} {name}"), |command| {
            command.uid(12345).gid(12345);
        });
        other.line("error")
    };
    let program = std::env::current_exe().unwrap();
    let reachable =
        Command::new("/bin/sh").args(["-c", "test -x \"$0\""]).arg(&program).uid(12345).gid(12345).status();
    if !reachable.unwrap().success() {
        let reason = format!("another user cannot run {}", program.display());
        return skip("octets::processes_of_other_users_get_none", &reason);
    }
    // The folder is not theirs.
    assert_eq!(stranger("refused"), format!("error {}", libc::EACCES));
    // Whoever gets past modes is known by the kernel.
    fs::set_permissions(&name, Permissions::from_mode(0o666)).unwrap();
    thread::scope(|s| {
        let served = s.spawn(|| accept(&listener));
        assert_eq!(stranger("uninvited"), format!("error {}", libc::ECONNRESET));
        let _own = Other::start(&format!("echo {name}"), |_| {});
        echoes(&mut served.join().unwrap());
    });
}

#[test]
fn where_a_namespace_knows_no_users_nobody_is_the_own_one() {
    let folder = Folder::new("unknown");
    let name = folder.name("own");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    let beside = folder.name("beside");
    let apart = |role: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "other_process", "--nocapture"]).env(ROLE, role);
        // SAFETY: a system call alone.
        unsafe { command.pre_exec(enter_a_user_namespace) };
        match command.output() {
            Ok(said) => Some(String::from_utf8(said.stdout).unwrap()),
            Err(e) => {
                let reason = format!("a user namespace cannot be made: {e}");
                skip("octets::where_a_namespace_knows_no_users_nobody_is_the_own_one", &reason);
                None
            }
        }
    };
    thread::scope(|s| {
        // It would give an end to this user's process, as that one looks from outside.
        let served = s.spawn(|| listener.accept());
        let told = [apart(&format!("refused {name}")), apart(&format!("takes {beside}"))];
        let _own = Channel::connect(&name, LONG).unwrap();
        served.join().unwrap().unwrap();
        for said in told.into_iter().flatten() {
            assert!(said.contains(&format!("\nerror {}\n", libc::EACCES)), "{said}");
        }
    });
}

#[test]
fn an_end_is_inherited() {
    let (mut channel, remote) = Channel::pair(8192).unwrap();
    channel.set_timeout(LONG);
    let other = heir("inherits", remote);
    echoes(&mut channel);
    drop(channel);
    other.ends_well();
}

#[test]
fn an_end_goes_through_a_socket() {
    let (a, b) = UnixStream::pair().unwrap();
    let (mut here, remote) = Channel::pair(4096).unwrap();
    remote.send(&a).unwrap();
    let mut there = Remote::receive(&b, LONG).unwrap().open().unwrap();
    here.write_all(b"over").unwrap();
    there.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(errno(Remote::receive(&b, Some(Duration::from_millis(5)))), libc::ETIMEDOUT);
    (&a).write_all(b"something else").unwrap();
    assert_eq!(errno(Remote::receive(&b, LONG)), libc::EPROTO);
    (&b).read_exact(&mut [0; 6]).unwrap();
    drop(a);
    assert_eq!(errno(Remote::receive(&b, LONG)), libc::ECONNRESET);
}

#[test]
fn a_killed_writer_leaves_what_it_committed_and_then_the_end() {
    let folder = Folder::new("writer");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    for round in 0..30u64 {
        listener.set_ring([4096, 1 << 18][round as usize % 2]);
        let mut other = Other::start(&format!("flood {name}"), |_| {});
        let mut channel = accept(&listener);
        channel.set_spin(Duration::from_micros(round % 3 * 50));
        let kill_after = round * round * 500;
        let (mut at, mut killed) = (0u64, false);
        let mut room = vec![0; 1 + (round as usize * 97) % 3000];
        loop {
            if at >= kill_after && !killed {
                killed = true;
                other.0.kill().unwrap();
            }
            let n = channel.read(&mut room).expect("octets or the end");
            if n == 0 {
                break;
            }
            room[..n]
                .iter()
                .zip(at..)
                .for_each(|(o, at)| assert_eq!(*o, octet(at), "round {round}, at {at}"));
            at += n as u64;
        }
        assert!(killed, "it ended at {at} by itself");
        // Whole writes, whatever became of the last one.
        assert!(channel.read(&mut room).is_ok_and(|n| n == 0));
    }
}

#[test]
fn a_killed_reader_ends_the_writer() {
    let folder = Folder::new("reader");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    listener.set_ring(4096);
    for round in 0..30u64 {
        let mut other = Other::start(&format!("drain {name}"), |_| {});
        let mut channel = accept(&listener);
        channel.set_spin(Duration::from_micros(round % 3 * 50));
        let text = vec![7; 1 + (round as usize * 97) % 3000];
        let (mut written, mut killed) = (0, false);
        let error = loop {
            if written >= round * round * 500 && !killed {
                killed = true;
                other.0.kill().unwrap();
            }
            match channel.write(&text) {
                Ok(n) => written += n as u64,
                Err(e) => break e,
            }
        };
        assert!(killed && error.kind() == ErrorKind::BrokenPipe, "{error}");
    }
}

#[test]
fn lies_give_errors_and_nothing_worse() {
    static LIES: AtomicU64 = AtomicU64::new(0);
    for seed in liars() {
        let (mut here, remote) = Channel::pair(4096).unwrap();
        let fds = remote.into_fds();
        let stop = AtomicBool::new(false);
        here.set_timeout(Some(Duration::from_micros(300)));
        thread::scope(|s| {
            s.spawn(|| lie(&fds, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, &stop));
            let mut room = [0; 3000];
            for turn in 0..3000usize {
                let len = 1 + turn * 7 % 3000;
                let told = match turn % 6 {
                    0 => here.read(&mut room[..len]),
                    1 => here.write(&room[..len]),
                    2 => here.receiver.peek(1 + turn % 2000).map(|there| {
                        let n = there
                            .runs()
                            .iter()
                            .flat_map(|run| run.iter())
                            .filter(|o| o.load(Relaxed) < 9)
                            .count();
                        let most = there.len();
                        there.release(turn % (most + 1));
                        n
                    }),
                    3 => here.sender.reserve(1 + turn % 2000).map(|room| {
                        room.runs().iter().flat_map(|run| run.iter()).for_each(|o| o.store(1, Relaxed));
                        let most = room.len();
                        room.commit(turn % (most + 1));
                        most
                    }),
                    4 => here.receiver.arm(1 + turn % 2000).map(usize::from),
                    _ => here.sender.arm(1 + turn % 2000).map(usize::from),
                };
                match told {
                    Ok(n) => assert!(n <= 4096),
                    Err(e) => {
                        let e = e.raw_os_error().unwrap();
                        assert!([libc::EPROTO, libc::ETIMEDOUT].contains(&e), "{e}");
                        LIES.fetch_add(u64::from(e == libc::EPROTO), Relaxed);
                    }
                }
            }
            stop.store(true, Relaxed);
        });
    }
    assert!(LIES.load(Relaxed) > 100, "few lies were found: {LIES:?}");
}

#[test]
fn a_hostile_listener_gives_no_channel() {
    let folder = Folder::new("hostile");
    let name = folder.name("x");
    let listener = seqpacket::bind(Path::new(&name)).unwrap();
    seqpacket::listen(listener.as_fd(), 8).unwrap();
    let (good, other_end) = bypath_sys::pair::new().unwrap();
    let memory = |size: usize| {
        let fd = bypath_sys::memfd::create(c"other", size, 3).unwrap();
        // SAFETY: made just now.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    let small = memory(4096);
    let file = OwnedFd::from(fs::File::open("/dev/zero").unwrap());
    let (g, s, f) = (good.as_fd(), small.as_fd(), file.as_fd());
    let text = b"BYPCHAN1";
    let cases: [(&[u8], &[std::os::fd::BorrowedFd<'_>], i32); 7] = [
        (text, &[], libc::EPROTO),
        (text, &[g, g], libc::EPROTO),
        (text, &[g, g, g, g], libc::EPROTO),
        (b"BYPCHAN2", &[s, g, g], libc::EPROTO),
        (b"", &[], libc::ECONNRESET),
        (text, &[s, g, g], libc::EINVAL),
        (text, &[f, g, g], libc::EINVAL),
    ];
    for (text, with, why) in cases {
        thread::scope(|s| {
            let caller = s.spawn(|| Channel::connect(&name, LONG));
            let taken = loop {
                match seqpacket::accept(listener.as_fd()).unwrap() {
                    Some(taken) => break taken,
                    None => thread::yield_now(),
                }
            };
            seqpacket::send_with(taken.as_fd(), text, with).unwrap();
            assert_eq!(errno(caller.join().unwrap()), why, "{text:?} {with:?}");
        });
    }
    drop(other_end);
}

#[test]
fn a_folder_that_others_have_locked_holds_no_listener_up() {
    let folder = Folder::new("locked");
    let held = fs::File::open(&folder.0).unwrap();
    held.lock().unwrap();
    let (bound, is_bound) = std::sync::mpsc::channel();
    let name = folder.name("here");
    thread::spawn(move || bound.send(Listener::bind(&name)));
    let _listener =
        is_bound.recv_timeout(Duration::from_secs(20)).expect("it does not wait for them").unwrap();
    let names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["here"]);
}

/// A socket whose last close waits for 20 s.
fn lingering(theirs: &std::net::TcpListener, kept: &mut Vec<std::net::TcpStream>) -> OwnedFd {
    let mut here = std::net::TcpStream::connect(theirs.local_addr().unwrap()).unwrap();
    kept.push(theirs.accept().unwrap().0);
    here.set_nonblocking(true).unwrap();
    while here.write(&[0; 65_536]).is_ok() {}
    let linger = [1i32, 20].map(i32::to_ne_bytes).concat();
    let here = OwnedFd::from(here);
    bypath_sys::sock::set_option(here.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger).unwrap();
    here
}

#[test]
fn what_a_hostile_listener_sends_holds_nobody_up() {
    let theirs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kept = Vec::new();
    // Too few, and what is no bell.
    for expected in [libc::EPROTO, libc::EINVAL] {
        let (here, there) = seqpacket::pair().unwrap();
        let lingers = lingering(&theirs, &mut kept);
        let (_channel, remote) = Channel::pair(4096).unwrap();
        let [memory, sends, _] = remote.into_fds();
        let all = [memory.as_fd(), sends.as_fd(), lingers.as_fd()];
        let with = if expected == libc::EPROTO { &all[2..] } else { &all[..] };
        seqpacket::send_with(there.as_fd(), b"BYPCHAN1", with).unwrap();
        // Whoever receives it closes it last.
        drop((memory, sends, lingers));
        let began = std::time::Instant::now();
        let told = Remote::receive(&here, Some(Duration::from_millis(500))).and_then(Remote::open);
        assert_eq!(errno(told), expected);
        assert!(began.elapsed() < Duration::from_secs(10), "{expected}: {:?}", began.elapsed());
    }
}
