//! Go: its programs make their own system calls, static (as usual) or with cgo. They stay on the kernel, whatever is at
//! the other end, and `bypath run` says so of a static one.

use crate::support::{Process, Program, Scene, Way, ring_required, ways};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

ways! {
    // Both sides are Go, one or both are started by `bypath run`.
    static_program needs ["go"] => |scene| echo(scene, STATIC, STATIC);
    static_server_and_python needs ["go", "python3"] => |scene| echo(scene, STATIC, PYTHON);
    python_and_static_client needs ["go", "python3"] => |scene| echo(scene, PYTHON, STATIC);
    with_cgo needs ["go", "cc"] => |scene| echo(scene, CGO, CGO);
    cgo_server_and_python needs ["go", "cc", "python3"] => |scene| echo(scene, CGO, PYTHON);
    python_and_cgo_client needs ["go", "cc", "python3"] => |scene| echo(scene, PYTHON, CGO);
    // Go in the middle.
    relay_between_pythons needs ["go", "python3"] => relay;
}

const STATIC: &str = "static";
const CGO: &str = "cgo";
const PYTHON: &str = "python";

/// The program, built once per test process; Go's cache is kept with the build.
fn program(kind: &str) -> PathBuf {
    static BUILT: [OnceLock<PathBuf>; 2] = [OnceLock::new(), OnceLock::new()];
    let cgo = kind == CGO;
    let build = || {
        let scene = Scene::new(Way::Both);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let file = directory.join(format!("echo-{kind}-{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/scripts/echo.go");
        let go = scene.plain("go").args("build -o").arg(&file).arg(source).env("GOFLAGS", "-mod=mod");
        let go = go.env("GOCACHE", directory.join("go")).env("GOPATH", directory.join("go-path"));
        let go = go.env("GO111MODULE", "auto").env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
        go.env("CGO_ENABLED", if cgo { "1" } else { "0" }).finish();
        file
    };
    BUILT[usize::from(cgo)].get_or_init(build).clone()
}

fn server(scene: &Scene, kind: &str) -> (Process, u16) {
    let server = match kind {
        PYTHON => scene.server("python3").script("echo_server.py").arg("threads"),
        kind => go(scene.server(path(&program(kind))), kind).arg("server"),
    };
    let mut server = server.start();
    let port = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    (server, port)
}

fn path(program: &Path) -> &str {
    program.to_str().expect("the build's directory has a plain name")
}

/// With the default, `fallback`, nothing is said.
fn go<'a>(program: Program<'a>, kind: &str) -> Program<'a> {
    if kind == STATIC { program.env("BYPATH_ON_UNSUPPORTED", "warn") } else { program }
}

fn echo(scene: &Scene, at_server: &str, at_client: &str) {
    let (server, port) = server(scene, at_server);
    let client = match at_client {
        PYTHON => scene.client("python3").script("echo_client.py").arg("threads"),
        kind => go(scene.client(path(&program(kind))), kind).arg("client"),
    };
    let report = client.arg(port.to_string()).finish();
    let served = server.stop(Signal::TERM);
    let way = scene.way();
    for (kind, outcome, under) in
        [(at_server, &served, way != Way::OnlyClient), (at_client, &report, way != Way::OnlyServer)]
    {
        let told =
            outcome.stderr.contains("runs without Bypath") && outcome.stderr.contains("statically linked");
        assert_eq!(told, kind == STATIC && under && launched(), "{kind}: {}", outcome.stderr);
    }
    let payload = report.number("payload ");
    // What a Go program did is not counted: it makes its system calls itself.
    let python_is_followed =
        (at_server == PYTHON && way != Way::OnlyClient) || (at_client == PYTHON && way != Way::OnlyServer);
    if ring_required() {
        let totals = scene.totals_of_the_preloaded();
        if python_is_followed {
            totals.assert_kernel_only(payload);
        } else {
            assert_eq!(totals.connections, 0, "a Go program was followed: {totals:#?}");
        }
    }
}

/// Whether `bypath run` starts the programs, which could tell; the loader says nothing about a static program.
fn launched() -> bool {
    std::env::var_os("BYPATH_TEST_LAUNCH").is_none_or(|v| v != "preload")
}

/// Python to Go to Python, with splice in the middle.
fn relay(scene: &Scene) {
    let (server, port) = server(scene, PYTHON);
    let mut relay = scene.server(path(&program(STATIC))).arg("relay").arg(port.to_string()).start();
    let port: u16 = relay.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let client = scene.client("python3").script("echo_client.py").args("selectors").arg(port.to_string());
    let payload = client.finish().number("payload ");
    relay.stop(Signal::TERM);
    server.stop(Signal::TERM);
    if ring_required() {
        scene.totals_of_the_preloaded().assert_kernel_only(payload);
    }
}
