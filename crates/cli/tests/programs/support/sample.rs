//! Data to send: incompressible, without repetition, the same in every run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A file of `mib` MiB, made once per length and kept with the build.
///
/// What is proved with it needs 200 on a busy machine: before a connection is upgraded its kernel buffers may take 9 MB, and 95 %
/// of the bytes must go through the ring.
pub fn sample(mib: usize) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock().unwrap_or_else(|e| e.into_inner());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join(format!("sample-v1-{mib}M"));
    let len = mib << 20;
    if fs::metadata(&path).is_ok_and(|m| m.len() == len as u64) {
        return path;
    }
    fs::create_dir_all(&dir).expect("the temporary directory of the tests");
    // Renamed when complete: another test process may look for it at the same time.
    let unfinished = dir.join(format!("sample-v1-{mib}M.{}", std::process::id()));
    fs::write(&unfinished, bytes(len)).expect("writing the sample");
    fs::rename(&unfinished, &path).expect("renaming the sample");
    path
}

/// Xorshift (Marsaglia 2003, the 64-bit triple 13, 7, 17) from a fixed seed.
fn bytes(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Fails unless both files hold the same bytes, and says where they part.
#[track_caller]
pub fn assert_same(sent: &Path, received: &Path) {
    let a = fs::read(sent).unwrap_or_else(|e| panic!("{}: {e}", sent.display()));
    let b = fs::read(received).unwrap_or_else(|e| panic!("{}: {e}", received.display()));
    if a != b {
        let at = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
        panic!("sent {} bytes, received {}, first difference at byte {at}", a.len(), b.len());
    }
}
