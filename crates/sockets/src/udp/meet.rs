//! How a sender gets the mailbox of a receiver (docs/udp.md).
//!
//! The receiver has a name in the abstract AF_UNIX namespace, by its cookie. The sender asks the kernel which socket gets what it
//! sends, dials that one's name, says from where its datagrams come, and is given the mailbox if the receiver knows that source. Each
//! looks in its own calls; nobody waits.

use super::address::Name;
use super::inbound::{self, SENDERS};
use super::network::{self, Network};
use super::receive::{HEAD, SOURCE};
use super::route::{Route, stage};
use super::send::LOOK_EVERY;
use super::stand_in::{self, StandIn};
use super::words::{HELLO, Message, NO, SIZE, VERSION, WELCOME, WORDS, decode, encode, name};
use super::{Record, groups, maps, options, queue, user, wait};
use crate::config::{LogLevel, NO_LIMIT, Upgrade};
use crate::peer::Share;
use crate::rendezvous::STRANGERS;
use crate::{fault, log, memory, rendezvous, rules, state, table};
use bypath_shm::reason::Reason;
use bypath_shm::region::MailboxMap;
use bypath_sys::{Errno, clock, fd, process, sock, strangers, unix};
use std::sync::atomic::{AtomicI32, Ordering::*};

/// Looks in which who has called, and says nothing, is waited for.
const CALLER_LOOKS: u32 = 64;
/// Datagrams between two attempts at most.
const REST: u32 = 1 << 16;
/// For so long (us) a receiver that lets itself be called is waited for, by who sends on.
const ANSWER_US: u64 = 10_000_000;
/// Octets of a ring.
const RINGS: [u64; 2] = [128 * 1024, 1024 * 1024];

/// Datagrams between two sockets before anything is done for them.
pub fn threshold() -> u32 {
    state::config().map_or(u32::MAX, |c| match c.upgrade {
        Upgrade::Eager => 1,
        Upgrade::Lazy => u32::try_from(c.upgrade_calls).unwrap_or(u32::MAX).max(1),
        Upgrade::Off => u32::MAX,
    })
}

/// How many datagrams there have to be for the next attempt, after one in vain at so many.
fn after(count: u32) -> u32 {
    count.saturating_add(count.clamp(4, REST))
}

/// From which address this host sends to `to`.
fn source_for(to: &Name) -> Result<Name, Reason> {
    let address = to.to_address();
    let probe = sock::datagrams(i32::from(address.family), 0, state::floor());
    let probe = probe.map_err(|_| Reason::NotConnected)?;
    let found = sock::connect(probe, &address).and_then(|()| sock::local_address(probe));
    fd::close(probe);
    match found {
        Ok(found) => Ok(Name::of(&found)),
        // A broadcast address, to which the probe may not send: 127.255.255.255 is one, too.
        Err(Errno::ACCESS) => Err(Reason::OtherHost),
        Err(_) => Err(Reason::NotConnected),
    }
}

/// Whether both are this host's, as the loopback or as one address of it, and neither is one of a link.
pub(super) fn is_same_host(source: &Name, to: &Name) -> bool {
    use std::net::IpAddr;
    let (from, to) = (source.address(), to.address());
    let is_of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    from.is_ipv4() == to.is_ipv4()
        && !is_of_link(to)
        && (from == to || from.is_loopback() && to.is_loopback())
}

/// What nobody may have beside those that share it: counts this process's mailboxes and routes.
fn admit(r: &Record) -> Result<(), Reason> {
    let (Some(state), Some(config)) = (state::get(), state::config()) else { return Err(Reason::Disabled) };
    if let Some(reason) = state::hindrance() {
        return Err(reason);
    }
    if state::are_children_elsewhere() {
        return Err(Reason::OtherNamespace);
    }
    user::check_steady()?;
    r.learns_changes(r.fd.load(Relaxed));
    if let Some(reason) = r.stays() {
        return Err(reason);
    }
    memory::admit(state, config)?;
    if config.connection_limit != NO_LIMIT {
        let mut taken = 0;
        super::each(|r| taken += u32::from(r.has_mailbox()) + r.count_up());
        if taken >= config.connection_limit {
            return Err(Reason::ConnectionLimit);
        }
    }
    Ok(())
}

