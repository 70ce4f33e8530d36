//! Frames one way, as fast as they go, counted where they arrive.

use super::frame::{Content, Kind, Numbers, Tally};
use super::raw::{self, Use};
use super::udp::{self, LOOK_EVERY};
use super::{Control, Trouble};
use crate::bench::peer::{cpu_ns, now_ns};
use crate::bench::raw::order::{Carrier, Flaws, Place, Received, Run, Sent};
use bypath::l2::{Error, MacAddr};
use bypath::link::Link;
use bypath::link::packet::PacketLink;
use std::net::UdpSocket;

/// Greetings are repeated this often, and given up after so many.
const GREETINGS: u32 = 100;
/// A receiver that has been told the number of frames gives up after this long without one.
const PATIENCE_NS: u64 = 100_000_000;
/// Single datagrams between two looks at the clock.
const STAMP_EVERY: u32 = 32;

/// How a sender sends.
pub struct Flood {
    /// How long.
    pub seconds: f64,
    /// At most so many frames per second.
    pub pace: Option<f64>,
    /// See there.
    pub flaws: Flaws,
    /// Whether the other end answers a greeting.
    pub greet: bool,
}

/// Sends.
pub fn send(control: &Control, run: Run, to: Place, flood: &Flood) -> Result<Sent, Trouble> {
    let mut notes = Vec::new();
    let content = Content::new(run);
    if run.carrier.is_udp() {
        let socket = udp::open(control, &mut notes)?;
        if flood.greet {
            greet_udp(control, &socket, to, &content)?;
        }
        let mut sender = udp::Sender::new(control, socket, run.carrier, to, content)?;
        return timed(flood, notes, |numbers| sender.send(numbers), |_| Ok(()));
    }
    if flood.greet {
        greet_raw(control, to, &content)?;
    }
    let to = MacAddr(to.mac);
    if run.carrier == Carrier::Xdp && control.iface != LOOPBACK {
        let (link, notes) = raw::xdp(control, false)?;
        return raw_flood(flood, notes, raw::Sender::new(control, link, to, content));
    }
    let (link, mut notes) = raw::packet(control, run.carrier, Use::Send)?;
    if run.carrier == Carrier::Xdp {
        notes.push("sent by sendmmsg: loopback's one queue has room for one AF_XDP socket".to_owned());
    }
    raw_flood(flood, notes, raw::Sender::new(control, link, to, content))
}

const LOOPBACK: &str = "lo";

fn raw_flood<L: Link>(flood: &Flood, notes: Vec<String>, sender: raw::Sender<L>) -> Result<Sent, Trouble> {
    let sender = std::cell::RefCell::new(sender);
    timed(
        flood,
        notes,
        |numbers| sender.borrow_mut().send(numbers).map_err(|e| raw::trouble(&e)),
        |_| sender.borrow_mut().flush().map_err(|e| raw::trouble(&e)),
    )
}

/// Calls `some` until the time is over, then `last`.
fn timed(
    flood: &Flood,
    notes: Vec<String>,
    mut some: impl FnMut(&mut Numbers) -> Result<(), Trouble>,
    mut last: impl FnMut(&mut Numbers) -> Result<(), Trouble>,
) -> Result<Sent, Trouble> {
    let mut numbers = Numbers::new(flood.flaws);
    let cpu_before = cpu_ns();
    let start = now_ns();
    let length = (flood.seconds * 1e9) as u64;
    let mut now = start;
    while now - start < length {
        some(&mut numbers)?;
        now = now_ns();
        if let Some(pace) = flood.pace {
            let due = start + (numbers.so_far() as f64 / pace * 1e9) as u64;
            while now < due {
                std::hint::spin_loop();
                now = now_ns();
            }
        }
    }
    last(&mut numbers)?;
    let elapsed_ns = now_ns() - start;
    Ok(Sent { frames: numbers.so_far(), elapsed_ns, cpu_ns: cpu_ns() - cpu_before, notes })
}

