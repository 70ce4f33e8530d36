//! Files and octets by what everybody has, over a cable, with a server and a client on either side of it.

use crate::lab::{Lab, ROLES, have};
use crate::network::octets;
use rustix::process::Signal;

const SIZE: usize = 10_000_000;

/// What was fetched is the file.
#[track_caller]
pub fn came(lab: &Lab, name: &str, size: usize) {
    let got = std::fs::read(lab.folder.join(name)).expect("a file");
    assert!(got == octets(size), "{} octets came, or others", got.len());
    std::fs::remove_file(lab.folder.join(name)).expect("a file");
}

/// curl and what follows it fetch a file of so many octets from Python's http.server, with either side as the server.
#[track_caller]
pub fn fetches_in_both_roles(lab: &Lab, size: usize, more: &[&[&str]]) {
    std::fs::write(lab.folder.join("file"), octets(size)).expect("a file");
    let curl = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "got"];
    for (server, client) in ROLES {
        let mut web = lab.start(server, &["python3", "-u", "-m", "http.server", "8000"]);
        lab.listening(&server.at(8000));
        let url = format!("http://{}/file", server.at(8000));
        for program in [&curl[..]].iter().chain(more) {
            lab.done(client, &[program, &[&url[..]][..]].concat());
            came(lab, "got", size);
            // It was asked by the other host.
            web = web.says(&format!("{} - - ", client.address()));
        }
        assert_eq!(web.said.matches("\"GET /file ").count(), 1 + more.len(), "{}", web.said);
        web.signal(Signal::KILL);
        web.end();
    }
}

isolated! {
    fn curl_and_wget_fetch_from_python_in_both_roles() {
        if !have("fetches::curl_and_wget_fetch_from_python_in_both_roles", &["curl", "wget", "python3"]) {
            return;
        }
        let lab = Lab::new("");
        let wget = ["wget", "--quiet", "--no-proxy", "--tries=1", "--output-document=got"];
        fetches_in_both_roles(&lab, SIZE, &[&wget]);
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn nc_sends_each_way_and_ends_in_both_roles() {
        if !have("fetches::nc_sends_each_way_and_ends_in_both_roles", &["nc"]) {
            return;
        }
        let lab = Lab::new("");
        let (asks, answers) = (octets(1_000_000), octets(300_001));
        for (server, client) in ROLES {
            let listener = lab.start(server, &["nc", "-n", "-v", "-l", "-N", server.address(), "8000"]);
            let listener = listener.says("Listening on").give(&answers);
            let caller = lab.start(client, &["nc", "-n", "-N", server.address(), "8000"]).give(&asks);
            let (asked, answered) = (listener.end().expect(0), caller.end().expect(0));
            assert!(asked.stdout == asks, "{server:?}: {} octets came, or others", asked.stdout.len());
            assert!(answered.stdout == answers, "{client:?}: {} octets came, or others", answered.stdout.len());
        }
        lab.is_empty();
        lab.end();
    }
}
