//! Interfaces and addresses, as programs ask for them: the stack's and loopback.

use super::{HERE, Service, common, is_possible, skip};
use std::process::Command;

/// `bypath netstack`, with addresses of both families; `None`: the test is skipped.
fn service(name: &str) -> Option<Service> {
    if !is_possible(name, &[]) {
        return None;
    }
    if let Err(e) = bypath::tun::Device::tap("probe%d").open() {
        skip(name, &format!("no TAP devices: {e}"));
        return None;
    }
    Some(
        Service::real_with(&["--net", "fd09::9/64", "--addr", "fd09::1/64", "--mtu", "1400"])
            .expect("bypath netstack"),
    )
}

/// What the program prints, whose sockets are that service's, on a host that has nothing but loopback.
fn printed(service: &Service, program: &[&str]) -> String {
    let mut command = service.program(&["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.args(program);
    let output = bypath_sys::netns::isolated(&mut command).output().expect("bypath");
    assert!(output.status.success(), "{}", common::stderr(&output));
    common::stdout(&output)
}

const PYTHON: &str = "import errno, fcntl, socket, struct
print(socket.if_nameindex())
(own,) = [name for _, name in socket.if_nameindex() if name != 'lo']
index = socket.if_nametoindex(own)
print(socket.if_indextoname(index) == own, socket.if_nametoindex('lo'), socket.if_indextoname(1))
def ask(request, name, value=b''):
    try: return fcntl.ioctl(s, request, struct.pack('=16s24s', name.encode(), value))
    except OSError as e: return errno.errorcode[e.errno]
def ip(octets): return octets if isinstance(octets, str) else socket.inet_ntoa(octets[20:24])
for family in (socket.AF_INET, socket.AF_INET6):
    s = socket.socket(family, socket.SOCK_DGRAM)
    print(*[ip(ask(request, own)) for request in (0x8915, 0x891b, 0x8919)], ip(ask(0x8915, 'lo')), ask(0x8915, 'nobody'), ask(0x8933, 'nobody'))
    flags, = struct.unpack_from('=H', ask(0x8913, own), 16)
    mtu, = struct.unpack_from('=i', ask(0x8921, own), 16)
    print(flags & 0x43 == 0x43, flags & 8, mtu, struct.unpack_from('=i', ask(0x8933, own), 16)[0] == index)
    print(ask(0x8927, own)[16:18], any(ask(0x8927, own)[18:24]), ask(0x8910, '', struct.pack('=i', index))[:16].rstrip(b'\\0') == own.encode())
    room = bytearray(400)
    import array, ctypes
    room = array.array('B', bytes(400))
    got = fcntl.ioctl(s, 0x8912, struct.pack('iP', 400, room.buffer_info()[0]))
    octets, = struct.unpack_from('i', got)
    all = [(bytes(room[n:n + 16]).rstrip(b'\\0').decode(), socket.inet_ntoa(bytes(room[n + 20:n + 24]))) for n in range(0, octets, 40)]
    print(len(all), ('lo', '127.0.0.1') in all, [address for name, address in all if name == own])
try: fcntl.ioctl(0, 0x8915, bytes(40))
except OSError as e: print(errno.errorcode[e.errno])
try: socket.if_nametoindex('nobody')
except OSError as e: print('none')";

#[test]
fn requests_and_names_are_answered_by_the_stack() {
    let Some(service) = service("interfaces::requests_and_names_are_answered_by_the_stack") else { return };
    let text = printed(&service, &["python3", "-c", PYTHON]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("[(1, 'lo'), (") && lines[0].matches('(').count() == 2, "{text}");
    assert_eq!(lines[1], "True 1 lo");
    // As the kernel has it: addresses are IPv4's, for sockets of IPv4.
    let none = "ENOTTY ".repeat(5);
    for (n, first) in [(2, format!("{HERE} 255.255.255.0 10.9.0.255 127.0.0.1 ENODEV ")), (6, none)] {
        assert_eq!(lines[n], format!("{first}ENODEV"));
        assert_eq!(lines[n + 1], "True 0 1400 True");
        assert_eq!(lines[n + 2], "b'\\x01\\x00' True True");
        assert_eq!(lines[n + 3], format!("2 True ['{HERE}']"));
    }
    assert_eq!(lines[10..], ["ENOTTY", "none"]);
}

#[test]
fn programs_list_the_addresses_of_the_stack() {
    const NAME: &str = "interfaces::programs_list_the_addresses_of_the_stack";
    let Some(service) = service(NAME) else { return };
    if Command::new("hostname").arg("-I").output().is_ok_and(|output| output.status.success()) {
        let text = printed(&service, &["hostname", "-I"]);
        let mut all: Vec<&str> = text.split_whitespace().filter(|a| !a.starts_with("fe80:")).collect();
        all.sort_unstable();
        assert_eq!(all, [HERE, "fd09::1"]);
    } else {
        skip(NAME, "hostname is not installed");
    }
}

const C: &str = r#"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    for (int round = 0; round < 3; round++) {
        struct ifaddrs *all;
        if (getifaddrs(&all) != 0) return 1;
        for (struct ifaddrs *a = all; a && round == 0; a = a->ifa_next) {
            char address[NI_MAXHOST] = "-", mask[NI_MAXHOST] = "-";
            int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;
            socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            const char *name = strcmp(a->ifa_name, "lo") ? "own" : "lo";
            if (family == AF_PACKET) {
                struct sockaddr_ll *l = (void *)a->ifa_addr;
                printf("%s packet %d %d %d\n", name, l->sll_halen, l->sll_ifindex == (int)if_nametoindex(a->ifa_name), a->ifa_data != 0);
                continue;
            }
            if (getnameinfo(a->ifa_addr, len, address, sizeof address, 0, 0, NI_NUMERICHOST)) return 2;
            if (inet_ntop(family, family == AF_INET ? (void *)&((struct sockaddr_in *)a->ifa_netmask)->sin_addr
                                                    : (void *)&((struct sockaddr_in6 *)a->ifa_netmask)->sin6_addr,
                          mask, sizeof mask) == 0) return 3;
            if (strncmp(address, "fe80:", 5) == 0)
                printf("%s link-local %d\n", name, ((struct sockaddr_in6 *)a->ifa_addr)->sin6_scope_id == if_nametoindex(a->ifa_name));
            else
                printf("%s %s %s %d\n", name, address, mask, !!(a->ifa_flags & IFF_UP));
        }
        freeifaddrs(all);
        struct if_nameindex *names = if_nameindex();
        if (!names || !names[0].if_index) return 4;
        if_freenameindex(names);
    }
    return 0;
}
"#;

