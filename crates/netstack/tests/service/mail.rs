//! Datagrams by rings in place of the pair: a program that plays its half, and ones that lie or die.

use crate::datagrams::{Dgram, heard, kernels};
use crate::program::Program;
use crate::rings::{Process, Rings, until};
use crate::{LONGEST, Running, at, isolated};
use bypath_shm::datagram::{HEADER, Header, Kind, RECORD};
use bypath_shm::dgram::Octets;
use bypath_shm::mailbox::{Mailbox, Pushed, Reader, Writer, phase};
use bypath_shm::ring::Ring;
use bypath_shm::service::{Address, LEVEL, Op, TAKE_BACK};
use bypath_stack::config::Config;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// A socket with rings.
struct Mailed<'a> {
    sock: Dgram<'a>,
    rings: Rings,
    left: AtomicU64,
}

impl<'a> Mailed<'a> {
    fn of(program: &'a Program, process: &mut Process) -> Mailed<'a> {
        let sock = Dgram::new(program, false);
        let rings = process.meet_of(program, sock.cookie, 64 << 10).expect("rings");
        sock.end.set_nonblocking(true).expect("a flag");
        Mailed { sock, rings, left: AtomicU64::new(0) }
    }

    fn writer(&self) -> Writer<'_, Ring> {
        Writer::new(&self.rings.control.mailbox[0], self.rings.tx, 1)
    }

    fn reader(&self) -> Reader<'_, Ring> {
        Reader::new(&self.rings.control.mailbox[1], self.rings.rx)
    }

    /// Sends by the ring if it may. True: it did.
    fn send(&self, to: Option<SocketAddr>, octets: &[u8]) -> bool {
        let header = Header::datagram(Address(to)).encode();
        match self.writer().push(&self.left, &header, octets, u64::MAX) {
            Pushed::Sent => true,
            Pushed::Poisoned => panic!("the service lies"),
            Pushed::Kernel | Pushed::Full => {
                let record = [&header[..], octets].concat();
                until(|| self.sock.end.send(&record).ok());
                self.writer().sent_by_kernel(&self.left);
                false
            }
        }
    }

    /// Sends by the ring, once the service is awake: nobody's datagrams wake it.
    fn send_by_ring(&self, to: Option<SocketAddr>, octets: &[u8]) {
        let header = Header::datagram(Address(to)).encode();
        let mut looks = 0u32;
        until(|| {
            looks += 1;
            if looks.is_multiple_of(1000) {
                self.wake();
            }
            (self.writer().push(&self.left, &header, octets, u64::MAX) == Pushed::Sent).then_some(())
        });
    }

    fn wake(&self) {
        let header = Header::datagram(Address(Some(at("10.9.0.1:1")))).encode();
        if self.sock.end.send(&[&header[..], b"wake up"].concat()).is_ok() {
            self.writer().sent_by_kernel(&self.left);
        }
    }

    /// Wakes the service as long as it has not done what it does when it is awake.
    #[track_caller]
    fn once_awake(&self, done: impl Fn(&Mailbox) -> bool) {
        let mut looks = 0u32;
        until(|| {
            looks += 1;
            if looks.is_multiple_of(1000) {
                self.wake();
            }
            done(&self.rings.control.mailbox[0]).then_some(())
        });
    }

    fn is_open(mailbox: &Mailbox) -> bool {
        mailbox.gate.0.load(Acquire) & 3 == phase::OPEN
    }

    fn wait_for_open(&self) {
        self.once_awake(Self::is_open);
    }

    /// Waits until the service sleeps.
    fn wait_for_closed(&self) {
        until(|| (!Self::is_open(&self.rings.control.mailbox[0])).then_some(()));
    }

    fn in_ring(&self) -> Option<(Header, Vec<u8>)> {
        let reader = self.reader();
        let peeked = reader.peek().expect("a position")?;
        let (mut head, mut octets) = ([0; HEADER], vec![0; peeked.place.len()]);
        assert_eq!(peeked.place.copy_head(reader.ring(), &mut head), HEADER);
        peeked.place.copy(reader.ring(), &mut octets);
        reader.release(&peeked).then(|| (Header::decode(&head).expect("a header"), octets))
    }

    fn in_pair(&self) -> Option<(Header, Vec<u8>)> {
        let mut room = vec![0; RECORD];
        let len = self.sock.end.recv(&mut room).ok()?;
        let header = room.first_chunk::<HEADER>().and_then(Header::decode).expect("a header");
        Some((header, room[HEADER..len].to_vec()))
    }

    /// As a program reads: the ring first, and open while it looks.
    fn receive(&self) -> (Header, Vec<u8>) {
        let reader = self.reader();
        let mut looks = 0u32;
        until(|| {
            looks += 1;
            if let Some(found) = self.in_ring() {
                return Some(found);
            }
            if reader.is_open() {
                if !looks.is_multiple_of(16) {
                    return None;
                }
                reader.close();
                return None;
            }
            let epoch = reader.open_begin();
            let found = self.in_pair();
            if let (None, Some(epoch)) = (&found, epoch) {
                reader.open_finish(epoch);
            }
            found
        })
    }
}

