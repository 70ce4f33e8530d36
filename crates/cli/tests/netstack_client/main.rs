//! Programs whose sockets are a netstack service's, against a small service of the tests' own over kernel sockets.

mod addresses;
mod anew;
mod beside;
#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod interfaces;
mod options;
mod programs;
mod rings;
mod trouble;
mod users;
mod workers;

use common::{TempDir, run};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// Address of the service's side; nobody else has it.
const HERE: &str = "10.9.0.1";

fn script(name: &str) -> PathBuf {
    common::workspace().join("crates/cli/tests/netstack_client").join(name)
}

/// Says that a test did not run, and why.
fn skip(name: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("SKIP netstack_client::{name}: {reason}\n").as_bytes());
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        file.write_all(format!("netstack_client::{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Whether the tests can be run; says which one is skipped where they cannot.
fn is_possible(name: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&&str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if let Some(missing) = ["python3"].iter().chain(programs).find(|p| !is_there(p)) {
        skip(name, &format!("{missing} is not installed"));
        return false;
    }
    match bypath_sys::netns::isolated(&mut Command::new("true")).status() {
        Ok(_) => true,
        Err(e) => {
            skip(name, &format!("no user and network namespaces: {e}"));
            false
        }
    }
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        let mut octet = [0];
        let out = self.0.stdout.as_mut().expect("a pipe");
        while std::io::Read::read(out, &mut octet).expect("a pipe") == 1 && octet[0] != b'\n' {
            line.push(char::from(octet[0]));
        }
        line
    }

    /// What else it prints, until its end, which must be a good one.
    #[track_caller]
    fn finish(mut self) -> String {
        let out: Option<BufReader<ChildStdout>> = self.0.stdout.take().map(BufReader::new);
        let lines = out.into_iter().flat_map(BufRead::lines);
        let text: String = lines.map(|line| line.expect("text") + "\n").collect();
        let status = self.0.wait().expect("it was started");
        assert!(status.success(), "{status}: {text}");
        text
    }
}

/// A service, and the folder where it is.
struct Service {
    folder: TempDir,
    process: Option<Process>,
}

impl Service {
    fn start() -> Service {
        Service::of(&script("service.py"), &[])
    }

    fn of(script: &Path, arguments: &[&str]) -> Service {
        let mut service = Service { folder: TempDir::new(), process: None };
        service.begin(script, arguments);
        service
    }

    /// `bypath netstack` itself, whose stack has that address; its link ends in a namespace of its own.
    fn real() -> std::io::Result<Service> {
        Service::real_with(&[])
    }

    /// The same with these settings.
    fn real_with(settings: &[&str]) -> std::io::Result<Service> {
        let mut service = Service { folder: TempDir::new(), process: None };
        service.begin_real(settings).map(|()| service)
    }

    /// Another one in place of the one that was there, which is killed.
    fn begin_real(&mut self, settings: &[&str]) -> std::io::Result<()> {
        self.end();
        let mut command = common::bypath(["netstack", "--name", "lab", "--link", "tap:bp0"]);
        command
            .args(["--net", "10.9.0.9/24", "--addr", &format!("{HERE}/24")])
            .args(settings)
            .env("BYPATH_NETSTACK_DIR", self.folder.path());
        let child = bypath_sys::netns::isolated(&mut command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut process = Process(child);
        let first = process.line();
        if !first.starts_with("service ") {
            let mut said = String::new();
            let errors = process.0.stderr.as_mut().expect("a pipe");
            std::io::Read::read_to_string(errors, &mut said)?;
            return Err(std::io::Error::other(first + &said));
        }
        self.process = Some(process);
        Ok(())
    }

    /// A service of the tests' own and a real one, where there can be one.
    fn both(name: &str) -> Vec<Service> {
        let real = match bypath::tun::Device::tap("probe%d").open() {
            Ok(_) => Some(Service::real().expect("bypath netstack")),
            Err(e) => {
                skip(name, &format!("by bypath netstack: no TAP devices: {e}"));
                None
            }
        };
        [Some(Service::start()), real].into_iter().flatten().collect()
    }

    fn begin(&mut self, script: &Path, arguments: &[&str]) {
        self.end();
        let _ = std::fs::remove_file(self.folder.join("lab"));
        let mut command = Command::new("python3");
        command.arg(script).arg(self.folder.path()).arg("lab").args(arguments).stdout(Stdio::piped());
        let child = bypath_sys::netns::isolated(&mut command).spawn().expect("python3");
        let process = self.process.insert(Process(child));
        assert_eq!(process.line(), "ready");
    }

    fn end(&mut self) {
        self.process = None;
    }

    /// `bypath run` of a program whose sockets are this service's, where `settings` do not say otherwise.
    fn run(&self, settings: &[&str], program: &[&str]) -> Command {
        let all = settings.iter().chain(&["--"]).chain(program);
        let mut command = run(all);
        command.env("BYPATH_NETSTACK_DIR", self.folder.path());
        command
    }

    fn program(&self, program: &[&str]) -> Command {
        self.run(&["--netstack=lab"], program)
    }

    fn output(&self, program: &[&str]) -> Output {
        self.program(program).output().expect("bypath")
    }

    /// Starts a program that prints a line when it is ready.
    fn serve(&self, program: &[&str]) -> (Process, String) {
        let child = self.program(program).stdout(Stdio::piped()).spawn().expect("bypath");
        let mut process = Process(child);
        let line = process.line();
        (process, line)
    }
}

/// Signals for urgent octets come to whom they come on the kernel, whenever that was said.
#[test]
fn urgent_octets_are_heard_of_as_on_the_kernel() {
    const NAME: &str = "urgent_octets_are_heard_of_as_on_the_kernel";
    if !is_possible(NAME, &[]) {
        return;
    }
    let calls = script("urgent.py");
    let mut kernel = Command::new("python3");
    kernel.arg(script("service.py")).args(["--run", "python3"]).arg(&calls).arg(HERE);
    let kernel = bypath_sys::netns::isolated(&mut kernel).output().expect("python3");
    let expected = common::stdout(&kernel);
    assert!(expected.contains("the accepted one"), "{expected}{}", common::stderr(&kernel));
    // The tests' own has none.
    for service in Service::both(NAME).iter().skip(1) {
        let served = service.output(&["python3", calls.to_str().expect("a plain path"), HERE]);
        assert_eq!(common::stdout(&served), expected, "{}", common::stderr(&served));
    }
}

/// Every call answers as on the kernel's own sockets.
#[test]
fn calls_answer_as_the_kernels() {
    if !is_possible("calls_answer_as_the_kernels", &[]) {
        return;
    }
    let calls = script("calls.py");
    let mut kernel = Command::new("python3");
    kernel.arg(script("service.py")).args(["--run", "python3"]).arg(&calls).arg(HERE);
    let kernel = bypath_sys::netns::isolated(&mut kernel).output().expect("python3");
    let (kernel, errors) = (common::stdout(&kernel), common::stderr(&kernel));
    assert!(kernel.contains("--: addresses") && !kernel.contains("failed:"), "{kernel}{errors}");
    for (service, which) in Service::both("calls_answer_as_the_kernels").iter().zip(["small", "real"]) {
        let served = service.output(&["python3", calls.to_str().expect("a plain path"), HERE]);
        let said = common::stdout(&served);
        let differ: Vec<_> = kernel.lines().zip(said.lines()).filter(|(k, s)| k != s).collect();
        assert!(kernel == said, "kernel, {which} service: {differ:#?}\n{said}{}", common::stderr(&served));
    }
}
