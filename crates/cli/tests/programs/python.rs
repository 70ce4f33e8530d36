//! Python servers in the ways people write them: asyncio, `selectors`, a thread per connection.

use crate::support::{Scene, ways};
use rustix::process::Signal;

ways! {
    asyncio_echo needs ["python3"] => |scene| echo(scene, "asyncio");
    selectors_echo needs ["python3"] => |scene| echo(scene, "selectors");
    one_read_for_each_edge needs ["python3"] => edges;
    registered_beside_a_sleeper needs ["python3"] => late;
    registered_and_not_waited_for needs ["python3"] => |scene| unwaited(scene, "epoll");
    registered_and_not_waited_for_beside_poll needs ["python3"] => |scene| unwaited(scene, "poll");
    registered_and_not_waited_for_beside_select needs ["python3"] => |scene| unwaited(scene, "select");
    threaded_socketserver_echo needs ["python3"] => |scene| echo(scene, "threads");
}

fn echo(scene: &Scene, style: &str) {
    let mut server = scene.server("python3").script("echo_server.py").arg(style).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("echo_client.py").arg(style).arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    scene.prove(client.number("payload "));
}

/// An edge that is lost leaves both sides waiting.
fn edges(scene: &Scene) {
    let mut server = scene.server("python3").script("edges.py").arg("server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("edges.py").arg("client").arg(port.to_string()).finish();
    server.stop(Signal::TERM);
    scene.prove(client.number("payload "));
}

/// A connection that is accelerated already comes into an epoll set in which another thread sleeps since before.
fn late(scene: &Scene) {
    let mut server = scene.server("python3").script("late.py").arg("server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("late.py").arg("client").arg(port.to_string()).start();
    server.wait().ok();
    scene.prove(client.wait().ok().number("payload "));
}

/// An epoll set that holds the connection and is not waited on, as the program always finds something to read. It has waited
/// for the client, by `how`.
fn unwaited(scene: &Scene, how: &str) {
    let mut server = scene.server("python3").script("unwaited.py").arg("server").arg(how).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("unwaited.py").arg("client").arg(port.to_string()).finish();
    server.wait().ok();
    scene.prove(client.number("payload "));
}
