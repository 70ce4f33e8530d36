//! What a process knows about itself: settings, family region, inbox, counters.
//!
//! The family region is created with the first followed socket: programs without sockets pay nothing.

use crate::config::{Config, SMALLEST_DESCRIPTOR_LIMIT, Upgrade};
use crate::lock::Lock;
use crate::{fault, log, numbers, table};
use bypath_shm::family::{self, ENDS, Family, PROCESSES};
use bypath_shm::inbox::{BELLS, Inbox};
use bypath_shm::reason::Reason;
use bypath_shm::region::{self, StaticCell};
use bypath_shm::stats::{RECORD_SIZE, STATS_MAGIC, StatsRecord, StatsSnapshot};
use bypath_sys::{Errno, apart, changes, clock, fd, mem, process, sockdiag, thread, turn};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering::*};

/// Settings of this process; unset = the library is not initialised and follows nothing.
static CONFIG: OnceLock<Config> = OnceLock::new();
static STATE: StaticCell<State> = StaticCell::new();
static PROCESS: Process = Process::new();
/// Guards start, sockets' lives, registrations, rendezvous: everything rare.
pub static LIFE: &Lock = &PROCESS.life;
static FLOOR: AtomicI32 = AtomicI32::new(0);
static CALIBRATION: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// 1 in the process that [`Process::pid`] names, if it asked, and the memory was not changed for a copy since.
static OWN: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
/// Children that share this memory now, or may: vfork children, counted by the preload library.
pub static SHARERS: AtomicI32 = AtomicI32::new(0);
static SEALED: AtomicBool = AtomicBool::new(false);
/// Children are born in another pid namespace, where process ids of the family mean others.
static CHILDREN_ELSEWHERE: AtomicBool = AtomicBool::new(false);
/// This process, or what it starts, is in another time namespace than the first one of its family.
static TIME_DIFFERS: AtomicBool = AtomicBool::new(false);

/// What a forked child writes about itself, together: each page that is written after a fork is copied first.
#[derive(Debug)]
#[repr(align(256))]
struct Process {
    life: Lock,
    /// The process whose state this is: in a vfork child (shared memory, other pid) nothing may be touched.
    pid: AtomicU32,
    /// For sock_diag queries, -1 = none yet.
    netlink: AtomicI32,
    /// What is told of changes of the network, -1 = none yet.
    watch: AtomicI32,
    inbox: StaticCell<Inbox>,
    inbox_fd: AtomicI32,
    /// The parent's.
    elder_inbox: StaticCell<Inbox>,
    /// Why nothing in this process is upgraded (a [`Reason`] value), 0 = nothing hinders.
    hindrance: AtomicU16,
    exiting: AtomicBool,
    identity: Identity,
}

impl Process {
    const fn new() -> Process {
        Process {
            life: Lock::new(),
            pid: AtomicU32::new(0),
            netlink: AtomicI32::new(-1),
            watch: AtomicI32::new(-1),
            inbox: StaticCell::new(),
            inbox_fd: AtomicI32::new(-1),
            elder_inbox: StaticCell::new(),
            hindrance: AtomicU16::new(0),
            exiting: AtomicBool::new(false),
            identity: Identity {
                index: AtomicU32::new(0),
                token: AtomicU64::new(0),
                name: AtomicU64::new(0),
                stats: StaticCell::new(),
                ring_bytes: AtomicU64::new(0),
                elder_bells: [const { AtomicU32::new(0) }; 2],
            },
        }
    }
}

/// A reserved place of the family's process table.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which one.
    pub index: u32,
    /// Stands there in place of a process id, and in no other one: [`RESERVED`].
    mark: u32,
}

/// A fork under way.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// The child's.
    pub place: Place,
    /// When it began; `None`: parent and child may not have the same time.
    pub since: Option<u64>,
}

/// What differs between the processes of a family.
#[derive(Debug)]
pub struct Identity {
    /// This process's place in the family's process table.
    pub index: AtomicU32,
    /// Random name of this process.
    pub token: AtomicU64,
    /// What it says to others that its name is: another one from each fork on whose child may become another user, so that they use
    /// no memory any more that the child has, too.
    pub name: AtomicU64,
    /// Counters of this process.
    pub stats: StaticCell<StatsRecord>,
    /// Ring bytes reserved by this process.
    pub ring_bytes: AtomicU64,
    /// Bells from the first number up to the second one were made before this process was born, and not looked at yet.
    elder_bells: [AtomicU32; 2],
}

