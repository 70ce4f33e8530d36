//! A descriptor came out of another process (pidfd_getfd). If it is a connection that is followed there, its bytes may be
//! in rings, where this process does not look: both ends are asked to take them back for good, and waited for.
//!
//! Who looks at the descriptors of a process waits while that process executes a program, and it makes that last as long as it likes: besides
//! the owner only processes are looked at that are trusted ([`Taking::may_look_at`]). Of a connection to somebody else the owner asks the other end.

use crate::carrier;
use crate::log;
use crate::request::{self, Region};
use crate::table::flag;
use crate::{config::LogLevel, state, switch};
use bypath_shm::family::{End, Family, end_state, wish, wpath};
use bypath_sys::{clock, fd, futex, open_files, process, sock, sockdiag};
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};

/// How long the call is held up in all. Who is later than this, busy with something else, does it before its next byte.
const PATIENCE_NS: u64 = 2_000_000_000;
/// How long by an end that is stopped, and may be so for ever.
const STOPPED_NS: u64 = 50_000_000;
/// Time between two looks.
const PERIOD_NS: u64 = 50_000;

/// `new` is a copy of a descriptor of the process behind `pidfd`, and not of a socket that this process follows.
#[cold]
pub fn came(new: i32, pidfd: i32) {
    if carrier::accepted(new).is_none() {
        return;
    }
    let Ok(cookie) = sock::option_u64(new, libc::SOL_SOCKET, libc::SO_COOKIE) else { return };
    let Some(owner) = process::behind(pidfd) else { return };
    let until = clock::monotonic_ns() + PATIENCE_NS;
    let Ok((_, inode)) = fd::identity(new) else { return };
    let link = Link::of(inode);
    let taking = Taking::of(owner, until);
    let found = request::regions_of(owner, until, |region| {
        // An end that gets its cookie meanwhile is found afterwards.
        let end = find(region.family, cookie).or_else(|| {
            let kept = taking.keep_unnamed(region, &link);
            find(region.family, cookie).filter(|_| !kept)
        });
        if let Some(end) = end {
            taking.take_back(region, end, new);
        }
        // A process may have as many regions open as it likes.
        end.is_some() || clock::monotonic_ns() > until
    });
    let text = match found {
        Ok(true) => "another process has it too, and takes it back to the kernel",
        Ok(false) => "taken from a process that has not upgraded it",
        Err(_) => "taken from a process that cannot be looked at",
    };
    log::line(LogLevel::Debug, format_args!("fd {new}: {text}"));
}

/// One call that takes a descriptor.
struct Taking {
    /// Of this process.
    owner: u32,
    /// The call is not held up for longer.
    until: u64,
    /// Whose other processes are looked at.
    users: [Option<u32>; 3],
}

impl Taking {
    /// Root and the own user are trusted, and so is the owner's: the call that took the descriptor has waited for the owner's exec itself, so he could
    /// hold it up anyway. Who is several users at once is none of them.
    fn of(owner: u32, until: u64) -> Taking {
        let is_known = |user: &u32| *user != process::OVERFLOW_UID || process::knows_all_users();
        let owners = process::users(owner).filter(|[real, effective]| real == effective);
        let users = [Some(0), Some(process::euid()), owners.map(|[user, _]| user)];
        Taking { owner, until, users: users.map(|user| user.filter(is_known)) }
    }

    /// Whether another process may be looked at: whoever it executes a program for is trusted.
    fn may_look_at(&self, pid: u32) -> bool {
        let is_trusted = |user: u32| self.users.contains(&Some(user));
        pid == self.owner
            || pid == process::pid()
            || process::users(pid).is_some_and(|both| both.into_iter().all(is_trusted))
    }

    fn is_late(&self) -> bool {
        clock::monotonic_ns() > self.until
    }
}

/// How `/proc` calls a socket.
struct Link {
    text: [u8; 32],
    len: usize,
}

impl Link {
    fn of(inode: u64) -> Link {
        let mut text = [0; 32];
        let mut rest = &mut text[..];
        // Shorter than that, whatever the number.
        let _ = write!(rest, "socket:[{inode}]");
        let len = 32 - rest.len();
        Link { text, len }
    }

