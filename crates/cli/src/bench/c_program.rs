//! Small C programs of the bench, compiled when it begins.

use super::context::Context;
use std::path::PathBuf;
use std::process::Command;

/// Compiles one; the error says why there is none.
pub fn compile(context: &Context, name: &str, text: &str) -> Result<PathBuf, String> {
    compile_with(context, name, text, &[])
}

/// Compiles one with further arguments of the compiler.
pub fn compile_with(context: &Context, name: &str, text: &str, args: &[&str]) -> Result<PathBuf, String> {
    let program = context.scratch.path().join(name);
    let source = program.with_extension("c");
    std::fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut command = Command::new("cc");
    command.arg("-O2").args(args).arg("-o").arg(&program).arg(&source);
    match command.output() {
        Err(e) => Err(format!("no C compiler `cc` ({e}); Debian package: gcc")),
        Ok(out) if !out.status.success() => {
            Err(format!("cc failed: {}", String::from_utf8_lossy(&out.stderr).trim()))
        }
        Ok(_) => Ok(program),
    }
}
