//! TUN devices, and datagrams over them.

use crate::boundary::{Outcome, guarded, octets, read, slice, slice_mut, text, write};
use crate::handle::{self, Handle};
use crate::options::{timeout, unknown};
use crate::receive::{copied, one};
use crate::send::bypath_octets;
use crate::status::{Failure, bypath_error, bypath_status, put_text};
use crate::types::{BYPATH_FOREVER, fixed};
use bypath_link::tun::{Checksum, Datagram, Device, Mode, Offloads, Udp};
use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// An address and a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_endpoint {
    /// The address in the order in which it is sent: 4 octets of IPv4, or 16 of IPv6.
    pub address: [u8; 16],
    /// The port, in the byte order of the host.
    pub port: u16,
    /// 4 or 6.
    pub family: u8,
    /// Not used.
    pub reserved: u8,
}

/// Octets of an endpoint's text, terminating zero included.
pub const BYPATH_ENDPOINT_TEXT: usize = 56;

/// An address's octets, and its family.
pub fn octets_of(ip: IpAddr) -> ([u8; 16], u8) {
    match ip {
        IpAddr::V4(a) => {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&a.octets());
            (address, 4)
        }
        IpAddr::V6(a) => (a.octets(), 6),
    }
}

impl From<SocketAddr> for bypath_endpoint {
    fn from(from: SocketAddr) -> bypath_endpoint {
        let (address, family) = octets_of(from.ip());
        bypath_endpoint { address, port: from.port(), family, reserved: 0 }
    }
}

impl bypath_endpoint {
    /// As the library has it.
    pub fn checked(self) -> Outcome<SocketAddr> {
        let a = self.address;
        let ip: IpAddr = match self.family {
            4 => Ipv4Addr::new(a[0], a[1], a[2], a[3]).into(),
            6 => Ipv6Addr::from(a).into(),
            other => return Err(unknown("family", other.into())),
        };
        Ok(SocketAddr::new(ip, self.port))
    }
}

/// Reads an address and a port, such as `10.9.0.1:9000` or `[fd09::1]:9000`.
///
/// Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_endpoint_parse(
    address: *const c_char,
    endpoint: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(endpoint, "endpoint", socket_address(text(address, "address")?)?.into()))
}

/// Writes an address and a port as text into `BYPATH_ENDPOINT_TEXT` octets.
///
/// Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_endpoint_format(
    endpoint: bypath_endpoint,
    address: *mut c_char,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let place = slice_mut(address, BYPATH_ENDPOINT_TEXT, "address")?;
        put_text(place, &endpoint.checked()?.to_string());
        Ok(())
    })
}

fn socket_address(text: &str) -> Outcome<SocketAddr> {
    text.parse().map_err(|_| {
        Failure::invalid(format!("`{text}` is no address with a port: 10.9.0.1:9000, [fd09::1]:9000"))
    })
}

/// Headers and payload are written from where they are (writev).
pub const BYPATH_TUN_PIECES: u32 = 0;
/// Headers and payload are copied together and written.
pub const BYPATH_TUN_ASSEMBLE: u32 = 1;
/// As pieces, and where many datagrams are given, up to 64 of one size with one system call (USO; Linux 6.2).
pub const BYPATH_TUN_SUPER: u32 = 2;

/// The kernel computes checksums where it offers to, we do elsewhere.
pub const BYPATH_CHECKSUM_USUAL: u32 = 0;
/// The kernel does, if anybody must.
pub const BYPATH_CHECKSUM_KERNEL: u32 = 1;
/// The library does.
pub const BYPATH_CHECKSUM_OWN: u32 = 2;
/// Nobody does, and the datagram says so (IPv4 only).
pub const BYPATH_CHECKSUM_OMITTED: u32 = 3;

/// Flag: the device exists, and persists. Without it, a device that exists is `BYPATH_E_IN_USE`.
pub const BYPATH_TUN_ATTACH: u32 = 0x1;
/// Flag: the device stays when it is closed.
pub const BYPATH_TUN_PERSISTENT: u32 = 0x2;
/// Flag: datagrams must not be cut into fragments (DF).
pub const BYPATH_TUN_DONT_FRAGMENT: u32 = 0x4;
/// Flag: neither side leaves checksums and segmentation to the other.
pub const BYPATH_TUN_NO_OFFLOADS: u32 = 0x8;
/// Every flag there is.
const ALL_FLAGS: u32 = 0xf;

