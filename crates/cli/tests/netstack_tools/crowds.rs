//! Programs that ask for much at once, or say no more than they must: curl, ab, wrk, nc.

use crate::devices;
use crate::http::{counted, curl, folder, has, output, server};
use crate::network::{Tool, octets};
use std::process::Command;

const SIZE: usize = 20_000;

isolated! {
    fn two_hundred_transfers_of_one_curl_are_served_at_once() {
        const NAME: &str = "crowds::two_hundred_transfers_of_one_curl_are_served_at_once";
        if !devices(NAME) || !has(NAME, "curl") {
            return;
        }
        let folder = folder(&[SIZE]);
        let server = server(&folder);
        for host in ["10.9.0.2", "[fd09::2]"] {
            let got = folder.join("got-#1");
            let url = format!("http://{host}/{SIZE}?[1-200]");
            // The brackets of an address are no range.
            let url = url.replace("[fd09::2]", "\\[fd09::2\\]");
            let many = ["--fail", "--parallel", "--parallel-immediate", "--parallel-max", "200", "--output"];
            output(curl(&[&many[..], &[got.to_str().expect("a path"), &url]].concat()));
            for n in 1..=200 {
                let name = folder.join(format!("got-{n}"));
                assert!(std::fs::read(&name).expect("a file") == octets(SIZE), "{host} {n}");
                std::fs::remove_file(name).expect("a file");
            }
        }
        let report = counted(server);
        assert_eq!((&report["files"], &report["broken"]), (&400.into(), &0.into()), "{report}");
    }
}

isolated! {
    fn ab_gets_every_answer() {
        const NAME: &str = "crowds::ab_gets_every_answer";
        if !devices(NAME) || !has(NAME, "ab") {
            return;
        }
        let folder = folder(&[SIZE]);
        let server = server(&folder);
        for (keep, count) in [("-k", "2000"), ("-q", "1000")] {
            let mut ab = Command::new("ab");
            ab.args([keep, "-q", "-n", count, "-c", "40", "-s", "60"]).arg(format!("http://10.9.0.2/{SIZE}"));
            let said = String::from_utf8(output(ab)).expect("text");
            let line = |name: &str| said.lines().find_map(|l| l.strip_prefix(name)).map(str::trim).unwrap_or_default();
            assert_eq!((line("Complete requests:"), line("Failed requests:")), (count, "0"), "{said}");
        }
        let report = counted(server);
        // It ends with its last answer, and may have asked for more by then.
        assert!(report["files"].as_u64() >= Some(3000), "{report}");
        assert_eq!(report["refused"], 0, "{report}");
    }
}

isolated! {
    fn wrk_meets_no_error() {
        const NAME: &str = "crowds::wrk_meets_no_error";
        if !devices(NAME) || !has(NAME, "wrk") {
            return;
        }
        let folder = folder(&[SIZE]);
        let server = server(&folder);
        for close in ["X-Bypath: stays", "Connection: close"] {
            let mut wrk = Command::new("wrk");
            wrk.args(["-t", "1", "-c", "50", "-d", "1s", "--timeout", "30s", "-H", close]).arg(format!("http://10.9.0.2/{SIZE}"));
            let said = String::from_utf8(output(wrk)).expect("text");
            assert!(said.contains("Requests/sec") && !said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
        }
        assert_eq!(counted(server)["refused"], 0);
    }
}

isolated! {
    fn nc_asks_ends_and_is_answered() {
        const NAME: &str = "crowds::nc_asks_ends_and_is_answered";
        if !devices(NAME) || !has(NAME, "nc") {
            return;
        }
        let folder = folder(&[SIZE]);
        let server = server(&folder);
        for host in ["10.9.0.2", "fd09::2"] {
            let mut nc = Command::new("nc");
            // Its end comes before the answer.
            nc.args(["-N", "-w", "60", host, "80"]);
            let ended = Tool::of(nc).give(format!("GET /{SIZE} HTTP/1.0\r\n\r\n").as_bytes()).end().expect(0);
            assert!(ended.stdout.starts_with(b"HTTP/1.1 200 OK\r\n") && ended.stdout.ends_with(&octets(SIZE)));
        }
        assert_eq!(counted(server)["files"], 2);
    }
}