/// A mailbox of this process is no more; only for who has taken it from its record.
pub fn give_back(map: &'static MailboxMap) {
    let size = map.ring().size();
    maps::give_back(map);
    if let Some(state) = state::get() {
        let _ = state.own().ring_bytes.fetch_update(Relaxed, Relaxed, |b| Some(b.saturating_sub(size)));
    }
}

// ---------------------------------------------------------------- the receiver

impl Record {
    /// Whether what comes from there comes from this host.
    pub(super) fn is_near(&self, source: &Name) -> bool {
        if source.address().is_loopback() {
            return true;
        }
        // Of other addresses the last answer is kept, for the address alone.
        let hash = Name { port: 0, ..*source }.hash();
        let [near, far] = &self.inbound.judged;
        if near.load(Relaxed) == hash {
            return true;
        }
        if far.load(Relaxed) == hash {
            return false;
        }
        let is_near = source_for(source).is_ok_and(|own| own.ip == source.ip);
        if is_near { near } else { far }.store(hash, Relaxed);
        is_near
    }

    /// One of its first datagrams: from some on views see it, and these.
    #[cold]
    pub(super) fn seen(&self, fd: i32) {
        const FROM: u32 = 4;
        let seen = self.seen.load(Relaxed).saturating_add(1);
        self.seen.store(seen, Relaxed);
        if seen >= FROM.min(threshold())
            && !state::is_borrowed()
            && let Some(_life) = state::LIFE.try_lock(table::tid())
        {
            self.show(fd);
        }
    }
}

/// Datagrams of this host came: makes a mailbox and listens, if it may.
#[cold]
pub fn announce(r: &Record, fd: i32, near: u32) {
    if near < threshold() || state::is_borrowed() || r.stays().is_some() {
        return r.inbound.due.store(threshold(), Relaxed);
    }
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    if r.has_mailbox() {
        return;
    }
    r.inbound.due.store(after(near), Relaxed);
    if let Err(reason) = make(r, fd) {
        r.show_rx_reason(reason);
        log::line(LogLevel::Debug, format_args!("fd {fd} has no mailbox: {}", reason.code()));
    }
}

