//! Whole messages over a descriptor (blocking or polled) or over the bare ring.

use std::io::{self, ErrorKind, Read, Write};

/// A two-way channel of bytes.
pub trait Channel {
    /// Sends all of `buf`.
    fn send(&mut self, buf: &[u8]) -> io::Result<()>;
    /// Fills `buf`.
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()>;
    /// Says that no more is sent.
    fn close_sending(&mut self) -> io::Result<()>;
    /// Waits for the other side's end; any further byte is an error.
    fn expect_end(&mut self) -> io::Result<()>;
    /// Congestion control in force, where there is one.
    fn cc(&self) -> Option<String> {
        None
    }
}

/// A descriptor that reads and writes, such as a socket. Blocking descriptors sleep inside the call;
/// non-blocking ones are asked again at once: that is a spinning program.
pub struct Sock<S> {
    pub socket: S,
    pub close: fn(&S) -> io::Result<()>,
    pub cc: Option<String>,
}

impl<S> Channel for Sock<S>
where
    for<'a> &'a S: Read + Write,
{
    #[inline]
    fn send(&mut self, buf: &[u8]) -> io::Result<()> {
        send_all(&mut &self.socket, buf)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()> {
        recv_all(&mut &self.socket, buf)
    }

    fn close_sending(&mut self) -> io::Result<()> {
        (self.close)(&self.socket)
    }

    fn expect_end(&mut self) -> io::Result<()> {
        end_of(&mut &self.socket)
    }

    fn cc(&self) -> Option<String> {
        self.cc.clone()
    }
}

/// Two pipes.
pub struct Pipes {
    pub rx: std::fs::File,
    pub tx: Option<std::fs::File>,
}

impl Channel for Pipes {
    #[inline]
    fn send(&mut self, buf: &[u8]) -> io::Result<()> {
        send_all(self.tx.as_mut().expect("open until close_sending"), buf)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()> {
        recv_all(&mut self.rx, buf)
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.tx = None;
        Ok(())
    }

    fn expect_end(&mut self) -> io::Result<()> {
        end_of(&mut self.rx)
    }
}

#[inline]
fn send_all(w: &mut impl Write, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match w.write(buf) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => buf = &buf[n..],
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[inline]
fn recv_all(r: &mut impl Read, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match r.read(buf) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side ended too early")),
            Ok(n) => buf = &mut buf[n..],
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn end_of(r: &mut impl Read) -> io::Result<()> {
    let mut byte = [0];
    loop {
        match r.read(&mut byte) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(super::messages::wrong("more bytes than were sent".into())),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
}
