//! MSG_PEEK where the first bytes are in the carrier.

use super::accessible;
use super::recv::taken_away;
use crate::peer::Conn;
use crate::promised::Lack;
use crate::stay::Staying;
use crate::table::Sock;
use crate::thread::Call;
use crate::unwoken::Pace;
use crate::wait::Deadline;
use crate::{carrier, over};
use bypath_shm::direction::{Head, position};
use bypath_sys::Errno;
use bypath_sys::page::Access;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::user::UserVec;
use std::ops::Range;
use std::sync::atomic::Ordering::*;

/// How soon too few bytes for a MSG_PEEK are looked at again.
const BEHIND_NS: u64 = 1_000_000;

/// A MSG_PEEK that waits where the kernel would tell at once of the bytes in the carrier, which are too few: they are looked at again after a pause.
pub struct Behind<'a> {
    pub lack: &'a mut Lack,
    pub looks: &'a mut Option<Pace>,
    pub staying: &'a mut Staying,
    pub ends: Deadline,
}

impl Behind<'_> {
    /// Whether more than `shown` may be there now. False: none will come, as the time is over, a signal came, or the stream has ended.
    ///
    /// # Errors
    /// ECONNRESET: what was told to be there is not. EBADF: another thread has closed `fd`.
    #[cold]
    pub fn for_more_than(
        self,
        call: &Call,
        s: &'static Sock,
        conn: &'static Conn,
        fd: &mut i32,
        shown: u64,
    ) -> Result<bool, Errno> {
        if self.lack.bound(s, conn, shown, self.ends).is_none() {
            return Err(taken_away(s, conn));
        }
        let pause = self.looks.get_or_insert_with(Pace::new).next(shown, BEHIND_NS);
        let bound = self.ends.left().unwrap_or(u64::MAX).min(pause);
        let wait = || {
            let mut fds = [PollFd { fd: s.carrier(), events: libc::POLLRDHUP, revents: 0 }];
            matches!(call.parked(|| ppoll(&mut fds, Some(bound), 0)), Ok(0)) && self.ends.left() != Some(0)
        };
        let (goes, now) = self.staying.sleep(call, s, *fd, wait);
        *fd = now.ok_or(Errno::BADF)?;
        Ok(goes)
    }
}

/// MSG_PEEK read the first bytes from the carrier: if those were all, ring bytes follow. How many there are then, at most as
/// many as `rest` ends with. `counts`: they are only counted (MSG_TRUNC).
pub fn peek_behind(
    call: &Call,
    s: &'static Sock,
    conn: &'static Conn,
    head: Head,
    buf: UserVec<'_>,
    rest: Range<usize>,
    counts: bool,
) -> usize {
    let Range { start: done, end: want } = rest;
    let expected = conn.inc().wa.switch_k.load(Relaxed);
    let all = carrier::of(s).arrived(s, expected, done);
    let waiting = position::distance(head.position(), conn.inc().t.tail.load(Acquire));
    if !all || waiting > conn.rx.size() {
        return done;
    }
    let waiting = over::of_those_behind(s, conn, head, waiting);
    let n = (waiting as usize).min(want - done);
    let n = if n > 0 && !counts { accessible(call, buf, done, n, Access::Write) } else { n };
    if !counts {
        conn.rx.copy_out(head.position(), buf, done, n);
    }
    if conn.inc().h.head.load(Acquire) == head.raw() { done + n } else { done }
}
