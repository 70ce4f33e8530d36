//! A host whose kernel has more than loopback beside the stack; and what both say of datagrams to everybody.

use super::{HERE, Process, Service, common, is_possible, script, skip};
use std::process::{Command, Stdio};

/// `bypath netstack`; `None`: the test is skipped.
fn service(name: &str, settings: &[&str], programs: &[&str]) -> Option<Service> {
    if !is_possible(name, &[&["ip"], programs].concat()) {
        return None;
    }
    match bypath::tun::Device::tap("probe%d").open() {
        Ok(_) => Some(Service::real_with(settings).expect("bypath netstack")),
        Err(e) => {
            skip(name, &format!("no TAP devices: {e}"));
            None
        }
    }
}

/// Runs a program on a host with some interfaces, the first of which has an address and a route to everybody.
const HOST: &str = "ip link set lo up
for n in 0 1 2; do ip link add near$n type veth peer name far$n && ip link set near$n up && ip link set far$n up; done
ip addr add $0/24 dev near0 && ip route add default dev near0 && exec \"$@\"";

const ASKS: &str = "import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def ask(request, name, number=0):
    return fcntl.ioctl(s, request, struct.pack('=16si20x', name.encode(), number))
def is_consistent(number, name):
    return (socket.if_nametoindex(name) == number and socket.if_indextoname(number) == name
        and ask(0x8910, '', number)[:16].rstrip(b'\\0') == name.encode()
        and struct.unpack_from('=i', ask(0x8933, name), 16)[0] == number)
listed = socket.if_nameindex()
print(len(listed), all(is_consistent(*one) for one in listed))
own = {number for number, _ in listed}
others = [(socket.if_nametoindex(name), name) for name in ('near0', 'near1', 'near2', 'far0', 'far1', 'far2')]
print(all(is_consistent(*one) for one in others if one[0] not in own), len(others) - len(own & dict(others).keys()) >= 5)
print(ask(0x8915, 'near0')[20:24] == socket.inet_aton('10.9.0.1'))
for call, argument in ((socket.if_nametoindex, 'nobody'), (socket.if_indextoname, 999), (lambda name: ask(0x8933, name), 'nobody')):
    try: print(call(argument))
    except OSError: print('none')";

#[test]
fn interfaces_of_the_kernels_alone_can_be_asked_about() {
    let Some(service) = service("beside::interfaces_of_the_kernels_alone_can_be_asked_about", &[], &[])
    else {
        return;
    };
    let mut command = service.program(&["sh", "-ec", HOST, HERE, "python3", "-c", ASKS]);
    let output = bypath_sys::netns::isolated(&mut command).output().expect("bypath");
    let text = common::stdout(&output);
    assert_eq!(text, "2 True\nTrue True\nTrue\nnone\nnone\nnone\n", "{}", common::stderr(&output));
}

#[test]
fn dnsmasq_starts_where_the_kernel_has_more_interfaces_than_the_stack() {
    const NAME: &str = "beside::dnsmasq_starts_where_the_kernel_has_more_interfaces_than_the_stack";
    let Some(service) = service(NAME, &[], &["dig"]) else { return };
    if Command::new("dnsmasq").arg("--version").output().is_err() {
        return skip(NAME, "dnsmasq is not installed; Debian package: dnsmasq-base");
    }
    let server = [
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--no-resolv",
        "--no-hosts",
        "--port=5300",
    ];
    let more = [
        "--pid-file",
        "--log-facility=-",
        "--local=/example/",
        "--address=/lab.example/192.0.2.7",
        "--user=",
        "--group=",
    ];
    let mut command = service.program(&[&["sh", "-ec", HOST, "10.8.0.1"], &server[..], &more].concat());
    let child = bypath_sys::netns::isolated(&mut command).stderr(Stdio::piped()).spawn().expect("bypath");
    let mut server = Process(child);
    let mut said = String::new();
    let errors = std::io::BufReader::new(server.0.stderr.take().expect("a pipe"));
    for line in std::io::BufRead::lines(errors) {
        said += &line.expect("text");
        if said.contains("started") {
            break;
        }
    }
    assert!(said.contains("started"), "{said}");
    let at = format!("@{HERE}");
    let dig = ["dig", &at, "-p", "5300", "+short", "+tries=3", "+timeout=10", "lab.example", "A"];
    let answer = service.output(&dig);
    assert_eq!(common::stdout(&answer), "192.0.2.7\n", "{}", common::stderr(&answer));
}

#[test]
fn datagrams_to_everybody_and_to_groups_are_answered_as_the_kernel_does() {
    const NAME: &str = "beside::datagrams_to_everybody_and_to_groups_are_answered_as_the_kernel_does";
    let Some(service) = service(NAME, &["--gateway", "10.9.0.9"], &[]) else { return };
    let program = script("everybody.py");
    let line = ["python3", program.to_str().expect("a plain path"), HERE];
    let mut kernel = Command::new("sh");
    kernel.args(["-ec", HOST, HERE]).args(line);
    let kernel = bypath_sys::netns::isolated(&mut kernel).output().expect("sh");
    let (expected, errors) = (common::stdout(&kernel), common::stderr(&kernel));
    assert_eq!(expected.lines().count(), 30, "{expected}{errors}");
    assert_eq!(common::stdout(&service.output(&line)), expected);
}

const NEAR: &str = "import socket
near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
near.bind(('127.0.0.1', 0))
near.settimeout(30)
for connects in (True, False):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('', 0))
    s.settimeout(30)
    if connects:
        s.connect(near.getsockname())
        s.send(b'there')
    else:
        s.sendto(b'there', near.getsockname())
    octets, name = near.recvfrom(9)
    near.sendto(octets, name)
    print(s.recv(9), name[0], name[1] == s.getsockname()[1])";

#[test]
fn who_binds_to_every_address_and_talks_to_loopback_first_is_the_kernels() {
    const NAME: &str = "beside::who_binds_to_every_address_and_talks_to_loopback_first_is_the_kernels";
    let Some(service) = service(NAME, &[], &[]) else { return };
    let output = service.output(&["python3", "-c", NEAR]);
    let expected = "b'there' 127.0.0.1 True\n".repeat(2);
    assert_eq!(common::stdout(&output), expected, "{}", common::stderr(&output));
}
