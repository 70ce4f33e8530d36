//! Connections for questions: who may ask, whose turn it is, and which message makes no sense.

use super::debts::Payer;
use super::limits::{Charge, Share, Took, Users, is_too_many};
use super::on_way;
use super::question::{Answer, Asks, Nonsense};
use super::slab::{Key, Slab};
use super::socket::Hub;
use super::tasks::{self, Doing, Next, Refusal, Who};
use super::watch::{Token, Watch};
use super::{Settings, query};
use crate::Engine;
use bypath_shm::service::{Body, HEADER, Header, MESSAGE, Op, of_end_name};
use bypath_sys::strangers::{self, Others};
use bypath_sys::{clock, seqpacket, sock, unix};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};

/// Questions, and answers of a query, that one turn of a connection has.
const TURN: usize = 16;
/// Connections of users whom the service is not for, all together.
const STRANGERS: usize = 1024;
/// What is said in one turn of a connection, and wants no answer: more than fits into it. So whoever writes behind it is read behind it.
const SAID: usize = 512;
/// How long one user is heard in one turn of all (ns), what wants no answer included: beyond that octets may come before it that were written behind it.
const HEARD_NS: u64 = 1_000_000;

/// One connection for questions.
struct Control {
    end: OwnedFd,
    _charge: Charge,
    uid: u32,
    asker: Asker,
    /// The service is not for him: he may ask about what he holds, and is told so of all else.
    stranger: bool,
    active: bool,
    /// A query whose answers do not fit at once.
    query: Option<(Header, Doing)>,
    room_told: bool,
    /// Descriptors of answers, since it was last seen that all answers were read.
    on_way: usize,
    /// Cookies of connections that it asked for, and that may come up yet.
    connecting: Vec<u64>,
}

/// Who has made a connection, and in whose name it asks there: a process that was forked from it, or has become another user since, has it, too, and
/// would ask in the name of whom it was. Who has several users says in whose name he asks, and the kernel lets nobody say another one.
struct Asker {
    /// The effective user is the one of then.
    made: unix::Credentials,
    said: Option<u32>,
}

impl Asker {
    /// Whether a message of that sender is its.
    fn is(&mut self, sender: Option<unix::Credentials>) -> bool {
        let Some(sender) = sender else { return false };
        // A process that is not visible here is known by its user alone.
        let is_known = sender.pid != 0 || sender.uid == self.made.uid;
        sender.pid == self.made.pid && is_known && *self.said.get_or_insert(sender.uid) == sender.uid
    }
}

impl Control {
    /// It asked for a connection.
    fn connects(&mut self, cookie: u64, hub: &Hub) {
        if self.connecting.len() == self.connecting.capacity() {
            self.connecting.retain(|cookie| hub.is_connecting(*cookie));
        }
        self.connecting.push(cookie);
    }

    /// Whether all answers are read. If not, each read is told of.
    fn is_read(&mut self, key: Key, hub: &mut Hub) -> bool {
        let is_read = self.looks_read(&mut hub.users);
        if self.room_told == is_read {
            self.room_told = !is_read;
            hub.watch.room(self.end.as_fd(), Token::Control(key), !is_read);
        }
        is_read
    }

    /// Whether the next question is one whose answer has descriptors; `None`: there is no question, and one that comes is told of.
    fn wants_descriptors(&self) -> Option<bool> {
        let mut head = [0; HEADER];
        let len = seqpacket::peek(self.end.as_fd(), &mut head).unwrap_or(Some(0))?;
        let header = Header::decode(head.get(..len)?);
        Some(header.is_some_and(|(header, _)| matches!(header.op, Op::Open | Op::Rings | Op::Again)))
    }

    /// The same as `is_read`, without a word.
    fn looks_read(&mut self, users: &mut Users) -> bool {
        let is_read = on_way::is_read(&self.end);
        if is_read {
            users.received(self.uid, std::mem::take(&mut self.on_way));
        }
        is_read
    }
}