/// Exists once a socket is followed.
#[derive(Debug)]
pub struct State {
    /// The family region.
    pub family: &'static Family,
    view_fd: i32,
    /// Device and inode of that.
    view_file: (u64, u64),
    /// Namespaces: pid, user, mount.
    pub namespaces: [u64; 3],
    /// That of time, by which start times in the family's table are told.
    time_namespace: u64,
}

/// The settings, if the library is initialised and follows anything.
#[inline]
pub fn config() -> Option<&'static Config> {
    if is_sealed() { None } else { CONFIG.get() }
}

/// From now on nothing new is followed, and no call is made that the program has not asked for.
pub fn seal() {
    SEALED.store(true, SeqCst);
}

/// Whether [`seal`] was called.
#[inline]
pub fn is_sealed() -> bool {
    SEALED.load(Relaxed)
}

/// The state, if any socket was ever followed.
#[inline]
pub fn get() -> Option<&'static State> {
    STATE.get()
}

/// Highest [`floor`]: a program that uses select() keeps all numbers that select() knows. Not higher, because the kernel
/// copies the descriptor table up to its highest entry at every fork.
const HIGHEST_FLOOR: i32 = 1024;

/// Lowest number for our own descriptors: the top quarter below the program's limit, or 1024 where that is less.
pub fn floor() -> i32 {
    let cached = FLOOR.load(Relaxed);
    if cached != 0 {
        return cached;
    }
    let soft = fd::limits().0.min(1 << 20) as i32;
    let floor = (soft - (soft / 4).max(1)).clamp(3, HIGHEST_FLOOR);
    FLOOR.store(floor, Relaxed);
    floor
}

/// Initialises the library with its settings; the first call wins.
pub fn init(config: Config) {
    log::init(config.log);
    own_process();
    thread::init();
    if config.upgrade == Upgrade::Off {
        hinder(Reason::Disabled);
    }
    let _ = CONFIG.set(config);
    fault::init();
}

/// Time-stamp ticks per microsecond, from the time since [`start`].
pub fn ticks_per_us() -> u64 {
    let known = CALIBRATION[2].load(Relaxed);
    if known != 0 {
        return known;
    }
    loop {
        let (t, n) = (clock::ticks(), clock::monotonic_ns());
        let ns = n - CALIBRATION[1].load(Relaxed);
        if ns >= 100_000 {
            let per_us = ((t - CALIBRATION[0].load(Relaxed)) * 1000 / ns).max(1);
            CALIBRATION[2].store(per_us, Relaxed);
            return per_us;
        }
        std::hint::spin_loop();
    }
}

/// Nothing in this process is upgraded from now on.
pub fn hinder(reason: Reason) {
    let _ = PROCESS.hindrance.compare_exchange(0, reason as u16, AcqRel, Relaxed);
}

/// Why nothing is upgraded, if so.
pub fn hindrance() -> Option<Reason> {
    match PROCESS.hindrance.load(Acquire) {
        0 => None,
        v => Reason::from_value(v),
    }
}

/// Whether this is a vfork child (or a clone that shares memory): its pid is not the one that owns the state.
#[inline]
pub fn is_borrowed() -> bool {
    let own = || OWN.get().is_some_and(|word| word.is_some_and(|w| w.load(Relaxed) == 1));
    !(SHARERS.load(Relaxed) == 0 && own()) && is_not_ours()
}

/// Whether this memory is another process's (vfork). For calls that are the last of many processes: it asks the kernel,
/// and remembers nothing.
#[cold]
pub fn is_memory_of_another() -> bool {
    let owner = PROCESS.pid.load(Relaxed);
    owner != 0 && process::pid() != owner
}

#[cold]
fn is_not_ours() -> bool {
    // A sealed process may not even ask who it is. Nothing of it is followed, so the answer does not matter.
    if is_sealed() || is_memory_of_another() {
        return true;
    }
    // Here, and not in a forked child at once: many have another program soon.
    if PROCESS.pid.load(Relaxed) != 0
        && let Some(word) = OWN.get_or_init(mem::own_word)
    {
        word.store(1, Relaxed);
    }
    false
}

/// The process whose memory this is.
pub fn own_pid() -> u32 {
    PROCESS.pid.load(Relaxed)
}

