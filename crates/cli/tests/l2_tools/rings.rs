//! `bypath ipc --via ring`.

use crate::network::{LONG, Tool, octets, skip, tool, veth, without_net_raw};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::{Head, Path};
use bypath_shm::region::Arena;
use bypath_sys::{fd, memfd, unix};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

const GEOMETRY: Geometry = Geometry { slots: 1, ring: 1 << 20 };

fn recv(more: &[&str]) -> Tool {
    Tool::start(&[&["ipc", "recv", "--via=ring"], more].concat()).says("receiving")
}

fn send(more: &[&str]) -> Tool {
    Tool::start(&[&["ipc", "send", "--via=ring"], more].concat())
}

isolated! {
    fn files_and_lines_arrive_octet_for_octet_without_a_capability() {
        veth();
        without_net_raw(|| {
            let file = octets(5 << 20 | 17);
            let receiver = recv(&["--stats"]);
            let ended = send(&["--whole", "--stats"]).give(&file).end().expect(0);
            assert!(ended.stderr.contains("6 messages with 5242897 octets sent to the receiver of channel default"), "{}", ended.stderr);
            let received = receiver.end().expect(0);
            assert!(received.stdout == file);
            for told in [ended.stderr, received.stderr] {
                assert!(told.contains("via ring: ") && told.contains("system calls moved them"), "{told}");
            }
            let receiver = recv(&["--json"]);
            let long = "x".repeat(200_000);
            send(&[]).give(format!("one\n\n{long}\nno newline").as_bytes()).end().expect(0);
            let text = receiver.end().expect(0).text();
            let messages: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
            let lengths: Vec<_> = messages.iter().map(|m| m["octets"].as_u64().unwrap()).collect();
            assert_eq!(lengths, [4, 1, 200_001, 10]);
            assert_eq!((&messages[0]["payload"], &messages[3]["message"]), (&"6f6e650a".into(), &3.into()));
        });
    }
}

isolated! {
    fn shared_memory_takes_fewer_system_calls_than_frames() {
        veth();
        let lines: String = (0..20_000).map(|n| format!("{n}\n")).collect();
        let calls = |via: &str| {
            let receiver = Tool::start(&["ipc", "recv", via]).says("receiving");
            let ended = Tool::start(&["ipc", "send", via, "--stats"]).give(lines.as_bytes()).end().expect(0);
            assert_eq!(receiver.end().expect(0).text(), lines);
            let (before, _) = ended.stderr.split_once(" system calls moved them").expect("the figure");
            before.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let (ring, frames) = (calls("--via=ring"), calls("--via=l2"));
        // A call for each message at least, and hardly any.
        assert!(frames >= 20_000 && ring < frames / 4, "{ring} and {frames}");
    }
}

isolated! {
    fn the_figure_of_system_calls_is_what_strace_counts() {
        let test = "rings::the_figure_of_system_calls_is_what_strace_counts";
        let there = Command::new("strace").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|s| s.success()) {
            return skip(test, "strace is not installed (Debian package strace)");
        }
        veth();
        let directory = crate::common::TempDir::new();
        let lines: String = (0..3000).map(|n| format!("{n}\n")).collect();
        for via in ["--via=l2", "--via=ring"] {
            let receiver = Tool::start(&["ipc", "recv", via]).says("receiving");
            let log = directory.join("strace");
            let mut command = Command::new("strace");
            command.args(["-qq", "-e", "trace=sendto,recvmsg,sendmsg,ppoll,write", "-o"]).arg(&log);
            command.args([crate::common::BYPATH, "ipc", "send", via, "--stats"]).env("BYPATH_CONFIG", "none");
            let ended = Tool::of(command).give(lines.as_bytes()).end().expect(0);
            receiver.end().expect(0);
            let (before, _) = ended.stderr.split_once(" system calls moved them").expect("the figure");
            let told: usize = before.rsplit(' ').next().unwrap().parse().unwrap();
            let text = std::fs::read_to_string(&log).unwrap();
            // Words for the user are no messages; time begins with the first one.
            let counted = text.lines().filter(|l| !l.starts_with("write(")).count();
            assert!(told <= counted && counted - told < 100, "{via}: {told} told, {counted} counted");
        }
    }
}

