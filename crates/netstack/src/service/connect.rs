//! connect(2): while a connection comes up, the program's end is full, so that nobody may write and who waits for room waits. That of a
//! listening socket is full as long as it listens.

use super::limits::Counted;
use super::slab::Key;
use super::socket::{Hub, Phase, inward};
use crate::Engine;
use bypath_shm::service::{Address, SEND_BUFFER};
use bypath_stack::Stack;
use bypath_stack::linux::errno::{self, Errno, Result};
use bypath_stack::tcp::State;
use bypath_stack::tcp::error::ConnectError;
use bypath_sys::pair;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Octets that fill an end at most. Of one with the smallest buffer two long pieces take it all, which is one call where octets one by
/// one would be six.
const MOST: usize = 16 << 10;
static FILLING: [u8; MOST] = [0; MOST];
/// Octets that are taken out at once: all of them, as a rule.
const PIECE: usize = 8 << 10;

/// Fills a program's end, whose buffer is the smallest since it was made. How many octets it took.
pub fn fill(program: BorrowedFd<'_>) -> usize {
    let mut filled = 0;
    while let Some(rest) = FILLING.get(filled..).filter(|rest| !rest.is_empty())
        && let Ok(n) = pair::send(program, rest)
    {
        filled += n;
        // Where only a part had room none is left.
        if n < rest.len() {
            break;
        }
    }
    filled
}

/// Takes octets out of the service's `own` end that fill the program's, `left` at most.
pub fn drain(own: BorrowedFd<'_>, mut left: usize) {
    let mut room = [0; PIECE];
    while left > 0 {
        match pair::receive(own, &mut room[..left.min(PIECE)]) {
            Ok(n) if n > 0 => left -= n,
            _ => return,
        }
    }
}

/// A connection that comes up.
#[derive(Debug)]
pub struct Connecting {
    /// The program's end; `None`: who asked for the connection has left it, and it is seen when nobody holds it any more.
    program: Option<Counted>,
    /// Octets that fill it.
    filled: usize,
}

impl Connecting {
    /// Fills the program's end.
    fn begin(program: Counted) -> Connecting {
        let filled = fill(program.as_fd());
        Connecting { program: Some(program), filled }
    }
}

impl Hub {
    /// Asks for a connection; the errno of the answer.
    ///
    /// # Errors
    /// As connect(2); EBADF: the descriptor is not the program's end.
    pub fn connect(
        &mut self,
        engine: &mut Engine,
        key: Key,
        to: Address,
        program: Option<OwnedFd>,
    ) -> Result<Errno> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        match socket.phase {
            Phase::Fresh => {}
            Phase::Connecting(_) => return Err(libc::EALREADY),
            _ => return Err(libc::EISCONN),
        }
        let program = program.ok_or(libc::EBADF)?;
        if pair::cookie(program.as_fd()) != Ok(socket.cookie) {
            return Err(libc::EBADF);
        }
        self.begin_connection(engine, key, to, program)?;
        Ok(libc::EINPROGRESS)
    }

    /// The same of a new socket, of which `program` is the program's end.
    ///
    /// # Errors
    /// As connect(2); ENOBUFS: its user may have no more descriptors of the service. The socket is what it was then, or gone.
    pub fn begin_connection(
        &mut self,
        engine: &mut Engine,
        key: Key,
        to: Address,
        program: OwnedFd,
    ) -> Result<()> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let to: SocketAddr = inward(socket.v6, to.0.ok_or(libc::EAFNOSUPPORT)?)?;
        let mut tcp = engine.stack().tcp(socket.id).ok_or(libc::EBADF)?;
        if !self.users.may_have_descriptor(socket.uid, program.as_raw_fd()) {
            return Err(libc::ENOBUFS);
        }
        tcp.connect(Engine::now(), to).map_err(|e| match e {
            // As of datagrams: one that takes nothing but IPv6 has no way there.
            ConnectError::Kind if socket.v6 && to.is_ipv4() => libc::ENETUNREACH,
            e => errno::connect(e),
        })?;
        let program = self.users.counted(socket.uid, program);
        socket.phase = Phase::Connecting(Box::new(Connecting::begin(program)));
        Ok(())
    }

    /// Gives a program's end room, whose lock another user may hold.
    fn widen(&mut self, uid: u32, program: Counted) {
        if self.users.counts(uid) {
            self.debts.widen(uid, program, SEND_BUFFER);
        } else {
            let _ = pair::set_send_buffer(program.as_fd(), SEND_BUFFER);
        }
    }

    /// Who has it wants neither its connection nor who calls, as by connect(2) to AF_UNSPEC. He takes a new socket in its place: whoever else has
    /// this one hears of a reset.
    ///
    /// # Errors
    /// EAFNOSUPPORT: there is nothing to end.
    pub fn dissolve(&mut self, stack: &mut Stack, key: Key) -> Result<()> {
        match self.sockets.get(key).ok_or(libc::EBADF)?.phase {
            Phase::Connecting(_) | Phase::Open => self.abort(stack, key),
            Phase::Listening(_) => self.shut_listener(stack, key, libc::SHUT_RDWR)?,
            Phase::Fresh | Phase::Datagrams(_) => return Err(libc::EAFNOSUPPORT),
        }
        Ok(())
    }

    /// Whether a connection comes up.
    pub fn is_connecting(&self, cookie: u64) -> bool {
        let socket = self.by_cookie.get(&cookie).and_then(|key| self.sockets.get(*key));
        socket.is_some_and(|socket| matches!(socket.phase, Phase::Connecting(_)))
    }

    /// Who asked for a connection that comes up does not wait for it any more: it is over when no other process holds it. One that does, and gets it,
    /// has a small send buffer.
    pub fn leave_connecting(&mut self, cookie: u64) {
        let Some(key) = self.by_cookie.get(&cookie) else { return };
        if let Some(socket) = self.sockets.get_mut(*key)
            && let Phase::Connecting(connecting) = &mut socket.phase
        {
            connecting.program = None;
        }
    }

    /// Looks what became of a connection that was asked for.
    pub fn look_at_connecting(&mut self, stack: &mut Stack, key: Key) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let Some(mut tcp) = stack.tcp(socket.id) else { return };
        if let Some(failure) = tcp.take_error() {
            socket.fail(failure, false);
            return self.release(stack, key);
        }
        match tcp.state() {
            Some(State::SynSent | State::SynReceived) if socket.is.hung_up => {
                return self.release(stack, key);
            }
            Some(State::SynSent | State::SynReceived) => return,
            Some(State::Closed) | None => {
                socket.errno = libc::ECONNABORTED;
                return self.release(stack, key);
            }
            _ => {}
        }
        socket.remote = tcp.remote();
        let was = std::mem::replace(&mut socket.phase, Phase::Open);
        let uid = socket.uid;
        if let Phase::Connecting(connecting) = was {
            if let Some(program) = connecting.program {
                self.widen(uid, program);
            }
            // Last: who waits for room goes on now.
            if let Some(socket) = self.sockets.get(key) {
                drain(socket.end.as_fd(), connecting.filled);
            }
        }
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let is = &mut socket.is;
        (is.pair_in, is.pair_out, is.stack_in, is.stack_out) = (true, true, true, true);
        self.activate(key);
    }
}
