//! Programs at the other end, unmodified: nc both ways, iperf3, and nmap, which must not upset the stack.

use super::{Net, Wire, nothing_is_left, piece, read_all, write_all};
use crate::{LONGEST, at, isolated, namespace};
use bypath_link::tun::Offloads;
use bypath_netstack::{Host, TcpListener, TcpStream};
use bypath_stack::config::Config;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const OCTETS: usize = 1_000_000;

/// Whether a program is there; says which test is skipped where it is not.
fn has(test: &str, program: &str, package: &str) -> bool {
    let has = Command::new(program).arg("-h").output().is_ok();
    if !has {
        namespace::skip(test, &format!("{program} is not installed (Debian package {package})"));
    }
    has
}

fn tap() -> Net {
    Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link")
}

fn listener(host: &Host, address: &str) -> TcpListener {
    let listener = TcpListener::bind(host, at(address)).expect("a listener");
    listener.set_timeout(Some(LONGEST));
    listener
}

fn start(program: &str, args: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a program")
}

#[track_caller]
fn ends_well(child: Child) -> Output {
    let output = child.wait_with_output().expect("an end");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}{wrong}", said.chars().take(2000).collect::<String>());
    output
}

/// Octets go both ways between nc and the stack, and both end.
fn chats(mut nc: Child, own: &TcpStream) {
    own.set_timeout(Some(LONGEST));
    let mut stdin = nc.stdin.take().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(piece(0, OCTETS)).expect("written"));
        let wrote = scope.spawn(|| write_all(own, OCTETS, 100_000));
        let heard = scope.spawn(move || ends_well(nc).stdout);
        read_all(own, OCTETS);
        wrote.join().expect("written");
        // One that listens ends with this, whatever it has still to say.
        own.shutdown(Shutdown::Write).expect("a connection");
        assert!(heard.join().expect("nc") == piece(0, OCTETS));
    });
}

