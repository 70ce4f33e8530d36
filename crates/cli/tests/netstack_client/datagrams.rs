//! Sockets of datagrams, on the kernel and on `bypath netstack`; and programs that use them.

use super::{HERE, Process, Service, common, is_possible, script, skip};
use std::process::{Child, Command, Stdio};

/// Another host, with an echo server of UDP at port 7.
const THERE: &str = "10.9.0.9";

/// `bypath netstack`, whose stack is [`HERE`], beside an echo server on [`THERE`]: the kernel at the other end of its link. `more` is
/// run there, too.
fn lab(name: &str, more: &[&str]) -> Option<Service> {
    lab_with(name, &[], more)
}

/// One that looks for more for a while before it sleeps.
fn awake(name: &str) -> Option<Service> {
    lab_with(name, &["--busy-poll", "200"], &[])
}

fn lab_with(name: &str, settings: &[&str], more: &[&str]) -> Option<Service> {
    if !is_possible(name, &["ip"]) {
        return None;
    }
    if let Err(e) = bypath::tun::Device::tap("probe%d").open() {
        skip(name, &format!("no TAP devices: {e}"));
        return None;
    }
    let folder = common::TempDir::new();
    let mut command = Command::new("python3");
    command.arg(script("lab.py")).arg("service").arg(folder.path()).arg(common::BYPATH).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).env("BYPATH_CONFIG", "none");
    command.env("LAB_SETTINGS", settings.join(" "));
    let child = bypath_sys::netns::isolated(&mut command).spawn().expect("python3");
    let mut process = Process(child);
    assert_eq!(process.line(), "ready");
    Some(Service { folder, process: Some(process) })
}

/// Every call answers as on the kernel's own sockets.
#[test]
fn datagrams_are_as_the_kernels() {
    let Some(service) = lab("datagrams_are_as_the_kernels", &[]) else { return };
    are_as_the_kernels(&service, &["--netstack=lab"]);
}

/// The same by rings, of each socket from its first call on, where the service stays awake.
#[test]
fn datagrams_by_rings_are_as_the_kernels() {
    let Some(service) = awake("datagrams_by_rings_are_as_the_kernels") else { return };
    are_as_the_kernels(&service, &["--netstack=lab", "--upgrade=eager"]);
}

#[track_caller]
fn are_as_the_kernels(service: &Service, settings: &[&str]) {
    let calls = script("datagrams.py");
    let words = ["python3", calls.to_str().expect("a plain path"), HERE, THERE];
    let mut kernel = Command::new("python3");
    kernel.arg(script("lab.py")).arg("kernel").args(words);
    let kernel = bypath_sys::netns::isolated(&mut kernel).output().expect("python3");
    let (kernel, errors) = (common::stdout(&kernel), common::stderr(&kernel));
    assert!(kernel.contains("-- near") && !kernel.contains("failed"), "{kernel}{errors}");
    let served = service.run(settings, &words).output().expect("bypath");
    let said = common::stdout(&served);
    let differ: Vec<_> = kernel.lines().zip(said.lines()).filter(|(k, s)| k != s).collect();
    assert!(kernel == said, "kernel, service: {differ:#?}\n{said}{}", common::stderr(&served));
}

/// What a program prints whose sockets are the service's.
#[track_caller]
fn prints(service: &Service, program: &[&str]) -> String {
    let output = service.output(program);
    assert!(output.status.success(), "{}{}", common::stdout(&output), common::stderr(&output));
    common::stdout(&output)
}

const LIFE: &str = "import errno, os, signal, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[2], 7))
s.send(b'x')
print(s.recv(9), flush=True)
sys.stdin.readline()
def outcome(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
print(outcome(s.recv, 9), outcome(s.send, b'x'))
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print(outcome(t.connect, (sys.argv[2], 7)) is not None)
t = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
t.connect(('127.0.0.1', 9))
print(t.getpeername())";

/// A service that ends leaves its programs with errors and without a hang; loopback is the kernel's.
#[test]
fn a_service_that_ends_is_told_of() {
    let Some(mut service) = lab("a_service_that_ends_is_told_of", &[]) else { return };
    let mut program = service.program(&["python3", "-c", LIFE, HERE, THERE]);
    let mut child: Child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
    let input = child.stdin.take();
    let mut process = Process(child);
    assert_eq!(process.line(), "b'x'");
    if let Some(lab) = &mut service.process {
        drop(lab.0.stdin.take());
        lab.0.wait().expect("it was started");
    }
    std::io::Write::write_all(&mut input.expect("a pipe"), b"\n").expect("a pipe");
    let said = process.finish();
    assert_eq!(said, "ENETDOWN ENETDOWN\nTrue\n('127.0.0.1', 9)\n");
}

const SERVER: &str = "import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 0))
print(s.getsockname()[1], flush=True)
while True:
    octets, name = s.recvfrom(4096)
    s.sendto(octets.upper(), name)
    if octets.startswith(b'end'): break
print('end', flush=True)";

/// Two programs of the same service, and the tools that everybody has.
#[test]
fn nc_and_socat_talk_to_a_server() {
    let Some(service) = lab("nc_and_socat_talk_to_a_server", &[]) else { return };
    if !is_possible("nc_and_socat_talk_to_a_server", &["nc", "socat"]) {
        return;
    }
    let (server, port) = service.serve(&["python3", "-c", SERVER]);
    let to = format!("UDP:{HERE}:{port}");
    for (program, octets) in [
        (&["nc", "-u", "-W", "1", HERE, &port][..], "by nc\n"),
        (&["socat", "-t", "1", "-", &to][..], "by socat\n"),
        (&["socat", "-t", "1", "-", &to][..], "end\n"),
    ] {
        let mut client = service.program(program);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
        let mut input = client.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, octets.as_bytes()).expect("a pipe");
        // The one ends with its input, the other one with the answer.
        let input = Some(input).filter(|_| program[0] == "nc");
        let output = client.wait_with_output().expect("it was started");
        assert_eq!(common::stdout(&output), octets.to_uppercase(), "{program:?}");
        drop(input);
    }
    assert_eq!(server.finish(), "end\n");
    let rows = prints_sockets(&service);
    assert!(!rows.contains("udp"), "{rows}");
}

