//! The unit of systemd: what it starts, and whether what it leaves to the service is enough for each kind of link.

use crate::common::{BYPATH, TempDir, workspace};
use crate::network::{Tool, apart, skip, veth, without};
use crate::{devices, end, netstack};
use rustix::thread::CapabilitySet;
use std::path::Path;
use std::process::Command;

/// The unit as `make install` writes it, for the command in this folder.
fn text(prefix: &Path) -> String {
    let path = workspace().join("packaging/systemd/bypath-netstack@.service.in");
    std::fs::read_to_string(path).expect("the unit").replace("@PREFIX@", prefix.to_str().expect("a path"))
}

/// What is said of a key, each time that it is there.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let value = |line: &'a str| line.strip_prefix(key)?.strip_prefix('=');
    unit.lines().filter_map(value).collect()
}

/// A folder with `bin/bypath`, as an installation has it.
fn installed() -> TempDir {
    let folder = TempDir::new();
    std::fs::create_dir(folder.join("bin")).expect("a folder");
    std::os::unix::fs::symlink(BYPATH, folder.join("bin/bypath")).expect("a link");
    folder
}

/// The command that the unit starts, with this file in the place of its own.
fn started(prefix: &TempDir, settings: &str) -> Command {
    let file = prefix.join("lab.toml");
    std::fs::write(&file, settings).expect("a file");
    let unit = text(prefix.path());
    let [line] = values(&unit, "ExecStart")[..] else { panic!("one command: {unit}") };
    let line =
        line.replace("/etc/bypath/netstack/%i.toml", file.to_str().expect("a path")).replace("%i", "lab");
    let mut words = line.split(' ');
    let mut command = netstack(prefix, &[]);
    assert_eq!(words.next(), prefix.join("bin/bypath").to_str(), "{line}");
    assert_eq!(words.next(), Some("netstack"), "{line}");
    command.args(words);
    command
}

isolated! {
    fn what_the_unit_starts_is_a_service_of_that_name() {
        let prefix = installed();
        // It gets as far as the interface: no word is wrong.
        let ended = Tool::of(started(&prefix, "link = \"packet:nobody\"\naddr = \"10.9.0.2/24\"\n")).end().expect(1);
        assert!(ended.stderr.contains("nobody: no such interface; there are: lo"), "{}", ended.stderr);
        if !devices("unit::what_the_unit_starts_is_a_service_of_that_name") {
            return;
        }
        let running = Tool::of(started(&prefix, "link = \"tap:mine\"\nnet = \"10.9.0.1/24\"\n")).hears("next");
        assert!(prefix.join("lab").exists());
        assert!(end(running).text().contains("service     lab (pid "));
    }
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    const NAME: &str = "unit::the_unit_is_one_that_systemd_understands";
    let prefix = installed();
    let unit = text(prefix.path());
    // ProtectClock= alone closes it in some versions.
    assert_eq!(values(&unit, "DeviceAllow"), ["/dev/net/tun rw"]);
    assert_eq!(values(&unit, "ProtectClock"), ["yes"]);
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip(NAME, "systemd-analyze is not installed (Debian package systemd)");
    }
    let file = prefix.join("bypath-netstack@lab.service");
    let verify = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        // Manual pages are where they were installed, if they were.
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output();
        let output = output.expect("systemd-analyze");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about: Vec<_> =
            said.lines().filter(|line| line.contains("bypath-netstack")).map(str::to_owned).collect();
        (output.status.success() && about.is_empty(), said)
    };
    let (good, said) = verify(&unit);
    assert!(good, "{said}");
    // Whoever says nothing of anything would pass, too.
    let (good, said) = verify(&unit.replace("ProtectClock=", "ProtectClok="));
    assert!(!good && said.contains("ProtectClok"), "{said}");
}

/// All capabilities but those of the unit.
fn withheld() -> CapabilitySet {
    let unit = text(Path::new("/usr"));
    let [line] = values(&unit, "CapabilityBoundingSet")[..] else { panic!("one set: {unit}") };
    let named = |word: &str| {
        let name = word.strip_prefix("CAP_").expect("a capability");
        CapabilitySet::from_name(name).unwrap_or_else(|| panic!("{word}: no such capability"))
    };
    let kept = line.split(' ').map(named).fold(CapabilitySet::empty(), |all, one| all | one);
    let had = rustix::thread::capabilities(None).expect("capabilities").permitted;
    had.difference(kept)
}

/// A service on this link begins with what the unit leaves to it.
#[track_caller]
fn begins(settings: &str) {
    let prefix = installed();
    let command = || Tool::of(started(&prefix, settings));
    let running = without(withheld(), command).hears("next");
    let text = end(running).text();
    assert!(text.contains(" given up; none kept"), "{settings}: {text}");
}

isolated! {
    fn the_unit_leaves_what_each_kind_of_link_takes() {
        veth();
        begins("link = \"packet:left\"\naddr = \"10.9.0.2/24\"\n");
        if devices("unit::the_unit_leaves_what_each_kind_of_link_takes") {
            begins("link = \"tap:mine\"\nnet = [\"10.9.0.1/24\", \"fd09::1/64\"]\nmetrics = 91\n");
            begins("link = \"tun:mine\"\nnet = [\"10.9.0.1/24\", \"fd09::1/64\"]\n");
        }
    }
}

#[test]
fn the_unit_leaves_what_af_xdp_takes() {
    const NAME: &str = "unit::the_unit_leaves_what_af_xdp_takes";
    if bypath_sys::process::euid() != 0 || bypath_sys::process::euid_outside() != 0 {
        return skip(NAME, "AF_XDP is root's");
    }
    apart(concat!(module_path!(), "::the_unit_leaves_what_af_xdp_takes"), || {
        veth();
        let rules = [bypath::link::xdp::Rule::EtherType { ethertype: 0x0800, vlan: None }];
        if let Err(e) = bypath::link::xdp::XdpLink::open(&bypath::link::xdp::Config::new("left", &rules)) {
            return skip(NAME, &format!("no AF_XDP: {e}"));
        }
        begins("link = \"xdp:left\"\naddr = \"10.9.0.2/24\"\n");
    });
}
