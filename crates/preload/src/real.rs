//! The functions that our symbols hide: found with `dlsym(RTLD_NEXT)`, nearly all at once by the first call of one, one by
//! one before the constructor ran.

use crate::errno::{self, Answer};
use crate::raw;
use crate::symbols::{LATE, SYMBOLS};
use libc::{c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Not looked up yet.
const UNKNOWN: usize = 0;
/// Looked up, and the C library has no such function.
pub(crate) const MISSING: usize = 1;

pub(crate) static REAL: [AtomicUsize; SYMBOLS.len()] = [const { AtomicUsize::new(UNKNOWN) }; SYMBOLS.len()];

/// Position of `name` in the table; evaluated at compile time, where an unknown name is an error.
pub(crate) const fn index(name: &str) -> usize {
    let mut i = 0;
    while i < SYMBOLS.len() {
        if equal(SYMBOLS[i].as_bytes(), name.as_bytes()) {
            return i;
        }
        i += 1;
    }
    panic!("not in SYMBOLS")
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Address of the real function if it was looked up, else 0.
#[inline(always)]
pub(crate) fn known<const I: usize>() -> usize {
    // Relaxed: the pointee is code that was mapped before anybody could see its address.
    let p = REAL[I].load(Relaxed);
    if p > MISSING { p } else { 0 }
}

/// Address of the real function, 0 if there is none.
#[inline(always)]
pub(crate) fn load<const I: usize>() -> usize {
    match known::<I>() {
        0 => resolve(I),
        address => address,
    }
}

/// The constructor ran, and none of the functions was called since.
static UNCALLED: AtomicBool = AtomicBool::new(false);

/// Called by the constructor. Programs that call none of the functions (those of a shell script, often) look none up.
pub(crate) fn begin() {
    UNCALLED.store(true, Relaxed);
}

/// At the first call of one of the functions, all that a signal handler or the child of a vfork may call are looked up,
/// as dlsym is not safe there. It comes before the first handler: that is installed, and the process that has the child
/// is left, by such a call. (Before the constructor only those that are needed are: who calls may be about to set up
/// malloc.)
#[cold]
#[inline(never)]
pub(crate) extern "C" fn first_call() {
    if UNCALLED.load(Relaxed) && UNCALLED.swap(false, Relaxed) {
        for (i, early) in EARLY.iter().enumerate() {
            if *early {
                look_up(i);
            }
        }
    }
}

/// Looks the function up.
#[cold]
#[inline(never)]
pub(crate) fn resolve(i: usize) -> usize {
    if EARLY[i] && UNCALLED.load(Relaxed) {
        first_call();
    }
    match REAL[i].load(Relaxed) {
        UNKNOWN => look_up(i),
        MISSING => 0,
        address => address,
    }
}

fn look_up(i: usize) -> usize {
    let name = &NAMES[STARTS[i] as usize..];
    // SAFETY: a NUL-terminated name; RTLD_NEXT searches the objects after this library.
    let p = errno::kept(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) });
    let p: *mut c_void = p;
    REAL[i].store(if p.is_null() { MISSING } else { p as usize }, Relaxed);
    p as usize
}

/// The names of the table, each with its NUL, and where each one starts: text without pointers, which the dynamic linker
/// would have to write to memory of every process.
static NAMES: [u8; NAMES_SIZE] = {
    let mut all = [0; NAMES_SIZE];
    let mut i = 0;
    while i < SYMBOLS.len() {
        let name = SYMBOLS[i].as_bytes();
        let mut j = 0;
        while j < name.len() {
            all[STARTS[i] as usize + j] = name[j];
            j += 1;
        }
        i += 1;
    }
    all
};
const NAMES_SIZE: usize = STARTS[SYMBOLS.len()] as usize;
static STARTS: [u16; SYMBOLS.len() + 1] = {
    let mut starts = [0; SYMBOLS.len() + 1];
    let mut i = 0;
    while i < SYMBOLS.len() {
        starts[i + 1] = starts[i] + SYMBOLS[i].len() as u16 + 1;
        i += 1;
    }
    starts
};

/// Which entries of the table the first call fills.
static EARLY: [bool; SYMBOLS.len()] = {
    let mut early = [true; SYMBOLS.len()];
    let mut i = 0;
    while i < LATE.len() {
        early[index(LATE[i])] = false;
        i += 1;
    }
    early
};

/// The answer where the C library lacks a function: the system call of the same shape, or ENOSYS.
#[cold]
#[inline(never)]
pub(crate) fn without_libc<R: Answer>(number: Option<i64>, args: &[usize]) -> R {
    let Some(number) = number else { return errno::fail(libc::ENOSYS) };
    let mut all = [0; 6];
    for (to, from) in all.iter_mut().zip(args) {
        *to = *from;
    }
    // SAFETY: the program's own arguments to the function of this name, whose system call has the same shape.
    let ret = unsafe { raw::syscall(number, all) };
    if ret < 0 { errno::fail(-ret as i32) } else { R::from_raw(ret) }
}

