//! curl and wget against CPython's `http.server`.

use crate::support::{Process, Scene, assert_same, sample, ways};
use rustix::process::Signal;
use std::path::Path;

ways! {
    download needs ["curl", "python3"] => download_with_curl;
    many_files_over_new_connections needs ["curl", "python3"] => many_files;
    wget_download needs ["wget", "python3"] => download_with_wget;
}

/// Starts the server on a port of the kernel's choice and returns the port.
fn serve(scene: &Scene, dir: &Path) -> (Process, u16) {
    let server = scene.server("python3").args("-u -m http.server 0 --bind 127.0.0.1 --directory").arg(dir);
    let mut server = server.start();
    // "Serving HTTP on 127.0.0.1 port 40433 (http://127.0.0.1:40433/) ..."
    let port = server.ready(|line| line.split_once(" port ")?.1.split(' ').next()?.parse().ok());
    (server, port)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|n| n.to_str()).expect("a sample has a plain name")
}

fn download_with_curl(scene: &Scene) {
    let (file, got) = (sample(256), scene.path("got"));
    let (server, port) = serve(scene, file.parent().expect("a file has a directory"));
    let url = format!("http://127.0.0.1:{port}/{}", name(&file));
    scene.client("curl").args("--silent --show-error --fail --output").arg(&got).arg(url).finish();
    server.stop(Signal::TERM);
    assert_same(&file, &got);
    scene.prove(256 << 20);
}

fn many_files(scene: &Scene) {
    let (file, got) = (sample(256), scene.path("got-#1"));
    let (server, port) = serve(scene, file.parent().expect("a file has a directory"));
    // http.server speaks HTTP/1.0: each download is a connection of its own.
    let url = format!("http://127.0.0.1:{port}/{}?[1-2]", name(&file));
    scene.client("curl").args("--silent --show-error --fail --output").arg(&got).arg(url).finish();
    server.stop(Signal::TERM);
    for n in 1..=2 {
        assert_same(&file, &scene.path(&format!("got-{n}")));
    }
    scene.prove((2 * 256) << 20);
}

fn download_with_wget(scene: &Scene) {
    let (file, got) = (sample(256), scene.path("got"));
    let (server, port) = serve(scene, file.parent().expect("a file has a directory"));
    let url = format!("http://127.0.0.1:{port}/{}", name(&file));
    scene.client("wget").args("--quiet --tries=1 --output-document").arg(&got).arg(url).finish();
    server.stop(Signal::TERM);
    assert_same(&file, &got);
    scene.prove(256 << 20);
}