/// A service that looks for more for a while.
fn awake(window: Duration) -> Running {
    Running::with(|settings| settings.busy_poll = window, Config::default())
}

fn number(octets: &[u8]) -> u32 {
    u32::from_ne_bytes(octets[..4].try_into().expect("four"))
}

isolated! {
    fn datagrams_go_by_rings_both_ways_while_both_are_awake() {
        let running = awake(LONGEST);
        let program = running.program();
        let mut process = Process::new(7);
        let mailed = Mailed::of(&program, &mut process);
        assert_eq!(process.meet_of(&program, mailed.sock.cookie, 64 << 10).err(), Some(libc::EBUSY));
        let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
        let (kernel, there) = kernels("10.9.0.1:0");
        for len in [0, 1, 1400, 9000] {
            let octets = vec![len as u8; len];
            mailed.send_by_ring(Some(there), &octets);
            assert_eq!(heard(&kernel), (octets.clone(), local), "{len}");
        }
        // The gate is open before the answer is asked for.
        let epoch = mailed.reader().open_begin().expect("closed");
        assert!(mailed.in_pair().is_none() && mailed.reader().open_finish(epoch));
        for len in [0, 1, 1400, 9000] {
            let octets = vec![len as u8; len];
            kernel.send_to(&octets, local).expect("sent");
            let (header, came) = until(|| mailed.in_ring());
            assert_eq!((header.kind, header.peer.0, came), (Kind::Datagram, Some(there), octets));
        }
        assert!(!mailed.sock.is_readable(0));
        let row = running.query("sockets").remove(0);
        assert_eq!((row["from_program"].as_str(), row["to_program"].as_str()), (Some("ring"), Some("ring")));
        // What has no place in a ring goes by the pair.
        let long = vec![3; 65_507];
        assert!(!mailed.send(Some(there), &long));
        assert!(heard(&kernel).0 == long);
    }
}

isolated! {
    fn a_service_that_sleeps_is_woken_by_the_pair() {
        let running = Running::new();
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let (kernel, there) = kernels("10.9.0.1:0");
        for n in 0..200u32 {
            mailed.send(Some(there), &n.to_ne_bytes());
            // It answers only what it has.
            assert_eq!(number(&heard(&kernel).0), n);
        }
    }
}

