//! The examples say hello, in network namespaces of their own.

use bypath_sys::netns;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const INSIDE: &str = "BYPATH_TEST_NAMESPACE";

/// `cargo test` builds the examples beside its tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name)
}

/// Runs a test again in a user and network namespace of its own, and `inside` in there.
fn isolated(name: &str, inside: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(INSIDE, "1");
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
}

fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).unwrap();
    }
}

#[test]
fn two_programs_say_hello() {
    isolated("two_programs_say_hello", inside);
}

#[test]
#[cfg(feature = "netstack")]
fn a_host_of_our_own_says_hello() {
    const NAME: &str = "a_host_of_our_own_says_hello";
    isolated(NAME, || {
        if let Err(e) = bypath::tun::Device::tap("probe%d").open() {
            return skip(NAME, &format!("no TAP devices: {e}"));
        }
        netns::set_up("lo", true).unwrap();
        let output = Command::new(example("netstack_hello")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let told = "bp0: the kernel is 10.9.0.1, we are 10.9.0.2\n10.9.0.1 says hello\n10.9.0.2 says hello yourself\n\
                    1 datagrams received, 1 sent\n";
        assert_eq!(text, told, "{}", String::from_utf8_lossy(&output.stderr));
        let wrong = Command::new(example("netstack_hello")).args(["eth0", "dhcp"]).output().unwrap();
        let message = String::from_utf8_lossy(&wrong.stderr);
        assert!(message.starts_with("netstack_hello: expected tap:NAME or tun:NAME"), "{message}");
    });
}

#[test]
#[cfg(feature = "netstack")]
fn a_link_of_ones_own_carries_a_datagram() {
    let output = Command::new(example("own_link")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "10.0.0.1: 5000 octets\n", "{}", String::from_utf8_lossy(&output.stderr));
}

fn inside() {
    netns::veth("left", "right", None).unwrap();
    let run = |arguments: &[&str]| {
        Command::new(example("l2_hello")).args(arguments).stdout(Stdio::piped()).spawn().unwrap()
    };
    for name in ["left", "right"] {
        netns::set_up(name, true).unwrap();
    }
    let answers = run(&["right"]);
    let asks = run(&["left", "hello there"]);
    let text =
        |child: std::process::Child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let (asked, answered) = (text(asks), text(answers));
    let mac = |name: &str| bypath::link::Interface::named(name).unwrap().mac;
    assert_eq!(answered, format!("{} on VLAN 10 priority 7: hello there\n", mac("left")));
    assert_eq!(asked, format!("{} on VLAN 10 priority 7: I am {}\n", mac("right"), mac("right")));
    let list = text(run(&[]));
    assert!(list.lines().count() == 4 && list.contains(&mac("left").to_string()), "{list}");
    let unknown = Command::new(example("l2_hello")).arg("eth9").output().unwrap();
    let message = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(message, "l2_hello: eth9: no such interface; there are: lo, right, left\n");
}
