//! MariaDB: a thread per connection. A table loaded and read back, with the checksum of both ends, and a load of
//! short queries.

use crate::support::{Process, Program, Scene, ways};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;

ways! {
    load_and_read_back needs ["mariadb-install-db", "mariadbd", "mariadb"] => read_back;
    short_queries needs ["mariadb-install-db", "mariadbd", "mariadb"] => short;
}

fn serve(scene: &Scene) -> (Process, u16) {
    let (data, port) = (scene.path("data"), scene.port());
    let root = rustix::process::geteuid().is_root();
    let user = if root { ["--user=root"].as_slice() } else { &[] };
    // Temporary tables are called by the process id alone, which tests in namespaces of their own may have in common.
    let temporary = scene.path("");
    let install = scene.plain("mariadb-install-db").args("--no-defaults --skip-test-db").words(user);
    let install = install.env("TMPDIR", &temporary);
    install.args("--auth-root-authentication-method=normal").arg(flag("--datadir=", &data)).finish();
    let server = scene.server("mariadbd").args("--no-defaults --bind-address=127.0.0.1 --skip-log-bin");
    let server =
        server.args("--innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M --skip-name-resolve");
    // Its io_uring is for its files.
    let server = server.env("BYPATH_IO_URING", "allow").env("TMPDIR", &temporary);
    let server = server.words(user).arg(flag("--datadir=", &data)).arg(format!("--port={port}"));
    let mut server = server.arg(flag("--socket=", &scene.path("socket"))).start();
    server.ready(|line| line.contains("ready for connections").then_some(()));
    (server, port)
}

fn flag(name: &str, path: &std::path::Path) -> String {
    format!("{name}{}", path.display())
}

fn to<'a>(program: Program<'a>, port: u16) -> Program<'a> {
    let program = program.args("--no-defaults --protocol=tcp --host=127.0.0.1 --user=root");
    program.arg(format!("--port={port}"))
}

/// Rows of the table.
const ROWS: u64 = 200_000;

fn read_back(scene: &Scene) {
    let (server, port) = serve(scene);
    let mut rows = String::new();
    for n in 0..ROWS {
        let word = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let _ = writeln!(rows, "{n}\t{}", format!("{word:016x}").repeat(1 + n as usize % 64));
    }
    let from = scene.path("rows");
    fs::write(&from, &rows).expect("the rows");
    let query =
        |sql: &str| to(scene.client("mariadb"), port).args("--local-infile=1 -N -B --quick -e").arg(sql);
    query("create database d; create table d.t (n int primary key, w varchar(1100)) engine=MyISAM").finish();
    query(&format!("load data local infile '{}' into table d.t", from.display())).finish();
    let back = scene.path("back");
    query("select n, w from d.t order by n").stdout_to(&back).finish();
    let count = query("select count(*), sum(crc32(w)) from d.t").finish().stdout;
    server.stop(Signal::TERM).ok();
    crate::support::assert_same(&from, &back);
    assert!(count.starts_with(&format!("{ROWS}\t")), "{count}");
    scene.prove(2 * rows.len() as u64);
}

/// Queries of the load.
const QUERIES: usize = 10_000;

fn short(scene: &Scene) {
    let (server, port) = serve(scene);
    let queries = scene.path("queries");
    fs::write(&queries, "select repeat('x', 200);\n".repeat(QUERIES)).expect("the queries");
    let client = to(scene.client("mariadb"), port).args("-N -B").stdin_from(&queries);
    let answers = client.finish().stdout;
    server.stop(Signal::TERM).ok();
    assert!(answers.lines().all(|l| l == "x".repeat(200)));
    assert_eq!(answers.lines().count(), QUERIES);
    scene.prove(QUERIES as u64 * 230);
}
