//! The DHCP client is given messages of servers, and for a short while what mutations make of them.

mod dhcp;

use bypath_sim::fuzz::{Drive, drive, input};
use std::time::{Duration, Instant};

/// Time for it; BYPATH_FUZZ_SECONDS says otherwise.
const SECONDS: u64 = 2;
const ROUNDS: u64 = 100_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A message with these options, behind the octet of its time.
fn message(wait: u8, address: [u8; 4], options: &[&[u8]]) -> Vec<u8> {
    let mut message = vec![0; 1 + 240];
    message[0] = wait;
    message[1 + 16..1 + 20].copy_from_slice(&address);
    message.extend(options.concat());
    message.push(255);
    message
}

fn corpus() -> Vec<Vec<u8>> {
    const ADDRESS: [u8; 4] = [10, 0, 0, 7];
    let (server, time, mask): (&[u8], &[u8], &[u8]) =
        (&[54, 4, 10, 0, 0, 1], &[51, 4, 0, 0, 14, 16], &[1, 4, 255, 255, 255, 0]);
    let (offer, ack, nak): (&[u8], &[u8], &[u8]) = (&[53, 1, 2], &[53, 1, 5], &[53, 1, 6]);
    let ask = message(0, ADDRESS, &[offer, server, time, mask]);
    let grant = message(
        0,
        ADDRESS,
        &[ack, server, time, mask, &[3, 4, 10, 0, 0, 1], &[6, 8, 1, 1, 1, 1, 8, 8, 8, 8]],
    );
    let routes =
        message(0, ADDRESS, &[ack, server, time, &[121, 12, 0, 10, 0, 0, 1, 16, 172, 16, 10, 0, 0, 2]]);
    let names = message(0, ADDRESS, &[ack, server, time, &[15, 3, b'a', b'.', b'b'], &[26, 2, 5, 0]]);
    let split = message(0, ADDRESS, &[ack, server, time, &[121, 2, 0, 10], &[121, 3, 0, 0, 1]]);
    let short = message(
        0,
        ADDRESS,
        &[ack, server, &[51, 4, 0, 0, 0, 1], &[58, 4, 0, 0, 0, 0], &[59, 4, 255, 255, 255, 255]],
    );
    let ever = message(0, ADDRESS, &[ack, server, &[51, 4, 255, 255, 255, 255]]);
    let later = message(0x80 | 11 << 3, ADDRESS, &[ack, server, time, mask]);
    let no = message(0, [0; 4], &[nak, server]);
    let no_later = message(0x80 | 11 << 3, [0; 4], &[nak, server]);
    let nobody = message(0, [0; 4], &[offer, server, time]);
    let mut inputs = vec![Vec::new(), input([&nobody[..], &ask, &no, &ask, &grant])];
    for answer in [&grant, &routes, &names, &split, &short, &ever] {
        inputs.push(input([&ask[..], answer]));
        inputs.push(input([&ask[..], answer, &later, &no_later]));
    }
    inputs
}

#[test]
fn whatever_a_server_says_the_client_goes_on() {
    let seconds = number("BYPATH_FUZZ_SECONDS");
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(SECONDS));
    let rounds = if seconds.is_some() { u64::MAX } else { ROUNDS };
    let how = Drive { seed: number("BYPATH_FUZZ_SEED").unwrap_or(20), rounds };
    let mut last = Vec::new();
    let done = drive(
        how,
        &corpus(),
        |input| {
            last.clear();
            last.extend_from_slice(input);
            let failed = std::panic::catch_unwind(|| dhcp::dhcp(input));
            assert!(failed.is_ok(), "the client fails at {last:02x?}");
        },
        || Instant::now() < end,
    );
    println!("dhcp: {done} inputs");
}
