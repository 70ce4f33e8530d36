//! `bypath chat` with a peer made by hand that is broken, or lies: docs/l2-tools.md.

use crate::network::{LONG, Tool, octets, socket, tool, veth};
use bypath::l2::{Header, MacAddr, Socket};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// CRC-32, bit by bit.
fn crc(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0u32, |sum, octet| {
        (0..8).fold(sum ^ u32::from(*octet), |s, _| if s & 1 != 0 { s >> 1 ^ 0xedb8_8320 } else { s >> 1 })
    })
}

/// A client by hand, on `left`.
struct Peer {
    stream: TcpStream,
    socket: Socket,
    server: MacAddr,
    session: [u8; 8],
    next: u64,
}

fn hello(mac: MacAddr, vlan: u16) -> Vec<u8> {
    let body = [
        &b"BYPC\0\x01"[..],
        &[0; 8],
        &mac.0,
        &[0x88, 0xb5],
        &vlan.to_be_bytes(),
        &[7],
        &1500u32.to_be_bytes(),
        &(1u32 << 20).to_be_bytes(),
    ];
    body.concat()
}

impl Peer {
    /// Calls the server on `right` and says who it is.
    fn call(mac: MacAddr) -> Peer {
        let stream = TcpStream::connect("127.0.0.1:9000").unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let socket = Socket::builder("left").ethertype(0x88b5).vlan(10, 7).timeout(LONG).open().unwrap();
        let mut peer = Peer { stream, socket, server: MacAddr::UNSPECIFIED, session: [0; 8], next: 0 };
        peer.say(1, &hello(mac, 10));
        let theirs = peer.hears(1);
        peer.session.copy_from_slice(&theirs[6..14]);
        peer.server = MacAddr(theirs[14..20].try_into().unwrap());
        peer
    }

    fn say(&mut self, kind: u8, body: &[u8]) {
        let len = (body.len() as u16).to_be_bytes();
        // It may have hung up.
        let _ = self.stream.write_all(&[&[kind], &len[..], body].concat());
    }

    /// The body of the next message of this kind.
    fn hears(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let mut head = [0; 3];
            self.stream.read_exact(&mut head).unwrap_or_else(|e| panic!("message {kind} did not come: {e}"));
            let mut body = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
            self.stream.read_exact(&mut body).unwrap();
            if head[0] == kind {
                return body;
            }
        }
    }

    /// A frame with these octets of the stream.
    fn frame(&self, position: u64, octets: &[u8]) -> Vec<u8> {
        let sum = crc(&[&self.session[..], &position.to_be_bytes(), &[0], octets].concat());
        let len = (4 + octets.len() as u16).to_be_bytes();
        let head = [&[0x42, 0x59, 1, 8][..], &self.session, &position.to_be_bytes(), &[0, 0], &len].concat();
        [&head[..], &sum.to_be_bytes(), octets].concat()
    }

    fn send(&mut self, payload: &[u8]) {
        self.socket.send(self.server, payload).unwrap();
    }

    /// Says a line in one frame.
    fn line(&mut self, text: &[u8]) {
        let octets = [&(text.len() as u32).to_be_bytes()[..], text].concat();
        let frame = self.frame(self.next, &octets);
        self.send(&frame);
        self.next += octets.len() as u64;
    }

    /// Waits until everything said so far is there.
    fn is_heard(&mut self) {
        while self.hears(3)[..8] != self.next.to_be_bytes() {}
    }
}

fn server() -> Tool {
    Tool::start(&["chat", "right", "server"]).quiet().says("waiting on right")
}

isolated! {
    fn what_is_written_in_the_documentation_is_what_is_spoken() {
        let (left, _) = veth();
        let server = server();
        let mut peer = Peer::call(left);
        peer.line(b"by hand\n");
        peer.is_heard();
        // It asks for what is missing, and takes it once.
        let (gap, behind) = (peer.frame(12, b"\0\0\0\x04lat"), peer.frame(19, b"e"));
        peer.send(&behind);
        let report = loop {
            let report = peer.hears(3);
            if report.len() > 16 {
                break report;
            }
        };
        assert_eq!(report[16..], [12u64.to_be_bytes(), 19u64.to_be_bytes()].concat());
        for frame in [&gap, &gap, &behind] {
            peer.send(frame);
        }
        peer.next = 20;
        peer.is_heard();
        peer.say(5, &[&7u64.to_be_bytes()[..], &1500u32.to_be_bytes()].concat());
        assert_eq!(peer.hears(6), 7u64.to_be_bytes());
        peer.say(7, &20u64.to_be_bytes());
        assert_eq!(peer.hears(8), b"");
        peer.say(8, b"");
        let ended = server.end().expect(0);
        assert_eq!(ended.text(), "by hand\nlate");
        assert!(ended.stderr.contains("2 frames came twice"), "{}", ended.stderr);
    }
}

