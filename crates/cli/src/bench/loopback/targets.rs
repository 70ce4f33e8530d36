//! What is demanded of the figures. All are ratios within one run, or figures of the product alone.

use crate::bench::record::{Figure, Record};
use crate::bench::table::{Check, Find, human, ratio};

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let find = Find(records);
    let mut checks = Vec::new();
    latency(find, &mut checks);
    throughput(find, &mut checks);
    datagrams(find, &mut checks);
    costs(find, &mut checks);
    yardstick(find, &mut checks);
    checks
}

fn with(mode: &'static str, size: u64) -> impl Fn(&Figure) -> bool {
    move |f| f.mode == Some(mode) && f.size == Some(size)
}

fn latency(find: Find<'_>, checks: &mut Vec<Check>) {
    for (size, limit) in [(14, 1.6), (1400, 1.7)] {
        let one_way = |subject, mode| find.median("pingpong", subject, "one_way_ns", with(mode, size));
        let floor = one_way("floor", "spin");
        let kernel = one_way("kernel-tcp", "spin");
        for (mode, programs) in [("spin", "spinning"), ("block", "promptly answering")] {
            let ours = one_way("bypath", mode);
            let what = format!("one way, {size} B, {programs} programs");
            let target = format!("<= {limit} x floor");
            checks.push(Check::at_most(&what, &target, ratio(ours, floor), limit));
            checks.push(Check::at_least(
                &what,
                ">= 20 x better than spinning TCP",
                ratio(kernel, ours),
                20.0,
            ));
        }
    }
    for size in [14, 1400] {
        let one_way = |subject| find.median("pingpong", subject, "one_way_ns", with("spin", size));
        let what = format!("one way, {size} B, a channel between spinning programs");
        let measured = ratio(one_way("channel"), one_way("floor"));
        checks.push(Check::at_most(&what, "<= 1.15 x floor", measured, 1.15));
    }
    let asleep = |subject, metric| find.median("sleep", subject, metric, |_| true);
    let (ours, unix) = (asleep("bypath", "one_way_ns"), asleep("unix", "one_way_ns"));
    checks.push(Check::at_most("one way, both sides asleep", "<= 1.05 x AF_UNIX", ratio(ours, unix), 1.05));
    let (ours, kernel) = (asleep("bypath", "cpu_ns_per_op"), asleep("kernel-tcp", "cpu_ns_per_op"));
    checks.push(Check::at_most(
        "CPU of both sides at 1,000 messages/s",
        "<= 1.3 x kernel TCP",
        ratio(ours, kernel),
        1.3,
    ));
}

fn throughput(find: Find<'_>, checks: &mut Vec<Check>) {
    let near = find.median("pingpong", "floor", "one_way_ns", with("spin", 14)).is_some_and(|ns| ns < 70.0);
    let ours = find.median("stream", "bypath", "messages_per_s", |f| f.size == Some(64));
    let (limit, target) =
        if near { (30e6, ">= 30 M/s (bare ring below 70 ns)") } else { (15e6, ">= 15 M/s") };
    checks.push(
        Check::at_least("64-byte messages, one stream", target, ours, limit)
            .saying(ours.map(|v| human(v, "1/s"))),
    );

    let bulk = |subject| find.median("bulk", subject, "bytes_per_s", |f| f.size == Some(65536));
    let (ours, kernel) = (bulk("bypath"), bulk("kernel-tcp"));
    checks.push(
        Check::at_least("bulk, 64 KB writes", ">= 20 GB/s", ours, 20e9).saying(ours.map(|v| human(v, "B/s"))),
    );
    checks.push(Check::at_least("bulk, 64 KB writes", ">= 2.5 x kernel TCP", ratio(ours, kernel), 2.5));

    for (case, metric, what, limit) in [
        ("churn", "connections_per_s", "connect + request + close", 0.97),
        ("oversubscribed", "messages_per_s", "4 busy pairs on 2 cores", 1.0),
    ] {
        let of = |subject| find.median(case, subject, metric, |_| true);
        let target = format!(">= {limit} x kernel TCP");
        checks.push(Check::at_least(what, &target, ratio(of("bypath"), of("kernel-tcp")), limit));
    }
}

fn datagrams(find: Find<'_>, checks: &mut Vec<Check>) {
    for (size, limit) in [(14, 1.8), (1400, 1.9)] {
        let one_way = |subject, mode| find.median("udp-pingpong", subject, "one_way_ns", with(mode, size));
        for (mode, programs) in [("spin", "spinning"), ("block", "promptly answering")] {
            let what = format!("a datagram one way, {size} B, {programs} programs");
            let measured = ratio(one_way("bypath", mode), one_way("floor", "spin"));
            checks.push(Check::at_most(&what, &format!("<= {limit} x floor"), measured, limit));
        }
        let what = format!("a datagram one way, {size} B, a channel between spinning programs");
        let measured = ratio(one_way("channel", "spin"), one_way("floor", "spin"));
        checks.push(Check::at_most(&what, "<= 1.15 x floor", measured, 1.15));
    }
    let ours = find.median("udp-stream", "bypath", "messages_per_s", |f| f.size == Some(64));
    checks.push(
        Check::at_least("64-byte datagrams received, one sender", ">= 8 M/s", ours, 8e6)
            .saying(ours.map(|v| human(v, "1/s"))),
    );
}

