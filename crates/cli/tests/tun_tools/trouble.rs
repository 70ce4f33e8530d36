//! What goes wrong, and what is said about it; nothing is left behind.

use crate::network::{Tool, hosts, octets, tool, without};
use crate::{Place, devices, nothing_is_left, routes, tree};
use bypath_sys::netns;
use rustix::process::Signal;
use rustix::thread::CapabilitySet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs the tool, which must fail with this status and these words.
#[track_caller]
fn fails(code: i32, args: &[&str], words: &[&str]) {
    let ended = tool(&[&["tun"], args].concat()).expect(code);
    for word in words {
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(ended.text(), "");
}

isolated! {
    fn devices_that_cannot_be_made() {
        if !devices("trouble::devices_that_cannot_be_made") {
            return;
        }
        routes();
        let place = Place::new();
        let file = place.file("file", b"content");
        let send = |more: &'static [&'static str], code: i32, words: &[&str]| {
            fails(code, &[&["send", &file, "--to=10.9.0.1:9000", "--wait=50ms"], more].concat(), words);
            nothing_is_left();
        };
        send(&["--device=lo"], 1, &["lo: there is an interface of this name already", "tun%d"]);
        send(&["--device=much-too-long-a-name"], 1, &["1 to 15 octets"]);
        send(&["--device=nobody", "--attach"], 1, &["nobody: no such interface; there are: lo"]);
        let kept = bypath::tun::Device::tun("kept").persistent(true).open().unwrap();
        drop(kept);
        let kept = ["send", &file, "--to=10.9.0.1:9000", "--device=kept", "--attach"];
        fails(1, &kept, &["has no address of this IP version", "--net 10.9.0.1/24", "dev kept"]);
        netns::remove("kept").unwrap();
        send(&["--mtu=67"], 1, &["an MTU of 67 was refused"]);
        send(&["--mtu=70000"], 1, &["an MTU of 70000 was refused", "68 to 65535"]);
        send(&["--mode=super", "--checksum=own"], 1, &["leave them to the kernel"]);
        send(&["--net=10.9.0.1"], 2, &["expected an address and a prefix"]);
        send(&["--size=24"], 2, &["25 to 65507"]);
        send(&["--size=65508"], 2, &["25 to 65507"]);
        send(&["--mtu=1000", "--size=2000", "--dont-fragment"], 1, &["must not be cut", "mtu 2028"]);
        fails(1, &["send", &file, "--to=[fd09::1]:9000", "--mtu=1000"], &["an MTU of 1000 was refused|an MTU of 1000 is too small"].map(|w| w.split('|').nth(1).unwrap()));
        fails(1, &["send", &file, "--to=127.0.0.1:9000"], &["takes nothing for this address from a device", "--via socket"]);
        fails(1, &["send", &file, "--to=10.9.0.2:9000"], &["this is the own end of the device; the kernel's is 10.9.0.1"]);
        nothing_is_left();
        let folder = place.join("folder");
        std::fs::create_dir(&folder).unwrap();
        let foreign = std::ffi::OsStr::from_bytes(b"a\xff");
        std::fs::write(std::path::Path::new(&folder).join(foreign), b"x").unwrap();
        fails(1, &["send", &folder, "--to=10.9.0.1:9000", "--wait=50ms"], &["its name is no UTF-8", "rename it"]);
        nothing_is_left();
    }
}

