//! The recall of a mailbox: before others come to have its socket, what nobody has read is sent again to the kernel's queue, where every
//! holder finds it. Its reader does that alone, in the names of those who have sent it (`stand_in`), whether they run, are stopped, or dead.

use super::receive::{HEAD, HEAD_LONG, from_head};
use super::stand_in::StandIn;
use super::told::Told;
use super::{LONGEST, Name, Record, groups, meet, queue};
use crate::budget::Budget;
use crate::config::LogLevel;
use crate::thread::Call;
use crate::{fault, log, state};
use bypath_shm::dgram::{ALIGN, Place};
use bypath_shm::mailbox::{Peeked, Reader, Writer};
use bypath_shm::reason::Reason;
use bypath_shm::region::MailboxMap;
use bypath_shm::ring::Ring;
use bypath_sys::{clock, fd, futex, poll, sock, sockdiag, thread};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// So long (ns) a reader waits for a writer that is in its turn, and a writer for a reader that sends again.
const WAIT_NS: u64 = 20_000_000;
/// How long all writers of this process wait together: a reader can say so again and again.
static WAITS: Budget = Budget::new(1_000_000_000);
/// Stand-ins that are kept while a mailbox is recalled.
const KEPT: usize = 8;

/// Which of those who hold the socket can read its ring after a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// All who will read: what the kernel has may be newer than what is in the ring, which stays then, so that it is read first.
    All,
    /// Not those who get the socket now, and who may be the only ones that read it: what waits goes behind what the kernel has, if it all finds room there.
    Some,
    /// Nobody: what can be saved is, as this process is about to become another program, say.
    None,
}

/// Whether it is time still to wait.
fn waits(most_ns: u64) -> impl FnMut() -> bool {
    let until = clock::monotonic_ns() + most_ns;
    move || {
        // Whoever is waited for may need this processor.
        thread::yield_now();
        clock::monotonic_ns() < until
    }
}

/// Before a writer sends by the kernel what it could not send by this mailbox: if that is recalled, what it sent before comes first. Whether it is: then it is over,
/// whatever its reader says later.
#[inline]
pub(super) fn wait_for(map: &MailboxMap) -> bool {
    let is_recalled = map.mailbox().is_recalled();
    if is_recalled {
        let since = clock::monotonic_ns();
        let mut waits = waits(WAITS.left().min(WAIT_NS));
        while waits() && map.mailbox().is_recalled() {}
        WAITS.spend(since);
    }
    is_recalled
}

/// How long (ns) a thread waits for another one that recalls, and what it sleeps then: that one needs a processor.
const RECALL_NS: u64 = 1_000_000_000;
const NAP_NS: u64 = 50_000;

/// A thread that recalls. No other one takes anything out of the ring meanwhile, nor says that the mailbox has ended: what is on its way to the kernel comes first.
struct Recalling<'a>(&'a AtomicU32);

impl Recalling<'_> {
    fn begin(recaller: &AtomicU32) -> Recalling<'_> {
        let own = thread::tid();
        while recaller.compare_exchange(0, own, SeqCst, Relaxed).is_err_and(|now| now != own) {
            wait_for_other(recaller);
        }
        Recalling(recaller)
    }
}

impl Drop for Recalling<'_> {
    fn drop(&mut self) {
        // Unless another one has begun since, who waited for this one too long.
        let _ = self.0.compare_exchange(thread::tid(), 0, SeqCst, Relaxed);
    }
}

/// Waits for another thread that recalls, unless it is none of this process (a vfork child's, one of the process that this one was forked from).
fn wait_for_other(recaller: &AtomicU32) {
    let until = clock::monotonic_ns() + RECALL_NS;
    loop {
        let now = recaller.load(Acquire);
        if now == 0 {
            return;
        }
        if !thread::is_alive(now) || clock::monotonic_ns() > until {
            let _ = recaller.compare_exchange(now, 0, SeqCst, Relaxed);
            return;
        }
        futex::wait(recaller, now, NAP_NS);
    }
}

/// Who stands in for whom.
struct StandIns {
    known: [Option<(Name, StandIn)>; KEPT],
    next: usize,
    /// The socket that gets what they send.
    fd: i32,
}

