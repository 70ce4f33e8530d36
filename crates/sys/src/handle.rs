//! Memory that is left open for the next program image, and opens for programs of its maker's user alone.
//!
//! What stays open over an exec anybody has who comes after it: programs that become another user (su, gosu), and those that other threads start
//! meanwhile. So what stays open is a *handle*, a descriptor that opens nothing (O_PATH, open(2)). Who wants the memory opens it anew by
//! `/proc/self/fd`, where the kernel asks its mode as of any file: its owner may.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd, memfd, open_files, turn};

/// A handle, at or above `floor` and close-on-exec, of memory (memfd) that this user has made. Nobody else can open it by its handles from now on.
///
/// # Errors
/// As fchmod(2): EPERM, it is another user's; as open(2): EMFILE, ENOENT without `/proc`.
pub fn make(memory: i32, floor: i32) -> Result<i32> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_fchmod, [memory as usize, 0o600, 0, 0, 0, 0]) })?;
    turn::high(floor, || open_files::open_own(memory, libc::O_PATH | libc::O_CLOEXEC))
}

/// Whether a descriptor of this process is a handle of so many octets of memory.
pub fn is_of(number: i32, size: usize) -> bool {
    let is_handle = fd::status_flags(number).is_ok_and(|flags| flags & libc::O_PATH != 0);
    is_handle
        && memfd::is_anonymous(number)
        && fd::status_of(number).is_ok_and(|st| usize::try_from(st.st_size) == Ok(size))
}

/// Opens its memory, close-on-exec. Nothing else is opened.
///
/// # Errors
/// EACCES: it is another user's. EINVAL: it is no handle of memory.
pub fn open(handle: i32) -> Result<i32> {
    if !memfd::is_anonymous(handle) {
        return Err(Errno::INVAL);
    }
    open_files::open_own(handle, libc::O_RDWR | libc::O_CLOEXEC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const SIZE: usize = 8192;

    fn memory() -> i32 {
        memfd::create(c"any-name", SIZE, 3).expect("memory")
    }

    #[test]
    fn a_handle_opens_nothing_and_its_memory_can_be_had_by_it() {
        let memory = memory();
        let handle = make(memory, 20).expect("a handle");
        assert!(handle >= 20 && fd::is_cloexec(handle) == Ok(true));
        assert!(is_of(handle, SIZE) && !is_of(handle, SIZE + 1) && !is_of(memory, SIZE));
        assert_eq!(fd::first_octets(handle), Err(Errno::BADF));
        let opened = open(handle).expect("the memory");
        assert_eq!((fd::identity(opened), memfd::sealed_size(opened)), (fd::identity(memory), Ok(SIZE)));
        for number in [opened, handle, memory] {
            fd::close(number);
        }
    }

    #[test]
    fn nobody_else_has_its_memory() {
        if crate::process::euid() != 0 {
            // The summary of the whole test command names it.
            if let Some(file) = std::env::var_os("BYPATH_TEST_SKIPS") {
                let mut file = File::options().append(true).open(file).expect("the list of what was skipped");
                writeln!(file, "sys::handle\tneeds root to become another user").expect("written");
            }
            return;
        }
        let memory = memory();
        let handle = make(memory, 3).expect("a handle");
        // A system call of its own changes the thread alone.
        let told = std::thread::spawn(move || {
            // SAFETY: integers only.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, 65533, 65533, 65533) };
            (done, open(handle), make(memory, 3))
        });
        assert_eq!(told.join().expect("an answer"), (0, Err(Errno::ACCESS), Err(Errno::PERM)));
        fd::close(handle);
        fd::close(memory);
    }

    #[test]
    fn what_is_no_memory_is_not_opened() {
        let file = File::open("/proc/self/exe").expect("this program");
        assert_eq!(open(file.as_raw_fd()), Err(Errno::INVAL));
        assert!(!is_of(file.as_raw_fd(), SIZE) && !is_of(-1, SIZE));
    }
}
