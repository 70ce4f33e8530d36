//! `bypath run` as a user meets it: the program's own behaviour is untouched, trouble is told before it starts.

mod common;

use bypath_shm::stats::RECORD_SIZE;
use common::{TempDir, bypath, preload_library, run, skip, stderr, stdout};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether `test` cannot run for want of python3; then it is recorded as skipped.
fn skipped_without_python(test: &str) -> bool {
    let there = Command::new("python3").arg("-V").output().is_ok_and(|o| o.status.success());
    if !there {
        skip(&format!("run::{test}"), "python3 is not installed");
    }
    !there
}

fn sh(script: &str) -> Output {
    run(["--", "sh", "-c", script]).output().expect("bypath starts")
}

/// Makes an executable file. Another process writes it: were it open for writing here, a program that another
/// test starts at this moment would inherit that, and the kernel would not execute the file (ETXTBSY).
fn executable(path: &Path, bytes: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    writer.stdin.take().expect("a pipe").write_all(bytes).expect("a write");
    assert!(writer.wait().expect("it ends").success());
}

/// A static program for this machine that exits with status 7: an ELF header, one segment, three instructions.
fn static_program() -> Vec<u8> {
    let (machine, code): (u16, &[u8]) = if cfg!(target_arch = "x86_64") {
        // mov edi, 7; mov eax, 60; syscall
        (62, &[0xbf, 7, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05])
    } else {
        // mov x0, #7; mov x8, #93; svc #0
        (183, &[0xe0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 1, 0, 0, 0xd4])
    };
    const BASE: u64 = 0x40_0000;
    const CODE_AT: u64 = 64 + 56;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for half in [2, machine] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for word in [BASE + CODE_AT, 64, 0] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let length = CODE_AT + code.len() as u64;
    for half in [1u32, 5] {
        file.extend(half.to_le_bytes());
    }
    for word in [0, BASE, BASE, length, length, 4096] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

#[test]
fn program_keeps_pid_status_and_streams() {
    let mut child = run(["--", "sh", "-c", "echo $$; cat; echo err >&2; exit 41"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bypath starts");
    let pid = child.id();
    child.stdin.take().expect("a pipe").write_all(b"through\n").expect("a write");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stdout(&output), format!("{pid}\nthrough\n"));
    assert_eq!((stderr(&output).as_str(), output.status.code()), ("err\n", Some(41)));
}

#[test]
fn program_may_die_of_a_signal() {
    assert_eq!(sh("kill -TERM $$").status.signal(), Some(15));
    // A program that writes into a closed pipe dies of it, as without bypath.
    let script = "yes | head -1 >/dev/null; exec yes >&-";
    assert_eq!(sh(script).status.code(), Some(1));
    let mut child = run(["yes"]).stdout(Stdio::piped()).spawn().expect("bypath starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").signal(), Some(13));
}

/// What the program sees of the state that its caller had set up by `setup`, with and without `bypath run`.
fn seen_after(setup: &str, show: &str) -> [String; 2] {
    [vec![], vec![common::BYPATH, "run", "--"]].map(|wrapper| {
        let script = format!("{setup} \"$@\" {show} 3>&1");
        let output = Command::new("sh")
            .args(["-c", &script, "sh"])
            .args(wrapper)
            .env("BYPATH_LIBRARY", preload_library())
            .output()
            .expect("sh starts");
        format!("{}{}", stdout(&output), stderr(&output))
    })
}

#[test]
fn program_finds_signals_as_its_caller_set_them() {
    // No shell between: some clear the mask.
    let show = "grep Sig[IB] /proc/self/status";
    const PIPE: u64 = 1 << 12;
    for (setup, line, bit, set) in [
        ("", "SigIgn", PIPE, false),
        ("trap \"\" PIPE;", "SigIgn", PIPE, true),
        ("trap \"\" HUP;", "SigIgn", 1, true),
        ("env --block-signal=USR1", "SigBlk", 1 << 9, true),
    ] {
        let [plain, under_bypath] = seen_after(setup, show);
        assert_eq!(plain, under_bypath, "{setup}");
        let bits = plain.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(":\t")).expect("the line");
        let bits = u64::from_str_radix(bits, 16).expect("a number");
        assert_eq!(bits & bit != 0, set, "{setup}: {plain}");
    }
}