/// What device is wanted, and how datagrams are sent. Fill it by `bypath_tun_options_init`, then change what should differ.
/// It may be thrown away when `bypath_tun_open` has returned.
#[repr(C)]
pub struct bypath_tun_options {
    /// Octets of this structure: set by `bypath_tun_options_init`, by which the library knows what it was given.
    pub size: usize,
    /// The interface's name: `%d` stands for the first number that is free. NULL: `tun%d`.
    pub name: *const c_char,
    /// The kernel's address and the length of the network's prefix, such as `10.9.0.1/24`, through which it reaches us.
    /// NULL: it has one already, or none.
    pub address: *const c_char,
    /// The own address and port, such as `10.9.0.2:7000`, which the kernel reaches through the device and does not have
    /// itself.
    pub local: *const c_char,
    /// Another device node than `/dev/net/tun`; NULL: that one.
    pub path: *const c_char,
    /// The longest wait of a receiving call in ns; `BYPATH_FOREVER` unless changed; 0: it does not wait.
    pub timeout_ns: u64,
    /// Octets of the largest packet; 0: 1500, or what an existing device has.
    pub mtu: u32,
    /// How packets are handed over: `BYPATH_TUN_PIECES`, `BYPATH_TUN_ASSEMBLE`, `BYPATH_TUN_SUPER`.
    pub mode: u32,
    /// Who computes checksums: `BYPATH_CHECKSUM_...`
    pub checksum: u32,
    /// `BYPATH_TUN_ATTACH` and the other flags, joined by `|`.
    pub flags: u32,
    /// Routers that a packet may pass; 0: 64.
    pub ttl: u8,
    /// The differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Not used.
    pub reserved: [u8; 6],
}

/// Fills options with what is usual: `local` is to be set.
///
/// Fails with `BYPATH_E_INVALID` if `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_options_init(
    options: *mut bypath_tun_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let usual = bypath_tun_options {
            size: size_of::<bypath_tun_options>(),
            name: std::ptr::null(),
            address: std::ptr::null(),
            local: std::ptr::null(),
            path: std::ptr::null(),
            timeout_ns: BYPATH_FOREVER,
            mtu: 0,
            mode: BYPATH_TUN_PIECES,
            checksum: BYPATH_CHECKSUM_USUAL,
            flags: 0,
            ttl: 0,
            dscp: 0,
            reserved: [0; 6],
        };
        write(options, "options", usual)
    })
}

fn mode(number: u32) -> Outcome<Mode> {
    match number {
        BYPATH_TUN_PIECES => Ok(Mode::Pieces),
        BYPATH_TUN_ASSEMBLE => Ok(Mode::Assemble),
        BYPATH_TUN_SUPER => Ok(Mode::Super),
        other => Err(unknown("mode", other)),
    }
}

impl bypath_tun_options {
    fn device(&self) -> Outcome<Device> {
        let name = if self.name.is_null() { "tun%d" } else { text(self.name, "name")? };
        let mut builder = Device::tun(name);
        if !self.path.is_null() {
            builder = builder.path(text(self.path, "path")?);
        }
        if !self.address.is_null() {
            let address = text(self.address, "address")?;
            let parts = address
                .split_once('/')
                .and_then(|(ip, prefix)| Some((ip.parse().ok()?, prefix.parse().ok()?)));
            let (ip, prefix) = parts.ok_or_else(|| {
                Failure::invalid(format!("`{address}` is no address with a prefix: 10.9.0.1/24, fd09::1/64"))
            })?;
            builder = builder.address(ip, prefix);
        }
        if self.mtu != 0 {
            builder = builder.mtu(self.mtu);
        }
        if self.flags & BYPATH_TUN_ATTACH != 0 {
            builder = builder.attach();
        }
        if self.flags & BYPATH_TUN_PERSISTENT != 0 {
            builder = builder.persistent(true);
        }
        if self.flags & BYPATH_TUN_NO_OFFLOADS != 0 {
            builder = builder.offloads(Offloads::NONE);
        }
        Ok(builder.open()?)
    }

    fn open(&self) -> Outcome<Udp> {
        if self.size != size_of::<bypath_tun_options>() {
            return Err(Failure::invalid(format!(
                "these options have a size of {}, this library's have {}: fill them by bypath_tun_options_init, and \
                 compile against the header of the library that runs",
                self.size,
                size_of::<bypath_tun_options>()
            )));
        }
        if self.flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", self.flags & !ALL_FLAGS));
        }
        let local = socket_address(text(self.local, "local")?)?;
        let mode = mode(self.mode)?;
        let checksum = match self.checksum {
            BYPATH_CHECKSUM_USUAL => None,
            BYPATH_CHECKSUM_KERNEL => Some(Checksum::Kernel),
            BYPATH_CHECKSUM_OWN => Some(Checksum::Own),
            BYPATH_CHECKSUM_OMITTED => Some(Checksum::Omitted),
            other => return Err(unknown("checksum", other)),
        };
        let mut udp = Udp::over(self.device()?, local).mode(mode).dscp(self.dscp);
        udp = udp.ttl(if self.ttl == 0 { 64 } else { self.ttl });
        udp = udp.dont_fragment(self.flags & BYPATH_TUN_DONT_FRAGMENT != 0);
        if let Some(who) = checksum {
            udp = udp.checksum(who);
        }
        if let Some(longest) = timeout(self.timeout_ns) {
            udp = udp.timeout(longest);
        }
        Ok(udp.open()?)
    }
}

