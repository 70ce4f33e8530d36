//! Datagrams out.

use super::header::{self, CHECKSUM_AT, transmitted};
use super::{Checksum, MOST_SEGMENTS, Mode, Udp};
use crate::tun::Refused;
use crate::{Error, Result};
use bypath_sys::Errno;
use bypath_wire::{Addresses, IpProtocol};
use std::io::IoSlice;
use std::net::SocketAddr;

const UDP: usize = bypath_wire::udp::HEADER_LEN;

impl Udp {
    /// Sends one datagram.
    ///
    /// # Errors
    /// [`Refused::DatagramTooLong`]; [`Refused::TooLong`] where it must not be cut; [`Error::Down`], [`Error::Gone`];
    /// [`Error::Invalid`] for an address of the other kind.
    #[inline]
    pub fn send(&mut self, to: SocketAddr, payload: &[u8]) -> Result<()> {
        let addresses = self.addresses(to)?;
        self.send_one(&addresses, to, payload)
    }

    fn send_one(&mut self, addresses: &Addresses, to: SocketAddr, payload: &[u8]) -> Result<()> {
        if payload.len() > self.most_uncut() {
            return self.send_long(addresses, to, payload);
        }
        match self.mode {
            Mode::Assemble => self.assemble(addresses, to, payload),
            Mode::Pieces | Mode::Super => self.send_pieces(addresses, to, payload),
        }
    }

    #[cold]
    fn send_long(&mut self, addresses: &Addresses, to: SocketAddr, payload: &[u8]) -> Result<()> {
        let (len, most) = (payload.len(), self.most_payload());
        if len > most {
            return Err(Refused::DatagramTooLong { len, most }.into());
        }
        if self.whole {
            // It may have been raised since.
            self.device.refresh_mtu()?;
            if len <= self.most_uncut() {
                return self.send_pieces(addresses, to, payload);
            }
            let (interface, need) = (self.device.name().to_owned(), len + self.headers());
            return Err(Refused::TooLong { interface, len, most: self.most_uncut(), need }.into());
        }
        self.send_fragments(addresses, to, payload)
    }

