//! The C library's `syscall()`: numbers that touch descriptors go the way of the functions of the same name.
//! Everything else is jumped to without a frame, so that calls which return twice or on another stack work.

use crate::select::Sets;
use crate::{
    child, epoll, errno, exec, fd, identity, io, memory, message, namespace, poll, process, queue, seccomp,
    select, sock,
};
use bypath_sockets::hook::{self, PollFd};
use libc::{c_int, c_long, timespec};
use std::arch::naked_asm;

/// Numbers that `followed` knows.
static INTERESTING: [u64; 8] = bitmap(&[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_poll,
    libc::SYS_ioctl,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_select,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_sendfile,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_accept,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_shutdown,
    libc::SYS_setsockopt,
    libc::SYS_clone,
    libc::SYS_fork,
    libc::SYS_execve,
    libc::SYS_fcntl,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_ctl,
    libc::SYS_exit_group,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_splice,
    libc::SYS_epoll_pwait,
    libc::SYS_accept4,
    libc::SYS_epoll_create1,
    libc::SYS_dup3,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_execveat,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_setfsuid,
    libc::SYS_io_submit,
    libc::SYS_prctl,
    libc::SYS_pidfd_getfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_seccomp,
    libc::SYS_io_uring_setup,
    libc::SYS_close_range,
    libc::SYS_clone3,
    libc::SYS_epoll_pwait2,
    libc::SYS_mq_notify,
]);

const fn bitmap(numbers: &[c_long]) -> [u64; 8] {
    let mut map = [0; 8];
    let mut i = 0;
    while i < numbers.len() {
        map[numbers[i] as usize / 64] |= 1 << (numbers[i] % 64);
        i += 1;
    }
    map
}

/// `syscall()`. A clone that shares memory or changes the stack is the real function's.
///
/// # Safety
/// That of the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(_number: c_long) -> c_long {
    naked_asm!(
        "cmp rdi, 512",
        "jae 2f",
        "lea rax, [rip + {map}]",
        "bt [rax], rdi",
        "jnc 2f",
        "cmp rdi, {clone}",
        "je 5f",
        "cmp rdi, {clone3}",
        "je 5f",
        "3:",
        "jmp {followed}",
        "5:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {is_fork}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test al, al",
        "jnz 3b",
        "2:",
        "mov rax, qword ptr [rip + {real} + {at}]",
        "cmp rax, {missing}",
        "jbe 4f",
        "jmp rax",
        "4:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {address}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        map = sym INTERESTING,
        clone = const libc::SYS_clone,
        clone3 = const libc::SYS_clone3,
        is_fork = sym is_fork,
        followed = sym followed,
        real = sym crate::real::REAL,
        at = const crate::real::index("syscall") * size_of::<usize>(),
        missing = const crate::real::MISSING,
        address = sym address,
    )
}

/// Before a clone, or clone3, by number with these first two arguments: whether it neither shares memory nor changes the
/// stack. Nonsense is the kernel's to judge.
extern "C" fn is_fork(number: c_long, a: usize, b: usize) -> bool {
    /// CLONE_ARGS_SIZE_VER0 (linux/sched.h).
    const SHORTEST: usize = 64;
    let (flags, stack) = if number == libc::SYS_clone {
        (a, b)
    } else {
        let words = if b < SHORTEST { None } else { memory::read(a as *const [usize; SHORTEST / 8]) };
        let Some([flags, _, _, _, _, stack, ..]) = words else {
            if hook::is_sealed() {
                // The kernel is asked nothing here any more, and it may be one.
                hook::spread_everything();
            }
            return false;
        };
        (flags, stack)
    };
    child::cloning(flags as c_int);
    flags & libc::CLONE_VM as usize == 0 && stack == 0
}

/// The real `syscall()`, which every C library has.
extern "C" fn address() -> usize {
    crate::real::load::<{ crate::real::index("syscall") }>()
}

/// The real `syscall()` with its arguments.
fn real(number: c_long, a: [usize; 6]) -> c_long {
    // SAFETY: variadic in C; six words follow the number.
    unsafe {
        let f: unsafe extern "C" fn(c_long, ...) -> c_long = std::mem::transmute(address());
        f(number, a[0], a[1], a[2], a[3], a[4], a[5])
    }
}

