//! Files by HTTP, to curl and wget, and to callers who speak it badly.

use crate::common::TempDir;
use crate::devices;
use crate::network::{LONG, Tool, octets, skip};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const SIZES: [usize; 4] = [0, 1, 100_000, 50_000_000];

/// A folder `served` with files of these lengths, named so, and `secret` beside it.
pub fn folder(sizes: &[usize]) -> TempDir {
    let folder = TempDir::new();
    std::fs::create_dir_all(folder.join("served/sub")).expect("a folder");
    std::fs::write(folder.join("secret"), "secret").expect("a file");
    for size in sizes {
        std::fs::write(folder.join("served").join(size.to_string()), octets(*size)).expect("a file");
    }
    folder
}

pub fn server(folder: &TempDir) -> Tool {
    let served = folder.join("served");
    let served = served.to_str().expect("a path");
    let nets = ["--net=10.9.0.1/24", "--net=fd09::1/64"];
    let args = [&["netstack", "serve-http", "--link=tap:mine", "--json"][..], &nets, &[served]].concat();
    Tool::start(&args).says("on mine, 10.9.0.2/24, fd09::2/64, TCP port 80")
}

/// Ends it; what it counted.
pub fn counted(server: Tool) -> serde_json::Value {
    server.signal(rustix::process::Signal::INT);
    let ended = server.end().expect(0);
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

/// Whether a program is there; says which test is skipped where it is not.
pub fn has(test: &str, program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        let package = match program {
            "ab" => "apache2-utils",
            "nc" => "netcat-openbsd",
            other => other,
        };
        skip(test, &format!("{program} is not installed (Debian package {package})"));
    }
    has
}

pub fn curl(args: &[&str]) -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]).args(args);
    command
}