/// A TUN device, and the datagrams of one own address over it. Only pointers to it are of use.
pub struct bypath_tun {
    handle: Handle<Udp>,
}

handle::held!(bypath_tun, Udp);

fn with<R>(tun: *mut bypath_tun, f: impl FnOnce(&mut Udp) -> Outcome<R>) -> Outcome<R> {
    handle::with(tun, "tun", f)
}

/// Makes a TUN device, or attaches to one, and begins to send and receive datagrams. Close it by `bypath_tun_close`.
///
/// Making one needs the capability CAP_NET_ADMIN, which root of a user and network namespace of one's own has
/// (`unshare --user --net --map-root-user`). When it fails, `*tun` is NULL and nothing is left behind.
///
/// Fails with `BYPATH_E_NAME`, `BYPATH_E_IN_USE` for a name that is taken, `BYPATH_E_UNKNOWN`, `BYPATH_E_NOT_ALLOWED`,
/// `BYPATH_E_UNSUPPORTED` where there is no TUN device or it has no super-packets, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_open(
    options: *const bypath_tun_options,
    tun: *mut *mut bypath_tun,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(tun, "tun", std::ptr::null_mut())?;
        let opened = read(options, "options")?.open()?;
        write(tun, "tun", handle::begin(opened))
    })
}

/// Closes it; a device that does not persist is gone afterwards. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_close(tun: *mut bypath_tun, error: *mut bypath_error) -> bypath_status {
    guarded(error, || {
        drop(handle::end(tun, "tun")?);
        Ok(())
    })
}

/// The descriptor to poll: readable (POLLIN) when a packet may be there. Read, write and close it by this library only. It
/// is valid until `bypath_tun_close`. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_descriptor(
    tun: *mut bypath_tun,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(descriptor, "descriptor", with(tun, |t| Ok(t.device().as_fd().as_raw_fd()))?))
}

/// Changes the longest wait of receiving calls, in ns; `BYPATH_FOREVER`: no limit; 0: they do not wait. Fails with
/// `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_set_timeout(
    tun: *mut bypath_tun,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(tun, |t| {
            t.set_timeout(timeout(timeout_ns));
            Ok(())
        })
    })
}

/// Changes how packets are handed over: `BYPATH_TUN_PIECES`, `BYPATH_TUN_ASSEMBLE`, `BYPATH_TUN_SUPER`. Fails with
/// `BYPATH_E_UNSUPPORTED`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_set_mode(
    tun: *mut bypath_tun,
    how: u32,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let how = mode(how)?;
        with(tun, |t| Ok(t.set_mode(how)?))
    })
}

/// What became of what was asked.
#[repr(C)]
pub struct bypath_tun_obtained {
    /// Octets of the longest datagram.
    pub most_payload: usize,
    /// Octets of the longest datagram that is not cut.
    pub most_uncut: usize,
    /// The interface's number.
    pub index: u32,
    /// Its MTU.
    pub mtu: u32,
    /// The interface's name.
    pub name: [c_char; 16],
    /// 1 if the kernel takes and gives datagrams without a checksum.
    pub checksum: u8,
    /// 1 if it takes and gives TCP super-packets.
    pub tcp: u8,
    /// 1 if it takes and gives super-packets of datagrams.
    pub udp: u8,
    /// 1 if the device stays when it is closed.
    pub persistent: u8,
    /// 1 if it did not exist before.
    pub created: u8,
    /// Not used.
    pub reserved: [u8; 3],
}

/// Tells what became of what was asked. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_read_obtained(
    tun: *mut bypath_tun,
    obtained: *mut bypath_tun_obtained,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let told = with(tun, |t| {
            let (most_payload, most_uncut) = (t.most_payload(), t.most_uncut());
            let device = t.device();
            let got = device.obtained();
            Ok(bypath_tun_obtained {
                most_payload,
                most_uncut,
                index: device.index(),
                mtu: device.mtu() as u32,
                name: fixed(device.name()),
                checksum: got.offloads.checksum.into(),
                tcp: got.offloads.tcp.into(),
                udp: got.offloads.udp.into(),
                persistent: got.persistent.into(),
                created: got.created.into(),
                reserved: [0; 3],
            })
        })?;
        write(obtained, "obtained", told)
    })
}

