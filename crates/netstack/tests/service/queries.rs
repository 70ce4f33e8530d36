//! What the service tells of itself.

use crate::{LONGEST, Running, at, isolated, kernels};
use bypath_netstack::service::{Client, QueryError, query};
use bypath_shm::service::Op;
use std::io::Write;
use std::time::Instant;

isolated! {
    fn a_service_tells_what_it_has() {
        let running = Running::new();
        let program = running.program();
        let (_theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let (listener, here) = program.listener(at("[::]:0"));
        let service = running.query("service").remove(0);
        assert_eq!((&service["name"], &service["sockets"], &service["version"]), (&"lab".into(), &2.into(), &1.into()));
        assert_eq!(service["pid"], std::process::id());
        let sockets = running.query("sockets");
        let of = |cookie: u64| sockets.iter().find(|row| row["cookie"] == format!("{cookie:016x}")).expect("a row");
        assert_eq!(of(own.cookie)["state"], "Established");
        assert_eq!(of(own.cookie)["remote"], to.to_string());
        assert_eq!((&of(listener.cookie)["state"], &of(listener.cookie)["local"]), (&"Listen".into(), &here.to_string().into()));
        let stats = running.query("stats");
        assert!(stats.iter().any(|row| row["name"] == "tcp_connected" && row["value"] == 1), "{stats:?}");
        let addresses = running.query("addresses");
        assert!(addresses.iter().any(|row| row["address"] == "10.9.0.2/24" && row["interface"] == "mine"), "{addresses:?}");
        assert!(running.query("routes").iter().all(|row| row["destination"].is_string()));
        let neighbors = running.query("neighbors");
        assert!(neighbors.iter().any(|row| row["address"] == "10.9.0.1" && row["mac"].is_string()), "{neighbors:?}");
        let links = running.query("links");
        assert_eq!((links.len(), &links[0]["interface"], &links[0]["gone"]), (1, &"mine".into(), &false.into()));
        let unknown = query(&running.path, r#"{"what":"weather"}"#, |_| {});
        assert!(matches!(unknown, Err(QueryError::Closed { .. })), "{unknown:?}");
        let count = |name: &str| {
            let rows = running.query("stats");
            rows.iter().find(|row| row["name"] == name).map(|row| (row["value"].as_u64(), row["kind"] == "total"))
        };
        let before = count("asked_open");
        let program = running.program();
        let wrong = [99i32, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
        assert_eq!(program.ask(Op::Open, 0, &wrong).errno, libc::EAFNOSUPPORT);
        let opened = before.and_then(|(value, _)| value).expect("a counter") + 1;
        assert_eq!(count("asked_open"), Some((Some(opened), true)));
        assert_eq!([count("refused_open"), count("asked_nonsense")], [Some((Some(1), true)); 2]);
    }
}

isolated! {
    fn an_answer_that_does_not_fit_at_once_is_whole() {
        let running = Running::new();
        let program = running.program();
        let all: Vec<_> = (0..2000).map(|_| program.open(false).expect("a socket")).collect();
        assert_eq!(running.query("sockets").len(), 2000);
        drop(all);
        running.has_sockets(0);
    }
}

isolated! {
    fn typed_rows_are_what_is_told() {
        let running = Running::new();
        let client = Client::at(&running.path);
        let program = running.program();
        let (_theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        let service = client.service().expect("a row");
        assert_eq!((service.name.as_str(), service.pid, service.sockets), ("lab", std::process::id(), 1));
        let sockets = client.sockets().expect("rows");
        assert_eq!((sockets[0].cookie.clone(), sockets[0].remote), (format!("{:016x}", own.cookie), Some(to)));
        assert_eq!((sockets[0].state.as_str(), sockets[0].unread), ("Established", Some(0)));
        let counters = client.counters().expect("rows");
        assert!(counters.iter().any(|c| c.name == "tcp_connected" && c.value == 1 && c.kind == "total"));
        let addresses = client.addresses().expect("rows");
        assert!(addresses.iter().any(|a| a.address == "10.9.0.2/24" && a.interface == "mine" && a.state == "preferred"));
        assert!(client.routes().expect("rows").iter().any(|r| r.destination == "10.9.0.0/24" && r.via.is_none()));
        let neighbors = client.neighbors().expect("rows");
        assert!(neighbors.iter().any(|n| n.address.to_string() == "10.9.0.1" && n.mac.is_some()), "{neighbors:?}");
        let links = client.links().expect("rows");
        assert!(links.len() == 1 && links[0].mtu == Some(1500) && links[0].received > 0 && !links[0].gone);
        let nowhere = Client::at(&running.path.with_file_name("other")).service();
        assert!(matches!(nowhere, Err(QueryError::NotThere { .. })), "{nowhere:?}");
    }
}

isolated! {
    fn what_was_sent_and_what_was_not_are_told_apart() {
        let running = Running::new();
        let client = Client::at(&running.path);
        let program = running.program();
        let (theirs, to) = kernels("10.9.0.1:0");
        let own = program.connect(to);
        // Nobody reads: in the end the window is shut, and what was written waits here. Nothing of it is on its way.
        let _far = theirs.accept().expect("a connection").0;
        own.stream.set_nonblocking(true).expect("a socket");
        let end = Instant::now() + LONGEST;
        loop {
            while (&own.stream).write(&[7; 1 << 16]).is_ok() {}
            let row = client.sockets().expect("rows").remove(0);
            if row.unsent > Some(0) && row.unacknowledged == Some(0) {
                break;
            }
            assert!(Instant::now() < end, "{row:?}");
        }
    }
}

/// The fields that the specification has for a kind of rows.
fn specified(what: &str) -> Vec<String> {
    let text = include_str!("../../../../docs/netstack-service.md");
    let (mut of, mut fields) = ("", Vec::new());
    for line in text.lines().skip_while(|line| *line != "| what | field | meaning |").skip(2) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(name), Some(cell)) = (cells.next(), cells.next()) else { break };
        if !name.is_empty() {
            of = name;
        }
        if of == format!("`{what}`") {
            fields.extend(cell.split(',').map(|field| field.trim().trim_matches('`').to_owned()));
        }
    }
    fields.sort();
    fields
}

isolated! {
    fn rows_have_the_fields_that_are_specified() {
        let running = Running::new();
        let program = running.program();
        let (_theirs, to) = kernels("10.9.0.1:0");
        let _own = program.connect(to);
        for what in ["service", "sockets", "stats", "addresses", "routes", "neighbors", "links"] {
            let row = running.query(what).remove(0);
            let mut fields: Vec<String> = row.as_object().expect("an object").keys().cloned().collect();
            fields.sort();
            assert_eq!(fields, specified(what), "{what}");
        }
    }
}
