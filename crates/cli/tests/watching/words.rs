//! What `ss` and `why` say of UDP sockets that have no mailbox, or hardly used one.

use crate::common::{TempDir, bypath, run, stderr, stdout};
use crate::lab::{Running, has};
use crate::udp::json;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// What all programs here begin with.
const PRELUDE: &str = r#"
import ctypes, json, os, signal, socket, sys, threading
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 0))
    return s
def exchange(a, b, count):
    for _ in range(count):
        a.sendto(b"words", b.getsockname())
        b.recv(100)
"#;

/// A Python program that says something in JSON, and waits to be killed.
pub fn program(options: &[&str], code: &str) -> (Running, Value) {
    let code = format!("{PRELUDE}{code}\nprint(json.dumps(said), flush=True)\nsignal.pause()\n");
    let mut command = run(options.iter().copied().chain(["--", "python3", "-c", &code]));
    let mut child = Running(command.stdout(Stdio::piped()).spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    (child, serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}")))
}

/// What `ss -u` tells of a descriptor.
pub fn socket(pid: u32, fd: &Value) -> Value {
    let all = json(&["ss", "-u", "--json", "--pid", &pid.to_string()]);
    all.iter().find(|row| row["fd"] == *fd).unwrap_or_else(|| panic!("{fd} is not in {all:?}")).clone()
}

fn why(pid: u32, fd: &Value) -> String {
    let output = bypath(["why", &format!("{pid}:{fd}")]).output().expect("bypath starts");
    assert!(output.status.success(), "{output:?}");
    stdout(&output)
}

#[test]
fn the_first_datagrams_are_counted_and_the_process_has_its_name() {
    if !has("words::the_first_datagrams_are_counted_and_the_process_has_its_name", &["python3"]) {
        return;
    }
    let code = r#"
a, b = udp(), udp()
def work():
    ctypes.CDLL(None).prctl(15, b"worker")
    exchange(a, b, 5)
worker = threading.Thread(target=work)
worker.start()
worker.join()
said = [a.fileno(), b.fileno()]
"#;
    let (child, said) = program(&[], code);
    let (from, to) = (socket(child.0.id(), &said[0]), socket(child.0.id(), &said[1]));
    assert_eq!(
        from["datagrams"],
        json!({ "ring_tx": 0, "ring_rx": 0, "kernel_tx": 5, "kernel_rx": 0, "pair_tx": 0, "pair_rx": 0 })
    );
    assert_eq!(from["bytes"]["kernel_tx"], 25);
    assert_eq!(
        to["datagrams"],
        json!({ "ring_tx": 0, "ring_rx": 0, "kernel_tx": 0, "kernel_rx": 5, "pair_tx": 0, "pair_rx": 0 })
    );
    assert_eq!(to["bytes"]["kernel_rx"], 25);
    assert_eq!(from["command"], "python3");
}

#[test]
fn each_reason_has_its_word_and_its_sentence() {
    if !has("words::each_reason_has_its_word_and_its_sentence", &["python3"]) {
        return;
    }
    // Without a spin nobody is ever seen awake.
    let code = r#"
itself, group, plain, served, caller, sleeper = (udp() for _ in range(6))
for _ in range(4):
    itself.sendto(b"words", itself.getsockname())
    itself.recv(100)
group.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
for _ in range(4):
    group.sendto(b"words", ("239.255.1.2", 9))
plain.setsockopt(socket.SOL_SOCKET, 40, 1)
exchange(plain, served, 20)
exchange(caller, sleeper, 40)
said = [s.fileno() for s in (itself, group, plain, served, caller, sleeper)]
held = (itself, group, plain, served, caller, sleeper)
"#;
    let (child, said) = program(&["--upgrade=eager", "--spin-budget=0"], code);
    let pid = child.0.id();
    for (place, way, reason, remedy) in [
        (0, "tx", "to-itself", ""),
        (1, "tx", "other-host", ""),
        (2, "tx", "socket-option", ""),
        (3, "rx", "no-sender", "bypath why"),
        (4, "tx", "asleep", "--profile=latency"),
        (5, "rx", "asleep", "--profile=latency"),
    ] {
        let seen = socket(pid, &said[place]);
        assert_eq!((&seen[way]["path"], &seen[way]["reason"]), (&"kernel".into(), &reason.into()), "{seen}");
        let why = why(pid, &said[place]);
        assert!(why.contains(&format!("({reason}).")) && why.contains(remedy), "{why}");
    }
}

#[test]
fn groups_broadcasts_and_bundles_have_their_words() {
    if !has("words::groups_broadcasts_and_bundles_have_their_words", &["python3"]) {
        return;
    }
    let code = r#"
group, broadcast, bundles, served, sender, merges = (udp() for _ in range(6))
everywhere = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
everywhere.bind(("0.0.0.0", 0))
port = everywhere.getsockname()[1]
lo = socket.inet_aton("127.0.0.1")
everywhere.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("239.255.77.9") + lo)
group.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, lo)
broadcast.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for _ in range(20):
    group.sendto(b"words", ("239.255.77.9", port))
    everywhere.recv(100)
    broadcast.sendto(b"words", ("127.255.255.255", port))
    everywhere.recv(100)
