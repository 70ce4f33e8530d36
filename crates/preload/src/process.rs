//! Processes that come and end: fork and its kin, children with another program, exit.

use crate::child::{borrowed_memory, forking, forking_untold};
use crate::errno::{self, kept};
use crate::exec;
use crate::real::hook;
use bypath_sockets::hook::{self, Reason};
use libc::{c_char, c_int, c_void, pid_t};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

hook! {
    /// `fork()`.
    fn fork() -> pid_t, raw None; aka __fork; {
        forking(real)
    }

    /// `_Fork()`: fork without the program's atfork functions.
    fn _Fork() -> pid_t, raw Some(libc::SYS_fork); {
        forking_untold(real)
    }

    /// `forkpty()`.
    fn forkpty(master: *mut c_int, name: *mut c_char, termios: *mut c_void, size: *mut c_void) -> c_int, raw None; {
        forking(|| real(master, name, termios, size))
    }

    /// `daemon()`, whose fork and exit happen inside the C library: done here with the same calls.
    fn daemon(keep_directory: c_int, keep_descriptors: c_int) -> c_int, raw None; {
        // SAFETY: plain calls; the child goes on with the program's own stack, as in the C library.
        unsafe {
            match fork() {
                -1 => return -1,
                0 => {}
                _ => _exit(0),
            }
            if libc::setsid() == -1 {
                return -1;
            }
            if keep_directory == 0 {
                libc::chdir(c"/".as_ptr());
            }
            if keep_descriptors == 0 { null_descriptors() } else { 0 }
        }
    }

    /// `posix_spawn()`.
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int,
    raw None; {
        spawning();
        exec::spawning(envp, is_handed(actions), |envp| real(pid, path, actions, attributes, argv, envp))
    }

    /// `posix_spawnp()`.
    fn posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int,
    raw None; {
        spawning();
        exec::spawning(envp, is_handed(actions), |envp| real(pid, file, actions, attributes, argv, envp))
    }

    /// `posix_spawn_file_actions_adddup2()`: the new program gets the descriptor even if it is close-on-exec.
    fn posix_spawn_file_actions_adddup2(actions: *mut c_void, old: c_int, new: c_int) -> c_int, raw None; {
        if hook::is_followed(old) {
            kept(|| hook::recall(old, Reason::RecalledSpawn, true));
        }
        if hook::serves() && hook::served::is_served(old) {
            HANDED.store(actions as usize, Relaxed);
        }
        real(actions, old, new)
    }

    /// `pidfd_spawn()`.
    fn pidfd_spawn(pidfd: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int,
    raw None; {
        if crate::real::load::<{ crate::real::index("pidfd_spawn") }>() == 0 {
            // Answers the error number instead of setting errno; programs then take another way.
            return libc::ENOSYS;
        }
        spawning();
        exec::spawning(envp, is_handed(actions), |envp| real(pidfd, path, actions, attributes, argv, envp))
    }

    /// `pidfd_spawnp()`.
    fn pidfd_spawnp(pidfd: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, argv: *const *mut c_char, envp: *const *mut c_char) -> c_int,
    raw None; {
        if crate::real::load::<{ crate::real::index("pidfd_spawnp") }>() == 0 {
            return libc::ENOSYS;
        }
        spawning();
        exec::spawning(envp, is_handed(actions), |envp| real(pidfd, file, actions, attributes, argv, envp))
    }

    /// `system()`.
    fn system(command: *const c_char) -> c_int, raw None; {
        spawning();
        real(command)
    }

    /// `popen()`.
    fn popen(command: *const c_char, mode: *const c_char) -> *mut libc::FILE, raw None; aka _IO_popen; {
        spawning();
        real(command, mode)
    }

    /// `wordexp()`: runs a shell for command substitutions.
    fn wordexp(words: *const c_char, to: *mut c_void, flags: c_int) -> c_int, raw None; {
        spawning();
        real(words, to, flags)
    }
}

/// The last file actions by which a new program gets a socket of a netstack service.
static HANDED: AtomicUsize = AtomicUsize::new(0);

/// Whether these are it, as far as can be told.
fn is_handed(actions: *const c_void) -> bool {
    !actions.is_null() && HANDED.load(Relaxed) == actions as usize
}

#[inline]
fn spawning() {
    if !borrowed_memory() {
        kept(hook::spawn_begin);
    }
}

/// 0, 1 and 2 become /dev/null.
///
/// # Safety
/// The program asked for it.
unsafe fn null_descriptors() -> c_int {
    // SAFETY: descriptors are plain numbers here; `st` is only read after fstat filled it.
    unsafe {
        let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        let mut st: libc::stat = std::mem::zeroed();
        if fd == -1 || libc::fstat(fd, &raw mut st) != 0 {
            return -1;
        }
        if st.st_mode & libc::S_IFMT != libc::S_IFCHR || st.st_rdev != libc::makedev(1, 3) {
            crate::sock::close(fd);
            return errno::fail(libc::ENODEV);
        }
        for target in 0..=2 {
            crate::sock::dup2(fd, target);
        }
        if fd > 2 {
            crate::sock::close(fd);
        }
    }
    0
}

/// Before a process ends without running destructors; not in a vfork child, whose parent lives on.
#[inline]
fn ending() {
    if !borrowed_memory() {
        hook::exiting();
    }
}

macro_rules! endings {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// That of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            ending();
            let address = crate::real::load::<{ crate::real::index(stringify!($name)) }>();
            if address != 0 {
                // SAFETY: the next definition of this symbol, which has this type.
                unsafe {
                    let f: unsafe extern "C" fn(c_int) -> ! = std::mem::transmute(address);
                    f(status)
                }
            }
            loop {
                // SAFETY: ends the process.
                unsafe { crate::raw::syscall(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
            }
        }
    )*};
}

endings! {
    /// `_exit()`.
    _exit;
    /// `_Exit()`.
    _Exit;
    /// `quick_exit()`: its own functions run after the flush, on the kernel path.
    quick_exit;
}
