//! The example says hello, in a network namespace of its own.

use bypath_sys::netns;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const INSIDE: &str = "BYPATH_TEST_NAMESPACE";

/// `cargo test` builds the examples beside its tests.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/l2_hello")
}

#[test]
fn two_programs_say_hello() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["two_programs_say_hello", "--exact", "--nocapture"]).env(INSIDE, "1");
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
        }
        Err(e) => {
            println!("skipped: no user and network namespaces: {e}");
            if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
                use std::io::Write;
                let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
                file.write_all(
                    format!("two_programs_say_hello\tno user and network namespaces: {e}\n").as_bytes(),
                )
                .unwrap();
            }
        }
    }
}

fn inside() {
    netns::veth("left", "right", None).unwrap();
    let run =
        |arguments: &[&str]| Command::new(example()).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
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
    let unknown = Command::new(example()).arg("eth9").output().unwrap();
    let message = String::from_utf8_lossy(&unknown.stderr);
    assert_eq!(message, "l2_hello: eth9: no such interface; there are: lo, right, left\n");
}
