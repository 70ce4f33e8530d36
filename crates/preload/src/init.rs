//! The library's constructor and destructor.

use crate::{raw, real};
use bypath_sockets::config::Upgrade;
use bypath_sockets::{hook, rules};
use bypath_sys::fd;
use libc::{c_char, c_void};
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

/// Marks the library. In a process that loads two copies, the one whose marker is found first in the global
/// scope works, and the other passes every call on.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals)]
pub static bypath_preload_instance: u8 = 1;

/// Asked by the run-time of AddressSanitizer, long before the constructor: a library that is preloaded comes before it in
/// the list, and that is no reason to refuse the program. One that answers this itself is asked instead of us, and
/// `ASAN_OPTIONS` goes over both.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}

// SAFETY: entries of these sections are called by the dynamic linker with the C convention.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

// SAFETY: as above; it runs in exit(), after the program's own atexit functions.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn constructor() {
    crate::errno::init();
    crate::errno::kept(|| {
        real::begin();
        if !is_first_copy() {
            return;
        }
        IS_FIRST.store(true, Relaxed);
        crate::child::watch_forks_now();
        let mut bad = None;
        let mut config = rules::configure(setting, invoked, |e| {
            bad.get_or_insert(e);
        });
        if let Some(e) = bad {
            let mut line = Line::new();
            let _ = writeln!(line, "bypath: {e}; every connection stays on the kernel");
            raw::complain(line.as_bytes());
            config.upgrade = Upgrade::Off;
        }
        crate::signal::init();
        hook::init(config);
        hook::init_netstack(setting);
        note_library();
        crate::exec::note_settings();
        if let Some(text) = setting(hook::DEED) {
            // Taken once, and nobody's who is started from here.
            // SAFETY: a NUL-terminated name; the program has not run yet, so nobody else reads the environment.
            unsafe { libc::unsetenv(c"BYPATH_DEED".as_ptr()) };
            hook::take_deed(text);
        }
    });
}

extern "C" fn destructor() {
    if IS_FIRST.load(Relaxed) {
        crate::errno::kept(hook::exiting);
    }
}

/// What [`is_first_copy`] said.
static IS_FIRST: AtomicBool = AtomicBool::new(false);

/// Whether this is the first (normally only) copy of the library in the process.
pub(crate) fn is_first_copy() -> bool {
    // SAFETY: a NUL-terminated name.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"bypath_preload_instance".as_ptr()) };
    first.cast_const().cast::<u8>() == &raw const bypath_preload_instance
}

/// The name by which the loader was told to load this library.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// Device and inode of this library's file, and of the loader's, as they were at the start.
static FILES: OnceLock<[Option<(u64, u64)>; 2]> = OnceLock::new();

fn note_library() {
    if let Some(name) = name_of((&raw const bypath_preload_instance).cast()) {
        LIBRARY.store(name.as_ptr().cast_mut(), Relaxed);
    }
    // A function that the loader has itself.
    // SAFETY: a NUL-terminated name.
    let loader = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tls_get_addr".as_ptr()) };
    let _ = FILES.set([library(), name_of(loader)].map(|name| fd::file(name?).ok()));
}

/// The name of the object that has this address.
fn name_of(address: *const c_void) -> Option<&'static CStr> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills the structure or leaves it.
    let known = unsafe { libc::dladdr(address, found.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and dladdr may have filled it.
    let name = unsafe { found.assume_init() }.dli_fname;
    // SAFETY: the loader keeps its names as long as an object is loaded, and neither this library nor the loader goes.
    (known != 0 && !name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

/// Whether the next image will find this very library: not in another root, or after it was replaced.
pub(crate) fn is_library_there() -> bool {
    let own = FILES.get().and_then(|[own, _]| *own);
    own.is_some() && library().and_then(|name| fd::file(name).ok()) == own
}

/// Device and inode of the loader that has loaded it.
pub(crate) fn loader() -> Option<(u64, u64)> {
    FILES.get().and_then(|[_, loader]| *loader)
}

/// As noted at the start.
pub(crate) fn library() -> Option<&'static CStr> {
    let name = LIBRARY.load(Relaxed);
    // SAFETY: the loader keeps its names as long as the library is loaded, and this one stays.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *mut c_char;
}

/// `getenv` for the settings; nothing in a process that runs with privileges its caller does not have.
fn setting(name: &str) -> Option<&'static str> {
    let mut buffer = [0u8; 64];
    buffer.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    // SAFETY: the buffer is NUL-terminated, because no setting's name fills it.
    let value = unsafe { secure_getenv(buffer.as_ptr().cast()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment; it is parsed at once, before the program can change it.
    let value = unsafe { CStr::from_ptr(value) };
    // No setting accepts the empty value: what is not UTF-8 is reported as bad, too.
    Some(value.to_str().unwrap_or(""))
}

/// The path by which the program was started: that of a script, or a link.
fn invoked() -> String {
    // SAFETY: no pointers.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    if path.is_null() {
        return String::new();
    }
    // SAFETY: the kernel has put a NUL-terminated string there, which the program has not run yet to change.
    unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned()
}

/// One line of text on the stack; what does not fit is cut.
struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Line { bytes: [0; 512], len: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        // The last byte is kept for the end of the line.
        for b in s.bytes() {
            let last = self.bytes.len() - 1;
            if self.len < last || (b == b'\n' && self.len == last) {
                self.bytes[self.len] = if b == b'\n' || !b.is_ascii_control() { b } else { b'?' };
                self.len += 1;
            }
        }
        Ok(())
    }
}
