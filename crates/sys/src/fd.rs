//! Descriptors: numbers, flags and limits.

use crate::syscall::{check, syscall};
use crate::turn::Turn;
use crate::{Errno, Result, process};

fn fcntl(fd: i32, cmd: i32, arg: usize) -> Result<usize> {
    // SAFETY: only commands with an integer argument are used in this file.
    check(unsafe { syscall(libc::SYS_fcntl, [fd as usize, cmd as usize, arg, 0, 0, 0]) })
}

/// Moves `fd` to the lowest free number at or above `floor`, close-on-exec; closes it on failure.
///
/// # Errors
/// EMFILE (EINVAL where `floor` is beyond the limit).
pub fn move_high(fd: i32, floor: i32) -> Result<i32> {
    if fd >= floor {
        return Ok(fd);
    }
    let moved = fcntl(fd, libc::F_DUPFD_CLOEXEC, floor as usize);
    close(fd);
    moved.map(|n| n as i32)
}

/// Duplicates `fd` at or above `floor`, close-on-exec.
///
/// # Errors
/// EBADF, EMFILE, EINVAL.
pub fn dup_high(fd: i32, floor: i32) -> Result<i32> {
    fcntl(fd, libc::F_DUPFD_CLOEXEC, floor as usize).map(|n| n as i32)
}

/// Duplicates `fd` as number `to`, close-on-exec; what that was is closed.
///
/// # Errors
/// EBADF, also where `to` is beyond the limit; EINVAL where both are one number.
pub fn dup_to(fd: i32, to: i32) -> Result<()> {
    // SAFETY: dup3 takes numbers alone; the caller owns both.
    check(unsafe { syscall(libc::SYS_dup3, [fd as usize, to as usize, libc::O_CLOEXEC as usize, 0, 0, 0]) })
        .map(|_| ())
}

/// Closes a descriptor of our own.
pub fn close(fd: i32) {
    // SAFETY: closes a number; the caller owns it.
    unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// A lock on one byte of a file, which the kernel takes back when the process ends, or closes any descriptor of that file,
/// as at an exec that closes it.
///
/// # Errors
/// As fcntl(2): EBADF, EAGAIN (another process has it), ENOLCK.
pub fn lock_byte(fd: i32, at: i64, on: bool) -> Result<()> {
    record_lock(fd, libc::F_SETLK, if on { libc::F_WRLCK } else { libc::F_UNLCK }, at).map(|_| ())
}

/// Whether another process has that byte locked ([`lock_byte`]).
///
/// # Errors
/// As fcntl(2).
pub fn is_byte_locked(fd: i32, at: i64) -> Result<bool> {
    record_lock(fd, libc::F_GETLK, libc::F_WRLCK, at).map(|kind| kind != libc::F_UNLCK)
}

/// Returns the kind of lock that the kernel leaves in the structure.
fn record_lock(fd: i32, command: i32, kind: i32, at: i64) -> Result<i32> {
    let mut lock =
        libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: at, l_len: 1, l_pid: 0 };
    // SAFETY: these commands read and write one flock structure.
    check(unsafe {
        syscall(libc::SYS_fcntl, [fd as usize, command as usize, (&raw mut lock) as usize, 0, 0, 0])
    })?;
    Ok(i32::from(lock.l_type))
}

/// Makes `to` what `fd` is, in place of what it was (dup3).
///
/// # Errors
/// As dup3(2).
pub fn replace(fd: i32, to: i32, cloexec: bool) -> Result<()> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: integers only; the caller answers for what `to` was.
    check(unsafe { syscall(libc::SYS_dup3, [fd as usize, to as usize, flags as usize, 0, 0, 0]) }).map(|_| ())
}

/// Sets file status flags (F_SETFL).
///
/// # Errors
/// EBADF.
pub fn set_status_flags(fd: i32, flags: i32) -> Result<()> {
    fcntl(fd, libc::F_SETFL, flags as usize).map(|_| ())
}

