//! A host of one's own on a link: the TCP/IP stack, run by a thread of the library.

use crate::boundary::{Outcome, guarded, read, slice_mut, text, texts, writable, write};
use crate::options::unknown;
use crate::shared::{self, Shared};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::types::{BYPATH_FOREVER, fixed};
use ::bypath_netstack::{Engine, Host, Setup};
use bypath_stack::iface::{AddressState, IfaceId};
use bypath_stack::prefix::Prefix;
use std::ffi::c_char;
use std::net::IpAddr;
use std::time::Duration;

/// Flag: the device of `tap:` or `tun:` exists, and persists. Without it, a device that exists is `BYPATH_E_IN_USE`.
pub const BYPATH_NETSTACK_ATTACH: u32 = 0x1;
/// Flag: an IPv4 address and routes come from a DHCP server.
pub const BYPATH_NETSTACK_DHCP: u32 = 0x2;
/// Flag: no thread of the library's: calls move the frames, and spin where they would sleep. See `bypath_netstack_poll`.
pub const BYPATH_NETSTACK_IN_PROCESS: u32 = 0x4;
/// Every flag there is.
const ALL_FLAGS: u32 = 0x7;

/// How long addresses and a DHCP server are waited for unless it is said otherwise.
const USUAL_WAIT: Duration = Duration::from_secs(30);
/// How long a netstack that is closed has for what is still to be sent.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Room for a counter's name.
pub const BYPATH_COUNTER_NAME: usize = 48;

/// What netstack is wanted. Fill it by `bypath_netstack_options_init`, then change what should differ. It may be thrown away when
/// `bypath_netstack_open` has returned.
#[repr(C)]
pub struct bypath_netstack_options {
    /// Octets of this structure: set by `bypath_netstack_options_init`, by which the library knows what it was given.
    pub size: usize,
    /// What it stands on: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end (`%d` in the name
    /// stands for the first number that is free); `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of
    /// one by AF_XDP: all IP that comes there is the netstack's then.
    pub link: *const c_char,
    /// Its own addresses, each with the length of the network's prefix, such as `10.9.0.2/24`. Best such as the kernel does not
    /// have.
    pub addresses: *const *const c_char,
    /// How many.
    pub address_count: usize,
    /// The kernel's addresses at its end of a device, such as `10.9.0.1/24`.
    pub kernel_addresses: *const *const c_char,
    /// How many.
    pub kernel_address_count: usize,
    /// The routers for all other networks, such as `10.9.0.1`: one of IPv4, one of IPv6.
    pub routers: *const *const c_char,
    /// How many.
    pub router_count: usize,
    /// The name that a DHCP server is told; NULL: none.
    pub host_name: *const c_char,
    /// The longest wait of `bypath_netstack_open` for addresses, in ns: 30 s unless changed. `BYPATH_FOREVER`: no limit.
    pub timeout_ns: u64,
    /// MTU of a device; 0: 1500, or what an existing one has.
    pub mtu: u32,
    /// `BYPATH_NETSTACK_ATTACH`, `BYPATH_NETSTACK_DHCP`, `BYPATH_NETSTACK_IN_PROCESS`, joined by `|`.
    pub flags: u32,
}

/// Fills options with what is usual: `link`, and addresses or `BYPATH_NETSTACK_DHCP`, are to be set.
///
/// Fails with `BYPATH_E_INVALID` if `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_options_init(
    options: *mut bypath_netstack_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let usual = bypath_netstack_options {
            size: size_of::<bypath_netstack_options>(),
            link: std::ptr::null(),
            addresses: std::ptr::null(),
            address_count: 0,
            kernel_addresses: std::ptr::null(),
            kernel_address_count: 0,
            routers: std::ptr::null(),
            router_count: 0,
            host_name: std::ptr::null(),
            timeout_ns: USUAL_WAIT.as_nanos() as u64,
            mtu: 0,
            flags: 0,
        };
        write(options, "options", usual)
    })
}

fn prefix(text: &str) -> Outcome<Prefix> {
    let parsed = text.contains('/').then(|| text.parse().ok()).flatten();
    parsed.ok_or_else(|| {
        Failure::invalid(format!("`{text}` is no address with a prefix: 10.9.0.2/24, fd09::2/64"))
    })
}

fn address(text: &str) -> Outcome<IpAddr> {
    text.parse().map_err(|_| Failure::invalid(format!("`{text}` is no address: 10.9.0.1, fd09::1")))
}

