//! Random scripts of datagrams that mean something: the model knows which sockets there are and who is connected.

use crate::script::Step;

/// What an operation is made of; most of the numbers are taken modulo what is there.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: u8,
    pub server: bool,
    pub socket: u8,
    pub to: u8,
    pub variant: u8,
    pub size: u32,
}

/// Kinds of operations.
pub const KINDS: u8 = 16;
/// Sockets of each end: descriptors 3, 4, ...
const SOCKETS: u8 = 2;
/// Its epoll set.
const SET: u8 = 3 + SOCKETS;

#[derive(Clone, Copy, Debug, Default)]
struct Socket {
    /// The socket of the other end.
    connected: Option<u8>,
    watched: bool,
    /// Who has sent what may be unread: datagrams of one sender come in order, those of two need not.
    heard: Option<u8>,
}

/// A script in the making.
#[derive(Debug, Default)]
pub struct Model {
    steps: Vec<Step>,
    sockets: [[Socket; SOCKETS as usize]; 2],
}

const ENDS: [&str; 2] = ["c", "s"];

/// Every other one could be inherited by another program.
fn socket(fd: u8) -> &'static str {
    if fd.is_multiple_of(2) { "socket inet dgram" } else { "socket inet dgram|cloexec" }
}

impl Model {
    /// The script of these operations. `warm`: which sockets have exchanged datagrams at first.
    pub fn script(warm: u8, ops: &[Op]) -> Vec<Step> {
        let mut model = Model::default();
        for end in 0..2 {
            for fd in 3..SET {
                model.say(end, socket(fd));
                model.say(end, format!("bind {fd} 127.0.0.1:0"));
            }
            model.say(end, "epoll_create1 0");
        }
        for pair in 0..warm {
            model.ping(pair % SOCKETS, pair / SOCKETS % SOCKETS);
        }
        for op in ops {
            model.add(*op);
        }
        for end in 0..2 {
            for fd in 3..SET {
                model.say(end, format!("receive {fd} 70000 dontwait"));
                model.say(end, format!("count {fd}"));
                model.say(end, format!("close {fd}"));
            }
            model.say(end, format!("close {SET}"));
        }
        model.steps
    }

    fn say(&mut self, end: usize, command: impl Into<String>) {
        self.steps.push(Step::new(ENDS[end], command));
    }

    /// An operation that makes no sense now is left out.
    fn add(&mut self, op: Op) {
        let end = usize::from(op.server);
        let (from, to) = (op.socket % SOCKETS, op.to % SOCKETS);
        let (fd, size, variant) = (3 + from, op.size, op.variant);
        // Each socket hears one other: between datagrams of different senders there is no order.
        let address = format!("127.0.0.1:%port:{}:{}", ENDS[1 - end], 3 + from);
        let connected = self.sockets[end][usize::from(from)].connected;
        if op.kind <= 4 {
            let by_name = connected.is_none() || variant % 6 >= 3;
            self.turn(end, from, if by_name { to } else { connected.unwrap_or(to) });
        }
        match op.kind {
            0..=4 => match (connected, variant % 6) {
                (Some(_), 0) => self.say(end, format!("send {fd} {size} {variant}")),
                (Some(_), 1) => self.say(end, format!("write {fd} {size} {variant}")),
                (Some(_), 2) => self.say(end, format!("send_many {fd} {size},0,14 {variant} 0 -")),
                (_, 3) => self.say(end, format!("send_many {fd} 14,{size} {variant} 0 {address}")),
                (_, 4) => {
                    self.say(end, format!("send_msg {fd} {},{} {variant} 0 {address}", size / 2, size / 3))
                }
                _ => self.say(end, format!("sendto {fd} {size} {variant} 0 {address}")),
            },
            5..=8 => match variant % 6 {
                0 => self.say(end, format!("recv {fd} {size} dontwait")),
                1 => self.say(end, format!("receive_many {fd} 70,7000,70000 dontwait")),
                2 => self.say(end, format!("receive_msg {fd} 7,{size} dontwait 100")),
                3 => self.say(end, format!("receive {fd} {size} dontwait|trunc")),
                _ => self.say(end, format!("receive {fd} 70000 dontwait")),
            },
            9 => self.say(end, format!("receive {fd} {size} dontwait|peek")),
            10 => self.say(end, format!("fionread {fd}")),
            11 => match variant % 4 {
                0 => self.say(end, format!("select 0 r:3 w:{fd} r:4")),
                1 => self.say(end, format!("getsockopt {fd} error")),
                _ => self.say(end, "poll 0 3:in|out 4:in"),
            },
            12 => self.watch(end, from, variant),
            13 => self.connect(end, from, from, variant, &address),
            14 => self.anew(end, from),
            _ => self.ping_again(end, from, to),
        }
    }