/// This memory belongs to the calling process.
fn own_process() {
    PROCESS.pid.store(process::pid(), Relaxed);
}

/// In a forked child: what its parent's other threads were doing with descriptors goes on there alone.
pub fn others_are_gone() {
    turn::enter_child();
    apart::enter_child();
}

/// In a forked child: this memory is its own, and nobody shares it.
pub fn own_copy() {
    own_process();
    others_are_gone();
    // Written only if need be: each page that a child writes is copied first.
    if SHARERS.load(Relaxed) != 0 {
        SHARERS.store(0, Relaxed);
    }
}

/// This process may be in another time namespace now, or its children will be.
pub fn time_may_differ() {
    let Some(state) = get() else { return };
    if process::time_namespaces() != [state.time_namespace; 2] {
        TIME_DIFFERS.store(true, Relaxed);
        // A child has another time to count from.
        ticks_per_us();
    }
}

/// From now on children are born in another pid namespace.
pub fn send_children_elsewhere() {
    CHILDREN_ELSEWHERE.store(true, Release);
}

/// Whether children are born in another pid namespace.
pub fn are_children_elsewhere() -> bool {
    CHILDREN_ELSEWHERE.load(Acquire)
}

/// Netlink is asked through other sockets from now on: these are the parent's, or of another network namespace.
/// Under [`LIFE`], or in a child.
pub fn forget_netlink() {
    for socket in [&PROCESS.netlink, &PROCESS.watch].map(|place| place.swap(-1, AcqRel)) {
        if socket >= 0 {
            fd::close(socket);
        }
    }
    crate::udp::network::forget();
}

/// Whether `token` names this process.
pub fn is_own_token(token: u64) -> bool {
    PROCESS.identity.token.load(Relaxed) == token
}

/// Whether `fd` is the inbox of this process. One that is forked has another one.
pub fn is_own_inbox(fd: i32) -> bool {
    let own = PROCESS.inbox_fd.load(Acquire);
    own >= 0 && fd::identity(own).is_ok_and(|own| fd::identity(fd) == Ok(own))
}

/// Marks the process as ending; returns whether it was marked before.
pub fn set_exiting() -> bool {
    hinder(Reason::RecalledExit);
    PROCESS.exiting.swap(true, AcqRel)
}

/// The state, created if need be. Called under [`LIFE`].
pub fn start() -> Option<&'static State> {
    if let Some(s) = STATE.get() {
        return Some(s);
    }
    let config = CONFIG.get()?;
    let made = if fd::limits().0 < SMALLEST_DESCRIPTOR_LIMIT {
        // A program with so few descriptors gets to use them all.
        Err(bypath_sys::Errno::MFILE)
    } else {
        region::new_family(floor())
    };
    let (family, view_fd) = match made {
        Ok(f) => f,
        Err(e) => {
            // Nothing can be upgraded, but why is still counted.
            hinder(match e {
                bypath_sys::Errno::MFILE | bypath_sys::Errno::NFILE | bypath_sys::Errno::INVAL => {
                    Reason::NoDescriptors
                }
                bypath_sys::Errno::NOMEM => Reason::NoMemory,
                _ => Reason::ForbiddenCall,
            });
            (region::hidden_family().ok()?, -1)
        }
    };
    fault::age(family);
    let view_file = fd::identity(view_fd).unwrap_or((0, 0));
    let [time_namespace, _] = process::time_namespaces();
    let state = State { family, view_fd, view_file, namespaces: process::namespaces(), time_namespace };
    if process::membarrier_register().is_err() {
        hinder(Reason::ForbiddenCall);
    }
    crate::thread::init();
    CALIBRATION[0].store(clock::ticks(), Relaxed);
    CALIBRATION[1].store(clock::monotonic_ns(), Relaxed);
    let state = region::leak(state).ok()?;
    enter_process(state, config, false, None);
    STATE.set(Some(state));
    Some(state)
}

/// Whether the process `pid` at a complete place of the own family's table is the one that the place names. In another time namespace its start time is
/// another one: there its id alone tells.
pub fn lives(p: &family::Process, pid: u32) -> bool {
    let started = p.start_time.load(Relaxed);
    process::lives(pid, started) || started != 0 && !knows_start_times() && process::lives(pid, 0)
}

/// Whether start times are to this process what they are in the family's table. Asks the kernel.
#[cold]
pub fn knows_start_times() -> bool {
    get().is_none_or(|state| process::time_namespaces()[0] == state.time_namespace)
}

