//! The examples, built as a user builds them and run over two connected interfaces in a network of their own.

use crate::common::{TempDir, crate_root, have, installed, make, output, pass, skip, workspace};
use bypath_sys::netns;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];

/// A command that knows where the library was installed.
fn tool(program: &str, prefix: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

/// Compiles one example with the flags that pkg-config gives for `package`, and nothing else.
fn compile(prefix: &Path, package: &str, source: &Path, to: &Path) {
    let flags = pass(tool("pkg-config", prefix).args(["--cflags", "--libs", package]));
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let mut command = Command::new(if cpp { "c++" } else { "cc" });
    command.args(if cpp { &["-std=c++17", "-fno-exceptions"][..] } else { &["-std=c11"][..] });
    command.args(WARNINGS).arg(source).arg("-o").arg(to).args(flags.split_whitespace());
    pass(&mut command);
}

/// Runs the test `name` again in a user and network namespace of its own, and returns true in there.
fn isolated(name: &str) -> bool {
    const INSIDE: &str = "BYPATH_TEST_NAMESPACE";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        netns::veth("left", "right", None).expect("a veth pair");
        for name in ["left", "right", "lo"] {
            netns::set_up(name, true).expect("an interface that is up");
        }
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
    false
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

fn end(mut child: Child, mut out: impl Read) -> String {
    let mut text = String::new();
    out.read_to_string(&mut text).expect("UTF-8");
    assert!(child.wait().expect("an end").success(), "{text}");
    text
}

/// Runs all examples; `program` gives the path of one.
fn run_all(prefix: &Path, program: impl Fn(&str) -> PathBuf) {
    let command = |name: &str| tool(program(name).to_str().expect("UTF-8"), prefix);

    let text = pass(&mut command("interfaces"));
    assert!(text.contains(" left ") && text.contains(" right ") && text.contains(" lo "), "{text}");

    let mut waits = start(command("hello").arg("right"));
    let out = waits.stdout.take().expect("its output");
    let text = pass(command("hello").args(["left", "hello there"]));
    assert!(text.ends_with("on VLAN 10 priority 7: I am here\n"), "{text}");
    let text = end(waits, out);
    assert!(text.ends_with("on VLAN 10 priority 7: hello there\n"), "{text}");

    let mac = |name: &str| {
        let all = bypath_sys::netif::by_name(name).expect("an interface").mac;
        all.map(|octet| format!("{octet:02x}")).join(":")
    };
    let mut echo = start(command("ping").args(["right", "echo"]));
    let mut out = BufReader::new(echo.stdout.take().expect("its output"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let text = pass(command("ping").args(["left", &mac("right"), "500"]));
    assert!(text.starts_with("500 round trips: least "), "{text}");
    assert_eq!(end(echo, out), "500 frames answered\n");

    let text =
        pass(command("hello_cpp").args(["left", "right", "hello in C++, in a frame that needs no padding"]));
    assert_eq!(text, "VLAN 10 priority 7: hello in C++, in a frame that needs no padding\n");

    // What goes wrong is told, with the remedy.
    let wrong = output(command("hello").arg("nowhere"));
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text.contains("nowhere: no such interface; there are: lo, "), "{text}");
}

fn by_pkg_config(test: &str, package: &str, linked: bool) {
    if !have("pkg-config") {
        return skip(test, "pkg-config is not installed");
    }
    if !isolated(test) {
        return;
    }
    let prefix = installed();
    let sources = workspace().join("examples/c");
    for (file, name) in
        [("interfaces.c", "interfaces"), ("hello.c", "hello"), ("ping.c", "ping"), ("hello.cpp", "hello_cpp")]
    {
        compile(prefix.path(), package, &sources.join(file), &prefix.join(name));
        let needs = pass(Command::new("readelf").arg("-dW").arg(prefix.join(name)));
        assert_eq!(needs.contains("[libbypath.so.0]"), linked, "{needs}");
    }
    run_all(prefix.path(), |name| prefix.join(name));
}

#[test]
fn examples_run_against_the_shared_library() {
    by_pkg_config("examples::examples_run_against_the_shared_library", "bypath", true);
}

#[test]
fn examples_run_against_the_archive() {
    by_pkg_config("examples::examples_run_against_the_archive", "bypath-static", false);
}

#[test]
fn examples_build_with_cmake() {
    const NAME: &str = "examples::examples_build_with_cmake";
    if !have("cmake") {
        return skip(NAME, "cmake is not installed (Debian package cmake)");
    }
    if !isolated(NAME) {
        return;
    }
    let prefix = installed();
    let build = prefix.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(workspace().join("examples/c")).arg("-B").arg(&build);
    pass(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.path().display())));
    pass(Command::new("cmake").arg("--build").arg(&build));
    for kind in ["bypath", "bypath_static"] {
        run_all(prefix.path(), |name| build.join(format!("{name}_{kind}")));
    }
}

/// Compiles the tests written in C and runs them, `under` another program if one is named.
fn in_c(test: &str, under: &[&str]) {
    if !isolated(test) {
        return;
    }
    let prefix = installed();
    let program = prefix.join("bad");
    compile(prefix.path(), "bypath", &crate_root().join("tests/c/interface.c"), &program);
    let mut command = match under {
        [] => tool(program.to_str().expect("UTF-8"), prefix.path()),
        [first, rest @ ..] => {
            let mut command = tool(first, prefix.path());
            command.args(rest).arg(&program);
            command
        }
    };
    assert_eq!(pass(&mut command), "all as it should be\n");
}

#[test]
fn bad_arguments_and_every_function() {
    in_c("examples::bad_arguments_and_every_function", &[]);
}

#[test]
fn what_is_installed_is_removed() {
    let prefix: TempDir = installed();
    let files = |directory: &Path| -> Vec<String> {
        let text = pass(Command::new("find").arg(directory).args(["-not", "-type", "d", "-printf", "%P\n"]));
        let mut names: Vec<_> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    let there = files(prefix.path());
    for name in ["include/bypath.hpp", "lib/libbypath.a", "lib/libbypath.so.0", "lib/pkgconfig/bypath.pc"] {
        assert!(there.iter().any(|f| f == name), "{name}: {there:?}");
    }
    std::fs::write(prefix.join("lib/other"), "").expect("a file");
    make("uninstall-c", prefix.path());
    assert_eq!(files(prefix.path()), ["lib/other"]);
}
