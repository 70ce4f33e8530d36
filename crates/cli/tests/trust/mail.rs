//! The hostile end of a mailbox: it speaks the handshake of docs/udp.md in either role, well or badly, and has the memory mapped then.

use crate::dice::Dice;
use crate::peer::{self, own, receive_words, send, until_patience_ends};
use bypath_shm::mailbox::phase;
use bypath_shm::region::MailboxMap;
use bypath_sys::{process, sock, sockdiag, unix};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const VERSION: u64 = 4;
const HELLO: u64 = 0x6f6c_6c65_4875;
const WELCOME: u64 = 0x656d_6f63_6c65_5775;
const WORDS: usize = 12;
/// As `::ffff:127.0.0.1` stands in the words of an address.
const LOOPBACK: [u64; 2] = [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, 127, 0, 0, 1])];

fn name(cookie: u64) -> Vec<u8> {
    format!("bypath/1/udp/{cookie:016x}").into_bytes()
}

fn octets(message: &[u64; WORDS]) -> Vec<u8> {
    message.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A socket of ours, which does not wait.
pub fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("one that does not wait");
    socket
}

pub fn port_of(socket: &UdpSocket) -> u16 {
    socket.local_addr().expect("bound").port()
}

/// Both ends have the mailbox.
pub struct Shared {
    pub channel: OwnedFd,
    pub map: MailboxMap,
    /// The head of a record as an honest sender would write it.
    pub head: [u8; 48],
}

/// As honest senders say who they are, and to whom they send.
fn head(port: u16) -> [u8; 48] {
    let mut head = [0; 48];
    let words = [LOOPBACK[0], LOOPBACK[1], u64::from(port), LOOPBACK[0], LOOPBACK[1], 0];
    for (to, word) in head.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    head
}

