//! What a packet asks for or answers, and which headers and how much payload follow (IBTA 9.2, tables 35 and 36).

use core::fmt;

/// The transport service: the upper three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (annex A17): one opcode of its own.
    Cnp,
}

/// The operation, and which packet of it this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// SEND, first of several packets.
    SendFirst = 0x00,
    /// SEND, in the middle.
    SendMiddle = 0x01,
    /// SEND, last of several.
    SendLast = 0x02,
    /// SEND, last of several, with immediate data.
    SendLastImmediate = 0x03,
    /// SEND in one packet.
    SendOnly = 0x04,
    /// SEND in one packet, with immediate data.
    SendOnlyImmediate = 0x05,
    /// RDMA WRITE, first of several packets.
    WriteFirst = 0x06,
    /// RDMA WRITE, in the middle.
    WriteMiddle = 0x07,
    /// RDMA WRITE, last of several.
    WriteLast = 0x08,
    /// RDMA WRITE, last of several, with immediate data.
    WriteLastImmediate = 0x09,
    /// RDMA WRITE in one packet.
    WriteOnly = 0x0a,
    /// RDMA WRITE in one packet, with immediate data.
    WriteOnlyImmediate = 0x0b,
    /// RDMA READ, the request.
    ReadRequest = 0x0c,
    /// RDMA READ, first of several answers.
    ReadFirst = 0x0d,
    /// RDMA READ, an answer in the middle.
    ReadMiddle = 0x0e,
    /// RDMA READ, last of several answers.
    ReadLast = 0x0f,
    /// RDMA READ, the only answer.
    ReadOnly = 0x10,
    /// Acknowledgement, positive or negative.
    Acknowledge = 0x11,
    /// Answer to an atomic operation.
    AtomicAcknowledge = 0x12,
    /// Compare and swap.
    CompareSwap = 0x13,
    /// Fetch and add.
    FetchAdd = 0x14,
    /// SEND, last of several, invalidating a key.
    SendLastInvalidate = 0x16,
    /// SEND in one packet, invalidating a key.
    SendOnlyInvalidate = 0x17,
    /// Congestion notification packet.
    Congestion = 0x01 | 0x80,
}

/// Which extended headers follow the BTH, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// None.
    None,
    /// Immediate data.
    Immediate,
    /// A key to be invalidated.
    Invalidate,
    /// An address, a key and a length.
    Reth,
    /// The same and immediate data.
    RethImmediate,
    /// An atomic operation.
    Atomic,
    /// An acknowledgement.
    Aeth,
    /// An acknowledgement and what was there before an atomic operation.
    AtomicAck,
    /// Q_Key and source of a datagram.
    Deth,
    /// The same and immediate data.
    DethImmediate,
    /// Sixteen reserved octets.
    Congestion,
}

impl Extension {
    /// Octets of these headers.
    pub const fn len(self) -> usize {
        match self {
            Extension::None => 0,
            Extension::Immediate | Extension::Invalidate | Extension::Aeth => 4,
            Extension::Deth => 8,
            Extension::AtomicAck | Extension::DethImmediate => 12,
            Extension::Reth | Extension::Congestion => 16,
            Extension::RethImmediate => 20,
            Extension::Atomic => 28,
        }
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        matches!(self, Extension::None)
    }
}

/// How much payload an opcode allows, of a path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// None.
    None,
    /// A whole path MTU, hence no padding.
    Whole,
    /// At least one octet.
    Some,
    /// Anything up to a path MTU.
    Any,
}

impl Operation {
    const ALL: [Operation; 24] = {
        use Operation::*;
        [
            SendFirst,
            SendMiddle,
            SendLast,
            SendLastImmediate,
            SendOnly,
            SendOnlyImmediate,
            WriteFirst,
            WriteMiddle,
            WriteLast,
            WriteLastImmediate,
            WriteOnly,
            WriteOnlyImmediate,
            ReadRequest,
            ReadFirst,
            ReadMiddle,
            ReadLast,
            ReadOnly,
            Acknowledge,
            AtomicAcknowledge,
            CompareSwap,
            FetchAdd,
            SendLastInvalidate,
            SendOnlyInvalidate,
            Congestion,
        ]
    };

    /// Which headers follow the BTH.
    pub const fn extension(self, service: Service) -> Extension {
        use Operation::*;
        match self {
            SendOnly if matches!(service, Service::Ud) => Extension::Deth,
            SendOnlyImmediate if matches!(service, Service::Ud) => Extension::DethImmediate,
            SendFirst | SendMiddle | SendLast | SendOnly | WriteMiddle | WriteLast | ReadMiddle => {
                Extension::None
            }
            SendLastImmediate | SendOnlyImmediate | WriteLastImmediate => Extension::Immediate,
            SendLastInvalidate | SendOnlyInvalidate => Extension::Invalidate,
            WriteFirst | WriteOnly | ReadRequest => Extension::Reth,
            WriteOnlyImmediate => Extension::RethImmediate,
            ReadFirst | ReadLast | ReadOnly | Acknowledge => Extension::Aeth,
            AtomicAcknowledge => Extension::AtomicAck,
            CompareSwap | FetchAdd => Extension::Atomic,
            Congestion => Extension::Congestion,
        }
    }

    /// How much payload it allows.
    pub const fn amount(self) -> Amount {
        use Operation::*;
        match self {
            SendFirst | SendMiddle | WriteFirst | WriteMiddle | ReadFirst | ReadMiddle => Amount::Whole,
            SendLast | SendLastImmediate | SendLastInvalidate | WriteLast | WriteLastImmediate | ReadLast => {
                Amount::Some
            }
            SendOnly | SendOnlyImmediate | SendOnlyInvalidate | WriteOnly | WriteOnlyImmediate | ReadOnly => {
                Amount::Any
            }
            ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd | Congestion => {
                Amount::None
            }
        }
    }

