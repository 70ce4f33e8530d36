//! Another program image in this process: every exec*. Where the next image will load this library too, it is told in
//! its environment which connections it may go on with.

use crate::errno::{self, kept};
use crate::real::{self, hook};
use crate::{init, memory};
use bypath_sockets::hook::{self, DEED, Deed, Image};
use bypath_sys::mem::Mapping;
use libc::{c_char, c_int};
use std::arch::naked_asm;
use std::ffi::CStr;

type Strings = *const *const c_char;

hook! {
    /// `execve()`.
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int, raw Some(libc::SYS_execve); {
        replacing(envp, || image_at(path), |legacy| real(path, argv, legacy.unwrap_or(envp)))
    }

    /// `execv()`.
    fn execv(path: *const c_char, argv: Strings) -> c_int, raw None; {
        replacing(environment(), || image_at(path), |legacy| match legacy {
            Some(envp) => real_execve(path, argv, envp),
            None => real(path, argv),
        })
    }

    /// `execvp()`.
    fn execvp(file: *const c_char, argv: Strings) -> c_int, raw None; {
        replacing(environment(), || image_named(file), |legacy| match legacy {
            Some(envp) => real_execvpe(file, argv, envp),
            None => real(file, argv),
        })
    }

    /// `execvpe()`.
    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int, raw None; {
        replacing(envp, || image_named(file), |legacy| real(file, argv, legacy.unwrap_or(envp)))
    }

    /// `execveat()`. Its image inherits connections as any other program does.
    fn execveat(dir: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int, raw Some(libc::SYS_execveat); {
        replacing(envp, || None, |_| real(dir, path, argv, envp, flags))
    }

    /// `fexecve()`.
    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int, raw None; {
        replacing(envp, || image_of(|st| {
            // SAFETY: fstat writes one stat structure.
            unsafe { libc::fstat(fd, st) }
        }), |legacy| real(fd, argv, legacy.unwrap_or(envp)))
    }
}

fn real_execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    type Execve = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
    let address = real::load::<{ real::index("execve") }>();
    // SAFETY: the C library has this function, of this type; the arguments are the program's, or as valid.
    unsafe { std::mem::transmute::<usize, Execve>(address)(path, argv, envp) }
}

fn real_execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    type Execvpe = unsafe extern "C" fn(*const c_char, Strings, Strings) -> c_int;
    let address = real::load::<{ real::index("execvpe") }>();
    // SAFETY: as above.
    unsafe { std::mem::transmute::<usize, Execvpe>(address)(file, argv, envp) }
}

/// The real exec returns only if it failed. Also runs in vfork children. `exec` is given the environment to use instead
/// of `envp`, if there is something to leave to the next image.
fn replacing(
    envp: Strings,
    image: impl FnOnce() -> Option<Image>,
    exec: impl Fn(Option<Strings>) -> c_int,
) -> c_int {
    let deed = kept(|| {
        let heirs =
            hook::has_legacy() && real::load::<{ real::index("execvpe") }>() != 0 && loads_library(envp);
        hook::exec_begin(if heirs { image() } else { None })
    });
    let extended = deed.as_ref().and_then(|deed| kept(|| extend(envp, deed)));
    let ret = exec(extended.as_ref().map(|m| m.addr().cast_const().cast()));
    // The variable may be just too much.
    let too_long = extended.is_some() && errno::get() == libc::E2BIG;
    kept(|| {
        if let Some(m) = extended {
            // SAFETY: the failed exec was the only one to know of it.
            unsafe { m.unmap() };
        }
        hook::exec_failed(deed);
    });
    let nothing: fn() -> Option<Image> = || None;
    if too_long { replacing(envp, nothing, exec) } else { ret }
}

unsafe extern "C" {
    static mut environ: Strings;
}

fn environment() -> Strings {
    // SAFETY: a pointer that is read as a whole; the exec functions of the C library do the same.
    unsafe { environ }
}

/// The strings of an environment, as long as they can be read.
fn strings(envp: Strings) -> impl Iterator<Item = *const c_char> {
    (0..).map_while(move |i| memory::read(envp.wrapping_add(i)).filter(|s| !s.is_null()))
}

