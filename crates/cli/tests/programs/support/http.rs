//! HTTP load from `http_load.py`, as long as a test wants it: every body is compared, and one failed request
//! ends the load and fails the test.

use super::process::{Outcome, Process};
use super::sample::sample;
use super::scene::Scene;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files of several lengths in a fresh directory `name` of the scene: what the servers serve.
pub fn files(scene: &Scene, name: &str) -> PathBuf {
    let dir = scene.path(name);
    fs::create_dir(&dir).expect("a fresh directory");
    let mut from = File::open(sample(64)).expect("the sample");
    for (n, len) in [1024, 300_000, 16_384, 1, 70_001, 40_000].into_iter().enumerate() {
        let mut bytes = vec![0; len];
        from.read_exact(&mut bytes).expect("the sample is longer");
        fs::write(dir.join(format!("{n}.bin")), bytes).expect("a file");
    }
    dir
}

/// A client under load until it is stopped.
pub struct Load {
    process: Process,
}

impl Load {
    /// Starts so many connections, each kept as long as the server does, and waits until each was used 50
    /// times.
    #[track_caller]
    pub fn start(scene: &Scene, port: u16, dir: &Path, connections: usize) -> Load {
        Load::started(scene, port, dir, connections, &[])
    }

    /// Two connections at a time, each for one request of the shortest files in `dir`: too short for a ring.
    #[track_caller]
    pub fn newcomers(scene: &Scene, port: u16, dir: &Path) -> Load {
        let short = scene.path("short");
        fs::create_dir(&short).expect("a fresh directory");
        for name in ["0.bin", "3.bin"] {
            fs::copy(dir.join(name), short.join(name)).expect("a copy");
        }
        Load::started(scene, port, &short, 2, &["close"])
    }

    #[track_caller]
    fn started(scene: &Scene, port: u16, dir: &Path, connections: usize, options: &[&str]) -> Load {
        let client = scene.client("python3").script("http_load.py").arg(port.to_string()).arg(dir);
        let mut process = client.arg(connections.to_string()).words(options).start();
        process.ready(|line| (line == "warm").then_some(()));
        Load { process }
    }

    /// The processes that answered so far, by what they say in X-Worker.
    pub fn workers(&self) -> BTreeSet<String> {
        self.process.said().lines().filter_map(worker).collect()
    }

    /// Waits until a process answers that did not before.
    #[track_caller]
    pub fn newer_worker(&mut self, before: &BTreeSet<String>) {
        self.process.ready(|line| worker(line).filter(|w| !before.contains(w)));
    }

    /// Waits until so many more MiB came.
    #[track_caller]
    pub fn more(&mut self, mib: u64) {
        let now = self.process.said().lines().filter_map(moved).max().unwrap_or(0);
        self.process.ready(|line| moved(line).filter(|m| *m >= now + mib));
    }

    /// Ends the load; every request was answered rightly.
    #[track_caller]
    pub fn stop(self) -> Outcome {
        self.process.stop(Signal::TERM).ok()
    }
}

fn worker(line: &str) -> Option<String> {
    line.strip_prefix("serving ").map(str::to_owned)
}

fn moved(line: &str) -> Option<u64> {
    line.strip_prefix("moved ")?.parse().ok()
}
