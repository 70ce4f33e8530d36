//! shutdown(2) of connections, as far as the pair cannot say it: what comes after the receiving side was shut can still be read, and the
//! connection goes on until the program closes it.

use super::slab::Key;
use super::socket::{Holders, Hub, Phase};
use crate::Engine;
use bypath_shm::service::{LOOK, TAKE, UNREAD};
use bypath_stack::Stack;
use bypath_stack::linux::errno::Result;
use bypath_stack::tcp::error::ReadError;
use bypath_sys::pair;
use std::os::fd::{AsFd, OwnedFd};

/// Octets that are told at once, at most.
const MOST: usize = 4000;

impl Hub {
    /// Whether it has a connection.
    pub fn is_open(&self, key: Key) -> bool {
        self.sockets.get(key).is_some_and(|socket| matches!(socket.phase, Phase::Open))
    }

    /// The program is about to shut its receiving side, or both: from here on nothing goes into the pair. `program` is its end.
    ///
    /// # Errors
    /// ENOTCONN, EINVAL; EBADF: the descriptor is not the program's end; EMFILE, ENOMEM: it cannot be seen when it is closed.
    pub fn shut(&mut self, stack: &mut Stack, key: Key, how: i32, program: Option<OwnedFd>) -> Result<()> {
        let socket = self.sockets.get_mut(key).filter(|socket| matches!(socket.phase, Phase::Open));
        let socket = socket.ok_or(libc::ENOTCONN)?;
        match how {
            libc::SHUT_RD | libc::SHUT_RDWR => {}
            libc::SHUT_WR => return Ok(()),
            _ => return Err(libc::EINVAL),
        }
        let program = program.ok_or(libc::EBADF)?;
        if pair::cookie(program.as_fd()) != Ok(socket.cookie) {
            return Err(libc::EBADF);
        }
        if socket.holders.is_none() {
            socket.holders = {
                let holders = Holders::new(program.as_fd(), &mut self.users, socket.uid);
                Some(holders.map_err(|e| e.raw_os_error())?)
            };
        }
        socket.is.asked = true;
        if socket.is.shut
            && let Some(mut tcp) = stack.tcp(socket.id)
        {
            tcp.stop_reading();
        }
        Ok(())
    }

    /// Octets that came since, `most` of them, and behind the next `skip` if they stay: none is the end of what there is.
    ///
    /// # Errors
    /// ENOTCONN: the receiving side was not shut; ENOPROTOOPT.
    pub fn rest(
        &mut self,
        engine: &mut Engine,
        key: Key,
        name: i32,
        (most, skip): (usize, usize),
    ) -> Result<Vec<u8>> {
        let socket = self.sockets.get_mut(key).filter(|socket| socket.is.asked).ok_or(libc::ENOTCONN)?;
        let Some(mut tcp) = engine.stack().tcp(socket.id) else { return Ok(Vec::new()) };
        // No more than there is, whatever is asked for.
        let skip = if name == LOOK { skip.min(tcp.unread()) } else { 0 };
        let mut room = vec![0; most.min(MOST) + skip];
        let got = match name {
            UNREAD => return Ok((tcp.unread() as u32).to_ne_bytes().to_vec()),
            TAKE => tcp.read(&mut room),
            LOOK => tcp.peek(&mut room),
            _ => return Err(libc::ENOPROTOOPT),
        };
        room.truncate(got.unwrap_or(0));
        room.drain(..skip.min(room.len()));
        if let Err(ReadError::Failed(failure)) = got {
            socket.fail(failure, false);
        }
        socket.is.stack_in = true;
        self.activate(key);
        Ok(room)
    }
}
