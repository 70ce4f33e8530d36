//! Packets built in memory that is warm, one after the other.

use super::figure;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::wire::roce::{Bth, Envelope, Extended, Headers, Opcode, Operation, Psn, Qpn, icrc};
use bypath::wire::{IpProtocol, Ipv4Header, Ipv6Header, Network};
use bypath_sys::clock::monotonic_ns;
use std::hint::black_box;

/// Packets of one size.
pub struct Build {
    pub v6: bool,
    pub size: u32,
}

/// Packets between two looks at the clock.
const STRETCH: u64 = 256;

impl Build {
    fn subject(&self) -> &'static str {
        if self.v6 { "ipv6" } else { "ipv4" }
    }
}

impl Job for Build {
    fn title(&self) -> String {
        format!("build {} B {}", self.size, self.subject())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("build", self.subject(), None, self.size, "bytes_per_s")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let network = if self.v6 {
            Network::V6(Ipv6Header::new(1u128.into(), 2u128.into(), IpProtocol::UDP))
        } else {
            Network::V4(Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP))
        };
        let envelope = Envelope::new(network, 0xc000);
        let bth = Bth::new(Opcode::rc(Operation::SendOnly), Qpn::new(0x11), Psn::new(0));
        let mut headers = Headers { bth, extended: Extended::None };
        let payload = vec![7; self.size as usize];
        let mut buffer = vec![0; payload.len() + 100];
        let (mut packets, mut len) = (0u64, 0);
        let begun = monotonic_ns();
        let end = begun + (context.seconds * 1e9) as u64;
        let mut now = begun;
        while now < end {
            for _ in 0..STRETCH {
                headers.bth.psn = headers.bth.psn + 1;
                let made = envelope.emit(black_box(&mut buffer), &headers, black_box(&payload));
                len = black_box(made).map_err(|e| Trouble::Failed(e.to_string()))?;
            }
            packets += STRETCH;
            now = monotonic_ns();
        }
        if icrc::is_intact(&buffer[..len]) != Ok(true) {
            return Err(Trouble::Failed("the last packet has a wrong ICRC".into()));
        }
        let rate = packets as f64 * f64::from(self.size) / ((now - begun) as f64 / 1e9);
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Value(rate))).collect();
        Ok(Outcome { figures, note: None })
    }
}
