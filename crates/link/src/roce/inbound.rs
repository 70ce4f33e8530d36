//! Messages that come: SENDs into receive buffers and WRITEs into memory, packet by packet. Which packet is the next one
//! is not decided here.

use super::memory::{Local, Memory, Want};
use super::work::{Mtu, Receive, Received};
use bypath_wire::roce::{Extended, Nak, Operation};
use std::collections::VecDeque;

/// Why a packet is not taken. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No receive buffer.
    NotReady,
    /// Otherwise.
    Nak(Nak),
}

/// Where the packets of a message stand in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    Only,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    /// How much of it is in the first receive buffer.
    Send(u32),
    /// Where it goes, and how much of it is there.
    Write(Local, u32),
}

/// The message that is coming, and the buffers for those to come.
#[derive(Debug, Default)]
pub struct Inbound {
    message: Option<Message>,
    pub receives: VecDeque<Receive>,
}

impl Inbound {
    /// Whether a message has begun and not ended.
    pub const fn is_inside(&self) -> bool {
        self.message.is_some()
    }

    /// The message that has begun will not end.
    pub const fn abandon(&mut self) {
        self.message = None;
    }

    /// Takes a packet of a SEND or WRITE; tells of a message that is complete and used a receive buffer. The first value
    /// says whether a message is complete.
    pub fn take(
        &mut self,
        memory: &mut Memory,
        mtu: Mtu,
        operation: Operation,
        extended: &Extended,
        payload: &[u8],
    ) -> Result<(bool, Option<Received>), Refusal> {
        use Operation::*;
        let place = match operation {
            SendFirst | WriteFirst => Place::First,
            SendMiddle | WriteMiddle => Place::Middle,
            SendLast | SendLastImmediate | SendLastInvalidate | WriteLast | WriteLastImmediate => Place::Last,
            _ => Place::Only,
        };
        let begins = matches!(place, Place::First | Place::Only);
        let ends = matches!(place, Place::Last | Place::Only);
        let len = payload.len() as u32;
        let invalid = Refusal::Nak(Nak::InvalidRequest);
        // Those that are not the last are whole, which the parser does not know.
        if begins == self.is_inside() || len > mtu.octets() || !ends && len != mtu.octets() {
            return Err(invalid);
        }
        let is_write = matches!(
            operation,
            WriteFirst | WriteMiddle | WriteLast | WriteLastImmediate | WriteOnly | WriteOnlyImmediate
        );
        if is_write {
            self.write(memory, place, extended, payload)
        } else {
            self.send(memory, place, extended, payload)
        }
    }

    fn send(
        &mut self,
        memory: &mut Memory,
        place: Place,
        extended: &Extended,
        payload: &[u8],
    ) -> Result<(bool, Option<Received>), Refusal> {
        let invalid = Refusal::Nak(Nak::InvalidRequest);
        let at = match self.message {
            None => 0,
            Some(Message::Send(at)) => at,
            Some(Message::Write(..)) => return Err(invalid),
        };
        let receive = *self.receives.front().ok_or(Refusal::NotReady)?;
        let len = payload.len() as u32;
        let end = at.checked_add(len).filter(|end| *end <= receive.to.len).ok_or(invalid)?;
        let to = receive.to.part(at, len);
        let gone = |_| Refusal::Nak(Nak::RemoteOperation);
        memory.octets(to).map_err(gone)?;
        if let Extended::Invalidate(key) = *extended
            && !memory.invalidate(key)
        {
            return Err(Refusal::Nak(Nak::RemoteAccess));
        }
        memory.octets_mut(to).map_err(gone)?.copy_from_slice(payload);
        if matches!(place, Place::First | Place::Middle) {
            self.message = Some(Message::Send(end));
            return Ok((false, None));
        }
        self.message = None;
        self.receives.pop_front();
        let immediate = extended.immediate();
        Ok((true, Some(Received { id: receive.id, len: end, written: false, immediate, source: None })))
    }

    fn write(
        &mut self,
        memory: &mut Memory,
        place: Place,
        extended: &Extended,
        payload: &[u8],
    ) -> Result<(bool, Option<Received>), Refusal> {
        let invalid = Refusal::Nak(Nak::InvalidRequest);
        let len = payload.len() as u32;
        let (to, at) = match (self.message, extended.reth()) {
            (None, Some(reth)) => (Local { key: reth.key, address: reth.address, len: reth.length }, 0),
            (Some(Message::Write(to, at)), None) => (to, at),
            _ => return Err(invalid),
        };
        let end = at.checked_add(len).filter(|end| *end <= to.len).ok_or(invalid)?;
        let ends = matches!(place, Place::Last | Place::Only);
        // The sum is what the first packet said: no more, and no less at the end.
        if ends != (end == to.len) {
            return Err(invalid);
        }
        // Nothing is written if nothing may be: the whole of the range is asked for. Of no octets nobody asks.
        if to.len > 0 {
            memory.wanted_mut(to, Want::Write).map_err(|_| Refusal::Nak(Nak::RemoteAccess))?;
        }
        let receive = match extended.immediate() {
            Some(_) => Some(*self.receives.front().ok_or(Refusal::NotReady)?),
            None => None,
        };
        if len > 0 {
            let part = memory.wanted_mut(to.part(at, len), Want::Write);
            part.map_err(|_| Refusal::Nak(Nak::RemoteAccess))?.copy_from_slice(payload);
        }
        if !ends {
            self.message = Some(Message::Write(to, end));
            return Ok((false, None));
        }
        self.message = None;
        let immediate = extended.immediate();
        let received = receive.map(|receive| {
            self.receives.pop_front();
            Received { id: receive.id, len: end, written: true, immediate, source: None }
        });
        Ok((true, received))
    }
}
