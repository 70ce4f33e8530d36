//! `ss`, `why`, `top` and `recall` on a connection between two containers: from outside of both, and from inside of one.

use crate::lab::{Lab, Request};
use serde_json::Value;

fn list<'a>(watched: &'a Value, command: &str) -> &'a [Value] {
    let said = &watched[command];
    said["said"].as_array().unwrap_or_else(|| panic!("{command}: {said}"))
}

/// Who is outside sees both ends, and how full the rings are between them; who is inside sees the own one, by its number there.
#[test]
fn a_connection_between_containers_is_seen_and_taken_back() {
    let Some(lab) = Lab::new("a_connection_between_containers_is_seen_and_taken_back") else { return };
    for (deed, own_users, ends) in [
        ("watched", false, 2),
        ("watched inside", false, 1),
        ("watched", true, 2),
        ("watched inside", true, 1),
    ] {
        let played = lab.play(&Request { deed, own_users, ..lab.both() });
        let watched = &played.watched;
        let client = &watched["client"];
        for command in ["ss", "top"] {
            let seen = list(watched, command);
            assert_eq!(seen.len(), ends, "{deed}, {command}: {watched:#}");
            assert!(seen.iter().all(|end| end["path"] == "ring"), "{deed}, {command}: {watched:#}");
            let own = seen.iter().find(|end| end["pid"] == *client).expect("the client's end");
            assert!(own["remote"].as_str().expect("an address").starts_with("10.7.0.2:"), "{watched:#}");
            if command == "ss" {
                let fill = &own["ring_fill"]["rx"];
                assert_eq!(fill.is_null(), ends == 1, "{deed}: {fill}");
            }
        }
        let why = watched["why"]["said"].as_str().expect("text");
        assert_eq!(watched["why"]["status"], 0, "{deed}: {watched:#}");
        assert!(why.contains("10.7.0.2:") && why.contains("shared memory"), "{deed}: {why}");
        // It waits for a line, and does nothing that would bring a direction back.
        let recall = &watched["recall"];
        assert_eq!(
            (&recall["status"], &recall["said"][0]["result"]),
            (&4.into(), &"asked".into()),
            "{recall:#}"
        );
        assert_eq!((list(watched, "recall").len(), &recall["said"][0]["pid"]), (1, client), "{recall:#}");
        // Numbers are those of where the command runs.
        let stranger = &watched["stranger"];
        assert_eq!(stranger["status"], 3, "{stranger:#}");
        assert!(
            stranger["errors"].as_str().expect("text").contains("there is no process 4000000"),
            "{stranger}"
        );
        // The other half went by the kernel.
        assert_eq!(played.client.recalled.get("recalled-command"), Some(&1), "{played:#?}");
        let (ring, kernel) = (played.client.ring_tx, played.client.kernel_tx);
        assert!(ring > 0 && kernel > ring * 9 / 10, "{deed}: {ring} by the ring, {kernel} by the kernel");
    }
}
