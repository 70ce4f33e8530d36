//! What `hostile` says: bodies of the right shape with likely and wild values, and what comes along with them.

use crate::hostile::Dice;
use bypath_shm::inbox::Inbox;
use bypath_shm::service::{Address, Body, CLAIM, Claim, LEVEL, Op, RingsGiven, RingsWanted, Wanted};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// What was learned from answers, and is likely to make sense in a question.
#[derive(Default)]
pub struct Learned {
    /// The last name of what the service and this process share.
    pub pair: u64,
    /// The last one that was said.
    pub claim: Option<Claim>,
}

impl Learned {
    /// From an answer to a question that was answered well.
    pub fn hear(&mut self, op: Op, body: &[u8]) {
        match op {
            Op::Rings => self.pair = RingsGiven::decode(&mut Body(body)).expect("rings").pair,
            // Behind the address that it has.
            Op::Bind | Op::Listen if body.len() >= CLAIM => {
                self.claim = Claim::decode(&mut Body(&body[body.len() - CLAIM..]));
            }
            _ => {}
        }
    }
}

fn numbers(dice: &mut Dice, n: usize) -> Vec<u8> {
    (0..n).flat_map(|_| dice.number().to_ne_bytes()).collect()
}

/// What a question of this kind is likely to say.
pub fn body(dice: &mut Dice, op: Op, places: &[SocketAddr], learned: &Learned) -> Vec<u8> {
    match op {
        Op::Open => {
            let kind = dice.one_of(&[1, 1, 1, 2, 2, 3, 5, 2049]);
            let mut body = [dice.one_of(&[2, 10, 2, 2, 1]), kind, dice.one_of(&[0, 0, 6, 17])]
                .map(i32::to_ne_bytes)
                .concat();
            if dice.below(3) == 0 {
                // One that connects at once: the first place answers.
                body.extend(Address(Some(places[0])).encode());
            }
            body
        }
        Op::Bind | Op::Connect | Op::Reach => {
            let place = dice.one_of(places);
            Address(Some(place)).encode().to_vec()
        }
        Op::Set => {
            let mut body =
                [dice.one_of(&[0, 1, 6, 41]), dice.below(90) as i32].map(i32::to_ne_bytes).concat();
            body.extend(dice.octets(80));
            body
        }
        Op::Say => {
            let options = [libc::TCP_CORK, libc::TCP_NODELAY, libc::TCP_QUICKACK, libc::TCP_KEEPIDLE];
            let mut body = [libc::IPPROTO_TCP, dice.one_of(&options)].map(i32::to_ne_bytes).concat();
            body.extend(dice.octets(80));
            body
        }
        Op::Get => {
            let level = dice.one_of(&[0, 1, 6, 41, LEVEL]);
            let skip = dice.number();
            [level, dice.below(90) as i32, dice.number(), skip].map(i32::to_ne_bytes).concat()
        }
        Op::Shutdown => dice.one_of(&[0i32, 1, 2, 2, 3, -1]).to_ne_bytes().to_vec(),
        Op::Rings => rings(dice, learned).encode().to_vec(),
        Op::Again => again(dice, places, learned).encode().to_vec(),
        Op::Query => query(dice, places).to_string().into_bytes(),
        _ => numbers(dice, 2),
    }
}

fn rings(dice: &mut Dice, learned: &Learned) -> RingsWanted {
    let (token, pair) = (dice.next(), dice.next());
    let (end, any) = (dice.number() as u32, dice.number() as u32);
    RingsWanted {
        // Few processes, and now and then one that nobody is.
        token: dice.one_of(&[1, 2, 2, 3, 0, token]),
        pair: dice.one_of(&[0, 0, learned.pair, learned.pair, pair]),
        end: dice.one_of(&[5, 6, end]),
        ring: dice.one_of(&[4096, 8192, 65_536, 65_536, 1 << 18, 1 << 30, 0, 1, 5000, any]),
    }
}

fn again(dice: &mut Dice, places: &[SocketAddr], learned: &Learned) -> Wanted {
    let random = Claim { uid: dice.one_of(&[0, 1000, 61_001, u32::MAX]), proof: [dice.next() as u8; 16] };
    let kinds = [[libc::AF_INET, 1, 0], [libc::AF_INET6, 1, 6], [libc::AF_INET, 2, 17], [dice.number(); 3]];
    let local = Address(if dice.below(8) == 0 { None } else { Some(dice.one_of(places)) });
    let claim = learned.claim.filter(|_| dice.below(3) > 0).unwrap_or(random);
    Wanted { kind: dice.one_of(&kinds), local, claim }
}

