//! Two services talk to each other: no kernel's TCP anywhere.

use crate::lab::{Lab, have, netstack, on_stack};
use crate::network::{Tool, octets};
use rustix::process::Signal;
use std::fs;

isolated! {
    fn programs_behind_two_services_talk_to_each_other() {
        if !have("between::programs_behind_two_services_talk_to_each_other", &["python3", "curl", "iperf3", "redis-server", "redis-benchmark"]) {
            return;
        }
        let lab = Lab::cable();
        let (here, there) = (lab.folder.join("here"), lab.folder.join("there"));
        fs::create_dir(&here).expect("a folder");
        fs::create_dir(&there).expect("a folder");
        fs::write(there.join("file"), octets(20_000_000)).expect("a file");
        // Their addresses are nobody else's: the kernel of the other host has 10.0.0.2.
        let near = Tool::of(netstack(&here, &["--link=packet:left", "--addr=10.0.0.11/24"]));
        let far = lab.there.run(|| Tool::of(netstack(&there, &["--link=packet:right", "--addr=10.0.0.12/24"])));
        let (near, far) = (near.hears("next"), far.expect("the other host").hears("next"));
        let serve = |line: &[&str]| lab.there.run(|| Tool::of(on_stack(&there, line))).expect("the other host");
        let ask = |line: &[&str]| Tool::of(on_stack(&here, line)).quiet().end().expect(0);

        let web = serve(&["python3", "-u", "-m", "http.server", "8000"]).hears("Serving HTTP");
        let line = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "got", "http://10.0.0.12:8000/file"];
        ask(&line);
        assert!(fs::read(here.join("got")).expect("a file") == octets(20_000_000), "other octets came");
        let web = web.says("10.0.0.11 - - ");
        web.signal(Signal::KILL);
        web.end();

        let served = serve(&["iperf3", "--server", "--forceflush"]).hears("listening");
        for way in [&["-n", "30M"][..], &["-n", "30M", "-R", "-P", "4"]] {
            ask(&[&["iperf3", "--client", "10.0.0.12"], way].concat());
        }
        served.signal(Signal::INT);
        served.end();

        let line = ["redis-server", "--bind", "10.0.0.12", "--save", "", "--protected-mode", "no"];
        let served = serve(&line).hears("Ready to accept connections");
        let said = ask(&["redis-benchmark", "-h", "10.0.0.12", "--csv", "-t", "set,get", "-c", "50", "-n", "5000"]).text();
        assert!(said.contains("\"SET\",") && said.contains("\"GET\","), "{said}");
        served.signal(Signal::TERM);
        served.end().expect(0);
        for service in [near, far] {
            service.signal(Signal::TERM);
            service.end().expect(0);
        }
    }
}
