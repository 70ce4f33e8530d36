//! Programs that send datagrams to each other: sockperf, iperf3, a name server and who asks it, a log, counters that nobody
//! answers, frames of RTP, Python and Node in the ways people write them.

use crate::support::{Process, Program, Scene, Way, find_program, ways};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};

ways! {
    sockperf_ping_pong needs ["sockperf"] => |scene| {
        ping_pong(scene, Waits::AsUsual);
        scene.prove_kernel_if_alone();
    };
    sockperf_under_load needs ["sockperf"] => |scene| {
        under_load(scene);
        scene.prove_kernel_if_alone();
    };
    iperf3_forward needs ["iperf3"] => |scene| {
        transfer(scene, Waits::AsUsual, "");
        scene.prove_kernel_if_alone();
    };
    iperf3_reverse needs ["iperf3"] => |scene| {
        transfer(scene, Waits::AsUsual, "-R");
        scene.prove_kernel_if_alone();
    };
    dnsmasq_and_dig needs ["dnsmasq", "dig", "python3"] => |scene| {
        names(scene);
        scene.prove_kernel_if_alone();
    };
    rsyslog_and_logger needs ["rsyslogd", "logger"] => |scene| {
        log(scene);
        scene.prove_kernel_if_alone();
    };
    counters needs ["python3"] => |scene| {
        counters(scene);
        scene.prove_kernel_if_alone();
    };
    rtp needs ["python3"] => |scene| {
        frames(scene, Waits::AsUsual);
        scene.prove_kernel_if_alone();
    };
    python_plain needs ["python3"] => |scene| {
        python(scene, "plain", "plain", 8);
        scene.prove_kernel_if_alone();
    };
    python_that_spins needs ["python3"] => |scene| {
        let payload = python(scene, "spinning", "spinning", 8);
        // The first few let the ends find each other, and the very first are not counted.
        scene.prove_datagrams(payload / 10 * 9, 80);
    };
    python_that_forks needs ["python3"] => |scene| {
        let payload = python(scene, "forking", "spinning", 8);
        scene.prove_datagrams(payload / 10 * 9, 50);
    };
    python_group needs ["python3"] => |scene| {
        let payload = python(scene, "group", "spinning", 8);
        scene.prove_datagrams(payload / 10 * 9, 25);
    };
    python_selectors needs ["python3"] => |scene| {
        python(scene, "selectors", "plain", 8);
        scene.prove_kernel_if_alone();
    };
    python_asyncio needs ["python3"] => |scene| {
        python(scene, "asyncio", "asyncio", 8);
        scene.prove_kernel_if_alone();
    };
    python_threads needs ["python3"] => |scene| {
        python(scene, "threads", "plain", 1);
        scene.prove_kernel_if_alone();
    };
    node_dgram needs ["node"] => |scene| {
        node(scene);
        scene.prove_kernel_if_alone();
    };
    inetd_and_what_it_starts needs ["inetd", "python3"] => |scene| {
        superserver(scene);
        scene.prove_kernel_if_alone();
    };
    socat_echo needs ["socat", "python3"] => |scene| {
        socat(scene);
        scene.prove_kernel_if_alone();
    };
}

/// Both sides under Bypath, and awake most of the time: so many percent of the octets go by rings.
macro_rules! awake {
    ($($name:ident needs [$($tool:expr),*], $percent:literal => $run:expr;)*) => {$(
        #[test]
        fn $name() {
            let test = concat!(module_path!(), "::", stringify!($name));
            let run: fn(&Scene) = $run;
            Scene::play(test, Way::Both, &["taskset", $($tool),*], |scene| scene.prove_awake($percent, || run(scene)));
        }
    )*};
}

awake! {
    sockperf_between_two_that_are_awake needs ["sockperf"], 25 => |scene| ping_pong(scene, Waits::Awake);
    iperf3_between_two_that_are_awake needs ["iperf3"], 1 => |scene| transfer(scene, Waits::Awake, "-b 0 -t 3");
    rtp_between_two_that_are_awake needs ["python3"], 5 => |scene| frames(scene, Waits::Awake);
}

/// How a program waits for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// With the settings that there are without any.
    AsUsual,
    /// Longer (`--profile=latency`), and on a processor of its own where there are two: neighbours on one take turns, and sleep while the other sends.
    Awake,
}

