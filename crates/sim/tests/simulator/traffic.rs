//! Questions and answers between hosts, and a book of them: what was sent, and what was delivered as such.

use bypath_sim::app::{App, Context};
use bypath_sim::dice::Dice;
use bypath_stack::event::Event;
use bypath_stack::socket::{Received, SocketId};
use bypath_stack::time::Instant;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Seeds of a property: that of BYPATH_SIM_SEED alone if it is there.
pub fn seeds() -> BoxedStrategy<u64> {
    match std::env::var("BYPATH_SIM_SEED") {
        Ok(seed) => Just(seed.parse().expect("BYPATH_SIM_SEED is a number")).boxed(),
        Err(_) => any::<u64>().no_shrink().boxed(),
    }
}

/// As many cases as there is time for.
pub fn cases(few: u32) -> ProptestConfig {
    let soak = std::env::var_os("BYPATH_SOAK").is_some_and(|soak| soak != "0");
    let many = match std::env::var_os("BYPATH_SIM_SEED") {
        Some(_) => 1,
        None if soak => few * 100,
        None => few,
    };
    ProptestConfig { failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::with_cases(many) }
}

/// The octets of a datagram: its number, the number of what it answers, and what follows from its own.
pub fn payload(id: u64, answers: u64, len: usize) -> Vec<u8> {
    let mut octets = [id.to_be_bytes(), answers.to_be_bytes()].concat();
    let mut dice = Dice::new(id);
    octets.extend(std::iter::repeat_with(|| dice.roll() as u8).take(len.saturating_sub(16)));
    octets
}

/// What was sent, and what came of it.
#[derive(Debug, Default)]
pub struct Book {
    next: u64,
    /// By number: octets, and how often it was delivered.
    datagrams: BTreeMap<u64, (usize, u64)>,
    /// Questions that were answered.
    pub answered: BTreeMap<u64, Instant>,
}

pub type Shared = Rc<RefCell<Book>>;

impl Book {
    /// A datagram that is sent now.
    fn write(&mut self, answers: u64, len: usize) -> (u64, Vec<u8>) {
        self.next += 1;
        let octets = payload(self.next, answers, len);
        self.datagrams.insert(self.next, (octets.len(), 0));
        (self.next, octets)
    }

    /// One that came: its number, and that of what it answers.
    ///
    /// # Panics
    /// If nobody sent it so.
    fn read(&mut self, octets: &[u8]) -> (u64, u64) {
        let number = |at: usize| u64::from_be_bytes(octets[at..at + 8].try_into().expect("eight octets"));
        assert!(octets.len() >= 16, "a datagram of {} octets, which nobody sent", octets.len());
        let (id, answers) = (number(0), number(8));
        let (len, times) = self.datagrams.get_mut(&id).expect("a datagram that nobody sent");
        assert_eq!(octets.len(), *len, "datagram {id} has another length");
        assert!(octets == payload(id, answers, *len), "datagram {id} came with wrong octets");
        *times += 1;
        (id, answers)
    }

    /// Deliveries beyond the first of each datagram.
    pub fn copies(&self) -> u64 {
        self.datagrams.values().map(|(_, times)| times.saturating_sub(1)).sum()
    }

    /// Datagrams that were delivered.
    pub fn delivered(&self) -> usize {
        self.datagrams.values().filter(|(_, times)| *times > 0).count()
    }
}

fn receive(
    context: &mut Context<'_>,
    id: SocketId,
    book: &Shared,
    mut each: impl FnMut(u64, u64, SocketAddr),
) {
    let mut room = vec![0; 65_536];
    let Some(mut udp) = context.stack.udp(id) else { return };
    loop {
        match udp.receive(&mut room) {
            Ok(Received { len, datagram }) => {
                let (number, answers) = book.borrow_mut().read(&room[..len]);
                each(number, answers, datagram.from);
            }
            Err(bypath_stack::socket::ReceiveError::Empty) => return,
            // What routers say.
            Err(_) => {}
        }
    }
}

/// Answers what comes to port 7.
pub fn server(book: Shared) -> impl App {
    let mut socket = None;
    move |context: &mut Context<'_>, event: Option<&Event>| {
        let id = *socket.get_or_insert_with(|| {
            let id = context.stack.open_udp().expect("a socket");
            context.stack.udp(id).expect("it is there").bind("[::]:7".parse().unwrap()).expect("a port");
            id
        });
        let Some(Event::Socket { id: told, .. }) = event else { return };
        if *told != id {
            return;
        }
        let mut asked = Vec::new();
        receive(context, id, &book, |number, _, from| asked.push((number, from)));
        for (number, from) in asked {
            let len = 16 + context.dice.index(200);
            let (_, octets) = book.borrow_mut().write(number, len);
            // It may not be possible: a lost answer.
            let _lost = context.stack.udp(id).expect("it is there").send(&octets, Some(from));
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    pub to: SocketAddr,
    pub from: Instant,
    pub until: Instant,
    pub every: Duration,
    /// Octets of a question at most.
    pub longest: usize,
}

/// Asks again and again, a new question each time.
pub fn client(book: Shared, asks: Asks) -> impl App {
    let mut socket = None;
    move |context: &mut Context<'_>, event: Option<&Event>| {
        let id = *socket.get_or_insert_with(|| {
            context.wake_at(asks.from);
            context.stack.open_udp().expect("a socket")
        });
        let now = context.now;
        if let Some(Event::Socket { id: told, .. }) = event {
            if *told == id {
                let answered = Rc::clone(&book);
                receive(context, id, &book, |_, answers, _| {
                    answered.borrow_mut().answered.entry(answers).or_insert(now);
                });
            }
        } else if event.is_none() && now >= asks.from && now < asks.until {
            let len = 16 + context.dice.index(asks.longest - 15);
            let (_, octets) = book.borrow_mut().write(0, len);
            // A queue may be full, or the network have said something.
            let _lost = context.stack.udp(id).expect("it is there").send(&octets, Some(asks.to));
            context.wake_at(now + asks.every);
        }
    }
}
