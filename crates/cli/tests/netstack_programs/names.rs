//! How programs on the stack come to addresses of names: docs/netstack-service.md, "Names."

use crate::datagrams::dnsmasq;
use crate::fetches::came;
use crate::lab::{Lab, Side, have};
use crate::network::{Ended, Tool, octets, skip};
use rustix::process::Signal;
use std::process::Command;

const HOSTS: &str = "127.0.0.1 localhost\n10.0.0.2 web.lab\n";
const NO_HOSTS: &str = "127.0.0.1 localhost\n";

/// Binds these files in the places of the machine's, for the program that follows alone.
const BIND: &str = "for name in hosts resolv.conf nsswitch.conf; do mount --bind \"$0/$name\" /etc/$name || exit 125; done; exec \"$@\"";

/// A host with files of names of its own, and a web server on the other one.
struct Named {
    lab: Lab,
    web: Tool,
}

impl Named {
    /// `None`: the test is skipped, which was said.
    fn new(test: &str, programs: &[&str], hosts: &str, servers: &str) -> Option<Named> {
        if !have(test, &[&["curl", "python3", "unshare", "mount"], programs].concat()) {
            return None;
        }
        let lab = Lab::cable();
        for (name, text) in
            [("hosts", hosts), ("resolv.conf", servers), ("nsswitch.conf", "hosts: files dns\n")]
        {
            std::fs::write(lab.folder.join(name), text).expect("a file");
        }
        let mut probe = Command::new("unshare");
        probe.args(["--mount", "sh", "-c", BIND]).arg(lab.folder.path()).arg("true");
        let probe = probe.output().expect("unshare");
        if !probe.status.success() {
            skip(
                test,
                &format!("files of names cannot be bound: {}", String::from_utf8_lossy(&probe.stderr).trim()),
            );
            return None;
        }
        let mut lab = lab;
        std::fs::write(lab.folder.join("lab.toml"), "link = \"packet:left\"\naddr = \"10.0.0.1/24\"\n")
            .expect("a file");
        lab.begin();
        std::fs::write(lab.folder.join("file"), octets(100_000)).expect("a file");
        let web = lab.start(Side::Kernel, &["python3", "-u", "-m", "http.server", "8000"]);
        lab.listening("10.0.0.2:8000");
        Some(Named { lab, web })
    }

    /// A program on the stack that finds these files in /etc.
    fn start(&self, line: &[&str]) -> Tool {
        let folder = self.lab.folder.path().to_str().expect("a path");
        self.lab
            .start(Side::Stack, &[&["unshare", "--mount", "sh", "-c", BIND, folder], line].concat())
            .quiet()
    }

    fn curl(&self) -> Ended {
        let url = "http://web.lab:8000/file";
        self.start(&["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--output", "got", url])
            .end()
    }

    /// curl has the file, from the other host, which was asked by the stack.
    #[track_caller]
    fn fetched(mut self) -> Named {
        self.curl().expect(0);
        came(&self.lab, "got", 100_000);
        self.web = self.web.says("10.0.0.1 - - ");
        self
    }

    #[track_caller]
    fn end(self) {
        self.web.signal(Signal::KILL);
        self.web.end();
        self.lab.is_empty();
        self.lab.end();
    }
}

isolated! {
    fn a_name_of_the_hosts_file_is_connected_to_by_the_stack() {
        let test = "names::a_name_of_the_hosts_file_is_connected_to_by_the_stack";
        let Some(named) = Named::new(test, &[], HOSTS, "") else { return };
        named.fetched().end();
    }
}

isolated! {
    fn who_asks_for_himself_asks_by_the_stack_and_the_c_library_by_the_kernel() {
        let test = "names::who_asks_for_himself_asks_by_the_stack_and_the_c_library_by_the_kernel";
        let servers = "nameserver 10.0.0.2\noptions timeout:1 attempts:1\n";
        let Some(named) = Named::new(test, &["dig", "dnsmasq"], NO_HOSTS, servers) else { return };
        let mut names = dnsmasq(&named.lab, Side::Kernel, "10.0.0.2", &["--address=/web.lab/10.0.0.2"]);
        let dug = named.start(&["dig", "+short", "+tries=3", "+time=10", "web.lab"]).end().expect(0);
        assert_eq!(dug.text(), "10.0.0.2\n", "{}", dug.stderr);
        names = names.says("query[A] web.lab from 10.0.0.1");
        // No network of the kernel's leads there.
        let refused = named.curl().expect(6);
        assert!(refused.stderr.contains("web.lab"), "{}", refused.stderr);
        names.signal(Signal::TERM);
        let said = names.end().expect(0).stderr;
        assert_eq!(said.matches("query[").count(), 1, "{said}");
        named.end();
    }
}

isolated! {
    fn a_server_on_loopback_that_asks_by_the_stack_serves_the_c_library() {
        const NAMES: &str = "import socket
s = socket.create_connection(('web.lab', 8000))
print(s.getsockname()[0], *s.getpeername())";
        let test = "names::a_server_on_loopback_that_asks_by_the_stack_serves_the_c_library";
        let Some(mut named) = Named::new(test, &["dnsmasq"], NO_HOSTS, "nameserver 127.0.0.1\n") else { return };
        let mut above = dnsmasq(&named.lab, Side::Kernel, "10.0.0.2", &["--address=/web.lab/10.0.0.2"]);
        let beside = dnsmasq(&named.lab, Side::Stack, "127.0.0.1", &["--server=10.0.0.2"]);
        named = named.fetched();
        above = above.says("query[A] web.lab from 10.0.0.1");
        let python = named.start(&["python3", "-c", NAMES]).end().expect(0);
        assert_eq!(python.text(), "10.0.0.1 10.0.0.2 8000\n", "{}", python.stderr);
        for server in [beside, above] {
            server.signal(Signal::TERM);
            server.end().expect(0);
        }
        named.end();
    }
}
