//! memcached with four worker threads, and a client that checks every value it gets back.

use crate::support::{Scene, ways};
use rustix::process::Signal;

ways! {
    values_of_all_sizes needs ["memcached", "python3"] => values;
}

fn values(scene: &Scene) {
    let port = scene.port();
    let server =
        scene.server("memcached").args("-U 0 -l 127.0.0.1 -t 4 -m 256 -I 2m -p").arg(port.to_string());
    // Only looked at when started by root: stay the user that the client is.
    let mut server = server.args("-u root").start();
    server.listening(port);
    let client = scene.client("python3").script("memcached_client.py").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    scene.prove(client.number("payload "));
}
