//! `--metrics`, as Prometheus asks for them, and callers who ask otherwise.

use crate::common::TempDir;
use crate::network::LONG;
use crate::{TAP, devices, end, is_there, service};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Where the counters are, by the report.
fn place(report: &str) -> String {
    let url = report.lines().find_map(|line| line.strip_prefix("metrics     http://")).expect("a place");
    url.strip_suffix("/metrics").expect("a path").to_owned()
}

fn answer(place: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(place).expect("a listener");
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    stream.write_all(request.as_bytes()).expect("room");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split([' ', '{']).next() == Some(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

isolated! {
    fn counters_are_there_for_prometheus() {
        if !devices("counters::counters_are_there_for_prometheus") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--metrics=0"]].concat());
        let at = place(&running.heard());
        let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let before = answer(&at, get);
        assert!(before.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{before}");
        assert!(before.ends_with("# EOF\n"), "{before}");
        let received = value(&before, "bypath_netstack_link_received_total").expect("a counter");
        assert!(is_there("10.9.0.2"));
        let after = answer(&at, get);
        assert!(value(&after, "bypath_netstack_link_received_total").expect("a counter") > received, "{after}");

        assert!(answer(&at, "HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(answer(&at, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(answer(&at, "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 400"));
        assert!(answer(&at, "\0\0\r\n\r\n").starts_with("HTTP/1.1 400"));
        // Who says nothing does not keep others waiting for ever.
        let _quiet = TcpStream::connect(&at).expect("a listener");
        assert!(answer(&at, get).starts_with("HTTP/1.1 200"));
        end(running);
    }
}
