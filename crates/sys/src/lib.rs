//! Every system call and every mapping of Bypath, one file per kernel object.

pub mod user;

pub use rustix::io::Errno;