/// [`process::start_time_now`], if it is to this process's children, too, what it is in the family's table, as far as is known.
pub fn start_time_now() -> Option<u64> {
    (!TIME_DIFFERS.load(Relaxed)).then(process::start_time_now)
}

/// Part of what stands in a process table entry that is reserved for a child about to be born, and of no process id.
const RESERVED: u32 = 1 << 31;

impl State {
    /// What is this process's own.
    #[inline]
    pub fn own(&self) -> &'static Identity {
        &PROCESS.identity
    }

    /// Reserves a free place of the process table, or one whose process is dead. Looks for what costs least first.
    pub fn reserve_place(&self) -> Option<Place> {
        let mark = RESERVED | self.family.header.births.fetch_add(1, SeqCst);
        let dead = |p: &family::Process, pid: u32| pid & RESERVED == 0 && p.ready.load(Acquire) == 1;
        self.take_place(mark, |_, pid| pid == 0)
            .or_else(|| self.take_place(mark, |p, pid| dead(p, pid) && !process::exists(pid)))
            .or_else(|| self.take_place(mark, |p, pid| dead(p, pid) && !lives(p, pid)))
    }

    fn take_place(&self, mark: u32, is_free: impl Fn(&family::Process, u32) -> bool) -> Option<Place> {
        let table = &self.family.header.processes;
        let index = (0..PROCESSES as u32).find(|&i| {
            let p = &table[i as usize];
            let taken = p.pid.load(Acquire);
            is_free(p, taken) && p.pid.compare_exchange(taken, mark, AcqRel, Relaxed).is_ok() && {
                // Before the new one can hold anything: see `numbers`.
                self.family.header.births.fetch_add(1, SeqCst);
                p.ready.store(0, Release);
                if taken != 0 {
                    self.bury(i);
                }
                true
            }
        })?;
        Some(Place { index, mark })
    }

    /// The process that had the place died and may not have let go of what it held: whoever comes next must not seem to
    /// hold that. Only views show the difference, so where a fork would have to look at many ends it is left.
    fn bury(&self, place: u32) {
        const FEW: usize = 512;
        if self.family.header.ends_used.load(Acquire) as usize <= FEW {
            self.holds_nothing(place);
        }
    }

    /// Nothing is held by who has, or had, the place.
    fn holds_nothing(&self, place: u32) {
        let used = self.family.header.ends_used.load(Acquire) as usize;
        for end in &self.family.ends[..used.min(ENDS)] {
            if end.holders.load(Relaxed) & 1 << place != 0
                && end.holders.fetch_and(!(1 << place), AcqRel) == 1 << place
            {
                numbers::free(end);
            }
        }
    }

    /// One bit for each place whose process lives, or is about to be born.
    pub fn living_places(&self) -> u64 {
        let table = self.family.header.processes.iter().enumerate();
        table.fold(0, |bits, (i, p)| {
            let pid = p.pid.load(Acquire);
            bits | u64::from(pid != 0 && (p.ready.load(Acquire) == 0 || lives(p, pid))) << i
        })
    }

    /// Names the process at a reserved place. Parent and child do, as either may be killed before, and write the same, unless the child is in another time
    /// namespace: there it does not know when it began. `is_own`: it is this one, which nobody knows better.
    pub fn name_place(&self, Birth { place: Place { index, mark }, since }: Birth, pid: u32, is_own: bool) {
        let p = &self.family.header.processes[index as usize % PROCESSES];
        let named = p.pid.compare_exchange(mark, pid, AcqRel, Acquire);
        let is_done = || p.ready.load(Acquire) == 1 && p.start_time.load(Relaxed) != 0;
        match named {
            Err(other) if other == pid && is_done() => return,
            Err(other) if other != pid && !is_own => return,
            Err(_) => p.pid.store(pid, Relaxed),
            Ok(_) => {}
        }
        let started = since.filter(|&then| then == process::start_time_now()).or_else(|| {
            let knows = knows_start_times();
            TIME_DIFFERS.fetch_or(!knows, Relaxed);
            process::start_time(pid).filter(|_| knows)
        });
        p.start_time.store(started.unwrap_or(0), Relaxed);
        p.ready.store(1, Release);
    }

    /// As [`State::name_place`], where the kernel may not be asked when the process began.
    pub fn mark_place(&self, Place { index, mark }: Place, pid: u32) {
        let p = &self.family.header.processes[index as usize % PROCESSES];
        if p.pid.compare_exchange(mark, pid, AcqRel, Acquire).is_ok() {
            p.start_time.store(0, Relaxed);
            p.ready.store(1, Release);
        }
    }

    /// Gives a reserved place back: nobody was born. What the child would have held may have been closed meanwhile.
    pub fn free_place(&self, Place { index, mark }: Place) {
        self.holds_nothing(index);
        let p = &self.family.header.processes[index as usize % PROCESSES];
        let _ = p.pid.compare_exchange(mark, 0, AcqRel, Relaxed);
    }
}

