//! What the interposed calls ask: for each socket call one question before the real call, sometimes one report
//! after it. Descriptors that are not followed cost one table look-up.
//!
//! Conventions: `*_begin` is called before the real function, `*_done` after it with its result. A
//! [`Verdict::Kernel`] answer means: call the real libc function with the program's own arguments, then hand
//! its result to [`Cold::finish`].

use crate::config::Config;
pub use crate::heir::{Deed, Image, VARIABLE as DEED};
pub use crate::meant::{Meant, MeantAll};
pub use crate::moved::Moved;
pub use crate::parts::{File, Parts};
pub use crate::service::SocketName;
pub use crate::service::calls as served;
pub use crate::service::datagram::{self, calls as datagrams, mail};
pub use crate::service::interfaces;
pub use crate::service::place::VARIABLE as FOLDER;
pub use crate::service::{are_inherited, are_unasked, ask_about_all};
pub use crate::state::{SHARERS, is_memory_of_another, own_copy};
use crate::stream::Step;
use crate::table::{self, Sock, flag};
pub use crate::udp::calls as udp;
pub use crate::verdict::{Cold, Verdict};
use crate::{
    carrier, connects, cut, epoll, flush, fork, heir, life, log, options, peer, poll, promised, ready,
    sealed, service, signals, state, stream, switch, thread, uring,
};
pub use bypath_shm::datagram as record;
pub use bypath_shm::reason::Reason;
pub use bypath_shm::service::Address;
pub use bypath_sys::poll::PollFd;
pub use bypath_sys::scratch::Scratch;
use bypath_sys::signal::Deferred;
use bypath_sys::user::{UserControl, UserVec};
use bypath_sys::{Errno, apart, fd, sock};
use std::sync::atomic::Ordering::*;

/// The calling thread is to end: on EINTR its hooks ask [`is_cancelled`].
const CANCELLED: Verdict = Verdict::Done(Moved::failed(Errno::INTR));

/// Called once by the library's constructor, before the program's own code and before any fork.
/// Nothing is followed until then, and nothing at all if it fails.
pub fn init(config: Config) {
    state::init(config);
}

/// After [`init`]: which netstack services there are, and which sockets of theirs the program inherits. `lookup` is a `getenv`.
pub fn init_netstack<'a>(lookup: impl Fn(&str) -> Option<&'a str>) {
    service::init(lookup);
}

/// Before mq_notify(3) asks the kernel for a notification: what other users send is received no more, as that takes it back (`bypath_sys::apart`).
pub fn notification_begin() {
    apart::forbid();
}

/// Whether some socket of the process may be a netstack service's.
#[inline(always)]
pub fn serves() -> bool {
    service::is_active()
}

/// Whether some socket of the process may move datagrams in another way than the kernel alone.
#[inline(always)]
pub fn moves_datagrams() -> bool {
    service::is_active() || udp::is_active()
}

/// Whether `fd` is one of the library's own descriptors. The program
/// may not close or replace it: answer EBADF as for a descriptor that is not open.
#[inline]
pub fn is_own_fd(fd: i32) -> bool {
    state::owns(fd)
}

/// The lowest of the library's own descriptors that is not below `from`, for `close_range` and `closefrom` (which must
/// leave them open).
pub fn next_own_fd(from: u32) -> Option<u32> {
    let mut next = None::<u32>;
    let mut take = |d: i32| {
        if let Ok(d) = u32::try_from(d)
            && d >= from
            && next.is_none_or(|n| d < n)
        {
            next = Some(d);
        }
    };
    service::descriptors(&mut take);
    crate::udp::descriptors(&mut take);
    if let Some(s) = state::get() {
        s.descriptors().for_each(&mut take);
        thread::descriptors(&mut take);
        peer::descriptors(&mut take);
        epoll::descriptors(&mut take);
        table::each_sock(|k| {
            [&k.listener, &k.dialled, &k.caller].iter().for_each(|own| take(own.load(Relaxed)));
            k.stays.descriptor().into_iter().for_each(&mut take);
        });
    } else {
        take(log::descriptor());
    }
    next
}