impl bypath_netstack_options {
    fn setup(&self) -> Outcome<Setup> {
        if self.size != size_of::<bypath_netstack_options>() {
            return Err(Failure::invalid(format!(
                "these options have a size of {}, this library's have {}: fill them by bypath_netstack_options_init, and \
                 compile against the header of the library that runs",
                self.size,
                size_of::<bypath_netstack_options>()
            )));
        }
        if self.flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", self.flags & !ALL_FLAGS));
        }
        let link = text(self.link, "link")?;
        let link = link.parse().map_err(|e| Failure::invalid(format!("`{link}`: {e}")))?;
        let mut setup = Setup::on(link);
        for own in texts(self.addresses, self.address_count, "addresses")? {
            setup = setup.address(prefix(own)?);
        }
        for kernels in texts(self.kernel_addresses, self.kernel_address_count, "kernel_addresses")? {
            let kernels = prefix(kernels)?;
            setup = setup.kernel(kernels.address(), kernels.len());
        }
        for router in texts(self.routers, self.router_count, "routers")? {
            setup = setup.router(address(router)?);
        }
        if self.flags & BYPATH_NETSTACK_DHCP != 0 {
            let name = (!self.host_name.is_null()).then(|| text(self.host_name, "host_name")).transpose()?;
            setup = setup.dhcp(name.map(str::to_owned));
        }
        if self.mtu != 0 {
            setup = setup.mtu(self.mtu);
        }
        Ok(if self.flags & BYPATH_NETSTACK_ATTACH != 0 { setup.attach() } else { setup })
    }

    fn open(&self) -> Outcome<Netstack> {
        let longest = match self.timeout_ns {
            BYPATH_FOREVER => Duration::MAX,
            ns => Duration::from_nanos(ns),
        };
        let in_process = self.flags & BYPATH_NETSTACK_IN_PROCESS != 0;
        let setup = self.setup()?;
        let opened = if in_process { setup.spin() } else { setup }.open()?;
        let mtu = opened.engine.mtu(opened.iface).unwrap_or(0);
        let (iface, name) = (opened.iface, opened.name.clone());
        let host = if in_process { opened.in_process(longest)? } else { opened.run(longest)? };
        Ok(Netstack { host, iface, name, mtu })
    }
}

/// A host that runs, and the interface on its link.
pub struct Netstack {
    pub host: Host,
    pub iface: IfaceId,
    name: String,
    mtu: usize,
}

/// A TCP/IP stack of our own on a link, run by a thread of the library's, or by the calls of its sockets. Only pointers to it are of use.
pub struct bypath_netstack {
    shared: Shared<Netstack>,
}

shared::held!(bypath_netstack, Netstack);

/// Runs `f` with the netstack.
pub fn with<R>(netstack: *mut bypath_netstack, f: impl FnOnce(&Netstack) -> Outcome<R>) -> Outcome<R> {
    shared::with(netstack, "netstack", f)
}

/// Opens a link, puts a TCP/IP stack on it, and returns when its addresses can be used. Close it by `bypath_netstack_close`.
///
/// Making a device needs the capability CAP_NET_ADMIN, which root of a user and network namespace of one's own has
/// (`unshare --user --net --map-root-user`); `packet:` CAP_NET_RAW; `xdp:` CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF of the whole
/// machine. When it fails, `*netstack` is NULL and nothing is left behind.
///
/// Fails with `BYPATH_E_IN_USE` where another host has an address, or the device exists, `BYPATH_E_TIMED_OUT` where no DHCP server
/// answers, `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`,
/// `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_UNSUPPORTED`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_open(
    options: *const bypath_netstack_options,
    netstack: *mut *mut bypath_netstack,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(netstack, "netstack", std::ptr::null_mut())?;
        let opened = read(options, "options")?.open()?;
        write(netstack, "netstack", shared::begin(opened))
    })
}

/// Closes it: what is still to be sent is sent, a lease is given back, within 0.2 s; a device that does not persist is gone
/// afterwards. Calls of its sockets that wait, and all later ones, answer `BYPATH_E_GONE`; the sockets are still to be closed. NULL
/// is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_close(
    netstack: *mut bypath_netstack,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        if let Some(netstack) = shared::end(netstack, "netstack")? {
            netstack.host.finish(LAST_WORDS);
        }
        Ok(())
    })
}

/// What a netstack stands on.
#[repr(C)]
pub struct bypath_netstack_obtained {
    /// Octets of the largest packet.
    pub mtu: u32,
    /// The name of the device or interface.
    pub name: [c_char; 16],
}