/// All of them.
pub struct Controls {
    all: Slab<Control>,
    active: VecDeque<Key>,
    /// Those whose query takes its time.
    tasks: Vec<Key>,
    /// How many are of users whom the service is not for.
    strangers: usize,
    room: Vec<u8>,
    took: Took,
}

impl Controls {
    pub fn new() -> Controls {
        let room = vec![0; MESSAGE + 1];
        let (all, active, took) = (Slab::new(), VecDeque::new(), Took::default());
        Controls { all, active, tasks: Vec::new(), strangers: 0, room, took }
    }

    /// Whether somebody has something to ask.
    pub fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Somebody has come who wants to ask. Who has too many connections is left at once.
    pub fn admit(&mut self, end: OwnedFd, watch: &Watch, users: &mut Users, settings: &Settings) {
        let Ok(who) = unix::peer_credentials(end.as_raw_fd()) else { return leave(end) };
        let (uid, stranger) = (who.uid, !settings.admits(who.uid));
        let may_have = users.may_have_descriptor(uid, end.as_raw_fd());
        let is_full = || self.strangers >= STRANGERS || !users.may_ask_as_stranger(uid);
        if !users.may_ask(uid) || !may_have || stranger && is_full() {
            return leave(end);
        }
        let key = self.all.insert(Control {
            end,
            _charge: users.account(uid).charge(1, 0),
            uid,
            asker: Asker { made: who, said: None },
            stranger,
            active: false,
            query: None,
            room_told: false,
            on_way: 0,
            connecting: Vec::new(),
        });
        let Some(control) = self.all.get(key) else { return };
        if watch.edge(control.end.as_fd(), Token::Control(key)).is_err() {
            if let Some(control) = self.all.remove(key) {
                leave(control.end);
            }
            return;
        }
        users.change(uid, |usage| usage.controls += 1);
        self.strangers += usize::from(stranger);
        self.activate(key);
    }

    /// The settings are others: whom the service is not for any more asks as a stranger from now on, and the other way round.
    pub fn are_admitted_by(&mut self, settings: &Settings) {
        self.strangers = 0;
        for key in self.all.keys() {
            if let Some(control) = self.all.get_mut(key) {
                control.stranger = !settings.admits(control.uid);
                self.strangers += usize::from(control.stranger);
            }
        }
    }

    /// Who has come has another user than he asks as: all counts for that one. False: that one has too many connections.
    fn asks_as(&mut self, key: Key, uid: u32, hub: &mut Hub, settings: &Settings) -> bool {
        let Some(control) = self.all.get_mut(key) else { return false };
        let (users, stranger) = (&mut hub.users, !settings.admits(uid));
        let may_have = users.may_have_descriptor(uid, control.end.as_raw_fd());
        let is_full = self.strangers >= STRANGERS || !users.may_ask_as_stranger(uid);
        if !users.may_ask(uid) || !may_have || stranger && is_full {
            return false;
        }
        users.change(control.uid, |usage| usage.controls -= 1);
        users.change(uid, |usage| usage.controls += 1);
        self.strangers = self.strangers + usize::from(stranger) - usize::from(control.stranger);
        (control._charge, control.uid, control.stranger) = (users.account(uid).charge(1, 0), uid, stranger);
        true
    }

    pub fn activate(&mut self, key: Key) {
        if let Some(control) = self.all.get_mut(key)
            && !std::mem::replace(&mut control.active, true)
        {
            self.active.push_back(key);
        }
    }

    fn remove(&mut self, key: Key, hub: &mut Hub, engine: &mut Engine) {
        if let Some(control) = self.all.remove(key) {
            hub.users.change(control.uid, |usage| usage.controls -= 1);
            self.strangers -= usize::from(control.stranger);
            if let Some((_, doing)) = control.query {
                doing.end(engine, &hub.watch);
            }
            self.tasks.retain(|other| *other != key);
            control.connecting.into_iter().for_each(|cookie| hub.leave_connecting(cookie));
            let on_way = (control.uid, control.on_way);
            hub.end_on_way(Token::Control(key), control.end, on_way);
        }
    }

    /// Queries that take their time look what they have to do.
    pub fn activate_tasks(&mut self) {
        for n in 0..self.tasks.len() {
            self.activate(self.tasks[n]);
        }
    }

