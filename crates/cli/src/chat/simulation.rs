//! Two ends in memory, in virtual time: frames by a pair with faults, the connection as a delayed pipe.

use super::control::{Control, Hello, Report, VERSION};
use super::data::{OVERHEAD, Piece};
use super::session::{Fault, Role, Session};
use super::{LONGEST, WINDOW};
use bypath::l2::{Frame, MacAddr};
use bypath::link::fault::{FaultInjector, Faults};
use bypath::link::pair::{End, pair};
use bypath::link::{FrameMeta, Link};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

type Clock = Box<dyn FnMut() -> u64>;

const MS: u64 = 1_000_000;
const TYPE: u16 = 0x88b5;
/// How long octets are on their way through the connection.
const DELAY: u64 = MS / 5;

struct Side {
    session: Session,
    link: FaultInjector<End, Clock>,
    mac: MacAddr,
    mtu: usize,
    /// Octets on their way to this end, and when they arrive.
    inbox: VecDeque<(u64, Vec<u8>)>,
    heard: Vec<Vec<u8>>,
    /// Takes messages.
    takes: bool,
}

struct World {
    now: Rc<Cell<u64>>,
    sides: [Side; 2],
}

fn hello(mac: MacAddr, session: u64, mtu: usize) -> Hello {
    Hello {
        version: VERSION,
        session,
        mac,
        ethertype: TYPE,
        vlan: None,
        priority: 7,
        mtu: mtu as u32,
        window: 0,
    }
}

impl World {
    fn new(mtu: usize, faults: Faults, seed: u64) -> World {
        let now = Rc::new(Cell::new(1));
        let (a, b) = pair(mtu, 10_000);
        let side = |end: End, role, session, seed| {
            let mac = end.mac();
            let clock = Rc::clone(&now);
            let clock: Clock = Box::new(move || clock.get());
            let link = FaultInjector::new(end, Faults::NONE, faults, seed, clock).unwrap();
            Side {
                session: Session::new(role, hello(mac, session, mtu), 1),
                link,
                mac,
                mtu,
                inbox: VecDeque::new(),
                heard: Vec::new(),
                takes: true,
            }
        };
        let sides = [side(a, Role::Server, 7, seed), side(b, Role::Client, 0, seed ^ 1)];
        World { now, sides }
    }

    /// One round at this moment. Whether anything happened.
    fn round(&mut self) -> Result<bool, (usize, Fault)> {
        let now = self.now.get();
        let mut any = false;
        for at in 0..2 {
            let to = self.sides[1 - at].mac;
            let side = &mut self.sides[at];
            let fail = |e| (at, e);
            while side.inbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, octets) = side.inbox.pop_front().unwrap();
                side.session.connection(now, &octets).map_err(fail)?;
                any = true;
            }
            let mut frames = Vec::new();
            let mut each = |octets: &[u8], meta: &FrameMeta| {
                // A frame whose addresses or EtherType were changed is given to nobody, nor is one that is too long.
                let ours = |f: &Frame<'_>| {
                    f.ethertype == TYPE && f.destination == side.mac && f.payload.len() <= side.mtu
                };
                let parsed = Frame::parse(octets, meta).filter(ours);
                frames.extend(parsed.map(|f| (f.source, f.payload.to_vec())));
            };
            side.link.receive(64, &mut each).unwrap();
            for (source, payload) in frames {
                side.session.frame(now, source, &payload).map_err(fail)?;
                any = true;
            }
            if side.session.next_tick() <= now {
                side.session.tick(now, side.mtu).map_err(fail)?;
                any = true;
            }
            while side.takes
                && let Some(message) = side.session.take()
            {
                side.heard.push(message);
                side.session.written();
                side.session.tick(now, side.mtu).map_err(fail)?;
                any = true;
            }
            let mut frame = Vec::new();
            for _ in 0..32 {
                frame.clear();
                let Some(piece) = side.session.next_frame(now, side.mtu, &mut frame) else { break };
                let octets = [&to.0[..], &side.mac.0, &TYPE.to_be_bytes(), &frame].concat();
                let mut once = Some(());
                let sent = side.link.send(1, &mut |slot| {
                    once.take()?;
                    slot[..octets.len()].copy_from_slice(&octets);
                    Some((octets.len(), FrameMeta::default()))
                });
                if sent.is_err() {
                    side.session.refused(piece);
                }
                any = true;
            }
            let _ = side.link.flush();
            let octets = std::mem::take(side.session.control());
            if !octets.is_empty() {
                self.sides[1 - at].inbox.push_back((now + DELAY, octets));
                any = true;
            }
        }
        Ok(any)
    }

    /// When the next thing happens.
    fn next(&mut self) -> u64 {
        let due = |side: &mut Side| {
            let inbox = side.inbox.front().map(|(due, _)| *due);
            let link = side.link.next_due();
            [inbox, link].into_iter().flatten().fold(side.session.next_tick(), u64::min)
        };
        let [a, b] = &mut self.sides;
        due(a).min(due(b)).max(self.now.get() + 1)
    }

    /// Lets time pass until both are done, or `longest` is over.
    fn run(&mut self, longest: u64) -> Result<bool, (usize, Fault)> {
        let end = self.now.get() + longest;
        while !self.sides.iter().all(|s| s.session.is_complete()) {
            if !self.round()? {
                let next = self.next();
                if next > end {
                    return Ok(false);
                }
                self.now.set(next);
            }
        }
        Ok(true)
    }

    fn say(&mut self, at: usize, messages: &[Vec<u8>]) {
        messages.iter().for_each(|m| self.sides[at].session.message(m));
    }

    /// Lets both say who they are.
    fn greet(&mut self) {
        while self.sides.iter().any(|s| s.session.peer().is_none()) {
            if !self.round().unwrap() {
                let next = self.next();
                self.now.set(next);
            }
        }
    }

    fn finish(&mut self) {
        self.sides.iter_mut().for_each(|s| s.session.finish());
    }

    /// What the other end says on the connection, by hand.
    fn forge(&mut self, to: usize, message: &Control) -> Result<(), Fault> {
        let mut octets = Vec::new();
        message.write(&mut octets);
        let now = self.now.get();
        self.sides[to].session.connection(now, &octets)
    }
}

