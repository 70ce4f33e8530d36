//! Several services: who has whose address, one that does not answer beside others, and one that is just being started.

use crate::common::{self, TempDir};
use crate::network::{LONG, Tool, address, hosts};
use crate::{TAP, asked, devices, end, netstack, service};
use rustix::process::Signal;
use std::time::{Duration, Instant};

isolated! {
    fn two_services_on_one_interface_do_not_have_one_address() {
        let _there = hosts();
        let folder = TempDir::new();
        let first = service(&folder, &["--link=packet:left", "--addr=fd00::7/64", "--name=first"]);
        let pid = first.id();
        let words = format!("fd00::7: the netstack service first has that address on left; give this one another, or end that one: kill {pid}");
        let said = asked(&folder, &["--link=packet:left", "--addr=fd00::7/64", "--name=second"]).expect(1).stderr;
        assert!(said.contains(&words), "{said}");
        let said = asked(&folder, &["ping", "--link=packet:left", "--addr=fd00::7/64", "fd00::1"]).expect(1).stderr;
        assert!(said.contains(&words), "{said}");
        // Another address is no matter, until it is to have that one, too.
        let second = service(&folder, &["--link=packet:left", "--addr=fd00::8/64", "--name=second"]);
        let said = asked(&folder, &["addr", "add", "fd00::7/64", "--name=second"]).expect(1).stderr;
        assert!(said.contains(&words), "{said}");
        assert!(!asked(&folder, &["addr", "--name=second"]).expect(0).text().contains("fd00::7"));
        // On another interface it is another network.
        bypath_sys::netns::veth("near", "far", None).expect("a veth pair");
        for name in ["near", "far"] {
            bypath_sys::netns::set_up(name, true).expect("up");
        }
        crate::network::they_run();
        let third = service(&folder, &["--link=packet:near", "--addr=fd00::7/64", "--name=third"]);
        // One that does not answer is no reason not to begin.
        first.stop();
        let fourth = Tool::of(netstack(&folder, &["--link=packet:left", "--addr=fd00::9/64", "--name=fourth"]))
            .says("the netstack service first does not answer; whether it has the same addresses is not known")
            .hears("next");
        first.signal(Signal::CONT);
        for running in [first, second, third, fourth] {
            end(running);
        }
    }
}

isolated! {
    fn two_services_that_begin_at_once_with_one_address_do_not_both_have_it() {
        let _there = hosts();
        let folder = TempDir::new();
        // None is there for the other one to ask; the one that is later asks once more.
        let both = ["one", "two"].map(|name| {
            Tool::of(netstack(&folder, &["--link=packet:left", "--addr=10.0.0.7/24", "--name", name]))
                .says("asking others on left whether 10.0.0.7 is free")
        });
        let begin = Instant::now();
        let has_ended = |tool: &Tool| {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", tool.id())).unwrap_or_default();
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('Z'))
        };
        while !both.iter().any(has_ended) {
            assert!(begin.elapsed() < LONG, "both go on");
            std::thread::yield_now();
        }
        let ended = both.map(|tool| {
            tool.signal(Signal::TERM);
            tool.end()
        });
        let mut codes = ended.each_ref().map(crate::network::Ended::code);
        codes.sort_unstable();
        let said = ended.map(|ended| ended.stderr).concat();
        assert_eq!(codes, [Some(0), Some(1)], "{said}");
        assert_eq!(said.matches("has that address on left").count(), 1, "{said}");
    }
}

isolated! {
    fn who_does_not_answer_is_named_at_once_and_holds_no_other_up() {
        if !devices("several::who_does_not_answer_is_named_at_once_and_holds_no_other_up") {
            return;
        }
        let folder = TempDir::new();
        let (lab, other) = (service(&folder, &[&TAP[..], &["--name=lab"]].concat()), service(&folder, &["--link=tap:other", "--net=10.8.0.1/24", "--name=other"]));
        lab.stop();
        let begin = Instant::now();
        let ended = asked(&folder, &["ls"]).expect(0);
        assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
        let pid = lab.id();
        assert!(ended.stderr.contains(&format!("waiting for the netstack service lab (pid {pid}): 4 s at most")), "{}", ended.stderr);
        let text = ended.text();
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        assert!(line("lab").contains("no answer") && line("lab").contains(&pid.to_string()), "{text}");
        assert!(line("other").contains("running"), "{text}");
        let mut command = common::run(["--netstack=lab", "--", "true"]);
        command.env("BYPATH_NETSTACK_DIR", folder.path());
        let said = Tool::of(command).end().expect(125).stderr;
        assert!(said.contains("waiting for the netstack service lab") && said.contains(&format!("kill -CONT {pid}")), "{said}");
        lab.signal(Signal::CONT);
        for running in [lab, other] {
            end(running);
        }
    }
}

isolated! {
    fn a_program_waits_for_a_service_that_is_just_being_started() {
        if !devices("several::a_program_waits_for_a_service_that_is_just_being_started") {
            return;
        }
        let folder = TempDir::new();
        let program = || {
            let mut command = common::run(["--netstack=lab", "--", "echo", "it ran"]);
            command.env("BYPATH_NETSTACK_DIR", folder.path());
            Tool::of(command)
        };
        // The program comes first.
        let waiting = program().says("waiting for a netstack service lab to be started: 2 s at most");
        let running = service(&folder, &[&TAP[..3], &["--name=lab"]].concat());
        assert_eq!(waiting.end().expect(0).text(), "it ran\n");
        end(running);
        // And if there is to be none, it says so.
        let said = program().end().expect(125).stderr;
        assert!(said.contains("waiting for a netstack service lab") && said.contains("no netstack service named lab is running"), "{said}");
    }
}

isolated! {
    fn a_router_that_does_not_answer_and_a_link_that_is_down_are_in_the_log() {
        let _there = hosts();
        address("left", "10.0.0.3");
        let folder = TempDir::new();
        let running = service(&folder, &["--link=packet:left", "--addr=fd00::7/64", "--gateway=fd00::66"]);
        let said = asked(&folder, &["ping", "--count=1", "2001:db8::1"]).expect(3).stderr;
        assert!(said.contains("the router fd00::66, by which 2001:db8::1 is reached, does not answer"), "{said}");
        let running = running.says("the router fd00::66 does not answer on left");
        bypath_sys::netns::set_up("left", false).expect("down");
        let running = running.says("left is down: ip link set left up");
        bypath_sys::netns::set_up("left", true).expect("up");
        end(running.says("left is up again"));
    }
}