/// One message in four is not what it should be, as in `peer`; true: other descriptors are to go with it.
fn spoil(said: &mut Vec<u8>, dice: &mut Dice) -> bool {
    match dice.below(16) {
        0 => said.truncate(dice.below(8 * WORDS)),
        1 => said.extend([7; 8]),
        2 => {
            let (at, value) = (dice.below(WORDS), dice.number());
            said[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        3 => return true,
        _ => {}
    }
    false
}

/// Descriptors that a message can bring instead of the right one; some are of the right size.
fn odd(dice: &mut Dice) -> OwnedFd {
    let size = 4096 + (4096 << dice.below(8));
    match dice.below(6) {
        // It shrinks once it is there.
        0 => peer::memfd(0, size, 0).expect("a memfd"),
        1 => peer::memfd(0, size, peer::SEALED | libc::F_SEAL_WRITE).expect("a memfd"),
        2 => peer::memfd(0, size + 1, peer::SEALED).expect("a memfd"),
        _ => peer::odd(dice),
    }
}

/// Another thread writes anything into the words while the victim has some time to look, and leaves them as they are at the beginning.
pub fn scribbled(map: &MailboxMap, dice: &mut Dice, mut meanwhile: impl FnMut()) {
    let mailbox = map.mailbox();
    let scribble = || {
        let number = dice.number();
        let writers = &mailbox.writers;
        let words =
            [&mailbox.gate.0, &mailbox.head.0, &mailbox.tail.0, &writers.head, &writers.lost, &writers.tail];
        match dice.below(9) {
            0 => mailbox.writers.lock.store(number as u32, Relaxed),
            1 => mailbox.gate.0.store(number & !3 | phase::OPEN, Relaxed),
            2 => map.ring().copy_from_slice(mailbox.head.0.load(Relaxed), &number.to_ne_bytes()),
            which => words[which - 3].store(number, Relaxed),
        }
    };
    peer::beside(scribble, || {
        let until = Instant::now() + Duration::from_millis(2);
        while Instant::now() < until {
            meanwhile();
        }
    });
    mailbox.reset();
}

/// As a sender, of the victim's socket at port `to`, whose mailbox it is.
pub fn ask(socket: &UdpSocket, to: u16, dice: &mut Dice) -> Option<Shared> {
    ask_with(socket, to, |said| {
        let other = odd(dice);
        if spoil(said, dice) { vec![other] } else { vec![] }
    })
}

/// The same, as it should be; `None`: the victim gives it to nobody.
pub fn ask_well(socket: &UdpSocket, to: u16) -> Option<Shared> {
    (0..20).find_map(|_| ask_with(socket, to, |_| vec![]))
}

fn ask_with(
    socket: &UdpSocket,
    to: u16,
    changes: impl FnOnce(&mut Vec<u8>) -> Vec<OwnedFd>,
) -> Option<Shared> {
    let netlink = own(sockdiag::open(3).expect("sock_diag"));
    let from = sock::local_address(socket.as_raw_fd()).expect("bound");
    let there = sock::Address { port: to, ..from };
    let found = sockdiag::udp(netlink.as_raw_fd(), &from, &there).expect("sock_diag")?;
    // One that is not known to the victim is not let in; and it looks only where something comes.
    let look = || drop(socket.send_to(b"look", ("127.0.0.1", to)));
    let channel = until_patience_ends(look, || unix::connect(&name(found.cookie), 3).ok().map(own))?;
    let mut message = [0; WORDS];
    message[..8].copy_from_slice(&[
        HELLO,
        VERSION,
        LOOPBACK[0],
        LOOPBACK[1],
        from.port.into(),
        LOOPBACK[0],
        LOOPBACK[1],
        to.into(),
    ]);
    message[8..11].copy_from_slice(&process::namespaces());
    let mut said = octets(&message);
    let fds = changes(&mut said);
    let fds: Vec<&OwnedFd> = fds.iter().collect();
    until_patience_ends(look, || peer::first_words(&channel, &said, &fds))?;
    let (answer, fds) = until_patience_ends(look, || receive_words::<WORDS>(&channel))?;
    let memory = fds.first().filter(|_| answer[0] == WELCOME)?;
    let map = MailboxMap::map(memory.as_raw_fd()).expect("the victim's mailbox is one");
    Some(Shared { channel, map, head: head(from.port) })
}

/// A victim that sends to `socket` asks for its mailbox.
pub fn asked(socket: &UdpSocket) -> Option<OwnedFd> {
    let s = socket.as_raw_fd();
    let cookie = sock::option_u64(s, libc::SOL_SOCKET, libc::SO_COOKIE).expect("SO_COOKIE");
    let listener = own(unix::listen(&name(cookie), 3).ok()?);
    let hear = || drop(socket.recv(&mut [0; 64]));
    let channel = until_patience_ends(hear, || peer::accepted(&listener).ok()?)?;
    let (hello, _) = until_patience_ends(hear, || receive_words::<WORDS>(&channel))?;
    assert_eq!(
        (hello[0], hello[1], hello[7]),
        (HELLO, VERSION, port_of(socket).into()),
        "the victim's words"
    );
    Some(channel)
}

/// The answer of a receiver.
pub fn welcome(room: u64, wants: u64, shares: u64) -> Vec<u8> {
    let mut message = [0; WORDS];
    message[..5].copy_from_slice(&[WELCOME, VERSION, room, wants, shares]);
    octets(&message)
}

/// As a receiver, of a victim that sends to `socket`: the memory is ours.
pub fn answer(socket: &UdpSocket, dice: &mut Dice) -> Option<Shared> {
    let channel = asked(socket)?;
    let (map, memory) = MailboxMap::new(4096 << dice.below(11), 3).expect("a mailbox");
    let (memory, odd) = (own(memory), odd(dice));
    let room = if dice.below(2) == 0 { 212_992 } else { dice.number() };
    let wants = if dice.below(2) == 0 { 0 } else { dice.number() };
    let mut said = welcome(room, wants, dice.below(2) as u64);
    let fds = match spoil(&mut said, dice) {
        false => vec![&memory],
        true => match dice.below(3) {
            0 => vec![&odd],
            1 => vec![],
            _ => vec![&memory, &odd],
        },
    };
    match peer::second(dice) {
        None => drop(send(&channel, &said, &fds)),
        Some(mut own) => {
            let mut is_said = false;
            scribbled(&map, &mut own, || {
                is_said = is_said || send(&channel, &said, &fds);
                let _ = socket.recv(&mut [0; 64]);
            });
        }
    }
    if dice.below(2) == 0 {
        // Only of what has no seals.
        let until = Instant::now() + Duration::from_millis(5);
        while Instant::now() < until && socket.recv(&mut [0; 64]).is_ok() {}
        let _ = rustix::fs::ftruncate(&odd, 0);
    }
    Some(Shared { channel, map, head: head(port_of(socket)) })
}
