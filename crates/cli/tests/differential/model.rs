//! From random numbers to a script that means something: a small model of the connections knows what is in
//! flight, what is shut and which descriptor numbers are taken, so that the kernel's answer to every step is
//! determined.

use super::script::Step;
use std::collections::BTreeSet;

/// One random operation; every combination of numbers means something or is skipped.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What to do.
    pub kind: u8,
    /// On which connection.
    pub connection: u8,
    /// On the server's end instead of the client's.
    pub server: bool,
    /// Which spelling, flags, descriptor.
    pub variant: u8,
    /// How many bytes.
    pub size: u32,
}

/// How many kinds there are.
pub const KINDS: u8 = 32;

/// More than this is not put in flight: it fits the kernel's default buffers without a reader.
const MOST_IN_FLIGHT: u32 = 200_000;
/// What surely gets from the sender's queue into the receiver's without anybody reading.
const SURELY_DELIVERED: u32 = 20_000;
/// With more than this in flight the receiver's window may close, and stay closed while a partly read segment is
/// charged for all its memory: until everything is read, it is unknown how much has arrived.
const SURELY_OPEN: u32 = 60_000;

/// One end of one connection. Index 0 is the client, 1 the server, everywhere.
#[derive(Debug, Default)]
struct End {
    /// Open descriptors; the first one was registered in the epoll sets.
    fds: Vec<u32>,
    registered: u32,
    /// Bytes on the way to this end.
    incoming: u32,
    /// There was more than [`SURELY_OPEN`] on the way, and not all of it is read.
    congested: bool,
    shut_write: bool,
    nonblocking: bool,
}

impl End {
    /// So many bytes arrive without anybody reading.
    fn arriving(&self) -> u32 {
        if self.congested { 0 } else { self.incoming.min(SURELY_DELIVERED) }
    }

    /// Whether everything on the way arrives without anybody reading.
    fn all_arrives(&self) -> bool {
        self.arriving() == self.incoming
    }

    fn send(&mut self, bytes: u32) {
        self.incoming += bytes;
        self.congested |= self.incoming > SURELY_OPEN;
    }

    fn read(&mut self, bytes: u32) {
        self.incoming -= bytes;
        self.congested &= self.incoming > 0;
    }
}

#[derive(Debug, Default)]
struct Connection {
    ends: [End; 2],
    /// Reset by a close with unread data: the survivor may only look and close.
    reset: bool,
}

/// Builds the script.
#[derive(Debug)]
pub struct Model {
    steps: Vec<Step>,
    connections: Vec<Connection>,
    used: [BTreeSet<u32>; 2],
    seed: u32,
}

const NAMES: [&str; 2] = ["c", "s"];
const LISTENER: u32 = 3;
/// Epoll sets of each end: level-triggered and edge-triggered.
const LEVEL: u32 = 4;
const EDGE: u32 = 5;

impl Model {
    /// A script of `connections` connections and `ops`.
    pub fn script(connections: u8, ops: &[Op]) -> Vec<Step> {
        let used = || (0..=EDGE).collect::<BTreeSet<u32>>();
        let mut model = Model { steps: Vec::new(), connections: Vec::new(), used: [used(), used()], seed: 0 };
        model.say(1, "socket inet");
        model.say(1, format!("bind {LISTENER} 127.0.0.1:0"));
        model.say(1, format!("listen {LISTENER}"));
        // The same numbers on both ends.
        model.say(0, "epoll_create1 0");
        for end in [0, 1] {
            model.say(end, "epoll_create1 0");
            model.say(end, "epoll_create1 0");
        }
        for _ in 0..connections {
            model.open();
        }
        for op in ops {
            model.apply(*op);
        }
        for index in 0..model.connections.len() {
            model.finish(index);
        }
        model.steps
    }

    fn say(&mut self, end: usize, command: impl Into<String>) {
        self.steps.push(Step::new(NAMES[end], command));
    }

    fn take_fd(&mut self, end: usize) -> u32 {
        let fd = (0..).find(|fd| !self.used[end].contains(fd)).expect("a free number");
        self.used[end].insert(fd);
        fd
    }