/// `bypath netstack sockets`.
fn prints_sockets(service: &Service) -> String {
    let mut command = common::bypath(["netstack", "sockets", "--name", "lab", "--json"]);
    let output = command.env("BYPATH_NETSTACK_DIR", service.folder.path()).output().expect("bypath");
    common::stdout(&output)
}

#[test]
fn iperf3_measures_datagrams() {
    if !is_possible("iperf3_measures_datagrams", &["iperf3"]) {
        return;
    }
    let Some(service) =
        lab("iperf3_measures_datagrams", &["iperf3", "-s", "-B", THERE, "-1", "--forceflush"])
    else {
        return;
    };
    let said = prints(&service, &["iperf3", "-u", "-c", THERE, "-b", "20M", "-t", "1", "-J"]);
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let sum = &said["end"]["sum"];
    let (packets, lost) = (sum["packets"].as_u64(), sum["lost_packets"].as_u64());
    assert!(packets > Some(500) && lost < Some(100), "{sum}");
}

const STORM: &str = "import signal, socket, sys, threading
came = 0
def handler(*_):
    global came
    came += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
good = 0
for n in range(300):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        if n % 3 == 0: s.bind(('', 0))
        if n % 3 == 1: s.connect((sys.argv[2], 7))
        for m in range(3):
            s.sendto(b'%d %d' % (n, m), (sys.argv[2], 7))
            octets, name = s.recvfrom(100)
            good += octets == b'%d %d' % (n, m) and name == (sys.argv[2], 7)
signal.setitimer(signal.ITIMER_REAL, 0)
shared = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
shared.connect((sys.argv[2], 7))
got = []
def ask():
    for n in range(100):
        shared.send(b'x')
        got.append(shared.recv(10))
threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(good, came > 10, len(got), set(got))";

/// Signals and threads in the middle of everything.
#[test]
fn signals_and_threads_harm_no_datagrams() {
    let Some(service) = lab("signals_and_threads_harm_no_datagrams", &[]) else { return };
    let said = prints(&service, &["python3", "-c", STORM, HERE, THERE]);
    assert_eq!(said, "900 True 400 {b'x'}\n");
}

/// A name server that knows one name.
const NAMES: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.9.0.9', 53))
print('ready', flush=True)
while True:
    q, name = s.recvfrom(4096)
    end = q.index(b'\\0', 12) + 5
    answer = q[:2] + b'\\x84\\0\\0\\1\\0\\1\\0\\0\\0\\0' + q[12:end] + b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4\\xc0\\0\\2\\x07'
    s.sendto(answer, name)";

#[test]
fn dig_asks_a_name_server_through_the_stack() {
    let Some(service) = lab("dig_asks_a_name_server_through_the_stack", &["python3", "-c", NAMES]) else {
        return;
    };
    if !is_possible("dig_asks_a_name_server_through_the_stack", &["dig"]) {
        return;
    }
    let server = format!("@{THERE}");
    assert_eq!(
        prints(&service, &["dig", "+short", "+noedns", "+nocookie", &server, "lab.example", "A"]),
        "192.0.2.7\n"
    );
}

#[test]
fn ping_hears_of_the_other_host() {
    let Some(service) = lab("ping_hears_of_the_other_host", &[]) else { return };
    if !is_possible("ping_hears_of_the_other_host", &["ping"]) {
        return;
    }
    let said = prints(&service, &["ping", "-c", "2", "-i", "0.2", THERE]);
    assert!(said.contains("2 received"), "{said}");
}

/// A program that waits in every way, hands its sockets on, and sends more than it reads: between rings and pairs nothing is lost, doubled
/// or out of order.
#[test]
fn datagrams_change_between_rings_and_pairs() {
    for service in [
        awake("datagrams_change_between_rings_and_pairs"),
        lab("datagrams_change_between_rings_and_pairs", &[]),
    ] {
        let Some(service) = service else { return };
        let mail = script("mail.py");
        let words = ["python3", mail.to_str().expect("a plain path"), THERE];
        let mut program = service.run(&["--netstack=lab", "--profile=latency"], &words);
        let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
        let mut process = Process(child);
        assert_eq!(process.line(), "warm");
        // Beside others the two may not be awake at once for a while.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let mut sockets = common::bypath(["netstack", "sockets", "--name=lab", "--json"]);
            let rows = sockets.env("BYPATH_NETSTACK_DIR", service.folder.path()).output().expect("bypath");
            let rows = common::stdout(&rows).replace([' ', '\n'], "");
            if rows.contains("\"to_program\":\"ring\"") {
                break;
            }
            assert!(std::time::Instant::now() < end, "{rows}");
        }
        std::io::Write::write_all(process.0.stdin.as_mut().expect("a pipe"), b"\n").expect("a pipe");
        assert_eq!(process.finish(), "bursts\nwaits\ncalls\nthreads\nfork\nexec\npassed\nmany\n");
    }
}