/// A limit of the size of files is one of shared memory, too: what exceeds it is killed by a signal.
#[test]
fn program_under_a_file_size_limit_has_its_sockets() {
    for blocks in ["0", "1", "1000", "20000"] {
        let script = format!("ulimit -f {blocks}; exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/1'");
        let output = sh(&script);
        assert_eq!(output.status.code(), Some(1), "{blocks}: {}", output.status);
        assert!(stderr(&output).contains("Connection refused"), "{blocks}: {}", stderr(&output));
    }
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let show =
        "sh -c 'for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n open >&3 || echo $n closed >&3; done'";
    for (setup, expected) in [
        ("", "0 open\n1 open\n2 open\n"),
        ("exec 4>&1; exec 0<&-;", "0 closed\n1 open\n2 open\n"),
        ("exec 2>&-;", "0 open\n1 open\n2 closed\n"),
    ] {
        let [plain, under_bypath] = seen_after(setup, show);
        assert_eq!((plain.as_str(), under_bypath.as_str()), (expected, expected), "{setup}");
    }
}

#[test]
fn environment_passes_unchanged() {
    let library = preload_library().display().to_string();
    let output = Command::new("env")
        .args(["-i", "Z=1", "A=\u{e4}", "LD_PRELOAD=", "M=a=b", "E="])
        .arg(format!("BYPATH_LIBRARY={library}"))
        .args([common::BYPATH, "run", "/usr/bin/env"])
        .output()
        .expect("env starts");
    let expected = format!("Z=1\nA=\u{e4}\nLD_PRELOAD={library}\nM=a=b\nE=\nBYPATH_LIBRARY={library}\n");
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn arguments_pass_unchanged() {
    let odd: &[&[u8]] = &[b"", b"--", b"--upgrade=off", b"-h", b"a b", b"\xff\xfe", b"*", b"--version"];
    let output = run(["--", "printf", "[%s]"])
        .args(odd.iter().map(|a| OsStr::from_bytes(a)))
        .output()
        .expect("bypath starts");
    assert_eq!(output.stdout, b"[][--][--upgrade=off][-h][a b][\xff\xfe][*][--version]");
}

#[test]
fn program_needs_no_dashes_before_it() {
    let output = run(["--upgrade", "eager", "sh", "-c", "echo $BYPATH_UPGRADE", "--profile=x"]);
    assert_eq!(stdout(&{ output }.output().expect("bypath starts")), "eager\n");
}

#[test]
fn library_is_preloaded_before_what_was_there() {
    let library = preload_library().to_str().expect("UTF-8");
    let output = run(["--", "sh", "-c", "echo $LD_PRELOAD"]).output().expect("bypath starts");
    assert_eq!(stdout(&output), format!("{library}\n"));
    // Twice under bypath is once.
    let exe = common::BYPATH;
    let output = run([exe, "run", "--", "sh", "-c", "echo $LD_PRELOAD; grep -c preload.so /proc/$$/maps"])
        .output()
        .expect("bypath starts");
    let text = stdout(&output);
    let (list, count) = text.trim().split_once('\n').expect("two lines");
    assert_eq!(list, library);
    assert!(count.parse::<u32>().expect("a number") > 0, "the library is mapped");
}

#[test]
fn flag_beats_environment() {
    let show = ["sh", "-c", "echo $BYPATH_LOG $BYPATH_RING_SIZE"];
    let output =
        run(["--log=debug", "--"]).args(show).env("BYPATH_LOG", "off").output().expect("bypath starts");
    assert_eq!(stdout(&output), "debug\n");
    let output = run(["--"]).args(show).env("BYPATH_RING_SIZE", "64K").output().expect("bypath starts");
    assert_eq!(stdout(&output), "64K\n");
    // Also over a value that would be an error.
    let output =
        run(["--log=info", "--"]).args(show).env("BYPATH_LOG", "nonsense").output().expect("it starts");
    assert_eq!(stdout(&output), "info\n");
}

#[test]
fn wrong_settings_stop_it_before_the_program() {
    let dir = TempDir::new();
    let mark = dir.join("started");
    let touch: [&OsStr; 2] = ["touch".as_ref(), mark.as_ref()];
    for (flags, variable, suggestion) in [
        (vec!["--upgrade=eagre"], None, "eager"),
        (vec!["--profil=latency"], None, "--profile"),
        (vec!["--memory-limit=lots"], None, "256M"),
        (vec!["--allow-uid=root"], None, "user ids"),
        (vec!["--allow-uid=65534"], None, "65534"),
        (vec!["--allow-uid=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"], None, "at most 16"),
        (vec!["--json"], None, "unexpected argument"),
        (vec![], Some(("BYPATH_UPGRADE", OsStr::new("lzay"))), "lazy"),
        (vec![], Some(("BYPATH_RING_SIZE", OsStr::new(""))), "BYPATH_RING_SIZE"),
        (vec![], Some(("BYPATH_LOG", OsStr::from_bytes(b"\xff"))), "BYPATH_LOG"),
    ] {
        let mut command = run(&flags);
        command.envs(variable).arg("--").args(touch);
        let output = command.output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(suggestion), "{text}");
        assert!(!mark.exists());
    }
}