    fn open(&mut self) {
        // What epoll says must be determined, also about the other connections.
        self.settle(0);
        self.settle(1);
        let mut connection = Connection::default();
        let c = self.take_fd(0);
        let s = self.take_fd(1);
        self.say(0, "socket inet");
        self.say(0, format!("connect {c} 127.0.0.1:%port:s:{LISTENER}"));
        self.say(1, format!("accept {LISTENER}"));
        // Without TCP_NODELAY small writes wait for acknowledgements, which takes most of the time: one of three.
        let nodelay = self.connections.len() % 3 != 2;
        for (end, fd) in [(0, c), (1, s)] {
            if nodelay {
                self.say(end, format!("setsockopt {fd} nodelay 1"));
            }
            connection.ends[end].fds.push(fd);
            // An end in an epoll set that is never waited on stays on the kernel: every set is waited on, and
            // one connection of three is in none.
            if self.connections.len() % 3 != 1 {
                connection.ends[end].registered = fd;
                self.say(end, format!("epoll_ctl {LEVEL} add {fd} in|rdhup {fd}"));
                self.say(end, format!("epoll_wait {LEVEL} 32 0"));
                self.say(end, format!("epoll_ctl {EDGE} add {fd} in|out|rdhup|et {fd}"));
                self.say(end, format!("epoll_edges {EDGE} 32 0"));
            }
        }
        // Enough traffic for an upgrade, so that the script is about connections on the ring.
        self.say(1, format!("go w echo {s} 24 100"));
        self.say(0, format!("ping {c} 24 100"));
        self.say(1, "join w");
        self.connections.push(connection);
    }

    fn fresh(&mut self) -> u32 {
        self.seed += 1;
        self.seed
    }

    /// Waits until what is on the way to `end` can be seen there.
    fn settle(&mut self, end: usize) {
        for index in 0..self.connections.len() {
            let connection = &self.connections[index];
            let Some(&fd) = connection.ends[end].fds.first() else { continue };
            let incoming = connection.ends[end].arriving();
            let other = &connection.ends[1 - end];
            let hung_up = other.fds.is_empty() || other.shut_write;
            // The end of the stream comes after data that may not fit: it is waited for only if all fits.
            let end_visible = hung_up && connection.ends[end].all_arrives();
            if connection.reset {
                self.say(end, format!("wait_ev {fd} hup|err"));
                continue;
            }
            if incoming > 0 {
                self.say(end, format!("wait_in {fd} {incoming}"));
            }
            if end_visible {
                self.say(end, format!("wait_ev {fd} rdhup"));
            }
        }
    }

    /// Whether what poll and epoll say at `end` is determined: everything in flight has surely arrived.
    fn observable(&self, end: usize) -> bool {
        self.connections.iter().all(|c| {
            let me = &c.ends[end];
            let other = &c.ends[1 - end];
            me.fds.is_empty() || (!c.reset && me.all_arrives() && other.all_arrives())
        })
    }

    fn apply(&mut self, op: Op) {
        let index = op.connection as usize % self.connections.len();
        let end = usize::from(op.server);
        let me = &self.connections[index].ends[end];
        if me.fds.is_empty() {
            if self.connections[index].ends[1 - end].fds.is_empty()
                && op.kind.is_multiple_of(4)
                && self.connections.len() < 6
                && self.observable(0)
                && self.observable(1)
            {
                self.open();
            }
            return;
        }
        let fd = me.fds[op.variant as usize / 16 % me.fds.len()];
        if self.connections[index].reset {
            return;
        }
        match op.kind {
            0..=7 => self.send(index, end, fd, op),
            8..=13 => self.receive(index, end, fd, op),
            14..=16 => self.receive_all(index, end, fd, op),
            17 => self.receive_nothing(index, end, fd, op),
            18 => self.wait_in_a_thread(index, end, fd, op),
            19 => self.full_duplex(index, op),
            20..=22 => self.observe(end, op),
            23 | 24 => self.register(index, end, op),
            25 => self.dup(index, end, fd, op),
            26 => self.pass_to_itself(index, end, fd),
            27 => self.shutdown(index, end, fd),
            28 => self.close(index, end, op),
            29 => {
                let on = &mut self.connections[index].ends[end].nonblocking;
                *on = !*on;
                let word = if *on { "nonblock" } else { "0" };
                self.say(end, format!("fcntl {fd} setfl {word}"));
            }
            30 => {
                self.settle(end);
                if self.observable(end) {
                    self.say(end, format!("fionread {fd}"));
                }
            }
            _ => {
                self.say(end, format!("getsockopt {fd} error"));
                self.say(end, format!("getpeername {fd}"));
            }
        }
    }

