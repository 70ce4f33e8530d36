//! The examples, built as a user builds them and run over two connected interfaces in a network of their own.

use crate::common::{
    TempDir, compile, installed, isolated, make, need, output, pass, privileged, tool, tun_devices, workspace,
};
use bypath_link::l2::{MacAddr, Socket};
use bypath_link::pcapng::Reader;
use bypath_link::pcapng::reader::Block;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
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

    // Several receive the same frame.
    let place = TempDir::new();
    let file = place.join("frames.pcapng");
    let mut records = start(command("record").arg("right").arg(&file).arg("2"));
    let mut out = BufReader::new(records.stdout.take().expect("its output"));
    line.clear();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready, by a packet socket\n");
    let hello = "hello in C++, in a frame that needs no padding";
    for _ in 0..2 {
        let text = pass(command("hello_cpp").args(["left", "right", hello]));
        assert_eq!(text, format!("VLAN 10 priority 7: {hello}\n"));
    }
    assert_eq!(end(records, out), "");
    let text = pass(command("record").arg(&file));
    assert_eq!(
        text.lines().filter(|l| l.ends_with(&format!(" right: {} octets", 18 + hello.len()))).count(),
        2,
        "{text}"
    );

    // Two hosts that the kernel knows nothing of.
    let mut echo = start(command("netstack").args(["packet:right", "10.1.0.2/24", "7", "3"]));
    let mut out = BufReader::new(echo.stdout.take().expect("its output"));
    line.clear();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready on right\n");
    let words = ["hello", "there", &"x".repeat(5000)];
    let text = pass(command("netstack_cpp").args(["packet:left", "10.1.0.1/24", "10.1.0.2:7"]).args(words));
    let answers: String = words.iter().map(|word| format!("10.1.0.2:7: {word}\n")).collect();
    assert_eq!(text, answers);
    let text = end(echo, out);
    assert!(text.lines().count() == 3 && text.ends_with(": 5000 octets\n"), "{text}");

    let mut echo = start(command("tcp_echo").args(["packet:right", "10.1.0.2/24", "7", "2"]));
    let mut out = BufReader::new(echo.stdout.take().expect("its output"));
    line.clear();
    out.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    for _ in 0..2 {
        let text = pass(command("tcp_lines").args(["packet:left", "10.1.0.1/24", "10.1.0.2:7"]).args(words));
        assert_eq!(text, words.map(|word| format!("{word}\n")).concat());
    }
    let text = end(echo, out);
    assert!(text.lines().count() == 2 && text.lines().all(|line| line.starts_with("10.1.0.1:")), "{text}");

    if tun_devices("examples") {
        through_tun(&command);
        by_http(&command);
    }

    // What goes wrong is told, with the remedy.
    let wrong = output(command("hello").arg("nowhere"));
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(text.contains("nowhere: no such interface; there are: lo, "), "{text}");
}

/// The examples that make a TUN device: an ordinary socket answers, and receives a file.
fn through_tun(command: &impl Fn(&str) -> Command) {
    // The address is the device's, which is not there yet.
    std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1").expect("a setting of this namespace");
    let echo = UdpSocket::bind("10.9.0.1:0").expect("a socket");
    let address = echo.local_addr().expect("an address").to_string();
    let answers = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        for _ in 0..3 {
            let (len, from) = echo.recv_from(&mut buffer).expect("a datagram");
            echo.send_to(&buffer[..len], from).expect("an answer");
        }
        echo
    });
    let text = pass(command("tun").args([&address, "one", "two", "three"]));
    assert!(text.starts_with("tun0, MTU 1500, super-packets: yes\n3 datagrams sent\n"), "{text}");
    assert!(text.ends_with(&format!("{address}: one\n{address}: two\n{address}: three\n")), "{text}");
    let echo = answers.join().expect("three answers");
    // As many datagrams as an ordinary socket's queue holds.
    let data: Vec<u8> = (0..40_500u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let place = TempDir::new();
    let file = place.join("data");
    std::fs::write(&file, &data).expect("a file");
    let text = pass(command("tun_cpp").arg(&address).arg(&file));
    assert_eq!(text, "40500 octets in 41 datagrams sent\n");
    let mut all = Vec::new();
    let mut buffer = [0; 2000];
    while all.len() < data.len() {
        let len = echo.recv(&mut buffer).expect("a datagram");
        all.extend_from_slice(&buffer[..len]);
    }
    assert!(all == data);
    drop(echo);
    let nobody = output(command("tun").args([&address, "hello"]));
    let text = String::from_utf8_lossy(&nobody.stderr).into_owned();
    assert!(text.contains("nobody takes datagrams there; start the receiver first"), "{text}");
}

