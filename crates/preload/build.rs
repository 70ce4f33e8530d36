//! Gives the library a SONAME, keeps it mapped for the life of the process, and binds its own calls between
//! interposed functions to itself, whatever else the process loads.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbypath_preload.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Where panics abort, the unwinder only prints backtraces: linked in, it spares every program under Bypath the
    // loading of libgcc_s. Where they unwind, pthread_cancel and our frames must share the C library's one.
    if std::env::var("CARGO_CFG_PANIC").as_deref() == Ok("abort") {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