/// A question of JSON: what there is, or something that is to be done. It leaves alone what others need: it is root's right to take that away.
fn query(dice: &mut Dice, places: &[SocketAddr]) -> Value {
    let interface = dice.one_of(&[None, None, Some("mine"), Some("lo"), Some("none"), Some("")]);
    match dice.below(10) {
        0..=2 => change(dice, interface),
        3 | 4 => {
            let (any, more) = (dice.next(), dice.number());
            json!({
                "what": "ping",
                "destination": dice.one_of(places).ip(),
                "count": dice.one_of(&[1, 3, 3, 50, 0, 65_536]),
                "interval_ns": dice.one_of(&[0, 1, 1_000_000, any, u64::MAX]),
                "timeout_ns": dice.one_of(&[0, 1, 10_000_000, 10_000_000, any, u64::MAX]),
                "octets": dice.one_of(&[8, 56, 56, 1400, 65_400, 65_401, 0, more]),
                "hop_limit": dice.one_of(&[64, 64, 1, 0, 255, 256]),
            })
        }
        5 | 6 => {
            let any = dice.next();
            let filter = json!({
                "host": dice.one_of(&[None, Some("10.9.0.1"), Some("fd09::1"), Some("x")]),
                "port": dice.one_of(&[None, Some(7777), Some(65_536)]),
                "protocol": dice.one_of(&[None, Some(6), Some(17), Some(256)]),
            });
            json!({
                "what": "capture",
                "interface": interface,
                "count": dice.one_of(&[None, Some(0), Some(1), Some(20), Some(any)]),
                "snap": dice.one_of(&[None, Some(0), Some(1), Some(96), Some(any)]),
                "filter": dice.one_of(&[Some(()), Some(()), None]).map_or(json!({}), |()| filter),
            })
        }
        _ => {
            let what =
                ["service", "sockets", "stats", "addresses", "routes", "neighbors", "links", "stop", "x"];
            json!({ "what": dice.one_of(&what) })
        }
    }
}

fn change(dice: &mut Dice, interface: Option<&str>) -> Value {
    let spare = [
        "10.9.0.77",
        "10.9.0.78",
        "fd09::77",
        "172.31.0.1",
        "::",
        "0.0.0.0",
        "255.255.255.255",
        "ff02::1",
        "x",
    ];
    let to = ["203.0.113.0/24", "2001:db8::/32", "default", "203.0.113.7/33", "203.0.113.7/24", "/", ""];
    let via = dice.one_of(&[
        None,
        Some("10.9.0.1"),
        Some("10.9.0.99"),
        Some("fd09::1"),
        Some("203.0.113.1"),
        Some("x"),
    ]);
    let number = dice.number();
    match dice.below(6) {
        0 => {
            let prefix = dice.one_of(&["/24", "/24", "/64", "/32", "/0", "/129", "/x", ""]);
            let address = format!("{}{prefix}", dice.one_of(&spare));
            let claim = dice.below(8) == 0;
            json!({ "what": "change", "change": "add-address", "address": address, "interface": interface, "claim": claim })
        }
        1 => {
            json!({ "what": "change", "change": "remove-address", "address": dice.one_of(&spare), "interface": interface })
        }
        2 => {
            let metric = dice.one_of(&[0, 1, 100, number]);
            json!({ "what": "change", "change": "add-route", "to": dice.one_of(&to), "via": via, "interface": interface, "metric": metric })
        }
        3 => {
            json!({ "what": "change", "change": "remove-route", "to": dice.one_of(&to), "via": via, "interface": interface })
        }
        4 => {
            let whose = dice.one_of(&[None, Some("10.9.0.1"), Some("10.9.0.99"), Some("x")]);
            json!({ "what": "change", "change": "flush-neighbors", "address": whose, "interface": interface })
        }
        _ => json!({ "what": "change", "change": dice.one_of(&["add-address", "remove-route", "x"]) }),
    }
}

/// Memory that may be an inbox: as one has to be, of another length, that could shrink, and that nobody may write to.
pub fn memory(dice: &mut Dice) -> OwnedFd {
    let right = size_of::<Inbox>() as i64;
    let len = dice.one_of(&[
        right,
        right,
        right,
        right,
        right,
        0,
        1,
        4096,
        right - 1,
        right + 1,
        right * 2,
        1 << 40,
    ]);
    let all = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
    let seals = [
        all,
        all,
        all,
        all,
        all,
        all,
        all | SealFlag::F_SEAL_SEAL,
        SealFlag::F_SEAL_GROW,
        SealFlag::F_SEAL_SHRINK,
        SealFlag::empty(),
        all | SealFlag::F_SEAL_WRITE,
    ];
    let memory = memfd_create(c"inbox", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    nix::unistd::ftruncate(&memory, len).expect("a length");
    fcntl(&memory, FcntlArg::F_ADD_SEALS(dice.one_of(&seals))).expect("seals");
    memory
}