isolated! {
    fn one_sockets_datagrams_stay_in_order_however_the_service_sleeps_and_wakes() {
        let running = awake(Duration::from_micros(30));
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
        let (kernel, there) = kernels("10.9.0.1:0");
        let (mut by_ring, mut next) = (0, 0u32);
        // As many at once as its receive buffer has room for, until some of them went each way.
        for batch in 0..8000u32 {
            if batch >= 400 && by_ring.min(next - by_ring) >= 100 {
                break;
            }
            // A program that is always quick enough would never meet a service that sleeps.
            if batch % 4 == 0 {
                mailed.wait_for_closed();
            }
            let many = 1 + batch % 60;
            for n in next..next + many {
                by_ring += u32::from(mailed.send(Some(there), &n.to_ne_bytes()));
            }
            for n in next..next + many {
                assert_eq!(number(&heard(&kernel).0), n, "by rings: {by_ring}");
            }
            next += many;
        }
        assert!(by_ring.min(next - by_ring) >= 100, "{by_ring} of {next}");
        // And back: the program opens, reads, closes.
        for batch in 0..300u32 {
            let many = 1 + batch % 40;
            (next..next + many).for_each(|n| _ = kernel.send_to(&n.to_ne_bytes(), local).expect("sent"));
            (next..next + many).for_each(|n| assert_eq!(number(&mailed.receive().1), n));
            if batch % 3 == 0 {
                mailed.reader().close();
            }
            next += many;
        }
        let row = running.query("sockets").remove(0);
        assert_eq!((row["dropped"].as_u64(), row["to_program"].as_str()), (Some(0), Some("ring")));
    }
}

isolated! {
    fn what_a_program_does_not_read_comes_by_the_pair() {
        let running = awake(Duration::ZERO);
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
        let (kernel, there) = kernels("10.9.0.1:0");
        let epoch = mailed.reader().open_begin().expect("closed");
        assert!(mailed.reader().open_finish(epoch));
        (0..5u32).for_each(|n| _ = kernel.send_to(&n.to_ne_bytes(), local).expect("sent"));
        until(|| (!mailed.reader().is_empty()).then_some(()));
        // Nobody asks for them: after a while.
        assert!(mailed.sock.is_readable(LONGEST.as_millis() as u16));
        (0..5).for_each(|n| assert_eq!(number(&until(|| mailed.in_pair()).1), n));
        assert!(mailed.reader().is_empty());
        // Whoever is about to wait for the pair alone asks, and has them at once.
        mailed.reader().close();
        let epoch = mailed.reader().open_begin().expect("closed");
        assert!(mailed.in_pair().is_none() && mailed.reader().open_finish(epoch));
        (5..9u32).for_each(|n| _ = kernel.send_to(&n.to_ne_bytes(), local).expect("sent"));
        until(|| (mailed.rings.control.mailbox[1].unread() >= 4 * 120).then_some(()));
        mailed.reader().close();
        let asked = [LEVEL, TAKE_BACK, 4].map(i32::to_ne_bytes).concat();
        assert_eq!(mailed.sock.ask(Op::Get, &asked).errno, 0);
        (5..9).for_each(|n| assert_eq!(number(&mailed.in_pair().expect("it is there").1), n));
        let (header, _) = { kernel.send_to(b"last", local).expect("sent"); until(|| mailed.in_pair()) };
        assert_eq!(header.peer.0, Some(there));
    }
}

isolated! {
    fn what_was_taken_back_for_a_full_pair_counts_for_its_user() {
        /// As many as fit into the pair, about, and as many beside them as fit into the ring.
        const COUNTS: [u32; 2] = [80, 40];
        let running = awake(Duration::ZERO);
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
        let (kernel, _) = kernels("10.9.0.1:0");
        let octets = || running.query("service")[0]["users"][0]["octets"].as_u64().expect("a number");
        let sends = |from: u32, count: u32| {
            for n in from..from + count {
                kernel.send_to(&[&n.to_ne_bytes()[..], &[0; 996]].concat(), local).expect("sent");
                let delivered = || running.query("stats").into_iter().find(|row| row["name"] == "udp_delivered");
                until(|| (delivered()?["value"].as_u64()? > u64::from(n)).then_some(()));
            }
        };
        sends(0, COUNTS[0]);
        until(|| (octets() == 0).then_some(()));
        let epoch = mailed.reader().open_begin().expect("closed");
        assert!(mailed.reader().open_finish(epoch));
        sends(COUNTS[0], COUNTS[1]);
        let asked = [LEVEL, TAKE_BACK, 4].map(i32::to_ne_bytes).concat();
        assert_eq!(mailed.sock.ask(Op::Get, &asked).errno, 0);
        until(|| (octets() > 10_000).then_some(()));
        mailed.reader().close();
        (0..COUNTS[0] + COUNTS[1]).for_each(|n| assert_eq!(number(&until(|| mailed.in_pair()).1), n));
        until(|| (octets() == 0).then_some(()));
    }
}

