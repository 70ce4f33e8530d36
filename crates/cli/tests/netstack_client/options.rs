//! Every option of every level, against the kernel's own sockets, and the page that tells what was found.
//!
//! `BYPATH_WRITE_OPTIONS=1 cargo test -p bypath-cli --test netstack_client options` writes the tables of
//! docs/netstack-service.md anew. What differs needs a reason here before that.

use super::{HERE, Service, common, is_possible, script, skip};
use bypath_netstack::service::table::{TABLE, What, name_of_datagrams};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Address of the service's side, of IPv6.
const HERE_V6: &str = "fd09::1";

/// Why an option is not what it is on the kernel's sockets, and which ones.
const REASONS: &[(&str, &[&str])] = &[
    ("numbers of another stack", &["TCP_INFO", "TCP_MAXSEG", "IP_MTU", "IPV6_MTU"]),
    ("cubic at first, and reno; neither tells numbers of its own", &["TCP_CONGESTION", "TCP_CC_INFO"]),
    (
        "a connection's is told as of a new socket: buffers do not grow by themselves, and no CPU is chosen",
        &["SO_SNDBUF", "SO_INCOMING_CPU", "TCP_WINDOW_CLAMP"],
    ),
    (
        "can be set, without effect, whatever state the socket is in or what was set before",
        &[
            "SO_TIMESTAMPING",
            "SO_TIMESTAMPING_NEW",
            "SO_LOCK_FILTER",
            "TCP_FASTOPEN",
            "TCP_FASTOPEN_NO_COOKIE",
        ],
    ),
    ("a number is told as it was set", &["SO_RCVLOWAT", "SO_RCVMARK"]),
    ("an index of the stack's own interfaces", &["SO_BINDTOIFINDEX"]),
    ("0 is taken for the usual hop limit", &["IPV6_UNICAST_HOPS"]),
    (
        "can be set to what it is, but not to what would have to act",
        &[
            "IP_OPTIONS",
            "IP_TRANSPARENT",
            "IP_MINTTL",
            "IP_LOCAL_PORT_RANGE",
            "IPV6_MINHOPCOUNT",
            "IPV6_TRANSPARENT",
            "SO_TXTIME",
            "TCP_REPAIR",
            "TCP_SAVE_SYN",
            "TCP_FASTOPEN_KEY",
            "TCP_TX_DELAY",
            "TCP_RTO_MAX_MS",
        ],
    ),
    ("the same: no message tells of it, and programs that ask first do without", &["SO_ZEROCOPY", "TCP_INQ"]),
    ("the same: the SYN carries no octets; MSG_FASTOPEN connects and sends", &["TCP_FASTOPEN_CONNECT"]),
    (
        "refused: filters and programs of the kernel's",
        &["SO_ATTACH_FILTER", "SO_ATTACH_BPF", "SO_ATTACH_REUSEPORT_EBPF", "SO_DEVMEM_DONTNEED"],
    ),
    (
        "refused: extension headers and sticky addresses",
        &["IPV6_PKTINFO", "IPV6_HOPOPTS", "IPV6_RTHDRDSTOPTS", "IPV6_DSTOPTS"],
    ),
    (
        "refused: what TCP streams of the stack do not have",
        &[
            "IP_XFRM_POLICY",
            "IPV6_XFRM_POLICY",
            "IPV6_JOIN_ANYCAST",
            "IPV6_LEAVE_ANYCAST",
            "TCP_QUEUE_SEQ",
            "TCP_AO_REPAIR",
        ],
    ),
    (
        "not told: getpeername, or the MTU, tells it; there is no address before a translation",
        &["SO_PEERNAME", "IPV6_PATHMTU", "SO_ORIGINAL_DST", "IP6T_SO_ORIGINAL_DST"],
    ),
];

