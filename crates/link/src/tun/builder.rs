//! Says what device is wanted, and makes it.

use super::device::{Device, Kind, Obtained, Offloads};
use super::refused::Refused;
use crate::{Error, MacAddr, Result};
use bypath_sys::tun::{self, Flags, Tun};
use bypath_sys::{Errno, netif, netns};
use std::ffi::CString;
use std::net::IpAddr;

/// How long the kernel may take to use an IPv6 address; it does so in a millisecond.
const PATIENCE_NS: u64 = 5_000_000_000;

/// A device to be made or attached to: see [`Device::tun`].
#[derive(Clone, Debug)]
#[must_use = "nothing is made before `open`"]
pub struct Builder {
    kind: Kind,
    name: String,
    path: String,
    attach: bool,
    persistent: Option<bool>,
    owner: Option<u32>,
    group: Option<u32>,
    offloads: Offloads,
    mtu: Option<u32>,
    addresses: Vec<(IpAddr, u8)>,
    mac: Option<MacAddr>,
    up: bool,
}

impl Builder {
    pub(super) fn new(kind: Kind, name: &str) -> Builder {
        Builder {
            kind,
            name: name.to_owned(),
            path: tun::PATH.to_string_lossy().into_owned(),
            attach: false,
            persistent: None,
            owner: None,
            group: None,
            offloads: Offloads::ALL,
            mtu: None,
            addresses: Vec::new(),
            mac: None,
            up: true,
        }
    }

    /// The device exists, and persists. It is an error if it does not; without this it is one if it does.
    pub fn attach(mut self) -> Builder {
        self.attach = true;
        self
    }

    /// It stays when it is closed, until it is removed (`ip link del NAME`), or from now on no longer. Unless asked: as it
    /// is, and a new one goes with its last queue.
    pub fn persistent(mut self, on: bool) -> Builder {
        self.persistent = Some(on);
        self
    }

    /// The user who may attach to it without a capability.
    pub fn owner(mut self, user: u32) -> Builder {
        self.owner = Some(user);
        self
    }

    /// The group whose members may.
    pub fn group(mut self, group: u32) -> Builder {
        self.group = Some(group);
        self
    }

    /// What is left to the other side, as far as the kernel grants it; all there is unless asked.
    pub fn offloads(mut self, offloads: Offloads) -> Builder {
        self.offloads = offloads;
        self
    }

    /// Octets of the largest packet; 1500 unless asked, or what an existing device has.
    pub fn mtu(mut self, octets: u32) -> Builder {
        self.mtu = Some(octets);
        self
    }

    /// The kernel gets this address, and reaches its network through the device. May be called again.
    pub fn address(mut self, address: IpAddr, prefix: u8) -> Builder {
        self.addresses.push((address, prefix));
        self
    }

    /// This end's own hardware address (TAP); one beside the kernel's unless asked.
    pub fn mac(mut self, mac: MacAddr) -> Builder {
        self.mac = Some(mac);
        self
    }

    /// Whether it is switched on; it is unless asked.
    pub fn up(mut self, on: bool) -> Builder {
        self.up = on;
        self
    }

    /// Another node than `/dev/net/tun`.
    pub fn path(mut self, path: &str) -> Builder {
        self.path = path.to_owned();
        self
    }

    /// Makes the device, or attaches to it.
    ///
    /// # Errors
    /// [`Error::Tun`] with what is missing; others of the system. Nothing is left behind.
    pub fn open(self) -> Result<Device> {
        let mut queues = self.open_all(1, false)?;
        queues.pop().ok_or_else(|| Error::Invalid("no queue".to_owned()))
    }

    /// The same with several queues: the kernel spreads packets over them by flow, and each may be used by a thread of its
    /// own.
    ///
    /// # Errors
    /// Those of [`open`](Builder::open); [`Refused::Queues`].
    pub fn open_queues(self, count: usize) -> Result<Vec<Device>> {
        if count == 0 {
            return Err(Error::Invalid(
                "a device without a queue carries nothing: ask for one or more".to_owned(),
            ));
        }
        self.open_all(count, true)
    }

