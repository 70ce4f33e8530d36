//! Programs under the preload library do what they do without it: answers, errno, exit status, signals, cancellation.
//!
//! The helper programs are C, compiled here; each prints what it saw, and the output with the library must be the
//! output without it. Connections stay on the kernel (`BYPATH_UPGRADE=off`): this is about the interposed calls
//! themselves, the engine has its own tests.

mod common;

use common::skip;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Builds the preload library in its own cargo invocation, as for a release, and gives its path.
fn library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", "bypath-preload", "--message-format=json"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout)
            .split('"')
            .find(|word| word.ends_with("/libbypath_preload.so"))
            .map(PathBuf::from)
            .expect("cargo names the library it built")
    })
}

/// A directory of this test, below cargo's own.
fn directory() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// Compiles `tests/agent/preload_NAME.c` with more flags.
fn compile(name: &str, output: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/agent/preload_{name}.c"));
    let output = directory().join(output);
    // Bad pointers are the point of some of these calls.
    let mut cc = Command::new("cc");
    cc.args(["-w", "-pthread", "-o"]).arg(&output).arg(source).args(flags).arg("-lutil");
    assert!(cc.status().expect("a C compiler").success(), "compiling {name}");
    output
}

/// A program without any preloaded library.
fn plain(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("LD_PRELOAD").env("BYPATH_UPGRADE", "off");
    command
}

/// The same with a list of libraries.
fn preloaded(program: &Path, args: &[&str], libraries: &[&Path]) -> Command {
    let mut command = plain(program, args);
    command.env("LD_PRELOAD", libraries.join_with(" "));
    command
}

trait JoinWith {
    fn join_with(&self, separator: &str) -> std::ffi::OsString;
}