/// What a program prints, which must end well.
#[track_caller]
pub fn output(mut command: Command) -> Vec<u8> {
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[track_caller]
fn same(got: &Path, size: usize) {
    let got = std::fs::read(got).expect("a file");
    assert!(got == octets(size), "{} octets came instead of {size}, or others", got.len());
}

/// What is answered to these octets, up to the end.
#[track_caller]
fn answer(to: &[u8]) -> String {
    let mut stream = TcpStream::connect("10.9.0.2:80").expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a time-out");
    stream.write_all(to).expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("text")
}

isolated! {
    fn curl_gets_every_octet() {
        const NAME: &str = "http::curl_gets_every_octet";
        if !devices(NAME) || !has(NAME, "curl") {
            return;
        }
        let folder = folder(&SIZES);
        let server = server(&folder);
        for host in ["10.9.0.2", "[fd09::2]"] {
            for size in SIZES {
                let got = folder.join("got");
                let url = format!("http://{host}/{size}");
                output(curl(&["--fail", "--output", got.to_str().expect("a path"), &url]));
                same(&got, size);
            }
        }
        // Over one connection.
        let urls = SIZES.map(|size| format!("http://10.9.0.2/{size}"));
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let all = output(curl(&[&["--fail"], &urls[..]].concat()));
        assert!(all == SIZES.map(octets).concat());
        // A part, which is to be joined to another one.
        let part = output(curl(&["--fail", "--range", "99990-", "http://10.9.0.2/100000"]));
        assert!(part == octets(100_000)[99_990..]);
        let got = folder.join("part");
        std::fs::write(&got, &octets(100_000)[..70_000]).expect("a file");
        output(curl(&["--fail", "--continue-at", "-", "--output", got.to_str().expect("a path"), "http://10.9.0.2/100000"]));
        same(&got, 100_000);
        let report = counted(server);
        assert_eq!(report["connections"], 11, "{report}");
        assert_eq!((&report["files"], &report["refused"], &report["broken"]), (&14.into(), &0.into(), &0.into()), "{report}");
    }
}

isolated! {
    fn who_is_in_the_middle_of_an_answer_is_told_of_the_end() {
        const NAME: &str = "http::who_is_in_the_middle_of_an_answer_is_told_of_the_end";
        if !devices(NAME) {
            return;
        }
        let folder = folder(&[50_000_000]);
        let server = server(&folder);
        let mut idle = TcpStream::connect("10.9.0.2:80").expect("a connection");
        let mut client = TcpStream::connect("10.9.0.2:80").expect("a connection");
        for stream in [&idle, &client] {
            stream.set_read_timeout(Some(LONG)).expect("a time");
        }
        client.write_all(b"GET /50000000 HTTP/1.1\r\nHost: b\r\n\r\n").expect("room");
        let mut room = [0; 1000];
        client.read_exact(&mut room).expect("the beginning of an answer");
        let report = counted(server);
        assert_eq!((&report["connections"], &report["broken"]), (&2.into(), &1.into()), "{report}");
        let rest = std::io::copy(&mut client, &mut std::io::sink());
        assert_eq!(rest.expect_err("it is not all").kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(idle.read(&mut room).expect("an end"), 0);
    }
}

isolated! {
    fn wget_gets_every_octet() {
        const NAME: &str = "http::wget_gets_every_octet";
        if !devices(NAME) || !has(NAME, "wget") {
            return;
        }
        let folder = folder(&SIZES);
        let server = server(&folder);
        for size in SIZES {
            let got = folder.join("got");
            let mut wget = Command::new("wget");
            wget.args(["--quiet", "--no-proxy", "--tries=1", "--timeout=60", "--output-document"]).arg(&got);
            wget.arg(format!("http://10.9.0.2/{size}"));
            output(wget);
            same(&got, size);
        }
        // Everything, by the lists of folders.
        std::fs::write(folder.join("served/sub/a b&c.txt"), "deep").expect("a file");
        let mut wget = Command::new("wget");
        wget.args(["--quiet", "--no-proxy", "--tries=1", "--timeout=60", "--recursive", "--no-host-directories", "--directory-prefix"]);
        output({
            wget.arg(folder.join("all")).arg("http://10.9.0.2/");
            wget
        });
        for size in SIZES {
            same(&folder.join("all").join(size.to_string()), size);
        }
        assert_eq!(std::fs::read(folder.join("all/sub/a b&c.txt")).expect("a file"), b"deep");
        let report = counted(server);
        assert_eq!(report["broken"], 0, "{report}");
    }
}

isolated! {
    fn twenty_callers_at_once_are_served() {
        const NAME: &str = "http::twenty_callers_at_once_are_served";
        if !devices(NAME) || !has(NAME, "curl") {
            return;
        }
        const SIZE: usize = 3_000_000;
        let folder = folder(&[SIZE]);
        let server = server(&folder);
        let gets: Vec<_> = (0..20)
            .map(|n| {
                let got = folder.join(format!("got-{n}"));
                let url = format!("http://10.9.0.2/{SIZE}");
                let child = curl(&["--fail", "--output", got.to_str().expect("a path"), &url]).spawn();
                (child.expect("curl"), got)
            })
            .collect();
        for (mut child, got) in gets {
            assert!(child.wait().expect("a status").success());
            same(&got, SIZE);
        }
        let report = counted(server);
        assert_eq!((&report["files"], &report["octets"]), (&20.into(), &(20 * SIZE).into()), "{report}");
    }
}

isolated! {
    fn more_callers_than_there_may_be_wait_for_their_turn() {
        if !devices("http::more_callers_than_there_may_be_wait_for_their_turn") {
            return;
        }
        let folder = folder(&[1000]);
        let server = server(&folder);
        let streams: Vec<_> = (0..600).map(|_| TcpStream::connect("10.9.0.2:80").expect("a connection")).collect();
        for stream in &streams {
            stream.set_read_timeout(Some(LONG)).expect("a time-out");
            (&mut &*stream).write_all(b"GET /1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("written");
        }
        for stream in &streams {
            let mut answer = Vec::new();
            (&mut &*stream).read_to_end(&mut answer).expect("an answer");
            assert!(answer.ends_with(&octets(1000)));
        }
        assert_eq!(counted(server)["files"], 600);
    }
}

isolated! {
    fn nothing_outside_of_the_folder_is_served() {
        if !devices("http::nothing_outside_of_the_folder_is_served") {
            return;
        }
        let folder = folder(&[1]);
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).expect("a link");
        link("../secret", "served/out");
        link("..", "served/up");
        link("/", "served/root");
        link("../1", "served/sub/in");
        let server = server(&folder);
        let get = |path: &str| answer(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
        let paths = [
            "/nothing", "/../secret", "/../../../../../../etc/passwd", "/%2e%2e/secret", "/..%2fsecret", "/sub/../../secret", "/out",
            "/up/secret", "/up/", "/root/etc/passwd", "//etc/passwd", "/1/", "/1/1",
        ];
        for path in paths {
            let answer = get(path);
            assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{path}: {answer}");
        }
        // What stays inside is served, however it is written.
        for path in ["/1", "/../1", "/sub/../1", "/%31", "/sub/in", "http://a/1?b"] {
            let answer = get(path);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n\0"), "{path}: {answer}");
        }
        let list = get("/..");
        assert!(list.starts_with("HTTP/1.1 200 ") && list.contains(">sub/<") && !list.contains("secret"), "{list}");
        let elsewhere = get("/sub");
        assert!(elsewhere.starts_with("HTTP/1.1 301 ") && elsewhere.contains("\r\nLocation: /sub/\r\n"), "{elsewhere}");
        assert_eq!(counted(server)["refused"], paths.len());
    }
}

isolated! {
    fn callers_who_ask_otherwise_are_told_what_is_wrong() {
        if !devices("http::callers_who_ask_otherwise_are_told_what_is_wrong") {
            return;
        }
        let folder = folder(&[1, 100_000, 50_000_000]);
        std::fs::write(folder.join("served/a.txt"), "0123456789").expect("a file");
        let server = server(&folder);
        let long = "a".repeat(20_000);
        for (asked, status) in [
            ("nonsense\r\n\r\n", "400 "),
            ("GET /a.txt HTTP/1.1\r\n\r\n", "400 "),
            ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "400 "),
            ("GET /a.txt HTTP/3.0\r\nHost: a\r\n\r\n", "505 "),
            ("POST /a.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", "405 "),
            (&format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), "431 "),
            ("GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nRange: bytes=10-\r\n\r\n", "416 "),
        ] {
            let answer = answer(asked.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {answer}");
        }
        let get = |fields: &str| answer(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").as_bytes());
        let whole = get("");
        assert!(whole.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n") && whole.ends_with("\r\n\r\n0123456789"), "{whole}");
        let part = get("Range: bytes=-3\r\n");
        assert!(part.contains("\r\nContent-Range: bytes 7-9/10\r\n") && part.ends_with("\r\n\r\n789"), "{part}");
        let modified = whole.lines().find(|line| line.starts_with("Last-Modified: ")).expect("a date");
        let unchanged = get(&format!("{}\r\n", modified.replace("Last-Modified", "If-Modified-Since")));
        assert!(unchanged.starts_with("HTTP/1.1 304 ") && unchanged.ends_with("\r\n\r\n"), "{unchanged}");
        let head = answer(b"HEAD /50000000 HTTP/1.0\r\n\r\n");
        assert!(head.contains("\r\nContent-Length: 50000000\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        // Several at once, octet by octet.
        let mut stream = TcpStream::connect("10.9.0.2:80").expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let ask = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        for octet in format!("{ask}{ask}{}", ask.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")).bytes() {
            stream.write_all(&[octet]).expect("written");
        }
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("answers");
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), 3, "{answers}");
        // Who goes in the middle is nobody's trouble.
        let mut stream = TcpStream::connect("10.9.0.2:80").expect("a connection");
        stream.write_all(b"GET /50000000 HTTP/1.1\r\nHost: a\r\n\r\n").expect("written");
        stream.read_exact(&mut [0; 100_000]).expect("octets");
        drop(stream);
        assert!(get("").ends_with("0123456789"));
        let report = counted(server);
        assert_eq!((&report["refused"], &report["broken"]), (&7.into(), &1.into()), "{report}");
    }
}

isolated! {
    fn conditions_say_whether_it_is_sent_and_how_much_of_it() {
        if !devices("http::conditions_say_whether_it_is_sent_and_how_much_of_it") {
            return;
        }
        let folder = folder(&[]);
        std::fs::write(folder.join("served/a.txt"), "0123456789").expect("a file");
        let server = server(&folder);
        let get = |fields: &str| answer(format!("GET /a.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n").as_bytes());
        let field = |answer: &str, name: &str| {
            let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("{name}: {answer}")).to_owned()
        };
        let is = |answer: &str, status: &str, content: &str| {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.ends_with(&format!("\r\n\r\n{content}")), "{answer}");
        };
        let all = "0123456789";
        // A tag is weak while its file may change without it.
        let begin = Instant::now();
        let (tag, date) = loop {
            let whole = get("");
            is(&whole, "200", all);
            let tag = field(&whole, "ETag");
            if !tag.starts_with("W/") {
                break (tag, field(&whole, "Last-Modified"));
            }
            assert!(begin.elapsed() < LONG, "{tag}");
        };
        for same in [&tag, &date] {
            let part = get(&format!("Range: BYTES=2-4\r\nIf-Range: {same}\r\n"));
            is(&part, "206", "234");
            assert_eq!((field(&part, "ETag"), field(&part, "Last-Modified")), (tag.clone(), date.clone()));
        }
        for other in [&format!("W/{tag}"), "\"x\"", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            is(&get(&format!("Range: bytes=2-4\r\nIf-Range: {other}\r\n")), "200", all);
        }
        is(&get(&format!("Range: bytes=10-\r\nIf-Range: {tag}\r\n")), "416", "416 Range Not Satisfiable\n");
        is(&get(&format!("If-Match: {tag}\r\n")), "200", all);
        is(&get(&format!("If-Unmodified-Since: {date}\r\n")), "200", all);
        let failed = "412 Precondition Failed\n";
        is(&get("If-Match: \"x\"\r\n"), "412", failed);
        is(&get("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"), "412", failed);
        for condition in [format!("If-None-Match: {tag}"), format!("If-Modified-Since: {date}")] {
            let known = get(&format!("{condition}\r\n"));
            is(&known, "304", "");
            assert_eq!(field(&known, "ETag"), tag);
        }
        // What is there and what is not goes before conditions.
        is(&answer(b"GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-Match: *\r\n\r\n"), "404", "404 Not Found\n");
        is(&answer(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nIf-Match: \"x\"\r\n\r\n"), "412", failed);
        // Other octets, as many, with the same date: another tag.
        std::fs::write(folder.join("served/a.txt"), "9876543210").expect("a file");
        is(&get(&format!("If-Match: {tag}\r\n")), "412", failed);
        is(&get(&format!("Range: bytes=2-4\r\nIf-Range: {tag}\r\n")), "200", "9876543210");
        assert_eq!(counted(server)["refused"], 6);
    }
}

isolated! {
    fn a_folder_or_a_device_that_is_not_there_ends_it() {
        let ended = Tool::start(&["netstack", "serve-http", "--link=tap:mine", "--net=10.9.0.1/24", "/nothing/here"]).end().expect(1);
        assert!(ended.stderr.contains("cannot serve /nothing/here: No such file"), "{}", ended.stderr);
        let ended = Tool::start(&["netstack", "serve-http", "--link=tap:mine", "--net=10.9.0.1/24", "/etc/hostname"]).end().expect(1);
        assert!(ended.stderr.contains("cannot serve /etc/hostname: Not a directory"), "{}", ended.stderr);
        if !devices("http::a_folder_or_a_device_that_is_not_there_ends_it") {
            return;
        }
        let folder = folder(&[1]);
        let server = server(&folder);
        answer(b"GET /1 HTTP/1.0\r\n\r\n");
        bypath_sys::netns::remove("mine").expect("the device");
        let ended = server.end().expect(1);
        assert!(ended.stderr.contains("bypath: error: mine: the interface was removed"), "{}", ended.stderr);
        let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
        assert_eq!((&report["connections"], &report["files"]), (&1.into(), &1.into()), "{report}");
    }
}
