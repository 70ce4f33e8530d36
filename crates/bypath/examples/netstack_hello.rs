//! A host of our own says hello to the kernel, by a TAP device between them.
//!
//! In a network of its own, without root:
//!
//!     unshare --user --net --map-root-user target/debug/examples/netstack_hello
//!
//! With a link and an address it is a host on an interface instead, and sends back what comes to its port 7:
//!
//!     netstack_hello packet:eth0 192.0.2.77/24        # an address that nobody has; needs CAP_NET_RAW
//!     netstack_hello packet:eth0 dhcp

use bypath::netstack::{Setup, UdpSocket};
use std::time::Duration;

/// Longest wait for addresses: a DHCP server may take some seconds.
const LONGEST: Duration = Duration::from_secs(30);

fn main() {
    if let Err(error) = run() {
        eprintln!("netstack_hello: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => hello(),
        [link, address] => echo(link, address),
        _ => Err("usage: netstack_hello [LINK ADDRESS/PREFIX|dhcp]".into()),
    }
}

fn hello() -> Result<(), Box<dyn std::error::Error>> {
    let setup = Setup::on("tap:bp%d".parse()?).kernel("10.9.0.1".parse()?, 24);
    let opened = setup.address("10.9.0.2/24".parse()?).open()?;
    println!("{}: the kernel is 10.9.0.1, we are 10.9.0.2", opened.name);
    let host = opened.run(LONGEST)?;

    // Calls and errors are those of the standard library's sockets.
    let ours = UdpSocket::bind(&host, "10.9.0.2:7".parse()?)?;
    let kernels = std::net::UdpSocket::bind("10.9.0.1:0")?;
    ours.set_timeout(Some(Duration::from_secs(5)));
    kernels.set_read_timeout(Some(Duration::from_secs(5)))?;

    let mut buffer = [0; 1500];
    kernels.send_to(b"hello", "10.9.0.2:7")?;
    let (len, from) = ours.recv_from(&mut buffer)?;
    println!("{} says {}", from.ip(), String::from_utf8_lossy(&buffer[..len]));
    ours.send_to(b"hello yourself", from)?;
    let (len, from) = kernels.recv_from(&mut buffer)?;
    println!("{} says {}", from.ip(), String::from_utf8_lossy(&buffer[..len]));

    // Everything is counted.
    let counters = host.with(|engine| *engine.stack().counters());
    println!("{} datagrams received, {} sent", counters.udp_delivered, counters.udp_sent);
    Ok(())
}

fn echo(link: &str, address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let setup = Setup::on(link.parse()?);
    let setup = if address == "dhcp" { setup.dhcp(None) } else { setup.address(address.parse()?) };
    let opened = setup.open()?;
    let (name, iface) = (opened.name.clone(), opened.iface);
    let host = opened.run(LONGEST)?;
    for address in host.with(|engine| engine.stack().addresses(iface).to_vec()) {
        println!("{name}: {}, port 7", address.prefix);
    }
    let socket = UdpSocket::bind(&host, "0.0.0.0:7".parse()?)?;
    let mut buffer = [0; 65_535];
    loop {
        let (len, from) = socket.recv_from(&mut buffer)?;
        socket.send_to(&buffer[..len], from)?;
    }
}
