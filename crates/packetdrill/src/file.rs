//! What descriptors stand for.

use crate::pipe::Pipe;
use crate::readiness::Epoll;
use bypath_stack::socket::SocketId;
use bypath_sys::{Errno, eventfd, fd};
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
    /// Octets in the last buffer that Linux would have, and the widest window that the other side has offered.
    pub last_buffer: usize,
    pub widest: u32,
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

/// What descriptors share that stand for the same.
#[derive(Debug)]
pub struct File {
    pub kind: Kind,
    pub nonblock: bool,
    pub socket: Option<Socket>,
}

impl File {
    pub fn new(kind: Kind, socket: Option<Socket>) -> File {
        File { kind, nonblock: false, socket }
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
            last_buffer: 0,
            widest: 0,
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

/// A file description, whatever descriptors stand for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(u64);

#[derive(Debug)]
struct Descriptor {
    file: FileId,
    /// FD_CLOEXEC, as it was set: nothing is executed.
    cloexec: bool,
}

/// All descriptors.
#[derive(Debug, Default)]
pub struct Files {
    descriptors: BTreeMap<i32, Descriptor>,
    files: BTreeMap<FileId, File>,
    next: u64,
    pub pipes: Vec<Pipe>,
    /// Numbers are those of descriptors of the process, which stand for nothing: packetdrill closes what scripts left open.
    pub real: bool,
}

impl Files {
    /// The lowest number that is free is its.
    ///
    /// # Errors
    /// EMFILE.
    pub fn add(&mut self, file: File, cloexec: bool) -> Result<i32, i32> {
        let fd = match self.real {
            true => eventfd::create(0).map_err(Errno::raw_os_error)?,
            false => self.free_from(FIRST),
        };
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(id, file);
        self.descriptors.insert(fd, Descriptor { file: id, cloexec });
        Ok(fd)
    }

    /// Whether there would be a number for another one, as accept(2) asks before anything else.
    ///
    /// # Errors
    /// EMFILE.
    pub fn has_number(&self) -> Result<(), i32> {
        if self.real {
            eventfd::create(0).map(fd::close).map_err(Errno::raw_os_error)?;
        }
        Ok(())
    }

    fn free_from(&self, least: i32) -> i32 {
        (least..).find(|fd| !self.descriptors.contains_key(fd)).unwrap_or(least)
    }

    /// Another descriptor, the lowest from `least` on that is free.
    ///
    /// # Errors
    /// EBADF, EINVAL, EMFILE.
    pub fn dup(&mut self, fd: i32, least: i32, cloexec: bool) -> Result<i32, i32> {
        let file = self.id(fd)?;
        let new = match self.real {
            _ if least < 0 => return Err(libc::EINVAL),
            true => fd::dup_high(fd, least).map_err(Errno::raw_os_error)?,
            false => self.free_from(least.max(FIRST)),
        };
        self.descriptors.insert(new, Descriptor { file, cloexec });
        Ok(new)
    }

    /// Another descriptor of this number. What it stood for, if nothing else does: it ends.
    ///
    /// # Errors
    /// EBADF, EINVAL.
    pub fn dup_to(&mut self, fd: i32, to: i32, cloexec: bool) -> Result<Option<(FileId, File)>, i32> {
        if fd == to {
            return Err(libc::EINVAL);
        }
        let file = self.id(fd)?;
        match self.real {
            _ if to < 0 => return Err(libc::EBADF),
            true => fd::dup_to(fd, to).map_err(Errno::raw_os_error)?,
            false => {}
        }
        let before = self.descriptors.insert(to, Descriptor { file, cloexec });
        Ok(before.and_then(|before| self.ended(before.file)))
    }

    /// A description that nothing stands for any more.
    fn ended(&mut self, id: FileId) -> Option<(FileId, File)> {
        let is_left = self.descriptors.values().any(|descriptor| descriptor.file == id);
        if is_left { None } else { self.files.remove(&id).map(|file| (id, file)) }
    }

    /// Closes a descriptor. What it stood for, if nothing else does: it ends.
    ///
    /// # Errors
    /// EBADF.
    pub fn remove(&mut self, fd: i32) -> Result<Option<(FileId, File)>, i32> {
        let descriptor = self.descriptors.remove(&fd).ok_or(libc::EBADF)?;
        if self.real {
            fd::close(fd);
        }
        Ok(self.ended(descriptor.file))
    }

    /// # Errors
    /// EBADF.
    pub fn id(&self, fd: i32) -> Result<FileId, i32> {
        self.descriptors.get(&fd).map(|descriptor| descriptor.file).ok_or(libc::EBADF)
    }

    /// # Errors
    /// EBADF.
    pub fn cloexec(&mut self, fd: i32) -> Result<&mut bool, i32> {
        self.descriptors.get_mut(&fd).map(|descriptor| &mut descriptor.cloexec).ok_or(libc::EBADF)
    }

    /// # Errors
    /// EBADF.
    pub fn get(&mut self, fd: i32) -> Result<&mut File, i32> {
        self.by_id(self.id(fd)?)
    }

    /// # Errors
    /// EBADF.
    pub fn by_id(&mut self, id: FileId) -> Result<&mut File, i32> {
        self.files.get_mut(&id).ok_or(libc::EBADF)
    }

    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn socket(&mut self, fd: i32) -> Result<&mut Socket, i32> {
        self.get(fd)?.socket.as_mut().ok_or(libc::ENOTSOCK)
    }

    /// What stands for a socket.
    pub fn of(&self, id: SocketId) -> Option<FileId> {
        self.files
            .iter()
            .find(|(_, file)| file.socket.as_ref().is_some_and(|s| s.id == id))
            .map(|(id, _)| *id)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&FileId, &mut File)> {
        self.files.iter_mut()
    }
}

impl Files {
    /// Sockets that found no room because of what was not sent.
    pub fn waiting_for_room(&self) -> Vec<(FileId, SocketId, Option<u32>)> {
        let sockets = self.files.iter().filter_map(|(id, file)| Some((*id, file.socket.as_ref()?)));
        sockets.filter(|(_, s)| s.waits_for_room).map(|(file, s)| (file, s.id, s.notsent_lowat)).collect()
    }
}
