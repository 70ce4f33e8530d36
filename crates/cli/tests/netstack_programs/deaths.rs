//! Programs, and services, that are killed under load.

use crate::common::TempDir;
use crate::lab::{Lab, Side, have, maps, memory, netstack, on_stack, script, told};
use crate::network::{LONG, Tool, skip};
use rustix::process::Signal;
use serde_json::Value;
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
        let (crowd, letters, descriptors, mut chance) = (script("crowd.py"), script("letters.py"), lab.descriptors(), 7);
        let mut there = lab.start(Side::Kernel, &["python3", &crowd, "server", "10.0.0.2", "7000"]).hears("listening");
        let echo = lab.start(Side::Kernel, &["python3", &letters, "server", "10.0.0.2", "7002"]).hears("listening");
        let mut memory = Vec::new();
        let (mut ends, mut had_rings) = (0, false);
        for _wave in 0..2 {
            for _ in 0..rounds(3) {
                // One that serves, always at the same port, and one that asks.
                let server = lab.start(Side::Stack, &["python3", &crowd, "server", "10.0.0.1", "7001"]).hears("listening");
                let asks = lab.start(Side::Kernel, &["python3", &crowd, "load", "10.0.0.1", "7001", "20"]).hears("flows");
                let client = lab.start(Side::Stack, &["python3", &crowd, "load", "10.0.0.2", "7000", "20"]).hears("flows");
                // The same of datagrams; its port is another one's again in the next round.
                let post = lab.start(Side::Stack, &["python3", &letters, "server", "10.0.0.1", "7003"]).hears("listening");
                let writes = [(Side::Kernel, "10.0.0.1", "7003"), (Side::Stack, "10.0.0.2", "7002")].map(|(side, to, port)| {
                    lab.start(side, &["python3", &letters, "load", to, port]).hears("flows")
                });
                had_rings |= lab.maps() > 0 && lab.rings() > 0;
                goes_on(&mut chance);
                server.signal(Signal::KILL);
                post.signal(Signal::KILL);
                goes_on(&mut chance);
                client.signal(Signal::KILL);
                for program in writes {
                    program.signal(Signal::KILL);
                    program.end();
                }
                post.end();
                // Each connection's other end hears of it.
                asks.end().expect(0);
                ends += 20;
                there = there.hears(&format!("open {ends}\n"));
                server.end();
                client.end();
            }
            lab.is_empty();
            lab.has_descriptors(descriptors);
            lab.shares_nothing();
            memory.push(lab.memory());
        }
        assert!(had_rings, "no program had rings");
        let stats = lab.told(&["stats"]);
        let value = |name: &str| stats.iter().find(|row| row["name"] == name).expect("a count")["value"].as_u64();
        for name in ["connections", "half_open", "orphans", "connection_octets"] {
            assert_eq!(value(name), Some(0), "{name}");
        }
        assert!(memory[1] <= memory[0] + (8 << 10), "KiB after one wave, and after another: {memory:?}");
        there.signal(Signal::TERM);
        there.end().expect(0);
        echo.signal(Signal::KILL);
        echo.end();
        lab.end();
    }
}

isolated! {
    fn connections_that_nobody_answers_end_with_who_asked_for_them() {
        if !have("deaths::connections_that_nobody_answers_end_with_who_asked_for_them", &["python3"]) {
            return;
        }
        let lab = Lab::new("");
        let silence = script("silence.py");
        let there = lab.start(Side::Kernel, &["python3", &silence, "full", "10.0.0.2", "7000"]).hears("full");
        let folder = TempDir::new();
        let file = folder.path().join("heir");
        std::fs::write(&file, "").expect("a file");
        let asks = |what| {
            lab.start(Side::Stack, &["python3", &silence, what, "10.0.0.2", "7000", &file.display().to_string()])
        };
        let closes = asks("closes").hears("closed");
        lab.is_empty();
        closes.signal(Signal::KILL);
        closes.end();
        let waits = asks("waits").hears("waits");
        lab.has_sockets(4);
        waits.signal(Signal::KILL);
        lab.is_empty();
        waits.end();
        // What another process holds stays as long as that one does.
        let inherits = asks("inherits").hears("waits");
        lab.has_sockets(4);
        inherits.signal(Signal::KILL);
        lab.has_sockets(1);
        inherits.end();
        std::fs::remove_file(&file).expect("a file");
        lab.is_empty();
        there.signal(Signal::KILL);
        there.end();
        lab.end();
    }
}

/// What a program has that outlives its services: descriptors, and mappings of memory that it shares or shared with one; and KiB of memory in use.
#[derive(Clone, Copy, Debug)]
struct Holds {
    descriptors: usize,
    maps: usize,
    memory: u64,
}

impl Holds {
    fn of(program: &Tool) -> Holds {
        let pid = program.id();
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
        Holds { descriptors, maps: maps(pid), memory: memory(pid) }
    }
}

/// Waits until a connection of each of so many programs goes by rings both ways.
#[track_caller]
fn have_rings(folder: &std::path::Path, count: usize) {
    let end = Instant::now() + LONG;
    let by_ring = |socket: &&Value| ["from_program", "to_program"].iter().all(|way| socket[way] == "ring");
    loop {
        let sockets = told(folder, &["sockets"]);
        let rows = sockets.iter().filter(by_ring).filter_map(|socket| socket["local"].as_str());
        // The server's connections have its port.
        let mut whose: Vec<bool> = rows.map(|local| local.ends_with(":7001")).collect();
        whose.sort_unstable();
        whose.dedup();
        if whose.len() >= count {
            return;
        }
        assert!(Instant::now() < end, "{sockets:#?}");
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
        let mut held = None;
        for n in 1..=deaths {
            // Each has lost what it had, and has it again.
            (server, client, asks) = (hears(server, "up", n), hears(client, "up", n), hears(asks, "up", n));
            if n == 2 {
                have_rings(folder.path(), 2);
                held = Some([&server, &client].map(Holds::of));
            }
            goes_on(&mut chance);
            running.signal(Signal::KILL);
            running.end();
            (server, client) = (hears(server, "lost", n), hears(client, "lost", n));
            running = service();
        }
        (server, client) = (hears(server, "up", deaths + 1), hears(client, "up", deaths + 1));
        (server, asks) = (hears(server, "left", deaths), asks.hears("up"));
        // No connection had ended, so none is told to have.
        let names = |program: &Tool, what: &str| -> Vec<String> {
            program.heard().lines().filter_map(|line| line.strip_prefix(what).map(str::to_owned)).collect()
        };
        for lost in [names(&client, "lost "), names(&server, "left ")] {
            assert!(lost.len() >= deaths && lost.iter().all(|lost| lost == "ECONNRESET"), "{lost:?}");
        }
        // Nothing is left in them of the services that they have outlived.
        have_rings(folder.path(), 2);
        for (program, before) in [&server, &client].into_iter().zip(held.expect("two deaths")) {
            let end = Instant::now() + LONG;
            loop {
                let now = Holds::of(program);
                if now.descriptors <= before.descriptors && now.maps <= before.maps && now.memory <= before.memory + (8 << 10) {
                    break;
                }
                assert!(Instant::now() < end, "after the first service {before:?}, and after the last {now:?}");
                std::thread::yield_now();
            }
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
