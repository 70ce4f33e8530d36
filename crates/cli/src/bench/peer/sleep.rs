//! Both sides rest for a millisecond before they answer: every message finds its receiver asleep.
//!
//! A message carries the time of its sending (one clock serves the whole host), so the receiver times one way.

use super::channel::Channel;
use super::clock::{cpu_ns, now_ns};
use super::messages::{TIMED, TIMED_LAST, number, write_number, wrong};
use super::pingpong::{answer_checked, drive_checked};
use super::transport::{Conversation, open};
use super::{PeerArgs, PeerResult, Role};
use crate::bench::histogram::Histogram;
use std::io;
use std::time::Duration;

/// The rest before each message: with two sides, 1,000 messages a second and a little less.
const GAP: Duration = Duration::from_millis(1);

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    open(args, Sleepy { args })
}

struct Sleepy<'a> {
    args: &'a PeerArgs,
}

impl Conversation for Sleepy<'_> {
    type Output = PeerResult;

    fn over<C: Channel>(self, mut channel: C) -> io::Result<PeerResult> {
        let mut buf = vec![0; self.args.size];
        let drives = self.args.role == Role::Drive;
        if drives {
            drive_checked(&mut channel, &mut buf, 10_000_000)?;
        } else {
            answer_checked(&mut channel, &mut buf)?;
        }
        let result = rest_and_send(&mut channel, &mut buf, drives, self.args.seconds)?;
        if drives {
            drive_checked(&mut channel, &mut buf, 0)?;
            channel.close_sending()?;
            channel.expect_end()?;
        } else {
            answer_checked(&mut channel, &mut buf)?;
            channel.expect_end()?;
            channel.close_sending()?;
        }
        Ok(PeerResult { cc: channel.cc(), ..result })
    }
}

fn rest_and_send<C: Channel>(
    channel: &mut C,
    buf: &mut [u8],
    drives: bool,
    seconds: f64,
) -> io::Result<PeerResult> {
    let mut samples = Histogram::new();
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let until = start + (seconds * 1e9) as u64;
    let mut received = 0u64;
    let mut sent = 0u64;
    let mut last = false;
    let mut my_turn = drives;
    loop {
        if my_turn {
            std::thread::sleep(GAP);
            // The driver says that it ends; the other side's answer to that is the last message.
            last |= drives && now_ns() >= until;
            buf[0] = if last { TIMED_LAST } else { TIMED };
            write_number(buf, now_ns());
            channel.send(buf)?;
            sent += 1;
            if last && !drives {
                break;
            }
        }
        my_turn = true;
        channel.recv(buf)?;
        samples.record(now_ns().saturating_sub(number(buf)));
        received += 1;
        match buf[0] {
            TIMED => {}
            TIMED_LAST if drives => break,
            TIMED_LAST => last = true,
            kind => return Err(wrong(format!("kind {kind} in the timed phase"))),
        }
    }
    Ok(PeerResult {
        elapsed_ns: now_ns() - start,
        cpu_ns: cpu_ns() - cpu_before,
        received,
        sent,
        bytes: received * buf.len() as u64,
        samples: samples.pairs().collect(),
        ..Default::default()
    })
}
