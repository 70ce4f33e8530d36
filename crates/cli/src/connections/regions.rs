//! The regions that processes have open, and how much of them is looked at.
//!
//! A process of any user says itself how many regions there are, and how much stands in them. Who looks has the memory and the time
//! for the honest ones in any case: those of root and of the own user are looked at first, and small regions before large ones. What they show has bounds for
//! each process and each region, far above what an honest one has, and what others show for each process and each user.

use super::descriptors::{self, Process, Seen, Unseen};
use crate::aside::{self, Pulse};
use bypath_shm::family::VIEW_NAME;
use bypath_sys::process::shown_thread;
use bypath_sys::{open_files, process};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

/// Regions of one process of another user that are looked at: an image of a program has one, and that of the image before for a moment.
const OF_PROCESS: usize = 4;
/// Of one of root's or of the own user: `bypath dump` and `top` have theirs open.
const OF_TRUSTED_PROCESS: usize = 1024;
/// Regions of one other user.
const OF_USER: usize = 1024;
/// Sockets of one other user, each as often as it is held.
const SOCKETS_OF_USER: usize = 1 << 17;
/// How many times as much all of them together are given; and again root and the own user, each region of theirs once.
const USERS: usize = 4;
/// Notes of one look.
const NOTES: usize = 20;

/// A region that processes have open. Nobody keeps it open here: there may be more of them than descriptors.
#[derive(Debug)]
pub struct Region {
    /// Which one it is.
    pub id: Id,
    /// Descriptors of processes that refer to it.
    pub places: Vec<(Process, i32)>,
    /// Whose it is: of several users the one who is trusted least.
    pub user: u32,
    /// Who made it.
    maker: u32,
    /// Whether several users have it who are not trusted.
    pub mixed: bool,
    /// For those who look again and again: open once for all of them, as long as there are any.
    kept: RefCell<Weak<File>>,
}

/// Who is looked at, and whether by what somebody who is trusted has made.
pub type Payer = (u32, bool);

/// Which file one is.
pub type Id = (u64, u64);

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Those of root and of the own user first.
    pub regions: Vec<Region>,
    /// Processes that may not be looked into.
    pub unreadable: usize,
    /// What was left out.
    pub notes: Notes,
}

/// What there is to be said; the first ones of many.
#[derive(Debug, Default)]
pub struct Notes {
    first: Vec<String>,
    more: usize,
}

impl Notes {
    /// One more.
    pub fn add(&mut self, note: String) {
        if self.first.len() < NOTES { self.first.push(note) } else { self.more += 1 }
    }

    /// All of them, in order.
    pub fn all(mut self) -> Vec<String> {
        self.first.sort();
        if self.more > 0 {
            self.first.push(format!("and {} more", self.more));
        }
        self.first
    }
}

/// Whether what this user shows is looked at whole.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == process::euid()
}

/// Looks at the descriptors of every process.
///
/// # Errors
/// /proc cannot be listed.
pub fn find() -> io::Result<Found> {
    let mut views = Views::default();
    let unseen = descriptors::all(view, |process, number, view| views.see(process, number, view))?;
    Ok(views.found(unseen))
}

/// Memory that is called a view: which file it is, and who made it.
struct View {
    id: Id,
    maker: u32,
    /// The descriptor opens it for its maker alone (O_PATH): what an exec hands on.
    is_handle: bool,
}

fn view(pid: u32, number: i32, text: &[u8]) -> Seen<View> {
    let name = text.strip_prefix(b"/memfd:").and_then(|text| text.strip_suffix(b" (deleted)"));
    if name != Some(VIEW_NAME.to_bytes()) {
        return Seen::Nothing;
    }
    // Anything may be called so: it is not even asked what it is, unless it is memory.
    let Ok(file) = open_files::memory(pid, number, false) else { return Seen::Costly };
    match File::from(file).metadata() {
        // Of memory the owner is who made it.
        Ok(metadata) => {
            let is_handle = is_handle(pid, number);
            Seen::Dear(View { id: (metadata.dev(), metadata.ino()), maker: metadata.uid(), is_handle })
        }
        Err(_) => Seen::Costly,
    }
}

/// Whether a descriptor opens nothing by itself: the mode of its link says whether it reads and writes (proc_pid_fd(5)). `fdinfo` says it as well, among
/// all locks of the file, which the kernel writes down whole, however little is read.
fn is_handle(pid: u32, number: i32) -> bool {
    let link = fs::symlink_metadata(format!("/proc/{}/fd/{number}", shown_thread(pid)));
    link.is_ok_and(|link| link.mode() & 0o700 == 0)
}

/// What was found so far.
#[derive(Default)]
struct Views {
    regions: Vec<Region>,
    /// A region is one file; forked processes have it open several times.
    at: HashMap<Id, usize>,
    of_process: HashMap<u32, Vec<Id>>,
    of_user: HashMap<u32, usize>,
    /// Processes that have more.
    rich: Vec<(u32, usize)>,
}

