//! What opening and closing a socket costs, as the caller sees it.

use super::raw::{self, Use};
use super::{Control, Trouble, udp};
use crate::bench::peer::now_ns;
use crate::bench::raw::order::Carrier;
use bypath::link::packet::{Config, Mode, PacketLink};
use std::net::UdpSocket;

/// Opens and closes so many sockets, one after another; nanoseconds of each.
pub fn run(control: &Control, carrier: Carrier, count: u32) -> Result<(Vec<u64>, Vec<u64>), Trouble> {
    match carrier {
        Carrier::UdpConnected => {
            let to = udp::remote(control, control.place(9));
            each(count, || {
                let socket = UdpSocket::bind((control.ip, 0))?;
                socket.connect(to)?;
                Ok(socket)
            })
        }
        carrier if carrier.is_udp() => each(count, || Ok(UdpSocket::bind((control.ip, 0))?)),
        Carrier::Xdp => each(count, || raw::xdp(control, false).map(|(link, _)| link)),
        carrier => {
            let mut config = raw::config(control, carrier, Use::Talk);
            // As the library has it unless asked.
            let usual = Config::new("");
            (config.receive_queue, config.receive_ring) = (usual.receive_queue, usual.receive_ring);
            if carrier == Carrier::RawRing {
                config.mode = Mode::RING;
            }
            each(count, || PacketLink::open(&config).map_err(|e| raw::trouble(&e)))
        }
    }
}

fn each<S>(
    count: u32,
    mut open: impl FnMut() -> Result<S, Trouble>,
) -> Result<(Vec<u64>, Vec<u64>), Trouble> {
    let (mut opening, mut closing) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let start = now_ns();
        let socket = open()?;
        let opened = now_ns();
        drop(socket);
        closing.push(now_ns() - opened);
        opening.push(opened - start);
    }
    Ok((opening, closing))
}