#[test]
fn misspelt_variable_is_mentioned() {
    let output = run(["true"]).env("BYPATH_UPGRAD", "off").output().expect("bypath starts");
    assert!(stderr(&output).contains("did you mean BYPATH_UPGRADE?") && output.status.success());
    let output = run(["true"]).env("BYPATH_SOMETHING_ELSE", "1").output().expect("bypath starts");
    assert_eq!(stderr(&output), "");
}

#[test]
fn missing_or_wrong_library_is_told() {
    let dir = TempDir::new();
    let alone = dir.join("bin/bypath");
    fs::create_dir(dir.join("bin")).expect("a directory");
    executable(&alone, &fs::read(common::BYPATH).expect("bypath"));
    let output =
        Command::new(&alone).args(["run", "true"]).env_remove("BYPATH_LIBRARY").output().expect("it starts");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    for place in ["bin/libbypath_preload.so", "lib/bypath/libbypath_preload.so", "--library"] {
        assert!(text.contains(place), "{text}");
    }
    // As installed.
    fs::create_dir_all(dir.join("lib/bypath")).expect("a directory");
    fs::copy(preload_library(), dir.join("lib/bypath/libbypath_preload.so")).expect("a copy");
    let output = Command::new(&alone)
        .args(["run", "sh", "-c", "echo $LD_PRELOAD"])
        .env_remove("BYPATH_LIBRARY")
        .output()
        .expect("it starts");
    assert!(stdout(&output).ends_with("/lib/bypath/libbypath_preload.so\n"), "{}", stderr(&output));

    for (file, part) in
        [("/nonexistent.so", "No such file"), ("/etc/passwd", "not a shared library"), ("/", "regular")]
    {
        let output = bypath(["run", "--library", file, "true"]).output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.contains(part)), (Some(125), true), "{text}");
    }
    let odd = dir.join("with blank.so");
    fs::copy(preload_library(), &odd).expect("a copy");
    let other = bypath(["run", "--library", "/bin/true", "true"]).output().expect("bypath starts");
    assert_eq!(other.status.code(), Some(125));
    assert!(stderr(&other).contains("not Bypath's library"), "{}", stderr(&other));
    let output = bypath(["run", "--library"]).arg(&odd).arg("true").output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("symbolic link"), "{}", stderr(&output));
}

