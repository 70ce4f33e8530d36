//! The headers behind the BTH (IBTA 9.3).

use super::number::{be24, octets};
use super::{Extension, Qpn};
use crate::bytes::{be32, head, room};
use crate::error::{EmitError, ParseError, Part};
use core::fmt;

/// RDMA extended transport header: which memory of the responder (IBTA 9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address in the responder's region.
    pub address: u64,
    /// The key that the responder gave out.
    pub key: u32,
    /// Octets of the whole message, up to 2^31.
    pub length: u32,
}

/// Atomic extended transport header (IBTA 9.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of eight octets, a multiple of eight.
    pub address: u64,
    /// The key that the responder gave out.
    pub key: u32,
    /// What is stored, or added.
    pub swap_or_add: u64,
    /// What must be there for a swap.
    pub compare: u64,
}

/// Datagram extended transport header (IBTA 9.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// The key that the receiving queue pair has.
    pub qkey: u32,
    /// From which queue pair.
    pub source: Qpn,
}

/// Why a request was refused (IBTA 9.7.5.2.8, table 58).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Nak {
    /// A packet is missing: to be sent again from the acknowledgement's PSN on.
    SequenceError = 0,
    /// The request cannot be: its opcode, its place, its length.
    InvalidRequest = 1,
    /// The key, the range or the rights of the memory do not fit.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperation = 3,
    /// Of reliable datagrams only.
    InvalidRd = 4,
}

impl fmt::Display for Nak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Nak::SequenceError => "PSN sequence error",
            Nak::InvalidRequest => "invalid request",
            Nak::RemoteAccess => "remote access error",
            Nak::RemoteOperation => "remote operational error",
            Nak::InvalidRd => "invalid RD request",
        })
    }
}

/// What an acknowledgement says (IBTA 9.7.5.2.1, table 57).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Done; the encoded credits are for requests to come, [`Syndrome::NO_CREDITS`] if there is no such account.
    Ack {
        /// 0 to 31.
        credits: u8,
    },
    /// No receive buffer is there: again after [`rnr_ns`] of this code.
    NotReady {
        /// 0 to 31.
        timer: u8,
    },
    /// Refused.
    Nak(Nak),
}

impl Syndrome {
    /// Nothing is said about credits.
    pub const NO_CREDITS: u8 = 31;
    /// Done.
    pub const DONE: Syndrome = Syndrome::Ack { credits: Syndrome::NO_CREDITS };

    /// From the field; none for reserved values. The uppermost bit is reserved and not looked at.
    pub const fn from_octet(octet: u8) -> Option<Syndrome> {
        let value = octet & 31;
        Some(match octet >> 5 & 3 {
            0 => Syndrome::Ack { credits: value },
            1 => Syndrome::NotReady { timer: value },
            3 => Syndrome::Nak(match value {
                0 => Nak::SequenceError,
                1 => Nak::InvalidRequest,
                2 => Nak::RemoteAccess,
                3 => Nak::RemoteOperation,
                4 => Nak::InvalidRd,
                _ => return None,
            }),
            _ => return None,
        })
    }

    /// The field's value; of numbers only the lower five bits.
    pub const fn octet(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 31,
            Syndrome::NotReady { timer } => timer & 31 | 0x20,
            Syndrome::Nak(nak) => nak as u8 | 0x60,
        }
    }
}

/// How long a "not ready" with this code asks to wait, in ns (IBTA 9.7.5.2.8, table 59).
pub const fn rnr_ns(code: u8) -> u64 {
    // In units of 10 us; code 0 is the longest.
    const UNITS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    UNITS[(code & 31) as usize] as u64 * 10_000
}

/// Acknowledgement extended transport header (IBTA 9.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// What it says.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub msn: u32,
}

