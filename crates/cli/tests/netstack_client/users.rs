//! Who may use a service, and what each user may have of it. These tests are run by root alone: they become other users.

use super::{HERE, Process, common, is_possible, skip};
use common::TempDir;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Users that nobody is.
pub const ONE: u32 = 61_001;
pub const OTHER: u32 = 61_002;

/// The interpreter that every user can run.
pub const PYTHON: &str = "/usr/bin/python3";

/// A folder with the command and the library, which every user can run.
pub struct Stage(TempDir);

impl Stage {
    /// `None`, and why: the test is skipped.
    pub fn new(name: &str) -> Option<Stage> {
        if !is_possible(name, &["setpriv", "unshare", "ip"]) {
            return None;
        }
        if bypath_sys::process::euid() != 0 || bypath_sys::process::euid_outside() != 0 {
            skip(name, "other users are root's to become");
            return None;
        }
        if !Path::new(PYTHON).exists() {
            skip(name, &format!("there is no {PYTHON}"));
            return None;
        }
        let folder = TempDir::new();
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        };
        open(folder.path());
        for (from, name) in [(Path::new(common::BYPATH), "bypath"), (common::preload_library(), "library.so")]
        {
            std::fs::copy(from, folder.join(name)).expect("a copy");
            open(&folder.join(name));
        }
        std::fs::create_dir(folder.join("services")).expect("a folder");
        Some(Stage(folder))
    }

    fn services(&self) -> PathBuf {
        self.0.join("services")
    }

    /// `bypath` as this user, by way of a program that it is started by.
    pub fn bypath(&self, uid: u32, before: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]).args(["--clear-groups", "--"]);
        command.args(before).arg(self.0.join("bypath")).args(arguments);
        for name in ["LD_PRELOAD", "XDG_RUNTIME_DIR", "BYPATH_NETSTACK"] {
            command.env_remove(name);
        }
        command.env("BYPATH_CONFIG", "none").env("BYPATH_LIBRARY", self.0.join("library.so"));
        command.env("BYPATH_NETSTACK_DIR", self.services()).current_dir("/");
        command
    }

    pub fn python(&self, uid: u32, text: &str, arguments: &[&str]) -> Output {
        let all = [&["run", "--netstack=lab", "--", PYTHON, "-c", text], arguments].concat();
        self.bypath(uid, &[], &all).output().expect("setpriv")
    }

    /// A script of this user's that prints a line when it is ready.
    pub fn serve(&self, uid: u32, text: &str, arguments: &[&str]) -> (Process, String) {
        let all = [&["run", "--netstack=lab", "--", PYTHON, "-c", text], arguments].concat();
        let child = self.bypath(uid, &[], &all).stdout(Stdio::piped()).spawn().expect("setpriv");
        let mut process = Process(child);
        let line = process.line();
        (process, line)
    }

    /// A script of this user's, which nothing is preloaded into.
    pub fn alone(&self, uid: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}")]).args([
            "--clear-groups",
            "--",
            PYTHON,
        ]);
        command.args(arguments).env("BYPATH_NETSTACK_DIR", self.services()).current_dir("/");
        command
    }

    /// A copy of a file, for every user to read; where it is.
    pub fn copy(&self, file: &Path) -> String {
        let to = self.0.join(file.file_name().expect("a name"));
        std::fs::copy(file, &to).expect("a copy");
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        to.to_str().expect("a plain path").to_owned()
    }

    /// Root's service in a network namespace of its own, with these limits.
    pub fn service(&self, limits: &str) -> Process {
        begun(self.to_serve(limits))
    }

    /// The same for everybody, with these addresses.
    pub fn service_at(&self, addresses: &[&str]) -> Process {
        begun(self.to_serve_with(&[], addresses, "users = \"all\"\n"))
    }

    fn to_serve(&self, limits: &str) -> Command {
        self.to_serve_as(&[], limits)
    }

    /// The same by way of what makes root another user.
    fn to_serve_as(&self, becomes: &[&str], limits: &str) -> Command {
        self.to_serve_with(becomes, &[&format!("{HERE}/24")], limits)
    }

    fn to_serve_with(&self, becomes: &[&str], addresses: &[&str], limits: &str) -> Command {
        let file = self.0.join("lab.toml");
        let text = format!(
            "name = \"lab\"\nlink = \"tap:bp0\"\nnet = \"10.9.0.9/24\"\naddr = {addresses:?}\n[limits]\n{limits}"
        );
        std::fs::write(&file, text).expect("a file");
        let config = format!("--config={}", file.display());
        self.bypath(0, &[&["unshare", "-n"], becomes].concat(), &["netstack", &config])
    }
}