    fn text(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// How `/proc` calls the socket of this cookie, at the other end of `new`'s connection; `None` where the kernel does not show it here
/// (another network namespace).
fn other_end(new: i32, cookie: u64) -> Option<Link> {
    let (local, remote) = (sock::local_address(new).ok()?, sock::remote_address(new).ok()?);
    let netlink = sockdiag::open(state::floor()).ok()?;
    let found = sockdiag::tcp(netlink, &remote, &local);
    fd::close(netlink);
    let found = found.ok().flatten().filter(|found| found.cookie == cookie && found.inode != 0)?;
    Some(Link::of(found.inode.into()))
}

/// The place of the socket of this cookie.
fn find(family: &Family, cookie: u64) -> Option<usize> {
    let used = family.header.ends_used.load(Acquire) as usize;
    let mut ends = family.ends.iter().take(used);
    ends.position(|e| e.cookie.load(Relaxed) == cookie && e.state.load(Acquire) != end_state::FREE)
}

impl Taking {
    /// Ends have no cookie before they try to come up: one of these may be that socket. Its descriptor tells, if it is still
    /// the one by which the end was first followed. If not, or if two ends have had that number, the end is kept on the kernel
    /// in case it is. Whether it was found.
    #[cold]
    fn keep_unnamed(&self, region: Region<'_>, link: &Link) -> bool {
        let family = region.family;
        let used = family.header.ends_used.load(Acquire) as usize;
        let ends = || family.ends.iter().take(used).filter(|e| e.state.load(Acquire) != end_state::FREE);
        for (number, end) in family.ends.iter().take(used).enumerate() {
            if end.state.load(Acquire) == end_state::FREE || end.cookie.load(Relaxed) != 0 {
                continue;
            }
            if self.is_late() {
                return false;
            }
            let descriptor = end.fd.load(Relaxed);
            let named = open_files::refers(self.owner, descriptor, link.text());
            let found = named == Ok(true);
            let is_reused = || ends().filter(|e| e.fd.load(Relaxed) == descriptor).nth(1).is_some();
            if found || named.is_err() || is_reused() {
                self.ask(region, number, self.owner, flag::FOR_GOOD | flag::HANDED_OVER);
            }
            if found {
                return true;
            }
        }
        false
    }

    /// Asks the holders of an end, of whom `pid` is one if known. The region may name anybody for another one: who has it not open is
    /// left alone, as the bells that are rung are descriptors by that region's word, and may be whatever eventfds of his.
    fn ask<'a>(&self, region: Region<'a>, number: usize, pid: u32, flags: u32) -> Asked<'a> {
        let family = region.family;
        let end = &family.ends[number];
        let generation = end.generation.load(Acquire);
        let before = end.flags.fetch_or(flags, SeqCst);
        if end.generation.load(Acquire) != generation {
            // Another connection stands there by now.
            end.flags.fetch_and(!(flags & !before), AcqRel);
            return Asked { end, generation };
        }
        let holders = end.holders.load(Acquire);
        let processes = family.header.processes.iter().enumerate();
        let others = processes.filter_map(|(slot, p)| {
            let other = p.pid.load(Acquire);
            let known = holders >> slot & 1 == 1 && p.ready.load(Acquire) == 1 && other != pid;
            let is_it = || {
                process::start_time(other) == Some(p.start_time.load(Relaxed))
                    || process::counts_otherwise(other)
            };
            let may = known && !self.is_late() && self.may_look_at(other);
            (may && is_it() && region.is_open_in(other, self.until)).then_some(other)
        });
        // Who cannot be woken, or is not looked at, finds it later.
        let holders = std::iter::once(pid).chain(others);
        let _ = request::leave(family, number, generation, wish::TAKEN, holders, self.until);
        Asked { end, generation }
    }

    /// Both ends go back; the one at `number` is the one of which `owner` had a descriptor, and `new` is a copy.
    fn take_back(&self, region: Region<'_>, number: usize, new: i32) {
        // Said first: who begins a ring, or permits one, looks at it afterwards.
        let (owner, until) = (self.owner, self.until);
        let near = self.ask(region, number, owner, flag::FOR_GOOD | flag::HANDED_OVER);
        fence(SeqCst);
        if near.end.state.load(Acquire) != end_state::WARM {
            return;
        }
        let cookie = near.end.peer_cookie.load(Acquire);
        let link = other_end(new, cookie);
        let mut other = false;
        // Cookies are no secret: anybody's region may name this one, but only who has the socket is asked. Where it is not known which that is, in
        // another network namespace, the owner asks it.
        let has_it = |pid: u32| {
            link.as_ref()
                .is_some_and(|link| open_files::any_refers(pid, link.text(), usize::MAX, until) == Ok(true))
        };
        let mut with_other = |pid: u32, region: Region<'_>| {
            if let Some(number) = find(region.family, cookie).filter(|_| pid == owner || has_it(pid)) {
                let far = self.ask(region, number, pid, flag::FOR_GOOD);
                fence(SeqCst);
                other = true;
                wait(until, &[owner, pid], || near.is_on_kernel() && far.is_off_ring());
            }
            other
        };
        // Ends of one family are found without a search.
        if cookie != 0 && !with_other(owner, region) {
            let _ = open_files::processes(|pid| {
                let mut look = |region: Region<'_>| with_other(pid, region) || self.is_late();
                self.is_late()
                    || self.may_look_at(pid) && request::regions_of(pid, until, &mut look).unwrap_or(false)
            });
        }
        if !other {
            // It is somebody's who is not looked at, or is not shown. The owner asks it: when the owner has done so is seen here.
            wait(until, &[owner], || near.has_answered() && near.is_on_kernel());
        }
    }
}

/// An end that was asked.
struct Asked<'a> {
    end: &'a End,
    generation: u32,
}

impl Asked<'_> {
    fn is_over(&self) -> bool {
        self.end.generation.load(Acquire) != self.generation
            || self.end.state.load(Acquire) == end_state::FREE
    }

    fn has_answered(&self) -> bool {
        self.is_over() || self.end.wish.load(Acquire) != wish::TAKEN
    }

    /// Whether everything that it sent is in the carrier.
    fn is_on_kernel(&self) -> bool {
        self.is_over() || self.end.w.path.load(Acquire) == wpath::KERNEL
    }

    /// Whether what it sent is in the carrier, or follows as room is made there.
    fn is_off_ring(&self) -> bool {
        self.is_over() || self.end.w.path.load(Acquire) != wpath::RING
    }
}

fn wait(until: u64, processes: &[u32], mut done: impl FnMut() -> bool) {
    let mut look = until - PATIENCE_NS + STOPPED_NS;
    while !done() {
        let now = clock::monotonic_ns();
        if now >= until {
            return;
        }
        if now >= look {
            look = now + STOPPED_NS;
            if processes.iter().any(|pid| process::is_stopped(*pid)) {
                return;
            }
        }
        // One of the ends may be in this very process.
        if !state::is_borrowed() {
            switch::attend();
        }
        futex::wait(&AtomicU32::new(0), 0, PERIOD_NS);
    }
}