/// The extended headers of a packet, as its opcode asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    /// None.
    None,
    /// Immediate data.
    Immediate(u32),
    /// The key to be invalidated (IETH).
    Invalidate(u32),
    /// An address, a key and a length.
    Reth(Reth),
    /// The same and immediate data.
    RethImmediate(Reth, u32),
    /// An atomic operation.
    Atomic(AtomicEth),
    /// An acknowledgement.
    Aeth(Aeth),
    /// An acknowledgement and what was there before (AtomicAckETH).
    AtomicAck(Aeth, u64),
    /// Q_Key and source.
    Deth(Deth),
    /// The same and immediate data.
    DethImmediate(Deth, u32),
    /// The reserved octets of a CNP, which are zero and not looked at.
    Congestion,
}

macro_rules! be64 {
    ($bytes:expr, $at:literal) => {
        u64::from_be_bytes([
            $bytes[$at],
            $bytes[$at + 1],
            $bytes[$at + 2],
            $bytes[$at + 3],
            $bytes[$at + 4],
            $bytes[$at + 5],
            $bytes[$at + 6],
            $bytes[$at + 7],
        ])
    };
}

impl Reth {
    fn read(b: &[u8; 16]) -> Reth {
        Reth { address: be64!(b, 0), key: be32!(b, 8), length: be32!(b, 12) }
    }

    fn write(&self, b: &mut [u8]) {
        b[0..8].copy_from_slice(&self.address.to_be_bytes());
        b[8..12].copy_from_slice(&self.key.to_be_bytes());
        b[12..16].copy_from_slice(&self.length.to_be_bytes());
    }
}

impl Aeth {
    fn read(b: &[u8; 4]) -> Result<Aeth, ParseError> {
        let syndrome = Syndrome::from_octet(b[0]).ok_or(ParseError::Field {
            part: Part::Aeth,
            field: "syndrome",
            found: b[0].into(),
        })?;
        Ok(Aeth { syndrome, msn: be24!(b, 1) })
    }

    fn write(&self, b: &mut [u8]) {
        b[0] = self.syndrome.octet();
        b[1..4].copy_from_slice(&octets(self.msn));
    }
}

impl Deth {
    fn read(b: &[u8; 8]) -> Deth {
        Deth { qkey: be32!(b, 0), source: Qpn::new(be24!(b, 5)) }
    }

    fn write(&self, b: &mut [u8]) {
        b[0..4].copy_from_slice(&self.qkey.to_be_bytes());
        b[4] = 0;
        b[5..8].copy_from_slice(&octets(self.source.value()));
    }
}

impl Extended {
    /// Which headers these are.
    pub const fn kind(&self) -> Extension {
        match self {
            Extended::None => Extension::None,
            Extended::Immediate(_) => Extension::Immediate,
            Extended::Invalidate(_) => Extension::Invalidate,
            Extended::Reth(_) => Extension::Reth,
            Extended::RethImmediate(..) => Extension::RethImmediate,
            Extended::Atomic(_) => Extension::Atomic,
            Extended::Aeth(_) => Extension::Aeth,
            Extended::AtomicAck(..) => Extension::AtomicAck,
            Extended::Deth(_) => Extension::Deth,
            Extended::DethImmediate(..) => Extension::DethImmediate,
            Extended::Congestion => Extension::Congestion,
        }
    }

    /// Immediate data, where there is some.
    pub const fn immediate(&self) -> Option<u32> {
        match *self {
            Extended::Immediate(data)
            | Extended::RethImmediate(_, data)
            | Extended::DethImmediate(_, data) => Some(data),
            _ => None,
        }
    }

    /// Address, key and length, where they are told.
    pub const fn reth(&self) -> Option<Reth> {
        match *self {
            Extended::Reth(reth) | Extended::RethImmediate(reth, _) => Some(reth),
            _ => None,
        }
    }

    /// The acknowledgement, where there is one.
    pub const fn aeth(&self) -> Option<Aeth> {
        match *self {
            Extended::Aeth(aeth) | Extended::AtomicAck(aeth, _) => Some(aeth),
            _ => None,
        }
    }

