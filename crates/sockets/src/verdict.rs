//! What a hooked call is told to do.

use crate::moved::Moved;
use crate::raised::Raised;
use crate::table::Sock;
use crate::{state, stream};
use bypath_sys::Errno;
use std::sync::atomic::Ordering::Relaxed;

/// The answer to "who moves these bytes?".
#[derive(Debug)]
pub enum Verdict {
    /// Not a followed socket: call the real function, nothing to report.
    NotOurs,
    /// Call the real function, then report through the token.
    Kernel(Cold),
    /// Done here: bytes moved (or ready descriptors), or the errno to set.
    Done(Moved),
    /// A netstack service's socket: as [`served`](crate::hook::served) says, with the real function.
    Served,
    /// The same, and the result is reported through the token.
    ServedKernel(Cold),
}

impl Verdict {
    /// Done here.
    pub(crate) fn done(result: Result<usize, Errno>) -> Verdict {
        Verdict::Done(result.into())
    }

    /// A thread that slept in here while the last descriptor ceased to be followed makes the program's own call.
    #[inline]
    pub(crate) fn unless_sealed(self) -> Verdict {
        match self {
            Verdict::Done(moved) if moved.is(Errno::BADF) && state::is_sealed() => Verdict::NotOurs,
            other => other,
        }
    }
}

/// A call that went to the kernel on a followed socket or epoll set.
#[derive(Debug)]
#[must_use = "report the result with finish()"]
pub struct Cold(Kind);

#[derive(Debug)]
enum Kind {
    Data { sock: &'static Sock, generation: u32, sending: bool, raised: Option<Raised>, flags: i32 },
    Blind(Raised),
}

impl Cold {
    pub(crate) fn new(sock: &'static Sock, sending: bool, raised: Option<Raised>, flags: i32) -> Cold {
        let generation = sock.end().generation.load(Relaxed);
        Cold(Kind::Data { sock, generation, sending, raised, flags })
    }

    pub(crate) fn blind(wait: Raised) -> Cold {
        Cold(Kind::Blind(wait))
    }

    /// Whether the real function may wait.
    pub fn may_wait(&self) -> bool {
        matches!(self.0, Kind::Data { raised: Some(_), .. } | Kind::Blind(_))
    }

    /// Reports the real function's result: `ret` as returned (-1 on error). errno is preserved.
    pub fn finish(self, ret: isize) {
        match self.0 {
            Kind::Data { sock, generation, sending, raised, flags } => {
                // Closed meanwhile, and another socket has its record: what was moved is not that one's.
                let is_another = sock.end().generation.load(Relaxed) != generation;
                stream::cold_done(sock, sending, raised, flags, if is_another { 0 } else { ret });
            }
            Kind::Blind(raised) => raised.lower(),
        }
    }
}