/// The same of sockets of datagrams.
const OF_DATAGRAMS: &[(&str, &[&str])] = &[
    ("numbers of another stack", &["IP_MTU", "IPV6_MTU"]),
    (
        "can be set, without effect, whatever state the socket is in or what was set before",
        &["SO_LINGER", "SO_LOCK_FILTER"],
    ),
    ("a number is told as it was set", &["SO_RCVMARK"]),
    ("an index of the stack's own interfaces", &["SO_BINDTOIFINDEX", "IPV6_MULTICAST_IF"]),
    ("the way to a group is by one of them", &["IP_DROP_MEMBERSHIP"]),
    ("0 is taken for the usual hop limit", &["IPV6_UNICAST_HOPS"]),
    (
        "can be set to what it is, but not to what would have to act",
        &[
            "IP_OPTIONS",
            "IP_TRANSPARENT",
            "IP_MINTTL",
            "IP_LOCAL_PORT_RANGE",
            "IPV6_MINHOPCOUNT",
            "IPV6_TRANSPARENT",
            "SO_TXTIME",
        ],
    ),
    ("the same: no message tells of it, and programs that ask first do without", &["SO_ZEROCOPY"]),
    (
        "refused: filters and programs of the kernel's",
        &["SO_ATTACH_FILTER", "SO_ATTACH_BPF", "SO_ATTACH_REUSEPORT_EBPF", "SO_DEVMEM_DONTNEED"],
    ),
    (
        "refused: extension headers and sticky addresses",
        &["IPV6_2292PKTOPTIONS", "IPV6_PKTINFO", "IPV6_HOPOPTS", "IPV6_RTHDRDSTOPTS", "IPV6_DSTOPTS"],
    ),
    (
        "refused: what datagrams of the stack do not have",
        &[
            "UDP_CORK",
            "UDP_ENCAP",
            "UDP_NO_CHECK6_TX",
            "UDP_NO_CHECK6_RX",
            "UDPLITE_SEND_CSCOV",
            "UDPLITE_RECV_CSCOV",
            "IP_XFRM_POLICY",
            "IPV6_XFRM_POLICY",
            "IPV6_JOIN_ANYCAST",
            "IPV6_LEAVE_ANYCAST",
        ],
    ),
    ("not told: getpeername, or the MTU, tells it", &["SO_PEERNAME", "IPV6_PATHMTU"]),
];

/// What these tell is of the moment, or of the machine: only how long it is is compared.
const OF_THE_MOMENT: &[&str] =
    &["SO_COOKIE", "SO_MEMINFO", "SO_NETNS_COOKIE", "TCP_TIMESTAMP", "IP_PROTOCOL"];

/// Walks, by level and option, and by family and state of the socket.
type Walk = BTreeMap<(i64, i64), BTreeMap<String, Value>>;

fn parse(text: &str) -> Walk {
    let mut all = Walk::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("a line of JSON");
        let number = |key: &str| row[key].as_i64().expect("a number");
        let on = format!("{} {}", row["family"], row["state"]);
        all.entry((number("level"), number("option"))).or_default().insert(on, row);
    }
    all
}

/// The kernel's sockets, and those of `bypath netstack`.
fn walks(kind: &str) -> [Walk; 2] {
    let walk = script("walk.py");
    let mut kernel = Command::new("python3");
    kernel.arg(script("service.py")).args(["--run", "python3"]).arg(&walk).args([kind, HERE, HERE_V6]);
    let kernel = bypath_sys::netns::isolated(&mut kernel).output().expect("python3");
    let service = Service::real_with(&["--net", "fd09::9/64", "--addr", &format!("{HERE_V6}/64")])
        .expect("bypath netstack");
    let mut own = service.program(&["python3", walk.to_str().expect("a plain path"), kind, HERE, HERE_V6]);
    // With the same rights.
    let own = bypath_sys::netns::isolated(&mut own).output().expect("bypath");
    [kernel, own].map(|output| {
        assert!(output.status.success(), "{}", common::stderr(&output));
        parse(&common::stdout(&output))
    })
}

/// Numbers of the moment in what is told.
fn still(row: &Value, name: &str) -> Value {
    let mut row = row.clone();
    let length = |value: &mut Value| {
        let text = value.as_str().unwrap_or_default();
        if text.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()) {
            *value = text.len().into();
        }
    };
    if OF_THE_MOMENT.contains(&name) {
        row["told"].as_object_mut().into_iter().flat_map(|told| told.values_mut()).for_each(length);
        row["set"].as_array_mut().into_iter().flatten().for_each(|set| length(&mut set[2]));
    }
    row
}

fn name_of((level, option): (i64, i64), kind: &str) -> String {
    let own = name_of_datagrams(level as i32, option as i32).filter(|_| kind == "datagrams");
    if let Some(name) = own {
        return name.to_owned();
    }
    let row = TABLE.iter().find(|row| (i64::from(row.0), i64::from(row.1)) == (level, option));
    row.map_or_else(|| format!("{level}/{option}"), |row| row.2.to_owned())
}

