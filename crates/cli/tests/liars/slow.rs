//! What takes who looks a long time: `bypath dump` shows what others do meanwhile.

use crate::common::{TempDir, bypath, stderr, workspace};
use crate::lab::{LONG, Running, Talk, has, until};
use crate::liar::{Liar, copy, within};
use crate::whose::{NEIGHBOUR, STRANGER, connections_of, has_ring, holder, may_be_others, neighbours};
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A connection that is said to be on rings of this length.
pub fn has_connection(liar: &Liar, number: usize, ring: u32) {
    let cookies = [(1 << 40) + 2 * number as u64, (1 << 40) + 2 * number as u64 + 1];
    has_ring(liar, number, cookies);
    let end = &liar.family.ends[number];
    end.ring_size.store(ring, Relaxed);
    for (address, port) in [(&end.local, 80), (&end.remote, number as u16)] {
        address.set(2, port, [127; 16]);
    }
}

#[test]
fn mappings_without_number_of_one_user_take_no_time_from_another_ones() {
    let name = "slow::mappings_without_number_of_one_user_take_no_time_from_another_ones";
    if !has(name, &["setpriv", "python3"]) || !may_be_others(name) {
        return;
    }
    let liar = Liar::new();
    let (folder, deep) = (TempDir::new(), TempDir::new());
    std::fs::set_permissions(deep.path(), Permissions::from_mode(0o777)).expect("our folder");
    let mut maps = Command::new("python3");
    maps.arg(workspace().join("crates/cli/tests/liars/maps.py")).args(["60000", &STRANGER.to_string()]);
    maps.arg(deep.path()).stdin(Stdio::piped()).stdout(copy(&liar)).stderr(Stdio::piped());
    let mut maps = Running(maps.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(maps.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    liar.has_member(1, maps.0.id());
    has_connection(&liar, 0, 1 << 18);
    let mut talk = neighbours(&folder);
    let own = &connections_of(talk.caller_pid())[0];
    let files = ["shown", "said"].map(|name| folder.join(name));
    let mut dump = bypath(["dump", "--seconds", "3", "--user", &NEIGHBOUR.to_string()]);
    dump.stdout(File::create(&files[0]).expect("a file")).stderr(File::create(&files[1]).expect("a file"));
    let mut dump = Running(dump.spawn().expect("bypath starts"));
    until("it has ended", || {
        talk.does("echo 1");
        dump.0.try_wait().expect("a child").is_some()
    });
    let [text, said] = files.map(|file| std::fs::read_to_string(file).expect("text"));
    let [local, remote] = ["local", "remote"].map(|end| own[end].as_str().expect("text"));
    assert!(text.contains(&format!("{local} > {remote}")) && text.contains("ECHO"), "{said}: {text:.1000}");
    assert!(!said.contains("map more"), "{said}");
    let output = within(LONG, bypath(["dump", "--seconds", "0.5", "--user", &STRANGER.to_string()]));
    assert!(
        stderr(&output).contains(&format!("processes of user {STRANGER} map more")),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_goes_through_rings_is_seen_while_others_are_looked_for() {
    let name = "slow::what_goes_through_rings_is_seen_while_others_are_looked_for";
    if !has(name, &["setpriv", "sleep", "python3"]) || !may_be_others(name) {
        return;
    }
    const ENDS: usize = 65_000;
    const MOST: Duration = Duration::from_millis(200);
    // As many as are looked at of one user.
    let liar = Liar::new();
    let other = liar.and_another();
    let _holders = [&liar, &other].map(|liar| {
        (0..ENDS).for_each(|number| has_connection(liar, number, 1 << 18));
        holder(liar, STRANGER)
    });
    let mut talk = Talk::new();
    let folder = TempDir::new();
    let file = folder.join("lines");
    let mut dump = bypath(["dump", "port", &talk.port.to_string()]);
    let _dump = Running(dump.stdout(File::create(&file).expect("a file")).spawn().expect("bypath starts"));
    let octets = || std::fs::metadata(&file).expect("our file").len();
    let begun = Instant::now();
    while octets() == 0 {
        talk.does("resp 1");
        assert!(begun.elapsed() < LONG, "nothing is shown");
    }
    // Each exchange is shown soon, whenever it is.
    let (begun, mut unseen, mut exchanges) = (Instant::now(), Duration::ZERO, 0);
    while begun.elapsed() < Duration::from_secs(8) {
        let (sent, before) = (Instant::now(), octets());
        talk.does("resp 1");
        while octets() == before && sent.elapsed() < LONG {
            std::thread::yield_now();
        }
        exchanges += 1;
        unseen += Some(sent.elapsed()).filter(|wait| *wait > MOST).unwrap_or_default();
    }
    let all = begun.elapsed();
    println!("{exchanges} exchanges in {all:?}, {unseen:?} of waits");
    assert!(unseen < all / 2, "{exchanges} exchanges: of {all:?} nothing was shown for {unseen:?}");
}

/// As by an allowed peer, which writes to the memory that the connection goes by.
#[test]
fn rings_that_are_hidden_are_told_of() {
    let liar = Liar::new();
    has_connection(&liar, 0, 1 << 18);
    liar.family.ends[0].holders.store(1, Relaxed);
    let folder = TempDir::new();
    let said = folder.join("said");
    let mut dump = bypath(["dump", "--seconds", "5", "--pid", &std::process::id().to_string()]);
    dump.stdout(Stdio::null()).stderr(File::create(&said).expect("a file"));
    let mut dump = Running(dump.spawn().expect("bypath starts"));
    assert!(dump.0.wait().expect("a child").success());
    let said = std::fs::read_to_string(&said).expect("text");
    let wanted = format!("the rings of descriptor 5 of process {} are not found", std::process::id());
    assert_eq!(said.matches(&wanted).count(), 1, "{said}");
}