/// `socket()` returned `fd`.
pub fn socket_done(fd: i32, domain: i32, kind: i32, protocol: i32) {
    life::socket_done(fd, domain, kind, protocol);
}

/// `accept()`/`accept4()` on `listener` returned `fd`; `flags` are accept4's.
pub fn accept_done(listener: i32, fd: i32, flags: i32) {
    life::accept_done(listener, fd, flags);
}

/// Before `connect()` on `fd`.
pub fn connect_begin(fd: i32, dissolves: bool) {
    connects::begin(fd, dissolves);
}

/// Receive: read, readv, recv, recvfrom. `flags` are MSG_*.
#[inline]
pub fn recv(fd: i32, buf: UserVec<'_>, flags: i32) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    loop {
        let step = stream::recv(fd, buf, flags, None, None);
        // The usual one is looked at before it is copied anywhere.
        if let Step::Done(moved) = step
            && !moved.is(Errno::BADF)
            && !service::rest::is_any()
        {
            return Verdict::Done(moved);
        }
        if let Some(v) = step.verdict(flags, false) {
            return service::rest::received(fd, buf, flags, v);
        }
    }
}

/// As [`recv`], for recvmsg: what the kernel tells beside the bytes is in `control` if they are [`Verdict::Done`].
///
/// `rest_since`: this is a later message of a call that has received some and that began after so many handlers. It does
/// not wait if more ran since: EINTR, whatever their SA_RESTART, and the call answers with what it has.
pub fn recv_message(
    fd: i32,
    buf: UserVec<'_>,
    flags: i32,
    rest_since: Option<u32>,
    control: &mut UserControl,
) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    loop {
        if let Some(v) = stream::recv(fd, buf, flags, rest_since, Some(control)).verdict(flags, false) {
            return service::rest::received(fd, buf, flags, v);
        }
    }
}

/// Before sendmmsg or recvmmsg on `fd`: a report if the kernel's own call is to move all of the messages. None: they go one
/// by one.
pub fn several_begin(fd: i32, flags: i32, sending: bool) -> Option<Cold> {
    if signals::is_cancelled() { None } else { stream::several(fd, flags, sending) }
}

/// The error that `fd` has for its next call, and will not tell again.
pub fn take_error(fd: i32) -> Option<Errno> {
    let s = table::sock(fd)?;
    let kernel = || sock::option(s.carrier(), libc::SOL_SOCKET, libc::SO_ERROR).ok().filter(|e| *e != 0);
    stream::take_error(s).or_else(|| kernel().map(Errno::from_raw_os_error))
}

/// Send: write, writev, send, sendto, sendmsg (without control data). `flags` are MSG_*.
#[inline]
pub fn send(fd: i32, buf: UserVec<'_>, flags: i32) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    if flags & libc::MSG_MORE != 0 {
        followed(fd, buf);
    }
    loop {
        let step = stream::send(fd, buf, flags, None);
        if let Step::Done(moved) = step
            && !moved.is(Errno::BADF)
        {
            return Verdict::Done(moved);
        }
        if let Some(v) = step.verdict(flags, true) {
            return v;
        }
    }
}

/// Whether the data call that the calling thread has just made has moved less than it was to, only because nothing is followed any more: the program's own call
/// moves the rest.
#[cold]
pub fn lacks_the_rest() -> bool {
    state::is_sealed() && thread::existing().is_some_and(thread::Record::was_cut_short)
}

/// How many signal handlers the calling thread ran so far: what [`send_rest`] is given.
pub fn handlers() -> u32 {
    signals::handlers()
}

/// As [`send`], for what is left of a call that has sent bytes already and that began after `handlers` handlers. It does
/// not wait if more ran since: EINTR, whatever their SA_RESTART, and the call answers with what was sent.
pub fn send_rest(fd: i32, buf: UserVec<'_>, flags: i32, handlers: u32) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    if flags & libc::MSG_MORE != 0 {
        followed(fd, buf);
    }
    loop {
        if let Some(v) = stream::send(fd, buf, flags, Some(handlers)).verdict(flags, true) {
            return v;
        }
    }
}

