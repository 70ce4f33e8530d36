//! sendfile() into a ring: the file is read in pieces, and these are sent. The kernel could only use its own connection.
//! Before the upgrade the kernel sends the file, where that may wait in parts: the connection can come up between them.
//!
//! The kernel's call holds both until it returns. So the file is read by a descriptor of the library's own as soon as it is to be read, or its
//! position set, after a wait; of the connection see [`Parts`].

use crate::errno;
use crate::io::{settle, user};
use crate::memory;
use crate::raw;
use bypath_sockets::hook::{self, File, FileSend, Parts, Verdict};
use bypath_sys::thread::stack_address;
use bypath_sys::user::IoVec;
use libc::{c_int, off_t, size_t};

/// Bytes of a piece.
const PIECE: usize = bypath_sys::scratch::SIZE;
/// What the kernel moves at most in one call (sendfile(2)).
const MOST: usize = 0x7fff_f000;
/// Bytes that the kernel is given at a time where it may wait for room.
const PART: usize = 256 * 1024;

/// The file that is sent.
struct Source {
    /// The program's number.
    number: c_int,
    held: Option<File>,
    frame: usize,
}

impl Source {
    fn number(&self) -> c_int {
        self.held.as_ref().map_or(self.number, File::number)
    }

    /// Whatever becomes of the program's number from here on, it is this file. False: that cannot be had.
    fn hold(&mut self) -> bool {
        if self.held.is_none() {
            self.held = File::hold(self.number, self.frame);
        }
        self.held.is_some()
    }
}

/// Sends `count` bytes of `from` on `out`, a followed socket, as sendfile(2) does; `kernel` is the real call on these two for so many
/// bytes, `kernel_path` makes the kernel path hold (false: it fails). Handlers run between the parts: [`hook::send_rest`].
pub(crate) fn send(
    out: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
    kernel: impl Fn(c_int, c_int, size_t) -> isize,
    kernel_path: impl Fn(c_int, c_int) -> bool,
) -> isize {
    let frame = stack_address();
    let parts = Parts::begin(out, frame);
    let mut source = Source { number: from, held: None, frame };
    let handlers = hook::handlers();
    let before = errno::get();
    let count = count.min(MOST);
    let mut done = 0;
    loop {
        let left = count - done;
        let Some(out) = (if done == 0 { Some(out) } else { parts.next() }) else { return done as isize };
        let (wanted, sent) = match hook::sendfile_begin(out) {
            FileSend::Kernel(report) => {
                // The kernel holds both for one part only.
                let goes_on = left > PART && report.may_wait() && raw::is_regular_file(source.number());
                let part = if goes_on && parts.hold() && source.hold() { PART } else { left };
                // Taking hold of them may have had to wait.
                let sent = match parts.number() {
                    Some(out) => kernel(out, source.number(), part),
                    None => errno::fail(libc::EBADF),
                };
                report.finish(sent);
                (part, sent)
            }
            FileSend::Pieces => {
                let since = (done > 0).then_some(handlers);
                let sent = in_pieces(&parts, &mut source, offset, left, since).unwrap_or_else(|| match parts
                    .number()
                {
                    Some(out) if kernel_path(out, source.number()) => kernel(out, source.number(), left),
                    Some(_) => -1,
                    None => errno::fail(libc::EBADF),
                });
                (left, sent)
            }
            FileSend::Unfollowed => {
                let holds = kernel_path(out, source.number());
                (left, if holds { kernel(out, source.number(), left) } else { -1 })
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

/// Sends `count` bytes of the file, in pieces. `None` = the kernel's call must answer: not a regular file that can be
/// read, or a pointer that cannot be. `rest_since`: the number of handlers before earlier parts of the call.
fn in_pieces(
    parts: &Parts,
    source: &mut Source,
    offset: *mut off_t,
    mut count: size_t,
    rest_since: Option<u32>,
) -> Option<isize> {
    if count == 0 || !raw::is_regular_file(source.number()) {
        return None;
    }
    if count > PIECE && !source.hold() {
        count = PIECE;
    }
    let start = if offset.is_null() { raw::position(source.number())? } else { memory::read(offset)? };
    if start < 0 || start.checked_add(count as off_t).is_none() {
        return None;
    }
    let mut scratch = hook::scratch(PIECE, stack_address())?;
    let piece = scratch.values::<u8>(PIECE);
    let handlers = rest_since.unwrap_or_else(hook::handlers);
    let mut done = 0;
    while done < count {
        let wanted = PIECE.min(count - done);
        let got = match raw::pread(source.number(), &mut piece[..wanted], start + done as off_t) {
            Ok([]) => break,
            Ok(read) => read,
            // The program gets this error from the kernel's own call, or with the next one.
            Err(_) if done == 0 => return None,
            Err(_) => break,
        };
        // Behind the read, which a slow file can make long.
        let Some(to) = parts.next() else {
            match done {
                0 => return Some(errno::fail(libc::EBADF)),
                _ => break,
            }
        };
        // After a wait the file's position is not set by a number of the program's.
        let flags = if offset.is_null() && source.held.is_none() { libc::MSG_DONTWAIT } else { 0 };
        let iov = [IoVec { base: got.as_ptr() as usize, len: got.len() }];
        let before = errno::get();
        let verdict = if done == 0 && rest_since.is_none() {
            hook::send(to, user(&iov), flags)
        } else {
            hook::send_rest(to, user(&iov), flags, handlers)
        };
        if hook::is_sealed() && matches!(verdict, Verdict::NotOurs) {
            // The program's own call goes on, or its next one.
            match done {
                0 => return None,
                _ => break,
            }
        }
        let sent = settle(verdict, || {
            if flags == 0 && count > PIECE {
                parts.hold();
            }
            parts.number().map_or_else(|| errno::fail(libc::EBADF), |to| raw::send(to, got, flags))
        });
        let may_wait =
            flags != 0 && if sent < 0 { errno::get() == libc::EAGAIN } else { (sent as usize) < got.len() };
        if may_wait {
            let held = source.hold();
            errno::set(before);
            done += sent.max(0) as usize;
            match held {
                true => continue,
                false if done == 0 => return None,
                false => break,
            }
        }
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
        raw::set_position(source.number(), end);
    } else {
        memory::trusted_write(offset, end);
    }
    Some(done as isize)
}
