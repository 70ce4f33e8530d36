//! git: a clone and a push over HTTP (git's own back end, run by Apache for each request) and over git's own
//! protocol.

use crate::support::{Process, Program, Scene, Way, assert_same, sample, ways};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

ways! {
    over_http needs ["git", "apache2", "setpriv"] => over_http;
    over_its_own_protocol needs ["git"] => over_its_own_protocol;
}

/// MiB that are pushed.
const PUSHED: usize = 16;
/// Percent that these are of all bytes, at most.
const PUSHED_SHARE: u64 = 20;

/// git's settings come from here only. The large files cannot be compressed, and nothing has to survive the machine.
const SETTINGS: &str = "[user]\nname = Test\nemail = test@localhost\n[init]\ndefaultBranch = main\n\
    [core]\ncompression = 0\nbigFileThreshold = 1m\nfsync = none\n[http]\nreceivepack = true\nproxy =\n[gc]\nauto = 0\n\
    [maintenance]\nauto = false\n[advice]\ndetachedHead = false\n";

/// The environment in which `git` reads these settings.
fn settled<'a>(scene: &Scene, program: Program<'a>) -> Program<'a> {
    let program = program.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    program.env("GIT_CONFIG_GLOBAL", scene.path("gitconfig")).env("HOME", scene.path(""))
}

/// `git` in one of the repositories, without Bypath; what it said.
fn git(scene: &Scene, repository: &str, words: &[&str]) -> String {
    let program = settled(scene, scene.plain("git")).arg("-C").arg(scene.path(repository));
    program.words(words).finish().stdout.trim().to_owned()
}

/// A repository to clone from: a file of `mib` MiB, and small ones in 20 commits.
fn repository(scene: &Scene, mib: usize) {
    fs::write(scene.path("gitconfig"), SETTINGS).expect("the settings");
    git(scene, ".", &["init", "--quiet", "first"]);
    for n in 0..20 {
        let file = scene.path("first").join(format!("file-{}", n % 7));
        fs::write(file, format!("{n:>8}").repeat(100 * n)).expect("a file");
        commit(scene, "first");
    }
    fs::copy(sample(mib), scene.path("first/large")).expect("a copy");
    commit(scene, "first");
    git(scene, ".", &["clone", "--quiet", "--bare", "first", "served.git"]);
}

/// Everything there is, as a commit.
fn commit(scene: &Scene, repository: &str) {
    git(scene, repository, &["add", "--all"]);
    git(scene, repository, &["commit", "--quiet", "--message", "some", "--allow-empty"]);
}

fn network<'a>(scene: &'a Scene) -> Program<'a> {
    settled(scene, scene.client("git"))
}

/// The same commits, and every object whole.
fn assert_equal(scene: &Scene, one: &str, other: &str) {
    let head = |repository| git(scene, repository, &["rev-parse", "main"]);
    assert_eq!(head(one), head(other));
    git(scene, other, &["fsck", "--full"]);
}

fn clone(scene: &Scene, url: &str) {
    network(scene).args("clone --quiet").arg(url).arg(scene.path("second")).finish();
    assert_equal(scene, "first", "second");
    assert_same(&scene.path("first/large"), &scene.path("second/large"));
}

/// A commit of a large file in the clone, sent back.
fn push(scene: &Scene) {
    // Another content than that of the first one.
    let mut bytes = fs::read(sample(PUSHED)).expect("the sample");
    bytes.iter_mut().for_each(|b| *b = !*b);
    fs::write(scene.path("second/other"), bytes).expect("a large file");
    commit(scene, "second");
    network(scene).arg("-C").arg(scene.path("second")).args("push --quiet origin main").finish();
    assert_equal(scene, "second", "served.git");
}

fn apache(scene: &Scene) -> (Process, u16) {
    let port = scene.port();
    let dir = scene.path("");
    let dir = dir.display();
    let modules = ["mpm_prefork", "authz_core", "alias", "cgi", "env"]
        .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
        .concat();
    let back_end = PathBuf::from(git(scene, ".", &["--exec-path"])).join("git-http-backend");
    let config = format!(
        "{modules}ServerRoot {dir}\nServerName test\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\n\
         DefaultRuntimeDir {dir}\nErrorLog {dir}/errors\nEnableSendfile Off\nTimeout 60\n\
         StartServers 2\nMaxRequestWorkers 8\n\
         SetEnv GIT_PROJECT_ROOT {dir}\nSetEnv GIT_HTTP_EXPORT_ALL 1\nPassEnv GIT_CONFIG_NOSYSTEM\n\
         PassEnv GIT_CONFIG_GLOBAL\nScriptAlias /git/ {}/\n\
         <Location />\nRequire all granted\n</Location>\n",
        back_end.display()
    );
    fs::write(scene.path("httpd.conf"), config).expect("the configuration");
    let server = settled(scene, scene.server("apache2"));
    let mut server = server.args("-D FOREGROUND -f").arg(scene.path("httpd.conf")).start();
    server.listening(port);
    (server, port)
}

fn over_http(scene: &Scene) {
    let scene = &scene.unprivileged();
    let mib = if scene.way() == Way::Both { 96 } else { 32 };
    let payload = |mib: usize| (mib as u64) << 20;
    repository(scene, mib);
    let (server, port) = apache(scene);
    clone(scene, &format!("http://127.0.0.1:{port}/git/served.git"));
    scene.prove(payload(mib));
    // git runs another program while it pushes, which inherits the connection: on the kernel.
    push(scene);
    server.stop(Signal::TERM).ok();
    scene.prove_share(payload(mib + PUSHED), 100 - PUSHED_SHARE);
}

/// `git daemon` gives each connection to a new program, as its standard input and output: on the kernel. What is
/// pushed is written by a program that inherits the connection.
fn over_its_own_protocol(scene: &Scene) {
    repository(scene, 32);
    let port = scene.port();
    let server =
        settled(scene, scene.server("git")).args("daemon --reuseaddr --listen=127.0.0.1 --export-all");
    let server = server.arg("--enable=receive-pack").arg(format!("--port={port}"));
    let server = server.arg(format!("--base-path={}", scene.path("").display()));
    let mut server = server.start();
    server.listening(port);
    clone(scene, &format!("git://127.0.0.1:{port}/served.git"));
    push(scene);
    server.stop(Signal::TERM);
    if scene.way() == Way::OnlyClient {
        scene.prove(32 << 20);
    }
}
