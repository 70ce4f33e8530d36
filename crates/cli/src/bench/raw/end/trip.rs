//! Round trips: one frame on its way at a time, timed from before the call that sends it to after the one that has received
//! its answer. Every octet of every answer is compared, outside of that time.

use super::echo::{self, LONGEST};
use super::frame::{Content, Kind};
use super::raw::{self, Use};
use super::{Control, Trouble, udp};
use crate::bench::histogram::Histogram;
use crate::bench::peer::{clock_cost_ns, now_ns};
use crate::bench::raw::order::{Carrier, Place, Run, Trips};
use bypath::l2::{Error, MacAddr, Socket};
use bypath::link::Link;

/// Round trips before those that count: addresses are resolved, caches warm.
const WARM: u64 = 64;
/// So many lost ones in a row end a measurement.
const MOST_LOST: u64 = 10;

/// Measures.
pub fn run(control: &Control, run: Run, to: Place, count: u64) -> Result<Trips, Trouble> {
    if run.carrier.is_udp() {
        return over_udp(control, run, to, count);
    }
    let mac = MacAddr(to.mac);
    if run.carrier == Carrier::Xdp {
        let (link, notes) = raw::xdp(control, run.spin)?;
        return over_raw(run, echo::socket(control, link, run.spin), mac, count, notes);
    }
    let (link, notes) = raw::packet(control, run.carrier, Use::Talk)?;
    over_raw(run, echo::socket(control, link, run.spin), mac, count, notes)
}

/// What came back for frame `number`.
enum Back {
    Good,
    Changed,
    Nothing,
}

/// Repeats `once`, which returns the time that a round trip took and what came back.
fn repeat(
    count: u64,
    notes: Vec<String>,
    mut once: impl FnMut(u64) -> Result<(u64, Back), Trouble>,
) -> Result<Trips, Trouble> {
    let mut samples = Histogram::new();
    let mut trips = Trips { notes, ..Trips::default() };
    let clock_cost = clock_cost_ns();
    let mut lost = 0;
    for number in 0..WARM + count {
        let (ns, back) = once(number)?;
        lost = if matches!(back, Back::Nothing) { lost + 1 } else { 0 };
        if lost >= MOST_LOST {
            return Err(Trouble::Failed(format!("{lost} frames in a row did not come back")));
        }
        if number < WARM {
            continue;
        }
        match back {
            Back::Good => samples.record(ns.saturating_sub(clock_cost)),
            Back::Changed => trips.corrupt += 1,
            Back::Nothing => trips.lost += 1,
        }
    }
    trips.samples = samples.pairs().collect();
    Ok(trips)
}

fn over_raw<L: Link>(
    run: Run,
    mut socket: Socket<L>,
    to: MacAddr,
    count: u64,
    notes: Vec<String>,
) -> Result<Trips, Trouble> {
    let content = Content::new(run);
    let mut payload = vec![0; run.size];
    let mut answer = vec![0; run.size];
    socket.set_timeout(Some(LONGEST));
    repeat(count, notes, |number| {
        content.write(&mut payload, Kind::Ping, number);
        let start = now_ns();
        match socket.send(to, &payload) {
            Ok(()) | Err(Error::QueueFull { .. }) => {}
            Err(e) => return Err(raw::trouble(&e)),
        }
        loop {
            let mut ours = false;
            let got = socket.receive_batch(1, |frame| {
                if content.number(frame.payload, Kind::Pong) == Some(number) {
                    ours = true;
                    let len = frame.payload.len().min(answer.len());
                    answer[..len].copy_from_slice(&frame.payload[..len]);
                }
            });
            match got {
                Ok(_) if ours => break,
                // An answer that came too late, or somebody else's.
                Ok(_) if now_ns() - start < LONGEST.as_nanos() as u64 => {}
                Ok(_) | Err(Error::TimedOut { .. }) => return Ok((0, Back::Nothing)),
                Err(Error::Interrupted) => {}
                Err(e) => return Err(raw::trouble(&e)),
            }
        }
        let ns = now_ns() - start;
        Ok((ns, if content.is_whole(&answer, number) { Back::Good } else { Back::Changed }))
    })
}

fn over_udp(control: &Control, run: Run, to: Place, count: u64) -> Result<Trips, Trouble> {
    let mut notes = Vec::new();
    let socket = udp::open(control, &mut notes)?;
    let content = Content::new(run);
    let mut payload = vec![0; run.size];
    let mut answer = vec![0; run.size + 1];
    let to = udp::remote(control, to);
    let connected = run.carrier == Carrier::UdpConnected;
    if connected {
        socket.connect(to)?;
    }
    socket.set_read_timeout(Some(LONGEST))?;
    socket.set_nonblocking(run.spin)?;
    repeat(count, notes, |number| {
        content.write(&mut payload, Kind::Ping, number);
        let start = now_ns();
        let sent = if connected { socket.send(&payload) } else { socket.send_to(&payload, to) };
        match sent {
            Err(e) if !udp::is_nothing(&e) => return Err(e.into()),
            _ => {}
        }
        let mut looks = 0u32;
        let len = loop {
            let got = if connected {
                socket.recv(&mut answer)
            } else {
                socket.recv_from(&mut answer).map(|(len, _)| len)
            };
            match got {
                Ok(len) if content.number(&answer[..len], Kind::Pong) == Some(number) => break len,
                Err(e) if !udp::is_nothing(&e) => return Err(e.into()),
                _ => {}
            }
            // The clock is not cheap: every eighth look of one that spins.
            looks = looks.wrapping_add(1);
            if (!run.spin || looks.is_multiple_of(8)) && now_ns() - start >= LONGEST.as_nanos() as u64 {
                return Ok((0, Back::Nothing));
            }
        };
        let ns = now_ns() - start;
        let good = content.is_whole(&answer[..len], number);
        Ok((ns, if good { Back::Good } else { Back::Changed }))
    })
}
