//! Datagrams that the kernel sends, read from the device: one by one, and in super-packets.

use super::stage::{self, FILLING, OURS, Socket, figure, number, thread_ns};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::tun::{Device, Mode, Offloads};
use bypath_sys::clock::monotonic_ns;
use nix::sys::socket::{setsockopt, sockopt};

/// One way, at one size.
pub struct Receive {
    /// Super-packets.
    pub together: bool,
    pub size: usize,
}

/// Packets that wait at once: the device's queue holds 500.
const WAITING: usize = 20;

impl Receive {
    fn of(&self, metric: &'static str, mode: Option<&'static str>) -> Figure {
        let subject = if self.together { "super" } else { "single" };
        figure("receive", subject, mode, self.size, metric)
    }
}

impl Job for Receive {
    fn title(&self) -> String {
        format!("receive {} B {}", self.size, if self.together { "super" } else { "single" })
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![
            self.of("ns_per_packet", None),
            self.of("cpu_share", Some("sender")),
            self.of("cpu_share", Some("receiver")),
            self.of("loss_ratio", None),
        ]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        // Single packets are not put together again by anybody.
        let offloads = Offloads { udp: self.together, ..Offloads::ALL };
        let device =
            Device::tun("bench%d").mtu(stage::MTU).address(stage::KERNEL, 24).offloads(offloads).open();
        let mut udp = stage::udp(device.map_err(|e| e.to_string())?, Mode::Pieces)?;
        if self.together && !udp.device().obtained().offloads.udp {
            return Err(Trouble::Skipped("this kernel grants no super-packets of UDP".into()));
        }
        let kernel = Socket::open(self.size, false)?;
        kernel.socket.connect(OURS).map_err(|e| Trouble::Failed(e.to_string()))?;
        // What the socket may have on its way, by the kernel's count.
        let _ = setsockopt(&kernel.socket, sockopt::SndBuf, &(8usize << 20));
        let allowed = nix::sys::socket::getsockopt(&kernel.socket, sockopt::SndBuf).unwrap_or(200_000);
        let packet = if self.together { (65_507 / self.size).clamp(1, 64) } else { 1 };
        if packet > 1 {
            setsockopt(&kernel.socket, sockopt::UdpGsoSegment, &(self.size as i32))
                .map_err(|e| Trouble::Skipped(format!("the kernel has no UDP_SEGMENT: {}", e.desc())))?;
        }
        let waiting = if packet > 1 { 1 } else { WAITING };
        let packets = (allowed / 2 / (4096 + 2 * self.size * packet)).clamp(1, waiting);
        let mut octets = vec![FILLING; self.size * packet];
        let (mut sent, mut good, mut wrong, mut next) = (0u64, 0u64, 0u64, 0u64);
        let (mut sending, mut sending_cpu, mut reading, mut reading_cpu) = (0u64, 0u64, 0u64, 0u64);
        let mut each = Vec::new();
        let end = monotonic_ns() + (context.seconds * 1e9) as u64;
        while monotonic_ns() < end {
            let (cpu_before, before) = (thread_ns(), monotonic_ns());
            for _ in 0..packets {
                for one in octets.chunks_exact_mut(self.size) {
                    one[..8].copy_from_slice(&sent.to_ne_bytes());
                    sent += 1;
                }
                kernel.socket.send(&octets).map_err(|e| Trouble::Failed(format!("cannot send: {e}")))?;
            }
            let (cpu_between, between) = (thread_ns(), monotonic_ns());
            let wanted = packets * packet;
            let mut count = 0;
            while count < wanted {
                let taken = udp.receive_batch(wanted - count, |d| {
                    // To look at every octet would cost more than to read them: tests do that.
                    let number = number(d.payload);
                    let sound = d.payload.len() == self.size && number.is_some_and(|n| n >= next);
                    let last = d.payload.last() == Some(&FILLING);
                    if sound && last {
                        good += 1;
                        next = number.unwrap_or(0) + 1;
                    } else {
                        wrong += 1;
                    }
                });
                match taken {
                    Ok(taken) => count += taken,
                    Err(bypath::link::Error::WouldBlock) => break,
                    Err(e) => return Err(Trouble::Failed(e.to_string())),
                }
            }
            sending += between - before;
            sending_cpu += cpu_between - cpu_before;
            let took = monotonic_ns() - between;
            each.push(took as f64 / count.max(1) as f64);
            reading += took;
            reading_cpu += thread_ns() - cpu_between;
        }
        if wrong > 0 || good == 0 {
            return Err(Trouble::Failed(format!(
                "{good} datagrams arrived as they were sent, {wrong} changed"
            )));
        }
        let loss = 1.0 - good as f64 / sent as f64;
        if loss > super::send::LOSS_LIMIT {
            return Err(Trouble::Failed(format!("{} of {sent} datagrams were lost", sent - good)));
        }
        let samples = [
            Sample::Values(each),
            Sample::Value(sending_cpu as f64 / sending.max(1) as f64),
            Sample::Value(reading_cpu as f64 / reading.max(1) as f64),
            Sample::Value(loss),
        ];
        let note =
            (self.together && packet == 1).then(|| "one datagram fills a packet: no super-packet".to_owned());
        Ok(Outcome { figures: self.figures(context).into_iter().zip(samples).collect(), note })
    }
}
