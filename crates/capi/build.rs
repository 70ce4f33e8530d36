//! Gives the library its SONAME, and keeps it mapped once it is loaded: a thread of it may still be closing sockets when
//! somebody calls dlclose.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbypath.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Not an error: `cargo build --release` of the whole workspace is no mistake.
    if std::env::var("CARGO_CFG_PANIC").is_ok_and(|how| how == "abort") {
        println!(
            "cargo::warning=built so that a mistake in the library ends the program; \
             `make build-c` or `--profile capi` makes it an error of the call"
        );
    }
}
