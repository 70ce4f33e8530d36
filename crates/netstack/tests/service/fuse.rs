//! A file of a file system that a user serves himself, as far as a file needs one: its root is a regular file, which nothing is mounted for.
//! Closes of it (FUSE_FLUSH) are answered when the user likes. linux/fuse.h has the messages.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};

const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FORGET: [u32; 2] = [2, 42];
/// Of each request: length, what, number.
const HEAD: usize = 40;
/// Of the answer to INIT.
const INIT_OUT: usize = 64;
const LONGEST_REQUEST: usize = 136 << 10;

/// Whether closes are answered, and who waits for that.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    /// Closes that were asked for, and those that were answered.
    closes: AtomicUsize,
    answered: AtomicUsize,
}

/// The file, which this process does not close before closes are answered.
pub struct Slow {
    file: ManuallyDrop<File>,
    gate: Arc<Gate>,
}

fn call(number: libc::c_long, args: [usize; 5]) -> io::Result<OwnedFd> {
    // SAFETY: the callers' arguments are numbers, and strings that live as long as the call.
    let made = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4]) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made it just now; 0, which fsconfig returns, is not used.
    Ok(unsafe { OwnedFd::from_raw_fd(made as i32) })
}

/// fsconfig(2).
fn configure(
    context: BorrowedFd<'_>,
    command: u32,
    name: Option<&CStr>,
    value: Option<&CStr>,
) -> io::Result<()> {
    let address = |text: Option<&CStr>| text.map_or(0, |text| text.as_ptr() as usize);
    let args = [context.as_raw_fd() as usize, command as usize, address(name), address(value), 0];
    // SAFETY: as above.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, args[0], args[1], args[2], args[3], args[4]) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Slow {
    /// # Errors
    /// No FUSE here.
    pub fn new() -> io::Result<Slow> {
        const SET_FLAG: u32 = 0;
        const SET_STRING: u32 = 1;
        const CREATE: u32 = 6;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let context = call(libc::SYS_fsopen, [c"fuse".as_ptr() as usize, 1, 0, 0, 0])?;
        let number = std::ffi::CString::new(device.as_raw_fd().to_string()).expect("digits");
        let options =
            [(c"fd", number.as_c_str()), (c"rootmode", c"100000"), (c"user_id", c"0"), (c"group_id", c"0")];
        for (name, value) in options {
            configure(context.as_fd(), SET_STRING, Some(name), Some(value))?;
        }
        configure(context.as_fd(), SET_FLAG, Some(c"allow_other"), None)?;
        configure(context.as_fd(), CREATE, None, None)?;
        let mount = call(libc::SYS_fsmount, [context.as_raw_fd() as usize, 1, 0, 0, 0])?;
        let gate = Arc::new(Gate::default());
        let serves = Arc::clone(&gate);
        std::thread::spawn(move || serve(device, &serves));
        let file = File::open(format!("/proc/self/fd/{}", mount.as_raw_fd()))?;
        Ok(Slow { file: ManuallyDrop::new(file), gate })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// How many closes of it were begun.
    pub fn closes(&self) -> usize {
        self.gate.closes.load(Acquire)
    }

    /// Closes are answered from now on.
    pub fn answer(&self) {
        *self.gate.is_open.lock().expect("unbroken") = true;
        self.gate.opened.notify_all();
    }
}

/// A thread that waits when this process ends, which serves it, would wait for ever.
impl Drop for Slow {
    fn drop(&mut self) {
        self.answer();
        // SAFETY: it is used no more.
        unsafe { ManuallyDrop::drop(&mut self.file) };
        while self.gate.answered.load(Acquire) < self.closes() {
            std::thread::yield_now();
        }
    }
}

/// Answers until the file system is gone.
fn serve(device: File, gate: &Arc<Gate>) {
    let device = Arc::new(device);
    let mut room = vec![0; LONGEST_REQUEST];
    while let Ok(HEAD..) = (&*device).read(&mut room) {
        let what = u32::from_ne_bytes(room[4..8].try_into().expect("four octets"));
        let unique = u64::from_ne_bytes(room[8..16].try_into().expect("eight octets"));
        let body = match what {
            // Version 7.31, and requests of 4 KiB at most.
            INIT => {
                let numbers = [7u32, 31, 0, 0, 0, 4096].map(u32::to_ne_bytes).concat();
                [numbers, vec![0; INIT_OUT]].concat()[..INIT_OUT].to_vec()
            }
            OPEN => vec![0; 16],
            FLUSH => {
                gate.closes.fetch_add(1, AcqRel);
                let (gate, device) = (Arc::clone(gate), Arc::clone(&device));
                std::thread::spawn(move || {
                    let is_open = gate.is_open.lock().expect("unbroken");
                    let _open = gate.opened.wait_while(is_open, |is_open| !*is_open).expect("unbroken");
                    answer(&device, unique, 0, &[]);
                    gate.answered.fetch_add(1, AcqRel);
                });
                continue;
            }
            _ if FORGET.contains(&what) => continue,
            _ => {
                answer(&device, unique, -libc::ENOSYS, &[]);
                continue;
            }
        };
        answer(&device, unique, 0, &body);
    }
}

fn answer(mut device: &File, unique: u64, error: i32, body: &[u8]) {
    let len = (16 + body.len()) as u32;
    let head = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()].concat();
    // Who asked may be gone.
    let _ = device.write(&[&head[..], body].concat());
}
