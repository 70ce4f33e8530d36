//! Sockets as they begin and end: set up, connected, given up, shut.

use crate::file::{Kind, Socket};
use crate::machine::Machine;
use crate::{address, sysctl};
use bypath_stack::linux::errno::{self as errors, Result};
use bypath_stack::tcp::State;
use std::net::SocketAddr;

impl Machine {
    /// A new socket is as the flags and the system's settings say.
    pub fn set_up(&mut self, socket: &mut Socket) {
        self.learn_routes();
        let (now, sysctls, algorithm) = (self.now(), self.flags.sysctl, self.flags.algorithm);
        let Some(mut tcp) = self.stack.tcp(socket.id) else { return };
        let mut settings = tcp.settings();
        settings.algorithm = algorithm;
        if sysctls {
            let found = sysctl::read(&mut settings);
            (socket.notsent_lowat, socket.ecn_for_callers) = (found.notsent_lowat, found.ecn_for_callers);
        }
        tcp.set_settings(now, settings);
    }

    /// To whom a send goes; a connection has its other end, whatever is said.
    pub fn destination(&mut self, fd: i32, to: Option<&[u8]>) -> Result<Option<SocketAddr>> {
        let is_udp = matches!(self.files.get(fd)?.kind, Kind::Udp);
        let Some(to) = to.filter(|_| is_udp) else { return Ok(None) };
        Ok(Some(address::read(to, self.files.socket(fd)?.v6)?))
    }

    /// One try of connect(2); EAGAIN: it has begun.
    pub fn connect(&mut self, fd: i32, to: &[u8]) -> Result<()> {
        let now = self.now();
        let socket = self.files.socket(fd)?;
        let (id, v6, began) = (socket.id, socket.v6, socket.connecting);
        if address::is_unspecified(to) {
            return self.disconnect(fd);
        }
        let Some(mut tcp) = self.stack.tcp(id) else {
            let to = address::read(to, v6)?;
            return self.stack.udp(id).ok_or(libc::EBADF)?.connect(to).map_err(errors::send);
        };
        let state = match tcp.state() {
            None => {
                tcp.connect(now, address::read(to, v6)?).map_err(errors::connect)?;
                self.files.socket(fd)?.connecting = true;
                return Err(libc::EAGAIN);
            }
            Some(state) => state,
        };
        let failed = tcp.take_error();
        match state {
            State::SynSent | State::SynReceived if began => {
                let file = self.files.get(fd)?;
                // Who does not wait is told that it goes on already; the first time, that it has begun.
                if file.nonblock { Err(libc::EALREADY) } else { Err(libc::EAGAIN) }
            }
            _ if !began => Err(libc::EISCONN),
            _ => {
                self.files.socket(fd)?.connecting = false;
                match failed {
                    Some(error) => {
                        self.renew(fd)?;
                        Err(errors::failure(error))
                    }
                    None if state == State::Closed => Err(libc::ECONNABORTED),
                    None => Ok(()),
                }
            }
        }
    }

    /// A connection is given up; the socket is as new.
    fn disconnect(&mut self, fd: i32) -> Result<()> {
        let id = self.files.socket(fd)?.id;
        match self.stack.tcp(id) {
            Some(mut tcp) => tcp.abort(),
            None => self.stack.udp(id).ok_or(libc::EBADF)?.disconnect().map_err(errors::bind)?,
        }
        if self.stack.tcp(id).is_some() { self.renew(fd) } else { Ok(()) }
    }

    /// Another socket of the stack takes the place of one whose connection is over.
    fn renew(&mut self, fd: i32) -> Result<()> {
        let now = self.now();
        let old = self.files.socket(fd)?.id;
        let Some(mut tcp) = self.stack.tcp(old) else { return Ok(()) };
        let (options, settings) = (tcp.options(), tcp.settings());
        let listened = if tcp.is_listening() { tcp.local() } else { None };
        let id = self.stack.open_tcp().map_err(|_| libc::ENFILE)?;
        if let Some(mut tcp) = self.stack.tcp(id) {
            tcp.set_options(options);
            tcp.set_settings(now, bypath_stack::tcp::Settings { mss: u16::MAX, ..settings });
        }
        self.stack.close(old);
        let socket = self.files.socket(fd)?;
        (socket.id, socket.connecting, socket.deaf) = (id, false, false);
        // It stays where it was bound, unless that is somebody else's now.
        if let (Some(local), Some(mut tcp)) = (socket.bound.or(listened), self.stack.tcp(id)) {
            let _ = tcp.bind(local);
        }
        self.kick_all(fd);
        Ok(())
    }

    pub fn shutdown(&mut self, fd: i32, how: i32) -> Result<()> {
        let id = self.files.socket(fd)?.id;
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(libc::EINVAL),
        };
        let Some(mut tcp) = self.stack.tcp(id) else { return Err(libc::ENOTCONN) };
        if tcp.is_listening() {
            // Writing means nothing to it; who does not read listens no more.
            return if reads { self.renew(fd) } else { Ok(()) };
        }
        match tcp.state() {
            // That it does not read is noted all the same.
            None | Some(State::Closed | State::TimeWait) => {
                self.files.socket(fd)?.deaf |= reads;
                self.kick_all(fd);
                return Err(libc::ENOTCONN);
            }
            Some(State::SynSent) => return self.disconnect(fd),
            _ => {}
        }
        if writes {
            let _ = tcp.finish();
        }
        let socket = self.files.socket(fd)?;
        socket.deaf |= reads;
        if let (true, Some(mut tcp)) = (socket.deaf, self.stack.tcp(id))
            && tcp.is_shut()
        {
            tcp.stop_reading();
        }
        self.kick_all(fd);
        Ok(())
    }
}
