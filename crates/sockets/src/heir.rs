//! A connection that goes on in the next program image of its process.
//!
//! Before an exec everything is on the carrier. The image that goes leaves a *deed*: which descriptors stay open, which
//! ends of its family they are, and its place in the family, which it keeps, as pid and start time do not change. The
//! deed travels in a variable of the environment, the family's region as a handle that opens for its maker's user alone
//! ([`bypath_sys::handle`]): whatever comes in place of that image, or beside it, as another user has nothing by it. The image
//! that comes takes the deed in its start-up, once, and only if it is the very next one; it follows the sockets as ends of a family of its own.
//! Such an end is held by one process alone only if, beside that, nobody of the elder family holds it any more. See
//! docs/switch-protocol.md, "Another image".

use crate::peer::Conn;
use crate::state::{self, State};
use crate::table::{self, Entry, Sock, flag};
use crate::thread::Call;
use crate::{carrier, flush, life, log, memory, numbers, rendezvous};
use bypath_shm::direction::{Path, writer_flag};
use bypath_shm::family::{self, End, Family, HEIR_CAME, wpath};
use bypath_shm::reason::Reason;
use bypath_shm::region::{self, StaticCell};
use bypath_sys::{fd, open_files, process, sock};
use std::fmt::Write;
use std::sync::atomic::Ordering::*;

/// The variable that carries a deed.
pub const VARIABLE: &str = "BYPATH_DEED";
/// Most descriptors of one deed; more stay on the kernel.
const MOST: usize = 16;
/// What `/proc` calls a kernel epoll set, and an instance of io_uring: who inherits one may have registered anything.
const GATHERERS: [&[u8]; 2] = [b"anon_inode:[eventpoll]", b"anon_inode:[io_uring]"];

/// The file that the next image is made of, where its loader will load this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// Those that this image was left, whatever became of them here.
static ELDERS: [StaticCell<Elder>; MOST] = [const { StaticCell::new() }; MOST];

/// A socket of an elder family: this process's earlier image had it as that.
#[derive(Debug)]
pub struct Elder {
    family: &'static Family,
    number: u32,
    generation: u32,
    /// The bit of this process there.
    bit: u64,
}

impl Elder {
    fn end(&self) -> Option<&'static End> {
        self.family.ends.get(self.number as usize).filter(|e| e.generation.load(Acquire) == self.generation)
    }

    /// The elders must not take it for theirs alone when this process is gone.
    fn spread(&self) {
        if let Some(end) = self.end() {
            end.flags.fetch_or(flag::SPREAD, AcqRel);
        }
    }

    /// This process holds it no longer, or by another name.
    pub fn leave(&self) {
        if let Some(end) = self.end()
            && end.holders.fetch_and(!self.bit, AcqRel) == self.bit
        {
            numbers::free(end);
        }
    }

    /// Whether nobody else of that family holds it. Who is dead does not.
    fn is_deserted(&self, end: &End) -> bool {
        // Whether an exec of theirs has happened only their own family can ask.
        numbers::is_left_to(self.family, end, self.bit, |_| false)
    }
}

// ---------------------------------------------------------------- leaving

/// A deed under way: the exec may fail yet.
#[derive(Debug)]
pub struct Deed {
    text: Text,
    number: u64,
    /// Of the family's region.
    handle: i32,
}

impl Deed {
    /// Last before the exec: what other threads start, or fork, while things are handed over inherits no handle.
    pub fn hand_on(&self) {
        let _ = fd::set_cloexec(self.handle, false);
    }

    /// `NAME=VALUE`, NUL terminated, for the next image's environment.
    pub fn variable(&self) -> &[u8] {
        &self.text.bytes[..=self.text.len]
    }

    /// Whether the next image can go on with it.
    pub fn is_about(&self, s: &Sock) -> bool {
        s.end().r.heir.load(Acquire) == self.number
    }

