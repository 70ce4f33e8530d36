//! What goes wrong, and what is said about it.

use crate::common::TempDir;
use crate::network::{address, veth, without};
use crate::{TAP, asked, devices};
use bypath::link::xdp;
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
        // Its address is not looked for first.
        for addr in [&["--addr=10.9.0.2/24"][..], &[]] {
            for link in ["--link=packet:nobody", "--link=xdp:nobody"] {
                fails(1, &[&[link], addr].concat(), &["nobody: no such interface; there are: lo"]);
            }
        }
        for link in ["tap:a/b", "packet:averyveryverylongname", "xdp:a b"] {
            fails(2, &["--link", link, "--net=10.9.0.1/24"], &[link, "no interface can have such a name: 1 to 15 octets"]);
        }
        for address in ["10.9.0.2", "10.9.0.2/33", "10.9.0.300/24", "nobody/24", "fd09::2/129"] {
            fails(2, &["--link=tap:mine", "--addr", address], &[address, "such as 10.9.0.2/24 or fd09::2/64"]);
        }
        for (net, words) in [
            ("10.9.0.1", "such as 10.9.0.1/24"),
            ("10.9.0.0/24", "give the kernel the first host, 10.9.0.1"),
            ("10.9.0.255/24", "broadcast"),
        ] {
            fails(2, &["--link=tap:mine", "--net", net], &[net, words]);
        }
        let folder = TempDir::new();
        let file = folder.join("x.toml");
        std::fs::write(&file, "link = 'tap:mine'\nmtu = 'x'\nlimit = 1\n").expect("a file");
        let config = format!("--config={}", file.display());
        fails(2, &[&config], &["has mistakes", "x.toml:2:7: invalid value 'x' for mtu", "did you mean 'limits'?"]);
        let says = |text: &[u8], words: &[&str]| {
            std::fs::write(&file, text).expect("a file");
            fails(2, &[&config], words);
        };
        says(b"", &["which link? give one: --link tap:bp0"]);
        says(b"link = 'tap:mine", &["x.toml:1:17: invalid"]);
        says(b"link = \"tap:mine\"\nlink = \"tap:other\"\n", &["x.toml:2:1: duplicate key"]);
        says(b"\xff\xfe", &["cannot read the configuration file", "UTF-8"]);
        says(b"link = 'packet:averyveryverylongname'\n", &["x.toml:1:8", "no interface can have such a name"]);
        // Nobody gave a flag: the route is named.
        for (via, words) in [("10.8.0.1", "in no network of the stack's addresses"), ("10.9.0.2", "the stack's own address")] {
            let text = format!("link = 'tap:mine'\nnet = '10.9.0.1/24'\n[[routes]]\nto = '10.1.0.0/16'\nvia = '{via}'\n");
            says(text.as_bytes(), &[&format!("x.toml:5:7: route to 10.1.0.0/16 via {via}: "), words]);
        }
        fails(2, &["--config", folder.path().to_str().expect("a path")], &["cannot read the configuration file", "directory"]);
    }
}

isolated! {
    fn addresses_and_routers_that_cannot_be_are_refused() {
        if !devices("trouble::addresses_and_routers_that_cannot_be_are_refused") {
            return;
        }
        fails(2, &["--link=tap:mine", "--net=10.9.0.1/24", "--gateway=10.8.0.1"], &["--gateway 10.8.0.1", "on the link"]);
        for address in ["10.9.0.255/24", "224.0.0.1/24", "0.0.0.0/24", "127.0.0.5/8", "ff02::1/64", "::ffff:10.9.0.2/120"] {
            fails(2, &["--link=tap:mine", "--addr", address], &[address, "not the address of a single host on a link"]);
        }
        for (address, words) in [("10.9.0.0/24", "but the network's"), ("fd09::/64", "but the network's"), ("10.9.0.255/24", "(broadcast)")] {
            let host = address.replace(".0/", ".1/").replace(".255/", ".1/").replace("::/", "::1/");
            fails(2, &["--link=tap:mine", "--addr", address], &[words, &format!("such as {host}")]);
        }
        for link in ["packet:lo", "xdp:lo"] {
            fails(2, &["--link", link, "--addr=10.9.0.2/24"], &[link, "nobody but this host's kernel", "--link tap:bp0"]);
        }
        for (own, gateway) in [("--net=10.9.0.1/24", "fe80::1"), ("--net=10.9.0.1/24", "fd09::1"), ("--net=fd09::1/64", "10.9.0.1"), ("--net=fd09::1/64", "fd08::1")] {
            fails(2, &["--link=tap:mine", own, "--gateway", gateway], &[&format!("--gateway {gateway}: "), "on the link"]);
        }
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
                address("far", "fd07::2");
            })
            .expect("the other host");
        bypath_sys::netns::set_up("near", true).expect("up");
        crate::network::they_run();
        let far = there.run(|| bypath::l2::Interface::named("far").expect("an interface").mac).expect("the other host");
        for (address, name) in [("10.7.0.2/24", "10.7.0.2"), ("fd07::2/64", "fd07::2")] {
            let words = format!("{name} is another host's on near ({far})");
            fails(1, &["--link=packet:near", "--addr", address], &[&words, "one of its own"]);
        }
        // The same while it runs, and nothing of it stays.
        let folder = TempDir::new();
        let running = crate::service(&folder, &["--link=packet:near", "--addr=fd07::9/64"]);
        for (address, name) in [("10.7.0.2/24", "10.7.0.2"), ("fd07::2/64", "fd07::2")] {
            let said = asked(&folder, &["addr", "add", address]).expect(1).stderr;
            assert!(said.contains(&format!("asking others on near whether {name} is free")), "{said}");
            assert!(said.contains(&format!("{name} is another host's on near ({far}); give the stack one of its own")), "{said}");
            assert!(!said.contains("added"), "{said}");
        }
        let listed = asked(&folder, &["addr"]).expect(0).text();
        assert!(listed.contains("fd07::9/64") && !listed.contains("fd07::2") && !listed.contains("10.7.0.2"), "{listed}");
        crate::end(running);
    }
}

