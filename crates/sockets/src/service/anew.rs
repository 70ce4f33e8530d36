//! Sockets that outlive their service: those that listen, and those of datagrams. Who holds one finds the end of the pair, which is ready
//! for ever; a timer takes its place, which is silent but for a moment each second. The call that this wakes asks whether a service of
//! that name is back, and makes there a socket with the same address and options ([`super::recipe`]), which then takes the timer's place.
//!
//! Each process does so for itself. Those that share a socket show the service the same ended one, and so share the next one, too.

use super::adopt::{End, open_of, opened};
use super::calls::Told;
use super::control::Message;
use super::recipe::Recipe;
use super::{Record, record, stage, told};
use crate::config::LogLevel;
use crate::{epoll, log, state, table};
use bypath_shm::service::{Address, Claim, Op, Wanted};
use bypath_sys::{Errno, Result, clock, fd, sock, timerfd};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::*;

/// The timer's first time, and how often after that (ns).
const FIRST_NS: u64 = 100_000_000;
const AT_ONCE_NS: u64 = 1;
const EVERY_NS: u64 = 1_000_000_000;
/// Between two attempts, whoever makes them: other processes may share the timer.
const LEAST_NS: u64 = 50_000_000;

/// Whether the answer to a question about a socket says that its service is gone, or that there is another one now, which does not know
/// the socket.
pub(super) fn is_gone<T>(answer: &Result<T>) -> bool {
    let gone = [Errno::NETDOWN, Errno::BADF, Errno::ACCESS, Errno::PERM];
    !state::is_sealed() && !state::is_borrowed() && answer.as_ref().is_err_and(|errno| gone.contains(errno))
}

/// Whether the same answer is another service's, which is there already.
pub(super) fn is_back<T>(answer: &Result<T>) -> bool {
    is_gone(answer) && !matches!(answer, Err(Errno::NETDOWN))
}

/// A timer that is to take the place of `fd`, and waits where that would; of one whose service is back it tells at once.
pub(super) fn timer(fd: i32, is_back: bool) -> Result<End> {
    let first = if is_back { AT_ONCE_NS } else { FIRST_NS };
    let timer = End::new(timerfd::create(state::floor(), first, EVERY_NS)?);
    fd::set_status_flags(timer.0, fd::status_flags(fd)? & libc::O_NONBLOCK)?;
    Ok(timer)
}

/// Whether it is time to try again. What the timer has told of is forgotten: it tells again in a while.
pub(super) fn is_due(recipe: &Recipe, timer: i32) -> bool {
    let now = clock::monotonic_ns();
    if now < recipe.due.load(Relaxed) {
        return false;
    }
    recipe.due.store(now + LEAST_NS, Relaxed);
    timerfd::begin(timer, EVERY_NS, EVERY_NS);
    true
}

/// A socket of the service in place of another one.
pub(super) struct Made {
    pub cookie: u64,
    pub end: End,
    /// What is said of it, if it is of datagrams.
    pub claim: Option<Claim>,
    /// It is its maker's again, and everybody's who had the other one: what was said of that is what counts.
    pub is_the_same: bool,
    /// Another process was first: it is where it was, and has its options.
    is_there: bool,
}

/// A socket of the service, its maker's again if that is what was said of the one that it is for.
fn open_again(recipe: &Recipe, service: u32, kind: [i32; 3]) -> Result<Made> {
    if let (Some((claim, left)), Some(local)) = (recipe.claim(), recipe.local()) {
        let wanted = Wanted { kind, local: Address(Some(local)), claim };
        let before = sock::option_u64(left, libc::SOL_SOCKET, libc::SO_COOKIE)?;
        let mut question = Message::new(Op::Again, before).octets(&wanted.encode()).with(left);
        let again = question.ask(service).and_then(|mut answer| {
            let (cookie, end) = opened(&answer)?;
            let is_there = answer.body.u32() == Some(1);
            Ok(Made { cookie, end, claim: None, is_the_same: true, is_there })
        });
        match again {
            // It may be to be had all the same.
            Err(Errno::ACCESS | Errno::PERM) => {}
            other => return other,
        }
    }
    let (cookie, end) = open_of(service, kind)?;
    Ok(Made { cookie, end, claim: None, is_the_same: false, is_there: false })
}

