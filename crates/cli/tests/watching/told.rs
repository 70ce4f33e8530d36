//! What is told of UDP sockets that only receive, or whose programs live somewhere else, or have become another user.

use crate::common::{bypath, run, stdout};
use crate::lab::{Running, has, skip, until};
use crate::udp::{json, shown};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Takes a name of its own (metrics sum over names, and other tests look at theirs), binds a port, goes to another root directory (`/...`) or becomes another user, prints the port, receives so many, and waits.
const RECEIVER: &str = "
import os, socket, sys
with open('/proc/self/comm', 'w') as name:
    name.write('told')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
deed, count = sys.argv[1:3]
if deed.startswith('/'):
    os.chroot(deed)
    os.chdir('/')
elif deed != '-':
    os.setuid(int(deed))
print(s.getsockname()[1], flush=True)
for _ in range(int(count)):
    s.recv(2000)
print('enough', flush=True)
sys.stdin.read()
";
const SENDER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('127.0.0.1', int(sys.argv[1])))
for _ in range(int(sys.argv[2])):
    s.send(bytes(1000))
print('done', flush=True)
sys.stdin.read()
";

/// Two ends of a connection that has carried one octet.
const COLD: &str = "
import socket, sys
listener = socket.create_server((sys.argv[1], 0), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
caller = socket.create_connection(listener.getsockname()[:2])
called, _ = listener.accept()
caller.send(b'x')
called.recv(1)
print(caller.getsockname()[1], caller.getpeername()[1], flush=True)
sys.stdin.read()
";

struct Told {
    of: Running,
    out: BufReader<std::process::ChildStdout>,
}

impl Told {
    fn start(mut command: Command, script: &str, args: &[&str]) -> Told {
        command.args(["-c", script]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut of = Running(command.spawn().expect("python3 starts"));
        let out = BufReader::new(of.0.stdout.take().expect("a pipe"));
        Told { of, out }
    }

    fn receiver(deed: &str, count: u32) -> (Told, String) {
        let mut one = Told::start(followed(), RECEIVER, &[deed, &count.to_string()]);
        let port = one.line();
        (one, port)
    }

    fn pid(&self) -> u32 {
        self.of.0.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

fn followed() -> Command {
    run(["--upgrade=eager", "--", "python3"])
}

/// The library has not asked for them.
#[test]
fn a_connection_that_has_not_tried_to_come_up_is_shown_with_its_addresses() {
    if !has("told::a_connection_that_has_not_tried_to_come_up_is_shown_with_its_addresses", &["python3"]) {
        return;
    }
    for address in ["127.0.0.1", "::1"] {
        let mut both = Told::start(run(["--upgrade=lazy", "--", "python3"]), COLD, &[address]);
        let line = both.line();
        let names: Vec<_> = line
            .split(' ')
            .map(|port| {
                SocketAddr::new(address.parse().expect("an address"), port.parse().expect("a port"))
                    .to_string()
            })
            .collect();
        let pid = both.pid().to_string();
        let shown = json(&["ss", "--json", "--pid", &pid]);
        let mut ends: Vec<_> = shown.iter().map(|c| [&c["local"], &c["remote"]]).collect();
        ends.sort_by_key(|end| *end[0] != names[0].as_str());
        assert_eq!(ends, [[names[0].as_str(), &names[1]], [&names[1], &names[0]]], "{shown:?}");
        assert_eq!(
            json(&["ss", "--json", "sport", "=", names[1].rsplit(':').next().expect("a port")]).len(),
            1
        );
        assert!(why(&pid).contains(&format!("{} to {}", names[0], names[1])));
    }
}

fn why(subject: &str) -> String {
    let output = bypath(["why", subject]).output().expect("bypath starts");
    assert!(output.status.success(), "{output:?}");
    stdout(&output)
}

#[test]
fn a_receiver_is_told_of_receiving_and_of_what_the_kernel_dropped() {
    if !has("told::a_receiver_is_told_of_receiving_and_of_what_the_kernel_dropped", &["python3"]) {
        return;
    }
    let (mut receiver, port) = Told::receiver("-", 40);
    // By the kernel, as it is not under Bypath.
    let mut few = Told::start(Command::new("python3"), SENDER, &[&port, "40"]);
    assert_eq!((few.line(), receiver.line()), ("done".to_owned(), "enough".to_owned()));
    let mut many = Told::start(Command::new("python3"), SENDER, &[&port, "2000"]);
    assert_eq!(many.line(), "done");
    let pid = receiver.pid().to_string();
    let socket = shown(receiver.pid());
    let dropped = socket["lost"]["kernel"].as_u64().expect("a number");
    assert!(dropped > 0 && dropped < 2000 && socket["lost"]["rx"] == 0, "{socket}");
    let text = stdout(&bypath(["ss", "-u", "--pid", &pid]).output().expect("bypath starts"));
    let row = text.lines().nth(1).expect("a row");
    assert!(row.trim_end().ends_with(&format!(" {dropped}")), "{text}");
    let top = json(&["top", "--once", "--json", "-d", "0.1", "pid", &pid]);
    assert_eq!(top[0]["drops"].as_u64(), Some(dropped), "{top:?}");

    let text = why(&pid);
    for part in
        ["1 UDP socket, 0 through shared memory", "  Receiving: ", "as its queue in the kernel was full"]
    {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    for part in ["Sending: ", "connection"] {
        assert!(!text.contains(part), "{part} is in:\n{text}");
    }
}

#[test]
fn who_was_told_to_upgrade_nothing_is_under_bypath() {
    if !has("told::who_was_told_to_upgrade_nothing_is_under_bypath", &["python3"]) {
        return;
    }
    let mut receiver = Told::start(run(["--upgrade=off", "--", "python3"]), RECEIVER, &["-", "1"]);
    receiver.line();
    let text = why(&receiver.pid().to_string());
    assert!(text.contains("is under Bypath, and was started with --upgrade=off"), "{text}");
    assert!(text.contains("without --upgrade=off"), "{text}");
}

/// Whether this is root, who may do what follows.
fn may(name: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(name, "only root changes users and root directories");
    }
    is_root && has(name, &["python3"])
}

#[test]
fn a_server_in_another_root_directory_is_shown() {
    if !may("told::a_server_in_another_root_directory_is_shown") {
        return;
    }
    let root = std::env::temp_dir().join(format!("bypath-root-{}", std::process::id()));
    std::fs::create_dir_all(&root).expect("a directory");
    let (mut receiver, port) = Told::receiver(root.to_str().expect("a plain path"), 40);
    let _sender = Told::start(followed(), SENDER, &[&port, "40"]);
    assert_eq!(receiver.line(), "enough");
    assert_eq!(shown(receiver.pid())["local"], format!("127.0.0.1:{port}"));
    assert!(why(&receiver.pid().to_string()).contains("1 UDP socket"));
    std::fs::remove_dir(&root).expect("nothing is there");
}

#[test]
fn a_server_that_became_another_user_is_no_squatter() {
    if !may("told::a_server_that_became_another_user_is_no_squatter") {
        return;
    }
    let (receiver, port) = Told::receiver("65533", 100_000);
    let sender = Told::start(followed(), SENDER, &[&port, "100000"]);
    until("the sender is told why", || {
        let all = json(&["ss", "-u", "--json", "--pid", &sender.pid().to_string()]);
        let reason = all.first().map_or("", |s| s["tx"]["reason"].as_str().expect("a code"));
        assert_ne!(reason, "squatter");
        reason == "other-user"
    });
    assert!(why(&sender.pid().to_string()).contains("one that a server has opened as root stays root's"));
    drop(receiver);
}
