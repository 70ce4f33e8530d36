//! The interposed symbols: every C library function that can touch a followed socket, in front of the real one.
//!
//! What a call means is decided in `bypath-sockets`; here is only the C side of it: arguments, errno, the real
//! function. No function here allocates, locks, or uses `std::io` (which would come back through these symbols).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
compile_error!("the interposed symbols exist for x86-64 Linux with glibc");

mod cancel;
mod child;
mod datagrams;
mod epoll;
mod errno;
mod exec;
mod fd;
mod identity;
mod init;
mod interfaces;
mod io;
mod memory;
mod message;
mod namespace;
mod poll;
mod process;
mod queue;
mod raw;
mod real;
mod seccomp;
mod select;
mod sendfile;
mod served;
mod signal;
mod sock;
mod stdio;
mod symbols;
mod syscall;
mod told;
mod udp;
mod uring;