/// File status flags (F_GETFL).
///
/// # Errors
/// EBADF.
pub fn status_flags(fd: i32) -> Result<i32> {
    fcntl(fd, libc::F_GETFL, 0).map(|n| n as i32)
}

/// Who hears of urgent octets, and of whatever comes with O_ASYNC, of `from` hears of those of `to`, by the same signal.
pub fn copy_owner(from: i32, to: i32) {
    // asm-generic/fcntl.h, and `struct f_owner_ex`.
    const F_SETSIG: i32 = 10;
    const F_GETSIG: i32 = 11;
    const F_SETOWN_EX: i32 = 15;
    const F_GETOWN_EX: i32 = 16;
    let mut owner = [0i32; 2];
    if fcntl(from, F_GETOWN_EX, owner.as_mut_ptr() as usize).is_ok() && owner[1] != 0 {
        let _ = fcntl(to, F_SETOWN_EX, owner.as_ptr() as usize);
    }
    if let Ok(signal @ 1..) = fcntl(from, F_GETSIG, 0) {
        let _ = fcntl(to, F_SETSIG, signal);
    }
}

/// Whether the descriptor is close-on-exec.
///
/// # Errors
/// EBADF.
pub fn is_cloexec(fd: i32) -> Result<bool> {
    fcntl(fd, libc::F_GETFD, 0).map(|n| n as i32 & libc::FD_CLOEXEC != 0)
}

/// Puts something at a number that is free, and the lowest such one: by it nothing can be read or written, as before. False: there it does not stand.
pub(crate) fn plug(place: i32) -> bool {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the path is a constant.
    let opened = unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, c"/".as_ptr() as usize, flags as usize, 0, 0, 0])
    };
    let Ok(number) = check(opened) else { return false };
    let is_there = number as i32 == place;
    if !is_there {
        close(number as i32);
    }
    is_there
}

/// Whether what stands at a number is such a thing, if something is.
pub(crate) fn is_plug(place: i32) -> bool {
    status_flags(place).is_ok_and(|flags| flags & libc::O_PATH != 0)
}

/// Makes the descriptor close-on-exec, or not.
///
/// # Errors
/// EBADF.
pub fn set_cloexec(fd: i32, on: bool) -> Result<()> {
    fcntl(fd, libc::F_SETFD, if on { libc::FD_CLOEXEC as usize } else { 0 }).map(|_| ())
}

/// RLIMIT_NOFILE: (soft, hard).
pub fn limits() -> (u64, u64) {
    limits_of(libc::RLIMIT_NOFILE)
}

/// How many descriptors this process can still open; `None`: it cannot be told (before Linux 6.2, or without `/proc`).
pub fn count_free() -> Option<u64> {
    let mut told = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let path = c"/proc/self/fd".as_ptr() as usize;
    let args = [libc::AT_FDCWD as usize, path, 0, libc::STATX_SIZE as usize, told.as_mut_ptr() as usize, 0];
    // SAFETY: the kernel reads the path, and writes one statx.
    check(unsafe { syscall(libc::SYS_statx, args) }).ok()?;
    // SAFETY: zeroes, or what the kernel has written.
    let open = unsafe { told.assume_init() }.stx_size;
    (open > 0).then(|| limits().0.saturating_sub(open))
}

/// Lets this process have as many descriptors as it may: the soft limit becomes the hard one.
#[cfg(feature = "link")]
pub fn raise_limit() {
    let (soft, hard) = limits();
    let new = libc::rlimit64 { rlim_cur: hard, rlim_max: hard };
    if soft < hard {
        let resource = libc::RLIMIT_NOFILE as usize;
        // SAFETY: prlimit64 reads one rlimit64.
        unsafe { syscall(libc::SYS_prlimit64, [0, resource, &raw const new as usize, 0, 0, 0]) };
    }
}

/// Whether this process may write nothing into files (RLIMIT_FSIZE is 0).
pub fn are_files_closed() -> bool {
    limits_of(libc::RLIMIT_FSIZE).0 == 0
}

