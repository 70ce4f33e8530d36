//! Gives the library a SONAME, keeps it mapped for the life of the process, and binds its own calls between
//! interposed functions to itself, whatever else the process loads.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libbypath_preload.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
