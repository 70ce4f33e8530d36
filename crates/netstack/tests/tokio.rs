//! Tasks with sockets of the stack beside tasks with sockets of the kernel, through a TAP device in a network namespace of its own.
//! With the feature `tokio` only.
#![cfg(feature = "tokio")]

#[path = "tokio/halves.rs"]
mod halves;
#[path = "../../link/tests/common/namespace.rs"]
mod namespace;
#[path = "tokio/streams.rs"]
mod streams;

use bypath_link::tun::Device;
use bypath_netstack::tokio::UdpSocket;
use bypath_netstack::{Engine, Host};
use bypath_stack::config::Config;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest wait for what must come.
const LONGEST: Duration = Duration::from_secs(20);

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// Runs `body` with a host that has 10.9.0.2, the kernel being 10.9.0.1.
fn isolated<F: Future<Output = ()>>(path: &str, body: impl FnOnce(Host) -> F) {
    namespace::in_namespace(path, || {
        let device = match Device::tap("mine").address("10.9.0.1".parse().expect("an address"), 24).open() {
            Ok(device) => device,
            Err(e) => return namespace::skip(path, &format!("no TAP devices: {e}")),
        };
        bypath_sys::netns::set_up("lo", true).expect("loopback");
        let mut engine = Engine::new(Config::default());
        let iface = engine.add_link("mine", Box::new(device)).expect("an interface");
        let prefix = "10.9.0.2/24".parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        let host = Host::run(engine).expect("a thread");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(body(host));
    });
}

/// Sends back what comes, until something empty does.
async fn echo(socket: UdpSocket) {
    let mut room = vec![0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut room).await.expect("a datagram");
        if len == 0 {
            return;
        }
        socket.send_to(&room[..len], from).await.expect("sent");
    }
}

#[test]
fn tasks_of_the_stack_answer_tasks_of_the_kernel() {
    isolated(concat!(module_path!(), "::tasks_of_the_stack_answer_tasks_of_the_kernel"), |host| async move {
        let servers: Vec<_> = (0..50)
            .map(|n| {
                let socket = UdpSocket::bind(&host, SocketAddr::from(([10, 9, 0, 2], 7000 + n)));
                tokio::spawn(echo(socket.expect("a socket of the stack")))
            })
            .collect();
        // Neighbours know each other: what waits for their addresses has less room.
        let first = tokio::net::UdpSocket::bind("10.9.0.1:0").await.expect("a socket of the kernel");
        first.send_to(b"x", "10.9.0.2:7000").await.expect("sent");
        timeout(LONGEST, first.recv(&mut [0; 9])).await.expect("in time").expect("an answer");
        let clients: Vec<_> = (0..50u16)
            .map(|n| {
                tokio::spawn(async move {
                    let socket =
                        tokio::net::UdpSocket::bind("10.9.0.1:0").await.expect("a socket of the kernel");
                    socket.connect(SocketAddr::from(([10, 9, 0, 2], 7000 + n))).await.expect("a way");
                    let mut room = vec![0; 65_535];
                    for round in 0..40usize {
                        let len = 1 + (usize::from(n) * 131 + round * 977) % 9000;
                        let octets: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
                        socket.send(&octets).await.expect("sent");
                        let got = timeout(LONGEST, socket.recv(&mut room)).await.expect("in time");
                        assert!(room[..got.expect("an answer")] == octets, "socket {n}, round {round}");
                    }
                    socket.send(&[]).await.expect("sent");
                })
            })
            .collect();
        for task in clients.into_iter().chain(servers) {
            timeout(LONGEST, task).await.expect("in time").expect("a task");
        }
    });
}

#[test]
fn one_socket_serves_a_task_that_sends_and_one_that_receives() {
    isolated(
        concat!(module_path!(), "::one_socket_serves_a_task_that_sends_and_one_that_receives"),
        |host| async move {
            let socket = Arc::new(UdpSocket::bind(&host, at("10.9.0.2:7")).expect("a socket of the stack"));
            let kernels = tokio::net::UdpSocket::bind("10.9.0.1:8").await.expect("a socket of the kernel");
            let own = Arc::clone(&socket);
            let receives = tokio::spawn(async move {
                let mut room = [0; 100];
                for n in 0..500u32 {
                    let (len, from) = own.recv_from(&mut room).await.expect("a datagram");
                    assert_eq!((&room[..len], from), (&n.to_be_bytes()[..], at("10.9.0.1:8")));
                }
            });
            let mut room = [0; 100];
            for n in 0..500u32 {
                kernels.send_to(&n.to_be_bytes(), "10.9.0.2:7").await.expect("sent");
                socket.send_to(&n.to_be_bytes(), at("10.9.0.1:8")).await.expect("sent");
                let got =
                    timeout(LONGEST, kernels.recv(&mut room)).await.expect("in time").expect("a datagram");
                assert_eq!(room[..got], n.to_be_bytes());
            }
            timeout(LONGEST, receives).await.expect("in time").expect("a task");

            // The kernel says that nobody listens.
            socket.connect(at("10.9.0.1:9")).expect("a way");
            socket.send(b"anybody?").await.expect("sent");
            let answer = timeout(LONGEST, socket.recv(&mut room)).await.expect("in time");
            assert_eq!(answer.map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        },
    );
}
