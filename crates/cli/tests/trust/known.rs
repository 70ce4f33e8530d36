//! Attacks by name.

use crate::allowed::skip;
use crate::peer::{self, Line, Mapped};
use crate::victim::{PATIENCE, Process, Victim};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::{Head, Path};
use bypath_shm::region::OwnInbox;
use bypath_sys::{poll, sock, unix};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const SMALL: Geometry = Geometry { slots: 1, ring: 4096 };

/// Asks again and again, until an answer is due that does not come.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Brings the victim's answers to their ring.
pub fn ring_from_victim(line: &Line, m: &Mapped) {
    until("the victim's ring does not begin", || {
        m.inc().consent();
        line.say(b"octets");
        m.listen(line);
        m.inc().path() == Path::Ring
    });
}

/// Brings our octets there.
pub fn ring_to_victim(line: &Line, m: &Mapped) {
    until("the victim does not take to the ring", || {
        let given = sock::tcp_counts(line.stream.as_raw_fd()).expect("counts").written;
        let begun = m.out().path() != Path::Kernel || m.out().begin_ring(0, given);
        if !begun {
            line.say(b"octets");
        }
        m.listen(line);
        begun
    });
}

/// A wait word for a bell that is told to the victim with each of `bells`; it is rung with its next answer.
fn sleep_behind(line: &Line, m: &Mapped, number: u32, bells: &[&OwnedFd]) {
    for bell in bells {
        assert!(peer::send(&m.channel, &peer::octets(&peer::bell(number)), &[bell]));
    }
    m.inc().ra.wait[0].store(u64::from(number) << 32 | 1, SeqCst);
    let before = m.inc().t.tail.load(SeqCst);
    line.say(b"octets");
    until("no answer", || {
        let answered = m.inc().t.tail.load(SeqCst) != before || m.inc().path() == Path::Kernel;
        m.listen(line);
        answered
    });
}

/// Positions of the largest number, which are added to: of the tail, of where the ring begins on the carrier, and of what was read.
#[test]
fn a_position_of_all_ones_ends_no_more_than_its_connection() {
    for mode in ["threads", "epoll"] {
        let mut victim = Victim::start(mode);
        for which in 0..4 {
            let what = format!("{mode}, word {which}");
            let line = Line::to(victim.port);
            let m = peer::accept_well(&line, SMALL);
            ring_from_victim(&line, &m);
            let given = || sock::tcp_counts(line.stream.as_raw_fd()).expect("counts").written;
            until("the victim does not take to the ring", || {
                let given = if which == 0 { u64::MAX } else { given() };
                let begun = m.out().path() != Path::Kernel || m.out().begin_ring(0, given);
                if !begun {
                    line.say(b"octets");
                    m.listen(&line);
                }
                begun
            });
            for _ in 0..50 {
                match which {
                    0 => m.out().wa.switch_k.store(u64::MAX, SeqCst),
                    1 => m.out().t.tail.store(u64::MAX, SeqCst),
                    2 => m.out().h.carrier_read.store(u64::MAX, SeqCst),
                    _ => m.inc().h.head.store(Head::new(u64::MAX, Path::Ring).raw(), SeqCst),
                }
                m.inbox.get().mark(m.control.ends[1 - m.role].load(Relaxed));
                line.say(b"octets");
                m.listen(&line);
                std::thread::sleep(Duration::from_millis(1));
            }
            drop((line, m));
            victim.server.expect("end", &what);
            victim.serves(&what);
        }
    }
}

#[test]
fn a_bell_that_is_none_is_not_rung() {
    let mut victim = Victim::start("threads");
    let (heard, pipe) = std::io::pipe().expect("a pipe");
    drop(heard);
    let full = peer::bare_eventfd(u64::MAX - 1, 0);
    for bell in [&pipe.into(), &full] {
        let line = Line::to(victim.port);
        let m = peer::accept_well(&line, SMALL);
        ring_from_victim(&line, &m);
        sleep_behind(&line, &m, 9, &[bell]);
        drop(line);
        victim.server.expect("end", "after a bell");
        victim.serves("after a bell");
    }
}