isolated! {
    fn who_sleeps_is_woken() {
        veth();
        // Who is not woken looks by itself after a quarter of a second: 60 of them would be 15 s.
        let begun = Instant::now();
        let (mut receiver, mut sender) = (recv(&[]), send(&[]));
        for n in 0..60 {
            let line = format!("line {n}\n");
            sender.write(line.as_bytes());
            receiver = receiver.hears(&line);
        }
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        sender.end().expect(0);
        receiver.end().expect(0);
        // A ring that is full, 79 times at least.
        let file = octets(80 << 20);
        let receiver = recv(&[]);
        let begun = Instant::now();
        send(&["--whole"]).give(&file).end().expect(0);
        assert!(begun.elapsed().as_secs() < 15, "{:?}", begun.elapsed());
        assert!(receiver.end().expect(0).stdout == file);
    }
}

isolated! {
    fn several_senders_have_a_ring_each_and_channels_are_apart() {
        veth();
        let (one, other) = (recv(&["--follow", "--json"]), recv(&["--channel=other"]));
        let senders: Vec<_> = (0..8u8).map(|n| send(&["--whole"]).give(&vec![n; 300_000])).collect();
        senders.into_iter().for_each(|s| drop(s.end().expect(0)));
        send(&["--channel=other"]).give(b"apart\n").end().expect(0);
        assert_eq!(other.end().expect(0).text(), "apart\n");
        one.signal(Signal::INT);
        let ended = one.end().expect(0);
        let mut seen: Vec<u64> = Vec::new();
        for line in ended.text().lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            let text = message["payload"].as_str().unwrap();
            assert!(text.len() == 600_000 && text.bytes().step_by(2).all(|b| b == b'0'));
            seen.push(text[1..2].parse().unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(ended.stderr.contains("8 messages with 2400000 octets received from 8 senders"), "{}", ended.stderr);
        let names = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!names.contains("bypath-ipc"), "{names}");
    }
}

isolated! {
    fn mistakes_are_answered_with_what_to_do() {
        veth();
        let ended = tool(&["ipc", "send", "--via=ring", "--wait=50ms"]).expect(3);
        assert!(ended.stderr.contains("start `bypath ipc recv --via ring` first"), "{}", ended.stderr);
        let ended = tool(&["ipc", "recv", "--via=ring", "--timeout=50ms"]).expect(3);
        assert!(ended.stderr.contains("0 messages with 0 octets received from 0 senders"), "{}", ended.stderr);
        let receiver = recv(&[]);
        let ended = tool(&["ipc", "recv", "--via=ring"]).expect(1);
        assert!(ended.stderr.contains("has a receiver: a ring has one"), "{}", ended.stderr);
        receiver.signal(Signal::INT);
        receiver.end().expect(0);
        for wrong in [&["--channel=x"][..], &["--via=ring", "--channel=a/b"], &["--via=ring", "--channel="], &["--via=tcp"]] {
            tool(&[&["ipc", "recv"], wrong].concat()).expect(2);
        }
        // The receiver may come later.
        let sender = send(&["--wait=20s"]).give(b"early\n");
        assert_eq!(recv(&[]).end().expect(0).text(), "early\n");
        sender.end().expect(0);
    }
}

isolated! {
    fn the_dead_are_noticed_and_what_they_said_is_not_lost() {
        veth();
        let receiver = recv(&[]);
        let mut sender = send(&[]);
        sender.write(b"last words\n");
        let receiver = receiver.hears("last words\n");
        sender.signal(Signal::KILL);
        let ended = receiver.end().expect(3);
        assert!(ended.stderr.contains("a sender died"), "{}", ended.stderr);
        let receiver = recv(&["--follow"]);
        let mut sender = send(&[]);
        sender.write(b"x\n");
        let receiver = receiver.hears("x\n");
        receiver.signal(Signal::KILL);
        let ended = sender.end().expect(3);
        assert!(ended.stderr.contains("the receiver died"), "{}", ended.stderr);
        // What it leaves when it is killed goes piece by piece: the channel is free when it has ended.
        assert!(!receiver.end().status.success());
        // One that is stopped is waited for, and Ctrl-C ends the waiting.
        let receiver = recv(&["--follow"]);
        let mut sender = send(&[]);
        sender.write(b"x\n");
        let receiver = receiver.hears("x\n");
        receiver.signal(Signal::STOP);
        let sender = sender.give(&octets(4 << 20));
        sender.signal(Signal::INT);
        let ended = sender.end().expect(3);
        assert!(ended.stderr.contains("messages with"), "{}", ended.stderr);
    }
}

/// A record by hand: docs/l2-tools.md.
fn record(kind: u8, session: u8, seq: u32, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u16).to_be_bytes();
    let numbers = [seq.to_be_bytes(), [0; 4]].concat();
    [&[0x42, 0x59, 1, kind], &[session; 8][..], &numbers, &flags.to_be_bytes(), &len, body].concat()
}

