//! Services that are not there, go away, lie or are not meant.

use super::{HERE, Service, common, is_possible, script};

/// Connects to each address of the arguments, and says what came of it.
const CONNECT: &str = "import errno, socket, sys
for name in sys.argv[1:]:
    host, port = name.rsplit(':', 1)
    try:
        s = socket.create_connection((host.strip('[]'), int(port)), timeout=5)
        print('connected', s.getpeername()[0])
    except OSError as e:
        print(errno.errorcode.get(e.errno, e))";

/// A server on every address, and its port in a file.
const LISTEN: &str = "import socket, sys
heard = socket.create_server((sys.argv[1], 0))
print(heard.getsockname()[1], flush=True)
kept = []
while True: kept.append(heard.accept())";

#[test]
fn without_a_service_calls_fail_and_one_line_says_what_to_do() {
    if !is_possible("without_a_service_calls_fail_and_one_line_says_what_to_do", &[]) {
        return;
    }
    let mut service = Service::start();
    service.end();
    for left in [true, false] {
        let there = "10.9.0.1:80";
        // `bypath run` would not have started it.
        let mut command = std::process::Command::new("python3");
        command.args(["-c", CONNECT, there, there, "[::ffff:10.9.0.1]:80"]);
        command.env("LD_PRELOAD", common::preload_library()).env("BYPATH_NETSTACK", "lab");
        let output = command.env("BYPATH_NETSTACK_DIR", service.folder.path()).output().unwrap();
        let text = common::stdout(&output);
        assert!(text == "ENETDOWN\n".repeat(3), "{text}");
        let said = common::stderr(&output);
        assert_eq!(
            said.matches(
                "the netstack service lab is not running: start it with `bypath netstack --name lab --link LINK`"
            )
            .count(),
            1,
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
        if left {
            // Its socket was left behind; now there is none.
            std::fs::remove_file(service.folder.join("lab")).unwrap();
        }
    }
}

#[test]
fn loopback_and_what_rules_say_are_the_kernels() {
    if !is_possible("loopback_and_what_rules_say_are_the_kernels", &[]) {
        return;
    }
    let service = Service::start();
    let (_server, port) = service.serve(&["python3", "-c", LISTEN, HERE]);
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = kernel.local_addr().unwrap().to_string();
    let there = format!("{HERE}:{port}");
    let rules = |text: &str| {
        let file = service.folder.join("config.toml");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let connect = |settings: &[&str]| {
        let mut command = service.run(settings, &["python3", "-c", CONNECT, &near, &there]);
        common::stdout(&command.env_remove("BYPATH_CONFIG").output().unwrap())
    };
    let both = format!("connected 127.0.0.1\nconnected {HERE}\n");
    assert_eq!(connect(&["--netstack=lab", "--config=none"]), both);
    let file = rules("[settings]\nnetstack = \"lab\"\n");
    assert_eq!(connect(&["--config", &file]), both);
    let file = rules("[[rules]]\naction = \"netstack:lab\"\nremote = \"10.9.0.0/16\"\n");
    assert_eq!(connect(&["--config", &file]), both);
    let file = rules("[[rules]]\naction = \"netstack:lab\"\n");
    assert_eq!(connect(&["--config", &file]), both);
    // A port of this host's loopback that has no listener in the service's.
    let file = rules("[[rules]]\naction = \"netstack:lab\"\nremote = [\"10.9.0.1\", \"127.0.0.1\"]\n");
    assert_eq!(connect(&["--config", &file]), format!("ECONNREFUSED\nconnected {HERE}\n"));
    for action in ["kernel", "ring"] {
        let file = rules(&format!("[[rules]]\naction = \"{action}\"\nremote-port = {port}\n"));
        let said = connect(&["--netstack=lab", "--config", &file]);
        assert!(said.starts_with("connected 127.0.0.1\n") && !said.contains(HERE), "{action}: {said}");
    }
}

/// Two connections: one to a service that is killed, one to the next.
const SURVIVE: &str = "import errno, socket, sys
def heard():
    s = socket.create_server((sys.argv[1], 0))
    return s, socket.create_connection(s.getsockname()), s.accept()[0]
first = heard()
name = first[0].getsockname()
print('up', flush=True)
sys.stdin.readline()
for call in (lambda: first[1].recv(1), lambda: first[1].send(b'x'), first[0].accept, lambda: first[0].getsockname() == name):
    try:
        print(call())
    except OSError as e:
        print(errno.errorcode[e.errno])
second = heard()
second[1].sendall(b'again')
print(second[2].recv(9), second[1].getpeername()[0])";

#[test]
fn a_service_that_is_started_anew_serves_who_lost_the_old_one() {
    if !is_possible("a_service_that_is_started_anew_serves_who_lost_the_old_one", &[]) {
        return;
    }
    use std::io::Write;
    let mut service = Service::start();
    let mut command = service.program(&["python3", "-c", SURVIVE, HERE]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut program = super::Process(command.spawn().unwrap());
    assert_eq!(program.line(), "up");
    service.begin(&script("service.py"), &[]);
    program.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(program.finish(), format!("ECONNRESET\nEPIPE\nENETDOWN\nTrue\nb'again' {HERE}\n"));
}

#[test]
fn lies_are_errors() {
    if !is_possible("lies_are_errors", &[]) {
        return;
    }
    let mut service = Service::of(&script("liar.py"), &["hello"]);
    for (lie, expected) in [
        ("hello", "ENETDOWN"),
        ("name", "ENETDOWN"),
        ("nonsense", "ENETDOWN"),
        ("hang up", "ENETDOWN"),
        ("serial", "ENETDOWN"),
        ("no descriptor", "EPROTO"),
        ("another cookie", "EPROTO"),
        ("a file", "EPROTO"),
        ("four descriptors", "EPROTO"),
        ("errno", "EPROTO"),
    ] {
        service.begin(&script("liar.py"), &[lie]);
        let output = service.output(&["python3", "-c", CONNECT, "10.9.0.1:80", "10.9.0.1:81"]);
        let said = common::stdout(&output);
        assert_eq!(said, format!("{expected}\n{expected}\n"), "{lie}: {}", common::stderr(&output));
    }
}

/// Accepts what a liar sends as connections.
const ACCEPT: &str = "import errno, os, socket, sys
heard = socket.create_server((sys.argv[1], 0))
before = os.listdir('/proc/self/fd')
for _ in range(5):
    try:
        print('accepted', heard.accept())
    except OSError as e:
        print(errno.errorcode[e.errno])
print(len(os.listdir('/proc/self/fd')) == len(before))";

#[test]
fn what_is_no_connection_is_not_accepted() {
    if !is_possible("what_is_no_connection_is_not_accepted", &[]) {
        return;
    }
    let service = Service::of(&script("liar.py"), &["records"]);
    let output = service.output(&["python3", "-c", ACCEPT, HERE]);
    let said = common::stdout(&output);
    assert_eq!(
        said,
        "ECONNABORTED\nEMFILE\nECONNABORTED\nECONNABORTED\nEINVAL\nTrue\n",
        "{}",
        common::stderr(&output)
    );
}

/// Calls that do not wait, and whether each one took less than a tenth of what the liar's descriptors linger.
const HASTY: &str = "import errno, socket, sys, time
def hasty(call, *arguments):
    began = time.monotonic()
    try:
        said = type(call(*arguments)).__name__
    except OSError as e:
        said = errno.errorcode[e.errno]
    print(call.__name__, said, time.monotonic() - began < 4)
heard = socket.socket()
hasty(heard.bind, (sys.argv[1], 0))
hasty(heard.listen)
heard.setblocking(False)
hasty(heard.accept)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
hasty(s.sendto, b'x', (sys.argv[1], 53))
s.setblocking(False)
hasty(s.recv, 10)";

#[test]
fn a_service_that_lies_holds_up_no_call_that_does_not_wait() {
    if !is_possible("a_service_that_lies_holds_up_no_call_that_does_not_wait", &[]) {
        return;
    }
    let mut service = Service::of(&script("liar.py"), &["lingers"]);
    for (lie, received) in [("lingers", "EAGAIN"), ("errors", "ENETDOWN")] {
        service.begin(&script("liar.py"), &[lie]);
        let output = service.output(&["python3", "-c", HASTY, HERE]);
        let (said, errors) = (common::stdout(&output), common::stderr(&output));
        let expected = format!(
            "bind NoneType True\nlisten NoneType True\naccept ECONNABORTED True\nsendto int True\nrecv {received} True\n"
        );
        assert_eq!(said, expected, "{lie}: {errors}");
    }
}

/// Looks for descriptors of the library, and tries to close them all.
const OWN: &str = "import os, socket, subprocess, sys
heard = socket.create_server((sys.argv[1], 0))
client = socket.create_connection(heard.getsockname())
server, _ = heard.accept()
kept = {heard.fileno(), client.fileno(), server.fileno(), 0, 1, 2}
for fd in map(int, os.listdir('/proc/self/fd')):
    if fd not in kept:
        try: os.close(fd)
        except OSError: pass
os.closerange(max(kept) + 1, 4096)
print(client.getpeername() == heard.getsockname(), server.getsockname() == heard.getsockname())
code = 'import os; print(sorted(os.readlink(\"/proc/self/fd/\" + n)[:6] for n in os.listdir(\"/proc/self/fd\") if int(n) > 2))'
subprocess.run([sys.executable, '-c', code], close_fds=False)";

#[test]
fn the_connection_for_questions_cannot_be_closed_and_is_not_inherited() {
    if !is_possible("the_connection_for_questions_cannot_be_closed_and_is_not_inherited", &[]) {
        return;
    }
    let output = Service::start().output(&["python3", "-c", OWN, HERE]);
    let said = common::stdout(&output);
    let (first, second) = said.split_once('\n').unwrap_or_default();
    assert_eq!(first, "True True", "{}", common::stderr(&output));
    assert!(!second.contains("socket"), "{second}");
}
