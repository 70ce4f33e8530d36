//! `bypath tun`: files as datagrams whose headers are made here, through a TUN device; and the same through an ordinary
//! socket, for comparison. docs/tun.md has the protocol.

mod carrier;
mod files;
mod header;
mod recv;
mod send;
mod stream;

use crate::output::Outcome;
use bypath::tun::{Checksum, Mode};
use clap::Subcommand;
use std::net::IpAddr;

/// Arguments of `bypath tun`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Send a file, a directory of files, or standard input as datagrams
    Send(send::Args),
    /// Receive what `bypath tun send` sends
    Recv(recv::Args),
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Send(args) => send::run(&args),
        Command::Recv(args) => recv::run(&args),
    }
}

/// Which way datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    // Explained where the option is.
    Tun,
    Socket,
}

/// How packets are handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum How {
    /// Copied together, `write`
    Assemble,
    /// Left where they are, `writev`
    Writev,
    /// Up to 64 datagrams with one call
    Super,
}

impl From<How> for Mode {
    fn from(how: How) -> Mode {
        match how {
            How::Assemble => Mode::Assemble,
            How::Writev => Mode::Pieces,
            How::Super => Mode::Super,
        }
    }
}

/// Who computes checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Who {
    /// The kernel, if anybody must
    Kernel,
    /// This program
    Own,
    /// Nobody (IPv4 only)
    None,
}

impl From<Who> for Checksum {
    fn from(who: Who) -> Checksum {
        match who {
            Who::Kernel => Checksum::Kernel,
            Who::Own => Checksum::Own,
            Who::None => Checksum::Omitted,
        }
    }
}

/// The device, and how packets are made.
#[derive(Clone, Debug, clap::Args)]
pub struct Link {
    /// Through a TUN device of our own, or through an ordinary socket
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Way::Tun)]
    pub via: Way,

    /// Name of the device; %d stands for the first number that is free
    #[arg(long, value_name = "NAME", default_value = "tun%d")]
    pub device: String,

    /// The device exists, and persists (ip tuntap add NAME mode tun user $USER)
    #[arg(long)]
    pub attach: bool,

    /// The kernel's end of the device, with the length of the network's prefix
    #[arg(long, value_name = "ADDRESS/PREFIX", value_parser = network)]
    pub net: Option<(IpAddr, u8)>,

    /// MTU of the device [default: 1500, or what an existing one has]
    #[arg(long, value_name = "OCTETS")]
    pub mtu: Option<u32>,

    /// How packets are handed to the kernel [default: super where the kernel has it]
    #[arg(long, value_name = "HOW", value_enum)]
    pub mode: Option<How>,

    /// Who computes checksums [default: the kernel, where it offers to]
    #[arg(long, value_name = "WHO", value_enum)]
    pub checksum: Option<Who>,

    /// Routers that a packet may pass
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: u8,

    /// Differentiated services code point, 0 to 63
    #[arg(long, value_name = "CODE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=63))]
    pub dscp: u8,

    /// Datagrams must not be cut into fragments
    #[arg(long)]
    pub dont_fragment: bool,
}

/// An address with a prefix as it is typed.
///
/// # Errors
/// What is expected.
pub fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let parts = text.split_once('/').and_then(|(ip, prefix)| Some((ip.parse().ok()?, prefix.parse().ok()?)));
    match parts {
        Some((ip @ IpAddr::V4(own), prefix @ 1..=30)) => {
            let hosts = u32::MAX >> prefix;
            match own.to_bits() & hosts {
                0 => Err(format!("{ip} is the network itself; give the kernel the first host, {}", next(ip))),
                host if host == hosts => {
                    Err(format!("{ip} is the network's broadcast address; give a host's"))
                }
                _ => Ok((ip, prefix)),
            }
        }
        Some((ip @ IpAddr::V6(_), prefix @ 1..=126)) => Ok((ip, prefix)),
        _ => {
            Err("expected an address and a prefix with room for two hosts, such as 10.9.0.1/24 or fd09::1/64"
                .into())
        }
    }
}

/// The own end beside the kernel's, where none is named: the next host, or the one before if there is none.
pub fn beside((ip, prefix): (IpAddr, u8)) -> IpAddr {
    let IpAddr::V4(own) = ip else { return next(ip) };
    let hosts = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    if own.to_bits() & hosts < hosts.saturating_sub(1) {
        return next(ip);
    }
    std::net::Ipv4Addr::from_bits(own.to_bits().wrapping_sub(1)).into()
}

/// The next address.
pub fn next(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(a) => std::net::Ipv4Addr::from_bits(a.to_bits().wrapping_add(1)).into(),
        IpAddr::V6(a) => std::net::Ipv6Addr::from_bits(a.to_bits().wrapping_add(1)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_room_for_two() {
        assert_eq!(network("10.9.0.1/24"), Ok(("10.9.0.1".parse().unwrap(), 24)));
        assert_eq!(network("fd09::1/64"), Ok(("fd09::1".parse().unwrap(), 64)));
        for wrong in ["10.9.0.1", "10.9.0.1/31", "10.9.0.1/x", "x/24", "fd09::1/127", "10.9.0.1/0"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
        for (wrong, why) in
            [("10.9.0.0/24", "10.9.0.1"), ("10.9.0.255/24", "broadcast"), ("10.9.0.7/30", "broadcast")]
        {
            assert!(network(wrong).is_err_and(|e| e.contains(why)), "{wrong}");
        }
        for (kernel, own) in
            [("10.9.0.1/24", "10.9.0.2"), ("10.9.0.254/24", "10.9.0.253"), ("fd09::1/64", "fd09::2")]
        {
            assert_eq!(beside(network(kernel).unwrap()), own.parse::<IpAddr>().unwrap());
        }
        assert_eq!(next("10.9.0.255".parse().unwrap()), "10.9.1.0".parse::<IpAddr>().unwrap());
        assert_eq!(next("fd09::1".parse().unwrap()), "fd09::2".parse::<IpAddr>().unwrap());
    }
}