fn octets(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(2_654_435_761) >> 8) as u8 ^ seed as u8).collect()
}

fn bad() -> Faults {
    Faults {
        loss: 0.2,
        duplication: 0.1,
        corruption: 0.05,
        reordering: 0.2,
        delay: MS / 10,
        jitter: MS,
        ..Faults::NONE
    }
}

#[test]
fn what_is_said_is_heard_on_both_sides_and_both_end() {
    let mut world = World::new(1500, Faults::NONE, 1);
    world.greet();
    let (a, b) = (vec![octets(5, 1), octets(100_000, 2)], vec![octets(1, 3); 50]);
    world.say(0, &a);
    world.say(1, &b);
    world.finish();
    assert_eq!(world.run(60_000 * MS), Ok(true));
    assert_eq!((&world.sides[1].heard, &world.sides[0].heard), (&a, &b));
    assert_eq!((world.sides[0].session.sending().again, world.sides[1].session.foreign.corrupt), (0, 0));
}

#[test]
fn a_long_message_passes_a_bad_link_whole() {
    let mut world = World::new(1500, bad(), 2);
    world.greet();
    let message = octets(LONGEST / 4, 9);
    world.say(0, std::slice::from_ref(&message));
    world.finish();
    assert_eq!(world.run(600_000 * MS), Ok(true));
    assert!(world.sides[1].heard == [message]);
    let (there, here) = (&world.sides[1].session, &world.sides[0].session);
    assert!(here.sending().again > 500 && there.foreign.corrupt > 50 && there.receiving().twice > 50);
}

#[test]
fn nothing_is_lost_where_the_mtu_falls_in_the_middle() {
    let mut world = World::new(1500, Faults { loss: 0.3, ..Faults::NONE }, 3);
    world.greet();
    let message = octets(400_000, 9);
    world.say(0, std::slice::from_ref(&message));
    world.finish();
    for _ in 0..3 {
        let _ = world.round();
    }
    // From now on longer frames do not arrive, whoever sent them before.
    world.sides[1].mtu = 200;
    assert_eq!(world.run(600_000 * MS), Ok(true));
    assert!(world.sides[1].heard == [message]);
    // This end's own interface carries less.
    let mut world = World::new(1500, Faults::NONE, 3);
    world.greet();
    let message = octets(50_000, 9);
    world.sides[0].mtu = 100;
    world.say(0, std::slice::from_ref(&message));
    world.finish();
    assert_eq!(world.run(600_000 * MS), Ok(true));
    assert!(world.sides[1].heard == [message] && world.sides[0].session.sending().frames > 600);
}

#[test]
fn a_user_who_does_not_read_holds_up_the_sender_and_nobody_gives_up() {
    let mut world = World::new(1500, Faults::NONE, 4);
    world.greet();
    world.sides[1].takes = false;
    let messages = vec![octets(1000, 5); 4000];
    world.say(0, &messages);
    world.finish();
    assert_eq!(world.run(120_000 * MS), Ok(false));
    let sent = world.sides[0].session.sending().sent();
    assert!((WINDOW / 2..=2 * WINDOW).contains(&sent), "{sent}");
    world.sides[1].takes = true;
    assert_eq!(world.run(60_000 * MS), Ok(true));
    assert!(world.sides[1].heard == messages);
}

