//! Addresses from a DHCP server that people use (dnsmasq).

use crate::devices;
use crate::network::{Tool, skip, tool};
use bypath::tun::Device;
use std::process::Command;

isolated! {
    fn an_address_is_leased_used_and_given_back() {
        const NAME: &str = "leases::an_address_is_leased_used_and_given_back";
        if !devices(NAME) {
            return;
        }
        if Command::new("dnsmasq").arg("--version").output().is_err() {
            return skip(NAME, "dnsmasq is not installed; Debian package: dnsmasq-base");
        }
        bypath_sys::netns::set_up("lo", true).expect("loopback");
        let device = Device::tap("mine").address("10.9.0.1".parse().expect("an address"), 24).persistent(true);
        drop(device.open().expect("a device"));
        let mut server = Command::new("dnsmasq");
        server.args(["--no-daemon", "--conf-file=/dev/null", "--interface=mine", "--bind-interfaces", "--port=0"]);
        server.args(["--dhcp-range=10.9.0.50,10.9.0.59,255.255.255.0,2m", "--dhcp-leasefile=/dev/null", "--log-dhcp"]);
        server.arg("--dhcp-option=option:mtu,1400");
        server.args(["--pid-file=", "--user=", "--group=", "--log-facility=-"]);
        let server = Tool::of(server).says("started");
        let ended = tool(&["netstack", "ping", "--link=tap:mine", "--attach", "--dhcp", "--interval=5ms", "10.9.0.1"]).expect(0);
        assert!(ended.stderr.contains("from the DHCP server 10.9.0.1, router 10.9.0.1, MTU 1400"), "{}", ended.stderr);
        assert!(ended.text().contains("4 sent, 4 answered"), "{}", ended.text());
        let server = server.says("DHCPACK(mine) 10.9.0.5").says("DHCPRELEASE(mine) 10.9.0.5");
        server.signal(rustix::process::Signal::TERM);
        server.end();
        bypath_sys::netns::remove("mine").expect("the device");
    }
}