/// A sender by hand.
struct Hand {
    socket: i32,
    arena: Arena,
    tail: u64,
}

fn name() -> Vec<u8> {
    format!("bypath-ipc-{}-default", bypath_sys::process::euid()).into_bytes()
}

impl Hand {
    fn call() -> Hand {
        let socket = unix::connect(&name(), 3).unwrap();
        let (mut octets, end) = ([0; 64], Instant::now() + LONG);
        let got = loop {
            match unix::recv(socket, &mut octets, 3).unwrap() {
                Some(got) => break got,
                None => assert!(Instant::now() < end, "no greeting"),
            }
        };
        assert_eq!((&octets[..got.len], got.fd_count), (&b"BYR\x01"[..], 1));
        let arena = Arena::map(got.fds[0], GEOMETRY).unwrap();
        fd::close(got.fds[0]);
        Hand { socket, arena, tail: 0 }
    }

    fn put(&mut self, octets: &[u8]) {
        self.arena.ring(0, 0).unwrap().copy_from_slice(self.tail, octets);
        self.publish(self.tail + octets.len() as u64);
    }

    fn publish(&mut self, tail: u64) {
        self.tail = tail;
        self.arena.control(0).unwrap().direction[0].publish(tail);
        // Whoever sleeps is woken.
        let _ = unix::send(self.socket, &[0], &[]);
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        fd::close(self.socket);
    }
}

isolated! {
    fn a_sender_that_lies_is_named_and_harms_nobody() {
        veth();
        let whole = record(5, 1, 0, 3, b"good\n");
        let mut kind = record(5, 1, 1, 3, b"x");
        kind[3] = 77;
        let mut receiver = recv(&["--follow"]);
        for (octets, words) in [
            (kind, "wrote what is no record"),
            (record(1, 1, 1, 0, b""), "wrote a record that is not a sender's"),
            (record(5, 2, 1, 3, b"x"), "has two sessions"),
            (record(5, 1, 1, 3, b"x")[..20].to_vec(), "wrote less than a record"),
            ([&record(5, 1, 1, 3, b"x")[..22], &[0xff, 0xff]].concat(), "wrote less than a record"),
        ] {
            let mut hand = Hand::call();
            hand.put(&whole);
            hand.put(&octets);
            receiver = receiver.says(words);
        }
        for tail in [u64::MAX, 1 << 40, (1 << 20) + 1] {
            let mut hand = Hand::call();
            hand.publish(tail);
            receiver = receiver.says("wrote positions that cannot be");
        }
        let hand = Hand::call();
        hand.arena.control(0).unwrap().direction[0].h.head.store(Head::new(5, Path::Kernel).raw(), SeqCst);
        receiver = receiver.says("wrote positions that cannot be");
        // Frames that are missing are told; noise in the socket, descriptors too, is nothing.
        let mut hand = Hand::call();
        hand.put(&record(5, 1, 0, 3, b"first\n"));
        hand.put(&record(5, 1, 3, 3, b"fourth\n"));
        for _ in 0..100 {
            let _ = unix::send(hand.socket, &octets(60), &[hand.socket]);
        }
        receiver = receiver.hears("fourth\n");
        drop(hand);
        receiver = receiver.says("a sender died");
        send(&[]).give(b"honest\n").end().expect(0);
        receiver = receiver.hears("honest\n");
        receiver.signal(Signal::INT);
        let ended = receiver.end().expect(3);
        assert_eq!(ended.text().matches("good\n").count(), 5, "{}", ended.text());
        assert!(ended.stderr.contains("2 frames missing; 1 senders died, 9 wrote what cannot be"), "{}", ended.stderr);
    }
}

isolated! {
    fn noise_in_the_memory_does_no_harm() {
        veth();
        let receiver = recv(&["--follow"]);
        let mut state = 20u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..100 {
            let mut hand = Hand::call();
            for n in 0..8 {
                let mut octets = record(5, 1, n, (random() % 4) as u16, &octets((random() % 2000) as usize));
                if random().is_multiple_of(3) {
                    let at = random() as usize % octets.len();
                    octets[at] ^= 1 << (random() % 8);
                }
                hand.put(&octets);
                let direction = &hand.arena.control(0).unwrap().direction[0];
                match random() % 8 {
                    0 => direction.h.head.store(random(), SeqCst),
                    1 => direction.t.tail.store(random(), SeqCst),
                    2 => direction.ra.wait.iter().for_each(|w| w.store(random(), SeqCst)),
                    3 => direction.wa.wait.iter().for_each(|w| w.store(random(), SeqCst)),
                    _ => {}
                }
            }
        }
        send(&[]).give(b"still there\n").end().expect(0);
        let receiver = receiver.hears("still there\n");
        receiver.signal(Signal::INT);
        receiver.end().expect(3);
    }
}

