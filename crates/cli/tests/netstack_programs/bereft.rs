//! A service that is killed under programs that wait: all of them wake, and are told of a reset, never of an end.

use crate::common::run;
use crate::lab::{Lab, Side, have, script};
use crate::network::{LONG, Tool};
use rustix::process::Signal;
use std::fs;
use std::time::Instant;

/// What the program says of each way to wait, as it would of a connection that its other end has reset.
const SAID: [&str; 10] = [
    "recv ECONNRESET b'' EPIPE",
    "poll ECONNRESET b'' EPIPE",
    "select ECONNRESET b'' EPIPE",
    "level ECONNRESET b'' EPIPE",
    "edge ECONNRESET b'' EPIPE",
    "splice ECONNRESET b'' EPIPE",
    "error Connection reset by peer b'' EPIPE",
    "unread b'last' ECONNRESET b'' EPIPE",
    "send ECONNRESET EPIPE b''",
    "room ECONNRESET EPIPE b''",
];

/// Connections of one program that wait, of which nothing else takes the rings away.
const WITH_RINGS: usize = 5;

fn program(lab: &Lab, settings: &[&str]) -> Tool {
    let script = script("bereft.py");
    let line = ["--netstack", "--", "python3", &script, Side::Kernel.address(), "7000", "7001"];
    let mut command = run([settings, &line].concat());
    command.env("BYPATH_NETSTACK_DIR", lab.folder.path()).env("PYTHONUNBUFFERED", "1");
    Tool::of(command).hears("ready")
}

/// Waits until every thread of a process sleeps.
#[track_caller]
fn sleeps(program: &Tool) {
    let tasks = format!("/proc/{}/task", program.id());
    let is_asleep = || {
        let all = fs::read_dir(&tasks).expect("threads").map(|task| task.expect("a thread").path());
        let stats = all.map(|task| fs::read_to_string(task.join("stat")).unwrap_or_default());
        stats.into_iter().all(|stat| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S')))
    };
    let end = Instant::now() + LONG;
    while !is_asleep() {
        assert!(Instant::now() < end, "it does not sleep");
        std::thread::yield_now();
    }
}

/// Connections both of whose directions go by rings.
fn rings(lab: &Lab) -> usize {
    let by_ring =
        |socket: &serde_json::Value| ["from_program", "to_program"].iter().all(|way| socket[way] == "ring");
    lab.told(&["sockets"]).iter().filter(|socket| by_ring(socket)).count()
}

isolated! {
    fn who_waits_when_his_service_is_killed_wakes_and_is_told_of_a_reset() {
        const NAME: &str = "bereft::who_waits_when_his_service_is_killed_wakes_and_is_told_of_a_reset";
        if !have(NAME, &["python3"]) {
            return;
        }
        let mut lab = Lab::new("");
        let crowd = script("crowd.py");
        let echo = lab.start(Side::Kernel, &["python3", &crowd, "server", Side::Kernel.address(), "7000"]).hears("listening");
        let mute = "import socket, sys; s = socket.create_server((sys.argv[1], 7001)); print('listening', flush=True); sys.stdin.read()";
        let mute = lab.start(Side::Kernel, &["python3", "-c", mute, Side::Kernel.address()]).hears("listening");
        let by_pair = program(&lab, &["--upgrade=off"]);
        assert_eq!(rings(&lab), 0);
        let by_rings = program(&lab, &["--upgrade=eager"]);
        let end = Instant::now() + LONG;
        while rings(&lab) < WITH_RINGS {
            assert!(Instant::now() < end, "{:#?}", lab.told(&["sockets"]));
        }
        [&by_pair, &by_rings].into_iter().for_each(sleeps);
        lab.kill();
        let all = [by_pair, by_rings].map(|program| program.hears("\nall\n"));
        // Another service, which knows nothing of them, answers those who look now.
        lab.begin();
        for (mut program, which) in all.into_iter().zip(["by the pair", "by rings"]) {
            program.write(b"\n");
            let ended = program.end().expect(0);
            let text = ended.text();
            for line in SAID.iter().chain(&["late recv ECONNRESET b'' EPIPE", "late send ECONNRESET EPIPE b''"]) {
                assert!(text.lines().any(|said| said == *line), "{which}: `{line}` is not in\n{text}{}", ended.stderr);
            }
        }
        for server in [echo, mute] {
            server.signal(Signal::TERM);
            server.end();
        }
        lab.is_empty();
        lab.end();
    }
}
