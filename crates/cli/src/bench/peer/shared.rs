//! `bypath::channel`: what programs that are ours have instead of a socket.

use super::channel::Channel;
use super::transport::Conversation;
use super::{Line, PeerArgs, Role};
use bypath::channel::{self, DatagramReceiver, DatagramSender, Datagrams, Listener, Receiver, Sender};
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

pub fn open<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    let mut channel = match args.role {
        Role::Serve => {
            let listener = Listener::bind(&args.addr)?;
            Line::Ready(args.addr.clone()).print();
            listener.accept()?
        }
        Role::Drive => channel::Channel::connect(&args.addr, None)?,
    };
    if args.spin {
        channel.set_spin(Duration::MAX);
    }
    let (sender, receiver) = channel.split();
    talk.over(Shared { sender: Some(sender), receiver })
}

struct Shared {
    sender: Option<Sender>,
    receiver: Receiver,
}

impl Channel for Shared {
    #[inline]
    fn send(&mut self, buf: &[u8]) -> io::Result<()> {
        self.sender.as_mut().expect("open until close_sending").write_all(buf)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()> {
        self.receiver.read_exact(buf)
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.sender = None;
        Ok(())
    }

    fn expect_end(&mut self) -> io::Result<()> {
        match self.receiver.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(super::messages::wrong("more bytes than were sent".into())),
        }
    }
}

/// The same with datagrams.
pub fn open_datagrams<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    let mut channel = match args.role {
        Role::Serve => {
            let listener = Listener::bind(&args.addr)?;
            Line::Ready(args.addr.clone()).print();
            listener.accept_datagrams()?
        }
        Role::Drive => Datagrams::connect(&args.addr, None)?,
    };
    if args.spin {
        channel.set_spin(Duration::MAX);
    }
    let (sender, receiver) = channel.split();
    talk.over(Bounded { sender: Some(sender), receiver })
}

struct Bounded {
    sender: Option<DatagramSender>,
    receiver: DatagramReceiver,
}

impl Channel for Bounded {
    #[inline]
    fn send(&mut self, buf: &[u8]) -> io::Result<()> {
        self.sender.as_mut().expect("open until close_sending").send(buf)
    }

    #[inline]
    fn recv(&mut self, buf: &mut [u8]) -> io::Result<()> {
        match self.receiver.receive(buf)? {
            Some(n) if n == buf.len() => Ok(()),
            Some(n) => Err(super::messages::wrong(format!("a datagram of {n} octets, not {}", buf.len()))),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the other side ended too early")),
        }
    }

    fn close_sending(&mut self) -> io::Result<()> {
        self.sender = None;
        Ok(())
    }

    fn expect_end(&mut self) -> io::Result<()> {
        match self.receiver.receive(&mut [0])? {
            None => Ok(()),
            Some(_) => Err(super::messages::wrong("more datagrams than were sent".into())),
        }
    }
}
