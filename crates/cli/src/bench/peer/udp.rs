//! Datagrams between two programs: a connected socket calls, one that is not answers whoever has sent last, as servers of
//! datagrams do.
//!
//! One way as fast as they go, some are lost wherever nobody reads in time: what was received is counted.

use super::channel::Channel;
use super::clock::{cpu_ns, now_ns};
use super::messages::{TIMED, TIMED_LAST, wrong};
use super::pingpong::{answer_checked, drive_checked};
use super::transport::Conversation;
use super::{Line, PeerArgs, PeerResult, Role};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Largest datagram.
pub const LARGEST: usize = 65_507;
/// How long the checked phase lasts in which both ends get to know each other.
const WARM_NS: u64 = 10_000_000;
/// Datagrams between two looks at the clock.
const CLOCK_EVERY: u64 = 256;
/// Until the last message is sent again, and after its answer until nobody answers it any more.
const AGAIN: Duration = Duration::from_millis(2);
const QUIET: Duration = Duration::from_millis(20);
/// Times that it is sent.
const TRIES: u32 = 1000;

/// One end.
struct Datagrams {
    socket: UdpSocket,
    /// Whom to answer, where the socket is not connected.
    other: Option<SocketAddr>,
    /// Last messages of the timed phase are repetitions.
    timed_is_over: bool,
}

/// Opens it and has the conversation on it.
pub fn open<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    talk.over(channel(args)?)
}

fn channel(args: &PeerArgs) -> io::Result<Datagrams> {
    let (socket, other) = match args.role {
        Role::Serve => {
            let socket = UdpSocket::bind(&args.addr)?;
            let own = socket.local_addr()?;
            Line::Ready(own.to_string()).print();
            // Known with the first datagram.
            (socket, Some(own))
        }
        Role::Drive => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(&args.addr)?;
            (socket, None)
        }
    };
    socket.set_nonblocking(args.spin)?;
    Ok(Datagrams { socket, other, timed_is_over: false })
}

/// Whether the call is to be made once more.
fn is_early(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Channel for Datagrams {
    #[inline]
    fn send(&mut self, buf: &[u8]) -> io::Result<()> {
        loop {
            let sent = match self.other {
                None => self.socket.send(buf),
                Some(other) => self.socket.send_to(buf, other),
            };
            match sent {
                Ok(n) if n == buf.len() => return Ok(()),
                Ok(n) => return Err(wrong(format!("{n} octets of {} were sent", buf.len()))),
                Err(e) if is_early(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()> {
        loop {
            let received = match &mut self.other {
                None => self.socket.recv(buf),
                Some(other) => self.socket.recv_from(buf).map(|(n, from)| {
                    *other = from;
                    n
                }),
            };
            match received {
                Ok(n) if n != buf.len() => {
                    return Err(wrong(format!("{n} octets came, and not {}", buf.len())));
                }
                Ok(_) if self.timed_is_over && buf[0] == TIMED_LAST => self.send(buf)?,
                Ok(_) => return Ok(()),
                Err(e) if is_early(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// There is no end of datagrams.
    fn close_sending(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn expect_end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Datagrams one way.
pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    let mut channel = channel(args)?;
    let mut buf = vec![0; args.size];
    match args.role {
        Role::Serve => {
            answer_checked(&mut channel, &mut buf)?;
            let result = receive(&mut channel, &mut buf)?;
            answer_checked(&mut channel, &mut buf)?;
            Ok(result)
        }
        Role::Drive => {
            drive_checked(&mut channel, &mut buf, WARM_NS)?;
            let result = send(&mut channel, &mut buf, args.seconds)?;
            drive_checked(&mut channel, &mut buf, 0)?;
            Ok(result)
        }
    }
}

fn send(channel: &mut Datagrams, buf: &mut [u8], seconds: f64) -> io::Result<PeerResult> {
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let until = start + (seconds * 1e9) as u64;
    let mut sent = 0;
    buf[0] = TIMED;
    while now_ns() < until {
        for _ in 0..CLOCK_EVERY {
            channel.send(buf)?;
        }
        sent += CLOCK_EVERY;
    }
    let (elapsed_ns, cpu_ns) = (now_ns() - start, cpu_ns() - cpu_before);
    buf[0] = TIMED_LAST;
    end(channel, buf)?;
    Ok(PeerResult { elapsed_ns, cpu_ns, sent, ..Default::default() })
}

/// Sends the last message until it is answered, and takes all answers.
fn end(channel: &mut Datagrams, buf: &mut [u8]) -> io::Result<()> {
    channel.socket.set_nonblocking(false)?;
    channel.socket.set_read_timeout(Some(AGAIN))?;
    let answered = (0..TRIES).any(|_| channel.send(buf).is_ok() && channel.socket.recv(buf).is_ok());
    if !answered {
        return Err(wrong("the last message was not answered".into()));
    }
    channel.socket.set_read_timeout(Some(QUIET))?;
    while channel.socket.recv(buf).is_ok() {}
    channel.socket.set_read_timeout(None)
}

fn receive(channel: &mut Datagrams, buf: &mut [u8]) -> io::Result<PeerResult> {
    channel.recv(buf)?;
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let mut received = 0u64;
    while buf[0] == TIMED {
        received += 1;
        channel.recv(buf)?;
    }
    let (elapsed_ns, cpu_ns) = (now_ns() - start, cpu_ns() - cpu_before);
    if buf[0] != TIMED_LAST {
        return Err(wrong(format!("kind {} in the timed phase", buf[0])));
    }
    channel.send(buf)?;
    channel.timed_is_over = true;
    let bytes = received * buf.len() as u64;
    Ok(PeerResult { elapsed_ns, cpu_ns, received, bytes, ..Default::default() })
}
