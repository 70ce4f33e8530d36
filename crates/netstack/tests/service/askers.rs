//! Who may ask on a connection: the process that has made it, as long as it is whom it was. Whoever else has it, by a fork or as another
//! user, would ask in a name that is not his.

use crate::program::{Program, become_user, ready};
use crate::{Running, users};
use bypath_shm::service::{Header, Op};
use bypath_sys::seqpacket;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::PollFlags;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;

const WORKER: u32 = 65003;

/// A question about nothing that whoever may ask is answered.
fn question() -> Vec<u8> {
    let body = br#"{"what":"sockets"}"#;
    [&Header { op: Op::Query, serial: 1, socket: 0, errno: 0 }.encode()[..], body].concat()
}

/// Whether the service has hung up, and has answered nothing before.
fn is_left(program: &Program) -> bool {
    let end = program.own();
    !ready(end.as_fd(), PollFlags::POLLIN, 20_000).is_empty()
        && seqpacket::peek(end.as_fd(), &mut [0]).is_ok_and(|seen| seen == Some(0))
}

users! {
    fn who_has_become_another_user_asks_nothing_in_his_former_name() {
        let running = Running::new();
        let (program, other) = (running.program(), running.program());
        assert_eq!(program.ask(Op::Open, 0, &[0; 12]).errno, libc::EAFNOSUPPORT);
        let own = program.own();
        let asks = move || {
            become_user(WORKER);
            seqpacket::send(own.as_fd(), &question(), None).expect("a service that listens");
        };
        std::thread::spawn(asks).join().expect("a thread");
        assert!(is_left(&program));
        assert_eq!(other.ask(Op::Open, 0, &[0; 12]).errno, libc::EAFNOSUPPORT);
    }
}

users! {
    fn who_has_several_users_asks_as_root_if_that_is_one_of_them_and_as_long_as_it_is() {
        let running = Running::new();
        let path = running.path.clone();
        let has = |uid: u32| {
            let service = running.query("service").remove(0);
            let row = service["users"].as_array().expect("users").iter().find(|row| row["uid"] == uid);
            row.and_then(|row| row["sockets"].as_u64()).unwrap_or(0)
        };
        let (told, tells) = std::sync::mpsc::channel();
        let (goes, go) = std::sync::mpsc::channel::<()>();
        let asks = move || {
            let become_users = |real: u32, effective: u32, saved: u32| {
                // SAFETY: numbers alone, and this thread's only, which ends soon.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) };
                assert_eq!(changed, 0);
            };
            let opens = |end: &OwnedFd, as_principal| {
                let body = [libc::AF_INET, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
                let message = [&Header { op: Op::Open, serial: 1, socket: 0, errno: 0 }.encode()[..], &body].concat();
                let asked = if as_principal { seqpacket::ask } else { seqpacket::send };
                asked(end.as_fd(), &message, None).expect("a service that listens");
                assert!(!ready(end.as_fd(), PollFlags::POLLIN, 20_000).is_empty());
                let mut room = [0; 4096];
                let (len, files) = seqpacket::receive_relied_on(end.as_fd(), &mut room).ok()??;
                let (answer, _) = Header::decode(&room[..len])?;
                Some((answer.errno, files))
            };
            let connect = || seqpacket::connect(&path).expect("a service");
            // A daemon that is a worker for a moment: what it opens is root's, and the connection goes on as root's.
            become_users(0, WORKER, 0);
            let own = connect();
            let mut kept = vec![opens(&own, true)];
            become_users(0, 0, 0);
            kept.push(opens(&own, true));
            // Root's effectively alone.
            become_users(WORKER, 0, 0);
            let other = connect();
            kept.push(opens(&other, true));
            told.send((kept.iter().map(|one| one.as_ref().map(|(errno, _)| *errno)).collect::<Vec<_>>(), own)).expect("somebody hears");
            go.recv().expect("what was counted");
            // It is root no more, and may not say so.
            become_users(WORKER, WORKER, WORKER);
            assert!(opens(&other, true).is_none());
        };
        let thread = std::thread::spawn(asks);
        let (errnos, _own) = tells.recv().expect("a thread that goes on");
        assert_eq!(errnos, [Some(0); 3]);
        assert_eq!((has(0), has(WORKER)), (3, 0));
        goes.send(()).expect("a thread that goes on");
        thread.join().expect("a thread");
    }
}

users! {
    fn who_was_forked_asks_nothing_on_the_connection_of_its_parent() {
        let running = Running::new();
        // The first to say something there, or not; of the same user, or of another one.
        for (says_before, uid) in [(true, 0), (false, 0), (true, WORKER), (false, WORKER)] {
            let (program, other) = (running.program(), running.program());
            if says_before {
                assert_eq!(program.ask(Op::Open, 0, &[0; 12]).errno, libc::EAFNOSUPPORT);
            }
            let own = program.own();
            fcntl(&own, FcntlArg::F_SETFD(FdFlag::empty())).expect("a flag");
            let octets: String = question().iter().map(|octet| format!("{octet:02x}")).collect();
            let code = "import os, socket, sys\nuid = int(sys.argv[3])\nos.setresuid(uid, uid, uid)\n\
                        socket.socket(fileno=int(sys.argv[1])).send(bytes.fromhex(sys.argv[2]))";
            let child = Command::new("python3")
                .args(["-c", code, &own.as_raw_fd().to_string(), &octets, &uid.to_string()])
                .status()
                .expect("python3");
            assert!(child.success());
            assert!(is_left(&program), "{says_before} {uid}");
            assert_eq!(other.ask(Op::Open, 0, &[0; 12]).errno, libc::EAFNOSUPPORT);
        }
    }
}
