//! Sends back what comes by TCP: a host of our own on an interface or a device.
//!
//! ```sh
//! unshare --user --net --map-root-user sh          # a network of one's own, where devices may be made
//! tcp_echo tap:bp0 10.9.0.2/24 7 10.9.0.1/24 &     # the last one is the kernel's address at the device's other end
//! nc 10.9.0.2 7
//!
//! tcp_echo packet:eth0 192.0.2.77/24 7             # an address that nobody has; needs CAP_NET_RAW
//! ```

use bypath::netstack::{Setup, TcpListener, TcpStream};
use bypath::stack::prefix::Prefix;
use std::net::Shutdown;
use std::time::Duration;

/// Longest wait for addresses.
const LONGEST: Duration = Duration::from_secs(30);

fn main() {
    if let Err(error) = run() {
        eprintln!("tcp_echo: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [link, address, port, kernel @ ..] = &arguments[..] else {
        return Err("usage: tcp_echo LINK ADDRESS/PREFIX PORT [KERNEL/PREFIX]".into());
    };
    let mut setup = Setup::on(link.parse()?).address(address.parse()?);
    for kernel in kernel {
        let kernel: Prefix = kernel.parse()?;
        setup = setup.kernel(kernel.address(), kernel.len());
    }
    let host = setup.open()?.run(LONGEST)?;
    let listener = TcpListener::bind(&host, format!("0.0.0.0:{port}").parse()?)?;
    println!("ready at {}", listener.local_addr()?);
    // A thread for each connection.
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            let octets = echo(&stream);
            match (stream.peer_addr(), octets) {
                (Ok(from), Ok(octets)) => println!("{from}: {octets} octets"),
                (_, Err(e)) | (Err(e), _) => println!("{e}"),
            }
        });
    }
    Ok(())
}

fn echo(mut stream: &TcpStream) -> std::io::Result<u64> {
    let mut reader = stream;
    let octets = std::io::copy(&mut reader, &mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    Ok(octets)
}
