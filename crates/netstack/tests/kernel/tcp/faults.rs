//! Links that lose, double, reorder, delay and garble what the stack and the kernel say to each other.

use super::{Net, ROLES, Role, Wire, counted, exchange_all, pair_with};
use crate::isolated;
use bypath_link::fault::Faults;
use bypath_link::tun::Offloads;
use bypath_stack::config::Config;
use bypath_stack::tcp::Settings;
use bypath_stack::tcp::congestion::Algorithm;
use nix::sys::socket::{setsockopt, sockopt};

const MS: u64 = 1_000_000;
const OCTETS: usize = 100_000;

/// Connections of every kind at once over a link with these faults in both directions: every octet arrives, and no more than this
/// part of the octets is sent twice, and what is sent to find out what was lost at ends.
fn survives(wire: Wire, faults: Faults, part: f64) {
    let Some(net) = Net::open(wire, 1500, Some([faults; 2]), Config::default()) else { return };
    let open = &|algorithm: &str, role: Role| {
        let ours = if role.v6 { Algorithm::Cubic } else { Algorithm::Reno };
        let wishes = |settings: &mut Settings| settings.algorithm = ours;
        let pair = pair_with(net.host(), role, wishes, |socket| {
            if let Err(e) = setsockopt(socket, sockopt::TcpCongestion, &algorithm.into()) {
                println!("the kernel has no {algorithm} here: {e}");
            }
        });
        (format!("{algorithm} {role:?}"), pair)
    };
    // All at once: a SYN that is lost costs a second.
    let pairs: Vec<_> = std::thread::scope(|scope| {
        let kinds =
            ["cubic", "reno", "bbr"].into_iter().flat_map(|algorithm| ROLES.map(|role| (algorithm, role)));
        let opening: Vec<_> =
            kinds.map(|(algorithm, role)| scope.spawn(move || open(algorithm, role))).collect();
        opening.into_iter().map(|one| one.join().expect("a connection")).collect()
    });
    exchange_all(&pairs, OCTETS);
    let mut most = 0;
    for (name, (own, _)) in &pairs {
        let again = own.statistics().expect("a connection").octets_again;
        most = most.max(again);
        assert!(again as f64 <= OCTETS as f64 * part + 40_000.0, "{name}: {again} of {OCTETS} octets again");
    }
    let (sent, again) = (counted("OutSegs"), counted("RetransSegs"));
    println!("{faults:?}: at most {most} octets again; of the kernel {again} of {sent} segments");
}

isolated! {
    fn every_octet_arrives_though_frames_are_lost() {
        survives(Wire::Tap(Offloads::NONE), Faults { loss: 0.02, ..Faults::NONE }, 0.2);
        survives(Wire::Veth { offload: false }, Faults { loss: 0.05, delay: 3 * MS, ..Faults::NONE }, 0.3);
        // Whole super-frames.
        survives(Wire::Tap(Offloads::ALL), Faults { loss: 0.03, ..Faults::NONE }, 1.5);
    }
}

isolated! {
    fn every_octet_arrives_once_though_frames_come_twice_or_garbled() {
        survives(Wire::Tap(Offloads::NONE), Faults { duplication: 0.1, ..Faults::NONE }, 0.1);
        survives(Wire::Tap(Offloads::NONE), Faults { corruption: 0.02, ..Faults::NONE }, 0.2);
        survives(Wire::Veth { offload: true }, Faults { duplication: 0.05, ..Faults::NONE }, 0.1);
    }
}

isolated! {
    fn every_octet_arrives_in_order_though_frames_overtake_each_other() {
        let overtaken = Faults { reordering: 0.1, overtaken_by: 5, overtaken_within: 5 * MS, delay: 2 * MS, ..Faults::NONE };
        survives(Wire::Tap(Offloads::NONE), overtaken, 0.1);
        let all = Faults { loss: 0.01, duplication: 0.01, corruption: 0.01, jitter: 4 * MS, delay: 4 * MS, ..overtaken };
        survives(Wire::Veth { offload: false }, all, 0.6);
    }
}

isolated! {
    fn a_narrow_link_with_a_short_queue_is_shared() {
        let narrow = Faults { rate: Some(200_000_000), queue: 50, delay: MS, ..Faults::NONE };
        survives(Wire::Tap(Offloads::NONE), narrow, 0.5);
    }
}
