//! Rules and limits of the configuration file, in running programs: which connections stay on the kernel, which do not,
//! and what is said about it.

use crate::stage::{Counted, Side, Stage, installed};
use crate::support::{Outcome, Totals, bypath, missing, preload_library, ring_required, skip};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn stage(test: &str) -> Option<Stage> {
    // Plain LD_PRELOAD reads no file: `exported_variables_serve_plain_preload` is about that.
    let preload = std::env::var_os("BYPATH_TEST_LAUNCH").is_some_and(|v| v == "preload");
    let reason = missing(&["python3"])
        .or_else(|| preload.then(|| "BYPATH_TEST_LAUNCH=preload reads no configuration file".to_owned()));
    match reason {
        Some(reason) => {
            skip(&format!("users::rules::{test}"), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

/// A configuration file on the stage; its path.
fn file(stage: &Stage, name: &str, text: &str) -> String {
    let path = stage.scene.path(name);
    fs::write(&path, text).expect("the file");
    path.to_str().expect("a plain path").to_owned()
}

/// A ping with a server and a client of their own configuration (an empty text: none).
fn ping_with(stage: &Stage, server: &str, client: &str) -> Counted {
    let config = |name, text: &str| if text.is_empty() { "none".to_owned() } else { file(stage, name, text) };
    let (server, client) = (config("server.toml", server), config("client.toml", client));
    stage.ping(
        &Side { options: &[("config", &server)], ..Side::default() },
        &Side { options: &[("config", &client)], ..Side::default() },
    )
}

/// Messages over one connection to each of the ports.
fn pings(stage: &Stage, side: &Side, ports: &[u16]) -> Outcome {
    let client = stage.program(side, "client.stats", &installed("python3")).script("pings.py");
    client.words(ports.iter().map(u16::to_string)).finish()
}

/// Another echo server, and its port.
fn second_server(stage: &Stage) -> (crate::support::Process, u16) {
    let server = stage.program(&Side::default(), "second.stats", &installed("python3"));
    let mut server = server.arg(stage.scene.path("echo_server.py")).arg("selectors").start();
    let port = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    (server, port)
}

#[test]
fn a_rule_is_about_the_connections_it_names_only() {
    let Some(stage) = stage("a_rule_is_about_the_connections_it_names_only") else { return };
    let (ruled, port) = stage.echo_server(&Side::default());
    let (free, other) = second_server(&stage);
    let text = format!("[[rules]]\nremote = \"127.0.0.0/8\"\nremote-port = {port}\naction = \"kernel\"\n");
    let config = file(&stage, "client.toml", &text);
    pings(&stage, &Side { options: &[("config", &config)], ..Side::default() }, &[port, other]);
    ruled.stop(Signal::TERM);
    free.stop(Signal::TERM);
    if !ring_required() {
        return;
    }
    let counted = stage.counted();
    let client = &counted.client;
    assert_eq!((client.connections, client.upgraded, client.refused_for("rule")), (2, 1, 1), "{client:#?}");
    assert_eq!((counted.server.upgraded, counted.server.ring_rx), (0, 0), "{counted:#?}");
    let free = Totals::read(&stage.scene.path("second.stats"));
    free.assert_ring(1000 * 1024);
}

#[test]
fn either_side_suffices() {
    let Some(stage) = stage("either_side_suffices") else { return };
    let rule = "[[rules]]\nlocal = \"127.0.0.1\"\naction = \"kernel\"\n";
    ping_with(&stage, rule, "").assert_kernel(Some("rule"), Some("peer-plain"));
    let Some(stage) = self::stage("either_side_suffices") else { return };
    ping_with(&stage, "", rule).assert_kernel(Some("peer-plain"), Some("rule"));
}

#[test]
fn programs_are_told_apart() {
    let Some(stage) = stage("programs_are_told_apart") else { return };
    let path = installed("python3");
    for (pattern, kernel) in [
        ("python3*", true),
        ("nginx", false),
        // The path by which it is started, and the file that it is.
        (path.to_str().expect("a plain path"), true),
        (path.canonicalize().expect("a file").to_str().expect("a plain path"), true),
        ("/opt/**", false),
    ] {
        let stage = Stage::new();
        let rule = format!("[[rules]]\nprogram = \"{pattern}\"\naction = \"kernel\"\n");
        let counted = ping_with(&stage, &rule, "");
        if kernel { counted.assert_kernel(Some("rule"), None) } else { counted.assert_ring() }
    }
    drop(stage);
}

#[test]
fn users_are_told_apart() {
    let Some(stage) = stage("users_are_told_apart") else { return };
    let own = rustix::process::geteuid().as_raw();
    let rule = |uid: u32| format!("[[rules]]\nuser = [4294967294, {uid}]\naction = \"kernel\"\n");
    ping_with(&stage, &rule(own), "").assert_kernel(Some("rule"), None);
    let Some(stage) = self::stage("users_are_told_apart") else { return };
    ping_with(&stage, &rule(own + 1), "").assert_ring();
}

/// A daemon that starts as root and becomes somebody else: the rule is about who it is when the connection could move.
#[test]
fn the_user_is_the_one_at_the_time_of_the_upgrade() {
    let Some(stage) = stage("the_user_is_the_one_at_the_time_of_the_upgrade") else { return };
    if !rustix::process::geteuid().is_root() {
        let reason = "needs root to become another user";
        return skip("users::rules::the_user_is_the_one_at_the_time_of_the_upgrade", reason);
    }
    let script = "import os, sys
from ping import connect, ping
with connect(int(sys.argv[1])) as connection:
    os.setuid(65001)
    ping(connection, 1000)
";
    fs::write(stage.scene.path("drop.py"), script).expect("the script");
    let config = file(&stage, "client.toml", "[[rules]]\nuser = 65001\naction = \"kernel\"\n");
    let (server, port) = stage.echo_server(&Side::default());
    let side = Side { options: &[("config", &config)], ..Side::default() };
    let client = stage.program(&side, "client.stats", &installed("python3"));
    client.arg(stage.scene.path("drop.py")).arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    stage.counted().assert_kernel(None, Some("rule"));
}

#[test]
fn the_first_rule_that_matches_wins() {
    let Some(stage) = stage("the_first_rule_that_matches_wins") else { return };
    let (allow, deny) =
        ("[[rules]]\nprogram = \"python3*\"\naction = \"ring\"\n", "[[rules]]\naction = \"kernel\"\n");
    ping_with(&stage, &format!("{allow}{deny}"), "").assert_ring();
    let Some(stage) = self::stage("the_first_rule_that_matches_wins") else { return };
    ping_with(&stage, &format!("{deny}{allow}"), "").assert_kernel(Some("rule"), None);
}

/// The file says off, the environment lazy, the flag off again: each wins over those before.
#[test]
fn flag_wins_over_environment_over_file_over_default() {
    let Some(stage) = stage("flag_wins_over_environment_over_file_over_default") else { return };
    let off = file(&stage, "off.toml", "[settings]\nupgrade = \"off\"\n");
    let variable = |value: &str| -> Vec<OsString> {
        vec![installed("env").into(), format!("BYPATH_UPGRADE={value}").into()]
    };
    for (options, before, kernel) in [
        (vec![("config", "none")], vec![], false),
        (vec![("config", off.as_str())], vec![], true),
        (vec![("config", &off)], variable("lazy"), false),
        (vec![("config", &off), ("upgrade", "off")], variable("lazy"), true),
    ] {
        let stage = Stage::new();
        let counted = stage.ping(&Side::default(), &Side { options: &options, before, ..Side::default() });
        if kernel { counted.assert_kernel(None, Some("disabled")) } else { counted.assert_ring() }
    }
}

#[test]
fn the_limit_of_connections_holds_and_the_rest_is_told() {
    let Some(stage) = stage("the_limit_of_connections_holds_and_the_rest_is_told") else { return };
    for limited_client in [true, false] {
        let stage = Stage::new();
        let limited = Side { options: &[("connection-limit", "3")], ..Side::default() };
        let free = Side::default();
        let (server, client) = if limited_client { (&free, &limited) } else { (&limited, &free) };
        let (server, port) = stage.echo_server(server);
        let client = stage.program(client, "client.stats", &installed("python3"));
        client.script("crowd.py").arg(port.to_string()).args("8 60 1024").finish();
        server.stop(Signal::TERM);
        if !ring_required() {
            return;
        }
        let counted = stage.counted();
        let (limited, other) = if limited_client {
            (&counted.client, &counted.server)
        } else {
            (&counted.server, &counted.client)
        };
        assert_eq!((limited.connections, limited.upgraded, other.upgraded), (8, 3, 3), "{counted:#?}");
        assert_eq!(limited.refused_for("connection-limit"), 5, "{counted:#?}");
        assert!(limited.ring_tx > 0 && other.ring_tx > 0, "{counted:#?}");
    }
    drop(stage);
}

#[test]
fn connections_of_a_process_with_itself_share_the_limit() {
    let Some(stage) = stage("connections_of_a_process_with_itself_share_the_limit") else { return };
    let limited = Side { options: &[("connection-limit", "4")], ..Side::default() };
    let program = stage.program(&limited, "client.stats", &installed("python3"));
    program.script("processes.py").args("five_within").finish();
    if ring_required() {
        let counted = stage.counted().client;
        // Ends that begin together may both be first ends: two connections to four.
        assert!((4..=8).contains(&counted.upgraded), "{counted:#?}");
        assert_eq!(counted.refused_for("connection-limit"), 10 - counted.upgraded, "{counted:#?}");
    }
}

#[test]
fn closed_connections_make_room_under_the_limit() {
    let Some(stage) = stage("closed_connections_make_room_under_the_limit") else { return };
    let (server, port) = stage.echo_server(&Side::default());
    let script = "import sys
from ping import connect, ping
for _ in range(3):
    with connect(int(sys.argv[1])) as connection:
        ping(connection, 500)
";
    let path = stage.scene.path("one_by_one.py");
    fs::write(&path, script).expect("the script");
    let side = Side { options: &[("connection-limit", "1")], ..Side::default() };
    let client = stage.program(&side, "client.stats", &installed("python3"));
    client.arg(path).arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    if ring_required() {
        let client = stage.counted().client;
        assert_eq!((client.connections, client.upgraded), (3, 3), "{client:#?}");
    }
}

/// Four connections and one place: whichever is left in the end must have got it. With the lower threshold the limited
/// side is called, and declines; without it calls.
#[test]
fn a_connection_that_found_no_place_gets_one_later() {
    let Some(stage) = stage("a_connection_that_found_no_place_gets_one_later") else { return };
    let script = "import sys
from ping import connect, ping
connections = [connect(int(sys.argv[1])) for _ in range(4)]
for rounds in (30, 60, 120):
    for _ in range(rounds):
        for connection in connections:
            ping(connection, 1)
    connections.pop(0).close()
ping(connections[0], 3000)
";
    for (limited_client, calls) in [(true, "16"), (false, "16"), (true, "4"), (false, "4")] {
        let stage = Stage::new();
        let path = stage.scene.path("one_left.py");
        fs::write(&path, script).expect("the script");
        let options = &[("connection-limit", "1"), ("upgrade-calls", calls)];
        let (one, free) = (Side { options, ..Side::default() }, Side::default());
        let (server, client) = if limited_client { (&free, &one) } else { (&one, &free) };
        let (server, port) = stage.echo_server(server);
        let client = stage.program(client, "client.stats", &installed("python3"));
        client.arg(path).arg(port.to_string()).finish();
        server.stop(Signal::TERM);
        if ring_required() {
            // The three that were closed moved less than 500 KiB in all.
            let counted = stage.counted();
            assert!(counted.client.ring_tx >= 2000 << 10, "{counted:#?}");
        }
    }
    drop(stage);
}

#[test]
fn the_threshold_of_bytes_is_where_the_upgrade_comes() {
    let Some(stage) = stage("the_threshold_of_bytes_is_where_the_upgrade_comes") else { return };
    let options = &[("upgrade-calls", "1000000"), ("upgrade-bytes", "1M")];
    // Both ends: else the one that is ready early gives up for a while on a busy machine.
    let side = || Side { options, ..Side::default() };
    let counted = stage.ping(&side(), &side());
    assert_moved_before(&counted, 1 << 20);
}

#[test]
fn the_threshold_of_calls_is_where_the_upgrade_comes() {
    let Some(stage) = stage("the_threshold_of_calls_is_where_the_upgrade_comes") else { return };
    // Each call moves a message of 1 KiB, or a part of one.
    let options = &[("upgrade-calls", "800"), ("upgrade-bytes", "1G")];
    // Both ends: else the one that is ready early gives up for a while on a busy machine.
    let side = || Side { options, ..Side::default() };
    let counted = stage.ping(&side(), &side());
    assert_moved_before(&counted, 700 << 10);
}

/// The connection came up after about so many bytes.
#[track_caller]
fn assert_moved_before(counted: &Counted, bytes: u64) {
    if !ring_required() {
        return;
    }
    let client = &counted.client;
    let before = client.kernel_tx + client.kernel_rx;
    assert_eq!(client.upgraded, 1, "{client:#?}");
    // 6,000 KiB in all: the rest is on the ring.
    assert!(before >= bytes && before < 3 * bytes, "{before} bytes on the kernel: {client:#?}");
    assert!(client.ring_tx > 0 && client.ring_rx > 0, "{client:#?}");
}

/// Twenty rounds do not pay for an upgrade. The first few connections show it; one that goes on for long is moved still.
#[test]
fn where_connections_end_before_they_paid_later_ones_are_not_moved() {
    let Some(stage) = stage("where_connections_end_before_they_paid_later_ones_are_not_moved") else {
        return;
    };
    let path = stage.scene.path("short_ones.py");
    let script = "import sys
from ping import connect, ping
for rounds in [20] * 100 + [3000]:
    connection = connect(int(sys.argv[1]))
    ping(connection, rounds)
    connection.close()
";
    fs::write(&path, script).expect("the script");
    let (server, port) = stage.echo_server(&Side::default());
    let client = stage.program(&Side::default(), "client.stats", &installed("python3"));
    client.arg(path).arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    if ring_required() {
        let client = stage.counted().client;
        assert_eq!(client.connections, 101, "{client:#?}");
        assert!(client.upgraded < 20, "{client:#?}");
        assert!(client.ring_tx >= 2000 << 10, "{client:#?}");
    }
}

#[test]
fn below_the_thresholds_nothing_moves() {
    let Some(stage) = stage("below_the_thresholds_nothing_moves") else { return };
    let options = &[("upgrade-calls", "1000000"), ("upgrade-bytes", "1G")];
    let counted = stage.ping(&Side::default(), &Side { options, ..Side::default() });
    counted.assert_kernel(None, Some("below-threshold"));
}

#[test]
fn a_profile_of_the_file_is_applied() {
    let Some(stage) = stage("a_profile_of_the_file_is_applied") else { return };
    let text = "[profiles.none-at-all]\nlike = \"latency\"\nconnection-limit = 0\n";
    let config = file(&stage, "profiles.toml", text);
    let options = &[("config", config.as_str()), ("profile", "none-at-all")];
    let counted = stage.ping(&Side::default(), &Side { options, ..Side::default() });
    counted.assert_kernel(None, Some("connection-limit"));
}

#[test]
fn why_names_the_rule() {
    let Some(stage) = stage("why_names_the_rule") else { return };
    let (server, port) = stage.echo_server(&Side::default());
    let text = format!(
        "[[rules]]\nprogram = \"nginx\"\naction = \"kernel\"\n\n\
         [[rules]]\nname = \"to be seen by tcpdump\"\nremote-port = {port}\naction = \"kernel\"\n"
    );
    let config = file(&stage, "client.toml", &text);
    let side = Side { options: &[("config", &config)], ..Side::default() };
    let client = stage.program(&side, "client.stats", &installed("python3")).script("pings.py");
    let mut client = client.arg("hold").arg(port.to_string()).start();
    client.ready(|line| line.starts_with("payload ").then_some(()));
    let output = Command::new(bypath()).args(["why", &client.pid().to_string()]).output().expect("why");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    client.stop(Signal::TERM);
    server.stop(Signal::TERM);
    if !ring_required() {
        return;
    }
    let rule = format!("rule 2 'to be seen by tcpdump' ({config}:5): remote-port={port} -> kernel");
    assert!(told.contains("(rule)") && told.contains(&rule), "{told}");
}

/// Programs that `sh` starts with the exported variables and plain LD_PRELOAD obey the file as well.
#[test]
fn exported_variables_serve_plain_preload() {
    if let Some(reason) = missing(&["python3"]) {
        return skip("users::rules::exported_variables_serve_plain_preload", &reason);
    }
    let stage = Stage::new();
    let (server, port) = stage.echo_server(&Side::default());
    let text = format!("[[rules]]\nremote-port = {port}\naction = \"kernel\"\n");
    let config = file(&stage, "it's a file.toml", &text);
    let script = "eval \"$(\"$1\" config export --config \"$2\" --stats \"$3\")\" && \
                  LD_PRELOAD=\"$4\" exec \"$5\" \"$6\" \"$7\"";
    let words: [PathBuf; 8] = [
        "sh".into(),
        bypath().to_owned(),
        config.into(),
        stage.scene.path("client.stats"),
        preload_library().to_owned(),
        installed("python3"),
        stage.scene.path("ping.py"),
        port.to_string().into(),
    ];
    fs::write(stage.scene.path("client.stats"), "").expect("an empty file");
    stage.scene.plain("sh").arg("-c").arg(script).words(words).finish();
    server.stop(Signal::TERM);
    stage.counted().assert_kernel(None, Some("rule"));
}

#[test]
fn unreadable_rules_are_one_warning_and_the_kernel() {
    if let Some(reason) = missing(&["python3"]) {
        return skip("users::rules::unreadable_rules_are_one_warning_and_the_kernel", &reason);
    }
    let stage = Stage::new();
    let (server, port) = stage.echo_server(&Side::default());
    fs::write(stage.scene.path("client.stats"), "").expect("an empty file");
    let client = stage.scene.plain("env").words([
        format!("LD_PRELOAD={}", preload_library().display()),
        format!("BYPATH_STATS={}", stage.scene.path("client.stats").display()),
        "BYPATH_RULES=1;rule 1 elsewhere".to_owned(),
        installed("python3").display().to_string(),
        stage.scene.path("ping.py").display().to_string(),
        port.to_string(),
    ]);
    let report = client.finish();
    server.stop(Signal::TERM);
    assert_eq!(report.number("payload "), 3000 * 2 * 1024);
    let lines: Vec<&str> = report.stderr.lines().collect();
    assert!(
        matches!(lines[..], [line] if line.contains("BYPATH_RULES") && line.contains("rule 1 elsewhere")),
        "{lines:?}"
    );
    stage.counted().assert_kernel(None, Some("disabled"));
}

/// A client that sets SO_TIMESTAMP before or after it connects, exchanges a few bytes either way and then waits.
const STAMPED: &str = "import signal, socket, sys
def client(port, early):
    s = socket.socket()
    if early: s.setsockopt(socket.SOL_SOCKET, 29, 1)
    s.connect((\"127.0.0.1\", port))
    if not early:
        s.sendall(b\"x\")
        assert s.recv(1) == b\"x\"
        s.setsockopt(socket.SOL_SOCKET, 29, 1)
    for _ in range(30):
        s.sendall(b\"x\")
        assert s.recv(1) == b\"x\"
    return s
both = [client(int(sys.argv[1]), early) for early in (True, False)]
print(*(s.getsockname()[1] for s in both), flush=True)
while True: signal.pause()
";

#[test]
fn why_names_the_option_and_the_connection_that_never_came_up() {
    let Some(stage) = stage("why_names_the_option_and_the_connection_that_never_came_up") else { return };
    let (server, port) = stage.echo_server(&Side::default());
    let client = stage.program(&Side::default(), "client.stats", &installed("python3"));
    let mut client = client.arg("-c").arg(STAMPED).arg(port.to_string()).start();
    let ports = client.ready(|line| {
        let (early, late) = line.split_once(' ')?;
        Some([early.to_owned(), late.trim().to_owned()])
    });
    let output = Command::new(bypath()).args(["why", &client.pid().to_string()]).output().expect("why");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    client.stop(Signal::TERM);
    server.stop(Signal::TERM);
    if !ring_required() {
        return;
    }
    for own in ports {
        assert!(told.contains(&format!(": 127.0.0.1:{own} to 127.0.0.1:{port}\n")), "{own}: {told}");
    }
    assert_eq!(told.matches("(socket-option)").count(), 2, "{told}");
    assert!(!told.contains("recalled"), "{told}");
}
