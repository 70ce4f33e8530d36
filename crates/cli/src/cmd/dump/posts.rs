//! Mailboxes that are followed: found, wanted, looked at, and lost again.

use super::Out;
use super::effort::Effort;
use super::mail::{self, Mail, Post};
use super::memory::{self, Letterbox};
use super::newest::Newest;
use super::tap::Over;
use super::taps::{LONGEST, OF_USER, Wanted, forbidden, turn};
use crate::connections::descriptors::Process;
use crate::connections::{Scan, Udp, is_trusted, started};
use crate::filter::{Facts, Protocol};
use crate::output::Failure;
use bypath_shm::reason::Reason;
use bypath_shm::view::Path;
use bypath_sockets::seen;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Who has a socket.
#[derive(Clone, Debug)]
struct Holder {
    pid: u32,
    user: u32,
    command: String,
}

impl Holder {
    fn of(u: &Udp<'_>) -> Holder {
        Holder { pid: u.process.pid, user: u.process.user, command: u.process.command.clone() }
    }
}

/// A mailbox that is followed.
#[derive(Debug)]
struct Followed {
    mail: Mail,
    owner: Holder,
    /// When the process started in whose memory it is.
    started: u64,
    /// The socket's address.
    local: SocketAddr,
    /// Octets missed, before the datagram that is told next.
    gap: u64,
    /// Its owner has given it up: it is read to its end.
    is_last: bool,
}

/// Octets of the mailbox of another user that are read in one go: a mailbox may hold some 100 000 datagrams.
const PIECE: usize = 1 << 17;
const _: () = assert!(PIECE > mail::MOST);

/// A user's socket at an address.
type Sender = (u32, IpAddr, u16);

/// What is followed.
#[derive(Debug, Default)]
pub struct Posts {
    open: Vec<Followed>,
    /// How far mailboxes were known that are not followed any more, by the number of their file.
    known: Newest<u64, u64>,
    /// Who sends from where, of each user: nobody else is let into a mailbox.
    senders: HashMap<Sender, Holder>,
    effort: Effort,
    /// Which one is read first.
    next: usize,
    /// Users for whom there was too little time.
    pub late: BTreeSet<u32>,
}

impl Posts {
    /// Looks for mailboxes that are not followed yet. `begun`: those that are found now have been made since the look before.
    ///
    /// # Errors
    /// A process that is asked for may not be read.
    pub fn discover(&mut self, scan: &Scan, wanted: &Wanted, begun: bool) -> Result<(), Failure> {
        let all: Vec<_> = scan.datagrams().into_iter().filter(|u| u.socket.service.is_none()).collect();
        let name = |user: u32, local: SocketAddr| (user, local.ip().to_canonical(), local.port());
        let sender = |u: &Udp| Some((name(u.process.user, u.socket.local?), Holder::of(u)));
        self.effort = Effort::default();
        self.senders = all.iter().filter_map(sender).collect();
        // Another process may have the number by now.
        for at in (0..self.open.len()).rev() {
            if !self.open[at].is_last
                && started(self.open[at].mail.process.pid).is_some_and(|then| then != self.open[at].started)
            {
                self.lose(at);
            }
        }
        let mut boxes: HashMap<u32, Vec<Letterbox>> = HashMap::new();
        for u in &all {
            let (Some(cookie), Some(local)) = (u.socket.cookie, u.socket.local) else { continue };
            let Process { pid, user } = u.process.process();
            if self.effort.is_over(user) || !is_trusted(user) && self.open.len() >= OF_USER {
                self.late.insert(user);
                break;
            }
            let is_followed = |f: &Followed| f.mail.cookie == cookie && f.owner.user == user;
            if u.socket.incoming.path != Path::Ring || self.open.iter().any(is_followed) {
                continue;
            }
            // A process that has gone, or goes, has none.
            let effort = &mut self.effort;
            let left = effort.left(user);
            let its =
                || effort.on(user, || memory::letterboxes(u.process.process(), left).unwrap_or_default());
            let its = boxes.entry(pid).or_insert_with(its);
            if effort.is_over(user) {
                self.late.insert(user);
            }
            for place in its.iter() {
                if effort.is_over(user) {
                    break;
                }
                match effort.on(user, || place.letters(u.process.process())) {
                    Ok(words) if words.cookie == cookie => {
                        let from = self.known.of(&place.file).copied().or(begun.then_some(0));
                        let mail = Mail::new(u.process.process(), *place, cookie, from);
                        if started(pid) != Some(u.process.start_time) {
                            break;
                        }
                        self.open.push(Followed {
                            mail,
                            owner: Holder::of(u),
                            started: u.process.start_time,
                            local,
                            gap: 0,
                            is_last: false,
                        });
                        break;
                    }
                    Err(nix::Error::EPERM) if wanted.may_be(pid, &u.process.command, local) => {
                        return Err(forbidden(pid));
                    }
                    _ => {}
                }
            }
        }
        // Of mailboxes that are no more nothing need be known.
        let open: Vec<_> = all.iter().filter_map(|u| u.socket.cookie).collect();
        if self.open.iter().all(|f| !open.contains(&f.mail.cookie)) {
            self.known.retain(|_| false);
        }
        Ok(())
    }

