//! UDP sockets in every view: two programs that answer each other's datagrams while both are awake.

use crate::common::{bypath, run, stdout, workspace};
use crate::lab::{LONG, Running, has, until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A server that answers, and who asks it.
pub struct Post {
    pub server: Running,
    pub caller: Running,
    pub port: String,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// On a processor of its own where there are two: neighbours on one take turns, and are asleep while the other one sends.
fn program(processor: usize, args: &[&str]) -> Command {
    let others = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let processor = processor.min(others).to_string();
    let mut command =
        run(["--upgrade=eager", "--profile=latency", "--", "taskset", "-c", &processor, "python3"]);
    command.arg(workspace().join("crates/cli/tests/watching/post.py")).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Post {
    /// Starts both.
    pub fn new() -> Post {
        Post::at("127.0.0.1", &[])
    }

    /// The same at such an address, with such a server.
    pub fn at(address: &str, server: &[&str]) -> Post {
        let arguments = [&["serve", address], server].concat();
        let mut server = Running(program(0, &arguments).spawn().expect("python3 starts"));
        let mut port = String::new();
        BufReader::new(server.0.stdout.take().expect("a pipe")).read_line(&mut port).expect("a port");
        let port = port.trim().to_owned();
        let mut caller = Running(program(1, &["call", &port, address]).spawn().expect("python3 starts"));
        let to = caller.0.stdin.take().expect("a pipe");
        let from = BufReader::new(caller.0.stdout.take().expect("a pipe"));
        Post { server, caller, port, to, from }
    }

    /// So many questions and answers.
    pub fn talks(&mut self, count: u32) {
        self.does(&count.to_string());
    }

    /// Tells the caller to do something.
    pub fn begin(&mut self, what: &str) {
        writeln!(self.to, "{what}").expect("the caller listens");
    }

    /// And waits until it is done.
    pub fn does(&mut self, what: &str) {
        self.begin(what);
        self.done();
    }

    /// Waits until it is done.
    pub fn done(&mut self) {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("an answer");
        assert_eq!(line, "done\n");
    }

    /// The server is stopped while datagrams go to it by its mailbox, which is full; how many found no room there.
    pub fn stop_the_server(&mut self) -> u64 {
        let (server, caller) = (self.server.0.id(), self.caller.0.id());
        let lost = || shown(caller)["lost"]["tx"].as_u64().expect("a number");
        self.talks(500);
        let (begun, before) = (std::time::Instant::now(), lost());
        loop {
            self.begin("flood");
            std::thread::yield_now();
            crate::lab::signal(server, rustix::process::Signal::STOP);
            self.done();
            // A server that is stopped in the middle of its work has left its gate open, with a good chance: what is sent now is lost then.
            let full = lost();
            self.does("flood");
            if lost() > full {
                return lost() - before;
            }
            crate::lab::signal(server, rustix::process::Signal::CONT);
            assert!(begun.elapsed() < LONG, "never with an open gate");
            self.does("drain");
            self.talks(500);
        }
    }
}

pub fn json(arguments: &[&str]) -> Vec<Value> {
    let output = bypath(arguments).output().expect("bypath starts");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    list.as_array().expect("a list").clone()
}

/// The one UDP socket of a process that was used.
pub fn shown(pid: u32) -> Value {
    let all = json(&["ss", "-u", "--json", "--pid", &pid.to_string()]);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

#[test]
fn datagrams_are_counted_in_every_view() {
    if !has("udp::datagrams_are_counted_in_every_view", &["python3"]) {
        return;
    }
    let mut post = Post::new();
    let (server, caller) = (post.server.0.id(), post.caller.0.id());
    let mut asked = 0;
    until("datagrams go through shared memory both ways", || {
        post.talks(200);
        asked += 200;
        let ring = &shown(caller)["datagrams"];
        ring["ring_tx"].as_u64() > Some(0) && ring["ring_rx"].as_u64() > Some(0)
    });
    let sum = |socket: &Value, what: &str, way: &str| {
        let path = |path: &str| socket[what][format!("{path}_{way}")].as_u64().expect("a number");
        path("ring") + path("kernel")
    };
    // Who has sent is heard before it has counted.
    let mut both = [Value::Null, Value::Null];
    until("all are counted, and none twice", || {
        both = [shown(caller), shown(server)];
        both.iter().all(|socket| ["tx", "rx"].iter().all(|way| sum(socket, "datagrams", way) == asked))
    });
    let [of_caller, of_server] = both;
    // Of 5 octets each; the answers have 3.
    for (socket, out, back) in [(&of_caller, 5, 3), (&of_server, 3, 5)] {
        assert_eq!(
            (sum(socket, "bytes", "tx"), sum(socket, "bytes", "rx")),
            (out * asked, back * asked),
            "{socket}"
        );
        assert_eq!((&socket["protocol"], &socket["path"]), (&"udp".into(), &"ring".into()), "{socket}");
    }
    assert_eq!(of_server["local"], format!("127.0.0.1:{}", post.port));
    // Streams are listed by themselves; filters know both.
    assert!(json(&["ss", "--json", "--pid", &caller.to_string()]).is_empty());
    assert_eq!(
        json(&["ss", "-u", "--json", "udp", "and", "sport", "=", &format!(":{}", post.port)]).len(),
        1
    );
    assert!(json(&["ss", "-u", "--json", "tcp"]).is_empty());
    let text =
        stdout(&bypath(["ss", "--udp", "--pid", &server.to_string()]).output().expect("bypath starts"));
    assert!(
        text.contains("RCVD KERNEL") && text.contains("LOST") && text.contains("ring: bytes go"),
        "{text}"
    );

    let why = stdout(&bypath(["why", &caller.to_string()]).output().expect("bypath starts"));
    let fd = of_caller["fd"].to_string();
    assert!(
        why.contains(&format!("Descriptor {fd}: UDP, ")) && why.contains("while the receiver is awake"),
        "{why}"
    );
    let one = bypath(["why", &format!("{caller}:{fd}")]).output().expect("bypath starts");
    assert!(one.status.success() && stdout(&one).starts_with(&format!("Descriptor {fd}: UDP")), "{one:?}");

    // There is no connection that could be moved.
    let recall = bypath(["recall", &format!("{caller}:{fd}")]).output().expect("bypath starts");
    let said = crate::common::stderr(&recall);
    assert!(
        recall.status.code() == Some(1) && said.contains("UDP sockets have no connection to be moved"),
        "{said}"
    );

    let rows = json(&["top", "--once", "--json", "-d", "0.1", "udp", "and", "pid", &server.to_string()]);
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["protocol"], &rows[0]["drops"], &rows[0]["path"]),
        (&"udp".into(), &0.into(), &"ring".into())
    );
    assert_eq!(rows[0]["tx"].as_u64(), Some(3 * asked));

    let metrics = stdout(&bypath(["metrics"]).output().expect("bypath starts"));
    let of = |name: &str, labels: &str| {
        let line = metrics.lines().find(|l| l.starts_with(name) && l.contains(labels));
        line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{name}: {metrics}"))
    };
    let user = rustix::process::geteuid().as_raw();
    let labels = format!("{{user=\"{user}\",command=\"python3\",path=\"ring\",direction=\"tx\"}}");
    assert!(of("bypath_datagrams_total", &labels) > 0 && of("bypath_datagram_bytes_total", &labels) > 0);
    assert!(of("bypath_udp_sockets", &format!("{{user=\"{user}\"}}")) >= 2);
    // Those of other tests may lose some: of these `top` has told that they lost none.
    of("bypath_datagrams_lost_total", &format!("{{user=\"{user}\",command=\"python3\",direction=\"rx\"}}"));
}

#[test]
fn what_is_lost_at_the_full_mailbox_of_a_stopped_program_is_shown() {
    if !has("udp::what_is_lost_at_the_full_mailbox_of_a_stopped_program_is_shown", &["python3"]) {
        return;
    }
    let mut post = Post::new();
    let (server, caller) = (post.server.0.id(), post.caller.0.id());
    let lost = post.stop_the_server();
    let top = |pid: u32| json(&["top", "--once", "--json", "-d", "0.1", "pid", &pid.to_string()]);
    let (of_caller, of_server) = (top(caller), top(server));
    crate::lab::signal(server, rustix::process::Signal::CONT);
    assert!(of_caller[0]["drops"].as_u64() >= Some(lost), "{lost} of {of_caller:?}");
    assert_eq!(of_server[0]["stopped"], true, "{of_server:?}");
    // It counts what its mailbox had no room for when it looks there itself.
    until("the server knows what was lost", || shown(server)["lost"]["rx"].as_u64() >= Some(lost));
    let why = stdout(&bypath(["why", &server.to_string()]).output().expect("bypath starts"));
    assert!(why.contains("were dropped, as its own mailbox was full"), "{why}");
}
