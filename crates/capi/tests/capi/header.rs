//! bypath.h is what the sources say, and compiles cleanly.

use crate::common::{TempDir, crate_root, need, output, pass};
use std::process::Command;

fn generated() -> String {
    let root = crate_root();
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    let mut sources: Vec<_> = std::fs::read_dir(root.join("src"))
        .expect("the sources")
        .map(|e| e.expect("an entry").path())
        // lib.rs would bring in all the others a second time; what is for tests only is in no header.
        .filter(|p| {
            p.extension().is_some_and(|e| e == "rs") && !p.ends_with("lib.rs") && !p.ends_with("fault.rs")
        })
        .collect();
    // The order in the header: what is used stands before what uses it.
    let order = [
        "status",
        "mac",
        "types",
        "interface",
        "xdp",
        "options",
        "socket",
        "obtained",
        "send",
        "receive",
        "tun",
        "netstack",
        "in_process",
        "service",
        "tcp_options",
        "tcp",
        "tcp_listener",
        "udp",
        "capture",
        "capture_writer",
        "capture_reader",
        "channel",
        "channel_datagram",
    ];
    sources.sort_by_key(|p| {
        order.iter().position(|o| p.file_stem().is_some_and(|s| s == *o)).unwrap_or(order.len())
    });
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().expect("a header").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

#[test]
fn the_committed_header_is_what_the_sources_say() {
    let path = crate_root().join("include/bypath.h");
    let new = generated();
    if std::env::var_os("BYPATH_WRITE_HEADER").is_some() {
        std::fs::write(&path, &new).expect("bypath.h");
    }
    let committed = std::fs::read_to_string(&path).expect("bypath.h");
    let difference = new.lines().zip(committed.lines()).find(|(n, c)| n != c);
    assert!(
        new == committed,
        "include/bypath.h differs from the sources, first in {difference:?}; to write it anew: \
         BYPATH_WRITE_HEADER=1 cargo test -p bypath-capi --test capi header"
    );
}

/// Every item that the header declares has a comment before it.
fn undocumented(header: &str) -> Vec<String> {
    let lines: Vec<&str> = header.lines().collect();
    let item = |line: &str| {
        line.starts_with("#define BYPATH_") && line.split_whitespace().count() > 2
            || line.starts_with("typedef ")
                && !line.starts_with("typedef struct bypath_") | line.ends_with(';')
            || line.starts_with("typedef struct ")
            || line.contains(" bypath_") && line.contains('(') && !line.starts_with([' ', '/', '*'])
            || line.starts_with("    ") && line.ends_with(';')
    };
    let commented = |at: usize| at > 0 && lines[at - 1].trim_start().starts_with("//");
    (0..lines.len())
        // Parameters on lines of their own belong to the function above them.
        .filter(|&at| item(lines[at]) && !lines[at].ends_with(");") | lines[at].contains('('))
        .filter(|&at| !commented(at))
        .map(|at| lines[at].to_owned())
        .collect()
}

#[test]
fn every_item_is_explained_and_stands_there_once() {
    let header = std::fs::read_to_string(crate_root().join("include/bypath.h")).expect("bypath.h");
    let mut functions: Vec<&str> =
        header.lines().filter(|l| !l.starts_with(['/', ' ', '#', '}', 't']) && l.contains('(')).collect();
    functions.sort_unstable();
    let twice: Vec<_> = functions.windows(2).filter(|two| two[0] == two[1]).collect();
    assert!(functions.len() > 20 && twice.is_empty(), "{functions:?}");
    assert_eq!(undocumented(&header), Vec::<String>::new());
    let bare = "#define BYPATH_X 1\n// y\n#define BYPATH_Y 1\nint32_t bypath_f(int x);\ntypedef struct bypath_s {\n    int a;\n";
    assert_eq!(undocumented(bare).len(), 4, "{:?}", undocumented(bare));
}

#[test]
fn headers_compile_without_a_warning() {
    if !need("header::headers_compile_without_a_warning", &["cc", "c++"]) {
        return;
    }
    let directory = TempDir::new();
    let include = crate_root().join("include");
    for (compiler, standard, file, header) in [
        ("cc", "-std=c11", "a.c", "bypath.h"),
        ("cc", "-std=c17", "b.c", "bypath.h"),
        ("c++", "-std=c++17", "c.cpp", "bypath.h"),
        ("c++", "-std=c++17", "d.cpp", "bypath.hpp"),
        ("c++", "-std=c++20", "e.cpp", "bypath.hpp"),
    ] {
        let source = directory.join(file);
        std::fs::write(&source, format!("#include <{header}>\n#include <{header}>\nint main(void);\n"))
            .expect("a source");
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
        command.arg(&include).arg(&source);
        pass(&mut command);
        if compiler == "c++" {
            pass(command.args(["-fno-exceptions", "-fno-rtti"]));
        }
    }
    // The flags do find something.
    let source = directory.join("bad.c");
    std::fs::write(&source, "#include <bypath.h>\nstatic int f(int unused) { return 0; }\n")
        .expect("a source");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
    assert!(!output(command.arg(&include).arg(&source)).status.success());
}
