//! How a service ends.

use crate::common::TempDir;
use crate::{TAP, asked, devices, service};
use rustix::process::Signal;
use std::os::unix::net::UnixListener;

isolated! {
    fn both_signals_end_it_and_nothing_is_left() {
        if !devices("ends::both_signals_end_it_and_nothing_is_left") {
            return;
        }
        let folder = TempDir::new();
        for signal in [Signal::TERM, Signal::INT] {
            let running = service(&folder, &TAP);
            running.signal(signal);
            let ended = running.end().expect(0);
            assert_eq!(ended.stderr, "");
            // But for what its successor shows programs that it is of the same house.
            let left = std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
            assert!(left.into_iter().all(|name| name == ".default.key"));
        }
    }
}

isolated! {
    fn what_a_killed_service_left_behind_is_replaced() {
        if !devices("ends::what_a_killed_service_left_behind_is_replaced") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        running.signal(Signal::KILL);
        running.end();
        assert!(folder.join("default").exists());
        let running = service(&folder, &TAP);
        let ended = crate::end(running);
        assert_eq!(ended.stderr, "");
        assert!(!folder.join("default").exists());
        // The same of what somebody else left there.
        drop(UnixListener::bind(folder.join("default")).expect("a socket"));
        crate::end(service(&folder, &TAP));
    }
}

isolated! {
    fn a_device_that_is_removed_ends_it() {
        if !devices("ends::a_device_that_is_removed_ends_it") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        bypath_sys::netns::remove("mine").expect("the device");
        let ended = running.end().expect(1);
        assert!(ended.stderr.contains("error: mine"), "{}", ended.stderr);
        assert!(!folder.join("default").exists());
    }
}

isolated! {
    fn a_name_is_one_services() {
        if !devices("ends::a_name_is_one_services") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        let second = asked(&folder, &["--link=tap:other", "--net=10.8.0.1/24"]).expect(1);
        for words in ["a service named default is running already", "--name"] {
            assert!(second.stderr.contains(words), "{}", second.stderr);
        }
        let other = service(&folder, &["--link=tap:other", "--net=10.8.0.1/24", "--name=other"]);
        let listed = asked(&folder, &["ls"]).expect(0).text();
        assert!(listed.contains("default") && listed.contains("other") && listed.contains("running"), "{listed}");
        crate::end(other);
        crate::end(running);
        let none = asked(&folder, &["ls"]).expect(1);
        assert!(none.stderr.contains("no netstack service is running"), "{}", none.stderr);
    }
}