#[test]
fn a_program_in_c_walks_the_list_and_frees_it() {
    const NAME: &str = "interfaces::a_program_in_c_walks_the_list_and_frees_it";
    let Some(service) = service(NAME) else { return };
    let (source, program) = (service.folder.join("walk.c"), service.folder.join("walk"));
    std::fs::write(&source, C).expect("a file");
    match Command::new("cc").args(["-Wall", "-o"]).arg(&program).arg(&source).output() {
        Err(e) => return skip(NAME, &format!("no C compiler: {e}")),
        Ok(output) => assert!(output.status.success(), "{}", common::stderr(&output)),
    }
    let text = printed(&service, &["env", "MALLOC_CHECK_=3", program.to_str().expect("a plain path")]);
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.ends_with("link-local 1")).collect();
    lines.sort_unstable();
    let own = format!("own {HERE} 255.255.255.0 1");
    assert_eq!(
        lines,
        [
            "lo 127.0.0.1 255.0.0.0 1",
            "lo ::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 1",
            "lo packet 6 1 1",
            &own,
            "own fd09::1 ffff:ffff:ffff:ffff:: 1",
            "own packet 6 1 1",
        ]
    );
}

const QUEUED: &str = "import array, fcntl, select, socket, sys, termios
heard = socket.create_server((sys.argv[1], 0))
a = socket.create_connection(heard.getsockname())
b, _ = heard.accept()
def queued(request):
    n = array.array('i', [-1])
    fcntl.ioctl(a, request, n)
    return n[0]
print(queued(termios.TIOCOUTQ), queued(0x894b))
a.setblocking(False)
sent = 0
# Full is what has no room for half a second.
while select.select([], [a], [], 0.5)[1]: sent += a.send(bytes(65536))
print(0 < queued(0x894b) <= queued(termios.TIOCOUTQ) <= sent)
while sent: sent -= len(b.recv(65536))
a.setblocking(True)
a.sendall(b'x')
b.recv(1)
while queued(termios.TIOCOUTQ): pass
print(queued(0x894b))
try: fcntl.ioctl(heard, termios.TIOCOUTQ, array.array('i', [0]))
except OSError as e: print(e.errno)";

#[test]
fn what_is_on_its_way_is_counted() {
    let Some(service) = service("interfaces::what_is_on_its_way_is_counted") else { return };
    let output = service.output(&["python3", "-c", QUEUED, HERE]);
    assert_eq!(common::stdout(&output), "0 0\nTrue\n0\n22\n", "{}", common::stderr(&output));
}