isolated! {
    fn who_is_not_chat_does_not_disturb_a_server_that_waits() {
        let (left, _) = veth();
        let mut server = server();
        for (octets, words) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "a message of kind 71"),
            (b"", "the other end died"),
            (&[1, 0xff, 0xff], "a message of 65535 octets"),
            (&[1, 0, 4, b'X', b'Y', b'Z', b'!'], "a beginning that is not bypath's"),
            (&[8, 0, 0], "a beginning that is not bypath's"),
        ] {
            let mut stream = TcpStream::connect("127.0.0.1:9000").unwrap();
            stream.write_all(octets).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            server = server.says(words);
        }
        let mut other = hello(left, 10);
        other[5] = 2;
        let mut stream = TcpStream::connect("127.0.0.1:9000").unwrap();
        stream.write_all(&[&[1, 0, 33][..], &other].concat()).unwrap();
        server = server.says("speaks version 2");
        // One that says nothing at all is not waited for without end.
        let silent = TcpStream::connect("127.0.0.1:9000").unwrap();
        server = server.says("did not say who it is for 5 s");
        drop(silent);
        let client = tool(&["chat", "left", "client", "127.0.0.1"]);
        client.expect(0);
        server.end().expect(0);
    }
}

isolated! {
    fn lies_are_named_and_end_the_conversation() {
        let (left, _) = veth();
        let number = |n: u64| n.to_be_bytes().to_vec();
        let report = |next: u64, limit: u64, more: &[u64]| {
            [&[next, limit][..], more].concat().iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>()
        };
        for (kind, body, words) in [
            (3, report(1 << 40, 1 << 41, &[]), "octets of 0 that were sent"),
            (3, report(0, 0, &[]), "less than it said before"),
            (3, report(0, 1 << 20, &[5, 9]), "asks again for what was not sent"),
            (4, number(u64::MAX), "it sent more than it may"),
            (8, vec![], "cannot be trusted"),
            (1, hello(left, 10), "says twice who it is"),
            (99, vec![], "a message of kind 99"),
            (5, vec![0; 12], "carries 0 octets in a frame"),
        ] {
            let server = Tool::start(&["chat", "right", "server"]).says("waiting");
            let mut peer = Peer::call(left);
            peer.say(kind, &body);
            // It is told why.
            let why = String::from_utf8(peer.hears(9)).unwrap();
            let ended = server.end().expect(3);
            assert!(ended.stderr.contains(words) && why.contains(words), "{kind} {body:?}: {why} {}", ended.stderr);
        }
        // A message of 4 GiB.
        let server = server();
        let mut peer = Peer::call(left);
        let absurd = peer.frame(0, &[0xff; 8]);
        peer.send(&absurd);
        let ended = server.end().expect(3);
        assert!(ended.stderr.contains("a message of 4294967295 octets"), "{}", ended.stderr);
    }
}

isolated! {
    fn frames_of_strangers_are_ignored_and_counted() {
        let (left, _) = veth();
        let server = server();
        let mut peer = Peer::call(left);
        let good = peer.frame(0, b"\0\0\0\x03no\n");
        let mut changed = good.clone();
        changed[30] ^= 1;
        let mut of_server = good.clone();
        of_server[21] = 4;
        let mut session = good.clone();
        session[5] ^= 1;
        let mut long = good.clone();
        long[22] = 0xff;
        for bad in [&changed, &of_server, &session, &long, &good[..20].to_vec(), &octets(1000)] {
            peer.send(bad);
        }
        // Of another address, another VLAN, another EtherType, without a tag.
        let header = peer.socket.header(peer.server);
        let tag = header.vlan.unwrap();
        for header in [
            Header { source: MacAddr([2, 0, 0, 0, 0, 9]), ..header },
            Header { vlan: Some(bypath::l2::VlanTag { vid: 11, ..tag }), ..header },
            Header { vlan: None, ..header },
            Header { ethertype: 0x88b6, ..header },
            Header { destination: MacAddr([2, 0, 0, 0, 0, 9]), ..header },
        ] {
            peer.socket.send_with(&header, &good).unwrap();
        }
        // Far beyond what may be sent.
        for position in [1 << 21, 1 << 62, u64::MAX - 1] {
            let frame = peer.frame(position, b"beyond");
            peer.send(&frame);
        }
        peer.line(b"yes\n");
        peer.is_heard();
        // A replay.
        let again = peer.frame(0, b"\0\0\0\x04yes\n");
        for _ in 0..3 {
            peer.send(&again);
        }
        peer.line(b"and this\n");
        peer.is_heard();
        peer.say(7, &peer.next.to_be_bytes());
        peer.hears(8);
        peer.say(8, b"");
        let ended = server.end().expect(0);
        assert_eq!(ended.text(), "yes\nand this\n");
        // Changed: those whose checksum says so, or that have none; others: length, noise, the address, three beyond.
        assert!(ended.stderr.contains("3 frames came twice, 4 changed, 0 were not taken in time, 6 of others"), "{}", ended.stderr);
    }
}

