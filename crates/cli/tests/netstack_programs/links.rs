//! A service on AF_XDP, which takes root of the whole machine.

use crate::datagrams::digs_in_both_roles;
use crate::fetches::fetches_in_both_roles;
use crate::lab::{Lab, have};
use crate::network::{apart, skip};
use bypath::link::xdp;
use std::process::Command;

#[test]
fn programs_on_af_xdp_serve_and_ask() {
    const NAME: &str = "links::programs_on_af_xdp_serve_and_ask";
    if bypath_sys::process::euid() != 0 || bypath_sys::process::euid_outside() != 0 {
        return skip(NAME, "AF_XDP is root's");
    }
    apart(concat!(module_path!(), "::programs_on_af_xdp_serve_and_ask"), || {
        if !have(NAME, &["curl", "python3", "ethtool", "dig", "dnsmasq"]) {
            return;
        }
        let mut lab = Lab::cable();
        let rules = [xdp::Rule::EtherType { ethertype: 0x0800, vlan: None }];
        if let Err(e) = xdp::XdpLink::open(&xdp::Config::new("left", &rules)) {
            return skip(NAME, &format!("no AF_XDP: {e}"));
        }
        // Frames of the other end would come without the checksums of datagrams, as the kernel leaves them to the cable.
        let ethtool = || Command::new("/usr/sbin/ethtool").args(["-K", "right", "tx", "off"]).output();
        let ethtool = lab.there.run(ethtool).expect("the other host").expect("ethtool");
        assert!(ethtool.status.success(), "{}", String::from_utf8_lossy(&ethtool.stderr));
        let settings = "link = \"xdp:left\"\naddr = \"10.0.0.1/24\"\n";
        std::fs::write(lab.folder.join("lab.toml"), settings).expect("a file");
        lab.begin();
        fetches_in_both_roles(&lab, 3_000_000, &[]);
        digs_in_both_roles(&lab);
        lab.is_empty();
        lab.end();
    });
}
