//! Messages one way as fast as they go, counted and timed where they arrive.

use super::channel::Channel;
use super::clock::{Beside, cpu_ns, now_ns};
use super::messages::{CHECKED, CHECKED_LAST, TIMED, TIMED_LAST, check, write_checked, wrong};
use super::transport::{Conversation, open};
use super::{PeerArgs, PeerResult, Role};
use std::io;

/// A checked phase has at least this many bytes and messages and (before the timed one) this length.
const CHECKED_BYTES: u64 = 1 << 20;
const CHECKED_MESSAGES: u64 = 64;
const WARM_NS: u64 = 10_000_000;
/// Where others work on the same processors the messages alone are enough after so long.
const PATIENCE_NS: u64 = 500_000_000;
/// Bytes between two looks at the clock.
const CLOCK_EVERY: usize = 64 * 1024;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    open(args, OneWay { args })
}

struct OneWay<'a> {
    args: &'a PeerArgs,
}

impl Conversation for OneWay<'_> {
    type Output = PeerResult;

    fn over<C: Channel>(self, mut channel: C) -> io::Result<PeerResult> {
        let mut buf = vec![0; self.args.size];
        let mut result = match self.args.role {
            Role::Serve => {
                receive_checked(&mut channel, &mut buf)?;
                let beside = Beside::begin(self.args);
                let mut result = receive(&mut channel, &mut buf)?;
                beside.end(&mut result);
                receive_checked(&mut channel, &mut buf)?;
                channel.expect_end()?;
                channel.close_sending()?;
                result
            }
            Role::Drive => {
                send_checked(&mut channel, &mut buf, WARM_NS)?;
                let result = send(&mut channel, &mut buf, self.args.seconds)?;
                send_checked(&mut channel, &mut buf, 0)?;
                channel.close_sending()?;
                channel.expect_end()?;
                result
            }
        };
        result.cc = channel.cc();
        Ok(result)
    }
}

fn send_checked<C: Channel>(channel: &mut C, buf: &mut [u8], at_least_ns: u64) -> io::Result<()> {
    let begun = now_ns();
    let least = (CHECKED_BYTES / buf.len() as u64).max(CHECKED_MESSAGES);
    for number in 0.. {
        let took = now_ns() - begun;
        let last = number >= least && took >= at_least_ns
            || number >= CHECKED_MESSAGES && took >= PATIENCE_NS.max(at_least_ns);
        write_checked(buf, if last { CHECKED_LAST } else { CHECKED }, number);
        channel.send(buf)?;
        if last {
            break;
        }
    }
    // The receiver says that all of it was right.
    channel.recv(&mut buf[..1])
}

fn receive_checked<C: Channel>(channel: &mut C, buf: &mut [u8]) -> io::Result<()> {
    let mut scratch = vec![0; buf.len()];
    for number in 0.. {
        channel.recv(buf)?;
        check(buf, number, &mut scratch)?;
        if buf[0] == CHECKED_LAST {
            break;
        }
    }
    channel.send(&buf[..1])
}

fn send<C: Channel>(channel: &mut C, buf: &mut [u8], seconds: f64) -> io::Result<PeerResult> {
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let until = start + (seconds * 1e9) as u64;
    let burst = (CLOCK_EVERY / buf.len()).max(1) as u64;
    let mut sent = 0;
    buf[0] = TIMED;
    while now_ns() < until {
        for _ in 0..burst {
            channel.send(buf)?;
        }
        sent += burst;
    }
    buf[0] = TIMED_LAST;
    channel.send(buf)?;
    sent += 1;
    let (elapsed_ns, cpu_ns) = (now_ns() - start, cpu_ns() - cpu_before);
    Ok(PeerResult { elapsed_ns, cpu_ns, sent, ..Default::default() })
}

fn receive<C: Channel>(channel: &mut C, buf: &mut [u8]) -> io::Result<PeerResult> {
    channel.recv(buf)?;
    let (start, cpu_before) = (now_ns(), cpu_ns());
    // The first message starts the clock and is counted by the sender's total only.
    let mut received = 0u64;
    while buf[0] == TIMED {
        channel.recv(buf)?;
        received += 1;
    }
    let (elapsed_ns, cpu_ns) = (now_ns() - start, cpu_ns() - cpu_before);
    if buf[0] != TIMED_LAST {
        return Err(wrong(format!("kind {} in the timed phase", buf[0])));
    }
    let bytes = received * buf.len() as u64;
    let mut result = PeerResult { elapsed_ns, cpu_ns, received, bytes, ..Default::default() };
    result.figures.insert("messages_in_all".into(), (received + 1) as f64);
    Ok(result)
}
