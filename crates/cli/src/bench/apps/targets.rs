//! What is demanded of real programs.

use crate::bench::record::Record;
use crate::bench::table::{Check, Find, human, ratio};

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let find = Find(records);
    let mut checks = Vec::new();
    for (clients, limit) in [("-c1", 5.0), ("-c50", 2.0), ("-c50 -P16", 1.5)] {
        for test in ["SET", "GET"] {
            let case = format!("redis-benchmark {test} {clients}");
            let of = |subject| find.median(&case, subject, "requests_per_s", |_| true);
            let (ours, kernel, unix) = (of("bypath"), of("kernel-tcp"), of("unix"));
            checks.push(Check::at_least(
                &case,
                &format!(">= {limit} x kernel TCP"),
                ratio(ours, kernel),
                limit,
            ));
            checks.push(Check::at_least(&case, "above AF_UNIX", ratio(ours, unix), 1.0));
        }
    }
    for (case, limit) in [
        ("memcached memaslap -c1", 4.0),
        ("nginx wrk -c1", 2.5),
        ("nginx wrk -c32", 1.3),
        ("postgres pgbench -S -c1", 1.5),
    ] {
        let of = |subject| find.median(case, subject, "requests_per_s", |_| true);
        let measured = ratio(of("bypath"), of("kernel-tcp"));
        checks.push(Check::at_least(case, &format!(">= {limit} x kernel TCP"), measured, limit));
    }
    for case in ["scp", "rsync from its daemon", "rsync over ssh"] {
        let of = |subject| find.median(case, subject, "bytes_per_s", |_| true);
        let measured = ratio(of("bypath"), of("kernel-tcp"));
        checks.push(Check::at_least(case, "not slower (>= 0.97 x kernel TCP)", measured, 0.97));
    }
    let iperf3 = find.median("iperf3", "bypath", "bits_per_s", |_| true);
    checks.push(
        Check::at_least("iperf3, one stream", ">= 120 Gb/s", iperf3, 120e9)
            .saying(iperf3.map(|v| human(v, "bit/s"))),
    );
    checks
}