    fn send(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        let connection = &self.connections[index];
        let other = &connection.ends[1 - end];
        if connection.ends[end].shut_write || other.fds.is_empty() {
            return;
        }
        let room = MOST_IN_FLIGHT.saturating_sub(other.incoming);
        let size = op.size.min(room);
        let seed = self.fresh();
        let command = match op.variant % 8 {
            0 => format!("write {fd} {size} {seed}"),
            1 => format!("send {fd} {size} {seed}"),
            2 => format!("sendto {fd} {size} {seed} nosignal"),
            3 => format!("writev {fd} {},{},{} {seed}", size / 3, size - size / 3 - size / 2, size / 2),
            4 => format!("sendmsg {fd} {},{} {seed} nosignal", size / 4, size - size / 4),
            5 => format!("sendmmsg {fd} {},{} {seed}", (size / 2).max(1), (size - size / 2).max(1)),
            6 => format!("sendall {fd} {size} {seed} {}", (size / 7).max(1)),
            _ => format!("send {fd} {} {seed} dontwait", size.min(10_000)),
        };
        let sent = match op.variant % 8 {
            5 => (size / 2).max(1) + (size - size / 2).max(1),
            7 => size.min(10_000),
            _ => size,
        };
        self.say(end, command);
        self.connections[index].ends[1 - end].send(sent);
    }

    fn receive(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        let there = self.connections[index].ends[end].arriving();
        if there == 0 {
            return self.receive_all(index, end, fd, op);
        }
        let size = op.size.clamp(1, SURELY_DELIVERED);
        let exact = size.min(there);
        self.say(end, format!("wait_in {fd} {there}"));
        let (command, taken) = match op.variant % 8 {
            0 => (format!("read {fd} {size}"), exact),
            1 => (format!("recv {fd} {size}"), exact),
            2 => (format!("recvfrom {fd} {size} dontwait"), exact),
            3 => (format!("readv {fd} {},{}", size / 3, size - size / 3), exact),
            4 => (format!("recvmsg {fd} {},{},{}", size / 2, 0, size - size / 2), exact),
            5 => (format!("recv {fd} {exact} waitall"), exact),
            6 => (format!("recv {fd} {size} peek"), 0),
            _ => (format!("recv {fd} {size} trunc"), exact),
        };
        self.say(end, command);
        self.connections[index].ends[end].read(taken);
    }

    fn receive_all(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        let there = self.connections[index].ends[end].incoming;
        let size = op.size.min(there);
        if size > 0 {
            self.say(end, format!("recvall {fd} {size} {}", (size / 3).max(100)));
            self.connections[index].ends[end].read(size);
        }
    }

    /// With nothing on the way: EAGAIN, or the end of the stream.
    fn receive_nothing(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        if self.connections[index].ends[end].incoming > 0 {
            return;
        }
        self.settle(end);
        let command = match op.variant % 3 {
            0 => format!("recv {fd} {} dontwait", op.size.max(1)),
            1 => format!("recv {fd} 10 peek|dontwait"),
            _ => format!("recvmsg {fd} 10,10 dontwait"),
        };
        self.say(end, command);
    }

    fn wait_in_a_thread(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        let connection = &self.connections[index];
        let other = &connection.ends[1 - end];
        let (Some(&from), false) = (other.fds.first(), other.shut_write) else { return };
        if connection.ends[end].incoming > 0 || connection.ends[end].nonblocking {
            return;
        }
        let size = op.size.min(10_000);
        let seed = self.fresh();
        match op.variant % 3 {
            0 => self.say(end, format!("go t recv {fd} {} waitall", size.max(1))),
            1 => self.say(end, format!("go t recvall {fd} {}", size.max(1))),
            _ => self.say(end, format!("go t poll 5000 {fd}:in")),
        }
        self.say(end, "blocked t");
        self.say(1 - end, format!("send {from} {} {seed}", size.max(1)));
        self.say(end, "join t");
        if op.variant % 3 == 2 {
            self.connections[index].ends[end].send(size.max(1));
        }
    }

    fn full_duplex(&mut self, index: usize, op: Op) {
        let connection = &self.connections[index];
        let open = |e: &End| !e.fds.is_empty() && !e.shut_write && e.incoming == 0;
        if !connection.ends.iter().all(open) {
            return;
        }
        let fds = [connection.ends[0].fds[0], connection.ends[1].fds[0]];
        let sizes = [op.size.max(1), (op.size / 2).max(1)];
        for end in [0, 1] {
            let seed = self.fresh();
            let chunk = (sizes[end] / (u32::from(op.variant) % 20 + 1)).max(1);
            self.say(end, format!("go w sendall {} {} {seed} {chunk}", fds[end], sizes[end]));
        }
        for end in [0, 1] {
            self.say(end, format!("recvall {} {}", fds[end], sizes[1 - end]));
        }
        for end in [0, 1] {
            self.say(end, "join w");
        }
    }