#[test]
fn missing_programs_are_127() {
    let dir = TempDir::new();
    executable(&dir.join("hello-server"), b"#!/bin/sh\n");
    executable(&dir.join("orphan"), b"#!/no/such/interpreter\n");
    for (program, part) in [
        ("no-such-program-at-all", "no such program"),
        ("hello-servre", "did you mean hello-server?"),
        ("/no/such", "no such program"),
        ("/etc/passwd/x", "no such program"),
        ("", "''"),
        ("orphan", "interpreter /no/such/interpreter does not exist"),
    ] {
        let output = run(["--", program]).env("PATH", dir.path()).output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(127), "{program}: {text}");
        assert!(text.contains(part), "{text}");
    }
    let output =
        run(["--", "hello-server"]).env("PATH", "").current_dir(dir.path()).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "an empty PATH is this directory: {}", stderr(&output));
    let output = run(["--", "hello-server"]).current_dir(dir.path()).output().expect("bypath starts");
    assert!(stderr(&output).contains("did you mean ./hello-server?"), "{}", stderr(&output));
    // The value of --netstack follows an equals sign; after a blank it is the program.
    let output = run(["--netstack", "lab", "hello-server"]).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("write --netstack=lab"), "{}", stderr(&output));
}

#[test]
fn programs_that_cannot_be_executed_are_126() {
    let dir = TempDir::new();
    fs::write(dir.join("plain"), "echo hi\n").expect("a file");
    for program in [dir.join("plain"), dir.path().to_owned()] {
        let output = run(["--"]).arg(&program).output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(126), "{text}");
        assert!(text.contains("cannot be executed"), "{text}");
    }
}

#[test]
fn static_programs_run_unharmed_or_as_told() {
    let dir = TempDir::new();
    let program = dir.join("static");
    executable(&program, &static_program());
    let with =
        |flag: &str| run([OsString::from(flag), program.clone().into()]).output().expect("bypath starts");

    let output = with("--on-unsupported=fallback");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(7), ""));
    let output = with("--on-unsupported=warn");
    assert_eq!(output.status.code(), Some(7));
    assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    for refusal in ["--on-unsupported=error", "--on-unsupported=abort"] {
        let output = with(refusal);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    }
}

/// A program that opens a TCP socket pair's worth of traffic and asks for what a ring cannot do.
const UNSUPPORTED: &str = "
import socket, sys
l = socket.create_server(('127.0.0.1', 0))
s = socket.create_connection(l.getsockname())
t, _ = l.accept()
for n in range(40):
    s.sendall(b'x' * 1000); t.recv(1000, socket.MSG_WAITALL); t.sendall(b'y'); s.recv(1)
s.send(b'!', socket.MSG_OOB)
s.send(b'!', socket.MSG_OOB)
print('done')
";

#[test]
fn a_running_program_is_told_what_cannot_be_served() {
    if skipped_without_python("a_running_program_is_told_what_cannot_be_served") {
        return;
    }
    let with = |how: &str| {
        let flag = format!("--on-unsupported={how}");
        run([flag.as_str(), "--log=off", "python3", "-c", UNSUPPORTED]).output().expect("bypath starts")
    };
    let lines = |output: &Output| stderr(output).matches("(recalled-oob)").count();
    let quiet = with("fallback");
    assert_eq!((stdout(&quiet).as_str(), lines(&quiet)), ("done\n", 0), "{}", stderr(&quiet));
    for (how, word) in [("warn", "warning:"), ("error", "error:")] {
        let told = with(how);
        // Once for a reason, however often it applies.
        assert_eq!((stdout(&told).as_str(), lines(&told)), ("done\n", 1), "{how}: {}", stderr(&told));
        assert!(stderr(&told).contains(word), "{how}: {}", stderr(&told));
    }
    let aborted = with("abort");
    assert_eq!(aborted.status.signal(), Some(rustix::process::Signal::ABORT.as_raw()), "{aborted:?}");
    assert_eq!(lines(&aborted), 1, "{}", stderr(&aborted));
}

