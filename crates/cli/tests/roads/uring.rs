//! `--io-uring`: programs whose io_uring is made by the shared liburing, by the C library's syscall(), and by inline
//! system calls in the program itself.

use crate::{Ran, programs, same, same_while_paths_change, skip};
use bypath_shm::reason::Reason;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// How the program gets at io_uring.
#[derive(Clone, Copy, Debug)]
enum By {
    /// The shared library's functions.
    Shared,
    /// The C library's syscall().
    Number,
    /// The same functions in the program itself: nobody sees their calls.
    Static,
}

/// The program, or why there is none.
fn program(by: By) -> Result<&'static PathBuf, String> {
    static PROGRAMS: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
    if !Path::new("/usr/include/liburing.h").exists() {
        return Err("liburing is not installed (Debian package liburing-dev)".to_owned());
    }
    if std::fs::read("/proc/sys/kernel/io_uring_disabled").is_ok_and(|v| v.first() == Some(&b'2')) {
        return Err("io_uring is switched off on this host (kernel.io_uring_disabled)".to_owned());
    }
    let (name, flags): (_, &[&str]) = match by {
        By::Shared => ("uring", &[]),
        By::Number => ("uring-number", &["-DBY_NUMBER"]),
        By::Static => ("uring-static", &[]),
    };
    let library = if matches!(by, By::Static) { "-l:liburing.a" } else { "-luring" };
    let build = || programs::compile_with(name, &["uring.c"], flags, &[library]);
    Ok(PROGRAMS[by as usize].get_or_init(build))
}

/// Runs one way of use under one setting; `None` = not here.
#[track_caller]
fn uses(test: &str, by: By, how: &str, setting: Option<&str>) -> Option<Ran> {
    let program = match program(by) {
        Ok(program) => program,
        Err(reason) => {
            skip(&format!("roads::uring::{test}"), &reason);
            return None;
        }
    };
    let settings: Vec<_> = setting.map(|s| ("BYPATH_IO_URING", s)).into_iter().collect();
    Some(same(program, &[how], &settings))
}

/// Ring bytes of the first rounds (`warm_up` in `agent/roads_peer.h`), at least.
const WARMED: u64 = 3000;

#[test]
fn from_the_first_instance_on_everything_is_the_kernels() {
    for by in [By::Shared, By::Number, By::Static] {
        let Some(ran) = uses("from_the_first_instance_on_everything_is_the_kernels", by, "early", None)
        else {
            return;
        };
        assert_eq!(ran.ring_bytes(), 0, "{by:?}");
        assert!(ran.stayed(Reason::IoUring) >= 1, "{by:?} {}", ran.complaints);
    }
}

#[test]
fn an_instance_takes_live_connections_back() {
    for by in [By::Shared, By::Number] {
        let Some(ran) = uses("an_instance_takes_live_connections_back", by, "live", None) else { return };
        assert!(ran.ring_bytes() > WARMED, "{by:?} {}", ran.ring_bytes());
        assert!(ran.recalled(Reason::RecalledIoUring) >= 1, "{by:?}");
        // The other end was asked, and did not find out after a while that nobody reads.
        assert!(ran.recalled(Reason::RecalledPeer) >= 1, "{by:?}");
        // Nothing after the recall: the exchange is far more than what had gone before.
        assert!(ran.ring_bytes() < 10 * WARMED, "{by:?} {}", ran.ring_bytes());
    }
}

#[test]
fn an_instance_that_nobody_saw_loses_no_bytes() {
    let Some(ran) = uses("an_instance_that_nobody_saw_loses_no_bytes", By::Static, "live-receives", None)
    else {
        return;
    };
    assert!(ran.ring_bytes() > WARMED, "{}", ran.ring_bytes());
}

#[test]
fn who_only_looks_for_io_uring_goes_on_without_harm() {
    for setting in [None, Some("avoid"), Some("allow")] {
        for by in [By::Shared, By::Number, By::Static] {
            let Some(_) = uses("who_only_looks_for_io_uring_goes_on_without_harm", by, "probe", setting)
            else {
                return;
            };
        }
    }
}

#[test]
fn avoided_it_is_not_there_and_rings_serve() {
    for by in [By::Shared, By::Number] {
        for how in ["early", "live"] {
            let Some(ran) = uses("avoided_it_is_not_there_and_rings_serve", by, how, Some("avoid")) else {
                return;
            };
            assert!(ran.complaints.contains("io_uring is not there"), "{by:?} {}", ran.complaints);
            assert!(ran.ring_bytes() > 2 * ran.kernel_bytes(), "{by:?} {} bytes", ran.ring_bytes());
        }
    }
}

/// What makes its system calls itself cannot be told that there is no io_uring; it is found.
#[test]
fn avoided_and_there_all_the_same() {
    let Some(ran) = uses("avoided_and_there_all_the_same", By::Static, "early", Some("avoid")) else {
        return;
    };
    assert!(ran.complaints.contains("io_uring is there"), "{}", ran.complaints);
    assert_eq!(ran.ring_bytes(), 0);
    assert!(ran.stayed(Reason::IoUring) >= 1);
}

#[test]
fn allowed_for_files_connections_stay_on_rings() {
    for by in [By::Shared, By::Number, By::Static] {
        let Some(ran) = uses("allowed_for_files_connections_stay_on_rings", by, "files", Some("allow"))
        else {
            return;
        };
        assert!(ran.complaints.contains("io_uring is there"), "{}", ran.complaints);
        assert!(ran.ring_bytes() > WARMED, "{by:?} {}", ran.ring_bytes());
        assert_eq!(ran.recalled(Reason::RecalledIoUring), 0, "{by:?}");
    }
}

/// A library that was opened later, and keeps its symbols to itself, finds its own liburing.
#[test]
fn a_plugin_finds_its_own_liburing() {
    if let Err(reason) = program(By::Shared) {
        return skip("roads::uring::a_plugin_finds_its_own_liburing", &reason);
    }
    let flags = ["-DPLUGIN", "-shared", "-fPIC"];
    let plugin = programs::compile_with("uring-plugin.so", &["uring_plugin.c"], &flags, &["-luring"]);
    let host = programs::compile("uring-plugin", &["uring_plugin.c"], &[]);
    let path = plugin.to_str().expect("a plain path");
    same(&host, &[path], &[]);
}

#[test]
fn live_instances_while_paths_change() {
    for (by, how) in [(By::Shared, "live"), (By::Number, "live"), (By::Static, "live-receives")] {
        match program(by) {
            Ok(program) => same_while_paths_change(program, &[how]),
            Err(reason) => return skip("roads::uring::live_instances_while_paths_change", &reason),
        }
    }
}