    fn observe(&mut self, end: usize, op: Op) {
        self.settle(end);
        if !self.observable(end) {
            return;
        }
        let fds: Vec<u32> = self.connections.iter().flat_map(|c| c.ends[end].fds.clone()).collect();
        let list = |suffix: &str| fds.iter().map(|fd| format!(" {fd}:{suffix}")).collect::<String>();
        let command = match op.variant % 6 {
            0 => format!("poll 0{}", list("in|rdhup")),
            1 => format!("poll 0{}", list("in|out")),
            2 => format!("ppoll 0{}", list("in")),
            3 => format!("select 0{}", fds.iter().map(|fd| format!(" r:{fd} w:{fd}")).collect::<String>()),
            4 => format!("epoll_wait {LEVEL} 32 0"),
            _ => format!("epoll_edges {EDGE} 32 0"),
        };
        self.say(end, command);
    }

    fn register(&mut self, index: usize, end: usize, op: Op) {
        let me = &self.connections[index].ends[end];
        let fd = me.registered;
        if !me.fds.contains(&fd) {
            return;
        }
        let bits = ["in", "in|out", "in|rdhup", "out", "in|oneshot", "in|out|rdhup", "in|et|oneshot", "0"];
        self.say(end, format!("epoll_ctl {LEVEL} mod {fd} {} {fd}", bits[op.variant as usize % bits.len()]));
    }

    fn dup(&mut self, index: usize, end: usize, fd: u32, op: Op) {
        if self.connections[index].ends[end].fds.len() >= 4 {
            return;
        }
        let new = self.take_fd(end);
        let command = match op.variant % 3 {
            0 => format!("dup {fd}"),
            1 => format!("fcntl {fd} dupfd 0"),
            _ => format!("dup2 {fd} {new}"),
        };
        self.say(end, command);
        self.connections[index].ends[end].fds.push(new);
    }

    /// Sends the descriptor through a socket pair, which makes a second one.
    fn pass_to_itself(&mut self, index: usize, end: usize, fd: u32) {
        // Unread bytes in a ring need their writer's next call on the connection to come back, and an agent
        // between two commands makes none (a listed residual risk, not a difference to search for).
        let me = &self.connections[index].ends[end];
        if me.fds.len() >= 4 || me.incoming > 0 {
            return;
        }
        let (a, b) = (self.take_fd(end), self.take_fd(end));
        self.say(end, "socketpair");
        self.say(end, format!("scm_send {a} {fd}"));
        let new = self.take_fd(end);
        self.say(end, format!("scm_recv {b}"));
        for fd in [a, b] {
            self.say(end, format!("close {fd}"));
            self.used[end].remove(&fd);
        }
        self.connections[index].ends[end].fds.push(new);
    }

    fn shutdown(&mut self, index: usize, end: usize, fd: u32) {
        let connection = &mut self.connections[index];
        if connection.ends[1 - end].fds.is_empty() {
            return;
        }
        connection.ends[end].shut_write = true;
        self.say(end, format!("shutdown {fd} wr"));
    }

    fn close(&mut self, index: usize, end: usize, op: Op) {
        let me = &self.connections[index].ends[end];
        let last = me.fds.len() == 1;
        let unread = me.incoming > 0;
        let other_open = !self.connections[index].ends[1 - end].fds.is_empty();
        // Unread data at the last close resets; what is on the way to the other end is then read or lost
        // depending on the moment, so there must be none.
        if last && unread && other_open {
            if self.connections[index].ends[1 - end].incoming > 0 || !me.all_arrives() {
                return;
            }
            let (fd, incoming) = (me.fds[0], me.incoming);
            self.say(end, format!("wait_in {fd} {incoming}"));
            self.connections[index].reset = true;
        }
        let me = &mut self.connections[index].ends[end];
        let fd = me.fds.remove(op.variant as usize % me.fds.len());
        self.say(end, format!("close {fd}"));
        self.used[end].remove(&fd);
    }

    /// Closes in order and reads what is left, so that nothing is unchecked.
    fn finish(&mut self, index: usize) {
        for end in [0, 1] {
            let connection = &self.connections[index];
            let Some(&fd) = connection.ends[end].fds.first() else { continue };
            if connection.reset {
                self.settle(end);
                self.say(end, format!("recv {fd} 10 dontwait"));
                self.say(end, format!("recv {fd} 10 dontwait"));
                continue;
            }
            if let (Some(&other), false) =
                (connection.ends[1 - end].fds.first(), connection.ends[1 - end].shut_write)
            {
                self.connections[index].ends[1 - end].shut_write = true;
                self.say(1 - end, format!("shutdown {other} wr"));
            }
            self.say(end, format!("drain {fd}"));
            let me = &mut self.connections[index].ends[end];
            me.read(me.incoming);
        }
        for end in [0, 1] {
            for fd in std::mem::take(&mut self.connections[index].ends[end].fds) {
                self.say(end, format!("close {fd}"));
                self.used[end].remove(&fd);
            }
        }
    }
}