#[test]
fn empty_messages_leave_no_descriptors() {
    let victim = Victim::start("threads");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
    let before = victim.server.descriptors();
    let bell = peer::bare_eventfd(0, libc::EFD_NONBLOCK);
    for _ in 0..4 {
        assert!(peer::send(&m.channel, &[], &[&bell; 4]));
    }
    // For each of them it looks through what it was sent.
    let words = m.inc().ra.wait.iter().zip(100..);
    words.for_each(|(place, number): (_, u64)| place.store(number << 32 | 1, SeqCst));
    until("the victim does not give up what it cannot ring", || {
        line.say(b"octets");
        m.listen(&line);
        m.inc().path() == Path::Kernel
    });
    let left = victim.server.descriptors().saturating_sub(before);
    assert!(left < 4, "{left} descriptors are left of 16");
}

/// As many pairs as a process likes to be, and as many bells of each.
#[test]
fn bells_without_number_leave_descriptors_to_others() {
    let (most, room) = (256, 64);
    let mut limited = std::process::Command::new("prlimit");
    limited.arg(format!("--nofile={most}")).arg(crate::victim::program());
    limited.env("LD_PRELOAD", crate::programs::library());
    let mut server = Process::by(limited, &["threads"]);
    let port = port(&mut server);
    let bell = peer::bare_eventfd(0, libc::EFD_NONBLOCK);
    let pairs: Vec<_> = (0..4)
        .map(|_| {
            let line = Line::to(port);
            let m = peer::accept_well(&line, SMALL);
            ring_from_victim(&line, &m);
            (line, m)
        })
        .collect();
    for (line, m) in &pairs {
        let told = (1..=60).all(|n| peer::send(&m.channel, &peer::octets(&peer::bell(n)), &[&bell]));
        assert!(told);
        // A bell that it does not know has it look through what it was sent.
        sleep_behind(line, m, 999, &[]);
    }
    let bells = server.holds("[eventfd]");
    // Its threads have one each.
    let most = room / 2 + server.threads();
    assert!((room / 4..=most).contains(&bells), "{bells} bells of {most}");
    let honest = Process::start(&["talk", &port.to_string()]);
    until("nothing is left for an honest process", || {
        server.holds("bypath-arena") + honest.holds("bypath-arena") > 0
    });
    drop(pairs);
    until("bells of who is gone stay", || {
        // Who comes has it look who is gone.
        let line = Line::to(port);
        let _pair = peer::answer(&line);
        server.holds("[eventfd]") < room / 4
    });
}

#[test]
fn memory_that_may_not_be_there_is_not_mapped() {
    let Some(huge) = peer::huge() else {
        return skip("known::memory_that_may_not_be_there_is_not_mapped", "no memfd of huge pages here");
    };
    let mut victim = Victim::start("threads");
    for position in 0..2 {
        let line = Line::to(victim.port);
        let (channel, _) = peer::called(&line).expect("the victim calls");
        // Its size is a multiple of a huge page's: nothing else is wrong with it.
        let geometry = Geometry { slots: 127, ring: 1 << 18 };
        let offer = peer::Offer::new(geometry, &mut crate::dice::Dice(position));
        let fds = if position == 0 { [&huge, &offer.file] } else { [&offer.inbox, &huge] };
        assert!(peer::send(&channel, &offer.said, &fds));
        // The victim hangs up, or goes on and touches what it has mapped.
        let _ = peer::patiently(&line, || {
            unix::recv(channel.as_raw_fd(), &mut [0; 112], 3).map_or(Some(()), |r| r.map(|_| ()))
        });
        for _ in 0..20 {
            line.say(b"octets");
            line.hear();
        }
        drop(line);
        victim.server.expect("end", "after memory of huge pages");
        victim.serves("after memory of huge pages");
    }
}

#[test]
fn memory_that_is_longer_than_it_must_be_is_not_mapped() {
    let (server, port) = alone("threads");
    // Whoever touches it while its owner gives all of it back has to wait for that.
    let long = peer::memory(4 << 30);
    for position in 0..2 {
        let line = Line::to(port);
        let (channel, _) = peer::called(&line).expect("the victim calls");
        let offer = peer::Offer::new(SMALL, &mut crate::dice::Dice(position));
        let fds = if position == 0 { [&long, &offer.file] } else { [&offer.inbox, &long] };
        assert!(peer::send(&channel, &offer.said, &fds));
        hangs_up(&line, &channel);
        keeps_nothing(&server);
    }
    // An inbox comes with a call, too.
    let line = Line::to(port);
    let channel = peer::dial(&line).expect("the victim has a name");
    let hello = peer::octets(&peer::hello(&line, line.cookie, 65536));
    peer::patiently(&line, || peer::first_words(&channel, &hello, &[&long]));
    hangs_up(&line, &channel);
    keeps_nothing(&server);
}

