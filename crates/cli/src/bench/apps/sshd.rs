//! A private sshd: its own host key, one user's key, no configuration but ours.

use super::launch::{Launcher, Program, find};
use super::server::{Place, ReadyWhen, Server};
use crate::bench::args::SubjectName;
use crate::bench::context::{Context, Trouble};
use std::fs;
use std::path::Path;

const SERVER: Program = ("sshd", "openssh-server");
const KEYGEN: Program = ("ssh-keygen", "openssh-client");
/// Where sshd confines itself when it runs as root.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// The server; it logs in whoever runs the bench.
pub fn server(subject: SubjectName) -> Server {
    Server::new(subject, SERVER, ReadyWhen::Logs("Server listening on"), |place| {
        ["-D", "-e", "-f", &in_folder(place, "sshd_config")].map(Into::into).into()
    })
    .prepared(prepare)
}

fn in_folder(place: &Place, name: &str) -> String {
    place.socket.join(name).display().to_string()
}

fn prepare(context: &Context, launcher: &Launcher, place: &Place) -> Result<(), Trouble> {
    if rustix::process::geteuid().is_root() && !Path::new(PRIVILEGE_SEPARATION).is_dir() {
        return Err(Trouble::Skipped(format!(
            "sshd needs the folder {PRIVILEGE_SEPARATION} (mkdir -m 755 {PRIVILEGE_SEPARATION})"
        )));
    }
    let keygen = find(KEYGEN)?;
    let fail = |e: std::io::Error| format!("{}: {e}", place.socket.display());
    fs::create_dir(&place.socket).map_err(fail)?;
    for key in ["host", "user"] {
        let args = ["-q", "-t", "ed25519", "-N", "", "-f", &in_folder(place, key)].map(Into::into);
        launcher.prepare(context, &keygen, &args)?;
    }
    let public = |key: &str| fs::read_to_string(in_folder(place, key) + ".pub").map_err(fail);
    let known = format!("[127.0.0.1]:{} {}", place.port, public("host")?);
    fs::write(in_folder(place, "known_hosts"), known).map_err(fail)?;
    fs::write(in_folder(place, "authorized_keys"), public("user")?).map_err(fail)?;
    let config = format!(
        "ListenAddress 127.0.0.1:{}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n\
         Subsystem sftp internal-sftp\n",
        place.port,
        in_folder(place, "host"),
        in_folder(place, "authorized_keys"),
    );
    fs::write(in_folder(place, "sshd_config"), config).map_err(fail)?;
    Ok(())
}

/// Whom clients log in as.
pub fn user() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    user.ok().flatten().map_or_else(|| "root".into(), |u| u.name)
}

/// Options of ssh and scp that lead to nobody else's keys and configuration.
pub fn client_options(place: &Place) -> Vec<String> {
    let mut words: Vec<String> = ["-F", "none", "-i", &in_folder(place, "user")].map(Into::into).into();
    let known = format!("UserKnownHostsFile={}", in_folder(place, "known_hosts"));
    for option in [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        &known,
    ] {
        words.extend(["-o".into(), option.into()]);
    }
    words
}
