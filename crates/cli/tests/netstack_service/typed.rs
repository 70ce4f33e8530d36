//! What README.md and docs/netstack.md show of the service, typed line by line by a user who is not root.

#[allow(dead_code, reason = "a part is used")]
#[path = "../../../bypath/tests/documents/blocks.rs"]
mod blocks;

use crate::common::{BYPATH, TempDir, preload_library, workspace};
use crate::network::{Tool, skip};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

/// A user that nobody is.
const USER: u32 = 61_003;

/// Root is somebody else, and has opened the device to all, for these programs alone.
const AS_ROOT: &str = "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200 &&
    setpriv --reuid=$0 --regid=$0 --clear-groups -- \"$@\"; exit $?";

/// As distributions have it.
const PROFILE: &str = "if [ -d \"$HOME/.local/bin\" ]; then PATH=\"$HOME/.local/bin:$PATH\"; fi\n";

/// Somebody who types. What was started ends with the test, as it has process numbers of its own.
struct Typist {
    shell: Option<Tool>,
    folder: TempDir,
    /// How many lines.
    typed: usize,
}

impl Typist {
    /// In a folder with these files, with the command on the path. `None`: the test is skipped, which was said.
    fn new(test: &str, programs: &[&str], files: &[(&str, &str)]) -> Option<Typist> {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let is_there = |program: &&&str| path.split(':').any(|dir| Path::new(dir).join(program).exists());
        let needed = [&["unshare", "ip", "bash", "setpriv", "mknod"], programs].concat();
        if let Some(missing) = needed.iter().find(|program| !is_there(program)) {
            skip(test, &format!("{missing} is not installed"));
            return None;
        }
        let folder = TempDir::new();
        let is_root = bypath_sys::process::euid() == 0 && bypath_sys::process::euid_outside() == 0;
        let own = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).expect("a mode");
            if is_root {
                chown(path, Some(USER), Some(USER)).expect("an owner");
            }
        };
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("a mode");
        for name in ["run", "home"] {
            std::fs::create_dir(folder.join(name)).expect("a folder");
            own(&folder.join(name));
        }
        // As `make install PREFIX=$HOME/.local` puts them.
        for (from, to) in
            [(Path::new(BYPATH), "bin/bypath"), (preload_library(), "lib/bypath/libbypath_preload.so")]
        {
            let to = folder.join("home/.local").join(to);
            std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            std::fs::hard_link(from, &to).or_else(|_| std::fs::copy(from, &to).map(|_| ())).expect("a file");
        }
        // The shell in a network of one's own is a login shell, whose path begins anew.
        let files = [&[(".profile", PROFILE)], files].concat();
        for (name, text) in files {
            let path = folder.join("home").join(name);
            std::fs::write(&path, text).expect("a file");
            own(&path);
        }
        let begun = |program: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            if !is_root {
                command.args(["--user", "--map-root-user"]);
            }
            let text = if is_root { AS_ROOT } else { "\"$@\"; exit $?" };
            command.args(["--", "sh", "-c", text, &USER.to_string()]).args(program);
            command.env_clear().current_dir(folder.join("home"));
            command.env("PATH", format!("{}:{path}", folder.join("home/.local/bin").display()));
            command.env("HOME", folder.join("home")).env("XDG_RUNTIME_DIR", folder.join("run"));
            // Of a terminal each line is there at once.
            command.env("SHELL", "/bin/bash").env("PYTHONUNBUFFERED", "1");
            command
        };
        let own_network = ["unshare", "--user", "--net", "--map-root-user"];
        let device = ["sh", "-c", "bypath --version >/dev/null && ip tuntap add probe mode tap"];
        let probe = begun(&[&own_network[..], &device].concat()).output().expect("unshare");
        if !probe.status.success() {
            let why = String::from_utf8_lossy(&probe.stderr);
            skip(
                test,
                &format!("no TAP device in a namespace of a user's: {}", why.lines().next().unwrap_or("?")),
            );
            return None;
        }
        let mut shell = Tool::of(begun(&["bash"]));
        shell.write(b"exec 2>&1\n");
        Some(Typist { shell: Some(shell), folder, typed: 0 })
    }

    /// Types a line, which must end well; what was printed meanwhile.
    #[track_caller]
    fn types(&mut self, line: &str) -> String {
        self.typed += 1;
        let end = format!(" of line {}\n", self.typed);
        let mut shell = self.shell.take().expect("a shell");
        let before = shell.heard().len();
        shell.write(format!("{line}\necho status $?\"{}\"\n", end.trim_end()).as_bytes());
        let shell = shell.hears(&end);
        let heard = shell.heard()[before..].to_owned();
        assert!(heard.contains(&format!("status 0{end}")), "{line}: {heard}{}", shell.said);
        self.shell = Some(shell);
        heard
    }

    /// Waits until this was printed so many times.
    #[track_caller]
    fn waits(&mut self, words: &str, times: usize) {
        let mut shell = self.shell.take().expect("a shell");
        while shell.heard().matches(words).count() < times {
            shell = shell.hears_more();
        }
        self.shell = Some(shell);
    }

    /// Types the lines of a block. At a `sleep` he waits, as its comment says, until what was started so far says that it is ready. What was
    /// printed, for each line.
    #[track_caller]
    fn types_all(&mut self, block: &str) -> Vec<(String, String)> {
        let mut printed: Vec<(String, String)> = Vec::new();
        for line in block.lines() {
            let heard = self.types(line);
            printed.push((line.to_owned(), heard));
            if line.starts_with("sleep ") {
                for (of, says) in [("bypath netstack --link", "\nnext "), ("http.server", "Serving HTTP on")]
                {
                    let started = printed.iter().filter(|(line, _)| line.contains(of)).count();
                    self.waits(says, started);
                }
            }
        }
        printed
    }

    /// Ends what was started, and leaves both shells.
    #[track_caller]
    fn ends(mut self) {
        self.types("kill $(jobs -p); wait");
        let mut shell = self.shell.take().expect("a shell");
        shell.write(b"exit\nexit\n");
        shell.end().expect(0);
        drop(self.folder);
    }
}

