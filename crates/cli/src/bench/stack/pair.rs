//! Two stacks in one process, with a cable between them: each frame that one of them says is handed to the other at once.

use super::write::MACS;
use bypath::wire::FrameMeta;
use bypath::wire::ethernet;
use bypath::wire::meta::ChecksumState;
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::ReadError;
use bypath_stack::time::Instant;
use bypath_sys::clock::monotonic_ns;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Who asks for connections.
pub const CLIENT: usize = 0;
/// Who is asked.
pub const SERVER: usize = 1;
/// Frames that one side says before it is the other one's turn.
const TURN: usize = 64;
/// Where the server listens.
const PORT: u16 = 80;
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

/// What the cable is like.
#[derive(Clone, Copy, Debug)]
pub struct Cable {
    /// Octets of a packet at most.
    pub mtu: usize,
    /// The stacks compute checksums and look at them; else nobody does.
    pub checksums: bool,
}

impl Cable {
    /// As Ethernet has it.
    pub const ETHERNET: Cable = Cable { mtu: 1500, checksums: true };
}

/// A stack with its interface.
pub struct Side {
    pub stack: Stack,
    pub iface: IfaceId,
}

/// Both stacks.
pub struct Pair {
    pub sides: [Side; 2],
    cable: Cable,
    /// As long as a frame may be, and no longer.
    room: Vec<u8>,
    listener: SocketId,
}

/// The time of day of stacks that are measured.
#[inline]
pub fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

impl Side {
    fn new(which: usize, own: IpAddr, cable: Cable, config: Config) -> Result<Side, String> {
        let mut stack = Stack::new(config, [which as u8 + 1; 32]);
        let offload = Offload { checksum: !cable.checksums, segmentation: false };
        let shape = IfaceConfig { medium: Medium::Ethernet(MACS[which]), mtu: cable.mtu, offload };
        let iface = stack.add_iface(shape).map_err(|e| e.to_string())?;
        let prefix = format!("{own}/8").parse().expect("a prefix");
        stack.add_address(Instant::ZERO, iface, prefix).map_err(|e| e.to_string())?;
        Ok(Side { stack, iface })
    }

    /// A client of the same cable with another address.
    pub fn client(own: IpAddr, cable: Cable) -> Result<Side, String> {
        let mut side = Side::new(CLIENT, own, cable, Config::default())?;
        side.stack.set_neighbor(side.iface, ADDRESSES[SERVER].into(), MACS[SERVER]);
        Ok(side)
    }
}

impl Pair {
    /// A client, and a server that listens.
    pub fn new(cable: Cable, config: &Config) -> Result<Pair, String> {
        let mut sides = [
            Side::new(CLIENT, ADDRESSES[CLIENT].into(), cable, config.clone())?,
            Side::new(SERVER, ADDRESSES[SERVER].into(), cable, config.clone())?,
        ];
        for which in [CLIENT, SERVER] {
            let Side { stack, iface } = &mut sides[which];
            stack.set_neighbor(*iface, ADDRESSES[1 - which].into(), MACS[1 - which]);
        }
        let stack = &mut sides[SERVER].stack;
        let listener = stack.open_tcp().map_err(|e| e.to_string())?;
        let mut tcp = stack.tcp(listener).ok_or("no socket")?;
        tcp.bind(SocketAddr::new(ADDRESSES[SERVER].into(), PORT)).map_err(|e| e.to_string())?;
        tcp.listen(16).map_err(|e| e.to_string())?;
        let mut pair = Pair { sides, cable, room: vec![0; ethernet::HEADER_LEN + cable.mtu], listener };
        // The announcements of their addresses.
        pair.settle(Instant::ZERO)?;
        Ok(pair)
    }

    /// Another client is plugged in; the one that was.
    pub fn plug(&mut self, client: Side, address: IpAddr) -> Side {
        let Side { stack, iface } = &mut self.sides[SERVER];
        stack.set_neighbor(*iface, address, MACS[CLIENT]);
        std::mem::replace(&mut self.sides[CLIENT], client)
    }

