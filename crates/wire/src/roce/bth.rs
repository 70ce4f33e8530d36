//! The base transport header (IBTA 9.2).

use super::number::{be24, octets};
use super::{Opcode, Psn, Qpn};
use crate::bytes::{be16, head, room_of};
use crate::error::{EmitError, ParseError, Part};

/// Octets of a header.
pub const HEADER_LEN: usize = 12;
/// The partition that everybody is a full member of.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// The base transport header. How many octets of padding there are is no field: it follows from the payload. The version
/// is 0, and reserved bits are written as 0 and not looked at (IBTA 9.2.9, 9.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// What it is.
    pub opcode: Opcode,
    /// Solicited event: the receiver is to be woken.
    pub solicited: bool,
    /// State of migration: true for a path that is migrated, as RoCE always says.
    pub migrated: bool,
    /// Partition key.
    pub pkey: u16,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification: set in a CNP.
    pub becn: bool,
    /// To which queue pair.
    pub destination: Qpn,
    /// An acknowledgement is asked for.
    pub ack_request: bool,
    /// Which packet.
    pub psn: Psn,
}

impl Bth {
    /// To a queue pair of the default partition, no acknowledgement asked for.
    pub const fn new(opcode: Opcode, destination: Qpn, psn: Psn) -> Bth {
        Bth {
            opcode,
            solicited: false,
            migrated: true,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            destination,
            ack_request: false,
            psn,
        }
    }

    /// The header, how many octets of padding it announces, and what follows.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Version`]; [`ParseError::Field`] for an opcode that is reserved or not
    /// known.
    pub fn parse(bytes: &[u8]) -> Result<(Bth, usize, &[u8]), ParseError> {
        let fixed: &[u8; HEADER_LEN] = head(bytes, Part::Bth)?;
        let version = fixed[1] & 15;
        if version != 0 {
            return Err(ParseError::Version { part: Part::Bth, found: version });
        }
        let opcode = Opcode::from_octet(fixed[0]).ok_or(ParseError::Field {
            part: Part::Bth,
            field: "opcode",
            found: fixed[0].into(),
        })?;
        let bth = Bth {
            opcode,
            solicited: fixed[1] & 0x80 != 0,
            migrated: fixed[1] & 0x40 != 0,
            pkey: be16!(fixed, 2),
            fecn: fixed[4] & 0x80 != 0,
            becn: fixed[4] & 0x40 != 0,
            destination: Qpn::new(be24!(fixed, 5)),
            ack_request: fixed[8] & 0x80 != 0,
            psn: Psn::new(be24!(fixed, 9)),
        };
        Ok((bth, (fixed[1] >> 4 & 3) as usize, &bytes[HEADER_LEN..]))
    }

    /// Writes the header for a payload that is padded with `pad` octets, 0 to 3; answers its [`HEADER_LEN`].
    ///
    /// # Errors
    /// [`EmitError::Room`]; [`EmitError::Field`] for more padding.
    pub fn emit(&self, buffer: &mut [u8], pad: usize) -> Result<usize, EmitError> {
        crate::bytes::fits(Part::Bth, "pad count", pad as u32, 3)?;
        let room: &mut [u8; HEADER_LEN] = room_of(buffer, Part::Bth)?;
        room[0] = self.opcode.octet();
        room[1] = (self.solicited as u8) << 7 | (self.migrated as u8) << 6 | (pad as u8) << 4;
        room[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        room[4] = (self.fecn as u8) << 7 | (self.becn as u8) << 6;
        room[5..8].copy_from_slice(&octets(self.destination.value()));
        room[8] = (self.ack_request as u8) << 7;
        room[9..12].copy_from_slice(&octets(self.psn.value()));
        Ok(HEADER_LEN)
    }
}
