//! Which process this is: a vfork child runs in its parent's memory with descriptors of its own, so calls that
//! change the descriptor table must not be recorded there.

use crate::errno;
use bypath_sockets::hook::{self, SHARERS};
use libc::{c_int, c_void, pid_t};
use std::arch::naked_asm;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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

/// Where a fork of the calling thread is, of which the C library tells.
enum Stage {
    /// No function of this library has been called for it: of who has looked fork() up in the C library itself (dlsym with a handle of it, as Python's
    /// ctypes does). Nobody will tell the parent which child it is.
    Unforeseen,
    /// [`forking`] has been.
    Foreseen,
    /// Nothing is dropped when the thread ends, as there would have to be memory to remember that.
    Begun { token: ManuallyDrop<hook::Forking>, is_foreseen: bool },
}

thread_local! {
    static STAGE: Cell<Stage> = const { Cell::new(Stage::Unforeseen) };
    /// The one that was foreseen last is over, in the parent, which has not been told yet which child it is.
    static FORKED: Cell<Option<ManuallyDrop<hook::Forked>>> = const { Cell::new(None) };
}

/// Has the C library tell of forks. The first functions that it knows are the last ones before a fork, and the first ones after it: what the program has registered
/// runs outside, and may wait for threads that open and close connections.
pub(crate) fn watch_forks(register: impl FnOnce(Handler, Handler, Handler) -> c_int) {
    if !IS_WATCHING.swap(true, Relaxed) {
        // The C library has room for the first ones.
        register(Some(prepare), Some(in_parent), Some(in_child));
    }
}

type Handler = Option<unsafe extern "C" fn()>;

static IS_WATCHING: AtomicBool = AtomicBool::new(false);

/// Has it do so, if that was not asked for by a constructor before this library's.
pub(crate) fn watch_forks_now() {
    // SAFETY: functions that are there as long as the process.
    watch_forks(|prepare, parent, child| unsafe { libc::pthread_atfork(prepare, parent, child) });
}

unsafe extern "C" fn prepare() {
    if borrowed_memory() {
        return;
    }
    let is_foreseen = matches!(STAGE.replace(Stage::Unforeseen), Stage::Foreseen);
    let begin = if is_foreseen { hook::fork_begin } else { hook::fork_begin_unseen };
    STAGE.set(Stage::Begun { token: ManuallyDrop::new(errno::kept(begin)), is_foreseen });
}

unsafe extern "C" fn in_parent() {
    match STAGE.replace(Stage::Unforeseen) {
        Stage::Begun { token, is_foreseen } => {
            let forked = errno::kept(|| ManuallyDrop::into_inner(token).parent());
            if is_foreseen {
                FORKED.set(Some(ManuallyDrop::new(forked)));
            }
        }
        other => STAGE.set(other),
    }
}

unsafe extern "C" fn in_child() {
    match STAGE.replace(Stage::Unforeseen) {
        Stage::Begun { token, .. } => errno::kept(|| ManuallyDrop::into_inner(token).child()),
        _ => errno::kept(hook::own_copy),
    }
}

/// Runs `fork`, which answers the pid as the C library's fork() does, and has it [tell of it](watch_forks).
pub(crate) fn forking(fork: impl FnOnce() -> pid_t) -> pid_t {
    // What is registered may fork, too.
    let (outer, outer_forked) = (STAGE.replace(Stage::Foreseen), FORKED.take());
    let pid = fork();
    STAGE.set(outer);
    if let Some(forked) = FORKED.replace(outer_forked)
        && pid != 0
    {
        errno::kept(|| ManuallyDrop::into_inner(forked).is(pid));
    }
    pid
}

/// The same of a fork that the C library tells nobody of.
pub(crate) fn forking_untold(fork: impl FnOnce() -> pid_t) -> pid_t {
    let token = (!borrowed_memory()).then(|| errno::kept(hook::fork_begin));
    let pid = fork();
    errno::kept(|| match token {
        Some(token) if pid == 0 => token.child(),
        Some(token) => token.parent().is(pid),
        None if pid == 0 => hook::own_copy(),
        None => {}
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
            errno::kept(|| token.parent().is(pid));
        }
        pid
    }

    /// `__register_atfork()`, which is what `pthread_atfork()` calls. A constructor before this library's may be who does.
    fn __register_atfork(before: *mut c_void, parent: *mut c_void, child: *mut c_void, object: *mut c_void) -> c_int, raw None; {
        if crate::init::is_first_copy() {
            let of_ours = |handler: Handler| handler.map_or(std::ptr::null_mut(), |f| f as *mut c_void);
            watch_forks(|before, parent, child| {
                real(of_ours(before), of_ours(parent), of_ours(child), std::ptr::null_mut())
            });
        }
        real(before, parent, child, object)
    }
}