fn make(r: &Record, fd: i32) -> Result<(), Reason> {
    r.show(fd);
    admit(r)?;
    wait::can_overlay(r)?;
    let local = sock::local_address(fd).map_err(|_| Reason::NotConnected)?;
    let remote = r.peer().map(|peer| (peer.address(), peer.port));
    let own_name = Name::of(&local);
    if let Some(rule) = rules::keeps(Some((own_name.address(), own_name.port)), remote) {
        if let Some(end) = r.shown() {
            end.rule.store(rule.into(), Relaxed);
        }
        r.keep(Reason::Rule);
        return Err(Reason::Rule);
    }
    let (floor, made_by) = (state::floor(), process::euid());
    let cookie = sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map_err(|_| Reason::NotConnected)?;
    let room = sock::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0).max(1) as u64;
    let size = room.clamp(RINGS[0], RINGS[1]).next_power_of_two().min(RINGS[1]);
    let (kept, memory) = maps::make(size as u32, floor).map_err(no_addresses)?;
    let given_up = |reason: Reason| {
        maps::give_back(kept);
        fd::close(memory);
        reason
    };
    let (offers, is_inheritable) = (r.is_shared(), r.is_inheritable());
    fault::age_mailbox(kept.mailbox());
    kept.owner().store(cookie, Relaxed);
    // A ring of less holds less.
    r.inbound.room.store(room.min(queue::most_in(size)), Relaxed);
    if kept.ring().back(0, size).is_err() {
        return Err(given_up(Reason::NoMemory));
    }
    let (own, len) = name(cookie);
    let listener = match unix::listen(&own[..len], floor) {
        Ok(listener) => listener,
        // One of those who share the socket has the mailbox.
        Err(Errno::ADDRINUSE) if offers || is_inheritable => return Err(given_up(Reason::SharedQueue)),
        Err(Errno::ADDRINUSE) => return Err(given_up(Reason::Squatter)),
        Err(e) => return Err(given_up(rendezvous::errno_reason(e))),
    };
    // The name is to be where senders look for it.
    network::is_where(fd, listener).map_err(|reason| {
        fd::close(listener);
        given_up(reason)
    })?;
    if let Some(state) = state::get() {
        state.own().ring_bytes.fetch_add(size, Relaxed);
    }
    r.inbound.own[0].store(own_name.ip[0], Relaxed);
    r.inbound.own[1].store(own_name.ip[1], Relaxed);
    let wants = r.of_heads(&own_name);
    r.inbound.heads.store(wants, Relaxed);
    r.inbound.offers.store(offers, Relaxed);
    r.inbound.is_inheritable.store(is_inheritable, Relaxed);
    r.inbound.made_by.store(made_by, Relaxed);
    r.inbound.memory.store(memory + 1, Relaxed);
    r.inbound.listener.store(listener + 1, Relaxed);
    r.inbound.mailbox.set(Some(kept));
    fault::point("mailbox-made");
    if !wait::comes(r) {
        r.end_mailbox(Reason::MailboxLimit);
        r.forget_mailbox();
        return Err(Reason::MailboxLimit);
    }
    r.show_names(fd);
    r.show_rx_reason(Reason::NoSender);
    if r.stays().is_some() {
        // Another thread has excluded it meanwhile.
        r.end_mailbox(r.stays().unwrap_or(Reason::None));
    }
    if r.of_heads(&own_name) != wants {
        r.end_mailbox(Reason::RecalledOption);
    }
    Ok(())
}

/// Why there are none for a mailbox.
fn no_addresses(e: Errno) -> Reason {
    if e == Errno::NOBUFS { Reason::MailboxLimit } else { rendezvous::errno_reason(e) }
}

/// Looks for senders who ask for the mailbox.
#[cold]
pub fn look(r: &Record, fd: i32) {
    if state::is_borrowed() {
        return;
    }
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    let listener = r.inbound.listener.load(Relaxed) - 1;
    if listener < 0 {
        return;
    }
    r.ask_whether_offered();
    r.inbound.look_after_a_lender();
    for (place, share) in r.inbound.callers.iter().zip(&r.inbound.calling) {
        if let (Some(caller), Some(share)) = (inbound::take(place), share.take()) {
            hear(r, fd, caller, Some(share));
        }
    }
    for _ in 0..4 {
        if !rendezvous::may_meet() {
            break;
        }
        let Ok(Some(caller)) = unix::accept(listener, state::floor()) else { break };
        match may_call(r, caller) {
            Ok(()) => {
                unix::take_descriptors(caller, true);
                r.inbound.patience.store(CALLER_LOOKS, Relaxed);
                hear(r, fd, caller, Share::of(caller).ok());
            }
            Err(reason) => STRANGERS.after(|| refuse(fd, caller, reason)),
        }
    }
    // Who was let in says soon from where he sends.
    if r.inbound.callers.iter().any(|place| place.load(Relaxed) != 0) {
        r.inbound.patience.fetch_sub(1, Relaxed);
        r.inbound.until_look.store(0, Relaxed);
    }
}