UDP_SEGMENT, UDP_GRO = 103, 104
bundles.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)
merges.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
exchange(bundles, served, 20)
exchange(sender, merges, 20)
said = [s.fileno() for s in (group, broadcast, bundles, sender, merges, everywhere)]
held = (group, broadcast, bundles, served, sender, merges, everywhere)
"#;
    let (child, said) = program(&["--upgrade=eager"], code);
    let pid = child.0.id();
    for (place, way, reason) in [
        (0, "tx", "other-host"),
        (1, "tx", "other-host"),
        (2, "tx", "socket-option"),
        (4, "rx", "socket-option"),
    ] {
        let seen = socket(pid, &said[place]);
        assert_eq!((&seen[way]["path"], &seen[way]["reason"]), (&"kernel".into(), &reason.into()), "{seen}");
        assert_eq!(seen["datagrams"][format!("ring_{way}")], 0, "{seen}");
        let why = why(pid, &said[place]);
        assert!(why.contains(&format!("({reason}).")), "{why}");
        let text = stdout(&bypath(["ss", "-u", "--pid", &pid.to_string()]).output().expect("bypath starts"));
        assert!(text.contains(reason), "{text}");
    }
    // Nobody answers at the name of one that has no mailbox; and a member of a group may have one, for what comes to its own address.
    for (place, way) in [(3, "tx"), (5, "rx")] {
        let seen = socket(pid, &said[place]);
        assert_eq!(
            (&seen[way]["path"], &seen["datagrams"][format!("kernel_{way}")]),
            (&"kernel".into(), &(20 * (1 + u32::from(place == 5))).into()),
            "{seen}"
        );
        assert_ne!(seen[way]["reason"], "socket-option", "{seen}");
    }
}

#[test]
fn who_holds_a_socket_with_others_is_told() {
    if !has("words::who_holds_a_socket_with_others_is_told", &["python3"]) {
        return;
    }
    let code = r#"
a, b = udp(), udp()
end, held = os.pipe()
done, tell = os.pipe()
if os.fork() == 0:
    os.close(held)
    exchange(a, b, 20)
    os.write(tell, b"!")
    os.read(end, 1)
    os._exit(0)
os.read(done, 1)
exchange(a, b, 20)
said = [a.fileno(), b.fileno()]
"#;
    let (child, said) = program(&["--upgrade=eager"], code);
    let pid = child.0.id();
    // The child was first, and has the mailbox.
    assert_eq!(socket(pid, &said[1])["rx"]["reason"], "shared-queue");
    let why = why(pid, &said[1]);
    assert!(why.contains("(shared-queue).") && why.contains("SO_REUSEPORT"), "{why}");
}

