//! Under a tracer: strace and gdb attached to a server or a client at work, and programs that are started under them or
//! under valgrind. What is stopped goes on where it was, and no byte is lost.

use crate::support::{
    Process, Program, Scene, Way, assert_same, bypath, find_program, launcher, preload_library, sample, skip,
    ways,
};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

ways! {
    strace_attached_to_the_server needs ["strace", "python3"] =>
        |scene| attached(scene, "strace_attached_to_the_server", strace, Side::Server);
    strace_attached_to_the_client needs ["strace", "python3"] =>
        |scene| attached(scene, "strace_attached_to_the_client", strace, Side::Client);
    strace_of_bypath_run needs ["strace", "python3"] => strace_of_bypath_run;
    strace_under_bypath needs ["strace", "python3"] => strace_under_bypath;
    gdb_attached_to_the_server needs ["gdb", "strace", "python3"] =>
        |scene| attached(scene, "gdb_attached_to_the_server", gdb, Side::Server);
    gdb_attached_to_the_client needs ["gdb", "strace", "python3"] =>
        |scene| attached(scene, "gdb_attached_to_the_client", gdb, Side::Client);
    gdb_under_bypath needs ["gdb", "strace", "python3"] => gdb_under_bypath;
    valgrind_under_bypath needs ["valgrind", "nc.openbsd"] => valgrind_under_bypath;
    reader_stopped_by_gdb needs ["gdb", "strace", "nc.openbsd"] => stopped;
}

#[derive(Clone, Copy)]
enum Side {
    Server,
    Client,
}

fn python() -> PathBuf {
    find_program("python3").expect("in the test's needs")
}

fn echo_server(program: Program<'_>) -> (Process, u16) {
    let mut server = program.script("echo_server.py").arg("threads").start();
    let port = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    (server, port)
}

/// Whether this machine forbids to trace even a child; then the test is skipped.
fn tracing_is_forbidden(scene: &Scene, test: &str) -> bool {
    let child = scene.plain("strace").args("-o /dev/null true").start().wait();
    skipped(scene, test, child.stderr.contains("not permitted"))
}

/// Whether it forbids to trace a process that is not a child; then the test is skipped.
fn attaching_is_forbidden(scene: &Scene, test: &str) -> bool {
    let victim = scene.plain("sleep").args("600").start();
    let tracer = scene.plain("strace").args("-o /dev/null -p").arg(victim.pid().to_string());
    let mut tracer = tracer.start();
    let forbidden = tracer.ready(|line| match line {
        line if line.contains("not permitted") => Some(true),
        line if line.contains("attached") => Some(false),
        _ => None,
    });
    drop(victim);
    drop(tracer);
    skipped(scene, test, forbidden)
}

fn skipped(scene: &Scene, test: &str, forbidden: bool) -> bool {
    if forbidden {
        let test = format!("traced::{test}::{:?}", scene.way());
        skip(&test, "this user may not trace processes (ptrace, Yama or a container)");
    }
    forbidden
}

/// Four connections at work while a tracer comes and goes, three times.
fn attached(scene: &Scene, test: &str, tracer: fn(&Scene, u32, &mut Process), side: Side) {
    if attaching_is_forbidden(scene, test) {
        return;
    }
    let (server, port) = echo_server(scene.server("python3"));
    let client = scene.client("python3").script("steady.py").arg(port.to_string()).arg("4");
    let mut client = client.start();
    for _ in 0..3 {
        more(&mut client, 4);
        let pid = match side {
            Side::Server => server.pid(),
            Side::Client => client.pid(),
        };
        tracer(scene, pid, &mut client);
    }
    // Enough that the first bytes of each connection, and those of a recall, do not count.
    more(&mut client, 240);
    let payload = client.stop(Signal::TERM).ok().number("payload ");
    assert!(!server.has_ended(), "{server}");
    server.stop(Signal::TERM);
    scene.prove(payload);
}

/// Waits until so many more MiB came back.
fn more(client: &mut Process, mib: u64) {
    let moved = |line: &str| line.strip_prefix("moved ")?.parse::<u64>().ok();
    let now = client.said().lines().filter_map(moved).max().unwrap_or(0);
    client.ready(|line| moved(line).filter(|m| *m >= now + mib));
}

fn strace(scene: &Scene, pid: u32, client: &mut Process) {
    let trace = scene.path("trace");
    let tracer = scene.plain("strace").args("-f -o").arg(&trace).arg("-p").arg(pid.to_string());
    let mut tracer = tracer.start();
    tracer.ready(|line| line.contains("attached").then_some(()));
    more(client, 4);
    tracer.stop(Signal::INT);
    let trace = fs::read_to_string(trace).expect("the trace");
    assert!(trace.contains("(") && trace.contains(" = "), "no system call was seen: {trace}");
}

/// Stops all threads wherever they are, looks around, and leaves. (No breakpoint here: where several threads run into one
/// at a time, gdb 13 lets a plain program's blocking recv fail with EAGAIN now and then.)
fn gdb(scene: &Scene, pid: u32, _: &mut Process) {
    let said = debugger(scene, pid).words(["-ex", "thread apply all bt 4", "-ex", "detach"]).finish().stdout;
    assert!(said.contains("\nThread 1 ") && said.contains("#0 ") && said.contains("detached"), "{said}");
}