/// Gives the mailbox to who has called, if he may have it, or waits for what he says.
fn hear(r: &Record, fd: i32, caller: i32, mut share: Option<Share>) {
    let mut raw = [0; SIZE];
    let said = match unix::recv(caller, &mut raw, state::floor()) {
        Ok(None) if r.inbound.patience.load(Relaxed) > 0 => {
            let free = |place: &AtomicI32| place.load(Relaxed) == 0;
            match r.inbound.callers.iter().position(free).zip(share.take()) {
                Some((at, share)) => {
                    r.inbound.calling[at].put(share);
                    return r.inbound.callers[at].store(caller + 1, Release);
                }
                None => Err(Reason::MailboxLimit),
            }
        }
        Ok(Some(received)) => Ok(received),
        Err(Errno::MFILE) => Err(Reason::NoDescriptors),
        _ => Err(Reason::VersionMismatch),
    };
    // The user may be another one than at the call.
    let may = |received: &unix::Received| {
        let share = may_call(r, caller).and_then(|()| share.ok_or(Reason::NoDescriptors));
        share.inspect_err(|_| strangers::close_received(received))
    };
    let said = said.and_then(|received| may(&received).map(|share| (received, share)));
    let heard =
        said.and_then(|(received, share)| welcome(r, fd, (caller, share), &raw[..received.len], &received));
    match heard {
        Ok(()) => r.show_rx_reason(Reason::Ring),
        Err(reason) => refuse(fd, caller, reason),
    }
}

fn refuse(fd: i32, caller: i32, reason: Reason) {
    let mut message = [0; WORDS];
    // Whose rule it is is another one there.
    let told = if reason == Reason::Rule { Reason::PeerRule } else { reason };
    [message[0], message[1], message[2]] = [NO, VERSION, told as u64];
    let _ = unix::send(caller, &encode(&message), &[]);
    strangers::close_stranger(caller);
    log::line(LogLevel::Debug, format_args!("fd {fd} refuses a sender: {}", reason.code()));
}

/// A name in a message: an address's words, and a port.
fn said_name(said: &[u64]) -> Name {
    Name { ip: [said[0], said[1]], port: said[2] as u16 }
}

/// Whether who calls may: before anything of him is received.
fn may_call(r: &Record, caller: i32) -> Result<(), Reason> {
    let who = unix::peer_credentials(caller).map_err(|_| Reason::Squatter)?;
    r.check_user(who.uid)?;
    if who.pid == 0 { Err(Reason::OtherNamespace) } else { Ok(()) }
}

/// Says where the mailbox is, if the caller may have it.
fn welcome(
    r: &Record,
    fd: i32,
    (caller, share): (i32, Share),
    octets: &[u8],
    received: &unix::Received,
) -> Result<(), Reason> {
    let said = decode(octets).filter(|message| message[0] == HELLO);
    let source = said.map_or(Name::default(), |said| said_name(&said[2..5]));
    let lent = StandIn::of_message(received, &source, fd);
    let said = said.ok_or(Reason::VersionMismatch)?;
    let state = state::get().ok_or(Reason::Disabled)?;
    if said[8..11] != state.namespaces {
        return Err(Reason::OtherNamespace);
    }
    let (source, to) = (said_name(&said[2..5]), said_name(&said[5..8]));
    let local = Name::of(&sock::local_address(fd).map_err(|_| Reason::NotConnected)?);
    let is_meant = to.port == local.port && (local.ip == to.ip || local.is_unspecified());
    let is_partner = r.peer().is_none_or(|peer| peer == source);
    let has_place = !r.wants_info() || r.interface(&to) != 0;
    if !has_place || !is_meant || !is_partner || !r.inbound.knows(&source) {
        return Err(Reason::UnknownSource);
    }
    if rules::keeps(Some((to.address(), to.port)), Some((source.address(), source.port))).is_some() {
        return Err(Reason::Rule);
    }
    let memory = r.inbound.memory.load(Relaxed) - 1;
    if memory < 0 {
        return Err(Reason::Refused);
    }
    // All are looked at: what a sender that was killed has lent keeps its port.
    let mut free = None;
    for at in 0..SENDERS {
        if r.inbound.is_free(at) {
            free.get_or_insert(at);
        }
    }
    let at = free.ok_or(Reason::MailboxLimit)?;
    let room = sock::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0).max(1);
    if let Some(map) = r.inbound.mailbox.get() {
        // Another holder of the socket may have raised it.
        let holds = (room as u64).min(queue::most_in(map.ring().size()));
        r.inbound.room.fetch_max(holds, Relaxed);
    }
    let mut message = [0; WORDS];
    let heads = u64::from(r.inbound.heads.load(Relaxed));
    let may_inherit = r.inbound.is_inheritable.load(Relaxed);
    let lent_share = lent.as_ref().filter(|_| may_inherit).and_then(|_| Share::of(caller).ok());
    let lent = lent.filter(|_| lent_share.is_some());
    let offers = r.inbound.offers.load(Relaxed) || may_inherit && !r.can_recall(&source, lent.as_ref());
    message[..6].copy_from_slice(&[
        WELCOME,
        VERSION,
        room as u64,
        heads,
        // What others do who hold it the kernel knows.
        (r.shares_port() || r.is_shared()).into(),
        offers.into(),
    ]);
    fault::point("mailbox-asked-for");
    unix::send(caller, &encode(&message), &[memory]).map_err(|_| Reason::PeerPlain)?;
    fault::point("mailbox-given");
    r.inbound.shares[at][0].put(share);
    r.inbound.senders[at].store(caller + 1, Relaxed);
    if let (Some(lent), Some(share), false) = (lent, lent_share, offers) {
        r.inbound.shares[at][1].put(share);
        r.inbound.lent[at].store(lent.into_fd() + 1, Release);
        r.inbound.has_lenders.store(true, Relaxed);
    }
    if let Some(end) = r.shown() {
        let from = source.to_address();
        end.remote.set(from.family, from.port, from.bytes);
    }
    Ok(())
}