/// A service that has told of itself.
fn begun(mut command: Command) -> Process {
    let mut process = Process(command.stdout(Stdio::piped()).spawn().expect("setpriv"));
    let mut said = String::new();
    while !said.contains("\nnext ") {
        let line = process.line();
        assert!(!line.is_empty(), "it has ended: {said}");
        said += &format!("{line}\n");
    }
    process
}

const CALLS: &str = "import errno, socket, sys
def outcome(call, *arguments):
    try: return call(*arguments) or 'done'
    except OSError as e: return errno.errorcode[e.errno]
for port in (0, 80):
    s = socket.socket()
    print(port, outcome(s.bind, (sys.argv[1], port)), flush=True)
    s.close()";

#[test]
fn a_service_is_its_own_users_and_those_whom_it_names() {
    let Some(stage) = Stage::new("users::a_service_is_its_own_users_and_those_whom_it_names") else { return };
    let alone = stage.service("");
    let refused = stage.python(ONE, CALLS, &[HERE]);
    let said = common::stderr(&refused);
    assert_eq!(refused.status.code(), Some(125), "{said}");
    assert!(said.contains("not for user 61001") && said.contains("--users 61001"), "{said}");
    let listed = stage.bypath(ONE, &[], &["netstack", "ls"]).output().expect("setpriv");
    assert!(common::stdout(&listed).contains("not for this user"), "{listed:?}");
    assert!(common::stderr(&listed).contains("--users 61001 (or --users all"), "{listed:?}");
    // A program that is preloaded all the same.
    let mut program = Command::new("setpriv");
    program.args(["--reuid=61001", "--regid=61001", "--clear-groups", "--", PYTHON, "-c", CALLS, HERE]);
    program.env("LD_PRELOAD", stage.0.join("library.so")).env("BYPATH_NETSTACK", "lab");
    program.env("BYPATH_NETSTACK_DIR", stage.services()).current_dir("/");
    let output = program.output().expect("setpriv");
    assert_eq!(common::stdout(&output), "0 EACCES\n80 EACCES\n", "{}", common::stderr(&output));
    assert!(common::stderr(&output).contains("not for this user"), "{}", common::stderr(&output));
    drop(alone);

    let named = stage.service("users = [61001]\n");
    assert_eq!(common::stdout(&stage.python(ONE, CALLS, &[HERE])), "0 done\n80 EACCES\n");
    assert_eq!(common::stdout(&stage.python(0, CALLS, &[HERE])), "0 done\n80 done\n");
    let refused = stage.python(OTHER, CALLS, &[HERE]);
    assert!(common::stderr(&refused).contains("not for user 61002"), "{}", common::stderr(&refused));
    drop(named);

    let _all = stage.service("users = \"all\"\nlow-ports = [61002]\n");
    assert_eq!(common::stdout(&stage.python(ONE, CALLS, &[HERE])), "0 done\n80 EACCES\n");
    assert_eq!(common::stdout(&stage.python(OTHER, CALLS, &[HERE])), "0 done\n80 done\n");
}