    fn open_all(self, count: usize, several: bool) -> Result<Vec<Device>> {
        self.check()?;
        let mut several = several;
        let first = self.node()?;
        let name = self.join(&first, &mut several)?;
        let mut files = vec![first];
        for _ in 1..count {
            let file = self.node()?;
            let flags = self.flags(several);
            file.attach(&name, flags).map_err(|e| match e {
                Errno::INVAL => {
                    self.no_queues(&name, count, "it was made with one queue (make it with multi_queue)")
                }
                Errno::TOOBIG => {
                    self.no_queues(&name, count, "the kernel's driver has no more; ask for fewer")
                }
                e => self.not_attached(e),
            })?;
            files.push(file);
        }
        let mut notes = Vec::new();
        let offloads = self.negotiate(&files, &mut notes)?;
        self.set_up(&files[0], &name)?;
        let found = netif::by_name(&name).map_err(|e| Error::system("ask for the interface", e))?;
        let told = files[0].interface().map_err(|e| Error::system("ask for the device", e))?.1;
        let obtained = Obtained {
            offloads,
            queues: count,
            multi_queue: several,
            created: !self.attach,
            persistent: told.has(Flags::PERSISTENT),
            notes,
        };
        let mac = match self.kind {
            Kind::Tun => MacAddr([0; 6]),
            Kind::Tap => self.mac.unwrap_or_else(|| beside(found.mac)),
        };
        Ok(files
            .into_iter()
            .map(|file| Device::new(file, self.kind, name.clone(), &found, mac, obtained.clone()))
            .collect())
    }

    /// What can be told before anything is made.
    fn check(&self) -> Result<()> {
        let n = &self.name;
        let numbered = n.matches('%').count();
        let bad = !crate::Interface::is_name(n) || numbered > 1 || numbered == 1 && !n.contains("%d");
        if bad || self.attach && numbered > 0 {
            return Err(Refused::Name { interface: n.clone() }.into());
        }
        for &(address, prefix) in &self.addresses {
            let most = if address.is_ipv4() { 32 } else { 128 };
            if prefix > most {
                return Err(Error::Invalid(format!("{address}/{prefix}: a prefix has {most} bits at most")));
            }
            if let (IpAddr::V6(_), Some(mtu @ ..1280)) = (address, self.mtu) {
                let (interface, mtu) = (n.clone(), mtu as usize);
                return Err(Refused::MtuTooSmall { interface, mtu, what: "IPv6", least: 1280 }.into());
            }
        }
        if self.kind == Kind::Tun && self.mac.is_some() {
            return Err(Error::Invalid("a TUN device has no hardware address; a TAP device has".to_owned()));
        }
        Ok(())
    }

    fn node(&self) -> Result<Tun> {
        let path = || self.path.clone();
        let node = CString::new(self.path.as_str()).map_err(|_| Refused::Missing { path: path() })?;
        let file = Tun::open(&node).map_err(|e| match e {
            Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::NOTDIR => {
                Error::from(Refused::Missing { path: path() })
            }
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Refused::Forbidden { path: path() }.into(),
            Errno::ISDIR => Refused::NotTun { path: path() }.into(),
            e => Error::system("open the TUN device", e),
        })?;
        file.features().map_err(|_| Refused::NotTun { path: path() })?;
        Ok(file)
    }

    fn flags(&self, several: bool) -> Flags {
        let kind = match self.kind {
            Kind::Tun => Flags::TUN,
            Kind::Tap => Flags::TAP,
        };
        let flags = kind.and(Flags::NO_INFORMATION).and(Flags::VNET_HEADER);
        if several { flags.and(Flags::MULTI_QUEUE) } else { flags }
    }

    /// Makes the interface, or attaches to it, and returns its name.
    fn join(&self, file: &Tun, several: &mut bool) -> Result<String> {
        if !self.attach {
            return file
                .attach(&self.name, self.flags(*several).and(Flags::EXCLUSIVE))
                .map_err(|e| self.not_made(e));
        }
        let found = crate::Interface::named(&self.name)?;
        let fits = match self.kind {
            Kind::Tun => !found.ethernet,
            Kind::Tap => found.ethernet && !found.loopback,
        };
        if !fits {
            return Err(self.other_kind());
        }
        match file.attach(&self.name, self.flags(*several)) {
            // One with several queues must be asked as such, one without must not.
            Err(Errno::INVAL) => {
                let name =
                    file.attach(&self.name, self.flags(!*several)).map_err(|e| self.not_attached(e))?;
                *several = !*several;
                Ok(name)
            }
            other => other.map_err(|e| self.not_attached(e)),
        }
    }

