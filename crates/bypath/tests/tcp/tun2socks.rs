//! Programs of the kernel, a TUN device, the forwarder, a SOCKS5 server, and servers of the kernel.

use crate::namespace::{LONGEST, example, isolated, octets, skip};
use crate::socks::{self, Counts};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

static COUNTS: Counts =
    Counts { now: std::sync::atomic::AtomicUsize::new(0), all: std::sync::atomic::AtomicUsize::new(0) };

/// Sends back what comes, as it comes.
const ECHO: u16 = 7;
/// Sends back what came, backwards, once the other side has finished.
const BACKWARDS: u16 = 8;
/// Finishes first, and then reads.
const FIRST: u16 = 9;
/// Goes without having read what came: that is a reset.
const RESETS: u16 = 10;
/// Nobody is there.
const NOBODY: u16 = 11;

fn every(port: u16, serve: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = TcpListener::bind(("0.0.0.0", port)).expect("a listener");
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.expect("a connection"), serve.clone());
            stream.set_read_timeout(Some(LONGEST)).expect("a time-out");
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn servers() {
    every(ECHO, |stream| {
        std::io::copy(&mut &stream, &mut &stream).expect("octets");
    });
    every(BACKWARDS, |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("octets");
        all.reverse();
        stream.write_all(&all).expect("written");
    });
    every(FIRST, |mut stream| {
        stream.write_all(b"that is all").expect("written");
        stream.shutdown(Shutdown::Write).expect("a connection");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("octets");
        assert_eq!(all, b"thank you");
    });
    every(RESETS, |stream| while stream.peek(&mut [0; 9]).is_ok_and(|n| n == 0) {});
}

fn call(to: &str, port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((to, port))?;
    stream.set_read_timeout(Some(LONGEST))?;
    stream.set_write_timeout(Some(LONGEST))?;
    Ok(stream)
}

/// Octets there and back at the same time.
fn exchange(stream: &TcpStream, content: &[u8], back: &[u8]) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&mut &*stream).write_all(content).expect("written");
            stream.shutdown(Shutdown::Write).expect("a connection");
        });
        let mut all = Vec::new();
        (&mut &*stream).read_to_end(&mut all).expect("octets");
        assert!(all == back, "{} octets of {}", all.len(), back.len());
    });
}

/// Descriptors and threads of a process.
fn holds(child: &Child) -> (usize, usize) {
    let count =
        |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", child.id())).expect("a process").count();
    (count("fd"), count("task"))
}

#[test]
fn every_connection_is_carried_on_through_a_proxy() {
    const NAME: &str = "tun2socks::every_connection_is_carried_on_through_a_proxy";
    isolated(NAME, || {
        if Command::new("ip").arg("-V").output().is_err() {
            return skip(NAME, "no ip (iproute2)");
        }
        servers();
        let proxy = TcpListener::bind("127.0.0.1:1080").expect("a listener");
        std::thread::spawn(move || socks::serve(&proxy, &COUNTS));
        let mut command = example("tun2socks");
        command.args(["bp0", "127.0.0.1:1080"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the example");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert_eq!(line, "what is routed to bp0 goes through 127.0.0.1:1080\n");
        let errors = child.stderr.take().expect("its errors");
        let errors = std::thread::spawn(move || std::io::read_to_string(errors).expect("UTF-8"));
        for network in ["198.51.100.0/24", "2001:db8:5::/48"] {
            let added = Command::new("ip").args(["route", "add", network, "dev", "bp0"]).status();
            assert!(added.expect("ip").success(), "{network}");
        }
        let before = holds(&child);
        carried();
        // Nothing is left of all that.
        let end = Instant::now() + LONGEST;
        while holds(&child) != before || COUNTS.now.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < end, "{before:?} before, {:?} now; {COUNTS:?}", holds(&child));
            std::thread::yield_now();
        }
        // It still serves.
        exchange(&call("198.51.100.7", ECHO).expect("a connection"), b"once more", b"once more");
        child.kill().expect("killed");
        child.wait().expect("an end");
        let errors = errors.join().expect("a thread");
        assert!(errors.contains("198.51.100.9:11: the proxy has not reached it: code 5"), "{errors}");
    });
}

fn carried() {
    // Both kinds of addresses, and the content is what it was.
    let content = octets(300_000);
    for to in ["198.51.100.7", "2001:db8:5::7", "198.51.100.255"] {
        exchange(&call(to, ECHO).expect("a connection"), &content, &content);
    }
    // Who is called is who it seems to be.
    let one = call("198.51.100.9", ECHO).expect("a connection");
    assert_eq!(one.peer_addr().expect("an address").to_string(), "198.51.100.9:7");
    exchange(&one, b"", b"");
    // Who finishes is still answered, whoever was first.
    let backwards: Vec<u8> = content.iter().rev().copied().collect();
    exchange(&call("198.51.100.8", BACKWARDS).expect("a connection"), &content, &backwards);
    let mut second = call("198.51.100.8", FIRST).expect("a connection");
    let mut all = String::new();
    second.read_to_string(&mut all).expect("octets");
    assert_eq!(all, "that is all");
    second.write_all(b"thank you").expect("written");
    drop(second);
    // Whom the proxy does not reach refuses: the call never was open.
    for _ in 0..20 {
        let refused = call("198.51.100.9", NOBODY).expect_err("nobody is there");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    // What ends at once ends at once.
    let mut reset = call("198.51.100.9", RESETS).expect("a connection");
    reset.write_all(&content[..10]).expect("written");
    let ended = reset.read(&mut [0; 9]);
    assert!(
        ended.as_ref().is_ok_and(|n| *n == 0) || ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset)
    );
    let dropped = call("198.51.100.9", ECHO).expect("a connection");
    (&dropped).write_all(&content).expect("written");
    drop(dropped);
    // Many at once.
    let before = COUNTS.all.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        for n in 0..150usize {
            let content = &content;
            scope.spawn(move || {
                let to = format!("198.51.100.{}", 1 + n % 200);
                let part = &content[..1 + n * 500];
                if n % 10 == 9 {
                    let refused = call(&to, NOBODY).expect_err("nobody is there");
                    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
                } else {
                    exchange(&call(&to, ECHO).expect("a connection"), part, part);
                }
            });
        }
    });
    assert_eq!(COUNTS.all.load(Ordering::SeqCst) - before, 150);
}
