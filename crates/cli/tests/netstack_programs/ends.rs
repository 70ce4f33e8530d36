//! A service that ends under servers: they are silent meanwhile, and serve again when there is another one.

use crate::lab::{Lab, Side, have, script};
use crate::network::{LONG, Tool};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

/// How long servers are without a service: long enough for a storm to be seen, which has thousands of calls in it.
const WITHOUT: Duration = Duration::from_secs(2);
/// Calls in vain, and lines about them, at most: one each second, however long the machine takes to have a service again.
const MOST: usize = 100;

fn is_without_service() {
    let end = Instant::now() + WITHOUT;
    while let left @ 1.. = end.saturating_duration_since(Instant::now()).as_nanos() {
        std::thread::park_timeout(Duration::from_nanos(left as u64));
    }
}

/// The other host asks until it is answered.
#[track_caller]
pub fn asks(lab: &Lab, url: &str) {
    let end = Instant::now() + LONG;
    let curl = || {
        let ended = lab
            .start(Side::Kernel, &["curl", "--silent", "--noproxy", "*", "--max-time", "5", url])
            .quiet()
            .end();
        ended.code() == Some(0) && ended.text() == "octets"
    };
    while !curl() {
        assert!(Instant::now() < end, "nobody answers at {url}");
    }
}

/// Kills the service under a server at this port, and starts another one, twice.
fn ends_under(lab: &mut Lab, port: u16, more: impl Fn(&Lab)) {
    let url = format!("http://{}/file", Side::Stack.at(port));
    lab.listening(&Side::Stack.at(port));
    asks(lab, &url);
    for _ in 0..2 {
        lab.kill();
        is_without_service();
        lab.begin();
        asks(lab, &url);
        more(lab);
        (0..20).for_each(|_| asks(lab, &url));
    }
}

isolated! {
    fn nginx_is_silent_without_its_service_and_serves_again() {
        if !have("ends::nginx_is_silent_without_its_service_and_serves_again", &["nginx", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        let root = lab.folder.path().display().to_string();
        fs::write(lab.folder.join("file"), "octets").expect("a file");
        let config = format!(
            "daemon off; worker_processes 2; user root; pid {root}/pid; error_log {root}/errors warn;
             events {{ worker_connections 64; }}
             http {{ access_log off;
               client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
               uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
               server {{ listen 8000; root {root}; }} }}"
        );
        fs::write(lab.folder.join("nginx.conf"), config).expect("a file");
        let conf = format!("{root}/nginx.conf");
        let web = lab.start(Side::Stack, &["nginx", "-e", "stderr", "-p", &root, "-c", &conf]);
        ends_under(&mut lab, 8000, |_| {
            // Workers that begin now inherit what the old service left of the socket.
            web.signal(Signal::HUP);
        });
        web.signal(Signal::QUIT);
        let said = web.end().expect(0).stderr;
        // One line for each end, however many processes noticed.
        assert_eq!(said.matches("the netstack service default has ended").count(), 2, "{said}");
        assert!(said.contains("start it with `bypath netstack --link LINK`\n") && !said.contains("os error"), "{said}");
        let errors = fs::read_to_string(lab.folder.join("errors")).expect("a file");
        assert!(errors.lines().count() <= MOST, "{errors}");
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn the_web_server_of_cpython_is_silent_without_its_service_and_serves_again() {
        if !have("ends::the_web_server_of_cpython_is_silent_without_its_service_and_serves_again", &["python3", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        fs::write(lab.folder.join("file"), "octets").expect("a file");
        let web: Tool = lab.start(Side::Stack, &["python3", &script("served.py"), Side::Stack.address(), "8001"]);
        ends_under(&mut lab, 8001, |_| {});
        web.signal(Signal::TERM);
        let text = web.end().expect(0).text();
        let failed = text.strip_prefix("failed ").and_then(|n| n.trim().parse::<usize>().ok()).expect("a number");
        assert!((1..=MOST).contains(&failed), "{text}");
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn who_only_waits_on_what_he_inherited_is_silent_without_its_service_and_serves_again() {
        const NAME: &str = "ends::who_only_waits_on_what_he_inherited_is_silent_without_its_service_and_serves_again";
        if !have(NAME, &["python3", "curl"]) {
            return;
        }
        let mut lab = Lab::new("");
        for (how, port) in [("poll", 8002), ("select", 8003)] {
            let line = ["python3", &script("heir.py"), how, Side::Stack.address(), &port.to_string()];
            let heir: Tool = lab.start(Side::Stack, &line).hears("waits");
            lab.kill();
            is_without_service();
            lab.begin();
            let url = format!("http://{}/", Side::Stack.at(port));
            (0..20).for_each(|_| asks(&lab, &url));
            heir.signal(Signal::TERM);
            let text = heir.end().expect(0).text();
            let woken = text.rsplit_once("woken ").and_then(|(_, n)| n.trim().parse::<usize>().ok());
            assert!(woken.is_some_and(|woken| (1..=MOST).contains(&woken)), "{text}");
        }
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn who_has_put_something_else_at_standard_error_says_in_the_first_file_why_he_is_not_served() {
        const NAME: &str = "ends::who_has_put_something_else_at_standard_error_says_in_the_first_file_why_he_is_not_served";
        if !have(NAME, &["python3"]) {
            return;
        }
        let mut lab = Lab::new("");
        let line = format!("exec python3 {} {} 9 2> said", script("late.py"), Side::Kernel.address());
        let late = lab.start(Side::Stack, &["sh", "-c", &line]).hears("waits");
        lab.kill();
        late.signal(Signal::USR1);
        assert!(late.end().expect(0).text().contains("Network is down"));
        let said = fs::read_to_string(lab.folder.join("said")).expect("a file");
        assert!(said.contains("the netstack service default is not running: start it with"), "{said}");
    }
}