// ---------------------------------------------------------------- the sender

/// A destination was sent to often: asks for its mailbox, or looks whether there is an answer.
#[cold]
pub fn attempt(r: &Record, fd: i32, route: &Route) {
    if state::is_borrowed() || r.stays().is_some() {
        return;
    }
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    let sends = route.sends.load(Relaxed);
    match route.stage.load(Relaxed) {
        stage::COUNTING => {
            route.due.store(after(sends), Relaxed);
            match ask(r, fd, route) {
                Ok(()) => {
                    route.stage.store(stage::ASKED, Release);
                    route.due.store(sends + 1, Relaxed);
                }
                Err(reason) => refused(r, fd, route, reason),
            }
        }
        stage::ASKED => {
            route.due.store(sends.saturating_add(LOOK_EVERY), Relaxed);
            answered(r, fd, route, sends);
        }
        _ => {}
    }
}

fn refused(r: &Record, fd: i32, route: &Route, reason: Reason) {
    let passes = rendezvous::is_passing(reason)
        || matches!(reason, Reason::UnknownSource | Reason::SharedQueue | Reason::MailboxLimit)
        // This process may become that one, and another thread ask in the socket's own namespace.
        || matches!(reason, Reason::OtherUser | Reason::OtherNamespace);
    if !passes {
        // Nothing that happens to this destination changes that.
        route.due.store(u32::MAX, Relaxed);
    }
    r.show_reason(reason);
    log::line(
        LogLevel::Debug,
        format_args!(
            "fd {fd} sends to {} port {} by the kernel: {}",
            route.name().address(),
            route.name().port,
            reason.code()
        ),
    );
}