/// A socket of the service in place of another one, with the options of a recipe, and its address. `timer` is what it is to stand for.
pub(super) fn make(recipe: &Recipe, service: u32, kind: [i32; 3], timer: i32) -> Result<Made> {
    let mut made = open_again(recipe, service, kind)?;
    let (cookie, end) = (made.cookie, made.end.0);
    // Whoever made it, this process has it.
    let question = |op| Message::new(op, cookie).with(end);
    let set = |level: i32, name: i32, value: &[u8]| {
        // What is refused was refused before, or is as if it had never been set.
        let _ = question(Op::Set).number(level).number(name).octets(value).ask(service);
    };
    let put = |level: i32, name: i32, value: &[u8], of_descriptor: bool| {
        if of_descriptor {
            let _ = sock::set_option(end, level, name, value);
        } else {
            set(level, name, value);
        }
    };
    if made.is_there {
        // What was set before that it has from who was first.
        recipe.late_options(put);
    } else {
        recipe.options(put);
        // Other processes that had the same socket may each have one of their own.
        set(libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32.to_ne_bytes());
    }
    if let Some(local) = recipe.local() {
        let mut question = question(Op::Bind).address(local);
        let mut body = question.ask(service)?.body;
        body.address();
        made.claim = Claim::decode(&mut body);
    }
    fd::set_status_flags(end, fd::status_flags(timer)? & libc::O_NONBLOCK)?;
    Ok(made)
}

/// Says, once until it is there again, why it is not; a service that is not there was told of.
pub(super) fn complain(recipe: &Recipe, what: &str, errno: Errno) {
    if errno != Errno::NETDOWN && !recipe.said.swap(true, Relaxed) {
        let local = Local(recipe.local());
        let remedy = match errno {
            Errno::ACCESS | Errno::PERM => {
                ": this user may not be there; name it in `users` and `low-ports` of the service, or start the server again"
            }
            Errno::ADDRINUSE => ": another socket has the address; end its program, or start this one again",
            Errno::ADDRNOTAVAIL => ": the service has another address now; start the server again",
            _ => "; start the server again",
        };
        log::line(
            LogLevel::Error,
            format_args!("the service is back, but {what} {local} is not there again ({errno}){remedy}"),
        );
    }
}

/// Says that it is there again.
pub(super) fn says_back(recipe: &Recipe, what: &str) {
    recipe.said.store(false, Relaxed);
    log::line(
        LogLevel::Info,
        format_args!("the service is back, and {what} {} is there again", Local(recipe.local())),
    );
}

struct Local(Option<SocketAddr>);

impl std::fmt::Display for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(local) => local.fmt(f),
            None => f.write_str("without an address"),
        }
    }
}

impl Record {
    /// It listens from now on: what is to be done again is known.
    pub(super) fn is_to_last(&self, backlog: Option<i32>) {
        let known = self.recipe.get();
        if self.told.fetch_or(told::LASTS, Relaxed) & told::LASTS != 0 && backlog.is_none() {
            // Once is enough, whatever came of it.
            return;
        }
        let is_new = known.is_none();
        let mut told = None;
        let is_claimed = backlog.is_some() || known.is_some_and(Recipe::has_claim);
        if !is_claimed || known.and_then(Recipe::local).is_none_or(|local| local.port() == 0) {
            // What has no address cannot be there again.
            let Ok(answered) = self.told() else { return };
            told = Some(answered);
        }
        let Some(recipe) = self.recipe.begin() else { return };
        if let Some(Told { names: [local, _], claim, .. }) = told {
            recipe.is_bound(local);
            recipe.is_claimed(claim);
        }
        if let Some(backlog) = backlog {
            recipe.listens(backlog);
        }
        if is_new {
            // It came from elsewhere.
            let (service, cookie) = (self.service.load(Relaxed), self.cookie.load(Relaxed));
            super::options::carry(
                self.family(),
                |level, name| super::options::of_service(service, cookie, level, name),
                |level, name, value| recipe.note(level, name, value),
            );
        }
    }

