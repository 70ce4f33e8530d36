//! `/dev/net/tun` (linux/if_tun.h): network interfaces whose other end is a descriptor.
//!
//! A descriptor is one queue of one interface. A read takes a packet that the kernel sends through the interface, a write
//! gives it one as if it had arrived there. Setting addresses and the like is the business of [`crate::netns`].

use crate::packet::frame::{Departure, HEADROOM, VnetHeader, complete, undo};
use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::ffi::CStr;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Where the device is.
pub const PATH: &CStr = c"/dev/net/tun";

/// Longest name of an interface (IFNAMSIZ without the NUL).
const LONGEST_NAME: usize = 15;

// linux/if_tun.h
const TUNSETPERSIST: usize = 0x4004_54cb;
const TUNSETIFF: usize = 0x4004_54ca;
const TUNSETOWNER: usize = 0x4004_54cc;
const TUNSETGROUP: usize = 0x4004_54ce;
const TUNGETFEATURES: usize = 0x8004_54cf;
const TUNSETOFFLOAD: usize = 0x4004_54d0;
const TUNGETIFF: usize = 0x8004_54d2;
const TUNSETVNETHDRSZ: usize = 0x4004_54d8;

/// What an interface is, and how its packets are passed (IFF_...).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// IP packets.
    pub const TUN: Flags = Flags(1);
    /// Ethernet frames.
    pub const TAP: Flags = Flags(2);
    /// Nothing in front of packets that tells their EtherType.
    pub const NO_INFORMATION: Flags = Flags(0x1000);
    /// A virtio-net header in front of packets.
    pub const VNET_HEADER: Flags = Flags(0x4000);
    /// Several descriptors, each of which is a queue.
    pub const MULTI_QUEUE: Flags = Flags(0x0100);
    /// The interface must not exist yet.
    pub const EXCLUSIVE: Flags = Flags(0x8000);
    /// It stays when the last descriptor is closed (told, never asked).
    pub const PERSISTENT: Flags = Flags(0x0800);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether everything of `other` is in it.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a reader takes as it is, so that the kernel need not do it before (TUN_F_...).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads(u32);

impl Offloads {
    /// Transport checksums that are not computed.
    pub const CHECKSUM: Offloads = Offloads(0x01);
    /// TCP super-packets over IPv4 and IPv6, such with ECN too.
    pub const TCP: Offloads = Offloads(0x02 | 0x04 | 0x08);
    /// Super-packets of UDP datagrams over IPv4 and IPv6, which the kernel grants together only (Linux 6.2).
    pub const UDP: Offloads = Offloads(0x20 | 0x40);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Offloads) -> Offloads {
        Offloads(self.0 | other.0)
    }

    /// Whether everything of `other` is in it.
    pub const fn has(self, other: Offloads) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `struct ifreq` as these calls use it: a name, and flags.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

impl Request {
    fn name(&self) -> String {
        let end = self.name.iter().position(|&b| b == 0).unwrap_or(self.name.len());
        String::from_utf8_lossy(&self.name[..end]).into_owned()
    }
}