    /// The exec failed: nobody comes.
    pub fn revoke(self) {
        fd::close(self.handle);
        table::each_sock(|s| {
            if s.end().r.heir.compare_exchange(self.number, 0, AcqRel, Relaxed).is_ok()
                && let Some(conn) = s.conn.get()
            {
                conn.inc().stay();
            }
        });
    }
}

/// Before the descriptors that stay open are handed over: leaves a deed for those that the next image, as `image` says, may go
/// on with. Their ends say so.
pub fn leave(image: impl FnOnce() -> Option<Image>) -> Option<Deed> {
    let state = state::get()?;
    if state::is_sealed() || state::is_memory_of_another() || state::hindrance().is_some() || state.view() < 0
    {
        return None;
    }
    // What says everything about the sockets of a family is for its maker's programs alone.
    if fd::owner(state.view()) != Ok(process::euid()) || !process::is_one_user() {
        return None;
    }
    let mut any = false;
    table::each(|number, entry| {
        any |= matches!(entry, Entry::Sock(_)) && fd::is_cloexec(number) == Ok(false);
    });
    let place = state.own().index.load(Relaxed);
    let p = state.family.header.processes.get(place as usize).filter(|_| any)?;
    let (pid, started) = (p.pid.load(Relaxed), p.start_time.load(Relaxed));
    if p.ready.load(Acquire) != 1 || pid != process::pid() || process::start_time(pid) != Some(started) {
        return None;
    }
    // The next image may be in another time namespace, where the process has another start time.
    let [time, later] = process::time_namespaces();
    if time != later {
        return None;
    }
    let image = image()?;
    let handle = region::hand_on(state.view(), state::floor()).ok()?;
    let mut deed = Deed { text: Text::new(), number: process::random_u64() | 2, handle };
    let (number, device, inode) = (deed.number, image.device, image.inode);
    // The text has room for that, and for the sockets.
    let _ = write!(
        deed.text,
        "{VARIABLE}={pid:x}:{started:x}:{handle:x}:{place:x}:{number:x}:{device:x}:{inode:x}"
    );
    let mut left = 0;
    table::each(|number, entry| {
        let Entry::Sock(s) = entry else { return };
        if left == MOST || fd::is_cloexec(number) != Ok(false) || !can_go_on(s, state, deed.number) {
            return;
        }
        let end = s.end();
        // A sibling may be about to leave one, too.
        if end.r.heir.compare_exchange(0, deed.number, AcqRel, Acquire).is_err_and(|now| now != deed.number) {
            return;
        }
        let generation = end.generation.load(Relaxed);
        let _ = write!(deed.text, ",{number:x}:{:x}:{generation:x}", s.number.load(Relaxed));
        left += 1;
    });
    let inherited = |link| open_files::any(link, state::floor(), |n| fd::is_cloexec(n) != Ok(false));
    if left == 0 || GATHERERS.iter().any(|link| inherited(link) != Ok(false)) {
        deed.revoke();
        return None;
    }
    Some(deed)
}

/// Whether the next image may go on with the socket: what was done with it so far is known to the last detail.
fn can_go_on(s: &'static Sock, state: &State, deed: u64) -> bool {
    let end = s.end();
    let heir = end.r.heir.load(Acquire);
    carrier::is_counted(s)
        && (heir == 0 || heir == deed)
        && !s.has(flag::FOR_GOOD | flag::SPREAD | flag::NO_READ)
        && end.holders.load(Acquire) & state.bit() != 0
        && settle(s)
        && table::identify(s)
}

// ---------------------------------------------------------------- taking

/// What a deed says.
struct Parsed<'a> {
    pid: u32,
    started: u64,
    handle: i32,
    place: u32,
    number: u64,
    image: Image,
    sockets: &'a str,
}

fn hex<T: TryFrom<u64>>(field: Option<&str>) -> Option<T> {
    let field = field.filter(|f| f.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u64::from_str_radix(field, 16).ok().and_then(|n| T::try_from(n).ok())
}

fn parse(text: &str) -> Option<Parsed<'_>> {
    let (head, sockets) = text.split_once(',')?;
    let mut fields = head.split(':');
    let parsed = Parsed {
        pid: hex(fields.next())?,
        started: hex(fields.next())?,
        handle: hex(fields.next())?,
        place: hex(fields.next())?,
        number: hex(fields.next())?,
        image: Image { device: hex(fields.next())?, inode: hex(fields.next())? },
        sockets,
    };
    fields.next().is_none().then_some(parsed)
}

