//! Two hosts and a link between them, on which a script runs that was written for one host: its addresses are taken for
//! those of the host that is meant.

use crate::programs;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Calls that `agent/link.c` stands in for.
const CALLS: &str = "accept accept4 bind close connect dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 \
    epoll_wait fcntl getpeername getsockname getsockopt ioctl listen pipe poll ppoll preadv2 pselect read readv recv recvfrom \
    recvmmsg recvmsg select send sendmmsg sendmsg sendto setsockopt shutdown sockatmark socket splice syscall write writev";
/// Octets that buffers are asked to have for a script that leaves much unread.
pub const WIDE: u32 = 4 << 20;

/// The agent program at an end of a link, compiled once.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let sources = [
            "agent.c",
            "sockets.c",
            "data.c",
            "ready.c",
            "process.c",
            "bad.c",
            "stdio.c",
            "told.c",
            "datagrams.c",
            "link.c",
            "link_host.c",
            "link_several.c",
        ];
        let wraps: Vec<String> = CALLS.split_whitespace().map(|call| format!("-Wl,--wrap={call}")).collect();
        let flags: Vec<&str> =
            std::iter::once("-U_FORTIFY_SOURCE").chain(wraps.iter().map(String::as_str)).collect();
        programs::compile("agent-link", &sources, &flags)
    })
}

/// The plug-in, built by its own cargo invocation: as a library that is opened, it is nobody's dependency.
pub fn plugin() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "-p", "bypath-packetdrill", "--lib", "--message-format=json"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .output()
            .expect("run cargo");
        let text = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "building bypath-packetdrill failed:\n{text}\n{complaints}");
        text.split('"')
            .find(|word| word.ends_with("/libbypath_packetdrill.so"))
            .map(PathBuf::from)
            .expect("cargo names the library it built")
    })
}

/// Why the kernel's end of a link cannot be made here, if it cannot.
pub fn missing() -> Option<String> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    WHY.get_or_init(|| {
        let dir = programs::workshop().join(format!("link-probe-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("create the probe's directory");
        let output = Command::new(program())
            .args(["--do", "preloaded"])
            .env_remove("LD_PRELOAD")
            .envs(environment("c", false, false, &dir))
            .output()
            .expect("start the agent");
        let _ = std::fs::remove_dir_all(&dir);
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        (output.status.code() == Some(77)).then_some(complaint)
    })
    .clone()
}

fn number(end: &str) -> u8 {
    if end == "c" { 1 } else { 2 }
}

/// What tells the program at this end which it is.
pub fn environment(end: &str, stack: bool, wide: bool, dir: &Path) -> HashMap<String, String> {
    let socket = |end: &str| dir.join(format!("{end}.link")).to_string_lossy().into_owned();
    let mut set = HashMap::new();
    set.insert("AGENT_LINK".to_owned(), if stack { "stack" } else { "kernel" }.to_owned());
    set.insert("AGENT_NUMBER".to_owned(), number(end).to_string());
    set.insert("AGENT_OWN".to_owned(), socket(end));
    set.insert("AGENT_OTHER".to_owned(), socket(if end == "c" { "s" } else { "c" }));
    if wide {
        set.insert("AGENT_WIDE".to_owned(), WIDE.to_string());
    }
    if stack {
        set.insert("AGENT_PLUGIN".to_owned(), plugin().to_string_lossy().into_owned());
    }
    set
}

/// A command with the hosts' addresses: those that `end` binds to are its own; it calls whom a port is asked of, and the
/// other one if a port is named. `home` tells at which end a process is.
pub fn addresses(end: &str, command: &str, home: impl Fn(&str) -> String) -> String {
    let mut verb = "";
    let words = command.split(' ').map(|word| {
        let owner = match word.split_once("%port:") {
            Some((_, of)) => of.split(':').next().unwrap_or(end),
            None if verb == "bind" => end,
            None if home(end) == "c" => "s",
            None => "c",
        };
        if matches!(word, "bind" | "connect" | "sendto") {
            verb = word;
        }
        let host = number(&home(owner));
        word.replace("127.0.0.", &format!("10.77.{host}.")).replace("[::1]", &format!("[fd77:0:{host}::1]"))
    });
    words.collect::<Vec<_>>().join(" ")
}
