//! What `bypath roce send` and `recv` share: roads for packets, the conversation in front of a transfer.

pub mod engine; //  a device on a road, with the datagrams of the conversation
pub mod road; //    ways for IP packets: a UDP socket, an interface, a TUN device
pub mod session; // what the two ends say to each other