/// Takes the deed that the variable holds, if it is this image's. At its start, before any code of the program.
pub fn take(text: &str) {
    let Some(deed) = parse(text) else { return };
    // A child's image, or one of another process, has the variable by descent.
    let is_for_this =
        deed.pid == process::pid() && process::start_time(deed.pid) == Some(deed.started) && deed.number >= 2;
    // Where a file names the library for all programs, one that its user has started with more rights than he has has it, too.
    let is_own = fd::owner(deed.handle) == Ok(process::euid());
    let family = if is_for_this && is_own { region::map_family(deed.handle).ok() } else { None };
    // Whoever's deed it is. A number that means something else now is the program's.
    if region::is_handed_on(deed.handle) {
        fd::close(deed.handle);
    }
    let Some(family) = family else { return };
    let Some(p) = family.header.processes.get(deed.place as usize) else { return };
    let named = p.ready.load(Acquire) == 1
        && p.pid.load(Relaxed) == deed.pid
        && p.start_time.load(Relaxed) == deed.started
        && family.header.magic.load(Acquire) == family::VIEW_MAGIC;
    if !named {
        return;
    }
    if fd::file(c"/proc/self/exe").ok() != Some((deed.image.device, deed.image.inode)) {
        // Another image was there before this one, and may have given the descriptors to anybody.
        return;
    }
    let Some(_life) = state::LIFE.lock(table::tid()) else { return };
    for socket in deed.sockets.split(',').take(MOST) {
        let mut fields = socket.split(':');
        let (Some(number), Some(end), Some(generation)) =
            (hex(fields.next()), hex(fields.next()), hex(fields.next()))
        else {
            return;
        };
        let _ = follow(number, family, end, generation, &deed);
    }
}

fn follow(number: i32, family: &'static Family, end: u32, generation: u32, deed: &Parsed<'_>) -> Option<()> {
    let bit = 1u64.checked_shl(deed.place)?;
    let elder = Elder { family, number: end, generation, bit };
    let was = elder.end()?;
    let cookie = sock::option_u64(number, libc::SOL_SOCKET, libc::SO_COOKIE).ok()?;
    if was.cookie.load(Relaxed) != cookie || was.holders.load(Acquire) & bit == 0 {
        return None;
    }
    // One more descriptor of what was taken already?
    let mut known = None;
    table::each_sock(|s| {
        if s.end().cookie.load(Relaxed) == cookie {
            known = Some(s);
        }
    });
    if let Some(s) = known {
        if number <= 2 {
            s.set(flag::STANDARD);
        }
        table::alias(number, s);
        return Some(());
    }
    was.r.heir.compare_exchange(deed.number, HEIR_CAME, AcqRel, Relaxed).ok()?;
    let nonblocking = fd::status_flags(number).ok()? & libc::O_NONBLOCK != 0;
    let s = table::follow(number, carrier::Kind::Tcp, nonblocking)?;
    let now = s.end();
    now.cookie.store(cookie, Relaxed);
    // Others may have moved bytes, and may do so yet.
    s.set(flag::ELDERS | flag::UNCOUNTED);
    let elder = region::leak(elder).ok();
    s.elder.set(elder);
    if let Some(place) = ELDERS.iter().find(|place| place.get().is_none()) {
        place.set(elder);
    }
    if let Ok((given, arrived)) = carrier::of(s).moved(s) {
        now.w.kernel_bytes.store(given, Relaxed);
        now.r.kernel_bytes.store(arrived, Relaxed);
    }
    // An error that the earlier image's own flush took from the socket.
    let error = was.pending_error.swap(0, AcqRel);
    now.pending_error.store(error, Relaxed);
    log::line(
        crate::config::LogLevel::Debug,
        format_args!("fd {number}: taken over from the program that ran before"),
    );
    Some(())
}