/// Sends one datagram. One that does not fit into the MTU is cut into fragments, unless `BYPATH_TUN_DONT_FRAGMENT` was asked.
///
/// Fails with `BYPATH_E_TOO_LONG`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`,
/// `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_send(
    tun: *mut bypath_tun,
    to: bypath_endpoint,
    payload: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let payload = octets(payload, len, "payload")?;
        let to = to.checked()?;
        with(tun, |t| Ok(t.send(to, payload)?))
    })
}

/// Sends many datagrams to one receiver; with `BYPATH_TUN_SUPER` those of one size that follow each other by one system call.
///
/// `*sent` is how many were sent: fewer than `count` if something went wrong after the first ones; 0 if it fails. Fails as
/// `bypath_tun_send` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_send_batch(
    tun: *mut bypath_tun,
    to: bypath_endpoint,
    payloads: *const bypath_octets,
    count: usize,
    sent: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(sent, "sent", 0)?;
        let to = to.checked()?;
        let payloads = slice(payloads, count, "payloads")?;
        for payload in payloads {
            octets(payload.data, payload.len, "data")?;
        }
        // All of them are as they should be: none is left out.
        let all = payloads.iter().filter_map(|p| octets(p.data, p.len, "data").ok());
        write(sent, "sent", with(tun, |t| Ok(t.send_batch(to, all)?))?)
    })
}

/// Cuts octets into datagrams of `size`, the last of which may be shorter, and sends them; with `BYPATH_TUN_SUPER` up to 64
/// by one system call, and nothing is copied.
///
/// `*sent` is how many datagrams were sent; 0 if it fails. Fails as `bypath_tun_send` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_send_cut(
    tun: *mut bypath_tun,
    to: bypath_endpoint,
    data: *const c_void,
    len: usize,
    size: usize,
    sent: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(sent, "sent", 0)?;
        let data = octets(data, len, "data")?;
        let to = to.checked()?;
        write(sent, "sent", with(tun, |t| Ok(t.send_cut(to, data, size)?))?)
    })
}

/// What is known of a received datagram.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_tun_datagram {
    /// Octets of payload in the buffer.
    pub len: usize,
    /// Octets of payload that the datagram had: more than `len` if the buffer was too short.
    pub whole: usize,
    /// From whom.
    pub source: bypath_endpoint,
    /// Routers that it might still have passed.
    pub ttl: u8,
    /// Type of service, traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class_octet: u8,
    /// Not used.
    pub reserved: [u8; 2],
}

impl bypath_tun_datagram {
    fn of(d: &Datagram<'_>, len: usize) -> bypath_tun_datagram {
        bypath_tun_datagram {
            len,
            whole: d.payload.len(),
            source: d.source.into(),
            ttl: d.ttl,
            class_octet: d.class.0,
            reserved: [0; 2],
        }
    }
}

/// Waits for a datagram to the own address and copies its payload into `buffer`, as much as fits.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_UNREACHABLE` once when a host
/// answered that nobody takes what was sent, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_receive(
    tun: *mut bypath_tun,
    buffer: *mut c_void,
    capacity: usize,
    datagram: *mut bypath_tun_datagram,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        one(buffer, capacity, datagram, "datagram", |buffer, known| {
            let each =
                |d: Datagram<'_>| *known = Some(bypath_tun_datagram::of(&d, copied(d.payload, buffer)));
            with(tun, |t| Ok(t.receive_batch(1, each)?))
        })
    })
}

/// Takes a received datagram: `context` is what was given to `bypath_tun_receive_each`, `payload` has `datagram->len` octets.
/// Both `datagram` and `payload` are there until it returns.
///
/// It must return: no longjmp, no exception. Calls with the same device are answered with `BYPATH_E_BUSY` meanwhile.
pub type bypath_tun_taker = Option<
    unsafe extern "C" fn(context: *mut c_void, datagram: *const bypath_tun_datagram, payload: *const c_void),
>;

/// Waits for a datagram, and gives it and those that are there already, up to `most`, to `taker`, one after the other. Those
/// of a super-packet come out of one system call, and nothing is copied.
///
/// `*received` is how many were given: 0 only if it fails, or if `most` is 0. Fails as `bypath_tun_receive` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tun_receive_each(
    tun: *mut bypath_tun,
    most: usize,
    taker: bypath_tun_taker,
    context: *mut c_void,
    received: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(received, "received", 0)?;
        let taker = taker.ok_or_else(|| Failure::invalid("`taker` is NULL"))?;
        let each = |d: Datagram<'_>| {
            let datagram = bypath_tun_datagram::of(&d, d.payload.len());
            // SAFETY: the caller's function, with the caller's context; datagram and payload outlive the call.
            unsafe { taker(context, &datagram, d.payload.as_ptr().cast()) };
        };
        write(received, "received", with(tun, |t| Ok(t.receive_batch(most, each)?))?)
    })
}
