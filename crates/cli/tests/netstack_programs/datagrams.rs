//! Datagrams by the programs that ask and measure with them: a name server, and a stream at a given rate.

use crate::lab::{Lab, ROLES, Side, have};
use crate::network::Tool;
use rustix::process::Signal;
use serde_json::Value;

/// A name server that knows `web.lab`, the address of the kernel's side, and some longer texts; or whatever else is said. It tells who asked.
#[track_caller]
pub fn dnsmasq(lab: &Lab, side: Side, at: &str, knows: &[&str]) -> Tool {
    let listen = format!("--listen-address={at}");
    let line = [
        "dnsmasq",
        "--no-daemon",
        "--conf-file=/dev/null",
        "--no-hosts",
        "--no-resolv",
        "--bind-interfaces",
        &listen,
    ];
    let quiet = ["--pid-file=", "--user=", "--group=", "--log-facility=-", "--log-queries"];
    lab.start(side, &[&line[..], &quiet, knows].concat()).says("started")
}

/// dig asks a server at either side, by datagrams and by a stream.
#[track_caller]
pub fn digs_in_both_roles(lab: &Lab) {
    let text = "long words ".repeat(20);
    let knows = format!("--txt-record=text.lab,{text}1,{text}2,{text}3,{text}4");
    for (server, client) in ROLES {
        let mut names = dnsmasq(lab, server, server.address(), &["--address=/web.lab/192.0.2.80", &knows]);
        let at = format!("@{}", server.address());
        let dig = |line: &[&str]| {
            lab.done(client, &[&["dig", &at, "+short", "+tries=3", "+time=10"][..], line].concat()).text()
        };
        for by in ["+notcp", "+tcp"] {
            assert_eq!(dig(&[by, "web.lab"]), "192.0.2.80\n", "{server:?} {by}");
            names = names.says(&format!("query[A] web.lab from {}", client.address()));
        }
        // More than 512 octets, in one datagram; and with fewer allowed it has to ask again by a stream.
        let whole = [1, 2, 3, 4].map(|n| format!("\"{text}{n}\"")).join(" ") + "\n";
        for by in ["+bufsize=1232", "+noedns"] {
            assert_eq!(dig(&[by, "text.lab", "TXT"]), whole, "{server:?} {by}");
        }
        assert_eq!(dig(&["nobody.lab"]), "", "{server:?}");
        names.signal(Signal::TERM);
        names.end().expect(0);
    }
}

isolated! {
    fn dig_asks_dnsmasq_in_both_roles() {
        if !have("datagrams::dig_asks_dnsmasq_in_both_roles", &["dig", "dnsmasq"]) {
            return;
        }
        let lab = Lab::new("");
        digs_in_both_roles(&lab);
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn datagrams_of_iperf3_arrive_each_way_in_both_roles() {
        if !have("datagrams::datagrams_of_iperf3_arrive_each_way_in_both_roles", &["iperf3"]) {
            return;
        }
        let lab = Lab::new("");
        for (server, client) in ROLES {
            let mut served = lab.start(server, &["iperf3", "--server", "--port", "5201", "--forceflush"]);
            for (before, way) in [&[][..], &["-R"]].into_iter().enumerate() {
                // It listens anew each time.
                while served.heard().matches("Server listening").count() <= before {
                    served = served.hears_more();
                }
                arrives(&lab, server, client, way);
            }
            served.signal(Signal::INT);
            served.end();
        }
        lab.is_empty();
        lab.end();
    }
}

/// So many octets, at a rate at which whoever reads has 160 ms to wake up before his buffer is full. Nine of ten have to come.
#[track_caller]
fn arrives(lab: &Lab, server: Side, client: Side, way: &[&str]) {
    const OCTETS: u64 = 1 << 20;
    let line = [
        "iperf3",
        "--client",
        server.address(),
        "--port",
        "5201",
        "--udp",
        "--json",
        "-b",
        "10M",
        "-n",
        "1M",
    ];
    let report = lab.done(client, &[&line[..], way].concat());
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    assert!(report.get("error").is_none(), "{way:?}: {report:#}");
    let count = |sum: &str, name: &str| {
        report["end"][sum][name].as_u64().unwrap_or_else(|| panic!("{sum} {name}: {report:#}"))
    };
    let sent = count("sum_sent", "packets");
    assert!(count("sum_sent", "bytes") >= OCTETS, "{way:?}: {report:#}");
    // Those that came; who sent counts those, too, that were lost at the end.
    let came = count("sum_received", "packets") - count("sum_received", "lost_packets");
    assert!(came <= sent && came * 10 >= sent * 9, "{way:?}: {came} of {sent} came: {report:#}");
}