// ---------------------------------------------------------------- who else holds it

/// Whether this process alone holds the socket, as its own family and the elder one say. Asks the kernel who lives.
pub fn is_alone(s: &'static Sock, state: &State) -> bool {
    !s.has(flag::SPREAD)
        && may_be_replaced(s)
        && settle(s)
        && (s.is_sole_holder(state) || life::is_last_process(s) && s.is_sole_holder(state))
        && no_heir(s)
}

/// Nobody of the family but this process holds the socket any more: whether that is true of an heir as well, who may have
/// had children of its own. It would have said so, before.
fn no_heir(s: &Sock) -> bool {
    let heir = &s.end().r.heir;
    match heir.load(Acquire) {
        0 => true,
        HEIR_CAME => {
            // What it moved was counted in its own family.
            s.set(flag::UNCOUNTED);
            !s.has(flag::SPREAD) && heir.compare_exchange(HEIR_CAME, 0, AcqRel, Relaxed).is_ok()
        }
        // A deed that nobody took: an image that is not followed had the socket.
        _ => false,
    }
}

/// Before a fork: what was left to this process will be held by two of its new family, of which the elders do not know.
pub fn forking() {
    if ELDERS[0].get().is_none() {
        return;
    }
    table::each_sock(|s| {
        if let Some(elder) = s.elder.get()
            && !settle(s)
        {
            elder.spread();
        }
    });
}

/// Somebody whose doings nobody can follow may hold the socket from now on.
pub fn spread(s: &Sock) {
    s.set(flag::SPREAD);
    if let Some(elder) = s.elder.get() {
        elder.spread();
    }
}

/// Whether nobody of an elder family holds the socket. Once that is so it stays so: who holds nothing has nothing to
/// pass on.
fn settle(s: &'static Sock) -> bool {
    if !s.has(flag::ELDERS) {
        return true;
    }
    let Some(elder) = s.elder.get() else { return false };
    let Some(was) = elder.end() else {
        // Its record has another meaning by now: what it would have told is lost.
        s.set(flag::SPREAD);
        return false;
    };
    if !elder.is_deserted(was) || was.r.in_kernel.load(SeqCst) != 0 || was.w.in_kernel.load(SeqCst) != 0 {
        return false;
    }
    // Looked at after the holders: who passes a descriptor on says so first.
    let flags = was.flags.load(Acquire);
    if flags & (flag::SPREAD | flag::HANDED_OVER) != 0 {
        s.set(flag::SPREAD);
        return false;
    }
    s.set(flags & (flag::SENT_FIN | flag::NO_READ | flag::PEER_GONE | flag::FOREIGN_BYTES));
    s.clear(flag::ELDERS);
    elder.leave();
    true
}

/// After a call that went through the carrier under a mapped connection: looks whether another image has come to the other
/// end.
#[inline]
pub fn look(s: &'static Sock, conn: &'static Conn, call: &Call, sending: bool) {
    // Each side looks at its own lines only, unless there is reason.
    let by_carrier = if sending {
        s.end().w.path.load(Relaxed) == wpath::KERNEL
    } else {
        conn.inc().path() == Path::Kernel
    };
    if by_carrier && conn.out().is_left() {
        meet_again(s, call);
    }
}

#[cold]
fn meet_again(s: &'static Sock, call: &Call) {
    if !call.thread.is_outermost() {
        return;
    }
    if !s.left.swap(true, Relaxed) {
        s.attempts.store(0, Relaxed);
        s.due_calls.store(0, Relaxed);
        s.due_bytes.store(0, Relaxed);
    }
    rendezvous::traffic(s);
}