/// Whether gdb stopped at its breakpoint ("Breakpoint 1, " or, of several places, "Breakpoint 1.2, ") and left.
fn reached(said: &str) -> bool {
    (said.contains("Breakpoint 1, ") || said.contains("Breakpoint 1.")) && said.contains("detached")
}

/// gdb in batch mode, without the user's own settings, attached.
fn debugger<'a>(scene: &'a Scene, pid: u32) -> Program<'a> {
    scene.plain("gdb").args("-nx -batch -p").arg(pid.to_string())
}

/// `strace -f bypath run -- python3`
fn strace_of_bypath_run(scene: &Scene) {
    if tracing_is_forbidden(scene, "strace_of_bypath_run") {
        return;
    }
    let mut strace = scene.plain("strace").args("-f -o trace");
    if scene.way() != Way::OnlyClient {
        strace = strace.words(launcher((bypath(), preload_library()), &scene.path("server.stats"), &[]));
    }
    echo(scene, strace.arg(python()));
    if scene.way() != Way::OnlyClient {
        let trace = fs::read_to_string(scene.path("trace")).expect("the trace");
        assert!(trace.contains("LD_PRELOAD") || trace.contains("bypath_preload"), "{trace}");
    }
}

/// `bypath run -- strace -f python3`
fn strace_under_bypath(scene: &Scene) {
    if tracing_is_forbidden(scene, "strace_under_bypath") {
        return;
    }
    echo(scene, scene.server("strace").args("-f -o trace").arg(python()));
}

fn echo(scene: &Scene, server: Program<'_>) {
    let (server, port) = echo_server(server);
    let client = scene.client("python3").script("echo_client.py").arg("threads").arg(port.to_string());
    let payload = client.finish().number("payload ");
    // strace lets no signal end it before the program has ended: both are killed.
    drop(server);
    scene.prove(payload);
}

/// `bypath run -- gdb --args python3`: the debugger and what it starts.
fn gdb_under_bypath(scene: &Scene) {
    if tracing_is_forbidden(scene, "gdb_under_bypath") {
        return;
    }
    let (server, port) = echo_server(scene.server("python3"));
    let client = scene
        .client("gdb")
        .args("-nx -batch -ex")
        .arg("set print thread-events off")
        .args("-ex run --args")
        .arg(python())
        .script("echo_client.py");
    let report = client.arg("threads").arg(port.to_string()).finish();
    assert!(report.stdout.contains("exited normally"), "{report:#?}");
    server.stop(Signal::TERM);
    scene.prove(report.number("payload "));
}

/// The reader of a stream is stopped for longer than a writer waits on a full ring.
fn stopped(scene: &Scene) {
    if attaching_is_forbidden(scene, "reader_stopped_by_gdb") {
        return;
    }
    let (sent, received) = (sample(256), scene.path("received"));
    let mut server = scene.server("nc.openbsd").args("-l -v -n 127.0.0.1 0").stdout_to(&received).start();
    let port: String =
        server.ready(|line| Some(line.strip_prefix("Listening on ")?.rsplit(' ').next()?.to_owned()));
    // The stop is an event for the writer only by its length: hence the pause in it.
    let words =
        ["break read", "ignore 1 300", "echo at work\\n", "continue", "shell sleep 0.3", "delete", "detach"];
    let tracer = debugger(scene, server.pid()).words(words.map(|w| ["-ex", w]).concat());
    let mut tracer = tracer.start();
    tracer.ready(|line| (line == "at work").then_some(()));
    scene.client("nc.openbsd").args("-N 127.0.0.1").arg(port).stdin_from(&sent).finish();
    let said = tracer.wait().ok().stdout;
    assert!(reached(&said), "{said}");
    server.wait().ok();
    assert_same(&sent, &received);
    scene.prove(256 << 20);
}

/// `bypath run -- valgrind nc` at both ends: a machine without vDSO, and one that judges each access to memory. With small
/// buffers, as a slow reader leaves much in large ones before it has emptied them once.
fn valgrind_under_bypath(scene: &Scene) {
    let (sent, received) = (sample(48), scene.path("received"));
    let mut server =
        checked(scene.server("valgrind")).args("-I 131072 -l -v -n 127.0.0.1 0").stdout_to(&received).start();
    let port: String =
        server.ready(|line| Some(line.strip_prefix("Listening on ")?.rsplit(' ').next()?.to_owned()));
    let client =
        checked(scene.client("valgrind")).args("-O 131072 -N 127.0.0.1").arg(port).stdin_from(&sent).finish();
    for said in [client.stderr, server.wait().ok().stderr] {
        // Its complaints begin with the number of the process, between two signs.
        assert!(!said.lines().any(|l| l.starts_with("==") || l.starts_with("--")), "{said}");
    }
    assert_same(&sent, &received);
    // Until the switch, of which each step takes thirty times as long, the kernel carries more than elsewhere.
    scene.prove_share(48 << 20, 85);
}

/// valgrind's words for nc that is judged.
fn checked(valgrind: Program<'_>) -> Program<'_> {
    valgrind.args("-q --error-exitcode=99").arg(find_program("nc.openbsd").expect("in the test's needs"))
}
