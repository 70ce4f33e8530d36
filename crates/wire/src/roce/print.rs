//! The transport headers in one line.

use super::{Extended, Headers, Syndrome, extended};
use core::fmt::{self, Formatter};

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Headers { bth, extended } = self;
        write!(f, "{}, qp {}, psn {}", bth.opcode, bth.destination, bth.psn)?;
        if bth.pkey != super::bth::DEFAULT_PKEY {
            write!(f, ", pkey {:#x}", bth.pkey)?;
        }
        for (set, name) in [
            (bth.ack_request, "ack requested"),
            (bth.solicited, "solicited"),
            (bth.fecn, "fecn"),
            (bth.becn, "becn"),
        ] {
            if set {
                write!(f, ", {name}")?;
            }
        }
        if let Some(deth) = extended.deth() {
            write!(f, ", qkey {:#x}, from qp {}", deth.qkey, deth.source)?;
        }
        if let Some(reth) = extended.reth() {
            write!(f, ", va {:#x}, key {:#x}, dma length {}", reth.address, reth.key, reth.length)?;
        }
        if let Some(aeth) = extended.aeth() {
            match aeth.syndrome {
                Syndrome::Ack { credits: Syndrome::NO_CREDITS } => {}
                Syndrome::Ack { credits } => write!(f, ", credits {credits}")?,
                Syndrome::NotReady { timer } => {
                    write!(f, ", receiver not ready, {} us", extended::rnr_ns(timer) / 1000)?;
                }
                Syndrome::Nak(nak) => write!(f, ", NAK {nak}")?,
            }
            write!(f, ", msn {}", aeth.msn)?;
        }
        match extended {
            Extended::Atomic(atomic) => {
                write!(f, ", va {:#x}, key {:#x}", atomic.address, atomic.key)?;
                match bth.opcode.operation() {
                    super::Operation::CompareSwap => {
                        write!(f, ", compare {:#x}, swap {:#x}", atomic.compare, atomic.swap_or_add)?;
                    }
                    _ => write!(f, ", add {:#x}", atomic.swap_or_add)?,
                }
            }
            Extended::AtomicAck(_, original) => write!(f, ", was {original:#x}")?,
            Extended::Invalidate(key) => write!(f, ", invalidate key {key:#x}")?,
            _ => {}
        }
        match extended.immediate() {
            Some(data) => write!(f, ", immediate {data:#x}"),
            None => Ok(()),
        }
    }
}