/// Before a send with MSG_MORE. A netstack service is told; a pair and a ring have nobody who could wait.
#[cold]
fn followed(fd: i32, buf: UserVec<'_>) {
    if served::is_active()
        && let Ok(octets) = buf.admit()
    {
        served::follows(fd, octets);
    }
}

/// Makes the kernel path hold for `fd` before a call that needs it (SCM_RIGHTS, fdopen, splice, MSG_OOB ...).
/// With `forever` the socket is never upgraded again.
pub fn recall(fd: i32, reason: Reason, forever: bool) {
    let Some(s) = table::sock(fd) else {
        if let Some(r) = datagram::of(fd) {
            r.leave_rings(reason);
        }
        return udp::recall(fd, reason);
    };
    if reason == Reason::RecalledSplice {
        // Bytes move that only the kernel can count.
        s.set(flag::UNCOUNTED);
    }
    if reason == Reason::RecalledSplice || reason == Reason::RecalledStdio {
        promised::forget(s);
    }
    let uncountable = reason == Reason::RecalledSplice && !carrier::is_counted(s);
    switch::recall_both(s, reason, forever || uncountable);
    if reason == Reason::RecalledSplice {
        cut::off_unseen(s);
    }
    if reason == Reason::RecalledStdio && !s.has(flag::USED) && is_open(s) {
        // What the C library moves for a stream nobody sees: it counts from here on.
        s.set_used();
    }
}

/// The same of all descriptors that a message passes on ([`recall`]), which `each` names: other ends that do not answer are waited for together.
pub fn recall_passed(each: impl Fn(&mut dyn FnMut(i32))) {
    let reason = Reason::RecalledScmRights;
    each(&mut |fd| {
        if let Some(s) = table::sock(fd)
            && let Some(conn) = s.conn.get()
            && let Some(_call) = crate::thread::Call::enter()
        {
            switch::ask_back(s, conn, reason);
        }
    });
    let patience = switch::Patience::default();
    each(&mut |fd| match table::sock(fd) {
        Some(s) => switch::recall_both_within(s, reason, true, &patience),
        None if is_followed(fd) => recall(fd, reason, true),
        None => {}
    });
}

fn is_open(s: &'static Sock) -> bool {
    carrier::of(s).standing(s).is_ok_and(|standing| standing.course == carrier::Course::Open)
}

/// Before the kernel itself takes bytes from `fd` (`sending` false) or puts bytes into it (splice, sendfile): that
/// direction goes to the kernel.
pub fn recall_for_splice(fd: i32, sending: bool) {
    let Some(s) = table::sock(fd) else { return udp::keep(fd, Reason::RecalledSplice) };
    // Bytes move that only the kernel can count.
    s.set(flag::UNCOUNTED);
    if !sending {
        promised::forget(s);
    }
    if !carrier::is_counted(s) {
        switch::recall_both(s, Reason::RecalledSplice, true);
        if !sending {
            cut::off_when_read(s);
        }
        return;
    }
    let (Some(conn), Some(call)) = (s.conn.get(), thread::Call::enter()) else { return };
    if sending {
        flush::empty_ring(s, conn, Reason::RecalledSplice, &call);
    } else {
        switch::recall_incoming(s, conn, Reason::RecalledSplice);
        switch::end_recall(s, conn);
        cut::off_when_read(s);
    }
}

/// After such a call found the end: whether there is more, which only rings have.
pub fn is_cut_short(fd: i32) -> bool {
    let Some(s) = table::sock(fd) else { return false };
    cut::off_when_read(s);
    s.conn.get().is_some_and(cut::is_off)
}

/// How a file gets into a connection (sendfile).
#[derive(Debug)]
pub enum FileSend {
    /// As into any descriptor; the kernel path must hold.
    Unfollowed,
    /// By the kernel's own call, whose result is reported.
    Kernel(Cold),
    /// Read in pieces that are sent, wherever they go then.
    Pieces,
}

/// Before sendfile into `fd`.
pub fn sendfile_begin(fd: i32) -> FileSend {
    if signals::is_cancelled() { FileSend::Unfollowed } else { stream::send_file(fd) }
}

/// Before `shutdown(fd, how)`.
pub fn shutdown_begin(fd: i32, how: i32) {
    life::shutdown_begin(fd, how);
}

