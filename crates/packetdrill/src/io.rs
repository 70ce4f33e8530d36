//! Octets in and out of sockets and pipes: one try of each call. EAGAIN means that it would wait.

use crate::file::{Kind, Socket};
use crate::machine::Machine;
use bypath_stack::linux::errno::{self as errors, Result};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_stack::tcp::{State, Statistics, UrgentError};
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
    /// It is an urgent octet, which was kept apart from the stream.
    pub urgent: bool,
}

/// Octets of Linux's longest buffer, headers left out, and of the options of a segment with timestamps.
const LONGEST_BUFFER: usize = 65_215;
const TIMESTAMPS: u32 = 12;

/// Octets that Linux puts into one buffer: whole segments, half of the widest window that the other side has offered.
fn whole_buffer(statistics: &Statistics, widest: usize) -> usize {
    // As long as windows are less than RFC 1122's MSS, they are not halved.
    let half = if widest > 536 { widest / 2 } else { widest };
    let mss =
        statistics.mss.saturating_sub(if statistics.timestamps { TIMESTAMPS } else { 0 }).max(1) as usize;
    (half.min(LONGEST_BUFFER) / mss * mss).max(mss)
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

    pub fn is_tcp(&mut self, fd: i32) -> bool {
        self.files.get(fd).is_ok_and(|file| matches!(file.kind, Kind::Tcp))
    }

    /// Octets of a connection before an urgent one that was announced.
    pub fn mark(&mut self, fd: i32) -> Option<usize> {
        let Ok(&mut Socket { id, .. }) = self.files.socket(fd) else { return None };
        self.stack.tcp(id)?.mark()
    }

    /// An urgent octet that is the next one is passed: more is to be read.
    pub fn pass_mark(&mut self, fd: i32) {
        let Ok(&mut Socket { id, .. }) = self.files.socket(fd) else { return };
        if let Some(mut tcp) = self.stack.tcp(id) {
            tcp.pass_mark();
        }
    }

    /// Takes the urgent octet of a connection (MSG_OOB). Who has no room for it has had it.
    pub fn receive_urgent(&mut self, fd: i32, most: usize, flags: i32) -> Result<Received> {
        let id = self.files.socket(fd)?.id;
        let mut tcp = self.stack.tcp(id).ok_or(libc::EINVAL)?;
        if tcp.is_listening() {
            return Err(libc::ENOTCONN);
        }
        let found = if flags & libc::MSG_PEEK != 0 { tcp.peek_urgent() } else { tcp.read_urgent() };
        match found {
            Ok(octet) => {
                let octets = vec![octet; most.min(1)];
                Ok(Received { len: octets.len(), octets, urgent: true, ..Received::default() })
            }
            Err(UrgentError::Finished) => Ok(Received::default()),
            Err(error) => Err(errors::urgent(error)),
        }
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
                Ok(Received { octets, from: Some(from), len, ..Received::default() })
            }
            (Kind::Tcp, Some(socket)) => {
                if flags & libc::MSG_ERRQUEUE != 0 {
                    return Err(libc::EAGAIN);
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
                let unread = tcp.statistics().map_or(0, |statistics| statistics.unread);
                let left = (unread as i32).max(i32::from(tcp.is_finished()));
                let inq = inq.then_some(left);
                Ok(Received { octets, len: n, inq, ..Received::default() })
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
            (Kind::Udp, Some(_)) if flags & libc::MSG_OOB != 0 => Err(libc::EOPNOTSUPP),
            (Kind::Udp, Some(socket)) => {
                let id = socket.id;
                let mut udp = self.stack.udp(id).ok_or(libc::EBADF)?;
                udp.send(octets, to).map(|()| octets.len()).map_err(errors::send)
            }
            (Kind::Tcp, Some(socket)) => {
                let (id, lowat, connecting) = (socket.id, socket.notsent_lowat, socket.connecting);
                let more = flags & libc::MSG_MORE != 0;
                let urgent = flags & libc::MSG_OOB != 0;
                self.learn_routes();
                let written = match lowat {
                    Some(lowat) if !urgent => self.write_below(fd, octets, more, lowat as usize),
                    _ => self.write(id, octets, more, urgent),
                };
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

    fn write(&mut self, id: SocketId, octets: &[u8], more: bool, urgent: bool) -> Result<usize> {
        let now = self.now();
        let mut tcp = self.stack.tcp(id).ok_or(libc::EBADF)?;
        let half_closed = tcp.is_finished() && !tcp.is_shut();
        let written = if urgent { tcp.write_urgent(octets, more) } else { tcp.write_more(now, octets, more) };
        written.map_err(|error| match error {
            WriteError::Failed(error) => errors::of_connection(half_closed, error),
            error => errors::write(error),
        })
    }

    /// With TCP_NOTSENT_LOWAT, as Linux does it: octets are put into buffers, of which each is sent, as far as it can be, when it is
    /// full; the last one that was not sent in full takes more of them; and another one is there only while less than that was not
    /// sent.
    fn write_below(&mut self, fd: i32, octets: &[u8], more: bool, lowat: usize) -> Result<usize> {
        let mut written = 0;
        loop {
            let id = self.files.socket(fd)?.id;
            let statistics = self.stack.tcp(id).and_then(|mut tcp| tcp.statistics());
            let opens = |s: &Statistics| matches!(s.state, State::SynSent | State::SynReceived);
            let Some(statistics) = statistics.filter(|s| !opens(s)) else {
                return self.write(id, octets, more, false);
            };
            let socket = self.files.socket(fd)?;
            socket.widest = socket.widest.max(statistics.snd_wnd);
            let whole = whole_buffer(&statistics, socket.widest as usize);
            let mut last = socket.last_buffer.min(statistics.unsent);
            if last == 0 || last >= whole {
                if statistics.unsent >= lowat && !octets.is_empty() {
                    break;
                }
                last = 0;
            }
            let n = (octets.len() - written).min(whole - last);
            let more_of_it = match self.write(id, &octets[written..written + n], more, false) {
                Err(error) if written == 0 => return Err(error),
                more => more.unwrap_or(0),
            };
            self.files.socket(fd)?.last_buffer = last + more_of_it;
            written += more_of_it;
            if more_of_it < n || written == octets.len() {
                return Ok(written);
            }
            self.run();
        }
        if written > 0 { Ok(written) } else { Err(libc::EAGAIN) }
    }

    /// What is spliced ends at an urgent octet, be it in line: nothing comes from there on, until a read has passed it.
    fn splice_at_mark(&mut self, from: i32) -> Result<usize> {
        let file = self.files.get(from)?;
        let nonblock = file.nonblock;
        let Some(&Socket { id, deaf, .. }) = file.socket.as_ref() else { return Err(libc::EINVAL) };
        let mut tcp = self.stack.tcp(id).ok_or(libc::EBADF)?;
        if tcp.is_finished() || deaf {
            return Ok(0);
        }
        if let Some(error) = tcp.take_error() {
            return Err(errors::failure(error));
        }
        if tcp.state() == Some(State::Closed) {
            return Err(libc::ENOTCONN);
        }
        let waits = nonblock || tcp.statistics().is_none_or(|statistics| statistics.unread == 0);
        if waits { Err(libc::EAGAIN) } else { Ok(0) }
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
                if self.mark(from) == Some(0) {
                    return self.splice_at_mark(from);
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