impl StandIns {
    fn of(&mut self, source: &Name, r: &Record) -> Option<&StandIn> {
        if let Some(at) = self.known.iter().position(|one| one.as_ref().is_some_and(|one| one.0 == *source)) {
            return self.known[at].as_ref().map(|one| &one.1);
        }
        let own = StandIn::new(source, self.fd).or_else(|| r.inbound.lent_by(source))?;
        let place = &mut self.known[self.next % KEPT];
        self.next += 1;
        if let Some((_, before)) = place.replace((*source, own)) {
            r.inbound.give_back_lent(before);
        }
        fault::point("stood-in");
        place.as_ref().map(|one| &one.1)
    }
}

/// What the kernel lets into the queue of a socket: it may have got another name, a partner or neighbours at its port since something was sent to it.
struct Entrance {
    local: Name,
    /// Bound to every address of IPv6, it gets what comes over IPv4, too.
    is_of_both: bool,
    peer: Option<Name>,
    /// Where its port is shared: its cookie, and whom to ask who gets what.
    shared: Option<(u64, i32)>,
    /// What was asked last.
    known: Option<(Name, Name, bool)>,
}

impl Entrance {
    fn of(r: &Record, fd: i32) -> Option<Entrance> {
        let local = Name::of(&sock::local_address(fd).ok()?);
        let is_of_both = !local.is_v4() && sock::option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(0);
        let peer = sock::remote_address(fd).ok().map(|peer| Name::of(&peer));
        let mut shared = None;
        if r.shares_port() {
            let cookie = sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE).ok()?;
            shared = Some((cookie, sockdiag::open(state::floor()).ok()?));
        }
        Some(Entrance { local, is_of_both, peer, shared, known: None })
    }

    /// Whether it gets what comes from `source` to that name, which a record tells: whoever writes there may lie.
    fn lets_in(&mut self, source: &Name, to: &Name) -> bool {
        let is_of_all = self.local.is_unspecified() && (self.local.is_v4() == to.is_v4() || self.is_of_both);
        let is_name = to.port != 0 && (is_of_all || self.local.ip == to.ip);
        if !is_name || !meet::is_same_host(source, to) || self.peer.is_some_and(|peer| peer != *source) {
            return false;
        }
        let Some((cookie, netlink)) = self.shared else { return true };
        match self.known {
            Some((from, at, is)) if from == *source && at == *to => is,
            _ => {
                let found = groups::receiver_by(netlink, source, to);
                let is = found.is_ok_and(|found| found.is_some_and(|found| found.cookie == cookie));
                self.known = Some((*source, *to, is));
                is
            }
        }
    }
}

/// What is sent again, and what is counted of what lies in the kernel's queue before it, in the memory that the kernel counts for that. Its queue takes no more: to
/// ask for more, and to send it, would only take time, as long as whoever writes into the ring likes, and keep out what others send there.
#[derive(Clone, Copy)]
struct Load {
    sum: u64,
    most: u64,
}

impl Load {
    fn behind(sum: u64, fd: i32) -> Load {
        let most = sock::option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap_or(0);
        Load { sum, most: most.max(0) as u64 }
    }

    /// That and a datagram that counts so much; `None`: there is no room for it.
    fn and(self, own: u64) -> Option<Load> {
        // Where nothing is there is room for one.
        let fits = self.sum == 0 || self.sum + own <= self.most;
        fits.then_some(Load { sum: self.sum + own, ..self })
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if let Some((_, netlink)) = self.shared {
            fd::close(netlink);
        }
    }
}

impl Record {
    /// Before something changes by which the kernel decides what it lets into its queue: what waits has been let in, so it lies there before that.
    pub(super) fn recall_before(&self, reason: Reason) {
        if self.has_unread() {
            self.recall(Readers::All);
            self.end_mailbox(reason);
        }
    }

    /// Before a child in this process's memory (vfork) receives: it finds what the kernel has. A mailbox that is over is the parent's to close.
    #[cold]
    pub fn child_receives(&self) {
        if self.has_mailbox() {
            self.recall(Readers::Some);
            self.kill_mailbox();
        }
    }

    /// Before this process has it no more: what could not be recalled as others got it goes to them, behind what the kernel has. Who was forked with the ring
    /// may read it there.
    pub(super) fn leave_the_rest(&self) {
        if self.spread.load(SeqCst) && self.has_unread() {
            self.recall(if self.end.load(Relaxed) == 0 { Readers::None } else { Readers::Some });
        }
    }