impl Waits {
    fn server<'a>(self, scene: &'a Scene, program: &str) -> Program<'a> {
        self.start(|program| scene.server(program), program, 0)
    }

    fn client<'a>(self, scene: &'a Scene, program: &str) -> Program<'a> {
        self.start(|program| scene.client(program), program, 1)
    }

    fn start<'a>(self, side: impl Fn(&str) -> Program<'a>, program: &str, processor: usize) -> Program<'a> {
        if self == Waits::AsUsual {
            return side(program);
        }
        let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
        let words = side("taskset").env("BYPATH_PROFILE", "latency").arg("-c");
        words.arg(processor.min(last).to_string()).arg(find_program(program).expect("in the test's needs"))
    }
}

fn serve_sockperf(scene: &Scene, waits: Waits) -> (Process, String) {
    let port = scene.port();
    let mut server =
        waits.server(scene, "sockperf").args("server -i 127.0.0.1 -p").arg(port.to_string()).start();
    server.bound(port);
    (server, port.to_string())
}

const NO_LOSS: &str = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";

fn ping_pong(scene: &Scene, waits: Waits) {
    let (server, port) = serve_sockperf(scene, waits);
    let client = waits.client(scene, "sockperf").args("ping-pong --mps max -i 127.0.0.1 -p").arg(port);
    // Where others have one of two processors a second may pass without an answer.
    let seconds = if waits == Waits::Awake { "-t 3" } else { "-t 1" };
    let report = client.args(seconds).args("-m 64 --data-integrity").finish();
    server.stop(Signal::INT);
    assert!(report.stdout.contains(NO_LOSS), "{}", report.stdout);
    assert!(after(&report.stdout, "ReceivedMessages=") > 1000, "{}", report.stdout);
}

/// It sends so fast whether the server runs or not: on a busy machine the kernel drops most of it, and few answers come within a second.
fn under_load(scene: &Scene) {
    let (server, port) = serve_sockperf(scene, Waits::AsUsual);
    let run = |seconds: u32| {
        let client = scene.client("sockperf").args("under-load --mps 10000 -i 127.0.0.1 -p").arg(&port);
        let report = client.args(&format!("-t {seconds} -m 1400 --reply-every 10")).finish().stdout;
        let is_valid = !report.contains("No valid observations");
        let in_order = report.contains("# duplicated messages = 0; # out-of-order messages = 0");
        assert!(in_order || !is_valid, "{report}");
        is_valid && after(&report, "ReceivedMessages=") > 100
    };
    assert!([1, 4, 16].into_iter().any(run), "answers do not come within sixteen seconds");
    server.stop(Signal::INT);
}

/// The number that follows `label` in sockperf's report.
#[track_caller]
fn after(report: &str, label: &str) -> u64 {
    let rest = report.split_once(label).unwrap_or_else(|| panic!("no {label:?} in\n{report}")).1;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap_or_else(|e| panic!("{label}: {e} in\n{report}"))
}

/// At a rate that a machine carries: where it does other things many may be lost, none is out of order.
fn transfer(scene: &Scene, waits: Waits, options: &str) {
    let port = scene.port();
    let server = waits.server(scene, "iperf3").args("-s -1 -B 127.0.0.1 -p");
    let mut server = server.arg(port.to_string()).start();
    server.listening(port);
    let client = waits.client(scene, "iperf3").args("-c 127.0.0.1 -u -J -b 20M -l 1400 -t 1 -p");
    let report = client.arg(port.to_string()).args(options).finish();
    server.wait().ok();
    let report: Value = serde_json::from_str(&report.stdout).expect("iperf3 prints JSON");
    assert!(report.get("error").is_none(), "{report:#}");
    let udp = &report["end"]["streams"][0]["udp"];
    let number = |name: &str| udp[name].as_u64().unwrap_or_else(|| panic!("no {name}: {report:#}"));
    assert!(number("packets") > 500 && number("packets") - number("lost_packets") > 100, "{report:#}");
    assert_eq!(number("out_of_order"), 0, "{report:#}");
}

/// A name server, asked by many programs once each, and by one many times.
fn names(scene: &Scene) {
    let port = scene.port();
    let server =
        scene.server("dnsmasq").args("--keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts");
    let server = server.args("--listen-address=127.0.0.1 --bind-interfaces --pid-file --log-facility=-");
    let server = server.args("--local=/example/ --address=/lab.example/192.0.2.7 --user= --group=");
    let mut server = server.arg(format!("--port={port}")).start();
    server.bound(port);
    for _ in 0..3 {
        let client = scene.client("dig").args("@127.0.0.1 -p").arg(port.to_string());
        let answer = client.args("+short +tries=1 +timeout=30 lab.example A").finish();
        assert_eq!(answer.stdout, "192.0.2.7\n", "{}", answer.stderr);
    }
    let client = scene.client("python3").script("dns.py").arg(port.to_string()).arg("1000").finish();
    assert_eq!(client.number("answers "), 1000);
    server.stop(Signal::TERM);
}

