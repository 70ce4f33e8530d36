//! The DHCP client as a function of octets: each piece of an input is an octet and a message that a server sends.

use bypath_netstack::dhcp::{Client, Settings};
use bypath_sim::fuzz::pieces;
use bypath_stack::time::Instant;
use std::time::Duration;

const HARDWARE: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Messages that a client sends at one time at most: a renewal or a request, and an older lease's last word.
const AT_ONCE: usize = 16;

/// Gives the messages to a client, of which each answers its last question. The octet in front says how much time goes by first.
pub fn dhcp(input: &[u8]) {
    let settings =
        Settings { hardware: HARDWARE, identifier: None, host_name: Some("fuzz".into()), address: None };
    let mut client = Client::new(Instant::ZERO, settings, 1);
    let (mut now, mut transaction) = (Instant::ZERO, [0; 4]);
    says(&mut client, now, &mut transaction);
    for piece in pieces(input) {
        let Some((&wait, message)) = piece.split_first() else { continue };
        // From nothing to nine hours, as the timers come.
        let end = now + Duration::from_secs(if wait < 128 { 0 } else { 1 << ((wait & 127) >> 3) });
        for _ in 0..1000 {
            let Some(due) = client.poll_timeout().filter(|due| *due <= end) else { break };
            now = now.max(due);
            says(&mut client, now, &mut transaction);
        }
        now = now.max(end);
        let mut message = message.to_vec();
        if message.len() >= 240 {
            message[0] = 2;
            message[2] = 6;
            message[4..8].copy_from_slice(&transaction);
            message[28..34].copy_from_slice(&HARDWARE);
            message[236..240].copy_from_slice(&[99, 130, 83, 99]);
        }
        client.handle(now, &message);
        if let Some(lease) = client.lease() {
            let (t1, t2, end) = (lease.renews, lease.rebinds, lease.expires);
            assert!(t1 <= t2 && t2 <= end, "{lease:?}");
            assert!((1..=32).contains(&lease.prefix_len) && !lease.address.is_unspecified(), "{lease:?}");
            assert!(lease.routes.iter().all(|route| route.prefix_len <= 32), "{lease:?}");
        }
        if wait & 7 == 7 {
            client.decline(now);
        }
        says(&mut client, now, &mut transaction);
        while client.poll_event().is_some() {}
    }
}

/// What a client says by now: it ends, and what is due then is later.
fn says(client: &mut Client, now: Instant, transaction: &mut [u8; 4]) {
    let mut said = 0;
    while let Some(message) = client.poll_transmit(now) {
        transaction.copy_from_slice(&message.payload[4..8]);
        said += 1;
        assert!(said <= AT_ONCE, "it never ends");
    }
    assert!(client.poll_timeout().is_none_or(|due| due > now), "a timer is stuck");
}