    /// For who found that a thread recalls.
    #[cold]
    pub(super) fn wait_for_recaller(&self) {
        if self.inbound.recaller.load(Relaxed) != thread::tid() {
            wait_for_other(&self.inbound.recaller);
        }
    }

    /// What is in the mailbox, which ends, goes to the kernel's queue, as far as it can.
    #[cold]
    pub(super) fn recall(&self, readers: Readers) {
        let _call = Call::enter();
        let Some(map) = self.inbound.mailbox.get() else { return };
        let _recalling = Recalling::begin(&self.inbound.recaller);
        map.mailbox().recall();
        // Whoever writes from now on sees that, and takes it back.
        if map.mailbox().unread() == 0 {
            return;
        }
        fault::point("recall-begun");
        let reader = Reader::new(map.mailbox(), map.ring());
        let fd = self.fd.load(Relaxed);
        reader.keep_writers_out(thread::tid(), waits(WAIT_NS));
        fault::point("writers-out");
        // What the kernel has may have been sent after what is in the ring: whoever reads that first has them in order.
        let is_ahead = poll::now(fd, libc::POLLIN) == 0;
        let queued = match readers {
            Readers::All if !is_ahead => None,
            Readers::Some if !is_ahead => sock::receive_memory(fd).ok().map(|sum| sum as u64),
            _ => Some(0),
        };
        let is_last = readers == Readers::None;
        let makes_sense =
            queued.is_none_or(|queued| self.send_all_again(fd, &reader, map, (is_last, queued)));
        fault::point("recall-over");
        if !makes_sense && !state::is_memory_of_another() {
            self.keep(Reason::PeerMemoryInvalid);
            return self.forget_mailbox();
        }
        let left = map.mailbox().unread();
        if left > 0 && !state::is_memory_of_another() {
            log::line(LogLevel::Debug, format_args!("fd {fd}: {left} octets stay with this process"));
        }
    }

    /// Behind what the kernel has `queued`. `is_last`: what can be saved is. False: somebody writes more than there can be.
    fn send_all_again(
        &self,
        fd: i32,
        reader: &Reader<'static, Ring>,
        map: &MailboxMap,
        (is_last, queued): (bool, u64),
    ) -> bool {
        let Some(mut entrance) = Entrance::of(self, fd) else { return true };
        let mut stand_ins = StandIns { known: [const { None }; KEPT], next: 0, fd };
        let (mut load, room) = (Load::behind(queued, fd), self.inbound.room.load(Relaxed));
        // What stays in the ring is read before what the kernel has: all of it goes, as far as the kernel would have had it, or nothing.
        let goes = |place: &Place| {
            self.parties(reader.ring(), place, &entrance.local).is_some_and(|(source, to)| {
                // What there was room for when it came, and now is not, waits for its reader.
                let own = queue::true_size(place.len(), to.is_v4());
                let Some(more) = load.and(own) else { return queued == 0 && load.sum + own > room };
                load = more;
                entrance.lets_in(&source, &to) && stand_ins.of(&source, self).is_some()
            })
        };
        if !is_last && !queue::all(map, goes) {
            return true;
        }
        let (mut load, mut taken, most) = (Load::behind(queued, fd), 0, queue::most_left(room));
        for _ in 0..map.ring().size() / ALIGN {
            let Ok(Some(peeked)) = reader.peek() else { break };
            let Some((source, to)) = self.parties(reader.ring(), &peeked.place, &entrance.local) else {
                break;
            };
            let more = load.and(queue::true_size(peeked.place.len(), to.is_v4()));
            let goes = more.is_some() && entrance.lets_in(&source, &to);
            let stand_in = if goes { stand_ins.of(&source, self) } else { None };
            if stand_in.is_none() && !is_last && (more.is_some() || queued > 0) {
                break;
            }
            if !reader.release(&peeked) {
                continue;
            }
            load = more.unwrap_or(load);
            taken += queue::true_size(peeked.place.len(), true);
            fault::point("taken-out");
            if !stand_in.is_some_and(|one| send_again(reader, &peeked, one, (&source, &to))) {
                Writer::new(map.mailbox(), map.ring(), 1).lose();
            }
            fault::point("sent-again");
            if taken > most {
                return false;
            }
        }
        true
    }