/// Octets of addresses, and of data, that this process may have (RLIMIT_AS, RLIMIT_DATA), whichever are fewer; `u64::MAX`: no limit.
pub fn most_memory() -> u64 {
    limits_of(libc::RLIMIT_AS).0.min(limits_of(libc::RLIMIT_DATA).0)
}

fn limits_of(resource: u32) -> (u64, u64) {
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prlimit64 writes one rlimit64.
    unsafe { syscall(libc::SYS_prlimit64, [0, resource as usize, 0, &raw mut old as usize, 0, 0]) };
    (old.rlim_cur, old.rlim_max)
}

/// Writes `bytes` to `fd` once, ignoring the result: log lines.
pub fn write_once(fd: i32, bytes: &[u8]) {
    // SAFETY: write reads the slice.
    unsafe { syscall(libc::SYS_write, [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0]) };
}

/// Opens (creating it, mode 0600) the file at `path`, NUL terminated, for reading and appending. Waits for nothing that may be there instead, and follows no link: a folder on
/// the way can be another user's, who puts one there meanwhile.
///
/// # Errors
/// As open(2); ELOOP: it is a symbolic link, or one is on the way; EPERM: it is neither this user's nor root's; ENAMETOOLONG: a name of it has more than 255 bytes.
pub fn open_rw(path: &std::ffi::CStr) -> Result<i32> {
    let way = path.to_bytes();
    let folder = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mut at = open_at(libc::AT_FDCWD, if way.starts_with(b"/") { b"/" } else { b"." }, folder)?;
    let mut names = way.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
    let mut name = names.next().unwrap_or(b".");
    for next in names {
        let step = open_at(at, name, libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        close(at);
        at = step?;
        if status_of(at).is_ok_and(|st| st.st_mode & libc::S_IFMT == libc::S_IFLNK) {
            close(at);
            return Err(Errno::LOOP);
        }
        name = next;
    }
    let careful = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_APPEND;
    let file = open_at(at, name, libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | careful);
    close(at);
    let file = file?;
    if status_of(file).is_ok_and(|st| st.st_uid == 0 || st.st_uid == process::euid()) {
        return Ok(file);
    }
    close(file);
    Err(Errno::PERM)
}

/// openat(2) of one name; a file that it creates has mode 0600.
fn open_at(folder: i32, name: &[u8], flags: i32) -> Result<i32> {
    // NAME_MAX, and a NUL.
    let mut ended = [0u8; 256];
    if name.len() >= ended.len() {
        return Err(Errno::NAMETOOLONG);
    }
    ended[..name.len()].copy_from_slice(name);
    // SAFETY: the name ends with a NUL.
    let opened = unsafe {
        syscall(libc::SYS_openat, [folder as usize, ended.as_ptr() as usize, flags as usize, 0o600, 0, 0])
    };
    check(opened).map(|fd| fd as i32)
}

/// Whether a file may have so many bytes: a call that made it longer would not only fail but raise SIGXFSZ, of which the
/// calling program knows nothing.
///
/// # Errors
/// EFBIG.
pub fn may_be_as_long(bytes: u64) -> Result<()> {
    if limits_of(libc::RLIMIT_FSIZE).0 < bytes { Err(Errno::FBIG) } else { Ok(()) }
}

/// Octets that [`append_space`] can append.
const MOST_SPACE: usize = 8192;
static ZEROES: [u8; MOST_SPACE] = [0; MOST_SPACE];

/// The first octets of a file; zeroes where it is shorter.
///
/// # Errors
/// As pread(2).
pub fn first_octets(fd: i32) -> Result<[u8; 8]> {
    let mut first = [0u8; 8];
    read_at(fd, &mut first, 0)?;
    Ok(first)
}

/// Reads what a file has at an offset; returns how much that was.
///
/// # Errors
/// As pread(2).
pub fn read_at(fd: i32, octets: &mut [u8], at: u64) -> Result<usize> {
    let args = [fd as usize, octets.as_mut_ptr() as usize, octets.len(), at as usize, 0, 0];
    // SAFETY: the kernel writes no more than there is room for.
    check(unsafe { syscall(libc::SYS_pread64, args) })
}

/// Opens the file that a path leads to for reading. Waits for nothing that may be there instead.
///
/// # Errors
/// As open(2).
pub fn open_to_read(path: &std::ffi::CStr) -> Result<i32> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0, 0, 0];
    // SAFETY: the path is a NUL-terminated string.
    check(unsafe { syscall(libc::SYS_openat, args) }).map(|fd| fd as i32)
}