/// Passes items on with the convention of functions that pthread_cancel may unwind through: a blocked real function is
/// a cancellation point, and nothing in ours needs to be dropped. With `panic = "abort"` a plain C function has no
/// landing pads and is simply left, while a `C-unwind` one would abort; with `panic = "unwind"` it is the other way
/// round.
#[cfg(panic = "abort")]
macro_rules! cancellable {
    ($next:ident! $($items:tt)*) => { $crate::real::$next! { "C" $($items)* } };
}
#[cfg(not(panic = "abort"))]
macro_rules! cancellable {
    ($next:ident! $($items:tt)*) => { $crate::real::$next! { "C-unwind" $($items)* } };
}
pub(crate) use cancellable;

/// Defines interposed functions.
///
/// `fn NAME(ARGS) -> RESULT, raw NUMBER; aka ALIAS...; { BODY }`: exports NAME and every ALIAS. In BODY, `real` is the
/// function that NAME hides; where the C library has none it is system call NUMBER (`None`: ENOSYS).
///
/// With `only CONDITION;` in front of BODY a call that does not meet it is passed on at once. BODY is then a function of
/// its own, so that a descriptor that is not followed costs two loads, a comparison and a jump, without a stack frame.
macro_rules! hook {
    ($($items:tt)*) => { $crate::real::cancellable! { define! $($items)* } };
}
pub(crate) use hook;

macro_rules! define {
    ($abi:literal $($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, raw $raw:expr; $(aka $alias:ident;)* $(only $condition:expr;)? $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// That of the C function: the library adds no demands of its own.
        #[unsafe(no_mangle)]
        pub unsafe extern $abi fn $name($($arg: $ty),*) -> $ret {
            #[inline(always)]
            #[allow(dead_code, clippy::too_many_arguments)]
            fn real($($arg: $ty),*) -> $ret {
                let address = $crate::real::known::<{ $crate::real::index(stringify!($name)) }>();
                if address == 0 {
                    return unknown($($arg),*);
                }
                call(address, $($arg),*)
            }
            // A function of its own, so that the usual way through `real` needs no stack frame.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            extern $abi fn unknown($($arg: $ty),*) -> $ret {
                match $crate::real::resolve(const { $crate::real::index(stringify!($name)) }) {
                    0 => $crate::real::without_libc($raw, &[$($arg as usize),*]),
                    address => call(address, $($arg),*),
                }
            }
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn call(address: usize, $($arg: $ty),*) -> $ret {
                // SAFETY: `address` is the next definition of this very symbol, hence of this type; it is called
                // with the arguments of the program's call, or with ones of the same validity.
                unsafe {
                    let f: unsafe extern $abi fn($($ty),*) -> $ret = std::mem::transmute(address);
                    f($($arg),*)
                }
            }
            #[allow(unused_variables)]
            let pass_on = || real($($arg),*);
            $(
                if !$condition {
                    return pass_on();
                }
            )?
            $(#[doc = concat!("Runs only where `", stringify!($condition), "` holds.")] #[inline(never)])?
            #[allow(clippy::too_many_arguments)]
            extern $abi fn body($($arg: $ty),*) -> $ret $body
            // Where a thread can be cancelled anywhere, it is not to happen in the middle of ours.
            #[cold]
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            extern $abi fn undisturbed($($arg: $ty),*) -> $ret {
                let before = $crate::cancel::keep_out();
                let ret = body($($arg),*);
                $crate::cancel::readmit(before);
                ret
            }
            if $crate::cancel::comes_anywhere() {
                return undisturbed($($arg),*);
            }
            body($($arg),*)
        }
        $(
            /// Another name of the same function, whatever its arguments.
            ///
            /// # Safety
            /// As for the other name.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $alias() {
                std::arch::naked_asm!("jmp {}", sym $name)
            }
            const _: usize = $crate::real::index(stringify!($alias));
        )*
    )*};
}
pub(crate) use define;

/// A private function with that convention.
macro_rules! private {
    ($abi:literal $(#[$meta:meta])* unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        $(#[$meta])*
        unsafe extern $abi fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use private;

/// An address as a function with that convention.
macro_rules! pointer {
    ($abi:literal $address:expr, ($($ty:ty),*) -> $ret:ty) => {
        std::mem::transmute::<usize, unsafe extern $abi fn($($ty),*) -> $ret>($address)
    };
}
pub(crate) use pointer;
