//! Halves of streams, and calls to others, in tasks.

use crate::{LONGEST, at};
use bypath_link::pair::pair;
use bypath_netstack::tokio::{TcpForwarder, TcpListener, TcpStream};
use bypath_netstack::{Engine, Host};
use bypath_stack::config::Config;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional, join};
use tokio::time::timeout;

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(LONGEST, what).await.expect("in time")
}

fn alone() -> Host {
    Host::run(Engine::with_seed(Config::default(), [1; 32])).expect("a thread")
}

/// Both ends of a connection of a host with itself.
async fn ends(host: &Host) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(host, at("127.0.0.1:80")).expect("a listener");
    let (client, server) =
        in_time(async { tokio::join!(TcpStream::connect(host, at("127.0.0.1:80")), listener.accept()) })
            .await;
    (client.expect("a connection"), server.expect("a connection").0)
}

fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_have_a_half_each_and_the_one_that_writes_finishes() {
    let host = alone();
    for _ in 0..5 {
        let (client, server) = ends(&host).await;
        let (mut reader, mut writer) = server.into_split();
        assert_eq!(reader.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(writer.local_addr().unwrap(), client.peer_addr().unwrap());
        // Nobody says that it is the end but the half that is dropped.
        let echo = tokio::spawn(async move {
            copy(&mut reader, &mut writer).await.expect("octets");
            drop(writer);
            reader
        });
        let content = octets(1_000_000);
        let (mut reader, mut writer) = client.into_split();
        writer.as_ref().set_nodelay(true).expect("a host");
        let sends = tokio::spawn({
            let content = content.clone();
            async move {
                writer.write_all(&content).await.expect("written");
                writer.shutdown().await.expect("a connection");
                writer
            }
        });
        let mut all = Vec::new();
        in_time(reader.read_to_end(&mut all)).await.expect("octets");
        assert!(all == content);
        let writer = in_time(sends).await.expect("a task");
        let other = in_time(echo).await.expect("a task");
        let refused = other.reunite(writer).expect_err("of another stream");
        assert!(refused.to_string().contains("different"));
        let stream = reader.reunite(refused.1).expect("the stream");
        assert_eq!(stream.try_read(&mut [0; 9]).expect("an end"), 0);
    }
}

#[tokio::test]
async fn a_half_that_is_forgotten_finishes_nothing() {
    let host = alone();
    let (client, mut server) = ends(&host).await;
    let (reader, writer) = client.into_split();
    writer.forget();
    assert_eq!(reader.as_ref().try_write(b"still open").expect("written"), 10);
    let mut room = [0; 10];
    in_time(server.read_exact(&mut room)).await.expect("octets");
    drop(reader);
    assert_eq!(in_time(server.read(&mut room)).await.expect("an end"), 0);
}

#[tokio::test]
async fn one_task_reads_and_writes_by_borrowed_halves() {
    let host = alone();
    let (mut client, mut server) = ends(&host).await;
    let content = octets(3_000_000);
    let mut all = Vec::new();
    let ((), echoed) = in_time(async {
        let (mut reader, mut writer) = client.split();
        let sends = async {
            let half = async {
                writer.write_all(&content).await.expect("written");
                writer.shutdown().await.expect("a connection");
            };
            let (_, read) = tokio::join!(half, reader.read_to_end(&mut all));
            read.expect("octets");
        };
        let echoes = async {
            let (mut reader, mut writer) = server.split();
            let n = copy(&mut reader, &mut writer).await.expect("octets");
            writer.shutdown().await.expect("a connection");
            n
        };
        tokio::join!(sends, echoes)
    })
    .await;
    assert!(all == content && echoed == 3_000_000);
    // It is whole again, and over.
    assert_eq!(in_time(client.read(&mut [0])).await.expect("an end"), 0);
}

#[tokio::test]
async fn it_is_waited_for_without_reading_or_writing() {
    let host = alone();
    let (mut client, mut server) = ends(&host).await;
    in_time(client.writable()).await.expect("a host");
    assert!(timeout(std::time::Duration::from_millis(30), client.readable()).await.is_err());
    server.write_all(b"x").await.expect("written");
    in_time(client.readable()).await.expect("a host");
    assert_eq!(client.try_read(&mut [0; 9]).expect("an octet"), 1);
    assert_eq!(client.try_read(&mut [0; 9]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    while client.try_write(&[0; 100_000]).is_ok() {}
    let reads = tokio::spawn(async move {
        let mut room = vec![0; 100_000];
        while server.read(&mut room).await.expect("octets") > 0 {}
    });
    in_time(client.writable()).await.expect("a host");
    assert!(client.try_write(b"y").is_ok());
    client.shutdown().await.expect("a connection");
    in_time(reads).await.expect("a task");
    let (one, two) = ends(&host).await;
    drop(host);
    in_time(one.readable()).await.expect("calls say it");
    assert_eq!(two.try_read(&mut [0]).expect_err("it has ended").kind(), ErrorKind::BrokenPipe);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_to_anybody_are_carried_on_by_tasks() {
    let (a, b) = pair(1500, 256);
    let with = |link, address: &str, other: &str, seed| {
        let mut engine = Engine::with_seed(Config::default(), [seed; 32]);
        let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        let via = Some(other.parse().expect("an address"));
        let route = Route { prefix: Prefix::ALL_V4, iface, via, metric: 0, source: None };
        engine.stack().add_route(route).expect("a route");
        Host::run(engine).expect("a thread")
    };
    let (a, b) = (with(a, "10.0.0.1/24", "10.0.0.2", 1), with(b, "10.0.0.2/24", "10.0.0.1", 2));
    // Those who are called are on the host itself, under the number of their address.
    let server = TcpListener::bind(&b, at("127.0.0.1:80")).expect("a listener");
    tokio::spawn(async move {
        loop {
            let (stream, _) = server.accept().await.expect("a connection");
            tokio::spawn(async move {
                let (mut reader, mut writer) = stream.into_split();
                copy(&mut reader, &mut writer).await
            });
        }
    });
    let forwarder = TcpForwarder::open(&b).expect("a forwarder");
    let given_up = timeout(std::time::Duration::from_millis(20), forwarder.accept()).await;
    assert!(given_up.is_err());
    let b = std::sync::Arc::new(b);
    let forwards = tokio::spawn({
        let b = std::sync::Arc::clone(&b);
        async move {
            for _ in 0..30 {
                let call = forwarder.accept().await.expect("a call");
                let b = std::sync::Arc::clone(&b);
                tokio::spawn(async move {
                    let port = call.to().port();
                    let Ok(mut there) = TcpStream::connect(&b, at(&format!("127.0.0.1:{port}"))).await else {
                        return call.refuse();
                    };
                    assert_eq!(call.from().ip().to_string(), "10.0.0.1");
                    let mut here = call.accept().await.expect("a connection");
                    copy_bidirectional(&mut here, &mut there).await.expect("octets");
                });
            }
        }
    });
    for n in 1..=15 {
        let refused = TcpStream::connect(&a, at(&format!("198.51.100.{n}:81"))).await;
        assert_eq!(refused.expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
        let client =
            in_time(TcpStream::connect(&a, at(&format!("198.51.100.{n}:80")))).await.expect("a connection");
        let content = octets(50_000);
        let (reader, mut writer) = client.into_split();
        let mut both = join(reader, tokio::io::sink());
        let mut all = Vec::new();
        let sends = async {
            writer.write_all(&content).await.expect("written");
            writer.shutdown().await.expect("a connection");
        };
        in_time(async { tokio::join!(sends, both.read_to_end(&mut all)) }).await.1.expect("octets");
        assert!(all == content);
    }
    in_time(forwards).await.expect("a task");
}
