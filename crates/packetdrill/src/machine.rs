//! What one lock guards: the stack, its clock, the packets that have left it, and the descriptors.

use crate::clock::Clock;
use crate::cut;
use crate::file::{File, FileId, Files, Kind};
use crate::flags::Flags;
use crate::sysctl;
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::event::Event;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::linux::errno as errors;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_stack::time::Instant;
use bypath_sys::netlink::Netlink;
use bypath_wire::FrameMeta;
use std::collections::VecDeque;

/// Octets of the longest headers of a packet: IPv6 and TCP with all options, and a frame's.
const HEADERS: usize = 118;
/// Ports of sockets that choose none: Linux's range.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// A packet that has left, and when.
#[derive(Debug)]
pub struct Packet {
    pub octets: Vec<u8>,
    pub at: Instant,
}

#[derive(Debug)]
pub struct Machine {
    pub stack: Stack,
    iface: IfaceId,
    pub clock: Clock,
    pub flags: Flags,
    pub left: VecDeque<Packet>,
    room: Vec<u8>,
    /// Of the network namespace whose settings are those of the machine.
    namespace: Option<Netlink>,
    pub files: Files,
    /// In virtual time: calls that wait; those of them that have not looked yet at what happened last; which happening that
    /// was; and when calls are over in any case.
    pub sleepers: usize,
    pub owed: usize,
    pub epoch: u64,
    pub alarms: Vec<Instant>,
    /// A call that waited has returned lately: its thread has things to do.
    pub returned: bool,
    pub over: bool,
}

impl Machine {
    pub fn new(flags: Flags, seed: [u8; 32]) -> Result<Machine, String> {
        let clock = Clock::new(flags.time);
        let now = clock.now();
        let mut stack = Stack::new(Config { ephemeral: PORTS, ..Config::default() }, seed);
        let offload = Offload { checksum: flags.gso > 0, segmentation: flags.gso > 0 };
        let iface = stack
            .add_iface(IfaceConfig { medium: Medium::Ip, mtu: flags.mtu, offload })
            .map_err(|error| error.to_string())?;
        for address in &flags.local {
            stack.add_address(now, iface, *address).map_err(|error| format!("{address}: {error}"))?;
        }
        for network in &flags.remote {
            let prefix = network.network();
            // It may be that of an address.
            let _ = stack.add_route(Route { prefix, iface, via: None, metric: 1, source: None });
        }
        let longest = flags.mtu.max(if flags.gso > 0 { flags.gso + HEADERS } else { 0 });
        let namespace =
            if flags.sysctl { Some(Netlink::open().map_err(|error| error.to_string())?) } else { None };
        Ok(Machine {
            stack,
            iface,
            clock,
            flags,
            left: VecDeque::new(),
            room: vec![0; longest],
            namespace,
            files: Files::default(),
            sleepers: 0,
            owed: 0,
            epoch: 0,
            alarms: Vec::new(),
            returned: false,
            over: false,
        })
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// A descriptor is closed, and what it stands for with the last of them.
    ///
    /// # Errors
    /// EBADF.
    pub fn close(&mut self, fd: i32) -> errors::Result<()> {
        if let Some((id, file)) = self.files.remove(fd)? {
            self.end(id, file);
        }
        Ok(())
    }

    /// What no descriptor stands for any more ends.
    pub fn end(&mut self, id: FileId, file: File) {
        self.unwatch(id);
        match file.kind {
            Kind::Pipe(pipe, true) => self.files.pipes[pipe].open.1 = false,
            Kind::Pipe(pipe, false) => self.files.pipes[pipe].open.0 = false,
            _ => {}
        }
        if let Some(socket) = file.socket {
            self.stack.close(socket.id);
        }
    }

    /// What routes of the namespace say of the ways to others is so from now on.
    pub fn learn_routes(&mut self) {
        let Some(namespace) = &self.namespace else { return };
        for network in &self.flags.remote {
            let found = sysctl::metrics(namespace, network.address());
            // The stack takes more than flags have room for.
            let _fits = self.stack.set_metrics(Prefix::host(network.address()), found);
        }
    }

    /// A packet comes.
    pub fn take(&mut self, packet: &[u8]) {
        self.learn_routes();
        let now = self.now();
        self.expire(now);
        self.stack.handle_frame(now, self.iface, packet, &FrameMeta::default());
    }

    /// When something is due.
    pub fn next(&self) -> Option<Instant> {
        self.alarms.iter().copied().chain(self.timeout()).min()
    }

    /// When the stack's next timer is noticed.
    pub fn timeout(&self) -> Option<Instant> {
        self.stack.poll_timeout().map(|at| at + self.flags.late)
    }

    /// Lets the stack's timers expire that are noticed by now.
    fn expire(&mut self, now: Instant) {
        if self.timeout().is_some_and(|at| at <= now) {
            self.stack.handle_timeout(now);
        }
    }

    /// Does what is due, lets packets leave, and notes what sockets have to tell; whether anything happened.
    pub fn run(&mut self) -> bool {
        let mut busy = false;
        loop {
            let now = self.now();
            self.expire(now);
            let mut idle = true;
            while let Some((len, meta)) = self.stack.poll_transmit(now, self.iface, &mut self.room) {
                let octets = &self.room[..len];
                let packets = match meta.gso {
                    Some(gso) if self.flags.cut => cut::cut(octets, &gso),
                    _ => vec![octets.to_vec()],
                };
                self.left.extend(packets.into_iter().map(|octets| Packet { octets, at: now }));
                idle = false;
            }
            while let Some(event) = self.stack.poll_event() {
                if let Event::Socket { id, ready } = event
                    && let Some(file) = self.files.of(id)
                {
                    // That one was announced only wakes nobody.
                    let urgent = ready.urgent && self.stack.tcp(id).is_some_and(|mut tcp| tcp.has_urgent());
                    self.kick(file, ready.readable | urgent | ready.error, ready.writable | ready.error);
                }
                idle = false;
            }
            self.look_for_room();
            busy |= !idle;
            if idle && self.timeout().is_none_or(|at| at > now) {
                return busy;
            }
        }
    }
}
