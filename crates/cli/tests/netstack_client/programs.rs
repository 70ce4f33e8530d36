//! Programs that know nothing of it, at either end.

use super::{HERE, Service, common, is_possible};
use std::io::Write;
use std::process::Stdio;

const SERVER: &str = "import http.server, os, sys
os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer((sys.argv[2], 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()";

#[test]
fn curl_gets_what_python_serves() {
    if !is_possible("curl_gets_what_python_serves", &["curl"]) {
        return;
    }
    for service in Service::both("curl_gets_what_python_serves") {
        curl_gets(&service);
    }
}

fn curl_gets(service: &Service) {
    let (folder, got) = (common::TempDir::new(), common::TempDir::new());
    let octets: Vec<u8> =
        (0..3_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(folder.join("file"), &octets).unwrap();
    let (_server, port) = service.serve(&["python3", "-c", SERVER, folder.path().to_str().unwrap(), HERE]);
    for n in 0..4 {
        let (url, to) = (format!("http://{HERE}:{port}/file"), got.join(n.to_string()));
        let output = service.output(&["curl", "-sSf", "-o", to.to_str().unwrap(), &url]);
        assert!(output.status.success(), "{}", common::stderr(&output));
        assert!(std::fs::read(to).unwrap() == octets, "another file came");
    }
}

const LISTENS: &str = "import socket, sys
heard = socket.create_server((sys.argv[1], 0))
print(heard.getsockname()[1], flush=True)
s, name = heard.accept()
while part := s.recv(4096): s.sendall(part.upper())
s.close()
print('end', flush=True)";

#[test]
fn nc_talks_to_a_server_and_ends_with_it() {
    if !is_possible("nc_talks_to_a_server_and_ends_with_it", &["nc"]) {
        return;
    }
    for service in Service::both("nc_talks_to_a_server_and_ends_with_it") {
        nc_talks(&service);
    }
}

fn nc_talks(service: &Service) {
    let (server, port) = service.serve(&["python3", "-c", LISTENS, HERE]);
    let mut client = service.program(&["nc", "-N", HERE, &port]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(b"octets by nc\n").unwrap();
    let output = client.wait_with_output().unwrap();
    assert_eq!((common::stdout(&output).as_str(), output.status.success()), ("OCTETS BY NC\n", true));
    assert_eq!(server.finish(), "end\n");
}

const LOOP: &str = "import asyncio, sys
async def serve(reader, writer):
    octets = await reader.read()
    writer.write(octets[::-1])
    writer.close()
async def ask(port, n):
    reader, writer = await asyncio.open_connection(sys.argv[1], port)
    writer.write(b'%d' % n * 1000)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer == (b'%d' % n * 1000)[::-1]
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 0)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*[ask(port, n) for n in range(100)])
    print(len(answers), all(answers))
asyncio.run(main())";

#[test]
fn an_event_loop_serves_and_asks_itself_a_hundred_times() {
    if !is_possible("an_event_loop_serves_and_asks_itself_a_hundred_times", &[]) {
        return;
    }
    for service in Service::both("an_event_loop_serves_and_asks_itself_a_hundred_times") {
        let output = service.output(&["python3", "-c", LOOP, HERE]);
        assert_eq!(common::stdout(&output), "100 True\n", "{}", common::stderr(&output));
    }
}

const STORM: &str = "import signal, socket, sys, threading
heard = socket.create_server((sys.argv[1], 0), backlog=64)
def serve():
    for _ in range(400):
        s, _ = heard.accept()
        s.sendall(s.recv(100))
        s.close()
threading.Thread(target=serve, daemon=True).start()
came = 0
def handler(*_):
    global came
    came += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
good = 0
for n in range(400):
    with socket.create_connection(heard.getsockname()) as s:
        name = s.getpeername()
        s.sendall(b'%d' % n)
        good += s.recv(100) == b'%d' % n and name == heard.getsockname()
signal.setitimer(signal.ITIMER_REAL, 0)
print(good, came > 10)";

#[test]
fn signals_in_the_middle_of_questions_harm_none() {
    if !is_possible("signals_in_the_middle_of_questions_harm_none", &[]) {
        return;
    }
    for service in Service::both("signals_in_the_middle_of_questions_harm_none") {
        let output = service.output(&["python3", "-c", STORM, HERE]);
        assert_eq!(common::stdout(&output), "400 True\n", "{}", common::stderr(&output));
    }
}

/// What heirs.py prints on the kernel's own sockets.
const HEIRS: &str = "fork 0 True
left 0
killed -9 True
exec hooked True
exec plain True
writer True
passed 0
dup True True
dup2 True True
end True
eof b''
";

#[test]
fn children_other_images_and_other_processes_go_on_with_a_connection() {
    let name = "children_other_images_and_other_processes_go_on_with_a_connection";
    if !is_possible(name, &[]) {
        return;
    }
    let heirs = super::script("heirs.py");
    let heirs = heirs.to_str().unwrap();
    for (n, service) in Service::both(name).iter().enumerate() {
        // The tests' own service has no rings.
        let upgrades: &[&str] =
            if n == 0 { &["--upgrade=lazy"] } else { &["--upgrade=lazy", "--upgrade=eager"] };
        for upgrade in upgrades {
            let mut program = service.run(&["--netstack=lab", upgrade], &["python3", heirs, HERE]);
            let output = program.output().expect("bypath");
            assert_eq!(common::stdout(&output), HEIRS, "{upgrade}: {}", common::stderr(&output));
        }
    }
}
