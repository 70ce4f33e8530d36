//! Streams of the stack in tasks, streams of the kernel in threads or tasks.

use crate::{LONGEST, at, isolated};
use bypath_netstack::Host;
use bypath_netstack::tokio::{TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener as KernelListener, TcpStream as KernelStream};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// The octets of a stream, piece by piece.
fn piece(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n * 7 + n / 251) as u8).collect()
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(LONGEST, what).await.expect("in time")
}

/// Writes so many octets, and an end behind them.
async fn write_all(mut to: impl AsyncWrite + Unpin, octets: usize) {
    let mut written = 0;
    while written < octets {
        let len = (octets - written).min(100_000);
        in_time(to.write_all(&piece(written, len))).await.expect("written");
        written += len;
    }
    to.shutdown().await.expect("a connection");
}

/// Reads up to the end, which comes after so many octets.
async fn read_all(mut from: impl AsyncRead + Unpin, octets: usize) {
    let mut room = vec![0; 200_000];
    let mut read = 0;
    loop {
        let n = in_time(from.read(&mut room)).await.expect("read");
        if n == 0 {
            break;
        }
        assert!(room[..n] == piece(read, n), "octets from {read} on");
        read += n;
    }
    assert_eq!(read, octets);
}

/// So many octets both ways, on threads.
fn exchange(kernel: &KernelStream, octets: usize) {
    kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
    kernel.set_write_timeout(Some(LONGEST)).expect("a time-out");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for from in (0..octets).step_by(100_000) {
                (&mut &*kernel).write_all(&piece(from, (octets - from).min(100_000))).expect("written");
            }
            kernel.shutdown(Shutdown::Write).expect("a connection");
        });
        let mut room = vec![0; 200_000];
        let mut read = 0;
        loop {
            let n = (&mut &*kernel).read(&mut room).expect("read");
            if n == 0 {
                break;
            }
            assert!(room[..n] == piece(read, n), "octets from {read} on");
            read += n;
        }
        assert_eq!(read, octets);
    });
}

/// The ends of a connection that the kernel has asked the stack for, or the other way round.
async fn pair(host: &Host, ours_calls: bool) -> (TcpStream, KernelStream) {
    if ours_calls {
        let listener = KernelListener::bind(at("10.9.0.1:81")).expect("a listener of the kernel");
        let own = in_time(TcpStream::connect(host, at("10.9.0.1:81"))).await.expect("a connection");
        assert_eq!(own.peer_addr().expect("an address"), at("10.9.0.1:81"));
        let (kernel, from) = listener.accept().expect("a connection");
        assert_eq!(own.local_addr().expect("an address"), from);
        (own, kernel)
    } else {
        let listener = TcpListener::bind(host, at("10.9.0.2:80")).expect("a listener of the stack");
        assert_eq!(listener.local_addr().expect("an address"), at("10.9.0.2:80"));
        let kernel = KernelStream::connect(at("10.9.0.2:80")).expect("a connection");
        let (own, from) = in_time(listener.accept()).await.expect("a connection");
        assert_eq!(from, kernel.local_addr().expect("an address"));
        (own, kernel)
    }
}

#[test]
fn octets_go_both_ways_between_halves_and_the_kernel() {
    const OCTETS: usize = 5_000_000;
    isolated(
        concat!(module_path!(), "::octets_go_both_ways_between_halves_and_the_kernel"),
        |host| async move {
            for ours_calls in [false, true] {
                let (own, kernel) = pair(&host, ours_calls).await;
                own.set_nodelay(true).expect("a connection");
                let thread = std::thread::spawn(move || exchange(&kernel, OCTETS));
                let (read, write) = tokio::io::split(own);
                let writes = tokio::spawn(write_all(write, OCTETS));
                read_all(read, OCTETS).await;
                in_time(writes).await.expect("a task");
                thread.join().expect("a thread");
            }
        },
    );
}

