//! Two programs that exchange verified bytes in every way (agent/crash.c), and come through.

use crate::program::{Place, Program};
use crate::programs;
use bypath_shm::stats::StatsSnapshot;
use std::path::PathBuf;
use std::sync::OnceLock;

/// How the programs wait.
pub const MODES: [&str; 5] = ["blocking", "threads", "poll", "epoll", "edge"];

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("survival", &["crash.c"], &[]));
    path.to_str().expect("a plain path")
}

/// A conversation that has begun.
pub struct Conversation {
    pub server: Program,
    pub client: Program,
    what: String,
    _place: Place,
}

impl Conversation {
    /// One in `mode` in which `first` speaks first, and both fill their rings before anybody reads.
    pub fn start(mode: &str, first: &str, server: &[(&str, &str)], client: &[(&str, &str)]) -> Conversation {
        let place = Place::new();
        let what = format!("{mode}, {first} first, server {server:?}, client {client:?}");
        place.pipe("to-server");
        place.pipe("to-client");
        let start = |side: &str, environment: &[(&str, &str)]| {
            let words = [program(), side, mode, first, "both", place.text()];
            Program::start(&place, side, &words, environment)
        };
        let mut server = start("server", server);
        let mut client = start("client", client);
        let port = server.expect("port");
        client.tell(&port);
        Conversation { server, client, what, _place: place }
    }

    /// Both come to the end, with every byte in its place; what they have counted.
    #[track_caller]
    pub fn finish(mut self) -> [StatsSnapshot; 2] {
        let counted = [&mut self.server, &mut self.client].map(|side| {
            side.expect("finished");
            side.stats()
        });
        for now in &counted {
            let both_ways = now.bytes.ring_tx > 0 && now.bytes.ring_rx > 0;
            assert!(both_ways || !programs::REQUIRE_RING, "{}: {now:?}", self.what);
        }
        assert!(!self.server.was_killed() && !self.client.was_killed(), "{}", self.what);
        counted
    }
}