    /// The end of the pair was met by an accept of `fd`. True: as the service is gone, and a timer has the pair's place.
    pub(super) fn waits_for_service(&self, fd: i32) -> bool {
        if self.stage() == stage::AWAY {
            return true;
        }
        let Some(recipe) = self.recipe.get() else { return false };
        let cookie = self.cookie.load(Relaxed);
        let names = self.names();
        is_gone(&names) && self.put_timer(fd, recipe, cookie, is_back(&names)).is_ok()
    }

    fn put_timer(&self, fd: i32, recipe: &Recipe, cookie: u64, is_back: bool) -> Result<()> {
        let timer = timer(fd, is_back)?;
        recipe.forget_descriptors_own();
        super::options::limits(fd, |name, value| recipe.note(libc::SOL_SOCKET, name, value));
        let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
        if self.stage() == stage::LISTENING {
            recipe.keep_left(fd);
            self.give_place((fd, cookie), timer.0)?;
            recipe.is_away(true);
            self.enter(stage::AWAY);
        }
        Ok(())
    }

    /// Has another descriptor stand in every place of this socket. Under `state::LIFE`.
    ///
    /// # Errors
    /// EBADF: it was closed; number and record may be another socket's, which has another cookie.
    pub(super) fn give_place(&self, (fd, cookie): (i32, u64), to: i32) -> Result<()> {
        let number = table::served(fd).ok_or(Errno::BADF)?;
        let is_this = record(number).is_some_and(|r| std::ptr::eq(r, self));
        if !is_this || self.cookie.load(Relaxed) != cookie {
            return Err(Errno::BADF);
        }
        let followed = table::sock(fd);
        let recipe = self.recipe.get();
        let is_its = |fd| table::served(fd) == Some(number);
        recipe.into_iter().for_each(|recipe| recipe.registrations.withdraw(is_its));
        followed.into_iter().for_each(epoll::withdraw);
        table::each(|fd, _| {
            if is_its(fd) {
                let _ = fd::replace(to, fd, fd::is_cloexec(fd) == Ok(true));
            }
        });
        followed.into_iter().for_each(epoll::renew);
        recipe.into_iter().for_each(|recipe| recipe.registrations.renew(is_its));
        Ok(())
    }

    /// Whether it listens again, by a service that is back. It is asked now and then only.
    pub(super) fn listens_again(&self, fd: i32) -> bool {
        let Some(recipe) = self.recipe.get() else { return false };
        if self.stage() != stage::AWAY || !is_due(recipe, fd) {
            return self.stage() == stage::LISTENING;
        }
        let done = self.listen_again(fd, recipe);
        match done {
            Ok(()) => says_back(recipe, "what listens at"),
            Err(errno) => complain(recipe, "what listened at", errno),
        }
        done.is_ok()
    }

    fn listen_again(&self, fd: i32, recipe: &Recipe) -> Result<()> {
        recipe.local().ok_or(Errno::ADDRNOTAVAIL)?;
        let (service, before) = (self.service.load(Relaxed), self.cookie.load(Relaxed));
        let made = make(recipe, service, [self.family(), libc::SOCK_STREAM, 0], fd)?;
        let mut question = Message::new(Op::Listen, made.cookie).number(recipe.backlog()).with(made.end.0);
        let said = Claim::decode(&mut question.ask(service)?.body);
        let _life = state::LIFE.lock(table::tid()).ok_or(Errno::DEADLK)?;
        if self.stage() == stage::AWAY {
            self.give_place((fd, before), made.end.0)?;
            self.cookie.store(made.cookie, Relaxed);
            if !made.is_the_same {
                recipe.is_another(said);
            }
            recipe.is_away(false);
            self.enter(stage::LISTENING);
        }
        Ok(())
    }
}