#[test]
fn many_tasks_answer_many_connections() {
    isolated(concat!(module_path!(), "::many_tasks_answer_many_connections"), |host| async move {
        let listener = TcpListener::bind_with(&host, at("0.0.0.0:80"), 200, |_, _| {}).expect("a listener");
        let serves = tokio::spawn(async move {
            for _ in 0..200 {
                let (own, _) = listener.accept().await.expect("a connection");
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(own);
                    tokio::io::copy(&mut read, &mut write).await.expect("octets");
                    write.shutdown().await.expect("a connection");
                });
            }
        });
        let clients: Vec<_> = (0..200usize)
            .map(|n| {
                tokio::spawn(async move {
                    let kernel = tokio::net::TcpStream::connect("10.9.0.2:80").await.expect("a connection");
                    let octets = 1 + (n * 7919) % 60_000;
                    let (read, write) = kernel.into_split();
                    let writes = tokio::spawn(write_all(write, octets));
                    read_all(read, octets).await;
                    in_time(writes).await.expect("a task");
                })
            })
            .collect();
        for client in clients {
            in_time(client).await.expect("a task");
        }
        in_time(serves).await.expect("a task");
    });
}

#[test]
fn what_is_given_up_loses_and_doubles_nothing() {
    const OCTETS: usize = 3_000_000;
    isolated(concat!(module_path!(), "::what_is_given_up_loses_and_doubles_nothing"), |host| async move {
        // A call that is given up before it is open leaves nothing.
        let given_up =
            timeout(Duration::from_millis(20), TcpStream::connect(&host, at("10.9.0.77:99"))).await;
        assert!(given_up.is_err());
        let end = std::time::Instant::now() + LONGEST;
        while host.with(|engine| engine.stack().usage().connections) > 0 {
            assert!(std::time::Instant::now() < end, "the call is left");
            sleep(Duration::from_millis(1)).await;
        }
        let listener = TcpListener::bind(&host, at("10.9.0.2:80")).expect("a listener");
        assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());

        let kernel = KernelStream::connect(at("10.9.0.2:80")).expect("a connection");
        let (own, _) = in_time(listener.accept()).await.expect("a connection");
        let thread = std::thread::spawn(move || exchange(&kernel, OCTETS));
        let (mut read, mut write) = tokio::io::split(own);
        let writes = tokio::spawn(async move {
            let (mut written, mut given_up) = (0, 0);
            while written < OCTETS {
                let octets = piece(written, (OCTETS - written).min(300_000));
                tokio::select! {
                    biased;
                    n = write.write(&octets) => written += n.expect("written"),
                    () = sleep(Duration::from_micros(100)) => given_up += 1,
                }
            }
            write.shutdown().await.expect("a connection");
            given_up
        });
        let (mut taken, mut given_up) = (0, 0);
        let mut room = vec![0; 10_000];
        loop {
            tokio::select! {
                biased;
                n = read.read(&mut room) => {
                    let n = n.expect("read");
                    if n == 0 {
                        break;
                    }
                    assert!(room[..n] == piece(taken, n), "octets from {taken} on");
                    taken += n;
                }
                () = sleep(Duration::from_micros(100)) => given_up += 1,
            }
        }
        assert_eq!(taken, OCTETS);
        let more = in_time(writes).await.expect("a task");
        println!("{given_up} reads and {more} writes were given up");
        thread.join().expect("a thread");
    });
}