/// A server of the kernel's is asked through a TAP device.
fn by_http(command: &impl Fn(&str) -> Command) {
    let listener = TcpListener::bind("10.9.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address").to_string();
    let page = "a line of the page\n".repeat(10_000);
    let body = page.clone();
    let serves = std::thread::spawn(move || {
        let (mut stream, from) = listener.accept().expect("a connection");
        assert_eq!(from.ip().to_string(), "10.9.0.2");
        let mut asked = BufReader::new(stream.try_clone().expect("a clone"));
        let mut all = String::new();
        while !all.ends_with("\r\n\r\n") {
            assert!(asked.read_line(&mut all).expect("a line") > 0, "{all}");
        }
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("written");
        all
    });
    let mut get = command("http_get");
    let got = output(get.args(["tap:web%d", "10.9.0.2/24", &address, "/page?x=1", "10.9.0.1/24"]));
    let errors = String::from_utf8_lossy(&got.stderr);
    assert!(got.status.success(), "{errors}");
    assert!(String::from_utf8_lossy(&got.stdout) == page, "{} octets", got.stdout.len());
    assert!(
        errors.starts_with("HTTP/1.1 200 OK\r\n") && errors.contains(" octets, a round trip of "),
        "{errors}"
    );
    let asked = serves.join().expect("a question");
    assert!(asked.starts_with("GET /page?x=1 HTTP/1.1\r\n"), "{asked}");
}

#[test]
fn frames_are_recorded_by_af_xdp() {
    const NAME: &str = "examples::frames_are_recorded_by_af_xdp";
    if !need(NAME, &["pkg-config", "c++"]) {
        return;
    }
    privileged(NAME, || {
        let prefix = installed();
        let program = prefix.join("record");
        let source = workspace().join("examples/c/record.c");
        compile(prefix.path(), "bypath", &source, &program, &[]);
        let file = prefix.join("frames.pcapng");
        let mut command = tool(&program, prefix.path());
        let mut records = start(command.arg("right").arg(&file).args(["2", "xdp"]));
        let mut out = BufReader::new(records.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready, by AF_XDP: copied, looked at in the driver\n");
        let socket = Socket::builder("left").ethertype(0x88b5).vlan(10, 7).open();
        let mut socket = socket.expect("a socket");
        // A driver that begins to look at frames loses some.
        while records.try_wait().expect("its state").is_none() {
            socket.send(MacAddr::BROADCAST, b"to be recorded").expect("sent");
            std::thread::yield_now();
        }
        assert_eq!(end(records, out), "");
        let blocks =
            Reader::new(std::fs::File::open(&file).expect("the file")).all().expect("a capture file");
        let frames: Vec<_> =
            blocks.iter().filter_map(|b| if let Block::Frame(f) = b { Some(f) } else { None }).collect();
        assert_eq!(frames.len(), 2);
        for frame in frames {
            assert_eq!(frame.bytes[12..18], [0x81, 0, 0xe0, 10, 0x88, 0xb5]);
            assert!(frame.bytes[18..].starts_with(b"to be recorded") && frame.original == 64);
        }
    });
}

fn by_pkg_config(test: &str, package: &str, linked: bool) {
    if !need(test, &["pkg-config", "c++", "readelf"]) || !isolated(test) {
        return;
    }
    let prefix = installed();
    let sources = workspace().join("examples/c");
    for (file, name) in [
        ("interfaces.c", "interfaces"),
        ("hello.c", "hello"),
        ("ping.c", "ping"),
        ("record.c", "record"),
        ("hello.cpp", "hello_cpp"),
        ("tun.c", "tun"),
        ("tun.cpp", "tun_cpp"),
        ("netstack.c", "netstack"),
        ("netstack.cpp", "netstack_cpp"),
        ("tcp_echo.c", "tcp_echo"),
        ("tcp_lines.cpp", "tcp_lines"),
        ("http_get.c", "http_get"),
    ] {
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

#[test]
fn examples_call_each_other_through_channels() {
    const NAME: &str = "examples::examples_call_each_other_through_channels";
    if !need(NAME, &["cc", "c++", "pkg-config"]) {
        return;
    }
    let (prefix, folder) = (installed(), TempDir::new());
    let build = |source: &str| {
        let program = prefix.join(source.replace('.', "_"));
        compile(prefix.path(), "bypath", &workspace().join("examples/c").join(source), &program, &[]);
        program
    };
    let [octets, octets_cpp] = ["channel.c", "channel.cpp"].map(build);
    let [c, cpp] = ["channel_datagram.c", "channel_datagram.cpp"].map(build);
    let text = (["hello", "", ""], "hello\n");
    let datagrams = (["hello", "", "there"], "5 octets: hello\n0 octets: \n5 octets: there\n");
    for (listens, calls, (texts, printed)) in [
        (&octets, &octets, text),
        (&octets, &octets_cpp, text),
        (&octets_cpp, &octets, text),
        (&c, &cpp, datagrams),
        (&cpp, &c, datagrams),
    ] {
        let name = folder.join("name");
        let mut listens = start(tool(listens, prefix.path()).arg("listen").arg(&name));
        let mut out = BufReader::new(listens.stdout.take().expect("its output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        assert_eq!(line, "listening\n");
        // The one of octets takes one text.
        let texts = if [&octets, &octets_cpp].contains(&calls) { &texts[..1] } else { &texts[..] };
        let text = pass(tool(calls, prefix.path()).arg("call").arg(&name).args(texts));
        assert_eq!(text, printed);
        assert_eq!(end(listens, out), "");
    }
}
