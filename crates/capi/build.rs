//! Gives the library its SONAME, and keeps it mapped once it is loaded: a thread of it may still be closing sockets when
//! somebody calls dlclose.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbypath.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
