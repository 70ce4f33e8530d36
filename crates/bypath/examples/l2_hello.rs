//! Two programs say hello to each other in raw Ethernet frames, on VLAN 10 with the highest priority.
//!
//! On one host, in a network of its own, without root:
//!
//!     unshare --user --net --map-root-user sh -c '
//!         ip link add left type veth peer name right; ip link set left up; ip link set right up
//!         target/debug/examples/l2_hello right & target/debug/examples/l2_hello left "hello there"; wait'
//!
//! With one argument it waits for a frame and answers it, with two it sends one and waits for the answer.

use bypath::l2::{self, MacAddr};
use std::time::Duration;

fn main() {
    if let Err(error) = run() {
        eprintln!("l2_hello: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let Some(interface) = arguments.next() else {
        println!("usage: l2_hello INTERFACE [TEXT]; the interfaces here:");
        for i in l2::interfaces()? {
            println!(
                "{:>3} {:15} {} mtu {} {}",
                i.index,
                i.name,
                i.mac,
                i.mtu,
                if i.up { "up" } else { "down" }
            );
        }
        return Ok(());
    };
    let mut socket = l2::Socket::builder(&interface)
        .ethertype(l2::ETHERTYPE_HYBRID)
        .vlan(l2::DEFAULT_VLAN, l2::DEFAULT_PRIORITY)
        .timeout(Duration::from_secs(5))
        .open()?;
    let mut buffer = [0; 1500];
    match arguments.next() {
        Some(text) => {
            // Nobody may listen yet: ask again until somebody answers.
            socket.set_timeout(Some(Duration::from_millis(100)));
            for _ in 0..50 {
                send_text(&mut socket, MacAddr::BROADCAST, &text)?;
                match socket.receive(&mut buffer) {
                    Ok(answer) => {
                        show(&answer, &buffer);
                        return Ok(());
                    }
                    Err(l2::Error::TimedOut { .. }) => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Err("nobody answered".into())
        }
        None => {
            let question = socket.receive(&mut buffer)?;
            show(&question, &buffer);
            let text = format!("I am {}", socket.mac());
            Ok(send_text(&mut socket, question.source, &text)?)
        }
    }
}

/// Short frames are padded, so the text carries its length.
fn send_text(socket: &mut l2::Socket, to: MacAddr, text: &str) -> l2::Result<()> {
    let mut payload = (text.len() as u16).to_be_bytes().to_vec();
    payload.extend_from_slice(text.as_bytes());
    socket.send(to, &payload)
}

fn show(frame: &l2::Received, buffer: &[u8]) {
    let len = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
    let text = buffer.get(2..2 + len).unwrap_or(&buffer[2..frame.len]);
    let tag = frame.vlan.map_or(String::from("no VLAN"), |t| format!("VLAN {} priority {}", t.vid, t.pcp));
    println!("{} on {tag}: {}", frame.source, String::from_utf8_lossy(text));
}
