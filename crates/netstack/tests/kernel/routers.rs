//! Addresses and routes from a router advertisement daemon that people use (radvd).

use crate::{Config, LONGEST, isolated, kernels, ours};
use bypath_link::tun::Device;
use bypath_netstack::{Engine, Host};
use bypath_stack::iface::{AddressState, IfaceId};
use bypath_sys::netns;
use std::net::{IpAddr, Ipv6Addr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two networks, of one of which no address may be made; packets of 1400 octets; a default router that goes before others.
const CONFIG: &str = "interface mine {
    AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; AdvDefaultLifetime 60;
    AdvLinkMTU 1400; AdvDefaultPreference high;
    prefix fd0a::/64 { AdvValidLifetime 3600; AdvPreferredLifetime 1800; DeprecatePrefix on; };
    prefix fd0b::/64 { AdvAutonomous off; };
};
";

/// The daemon, ended with this.
struct Radvd(Child);

impl Radvd {
    fn start(folder: &std::path::Path) -> Option<Radvd> {
        let config = folder.join("radvd.conf");
        std::fs::write(&config, CONFIG).expect("a file");
        let log = std::fs::File::create(folder.join("log")).expect("a file");
        let mut command = Command::new("radvd");
        command.args(["--nodaemon", "--logmethod=stderr", "--debug=1", "--config"]).arg(&config);
        command
            .arg("--pidfile")
            .arg(folder.join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.spawn().ok().map(Radvd)
    }

    /// Ended so that it takes back what it has said.
    fn end(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a number"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("a signal");
        self.0.wait().expect("its end");
    }
}

impl Drop for Radvd {
    fn drop(&mut self) {
        // It has ended already, then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks again and again; `None`: it did not come.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    None
}

/// Addresses of the stack in a network.
fn made(host: &Host, iface: IfaceId, network: &str) -> Vec<(Ipv6Addr, AddressState)> {
    let network: bypath_stack::prefix::Prefix = network.parse().expect("a network");
    host.with(|engine| {
        let all = engine.stack().addresses(iface).iter();
        let those = all.filter(|a| network.contains(a.ip())).filter_map(|a| match a.ip() {
            IpAddr::V6(v6) => Some((v6, a.state)),
            IpAddr::V4(_) => None,
        });
        those.collect()
    })
}

fn default_routers(host: &Host) -> Vec<IpAddr> {
    host.with(|engine| {
        engine.stack().routes().filter(|r| r.prefix.is_empty()).filter_map(|r| r.via).collect()
    })
}

isolated! {
    fn a_router_advertises_and_the_stack_makes_its_address_and_route() {
        const NAME: &str = "routers::a_router_advertises_and_the_stack_makes_its_address_and_route";
        if Command::new("radvd").arg("--version").output().is_err() {
            return crate::namespace::skip(NAME, "radvd is not installed; Debian package: radvd");
        }
        let v6 = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let device = Device::tap("mine").address(v6("fd0a::1"), 64).address(v6("fd0b::1"), 64).open().expect("a device");
        // A host behind the router.
        netns::add_address("lo", v6("2001:db8:99::1"), 128).expect("an address");
        for path in ["conf/all/forwarding", "conf/mine/accept_dad"] {
            let value = if path.ends_with("forwarding") { "1" } else { "0" };
            std::fs::write(format!("/proc/sys/net/ipv6/{path}"), value).expect("a setting of this namespace");
        }
        let mut engine = Engine::new(Config::default());
        let iface = engine.add_link("mine", Box::new(device)).expect("an interface");
        assert!(engine.stack().autoconfigure(Engine::now(), iface));
        let host = Host::run(engine).expect("a thread");
        netns::settle_addresses("mine", LONGEST.as_nanos() as u64).expect("the kernel's addresses");
        let folder = std::env::temp_dir().join(format!("bypath-radvd-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let radvd = Radvd::start(&folder).expect("radvd");
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();

        let own = wait_for(|| made(&host, iface, "fd0a::/64").into_iter().find(|(_, s)| *s == AddressState::Preferred));
        let own = own.unwrap_or_else(|| panic!("no address was made: {}", log())).0;
        assert!(made(&host, iface, "fd0b::/64").is_empty());
        let router = wait_for(|| default_routers(&host).first().copied()).expect("a default router");
        assert!(matches!(router, IpAddr::V6(v6) if v6.is_unicast_link_local()), "{router}");
        // On the link, in the network of which we have no address, and behind the router: from the address that was made.
        for to in ["[fd0a::1]:7", "[fd0b::1]:7", "[2001:db8:99::1]:7"] {
            let server = kernels(to);
            let socket = ours(&host, "[::]:0");
            // What is longer than the router says is cut, though the device would take it.
            for len in [1, 1352, 1353, 3000] {
                socket.send_to(&vec![3; len], to.parse().expect("an address")).expect("sent");
                let mut room = [0; 4000];
                let (got, from) = server.recv_from(&mut room).unwrap_or_else(|e| panic!("{to} {len}: {e}"));
                assert_eq!((got, from.ip()), (len, IpAddr::V6(own)), "{to}");
                server.send_to(&room[..got], from).expect("sent");
                assert_eq!(socket.recv(&mut room).expect("an answer"), len, "{to}");
            }
            let mtu = host.with(|engine| engine.stack().path(server.local_addr().expect("an address").ip(), None, None).expect("a way").mtu);
            assert_eq!(mtu, 1400);
        }
        // It goes: the router is none any more, and the address is for what has it already.
        radvd.end();
        wait_for(|| default_routers(&host).is_empty().then_some(())).unwrap_or_else(|| panic!("still a router: {}", log()));
        let last = wait_for(|| made(&host, iface, "fd0a::/64").into_iter().find(|(_, s)| *s == AddressState::Deprecated));
        assert_eq!(last.unwrap_or_else(|| panic!("not deprecated: {}", log())).0, own);
        std::fs::remove_dir_all(&folder).expect("the folder");
    }
}
