//! What goes wrong, and what is said about it.

use crate::common::TempDir;
use crate::network::{address, veth, without};
use crate::{TAP, asked, devices};
use rustix::thread::CapabilitySet;

/// A service that cannot be, with this status and these words.
#[track_caller]
fn fails(code: i32, args: &[&str], words: &[&str]) {
    let folder = TempDir::new();
    let ended = asked(&folder, args).expect(code);
    for word in words {
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
}

isolated! {
    fn wrong_usage_says_what_is_right() {
        fails(2, &[], &["Usage", "--link", "Without a subcommand it is a service"]);
        fails(2, &["--addr=10.9.0.2/24"], &["--link"]);
        fails(2, &["--link=eth0"], &["tap:NAME", "packet:IFACE"]);
        fails(2, &["--link=tap:mine"], &["the stack has no address", "--addr 10.9.0.2/24"]);
        fails(2, &["--link=tun:mine", "--slaac"], &["SLAAC needs", "tap:"]);
        fails(2, &["--link=packet:lo", "--net=10.9.0.1/24"], &["--net", "tap:"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--name=a/b"], &["letters, digits"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--metrics=eth0"], &["ADDRESS:PORT"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "sockets"], &["sockets"]);
        fails(2, &["--config=/nowhere.toml"], &["cannot read the configuration file /nowhere.toml"]);
        fails(2, &["sockets", "--name=a/b"], &["letters, digits"]);
        fails(1, &["--link=packet:nobody", "--addr=10.9.0.2/24"], &["nobody: no such interface; there are: lo"]);
        let folder = TempDir::new();
        let file = folder.join("x.toml");
        std::fs::write(&file, "link = 'tap:mine'\nmtu = 'x'\nlimit = 1\n").expect("a file");
        let config = format!("--config={}", file.display());
        fails(2, &[&config], &["has mistakes", "x.toml:2:7: invalid value 'x' for mtu", "did you mean 'limits'?"]);
    }
}

isolated! {
    fn addresses_and_routers_that_cannot_be_are_refused() {
        if !devices("trouble::addresses_and_routers_that_cannot_be_are_refused") {
            return;
        }
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=10.8.0.1"], &["--gateway 10.8.0.1", "on the link"]);
        fails(2, &["--link=tap:mine", "--addr=10.9.0.255/24"], &["not the address of a single host"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--addr=10.9.0.1/24"], &["the kernel has that address on tap:mine"]);
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--dhcp"], &["--dhcp"]);
        veth();
        address("left", "10.0.0.1");
        fails(2, &["--link=packet:left", "--addr=10.0.0.1/24"], &["the kernel has that address on left", "one of its own"]);
    }
}

isolated! {
    fn an_address_of_somebody_else_is_not_used() {
        let there = bypath_sys::netns::Namespace::new().expect("a namespace");
        bypath_sys::netns::veth("near", "far", Some(&there)).expect("a veth pair");
        there
            .run(|| {
                bypath_sys::netns::set_up("far", true).expect("up");
                address("far", "10.7.0.2");
            })
            .expect("the other host");
        bypath_sys::netns::set_up("near", true).expect("up");
        crate::network::they_run();
        fails(1, &["--link=packet:near", "--addr=10.7.0.2/24"], &["10.7.0.2 is another host's on near", "one of its own"]);
    }
}

isolated! {
    fn without_the_right_the_remedy_is_named() {
        bypath_sys::netns::set_up("lo", true).expect("loopback");
        without(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW, || {
            fails(1, &TAP, &["CAP_NET_ADMIN"]);
            fails(1, &["--link=packet:lo", "--addr=10.9.0.2/24"], &["CAP_NET_RAW"]);
        });
    }
}

isolated! {
    fn what_cannot_be_had_is_named() {
        if !devices("trouble::what_cannot_be_had_is_named") {
            return;
        }
        let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = format!("--metrics={}", held.local_addr().expect("an address").port());
        fails(1, &[&TAP[..], &[&port]].concat(), &["--metrics 127.0.0.1:", "another port"]);
        fails(1, &[&TAP[..], &["--capture=/nowhere/x"]].concat(), &["--capture /nowhere/x"]);
        let held = bypath::tun::Device::tap("mine").open().expect("a device");
        fails(1, &TAP, &["mine"]);
        drop(held);
        let mut command = crate::netstack(&TempDir::new(), &TAP);
        command.env("BYPATH_NETSTACK_DIR", "/proc/nowhere");
        let ended = crate::network::Tool::of(command).end().expect(1);
        assert!(ended.stderr.contains("/proc/nowhere") && ended.stderr.contains("BYPATH_NETSTACK_DIR=FOLDER"), "{}", ended.stderr);
    }
}

isolated! {
    fn questions_to_nobody_tell_who_is_there_and_how_to_begin() {
        if !devices("trouble::questions_to_nobody_tell_who_is_there_and_how_to_begin") {
            return;
        }
        let folder = TempDir::new();
        for what in ["sockets", "stats", "addr", "route", "neigh"] {
            let ended = asked(&folder, &[what]).expect(1);
            let said = &ended.stderr;
            assert!(said.contains("no netstack service named default is running"), "{said}");
            assert!(said.contains("start one: bypath netstack --link"), "{said}");
        }
        let running = crate::service(&folder, &[&TAP[..], &["--name=lab"]].concat());
        let said = asked(&folder, &["stats"]).expect(1).stderr;
        assert!(said.contains("there are: lab"), "{said}");
        crate::end(running);
    }
}

isolated! {
    fn a_service_that_is_stopped_is_told_from_one_that_is_not_there() {
        if !devices("trouble::a_service_that_is_stopped_is_told_from_one_that_is_not_there") {
            return;
        }
        let folder = TempDir::new();
        let running = crate::service(&folder, &TAP);
        running.stop();
        let asking = crate::network::Tool::of(crate::netstack(&folder, &["stats"]));
        let second = crate::network::Tool::of(crate::netstack(&folder, &["--link=tap:other", "--net=10.8.0.1/24"]));
        let said = asking.end().expect(1).stderr;
        assert!(said.contains("does not answer; is its process stopped?"), "{said}");
        let said = second.end().expect(1).stderr;
        assert!(said.contains("a service named default is running already"), "{said}");
        running.signal(rustix::process::Signal::CONT);
        crate::end(running);
    }
}

isolated! {
    fn a_network_that_the_kernel_has_elsewhere_is_refused() {
        if !devices("trouble::a_network_that_the_kernel_has_elsewhere_is_refused") {
            return;
        }
        let folder = TempDir::new();
        let running = crate::service(&folder, &TAP);
        let second = asked(&folder, &["--link=tap:other", "--net=10.9.0.1/24", "--name=other"]).expect(2);
        for words in ["--net 10.9.0.1/24: the kernel has that address on mine already", "ip addr del 10.9.0.1/24 dev mine"] {
            assert!(second.stderr.contains(words), "{}", second.stderr);
        }
        crate::end(running);
    }
}

isolated! {
    fn a_socket_that_was_left_behind_is_named_and_replaced() {
        if !devices("trouble::a_socket_that_was_left_behind_is_named_and_replaced") {
            return;
        }
        let folder = TempDir::new();
        let running = crate::service(&folder, &TAP);
        running.signal(rustix::process::Signal::KILL);
        running.end();
        let listed = asked(&folder, &["ls"]).expect(1).text();
        assert!(listed.contains("default") && listed.contains("left behind"), "{listed}");
        let said = asked(&folder, &["sockets"]).expect(1).stderr;
        assert!(said.contains("no netstack service named default is running"), "{said}");
        let mut command = crate::common::run(["--netstack", "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let said = crate::network::Tool::of(command).end().expect(125).stderr;
        assert!(said.contains("no netstack service named default is running") && said.contains("start one: "), "{said}");
        crate::end(crate::service(&folder, &TAP));
        assert!(!folder.join("default").exists());
    }
}
