//! Programs, and services, that are killed under load.

use crate::common::TempDir;
use crate::lab::{Lab, Side, have, netstack, on_stack, script, told};
use crate::network::{LONG, Tool, skip};
use rustix::process::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often; longer by BYPATH_SOAK=1.
fn rounds(usual: usize) -> usize {
    if std::env::var("BYPATH_SOAK").as_deref() == Ok("1") { usual * 20 } else { usual }
}

/// Lets a load go on for a time that chance has chosen, 200 ms at most.
fn goes_on(chance: &mut u64) {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let end = Instant::now() + Duration::from_millis((*chance >> 33) % 200);
    while let left @ 1.. = end.saturating_duration_since(Instant::now()).as_nanos() {
        std::thread::park_timeout(Duration::from_nanos(left as u64));
    }
}

isolated! {
    fn programs_that_are_killed_under_load_leave_nothing() {
        if !have("deaths::programs_that_are_killed_under_load_leave_nothing", &["python3"]) {
            return;
        }
        let lab = Lab::new("");
        let (crowd, descriptors, mut chance) = (script("crowd.py"), lab.descriptors(), 7);
        let mut there = lab.start(Side::Kernel, &["python3", &crowd, "server", "10.0.0.2", "7000"]).hears("listening");
        let mut memory = Vec::new();
        let mut ends = 0;
        for _wave in 0..2 {
            for _ in 0..rounds(3) {
                // One that serves, always at the same port, and one that asks.
                let server = lab.start(Side::Stack, &["python3", &crowd, "server", "10.0.0.1", "7001"]).hears("listening");
                let asks = lab.start(Side::Kernel, &["python3", &crowd, "load", "10.0.0.1", "7001", "20"]).hears("flows");
                let client = lab.start(Side::Stack, &["python3", &crowd, "load", "10.0.0.2", "7000", "20"]).hears("flows");
                goes_on(&mut chance);
                server.signal(Signal::KILL);
                goes_on(&mut chance);
                client.signal(Signal::KILL);
                // Each connection's other end hears of it.
                asks.end().expect(0);
                ends += 20;
                there = there.hears(&format!("open {ends}\n"));
                server.end();
                client.end();
            }
            lab.is_empty();
            lab.has_descriptors(descriptors);
            memory.push(lab.memory());
        }
        let stats = lab.told(&["stats"]);
        let value = |name: &str| stats.iter().find(|row| row["name"] == name).expect("a count")["value"].as_u64();
        for name in ["connections", "half_open", "orphans", "connection_octets"] {
            assert_eq!(value(name), Some(0), "{name}");
        }
        assert!(memory[1] <= memory[0] + (8 << 10), "KiB after one wave, and after another: {memory:?}");
        there.signal(Signal::TERM);
        there.end().expect(0);
        lab.end();
    }
}

isolated! {
    fn a_service_that_is_killed_under_load_is_told_of_and_replaced() {
        const NAME: &str = "deaths::a_service_that_is_killed_under_load_is_told_of_and_replaced";
        if !have(NAME, &["python3", "ip"]) {
            return;
        }
        // A device that stays when its service goes.
        let made = [
            "tuntap add mine mode tap", "address add 10.9.0.1/24 dev mine", "link set mine up", "link set lo up",
        ]
        .iter()
        .all(|line| Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success()));
        if !made {
            return skip(NAME, "no TAP devices");
        }
        let folder = TempDir::new();
        let service = || {
            Tool::of(netstack(folder.path(), &["--link=tap:mine", "--attach", "--addr=10.9.0.2/24"])).hears("next")
        };
        let kernel = |line: &[&str]| {
            let mut command = Command::new(line[0]);
            command.args(&line[1..]);
            Tool::of(command)
        };
        let (crowd, survivor, mut chance) = (script("crowd.py"), script("survivor.py"), 11);
        let mut running = service();
        let there = kernel(&["python3", &crowd, "server", "10.9.0.1", "7000"]).hears("listening");
        let mut server = on_stack(folder.path(), &["python3", &survivor, "server", "10.9.0.2", "7001"]);
        let mut client = on_stack(folder.path(), &["python3", &survivor, "client", "10.9.0.1", "7000"]);
        let mut server = Tool::of({ server.env("PYTHONUNBUFFERED", "1"); server });
        let mut client = Tool::of({ client.env("PYTHONUNBUFFERED", "1"); client });
        let mut asks = kernel(&["python3", &survivor, "client", "10.9.0.2", "7001"]);
        let deaths = rounds(4);
        for n in 1..=deaths {
            // Each has lost what it had, and has it again.
            (server, client, asks) = (hears(server, "up", n), hears(client, "up", n), hears(asks, "up", n));
            goes_on(&mut chance);
            running.signal(Signal::KILL);
            running.end();
            (server, client) = (hears(server, "lost", n), hears(client, "lost", n));
            running = service();
        }
        (server, client) = (hears(server, "up", deaths + 1), hears(client, "up", deaths + 1));
        asks = asks.hears("up");
        for lost in client.heard().lines().filter_map(|line| line.strip_prefix("lost ")) {
            assert!(["ECONNRESET", "EPIPE", "END"].contains(&lost), "{lost}");
        }
        assert_eq!(told(folder.path(), &["sockets"]).iter().filter(|s| s["state"] == "Listen").count(), 1);
        for program in [server, client, asks, there] {
            program.signal(Signal::KILL);
            let said = program.end().stderr;
            assert!(!said.contains("there is none"), "{said}");
        }
        let end = Instant::now() + LONG;
        while !told(folder.path(), &["sockets"]).is_empty() {
            assert!(Instant::now() < end, "sockets are left");
        }
        running.signal(Signal::TERM);
        running.end().expect(0);
    }
}

/// Waits until a program has said that so often.
#[track_caller]
fn hears(mut program: Tool, what: &str, times: usize) -> Tool {
    while program.heard().matches(what).count() < times {
        program = program.hears_more();
    }
    program
}
