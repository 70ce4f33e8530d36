//! A memory cgroup of the tests' own, of either version.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Removed with this value; its processes are gone by then.
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// One below the own one that allows `bytes`; or why there can be none.
    pub fn new(bytes: u64) -> Result<Cgroup, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
        let of = |name: &str| {
            let mut lines = own.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            lines.find(|words| words.len() == 3 && words[1] == name).map(|words| words[2].to_owned())
        };
        let places = [
            (of("memory"), "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            (of(""), "/sys/fs/cgroup", "memory.max"),
        ];
        let mut reasons = String::from("no memory cgroup");
        for (path, top, limit) in places {
            let Some(path) = path else { continue };
            // The own one may be shown as the top.
            for parent in [Path::new(top).join(path.trim_start_matches('/')), PathBuf::from(top)] {
                let new = parent.join(format!("bypath-test-{}-{bytes}", std::process::id()));
                if let Err(e) = fs::create_dir(&new) {
                    reasons = format!("{}: {e}", new.display());
                    continue;
                }
                let made = Cgroup(new);
                match fs::write(made.0.join(limit), bytes.to_string()) {
                    Ok(()) => return Ok(made),
                    Err(e) => reasons = format!("{}: {e}", made.0.join(limit).display()),
                }
            }
        }
        Err(reasons)
    }

    /// Program and arguments to be put in front of a command: it runs in here.
    pub fn enter(&self) -> Vec<OsString> {
        let script = format!("echo $$ >'{}/cgroup.procs' && exec \"$@\"", self.0.display());
        ["/bin/sh", "-c", &script, "sh"].map(OsString::from).to_vec()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
