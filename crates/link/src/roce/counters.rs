//! What has passed, and what was dropped and why.

use bypath_wire::roce::Nak;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What has passed, and what was dropped and why.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl Counters {
            /// All of them, by their names.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Packets given to the device.
    received,
    /// Packets made.
    sent,
    /// Octets of payload of SENDs and WRITEs that went into memory, each once; of datagrams none.
    taken_octets,
    /// Dropped: no RoCEv2 packet.
    other,
    /// Dropped: with IPv4 options or IPv6 extension headers, or a fragment.
    extended,
    /// Dropped: cut off, or against the format's rules.
    malformed,
    /// Dropped: the ICRC does not fit.
    wrong_icrc,
    /// Dropped: for no queue pair of this device.
    unknown_pair,
    /// Dropped: not from the queue pair's other end, or not to its address.
    wrong_address,
    /// Dropped: of another partition.
    wrong_partition,
    /// Dropped: an opcode of another service than the queue pair's.
    wrong_service,
    /// Dropped: a datagram with another Q_Key.
    wrong_qkey,
    /// Dropped: for a queue pair that is in error.
    broken,
    /// Dropped: a request whose PSN is ahead of the expected one.
    ahead,
    /// A request that was there before.
    duplicates,
    /// Of them, atomic operations whose result is no longer known: dropped.
    forgotten,
    /// Acknowledgements sent.
    acks_sent,
    /// NAKs sent: PSN sequence error.
    nak_sequence_sent,
    /// NAKs sent: invalid request.
    nak_invalid_sent,
    /// NAKs sent: remote access error.
    nak_access_sent,
    /// NAKs sent: remote operational error.
    nak_operation_sent,
    /// "Not ready" sent.
    not_ready_sent,
    /// NAKs received.
    naks_received,
    /// "Not ready" received.
    not_ready_received,
    /// Answers to what is not, or no longer, awaited: dropped.
    stale_answers,
    /// Packets sent again.
    repeated,
    /// Times that nothing came in time.
    timeouts,
    /// Times that the loss of an answer was seen by a later one.
    gaps,
    /// UC: messages that were not complete.
    incomplete,
    /// UC: packets whose message had no beginning, or was given up: dropped.
    headless,
    /// UC, UD: messages that had no receive buffer, one too short, or memory that they may not use.
    no_room,
    /// Packets marked "congestion experienced".
    congested,
    /// Congestion notifications sent.
    notifications_sent,
    /// Congestion notifications received.
    notifications_received,
}

impl Counters {
    pub(super) const fn nak_sent(&mut self, nak: Nak) {
        match nak {
            Nak::SequenceError => self.nak_sequence_sent += 1,
            Nak::InvalidRequest | Nak::InvalidRd => self.nak_invalid_sent += 1,
            Nak::RemoteAccess => self.nak_access_sent += 1,
            Nak::RemoteOperation => self.nak_operation_sent += 1,
        }
    }
}