crate::real::cancellable! { private!
/// Numbers of [`INTERESTING`]. Arguments that the number does not have are whatever the registers held.
unsafe fn followed(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let (fd, all) = (a as c_int, [a, b, c, d, e, f]);
    if hook::is_sealed() && !matches!(number, libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3) {
        // A filter allows the number that the program names, and perhaps not what a function makes of it.
        if matches!(number, libc::SYS_execve | libc::SYS_execveat | libc::SYS_sendmsg | libc::SYS_sendmmsg) {
            hook::spread_everything();
        }
        if matches!(number, libc::SYS_seccomp | libc::SYS_prctl | libc::SYS_unshare | libc::SYS_close_range) {
            // Another thread may not be done with it yet.
            errno::kept(hook::seal_end);
        }
        let is_endless = match number {
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => (d as c_int) < 0,
            libc::SYS_epoll_pwait2 => d == 0,
            _ => return real(number, all),
        };
        return epoll::sealed_wait(b as _, is_endless, || real(number, all) as c_int).into();
    }
    // SAFETY: each arm calls the function whose system call has this number, with the program's arguments.
    unsafe {
        match number {
            libc::SYS_read => io::read(fd, b as _, c) as c_long,
            libc::SYS_write => io::write(fd, b as _, c) as c_long,
            libc::SYS_readv => io::readv(fd, b as _, c as _) as c_long,
            libc::SYS_writev => io::writev(fd, b as _, c as _) as c_long,
            libc::SYS_sendfile => io::sendfile(fd, b as _, c as _, d) as c_long,
            libc::SYS_splice => io::splice(fd, b as _, c as _, d as _, e, f as _) as c_long,
            // The offset is split in two words; the high one is 0 or, for -1, all ones.
            libc::SYS_preadv2 => io::preadv2(fd, b as _, c as _, d as _, f as _) as c_long,
            libc::SYS_pwritev2 => io::pwritev2(fd, b as _, c as _, d as _, f as _) as c_long,
            libc::SYS_sendto => message::sendto(fd, b as _, c, d as _, e as _, f as _) as c_long,
            libc::SYS_recvfrom => message::recvfrom(fd, b as _, c, d as _, e as _, f as _) as c_long,
            libc::SYS_sendmsg => message::sendmsg(fd, b as _, c as _) as c_long,
            libc::SYS_recvmsg => message::recvmsg(fd, b as _, c as _) as c_long,
            libc::SYS_sendmmsg => message::sendmmsg(fd, b as _, c as _, d as _).into(),
            libc::SYS_recvmmsg => message::recvmmsg(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_socket => sock::socket(a as _, b as _, c as _).into(),
            libc::SYS_connect => sock::connect(fd, b as _, c as _).into(),
            libc::SYS_bind => sock::bind(fd, b as _, c as _).into(),
            libc::SYS_listen => sock::listen(fd, b as _).into(),
            libc::SYS_getsockname => sock::getsockname(fd, b as _, c as _).into(),
            libc::SYS_getpeername => sock::getpeername(fd, b as _, c as _).into(),
            libc::SYS_getsockopt => sock::getsockopt(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_accept => sock::accept(fd, b as _, c as _).into(),
            libc::SYS_accept4 => sock::accept4(fd, b as _, c as _, d as _).into(),
            libc::SYS_shutdown => sock::shutdown(fd, b as _).into(),
            libc::SYS_setsockopt => sock::setsockopt(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_close => sock::close(fd).into(),
            libc::SYS_close_range => sock::close_range(a as _, b as _, c as _).into(),
            libc::SYS_dup => sock::dup(fd).into(),
            libc::SYS_dup2 => sock::dup2(fd, b as _).into(),
            libc::SYS_dup3 => sock::dup3(fd, b as _, c as _).into(),
            libc::SYS_fcntl => fd::fcntl(fd, b as _, c).into(),
            libc::SYS_ioctl => fd::ioctl(fd, b as _, c).into(),
            libc::SYS_poll => poll::poll(a as _, b as _, c as _).into(),
            libc::SYS_select => select::select(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_epoll_create => epoll::epoll_create(a as _).into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(a as _).into(),
            libc::SYS_epoll_ctl => epoll::epoll_ctl(fd, b as _, c as _, d as _).into(),
            libc::SYS_epoll_wait => epoll::epoll_wait(fd, b as _, c as _, d as _).into(),
            libc::SYS_execve => exec::execve(a as _, b as _, c as _).into(),
            libc::SYS_execveat => exec::execveat(fd, b as _, c as _, d as _, e as _).into(),
            libc::SYS_exit_group => process::_exit(fd),
            libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3 => {
                c_long::from(child::forking_untold(|| real(number, all) as c_int))
            }
            _ => with_kernel_arguments(number, all),
        }
    }
}
}

/// Calls whose system call differs in shape from the function: a signal mask comes with its size, time left is
/// stored back, a mask hides behind another pointer.
unsafe fn with_kernel_arguments(number: c_long, all: [usize; 6]) -> c_long {
    const MASK_BYTES: usize = 8;
    let [a, b, c, d, e, f] = all;
    // SAFETY: as in `followed`.
    unsafe {
        match number {
            libc::SYS_ppoll if d == 0 || e == MASK_BYTES => {
                let fds: &[PollFd] = memory::slice(a as *const PollFd, b).unwrap_or(&[]);
                if !fds.iter().any(|f| hook::is_overlaid(f.fd)) {
                    return real(number, all);
                }
                timed(c, |time| poll::ppoll(a as _, b as _, time, d as _))
            }
            libc::SYS_epoll_pwait if e == 0 || f == MASK_BYTES => {
                epoll::epoll_pwait(a as _, b as _, c as _, d as _, e as _).into()
            }
            libc::SYS_epoll_pwait2 if e == 0 || f == MASK_BYTES => {
                epoll::epoll_pwait2(a as _, b as _, c as _, d as _, e as _).into()
            }
            libc::SYS_pselect6 => {
                let mask = if f == 0 { Some([0, MASK_BYTES]) } else { memory::read(f as *const [usize; 2]) };
                let followed = Sets::new(a as c_int, b as _, c as _, d as _).any_followed();
                match mask {
                    Some([mask, size]) if followed && (mask == 0 || size == MASK_BYTES) => {
                        timed(e, |time| select::pselect(a as _, b as _, c as _, d as _, time, mask as _))
                    }
                    _ => real(number, all),
                }
            }
            libc::SYS_io_uring_setup if !hook::io_uring_begin() => {
                errno::fail::<isize>(libc::ENOSYS) as c_long
            }
            libc::SYS_io_uring_setup => {
                let made = real(number, all);
                if made >= 0 {
                    errno::kept(hook::io_uring_done);
                }
                made
            }
            libc::SYS_pidfd_getfd => sock::pidfd_getfd(a as _, b as _, c as _).into(),
            libc::SYS_unshare => namespace::unshare(a as _).into(),
            libc::SYS_setns => namespace::setns(a as _, b as _).into(),
            libc::SYS_prctl => {
                seccomp::by_prctl(a as c_int, b, c);
                real(number, all)
            }
            libc::SYS_seccomp => {
                seccomp::by_number(a, b, c);
                real(number, all)
            }
            libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid | libc::SYS_setfsuid => {
                identity::changing(|| real(number, all))
            }
            libc::SYS_mq_notify => {
                if b != 0 {
                    queue::asking();
                }
                real(number, all)
            }
            libc::SYS_io_submit => {
                if io::submitted(b as c_long, c as _) {
                    real(number, all)
                } else {
                    -1
                }
            }
            _ => real(number, all),
        }
    }
}

/// Runs a call that takes the time at `at`, and stores there what is left of it: the system calls do, the functions
/// do not.
fn timed(at: usize, call: impl FnOnce(*const timespec) -> c_int) -> c_long {
    let at = at as *mut timespec;
    let started = message::now();
    let ret = call(at);
    if let Ok(Some(limit)) = memory::nanoseconds(at) {
        errno::kept(|| memory::write(at, memory::timespec(limit.saturating_sub(message::now() - started))));
    }
    ret.into()
}
