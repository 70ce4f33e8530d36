//! Every system call and every mapping of Bypath, one file per kernel object.
//!
//! Calls go to the kernel by inline assembly or through rustix's `linux_raw` backend, never through libc symbols:
//! inside the preload library those would be our own interposed functions. The only libc functions used are
//! `dlsym` and `getauxval`-like look-ups at start-up.

pub mod aio;
pub mod apart;
#[cfg(feature = "link")]
pub mod bpf;
pub mod cgroup;
pub mod changes;
pub mod clock;
pub mod epoll;
#[cfg(feature = "link")]
pub mod ethtool;
pub mod eventfd;
#[cfg(feature = "exec")]
pub mod exec;
pub mod fd;
pub mod folder;
pub mod futex;
pub mod handle;
#[cfg(feature = "link")]
pub mod heap;
pub mod image;
#[cfg(feature = "link")]
pub mod kept_folder;
pub mod mem;
pub mod memfd;
#[cfg(feature = "link")]
pub mod name_lock;
#[cfg(feature = "link")]
pub mod netif;
#[cfg(feature = "link")]
pub mod netlink;
#[cfg(feature = "link")]
pub mod netns;
pub mod no_magic;
pub mod open_files;
#[cfg(feature = "link")]
pub mod packet;
pub mod page;
#[cfg(feature = "link")]
pub mod pair;
pub mod poll;
pub mod process;
#[cfg(feature = "link")]
pub mod realtime;
#[cfg(feature = "link")]
pub mod route;
pub mod scratch;
pub mod seqpacket;
pub mod session;
pub mod signal;
pub mod sock;
pub mod sockdiag;
pub mod strangers;
mod syscall;
pub mod tcp_info;
pub mod thread;
pub mod timerfd;
#[cfg(feature = "link")]
pub mod tun;
pub mod turn;
pub mod unix;
pub mod user;
#[cfg(feature = "link")]
pub mod xdp;

pub use rustix::io::Errno;

// Where panics abort, the unwinder only prints backtraces. Linked in, it spares `bypath run` and every program under
// Bypath the loading of libgcc_s. Where they unwind, pthread_cancel and our frames must share the process's one. A linker
// that takes archives strictly in order finds nothing to take from this one, and names libgcc_s as before.
#[cfg(panic = "abort")]
#[link(name = "gcc_eh", kind = "static", modifiers = "-bundle")]
unsafe extern "C" {}

/// Result of a system call.
pub type Result<T> = std::result::Result<T, Errno>;