/// Memory that a liar has not touched costs it nothing, and its victim all of it, once that locks what it has mapped (mlockall), or dumps it.
#[test]
fn of_an_arena_only_slots_that_can_have_been_given_are_opened() {
    let (server, port) = alone("threads");
    let geometry = Geometry { slots: 4096, ring: 4096 };
    let call = || {
        let line = Line::to(port);
        let (channel, theirs) = peer::called(&line).expect("the victim calls");
        (line, channel, theirs)
    };
    // Each call that is under way may have been given a slot, whichever is answered first.
    for (calls, last) in [(1, 17), (5, 25)] {
        let mut others: Vec<_> = (1..calls).map(|_| call()).collect();
        // Each offer founds a pair of its own: what was lost on the way is allowed for once.
        for (slot, is_taken) in [(last + 1, false), (4095, false), (last, true), (last, false), (0, true)] {
            let (line, channel, theirs) = call();
            let offer = peer::Offer::new(geometry, &mut crate::dice::Dice(line.cookie)).slot(slot);
            assert!(peer::send(&channel, &offer.said, &[&offer.inbox, &offer.file]));
            if !is_taken {
                hangs_up(&line, &channel);
                if slot != last {
                    keeps_nothing(&server);
                }
                continue;
            }
            let m = offer.taken(channel, &theirs).expect("mapped");
            ring_from_victim(&line, &m);
            let opened = |slot| geometry.slot(slot + 1);
            assert!(server.can_touch("bypath-arena").contains(&opened(slot)), "slot {slot}");
            others.push((line, m.channel, theirs));
        }
        assert_eq!(server.can_touch("bypath-arena").len(), 2);
        assert_eq!(server.dumps("memfd:bypath-"), 0);
        drop(others);
        until("arenas of who is gone are mapped", || {
            // Who comes next has the victim look.
            drop(call());
            server.maps("bypath-arena") == 0
        });
    }
}

/// A server that talks to nobody else, and its port.
pub fn alone(mode: &str) -> (Process, u16) {
    let mut server = Process::start(&[mode]);
    let port = port(&mut server);
    (server, port)
}

pub fn port(server: &mut Process) -> u16 {
    server.line("the victim").strip_prefix("port ").expect("a port").parse().expect("a number")
}

/// Waits until the victim has hung up.
pub fn hangs_up(line: &Line, channel: &OwnedFd) {
    until("the victim does not hang up", || {
        line.say(b"look");
        line.hear();
        poll::now(channel.as_raw_fd(), libc::POLLIN) & libc::POLLHUP != 0
    });
}

/// A pair that was begun and came to nothing: neither its memory nor descriptors of it stay, but for the victim's own inbox.
#[track_caller]
pub fn keeps_nothing(server: &Process) {
    let kept = [server.maps("bypath-arena"), server.holds("bypath-arena"), server.maps("bypath-inbox")];
    assert_eq!(kept, [0, 0, 1], "arenas that are mapped, arenas that are open, inboxes that are mapped");
}

