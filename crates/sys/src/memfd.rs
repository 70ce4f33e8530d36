//! Memory as a file without a name (memfd_create(2)): made, sealed, and told from all other files.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, turn};
use std::ffi::CStr;

/// Seals that forbid a change of size and further seals.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Those with which it cannot be mapped to be written.
const READ_ONLY: i32 = libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE;

/// Creates a close-on-exec memfd of `size` bytes that can neither shrink nor grow, above `floor`.
///
/// # Errors
/// EMFILE, ENOMEM, EPERM (seccomp); EFBIG, without the signal, if no file may be that long (RLIMIT_FSIZE).
pub fn create(name: &CStr, size: usize, floor: i32) -> Result<i32> {
    fd::may_be_as_long(size as u64)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let fd = turn::high(floor, || {
        // SAFETY: the name is NUL terminated.
        check(unsafe {
            syscall(libc::SYS_memfd_create, [name.as_ptr() as usize, flags as usize, 0, 0, 0, 0])
        })
        .map(|made| made as i32)
    })?;
    let sized = (|| {
        // SAFETY: integers only.
        check(unsafe { syscall(libc::SYS_ftruncate, [fd as usize, size, 0, 0, 0, 0]) })?;
        // SAFETY: integers only.
        check(unsafe {
            syscall(libc::SYS_fcntl, [fd as usize, libc::F_ADD_SEALS as usize, SEALS as usize, 0, 0, 0])
        })
    })();
    match sized {
        Ok(_) => Ok(fd),
        Err(e) => {
            fd::close(fd);
            Err(e)
        }
    }
}

/// Size of a memfd whose size is sealed, and nothing else of it, for good.
///
/// # Errors
/// EPERM if the seals are missing (its owner could shrink it under our feet), or one forbids to write: older kernels find that in mmap(2) when MAP_FIXED has unmapped already what was
/// there. EINVAL for anything that is not a memfd of ordinary pages: of huge pages there may be none left when one is touched, and no part can be unmapped.
pub fn sealed_size(memfd: i32) -> Result<usize> {
    // SAFETY: integers only.
    let seals =
        check(unsafe { syscall(libc::SYS_fcntl, [memfd as usize, libc::F_GET_SEALS as usize, 0, 0, 0, 0]) })?;
    if seals as i32 & (SEALS | READ_ONLY) != SEALS {
        return Err(Errno::PERM);
    }
    // SAFETY: plain integers, which the kernel fills.
    let mut kind: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a local.
    check(unsafe { syscall(libc::SYS_fstatfs, [memfd as usize, &raw mut kind as usize, 0, 0, 0, 0]) })?;
    if kind.f_type != libc::TMPFS_MAGIC {
        return Err(Errno::INVAL);
    }
    // lseek(2) would wait for who reads or writes by the same description, which is whoever sent it.
    usize::try_from(fd::status_of(memfd)?.st_size).map_err(|_| Errno::INVAL)
}

/// Whether what a descriptor leads to, be it one that opens nothing (O_PATH), is memory of the kernel's own file system, in which memfds of
/// ordinary pages are, and nothing that has a name: so opening it does nothing, and nobody is waited for. What it is is not
/// asked of its file system, which may be a program of somebody's (FUSE) that does not answer.
pub fn is_anonymous(fd: i32) -> bool {
    let known = anonymous_place();
    known.is_ok() && known == place_of(fd)
}

/// The device of that file system, major and minor number: `/proc` shows it of what is mapped.
///
/// # Errors
/// No more descriptors, no statx(2).
pub fn anonymous_device() -> Result<(u32, u32)> {
    anonymous_place().map(|(device, _)| device)
}

fn anonymous_place() -> Result<((u32, u32), u32)> {
    let own = create(c"bypath-nothing", 0, 3)?;
    let place = place_of(own);
    fd::close(own);
    place
}

/// The device of the file system of what a descriptor leads to, as the kernel knows it already: that file system is not asked.
#[cfg(feature = "link")]
pub(crate) fn device_of(fd: i32) -> Result<(u32, u32)> {
    place_of(fd).map(|(device, _)| device)
}

