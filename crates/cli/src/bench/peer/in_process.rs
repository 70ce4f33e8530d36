//! TCP of a stack in the program itself, on packet sockets: the program turns the stack in its own thread, in the calls that send
//! and receive. One that spins asks the link again and again, others sleep until a frame comes.
//!
//! This is the one place where the bench uses a stack in its own process: another interface to it is put to use here.

use super::channel::Channel;
use super::messages::wrong;
use super::transport::Conversation;
use super::{Line, PeerArgs, Role};
use bypath_netstack::{Engine, LinkName, Setup};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{AcceptError, ReadError, WriteError};
use bypath_stack::tcp::{Settings, State};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// What is still to be sent at the end may take so long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A stack on its link.
pub struct Host {
    turning: Rc<RefCell<Turning>>,
}

struct Turning {
    engine: Engine,
    spin: bool,
    nodelay: bool,
}

/// One connection.
pub struct Connection {
    turning: Rc<RefCell<Turning>>,
    id: SocketId,
}

/// Opens a connection, and has the conversation on it.
pub fn open<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    let host = Host::open(args)?;
    let connection = match args.role {
        Role::Serve => host.accept(&host.listen(args)?)?,
        Role::Drive => host.connect(args.addr.parse().map_err(io::Error::other)?)?,
    };
    talk.over(connection)
}

impl Host {
    /// On packet sockets of the interface that the arguments name.
    pub fn open(args: &PeerArgs) -> io::Result<Host> {
        let own = args.own.parse().map_err(io::Error::other)?;
        let setup = Setup::on(LinkName::Packet(args.iface.clone())).address(own);
        let setup = if args.spin { setup.spin() } else { setup };
        let engine = setup.open().map_err(io::Error::other)?.engine;
        let turning = Turning { engine, spin: args.spin, nodelay: args.nodelay };
        Ok(Host { turning: Rc::new(RefCell::new(turning)) })
    }

    /// A socket that listens where the arguments say.
    pub fn listen(&self, args: &PeerArgs) -> io::Result<SocketId> {
        let mut turning = self.turning.borrow_mut();
        let id = turning.socket()?;
        let mut tcp = turning.engine.stack().tcp(id).ok_or(ErrorKind::BrokenPipe)?;
        let address = args.addr.parse().map_err(io::Error::other)?;
        let address = tcp.bind(address).map_err(io::Error::other)?;
        tcp.listen(128).map_err(io::Error::other)?;
        Line::Ready(address.to_string()).print();
        Ok(id)
    }

    /// The next one who calls.
    pub fn accept(&self, listener: &SocketId) -> io::Result<Connection> {
        let mut turning = self.turning.borrow_mut();
        loop {
            let mut tcp = turning.engine.stack().tcp(*listener).ok_or(ErrorKind::BrokenPipe)?;
            match tcp.accept() {
                Ok(id) => return Ok(Connection { turning: Rc::clone(&self.turning), id }),
                Err(AcceptError::Empty) => turning.turn()?,
                Err(e) => return Err(io::Error::other(e)),
            }
        }
    }

    /// Calls.
    pub fn connect(&self, to: SocketAddr) -> io::Result<Connection> {
        let mut turning = self.turning.borrow_mut();
        let id = turning.socket()?;
        let mut tcp = turning.engine.stack().tcp(id).ok_or(ErrorKind::BrokenPipe)?;
        tcp.connect(Engine::now(), to).map_err(io::Error::other)?;
        turning.engine.flush().map_err(io::Error::other)?;
        loop {
            let mut tcp = turning.engine.stack().tcp(id).ok_or(ErrorKind::BrokenPipe)?;
            if let Some(failure) = tcp.take_error() {
                return Err(io::Error::other(failure));
            }
            match tcp.state() {
                Some(State::SynSent | State::SynReceived) => turning.turn()?,
                _ => return Ok(Connection { turning: Rc::clone(&self.turning), id }),
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.turning.borrow_mut().engine.finish(LAST_WORDS);
    }
}

impl Turning {
    fn socket(&mut self) -> io::Result<SocketId> {
        let nodelay = self.nodelay;
        let stack = self.engine.stack();
        let id = stack.open_tcp().map_err(io::Error::other)?;
        let mut tcp = stack.tcp(id).ok_or(ErrorKind::BrokenPipe)?;
        let settings = tcp.settings();
        tcp.set_settings(Engine::now(), Settings { nodelay, ..settings });
        Ok(id)
    }

    /// Frames move both ways; if none do, it waits. News of sockets are not looked at: the one that is meant is asked.
    #[inline]
    fn turn(&mut self) -> io::Result<()> {
        let moved = self.engine.turn().map_err(io::Error::other)?;
        while self.engine.poll_event().is_some() {}
        if !moved && !self.spin {
            self.engine.wait(None);
        }
        Ok(())
    }
}

impl Channel for Connection {
    #[inline]
    fn send(&mut self, mut buf: &[u8]) -> io::Result<()> {
        let mut turning = self.turning.borrow_mut();
        while !buf.is_empty() {
            let mut tcp = turning.engine.stack().tcp(self.id).ok_or(ErrorKind::BrokenPipe)?;
            match tcp.write(buf) {
                Ok(n) => {
                    buf = &buf[n..];
                    turning.engine.flush().map_err(io::Error::other)?;
                }
                Err(WriteError::Full) => turning.turn()?,
                Err(e) => return Err(io::Error::other(e)),
            }
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.read(buf)? {
                0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the other side ended too early")),
                n => buf = &mut buf[n..],
            }
        }
        Ok(())
    }

    fn close_sending(&mut self) -> io::Result<()> {
        let mut turning = self.turning.borrow_mut();
        let mut tcp = turning.engine.stack().tcp(self.id).ok_or(ErrorKind::BrokenPipe)?;
        tcp.finish().map_err(io::Error::other)?;
        turning.engine.flush().map_err(io::Error::other)
    }

    fn expect_end(&mut self) -> io::Result<()> {
        match self.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(wrong("more bytes than were sent".into())),
        }
    }
}

impl Connection {
    #[inline]
    fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let mut turning = self.turning.borrow_mut();
        loop {
            let mut tcp = turning.engine.stack().tcp(self.id).ok_or(ErrorKind::BrokenPipe)?;
            match tcp.read(buf) {
                Ok(n) => return Ok(n),
                Err(ReadError::Empty) => turning.turn()?,
                Err(e) => return Err(io::Error::other(e)),
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut turning = self.turning.borrow_mut();
        turning.engine.stack().close(self.id);
        // A link that is gone is told by the next call.
        let _ = turning.engine.flush();
    }
}
