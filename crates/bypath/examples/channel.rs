//! Datagrams between two programs: `channel listen NAME` sends back what comes, `channel call NAME TEXT...` prints what comes back.

use bypath::channel::{Datagrams, Listener};
use std::io;

fn listen(name: &str) -> io::Result<()> {
    let listener = Listener::bind(name)?;
    println!("listening");
    let mut channel = listener.accept_datagrams()?;
    let mut room = [0; 1500];
    while let Some(n) = channel.receiver.receive(&mut room)? {
        channel.sender.send(&room[..n])?;
    }
    Ok(())
}

fn call(name: &str, texts: impl Iterator<Item = String>) -> io::Result<()> {
    let mut channel = Datagrams::connect(name, None)?;
    let mut room = [0; 1500];
    for text in texts {
        channel.sender.send(text.as_bytes())?;
        let n = channel.receiver.receive(&mut room)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        println!("{n} octets: {}", String::from_utf8_lossy(&room[..n]));
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("listen"), Some(name)) => listen(&name),
        (Some("call"), Some(name)) => call(&name, args),
        _ => Err(io::Error::other("usage: channel listen NAME | channel call NAME TEXT...")),
    }
}
