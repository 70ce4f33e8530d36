//! What is wrong with a host, or with a network interface, for who wants little delay and no loss: what was found, why
//! it matters, and the command that mends it. Everything is read, nothing is changed.

mod device;
mod host;
mod interface;
mod rings;

pub use device::findings as of_device;
pub use host::findings as of_host;
pub use interface::{Interface, findings as of_interface, sees};
pub use rings::findings as of_rings;

use crate::output::steers;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` are: the tests show other ones.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    /// Those of this machine.
    pub fn real() -> Root {
        Root("/".into())
    }

    /// Those below a directory.
    #[cfg(test)]
    pub fn at(directory: &Path) -> Root {
        Root(directory.into())
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file without its newline; `None` if it is missing or cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A file that holds a number.
    pub fn number<T: std::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path)?.parse().ok()
    }

    /// What a link points to.
    pub fn link(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_link(self.path(path)).ok()?.into_os_string().into_string().ok()
    }

    /// Names in a directory, sorted; none if it is missing.
    pub fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// One word of a command for a shell: whoever made an interface gave it its name, and it stands in commands that are copied.
fn word(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:@/-".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    if !name.chars().any(steers) {
        return format!("'{}'", name.replace('\'', r"'\''"));
    }
    // Octets by number, which the shell puts in ($'...': bash, zsh, POSIX 2024).
    let octets = name.bytes().map(|octet| match octet {
        b'\'' | b'\\' => format!("\\{}", char::from(octet)),
        b' '..=b'~' => char::from(octet).to_string(),
        octet => format!("\\{octet:03o}"),
    });
    format!("$'{}'", octets.collect::<String>())
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// Worth knowing; harmful in some uses.
    Note,
    /// Costs time or frames.
    Hurts,
    /// This machine or device does not say.
    Unknown,
}

impl State {
    /// The word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Note => "note",
            State::Hurts => "hurts",
            State::Unknown => "unknown",
        }
    }
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which question; the codes are stable.
    pub check: &'static str,
    /// How bad it is.
    pub state: State,
    /// What was found.
    pub found: String,
    /// Why it matters, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<&'static str>,
    /// The command that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(check: &'static str, state: State, found: impl Into<String>) -> Finding {
        Finding { check, state, found: found.into(), why: None, remedy: None }
    }

    fn good(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(check, State::Good, found)
    }

    fn note(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(check, State::Note, found)
    }

    fn hurts(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(check, State::Hurts, found)
    }

    /// Whether memory to share can be made; else why not.
    pub fn shared_memory(problem: Option<String>) -> Finding {
        const CHECK: &str = "shared-memory";
        match problem {
            None => Finding::good(CHECK, "memfd_create and seals work"),
            Some(why) => Finding::hurts(CHECK, format!("memfd_create: {why}"))
                .why("rings live in such memory: every connection stays on the kernel")
                .remedy("allow memfd_create and fcntl(F_ADD_SEALS) in the container's seccomp filter"),
        }
    }

    /// Whether the kernel says whose socket gets what is sent somewhere; else why not.
    pub fn sock_diag(problem: Option<String>) -> Finding {
        const CHECK: &str = "sock-diag";
        match problem {
            None => Finding::good(CHECK, "the kernel tells sockets of TCP and UDP (inet_diag)"),
            Some(why) => Finding::hurts(CHECK, why)
                .why("programs find each other by it: every connection and every datagram stays on the kernel")
                .remedy("modprobe -a tcp_diag udp_diag, and allow socket(AF_NETLINK) in the container's seccomp filter"),
        }
    }

    fn unknown(check: &'static str, found: impl Into<String>) -> Finding {
        Finding::new(check, State::Unknown, found)
    }

    fn why(mut self, why: &'static str) -> Finding {
        self.why = Some(why);
        self
    }

    fn remedy(mut self, command: impl Into<String>) -> Finding {
        self.remedy = Some(command.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files below a directory that goes with it.
    pub struct Tree(PathBuf);

    impl Tree {
        pub fn new(name: &str, files: &[(&str, &str)]) -> Tree {
            let directory = std::env::temp_dir().join(format!("bypath-doctor-{}-{name}", std::process::id()));
            let tree = Tree(directory);
            for (path, text) in files {
                let path = tree.0.join(path);
                fs::create_dir_all(path.parent().expect("a directory above")).expect("a directory");
                fs::write(path, text).expect("a file");
            }
            tree
        }

        /// A link, which need not lead anywhere.
        pub fn link(&self, path: &str, to: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a directory above")).expect("a directory");
            std::os::unix::fs::symlink(to, path).expect("a link");
        }

        pub fn root(&self) -> Root {
            Root::at(&self.0)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The state of one check, and its remedy.
    pub fn verdict<'a>(findings: &'a [Finding], check: &str) -> (State, Option<&'a str>) {
        let found: Vec<_> = findings.iter().filter(|f| f.check == check).collect();
        assert_eq!(found.len(), 1, "{check} in {findings:?}");
        (found[0].state, found[0].remedy.as_deref())
    }

    #[test]
    fn a_name_is_one_word_of_a_command() {
        assert_eq!(["eth0.7", "br_1:@-", "/sys/a"].map(word), ["eth0.7", "br_1:@-", "/sys/a"]);
        assert_eq!(
            ["x;reboot", "x$(id)", "it's", ""].map(word),
            ["'x;reboot'", "'x$(id)'", r"'it'\''s'", "''"]
        );
        assert_eq!(word("\x1b[41m'\u{202e}"), r"$'\033[41m\'\342\200\256'");
    }

    #[test]
    fn files_are_read_below_the_root() {
        let tree = Tree::new("root", &[("proc/a", "12\n"), ("proc/b", "x")]);
        let root = tree.root();
        assert_eq!(root.number::<u32>("/proc/a"), Some(12));
        assert_eq!(root.number::<u32>("/proc/b"), None);
        assert_eq!(root.names("/proc"), ["a", "b"]);
        assert!(root.names("/sys").is_empty() && root.text("/proc/c").is_none());
    }
}
