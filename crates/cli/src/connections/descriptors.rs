//! The descriptors of all processes, as `/proc` shows them: whose first, and how many.
//!
//! A process has as many descriptors as it likes, as often the same, and a user as many processes. Those of root and of the own user are looked at first, and
//! whole. Of others small processes come before large ones (Linux 6.2 tells how many descriptors there are), and the lowest numbers of each before the rest of
//! any: there honest programs have what is looked for. Users take turns, whoever was looked at for the shortest time comes next. That goes on for
//! some time for each user, and all of them; what is left out is told.

use super::regions::{Notes, Status, is_trusted};
use crate::aside::{self, Pulse};
use crate::effort::Effort;
use bypath_sys::process::shown_thread;
use rustix::fs::{Dir, Mode, OFlags, readlinkat_raw};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
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

impl Process {
    /// One that lives. This waits for nobody.
    pub fn of(pid: u32) -> Option<Process> {
        // Where only the folder is shown (hidepid), its owner is the effective user.
        let shown = || Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid());
        let user = Status::of(pid).map(Status::least_trusted).or_else(shown)?;
        Some(Process { pid, user })
    }

    /// Whether this is a thread of the kernel; false also where that cannot be told soon.
    fn is_kernel_thread(self) -> bool {
        aside::of(self, move |_| super::is_kernel_thread(self.pid)).unwrap_or(false)
    }

    /// The socket behind a descriptor: its inode, and its network namespace as `/proc` calls it. `None`: that cannot be told, or not soon.
    pub fn socket(self, fd: i32) -> Option<(u64, PathBuf)> {
        aside::of(self, move |_| self.socket_here(fd))?
    }

    /// However long it takes.
    pub fn socket_here(self, fd: i32) -> Option<(u64, PathBuf)> {
        let thread = shown_thread(self.pid);
        let target = fs::read_link(format!("/proc/{thread}/fd/{fd}")).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((inode, fs::read_link(format!("/proc/{thread}/ns/net")).ok()?))
    }
}

/// What a descriptor was to who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    /// A look, and no more.
    Nothing,
    /// There was more to be done, for nothing: of these a process of another user has a few.
    Costly,
    /// This, which cost a look.
    Cheap(T),
    /// This, for which there was more to be done.
    Dear(T),
}

/// What was not seen.
#[derive(Debug, Default)]
pub struct Unseen {
    /// Processes that may not be looked into.
    pub unreadable: usize,
    /// What was left out.
    pub notes: Notes,
}

