//! The tests that are written in C and C++ (`tests/c`), compiled and run.

use crate::common::{
    TempDir, compile, crate_root, faulty_libraries, installed, isolated, need, pass, privileged, tool,
    tun_devices,
};
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

const MEMCHECK: [&str; 5] =
    ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];

#[test]
fn valgrind_complains_of_nothing() {
    run("written::valgrind_complains_of_nothing", "interface.c", "bypath", &["-pthread"], &MEMCHECK);
}

#[test]
fn valgrind_complains_of_nothing_about_capture_files() {
    const NAME: &str = "written::valgrind_complains_of_nothing_about_capture_files";
    if !need(NAME, &["valgrind"]) {
        return;
    }
    let Some(place) = run_capture(NAME, "capture.c", "bypath", &[]) else { return };
    let mut memcheck = tool(MEMCHECK[0], place.path());
    memcheck.args(&MEMCHECK[1..]).arg(place.join("tests")).arg(place.path());
    assert_eq!(pass(&mut memcheck), "all as it should be\n");
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

/// AF_XDP needs rights that no user namespace gives.
fn run_xdp(test: &str, source: &str, package: &str, flags: &[&str]) {
    if !need(test, &["pkg-config", "c++"]) {
        return;
    }
    privileged(test, || {
        let prefix = installed();
        let program = prefix.join("tests");
        compile(prefix.path(), package, &crate_root().join("tests/c").join(source), &program, flags);
        assert_eq!(pass(&mut tool(&program, prefix.path())), "all as it should be\n");
    });
}

#[test]
fn af_xdp_from_c() {
    run_xdp("written::af_xdp_from_c", "xdp.c", "bypath", &[]);
}

#[test]
fn af_xdp_from_c_by_the_archive() {
    run_xdp("written::af_xdp_from_c_by_the_archive", "xdp.c", "bypath-static", &[]);
}

#[test]
fn af_xdp_from_cpp() {
    run_xdp("written::af_xdp_from_cpp", "xdp.cpp", "bypath", &["-fno-exceptions", "-fno-rtti"]);
}

#[test]
fn af_xdp_from_cpp_by_the_archive() {
    run_xdp("written::af_xdp_from_cpp_by_the_archive", "xdp.cpp", "bypath-static", &[]);
}

/// Compiles and runs one of the tests of capture files, and returns where it left them.
fn run_capture(test: &str, source: &str, package: &str, flags: &[&str]) -> Option<TempDir> {
    if !need(test, &["pkg-config", "c++"]) {
        return None;
    }
    let prefix = installed();
    let program = prefix.join("tests");
    compile(prefix.path(), package, &crate_root().join("tests/c").join(source), &program, flags);
    assert_eq!(pass(tool(&program, prefix.path()).arg(prefix.path())), "all as it should be\n");
    Some(prefix)
}

#[test]
fn capture_files_from_c() {
    run_capture("written::capture_files_from_c", "capture.c", "bypath", &[]);
}

#[test]
fn capture_files_from_c_by_the_archive() {
    run_capture("written::capture_files_from_c_by_the_archive", "capture.c", "bypath-static", &[]);
}

#[test]
fn capture_files_from_cpp() {
    let flags = ["-fno-exceptions", "-fno-rtti"];
    run_capture("written::capture_files_from_cpp", "capture.cpp", "bypath", &flags);
}

#[test]
fn capture_files_from_cpp_by_the_archive() {
    run_capture("written::capture_files_from_cpp_by_the_archive", "capture.cpp", "bypath-static", &[]);
}

/// An independent reader sees what was written, and what it writes is read.
#[test]
fn tshark_reads_the_capture_files_of_c_and_c_those_of_tshark() {
    const NAME: &str = "written::tshark_reads_the_capture_files_of_c_and_c_those_of_tshark";
    if !need(NAME, &["tshark"]) {
        return;
    }
    let Some(place) = run_capture(NAME, "capture.c", "bypath", &[]) else { return };
    let fields = [
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "frame.interface_name",
        "frame.packet_flags_direction",
        "vlan.id",
        "vlan.priority",
    ];
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-E", "separator=|", "-r"]).arg(place.join("ours.pcapng"));
    tshark.args(fields.iter().flat_map(|f| ["-e", f]));
    let text = pass(&mut tshark);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("1800000000.123456789|60|60|eth7|"), "{text}");
    assert!(lines[1].starts_with("1800000000.123456790|1000|120|eth7|"), "{text}");
    assert!(
        lines[2].starts_with("1800000000.123456791|102|72|eth7|") && lines[2].ends_with("|10,20|7,1"),
        "{text}"
    );
    assert!(lines[3].starts_with("1800000000.123456792|64|64|eth7|"), "{text}");
    // Written anew by tshark, the same file passes the same test.
    let theirs = TempDir::new();
    let mut tshark = Command::new("tshark");
    tshark.args(["-F", "pcapng", "-r"]).arg(place.join("ours.pcapng"));
    pass(tshark.arg("-w").arg(theirs.join("ours.pcapng")));
    let mut again = tool(place.join("tests"), place.path());
    assert_eq!(pass(again.arg(theirs.path()).arg("read")), "all as it should be\n");
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

/// Compiles and runs one of the tests of TUN devices.
fn run_tun(test: &str, source: &str, package: &str, flags: &[&str], under: &[&str]) {
    if !need(test, &["pkg-config", "c++"]) || !need(test, under.get(..1).unwrap_or(&[])) || !isolated(test) {
        return;
    }
    if !tun_devices(test) {
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
fn tun_from_c() {
    run_tun("written::tun_from_c", "tun.c", "bypath", &[], &[]);
}

#[test]
fn tun_from_c_by_the_archive() {
    run_tun("written::tun_from_c_by_the_archive", "tun.c", "bypath-static", &[], &[]);
}

#[test]
fn tun_from_cpp() {
    run_tun("written::tun_from_cpp", "tun.cpp", "bypath", &["-fno-exceptions", "-fno-rtti"], &[]);
}

#[test]
fn tun_from_cpp_by_the_archive() {
    run_tun("written::tun_from_cpp_by_the_archive", "tun.cpp", "bypath-static", &[], &[]);
}

#[test]
fn valgrind_complains_of_nothing_about_tun() {
    run_tun("written::valgrind_complains_of_nothing_about_tun", "tun.c", "bypath", &[], &MEMCHECK);
}

#[test]
fn a_netstack_from_c() {
    run_tun("written::a_netstack_from_c", "netstack.c", "bypath", &["-pthread"], &[]);
}

#[test]
fn a_netstack_from_c_by_the_archive() {
    let test = "written::a_netstack_from_c_by_the_archive";
    run_tun(test, "netstack.c", "bypath-static", &["-pthread"], &[]);
}

#[test]
fn a_netstack_from_cpp() {
    let flags = ["-fno-exceptions", "-fno-rtti"];
    run_tun("written::a_netstack_from_cpp", "netstack.cpp", "bypath", &flags, &[]);
}

#[test]
fn a_netstack_from_cpp_by_the_archive() {
    run_tun("written::a_netstack_from_cpp_by_the_archive", "netstack.cpp", "bypath-static", &[], &[]);
}

#[test]
fn valgrind_complains_of_nothing_about_a_netstack() {
    let test = "written::valgrind_complains_of_nothing_about_a_netstack";
    run_tun(test, "netstack.c", "bypath", &["-pthread"], &MEMCHECK);
}

#[test]
fn a_netstack_without_a_thread_from_c() {
    let test = "written::a_netstack_without_a_thread_from_c";
    run_tun(test, "in_process.c", "bypath", &["-pthread"], &[]);
}

#[test]
fn tcp_from_c() {
    run_tun("written::tcp_from_c", "tcp.c", "bypath", &["-pthread"], &[]);
}

#[test]
fn tcp_from_c_by_the_archive() {
    run_tun("written::tcp_from_c_by_the_archive", "tcp.c", "bypath-static", &["-pthread"], &[]);
}

#[test]
fn tcp_from_cpp() {
    run_tun("written::tcp_from_cpp", "tcp.cpp", "bypath", &["-fno-exceptions", "-fno-rtti"], &[]);
}

#[test]
fn valgrind_complains_of_nothing_about_tcp() {
    run_tun("written::valgrind_complains_of_nothing_about_tcp", "tcp.c", "bypath", &["-pthread"], &MEMCHECK);
}

#[test]
fn forwarding_from_c() {
    run_tun("written::forwarding_from_c", "forward.c", "bypath", &[], &[]);
}

#[test]
fn valgrind_complains_of_nothing_about_forwarding() {
    run_tun("written::valgrind_complains_of_nothing_about_forwarding", "forward.c", "bypath", &[], &MEMCHECK);
}

/// A service named `lab` on a cable in memory, with 10.0.0.2, that runs as long as `f` does.
fn with_service(folder: &Path, f: impl FnOnce(&Path)) {
    use bypath_netstack::Engine;
    use bypath_netstack::service::{Service, Settings};
    let mut engine = Engine::new(bypath_stack::config::Config::default());
    let (own, _other) = bypath_link::pair::pair(1500, 64);
    let iface = engine.add_link("cable", Box::new(own)).expect("an interface");
    let own = "10.0.0.2/24".parse().expect("an address");
    engine.stack().add_address(Engine::now(), iface, own).expect("an address");
    let settings = Settings { name: "lab".to_owned(), folder: folder.to_owned(), ..Settings::default() };
    let mut service = Service::open(engine, settings).expect("a service");
    let stopper = service.stopper();
    std::thread::scope(|scope| {
        let runs = scope.spawn(move || service.run());
        f(&folder.join("lab"));
        stopper.stop();
        runs.join().expect("no panic").expect("it was stopped");
    });
}

#[test]
fn a_service_is_asked_from_c_and_cpp() {
    const NAME: &str = "written::a_service_is_asked_from_c_and_cpp";
    if !need(NAME, &["cc", "c++", "pkg-config"]) {
        return;
    }
    let (prefix, folder) = (installed(), TempDir::new());
    with_service(folder.path(), |path| {
        for (source, flags) in [("service.c", &[][..]), ("service.cpp", &["-fno-exceptions", "-fno-rtti"])] {
            let program = prefix.join(source.replace('.', "_"));
            compile(prefix.path(), "bypath", &crate_root().join("tests/c").join(source), &program, flags);
            let mut asks = tool(&program, prefix.path());
            let text = pass(asks.arg(path).env("BYPATH_NETSTACK_DIR", folder.path()));
            assert_eq!(text, "all as it should be\n");
        }
    });
}

#[test]
fn processes_have_a_channel_by_c_and_by_cpp() {
    const NAME: &str = "written::processes_have_a_channel_by_c_and_by_cpp";
    if !need(NAME, &["cc", "c++", "pkg-config"]) {
        return;
    }
    let (prefix, folder) = (installed(), TempDir::new());
    let cpp = &["-fno-exceptions", "-fno-rtti", "-pthread"][..];
    for (source, flags) in [
        ("channel.c", &[][..]),
        ("channel.cpp", cpp),
        ("channel_datagram.c", &[]),
        ("channel_datagram.cpp", cpp),
    ] {
        let program = prefix.join(source.replace('.', "_"));
        compile(prefix.path(), "bypath", &crate_root().join("tests/c").join(source), &program, flags);
        let text = pass(tool(&program, prefix.path()).arg(folder.join("name")));
        assert_eq!(text, "all as it should be\n");
    }
}