/// A close in progress.
#[derive(Debug)]
#[must_use]
pub struct Closing(life::Closing);

/// Before the real close of `fd` (also fclose of a wrapped socket): flushes if it is the last descriptor.
pub fn close_begin(fd: i32) -> Closing {
    Closing(life::close_begin(fd))
}

/// Before the real close of every followed descriptor in `first..=last`.
pub fn close_range_begin(first: u32, last: u32) {
    life::close_range_begin(first, last);
}

impl Closing {
    /// After the real close; `ret` as returned.
    pub fn finish(self, ret: i32) {
        self.0.finish(ret);
    }
}

/// `dup`, `F_DUPFD` or `F_DUPFD_CLOEXEC` of `old` returned `new`.
pub fn dup_done(old: i32, new: i32) {
    life::dup_done(old, new);
}

/// `pidfd_getfd` returned `fd`: a copy of a descriptor of the process behind `pidfd`, which may be the calling one.
pub fn taken(fd: i32, pidfd: i32) {
    life::taken(fd, pidfd);
}

/// Before dup2/dup3(old, new) with old != new: `new` is about to be closed by the kernel.
pub fn dup2_begin(old: i32, new: i32) -> Closing {
    if table::sock(new).is_some()
        && let _busy = thread::Busy::begin()
        && let Some(s) = table::sock(new)
    {
        if fd::status_flags(old).is_err() {
            // It will fail, and change nothing.
            return Closing(life::Closing::none());
        }
        s.replaced.store(new + 1, Release);
        // One that came back from elsewhere: the kernel goes on with what is registered by this number.
        if !state::is_borrowed() && s.descriptors.load(Acquire) == 1 && fd::identity(old) == fd::identity(new)
        {
            epoll::give_back(s);
        }
        let closing = close_begin(new);
        // Whom slow memory holds up is not to go on with another connection.
        if s.is_warm() && !state::is_borrowed() && !thread::quiesce_within(LATE_NS) {
            s.is_late.store(true, Release);
        }
        return closing;
    }
    close_begin(new)
}

/// So long calls of other threads may take that are under way when dup2 replaces their socket, and go on with what replaces it.
const LATE_NS: u64 = 50_000_000;

/// After dup2/dup3; `ret` as returned.
pub fn dup2_done(token: Closing, old: i32, ret: i32) {
    token.finish(0);
    if ret >= 0 {
        dup_done(old, ret);
    }
}

/// After a successful F_SETFD that lets other programs inherit `fd`.
pub fn made_inheritable(fd: i32) {
    crate::udp::holders::made_inheritable(fd);
}

/// After a successful F_SETFL: the program's new file status flags.
pub fn status_flags_done(fd: i32, flags: i32) {
    nonblocking_done(fd, flags & libc::O_NONBLOCK != 0);
}

/// Before F_SETFL, F_SETOWN, F_SETSIG: O_ASYNC needs the kernel path.
pub fn status_flags_begin(fd: i32, flags: i32) {
    if flags & libc::O_ASYNC == 0 {
        return;
    }
    served::owner_noted();
    match table::sock(fd) {
        Some(s) => switch::recall_both(s, Reason::RecalledOption, true),
        None => udp::keep(fd, Reason::RecalledOption),
    }
}

/// After a successful ioctl(FIONBIO).
pub fn nonblocking_done(fd: i32, on: bool) {
    if let Some(s) = table::sock(fd) {
        if on { s.set(flag::NONBLOCK) } else { s.clear(flag::NONBLOCK) }
    }
    crate::udp::nonblocking_done(fd, on);
}

/// What FIONREAD (SIOCINQ) tells: bytes to read in ring and carrier together. `None`: the kernel's answer is right.
pub fn unread_bytes(fd: i32) -> Option<usize> {
    let s = table::sock(fd)?;
    s.conn.get().map(|conn| ready::unread(s, conn))
}

