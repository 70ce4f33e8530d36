//! Servers with users: ssh and PostgreSQL, on a service that admits one user beside root.

use crate::common::{BYPATH, preload_library};
use crate::lab::{Lab, ROLES, Side, have};
use crate::network::{Tool, apart, octets, skip};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

const SIZE: usize = 10_000_000;

pub fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(test, "needs root: it is about several users");
    }
    root
}

#[test]
fn ssh_and_scp_in_both_roles() {
    const NAME: &str = "accounts::ssh_and_scp_in_both_roles";
    if !is_root(NAME) || !have(NAME, &["sshd", "ssh", "scp", "ssh-keygen"]) {
        return;
    }
    apart(concat!(module_path!(), "::ssh_and_scp_in_both_roles"), || {
        let lab = Lab::new("");
        fs::write(lab.folder.join("file"), octets(SIZE)).expect("a file");
        for key in ["host", "user"] {
            lab.done(Side::Kernel, &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]);
        }
        // Where it locks its unprivileged half in. The service's start makes it, not the package.
        fs::create_dir_all("/run/sshd").expect("sshd's directory");
        let sshd = ["/usr/sbin", "/usr/bin"].map(|dir| format!("{dir}/sshd"));
        let sshd = sshd.iter().find(|path| fs::exists(path).unwrap_or(false)).expect("sshd");
        for (server, client) in ROLES {
            ssh(&lab, sshd, server, client);
        }
        lab.is_empty();
        lab.end();
    });
}

/// User and group that own nothing: distributions call them differently.
pub fn nobody() -> [String; 2] {
    ["/etc/passwd", "/etc/group"].map(|path| {
        let all = fs::read_to_string(path).expect("names");
        let of_number = |line: &&str| line.split(':').nth(2) == Some("65534");
        all.lines().find(of_number).and_then(|line| line.split(':').next()).expect("nobody").to_owned()
    })
}

fn ssh(lab: &Lab, sshd: &str, server: Side, client: Side) {
    let (dir, ip) = (lab.folder.path().display(), server.address());
    let daemon = format!(
        "ListenAddress {ip}:2222\nHostKey {dir}/host\nAuthorizedKeysFile {dir}/user.pub\nStrictModes no\nPidFile none\nUsePAM no\n\
         PasswordAuthentication no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    );
    let config = format!(
        "Host *\nHostName {ip}\nHostKeyAlias it\nPort 2222\nIdentityFile {dir}/user\nIdentitiesOnly yes\nBatchMode yes\n\
         UserKnownHostsFile {dir}/known\nGlobalKnownHostsFile none\nStrictHostKeyChecking yes\n"
    );
    let host = fs::read_to_string(lab.folder.join("host.pub")).expect("a key");
    for (name, text) in [("sshd_config", &daemon), ("ssh_config", &config), ("known", &format!("it {host}"))]
    {
        fs::write(lab.folder.join(name), text).expect("a file");
    }
    let settings = format!("{dir}/sshd_config");
    let served = lab.start(server, &[sshd, "-D", "-e", "-f", &settings]).says("Server listening");
    let line = |program: &'static str| [program, "-q", "-F", "ssh_config"];
    let catted = lab.start(client, &[&line("ssh")[..], &["it", "exec cat"]].concat()).give(&octets(SIZE));
    assert!(catted.end().expect(0).stdout == octets(SIZE), "other octets came back");
    lab.start(client, &[&line("ssh")[..], &["it", "exit 7"]].concat()).quiet().end().expect(7);
    let there = format!("it:{dir}/up");
    lab.done(client, &[&line("scp")[..], &["file", &there]].concat());
    // -O: the older protocol, by a scp at the other end.
    lab.done(client, &[&line("scp")[..], &["-O", &there, "down"]].concat());
    assert!(fs::read(lab.folder.join("down")).expect("a file") == octets(SIZE), "other octets came back");
    served.signal(Signal::TERM);
    served.end();
}

#[test]
fn nginx_whose_workers_are_somebody_else_keeps_connections() {
    const NAME: &str = "accounts::nginx_whose_workers_are_somebody_else_keeps_connections";
    if !is_root(NAME) || !have(NAME, &["nginx", "curl"]) {
        return;
    }
    apart(concat!(module_path!(), "::nginx_whose_workers_are_somebody_else_keeps_connections"), || {
        let lab = Lab::new("");
        let dir = lab.folder.path().display().to_string();
        let [user, group] = nobody();
        fs::set_permissions(lab.folder.path(), PermissionsExt::from_mode(0o755)).expect("root's right");
        fs::write(lab.folder.join("file"), octets(300_000)).expect("a file");
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {dir}/{name};"));
        let config = format!(
            "daemon off; worker_processes 2; user {user} {group}; pid {dir}/pid; error_log stderr; events {{ }}
             http {{ access_log off; {} server {{ listen 8000; root {dir}; }} }}",
            temporary.concat()
        );
        fs::write(lab.folder.join("nginx.conf"), config).expect("a file");
        let conf = format!("{dir}/nginx.conf");
        let web = lab.start(Side::Stack, &["nginx", "-e", "stderr", "-p", &dir, "-c", &conf]);
        lab.listening(&Side::Stack.at(8000));
        let url = format!("http://{}/file", Side::Stack.at(8000));
        // curl tells how many connections each took.
        let line = ["curl", "-sS", "-w", "%{stderr}%{num_connects} ", &url, &url, &url];
        let got = lab.done(Side::Kernel, &line);
        assert!(got.stdout == octets(300_000).repeat(3), "other octets came: {}", got.stderr);
        assert_eq!(got.stderr.trim(), "1 0 0");
        web.signal(Signal::QUIT);
        let said = web.end().expect(0).stderr;
        assert!(!said.contains("setsockopt") && !said.contains("not for this user"), "{said}");
        lab.is_empty();
        lab.end();
    });
}

/// PostgreSQL's programs: Debian has them where no PATH leads.
fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .find(|bin| bin.join("postgres").exists())
}

