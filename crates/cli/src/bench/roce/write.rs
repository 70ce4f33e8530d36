//! RDMA WRITE between two processes: `bypath roce send` and `recv`, as raw frames over a veth pair.

use super::figure;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The ends of the pair.
pub const LEFT: &str = "left";
pub const RIGHT: &str = "right";
/// Of both.
pub const MTU: u32 = 9000;
/// Addresses that no kernel has (RFC 2544: networks for benchmarks).
const ADDRESSES: [&str; 2] = ["198.18.0.1", "198.18.0.2"];
/// Octets that are written.
const OCTETS: usize = 256 << 20;
/// The same of a quick bench.
const QUICK: usize = 32 << 20;

/// What is written.
pub fn file(context: &Context) -> Result<PathBuf, String> {
    let path = context.scratch.fresh("octets");
    let octets: Vec<u8> =
        (0..if context.quick { QUICK } else { OCTETS }).map(|n| (n ^ n >> 8) as u8).collect();
    std::fs::write(&path, octets).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    Ok(path)
}

/// With one path MTU.
pub struct Write {
    pub size: u32,
    pub file: PathBuf,
}

impl Job for Write {
    fn title(&self) -> String {
        format!("rdma-write {} B", self.size)
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("rdma-write", "raw", Some("veth"), self.size, "bytes_per_s")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("cannot start bypath roce: {e}"));
        let tool = |what: &str, iface: &str, bind: &str| {
            let mut command = Command::new(&context.exe);
            command.args(["roce", what, "--json", "--iface", iface, "--bind", bind]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let mut receiver = tool("recv", RIGHT, ADDRESSES[1]);
        let receiver =
            receiver.args(["--output", "/dev/null", "--wait", "10s", "--prepare"]).spawn().map_err(failed)?;
        // It asks until the receiver is there.
        let mut sender = tool("send", LEFT, ADDRESSES[0]);
        sender.arg(&self.file).args(["--to", ADDRESSES[1], "--op", "write", "--mtu", &self.size.to_string()]);
        let sent = sender.output().map_err(failed);
        let received = receiver.wait_with_output().map_err(failed)?;
        let sent = sent?;
        let rate = rate(&received).filter(|_| sent.status.success()).ok_or_else(|| {
            let errors = [sent.stderr, received.stderr].concat();
            Trouble::Failed(String::from_utf8_lossy(&errors).trim().replace('\n', "; "))
        })?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Value(rate))).collect();
        Ok(Outcome { figures, note: None })
    }
}

/// What the receiver counted, if it has everything.
fn rate(received: &Output) -> Option<f64> {
    let reports: serde_json::Value = serde_json::from_slice(&received.stdout).ok()?;
    let report = reports.get(0)?;
    report.get("octets_per_s")?.as_f64().filter(|_| report.get("ok") == Some(&true.into()))
}
