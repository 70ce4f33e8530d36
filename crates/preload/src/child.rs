//! Which process this is: a vfork child runs in its parent's memory with descriptors of its own, so calls that
//! change the descriptor table must not be recorded there.

use crate::errno;
use bypath_sockets::hook::{self, SHARERS};
use libc::{c_int, c_void, pid_t};
use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;

/// Whether the caller runs in another process's memory. One load, unless such a child exists now.
#[inline]
pub(crate) fn borrowed_memory() -> bool {
    // Relaxed: the child was created after the increment, by the same thread; for other threads either answer
    // leads to a true comparison of process ids.
    SHARERS.load(Relaxed) != 0 && hook::is_memory_of_another()
}

/// A child in borrowed memory made another descriptor for `fd`, which the engine will not hear of: probably for the
/// program that it is about to become, which must find every byte in the kernel.
#[cold]
#[inline(never)]
pub(crate) fn handed_on(fd: c_int) {
    if hook::is_followed(fd) {
        errno::kept(|| hook::recall(fd, hook::Reason::RecalledExec, true));
    }
}

thread_local! {
    /// This thread is in a fork that the library has seen begin.
    static IS_SEEN: Cell<bool> = const { Cell::new(false) };
    /// Of one that it has not seen: [`prepare`]. Nothing is dropped when the thread ends, as there would have to be memory to remember that.
    static UNSEEN: Cell<Option<ManuallyDrop<hook::Forking>>> = const { Cell::new(None) };
}

/// Has the C library tell of forks that no function of this library is called for: of who has looked fork() up in the C library itself (dlsym with a handle
/// of it, as Python's ctypes does). Called once.
pub(crate) fn watch_forks() {
    // SAFETY: functions that are there as long as the process.
    unsafe { libc::pthread_atfork(Some(prepare), Some(unseen_in_parent), Some(unseen_in_child)) };
}

unsafe extern "C" fn prepare() {
    if !IS_SEEN.get() && !borrowed_memory() {
        // Nobody tells the parent which child it is.
        UNSEEN.set(Some(ManuallyDrop::new(errno::kept(hook::fork_begin_unseen))));
    }
}

unsafe extern "C" fn unseen_in_parent() {
    if let Some(token) = UNSEEN.take() {
        errno::kept(|| ManuallyDrop::into_inner(token).parent(-1));
    }
}

unsafe extern "C" fn unseen_in_child() {
    if let Some(token) = UNSEEN.take() {
        errno::kept(|| ManuallyDrop::into_inner(token).child());
    } else if !IS_SEEN.get() {
        errno::kept(hook::own_copy);
    }
}

/// Runs `fork`, which answers the pid as fork() does, between the engine's two halves.
pub(crate) fn forking(fork: impl FnOnce() -> pid_t) -> pid_t {
    if borrowed_memory() {
        let outer = IS_SEEN.replace(true);
        let pid = fork();
        IS_SEEN.set(outer);
        if pid == 0 {
            errno::kept(hook::own_copy);
        }
        return pid;
    }
    let token = errno::kept(hook::fork_begin);
    let outer = IS_SEEN.replace(true);
    let pid = fork();
    IS_SEEN.set(outer);
    errno::kept(|| {
        if pid == 0 {
            token.child();
        } else {
            token.parent(pid);
        }
    });
    pid
}

/// `vfork()`: the child returns through this frame first, so there must not be one. The return address waits in
/// a register while the child uses the stack, as in the C library's own version.
///
/// # Safety
/// That of vfork.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() -> pid_t {
    naked_asm!(
        // The child must find what it calls looked up.
        "sub rsp, 8",
        "call {first_call}",
        "add rsp, 8",
        "pop rdi",
        "lock inc dword ptr [rip + {sharers}]",
        "mov eax, {number}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 2f",
        "lock dec dword ptr [rip + {sharers}]",
        "sub rsp, 8",
        "mov edi, eax",
        "call {returned}",
        "add rsp, 8",
        "2:",
        "ret",
        first_call = sym crate::real::first_call,
        sharers = sym SHARERS,
        number = const libc::SYS_vfork,
        returned = sym vfork_returned,
    )
}

/// Another name of vfork.
///
/// # Safety
/// That of vfork.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __vfork() -> pid_t {
    naked_asm!("jmp {vfork}", vfork = sym vfork)
}

/// In the parent, when the child has left its memory, or there is none.
extern "C" fn vfork_returned(ret: c_int) -> pid_t {
    if ret < 0 {
        return errno::fail(-ret);
    }
    errno::kept(child_left);
    ret
}

fn child_left() {
    crate::exec::take_back();
    hook::child_left();
}

/// Before a clone with these flags. Threads have one descriptor table, and processes one each; where that is not so the
/// library's own is not true any more.
pub(crate) fn cloning(flags: c_int) {
    let is_thread = flags & libc::CLONE_THREAD != 0;
    if is_thread != (flags & libc::CLONE_FILES != 0) {
        errno::kept(hook::tables_differ);
        if !is_thread {
            // It may outlive this process, and nobody will know what it holds.
            errno::kept(hook::spread_everything);
        }
    }
}

type Entry = extern "C" fn(*mut c_void) -> c_int;

/// What a forked clone child needs: it finds this in its copy of the parent's stack.
struct Start {
    entry: *mut c_void,
    arg: *mut c_void,
    token: Option<hook::Forking>,
}

/// First function of a clone child that has its own copy of the memory.
extern "C" fn start(p: *mut c_void) -> c_int {
    // SAFETY: `clone` below passed a live `Start`; this process has its own copy of it.
    let s = unsafe { &mut *p.cast::<Start>() };
    errno::kept(|| match s.token.take() {
        Some(token) => token.child(),
        None => hook::own_copy(),
    });
    // SAFETY: the program's own entry function, of the type that clone() takes.
    let entry: Entry = unsafe { std::mem::transmute(s.entry) };
    entry(s.arg)
}

crate::real::hook! {
    /// `clone()`, variadic in C: the last three arguments exist only with the flags that use them.
    fn clone(entry: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void, ptid: usize, tls: usize, ctid: usize) -> c_int,
    raw None; aka __clone; {
        cloning(flags);
        if entry.is_null() || stack.is_null() || flags & libc::CLONE_THREAD != 0 {
            return real(entry, stack, flags, arg, ptid, tls, ctid);
        }
        if flags & libc::CLONE_VM != 0 {
            if hook::is_sealed() || flags & libc::CLONE_VFORK == 0 {
                // It may outlive this process, and nobody will know what it holds.
                hook::spread_everything();
            }
            SHARERS.fetch_add(1, Relaxed);
            let pid = real(entry, stack, flags, arg, ptid, tls, ctid);
            if pid < 0 || flags & libc::CLONE_VFORK != 0 {
                SHARERS.fetch_sub(1, Relaxed);
                errno::kept(child_left);
            }
            return pid;
        }
        let token = (!borrowed_memory()).then(|| errno::kept(hook::fork_begin));
        let mut s = Start { entry, arg, token };
        let pid = real(start as *mut c_void, stack, flags, (&raw mut s).cast(), ptid, tls, ctid);
        if let Some(token) = s.token.take() {
            errno::kept(|| token.parent(pid));
        }
        pid
    }
}