/// After a receive that the kernel was not asked for: what TCP_INQ has it tell, if the program has set that.
pub fn rest_to_tell(fd: i32) -> Option<i32> {
    let s = table::sock(fd).filter(|s| options::tells_rest(s))?;
    let rest = unread_bytes(fd).or_else(|| sock::inq(s.carrier()).ok()).unwrap_or(0);
    // The end counts as one.
    let ended = carrier::of(s).standing(s).is_ok_and(|at| at.course != carrier::Course::Open);
    i32::try_from(rest + usize::from(ended)).ok()
}

/// Before bind() to `port`, 0 for the kernel's choice.
pub fn bind_begin(fd: i32, port: u16) {
    crate::udp::groups::bind_begin(fd, port);
}

/// After bind() and connect(). `is_chosen`: the program has chosen the port.
pub fn named(fd: i32, is_chosen: bool) {
    crate::udp::groups::named(fd, is_chosen);
}

/// After `connect()`; `begun`: it is connected now, or about to be.
pub fn connect_end(fd: i32, begun: bool) {
    connects::end(fd, begun);
    named(fd, false);
}

/// Whether [`setsockopt_begin`] takes back what is in rings.
pub fn option_takes_back(level: i32, name: i32) -> bool {
    options::takes_back(level, name)
}

/// Before setsockopt(fd, level, name): options that a ring cannot honour (TCP_ULP, ...) recall first.
pub fn setsockopt_begin(fd: i32, level: i32, name: i32) {
    if options::needs_kernel(level, name)
        && let Some(s) = table::sock(fd)
    {
        let reason = if name == libc::TCP_ULP { Reason::RecalledUlp } else { Reason::RecalledOption };
        if options::receives(level, name) {
            promised::forget(s);
        }
        switch::recall_both(s, reason, true);
    }
    if let Some(s) = table::sock(fd) {
        options::changes(s, level, name);
    }
    crate::udp::option_begin(fd, level, name);
}

/// Between that and setsockopt, on sockets that are taken back for it.
///
/// # Errors
/// EBUSY: the other end does not give back what the kernel would have to see first.
pub fn setsockopt_may(fd: i32, level: i32, name: i32) -> Result<(), Errno> {
    table::sock(fd).map_or(Ok(()), |s| options::seal(s, level, name))
}

/// The same of a child in this process's memory (vfork).
///
/// # Errors
/// As [`setsockopt_may`].
pub fn setsockopt_may_by_child(fd: i32, level: i32, name: i32) -> Result<(), Errno> {
    table::sock(fd).map_or(Ok(()), |s| options::seal_by_child(s, level, name))
}

/// After a successful setsockopt.
pub fn setsockopt_done(fd: i32, level: i32, name: i32) {
    if let Some(s) = table::sock(fd) {
        options::changed(s, level, name);
    }
    crate::udp::option_set(fd, level, name);
}

/// The same of a child in this process's memory (vfork), which shares the socket: what is nothing but stored.
pub fn setsockopt_done_by_child(fd: i32, level: i32, name: i32) {
    if let Some(s) = table::sock(fd) {
        options::changed_by_child(s, level, name);
    }
}

/// Whether getsockopt of this option receives bytes. [`setsockopt_begin`] goes before it.
pub fn receives(level: i32, name: i32) -> bool {
    options::receives(level, name)
}

/// An error that one of our own calls took from the socket, for getsockopt(SO_ERROR); 0 = none.
pub fn take_socket_error(fd: i32) -> i32 {
    table::sock(fd).and_then(stream::take_error).map_or(0, Errno::raw_os_error)
}

/// Working memory of `len` bytes for the calling frame, whose stack address is `frame`: the stack may be small, and malloc
/// is not for signal handlers. `None` if there is none.
pub fn scratch(len: usize, frame: usize) -> Option<Scratch<'static>> {
    thread::scratch(thread::Use::Caller, len, frame)
}

/// poll and ppoll. `timeout_ns` `None` waits for ever; `sigmask` is the address of a kernel sigset (8 bytes)
/// or 0. On `Done`, `fds[..].revents` are set.
pub fn poll(fds: &mut [PollFd], timeout_ns: Option<u64>, sigmask: usize) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    poll::poll(fds, timeout_ns, sigmask).unless_sealed()
}