/// Has every descriptor looked at, by its process, its number and what `/proc` calls it (the first 64 octets), and calls `f` with what is found,
/// until that says false of a process: the rest of it is not looked at, who looks tells it.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn all<T: Send + 'static>(
    look: impl FnMut(u32, i32, &[u8]) -> Seen<T> + Clone + Send + 'static,
    mut f: impl FnMut(Process, i32, T) -> bool,
) -> io::Result<Unseen> {
    let (trusted, others) = processes()?;
    let (mut unseen, mut looks) = (Unseen::default(), Looks::default());
    // Of each user: processes that were looked at in part, and not at all.
    let mut left_out: BTreeMap<u32, [usize; 2]> = BTreeMap::new();
    let mut not_waited_for: BTreeMap<u32, usize> = BTreeMap::new();
    let mut its = look.clone();
    let walk = move |process: Process, pulse: &Pulse| {
        Walk::of(process).collect(Most::EVERYTHING, pulse, |number, text| its(process.pid, number, text))
    };
    aside::of_each(&trusted, walk, |process, walked| {
        // It may be another user's meanwhile.
        let now = || Process::of(process.pid).unwrap_or(process);
        let Some(Walked { end, found, .. }) = walked else {
            *not_waited_for.entry(now().user).or_default() += 1;
            return;
        };
        if !found.is_empty() {
            let process = now();
            let _is_whole = found.into_iter().all(|(number, found)| f(process, number, found));
        }
        unseen.unreadable += usize::from(may_not(&end) && !process.is_kernel_thread());
    });
    let mut walks: Vec<Walk> = others.into_iter().map(Walk::of).collect();
    for links in [FIRST, LINKS] {
        let mut rest = Vec::new();
        in_turn(walks, &mut looks, |looks, walk| {
            let (process, has_begun) = (walk.process, walk.has_begun());
            let most = looks.left(process.user).filter(|left| !left.is_zero()).map(|left| Most {
                links,
                costly: COSTLY,
                until: Some(Instant::now() + left),
            });
            let Some(most) = most else {
                left_out.entry(process.user).or_default()[usize::from(!has_begun)] += 1;
                return;
            };
            let walked = looks.on(process.user, || walk.go_aside(most, look.clone()));
            let Some(Walked { walk, end, found }) = walked else {
                *not_waited_for.entry(process.user).or_default() += 1;
                return;
            };
            let is_enough = !found.into_iter().all(|(number, found)| f(process, number, found));
            unseen.unreadable += usize::from(may_not(&end));
            let has_more = matches!(end, Ok(End::Links)) && links < LINKS && !is_enough;
            if !has_more && !is_enough && matches!(end, Ok(End::Links | End::Costly | End::Late)) {
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
    for (user, count) in not_waited_for {
        unseen.notes.add(format!(
            "user {user} has programs that begin, and keep whoever looks at them waiting: {count} of his processes are left out"
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
        let Some(process) = Process::of(pid) else { continue };
        if is_trusted(process.user) {
            trusted.push(process);
        } else {
            let size =
                fs::metadata(format!("/proc/{}/fd", shown_thread(pid))).map_or(0, |folder| folder.len());
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

/// What came of one that was gone in another thread.
struct Walked<T> {
    walk: Walk,
    end: io::Result<End>,
    found: Vec<(i32, T)>,
}

impl Walk {
    fn of(process: Process) -> Walk {
        Walk { process, last: -1, links: 0, costly: 0 }
    }

    fn has_begun(&self) -> bool {
        self.links > 0
    }

    /// Goes on: `look` sees each descriptor, `f` takes what it finds, until that says false.
    fn go<T>(
        &mut self,
        most: Most,
        mut look: impl FnMut(i32, &[u8]) -> Seen<T>,
        mut f: impl FnMut(i32, T) -> bool,
    ) -> io::Result<End> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = format!("/proc/{}/fd", shown_thread(self.process.pid));
        let dir = rustix::fs::open(folder, flags, Mode::empty())?;
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
            let (is_costly, found) = match look(number, text) {
                Seen::Nothing => (false, None),
                Seen::Costly => (true, None),
                Seen::Cheap(found) => (false, Some(found)),
                Seen::Dear(found) => (true, Some(found)),
            };
            if found.is_some_and(|found| !f(number, found)) {
                return Ok(End::Whole);
            }
            self.costly += usize::from(is_costly);
            if self.costly >= most.costly {
                return Ok(End::Costly);
            }
        }
        Ok(End::Whole)
    }

    /// Goes on in a thread that is left behind if the process keeps it waiting.
    fn go_aside<T: Send + 'static>(
        self,
        most: Most,
        mut look: impl FnMut(u32, i32, &[u8]) -> Seen<T> + Send + 'static,
    ) -> Option<Walked<T>> {
        let process = self.process;
        aside::of(process, move |pulse| {
            self.collect(most, pulse, |number, text| look(process.pid, number, text))
        })
    }

    /// Goes on, with all that is found.
    fn collect<T>(
        mut self,
        most: Most,
        pulse: &Pulse,
        mut look: impl FnMut(i32, &[u8]) -> Seen<T>,
    ) -> Walked<T> {
        let mut found = Vec::new();
        let see = |number: i32, text: &[u8]| {
            pulse.beat();
            look(number, text)
        };
        let end = self.go(most, see, |number, its| {
            found.push((number, its));
            true
        });
        Walked { walk: self, end, found }
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
        let look = |_, _, text: &[u8]| if text == b"/dev/null" { Seen::Cheap(()) } else { Seen::Nothing };
        all(look, |process, number, ()| {
            found |= process == mine && number == file.as_raw_fd();
            true
        })
        .expect("/proc");
        assert!(found);
    }

    #[test]
    fn a_walk_ends_at_its_bounds_and_goes_on_where_it_ended() {
        let held: Vec<File> = (0..30).map(|_| File::open("/dev/null").expect("a file")).collect();
        let (mut walk, mut seen) = (own(), Vec::new());
        let mut go = |most| {
            let end = walk.go(
                most,
                |_, _| Seen::Cheap(()),
                |number, ()| {
                    seen.push(number);
                    true
                },
            );
            (end.expect("/proc"), walk.links)
        };
        assert_eq!(go(Most { links: 10, ..Most::EVERYTHING }), (End::Links, 10));
        assert_eq!(go(Most { until: Some(Instant::now()), ..Most::EVERYTHING }), (End::Late, 10));
        assert_eq!(go(Most::EVERYTHING).0, End::Whole);
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert!(held.iter().all(|file| seen.contains(&file.as_raw_fd())), "{seen:?}");
    }

    #[test]
    fn what_costs_more_has_a_bound_of_its_own() {
        let held: Vec<File> = (0..30).map(|_| File::open("/dev/null").expect("a file")).collect();
        let few = Most { costly: 5, ..Most::EVERYTHING };
        let see = |_: i32, text: &[u8]| if text == b"/dev/null" { Seen::Dear(()) } else { Seen::Nothing };
        let (mut walk, mut seen) = (own(), 0);
        let count = |_: i32, ()| {
            seen += 1;
            true
        };
        assert_eq!(walk.go(few, see, count).expect("/proc"), End::Costly);
        assert_eq!(seen, 5);
        let costly = |_: i32, _: &[u8]| Seen::<()>::Costly;
        assert_eq!(own().go(few, costly, |_, ()| true).expect("/proc"), End::Costly);
        let mut taken = 0;
        let one = |_: i32, ()| {
            taken += 1;
            false
        };
        assert_eq!(own().go(Most::EVERYTHING, see, one).expect("/proc"), End::Whole);
        assert_eq!(taken, 1);
        drop(held);
    }

    /// As one of root's that has become another user's and executes a program.
    #[test]
    fn a_process_that_keeps_a_look_waiting_is_left_out_whosever_it_is() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(ended));
        let slow = child.id();
        let look = move |pid, _, _: &[u8]| {
            if pid == slow {
                let _ = ended.lock().map(|ended| ended.recv());
            }
            Seen::Cheap(())
        };
        let (mut own, mut its) = (0, 0);
        let unseen = all(look, |process, _, ()| {
            own += usize::from(process.pid == std::process::id());
            its += usize::from(process.pid == slow);
            true
        });
        drop(end);
        child.kill().and_then(|()| child.wait()).expect("it ends");
        let notes = unseen.expect("/proc").notes.all();
        assert!(own > 0 && its == 0, "{own} {its}");
        let said = format!("user {} has programs that begin", bypath_sys::process::euid());
        assert!(notes.iter().any(|note| note.contains(&said)), "{notes:?}");
    }

    #[test]
    fn a_process_of_another_user_is_looked_at_aside() {
        let file = File::open("/dev/null").expect("a file");
        let mine = Process { user: bypath_sys::process::euid() + 1000, ..own().process };
        let see = |pid, _, text: &[u8]| match text {
            b"/dev/null" => Seen::Cheap((pid, std::thread::current().id())),
            _ => Seen::Nothing,
        };
        let Walked { walk, end, found } = Walk::of(mine).go_aside(Most::EVERYTHING, see).expect("it is told");
        assert_eq!((walk.process, end.expect("/proc")), (mine, End::Whole));
        let (_, (pid, there)) = found.into_iter().find(|(n, _)| *n == file.as_raw_fd()).expect("it is found");
        assert!(pid == mine.pid && there != std::thread::current().id());
    }
}
