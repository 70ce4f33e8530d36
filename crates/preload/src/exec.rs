//! Another program image in this process: every exec*.

use crate::errno::kept;
use crate::real::hook;
use bypath_sockets::hook;
use libc::{c_char, c_int};
use std::arch::naked_asm;

type Strings = *const *const c_char;

hook! {
    /// `execve()`.
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int, raw Some(libc::SYS_execve); {
        replacing(|| real(path, argv, envp))
    }

    /// `execv()`.
    fn execv(path: *const c_char, argv: Strings) -> c_int, raw None; {
        replacing(|| real(path, argv))
    }

    /// `execvp()`.
    fn execvp(file: *const c_char, argv: Strings) -> c_int, raw None; {
        replacing(|| real(file, argv))
    }

    /// `execvpe()`.
    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int, raw None; {
        replacing(|| real(file, argv, envp))
    }

    /// `execveat()`.
    fn execveat(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int, raw Some(libc::SYS_execveat); {
        replacing(|| real(dir, path, argv, envp, flags))
    }

    /// `fexecve()`.
    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int, raw None; {
        replacing(|| real(fd, argv, envp))
    }
}

/// The real exec returns only if it failed. Also runs in vfork children.
fn replacing(exec: impl FnOnce() -> c_int) -> c_int {
    kept(hook::exec_begin);
    let ret = exec();
    kept(hook::exec_failed);
    ret
}

/// The variadic forms. Arguments come in rsi, rdx, rcx, r8, r9 and then on the stack: with the return address
/// taken off and the registers pushed in its place the whole list lies in memory as the array that execv() wants,
/// NULL at its end (and the environment of execle behind that).
macro_rules! variadic {
    ($($(#[$meta:meta])* $name:ident => $to:ident;)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// That of the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_path: *const c_char, _arg: *const c_char) -> c_int {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // The stack is aligned here as a call needs it.
                "push rax",
                "call {to}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                to = sym $to,
            )
        }
        const _: usize = crate::real::index(stringify!($name));
    )*};
}

variadic! {
    /// `execl()`.
    execl => list;
    /// `execlp()`.
    execlp => list_search;
    /// `execle()`.
    execle => list_environment;
}

unsafe extern "C" fn list(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: a NULL-terminated array, put together from the program's arguments.
    unsafe { execv(path, argv) }
}

unsafe extern "C" fn list_search(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: as in `list`.
    unsafe { execvp(file, argv) }
}

unsafe extern "C" fn list_environment(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the array ends in NULL and the environment follows, by the contract of execle.
    unsafe {
        let mut end = argv;
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, argv, (*end.add(1)).cast())
    }
}
