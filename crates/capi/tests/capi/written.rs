//! The tests that are written in C and C++ (`tests/c`), compiled and run.

use crate::common::{compile, crate_root, faulty_libraries, installed, isolated, need, pass, tool};
use std::path::Path;
use std::process::Command;

/// Compiles the tests in `source` and runs them, as arguments of `under`.
fn run(test: &str, source: &str, package: &str, flags: &[&str], under: &[&str]) {
    if !need(test, &["pkg-config", "c++"]) || !need(test, under.get(..1).unwrap_or(&[])) || !isolated(test) {
        return;
    }
    let prefix = installed();
    let program = prefix.join("tests");
    compile(prefix.path(), package, &crate_root().join("tests/c").join(source), &program, flags);
    let text = match under {
        [] => pass(&mut tool(&program, prefix.path())),
        [first, rest @ ..] => pass(tool(first, prefix.path()).args(rest).arg(&program)),
    };
    assert_eq!(text, "all as it should be\n");
}

#[test]
fn every_function_and_bad_arguments() {
    run("written::every_function_and_bad_arguments", "interface.c", "bypath", &["-pthread"], &[]);
}

#[test]
fn the_archive_does_the_same() {
    run("written::the_archive_does_the_same", "interface.c", "bypath-static", &["-pthread"], &[]);
}

#[test]
fn valgrind_complains_of_nothing() {
    let memcheck = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
    ];
    run("written::valgrind_complains_of_nothing", "interface.c", "bypath", &["-pthread"], &memcheck);
}

#[test]
fn the_classes_of_cpp() {
    run("written::the_classes_of_cpp", "interface.cpp", "bypath", &[], &[]);
}

#[test]
fn the_classes_of_cpp_without_exceptions() {
    let flags = ["-fno-exceptions", "-fno-rtti"];
    run("written::the_classes_of_cpp_without_exceptions", "interface.cpp", "bypath", &flags, &[]);
}

#[test]
fn a_panic_does_not_leave_the_library() {
    if !isolated("written::a_panic_does_not_leave_the_library") {
        return;
    }
    let libraries = faulty_libraries();
    let prefix = crate::common::TempDir::new();
    for (kind, link) in [
        ("shared", &["-L", ".", "-Wl,-rpath,.", "-l:libbypath.so"][..]),
        ("archive", &["-L", ".", "-l:libbypath.a", "-lgcc_s", "-lm"][..]),
    ] {
        let program = prefix.join(kind);
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-Werror", "-pthread", "-I"]).arg(crate_root().join("include"));
        command.arg(crate_root().join("tests/c/panic.c")).arg("-o").arg(&program).args(link);
        pass(command.current_dir(&libraries));
        // The file has the name that programs are not linked to: a link with that name stands beside.
        let needed = prefix.join("libbypath.so.0");
        if !needed.exists() {
            std::os::unix::fs::symlink(libraries.join("libbypath.so"), &needed).expect("a link");
        }
        let mut command = tool(&program, Path::new(""));
        assert_eq!(pass(command.env("LD_LIBRARY_PATH", prefix.path())), "all as it should be\n", "{kind}");
    }
}