isolated! {
    fn a_user_without_the_right_is_told_the_ways_to_get_it() {
        if !devices("trouble::a_user_without_the_right_is_told_the_ways_to_get_it") {
            return;
        }
        let place = Place::new();
        let file = place.file("file", b"content");
        let said = without(CapabilitySet::NET_ADMIN, || tool(&["tun", "send", &file, "--to=10.9.0.1:9000"]));
        let ended = said.expect(1);
        for word in ["CAP_NET_ADMIN", "unshare --user --net --map-root-user", "sudo ip tuntap add"] {
            assert!(ended.stderr.contains(word), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn files_that_cannot_be_sent() {
        routes();
        let place = Place::new();
        let to = ["--to=127.0.0.1:9000", "--via=socket", "--wait=50ms"];
        fails(1, &[&["send", "/nonexistent/file"], &to[..]].concat(), &["cannot read /nonexistent/file", "nothing was sent"]);
        std::fs::create_dir(place.join("empty")).unwrap();
        fails(1, &[&["send", &place.join("empty")], &to[..]].concat(), &["there is no file in this directory"]);
        let long = place.file("long", &octets(65_508));
        fails(1, &[&["send", &long, "--raw"], &to[..]].concat(), &["65508 octets", "65507 at most", "without --raw"]);
        fails(2, &[&["send", "-", "--raw"], &to[..]].concat(), &["standard input has none"]);
        // One that may not be read, for who may not read everything.
        place.file("dir/good", b"good");
        let secret = place.file("dir/secret", b"secret");
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
        let dir = place.join("dir");
        let said = std::thread::spawn(move || {
            use rustix::thread::CapabilitySet as Set;
            for set in [Set::DAC_OVERRIDE, Set::DAC_READ_SEARCH] {
                rustix::thread::remove_capability_from_bounding_set(set).unwrap();
            }
            tool(&["tun", "send", &dir, "--via=socket", "--to=127.0.0.1:9000"])
        });
        let ended = said.join().unwrap().expect(1);
        assert!(ended.stderr.contains("secret: Permission denied") && ended.stderr.contains("nothing was sent"), "{}", ended.stderr);
    }
}

isolated! {
    fn nobody_receives() {
        routes();
        let place = Place::new();
        let file = place.file("file", b"content");
        let words = ["nobody receives there", "start `bypath tun recv` first"];
        fails(3, &["send", &file, "--via=socket", "--to=127.0.0.1:9000", "--wait=100ms"], &words);
        if !devices("trouble::nobody_receives") {
            return;
        }
        fails(3, &["send", &file, "--to=10.9.0.1:9000", "--wait=100ms"], &words);
        // An address that nobody has.
        fails(3, &["send", &file, "--to=10.77.0.1:9000", "--wait=100ms"], &[words[0], "ip_forward"]);
        fails(3, &["recv", "--timeout=50ms"], &["NOT complete"]);
        nothing_is_left();
        let taken = std::net::UdpSocket::bind("0.0.0.0:9000").unwrap();
        fails(1, &["recv", "--via=socket"], &["another program has this port", "--listen"]);
        drop(taken);
        fails(1, &["recv", "--via=socket", "--listen=10.1.2.3:9000"], &["this host has no such address"]);
        // One that comes late enough to be waited for.
        let sender = Tool::start(&["tun", "send", &file, "--via=socket", "--to=127.0.0.1:9000", "--wait=1min"]).says("sending from");
        let receiver = Tool::start(&["tun", "recv", "--via=socket"]).says("receiving at");
        sender.end().expect(0);
        assert_eq!(receiver.end().expect(0).text(), "content");
    }
}

isolated! {
    fn several_files_do_not_go_to_standard_output() {
        routes();
        let place = Place::new();
        place.file("dir/a", b"a");
        place.file("dir/b", b"b");
        let receiver = Tool::start(&["tun", "recv", "--via=socket"]).says("receiving at");
        let words = ["several files come", "--out DIRECTORY"];
        fails(1, &["send", &place.join("dir"), "--via=socket", "--to=127.0.0.1:9000"], &words);
        let ended = receiver.end().expect(1);
        assert!(ended.stderr.contains(words[1]), "{}", ended.stderr);
    }
}

isolated! {
    fn an_end_that_is_stopped_leaves_no_device_and_no_piece() {
        if !devices("trouble::an_end_that_is_stopped_leaves_no_device_and_no_piece") {
            return;
        }
        routes();
        let place = Place::new();
        let out = place.join("out");
        for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
            let receiver = Tool::start(&["tun", "recv", "--out", &out]).says("receiving at");
            let mut sender = Tool::start(&["tun", "send", "-", "--to=10.10.0.2:9000"]).says("sending from");
            // So much that some of it has been written.
            sender.write(&octets(2_000_000));
            let end = std::time::Instant::now() + crate::network::LONG;
            while !std::fs::read_dir(&out).is_ok_and(|d| d.flatten().any(|e| e.metadata().is_ok_and(|m| m.len() > 500_000))) {
                assert!(std::time::Instant::now() < end, "nothing arrives");
                std::thread::yield_now();
            }
            receiver.signal(signal);
            let ended = receiver.end();
            sender.signal(Signal::INT);
            sender.end().expect(3);
            if signal != Signal::KILL {
                assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
                assert_eq!(tree(Path::new(&out)), []);
            }
            // The kernel takes its time.
            while bypath::l2::interfaces().unwrap().len() > 1 {
                assert!(std::time::Instant::now() < end, "a device is left");
                std::thread::yield_now();
            }
        }
    }
}

isolated! {
    fn a_device_that_is_removed_is_named() {
        if !devices("trouble::a_device_that_is_removed_is_named") {
            return;
        }
        routes();
        let receiver = Tool::start(&["tun", "recv", "--device=mine"]).says("receiving at");
        netns::remove("mine").unwrap();
        let ended = receiver.end().expect(1);
        assert!(ended.stderr.contains("mine: the interface was removed"), "{}", ended.stderr);
    }
}

isolated! {
    fn a_way_that_goes_and_comes_back_costs_nothing_but_time() {
        let there = hosts();
        let place = Place::new();
        let out = place.join("out");
        let receiver = there.run(|| Tool::start(&["tun", "recv", "--via=socket", "--out", &out]).says("receiving at")).unwrap();
        let sender = Tool::start(&["tun", "send", "-", "--via=socket", "--to=10.0.0.2:9000"]).says("sending from");
        let content = octets(8_000_000);
        let sender = sender.give(&content);
        for _ in 0..20 {
            netns::set_up("left", false).unwrap();
            netns::set_up("left", true).unwrap();
        }
        sender.end().expect(0);
        receiver.end().expect(0);
        assert!(tree(Path::new(&out)) == [("stdin".to_owned(), content)]);
    }
}