#[test]
fn too_few_descriptors_are_told_before_and_while_it_runs() {
    if skipped_without_python("too_few_descriptors_are_told_before_and_while_it_runs") {
        return;
    }
    let with = |limit: &str| {
        // The program's own descriptors are few; so are those of `bypath why`, which it starts.
        let script = "import os, socket, subprocess, sys\n\
                      s = socket.socket()\n\
                      r = subprocess.run([sys.argv[1], 'why', str(os.getpid())], capture_output=True, text=True)\n\
                      print(r.returncode, r.stdout)";
        Command::new("sh")
            .args(["-c", "ulimit -Sn $0; library=$1; shift; BYPATH_LIBRARY=$library exec \"$@\"", limit])
            .arg(preload_library())
            .args([common::BYPATH, "run", "--", "python3", "-c", script, common::BYPATH])
            .env("BYPATH_CONFIG", "none")
            .output()
            .expect("sh starts")
    };
    let few = with("255");
    assert!(few.status.success(), "{few:?}");
    for said in [stderr(&few), stdout(&few)] {
        for word in ["no-descriptors", "255", "256", "ulimit -n"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert!(stdout(&few).starts_with("1 Process "), "{}", stdout(&few));
    let enough = with("256");
    assert_eq!(stderr(&enough), "");
    assert!(stdout(&enough).starts_with("0 Process "), "{}", stdout(&enough));
}

/// A program that replaces descriptor 2 by a file of its own before anything is logged.
const OTHER_STDERR: &str = "
import os, socket, sys
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.dup2(f, 2)
l = socket.create_server(('127.0.0.1', 0))
s = socket.create_connection(l.getsockname())
t, _ = l.accept()
for n in range(40):
    s.sendall(b'x' * 1000); t.recv(1000, socket.MSG_WAITALL); t.sendall(b'y'); s.recv(1)
s.send(b'!', socket.MSG_OOB)
";

#[test]
fn log_lines_go_to_standard_error_as_it_was() {
    if skipped_without_python("log_lines_go_to_standard_error_as_it_was") {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("own");
    for (options, expected) in [
        // Lines are to be expected: the descriptor is kept from the start.
        (&["--log=debug"][..], true),
        // None was: a line that comes later has nowhere to go.
        (&["--log=warn", "--on-unsupported=warn"], false),
    ] {
        let output = run(options).args(["python3", "-c", OTHER_STDERR]).arg(&file).output();
        let output = output.expect("bypath starts");
        let text = stderr(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(text.contains("bypath["), expected, "{options:?}: {text}");
        assert_eq!(text.contains("]: debug: fd "), expected, "{options:?}: {text}");
        assert_eq!(fs::read(&file).expect("the program's file"), b"", "the program's own file");
    }
}

#[test]
fn scripts_are_judged_by_their_interpreter() {
    let dir = TempDir::new();
    let program = dir.join("static");
    executable(&program, &static_program());
    executable(&dir.join("script"), format!("#!{}\n", program.display()).as_bytes());
    executable(&dir.join("second"), format!("#!{}\n", dir.join("script").display()).as_bytes());
    executable(&dir.join("through-env"), b"#!/usr/bin/env static\n");
    executable(&dir.join("dynamic"), b"#!/bin/sh\nexit 3\n");
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    for script in ["script", "second", "through-env"] {
        let output =
            run(["--on-unsupported=error", script]).env("PATH", &path).output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{script}: {text}");
        assert!(text.contains(program.to_str().expect("UTF-8")), "names the interpreter: {text}");
    }
    let output = run(["--on-unsupported=error", "dynamic"]).env("PATH", &path).output().expect("it starts");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn programs_of_other_machines_and_c_libraries_are_recognised() {
    let dir = TempDir::new();
    let mut other = static_program();
    other[18..20].copy_from_slice(&243u16.to_le_bytes());
    executable(&dir.join("riscv"), &other);
    let output = run(["--on-unsupported=error"]).arg(dir.join("riscv")).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("64-bit RISC-V program"), "{}", stderr(&output));

    // Its one segment becomes the name of a dynamic loader.
    let mut musl = static_program();
    musl[64..68].copy_from_slice(&3u32.to_le_bytes());
    let loader = b"/lib/ld-musl-any.so.1\0";
    musl[72..80].copy_from_slice(&120u64.to_le_bytes());
    musl[96..104].copy_from_slice(&(loader.len() as u64).to_le_bytes());
    musl.truncate(120);
    musl.extend(loader);
    executable(&dir.join("musl"), &musl);
    let output = run(["--on-unsupported=error"]).arg(dir.join("musl")).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("another C library"), "{}", stderr(&output));
}

#[test]
fn broken_programs_are_the_kernels_to_refuse() {
    let dir = TempDir::new();
    let mut cut = static_program();
    cut.truncate(70);
    executable(&dir.join("cut"), &cut);
    executable(&dir.join("garbage"), b"\x7fELF\xff\xff\xff\xff");
    executable(&dir.join("empty"), b"");
    for name in ["cut", "garbage"] {
        // A shell may take it for a script, and what stands in it for a redirection.
        let output = run(["--on-unsupported=error"]).arg(dir.join(name)).current_dir(dir.path()).output();
        let output = output.expect("bypath starts");
        assert!(matches!(output.status.code(), Some(126 | 127 | 2)), "{name}: {output:?}");
    }
    // What is neither a program nor a script is a shell script, as with every shell.
    assert!(run(["--"]).arg(dir.join("empty")).output().expect("it starts").status.success());
}

#[test]
fn who_locks_the_statistics_file_holds_nobody_up() {
    use rustix::fs::{FlockOperation, flock};
    if skipped_without_python("who_locks_the_statistics_file_holds_nobody_up") {
        return;
    }
    let dir = TempDir::new();
    let counters = dir.join("counters");
    fs::write(&counters, "").expect("a file");
    let reader = fs::File::open(&counters).expect("the file");
    flock(&reader, FlockOperation::LockShared).expect("a lock");
    let sockets = "import os, socket; socket.socket(); os.fork(); socket.socket()";
    let mut running: Vec<_> = (0..4)
        .map(|_| run(["--stats"]).arg(&counters).args(["python3", "-c", sockets]).spawn().expect("it starts"))
        .collect();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let ended =
        |child: &mut std::process::Child| child.try_wait().expect("a child").is_some_and(|s| s.success());
    while !running.iter_mut().all(ended) {
        if std::time::Instant::now() > end {
            running.iter_mut().for_each(|child| drop(child.kill()));
            panic!("a lock on the statistics file holds its programs up");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // One for each process.
    let stats = bypath(["stats", "--json"]).arg(&counters).output().expect("bypath starts");
    let rows: serde_json::Value = serde_json::from_str(&stdout(&stats)).expect("JSON");
    assert_eq!(rows.to_string().matches("\"python3\"").count(), 8, "{rows}");
}

#[test]
fn a_later_image_does_not_append_to_a_statistics_file_of_another_user() {
    let name = "a_later_image_does_not_append_to_a_statistics_file_of_another_user";
    if skipped_without_python(name) {
        return;
    }
    let dir = TempDir::new();
    let counters = dir.join("counters");
    let script =
        "rm counters; : > counters; chown 12345 counters && exec python3 -c 'import socket; socket.socket()'";
    let output = run(["--stats", "counters", "sh", "-c", script])
        .current_dir(dir.path())
        .output()
        .expect("bypath starts");
    if !output.status.success() {
        return skip(&format!("run::{name}"), "only root can give a file away");
    }
    let left = fs::metadata(&counters).expect("the file");
    assert_eq!((left.len(), left.uid()), (0, 12_345));
    assert!(stderr(&output).contains("cannot write statistics"), "{}", stderr(&output));
}

#[test]
fn a_later_image_appends_nothing_to_a_file_of_something_else() {
    if skipped_without_python("a_later_image_appends_nothing_to_a_file_of_something_else") {
        return;
    }
    let dir = TempDir::new();
    let script = "printf 'something else' > counters && exec python3 -c 'import socket; socket.socket()'";
    let output = run(["--stats", "counters", "sh", "-c", script])
        .current_dir(dir.path())
        .output()
        .expect("bypath starts");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(dir.join("counters")).expect("the file"), b"something else");
    assert!(stderr(&output).contains("cannot write statistics"), "{}", stderr(&output));
}

#[test]
fn statistics_file_is_made_absolute_and_checked() {
    let dir = TempDir::new();
    let output = run(["--stats", "counters", "sh", "-c", "cd / && echo $BYPATH_STATS"])
        .current_dir(dir.path())
        .output()
        .expect("bypath starts");
    let expected = dir.join("counters");
    assert_eq!(stdout(&output).trim(), expected.to_str().expect("UTF-8"), "{}", stderr(&output));
    // Who can only read it could hold up who appends.
    let mode = fs::metadata(&expected).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    fs::write(dir.join("precious"), "my notes").expect("a file");
    fs::write(dir.join("empty"), "").expect("a file");
    std::os::unix::fs::symlink("empty", dir.join("link")).expect("a link");
    fs::write(dir.join("others"), "").expect("a file");
    // Only root can give a file away.
    let is_given = std::os::unix::fs::chown(dir.join("others"), Some(12_345), None).is_ok();
    for (file, part) in [
        (dir.join("link"), "not a regular file"),
        (
            if is_given { dir.join("others") } else { dir.join("link") },
            if is_given { "belongs to user 12345" } else { "not a regular file" },
        ),
        (dir.join("precious"), "something other than statistics"),
        (dir.join("no/such/directory"), "cannot be written"),
        (dir.path().to_owned(), "not a regular file"),
    ] {
        let output = run(["--stats"]).arg(&file).arg("true").output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.contains(part)), (Some(125), true), "{text}");
    }
    assert_eq!(fs::read(dir.join("precious")).expect("the file"), b"my notes");
}

/// As who owns a folder on the way can have it.
#[test]
fn a_folder_that_becomes_a_link_leads_no_statistics_elsewhere() {
    if skipped_without_python("a_folder_that_becomes_a_link_leads_no_statistics_elsewhere") {
        return;
    }
    let dir = TempDir::new();
    for folder in ["way", "way/on", "elsewhere", "elsewhere/on"] {
        fs::create_dir(dir.join(folder)).expect("a folder");
    }
    let counted = "exec python3 -c 'import socket; socket.socket()'";
    let start = |before: &str| {
        let output = run(["--stats", "way/on/counters", "sh", "-c", &format!("{before}{counted}")])
            .current_dir(dir.path())
            .output()
            .expect("bypath starts");
        assert!(output.status.success());
        let length = |path: &str| fs::metadata(dir.join(path)).map_or(0, |found| found.len());
        (stderr(&output), ["gone/on/counters", "elsewhere/on/counters"].map(length))
    };
    let (text, lengths) = start("mv way gone; ln -s elsewhere way; ");
    assert!(text.contains("name the file without symbolic links"), "{text}");
    assert_eq!(lengths, [0, 0]);
    // A link that was on the way from the beginning is followed once and for all.
    let (text, lengths) = start("");
    assert_eq!((text.as_str(), lengths), ("", [0, RECORD_SIZE as u64]));
}

#[test]
fn no_link_of_another_user_leads_to_a_statistics_file() {
    let name = "no_link_of_another_user_leads_to_a_statistics_file";
    let dir = TempDir::new();
    let (shared, own) = (dir.join("shared"), dir.join("own"));
    fs::create_dir(&shared).expect("a folder");
    fs::create_dir(&own).expect("a folder");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).expect("its owner");
    std::os::unix::fs::symlink("../own", shared.join("link")).expect("a link");
    let start = || run(["--stats"]).arg(shared.join("link/new")).arg("true").output().expect("bypath starts");
    assert!(start().status.success() && own.join("new").exists(), "a link of one's own");
    fs::remove_file(own.join("new")).expect("the file");
    if std::os::unix::fs::lchown(shared.join("link"), Some(12_345), None).is_err() {
        return skip(name, "only root can give a link away");
    }
    let output = start();
    let text = stderr(&output);
    assert!(text.contains("another user's, in a folder to which others may write"), "{text}");
    assert_eq!((output.status.code(), own.join("new").exists()), (Some(125), false));
}
