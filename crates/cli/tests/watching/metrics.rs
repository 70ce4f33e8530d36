//! `bypath metrics`: printed once and served, read by promtool, and asked by who does not speak HTTP.

use crate::common::{bypath, stdout};
use crate::lab::{LONG, Running, Talk, has};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The sum of what stands behind a name with these labels.
fn value(text: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = text.lines().filter(|l| l.split(['{', ' ']).next() == Some(name));
    lines
        .filter(|l| labels.iter().all(|label| l.contains(label)))
        .map(|l| l.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
        .sum()
}

fn ask(at: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(at).expect("a listener");
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    // Who answers at once may have closed already.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_programs_moved_is_counted_and_promtool_reads_it() {
    if !has("metrics::what_programs_moved_is_counted_and_promtool_reads_it", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let of_python = &["command=\"python3\"", "path=\"ring\"", "direction=\"tx\""];
    let read = || stdout(&bypath(["metrics"]).output().expect("bypath starts"));
    let before = value(&read(), "bypath_bytes_total", of_python);
    talk.does("http 10 5000");
    let text = read();
    // Other programs under Bypath may run meanwhile: at least.
    assert!(value(&text, "bypath_bytes_total", of_python) >= before + 50_000.0, "{text}");
    assert!(value(&text, "bypath_processes", &["command=\"python3\""]) >= 2.0, "{text}");
    assert!(value(&text, "bypath_connections_upgraded_total", &["command=\"python3\""]) >= 2.0, "{text}");
    let on_rings = &["path=\"ring\"", "reason=\"ring\""];
    assert!(value(&text, "bypath_socket_directions", on_rings) >= 4.0, "{text}");
    assert!(text.contains("# TYPE bypath_spin_seconds_total counter"), "{text}");
    if has("metrics::promtool_reads_it", &["promtool"]) {
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts");
        promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
        let output = promtool.wait_with_output().expect("promtool ends");
        let said = stdout(&output) + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.trim().is_empty(), "{said}\n{text}");
    }
}

#[test]
fn callers_who_ask_otherwise_are_refused_and_others_still_served() {
    let serving = bypath(["metrics", "--listen", "0"]).stdout(Stdio::piped()).spawn().expect("bypath starts");
    let mut serving = Running(serving);
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a place");
    let at = line.trim().strip_prefix("http://").and_then(|l| l.strip_suffix("/metrics")).expect("a place");
    let get = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let good = ask(at, get);
    assert!(good.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{good}");
    assert!(good.contains("\n# TYPE bypath_sockets gauge\n"), "{good}");
    assert!(ask(at, b"HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(ask(at, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404"));
    // A page that has its own name lead here.
    let rebound = ask(at, b"GET /metrics HTTP/1.1\r\nHost: page.example:9100\r\n\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403") && !rebound.contains("bypath_"), "{rebound}");
    for garbage in
        [&b"\0\xff\xfe\r\n\r\n"[..], b"\r\n\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", &[b'x'; 100_000]]
    {
        let answer = ask(at, garbage);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    // Nothing at all, and half a request.
    drop(TcpStream::connect(at).expect("a listener"));
    TcpStream::connect(at).expect("a listener").write_all(b"GET /met").expect("room");
    assert!(ask(at, get).starts_with("HTTP/1.1 200 OK"));
    assert!(serving.0.try_wait().expect("a child").is_none());
}

#[test]
fn who_asks_is_answered_beside_those_who_say_nothing() {
    let serving = bypath(["metrics", "--listen", "0"]).stdout(Stdio::piped()).spawn().expect("bypath starts");
    let mut serving = Running(serving);
    let mut line = String::new();
    BufReader::new(serving.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a place");
    let at = line.trim().strip_prefix("http://").and_then(|l| l.strip_suffix("/metrics")).expect("a place");
    let begun = Instant::now();
    // More than are answered at a time; one after the other they would have several minutes.
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(at).expect("a listener")).collect();
    for _ in 0..3 {
        assert!(ask(at, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
    }
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn an_address_that_is_not_to_be_had_is_told() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = held.local_addr().expect("an address").port().to_string();
    let output = bypath(["metrics", "--listen", &port]).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another port"));
    assert_eq!(
        bypath(["metrics", "--listen", "eth0"]).output().expect("bypath starts").status.code(),
        Some(2)
    );
}