    /// Who has sent a datagram, and to which of the names of this socket, which now is `local`.
    fn parties(&self, ring: &Ring, place: &Place, local: &Name) -> Option<(Name, Name)> {
        let mut head = [0; HEAD_LONG];
        let own = &self.inbound.own;
        let ip = match place.copy_head(ring, &mut head) {
            HEAD_LONG => Told::decode(&head).to,
            HEAD => [own[0].load(Relaxed), own[1].load(Relaxed)],
            _ => return None,
        };
        Some((from_head(&head).0, Name { ip, port: local.port }))
    }

    /// Whether what `source` sends can be recalled. `lent`: by it.
    pub(super) fn can_recall(&self, source: &Name, lent: Option<&StandIn>) -> bool {
        lent.is_some() || StandIn::new(source, self.fd.load(Relaxed)).is_some()
    }
}

/// Of the datagram, which nobody reads or writes any more.
fn send_again(
    reader: &Reader<'static, Ring>,
    peeked: &Peeked,
    by: &StandIn,
    (from, to): (&Name, &Name),
) -> bool {
    let place = peeked.place;
    let mut raw = [0; LONGEST];
    let len = to.emit(by.family(), &mut raw);
    reader.ring().with_pieces(place.at(), place.len(), |octets| {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        sock::send_from(by.fd(), by.family(), octets, &raw[..len], from.octets(), flags) == Ok(place.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::receive::head_of;
    use bypath_shm::mailbox::Pushed;
    use std::net::{SocketAddr, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicU64;

    fn name(address: SocketAddr) -> Name {
        let SocketAddr::V4(v4) = address else { unreachable!("all are of IPv4") };
        Name::new(v4.ip().to_ipv6_mapped().octets(), v4.port())
    }

    fn at(ip: &str) -> (UdpSocket, Name) {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let own = name(socket.local_addr().unwrap());
        (socket, own)
    }

    /// A record of that socket, in whose mailbox these sources have said something.
    fn said_to(receiver: &UdpSocket, said: &[(Name, &str)]) -> &'static Record {
        let memory = MailboxMap::memory(1 << 16, 3).unwrap();
        let map: &'static MailboxMap = Box::leak(Box::new(MailboxMap::map(memory).unwrap()));
        fd::close(memory);
        let reader = Reader::new(map.mailbox(), map.ring());
        let epoch = reader.open_begin().unwrap();
        assert!(reader.open_finish(epoch));
        for (source, octets) in said {
            let writer = Writer::new(map.mailbox(), map.ring(), 1);
            let pushed = writer.push(&AtomicU64::new(0), &head_of(source), octets.as_bytes(), 1 << 16);
            assert_eq!(pushed, Pushed::Sent);
        }
        let r = Box::leak(Box::<Record>::default());
        r.fd.store(receiver.as_raw_fd(), Relaxed);
        let own = name(receiver.local_addr().unwrap());
        r.inbound.own.iter().zip(own.ip).for_each(|(to, word)| to.store(word, Relaxed));
        r.inbound.room.store(8192, Relaxed);
        r.inbound.mailbox.set(Some(map));
        r
    }

    /// What the kernel has, and how much the ring.
    fn found(receiver: &UdpSocket, r: &Record) -> (Vec<String>, u64) {
        let mut room = [0; 9];
        let all = std::iter::from_fn(|| receiver.recv(&mut room).ok().map(|n| room[..n].to_vec()));
        let texts = all.map(|octets| String::from_utf8(octets).unwrap()).collect();
        (texts, r.inbound.mailbox.get().unwrap().mailbox().unread())
    }

    #[test]
    fn where_one_sender_cannot_be_stood_in_for_all_stays_in_its_order() {
        let ((receiver, _), (_near, near), (_everywhere, everywhere)) =
            (at("127.0.0.1"), at("127.0.0.1"), at("0.0.0.0"));
        let everywhere = Name { ip: near.ip, ..everywhere };
        let r = said_to(&receiver, &[(near, "one"), (everywhere, "two"), (near, "three")]);
        let unread = r.inbound.mailbox.get().unwrap().mailbox().unread();
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (vec![], unread));
        // Nobody will look there any more: what can be saved is.
        r.recall(Readers::None);
        assert_eq!(found(&receiver, r), (vec!["one".into(), "three".into()], 0));
        assert_eq!(r.inbound.mailbox.get().unwrap().mailbox().lost(), 1);
    }

    #[test]
    fn what_the_kernel_would_not_hold_is_lost_and_nobody_is_asked_for_it() {
        let ((receiver, _), (_near, near), (_everywhere, everywhere)) =
            (at("127.0.0.1"), at("127.0.0.1"), at("0.0.0.0"));
        // As little as there is: room for two small ones.
        let none = 0i32.to_ne_bytes();
        sock::set_option(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &none).unwrap();
        assert_eq!(sock::option(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF), Ok(2304));
        let everywhere = Name { ip: near.ip, ..everywhere };
        let r = said_to(&receiver, &[(near, "one"), (near, "two"), (everywhere, "three"), (near, "four")]);
        r.inbound.room.store(2304, Relaxed);
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (vec!["one".into(), "two".into()], 0));
        assert_eq!(r.inbound.mailbox.get().unwrap().mailbox().lost(), 2);
    }

    #[test]
    fn who_cannot_read_the_ring_finds_what_waits_behind_what_the_kernel_has() {
        let ((receiver, own), (_sender, sender), (other, _)) =
            (at("127.0.0.1"), at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, "two"), (sender, "three")]);
        let unread = r.inbound.mailbox.get().unwrap().mailbox().unread();
        other.send_to(b"one", (own.address(), own.port)).unwrap();
        r.recall(Readers::All);
        assert_eq!(r.inbound.mailbox.get().unwrap().mailbox().unread(), unread);
        r.recall(Readers::Some);
        assert_eq!(found(&receiver, r), (["one", "two", "three"].map(String::from).into(), 0));
    }

    #[test]
    fn what_finds_no_room_behind_what_the_kernel_has_stays_and_is_not_lost() {
        let ((receiver, own), (_sender, sender), (other, _)) =
            (at("127.0.0.1"), at("127.0.0.1"), at("127.0.0.1"));
        let none = 0i32.to_ne_bytes();
        sock::set_option(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &none).unwrap();
        let r = said_to(&receiver, &[(sender, "two"), (sender, "three")]);
        r.inbound.room.store(2304, Relaxed);
        other.send_to(b"one", (own.address(), own.port)).unwrap();
        let unread = r.inbound.mailbox.get().unwrap().mailbox().unread();
        r.recall(Readers::Some);
        assert_eq!(
            found(&receiver, r),
            (vec!["one".into()], unread),
            "what is left is not read before what goes"
        );
        r.recall(Readers::Some);
        assert_eq!(found(&receiver, r), (["two", "three"].map(String::from).into(), 0));
    }

    #[test]
    fn what_there_was_room_for_when_it_came_waits_for_its_reader() {
        let ((receiver, _), (_sender, sender)) = (at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, "one"), (sender, "two"), (sender, "three")]);
        let unread = r.inbound.mailbox.get().unwrap().mailbox().unread();
        let room = |octets: i32| {
            let octets = octets.to_ne_bytes();
            sock::set_option(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &octets).unwrap();
        };
        room(0);
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (vec![], unread));
        room(8192);
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (["one", "two", "three"].map(String::from).into(), 0));
    }

    #[test]
    fn one_that_is_longer_than_the_queue_is_no_lie() {
        let ((receiver, _), (_sender, sender)) = (at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, &"l".repeat(40_000))]);
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (vec!["l".repeat(9)], 0));
        assert_eq!((r.stays(), r.has_mailbox()), (None, true));
    }

    #[test]
    fn who_leaves_more_than_there_can_be_ends_the_mailbox() {
        let ((receiver, _), (_sender, sender)) = (at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, ""); 8192 / 32]);
        r.recall(Readers::All);
        let found = std::iter::from_fn(|| receiver.recv(&mut [0]).ok()).count();
        assert_eq!(found as u64, queue::most_left(8192) / 832 + 1, "it stops behind these");
        assert_eq!((r.stays(), r.has_mailbox()), (Some(Reason::PeerMemoryInvalid), false));
    }

    #[test]
    fn who_takes_an_address_where_it_could_be_stood_in_has_nothing_lost() {
        let ((receiver, _), (_sender, sender)) = (at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, "one")]);
        let stranger = |last: u8| UdpSocket::bind(SocketAddr::from(([127, 66, 8, last], sender.port))).ok();
        let _strangers: Vec<UdpSocket> = (0..100).filter_map(stranger).collect();
        r.recall(Readers::None);
        assert_eq!(found(&receiver, r), (vec!["one".into()], 0));
    }

    #[test]
    fn what_the_kernel_would_not_let_in_any_more_stays() {
        let ((receiver, _), (_sender, sender), (_partner, partner)) =
            (at("127.0.0.1"), at("127.0.0.1"), at("127.0.0.1"));
        let r = said_to(&receiver, &[(sender, "one")]);
        receiver.connect((partner.address(), partner.port)).unwrap();
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r).0, Vec::<String>::new());
        assert_ne!(found(&receiver, r).1, 0);
        receiver.connect((sender.address(), sender.port)).unwrap();
        r.recall(Readers::All);
        assert_eq!(found(&receiver, r), (vec!["one".into()], 0));
    }

    #[test]
    fn who_recalls_again_and_again_is_not_waited_for_each_time() {
        let memory = MailboxMap::memory(8192, 3).unwrap();
        let map = MailboxMap::map(memory).unwrap();
        fd::close(memory);
        assert!(!wait_for(&map));
        map.mailbox().recall();
        let began = std::time::Instant::now();
        // 12 s if each were waited for.
        assert!((0..600).all(|_| wait_for(&map)));
        assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    }

    #[test]
    fn a_writer_cannot_have_it_sent_to_others() {
        let ((receiver, own), (_sender, sender)) = (at("0.0.0.0"), at("127.0.0.1"));
        let r = Box::<Record>::default();
        let mut entrance = Entrance::of(&r, receiver.as_raw_fd()).unwrap();
        let to = |ip: &str| Name { port: own.port, ..name(format!("{ip}:1").parse().unwrap()) };
        assert!(entrance.lets_in(&sender, &to("127.0.0.1")) && entrance.lets_in(&sender, &to("127.3.2.1")));
        for ip in ["192.0.2.1", "224.0.0.1", "255.255.255.255"] {
            assert!(!entrance.lets_in(&sender, &to(ip)), "{ip}");
        }
    }

    #[test]
    fn what_is_of_the_other_family_is_anothers() {
        let entrance = |family: i32, is_v6_alone: i32| {
            let own = sock::datagrams(family, 0, 0).unwrap();
            if family == libc::AF_INET6 {
                let value = is_v6_alone.to_ne_bytes();
                sock::set_option(own, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &value).unwrap();
            }
            let every = sock::Address { family: family as u16, port: 0, bytes: [0; 16], scope: 0 };
            sock::bind(own, &every).unwrap();
            let of = Entrance::of(&Record::default(), own).unwrap();
            fd::close(own);
            of
        };
        let v4 = Name::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1], 7);
        let v6 = Name::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 7);
        for (family, is_v6_alone, lets_in) in [
            (libc::AF_INET, 0, [true, false]),
            (libc::AF_INET6, 1, [false, true]),
            (libc::AF_INET6, 0, [true, true]),
        ] {
            let mut entrance = entrance(family, is_v6_alone);
            let found = [v4, v6].map(|one| entrance.lets_in(&one, &one));
            assert_eq!(found, lets_in, "family {family}, of IPv6 alone {is_v6_alone}");
        }
    }

    #[test]
    fn at_a_shared_port_only_what_would_be_its_own_goes() {
        let receiver = sock::datagrams(libc::AF_INET, 0, 0).unwrap();
        let other = sock::datagrams(libc::AF_INET, 0, 0).unwrap();
        let share =
            |own| sock::set_option(own, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes()).unwrap();
        let (_sender, sender) = at("127.0.0.1");
        share(receiver);
        share(other);
        let r = Box::<Record>::default();
        r.shares.store(true, Relaxed);
        sock::bind(receiver, &Name { port: 0, ..sender }.to_address()).unwrap();
        let own = Name::of(&sock::local_address(receiver).unwrap());
        assert!(Entrance::of(&r, receiver).unwrap().lets_in(&sender, &own));
        sock::bind(other, &own.to_address()).unwrap();
        assert!(
            !Entrance::of(&r, receiver).unwrap().lets_in(&sender, &own),
            "the kernel's choice is the last one"
        );
        fd::close(receiver);
        fd::close(other);
    }
}
