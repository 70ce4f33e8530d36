//! What is demanded of the figures: ratios within one run, and two figures of the library alone.

use super::order::Carrier;
use super::throughput::LOSS_LIMIT;
use crate::bench::record::{Figure, Record};
use crate::bench::table::{Check, Find, human, ratio};

/// Raw subjects.
pub const RAW: [Carrier; 3] = [Carrier::RawPlain, Carrier::RawRing, Carrier::Xdp];

/// All targets, with what was measured.
pub fn check(records: &[Record]) -> Vec<Check> {
    let find = Find(records);
    let mut checks = Vec::new();
    for (size, limit) in [(50, 2.8), (1400, 2.6), (8000, 2.3)] {
        let what = format!("received, best raw mode, {size} B, lo");
        let target = format!(">= {limit} x udp-sendto");
        let raw = best(find, "lo", size);
        let udp = received(find, "lo", Carrier::UdpSendto, size);
        let ratio = ratio(raw.map(|(_, v)| v), udp);
        let text = ratio.zip(raw).map(|(r, (carrier, _))| {
            // Beside it, not demanded.
            let veth = super::tables::over_udp(find, "veth", size)
                .map_or_else(String::new, |v| format!("; veth: {v}"));
            format!("{r:.2} x ({}){veth}", carrier.name())
        });
        checks.push(Check::at_least(&what, &target, ratio, limit).saying(text));
    }
    let trip = |carrier: Carrier| {
        find.median("round-trip", carrier.name(), "round_trip_ns", |f| {
            on(f, "veth") && f.mode == Some("spin") && f.size == Some(50)
        })
    };
    let fastest =
        |of: &[Carrier]| of.iter().filter_map(|c| Some((*c, trip(*c)?))).min_by(|a, b| a.1.total_cmp(&b.1));
    let (raw, udp) = (fastest(&RAW), fastest(&[Carrier::UdpSendto, Carrier::UdpConnected]));
    let quotient = ratio(raw.map(|r| r.1), udp.map(|u| u.1));
    let text = quotient
        .zip(raw.zip(udp))
        .map(|(q, (r, u))| format!("{q:.3} x ({} over {})", r.0.name(), u.0.name()));
    checks.push(
        Check::at_most("spinning round trip, 50 B, veth", "<= 0.52 x UDP, the faster of two", quotient, 0.52)
            .saying(text),
    );
    for link in ["lo", "veth"] {
        for carrier in [Carrier::RawPlain, Carrier::RawRing] {
            let cost = |mode: &'static str, metric: &'static str| {
                find.median("prototype", carrier.name(), metric, |f| {
                    on(f, link) && f.mode == Some(mode) && f.size == Some(1400)
                })
            };
            let quotient = ratio(cost("library", "cpu_ns_per_frame"), cost("c", "cpu_ns_per_frame"));
            let what = format!("CPU of both sides, {}, 1400 B, {link}", carrier.name());
            checks.push(Check::at_most(&what, "<= 1.05 x bare C", quotient, 1.05));
            if carrier == Carrier::RawRing {
                let ns = cost("library", "cpu_ns_per_frame_rx");
                let what = format!("receiving a frame of 1400 B from a ring, {link}");
                let text = ns.zip(cost("c", "cpu_ns_per_frame_rx"));
                let text = text.map(|(ns, c)| format!("{} (bare C: {})", human(ns, "ns"), human(c, "ns")));
                checks.push(Check::at_most(&what, "<= 60 ns CPU", ns, 60.0).saying(text));
            }
        }
    }
    for carrier in [Carrier::RawPlain, Carrier::RawRing] {
        let close =
            |link: &'static str| find.median("open-close", carrier.name(), "close_ns", move |f| on(f, link));
        let ns = ["lo", "veth", "peer"].into_iter().filter_map(close).reduce(f64::max);
        let what = format!("close() of {}, slowest link", carrier.name());
        checks.push(Check::at_most(&what, "<= 100 us", ns, 100_000.0).saying(ns.map(|ns| human(ns, "ns"))));
    }
    checks
}

fn on(f: &Figure, link: &str) -> bool {
    f.link.as_deref() == Some(link)
}

fn of(find: Find<'_>, link: &str, carrier: Carrier, size: u64, metric: &str) -> Option<f64> {
    find.median("throughput", carrier.name(), metric, |f| on(f, link) && f.size == Some(size))
}

/// What arrived, if next to nothing was lost and nothing changed.
pub fn received(find: Find<'_>, link: &str, carrier: Carrier, size: u64) -> Option<f64> {
    let clean = of(find, link, carrier, size, "loss_ratio")? <= LOSS_LIMIT
        && of(find, link, carrier, size, "corrupt_frames")? == 0.0;
    if clean { of(find, link, carrier, size, "received_bytes_per_s") } else { None }
}

/// The raw subject that received most.
pub fn best(find: Find<'_>, link: &str, size: u64) -> Option<(Carrier, f64)> {
    RAW.into_iter()
        .filter_map(|c| Some((c, received(find, link, c, size)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}