/// Whether a file has an extended attribute of this name.
///
/// # Errors
/// As fgetxattr(2), but for what says that there is none.
pub fn has_attribute(fd: i32, name: &std::ffi::CStr) -> Result<bool> {
    // SAFETY: the kernel reads a NUL-terminated name, and writes nothing where there is no room for it.
    match check(unsafe { syscall(libc::SYS_fgetxattr, [fd as usize, name.as_ptr() as usize, 0, 0, 0, 0]) }) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Appends `record` (8192 at most) bytes of zeroes to a file that [`open_rw`] has opened, and returns their offset, a multiple of `record`. The kernel
/// keeps those apart who append at a time (O_APPEND, open(2)): a lock could be had by everybody who may read the file.
///
/// # Errors
/// As lseek(2) and write(2); EFBIG where no file may be as long; EAGAIN where others append what is no record again and again.
pub fn append_space(fd: i32, record: usize) -> Result<u64> {
    let seek = |from: i32| {
        // SAFETY: lseek takes integers.
        check(unsafe { syscall(libc::SYS_lseek, [fd as usize, 0, from as usize, 0, 0, 0]) }).map(|n| n as u64)
    };
    let unit = record as u64;
    if record == 0 || record > MOST_SPACE {
        return Err(Errno::INVAL);
    }
    for _ in 0..4 {
        // A file that something else has written to, or that was cut.
        let end = seek(libc::SEEK_END)?;
        let odd = (end.next_multiple_of(unit) - end) as usize;
        // Others may append meanwhile.
        may_be_as_long(end.saturating_add(64 * unit))?;
        let parts = [odd, record]
            .map(|len| libc::iovec { iov_base: ZEROES.as_ptr().cast_mut().cast(), iov_len: len });
        // SAFETY: writev reads the parts, each of which lies in `ZEROES`.
        let n =
            check(unsafe { syscall(libc::SYS_writev, [fd as usize, parts.as_ptr() as usize, 2, 0, 0, 0]) })?;
        if n as usize != odd + record {
            return Err(Errno::NOSPC);
        }
        let end = seek(libc::SEEK_CUR)?;
        let at = (end - n as u64).next_multiple_of(unit);
        if at + unit <= end {
            return Ok(at);
        }
    }
    Err(Errno::AGAIN)
}

/// Reads a small file (as in /proc) into `buf`; returns the length read.
///
/// # Errors
/// As open(2) and pread(2).
pub fn read_file(path: &std::ffi::CStr, buf: &mut [u8]) -> Result<usize> {
    let _turn = Turn::to_make();
    // SAFETY: the path is NUL terminated.
    let fd = check(unsafe {
        syscall(
            libc::SYS_openat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (libc::O_RDONLY | libc::O_CLOEXEC) as usize,
                0,
                0,
                0,
            ],
        )
    })? as i32;
    let mut len = 0;
    let result = loop {
        if len == buf.len() {
            break Ok(len);
        }
        // At an offset: of a socket, which the program may have put there, nothing is read.
        match read_at(fd, &mut buf[len..], len as u64) {
            Ok(0) => break Ok(len),
            Ok(n) => len += n,
            Err(e) => break Err(e),
        }
    };
    close(fd);
    result
}

/// Whether a text, 128 octets at most, is in a file (as in /proc) of any length.
///
/// # Errors
/// As [`read_file`].
pub(crate) fn is_in_file(path: &std::ffi::CStr, text: &[u8]) -> Result<bool> {
    after_in_file::<0>(path, text).map(|found| found.is_some())
}

