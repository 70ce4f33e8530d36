//! Octets in and out of sockets and pipes: one try of each call. EAGAIN means that it would wait.

use crate::file::{Kind, Socket};
use crate::machine::Machine;
use bypath_stack::linux::errno::{self as errors, Result};
use bypath_stack::tcp::State;
use bypath_stack::tcp::error::{ReadError, WriteError};
use std::net::SocketAddr;

/// What a receive tells beside its octets.
#[derive(Debug, Default)]
pub struct Received {
    /// As many as were asked for at most.
    pub octets: Vec<u8>,
    /// Who sent the datagram.
    pub from: Option<SocketAddr>,
    /// Octets of the datagram, those that were cut off included.
    pub len: usize,
    /// Octets that are left (TCP_INQ).
    pub inq: Option<i32>,
}

impl Machine {
    /// How many octets a receive of at most so many waits for.
    pub fn least(&mut self, fd: i32, most: usize, flags: i32) -> Result<usize> {
        let file = self.files.get(fd)?;
        Ok(match (&file.kind, &file.socket) {
            (Kind::Tcp, Some(_)) if flags & libc::MSG_WAITALL != 0 => most,
            (Kind::Tcp, Some(socket)) => most.min(socket.least),
            _ => 0,
        })
    }

    /// Whether nothing will come behind the next so many octets of a connection.
    pub fn is_last(&mut self, fd: i32, octets: usize) -> bool {
        let Ok(&mut Socket { id, deaf, .. }) = self.files.socket(fd) else { return false };
        self.stack.tcp(id).is_some_and(|mut tcp| {
            let over = deaf || tcp.is_finished() || tcp.has_failed() || tcp.state() == Some(State::Closed);
            over && tcp.unread() <= octets
        })
    }

    /// Takes octets, as many as there are and fit.
    pub fn receive(&mut self, fd: i32, most: usize, flags: i32) -> Result<Received> {
        let file = self.files.get(fd)?;
        match (&file.kind, &file.socket) {
            (Kind::Pipe(pipe, false), _) => {
                let pipe = *pipe;
                let octets = self.files.pipes[pipe].read(most)?;
                if flags & libc::MSG_PEEK != 0 {
                    self.files.pipes[pipe].give_back(&octets);
                }
                Ok(Received { len: octets.len(), octets, ..Received::default() })
            }
            (Kind::Udp, Some(socket)) => {
                let id = socket.id;
                let mut udp = self.stack.udp(id).ok_or(libc::EBADF)?;
                let mut octets = vec![0; 65_536];
                let (len, from) = if flags & libc::MSG_PEEK != 0 {
                    let (datagram, all) = udp.peek().map_err(errors::receive)?;
                    octets[..all.len()].copy_from_slice(all);
                    (all.len(), datagram.from)
                } else {
                    let received = udp.receive(&mut octets).map_err(errors::receive)?;
                    (received.len, received.datagram.from)
                };
                octets.truncate(len.min(most));
                Ok(Received { octets, from: Some(from), len, inq: None })
            }
            (Kind::Tcp, Some(socket)) => {
                if flags & libc::MSG_ERRQUEUE != 0 {
                    return Err(libc::EAGAIN);
                }
                if flags & libc::MSG_OOB != 0 {
                    return Err(libc::EINVAL);
                }
                let (id, deaf, inq) = (socket.id, socket.deaf, socket.inq);
                let mut tcp = self.stack.tcp(id).ok_or(libc::EBADF)?;
                if tcp.state().is_none() {
                    let ended = deaf && !tcp.is_listening();
                    return if ended { Ok(Received::default()) } else { Err(libc::ENOTCONN) };
                }
                if tcp.unread() == 0 && tcp.is_finished() {
                    // The end comes before what went wrong after it.
                    return Ok(Received { inq: inq.then_some(1), ..Received::default() });
                }
                let mut octets = vec![0; most.min(tcp.unread().max(1))];
                let peeks = flags & libc::MSG_PEEK != 0;
                let half_closed = tcp.is_finished() && !tcp.is_shut();
                let read = if peeks { tcp.peek(&mut octets) } else { tcp.read(&mut octets) };
                let n = match read {
                    Err(ReadError::Empty) if deaf => 0,
                    Err(ReadError::Failed(error)) => return Err(errors::of_connection(half_closed, error)),
                    other => other.map_err(errors::read)?,
                };
                octets.truncate(n);
                let left = (tcp.unread() as i32).max(i32::from(tcp.is_finished()));
                Ok(Received { octets, from: None, len: n, inq: inq.then_some(left) })
            }
            (Kind::Pipe(..), _) => Err(libc::EBADF),
            _ => Err(libc::EINVAL),
        }
    }

