//! The examples, built as a user builds them and run over two connected interfaces in a network of their own.

use crate::common::{TempDir, compile, installed, isolated, make, need, output, pass, tool, workspace};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
    let command = |name: &str| tool(program(name), prefix);

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
    if !need(test, &["pkg-config", "c++", "readelf"]) || !isolated(test) {
        return;
    }
    let prefix = installed();
    let sources = workspace().join("examples/c");
    for (file, name) in
        [("interfaces.c", "interfaces"), ("hello.c", "hello"), ("ping.c", "ping"), ("hello.cpp", "hello_cpp")]
    {
        compile(prefix.path(), package, &sources.join(file), &prefix.join(name), &[]);
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
    if !need(NAME, &["cmake", "c++"]) || !isolated(NAME) {
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

#[test]
fn what_is_installed_is_removed() {
    let destination = TempDir::new();
    let files = || -> Vec<String> {
        let mut find = Command::new("find");
        let text = pass(find.arg(destination.path()).args(["-not", "-type", "d", "-printf", "%P\n"]));
        let mut names: Vec<_> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    make("install-c", destination.path(), "/opt/bypath");
    let there = files();
    for name in ["include/bypath.hpp", "lib/libbypath.a", "lib/libbypath.so.0", "lib/pkgconfig/bypath.pc"] {
        assert!(there.contains(&format!("opt/bypath/{name}")), "{name}: {there:?}");
    }
    // What is moved to its place later is not told where it was put for now.
    for name in
        ["lib/pkgconfig/bypath.pc", "lib/pkgconfig/bypath-static.pc", "lib/cmake/Bypath/BypathConfig.cmake"]
    {
        let text = std::fs::read_to_string(destination.join(format!("opt/bypath/{name}"))).expect("a file");
        assert!(!text.contains(destination.path().to_str().expect("UTF-8")) && !text.contains('@'), "{text}");
    }
    std::fs::write(destination.join("opt/bypath/lib/other"), "").expect("a file");
    make("uninstall-c", destination.path(), "/opt/bypath");
    assert_eq!(files(), ["opt/bypath/lib/other"]);
}