/// The `N` octets that follow a text in a file (as in /proc) of any length: 128 octets at most with the text.
///
/// # Errors
/// As [`read_file`].
pub(crate) fn after_in_file<const N: usize>(path: &std::ffi::CStr, text: &[u8]) -> Result<Option<[u8; N]>> {
    const OVERLAP: usize = 128;
    let mut room = [0u8; 512];
    let _turn = Turn::to_make();
    let file = open_to_read(path)?;
    let (mut at, mut kept) = (0, 0);
    let found = loop {
        match read_at(file, &mut room[kept..], at) {
            Ok(0) => break Ok(None),
            Ok(n) => {
                let have = kept + n;
                let whole = room[..have].windows(text.len() + N).find(|some| some.starts_with(text));
                if let Some(behind) = whole.and_then(|some| some.last_chunk()) {
                    break Ok(Some(*behind));
                }
                at += n as u64;
                kept = have.min(OVERLAP);
                room.copy_within(have - kept..have, 0);
            }
            Err(e) => break Err(e),
        }
    };
    close(file);
    found
}

/// What an open descriptor refers to, as (device, inode).
///
/// # Errors
/// EBADF.
pub fn identity(fd: i32) -> Result<(u64, u64)> {
    status_of(fd).map(|st| (st.st_dev, st.st_ino))
}

/// Memory, or room on a disk, that a file takes, in octets.
///
/// # Errors
/// EBADF.
pub fn allocated(fd: i32) -> Result<u64> {
    status_of(fd).map(|st| 512 * st.st_blocks as u64)
}

/// What kind of file a descriptor leads to (S_IFMT); 0 for those that the kernel makes without a name: eventfd, epoll and others.
///
/// # Errors
/// EBADF.
pub fn kind(fd: i32) -> Result<u32> {
    status_of(fd).map(|st| st.st_mode & libc::S_IFMT)
}

/// Who owns what a descriptor leads to, in this user namespace: of a socket, who made it.
///
/// # Errors
/// EBADF.
pub fn owner(fd: i32) -> Result<u32> {
    status_of(fd).map(|st| st.st_uid)
}

/// Who owns the file of this name, in this user namespace; a symbolic link stands for itself.
///
/// # Errors
/// As stat(2).
pub fn owner_of(path: &std::ffi::CStr) -> Result<u32> {
    status_at(libc::AT_FDCWD, path).map(|st| st.st_uid)
}

