//! A message there, a message back: round trips, timed by the driver.

use super::channel::Channel;
use super::clock::{Beside, clock_cost_ns, cpu_ns, now_ns};
use super::messages::{CHECKED, CHECKED_LAST, TIMED, TIMED_LAST, check, write_checked, wrong};
use super::transport::{Conversation, open};
use super::{PeerArgs, PeerResult, Role};
use crate::bench::histogram::Histogram;
use std::io;

/// Each checked phase has at least this many round trips and, before the timed phase, this length.
const CHECKED_TRIPS: u64 = 256;
const WARM_NS: u64 = 10_000_000;
/// Where others work on the same processors a round trip may take as long as their turns: so many are enough after so long.
const FEWEST_TRIPS: u64 = 16;
const PATIENCE_NS: u64 = 500_000_000;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    open(args, Pingpong { args })
}

struct Pingpong<'a> {
    args: &'a PeerArgs,
}

impl Conversation for Pingpong<'_> {
    type Output = PeerResult;

    fn over<C: Channel>(self, mut channel: C) -> io::Result<PeerResult> {
        let size = self.args.size;
        let mut buf = vec![0; size];
        match self.args.role {
            Role::Serve => {
                answer_checked(&mut channel, &mut buf)?;
                let result = answer(&mut channel, &mut buf)?;
                answer_checked(&mut channel, &mut buf)?;
                channel.expect_end()?;
                channel.close_sending()?;
                Ok(PeerResult { cc: channel.cc(), ..result })
            }
            Role::Drive => {
                drive_checked(&mut channel, &mut buf, WARM_NS)?;
                if let Some(at) = self.args.start_at {
                    let wait = at.saturating_sub(now_ns());
                    std::thread::sleep(std::time::Duration::from_nanos(wait));
                }
                let beside = Beside::begin(self.args);
                let mut result = drive(&mut channel, &mut buf, self.args.seconds)?;
                beside.end(&mut result);
                drive_checked(&mut channel, &mut buf, 0)?;
                channel.close_sending()?;
                channel.expect_end()?;
                Ok(PeerResult { cc: channel.cc(), ..result })
            }
        }
    }
}

/// Checked round trips, for at least `at_least_ns`.
pub fn drive_checked<C: Channel>(channel: &mut C, buf: &mut [u8], at_least_ns: u64) -> io::Result<()> {
    let mut scratch = vec![0; buf.len()];
    let begun = now_ns();
    for number in 0.. {
        let took = now_ns() - begun;
        let last = number >= CHECKED_TRIPS && took >= at_least_ns
            || number >= FEWEST_TRIPS && took >= PATIENCE_NS.max(at_least_ns);
        write_checked(buf, if last { CHECKED_LAST } else { CHECKED }, number);
        channel.send(buf)?;
        channel.recv(buf)?;
        check(buf, !number, &mut scratch)?;
        if last {
            break;
        }
    }
    Ok(())
}

/// Answers checked message `n` by checked message `!n`.
pub fn answer_checked<C: Channel>(channel: &mut C, buf: &mut [u8]) -> io::Result<()> {
    let mut scratch = vec![0; buf.len()];
    for number in 0.. {
        channel.recv(buf)?;
        check(buf, number, &mut scratch)?;
        let kind = buf[0];
        write_checked(buf, kind, !number);
        channel.send(buf)?;
        if kind == CHECKED_LAST {
            break;
        }
    }
    Ok(())
}

fn drive<C: Channel>(channel: &mut C, buf: &mut [u8], seconds: f64) -> io::Result<PeerResult> {
    let mut samples = Histogram::new();
    let clock_cost = clock_cost_ns();
    let cpu_before = cpu_ns();
    let start = now_ns();
    let until = start + (seconds * 1e9) as u64;
    let mut before = start;
    let mut trips = 0u64;
    buf[0] = TIMED;
    loop {
        channel.send(buf)?;
        channel.recv(buf)?;
        trips += 1;
        let now = now_ns();
        samples.record((now - before).saturating_sub(clock_cost));
        before = now;
        if now >= until {
            break;
        }
    }
    let (elapsed_ns, cpu_ns) = (before - start, cpu_ns() - cpu_before);
    buf[0] = TIMED_LAST;
    channel.send(buf)?;
    channel.recv(buf)?;
    if buf[0] != TIMED_LAST {
        return Err(wrong(format!("kind {} ends the timed phase", buf[0])));
    }
    let bytes = trips * buf.len() as u64;
    Ok(PeerResult {
        elapsed_ns,
        cpu_ns,
        received: trips,
        sent: trips,
        bytes,
        samples: samples.pairs().collect(),
        ..Default::default()
    })
}

fn answer<C: Channel>(channel: &mut C, buf: &mut [u8]) -> io::Result<PeerResult> {
    channel.recv(buf)?;
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let mut received = 0u64;
    while buf[0] == TIMED {
        received += 1;
        channel.send(buf)?;
        channel.recv(buf)?;
    }
    let (elapsed_ns, cpu_ns) = (now_ns() - start, cpu_ns() - cpu_before);
    if buf[0] != TIMED_LAST {
        return Err(wrong(format!("kind {} in the timed phase", buf[0])));
    }
    channel.send(buf)?;
    let bytes = received * buf.len() as u64;
    Ok(PeerResult { elapsed_ns, cpu_ns, received, sent: received, bytes, ..Default::default() })
}
