//! Gives the library a SONAME and keeps it mapped for the life of the process.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbypath_preload.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
