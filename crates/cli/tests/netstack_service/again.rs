//! SIGHUP: what changes while it runs, and what does not.

use crate::common::TempDir;
use crate::{TAP, devices, end, is_there, service};
use rustix::process::Signal;

isolated! {
    fn addresses_and_routes_of_the_file_are_taken_anew() {
        if !devices("again::addresses_and_routes_of_the_file_are_taken_anew") {
            return;
        }
        let folder = TempDir::new();
        let file = folder.join("lab.toml");
        let write = |text: &str| std::fs::write(&file, text).expect("a file");
        let begin = "link = \"tap:mine\"\nnet = \"10.9.0.1/24\"\n";
        write(&format!("{begin}addr = [\"10.9.0.2/24\", \"10.9.0.3/24\"]\ngateway = \"10.9.0.1\"\n"));
        let config = format!("--config={}", file.display());
        let running = service(&folder, &[&config]);
        assert!(is_there("10.9.0.2") && is_there("10.9.0.3") && !is_there("10.9.0.4"));

        write(&format!(
            "{begin}addr = [\"10.9.0.2/24\", \"10.9.0.4/24\"]\nmtu = 1400\n[limits]\nsockets-per-user = 9\n\
             [[routes]]\nto = \"10.1.0.0/16\"\nvia = \"10.9.0.1\"\n"
        ));
        running.signal(Signal::HUP);
        let running = running.says("mtu: as before until a restart").says("configuration read again");
        for words in [
            "10.9.0.3/24 removed",
            "10.9.0.4/24 added",
            "route to default via 10.9.0.1 removed",
            "route to 10.1.0.0/16 via 10.9.0.1 added",
            "limits changed",
        ] {
            assert!(running.said.contains(words), "{words}: {}", running.said);
        }
        assert!(is_there("10.9.0.2") && is_there("10.9.0.4") && !is_there("10.9.0.3"));

        // A mistake changes nothing, and ends nothing.
        write(&format!("{begin}adr = \"10.9.0.9/24\"\n"));
        running.signal(Signal::HUP);
        let running = running.says("not read again").says("unknown key 'adr' (did you mean 'addr'?)");
        assert!(is_there("10.9.0.2") && is_there("10.9.0.4"));

        write(&format!("{begin}addr = [\"10.9.0.2/24\", \"10.9.0.4/24\"]\n"));
        running.signal(Signal::HUP);
        let running = running.says("configuration read again: route to 10.1.0.0/16 via 10.9.0.1 removed; limits changed");
        running.signal(Signal::HUP);
        end(running.says("configuration read again: nothing has changed"));
    }
}

isolated! {
    fn without_a_file_it_says_so_and_goes_on() {
        if !devices("again::without_a_file_it_says_so_and_goes_on") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        running.signal(Signal::HUP);
        let running = running.says("there is no file to read again");
        assert!(is_there("10.9.0.2"));
        end(running);
    }
}

isolated! {
    fn a_device_that_is_down_is_told_of_and_goes_on_when_it_is_up() {
        if !devices("again::a_device_that_is_down_is_told_of_and_goes_on_when_it_is_up") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        assert!(is_there("10.9.0.2"));
        bypath_sys::netns::set_up("mine", false).expect("down");
        let running = running.says("mine is down: ip link set mine up");
        bypath_sys::netns::set_up("mine", true).expect("up");
        assert!(is_there("10.9.0.2"));
        end(running);
    }
}