impl Views {
    /// False: this process has had its share.
    fn see(&mut self, process: Process, number: i32, View { id, maker, is_handle }: View) -> bool {
        let Process { pid, user } = process;
        // Programs take descriptors from others, or look at theirs. Whom a handle opens nothing for has nothing of it.
        if maker != user && (is_handle || !is_trusted(maker)) {
            return true;
        }
        let its = self.of_process.entry(pid).or_default();
        if its.contains(&id) {
            return true;
        }
        if its.len() == if is_trusted(user) { OF_TRUSTED_PROCESS } else { OF_PROCESS } {
            self.rich.push((pid, its.len()));
            return false;
        }
        its.push(id);
        self.add(id, maker, (process, number));
        true
    }

    fn add(&mut self, id: Id, maker: u32, place: (Process, i32)) {
        let user = place.0.user;
        let known = self.at.get(&id).copied();
        let count = self.of_user.entry(user).or_default();
        if known.is_none() && !is_trusted(user) && !is_trusted(maker) {
            *count += 1;
            if *count > OF_USER {
                return;
            }
        }
        let index = known.unwrap_or_else(|| {
            let (places, kept) = (Vec::new(), RefCell::default());
            self.regions.push(Region { id, places, user, maker, mixed: false, kept });
            self.regions.len() - 1
        });
        self.at.insert(id, index);
        let region = &mut self.regions[index];
        region.places.push(place);
        if is_trusted(region.user) {
            region.user = user;
        } else if !is_trusted(user) {
            region.mixed |= region.user != user;
        }
    }

    fn found(self, unseen: Unseen) -> Found {
        let Unseen { unreadable, mut notes } = unseen;
        for (pid, count) in self.rich {
            notes.add(format!("process {pid} has more than {count} views: the others are left out"));
        }
        for (user, count) in self.of_user.into_iter().filter(|(_, count)| *count > OF_USER) {
            notes.add(format!("user {user} has {count} views: {OF_USER} are looked at"));
        }
        let mut regions = self.regions;
        regions.sort_by_key(Region::rank);
        Found { regions, unreadable, notes }
    }
}

fn id_of(file: &File) -> io::Result<Id> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Region {
    /// What is read first: what root's and the own user's programs show alone, then what they show with others, as a server with its workers; nobody else
    /// can make such a one.
    pub fn rank(&self) -> u8 {
        if is_trusted(self.user) { 0 } else { 1 + u8::from(!is_trusted(self.maker)) }
    }

    /// Whose share of what is looked at it takes, and whether that of what others have made: what its user shows alone takes nothing from that.
    pub fn payer(&self) -> Payer {
        (self.user, self.rank() == 1)
    }

    /// Opens it by any process that has it still.
    pub fn open(&self, writable: bool) -> io::Result<File> {
        let mut why = io::Error::from(rustix::io::Errno::SRCH);
        for &(process, number) in &self.places {
            let open = move |_: &Pulse| open_files::memory(process.pid, number, writable).map(File::from);
            match aside::of(process, open) {
                Some(Ok(file)) if id_of(&file)? == self.id => return Ok(file),
                Some(Ok(_)) => {}
                Some(Err(e)) => why = e.into(),
                None => why = rustix::io::Errno::TIMEDOUT.into(),
            }
        }
        Err(why)
    }

    /// Open as long as anybody keeps it.
    pub fn kept(&self) -> io::Result<Arc<File>> {
        if let Some(file) = self.kept.borrow().upgrade() {
            return Ok(file);
        }
        let file = Arc::new(self.open(false)?);
        *self.kept.borrow_mut() = Arc::downgrade(&file);
        Ok(file)
    }
}

/// Of /proc/PID/status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Process id in the process's own pid namespace, which is the one that its view holds.
    pub inner_pid: u32,
    /// Its effective user.
    pub user: u32,
    real: u32,
}

impl Status {
    /// Of a process that lives.
    pub fn of(pid: u32) -> Option<Status> {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let words = |name| text.lines().find_map(|l| l.strip_prefix(name)).map(str::split_whitespace);
        let inner_pid = words("NSpid:")?.next_back()?.parse().ok()?;
        let mut users = words("Uid:")?.map(str::parse);
        let (real, user) = (users.next()?.ok()?, users.next()?.ok()?);
        Some(Status { inner_pid, user, real })
    }

    /// Of its real and its effective user; of two who are not trusted the real one, who has run the other one's program.
    pub fn least_trusted(self) -> u32 {
        if is_trusted(self.real) { self.user } else { self.real }
    }
}

/// How much is still looked at.
#[derive(Debug)]
pub struct Budget {
    of_user: HashMap<Payer, usize>,
    of_all: usize,
    of_trusted: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        let all = USERS * SOCKETS_OF_USER;
        Budget { of_user: HashMap::new(), of_all: all, of_trusted: all }
    }
}

impl Budget {
    /// How many sockets of a region of this user are looked at still.
    pub fn left(&self, payer: Payer) -> usize {
        if is_trusted(payer.0) {
            return self.of_trusted.min(SOCKETS_OF_USER);
        }
        self.of_user.get(&payer).copied().unwrap_or(SOCKETS_OF_USER).min(self.of_all)
    }

