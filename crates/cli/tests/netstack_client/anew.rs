//! A service ends, and another one of its name begins: sockets that listen, and those of datagrams, are there again.

use super::{HERE, Process, Service, is_possible, script, skip};
use std::io::Write;
use std::process::Stdio;

fn outlives(way: &str) {
    let mut service = Service::real().expect("bypath netstack");
    let program = script("anew.py");
    let mut command = service.program(&["python3", program.to_str().expect("a plain path"), way, HERE]);
    let errors = service.folder.join("errors");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(std::fs::File::create(&errors).expect("a file"));
    let mut program = Process(command.spawn().expect("bypath"));
    let mut input = program.0.stdin.take().expect("a pipe");
    assert_eq!(program.line(), "up");
    service.end();
    input.write_all(b"\n").expect("a reader");
    // Of those that wait for nobody in particular nothing is told where they do not wait.
    let (waits, partner) = match way {
        "select" => ("['ENETDOWN']", "['ENETDOWN']"),
        _ => ("['EAGAIN']", "['EAGAIN', 'ENETDOWN']"),
    };
    assert_eq!(program.line(), format!("True {waits} {waits} {partner}"), "{way}");
    assert_eq!(program.line(), "True ENETDOWN");
    // Options are as they were, and those that are set now, too.
    assert_eq!(program.line(), "[]", "{way}");
    assert_eq!(program.line(), "1 8 (77, 0) EINVAL ENOPROTOOPT");
    assert_eq!(program.line(), "['EINVAL', 'EINVAL', 'EINVAL'] [0, 'ENOTTY', 0] [0, 'ENOTTY', 0]");
    assert_eq!(program.line(), "alone");
    let said = std::fs::read_to_string(&errors).expect("a file");
    assert_eq!(said.matches("the netstack service lab has ended").count(), 1, "{said}");
    service.begin_real(&[]).expect("bypath netstack");
    input.write_all(b"\n").expect("a reader");
    let text = program.finish();
    let said = std::fs::read_to_string(&errors).expect("a file");
    assert_eq!(text, "0 True\n1 8 1\nTrue 1\n", "{way}: {said}");
}

#[test]
fn sockets_that_listen_and_those_of_datagrams_outlive_their_service() {
    const NAME: &str = "anew::sockets_that_listen_and_those_of_datagrams_outlive_their_service";
    if !is_possible(NAME, &[]) {
        return;
    }
    match bypath::tun::Device::tap("probe%d").open() {
        Ok(_) => ["epoll", "poll", "select", "inherited"].into_iter().for_each(outlives),
        Err(e) => skip(NAME, &format!("no TAP devices: {e}")),
    }
}