/// Whether `fd` is followed at all: for other descriptors nothing but this is asked.
#[inline(always)]
pub fn is_followed(fd: i32) -> bool {
    table::is_followed(fd)
}

/// Whether a wait on `fd` has anything to do with us: the kernel alone may not know when it is ready.
#[inline(always)]
pub fn is_overlaid(fd: i32) -> bool {
    table::is_overlaid(fd)
}

/// Whether a read of `fd` has anything to do with us: it is followed, or bytes of ours wait elsewhere and the
/// read may block.
#[inline(always)]
pub fn concerns_read(fd: i32) -> bool {
    table::is_followed(fd) || crate::foreign::is_due()
}

/// One event, laid out as `struct epoll_event`.
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
#[derive(Clone, Copy, Debug)]
pub struct EpollEvent {
    /// EPOLL* bits.
    pub events: u32,
    /// The program's word.
    pub data: u64,
}

/// `epoll_create` or `epoll_create1` returned `epfd`.
pub fn epoll_created(epfd: i32) {
    if state::config().is_some() && !state::is_borrowed() {
        life::epoll_done(epfd);
    }
}

/// epoll_ctl; `event` is `None` where the program passed NULL.
pub fn epoll_ctl(epfd: i32, op: i32, fd: i32, event: Option<EpollEvent>) -> Verdict {
    epoll::ctl(epfd, op, fd, event)
}

/// epoll_wait, epoll_pwait, epoll_pwait2 into `out`.
pub fn epoll_wait(epfd: i32, out: &mut [EpollEvent], timeout_ns: Option<u64>, sigmask: usize) -> Verdict {
    if signals::is_cancelled() {
        return CANCELLED;
    }
    epoll::wait(epfd, out, timeout_ns, sigmask).unless_sealed()
}

/// What the real epoll_wait stored for a set that is followed: how many of these events, from the first, are the
/// program's. None: wait again.
pub fn epoll_done(epfd: i32, events: &mut [EpollEvent]) -> usize {
    epoll::told_by_kernel(epfd, events)
}

/// The same once nothing is followed.
pub fn epoll_without_bells(events: &mut [EpollEvent]) -> usize {
    epoll::without_bells(events)
}

/// A fork in progress.
#[derive(Debug)]
#[must_use]
pub struct Forking(fork::Forking);

/// Before fork(). What a child inherits that never had a call here (a server's, whose workers alone accept) is asked about while there is somebody to ask.
pub fn fork_begin() -> Forking {
    if are_unasked() {
        ask_about_all();
    }
    Forking(fork::begin(true))
}

/// The same where the parent will not be told which child it is: what they share stays on the kernel, as nobody could tell who holds it.
pub fn fork_begin_unseen() -> Forking {
    if are_unasked() {
        ask_about_all();
    }
    Forking(fork::begin(false))
}

impl Forking {
    /// In the parent, as soon as there may be a child.
    pub fn parent(self) -> Forked {
        Forked(self.0.parent())
    }
    /// In the child, before fork() returns to the program.
    pub fn child(self) {
        self.0.child();
    }
}

/// A fork that is over, in the parent.
#[derive(Debug)]
#[must_use]
pub struct Forked(fork::Forked);

impl Forked {
    /// `child` is the pid, or -1.
    pub fn is(self, child: i32) {
        self.0.is(child);
    }
}

/// A child that shared this memory (vfork) has a program of its own now, or is gone.
pub fn child_left() {
    flush::finish_for_child();
}

/// Before any exec* (also in a vfork child, where nothing but shared memory may be touched): descriptors
/// without CLOEXEC are recalled.
///
/// `image` says what comes, if that will load this library, and is asked if there is something to leave; the deed, if one is left, is for its environment.
pub fn exec_begin(image: impl FnOnce() -> Option<Image>) -> Option<Deed> {
    life::exec_begin(image)
}

/// Directly before it: what is left to the next image stays open from here on.
pub fn exec_now(deed: Option<&Deed>) {
    life::exec_now(deed);
}

/// Whether an exec may have anything to leave to the next image.
#[inline]
pub fn has_legacy() -> bool {
    state::get().is_some() && !state::is_sealed()
}

