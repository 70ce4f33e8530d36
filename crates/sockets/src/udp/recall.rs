//! The recall of a mailbox: before others come to have its socket, what nobody has read is sent again to the kernel's queue, where every
//! holder finds it. Its reader does that alone, in the names of those who have sent it (`stand_in`), whether they run, are stopped, or dead.

use super::receive::{HEAD, HEAD_LONG, from_head};
use super::stand_in::StandIn;
use super::told::Told;
use super::{LONGEST, Name, Record};
use crate::config::LogLevel;
use crate::thread::Call;
use crate::{fault, log, state};
use bypath_shm::dgram::ALIGN;
use bypath_shm::mailbox::{Peeked, Reader, Writer};
use bypath_shm::region::MailboxMap;
use bypath_shm::ring::Ring;
use bypath_sys::{clock, poll, sock, thread};
use std::sync::atomic::Ordering::*;

/// So long (milliseconds) a reader waits for a writer that is in its turn, and a writer for a reader that sends again.
const WAIT_MS: u64 = 20;
/// Stand-ins that are kept while a mailbox is recalled.
const KEPT: usize = 8;

/// Whether it is time still to wait.
fn waits() -> impl FnMut() -> bool {
    let until = clock::monotonic_ns() + WAIT_MS * 1_000_000;
    move || {
        // Whoever is waited for may need this processor.
        thread::yield_now();
        clock::monotonic_ns() < until
    }
}

/// Before a writer sends by the kernel what it could not send by this mailbox: if that is recalled, what it sent before comes first.
#[inline]
pub(super) fn wait_for(map: &MailboxMap) {
    if map.mailbox().is_recalled() {
        let mut waits = waits();
        while waits() && map.mailbox().is_recalled() {}
    }
}

/// Who stands in for whom.
struct StandIns {
    known: [Option<(Name, StandIn)>; KEPT],
    next: usize,
}

impl StandIns {
    fn of(&mut self, source: &Name, r: &Record) -> Option<&StandIn> {
        if let Some(at) = self.known.iter().position(|one| one.as_ref().is_some_and(|one| one.0 == *source)) {
            return self.known[at].as_ref().map(|one| &one.1);
        }
        let own = StandIn::new(source).or_else(|| r.inbound.lent_by(source))?;
        let place = &mut self.known[self.next % KEPT];
        self.next += 1;
        if let Some((_, before)) = place.replace((*source, own)) {
            r.inbound.give_back_lent(before);
        }
        place.as_ref().map(|one| &one.1)
    }
}

impl Record {
    /// What is in the mailbox, which ends, goes to the kernel's queue, as far as it can. `is_last`: nobody will look into the ring any more, as this process
    /// is about to become another program.
    #[cold]
    pub(super) fn recall(&self, is_last: bool) {
        let Some(map) = self.inbound.mailbox.get() else { return };
        let _call = Call::enter();
        map.mailbox().recall();
        // Whoever writes from now on sees that, and takes it back.
        if map.mailbox().unread() == 0 {
            return;
        }
        let reader = Reader::new(map.mailbox(), map.ring());
        let fd = self.fd.load(Relaxed);
        reader.keep_writers_out(thread::tid(), waits());
        fault::between("recalled");
        // What the kernel has may have been sent after what is in the ring: whoever reads that first has them in order.
        let is_ahead = is_last || poll::now(fd, libc::POLLIN) == 0;
        if is_ahead {
            self.send_all_again(fd, &reader, map);
        }
        let left = map.mailbox().unread();
        if left > 0 && !state::is_memory_of_another() {
            log::line(LogLevel::Debug, format_args!("fd {fd}: {left} octets stay with this process"));
        }
    }

    fn send_all_again(&self, fd: i32, reader: &Reader<'static, Ring>, map: &MailboxMap) {
        let Ok(local) = sock::local_address(fd) else { return };
        let mut stand_ins = StandIns { known: [const { None }; KEPT], next: 0 };
        for _ in 0..map.ring().size() / ALIGN {
            let Ok(Some(peeked)) = reader.peek() else { break };
            let mut head = [0; HEAD_LONG];
            let len = peeked.place.copy_head(reader.ring(), &mut head);
            if len != HEAD && len != HEAD_LONG {
                break;
            }
            let source = from_head(&head).0;
            let own = &self.inbound.own;
            let ip = match len {
                HEAD_LONG => Told::decode(&head).to,
                _ => [own[0].load(Relaxed), own[1].load(Relaxed)],
            };
            let Some(stand_in) = stand_ins.of(&source, self) else { break };
            if reader.release(&peeked)
                && !send_again(reader, &peeked, stand_in, (&source, &Name { ip, port: local.port }))
            {
                Writer::new(map.mailbox(), map.ring(), 1).lose();
            }
        }
    }

    /// Whether what `source` sends can be recalled. `lent`: by it.
    pub(super) fn can_recall(&self, source: &Name, lent: Option<&StandIn>) -> bool {
        lent.is_some() || StandIn::new(source).is_some()
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
