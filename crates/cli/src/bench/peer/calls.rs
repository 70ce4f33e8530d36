//! System calls on descriptors that are not TCP sockets: what do they cost, with and without `bypath run`?

use super::clock::{cpu_ns, now_ns};
use super::{PeerArgs, PeerResult};
use nix::errno::Errno;
use nix::fcntl::{F_GETFL, OFlag, fcntl};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

const BATCH: u32 = 500;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    let mut null = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    let (empty, _writer) = nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)?;
    let (socket, _other) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;

    let mut result = PeerResult::default();
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let each = args.seconds / 4.0;
    let mut add = |name: &str, call: &mut dyn FnMut() -> io::Result<()>| {
        let (ns, calls) = ns_per_call(each, call)?;
        result.figures.insert(name.into(), ns);
        result.received += calls;
        io::Result::Ok(())
    };
    add("write-devnull", &mut || null.write(&[0]).map(drop))?;
    add("read-empty-pipe", &mut || match nix::unistd::read(&empty, &mut [0]) {
        Err(Errno::EAGAIN) => Ok(()),
        other => Err(io::Error::other(format!("read of an empty pipe: {other:?}"))),
    })?;
    add("recv-empty-unix", &mut || match (&socket).read(&mut [0]) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
        other => Err(io::Error::other(format!("recv of an empty socket: {other:?}"))),
    })?;
    add("fcntl-getfl", &mut || fcntl(&empty, F_GETFL).map(drop).map_err(Into::into))?;
    result.elapsed_ns = now_ns() - start;
    result.cpu_ns = cpu_ns() - cpu_before;
    Ok(result)
}

/// Median over batches.
fn ns_per_call(seconds: f64, call: &mut dyn FnMut() -> io::Result<()>) -> io::Result<(f64, u64)> {
    let mut batches = Vec::new();
    let until = now_ns() + (seconds * 1e9) as u64;
    while now_ns() < until || batches.len() < 3 {
        let before = now_ns();
        for _ in 0..BATCH {
            call()?;
        }
        batches.push((now_ns() - before) as f64 / f64::from(BATCH));
    }
    batches.sort_by(f64::total_cmp);
    Ok((batches[batches.len() / 2], batches.len() as u64 * u64::from(BATCH)))
}