fn costs(find: Find<'_>, checks: &mut Vec<Check>) {
    // The worst of the calls.
    let added = find
        .0
        .iter()
        .filter(|r| r.figure.case == "foreign-call" && r.figure.subject == "bypath")
        .filter_map(|ours| {
            let plain =
                find.median("foreign-call", "kernel-tcp", "ns_per_call", |f| f.link == ours.figure.link);
            Some(ours.median? - plain?)
        })
        .reduce(f64::max);
    checks.push(
        Check::at_most("a call on a descriptor that is not ours", "<= 10 ns added", added, 10.0)
            .saying(added.map(|ns| human(ns, "ns"))),
    );
    let exec = find.median("exec", "bypath", "exec_added_ns", |_| true);
    checks.push(
        Check::at_most("exec under `bypath run`", "<= 200 us added", exec, 200e3)
            .saying(exec.map(|ns| human(ns, "ns"))),
    );
    for (metric, what) in super::fork::METRICS.into_iter().zip(["fork, exit, wait", "fork, exec, wait"]) {
        for (connections, with) in [(0, "no connection"), (1, "a connection")] {
            let of = |subject| find.median("fork", subject, metric, |f| f.burst == Some(connections));
            let measured = ratio(of("bypath"), of("kernel-tcp"));
            checks.push(Check::at_most(&format!("{what}, {with}"), "<= 1.15 x plain", measured, 1.15));
        }
    }

    let idle = |metric| move |fits: &dyn Fn(&Figure) -> bool| find.median("idle", "bypath", metric, fits);
    let counts = find.0.iter().filter(|r| r.figure.case == "idle").filter_map(|r| r.figure.burst);
    let (few, many) = (counts.clone().min(), counts.max());
    let what =
        |text: &str| format!("{} idle connections: {text}", many.map_or("many".into(), |n| n.to_string()));
    let share = idle("idle_cpu_share")(&|_| true);
    // A twentieth of a percent is a timer's work, not that of waiting.
    checks.push(Check::at_most(&what("CPU"), "0 %", share, 0.0005).saying(share.map(|s| human(s, "cores"))));
    let epoll = |burst| idle("epoll_wait_ns")(&|f: &Figure| f.burst == burst);
    let (with_many, with_few) = (epoll(many), epoll(few));
    let check =
        Check::at_most(&what("epoll_wait"), "as with 10 (<= 1.25 x)", ratio(with_many, with_few), 1.25);
    checks.push(if few == many { check.saying(None) } else { check });
    let resident = idle("resident_bytes_per_connection")(&|_| true);
    checks.push(
        Check::at_most(&what("memory of each"), "<= 16 KiB", resident, 16384.0)
            .saying(resident.map(|b| human(b, "B"))),
    );
}

/// Our ring must be as fast as a plain one, or the floor would be too high.
fn yardstick(find: Find<'_>, checks: &mut Vec<Check>) {
    let floor = |case, metric, size, link: &'static str| {
        find.median(case, "floor", metric, move |f| f.size == Some(size) && f.link.as_deref() == Some(link))
    };
    let one_way = |link| floor("pingpong", "one_way_ns", 14, link);
    checks.push(Check::at_most(
        "the bare ring, 14 B one way",
        "<= 1.05 x plain C",
        ratio(one_way("shm"), one_way("shm-c")),
        1.05,
    ));
    let stream = |link| floor("stream", "messages_per_s", 64, link);
    checks.push(Check::at_least(
        "the bare ring, 64 B stream",
        ">= 0.95 x plain C",
        ratio(stream("shm"), stream("shm-c")),
        0.95,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::record::Sample;

    fn record(
        case: &str,
        subject: &'static str,
        metric: &'static str,
        (mode, size): (Option<&'static str>, u64),
        value: f64,
    ) -> Record {
        let figure = Figure {
            bench: "loopback",
            case: case.into(),
            subject,
            link: None,
            mode,
            size: Some(size),
            burst: None,
            profile: None,
            cc: None,
            metric,
        };
        Record::new(figure, &[Sample::Value(value)], None)
    }

    /// Whether the target of a case is met by this many times the floor's time.
    fn met(case: &str, subject: &'static str, mode: &'static str, size: u64, times: f64) -> bool {
        let one_way = |subject, mode, ns| record(case, subject, "one_way_ns", (Some(mode), size), ns);
        let checks = check(&[one_way("floor", "spin", 100.0), one_way(subject, mode, 100.0 * times)]);
        let measured: Vec<&Check> = checks.iter().filter(|check| check.measured.is_some()).collect();
        let [one] = measured[..] else { panic!("{} targets have a figure", measured.len()) };
        assert!(one.target.ends_with("x floor"), "{}", one.target);
        one.met
    }

    #[test]
    fn latencies_meet_their_targets_up_to_so_many_times_the_floor() {
        for (case, size, limit) in [
            ("pingpong", 14, 1.6),
            ("pingpong", 1400, 1.7),
            ("udp-pingpong", 14, 1.8),
            ("udp-pingpong", 1400, 1.9),
        ] {
            for mode in ["spin", "block"] {
                assert!(met(case, "bypath", mode, size, limit - 0.01), "{case} {size} {mode}");
                assert!(!met(case, "bypath", mode, size, limit + 0.01), "{case} {size} {mode}");
            }
            assert!(met(case, "channel", "spin", size, 1.14) && !met(case, "channel", "spin", size, 1.16));
        }
    }

    #[test]
    fn datagrams_count_as_they_were_received() {
        let met = |rate| {
            let ours = record("udp-stream", "bypath", "messages_per_s", (None, 64), rate);
            let checks = check(&[ours]);
            let of_datagrams = checks.iter().filter(|check| check.target == ">= 8 M/s");
            of_datagrams.map(|check| (check.measured.is_some(), check.met)).collect::<Vec<_>>()
        };
        assert_eq!((met(7.9e6), met(8.1e6)), (vec![(true, false)], vec![(true, true)]));
    }
}
