//! The descriptors of all processes, as `/proc` shows them: whose first, and how many.
//!
//! A process has as many descriptors as it likes, as often the same, and a user as many processes. Those of root and of the own user are looked at first, and
//! whole. Of others small processes come before large ones (Linux 6.2 tells how many descriptors there are), and the lowest numbers of each before the rest of
//! any: there honest programs have what is looked for. Users take turns, whoever was looked at for the shortest time comes next. That goes on for
//! some time for each user, and all of them; what is left out is told.

use super::regions::{Notes, Status, is_trusted};
use crate::effort::Effort;
use rustix::fs::{Dir, Mode, OFlags, readlinkat_raw};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// Descriptors of a process that are looked at before others' come: what the library opens has the lowest free numbers from 1024 on.
const FIRST: usize = 4096;
/// Descriptors of one process of another user.
const LINKS: usize = 65_536;
/// Of these such as cost more than a look.
const COSTLY: usize = 64;

/// 250 ms for one other user, 750 ms for all of them: an honest one has some 50,000 descriptors in that time.
type Looks = Effort<250, 750>;

/// One, and who it is of: of its real and its effective user the one who is trusted least, as anybody runs a program of root's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub user: u32,
}

/// What a descriptor was to who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A look, and no more.
    Cheap,
    /// There was more to be done: of these a process of another user has a few.
    Costly,
    /// The rest of this process is not looked at; who looks tells it.
    Enough,
}

/// What was not seen.
#[derive(Debug, Default)]
pub struct Unseen {
    /// Processes that may not be looked into.
    pub unreadable: usize,
    /// What was left out.
    pub notes: Notes,
}

/// Calls `f` with every descriptor and what `/proc` calls it, of which it is given the first 64 octets.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn all(mut f: impl FnMut(Process, i32, &[u8]) -> Seen) -> io::Result<Unseen> {
    let (trusted, others) = processes()?;
    let (mut unseen, mut looks) = (Unseen::default(), Looks::default());
    for process in trusted {
        let end = Walk::of(process).go(Most::EVERYTHING, |n, text| f(process, n, text));
        unseen.unreadable += usize::from(may_not(&end) && !super::is_kernel_thread(process.pid));
    }
    // Of each user: processes that were looked at in part, and not at all.
    let mut left_out: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    let mut walks: Vec<Walk> = others.into_iter().map(Walk::of).collect();
    for links in [FIRST, LINKS] {
        let mut rest = Vec::new();
        in_turn(walks, &mut looks, |looks, mut walk| {
            let process = walk.process;
            let Some(left) = looks.left(process.user).filter(|left| !left.is_zero()) else {
                left_out.entry(process.user).or_default()[usize::from(!walk.has_begun())] += 1;
                return;
            };
            let most = Most { links, costly: COSTLY, until: Some(Instant::now() + left) };
            let end = looks.on(process.user, || walk.go(most, |n, text| f(process, n, text)));
            unseen.unreadable += usize::from(may_not(&end));
            let has_more = matches!(end, Ok(End::Links)) && links < LINKS;
            if !has_more && matches!(end, Ok(End::Links | End::Costly | End::Late)) {
                left_out.entry(process.user).or_default()[0] += 1;
            }
            rest.extend(has_more.then_some(walk));
        });
        walks = rest;
    }
    for (user, [in_part, not_at_all]) in left_out {
        unseen.notes.add(format!(
            "user {user} has more descriptors than are looked at: {in_part} of his processes are looked at in part, {not_at_all} not at all"
        ));
    }
    Ok(unseen)
}

/// Calls `f` with each, of every user in their order: next comes whose user was looked at for the shortest time, and of these the first.
fn in_turn(walks: Vec<Walk>, looks: &mut Looks, mut f: impl FnMut(&mut Looks, Walk)) {
    let mut of_user: HashMap<u32, VecDeque<(usize, Walk)>> = HashMap::new();
    for (place, walk) in walks.into_iter().enumerate() {
        of_user.entry(walk.process.user).or_default().push_back((place, walk));
    }
    let turn = |looks: &Looks, user: u32, its: &VecDeque<(usize, Walk)>| {
        its.front().map(|(place, _)| Reverse((looks.spent(user), *place, user)))
    };
    let mut next: BinaryHeap<_> = of_user.iter().filter_map(|(user, its)| turn(looks, *user, its)).collect();
    while let Some(Reverse((_, _, user))) = next.pop() {
        let Some(its) = of_user.get_mut(&user) else { continue };
        if let Some((_, walk)) = its.pop_front() {
            f(looks, walk);
        }
        next.extend(turn(looks, user, its));
    }
}

/// It may have ended in the meantime, which is no matter.
fn may_not(end: &io::Result<End>) -> bool {
    end.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
}

