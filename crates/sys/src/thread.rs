//! Threads: identity, processor, waiting without sleeping.

use crate::syscall::{check, syscall};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// The calling thread's id.
pub fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) as u32 }
}

/// What the C library calls the calling thread: `pthread_self()`.
#[cfg(target_arch = "x86_64")]
pub fn pthread_self() -> usize {
    let address: usize;
    // SAFETY: glibc keeps the address of its thread descriptor, which is its pthread_t, at this place.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr fs:[0x10]", out(reg) address, options(nostack, readonly, preserves_flags));
    }
    address
}

/// What the C library calls the calling thread: unknown here, 0.
#[cfg(not(target_arch = "x86_64"))]
pub fn pthread_self() -> usize {
    0
}

/// The kernel's number of the thread that the C library calls `pthread`, which has not been joined; `None` if it has ended.
pub fn tid_of(pthread: usize) -> Option<u32> {
    let mut clock = 0;
    // SAFETY: the caller's `pthread` is one; the clock's number is written.
    let failed = unsafe { libc::pthread_getcpuclockid(pthread as libc::pthread_t, &raw mut clock) };
    // clock_getres(2), "Dynamic clocks": the inverted number of the thread, above three bits of kind.
    (failed == 0).then_some(!(clock >> 3) as u32).filter(|&tid| tid != 0)
}

/// Whether this process has a thread of this number.
pub fn is_alive(tid: u32) -> bool {
    let to = [crate::process::pid() as usize, tid as usize, 0, 0, 0, 0];
    // SAFETY: integers only; signal 0 is not sent.
    check(unsafe { syscall(libc::SYS_tgkill, to) }).is_ok()
}

fn usage() -> libc::rusage {
    // SAFETY: rusage is plain integers, and getrusage fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        syscall(libc::SYS_getrusage, [libc::RUSAGE_THREAD as usize, &raw mut usage as usize, 0, 0, 0, 0]);
        usage
    }
}

/// Involuntary context switches of this thread so far: somebody else wanted its processor.
pub fn involuntary_switches() -> u64 {
    usage().ru_nivcsw as u64
}

/// How often this thread has slept so far, in a call or for a page (voluntary context switches), and for how many pages something was
/// read from a disk.
pub fn sleeps() -> (u64, u64) {
    let usage = usage();
    (usage.ru_nvcsw as u64, usage.ru_majflt as u64)
}

/// Gives the processor to another runnable thread.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Offset of glibc's registered rseq area from the thread pointer; 0 = not available.
static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(0);

/// Address of glibc's `__libc_single_threaded`; 0 = not available.
static SINGLE_THREADED: AtomicUsize = AtomicUsize::new(0);

/// Whether this is the process's only thread, and always was since the last fork. False if unknown.
#[inline]
pub fn is_the_only_one() -> bool {
    let at = SINGLE_THREADED.load(Relaxed) as *const u8;
    // SAFETY: glibc's char lives as long as glibc; it is written by this thread only, when it starts another.
    !at.is_null() && unsafe { at.read_volatile() } != 0
}

/// Looks up what glibc knows of threads: its rseq area (2.35 and later), without which [`cpu`] answers `u32::MAX`,
/// and `__libc_single_threaded` (2.32 and later), without which [`is_the_only_one`] answers false.
pub fn init() {
    // SAFETY: dlsym on constant names; __rseq_offset is a ptrdiff_t, __rseq_size an unsigned int.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if !offset.is_null() && !size.is_null() && *size != 0 {
            RSEQ_OFFSET.store(*offset, Relaxed);
        }
        let single = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr());
        SINGLE_THREADED.store(single as usize, Relaxed);
    }
}

/// Processors that this thread may run on; `u32::MAX` if the kernel does not tell.
pub fn processors() -> u32 {
    let mut mask = [0u64; 128];
    let room = size_of_val(&mask);
    // SAFETY: sched_getaffinity writes at most `room` bytes; it returns how many.
    let got = check(unsafe {
        syscall(libc::SYS_sched_getaffinity, [0, room, mask.as_mut_ptr() as usize, 0, 0, 0])
    });
    match got {
        Ok(length) if length > 0 => mask.iter().map(|word| word.count_ones()).sum(),
        _ => u32::MAX,
    }
}

/// Has this thread go on on another processor, if it may run there; from there it may be moved on.
pub fn move_to(cpu: u32) {
    let mut all = [0u64; 128];
    let mut one = [0u64; 128];
    let room = size_of_val(&all);
    // SAFETY: sched_getaffinity writes at most `room` bytes.
    let got =
        check(unsafe { syscall(libc::SYS_sched_getaffinity, [0, room, all.as_mut_ptr() as usize, 0, 0, 0]) });
    let (word, bit) = (cpu as usize / 64, 1 << (cpu % 64));
    if got.is_ok() && all.get(word).is_some_and(|allowed| allowed & bit != 0) {
        one[word] = bit;
        for mask in [&one, &all] {
            // SAFETY: sched_setaffinity reads `room` bytes.
            let _ =
                unsafe { syscall(libc::SYS_sched_setaffinity, [0, room, mask.as_ptr() as usize, 0, 0, 0]) };
        }
    }
}

/// The processor this thread runs on, by rseq (half a nanosecond); `u32::MAX` if unknown.
#[inline]
pub fn cpu() -> u32 {
    let offset = RSEQ_OFFSET.load(Relaxed);
    if offset == 0 {
        return u32::MAX;
    }
    thread_area(offset)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn thread_area(offset: isize) -> u32 {
    let cpu: u32;
    // SAFETY: glibc keeps struct rseq at this offset from the thread pointer for the thread's whole life;
    // cpu_id is its second word.
    unsafe {
        core::arch::asm!("mov {0:e}, dword ptr fs:[{1} + 4]", out(reg) cpu, in(reg) offset,
            options(nostack, readonly, preserves_flags));
    }
    cpu
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn thread_area(offset: isize) -> u32 {
    // SAFETY: as on x86-64, relative to tpidr_el0.
    unsafe {
        let tp: usize;
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) tp, options(nomem, nostack));
        ((tp as isize + offset + 4) as *const u32).read_volatile()
    }
}

/// An address inside the caller's stack frame, to tell live frames from dead ones.
#[inline(always)]
pub fn stack_address() -> usize {
    let sp: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the stack pointer.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the stack pointer.
    unsafe {
        core::arch::asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    sp
}

/// Key whose destructor runs when a thread ends; 0 = not created (a key of 0 is stored as 1 + key).
static EXIT_KEY: AtomicIsize = AtomicIsize::new(0);

/// Registers what runs when a thread that called [`set_exit_value`] ends. Once per process.
pub fn on_exit(f: extern "C" fn(*mut core::ffi::c_void)) {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: the function pointer stays valid: the library is never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(f_as_destructor(f))) } == 0 {
        EXIT_KEY.store(key as isize + 1, Relaxed);
    }
}

type Destructor = unsafe extern "C" fn(*mut core::ffi::c_void);

fn f_as_destructor(f: extern "C" fn(*mut core::ffi::c_void)) -> Destructor {
    f
}

/// Value that the exit function of this thread gets (never dereferenced here; must not be 0).
pub fn set_exit_value(value: usize) {
    let key = EXIT_KEY.load(Relaxed);
    if key > 0 {
        // SAFETY: the key exists; the value is opaque.
        unsafe { libc::pthread_setspecific((key - 1) as libc::pthread_key_t, value as *const _) };
    }
}