impl JoinWith for [&Path] {
    fn join_with(&self, separator: &str) -> std::ffi::OsString {
        self.iter().map(|p| p.as_os_str()).collect::<Vec<_>>().join(OsStr::new(separator))
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn run(mut command: Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Runs with and without, and compares; gives the common output.
fn same(program: &Path, args: &[&str], libraries: &[&Path]) -> String {
    let (without, with) = (run(plain(program, args)), run(preloaded(program, args, libraries)));
    let (a, b) = (text(&without), text(&with));
    for (number, (x, y)) in a.lines().zip(b.lines()).enumerate() {
        assert_eq!(x, y, "line {} (left: without the library)", number + 1);
    }
    assert_eq!(a, b);
    assert_eq!(without.status, with.status, "{a}");
    a
}

#[test]
fn every_call_answers_as_without_the_library() {
    let program = compile("calls", "calls", &["-O0"]);
    let output = same(&program, &[], &[library()]);
    assert!(output.lines().count() > 150 && output.contains("errno kept"), "{output}");
    assert!(!output.contains("errno changed"), "{output}");
}

#[test]
fn fortified_calls_answer_as_without_the_library() {
    let program = compile("calls", "calls-fortified", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    same(&program, &[], &[library()]);
}

#[test]
fn processes_are_made_replaced_and_ended_as_without_the_library() {
    let program = compile("process", "process", &["-O1"]);
    let output = same(&program, &["all"], &[library()]);
    assert!(output.contains("11 args me args a1 a2 a3 a4 a5 a6 a7 a8 a9 (end)"), "{output}");
}

#[test]
fn exit_status_and_signals_are_unchanged() {
    let program = compile("process", "process-ends", &["-O1"]);
    for (way, status, signal) in [
        ("exit", Some(51), None),
        ("_exit", Some(52), None),
        ("_Exit", Some(53), None),
        ("quick_exit", Some(54), None),
        ("exit_group", Some(55), None),
        ("abort", None, Some(6)),
        ("kill", None, Some(9)),
        ("segv", None, Some(11)),
    ] {
        same(&program, &[way], &[library()]);
        let ended = run(preloaded(&program, &[way], &[library()])).status;
        assert_eq!((ended.code(), ended.signal()), (status, signal), "{way}");
    }
}

#[test]
fn a_blocked_thread_can_be_cancelled() {
    let program = compile("cancel", "cancel", &["-O2"]);
    let output = same(&program, &[], &[library()]);
    assert!(output.ends_with("cleaned 10\n"), "{output}");
}

#[test]
fn calls_inside_signal_handlers_work() {
    let program = compile("signals", "signals", &["-O2"]);
    let output = same(&program, &[], &[library()]);
    assert_eq!(output, "wrong 0, interrupted\n");
}

#[test]
fn calls_before_the_constructor_work() {
    let early = compile("early", "early.so", &["-O2", "-shared", "-fPIC"]);
    for libraries in [[library(), &early], [&early, library()]] {
        let output = run(preloaded(Path::new("/bin/echo"), &["echo"], &libraries));
        assert!(output.status.success(), "{libraries:?} {output:?}");
        assert_eq!(text(&output), "early\necho\n");
    }
}

/// What is registered runs outside of what the library does at a fork, whoever registered first; and nobody waits for a fork that waits for locks of the C library.
#[test]
fn functions_around_a_fork_may_wait_for_threads_that_open_and_close_connections() {
    let program = compile("quiesces", "quiesces", &["-O1", "-pthread"]);
    let early = compile("quiesces", "quiesces.so", &["-O1", "-shared", "-fPIC", "-DEARLY", "-pthread"]);
    let comes_through = |mode, libraries: &[&Path], forks: &str| {
        let without = run(plain(&program, &[mode]));
        assert_eq!((text(&without), without.status.success()), (format!("through {forks}\n"), true));
        let mut command = preloaded(&program, &[mode], libraries);
        command.env("BYPATH_UPGRADE", "eager");
        let with = run(command);
        assert_eq!((text(&with), with.status), (text(&without), without.status), "{mode} {libraries:?}");
    };
    comes_through("threads", &[library()], "12");
    comes_through("arena", &[library()], "300");
    comes_through("stream", &[library()], "12");
    comes_through("refused", &[library()], "12");
    for libraries in [[library(), &early], [&early, library()]] {
        comes_through("nothing", &libraries, "12");
    }
}

#[test]
fn a_second_copy_of_the_library_passes_everything_on() {
    let copy = directory().join("second_copy.so");
    fs::copy(library(), &copy).expect("a copy");
    let program = compile("calls", "calls-two", &["-O0"]);
    same(&program, &[], &[library(), &copy]);
    let program = compile("process", "process-two", &["-O1"]);
    same(&program, &["all"], &[library(), &copy]);
}

#[test]
fn a_bad_setting_is_one_warning_and_the_program_runs() {
    let mut command = preloaded(Path::new("/bin/echo"), &["ran"], &[library()]);
    command.env("BYPATH_UPGRADE", "eagr").env("BYPATH_PROFILE", "none");
    let output = run(command);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n");
    let warning = String::from_utf8_lossy(&output.stderr);
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(warning.contains("BYPATH_UPGRADE") && warning.contains("did you mean 'eager'"), "{warning}");
}

#[test]
fn a_good_setting_is_silent() {
    let output = run(preloaded(Path::new("/bin/echo"), &["ran"], &[library()]));
    assert_eq!(text(&output), "ran\n");
}

/// The run-time of AddressSanitizer wants to be the first library, and finds this one before it.
#[test]
fn programs_with_address_sanitizer_run_and_are_served() {
    let program = compile("sanitized", "sanitized", &["-fsanitize=address", "-g"]);
    assert_eq!(text(&run(plain(&program, &[]))), "kernel\n");
    let mut eager = preloaded(&program, &[], &[library()]);
    eager.env("BYPATH_UPGRADE", "eager");
    assert_eq!(text(&run(eager)), "ring\n");
    // As one that another program starts.
    let shell =
        preloaded(Path::new("/bin/sh"), &["-c", "\"$0\"", program.to_str().expect("plain")], &[library()]);
    assert_eq!(text(&run(shell)), "kernel\n");
}

/// Interpreters exercise the calls in their own ways: vfork, shared fork, an event loop, threads.
#[test]
fn interpreters_run_unharmed() {
    let scripts: [(&str, &[&str]); 4] = [
        ("/bin/sh", &["-c", "echo a | cat; (exit 3); echo $?; x=$(echo sub); echo $x"]),
        (
            "/usr/bin/perl",
            &["-e", "print `echo tick`; open(F, '-|', 'echo', 'piped'); print <F>; exec 'echo', 'done'"],
        ),
        (
            "/usr/bin/python3",
            &[
                "-c",
                "import asyncio, os, socket, subprocess\n\
                 print(subprocess.run(['sh', '-c', 'echo $0; exit 3'], capture_output=True))\n\
                 a, b = socket.socketpair(); a.settimeout(5)\n\
                 subprocess.run(['sh', '-c', 'echo to the socket'], stdout=b); print(a.recv(99))\n\
                 async def serve(r, w):\n    w.write((await r.read(99)).upper()); w.close()\n\
                 async def main():\n    s = await asyncio.start_server(serve, '127.0.0.1', 0)\n    \
                 r, w = await asyncio.open_connection(*s.sockets[0].getsockname())\n    w.write(b'echo'); w.write_eof()\n    \
                 print(await r.read(99)); w.close()\n\
                 asyncio.run(main())\n\
                 print(os.system('exit 5') >> 8, os.popen('echo popen').read())",
            ],
        ),
        (
            "/usr/bin/node",
            &[
                "-e",
                "const net = require('net'); const s = net.createServer(c => c.end('from node\\n'));\
                 s.listen(0, '127.0.0.1', () => net.connect(s.address().port).on('data', d => \
                 { process.stdout.write(d); s.close(); console.log(require('child_process').execSync('echo child').toString()) }))",
            ],
        ),
    ];
    for (program, args) in scripts {
        let program = Path::new(program);
        if !program.exists() {
            skip("preload::interpreters_run_unharmed", &format!("{} is not installed", program.display()));
            continue;
        }
        let output = same(program, args, &[library()]);
        assert!(!output.is_empty(), "{program:?}");
    }
}