isolated! {
    fn a_receiver_that_lies_is_named() {
        veth();
        let listener = unix::listen(&name(), 3).unwrap();
        let accept = || {
            let end = Instant::now() + LONG;
            loop {
                if let Some(socket) = unix::accept(listener, 3).unwrap() {
                    return socket;
                }
                assert!(Instant::now() < end, "nobody called");
                std::thread::yield_now();
            }
        };
        let (_, memory) = Arena::new(GEOMETRY, 3).unwrap();
        let small = memfd::create(c"small", 4096, 3).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        use std::os::fd::AsRawFd as _;
        for (greeting, fds, words) in [
            (&b"BYR\x02"[..], &[memory][..], "offers what is not a ring"),
            (b"BYR\x01", &[], "offers what is not a ring"),
            (b"BYR\x01", &[small], "offers what is not a ring"),
            (b"BYR\x01", &[reader.as_raw_fd()], "offers what is not a ring"),
            (b"BYR\x01", &[memory, memory], "offers what is not a ring"),
            (b"", &[], "has enough senders, or ended"),
        ] {
            let sender = send(&["--wait=20s"]).quiet();
            let socket = accept();
            if greeting.is_empty() {
                fd::close(socket);
            } else {
                unix::send(socket, greeting, fds).unwrap();
            }
            let ended = sender.end().expect(3);
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
            if !greeting.is_empty() {
                fd::close(socket);
            }
        }
        // Positions that cannot be; an acknowledgement of another session; and none at all.
        let mut sender = send(&["--wait=20s"]);
        let socket = accept();
        let (arena, memory) = Arena::new(GEOMETRY, 3).unwrap();
        unix::send(socket, b"BYR\x01", &[memory]).unwrap();
        arena.control(0).unwrap().direction[0].h.head.store(Head::new(77, Path::Ring).raw(), SeqCst);
        sender.write(b"x\n");
        let ended = sender.end().expect(3);
        assert!(ended.stderr.contains("the receiver wrote what cannot be"), "{}", ended.stderr);
        fd::close(socket);
        let sender = send(&["--wait=20s"]).quiet();
        let socket = accept();
        let (_, memory) = Arena::new(GEOMETRY, 3).unwrap();
        unix::send(socket, b"BYR\x01", &[memory]).unwrap();
        unix::send(socket, &record(6, 9, 1, 0, b""), &[]).unwrap();
        fd::close(socket);
        let ended = sender.end().expect(3);
        assert!(ended.stderr.contains("the receiver died"), "{}", ended.stderr);
    }
}

/// Does as another user what the channel's owner should not fall for.
const STRANGER: &str = r"
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
name = '\0' + sys.argv[2]
if sys.argv[1] == 'hold':
    s.bind(name)
    s.listen()
    print('ready', flush=True)
    c, _ = s.accept()
    sys.exit(1 if c.recv(100) else 0)
s.connect(name)
sys.exit(1 if s.recv(100) else 0)
";

#[test]
fn other_users_are_neither_given_memory_nor_trusted() {
    let test = "rings::other_users_are_neither_given_memory_nor_trusted";
    if bypath_sys::process::euid() != 0 {
        return skip(test, "needs root, to become another user");
    }
    let there = |program: &str| {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    if !there("setpriv") || !there("/usr/bin/python3") {
        return skip(test, "setpriv or python3 is not installed (Debian packages util-linux, python3)");
    }
    let stranger = |what: &str, channel: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", STRANGER, what]);
        command.arg(format!("bypath-ipc-0-{channel}")).stdout(Stdio::piped());
        command
    };
    let channel = format!("test-{}", std::process::id());
    let mut holder = stranger("hold", &channel).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let ended = send(&["--channel", &channel]).give(b"secret\n").end().expect(1);
    assert!(ended.stderr.contains("is held by user 65534: nothing is sent to others"), "{}", ended.stderr);
    assert!(holder.wait().unwrap().success(), "it was given something");
    let channel = channel + "-own";
    let receiver = recv(&["--follow", "--channel", &channel]);
    assert!(stranger("call", &channel).status().unwrap().success(), "it was given something");
    receiver.signal(Signal::INT);
    let ended = receiver.end().expect(0);
    assert!(ended.stderr.contains("1 were refused"), "{}", ended.stderr);
}
