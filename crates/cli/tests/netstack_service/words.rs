//! What is said of addresses, devices and settings that cannot be, and what to do.

use crate::common::TempDir;
use crate::network::address;
use crate::{TAP, asked, devices, end, service};
use bypath_sys::netns;

/// A service that cannot be, with these words.
#[track_caller]
fn fails(args: &[&str], words: &[&str]) {
    let ended = asked(&TempDir::new(), args);
    assert!(matches!(ended.code(), Some(1 | 2)), "{args:?}: {}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "{args:?}: {}", ended.stderr);
    }
}

isolated! {
    fn networks_that_do_not_meet_or_come_twice_are_named_with_what_would_be_right() {
        let tap = |more: &[&'static str], words: &[&str]| fails(&[&["--link=tap:mine"], more].concat(), words);
        tap(
            &["--net=10.9.0.1/24", "--addr=10.8.0.2/24"],
            &["--net 10.9.0.1/24 and --addr 10.8.0.2/24 are in different networks", "such as --addr 10.9.0.2/24"],
        );
        tap(&["--net=fd09::1/64", "--addr=fd08::2/64"], &["different networks", "such as --addr fd09::2/64"]);
        // The kernel would not know the way back.
        tap(&["--net=10.9.0.1/30", "--addr=10.9.0.9/24"], &["different networks", "such as --addr 10.9.0.2/30"]);
        tap(&["--net=10.9.0.1/24", "--net=10.9.0.1/24"], &["--net 10.9.0.1/24: that address is given twice"]);
        tap(&["--addr=10.9.0.2/24", "--addr=10.9.0.2/16"], &["--addr 10.9.0.2/16: that address is given twice"]);
        for net in ["127.0.0.1/8", "127.0.0.5/8", "224.0.0.1/4", "::1/64"] {
            let ended = asked(&TempDir::new(), &["--link=tap:mine", "--net", net]).expect(2).stderr;
            assert!(ended.contains(&format!("--net {net}: that is no network between two hosts")), "{ended}");
            assert!(ended.contains("such as") && !ended.contains("--addr"), "{ended}");
        }
        tap(&["--net=10.9.0.1/24", "--attach"], &["mine: no such interface", "ip tuntap add mine mode tap user $USER", "leave --attach out"]);
    }
}

isolated! {
    fn what_is_typed_wrong_is_told_with_what_would_be_right() {
        let tap = |more: &[&'static str], words: &[&str]| fails(&[&["--link=tap:mine", "--net=10.9.0.1/24"], more].concat(), words);
        for wrong in ["abc", "-1", "1000001"] {
            fails(&["--link=tap:mine", &format!("--busy-poll={wrong}")], &["--busy-poll", "expected microseconds, 1000000 at most"]);
        }
        tap(&["stray"], &["unexpected argument 'stray': it is no subcommand"]);
        // What is one does not go with them.
        tap(&["sockets"], &["the subcommand 'sockets' cannot be used with"]);
        // What starts a service does not collide with what there is.
        let kernels = "start one: bypath netstack --link tap:bp0 --net 10.9.0.1/24";
        fails(&["sockets"], &[kernels]);
        netns::veth("bp0", "other", None).expect("a veth pair");
        fails(&["sockets"], &["start one: bypath netstack --link tap:bp1 --net 10.9.1.1/24"]);
        address("other", "10.9.1.7");
        fails(&["sockets", "--name=lab"], &["start one: bypath netstack --name lab --link tap:bp2 --net 10.9.2.1/24"]);
    }
}

isolated! {
    fn networks_that_meet_are_taken() {
        if !devices("words::networks_that_meet_are_taken") {
            return;
        }
        let folder = TempDir::new();
        // One of each kind, and one more of the stack's own.
        let args = [&TAP[..], &["--addr=10.9.0.7/24", "--addr=fd09::7/64", "--addr=10.1.0.7/24"]].concat();
        let text = end(service(&folder, &args)).text();
        assert!(text.contains("10.9.0.7/24, 10.1.0.7/24, fd09::7/64") || text.contains("10.9.0.7/24, fd09::7/64"), "{text}");
    }
}

isolated! {
    fn what_lacks_quotes_in_a_file_is_shown_with_them() {
        let folder = TempDir::new();
        let file = folder.join("x.toml");
        let config = format!("--config={}", file.display());
        let says = |text: &str, words: &[&str]| {
            std::fs::write(&file, text).expect("a file");
            fails(&[&config], words);
        };
        says(
            "link = tap:bp0\nnet = 10.9.0.1/24\n",
            &["x.toml:1:8: text must be quoted: link = \"tap:bp0\"", "x.toml:2:", "text must be quoted: net = \"10.9.0.1/24\""],
        );
        says("addr = [10.9.0.2/24]\n", &["text must be quoted: addr = [\"10.9.0.2/24\"]"]);
        says("[limits]\nsockets-per-user = 0\n", &["x.toml:2:20: invalid value '0' for sockets-per-user", "expected 1 or more"]);
        says("[limits]\noctets-per-user = 0\n", &["invalid value '0' for octets-per-user"]);
    }
}
