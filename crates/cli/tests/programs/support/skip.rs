//! Skips that are seen: printed, and written to a file that the test command lists at its end.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Programs that the tests use, and the Debian package of each.
const PACKAGES: &[(&str, &str)] = &[
    ("apache2", "apache2-bin"),
    ("bash", "bash"),
    ("busybox", "busybox"),
    ("cc", "gcc"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("dnsmasq", "dnsmasq-base"),
    ("gdb", "gdb"),
    ("git", "git"),
    ("go", "golang-go"),
    ("gunicorn", "gunicorn"),
    ("haproxy", "haproxy"),
    ("initdb", "postgresql"),
    ("inetd", "openbsd-inetd"),
    ("iperf3", "iperf3"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("make", "make"),
    ("logger", "bsdutils"),
    ("mariadb", "mariadb-client"),
    ("mariadb-install-db", "mariadb-server"),
    ("mariadbd", "mariadb-server"),
    ("md5sum", "coreutils"),
    ("memcached", "memcached"),
    ("mkfifo", "coreutils"),
    ("nc.openbsd", "netcat-openbsd"),
    ("ncat", "ncat"),
    ("nginx", "nginx"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("openssl", "openssl"),
    ("perl", "perl"),
    ("pgbench", "postgresql"),
    ("postgres", "postgresql"),
    ("prlimit", "util-linux"),
    ("psql", "postgresql-client"),
    ("python3", "python3"),
    ("redis-benchmark", "redis-tools"),
    ("redis-server", "redis-server"),
    ("rsync", "rsync"),
    ("rsyslogd", "rsyslog"),
    ("scp", "openssh-client"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("sftp", "openssh-client"),
    ("socat", "socat"),
    ("sockperf", "sockperf"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("sshd", "openssh-server"),
    ("strace", "strace"),
    ("stunnel4", "stunnel4"),
    ("taskset", "util-linux"),
    ("sudo", "sudo"),
    ("uwsgi_python3", "uwsgi-plugin-python3"),
    ("vsftpd", "vsftpd"),
    ("wget", "wget"),
    ("wrk", "wrk"),
];

/// The path of an installed program. The distribution's own directories come first: a version manager's
/// wrapper script in PATH would put processes of its own into the test. For the same reason PostgreSQL's programs
/// are taken from where Debian keeps them, behind its own wrappers.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let postgres = versions.map(|v| v.path().join("bin").join(name)).filter(|p| p.is_file()).max();
    if postgres.is_some() {
        return postgres;
    }
    let own = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// The reason to skip if one of `programs` is not installed.
pub fn missing(programs: &[&str]) -> Option<String> {
    let name = programs.iter().find(|name| find_program(name).is_none())?;
    let package = PACKAGES.iter().find(|(program, _)| program == name).map(|(_, package)| *package);
    let package = package.unwrap_or_else(|| panic!("{name} has no line in PACKAGES"));
    Some(format!("{name} is not installed (Debian package {package})"))
}

/// Records that `test` did not run. The file is `$BYPATH_TEST_SKIPS`, by default `skipped.txt` in the test
/// target's temporary directory: lines of name, tab, reason.
pub fn skip(test: &str, reason: &str) {
    let path = std::env::var_os("BYPATH_TEST_SKIPS").map_or_else(
        || {
            let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
            fs::create_dir_all(&dir).expect("the temporary directory of the tests");
            dir.join("skipped.txt")
        },
        PathBuf::from,
    );
    // One write of one line: test processes may append at the same time.
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).expect("the file of skipped tests");
    file.write_all(format!("{test}\t{reason}\n").as_bytes()).expect("the file of skipped tests");
    // Not println!, which the harness swallows when a test passes.
    let _ = std::io::stderr().write_all(format!("SKIP {test}: {reason}\n").as_bytes());
}
