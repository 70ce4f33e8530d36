//! nginx that is reloaded while clients ask on: no request may fail.

use crate::lab::{Lab, ROLES, have, script};
use crate::network::octets;
use rustix::process::Signal;
use std::fs;

isolated! {
    fn nginx_is_reloaded_under_load_in_both_roles() {
        if !have("web::nginx_is_reloaded_under_load_in_both_roles", &["nginx", "wrk", "python3"]) {
            return;
        }
        let lab = Lab::new("");
        let root = lab.folder.path().display().to_string();
        let www = lab.folder.join("www");
        fs::create_dir(&www).expect("a folder");
        for (name, len) in [("0.bin", 1024), ("1.bin", 300_000), ("2.bin", 1), ("3.bin", 70_001)] {
            fs::write(www.join(name), octets(len)).expect("a file");
        }
        let config = format!(
            "daemon off; worker_processes 2; user root; pid {root}/pid; error_log stderr warn;
             events {{ worker_connections 512; }}
             http {{ access_log off; sendfile on; keepalive_timeout 60; keepalive_requests 1000000; add_header X-Worker $pid;
               client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
               uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
               server {{ listen 8000; root {root}/www; }} }}"
        );
        fs::write(lab.folder.join("nginx.conf"), config).expect("a file");
        let conf = format!("{root}/nginx.conf");
        for (server, client) in ROLES {
            let web = lab.start(server, &["nginx", "-e", "stderr", "-p", &root, "-c", &conf]);
            lab.listening(&server.at(8000));
            let url = format!("http://{}/0.bin", server.at(8000));
            let wrk = lab.start(client, &["wrk", "-t", "1", "-c", "30", "-d", "2s", "--timeout", "30s", "-H", "Connection: close", &url]);
            let load = script("http_load.py");
            let mut kept = lab.start(client, &["python3", &load, &server.at(8000), "www", "6"]).hears("warm");
            for n in 3..6 {
                web.signal(Signal::HUP);
                // A worker that was not there before: there are two at first, and two after each time.
                kept = kept.hears(&format!("workers {n}\n"));
            }
            let said = wrk.end().expect(0).text();
            assert!(said.contains("Requests/sec") && !said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
            kept.signal(Signal::TERM);
            let said = kept.end().expect(0).text();
            assert!(said.contains("requests "), "{said}");
            web.signal(Signal::QUIT);
            web.end().expect(0);
        }
        lab.is_empty();
        lab.end();
    }
}