    /// Gives octets, as many as there is room for; how many.
    pub fn send(&mut self, fd: i32, octets: &[u8], flags: i32, to: Option<SocketAddr>) -> Result<usize> {
        let file = self.files.get(fd)?;
        match (&file.kind, &file.socket) {
            (Kind::Pipe(pipe, true), _) => {
                let pipe = *pipe;
                self.files.pipes[pipe].write(octets)
            }
            (Kind::Udp, Some(socket)) => {
                let id = socket.id;
                let mut udp = self.stack.udp(id).ok_or(libc::EBADF)?;
                udp.send(octets, to).map(|()| octets.len()).map_err(errors::send)
            }
            (Kind::Tcp, Some(socket)) => {
                if flags & libc::MSG_OOB != 0 {
                    return Err(libc::EOPNOTSUPP);
                }
                let (id, lowat, connecting) = (socket.id, socket.notsent_lowat, socket.connecting);
                let more = flags & libc::MSG_MORE != 0;
                if !octets.is_empty() && !self.takes(id, lowat) {
                    self.waits_for_room(fd);
                    return Err(libc::EAGAIN);
                }
                // What is beyond the bound of what was not sent waits for another call.
                let unsent = self.stack.tcp(id).and_then(|mut tcp| tcp.statistics()).map_or(0, |s| s.unsent);
                let most = lowat.map_or(usize::MAX, |lowat| (lowat as usize).saturating_sub(unsent));
                let most = if lowat.is_some() { most.max(1) } else { most };
                let now = self.now();
                let mut tcp = self.stack.tcp(id).ok_or(libc::EBADF)?;
                let half_closed = tcp.is_finished() && !tcp.is_shut();
                let open = !matches!(tcp.state(), Some(State::SynSent | State::SynReceived));
                let n = octets.len().min(if open { most } else { usize::MAX });
                let written = tcp.write_more(now, &octets[..n], more).map_err(|error| match error {
                    WriteError::Failed(error) => errors::of_connection(half_closed, error),
                    error => errors::write(error),
                });
                if written == Ok(0) && !octets.is_empty() || written == Err(libc::EAGAIN) && !connecting {
                    self.waits_for_room(fd);
                }
                if written.is_ok_and(|written| written < octets.len()) {
                    self.waits_for_room(fd);
                }
                written
            }
            (Kind::Pipe(..), _) => Err(libc::EBADF),
            _ => Err(libc::EINVAL),
        }
    }

    fn waits_for_room(&mut self, fd: i32) {
        if let Ok(socket) = self.files.socket(fd) {
            socket.waits_for_room = true;
        }
    }

    /// One try of splice(2); one end is a pipe.
    pub fn splice(&mut self, from: i32, to: i32, most: usize) -> Result<usize> {
        let pipe = |machine: &mut Machine, fd| match machine.files.get(fd)?.kind {
            Kind::Pipe(pipe, writes) => Ok::<_, i32>(Some((pipe, writes))),
            _ => Ok(None),
        };
        match (pipe(self, from)?, pipe(self, to)?) {
            (None, Some((into, true))) => {
                let room = self.files.pipes[into].room();
                if room == 0 {
                    return Err(libc::EAGAIN);
                }
                let received = self.receive(from, most.min(room), 0)?;
                self.files.pipes[into].write(&received.octets)
            }
            (Some((out, false)), _) => {
                let octets = self.files.pipes[out].read(most)?;
                let sent = self.send(to, &octets, 0, None);
                let n = *sent.as_ref().unwrap_or(&0);
                self.files.pipes[out].give_back(&octets[n..]);
                sent
            }
            _ => Err(libc::EINVAL),
        }
    }
}