    /// Carries what one side has to say; how many frames that was.
    #[inline]
    pub fn carry(&mut self, now: Instant, from: usize) -> Result<usize, String> {
        let [client, server] = &mut self.sides;
        let (from, to) = if from == CLIENT { (client, server) } else { (server, client) };
        if from.stack.poll_timeout().is_some_and(|due| due <= now) {
            from.stack.handle_timeout(now);
        }
        let mut frames = 0;
        while frames < TURN
            && let Some((len, meta)) = from.stack.poll_transmit(now, from.iface, &mut self.room)
        {
            frames += 1;
            let checksum = match (self.cable.checksums, meta.checksum) {
                (true, ChecksumState::Unknown) => ChecksumState::Unknown,
                (false, _) => ChecksumState::Verified,
                (true, other) => return Err(format!("checksum of a frame: {other:?}")),
            };
            let meta = FrameMeta { checksum, ..FrameMeta::default() };
            to.stack.handle_frame(now, to.iface, &self.room[..len], &meta);
        }
        for side in &mut self.sides {
            while side.stack.poll_event().is_some() {}
        }
        Ok(frames)
    }

    /// Carries until nobody has anything to say.
    pub fn settle(&mut self, now: Instant) -> Result<(), String> {
        while self.carry(now, CLIENT)? + self.carry(now, SERVER)? > 0 {}
        Ok(())
    }

    /// The client asks for a connection, from this port or one that it chooses; its socket. The server's SYN has come.
    #[inline]
    pub fn connect(&mut self, now: Instant, from: Option<SocketAddr>) -> Result<SocketId, String> {
        let stack = &mut self.sides[CLIENT].stack;
        let id = stack.open_tcp().map_err(|e| e.to_string())?;
        let mut tcp = stack.tcp(id).ok_or("no socket")?;
        if let Some(from) = from {
            tcp.bind(from).map_err(|e| e.to_string())?;
        }
        tcp.connect(now, SocketAddr::new(ADDRESSES[SERVER].into(), PORT)).map_err(|e| e.to_string())?;
        self.carry(now, CLIENT)?;
        self.carry(now, SERVER)?;
        Ok(id)
    }

    /// The server takes the next connection.
    #[inline]
    pub fn accept(&mut self) -> Result<SocketId, String> {
        let mut tcp = self.sides[SERVER].stack.tcp(self.listener).ok_or("no listener")?;
        tcp.accept().map_err(|e| e.to_string())
    }

    /// A connection, with both of its sockets.
    pub fn open(&mut self, now: Instant, from: Option<SocketAddr>) -> Result<[SocketId; 2], String> {
        let client = self.connect(now, from)?;
        self.carry(now, CLIENT)?;
        Ok([client, self.accept()?])
    }

    /// Writes; how many octets there was room for.
    #[inline]
    pub fn write(&mut self, side: usize, id: SocketId, octets: &[u8]) -> Result<usize, String> {
        use bypath_stack::tcp::error::WriteError;
        let mut tcp = self.sides[side].stack.tcp(id).ok_or("no socket")?;
        match tcp.write(octets) {
            Ok(n) => Ok(n),
            Err(WriteError::Full) => Ok(0),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Reads; `None`: there is nothing yet. 0: the other side has finished.
    #[inline]
    pub fn read(&mut self, side: usize, id: SocketId, room: &mut [u8]) -> Result<Option<usize>, String> {
        let mut tcp = self.sides[side].stack.tcp(id).ok_or("no socket")?;
        match tcp.read(room) {
            Ok(n) => Ok(Some(n)),
            Err(ReadError::Empty) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Reads octets where they lie, at most so many, in one piece; `None`: there is nothing yet. 0: the other side has finished.
    #[inline]
    pub fn read_with(
        &mut self,
        side: usize,
        id: SocketId,
        most: usize,
        take: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Option<usize>, String> {
        let mut tcp = self.sides[side].stack.tcp(id).ok_or("no socket")?;
        match tcp.read_with(most, take) {
            Ok(n) => Ok(Some(n)),
            Err(ReadError::Empty) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Sends one octet, which the other side reads.
    #[inline]
    pub fn pass(&mut self, now: Instant, from: usize, ids: [SocketId; 2], octet: u8) -> Result<(), String> {
        if self.write(from, ids[from], &[octet])? != 1 {
            return Err("no room for an octet".into());
        }
        self.carry(now, from)?;
        // Room for more: one is what must come.
        let mut room = [0; 2];
        match self.read(1 - from, ids[1 - from], &mut room)? {
            Some(1) if room[0] == octet => Ok(()),
            Some(n) => Err(format!("{n} octets read, the first one {}, not {octet}", room[0])),
            None => Err("an octet did not come".into()),
        }
    }
}

/// The address of a client that is one of many.
pub fn elsewhere(n: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 1).to_bits() + n))
}