    /// Those that waited for their user to pay.
    pub fn go_on(&mut self, waited: Vec<Key>) {
        self.active.extend(waited);
    }

    /// When one of them has something to do, whatever comes (ns).
    pub fn due(&self, engine: &mut Engine) -> Option<u64> {
        // Whose turn comes, or waits for its user to pay, is not waited for.
        let waits = |key: &Key| self.all.get(*key).filter(|control| !control.active);
        let doing = self.tasks.iter().filter_map(|key| waits(key)?.query.as_ref());
        doing.filter_map(|(_, doing)| doing.due(engine)).min()
    }

    /// Looks whether those who wait may be sent descriptors, if it is time to; when to look again (ns).
    pub fn look_at_unread(&mut self, hub: &mut Hub, now: u64) -> Option<u64> {
        if hub.on_way.due()? > now {
            return hub.on_way.due();
        }
        let mut on_way = std::mem::take(&mut hub.on_way);
        let (all, mut go) = (&mut self.all, Vec::new());
        on_way.look(hub, |token, hub| match token {
            Token::Control(key) => all.get_mut(key).is_none_or(|control| control.looks_read(&mut hub.users)),
            Token::Socket(key) => hub.has_accepted_all(key),
            _ => true,
        });
        on_way.let_go(now, |token| {
            let may = match token {
                Token::Control(key) => {
                    self.all.get(key).is_none_or(|control| hub.users.may_be_sent(control.uid, Share::Answer))
                }
                Token::Socket(key) => hub.may_have_record(key),
                _ => true,
            };
            if may {
                go.push(token);
            }
            may
        });
        hub.on_way = on_way;
        for token in go {
            match token {
                Token::Control(key) => self.activate(key),
                Token::Socket(key) => hub.activate(key),
                _ => {}
            }
        }
        hub.on_way.due()
    }

    /// Everybody who has something to ask has a turn; of one user no longer than [`HEARD_NS`], and no turn who has to pay for an earlier one.
    pub fn turn(&mut self, hub: &mut Hub, engine: &mut Engine, settings: &Settings) {
        let (mut took, mut late) = (std::mem::take(&mut self.took), VecDeque::new());
        took.clear();
        for _ in 0..self.active.len() {
            let Some(key) = self.active.pop_front() else { break };
            let Some(control) = self.all.get_mut(key) else { continue };
            let uid = control.uid;
            let owes = hub.debts.owes(Payer::User(uid));
            let is_crowded = || hub.debts.are_too_many() || hub.users.is_half_unwanted();
            if owes || control.stranger && is_crowded() {
                if !owes {
                    hub.debts.crowd();
                }
                hub.debts.waiting.controls.push(key);
                continue;
            }
            let left = took.left(uid, HEARD_NS);
            if left == 0 {
                late.push_back(key);
                continue;
            }
            control.active = false;
            let now = clock::monotonic_ns();
            let meter = hub.users.counts(uid).then(|| hub.debts.begin(Payer::User(uid), now));
            let heard = self.hear(key, now + left, hub, engine, settings);
            if heard.is_err() {
                self.remove(key, hub, engine);
            }
            took.add(uid, clock::monotonic_ns().saturating_sub(now));
            if let Some(meter) = meter {
                hub.debts.end(&meter);
            }
            match heard {
                Ok(Heard::All) => {}
                Ok(Heard::Some) => self.activate(key),
                Ok(Heard::Late) => {
                    if let Some(control) = self.all.get_mut(key) {
                        control.active = true;
                        late.push_back(key);
                    }
                }
                Ok(Heard::Crowd) => {
                    if let Some(control) = self.all.get_mut(key) {
                        control.active = true;
                        hub.debts.crowd();
                        hub.debts.waiting.controls.push(key);
                    }
                }
                // It is gone.
                Err(Nonsense) => {}
            }
        }
        self.took = took;
        if !late.is_empty() {
            // The first ones of the next turn.
            late.append(&mut self.active);
            self.active = late;
        }
    }