/// An open `/dev/net/tun`, which belongs to an interface once [`Tun::attach`] was called. Never waits.
#[derive(Debug)]
pub struct Tun(OwnedFd);

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Tun {
    /// Opens the device, close-on-exec. Its interfaces will be in the calling thread's network namespace.
    ///
    /// # Errors
    /// As open(2): ENOENT without the node, ENODEV or ENXIO without the driver, EACCES or EPERM where it is forbidden.
    pub fn open(path: &CStr) -> Result<Tun> {
        let flags = (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        // SAFETY: a NUL-terminated path.
        let fd = check(unsafe {
            syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0])
        })?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Tun(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    fn number(&self, request: usize, value: usize) -> Result<()> {
        // SAFETY: callers name requests whose argument is a number.
        check(unsafe { syscall(libc::SYS_ioctl, [self.0.as_raw_fd() as usize, request, value, 0, 0, 0]) })
            .map(|_| ())
    }

    fn word(&self, request: usize, word: &mut i32) -> Result<()> {
        let call = [self.0.as_raw_fd() as usize, request, (&raw mut *word) as usize, 0, 0, 0];
        // SAFETY: callers name requests whose argument points to an int, which is read or written.
        check(unsafe { syscall(libc::SYS_ioctl, call) }).map(|_| ())
    }

    fn request(&self, request: usize, argument: &mut Request) -> Result<()> {
        let call = [self.0.as_raw_fd() as usize, request, (&raw mut *argument) as usize, 0, 0, 0];
        // SAFETY: callers name requests whose argument points to a struct ifreq, which is read and written.
        check(unsafe { syscall(libc::SYS_ioctl, call) }).map(|_| ())
    }

    /// What the driver can do.
    ///
    /// # Errors
    /// ENOTTY where the path led to something else.
    pub fn features(&self) -> Result<Flags> {
        let mut word = 0;
        self.word(TUNGETFEATURES, &mut word)?;
        Ok(Flags(word as u16))
    }

    /// Makes the interface of this name, or takes another queue of it, and returns its name: `%d` in it is replaced by the
    /// first free number.
    ///
    /// # Errors
    /// ENAMETOOLONG; EPERM without CAP_NET_ADMIN, and for one of another user; EBUSY if it exists although it must not, or
    /// is open and has one queue; EINVAL for one of another kind, or a name that cannot be; E2BIG beyond the driver's
    /// queues.
    pub fn attach(&self, name: &str, flags: Flags) -> Result<String> {
        let mut request = Request { name: [0; 16], flags: flags.0, rest: [0; 22] };
        let target = request.name[..LONGEST_NAME].get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?;
        if name.contains('\0') {
            return Err(Errno::INVAL);
        }
        target.copy_from_slice(name.as_bytes());
        self.request(TUNSETIFF, &mut request)?;
        Ok(request.name())
    }

    /// The interface that it belongs to: its name of now, and its flags.
    ///
    /// # Errors
    /// EBADFD before [`Tun::attach`], and once the interface was removed.
    pub fn interface(&self) -> Result<(String, Flags)> {
        let mut request = Request { name: [0; 16], flags: 0, rest: [0; 22] };
        self.request(TUNGETIFF, &mut request)?;
        Ok((request.name(), Flags(request.flags)))
    }

    /// Whether the interface stays when the last descriptor is closed.
    ///
    /// # Errors
    /// EBADFD.
    pub fn set_persistent(&self, on: bool) -> Result<()> {
        self.number(TUNSETPERSIST, usize::from(on))
    }

    /// The user who may attach to it without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// EBADFD; EINVAL for a user who has no number in this user namespace.
    pub fn set_owner(&self, user: u32) -> Result<()> {
        self.number(TUNSETOWNER, user as usize)
    }

    /// The group whose members may attach to it without CAP_NET_ADMIN.
    ///
    /// # Errors
    /// EBADFD; EINVAL for a group that has no number in this user namespace.
    pub fn set_group(&self, group: u32) -> Result<()> {
        self.number(TUNSETGROUP, group as usize)
    }

    /// Sets the header in front of packets to [`VnetHeader::SIZE`] octets, whatever it was for who was attached before.
    ///
    /// # Errors
    /// EBADFD; EINVAL without [`Flags::VNET_HEADER`].
    pub fn set_header(&self) -> Result<()> {
        self.word(TUNSETVNETHDRSZ, &mut (VnetHeader::SIZE as i32))
    }

    /// Says what the reader takes as it is.
    ///
    /// # Errors
    /// EINVAL for what this kernel does not know; EBADFD.
    pub fn set_offloads(&self, offloads: Offloads) -> Result<()> {
        self.number(TUNSETOFFLOAD, offloads.0 as usize)
    }

    /// Takes a packet, with what stands in front of it; a longer one than `buffer` is cut.
    ///
    /// # Errors
    /// EAGAIN if there is none; EBADFD once the interface was removed.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let call = [self.0.as_raw_fd() as usize, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0];
        // SAFETY: the kernel writes into the slice.
        check(unsafe { syscall(libc::SYS_read, call) })
    }

    /// Gives the kernel a packet, with what stands in front of it.
    ///
    /// # Errors
    /// EIO while the interface is down; EINVAL for something that cannot be a packet; EBADFD once the interface was removed;
    /// EAGAIN, ENOMEM.
    #[inline]
    pub fn write(&self, packet: &[u8]) -> Result<usize> {
        let call = [self.0.as_raw_fd() as usize, packet.as_ptr() as usize, packet.len(), 0, 0, 0];
        // SAFETY: the kernel reads the slice.
        check(unsafe { syscall(libc::SYS_write, call) })
    }

    /// Gives the kernel one packet that lies in pieces; 1024 at most.
    ///
    /// # Errors
    /// Those of [`Tun::write`].
    #[inline]
    pub fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> Result<usize> {
        let call = [self.0.as_raw_fd() as usize, pieces.as_ptr() as usize, pieces.len(), 0, 0, 0];
        // SAFETY: an IoSlice is laid out as a struct iovec, and the kernel reads what each stands for.
        check(unsafe { syscall(libc::SYS_writev, call) })
    }

    /// Gives the kernel the frame of `len` octets at [`HEADROOM`] of `buffer`, with a tag put in and a virtio-net header put
    /// in front as `how` says. What the kernel does not take may be sent once more.
    ///
    /// # Errors
    /// Those of [`Tun::write`]; EINVAL for a frame that is longer than the buffer.
    pub fn send(&self, buffer: &mut [u8], len: usize, how: &Departure, vnet: bool) -> Result<usize> {
        if buffer.len() < HEADROOM + len {
            return Err(Errno::INVAL);
        }
        let start = complete(buffer, len, how, vnet);
        let sent = self.write(&buffer[start..HEADROOM + len]);
        if sent.is_err() {
            undo(buffer, len, how);
        }
        sent
    }

    /// The same with a virtio-net header for a frame of which only the first `len` octets lie there, its headers among them, and two
    /// more pieces follow.
    ///
    /// # Errors
    /// Those of [`Tun::send`].
    pub fn send_apart(
        &self,
        buffer: &mut [u8],
        len: usize,
        behind: (&[u8], &[u8]),
        how: &Departure,
    ) -> Result<usize> {
        if buffer.len() < HEADROOM + len {
            return Err(Errno::INVAL);
        }
        let start = complete(buffer, len, how, true);
        let pieces = [&buffer[start..HEADROOM + len], behind.0, behind.1].map(IoSlice::new);
        let sent = self.write_pieces(if behind.1.is_empty() { &pieces[..2] } else { &pieces });
        if sent.is_err() {
            undo(buffer, len, how);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_tun_device_says_so() {
        assert_eq!(Tun::open(c"/nonexistent/tun").unwrap_err(), Errno::NOENT);
        let null = Tun::open(c"/dev/null").unwrap();
        assert_eq!(null.features(), Err(Errno::NOTTY));
        assert_eq!(null.attach("a-name-of-16-oct", Flags::TUN), Err(Errno::NAMETOOLONG));
        assert_eq!(null.attach("a\0b", Flags::TUN), Err(Errno::INVAL));
    }

    #[test]
    fn a_frame_that_was_not_taken_is_sent_once_more_as_it_was() {
        use crate::packet::frame::Tag;
        let full = Tun::open(c"/dev/full").unwrap();
        let how = Departure { tag: Some(Tag { tpid: 0x8100, tci: 7 }), ..Departure::default() };
        let mut buffer = vec![0; HEADROOM];
        buffer.extend(1..=60);
        let frame = buffer[HEADROOM..].to_vec();
        for _ in 0..2 {
            assert_eq!(full.send(&mut buffer, 60, &how, true), Err(Errno::NOSPC));
            assert_eq!(buffer[HEADROOM..], frame);
            assert_eq!(full.send_apart(&mut buffer, 60, (&[1], &[2]), &how), Err(Errno::NOSPC));
            assert_eq!(buffer[HEADROOM..], frame);
        }
    }

    #[test]
    fn flags_are_sets() {
        let flags = Flags::TUN.and(Flags::MULTI_QUEUE);
        assert!(flags.has(Flags::TUN) && flags.has(Flags::MULTI_QUEUE) && !flags.has(Flags::TAP));
        assert!(!Offloads::CHECKSUM.has(Offloads::UDP));
        assert!(Offloads::CHECKSUM.and(Offloads::UDP).has(Offloads::UDP));
    }
}