isolated! {
    fn nc_calls_and_is_called() {
        const NAME: &str = "tcp::programs::nc_calls_and_is_called";
        if !has(NAME, "nc", "netcat-openbsd") {
            return;
        }
        let net = tap();
        for (own, kernel) in [("10.9.0.2", "10.9.0.1"), ("fd09::2", "fd09::1")] {
            let bracketed = |ip: &str| if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
            let calls = listener(net.host(), &format!("{}:7", bracketed(own)));
            let nc = start("nc", &["-N", own, "7"]);
            chats(nc, &calls.accept().expect("a connection").0);
            drop(calls);
            let nc = start("nc", &["-N", "-l", kernel, "7007"]);
            let end = Instant::now() + LONGEST;
            let called = loop {
                match TcpStream::connect(net.host(), at(&format!("{}:7007", bracketed(kernel)))) {
                    Ok(called) => break called,
                    // It does not listen yet.
                    Err(e) => assert!(Instant::now() < end, "{e}"),
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            chats(nc, &called);
            drop(called);
            nothing_is_left(net.host(), 0);
        }
    }
}

/// Answers one measurement of iperf3 with one stream, as its server would.
fn measured_by_iperf3(listener: &TcpListener, sends: bool) {
    const COOKIE: usize = 37;
    let [param_exchange, create_streams, test_start, test_running] = [9, 10, 1, 2];
    let [test_end, exchange_results, display_results, iperf_done] = [4, 13, 14, 16];
    let (mut control, _) = listener.accept().expect("a connection");
    control.set_timeout(Some(LONGEST));
    let mut cookie = [0; COOKIE];
    control.read_exact(&mut cookie).expect("a cookie");
    let says = |control: &mut TcpStream, state: u8| control.write_all(&[state]).expect("written");
    let text = |control: &mut TcpStream| {
        let mut len = [0; 4];
        control.read_exact(&mut len).expect("a length");
        let mut text = vec![0; u32::from_be_bytes(len) as usize];
        control.read_exact(&mut text).expect("JSON");
        text
    };
    says(&mut control, param_exchange);
    text(&mut control);
    says(&mut control, create_streams);
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_timeout(Some(LONGEST));
    let mut again = [0; COOKIE];
    stream.read_exact(&mut again).expect("a cookie");
    assert_eq!(cookie, again);
    says(&mut control, test_start);
    says(&mut control, test_running);
    let over = AtomicBool::new(false);
    let octets = std::thread::scope(|scope| {
        let octets = scope.spawn(|| {
            let mut octets = 0;
            let mut room = vec![0; 128 << 10];
            stream.set_timeout(Some(Duration::from_millis(50)));
            while !over.load(Relaxed) {
                let moved = if sends { stream.write(&room) } else { stream.read(&mut room) };
                match moved {
                    Ok(0) => break,
                    Ok(n) => octets += n,
                    Err(e) if e.kind() == std::io::ErrorKind::TimedOut => {}
                    Err(e) => panic!("{e}"),
                }
            }
            octets
        });
        let mut state = [0];
        control.read_exact(&mut state).expect("the end");
        assert_eq!(state[0], test_end);
        over.store(true, Relaxed);
        octets.join().expect("the stream")
    });
    assert!(octets > 0);
    // It reads up to the end of a block, or to this end.
    drop(stream);
    says(&mut control, exchange_results);
    text(&mut control);
    let results = format!(
        r#"{{"cpu_util_total":0,"cpu_util_user":0,"cpu_util_system":0,"sender_has_retransmits":0,"streams":[{{"id":1,"bytes":{octets},"retransmits":0,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1}}]}}"#
    );
    control.write_all(&(results.len() as u32).to_be_bytes()).expect("written");
    control.write_all(results.as_bytes()).expect("written");
    says(&mut control, display_results);
    let mut state = [0];
    control.read_exact(&mut state).expect("the end");
    assert_eq!(state[0], iperf_done);
}

isolated! {
    fn iperf3_measures_both_ways() {
        const NAME: &str = "tcp::programs::iperf3_measures_both_ways";
        if !has(NAME, "iperf3", "iperf3") {
            return;
        }
        let net = tap();
        let listener = listener(net.host(), "[::]:5201");
        for own in ["10.9.0.2", "fd09::2"] {
            for sends in [false, true] {
                let direction = if sends { "--reverse" } else { "--json" };
                let iperf3 = start("iperf3", &["--client", own, "--bytes", "4M", "--json", direction]);
                measured_by_iperf3(&listener, sends);
                let said = String::from_utf8(ends_well(iperf3).stdout).expect("text");
                assert!(said.contains("\"sum_received\"") && !said.contains("\"error\""), "{said}");
            }
        }
        drop(listener);
        nothing_is_left(net.host(), 0);
    }
}

isolated! {
    fn nmap_does_not_upset_the_stack() {
        const NAME: &str = "tcp::programs::nmap_does_not_upset_the_stack";
        if !has(NAME, "nmap", "nmap") {
            return;
        }
        let net = tap();
        let host = net.host();
        let listener = listener(host, "[::]:80");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                listener.set_timeout(Some(Duration::from_millis(100)));
                while !over.load(Relaxed) {
                    let Ok((mut own, _)) = listener.accept() else { continue };
                    own.set_timeout(Some(Duration::from_millis(300)));
                    // Whatever becomes of it.
                    let _ = own.read(&mut [0; 1000]);
                    let _ = own.write_all(b"HTTP/1.0 200 OK\r\nServer: bypath\r\n\r\nhello");
                }
            });
            let scan = |args: &[&str], expected: &[&str]| {
                let args = [&["-n", "-Pn", "-T5", "--max-retries", "2"], args].concat();
                let said = String::from_utf8(ends_well(start("nmap", &args)).stdout).expect("text");
                for line in expected {
                    let words: Vec<&str> = line.split(' ').collect();
                    let found = said.lines().any(|l| l.split_whitespace().take(2).eq(words.iter().copied()));
                    assert!(found, "{args:?}: no {line}:\n{said}");
                }
            };
            let (open, closed) = ("80/tcp open", "81/tcp closed");
            for kind in ["-sS", "-sT"] {
                scan(&[kind, "-p80,81", "10.9.0.2"], &[open, closed]);
                scan(&[kind, "-6", "-p80,81", "fd09::2"], &[open, closed]);
            }
            for kind in ["-sN", "-sX", "-sF"] {
                scan(&[kind, "-p80,81", "10.9.0.2"], &["80/tcp open|filtered", closed]);
            }
            scan(&["-sA", "-p80,81", "10.9.0.2"], &["80/tcp unfiltered", "81/tcp unfiltered"]);
            scan(&["-sS", "-f", "-p80,81", "10.9.0.2"], &[open, closed]);
            scan(&["-O", "--max-os-tries", "1", "-p80,81", "10.9.0.2"], &[open, closed]);
            scan(&["-sV", "--version-light", "-p80", "10.9.0.2"], &[open]);
            // Still there for others.
            let mut kernel = std::net::TcpStream::connect(at("10.9.0.2:80")).expect("a connection");
            kernel.write_all(b"?").expect("written");
            let mut answer = Vec::new();
            kernel.read_to_end(&mut answer).expect("an answer");
            assert!(answer.ends_with(b"hello"));
            over.store(true, Relaxed);
        });
        drop(listener);
        nothing_is_left(host, 0);
        let usage = host.with(|engine| engine.stack().usage());
        assert_eq!((usage.fragmented, usage.waiting_octets, usage.transmit_octets), (0, 0, 0), "{usage:?}");
    }
}
