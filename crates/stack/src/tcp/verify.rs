//! What always holds of all connections between two calls of the stack, for tests that drive whole stacks.

use super::table::{Entry, Owner};
use super::tcb::{Connection, State};
use crate::Stack;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

impl Stack {
    /// What contradicts itself in the state of the connections, if something does: sequence numbers, windows, what buffers hold, and
    /// that whoever waits for something is woken; and in what is counted of datagrams that were not received. It looks at all of them.
    #[doc(hidden)]
    pub fn contradiction(&self) -> Option<String> {
        let entries = || (0..self.tcp.places()).filter_map(|index| self.tcp.entry(index));
        let wrong = entries().find_map(|entry| of_entry(entry).map(|what| format!("{what}: {entry:?}")));
        if wrong.is_some() {
            return wrong;
        }
        let count = |is: fn(&Entry) -> bool| entries().filter(|entry| is(entry)).count();
        let sums = [
            ("octets", entries().map(|entry| entry.octets).sum(), self.tcp.octets),
            ("half open", count(|entry| matches!(entry.owner, Owner::HalfOpen(_))), self.tcp.half_open),
            ("orphans", count(|entry| entry.owner == Owner::Orphan), self.tcp.orphans),
            ("alone", self.tcp.alone(), self.tcp.used.values().map(|used| used.alone as usize).sum()),
            ("of others", count(|entry| entry.foreign), self.tcp.foreign),
        ];
        if self.tcp.parked.count() != Some(count(|entry| entry.parked)) {
            return Some("those who wait for a neighbour are listed wrongly".to_owned());
        }
        if let Some(wrong) = self.tcp.wrong_user() {
            return Some(wrong);
        }
        if let Some(whom) = self.wrong_unread() {
            return Some(format!("what user {whom} has not received is counted wrongly"));
        }
        let (what, found, counted) = sums.into_iter().find(|(_, found, counted)| found != counted)?;
        Some(format!("{what}: {found} found, {counted} counted"))
    }
}

fn of_entry(entry: &Entry) -> Option<&'static str> {
    let c = &entry.connection;
    if entry.octets != c.octets_held() {
        return Some("what its buffers hold is counted wrongly");
    }
    if let Some(what) = of_connection(c) {
        return Some(what);
    }
    // Once it has said what it can say, it has a timer, which is not too late.
    if entry.listed || entry.parked {
        return None;
    }
    match c.poll_timeout() {
        Some(due) if entry.due > due => Some("its timer comes too late"),
        None if waits(c) => Some("it waits for something, and has no timer"),
        _ => None,
    }
}

fn of_connection(c: &Connection) -> Option<&'static str> {
    if c.state == State::Closed {
        return None;
    }
    let ledger = [c.sent.pipe(), c.sent.lost(), c.sent.sacked()].into_iter().map(u64::from).sum::<u64>();
    let (send, receive) = (c.snd.room as usize, c.rcv.room as usize);
    let promised = c.rx.len() + c.rcv.edge.distance(c.rcv.nxt).max(0) as usize;
    let wrong = [
        ("SND.UNA is after SND.NXT", c.snd.una.after(c.snd.nxt)),
        ("the ledger has other octets than are on their way", c.sent.octets() != c.snd.nxt.since(c.snd.una)),
        ("the ledger has more octets than it has", ledger > u64::from(c.sent.octets())),
        ("a buffer has more room than it may", send > c.settings.send_octets),
        ("a window is larger than it may be", receive > c.settings.receive_octets),
        // A size that was chosen later may be smaller than what was promised.
        ("more was promised than there is room for", c.settings.tune_receive && promised > receive + 1),
        ("there is no congestion window", c.congestion.cwnd() == 0),
        ("more was sent than was written", c.is_synchronized() && c.snd.nxt.after(c.last_octet() + 1)),
    ];
    wrong.into_iter().find(|(_, is)| *is).map(|(what, _)| what).or_else(|| c.urgent_contradiction())
}

/// Something of its own is not acknowledged, or not sent yet.
fn waits(c: &Connection) -> bool {
    let unsent = c.last_octet().after(c.snd.nxt) || c.finished && c.snd.fin.is_none();
    match c.state {
        State::Closed => false,
        State::TimeWait => true,
        State::SynSent | State::SynReceived => true,
        _ => !c.sent.is_empty() || unsent,
    }
}
