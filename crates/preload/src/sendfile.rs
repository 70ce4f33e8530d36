//! sendfile() into a ring: the file is read in pieces, and these are sent. The kernel could only use its own connection.
//! Before the upgrade the kernel sends the file, where that may wait in parts: the connection can come up between them.

use crate::errno;
use crate::io::{settle, user};
use crate::memory;
use crate::raw;
use bypath_sockets::hook::{self, FileSend};
use bypath_sys::thread::stack_address;
use bypath_sys::user::IoVec;
use libc::{c_int, off_t, size_t};

/// Bytes of a piece.
const PIECE: usize = bypath_sys::scratch::SIZE;
/// What the kernel moves at most in one call (sendfile(2)).
const MOST: usize = 0x7fff_f000;
/// Bytes that the kernel is given at a time where it may wait for room.
const PART: usize = 256 * 1024;

/// Sends `count` bytes of `from` on `out`, a followed socket, as sendfile(2) does; `kernel` is the real call for so many
/// bytes, `kernel_path` makes the kernel path hold. Handlers run between the parts: [`hook::send_rest`].
pub(crate) fn send(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
    kernel: impl Fn(size_t) -> isize,
    kernel_path: impl Fn(),
) -> isize {
    let handlers = hook::handlers();
    let before = errno::get();
    let count = count.min(MOST);
    let mut done = 0;
    loop {
        let left = count - done;
        let (wanted, sent) = match hook::sendfile_begin(out) {
            FileSend::Kernel(report) => {
                let parts = left > PART && report.may_wait() && raw::is_regular_file(from);
                let part = if parts { PART } else { left };
                let sent = kernel(part);
                report.finish(sent);
                (part, sent)
            }
            FileSend::Pieces => {
                let since = (done > 0).then_some(handlers);
                let sent = in_pieces(out, from, offset, left, since).unwrap_or_else(|| {
                    kernel_path();
                    kernel(left)
                });
                (left, sent)
            }
            FileSend::Unfollowed => {
                kernel_path();
                (left, kernel(left))
            }
        };
        if sent < 0 && done > 0 {
            // The kernel's one call would have ended with what was sent, and so without an error.
            errno::set(before);
            return done as isize;
        }
        if sent < 0 {
            return sent;
        }
        done += sent as usize;
        let interrupted = hook::handlers() != handlers;
        if (sent as usize) < wanted || done == count || interrupted {
            return done as isize;
        }
    }
}

/// Sends `count` bytes of `from` on `out`, in pieces. `None` = the kernel's call must answer: not a regular file that can be
/// read, or a pointer that cannot be. `rest_since`: the number of handlers before earlier parts of the call.
fn in_pieces(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
    rest_since: Option<u32>,
) -> Option<isize> {
    if count == 0 || !raw::is_regular_file(from) {
        return None;
    }
    let start = if offset.is_null() { raw::position(from)? } else { memory::read(offset)? };
    if start < 0 || start.checked_add(count as off_t).is_none() {
        return None;
    }
    let mut scratch = hook::scratch(PIECE, stack_address())?;
    let piece = scratch.values::<u8>(PIECE);
    let handlers = rest_since.unwrap_or_else(hook::handlers);
    let mut done = 0;
    while done < count {
        let wanted = PIECE.min(count - done);
        let got = match raw::pread(from, &mut piece[..wanted], start + done as off_t) {
            Ok([]) => break,
            Ok(read) => read,
            // The program gets this error from the kernel's own call, or with the next one.
            Err(_) if done == 0 => return None,
            Err(_) => break,
        };
        let iov = [IoVec { base: got.as_ptr() as usize, len: got.len() }];
        let before = errno::get();
        let verdict = if done == 0 && rest_since.is_none() {
            hook::send(out, user(&iov), 0)
        } else {
            hook::send_rest(out, user(&iov), 0, handlers)
        };
        let sent = settle(verdict, || raw::send(out, got));
        if sent < 0 {
            if done == 0 {
                return Some(-1);
            }
            errno::set(before);
            break;
        }
        done += sent as usize;
        if (sent as usize) < got.len() {
            break;
        }
    }
    let end = start + done as off_t;
    if offset.is_null() {
        raw::set_position(from, end);
    } else {
        memory::write(offset, end);
    }
    Some(done as isize)
}
