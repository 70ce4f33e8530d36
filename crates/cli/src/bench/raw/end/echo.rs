//! Sends each frame back to where it came from.

use super::frame::{Content, Kind};
use super::raw::{self, Use};
use super::{Control, Trouble, udp};
use crate::bench::raw::order::{Carrier, Run};
use bypath::l2::{Error, Settings, Socket, Wait};
use bypath::link::Link;
use std::time::Duration;

/// Looks that find nothing between two at the orders, where an end spins.
const LOOKS: u32 = 4096;

/// Echoes until it is told to end.
pub fn run(control: &Control, run: Run) -> Result<(), Trouble> {
    if run.carrier.is_udp() {
        return over_udp(control, run);
    }
    if run.carrier == Carrier::Xdp {
        let (link, notes) = raw::xdp(control, run.spin)?;
        return over_raw(control, run, socket(control, link, run.spin), &notes);
    }
    let (link, notes) = raw::packet(control, run.carrier, Use::Talk)?;
    over_raw(control, run, socket(control, link, run.spin), &notes)
}

/// A socket as a user has it.
pub fn socket<L: Link>(control: &Control, link: L, spin: bool) -> Socket<L> {
    let wait = if spin { Wait::Spin } else { Wait::Sleep };
    let ethertype = Some(raw::ethertype(control, true));
    let timeout = Some(udp::LOOK_EVERY);
    Socket::over(link, Settings { ethertype, tag: None, pad: true, wait, timeout })
}

fn over_raw<L: Link>(
    control: &Control,
    run: Run,
    mut socket: Socket<L>,
    notes: &[String],
) -> Result<(), Trouble> {
    let content = Content::new(run);
    let mut payload = vec![0; run.size];
    control.ready(0, notes);
    let mut looks = 0u32;
    loop {
        let mut from = None;
        let got = socket.receive_batch(1, |frame| {
            if let Some(number) = content.number(frame.payload, Kind::Ping)
                && let Some(whole) = frame.payload.get(..run.size)
            {
                payload.copy_from_slice(whole);
                from = Some((frame.source, number));
            }
        });
        match got {
            Ok(_) => {}
            Err(Error::TimedOut { .. } | Error::Interrupted) => looks = LOOKS,
            Err(e) => return Err(raw::trouble(&e)),
        }
        if let Some((from, _)) = from {
            payload[2] = Kind::Pong as u8;
            match socket.send(from, &payload) {
                // The sender will see that it was lost.
                Ok(()) | Err(Error::QueueFull { .. } | Error::TimedOut { .. }) => {}
                Err(e) => return Err(raw::trouble(&e)),
            }
        }
        looks += 1;
        if looks > LOOKS {
            looks = 0;
            if control.finish().is_some() {
                return Ok(());
            }
        }
    }
}

fn over_udp(control: &Control, run: Run) -> Result<(), Trouble> {
    let mut notes = Vec::new();
    let socket = udp::open(control, &mut notes)?;
    let content = Content::new(run);
    let mut payload = vec![0; run.size + 1];
    socket.set_nonblocking(run.spin)?;
    control.ready(socket.local_addr()?.port(), &notes);
    let mut looks = 0u32;
    let mut connected = false;
    loop {
        let got = if connected {
            socket.recv(&mut payload).map(|len| (len, None))
        } else {
            socket.recv_from(&mut payload).map(|(len, from)| (len, Some(from)))
        };
        match got {
            Ok((len, from)) if content.number(&payload[..len], Kind::Ping).is_some() => {
                payload[2] = Kind::Pong as u8;
                if run.carrier == Carrier::UdpConnected
                    && let Some(from) = from
                {
                    socket.connect(from)?;
                    connected = true;
                }
                let sent = match from {
                    Some(from) if !connected => socket.send_to(&payload[..len], from),
                    _ => socket.send(&payload[..len]),
                };
                match sent {
                    Err(e) if !udp::is_nothing(&e) => return Err(e.into()),
                    _ => looks += 1,
                }
            }
            Ok(_) => {}
            Err(e) if udp::is_nothing(&e) => looks += if run.spin { 1 } else { LOOKS },
            Err(e) => return Err(e.into()),
        }
        if looks > LOOKS {
            looks = 0;
            if control.finish().is_some() {
                return Ok(());
            }
        }
    }
}

/// The longest that a round trip is waited for.
pub const LONGEST: Duration = Duration::from_secs(1);