/// Tells what it stands on. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_read_obtained(
    netstack: *mut bypath_netstack,
    obtained: *mut bypath_netstack_obtained,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let told = |n: &Netstack| Ok(bypath_netstack_obtained { mtu: n.mtu as u32, name: fixed(&n.name) });
        write(obtained, "obtained", with(netstack, told)?)
    })
}

/// Others are still asked whether an address is theirs: it is used for nothing.
pub const BYPATH_ADDRESS_TENTATIVE: u8 = 0;
/// It is used for everything.
pub const BYPATH_ADDRESS_PREFERRED: u8 = 1;
/// It is used by those who have it.
pub const BYPATH_ADDRESS_DEPRECATED: u8 = 2;
/// Another host has it: it is used for nothing.
pub const BYPATH_ADDRESS_DUPLICATE: u8 = 3;

/// An address of a netstack.
#[repr(C)]
pub struct bypath_netstack_address {
    /// In the order in which it is sent: 4 octets of IPv4, or 16 of IPv6.
    pub address: [u8; 16],
    /// 4 or 6.
    pub family: u8,
    /// Bits of the network's prefix.
    pub prefix: u8,
    /// What it may be used for: `BYPATH_ADDRESS_...`
    pub state: u8,
    /// Not used.
    pub reserved: u8,
}

/// Its addresses, those of a DHCP server included.
///
/// Writes up to `capacity` of them into `list`, and into `count` how many there are, which may be more. With a capacity of 0
/// `list` may be NULL. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_addresses(
    netstack: *mut bypath_netstack,
    list: *mut bypath_netstack_address,
    capacity: usize,
    count: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(count, "count")?;
        let places = slice_mut(list, capacity, "list")?;
        let all = with(netstack, |n| {
            Ok(n.host.with(|e| -> Vec<_> {
                e.stack().addresses(n.iface).iter().map(|a| (a.prefix, a.state)).collect()
            }))
        })?;
        for (place, (prefix, state)) in places.iter_mut().zip(&all) {
            let (address, family) = crate::tun::octets_of(prefix.address());
            let state = match state {
                AddressState::Tentative { .. } => BYPATH_ADDRESS_TENTATIVE,
                AddressState::Preferred => BYPATH_ADDRESS_PREFERRED,
                AddressState::Deprecated => BYPATH_ADDRESS_DEPRECATED,
                AddressState::Duplicate => BYPATH_ADDRESS_DUPLICATE,
            };
            *place = bypath_netstack_address { address, family, prefix: prefix.len(), state, reserved: 0 };
        }
        write(count, "count", all.len())
    })
}

/// Gives it one more address, such as `10.9.0.3/24`. One of IPv6 may be used when others were asked whether it is theirs: look at
/// its state. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_add_address(
    netstack: *mut bypath_netstack,
    own: *const c_char,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let prefix = prefix(text(own, "own")?)?;
        with(netstack, |n| {
            let added = n.host.with(|e| e.stack().add_address(Engine::now(), n.iface, prefix));
            added.map_err(|e| Failure::invalid(format!("{prefix}: {e}")))
        })
    })
}

/// Takes an address away, such as `10.9.0.3`. Fails with `BYPATH_E_INVALID`, also if it does not have it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_remove_address(
    netstack: *mut bypath_netstack,
    own: *const c_char,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let ip = address(text(own, "own")?)?;
        with(netstack, |n| {
            let removed = n.host.with(|e| e.stack().remove_address(n.iface, ip));
            removed.then_some(()).ok_or_else(|| Failure::invalid(format!("{ip} is none of its addresses")))
        })
    })
}

/// Something that is counted.
#[repr(C)]
pub struct bypath_counter {
    /// How often, since the netstack was opened.
    pub value: u64,
    /// What: the layer, then the name; with `_drop_` in it and a reason: what ended there.
    pub name: [c_char; BYPATH_COUNTER_NAME],
}

/// What its stack has counted.
///
/// Writes up to `capacity` counters into `list`, and into `count` how many there are, which may be more. With a capacity of 0
/// `list` may be NULL. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_netstack_counters(
    netstack: *mut bypath_netstack,
    list: *mut bypath_counter,
    capacity: usize,
    count: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(count, "count")?;
        let places = slice_mut(list, capacity, "list")?;
        let all = with(netstack, |n| Ok(n.host.with(|e| *e.stack().counters())))?;
        for (place, (name, value)) in places.iter_mut().zip(all.iter()) {
            *place = bypath_counter { value, name: fixed(name) };
        }
        write(count, "count", all.iter().count())
    })
}