fn ask(r: &Record, fd: i32, route: &Route) -> Result<(), Reason> {
    r.show(fd);
    admit(r)?;
    let to = route.name();
    let is_v4 = r.family() == libc::AF_INET || to.is_v4();
    route.is_asked_for(&Network::look()?, is_v4, options::refuses_pieces(fd));
    // Where others have the same addresses, all of this would be about their sockets.
    for asked in [state::watch(), state::netlink()] {
        network::is_where(fd, asked.map_err(rendezvous::errno_reason)?)?;
    }
    let local = Name::of(&sock::local_address(fd).map_err(|_| Reason::NotConnected)?);
    let mut source = local;
    let may_broadcast = sock::option(fd, libc::SOL_SOCKET, libc::SO_BROADCAST) != Ok(0);
    if local.is_unspecified() || may_broadcast {
        let found = source_for(&to)?;
        if local.is_unspecified() {
            source = Name { port: local.port, ..found };
        }
    }
    if !is_same_host(&source, &to) {
        return Err(Reason::OtherHost);
    }
    if let Some(rule) = rules::keeps(Some((source.address(), source.port)), Some((to.address(), to.port))) {
        if let Some(end) = r.shown() {
            end.rule.store(rule.into(), Relaxed);
        }
        return Err(Reason::Rule);
    }
    let found = groups::receiver(&source, &to).map_err(rendezvous::errno_reason)?.ok_or(Reason::PeerPlain)?;
    user::check(found.uid)?;
    let own = sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE).map_err(|_| Reason::NotConnected)?;
    if found.cookie == own {
        return Err(Reason::ToItself);
    }
    if !rendezvous::may_meet() {
        return Err(Reason::PeerPlain);
    }
    let (theirs, len) = name(found.cookie);
    let dialled = STRANGERS.after(|| unix::dial(&theirs[..len], state::floor())).map_err(|e| match e {
        Errno::CONNREFUSED | Errno::AGAIN => Reason::PeerPlain,
        other => rendezvous::errno_reason(other),
    })?;
    for (to, from) in route.source.iter().zip([source.ip[0], source.ip[1], source.port.into()]) {
        to.store(from, Relaxed);
    }
    route.is_unsaid.store(true, Relaxed);
    // A receiver that has become another user since it opened its socket, or a stranger: who has the socket only his descriptors tell, and to look there
    // takes as long as a program that he executes.
    let said = network::is_where(fd, dialled)
        .and_then(|()| rendezvous::credentials_fit(dialled, found.uid).map_err(|_| Reason::OtherUser))
        .and_then(|()| {
            let share = Share::of(dialled).map_err(rendezvous::errno_reason)?;
            unix::take_descriptors(dialled, true);
            say_hello(r, fd, route, dialled).map(|()| share)
        });
    match said {
        Ok(share) => route.share.put(share),
        Err(reason) => {
            strangers::close_stranger(dialled);
            return Err(reason);
        }
    }
    fault::point("mailbox-called-for");
    route.connection.store(dialled + 1, Relaxed);
    route.asked_by.store(found.uid, Relaxed);
    route.cookie.store(found.cookie, Relaxed);
    route.checked.store(clock::ticks(), Relaxed);
    route.is_careful.store(r.is_shared(), Relaxed);
    Ok(())
}

/// Says HELLO, if it has not been said, and the receiver takes what is lent with it: not before he has seen who calls.
fn say_hello(r: &Record, fd: i32, route: &Route, dialled: i32) -> Result<(), Reason> {
    if !route.is_unsaid.load(Relaxed) {
        return Ok(());
    }
    let (source, to) = (route.own_source(), route.name());
    let mut message = [0; WORDS];
    [message[0], message[1]] = [HELLO, VERSION];
    message[2..8].copy_from_slice(&[
        source.ip[0],
        source.ip[1],
        source.port.into(),
        to.ip[0],
        to.ip[1],
        to.port.into(),
    ]);
    let state = state::get().ok_or(Reason::Disabled)?;
    message[8..11].copy_from_slice(&state.namespaces);
    let lent = stand_in::lend(r, fd, &source);
    match unix::send(dialled, &encode(&message), lent.as_slice()) {
        Ok(()) => route.is_unsaid.store(false, Relaxed),
        Err(Errno::PERM) => {}
        Err(_) => return Err(Reason::PeerPlain),
    }
    Ok(())
}

