//! sendfile() into a ring: the file is read in pieces, and these are sent. The kernel could only use its own connection.

use crate::errno;
use crate::io::{settle, user};
use crate::memory;
use crate::raw;
use bypath_sockets::hook;
use bypath_sys::user::IoVec;
use libc::{c_int, off_t, size_t};
use std::mem::MaybeUninit;

/// Bytes of a piece. They lie on the stack, which may be that of a small thread.
const PIECE: usize = 16 * 1024;
/// What the kernel moves at most in one call (sendfile(2)).
const MOST: usize = 0x7fff_f000;

/// Sends `count` bytes of `from` on `out`, as sendfile(2) does. `None` = the kernel's call must answer: not a regular file
/// that can be read, or a pointer that cannot be.
pub(crate) fn in_pieces(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> Option<isize> {
    if count == 0 || !raw::is_regular_file(from) {
        return None;
    }
    let start = if offset.is_null() { raw::position(from)? } else { memory::read(offset)? };
    let count = count.min(MOST);
    if start < 0 || start.checked_add(count as off_t).is_none() {
        return None;
    }
    let mut piece = [const { MaybeUninit::<u8>::uninit() }; PIECE];
    let handlers = hook::handlers();
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
        let verdict = if done == 0 {
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
