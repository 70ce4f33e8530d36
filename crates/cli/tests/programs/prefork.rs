//! Servers whose workers are forked beforehand and accept from one inherited socket: Apache with one connection to a
//! process (prefork) and with threads (event), gunicorn, uWSGI.

use crate::support::http::{self, Load};
use crate::support::{Process, Scene, ways};
use rustix::process::Signal;
use std::fs;

ways! {
    apache needs ["apache2", "python3", "setpriv"] => |scene| apache(scene, "prefork", "Off");
    apache_with_sendfile needs ["apache2", "python3", "setpriv"] => |scene| apache(scene, "prefork", "On");
    apache_event needs ["apache2", "python3", "setpriv"] => |scene| apache(scene, "event", "Off");
    apache_event_with_sendfile needs ["apache2", "python3", "setpriv"] => |scene| apache(scene, "event", "On");
    gunicorn_with_threads needs ["gunicorn", "python3"] => |scene| gunicorn(scene, "gthread --threads 8");
    gunicorn_sync needs ["gunicorn", "python3"] => |scene| gunicorn(scene, "sync");
    uwsgi needs ["uwsgi_python3", "python3"] => uwsgi;
}

/// Eight connections, and others for one request each, until enough came.
fn load(scene: &Scene, server: &Process, port: u16) -> u64 {
    let dir = scene.path("www");
    let mut client = Load::start(scene, port, &dir, 8);
    let newcomers = Load::newcomers(scene, port, &dir);
    client.more(64);
    assert!(!server.has_ended(), "{server}");
    newcomers.stop().number("payload ") + client.stop().number("payload ")
}

fn apache(scene: &Scene, model: &str, sendfile: &str) {
    let scene = &scene.unprivileged();
    http::files(scene, "www");
    let port = scene.port();
    let dir = scene.path("");
    let dir = dir.display();
    let modules = [&format!("mpm_{model}"), "authz_core"]
        .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
        .concat();
    let processes = match model {
        "prefork" => "StartServers 4\nMinSpareServers 2\nMaxSpareServers 6\nMaxRequestWorkers 16",
        // Three processes of eight threads.
        _ => "StartServers 3\nThreadsPerChild 8\nMaxRequestWorkers 24\nMinSpareThreads 8\nMaxSpareThreads 24",
    };
    let config = format!(
        "{modules}ServerRoot {dir}\nServerName test\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\n\
         DefaultRuntimeDir {dir}\nErrorLog {dir}/errors\nDocumentRoot {dir}/www\nEnableSendfile {sendfile}\n\
         KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 60\n\
         {processes}\n"
    );
    fs::write(scene.path("httpd.conf"), config).expect("the configuration");
    let server = scene.server("apache2").args("-D FOREGROUND -f").arg(scene.path("httpd.conf"));
    let mut server = server.start();
    server.listening(port);
    let payload = load(scene, &server, port);
    server.stop(Signal::TERM).ok();
    scene.prove(payload);
}

fn gunicorn(scene: &Scene, class: &str) {
    http::files(scene, "www");
    let port = scene.port();
    let server = scene.server("gunicorn").args("--workers 4 --keep-alive 60 --worker-class").args(class);
    let server = server.arg("--worker-tmp-dir").arg(scene.path("")).arg("--pythonpath").script("");
    let server = server.arg("--bind").arg(format!("127.0.0.1:{port}")).arg("wsgi_files:application");
    let mut server = server.env("WSGI_FILES", scene.path("www")).env("PYTHONDONTWRITEBYTECODE", "1").start();
    server.listening(port);
    let payload = load(scene, &server, port);
    server.stop(Signal::TERM).ok();
    short_or_long(scene, class != "sync", payload);
}

fn uwsgi(scene: &Scene) {
    http::files(scene, "www");
    let port = scene.port();
    let server = scene.server("uwsgi_python3").args("--master --processes 4 --need-app --die-on-term");
    let server = server.arg("--http-socket").arg(format!("127.0.0.1:{port}"));
    let server = server.arg("--wsgi-file").script("wsgi_files.py");
    let mut server = server.env("WSGI_FILES", scene.path("www")).env("PYTHONDONTWRITEBYTECODE", "1").start();
    server.listening(port);
    let payload = load(scene, &server, port);
    server.stop(Signal::TERM);
    short_or_long(scene, false, payload);
}

/// A server that closes after each answer gives no connection the time to be upgraded: only the bytes are checked.
fn short_or_long(scene: &Scene, long: bool, payload: u64) {
    if long {
        scene.prove(payload);
    } else {
        scene.prove_plain_peer();
    }
}