/// Takes a place in the process table (the reserved one of a forked child) and a statistics record. Inlined, so that a
/// forked child has less code to map.
#[inline(always)]
fn enter_process(state: &'static State, config: &Config, is_child: bool, born: Option<Birth>) {
    let own = state.own();
    let token = process::random_u64() | 1;
    own.token.store(token, Relaxed);
    own.name.store(token, Relaxed);
    own_process();
    let pid = PROCESS.pid.load(Relaxed);
    let command = command_words();
    let birth = match born {
        Some(birth) => Some(birth),
        // Where it was born ids mean others: those who look at the table would take it for dead.
        None if is_child && are_children_elsewhere() => None,
        None => state.reserve_place().map(|place| Birth { place, since: None }),
    };
    let place = birth.map(|birth| birth.place.index);
    own.index.store(place.unwrap_or(u32::MAX), Relaxed);
    own.elder_bells[0].store(1, Relaxed);
    own.elder_bells[1].store(state.family.header.next_bell.load(Acquire).min(BELLS as u32), Relaxed);
    let mut started = 0;
    if let Some(birth) = birth {
        let p = &state.family.header.processes[birth.place.index as usize];
        // A read maps what is near, too: the record of the statistics, most often. A write to a page maps that alone.
        std::hint::black_box(p.ready.load(Relaxed));
        p.command[0].store(command[0], Relaxed);
        p.command[1].store(command[1], Relaxed);
        state.name_place(birth, pid, true);
        started = p.start_time.load(Relaxed);
    } else {
        hinder(Reason::TableFull);
    }
    let of_place = || Some(&state.family.stats[place? as usize].record);
    let record = stats_file(config).or_else(of_place);
    // Without one it counts nothing: what it inherited is its parent's.
    own.stats.set(record);
    let Some(record) = record else { return };
    record.pid.store(pid, Relaxed);
    record.state.store(1, Relaxed);
    record.start_time.store(started, Relaxed);
    record.command[0].store(command[0], Relaxed);
    record.command[1].store(command[1], Relaxed);
    record.magic.store(STATS_MAGIC, Release);
}

fn command_words() -> [u64; 2] {
    let c = process::command();
    [0, 8].map(|i| u64::from_ne_bytes(c[i..i + 8].try_into().unwrap_or([0; 8])))
}

fn stats_file(config: &Config) -> Option<&'static StatsRecord> {
    let path = config.stats.as_bytes();
    if path.is_empty() {
        return None;
    }
    let mut name = [0u8; 257];
    name[..path.len()].copy_from_slice(path);
    let name = std::ffi::CStr::from_bytes_until_nul(&name).ok()?;
    let record = (|| {
        let file = turn::high(floor(), || fd::open_rw(name))?;
        // Whatever stands at that path by now: nothing is appended to a file of something else. A record that is being made begins with zeroes.
        let is_one = |first: [u8; 8]| first == [0; 8] || StatsSnapshot::is_magic(first);
        let may = fd::first_octets(file).and_then(|first| is_one(first).then_some(()).ok_or(Errno::INVAL));
        let mapped =
            may.and_then(|()| fd::append_space(file, RECORD_SIZE)).and_then(|at| region::map_stats(file, at));
        fd::close(file);
        mapped
    })();
    if let Err(e) = record {
        let remedy = if e == Errno::LOOP { "; name the file without symbolic links" } else { "" };
        log::line(
            crate::config::LogLevel::Warn,
            format_args!("cannot write statistics to {}: {e}{remedy}", String::from_utf8_lossy(path)),
        );
    }
    record.ok()
}

