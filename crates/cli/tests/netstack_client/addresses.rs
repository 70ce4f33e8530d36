//! Which addresses a socket may have, to whom it speaks and what it hears: the same programs by the kernel and by a service, which both have
//! these addresses.

use super::users::{ONE, OTHER, PYTHON, Stage};
use super::{HERE, common, script};
use std::process::Command;

const ALSO: &str = "fd09::1";

/// What the program prints on a host of the kernel's that has these addresses, and what it prints beside the service.
fn both(stage: &Stage, program: &str, users: &[u32]) -> [String; 2] {
    let program = stage.copy(&script(program));
    let _service = stage.service_at(&[&format!("{HERE}/24"), &format!("{ALSO}/64")]);
    let host = format!(
        "set -e; ip link set lo up; ip link add d0 type veth peer name d1; ip link set d0 up; ip link set d1 up
        ip addr add {HERE}/24 brd + dev d0; ip addr add {ALSO}/64 dev d0 nodad; exec \"$@\""
    );
    let users: Vec<String> = users.iter().map(u32::to_string).collect();
    let in_network = |sets_up| {
        let start = ["unshare", "-n", "sh", "-c", sets_up, "sh", PYTHON, &program, HERE, ALSO];
        start.into_iter().chain(users.iter().map(String::as_str)).chain(["--"]).collect::<Vec<_>>()
    };
    // Nothing is preloaded into the program itself, which starts those of the users.
    let by_kernel = in_network(&host);
    let mut kernel = Command::new(by_kernel[0]);
    kernel.args(&by_kernel[1..]).current_dir("/");
    let by_service = in_network("ip link set lo up; exec \"$@\"");
    let service = stage.bypath(0, &by_service, &["run", "--netstack=lab", "--"]);
    [kernel, service].map(|mut command| {
        let output = command.output().expect("setpriv and unshare");
        assert!(output.status.success(), "{}", common::stderr(&output));
        common::stdout(&output)
    })
}

/// By lines, so that a difference is seen.
#[track_caller]
fn compare([kernel, service]: &[String; 2], least: usize) {
    assert!(kernel.lines().count() >= least, "{kernel}");
    let differ = |(a, b): &(&str, &str)| a != b;
    let all: Vec<_> = kernel.lines().zip(service.lines()).filter(differ).collect();
    assert!(all.is_empty() && kernel == service, "the kernel's, and the service's: {all:#?}");
}

#[test]
fn whose_a_port_is_that_users_share_is_as_with_the_kernel() {
    let Some(stage) = Stage::new("addresses::whose_a_port_is_that_users_share_is_as_with_the_kernel") else {
        return;
    };
    compare(&both(&stage, "sharing.py", &[ONE, OTHER]), 40);
}

#[test]
fn addresses_of_both_families_are_taken_as_by_the_kernel() {
    let Some(stage) = Stage::new("addresses::addresses_of_both_families_are_taken_as_by_the_kernel") else {
        return;
    };
    compare(&both(&stage, "families.py", &[ONE]), 40);
}
