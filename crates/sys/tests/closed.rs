//! A program that has closed its standard input. A program of its own: what is opened beside it takes that number.

use bypath_sys::fd;
use bypath_sys::turn::{Turn, enter_child, is_plug};
use std::fs::File;
use std::io::Read;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static HANDLED: AtomicBool = AtomicBool::new(false);

extern "C" fn handle(_: i32) {
    HANDLED.store(true, Relaxed);
}

/// Of a read(2) by number 0.
fn failure() -> Option<i32> {
    // SAFETY: it is not closed here.
    let mut input = ManuallyDrop::new(unsafe { File::from_raw_fd(0) });
    input.read(&mut [0]).err().and_then(|error| error.raw_os_error())
}

#[test]
fn what_is_taken_is_not_the_standard_input_and_what_the_program_opens_stays() {
    // SAFETY: the handler writes a static.
    unsafe { libc::signal(libc::SIGUSR1, handle as *const () as usize) };
    fd::close(0);
    assert_eq!(failure(), Some(libc::EBADF));
    let turn = Turn::to_take().expect("nobody else has it");
    assert!(is_plug(0) && !is_plug(1) && !is_plug(-1) && !is_plug(3));
    assert_eq!(failure(), Some(libc::EBADF));
    let (near, _far) = UnixStream::pair().expect("a pair");
    assert_ne!(near.as_raw_fd(), 0);
    // SAFETY: an integer.
    unsafe { libc::raise(libc::SIGUSR1) };
    assert!(!HANDLED.load(Relaxed), "a handler could replace what was taken");
    drop(turn);
    assert!(HANDLED.load(Relaxed) && !is_plug(0));
    assert_eq!(failure(), Some(libc::EBADF));

    let turn = Turn::to_take().expect("nobody else has it");
    enter_child();
    assert!(fd::is_cloexec(0).is_err(), "a forked child has it");
    drop(turn);
    let turn = Turn::to_take().expect("nobody else has it");
    // As freopen(3) does, by a call of the C library's own.
    fd::close(0);
    let file = File::open("/proc/self/exe").expect("this program");
    assert_eq!(file.as_raw_fd(), 0);
    assert!(!is_plug(0), "the program may close it");
    drop(turn);
    assert_eq!(failure(), None);
    assert!(file.metadata().is_ok());
}
