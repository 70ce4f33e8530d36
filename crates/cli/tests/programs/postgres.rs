//! PostgreSQL: a process per connection, forked after the accept. pgbench, COPY both ways, and a query cancelled by
//! a second connection that the client opens in a signal handler.

use crate::support::{Process, Program, Scene, assert_same, ways};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;

ways! {
    pgbench_select needs ["initdb", "postgres", "pgbench", "setpriv"] => pgbench;
    copy_in_and_out needs ["initdb", "postgres", "psql", "md5sum", "setpriv"] => copy;
    cancelled_query needs ["initdb", "postgres", "psql", "setpriv"] => cancel;
}

/// A fresh cluster and its server, which trusts everybody on the loopback.
fn serve(scene: &Scene) -> (Process, u16) {
    let (data, port) = (scene.path("data"), scene.port());
    let initdb = scene.plain("initdb").args("-A trust -U test -E UTF8 --no-sync --locale=C -D").arg(&data);
    initdb.env("TZ", "UTC").finish();
    let server = scene.server("postgres").args("-c listen_addresses=127.0.0.1 -c fsync=off -c");
    let server = server.arg("unix_socket_directories=").arg("-D").arg(&data).arg("-p").arg(port.to_string());
    let mut server = server.start();
    server.ready(|line| line.contains("is ready to accept connections").then_some(()));
    (server, port)
}

/// A client program with the connection's parameters.
fn to<'a>(program: Program<'a>, port: u16) -> Program<'a> {
    program
        .env("PGHOST", "127.0.0.1")
        .env("PGPORT", port.to_string())
        .env("PGUSER", "test")
        .env("PGDATABASE", "postgres")
        .env("HOME", "/nonexistent")
}

fn psql(scene: &Scene, port: u16) -> Program<'_> {
    to(scene.client("psql"), port).args("-X -q -A -t -v ON_ERROR_STOP=1")
}

fn pgbench(scene: &Scene) {
    let scene = &scene.unprivileged();
    let (server, port) = serve(scene);
    // The rows are made by the server.
    to(scene.client("pgbench"), port).args("-i -q -I dtGp").finish();
    let report = to(scene.client("pgbench"), port).args("-S -n -c 4 -j 2 -t 4000").finish().stdout;
    server.stop(Signal::INT).ok();
    let line = |start: &str| {
        let found = report.lines().find_map(|l| l.strip_prefix(start));
        found.unwrap_or_else(|| panic!("no line {start:?}: {report}")).trim().to_owned()
    };
    assert_eq!(line("number of transactions actually processed:"), "16000/16000");
    assert!(line("number of failed transactions:").starts_with("0 "), "{report}");
    // A query is at least 60 bytes, its answer more.
    scene.prove(16_000 * 2 * 60);
}

/// Rows of the COPY test. What the kernel's buffers take before the other end gets a processor (7 MB each way) is to be
/// a small part of it.
const ROWS: usize = 700_000;

fn copy(scene: &Scene) {
    let scene = &scene.unprivileged();
    let (server, port) = serve(scene);
    let mut rows = String::new();
    for n in 0..ROWS as u64 {
        let word = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let _ = writeln!(rows, "{n}\t{word:016x}{}", format!("{:08x}", word >> 32).repeat(n as usize % 64));
    }
    let (from, back) = (scene.path("rows"), scene.path("back"));
    fs::write(&from, &rows).expect("the rows");
    let query = |sql: &str| psql(scene, port).arg("-c").arg(sql);
    query("create unlogged table t (n integer, w text)").finish();
    query("copy t from stdin").stdin_from(&from).finish();
    let digest = query("select count(*), md5(string_agg(w, '' order by n)) from t").finish().stdout;
    query("copy (select * from t order by n) to stdout").stdout_to(&back).finish();
    server.stop(Signal::INT).ok();
    assert_same(&from, &back);
    let words: String = rows.lines().filter_map(|l| l.split_once('\t')).map(|(_, w)| w).collect();
    let again = scene.path("words");
    fs::write(&again, words).expect("the words");
    let sum = scene.plain("md5sum").arg(&again).finish().stdout;
    assert_eq!(digest.trim(), format!("{ROWS}|{}", sum.split(' ').next().unwrap_or("")));
    scene.prove(2 * rows.len() as u64);
}

/// Lines of 1000 bytes before the query that is cancelled.
const LINES: usize = 250_000;

fn cancel(scene: &Scene) {
    let scene = &scene.unprivileged();
    let (server, port) = serve(scene);
    // First enough rows to be upgraded.
    let out = scene.path("rows");
    let rows = format!("copy (select repeat('x', 1000) from generate_series(1, {LINES})) to stdout");
    let client = psql(scene, port).arg("-c").arg(rows).stdout_to(&out);
    let mut client = client.arg("-c").arg("select 'asleep' from pg_sleep(600)").start();
    let active = "select 'sleeps' from pg_stat_activity where state = 'active' and query like '%''asleep''%'
        and pid <> pg_backend_pid()";
    while !to(scene.plain("psql"), port).args("-X -A -t -c").arg(active).finish().stdout.contains("sleeps") {
        assert!(!client.has_ended(), "{client}");
    }
    client.signal(Signal::INT);
    client.ready(|line| line.contains("canceling statement due to user request").then_some(()));
    let outcome = client.wait();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    server.stop(Signal::INT).ok();
    let rows = fs::read_to_string(&out).expect("psql's output");
    assert!(rows.lines().all(|l| l.len() == 1000 && l.bytes().all(|b| b == b'x')));
    assert_eq!(rows.lines().count(), LINES);
    scene.prove(1000 * LINES as u64);
}