    /// Q_Key and source, where they are told.
    pub const fn deth(&self) -> Option<Deth> {
        match *self {
            Extended::Deth(deth) | Extended::DethImmediate(deth, _) => Some(deth),
            _ => None,
        }
    }

    /// Headers of a kind, and what follows.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Field`] for a reserved syndrome.
    pub fn parse(kind: Extension, bytes: &[u8]) -> Result<(Extended, &[u8]), ParseError> {
        let extended = match kind {
            Extension::None => Extended::None,
            Extension::Immediate => {
                let b: &[u8; 4] = head(bytes, Part::ImmDt)?;
                Extended::Immediate(be32!(b, 0))
            }
            Extension::Invalidate => {
                let b: &[u8; 4] = head(bytes, Part::Ieth)?;
                Extended::Invalidate(be32!(b, 0))
            }
            Extension::Reth => Extended::Reth(Reth::read(head(bytes, Part::Reth)?)),
            Extension::RethImmediate => {
                let b: &[u8; 20] = head(bytes, Part::Reth)?;
                Extended::RethImmediate(Reth::read(head(bytes, Part::Reth)?), be32!(b, 16))
            }
            Extension::Atomic => {
                let b: &[u8; 28] = head(bytes, Part::AtomicEth)?;
                Extended::Atomic(AtomicEth {
                    address: be64!(b, 0),
                    key: be32!(b, 8),
                    swap_or_add: be64!(b, 12),
                    compare: be64!(b, 20),
                })
            }
            Extension::Aeth => Extended::Aeth(Aeth::read(head(bytes, Part::Aeth)?)?),
            Extension::AtomicAck => {
                let b: &[u8; 12] = head(bytes, Part::AtomicAckEth)?;
                Extended::AtomicAck(Aeth::read(head(bytes, Part::Aeth)?)?, be64!(b, 4))
            }
            Extension::Deth => Extended::Deth(Deth::read(head(bytes, Part::Deth)?)),
            Extension::DethImmediate => {
                let b: &[u8; 12] = head(bytes, Part::Deth)?;
                Extended::DethImmediate(Deth::read(head(bytes, Part::Deth)?), be32!(b, 8))
            }
            Extension::Congestion => {
                let _: &[u8; 16] = head(bytes, Part::Cnp)?;
                Extended::Congestion
            }
        };
        Ok((extended, bytes.get(kind.len()..).unwrap_or(&[])))
    }

    /// Writes the headers to the front of the buffer; answers their octets.
    ///
    /// # Errors
    /// [`EmitError::Room`].
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, EmitError> {
        let len = self.kind().len();
        let b = room(buffer, len, Part::Bth)?;
        match self {
            Extended::None => {}
            Extended::Immediate(word) | Extended::Invalidate(word) => b.copy_from_slice(&word.to_be_bytes()),
            Extended::Reth(reth) => reth.write(b),
            Extended::RethImmediate(reth, data) => {
                reth.write(b);
                b[16..20].copy_from_slice(&data.to_be_bytes());
            }
            Extended::Atomic(atomic) => {
                b[0..8].copy_from_slice(&atomic.address.to_be_bytes());
                b[8..12].copy_from_slice(&atomic.key.to_be_bytes());
                b[12..20].copy_from_slice(&atomic.swap_or_add.to_be_bytes());
                b[20..28].copy_from_slice(&atomic.compare.to_be_bytes());
            }
            Extended::Aeth(aeth) => aeth.write(b),
            Extended::AtomicAck(aeth, original) => {
                aeth.write(b);
                b[4..12].copy_from_slice(&original.to_be_bytes());
            }
            Extended::Deth(deth) => deth.write(b),
            Extended::DethImmediate(deth, data) => {
                deth.write(b);
                b[8..12].copy_from_slice(&data.to_be_bytes());
            }
            Extended::Congestion => b.fill(0),
        }
        Ok(len)
    }
}
