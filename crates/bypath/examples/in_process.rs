//! How long one octet takes to a server that sends it back, and the way back: a connection whose frames are moved by the thread that
//! waits for them. No other thread, and no sleep, is between the program and the link.
//!
//! ```sh
//! unshare --user --net --map-root-user sh          # a network of one's own, where devices may be made
//! in_process packet:eth0 192.0.2.77/24 192.0.2.1:7 1000000
//! ```

use bypath::netstack::{Setup, TcpStream};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Longest wait for addresses, the connection, and an answer.
const LONGEST: Duration = Duration::from_secs(10);

fn main() {
    if let Err(error) = run() {
        eprintln!("in_process: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [link, address, server, count] = &arguments[..] else {
        return Err("usage: in_process LINK ADDRESS/PREFIX SERVER:PORT COUNT".into());
    };
    let host = Setup::on(link.parse()?).address(address.parse()?).spin().open()?.in_process(LONGEST)?;
    let mut stream = TcpStream::connect_timeout(&host, server.parse()?, LONGEST)?;
    stream.set_nodelay(true)?;
    stream.set_timeout(Some(LONGEST));
    let mut took: Vec<Duration> = Vec::with_capacity(count.parse()?);
    while took.len() < took.capacity() {
        let asked = Instant::now();
        stream.write_all(b"?")?;
        // It looks at the link until the answer is there. With `set_nonblocking` it would look once: for who has other things to do, too.
        stream.read_exact(&mut [0])?;
        took.push(asked.elapsed());
    }
    took.sort_unstable();
    let share = |percent: usize| took.get((took.len() - 1) * percent / 100).copied().unwrap_or_default();
    println!("{} round trips: half of them within {:?}, 99 % within {:?}", took.len(), share(50), share(99));
    // What was written is acknowledged, and the other side is told of the end.
    drop(stream);
    host.finish(Duration::from_millis(200));
    Ok(())
}