#[test]
fn a_service_of_another_user_is_none_of_the_own_sessions() {
    let Some(stage) = Stage::new("users::a_service_of_another_user_is_none_of_the_own_sessions") else {
        return;
    };
    std::os::unix::fs::chown(stage.services(), Some(ONE), None).expect("root's right");
    let user = format!("--reuid={ONE}");
    // Enough for a device, whoever may open /dev/net/tun.
    let right = ["--inh-caps=+net_admin,+dac_override", "--ambient-caps=+net_admin,+dac_override"];
    let becomes = [&["setpriv", &user, "--clear-groups"], &right[..]].concat();
    let _service = begun(stage.to_serve_as(&becomes, ""));
    // As if somebody had exchanged what the path leads through, once it was looked at.
    let session = stage.0.join("session");
    let folder = session.join("bypath/netstack");
    std::fs::create_dir_all(&folder).expect("a folder");
    for path in [&session, &session.join("bypath"), &folder] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    std::os::unix::fs::symlink(stage.services().join("lab"), folder.join("lab")).expect("a link");
    let preloaded = |place: &str, folder: &Path| {
        let mut program = Command::new(PYTHON);
        program.args(["-c", CALLS, HERE]).env_remove("BYPATH_NETSTACK_DIR").env(place, folder);
        program.env("LD_PRELOAD", stage.0.join("library.so")).env("BYPATH_NETSTACK", "lab");
        program.output().expect("python3")
    };
    // Who names a folder says whom he trusts.
    let named = preloaded("BYPATH_NETSTACK_DIR", &stage.services());
    assert_eq!(common::stdout(&named), "0 done\n80 done\n", "{}", common::stderr(&named));
    let led = preloaded("XDG_RUNTIME_DIR", &session);
    assert_eq!(common::stdout(&led), "0 ENETDOWN\n80 ENETDOWN\n", "{}", common::stderr(&led));
    // Nor for who looks.
    let looks = |arguments: &[&str]| {
        let mut look = stage.bypath(0, &[], arguments);
        look.env_remove("BYPATH_NETSTACK_DIR").env("XDG_RUNTIME_DIR", &session).output().expect("bypath")
    };
    let listed = looks(&["netstack", "ls"]);
    assert!(common::stdout(&listed).contains("of another user"), "{listed:?}");
    for look in [&["netstack", "sockets", "--name=lab"][..], &["run", "--netstack=lab", "--", "true"]] {
        let refused = looks(look);
        let said = common::stderr(&refused);
        assert!(!refused.status.success() && said.contains(&format!("is of user {ONE}")), "{refused:?}");
        assert!(said.contains(&format!("BYPATH_NETSTACK_DIR={}", folder.display())), "{said}");
    }
}

/// Says to whoever asks that it has a listener of this cookie.
const SAYS: &str = "import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(os.environ['BYPATH_NETSTACK_DIR'] + '/' + sys.argv[1])
listener.listen()
print('so', flush=True)
while True:
    end, _ = listener.accept()
    header = end.recv(4096)[:24]
    end.send(header + b'{\"state\":\"Listen\",\"cookie\":\"%s\",\"local\":\"10.9.0.1:80\"}' % sys.argv[2].encode())
    end.send(header)";

/// Tells the cookie of a socket that it has.
const HAS: &str = "import socket, struct, sys
a, b = socket.socketpair()
print('%x' % struct.unpack('=Q', a.getsockopt(socket.SOL_SOCKET, 57, 8)), flush=True)
sys.stdin.read()";

#[test]
fn a_service_of_another_user_does_not_say_which_processes_listen() {
    let Some(stage) = Stage::new("users::a_service_of_another_user_does_not_say_which_processes_listen")
    else {
        return;
    };
    std::os::unix::fs::chown(stage.services(), Some(ONE), None).expect("root's right");
    let begin = |mut command: Command| {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv");
        let mut process = Process(child);
        let line = process.line();
        (process, line)
    };
    let (innocent, cookie) = begin(stage.alone(0, &["-c", HAS]));
    let pid = innocent.0.id();
    let says = |uid, name| {
        let (fake, line) = begin(stage.alone(uid, &["-c", SAYS, name, &cookie]));
        assert_eq!(line, "so");
        fake
    };
    let looks = |arguments: &[&str]| {
        let output = stage.bypath(0, &[], arguments).output().expect("bypath");
        common::stdout(&output)
    };
    let _evil = says(ONE, "evil");
    let listed = looks(&["ss", "-l"]);
    assert!(listed.contains("evil") && !listed.contains(&pid.to_string()), "{listed}");
    assert!(!looks(&["why", &pid.to_string()]).contains("evil"));
    // Root's is believed, of its own row.
    let _good = says(0, "good");
    let listed = looks(&["ss", "-l"]);
    let has_pid = |name: &str| {
        let mut its = listed.lines().filter(|line| line.contains(name));
        its.any(|line| line.contains(&pid.to_string()))
    };
    assert!(has_pid("good") && !has_pid("evil"), "{listed}");
}

/// Opens until it may not, and tells how many that were; and once more when some are closed.
const MANY: &str = "import errno, socket, sys
kept = []
def fill():
    for _ in range(100):
        s = socket.socket()
        try: s.bind((sys.argv[1], 0))
        except OSError as e: return errno.errorcode[e.errno]
        kept.append(s)
print(fill(), len(kept), flush=True)
input()
for s in kept[:3]: s.close()
del kept[:3]
print(fill(), len(kept), flush=True)";

