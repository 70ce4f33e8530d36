//! Limits, forbidden calls and programs that cannot be preloaded: the program runs as it would without us.

use crate::stage::{Side, Stage, installed};
use crate::support::{missing, ring_required, skip};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

fn stage(test: &str, needs: &[&str]) -> Option<Stage> {
    match missing(needs) {
        Some(reason) => {
            skip(&format!("users::trouble::{test}"), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

/// A wrapper that sets the soft and hard limit of descriptors.
fn limit(soft: u32, hard: u32) -> Vec<OsString> {
    vec![installed("prlimit").into(), format!("--nofile={soft}:{hard}").into(), "--".into()]
}

/// What the program sees of its descriptors with a limit, under Bypath and without, must be the same.
fn descriptors_seen(stage: &Stage, soft: u32, hard: u32, when: &str) {
    let (server, port) = stage.echo_server(&Side::default());
    let script = stage.scene.path("descriptors.py");
    let under = Side { before: limit(soft, hard), ..Side::default() };
    let under = stage.program(&under, "client.stats", &installed("python3"));
    let under = under.arg(&script).arg(when).arg(port.to_string()).finish();
    let plain = stage.scene.plain("prlimit").words(&limit(soft, hard)[1..]).arg(installed("python3"));
    let plain = plain.arg(&script).arg(when).arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    assert_eq!(under.stdout, plain.stdout);
    assert!(plain.stdout.starts_with(&format!("seen ({soft}, {hard}) ")), "{}", plain.stdout);
}

const LIMITED: &[&str] = &["python3", "prlimit"];

#[test]
fn descriptor_numbers_and_limit_are_the_kernels() {
    let Some(stage) = stage("descriptor_numbers_and_limit_are_the_kernels", LIMITED) else { return };
    descriptors_seen(&stage, 64, 1024, "after");
}

#[test]
fn no_room_above_a_tiny_limit() {
    let Some(stage) = stage("no_room_above_a_tiny_limit", LIMITED) else { return };
    descriptors_seen(&stage, 16, 16, "after");
}

#[test]
fn every_descriptor_taken_before_the_traffic() {
    let Some(stage) = stage("every_descriptor_taken_before_the_traffic", LIMITED) else { return };
    descriptors_seen(&stage, 16, 16, "before");
    stage.counted().assert_kernel(None, Some("no-descriptors"));
}

#[test]
fn upgrades_switched_off() {
    let Some(stage) = stage("upgrades_switched_off", &["python3"]) else { return };
    let off = Side { options: &[("upgrade", "off")], ..Side::default() };
    stage.ping(&Side::default(), &off).assert_kernel(None, Some("disabled"));
}

#[test]
fn ceiling_of_ring_memory() {
    let Some(stage) = stage("ceiling_of_ring_memory", &["python3"]) else { return };
    let tiny = Side { options: &[("memory-limit", "4K")], ..Side::default() };
    stage.ping(&Side::default(), &tiny).assert_kernel(None, Some("memory-limit"));
}

/// What a client has lent to its server, which is killed, keeps its port no longer than until that one goes to sleep again.
#[test]
fn a_killed_senders_port_is_free_again() {
    let Some(stage) = stage("a_killed_senders_port_is_free_again", &["python3"]) else { return };
    let script = stage.scene.path("lender.py");
    let python = installed("python3");
    let number = |word: &'static str| move |line: &str| line.strip_prefix(word)?.trim().parse::<u16>().ok();
    let start =
        |role: &str, stats: &str| stage.program(&Side::default(), stats, &python).arg(&script).arg(role);
    let mut server = start("server", "server.stats").start();
    let port = server.ready(number("port "));
    let mut client = start("client", "client.stats").arg(port.to_string()).start();
    let own = client.ready(number("own "));
    let is_lent = || {
        let sockets = std::fs::read_to_string("/proc/net/udp").expect("the kernel's sockets");
        // Of addresses that begin with 127, in 127.64.0.0/10.
        let at = |second: u8| sockets.contains(&format!("{second:02X}7F:{own:04X} "));
        (64..128).any(at)
    };
    if ring_required() {
        assert!(is_lent(), "nothing was lent");
    }
    client.stop(Signal::KILL);
    let until = Instant::now() + Duration::from_secs(20);
    while is_lent() {
        assert!(Instant::now() < until, "port {own} is taken");
        std::thread::yield_now();
    }
    std::net::UdpSocket::bind(("0.0.0.0", own)).expect("a free port");
    server.stop(Signal::KILL);
}

/// The client runs under a seccomp filter that answers EPERM to one call.
fn forbidden(test: &str, call: &str) {
    let Some(stage) = stage(test, &["python3"]) else { return };
    let python = installed("python3");
    let forbid = vec![python.into(), stage.scene.path("forbid.py").into(), call.into()];
    // Whether filters can be set at all (status 77: not here).
    let probe = stage.scene.plain("python3").words(&forbid[1..]).arg("/bin/true").start().wait();
    if probe.status.code() == Some(77) {
        skip(&format!("users::trouble::{test}"), &format!("no seccomp filter here: {}", probe.stderr.trim()));
        return;
    }
    probe.ok();
    let client = Side { before: forbid, ..Side::default() };
    stage.ping(&Side::default(), &client).assert_kernel(None, Some("forbidden-call"));
}

#[test]
fn memfd_create_is_forbidden() {
    forbidden("memfd_create_is_forbidden", "memfd_create");
}

#[test]
fn eventfd_is_forbidden() {
    forbidden("eventfd_is_forbidden", "eventfd2");
}

#[test]
fn unix_sockets_are_forbidden() {
    forbidden("unix_sockets_are_forbidden", "unix-socket");
}

#[test]
fn netlink_is_forbidden() {
    forbidden("netlink_is_forbidden", "netlink-socket");
}

/// A program without a dynamic loader cannot be preloaded: it runs plain on either side.
const STATIC_PROGRAM: &str = r#"
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn main() {
    let port = std::env::args().nth(1).expect("a port, 0 to serve");
    if port == "0" {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        println!("port {}", listener.local_addr().unwrap().port());
        let (mut client, _) = listener.accept().unwrap();
        let mut data = [0; 65536];
        loop {
            let n = client.read(&mut data).unwrap();
            if n == 0 {
                return;
            }
            client.write_all(&data[..n]).unwrap();
        }
    }
    let mut server = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    for round in 0..3000u32 {
        let message = [round.to_le_bytes(); 256].concat();
        server.write_all(&message).unwrap();
        let mut back = vec![0; message.len()];
        server.read_exact(&mut back).unwrap();
        assert_eq!(back, message, "round {round}");
    }
    println!("payload {}", 3000 * 2 * 1024);
}
"#;

/// Compiles [`STATIC_PROGRAM`], or says why it cannot.
fn static_program(stage: &Stage) -> Result<PathBuf, String> {
    let (source, program) = (stage.scene.path("static.rs"), stage.scene.path("static"));
    std::fs::write(&source, STATIC_PROGRAM).expect("the source");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "-C", "target-feature=+crt-static", "-o"]).arg(&program).arg(&source);
    let output = rustc.output().map_err(|e| format!("rustc: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        return Ok(program);
    }
    let last = errors.lines().rev().find(|l| l.contains("error")).unwrap_or("no message");
    Err(format!("no static program can be linked here (Debian package libc6-dev): {last}"))
}

#[test]
fn static_client_runs_plain() {
    let test = "static_client_runs_plain";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let program = match static_program(&stage) {
        Ok(program) => program,
        Err(reason) => return skip(&format!("users::trouble::{test}"), &reason),
    };
    let (server, port) = stage.echo_server(&Side::default());
    let client = stage.program(&Side::default(), "client.stats", &program).arg(port.to_string());
    assert_eq!(client.finish().number("payload "), 3000 * 2 * 1024);
    server.stop(Signal::TERM);
    stage.counted().assert_kernel(Some("peer-plain"), None);
}

#[test]
fn static_server_runs_plain() {
    let test = "static_server_runs_plain";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let program = match static_program(&stage) {
        Ok(program) => program,
        Err(reason) => return skip(&format!("users::trouble::{test}"), &reason),
    };
    let mut server = stage.program(&Side::default(), "server.stats", &program).arg("0").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = stage.program(&Side::default(), "client.stats", &installed("python3"));
    client.arg(stage.scene.path("ping.py")).arg(port.to_string()).finish();
    server.wait().ok();
    stage.counted().assert_kernel(None, Some("peer-plain"));
}

/// `bypath stats` on a run that counted nothing it could read must not look like a proof.
#[test]
fn an_empty_run_proves_nothing() {
    let counted = std::panic::catch_unwind(|| crate::support::Totals::default().assert_kernel_only(0));
    assert!(counted.is_err());
    let counted = std::panic::catch_unwind(|| crate::support::Totals::default().assert_ring(1));
    assert!(counted.is_err());
}