/// As many lines as any queue holds, whenever they are read.
const LINES: usize = 200;

fn log(scene: &Scene) {
    let (port, file, lines) = (scene.port(), scene.path("log"), scene.path("lines"));
    let settings = scene.path("rsyslog.conf");
    let text = format!(
        "global(workDirectory=\"{0}\")\nmodule(load=\"imudp\")\n\
         input(type=\"imudp\" address=\"127.0.0.1\" port=\"{port}\")\n\
         template(name=\"bare\" type=\"string\" string=\"%msg%\\n\")\n\
         *.* action(type=\"omfile\" file=\"{1}\" template=\"bare\")\n",
        scene.path("").display(),
        file.display()
    );
    std::fs::write(&settings, text).expect("the settings");
    let all: Vec<String> = (0..LINES).map(|n| format!("line {n} of the log")).collect();
    std::fs::write(&lines, all.join("\n") + "\n").expect("the lines");
    let mut server = scene.server("rsyslogd").args("-n -iNONE -f").arg(&settings).start();
    server.bound(port);
    let client = scene.client("logger").args("--server 127.0.0.1 --udp --rfc3164 --tag test --port");
    client.arg(port.to_string()).arg("--file").arg(&lines).finish();
    let until = Instant::now() + Duration::from_secs(60);
    let written = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).filter(|l| l.starts_with("line ")).collect::<Vec<_>>()
    };
    // It writes when it likes, and to nobody who could tell: the file is looked at again and again, and the time is only how often.
    while written().len() < LINES && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop(Signal::TERM);
    assert_eq!(written(), all);
}

/// Most may be lost, as nobody waits; those that come are in order.
fn counters(scene: &Scene) {
    let mut server = scene.server("python3").script("statsd.py").arg("server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("statsd.py").arg("client").arg(port.to_string());
    let counted = client.arg("10000").finish().number("counted ");
    server.stop(Signal::TERM);
    assert!(counted > 100, "only {counted} of 30000 were counted");
}

fn frames(scene: &Scene, waits: Waits) {
    let mut server = waits.server(scene, "python3").script("rtp.py").arg("receiver").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = waits.client(scene, "python3").script("rtp.py").arg("sender").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    assert_eq!(client.number("frames "), 2400);
}

/// Octets that were sent, there and back.
fn python(scene: &Scene, server: &str, client: &str, window: u32) -> u64 {
    let mut server = scene.server("python3").script("udp_echo.py").arg("server").arg(server).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("udp_echo.py").arg("client").arg(client);
    let client = client.arg(port.to_string()).arg(window.to_string()).finish();
    server.stop(Signal::TERM);
    let payload = client.number("payload ");
    assert!(payload > 1_000_000);
    payload
}

fn node(scene: &Scene) {
    let mut server = scene.server("node").script("dgram_echo.js").arg("server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("node").script("dgram_echo.js").arg("client").arg(port.to_string());
    let client = client.arg("2000").finish();
    server.stop(Signal::TERM);
    assert!(client.number("payload ") > 1_000_000);
}

/// Each of its servers finds the datagram for which it was started, and the next ones, though inetd has had the socket before and after.
fn superserver(scene: &Scene) {
    let (port, settings) = (scene.port(), scene.path("inetd.conf"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/scripts/inetd.py");
    let python = find_program("python3").expect("in the test's needs");
    let user = rustix::process::getuid().as_raw();
    let user = if user == 0 { "root".to_owned() } else { std::env::var("USER").expect("a name") };
    let line =
        format!("127.0.0.1:{port} dgram udp wait {user} {} python3 {script} server\n", python.display());
    std::fs::write(&settings, line).expect("the settings");
    let mut server = scene.server("inetd").args("-i").arg(&settings).start();
    server.bound(port);
    let client = scene.client("python3").script("inetd.py").arg("client").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    assert_eq!(client.number("answers "), 150);
    assert_eq!(client.number("servers "), 3);
}

fn socat(scene: &Scene) {
    let port = scene.port();
    let server =
        scene.server("socat").args("-b 65536").arg(format!("UDP4-LISTEN:{port},bind=127.0.0.1")).arg("PIPE");
    let mut server = server.start();
    server.bound(port);
    // A pipe keeps no datagrams apart, and an empty one is the end.
    let client = scene.client("python3").script("udp_echo.py").args("client asyncio");
    let client = client.arg(port.to_string()).arg("1").finish();
    server.stop(Signal::TERM);
    assert!(client.number("payload ") > 1_000_000);
}
