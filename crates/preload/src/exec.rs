//! Another program image in this process: every exec*. Where the next image will load this library too, it is told in
//! its environment which connections it may go on with. One that inherits a socket of a netstack service loads it, whatever the program
//! leaves of the environment: it could do nothing with a listening one.

use crate::child::borrowed_memory;
use crate::errno::{self, kept};
use crate::real::{self, hook};
use crate::{init, memory};
use bypath_sockets::hook::{self, DEED, Image};
use bypath_sys::mem::Mapping;
use bypath_sys::{fd, image};
use libc::{c_char, c_int};
use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::CStr;
use std::sync::OnceLock;

type Strings = *const *const c_char;

hook! {
    /// `execve()`.
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int, raw Some(libc::SYS_execve); {
        replacing(envp, || image_at(text(path)?), |legacy| real(path, argv, legacy.unwrap_or(envp)))
    }

    /// `execv()`.
    fn execv(path: *const c_char, argv: Strings) -> c_int, raw None; {
        replacing(environment(), || image_at(text(path)?), |legacy| match legacy {
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
        replacing(envp, || None, |completed| real(dir, path, argv, completed.unwrap_or(envp), flags))
    }

    /// `fexecve()`.
    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int, raw None; {
        replacing(envp, || image_of(fd), |legacy| real(fd, argv, legacy.unwrap_or(envp)))
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
/// of `envp`, if something is missing there, or there is something to leave to the next image.
fn replacing(
    envp: Strings,
    image: impl FnOnce() -> Option<Image>,
    exec: impl Fn(Option<Strings>) -> c_int,
) -> c_int {
    let Some(completed) = kept(|| complete(envp, false)) else { return handing_over(envp, image, exec) };
    let strings: Strings = completed.addr().cast_const().cast();
    if borrowed_memory() {
        LENT.set(Some((completed.addr() as usize, completed.len())));
    }
    let ret = handing_over(strings, image, |legacy| exec(Some(legacy.unwrap_or(strings))));
    let too_long = errno::get() == libc::E2BIG;
    kept(|| {
        LENT.set(None);
        // SAFETY: the failed exec was the only one to know of it.
        unsafe { completed.unmap() };
    });
    let nothing: fn() -> Option<Image> = || None;
    if too_long { handing_over(envp, nothing, exec) } else { ret }
}

/// A spawn of a program with this environment; `spawn` answers an error number. `is_handed`: it is known to inherit a socket of a service.
pub(crate) fn spawning(
    envp: *const *mut c_char,
    is_handed: bool,
    spawn: impl Fn(*const *mut c_char) -> c_int,
) -> c_int {
    let Some(completed) = kept(|| complete(envp.cast(), is_handed)) else { return spawn(envp) };
    let ret = spawn(completed.addr().cast_const().cast());
    kept(|| {
        // SAFETY: the child has an image of its own, or is gone.
        unsafe { completed.unmap() };
    });
    // It may be just too much.
    if ret == libc::E2BIG { spawn(envp) } else { ret }
}

thread_local! {
    /// The environment that a vfork child of this thread, which has the thread's memory, has made for its exec: address and length.
    static LENT: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// In the parent: a child that borrowed memory has a program of its own now, or is gone.
pub(crate) fn take_back() {
    if let Some((addr, len)) = LENT.take() {
        // SAFETY: the child's mapping, whose only user was the exec that it made.
        unsafe { Mapping::of(addr, len).unmap() };
    }
}

/// As [`replacing`], of an environment that lacks nothing.
fn handing_over(
    envp: Strings,
    image: impl FnOnce() -> Option<Image>,
    exec: impl Fn(Option<Strings>) -> c_int,
) -> c_int {
    let deed = kept(|| {
        hook::exec_begin(|| {
            let heirs = hook::has_legacy()
                && real::load::<{ real::index("execvpe") }>() != 0
                && loads_library(envp)
                && init::is_library_there();
            if heirs { image() } else { None }
        })
    });
    let extended = deed.as_ref().and_then(|deed| {
        let text = deed.variable();
        // Any that went before is nobody's.
        kept(|| extend(envp, |s| value_of(s, DEED).is_some(), || std::iter::once([text, &[], &[], &[]])))
    });
    let nothing: fn() -> Option<Image> = || None;
    if deed.is_some() && extended.is_none() {
        // Nobody would be told of what stays open.
        kept(|| hook::exec_failed(deed));
        return handing_over(envp, nothing, exec);
    }
    kept(|| hook::exec_now(deed.as_ref()));
    let ret = exec(extended.as_ref().map(|m| m.addr().cast_const().cast()));
    // The variable may be just too much.
    let too_long = extended.is_some() && errno::get() == libc::E2BIG;
    kept(|| {
        hook::exec_failed(deed);
        if let Some(m) = extended {
            // SAFETY: the failed exec was the only one to know of it.
            unsafe { m.unmap() };
        }
    });
    if too_long { handing_over(envp, nothing, exec) } else { ret }
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
    behind(string, name.bytes().chain([b'=']))
}

/// What is behind `prefix`, if `string` begins so.
fn behind<'a>(string: *const c_char, prefix: impl Iterator<Item = u8>) -> Option<&'a [u8]> {
    let mut at = string.cast::<u8>();
    for byte in prefix {
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
    // Of several the loader takes the last.
    let list = strings(envp).filter_map(|s| value_of(s, "LD_PRELOAD")).last();
    list.is_some_and(|list| list.split(|b| matches!(b, b' ' | b':')).any(|name| name == own.to_bytes()))
}

/// What this process was started with, where its sockets may become those of a service: each setting as `NAME=value`.
static SETTINGS: OnceLock<Vec<Box<[u8]>>> = OnceLock::new();

/// In the constructor, after the settings were read. The program may write over its environment later.
pub(crate) fn note_settings() {
    if !hook::serves() || !loads_library(environment()) {
        return;
    }
    let all = || strings(environment());
    // Without a folder of its own a service is looked for in the session's.
    let names_folder = all().any(|s| value_of(s, hook::FOLDER).is_some());
    let is_setting = |s: &*const c_char| {
        behind(*s, "BYPATH_".bytes()).is_some() && value_of(*s, DEED).is_none()
            || !names_folder && value_of(*s, "XDG_RUNTIME_DIR").is_some()
    };
    let _ = SETTINGS.set(
        all().filter(is_setting).filter_map(|s| behind(s, std::iter::empty())).map(Into::into).collect(),
    );
}

/// `envp` with what is missing for an image that inherits a socket of a service; `None`: nothing is missing, or it inherits none.
fn complete(envp: Strings, is_handed: bool) -> Option<Mapping> {
    let (settings, library) = (SETTINGS.get()?, init::library()?);
    if !hook::serves() || !(hook::are_inherited() || is_handed) {
        return None;
    }
    let with_equals = |setting: &[u8]| setting.iter().position(|b| *b == b'=').map_or(0, |at| at + 1);
    let has = |setting: &[u8]| {
        let name = &setting[..with_equals(setting)];
        strings(envp).any(|s| behind(s, name.iter().copied()).is_some())
    };
    let loads = loads_library(envp);
    // What the program names itself comes first.
    let others = strings(envp).find_map(|s| value_of(s, "LD_PRELOAD")).unwrap_or_default();
    let between: &[u8] = if others.is_empty() { b"" } else { b":" };
    let preload = (!loads).then_some([b"LD_PRELOAD=", others, between, library.to_bytes()]);
    let missing = || {
        let missing = settings.iter().filter(|setting| !has(setting));
        preload.into_iter().chain(missing.map(|setting| [setting, &[][..], &[], &[]]))
    };
    missing().next()?;
    extend(envp, |s| !loads && value_of(s, "LD_PRELOAD").is_some(), missing)
}

/// `envp` without the strings of which `goes` is true, and with some more, each in four pieces. It is mapped: malloc may be locked by a
/// thread that was not forked.
fn extend<'a, I: Iterator<Item = [&'a [u8]; 4]>>(
    envp: Strings,
    goes: impl Fn(*const c_char) -> bool,
    more: impl Fn() -> I,
) -> Option<Mapping> {
    const WORD: usize = size_of::<usize>();
    let stay = || strings(envp).filter(|s| !goes(*s));
    let (count, added) = (stay().count(), more().count());
    let list = (count + added + 1) * WORD;
    let octets: usize = more().map(|pieces| pieces.iter().map(|piece| piece.len()).sum::<usize>() + 1).sum();
    let map = Mapping::private(list + octets).ok()?;
    let (array, mut text) = (map.addr().cast::<*const c_char>(), map.addr().wrapping_add(list));
    // SAFETY: both parts lie in the fresh mapping, which is this large and zeroed.
    unsafe {
        for (i, string) in stay().take(count).enumerate() {
            array.add(i).write(string);
        }
        for (i, pieces) in more().take(added).enumerate() {
            array.add(count + i).write(text.cast_const().cast());
            for piece in pieces {
                text.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                text = text.add(piece.len());
            }
            text = text.add(1);
        }
    }
    Some(map)
}

/// The image that the file at `path` makes, if this library will be loaded into it: by the loader that loaded it here, and not into one that runs with
/// privileges. Not a script, whose interpreter would be found in its place, and nothing that cannot be read.
fn image_at(path: &CStr) -> Option<Image> {
    let file = fd::open_to_read(path).ok()?;
    let image = image_of(file);
    fd::close(file);
    image
}

/// The same of an open file.
fn image_of(file: c_int) -> Option<Image> {
    let (device, inode) = image::loaded_by(file, init::loader()?).ok()?;
    Some(Image { device, inode })
}

/// The path that a program hands to exec, if there is one.
fn text<'a>(path: *const c_char) -> Option<&'a CStr> {
    memory::read(path)?;
    // SAFETY: a string that the program hands to exec, of which that much can be read, is NUL-terminated.
    Some(unsafe { CStr::from_ptr(path) })
}

/// As [`image_at`], for a name that is looked up in PATH: the first file of that name, or none, as another one would be executed where that cannot be.
fn image_named(file: *const c_char) -> Option<Image> {
    let name = text(file)?;
    if name.is_empty() || name.to_bytes().contains(&b'/') {
        return image_at(name);
    }
    let list = strings(environment()).find_map(|s| value_of(s, "PATH")).unwrap_or(b"/bin:/usr/bin");
    for directory in list.split(|b| *b == b':') {
        let mut path = [0u8; libc::PATH_MAX as usize];
        let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
        let mut rest = &mut path[..];
        for piece in [directory, separator, name.to_bytes_with_nul()] {
            let (to, after) = rest.split_at_mut_checked(piece.len())?;
            to.copy_from_slice(piece);
            rest = after;
        }
        let path = CStr::from_bytes_until_nul(&path).ok()?;
        if fd::file(path).is_ok() {
            // SAFETY: a NUL-terminated path.
            let may = unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
            return if may == 0 { image_at(path) } else { None };
        }
    }
    None
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