impl State {
    /// The inbox of this process and its descriptor, created at the first rendezvous.
    ///
    /// # Errors
    /// As memfd_create(2) and mmap(2).
    pub fn inbox(&self) -> bypath_sys::Result<(&'static Inbox, i32)> {
        if let Some(inbox) = PROCESS.inbox.get() {
            return Ok((inbox, PROCESS.inbox_fd.load(Acquire)));
        }
        let (inbox, fd) = region::new_inbox(floor())?;
        PROCESS.inbox_fd.store(fd, Release);
        PROCESS.inbox.set(Some(inbox));
        Ok((inbox, fd))
    }

    /// The inbox, if there is one.
    #[inline]
    pub fn inbox_if_any(&self) -> Option<&'static Inbox> {
        PROCESS.inbox.get()
    }

    /// In a forked child: the parent's inbox is mapped no longer.
    pub fn let_go_of_elder_inbox(&self) {
        if let Some(elder) = PROCESS.elder_inbox.get() {
            PROCESS.elder_inbox.set(None);
            region::let_go_of_inbox(elder);
        }
    }

    /// This process has another name from now on, for whom it meets.
    pub fn rename(&self) {
        self.own().name.store(process::random_u64() | 1, Relaxed);
    }

    /// Bells that were made before this process was born, each one once. Those of its place are its predecessors', who
    /// died.
    pub fn elder_bells(&self) -> impl Iterator<Item = usize> {
        let [next, end] = &self.own().elder_bells;
        std::iter::from_fn(|| {
            let step = |number: u32| (number < end.load(Relaxed)).then_some(number + 1);
            next.fetch_update(AcqRel, Relaxed, step).ok().map(|number| number as usize)
        })
    }

    /// The bit of this process in holder sets.
    pub fn bit(&self) -> u64 {
        1u64.checked_shl(self.own().index.load(Relaxed)).unwrap_or(0)
    }

    /// In a forked child: an identity of its own.
    pub fn enter_child(&'static self, born: Option<Birth>) {
        if let Some(elder) = PROCESS.inbox.get() {
            PROCESS.elder_inbox.set(Some(elder));
        }
        PROCESS.inbox.set(None);
        let inherited = PROCESS.inbox_fd.swap(-1, AcqRel);
        if inherited >= 0 {
            fd::close(inherited);
        }
        forget_netlink();
        self.own().ring_bytes.store(0, Relaxed);
        if let Some(config) = CONFIG.get() {
            enter_process(self, config, true, born);
        }
    }

    /// The descriptor of the family region, -1 = there is none.
    pub fn view(&self) -> i32 {
        self.view_fd
    }

    /// Whether the program has left that descriptor what it was.
    pub fn holds_view(&self) -> bool {
        fd::identity(self.view_fd) == Ok(self.view_file)
    }

    /// Lowest and highest of our own descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        let [inbox, netlink, watch] =
            [&PROCESS.inbox_fd, &PROCESS.netlink, &PROCESS.watch].map(|place| place.load(Relaxed));
        [self.view_fd, inbox, netlink, watch, log::descriptor()].into_iter()
    }
}

/// The netlink socket for sock_diag queries; used under [`LIFE`].
///
/// # Errors
/// As [`sockdiag::open`].
pub fn netlink() -> bypath_sys::Result<i32> {
    kept(&PROCESS.netlink, sockdiag::open)
}

/// The socket that is told of changes of the network; used under [`LIFE`].
///
/// # Errors
/// As [`changes::watch`].
pub fn watch() -> bypath_sys::Result<i32> {
    kept(&PROCESS.watch, changes::watch)
}

fn kept(place: &AtomicI32, open: fn(i32) -> bypath_sys::Result<i32>) -> bypath_sys::Result<i32> {
    let have = place.load(Relaxed);
    if have >= 0 {
        return Ok(have);
    }
    let fd = open(floor())?;
    place.store(fd, Relaxed);
    Ok(fd)
}

/// Whether `number` is one of our own descriptors.
#[inline]
pub fn owns(number: i32) -> bool {
    let floor = FLOOR.load(Relaxed);
    floor != 0 && number >= floor && is_one_of_ours(number)
}

#[cold]
fn is_one_of_ours(number: i32) -> bool {
    log::descriptor() == number
        || STATE.get().is_some_and(|s| s.descriptors().any(|d| d == number))
        || crate::thread::owns(number)
        || crate::peer::owns(number)
        || table::owns(number)
        || crate::epoll::owns(number)
        || crate::service::owns(number)
        || crate::udp::owns(number)
}
