//! Hosts that are set up with few words.

use crate::{LONGEST, at, isolated, kernels, ours};
use bypath_link::tun::Device;
use bypath_netstack::{Setup, SetupError, UdpSocket};
use bypath_sys::netns;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn tap(name: &str) -> Setup {
    Setup::on(name.parse().expect("a link")).kernel(ip("10.9.0.1"), 24).kernel(ip("fd09::1"), 64)
}

isolated! {
    fn a_host_is_set_up_and_its_addresses_can_be_used_at_once() {
        for name in ["tap:mine%d", "tun:mine%d"] {
            let setup = tap(name).address("10.9.0.2/24".parse().expect("an address"));
            let opened = setup.address("fd09::2/64".parse().expect("an address")).mtu(9000).open().expect("a link");
            assert_eq!(opened.name, "mine0");
            let host = opened.run(LONGEST).expect("a host");
            let kernels = [kernels("10.9.0.1:9"), kernels("[fd09::1]:9")];
            for (own, kernels) in ["10.9.0.2:7", "[fd09::2]:7"].into_iter().zip(kernels) {
                let socket = ours(&host, own);
                kernels.send_to(&[7; 8000], own).expect("sent");
                let (len, from) = socket.recv_from(&mut [0; 9000]).expect("a datagram");
                assert_eq!((len, from.port()), (8000, 9));
            }
            host.finish(Duration::from_millis(100));
            assert!(bypath_sys::netif::by_name("mine0").is_err(), "the device is gone with the host");
        }
    }
}

isolated! {
    fn what_keeps_a_host_from_being_set_up_is_told() {
        // An address of the kernel.
        let taken = tap("tap:mine").address("fd09::1/64".parse().expect("an address")).open().expect("a link");
        match taken.run(LONGEST).err().expect("a failure") {
            SetupError::Taken { address, name, holder } => assert_eq!((address, &*name, holder.is_some()), (ip("fd09::1"), "mine", true)),
            e => panic!("{e}"),
        }
        // Nobody gives addresses.
        let begin = Instant::now();
        let alone = tap("tap:mine").dhcp(None).open().expect("a link").run(Duration::from_secs(1));
        let error = alone.err().expect("a failure");
        assert_eq!(error.to_string(), "no DHCP server answers on mine within 1 s; give an address");
        assert!(begin.elapsed() >= Duration::from_secs(1));
        let missing = Setup::on("packet:nobody".parse().expect("a link")).dhcp(None).open();
        let error = missing.err().expect("a failure").to_string();
        assert!(error.starts_with("nobody: no such interface"), "{error}");
    }
}

isolated! {
    fn sockets_learn_that_the_device_was_removed() {
        let setup = tap("tap:mine").address("10.9.0.2/24".parse().expect("an address"));
        let host = setup.open().expect("a link").run(LONGEST).expect("a host");
        let socket = ours(&host, "10.9.0.2:7");
        netns::remove("mine").expect("removed");
        let kind = |e: std::io::Error| e.kind();
        assert_eq!(socket.recv(&mut [0; 9]).map_err(kind), Err(ErrorKind::BrokenPipe));
        assert!(host.ended().is_some_and(|why| why.starts_with("mine: ")), "{:?}", host.ended());
        assert_eq!(socket.send_to(b"x", at("10.9.0.1:9")).map_err(kind), Err(ErrorKind::BrokenPipe));
        assert_eq!(UdpSocket::bind(&host, at("10.9.0.2:8")).map(|_| ()).map_err(kind), Err(ErrorKind::BrokenPipe));
    }
}

isolated! {
    fn an_address_is_leased_and_given_back() {
        const NAME: &str = "setups::an_address_is_leased_and_given_back";
        if Command::new("dnsmasq").arg("--version").output().is_err() {
            return crate::namespace::skip(NAME, "dnsmasq is not installed; Debian package: dnsmasq-base");
        }
        let device = Device::tap("mine").address(ip("10.9.0.1"), 24).persistent(true);
        drop(device.open().expect("a device"));
        let mut server = Command::new("dnsmasq");
        server.args(["--no-daemon", "--conf-file=/dev/null", "--interface=mine", "--bind-interfaces", "--port=0"]);
        server.args(["--dhcp-range=10.9.0.50,10.9.0.59,255.255.255.0,2m", "--dhcp-leasefile=/dev/null", "--log-dhcp"]);
        server.args(["--pid-file=", "--user=", "--group=", "--log-facility=-"]);
        let mut server = server.stderr(Stdio::piped()).spawn().expect("dnsmasq");
        let mut lines = BufReader::new(server.stderr.take().expect("its output")).lines().map(|l| l.expect("a line"));
        assert!(lines.any(|l| l.contains("started")));

        let setup = Setup::on("tap:mine".parse().expect("a link")).attach().dhcp(Some("me".into()));
        let opened = setup.open().expect("a link");
        let iface = opened.iface;
        let host = opened.run(LONGEST).expect("a host");
        let leased = host.with(|e| (e.is_leased(iface), e.stack().addresses(iface)[0].prefix.to_string()));
        assert!(leased.0 && leased.1.starts_with("10.9.0.5") && leased.1.ends_with("/24"), "{leased:?}");
        let socket = ours(&host, "0.0.0.0:0");
        socket.connect(at("10.9.0.1:9")).expect("a way");
        socket.send(b"anybody?").expect("sent");
        assert_eq!(socket.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        host.finish(Duration::from_secs(2));
        let told = lines.any(|l| l.contains("DHCPRELEASE(mine) 10.9.0.5"));
        server.kill().expect("dnsmasq");
        server.wait().expect("its end");
        assert!(told);
    }
}