#[test]
fn either_end_may_finish_first() {
    isolated(concat!(module_path!(), "::either_end_may_finish_first"), |host| async move {
        for ours_calls in [false, true] {
            // The kernel asks, finishes, and gets an answer.
            let (mut own, mut kernel) = pair(&host, ours_calls).await;
            kernel.write_all(b"question").expect("written");
            kernel.shutdown(Shutdown::Write).expect("a connection");
            let mut room = [0; 8];
            assert_eq!(in_time(own.peek(&mut room[..3])).await.expect("octets"), 3);
            let mut asked = Vec::new();
            in_time(own.read_to_end(&mut asked)).await.expect("a question");
            assert_eq!(asked, b"question");
            assert_eq!(own.read(&mut room).await.expect("the end"), 0);
            let pieces = [&b"ans"[..], b"", b"wer"].map(std::io::IoSlice::new);
            assert_eq!(own.write_vectored(&pieces).await.expect("written"), 6);
            own.shutdown().await.expect("a connection");
            let mut answer = Vec::new();
            kernel.read_to_end(&mut answer).expect("an answer");
            assert_eq!(answer, b"answer");

            // And the other way round; what was written goes out although the stream is dropped.
            let (mut own, mut kernel) = pair(&host, ours_calls).await;
            own.write_all(b"question").await.expect("written");
            own.shutdown().await.expect("a connection");
            assert_eq!(own.write(b"more").await.map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
            let mut asked = Vec::new();
            kernel.read_to_end(&mut asked).expect("a question");
            assert_eq!(asked, b"question");
            assert_eq!(own.try_read(&mut room).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
            kernel.write_all(b"answer").expect("written");
            in_time(own.read_exact(&mut room[..6])).await.expect("an answer");
            assert_eq!(&room[..6], b"answer");

            let (own, mut kernel) = pair(&host, ours_calls).await;
            assert_eq!(own.try_write(&[7; 100_000]).expect("written"), 100_000);
            drop(own);
            let mut last = Vec::new();
            kernel.read_to_end(&mut last).expect("octets");
            assert!(last == [7; 100_000]);
        }
    });
}

#[test]
fn tasks_are_told_what_went_wrong() {
    isolated(concat!(module_path!(), "::tasks_are_told_what_went_wrong"), |host| async move {
        let refused = in_time(TcpStream::connect(&host, at("10.9.0.1:99"))).await;
        assert_eq!(refused.map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        let nobody = in_time(TcpStream::connect(&host, at("10.9.0.77:99"))).await;
        assert_eq!(nobody.map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::HostUnreachable));
        let far = in_time(TcpStream::connect(&host, at("192.0.2.1:99"))).await;
        assert_eq!(far.map(|_| ()).map_err(|e| e.kind()), Err(ErrorKind::NetworkUnreachable));

        // A reset reaches who waits.
        let (mut own, kernel) = pair(&host, false).await;
        own.write_all(b"not read").await.expect("written");
        let mut one = [0];
        (&kernel).read_exact(&mut one).expect("an octet");
        let waits = tokio::spawn(async move { own.read(&mut [0; 9]).await.map_err(|e| e.kind()) });
        drop(kernel);
        assert_eq!(in_time(waits).await.expect("a task"), Err(ErrorKind::ConnectionReset));
    });
}

#[test]
fn tasks_learn_that_the_host_has_ended() {
    isolated(concat!(module_path!(), "::tasks_learn_that_the_host_has_ended"), |host| async move {
        let (mut reads, _first) = pair(&host, false).await;
        let (mut writes, _second) = pair(&host, true).await;
        let listener = TcpListener::bind(&host, at("10.9.0.2:80")).expect("a listener");
        let calls = TcpStream::connect(&host, at("10.9.0.77:99"));
        let tasks = [
            tokio::spawn(async move { reads.read(&mut [0; 9]).await.map(|_| ()) }),
            tokio::spawn(async move {
                // Nobody reads: it comes to wait for room.
                while writes.write_all(&[0; 100_000]).await.is_ok() {}
                writes.write_all(&[0]).await
            }),
            tokio::spawn(async move { listener.accept().await.map(|_| ()) }),
            tokio::spawn(async move { calls.await.map(|_| ()) }),
        ];
        // All of them wait, as a rule; what comes too late is told the same.
        sleep(Duration::from_millis(100)).await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
        drop(host);
        for task in tasks {
            let ended = in_time(task).await.expect("a task");
            assert_eq!(ended.map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
        }
    });
}