isolated! {
    fn what_was_taken_back_once_is_not_taken_back_again_whatever_its_program_writes() {
        let running = awake(Duration::ZERO);
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
        let (kernel, _) = kernels("10.9.0.1:0");
        let epoch = mailed.reader().open_begin().expect("closed");
        assert!(mailed.in_pair().is_none() && mailed.reader().open_finish(epoch));
        let mailbox = &mailed.rings.control.mailbox[1];
        let head = mailbox.head.0.load(Acquire);
        (0..4u32).for_each(|n| _ = kernel.send_to(&n.to_ne_bytes(), local).expect("sent"));
        until(|| (mailbox.unread() >= 4 * 120).then_some(()));
        mailed.reader().close();
        let asked = [LEVEL, TAKE_BACK, 4].map(i32::to_ne_bytes).concat();
        for _ in 0..100 {
            assert_eq!(mailed.sock.ask(Op::Get, &asked).errno, 0);
            mailbox.head.0.store(head, Release);
        }
        (0..4).for_each(|n| assert_eq!(number(&mailed.in_pair().expect("it is there").1), n));
        assert!(mailed.in_pair().is_none());
        // It lied: all goes by the pair.
        kernel.send_to(&4u32.to_ne_bytes(), local).expect("sent");
        assert_eq!(number(&until(|| mailed.in_pair()).1), 4);
        assert_eq!(running.query("service")[0]["users"][0]["octets"].as_u64(), Some(0));
    }
}

isolated! {
    fn what_was_written_before_a_connect_goes_to_the_partner_of_then() {
        let running = awake(LONGEST);
        let program = running.program();
        let mailed = Mailed::of(&program, &mut Process::new(7));
        let partners = [kernels("10.9.0.1:0"), kernels("10.9.0.1:0")];
        for round in 0..50u32 {
            let (kernel, there) = &partners[round as usize % 2];
            assert_eq!(mailed.sock.connect(*there), 0);
            (0..3).for_each(|n| mailed.send_by_ring(None, &(3 * round + n).to_ne_bytes()));
            assert_eq!(mailed.sock.connect(partners[(round as usize + 1) % 2].1), 0);
            (0..3).for_each(|n| assert_eq!(number(&heard(kernel).0), 3 * round + n));
        }
    }
}

isolated! {
    fn what_a_program_that_is_gone_has_written_is_sent() {
        let running = awake(LONGEST);
        let program = running.program();
        let mut process = Process::new(7);
        let (kernel, there) = kernels("10.9.0.1:0");
        for round in 0..20u32 {
            let mailed = Mailed::of(&program, &mut process);
            mailed.send_by_ring(Some(there), b"first");
            (0..10).for_each(|n| _ = mailed.send(Some(there), &(10 * round + n).to_ne_bytes()));
            mailed.rings.control.in_use.store(0, Release);
            drop(mailed);
            assert_eq!(heard(&kernel).0, b"first");
            (0..10).for_each(|n| assert_eq!(number(&heard(&kernel).0), 10 * round + n));
        }
        // Nothing is left of it.
        running.has_sockets(0);
        assert!(running.query("service")[0]["users"].as_array().expect("users").iter().all(|user| user["rings"] == 0));
    }
}