isolated! {
    fn without_the_right_the_remedy_is_named() {
        veth();
        without(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW, || {
            fails(1, &TAP, &["CAP_NET_ADMIN"]);
            fails(1, &["--link=packet:left", "--addr=10.9.0.2/24"], &["CAP_NET_RAW"]);
        });
        // Root of a user namespace has not what this takes.
        fails(1, &["--link=xdp:left", "--addr=10.9.0.2/24"], &["CAP_BPF", "of the whole machine"]);
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
        fails(1, &TAP, &["mine: there is an interface of this name already: choose another name"]);
        drop(held);
        // What is no such device, or carries other frames, or none at present.
        veth();
        fails(1, &["--link=tap:left", "--net=10.9.0.1/24"], &["left: there is an interface of this name already", "(ip link del left): --attach"]);
        fails(1, &["--link=tap:left", "--net=10.9.0.1/24", "--attach"], &["left: this interface is no tap device"]);
        fails(1, &["--link=tap:none", "--net=10.9.0.1/24", "--attach"], &["none: no such interface; there are: "]);
        let held = bypath::tun::Device::tun("other").open().expect("a device");
        for link in ["--link=packet:other", "--link=xdp:other"] {
            fails(1, &[link, "--addr=10.9.0.2/24"], &["other: this interface does not carry Ethernet frames"]);
        }
        drop(held);
        bypath_sys::netns::set_up("left", false).expect("down");
        fails(1, &["--link=packet:left", "--addr=10.9.0.2/24"], &["left: the interface is down", "ip link set dev left up"]);
        // Somebody's file where the service's socket would be.
        let folder = TempDir::new();
        std::fs::write(folder.join("default"), "mine").expect("a file");
        let said = asked(&folder, &TAP).expect(1).stderr;
        assert!(said.contains("this is no socket of a netstack service; remove it, or choose another name"), "{said}");
        assert_eq!(std::fs::read(folder.join("default")).expect("the file"), b"mine");
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
        let (said, pid) = (asking.end().expect(1).stderr, running.id());
        assert!(said.contains(&format!("waiting for the netstack service default (pid {pid}): 4 s at most")), "{said}");
        assert!(said.contains(&format!("does not answer; is its process stopped? If it is: kill -CONT {pid}")), "{said}");
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

#[test]
fn a_queue_that_somebody_has_is_told_of() {
    const NAME: &str = "trouble::a_queue_that_somebody_has_is_told_of";
    if bypath_sys::process::euid() != 0 || bypath_sys::process::euid_outside() != 0 {
        return crate::network::skip(NAME, "AF_XDP is root's");
    }
    crate::network::apart(concat!(module_path!(), "::a_queue_that_somebody_has_is_told_of"), || {
        veth();
        let rules = [xdp::Rule::EtherType { ethertype: 0x0800, vlan: None }];
        let held = match xdp::XdpLink::open(&xdp::Config::new("left", &rules)) {
            Ok(held) => held,
            Err(e) => return crate::network::skip(NAME, &format!("no AF_XDP: {e}")),
        };
        let words = ["left: queue 0 has an AF_XDP socket already", "ss --xdp -p"];
        fails(1, &["--link=xdp:left", "--addr=10.9.0.2/24"], &words);
        drop(held);
    });
}

isolated! {
    fn without_a_service_what_a_rule_gives_to_it_fails_and_all_else_is_the_kernels() {
        const CONNECT: &str = "import errno, socket, sys
for port, host in ((sys.argv[1], '127.0.0.1'), ('9', '10.9.0.1')):
    try: print('connected', socket.create_connection((host, int(port)), timeout=5).getpeername()[0])
    except OSError as e: print(errno.errorcode[e.errno])";
        bypath_sys::netns::set_up("lo", true).expect("loopback");
        let folder = TempDir::new();
        let file = folder.join("rules.toml");
        std::fs::write(&file, "[[rules]]\nremote = '10.9.0.0/16'\naction = 'netstack:lab'\n").expect("a file");
        let kernels = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = kernels.local_addr().expect("an address").port().to_string();
        let config = format!("--config={}", file.display());
        let mut command = crate::common::run([&config, "--", "python3", "-c", CONNECT, &port]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let ended = crate::network::Tool::of(command).end().expect(0);
        assert_eq!(ended.text(), "connected 127.0.0.1\nENETDOWN\n", "{}", ended.stderr);
        for words in ["warning: rules of ", "no netstack service named lab is running", "start one: bypath netstack --name lab --link"] {
            assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
        }
    }
}