/// Blocks under a heading of a document, indented ones.
fn shown(document: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(workspace().join(document)).expect(document);
    let all = blocks::blocks(&text).into_iter();
    all.filter(|b| b.heading == heading && b.kind.is_empty()).map(|b| b.text).collect()
}

/// What the line with these words printed.
#[track_caller]
fn of<'a>(printed: &'a [(String, String)], words: &str) -> &'a str {
    let mut lines = printed.iter().filter(|(line, _)| line.starts_with(words));
    let (Some((_, heard)), None) = (lines.next(), lines.next()) else {
        panic!("one line {words}: {printed:?}")
    };
    heard
}

/// A list of Python's http.server of the folder with this file.
#[track_caller]
fn is_list(heard: &str) {
    assert!(heard.contains("Directory listing for /") && heard.contains("welcome.txt"), "{heard}");
}

/// Somebody listens at a port, as `bypath netstack sockets` prints it.
#[track_caller]
fn listens(heard: &str, port: u16) {
    let is = |line: &str| line.contains("Listen") && line.contains(&format!(":{port} "));
    assert!(heard.lines().any(is), "{port}: {heard}");
}

/// Where the device is root's alone.
#[test]
fn the_quick_start_of_the_readme_runs_on_a_veth_pair() {
    let all = shown("README.md", "A TCP/IP stack of our own");
    let [start, _, _, pair, ..] = &all[..] else { panic!("blocks: {all:?}") };
    let lines: Vec<&str> = start.lines().collect();
    let block = [&lines[..1], &pair.lines().collect::<Vec<_>>(), &lines[2..]].concat().join("\n");
    let (test, files) =
        ("typed::the_quick_start_of_the_readme_runs_on_a_veth_pair", [("welcome.txt", "text\n")]);
    let Some(mut typist) = Typist::new(test, &["curl", "python3"], &files) else { return };
    let printed = typist.types_all(&block);
    is_list(of(&printed, "curl "));
    listens(of(&printed, "bypath netstack sockets"), 80);
    typist.ends();
}

#[test]
fn the_quick_start_of_the_readme_serves_by_python_and_by_nginx() {
    let all = shown("README.md", "A TCP/IP stack of our own");
    let [start, conf, nginx, _, ..] = &all[..] else { panic!("blocks: {all:?}") };
    assert!(conf.contains("server { listen 8080;"), "{conf}");
    let files = [("welcome.txt", "text\n"), ("index.html", "the page of nginx\n"), ("web.conf", conf)];
    let test = "typed::the_quick_start_of_the_readme_serves_by_python_and_by_nginx";
    let Some(mut typist) = Typist::new(test, &["curl", "python3", "nginx"], &files[..1]) else { return };
    let printed = typist.types_all(start);
    is_list(of(&printed, "curl "));
    listens(of(&printed, "bypath netstack sockets"), 80);
    for (name, text) in &files[1..] {
        typist.types(&format!("cat >{name} <<'END OF FILE'\n{text}END OF FILE"));
    }
    let printed = typist.types_all(nginx);
    assert!(of(&printed, "curl ").contains("the page of nginx\n"), "{printed:?}");
    listens(&typist.types("bypath netstack sockets"), 8080);
    typist.ends();
}

#[test]
fn the_service_for_programs_of_its_page_has_both_roles() {
    let all = shown("docs/netstack.md", "A service for programs");
    let test = "typed::the_service_for_programs_of_its_page_has_both_roles";
    let files = [("welcome.txt", "text\n")];
    let Some(mut typist) = Typist::new(test, &["curl", "python3"], &files) else { return };
    let printed = typist.types_all(all.first().expect("a block"));
    is_list(of(&printed, "bypath run --netstack -- curl"));
    is_list(of(&printed, "curl "));
    listens(of(&printed, "bypath netstack sockets"), 80);
    typist.ends();
}