/// Whether a connection that is mapped may be mapped anew: both directions are the carrier's to the last byte, and no
/// other thread or process has a hand in the old one.
fn may_be_replaced(s: &Sock) -> bool {
    let Some(conn) = s.conn.get() else { return true };
    s.left.load(Relaxed)
        && !s.is_inherited()
        && conn.out().is_left()
        && s.end().w.path.load(Acquire) == wpath::KERNEL
        && !flush::has_left_rest(conn)
        && conn.inc().path() == Path::Kernel
        && conn.inc().wa.flags.load(Acquire) & (writer_flag::FLUSHING | writer_flag::SHUT) == 0
        && process::threads() == Some(1)
}

/// The connection `old` of `s` was replaced.
pub fn replaced(s: &Sock, old: &'static Conn) {
    s.left.store(false, Relaxed);
    memory::forget(s, old);
    old.release();
}

/// Whatever this process holds may be held by others from now on of whom nobody will know: it makes calls that are not
/// followed any more, but for their kind.
#[cold]
pub fn spread_everything() {
    let Some(state) = state::get() else { return };
    let used = state.family.header.ends_used.load(Acquire) as usize;
    for end in state.family.ends.iter().take(used) {
        if end.holders.load(Acquire) & state.bit() != 0 {
            end.flags.fetch_or(flag::SPREAD, AcqRel);
        }
    }
    ELDERS.iter().filter_map(StaticCell::get).for_each(Elder::spread);
}

/// `number`, which is 0, 1 or 2, means `s` no longer. If that was all that kept a socket of an earlier image on the
/// kernel, nothing does: no child has it, and no thread is in a call of the C library on it.
pub fn no_standard_descriptor(s: &'static Sock, number: i32) {
    let Some(state) = state::get() else { return };
    if number > 2 || s.elder.get().is_none() || s.has(flag::FOR_GOOD) || !s.is_sole_holder(state) {
        return;
    }
    let other = (0..=2).any(|n| n != number && table::still(n, s));
    if !other && process::threads() == Some(1) {
        s.clear(flag::STANDARD);
        s.set_reason(Reason::BelowThreshold);
    }
}

// ---------------------------------------------------------------- text

/// A line without allocation: exec happens in forked children of programs with threads.
#[derive(Debug)]
struct Text {
    bytes: [u8; Text::SIZE + 1],
    len: usize,
}

impl Text {
    const SIZE: usize = 1023;

    fn new() -> Text {
        Text { bytes: [0; Text::SIZE + 1], len: 0 }
    }
}

impl Write for Text {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        // The last byte stays NUL.
        let room = &mut self.bytes[..Text::SIZE];
        let to = room.get_mut(self.len..self.len + s.len()).ok_or(std::fmt::Error)?;
        to.copy_from_slice(s.as_bytes());
        self.len += s.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_deed_says_is_read_back() {
        let deed = parse("1f:abc:400:3:deadbeef00000003:fd01:10,5:2:1,7:2:1").unwrap();
        assert_eq!((deed.pid, deed.started, deed.handle, deed.place), (0x1f, 0xabc, 0x400, 3));
        assert_eq!((deed.number, deed.image), (0xdead_beef_0000_0003, Image { device: 0xfd01, inode: 16 }));
        assert_eq!(deed.sockets, "5:2:1,7:2:1");
    }

    #[test]
    fn what_is_no_deed_is_none() {
        for text in [
            "",
            ",",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6,8:9:a",
            "1:2:3:4:5:6:7:8,8:9:a",
            "+1:2:3:4:5:6:7,8:9:a",
            "1:2:3:4:5:6:,8:9:a",
            "100000000:2:3:4:5:6:7,8:9:a",
            "1:2:ffffffff:4:5:6:7,8:9:a",
            "1:2:3:4:10000000000000000:6:7,8:9:a",
            "x:2:3:4:5:6:7,8:9:a",
        ] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_text_is_cut_nowhere_before_its_end() {
        let mut text = Text::new();
        for _ in 0..Text::SIZE {
            text.write_str("x").unwrap();
        }
        assert!(text.write_str("x").is_err());
        assert_eq!((text.bytes[Text::SIZE - 1], text.bytes[text.len]), (b'x', 0));
    }
}