    /// Copies headers and payload together.
    fn assemble(&mut self, addresses: &Addresses, to: SocketAddr, payload: &[u8]) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.assembled);
        let done = self.headers_for(&mut buffer, addresses, to, payload.len(), None).and_then(|at| {
            let (head, behind) = buffer.split_at_mut(at);
            let behind = &mut behind[..payload.len()];
            if self.checksum == Checksum::Own {
                let udp = &mut head[at - UDP..];
                let sum = addresses.pseudo_header(IpProtocol::UDP, UDP + payload.len());
                let sum = sum.bytes(udp).copy(behind, payload);
                udp[CHECKSUM_AT..].copy_from_slice(&transmitted(sum));
            } else {
                behind.copy_from_slice(payload);
            }
            let end = at + payload.len();
            self.written(end, self.device.write(&buffer[..end]))
        });
        self.assembled = buffer;
        done
    }

    /// Leaves the payload where it is.
    fn send_pieces(&mut self, addresses: &Addresses, to: SocketAddr, payload: &[u8]) -> Result<()> {
        let mut head = [0; header::MOST];
        let at = self.headers_for(&mut head, addresses, to, payload.len(), None)?;
        if self.checksum == Checksum::Own {
            let udp = &mut head[at - UDP..at];
            let sum = addresses.pseudo_header(IpProtocol::UDP, UDP + payload.len());
            let sum = sum.bytes(udp).bytes(payload);
            udp[CHECKSUM_AT..].copy_from_slice(&transmitted(sum));
        }
        let pieces = [IoSlice::new(&head[..at]), IoSlice::new(payload)];
        self.written(at + payload.len(), self.device.write_pieces(&pieces))
    }

    /// What became of a packet.
    #[inline]
    pub(super) fn written(&mut self, octets: usize, result: bypath_sys::Result<usize>) -> Result<()> {
        self.identification = self.identification.wrapping_add(1);
        self.device.count_sent(octets);
        match result {
            Ok(_) => Ok(()),
            Err(e) => Err(self.not_written(e)),
        }
    }

    #[cold]
    fn not_written(&mut self, e: Errno) -> Error {
        self.device.count_refused();
        match e {
            Errno::AGAIN => Error::WouldBlock,
            Errno::INTR => Error::Interrupted,
            e => self.device.failed("send", e),
        }
    }

    /// Sends many datagrams to one receiver; returns how many. In mode [`Mode::Super`] those of one size that follow each
    /// other go together, the last of which may be shorter.
    ///
    /// # Errors
    /// Those of [`send`](Udp::send) for the first one; for a later one, fewer are sent.
    pub fn send_batch<'a>(
        &mut self,
        to: SocketAddr,
        payloads: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<usize> {
        let addresses = self.addresses(to)?;
        let mut payloads = payloads.into_iter();
        let mut sent = 0;
        if self.mode != Mode::Super {
            for payload in payloads {
                match self.send_one(&addresses, to, payload) {
                    Err(_) if sent > 0 => return Ok(sent),
                    done => done?,
                }
                sent += 1;
            }
            return Ok(sent);
        }
        let mut next = payloads.next();
        while let Some(first) = next.take() {
            let size = first.len();
            let mut pieces = [IoSlice::new(first); MOST_SEGMENTS];
            let (mut count, mut len) = (1, size);
            let most = if size == 0 || size > self.most_uncut() { 1 } else { MOST_SEGMENTS };
            for payload in payloads.by_ref() {
                let fits = payload.len() <= size
                    && !payload.is_empty()
                    && len + payload.len() <= self.most_payload();
                if count == most || !fits {
                    next = Some(payload);
                    break;
                }
                pieces[count] = IoSlice::new(payload);
                count += 1;
                len += payload.len();
                if payload.len() < size {
                    next = payloads.next();
                    break;
                }
            }
            let done = match count {
                1 => self.send_one(&addresses, to, first),
                _ => self.send_super(&addresses, to, &pieces[..count], len, size),
            };
            match done {
                Err(_) if sent > 0 => return Ok(sent),
                done => done?,
            }
            sent += count;
        }
        Ok(sent)
    }

    /// Cuts octets into datagrams of `size`, the last of which may be shorter, and sends them to one receiver; returns how
    /// many. In mode [`Mode::Super`] nothing is copied and one call sends up to [`MOST_SEGMENTS`] of them.
    ///
    /// # Errors
    /// Those of [`send`](Udp::send) for the first packet; for a later one, fewer are sent. [`Error::Invalid`] for a size of 0.
    pub fn send_cut(&mut self, to: SocketAddr, octets: &[u8], size: usize) -> Result<usize> {
        if size == 0 {
            return Err(Error::Invalid("octets cannot be cut into datagrams of none".to_owned()));
        }
        let addresses = self.addresses(to)?;
        let most = match self.mode {
            Mode::Super if size <= self.most_uncut() => (self.most_payload() / size).clamp(1, MOST_SEGMENTS),
            _ => 1,
        };
        let mut sent = 0;
        for part in octets.chunks(size.saturating_mul(most)) {
            let done = if part.len() > size {
                self.send_super(&addresses, to, &[IoSlice::new(part)], part.len(), size)
            } else {
                self.send_one(&addresses, to, part)
            };
            match done {
                Err(_) if sent > 0 => return Ok(sent),
                done => done?,
            }
            sent += part.len().div_ceil(size);
        }
        Ok(sent)
    }

    /// One call for several datagrams.
    fn send_super(
        &mut self,
        addresses: &Addresses,
        to: SocketAddr,
        payloads: &[IoSlice<'_>],
        len: usize,
        size: usize,
    ) -> Result<()> {
        let mut head = [0; header::MOST];
        let at = self.headers_for(&mut head, addresses, to, len, Some(size))?;
        let mut pieces = [IoSlice::new(&[]); 1 + MOST_SEGMENTS];
        pieces[0] = IoSlice::new(&head[..at]);
        pieces[1..=payloads.len()].copy_from_slice(payloads);
        let result = self.device.write_pieces(&pieces[..=payloads.len()]);
        // Each datagram of an IPv4 super-packet gets the next identification; the last one's is counted below.
        let more = len.div_ceil(size) as u32 - 1;
        self.identification = self.identification.wrapping_add(more);
        self.written(at + len, result)
    }
}