fn nobody() -> Trouble {
    Trouble::Failed(
        "the other end does not answer: frames are lost on the way, or a firewall drops them".into(),
    )
}

/// Waits until the other end has answered: addresses are resolved then, and its socket is open.
fn greet_udp(control: &Control, socket: &UdpSocket, to: Place, content: &Content) -> Result<(), Trouble> {
    let mut payload = vec![0; content.size()];
    for _ in 0..GREETINGS {
        content.write(&mut payload, Kind::Greeting, 0);
        // A refusal is answered by another try.
        let _ = socket.send_to(&payload, udp::remote(control, to));
        match socket.recv_from(&mut payload) {
            Ok((len, _)) if content.number(&payload[..len], Kind::Welcome).is_some() => return Ok(()),
            Ok(_) => {}
            Err(e) if udp::is_nothing(&e) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(nobody())
}

fn greet_raw(control: &Control, to: Place, content: &Content) -> Result<(), Trouble> {
    let (mut link, _) = raw::packet(control, Carrier::RawPlain, Use::Talk)?;
    for _ in 0..GREETINGS {
        say(control, &mut link, MacAddr(to.mac), content, Kind::Greeting)?;
        let mut welcome = false;
        let mut each = |payload: &[u8]| welcome |= content.number(payload, Kind::Welcome).is_some();
        // The first look may have to wait.
        for _ in 0..2 {
            raw::receive(&mut link, &mut each).map_err(|e| raw::trouble(&e))?;
        }
        if welcome {
            return Ok(());
        }
    }
    Err(nobody())
}

fn say(
    control: &Control,
    link: &mut PacketLink,
    to: MacAddr,
    content: &Content,
    kind: Kind,
) -> Result<(), Trouble> {
    let header = raw::header(control, to);
    let len = raw::HEADER + content.size();
    let said = link.send(1, &mut |slot| {
        slot[..raw::HEADER].copy_from_slice(&header);
        content.write(&mut slot[raw::HEADER..len], kind, 0);
        Some((len, Default::default()))
    });
    match said {
        Ok(_) | Err(Error::QueueFull { .. }) => Ok(()),
        Err(e) => Err(raw::trouble(&e)),
    }
}

/// Receives and counts.
pub fn receive(control: &Control, run: Run) -> Result<Received, Trouble> {
    let mut notes = Vec::new();
    if run.carrier.is_udp() {
        let socket = udp::open(control, &mut notes)?;
        let answers = socket.try_clone()?;
        let port = socket.local_addr()?.port();
        let mut receiver = udp::Receiver::new(socket, run.carrier, run.size)?;
        control.ready(port, &notes);
        if let Some(end) = welcome_udp(control, &answers, run)? {
            return Ok(end);
        }
        let every = if matches!(run.carrier, Carrier::UdpMmsg | Carrier::UdpGso) { 1 } else { STAMP_EVERY };
        return counted(control, run, every, |tally| receiver.receive(|payload| tally.take(payload)));
    }
    if run.carrier == Carrier::Xdp {
        let (link, notes) = raw::xdp(control, false)?;
        return receive_raw(control, run, link, &notes);
    }
    let (link, notes) =
        raw::packet(control, run.carrier, if run.deep { Use::ReceiveLater } else { Use::Receive })?;
    receive_raw(control, run, link, &notes)
}

fn receive_raw<L: Link>(
    control: &Control,
    run: Run,
    mut link: L,
    notes: &[String],
) -> Result<Received, Trouble> {
    let (mut answers, _) = raw::packet(control, Carrier::RawPlain, Use::Send)?;
    control.ready(0, notes);
    let content = Content::new(run);
    // Greetings come first: they say that sender and receiver know each other.
    let to = loop {
        let mut from = None;
        let taken = link.receive(1, &mut |frame, _| {
            let payload = frame.get(raw::HEADER..).unwrap_or(&[]);
            if content.number(payload, Kind::Greeting).is_some() {
                from = frame[6..12].try_into().ok().map(MacAddr);
            }
        });
        if let Some(from) = from {
            say(control, &mut answers, from, &content, Kind::Welcome)?;
            break from;
        }
        if taken.map_err(|e| raw::trouble(&e))? == 0 {
            raw::receive(&mut link, &mut |_| {}).map_err(|e| raw::trouble(&e))?;
        }
        if control.finish().is_some() {
            return Ok(Received::default());
        }
    };
    let mut received = counted(control, run, 1, |tally| {
        let begins = tally.arrived() == 0;
        let mut greeted = false;
        let each = &mut |payload: &[u8]| match content.number(payload, Kind::Greeting) {
            Some(_) if begins => greeted = true,
            _ => tally.take(payload),
        };
        let n = raw::receive(&mut link, each).map_err(|e| raw::trouble(&e))?;
        if greeted {
            // The answer was lost.
            say(control, &mut answers, to, &content, Kind::Welcome)?;
        }
        Ok(n)
    })?;
    received.dropped = link.statistics().dropped;
    Ok(received)
}

/// Waits for a greeting and answers it; the result if the end comes first.
fn welcome_udp(control: &Control, socket: &UdpSocket, run: Run) -> Result<Option<Received>, Trouble> {
    let content = Content::new(run);
    let mut payload = vec![0; run.size + 1];
    loop {
        match socket.recv_from(&mut payload) {
            Ok((len, from)) if content.number(&payload[..len], Kind::Greeting).is_some() => {
                content.write(&mut payload[..run.size], Kind::Welcome, 0);
                socket.send_to(&payload[..run.size], from)?;
                return Ok(None);
            }
            Ok(_) => {}
            Err(e) if udp::is_nothing(&e) => {}
            Err(e) => return Err(e.into()),
        }
        if control.finish().is_some() {
            return Ok(Some(Received::default()));
        }
    }
}

/// Calls `take` until what was sent has arrived, or no more comes.
fn counted(
    control: &Control,
    run: Run,
    stamp_every: u32,
    mut take: impl FnMut(&mut Tally) -> Result<usize, Trouble>,
) -> Result<Received, Trouble> {
    let mut tally = Tally::new(run);
    let cpu_before = cpu_ns();
    let mut calls = 0u32;
    let mut sent = None;
    let mut quiet_ns = 0;
    loop {
        let n = take(&mut tally)?;
        calls = calls.wrapping_add(1);
        if n > 0 {
            quiet_ns = 0;
            if calls.is_multiple_of(stamp_every) {
                tally.stamp(now_ns());
            }
            // While frames come, the clock's call and this one are all that is not the socket's.
            if !calls.is_multiple_of(4096) {
                continue;
            }
        }
        sent = sent.or_else(|| control.finish());
        if let Some(sent) = sent {
            quiet_ns += if n == 0 { LOOK_EVERY.as_nanos() as u64 } else { 0 };
            if tally.arrived() >= sent || quiet_ns >= PATIENCE_NS {
                break;
            }
        }
    }
    let cpu_ns = cpu_ns() - cpu_before;
    Ok(Received { cpu_ns, ..tally.finish() })
}

/// What a sender meets that nobody listens to: of raw frames a socket that nobody reads, of datagrams a port without one.
pub fn ignore(control: &Control, run: Run) -> Result<(), Trouble> {
    if run.carrier.is_udp() {
        // Bound to learn a free port, and closed.
        let port = udp::open(control, &mut Vec::new())?.local_addr()?.port();
        control.ready(port, &[]);
        control.until_finish();
        return Ok(());
    }
    let mut config = raw::config(control, Carrier::RawPlain, Use::Receive);
    // What a socket has that asks for nothing.
    config.receive_queue = 212_992;
    let link = PacketLink::open(&config).map_err(|e| raw::trouble(&e))?;
    control.ready(0, &[]);
    control.until_finish();
    drop(link);
    Ok(())
}