/// The file system (its device) of what a descriptor leads to, and what kind of file that is (S_IFMT), as the kernel knows them already.
fn place_of(fd: i32) -> Result<((u32, u32), u32)> {
    let mut st = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let args = [fd as usize, c"".as_ptr() as usize, flags as usize, 0, st.as_mut_ptr() as usize, 0];
    // SAFETY: statx reads a NUL-terminated name and writes one statx structure.
    check(unsafe { syscall(libc::SYS_statx, args) })?;
    // SAFETY: zeroed is a valid statx, and the kernel filled it.
    let st = unsafe { st.assume_init() };
    Ok(((st.stx_dev_major, st.stx_dev_minor), u32::from(st.stx_mode) & libc::S_IFMT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_sealed_memory_is_asked_without_touching_its_position() {
        use std::io::{Seek, SeekFrom};
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: it was made just now, and is nobody else's.
        let mut file = unsafe { std::fs::File::from_raw_fd(create(c"any-name", 8192, 3).unwrap()) };
        file.seek(SeekFrom::Start(5)).unwrap();
        assert_eq!(sealed_size(file.as_raw_fd()), Ok(8192));
        assert_eq!(file.stream_position().unwrap(), 5);
    }

    #[test]
    fn anonymous_memory_is_told_from_all_that_has_a_name() {
        let own = create(c"any-name", 4096, 3).unwrap();
        assert!(is_anonymous(own));
        fd::close(own);
        let open = |path: &str| std::fs::File::open(path).unwrap();
        let dir = std::env::temp_dir();
        let (pipe, _) = std::io::pipe().unwrap();
        for file in
            [open("/dev/null"), open("/proc/self/maps"), open("/proc/self/exe"), open(dir.to_str().unwrap())]
        {
            assert!(!is_anonymous(std::os::fd::AsRawFd::as_raw_fd(&file)), "{file:?}");
        }
        assert!(!is_anonymous(std::os::fd::AsRawFd::as_raw_fd(&pipe)) && !is_anonymous(-1));
    }

    /// Memory with these seals.
    fn sealed(seals: i32) -> i32 {
        let name = c"bypath-sealed".as_ptr() as usize;
        let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
        // SAFETY: the name is NUL terminated.
        let made = check(unsafe { syscall(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]) });
        let fd = made.expect("a memfd") as i32;
        for call in [
            [libc::SYS_ftruncate as usize, 4096, 0],
            [libc::SYS_fcntl as usize, libc::F_ADD_SEALS as usize, seals as usize],
        ] {
            // SAFETY: integers only.
            check(unsafe { syscall(call[0] as i64, [fd as usize, call[1], call[2], 0, 0, 0]) })
                .expect("it is new");
        }
        fd
    }

    /// Whoever may add a seal can add one that forbids to write, at any moment; older kernels unmap what was there before they find it.
    #[test]
    fn memory_is_to_have_all_seals_but_those_that_forbid_to_write() {
        let length = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
        for (seals, outcome) in [
            (SEALS, Ok(4096)),
            (length, Err(Errno::PERM)),
            (libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL, Err(Errno::PERM)),
            (SEALS | libc::F_SEAL_WRITE, Err(Errno::PERM)),
            (SEALS | libc::F_SEAL_FUTURE_WRITE, Err(Errno::PERM)),
        ] {
            let fd = sealed(seals);
            assert_eq!(sealed_size(fd), outcome, "{seals:#x}");
            fd::close(fd);
        }
    }

    #[test]
    fn sealed_memory_of_huge_pages_is_refused() {
        let name = c"bypath-huge".as_ptr() as usize;
        let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB) as usize;
        // SAFETY: the name is NUL terminated.
        let made = check(unsafe { syscall(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]) });
        let Ok(huge) = made.map(|fd| fd as i32) else {
            eprintln!("SKIP sealed_memory_of_huge_pages_is_refused: this kernel has none");
            return;
        };
        // SAFETY: integers only. As long as pages of x86-64 and of AArch64 can be.
        check(unsafe { syscall(libc::SYS_ftruncate, [huge as usize, 1 << 30, 0, 0, 0, 0]) })
            .expect("a length");
        let seals = [huge as usize, libc::F_ADD_SEALS as usize, SEALS as usize, 0, 0, 0];
        // SAFETY: integers only.
        check(unsafe { syscall(libc::SYS_fcntl, seals) }).expect("seals");
        assert_eq!(sealed_size(huge), Err(Errno::INVAL));
        fd::close(huge);
    }
}