    fn other_kind(&self) -> Error {
        Refused::OtherKind { interface: self.name.clone(), kind: self.kind }.into()
    }

    fn no_queues(&self, name: &str, asked: usize, why: &'static str) -> Error {
        Refused::Queues { interface: name.to_owned(), asked, why }.into()
    }

    fn not_made(&self, e: Errno) -> Error {
        let interface = self.name.clone();
        match e {
            Errno::PERM | Errno::ACCESS => {
                // As somebody else would make it.
                let interface = interface.replace("%d", "0");
                Refused::NotAllowed { interface, kind: self.kind }.into()
            }
            Errno::BUSY | Errno::EXIST => Refused::Taken { interface }.into(),
            // An interface of another kind has the name.
            Errno::INVAL if netif::by_name(&self.name).is_ok() => Refused::Taken { interface }.into(),
            Errno::INVAL | Errno::NAMETOOLONG => Refused::Name { interface }.into(),
            e => Error::system("make the interface", e),
        }
    }

    fn not_attached(&self, e: Errno) -> Error {
        let interface = self.name.clone();
        match e {
            Errno::PERM | Errno::ACCESS => Refused::NotAllowed { interface, kind: self.kind }.into(),
            Errno::BUSY => Refused::Busy { interface }.into(),
            Errno::INVAL => self.other_kind(),
            e => Error::system("attach to the interface", e),
        }
    }

    /// Asks for one thing after another; what this kernel does not know is noted and left out.
    fn negotiate(&self, files: &[Tun], notes: &mut Vec<String>) -> Result<Offloads> {
        for file in files {
            file.set_header().map_err(|e| Error::system("set the size of the packets' header", e))?;
        }
        // They are the interface's: every queue has the same.
        grant(self.offloads, notes, &mut |set| files[0].set_offloads(set))
            .map_err(|e| Error::system("set the offloads", e))
    }

    fn set_up(&self, file: &Tun, name: &str) -> Result<()> {
        let failed = |what: String, remedy: &'static str| {
            let interface = name.to_owned();
            move |e: Errno| {
                let code = e.raw_os_error();
                Error::from(Refused::Setting { interface, what, code, remedy })
            }
        };
        if let Some(mtu) = self.mtu {
            let remedy = "a TUN device takes 68 to 65535, a TAP device to 65521, one with IPv6 from 1280";
            netns::set_mtu(name, mtu).map_err(failed(format!("an MTU of {mtu}"), remedy))?;
        }
        for &(address, prefix) in &self.addresses {
            let remedy = "give another address, or none (`ip address show` lists those there are)";
            match netns::add_address(name, address, prefix) {
                Err(Errno::EXIST) if self.attach => {}
                done => done.map_err(failed(format!("the address {address}/{prefix}"), remedy))?,
            }
        }
        if self.up && !netif::by_name(name).is_ok_and(|i| i.is_up()) {
            let remedy = "switching it on needs CAP_NET_ADMIN: ip link set dev NAME up";
            netns::set_up(name, true).map_err(failed("switching it on".to_owned(), remedy))?;
        }
        let six = self.addresses.iter().any(|(address, _)| address.is_ipv6());
        if self.up && six {
            // Until then the kernel throws away what comes to them.
            let remedy = "the kernel does not take it into use: look for it in its log (dmesg)";
            netns::settle_addresses(name, PATIENCE_NS)
                .map_err(failed("an IPv6 address".to_owned(), remedy))?;
        }
        let remedy = "the user or group has no number in this user namespace";
        if let Some(user) = self.owner {
            file.set_owner(user).map_err(failed(format!("the owner {user}"), remedy))?;
        }
        if let Some(group) = self.group {
            file.set_group(group).map_err(failed(format!("the group {group}"), remedy))?;
        }
        // Last: what fails before it leaves nothing behind.
        if let Some(on) = self.persistent {
            file.set_persistent(on).map_err(failed("keeping it".to_owned(), "run as root"))?;
        }
        Ok(())
    }
}

