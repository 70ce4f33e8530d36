//! Several programs and processes behind one port.

use super::{HERE, Process, Service, common, is_possible};
use std::process::Stdio;

/// Accepts until its input ends, tells its name to each one who calls and how many those were; with `hold` accepts nobody.
const WORKER: &str = "import os, selectors, socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen(200)
print(s.getsockname()[1], flush=True)
if 'hold' in sys.argv:
    input()
    os._exit(0)
served = 0
watch = selectors.DefaultSelector()
watch.register(s, selectors.EVENT_READ)
watch.register(0, selectors.EVENT_READ)
while True:
    ready = [key.fileobj for key, _ in watch.select()]
    if s in ready:
        c, _ = s.accept()
        c.sendall(b'%d' % os.getpid())
        c.close()
        served += 1
    elif 0 in ready:
        break
print(served, flush=True)";

/// Calls so often, and tells how many were answered.
const CALLS: &str = "import socket, sys
good = 0
for _ in range(int(sys.argv[3])):
    with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
        good += s.recv(100).isdigit()
print(good)";

fn worker(service: &Service, port: &str, more: &[&str]) -> (Process, String) {
    let all = [&["python3", "-c", WORKER, HERE, port], more].concat();
    let child = service.program(&all).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
    let mut process = Process(child);
    let line = process.line();
    (process, line)
}

/// Has a worker end, which tells how many it served.
fn ended(mut worker: Process) -> u32 {
    drop(worker.0.stdin.take());
    worker.finish().trim().parse().expect("a number")
}

fn call(service: &Service, port: &str, times: u32) -> u32 {
    let output = service.output(&["python3", "-c", CALLS, HERE, port, &times.to_string()]);
    assert!(output.status.success(), "{}", common::stderr(&output));
    common::stdout(&output).trim().parse().expect("a number")
}

/// `bypath netstack`: the spread is its own.
fn service(name: &str) -> Option<Service> {
    if !is_possible(name, &[]) {
        return None;
    }
    Service::both(name).into_iter().nth(1)
}

#[test]
fn programs_that_share_a_port_have_about_as_many_callers_each() {
    let Some(service) = service("workers::programs_that_share_a_port_have_about_as_many_callers_each") else {
        return;
    };
    let (first, port) = worker(&service, "0", &[]);
    let mut workers = vec![first];
    workers.extend((0..3).map(|_| worker(&service, &port, &[]).0));
    assert_eq!(call(&service, &port, 400), 400);
    // One that ends while nobody waits for it takes nobody along.
    let mut served = vec![ended(workers.remove(0))];
    assert_eq!(call(&service, &port, 300), 300);
    served.extend(workers.into_iter().map(ended));
    assert_eq!(served.iter().sum::<u32>(), 700, "{served:?}");
    // 100 and 200 are expected, give or take 9 and 12 (one deviation of a fair draw): these are more than five of them.
    assert!((50..=150).contains(&served[0]), "{served:?}");
    assert!(served[1..].iter().all(|n| (130..=270).contains(n)), "{served:?}");
}

/// Opens so many connections, says so, and then what became of each.
const WAITS: &str = "import errno, socket, sys
all = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
print('open', flush=True)
input()
def end(s):
    try: return s.recv(100).decode() or 'end'
    except OSError as e: return errno.errorcode[e.errno]
print(*[end(s) for s in all], flush=True)";

#[test]
fn who_waits_for_a_worker_that_ends_is_reset_and_nobody_else() {
    let Some(service) = service("workers::who_waits_for_a_worker_that_ends_is_reset_and_nobody_else") else {
        return;
    };
    let (mut held, port) = worker(&service, "0", &["hold"]);
    let (other, _) = worker(&service, &port, &[]);
    let program = ["python3", "-c", WAITS, HERE, &port, "60"];
    let child =
        service.program(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
    let mut waits = Process(child);
    assert_eq!(waits.line(), "open");
    held.0.kill().expect("a process");
    held.0.wait().expect("a process");
    // From now on all are the other one's.
    assert_eq!(call(&service, &port, 50), 50);
    drop(waits.0.stdin.take().map(|mut input| std::io::Write::write_all(&mut input, b"\n")));
    let ends = waits.line();
    let reset = ends.matches("ECONNRESET").count();
    let name = other.0.id().to_string();
    let answered = ends.split(' ').filter(|end| **end == name).count();
    assert_eq!(reset + answered, 60, "{ends}");
    assert!(reset > 0 && answered > 0, "{ends}");
    assert_eq!(ended(other) as usize, 50 + answered);
}

/// One listener and four children that accept, of which one is killed in the middle.
const FORKED: &str = "import os, signal, socket, sys
s = socket.create_server((sys.argv[1], 0), backlog=100)
def serve():
    while True:
        c, _ = s.accept()
        c.sendall(c.recv(10) + b' %d' % os.getpid())
        c.close()
children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        serve()
    children.append(pid)
def call():
    with socket.create_connection(s.getsockname()) as c:
        c.sendall(b'hello')
        text = b''
        while part := c.recv(100): text += part
    return text.decode().split()
first = [call() for _ in range(200)]
os.kill(children[0], signal.SIGKILL)
os.waitpid(children[0], 0)
then = [call() for _ in range(200)]
print(all(a[0] == 'hello' for a in first + then), len(first + then))
print({int(a[1]) for a in first + then} <= set(children), children[0] in {int(a[1]) for a in then})
for pid in children[1:]: os.kill(pid, signal.SIGTERM)";

#[test]
fn children_share_a_listener_and_go_on_without_one_of_them() {
    let Some(service) = service("workers::children_share_a_listener_and_go_on_without_one_of_them") else {
        return;
    };
    let output = service.output(&["python3", "-c", FORKED, HERE]);
    assert_eq!(common::stdout(&output), "True 400\nTrue False\n", "{}", common::stderr(&output));
}