fn answered(r: &Record, fd: i32, route: &Route, sends: u32) {
    let connection = route.connection.load(Relaxed) - 1;
    let mut raw = [0; SIZE];
    if let Err(reason) = say_hello(r, fd, route, connection) {
        return again(r, fd, route, sends, reason);
    }
    let received = match unix::recv(connection, &mut raw, state::floor()) {
        Ok(None) if route.is_unanswered() => return again(r, fd, route, sends, Reason::PeerPlain),
        Ok(None) => return,
        Ok(Some(received)) if received.len > 0 => received,
        Err(Errno::MFILE) => return again(r, fd, route, sends, Reason::NoDescriptors),
        _ => {
            return again(r, fd, route, sends, Reason::PeerPlain);
        }
    };
    let outcome = match decode(&raw[..received.len]) {
        Some(message) if message[0] == WELCOME && received.fd_count == 1 => {
            use_mailbox(r, route, &message, received.fds[0])
        }
        Some(message) if message[0] == NO => {
            let reason = u16::try_from(message[2]).ok().and_then(Reason::from_value);
            Err(reason.unwrap_or(Reason::Refused))
        }
        _ => Err(Reason::VersionMismatch),
    };
    strangers::close_received(&received);
    if let Err(reason) = outcome {
        again(r, fd, route, sends, reason);
    }
}

impl Route {
    /// Whether the receiver that was asked has had the time to answer.
    pub(super) fn is_unanswered(&self) -> bool {
        clock::ticks().wrapping_sub(self.checked.load(Relaxed)) > ANSWER_US * state::ticks_per_us()
    }
}

/// Back to counting, until it is tried again.
fn again(r: &Record, fd: i32, route: &Route, sends: u32, reason: Reason) {
    route.close();
    route.due.store(after(sends), Relaxed);
    route.stage.store(stage::COUNTING, Release);
    refused(r, fd, route, reason);
}

fn use_mailbox(r: &Record, route: &Route, message: &Message, memory: i32) -> Result<(), Reason> {
    // He was told who this was then.
    user::check(route.asked_by.load(Relaxed))?;
    let shares = message[4] != 0;
    if shares && !route.is_chosen() {
        // Meanwhile it was given to another one.
        return Err(Reason::UnknownSource);
    }
    let kept = maps::map(memory).map_err(|e| match e {
        Errno::NOBUFS | Errno::NOMEM => no_addresses(e),
        _ => Reason::PeerMemoryInvalid,
    })?;
    fault::point("mailbox-mapped");
    let source = route.own_source();
    let room = u32::try_from(message[2]).unwrap_or(u32::MAX);
    route.offers.store(message[5] != 0, Relaxed);
    r.route_is_up(route, kept, &source, (room, message[3] as u32, shares));
    if let Some(reason) = r.stays() {
        r.drop_routes(reason);
    }
    Ok(())
}

/// The receiver was killed, and has not read what this socket sent: the first of it goes by the kernel, which knows that nobody is there. Not more: what
/// the kernel has to say of one the next send would be told, and not the program. What others have sent stays for them.
#[cold]
pub fn send_again(r: &Record, route: &Route) {
    let Some(map) = route.mailbox.get() else { return };
    if route.was_sent_again.swap(true, Relaxed) {
        return;
    }
    let mut head = [0; HEAD];
    for (to, from) in head.chunks_exact_mut(8).zip(&route.source) {
        to.copy_from_slice(&from.load(Relaxed).to_ne_bytes());
    }
    let Some(first) = head.first_chunk::<SOURCE>().and_then(|own| queue::first_of(map, *own)) else { return };
    let mut raw = [0; super::LONGEST];
    let len = route.name().emit(r.family(), &mut raw);
    map.ring().with_pieces(first.at(), first.len(), |octets| {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let _ = sock::send_to(r.fd.load(Relaxed), octets, &raw[..len], flags);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ip: &str) -> Name {
        let octets = match ip.parse::<std::net::IpAddr>().unwrap() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        Name::new(octets, 7)
    }

    #[test]
    fn only_the_loopback_and_an_own_address_are_this_host() {
        for (from, to, is) in [
            ("127.0.0.1", "127.3.2.1", true),
            ("::1", "::1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("127.0.0.1", "10.0.0.1", false),
            ("fe80::1", "fe80::1", false),
            ("10.0.0.1", "224.0.0.1", false),
        ] {
            assert_eq!(is_same_host(&of(from), &of(to)), is, "{from} to {to}");
        }
    }
}
