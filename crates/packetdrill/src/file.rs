//! What a descriptor stands for.

use crate::pipe::Pipe;
use crate::readiness::Epoll;
use bypath_stack::socket::SocketId;
use bypath_sys::{eventfd, fd};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The first descriptor, if they are not the process's own: it may mix them with those.
pub const FIRST: i32 = 10_000;

#[derive(Debug)]
pub enum Kind {
    Tcp,
    Udp,
    Epoll(Epoll),
    /// An end of a pipe; whether it is the one that is written.
    Pipe(usize, bool),
}

/// A socket, beside what the stack knows of it.
#[derive(Debug)]
pub struct Socket {
    pub id: SocketId,
    /// Of AF_INET6.
    pub v6: bool,
    /// `connect` has begun, and nobody was told how it ended.
    pub connecting: bool,
    /// SHUT_RD.
    pub deaf: bool,
    /// Where the caller has bound it, as far as it is free.
    pub bound: Option<SocketAddr>,
    /// Seconds of SO_LINGER, which are told even while it is off.
    pub linger: u32,
    /// SO_RCVLOWAT.
    pub least: usize,
    /// Half of what SO_SNDBUF and SO_RCVBUF tell.
    pub buffers: (u32, u32),
    /// SO_RCVTIMEO and SO_SNDTIMEO.
    pub patience: (Option<Duration>, Option<Duration>),
    /// TCP_NOTSENT_LOWAT, as it is in force, and as it was set.
    pub notsent_lowat: Option<u32>,
    pub own_lowat: u32,
    /// A write found less room than it needed: TCP_NOTSENT_LOWAT has to be looked at when octets have gone.
    pub waits_for_room: bool,
    /// TCP_MAXSEG; 0: not set.
    pub maxseg: u16,
    /// TCP_INQ.
    pub inq: bool,
    /// Keep-alive: idle, interval, probes; and whether.
    pub keepalive: (u32, u32, u32, bool),
    /// net.ipv4.tcp_ecn: who calls us may ask for it.
    pub ecn_for_callers: bool,
    /// Options that the stack has no use for.
    pub kept: BTreeMap<(i32, i32), Vec<u8>>,
}

#[derive(Debug)]
pub struct File {
    pub kind: Kind,
    pub nonblock: bool,
    /// FD_CLOEXEC, as it was set: nothing is executed.
    pub cloexec: bool,
    pub socket: Option<Socket>,
}

impl File {
    pub fn new(kind: Kind, socket: Option<Socket>) -> File {
        File { kind, nonblock: false, cloexec: false, socket }
    }
}

impl Socket {
    pub fn new(id: SocketId, v6: bool) -> Socket {
        Socket {
            id,
            v6,
            connecting: false,
            deaf: false,
            bound: None,
            linger: 0,
            least: 1,
            buffers: (0, 0),
            patience: (None, None),
            notsent_lowat: None,
            own_lowat: 0,
            waits_for_room: false,
            maxseg: 0,
            inq: false,
            keepalive: (7200, 75, 9, false),
            ecn_for_callers: false,
            kept: BTreeMap::new(),
        }
    }

    /// One that a listener accepted has its options.
    pub fn heir(&self, id: SocketId) -> Socket {
        let kept = self.kept.clone();
        Socket { id, connecting: false, kept, waits_for_room: false, deaf: false, bound: None, ..*self }
    }
}

/// All descriptors.
#[derive(Debug, Default)]
pub struct Files {
    files: BTreeMap<i32, File>,
    pub pipes: Vec<Pipe>,
    /// Numbers are those of descriptors of the process, which stand for nothing: packetdrill closes what scripts left open.
    pub real: bool,
}

impl Files {
    /// The lowest number that is free is its.
    pub fn add(&mut self, file: File) -> i32 {
        let fd = match self.real {
            true => eventfd::create(0).unwrap_or(-1),
            false => (FIRST..).find(|fd| !self.files.contains_key(fd)).unwrap_or(FIRST),
        };
        self.files.insert(fd, file);
        fd
    }

    /// # Errors
    /// EBADF.
    pub fn get(&mut self, fd: i32) -> Result<&mut File, i32> {
        self.files.get_mut(&fd).ok_or(libc::EBADF)
    }

    pub fn remove(&mut self, fd: i32) -> Option<File> {
        let file = self.files.remove(&fd)?;
        if self.real {
            fd::close(fd);
        }
        Some(file)
    }

    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn socket(&mut self, fd: i32) -> Result<&mut Socket, i32> {
        self.get(fd)?.socket.as_mut().ok_or(libc::ENOTSOCK)
    }

    /// The descriptor of a socket.
    pub fn of(&self, id: SocketId) -> Option<i32> {
        self.files
            .iter()
            .find(|(_, file)| file.socket.as_ref().is_some_and(|s| s.id == id))
            .map(|(fd, _)| *fd)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&i32, &mut File)> {
        self.files.iter_mut()
    }
}

impl Files {
    /// Sockets that found no room because of what was not sent.
    pub fn waiting_for_room(&self) -> Vec<(i32, SocketId, Option<u32>)> {
        let sockets = self.files.iter().filter_map(|(fd, file)| Some((*fd, file.socket.as_ref()?)));
        sockets.filter(|(_, s)| s.waits_for_room).map(|(fd, s)| (fd, s.id, s.notsent_lowat)).collect()
    }
}
