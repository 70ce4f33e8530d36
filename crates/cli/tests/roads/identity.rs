//! Processes that change user, capabilities, namespaces or root while a connection is live: rings go on, and what was
//! true of the process when they came up is not asked for again.

use crate::{programs, run, same, skip};
use std::path::PathBuf;
use std::sync::OnceLock;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("identity", &["identity.c"], &[]))
}

/// Ring bytes of a whole run; about 300 000 go before the change.
const MANY: u64 = 500_000;
const BEFORE: u64 = 100_000;

/// One change, made by this end, the other, or both.
#[track_caller]
fn changes(change: &str, least: u64) {
    let empty = programs::workshop().join("identity-root");
    std::fs::create_dir_all(&empty).expect("an empty directory");
    let empty = empty.to_str().expect("a plain path");
    for who in ["us", "peer", "both"] {
        let args = [change, who, empty];
        let plain = run(program(), &args, &[]);
        if plain.status.code() == Some(77) {
            let why = String::from_utf8_lossy(&plain.stderr).trim().to_owned();
            return skip(&format!("roads::identity::{change}"), &format!("cannot be done here: {why}"));
        }
        let ran = same(program(), &args, &[]);
        // The rings stay: what goes through them after the change is much more than what went before.
        assert!(ran.ring_bytes() > least, "{args:?}: {} {}", ran.ring_bytes(), ran.complaints);
    }
}

macro_rules! changes {
    ($($name:ident $change:literal $least:ident;)*) => {$(
        #[test]
        fn $name() {
            changes($change, $least);
        }
    )*};
}

changes! {
    another_user "user" MANY;
    another_effective_user "euid" MANY;
    setuid_for_good "setuid" MANY;
    no_capabilities "capabilities" MANY;
    not_dumpable "dumpable" MANY;
    another_network "net" MANY;
    another_user_namespace "userns" MANY;
    // Children there cannot tell who of the family lives: a fork takes everything back.
    another_process_namespace "pid" BEFORE;
    no_first_thread "leader" MANY;
    another_mount_namespace "mount" MANY;
    entering_a_namespace "setns" MANY;
    another_root "chroot" MANY;
    another_root_and_user "jail" MANY;
}
