//! Fetches a file by HTTP, by hand: a host of our own on an interface or a device asks a server.
//!
//! ```sh
//! http_get packet:eth0 192.0.2.77/24 192.0.2.1:80 /index.html       # an address that nobody has; needs CAP_NET_RAW
//! http_get tap:bp0 10.9.0.2/24 10.9.0.1:8000 / 10.9.0.1/24          # the last one is the kernel's, at the device's other end
//! ```
//!
//! The head of the answer goes to standard error, the file to standard output.

use bypath::netstack::{Setup, TcpStream};
use bypath::stack::prefix::Prefix;
use std::io::{BufRead, BufReader, Write, copy, stdout};
use std::time::Duration;

/// Longest wait for addresses, a connection, and each part of the answer.
const LONGEST: Duration = Duration::from_secs(30);

fn main() {
    if let Err(error) = run() {
        eprintln!("http_get: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [link, address, server, path, kernel @ ..] = &arguments[..] else {
        return Err("usage: http_get LINK ADDRESS/PREFIX SERVER:PORT PATH [KERNEL/PREFIX]".into());
    };
    let mut setup = Setup::on(link.parse()?).address(address.parse()?);
    for kernel in kernel {
        let kernel: Prefix = kernel.parse()?;
        setup = setup.kernel(kernel.address(), kernel.len());
    }
    let host = setup.open()?.run(LONGEST)?;

    let stream = TcpStream::connect_timeout(&host, server.parse()?, LONGEST)?;
    stream.set_read_timeout(Some(LONGEST))?;
    write!(&stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;

    // The head ends with an empty line; what follows is the file, up to the end of the connection.
    let mut answer = BufReader::new(&stream);
    loop {
        let mut line = String::new();
        if answer.read_line(&mut line)? == 0 {
            return Err("this is no answer".into());
        }
        if line.trim_end().is_empty() {
            break;
        }
        eprint!("{line}");
    }
    let octets = copy(&mut answer, &mut stdout().lock())?;
    let how = stream.statistics()?;
    let trip = how.srtt.map_or("an unknown time".to_owned(), |time| format!("{time:?}"));
    eprintln!("{octets} octets, a round trip of {trip}, {} sent again", how.octets_again);
    Ok(())
}