#[test]
fn each_user_has_so_many_sockets_and_no_more() {
    let Some(stage) = Stage::new("users::each_user_has_so_many_sockets_and_no_more") else { return };
    let log = stage.0.join("log");
    let mut service = stage.to_serve("users = \"all\"\nsockets-per-user = 7\n");
    service.stderr(std::fs::File::create(&log).expect("a file"));
    let _service = begun(service);
    let mut full = stage.bypath(ONE, &[], &["run", "--netstack=lab", "--", PYTHON, "-c", MANY, HERE]);
    let child = full.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv");
    let mut full = Process(child);
    assert_eq!(full.line(), "EMFILE 7");
    // Others are not touched by it, and another process of the same user has no more.
    assert_eq!(common::stdout(&stage.python(OTHER, CALLS, &[HERE])), "0 done\n80 EACCES\n");
    assert_eq!(common::stdout(&stage.python(ONE, CALLS, &[HERE])), "0 EMFILE\n80 EMFILE\n");
    // What is closed can be had again, at once.
    let mut input = full.0.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"\n").expect("a program that waits");
    assert_eq!(full.line(), "EMFILE 7");
    assert_eq!(full.finish(), "");
    assert_eq!(common::stdout(&stage.python(ONE, CALLS, &[HERE])), "0 done\n80 EACCES\n");
    // Four refusals and more, and he never had as few as half of them.
    let said = std::fs::read_to_string(log).expect("a log");
    assert_eq!(said.matches(&format!("user {ONE} has 7 sockets")).count(), 1, "{said}");
}

/// Asks for a socket's names by itself, as any process can; then with a descriptor that is not the socket's.
const ASKS: &str = "import os, socket, struct, sys
def connected():
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(os.environ['BYPATH_NETSTACK_DIR'] + '/lab')
    return peer
for held in [], [0]:
    for op, body in ((6, b''), (4, struct.pack('=i', 1)), (10, struct.pack('=i', 2)), (8, struct.pack('=iii', 1, 2, 4))):
        peer = connected()
        question = struct.pack('=IIQiI', op, 1, int(sys.argv[1], 16), 0, 0) + body
        socket.send_fds(peer, [question], [peer.fileno() for _ in held])
        print(os.strerror(struct.unpack_from('=IIQi', peer.recv(4096))[3]), flush=True)";

const COOKIE: &str = "import socket, struct, sys
s = socket.socket()
s.bind((sys.argv[1], 0))
print('%x' % struct.unpack('=Q', s.getsockopt(socket.SOL_SOCKET, 57, 8)), flush=True)
input()
s.listen()
print(s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), flush=True)";

#[test]
fn sockets_of_others_are_not_asked_about() {
    let Some(stage) = Stage::new("users::sockets_of_others_are_not_asked_about") else { return };
    let _service = stage.service("users = \"all\"\n");
    let mut program = stage.bypath(ONE, &[], &["run", "--netstack=lab", "--", PYTHON, "-c", COOKIE, HERE]);
    let child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv");
    let mut program = Process(child);
    let cookie = program.line();
    let refused = stage.python(OTHER, ASKS, &[&cookie]);
    assert_eq!(
        common::stdout(&refused),
        "Operation not permitted\n".repeat(8),
        "{}",
        common::stderr(&refused)
    );
    let mut input = program.0.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"\n").expect("a program that waits");
    assert_eq!(program.line(), "1");
    assert_eq!(program.finish(), "");
}