/// The unprivileged user of Debian, and one more.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
const OTHER: [&str; 4] = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"];

#[test]
fn postgres_as_the_only_user_that_the_service_admits() {
    const NAME: &str = "accounts::postgres_as_the_only_user_that_the_service_admits";
    if !is_root(NAME) || !have(NAME, &["setpriv", "curl"]) {
        return;
    }
    let Some(bin) = postgres() else { return skip(NAME, "postgresql is not installed") };
    apart(concat!(module_path!(), "::postgres_as_the_only_user_that_the_service_admits"), || {
        let lab = Lab::new("[limits]\nusers = 65534\n");
        let program = |name: &str| bin.join(name).display().to_string();
        let data = lab.folder.join("data");
        fs::create_dir(&data).expect("a folder");
        std::os::unix::fs::chown(&data, Some(65534), Some(65534)).expect("root's right");
        let data = data.display().to_string();
        let line = [
            program("initdb"),
            "-A".into(),
            "trust".into(),
            "-U".into(),
            "test".into(),
            "--no-sync".into(),
            "-D".into(),
            data.clone(),
        ];
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        lab.done(Side::Kernel, &[&NOBODY[..], &line].concat());
        fs::write(lab.folder.join("data/pg_hba.conf"), "host all all 10.0.0.0/24 trust\n").expect("a file");
        // Where they were built others may not look.
        fs::copy(BYPATH, lab.folder.join("bypath")).expect("a copy");
        fs::copy(preload_library(), lab.folder.join("library.so")).expect("a copy");
        for (server, client) in ROLES {
            let (postgres, listen) = (program("postgres"), format!("listen_addresses={}", server.address()));
            let line =
                [&postgres, "-D", &data, "-c", &listen, "-c", "unix_socket_directories=", "-c", "fsync=off"];
            let served = by(&lab, server, &NOBODY, &line).says("ready to accept connections");
            let pgbench = program("pgbench");
            let to = [pgbench.as_str(), "-h", server.address(), "-U", "test"];
            let run = |more: &[&str]| {
                by(&lab, client, &NOBODY, &[&to[..], more, &["postgres"]].concat()).quiet().end().expect(0)
            };
            run(&["-i", "-q"]);
            for (load, count) in
                [(&["-c", "8", "-j", "2", "-t", "20"][..], 160), (&["-C", "-S", "-c", "4", "-t", "10"], 40)]
            {
                let said = run(load).text();
                let all = format!("processed: {count}/{count}");
                assert!(said.contains(&all) && said.contains("failed transactions: 0 "), "{said}");
            }
            served.signal(Signal::INT);
            served.end().expect(0);
        }
        // Another user is told that he may not.
        let refused = by(
            &lab,
            Side::Stack,
            &OTHER,
            &["curl", "--silent", "--show-error", "--noproxy", "*", "http://10.0.0.2:5432/"],
        );
        let refused = refused.quiet().end();
        assert!(!refused.status.success(), "{}", refused.text());
        lab.is_empty();
        lab.end();
    });
}

/// A program of another user's.
fn by(lab: &Lab, side: Side, user: &[&str], line: &[&str]) -> Tool {
    if side == Side::Kernel {
        return lab.start(side, &[user, line].concat());
    }
    let bypath = lab.folder.join("bypath").display().to_string();
    let mut command = Command::new(user[0]);
    command.args(&user[1..]).args([&bypath, "run", "--netstack", "--"]).args(line);
    command.env("BYPATH_LIBRARY", lab.folder.join("library.so")).env("BYPATH_CONFIG", "none");
    command.env("BYPATH_NETSTACK_DIR", lab.folder.path()).current_dir("/");
    Tool::of(command)
}