#[test]
fn the_end_waits_for_what_was_heard_to_be_written() {
    let mut world = World::new(1500, Faults::NONE, 5);
    world.greet();
    world.say(0, &[octets(10, 1)]);
    world.finish();
    world.sides[1].takes = false;
    assert_eq!(world.run(10_000 * MS), Ok(false));
    assert!(!world.sides[0].session.is_complete());
    // Taken, and not written.
    assert!(world.sides[1].session.take().is_some());
    assert_eq!(world.run(10_000 * MS), Ok(false));
    world.sides[1].session.written();
    assert_eq!(world.run(10_000 * MS), Ok(true));
}

#[test]
fn frames_that_never_arrive_are_told_by_the_receiver() {
    let mut world = World::new(1500, Faults { loss: 1.0, ..Faults::NONE }, 6);
    world.greet();
    world.say(1, &[octets(10, 1)]);
    world.finish();
    let (at, fault) = world.run(60_000 * MS).unwrap_err();
    assert!(matches!((at, &fault), (0, Fault::Deaf(_)) | (1, Fault::Unheard)), "{at} {fault:?}");
}

#[test]
fn an_end_that_says_nothing_is_taken_for_dead() {
    let mut world = World::new(1500, Faults::NONE, 7);
    world.greet();
    let end = world.now.get() + 60_000 * MS;
    let fault = loop {
        let next = world.sides[0].session.next_tick();
        assert!(next < end && next > world.now.get(), "{next}");
        world.now.set(next);
        if let Err(fault) = world.sides[0].session.tick(next, 1500) {
            break fault;
        }
    };
    assert_eq!(fault, Fault::Silent);
    assert_eq!(world.sides[0].session.ended(), Err(Fault::Died));
    let mut alone = Session::new(Role::Client, hello(MacAddr::UNSPECIFIED, 0, 1500), 5);
    assert_eq!(alone.tick(alone.next_tick(), 1500), Ok(()));
    assert_eq!(alone.tick(5 + 5_000 * MS, 1500), Err(Fault::NoHello));
}

#[test]
fn ends_that_do_not_fit_are_told_what_to_do() {
    let own = hello(MacAddr([2, 0, 0, 0, 0, 1]), 7, 1500);
    let other = hello(MacAddr([2, 0, 0, 0, 0, 2]), 0, 1500);
    let answer = |peer: Hello| {
        let mut session = Session::new(Role::Server, own, 1);
        let mut octets = Vec::new();
        Control::Hello(peer).write(&mut octets);
        session.connection(1, &octets).map_err(|e| e.to_string())
    };
    assert_eq!(answer(other), Ok(()));
    for (peer, words) in [
        (Hello { version: 2, ..other }, "version 2"),
        (Hello { vlan: Some(11), ..other }, "--vlan"),
        (Hello { ethertype: 0x9999, ..other }, "--ethertype"),
        (Hello { mac: own.mac, ..other }, "use the interface lo"),
        (Hello { mac: MacAddr::BROADCAST, ..other }, "ff:ff:ff:ff:ff:ff"),
        (Hello { mac: MacAddr::UNSPECIFIED, ..other }, "00:00:00:00:00:00"),
        (Hello { session: 9, ..other }, "number of the conversation"),
        (Hello { mtu: 10, ..other }, "carries 10 octets"),
    ] {
        let text = answer(peer).unwrap_err();
        assert!(text.contains(words), "{text}");
    }
    let mut session = Session::new(Role::Client, hello(other.mac, 0, 1500), 1);
    assert!(matches!(session.connection(1, b"HTTP/1.1 200 OK\r\n"), Err(Fault::Malformed(_))));
}