/// What `set` takes of `asked`, set.
fn grant(
    asked: Offloads,
    notes: &mut Vec<String>,
    set: &mut dyn FnMut(tun::Offloads) -> bypath_sys::Result<()>,
) -> bypath_sys::Result<Offloads> {
    let mut granted = Offloads::NONE;
    let mut flags = tun::Offloads::default();
    set(flags)?;
    let steps = [
        (asked.checksum, tun::Offloads::CHECKSUM, "checksums that are left out"),
        (asked.checksum && asked.tcp, tun::Offloads::TCP, "TCP super-packets (TSO4, TSO6)"),
        (asked.checksum && asked.udp, tun::Offloads::UDP, "UDP super-packets (USO4, USO6; Linux 6.2)"),
    ];
    for (at, (wanted, flag, what)) in steps.into_iter().enumerate() {
        if !wanted {
            continue;
        }
        match set(flags.and(flag)) {
            Ok(()) => {
                flags = flags.and(flag);
                match at {
                    0 => granted.checksum = true,
                    1 => granted.tcp = true,
                    _ => granted.udp = true,
                }
            }
            Err(Errno::INVAL) => {
                notes.push(format!("this kernel has no {what}"));
                set(flags)?;
                if at == 0 {
                    break;
                }
            }
            Err(e) => return Err(e),
        }
    }
    Ok(granted)
}

/// Another address of the same kind: the kernel's end has its own.
fn beside(mac: [u8; 6]) -> MacAddr {
    let mut own = mac;
    own[0] = own[0] & !1 | 2;
    own[5] ^= 1;
    MacAddr(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a kernel that knows `known` grants.
    fn with(known: tun::Offloads, asked: Offloads) -> (Offloads, Vec<String>, tun::Offloads) {
        let (mut notes, mut last) = (Vec::new(), tun::Offloads::default());
        let granted = grant(asked, &mut notes, &mut |set| {
            if !known.has(set) {
                return Err(Errno::INVAL);
            }
            last = set;
            Ok(())
        });
        (granted.unwrap(), notes, last)
    }

    #[test]
    fn an_older_kernel_grants_less_and_says_so() {
        let old = tun::Offloads::CHECKSUM.and(tun::Offloads::TCP);
        let new = old.and(tun::Offloads::UDP);
        assert_eq!(with(new, Offloads::ALL), (Offloads::ALL, Vec::new(), new));
        let (granted, notes, set) = with(old, Offloads::ALL);
        assert_eq!((granted, set), (Offloads { udp: false, ..Offloads::ALL }, old));
        assert!(notes.len() == 1 && notes[0].contains("USO"), "{notes:?}");
        let (granted, notes, set) = with(tun::Offloads::default(), Offloads::ALL);
        assert_eq!((granted, notes.len(), set), (Offloads::NONE, 1, tun::Offloads::default()));
        assert_eq!(with(new, Offloads::NONE), (Offloads::NONE, Vec::new(), tun::Offloads::default()));
        // Super-packets without checksums that are left out are not to be had, and are not asked for.
        let only = Offloads { udp: true, ..Offloads::NONE };
        assert_eq!(with(new, only).0, Offloads::NONE);
    }

    #[test]
    fn names_are_looked_at_before_anything_is_made() {
        for name in ["", "a-name-of-16-oct", "a/b", "a b", "a:b", "..", "%d%d", "tun%s", "a\0b"] {
            let opened = Device::tun(name).path("/nonexistent").open();
            assert!(matches!(opened, Err(Error::Tun(Refused::Name { .. }))), "{name:?}");
        }
        let opened = Device::tun("tun%d").attach().path("/nonexistent").open();
        assert!(matches!(opened, Err(Error::Tun(Refused::Name { .. }))));
        let opened = Device::tun("tun%d").path("/nonexistent").open();
        let told = opened.expect_err("no device").to_string();
        assert!(told.contains("/nonexistent") && told.contains("modprobe tun"), "{told}");
        let opened = Device::tun("tun%d").path("/dev/null").open();
        assert!(matches!(opened, Err(Error::Tun(Refused::NotTun { .. }))));
        let opened = Device::tun("tun%d")
            .path("/nonexistent")
            .mtu(1000)
            .address("fd00::1".parse().unwrap(), 64)
            .open();
        assert!(matches!(opened, Err(Error::Tun(Refused::MtuTooSmall { .. }))));
    }

    #[test]
    fn the_own_address_is_beside_the_kernels() {
        let kernel = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc];
        assert_eq!(beside(kernel), MacAddr([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbd]));
        assert_ne!(beside([0x33, 0, 0, 0, 0, 0]).0[0] & 1, 1);
    }
}
