//! The examples that speak TCP, in network namespaces of their own; programs of the kernel's at the other ends.
#![cfg(feature = "netstack")]

#[path = "tcp/namespace.rs"]
mod namespace;
#[path = "tcp/socks.rs"]
mod socks;
#[path = "tcp/tun2socks.rs"]
mod tun2socks;

use bypath_sys::netns;
use namespace::{LONGEST, example, isolated, octets};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;

#[test]
fn an_echo_server_of_our_own_serves_many() {
    isolated("an_echo_server_of_our_own_serves_many", || {
        let mut command = example("tcp_echo");
        command.args(["tap:bp0", "10.9.0.2/24", "7", "10.9.0.1/24"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example");
        let mut out = BufReader::new(child.stdout.take().expect("its output")).lines();
        assert_eq!(out.next().expect("a line").expect("a line"), "ready at 0.0.0.0:7");
        let content = &octets(200_000);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let stream = TcpStream::connect("10.9.0.2:7").expect("a connection");
                    stream.set_read_timeout(Some(LONGEST)).expect("a time-out");
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            (&stream).write_all(content).expect("written");
                            stream.shutdown(Shutdown::Write).expect("a connection");
                        });
                        let mut all = Vec::new();
                        (&stream).read_to_end(&mut all).expect("octets");
                        assert!(all == *content, "{} octets", all.len());
                    });
                });
            }
        });
        for _ in 0..20 {
            let line = out.next().expect("a line").expect("a line");
            assert!(line.starts_with("10.9.0.1:") && line.ends_with(": 200000 octets"), "{line}");
        }
        child.kill().expect("killed");
        child.wait().expect("an end");
    });
}

#[test]
fn one_octet_goes_there_and_back_without_another_thread() {
    isolated("one_octet_goes_there_and_back_without_another_thread", || {
        netns::veth("left", "right", None).expect("a veth pair");
        for name in ["left", "right"] {
            netns::set_up(name, true).expect("an interface that is up");
        }
        netns::add_address("right", "10.7.0.2".parse().expect("an address"), 24).expect("an address");
        let listener = TcpListener::bind("10.7.0.2:7").expect("a listener");
        let echoes = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_nodelay(true).expect("an option");
            std::io::copy(&mut stream.try_clone().expect("a clone"), &mut stream).expect("octets")
        });
        let mut program = example("in_process");
        let output =
            program.args(["packet:left", "10.7.0.9/24", "10.7.0.2:7", "500"]).output().expect("the example");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.starts_with("500 round trips: half of them within "),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(echoes.join().expect("the server"), 500);
        let wrong = example("in_process").output().expect("the example");
        let message = String::from_utf8_lossy(&wrong.stderr);
        assert!(
            message.starts_with("in_process: usage: in_process LINK ADDRESS/PREFIX SERVER:PORT COUNT"),
            "{message}"
        );
    });
}

#[test]
fn a_page_is_fetched_by_hand() {
    isolated("a_page_is_fetched_by_hand", || {
        // The address is the device's, which is not there yet.
        std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").expect("a setting of this namespace");
        let listener = TcpListener::bind("10.9.0.1:8000").expect("a listener");
        let page = "a line of the page\n".repeat(50_000);
        let body = page.clone();
        let serves = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut asked = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
            while !asked.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut asked).expect("a line") > 0, "{asked}");
            }
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{body}").expect("written");
            asked
        });
        let mut get = example("http_get");
        get.args(["tap:bp0", "10.9.0.2/24", "10.9.0.1:8000", "/page", "10.9.0.1/24"]);
        let got = get.output().expect("the example");
        let errors = String::from_utf8_lossy(&got.stderr);
        assert!(got.status.success(), "{errors}");
        assert!(got.stdout == page.as_bytes(), "{} octets", got.stdout.len());
        assert!(
            errors.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n950000 octets, "),
            "{errors}"
        );
        assert!(
            serves.join().expect("a question").starts_with("GET /page HTTP/1.1\r\nHost: 10.9.0.1:8000\r\n")
        );
        // Nobody listens any more.
        let mut get = example("http_get");
        get.args(["tap:bp0", "10.9.0.2/24", "10.9.0.1:8001", "/", "10.9.0.1/24"]);
        let got = get.output().expect("the example");
        let errors = String::from_utf8_lossy(&got.stderr);
        assert_eq!(errors, "http_get: connection refused: nobody listens at that port\n");
    });
}
