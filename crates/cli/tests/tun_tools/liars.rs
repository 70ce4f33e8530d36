//! The other end loses, forges or contradicts: what arrives is right, or it is said that it is not.

use crate::network::{LONG, Tool, octets};
use crate::{Place, routes, tree};
use bypath::wire::{IpProtocol, Ipv4Header, UdpHeader};
use rustix::net::{AddressFamily, SendFlags, SocketType};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

const HELLO: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const ACK: u8 = 5;
const DONE: u8 = 6;
const FAIL: u8 = 7;

fn datagram(kind: u8, session: u64, position: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"BYTU\x01".to_vec();
    bytes.extend([kind, u8::from(kind <= END), 0]);
    bytes.extend(session.to_be_bytes());
    bytes.extend(position.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn parts(datagram: &[u8]) -> (u8, u64, u64, &[u8]) {
    let long = |at: usize| u64::from_be_bytes(datagram[at..at + 8].try_into().unwrap());
    (datagram[5], long(8), long(16), &datagram[24..])
}

fn socket(at: &str) -> UdpSocket {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

isolated! {
    fn a_receiver_that_loses_much_gets_it_all_again() {
        routes();
        let place = Place::new();
        let file = place.file("file", &octets(150_000));
        let socket = socket("127.0.0.1:9000");
        let sender = Tool::start(&["tun", "send", &file, "--via=socket", "--to=127.0.0.1:9000"]);
        let (mut expected, mut stream) = (0, Vec::new());
        let mut state = 88_172_645_463_325_252u64;
        // Of each kind a fifth is lost, by a fixed chance.
        let mut lost = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.is_multiple_of(5)
        };
        let mut buffer = vec![0; 65_536];
        loop {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            let (kind, session, position, body) = parts(&buffer[..len]);
            let wanted = buffer[6] == 1;
            let reply = |kind, position, body: &[u8]| {
                // Somebody else's answers, and what is none, harm nobody.
                socket.send_to(&datagram(ACK, session ^ 1, u64::MAX, &[]), from).unwrap();
                socket.send_to(b"BYTU", from).unwrap();
                socket.send_to(&datagram(kind, session, position, body), from).unwrap();
            };
            match kind {
                HELLO => reply(ACK, expected, &[]),
                DATA => {
                    if position == expected && !lost() {
                        stream.extend_from_slice(body);
                        expected += body.len() as u64;
                    }
                    if wanted && !lost() {
                        reply(ACK, expected, &[]);
                    }
                }
                END => {
                    assert_eq!(position, expected);
                    // The receiver has what the hash is of.
                    let hash = body.to_vec();
                    reply(DONE, expected, &hash);
                }
                4 => break,
                other => panic!("kind {other}"),
            }
        }
        let ended = sender.end().expect(0);
        assert!(!ended.stderr.contains(" 0 of them sent again"), "{}", ended.stderr);
        // Name, blocks, hash: without them it is the file.
        let blocks: Vec<u8> = [&stream[10..10 + 65_536], &stream[14 + 65_536..14 + 2 * 65_536]].concat();
        assert_eq!(&stream[..6], b"\0\x04file");
        assert!(blocks == octets(150_000)[..2 * 65_536]);
    }
}

isolated! {
    fn a_receiver_that_has_something_else_or_falls_silent_is_reported() {
        routes();
        let place = Place::new();
        let file = place.file("file", &octets(100));
        for (case, told, code) in [(0, "the hashes differ", 1), (1, "no room left?evil", 1), (2, "fell silent", 3)] {
            let socket = socket("127.0.0.1:9000");
            let sender = Tool::start(&["tun", "send", &file, "--via=socket", "--to=127.0.0.1:9000"]);
            let mut buffer = vec![0; 65_536];
            let mut expected = 0;
            loop {
                let (len, from) = socket.recv_from(&mut buffer).unwrap();
                let (kind, session, position, body) = parts(&buffer[..len]);
                let reply = |kind, position, body: &[u8]| socket.send_to(&datagram(kind, session, position, body), from).unwrap();
                match (kind, case) {
                    (HELLO, _) => drop(reply(ACK, 0, &[])),
                    // The end of it: the next one finds nobody.
                    (DATA, 2) => break,
                    (DATA, 1) => drop(reply(FAIL, 0, b"no room left\x1bevil")),
                    (DATA, _) => {
                        expected = position + body.len() as u64;
                        reply(ACK, expected, &[]);
                    }
                    (END, _) => drop(reply(DONE, expected, &[7; 32])),
                    _ => break,
                }
                if kind == DATA && case == 1 {
                    break;
                }
            }
            drop(socket);
            let ended = sender.end().expect(code);
            assert!(ended.stderr.contains(told), "{case}: {}", ended.stderr);
        }
    }
}

isolated! {
    fn a_sender_that_forges_is_refused_and_leaves_nothing() {
        routes();
        let name = |text: &str| [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat();
        let block = |octets: &[u8]| [&(octets.len() as u32).to_be_bytes()[..], octets].concat();
        for (stream, told) in [
            (name("/etc/evil"), "the name of no file in a directory"),
            (name("../evil"), "the name of no file in a directory"),
            (name(""), "a name of 0 octets"),
            (vec![0xff, 0xff], "a name of 65535 octets"),
            ([&[0, 2, 0xff, 0xfe][..]].concat(), "no UTF-8"),
            ([name("good"), block(b"content"), block(b""), vec![7; 32]].concat(), "its hash does not fit"),
            (name("there"), "is there already"),
            (name("\x1b[2Jthere"), "?[2Jthere is there already"),
        ] {
            let place = Place::new();
            place.file("out/there", b"mine");
            place.file("out/\x1b[2Jthere", b"mine");
            let out = place.join("out");
            let receiver = Tool::start(&["tun", "recv", "--via=socket", "--out", &out]).says("receiving at");
            let socket = socket("127.0.0.1:0");
            socket.connect("127.0.0.1:9000").unwrap();
            // What is no beginning is ignored.
            for nonsense in [&b""[..], b"BYTU", &[0; 100], &datagram(DATA, 5, 0, b"x"), &datagram(9, 5, 0, b"")] {
                socket.send(nonsense).unwrap();
            }
            socket.send(&datagram(HELLO, 5, 0, b"")).unwrap();
            let mut buffer = vec![0; 2000];
            let len = socket.recv(&mut buffer).unwrap();
            assert_eq!(parts(&buffer[..len]).0, ACK);
            // Out of order, and of another session: not taken.
            socket.send(&datagram(DATA, 5, 7, &stream)).unwrap();
            socket.send(&datagram(DATA, 6, 0, &stream)).unwrap();
            socket.send(&datagram(END, 5, 99, &[0; 32])).unwrap();
            socket.send(&datagram(DATA, 5, 0, &stream)).unwrap();
            loop {
                let len = socket.recv(&mut buffer).unwrap();
                let (kind, session, position, body) = parts(&buffer[..len]);
                if kind == FAIL {
                    assert_eq!((session, position), (5, 0));
                    let text = String::from_utf8_lossy(body).into_owned();
                    assert!(text.contains(told), "{text}");
                    assert!(!text.contains('\x1b'), "{text}");
                    break;
                }
                assert_eq!((kind, position), (ACK, 0));
            }
            let ended = receiver.end().expect(1);
            assert!(ended.stderr.contains(told), "{}", ended.stderr);
            assert!(!ended.stderr.contains('\x1b'), "{}", ended.stderr);
            let mine = ["\x1b[2Jthere", "there"].map(|name| (name.to_owned(), b"mine".to_vec()));
            assert_eq!(tree(Path::new(&out)), mine);
        }
    }
}

isolated! {
    fn strangers_do_not_keep_a_dead_sender_alive() {
        routes();
        let place = Place::new();
        let out = place.join("out");
        let args = ["tun", "recv", "--via=socket", "--timeout=400ms", "--json", "--out", &out];
        let receiver = Tool::start(&args).says("receiving at");
        let (sender, stranger) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        sender.send_to(&datagram(HELLO, 5, 0, b""), "127.0.0.1:9000").unwrap();
        sender.recv(&mut [0; 100]).unwrap();
        // The sender says no more; somebody else does, as long as there is a receiver.
        stranger.connect("127.0.0.1:9000").unwrap();
        stranger.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stranger.send(&datagram(HELLO, 6, 0, b"")).unwrap();
        let mut buffer = vec![0; 2000];
        let len = stranger.recv(&mut buffer).unwrap();
        let (kind, session, _, why) = parts(&buffer[..len]);
        assert_eq!((kind, session), (FAIL, 6));
        assert!(String::from_utf8_lossy(why).contains("busy with another transfer"));
        let begun = Instant::now();
        while stranger.send(&datagram(HELLO, 6, 0, b"")).is_ok() {
            let refused = stranger.recv(&mut [0; 100]).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
            if refused || begun.elapsed() > Duration::from_secs(10) {
                break;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "it is kept alive");
        let ended = receiver.end().expect(3);
        assert!(ended.stderr.contains("the sender fell silent"), "{}", ended.stderr);
    }
}

isolated! {
    fn who_cannot_be_answered_is_not_waited_for() {
        routes();
        let place = Place::new();
        let (out, file) = (place.join("out"), place.file("file", b"content"));
        let receiver = Tool::start(&["tun", "recv", "--via=socket", "--out", &out]).says("receiving at");
        // From port 0, to which nothing can be sent, and from an address that no way leads to.
        let hello = datagram(HELLO, 5, 0, b"");
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(rustix::net::ipproto::RAW)).unwrap();
        let to: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for (source, port) in [([127, 0, 0, 1], 0), ([192, 0, 2, 1], 7000)] {
            let mut packet = vec![0; 28 + hello.len()];
            let ip = Ipv4Header::new(source.into(), [127, 0, 0, 1].into(), IpProtocol::UDP);
            ip.emit(&mut packet, 8 + hello.len()).unwrap();
            UdpHeader { source_port: port, destination_port: 9000 }.emit(&mut packet[20..], hello.len()).unwrap();
            packet[28..].copy_from_slice(&hello);
            rustix::net::sendto(&raw, &packet, SendFlags::empty(), &to).unwrap();
        }
        // Heard by now, as what comes later is.
        Tool::start(&["tun", "send", &file, "--via=socket", "--to=127.0.0.1:9000"]).end().expect(0);
        let ended = receiver.end().expect(0);
        assert!(ended.stderr.contains("192.0.2.1:7000 cannot be answered (the last error of this host's: Network is unreachable"), "{}", ended.stderr);
        assert_eq!(tree(Path::new(&out)), [("file".to_owned(), b"content".to_vec())]);
    }
}

isolated! {
    fn a_sender_that_waits_for_its_input_says_that_it_lives() {
        routes();
        let socket = socket("127.0.0.1:9000");
        let mut sender = Tool::start(&["tun", "send", "-", "--via=socket", "--to=127.0.0.1:9000"]).says("sending from");
        sender.write(b"some");
        let mut sender = Some(sender);
        let (mut buffer, mut expected, mut alive) = (vec![0; 65_536], 0, 0);
        let ended = loop {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            let (kind, session, position, body) = parts(&buffer[..len]);
            let reply = |kind, position, body: &[u8]| socket.send_to(&datagram(kind, session, position, body), from).unwrap();
            match kind {
                DATA if body.is_empty() => {
                    assert_eq!((position, buffer[6]), (expected, 1));
                    alive += 1;
                    reply(ACK, expected, &[]);
                    if alive == 2 {
                        sender = sender.map(Tool::quiet);
                    }
                }
                DATA => {
                    expected = position + body.len() as u64;
                    reply(ACK, expected, &[]);
                }
                END => {
                    let hash = body.to_vec();
                    reply(DONE, expected, &hash);
                    break sender.unwrap().end().expect(0);
                }
                _ => drop(reply(ACK, 0, &[])),
            }
        };
        assert!(ended.stderr.contains("the hashes agree"), "{}", ended.stderr);
    }
}

isolated! {
    fn a_receiver_whose_output_is_not_read_says_that_it_lives() {
        use std::io::Read;
        routes();
        let mut command = crate::common::bypath(["tun", "recv", "--via=socket"]);
        let piped = std::process::Stdio::piped;
        let mut receiver = command.stdout(piped()).stderr(piped()).spawn().unwrap();
        let mut said = vec![0; 20];
        receiver.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
        let socket = socket("127.0.0.1:0");
        socket.connect("127.0.0.1:9000").unwrap();
        let answer = |kind, position, body: &[u8]| {
            socket.send(&datagram(kind, 5, position, body)).unwrap();
            let mut buffer = [0; 100];
            let len = socket.recv(&mut buffer).unwrap();
            let (kind, _, position, _) = parts(&buffer[..len]);
            (kind, position)
        };
        while answer(HELLO, 0, b"") != (ACK, 0) {}
        // A name, and a block that a pipe does not hold.
        let block = octets(200_000);
        let begin = [&b"\0\x01x"[..], &200_000u32.to_be_bytes()].concat();
        assert_eq!(answer(DATA, 0, &begin), (ACK, 7));
        let mut position = 7;
        for part in block[..150_000].chunks(50_000) {
            let answered = answer(DATA, position, part);
            if answered == (ACK, position) {
                // Alive, and it has no more than before.
                break;
            }
            position += part.len() as u64;
            assert_eq!(answered, (ACK, position));
        }
        assert!(position < 150_000, "it has all of it");
        let mut there = vec![0; 50_000];
        receiver.stdout.as_mut().unwrap().read_exact(&mut there).unwrap();
        assert!(there == block[..50_000]);
        receiver.kill().unwrap();
        receiver.wait().unwrap();
    }
}