isolated! {
    fn a_peer_whose_frames_come_from_another_address_is_named() {
        veth();
        let server = server();
        let mut peer = Peer::call(MacAddr([2, 0, 0, 0, 0, 8]));
        peer.line(b"from left\n");
        peer.say(4, &peer.next.to_be_bytes());
        // It stays alive on the connection.
        let mut stream = peer.stream.try_clone().unwrap();
        let alive = std::thread::spawn(move || {
            let ping = [&[5, 0, 12][..], &[0; 8], &1500u32.to_be_bytes()].concat();
            let mut octet = [0; 1];
            while stream.read(&mut octet).is_ok_and(|n| n > 0) {
                // An answer to everything that it says, which is a ping each second at least.
                if stream.write_all(&ping).is_err() {
                    break;
                }
            }
        });
        let ended = server.end().expect(3);
        let told = format!("came from {}, which is not the address that it told", peer.socket.mac());
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
        alive.join().unwrap();
    }
}

isolated! {
    fn a_user_who_does_not_read_does_not_make_an_end_look_dead() {
        let (left, _) = veth();
        // Nobody reads its output: a pipe takes 64 KiB.
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = crate::common::bypath(["chat", "right", "server"]);
        let mut child = command.stdin(std::process::Stdio::null()).stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
        drop(command);
        let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
        let mut peer = Peer::call(left);
        let line = [octets(1000), b"\n".to_vec()].concat();
        for _ in 0..300 {
            peer.line(&line);
        }
        peer.is_heard();
        for n in 0..3u64 {
            peer.say(5, &[&n.to_be_bytes()[..], &1500u32.to_be_bytes()].concat());
            assert_eq!(peer.hears(6), n.to_be_bytes());
        }
        peer.say(7, &peer.next.to_be_bytes());
        // Nothing is done before it is read.
        let mut all = Vec::new();
        let reader = std::thread::spawn(move || {
            let mut reader = reader;
            reader.read_to_end(&mut all).unwrap();
            all
        });
        peer.hears(8);
        peer.say(8, b"");
        assert!(child.wait().unwrap().success());
        assert_eq!(reader.join().unwrap().len(), 300 * line.len());
    }
}

isolated! {
    fn a_client_does_not_trust_whoever_answers() {
        let (_, right) = veth();
        let _see = socket("right");
        let listener = TcpListener::bind("127.0.0.1:9000").unwrap();
        let theirs = |session: u64, mac: MacAddr| {
            let mut body = hello(mac, 10);
            body[6..14].copy_from_slice(&session.to_be_bytes());
            [&[1, 0, 33][..], &body].concat()
        };
        for (answer, code, words) in [
            (b"220 ready\r\n".to_vec(), 1, "it is not bypath chat"),
            (theirs(0, right), 1, "its number of the conversation cannot be"),
            (theirs(9, MacAddr::BROADCAST), 1, "says that its hardware address is ff:ff"),
            ([&[2, 0, 2][..], b"\x1b["].concat(), 1, "refused: ?["),
            ([theirs(9, right), [&[9, 0, 2][..], b"\x07x"].concat()].concat(), 3, "gave up: ?x"),
        ] {
            let client = Tool::start(&["chat", "left", "client", "127.0.0.1"]);
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&answer).unwrap();
            let ended = client.end().expect(code);
            assert!(ended.stderr.contains(words), "{}", ended.stderr);
        }
    }
}
