//! Who may ask on a connection: the process that has made it, as long as it is whom it was. Whoever else has it, by a fork or as another
//! user, would ask in a name that is not his.

use crate::program::{Program, become_user, ready};
use crate::{Running, users};
use bypath_shm::service::{Header, Op};
use bypath_sys::seqpacket;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::PollFlags;
use std::os::fd::{AsFd, AsRawFd};
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
