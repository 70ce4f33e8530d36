//! What a service says and does when it begins.

use crate::common::TempDir;
use crate::network::{Tool, skip, veth};
use crate::{TAP, devices, end, is_there, netstack, service};
use bypath::tun::Device;
use bypath_sys::seqpacket;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

isolated! {
    fn the_report_tells_link_addresses_socket_and_what_to_type() {
        if !devices("begins::the_report_tells_link_addresses_socket_and_what_to_type") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--gateway=10.9.0.1"]].concat());
        let socket = folder.join("default");
        assert!(socket.metadata().expect("a socket").file_type().is_socket());
        assert!(is_there("10.9.0.2") && is_there("fd09::2"));
        let text = end(running).text();
        for words in [
            "service     default (pid ",
            socket.to_str().expect("a path"),
            "link        tap:mine, ",
            "MTU 1500, checksums and segmentation by the link",
            "addresses   10.9.0.2/24, fd09::2/64",
            "routes      default via 10.9.0.1, fd09::/64 on the link, 10.9.0.0/24 on the link",
            "none kept",
            "users       root alone (others: --users=NAME,... or --users=all)",
            "next        bypath run --netstack -- curl http://10.9.0.1/",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

isolated! {
    fn the_report_is_json_where_that_is_asked_for() {
        if !devices("begins::the_report_is_json_where_that_is_asked_for") {
            return;
        }
        let folder = TempDir::new();
        let file = folder.join("report.json");
        let json = format!("--json={}", file.display());
        // A TUN device has no hardware addresses.
        let args = ["--link=tun:mine", "--net=10.9.0.1/24", "--mtu=1400", "--name=lab", "--users=4321,4322", &json];
        let running = Tool::of(netstack(&folder, &args));
        let end_of_wait = std::time::Instant::now() + crate::network::LONG;
        let report: serde_json::Value = loop {
            match std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                Some(report) => break report,
                None => assert!(std::time::Instant::now() < end_of_wait, "no report"),
            }
            std::thread::yield_now();
        };
        assert_eq!(report["name"], "lab");
        assert_eq!(report["pid"], running.id());
        assert_eq!(report["socket"], folder.join("lab").to_str().expect("a path"));
        assert_eq!((&report["link"]["kind"], &report["link"]["medium"]), (&"tun".into(), &"ip".into()));
        assert_eq!((&report["link"]["mac"], &report["link"]["mtu"]), (&serde_json::Value::Null, &1400.into()));
        assert_eq!(report["addresses"], serde_json::json!(["10.9.0.2/24"]));
        assert_eq!(report["privileges"]["kept"], serde_json::json!([]));
        assert_eq!(report["users"], serde_json::json!(["root", "4321", "4322"]));
        assert_eq!(report["next"], "bypath run --netstack=lab -- curl http://10.9.0.1/");
        running.signal(rustix::process::Signal::TERM);
        running.end().expect(0);
    }
}

isolated! {
    fn capabilities_are_given_up_by_every_thread() {
        if !devices("begins::capabilities_are_given_up_by_every_thread") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--metrics=0"]].concat());
        let tasks = std::fs::read_dir(format!("/proc/{}/task", running.id())).expect("threads");
        let mut threads = 0;
        for task in tasks {
            let status = std::fs::read_to_string(task.expect("a thread").path().join("status")).expect("a status");
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                let line = status.lines().find(|line| line.starts_with(set)).expect("a set");
                assert!(line.ends_with("0000000000000000"), "{status}");
            }
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
            threads += 1;
        }
        assert!(threads > 1);
        let text = end(running).text();
        assert!(text.contains("capabilities given up"), "{text}");
    }
}

isolated! {
    fn an_interface_of_others_is_served_and_its_addresses_are_asked_for() {
        veth();
        crate::network::address("right", "10.0.0.2");
        let folder = TempDir::new();
        let running = service(&folder, &["--link=packet:left", "--addr=10.0.0.1/24", "--addr=fd00::1/64"]);
        assert!(is_there("10.0.0.1"));
        let text = end(running).text();
        assert!(text.contains("packet:left") && text.contains("10.0.0.1/24, fd00::1/64"), "{text}");
    }
}

isolated! {
    fn who_is_starting_says_so_at_once_and_is_waited_for() {
        veth();
        let folder = TempDir::new();
        let args = ["--link=packet:left", "--addr=10.0.0.1/24", "--name=lab"];
        let starting = Tool::of(netstack(&folder, &args)).says("asking others on left whether 10.0.0.1 is free: 4 to 7 s");
        // Or it would be done before a busy machine has asked all that follows.
        starting.signal(rustix::process::Signal::STOP);
        let listed = crate::asked(&folder, &["ls"]).expect(1).text();
        assert!(listed.contains("lab") && listed.contains("starting"), "{listed}");
        let said = crate::asked(&folder, &["sockets", "--name=lab"]).expect(1).stderr;
        assert!(said.contains("the netstack service lab is starting") && said.contains("try again"), "{said}");
        let said = crate::asked(&folder, &args).expect(1).stderr;
        assert!(said.contains("a service named lab is starting already"), "{said}");
        let mut command = crate::common::run(["--netstack=lab", "--", "echo", "there"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let program = Tool::of(command).says("the netstack service lab is starting: waiting for it, 40 s at most");
        starting.signal(rustix::process::Signal::CONT);
        assert_eq!(program.end().expect(0).text(), "there\n");
        let running = starting.hears("next");
        let listed = crate::asked(&folder, &["ls"]).expect(0).text();
        assert!(listed.contains("running") && !listed.contains("starting"), "{listed}");
        end(running);

        // Where so many wait that there is no room for another one, he waits all the same.
        let crowded = folder.join(".crowded.starting");
        let listener = seqpacket::bind(&crowded).expect("a name");
        seqpacket::listen(listener.as_fd(), 0).expect("a listener");
        let waiting: Vec<_> = std::iter::from_fn(|| seqpacket::connect(&crowded).ok()).collect();
        assert!(!waiting.is_empty());
        let mut command = crate::common::run(["--netstack=crowded", "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let program = Tool::of(command).says("the netstack service crowded is starting: waiting for it");
        drop((listener, waiting));
        let said = program.end().expect(125).stderr;
        assert!(said.contains("no netstack service named crowded is running"), "{said}");

        // One that is killed meanwhile is not waited for, and leaves nothing behind that is in anybody's way.
        let killed = Tool::of(netstack(&folder, &args)).says("asking others");
        killed.signal(rustix::process::Signal::STOP);
        let mut command = crate::common::run(["--netstack=lab", "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let program = Tool::of(command).says("is starting: waiting for it");
        killed.signal(rustix::process::Signal::KILL);
        let said = program.end().expect(125).stderr;
        assert!(said.contains("no netstack service named lab is running"), "{said}");
        killed.end();
        assert!(!crate::asked(&folder, &["ls"]).expect(1).text().contains("starting"));
        end(Tool::of(netstack(&folder, &args)).says("asking others").hears("next"));
    }
}

isolated! {
    fn a_signal_to_read_again_does_not_end_what_has_not_begun() {
        veth();
        let folder = TempDir::new();
        let running = Tool::of(netstack(&folder, &["--link=packet:left", "--addr=10.0.0.1/24"]));
        let path = format!("/proc/{}/status", running.id());
        let catches = |signal: u64| {
            let status = std::fs::read_to_string(&path).expect("a status");
            let line = status.lines().find(|line| line.starts_with("SigCgt:")).expect("a mask").to_owned();
            let mask = u64::from_str_radix(line[7..].trim(), 16).expect("a number");
            mask & (1 << (signal - 1)) != 0
        };
        let end_of_wait = std::time::Instant::now() + crate::network::LONG;
        // Whoever hears SIGTERM asks for addresses now.
        while !catches(15) {
            assert!(std::time::Instant::now() < end_of_wait, "it watches for no signal");
            std::thread::yield_now();
        }
        running.signal(rustix::process::Signal::HUP);
        let text = end(running.hears("next").says("there is no file to read again")).text();
        assert!(text.contains("addresses   10.0.0.1/24"), "{text}");
    }
}

isolated! {
    fn a_capture_has_what_passed_while_it_runs() {
        const NAME: &str = "begins::a_capture_has_what_passed_while_it_runs";
        if !devices(NAME) {
            return;
        }
        if Command::new("tshark").arg("--version").output().is_err() {
            return skip(NAME, "tshark is not installed (Debian package tshark)");
        }
        let folder = TempDir::new();
        let file = folder.join("all.pcapng");
        let capture = format!("--capture={}", file.display());
        let running = service(&folder, &[&TAP[..], &[&capture]].concat());
        assert!(is_there("10.9.0.2"));
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-T", "fields", "-e", "ip.src", "-e", "tcp.flags.str", "-Y", "tcp && ip", "-r"]);
        let read = tshark.arg(&file).output().expect("tshark");
        let text = String::from_utf8(read.stdout).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}{}", String::from_utf8_lossy(&read.stderr));
        assert!(lines[0].starts_with("10.9.0.1\t") && lines[0].contains('S'), "{text}");
        assert!(lines[1].starts_with("10.9.0.2\t") && lines[1].contains('R'), "{text}");
        assert!(end(running).text().contains("all.pcapng"));
    }
}

isolated! {
    fn addresses_come_from_a_dhcp_server_and_a_router() {
        const NAME: &str = "begins::addresses_come_from_a_dhcp_server_and_a_router";
        if !devices(NAME) {
            return;
        }
        if Command::new("dnsmasq").arg("--version").output().is_err() {
            return skip(NAME, "dnsmasq is not installed; Debian package: dnsmasq-base");
        }
        let device = Device::tap("mine").address("10.9.0.1".parse().expect("an address"), 24);
        let device = device.address("fd09::1".parse().expect("an address"), 64).persistent(true);
        drop(device.open().expect("a device"));
        let mut server = Command::new("dnsmasq");
        server.args(["--no-daemon", "--conf-file=/dev/null", "--interface=mine", "--bind-interfaces", "--port=0"]);
        server.args(["--dhcp-range=10.9.0.50,10.9.0.59,255.255.255.0,2m", "--dhcp-leasefile=/dev/null", "--log-dhcp"]);
        server.args(["--enable-ra", "--dhcp-range=fd09::,ra-only"]);
        server.args(["--pid-file=", "--user=", "--group=", "--log-facility=-"]);
        let server = Tool::of(server).says("started");
        let folder = TempDir::new();
        let running = service(&folder, &["--link=tap:mine", "--attach", "--dhcp", "--slaac"]);
        let own = |what: &str| {
            let all = crate::asked(&folder, &[what, "--json"]).expect(0).stdout;
            serde_json::from_slice::<Vec<serde_json::Value>>(&all).expect("JSON")
        };
        let has = |prefix: &str| {
            let is = |a: &serde_json::Value| {
                a["state"] == "preferred" && a["address"].as_str().is_some_and(|a| a.starts_with(prefix))
            };
            own("addr").iter().any(is)
        };
        assert!(has("10.9.0.5"));
        let end_of_wait = std::time::Instant::now() + crate::network::LONG;
        while !has("fd09:") {
            assert!(std::time::Instant::now() < end_of_wait, "no address by a router: {:?}", own("addr"));
        }
        let routes = own("route");
        let by = |to: &str| routes.iter().any(|r| r["destination"] == to && !r["via"].is_null());
        assert!(by("0.0.0.0/0") && by("::/0"), "{routes:?}");
        let text = end(running);
        assert!(text.stderr.contains("from the DHCP server 10.9.0.1"), "{}", text.stderr);
        let server = server.says("DHCPRELEASE(mine) 10.9.0.5");
        server.signal(rustix::process::Signal::TERM);
        server.end();

        // Routers alone.
        let mut router = Command::new("dnsmasq");
        router.args(["--no-daemon", "--conf-file=/dev/null", "--interface=mine", "--bind-interfaces", "--port=0"]);
        router.args(["--enable-ra", "--dhcp-range=fd09::,ra-only"]);
        router.args(["--pid-file=", "--user=", "--group=", "--log-facility=-"]);
        let router = Tool::of(router).says("started");
        let running = service(&folder, &["--link=tap:mine", "--attach", "--slaac"]);
        assert!(has("fd09:"));
        end(running);
        router.signal(rustix::process::Signal::TERM);
        router.end();
        bypath_sys::netns::remove("mine").expect("the device");
    }
}

isolated! {
    fn a_folder_that_others_have_locked_holds_no_service_up() {
        if !devices("begins::a_folder_that_others_have_locked_holds_no_service_up") {
            return;
        }
        let folder = TempDir::new();
        let held = std::fs::File::open(folder.path()).expect("a folder");
        held.lock().expect("a lock");
        end(service(&folder, &TAP)).expect(0);
        drop(held);
    }
}