    /// Looks into every mailbox once, or into as many as there is time for; whether there was anything, or is something left.
    ///
    /// # Errors
    /// What was found cannot be written, or a process may not be read.
    pub fn look(&mut self, wanted: &Wanted, out: &mut Out, room: &mut Vec<u8>) -> Result<bool, Failure> {
        let (mut any, begun) = (false, Instant::now());
        let mut gone = Vec::new();
        for at in turn(self.next, self.open.len()) {
            self.next = at;
            if begun.elapsed() > LONGEST {
                any = true;
                break;
            }
            let followed = &mut self.open[at];
            if look(followed, &self.senders, &mut self.effort, wanted, out, room, &mut any)? {
                gone.push(at);
            }
        }
        gone.sort_unstable();
        for at in gone.into_iter().rev() {
            self.lose(at);
        }
        Ok(any)
    }

    /// Follows one no longer.
    fn lose(&mut self, at: usize) {
        let gone = self.open.swap_remove(at);
        if let Some(seen) = gone.mail.seen() {
            self.known.insert(gone.mail.place.file, seen);
        }
    }
}

/// Looks into one mailbox; whether that is over.
fn look(
    followed: &mut Followed,
    senders: &HashMap<Sender, Holder>,
    effort: &mut Effort,
    wanted: &Wanted,
    out: &mut Out,
    room: &mut Vec<u8>,
    any: &mut bool,
) -> Result<bool, Failure> {
    let most = if is_trusted(followed.owner.user) { usize::MAX } else { PIECE };
    let post = match followed.mail.read(room, most) {
        Ok(post) => post,
        Err(Over::Forbidden) => return Err(forbidden(followed.mail.process.pid)),
        Err(_) if followed.is_last => return Ok(true),
        // What came last is still there in the memory of those who wrote it.
        Err(_) => {
            followed.is_last = true;
            last_of(followed, senders.values(), effort, room, most)
        }
    };
    *any |= followed.mail.is_busy();
    let has_more = post.as_ref().is_some_and(|post| post.has_more);
    if let Some(post) = post {
        *any = true;
        tell(followed, senders, &post, room, wanted, out)?;
    }
    Ok(followed.is_last && !has_more)
}

/// What a mailbox had that its owner has given up, as somebody else maps it.
fn last_of<'a>(
    followed: &mut Followed,
    others: impl Iterator<Item = &'a Holder>,
    effort: &mut Effort,
    room: &mut Vec<u8>,
    most: usize,
) -> Option<Post> {
    let Mail { place, cookie, .. } = followed.mail;
    let user = followed.owner.user;
    // Nobody else is let in.
    let mut pids: Vec<u32> = others.filter(|holder| holder.user == user).map(|holder| holder.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let found = pids.into_iter().find_map(|pid| {
        if effort.is_over(user) {
            return None;
        }
        let (left, process) = (effort.left(user), Process { pid, user });
        let all = effort.on(user, || memory::letterboxes(process, left)).ok()?;
        Some((process, all.into_iter().find(|other| other.file == place.file)?))
    });
    let (process, there) = found?;
    let mut mail = Mail::new(process, there, cookie, followed.mail.seen());
    let post = mail.read(room, most).ok().flatten();
    followed.mail = mail;
    post
}

/// Writes what is asked for.
fn tell(
    followed: &mut Followed,
    senders: &HashMap<Sender, Holder>,
    post: &Post,
    room: &[u8],
    wanted: &Wanted,
    out: &mut Out,
) -> Result<(), Failure> {
    followed.gap = followed.gap.saturating_add(post.missed);
    for (head, octets) in &post.letters {
        let Some(seen) = seen::head(&room[head.clone()]) else { continue };
        let (source, port) = (seen.source, followed.local.port());
        let everywhere = || SocketAddr::new(source.ip(), port);
        let to = match followed.local.ip().is_unspecified() {
            true => seen.to.map_or_else(everywhere, |ip| SocketAddr::new(ip, port)),
            false => followed.local,
        };
        let unspecified =
            |ip: IpAddr| if ip.is_ipv4() { IpAddr::from([0u8; 4]) } else { IpAddr::from([0u16; 8]) };
        let names = [source.ip(), unspecified(source.ip()), IpAddr::from([0u16; 8])];
        let sender = names.iter().find_map(|ip| senders.get(&(followed.owner.user, *ip, source.port())));
        let holders: Vec<_> = [Some(&followed.owner), sender]
            .into_iter()
            .flatten()
            .map(|h| (h.pid, h.command.as_str()))
            .collect();
        let facts = Facts {
            protocol: Protocol::Udp,
            source: Some(source),
            destination: Some(to),
            processes: &holders,
            path: Path::Ring.code(),
            reason: Reason::Ring.code(),
        };
        if wanted.wants(&facts) {
            let missed = std::mem::take(&mut followed.gap);
            out.datagram([source, to], seen.sent, missed, &room[octets.clone()])?;
        }
    }
    Ok(())
}