    /// What one connection has to ask, until then (ns).
    fn hear(
        &mut self,
        key: Key,
        until: u64,
        hub: &mut Hub,
        engine: &mut Engine,
        settings: &Settings,
    ) -> std::result::Result<Heard, Nonsense> {
        // A stranger's descriptors cost a thread: nothing more is heard in the turn in which some came.
        let mut is_costly = false;
        let (mut asked, mut said) = (0, 0);
        while asked < TURN && said < SAID && !is_costly {
            if asked + said > 0 && clock::monotonic_ns() >= until {
                return Ok(Heard::Late);
            }
            asked += 1;
            let controls = self.all.len();
            let Some(control) = self.all.get_mut(key) else { return Ok(Heard::All) };
            // What has none goes on, and so does what is asked already; what comes meanwhile is not heard unseen.
            if !hub.users.may_send(control.uid) {
                match seqpacket::brings_descriptors(control.end.as_fd()) {
                    Some(true) => return Ok(Heard::Crowd),
                    None if control.query.is_none() => return Ok(Heard::All),
                    _ => {}
                }
            }
            if let Some((header, doing)) = &mut control.query {
                let next = match doing {
                    Doing::Rows(progress) => Next::Row(query::row(progress, hub, engine, settings, controls)),
                    _ => doing.next(engine),
                };
                let text = match next {
                    Next::Row(text) => text,
                    Next::Refused(refusal) => {
                        hub.counts.answered(header.op, refusal.0);
                        let message = refused(*header, &refusal);
                        if let Some((_, doing)) = control.query.take() {
                            doing.end(engine, &hub.watch);
                        }
                        self.tasks.retain(|other| *other != key);
                        seqpacket::send(control.end.as_fd(), &message, None).map_err(|_| Nonsense)?;
                        continue;
                    }
                    Next::Later => {
                        // Whatever is said meanwhile ends it.
                        match hub.receive(control.uid, &mut control.asker, &control.end, &mut self.room)? {
                            None => return Ok(Heard::All),
                            Some((_, fds, _)) => {
                                hub.close_received(control.uid, fds);
                                doing.stop();
                            }
                        }
                        continue;
                    }
                };
                let message = [&header.encode()[..], text.as_bytes()].concat();
                match seqpacket::send(control.end.as_fd(), &message, None) {
                    Ok(()) if text.is_empty() => {
                        if let Some((_, doing)) = control.query.take() {
                            doing.end(engine, &hub.watch);
                        }
                        self.tasks.retain(|other| *other != key);
                    }
                    Ok(()) => doing.told(),
                    Err(bypath_sys::Errno::AGAIN) => {
                        // One question after the other: who asks more and does not read is left, with what he may have sent along.
                        if matches!(doing, Doing::Rows(_))
                            && let Some((_, fds, _)) =
                                hub.receive(control.uid, &mut control.asker, &control.end, &mut self.room)?
                        {
                            hub.close_received(control.uid, fds);
                            return Err(Nonsense);
                        }
                        // Told when there is room; nothing else is heard of it before.
                        doing.again(text);
                        if !std::mem::replace(&mut control.room_told, true) {
                            hub.watch.room(control.end.as_fd(), Token::Control(key), true);
                        }
                        return Ok(Heard::All);
                    }
                    Err(_) => return Err(Nonsense),
                }
                continue;
            }
            if is_too_many(control.on_way) && !control.is_read(key, hub) {
                // Who does not read his answers waits for his turn until he does.
                return Ok(Heard::All);
            }
            if !hub.users.may_be_sent(control.uid, Share::Answer) {
                match control.wants_descriptors() {
                    Some(true) => {
                        hub.on_way.wait(Token::Control(key));
                        return Ok(Heard::All);
                    }
                    Some(false) => {}
                    // What comes meanwhile is not heard unseen.
                    None => return Ok(Heard::All),
                }
            }
            let Some((len, fds, is_cut)) =
                hub.receive(control.uid, &mut control.asker, &control.end, &mut self.room)?
            else {
                return Ok(Heard::All);
            };
            let named = control.asker.said.unwrap_or(control.uid);
            if named != control.uid && !self.asks_as(key, named, hub, settings) {
                hub.close_received(named, fds);
                return Err(Nonsense);
            }
            let Some(control) = self.all.get_mut(key) else { return Ok(Heard::All) };
            // Dropped last: nothing that came along makes the service wait.
            let _others = Others::among(fds.iter().filter(|end| !is_made_here(end)));
            is_costly = control.stranger && _others.is_some();
            let fds = fds;
            let message = self.room.get(..len).filter(|_| len <= MESSAGE).ok_or(Nonsense)?;
            let Some((header, body)) = Header::decode(message) else {
                hub.counts.nonsense();
                return Err(Nonsense);
            };
            hub.counts.asked(header.op);
            if is_cut {
                // There was no descriptor for what came along: that is not the fault of who asks.
                hub.counts.answered(header.op, libc::EMFILE);
                hub.close_received(control.uid, fds);
                let text = "the service has no descriptors left".to_owned();
                let answer = match header.op {
                    Op::Say => continue,
                    Op::Query => refused(header, &(libc::EMFILE, text)),
                    _ => Header { errno: libc::EMFILE, ..header }.encode().to_vec(),
                };
                seqpacket::send(control.end.as_fd(), &answer, None).map_err(|_| Nonsense)?;
                continue;
            }
            if control.stranger && header.op == Op::Hello && !fds.is_empty() {
                return Err(Nonsense);
            }
            let holds = match header.op {
                Op::Again => hub.is_claimed(header.socket, Body(body), &fds),
                _ => fds.iter().any(|end| hub.holds(header.socket, end.as_fd())),
            };
            if control.stranger && !is_for_strangers(header.op, holds) {
                hub.counts.answered(header.op, libc::EACCES);
                let answer = Header { errno: libc::EACCES, ..header }.encode();
                let _ = seqpacket::send(control.end.as_fd(), &answer, None);
                return Err(Nonsense);
            }
            if header.op == Op::Query {
                let who = Who { uid: control.uid, key, watch: &hub.watch, tasks: self.tasks.len() };
                let Some(begun) = tasks::begin(body, fds, engine, &who) else {
                    hub.counts.nonsense();
                    return Err(Nonsense);
                };
                match begun {
                    Ok(doing) => {
                        if doing.is_task() {
                            self.tasks.push(key);
                        }
                        control.query = Some((Header { errno: 0, ..header }, doing));
                    }
                    Err(refusal) => {
                        hub.counts.answered(header.op, refusal.0);
                        let message = refused(header, &refusal);
                        seqpacket::send(control.end.as_fd(), &message, None).map_err(|_| Nonsense)?;
                    }
                }
                continue;
            }
            if header.op == Op::Bind {
                hub.forget_heirs();
            }
            if matches!(header.op, Op::Bind | Op::Listen | Op::Connect) {
                hub.ends_first(engine);
            }
            let asks =
                Asks { hub: &mut *hub, engine, settings, uid: control.uid, holds, socket: header.socket };
            let Ok(answered) = asks.ask(header.op, Body(body), fds) else {
                hub.counts.nonsense();
                return Err(Nonsense);
            };
            if header.op == Op::Say {
                hub.counts.answered(header.op, answered.err().unwrap_or(0));
                (asked, said) = (asked - 1, said + 1);
                continue;
            }
            let answer = answered.unwrap_or_else(|errno| Answer {
                socket: header.socket,
                body: Vec::new(),
                with: Vec::new(),
                errno,
            });
            hub.counts.answered(header.op, answer.errno);
            if matches!(header.op, Op::Open | Op::Connect) && hub.is_connecting(answer.socket) {
                control.connects(answer.socket, hub);
            }
            let head = Header { socket: answer.socket, errno: answer.errno, ..header };
            let message = [&head.encode()[..], &answer.body].concat();
            let with: Vec<BorrowedFd<'_>> = answer.with.iter().map(AsFd::as_fd).collect();
            // Who does not read his answers gets no more of them.
            match seqpacket::send_with(control.end.as_fd(), &message, &with) {
                Ok(()) => {
                    control.on_way += with.len();
                    if hub.users.sent(control.uid, with.len()) {
                        hub.on_way.sent(Token::Control(key));
                    }
                }
                // Others of the service's own user have as many on their way as this process may have open.
                Err(bypath_sys::Errno::TOOMANYREFS) => {
                    let head = Header { socket: header.socket, errno: libc::ENFILE, ..head };
                    seqpacket::send(control.end.as_fd(), &head.encode(), None).map_err(|_| Nonsense)?;
                }
                Err(_) => return Err(Nonsense),
            }
        }
        Ok(Heard::Some)
    }
}