#[test]
fn lies_on_the_connection_end_the_conversation() {
    let report =
        |next, limit, wanted: &[(u64, u64)]| Control::Report(Report { next, limit, wanted: wanted.to_vec() });
    for lie in [
        report(1_000_000, 2_000_000, &[]),
        report(0, 0, &[]),
        report(0, WINDOW, &[(0, 1_000_000)]),
        Control::Sent(u64::MAX),
        Control::Done,
        Control::Hello(hello(MacAddr([2, 0, 0, 0, 0, 9]), 0, 1500)),
        Control::Ping(1, 0),
    ] {
        let mut world = World::new(1500, Faults::NONE, 8);
        world.greet();
        let fault = world.forge(0, &lie).unwrap_err();
        assert!(matches!(fault, Fault::Lie(_)), "{lie:?}: {fault}");
    }
    let mut world = World::new(1500, Faults::NONE, 8);
    world.greet();
    assert_eq!(world.forge(0, &Control::Quit("x".into())), Err(Fault::Quit("x".into())));
    // A flood of questions is not answered beyond what the connection takes.
    for n in 0..100_000 {
        world.forge(0, &Control::Ping(n, 1500)).unwrap();
    }
    assert!(world.sides[0].session.control().len() < 100 << 10);
}

#[test]
fn frames_of_others_have_no_effect_but_are_counted() {
    let mut world = World::new(1500, Faults::NONE, 9);
    world.greet();
    let peer = world.sides[1].mac;
    let session = &mut world.sides[0].session;
    let stream = [0, 0, 0, 2, b'h', b'i'];
    let frame = |session, of_server, position| {
        let mut out = Vec::new();
        Piece { session, of_server, position, octets: &stream }.write(&mut out);
        out
    };
    let good = frame(7, false, 0);
    let mut changed = good.clone();
    changed[OVERHEAD] ^= 1;
    for (source, payload) in [
        (peer, &b"too short"[..]),
        (peer, &good[..good.len() - 1]),
        (peer, &frame(8, false, 0)),
        (peer, &changed),
        (MacAddr([2, 0, 0, 0, 0, 9]), &good),
        // Its own.
        (peer, &frame(7, true, 0)),
        // Beyond what may be sent.
        (peer, &frame(7, false, WINDOW)),
        (peer, &frame(7, false, u64::MAX - 2)),
    ] {
        session.frame(2, source, payload).unwrap();
    }
    let f = session.foreign;
    assert_eq!((f.others, f.corrupt, f.elsewhere, session.receiving().refused), (3, 1, 1, 2));
    assert_eq!(session.take(), None);
    // Again and again: it is taken once.
    for _ in 0..5 {
        session.frame(2, peer, &good).unwrap();
    }
    assert_eq!((session.take(), session.take(), session.receiving().twice), (Some(b"hi".to_vec()), None, 4));
    let mut absurd = Vec::new();
    Piece { session: 7, of_server: false, position: 6, octets: &[0xff; 4] }.write(&mut absurd);
    assert!(matches!(session.frame(2, peer, &absurd), Err(Fault::Lie(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_link_does_everything_arrives_in_order(
        lens in [prop::collection::vec(1usize..9000, 0..20), prop::collection::vec(1usize..9000, 0..20)],
        loss in 0.0..0.4f64, duplication in 0.0..0.3f64, corruption in 0.0..0.2f64, reordering in 0.0..0.4f64,
        jitter in 0u64..5, seed: u64, mtu in 100usize..2000,
    ) {
        let faults = Faults { loss, duplication, corruption, reordering, jitter: jitter * MS, ..Faults::NONE };
        let mut world = World::new(mtu, faults, seed);
        world.greet();
        let said = lens.map(|lens| lens.iter().enumerate().map(|(n, len)| octets(*len, n)).collect::<Vec<_>>());
        world.say(0, &said[0]);
        world.say(1, &said[1]);
        world.finish();
        prop_assert_eq!(world.run(600_000 * MS), Ok(true));
        prop_assert!(world.sides[1].heard == said[0] && world.sides[0].heard == said[1]);
    }

    #[test]
    fn octets_whatever_on_the_connection_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..300), kind in 1u8..10) {
        let mut world = World::new(1500, Faults::NONE, 10);
        world.greet();
        let now = world.now.get();
        let session = &mut world.sides[0].session;
        let len = (octets.len() as u16).to_be_bytes();
        if session.connection(now, &[&[kind, len[0], len[1]], &octets[..]].concat()).is_ok() {
            let _ = session.tick(session.next_tick().max(now), 1500);
        }
        prop_assert!(session.control().len() < 100 << 10);
    }

    #[test]
    fn frames_whatever_do_no_harm(frames in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..50)), 0..50)) {
        let mut world = World::new(1500, Faults::NONE, 11);
        world.greet();
        let peer = world.sides[1].mac;
        let session = &mut world.sides[0].session;
        for (position, octets) in frames {
            let mut payload = Vec::new();
            Piece { session: 7, of_server: false, position: position % (2 * WINDOW), octets: &octets }.write(&mut payload);
            if session.frame(2, peer, &payload).is_err() {
                break;
            }
        }
        while session.take().is_some() {}
    }
}