#[test]
fn a_welcome_that_fails_leaves_no_memory() {
    let (server, port) = alone("threads");
    // A slot that is none, an arena that is none.
    let offers = [1, 0xffff, 8 << 32].map(|place| {
        let line = Line::to(port);
        let (channel, _) = peer::called(&line).expect("the victim calls");
        let mut offer = peer::Offer::new(SMALL, &mut crate::dice::Dice(place));
        offer.said[32..40].copy_from_slice(&u64::to_ne_bytes(place));
        assert!(peer::send(&channel, &offer.said, &[&offer.inbox, &offer.file]));
        hangs_up(&line, &channel);
        keeps_nothing(&server);
        offer
    });
    // Who comes next brings his own memory, and that is what is used.
    let line = Line::to(port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
    drop(offers);
}

#[test]
fn a_welcome_that_cannot_be_said_leaves_no_memory() {
    let (server, port) = alone("threads");
    for _ in 0..3 {
        let line = Line::to(port);
        let channel = peer::dial(&line).expect("the victim has a name");
        // What is said to it from here on is EPIPE.
        sock::shutdown(channel.as_raw_fd(), libc::SHUT_RD);
        let (_ours, inbox) = OwnInbox::new().expect("an inbox");
        let hello = peer::octets(&peer::hello(&line, line.cookie, 65536));
        assert_eq!(peer::patiently(&line, || peer::first_words(&channel, &hello, &[&inbox])), Some(true));
        hangs_up(&line, &channel);
        keeps_nothing(&server);
    }
    let line = Line::to(port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
}

#[test]
fn what_lingers_in_an_answer_holds_nobody_up() {
    let (_server, port) = alone("threads");
    for place in 0..3 {
        let line = Line::to(port);
        let (channel, _) = peer::called(&line).expect("the victim calls");
        let offer = peer::Offer::new(SMALL, &mut crate::dice::Dice(place));
        let (lingers, _kept) = peer::lingering();
        let fds = match place {
            0 => vec![&lingers, &offer.file],
            1 => vec![&offer.inbox, &lingers],
            _ => vec![&lingers],
        };
        assert!(peer::send(&channel, &offer.said, &fds));
        // The close that waits is the last one.
        drop(lingers);
        hangs_up(&line, &channel);
        // Who serves another one meanwhile needs the same lock.
        let other = Line::to(port);
        ring_from_victim(&other, &peer::accept_well(&other, SMALL));
    }
}

/// A call that is declined, and behind it what nobody reads.
#[test]
fn what_lingers_behind_a_call_holds_nobody_up() {
    let (_server, port) = alone("threads");
    let line = Line::to(port);
    let channel = peer::dial(&line).expect("the victim has a name");
    let (_ours, inbox) = OwnInbox::new().expect("an inbox");
    // It names another connection.
    let mut hello = peer::hello(&line, line.cookie, 65536);
    hello[2] += 1;
    let (lingers, _kept) = peer::lingering();
    peer::patiently(&line, || peer::first_words(&channel, &peer::octets(&hello), &[&inbox]));
    assert!(peer::send(&channel, b"more", &[&lingers]));
    drop(lingers);
    hangs_up(&line, &channel);
    let other = Line::to(port);
    ring_from_victim(&other, &peer::accept_well(&other, SMALL));
}

#[test]
fn what_lingers_in_place_of_a_bell_holds_nobody_up() {
    let (mut server, port) = alone("threads");
    let mut nonsense = peer::bell(9);
    nonsense[0] += 1;
    for said in [peer::bell(9), nonsense] {
        let line = Line::to(port);
        let m = peer::accept_well(&line, SMALL);
        ring_from_victim(&line, &m);
        let (lingers, _kept) = peer::lingering();
        assert!(peer::send(&m.channel, &peer::octets(&said), &[&lingers]));
        drop(lingers);
        sleep_behind(&line, &m, 9, &[]);
        drop(line);
        server.expect("end", "after what is no bell");
    }
}

/// What is in a ring has a place in the carrier, also where that is full of what the other end has not read, whatever it says of that: who is to
/// go back to the kernel can.
#[test]
fn who_does_not_read_keeps_nobody_from_a_filter() {
    for (says_it_has, words) in [
        (false, &["strict"][..]),
        (true, &["strict"]),
        (false, &["strict", "16384"]),
        (true, &["strict", "16384"]),
    ] {
        let mut server = Process::start(words);
        let port =
            server.line("the victim").strip_prefix("port ").expect("a port").parse().expect("a number");
        let line = Line::to(port);
        let m = peer::accept_well(&line, Geometry { slots: 1, ring: 1 << 17 });
        ring_from_victim(&line, &m);
        line.say(&[0x7f]);
        let (inc, end, mut begun) = (m.inc(), Instant::now() + PATIENCE, 0);
        let said = loop {
            assert!(Instant::now() < end, "{}", server.describe());
            inc.consent();
            let head = Head::from_raw(inc.h.head.load(SeqCst));
            if head.path() == Path::Drain {
                begun += 1;
                if says_it_has {
                    inc.h.head.store(Head::new(head.position(), Path::Ring).raw(), SeqCst);
                }
            }
            if let Some(said) = server.line_within(Duration::from_millis(1)) {
                break said;
            }
        };
        // A ring that is longer than half of the buffer is not begun.
        let is_small = words.len() > 1;
        assert!(said == "strict" && (begun == 0) == is_small, "{said}, {begun}, {words:?}");
    }
}

/// How much the carrier can buffer is known to the victim alone, whose call says how long a ring may be for that.
#[test]
fn a_ring_that_could_not_be_taken_back_is_not_mapped() {
    let (server, port) = alone("threads");
    let long = Geometry { slots: 1, ring: 1 << 20 };
    let line = Line::to(port);
    let (channel, _) = peer::called(&line).expect("the victim calls");
    let offer = peer::Offer::new(long, &mut crate::dice::Dice(line.cookie));
    assert!(peer::send(&channel, &offer.said, &[&offer.inbox, &offer.file]));
    hangs_up(&line, &channel);
    keeps_nothing(&server);
    // Nor where both have shared memory before: the slot is given back.
    let first = Line::to(port);
    let (channel, theirs) = peer::called(&first).expect("the victim calls");
    let known = peer::Offer::new(SMALL, &mut crate::dice::Dice(first.cookie));
    assert!(peer::send(&channel, &known.said, &[&known.inbox, &known.file]));
    let pair = known.said[16..32].to_vec();
    let m = known.taken(channel, &theirs).expect("mapped");
    ring_from_victim(&first, &m);
    for _ in 0..2 {
        let line = Line::to(port);
        let (channel, _) = peer::called(&line).expect("the victim calls");
        let mut offer = peer::Offer::new(long, &mut crate::dice::Dice(line.cookie));
        offer.said[16..32].copy_from_slice(&pair);
        offer.said[32..40].copy_from_slice(&u64::to_ne_bytes(1 << 32));
        offer.said[80..88].copy_from_slice(&u64::to_ne_bytes(0));
        assert!(peer::send(&channel, &offer.said, &[&offer.inbox, &offer.file]));
        hangs_up(&line, &channel);
    }
    ring_from_victim(&first, &m);
}

/// Octets that an end says it takes back are waited for also where a call does not wait; not again and again.
#[test]
fn who_says_for_ever_that_octets_come_back_does_not_hold_up_a_loop_for_ever() {
    let mut victim = Victim::start("epoll");
    let line = Line::to(victim.port);
    let m = peer::accept_well(&line, SMALL);
    let out = m.out();
    assert_eq!(out.path(), Path::Kernel);
    out.wa.switch_k.store(1 << 40, SeqCst);
    out.t.tail.store(out.t.tail.load(SeqCst).wrapping_add(1000), SeqCst);
    let begin = Instant::now();
    for _ in 0..60 {
        line.say(b"z");
        victim.serves("beside one who never gives back what he says");
        m.listen(&line);
    }
    // One who waits each time waits for six seconds.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// A process that knows another's name (everybody whom that one has called does) is not taken for it: the memory that the two
/// others share stays theirs.
#[test]
fn a_stolen_name_opens_no_memory_of_others() {
    let (server, port) = alone("threads");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("listen");
    let own_port = listener.local_addr().expect("bound").port();
    let mut honest = Process::start(&["talk", &format!("{port}"), &format!("{own_port}")]);
    let (stream, _) = listener.accept().expect("the honest process connects");
    let line = Line::of(stream);
    let name = unix::listen(&peer::name(line.cookie), 3).expect("a name");
    // SAFETY: made just now, and nobody else's.
    let name = unsafe { OwnedFd::from_raw_fd(name) };
    let mut token = None;
    let mut channel = None;
    until("the honest process does not call", || {
        echo(&line);
        if channel.is_none() {
            channel = peer::accepted(&name).expect("accept");
        }
        token = channel.as_ref().and_then(peer::receive).map(|(hello, _)| hello[4]);
        token.is_some()
    });
    drop((channel, name));
    until("victim and honest process share nothing", || {
        echo(&line);
        // Who was called keeps its descriptor.
        server.holds("bypath-arena") + honest.holds("bypath-arena") > 0
    });
    let thief = Line::to(port);
    let channel = peer::dial(&thief).expect("the victim has a name");
    let (_ours, inbox) = OwnInbox::new().expect("an inbox");
    let hello = peer::octets(&peer::hello(&thief, token.expect("a name"), 65536));
    let said = peer::patiently(&thief, || {
        echo(&line);
        peer::first_words(&channel, &hello, &[&inbox])
    });
    assert_eq!(said, Some(true));
    let (welcome, _) = peer::patiently(&thief, || {
        echo(&line);
        peer::receive(&channel)
    })
    .expect("an answer");
    assert_eq!((welcome[0], welcome[10]), (peer::WELCOME, 1), "the thief shares what is another's");
    honest.expect("talking", "the honest process");
}

fn echo(line: &Line) {
    use std::io::Read;
    let mut piece = [0; 4096];
    if let Ok(n) = (&line.stream).read(&mut piece) {
        piece[..n].iter_mut().for_each(|octet| *octet |= 0x80);
        assert_eq!(line.say(&piece[..n]), n);
    }
}