/// The value, if `string` is `name=value`.
fn value_of<'a>(string: *const c_char, name: &str) -> Option<&'a [u8]> {
    let mut at = string.cast::<u8>();
    for byte in name.bytes().chain([b'=']) {
        if memory::read(at) != Some(byte) {
            return None;
        }
        at = at.wrapping_add(1);
    }
    // SAFETY: a string that the program hands to exec, of which that much can be read, is NUL-terminated.
    Some(unsafe { CStr::from_ptr(at.cast()) }.to_bytes())
}

/// Whether the loader of a program with this environment will load this library, by the name it has here.
fn loads_library(envp: Strings) -> bool {
    let Some(own) = init::library() else { return false };
    let list = strings(envp).find_map(|s| value_of(s, "LD_PRELOAD"));
    list.is_some_and(|list| list.split(|b| matches!(b, b' ' | b':')).any(|name| name == own.to_bytes()))
}

/// `envp` with the deed, and without any that went before. It is mapped: malloc may be locked by a thread that was not
/// forked.
fn extend(envp: Strings, deed: &Deed) -> Option<Mapping> {
    const WORD: usize = size_of::<usize>();
    let kept = || strings(envp).filter(|s| value_of(*s, DEED).is_none());
    let count = kept().count();
    let text = deed.variable();
    let list = (count + 2) * WORD;
    let map = Mapping::private(list + text.len()).ok()?;
    let (array, copy) = (map.addr().cast::<*const c_char>(), map.addr().wrapping_add(list));
    // SAFETY: both parts lie in the fresh mapping, which is this large and zeroed.
    unsafe {
        for (i, string) in kept().take(count).enumerate() {
            array.add(i).write(string);
        }
        copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
        array.add(count).write(copy.cast_const().cast());
    }
    Some(map)
}

/// The image that the file at `path` makes: not one that runs with privileges, which loads no library, and not a script,
/// whose interpreter would be found in its place.
fn image_at(path: *const c_char) -> Option<Image> {
    // SAFETY: the program's path, as for the exec that follows; stat writes one stat structure.
    let image = image_of(|st| unsafe { libc::stat(path, st) })?;
    let mut byte = 0u8;
    // SAFETY: strings that end in NUL; getxattr writes nothing where the size is 0.
    let capable = unsafe { libc::getxattr(path, c"security.capability".as_ptr(), (&raw mut byte).cast(), 0) };
    (capable <= 0).then_some(image)
}

fn image_of(stat: impl FnOnce(*mut libc::stat) -> c_int) -> Option<Image> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    if stat(st.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: filled by the call, and zeroes are valid.
    let st = unsafe { st.assume_init() };
    let plain =
        st.st_mode & libc::S_IFMT == libc::S_IFREG && st.st_mode & (libc::S_ISUID | libc::S_ISGID) == 0;
    plain.then_some(Image { device: st.st_dev, inode: st.st_ino })
}

/// As [`image_at`], for a name that is looked up in PATH. A wrong guess leaves a deed that nobody takes.
fn image_named(file: *const c_char) -> Option<Image> {
    // SAFETY: the program's string, as for the exec that follows.
    let name = unsafe { CStr::from_ptr(file) }.to_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return image_at(file);
    }
    let list = strings(environment()).find_map(|s| value_of(s, "PATH")).unwrap_or(b"/bin:/usr/bin");
    list.split(|b| *b == b':').find_map(|directory| {
        let mut path = [0u8; libc::PATH_MAX as usize];
        let slash = directory.len();
        path.get_mut(..slash)?.copy_from_slice(directory);
        *path.get_mut(slash)? = b'/';
        path.get_mut(slash + 1..slash + 1 + name.len())?.copy_from_slice(name);
        let path = CStr::from_bytes_until_nul(&path).ok()?.as_ptr();
        // SAFETY: a NUL-terminated path.
        if unsafe { libc::access(path, libc::X_OK) } == 0 { image_at(path) } else { None }
    })
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