/// What differs of an option, in one line of text; `None`: nothing.
fn difference(
    name: &str,
    kernel: Option<&BTreeMap<String, Value>>,
    own: Option<&BTreeMap<String, Value>>,
) -> Option<String> {
    let on: BTreeSet<&String> = kernel.into_iter().chain(own).flat_map(|rows| rows.keys()).collect();
    on.into_iter().find_map(|on| {
        let [kernel, own] =
            [kernel, own].map(|rows| rows.and_then(|rows| rows.get(on)).map(|row| still(row, name)));
        let (Some(kernel), Some(own)) = (&kernel, &own) else {
            // Known to the one only: whatever the other one would answer to a good value.
            return Some(format!("{on}: kernel {}, service {}", kernel.is_some(), own.is_some()));
        };
        let rows = |row: &Value| row["set"].as_array().cloned().unwrap_or_default();
        let sets = rows(kernel).into_iter().zip(rows(own)).find(|(kernel, own)| kernel != own);
        match sets {
            Some((kernel, own)) => Some(format!("{on}: kernel {kernel}, service {own}")),
            None => {
                (kernel != own).then(|| format!("{on}: kernel {}, service {}", kernel["told"], own["told"]))
            }
        }
    })
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn differences(text: &mut String, reasons: &[(&str, &[&str])]) {
    *text += "| unlike the kernel's own sockets | |\n|---|---|\n";
    for (reason, names) in reasons {
        *text += &format!("| {reason} | {} |\n", list(names));
    }
}

/// Both tables of streams, as the page has them.
fn page() -> String {
    let mut text = "| options that | |\n|---|---|\n".to_owned();
    for what in [What::Acts, What::Told(0), What::Kept, What::Refused(0, 0)] {
        let names: Vec<&str> =
            TABLE.iter().filter(|row| row.3.word() == what.word()).map(|row| row.2).collect();
        text += &format!("| {} | {} |\n", what.word(), list(&names));
    }
    text.push('\n');
    differences(&mut text, REASONS);
    text
}

/// The second one of datagrams.
fn page_of_datagrams() -> String {
    let mut text = String::new();
    differences(&mut text, OF_DATAGRAMS);
    text
}

#[test]
fn options_answer_as_the_kernels_and_the_page_says_where_not() {
    const NAME: &str = "options::options_answer_as_the_kernels_and_the_page_says_where_not";
    let path = common::workspace().join("docs/netstack-service.md");
    let text = std::fs::read_to_string(&path).expect("the page");
    let (head, rest) = text.split_once("| options that | |\n").expect("the first table");
    let (_, tail) =
        rest.split_once("\n\nSO_SNDBUF and SO_RCVBUF go up").expect("what comes after the second table");
    let (middle, tail) = tail.split_once("| unlike the kernel's own sockets | |\n").expect("the third table");
    let (_, tail) = tail.split_once("\n\n## What differs").expect("what comes after it");
    let right = format!(
        "{head}{}\nSO_SNDBUF and SO_RCVBUF go up{middle}{}\n## What differs{tail}",
        page(),
        page_of_datagrams()
    );
    if std::env::var_os("BYPATH_WRITE_OPTIONS").is_some() {
        std::fs::write(&path, &right).expect("the page");
    }
    let text = std::fs::read_to_string(&path).expect("the page");
    assert!(
        text == right,
        "docs/netstack-service.md: the tables of options are old; BYPATH_WRITE_OPTIONS=1 writes them anew"
    );
    are_compared(NAME, "streams", REASONS);
}

#[test]
fn options_of_datagrams_answer_as_the_kernels_and_the_page_says_where_not() {
    const NAME: &str = "options::options_of_datagrams_answer_as_the_kernels_and_the_page_says_where_not";
    are_compared(NAME, "datagrams", OF_DATAGRAMS);
}

/// What differs has one of these reasons, and what has one differs.
fn are_compared(test: &str, kind: &str, reasons: &[(&str, &[&str])]) {
    if !is_possible(test, &[]) {
        return;
    }
    if let Err(e) = bypath::tun::Device::tap("probe%d").open() {
        return skip(test, &format!("no TAP devices: {e}"));
    }
    let [kernel, own] = walks(kind);
    assert!(kernel.len() > 100, "a walk that sees little: {}", kernel.len());
    let mut wrong = Vec::new();
    for option in kernel.keys().chain(own.keys()).collect::<BTreeSet<_>>() {
        let name = name_of(*option, kind);
        let is_named = reasons.iter().any(|(_, names)| names.contains(&name.as_str()));
        let is_known = !name.contains('/');
        // Kernels learn options, and may lack some: those are the next walk's, on such a machine.
        if !kernel.contains_key(option) || !is_known && option.1 > 84 {
            continue;
        }
        match difference(&name, kernel.get(option), own.get(option)) {
            Some(what) if !is_named => wrong.push(format!("{name}: {what}")),
            None if is_named => wrong.push(format!("{name}: nothing differs")),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