    /// Whether a requester sends it; otherwise it answers one.
    pub const fn is_request(self) -> bool {
        use Operation::*;
        !matches!(
            self,
            ReadFirst | ReadMiddle | ReadLast | ReadOnly | Acknowledge | AtomicAcknowledge | Congestion
        )
    }

    const fn name(self) -> &'static str {
        use Operation::*;
        match self {
            SendFirst => "SEND first",
            SendMiddle => "SEND middle",
            SendLast => "SEND last",
            SendLastImmediate => "SEND last with immediate",
            SendOnly => "SEND only",
            SendOnlyImmediate => "SEND only with immediate",
            WriteFirst => "WRITE first",
            WriteMiddle => "WRITE middle",
            WriteLast => "WRITE last",
            WriteLastImmediate => "WRITE last with immediate",
            WriteOnly => "WRITE only",
            WriteOnlyImmediate => "WRITE only with immediate",
            ReadRequest => "READ request",
            ReadFirst => "READ response first",
            ReadMiddle => "READ response middle",
            ReadLast => "READ response last",
            ReadOnly => "READ response only",
            Acknowledge => "ACK",
            AtomicAcknowledge => "ATOMIC ACK",
            CompareSwap => "CMP-SWAP",
            FetchAdd => "FETCH-ADD",
            SendLastInvalidate => "SEND last with invalidate",
            SendOnlyInvalidate => "SEND only with invalidate",
            Congestion => "CNP",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Ud => "UD",
            Service::Cnp => "CNP",
        })
    }
}

/// An opcode that is defined: a service with one of its operations.
///
/// Not among them: reliable datagrams and extended reliable connections, which need headers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode {
    service: Service,
    operation: Operation,
}

impl Opcode {
    /// Congestion notification.
    pub const CNP: Opcode = Opcode { service: Service::Cnp, operation: Operation::Congestion };

    /// The operation of a service; none if that service does not have it.
    pub const fn new(service: Service, operation: Operation) -> Option<Opcode> {
        use Operation::*;
        let defined = match service {
            Service::Rc => !matches!(operation, Congestion),
            Service::Uc => operation as u8 <= WriteOnlyImmediate as u8,
            Service::Ud => matches!(operation, SendOnly | SendOnlyImmediate),
            Service::Cnp => matches!(operation, Congestion),
        };
        if defined { Some(Opcode { service, operation }) } else { None }
    }

    /// An operation of a reliable connection; of `Congestion`, the notification.
    pub const fn rc(operation: Operation) -> Opcode {
        match Opcode::new(Service::Rc, operation) {
            Some(opcode) => opcode,
            None => Opcode::CNP,
        }
    }

    /// From the field; none for values that are reserved, or of a service that is not known here.
    pub fn from_octet(octet: u8) -> Option<Opcode> {
        let service = match octet >> 5 {
            0b000 => Service::Rc,
            0b001 => Service::Uc,
            0b011 => Service::Ud,
            0b100 => Service::Cnp,
            _ => return None,
        };
        let lower = if service == Service::Cnp { octet } else { octet & 31 };
        let operation = Operation::ALL.into_iter().find(|o| *o as u8 == lower)?;
        Opcode::new(service, operation)
    }

    /// The field's value.
    pub const fn octet(self) -> u8 {
        match self.service {
            Service::Rc | Service::Cnp => self.operation as u8,
            Service::Uc => self.operation as u8 | 0x20,
            Service::Ud => self.operation as u8 | 0x60,
        }
    }

    /// The service.
    pub const fn service(self) -> Service {
        self.service
    }

    /// The operation.
    pub const fn operation(self) -> Operation {
        self.operation
    }

    /// Which headers follow the BTH.
    pub const fn extension(self) -> Extension {
        self.operation.extension(self.service)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.service {
            Service::Cnp => self.operation.fmt(f),
            service => write!(f, "{service} {}", self.operation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_is_read_as_what_writes_it_or_not_at_all() {
        let known: std::vec::Vec<u8> = (0..=u8::MAX).filter(|o| Opcode::from_octet(*o).is_some()).collect();
        // IBTA table 35: RC without 0x15 (reserved), UC up to 0x2b, UD 0x64 and 0x65; A17: 0x81.
        let mut expected: std::vec::Vec<u8> = (0..=0x14).chain([0x16, 0x17]).collect();
        expected.extend((0x20..=0x2b).chain([0x64, 0x65, 0x81]));
        assert_eq!(known, expected);
        for octet in known {
            assert_eq!(Opcode::from_octet(octet).map(Opcode::octet), Some(octet));
        }
    }

    #[test]
    fn headers_follow_the_table() {
        let len = |octet| Opcode::from_octet(octet).map(|o| o.extension().len());
        // IBTA table 36, octets: RETH 16, AETH 4, AtomicETH 28, AtomicAckETH 8, ImmDt 4, IETH 4, DETH 8.
        for (octet, octets) in [
            (0x00, 0),
            (0x03, 4),
            (0x05, 4),
            (0x06, 16),
            (0x09, 4),
            (0x0b, 20),
            (0x0c, 16),
            (0x0d, 4),
            (0x0e, 0),
            (0x10, 4),
            (0x11, 4),
            (0x12, 12),
            (0x13, 28),
            (0x14, 28),
            (0x16, 4),
            (0x17, 4),
            (0x24, 0),
            (0x25, 4),
            (0x2b, 20),
            (0x64, 8),
            (0x65, 12),
            (0x81, 16),
        ] {
            assert_eq!(len(octet), Some(octets), "{octet:#x}");
        }
    }
}