isolated! {
    fn who_lies_in_a_mailbox_goes_on_by_the_pair() {
        let running = awake(LONGEST);
        let program = running.program();
        let mut process = Process::new(7);
        let (kernel, there) = kernels("10.9.0.1:0");
        let lies: [fn(&Rings); 6] = [
            |rings| rings.control.mailbox[0].tail.0.store(24, Release),
            |rings| rings.control.mailbox[0].tail.0.store(u64::MAX, Release),
            |rings| rings.control.mailbox[0].head.0.store(1 << 62, Release),
            |rings| {
                // A record without a header.
                Writer::new(&rings.control.mailbox[0], rings.tx, 1).push(&AtomicU64::new(0), b"x", b"y", 4096).sent()
            },
            |rings| {
                rings.tx.put(0, &[0xff; 64]);
                rings.control.mailbox[0].tail.0.store(64, Release);
            },
            |rings| {
                let theirs = &rings.control.mailbox[1];
                theirs.head.0.store(77, Release);
                theirs.writers.head.store(1 << 40, Release);
                theirs.gate.0.store(9 << 2 | phase::OPEN, Release);
            },
        ];
        for (n, lie) in lies.into_iter().enumerate() {
            let mailed = Mailed::of(&program, &mut process);
            let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
            mailed.wait_for_open();
            lie(&mailed.rings);
            kernel.send_to(b"something", local).expect("sent");
            // It may have slept before the lie stood there: then it reads it when it is woken. What is written by the rules has to be written
            // again, if the gate was closed by then.
            mailed.once_awake(|mailbox| {
                if !mailbox.is_dead() && Mailed::is_open(mailbox) {
                    lie(&mailed.rings);
                }
                mailbox.is_dead()
            });
            assert_eq!(until(|| mailed.in_pair()).1, b"something", "{n}");
            assert!(!mailed.send(Some(there), &(n as u32).to_ne_bytes()));
            assert_eq!(number(&heard(&kernel).0), n as u32);
        }
    }
}

/// What a lie answers is nobody's concern.
trait Ignored: Sized {
    fn sent(self) {}
}

impl Ignored for Pushed {}

isolated! {
    fn whatever_stands_in_a_mailbox_the_service_goes_on() {
        let running = awake(LONGEST);
        let program = running.program();
        let mut process = Process::new(7);
        let (kernel, there) = kernels("10.9.0.1:0");
        // Until the service has told its hardware address, what is sent waits for it.
        kernel.set_write_timeout(Some(LONGEST)).expect("a time-out");
        let mut seed = 1u64;
        let mut roll = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 30) % n
        };
        for _ in 0..40 {
            let mailed = Mailed::of(&program, &mut process);
            let local = mailed.sock.bind("10.9.0.2:0").expect("a port");
            for _ in 0..100 {
                let mailbox = &mailed.rings.control.mailbox[roll(2) as usize];
                match roll(7) {
                    0 => mailbox.tail.0.store(roll(1 << 17), Release),
                    1 => mailbox.head.0.store(roll(1 << 17) & !7, Release),
                    2 => mailbox.gate.0.store(roll(64), Release),
                    3 => mailbox.writers.head.store(roll(1 << 20), Release),
                    4 => mailed.rings.tx.put(roll(1 << 16), &roll(1 << 34).to_ne_bytes()),
                    5 => mailed.rings.rx.put(roll(1 << 16), &roll(1 << 34).to_ne_bytes()),
                    _ => _ = mailed.writer().push(&AtomicU64::new(0), &Header::datagram(Address(Some(there))).encode(), b"x", 4096),
                }
                kernel.send_to(b"something", local).expect("sent");
                let _ = mailed.sock.end.send(b"naked");
            }
        }
        // Somebody else notices nothing.
        let honest = Mailed::of(&program, &mut Process::new(8));
        let (kernel, there) = kernels("10.9.0.1:0");
        honest.send_by_ring(Some(there), b"well");
        assert_eq!(heard(&kernel).0, b"well");
        assert_eq!(honest.sock.ask(Op::Connect, &Address(Some(at("10.9.0.1:9"))).encode()).errno, 0);
    }
}