    /// So many of them were.
    pub fn take(&mut self, payer: Payer, count: usize) {
        if is_trusted(payer.0) {
            self.of_trusted = self.of_trusted.saturating_sub(count);
            return;
        }
        let left = self.left(payer);
        self.of_user.insert(payer, left.saturating_sub(count));
        self.of_all = self.of_all.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_known() {
        let status = Status::of(std::process::id()).expect("it lives");
        let user = process::euid();
        assert_eq!(status, Status { inner_pid: std::process::id(), user, real: user });
        assert_eq!(Status::of(u32::MAX), None);
    }

    const STRANGER: u32 = 12345;

    fn found(seen: impl IntoIterator<Item = (Process, View)>) -> Vec<Region> {
        let mut views = Views::default();
        for (number, (process, view)) in seen.into_iter().enumerate() {
            views.see(process, number as i32, view);
        }
        views.found(Unseen::default()).regions
    }

    fn view(inode: u64, maker: u32) -> View {
        View { id: (1, inode), maker, is_handle: false }
    }

    /// As what an exec has handed on to a program that has become another user.
    #[test]
    fn whom_a_handle_opens_nothing_for_has_no_view_by_it() {
        let own = Process { pid: 1, user: process::euid() };
        let other = Process { pid: 2, user: STRANGER };
        let handle = || View { is_handle: true, ..view(7, own.user) };
        for (held, user) in [(handle(), own.user), (view(7, own.user), STRANGER)] {
            let regions = found([(own, view(7, own.user)), (other, held)]);
            assert_eq!((regions.len(), regions[0].user), (1, user));
        }
        assert_eq!(found([(own, handle())]).len(), 1);
        let memory = rustix::fs::memfd_create("handle", rustix::fs::MemfdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&memory);
        let path = format!("/proc/self/fd/{number}");
        let opens_nothing =
            rustix::fs::open(path, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let own = std::process::id();
        assert!(is_handle(own, std::os::fd::AsRawFd::as_raw_fd(&opens_nothing)) && !is_handle(own, number));
    }

    /// A server's worker, broken into, or its user's other processes.
    #[test]
    fn what_a_program_shows_with_its_workers_is_not_hidden_by_what_these_show() {
        let own = Process { pid: 1, user: process::euid() };
        let others = (0..OF_USER as u64).map(|n| {
            let pid = 10 + n as u32 / OF_PROCESS as u32;
            (Process { pid, user: STRANGER }, view(100 + n, STRANGER))
        });
        let worker = Process { pid: 2, user: STRANGER };
        let all = others.chain([(own, view(7, own.user)), (worker, view(7, own.user))]);
        let regions = found(all);
        assert_eq!(regions.len(), OF_USER + 1);
        let first = &regions[0];
        assert_eq!((first.id, first.rank(), first.payer()), ((1, 7), 1, (STRANGER, true)));
        assert!(regions[1..].iter().all(|region| (region.rank(), region.payer()) == (2, (STRANGER, false))));
    }

    #[test]
    fn who_runs_a_program_of_roots_is_looked_at_as_himself() {
        let stranger = process::euid() + 1000;
        let status = |real, user| Status { inner_pid: 1, user, real };
        assert_eq!(status(stranger, 0).least_trusted(), stranger);
        assert_eq!(status(0, stranger).least_trusted(), stranger);
        assert_eq!(status(stranger, stranger + 1).least_trusted(), stranger);
        assert!(is_trusted(status(process::euid(), 0).least_trusted()));
    }

    #[test]
    fn one_user_does_not_take_what_another_one_is_given() {
        let stranger = |n: u32| (process::euid() + 1000 + n, false);
        let mut budget = Budget::default();
        budget.take(stranger(0), usize::MAX - 1);
        assert_eq!(budget.left(stranger(0)), 0);
        let mut budget = Budget::default();
        budget.take(stranger(0), SOCKETS_OF_USER);
        assert_eq!((budget.left(stranger(0)), budget.left(stranger(1))), (0, SOCKETS_OF_USER));
        assert_eq!(budget.left((stranger(0).0, true)), SOCKETS_OF_USER);
        for n in 1..10 {
            let left = budget.left(stranger(n));
            budget.take(stranger(n), left);
        }
        assert_eq!((budget.left(stranger(10)), budget.left((0, false))), (0, SOCKETS_OF_USER));
    }

    #[test]
    fn one_region_does_not_take_what_those_of_the_own_user_are_given() {
        let mut budget = Budget::default();
        for _ in 0..USERS {
            assert_eq!(budget.left((process::euid(), false)), SOCKETS_OF_USER);
            budget.take((0, false), SOCKETS_OF_USER);
        }
        assert_eq!((budget.left((0, false)), budget.left((process::euid(), false))), (0, 0));
        assert_eq!(budget.left((process::euid() + 1000, false)), SOCKETS_OF_USER);
    }

    #[test]
    fn of_many_notes_the_first_are_kept() {
        let mut notes = Notes::default();
        (0..100).for_each(|n| notes.add(n.to_string()));
        let all = notes.all();
        assert_eq!((all.len(), all.last().map(String::as_str)), (NOTES + 1, Some("and 80 more")));
    }
}
