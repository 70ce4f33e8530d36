//! The numbers by which Linux tells programs what a stack knows: for whoever gives sockets of the stack the faces of the kernel's.

pub mod errno;
pub mod info;
