//! UDP (RFC 768).

pub mod demux;