/// The kind of file system of what a descriptor leads to (linux/magic.h).
///
/// # Errors
/// EBADF.
pub(crate) fn file_system(fd: i32) -> Result<u64> {
    let mut st = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fstatfs writes one statfs structure.
    check(unsafe { syscall(libc::SYS_fstatfs, [fd as usize, st.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
    // SAFETY: zeroed is a valid statfs, and the kernel filled it.
    Ok(unsafe { st.assume_init() }.f_type as u64)
}

/// fstat(2).
///
/// # Errors
/// EBADF.
pub(crate) fn status_of(fd: i32) -> Result<libc::stat> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: fstat writes one stat structure.
    check(unsafe { syscall(libc::SYS_fstat, [fd as usize, st.as_mut_ptr() as usize, 0, 0, 0, 0]) })?;
    // SAFETY: zeroed is a valid stat, and the kernel filled it.
    Ok(unsafe { st.assume_init() })
}

/// Of a name in a folder; a symbolic link stands for itself.
///
/// # Errors
/// As stat(2).
pub(crate) fn status_at(folder: i32, name: &std::ffi::CStr) -> Result<libc::stat> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let flags = libc::AT_SYMLINK_NOFOLLOW as usize;
    // SAFETY: newfstatat reads a NUL-terminated name and writes one stat structure.
    check(unsafe {
        syscall(
            libc::SYS_newfstatat,
            [folder as usize, name.as_ptr() as usize, st.as_mut_ptr() as usize, flags, 0, 0],
        )
    })?;
    // SAFETY: zeroed is a valid stat, and the kernel filled it.
    Ok(unsafe { st.assume_init() })
}

/// The inode of what a path leads to: names a namespace by /proc/self/ns/*.
///
/// # Errors
/// As stat(2).
pub fn inode(path: &std::ffi::CStr) -> Result<u64> {
    status(path).map(|st| st.st_ino)
}

/// What a path leads to, as (device, inode).
///
/// # Errors
/// As stat(2).
pub fn file(path: &std::ffi::CStr) -> Result<(u64, u64)> {
    status(path).map(|st| (st.st_dev, st.st_ino))
}

/// How many names a file or directory has.
///
/// # Errors
/// As stat(2).
pub fn links(path: &std::ffi::CStr) -> Result<u64> {
    status(path).map(|st| st.st_nlink)
}

/// Whether `uid` owns a directory, no symbolic link nor behind one of `/proc`, and nobody else may write to it. Of [`OVERFLOW_UID`](crate::process::OVERFLOW_UID) there is none.
pub fn is_own_directory(path: &std::ffi::CStr, uid: u32) -> bool {
    is_own(status_behind(path, libc::O_NOFOLLOW), uid)
}

/// The same of an open one.
pub fn is_own_directory_open(fd: i32, uid: u32) -> bool {
    is_own(status_of(fd), uid)
}

fn is_own(directory: Result<libc::stat>, uid: u32) -> bool {
    uid != crate::process::OVERFLOW_UID
        && directory.is_ok_and(|st| {
            st.st_mode & libc::S_IFMT == libc::S_IFDIR && st.st_uid == uid && st.st_mode & 0o022 == 0
        })
}

/// Whether in the directory that a path leads to, by no link of `/proc`, only `uid` and root can put names, or, where everybody can, nobody can take away what is another's.
pub fn is_safe_directory(path: &std::ffi::CStr, uid: u32) -> bool {
    status_behind(path, 0).is_ok_and(|st| st.st_mode & libc::S_IFMT == libc::S_IFDIR && is_safe(&st, uid))
}

fn status_behind(path: &std::ffi::CStr, flags: i32) -> Result<libc::stat> {
    let fd = crate::no_magic::open_at(libc::AT_FDCWD, path, libc::O_PATH | flags)?;
    let status = status_of(fd);
    close(fd);
    status
}

pub(crate) fn is_safe(directory: &libc::stat, uid: u32) -> bool {
    let mode = directory.st_mode;
    let owned = directory.st_uid == uid || directory.st_uid == 0;
    owned && (mode & 0o022 == 0 || mode & libc::S_ISVTX != 0)
}

fn status(path: &std::ffi::CStr) -> Result<libc::stat> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: newfstatat writes one stat structure.
    check(unsafe {
        syscall(
            libc::SYS_newfstatat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, st.as_mut_ptr() as usize, 0, 0, 0],
        )
    })?;
    // SAFETY: zeroed is a valid stat, and the kernel filled it.
    Ok(unsafe { st.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_it_stands_in_a_file() {
        let path = std::env::temp_dir().join(format!("bypath-is-in-file-{}", process::pid()));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        for before in [0, 1, 440, 500, 505, 511, 512, 513, 960, 5000] {
            std::fs::write(&path, ["x".repeat(before).as_str(), "needle", &"y".repeat(before)].concat())
                .unwrap();
            assert_eq!(is_in_file(&name, b"needle"), Ok(true), "behind {before}");
            assert_eq!(is_in_file(&name, b"needley!"), Ok(false), "behind {before}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(is_in_file(&name, b"needle"), Err(Errno::NOENT));
    }

    #[test]
    fn space_is_appended_in_whole_records() {
        let path = std::env::temp_dir().join(format!("bypath-space-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
        std::fs::write(&path, [1; 100]).expect("a file");
        let fd = open_rw(&name).expect("the file");
        std::fs::remove_file(&path).expect("the file");
        // Behind what was there before.
        assert_eq!(append_space(fd, 64), Ok(128));
        let wanted: Vec<u64> = (3..35).map(|n| n * 64).collect();
        let appended = |_| append_space(fd, 64);
        assert_eq!((3..35).map(appended).collect::<Result<Vec<_>>>(), Ok(wanted));
        assert_eq!(append_space(fd, 0), Err(Errno::INVAL));
        close(fd);
    }
}