/// What is left of a connection's questions.
enum Heard {
    /// Nothing that would not be told of.
    All,
    /// There may be more.
    Some,
    /// The same, and no time for it in this turn.
    Late,
    /// The next one brings descriptors, and too many are not closed yet.
    Crowd,
}

/// Whether somebody may ask that whom the service is not for: what is about one socket, if he holds it.
const fn is_for_strangers(op: Op, holds: bool) -> bool {
    match op {
        Op::Hello => true,
        Op::Open | Op::Query | Op::Interfaces => false,
        Op::Bind | Op::Listen | Op::Connect | Op::Names | Op::Set | Op::Say | Op::Get => holds,
        Op::Error | Op::Shutdown | Op::Reach | Op::Rings | Op::Again => holds,
    }
}

/// Whether it is an end of a pair that the service made, or of a connection to it: there is nothing in it but what the service has sent.
fn is_made_here(end: &OwnedFd) -> bool {
    unix::is_of_this_process(end.as_raw_fd())
}

/// Ends a connection, in which there may be what nobody has received.
pub(super) fn leave(end: OwnedFd) {
    strangers::close_caller(end.into_raw_fd());
}

/// The answer to a query that is not done.
fn refused(header: Header, (errno, text): &Refusal) -> Vec<u8> {
    let body = serde_json::json!({ "error": text }).to_string();
    [&Header { errno: *errno, ..header }.encode()[..], body.as_bytes()].concat()
}