/// Servers of root's whose workers are another user, as those of nginx are: they go on with the sockets that they hold.
const WORKERS: &str = "import errno, os, socket, struct, sys
heard = socket.create_server((sys.argv[1], 0))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind((sys.argv[1], 0))
client = socket.create_connection(heard.getsockname())
def outcome(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
if os.fork() == 0:
    os.setgroups([]); os.setresgid(*[int(sys.argv[2])] * 3); os.setresuid(*[int(sys.argv[2])] * 3)
    s, peer = heard.accept()
    print(peer == client.getsockname(), s.getpeername() == peer, s.getsockname() == heard.getsockname())
    for level, name in (socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        print(outcome(s.setsockopt, level, name, 1), outcome(s.getsockopt, level, name))
    print(heard.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    print(outcome(datagrams.getsockname)[0] == sys.argv[1], outcome(datagrams.setsockopt, socket.SOL_SOCKET, socket.SO_BROADCAST, 1))
    s.sendall(b'from a worker'); print(s.recv(99).decode())
    print(outcome(s.shutdown, socket.SHUT_RD), s.recv(1))
    # What it has not got yet is not for it.
    print(outcome(socket.create_connection, (sys.argv[1], 9)), outcome(socket.create_server, (sys.argv[1], 0)), flush=True)
    os._exit(0)
client.sendall(b'to a worker')
print(client.recv(99).decode(), os.wait()[1])";

#[test]
fn who_holds_a_socket_may_ask_about_it_whoever_he_is() {
    let Some(stage) = Stage::new("users::who_holds_a_socket_may_ask_about_it_whoever_he_is") else { return };
    for (limits, new) in [("", "EACCES EACCES"), ("users = [61001]\n", "ECONNREFUSED")] {
        let _service = stage.service(limits);
        let output = stage.python(0, WORKERS, &[HERE, &ONE.to_string()]);
        let (said, errors) = (common::stdout(&output), common::stderr(&output));
        let expected = "True True True\nNone 1\nNone 1\n1 0\nTrue None\nto a worker\nNone b''\n";
        let rest = said.strip_prefix(expected);
        assert!(rest.is_some_and(|rest| rest.starts_with(new)), "{limits}: {said}{errors}");
        assert!(said.ends_with("from a worker 0\n"), "{limits}: {said}{errors}");
        // Of what it was refused it is told once.
        assert_eq!(errors.matches("not for this user").count(), usize::from(limits.is_empty()), "{errors}");
    }
}

/// A worker of another user's with a connection of root's, of which it reads once it is told to.
const BEREFT: &str = "import errno, os, socket, sys
heard = socket.create_server((sys.argv[1], 0))
client = socket.create_connection(heard.getsockname())
s, _ = heard.accept()
def outcome(call, *arguments):
    try: return call(*arguments)
    except OSError as e: return errno.errorcode[e.errno]
if os.fork() == 0:
    os.setgroups([]); os.setresgid(*[int(sys.argv[2])] * 3); os.setresuid(*[int(sys.argv[2])] * 3)
    client.sendall(b'part')
    print(s.recv(9).decode(), flush=True)
    sys.stdin.readline()
    print(outcome(s.recv, 9), outcome(s.recv, 9), outcome(s.send, b'x'), flush=True)
    os._exit(0)
print(os.wait()[1])";

#[test]
fn a_worker_whose_service_was_replaced_is_told_of_a_reset_and_of_no_end() {
    let Some(stage) =
        Stage::new("users::a_worker_whose_service_was_replaced_is_told_of_a_reset_and_of_no_end")
    else {
        return;
    };
    let service = stage.service("");
    let worker = ["run", "--netstack=lab", "--", PYTHON, "-c", BEREFT, HERE, &ONE.to_string()];
    let mut worker = stage.bypath(0, &[], &worker);
    let mut worker = Process(worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv"));
    assert_eq!(worker.line(), "part");
    drop(service);
    // It is not for the worker's user, and has never had such a socket.
    let _next = stage.service("");
    let mut input = worker.0.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"\n").expect("a program that waits");
    assert_eq!(worker.finish(), "ECONNRESET b'' EPIPE\n0\n");
}

/// Makes a link in a network namespace, and becomes what stands behind it.
const BEGIN: &str = "ip link set lo up && ip link add left type veth peer name right && \
    ip link set left up && ip link set right up && exec \"$@\"";

/// A service on that link.
const SERVES: &[&str] = &["netstack", "--name=lab", "--link=packet:left", "--addr=10.9.0.1/24"];

#[test]
fn root_of_a_namespace_has_a_folder_of_the_user_it_is_outside() {
    const NAME: &str = "users::root_of_a_namespace_has_a_folder_of_the_user_it_is_outside";
    let Some(stage) = Stage::new(NAME) else { return };
    let inside = ["unshare", "-Urn"];
    if !stage.bypath(ONE, &inside, &["--version"]).output().is_ok_and(|output| output.status.success()) {
        return skip(NAME, "users may not make namespaces");
    }
    let begin = ["unshare", "-Urn", "sh", "-c", BEGIN, "sh"];
    let mut running = Vec::new();
    for uid in [ONE, OTHER] {
        let _ = std::fs::remove_dir_all(format!("/tmp/bypath-{uid}"));
        let mut command = stage.bypath(uid, &begin, SERVES);
        running.push(begun({
            command.env_remove("BYPATH_NETSTACK_DIR");
            command
        }));
        assert!(Path::new(&format!("/tmp/bypath-{uid}/netstack/lab")).exists());
    }
    // As oneself, and as root of another namespace.
    for before in [&[][..], &["unshare", "-Ur"]] {
        let mut command =
            stage.bypath(ONE, before, &["run", "--netstack=lab", "--", PYTHON, "-c", CALLS, HERE]);
        let output = command.env_remove("BYPATH_NETSTACK_DIR").output().expect("setpriv");
        assert!(common::stdout(&output).starts_with("0 done\n"), "{before:?}: {}", common::stderr(&output));
    }
    drop(running);
    for uid in [ONE, OTHER] {
        let _ = std::fs::remove_dir_all(format!("/tmp/bypath-{uid}"));
    }
}

/// To such a service they are all 65534, be they root.
#[test]
fn a_service_of_a_namespace_is_not_for_users_whom_it_does_not_know() {
    const NAME: &str = "users::a_service_of_a_namespace_is_not_for_users_whom_it_does_not_know";
    let Some(stage) = Stage::new(NAME) else { return };
    if !stage.bypath(ONE, &["unshare", "-Urn"], &["--version"]).output().is_ok_and(|o| o.status.success()) {
        return skip(NAME, "users may not make namespaces");
    }
    std::os::unix::fs::chown(stage.services(), Some(ONE), None).expect("root's right");
    let begin = ["unshare", "-Urn", "sh", "-c", BEGIN, "sh"];
    let _service = begun(stage.bypath(ONE, &begin, &[SERVES, &["--users=all"]].concat()));
    let runs = ["run", "--netstack=lab", "--", PYTHON, "-c", CALLS, HERE];
    for uid in [OTHER, OTHER + 1, 0] {
        let refused = stage.bypath(uid, &[], &runs).output().expect("setpriv");
        let said = common::stderr(&refused);
        assert_eq!((refused.status.code(), common::stdout(&refused)), (Some(125), String::new()), "{said}");
        assert!(said.contains(&format!("not for user {uid}")), "{said}");
    }
    // As oneself, and as root of another namespace: to the service both are its own user.
    for before in [&[][..], &["unshare", "-Ur"]] {
        let output = stage.bypath(ONE, before, &runs).output().expect("setpriv");
        assert!(common::stdout(&output).starts_with("0 done\n"), "{before:?}: {}", common::stderr(&output));
    }
}

#[test]
fn nobody_of_a_namespace_runs_no_service() {
    const NAME: &str = "users::nobody_of_a_namespace_runs_no_service";
    let Some(stage) = Stage::new(NAME) else { return };
    // With the right to make a link there.
    let inside = ["unshare", "--user", "--map-user=65534", "--keep-caps", "--net"];
    if !stage.bypath(ONE, &inside, &["--version"]).output().is_ok_and(|o| o.status.success()) {
        return skip(NAME, "users may not make namespaces, or unshare has no --map-user and --keep-caps");
    }
    std::os::unix::fs::chown(stage.services(), Some(ONE), None).expect("root's right");
    let begin = [&inside[..], &["sh", "-c", BEGIN, "sh"]].concat();
    let refused = stage.bypath(ONE, &begin, SERVES).output().expect("setpriv");
    let said = common::stderr(&refused);
    assert_eq!((refused.status.code(), common::stdout(&refused)), (Some(1), String::new()), "{said}");
    assert!(said.contains("of user 65534") && said.contains("unshare -Ur"), "{said}");
}

/// Binds and listens where it is told to share, and keeps that until its input ends.
const SHARES: &str = "import errno, socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
try:
    s.bind((sys.argv[1], int(sys.argv[2])))
    s.listen()
    print('listens', flush=True)
except OSError as e: print(errno.errorcode[e.errno], flush=True)
if 'stay' in sys.argv: input()";

#[test]
fn a_port_is_shared_among_sockets_of_one_user() {
    let Some(stage) = Stage::new("users::a_port_is_shared_among_sockets_of_one_user") else { return };
    let _service = stage.service("users = \"all\"\n");
    let arguments = ["run", "--netstack=lab", "--", PYTHON, "-c", SHARES, HERE, "8080", "stay"];
    let mut first = stage.bypath(ONE, &[], &arguments);
    let child = first.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv");
    let mut first = Process(child);
    assert_eq!(first.line(), "listens");
    assert_eq!(common::stdout(&stage.python(ONE, SHARES, &[HERE, "8080"])), "listens\n");
    for address in [HERE, "0.0.0.0"] {
        for uid in [OTHER, 0] {
            assert_eq!(
                common::stdout(&stage.python(uid, SHARES, &[address, "8080"])),
                "EADDRINUSE\n",
                "{uid}"
            );
        }
    }
}