#[test]
fn a_rule_for_datagrams_is_named() {
    if !has("words::a_rule_for_datagrams_is_named", &["python3"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("config.toml");
    let text = "[[rules]]\nprotocol = \"tcp\"\naction = \"ring\"\n[[rules]]\nname = \"plain\"\nprotocol = \"udp\"\naction = \"kernel\"\n";
    std::fs::write(&file, text).expect("the file");
    let options = [format!("--config={}", file.display()), "--upgrade=eager".to_owned()];
    let code = "a, b = udp(), udp()\nexchange(a, b, 20)\nsaid = [a.fileno(), b.fileno()]\n";
    let (child, said) = program(&options.each_ref().map(String::as_str), code);
    let pid = child.0.id();
    for (place, way) in [(0, "tx"), (1, "rx")] {
        let seen = socket(pid, &said[place]);
        assert_eq!((&seen[way]["path"], &seen[way]["reason"]), (&"kernel".into(), &"rule".into()), "{seen}");
        let why = why(pid, &said[place]);
        assert!(why.contains("It is rule 2 'plain' (") && why.contains("protocol=udp -> kernel"), "{why}");
    }
}

#[test]
fn a_rule_of_the_other_end_is_told_as_such() {
    if !has("words::a_rule_of_the_other_end_is_told_as_such", &["python3"]) {
        return;
    }
    let server = "a = udp()\nsaid = a.getsockname()[1]\nprint(json.dumps(said), flush=True)\nwhile True: a.sendto(*a.recvfrom(100))\n";
    let dir = TempDir::new();
    let file = dir.join("config.toml");
    // Of the caller's address: the server has a mailbox, and refuses this sender.
    let text = "[[rules]]\nprotocol = \"udp\"\nremote = \"127.0.0.1\"\naction = \"kernel\"\n";
    std::fs::write(&file, text).expect("the file");
    let config = format!("--config={}", file.display());
    let (_server, port) = program(&["--upgrade=eager", &config], server);
    let code = format!(
        "a = udp()\nfor _ in range(400):\n    a.sendto(b'words', ('127.0.0.1', {port}))\n    a.recv(100)\nsaid = a.fileno()\n"
    );
    let (child, fd) = program(&["--upgrade=eager", "--config=none"], &code);
    let seen = socket(child.0.id(), &fd);
    assert_eq!(seen["tx"]["reason"], "peer-rule", "{seen}");
}

#[test]
fn nothing_found_is_said_as_it_was_asked() {
    if !has("words::nothing_found_is_said_as_it_was_asked", &["python3"]) {
        return;
    }
    let (child, _) = program(&[], "said = 0");
    let pid = child.0.id().to_string();
    let said = |args: &[&str]| {
        let output = bypath(args).output().expect("bypath starts");
        assert!(output.status.success(), "{output:?}");
        stderr(&output)
    };
    assert!(said(&["ss", "-u", "--pid", &pid]).contains(&format!("process {pid} has no UDP sockets")));
    let filtered = said(&["ss", "-u", "port", "1", "and", "pid", &pid]);
    assert!(filtered.contains("that the filter lets through"), "{filtered}");
}

#[test]
fn a_process_of_another_user_is_an_error() {
    if !has("words::a_process_of_another_user_is_an_error", &["setpriv"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return crate::lab::skip("words::a_process_of_another_user_is_an_error", "root only");
    }
    let own = std::process::id().to_string();
    let binary = bypath([] as [&str; 0]).get_program().to_owned();
    for kind in [&["ss"][..], &["ss", "-u"]] {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "--"]).arg(&binary).args(kind).args(["--pid", &own]);
        let output = command.output().expect("setpriv starts");
        let said = stderr(&output);
        assert!(output.status.code() == Some(1) && said.contains("cannot be looked into"), "{output:?}");
    }
}

#[test]
fn stamps_and_peeking_offsets_are_the_kernels() {
    if !has("words::stamps_and_peeking_offsets_are_the_kernels", &["python3"]) {
        return;
    }
    // By each of two sockets some datagrams before it is asked for, and some after.
    let code = r#"
import fcntl, struct, time
a, b, c = udp(), udp(), udp()
for s in (b, c):
    exchange(a, s, 40)
stamps = []
for request in (0x8906, 0x8907) * 20:
    before = time.clock_gettime_ns(time.CLOCK_REALTIME)
    exchange(a, b, 1)
    stamp = struct.unpack("qq", fcntl.ioctl(b, request, bytes(16)))
    stamp = stamp[0] * 10**9 + stamp[1] * (1000 if request == 0x8906 else 1)
    after = time.clock_gettime_ns(time.CLOCK_REALTIME)
    stamps.append(before - 1000 <= stamp <= after)
c.setsockopt(socket.SOL_SOCKET, 42, 0)
a.sendto(b"abcdef", c.getsockname())
peeked = [c.recv(2, socket.MSG_PEEK).decode() for _ in range(2)]
said = [b.fileno(), c.fileno(), stamps, peeked, c.recv(100).decode()]
"#;
    let (child, said) = program(&["--upgrade=eager", "--profile=latency"], code);
    assert_eq!(said[2], json!(vec![true; 40]));
    assert_eq!((&said[3], &said[4]), (&json!(["ab", "cd"]), &json!("abcdef")));
    for place in [0, 1] {
        let seen = socket(child.0.id(), &said[place]);
        assert_eq!((&seen["rx"]["path"], &seen["rx"]["reason"]), (&"kernel".into(), &"socket-option".into()));
    }
}
