//! Descriptors that a user sends and nobody wants, and whose close waits for him: they are no more than one message brings, wherever he sends them.

use crate::fuse::Slow;
use crate::program::{Program, ready};
use crate::rings::{Process, until};
use crate::{Running, kernels, users};
use bypath_netstack::service::Settings;
use bypath_shm::service::{HEADER, Header, Op, VERSION};
use bypath_stack::config::Config;
use nix::poll::PollFlags;
use nix::sys::resource::{Resource, setrlimit};
use std::os::fd::{AsFd, AsRawFd};

/// Whom the service is for.
const HOG: u32 = 65_006;
const OTHER_HOG: u32 = 65_007;
const GUEST: u32 = 65_008;
/// Descriptors of one message (SCM_MAX_FD).
const AT_ONCE: usize = 253;

fn for_all(settings: &mut Settings) {
    settings.users = Some(vec![HOG, OTHER_HOG, GUEST]);
}

fn slow(name: &str) -> Option<Slow> {
    Slow::new().map_err(|e| crate::namespace::skip(name, &format!("no FUSE: {e}"))).ok()
}

fn message(op: Op, body: &[u8]) -> Vec<u8> {
    [&Header { op, serial: 1, socket: 0, errno: 0 }.encode()[..], body].concat()
}

fn hello(program: &Program) {
    assert_eq!(program.ask(Op::Hello, 0, &VERSION.to_ne_bytes()).errno, 0);
}

/// What the service counts as this user's.
fn descriptors(running: &Running, uid: u32) -> u64 {
    let users = running.query("service").remove(0)["users"].take();
    let rows = users.as_array().expect("users").iter();
    rows.filter(|row| row["uid"] == uid).map(|row| row["descriptors"].as_u64().expect("a number")).sum()
}

/// Waits until so many closes have begun, and a little longer: there are no more.
#[track_caller]
fn are_begun(slow: &Slow, other: &Program, count: usize) {
    until(|| (slow.closes() >= count).then_some(()));
    // Each is answered in a turn of its own.
    (0..20).for_each(|_| hello(other));
    assert_eq!(slow.closes(), count);
}

users! {
    fn processes_of_one_user_send_no_more_files_that_are_not_closed_than_one_of_them() {
        const PROCESSES: usize = 5;
        let Some(slow) = slow("processes_of_one_user_send_no_more_files_that_are_not_closed_than_one_of_them") else {
            return;
        };
        let running = Running::with(for_all, Config::default());
        // Behind it: closes are answered before the service is waited for.
        let slow = slow;
        let (hog, other) = (Program::of(&running.path, HOG), running.program());
        let (listener, to) = kernels("10.9.0.1:0");
        let all: Vec<_> = (0..PROCESSES)
            .map(|n| {
                let own = hog.connect(to);
                let peer = listener.accept().expect("a connection");
                let mut process = Process::new(n as u64 + 1);
                let rings = process.meet_of(&hog, own.cookie, 4096).expect("rings");
                (process, rings, own, peer)
            })
            .collect();
        // What was needed for connections to come up is closed.
        let mut last = descriptors(&running, HOG);
        let before = until(|| {
            (0..20).for_each(|_| hello(&other));
            let now = descriptors(&running, HOG);
            (std::mem::replace(&mut last, now) == now).then_some(now)
        });
        let files = vec![slow.file().as_raw_fd(); AT_ONCE];
        all.iter().for_each(|(process, ..)| process.say(&files));
        are_begun(&slow, &other, AT_ONCE);
        assert_eq!(descriptors(&running, HOG), before + AT_ONCE as u64, "they count until they are closed");
        slow.answer();
        are_begun(&slow, &other, PROCESSES * AT_ONCE);
        until(|| (descriptors(&running, HOG) == before).then_some(()));
        hello(&hog);
    }
}

users! {
    fn what_is_left_at_an_end_that_is_over_is_received_as_it_is_closed() {
        const MESSAGES: usize = 4;
        let Some(slow) = slow("what_is_left_at_an_end_that_is_over_is_received_as_it_is_closed") else { return };
        let (running, hog) = Running::asked(for_all, Config::default(), |path| {
            let hog = Program::of(path, HOG);
            // Its answer is not read, so that its end is kept.
            hog.say(&message(Op::Open, &[libc::AF_INET, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat()))
                .expect("room");
            let files = vec![slow.file().as_raw_fd(); AT_ONCE];
            (0..MESSAGES).for_each(|_| hog.say_with_numbers(&[0; HEADER], &files));
            hog
        });
        let slow = slow;
        let other = running.program();
        are_begun(&slow, &other, AT_ONCE);
        slow.answer();
        are_begun(&slow, &other, MESSAGES * AT_ONCE);
        assert!(hog.hear().is_some() && hog.hear().is_none(), "it made no sense");
        until(|| (descriptors(&running, HOG) == 0).then_some(()));
    }
}

users! {
    fn where_all_that_may_wait_to_be_closed_does_descriptors_of_users_wait_and_all_else_goes_on() {
        let name = "where_all_that_may_wait_to_be_closed_does_descriptors_of_users_wait_and_all_else_goes_on";
        let Some(slow) = slow(name) else { return };
        // Two messages of an eighth of it.
        setrlimit(Resource::RLIMIT_NOFILE, 3000, 3000).expect("a limit");
        let running = Running::with(for_all, Config::default());
        // Behind it: closes are answered before the service is waited for.
        let slow = slow;
        let (other, guest) = (running.program(), Program::of(&running.path, GUEST));
        let files = vec![slow.file().as_raw_fd(); AT_ONCE];
        for (n, uid) in [HOG, OTHER_HOG].into_iter().enumerate() {
            Program::of(&running.path, uid).say_with_numbers(&[0; HEADER], &files);
            are_begun(&slow, &other, (n + 1) * AT_ONCE);
        }
        // Nobody has more of them now, nor a stranger anything.
        hello(&guest);
        let own = guest.open(false).expect("a socket");
        assert_eq!(other.ask_with(Op::Hello, 0, &VERSION.to_ne_bytes(), Some(own.stream.as_fd())).errno, 0);
        guest.say_with_numbers(&message(Op::Hello, &VERSION.to_ne_bytes()), &[own.stream.as_raw_fd()]);
        let stranger = Program::of(&running.path, GUEST + 1);
        stranger.say(&message(Op::Hello, &VERSION.to_ne_bytes())).expect("room");
        for waits in [&guest, &stranger] {
            assert_eq!(ready(waits.own().as_fd(), PollFlags::POLLIN, 300), PollFlags::empty());
        }
        slow.answer();
        assert!(guest.hear().is_some() && stranger.hear().is_some());
        hello(&guest);
    }
}