impl Hub {
    /// The next message of a user, and what came along, with whether more did, for which there was no descriptor; `None`: there is none.
    ///
    /// # Errors
    /// The other end is gone, or what came along makes no sense: it is closed.
    fn receive(
        &mut self,
        uid: u32,
        asker: &mut Asker,
        end: &OwnedFd,
        room: &mut [u8],
    ) -> std::result::Result<Option<(usize, Vec<OwnedFd>, bool)>, Nonsense> {
        let Some(whole) = seqpacket::receive_all(end.as_fd(), room).map_err(|_| Nonsense)? else {
            return Ok(None);
        };
        let is_asker = whole.len == 0 || asker.is(whole.sender);
        let is_sound = is_asker
            && whole.len > 0
            && whole.fds.len() <= unix::MAX_FDS
            && (!self.users.counts(uid) || self.debts.are_kernels(&whole.fds));
        if is_sound {
            return Ok(Some((whole.len, whole.fds, whole.is_cut)));
        }
        if whole.len > 0 && is_asker {
            self.counts.nonsense();
        }
        self.close_received(uid, whole.fds);
        Err(Nonsense)
    }

    /// Whether this is the program's end of the socket with this cookie, so that who sent it holds that: its other end is called so, even
    /// when the service has closed that. A connection for questions has the same maker, and no such name. Before Linux 5.4 cookies are those of
    /// one network namespace; whoever makes others in one of his own has no pair that this process made, with such a name.
    fn holds(&self, socket: u64, end: BorrowedFd<'_>) -> bool {
        let mut room = [0; 110];
        let mut is_named = |end| {
            let name = unix::peer_name(end, &mut room).and_then(of_end_name);
            name.is_some_and(|(name, cookie)| name == self.name && cookie == socket)
        };
        let end = end.as_raw_fd();
        sock::option_u64(end, libc::SOL_SOCKET, libc::SO_COOKIE) == Ok(socket)
            && unix::is_of_this_process(end)
            && is_named(end)
    }
}
