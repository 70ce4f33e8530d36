//! A UDP receiver that does nothing for whoever looks at it: it is stopped, or has been killed, with datagrams in its mailbox.

use crate::lab::{has, signal, until};
use crate::still::said;
use crate::udp::{Post, json, shown};
use rustix::process::Signal;

#[test]
fn every_view_of_a_stopped_receiver_is_shown_and_what_waits_for_it() {
    if !has("still_letters::every_view_of_a_stopped_receiver_is_shown_and_what_waits_for_it", &["python3"]) {
        return;
    }
    let mut post = Post::new();
    let lost = post.stop_the_server();
    let (server, caller) = (post.server.0.id(), post.caller.0.id());
    let [of_server, of_caller] = [server, caller].map(shown);
    let local = format!("127.0.0.1:{}", post.port);
    assert_eq!((&of_server["local"], &of_server["rx"]["path"]), (&local.as_str().into(), &"ring".into()));
    assert_eq!(of_caller["tx"]["path"], "ring", "{of_caller}");
    let why = said(&["why", &server.to_string()]);
    let fd = &of_server["fd"];
    assert!(why.contains(&format!("Descriptor {fd}: UDP, ")) && why.contains(&local), "{why}");
    let why = said(&["why", &caller.to_string()]);
    let all = of_caller["lost"]["tx"].as_u64().expect("a number");
    assert!(
        all >= lost && why.contains(&format!("{all} were dropped, as a receiver's mailbox was full.")),
        "{why}"
    );
    let rows = json(&["top", "--once", "--json", "-d", "0.1", "pid", &server.to_string()]);
    assert_eq!((rows.len(), &rows[0]["stopped"]), (1, &true.into()), "{rows:?}");
    // Begun only now: what waits is there, in the memory of who is stopped.
    for pid in [server, caller] {
        let text = said(&[
            "dump",
            "--count",
            "3",
            "--seconds",
            "20",
            "pid",
            &pid.to_string(),
            "and",
            "dst",
            "port",
            &post.port,
        ]);
        let one = format!(" > {local}: UDP 5  again");
        assert_eq!(text.lines().filter(|line| line.ends_with(&one)).count(), 3, "{text}");
    }
    signal(server, Signal::CONT);
    post.does("drain");
    post.talks(10);
}

#[test]
fn after_the_death_of_a_receiver_the_sender_is_shown_and_nothing_of_the_dead() {
    if !has(
        "still_letters::after_the_death_of_a_receiver_the_sender_is_shown_and_nothing_of_the_dead",
        &["python3"],
    ) {
        return;
    }
    let mut post = Post::new();
    post.stop_the_server();
    let (server, caller) = (post.server.0.id(), post.caller.0.id());
    let sent = shown(caller)["datagrams"]["ring_tx"].as_u64();
    signal(server, Signal::KILL);
    let of_server = format!("/proc/{server}/maps");
    until("it is dead", || std::fs::read_to_string(&of_server).map_or(true, |maps| maps.is_empty()));
    // The sender waits for its next line, and has not noticed.
    let of_caller = shown(caller);
    assert_eq!(
        (&of_caller["tx"]["path"], of_caller["datagrams"]["ring_tx"].as_u64()),
        (&"ring".into(), sent)
    );
    let why = said(&["why", &caller.to_string()]);
    assert!(why.contains(": UDP, ") && why.contains(&format!("127.0.0.1:{}", post.port)), "{why}");
    let rows = json(&["top", "--once", "--json", "-d", "0.1", "pid", &caller.to_string()]);
    assert_eq!((rows.len(), &rows[0]["protocol"]), (1, &"udp".into()), "{rows:?}");
    // Of the dead nothing is shown any more, and who follows the sender ends when he is told to.
    let number = server.to_string();
    assert!(json(&["ss", "-u", "--json", "pid", &number]).is_empty());
    assert!(json(&["top", "--once", "--json", "-d", "0.1", "pid", &number]).is_empty());
    assert_eq!(said(&["dump", "--seconds", "0.5", "udp", "and", "dst", "port", &post.port]), "");
    post.begin("1000");
    until("the sender has noticed", || post.caller.0.try_wait().expect("a child").is_some());
}
