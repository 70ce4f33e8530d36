//! Names that lead elsewhere: in a root of his own anybody calls a file as `/proc` calls memory.

use crate::common::{TempDir, bypath, workspace};
use crate::lab::{Running, has, skip};
use crate::liar::{Liar, within};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

const NAMES: [&str; 2] = ["memfd:bypath-view (deleted)", "memfd:bypath-inbox (deleted)"];

/// How often something that is watched was opened since it was asked last.
fn opened(watch: &OwnedFd) -> usize {
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut room);
    let mut count = 0;
    while let Ok(event) = events.next() {
        assert!(event.events().contains(ReadFlags::OPEN), "{event:?}");
        count += 1;
    }
    count
}

/// Files of these names may be devices, logs of the kernel's, whatever does something when it is opened: of files it can be seen.
#[test]
fn what_is_called_as_memory_and_is_none_is_not_opened() {
    let name = "names::what_is_called_as_memory_and_is_none_is_not_opened";
    if !has(name, &["python3", "unshare", "pivot_root", "mount"]) {
        return;
    }
    if !Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success()) {
        return skip(name, "no namespaces of one's own");
    }
    let liar = Liar::new();
    let folder = TempDir::new();
    // He has the region as his standard output.
    let region = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", liar.region));
    let mut other = Command::new("unshare");
    other.args(["-Urm", "python3"]).arg(workspace().join("crates/cli/tests/liars/elsewhere.py"));
    other.arg(folder.path()).stdin(Stdio::piped()).stdout(region.expect("the region")).stderr(Stdio::piped());
    let mut other = Running(other.spawn().expect("unshare starts"));
    let mut line = String::new();
    BufReader::new(other.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = other.0.id();
    liar.has_member(0, pid);
    liar.has_end(0, 77, 78);
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
    let root = format!("/proc/{pid}/root");
    for name in NAMES {
        inotify::add_watch(&watch, format!("{root}/{name}"), WatchFlags::OPEN).expect("a watch");
    }
    let number = pid.to_string();
    for args in [
        &["ss"][..],
        &["metrics"],
        &["why", &number],
        &["top", "--once", "-d", "0.1"],
        &["dump", "--seconds", "0.3"],
        &["recall", "--wait", "0.1", &number],
        &["upgrade", "--wait", "0.1", &number],
    ] {
        let output = within(Duration::from_secs(30), bypath(args));
        assert_ne!(output.status.code(), Some(3), "{args:?}: {output:?}");
        assert_eq!(opened(&watch), 0, "{args:?}");
    }
    for name in NAMES {
        File::open(format!("{root}/{name}")).expect("the file");
        assert_eq!(opened(&watch), 1, "nothing is seen here");
    }
}
