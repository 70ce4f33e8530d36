//! TLS over the ring: OpenSSL's own server, read by its own client and by curl.

use crate::support::{Process, Scene, assert_same, sample, ways};
use rustix::process::Signal;
use std::fs;
use std::path::Path;

ways! {
    download_with_s_client needs ["openssl"] => with_s_client;
    download_with_curl needs ["openssl", "curl"] => with_curl;
}

/// A server of the files in the samples' directory, by the port it listens on.
fn serve(scene: &Scene, dir: &Path) -> (Process, u16) {
    let (key, cert, port) = (scene.path("key.pem"), scene.path("cert.pem"), scene.port());
    let make =
        scene.plain("openssl").args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes");
    make.args("-days 2 -subj /CN=localhost -keyout").arg(&key).arg("-out").arg(&cert).finish();
    let server =
        scene.server("openssl").args("s_server -quiet -WWW -4 -accept").arg(format!("127.0.0.1:{port}"));
    let mut server = server.arg("-key").arg(&key).arg("-cert").arg(&cert).directory(dir).start();
    server.listening(port);
    (server, port)
}

fn with_s_client(scene: &Scene) {
    let file = sample(320);
    let (server, port) = serve(scene, file.parent().expect("a file has a directory"));
    let (request, answer) = (scene.path("request"), scene.path("answer"));
    let name = file.file_name().expect("a sample has a name").to_string_lossy();
    fs::write(&request, format!("GET /{name} HTTP/1.0\r\n\r\n")).expect("the request");
    let client = scene.client("openssl").args("s_client -quiet -4 -connect").arg(format!("127.0.0.1:{port}"));
    client.stdin_from(&request).stdout_to(&answer).finish();
    server.stop(Signal::TERM);
    let answer = fs::read(answer).expect("the answer");
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("the end of the header");
    let body = scene.path("body");
    fs::write(&body, &answer[head + 4..]).expect("the body");
    assert_same(&file, &body);
    scene.prove(320 << 20);
}

fn with_curl(scene: &Scene) {
    let (file, got) = (sample(320), scene.path("got"));
    let (server, port) = serve(scene, file.parent().expect("a file has a directory"));
    let name = file.file_name().expect("a sample has a name").to_string_lossy();
    let client = scene.client("curl").args("--silent --show-error --fail --insecure --output").arg(&got);
    client.arg(format!("https://127.0.0.1:{port}/{name}")).finish();
    server.stop(Signal::TERM);
    assert_same(&file, &got);
    scene.prove(320 << 20);
}