/// Those of root and of the own user, and all others.
fn processes() -> io::Result<(Vec<Process>, Vec<Process>)> {
    let (mut trusted, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry.ok().and_then(|e| e.file_name().to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        // Of this folder, unlike all else in it, the owner is always the effective user.
        let Ok(folder) = fs::metadata(format!("/proc/{pid}")) else { continue };
        let effective = folder.uid();
        let user = if is_trusted(effective) {
            Status::of(pid).map_or(u32::MAX, |status| status.least_trusted())
        } else {
            effective
        };
        let process = Process { pid, user };
        if is_trusted(user) {
            trusted.push(process);
        } else {
            let size = fs::metadata(format!("/proc/{pid}/fd")).map_or(0, |folder| folder.len());
            others.push((size, process));
        }
    }
    others.sort_by_key(|(size, process)| (*size, process.pid));
    Ok((trusted, others.into_iter().map(|(_, process)| process).collect()))
}

/// How far one goes.
#[derive(Clone, Copy, Debug)]
struct Most {
    links: usize,
    costly: usize,
    until: Option<Instant>,
}

impl Most {
    const EVERYTHING: Most = Most { links: usize::MAX, costly: usize::MAX, until: None };
}

/// Why it went no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// There is no more, or no more is wanted.
    Whole,
    Links,
    Costly,
    Late,
}

/// A process, and what was seen of it.
#[derive(Debug)]
struct Walk {
    process: Process,
    /// The highest number.
    last: i32,
    links: usize,
    costly: usize,
}

impl Walk {
    fn of(process: Process) -> Walk {
        Walk { process, last: -1, links: 0, costly: 0 }
    }

    fn has_begun(&self) -> bool {
        self.links > 0
    }

    /// Goes on.
    fn go(&mut self, most: Most, mut f: impl FnMut(i32, &[u8]) -> Seen) -> io::Result<End> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(format!("/proc/{}/fd", self.process.pid), flags, Mode::empty())?;
        // They come in the order of their numbers.
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok());
            let Some(number) = number.filter(|number| *number > self.last) else { continue };
            if self.links >= most.links {
                return Ok(End::Links);
            }
            if most.until.is_some_and(|until| Instant::now() >= until) {
                return Ok(End::Late);
            }
            (self.last, self.links) = (number, self.links + 1);
            let mut text = [MaybeUninit::uninit(); 64];
            let Ok((text, _)) = readlinkat_raw(&dir, entry.file_name(), &mut text[..]) else { continue };
            match f(number, text) {
                Seen::Cheap => {}
                Seen::Enough => return Ok(End::Whole),
                Seen::Costly => {
                    self.costly += 1;
                    if self.costly >= most.costly {
                        return Ok(End::Costly);
                    }
                }
            }
        }
        Ok(End::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    fn own() -> Walk {
        Walk::of(Process { pid: std::process::id(), user: bypath_sys::process::euid() })
    }

    #[test]
    fn users_who_have_very_many_processes_leave_time_for_others() {
        let stranger = bypath_sys::process::euid() + 1000;
        let walk = |pid, user| Walk::of(Process { pid, user });
        let mut walks: Vec<_> = (0..300).map(|n| walk(n, stranger + n % 3)).collect();
        // The largest.
        walks.extend([walk(1000, stranger + 3), walk(1001, stranger + 3)]);
        let (mut looks, mut seen) = (Looks::default(), Vec::new());
        in_turn(walks, &mut looks, |looks, walk| {
            let Process { pid, user } = walk.process;
            if !looks.is_over(user) {
                seen.push(pid);
                looks.spend(user, Duration::from_millis(10));
            }
        });
        assert_eq!(seen[..8], [0, 1, 2, 1000, 3, 4, 5, 1001]);
        assert!(seen[8..].is_sorted() && seen.len() == 75, "{seen:?}");
    }

    #[test]
    fn the_own_process_is_among_all() {
        let file = File::open("/dev/null").expect("a file");
        let mut found = false;
        let mine = own().process;
        all(|process, number, text| {
            found |= process == mine && number == file.as_raw_fd() && text == b"/dev/null";
            Seen::Cheap
        })
        .expect("/proc");
        assert!(found);
    }

    #[test]
    fn a_walk_ends_at_its_bounds_and_goes_on_where_it_ended() {
        let held: Vec<File> = (0..30).map(|_| File::open("/dev/null").expect("a file")).collect();
        let (mut walk, mut seen) = (own(), Vec::new());
        let mut see = |number: i32, _: &[u8]| {
            seen.push(number);
            Seen::Cheap
        };
        assert_eq!(walk.go(Most { links: 10, ..Most::EVERYTHING }, &mut see).expect("/proc"), End::Links);
        let late = Most { until: Some(Instant::now()), ..Most::EVERYTHING };
        assert_eq!(walk.go(late, &mut see).expect("/proc"), End::Late);
        assert_eq!(walk.links, 10);
        assert_eq!(walk.go(Most::EVERYTHING, &mut see).expect("/proc"), End::Whole);
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert!(held.iter().all(|file| seen.contains(&file.as_raw_fd())), "{seen:?}");
    }

    #[test]
    fn what_costs_more_has_a_bound_of_its_own() {
        let held: Vec<File> = (0..30).map(|_| File::open("/dev/null").expect("a file")).collect();
        let few = Most { costly: 5, ..Most::EVERYTHING };
        let (mut walk, mut seen) = (own(), 0);
        let see = |_: i32, text: &[u8]| {
            let is_one = text == b"/dev/null";
            seen += usize::from(is_one);
            if is_one { Seen::Costly } else { Seen::Cheap }
        };
        assert_eq!(walk.go(few, see).expect("/proc"), End::Costly);
        assert_eq!(seen, 5);
        let end = own().go(Most::EVERYTHING, |_, _| Seen::Enough).expect("/proc");
        assert_eq!(end, End::Whole);
        drop(held);
    }
}