/// This image's environment has `text` in [`DEED`]: takes what was left to it. After [`init`].
pub fn take_deed(text: &str) {
    heir::take(text);
}

/// A process that follows nothing any more makes a call by which others come to hold what it holds.
pub fn spread_everything() {
    if !state::is_sealed() && !state::is_borrowed() {
        crate::udp::keep_all(Reason::SharedQueue);
    }
    heir::spread_everything();
}

/// Before a call that changes the user; [`user_changed`] follows.
pub fn user_changes() {
    fork::user_changes();
}

/// After a call that changes the user, whether it did.
pub fn user_changed() {
    crate::udp::user::changed();
}

/// unshare() or setns() has succeeded; `children_elsewhere`: it was about the pid namespace of children.
pub fn namespaces_changed(children_elsewhere: bool) {
    life::namespaces_changed(children_elsewhere);
}

/// exec* failed and returned.
pub fn exec_failed(deed: Option<Deed>) {
    life::exec_failed(deed);
}

/// Before posix_spawn, system, popen: descriptors without CLOEXEC are recalled for good.
pub fn spawn_begin() {
    life::hand_over(Reason::RecalledSpawn, None);
}

/// Before `_exit`, `_Exit`, `quick_exit`, and at the end of `exit`: everything is flushed to the kernel, and
/// nothing is upgraded any more.
pub fn exiting() {
    life::exiting();
}

/// Whether an io_uring instance may be made (`--io-uring`); if not, the answer is ENOSYS.
pub fn io_uring_begin() -> bool {
    uring::may_be_made()
}

/// An io_uring instance was made, and the program has not got it yet.
pub fn io_uring_done() {
    uring::made();
}

/// A seccomp filter is about to be installed: every connection goes back to the kernel, and nothing is followed any more.
pub fn filter_begin() {
    sealed::seal(Reason::Seccomp, Reason::RecalledSeccomp);
}

/// Another thread may be about to end what a filter, or another descriptor table, takes: after this it has.
pub fn seal_end() {
    sealed::wait_for_end();
}

/// Before the calling thread gets a descriptor table of its own (CLONE_FILES of unshare, CLOSE_RANGE_UNSHARE): if there are other
/// threads, every connection goes back to the kernel, and nothing is followed any more.
pub fn unshare_begin() {
    sealed::unshare_begin();
}

/// Before a thread with another descriptor table is made, or a process with the same one: as [`unshare_begin`].
pub fn tables_differ() {
    sealed::tables_differ();
}

/// Whether nothing is followed any more, and no call may be made that the program has not asked for.
#[inline]
pub fn is_sealed() -> bool {
    state::is_sealed()
}

/// Tells of the functions that stand in front of the program's signal handlers, and how to ask whether the calling
/// thread has cancellation switched on.
pub fn signals_init(stand_ins: [usize; 2], may_be_cancelled: fn() -> bool) {
    signals::stand_ins(stand_ins);
    signals::ask_cancellation(may_be_cancelled);
}

/// Where a signal waits that arrived inside a call of its thread; `None` if its handler may run now.
#[inline]
pub fn signal_waits() -> Option<&'static Deferred> {
    signals::busy().map(thread::Record::deferred)
}

/// The calling thread, if it is known, asks the kernel something that the program has not asked, until what this returns is dropped.
pub fn asks() -> thread::Busy {
    thread::Busy::of_known()
}

/// A handler of the program is about to run in the calling thread, and has returned when what this returns is dropped.
pub fn signal_runs() -> thread::Busy {
    thread::Busy::interrupted()
}

/// A handler with these SA_* flags returned.
#[inline]
pub fn signal_handled(flags: i32) {
    signals::ran(flags);
}

/// pthread_cancel succeeded for `pthread`.
pub fn cancelled(pthread: usize) {
    signals::cancel(pthread);
}

/// The calling thread was told to end (see [`is_cancelled`]), and the C library says that it need not.
pub fn not_cancelled() {
    signals::not_cancelled();
}

/// Whether the calling thread must end here (pthread_cancel).
#[inline]
pub fn is_cancelled() -> bool {
    signals::is_cancelled()
}