    /// `from` may send to `to`: what others have sent there was read.
    fn turn(&mut self, end: usize, from: u8, to: u8) {
        let other = &mut self.sockets[1 - end][usize::from(to)];
        if other.heard.replace(from).is_some_and(|before| before != from) {
            self.say(1 - end, format!("count {}", 3 + to));
        }
    }

    /// Descriptors stay as they are, the name is another one.
    fn anew(&mut self, end: usize, which: u8) {
        let fd = 3 + which;
        self.say(end, format!("close {fd}"));
        self.say(end, socket(fd));
        self.say(end, format!("bind {fd} 127.0.0.1:0"));
        self.sockets[end][usize::from(which)] = Socket::default();
        // What it has sent before is another's.
        for other in &mut self.sockets[1 - end] {
            if other.heard == Some(which) {
                other.heard = Some(u8::MAX);
            }
        }
    }

    fn watch(&mut self, end: usize, which: u8, variant: u8) {
        let fd = 3 + which;
        let socket = &mut self.sockets[end][usize::from(which)];
        let events = ["in", "in", "in|oneshot", "in|out"][usize::from(variant % 4)];
        match (socket.watched, variant % 5) {
            (false, _) => {
                socket.watched = true;
                self.say(end, format!("epoll_ctl {SET} add {fd} {events}"));
            }
            (true, 0) => self.say(end, format!("epoll_ctl {SET} mod {fd} {events}")),
            (true, 1) => {
                socket.watched = false;
                self.say(end, format!("epoll_ctl {SET} del {fd}"));
            }
            _ => {}
        }
        self.say(end, format!("epoll_wait {SET} 8 0"));
    }

    fn connect(&mut self, end: usize, which: u8, to: u8, variant: u8, address: &str) {
        let fd = 3 + which;
        if variant.is_multiple_of(3) {
            self.sockets[end][usize::from(which)].connected = None;
            self.say(end, format!("disconnect {fd}"));
            // It has no name that is its own now.
            self.anew(end, which);
        } else {
            self.sockets[end][usize::from(which)].connected = Some(to);
            self.say(end, format!("connect {fd} {address}"));
        }
    }

    fn ping_again(&mut self, end: usize, from: u8, to: u8) {
        let (client, server) = if end == 0 { (from, to) } else { (to, from) };
        let hears = |end: usize, which: u8| self.sockets[end][usize::from(which)].connected.is_none();
        if hears(0, client) && hears(1, server) {
            self.ping(client, server);
        }
    }

    /// Datagrams there and back between sockets with nothing to read and no errors.
    fn ping(&mut self, client: u8, server: u8) {
        for (end, which, other) in [(0, client, server), (1, server, client)] {
            let fd = 3 + which;
            self.sockets[end][usize::from(which)].heard = Some(other);
            self.say(end, format!("count {fd}"));
            self.say(end, format!("getsockopt {fd} error"));
        }
        self.say(1, format!("go echoes echo_from {} 40", 3 + server));
        self.say(0, format!("ping_to {} 40 64 127.0.0.1:%port:s:{}", 3 + client, 3 + server));
        self.say(1, "join echoes");
    }
}
