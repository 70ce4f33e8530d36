//! Two containers, and what a server in one and a client in the other say and count. `lab.py` makes them.

use crate::support::{Totals, bypath, missing, preload_library, skip};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Programs that make containers.
const NEEDS: &[&str] = &["python3", "unshare", "nsenter", "ip", "mount", "chroot", "setpriv"];

/// A folder for the rendezvous, and one for all else.
pub struct Lab {
    top: PathBuf,
    rounds: AtomicU32,
}

/// How one side is started.
#[derive(Clone, Default)]
pub struct Side {
    /// Flags of `bypath run` without dashes, and their values.
    pub options: Vec<(&'static str, String)>,
    /// Another user.
    pub uid: Option<u32>,
    /// Without Bypath.
    pub plain: bool,
}

/// What is played.
pub struct Request<'a> {
    pub layout: &'a str,
    pub address: &'a str,
    pub own_users: bool,
    pub deed: &'a str,
    pub rounds: u32,
    pub streams: u32,
    pub server: Side,
    pub client: Side,
    /// What a process beside the client does in the folder.
    pub villain: &'a str,
}

/// What came of it.
#[derive(Debug)]
pub struct Played {
    pub said: Vec<Vec<String>>,
    pub server: Totals,
    pub client: Totals,
    /// What the villain prints.
    pub villain: Vec<String>,
    /// Names in the folder afterwards.
    pub left: Vec<String>,
    /// What both sides log.
    pub log: String,
    /// What commands said that looked on.
    pub watched: Value,
}

impl Lab {
    /// `None`: this machine has no containers, which is said.
    pub fn new(test: &str) -> Option<Lab> {
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "--pid", "--net", "--fork", "true"]).stderr(Stdio::null());
        let mut works = || bypath_sys::netns::isolated(&mut probe).status().is_ok_and(|s| s.success());
        let reason =
            missing(NEEDS).or_else(|| (!works()).then(|| "no namespaces can be made here".to_owned()));
        if let Some(reason) = reason {
            skip(&format!("containers::{test}"), &reason);
            return None;
        }
        let top = std::env::temp_dir().join(format!("bypath-containers-{}-{test}", std::process::id()));
        fs::create_dir(&top).expect("a new folder");
        open(&top, 0o755);
        let lab = Lab { top, rounds: AtomicU32::new(0) };
        for name in ["meet", "other"] {
            fs::create_dir(lab.folder(name)).expect("a new folder");
            open(&lab.folder(name), 0o700);
        }
        Some(lab)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        self.top.join(name)
    }

    /// Removes the names that a villain has left there.
    pub fn empty(&self, folder: &str) {
        let names = fs::read_dir(self.folder(folder)).expect("the folder").flatten();
        names.for_each(|entry| fs::remove_file(entry.path()).expect("what the villain left"));
    }

    /// Asked to meet.
    pub fn asked(&self) -> Side {
        self.asked_for("meet")
    }

    pub fn asked_for(&self, folder: &str) -> Side {
        let folder = self.folder(folder).to_str().expect("a plain path").to_owned();
        Side { options: vec![("rendezvous", folder)], ..Side::default() }
    }

    pub fn plain(&self) -> Side {
        Side { plain: true, ..Side::default() }
    }

    /// Both sides asked, on a bridge.
    pub fn both(&self) -> Request<'_> {
        Request {
            layout: "bridge",
            address: "10.7.0.2",
            own_users: false,
            deed: "",
            rounds: 3000,
            streams: 1,
            server: self.asked(),
            client: self.asked(),
            villain: "",
        }
    }

    /// Plays it as root of a user namespace, or of the machine.
    #[track_caller]
    pub fn play(&self, request: &Request) -> Played {
        self.play_as(request, true)
    }

    #[track_caller]
    pub fn play_as(&self, request: &Request, isolated: bool) -> Played {
        let side = |side: &Side| {
            let options: serde_json::Map<_, _> =
                side.options.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
            json!({ "options": options, "uid": side.uid, "plain": side.plain })
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers");
        let place = self.folder(&format!("play-{}", self.rounds.fetch_add(1, Relaxed)));
        fs::create_dir(&place).expect("a new folder");
        open(&place, 0o777);
        let words = json!({
            "layout": request.layout, "address": request.address, "own_users": request.own_users,
            "deed": request.deed, "rounds": request.rounds, "streams": request.streams,
            "server": side(&request.server), "client": side(&request.client),
            "villain": request.villain, "folder": self.folder("meet"),
        });
        let mut command = Command::new("python3");
        command.arg(scripts.join("lab.py")).args([bypath(), preload_library()]).arg(&place);
        command.arg(words.to_string()).env("PYTHONDONTWRITEBYTECODE", "1");
        let command = match isolated {
            true => bypath_sys::netns::isolated(&mut command),
            false => bypath_sys::netns::apart(&mut command),
        };
        let output = command.stdin(Stdio::null()).output().expect("python3");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{text}{errors}", output.status);
        let mut report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}{errors}"));
        let names = fs::read_dir(self.folder("meet")).expect("the folder").flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left = names.filter(|name| name.starts_with("bypath-1-")).collect();
        let counted = |name: &str| {
            let file = place.join(format!("{name}.stats"));
            let is_there = fs::metadata(&file).is_ok_and(|m| m.len() > 0);
            if is_there { Totals::read(&file) } else { Totals::default() }
        };
        let mut take = |name: &str| report.get_mut(name).map_or(Value::Null, Value::take);
        let log = |name: &str| fs::read_to_string(place.join(format!("{name}.log"))).unwrap_or_default();
        Played {
            said: serde_json::from_value(take("said")).expect("words"),
            villain: serde_json::from_value(take("villain")).expect("words"),
            server: counted("server"),
            client: counted("client"),
            watched: take("watched"),
            left,
            log: log("server") + &log("client"),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.top);
    }
}

fn open(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a folder of ours");
}

impl Played {
    fn payload(&self) -> u64 {
        let numbers = self.said.iter().map(|words| match &words[..] {
            [what, number] if what == "payload" => number.parse::<u64>().expect("a number"),
            other => panic!("the client says {other:?}: {self:?}"),
        });
        numbers.sum()
    }

    /// 95 % of the octets went through rings, and no name is left.
    #[track_caller]
    pub fn assert_ring(&self) {
        assert!(self.left.is_empty(), "{self:?}");
        let mut sum = self.server.clone();
        sum.add(&self.client);
        sum.assert_ring(self.payload());
    }

    /// No octet went through a ring, and both sides say why, with the last reason that they have had.
    #[track_caller]
    pub fn assert_kernel(&self, server: &str, client: &str) {
        self.assert_no_ring();
        for (counted, reason) in [(&self.server, server), (&self.client, client)] {
            assert!(counted.refused_for(reason) >= 1, "{reason}: {self:#?}");
        }
    }

    /// No octet went through a ring.
    #[track_caller]
    pub fn assert_no_ring(&self) {
        assert!(self.payload() > 0);
        for counted in [&self.server, &self.client] {
            assert_eq!((counted.upgraded, counted.ring_tx, counted.ring_rx), (0, 0, 0), "{self:#?}");
        }
    }
}
