//! `bypath::channel`: what programs that are ours have instead of a socket.

use super::channel::Channel;
use super::transport::Conversation;
use super::{Line, PeerArgs, Role};
use bypath::channel::{self, Listener, Receiver, Sender};
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
