//! Datagrams written into the device, and received by a socket of the kernel.

use super::stage::{self, FILLING, Socket, TO, figure, thread_ns};
use super::{Case, naive};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::tun::{Mode, Udp};
use bypath_sys::clock::monotonic_ns;
use clap::ValueEnum as _;
use std::os::fd::AsFd as _;

/// How they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Assemble,
    Writev,
    NaiveWrite,
    NaiveWritev,
    Super,
}

impl Subject {
    pub const ALL: [Subject; 5] =
        [Subject::Assemble, Subject::Writev, Subject::NaiveWrite, Subject::NaiveWritev, Subject::Super];

    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Subject::Assemble => "assemble-write",
            Subject::Writev => "writev",
            Subject::NaiveWrite => "naive-write",
            Subject::NaiveWritev => "naive-writev",
            Subject::Super => "super",
        }
    }
}

/// More loss than this is no figure.
pub const LOSS_LIMIT: f64 = 0.001;
/// Octets of payload of a super-packet at most.
const SUPER: usize = 65_507;
const PAGE: usize = 4096;

/// One subject, at one size.
pub struct Send {
    pub subject: Subject,
    pub size: usize,
    /// The classic shape: twenty datagrams, and their time together.
    pub burst: bool,
}

/// Writes datagrams, numbered from `next` on.
struct Writer {
    udp: Udp,
    subject: Subject,
    size: usize,
    next: u64,
    /// Datagrams behind each other for a super-packet; otherwise one, which is used again and again.
    octets: Vec<u8>,
    /// Where they begin: on a page, in the C program as here. How fast the kernel copies 32 KB depends on that by a tenth.
    first: usize,
}

impl Writer {
    fn number(&mut self, count: usize) {
        for one in self.octets[self.first..].chunks_exact_mut(self.size).take(count) {
            one[..8].copy_from_slice(&self.next.to_ne_bytes());
            self.next += 1;
        }
    }

    /// Writes `count` of them; nanoseconds, and of the processor.
    fn timed(&mut self, count: usize) -> Result<(u64, u64), Trouble> {
        if self.subject == Subject::Super {
            self.number(count);
        }
        let (cpu, before) = (thread_ns(), monotonic_ns());
        self.write(count)?;
        let took = monotonic_ns() - before;
        Ok((took, thread_ns() - cpu))
    }

    #[inline]
    fn write(&mut self, count: usize) -> Result<(), Trouble> {
        let failed = |e: bypath::link::Error| Trouble::Failed(e.to_string());
        if self.subject == Subject::Super {
            let octets = &self.octets[self.first..][..count * self.size];
            return self.udp.send_cut(TO, octets, self.size).map(|_| ()).map_err(failed);
        }
        for _ in 0..count {
            self.number(1);
            let octets = &self.octets[self.first..];
            match self.subject {
                Subject::NaiveWrite | Subject::NaiveWritev => {
                    let write =
                        if self.subject == Subject::NaiveWrite { naive::write } else { naive::writev };
                    write(self.udp.device().as_fd(), octets)
                        .map_err(|e| Trouble::Failed(format!("cannot write: {e}")))?;
                }
                _ => self.udp.send(TO, octets).map_err(failed)?,
            }
        }
        Ok(())
    }
}

impl Send {
    const fn case(&self) -> Case {
        if self.burst { Case::Burst20 } else { Case::Send }
    }

    fn of(&self, metric: &'static str, mode: Option<&'static str>) -> Figure {
        let case = self.case().to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        figure(&case, self.subject.name(), mode, self.size, metric)
    }
}

impl Job for Send {
    fn title(&self) -> String {
        format!("{:?} {} B {}", self.case(), self.size, self.subject.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        if self.burst {
            return vec![self.of("total_us", None), self.of("loss_ratio", None)];
        }
        vec![
            self.of("ns_per_packet", None),
            self.of("cpu_share", Some("sender")),
            self.of("cpu_share", Some("receiver")),
            self.of("loss_ratio", None),
        ]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mode = match self.subject {
            Subject::Assemble => Mode::Assemble,
            Subject::Super => Mode::Super,
            _ => Mode::Pieces,
        };
        let together = self.subject == Subject::Super;
        let udp = stage::udp(stage::device()?, mode)?;
        let mut socket = Socket::open(self.size, together)?;
        // As many as one super-packet holds; one at 32 KB, which is then an ordinary packet.
        let packet = if together { (SUPER / self.size).clamp(1, 64) } else { 1 };
        // One super-packet has more datagrams than a stretch of single ones; more memory than that would measure caches.
        let stretch = if packet > 1 { packet } else { socket.stretch(self.size) };
        let len = if together { stretch } else { 1 } * self.size;
        let mut octets = vec![FILLING; len + PAGE];
        let first = octets.as_ptr().align_offset(PAGE);
        octets.truncate(first + len);
        let mut writer = Writer { udp, subject: self.subject, size: self.size, next: 0, octets, first };
        let (mut sent, mut elapsed, mut cpu, mut draining, mut draining_cpu) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let (mut totals, mut each) = (Vec::new(), Vec::new());
        let mut stretch_of = |count: usize, warm: bool| -> Result<u64, Trouble> {
            let (took, used) = writer.timed(count)?;
            let (cpu_between, between) = (thread_ns(), monotonic_ns());
            socket.drain()?;
            if !warm {
                sent += count as u64;
                elapsed += took;
                cpu += used;
                draining += monotonic_ns() - between;
                draining_cpu += thread_ns() - cpu_between;
            }
            Ok(took)
        };
        // Caches, and the kernel's pages.
        for _ in 0..20 {
            stretch_of(stretch, true)?;
        }
        let end = monotonic_ns() + (context.seconds * 1e9) as u64;
        while monotonic_ns() < end {
            if self.burst {
                let (mut left, mut total) = (stage::STRETCH, 0);
                while left > 0 {
                    let count = stretch.min(left);
                    total += stretch_of(count, false)?;
                    left -= count;
                }
                totals.push(total as f64 / 1e3);
            } else {
                each.push(stretch_of(stretch, false)? as f64 / stretch as f64);
            }
        }
        let (arrived, begun) = (socket.good, writer.next);
        if socket.wrong > 0 {
            return Err(Trouble::Failed(format!("{} datagrams arrived changed", socket.wrong)));
        }
        if sent == 0 || arrived == 0 {
            return Err(Trouble::Failed("no datagram arrived".into()));
        }
        let loss = 1.0 - arrived as f64 / begun as f64;
        if loss > LOSS_LIMIT {
            return Err(Trouble::Failed(format!("{} of {begun} datagrams were lost", begun - arrived)));
        }
        let note =
            (together && packet == 1).then(|| "one datagram fills a packet: no super-packet".to_owned());
        let samples = if self.burst {
            vec![Sample::Values(totals), Sample::Value(loss)]
        } else {
            vec![
                // What others took of the processor is in some of them.
                Sample::Values(each),
                Sample::Value(cpu as f64 / elapsed.max(1) as f64),
                Sample::Value(draining_cpu as f64 / draining.max(1) as f64),
                Sample::Value(loss),
            ]
        };
        Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note })
    }
}
