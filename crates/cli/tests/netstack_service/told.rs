//! What systemd is told.

use crate::common::TempDir;
use crate::network::{LONG, Tool};
use crate::{TAP, devices, netstack};
use rustix::process::Signal;
use std::os::unix::net::UnixDatagram;

fn next(socket: &UnixDatagram) -> String {
    let mut room = [0; 4096];
    let len = socket.recv(&mut room).expect("a word");
    String::from_utf8(room[..len].to_vec()).expect("text")
}

isolated! {
    fn systemd_learns_of_readiness_reloading_and_the_end() {
        if !devices("told::systemd_learns_of_readiness_reloading_and_the_end") {
            return;
        }
        let folder = TempDir::new();
        let socket = UnixDatagram::bind(folder.join("notify")).expect("a socket");
        socket.set_read_timeout(Some(LONG)).expect("a time");
        let file = folder.join("lab.toml");
        std::fs::write(&file, "").expect("a file");
        let config = format!("--config={}", file.display());
        let mut command = netstack(&folder, &[&TAP[..], &[&config]].concat());
        command.env("NOTIFY_SOCKET", folder.join("notify"));
        let running = Tool::of(command);
        // Before it is ready it says no more than that it starts.
        assert_eq!(next(&socket).trim_end(), "STATUS=default on tap:mine: starting");
        let ready = next(&socket);
        assert!(ready.lines().any(|line| line == "READY=1") && ready.contains("STATUS=default on tap:mine"), "{ready}");
        running.signal(Signal::HUP);
        let reloading = next(&socket);
        assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
        assert!(next(&socket).contains("READY=1"));
        running.signal(Signal::TERM);
        assert!(next(&socket).contains("STOPPING=1"));
        running.end().expect(0);
    }
}
