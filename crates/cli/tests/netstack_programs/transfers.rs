//! Bulk and round trips by the programs that people measure with.

use crate::lab::{Lab, ROLES, Side, have};
use rustix::process::Signal;
use serde_json::Value;

isolated! {
    fn iperf3_and_sockperf_in_both_roles() {
        if !have("transfers::iperf3_and_sockperf_in_both_roles", &["iperf3", "sockperf"]) {
            return;
        }
        let lab = Lab::new("");
        for (server, client) in ROLES {
            iperf3(&lab, server, client);
            sockperf(&lab, server, client);
        }
        lab.is_empty();
        lab.end();
    }
}

fn iperf3(lab: &Lab, server: Side, client: Side) {
    let mut served = lab.start(server, &["iperf3", "--server", "--port", "5201", "--forceflush"]);
    for (before, way) in ["", "-R", "-P 8", "--bidir"].into_iter().enumerate() {
        // It listens anew each time, and for a moment it does not: who calls then is refused, or reset.
        while served.heard().matches("Server listening").count() <= before {
            served = served.hears_more();
        }
        let line = ["iperf3", "--client", server.address(), "--port", "5201", "--json", "-n", "60M"];
        let options: Vec<&str> = way.split_whitespace().collect();
        let report = lab.done(client, &[&line[..], &options].concat());
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        assert!(report.get("error").is_none(), "{way}: {report:#}");
        let octets = |sum: &str| report["end"][sum]["bytes"].as_u64().expect("a sum");
        let both = if way == "--bidir" { &["", "_bidir_reverse"][..] } else { &[""] };
        for way_back in both {
            let (sent, received) =
                (octets(&format!("sum_sent{way_back}")), octets(&format!("sum_received{way_back}")));
            // With --bidir the one that is ready first ends both. Who receives stops counting when it is declared over: what buffers hold is
            // not counted then, 4 MiB and more of each stream.
            let counted = if way.contains("-P") || way == "--bidir" { 1 } else { sent / 2 };
            assert!(sent >= 60 << 20 || way == "--bidir" && sent > 0, "{way}: {report:#}");
            assert!(received >= counted, "{way}: {sent} {received}");
        }
    }
    served.signal(Signal::INT);
    served.end();
}

fn sockperf(lab: &Lab, server: Side, client: Side) {
    let at = ["--tcp", "-i", server.address(), "-p", "5300"];
    let served = lab.start(server, &[&["sockperf", "server"][..], &at].concat());
    lab.listening(&server.at(5300));
    let run = |how: &str, more: &[&str]| {
        lab.done(client, &[&["sockperf", how][..], &at, &["-t", "1"], more].concat()).text()
    };
    let said = run("ping-pong", &["-m", "64", "--data-integrity"]);
    let good = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";
    assert!(said.contains(good), "{said}");
    assert!(!said.contains("ReceivedMessages=0"), "{said}");
    let said = run("throughput", &["-m", "1400"]);
    assert!(said.contains("BandWidth is"), "{said}");
    served.signal(Signal::INT);
    served.end();
}

isolated! {
    fn redis_under_its_own_benchmark_in_both_roles() {
        if !have("transfers::redis_under_its_own_benchmark_in_both_roles", &["redis-server", "redis-benchmark"]) {
            return;
        }
        let lab = Lab::new("");
        for (server, client) in ROLES {
            let line = ["redis-server", "--bind", server.address(), "--port", "6379", "--save", "", "--protected-mode", "no"];
            let served = lab.start(server, &line).hears("Ready to accept connections");
            for load in [&["-c", "50", "-n", "5000"][..], &["-c", "50", "-n", "20000", "-P", "16"], &["-c", "8", "-n", "1000", "-d", "20000"]] {
                let line = ["redis-benchmark", "-h", server.address(), "--csv", "-t", "set,get"];
                let said = lab.done(client, &[&line[..], load].concat()).text();
                for test in ["\"SET\",\"", "\"GET\",\""] {
                    let rate = said.lines().find_map(|l| l.strip_prefix(test)?.split('"').next()?.parse::<f64>().ok());
                    assert!(rate.is_some_and(|rate| rate > 0.0), "{said}");
                }
            }
            served.signal(Signal::TERM);
            served.end().expect(0);
        }
        lab.is_empty();
        lab.end();
    }
}
